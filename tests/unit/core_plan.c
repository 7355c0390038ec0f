/* SPDX-License-Identifier: MIT */
/*
 * Properties of a plan that plan_model cannot see: the memory it points into, and the queue, one small batch a test.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/buf.h"
#include "wait_mode.h"

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
    struct view view = {.clock = {.due = 1, .from = 1},
                        .semaphores = &semaphore,
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

/* ---- the queue ---- */

enum { A, B, C, SEMAPHORES, LINES_MAX = 8, ROWS_MAX = 80 };
enum { HERE = 1, ELSEWHERE = 2, DEAD = 3, KEPT = 0, FIRST_ID = 11, NEW_ID = 1000 };
#define NOW (1000 * US_PER_SECOND)

/*
 * The rows of one batch: semaphores a and b, which are locked, and c, which is not, and was read plainly. By default
 * counted, backfill, capacity 1 and free; a test sets the differences. Servers 1 (this one) and 2 are alive, and 3 is dead.
 */
struct scene {
    struct semaphore semaphores[SEMAPHORES];
    struct request rows[ROWS_MAX];
    struct permit permits[ROWS_MAX][SEMAPHORES];
    struct want wants[ROWS_MAX][SEMAPHORES];
    size_t row_count;
    struct subscriber subscribers[ROWS_MAX];
    size_t subscriber_count;
    struct request sorted[ROWS_MAX];
    struct queue_view queues[SEMAPHORES];
    bool no_queues; /* no queue was read */
    bool unknown;   /* c was not read */
    bool reads_end; /* and will not be */
    struct glimpse glimpse;
    struct owner_state owner;
    utc_us grants_from;
    struct plan_settings settings;
    struct arena arena;
    struct plan plan;
};

static struct scene scene;

static void scene_init(void)
{
    static const char names[] = "abc";
    memset(&scene, 0, sizeof scene);
    arena_init(&scene.arena, 4096, 4 << 20);
    scene.settings = (struct plan_settings){.retention_us = 1,
                                            .tombstone_us = 1,
                                            .default_ttl_ms = 1,
                                            .backfill_bound_us = 30 * US_PER_SECOND,
                                            .max_semaphore_waiters = 100,
                                            .server_id = HERE};
    for (unsigned i = 0; i < SEMAPHORES; i++)
        scene.queues[i].limit = QUEUE_PROTECTED_MAX; /* all waiters were read */
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
                                                 .max_waiters = SETTING_NONE,
                                                 .max_priority = 9,
                                                 .priority_step_ms = PRIORITY_STEP_MS,
                                                 .retired_at = NEVER,
                                                 .next_due_at = NEVER};
}

static void scene_release(void)
{
    arena_release(&scene.arena);
}

TestSuite(plan_waiting, .init = scene_init, .fini = scene_release);
TestSuite(plan_limits, .init = scene_init, .fini = scene_release);
TestSuite(plan_scope, .init = scene_init, .fini = scene_release);
TestSuite(plan_queue, .init = scene_init, .fini = scene_release);

/* A client waits for the key at this server. */
static void subscribe(const char *key)
{
    scene.subscribers[scene.subscriber_count++] =
        (struct subscriber){.external_id = bytes_of(key), .nonce = BYTES(""), .subscribed = true};
}

/* Adds a holder with id FIRST_ID + number of rows before it. */
static struct request *hold(const char *key, int64_t a, int64_t b, int64_t c, utc_us due_at)
{
    const int64_t counts[SEMAPHORES] = {a, b, c};
    struct request *holder = &scene.rows[scene.row_count];
    struct permit *permits = scene.permits[scene.row_count++];
    *holder = (struct request){.id = FIRST_ID + scene.row_count - 1,
                               .external_id = bytes_of(key),
                               .state = REQUEST_ACQUIRED,
                               .has_digest = true,
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
    return holder;
}

/* Adds a request that waits at a server since one second, with its place in seconds before now. */
static struct request *waiter(const char *key, uint64_t server_id, int64_t seconds, int64_t a, int64_t b, int64_t c)
{
    const int64_t counts[SEMAPHORES] = {a, b, c};
    struct request *request = &scene.rows[scene.row_count];
    struct want *wants = scene.wants[scene.row_count++];
    *request = (struct request){.id = FIRST_ID + scene.row_count - 1,
                                .external_id = bytes_of(key),
                                .owner = BYTES(""),
                                .nonce = BYTES(""),
                                .state = REQUEST_WAITING,
                                .has_digest = true,
                                .ttl_ms = TTL_NONE,
                                .server_id = server_id,
                                .place = NOW - seconds * US_PER_SECOND,
                                .waiting_since = NOW - US_PER_SECOND,
                                .waiting_until = NOW + 5 * US_PER_SECOND,
                                .due_at = NOW + (server_id ? 15 : 5) * US_PER_SECOND,
                                .wants = wants,
                                .confirmed_at = NEVER,
                                .acquired_at = NEVER,
                                .ended_at = NEVER};
    for (unsigned i = 0; i < SEMAPHORES; i++) {
        if (counts[i])
            wants[request->want_count++] = (struct want){.semaphore_id = i + 1, .count = counts[i]};
        scene.semaphores[i].waiting += counts[i] && server_id;
    }
    request->wanted = wants_encode((struct ttl){0}, wants, request->want_count, &scene.arena);
    if (server_id == HERE)
        subscribe(key);
    return request;
}

/* The same of one whose client has left this server: its row says so later. */
static void waiter_left(const char *key, uint64_t server_id, int64_t seconds, int64_t a, int64_t b, int64_t c)
{
    (void)waiter(key, server_id, seconds, a, b, c);
    scene.subscriber_count--;
}

/* The same of one that is protected: it waits since a minute. */
static struct request *old_waiter(const char *key, uint64_t server_id, int64_t seconds, int64_t a, int64_t b, int64_t c)
{
    struct request *request = waiter(key, server_id, seconds, a, b, c);
    request->waiting_since = NOW - 60 * US_PER_SECOND;
    return request;
}

/* An operation, in order of arrival, and its expected outcome: see outcome_print. */
struct line {
    enum operation_kind kind;
    const char *key;
    enum wait_mode wait;
    int64_t a, b;
    const char *expected;
    int priority;
    bool entered; /* with a place 100 s ago, since 50 s ago */
    unsigned widened;
    bool other; /* other content under the same key */
    uint64_t mailed;
    enum end_reason expire_as;
    const struct scope *scope;
    const char *detail; /* expected; NULL: any */
    struct ttl ttl;
};

/*
 * Prints "granted", "replayed" or "put_back" with the semaphores to lock; else the status, followed by each shortage, with
 * < if other requests are before it, "waits", and max_ttl and max_hold, if the answer has them. NULL: the batch is to be
 * planned again.
 */
static void outcome_print(const struct outcome *outcome, struct buf *out)
{
    buf_clear(out);
    if (!outcome) {
        buf_append_text(out, "reads more");
        return;
    }
    if (outcome->put_back || outcome->created || outcome->replayed)
        buf_append_text(out, outcome->put_back ? "put_back" : outcome->created ? "granted" : "replayed");
    else
        buf_append_text(out, permit_status_word(outcome->status));
    for (size_t i = 0; i < outcome->shortage_count; i++)
        buf_printf(out, " %.*s%s", (int)outcome->shortages[i].semaphore.length, outcome->shortages[i].semaphore.data,
                   outcome->shortages[i].behind ? "<" : "");
    for (size_t i = 0; outcome->put_back && i < outcome->need_count; i++)
        buf_printf(out, "%s%c", i ? "" : " ", "?abc"[outcome->needs[i]]);
    buf_append_text(out, outcome->waits ? " waits" : "");
    if (outcome->max_ttl_ms)
        buf_printf(out, " max_ttl %lld", (long long)outcome->max_ttl_ms);
    if (outcome->max_hold_ms)
        buf_printf(out, " max_hold %lld", (long long)outcome->max_hold_ms);
}

static int compare_keys(const void *a, const void *b)
{
    return bytes_compare(((const struct request *)a)->external_id, ((const struct request *)b)->external_id);
}

static struct view scene_view(utc_us *next_due)
{
    static struct free_slots no_slots[SEMAPHORES];
    static struct named_slots unnamed[SEMAPHORES];
    static const uint64_t servers[] = {HERE, ELSEWHERE};
    for (unsigned i = 0; i < SEMAPHORES; i++)
        next_due[i] = scene.semaphores[i].next_due_at;
    memcpy(scene.sorted, scene.rows, sizeof scene.sorted);
    qsort(scene.sorted, scene.row_count, sizeof *scene.sorted, compare_keys);
    scene.glimpse.semaphore = scene.semaphores[C];
    return (struct view){.semaphores = scene.semaphores,
                         .free_slots = no_slots,
                         .named_slots = unnamed,
                         .next_due = next_due,
                         .semaphore_count = C,
                         .requests = scene.sorted,
                         .request_count = scene.row_count,
                         .owners = &scene.owner,
                         .owner_count = scene.owner.name.length > 0,
                         .queues = scene.no_queues ? NULL : scene.queues,
                         .glimpses = &scene.glimpse,
                         .glimpse_count = !scene.unknown,
                         .reads_end = scene.reads_end,
                         .servers = servers,
                         .server_count = 2,
                         .subscribers = scene.subscribers,
                         .subscriber_count = scene.subscriber_count,
                         .has_servers = true,
                         .clock = {.tick_at = NOW, .due = NOW, .from = NOW},
                         .now = NOW,
                         .grants_from = scene.grants_from};
}

static void make_operation(const struct line *line, struct want *wants, struct operation *operation)
{
    *operation = (struct operation){.kind = line->kind,
                                    .external_id = bytes_of(line->key),
                                    .owner = BYTES(""),
                                    .principal = BYTES("who"),
                                    .nonce = BYTES(""),
                                    .why = BYTES("why"),
                                    .digest = {line->other},
                                    .wants = wants,
                                    .priority = line->priority,
                                    .widened = line->widened,
                                    .place = line->entered ? NOW - 100 * US_PER_SECOND : 0,
                                    .since = line->entered ? NOW - 50 * US_PER_SECOND : 0,
                                    .mailed = line->mailed,
                                    .expire_as = line->expire_as,
                                    .scope = line->scope,
                                    .ttl = line->ttl};
    operation_set_wait(operation, line->wait, 20 * US_PER_SECOND, line->entered);
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
    struct buf got;
    buf_init(&got, 1000);
    for (size_t i = 0; i < count; i++) {
        make_operation(&lines[i], wants[i], &operations[i]);
        pointers[i] = &operations[i];
    }
    cr_assert_eq(plan_batch(&view, pointers, count, (struct id_range){NEW_ID, NEW_ID + 100}, &scene.settings,
                            &scene.arena, &scene.plan),
                 PERMIT_OK);
    for (size_t i = 0; i < count; i++) {
        outcome_print(plan_reads_more(&scene.plan) ? NULL : &scene.plan.outcomes[i], &got);
        cr_expect_str_eq(buf_text(&got), lines[i].expected, "%s: expected %s, got %s", lines[i].key, lines[i].expected,
                         buf_text(&got));
        const char *detail = scene.plan.outcomes[i].detail;
        if (lines[i].detail)
            cr_expect_str_eq(detail ? detail : "", lines[i].detail, "%s", lines[i].key);
    }
    buf_release(&got);
}

#define EXPECT(...)                                                                                                    \
    do {                                                                                                               \
        static const struct line lines[] = {__VA_ARGS__};                                                              \
        expect(lines, ARRAY_LENGTH(lines));                                                                            \
    } while (0)

/*
 * Prints what is written and who is told, in words with a space between them:
 *
 *   +k1:WAITING@1   inserted, with its state, and its server if it has one
 *   k1:ACQUIRED     changed; !k1:ACQUIRED: it is granted; -k1: deleted
 *   +a/11 -a/11     places by request id
 *   2/11            mail to server 2 about request 11; -1/11: deleted
 *   call/11         a call
 *   told/k1         a grant to a client of this process that no operation names
 */
static void changes_print(struct buf *out)
{
    const struct changes *changes = &scene.plan.changes;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        const struct request *request = change->request;
        const char *mark = change->insert ? "+" : change->remove ? "-" : change->grants ? "!" : "";
        buf_printf(out, " %s%.*s", mark, (int)request->external_id.length, request->external_id.data);
        if (change->remove)
            continue;
        buf_printf(out, ":%s", request_state_word(request->state));
        if (request->server_id)
            buf_printf(out, "@%llu", (unsigned long long)request->server_id);
    }
    for (size_t i = 0; i < changes->place_count; i++) {
        const struct place_change *place = &changes->places[i];
        buf_printf(out, " %c%c/%llu", place->remove ? '-' : '+', "?abc"[place->semaphore_id],
                   (unsigned long long)place -> request_id);
    }
    for (size_t i = 0; i < changes->mail_count; i++)
        buf_printf(out, " %s%llu/%llu", changes->mail[i].remove ? "-" : "",
                   (unsigned long long)changes->mail[i].server_id, (unsigned long long)changes->mail[i].request_id);
    for (size_t i = 0; i < scene.plan.call_count; i++)
        buf_printf(out, " call/%llu", (unsigned long long)scene.plan.calls[i]);
    for (size_t i = 0; i < scene.plan.notice_count; i++) {
        const struct notice *notice = &scene.plan.notices[i];
        cr_expect(notice->outcome.created && bytes_equal(notice->outcome.request->external_id, notice->external_id));
        if (notice->unasked)
            buf_printf(out, " told/%.*s", (int)notice->external_id.length, notice->external_id.data);
    }
}

static void expect_changes(const char *expected)
{
    struct buf got;
    buf_init(&got, 4000);
    changes_print(&got);
    const char *text = buf_text(&got);
    cr_expect_str_eq(text[0] == ' ' ? text + 1 : text, expected, "expected %s, got%s", expected, text);
    cr_expect_eq(scene.plan.changes.empty, expected[0] == 0 || strncmp(expected, "call", 4) == 0);
    buf_release(&got);
}

/* Returns the row of this semaphore after the batch. */
static const struct semaphore *after(unsigned semaphore)
{
    return scene.plan.changes.semaphores[semaphore].semaphore;
}

/* Returns the written row of this key; NULL: it is not written. */
static const struct request *written(const char *key)
{
    for (size_t i = 0; i < scene.plan.changes.request_count; i++) {
        const struct request_change *change = &scene.plan.changes.requests[i];
        if (!change->remove && bytes_equal(change->request->external_id, bytes_of(key)))
            return change->request;
    }
    return NULL;
}

/* ---- who comes first ---- */

Test(plan_waiting, waiters_are_granted_before_new_requests_in_the_order_of_their_places)
{
    scene.semaphores[A].capacity = 3;
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    waiter("k4", HERE, 3, 1, 0, 0);
    waiter("k3", ELSEWHERE, 2, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("!k2:ACQUIRED@2 !k4:ACQUIRED !k3:ACQUIRED@2 -a/12 -a/13 -a/11 2/11 2/13 told/k4");
    cr_expect_eq(written("k4")->permits[0].token, 1);
    cr_expect_eq(written("k3")->permits[0].token, 2);
    cr_expect_eq(written("k2")->permits[0].token, 3);
    cr_expect_eq(after(A)->waiting, 0);
    cr_expect_eq(after(A)->in_use, 3);
    cr_expect_eq(after(A)->version, 1);
}

/*
 * P19: a failover has undone the creation of b, which this permitd knows by that id, and another permitd has created it
 * again as a. A wait under the lost id would end as unknown_semaphore (seed 820 of the simulation).
 */
Test(plan_waiting, ask_by_an_undone_id_is_resolved_again)
{
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 0, 1, .expected = "unknown_semaphore"});
    expect_changes("");
}

Test(plan_waiting, waiters_with_equal_places_are_granted_in_the_order_of_their_ids)
{
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    waiter("k1", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("!k2:ACQUIRED@2 -a/11 2/11");
}

Test(plan_waiting, released_units_are_granted_to_a_waiter_of_another_server_in_the_same_batch)
{
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"},
           {OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"});
    expect_changes("+k3:WAITING@1 k1:RELEASED !k2:ACQUIRED@2 -a/12 +a/1000 2/12");
    cr_expect_eq(after(A)->waiting, 1);
}

Test(plan_waiting, fitting_request_passes_a_waiter_under_backfill)
{
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 3, 0, 0);
    waiter("k3", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k4:ACQUIRED !k3:ACQUIRED@2 -a/13 2/13");
}

Test(plan_waiting, no_request_passes_a_waiter_under_fifo)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 3, 0, 0);
    waiter("k3", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("");
}

Test(plan_waiting, only_new_requests_that_wait_block_others_under_fifo)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 3, 0, .expected = "no_capacity a"},
           {OP_ACQUIRE, "k3", WAIT_ASK, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k4", WAIT_ASK, 2, 0, .expected = "no_capacity a waits"},
           {OP_ACQUIRE, "k5", WAIT_ASK, 1, 0, .expected = "no_capacity a< waits"},
           {OP_ACQUIRE, "k6", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    cr_expect_eq(after(A)->waiting, 2);
}

Test(plan_waiting, waiter_is_not_passed_on_any_of_its_semaphores_under_fifo)
{
    scene.semaphores[B].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 3;
    hold("k1", 3, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 1, 1, 0);
    waiter("k3", HERE, 1, 0, 1, 0);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 1, .expected = "no_capacity a b<"},
           {OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "no_capacity b<"});
    expect_changes("");
}

/* Trace "fifo: w (S1, S2) heads S2's queue": who leaves a queue is a reason to grant. */
Test(plan_waiting, waiter_behind_a_head_whose_wait_ends_is_granted_in_that_batch)
{
    scene.semaphores[B].queue = QUEUE_FIFO;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", HERE, 2, 1, 1, 0);
    waiter("k3", ELSEWHERE, 1, 0, 1, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 1, .expected = "no_capacity a", .entered = true});
    expect_changes("k2:WAITING !k3:ACQUIRED@2 -b/13 2/13");
    cr_expect_eq(written("k2")->due_at, NOW + PLACE_KEPT_US);
    cr_expect_eq(after(A)->waiting, 0);
    cr_expect_eq(after(B)->waiting, 0);
}

/* P20: the place is that of the client that still waits here, and k3 is behind it. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_the_client_that_waits)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", HERE, 2, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 2, 0, .expected = "no_capacity a"},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("");
}

/* Its waiter is in a batch that runs in parts: it asks in another part. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_a_waiter_that_asks_later)
{
    hold("k1", 1, 0, 0, NEVER);
    (void)waiter("k2", HERE, 2, 1, 0, 0);
    scene.subscribers[0].busy = true;
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a"});
    expect_changes("");
}

/* P20: the row names an earlier id of this server, which is dead, or this server has no id yet. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_a_waiter_that_is_not_entered_again_yet)
{
    hold("k1", 1, 0, 0, NEVER);
    (void)waiter("k2", DEAD, 2, 1, 0, 0);
    subscribe("k2");
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a"});
    expect_changes("");
    scene.settings.server_id = 0;
    scene.rows[scene.row_count - 1].server_id = ELSEWHERE;
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a"});
    expect_changes("");
}

Test(plan_waiting, copy_that_can_never_be_granted_leaves_the_place_to_the_client_that_waits)
{
    waiter("k2", HERE, 2, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 2, 0, .expected = "never_satisfiable"});
    cr_expect_eq(written("k2")->server_id, HERE);
    cr_expect_eq(after(A)->waiting, 1);
}

Test(plan_waiting, last_decisions_of_a_waiter_and_its_copy_end_the_wait)
{
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", HERE, 2, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a", .entered = true},
           {OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a"});
    expect_changes("k2:WAITING");
    cr_expect_eq(after(A)->waiting, 0);
}

/* The key has moved to the other server, and the place is that server's to give up. */
Test(plan_waiting, waiter_whose_place_another_server_has_given_up_is_told)
{
    waiter("k2", KEPT, 2, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "outcome_unknown", .entered = true},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k3:ACQUIRED");
    cr_expect_str_eq(scene.plan.outcomes[0].detail,
                     "the key was asked for again at another server, and its wait has ended there");
}

/* P22: else another permitd grants it after this refusal. A client that still waits there is told that it has moved. */
Test(plan_waiting, last_decision_ends_the_wait_at_another_server_too)
{
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_LAST, 1, 0, .expected = "no_capacity a"});
    expect_changes("k2:WAITING 2/12");
    cr_expect_eq(written("k2")->server_id, 0);
    cr_expect_eq(after(A)->waiting, 0);
}

Test(plan_waiting, waiter_behind_a_head_that_is_released_or_removed_is_granted_in_that_batch)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 3, 2, 0, 0);
    waiter("k3", DEAD, 2, 2, 0, 0);
    waiter("k4", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_RELEASE, "k2", 0, 0, 0, .expected = "ok"},
           {OP_EXPIRE, "k3", .expected = "ok", .expire_as = END_NEVER_HELD});
    expect_changes("k2:RELEASED -k3 !k4:ACQUIRED@2 -a/12 -a/13 -a/14 2/12 2/14");
}

Test(plan_waiting, aged_waiter_reserves_on_all_its_semaphores)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 0, 1, 0, NEVER);
    waiter("k3", ELSEWHERE, 1, 1, 1, 0)->waiting_since = NOW - 30 * US_PER_SECOND;
    waiter("k4", ELSEWHERE, 0, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k5", WAIT_NO, 1, 1, .expected = "no_capacity a< b<"});
    expect_changes("!k4:ACQUIRED@2 -a/13 2/13");
}

Test(plan_waiting, waiter_that_is_not_aged_yet_is_passed)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 0, 1, 0, NEVER);
    waiter("k3", ELSEWHERE, 1, 1, 1, 0)->waiting_since = NOW - 30 * US_PER_SECOND + 1;
    EXPECT({OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "granted"});
}

/* P20: one number orders all, fixed at entry, so that whoever has waited long enough stands first. */
Test(plan_waiting, priority_counts_as_waiting_time)
{
    hold("k0", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .priority = 9});
    cr_expect_eq(written("k1")->place, NOW - 9 * PRIORITY_STEP_MS * US_PER_MS);
    cr_expect_eq(written("k1")->waiting_since, NOW);
    cr_expect_eq(written("k1")->waiting_until, NOW + 20 * US_PER_SECOND);
    cr_expect_eq(written("k1")->due_at, NOW + 20 * US_PER_SECOND + PLACE_KEPT_US);
    cr_expect_eq(written("k1")->priority, 9);
    cr_expect_not_null(written("k1")->wanted.data);
}

Test(plan_waiting, waiter_of_high_priority_is_granted_first_and_never_passes_one_that_waited_for_longer)
{
    waiter("k1", ELSEWHERE, 60, 1, 0, 0);         /* priority 0, waits since 60 s */
    waiter("k2", ELSEWHERE, 1 + 9 * 30, 1, 0, 0); /* priority 9, since 1 s */
    waiter("k3", ELSEWHERE, 9 * 30 + 2, 1, 0, 0); /* priority 0, since 272 s */
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("!k3:ACQUIRED@2 -a/13 2/13");
}

Test(plan_waiting, priority_above_the_limit_of_a_semaphore_is_refused_even_if_it_fits)
{
    scene.semaphores[B].max_priority = 4;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 1, .expected = "invalid", .priority = 5},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 1, .expected = "granted", .priority = 4});
    cr_expect_str_eq(scene.plan.outcomes[0].detail, "b: priority is at most 4");
}

/* ---- waiters that are in nobody's way ---- */

Test(plan_waiting, waiter_for_a_paused_closed_or_retired_semaphore_blocks_none)
{
    for (int i = 0; i < 3; i++) {
        scene_release();
        scene_init();
        scene.semaphores[A].queue = QUEUE_FIFO;
        if (i == 0)
            scene.semaphores[B].paused_reason = BYTES("repair");
        scene.semaphores[B].capacity = i == 1 ? 0 : 1;
        scene.semaphores[B].retired_at = i == 2 ? 1 : NEVER;
        waiter("k2", ELSEWHERE, 90, 1, 1, 0)->waiting_since = 0;
        EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"});
        expect_changes("+k3:ACQUIRED");
    }
}

/* Each permitd ends its own waiters that a change of the semaphore concerns. */
Test(plan_waiting, unsatisfiable_waiter_blocks_none_and_is_ended_by_its_own_server)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    waiter("k2", ELSEWHERE, 3, 2, 0, 0);
    waiter("k3", HERE, 2, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_ASK, 2, 0, .expected = "never_satisfiable", .entered = true},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k4:ACQUIRED k3:WAITING");
    cr_expect_not(scene.plan.outcomes[0].may_wait);
}

Test(plan_waiting, shrink_pause_and_retire_change_the_semaphore_only)
{
    static const struct semaphore_change change = {.has_capacity = true, .capacity = 0};
    struct operation put = {.kind = OP_SEMAPHORE_PUT, .semaphore = BYTES("a"), .change = &change};
    const struct operation *operations[] = {&put};
    utc_us next_due[SEMAPHORES];
    waiter("k2", HERE, 2, 1, 0, 0);
    struct view view = scene_view(next_due);
    cr_assert_eq(plan_batch(&view, operations, 1, (struct id_range){1, 2}, &scene.settings, &scene.arena, &scene.plan),
                 PERMIT_OK);
    cr_expect_eq(scene.plan.changes.request_count, 0);
    cr_expect_eq(scene.plan.changes.place_count, 0);
    cr_expect_eq(after(A)->waiting, 1);
}

Test(plan_waiting, place_that_is_not_asked_for_blocks_no_others)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", KEPT, 9, 2, 0, 0);
    waiter("k3", DEAD, 8, 1, 0, 0);
    waiter_left("k4", HERE, 7, 1, 0, 0); /* its client has left, and that is on its way */
    EXPECT({OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k5:ACQUIRED");
}

/* Its client has left; a copy of the key that does not wait asks for it in this batch only. */
Test(plan_waiting, ask_without_a_wait_does_not_block_those_behind_it)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    waiter_left("k2", HERE, 9, 2, 0, 0);
    waiter("k3", ELSEWHERE, 8, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 2, 0, .expected = "no_capacity a"});
    expect_changes("!k3:ACQUIRED@2 -a/13 2/13");
}

Test(plan_waiting, nothing_is_granted_before_the_end_of_a_failover_hold)
{
    scene.grants_from = NOW + 1;
    waiter("k1", ELSEWHERE, 2, 1, 0, 0);
    waiter("k2", HERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "busy waits"},
           {OP_ACQUIRE, "k3", WAIT_ASK, 1, 0, .expected = "busy waits"});
    expect_changes("+k3:WAITING@1 k2:WAITING@1 +a/1000");
}

/* ---- due holders ---- */

Test(plan_waiting, waiter_ends_due_holders_before_a_new_request_does)
{
    hold("k1", 1, 0, 0, NOW);
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("k1:RELEASED !k2:ACQUIRED@2 -a/12 2/12");
    cr_expect_eq(scene.plan.ended[END_EXPIRED], 1);
}

Test(plan_waiting, due_holders_are_not_ended_for_a_request_that_is_refused)
{
    scene.semaphores[A].capacity = 2;
    scene.semaphores[A].queue = QUEUE_FIFO;
    hold("k1", 1, 0, 0, NOW);
    hold("k2", 0, 1, 0, NEVER);
    waiter("k3", HERE, 2, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 1, .expected = "no_capacity b"},
           {OP_ACQUIRE, "k4", WAIT_NO, 2, 0, .expected = "no_capacity a<"});
    expect_changes("");
}

Test(plan_waiting, waiter_put_back_keeps_its_units_until_it_has_its_locks)
{
    hold("k1", 1, 0, 1, NOW);
    waiter("k2", HERE, 1, 1, 1, 0)->waiting_until = NOW + 20 * US_PER_SECOND;
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 1, .expected = "put_back ab waits"},
           {OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "put_back ab"},
           {OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "no_capacity a<", .widened = WIDENED_MAX});
    expect_changes("");
    cr_expect_eq(scene.plan.outcomes[0].need_count, 2);
    cr_assert_eq(scene.plan.overdue_count, 1);
    cr_expect(bytes_equal(scene.plan.overdue[0]->external_id, BYTES("k1")));
}

/* However many acquires need its end, and however many semaphores they and it have together. */
Test(plan_waiting, due_holder_that_several_acquires_need_is_overdue_once)
{
    hold("k1", 1, 0, 1, NOW);
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "put_back a"},
           {OP_ACQUIRE, "k3", WAIT_ASK, 1, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k4", WAIT_NO, 0, 1, .expected = "put_back ab"});
    cr_expect_eq(scene.plan.overdue_count, 1);
    expect_changes("");
}

/* It has the place then, so it may not be answered later that nothing was done (P22). */
Test(plan_waiting, ask_for_a_kept_place_that_is_put_back_waits)
{
    hold("k1", 1, 0, 1, NOW);
    waiter("k2", KEPT, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "put_back a waits"});
    expect_changes("k2:WAITING@1");
    cr_assert(scene.plan.outcomes[0].request); /* its engine parks it if it may not be put back again */
    cr_expect_eq(scene.plan.outcomes[0].request->server_id, HERE);
}

/* P23: the batch would have to wait for the row, and others for the batch. */
Test(plan_waiting, due_holder_whose_row_another_session_has_locked_is_passed_over)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NOW - 1)->locked_elsewhere = true;
    hold("k2", 1, 0, 0, NOW);
    EXPECT({OP_EXPIRE, "k1", .expected = "busy", .expire_as = END_EXPIRED},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("+k3:ACQUIRED k2:RELEASED");
    cr_expect(scene.plan.changes.requests[1].for_others);
}

Test(plan_waiting, row_that_another_session_has_locked_is_ended_for_its_client)
{
    hold("k1", 1, 0, 0, NOW)->locked_elsewhere = true;
    EXPECT({OP_RELEASE, "k1", .expected = "ok"}, {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k2:ACQUIRED k1:RELEASED");
    cr_expect_not(scene.plan.changes.requests[1].for_others);
}

Test(plan_waiting, kept_place_whose_row_another_session_has_locked_is_not_removed)
{
    waiter("k1", KEPT, 1, 1, 0, 0)->due_at = NOW;
    scene.rows[0].locked_elsewhere = true;
    EXPECT({OP_EXPIRE, "k1", .expected = "busy", .expire_as = END_EXPIRED});
    expect_changes("");
    scene.rows[0].locked_elsewhere = false;
    EXPECT({OP_EXPIRE, "k1", .expected = "ok", .expire_as = END_EXPIRED});
    cr_assert_eq(scene.plan.changes.request_count, 1);
    cr_expect(scene.plan.changes.requests[0].remove && scene.plan.changes.requests[0].for_others);
}

/* The due holder also holds c, which is not locked. */
Test(plan_waiting, waiter_that_needs_the_end_of_a_due_holder_keeps_its_units_and_is_called)
{
    hold("k1", 1, 0, 1, NOW);
    waiter("k2", ELSEWHERE, 2, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "put_back ab"});
    expect_changes("2/12");
    cr_expect_eq(scene.plan.overdue_count, 1);
}

Test(plan_waiting, request_behind_one_that_is_put_back_is_put_back_too)
{
    hold("k1", 1, 0, 1, NOW);
    scene.semaphores[B].capacity = 2;
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "granted"},
           {OP_ACQUIRE, "k4", WAIT_NO, 0, 1, .expected = "put_back ab"});
}

/* The key of k1 is held until its release is decided, so its acquire is a repetition and keeps nothing. */
Test(plan_waiting, repetition_behind_its_key_put_back_keeps_nothing)
{
    hold("k1", 0, 0, 1, NEVER);
    EXPECT({OP_RELEASE, "k1", 0, 0, 0, .expected = "put_back c"},
           {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "put_back ac"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
}

Test(plan_waiting, replay_is_answered_even_if_units_are_reserved)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 1, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "replayed"},
           {OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "replayed"});
}

/* ---- limits ---- */

#define TTL_OF(duration_ms)                                                                                            \
    {                                                                                                                  \
        .kind = TTL_DURATION, .ms = (duration_ms)                                                                      \
    }

Test(plan_limits, refusal_of_a_ttl_has_the_smallest_max_ttl_of_all_semaphores)
{
    scene.semaphores[A].max_ttl_ms = 5000;
    scene.semaphores[B].max_ttl_ms = 3000;
    hold("h", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 1, .expected = "invalid max_ttl 3000", .ttl = TTL_OF(3001)},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "invalid max_ttl 5000", .ttl = {.kind = TTL_UNLIMITED}},
           {OP_RENEW, "h", 0, 0, 0, .expected = "invalid max_ttl 5000", .ttl = TTL_OF(5001)},
           {OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "granted", .ttl = TTL_OF(3000)});
}

Test(plan_limits, refusal_for_another_reason_has_no_max_ttl)
{
    scene.semaphores[A].max_ttl_ms = scene.semaphores[B].max_ttl_ms = 3000;
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 2, .expected = "never_satisfiable", .ttl = TTL_OF(3001)},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "invalid", .ttl = TTL_OF(3001), .priority = 10},
           {OP_ACQUIRE, "k3", WAIT_NO, 2, 0, .expected = "never_satisfiable"});
}

Test(plan_limits, waiter_that_a_smaller_max_ttl_ends_is_told_it)
{
    hold("h", 1, 0, 0, NEVER);
    waiter("k1", HERE, 3, 1, 0, 0);
    scene.semaphores[A].max_ttl_ms = 3000;
    EXPECT(
        {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "invalid max_ttl 3000", .ttl = TTL_OF(3001), .entered = true});
}

Test(plan_limits, refusal_of_a_used_key_has_the_max_ttl_if_the_ttl_is_over_it)
{
    hold("held", 1, 0, 0, NEVER);
    waiter("waits", ELSEWHERE, 3, 1, 0, 0);
    scene.semaphores[A].max_ttl_ms = 3000;
#define REUSED(key, expected_text, ...)                                                                                \
    {OP_ACQUIRE, key, WAIT_NO, 1, 0, .expected = expected_text, .other = true, .ttl = __VA_ARGS__}
    EXPECT(REUSED("held", "key_reused max_ttl 3000", TTL_OF(3001)), REUSED("held", "key_reused", TTL_OF(3000)),
           REUSED("held", "key_reused", {.kind = TTL_ABSENT}), REUSED("waits", "key_reused max_ttl 3000", TTL_OF(3001)),
           REUSED("waits", "key_reused", TTL_OF(3000)));
#undef REUSED
}

Test(plan_limits, hold_without_a_ttl_has_the_smallest_max_hold)
{
    scene.semaphores[A].max_hold_ms = 9000;
    scene.semaphores[B].max_hold_ms = 7000;
    hold("h", 1, 0, 0, NEVER);
    EXPECT({OP_RENEW, "h", 0, 0, 0, .expected = "ok"},
           {OP_RENEW, "h", 0, 0, 0, .expected = "ok max_hold 9000", .ttl = {.kind = TTL_UNLIMITED}},
           {OP_ACQUIRE, "h", WAIT_NO, 1, 0, .expected = "replayed max_hold 9000"},
           {OP_RENEW, "h", 0, 0, 0, .expected = "ok max_hold 9000"}, {OP_CONFIRM, "h", 0, 0, 0, .expected = "ok"},
           {OP_ACQUIRE, "k", WAIT_NO, 0, 1, .expected = "granted max_hold 7000", .ttl = {.kind = TTL_UNLIMITED}},
           {OP_RELEASE, "k", 0, 0, 0, .expected = "ok"});
}

/* ---- waiters that cannot be decided ---- */

/* Trace "w waits for S1 and S2; A commits the release of S1": w's own server is mailed by the transaction that freed S1. */
Test(plan_queue, waiter_that_also_wants_an_unlocked_semaphore_keeps_its_units_and_its_server_is_told)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 2, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 3, 1, 0, 1);
    waiter("k3", HERE, 2, 1, 0, 1);
    EXPECT({OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"}, {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "put_back ac"},
           {OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "no_capacity a<", .widened = WIDENED_MAX});
    expect_changes("k1:RELEASED 2/12 call/13");
}

/* k3 lacks only what is kept for k2: it may fit, too. */
Test(plan_queue, units_are_kept_only_from_those_behind)
{
    scene.semaphores[A].capacity = 3;
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    waiter("k3", ELSEWHERE, 1, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "put_back ac"});
    expect_changes("!k1:ACQUIRED@2 -a/11 2/11 2/12 2/13");
    scene.row_count--; /* without k3 */
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "put_back ac"});
}

Test(plan_queue, waiter_that_lacks_units_of_a_locked_semaphore_is_not_called)
{
    scene.semaphores[B].queue = QUEUE_FIFO;
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 1, 1, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "no_capacity b<"});
    expect_changes("");
}

Test(plan_queue, undecided_waiter_for_a_paused_semaphore_keeps_nothing)
{
    scene.semaphores[A].paused_reason = BYTES("repair");
    waiter("k2", ELSEWHERE, 2, 1, 1, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 0, 1, .expected = "granted"});
    expect_changes("+k3:ACQUIRED");
}

/* A batch that frees a unit by ending a due holder passes no waiter that may fit then. */
Test(plan_queue, units_of_due_holders_count_for_a_waiter_that_cannot_be_decided)
{
    hold("k1", 1, 0, 0, NOW);
    waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "put_back ac"});
    expect_changes("2/12");
}

/* Item 4 of a deep queue: the other semaphore of each waiter is full, so nobody needs the unit. */
Test(plan_queue, waiter_whose_other_semaphore_is_full_keeps_nothing)
{
    hold("k1", 0, 0, 1, NEVER);
    waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k3:ACQUIRED");
}

Test(plan_queue, waiter_whose_other_semaphore_is_paused_or_closed_keeps_nothing)
{
    for (int i = 0; i < 2; i++) {
        scene_release();
        scene_init();
        scene.semaphores[A].queue = QUEUE_FIFO;
        scene.semaphores[C].paused_reason = i ? BYTES("repair") : (struct bytes){0};
        scene.semaphores[C].capacity = i;
        old_waiter("k2", ELSEWHERE, 60, 1, 0, 1);
        EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"});
        expect_changes("+k3:ACQUIRED");
    }
}

/* Somebody may be ended there for it. */
Test(plan_queue, waiter_whose_other_semaphore_has_due_holders_may_fit)
{
    hold("k1", 0, 0, 1, NOW);
    waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "put_back ac"});
    expect_changes("2/12");
}

Test(plan_queue, other_semaphore_of_a_waiter_is_read_only_if_that_matters)
{
    scene.unknown = true;
    waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_assert(scene.plan.unknown_count == 1 && scene.plan.unknown[0] == C + 1);
    hold("k1", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    cr_expect_eq(scene.plan.unknown_count, 0);
}

/* k1 bars k2 from c if it cannot reserve what it wants of a semaphore that is unknown: then k2 does not reserve the unit of a. */
Test(plan_queue, other_semaphore_of_a_waiter_before_others_is_read_too)
{
    scene.glimpse.semaphore.queue = scene.semaphores[C].queue = QUEUE_FIFO;
    scene.semaphores[B].in_use = scene.semaphores[B].capacity;
    struct request *first = old_waiter("k1", ELSEWHERE, 70, 0, 1, 1);
    first->wants[first->want_count++] = (struct want){.semaphore_id = SEMAPHORES + 1, .count = 1};
    old_waiter("k2", ELSEWHERE, 60, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_expect(scene.plan.unknown_count == 1 && scene.plan.unknown[0] == SEMAPHORES + 1);
}

/* When no more may be read, such a waiter is in nobody's way, but it is called. */
Test(plan_queue, waiter_of_an_unknown_semaphore_is_in_nobodys_way_in_the_end)
{
    scene.unknown = scene.reads_end = true;
    old_waiter("k2", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"});
    cr_expect_eq(scene.plan.unknown_count, 0);
    expect_changes("+k3:ACQUIRED 2/11");
}

/* ---- reservations ---- */

/* A job that waits for its database and one of ten backup slots keeps one of them from others, not ten. */
Test(plan_queue, protected_waiter_reserves_its_need_and_no_more)
{
    scene.semaphores[A].capacity = 3;
    hold("k1", 0, 1, 0, NEVER);
    old_waiter("k2", ELSEWHERE, 60, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
}

Test(plan_queue, protected_waiter_reserves_also_if_its_other_semaphore_is_not_locked)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 0, 0, 1, NEVER);
    old_waiter("k2", ELSEWHERE, 60, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
}

/* Trace T4: who cannot have its whole need beside those before it reserves nothing, and equal ones behind it neither. */
Test(plan_queue, equal_waiters_for_one_that_is_held_reserve_once)
{
    scene.semaphores[A].capacity = 4;
    hold("k1", 1, 1, 0, NEVER);
    old_waiter("k2", ELSEWHERE, 60, 1, 1, 0);
    old_waiter("k3", ELSEWHERE, 59, 1, 1, 0);
    old_waiter("k4", ELSEWHERE, 58, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k6", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k7", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    waiter("k0", ELSEWHERE, 57, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k5", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k6", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("+k5:ACQUIRED !k0:ACQUIRED@2 -a/15 2/15");
}

/* Trace T3: W1 reserves nothing, because W0 reserves its d; so W2 does. */
Test(plan_queue, reservations_of_other_queues_count_in_turn)
{
    scene.semaphores[A].capacity = 2; /* s; b is x, c is d */
    hold("D", 0, 0, 1, NEVER);
    hold("V", 1, 0, 0, NEVER);
    old_waiter("W0", ELSEWHERE, 60, 0, 0, 1);
    old_waiter("W1", ELSEWHERE, 59, 0, 1, 1);
    old_waiter("W2", ELSEWHERE, 58, 2, 1, 0);
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
}

/* Trace T7: the need of W2 does not fit beside that of k. */
Test(plan_queue, need_beyond_the_capacity_reserves_nothing)
{
    scene.semaphores[A].capacity = 2;
    hold("W1", 1, 1, 0, NEVER);
    old_waiter("k", ELSEWHERE, 60, 0, 1, 0);
    old_waiter("W2", ELSEWHERE, 59, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "granted"});
}

Test(plan_queue, need_that_confirmed_units_exclude_reserves_nothing)
{
    scene.semaphores[A].capacity = 3;
    hold("sold", 1, 0, 0, NEVER);
    old_waiter("W", ELSEWHERE, 60, 3, 0, 0);
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    scene.semaphores[A].confirmed = 1;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "granted"});
}

/* The need of k2 cannot come any more, so k3 may fit; only its own server can tell. */
Test(plan_queue, waiter_is_called_if_a_confirmation_ends_a_reservation)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    old_waiter("k2", ELSEWHERE, 60, 2, 0, 0);
    waiter("k3", ELSEWHERE, 59, 1, 0, 1);
    EXPECT({OP_RENEW, "k1", 0, 0, 0, .expected = "ok"});
    expect_changes("k1:ACQUIRED");
    EXPECT({OP_CONFIRM, "k1", 0, 0, 0, .expected = "ok"});
    expect_changes("k1:ACQUIRED 2/13");
}

/* Under fifo nobody reserves behind one that reserves nothing: W1 is kept from q for ever, so it must not idle b. */
Test(plan_queue, nobody_reserves_behind_a_fifo_head_that_reserves_nothing)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("D", 0, 0, 1, NEVER);
    scene.semaphores[C].confirmed = 1;
    old_waiter("W0", ELSEWHERE, 60, 1, 0, 1);
    old_waiter("W1", ELSEWHERE, 59, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 0, 1, .expected = "granted"},
           {OP_ACQUIRE, "u", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    scene.semaphores[C].confirmed = 0;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 0, 1, .expected = "no_capacity b<"});
}

/*
 * W2 reserves the unit of a if nothing else is known. Its queue of b was not read, because b is full: there W1 may have
 * reserved what W2 needs.
 */
Test(plan_queue, queue_without_free_units_is_read_before_one_reserves_there)
{
    scene.semaphores[A].capacity = 2;
    hold("k0", 1, 1, 0, NEVER);
    old_waiter("W2", ELSEWHERE, 60, 1, 1, 0);
    scene.queues[B].limit = 0;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "no_capacity a<"}); /* no other one waits for b */
    scene.semaphores[B].waiting = 2;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_expect_eq(scene.plan.read_more, 1 << B);
    old_waiter("W1", ELSEWHERE, 61, 0, 1, 0);
    scene.queues[B].limit = QUEUE_PROTECTED_MAX;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "granted"});
}

/* W1 cannot be judged without c, and stands before W2, which has reserved the unit of a. */
Test(plan_queue, all_is_read_that_decides_about_a_reservation)
{
    scene.semaphores[A].capacity = 2;
    hold("k0", 1, 1, 0, NEVER);
    old_waiter("W1", ELSEWHERE, 61, 0, 1, 1);
    old_waiter("W2", ELSEWHERE, 60, 1, 1, 0);
    scene.unknown = true;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_assert(scene.plan.unknown_count == 1 && scene.plan.unknown[0] == C + 1);
    scene.unknown = false;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 1, 0, .expected = "granted"}); /* W1 has reserved b */
}

/* W1 cannot be judged without c, and bars W2 from a, so that the unit of b is left. No unit is left where W1 is known. */
Test(plan_queue, all_is_read_that_decides_about_a_waiter_that_reserves_nothing)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k0", 2, 0, 0, NEVER);
    old_waiter("W1", ELSEWHERE, 61, 1, 0, 1);
    old_waiter("W2", ELSEWHERE, 60, 1, 2, 0);
    scene.semaphores[B].capacity = 2;
    scene.unknown = true;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 0, 1, .expected = "reads more"});
    cr_assert(scene.plan.unknown_count == 1 && scene.plan.unknown[0] == C + 1);
    scene.unknown = false;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 0, 1, .expected = "no_capacity b<"}); /* both reserve */
    scene.unknown = true;
    hold("sold", 0, 1, 0, NEVER)->confirmed_at = NOW;
    scene.semaphores[B].confirmed = 1;
    EXPECT({OP_ACQUIRE, "v", WAIT_NO, 0, 1, .expected = "granted"}); /* W2 can never have both of b */
}

/* A new request is judged at the place that it would get. */
Test(plan_queue, new_request_of_high_priority_is_bound_by_those_before_it_alone)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    old_waiter("k2", ELSEWHERE, 60, 2, 0, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a<", .priority = 1},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted", .priority = 9});
}

Test(plan_queue, smallest_step_of_its_semaphores_orders_a_request)
{
    scene.semaphores[A].priority_step_ms = SETTING_NONE; /* strict */
    scene.semaphores[B].priority_step_ms = 1000;
    hold("k0", 1, 1, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .priority = 1},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 1, .expected = "no_capacity a b waits", .priority = 9});
    cr_expect_eq(written("k1")->place, NOW - 365 * 86400 * (int64_t)US_PER_SECOND);
    cr_expect_eq(written("k2")->place, NOW - 9 * US_PER_SECOND);
}

/* ---- the part of a queue that was read ---- */

/* The queue was read as far as to this row. */
static void cut_queue(unsigned semaphore, unsigned row)
{
    scene.queues[semaphore] = (struct queue_view){
        .beyond_place = scene.rows[row].place, .beyond = scene.rows[row].id, .limit = QUEUE_READ_MAX};
}

/* Protected waiters may follow that were not read: nobody passes these. */
Test(plan_queue, nobody_is_granted_behind_a_part_that_ends_before_protected_waiters)
{
    scene.semaphores[A].capacity = 5;
    old_waiter("k1", ELSEWHERE, 62, 1, 0, 0);
    old_waiter("k2", ELSEWHERE, 61, 1, 0, 0);
    waiter("k3", ELSEWHERE, 1, 1, 0, 0);
    cut_queue(A, 1);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_expect_eq(scene.plan.read_more, 1 << A);
    scene.queues[A].limit = QUEUE_PROTECTED_MAX;
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a<"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("!k1:ACQUIRED@2 !k2:ACQUIRED@2 -a/11 -a/12 2/11 2/12");
}

/* Young ones that were not read hold nobody up. */
Test(plan_queue, request_is_granted_behind_a_part_that_ends_before_young_waiters)
{
    scene.semaphores[A].capacity = 5;
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    cut_queue(A, 1);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_expect_eq(scene.plan.read_more, 1 << A);
    scene.reads_end = true;
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k4:ACQUIRED !k1:ACQUIRED@2 !k2:ACQUIRED@2 -a/11 -a/12 2/11 2/12");
}

/* k1 is in nobody's way: the unit may be for a waiter that was not read. */
Test(plan_queue, more_is_read_if_units_stay_free_before_those_beyond)
{
    scene.semaphores[B].paused_reason = BYTES("repair");
    old_waiter("k1", ELSEWHERE, 63, 1, 1, 0);
    old_waiter("k2", ELSEWHERE, 62, 2, 0, 0);
    cut_queue(A, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "reads more"});
    cr_expect_eq(scene.plan.read_more, 1 << A);
}

Test(plan_queue, no_more_is_read_if_all_units_are_granted)
{
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    cut_queue(A, 1);
    EXPECT({OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    cr_expect_eq(scene.plan.read_more, 0);
    expect_changes("!k1:ACQUIRED@2 -a/11 2/11");
}

/* No request passes k1, which was read, so the ones behind it do not matter. */
Test(plan_queue, no_more_is_read_behind_a_waiter_that_reserves_what_is_free)
{
    scene.semaphores[A].capacity = 3;
    hold("k0", 2, 0, 0, NEVER);
    struct request *first = old_waiter("k1", ELSEWHERE, 3, 2, 0, 0);
    waiter("k2", ELSEWHERE, 2, 2, 0, 0);
    cut_queue(A, 2);
    EXPECT({OP_RENEW, "k0", 0, 0, 0, .expected = "ok"});
    cr_expect_eq(scene.plan.read_more, 0);
    first->waiting_since = NOW;
    EXPECT({OP_RENEW, "k0", 0, 0, 0, .expected = "reads more"});
    cr_expect_eq(scene.plan.read_more, 1 << A);
    scene.semaphores[A].queue = QUEUE_FIFO;
    EXPECT({OP_RENEW, "k0", 0, 0, 0, .expected = "ok"});
    cr_expect_eq(scene.plan.read_more, 0);
}

/* The next read leaves out the waiters that can do nothing with the free units. */
Test(plan_queue, needs_that_are_hopeless_are_not_read_again)
{
    scene.semaphores[A].capacity = 4;
    hold("k0", 1, 1, 0, NEVER);
    struct request *young = waiter("k1", ELSEWHERE, 70, 4, 0, 0);
    old_waiter("k2", ELSEWHERE, 63, 1, 1, 0);
    struct request *old = old_waiter("k3", ELSEWHERE, 62, 2, 1, 0);
    old_waiter("k4", ELSEWHERE, 61, 2, 1, 0);
    cut_queue(A, 4);
    EXPECT({OP_RENEW, "k0", 0, 0, 0, .expected = "reads more"});
    cr_assert_eq(scene.plan.read_more, 1 << A);
    cr_assert(scene.plan.hopeless_count == 2 && scene.plan.hopeless_protected == 1);
    cr_expect_eq(scene.plan.hopeless[0], wants_needs(old->wanted));
    cr_expect_eq(scene.plan.hopeless[1], wants_needs(young->wanted));
}

/* The bytes of the end of a holder of one unit, of a grant of one unit, and of a batch that locks a and b. */
enum {
    PACKET_OF_END = PACKET_PERMIT,
    PACKET_OF_GRANT = PACKET_GRANT + 2 * 2 + PACKET_PERMIT,
    PACKET_OF_BATCH = PACKET_BATCH + 2 * PACKET_SEMAPHORE
};

static void release_before_three_waiters(void)
{
    scene.semaphores[A].capacity = 3;
    hold("h", 3, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    waiter("k3", ELSEWHERE, 1, 1, 0, 0);
}

/* P23: the release would fail for ever. */
Test(plan_queue, waiter_without_room_in_the_packet_is_left_to_the_next_batch_and_not_passed)
{
    release_before_three_waiters();
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + 3 * PACKET_OF_GRANT - 1;
    EXPECT({OP_RELEASE, "h", 0, 0, 0, .expected = "ok"},
           {OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("h:RELEASED !k1:ACQUIRED@2 !k2:ACQUIRED@2 -a/12 -a/13 2/12 2/13 2/14");
    cr_expect_eq(scene.plan.read_more, 0, "a deeper read makes no room");
    cr_expect_leq(scene.plan.packet_size, scene.settings.max_packet);
}

Test(plan_queue, packet_that_has_room_for_all_waiters_grants_them)
{
    release_before_three_waiters();
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + 3 * PACKET_OF_GRANT;
    EXPECT({OP_RELEASE, "h", 0, 0, 0, .expected = "ok"});
    expect_changes("h:RELEASED !k1:ACQUIRED@2 !k2:ACQUIRED@2 !k3:ACQUIRED@2 -a/12 -a/13 -a/14 2/12 2/13 2/14");
    cr_expect_eq(scene.plan.packet_size, scene.settings.max_packet);
}

static void set_long_owner(struct request *request)
{
    static char owner[255];
    memset(owner, 'o', sizeof owner);
    request->owner = (struct bytes){owner, sizeof owner};
}

/* It is refused when its own server asks, and is in nobody's way until then. */
Test(plan_queue, waiter_whose_grant_no_packet_can_hold_blocks_none)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("h", 2, 0, 0, NEVER);
    set_long_owner(waiter("k1", ELSEWHERE, 2, 1, 0, 0));
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + PACKET_OF_GRANT;
    EXPECT({OP_RELEASE, "h", 0, 0, 0, .expected = "ok"});
    expect_changes("h:RELEASED !k2:ACQUIRED@2 -a/13 2/13");
}

/* The same of a waiter for which too few units are free. */
Test(plan_queue, waiter_whose_grant_no_packet_can_hold_reserves_nothing)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("h", 1, 0, 0, NEVER);
    set_long_owner(old_waiter("k1", ELSEWHERE, 60, 2, 0, 0));
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_GRANT + 2 * 3;
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
}

Test(plan_queue, due_holder_is_not_ended_for_a_grant_that_no_packet_can_hold)
{
    hold("h", 1, 0, 0, NOW - 1);
    scene.settings.max_packet = PACKET_BATCH + PACKET_SEMAPHORE + PACKET_OF_GRANT + 2 * 3 - 1;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "too_large"});
    expect_changes("");
}

static void hold_six_that_are_due(void)
{
    static const char *const keys[] = {"h1", "h2", "h3", "h4", "h5", "h6"};
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        hold(keys[i], 1, 0, 0, NOW - 1);
}

/* The expiry task ends them. */
Test(plan_queue, due_holders_without_room_in_the_packet_are_not_ended_for_an_acquire)
{
    scene.semaphores[A].capacity = 6;
    hold_six_that_are_due();
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END - 1;
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 6, 0, .expected = "no_capacity a"});
    expect_changes("");
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END + PACKET_OF_GRANT + 2 * 3;
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 6, 0, .expected = "granted"});
}

/* The unit that is kept for W is not all that it lacks, so no locks help. */
Test(plan_queue, acquire_whose_due_holders_have_no_room_is_not_put_back)
{
    scene.semaphores[A].capacity = 7;
    hold_six_that_are_due();
    waiter("W", ELSEWHERE, 1, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 7, 0, .expected = "put_back ac"});
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END - 1;
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 7, 0, .expected = "no_capacity a<"});
}

/* k3 and k4 stand behind the part that was read, so there may be others with their needs before them. */
Test(plan_queue, needs_are_not_left_out_for_a_waiter_behind_the_part_that_was_read)
{
    scene.semaphores[A].capacity = 4;
    hold("k0", 1, 1, 0, NEVER);
    struct request *young = waiter("k1", ELSEWHERE, 70, 4, 0, 0);
    old_waiter("k2", ELSEWHERE, 63, 1, 1, 0);
    old_waiter("k3", ELSEWHERE, 62, 2, 1, 0);
    cut_queue(A, 2);
    EXPECT({OP_RENEW, "k0", 0, 0, 0, .expected = "reads more"});
    cr_assert(scene.plan.hopeless_count == 1 && scene.plan.hopeless_protected == 0);
    cr_expect_eq(scene.plan.hopeless[0], wants_needs(young->wanted));
}

Test(plan_queue, waiter_with_ttl_owner_is_granted_by_its_own_server)
{
    waiter("k1", ELSEWHERE, 3, 1, 0, 0)->ttl = (struct ttl){TTL_OWNER, 0};
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "put_back a"},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a<", .widened = WIDENED_MAX});
    expect_changes("2/11");
}

Test(plan_queue, waiter_with_a_dead_owner_blocks_no_others)
{
    scene.owner = (struct owner_state){BYTES("o"), false};
    struct request *request = waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    request->ttl = (struct ttl){TTL_OWNER, 0};
    request->owner = BYTES("o");
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("+k2:ACQUIRED");
}

/* ---- units that are kept for others ---- */

Test(plan_queue, request_is_put_back_if_units_are_kept_for_one_that_cannot_be_decided)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    waiter("k1", ELSEWHERE, 1, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "put_back ac"});
    expect_changes("2/11");
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "no_capacity a< waits", .widened = WIDENED_MAX});
    expect_changes("+k2:WAITING@1 +a/1000 2/11");
}

/* Each of k1 and k2 is decided only in its own batch: the calls go back through the queue once, and not around. */
Test(plan_queue, waiter_that_was_called_calls_those_behind_it)
{
    waiter("k1", HERE, 100, 1, 1, 0);
    waiter("k2", ELSEWHERE, 99, 1, 0, 1);
    hold("k0", 0, 1, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 1, .expected = "no_capacity b waits", .entered = true});
    expect_changes("k1:WAITING@1 2/12");
}

Test(plan_queue, waiter_that_was_called_does_not_call_those_before_it)
{
    waiter("k2", ELSEWHERE, 101, 1, 0, 1);
    waiter("k1", HERE, 100, 1, 1, 0);
    hold("k0", 0, 1, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 1, .expected = "no_capacity a< b waits", .entered = true});
    expect_changes("k1:WAITING@1");
}

/* P17: k2 lacks only the unit of b that is kept for k1, so it may fit, or be in nobody's way. */
Test(plan_queue, request_is_put_back_with_the_locks_of_all_those_before_it)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[B].queue = QUEUE_FIFO;
    waiter("k1", ELSEWHERE, 2, 0, 1, 1);
    waiter("k2", ELSEWHERE, 1, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_ASK, 1, 0, .expected = "put_back abc"});
}

Test(plan_queue, waiter_behind_one_that_does_not_fit_locks_no_more)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[B].queue = QUEUE_FIFO;
    hold("k0", 0, 1, 0, NEVER);
    waiter("k1", ELSEWHERE, 2, 0, 1, 1);
    waiter("k2", ELSEWHERE, 1, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k3", WAIT_ASK, 1, 1, .expected = "no_capacity a< b< waits"});
}

Test(plan_queue, waiter_that_lacks_units_of_holders_locks_no_more)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 1, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "no_capacity a< waits"});
}

Test(plan_queue, waiter_behind_one_that_surely_blocks_it_is_not_called)
{
    scene.semaphores[A].queue = QUEUE_FIFO;
    scene.semaphores[A].capacity = 2;
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 4, 2, 0, 1);
    waiter("k2", ELSEWHERE, 3, 2, 0, 0)->waiting_since = NOW;
    waiter("k3", ELSEWHERE, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k4", WAIT_NO, 1, 0, .expected = "no_capacity a<"});
    expect_changes("");
}

/* ---- unclaimed grants ---- */

/* Trace "B's host dies with its clients": an unclaimed grant is due after place_kept. */
Test(plan_queue, grant_on_behalf_of_another_server_is_due_until_it_is_claimed)
{
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    const struct request *request = written("k1");
    cr_expect_eq(request->due_at, NOW + PLACE_KEPT_US);
    cr_expect_eq(request->ttl_ms, 1000);
    cr_expect_eq(request->acquired_at, NOW);
    cr_expect_null(request->wanted.data);
    cr_expect_eq(after(A)->next_due_at, NOW + PLACE_KEPT_US);
}

static struct request *unclaimed(const char *key, uint64_t server_id, utc_us due_at)
{
    struct request *request = hold(key, 1, 0, 0, due_at);
    request->server_id = server_id;
    return request;
}

Test(plan_queue, claim_sets_the_deadline_to_the_ttl_from_then)
{
    unclaimed("k1", HERE, NOW + 3 * US_PER_SECOND);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "granted", .entered = true, .mailed = 11});
    expect_changes("k1:ACQUIRED -1/11");
    cr_expect_eq(written("k1")->due_at, NOW + US_PER_SECOND);
    cr_expect_eq(after(A)->next_due_at, NOW + US_PER_SECOND);
    cr_expect_eq(after(A)->version, 1);
}

Test(plan_queue, claim_at_another_server_tells_the_first)
{
    unclaimed("k1", ELSEWHERE, NOW + 3 * US_PER_SECOND);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "replayed"});
    expect_changes("k1:ACQUIRED 2/11");
}

Test(plan_queue, grant_whose_client_has_gone_is_not_claimed)
{
    unclaimed("k1", HERE, NOW + 3 * US_PER_SECOND);
    EXPECT({OP_ACQUIRE, "k1", WAIT_GONE, 1, 0, .expected = "no_capacity"});
    expect_changes("");
}

Test(plan_queue, renew_and_confirm_claim)
{
    unclaimed("k1", ELSEWHERE, NOW + 3 * US_PER_SECOND);
    EXPECT({OP_RENEW, "k1", 0, 0, 0, .expected = "ok"});
    expect_changes("k1:ACQUIRED 2/11");
    cr_expect_eq(written("k1")->due_at, NOW + US_PER_SECOND);
    EXPECT({OP_CONFIRM, "k1", 0, 0, 0, .expected = "ok"});
    expect_changes("k1:ACQUIRED 2/11");
    cr_expect_eq(written("k1")->due_at, NEVER);
}

Test(plan_queue, unclaimed_grant_that_is_due_ends_as_expired)
{
    unclaimed("k1", HERE, NOW)->ttl_ms = TTL_NONE;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "ended"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
    cr_expect_eq(written("k1")->end_reason, END_EXPIRED);
    cr_expect_eq(written("k1")->server_id, 0);
}

Test(plan_queue, grant_to_an_operation_is_claimed)
{
    waiter("k1", HERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "replayed"});
    expect_changes("!k1:ACQUIRED -a/11");
    cr_expect_eq(written("k1")->due_at, NOW + US_PER_SECOND);
}

Test(plan_queue, grant_to_a_copy_at_another_server_tells_the_first)
{
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "granted"});
    expect_changes("!k1:ACQUIRED -a/11 2/11");
}

/* ---- asks ---- */

Test(plan_queue, ask_that_changes_nothing_writes_nothing)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", HERE, 3, 1, 0, 0)->waiting_until = NOW + 20 * US_PER_SECOND;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .entered = true});
    expect_changes("");
    cr_expect(scene.plan.outcomes[0].may_wait);
}

Test(plan_queue, mail_is_deleted_with_its_operation_unless_that_is_put_back)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", HERE, 3, 1, 0, 0)->waiting_until = NOW + 20 * US_PER_SECOND;
    waiter("k2", HERE, 3, 1, 0, 1)->waiting_until = NOW + 20 * US_PER_SECOND;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .entered = true, .mailed = 12},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "put_back ac", .entered = true, .mailed = 13});
    expect_changes("-1/12");
}

Test(plan_queue, later_end_of_the_wait_is_written)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", HERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"});
    expect_changes("k1:WAITING@1");
    cr_expect_eq(written("k1")->waiting_until, NOW + 20 * US_PER_SECOND);
    cr_expect_eq(written("k1")->due_at, NOW + 20 * US_PER_SECOND + PLACE_KEPT_US);
    cr_expect_eq(written("k1")->waiting_since, NOW - US_PER_SECOND);
}

Test(plan_queue, kept_place_is_found_again)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", KEPT, 3, 1, 0, 0)->waiting_until = NOW + 60 * US_PER_SECOND;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"});
    expect_changes("k1:WAITING@1");
    cr_expect_eq(written("k1")->place, NOW - 3 * US_PER_SECOND);
    cr_expect_eq(written("k1")->waiting_until, NOW + 20 * US_PER_SECOND);
    cr_expect_eq(after(A)->waiting, 1);
    cr_expect_eq(after(A)->version, 1);
}

/* Trace "w waits at A, asks again at B": the first copy is told by mail. */
Test(plan_queue, waiter_moves_with_its_place_to_the_server_that_asks)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"});
    expect_changes("k1:WAITING@1 2/12");
    cr_expect_eq(scene.semaphores[A].waiting, 1);
}

Test(plan_queue, copy_that_waited_here_has_moved)
{
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "outcome_unknown", .entered = true, .mailed = 11});
    expect_changes("!k1:ACQUIRED@2 -a/11 -1/11 2/11"); /* it fits, and is granted where it waits now */
}

/* Trace "a stopped permitd comes back": it has a new id, and takes the places of its old one. */
Test(plan_queue, waiter_of_a_dead_server_goes_on_in_its_place)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", DEAD, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .entered = true});
    expect_changes("k1:WAITING@1");
    cr_expect_eq(written("k1")->place, NOW - 3 * US_PER_SECOND);
}

Test(plan_queue, ask_without_a_wait_changes_no_place)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", KEPT, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "no_capacity a"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("");
}

/* P22, trace "w waits at B, its time ends": a wait ends by a write, and a later batch grants it nothing. */
Test(plan_queue, last_decision_ends_the_wait_by_a_write)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", HERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_LAST, 1, 0, .expected = "no_capacity a", .entered = true});
    expect_changes("k1:WAITING");
    cr_expect_eq(after(A)->waiting, 0);
    cr_expect_eq(after(A)->version, 1);
}

Test(plan_queue, last_decision_grants_if_it_fits)
{
    waiter("k1", HERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_LAST, 1, 0, .expected = "granted", .entered = true});
    expect_changes("!k1:ACQUIRED -a/11");
}

/* P17: a waiter that left before its batch began holds nothing. */
Test(plan_queue, waiter_whose_client_has_gone_leaves_before_it_is_decided)
{
    waiter_left("k1", HERE, 3, 1, 0, 0);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_GONE, 1, 0, .expected = "no_capacity"});
    expect_changes("k1:WAITING !k2:ACQUIRED@2 -a/12 2/12");
    cr_expect_eq(written("k1")->due_at, NOW + PLACE_KEPT_US);
}

Test(plan_queue, client_that_left_takes_nothing_from_its_copy_elsewhere)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_GONE, 1, 0, .expected = "no_capacity"},
           {OP_ACQUIRE, "k2", WAIT_GONE, 1, 0, .expected = "no_capacity"});
    expect_changes("");
}

/* Trace "a kept place; the key is asked again with other content": a place nobody asks for gives way. */
Test(plan_queue, kept_place_gives_way_to_other_content)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", KEPT, 3, 1, 0, 0);
    waiter("k2", DEAD, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .other = true},
           {OP_ACQUIRE, "k2", WAIT_NO, 0, 1, .expected = "granted", .other = true});
    expect_changes("+k1:WAITING@1 +k2:ACQUIRED -k1 -k2 -a/12 -a/13 +a/1000");
    cr_expect_eq(after(A)->waiting, 1);
    cr_expect_eq(written("k1")->place, NOW);
}

Test(plan_queue, place_that_is_asked_for_does_not_give_way)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "key_reused", .other = true});
    expect_changes("");
    cr_expect_str_eq(scene.plan.outcomes[0].detail, "the key stands for another request: 1 of a");
}

/* Trace "failover: w's row is gone": it is entered again, in its place. */
Test(plan_queue, waiter_whose_row_is_gone_is_entered_again_in_its_place)
{
    hold("k0", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits", .entered = true});
    expect_changes("+k1:WAITING@1 +a/1000");
    cr_expect_eq(written("k1")->place, NOW - 100 * US_PER_SECOND);
    cr_expect_eq(written("k1")->waiting_since, NOW - 50 * US_PER_SECOND);
}

Test(plan_queue, waiter_that_is_entered_again_takes_the_place_of_other_content)
{
    waiter("k1", DEAD, 200, 1, 0, 0);
    waiter("k2", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "granted", .entered = true, .other = true});
    expect_changes("+k1:ACQUIRED -k1 -a/11");
}

Test(plan_queue, waiter_that_is_entered_again_is_granted_in_its_place)
{
    waiter("k2", ELSEWHERE, 3, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "granted", .entered = true});
    expect_changes("+k1:ACQUIRED");
    cr_expect_eq(after(A)->waiting, 1);
}

Test(plan_queue, waiter_that_is_entered_again_for_its_last_decision_keeps_its_place)
{
    hold("k0", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_LAST, 1, 0, .expected = "no_capacity a", .entered = true});
    expect_changes("+k1:WAITING +a/1000");
    cr_expect_eq(after(A)->waiting, 0);
}

Test(plan_queue, waiter_that_can_never_be_granted_is_not_entered_again)
{
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 2, 0, .expected = "never_satisfiable", .entered = true});
    cr_expect_eq(scene.plan.changes.request_count, 0);
    cr_expect_eq(scene.plan.changes.place_count, 0);
    cr_expect_eq(after(A)->waiting, 0);
}

Test(plan_queue, full_queue_is_refused_with_its_limit)
{
    hold("k0", 1, 1, 0, NEVER);
    scene.semaphores[A].max_waiters = 1;
    scene.settings.max_semaphore_waiters = 2;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 1, .expected = "too_many"},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"},
           {OP_ACQUIRE, "k4", WAIT_ASK, 0, 1, .expected = "no_capacity b waits"},
           {OP_ACQUIRE, "k5", WAIT_ASK, 0, 1, .expected = "no_capacity b waits"},
           {OP_ACQUIRE, "k6", WAIT_ASK, 0, 1, .expected = "too_many"});
    cr_expect_str_eq(scene.plan.outcomes[1].detail, "too many waiting requests for a (its max_waiters is 1)");
    cr_expect_str_eq(scene.plan.outcomes[5].detail, "too many waiting requests for b (max_semaphore_waiters is 2)");
    cr_expect_not(scene.plan.outcomes[1].may_wait);
}

Test(plan_queue, no_request_waits_at_a_server_without_an_id)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k2", ELSEWHERE, 2, 1, 0, 0);
    scene.settings.server_id = 0;
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a"},
           {OP_ACQUIRE, "k2", WAIT_ASK, 1, 0,
            .expected = "no_capacity a"}); /* and does not wait: the engine tries again */
    expect_changes("");
}

/* k1 ends H, and for that needs c: then k2, which lacks only the unit that is kept for k1, is decided with it. */
Test(plan_queue, request_behind_one_that_is_put_back_is_put_back_with_it)
{
    scene.no_queues = true;
    hold("H", 0, 1, 1, NOW);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 0, 1, .expected = "put_back b"},
           {OP_ACQUIRE, "k2", WAIT_NO, 0, 1, .expected = "put_back b"});
}

Test(plan_queue, ask_for_a_kept_place_that_is_put_back_keeps_its_need_once)
{
    scene.semaphores[A].capacity = 2;
    hold("H", 0, 1, 1, NOW);
    waiter("k1", KEPT, 3, 1, 1, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
}

Test(plan_queue, copies_of_a_request_that_is_put_back_keep_its_need_once)
{
    scene.semaphores[A].capacity = 2;
    hold("H", 0, 1, 1, NOW);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k1", WAIT_NO, 1, 1, .expected = "put_back ab"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted"});
}

Test(plan_queue, ask_is_put_back_until_all_its_semaphores_are_locked)
{
    waiter("k1", KEPT, 2, 1, 0, 1);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "put_back ac"},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "put_back ac"});
    expect_changes("");
}

Test(plan_queue, waiter_put_back_does_not_delay_those_before_it)
{
    scene.semaphores[A].capacity = 2;
    waiter("k1", ELSEWHERE, 3, 1, 0, 0);
    waiter("k2", HERE, 2, 1, 0, 1)->waiting_until = NOW + 20 * US_PER_SECOND;
    waiter("k3", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "put_back ac", .entered = true});
    expect_changes("!k1:ACQUIRED@2 -a/11 2/11 2/13");
}

/* ---- other operations on a key that waits ---- */

Test(plan_queue, release_of_a_waiting_key_ends_the_waiter)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 2, 1, 0, 0);
    waiter("k2", HERE, 2, 1, 0, 0);
    waiter("k3", KEPT, 2, 1, 0, 0);
    EXPECT({OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"}, {OP_FORCE_RELEASE, "k2", 0, 0, 0, .expected = "ok"},
           {OP_RELEASE, "k3", 0, 0, 0, .expected = "ok"}, {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "ended"});
    expect_changes("k1:RELEASED k2:RELEASED k3:RELEASED -a/12 -a/13 -a/14 2/12 call/13");
    cr_expect_eq(written("k1")->end_reason, END_NEVER_HELD);
    cr_expect_eq(written("k1")->due_at, NOW + 1);
    cr_expect_null(written("k1")->wanted.data);
    cr_expect_eq(scene.plan.ended[END_NEVER_HELD], 3);
    cr_expect_eq(scene.plan.changes.event_count, 1);
    cr_expect_eq(after(A)->waiting, 0);
}

Test(plan_queue, release_of_an_unknown_key_writes_a_tombstone)
{
    EXPECT({OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"}, {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "ended"});
    cr_expect_eq(scene.plan.ended[END_NEVER_HELD], 1);
}

Test(plan_queue, waiting_key_cannot_be_renewed_or_confirmed)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", ELSEWHERE, 2, 1, 0, 0);
    EXPECT({OP_RENEW, "k1", 0, 0, 0, .expected = "unknown_request"},
           {OP_CONFIRM, "k1", 0, 0, 0, .expected = "unknown_request"});
    expect_changes("");
}

Test(plan_queue, place_is_removed_when_it_was_kept_for_long_enough)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", KEPT, 2, 1, 0, 0)->due_at = NOW;
    waiter("k2", KEPT, 2, 1, 0, 0)->due_at = NOW + 1;
    waiter("k3", ELSEWHERE, 2, 1, 0, 0)->due_at = NOW;
    waiter("k4", HERE, 2, 1, 0, 0)->due_at = NOW;
    EXPECT({OP_EXPIRE, "k1", .expected = "ok", .expire_as = END_EXPIRED},
           {OP_EXPIRE, "k2", .expected = "ok", .expire_as = END_EXPIRED},
           {OP_EXPIRE, "k3", .expected = "ok", .expire_as = END_EXPIRED},
           {OP_EXPIRE, "k4", .expected = "ok", .expire_as = END_EXPIRED});
    expect_changes("-k1 -k3 -k4 -a/12 -a/14 -a/15 2/14 call/15");
    cr_expect_not_null(scene.plan.outcomes[0].request);
    cr_expect_null(scene.plan.outcomes[1].request);
    cr_expect_eq(after(A)->waiting, 0);
}

Test(plan_queue, place_of_a_dead_server_is_removed_and_those_of_others_stay)
{
    hold("k0", 1, 0, 0, NEVER);
    waiter("k1", DEAD, 2, 1, 0, 0);
    waiter("k2", KEPT, 2, 1, 0, 0);
    waiter("k3", ELSEWHERE, 2, 1, 0, 0);
    waiter("k4", DEAD, 2, 1, 0, 0);
    EXPECT({OP_EXPIRE, "k1", .expected = "ok", .expire_as = END_NEVER_HELD},
           {OP_EXPIRE, "k2", .expected = "ok", .expire_as = END_NEVER_HELD},
           {OP_EXPIRE, "k3", .expected = "ok", .expire_as = END_NEVER_HELD},
           {OP_EXPIRE, "k4", .expected = "ok", .expire_as = END_OWNER_DEAD});
    expect_changes("-k1 -a/12");
    cr_expect_eq(after(A)->waiting, 2);
}

/* ---- several operations on a key that waits ---- */

Test(plan_queue, key_that_is_refused_and_asked_again_in_one_batch_has_one_place)
{
    hold("k0", 1, 0, 0, NEVER);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"},
           {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"},
           {OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "key_reused", .other = true});
    expect_changes("+k1:WAITING@1 +a/1000");
    cr_expect_eq(after(A)->waiting, 1);
}

Test(plan_queue, release_after_the_ask_of_its_key_is_decided_after_the_grant)
{
    waiter("k1", HERE, 2, 1, 0, 0);
    waiter("k2", ELSEWHERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_ASK, 1, 0, .expected = "granted"}, {OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "no_capacity a"});
    expect_changes("!k1:RELEASED !k2:ACQUIRED@2 -a/11 -a/12 2/12");
    cr_expect_eq(after(A)->in_use, 1);
}

/* The second operation frees a unit after the walk: the waiter gets it before the new request does. */
Test(plan_queue, waiter_gets_units_that_a_late_release_frees)
{
    hold("k1", 1, 0, 0, NEVER);
    waiter("k2", HERE, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k2", WAIT_ASK, 1, 0, .expected = "granted"},
           {OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "replayed"}, {OP_RELEASE, "k1", 0, 0, 0, .expected = "ok"},
           {OP_ACQUIRE, "k3", WAIT_ASK, 1, 0, .expected = "no_capacity a waits"});
    expect_changes("+k3:WAITING@1 k1:RELEASED !k2:ACQUIRED -a/12 +a/1000");
}

/* ---- what must be read ---- */

static size_t queue_reads(const struct line *line, struct queue_read *reads, bool *servers)
{
    struct want wants[2];
    struct operation operation;
    const struct operation *operations[] = {&operation};
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    make_operation(line, wants, &operation);
    return plan_queue_reads(&view, operations, 1, &scene.settings, &scene.arena, reads, servers);
}

Test(plan_queue, queue_is_read_if_units_may_be_free)
{
    static const struct line release = {.kind = OP_RELEASE, .key = "k1"};
    static const struct line other = {.kind = OP_RENEW, .key = "k1"};
    struct queue_read reads[SEMAPHORES];
    bool servers;
    scene.semaphores[A].capacity = 5;
    scene.semaphores[A].queue = QUEUE_FIFO;
    hold("k1", 3, 1, 0, NEVER);
    struct request *second = hold("k2", 2, 0, 0, NOW + 1);
    cr_expect_eq(queue_reads(&release, reads, &servers), 0);
    cr_expect_not(servers);
    scene.semaphores[A].waiting = 1;
    cr_expect_eq(queue_reads(&other, reads, &servers), 0);
    cr_assert_eq(queue_reads(&release, reads, &servers), 1);
    cr_expect(reads[0].semaphore == A && reads[0].free == 3 && reads[0].fifo);
    cr_expect_eq(reads[0].limit, 5);
    scene.semaphores[A].kind = KIND_SLOTTED; /* waiters for other slots may come first */
    cr_assert_eq(queue_reads(&release, reads, &servers), 1);
    cr_expect_eq(reads[0].limit, QUEUE_READ_MAX);
    scene.semaphores[A].kind = KIND_COUNTED;
    second->due_at = NOW;
    cr_assert_eq(queue_reads(&other, reads, &servers), 1);
    cr_expect_eq(reads[0].free, 2);
    scene.semaphores[B].waiting = 1;
    cr_assert_eq(queue_reads(&release, reads, &servers), 2);
    cr_expect(reads[1].semaphore == B && reads[1].free == 1 && !reads[1].fifo);
    cr_expect(reads[1].aged == NOW - 30 * US_PER_SECOND && reads[1].limit == 3);
    scene.semaphores[A].paused_reason = BYTES("repair");
    scene.semaphores[B].retired_at = 1;
    cr_expect_eq(queue_reads(&release, reads, &servers), 0);
    cr_expect_not(servers);
    waiter("k3", KEPT, 1, 1, 0, 0);
    cr_expect_eq(queue_reads(&release, reads, &servers), 0);
    cr_expect(servers);
}

/* Each waiter wants a unit at least. */
Test(plan_queue, few_more_waiters_than_free_units_are_read_of_a_counted_semaphore)
{
    static const struct line release = {.kind = OP_RELEASE, .key = "k1"};
    struct queue_read reads[SEMAPHORES];
    bool servers;
    scene.semaphores[A].capacity = 1000;
    scene.semaphores[A].waiting = 100;
    struct request *held = hold("k1", 1000, 0, 0, NEVER);
    cr_assert_eq(queue_reads(&release, reads, &servers), 1);
    cr_expect_eq(reads[0].limit, QUEUE_READ_MAX);
    held->permits[0].count = 3;
    cr_assert_eq(queue_reads(&release, reads, &servers), 1);
    cr_expect_eq(reads[0].limit, 5);
}

Test(plan_queue, no_queue_is_read_before_the_end_of_a_failover_hold)
{
    static const struct line release = {.kind = OP_RELEASE, .key = "k1"};
    struct queue_read reads[SEMAPHORES];
    bool servers;
    scene.semaphores[A].waiting = 1;
    cr_expect_eq(queue_reads(&release, reads, &servers), 1);
    scene.grants_from = NOW + 1;
    cr_expect_eq(queue_reads(&release, reads, &servers), 0);
}

/* A queue that is read already is read further; another one is read as far as it is protected: no units of it are free. */
Test(plan_queue, reads_are_extended_by_what_the_plan_asks_for)
{
    struct queue_read reads[SEMAPHORES] = {{.semaphore = A, .free = 2, .limit = 4}};
    const uint64_t hopeless[] = {7, 8};
    struct plan plan = {
        .read_more = 1 << A | 1 << B, .hopeless = hopeless, .hopeless_count = 2, .hopeless_protected = 1};
    utc_us next_due[SEMAPHORES];
    size_t count = 1;
    struct view view = scene_view(next_due);
    scene.semaphores[B].queue = QUEUE_FIFO;
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_assert_eq(count, 2);
    cr_expect(reads[0].limit == QUEUE_READ_MAX && reads[0].free == 2 && !reads[0].with_holders);
    cr_expect(reads[1].semaphore == B && reads[1].free == 0 && reads[1].limit == QUEUE_READ_MAX && reads[1].fifo);
    cr_expect(reads[1].aged == NOW - 30 * US_PER_SECOND && reads[1].all_watches);
    cr_expect(reads[1].hopeless == hopeless && reads[1].hopeless_count == 2 && reads[1].hopeless_protected == 1);
    plan = (struct plan){.read_more = 1 << A, .read_held = 1 << B};
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_expect(count == 2 && reads[0].limit == QUEUE_PROTECTED_MAX && reads[1].limit == QUEUE_READ_MAX);
    cr_expect(reads[1].with_holders && reads[1].hopeless_count == 0);
    plan = (struct plan){.unknown_count = 1};
    cr_expect_not(plan_read_on(&plan, &view, &scene.settings, reads, &count));
}

/* The store locks and reads in this order. */
Test(plan_queue, reads_stay_in_the_order_of_semaphores)
{
    struct queue_read reads[SEMAPHORES] = {{.semaphore = B, .free = 2, .limit = 4}};
    const struct plan plan = {.read_held = 1 << A};
    utc_us next_due[SEMAPHORES];
    size_t count = 1;
    struct view view = scene_view(next_due);
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_assert_eq(count, 2);
    cr_expect(reads[0].semaphore == A && reads[0].with_holders && reads[0].free == 0);
    cr_expect(reads[1].semaphore == B && !reads[1].with_holders && reads[1].free == 2 && reads[1].limit == 4);
}

Test(plan_queue, due_holders_are_read_for_those_who_want_units_and_for_the_waiters_before_them)
{
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = A + 1, .count = 1};
    struct operation acquire = {.kind = OP_ACQUIRE, .wants = &want, .want_count = 1};
    const struct operation *operations[] = {&acquire};
    struct shortfall shortfalls[SEMAPHORES];
    utc_us next_due[SEMAPHORES];
    hold("k1", 1, 0, 0, NOW);
    struct view view = scene_view(next_due);
    view.request_count = 0;
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 1);
    cr_expect_eq(shortfalls[0].units, 1);
    scene.semaphores[A].waiting = 2;
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 1);
    cr_expect_eq(shortfalls[0].units, 3);
    want.semaphore_id = B + 1; /* a waiter of a may want b, too, and stands before it */
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 1);
    cr_expect_eq(shortfalls[0].units, 2);
    acquire.kind = OP_LEAVE;
    cr_expect_eq(plan_shortfalls(&view, operations, 1, shortfalls), 0);
}

/* ---- rows to lock ---- */

Test(plan_waiting, rows_that_the_batch_may_end_for_others_are_those_with_all_locks)
{
    hold("k1", 1, 0, 0, NOW);       /* due */
    hold("k2", 1, 0, 1, NOW);       /* due, and c is not locked */
    hold("k3", 1, 0, 0, NOW + 1);   /* not due */
    hold("k4", 1, 0, 0, NOW + 1);   /* not due, but its owner may be dead */
    waiter("k5", KEPT, 1, 0, 1, 0); /* a kept place */
    const struct operation expire[] = {{.kind = OP_EXPIRE, .external_id = BYTES("k1"), .expire_as = END_EXPIRED},
                                       {.kind = OP_EXPIRE, .external_id = BYTES("k4"), .expire_as = END_OWNER_DEAD},
                                       {.kind = OP_EXPIRE, .external_id = BYTES("k5"), .expire_as = END_EXPIRED},
                                       {.kind = OP_EXPIRE, .external_id = BYTES("k6"), .expire_as = END_EXPIRED},
                                       {.kind = OP_RELEASE, .external_id = BYTES("k3")}};
    const struct operation *operations[] = {&expire[0], &expire[1], &expire[2], &expire[3], &expire[4]};
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    uint64_t ids[16];
    cr_assert_eq(plan_ends_for_others(&view, operations, 5, false, ids), 3);
    cr_expect(ids[0] == FIRST_ID && ids[1] == FIRST_ID + 3 && ids[2] == FIRST_ID + 4);
    cr_assert_eq(plan_ends_for_others(&view, operations + 4, 1, false, ids), 0);
    cr_assert_eq(plan_ends_for_others(&view, operations + 4, 1, true, ids), 1);
    cr_expect_eq(ids[0], FIRST_ID);
}

/* Else as many rows as an acquire needs units, all locked by others, would hide the due holders behind them. */
Test(plan_waiting, due_holders_are_read_past_those_that_another_session_has_locked)
{
    struct request *first = hold("k1", 1, 0, 0, NOW - 1);
    struct shortfall shortfalls[] = {{.semaphore = A, .units = 1}, {.semaphore = B, .units = 1}};
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    next_due[A] = next_due[B] = NOW; /* others are due */
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0));
    first->locked_elsewhere = true;
    view.requests[0].locked_elsewhere = true;
    cr_assert(plan_read_past_locked(&view, shortfalls, 2, 0));
    cr_expect(shortfalls[0].more == 64 && shortfalls[1].more == 0);
    cr_assert(plan_read_past_locked(&view, shortfalls, 2, 1));
    cr_expect_eq(shortfalls[0].more, SLOTS_MAX_COUNT);
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 2), "a batch reads so many at most");
    next_due[A] = NOW + 1;
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0), "all that are due were read");
    next_due[A] = NOW;
    hold("k2", 1, 0, 0, NOW);
    view = scene_view(next_due);
    next_due[A] = NOW;
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0), "k2 has the unit that is missing");
}

/* Half of the waiters also want a semaphore that is not locked. */
Test(plan_queue, all_waiters_that_were_read_are_granted_or_called)
{
    static char keys[ROWS_MAX][8];
    scene.semaphores[A].capacity = 64;
    hold("k0", 64, 0, 0, NEVER);
    for (unsigned i = 0; i < QUEUE_READ_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "w%02u", i);
        waiter(keys[i], ELSEWHERE, 100 - i, 1, 0, i % 2);
    }
    EXPECT({OP_RELEASE, "k0", 0, 0, 0, .expected = "ok"}, {OP_ACQUIRE, "x", WAIT_NO, 1, 0, .expected = "put_back ac"});
    cr_expect_eq(after(A)->in_use, 32);
    cr_expect_eq(after(A)->waiting, 32);
    cr_expect_eq(scene.plan.changes.mail_count, 64);
    cr_expect_eq(scene.plan.changes.place_count, 32);
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
    utc_us next_due[SEMAPHORES];
    struct view view = scene_view(next_due);
    cr_assert_eq(plan_batch(&view, operations, 1, (struct id_range){1, 2}, &scene.settings, &scene.arena, &scene.plan),
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

/* ---- scopes ---- */

static const struct scope_entry entry_a = {{"a", 1}, false};
static const struct scope only_a = {&entry_a, 1};

Test(plan_scope, request_with_a_semaphore_out_of_scope_is_not_found)
{
    hold("k1", 0, 1, 0, NEVER);
    hold("k2", 1, 1, 0, NEVER);
    waiter("k3", ELSEWHERE, 1, 1, 1, 0);
    EXPECT({OP_RELEASE, "k1", .expected = "unknown_request", .scope = &only_a},
           {OP_RELEASE, "k2", .expected = "unknown_request", .scope = &only_a},
           {OP_RELEASE, "k3", .expected = "unknown_request", .scope = &only_a},
           {OP_RENEW, "k1", .expected = "unknown_request", .scope = &only_a},
           {OP_CONFIRM, "k2", .expected = "unknown_request", .scope = &only_a});
    expect_changes("");
}

Test(plan_scope, request_in_scope_is_decided_as_without_one)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 1, 0, 0, NEVER);
    hold("k2", 1, 0, 0, NEVER);
    EXPECT({OP_RENEW, "k1", .expected = "ok", .scope = &only_a}, {OP_CONFIRM, "k1", .expected = "ok", .scope = &only_a},
           {OP_RELEASE, "k2", .expected = "ok", .scope = &only_a});
    expect_changes("k1:ACQUIRED k2:RELEASED");
}

Test(plan_scope, request_that_has_ended_out_of_scope_is_not_found)
{
    struct request *ended = hold("k1", 0, 1, 0, NEVER);
    ended->state = REQUEST_RELEASED;
    ended->end_reason = END_RELEASED;
    EXPECT({OP_RELEASE, "k1", .expected = "unknown_request", .scope = &only_a},
           {OP_RENEW, "k1", .expected = "unknown_request", .scope = &only_a});
    expect_changes("");
}

Test(plan_scope, release_of_an_unknown_key_is_a_tombstone)
{
    EXPECT({OP_RELEASE, "k1", .expected = "ok", .scope = &only_a});
    expect_changes("+k1:RELEASED");
}

Test(plan_scope, scope_of_a_semaphore_that_is_not_locked_is_decided_under_its_lock)
{
    hold("k1", 1, 0, 1, NEVER);
    EXPECT({OP_RELEASE, "k1", .expected = "put_back ac", .scope = &only_a});
}

Test(plan_scope, forced_release_needs_all_semaphores)
{
    scene.semaphores[A].capacity = 2;
    hold("k1", 0, 1, 0, NEVER);
    hold("k2", 1, 1, 0, NEVER);
    hold("k3", 1, 0, 0, NEVER);
    EXPECT({OP_FORCE_RELEASE, "k1", .expected = "unknown_request", .scope = &only_a},
           {OP_FORCE_RELEASE, "k2", .expected = "forbidden", .scope = &only_a,
            .detail = "needs the right operate on all semaphores of the request"},
           {OP_FORCE_RELEASE, "k3", .expected = "ok", .scope = &only_a});
    expect_changes("k3:RELEASED");
}

Test(plan_scope, reused_key_out_of_scope_is_not_described)
{
    hold("k1", 0, 1, 0, NEVER);
    hold("k2", 1, 0, 0, NEVER);
    waiter("k3", ELSEWHERE, 1, 0, 1, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "key_reused", .other = true, .scope = &only_a, .detail = ""},
           {OP_ACQUIRE, "k2", WAIT_NO, 2, 0, .expected = "key_reused", .other = true, .scope = &only_a,
            .detail = "the key stands for another request: 1 of a, ttl 1000 ms"},
           {OP_ACQUIRE, "k3", WAIT_NO, 1, 0, .expected = "key_reused", .other = true, .scope = &only_a, .detail = ""});
    expect_changes("");
}

Test(plan_scope, place_out_of_scope_that_no_client_asks_for_does_not_give_way)
{
    waiter("k1", KEPT, 1, 0, 1, 0);
    waiter("k2", KEPT, 1, 1, 0, 0);
    EXPECT({OP_ACQUIRE, "k1", WAIT_NO, 1, 0, .expected = "key_reused", .other = true, .scope = &only_a, .detail = ""},
           {OP_ACQUIRE, "k2", WAIT_NO, 1, 0, .expected = "granted", .other = true, .scope = &only_a});
}
