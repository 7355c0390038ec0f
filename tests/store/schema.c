/* SPDX-License-Identifier: MIT */
/* The schema: created once by concurrent servers, continued after a kill, refused if newer. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/query.h"
#include "store/schema.h"

/* MySQL: a column that is computed from others goes with the first of them. */
#define WITH_VALID "/*!80000 valid, DROP COLUMN */ "
/* Make a database of an earlier version of one of the newest version. */
#define BACK_TO_20                                                                                                     \
    "ALTER TABLE feed DROP COLUMN count, DROP COLUMN events, ADD COLUMN what TINYINT UNSIGNED NOT NULL,"               \
    " ADD COLUMN end_reason TINYINT UNSIGNED NOT NULL, ADD COLUMN external_id VARBINARY(289) NOT NULL,"                \
    " ADD COLUMN owner VARBINARY(289) NOT NULL, ADD COLUMN principal VARBINARY(255) NOT NULL,"                         \
    " ADD COLUMN permits MEDIUMBLOB NOT NULL; DROP TABLE feed_full;"                                                   \
    "ALTER TABLE feed_head DROP COLUMN durable, DROP COLUMN flushes, ADD COLUMN full TINYINT UNSIGNED NOT NULL,"       \
    " ADD COLUMN since DATETIME(6) NOT NULL; ALTER TABLE permit_request DROP COLUMN has_metadata;"                     \
    "DELETE FROM schema_version WHERE version > 20;"
#define BACK_TO_14                                                                                                     \
    "ALTER TABLE permit_request DROP COLUMN has_metadata;"                                                             \
    "DROP TABLE past_permit; ALTER TABLE permit DROP COLUMN granted_at;"                                               \
    "ALTER TABLE permit_request DROP COLUMN changes, DROP COLUMN change_nonce;"                                        \
    "DROP TABLE webhook; ALTER TABLE semaphore DROP KEY semaphore_feed_url, DROP COLUMN feed_url;"                     \
    "ALTER TABLE template DROP KEY template_feed_url, DROP COLUMN feed_url;"                                           \
    "ALTER TABLE permit /*M! MODIFY COLUMN count BIGINT NOT NULL *//*!80000 DROP COLUMN valid */;"                     \
    "ALTER TABLE waiter /*M! MODIFY COLUMN count BIGINT NOT NULL *//*!80000 DROP COLUMN valid */;"                     \
    "ALTER TABLE semaphore /*M! MODIFY COLUMN capacity BIGINT NOT NULL *//*!80000 DROP COLUMN valid */;"               \
    "ALTER TABLE template /*M! MODIFY COLUMN capacity BIGINT NOT NULL *//*!80000 DROP COLUMN valid */;"                \
    "ALTER TABLE slot DROP COLUMN section, DROP COLUMN seat_row, DROP COLUMN seat, DROP COLUMN seat_rank,"             \
    " DROP COLUMN tags; DROP TABLE request_metadata, feed, feed_head, feed_full, feed_epoch;"                          \
    "ALTER TABLE semaphore DROP COLUMN feed; ALTER TABLE template DROP COLUMN feed;"                                   \
    " DELETE FROM schema_version WHERE version > 14;"
#define BACK_TO_13                                                                                                     \
    BACK_TO_14                                                                                                         \
    "DROP TABLE errand, sql_account, served_offset; ALTER TABLE permit_request DROP COLUMN " WITH_VALID "errand;"      \
    "DELETE FROM schema_version WHERE version > 13;"

static enum permit_status apply(const struct database_address *address, struct buf *message)
{
    struct session *session = session_new(address, STORE_ADMIN);
    enum permit_status status = schema_apply(session, address->database, message);
    session_free(session);
    return status;
}

static void *apply_thread(void *argument)
{
    struct buf message;
    buf_init(&message, 4000);
    enum permit_status status = apply(argument, &message);
    if (status != PERMIT_OK)
        fprintf(stderr, "%s\n", buf_text(&message));
    buf_release(&message);
    return status == PERMIT_OK ? argument : NULL;
}

Test(schema, concurrent_servers_all_succeed)
{
    enum { AT_ONCE = 5 };
    const struct database_address *address = fresh_address();
    pthread_t threads[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, apply_thread, (void *)(uintptr_t)address), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        void *succeeded;
        pthread_join(threads[i], &succeeded);
        cr_assert_not_null(succeeded);
    }
    struct session *session = connected(address, STORE_READER);
    cr_assert_eq(number_of(session, "SELECT MAX(version) FROM schema_version WHERE applied_at IS NOT NULL"),
                 schema_newest());
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM cluster"), 1);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM id_block"), 1);
    session_free(session);
}

static unsigned look(const struct database_address *address)
{
    unsigned version = 9999;
    struct buf message;
    struct session *session = session_new(address, STORE_ADMIN);
    buf_init(&message, 4000);
    cr_assert_eq(session_connect(session), PERMIT_OK);
    cr_assert_eq(schema_read_version(session, address->database, &version, &message), PERMIT_OK, "%s",
                 buf_text(&message));
    session_free(session);
    buf_release(&message);
    return version;
}

Test(schema, version_is_read_without_a_change)
{
    const struct database_address *address = fresh_address();
    cr_assert_eq(look(address), 0, "there is no database yet");
    cr_assert_eq(look(address), 0, "and the look has not made it");
    struct buf message;
    buf_init(&message, 4000);
    cr_assert_eq(apply(address, &message), PERMIT_OK);
    cr_assert_eq(look(address), schema_newest());
    struct session *session = connected(address, STORE_READER);
    must_run(session, "UPDATE schema_version SET applied_at = NULL ORDER BY version DESC LIMIT 1");
    cr_assert_eq(look(address), schema_newest() - 1, "the newest is not complete");
    must_run(session, BACK_TO_13 "UPDATE schema_version SET applied_at = NULL");
    cr_assert_eq(look(address), 0, "the baseline is not complete");
    session_free(session);
    buf_release(&message);
}

Test(schema, newer_schema_is_refused)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_READER);
    must_run(session, "INSERT INTO schema_version (version, name, applied_at) VALUES (9999, 'x', UTC_TIMESTAMP(6))");
    buf_init(&message, 4000);
    cr_assert_neq(apply(address, &message), PERMIT_OK);
    cr_assert(strstr(buf_text(&message), "9999"), "%s", buf_text(&message));
    buf_release(&message);
    session_free(session);
}

/* Each event of before has a row of its own. */
Test(schema, events_of_before_keep_their_numbers)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_READER);
    must_run(session,
             BACK_TO_20 "INSERT INTO feed (id,seq,at,what,end_reason,external_id,owner,principal,permits) VALUES"
                        " (7,1,SYSDATE(6),5,2,'k1','o','','a 1 1 \n'),(9,NULL,SYSDATE(6),6,0,'','','','')");
    buf_init(&message, 4000);
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_expect_str_eq(text_of(session, "SELECT GROUP_CONCAT(id,'/',COALESCE(seq,'-'),'/',count,'/',events) FROM feed"),
                     "7/1/1/5 2 2:k11:o0:7:a 1 1 \n0:,9/-/1/6 0 0:0:0:0:0:");
    buf_release(&message);
    session_free(session);
}

/* ---- interrupted migrations ---- */

/* Returns the names and columns of all tables as one text; the caller frees it. */
static char *content_of(struct session *session)
{
    static const char sql[] = "SELECT CONCAT_WS(';', COUNT(*), SHA2(GROUP_CONCAT(TABLE_NAME, '.', COLUMN_NAME, ' ', "
                              "COLUMN_TYPE, ' ', COLUMN_KEY"
                              " ORDER BY TABLE_NAME, ORDINAL_POSITION), 256), (SELECT GROUP_CONCAT(TABLE_NAME, ' ', "
                              "TABLE_TYPE ORDER BY TABLE_NAME)"
                              " FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()))"
                              " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()";
    must_run(session, "SET SESSION group_concat_max_len = 1000000");
    char *content = strdup(text_of(session, sql));
    cr_assert_not_null(content);
    return content;
}

/* Creates an empty database. Returns a session in it. */
static struct session *made_database(const struct database_address *address)
{
    char sql[200];
    struct session *session = connected(address, STORE_ADMIN);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s DEFAULT CHARACTER SET utf8mb4; USE %s", address->database,
             address->database);
    must_run(session, sql);
    return session;
}

static void drop_database(struct session *session, const struct database_address *address)
{
    char sql[100];
    snprintf(sql, sizeof sql, "DROP DATABASE %s", address->database);
    must_run(session, sql);
    session_free(session);
}

enum { STATEMENTS_MAX = 200 };

/* All statements of all migrations, in order. */
struct script {
    struct {
        const struct migration *migration;
        struct bytes text;
        bool first; /* of its migration */
        bool ddl;   /* commits implicitly: a kill may come between it and its count */
    } statements[STATEMENTS_MAX];
    size_t count;
    const struct database_address *whole; /* a database with all of them run */
    const struct database_address *begun; /* a database that is created, interrupted and dropped repeatedly */
};

static struct script read_script(void)
{
    struct script script = {.whole = fresh_database(), .begun = fresh_address()};
    for (const struct migration *migration = schema_migrations; migration->version; migration++) {
        const char *text = migration->text;
        struct bytes statement;
        for (bool first = true; statement_next(&text, &statement); first = false) {
            cr_assert_lt(script.count, STATEMENTS_MAX);
            script.statements[script.count].migration = migration;
            script.statements[script.count].text = statement;
            script.statements[script.count].first = first;
            script.statements[script.count++].ddl = memmem(statement.data, statement.length, " TABLE ", 7) != NULL;
        }
    }
    return script;
}

/*
 * Leaves a new database as a permitd that is killed after it has run `done` statements and counted `counted` of them.
 */
static struct session *leave_begun(const struct script *script, size_t done, size_t counted)
{
    char sql[300];
    struct session *session = made_database(script->begun);
    snprintf(sql, sizeof sql, "CREATE TABLE schema_version LIKE %s.schema_version", script->whole->database);
    must_run(session, sql);
    for (size_t i = 0; i <= counted && i < script->count; i++) {
        const struct migration *migration = script->statements[i].migration;
        if (script->statements[i].first) {
            must_run(session, "UPDATE schema_version SET applied_at = UTC_TIMESTAMP(6)");
            snprintf(sql, sizeof sql, "INSERT INTO schema_version (version, name) VALUES (%u, '%s')",
                     migration->version, migration->name);
            must_run(session, sql);
        }
        if (i < done)
            cr_assert_eq(session_end(session, session_send(session, script->statements[i].text)), PERMIT_OK, "%s",
                         session_message(session));
        if (i < counted)
            must_run(session, "UPDATE schema_version SET statements = statements + 1 WHERE applied_at IS NULL");
    }
    return session;
}

static void continues_after_a_kill(const struct script *script, size_t done, size_t counted, const char *expected)
{
    struct buf message;
    struct session *session = leave_begun(script, done, counted);
    buf_init(&message, 4000);
    cr_expect_eq(apply(script->begun, &message), PERMIT_OK, "%zu statements, %zu counted: %s", done, counted,
                 buf_text(&message));
    char *content = content_of(session);
    cr_expect_str_eq(content, expected);
    free(content);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM cluster"), 1);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM id_block"), 1);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM schema_version WHERE applied_at IS NULL"), 0);
    buf_release(&message);
    drop_database(session, script->begun);
}

Test(schema, migration_continues_after_a_kill_at_any_statement, .timeout = 600)
{
    struct script script = read_script();
    struct session *whole = connected(script.whole, STORE_READER);
    char *expected = content_of(whole);
    session_free(whole);
    for (size_t counted = 0; counted <= script.count; counted++) {
        continues_after_a_kill(&script, counted, counted, expected);
        if (counted < script.count && script.statements[counted].ddl)
            continues_after_a_kill(&script, counted + 1, counted, expected);
    }
    free(expected);
}

/* ---- tables of another program ---- */

enum { TABLES_MAX = 32 };

/* Returns the names of all tables of permitd, valid until the next call. */
static size_t table_names(const char *ret_names[TABLES_MAX])
{
    static char names[1000];
    size_t count = 0;
    struct session *session = connected(fresh_database(), STORE_READER);
    snprintf(names, sizeof names, "%s",
             text_of(session, "SELECT GROUP_CONCAT(TABLE_NAME) FROM information_schema.TABLES"
                              " WHERE TABLE_SCHEMA = DATABASE()"));
    session_free(session);
    for (char *name = strtok(names, ","); name && count < TABLES_MAX; name = strtok(NULL, ","))
        ret_names[count++] = name;
    return count;
}

/* Asserts that two starts, as by a supervisor, and a read of the version refuse the database and change nothing. */
static void refuses_and_changes_nothing(struct session *session, const struct database_address *address,
                                        const char *table)
{
    struct buf message;
    char quoted[80];
    char *before = content_of(session);
    snprintf(quoted, sizeof quoted, "`%s`", table);
    buf_init(&message, 4000);
    for (int i = 0; i < 3; i++) {
        unsigned version;
        buf_clear(&message);
        cr_expect_neq(i < 2 ? apply(address, &message)
                            : schema_read_version(session, address->database, &version, &message),
                      PERMIT_OK, "%s", table);
        cr_expect(strstr(buf_text(&message), quoted), "%s: %s", table, buf_text(&message));
        cr_expect(strstr(buf_text(&message), address->database), "%s: %s", table, buf_text(&message));
    }
    char *after = content_of(session);
    cr_expect_str_eq(after, before);
    free(before);
    free(after);
    buf_release(&message);
}

Test(schema, foreign_table_is_refused_and_left_unchanged, .timeout = 600)
{
    static const char *const kinds[] = {"CREATE TABLE %s (id INT)", "CREATE VIEW %s AS SELECT 1 AS id"};
    const char *names[TABLES_MAX];
    size_t count = table_names(names);
    char sql[200];
    const struct database_address *address = fresh_address();
    cr_assert_gt(count, 10);
    for (size_t i = 0; i < count * ARRAY_LENGTH(kinds); i++) {
        const char *name = names[i / ARRAY_LENGTH(kinds)];
        struct session *session = made_database(address);
        snprintf(sql, sizeof sql, kinds[i % ARRAY_LENGTH(kinds)], name);
        must_run(session, sql);
        refuses_and_changes_nothing(session, address, name);
        drop_database(session, address);
    }
}

Test(schema, tables_with_other_columns_are_refused)
{
    const char *names[TABLES_MAX];
    size_t count = table_names(names);
    const struct database_address *address = fresh_address();
    struct session *session = made_database(address);
    char sql[200];
    for (size_t i = 0; i < count; i++) {
        snprintf(sql, sizeof sql, "CREATE TABLE %s (id INT, name TEXT)", names[i]);
        if (strcmp(names[i], "schema_version") != 0)
            must_run(session, sql);
    }
    refuses_and_changes_nothing(session, address, "semaphore");
    must_run(session, "CREATE TABLE schema_version (version INT, description TEXT)");
    refuses_and_changes_nothing(session, address, "schema_version");
    session_free(session);
}

/* The database as permitd 0.1.0 left it after taking a foreign table for its own, or with a table changed since. */
Test(schema, foreign_table_among_permitds_is_refused, .timeout = 600)
{
    static const struct {
        const char *table, *sql;
    } rows[] = {
        {"permit", BACK_TO_13
         "DROP TABLE permit, slot, semaphore_event, owner, cluster, id_block, template, server, waiter, mail,"
         " held, held_bit, waiting_due; CREATE TABLE permit (id INT);"
         "UPDATE schema_version SET statements = 2, applied_at = NULL"},
        {"slot", BACK_TO_13
         "DROP TABLE permit, semaphore_event, owner, cluster, id_block, template, server, waiter, mail, held,"
         " held_bit, waiting_due; UPDATE schema_version SET statements = 2, applied_at = NULL"},
        {"permit", "DROP TABLE permit; CREATE TABLE permit (id INT, labels MEDIUMBLOB)"},
        {"semaphore", "DROP TABLE semaphore; CREATE TABLE semaphore (id INT)"},
        {"template", "DROP TABLE template; CREATE TABLE template (prefix VARBINARY(255))"},
        {"slot", "ALTER TABLE slot DROP COLUMN permit_id"},
        {"waiter", BACK_TO_13 "UPDATE schema_version SET version = version - 1; DROP TABLE waiter"},
        {"waiter", BACK_TO_13 "UPDATE schema_version SET version = version - 1; ALTER TABLE waiter DROP COLUMN needs"},
        {"waiter", BACK_TO_13 "ALTER TABLE waiter DROP COLUMN needs"},
        {"errand", BACK_TO_13 "CREATE TABLE errand (id INT)"},
        {"permit_request", "ALTER TABLE permit_request DROP COLUMN " WITH_VALID "errand"},
        {"errand", "ALTER TABLE errand DROP PRIMARY KEY, DROP COLUMN bucket"},
        {"served_offset", "DROP TABLE served_offset"},
        {"sql_account", BACK_TO_14 "UPDATE schema_version SET statements = 2, applied_at = NULL WHERE version = 14"},
        {"feed", "DROP TABLE feed"},
        {"feed", "ALTER TABLE feed DROP COLUMN events"},
        {"semaphore", "ALTER TABLE semaphore DROP COLUMN feed"},
        {"template", "ALTER TABLE template DROP COLUMN feed"},
        {"semaphore", "ALTER TABLE semaphore DROP COLUMN feed_url"},
        {"template", "ALTER TABLE template DROP COLUMN feed_url"},
        {"webhook", "ALTER TABLE webhook DROP COLUMN namings"},
        {"cluster", "DROP TABLE cluster"},
        {"schema_version", "ALTER TABLE schema_version CHANGE statements description VARCHAR(20)"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const struct database_address *address = fresh_database();
        struct session *session = connected(address, STORE_READER);
        must_run(session, rows[i].sql);
        refuses_and_changes_nothing(session, address, rows[i].table);
        session_free(session);
    }
}

Test(schema, other_tables_and_additional_columns_are_accepted)
{
    struct buf message;
    const struct database_address *address = fresh_address();
    struct session *session = made_database(address);
    buf_init(&message, 4000);
    must_run(session, "CREATE TABLE Permit (id INT); CREATE TABLE permits (id INT); CREATE TABLE flyway_schema_history"
                      " (version INT)");
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    must_run(session, "ALTER TABLE semaphore_event ADD COLUMN ticket INT NULL");
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    session_free(session);
    buf_release(&message);
}

/* ---- upgrades and rights ---- */

/* Leaves a database as the build before the baseline left it: the same tables, at the version before, with a row. */
static struct session *made_before_baseline(const struct database_address **ret_address)
{
    *ret_address = fresh_database();
    struct session *session = connected(*ret_address, STORE_READER);
    must_run(session, BACK_TO_13 "UPDATE schema_version SET version = version - 1, statements = 5, name = 'before';"
                                 "INSERT INTO permit_request (id, external_id) VALUES (1, 'k')");
    return session;
}

Test(schema, database_at_the_version_before_the_baseline_is_taken_over)
{
    struct buf message;
    const struct database_address *address;
    struct session *session = made_before_baseline(&address);
    unsigned before = schema_migrations[0].version - 1;
    buf_init(&message, 4000);
    cr_assert_eq(look(address), before);
    struct session *newest = connected(fresh_database(), STORE_READER);
    char *tables = content_of(newest);
    session_free(newest);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
        cr_assert_eq(look(address), schema_newest());
        cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM schema_version WHERE applied_at IS NULL"), 0);
        cr_assert_eq(number_of(session, "SELECT MIN(version) FROM schema_version"), before);
        cr_assert_str_eq(text_of(session, "SELECT external_id FROM permit_request"), "k");
    }
    char *after = content_of(session);
    cr_assert_str_eq(after, tables);
    free(after);
    free(tables);
    buf_release(&message);
    session_free(session);
}

Test(schema, version_13_is_upgraded_with_its_rows)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_READER);
    char *newest = content_of(session);
    must_run(session, BACK_TO_13 "INSERT INTO permit_request (id, external_id) VALUES (1, 'k');"
                                 "UPDATE cluster SET offset_us = 4711");
    buf_init(&message, 4000);
    cr_assert_eq(look(address), 13);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_expect_eq(look(address), schema_newest());
    cr_expect_eq(number_of(session, "SELECT errand FROM permit_request WHERE external_id = 'k'"), 0);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM errand WHERE permit_request_id = 0"), 64);
    cr_expect_eq(number_of(session, "SELECT offset_us FROM served_offset"), 4711);
    char *upgraded = content_of(session);
    cr_expect_str_eq(upgraded, newest);
    free(upgraded);
    free(newest);
    buf_release(&message);
    session_free(session);
}

/* ---- what rows cannot be ---- */

/* MariaDB: a CHECK; MySQL: NULL in a column that is computed. */
static void refuses_row(struct session *session, const char *sql)
{
    enum { NULL_VALUE = 1048, CHECK_FAILED = 4025 };
    cr_expect_eq(session_run(session, sql), PERMIT_INTERNAL, "%s", sql);
    cr_expect_eq(session_errno(session), session_is_mariadb(session) ? CHECK_FAILED : NULL_VALUE, "%s: %s", sql,
                 session_message(session));
}

#define REQUEST "INSERT INTO permit_request SET id = 9, external_id = 'bad',"

Test(schema, rows_that_cannot_be_are_refused)
{
    static const char *const bad[] = {
        REQUEST "state = 2, confirmed_at = UTC_TIMESTAMP(6)",
        REQUEST "state = 3, confirmed_at = UTC_TIMESTAMP(6)",
        REQUEST "state = 2, errand = 2, ended_at = UTC_TIMESTAMP(6)",
        REQUEST "state = 3, errand = 2",
        REQUEST "state = 1, errand = 1",
        REQUEST "state = 1, errand = 3",
        REQUEST "state = 1, errand = 4",
        "UPDATE permit_request SET state = 2 WHERE external_id = 'sold'",
        "UPDATE permit_request SET confirmed_at = NULL, errand = 1 WHERE external_id = 'sold'",
        "UPDATE permit_request SET ended_at = '9999-12-31' WHERE external_id = 'refunded'",
        "INSERT INTO permit SET semaphore_id = 1, id = 9, permit_request_id = 1, count = 0",
        "INSERT INTO permit SET semaphore_id = 1, id = 9, permit_request_id = 1, count = -1",
        "INSERT INTO waiter SET semaphore_id = 1, place = '2026-01-01', permit_request_id = 1, count = 0",
        "INSERT INTO semaphore SET id = 9, name = 's', kind = 2, capacity = -1, default_ttl_ms = 1, max_hold_ms = 1",
        "INSERT INTO template SET prefix = 's', length = 1, kind = 2, capacity = -1, default_ttl_ms = 1, max_hold_ms = "
        "1",
    };
    static const char good[] =
        "INSERT INTO permit_request SET id = 1, external_id = 'sold', state = 1, confirmed_at = UTC_TIMESTAMP(6);"
        "INSERT INTO permit_request SET id = 2, external_id = 'refunded', state = 2, confirmed_at = UTC_TIMESTAMP(6),"
        " ended_at = UTC_TIMESTAMP(6);"
        "INSERT INTO permit_request SET id = 3, external_id = 'marked', state = 1, errand = 1,"
        " confirmed_at = UTC_TIMESTAMP(6);"
        "INSERT INTO permit_request SET id = 4, external_id = 'given', state = 1, errand = 2;"
        "INSERT INTO permit_request SET id = 5, external_id = 'waits', state = 3";
    struct session *session = connected(fresh_database(), STORE_READER);
    must_run(session, good);
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        refuses_row(session, bad[i]);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM permit_request"), 5);
    session_free(session);
}

/* A copy of the table would find the old row, and take long; the new checks read no row. */
Test(schema, upgrade_reads_no_old_row)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_READER);
    must_run(session, BACK_TO_13 "INSERT INTO permit SET semaphore_id = 1, id = 1, permit_request_id = 1, count = 0");
    buf_init(&message, 4000);
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM permit WHERE count = 0"), 1);
    refuses_row(session, "INSERT INTO permit SET semaphore_id = 1, id = 2, permit_request_id = 1, count = 0");
    must_run(session, "DELETE FROM permit");
    buf_release(&message);
    session_free(session);
}

/* It gives up after 1 s, so that others need not wait behind it, and goes on when the transaction has ended. */
Test(schema, upgrade_does_not_wait_behind_an_open_transaction, .timeout = 120)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *shop = connected(address, STORE_READER), *other = connected(address, STORE_READER);
    must_run(other, BACK_TO_13 "INSERT INTO permit_request (id, external_id) VALUES (1, 'k')");
    buf_init(&message, 4000);
    must_run(shop, "START TRANSACTION; SELECT * FROM permit_request");
    sent_record();
    for (int i = 0; i < 2; i++) {
        buf_clear(&message);
        cr_assert_eq(apply(address, &message), PERMIT_LOCK_TIMEOUT, "%s", buf_text(&message));
        cr_expect(strstr(buf_text(&message), "0014"), "%s", buf_text(&message));
        must_run(other, "SET SESSION lock_wait_timeout = 1; UPDATE permit_request SET renewals = renewals + 1");
    }
    (void)sent_statement("SET SESSION lock_wait_timeout = 1");
    must_run(shop, "COMMIT");
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_expect_eq(look(address), schema_newest());
    buf_release(&message);
    session_free(shop);
    session_free(other);
}

/* Below the version before the baseline, or at it but incomplete: with the name of the build that upgrades it. */
Test(schema, database_below_the_baseline_is_refused_and_left_unchanged)
{
    static const char *const below[] = {"UPDATE schema_version SET version = 1",
                                        "UPDATE schema_version SET version = version - 1",
                                        "UPDATE schema_version SET applied_at = NULL"};
    for (size_t i = 0; i < ARRAY_LENGTH(below); i++) {
        const struct database_address *address;
        struct session *session = made_before_baseline(&address);
        struct buf message;
        unsigned version = 0;
        must_run(session, below[i]);
        char *before = content_of(session);
        buf_init(&message, 4000);
        cr_expect_neq(apply(address, &message), PERMIT_OK);
        cr_expect(strstr(buf_text(&message), "permitd 0.1.0 built from commit "), "%s", buf_text(&message));
        cr_expect_neq(schema_read_version(session, address->database, &version, &message), PERMIT_OK);
        char *after = content_of(session);
        cr_expect_str_eq(after, before);
        cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM schema_version"), 1);
        free(after);
        free(before);
        buf_release(&message);
        session_free(session);
    }
}

/* Exactly the rights that docs/operating.md tells operators to grant. */
Test(schema, documented_rights_are_enough)
{
    char sql[500];
    struct buf message;
    struct database_address limited = *fresh_address();
    struct session *root = session_new(&limited, STORE_ADMIN);
    cr_assert_eq(session_connect(root), PERMIT_OK);
    snprintf(sql, sizeof sql,
             "CREATE DATABASE %s; CREATE USER %s@localhost IDENTIFIED BY 'secret';"
             "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE"
             " ON %s.* TO %s@localhost",
             limited.database, limited.database, limited.database, limited.database);
    must_run(root, sql);
    limited.user = limited.database;
    limited.password = (char[]){"secret"};
    buf_init(&message, 4000);
    cr_assert_eq(apply(&limited, &message), PERMIT_OK, "%s", buf_text(&message));
    struct session *worker = connected(&limited, STORE_WORKER);
    cr_assert_eq(session_run(worker, "KILL CONNECTION_ID()"), PERMIT_DATABASE_LOST);
    cr_assert_eq(session_connect(worker), PERMIT_OK, "%s", session_message(worker));
    session_free(worker);

    /* An up-to-date schema needs no right to change it. */
    snprintf(sql, sizeof sql, "REVOKE CREATE, ALTER, INDEX ON %s.* FROM %s@localhost", limited.database,
             limited.database);
    must_run(root, sql);
    cr_assert_eq(apply(&limited, &message), PERMIT_OK, "%s", buf_text(&message));

    struct store *store = opened(&limited, STORE_WORKER);
    struct server_self self;
    struct server_heartbeat heartbeat = {0};
    cr_assert_eq(fixture_advance_epoch(store, EPOCH_SERVER, 0, 0), PERMIT_OK, "%s", store->message);
    cr_assert_eq(store->servers->join(store, BYTES("a"), BYTES("1"), &self), PERMIT_OK, "%s", store->message);
    cr_assert_eq(store->servers->heartbeat(store, &self, &heartbeat), PERMIT_OK, "%s", store->message);
    cr_assert(heartbeat.ret_alive);
    cr_assert_eq(store->servers->leave(store, &self), PERMIT_OK, "%s", store->message);
    store_free(store);
    buf_release(&message);
    session_free(root);
}

Test(schema, every_column_is_commented)
{
    struct session *session = connected(fresh_database(), STORE_READER);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
                                    " AND COLUMN_COMMENT = '' AND EXTRA <> 'auto_increment'"),
                 0);
    session_free(session);
}
