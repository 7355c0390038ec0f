/* SPDX-License-Identifier: MIT */
/* The schema: made once however many try, gone on with after a kill, refused if newer. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "store/migrations.h"
#include "store/schema.h"
#include "support.h"

static enum permit_status apply(const struct database_address *address, struct buf *message)
{
    struct session *session = session_new(address, SESSION_ADMIN);
    enum permit_status status = schema_apply(session, address->database, message);
    session_free(session);
    return status;
}

static void *apply_thread(void *argument)
{
    struct buf message;
    buf_init(&message, 4000);
    session_thread_begin();
    enum permit_status status = apply(argument, &message);
    if (status != PERMIT_OK)
        fprintf(stderr, "%s\n", buf_text(&message));
    session_thread_end();
    buf_release(&message);
    return status == PERMIT_OK ? argument : NULL;
}

Test(schema, several_at_once_all_succeed)
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
    struct session *session = connected(address, SESSION_READER);
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
    struct session *session = session_new(address, SESSION_ADMIN);
    buf_init(&message, 4000);
    cr_assert_eq(session_connect(session), PERMIT_OK);
    cr_assert_eq(schema_look(session, address->database, &version, &message), PERMIT_OK, "%s", buf_text(&message));
    session_free(session);
    buf_release(&message);
    return version;
}

Test(schema, a_look_tells_how_far_it_is_and_changes_nothing)
{
    const struct database_address *address = fresh_address();
    cr_assert_eq(look(address), 0, "there is no database yet");
    cr_assert_eq(look(address), 0, "and the look has not made it");
    struct buf message;
    buf_init(&message, 4000);
    cr_assert_eq(apply(address, &message), PERMIT_OK);
    cr_assert_eq(look(address), schema_newest());
    struct session *session = connected(address, SESSION_READER);
    must_run(session, "UPDATE schema_version SET applied_at = NULL ORDER BY version DESC LIMIT 1");
    cr_assert_eq(look(address), schema_newest() - 1, "the newest is not complete");
    session_free(session);
    buf_release(&message);
}

Test(schema, a_newer_one_is_refused)
{
    struct buf message;
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, SESSION_READER);
    must_run(session, "INSERT INTO schema_version (version, name, applied_at) VALUES (9999, 'x', UTC_TIMESTAMP(6))");
    buf_init(&message, 4000);
    cr_assert_neq(apply(address, &message), PERMIT_OK);
    cr_assert(strstr(buf_text(&message), "9999"), "%s", buf_text(&message));
    buf_release(&message);
    session_free(session);
}

/* As if permitd had been killed after a statement, and before or after it counted it. */
Test(schema, what_a_kill_left_is_gone_on_with)
{
    static const char *const left[] = {
        "DROP TABLE id_block; UPDATE schema_version SET applied_at = NULL, statements = 7",
        "TRUNCATE id_block; UPDATE schema_version SET applied_at = NULL, statements = 7",
        "TRUNCATE id_block; UPDATE schema_version SET applied_at = NULL, statements = 8",
        "TRUNCATE id_block; UPDATE schema_version SET applied_at = NULL, statements = 9",
        "UPDATE schema_version SET applied_at = NULL, statements = 10",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(left); i++) {
        struct buf message;
        buf_init(&message, 4000);
        const struct database_address *address = fresh_database();
        struct session *session = connected(address, SESSION_READER);
        must_run(session, "DELETE FROM schema_version WHERE version > 1");
        must_run(session, left[i]);
        if (number_of(session, "SELECT statements FROM schema_version WHERE version = 1") < 9)
            must_run(session, "TRUNCATE cluster");
        cr_assert_eq(apply(address, &message), PERMIT_OK, "%s: %s", left[i], buf_text(&message));
        cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM cluster"), 1);
        cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM id_block"), 1);
        cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM schema_version WHERE applied_at IS NULL"), 0);
        buf_release(&message);
        session_free(session);
    }
}

/* Made by the first migration alone, and used since. */
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

Test(schema, a_database_of_the_first_release_is_brought_up_to_date)
{
    struct buf message;
    const struct database_address *address = fresh_address();
    struct session *root = session_new(address, SESSION_ADMIN);
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
    cr_assert_eq(apply(address, &message), PERMIT_OK, "%s", buf_text(&message));
    buf_release(&message);
    session_free(root);
}

/* The exact rights that docs/operating.md tells people to grant, and nothing more. */
Test(schema, the_documented_rights_are_enough)
{
    char sql[500];
    struct buf message;
    struct database_address limited = *fresh_address();
    struct session *root = session_new(&limited, SESSION_ADMIN);
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
    struct session *worker = connected(&limited, SESSION_WORKER);
    cr_assert_eq(session_run(worker, "KILL CONNECTION_ID()"), PERMIT_DATABASE_LOST);
    cr_assert_eq(session_connect(worker), PERMIT_OK, "%s", session_message(worker));
    session_free(worker);

    /* When the schema is up to date, it needs no right to change it. */
    snprintf(sql, sizeof sql, "REVOKE CREATE, ALTER, INDEX ON %s.* FROM %s@localhost", limited.database,
             limited.database);
    must_run(root, sql);
    cr_assert_eq(apply(&limited, &message), PERMIT_OK, "%s", buf_text(&message));
    buf_release(&message);
    session_free(root);
}

Test(schema, every_column_is_commented)
{
    struct session *session = connected(fresh_database(), SESSION_READER);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE()"
                                    " AND COLUMN_COMMENT = '' AND EXTRA <> 'auto_increment'"),
                 0);
    session_free(session);
}
