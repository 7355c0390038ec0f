/* SPDX-License-Identifier: MIT */
/* Queries and lists: their results, and that they walk indexes only. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/owners.h"
#include "store/query.h"

static struct store *store;
static struct session *session; /* the store's */
static const struct database_address *address;
static struct arena arena;
static struct query_time now;

/*
 * `hot` (1): 3 holders among 500 ended; `slots` (2): a permit on slots 1 and 2 of 4, slot 3 used before; `empty` (3);
 * `gone` (4): retired. Requests 1 to 503 are of hot; 600 holds hot and slots; 601 is a tombstone.
 */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(
        session,
        "INSERT INTO semaphore (id, name, kind, capacity, in_use, next_permit_id, default_ttl_ms, max_hold_ms) VALUES"
        " (1, 'hot', 2, 100, 4, 505, 600000, 1), (2, 'slots', 1, 4, 2, 10, 1, 1), (3, 'empty', 2, 1, 0, 7, 1, 1),"
        " (4, 'gone', 2, 1, 0, 3, 1, 1)");
    must_run(session, "UPDATE semaphore SET retired_at = UTC_TIMESTAMP(6) WHERE id = 4;"
                      "UPDATE semaphore SET max_ttl_ms = 5000, note = 'for people' WHERE id = 1");
    must_run(
        session,
        "INSERT INTO permit_request (id, external_id, owner, state, end_reason, ttl_ms, due_at, acquired_at, ended_at)"
        " SELECT seq, CONCAT('key', seq), IF(seq % 2, 'odd', 'even'), IF(seq > 500, 1, 2), IF(seq > 500, 0, 1), 1000,"
        " '2026-11-21 10:00:00.5', '2026-11-21 09:00:00', IF(seq > 500, '9999-12-31', '2026-11-21 09:30:00')"
        " FROM numbers.upto WHERE seq <= 503");
    must_run(session, "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                      " SELECT 1, seq, seq, 1 FROM numbers.upto WHERE seq <= 503");
    must_run(session, "INSERT INTO permit_request (id, external_id, owner, state, digest) VALUES"
                      " (600, 'both', '', 1, REPEAT('d', 32)); INSERT INTO permit "
                      "(semaphore_id,id,permit_request_id,count,slots,labels) VALUES (1, 504, 600, 1, '', NULL),"
                      " (2, 5, 600, 2, '1-2', x'4131200a');"
                      "INSERT INTO permit_request (id, external_id, state, end_reason) VALUES (601, 'tomb', 2, 6)");
    must_run(session, "INSERT INTO slot (semaphore_id, number, permit_id, last_permit_id) VALUES"
                      " (2, 1, 5, 5), (2, 2, 5, 5), (2, 3, 0, 4), (2, 4, 0, 0)");
    held_rewrite(address);
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(query, .init = rows_make, .fini = rows_forget);

Test(query, semaphore_is_read_with_its_floor)
{
    struct semaphore_row row;
    cr_assert_eq(store->queries->semaphore(store, BYTES("hot"), &arena, &row, &now), PERMIT_OK);
    cr_assert_eq(row.semaphore.id, 1);
    cr_assert(bytes_equal(row.semaphore.name, BYTES("hot")));
    cr_assert_eq(row.semaphore.capacity, 100);
    cr_assert_eq(row.semaphore.in_use, 4);
    cr_assert_eq(row.semaphore.max_ttl_ms, 5000);
    cr_assert_eq(row.semaphore.retired_at, NEVER);
    cr_assert_eq(row.semaphore.next_due_at, NEVER);
    cr_assert_null(row.semaphore.paused_reason.data);
    cr_assert(bytes_equal(row.semaphore.note, BYTES("for people")));
    cr_assert_eq(row.floor, 501);
    cr_assert_gt(now.now, 1790000000 * (utc_us)US_PER_SECOND - 86400LL * 365 * US_PER_SECOND);
    cr_assert_eq(store->queries->semaphore(store, BYTES("empty"), &arena, &row, &now), PERMIT_OK);
    cr_assert_eq(row.floor, 7);
    cr_assert_eq(row.semaphore.max_ttl_ms, -1);
}

Test(query, unknown_and_retired_semaphores_are_unknown)
{
    struct semaphore_row row;
    struct page page = {.arena = &arena, .limit = 10};
    static const char *const names[] = {"gone", "nobody", "HOT", "hot ", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct bytes name = bytes_of(names[i]);
        cr_assert_eq(store->queries->semaphore(store, name, &arena, &row, &now), PERMIT_UNKNOWN_SEMAPHORE);
        cr_assert_eq(store->queries->holders(store, name, &page), PERMIT_UNKNOWN_SEMAPHORE);
    }
}

static size_t listed(struct bytes prefix, struct bytes after, unsigned limit, const char *first)
{
    struct page page = {.arena = &arena, .limit = limit, .after.name = after};
    cr_assert_eq(store->queries->semaphores(store, prefix, &page), PERMIT_OK);
    if (page.count)
        cr_assert(bytes_equal(page.semaphores[0].semaphore.name, bytes_of(first)));
    if (page.more)
        cr_assert(page.count == limit && bytes_equal(page.next.name, page.semaphores[page.count - 1].semaphore.name));
    return page.count;
}

Test(query, semaphores_are_listed_by_name_in_pages)
{
    cr_assert_eq(listed(BYTES(""), BYTES(""), 100, "empty"), 3);
    cr_assert_eq(listed(BYTES(""), BYTES(""), 2, "empty"), 2);
    cr_assert_eq(listed(BYTES(""), BYTES("hot"), 100, "slots"), 1);
    cr_assert_eq(listed(BYTES("h"), BYTES(""), 100, "hot"), 1);
    cr_assert_eq(listed(BYTES("h"), BYTES("hot"), 100, ""), 0);
    cr_assert_eq(listed(BYTES("g"), BYTES(""), 100, ""), 0);
    cr_assert_eq(listed(BYTES("\xff\xff"), BYTES(""), 100, ""), 0);
    cr_assert_eq(listed(BYTES("x'; DROP TABLE slot; --"), BYTES(""), 100, ""), 0);
}

static struct page holders_of(const char *semaphore, uint64_t after, unsigned limit)
{
    struct page page = {.arena = &arena, .limit = limit, .after.number = after};
    cr_assert_eq(store->queries->holders(store, bytes_of(semaphore), &page), PERMIT_OK, "%s", session_message(session));
    return page;
}

Test(query, holders_are_listed_in_order_of_token)
{
    struct page page = holders_of("hot", 0, 100);
    const struct holder_row *rows = page.holders;
    cr_assert_eq(page.count, 4);
    cr_assert_eq(rows[0].permit.token, 501);
    cr_assert(bytes_equal(rows[0].request.external_id, BYTES("key501")));
    cr_assert(bytes_equal(rows[0].request.owner, BYTES("odd")));
    cr_assert_eq(rows[0].request.acquired_at, 1795251600LL * US_PER_SECOND);
    cr_assert_eq(rows[3].permit.token, 504);
    page = holders_of("hot", 501, 2);
    cr_assert_eq(page.count, 2);
    cr_assert_eq(page.holders[0].permit.token, 502);
    cr_assert(page.more && page.next.number == 503);
    page = holders_of("hot", 502, 2);
    cr_assert(page.count == 2 && !page.more);
    page = holders_of("slots", 0, 2);
    cr_assert_eq(page.holders[0].permit.slots.count, 2);
    cr_assert_eq(page.holders[0].permit.slots.numbers[1], 2);
}

/* 300 holders in six blocks of tokens, each with an owner and a deadline of its own, the last token due first. */
static void insert_holders(void)
{
    must_run_long(address, "INSERT INTO permit_request (id, external_id, owner, due_at)"
                           " SELECT 1000 + seq, CONCAT('h', seq), CONCAT('o', seq), '2026-11-21' - INTERVAL seq SECOND"
                           " FROM numbers.upto WHERE seq <= 300;"
                           "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                           " SELECT 3, 1000 + seq, 1000 + seq, 1 FROM numbers.upto WHERE seq <= 300");
    held_rewrite(address);
}

Test(query, holders_with_different_deadlines_are_paged_in_order)
{
    insert_holders();
    for (unsigned limit = 1; limit <= 301; limit += 1 + limit / 2) {
        struct page page;
        uint64_t last = 1000;
        do {
            arena_clear(&arena);
            page = holders_of("empty", last, limit);
            for (size_t i = 0; i < page.count; i++)
                cr_assert_eq(page.holders[i].permit.token, ++last, "%u a page", limit);
        } while (page.more);
        cr_assert_eq(last, 1300, "%u a page", limit);
    }
}

/* The first two holders of the first block end; the third is due before others, and after some. */
Test(query, floor_is_the_smallest_token_of_a_block_with_several_rows)
{
    struct semaphore_row row;
    insert_holders();
    must_run(session, "UPDATE permit_request SET state = 2 WHERE id IN (1001, 1002);"
                      "UPDATE permit_request SET due_at = NULL WHERE id BETWEEN 1004 AND 1010");
    held_rewrite(address);
    cr_assert_eq(store->queries->semaphore(store, BYTES("empty"), &arena, &row, &now), PERMIT_OK);
    cr_assert_eq(row.floor, 1003);
}

Test(query, request_is_read_with_all_its_permits)
{
    struct request request;
    struct bytes *names;
    cr_assert_eq(store->queries->request(store, BYTES("both"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert_eq(request.id, 600);
    cr_assert_eq(request.permit_count, 2);
    cr_assert(request.has_digest);
    cr_assert_eq(request.digest[31], 'd');
    cr_assert(bytes_equal(names[0], BYTES("hot")));
    cr_assert_eq(request.permits[0].token, 504);
    cr_assert(bytes_equal(names[1], BYTES("slots")));
    cr_assert_eq(request.permits[1].slots.count, 2);
    cr_assert_eq(request.due_at, NEVER);
    cr_assert_eq(store->queries->request(store, BYTES("key1"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert_eq(request.state, REQUEST_RELEASED);
    cr_assert_eq(request.end_reason, END_RELEASED);
    cr_assert_eq(request.due_at, 1795255200LL * US_PER_SECOND + 500000);
    cr_assert_eq(store->queries->request(store, BYTES("tomb"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert_eq(request.permit_count, 0);
    cr_assert_not(request.has_digest);
    cr_assert_eq(store->queries->request(store, BYTES("KEY1"), &arena, &request, &names, &now), PERMIT_UNKNOWN_REQUEST);
}

static struct page requests_of(const struct request_filter *filter, uint64_t after, unsigned limit)
{
    struct page page = {.arena = &arena, .limit = limit, .after.number = after};
    cr_assert_eq(store->queries->requests(store, filter, &page), PERMIT_OK, "%s", session_message(session));
    return page;
}

Test(query, requests_are_filtered_and_paged)
{
    static const struct {
        unsigned limit;
        uint64_t after;
        struct request_filter filter;
        size_t count;
        uint64_t first;
        uint64_t next;
    } rows[] = {
        {1000, 0, {.state = 0}, 505, 1, 0},
        {505, 0, {.state = 0}, 505, 1, 0},
        {504, 0, {.state = 0}, 504, 1, 600},
        {10, 499, {.state = 0}, 6, 500, 0},
        {1000, 0, {.state = REQUEST_ACQUIRED}, 4, 501, 0},
        {2, 0, {.state = REQUEST_ACQUIRED}, 2, 501, 502},
        {2, 502, {.state = REQUEST_ACQUIRED}, 2, 503, 0},
        {1000, 0, {.state = REQUEST_RELEASED}, 501, 1, 0},
        {1000, 0, {.owner = {"odd", 3}}, 252, 1, 0},
        {251, 0, {.owner = {"odd", 3}}, 251, 1, 501},
        {2, 498, {.owner = {"odd", 3}}, 2, 499, 501},
        {1000, 0, {.owner = {"odd", 3}, .state = REQUEST_ACQUIRED}, 2, 501, 0},
        {1000, 0, {.owner = {"", 0}}, 2, 600, 0},
        {1000, 0, {.semaphore = {"hot", 3}}, 504, 1, 0},
        {3, 500, {.semaphore = {"hot", 3}}, 3, 501, 503},
        {4, 500, {.semaphore = {"hot", 3}}, 4, 501, 0},
        {1000, 0, {.semaphore = {"hot", 3}, .state = REQUEST_ACQUIRED}, 4, 501, 0},
        {3, 0, {.semaphore = {"hot", 3}, .state = REQUEST_ACQUIRED}, 3, 501, 503},
        {1000, 0, {.semaphore = {"hot", 3}, .state = REQUEST_RELEASED}, 500, 1, 0},
        {1000, 0, {.semaphore = {"slots", 5}}, 1, 600, 0},
        {1, 0, {.semaphore = {"slots", 5}}, 1, 600, 0},
        {1000, 0, {.semaphore = {"hot", 3}, .owner = {"even", 4}, .state = REQUEST_ACQUIRED}, 1, 502, 0},
        {2, 0, {.semaphore = {"hot", 3}, .owner = {"even", 4}}, 2, 2, 4},
        {1000, 0, {.semaphore = {"slots", 5}, .owner = {"even", 4}}, 0, 0, 0},
        {1, 0, {.semaphore = {"slots", 5}, .owner = {"even", 4}}, 0, 0, 0},
        {1000, 0, {.semaphore = {"nobody", 6}}, 0, 0, 0},
        {1000, 0, {.owner = {"ODD", 3}}, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct page page = requests_of(&rows[i].filter, rows[i].after, rows[i].limit);
        const struct listed_request *found = page.requests;
        uint64_t following = page.more ? page.next.number : 0;
        cr_assert_eq(page.count, rows[i].count, "row %zu: %zu", i, page.count);
        cr_assert_eq(following, rows[i].next, "row %zu: %llu", i, (unsigned long long)following);
        for (size_t j = 1; j < page.count; j++)
            cr_assert_lt(found[j - 1].request.id, found[j].request.id);
        if (page.count)
            cr_assert_eq(found[0].request.id, rows[i].first, "row %zu", i);
        if (page.count && found[page.count - 1].request.id == 600)
            cr_assert(bytes_equal(found[page.count - 1].names[1], BYTES("slots")));
    }
}

Test(query, request_with_permits_of_three_semaphores_is_listed_once)
{
    static const struct {
        unsigned limit;
        uint64_t after;
        struct request_filter filter;
    } rows[] = {
        {100, 0, {.owner = {"three", 5}}},
        {100, 0, {.owner = {"three", 5}, .state = REQUEST_ACQUIRED}},
        {100, 0, {.owner = {"three", 5}, .semaphore = {"empty", 5}}},
        {100, 0, {.owner = {"three", 5}, .semaphore = {"empty", 5}, .state = REQUEST_ACQUIRED}},
        {1, 0, {.owner = {"three", 5}, .state = REQUEST_ACQUIRED}},
        {100, 600, {.state = REQUEST_ACQUIRED}},
        {1, 600, {.semaphore = {"slots", 5}}},
    };
    must_run(session, "INSERT INTO permit_request (id, external_id, owner) VALUES (700, 'three', 'three');"
                      "INSERT INTO permit (semaphore_id, id, permit_request_id, count) VALUES (1, 700, 700, 1),"
                      " (2, 700, 700, 1), (3, 9, 700, 1);"
                      "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('three', 1000, '2100-01-01')");
    held_rewrite(address);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct page page = requests_of(&rows[i].filter, rows[i].after, rows[i].limit);
        cr_assert(page.count == 1 && !page.more, "%zu: %zu", i, page.count);
        cr_assert(page.requests[0].request.id == 700 && page.requests[0].request.permit_count == 3, "%zu", i);
    }
    struct owner owner;
    uint64_t held;
    cr_assert_eq(store->owners->get(store, BYTES("three"), &arena, &owner, &held, &now), PERMIT_OK);
    cr_assert_eq(held, 1);
}

Test(query, token_is_live_or_has_an_end_reason)
{
    static const struct {
        const char *semaphore;
        uint64_t token;
        uint32_t slot;
        bool known, live;
        enum end_reason end_reason;
        uint64_t floor;
    } rows[] = {
        {"hot", 501, 0, true, true, END_NONE, 501},    {"hot", 500, 0, true, false, END_RELEASED, 501},
        {"hot", 9999, 0, false, false, END_NONE, 501}, {"slots", 5, 0, true, true, END_NONE, 5},
        {"slots", 5, 2, true, true, END_NONE, 5},      {"slots", 5, 3, false, false, END_NONE, 5},
        {"slots", 4, 3, false, false, END_NONE, 5},    {"slots", 5, 99, false, false, END_NONE, 5},
        {"gone", 1, 0, false, false, END_NONE, 3},
    };
    struct fence_row row;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        cr_assert_eq(store->queries->fence(store, bytes_of(rows[i].semaphore), rows[i].token, rows[i].slot, &row),
                     PERMIT_OK);
        cr_assert_eq(row.known, rows[i].known, "row %zu", i);
        cr_assert_eq(row.live, rows[i].live, "row %zu", i);
        cr_assert_eq(row.floor, rows[i].floor, "row %zu", i);
        if (row.known && !row.live)
            cr_assert_eq(row.end_reason, rows[i].end_reason, "row %zu", i);
    }
    cr_assert_eq(store->queries->fence(store, BYTES("nobody"), 1, 0, &row), PERMIT_UNKNOWN_SEMAPHORE);
}

Test(query, clock_exists_with_the_schema)
{
    cr_assert_eq(store->queries->clock(store, &now), PERMIT_OK);
    cr_assert_gt(now.now, 0);
    must_run(session, "DROP TABLE cluster");
    cr_assert_neq(store->queries->clock(store, &now), PERMIT_OK);
}

/* With 20,000 unrelated rows, each of these queries reads a handful: it walks an index and stops. */
Test(query, unrelated_rows_are_not_read)
{
    enum { A_HANDFUL = 400, TEMPORARY_ROWS = 2500 };
    struct semaphore_row semaphore;
    struct request request;
    struct bytes *names;
    struct fence_row fence;
    must_run_long(address, "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms)"
                           " SELECT seq + 100, CONCAT('x', seq), 2, 1, 1, 1 FROM numbers.upto WHERE seq <= 2000;"
                           "INSERT INTO permit_request (id, external_id, owner, state)"
                           " SELECT seq + 1000, CONCAT('x', seq), CONCAT('o', seq), 1"
                           " FROM numbers.upto WHERE seq <= 20000;"
                           "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                           " SELECT IF(seq % 10, 3, 1), seq + 1000, seq + 1000, 1"
                           " FROM numbers.upto WHERE seq <= 20000");
    held_rewrite(address);
    const struct {
        unsigned limit;
        uint64_t after;
        struct request_filter filter;
    } filters[] = {
        {50, 0, {.state = 0}},
        {50, 10000, {.state = 0}},
        {50, 0, {.owner = BYTES("o77"), .state = REQUEST_ACQUIRED}},
        {50, 0, {.owner = BYTES("o77"), .state = REQUEST_WAITING}},
        {50, 0, {.owner = BYTES("o77"), .semaphore = BYTES("empty"), .state = REQUEST_ACQUIRED}},
        {50, 0, {.owner = BYTES("o77"), .semaphore = BYTES("slots")}},
        {50, 0, {.semaphore = BYTES("slots"), .state = REQUEST_ACQUIRED}},
    };
    for (int step = 0; step < 7 + (int)ARRAY_LENGTH(filters); step++) {
        enum permit_status status = PERMIT_OK;
        struct page page = {.arena = &arena, .limit = 50};
        (void)rows_read(session);
        switch (step) {
        case 0: status = store->queries->semaphore(store, BYTES("empty"), &arena, &semaphore, &now); break;
        case 1:
            page.after.name = BYTES("x10");
            status = store->queries->semaphores(store, BYTES("x1"), &page);
            break;
        case 2:
            page.after.number = 5000;
            status = store->queries->holders(store, BYTES("empty"), &page);
            break;
        case 3: status = store->queries->request(store, BYTES("x7"), &arena, &request, &names, &now); break;
        case 4: status = store->queries->fence(store, BYTES("empty"), 5001, 0, &fence); break;
        case 5: status = store->queries->fence(store, BYTES("slots"), 5, 1, &fence); break;
        case 6: status = store->queries->clock(store, &now); break;
        default:
            page.after.number = filters[step - 7].after;
            status = store->queries->requests(store, &filters[step - 7].filter, &page);
            break;
        }
        cr_assert_eq(status, PERMIT_OK, "step %d: %s", step, session_message(session));
        int64_t touched = rows_read(session);
        cr_assert_lt(touched, step == 2 ? TEMPORARY_ROWS : A_HANDFUL, "step %d has read %lld rows", step,
                     (long long)touched);
    }
}

/* ---- selective filters ---- */

/*
 * `big` has 45,000 ended requests that held hot, then one that held slots and is held; others have 25,000 that held
 * empty, more than a page reads. 25,000 names are retired, then one is not.
 */
static void many_make(void)
{
    must_run_long(address, "INSERT INTO permit_request (id, external_id, owner, state)"
                           " SELECT seq + 100000, CONCAT('b', seq), 'big', IF(seq > 45000, 1, 2)"
                           " FROM numbers.upto WHERE seq <= 45001;"
                           "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                           " SELECT IF(seq > 45000, 2, 1), seq + 1000, seq + 100000, 1"
                           " FROM numbers.upto WHERE seq <= 45001;"
                           "INSERT INTO permit_request (id, external_id, owner, state)"
                           " SELECT seq + 200000, CONCAT('e', seq), 'others', 2 FROM numbers.upto WHERE seq <= 25000;"
                           "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                           " SELECT 3, seq + 1000, seq + 200000, 1 FROM numbers.upto WHERE seq <= 25000;"
                           "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms, retired_at)"
                           " SELECT seq + 100, CONCAT('r', LPAD(seq, 5, '0')), 2, 1, 1, 1,"
                           " IF(seq > 25000, NULL, '2026-01-01') FROM numbers.upto WHERE seq <= 25001");
    held_rewrite(address);
}

/* All pages of a list: rows found, number of pages, and the most rows read for one page. */
struct pages {
    size_t found, pages;
    uint64_t last;
    int64_t touched;
};

static void note_page(struct pages *pages, size_t count, int64_t touched)
{
    pages->pages++;
    pages->found += count;
    pages->touched = touched > pages->touched ? touched : pages->touched;
}

static struct pages all_pages(const struct request_filter *filter, unsigned limit)
{
    struct pages pages = {0};
    struct page page = {.next.number = 0};
    do {
        (void)rows_read(session);
        arena_clear(&arena);
        page = requests_of(filter, page.next.number, limit);
        cr_assert_leq(page.count, limit);
        for (size_t i = 0; i < page.count; i++) {
            cr_assert_gt(page.requests[i].request.id, pages.last);
            pages.last = page.requests[i].request.id;
        }
        note_page(&pages, page.count, rows_read(session));
    } while (page.more);
    return pages;
}

Test(query, page_reads_a_bounded_number_of_requests)
{
    enum { BIG = 145001, EMPTY = 225000 };
    static const struct {
        unsigned limit;
        uint64_t after;
        struct request_filter filter;
        size_t found;
        size_t pages_least, pages_most; /* of 10 requests each */
        uint64_t last;
    } rows[] = {
        {10, 0, {.owner = {"big", 3}, .semaphore = {"slots", 5}}, 1, 1, 1, BIG},
        {10, 0, {.owner = {"big", 3}, .semaphore = {"empty", 5}}, 0, 3, 4, 0},
        {10, 0, {.owner = {"big", 3}, .state = REQUEST_ACQUIRED, .semaphore = {"slots", 5}}, 1, 1, 1, BIG},
        {10, 0, {.owner = {"big", 3}, .state = REQUEST_RELEASED, .semaphore = {"slots", 5}}, 0, 1, 1, 0},
        {10, 0, {.owner = {"big", 3}, .state = REQUEST_ACQUIRED}, 1, 1, 1, BIG},
        {1000, 0, {.owner = {"big", 3}, .state = REQUEST_RELEASED}, 45000, 45, 50, BIG - 1},
        {10, 0, {.owner = {"nobody", 6}}, 0, 3, 5, 0},
        {10, 0, {.owner = {"nobody", 6}, .state = REQUEST_RELEASED}, 0, 3, 5, 0},
        {10, 0, {.owner = {"nobody", 6}, .state = REQUEST_WAITING}, 0, 1, 1, 0},
        {10, 0, {.semaphore = {"slots", 5}}, 2, 1, 1, BIG},
        {1000, 0, {.semaphore = {"empty", 5}}, 25000, 27, 29, EMPTY},
        {10, 0, {.semaphore = {"empty", 5}, .state = REQUEST_ACQUIRED}, 0, 1, 1, 0},
        {10, 0, {.state = REQUEST_ACQUIRED}, 5, 1, 1, BIG},
    };
    many_make();
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct pages pages = all_pages(&rows[i].filter, rows[i].limit);
        cr_assert_eq(pages.found, rows[i].found, "row %zu: %zu", i, pages.found);
        cr_assert(pages.pages >= rows[i].pages_least && pages.pages <= rows[i].pages_most, "row %zu: %zu pages", i,
                  pages.pages);
        cr_assert_eq(pages.last, rows[i].last, "row %zu", i);
        cr_assert_lt(pages.touched, 5 * QUERY_WALK_MAX, "row %zu: %lld rows", i, (long long)pages.touched);
    }
}

Test(query, page_skips_a_bounded_number_of_names)
{
    struct pages pages = {0};
    struct page page = {.arena = &arena, .limit = 10};
    many_make();
    do {
        (void)rows_read(session);
        page.after = page.next;
        cr_assert_eq(store->queries->semaphores(store, BYTES("r"), &page), PERMIT_OK);
        note_page(&pages, page.count, rows_read(session));
        if (page.count)
            cr_assert(bytes_equal(page.semaphores[0].semaphore.name, BYTES("r25001")));
    } while (page.more);
    cr_assert_eq(pages.found, 1);
    cr_assert(pages.pages == 2, "%zu", pages.pages);
    cr_assert_lt(pages.touched, 4 * QUERY_WALK_MAX);
}

/* The query of an owner that holds very many requests does not wait until all of them are counted. */
Test(query, held_requests_of_an_owner_are_counted_up_to_a_limit)
{
    struct owner owner;
    uint64_t held;
    many_make();
    must_run(session, "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('big', 1000, '2100-01-01')");
    must_run_long(address, "UPDATE permit_request SET state = 1 WHERE owner = 'big' AND id <= 110000");
    held_rewrite(address);
    cr_assert_eq(store->owners->get(store, BYTES("big"), &arena, &owner, &held, &now), PERMIT_OK);
    cr_assert_eq(held, 10001);
    must_run_long(address, "UPDATE permit_request SET state = 1 WHERE owner = 'big'");
    held_rewrite(address);
    cr_assert_eq(store->owners->get(store, BYTES("big"), &arena, &owner, &held, &now), PERMIT_OK);
    cr_assert_eq(held, QUERY_WALK_MAX);
}
