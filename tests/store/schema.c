/* SPDX-License-Identifier: MIT */
/* The schema: created once by concurrent servers, continued after a kill, refused if newer. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"
#include "store/migration_text.h"
#include "store/query.h"
#include "store/schema.h"

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

/* The first statement of a migration, by its number; the number of statements before it. */
static size_t statements_before(const struct script *script, unsigned version)
{
    size_t count = 0;
    while (count < script->count && script->statements[count].migration->version < version)
        count++;
    return count;
}

/*
 * Rows of an older permitd: 70 held requests in two blocks of tokens, of two owners, with a deadline or without, one that
 * has ended, and one that waits. The bits and the list of waiting requests come to them.
 */
static void insert_older_rows(struct session *session)
{
    must_run(session, "INSERT INTO semaphore (id,name,kind,capacity,default_ttl_ms,max_hold_ms,max_waiters,in_use,"
                      "next_permit_id) VALUES (1,'s',2,100,1,1,5,70,72);"
                      "INSERT INTO template (prefix,length,kind,capacity,default_ttl_ms,max_hold_ms)"
                      " VALUES ('t',1,2,10,1,1)");
    for (int i = 1; i <= 71; i++) {
        char sql[600];
        (void)snprintf(
            sql, sizeof sql,
            "INSERT INTO permit_request (id,external_id,digest,owner,principal,state,ttl_ms,due_at,grace_ms,"
            "acquired_at,nonce) VALUES (%d,'k%d',REPEAT('d',32),'%s','',%d,1000,%s,0,'2026-11-21','');"
            "INSERT INTO permit (semaphore_id,id,permit_request_id,count,slots,state) VALUES (1,%d,%d,1,'',%d)",
            i, i, i % 2 ? "o" : "", i == 3 ? 2 : 1, i == 70 ? "NULL" : "'2026-11-21 00:00:00.9'", i, i, i == 3 ? 2 : 1);
        must_run(session, sql);
    }
    must_run(session,
             "INSERT INTO permit_request (id,external_id,state,due_at,server_id,place,waiting_since,waiting_until)"
             " VALUES (100,'w',3,'2026-11-22 00:00:01',7,'2026-11-21','2026-11-21','2026-11-22');"
             "INSERT INTO waiter (semaphore_id,place,permit_request_id,count) VALUES (1,'2026-11-21',100,1)");
}

/* Runs the statements of one migration from `first` on: `done` of them, of which `counted` are counted. */
static void run_statements(const struct script *script, struct session *session, size_t first, size_t done,
                           size_t counted)
{
    for (size_t i = first; i < first + done; i++) {
        cr_assert_eq(session_end(session, session_send(session, script->statements[i].text)), PERMIT_OK, "%s",
                     session_message(session));
        if (i < first + counted)
            must_run(session, "UPDATE schema_version SET statements = statements + 1 WHERE applied_at IS NULL");
    }
}

static void has_bits_of_older_rows(struct session *session)
{
    cr_expect_eq(number_of(session, "SELECT SUM(BIT_COUNT(bits)) FROM held"), 70);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM held"), 5,
                 "two owners in two blocks, and one without a deadline");
    cr_expect_eq(number_of(session,
                           "SELECT COUNT(*) FROM held JOIN held_bit ON bits & mask LEFT JOIN (permit p JOIN"
                           " permit_request r ON r.id = p.permit_request_id) ON p.semaphore_id = held.semaphore_id"
                           " AND p.id = block * 64 + n WHERE r.state = 1 AND r.owner = held.owner AND due_s ="
                           " COALESCE(FLOOR(UNIX_TIMESTAMP(r.due_at)), 4294967295)"),
                 70);
    cr_expect_str_eq(text_of(session, "SELECT GROUP_CONCAT(due_s, ' ', permit_request_id) FROM waiting_due"),
                     "1795305601 100");
}

/* Migrates rows of an older permitd; a permitd was killed before, after these statements of the migration. */
static struct session *older_rows_migrated(const struct script *script, size_t done, size_t counted)
{
    size_t before = statements_before(script, 10);
    struct session *session = leave_begun(script, before, before);
    struct buf message;
    insert_older_rows(session);
    run_statements(script, session, before, done, counted);
    buf_init(&message, 4000);
    cr_assert_eq(apply(script->begun, &message), PERMIT_OK, "%zu statements, %zu counted: %s", done, counted,
                 buf_text(&message));
    buf_release(&message);
    has_bits_of_older_rows(session);
    return session;
}

Test(schema, bits_come_to_rows_after_a_kill_at_any_statement, .timeout = 600)
{
    struct script script = read_script();
    size_t before = statements_before(&script, 10), count = statements_before(&script, 11) - before;
    for (size_t counted = 0; counted <= count; counted++) {
        drop_database(older_rows_migrated(&script, counted, counted), script.begun);
        if (counted < count && script.statements[before + counted].ddl)
            drop_database(older_rows_migrated(&script, counted + 1, counted), script.begun);
    }
}

Test(schema, bits_come_to_rows_that_exist)
{
    struct script script = read_script();
    struct session *session = older_rows_migrated(&script, 0, 0);
    struct arena arena;
    struct request request;
    struct bytes *names;
    struct query_time now;
    struct store *store = opened(script.begun, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 20);
    cr_assert_eq(store->queries->request(store, BYTES("k2"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert(request.state == REQUEST_ACQUIRED && request.permit_count == 1 && request.server_id == 0);
    arena_release(&arena);
    store_free(store);
    /* An older permitd can change nothing that is held any more: its statements name a column that is gone. */
    cr_expect_neq(session_run(session, "UPDATE permit SET state=IF(state=1,2,NULL) WHERE semaphore_id=1 AND id=1"),
                  PERMIT_OK);
    drop_database(session, script.begun);
}

/* ---- tables of another program ---- */

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
    struct tables tables;
    char sql[200], name[80];
    cr_assert(tables_read(schema_migrations, 1, 0, &tables));
    tables.list[tables.count++].name = BYTES("schema_version");
    const struct database_address *address = fresh_address();
    for (size_t i = 0; i < tables.count * ARRAY_LENGTH(kinds); i++) {
        struct bytes table = tables.list[i / ARRAY_LENGTH(kinds)].name;
        struct session *session = made_database(address);
        snprintf(name, sizeof name, "%.*s", (int)table.length, table.data);
        snprintf(sql, sizeof sql, kinds[i % ARRAY_LENGTH(kinds)], name);
        must_run(session, sql);
        refuses_and_changes_nothing(session, address, name);
        drop_database(session, address);
    }
}

Test(schema, tables_with_other_columns_are_refused)
{
    const struct database_address *address = fresh_address();
    struct session *session = made_database(address);
    struct tables tables;
    char sql[200];
    cr_assert(tables_read(schema_migrations, 1, 0, &tables));
    for (size_t i = 0; i < tables.count; i++) {
        snprintf(sql, sizeof sql, "CREATE TABLE %.*s (id INT, name TEXT)", (int)tables.list[i].name.length,
                 tables.list[i].name.data);
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
        {"permit", "DROP TABLE template, permit, slot, semaphore_event, owner, cluster, id_block;"
                   "CREATE TABLE permit (id INT); DELETE FROM schema_version WHERE version > 1;"
                   "UPDATE schema_version SET statements = 2, applied_at = NULL"},
        {"permit", "DROP TABLE permit; CREATE TABLE permit (id INT, labels MEDIUMBLOB)"},
        {"semaphore", "DROP TABLE semaphore; CREATE TABLE semaphore (id INT)"},
        {"template", "DROP TABLE template; CREATE TABLE template (prefix VARBINARY(255));"
                     "ALTER TABLE permit ADD COLUMN state TINYINT; DELETE FROM schema_version WHERE version > 2"},
        {"slot", "ALTER TABLE slot DROP KEY slot_label, DROP COLUMN label"},
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

/* A difference would make one of permitd's own tables look foreign. */
Test(schema, migrations_are_parsed_as_a_server_parses_them)
{
    static const char in_schema[] = " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME <> 'schema_version'";
    struct tables tables;
    char sql[400];
    struct session *session = connected(fresh_database(), STORE_READER);
    cr_assert(tables_read(schema_migrations, schema_newest() + 1, 0, &tables));
    int64_t columns = 0, expected = 0;
    for (size_t i = 0; i < tables.count; i++) {
        const struct table *table = &tables.list[i];
        expected += table->expected;
        columns += (int64_t)table->column_count;
        for (size_t column = 0; column < table->column_count; column++) {
            snprintf(sql, sizeof sql,
                     "SELECT COUNT(*) FROM information_schema.COLUMNS%s AND TABLE_NAME = '%.*s' AND COLUMN_NAME = "
                     "'%.*s'",
                     in_schema, (int)table->name.length, table->name.data, (int)table->columns[column].length,
                     table->columns[column].data);
            cr_expect_eq(number_of(session, sql), 1, "%s", sql);
        }
    }
    snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM information_schema.TABLES%s", in_schema);
    cr_expect_eq(number_of(session, sql), expected);
    snprintf(sql, sizeof sql, "SELECT COUNT(*) FROM information_schema.COLUMNS%s", in_schema);
    cr_expect_eq(number_of(session, sql), columns);
    session_free(session);
}

static void show_tables(const struct tables *tables, struct buf *shown)
{
    for (size_t i = 0; i < tables->count; i++) {
        const struct table *table = &tables->list[i];
        buf_printf(shown, table->expected ? "%s%.*s" : "%s(%.*s)", i ? " " : "", (int)table->name.length,
                   table->name.data);
        for (size_t column = 0; column < table->column_count; column++)
            buf_printf(shown, "%c%.*s", column ? ',' : ':', (int)table->columns[column].length,
                       table->columns[column].data);
    }
}

Test(schema, statements_create_alter_and_drop_tables)
{
    static const struct migration migrations[] = {
        {1, "one",
         "-- a comment; (it means nothing)\nCREATE TABLE a (\n  id INT COMMENT 'one, (two) ''three''',\n"
         "  `key` VARCHAR(10) DEFAULT ',',\n  n DECIMAL(5,2) NOT NULL, -- of it\n  PRIMARY KEY (id, n),\n"
         "  UNIQUE KEY a_key (`key`)\n) COMMENT='x';\nINSERT INTO a VALUES (1, 'CREATE TABLE q (', 2);\n"},
        {2, "two",
         "CREATE TABLE IF NOT EXISTS b (id INT);\nALTER TABLE a\n  ADD COLUMN x INT AFTER id,\n"
         "  ADD y INT, DROP COLUMN n, ADD KEY a_x (x, y), DROP INDEX a_key, MODIFY id BIGINT;\nDROP TABLE b;\n"},
        {0, NULL, NULL},
    };
    static const struct {
        unsigned version, statements;
        const char *shown;
    } rows[] = {
        {1, 0, "(a) (b)"},         {1, 1, "a:id,key,n (b)"},    {2, 0, "a:id,key,n (b)"},
        {2, 1, "a:id,key,n b:id"}, {2, 2, "a:id,key,x,y b:id"}, {3, 0, "a:id,key,x,y (b)"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct tables tables;
        struct buf shown;
        buf_init(&shown, 1000);
        cr_assert(tables_read(migrations, rows[i].version, rows[i].statements, &tables));
        show_tables(&tables, &shown);
        cr_expect_str_eq(buf_text(&shown), rows[i].shown);
        buf_release(&shown);
    }
}

/* ---- upgrades and rights ---- */

/* Creates a database with the first migration alone, and data in it. */
static void make_first_release(struct session *root, const char *database)
{
    char sql[1000];
    const char *whole = fresh_database()->database;
    snprintf(
        sql, sizeof sql,
        "CREATE DATABASE %s DEFAULT CHARACTER SET utf8mb4; USE %s; CREATE TABLE schema_version LIKE %s.schema_version;"
        "INSERT INTO schema_version SELECT * FROM %s.schema_version WHERE version = 1",
        database, database, whole, whole);
    must_run(root, sql);
    must_run(root, schema_migrations[0].text);
    must_run(root, "INSERT INTO semaphore (id, name, kind, capacity, in_use, next_permit_id, default_ttl_ms,"
                   " max_hold_ms) VALUES (1, 'hall', 1, 2, 1, 2, 1, 1);"
                   "INSERT INTO slot (semaphore_id, number, label, permit_id) VALUES (1, 1, 'A1', 1), (1, 2, NULL, 0);"
                   "INSERT INTO permit_request (id, external_id) VALUES (1, 'k');"
                   "INSERT INTO permit VALUES (1, 1, 1, 1, '1', 1)");
}

/* The semaphore has the settings that it had; those that came later have no value. */
static void settings_of_later_releases_are_none(const struct database_address *address)
{
    struct arena arena;
    struct semaphore_row hall;
    struct query_time time;
    arena_init(&arena, 1000, 100000);
    struct store *store = opened(address, STORE_READER);
    cr_assert_eq(store->queries->semaphore(store, BYTES("hall"), &arena, &hall, &time), PERMIT_OK);
    store_free(store);
    struct semaphore expected = {.kind = KIND_SLOTTED};
    semaphore_reset(&expected, 1);
    expected.capacity = 2;
    expected.max_hold_ms = 1;
    cr_assert(semaphore_same_settings(&hall.semaphore, &expected));
    arena_release(&arena);
}

Test(schema, database_of_the_first_release_is_upgraded)
{
    struct buf message;
    const struct database_address *address = fresh_address();
    struct session *root = session_new(address, STORE_ADMIN);
    cr_assert_eq(session_connect(root), PERMIT_OK);
    make_first_release(root, address->database);
    buf_init(&message, 4000);
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_assert_eq(number_of(root, "SELECT MAX(version) FROM schema_version WHERE applied_at IS NOT NULL"),
                 schema_newest());
    cr_assert_gt(schema_newest(), 1);
    cr_assert_str_eq(text_of(root, "SELECT CONCAT_WS(',', semaphore_id, id, slots, labels IS NULL) FROM permit"),
                     "1,1,1,1");
    cr_assert_str_eq(text_of(root, "SELECT CONCAT_WS(',', permit_id, label) FROM slot WHERE number = 1"), "1,A1");
    cr_assert_str_eq(text_of(root, "SELECT CONCAT_WS(',', external_id, nonce) FROM permit_request"), "k,");
    settings_of_later_releases_are_none(address);
    must_run(root, "INSERT INTO permit_request (id, external_id) VALUES (2, 'of a permitd of an older version')");
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    buf_release(&message);
    session_free(root);
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
             "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON %s.* TO %s@localhost",
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
    cr_assert_eq(store_raise_epoch(store, EPOCH_SERVER, 0, 0), PERMIT_OK, "%s", store->message);
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
