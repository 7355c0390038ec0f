/* SPDX-License-Identifier: MIT */
#include "engine/worker.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/failover.h"
#include "engine/gather.h"
#include "engine/served_time.h"
#include "engine/short_path.h"
#include "engine/waitlist.h"

enum {
    ID_BLOCK = 10000,
    IDS_FEW = 4 * BATCH_MAX_OPERATIONS, /* other workers may take some, too, until the batch is planned */
    SLOTS_AHEAD = 512,                  /* free slots to read for copies */
    PING_AFTER_MS = 2000,               /* idle time before a ping; less than the session's wait_timeout */
};

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
    (void)store_rollback(worker->store);
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

/* ---- one try ---- */

const struct operation **run_operations(struct worker *worker, const struct run *run)
{
    const struct operation **operations = arena_array(worker->arena, run->count, sizeof *operations);
    for (size_t i = 0; operations && i < run->count; i++)
        operations[i] = run->ops[i]->operation;
    return operations;
}

size_t run_collect_entries(const struct run *run, struct semaphore_entry **ret_entries)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        for (size_t j = 0; j < run->ops[i]->entry_count; j++) {
            struct semaphore_entry *entry = run->ops[i]->entries[j];
            assert(entry->prelock_holder);
            size_t at = count;
            while (at > 0 && ret_entries[at - 1]->id > entry->id)
                at--;
            if (at > 0 && ret_entries[at - 1] == entry)
                continue;
            memmove(ret_entries + at + 1, ret_entries + at, (count - at) * sizeof *ret_entries);
            ret_entries[at] = entry;
            count++;
        }
    return count;
}

/*
 * Adds the slots that one acquire must see to the set. `named` is large enough for the specific slots of all acquires.
 */
static void add_slots_wanted(struct slots_wanted *set, struct slot_name *named, const struct want *want)
{
    if (want->named_count) {
        memcpy(named + set->named_count, want->named, want->named_count * sizeof *named);
        set->named_count += want->named_count;
    }
    bool all = want->adjacent && !want->named_count;
    /* A named slot may be among the free slots read, and is then lost to the others. */
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

struct plan_settings worker_plan_settings(const struct worker *worker)
{
    struct plan_settings settings = engine_plan_settings(worker->engine);
    settings.max_packet = worker->store->max_packet;
    return settings;
}

bool run_slots_wanted(struct worker *worker, const struct run *run, uint64_t semaphore_id, struct slots_wanted *ret_set)
{
    struct slots_wanted set = {0};
    size_t names = count_named(run, semaphore_id);
    struct slot_name *named = names ? arena_array(worker->arena, names, sizeof *named) : NULL;
    if (names && !named)
        return false;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            if (operation->wants[j].semaphore_id == semaphore_id)
                add_slots_wanted(&set, named, &operation->wants[j]);
    }
    set.free = min_i64(set.free, SLOTS_MAX_CAPACITY);
    set.named = named;
    *ret_set = set;
    return true;
}

/*
 * Returns how many waiters of a counted semaphore are read together with the locks: as many as its ends may let in,
 * because a hand-over without a round trip for them is faster, and a few more, because the first ones may block nobody.
 * A wrong guess costs a read.
 */
static size_t waiters_ahead(const struct run *run, const struct semaphore_entry *entry)
{
    enum { MORE = 2 };
    size_t ends = 0;
    for (size_t i = 0; i < run->count; i++)
        for (size_t j = 0; operation_ends_request(run->ops[i]->operation->kind) && j < run->ops[i]->entry_count; j++)
            ends += run->ops[i]->entries[j] == entry;
    if (ends == 0)
        return 0;
    return ends + MORE < QUEUE_READ_MAX ? ends + MORE : QUEUE_READ_MAX;
}

/* Returns true if an operation asks for a request that waits here, or was granted for a client here. */
static bool any_waiter_asks(const struct run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (op_is_of_waiter(run->ops[i]))
            return true;
    return false;
}

/* The distinct owners whose heartbeat acquires of the run depend on. NULL: out of memory. */
static const struct bytes *collect_owners(struct worker *worker, const struct run *run, size_t *ret_count)
{
    struct bytes *owners = arena_array(worker->arena, run->count, sizeof *owners);
    size_t count = 0;
    for (size_t i = 0; owners && i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        bool there = !operation_asks(operation->kind) || operation->ttl.kind != TTL_OWNER;
        for (size_t j = 0; j < count && !there; j++)
            there = bytes_equal(owners[j], operation->owner);
        if (!there)
            owners[count++] = operation->owner;
    }
    *ret_count = count;
    return owners;
}

/* Locks the semaphores of the run and reads the rows that its plan needs. */
static enum permit_status lock_rows(struct worker *worker, struct run *run)
{
    struct semaphore_entry *entries[BATCH_MAX_SEMAPHORES + 1];
    uint64_t ids[BATCH_MAX_SEMAPHORES];
    struct slots_wanted slots[BATCH_MAX_SEMAPHORES] = {0};
    size_t ahead[BATCH_MAX_SEMAPHORES];
    struct bytes *keys = arena_array(worker->arena, run->count, sizeof *keys);
    if (!keys)
        return PERMIT_NO_MEMORY;
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = slots, .waiters_ahead = ahead, .keys = keys, .goes_on = run->has_lock};
    const struct operation *first = run->ops[0]->operation;
    if (operation_is_administrative(first->kind)) {
        set.semaphore_name = first->semaphore;
        set.all_slots = first->change && first->change->has_labels;
        return store_lock(worker->store, &set, worker->arena, &run->view);
    }
    set.semaphore_count = run_collect_entries(run, entries);
    assert(set.semaphore_count <= BATCH_MAX_SEMAPHORES);
    engine_lock(worker->engine);
    bool short_path = worker->engine->settings.short_path;
    for (size_t i = 0; i < set.semaphore_count; i++) {
        ids[i] = entries[i]->id;
        assert(i == 0 || ids[i - 1] < ids[i]);
        slots[i].free = entries[i]->kind == KIND_COUNTED ? 0 : 1;
        ahead[i] = entries[i]->has_queue && !slots[i].free;
    }
    engine_unlock(worker->engine);
    for (size_t i = 0; i < set.semaphore_count; i++)
        if (ahead[i])
            ahead[i] = waiters_ahead(run, entries[i]);
    for (size_t i = 0; i < set.semaphore_count; i++)
        if (slots[i].free && !run_slots_wanted(worker, run, ids[i], &slots[i]))
            return PERMIT_NO_MEMORY;
    for (size_t i = 0; short_path && i < set.semaphore_count; i++)
        if (slots[i].free) /* for its copy, so that the next batches know enough */
            slots[i].free = max_i64(slots[i].free, SLOTS_AHEAD);
    for (size_t i = 0; i < run->count; i++)
        keys[set.key_count++] = run->ops[i]->operation->external_id;
    set.servers_ahead = any_waiter_asks(run);
    set.owners = collect_owners(worker, run, &set.owner_count);
    return set.owners ? store_lock(worker->store, &set, worker->arena, &run->view) : PERMIT_NO_MEMORY;
}

/*
 * Takes all free slots of a locked semaphore from its copy, if they are known there by the version that is locked: a
 * run of adjacent slots may be anywhere.
 */
static bool take_cached_slots(struct worker *worker, struct run *run, size_t index)
{
    struct engine *engine = worker->engine;
    const struct semaphore *semaphore = &run->view.semaphores[index];
    engine_lock(engine);
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, semaphore->id);
    const struct semaphore_copy *copy = entry ? rows_find(&engine->queue.rows, entry) : NULL;
    bool known = copy && copy->row.version == semaphore->version &&
                 semaphore_copy_load_slots(copy, SLOTS_MAX_CAPACITY + 1, worker->arena, &run->view.free_slots[index]);
    engine_unlock(engine);
    return known;
}

/* Reads these parts of queues, and the living servers, in one or two more packets. */
static enum permit_status read_waiters(struct worker *worker, struct run *run, const struct queue_read *reads,
                                       size_t count)
{
    struct slots_wanted *slots = arena_array(worker->arena, count, sizeof *slots);
    if (!slots)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct semaphore *semaphore = &run->view.semaphores[reads[i].semaphore];
        slots[i] = (struct slots_wanted){0};
        if (semaphore->kind != KIND_SLOTTED)
            continue;
        if (!run_slots_wanted(worker, run, semaphore->id, &slots[i]))
            return PERMIT_NO_MEMORY;
        if (take_cached_slots(worker, run, reads[i].semaphore))
            slots[i].free = SLOTS_KNOWN;
    }
    enum permit_status status = store_read_waiters(worker->store, reads, slots, count, worker->arena, &run->view);
    if (status == PERMIT_OK && !waitlist_list_subscribers(worker->engine, worker->arena, &run->view))
        status = PERMIT_NO_MEMORY;
    return status;
}

/* Reads, without locks, the other semaphores that waiters of the view want, as far as the plan asks for them. */
static enum permit_status read_glimpses(struct worker *worker, struct run *run, const struct plan_settings *settings)
{
    utc_us aged = lease_time(&run->view.clock, run->view.now) - settings->backfill_bound_us;
    enum permit_status status =
        store_read_glimpses(worker->store, run->plan.unknown, run->plan.unknown_count, aged, worker->arena, &run->view);
    if (status == PERMIT_OK && !waitlist_list_subscribers(worker->engine, worker->arena, &run->view))
        status = PERMIT_NO_MEMORY;
    return status;
}

/* Makes the reads of short queues complete that the cache does not know; it keeps them from then on. */
static void read_whole_queues(struct worker *worker, const struct run *run, struct queue_read *reads, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct semaphore *semaphore = &run->view.semaphores[reads[i].semaphore];
        if (semaphore->waiting <= QUEUE_READ_MAX && short_path_wants_queue(worker->engine, semaphore->id))
            reads[i].limit = QUEUE_READ_MAX;
    }
}

/*
 * Reads the waiters that the batch may grant, and plans it. Nothing is read if no semaphore has waiters with units to
 * grant and no key of the batch waits. The plan may ask for more: then it is made again.
 */
static enum permit_status plan_with_waiters(struct worker *worker, struct run *run,
                                            const struct operation *const *operations,
                                            const struct plan_settings *settings)
{
    enum { ROUNDS_MAX = 5 };
    struct queue_read *reads = arena_array(worker->arena, run->view.semaphore_count, sizeof *reads);
    if (!reads)
        return PERMIT_NO_MEMORY;
    bool servers = false;
    size_t count = plan_queue_reads(&run->view, operations, run->count, settings, worker->arena, reads, &servers);
    read_whole_queues(worker, run, reads, count);
    bool read = count > 0 || servers;
    enum permit_status status = PERMIT_OK;
    for (int round = 1; status == PERMIT_OK; round++) { /* the plan of the last one asks for nothing */
        if (read)
            status = read_waiters(worker, run, reads, count);
        run->view.reads_end = round == ROUNDS_MAX;
        if (status == PERMIT_OK)
            status = plan_batch(&run->view, operations, run->count, run->ids, settings, worker->arena, &run->plan);
        if (status != PERMIT_OK || !plan_reads_more(&run->plan))
            return status;
        read = plan_read_on(&run->plan, &run->view, settings, reads, &count);
        if (run->plan.unknown_count)
            status = read_glimpses(worker, run, settings);
    }
    return status;
}

/*
 * Reads due holders, if a requested semaphore has a deficit and its next_due_at has passed, and locks the rows of the
 * requests that the batch may end for others. If another session has locked due holders, reads more of them.
 */
static enum permit_status read_due_holders(struct worker *worker, struct run *run,
                                           const struct operation *const *operations)
{
    struct view *view = &run->view;
    struct shortfall *shortfalls = arena_array(worker->arena, view->semaphore_count, sizeof *shortfalls);
    if (!shortfalls)
        return PERMIT_NO_MEMORY;
    size_t count = plan_shortfalls(view, operations, run->count, shortfalls);
    enum permit_status status = PERMIT_OK;
    bool more = true;
    for (unsigned round = 0; more && status == PERMIT_OK; round++) {
        if (count)
            status = store_read_due(worker->store, shortfalls, count, worker->arena, view);
        uint64_t *ids = arena_array(worker->arena, view->request_count + run->count, sizeof *ids);
        if (status != PERMIT_OK || !ids)
            return status == PERMIT_OK ? PERMIT_NO_MEMORY : status;
        size_t id_count = plan_ends_for_others(view, operations, run->count, count > 0, ids);
        if (id_count)
            status = store_lock_requests(worker->store, ids, id_count, view);
        more = plan_read_past_locked(view, shortfalls, count, round);
    }
    return status;
}

/* ---- ids of new rows ---- */

/* Reserves ids for all workers, if few are left. */
static enum permit_status reserve_ids(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct id_range ids;
    uint64_t epoch;
    engine_lock(engine);
    bool enough = engine->ids.end - engine->ids.next >= IDS_FEW;
    engine_unlock(engine);
    if (enough)
        return PERMIT_OK;
    enum permit_status status = store_reserve_ids(worker->store, ID_BLOCK, &ids, &epoch);
    if (status != PERMIT_OK)
        return status;
    engine_lock(engine);
    if (epoch != engine->ids_epoch || ids.next > engine->ids.next) {
        engine->ids = ids;
        engine->ids_epoch = epoch;
    }
    engine_unlock(engine);
    return PERMIT_OK;
}

/*
 * Drops the ids unless they are of this epoch: another server, or the server before an older copy took over, reserved them,
 * and they may be in use again.
 */
static void drop_ids(struct engine *engine, uint64_t epoch)
{
    engine_lock(engine);
    if (engine->ids_epoch != epoch)
        engine->ids = (struct id_range){0};
    engine_unlock(engine);
}

bool run_take_ids(struct run *run)
{
    struct engine *engine = run->worker->engine;
    engine_lock(engine);
    bool enough = engine->ids_epoch == run->view.clock.epoch && engine->ids.end - engine->ids.next >= run->count;
    run->ids = (struct id_range){engine->ids.next, engine->ids.next + run->count};
    engine->ids.next += enough ? run->count : 0;
    engine_unlock(engine);
    return enough;
}

void run_keep_ids(struct run *run, uint64_t used)
{
    struct engine *engine = run->worker->engine;
    engine_lock(engine);
    if (engine->ids.next == run->ids.end)
        engine->ids.next = run->ids.next + used;
    engine_unlock(engine);
}

/* Plans the run. Consumes the ids even if the transaction fails, because its outcome may be unknown. */
static enum permit_status make_plan(struct worker *worker, struct run *run)
{
    const struct operation **operations = run_operations(worker, run);
    if (!operations)
        return PERMIT_NO_MEMORY;
    if (!run_take_ids(run))
        return PERMIT_CONFLICT; /* the next try reserves more */
    struct plan_settings settings = worker_plan_settings(worker);
    enum permit_status status = read_due_holders(worker, run, operations);
    if (status == PERMIT_OK)
        status = plan_with_waiters(worker, run, operations, &settings);
    assert(status != PERMIT_OK || run->plan.ids_used <= run->count);
    run_keep_ids(run, status == PERMIT_OK ? run->plan.ids_used : 0);
    return status;
}

bool run_mark_sent(struct run *run)
{
    bool sendable = true;
    for (size_t i = 0; i < run->count && sendable; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        bool writes = !outcome->may_wait || outcome->waits || operation_ends_wait(run->ops[i]->operation);
        if (outcome->put_back ? outcome->waits : writes)
            sendable = stage_send(&run->ops[i]->stage);
    }
    return sendable;
}

/*
 * Writes and commits; without changes it rolls back, which needs no flush. PERMIT_CONFLICT after an answered client, or
 * one that has left: the next try drops that operation, or does not grant.
 */
static enum permit_status write_changes(struct worker *worker, struct run *run)
{
    if (run->plan.changes.empty)
        return store_rollback(worker->store);
    enum permit_status status = store_prepare(worker->store, &run->plan.changes, NULL);
    if (status != PERMIT_OK)
        return status;
    if (!run_mark_sent(run))
        return PERMIT_CONFLICT;
    if (!waitlist_begin_grants(worker->engine, &run->plan))
        return PERMIT_CONFLICT;
    run->applied = true;
    return store_apply(worker->store, &run->plan.changes);
}

/* ---- failover ---- */

/* Handles a failover. PERMIT_CONFLICT: the batch runs again on the server that serves then, with new ids. */
static enum permit_status fail_over(struct worker *worker, enum epoch_cause cause, uint64_t seen)
{
    enum permit_status status = store_rollback(worker->store);
    if (status == PERMIT_OK)
        status = failover_run(worker->engine, worker->store, cause, seen);
    drop_ids(worker->engine, UINT64_MAX); /* of no epoch */
    return status == PERMIT_OK ? PERMIT_CONFLICT : status;
}

/* Checks that the locked rows may be used. */
static enum permit_status check_server(struct worker *worker, const struct view *view)
{
    if (!view->same_server)
        return fail_over(worker, EPOCH_SERVER, view->clock.epoch);
    if (failover_tokens_behind(worker->engine, view))
        return fail_over(worker, EPOCH_TOKENS, view->clock.epoch);
    drop_ids(worker->engine, view->clock.epoch);
    return PERMIT_OK;
}

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

void run_cancel_grants(struct run *run)
{
    if (run->applied && run->plan.notice_count)
        waitlist_cancel_grants(run->worker->engine, &run->plan);
    run->plan.notice_count = 0;
}

/* Notes the worker's session, before anything is sent, and the generation of copies that the try may store. */
static void note_session(struct worker *worker, struct run *run)
{
    struct engine *engine = worker->engine;
    engine_lock(engine);
    engine->queue.rows.generation += worker->sessions != worker->store->sessions;
    worker->sessions = worker->store->sessions;
    run->generation = engine->queue.rows.generation;
    engine_unlock(engine);
}

/*
 * One try of a batch. A lock time-out after the semaphores were locked (`applied`) concerns a row of one operation; then
 * the batch is split at once, so that the row does not delay the others.
 */
static enum permit_status try_run(struct transaction *transaction)
{
    struct run *run = CONTAINER_OF(transaction, struct run, transaction);
    struct worker *worker = run->worker;
    run_cancel_grants(run);
    arena_clear(worker->arena);
    run->applied = run->has_lock = false;
    enum permit_status status = task_connect(worker->task);
    note_session(worker, run);
    if (status == PERMIT_OK)
        status = reserve_ids(worker);
    bool done = false;
    if (status == PERMIT_OK && !run->goes_long) {
        run->goes_long = true;
        status = short_path_run(worker, run, &done);
        run->went_short = done;
        if (done)
            return PERMIT_OK;
        arena_clear(worker->arena);
        if (status == PERMIT_OK && run_drop_late(transaction, PERMIT_BUSY) == 0) /* its packet waited for too long */
            return PERMIT_OK;
    }
    if (status == PERMIT_OK)
        status = gather(worker, run);
    boot_us asked_at = clock_boot();
    if (status == PERMIT_OK)
        status = lock_rows(worker, run);
    boot_us answered_at = clock_boot();
    if (status == PERMIT_OK)
        status = check_server(worker, &run->view);
    if (status == PERMIT_OK)
        served_time_locked(worker->engine, &run->view, asked_at, answered_at);
    if (status == PERMIT_OK)
        status = make_plan(worker, run);
    if (status == PERMIT_OK)
        status = write_changes(worker, run);
    if (status == PERMIT_LOCK_TIMEOUT)
        transaction->waits_for_locks = !run->waits_once && !run->applied && is_one_group(run);
    return status;
}

/* ---- a batch until it is decided ---- */

enum run_mode {
    RUN_WHOLE,     /* a whole batch: its pre-locks are released when it is decided */
    RUN_PART,      /* a part of one */
    RUN_PART_ONCE, /* the same, and a row lock is waited for only once, because other parts wait */
};

static size_t run_until_decided(struct worker *worker, struct op **ops, size_t count, enum run_mode mode);

/*
 * Moves the operations that have the same first semaphore as the first one to the front; returns their number. All others
 * stay in their order, because those of one key are decided in it.
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
    metrics_batch(&worker->engine->metrics, run.count, run.went_short ? PATH_SHORT : PATH_LONG);
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
    queue_finish(&worker->engine->queue, &worker->batch); /* deliver has done it, unless the batch ran in parts */
    engine_unlock(worker->engine);
}

/* Connects and pings, so that the server does not end an idle session. */
static void check_session(struct worker *worker)
{
    enum permit_status status = task_connect(worker->task);
    if (status == PERMIT_OK)
        status = store_ping(worker->store);
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
    engine_unlock(engine);
}
