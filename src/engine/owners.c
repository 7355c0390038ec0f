/* SPDX-License-Identifier: MIT */
#include "engine/owners.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/transaction.h"

enum {
    ARENA_CHUNK = 64 * 1024,
    ARENA_LIMIT = 16 * 1024 * 1024,
};

/* No heartbeat expires for this time after a start or a recovery of the database. */
#define GRACE_US (1LL * US_PER_SECOND)

/* The calls of one transaction, sorted by name, then by arrival. */
struct owner_run {
    struct transaction transaction;
    struct owners *owners;
    struct owner_op **ops;
    size_t count;
    bool part;                  /* one call of a failed transaction: does not wait for row locks */
    struct owner_image *images; /* one per distinct name, ascending */
    size_t image_count;
    struct owner_outcome *outcomes; /* one per op */
    struct query_time time;
};

/* ---- life ---- */

struct owners *owners_new(struct engine *engine)
{
    struct owners *owners = calloc(1, sizeof *owners);
    if (!owners)
        return NULL;
    owners->engine = engine;
    atomic_init(&owners->max_calls, engine->settings.max_pending);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    mutex_init(&owners->mutex);
    pthread_cond_init(&owners->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&owners->calls);
    arena_init(&owners->expiry_arena, ARENA_CHUNK, ARENA_LIMIT);
    return owners;
}

void owners_free(struct owners *owners)
{
    if (!owners)
        return;
    arena_release(&owners->expiry_arena);
    pthread_cond_destroy(&owners->woken);
    mutex_destroy(&owners->mutex);
    free(owners);
}

void owners_wake(struct owners *owners)
{
    if (!owners)
        return;
    mutex_lock(&owners->mutex);
    pthread_cond_signal(&owners->woken);
    mutex_unlock(&owners->mutex);
}

enum permit_status engine_submit_owner(struct engine *engine, struct owner_op *op)
{
    struct owners *owners = engine->owners;
    enum permit_status status = PERMIT_OK;
    mutex_lock(&owners->mutex);
    if (atomic_load(&engine->stopping)) {
        status = PERMIT_SHUTTING_DOWN;
    } else if (atomic_load(&engine->refusing)) {
        status = PERMIT_DATABASE_UNAVAILABLE;
    } else if (owners->call_count >= atomic_load(&owners->max_calls)) {
        status = PERMIT_TOO_MANY;
    } else {
        owners->call_count++;
        list_append(&owners->calls, &op->node);
        pthread_cond_signal(&owners->woken);
    }
    mutex_unlock(&owners->mutex);
    return status;
}

/* ---- answers ---- */

/* Counts the decision and calls `decided`, if there is one. */
static void answer(struct owners *owners, struct owner_op *op, struct owner_decision *decision)
{
    metrics_count(&owners->engine->metrics.owner_calls[op->call.kind][decision->status]);
    if (permit_status_retry(decision->status) != PERMIT_RETRY_NEVER)
        decision->retry_after_ms = jittered_ms(1000);
    if (op->decided)
        op->decided(op, decision);
}

/* Answers a call without a decision. */
static void fail_call(struct owners *owners, struct owner_op *op, enum permit_status status)
{
    answer(owners, op, &(struct owner_decision){.status = transaction_answer(status, &op->stage)});
}

static size_t drop_late(struct transaction *transaction, enum permit_status status)
{
    struct owner_run *run = CONTAINER_OF(transaction, struct owner_run, transaction);
    struct owners *owners = run->owners;
    bool stopping = atomic_load(&owners->engine->stopping);
    mono_us now = clock_mono();
    size_t kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct owner_op *op = run->ops[i];
        if (stopping || op->deadline <= now || stage_is_answered(&op->stage))
            fail_call(owners, op, stopping ? PERMIT_SHUTTING_DOWN : status);
        else
            run->ops[kept++] = op;
    }
    return run->count = kept;
}

/* Answers all calls after COMMIT. */
static void answer_all(struct owners *owners, const struct owner_run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        struct owner_decision decision = {
            .status = run->outcomes[i].status,
            .outcome = &run->outcomes[i],
            .clock = &run->time.clock,
            .now = run->time.now,
        };
        answer(owners, run->ops[i], &decision);
    }
}

/* ---- one try ---- */

static int compare_ops(const void *a, const void *b)
{
    const struct owner_op *left = *(struct owner_op *const *)a;
    const struct owner_op *right = *(struct owner_op *const *)b;
    int order = bytes_compare(left->call.name, right->call.name);
    return order ? order : (left->place > right->place) - (left->place < right->place);
}

static bool starts_name(const struct owner_run *run, size_t i)
{
    return i == 0 || !bytes_equal(run->ops[i - 1]->call.name, run->ops[i]->call.name);
}

static enum permit_status lock_images(struct owners *owners, struct owner_run *run)
{
    struct bytes *names = arena_array(&owners->task->arena, run->count, sizeof *names);
    run->images = arena_array(&owners->task->arena, run->count, sizeof *run->images);
    run->outcomes = arena_array(&owners->task->arena, run->count, sizeof *run->outcomes);
    if (!names || !run->images || !run->outcomes)
        return PERMIT_NO_MEMORY;
    run->image_count = 0;
    for (size_t i = 0; i < run->count; i++)
        if (starts_name(run, i))
            names[run->image_count++] = run->ops[i]->call.name;
    return owners->store->owners->lock(owners->store, names, run->image_count, !run->part, &owners->task->arena,
                                       run->images, &run->time);
}

/* Returns true if the run has a heartbeat: only its answer has the number of held requests. */
static bool has_heartbeat(const struct owner_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (run->ops[i]->call.kind == OWNER_BEAT)
            return true;
    return false;
}

/* Decides the calls on the images. Returns true if an image has changed. */
static bool decide_calls(struct owner_run *run)
{
    struct owner_image *image = run->images;
    bool changed = false;
    for (size_t i = 0; i < run->count; i++) {
        image += i > 0 && starts_name(run, i);
        owner_decide(&run->ops[i]->call, &run->time.clock, run->time.now, image, &run->outcomes[i]);
    }
    for (size_t i = 0; i < run->image_count; i++)
        changed |= run->images[i].changed;
    return changed;
}

static enum permit_status try_calls(struct transaction *transaction)
{
    struct owner_run *run = CONTAINER_OF(transaction, struct owner_run, transaction);
    struct owners *owners = run->owners;
    arena_clear(&owners->task->arena);
    enum permit_status status = task_connect(owners->task);
    if (status == PERMIT_OK)
        status = lock_images(owners, run);
    if (status == PERMIT_OK && has_heartbeat(run))
        status = owners->store->owners->read_holding(owners->store, run->images, run->image_count);
    if (status != PERMIT_OK)
        return status;
    engine_judge(owners->engine, &run->time);
    if (!decide_calls(run)) {
        owners->store->owners->rollback(owners->store);
        return PERMIT_OK;
    }
    for (size_t i = 0; i < run->count; i++)
        if (!stage_send(&run->ops[i]->stage))
            return PERMIT_CONFLICT; /* its client was answered; the next try drops the call */
    return owners->store->owners->write(owners->store, run->images, run->image_count);
}

/* ---- a transaction until it is decided ---- */

void owners_record_status(struct owners *owners, enum permit_status status)
{
    if (task_record_status(owners->task, status))
        owners->lapse_from = clock_mono() + GRACE_US;
    if (status != PERMIT_OK)
        owners->store->owners->rollback(owners->store);
}

/*
 * Requeues a call whose row is locked by another transaction behind all others, so that they do not wait for it. A call
 * without `decided` is dropped; heartbeat expiry finds it again.
 */
static void postpone_call(struct owners *owners, struct owner_op *op)
{
    if (!op->decided) {
        fail_call(owners, op, PERMIT_LOCK_TIMEOUT);
        return;
    }
    mutex_lock(&owners->mutex);
    owners->call_count++;
    list_append(&owners->calls, &op->node);
    mutex_unlock(&owners->mutex);
}

static bool run_calls(struct owners *owners, struct owner_op **ops, size_t count, bool part);

/*
 * Runs each call in its own transaction. Only the call that causes the error fails; only calls for a locked row are
 * delayed.
 */
static void run_one_by_one(struct owners *owners, const struct owner_run *run)
{
    bool locked = false;
    for (size_t i = 0; i < run->count; i++) {
        locked = locked && !starts_name(run, i); /* the call before was postponed, so its memory is still valid */
        if (locked)
            postpone_call(owners, run->ops[i]);
        else
            locked = !run_calls(owners, &run->ops[i], 1, true);
    }
}

static void calls_failed(struct transaction *transaction, enum permit_status status)
{
    owners_record_status(CONTAINER_OF(transaction, struct owner_run, transaction)->owners, status);
}

/*
 * Runs calls, which are sorted, until all are decided or postponed. False: the only call was postponed, because its row
 * is locked. A part does not lose the connection repeatedly, because all other calls wait behind it.
 */
static bool run_calls(struct owners *owners, struct owner_op **ops, size_t count, bool part)
{
    struct owner_run run = {
        .transaction = {.drop_late = drop_late, .attempt = try_calls, .failed = calls_failed, .gives_up_losses = part},
        .owners = owners,
        .ops = ops,
        .count = count,
        .part = part,
    };
    enum permit_status status = transaction_run(&run.transaction);
    if (run.count == 0)
        return true;
    if (status == PERMIT_OK) {
        owners_record_status(owners, status);
        answer_all(owners, &run);
    } else if (run.count > 1) {
        run_one_by_one(owners, &run);
    } else if (status == PERMIT_LOCK_TIMEOUT) {
        postpone_call(owners, run.ops[0]);
        return false;
    } else {
        fail_call(owners, run.ops[0], status);
    }
    return true;
}

void owners_run_calls(struct owners *owners, struct owner_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ops[i]->place = i;
    qsort(ops, count, sizeof *ops, compare_ops);
    (void)run_calls(owners, ops, count, false);
}

/* ---- the task ---- */

/* Waits for calls, or until heartbeat expiry is due. Caller holds owners->mutex. */
static void wait_for_calls(struct owners *owners) REQUIRES(owners->mutex)
{
    struct timespec until = {.tv_sec = owners->next_expiry / US_PER_SECOND,
                             .tv_nsec = owners->next_expiry % US_PER_SECOND * 1000};
    while (list_empty(&owners->calls) && !owners->expiry_soon && !atomic_load(&owners->engine->stopping))
        if (mutex_wait_until(&owners->mutex, &owners->woken, &until) == ETIMEDOUT)
            return;
}

/* Takes up to OWNERS_MAX calls. Caller holds owners->mutex. */
static size_t take_calls(struct owners *owners, struct owner_op **ret_ops)
{
    size_t count = 0;
    while (count < OWNERS_MAX && !list_empty(&owners->calls)) {
        struct list *node = owners->calls.next;
        list_remove(node);
        ret_ops[count++] = LIST_ENTRY(node, struct owner_op, node);
    }
    owners->call_count -= count;
    return count;
}

bool owners_serve(struct owners *owners)
{
    struct owner_op *ops[OWNERS_MAX];
    mutex_lock(&owners->mutex);
    wait_for_calls(owners);
    size_t count = take_calls(owners, ops);
    bool soon = owners->expiry_soon;
    owners->expiry_soon = false;
    mutex_unlock(&owners->mutex);
    if (count)
        owners_run_calls(owners, ops, count);
    return soon;
}

void owners_refuse_calls(struct owners *owners)
{
    struct owner_op *ops[OWNERS_MAX];
    size_t count;
    do {
        mutex_lock(&owners->mutex);
        count = take_calls(owners, ops);
        mutex_unlock(&owners->mutex);
        for (size_t i = 0; i < count; i++)
            fail_call(owners, ops[i], PERMIT_SHUTTING_DOWN);
    } while (count);
}

void owners_begin(struct owners *owners, struct task *task)
{
    owners->task = task;
    owners->store = task->store;
    owners->lapse_from = clock_mono() + GRACE_US;
}
