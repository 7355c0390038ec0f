/* SPDX-License-Identifier: MIT */
/*
 * The largest transaction that a request can cause: each statement names at most 500 rows, the work is linear in the
 * rows, and the transaction commits within the session's timeouts (P23).
 */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batch_fixture.h"
#include "fixture.h"
#include "store/batch.h"

enum { SLOTS = 65536, REQUESTS = 66, SEMAPHORES = 64, ROWS_A_STATEMENT = 500 };

static struct session *observer;
static struct fixture fixture;

static void bounds_begin(void)
{
    const struct database_address *address = fresh_database();
    observer = connected(address, STORE_READER);
    fixture_open(&fixture, store_open(address, STORE_WORKER, NULL));
}

static void bounds_end(void)
{
    fixture_close(&fixture);
    session_free(observer);
}

TestSuite(bounds, .init = bounds_begin, .fini = bounds_end, .timeout = 600);

/* Returns the number of rows that the statement names: tuples of VALUES, or keys of all its INs. */
static size_t rows_of(const char *statement, size_t length)
{
    const char *values = memmem(statement, length, "VALUES (", 8);
    const char *keys = memmem(statement, length, " IN (", 5);
    size_t rows = values || keys ? 1 : 0;
    for (const char *at = values ? values : keys; at && at + 1 < statement + length; at++)
        rows += values ? at[0] == ',' && at[1] == '(' : at[0] == ',' || strncmp(at, ") OR ", 5) == 0;
    return rows;
}

/* Text in the packet is hexadecimal or a list of numbers, so a semicolon ends a statement. */
static void statements_are_bounded(void)
{
    struct buf sql;
    struct arena arena;
    buf_init(&sql, 1 << 26);
    arena_init(&arena, 1 << 16, 1 << 26);
    batch_changes_sql(&fixture.plan.changes, &arena, &sql);
    for (const char *at = buf_text(&sql); *at;) {
        size_t length = strcspn(at, ";");
        cr_assert_leq(rows_of(at, length), ROWS_A_STATEMENT, "%.*s ...", 100, at);
        cr_assert_null(memmem(at, length, "FIELD(", 6), "its work is the square of its rows: %.*s ...", 100, at);
        at += length + (at[length] == ';');
    }
    arena_release(&arena);
    buf_release(&sql);
}

static void apply(const char *what)
{
    statements_are_bounded();
    mono_us began = clock_mono();
    cr_assert_eq(store_apply(fixture.store, &fixture.plan.changes), PERMIT_OK, "%s", fixture.store->message);
    cr_log_info("%s: %lld ms\n", what, (long long)(clock_mono() - began) / US_PER_MS);
}

static void plan(const struct lock_set *set, const struct operation *const *operations, size_t count)
{
    cr_assert_eq(store_lock(fixture.store, set, &fixture.arena, &fixture.view), PERMIT_OK, "%s",
                 fixture.store->message);
    fixture_judge(&fixture.view.clock, fixture.view.now);
    cr_assert_eq(
        plan_batch(&fixture.view, operations, count, fixture.ids, &fixture_settings, &fixture.arena, &fixture.plan),
        PERMIT_OK);
    fixture.ids.next += fixture.plan.ids_used;
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(fixture.plan.outcomes[i].status, PERMIT_OK, "%s", fixture.plan.outcomes[i].detail);
}

/* Grants or releases 66 requests of one semaphore in one batch. */
static void run_together(struct operation *operations, uint64_t semaphore_id, int64_t free, const char *what)
{
    const struct operation *pointers[REQUESTS];
    struct bytes keys[REQUESTS];
    struct slots_wanted wanted = {.free = free};
    arena_clear(&fixture.arena);
    for (size_t i = 0; i < REQUESTS; i++) {
        pointers[i] = &operations[i];
        keys[i] = operations[i].external_id;
    }
    struct lock_set set = {.semaphore_ids = &semaphore_id,
                           .slots_wanted = &wanted,
                           .semaphore_count = 1,
                           .keys = keys,
                           .key_count = REQUESTS};
    plan(&set, pointers, REQUESTS);
    apply(what);
}

static const char *key_text(size_t i)
{
    static char texts[REQUESTS][8];
    snprintf(texts[i], sizeof texts[i], "k%zu", i);
    return texts[i];
}

Test(bounds, all_slots_of_the_largest_semaphore_change_in_one_transaction)
{
    struct operation acquires[REQUESTS], releases[REQUESTS];
    struct want wants[REQUESTS];
    semaphore_make(&fixture, "s", KIND_SLOTTED, SLOTS);
    uint64_t id = (uint64_t)number_of(observer, "SELECT id FROM semaphore");
    for (size_t i = 0; i < REQUESTS; i++) {
        int64_t count = i + 1 < REQUESTS ? SLOTS_MAX_COUNT : SLOTS - (REQUESTS - 1) * (int64_t)SLOTS_MAX_COUNT;
        wants[i] = (struct want){.semaphore = BYTES("s"), .semaphore_id = id, .count = count};
        acquires[i] = acquire_of(key_text(i), &wants[i], 1);
        releases[i] = (struct operation){.kind = OP_RELEASE, .external_id = bytes_of(key_text(i))};
    }
    run_together(acquires, id, SLOTS, "65536 slots granted");
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE permit_id <> 0 AND permit_id = last_permit_id"),
                 SLOTS);
    run_together(releases, id, 0, "65536 slots released");
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE permit_id = 0 AND last_permit_id <> 0"), SLOTS);
    cr_assert_eq(number_of(observer, "SELECT in_use FROM semaphore"), 0);
}

Test(bounds, largest_request_is_granted_and_released)
{
    static char names[SEMAPHORES][8];
    struct want wants[SEMAPHORES];
    uint64_t ids[SEMAPHORES];
    struct slots_wanted wanted[SEMAPHORES], nothing[SEMAPHORES] = {0};
    struct bytes key = BYTES("k");
    for (size_t i = 0; i < SEMAPHORES; i++) {
        snprintf(names[i], sizeof names[i], "s%02zu", i);
        semaphore_make(&fixture, names[i], KIND_SLOTTED, SLOTS_MAX_COUNT);
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT id FROM semaphore WHERE name='s%02zu'", i);
        ids[i] = (uint64_t)number_of(observer, sql);
        wants[i] = (struct want){.semaphore = bytes_of(names[i]), .semaphore_id = ids[i], .count = SLOTS_MAX_COUNT};
        wanted[i] = (struct slots_wanted){.free = SLOTS_MAX_COUNT};
    }
    struct operation acquire = acquire_of("k", wants, SEMAPHORES);
    struct operation release = {.kind = OP_RELEASE, .external_id = key};
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = SEMAPHORES, .keys = &key, .key_count = 1};
    arena_clear(&fixture.arena);
    plan(&set, (const struct operation *const[]){&acquire}, 1);
    apply("64 semaphores with 1000 slots each granted");
    set.slots_wanted = nothing;
    arena_clear(&fixture.arena);
    plan(&set, (const struct operation *const[]){&release}, 1);
    apply("64 semaphores with 1000 slots each released");
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE permit_id <> 0"), 0);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE last_permit_id = 1"), 64000);
}
