/* SPDX-License-Identifier: MIT */
#include "engine/worker.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/waitlist.h"

enum { PING_AFTER_MS = 2000 }; /* idle time before a ping; less than the session's wait_timeout */

/* ---- failures ---- */

static void log_failure(struct worker *worker, enum permit_status status, const char *what)
{
    bool serious = status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY;
    bool down = status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_UNAVAILABLE;
    if (serious || !worker->failing)
        log_write(serious ? LOG_ERROR
                  : down  ? LOG_WARN
                          : LOG_DEBUG,
                  what, "status", permit_status_word(status), "error", worker->store->message, NULL);
    worker->failing = down;
}

void worker_recovered(struct worker *worker)
{
    if (worker->failing)
        log_write(LOG_INFO, "database available again", NULL);
    worker->failing = false;
    atomic_store_explicit(&worker->engine->metrics.database_up, true, memory_order_relaxed);
}

void worker_record_failure(struct worker *worker, enum permit_status status, const char *what)
{
    struct metrics *metrics = &worker->engine->metrics;
    log_failure(worker, status, what);
    switch (status) {
    case PERMIT_CONFLICT: metrics_count(&metrics->retries[BATCH_RETRY_CONFLICT]); break;
    case PERMIT_LOCK_TIMEOUT: metrics_count(&metrics->retries[BATCH_RETRY_LOCK_TIMEOUT]); break;
    case PERMIT_DATABASE_LOST: metrics_count(&metrics->retries[BATCH_RETRY_LOST]); break;
    case PERMIT_TOO_LARGE: break; /* of several operations, which run one by one, or the fault of one client */
    default: metrics_count(&metrics->retries[BATCH_RETRY_UNAVAILABLE]); break;
    }
    if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_UNAVAILABLE)
        atomic_store_explicit(&metrics->database_up, false, memory_order_relaxed);
    (void)worker->store->batch->rollback(worker->store);
}

void op_fail(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
{
    decide_status(engine, op, transaction_answer(status, &op->stage), detail);
}

size_t run_drop_late(struct transaction *transaction, enum permit_status status)
{
    struct run *run = CONTAINER_OF(transaction, struct run, transaction);
    struct worker *worker = run->worker;
    bool stopping = atomic_load(&worker->engine->stopping);
    char refusal[STORE_MESSAGE_SIZE];
    bool refusing = atomic_load(&worker->engine->refusing) && engine_refusal(worker->engine, refusal);
    mono_us now = clock_mono();
    size_t kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        if (stopping)
            op_fail(worker->engine, op, PERMIT_SHUTTING_DOWN, NULL);
        else if (refusing)
            op_fail(worker->engine, op, PERMIT_DATABASE_UNAVAILABLE, refusal);
        else if (op->deadline <= now || stage_is_answered(&op->stage))
            op_fail(worker->engine, op, status, NULL);
        else
            run->ops[kept++] = op;
    }
    return run->count = kept;
}

void run_fail_all(struct worker *worker, struct run *run, enum permit_status status)
{
    const char *detail = status == PERMIT_DATABASE_FULL ? "database storage full"
                         : status == PERMIT_TOO_LARGE   ? worker->store->message
                                                        : NULL;
    for (size_t i = 0; i < run->count; i++)
        op_fail(worker->engine, run->ops[i], status, detail);
    run->count = 0;
}

/* ---- a batch until it is decided ---- */

/* Returns the first semaphore of an operation; NULL: it has none. */
static const struct semaphore_entry *first_entry(const struct op *op)
{
    return op->entry_count ? op->entries[0] : NULL;
}

/* Returns true if run_by_semaphore cannot split the run. */
static bool is_one_group(const struct run *run)
{
    for (size_t i = 1; i < run->count; i++)
        if (first_entry(run->ops[i]) != first_entry(run->ops[0]))
            return false;
    return true;
}

/*
 * One try of a batch. A lock time-out after the semaphores were locked (`applied`) concerns a row of one operation;
 * then the batch is split at once, so that the row does not delay the others.
 */
static enum permit_status try_run(struct transaction *transaction)
{
    struct run *run = CONTAINER_OF(transaction, struct run, transaction);
    enum permit_status status = attempt(run->worker, run);
    if (status == PERMIT_LOCK_TIMEOUT)
        transaction->waits_for_locks = !run->waits_once && !run->applied && is_one_group(run);
    return status;
}

enum run_mode {
    RUN_WHOLE,     /* a whole batch: its pre-locks are released when it is decided */
    RUN_PART,      /* a part of one */
    RUN_PART_ONCE, /* the same, and a row lock is waited for only once, because other parts wait */
};

static size_t run_until_decided(struct worker *worker, struct op **ops, size_t count, enum run_mode mode);

/*
 * Moves the operations that have the same first semaphore as the first one to the front; returns their number. All
 * others stay in their order, because those of one key are decided in it.
 */
static size_t group_by_semaphore(struct op **ops, size_t count)
{
    size_t size = 1;
    for (size_t i = 1; i < count; i++) {
        struct op *op = ops[i];
        if (first_entry(op) != first_entry(ops[0]))
            continue;
        memmove(ops + size + 1, ops + size, (i - size) * sizeof *ops);
        ops[size++] = op;
    }
    return size;
}

/*
 * Releases the pre-locks that these operations, which are left of a run, do not need, so that another worker can go on.
 * A part of a batch does not know what the other parts need.
 */
static void release_other_prelocks(const struct run *run, struct op *const *ops, size_t count)
{
    struct worker *worker = run->worker;
    struct engine *engine = worker->engine;
    if (!run->is_whole)
        return;
    engine_lock(engine);
    queue_release_others(&worker->batch, ops, count);
    if (engine->idle_workers && !queue_empty(&engine->queue))
        pthread_cond_signal(&engine->work);
    engine_unlock(engine);
}

/*
 * After a lock timeout: runs the operations that share their first semaphore together, so that one locked row delays
 * only them. First each group waits for its locks once; then those that did not get them wait until their deadlines.
 */
static void run_by_semaphore(struct worker *worker, struct run *run)
{
    struct op **ops = run->ops;
    const size_t count = run->count;
    size_t left = 0; /* operations that did not get their locks; they stand before those that have not run */
    for (size_t first = 0, next; first < count; first = next) {
        next = first + group_by_semaphore(ops + first, count - first);
        bool alone = next - first == count;
        size_t stay = run_until_decided(worker, ops + first, next - first, alone ? RUN_PART : RUN_PART_ONCE);
        memmove(ops + next - stay - left, ops + first - left, (left + stay) * sizeof *ops);
        left += stay;
        release_other_prelocks(run, ops + next - left, count - next + left);
    }
    for (size_t first = count - left, next; first < count; first = next) {
        next = first + group_by_semaphore(ops + first, count - first);
        (void)run_until_decided(worker, ops + first, next - first, RUN_PART);
        release_other_prelocks(run, ops + next, count - next);
    }
}

static void run_failed(struct transaction *transaction, enum permit_status status)
{
    worker_record_failure(CONTAINER_OF(transaction, struct run, transaction)->worker, status, "batch attempt failed");
}

/* Makes the next batches smaller after one that took too long. */
static void avoid_long_batches(struct worker *worker, const struct run *run)
{
    if (!run->transaction.was_too_long || run->most < 2)
        return;
    engine_lock(worker->engine);
    queue_halve_batches(&worker->engine->queue, run->most, clock_mono());
    engine_unlock(worker->engine);
}

/* Splits the run, so that only the operation that causes the error fails. A single one fails. */
static void run_split(struct worker *worker, struct run *run, enum permit_status status)
{
    if (status == PERMIT_LOCK_TIMEOUT && !run->applied) {
        run_by_semaphore(worker, run);
    } else if (run->count == 1) {
        run_fail_all(worker, run, status);
    } else {
        for (size_t i = 0; i < run->count; i++)
            (void)run_until_decided(worker, &run->ops[i], 1, RUN_PART);
    }
}

/*
 * Runs these operations until all are decided, put back or parked. RUN_PART_ONCE: returns how many are left, because
 * they did not get their locks; they are moved to the front.
 */
static size_t run_until_decided(struct worker *worker, struct op **ops, size_t count, enum run_mode mode)
{
    struct run run = {
        .transaction = {.drop_late = run_drop_late, .attempt = try_run, .failed = run_failed},
        .worker = worker,
        .ops = ops,
        .count = count,
        .most = count,
        .waits_once = mode == RUN_PART_ONCE,
        .is_whole = mode == RUN_WHOLE,
    };
    enum permit_status status = transaction_run(&run.transaction);
    avoid_long_batches(worker, &run);
    if (run.count == 0 || status != PERMIT_OK)
        run_cancel_grants(&run);
    if (run.count == 0)
        return 0;
    if (status == PERMIT_LOCK_TIMEOUT && run.waits_once && !run.applied)
        return run.count;
    if (status != PERMIT_OK) {
        run_split(worker, &run, status);
        return 0;
    }
    worker_recovered(worker);
    metrics_batch(&worker->engine->metrics, run.count, run.on_copies ? PATH_SHORT : PATH_LONG);
    deliver(worker, &run, mode == RUN_WHOLE);
    return 0;
}

/* ---- the task ---- */

/* Waits for work; false after PING_AFTER_MS without work. */
static bool wait_for_work(struct engine *engine) REQUIRES(engine_mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PING_AFTER_MS / MS_PER_SECOND;
    engine->idle_workers++;
    int result = engine_wait_until(engine, &engine->work, &until);
    engine->idle_workers--;
    return result != ETIMEDOUT;
}

static void run_batch(struct worker *worker)
{
    (void)run_until_decided(worker, worker->batch.ops, worker->batch.op_count, RUN_WHOLE);
    arena_clear(worker->arena); /* returns the memory of a large batch, because the next one may come late */
    engine_lock(worker->engine);
    queue_finish(&worker->batch); /* deliver has done it, unless the batch ran in parts */
    engine_unlock(worker->engine);
}

/* Connects and pings, so that the server does not end an idle session. */
static void check_session(struct worker *worker)
{
    enum permit_status status = task_connect(worker->task);
    if (status == PERMIT_OK)
        status = worker->store->session->keepalive(worker->store);
    if (status == PERMIT_OK)
        worker_recovered(worker);
    else
        log_failure(worker, status, "the database does not answer");
}

/*
 * Returns true if the batch was full before all queued operations were considered: another worker may find a batch. In
 * all other cases the remaining operations wait for a running batch, and its worker takes them next. To wake another
 * worker for them would take longer than the answers that this worker writes first.
 */
static bool batch_was_full(const struct engine *engine, const struct batch *batch) REQUIRES(engine_mutex)
{
    return batch->op_count >= engine->queue.batch_max || batch->entry_count == BATCH_MAX_SEMAPHORES ||
           operation_is_administrative(batch->ops[0]->operation->kind);
}

/* Resolves, runs one batch, or checks the session. The mutex is released meanwhile. */
static void work_once(struct worker *worker) REQUIRES(engine_mutex)
{
    struct engine *engine = worker->engine;
    size_t count =
        engine->resolving ? 0 : queue_take_unresolved(&engine->queue, worker->batch.ops, BATCH_MAX_OPERATIONS);
    mono_us now = clock_mono();
    bool taken = count == 0 && queue_take(&engine->queue, &worker->batch, now);
    if (taken)
        waitlist_prepare(engine, &worker->batch);
    if (count == 0 && !taken && wait_for_work(engine))
        return;
    engine->resolving |= count > 0;
    bool wake = taken && batch_was_full(engine, &worker->batch) && engine->idle_workers;
    engine_unlock(engine);
    if (wake)
        pthread_cond_signal(&engine->work);
    if (count)
        resolve_ops(worker, worker->batch.ops, count);
    else if (taken)
        run_batch(worker);
    else
        check_session(worker);
    engine_lock(engine);
    if (count)
        engine->resolving = false;
}

void worker_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct worker worker = {.task = task, .engine = engine, .store = task->store, .arena = &task->arena};
    if (worker.store)
        check_session(&worker);
    engine_lock(engine);
    while (!task_stopping(task))
        work_once(&worker);
    worker_drop_layouts(&worker);
    engine_unlock(engine);
}
