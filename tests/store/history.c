/* SPDX-License-Identifier: MIT */
/* Past holders and events of a semaphore: the results, and the rows read for them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/query.h"

/* 2026-11-21 00:00:00 */
#define SECOND   ((int64_t)US_PER_SECOND)
#define MIDNIGHT (1795219200LL * SECOND)

enum { ENDED = 25000, STRANGERS = 5000 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;

/*
 * `busy` (1): permit n was granted n s after midnight with token 10 n, and ended 1.5 s later; but the permit with token
 * 10 is still held, and the one with token 20 was held for 20,000 s. `quiet` (2) has a permit of request 10, which
 * holds both semaphores, and an old one. `gone` (3) is retired and had one. All other permits are of `other` (4).
 */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(session,
             "INSERT INTO semaphore (id, name, kind, capacity, in_use, next_permit_id, default_ttl_ms, max_hold_ms)"
             " VALUES (1, 'busy', 2, 9, 1, 300000, 1, 1), (2, 'quiet', 2, 9, 1, 500, 1, 1),"
             " (3, 'gone', 2, 1, 0, 3, 1, 1), (4, 'other', 2, 1, 0, 30000000, 1, 1);"
             "UPDATE semaphore SET retired_at = '2026-11-21 09:00:00' WHERE id = 3");
    char sql[2048];
    snprintf(sql, sizeof sql,
             "INSERT INTO permit_request (id, external_id, owner, state, end_reason, acquired_at, ended_at)"
             " SELECT seq, CONCAT('key', seq), IF(seq %% 2, 'odd', 'even'), 2, 1,"
             " '2026-11-21 00:00:00' + INTERVAL seq SECOND, '2026-11-21 00:00:01.5' + INTERVAL seq SECOND"
             " FROM numbers.upto WHERE seq <= %d;"
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
             " SELECT 1, 10 * seq, seq, 1 FROM numbers.upto WHERE seq <= %d;"
             "UPDATE permit_request SET state = 1, end_reason = 0, ended_at = '9999-12-31' WHERE id = 1;"
             "UPDATE permit_request SET ended_at = '2026-11-21 05:33:22' WHERE id = 2;"
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count) VALUES (2, 400, 1, 3), (3, 1, 10, 1);"
             "INSERT INTO permit_request (id, external_id, state, acquired_at)"
             " SELECT 100000 + seq, CONCAT('x', seq), 1, '2026-11-21 00:00:00' FROM numbers.upto WHERE seq <= %d;"
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count) SELECT 4, seq, 100000 + "
             "seq, 1 FROM numbers.upto WHERE seq <= %d",
             ENDED, ENDED, STRANGERS, STRANGERS);
    must_run_long(address, sql);
    held_rewrite(address);
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(history, .init = rows_make, .fini = rows_forget);

static struct page page;

/* Reads the page behind the last one. */
static void ask_next(const struct request_filter *filter, unsigned limit)
{
    arena_clear(&arena);
    must_run(session, "UPDATE cluster SET tick_at = SYSDATE(6)"); /* the lease clock stands still 5 s later */
    page = (struct page){.arena = &arena, .limit = limit, .after = page.next};
    cr_assert_eq(store->queries->held_at(store, filter, &page), PERMIT_OK, "%s", session_message(session));
}

/* Reads a page of 100 requests. */
static void ask(const struct request_filter *filter)
{
    page = (struct page){0};
    ask_next(filter, 100);
}

/* Asserts the holders of `busy` at `at_us` microseconds after midnight, over all pages, as "key3 key2 key1". */
static void held(int64_t at_us, unsigned limit, const char *expected)
{
    char found[512] = "";
    const struct request_filter filter = {.semaphore = BYTES("busy"), .at = MIDNIGHT + at_us};
    page = (struct page){.more = true};
    for (int pages = 0; pages < 10 && page.more; pages++) {
        ask_next(&filter, limit);
        cr_assert_leq(page.count, limit);
        for (size_t i = 0; i < page.count; i++) {
            struct bytes key = page.requests[i].request.external_id;
            size_t length = strlen(found);
            snprintf(found + length, sizeof found - length, "%s%.*s", length ? " " : "", (int)key.length, key.data);
        }
    }
    cr_assert_not(page.more, "it does not end");
    cr_assert_str_eq(found, expected, "at %lld us", (long long)at_us);
}

Test(history, holders_were_granted_before_and_ended_after)
{
    held(0, 100, "");
    held(999999, 100, "");
    held(1000000, 100, "key1");
    held(2000000, 100, "key2 key1");
    held(3000000, 100, "key3 key2 key1");
    held(4400000, 100, "key4 key3 key2 key1");
    held(4500000, 100, "key4 key2 key1");
    held(100 * SECOND, 100, "key100 key99 key2 key1");
    held(19999 * SECOND, 100, "key19999 key19998 key2 key1");
    held(20002 * SECOND, 100, "key20002 key20001 key1");
    held(ENDED * SECOND, 1, "key25000 key24999 key1");
    held(ENDED * SECOND + 2 * SECOND, 100, "key1");
    held(-3 * SECOND, 100, "");
}

/* The lease clock has stepped back by nearly 5 s in the middle, as after a failover. */
Test(history, grants_out_of_order_after_a_clock_step_are_found)
{
    must_run(session, "UPDATE permit_request SET acquired_at = acquired_at - INTERVAL 4900000 MICROSECOND,"
                      " ended_at = ended_at - INTERVAL 4900000 MICROSECOND WHERE id BETWEEN 101 AND 25000");
    held(97 * SECOND, 100, "key101 key97 key96 key2 key1");
    held(100 * SECOND, 100, "key104 key100 key99 key2 key1");
}

Test(history, limited_walk_returns_where_to_continue)
{
    const struct request_filter filter = {.semaphore = BYTES("busy"), .at = MIDNIGHT + 24000 * SECOND};
    ask(&filter);
    cr_assert_eq(page.count, 2);
    uint64_t next = page.next.number;
    cr_assert(page.more && next == 10 * (24000 - QUERY_WALK_MAX + 1) + 100, "%llu", (unsigned long long)next);
    ask_next(&filter, 100);
    cr_assert_eq(page.count, 1);
    cr_assert_not(page.more);
    cr_assert(bytes_equal(page.requests[0].request.external_id, BYTES("key1")));
}

Test(history, permits_are_read_back_by_primary_key_and_no_more_than_a_page)
{
    enum { PAGE_ROWS = 100 };
    uint64_t last = UINT64_MAX;
    size_t found = 0;
    page = (struct page){.more = true};
    (void)rows_read(session);
    sent_record();
    while (page.more && found < 3 * PAGE_ROWS) {
        page = (struct page){.arena = &arena, .limit = PAGE_ROWS, .after = page.next};
        cr_assert_eq(store->queries->permits(store, 1, &page), PERMIT_OK, "%s", session_message(session));
        for (size_t i = 0; i < page.count; i++) {
            cr_assert_lt(page.permits[i].token, last);
            last = page.permits[i].token;
        }
        found += page.count;
    }
    cr_assert_eq(found, 3 * PAGE_ROWS);
    int64_t touched = rows_read(session);
    cr_assert_lt(touched, 6 * 3 * PAGE_ROWS, "%lld rows", (long long)touched);
    cr_assert_eq(last, 10 * (ENDED - 3 * PAGE_ROWS + 1));
    page = (struct page){.arena = &arena, .limit = PAGE_ROWS, .after.number = 30};
    cr_assert_eq(store->queries->permits(store, 1, &page), PERMIT_OK);
    cr_assert_eq(page.count, 2);
    cr_assert_not(page.more);
    cr_assert_eq(page.permits[0].acquired_at, MIDNIGHT + 2 * SECOND);
    cr_assert(bytes_equal(page.permits[1].owner, BYTES("odd")));
    cr_assert_eq(page.permits[1].ended_at, NEVER);
    cr_assert_eq(page.permits[1].waiting_since, NEVER);
}

/*
 * Request 200000 has taken 5 units at 10 s, has given back 2 at 20 s and 1 at 30 s, and has taken 2 at 40 s; it ended at
 * 60 s. Request 200001 has taken 6 at 10 s, has given back 2 at 20 s, and holds the rest.
 */
Test(history, units_of_a_permit_have_the_ends_that_exchanges_gave_them)
{
    static const struct {
        uint64_t token;
        int64_t count;
        bool is_part;
        int from, to; /* 0: held */
        enum end_reason reason;
        bool waited;
    } expected[] = {
        {3, 4, false, 10, 0, END_NONE, false},      {3, 2, true, 10, 20, END_RELEASED, false},
        {2, 4, false, 40, 60, END_RELEASED, false}, {1, 2, false, 10, 40, END_REPLACED, true},
        {1, 1, true, 10, 30, END_RELEASED, true},   {1, 2, true, 10, 20, END_RELEASED, true},
    };
    must_run(
        session,
        "INSERT INTO semaphore (id, name, kind, capacity, in_use, next_permit_id, default_ttl_ms, max_hold_ms)"
        " VALUES (5, 'cart', 2, 9, 4, 4, 1, 1);"
        "INSERT INTO permit_request (id, external_id, state, end_reason, acquired_at, ended_at, waiting_since,"
        " changes, change_nonce) VALUES (200000, 'c0', 2, 1, '2026-11-21 00:00:10', '2026-11-21 00:01:00',"
        " '2026-11-21 00:00:05', 3, 'n'), (200001, 'c1', 1, 0, '2026-11-21 00:00:10', '9999-12-31', NULL, 1, 'n');"
        "INSERT INTO permit (semaphore_id, id, permit_request_id, count, granted_at) VALUES"
        " (5, 2, 200000, 4, '2026-11-21 00:00:40'), (5, 3, 200001, 4, NULL);"
        "INSERT INTO past_permit (semaphore_id, id, changes, permit_request_id, count, ended_at, end_reason) VALUES"
        " (5, 1, 1, 200000, 5, '2026-11-21 00:00:20', 1), (5, 1, 2, 200000, 3, '2026-11-21 00:00:30', 1),"
        " (5, 1, 3, 200000, 2, '2026-11-21 00:00:40', 7), (5, 3, 1, 200001, 6, '2026-11-21 00:00:20', 1)");
    for (unsigned limit = 1; limit <= ARRAY_LENGTH(expected); limit++) {
        size_t found = 0;
        page = (struct page){.more = true};
        for (; page.more; found += page.count) {
            arena_clear(&arena);
            page = (struct page){.arena = &arena, .limit = limit, .after = page.next};
            cr_assert_eq(store->queries->permits(store, 5, &page), PERMIT_OK, "%s", session_message(session));
            for (size_t i = 0; i < page.count; i++) {
                const struct report_permit *row = &page.permits[i];
                size_t at = found + i;
                cr_assert_lt(at, ARRAY_LENGTH(expected));
                cr_expect(row->token == expected[at].token && row->count == expected[at].count &&
                              row->is_part == expected[at].is_part,
                          "row %zu: %lld of %llu", at, (long long)row->count, (unsigned long long)row->token);
                cr_expect_eq(row->acquired_at, MIDNIGHT + expected[at].from * SECOND, "row %zu", at);
                cr_expect_eq(row->ended_at, expected[at].to ? MIDNIGHT + expected[at].to * SECOND : NEVER, "row %zu",
                             at);
                cr_expect_eq(row->end_reason, expected[at].reason, "row %zu", at);
                cr_expect_eq(row->waiting_since != NEVER, expected[at].waited, "row %zu", at);
            }
        }
        cr_expect_eq(found, ARRAY_LENGTH(expected), "pages of %u", limit);
    }
}

Test(history, is_filtered_and_includes_all_permits_and_retired_names)
{
    ask(&(struct request_filter){.semaphore = BYTES("busy"), .owner = BYTES("even"), .at = MIDNIGHT + 4400000});
    cr_assert_eq(page.count, 2);
    cr_assert(bytes_equal(page.requests[0].request.external_id, BYTES("key4")));
    ask(&(struct request_filter){.semaphore = BYTES("quiet"), .at = MIDNIGHT + 9 * SECOND});
    cr_assert_eq(page.count, 1);
    cr_assert_eq(page.requests[0].request.permit_count, 2);
    cr_assert(bytes_equal(page.requests[0].names[1], BYTES("quiet")));
    ask(&(struct request_filter){.semaphore = BYTES("gone"), .at = MIDNIGHT + 10 * SECOND});
    cr_assert_eq(page.count, 1);
    ask(&(struct request_filter){.semaphore = BYTES("nobody"), .at = MIDNIGHT});
    cr_assert(page.count == 0 && !page.more);
}

Test(history, time_is_converted_with_the_current_offset_and_capped_at_now)
{
    must_run(session, "UPDATE cluster SET offset_us = 3600000000, tick_at = SYSDATE(6)");
    struct request_filter filter = {.semaphore = BYTES("busy"), .at = MIDNIGHT + 3600 * SECOND};
    ask(&filter);
    cr_assert_eq(page.count, 0);
    filter.at += 1000000;
    ask(&filter);
    cr_assert_eq(page.count, 1);
    filter.at = MIDNIGHT * 10;
    page.next.number = 100;
    ask_next(&filter, 100);
    cr_assert_eq(page.count, 1);
    cr_assert(bytes_equal(page.requests[0].request.external_id, BYTES("key1")));
}

/* ---- events ---- */

static const struct event_row *events;

static size_t events_of(const char *name, uint64_t before, unsigned limit)
{
    arena_clear(&arena);
    page = (struct page){.arena = &arena, .limit = limit, .after.number = before};
    cr_assert_eq(store->queries->events(store, bytes_of(name), &page), PERMIT_OK, "%s", session_message(session));
    events = page.events;
    return page.count;
}

Test(history, events_are_listed_newest_first_with_epoch_events)
{
    must_run(session,
             "INSERT INTO semaphore_event (id, semaphore_id, at, who, what, from_value, to_value, why, next_permit_id)"
             " VALUES (1, 3, '2026-11-21 09:00:00.5', '', 'created', NULL, '4', NULL, 1),"
             " (2, 1, '2026-11-21 09:00:00', '', 'created', NULL, '9', NULL, 1),"
             " (3, 0, '2026-11-21 09:00:00', '', 'epoch', '0', '7', 'restored', 7168),"
             " (4, 3, '2026-11-21 09:00:00', 'me', 'capacity', '4', '5', '\xc3\xbc', 8)");
    cr_assert_eq(events_of("gone", 0, 10), 3);
    cr_assert_eq(events[0].id, 4);
    cr_assert(bytes_equal(events[0].who, BYTES("me")));
    cr_assert(bytes_equal(events[0].from, BYTES("4")));
    cr_assert(bytes_equal(events[0].to, BYTES("5")));
    cr_assert(bytes_equal(events[0].why, BYTES("\xc3\xbc")));
    cr_assert_eq(events[0].next_token, 8);
    cr_assert(bytes_equal(events[1].what, BYTES("epoch")));
    cr_assert_eq(events[2].id, 1);
    cr_assert_eq(events[2].at, MIDNIGHT + 9LL * 3600 * SECOND + 500000);
    cr_assert_null(events[2].from.data);
    cr_assert_null(events[2].why.data);
    cr_assert_eq(events_of("gone", 4, 1), 1);
    cr_assert_eq(events[0].id, 3);
    cr_assert_eq(events_of("quiet", 3, 1), 0);
    cr_assert_eq(store->queries->events(store, BYTES("nobody"), &page), PERMIT_UNKNOWN_SEMAPHORE);
}

/* ---- rows read ---- */

static int64_t touched_by(const struct request_filter *filter, unsigned limit)
{
    (void)rows_read(session);
    page = (struct page){0};
    ask_next(filter, limit);
    return rows_read(session);
}

/* A walk reads up to its limit, a permit and its request each, and reads the permits once more for the cut. */
Test(history, query_reads_a_bounded_number_of_rows)
{
    enum { OTHERWISE = 2000 };
    struct request_filter filter = {.semaphore = BYTES("busy"), .at = MIDNIGHT + 50 * SECOND};
    cr_assert_lt(touched_by(&filter, 100), OTHERWISE, "an early moment");
    filter.at = MIDNIGHT + ENDED * SECOND;
    cr_assert_lt(touched_by(&filter, 100), 3 * QUERY_WALK_MAX + OTHERWISE, "a late one");
    cr_assert_lt(touched_by(&filter, 1), QUERY_WALK_MAX + OTHERWISE, "a short page");
    must_run_long(address, "INSERT INTO semaphore_event (semaphore_id, at, what, next_permit_id)"
                           " SELECT seq % 2, '2026-11-21 09:00:00', 'x', 1 FROM numbers.upto WHERE seq <= 20000");
    (void)rows_read(session);
    cr_assert_eq(events_of("busy", 0, 10), 10);
    cr_assert_lt(rows_read(session), OTHERWISE, "events");
}
