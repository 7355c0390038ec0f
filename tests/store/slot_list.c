/* SPDX-License-Identifier: MIT */
/* The slot list of a semaphore with 50,000 slots: its contents, and that a page reads only a page. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/query.h"

enum { SEATS = 50000, HELD_FROM = 20001, HELD_TO = 30000, PAGE = 100 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;

/* `hall` (1) and `gone` (3), which is retired. */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(session, "INSERT INTO semaphore (id, name, kind, capacity, in_use, version, default_ttl_ms, max_hold_ms)"
                      " VALUES (1, 'hall', 1, 50000, 10000, 41, 1, 1), (2, 'yard', 1, 1000, 0, 1, 1, 1),"
                      " (3, 'gone', 1, 1, 0, 1, 1, 1); UPDATE semaphore SET retired_at = SYSDATE(6) WHERE id = 3");
}

/*
 * Section A is seats 1 to 49,900, section Z the rest. Seats 20,001 to 30,000 are held, ten by each request. `yard` (2)
 * has unrelated slots.
 */
static void seats_make(void)
{
    char sql[2000];
    snprintf(sql, sizeof sql,
             "INSERT INTO slot (semaphore_id, number, label, permit_id) SELECT 1, seq,"
             " CONCAT(IF(seq > 49900, 'Z', 'A'), seq), IF(seq BETWEEN %d AND %d, (seq - 1) DIV 10, 0)"
             " FROM numbers.upto WHERE seq <= %d;"
             "INSERT INTO slot (semaphore_id, number, label) SELECT 2, seq, CONCAT('A', seq)"
             " FROM numbers.upto WHERE seq <= 1000;"
             "INSERT INTO permit_request (id, external_id, due_at, ttl_ms) SELECT seq, CONCAT('k', seq),"
             " '2026-11-21 10:00:00', 1000 FROM numbers.upto WHERE seq BETWEEN 2000 AND 2999;"
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
             " SELECT 1, seq, seq, 10 FROM numbers.upto WHERE seq BETWEEN 2000 AND 2999;"
             "ANALYZE TABLE slot, permit, permit_request",
             HELD_FROM, HELD_TO, SEATS);
    must_run_long(address, sql);
    held_rewrite(address);
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(slot_list, .init = rows_make, .fini = rows_forget, .timeout = 300);

Test(slot_list, head_has_version_and_epoch)
{
    struct slot_list_head head;
    must_run(session, "UPDATE cluster SET epoch = 7");
    cr_assert_eq(store->queries->slot_list_head(store, BYTES("hall"), &head), PERMIT_OK);
    cr_assert_eq(head.semaphore_id, 1);
    cr_assert_eq(head.kind, KIND_SLOTTED);
    cr_assert_eq(head.version, 41);
    cr_assert_eq(head.in_use, 10000);
    cr_assert_eq(head.epoch, 7);
    cr_assert_eq(store->queries->slot_list_head(store, BYTES("gone"), &head), PERMIT_UNKNOWN_SEMAPHORE);
    cr_assert_eq(store->queries->slot_list_head(store, BYTES("HALL"), &head), PERMIT_UNKNOWN_SEMAPHORE);
}

/* Rows read to find that a prefix matches many slots: each once into a table and once out of it. */
enum { COUNTING = 2100 };

/* A query of a page reads a page; a query of rare slots reads each of the 50,000 at most once. */
Test(slot_list, page_reads_only_a_page)
{
    static const struct {
        unsigned limit;
        uint64_t after;
        struct slot_filter filter;
        size_t count;
        uint32_t first;
        bool held;
        int64_t touched;
    } rows[] = {
        {PAGE, 0, {.state = 0}, PAGE, 1, false, 3 * PAGE},
        {PAGE, 20000, {.state = 0}, PAGE, 20001, true, 6 * PAGE},
        {PAGE, 49950, {.state = 0}, 50, 49951, false, 3 * PAGE},
        {PAGE, 50000, {.state = 0}, 0, 0, false, 50},
        {PAGE, 0, {.state = SLOT_FREE}, PAGE, 1, false, 3 * PAGE},
        {PAGE, 20500, {.state = SLOT_HELD}, PAGE, 20501, true, 6 * PAGE},
        {PAGE, 0, {.state = SLOT_HELD}, PAGE, 20001, true, 20001 + 6 * PAGE},
        {PAGE, 0, {.prefix = {"A", 1}}, PAGE, 1, false, COUNTING + 3 * PAGE},
        {PAGE, 25000, {.prefix = {"A", 1}}, PAGE, 25001, true, COUNTING + 6 * PAGE},
        {10, 0, {.prefix = {"Z", 1}}, 10, 49901, false, 5 * PAGE},
        {PAGE, 0, {.prefix = {"Z", 1}}, PAGE, 49901, false, 5 * PAGE},
        {PAGE, 0, {.prefix = {"A2500", 5}}, 11, 2500, false, 50},
        {PAGE, 0, {.prefix = {"A2500", 5}, .state = SLOT_HELD}, 10, 25000, true, 100},
        {PAGE, 0, {.prefix = {"B", 1}}, 0, 0, false, 50},
    };
    seats_make();
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct page page = {.arena = &arena, .limit = rows[i].limit, .after.number = rows[i].after};
        (void)rows_read(session);
        cr_assert_eq(store->queries->slots(store, 1, &rows[i].filter, &page), PERMIT_OK, "%s",
                     session_message(session));
        const struct slot_list_row *slots = page.slots;
        int64_t touched = rows_read(session);
        cr_expect_leq(touched, rows[i].touched, "row %zu has read %lld", i, (long long)touched);
        cr_assert_eq(page.count, rows[i].count, "row %zu: %zu", i, page.count);
        for (size_t j = 1; j < page.count; j++)
            cr_assert_lt(slots[j - 1].number, slots[j].number);
        if (page.count == 0)
            continue;
        cr_expect_eq(slots[0].number, rows[i].first, "row %zu: %u", i, slots[0].number);
        cr_expect_eq(slots[0].token != 0, rows[i].held, "row %zu", i);
        cr_expect_eq(slots[0].request.external_id.data != NULL, rows[i].held, "row %zu", i);
    }
}
