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

static void retention_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    other = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(other, "INSERT INTO semaphore (id, name, kind, capacity, next_permit_id, default_ttl_ms, max_hold_ms)"
                    " VALUES (1, 'a', 2, 100, 1000000, 1, 1), (2, 'b', 2, 100, 1000000, 1, 1)");
}

static void retention_end(void)
{
    arena_release(&arena);
    session_free(other);
    store_free(store);
}

TestSuite(retention, .init = retention_begin, .fini = retention_end);

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
        "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
        " SELECT semaphore.id, %d + seq, %d + seq, 1 FROM numbers.upto, (SELECT 1 AS id UNION SELECT 2) AS semaphore"
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

/* Runs the batches of a round, from the beginning of the table to its end. Returns the number of deletions. */
static uint64_t clean_round(struct retention_task task)
{
    uint64_t deleted = 0;
    task.from = 0;
    for (int i = 0; i < 1000; i++) {
        struct retention_result result = clean_once(&task);
        cr_assert(result.has_lock);
        deleted += result.deleted;
        if (!result.page.next)
            return deleted;
        cr_assert_gt(result.page.next, task.from);
        task.from = result.page.next;
    }
    cr_assert_fail("it does not end");
    return deleted;
}

Test(retention, only_due_requests_are_deleted_with_their_permits)
{
    insert_ended(1, 2500, 100, 8 * 86400);
    insert_ended(3001, 3100, 0, 8 * 86400);      /* due for less than a minute */
    insert_ended(4001, 4100, -86400, 6 * 86400); /* not due */
    must_run(other, "INSERT INTO permit_request (id, external_id, state, due_at) VALUES"
                    " (5001, 'held', 1, '2020-01-01'), (5002, 'permanent', 1, NULL);"
                    "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                    " VALUES (1, 5001, 5001, 1), (1, 5002, 5002, 1);"
                    "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, ended_at) VALUES"
                    " (6001, 'tomb-old', 2, 6, SYSDATE(6) - INTERVAL 61 SECOND, SYSDATE(6) - INTERVAL 3661 SECOND),"
                    " (6002, 'tomb-new', 2, 6, SYSDATE(6) + INTERVAL 1 SECOND, SYSDATE(6) - INTERVAL 3599 SECOND)");
    must_run(other, "INSERT INTO request_metadata (permit_request_id, metadata) VALUES"
                    " (1, '{}'), (2500, '{}'), (3001, '{}'), (5001, '{}')");
    cr_assert_eq(clean_round(task_of(RETENTION_REQUESTS)), 2501);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request"), 203);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM request_metadata"), 2);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit"), 402);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request WHERE id <= 2500 OR id = 6001"), 0);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit WHERE permit_request_id <= 2500"), 0);
}

Test(retention, batches_have_800_requests_or_the_given_number_of_rows)
{
    insert_ended(1, 2500, 100, 8 * 86400);
    struct retention_task task = task_of(RETENTION_REQUESTS);
    cr_assert_eq(clean_once(&task).deleted, RETENTION_ROWS_MAX / 3); /* a request and two permits each */
    must_run(other, "DELETE FROM permit");
    cr_assert_eq(clean_once(&task).deleted, RETENTION_REQUESTS_MAX);
    task.rows = 20;
    cr_assert_eq(clean_once(&task).deleted, 10);
}

Test(retention, requests_beyond_retention_rows_are_deleted_an_hour_after_their_end)
{
    insert_ended(1, 1000, -86400, 6 * 86400);
    insert_ended(1001, 1100, -6 * 86400, 600); /* ended ten minutes ago */
    insert_ended(2001, 3000, -5 * 86400, 2 * 86400);
    must_run(other, "INSERT INTO permit_request (id, external_id, state, end_reason, due_at, ended_at)"
                    " SELECT 1200 + seq, CONCAT('tomb', seq), 2, 6, SYSDATE(6) + INTERVAL 1000 SECOND,"
                    " SYSDATE(6) - INTERVAL 2600 SECOND FROM numbers.upto WHERE seq <= 100;"
                    "INSERT INTO permit_request (id, external_id, state) VALUES (1500, 'held', 1)");
    struct retention_task task = task_of(RETENTION_REQUESTS);
    cr_assert_eq(clean_round(task), 0);
    task.retention_rows = 1200; /* 1801 to 3000 */
    cr_assert_eq(clean_round(task), 1000);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit_request"), 1201);
    task.retention_rows = 500;
    cr_assert_eq(clean_round(task), 500);
    cr_assert_eq(number_of(other, "SELECT MIN(id) FROM permit_request WHERE id > 2000"), 2501);
}

Test(retention, events_are_kept_for_30_days)
{
    must_run(other, "INSERT INTO semaphore_event (semaphore_id, at, what, next_permit_id)"
                    " SELECT 1, SYSDATE(6) - INTERVAL 29 DAY - INTERVAL 23 HOUR, 'paused', 1 FROM numbers.upto"
                    " WHERE seq <= 10 UNION ALL"
                    " SELECT 1, SYSDATE(6) - INTERVAL 30 DAY - INTERVAL 1 SECOND, 'paused', 1 FROM numbers.upto"
                    " WHERE seq <= 2000");
    const struct retention_task task = task_of(RETENTION_EVENTS);
    uint64_t deleted = 0;
    for (uint64_t count = 1; count > 0; deleted += count)
        count = clean_once(&task).deleted;
    cr_assert_eq(deleted, 2000);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM semaphore_event"), 10);
}

Test(retention, lease_clock_decides_not_the_wall_clock)
{
    insert_ended(1, 10, 100, 8 * 86400);
    must_run(other, "UPDATE cluster SET offset_us = 50000000"); /* the lease clock is 50 s behind the clock */
    cr_assert_eq(clean_round(task_of(RETENTION_REQUESTS)), 0);
    must_run(other, "UPDATE cluster SET offset_us = 30000000");
    cr_assert_eq(clean_round(task_of(RETENTION_REQUESTS)), 10);
}

/* The page is read without locks: what it says of a request may be false when the transaction begins. */
Test(retention, permits_of_a_held_request_are_never_deleted)
{
    insert_ended(1, 2, 100, 8 * 86400);
    sent_record();
    cr_assert_eq(clean_round(task_of(RETENTION_REQUESTS)), 2);
    insert_ended(1, 2, 100, 8 * 86400);
    must_run(other, "UPDATE permit_request SET state = 1 WHERE id = 1");
    must_run(other, sent_statement("DELETE p FROM"));
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit WHERE permit_request_id = 1"), 2);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM permit"), 2);
    must_run(other, sent_statement("DELETE r FROM"));
    cr_assert_eq(number_of(other, "SELECT id FROM permit_request"), 1);
}

Test(retention, one_server_deletes_at_a_time)
{
    insert_ended(1, 10, 100, 8 * 86400);
    struct retention_task task = task_of(RETENTION_REQUESTS);
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
Test(retention, locked_row_is_not_waited_for)
{
    struct retention_result result;
    struct retention_task task = task_of(RETENTION_REQUESTS);
    insert_ended(1, 10, 100, 8 * 86400);
    must_run(other, "BEGIN; UPDATE permit_request SET replays = replays + 1 WHERE id = 7");
    cr_assert_eq(store->retention->batch(store, &task, &arena, &result), PERMIT_OK, "%s", session_message(session));
    cr_assert_eq(result.deleted, 9);
    must_run(other, "ROLLBACK");
    cr_assert_eq(number_of(other, "SELECT id FROM permit_request"), 7);
    cr_assert_eq(number_of(other, "SELECT IS_FREE_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)))"),
                 1);
    cr_assert_eq(clean_once(&task).deleted, 1);
}

static int64_t reads_of(const struct retention_task *task)
{
    (void)rows_read(session);
    clean_once(task);
    return rows_read(session);
}

/* Inserts `count` held requests with ids above `after`. */
static void insert_held(int after, int count)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO permit_request (id, external_id, state, due_at) SELECT %d + seq, CONCAT('held', %d + seq), 1,"
             " IF(seq %% 2, '2020-01-01', '2030-01-01') FROM numbers.upto WHERE seq <= %d",
             after, after, count);
    must_run_long(address, sql);
}

/* The end of the page and the page; the rest are the clock, the newest id and permits. */
enum { READS_OF_A_PAGE = 2 * RETENTION_PAGE + 30 };

Test(retention, batch_reads_one_page_of_rows_that_it_may_not_delete)
{
    insert_held(0, 20000);
    insert_ended(20001, 40000, -86400, 6 * 86400);
    struct retention_task task = task_of(RETENTION_REQUESTS);
    for (uint64_t from = 0; from < 40000; from += RETENTION_PAGE) {
        task.from = from;
        cr_assert_leq(reads_of(&task), READS_OF_A_PAGE, "from %llu", (unsigned long long)from);
    }
    for (int i = 0; i < 2; i++) { /* the first one opens the table */
        task.kind = RETENTION_EVENTS;
        if (i == 1)
            cr_assert_leq(reads_of(&task), 30);
        clean_once(&task);
    }
}

/* Pages count rows, not ids: holes cost nothing. */
Test(retention, round_ends_at_the_last_row)
{
    struct retention_task task = task_of(RETENTION_REQUESTS);
    cr_assert_eq(clean_once(&task).page.next, 0, "an empty table");
    insert_held(0, RETENTION_PAGE);
    cr_assert_eq(clean_once(&task).page.next, 0, "exactly one page");
    insert_held(2000000000, 1);
    struct retention_result result = clean_once(&task);
    cr_assert_eq(result.page.next, 2000000001);
    cr_assert_not(result.page.full);
    task.from = result.page.next;
    cr_assert_eq(clean_once(&task).page.next, 0);
}

/* The next batch begins behind the last request that this one has deleted, not at the next page. */
Test(retention, full_batch_leaves_the_others_of_its_page_to_the_next)
{
    insert_held(0, 100);
    insert_ended(101, 1000, 100, 8 * 86400);
    struct retention_task task = task_of(RETENTION_REQUESTS);
    task.rows = 300;
    struct retention_result result = clean_once(&task);
    cr_assert_eq(result.deleted, 100);
    cr_assert(result.page.full);
    cr_assert_eq(result.page.next, 201);
    cr_assert_eq(clean_round(task), 800, "the round begins before them");
}

/* Else the walk would not rest while it passes them. */
Test(retention, requests_that_may_not_be_deleted_yet_do_not_fill_a_batch)
{
    insert_ended(1, 1000, 100, 500);         /* due, ended less than ten minutes ago */
    insert_ended(1001, 2000, -86400, 3500);  /* surplus, ended less than an hour ago */
    insert_ended(2001, 3000, -86400, 86400); /* neither due nor surplus */
    struct retention_task task = task_of(RETENTION_REQUESTS);
    task.retention_rows = 1000;
    struct retention_result result = clean_once(&task);
    cr_assert_eq(result.deleted, 0);
    cr_assert_not(result.page.full);
    cr_assert_eq(result.page.next, 0);
    cr_assert_eq(result.page.oldest_kept, 2001);
}

/* A batch reads a page and the rows it deletes: a few reads for each request, however many other rows exist. */
Test(retention, batch_reads_one_page)
{
    insert_ended(1, 5000, 100, 8 * 86400);
    insert_ended(10001, 15000, -86400, 6 * 86400);
    struct retention_task task = task_of(RETENTION_REQUESTS);
    task.rows = 300;
    cr_assert_lt(reads_of(&task), READS_OF_A_PAGE + 300 * 12);
    task.from = 10001;
    task.retention_rows = 10000;
    cr_assert_lt(reads_of(&task), READS_OF_A_PAGE + 300 * 12);
}

/*
 * The statement of the last batch that begins so, explained: the index it walks, how much of it, and the index of the
 * table that it joins, NULL: none.
 */
static void explains(const char *beginning, const char *key, int64_t rows_most, const char *joined_key)
{
    const char *statement = sent_statement(beginning);
    struct explained tables[2];
    size_t count = explain(other, statement, tables, 2);
    cr_assert_eq(count, joined_key ? 2 : 1, "%s", statement);
    cr_assert(bytes_equal(tables[0].key, bytes_of(key)), "%s: key %.*s", statement, (int)tables[0].key.length,
              tables[0].key.data);
    cr_assert_leq(tables[0].rows, rows_most, "%s", statement);
    cr_assert(!joined_key || bytes_equal(tables[1].key, bytes_of(joined_key)), "%s", statement);
}

Test(retention, statements_use_the_indexes_they_name)
{
    enum { ROWS = 300 };
    insert_ended(1, 5000, 9 * 86400, 8 * 86400);
    must_run(other, "ANALYZE TABLE permit, permit_request");
    struct retention_task task = task_of(RETENTION_REQUESTS);
    task.rows = ROWS;
    sent_record();
    (void)reads_of(&task);
    explains("SELECT /* retention */ id", "PRIMARY", 5000, NULL);
    explains("SELECT /* retention */ r.id,r.due_at,", "PRIMARY", 5000, "permit_request");
    explains("DELETE p FROM permit_request r", "PRIMARY", 2 * ROWS, "permit_request");
    explains("DELETE r FROM permit_request r", "PRIMARY", 2 * ROWS, NULL);
    explains("SELECT id,state FROM permit_request FORCE INDEX (PRIMARY) WHERE id IN", "PRIMARY", 2 * ROWS, NULL);
}
