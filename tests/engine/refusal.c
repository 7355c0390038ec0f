/* SPDX-License-Identifier: MIT */
/*
 * Refusals for lack of capacity (api/refusal.h), on a reader that runs in this thread until all are told. The store counts
 * what is read.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/refusal.h"
#include "api/service.h"
#include "base/clock.h"
#include "engine/state.h"
#include "engine/task.h"

enum { CROWD = 10000, SERVED_SIZE = 400 };

static const struct task_kind kind = {.lane = QUERY_ROW};
static struct engine engine;
static struct task task;
static struct service service;
static const struct lease_clock lease;

/* An acquire that is refused, or a query, named by its principal and a number. */
struct told {
    struct call call;
    struct query query;
    const char *name;
    struct buf answer; /* the problem */
};
static size_t asked_count, told_count;
static char order[SERVED_SIZE]; /* names in the order in which they were told */

/* ---- the store ---- */

static enum permit_status read_fails;
static size_t reads;     /* calls of `fronts` */
static size_t read_most; /* the most semaphores of one */

static enum permit_status succeed(struct store *store)
{
    (void)store;
    return PERMIT_OK;
}

static enum permit_status fronts(struct store *store, const uint64_t *ids, size_t count, struct arena *arena,
                                 struct semaphore_front *ret_fronts, struct query_time *ret_time)
{
    (void)store, (void)ret_time;
    cr_assert(count >= 1 && count <= REQUEST_MAX_SEMAPHORES);
    reads++;
    read_most = count > read_most ? count : read_most;
    for (size_t i = 0; read_fails == PERMIT_OK && i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "holder-%llu", (unsigned long long)ids[i]);
        struct front_holder *holder = arena_alloc(arena, sizeof *holder);
        cr_assert_not_null(holder);
        *holder = (struct front_holder){.external_id = arena_copy(arena, bytes_of(key)), .expires_at = NEVER};
        ret_fronts[i] = (struct semaphore_front){.holders = holder, .holder_count = 1};
    }
    return read_fails;
}

static enum permit_status no_request(struct store *store, struct bytes external_id, struct arena *arena,
                                     struct request *ret_request, struct bytes **ret_names, struct query_time *ret_time)
{
    (void)store, (void)external_id, (void)arena, (void)ret_request, (void)ret_names, (void)ret_time;
    return PERMIT_UNKNOWN_REQUEST;
}

static const struct store_session session = {.reconnect = succeed, .keepalive = succeed};
static const struct store_queries queries = {.fronts = fronts, .request = no_request};
static struct store store = {.session = &session, .queries = &queries, .message = ""};

/* ---- the operations ---- */

static void begin(void)
{
    memset(&engine, 0, sizeof engine);
    mutex_init(&engine.mutex);
    for (size_t i = 0; i < QUERY_LANE_COUNT; i++) {
        turns_init(&engine.lanes[i].queries);
        pthread_cond_init(&engine.lanes[i].wake, NULL);
    }
    task = (struct task){.kind = &kind, .engine = &engine, .store = &store};
    service = (struct service){.engine = &engine, .refusals = refusals_new()};
    cr_assert_not_null(service.refusals);
}

static void end(void)
{
    refusals_free(service.refusals);
}

TestSuite(refusal, .init = begin, .fini = end, .timeout = 120);

static void note(const char *name)
{
    if (strlen(order) + strlen(name) + 2 < sizeof order) {
        strcat(order, order[0] ? " " : "");
        strcat(order, name);
    }
    if (++told_count == asked_count)
        atomic_store(&engine.stopping, true);
}

static void decided(struct op *op, const struct decision *decision)
{
    struct batch_item *item = CONTAINER_OF(op, struct batch_item, op);
    struct told *told = CONTAINER_OF(call_of(item->exchange), struct told, call);
    if (refusal_begin(item, decision))
        return;
    refusal_write(&told->answer, item, decision, PERMIT_NO_CAPACITY);
    refusal_end(item);
    note(told->name);
}

/* The first letter of the name is the principal; '-' is none. The engine's memory is gone when this returns. */
static void refuse(struct told *told, const char *name, uint64_t semaphore_id, bool has_place)
{
    struct batch_item *item = &told->call.first;
    char semaphore[32];
    snprintf(semaphore, sizeof semaphore, "s%llu", (unsigned long long)semaphore_id);
    struct shortage shortage = {
        .semaphore_id = semaphore_id, .semaphore = bytes_of(semaphore), .capacity = 1, .in_use = 1, .requested = 1};
    const size_t waiting = 0;
    const struct outcome outcome = {.status = PERMIT_NO_CAPACITY, .shortages = &shortage, .shortage_count = 1};
    const struct decision decision = {.outcome = &outcome,
                                      .status = PERMIT_NO_CAPACITY,
                                      .clock = &lease,
                                      .waiting = &waiting,
                                      .has_place = has_place,
                                      .retry_after_ms = 1};
    told->name = name;
    told->call.exchange.service = &service;
    buf_init(&told->answer, 10000);
    item->exchange = &told->call.exchange;
    item->operation.principal = (struct bytes){name, name[0] != '-'};
    op_init(&item->op, &item->operation, NEVER, decided);
    asked_count++;
    item->op.decided(&item->op, &decision);
    memset(semaphore, '?', sizeof semaphore);
    memset(&shortage, 0xFF, sizeof shortage);
}

static void work(struct query *query, struct store *of, enum permit_status status)
{
    cr_expect(of && status == PERMIT_OK);
    note(CONTAINER_OF(query, struct told, query)->name);
}

static void ask(struct told *told, const char *name)
{
    told->name = name;
    told->query =
        (struct query){.work = work, .lane = QUERY_ROW, .deadline = NEVER, .turn.principal = {name, name[0] != '-'}};
    asked_count++;
    cr_assert_eq(engine_query(&engine, &told->query), PERMIT_OK);
}

static void expect_answer(struct told *told, const char *part)
{
    cr_expect(strstr(buf_text(&told->answer), part), "%s has no %s: %s", told->name, part, buf_text(&told->answer));
    buf_release(&told->answer);
}

static bool all_told(void)
{
    return told_count == asked_count;
}

/* ---- the tests ---- */

Test(refusal, crowd_at_one_semaphore_is_told_by_one_query_a_second)
{
    struct told *crowd = calloc(CROWD, sizeof *crowd);
    cr_assert_not_null(crowd);
    mono_us from = clock_mono();
    for (size_t i = 0; i < CROWD; i++)
        refuse(&crowd[i], "-", 7, false);
    cr_expect_eq(told_count, 0);
    reader_run(&task);
    cr_assert(all_told());
    mono_us seconds = (clock_mono() - from) / US_PER_SECOND;
    cr_expect(reads >= 1 && (mono_us)reads <= 1 + seconds, "%zu reads in %lld s", reads, (long long)seconds);
    for (size_t i = 0; i < CROWD; i++)
        expect_answer(&crowd[i], "s7: 1 of 1 in use, 1 asked, held longest by holder-7");
    free(crowd);
}

/* No refusal of a semaphore that is cached waits for a reader. */
Test(refusal, that_finds_its_holders_cached_is_told_at_once)
{
    struct told first = {.name = NULL}, second = {.name = NULL};
    mono_us from = clock_mono();
    refuse(&first, "-1", 7, false);
    reader_run(&task);
    refuse(&second, "-2", 7, false);
    if (clock_mono() - from < US_PER_SECOND) {
        cr_expect(all_told());
        cr_expect_eq(reads, 1);
        expect_answer(&second, "\"external_id\":\"holder-7\"");
    }
    expect_answer(&first, "\"external_id\":\"holder-7\"");
}

Test(refusal, many_semaphores_are_read_together)
{
    enum { COUNT = 3 * REQUEST_MAX_SEMAPHORES };
    struct told *told = calloc(COUNT, sizeof *told);
    cr_assert_not_null(told);
    for (size_t i = 0; i < COUNT; i++)
        refuse(&told[i], "-", 100 + i, false);
    reader_run(&task);
    cr_assert(all_told());
    cr_expect_eq(reads, 3);
    cr_expect_eq(read_most, REQUEST_MAX_SEMAPHORES);
    for (size_t i = 0; i < COUNT; i++) {
        char holder[64];
        snprintf(holder, sizeof holder, "\"external_id\":\"holder-%zu\"", 100 + i);
        expect_answer(&told[i], holder);
    }
    free(told);
}

/* Principals take turns, and the refusals of all are one principal among the queries. */
Test(refusal, those_with_places_take_turns_and_alternate_with_queries)
{
    static const char *const names[] = {"a1", "a2", "a3", "b1"};
    static const char *const refused[] = {"c1", "c2", "c3", "d1"};
    static struct told told[2 * ARRAY_LENGTH(names)];
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        ask(&told[2 * i], names[i]);
        refuse(&told[2 * i + 1], refused[i], 7 + i, true);
    }
    reader_run(&task);
    cr_expect_str_eq(order, "a1 c1 b1 a2 d1 a3 c2 c3");
}

Test(refusal, is_told_without_holders_if_they_cannot_be_read)
{
    static struct told told[REQUEST_MAX_SEMAPHORES + 2];
    read_fails = PERMIT_BUSY;
    for (size_t i = 0; i < ARRAY_LENGTH(told); i++)
        refuse(&told[i], "-", 7 + i, false);
    reader_run(&task);
    cr_assert(all_told());
    cr_expect_eq(reads, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(told); i++)
        expect_answer(&told[i], "\"holders\":[]");
}

Test(refusal, is_told_at_once_without_holders_if_the_engine_takes_no_query)
{
    static struct told told;
    atomic_store(&engine.stopping, true);
    refuse(&told, "-", 7, false);
    cr_assert(all_told());
    expect_answer(&told, "\"in_use\":1,\"requested\":1,\"holders\":[]");
}
