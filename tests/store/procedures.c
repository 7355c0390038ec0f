/* SPDX-License-Identifier: MIT */
/* The procedures of shops: their installation, their closed list of refusals, and what they lock. */
#include "store/procedures.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/doctor.h"
#include "store/schema.h"

/* ---- a database with procedures, and accounts of shops ---- */

struct scene {
    const struct database_address *address;
    struct database_address accounts[3]; /* the shop, one in the namespace n, and one without a row in sql_account */
    char users[3][100];
    struct session *admin; /* root */
    struct session *shop;
    struct session *tenant;
    struct session *stranger;
};

/* As if the schema had been written this long ago. */
static void age_schema(struct session *admin, int seconds)
{
    char sql[200];
    snprintf(sql, sizeof sql, "UPDATE schema_version SET applied_at = UTC_TIMESTAMP(6) - INTERVAL %d SECOND", seconds);
    must_run(admin, sql);
}

static struct procedures_result installed_by(const struct database_address *address)
{
    struct procedures_result result;
    struct buf message;
    struct session *session = connected(address, STORE_ADMIN);
    buf_init(&message, 4000);
    cr_assert_eq(procedures_install(session, address->database, &result, &message), PERMIT_OK, "%s",
                 buf_text(&message));
    session_free(session);
    buf_release(&message);
    return result;
}

static struct scene begun(void)
{
    static const char *const rows[] = {"''", "'n'", NULL};
    struct scene scene = {.address = fresh_database()};
    char sql[1000];
    scene.admin = connected(scene.address, STORE_READER);
    age_schema(scene.admin, 60);
    cr_assert_eq(installed_by(scene.address).installed, PROCEDURE_COUNT);
    for (size_t i = 0; i < 3; i++) {
        snprintf(scene.users[i], sizeof scene.users[i], "%.25s_%zu", scene.address->database, i);
        snprintf(sql, sizeof sql, "CREATE USER %s@localhost IDENTIFIED BY 'secret'", scene.users[i]);
        must_run(scene.admin, sql);
        for (size_t j = 0; j < ARRAY_LENGTH(procedures_public); j++) {
            snprintf(sql, sizeof sql, "GRANT EXECUTE ON PROCEDURE %s TO %s@localhost", procedures_public[j],
                     scene.users[i]);
            must_run(scene.admin, sql);
        }
        if (rows[i]) {
            snprintf(sql, sizeof sql, "INSERT INTO sql_account (user, namespace) VALUES ('%s', %s)", scene.users[i],
                     rows[i]);
            must_run(scene.admin, sql);
        }
    }
    return scene;
}

/* Connects the accounts. The sessions keep pointers into the scene. */
static void connect_all(struct scene *scene)
{
    static char password[] = "secret";
    struct session **sessions[] = {&scene->shop, &scene->tenant, &scene->stranger};
    for (size_t i = 0; i < 3; i++) {
        scene->accounts[i] = *scene->address;
        scene->accounts[i].user = scene->users[i];
        scene->accounts[i].password = password;
        *sessions[i] = connected(&scene->accounts[i], STORE_READER);
    }
}

static void ended(struct scene *scene)
{
    struct session *sessions[] = {scene->admin, scene->shop, scene->tenant, scene->stranger};
    for (size_t i = 0; i < ARRAY_LENGTH(sessions); i++)
        session_free(sessions[i]);
}

/* Adds a request with these further columns: `held`, which is due in a minute, or any others. */
#define HELD "state=1,acquired_at=UTC_TIMESTAMP(6),due_at=UTC_TIMESTAMP(6)+INTERVAL 1 MINUTE"
static void add(struct session *admin, int id, const char *key, const char *columns)
{
    char sql[500];
    snprintf(sql, sizeof sql, "INSERT INTO permit_request SET id=%d,external_id=%s,%s", id, key, columns);
    must_run(admin, sql);
}

/* A begun transaction is open afterwards, unless the text is that of a missing one. */
static void must_refuse(struct session *session, const char *sql, const char *text)
{
    char expected[200];
    snprintf(expected, sizeof expected, "statement failed: %s (1644)", text);
    cr_assert_neq(session_run(session, sql), PERMIT_OK, "%s is not refused", sql);
    cr_assert_str_eq(session_message(session), expected, "%s", sql);
}

/* All that a procedure may write, as one text; valid until the next call. */
static const char *content(struct session *admin)
{
    return text_of(admin, "SELECT CONCAT((SELECT COALESCE(GROUP_CONCAT(id,' ',state,' ',errand,' ',"
                          "COALESCE(confirmed_at,'-') ORDER BY id),'') FROM permit_request),'; ',"
                          "(SELECT COALESCE(GROUP_CONCAT(permit_request_id ORDER BY permit_request_id),'')"
                          " FROM errand WHERE permit_request_id>0))");
}

/* ---- the closed list of refusals ---- */

Test(procedures, each_refusal_has_its_text_and_changes_nothing, .timeout = 120)
{
    static const struct {
        const char *call, *refusal;
    } rows[] = {
        {"confirm('none')", "permit: unknown_request"},
        {"hold('none')", "permit: unknown_request"},
        {"release('none')", "permit: unknown_request"},
        {"refund('none')", "permit: unknown_request"},
        {"confirm(NULL)", "permit: unknown_request"},
        {"confirm('')", "permit: unknown_request"},
        {"confirm('waits')", "permit: waiting"},
        {"hold('waits')", "permit: waiting"},
        {"release('waits')", "permit: waiting"},
        {"refund('waits')", "permit: waiting"},
        {"confirm('ended1')", "permit: ended (released)"},
        {"confirm('ended2')", "permit: ended (expired)"},
        {"hold('ended3')", "permit: ended (owner_dead)"},
        {"confirm('ended4')", "permit: ended (stale)"},
        {"hold('ended5')", "permit: ended (forced)"},
        {"confirm('ended6')", "permit: ended (never_held)"},
        {"release('sold')", "permit: confirmed"},
        {"release('marked')", "permit: confirmed"},
        {"confirm('given')", "permit: ended (released)"},
        {"hold('given')", "permit: ended (released)"},
        {"confirm('refunded')", "permit: ended (released)"},
    };
    struct scene scene = begun();
    char key[20], columns[100], sql[200], before[2000];
    connect_all(&scene);
    add(scene.admin, 10, "'waits'", "state=3,due_at=UTC_TIMESTAMP(6)");
    for (int reason = 1; reason <= 6; reason++) {
        snprintf(key, sizeof key, "'ended%d'", reason);
        snprintf(columns, sizeof columns, "state=2,end_reason=%d", reason);
        add(scene.admin, reason, key, columns);
    }
    add(scene.admin, 11, "'sold'", "state=1,confirmed_at=UTC_TIMESTAMP(6)");
    add(scene.admin, 12, "'marked'", "state=1,errand=1,confirmed_at=UTC_TIMESTAMP(6)");
    add(scene.admin, 13, "'given'", HELD ",errand=2");
    add(scene.admin, 14, "'refunded'", "state=1,errand=3,confirmed_at=UTC_TIMESTAMP(6)");
    snprintf(before, sizeof before, "%s", content(scene.admin));
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        snprintf(sql, sizeof sql, "CALL permit_%s", rows[i].call);
        must_run(scene.shop, "START TRANSACTION");
        must_refuse(scene.shop, sql, rows[i].refusal);
        must_run(scene.shop, "COMMIT");
        cr_expect_str_eq(content(scene.admin), before, "%s", sql);
    }
    /* What is ended already may be ended again. */
    must_run(scene.shop, "START TRANSACTION; CALL permit_release('ended2'); CALL permit_refund('ended1');"
                         "CALL permit_release('given'); CALL permit_release('refunded'); COMMIT");
    cr_expect_str_eq(content(scene.admin), before);
    ended(&scene);
}

Test(procedures, callers_outside_of_the_contract_are_refused)
{
    static const char *const calls[] = {"CALL permit_confirm('k')", "CALL permit_release('k')",
                                        "CALL permit_refund('k')", "CALL permit_hold('k')"};
    struct scene scene = begun();
    char before[2000];
    connect_all(&scene);
    add(scene.admin, 1, "'k'", HELD);
    snprintf(before, sizeof before, "%s", content(scene.admin));
    for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
        must_refuse(scene.shop, calls[i], "permit: no transaction");
        must_run(scene.stranger, "START TRANSACTION");
        must_refuse(scene.stranger, calls[i], "permit: forbidden");
        must_run(scene.stranger, "COMMIT");
        must_run(scene.shop, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION");
        must_refuse(scene.shop, calls[i], "permit: serializable");
        must_run(scene.shop, "COMMIT; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    }
    cr_expect_str_eq(content(scene.admin), before);
    /* An account without EXECUTE, and a table itself: the server's own words. */
    cr_expect_neq(session_run(scene.shop, "CALL permit_end('k', TRUE)"), PERMIT_OK);
    cr_expect_neq(session_run(scene.shop, "SELECT * FROM permit_request"), PERMIT_OK);
    /* With autocommit off a transaction is open from the first statement on. */
    must_run(scene.shop, "SET SESSION autocommit = 0; CALL permit_confirm('k'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request"), 1);
    ended(&scene);
}

Test(procedures, keys_reach_no_other_namespace_and_are_not_cut)
{
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'k'", HELD);
    add(scene.admin, 2, "CONCAT(x'01','n',x'01','k')", HELD);
    add(scene.admin, 3, "CONCAT(x'01','m',x'01','k')", HELD);
    add(scene.admin, 4, "REPEAT('a',255)", HELD);
    add(scene.admin, 5, "CONCAT(x'01','n',x'01',REPEAT('a',255))", HELD);
    must_run(scene.shop, "START TRANSACTION");
    must_refuse(scene.shop, "CALL permit_confirm(CONCAT(x'01','m',x'01','k'))", "permit: unknown_request");
    must_refuse(scene.shop, "CALL permit_hold(CONCAT(x'01','n',x'01','k'))", "permit: unknown_request");
    must_refuse(scene.shop, "CALL permit_confirm(REPEAT('a',256))", "permit: unknown_request");
    must_refuse(scene.shop, "CALL permit_confirm(REPEAT('a',290))", "permit: unknown_request");
    must_refuse(scene.shop, "CALL permit_confirm(REPEAT('a',4096))", "permit: unknown_request");
    enum { DATA_TOO_LONG = 1406 };
    cr_expect_neq(session_run(scene.shop, "CALL permit_confirm(REPEAT('a',4097))"), PERMIT_OK);
    cr_expect_eq(session_errno(scene.shop), DATA_TOO_LONG);
    must_run(scene.shop, "SET SESSION sql_mode = ''");
    cr_expect_neq(session_run(scene.shop, "CALL permit_confirm(CONCAT('k',REPEAT(' ',5000)))"), PERMIT_OK);
    must_refuse(scene.shop, "CALL permit_confirm('k ')", "permit: unknown_request");
    must_refuse(scene.shop, "CALL permit_confirm('K')", "permit: unknown_request");
    must_run(scene.shop, "COMMIT");
    must_run(scene.tenant, "START TRANSACTION");
    must_refuse(scene.tenant, "CALL permit_confirm(CONCAT(x'01','m',x'01','k'))", "permit: unknown_request");
    must_run(scene.tenant, "CALL permit_confirm('k'); CALL permit_confirm(REPEAT('a',255)); COMMIT");
    cr_expect_str_eq(text_of(scene.admin, "SELECT GROUP_CONCAT(id ORDER BY id) FROM permit_request WHERE errand=1"),
                     "2,5");
    ended(&scene);
}

/* ---- what they write ---- */

Test(procedures, order_and_sale_are_durable_together_or_neither_is)
{
    struct scene scene = begun();
    char account[200];
    connect_all(&scene);
    snprintf(account, sizeof account, "%s@localhost", scene.users[0]);
    add(scene.admin, 1, "'k'", HELD);
    must_run(scene.admin, "CREATE TABLE orders (id INT PRIMARY KEY)");
    char sql[300];
    snprintf(sql, sizeof sql, "GRANT INSERT ON orders TO %s@localhost", scene.users[0]);
    must_run(scene.admin, sql);
    must_run(scene.shop, "START TRANSACTION; INSERT INTO orders VALUES (1); CALL permit_confirm('k'); ROLLBACK");
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM orders"), 0);
    cr_expect_str_eq(content(scene.admin), "1 1 0 -; ");
    must_run(scene.shop, "START TRANSACTION; INSERT INTO orders VALUES (1); CALL permit_confirm('k')");
    cr_expect_str_eq(content(scene.admin), "1 1 0 -; ", "not before COMMIT");
    must_run(scene.shop, "COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM orders"), 1);
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM permit_request WHERE state=1 AND errand=1 AND"
                                        " due_at IS NOT NULL AND ABS(TIMESTAMPDIFF(SECOND,confirmed_at,"
                                        "UTC_TIMESTAMP()))<600"),
                 1, "due_at stays: a batch settles it");
    cr_expect_str_eq(text_of(scene.admin, "SELECT account FROM errand WHERE permit_request_id=1 AND bucket<64"),
                     account);
    ended(&scene);
}

/* In one transaction and over two, with the marks that result. */
Test(procedures, calls_can_be_repeated_and_combined)
{
    struct scene scene = begun();
    connect_all(&scene);
    for (int i = 1; i <= 6; i++) {
        char key[10];
        snprintf(key, sizeof key, "'k%d'", i);
        add(scene.admin, i, key, HELD);
    }
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k1'); CALL permit_confirm('k1'); COMMIT");
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k1'); COMMIT");
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k2'); CALL permit_refund('k2'); COMMIT");
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k3'); COMMIT;"
                         "START TRANSACTION; CALL permit_refund('k3'); CALL permit_refund('k3'); COMMIT");
    must_run(scene.shop, "START TRANSACTION; CALL permit_release('k4'); CALL permit_release('k4')");
    must_refuse(scene.shop, "CALL permit_confirm('k4')", "permit: ended (released)");
    must_run(scene.shop, "COMMIT; START TRANSACTION; CALL permit_refund('k5'); COMMIT");
    cr_expect_str_eq(text_of(scene.admin, "SELECT GROUP_CONCAT(errand ORDER BY id) FROM permit_request"),
                     "1,3,3,2,2,0");
    cr_expect_str_eq(text_of(scene.admin, "SELECT GROUP_CONCAT(permit_request_id ORDER BY permit_request_id)"
                                          " FROM errand WHERE permit_request_id>0"),
                     "1,2,3,4,5", "one row each");
    /* A sale that a batch has settled: its errand row is gone. */
    must_run(scene.admin, "UPDATE permit_request SET errand=0,due_at=NULL WHERE id=1;"
                          "DELETE FROM errand WHERE permit_request_id=1");
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k1'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM errand WHERE permit_request_id=1"), 0);
    must_run(scene.shop, "START TRANSACTION; CALL permit_refund('k1'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request WHERE id=1"), 2);
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM errand WHERE permit_request_id=1"), 1);
    ended(&scene);
}

/* A caller that commits after an error has no mark: whether the row of the errand or that of the request cannot be written. */
Test(procedures, call_that_fails_marks_nothing, .timeout = 120)
{
    static const char *const calls[] = {"CALL permit_release('k')", "CALL permit_refund('k')",
                                        "CALL permit_confirm('k')"};
    static const char *const locks[] = {"INSERT INTO errand (bucket,permit_request_id) SELECT n,1 FROM held_bit",
                                        "UPDATE permit_request SET renewals=renewals+1 WHERE id=1"};
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'k'", HELD);
    must_run(scene.shop, "SET SESSION innodb_lock_wait_timeout=1");
    for (size_t i = 0; i < ARRAY_LENGTH(calls) * ARRAY_LENGTH(locks); i++) {
        const char *call = calls[i / ARRAY_LENGTH(locks)], *lock = locks[i % ARRAY_LENGTH(locks)];
        must_run(scene.admin, "DELETE FROM errand WHERE permit_request_id=1; START TRANSACTION");
        must_run(scene.admin, lock);
        must_run(scene.shop, "START TRANSACTION");
        cr_expect_eq(session_run(scene.shop, call), PERMIT_LOCK_TIMEOUT, "%s: %s", call, session_message(scene.shop));
        must_run(scene.shop, "COMMIT");
        must_run(scene.admin, "ROLLBACK");
        cr_expect_eq(number_of(scene.admin, "SELECT errand+(confirmed_at IS NOT NULL) FROM permit_request"), 0,
                     "%s, %s", call, lock);
    }
    /* The row of an errand that was left is used again. */
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request"), 1);
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM errand WHERE permit_request_id=1"), 1);
    ended(&scene);
}

Test(procedures, confirms_a_hold_that_is_due)
{
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'k'", "state=1,due_at=UTC_TIMESTAMP(6)-INTERVAL 1 HOUR");
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request"), 1);
    ended(&scene);
}

Test(procedures, hold_returns_the_deadline_by_the_clock_of_the_database)
{
    struct scene scene = begun();
    struct session_row row;
    connect_all(&scene);
    add(scene.admin, 1, "'k'", "state=1,grace_ms=5000,due_at='2026-01-01 00:01:05'");
    add(scene.admin, 2, "'sold'", "state=1,confirmed_at='2026-01-01 00:00:00'");
    add(scene.admin, 3, "'endless'", "state=1");
    must_run(scene.admin, "UPDATE served_offset SET offset_us=80000000"); /* served time lags by 80 s */
    must_run(scene.shop, "START TRANSACTION");
    static const char *const rows[][3] = {{"CALL permit_hold('k')", "2026-01-01 00:02:20.000000", NULL},
                                          {"CALL permit_hold('sold')", NULL, "2026-01-01 00:00:00.000000"},
                                          {"CALL permit_hold('endless')", NULL, NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        cr_assert_eq(session_send(scene.shop, bytes_of(rows[i][0])), PERMIT_OK, "%s", session_message(scene.shop));
        cr_assert(session_row(scene.shop, &row));
        for (size_t j = 0; j < 2; j++)
            cr_expect(rows[i][j + 1] ? bytes_equal(row.columns[j], bytes_of(rows[i][j + 1])) : !row.columns[j].data,
                      "%s: %.*s", rows[i][0], (int)row.columns[j].length, row.columns[j].data);
        cr_assert_eq(session_finish(scene.shop), PERMIT_OK);
    }
    must_run(scene.shop, "COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT SUM(errand) FROM permit_request"), 0);
    ended(&scene);
}

Test(procedures, tick_writes_the_copy_of_the_offset_unless_it_is_locked)
{
    const struct database_address *address = fresh_database();
    struct session *admin = connected(address, STORE_READER);
    struct store *store = opened(address, STORE_WORKER);
    struct tick tick = {0};
    bool won = false;
    cr_assert_eq(fixture_advance_epoch(store, EPOCH_SERVER, 0, 0), PERMIT_OK, "%s", store->message);
    sent_record();
    for (int i = 1; i <= 3; i++) {
        must_run(admin, i == 2 ? "START TRANSACTION; UPDATE served_offset SET offset_us=-1" : "DO 0");
        cr_assert_eq(store->clock->read_tick(store, &tick), PERMIT_OK);
        struct lease_row ticked = tick.ret_row;
        ticked.ticks++;
        ticked.clock.offset_us = i == 1 ? 1000 : 2000;
        cr_assert_eq(store->clock->write_tick(store, &tick.ret_row, &ticked, &won), PERMIT_OK, "%s", store->message);
        cr_expect(won);
        cr_expect(sent_statement_with("SELECT", "served_offset FORCE INDEX (PRIMARY) WHERE id=1 FOR UPDATE NOWAIT"));
        must_run(admin, "ROLLBACK");
        cr_expect_eq(number_of(admin, "SELECT offset_us FROM served_offset"), i == 3 ? 2000 : 1000, "tick %d", i);
    }
    store_free(store);
    session_free(admin);
}

/* ---- isolation levels, snapshots, and ways to call ---- */

Test(procedures, every_other_isolation_level_can_confirm)
{
    static const char *const levels[] = {"READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"};
    struct scene scene = begun();
    connect_all(&scene);
    for (size_t i = 0; i < ARRAY_LENGTH(levels); i++) {
        char sql[300];
        must_run(scene.admin, "DELETE FROM permit_request; DELETE FROM errand WHERE permit_request_id>0");
        add(scene.admin, 1, "'k'", HELD);
        snprintf(sql, sizeof sql, "SET SESSION TRANSACTION ISOLATION LEVEL %s; START TRANSACTION", levels[i]);
        must_run(scene.shop, sql);
        must_run(scene.shop, "CALL permit_confirm('k'); COMMIT");
        cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request"), 1, "%s", levels[i]);
    }
    ended(&scene);
}

Test(procedures, old_snapshot_sells_nothing_that_it_does_not_see_or_that_has_ended)
{
    enum { CHANGED_SINCE = 1020 }; /* innodb_snapshot_isolation, the default from MariaDB 11.6 on */
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'ends'", HELD);
    must_run(scene.shop, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
                         "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    add(scene.admin, 2, "'new'", HELD);
    must_run(scene.admin, "UPDATE permit_request SET state=2,end_reason=2 WHERE id=1");
    must_refuse(scene.shop, "CALL permit_confirm('new')", "permit: unknown_request");
    if (session_run(scene.shop, "CALL permit_confirm('ends')") != PERMIT_OK &&
        session_errno(scene.shop) != CHANGED_SINCE)
        cr_expect(strstr(session_message(scene.shop), "permit: ended (expired)"), "%s", session_message(scene.shop));
    must_run(scene.shop, "COMMIT");
    cr_expect_str_eq(content(scene.admin), "1 2 0 -,2 1 0 -; ");
    must_run(scene.shop, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION");
    add(scene.admin, 3, "'newer'", HELD);
    must_run(scene.shop, "CALL permit_confirm('newer'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request WHERE id=3"), 1);
    /* A row that is deleted by now. */
    must_run(scene.shop, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
                         "START TRANSACTION WITH CONSISTENT SNAPSHOT");
    must_run(scene.admin, "DELETE FROM permit_request WHERE id=2");
    must_refuse(scene.shop, "CALL permit_confirm('new')", "permit: unknown_request");
    must_run(scene.shop, "COMMIT");
    ended(&scene);
}

Test(procedures, rollback_to_a_savepoint_undoes_the_sale)
{
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'k'", HELD);
    add(scene.admin, 2, "'l'", HELD);
    must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('l'); SAVEPOINT a; CALL permit_confirm('k');"
                         "ROLLBACK TO SAVEPOINT a");
    /* The row stays locked until the end, for the others alone. */
    must_run(scene.admin, "SET SESSION innodb_lock_wait_timeout=1");
    cr_expect_eq(session_run(scene.admin, "UPDATE permit_request SET renewals=1 WHERE id=1"), PERMIT_LOCK_TIMEOUT);
    must_run(scene.shop, "COMMIT");
    cr_expect_str_eq(text_of(scene.admin, "SELECT GROUP_CONCAT(errand ORDER BY id) FROM permit_request"), "0,1");
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM errand WHERE permit_request_id>0"), 1);
    /* A savepoint of the shop with any name survives the call. */
    must_run(scene.shop, "START TRANSACTION; SAVEPOINT a; CALL permit_confirm('k'); RELEASE SAVEPOINT a; COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request WHERE id=1"), 1);
    ended(&scene);
}

Test(procedures, trigger_xa_and_prepared_statement_can_confirm)
{
    struct scene scene = begun();
    char sql[300];
    connect_all(&scene);
    add(scene.admin, 1, "'triggered'", HELD);
    add(scene.admin, 2, "'xa'", HELD);
    add(scene.admin, 3, "'prepared'", HELD);
    must_run(scene.admin, "CREATE TABLE orders (id INT PRIMARY KEY, hold VARBINARY(255))");
    must_run(scene.admin, "CREATE TRIGGER sell AFTER INSERT ON orders FOR EACH ROW CALL permit_confirm(NEW.hold)");
    snprintf(sql, sizeof sql, "GRANT INSERT ON orders TO %s@localhost", scene.users[0]);
    must_run(scene.admin, sql);
    must_run(scene.shop, "START TRANSACTION");
    must_refuse(scene.shop, "INSERT INTO orders VALUES (1,'none')", "permit: unknown_request");
    must_refuse(scene.shop, "INSERT INTO orders VALUES (2,'none'),(3,'triggered')", "permit: unknown_request");
    must_run(scene.shop, "INSERT INTO orders VALUES (1,'triggered'); COMMIT");
    must_run(scene.shop, "PREPARE sale FROM 'CALL permit_confirm(?)'; SET @hold='prepared'; START TRANSACTION;"
                         "EXECUTE sale USING @hold; COMMIT");
    must_run(scene.shop, "XA START 'x'; CALL permit_confirm('xa'); XA END 'x'; XA PREPARE 'x'");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request WHERE id=2"), 0);
    must_run(scene.shop, "XA COMMIT 'x'");
    cr_expect_str_eq(text_of(scene.admin, "SELECT GROUP_CONCAT(errand ORDER BY id) FROM permit_request"), "1,1,1");
    cr_expect_eq(number_of(scene.admin, "SELECT COUNT(*) FROM orders"), 1);
    ended(&scene);
}

/* ---- locks ---- */

/* Work that has nothing to do with the key `m`, whose row has the id 20. */
static void neighbours_work(struct session *session, const char *after)
{
    static const char *const works[] = {
        "START TRANSACTION",
        "UPDATE permit_request SET renewals=renewals+1 WHERE id=10",
        "UPDATE permit_request SET renewals=renewals+1 WHERE id=30",
        "INSERT INTO permit_request SET id=19,external_id='l'",
        "INSERT INTO permit_request SET id=21,external_id='n'",
        "INSERT INTO permit_request SET id=22,external_id='m0'",
        "INSERT INTO permit_request SET id=999,external_id='none'",
        "UPDATE cluster SET ticks=ticks+1",
        "UPDATE served_offset SET offset_us=offset_us+1",
        "UPDATE sql_account SET namespace=namespace",
        "INSERT INTO errand (bucket,permit_request_id) SELECT n,19 FROM held_bit UNION ALL SELECT n,21 FROM held_bit",
        "INSERT INTO semaphore_event SET semaphore_id=1,at=UTC_TIMESTAMP(6),what='x',next_permit_id=1",
        "ROLLBACK",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++)
        cr_expect_eq(session_run(session, works[i]), PERMIT_OK, "after %s: %s: %s", after, works[i],
                     session_message(session));
}

/* Refused calls lock nothing at all; the others the rows of their own request, and of its errand. */
Test(procedures, calls_lock_nothing_but_their_own_rows, .timeout = 120)
{
    static const char *const levels[] = {"READ COMMITTED", "REPEATABLE READ"};
    static const struct {
        const char *call;
        bool refused;
    } rows[] = {
        {"CALL permit_confirm('m')", false},   {"CALL permit_release('m')", false},
        {"CALL permit_refund('m')", false},    {"CALL permit_hold('m')", false},
        {"CALL permit_confirm('none')", true}, {"CALL permit_release('none')", true},
        {"CALL permit_hold('p')", true},       {"CALL permit_confirm('q')", true},
    };
    struct scene scene = begun();
    connect_all(&scene);
    must_run(scene.admin, "SET SESSION innodb_lock_wait_timeout=1");
    add(scene.admin, 10, "'k'", HELD);
    add(scene.admin, 20, "'m'", HELD);
    add(scene.admin, 30, "'o'", HELD);
    add(scene.admin, 40, "'p'", "state=3,due_at=UTC_TIMESTAMP(6)");
    add(scene.admin, 50, "'q'", "state=2,end_reason=1");
    for (size_t i = 0; i < ARRAY_LENGTH(levels) * ARRAY_LENGTH(rows); i++) {
        char sql[200];
        const char *call = rows[i % ARRAY_LENGTH(rows)].call;
        bool refused = rows[i % ARRAY_LENGTH(rows)].refused;
        snprintf(sql, sizeof sql, "SET SESSION TRANSACTION ISOLATION LEVEL %s; START TRANSACTION",
                 levels[i / ARRAY_LENGTH(rows)]);
        must_run(scene.shop, sql);
        cr_assert_eq(session_run(scene.shop, call) != PERMIT_OK, refused, "%s: %s", call, session_message(scene.shop));
        neighbours_work(scene.admin, call);
        if (refused) /* that of all rows, also of the one that was found */
            must_run(scene.admin, "UPDATE permit_request SET renewals=renewals+1");
        else
            cr_expect_eq(session_run(scene.admin, "UPDATE permit_request SET renewals=1 WHERE id=20"),
                         PERMIT_LOCK_TIMEOUT, "%s", call);
        must_run(scene.shop, "ROLLBACK");
    }
    ended(&scene);
}

Test(procedures, two_shops_in_open_transactions_do_not_meet)
{
    struct scene scene = begun();
    connect_all(&scene);
    struct session *second = connected(&scene.accounts[0], STORE_READER);
    add(scene.admin, 1, "'a'", HELD);
    add(scene.admin, 2, "'b'", HELD);
    must_run(second, "SET SESSION innodb_lock_wait_timeout=1; SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    must_run(scene.shop, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION;"
                         "CALL permit_confirm('a')");
    must_run(second, "START TRANSACTION; CALL permit_confirm('b'); COMMIT; START TRANSACTION");
    cr_expect_eq(session_run(second, "CALL permit_confirm('a')"), PERMIT_LOCK_TIMEOUT, "it is the same key");
    must_run(second, "ROLLBACK");
    must_run(scene.shop, "COMMIT");
    session_free(second);
    ended(&scene);
}

/* ---- installation ---- */

Test(procedures, are_installed_8_s_after_the_schema_was_written)
{
    static const struct {
        int seconds;
        enum procedures_state state;
    } rows[] = {{0, PROCEDURES_EARLY}, {6, PROCEDURES_EARLY}, {-60, PROCEDURES_EARLY}, {9, PROCEDURES_CURRENT}};
    const struct database_address *address = fresh_database();
    struct session *admin = connected(address, STORE_READER);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        age_schema(admin, rows[i].seconds);
        /* A loaded machine may let the rest of the 8 s pass: then it says nothing. */
        bool installs = rows[i].state == PROCEDURES_CURRENT;
        struct procedures_result result = installed_by(address);
        if (!installs &&
            number_of(admin, "SELECT MAX(applied_at)>UTC_TIMESTAMP(6)-INTERVAL 8 SECOND FROM schema_version") == 0)
            continue;
        cr_expect_eq(result.state, rows[i].state, "%d", rows[i].seconds);
        cr_expect_eq(result.installed, installs ? PROCEDURE_COUNT : 0U);
    }
    /* A newer permitd upgrades the schema, or has. */
    must_run(admin, "INSERT INTO schema_version SET version=9999,name='x'");
    cr_expect_eq(installed_by(address).state, PROCEDURES_EARLY);
    must_run(admin, "UPDATE schema_version SET applied_at='2026-01-01'");
    cr_expect_eq(installed_by(address).state, PROCEDURES_EARLY);
    session_free(admin);
}

#define LAST_ALTERED                                                                                                   \
    "SELECT GROUP_CONCAT(ROUTINE_NAME,' ',CREATED,' ',LAST_ALTERED ORDER BY 1) FROM information_schema.ROUTINES"       \
    " WHERE ROUTINE_SCHEMA=DATABASE()"

Test(procedures, unchanged_ones_are_left_alone_and_a_missing_one_comes_back)
{
    struct scene scene = begun();
    char before[2000];
    snprintf(before, sizeof before, "%s", text_of(scene.admin, LAST_ALTERED));
    must_run(scene.admin, "DO SLEEP(1.1)"); /* the times have whole seconds */
    cr_expect_eq(installed_by(scene.address).installed, 0U);
    cr_expect_str_eq(text_of(scene.admin, LAST_ALTERED), before);
    must_run(scene.admin, "DROP PROCEDURE permit_hold; DROP PROCEDURE permit_find");
    struct procedures_result result = installed_by(scene.address);
    cr_expect_eq(result.state, PROCEDURES_CURRENT);
    cr_expect_eq(result.installed, 2U);
    ended(&scene);
}

/* MariaDB replaces it, and its grants stay. MySQL cannot replace it without its grants, so it stays as it is. */
Test(procedures, one_with_another_text_is_replaced_on_mariadb_only)
{
    struct scene scene = begun();
    connect_all(&scene);
    add(scene.admin, 1, "'k'", HELD);
    bool mariadb = session_is_mariadb(scene.admin);
    must_run(scene.admin, mariadb ? "CREATE OR REPLACE PROCEDURE permit_confirm(IN p_key VARBINARY(10)) SELECT 1"
                                  : "DROP PROCEDURE permit_confirm;"
                                    "CREATE PROCEDURE permit_confirm(IN p_key VARBINARY(10)) SELECT 1");
    must_run(scene.admin, "ALTER PROCEDURE permit_end SQL SECURITY INVOKER");
    struct procedures_result result = installed_by(scene.address);
    cr_expect_eq(result.installed, mariadb ? 2U : 0U);
    cr_expect_eq(result.state, mariadb ? PROCEDURES_CURRENT : PROCEDURES_OTHER);
    cr_expect_eq(number_of(scene.admin,
                           "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA=DATABASE()"
                           " AND SECURITY_TYPE='DEFINER'"),
                 mariadb ? PROCEDURE_COUNT : PROCEDURE_COUNT - 1);
    if (mariadb)
        must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k'); COMMIT");
    cr_expect_eq(number_of(scene.admin, "SELECT errand FROM permit_request"), mariadb);
    ended(&scene);
}

Test(procedures, missing_right_is_said_and_fails_nothing)
{
    struct buf message;
    struct procedures_result result;
    struct database_address limited = *fresh_database();
    struct session *admin = connected(&limited, STORE_READER);
    char sql[400];
    snprintf(sql, sizeof sql,
             "CREATE USER %.30s@localhost IDENTIFIED BY 'secret';"
             "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON %s.* TO %.30s@localhost",
             limited.database, limited.database, limited.database);
    must_run(admin, sql);
    age_schema(admin, 60);
    struct database_address root = limited;
    limited.user = limited.database;
    limited.password = (char[]){"secret"};
    struct session *session = connected(&limited, STORE_ADMIN);
    buf_init(&message, 4000);
    cr_expect_eq(procedures_install(session, limited.database, &result, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_expect_eq(result.state, PROCEDURES_DENIED);
    cr_expect(strstr(buf_text(&message), "denied"), "%s", buf_text(&message));
    /* With the right it installs them; it may not replace those of another. */
    snprintf(sql, sizeof sql, "GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON %s.* TO %.30s@localhost",
             limited.database, limited.database);
    must_run(admin, sql);
    session_free(session);
    cr_expect_eq(installed_by(&limited).installed, PROCEDURE_COUNT);
    cr_expect_eq(installed_by(&root).installed, 0U);
    snprintf(sql, sizeof sql, "INSERT INTO sql_account (user, namespace) VALUES ('root', '')");
    must_run(admin, sql);
    add(admin, 1, "'k'", HELD);
    must_run(admin, "START TRANSACTION; CALL permit_confirm('k'); COMMIT"); /* the rights of the definer are enough */
    buf_release(&message);
    session_free(admin);
}

static void *install_thread(void *address)
{
    struct procedures_result result = {.state = PROCEDURES_EARLY};
    struct buf message;
    struct session *session = session_new(address, STORE_ADMIN);
    buf_init(&message, 4000);
    enum permit_status status = session_connect(session);
    for (int tries = 0; status == PERMIT_OK && result.state == PROCEDURES_EARLY && tries < 10000; tries++)
        status = procedures_install(session, ((struct database_address *)address)->database, &result, &message);
    if (status != PERMIT_OK)
        fprintf(stderr, "%s\n", buf_text(&message));
    buf_release(&message);
    session_free(session);
    return status == PERMIT_OK && result.state == PROCEDURES_CURRENT ? address : NULL;
}

Test(procedures, concurrent_servers_install_them_once, .timeout = 120)
{
    enum { AT_ONCE = 4 };
    const struct database_address *address = fresh_database();
    struct session *admin = connected(address, STORE_READER);
    pthread_t threads[AT_ONCE];
    age_schema(admin, 60);
    for (int i = 0; i < AT_ONCE; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, install_thread, (void *)(uintptr_t)address), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        void *succeeded;
        pthread_join(threads[i], &succeeded);
        cr_expect_not_null(succeeded);
    }
    cr_expect_eq(installed_by(address).installed, 0U);
    session_free(admin);
}

/* An open transaction that has called one must not stall those that call it after the try to replace it. */
Test(procedures, one_in_use_is_replaced_without_a_stall_of_its_callers)
{
    struct scene scene = begun();
    struct procedures_result result;
    struct buf message;
    connect_all(&scene);
    if (session_is_mariadb(scene.admin)) {
        add(scene.admin, 1, "'k'", HELD);
        add(scene.admin, 2, "'l'", HELD);
        must_run(scene.admin, "ALTER PROCEDURE permit_confirm SQL SECURITY INVOKER;"
                              "ALTER PROCEDURE permit_confirm SQL SECURITY DEFINER; CREATE OR REPLACE PROCEDURE"
                              " permit_confirm_why(IN p_key VARBINARY(4096)) CALL permit_raise(3, 0)");
        must_run(scene.shop, "START TRANSACTION; CALL permit_confirm('k')");
        must_refuse(scene.shop, "CALL permit_confirm('none')", "permit: waiting");
        struct session *session = connected(scene.address, STORE_ADMIN);
        buf_init(&message, 4000);
        enum permit_status status = procedures_install(session, scene.address->database, &result, &message);
        cr_expect(status == PERMIT_OK || status == PERMIT_LOCK_TIMEOUT, "%s", buf_text(&message));
        must_run(scene.shop, "CALL permit_confirm('l'); COMMIT");
        cr_expect_eq(status == PERMIT_OK || installed_by(scene.address).installed == 1, true);
        must_run(scene.shop, "START TRANSACTION");
        must_refuse(scene.shop, "CALL permit_confirm('none')", "permit: unknown_request");
        must_run(scene.shop, "ROLLBACK");
        buf_release(&message);
        session_free(session);
    }
    ended(&scene);
}

/* ---- the doctor ---- */

static void must_find(struct session *session, const char *check, enum doctor_verdict verdict, const char *part)
{
    struct doctor_report report = {.count = 0};
    cr_assert_eq(doctor_examine_sales(session, &report), PERMIT_OK, "%s", session_message(session));
    for (size_t i = 0; i < report.count; i++)
        if (strcmp(report.findings[i].check, check) == 0) {
            cr_expect_eq(report.findings[i].verdict, verdict, "%s: %s", check, report.findings[i].sentence);
            cr_expect(strstr(report.findings[i].sentence, part), "%s: %s", check, report.findings[i].sentence);
            return;
        }
    cr_assert_fail("no finding %s", check);
}

/* One test, since anonymous accounts are those of the whole server. */
Test(procedures, doctor_finds_what_keeps_shops_from_them, .timeout = 120)
{
    struct scene scene = begun();
    char sql[500], account[300];
    static char password[] = "secret";
    connect_all(&scene);
    age_schema(scene.admin, 3600);
    must_find(scene.admin, "procedures", DOCTOR_OK, "installed");
    must_find(scene.admin, "definer", DOCTOR_OK, "exist");
    must_find(scene.admin, "anonymous_accounts", DOCTOR_OK, "no anonymous");
    must_find(scene.admin, "undo", DOCTOR_OK, "is open for");
    must_find(scene.admin, "undo", DOCTOR_OK, "entries");

    snprintf(account, sizeof account, "%s@localhost has EXECUTE", scene.users[2]);
    must_find(scene.admin, "sql_accounts", DOCTOR_WARN, account);
    snprintf(sql, sizeof sql, "INSERT INTO sql_account (user, namespace) VALUES ('%s', '')", scene.users[2]);
    must_run(scene.admin, sql);
    must_find(scene.admin, "sql_accounts", DOCTOR_OK, "is an SQL account");

    must_run(scene.admin, "CREATE USER ''@'anonymous.example'");
    must_find(scene.admin, "anonymous_accounts", DOCTOR_WARN, "DROP USER");
    must_run(scene.admin, "DROP USER ''@'anonymous.example'");

    must_run(scene.admin, "DROP PROCEDURE permit_hold");
    must_find(scene.admin, "procedures", DOCTOR_WARN, "permit_hold is missing; permitd installs it");
    age_schema(scene.admin, 1);
    must_find(scene.admin, "procedures", DOCTOR_OK, "permit_hold is missing; permitd installs it");
    struct database_address limited = *scene.address;
    limited.user = scene.users[1];
    limited.password = password;
    snprintf(sql, sizeof sql, "GRANT SELECT ON %s.* TO %s@localhost", scene.address->database, scene.users[1]);
    must_run(scene.admin, sql);
    struct session *session = connected(&limited, STORE_READER);
    must_find(session, "procedures", DOCTOR_WARN, "GRANT CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON `");
    must_find(session, "definer", DOCTOR_WARN, "cannot see");
    must_find(session, "anonymous_accounts", DOCTOR_OK, "not checked");
    must_find(session, "sql_accounts", DOCTOR_OK, "not checked");
    must_find(session, "undo", DOCTOR_OK, "GRANT PROCESS");
    session_free(session);

    must_run(scene.admin, "CREATE DEFINER=nobody@nowhere PROCEDURE permit_hold(IN p_key VARBINARY(4096)) SELECT 1");
    must_find(scene.admin, "definer", DOCTOR_WARN, "permit_hold is nobody@nowhere");
    must_find(scene.admin, "definer", DOCTOR_WARN, "no such account");
    must_find(scene.admin, "procedures", DOCTOR_WARN,
              session_is_mariadb(scene.admin) ? "replaces it" : "DROP PROCEDURE `");
    ended(&scene);
}

Test(procedures, doctor_says_nothing_of_them_before_the_schema_has_them)
{
    struct doctor_report report = {.count = 0};
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_READER);
    must_run(session, "DROP TABLE sql_account");
    cr_expect_eq(doctor_examine_sales(session, &report), PERMIT_OK);
    cr_expect_eq(report.count, 0);
    session_free(session);
}
