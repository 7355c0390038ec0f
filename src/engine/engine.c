/* SPDX-License-Identifier: MIT */
/* Start, stop, submission of operations and queries, settings. */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "engine/liveness.h"
#include "engine/owners.h"
#include "engine/state.h"
#include "engine/task.h"
#include "engine/waitlist.h"
#include "engine/worker.h"

enum { MAX_QUERIES = 10000 };

/* The engine's own tasks. Those of src/tasks come with the settings. */
static const struct task_kind worker_kind = {"worker", STORE_WORKER, BATCH_ARENA, .run = worker_run};
static const struct task_kind reader_kinds[QUERY_LANE_COUNT] = {
    {"probe reader", STORE_PROBE, PAGE_ARENA, .run = reader_run, .lane = QUERY_PROBE},
    {"row reader", STORE_READER, PAGE_ARENA, .run = reader_run, .lane = QUERY_ROW},
    {"list reader", STORE_LIST, PAGE_ARENA, .run = reader_run, .lane = QUERY_LIST},
    {"operator reader", STORE_READER, PAGE_ARENA, .run = reader_run, .lane = QUERY_OPERATOR},
};

void op_init(struct op *op, struct operation *operation, mono_us deadline,
             void (*decided)(struct op *op, const struct decision *decision))
{
    *op = (struct op){.operation = operation, .decided = decided, .deadline = deadline};
    list_init(&op->node);
}

/* ---- start and stop ---- */

static bool start_task(struct engine *engine, const struct task_kind *kind)
{
    if (!task_start(&engine->tasks[engine->task_count], kind, engine))
        return false;
    engine->task_count++;
    return true;
}

/* Starts the readers first, because engine_stop joins in reverse order. */
static bool start_tasks(struct engine *engine)
{
    bool started = true;
    for (size_t i = 0; started && i < QUERY_LANE_COUNT; i++)
        started = start_task(engine, &reader_kinds[i]);
    for (size_t i = 0; started && i < engine->settings.task_count; i++)
        started = start_task(engine, &engine->settings.tasks[i]);
    for (size_t i = 0; started && i < engine->settings.workers; i++)
        started = start_task(engine, &worker_kind);
    return started;
}

/* Ends the tasks that were started last, until `count` are left. */
static void join_tasks(struct engine *engine, size_t count)
{
    while (engine->task_count > count)
        pthread_join(engine->tasks[--engine->task_count].thread, NULL);
}

static void init_lanes_and_locks(struct engine *engine)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    mutex_init(&engine->mutex);
    pthread_cond_init(&engine->work, &monotonic);
    for (size_t i = 0; i < QUERY_LANE_COUNT; i++) {
        turns_init(&engine->lanes[i].queries);
        pthread_cond_init(&engine->lanes[i].wake, &monotonic);
    }
    pthread_cond_init(&engine->expiry_wake, &monotonic);
    pthread_cond_init(&engine->poll_wake, &monotonic);
    pthread_cond_init(&engine->errand_wake, &monotonic);
    pthread_cond_init(&engine->feed_wake, &monotonic);
    list_init(&engine->feed_waits);
    pthread_condattr_destroy(&monotonic);
}

bool engine_start(const struct engine_settings *settings, struct engine **ret_engine, struct buf *message)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine)
        engine->tasks = calloc(QUERY_LANE_COUNT + settings->task_count + settings->workers, sizeof *engine->tasks);
    if (!engine || !engine->tasks) {
        free(engine);
        buf_append_text(message, "out of memory");
        return false;
    }
    engine->settings = *settings;
    engine->recount_slots = true;
    metrics_init(&engine->metrics);
    queue_init(&engine->queue, settings->row_bytes);
    init_lanes_and_locks(engine);
    engine->owners = owners_new(engine);
    engine->liveness = liveness_new(engine);
    if (!engine->owners || !engine->liveness || !start_tasks(engine)) {
        buf_append_text(message, "cannot start a thread");
        engine_stop(engine);
        engine_free(engine);
        return false;
    }
    *ret_engine = engine;
    return true;
}

static void wake_all(struct engine *engine)
{
    engine_lock(engine);
    pthread_cond_broadcast(&engine->work);
    for (size_t i = 0; i < QUERY_LANE_COUNT; i++)
        pthread_cond_broadcast(&engine->lanes[i].wake);
    pthread_cond_broadcast(&engine->expiry_wake);
    pthread_cond_broadcast(&engine->poll_wake);
    pthread_cond_broadcast(&engine->errand_wake);
    pthread_cond_broadcast(&engine->feed_wake);
    engine_unlock(engine);
    owners_wake(engine->owners);
}

/* Gives the waits some seconds to end by a write. If the database hangs, the places end with this server. */
static void end_waits(struct engine *engine)
{
    enum { STEP_MS = 5, MAX_MS = 5000 };
    mono_us until = clock_mono() + MAX_MS * US_PER_MS;
    engine_end_waits(engine);
    while (!engine_waits_ended(engine) && clock_mono() < until)
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

void engine_stop(struct engine *engine)
{
    struct list left; /* ops that no worker has taken */
    if (!engine)
        return;
    list_init(&left);
    end_waits(engine);
    atomic_store(&engine->stopping, true);
    wake_all(engine);
    join_tasks(engine, QUERY_LANE_COUNT);
    engine_lock(engine);
    queue_take_expired(&engine->queue, NEVER, &left);
    engine_unlock(engine);
    list_for_each (node, next, &left)
        op_fail(engine, LIST_ENTRY(node, struct op, node), PERMIT_SHUTTING_DOWN, NULL);
    join_tasks(engine, 0);
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    queue_release(&engine->queue);
    pthread_cond_destroy(&engine->poll_wake);
    pthread_cond_destroy(&engine->errand_wake);
    pthread_cond_destroy(&engine->feed_wake);
    pthread_cond_destroy(&engine->expiry_wake);
    liveness_free(engine->liveness);
    owners_free(engine->owners);
    for (size_t i = 0; i < QUERY_LANE_COUNT; i++)
        pthread_cond_destroy(&engine->lanes[i].wake);
    pthread_cond_destroy(&engine->work);
    mutex_destroy(&engine->mutex);
    free(engine->tasks);
    free(engine);
}

/* ---- submission ---- */

/*
 * Checks the limit that applies to the op, and notes it in op->bound. Ends have their own limit, so that overload does
 * not expire live holders.
 */
static bool is_within_limit(const struct engine *engine, struct op *op) REQUIRES(engine_mutex)
{
    op->bound = op_counts_as_end(op) ? BOUND_ENDS : BOUND_PENDING;
    return op->bound == BOUND_ENDS ? engine->queue.end_count < engine->settings.max_pending_ends
                                   : engine->queue.other_count < engine->settings.max_pending;
}

enum permit_status engine_submit(struct engine *engine, struct op *op)
{
    enum permit_status status = PERMIT_OK;
    bool wake = false;
    assert(op->operation->want_count <= REQUEST_MAX_SEMAPHORES);
    op->arrived_at = clock_mono();
    engine_lock(engine);
    struct waiter *waiter =
        op->operation->kind == OP_ACQUIRE ? waiters_find(&engine->queue.waiters, op->operation->external_id) : NULL;
    if (atomic_load(&engine->stopping))
        status = PERMIT_SHUTTING_DOWN;
    else if (engine->refusal[0])
        status = PERMIT_DATABASE_UNAVAILABLE;
    else if (!is_within_limit(engine, op))
        status = PERMIT_TOO_MANY;
    else if (waiter && !waiter_in_batch(waiter) && waiter_asks_same(waiter, op))
        status = waitlist_join(engine, waiter, op);
    else /* a batch refuses it if its key waits with other content */
        wake = queue_add(&engine->queue, op) && engine->idle_workers;
    engine_unlock(engine);
    if (wake) /* not under the mutex, or the worker would wake only to wait for the mutex */
        pthread_cond_signal(&engine->work);
    return status;
}

enum permit_status engine_query(struct engine *engine, struct query *query)
{
    struct lane *lane = &engine->lanes[query->lane];
    enum permit_status status = PERMIT_OK;
    engine_lock(engine);
    if (atomic_load(&engine->stopping)) {
        status = PERMIT_SHUTTING_DOWN;
    } else if (engine->refusal[0] && !query->always) {
        status = PERMIT_DATABASE_UNAVAILABLE;
    } else if (lane->queries.count >= MAX_QUERIES) {
        status = PERMIT_TOO_MANY;
    } else {
        turns_add(&lane->queries, &query->turn);
        pthread_cond_signal(&lane->wake);
    }
    engine_unlock(engine);
    return status;
}

uint64_t engine_server_id(const struct engine *engine)
{
    return atomic_load(&engine->server_id);
}

bool engine_database_up(const struct engine *engine)
{
    return atomic_load(&engine->metrics.database_up) && !atomic_load(&engine->refusing);
}

bool engine_refusal(struct engine *engine, char ret_sentence[STORE_MESSAGE_SIZE])
{
    engine_lock(engine);
    memcpy(ret_sentence, engine->refusal, STORE_MESSAGE_SIZE);
    engine_unlock(engine);
    return ret_sentence[0] != '\0';
}

size_t engine_bound_limit(struct engine *engine, enum engine_bound bound)
{
    const struct engine_settings settings = engine_settings_now(engine);
    switch (bound) {
    case BOUND_ENDS: return settings.max_pending_ends;
    case BOUND_PENDING: return settings.max_pending;
    case BOUND_QUERIES: break;
    }
    return MAX_QUERIES;
}

struct engine_settings engine_settings_now(struct engine *engine)
{
    engine_lock(engine);
    struct engine_settings settings = engine->settings;
    engine_unlock(engine);
    return settings;
}

struct plan_settings engine_plan_settings(struct engine *engine)
{
    struct plan_settings settings = engine_settings_now(engine).plan;
    settings.server_id = engine_server_id(engine);
    settings.slots = (int64_t)atomic_load(&engine->slots);
    return settings;
}

utc_us engine_protected_since(struct engine *engine, const struct query_time *time)
{
    return lease_time(&time->clock, time->now) - engine_plan_settings(engine).backfill_bound_us;
}

void engine_reload(struct engine *engine, const struct engine_settings *settings)
{
    engine_lock(engine);
    config_copy_values(&engine_section, settings, &engine->settings);
    engine->settings.max_pending_ends = settings->max_pending_ends;
    engine->settings.request_timeout_ms = settings->request_timeout_ms;
    atomic_store(&engine->owners->max_calls, settings->max_pending);
    engine_unlock(engine);
}

size_t engine_drifts(struct engine *engine, struct audit_drift *ret_drifts, size_t max)
{
    engine_lock(engine);
    size_t count = engine->drift_count;
    for (size_t i = 0; i < count && i < max; i++)
        ret_drifts[i] = engine->drifts[i];
    engine_unlock(engine);
    return count;
}

void engine_metrics(struct engine *engine, struct buf *out)
{
    metrics_print(&engine->metrics, engine_database_up(engine), out);
}
