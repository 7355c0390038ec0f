/* SPDX-License-Identifier: MIT */
/*
 * A worker: one thread, one session of the store, straight blocking code. It takes what may run, runs it as one
 * transaction, runs it again on any error (the whole batch from step 0, then one by one, so that only the guilty
 * operation fails), and decides the operations after COMMIT returned.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"

enum {
    ID_BLOCK = 10000,
    TRIES_TOGETHER = 3,   /* of a batch, before its operations run one by one */
    TRIES_ALONE = 10,     /* of one operation, before it is told that we are busy */
    MAX_PUT_BACKS = 3,    /* of an acquire that does not wait */
    PING_AFTER_MS = 2000, /* less than the session's wait_timeout */
    NAME_DETAIL_SIZE = 320,
};

/* One batch of 500 requests with 64 long-named permits each stays below. */
enum { ARENA_CHUNK = 256 * 1024, ARENA_LIMIT = 256 * 1024 * 1024 };

struct worker {
    struct engine *engine;
    struct store *store;
    struct arena arena; /* of one try */
    struct id_range ids;
    struct batch batch;
    bool in_trouble; /* the last call failed: logged once */
};

/* A part of the batch that runs in one transaction. */
struct run {
    struct op **ops;
    size_t count;
    struct view view;
    struct plan plan;
};

static struct engine_settings settings_now(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    struct engine_settings settings = engine->settings;
    pthread_mutex_unlock(&engine->mutex);
    return settings;
}

/* --- trouble -------------------------------------------------------------------------------------------------------
 */

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

static void all_is_well(struct worker *worker)
{
    if (worker->in_trouble)
        log_write(LOG_INFO, "the database answers again", NULL);
    worker->in_trouble = false;
    atomic_store_explicit(&worker->engine->metrics.database_up, true, memory_order_relaxed);
}

static void nap(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / MS_PER_SECOND, .tv_nsec = ms % MS_PER_SECOND * 1000000};
    nanosleep(&time, NULL);
}

/* How long to wait before the next try: at once with jitter after a conflict, with back-off while the database is away.
 */
static int64_t pause_ms(enum permit_status status, unsigned tries)
{
    if (status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT)
        return jittered_ms(2);
    return jittered_ms(min_i64(1000, 20LL << (tries < 6 ? tries : 6)));
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

/* P5: "no capacity" is said only by a plan; who was ever in a packet with COMMIT is told that we do not know. */
static void give_up(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
{
    if (atomic_load(&op->commit_sent))
        status = PERMIT_OUTCOME_UNKNOWN;
    else if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_FULL)
        status = PERMIT_DATABASE_UNAVAILABLE;
    else if (status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_NO_MEMORY)
        status = PERMIT_BUSY;
    decide_status(engine, op, status, detail);
}

/* Drops from the run what is past its deadline, or everything when the engine stops. */
static void drop_late(struct worker *worker, struct run *run, enum permit_status status)
{
    bool stopping = atomic_load(&worker->engine->stopping);
    mono_us now = clock_mono();
    size_t kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        if (stopping)
            give_up(worker->engine, op, PERMIT_SHUTTING_DOWN, NULL);
        else if (op->deadline <= now)
            give_up(worker->engine, op, status, NULL);
        else
            run->ops[kept++] = op;
    }
    run->count = kept;
}

/* --- one try -------------------------------------------------------------------------------------------------------
 */

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

/* As many free slots as the newcomers ask of it; none if it is counted. */
static int64_t slots_wanted(const struct run *run, const struct gate *gate)
{
    int64_t wanted = 0;
    for (size_t i = 0; i < run->count && gate->kind != KIND_COUNTED; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            if (operation->wants[j].semaphore_id == gate->id)
                wanted += min_i64(operation->wants[j].count, SLOTS_MAX_COUNT);
    }
    return min_i64(wanted, SLOTS_MAX_CAPACITY);
}

static enum permit_status lock_rows(struct worker *worker, struct run *run)
{
    struct gate *gates[BATCH_MAX_SEMAPHORES + 1];
    uint64_t ids[BATCH_MAX_SEMAPHORES];
    int64_t slots[BATCH_MAX_SEMAPHORES];
    struct bytes *keys = arena_array(&worker->arena, run->count, sizeof *keys);
    if (!keys)
        return PERMIT_NO_MEMORY;
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = slots, .keys = keys};
    const struct operation *first = run->ops[0]->operation;
    if (operation_is_administrative(first->kind)) {
        set.semaphore_name = first->semaphore;
        return store_lock(worker->store, &set, &worker->arena, &run->view);
    }
    set.semaphore_count = collect_gates(run, gates);
    for (size_t i = 0; i < set.semaphore_count; i++) {
        ids[i] = gates[i]->id;
        slots[i] = slots_wanted(run, gates[i]);
    }
    for (size_t i = 0; i < run->count; i++)
        keys[set.key_count++] = run->ops[i]->operation->external_id;
    return store_lock(worker->store, &set, &worker->arena, &run->view);
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
    enum permit_status status =
        plan_batch(&run->view, operations, run->count, worker->ids, &settings.plan, &worker->arena, &run->plan);
    if (status == PERMIT_OK)
        worker->ids.next += run->plan.ids_used;
    return status;
}

/* Nothing changed: ROLLBACK, no flush. Otherwise write and commit; from here on a lost answer means "unknown". */
static enum permit_status write_changes(struct worker *worker, struct run *run)
{
    if (run->plan.changes.empty)
        return store_rollback(worker->store);
    for (size_t i = 0; i < run->count; i++)
        atomic_store_explicit(&run->ops[i]->commit_sent, true, memory_order_relaxed);
    return store_apply(worker->store, &run->plan.changes);
}

static enum permit_status try_run(struct worker *worker, struct run *run)
{
    arena_clear(&worker->arena);
    enum permit_status status = store_reconnect(worker->store);
    if (status == PERMIT_OK && worker->ids.end - worker->ids.next < BATCH_MAX_OPERATIONS)
        status = store_reserve_ids(worker->store, ID_BLOCK, &worker->ids);
    if (status != PERMIT_OK)
        return status;
    status = lock_rows(worker, run);
    if (status == PERMIT_OK)
        status = make_plan(worker, run);
    if (status == PERMIT_OK)
        status = write_changes(worker, run);
    if (status != PERMIT_OK) {
        log_trouble(worker, status, "a batch has to be run again");
        (void)store_rollback(worker->store);
    }
    return status;
}

/* --- after COMMIT --------------------------------------------------------------------------------------------------
 */

/* What one outcome changes of what this process remembers. Engine's mutex held. */
static void remember(struct engine *engine, const struct op *op, const struct outcome *outcome)
{
    struct queue *queue = &engine->queue;
    bool held = outcome->status == PERMIT_OK && outcome->request && outcome->request->state == REQUEST_ACQUIRED;
    if (op->operation->kind == OP_ACQUIRE && held) {
        uint64_t ids[REQUEST_MAX_SEMAPHORES];
        for (size_t i = 0; i < op->gate_count; i++)
            ids[i] = op->gates[i]->id;
        directory_put(&queue->directory, op->operation->external_id, ids, op->gate_count);
    } else if (outcome->request && !held) {
        directory_forget(&queue->directory, op->operation->external_id);
    }
    for (size_t i = 0; i < op->gate_count; i++) {
        op->gates[i]->floor_stale = true;
        if (outcome->status == PERMIT_UNKNOWN_SEMAPHORE)
            gates_forget_name(&queue->gates, op->gates[i]);
    }
}

static bool may_come_back(const struct op *op)
{
    return op->operation->kind != OP_ACQUIRE || op->put_backs <= MAX_PUT_BACKS;
}

/* True if the op is in the queue again. Engine's mutex held. */
static bool put_back(struct engine *engine, struct op *op, const struct outcome *outcome)
{
    op->put_backs++;
    metrics_count(&engine->metrics.put_backs);
    if (!may_come_back(op) || outcome->need_count > BATCH_MAX_SEMAPHORES ||
        !queue_set_gates(&engine->queue, op, outcome->needs, outcome->need_count))
        return false;
    queue_put_back(&engine->queue, op);
    return true;
}

/* What a refusal is told of the holders, if that is known already and fresh. Engine's mutex held. */
static bool take_fresh_holders(struct engine *engine, const struct outcome *outcome, mono_us now,
                               struct holders **ret_holders)
{
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        struct gate *gate = gates_find(&engine->queue.gates, outcome->shortages[i].semaphore_id);
        if (!gate || !gate->holders || now - gate->holders->read_at > HOLDERS_FRESH_US) {
            while (i-- > 0)
                holders_unref(ret_holders[i]);
            return false;
        }
        ret_holders[i] = gate->holders;
        ret_holders[i]->references++;
    }
    return true;
}

/* "for no_capacity at most the time to next_due_at": a unit may come back by itself. */
static int64_t retry_after_shortage(const struct view *view, const struct outcome *outcome)
{
    int64_t ms = jittered_ms(1000);
    utc_us now = served_time(&view->clock, view->now);
    for (size_t i = 0; i < outcome->shortage_count; i++)
        for (size_t j = 0; j < view->semaphore_count; j++) {
            const struct semaphore *semaphore = &view->semaphores[j];
            if (semaphore->id == outcome->shortages[i].semaphore_id && semaphore->next_due_at != NEVER)
                ms = min_i64(ms, (semaphore->next_due_at - now) / US_PER_MS);
        }
    return max_i64(ms, 50);
}

/* The name in the op's own memory, which lives as long as the refusal. */
static struct bytes own_name(const struct operation *operation, struct bytes name)
{
    for (size_t i = 0; i < operation->want_count; i++)
        if (bytes_equal(operation->wants[i].semaphore, name))
            return operation->wants[i].semaphore;
    return (struct bytes){0};
}

static struct refusal *refusal_new(struct op *op, const struct view *view, const struct outcome *outcome)
{
    struct refusal *refusal = malloc(sizeof *refusal + outcome->shortage_count * sizeof refusal->shortages[0]);
    if (!refusal)
        return NULL;
    refusal->op = op;
    refusal->clock = view->clock;
    refusal->now = view->now;
    refusal->retry_after_ms = retry_after_shortage(view, outcome);
    refusal->count = outcome->shortage_count;
    for (size_t i = 0; i < outcome->shortage_count; i++) {
        refusal->shortages[i] = outcome->shortages[i];
        refusal->shortages[i].semaphore = own_name(op->operation, outcome->shortages[i].semaphore);
    }
    return refusal;
}

/* Says who holds what is missing: at once if we know, else by way of the reader. */
static void refuse_no_capacity(struct engine *engine, struct op *op, const struct view *view,
                               const struct outcome *outcome)
{
    struct refusal *refusal = refusal_new(op, view, outcome);
    if (!refusal) {
        decide_status(engine, op, PERMIT_NO_CAPACITY, NULL);
        return;
    }
    struct holders *holders[REQUEST_MAX_SEMAPHORES];
    pthread_mutex_lock(&engine->mutex);
    bool known = take_fresh_holders(engine, outcome, clock_mono(), holders);
    if (!known) {
        list_append(&engine->refusal_list, &refusal->node);
        pthread_cond_signal(&engine->looks);
    }
    pthread_mutex_unlock(&engine->mutex);
    if (known)
        decide_refusal(engine, refusal, holders);
}

static struct bytes name_in_view(const struct view *view, uint64_t semaphore_id)
{
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            return view->semaphores[i].name;
    return (struct bytes){0};
}

/* Only this worker's gates are looked at, which nobody else changes but for the floor: read under the mutex before. */
static void decide_outcome(struct worker *worker, struct run *run, size_t index, const uint64_t *floors_of_run)
{
    struct op *op = run->ops[index];
    const struct outcome *outcome = &run->plan.outcomes[index];
    if (outcome->status == PERMIT_NO_CAPACITY) {
        refuse_no_capacity(worker->engine, op, &run->view, outcome);
        return;
    }
    struct bytes names[REQUEST_MAX_SEMAPHORES];
    uint64_t floors[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; outcome->request && i < outcome->request->permit_count; i++) {
        uint64_t semaphore_id = outcome->request->permits[i].semaphore_id;
        names[i] = name_in_view(&run->view, semaphore_id);
        floors[i] = 1;
        for (size_t j = 0; j < run->view.semaphore_count; j++)
            if (run->view.semaphores[j].id == semaphore_id)
                floors[i] = floors_of_run[j];
    }
    struct decision decision = {
        .outcome = outcome,
        .status = outcome->status,
        .detail = outcome->detail,
        .clock = &run->view.clock,
        .now = run->view.now,
        .semaphore_names = names,
        .floors = floors,
    };
    if (outcome->status == PERMIT_OK && op->operation->kind == OP_RELEASE && !outcome->already_released)
        metrics_count(&worker->engine->metrics.ended[outcome->request->end_reason]);
    decide(worker->engine, op, &decision);
}

static uint64_t *copy_floors(struct worker *worker, const struct view *view)
{
    uint64_t *floors = arena_array(&worker->arena, view->semaphore_count, sizeof *floors);
    for (size_t i = 0; floors && i < view->semaphore_count; i++) {
        const struct gate *gate = gates_find(&worker->engine->queue.gates, view->semaphores[i].id);
        floors[i] = gate ? gate->floor : 1;
    }
    return floors;
}

/*
 * The run is durable. Under the mutex: what came back goes into the queue, caches learn, and the gates open, so that
 * the next batch starts while this one's answers are still being written.
 */
static void deliver(struct worker *worker, struct run *run, bool open_gates)
{
    struct engine *engine = worker->engine;
    bool *done = arena_array(&worker->arena, run->count, sizeof *done);
    bool *back = arena_array(&worker->arena, run->count, sizeof *back);
    pthread_mutex_lock(&engine->mutex);
    uint64_t *floors = copy_floors(worker, &run->view);
    bool whole = done && back && floors;
    for (size_t i = 0; whole && i < run->count; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        if (outcome->put_back)
            back[i] = put_back(engine, run->ops[i], outcome);
        else
            remember(engine, run->ops[i], outcome);
    }
    if (open_gates)
        queue_finish(&engine->queue, &worker->batch);
    if (engine->idle_workers && !queue_empty(&engine->queue))
        pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->mutex);
    for (size_t i = 0; i < run->count; i++) {
        if (!whole)
            give_up(engine, run->ops[i], PERMIT_NO_MEMORY, NULL);
        else if (!run->plan.outcomes[i].put_back)
            decide_outcome(worker, run, i, floors);
        else if (!back[i])
            decide_status(engine, run->ops[i], may_come_back(run->ops[i]) ? PERMIT_BUSY : PERMIT_NO_CAPACITY,
                          "the semaphores it needs are busy");
    }
}

/* --- a batch until it is decided -----------------------------------------------------------------------------------
 */

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

static void give_up_all(struct worker *worker, struct run *run, enum permit_status status)
{
    char detail[STORE_MESSAGE_SIZE + 32];
    snprintf(detail, sizeof detail, "%s", status == PERMIT_DATABASE_FULL ? "the database has no room" : "");
    for (size_t i = 0; i < run->count; i++)
        give_up(worker->engine, run->ops[i], status, detail[0] ? detail : NULL);
    run->count = 0;
}

enum next_step { TRY_AGAIN, ONE_BY_ONE, BY_SEMAPHORE, GIVE_UP };

/* Transient errors: the batch again, then its parts. Others: its parts at once. What stands alone fails alone. */
static enum next_step after_failure(enum permit_status status, const struct run *run, unsigned tries)
{
    switch (status) {
    case PERMIT_DATABASE_LOST:
    case PERMIT_DATABASE_UNAVAILABLE: return TRY_AGAIN; /* until the deadlines */
    case PERMIT_LOCK_TIMEOUT: return one_semaphore(run) ? TRY_AGAIN : BY_SEMAPHORE;
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
    for (unsigned tries = 1; run.count; tries++) {
        drop_late(worker, &run, status);
        if (run.count == 0)
            break;
        status = try_run(worker, &run);
        if (status == PERMIT_OK) {
            all_is_well(worker);
            metrics_batch(&worker->engine->metrics, run.count);
            deliver(worker, &run, open_gates);
            return;
        }
        count_retry(worker->engine, status);
        switch (after_failure(status, &run, tries)) {
        case TRY_AGAIN: nap(pause_ms(status, tries)); break;
        case ONE_BY_ONE: run_one_by_one(worker, &run); return;
        case BY_SEMAPHORE: run_by_semaphore(worker, &run); return;
        case GIVE_UP: give_up_all(worker, &run, status); return;
        }
    }
}

/* --- step 0 --------------------------------------------------------------------------------------------------------
 */

static size_t count_names(const struct run *run)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        count += run->ops[i]->operation->want_count;
    return count;
}

/* The names of the acquires, the keys of the others, in the order of the operations. */
static enum permit_status ask_store(struct worker *worker, const struct run *run, struct resolve *resolve)
{
    arena_clear(&worker->arena);
    resolve->names = arena_array(&worker->arena, count_names(run), sizeof *resolve->names);
    resolve->keys = arena_array(&worker->arena, run->count, sizeof *resolve->keys);
    if (!resolve->names || !resolve->keys)
        return PERMIT_NO_MEMORY;
    resolve->name_count = resolve->key_count = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            resolve->names[resolve->name_count++].name = operation->wants[j].semaphore;
        if (operation->kind != OP_ACQUIRE)
            resolve->keys[resolve->key_count++].external_id = operation->external_id;
    }
    enum permit_status status = store_reconnect(worker->store);
    return status == PERMIT_OK ? store_resolve(worker->store, resolve, &worker->arena) : status;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Ids for all wants of an acquire; the first name that is unknown otherwise. Engine's mutex held. */
static bool learn_wants(struct engine *engine, struct op *op, const struct resolve_name *names,
                        struct bytes *ret_unknown)
{
    const struct operation *operation = op->operation;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < operation->want_count; i++) {
        *ret_unknown = names[i].name;
        if (names[i].ret_id == 0)
            return false;
        gates_learn(&engine->queue.gates, names[i].ret_id, names[i].name, names[i].ret_kind, names[i].ret_floor);
        operation->wants[i].semaphore_id = ids[i] = names[i].ret_id;
    }
    qsort(ids, operation->want_count, sizeof *ids, compare_ids);
    ret_unknown->data = NULL;
    return queue_set_gates(&engine->queue, op, ids, operation->want_count);
}

static void decide_unknown_name(struct engine *engine, struct op *op, struct bytes name)
{
    char detail[NAME_DETAIL_SIZE];
    snprintf(detail, sizeof detail, "there is no semaphore \"%.*s\"", (int)name.length, name.data);
    decide_status(engine, op, PERMIT_UNKNOWN_SEMAPHORE, detail);
}

/* Into the queue with what was found, at the place of its arrival. */
static void settle_resolved(struct engine *engine, struct run *run, const struct resolve *resolve)
{
    const struct resolve_name *name = resolve->names;
    const struct resolve_key *key = resolve->keys;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        struct bytes unknown = {0};
        bool known;
        pthread_mutex_lock(&engine->mutex);
        if (op->operation->kind == OP_ACQUIRE) {
            known = learn_wants(engine, op, name, &unknown);
            name += op->operation->want_count;
        } else {
            known = queue_set_gates(&engine->queue, op, key->ret_semaphore_ids, key->ret_count);
            key++;
        }
        if (known)
            queue_put_back(&engine->queue, op);
        pthread_mutex_unlock(&engine->mutex);
        if (!known && unknown.data)
            decide_unknown_name(engine, op, unknown);
        else if (!known)
            decide_status(engine, op, PERMIT_BUSY, "out of memory");
    }
}

static void resolve_ops(struct worker *worker, struct op **ops, size_t count)
{
    struct run run = {.ops = ops, .count = count};
    enum permit_status status = PERMIT_BUSY;
    for (unsigned tries = 1; run.count; tries++) {
        drop_late(worker, &run, status);
        if (run.count == 0)
            return;
        struct resolve resolve;
        status = ask_store(worker, &run, &resolve);
        if (status == PERMIT_OK) {
            all_is_well(worker);
            settle_resolved(worker->engine, &run, &resolve);
            return;
        }
        log_trouble(worker, status, "looking up names and keys failed");
        count_retry(worker->engine, status);
        (void)store_rollback(worker->store);
        if (status == PERMIT_INTERNAL || tries > TRIES_ALONE) {
            give_up_all(worker, &run, status);
            return;
        }
        nap(pause_ms(status, tries));
    }
}

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

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
    if (worker->engine->idle_workers && !queue_empty(&worker->engine->queue))
        pthread_cond_signal(&worker->engine->work);
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

/* One piece of work, or a look at the session. Engine's mutex held, let go in between. */
static void work_once(struct worker *worker)
{
    struct engine *engine = worker->engine;
    size_t count = queue_take_unresolved(&engine->queue, worker->batch.ops, BATCH_MAX_OPERATIONS);
    bool taken = count == 0 && queue_take(&engine->queue, &worker->batch);
    if (count == 0 && !taken && wait_for_work(engine))
        return;
    pthread_mutex_unlock(&engine->mutex);
    if (count)
        resolve_ops(worker, worker->batch.ops, count);
    else if (taken)
        run_batch(worker);
    else
        keep_session(worker);
    pthread_mutex_lock(&engine->mutex);
}

void *worker_thread(void *context)
{
    struct engine *engine = context;
    struct worker *worker = calloc(1, sizeof *worker);
    session_thread_begin();
    struct store *store = worker ? engine->settings.open_store(engine->settings.open_context) : NULL;
    if (!store) {
        log_write(LOG_ERROR, "a worker cannot start: out of memory", NULL);
    } else {
        worker->engine = engine;
        worker->store = store;
        arena_init(&worker->arena, ARENA_CHUNK, ARENA_LIMIT);
        keep_session(worker);
        pthread_mutex_lock(&engine->mutex);
        while (!atomic_load(&engine->stopping))
            work_once(worker);
        pthread_mutex_unlock(&engine->mutex);
        arena_release(&worker->arena);
    }
    store_free(store);
    free(worker);
    session_thread_end();
    return NULL;
}
