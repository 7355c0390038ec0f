/* SPDX-License-Identifier: MIT */
/* A worker that runs one batch in this thread, on a store whose locks follow a script. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "checked_store.h"
#include "engine/state.h"
#include "engine/task.h"
#include "fixture.h"

enum { BATCH = 3, OPS_MAX = 5, SEMAPHORES = 3, LOCKS_MAX = 16, IDS = 100000 };

#define START (3600 * (utc_us)US_PER_SECOND)

static struct engine engine;
static struct task task;
static struct asked asked[OPS_MAX];

static struct script {
    const char *timeouts; /* "1" for each call of batch->lock that times out, in order; then all succeed */
    char locked[100];     /* semaphores of each call, one letter each: "abc ab c" */
    size_t locks;
    void (*awaited)(void);          /* called while batch->await has the lock */
    enum permit_status await_fails; /* how the next call of batch->await fails; PERMIT_OK: it does not */
    unsigned lost_after_ms;         /* the next call of batch->lock loses the session after this time; 0: it does not */
    unsigned answered_after_ms;     /* the next call of batch->lock answers after this time */
    utc_us now;                     /* the clock that batch->lock reads */
    utc_us assumed;                 /* lease time of the last batch in one packet */
    bool packet_times_out;          /* the next batch in one packet waits too long for a lock */
    size_t ahead[SEMAPHORES];       /* waiters that the last call may read with the locks, of each semaphore */
    size_t unlocked;                /* semaphores that were locked in the database while no batch held their pre-lock */
    size_t most_writes;             /* a packet with more requests, or with the key `large`, is too large; 0: none is */
    const char *large;
    size_t most_names;       /* a resolve with more names is too large; 0: none is */
    size_t writes, resolves; /* packets that were sent */
    bool held;               /* a due request holds all of a, and a unit of another semaphore (add_holder) */
    bool stays_held;         /* it has ended when its end comes, and another one is due */
    bool stranger;           /* another session has locked the row of h1; h3, like h1, is behind it */
    char read[100];          /* units for which due holders were read: "1 65" */
    bool failover;           /* while they are read, another worker reserves and takes the same ids in another epoch */
    uint64_t next_id;        /* after the plan of that batch */
    size_t asked, decided;
    char order[100];           /* keys in the order in which they were decided: "k1 k2" */
    enum permit_status status; /* of the last of them */
} script;

/* ---- the store ---- */

static enum permit_status succeed(struct store *store)
{
    (void)store;
    return PERMIT_OK;
}

static void end_nothing(struct store *store)
{
    (void)store;
}

static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch)
{
    (void)store;
    *ret_range = (struct id_range){1, 1 + count};
    *ret_epoch = 1;
    return PERMIT_OK;
}

static void add_semaphore(struct view *view, uint64_t id)
{
    struct semaphore *semaphore = &view->semaphores[view->semaphore_count];
    *semaphore =
        (struct semaphore){.id = id,
                           .name = (struct bytes){&"abc"[id - 1], 1},
                           .kind = KIND_COUNTED,
                           .next_token = 2000 + BATCH * script.locks, /* more than were issued; epoch 1: above 1024 */
                           .version = 1,
                           .next_due_at = NEVER,
                           .retired_at = NEVER};
    semaphore_reset(semaphore, 1000);
    semaphore->capacity = 10;
    view->next_due[view->semaphore_count++] = NEVER;
}

/* Adds a due request to the view: h1, which holds a and c, h2, which holds a and b, ... */
static void add_holder(size_t number, struct arena *arena, struct view *view)
{
    static const char *const keys[] = {"h0", "h1", "h2", "h3", "h4", "h5"};
    cr_assert_lt(number, ARRAY_LENGTH(keys));
    struct permit *permits = arena_array(arena, 2, sizeof *permits);
    permits[0] = (struct permit){.semaphore_id = 1, .token = 1, .count = 10};
    permits[1] = (struct permit){.semaphore_id = number % 2 ? 3 : 2, .token = 1, .count = 1};
    struct request *all = arena_array(arena, view->request_count + 1, sizeof *all);
    if (view->request_count)
        memcpy(all, view->requests, view->request_count * sizeof *all);
    view->requests = all;
    view->requests[view->request_count++] = (struct request){.id = number,
                                                             .external_id = bytes_of(keys[number]),
                                                             .state = REQUEST_ACQUIRED,
                                                             .ttl_ms = 1000,
                                                             .due_at = 1,
                                                             .confirmed_at = NEVER,
                                                             .ended_at = NEVER,
                                                             .permits = permits,
                                                             .permit_count = 2};
}

static enum permit_status read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view)
{
    (void)store, (void)count;
    size_t length = strlen(script.read);
    snprintf(script.read + length, sizeof script.read - length, length ? " %lld" : "%lld",
             (long long)(shortfalls[0].units + shortfalls[0].more));
    if (script.failover && engine.ids_epoch == 1)
        engine.ids_epoch = 2; /* with the ids that this batch has taken, taken there too */
    if (view->request_count == 0 && script.held)
        add_holder(script.locks, arena, view);
    else if (script.stranger && view->request_count == 1)
        add_holder(3, arena, view);
    return PERMIT_OK;
}

static void pass(unsigned ms)
{
    const struct timespec time = {.tv_sec = ms / MS_PER_SECOND, .tv_nsec = ms % MS_PER_SECOND * 1000000};
    nanosleep(&time, NULL);
}

static enum permit_status lock(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view)
{
    (void)store;
    struct view view = {
        .semaphores = arena_array(arena, SEMAPHORES, sizeof *view.semaphores),
        .free_slots = arena_array(arena, SEMAPHORES, sizeof *view.free_slots),
        .named_slots = arena_array(arena, SEMAPHORES, sizeof *view.named_slots),
        .next_due = arena_array(arena, SEMAPHORES, sizeof *view.next_due),
        .clock = {.tick_at = script.now, .epoch = 1},
        .now = script.now,
        .same_server = true,
    };
    cr_assert_lt(script.locks++, LOCKS_MAX);
    strcat(script.locked, script.locked[0] ? " " : "");
    for (size_t i = 0; i < set->semaphore_count; i++) {
        uint64_t id = set->semaphore_ids[i];
        strncat(script.locked, &"abc"[id - 1], 1);
        script.ahead[id - 1] = set->waiters_ahead ? set->waiters_ahead[i] : 0;
        script.unlocked += semaphore_cache_find(&engine.queue.semaphores, id)->prelock_holder == NULL;
        add_semaphore(&view, id);
        if (script.held) {
            view.semaphores[i].in_use = id == 1 ? 10 : 1;
            view.semaphores[i].next_due_at = view.next_due[i] = 1;
        }
    }
    for (size_t i = 0; script.held && !script.stays_held && i < set->key_count; i++)
        if (bytes_equal(set->keys[i], BYTES("h1")))
            add_holder(1, arena, &view);
    pass(script.answered_after_ms);
    script.answered_after_ms = 0;
    if (script.lost_after_ms) {
        pass(script.lost_after_ms);
        script.lost_after_ms = 0;
        return PERMIT_DATABASE_LOST;
    }
    if (*script.timeouts) {
        script.timeouts++;
        return PERMIT_LOCK_TIMEOUT;
    }
    *ret_view = view;
    return PERMIT_OK;
}

static enum permit_status rollback(struct store *store)
{
    (void)store;
    if (script.failover && engine.ids_epoch == 2)
        script.next_id = engine.ids.next;
    script.failover = false;
    return PERMIT_OK;
}

static enum permit_status prepare(struct store *store, const struct changes *changes, const struct assumed *assumed)
{
    (void)assumed;
    store->message = "";
    bool fits = !script.most_writes || changes->request_count <= script.most_writes;
    for (size_t i = 0; i < changes->request_count; i++)
        fits &= !script.large || !bytes_equal(changes->requests[i].request->external_id, bytes_of(script.large));
    if (!fits)
        store->message = "the packet is too large";
    return fits ? PERMIT_OK : PERMIT_TOO_LARGE;
}

static enum permit_status lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view)
{
    (void)store, (void)ids, (void)count;
    for (size_t i = 0; i < view->request_count; i++)
        view->requests[i].locked_elsewhere = script.stranger && bytes_equal(view->requests[i].external_id, BYTES("h1"));
    return PERMIT_OK;
}

static enum permit_status commit(struct store *store, const struct changes *changes)
{
    (void)store;
    script.writes++;
    for (size_t i = 0; i < changes->request_count; i++)
        script.held &= !changes->requests[i].ends;
    return PERMIT_OK;
}

static enum permit_status resolve(struct store *store, struct resolve *what, struct arena *arena)
{
    (void)store, (void)arena;
    if (script.most_names && what->name_count > script.most_names)
        return PERMIT_TOO_LARGE;
    script.resolves++;
    for (size_t i = 0; i < what->name_count; i++) {
        what->names[i].ret_id = (uint64_t)(what->names[i].name.data[0] - 'a' + 1);
        what->names[i].ret_kind = KIND_COUNTED;
        what->names[i].ret_floor = 1;
    }
    return PERMIT_OK;
}

static enum permit_status commit_if_unchanged(struct store *store, const struct changes *changes,
                                              const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    (void)store, (void)changes;
    script.assumed = assumed->now;
    bool times_out = script.packet_times_out;
    script.packet_times_out = false;
    *ret_mismatch = MISMATCH_NONE;
    return times_out ? PERMIT_LOCK_TIMEOUT : PERMIT_OK;
}

static enum permit_status floors(struct store *store, const uint64_t *semaphore_ids, size_t count, uint64_t *ret_floors)
{
    (void)store, (void)semaphore_ids;
    memset(ret_floors, 0, count * sizeof *ret_floors);
    return PERMIT_OK;
}

static enum permit_status await(struct store *store, uint64_t semaphore_id)
{
    (void)store;
    strcat(script.locked, script.locked[0] ? " +" : "+");
    strncat(script.locked, &"abc"[semaphore_id - 1], 1);
    enum permit_status status = script.await_fails;
    script.await_fails = PERMIT_OK;
    if (status == PERMIT_OK && script.awaited)
        script.awaited();
    return status;
}

static const struct store_session session = {
    .reconnect = succeed, .check_safety = succeed, .disconnect = end_nothing, .keepalive = succeed};
static const struct store_batch batch_methods = {.reserve_ids = reserve_ids,
                                                 .resolve = resolve,
                                                 .await = await,
                                                 .lock = lock,
                                                 .read_due = read_due,
                                                 .lock_requests = lock_requests,
                                                 .prepare = prepare,
                                                 .commit = commit,
                                                 .commit_if_unchanged = commit_if_unchanged,
                                                 .rollback = rollback};
static const struct store_clock clock_methods = {.floors = floors};
static struct store store;
static struct checked_store checked;

/* ---- the worker ---- */

static void begin(void)
{
    script = (struct script){.timeouts = "", .asked = BATCH, .now = START};
    engine = (struct engine){.settings = {.request_timeout_ms = 10000, .plan = {.retention_us = US_PER_SECOND}}};
    mutex_init(&engine.mutex);
    pthread_cond_init(&engine.work, NULL);
    pthread_cond_init(&engine.expiry_wake, NULL);
    pthread_cond_init(&engine.poll_wake, NULL);
    queue_init(&engine.queue, ROW_BYTES);
    for (uint64_t id = 1; id <= SEMAPHORES; id++)
        semaphore_cache_put(&engine.queue.semaphores, id, (struct bytes){&"abc"[id - 1], 1}, KIND_COUNTED, 1);
    store = (struct store){.session = &session, .batch = &batch_methods, .clock = &clock_methods, .message = ""};
    checked_store_init(&checked, &store);
    task = (struct task){.engine = &engine, .store = &store};
    arena_init(&task.arena, 4096, 1 << 20);
}

static void end(void)
{
    struct list left; /* ends of due holders */
    list_init(&left);
    queue_take_expired(&engine.queue, NEVER, &left);
    list_for_each (node, next, &left)
        decide_status(&engine, LIST_ENTRY(node, struct op, node), PERMIT_SHUTTING_DOWN, NULL);
    for (size_t i = 0; i < OPS_MAX; i++)
        op_drop_entries(&asked[i].op);
    queue_release(&engine.queue);
    arena_release(&task.arena);
}

TestSuite(worker, .init = begin, .fini = end, .timeout = 300);

/* The worker ends when all are decided. */
static void note_decided(struct op *op, const struct decision *decision)
{
    bool large = script.large && bytes_equal(op->operation->external_id, bytes_of(script.large));
    cr_assert(script.stays_held || decision->status == (large ? PERMIT_TOO_LARGE : PERMIT_OK), "%s",
              permit_status_word(decision->status));
    if (large) {
        cr_expect_str_eq(decision->detail, "the packet is too large");
        cr_expect_not(stage_is_sent(&op->stage));
    }
    script.status = decision->status;
    strcat(script.order, script.order[0] ? " " : "");
    strncat(script.order, op->operation->external_id.data, op->operation->external_id.length);
    if (++script.decided == script.asked)
        atomic_store(&engine.stopping, true);
}

static void ask(size_t at, const char *key, const char *semaphores)
{
    struct asked *one = &asked[at];
    *one = (struct asked){.operation = {.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants}};
    for (; *semaphores; semaphores++)
        one->wants[one->operation.want_count++] = (struct want){.semaphore = {semaphores, 1}, .count = 1};
    op_init(&one->op, &one->operation, NEVER, note_decided);
    (void)queue_add(&engine.queue, &one->op);
}

/* Asks to release a request of which the copies say that it holds a unit of each of these. */
static void ask_release(size_t at, const char *key, const char *semaphores)
{
    struct asked *one = &asked[at];
    struct permit permits[SEMAPHORES];
    size_t count = 0;
    for (; *semaphores; semaphores++)
        permits[count++] = (struct permit){.semaphore_id = (uint64_t)(*semaphores - 'a' + 1), .count = 1};
    *one = (struct asked){.operation = {.kind = OP_RELEASE, .external_id = bytes_of(key)}};
    holds(&engine.queue.rows, key, permits, count);
    op_init(&one->op, &one->operation, NEVER, note_decided);
    (void)queue_add(&engine.queue, &one->op);
}

/*
 * After a lock time-out the batch runs in parts, by the first semaphore: k1 with k2, and k3. The part of k1 and k2 times
 * out again and is split in turn, within the batch. It does not need c, and does not know that k3 does, so it must
 * leave the pre-lock of c to the batch.
 */
Test(worker, part_of_a_batch_that_is_split_keeps_the_prelocks_of_the_other_parts)
{
    script.timeouts = "1111";
    ask(0, "k1", "a");
    ask(1, "k2", "ab");
    ask(2, "k3", "c");
    worker_run(&task);
    cr_assert_eq(script.decided, BATCH);
    cr_assert_str_eq(script.locked, "abc ab c ab ab c");
    cr_assert_eq(script.unlocked, 0);
}

/* The parts of a batch keep the order of their operations, which may have one key. */
Test(worker, batch_that_is_split_keeps_the_order_of_arrival)
{
    script.timeouts = "1";
    script.asked = OPS_MAX;
    ask(0, "k1", "a");
    ask(1, "k2", "b");
    ask(2, "k3", "b");
    ask(3, "k4", "a");
    ask(4, "k5", "b");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "ab a b");
    cr_assert_str_eq(script.order, "k1 k4 k2 k3 k5");
}

Test(worker, batch_runs_at_once)
{
    ask(0, "k1", "a");
    ask(1, "k2", "ab");
    ask(2, "k3", "c");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "abc");
    cr_assert_eq(script.unlocked, 0);
}

/* Its end is an operation of its own, which gets the locks of its semaphores, and comes before the acquire. */
Test(worker, acquire_is_granted_when_a_due_holder_of_other_semaphores_has_ended)
{
    script.held = true;
    script.asked = 2;
    ask(0, "k1", "a");
    ask(1, "k2", "b");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "ab ac");
    cr_assert_str_eq(script.order, "k2 k1");
    cr_assert_not(script.held);
}

/* After a failover to an older copy, ids are reserved a second time. */
Test(worker, ids_of_another_epoch_are_not_given_back)
{
    script.held = true;
    script.failover = true;
    script.asked = 1;
    ask(0, "k1", "a");
    worker_run(&task);
    cr_assert_eq(script.next_id, 2, "id 1 is taken, in both epochs");
}

/* P23: nor is a due holder waited for whose row another session has locked: the read goes on behind it. */
Test(worker, acquire_ends_a_due_holder_behind_one_that_another_session_has_locked)
{
    script.held = script.stranger = true;
    script.asked = 1;
    ask(0, "k1", "ac");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "ac");
    cr_assert_str_eq(script.read, "1 65");
    cr_assert_str_eq(script.order, "k1");
}

/* P5: no plan has decided that there is no capacity, or that the key holds nothing. */
Test(worker, acquire_that_is_put_back_too_often_is_busy)
{
    script.held = script.stays_held = true;
    script.asked = 1;
    ask(0, "k1", "a");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "a ac ab ac");
    cr_assert_eq(script.status, PERMIT_BUSY, "%s", permit_status_word(script.status));
}

/* Two releases of a semaphore with a queue may let two waiters in; two more may stand before these and block nobody. */
Test(worker, waiters_that_a_release_may_let_in_are_read_with_the_locks)
{
    semaphore_cache_find(&engine.queue.semaphores, 1)->has_queue = true;
    semaphore_cache_find(&engine.queue.semaphores, 3)->has_queue = true;
    ask_release(0, "k1", "ab");
    ask_release(1, "k2", "a");
    ask(2, "k3", "c");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "abc");
    cr_expect_eq(script.ahead[0], 4, "%zu", script.ahead[0]);
    cr_expect_eq(script.ahead[1], 0, "no queue, no waiters: %zu", script.ahead[1]);
    cr_expect_eq(script.ahead[2], 0, "nothing ends there: %zu", script.ahead[2]);
}

/* The cache needs the whole queue, and 64 waiters are read after the locks. A longer queue is not cached. */
Test(worker, short_queue_that_the_cache_learns_is_not_read_with_the_locks)
{
    for (uint64_t id = 1; id <= 2; id++) {
        struct semaphore_entry *entry = semaphore_cache_find(&engine.queue.semaphores, id);
        entry->has_queue = true;
        entry->copy = calloc(1, sizeof *entry->copy);
        entry->copy->row.waiting = id == 1 ? QUEUE_READ_MAX : QUEUE_READ_MAX + 1;
        entry->copy->generation = engine.queue.rows.generation;
        list_init(&entry->copy->held);
    }
    engine.settings.short_path = true;
    ask_release(0, "k1", "ab");
    ask_release(1, "k2", "b");
    ask_release(2, "k3", "b");
    worker_run(&task);
    cr_expect_eq(script.ahead[0], 0, "%zu", script.ahead[0]);
    cr_expect_eq(script.ahead[1], 5, "%zu", script.ahead[1]);
}

/* ---- packets that are too large ---- */

Test(worker, batch_that_does_not_fit_into_a_packet_runs_one_by_one)
{
    script.most_writes = 1;
    ask(0, "k1", "a");
    ask(1, "k2", "a");
    ask(2, "k3", "b");
    worker_run(&task);
    cr_assert_eq(script.decided, BATCH);
    cr_assert_str_eq(script.locked, "ab a a b");
    cr_assert_str_eq(script.order, "k1 k2 k3");
    cr_assert_eq(script.writes, BATCH);
}

/* It is refused before it is sent, so its outcome is known, and it is not tried again. */
Test(worker, operation_that_alone_does_not_fit_into_a_packet_is_refused_and_the_others_run)
{
    script.large = "k2";
    ask(0, "k1", "a");
    ask(1, "k2", "ab");
    ask(2, "k3", "b");
    worker_run(&task);
    cr_assert_eq(script.decided, BATCH);
    cr_assert_str_eq(script.locked, "ab a ab b");
    cr_assert_eq(script.writes, BATCH - 1);
}

Test(worker, names_that_do_not_fit_into_a_packet_are_resolved_in_parts)
{
    queue_release(&engine.queue);
    queue_init(&engine.queue, ROW_BYTES);
    script.asked = OPS_MAX;
    script.most_names = 2;
    ask(0, "k1", "a");
    ask(1, "k2", "b");
    ask(2, "k3", "c");
    ask(3, "k4", "a");
    ask(4, "k5", "ab");
    worker_run(&task);
    cr_assert_eq(script.decided, OPS_MAX);
    cr_expect_geq(script.resolves, 3);
}

/* ---- gathering ---- */

/* Makes a semaphore one that another process has lately changed, too. */
static void share(uint64_t semaphore_id)
{
    semaphore_cache_find(&engine.queue.semaphores, semaphore_id)->shared_until = NEVER;
}

static void ask_while_it_waits(void)
{
    engine_lock(&engine);
    ask(1, "k2", "a");
    ask(2, "k3", "a");
    engine_unlock(&engine);
}

Test(worker, batch_on_a_shared_semaphore_takes_what_arrives_while_it_waits_for_the_lock)
{
    script.awaited = ask_while_it_waits;
    share(1);
    ask(0, "k1", "a");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "+a a", "one batch: %s", script.locked);
    cr_assert_eq(script.decided, BATCH);
}

static void ask_three_times(void)
{
    ask(0, "k1", "a");
    ask(1, "k2", "a");
    ask(2, "k3", "a");
}

Test(worker, batch_on_a_semaphore_of_this_process_alone_locks_and_reads_at_once)
{
    semaphore_cache_find(&engine.queue.semaphores, 1)->changed_at = 1;
    ask_three_times();
    worker_run(&task);
    cr_assert_str_eq(script.locked, "a");
}

Test(worker, batch_on_several_semaphores_does_not_hold_them_while_it_waits)
{
    share(1);
    ask(0, "k1", "ab");
    ask(1, "k2", "a");
    ask(2, "k3", "b");
    worker_run(&task);
    cr_assert_str_eq(script.locked, "ab");
}

Test(worker, batch_that_is_tried_again_gathers_again)
{
    script.timeouts = "1";
    share(1);
    ask_three_times();
    worker_run(&task);
    cr_assert_str_eq(script.locked, "+a a +a a", "%s", script.locked);
}

/* P23: the next batches are smaller, whatever number of operations this one began with. */
Test(worker, batch_that_was_too_long_counts_what_it_has_gathered)
{
    script.awaited = ask_while_it_waits;
    script.lost_after_ms = 3100;
    share(1);
    ask(0, "k1", "a");
    worker_run(&task);
    cr_assert_eq(script.decided, BATCH);
    cr_assert_eq(engine.queue.batch_max, BATCH_MAX_LEAST, "%zu", engine.queue.batch_max);
}

/* Nothing is gathered without the lock; the next try waits for it again. */
static void fail_to_await(enum permit_status status)
{
    script.await_fails = status;
    share(1);
    ask_three_times();
    worker_run(&task);
    cr_assert_str_eq(script.locked, "+a +a a", "%s: %s", permit_status_word(status), script.locked);
    cr_assert_eq(script.decided, BATCH);
    cr_assert_not(checked.in_batch);
}

Test(worker, batch_that_does_not_get_a_shared_lock_in_time_tries_again)
{
    fail_to_await(PERMIT_LOCK_TIMEOUT);
}

Test(worker, batch_that_loses_the_connection_while_it_waits_for_a_shared_lock_tries_again)
{
    fail_to_await(PERMIT_DATABASE_LOST);
}

Test(worker, batch_in_a_deadlock_at_a_shared_lock_tries_again)
{
    fail_to_await(PERMIT_CONFLICT);
}

/* ---- the lease clock ---- */

/* A tick was read, as late as can be: the time that this test takes does not matter. */
static void read_tick(void)
{
    const struct lease_row row = {.clock = {.tick_at = START, .epoch = 1}};
    boot_us late = clock_boot() + 3600 * (int64_t)US_PER_SECOND;
    own_clock_read(&engine.own_clock, &row, late, late);
}

/* Runs one acquire alone. */
static void run_one(const char *key, const char *semaphore)
{
    script.asked = script.decided + 1;
    atomic_store(&engine.stopping, false);
    ask(script.decided, key, semaphore);
    worker_run(&task);
}

/* Caches c with one batch, and returns the lease time of the next one, which is one packet. */
static utc_us run_on_copies(void)
{
    engine.settings.short_path = true;
    read_tick();
    run_one("k1", "c");
    run_one("k2", "c");
    cr_assert_str_eq(script.locked, "c", "the second batch is one packet: %s", script.locked);
    cr_assert_geq(script.assumed, START);
    return script.assumed;
}

/* The batch is not split: it waits for its locks, on the long way. */
Test(worker, packet_that_does_not_get_its_locks_in_time_is_tried_again_on_the_long_way)
{
    (void)run_on_copies();
    script.packet_times_out = true;
    run_one("k3", "c");
    cr_assert_str_eq(script.locked, "c c", "%s", script.locked);
    cr_assert_eq(script.status, PERMIT_OK);
}

/* A later token would be granted earlier. */
Test(worker, slow_answer_does_not_take_the_lease_clock_back)
{
    utc_us before = run_on_copies();
    script.now = before - 50 * US_PER_MS;
    run_one("k3", "a");
    run_one("k4", "c");
    cr_assert_str_eq(script.locked, "c a", "%s", script.locked);
    cr_assert_geq(script.assumed, before);
}

Test(worker, very_slow_answer_is_not_taken_for_a_step_of_the_clock)
{
    utc_us before = run_on_copies();
    script.now = before - 200 * US_PER_MS;
    script.answered_after_ms = 200;
    run_one("k3", "a");
    run_one("k4", "c"); /* in one packet, or not: the clock is known badly */
    cr_assert_geq(script.assumed, before);
}

Test(worker, step_back_of_the_clock_takes_the_lease_clock_back)
{
    utc_us before = run_on_copies();
    script.now = before - START;
    run_one("k3", "a");
    run_one("k4", "c");
    cr_assert_str_eq(script.locked, "c a", "%s", script.locked);
    cr_assert_lt(script.assumed, before);
}
