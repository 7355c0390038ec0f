/* SPDX-License-Identifier: MIT */
/*
 * Properties of a plan that plan_model cannot see: the memory it points into, and queue order, one small batch a test.
 */
#include <criterion/criterion.h>

#include "base/buf.h"
#include "core/plan.h"

/*
 * Found by the thread sanitizer: the first of two operations is answered, and its memory reused, while the answer of
 * the second is written.
 */
Test(plan_memory, answer_points_into_its_own_operation_only)
{
    struct semaphore semaphore = {.id = 1,
                                  .name = BYTES("a"),
                                  .kind = KIND_COUNTED,
                                  .capacity = 9,
                                  .next_permit_id = 1,
                                  .max_ttl_ms = -1,
                                  .retired_at = NEVER,
                                  .next_due_at = NEVER};
    struct free_slots none = {0};
    struct named_slots unnamed = {0};
    utc_us next_due = NEVER;
    struct view view = {.semaphores = &semaphore,
                        .free_slots = &none,
                        .named_slots = &unnamed,
                        .next_due = &next_due,
                        .semaphore_count = 1};
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1};
    char keys[2][4] = {"key", "key"};
    char owners[2][4] = {"own", "own"};
    struct operation both[2];
    for (int i = 0; i < 2; i++)
        both[i] = (struct operation){
            .kind = OP_ACQUIRE, .external_id = {keys[i], 3}, .owner = {owners[i], 3}, .wants = &want, .want_count = 1};
    const struct operation *operations[] = {&both[0], &both[1]};
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1};
    struct arena arena;
    struct plan plan;
    arena_init(&arena, 4096, 1 << 20);
    cr_assert_eq(plan_batch(&view, operations, 2, (struct id_range){1, 10}, &settings, &arena, &plan), PERMIT_OK);
    cr_assert(plan.outcomes[0].created);
    cr_assert(plan.outcomes[1].replayed);
    memset(keys[0], 'x', 3);
    memset(owners[0], 'x', 3);
    cr_assert(bytes_equal(plan.outcomes[1].request->external_id, BYTES("key")));
    cr_assert(bytes_equal(plan.outcomes[1].request->owner, BYTES("own")));
    arena_release(&arena);
}

/* ---- queue order ---- */

enum { A, B, C, SEMAPHORES, LINES_MAX = 8, HOLDERS_MAX = 4 };
#define NOW (1000 * US_PER_SECOND)

/*
 * The rows of one batch: semaphores a and b, which are locked, and c, which is not. By default counted, backfill,
 * capacity 1 and free; a test sets the differences.
 */
struct scene {
    struct semaphore semaphores[SEMAPHORES];
    struct request holders[HOLDERS_MAX];
    struct permit permits[HOLDERS_MAX][SEMAPHORES];
    size_t holder_count;
    utc_us grants_from;
    struct arena arena;
    struct plan plan;
};

static struct scene scene;

static void scene_init(void)
{
    static const char names[] = "abc";
    memset(&scene, 0, sizeof scene);
    arena_init(&scene.arena, 4096, 1 << 20);
    for (unsigned i = 0; i < SEMAPHORES; i++)
        scene.semaphores[i] = (struct semaphore){.id = i + 1,
                                                 .name = {&names[i], 1},
                                                 .kind = KIND_COUNTED,
                                                 .queue = QUEUE_BACKFILL,
                                                 .capacity = 1,
                                                 .next_permit_id = 1,
                                                 .default_ttl_ms = 1000,
                                                 .max_ttl_ms = -1,
                                                 .max_hold_ms = 1000,
                                                 .retired_at = NEVER,
                                                 .next_due_at = NEVER};
}

static void scene_release(void)
{
    arena_release(&scene.arena);
}

TestSuite(plan_waiting, .init = scene_init, .fini = scene_release);

static void hold(const char *key, int64_t a, int64_t b, int64_t c, utc_us due_at)
{
    const int64_t counts[SEMAPHORES] = {a, b, c};
    struct request *holder = &scene.holders[scene.holder_count];
    struct permit *permits = scene.permits[scene.holder_count++];
    *holder = (struct request){.id = scene.holder_count,
                               .external_id = bytes_of(key),
                               .state = REQUEST_ACQUIRED,
                               .ttl_ms = 1000,
                               .due_at = due_at,
                               .permits = permits,
                               .confirmed_at = NEVER,
                               .ended_at = NEVER};
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        if (counts[i])
            permits[holder->permit_count++] = (struct permit){.semaphore_id = i + 1, .token = 1, .count = counts[i]};
        scene.semaphores[i].in_use += counts[i];
        scene.semaphores[i].next_due_at = min_i64(scene.semaphores[i].next_due_at, due_at);
    }
}

/* An operation, in order of arrival, and its expected outcome: see outcome_print. */
struct line {
    enum operation_kind kind;
    const char *key;
    enum queue_rank queue_rank;
    bool waits;
    int64_t a, b;
    const char *expected;
};

/*
 * Prints "granted", "replayed" or "put_back"; else the status, followed by each shortage, with < if other requests are
 * before it.
 */
static void outcome_print(const struct outcome *outcome, struct buf *out)
{
    buf_clear(out);
    if (outcome->put_back || outcome->created || outcome->replayed)
        buf_append_text(out, outcome->put_back ? "put_back" : outcome->created ? "granted" : "replayed");
    else
        buf_append_text(out, permit_status_word(outcome->status));
    for (size_t i = 0; i < outcome->shortage_count; i++)
        buf_printf(out, " %.*s%s", (int)outcome->shortages[i].semaphore.length, outcome->shortages[i].semaphore.data,
                   outcome->shortages[i].behind ? "<" : "");
}

static struct view scene_view(utc_us *next_due)
{
    static struct free_slots no_slots[SEMAPHORES];
    static struct named_slots unnamed[SEMAPHORES];
    for (unsigned i = 0; i < SEMAPHORES; i++)
        next_due[i] = scene.semaphores[i].next_due_at;
    return (struct view){.semaphores = scene.semaphores,
                         .free_slots = no_slots,
                         .named_slots = unnamed,
                         .next_due = next_due,
                         .semaphore_count = C,
                         .requests = scene.holders,
                         .request_count = scene.holder_count,
                         .clock = {NOW, 0},
                         .now = NOW,
                         .grants_from = scene.grants_from};
}

static void make_operation(const struct line *line, struct want *wants, struct operation *operation)
{
    *operation = (struct operation){.kind = line->kind,
                                    .external_id = bytes_of(line->key),
                                    .owner = BYTES(""),
                                    .principal = BYTES(""),
                                    .wants = wants,
                                    .queue_rank = line->queue_rank,
                                    .waits = line->waits};
    if (line->a)
        wants[operation->want_count++] =
            (struct want){.semaphore = BYTES("a"), .semaphore_id = A + 1, .count = line->a};
    if (line->b)
        wants[operation->want_count++] =
            (struct want){.semaphore = BYTES("b"), .semaphore_id = B + 1, .count = line->b};
}

static void expect(const struct line *lines, size_t count)
{
    struct operation operations[LINES_MAX];
    const struct operation *pointers[LINES_MAX];
    struct want wants[LINES_MAX][2];
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1};
    struct buf got;
    buf_init(&got, 1000);
    for (size_t i = 0; i < count; i++) {
        make_operation(&lines[i], wants[i], &operations[i]);
        pointers[i] = &operations[i];
    }
    cr_assert_eq(plan_batch(&view, pointers, count, (struct id_range){100, 200}, &settings, &scene.arena, &scene.plan),
                 PERMIT_OK);
    for (size_t i = 0; i < count; i++) {
        outcome_print(&scene.plan.outcomes[i], &got);
        cr_expect_str_eq(buf_text(&got), lines[i].expected, "%s: expected %s, got %s", lines[i].key, lines[i].expected,
                         buf_text(&got));
    }
    buf_release(&got);
}

#define EXPECT(...)                                                                                                    \
    do {                                                                                                               \
        static const struct line lines[] = {__VA_ARGS__};                                                              \
        expect(lines, ARRAY_LENGTH(lines));                                                                            \
    } while (0)
#define WAITS true

Test(plan_waiting, waiters_are_granted_before_new_requests_in_the_order_given)
{
    scene.semaphores[A].capacity = 2;
    EXPECT({OP_ACQUIRE, "k1", RANK_NEW, false, 1, 0, "no_capacity a"},
           {OP_ACQUIRE, "k4", RANK_WAITER, WAITS, 1, 0, "granted"},
           {OP_ACQUIRE, "k3", RANK_AGED, WAITS, 1, 0, "granted"},
           {OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 1, 0, "no_capacity a"});
}

Test(plan_waiting, released_units_are_granted_to_a_waiter_in_the_same_batch)
{
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 1, 0, "granted"},
           {OP_ACQUIRE, "k3", RANK_NEW, WAITS, 1, 0, "no_capacity a"}, {OP_RELEASE, "k1", 0, false, 0, 0, "ok"});
}

Test(plan_waiting, fitting_request_passes_a_waiter_under_backfill)
{
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 3, 0, "no_capacity a"},
           {OP_ACQUIRE, "k3", RANK_WAITER, WAITS, 1, 0, "granted"},
           {OP_ACQUIRE, "k4", RANK_NEW, false, 1, 0, "granted"});
}

Test(plan_waiting, no_request_passes_a_waiter_under_fifo)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 3, 0, "no_capacity a"},
           {OP_ACQUIRE, "k3", RANK_WAITER, WAITS, 1, 0, "no_capacity a<"},
           {OP_ACQUIRE, "k4", RANK_NEW, false, 1, 0, "no_capacity a<"});
}

Test(plan_waiting, only_new_requests_that_wait_block_others_under_fifo)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_NEW, false, 3, 0, "no_capacity a"},
           {OP_ACQUIRE, "k3", RANK_NEW, WAITS, 1, 0, "granted"},
           {OP_ACQUIRE, "k4", RANK_NEW, WAITS, 2, 0, "no_capacity a"},
           {OP_ACQUIRE, "k5", RANK_NEW, WAITS, 1, 0, "no_capacity a<"});
}

Test(plan_waiting, waiter_is_not_passed_on_any_of_its_semaphores_under_fifo)
{
    scene.semaphores[B].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 3, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 1, 1, "no_capacity a"},
           {OP_ACQUIRE, "k3", RANK_WAITER, WAITS, 0, 1, "no_capacity b<"},
           {OP_ACQUIRE, "k4", RANK_NEW, false, 1, 1, "no_capacity a b<"});
}

Test(plan_waiting, no_request_passes_an_aged_waiter_on_any_of_its_semaphores)
{
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 0, 1, "granted"}, {OP_RELEASE, "k1", 0, false, 0, 0, "ok"},
           {OP_ACQUIRE, "k3", RANK_AGED, WAITS, 1, 1, "no_capacity b"},
           {OP_ACQUIRE, "k4", RANK_WAITER, WAITS, 1, 0, "no_capacity a<"},
           {OP_ACQUIRE, "k5", RANK_NEW, false, 1, 1, "no_capacity a< b<"});
}

Test(plan_waiting, new_request_behind_an_absent_waiter_gets_no_new_grant)
{
    hold("k1", 0, 1, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_BEHIND, false, 1, 1, "no_capacity a< b<"},
           {OP_ACQUIRE, "k1", RANK_BEHIND, false, 0, 1, "replayed"},
           {OP_ACQUIRE, "k3", RANK_BEHIND, false, 2, 0, "never_satisfiable"},
           {OP_ACQUIRE, "k4", RANK_BEHIND, WAITS, 1, 0, "no_capacity a<"},
           {OP_ACQUIRE, "k5", RANK_NEW, false, 1, 0, "granted"});
}

Test(plan_waiting, waiter_behind_an_absent_waiter_is_not_passed_under_fifo)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    EXPECT({OP_ACQUIRE, "k2", RANK_BEHIND, WAITS, 1, 0, "no_capacity a<"},
           {OP_ACQUIRE, "k3", RANK_NEW, false, 1, 0, "no_capacity a<"});
}

Test(plan_waiting, waiter_for_a_paused_semaphore_blocks_none)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[B].paused_reason = BYTES("repair");
    EXPECT({OP_ACQUIRE, "k2", RANK_AGED, WAITS, 1, 1, "paused"}, {OP_ACQUIRE, "k3", RANK_NEW, false, 1, 0, "granted"});
}

Test(plan_waiting, waiter_for_a_closed_semaphore_blocks_none)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[B].capacity = 0;
    EXPECT({OP_ACQUIRE, "k2", RANK_AGED, WAITS, 1, 1, "no_capacity b"},
           {OP_ACQUIRE, "k3", RANK_NEW, false, 1, 0, "granted"});
}

Test(plan_waiting, unsatisfiable_waiter_blocks_none)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[B].retired_at = 1;
    EXPECT({OP_ACQUIRE, "k2", RANK_AGED, WAITS, 1, 1, "unknown_semaphore"},
           {OP_ACQUIRE, "k3", RANK_AGED, WAITS, 2, 0, "never_satisfiable"},
           {OP_ACQUIRE, "k4", RANK_NEW, false, 1, 0, "granted"});
}

Test(plan_waiting, waiter_ends_due_holders_before_a_new_request_does)
{
    hold("k1", 1, 0, 0, NOW);
    EXPECT({OP_ACQUIRE, "k3", RANK_NEW, false, 1, 0, "no_capacity a"},
           {OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 1, 0, "granted"});
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
}

Test(plan_waiting, due_holders_are_not_ended_for_a_request_that_is_refused)
{
    scene.semaphores[A].capacity = 2;
    scene.semaphores[A].queue = QUEUE_FIFO;
    hold("k1", 1, 0, 0, NOW);
    hold("k2", 0, 1, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k3", RANK_WAITER, WAITS, 1, 1, "no_capacity b"},
           {OP_ACQUIRE, "k4", RANK_WAITER, WAITS, 2, 0, "no_capacity a<"},
           {OP_ACQUIRE, "k5", RANK_BEHIND, WAITS, 2, 0, "no_capacity a<"});
    cr_expect(scene.plan.changes.empty);
}

Test(plan_waiting, due_holders_are_not_read_for_a_request_behind_a_waiter)
{
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = A + 1, .count = 1};
    struct operation acquire = {.kind = OP_ACQUIRE, .wants = &want, .want_count = 1, .queue_rank = RANK_WAITER};
    const struct operation *operations[] = {&acquire};
    struct shortfall shortfalls[SEMAPHORES];
    utc_us next_due[SEMAPHORES];
    hold("k1", 1, 0, 0, NOW);
    struct view view = scene_view(next_due);
    view.request_count = 0;
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 1);
    acquire.queue_rank = RANK_BEHIND;
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 0);
}

Test(plan_waiting, waiter_put_back_blocks_all_its_semaphores)
{
    hold("k1", 1, 0, 1, NOW);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 1, 1, "put_back"},
           {OP_ACQUIRE, "k3", RANK_WAITER, WAITS, 0, 1, "no_capacity b<"},
           {OP_ACQUIRE, "k4", RANK_NEW, false, 1, 0, "no_capacity a<"});
    cr_expect(scene.plan.changes.empty);
}

Test(plan_waiting, request_put_back_without_a_wait_is_passed)
{
    hold("k1", 1, 0, 1, NOW);
    EXPECT({OP_ACQUIRE, "k2", RANK_NEW, false, 1, 1, "put_back"}, {OP_ACQUIRE, "k3", RANK_NEW, false, 0, 1, "granted"});
}

Test(plan_waiting, waiter_behind_its_key_put_back_blocks_all_its_semaphores)
{
    hold("k1", 0, 0, 1, NEVER);
    EXPECT({OP_RELEASE, "k1", 0, false, 0, 0, "put_back"}, {OP_ACQUIRE, "k1", RANK_WAITER, WAITS, 1, 0, "put_back"},
           {OP_ACQUIRE, "k2", RANK_NEW, false, 1, 0, "no_capacity a<"});
}

Test(plan_waiting, replay_is_answered_even_if_units_are_reserved)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", RANK_WAITER, WAITS, 2, 0, "no_capacity a"},
           {OP_ACQUIRE, "k1", RANK_WAITER, WAITS, 1, 0, "replayed"},
           {OP_ACQUIRE, "k1", RANK_NEW, false, 1, 0, "replayed"});
}

Test(plan_waiting, release_of_a_waiting_key_writes_a_tombstone_and_ends_the_waiter)
{
    EXPECT({OP_RELEASE, "k1", 0, false, 0, 0, "ok"}, {OP_ACQUIRE, "k1", RANK_WAITER, WAITS, 1, 0, "ended"});
    cr_expect_eq(scene.plan.ended[END_NEVER_HELD], 1);
}

/* ---- refusals that allow a wait ---- */

static bool may_wait(int64_t a)
{
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = A + 1, .count = a};
    struct operation acquire = {.kind = OP_ACQUIRE,
                                .external_id = BYTES("k9"),
                                .owner = BYTES(""),
                                .principal = BYTES(""),
                                .wants = &want,
                                .want_count = 1};
    const struct operation *operations[] = {&acquire};
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1};
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    cr_assert_eq(plan_batch(&view, operations, 1, (struct id_range){1, 2}, &settings, &scene.arena, &scene.plan),
                 PERMIT_OK);
    return scene.plan.outcomes[0].may_wait;
}

Test(plan_waiting, request_may_wait_for_free_units)
{
    hold("k1", 1, 0, 0, NEVER);
    cr_expect(may_wait(1));
}

Test(plan_waiting, request_may_wait_for_a_closed_semaphore)
{
    scene.semaphores[A].capacity = 0;
    cr_expect(may_wait(7));
}

Test(plan_waiting, request_may_wait_for_a_paused_semaphore)
{
    scene.semaphores[A].paused_reason = BYTES("repair");
    cr_expect(may_wait(1));
}

Test(plan_waiting, request_may_wait_for_the_end_of_a_failover_hold)
{
    scene.grants_from = NOW + 1;
    cr_expect(may_wait(1));
    cr_expect_eq(scene.plan.outcomes[0].status, PERMIT_BUSY);
}

Test(plan_waiting, granted_and_unsatisfiable_requests_do_not_wait)
{
    cr_expect_not(may_wait(1));
    cr_expect_not(may_wait(2));
    scene.semaphores[A].retired_at = 1;
    cr_expect_not(may_wait(1));
    hold("k9", 1, 0, 0, NEVER);
    cr_expect_not(may_wait(1));
}
