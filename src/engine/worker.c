/* SPDX-License-Identifier: MIT */
#include "engine/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plant.h"
#include "engine/failover.h"
#include "engine/waits.h"

enum {
    ID_BLOCK = 10000,
    TRIES_TOGETHER = 3,   /* of a batch, before its operations run one by one */
    TRIES_ALONE = 10,     /* of one operation, before it is told that we are busy */
    LOSSES_TOGETHER = 2,  /* lost connections, before the batch is split: it may be too much for one transaction */
    LONG_TRY_MS = 3000,   /* a try that lost the connection after so long counts as all of them */
    PING_AFTER_MS = 2000, /* less than the session's wait_timeout */
};

/* One batch of 500 requests with 64 long-named permits each stays below. */
enum { ARENA_CHUNK = 256 * 1024, ARENA_LIMIT = 256 * 1024 * 1024 };

static struct engine_settings settings_now(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    struct engine_settings settings = engine->settings;
    pthread_mutex_unlock(&engine->mutex);
    return settings;
}

/* ---- trouble ---- */

static void log_trouble(struct worker *worker, enum permit_status status, const char *what)
{
    bool serious = status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY;
    bool down = status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_UNAVAILABLE;
    if (serious || !worker->in_trouble)
        log_write(serious ? LOG_ERROR
                  : down  ? LOG_WARN
                          : LOG_DEBUG,
                  what, "status", permit_status_word(status), "error", worker->store->message, NULL);
    worker->in_trouble = down;
}

void all_is_well(struct worker *worker)
{
    if (worker->in_trouble)
        log_write(LOG_INFO, "database available again", NULL);
    worker->in_trouble = false;
    atomic_store_explicit(&worker->engine->metrics.database_up, true, memory_order_relaxed);
}

void pause_before_retry(enum permit_status status, unsigned tries)
{
    bool conflict = status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT;
    int64_t doubled = (int64_t)1 << (tries < 6 ? tries : 6);
    int64_t ms = jittered_ms(conflict ? min_i64(16, doubled) : min_i64(1000, 20 * doubled));
    struct timespec time = {.tv_sec = ms / MS_PER_SECOND, .tv_nsec = ms % MS_PER_SECOND * 1000000};
    nanosleep(&time, NULL);
}

static void count_retry(struct engine *engine, enum permit_status status)
{
    switch (status) {
    case PERMIT_CONFLICT: metrics_count(&engine->metrics.retries[BATCH_RETRY_CONFLICT]); break;
    case PERMIT_LOCK_TIMEOUT: metrics_count(&engine->metrics.retries[BATCH_RETRY_LOCK_TIMEOUT]); break;
    case PERMIT_DATABASE_LOST: metrics_count(&engine->metrics.retries[BATCH_RETRY_LOST]); break;
    default: metrics_count(&engine->metrics.retries[BATCH_RETRY_UNAVAILABLE]); break;
    }
    if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_UNAVAILABLE)
        atomic_store_explicit(&engine->metrics.database_up, false, memory_order_relaxed);
}

void note_failure(struct worker *worker, enum permit_status status, const char *what)
{
    log_trouble(worker, status, what);
    count_retry(worker->engine, status);
    (void)store_rollback(worker->store);
}

/* P5: "no capacity" is said only by a plan. The outcome of an operation that was sent with a COMMIT is unknown. */
void give_up(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
{
    if (stage_is_sent(&op->stage))
        status = PLANTED(8) ? PERMIT_NO_CAPACITY : PERMIT_OUTCOME_UNKNOWN;
    else if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_FULL)
        status = PERMIT_DATABASE_UNAVAILABLE;
    else if (status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_NO_MEMORY)
        status = PERMIT_BUSY;
    decide_status(engine, op, status, detail);
}

/* Its clients were answered without a decision. */
static bool is_answered(struct engine *engine, struct op *op)
{
    return op->stands ? waits_are_answered(engine, waiter_of(op)) : stage_is_answered(&op->stage);
}

void drop_late(struct worker *worker, struct run *run, enum permit_status status)
{
    bool stopping = atomic_load(&worker->engine->stopping);
    char refusal[STORE_MESSAGE_SIZE];
    bool refusing = atomic_load(&worker->engine->refusing) && engine_refusal(worker->engine, refusal);
    mono_us now = clock_mono();
    size_t kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        if (stopping)
            give_up(worker->engine, op, PERMIT_SHUTTING_DOWN, NULL);
        else if (refusing)
            give_up(worker->engine, op, PERMIT_DATABASE_UNAVAILABLE, refusal);
        else if (op->deadline <= now || is_answered(worker->engine, op))
            give_up(worker->engine, op, status, NULL);
        else
            run->ops[kept++] = op;
    }
    run->count = kept;
}

void give_up_all(struct worker *worker, struct run *run, enum permit_status status)
{
    const char *detail = status == PERMIT_DATABASE_FULL ? "database storage full" : NULL;
    for (size_t i = 0; i < run->count; i++)
        give_up(worker->engine, run->ops[i], status, detail);
    run->count = 0;
}

/* ---- one try ---- */

/* The distinct gates of the run, ascending. */
static size_t collect_gates(const struct run *run, struct gate **ret_gates)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        for (size_t j = 0; j < run->ops[i]->gate_count; j++) {
            struct gate *gate = run->ops[i]->gates[j];
            size_t at = count;
            while (at > 0 && ret_gates[at - 1]->id > gate->id)
                at--;
            if (at > 0 && ret_gates[at - 1] == gate)
                continue;
            memmove(ret_gates + at + 1, ret_gates + at, (count - at) * sizeof *ret_gates);
            ret_gates[at] = gate;
            count++;
        }
    return count;
}

/* What one acquire needs to see of a semaphore's slots; names are appended to set->named, which has room. */
static void add_want(struct slots_wanted *set, struct slot_name *named, const struct want *want, enum place place)
{
    if (want->named_count) {
        memcpy(named + set->named_count, want->named, want->named_count * sizeof *named);
        set->named_count += want->named_count;
    }
    bool all = want->adjacent && !want->named_count;
    if (place != PLACE_BEHIND) /* a named slot may be the lowest, and then it is not there for whoever wants any */
        set->free += all ? SLOTS_MAX_CAPACITY : min_i64(want->count, SLOTS_MAX_COUNT);
}

static size_t count_named(const struct run *run, uint64_t semaphore_id)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            count += operation->wants[j].semaphore_id == semaphore_id ? operation->wants[j].named_count : 0;
    }
    return count;
}

/* As many free slots as those ask of it who may be granted something, and all that are named. False: no memory. */
static bool slots_wanted(struct worker *worker, const struct run *run, uint64_t semaphore_id,
                         struct slots_wanted *ret_set)
{
    struct slots_wanted set = {0};
    size_t names = count_named(run, semaphore_id);
    struct slot_name *named = names ? arena_array(&worker->arena, names, sizeof *named) : NULL;
    if (names && !named)
        return false;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            if (operation->wants[j].semaphore_id == semaphore_id)
                add_want(&set, named, &operation->wants[j], operation->place);
    }
    set.free = min_i64(set.free, SLOTS_MAX_CAPACITY);
    set.named = named;
    *ret_set = set;
    return true;
}

/* The owners whose heartbeat acquires of the run rely on, each once. NULL: no memory. */
static const struct bytes *collect_owners(struct worker *worker, const struct run *run, size_t *ret_count)
{
    struct bytes *owners = arena_array(&worker->arena, run->count, sizeof *owners);
    size_t count = 0;
    for (size_t i = 0; owners && i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        bool there = operation->kind != OP_ACQUIRE || operation->ttl.kind != TTL_OWNER;
        for (size_t j = 0; j < count && !there; j++)
            there = bytes_equal(owners[j], operation->owner);
        if (!there)
            owners[count++] = operation->owner;
    }
    *ret_count = count;
    return owners;
}

static enum permit_status lock_rows(struct worker *worker, struct run *run)
{
    struct gate *gates[BATCH_MAX_SEMAPHORES + 1];
    uint64_t ids[BATCH_MAX_SEMAPHORES];
    struct slots_wanted slots[BATCH_MAX_SEMAPHORES] = {0};
    struct bytes *keys = arena_array(&worker->arena, run->count, sizeof *keys);
    if (!keys)
        return PERMIT_NO_MEMORY;
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = slots, .keys = keys};
    const struct operation *first = run->ops[0]->operation;
    if (operation_is_administrative(first->kind)) {
        set.semaphore_name = first->semaphore;
        set.all_slots = first->change && first->change->has_labels;
        return store_lock(worker->store, &set, &worker->arena, &run->view);
    }
    set.semaphore_count = collect_gates(run, gates);
    pthread_mutex_lock(&worker->engine->mutex);
    for (size_t i = 0; i < set.semaphore_count; i++) {
        ids[i] = gates[i]->id;
        slots[i].free = gates[i]->kind == KIND_COUNTED ? 0 : 1;
    }
    pthread_mutex_unlock(&worker->engine->mutex);
    for (size_t i = 0; i < set.semaphore_count; i++)
        if (slots[i].free && !slots_wanted(worker, run, ids[i], &slots[i]))
            return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < run->count; i++)
        keys[set.key_count++] = run->ops[i]->operation->external_id;
    set.owners = collect_owners(worker, run, &set.owner_count);
    return set.owners ? store_lock(worker->store, &set, &worker->arena, &run->view) : PERMIT_NO_MEMORY;
}

/* "Only if a wanted semaphore is short and its next_due_at has passed: one more read." */
static enum permit_status read_due(struct worker *worker, struct run *run, const struct operation *const *operations)
{
    struct shortfall *shortfalls = arena_array(&worker->arena, run->view.semaphore_count, sizeof *shortfalls);
    if (!shortfalls)
        return PERMIT_NO_MEMORY;
    size_t count = plan_shortfalls(&run->view, operations, run->count, shortfalls);
    return count ? store_read_due(worker->store, shortfalls, count, &worker->arena, &run->view) : PERMIT_OK;
}

/* Ids that a failed transaction used are not used again: its outcome may not be known. */
static enum permit_status make_plan(struct worker *worker, struct run *run)
{
    const struct operation **operations = arena_array(&worker->arena, run->count, sizeof *operations);
    if (!operations)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < run->count; i++)
        operations[i] = run->ops[i]->operation;
    struct engine_settings settings = settings_now(worker->engine);
    enum permit_status status = read_due(worker, run, operations);
    if (status == PERMIT_OK)
        status =
            plan_batch(&run->view, operations, run->count, worker->ids, &settings.plan, &worker->arena, &run->plan);
    if (status == PERMIT_OK)
        worker->ids.next += run->plan.ids_used;
    return status;
}

/* The packet writes nothing of an operation that is put back, or that is refused and may wait. */
static bool is_written(const struct outcome *outcome)
{
    return !outcome->put_back && !outcome->may_wait;
}

/* P22. False: a client was answered since the batch began; the packet must not be sent with what was planned for it. */
static bool mark_sent(struct worker *worker, struct run *run)
{
    bool sendable = true;
    for (size_t i = 0; i < run->count && sendable; i++)
        if (is_written(&run->plan.outcomes[i]))
            sendable = run->ops[i]->stands ? waits_send(worker->engine, waiter_of(run->ops[i]))
                                           : stage_send(&run->ops[i]->stage);
    return sendable;
}

/* Nothing changed: ROLLBACK, no flush. Otherwise write and commit; the next try drops what was answered meanwhile. */
static enum permit_status write_changes(struct worker *worker, struct run *run)
{
    if (run->plan.changes.empty)
        return store_rollback(worker->store);
    if (!mark_sent(worker, run)) {
        snprintf(worker->store->message, sizeof worker->store->message, "a client timed out before COMMIT");
        return PERMIT_CONFLICT;
    }
    run->applied = true;
    enum permit_status status = store_apply(worker->store, &run->plan.changes);
    return PLANTED(17) && status == PERMIT_DATABASE_LOST ? PERMIT_OK : status;
}

/* ---- another server ---- */

/* The batch runs again on the server that serves then, with ids that are reserved there. */
static enum permit_status fail_over(struct worker *worker, enum epoch_cause cause, uint64_t seen)
{
    enum permit_status status = store_rollback(worker->store);
    if (status == PERMIT_OK)
        status = failover_run(worker->engine, worker->store, cause, seen);
    worker->ids = (struct id_range){0};
    return status == PERMIT_OK ? PERMIT_CONFLICT : status;
}

/*
 * Whether what was locked may be used. Ids of an epoch before may be in use again: they were reserved at another
 * server, or before an older copy took over.
 */
static enum permit_status check_server(struct worker *worker, const struct view *view)
{
    if (!view->same_server)
        return fail_over(worker, EPOCH_SERVER, view->epoch);
    if (failover_tokens_behind(worker->engine, view))
        return fail_over(worker, EPOCH_TOKENS, view->epoch);
    if (worker->ids_epoch == view->epoch)
        return PERMIT_OK;
    worker->ids = (struct id_range){0};
    return PERMIT_CONFLICT;
}

/* A session, of the server that serves now, and ids for whatever the batch may insert. */
static enum permit_status prepare_try(struct worker *worker)
{
    unsigned servers = atomic_load(&worker->engine->servers);
    if (servers != worker->servers)
        store_disconnect(worker->store);
    worker->servers = servers;
    enum permit_status status = store_reconnect(worker->store);
    if (status == PERMIT_OK && worker->ids.end - worker->ids.next < BATCH_MAX_OPERATIONS)
        status = store_reserve_ids(worker->store, ID_BLOCK, &worker->ids, &worker->ids_epoch);
    return status;
}

static enum permit_status try_run(struct worker *worker, struct run *run)
{
    arena_clear(&worker->arena);
    run->applied = false;
    enum permit_status status = prepare_try(worker);
    if (status == PERMIT_OK)
        status = lock_rows(worker, run);
    if (status == PERMIT_OK)
        status = check_server(worker, &run->view);
    if (status == PERMIT_OK)
        status = make_plan(worker, run);
    if (status == PERMIT_OK)
        status = write_changes(worker, run);
    return status;
}

/* ---- a batch until it is decided ---- */

static void run_until_decided(struct worker *worker, struct op **ops, size_t count, bool open_gates);

/* Each operation in a transaction of its own: only the guilty one fails. */
static void run_one_by_one(struct worker *worker, struct run *run)
{
    for (size_t i = 0; i < run->count; i++)
        run_until_decided(worker, &run->ops[i], 1, false);
}

/* After a lock time-out: operations that share their first semaphore stay together, so that one stuck row stops only
 * them. */
static void run_by_semaphore(struct worker *worker, struct run *run)
{
    for (size_t first = 0, next; first < run->count; first = next) {
        const struct gate *gate = run->ops[first]->gate_count ? run->ops[first]->gates[0] : NULL;
        next = first + 1;
        for (size_t i = next; i < run->count; i++) {
            struct op *op = run->ops[i];
            if ((op->gate_count ? op->gates[0] : NULL) != gate)
                continue;
            run->ops[i] = run->ops[next];
            run->ops[next++] = op;
        }
        run_until_decided(worker, &run->ops[first], next - first, false);
    }
}

static bool one_semaphore(const struct run *run)
{
    for (size_t i = 1; i < run->count; i++)
        if (run->ops[i]->gate_count != run->ops[0]->gate_count ||
            (run->ops[0]->gate_count && run->ops[i]->gates[0] != run->ops[0]->gates[0]))
            return false;
    return true;
}

enum next_step { TRY_AGAIN, ONE_BY_ONE, BY_SEMAPHORE, GIVE_UP };

/*
 * Transient errors: the batch again, then its parts. Others: its parts at once. What stands alone fails alone. A lock
 * time-out behind the locks of the semaphores is about a row of one operation: the others do not wait for that row.
 * `losses`: how many tries have lost the connection.
 */
static enum next_step after_failure(enum permit_status status, const struct run *run, unsigned tries, unsigned losses)
{
    switch (status) {
    case PERMIT_DATABASE_LOST:
        return losses < LOSSES_TOGETHER || run->count == 1 ? TRY_AGAIN : ONE_BY_ONE; /* until the deadlines */
    case PERMIT_DATABASE_UNAVAILABLE: return TRY_AGAIN;                              /* until the deadlines */
    case PERMIT_LOCK_TIMEOUT:
        if (run->applied)
            return run->count > 1 ? ONE_BY_ONE : GIVE_UP;
        return one_semaphore(run) ? TRY_AGAIN : BY_SEMAPHORE;
    case PERMIT_CONFLICT:
        if (tries < TRIES_TOGETHER)
            return TRY_AGAIN;
        if (run->count > 1)
            return ONE_BY_ONE;
        return tries < TRIES_ALONE ? TRY_AGAIN : GIVE_UP;
    default: return run->count > 1 ? ONE_BY_ONE : GIVE_UP;
    }
}

static void run_until_decided(struct worker *worker, struct op **ops, size_t count, bool open_gates)
{
    struct run run = {.ops = ops, .count = count};
    enum permit_status status = PERMIT_BUSY;
    unsigned losses = 0;
    for (unsigned tries = 1; run.count; tries++) {
        drop_late(worker, &run, status);
        if (run.count == 0)
            break;
        mono_us began = clock_mono();
        status = try_run(worker, &run);
        if (status == PERMIT_DATABASE_LOST)
            losses += clock_mono() - began < LONG_TRY_MS * US_PER_MS ? 1 : LOSSES_TOGETHER;
        if (status == PERMIT_OK) {
            all_is_well(worker);
            metrics_batch(&worker->engine->metrics, run.count);
            deliver(worker, &run, open_gates);
            return;
        }
        note_failure(worker, status, "batch attempt failed");
        switch (after_failure(status, &run, tries, losses)) {
        case TRY_AGAIN: pause_before_retry(status, tries); break;
        case ONE_BY_ONE: run_one_by_one(worker, &run); return;
        case BY_SEMAPHORE: run_by_semaphore(worker, &run); return;
        case GIVE_UP: give_up_all(worker, &run, status); return;
        }
    }
}

/* ---- the thread ---- */

/* Waits for work; false after a while without any. Engine's mutex held. */
static bool wait_for_work(struct engine *engine)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PING_AFTER_MS / MS_PER_SECOND;
    engine->idle_workers++;
    int result = pthread_cond_timedwait(&engine->work, &engine->mutex, &until);
    engine->idle_workers--;
    return result != ETIMEDOUT;
}

static void run_batch(struct worker *worker)
{
    run_until_decided(worker, worker->batch.ops, worker->batch.op_count, true);
    pthread_mutex_lock(&worker->engine->mutex);
    queue_finish(&worker->engine->queue, &worker->batch); /* nothing left to do, unless the batch ran in parts */
    pthread_mutex_unlock(&worker->engine->mutex);
}

static void keep_session(struct worker *worker)
{
    enum permit_status status = store_reconnect(worker->store);
    if (status == PERMIT_OK)
        status = store_ping(worker->store);
    if (status == PERMIT_OK)
        all_is_well(worker);
    else
        log_trouble(worker, status, "the database does not answer");
}

/*
 * True if the batch had to stop before it had looked at all that waits: another worker may find something. In all other
 * cases what is left waits for a batch that runs, and its worker comes back for it: waking somebody else to take over
 * would take longer than the answers that this one writes first.
 */
static bool left_others(const struct batch *batch)
{
    return batch->op_count >= BATCH_MAX_PENDING || batch->gate_count == BATCH_MAX_SEMAPHORES ||
           operation_is_administrative(batch->ops[0]->operation->kind);
}

/* One piece of work, or a look at the session. Engine's mutex held, let go in between. */
static void work_once(struct worker *worker)
{
    struct engine *engine = worker->engine;
    size_t count =
        engine->resolving ? 0 : queue_take_unresolved(&engine->queue, worker->batch.ops, BATCH_MAX_OPERATIONS);
    mono_us now = clock_mono();
    bool taken = count == 0 && queue_take(&engine->queue, &worker->batch, now, waits_aged_since(engine, now));
    if (count == 0 && !taken && wait_for_work(engine))
        return;
    engine->resolving |= count > 0;
    bool wake = taken && left_others(&worker->batch) && engine->idle_workers;
    pthread_mutex_unlock(&engine->mutex);
    if (wake)
        pthread_cond_signal(&engine->work);
    if (count)
        resolve_ops(worker, worker->batch.ops, count);
    else if (taken)
        run_batch(worker);
    else
        keep_session(worker);
    pthread_mutex_lock(&engine->mutex);
    if (count)
        engine->resolving = false;
}

void *worker_thread(void *context)
{
    struct engine *engine = context;
    struct worker worker = {.engine = engine};
    session_thread_begin();
    arena_init(&worker.arena, ARENA_CHUNK, ARENA_LIMIT);
    worker.store = engine_open_store(engine, "worker");
    if (worker.store)
        keep_session(&worker);
    pthread_mutex_lock(&engine->mutex);
    while (!atomic_load(&engine->stopping))
        work_once(&worker);
    pthread_mutex_unlock(&engine->mutex);
    arena_release(&worker.arena);
    store_free(worker.store);
    session_thread_end();
    return NULL;
}
