/* SPDX-License-Identifier: MIT */
/*
 * Callers of the procedures, good and bad, beside a permitd: each has a clear outcome, and while its transaction is open
 * an acquire of another key of the same semaphore is answered.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "fixture.h"

enum { REFUSED = 1644, READ_ONLY = 1290, WAIT_MS = 120000, CALLERS = 1000, SPARE = 10 };

struct scene {
    struct kit_database *database;
    struct kit_permitd *permitd;
    struct talk talk;
    struct kit_sql *sql;
};

static void serve(struct scene *scene)
{
    scene->permitd =
        kit_permitd_start(&(struct kit_permitd_options){.database = scene->database->url, .flags = patient_flags});
    scene->talk = talk_to(scene->permitd->port);
    scene->sql = kit_sql_open(scene->database->socket, "permitd");
}

static void stop_serving(struct scene *scene)
{
    kit_sql_close(scene->sql);
    talk_end(&scene->talk);
    kit_permitd_stop(scene->permitd);
}

static bool has_procedures(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA='permitd'") == 8;
}

/* A server with a semaphore `hall`, the procedures, and root as an SQL account. */
static struct scene begun(const char *const *flags)
{
    struct scene scene = {.database = kit_database_start(flags)};
    serve(&scene);
    say(&scene.talk, 201, "PUT", "/v1/semaphores/hall",
        text("{\"capacity\":%d,\"kind\":\"counted\"}", CALLERS + SPARE));
    say(&scene.talk, 201, "PUT", "/v1/sql-accounts/root", NULL);
    kit_sql_run(scene.sql, "UPDATE schema_version SET applied_at = applied_at - INTERVAL 1 MINUTE");
    cr_assert(kit_wait_until(has_procedures, scene.sql, WAIT_MS));
    return scene;
}

static void ended(struct scene *scene)
{
    stop_serving(scene);
    kit_database_stop(scene->database);
}

static void others_are_served(struct scene *scene, const char *beside)
{
    const char *key = fresh_name("other");
    cr_log_info("beside %s", beside);
    say(&scene->talk, 201, "POST", "/v1/requests", acquire_body(key, "hall", 1, ""));
    say(&scene->talk, 200, "POST", text("/v1/requests/%s/renew", key), NULL);
    release(&scene->talk, key);
}

static bool all_are_settled(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM permit_request WHERE errand <> 0") == 0;
}

Test(sales, callers_have_a_clear_outcome_and_delay_no_other_key, .timeout = 600)
{
    static const struct {
        const char *name;
        const char *before; /* by an operator */
        const char *setup, *begin;
        bool snapshot; /* the transaction begins before the acquire */
        unsigned error;
        const char *refusal;
        bool killed; /* before its COMMIT */
    } rows[] = {
        {"read uncommitted", "DO 0", "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "BEGIN", false, 0, "",
         false},
        {"repeatable read", "DO 0", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN", false, 0, "",
         false},
        {"serializable", "DO 0", "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "BEGIN", false, REFUSED,
         "permit: serializable", false},
        {"no transaction", "DO 0", "DO 0", "DO 0", false, REFUSED, "permit: no transaction", false},
        {"an older snapshot", "DO 0", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
         "START TRANSACTION WITH CONSISTENT SNAPSHOT", true, REFUSED, "permit: unknown_request", false},
        {"another namespace", "UPDATE sql_account SET namespace = 'n'", "DO 0", "BEGIN", false, REFUSED,
         "permit: unknown_request", false},
        {"no account", "DELETE FROM sql_account", "DO 0", "BEGIN", false, REFUSED, "permit: forbidden", false},
        {"killed", "DO 0", "DO 0", "BEGIN", false, 0, "", true},
    };
    struct scene scene = begun(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key = text("k%zu", i);
        kit_sql_run(scene.sql, "REPLACE INTO sql_account (user, namespace) VALUES ('root', '')");
        kit_sql_run(scene.sql, "%s", rows[i].before);
        struct kit_sql *caller = kit_sql_open(scene.database->socket, "permitd");
        kit_sql_run(caller, "%s", rows[i].setup);
        if (rows[i].snapshot)
            kit_sql_run(caller, "%s", rows[i].begin);
        say(&scene.talk, 201, "POST", "/v1/requests", acquire_body(key, "hall", 1, ""));
        if (!rows[i].snapshot)
            kit_sql_run(caller, "%s", rows[i].begin);
        cr_expect_eq(kit_sql_try(caller, "CALL permit_confirm('%s')", key), rows[i].error, "%s: %s", rows[i].name,
                     kit_sql_message(caller));
        if (rows[i].error)
            cr_expect(strstr(kit_sql_message(caller), rows[i].refusal), "%s: %s", rows[i].name,
                      kit_sql_message(caller));
        others_are_served(&scene, rows[i].name);
        if (rows[i].killed)
            kit_sql_run(scene.sql, "KILL CONNECTION %lld", (long long)kit_sql_number(caller, "SELECT CONNECTION_ID()"));
        else
            kit_sql_run(caller, "COMMIT");
        kit_sql_close(caller);
        bool sold = !rows[i].error && !rows[i].killed;
        cr_expect(kit_wait_until(all_are_settled, scene.sql, WAIT_MS), "%s", rows[i].name);
        say_until(&scene.talk, 200, "POST", text("/v1/requests/%s/renew", key),
                  NULL); /* a killed one rolls back first */
        cr_expect_eq(kit_sql_number(scene.sql,
                                    "SELECT confirmed_at IS NOT NULL FROM permit_request WHERE external_id = '%s'",
                                    key),
                     sold, "%s", rows[i].name);
        say(&scene.talk, sold ? 409 : 200, "DELETE", request_path(key), NULL);
    }
    ended(&scene);
}

/* What it needs of files: a connection each. */
static void allow_files(rlim_t count)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < count)
        limit.rlim_cur = limit.rlim_max < count ? limit.rlim_max : count;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    cr_assert_geq(limit.rlim_cur, count, "the limit of open files is %llu", (unsigned long long)limit.rlim_cur);
}

Test(sales, thousand_open_callers_delay_no_other_key, .timeout = 600)
{
    static const char *const flags[] = {"--max-connections=1200", NULL};
    static struct kit_sql *callers[CALLERS];
    static char body[CALLERS * 100];
    allow_files(CALLERS + 200);
    struct scene scene = begun(flags);
    size_t length = (size_t)snprintf(body, sizeof body, "{\"operations\":[");
    for (int i = 0; i < CALLERS; i++)
        length += (size_t)snprintf(
            body + length, sizeof body - length,
            "%s{\"op\":\"acquire\",\"external_id\":\"k%d\",\"permits\":[{\"semaphore\":\"hall\"}]}", i ? "," : "", i);
    (void)snprintf(body + length, sizeof body - length, "]}");
    say(&scene.talk, 200, "POST", "/v1/batch", body);
    cr_assert_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1"), CALLERS);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = kit_sql_open(scene.database->socket, "permitd");
        kit_sql_run(callers[i], "BEGIN");
        kit_sql_run(callers[i], "CALL permit_confirm('k%d')", i);
    }
    others_are_served(&scene, "all of them");
    cr_expect_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE errand <> 0"), 0);
    for (int i = 0; i < CALLERS; i++) {
        kit_sql_run(callers[i], i % 2 ? "COMMIT" : "ROLLBACK");
        kit_sql_close(callers[i]);
    }
    cr_expect(kit_wait_until(all_are_settled, scene.sql, WAIT_MS));
    cr_expect_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE confirmed_at IS NOT NULL"),
                 CALLERS / 2);
    say(&scene.talk, 200, "GET", "/v1/semaphores/hall", NULL);
    cr_expect_eq(number_of(&scene.talk, "in_use"), CALLERS);
    ended(&scene);
}

/* A cart is confirmed after the sales that shops have committed, and waits for one that is open. */
Test(sales, cart_is_confirmed_beside_a_shop, .timeout = 600)
{
    static const char cart[] = "{\"external_ids\":[\"a\",\"b\",\"c\"]}";
    struct scene scene = begun(NULL);
    for (const char *key = "abc"; *key; key++)
        say(&scene.talk, 201, "POST", "/v1/requests", acquire_body(text("%c", *key), "hall", 1, ""));
    struct kit_sql *shop = kit_sql_open(scene.database->socket, "permitd");
    kit_sql_run(shop, "BEGIN");
    kit_sql_run(shop, "CALL permit_confirm('b')");
    refused(&scene.talk, 409, "in_transaction", "POST", "/v1/confirm", cart);
    text_is(&scene.talk, "external_id", "b");
    cr_expect(kit_json_int(scene.talk.reply.body, "retry_after_ms") > 0, "%s", scene.talk.reply.body);
    cr_expect_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE confirmed_at IS NOT NULL"), 0);
    others_are_served(&scene, "a cart in a transaction");
    kit_sql_run(shop, "COMMIT");
    say(&scene.talk, 200, "POST", "/v1/confirm", cart);
    cr_expect_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE confirmed_at IS NOT NULL"), 3);
    say(&scene.talk, 201, "POST", "/v1/requests", acquire_body("d", "hall", 1, ""));
    say(&scene.talk, 201, "POST", "/v1/requests", acquire_body("e", "hall", 1, ""));
    kit_sql_run(shop, "BEGIN");
    kit_sql_run(shop, "CALL permit_release('e')");
    kit_sql_run(shop, "COMMIT");
    refused(&scene.talk, 410, "ended", "POST", "/v1/confirm", "{\"external_ids\":[\"d\",\"e\"]}");
    text_is(&scene.talk, "external_id", "e");
    cr_expect_eq(kit_sql_number(scene.sql, "SELECT COUNT(*) FROM permit_request WHERE confirmed_at IS NOT NULL"), 3);
    kit_sql_close(shop);
    ended(&scene);
}

/* A copy that accepts no writes: the sale is refused there, also by an account that owns the procedures. */
Test(sales, read_only_replica_refuses, .timeout = 600)
{
    static const char *const flags[] = {"--read-only=1", NULL};
    struct scene scene = begun(NULL);
    say(&scene.talk, 201, "POST", "/v1/requests", acquire_body("k", "hall", 1, ""));
    stop_serving(&scene);
    kit_database_kill(scene.database);
    struct kit_database *replica = kit_database_copy(scene.database, flags);
    kit_database_restart(scene.database);
    kit_database_restart(replica);
    serve(&scene);
    struct kit_sql *caller = kit_sql_open(replica->socket, "permitd");
    if (kit_database_is_mysql()) {
        kit_sql_run(caller, "SET GLOBAL super_read_only = 1");
    } else { /* root may write otherwise */
        kit_sql_run(caller, "REVOKE SUPER ON *.* FROM root@localhost");
        (void)kit_sql_try(caller,
                          "REVOKE READ ONLY ADMIN ON *.* FROM root@localhost"); /* a right of its own since 10.11 */
        kit_sql_close(caller);
        caller = kit_sql_open(replica->socket, "permitd");
    }
    kit_sql_run(caller, "BEGIN");
    cr_expect_eq(kit_sql_try(caller, "CALL permit_confirm('k')"), READ_ONLY, "%s", kit_sql_message(caller));
    others_are_served(&scene, "a caller at a replica");
    kit_sql_run(caller, "COMMIT");
    cr_expect_eq(kit_sql_number(caller, "SELECT COUNT(*) FROM permit_request WHERE errand <> 0"), 0);
    kit_sql_close(caller);
    kit_database_stop(replica);
    ended(&scene);
}
