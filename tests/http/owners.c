/* SPDX-License-Identifier: MIT */
/* Owners: heartbeats, heartbeat expiry and the requests that end with it, and the liveness probe. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000 };

static const char *owned_body(const char *key, const char *semaphore, const char *owner, const char *ttl)
{
    return acquire_body(key, semaphore, 1, text(",\"owner\":\"%s\",\"ttl\":\"%s\"", owner, ttl));
}

static const char *owner_path(const char *owner)
{
    return text("/v1/owners/%s", owner);
}

/* Acquires one unit for the owner. Returns the key. */
static const char *acquire(struct talk *talk, const char *semaphore, const char *owner, const char *ttl)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", owned_body(key, semaphore, owner, ttl));
    return key;
}

static void is_held(struct talk *talk, const char *key)
{
    say(talk, 200, "GET", request_path(key), NULL);
    text_is(talk, "state", "ACQUIRED");
}

/* ---- heartbeats ---- */

Test(owners, heartbeat_creates_an_owner_and_extends_it, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *owner = fresh_name("o");
    refused(&talk, 404, "unknown_owner", "GET", owner_path(owner), NULL);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "owner", owner);
    text_is(&talk, "state", "alive");
    cr_assert_eq(number_of(&talk, "ttl_ms"), 3600000);
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 3600000);
    cr_assert(kit_json_has(talk.reply.body, "expires_at"));
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":7200}");
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 7200000);
    say(&talk, 200, "GET", owner_path(owner), NULL);
    text_is(&talk, "state", "alive");
    cr_assert_eq(number_of(&talk, "held"), 0);
    cr_assert_gt(number_of(&talk, "expires_in_ms"), 7000000);
    cr_assert(kit_json_has(talk.reply.body, "suspect") && !kit_json_true(talk.reply.body, "suspect"));
    talk_end(&talk);
}

Test(owners, invalid_heartbeats_are_refused, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *path = owner_path(fresh_name("o"));
    refused(&talk, 422, "invalid", "PUT", path, "{}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":0}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":\"none\"}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":\"1s\",\"more\":1}");
    refused(&talk, 400, "malformed", "PUT", path, NULL);
    refused(&talk, 422, "invalid", "PUT", "/v1/owners/a%20b", "{\"ttl\":1}");
    refused(&talk, 405, "method_not_allowed", "POST", path, "{\"ttl\":1}");
    refused(&talk, 404, "unknown_owner", "DELETE", path, NULL);
    say(&talk, 201, "PUT", owner_path(text("a%%2Fb%%25-%s", process_name())), "{\"ttl\":1}");
    text_is(&talk, "owner", text("a/b%%-%s", process_name()));
    talk_end(&talk);
}

Test(owners, ttl_owner_needs_an_owner_with_a_heartbeat, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"max_ttl\":\"1m\"}");
    const char *owner = fresh_name("o");
    const char *body = text("{\"owner\":\"%s\",\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", owner, name);
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    refused(&talk, 404, "unknown_owner", "POST", "/v1/requests", body);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    say(&talk, 201, "POST", "/v1/requests", body);
    text_is(&talk, "ttl", "owner");
    cr_assert(kit_json_has(talk.reply.body, "ttl_ms") && kit_json_int(talk.reply.body, "ttl_ms") == INT64_MIN);
    cr_assert_not(kit_json_has(talk.reply.body, "expires_at"));
    const char *key = kept(kit_json_text(talk.reply.body, "external_id"));
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), NULL);
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"owner\"}");
    refused(&talk, 422, "invalid", "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"10s\"}");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name), "{\"max_ttl\":\"owner\"}");
    say(&talk, 200, "GET", owner_path(owner), NULL);
    cr_assert_eq(number_of(&talk, "held"), 1);
    talk_end(&talk);
}

/* ---- heartbeat expiry ---- */

Test(owners, lapse_ends_earlier_requests_but_not_confirmed_ones, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *owner = fresh_name("o");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *by_heartbeat = acquire(&talk, name, owner, "owner");
    const char *by_ttl = acquire(&talk, name, owner, "1h");
    const char *for_ever = acquire(&talk, name, owner, "none");
    const char *sold = acquire(&talk, name, owner, "owner");
    const char *of_another = acquire(&talk, name, fresh_name("o"), "1h");
    say(&talk, 200, "POST", text("%s/confirm", request_path(sold)), NULL);
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"500ms\"}");
    ends_as(&talk, by_heartbeat, "owner_dead");
    ends_as(&talk, by_ttl, "owner_dead");
    ends_as(&talk, for_ever, "owner_dead");
    is_held(&talk, sold);
    is_held(&talk, of_another);
    say(&talk, 200, "GET", owner_path(owner), NULL);
    text_is(&talk, "state", "lapsed");
    cr_assert(kit_json_has(talk.reply.body, "lapsed_at"));
    cr_assert_eq(number_of(&talk, "held"), 1);
    refused(&talk, 410, "ended", "POST", text("%s/renew", request_path(by_ttl)), NULL);
    text_is(&talk, "end_reason", "owner_dead");
    const char *later = acquire(&talk, name, owner, "1h");
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "state", "alive");
    is_held(&talk, later);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 3);
    talk_end(&talk);
}

Test(owners, heartbeats_in_time_keep_requests_held, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *owner = fresh_name("o");
    int64_t until = kit_now_us() + 3000000;
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"20s\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    while (kit_now_us() < until)
        say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"20s\"}");
    is_held(&talk, key);
    release(&talk, key);
    text_is(&talk, "end_reason", "released");
    talk_end(&talk);
}

Test(owners, deleted_owner_lapses_immediately, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *owner = fresh_name("o");
    refused(&talk, 404, "unknown_owner", "DELETE", owner_path(owner), NULL);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    text_is(&talk, "state", "lapsed");
    const char *lapsed_at = kept(kit_json_text(talk.reply.body, "lapsed_at"));
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    text_is(&talk, "lapsed_at", lapsed_at);
    refused(&talk, 404, "unknown_owner", "POST", "/v1/requests",
            text("{\"owner\":\"%s\",\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", owner, name));
    ends_as(&talk, key, "owner_dead");
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    (void)acquire(&talk, name, owner, "owner");
    talk_end(&talk);
}

/* The test locks the semaphore's row, so the batch cannot end the owner's request yet. */
Test(owners, heartbeats_are_refused_until_all_requests_have_ended, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL); /* its own, because its worker is blocked */
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *owner = fresh_name("o");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = '%s' FOR UPDATE", name);
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    refused(&talk, 410, "ended", "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "end_reason", "owner_dead");
    cr_assert(kit_json_has(talk.reply.body, "ended_at"));
    say(&talk, 200, "GET", request_path(key), NULL);
    cr_assert(kit_json_true(talk.reply.body, "suspect"), "%s", talk.reply.body);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders", name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "holders.0.suspect"), "%s", talk.reply.body);
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    say_until(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    say(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "end_reason", "owner_dead");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Returns true if the grant's INSERT waits, for 2 s at most, for an uncommitted row with the same key. */
static bool insert_waits(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%INSERT INTO permit_request%%'") > 0;
}

struct lapse {
    struct kit_sql *sql;
    const char *owner;
};

static bool is_settled(void *context)
{
    const struct lapse *lapse = context;
    return kit_sql_number(lapse->sql, "SELECT COUNT(*) FROM owner WHERE name = '%s' AND settled_at IS NOT NULL",
                          lapse->owner) > 0;
}

/*
 * Deletes the owner after a batch with its acquire has read the clock and before that batch has written, and waits
 * until all requests that end with the lapse have ended. The grant then looks older than the lapse. Returns false if
 * the batch timed out first.
 */
static bool grant_after_the_lapse(struct talk *talk, struct lapse *lapse, const char *semaphore, const char *key)
{
    struct talk waiting = talk_to(talk->http.port);
    struct kit_sql *locker = own_sql("own0");
    kit_sql_run(locker, "BEGIN");
    kit_sql_run(locker, "INSERT INTO permit_request (id, external_id) VALUES (1000000000, '%s')", key);
    tell(&waiting, "POST", "/v1/requests", owned_body(key, semaphore, lapse->owner, "1h"));
    cr_assert(kit_wait_until(insert_waits, lapse->sql, PATIENCE_MS));
    say(talk, 200, "DELETE", owner_path(lapse->owner), NULL);
    cr_assert(kit_wait_until(is_settled, lapse, PATIENCE_MS));
    kit_sql_run(locker, "ROLLBACK");
    kit_sql_close(locker);
    cr_assert(kit_http_receive(&waiting.http, "POST", &waiting.reply), "%s", waiting.reply.error);
    bool granted = waiting.reply.status == 201;
    cr_assert(granted || waiting.reply.status == 503, "%s", waiting.reply.body); /* the lapse took longer than 2 s */
    talk_end(&waiting);
    return granted && kit_sql_number(lapse->sql,
                                     "SELECT COUNT(*) FROM permit_request r JOIN owner o ON o.name = r.owner "
                                     "WHERE r.external_id = '%s' AND r.acquired_at <= o.lapsed_at",
                                     key) == 1;
}

/*
 * On the long path, because there the batch may wait for 2 s after it has read the clock; the short path reads it again
 * after 250 ms. A semaphore for each try: the grant of one before is ended by the lapse, which needs its row.
 */
Test(owners, grant_committed_after_a_lapse_does_not_block_heartbeats, .timeout = 600)
{
    enum { TRIES = 20 };
    const char *const flags[] = {"--short-path=off", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    struct lapse lapse = {.sql = own_sql("own0"), .owner = fresh_name("o")};
    const char *key = NULL;
    bool granted_late = false;
    for (int i = 0; i < TRIES && !granted_late; i++) {
        const char *name = fresh_semaphore(&talk, "{\"capacity\":100}");
        key = fresh_name("k");
        say_until(&talk, i ? 200 : 201, "PUT", owner_path(lapse.owner), "{\"ttl\":\"1h\"}");
        granted_late = grant_after_the_lapse(&talk, &lapse, name, key);
    }
    cr_assert(granted_late);
    say(&talk, 200, "PUT", owner_path(lapse.owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "state", "alive");
    is_held(&talk, key);
    kit_sql_close(lapse.sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Reads the metrics, which are not JSON. */
static bool all_lapsed(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/metrics", &talk->reply) &&
           strstr(talk->reply.body, "permitd_owners{state=\"lapsed\"} 300\n") &&
           strstr(talk->reply.body, "permitd_ended_total{reason=\"owner_dead\"} 600\n");
}

/* Returns true if a session of this database waits for an owner's row. */
static bool waits_for_owner(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%FROM owner%%FOR UPDATE%%'") > 0;
}

/* The test keeps a row locked, as a permitd stopped in the middle of a batch would. */
Test(owners, locked_owner_row_does_not_block_other_heartbeats, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_http stuck = kit_http(permitd->port);
    struct reply reply;
    const char *kept_row = fresh_name("o");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(kept_row), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT ttl_ms FROM owner WHERE name = '%s' LOCK IN SHARE MODE", kept_row);
    cr_assert(kit_http_send(&stuck, "PUT", owner_path(kept_row), NULL, "{\"ttl\":\"2h\"}"));
    cr_assert(kit_wait_until(waits_for_owner, sql, PATIENCE_MS));
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "PUT", owner_path(fresh_name("o")), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    cr_assert(kit_http_receive(&stuck, "PUT", &reply), "%s", reply.error);
    cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
    reply_release(&reply);
    say(&talk, 200, "PUT", owner_path(kept_row), "{\"ttl\":\"2h\"}");
    kit_http_close(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* More rows than the request timeout has seconds: one lock wait for each row would take too long. */
enum { KEPT = 150 };

Test(owners, many_locked_owner_rows_do_not_block_other_heartbeats, .timeout = 900)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_http stuck[KEPT];
    const char *kept_rows[KEPT];
    struct kit_sql *sql = own_sql("own0");
    for (int i = 0; i < KEPT; i++) {
        kept_rows[i] = fresh_name("a");
        say(&talk, 201, "PUT", owner_path(kept_rows[i]), "{\"ttl\":\"1h\"}");
    }
    kit_sql_run(sql, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); /* rows, not the gaps between them */
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT COUNT(*) FROM (SELECT name FROM owner FOR UPDATE) o");
    for (int i = 0; i < KEPT; i++) {
        stuck[i] = kit_http(permitd->port);
        cr_assert(kit_http_send(&stuck[i], "PUT", owner_path(kept_rows[i]), NULL, "{\"ttl\":\"2h\"}"));
    }
    cr_assert(kit_wait_until(waits_for_owner, sql, PATIENCE_MS));
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "PUT", owner_path(fresh_name("b")), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    for (int i = 0; i < KEPT; i++) {
        struct reply reply;
        cr_assert(kit_http_receive(&stuck[i], "PUT", &reply), "%s", reply.error);
        cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&stuck[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* P23: a batch does not wait for an owner's row while it holds the semaphore's. */
Test(owners, locked_owner_row_does_not_block_semaphores, .timeout = 600)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct talk stuck = talk_to(permitd->port);
    const char *owner = fresh_name("o");
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":100}");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT ttl_ms FROM owner WHERE name = '%s' FOR UPDATE", owner);
    for (int i = 0; i < 5; i++) {
        tell(&stuck, "POST", "/v1/requests", owned_body(fresh_name("k"), semaphore, owner, "owner"));
        (void)acquire(&talk, semaphore, "somebody", "1h");
        hear(&stuck, 503, "busy");
    }
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    (void)acquire(&talk, semaphore, owner, "owner");
    talk_end(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* The same with the row of a request. */
Test(owners, locked_request_row_does_not_block_its_semaphore, .timeout = 600)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct talk stuck = talk_to(permitd->port);
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":100}");
    const char *key = acquire(&talk, semaphore, "o", "1h");
    struct kit_sql *sql = own_sql("own0");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT state FROM permit_request WHERE external_id = '%s' FOR UPDATE", key);
    for (int i = 0; i < 3; i++) {
        tell(&stuck, "DELETE", request_path(key), NULL);
        (void)acquire(&talk, semaphore, "somebody", "1h");
        hear(&stuck, 409, "in_transaction");
    }
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    release(&talk, key);
    talk_end(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(owners, many_owners_lapse_together, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":600,\"kind\":\"counted\"}");
    for (int i = 0; i < 300; i++) {
        const char *owner = text("many%d", i);
        say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
        (void)acquire(&talk, name, owner, "owner");
        (void)acquire(&talk, name, owner, "1h");
    }
    for (int i = 0; i < 300; i++)
        say(&talk, 200, "PUT", owner_path(text("many%d", i)), "{\"ttl\":\"10ms\"}");
    cr_assert(kit_wait_until(all_lapsed, &talk, PATIENCE_MS), "%s", talk.reply.body);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(owners, heartbeats_continue_after_a_database_restart, .timeout = 300)
{
    struct kit_database *database = kit_database_start(NULL);
    static const char *const flags[] = {"--request-timeout=2s", NULL};
    struct kit_permitd_options options = {.database = database->url, .flags = flags};
    struct kit_permitd *permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port);
    const char *key = fresh_name("k");
    say_until(&talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":1}"); /* the first PUT is answered 201 */
    say_until(&talk, 200, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    say_until(&talk, 200, "POST", "/v1/requests", owned_body(key, "s", "survivor", "owner"));
    kit_database_kill(database);
    say_until(&talk, 503, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    kit_database_restart(database);
    say_until(&talk, 200, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    say_until(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "state", "ACQUIRED");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    kit_database_stop(database);
}

/* ---- two permitd, many clients ---- */

enum { CROWD = 16, CROWD_OWNERS = 5, CROWD_MS = 4000, TURNS_MIN = 32 };

struct member {
    pthread_t thread;
    unsigned port;
    unsigned id;
    unsigned seed;
    const char *semaphore;
    int64_t until;
    int grants;
    int unexpected; /* status of the first unexpected answer; -1: no answer; 0: none was unexpected */
};

static int ask(struct kit_http *http, const char *method, const char *path, const char *body)
{
    struct reply reply;
    (void)kit_http_call(http, method, path, NULL, body, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

/* Sends heartbeats, deletes owners, acquires and releases under a few shared names, often enough to use all of them. */
static void *member_run(void *context)
{
    struct member *member = context;
    struct kit_http http = kit_http(member->port);
    char path[64], key[64], body[256];
    for (int i = 0; (i < TURNS_MIN || kit_now_us() < member->until) && !member->unexpected; i++) {
        int owner = rand_r(&member->seed) % CROWD_OWNERS;
        int what = rand_r(&member->seed) % 8;
        (void)snprintf(path, sizeof path, "/v1/owners/crowd%d", owner);
        (void)snprintf(key, sizeof key, "crowd-%u-%d", member->id, i);
        (void)snprintf(body, sizeof body,
                       "{\"external_id\":\"%s\",\"owner\":\"crowd%d\",\"ttl\":\"owner\",\"permits\":"
                       "[{\"semaphore\":\"%s\"}]}",
                       key, owner, member->semaphore);
        int status = what < 3   ? ask(&http, "PUT", path, what ? "{\"ttl\":\"1h\"}" : "{\"ttl\":\"20ms\"}")
                     : what < 4 ? ask(&http, "DELETE", path, NULL)
                                : ask(&http, "POST", "/v1/requests", body);
        bool good = what < 3   ? status == 200 || status == 201 || status == 410
                    : what < 4 ? status == 200 || status == 404
                               : status == 201 || status == 404;
        member->grants += what >= 4 && status == 201;
        member->unexpected = good ? 0 : status ? status : -1;
        if (what == 7 && status == 201)
            (void)ask(&http, "DELETE", request_path(key), NULL);
    }
    kit_http_close(&http);
    return NULL;
}

static bool none_holds(void *context)
{
    struct talk *talk = context;
    say(talk, 200, "GET", "/v1/requests?state=ACQUIRED", NULL);
    return kit_json_length(talk->reply.body, "requests") == 0;
}

Test(owners, two_servers_and_a_crowd_lose_nothing, .timeout = 300)
{
    static struct member members[CROWD];
    struct kit_database *database = kit_database_start(NULL);
    struct kit_permitd_options options = {.database = database->url, .flags = patient_flags};
    struct kit_permitd *permitd[2] = {kit_permitd_start(&options), kit_permitd_start(&options)};
    struct talk talk = talk_to(permitd[0]->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1000000,\"kind\":\"counted\"}");
    int grants = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        members[i] = (struct member){.port = permitd[i % 2]->port,
                                     .id = i,
                                     .seed = i,
                                     .semaphore = name,
                                     .until = kit_now_us() + CROWD_MS * 1000};
        cr_assert_eq(pthread_create(&members[i].thread, NULL, member_run, &members[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        cr_assert_eq(pthread_join(members[i].thread, NULL), 0);
        cr_assert_eq(members[i].unexpected, 0, "%d", members[i].unexpected);
        grants += members[i].grants;
    }
    cr_assert_gt(grants, 0);
    for (int i = 0; i < CROWD_OWNERS; i++)
        say(&talk, 200, "DELETE", owner_path(text("crowd%d", i)), NULL);
    cr_assert(kit_wait_until(none_holds, &talk, PATIENCE_MS), "%s", talk.reply.body);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd[0]);
    kit_permitd_stop(permitd[1]);
    kit_database_stop(database);
}

/* ---- the liveness probe ---- */

/*
 * A liveness server, on a thread of the test. The answer depends on the beginning of the owner's name: `alive` 200,
 * `dead` 404, `gone` 410, `odd` 500 or 503, `moved` 302 or 301, `turns` 404 and 200 in turn, `doubt` 404 and 500 in
 * turn, `silent` none.
 */
struct liveness {
    pthread_t thread;
    int fd;
    unsigned port;
    pthread_mutex_t mutex;
    struct {
        char name[128]; /* as received, percent-encoded */
        int times;
    } asked[32];
    int silent[4096]; /* connections without an answer */
    size_t silent_count;
};

static int count_question(struct liveness *liveness, const char *name)
{
    int times = 0;
    pthread_mutex_lock(&liveness->mutex);
    for (size_t i = 0; i < sizeof liveness->asked / sizeof *liveness->asked && !times; i++) {
        if (liveness->asked[i].times && strcmp(liveness->asked[i].name, name) != 0)
            continue;
        (void)snprintf(liveness->asked[i].name, sizeof liveness->asked[i].name, "%s", name);
        times = ++liveness->asked[i].times;
    }
    pthread_mutex_unlock(&liveness->mutex);
    return times;
}

static int times_asked(struct liveness *liveness, const char *name)
{
    int times = 0;
    pthread_mutex_lock(&liveness->mutex);
    for (size_t i = 0; i < sizeof liveness->asked / sizeof *liveness->asked; i++)
        if (strcmp(liveness->asked[i].name, name) == 0)
            times = liveness->asked[i].times;
    pthread_mutex_unlock(&liveness->mutex);
    return times;
}

static const char *answer_to(const char *name, int times)
{
    static const struct {
        const char *beginning;
        const char *answers[2];
    } rows[] = {
        {"alive", {"200 OK", "200 OK"}},        {"dead", {"404 Not Found", "404 Not Found"}},
        {"gone", {"410 Gone", "410 Gone"}},     {"odd", {"500 Oh", "503 Oh"}},
        {"moved", {"302 Found", "301 Moved"}},  {"turns", {"404 Not Found", "200 OK"}},
        {"doubt", {"404 Not Found", "500 Oh"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(name, rows[i].beginning, strlen(rows[i].beginning)) == 0)
            return rows[i].answers[(times - 1) % 2];
    return NULL;
}

static bool read_question(int fd, char name[128])
{
    char request[4096];
    size_t length = 0;
    while (length < sizeof request - 1) {
        ssize_t got = read(fd, request + length, sizeof request - 1 - length);
        if (got <= 0)
            return false;
        length += (size_t)got;
        request[length] = '\0';
        if (strstr(request, "\r\n\r\n"))
            return sscanf(request, "GET /jobs/%127[^ ] HTTP/1.1\r\n", name) == 1;
    }
    return false;
}

static void answer(struct liveness *liveness, int fd)
{
    char name[128];
    char reply[256];
    if (!read_question(fd, name)) {
        (void)close(fd);
        return;
    }
    const char *status = answer_to(name, count_question(liveness, name));
    if (!status && liveness->silent_count < sizeof liveness->silent / sizeof *liveness->silent) {
        liveness->silent[liveness->silent_count++] = fd;
        return;
    }
    int length = snprintf(reply, sizeof reply,
                          "HTTP/1.1 %s\r\nLocation: /jobs/alive\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
                          status ? status : "500 Full");
    (void)!write(fd, reply, (size_t)length);
    (void)close(fd);
}

static void *liveness_run(void *context)
{
    struct liveness *liveness = context;
    for (int fd; (fd = accept(liveness->fd, NULL, NULL)) >= 0;)
        answer(liveness, fd);
    return NULL;
}

static struct liveness *liveness_start(void)
{
    struct liveness *liveness = calloc(1, sizeof *liveness);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    cr_assert_not_null(liveness);
    liveness->fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(liveness->fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(liveness->fd, 64), 0);
    cr_assert_eq(getsockname(liveness->fd, (struct sockaddr *)&address, &size), 0);
    liveness->port = ntohs(address.sin_port);
    pthread_mutex_init(&liveness->mutex, NULL);
    cr_assert_eq(pthread_create(&liveness->thread, NULL, liveness_run, liveness), 0);
    return liveness;
}

static void liveness_stop(struct liveness *liveness)
{
    (void)shutdown(liveness->fd, SHUT_RDWR);
    (void)pthread_join(liveness->thread, NULL);
    (void)close(liveness->fd);
    for (size_t i = 0; i < liveness->silent_count; i++)
        (void)close(liveness->silent[i]);
    pthread_mutex_destroy(&liveness->mutex);
    free(liveness);
}

/* Returns a bound port without a listener; *ret_fd keeps it reserved. */
static unsigned closed_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(*ret_fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(*ret_fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

static struct kit_permitd *permitd_with_probe(const char *url)
{
    const char *flags[] = {text("--liveness-url=%s", url), "--liveness-interval=100ms", NULL};
    return own_permitd(flags);
}

/* The number of probes to wait for, of one owner. */
struct asked_about {
    struct liveness *liveness;
    const char *name;
    int times;
};

static bool was_asked(void *context)
{
    struct asked_about *wanted = context;
    return times_asked(wanted->liveness, wanted->name) >= wanted->times;
}

static void wait_asked(struct liveness *liveness, const char *name, int times)
{
    struct asked_about wanted = {liveness, name, times};
    cr_assert(kit_wait_until(was_asked, &wanted, PATIENCE_MS), "%s was asked about %d times", name,
              times_asked(liveness, name));
}

static void is_suspect(struct talk *talk, const char *key)
{
    is_held(talk, key);
    cr_assert(kit_json_true(talk->reply.body, "suspect"), "%s", talk->reply.body);
}

/* A held request, and the connection that queries it. */
struct held_request {
    struct talk *talk;
    const char *key;
};

static bool is_not_suspect(void *context)
{
    const struct held_request *held = context;
    is_held(held->talk, held->key);
    const char *body = held->talk->reply.body;
    return kit_json_has(body, "suspect") && !kit_json_true(body, "suspect");
}

Test(probe, two_definite_answers_end_the_requests_of_a_dead_owner, .timeout = 300)
{
    struct liveness *liveness = liveness_start();
    struct kit_permitd *permitd = permitd_with_probe(text("http://127.0.0.1:%u/jobs/{owner}", liveness->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    const char *alive = acquire(&talk, name, "alive:1?", "1h");
    const char *dead = acquire(&talk, name, "dead", "1h");
    const char *also = acquire(&talk, name, "dead", "none");
    const char *gone = acquire(&talk, name, "gone%", "1h");
    const char *nobody = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", nobody, name));
    ends_as(&talk, dead, "owner_dead");
    cr_assert_geq(times_asked(liveness, "dead"), 2);
    ends_as(&talk, also, "owner_dead");
    ends_as(&talk, gone, "owner_dead");
    cr_assert_geq(times_asked(liveness, "gone%25"), 2, "the name is percent-encoded");
    wait_asked(liveness, "alive%3A1%3F", 3);
    /* An answer that takes longer than 5 s does not count; the owner may be suspect until the next one. */
    cr_assert(kit_wait_until(is_not_suspect, &(struct held_request){&talk, alive}, PATIENCE_MS));
    is_held(&talk, nobody);
    say(&talk, 200, "GET", owner_path("dead"), NULL);
    text_is(&talk, "state", "lapsed");
    cr_assert_not(kit_json_has(talk.reply.body, "ttl_ms"));
    say(&talk, 200, "PUT", owner_path("dead"), "{\"ttl\":\"1h\"}");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    liveness_stop(liveness);
}

Test(probe, requests_acquired_by_a_dead_owner_are_probed_again, .timeout = 300)
{
    struct liveness *liveness = liveness_start();
    struct kit_permitd *permitd = permitd_with_probe(text("http://127.0.0.1:%u/jobs/{owner}", liveness->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    for (int i = 0; i < 3; i++)
        ends_as(&talk, acquire(&talk, name, "dead", "1h"), "owner_dead");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    liveness_stop(liveness);
}

Test(probe, single_or_unclear_answers_end_nothing, .timeout = 300)
{
    static const char *const names[] = {"turns", "odd", "moved", "doubt", "silent"};
    const char *keys[sizeof names / sizeof *names];
    struct liveness *liveness = liveness_start();
    struct kit_permitd *permitd = permitd_with_probe(text("http://127.0.0.1:%u/jobs/{owner}", liveness->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        keys[i] = acquire(&talk, name, names[i], "1h");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        wait_asked(liveness, names[i], 4); /* the third pass begins after the second is evaluated */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_held(&talk, keys[i]);
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        is_suspect(&talk, keys[i]);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders", name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "holders.1.suspect"), "%s", talk.reply.body);
    say(&talk, 200, "GET", "/v1/requests?owner=silent", NULL);
    cr_assert(kit_json_true(talk.reply.body, "requests.0.suspect"), "%s", talk.reply.body);
    refused(&talk, 404, "unknown_owner", "GET", owner_path("odd"), NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    liveness_stop(liveness);
}

static bool probes_failed(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    if (!kit_http_get(&talk->http, "/metrics", &talk->reply))
        return false;
    const char *line = strstr(talk->reply.body, "permitd_probes_total{answer=\"unknown\"} ");
    return line && atoi(strrchr(text("%.*s", (int)strcspn(line, "\n"), line), ' ')) >= 3 &&
           strstr(talk->reply.body, "permitd_owners_suspect 1\n");
}

Test(probe, unreachable_probe_ends_nothing, .timeout = 300)
{
    int fd;
    struct kit_permitd *permitd = permitd_with_probe(text("http://127.0.0.1:%u/{owner}", closed_port(&fd)));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    const char *key = acquire(&talk, name, "dead", "1h");
    cr_assert(kit_wait_until(probes_failed, &talk, PATIENCE_MS), "%s", talk.reply.body);
    is_suspect(&talk, key);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    close(fd);
}

#define TENANT_TOKEN  "pmt_shop-token-of-the-tenants-tests-xxxxxxxxxxx"
#define TENANT_DIGEST "4c9e42bd7d972e5aa29e86acb99928bb94ca9413a7f91d00f5f4bd778d6c8001"
#define ADMIN_TOKEN   "pmt_operator-token-of-the-tenants-tests-xxxxxxx"
#define ADMIN_DIGEST  "940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86"

Test(probe, owners_of_a_namespace_are_not_asked_about, .timeout = 300)
{
    static const char tenant[] = "Authorization: Bearer " TENANT_TOKEN "\r\n";
    static const char admin[] = "Authorization: Bearer " ADMIN_TOKEN "\r\n";
    char *path = kit_path("credentials");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0);
    dprintf(fd,
            "[shop]\nrole = use\nsemaphores = *\nnamespace = shop\ntoken = sha256:%s\n"
            "[admin]\nrole = admin\ntoken = sha256:%s\n",
            TENANT_DIGEST, ADMIN_DIGEST);
    close(fd);
    struct liveness *liveness = liveness_start();
    const char *flags[] = {text("--liveness-url=http://127.0.0.1:%u/jobs/{owner}", liveness->port),
                           "--liveness-interval=100ms", "--credentials", path, NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/s", admin, "{\"capacity\":10}");
    static const char dead[] = "{\"external_id\":\"k\",\"owner\":\"dead\",\"ttl\":\"1h\","
                               "\"permits\":[{\"semaphore\":\"s\"}]}";
    say_with(&talk, 201, NULL, "POST", "/v1/requests", tenant, dead);
    say_with(&talk, 201, NULL, "POST", "/v1/requests", admin,
             "{\"external_id\":\"k\",\"owner\":\"alive\",\"permits\":[{\"semaphore\":\"s\"}]}");
    wait_asked(liveness, "alive", 3); /* each pass reads all owners of held requests */
    cr_expect_eq(times_asked(liveness, "dead"), 0);
    cr_expect_eq(times_asked(liveness, "%01shop%01dead"), 0);
    say_with(&talk, 200, NULL, "GET", "/v1/requests/k", tenant, NULL);
    text_is(&talk, "state", "ACQUIRED");
    cr_expect_not(kit_json_true(talk.reply.body, "suspect"), "%s", talk.reply.body);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    liveness_stop(liveness);
    free(path);
}

static void is_refused_at_the_start(const char *flag, const char *setting)
{
    const char *flags[] = {"--liveness-url=https://127.0.0.1/{owner}", flag, NULL};
    struct kit_permitd_options options = {.database = "mysql://root@127.0.0.1:1/none", .flags = flags};
    struct kit_permitd *permitd = kit_permitd_spawn(&options);
    cr_assert_not(kit_permitd_wait_served(permitd, 30000), "%s", flag);
    char *log = kit_read_file(permitd->log_path);
    cr_assert(log && strstr(log, setting), "%s: %s", flag, log);
    free(log);
    kit_permitd_kill(permitd);
}

Test(probe, invalid_liveness_url_is_refused_at_startup, .timeout = 300)
{
    static const char *const urls[] = {
        "ftp://127.0.0.1/{owner}", "http://127.0.0.1/jobs",      "http://{owner}/jobs", "http://{owner}.x/{owner}",
        "127.0.0.1/{owner}",       "http://127.0.0.1:0/{owner}", "http:///{owner}",     "http://u:p@127.0.0.1/{owner}",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        is_refused_at_the_start(text("--liveness-url=%s", urls[i]), "liveness_url: ");
    is_refused_at_the_start("--liveness-ca=/nowhere/ca.pem", "liveness_ca: ");
}
