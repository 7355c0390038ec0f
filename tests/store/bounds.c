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
#include "core/name.h"
#include "fixture.h"
#include "store/batch.h"

enum { SLOTS = 65536, REQUESTS = 66, SEMAPHORES = 64, ROWS_A_STATEMENT = 500 };

static struct session *observer;
static struct fixture fixture;

static void bounds_begin(void)
{
    const struct database_address *address = fresh_database();
    observer = connected(address, STORE_READER);
    lock_max_packet(observer);
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
    (void)batch_changes_sql(&fixture.plan.changes, false, &arena, &sql);
    for (const char *at = buf_text(&sql); *at;) {
        size_t length = strcspn(at, ";");
        cr_assert_leq(rows_of(at, length), ROWS_A_STATEMENT, "%.*s ...", 100, at);
        cr_assert_null(memmem(at, length, "FIELD(", 6), "its work is the square of its rows: %.*s ...", 100, at);
        at += length + (at[length] == ';');
    }
    cr_assert_leq(sql.length + strlen("BEGIN;COMMIT"), fixture.plan.packet_size,
                  "the plan takes the packet for smaller");
    arena_release(&arena);
    buf_release(&sql);
}

static void apply(const char *what)
{
    statements_are_bounded();
    mono_us began = clock_mono();
    cr_assert_eq(fixture.store->batch->commit(fixture.store, &fixture.plan.changes), PERMIT_OK, "%s",
                 fixture.store->message);
    cr_log_info("%s: %lld ms\n", what, (long long)(clock_mono() - began) / US_PER_MS);
}

static void plan(const struct lock_set *set, const struct operation *const *operations, size_t count)
{
    cr_assert_eq(fixture.store->batch->lock(fixture.store, set, &fixture.arena, &fixture.view), PERMIT_OK, "%s",
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

/* ---- the packet ---- */

enum { HALLS = 3, LABELLED = HALLS * SLOTS_MAX_COUNT, LONG_KEYS = 2 };

/* Semaphores h0, h1 and h2 with 1,000 slots each, whose labels are as long as they may be. */
static void make_halls(uint64_t *ids, struct want *wants)
{
    static const char *const names[HALLS] = {"h0", "h1", "h2"};
    for (size_t i = 0; i < HALLS; i++) {
        char sql[200];
        semaphore_make(&fixture, names[i], KIND_SLOTTED, SLOTS_MAX_COUNT);
        snprintf(sql, sizeof sql, "SELECT id FROM semaphore WHERE name='%s'", names[i]);
        ids[i] = (uint64_t)number_of(observer, sql);
        snprintf(sql, sizeof sql,
                 "UPDATE slot SET label = CONCAT(REPEAT('x', 251), LPAD(number, 4, '0'))"
                 " WHERE semaphore_id = %llu",
                 (unsigned long long)ids[i]);
        must_run(observer, sql);
        wants[i] = (struct want){.semaphore = bytes_of(names[i]), .semaphore_id = ids[i], .count = SLOTS_MAX_COUNT};
    }
}

/* Plans the acquires of these wants, together; all names are as long as they may be. */
static void plan_halls(const uint64_t *ids, struct want *wants, size_t count, struct operation *acquires)
{
    static char texts[LONG_KEYS][STORED_KEY_MAX_BYTES];
    const struct operation *pointers[LONG_KEYS];
    struct bytes keys[LONG_KEYS];
    struct slots_wanted wanted[HALLS];
    for (size_t i = 0; i < HALLS; i++)
        wanted[i] = (struct slots_wanted){.free = SLOTS_MAX_COUNT};
    for (size_t i = 0; i < count; i++) {
        memset(texts[i], 'a' + (int)i, sizeof texts[i]);
        keys[i] = (struct bytes){texts[i], sizeof texts[i]};
        acquires[i] = acquire_of("", wants + i * (HALLS - 1), count == 1 ? HALLS : i == 0 ? HALLS - 1 : 1);
        acquires[i].external_id = acquires[i].owner = keys[i];
        acquires[i].principal = (struct bytes){texts[i], NAME_MAX_BYTES};
        acquires[i].nonce = (struct bytes){texts[i], NONCE_MAX_BYTES};
        pointers[i] = &acquires[i];
    }
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = HALLS, .keys = keys, .key_count = count};
    arena_clear(&fixture.arena);
    plan(&set, pointers, count);
}

Test(bounds, packet_of_long_names_and_labels_is_as_large_as_the_plan_says_at_most)
{
    uint64_t ids[HALLS];
    struct want wants[HALLS];
    struct operation acquires[LONG_KEYS], releases[LONG_KEYS];
    const struct operation *pointers[LONG_KEYS];
    struct bytes keys[LONG_KEYS];
    struct slots_wanted nothing[HALLS] = {{0}};
    make_halls(ids, wants);
    plan_halls(ids, wants, LONG_KEYS, acquires);
    apply("3000 slots with long labels granted");
    for (size_t i = 0; i < LONG_KEYS; i++) {
        keys[i] = acquires[i].external_id;
        releases[i] = (struct operation){.kind = OP_RELEASE, .external_id = keys[i]};
        pointers[i] = &releases[i];
    }
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = nothing, .semaphore_count = HALLS, .keys = keys, .key_count = LONG_KEYS};
    arena_clear(&fixture.arena);
    plan(&set, pointers, LONG_KEYS);
    apply("3000 slots with long labels released");
}

/* The store knows before it sends anything, and the transaction can still be rolled back. */
Test(bounds, packet_above_the_limit_of_the_server_is_not_sent)
{
    enum { MIB = 1 << 20 };
    uint64_t ids[HALLS];
    struct want wants[HALLS];
    struct operation acquires[LONG_KEYS];
    make_halls(ids, wants);
    int64_t usual = number_of(observer, "SELECT @@GLOBAL.max_allowed_packet");
    must_run(observer, "SET GLOBAL max_allowed_packet = 1048576");
    fixture.store->session->disconnect(fixture.store);
    cr_assert_eq(fixture.store->session->reconnect(fixture.store), PERMIT_OK);
    cr_assert_lt(fixture.store->max_packet, MIB);
    plan_halls(ids, wants, 1, acquires);
    cr_assert_gt(fixture.plan.packet_size, MIB);
    cr_expect_eq(fixture.store->batch->prepare(fixture.store, &fixture.plan.changes, NULL), PERMIT_TOO_LARGE);
    cr_expect_not_null(strstr(fixture.store->message, "max_allowed_packet"), "%s", fixture.store->message);
    cr_expect_eq(fixture.store->batch->rollback(fixture.store), PERMIT_OK);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM permit_request"), 0);
    char sql[100];
    snprintf(sql, sizeof sql, "SET GLOBAL max_allowed_packet = %lld", (long long)usual);
    must_run(observer, sql);
}
