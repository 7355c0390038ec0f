/* SPDX-License-Identifier: MIT */
/* After COMMIT: updates the queue and the caches, releases the pre-locks, and decides the operations. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/own_op.h"
#include "engine/waitlist.h"
#include "engine/worker.h"

enum { MAX_PUT_BACKS = 3 }; /* of an acquire */

/* Records the tokens issued, and which semaphores have a queue. */
static void record_semaphores(struct engine *engine, const struct plan *plan) REQUIRES(engine_mutex)
{
    for (size_t i = 0; i < plan->changes.semaphore_count; i++) {
        const struct semaphore *semaphore = plan->changes.semaphores[i].semaphore;
        struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, semaphore->id);
        if (entry && semaphore->next_token > entry->tokens_seen)
            entry->tokens_seen = semaphore->next_token;
        if (entry)
            entry->has_queue = semaphore->waiting > 0;
    }
}

/* Records the earliest deadline; wakes expiry if it is earlier than the known ones. */
static void record_next_expiry(struct engine *engine, const struct plan *plan) REQUIRES(engine_mutex)
{
    utc_us earliest = NEVER;
    for (size_t i = 0; i < plan->changes.request_count; i++) {
        const struct request_change *change = &plan->changes.requests[i];
        if ((change->insert || change->before->state == REQUEST_WAITING) && !change->remove &&
            change->request->state != REQUEST_RELEASED)
            earliest = min_i64(earliest, change->request->due_at);
    }
    if (earliest >= engine->next_expiry_at)
        return;
    engine->next_expiry_at = earliest;
    pthread_cond_signal(&engine->expiry_wake);
}

/* Updates the caches after one outcome. */
static void update_caches(struct engine *engine, const struct op *op, const struct outcome *outcome)
    REQUIRES(engine_mutex)
{
    struct queue *queue = &engine->queue;
    if (outcome->request && outcome->request->state != REQUEST_ACQUIRED)
        rows_remove_key(&queue->rows, outcome->request->external_id);
    bool retired = op->operation->kind == OP_SEMAPHORE_RETIRE && outcome->status == PERMIT_OK;
    bool gone = retired || outcome->status == PERMIT_UNKNOWN_SEMAPHORE;
    for (size_t i = 0; i < op->entry_count; i++) {
        op->entries[i]->floor_stale = true;
        if (gone)
            semaphore_cache_remove_name(&queue->semaphores, op->entries[i]);
    }
}

/* Puts the op back with the semaphores that it needs. False: it may not be put back, or out of memory. */
static bool put_back(struct engine *engine, struct op *op, const struct outcome *outcome) REQUIRES(engine_mutex)
{
    op->put_backs++;
    op->operation->widened += outcome->widened;
    op->operation->checked = outcome->checked;
    metrics_count(&engine->metrics.put_backs);
    bool too_often = operation_asks(op->operation->kind) && op->put_backs > MAX_PUT_BACKS;
    if (too_often || outcome->need_count > BATCH_MAX_SEMAPHORES ||
        !queue_set_entries(&engine->queue, op, outcome->needs, outcome->need_count))
        return false;
    queue_put_back(&engine->queue, op);
    return true;
}

/*
 * Another session has locked the row of the key. A shop's transaction takes some milliseconds, so the op is tried again
 * for a second. False: that has passed, or the op is of permitd's own, which comes again by itself.
 */
static bool await_row(struct engine *engine, struct op *op) REQUIRES(engine_mutex)
{
    enum { FIRST_PAUSE_MS = 5, FOR_MS = 1000 };
    mono_us now = clock_mono();
    bool is_own = op->operation->kind == OP_EXPIRE || op->operation->kind == OP_SETTLE;
    if (!op->row_awaited_at)
        op->row_awaited_at = now;
    int64_t waited = now - op->row_awaited_at;
    if (is_own || waited >= FOR_MS * US_PER_MS)
        return false;
    int64_t pause_us = min_i64(max_i64(waited, FIRST_PAUSE_MS * US_PER_MS), FOR_MS * US_PER_MS - waited);
    queue_await_row(&engine->queue, op, now + pause_us);
    pthread_cond_signal(&engine->errand_wake);
    return true;
}

/* Retry-After of a no_capacity: at most the time to next_due_at, because a unit may expire then. */
static int64_t retry_after_shortage(const struct view *view, const struct outcome *outcome)
{
    int64_t ms = jittered_ms(1000);
    for (size_t i = 0; i < outcome->shortage_count; i++)
        for (size_t j = 0; j < view->semaphore_count; j++) {
            const struct semaphore *semaphore = &view->semaphores[j];
            if (semaphore->id == outcome->shortages[i].semaphore_id && semaphore->next_due_at != NEVER)
                ms = min_i64(ms, (semaphore->next_due_at - view->clock.due) / US_PER_MS);
        }
    return max_i64(ms, 50);
}

/* How many other requests waited for the semaphore when the batch read it. */
static size_t others_waiting(const struct view *view, struct bytes external_id, uint64_t semaphore_id)
{
    int64_t count = 0;
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            count = view->semaphores[i].waiting;
    for (size_t i = 0; i < view->request_count; i++) {
        const struct request *request = &view->requests[i];
        if (request->state == REQUEST_WAITING && request->server_id && bytes_equal(request->external_id, external_id))
            count--; /* its own place */
    }
    return (size_t)max_i64(count, 0);
}

static void decide_no_capacity(struct engine *engine, struct op *op, const struct view *view,
                               const struct outcome *outcome)
{
    size_t waiting[REQUEST_MAX_SEMAPHORES];
    assert(outcome->shortage_count > 0 && outcome->shortage_count <= REQUEST_MAX_SEMAPHORES);
    for (size_t i = 0; i < outcome->shortage_count; i++)
        waiting[i] = others_waiting(view, op->operation->external_id, outcome->shortages[i].semaphore_id);
    struct decision decision = {
        .outcome = outcome,
        .status = PERMIT_NO_CAPACITY,
        .clock = &view->clock,
        .now = view->now,
        .waiting = waiting,
        .has_place = op->waited || (outcome->request && outcome->request->state == REQUEST_WAITING),
        .retry_after_ms = retry_after_shortage(view, outcome),
    };
    decide(engine, op, &decision);
}

/* Runs without the mutex: floors_of_run was copied under it, and the rest belongs to the worker. */
static void decide_outcome(struct worker *worker, struct run *run, struct op *op, const struct outcome *outcome,
                           const uint64_t *floors_of_run)
{
    if (outcome->status == PERMIT_NO_CAPACITY) {
        decide_no_capacity(worker->engine, op, &run->view, outcome);
        return;
    }
    assert(!outcome->created || op->waited || stage_is_sent(&op->stage)); /* P22 */
    struct bytes names[REQUEST_MAX_SEMAPHORES];
    uint64_t floors[REQUEST_MAX_SEMAPHORES];
    int64_t available[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; outcome->request && i < outcome->request->permit_count; i++) {
        uint64_t semaphore_id = outcome->request->permits[i].semaphore_id;
        names[i] = (struct bytes){0};
        floors[i] = 1;
        available[i] = 0;
        for (size_t j = 0; j < run->view.semaphore_count; j++)
            if (run->view.semaphores[j].id == semaphore_id) {
                names[i] = run->view.semaphores[j].name;
                floors[i] = floors_of_run[j];
                available[i] = semaphore_available(run->plan.changes.semaphores[j].semaphore);
            }
    }
    struct decision decision = {
        .outcome = outcome,
        .status = outcome->status,
        .detail = outcome->detail,
        .clock = &run->view.clock,
        .now = run->view.now,
        .semaphore_names = names,
        .floors = floors,
        .available = available,
    };
    decide(worker->engine, op, &decision);
}

/* NULL: out of memory. */
static uint64_t *copy_floors(struct worker *worker, const struct view *view) REQUIRES(engine_mutex)
{
    uint64_t *floors = arena_array(worker->arena, view->semaphore_count, sizeof *floors);
    for (size_t i = 0; floors && i < view->semaphore_count; i++) {
        const struct semaphore_entry *entry =
            semaphore_cache_find(&worker->engine->queue.semaphores, view->semaphores[i].id);
        floors[i] = entry ? entry->floor : 1;
    }
    return floors;
}

struct op_result {
    bool of_waiter;            /* its op is that of a waiter, and gone when that is */
    bool is_decided;           /* no op of a waiter: neither queued again nor parked */
    struct list answered;      /* struct op, the op of a waiter: its clients that are decided */
    enum permit_status status; /* of what is decided; PERMIT_OK: the outcome has the status */
    const char *detail;
};

/*
 * Moves clients that a creation from template may help from `answered` back to resolve. When a semaphore is retired,
 * its waiters are answered so, and the next acquire creates it again; that acquire may be a client that joined a waiter
 * since a batch has decided last that it waits.
 */
static void retry_joined_clients(struct engine *engine, const struct outcome *outcome, mono_us decided_at,
                                 struct list *answered) REQUIRES(engine_mutex)
{
    list_for_each (node, next, answered) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->arrived_at >= decided_at && template_may_help(op, outcome)) {
            list_remove(node);
            op_resolve_again(engine, op);
        }
    }
}

/* Returns true if the request would wait if this server had an id. */
static bool cannot_enter(const struct op *op, const struct outcome *outcome)
{
    return op->operation->wait_us > 0 && outcome->may_wait && !outcome->waits;
}

/* A look or leave: puts it back, parks the waiter again, or collects the clients to be answered. */
static void deliver_waiter(struct engine *engine, struct op *op, const struct view *view, const struct outcome *outcome,
                           struct op_result *ret_result) REQUIRES(engine_mutex)
{
    struct waiter *waiter = waiter_of(op);
    if (outcome->put_back && put_back(engine, op, outcome))
        return;
    if (outcome->put_back || outcome->status == PERMIT_IN_TRANSACTION || cannot_enter(op, outcome)) {
        ret_result->status = PERMIT_OUTCOME_UNKNOWN;
        waitlist_retry_later(engine, waiter, &ret_result->answered);
        return;
    }
    update_caches(engine, op, outcome);
    if (outcome->may_wait && engine->queue.waiters.closed)
        ret_result->status = PERMIT_SHUTTING_DOWN;
    mono_us decided_at = waiter->decided_at;
    waitlist_record_settings(waiter, view);
    waitlist_end_look(engine, waiter, outcome, &ret_result->answered);
    retry_joined_clients(engine, outcome, decided_at, &ret_result->answered);
}

/* Sets the result of an op that is neither queued again nor parked. */
static void set_result(const struct op *op, const struct outcome *outcome, struct op_result *ret_result)
    REQUIRES(engine_mutex)
{
    ret_result->is_decided = true;
    if (outcome->put_back && !outcome->waits) { /* not no_capacity, which only a plan decides (P5) */
        ret_result->status = transaction_answer(PERMIT_BUSY, &op->stage);
        ret_result->detail = ret_result->status == PERMIT_BUSY ? "the semaphores it needs are busy" : NULL;
    } else if (outcome->waits) {
        /* Its client has left, or out of memory: its row waits until its place is given up or its wait passes. */
        ret_result->status = PERMIT_OUTCOME_UNKNOWN;
    } else if (outcome->status == PERMIT_IN_TRANSACTION && stage_is_sent(&op->stage)) {
        ret_result->status = PERMIT_OUTCOME_UNKNOWN; /* an earlier try may have written it */
    } else if (outcome->may_wait && op->wait_refusal == WAIT_REFUSED_CLOSED) {
        ret_result->status = PERMIT_SHUTTING_DOWN;
    } else if (outcome->may_wait && op->wait_refusal != WAIT_ALLOWED) {
        ret_result->status = PERMIT_TOO_MANY;
    }
}

/* Enters the outcome of one op in the queue and the caches. */
static void deliver_op(struct engine *engine, struct op *op, const struct view *view, const struct outcome *outcome,
                       struct op_result *ret_result) REQUIRES(engine_mutex)
{
    assert(!op->queued);
    list_init(&ret_result->answered);
    if (ret_result->of_waiter) {
        deliver_waiter(engine, op, view, outcome, ret_result);
        return;
    }
    bool back = outcome->put_back && put_back(engine, op, outcome);
    if (!outcome->put_back)
        update_caches(engine, op, outcome);
    if (template_may_help(op, outcome)) {
        op_resolve_again(engine, op);
        return;
    }
    if (!outcome->put_back && cannot_enter(op, outcome)) {
        queue_await_server_id(&engine->queue, op);
        if (engine_server_id(engine))
            queue_have_server_id(&engine->queue);
        return;
    }
    if (back || (outcome->status == PERMIT_IN_TRANSACTION && await_row(engine, op)))
        return;
    queue_forget_key(&engine->queue, op);
    if (outcome->waits && waitlist_park(engine, op, outcome->request)) {
        waitlist_record_settings(op->waiter, view);
        return;
    }
    /*
     * An operator has changed the semaphore: the batch of the change grants no waiter, and some may never fit now.
     * The batch of the first waiter walks the queue; the net of the wait poll finds the others.
     */
    if (operation_is_administrative(op->operation->kind) && outcome->status == PERMIT_OK && outcome->semaphore) {
        const struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, outcome->semaphore->id);
        if (entry && !list_empty(&entry->waiters))
            waitlist_wake(engine, LIST_ENTRY(entry->waiters.next, struct wait_place, node)->waiter);
    }
    /* The op may have ended the row of a waiter with its key, whose batch answers its clients then. */
    struct waiter *waiter = waiters_find(&engine->queue.waiters, op->operation->external_id);
    if (waiter)
        waitlist_wake(engine, waiter);
    set_result(op, outcome, ret_result);
}

/*
 * Hands the notices to the subscribers of their keys, which are in `answered` then, one list per notice; wakes the
 * waiters that the plan calls.
 */
static void deliver_notices(struct engine *engine, const struct plan *plan, struct list *answered)
    REQUIRES(engine_mutex)
{
    for (size_t i = 0; i < plan->notice_count; i++) {
        list_init(&answered[i]);
        waitlist_notify(engine, plan->notices[i].outcome.request, &answered[i]);
    }
    for (size_t i = 0; i < plan->call_count; i++) {
        struct waiter *waiter = waiters_find_id(&engine->queue.waiters, plan->calls[i]);
        if (waiter)
            waitlist_wake(engine, waiter);
    }
    waitlist_wake_called(engine);
}

/* Stores the rows of the run as copies. The pre-locks of its semaphores are held. */
static void learn(struct worker *worker, const struct run *run) REQUIRES(engine_mutex)
{
    struct engine *engine = worker->engine;
    const struct committed commit = {.read = &run->view,
                                     .plan = &run->plan,
                                     .copies = engine->settings.short_path,
                                     .generation = run->generation,
                                     .server_id = engine_server_id(engine),
                                     .now = clock_mono(),
                                     .shared_pause_us = engine->settings.shared_pause_ms * US_PER_MS};
    rows_learn(&engine->queue.rows, &engine->queue.semaphores, &commit);
}

/* Enters the run in the queue and the caches; sets the result of each op. */
static void deliver_ops(struct worker *worker, struct run *run, struct op_result *results, struct list *answered)
    REQUIRES(engine_mutex)
{
    struct engine *engine = worker->engine;
    record_semaphores(engine, &run->plan);
    record_next_expiry(engine, &run->plan);
    int64_t new_slots = changes_new_slots(&run->plan.changes); /* for max_slots */
    if (new_slots) {
        atomic_fetch_add(&engine->slots, (uint64_t)new_slots);
        atomic_store(&engine->recount_slots, true);
    }
    /*
     * Those of waiters first: a client that this batch has entered must not join a waiter of its key whose wait the
     * same batch ends, and be refused with it.
     */
    for (size_t i = 0; i < run->count; i++) {
        results[i].of_waiter = op_is_of_waiter(run->ops[i]);
        if (results[i].of_waiter)
            deliver_op(engine, run->ops[i], &run->view, &run->plan.outcomes[i], &results[i]);
    }
    for (size_t i = 0; i < run->count; i++)
        if (!results[i].of_waiter)
            deliver_op(engine, run->ops[i], &run->view, &run->plan.outcomes[i], &results[i]);
    deliver_notices(engine, &run->plan, answered);
    for (size_t i = run->plan.overdue_count; i-- > 0;)
        own_op_expire_first(engine, run->plan.overdue[i]);
    learn(worker, run);
}

static void decide_result(struct worker *worker, struct run *run, struct op *op, const struct outcome *outcome,
                          const struct op_result *result, const uint64_t *floors)
{
    if (result->status == PERMIT_OK)
        decide_outcome(worker, run, op, outcome, floors);
    else
        decide_status(worker->engine, op, result->status, result->detail);
}

/*
 * Decides the clients of a waiter. A grant is new for the client whose nonce it has, and replayed for the others, as if
 * they had asked after it. That client may have left since the batch was planned.
 */
static void decide_answered(struct worker *worker, struct run *run, const struct outcome *outcome,
                            const struct op_result *result, struct list *answered, const uint64_t *floors)
{
    struct outcome told = *outcome;
    bool created = outcome->created;
    list_for_each (node, next, answered) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        list_remove(node);
        told.created = created && bytes_equal(op->operation->nonce, outcome->request->nonce);
        told.replayed = outcome->replayed || (outcome->created && !told.created);
        created &= !told.created;
        decide_result(worker, run, op, &told, result, floors);
    }
}

/* Holds the mutex only for shared state, so that the next batch starts while the answers of this one are written. */
void deliver(struct worker *worker, struct run *run, bool release_prelocks)
{
    struct engine *engine = worker->engine;
    for (int reason = 0; reason < END_REASON_COUNT; reason++)
        metrics_add(&engine->metrics.ended[reason], run->plan.ended[reason]);
    struct op_result *results = arena_array(worker->arena, run->count, sizeof *results);
    struct list *notified = arena_array(worker->arena, run->plan.notice_count, sizeof *notified);
    engine_lock(engine);
    uint64_t *floors = copy_floors(worker, &run->view);
    bool complete = results && floors && notified;
    if (complete)
        deliver_ops(worker, run, results, notified);
    else
        for (size_t i = 0; i < run->count; i++)
            queue_forget_key(&engine->queue, run->ops[i]);
    if (release_prelocks)
        queue_finish(&worker->batch);
    engine_unlock(engine);
    if (!complete) /* the waiters that it has granted look, and find that */
        waitlist_cancel_grants(engine, &run->plan);
    for (size_t i = 0; i < run->count; i++) {
        const struct outcome *outcome = &run->plan.outcomes[i];
        if (!complete)
            op_fail(engine, run->ops[i], PERMIT_NO_MEMORY, NULL);
        else if (results[i].of_waiter)
            decide_answered(worker, run, outcome, &results[i], &results[i].answered, floors);
        else if (results[i].is_decided)
            decide_result(worker, run, run->ops[i], outcome, &results[i], floors);
    }
    for (size_t i = 0; complete && i < run->plan.notice_count; i++)
        decide_answered(worker, run, &run->plan.notices[i].outcome, &(struct op_result){0}, &notified[i], floors);
    run->plan.notice_count = 0;
}
