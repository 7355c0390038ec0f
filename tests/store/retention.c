/* SPDX-License-Identifier: MIT */
/* Batches of retention: the rows they delete, keep and read, and locks that they do not wait for. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/retention_batch.h"

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct session *other;
static struct arena arena;

static void clean_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    other = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(other, "INSERT INTO semaphore (id, name, kind, capacity, next_permit_id, default_ttl_ms, max_hold_ms)"
                    " VALUES (1, 'a', 2, 100, 1000000, 1, 1), (2, 'b', 2, 100, 1000000, 1, 1)");
}

static void clean_end(void)
{
    arena_release(&arena);
    session_free(other);
    store_free(store);
}

TestSuite(clean, .init = clean_begin, .fini = clean_end);

/*
 * Inserts the ended requests `first` to `last`, each with a permit of both semaphores, due and ended the given number
 * of seconds ago.
 */
static void insert_ended(int first, int last, int due_ago, int ended_ago)
{
    char sql[1024];
    int before = first - 1, count = last - before;
    snprintf(
        sql, sizeof sql,
        "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, acquired_at, ended_at)"
        " SELECT seq, CONCAT('key', seq), 2, 1, SYSDATE(6) - INTERVAL %d SECOND + INTERVAL seq MICROSECOND,"
        " '2026-01-01', SYSDATE(6) - INTERVAL %d SECOND FROM"
        " (SELECT %d + seq AS seq FROM numbers.upto WHERE seq <= %d) AS ended;"
        "INSERT INTO permit (semaphore_id, id, permit_request_id, count, state)"
        " SELECT semaphore.id, %d + seq, %d + seq, 1, 2 FROM numbers.upto, (SELECT 1 AS id UNION SELECT 2) AS semaphore"
        " WHERE seq <= %d",
        due_ago, ended_ago, before, count, before, before, count);
    must_run_long(address, sql);
}

static struct retention_task task_of(enum retention_kind kind)
{
    return (struct retention_task){.kind = kind, .rows = RETENTION_ROWS_MAX, .retention_rows = 10000000};
}

static struct retention_result clean_once(const struct retention_task *task)
{
    struct retention_result result;
    arena_clear(&arena);
    enum permit_status status = store->retention->batch(store, task, &arena, &result);
    cr_assert_eq(status, PERMIT_OK, "%s: %s", permit_status_word(status), session_message(session));
    return result;
}

/* Runs batches until nothing is left to delete. Returns the number of deletions. */
static uint64_t clean_all(struct retention_task task)
{
    uint64_t deleted = 0;
    for (int i = 0; i < 1000; i++) {
        struct retention_result result = clean_once(&task);
        cr_assert(result.has_lock);
        if (!result.deleted)
            return deleted;
        deleted += result.deleted;
        task.from = result.from;
    }
    cr_assert_fail("it does not end");
    return deleted;
}

Test(clean, only_due_requests_are_deleted_with_their_permits)
{
    insert_ended(1, 2500, 100, 8 * 86400);
    insert_ended(3001, 3100, 0, 8 * 86400);      /* due for less than a minute */
    insert_ended(4001, 4100, -86400, 6 * 86400); /* not due */
    must_run(other, "INSERT INTO permit_request (id, external_id, state, due_at) VALUES"
                    " (5001, 'held', 1, '2020-01-01'), (5002, 'permanent', 1, NULL);"
                    "INSERT INTO permit (semaphore_id, id, permit_request_id, count, state)"
                    " VALUES (1, 5001, 5001, 1, 1), (1, 5002, 5002, 1, 1);"
                    "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, ended_at) VALUES"
                    " (6001, 'tomb-old', 2, 6, SYSDATE(6) - INTERVAL 61 SECOND, SYSDATE(6) - INTERVAL 3661 SECOND),"
                    " (6002, 'tomb-new', 2, 6, SYSDATE(6) + INTERVAL 1 SECOND, SYSDATE(6) - INTERVAL 3599 SECOND)");
    cr_assert_eq(clean_all(task_of(RETENTION_DUE)), 2501);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request"), 203);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit"), 402);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request WHERE id <= 2500 OR id = 6001"), 0);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit WHERE permit_request_id <= 2500"), 0);
    cr_assert_eq(clean_all(task_of(RETENTION_OVERFLOW)), 0);
}

Test(clean, batches_have_800_requests_or_the_given_number_of_rows)
{
    insert_ended(1, 2500, 100, 8 * 86400);
    struct retention_task task = task_of(RETENTION_DUE);
    cr_assert_eq(clean_once(&task).deleted, RETENTION_ROWS_MAX / 3); /* a request and two permits each */
    must_run(other, "DELETE FROM permit");
    cr_assert_eq(clean_once(&task).deleted, RETENTION_REQUESTS);
    task.rows = 20;
    cr_assert_eq(clean_once(&task).deleted, 10);
}

Test(clean, requests_beyond_retention_rows_are_deleted_an_hour_after_their_end)
{
    insert_ended(1, 1000, -86400, 6 * 86400);
    insert_ended(1001, 1100, -6 * 86400, 600); /* ended ten minutes ago */
    insert_ended(2001, 3000, -5 * 86400, 2 * 86400);
    must_run(other, "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, ended_at)"
                    " SELECT 1200 + seq, CONCAT('tomb', seq), 2, 6, SYSDATE(6) + INTERVAL 1000 SECOND,"
                    " SYSDATE(6) - INTERVAL 2600 SECOND FROM numbers.upto WHERE seq <= 100;"
                    "INSERT INTO permit_request (id, external_id, state) VALUES (1500, 'held', 1)");
    struct retention_task task = task_of(RETENTION_OVERFLOW);
    cr_assert_eq(clean_all(task), 0);
    task.retention_rows = 1200; /* 1801 to 3000 */
    cr_assert_eq(clean_all(task), 1000);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request"), 1201);
    task.retention_rows = 500;
    cr_assert_eq(clean_all(task), 500);
    cr_assert_eq(number_of(other, "SELECT MIN(id) FROM permit_request WHERE id > 2000"), 2501);
}

Test(clean, events_are_kept_for_30_days)
{
    must_run(other, "INSERT INTO semaphore_event (semaphore_id, at, what, next_permit_id)"
                    " SELECT 1, SYSDATE(6) - INTERVAL 29 DAY - INTERVAL 23 HOUR, 'paused', 1 FROM numbers.upto"
                    " WHERE seq <= 10 UNION ALL"
                    " SELECT 1, SYSDATE(6) - INTERVAL 30 DAY - INTERVAL 1 SECOND, 'paused', 1 FROM numbers.upto"
                    " WHERE seq <= 2000");
    cr_assert_eq(clean_all(task_of(RETENTION_EVENTS)), 2000);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM semaphore_event"), 10);
}

Test(clean, lease_clock_decides_not_the_wall_clock)
{
    insert_ended(1, 10, 100, 8 * 86400);
    must_run(other, "UPDATE cluster SET offset_us = 50000000"); /* the lease clock is 50 s behind the clock */
    cr_assert_eq(clean_all(task_of(RETENTION_DUE)), 0);
    must_run(other, "UPDATE cluster SET offset_us = 30000000");
    cr_assert_eq(clean_all(task_of(RETENTION_DUE)), 10);
}

Test(clean, held_permit_of_an_ended_request_is_kept_for_the_audit)
{
    insert_ended(1, 1, 100, 8 * 86400);
    must_run(other, "UPDATE permit SET state = 1 WHERE semaphore_id = 2");
    cr_assert_eq(clean_all(task_of(RETENTION_DUE)), 1);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit"), 1);
}

Test(clean, one_server_deletes_at_a_time)
{
    insert_ended(1, 10, 100, 8 * 86400);
    struct retention_task task = task_of(RETENTION_DUE);
    must_run(other, "DO GET_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)), 0)");
    struct retention_result result = clean_once(&task);
    cr_assert_not(result.has_lock);
    cr_assert_eq(result.deleted, 0);
    must_run(other, "DO RELEASE_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)))");
    cr_assert_eq(clean_once(&task).deleted, 10);
    cr_assert_eq(number_of(other, "SELECT IS_FREE_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)))"),
                 1);
}

/*
 * A batch that counts an answer in an ended row has it locked: retention gives way immediately, and leaves no
 * transaction open.
 */
Test(clean, locked_row_is_not_waited_for)
{
    struct retention_result result;
    struct retention_task task = task_of(RETENTION_DUE);
    insert_ended(1, 10, 100, 8 * 86400);
    must_run(other, "BEGIN; UPDATE permit_request SET replays = replays + 1 WHERE id = 7");
    enum permit_status status = store->retention->batch(store, &task, &arena, &result);
    cr_assert_eq(status, PERMIT_LOCK_TIMEOUT, "%s", session_message(session));
    must_run(other, "UPDATE permit_request SET replays = replays + 1 WHERE id <> 7; ROLLBACK");
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request"), 10);
    cr_assert_eq(number_of(other, "SELECT IS_FREE_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)))"),
                 1);
    cr_assert_eq(clean_once(&task).deleted, 10);
}

static int64_t reads_of(const struct retention_task *task)
{
    (void)rows_read(session);
    clean_once(task);
    return rows_read(session);
}

/* With 1,000,000 live permits and nothing due no query reads more than 100 rows: their number does not matter. */
Test(clean, live_rows_are_not_read, .timeout = 300)
{
    enum { LIVE = 200000 };
    char sql[400];
    for (int at = 0; at < LIVE; at += 20000) {
        snprintf(sql, sizeof sql,
                 "INSERT INTO permit_request (id, external_id, state, due_at) SELECT %d + seq, CONCAT('key', %d + seq),"
                 " 1, IF(seq %% 2, '2020-01-01', '2030-01-01') FROM numbers.upto WHERE seq <= 20000",
                 at, at);
        must_run_long(address, sql);
    }
    insert_ended(2000001, 2000100, -86400, 6 * 86400);
    static const enum retention_kind kinds[] = {RETENTION_DUE, RETENTION_OVERFLOW, RETENTION_EVENTS};
    must_run(session, "SELECT 1 FROM semaphore_event LIMIT 1"); /* MySQL reads rows of its own to open a table */
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        struct retention_task task = task_of(kinds[i]);
        int64_t reads = reads_of(&task);
        cr_assert_leq(reads, 30, "kind %zu has read %lld rows", i, (long long)reads);
    }
}

/* A batch reads a page and the rows it deletes: a few reads for each request, however many other rows exist. */
Test(clean, batch_reads_one_page)
{
    insert_ended(1, 5000, 100, 8 * 86400);
    insert_ended(10001, 15000, -86400, 6 * 86400);
    struct retention_task task = task_of(RETENTION_DUE);
    task.rows = 300;
    cr_assert_lt(reads_of(&task), 300 * 12);
    task.kind = RETENTION_OVERFLOW;
    task.retention_rows = 10000;
    cr_assert_lt(reads_of(&task), 300 * 12);
}

/* The statement of the last batch that begins so, explained: the index it walks, and how much of it. */
static void explains(const char *beginning, const char *key, int64_t rows_most)
{
    const char *statement = sent_statement(beginning);
    struct explained table;
    cr_assert_geq(explain(other, statement, &table, 1), 1);
    cr_assert(bytes_equal(table.key, bytes_of(key)), "%s: key %.*s", statement, (int)table.key.length, table.key.data);
    cr_assert_leq(table.rows, rows_most, "%s", statement);
}

Test(clean, statements_use_the_indexes_they_name)
{
    enum { ROWS = 300 };
    insert_ended(1, 5000, 9 * 86400, 8 * 86400);
    must_run(other, "ANALYZE TABLE permit, permit_request");
    struct retention_task task = task_of(RETENTION_DUE);
    task.rows = ROWS;
    sent_record();
    (void)reads_of(&task);
    explains("SELECT r.id,r.due_at,", "permit_request_due", 5000);
    explains("DELETE p FROM permit p", "permit_request", 4 * ROWS);
    explains("DELETE r FROM permit_request r", "PRIMARY", 2 * ROWS);
    explains("SELECT id FROM permit_request", "PRIMARY", 2 * ROWS);
}
