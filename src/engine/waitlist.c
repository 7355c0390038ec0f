/* SPDX-License-Identifier: MIT */
#include "engine/waitlist.h"

#include <assert.h>

#include "base/clock.h"
#include "engine/feed.h"
#include "engine/state.h"

enum { TRY_LATER_US = 500000 }; /* delay after a batch that did not decide a waiter */

/* ---- clients ---- */

/* The latest end of the wait of a client; its row gets this end. 0: no clients. */
static mono_us latest_end(const struct waiter *waiter)
{
    mono_us last = 0;
    list_for_each (node, next, &waiter->clients)
        last = max_i64(last, LIST_ENTRY(node, struct op, node)->wait_until);
    return last;
}

/* Schedules the next wake: when the wait of a client ends, but not after `at`. */
static void schedule(struct waiters *waiters, struct waiter *waiter, mono_us at)
{
    list_for_each (node, next, &waiter->clients)
        at = min_i64(at, LIST_ENTRY(node, struct op, node)->wait_until);
    heap_move(&waiters->wake_ats, &waiter->wake_at, at);
}

static void add_client(struct waiters *waiters, struct waiter *waiter, struct op *op)
{
    assert(!op->waiter && !op->queued);
    waiters->count += !waiter_has_clients(waiter);
    list_append(&waiter->clients, &op->node);
    op->waiter = waiter;
    op->waited = true;
    (void)!stage_send(&op->stage); /* cannot fail: the client is not answered */
    waiter->op.deadline = max_i64(waiter->op.deadline, op->deadline);
    schedule(waiters, waiter, NEVER);
}

static void remove_client(struct waiters *waiters, struct op *op)
{
    struct waiter *waiter = op->waiter;
    list_remove(&op->node);
    op->waiter = NULL;
    waiters->count -= !waiter_has_clients(waiter);
}

/* Moves the clients whose wait had ended by `until` (NEVER: all) to ret_answered. */
static void take_clients(struct waiters *waiters, struct waiter *waiter, mono_us until, struct list *ret_answered)
{
    list_for_each (node, next, &waiter->clients) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (op->wait_until > until)
            continue;
        remove_client(waiters, op);
        list_append(ret_answered, &op->node);
    }
}

enum permit_status waitlist_join(struct engine *engine, struct waiter *waiter, struct op *op)
{
    struct waiters *waiters = &engine->queue.waiters;
    assert(!waiter_in_batch(waiter) && waiter_asks_same(waiter, op));
    if (waiters->closed)
        return PERMIT_SHUTTING_DOWN;
    if (op->wait_until == 0)
        op->wait_until = op->arrived_at; /* the next batch decides */
    op->arrival = waiter->op.arrival;    /* for the case that it is queued on its own later */
    add_client(waiters, waiter, op);
    if (op->wait_until > waiter->row_until || op->wait_until <= op->arrived_at)
        waitlist_wake(engine, waiter); /* else its row would be removed too early */
    waitlist_reschedule(engine);
    return PERMIT_OK;
}

/* ---- limits ---- */

/* The waiters that a batch may add before one of its acquires. */
struct entering {
    struct op *const *ops; /* the operations of the batch before it */
    size_t op_count;
    size_t count;
};

/* Returns true if the batch asks for a place for the acquire, and no waiter stands for it. */
static bool op_enters(const struct waiters *waiters, const struct op *op) REQUIRES(engine_mutex)
{
    return op->operation->kind == OP_ACQUIRE && op->operation->wait_us > 0 &&
           !waiters_find(waiters, op->operation->external_id);
}

static bool owner_is_full(const struct engine *engine, const struct op *op, const struct entering *before)
    REQUIRES(engine_mutex)
{
    const struct waiters *waiters = &engine->queue.waiters;
    size_t most = engine->settings.max_owner_waiters;
    struct bytes name = waiter_counted_owner(op->operation);
    size_t count = waiters_of_owner(waiters, name);
    if (!most || !name.length)
        return false;
    for (size_t i = 0; i < before->op_count && count < most; i++)
        count +=
            op_enters(waiters, before->ops[i]) && bytes_equal(waiter_counted_owner(before->ops[i]->operation), name);
    return count >= most;
}

/* The limit that keeps an acquire from waiting. `enters` false: its key waits here, so it joins that waiter. */
static enum wait_refusal refusal_of(const struct engine *engine, const struct op *op, bool enters,
                                    const struct entering *before) REQUIRES(engine_mutex)
{
    const struct waiters *waiters = &engine->queue.waiters;
    const struct engine_settings *settings = &engine->settings;
    if (waiters->closed)
        return WAIT_REFUSED_CLOSED;
    if (!enters)
        return WAIT_ALLOWED;
    if (waiters->count + before->count >= settings->max_waiters)
        return WAIT_REFUSED_MAX;
    if (owner_is_full(engine, op, before))
        return WAIT_REFUSED_OWNER;
    return WAIT_ALLOWED;
}

/* ---- batches ---- */

/* A grant is answered to the first client as new, so the batch writes its nonce. */
static void take_nonce(struct waiter *waiter)
{
    if (!waiter_has_clients(waiter))
        return;
    struct bytes nonce = LIST_ENTRY(waiter->clients.next, struct op, node)->operation->nonce;
    if (nonce.length)
        memcpy(waiter->nonce, nonce.data, nonce.length);
    waiter->operation.nonce = (struct bytes){waiter->nonce, nonce.length};
}

static void prepare_waiter(const struct waiters *waiters, struct waiter *waiter, mono_us now)
{
    struct operation *operation = &waiter->operation;
    mono_us until = latest_end(waiter);
    take_nonce(waiter);
    waiter->taken_at = now;
    operation->kind = waiter_has_clients(waiter) ? OP_LOOK : OP_LEAVE;
    operation->place = waiter->place;
    operation->since = waiter->since;
    operation->wait_us = waiters->closed ? 0 : max_i64(0, until - now);
    if (operation->wait_us > 0)
        waiter->row_until = until;
}

/* Sets how an acquire waits in this batch. One that waits may be entered by it, whatever becomes of the batch. */
static void prepare_acquire(const struct engine *engine, struct op *op, mono_us now, struct entering *before)
    REQUIRES(engine_mutex)
{
    struct operation *operation = op->operation;
    bool enters = !waiters_find(&engine->queue.waiters, operation->external_id);
    operation->may_have_place |= op->wait_until > op->arrived_at; /* a copy at another server may have entered it */
    operation->wait_us = max_i64(0, op->wait_until - now);
    op->wait_refusal = operation->wait_us ? refusal_of(engine, op, enters, before) : WAIT_ALLOWED;
    if (op->wait_refusal != WAIT_ALLOWED)
        operation->wait_us = 0;
    before->count += operation->wait_us && enters;
}

void waitlist_prepare(struct engine *engine, struct batch *batch)
{
    struct entering before = {.ops = batch->ops};
    for (size_t i = 0; i < batch->op_count; i++) {
        struct op *op = batch->ops[i];
        before.op_count = i;
        if (op_is_of_waiter(op))
            prepare_waiter(&engine->queue.waiters, waiter_of(op), batch->taken_at);
        else if (op->operation->kind == OP_ACQUIRE)
            prepare_acquire(engine, op, batch->taken_at, &before);
    }
}

/* Ends the part of the waiter in the queue or in a batch. */
static void leave_batch(struct queue *queue, struct waiter *waiter) REQUIRES(engine_mutex)
{
    assert(waiter_is_woken(waiter) && !waiter->op.queued && queue->waiters.woken > 0);
    queue_forget_key(queue, &waiter->op);
    op_drop_entries(&waiter->op);
    waiter->look = LOOK_NONE;
    queue->waiters.woken--;
    waiter_first_semaphore(waiter)->woken--;
    waiters_update_called(&queue->waiters, waiter_first_semaphore(waiter));
    stage_reopen(&waiter->op.stage);
}

/* The row names an earlier id of this server, which has taken a new one while the batch ran. */
static bool row_is_of_another_server(const struct engine *engine, const struct request *request)
{
    uint64_t server_id = engine_server_id(engine);
    return server_id && request->server_id != server_id;
}

static void waiter_decided(struct op *op, const struct decision *decision);

bool waitlist_park(struct engine *engine, struct op *op, const struct request *request)
{
    struct waiters *waiters = &engine->queue.waiters;
    assert(!op->queued && !op->key_order);
    struct waiter *waiter = waiters_find(waiters, op->operation->external_id);
    if (waiter &&
        !waiter_asks_same(waiter, op)) /* its row is gone; its batch finds that this one has taken its place */
        return false;
    if (!waiter) {
        waiter = waiters_add(engine, op, request);
        if (!waiter)
            return false;
        waiter->op.decided = waiter_decided;
    }
    waiters_follow_row(waiters, waiter, request);
    waiter->decided_at = max_i64(waiter->decided_at, op->arrived_at + 1);
    bool has_left = op->wait_until == 0; /* engine_abandon, while the batch ran */
    if (has_left) {
        schedule(waiters, waiter, NEVER);
    } else {
        waiter->row_until = max_i64(waiter->row_until, op->wait_until);
        op_drop_entries(op);
        add_client(waiters, waiter, op);
    }
    if (has_left || waiters->closed || row_is_of_another_server(engine, request))
        waitlist_wake(engine, waiter);
    waitlist_reschedule(engine);
    return !has_left;
}

void waitlist_record_settings(struct waiter *waiter, const struct view *view)
{
    for (size_t i = 0; i < waiter->place_count; i++)
        for (size_t j = 0; j < view->semaphore_count; j++)
            if (view->semaphores[j].id == waiter->places[i].entry->id)
                waiter->places[i].config_version = view->semaphores[j].config_version;
}

/* The row goes on waiting, as the batch has found or made it. `again`: there is a reason for another look. */
static void wait_on(struct engine *engine, struct waiter *waiter, const struct request *row, bool again)
    REQUIRES(engine_mutex)
{
    struct waiters *waiters = &engine->queue.waiters;
    waiters_follow_row(waiters, waiter, row);
    waiter->decided_at = waiter->taken_at;
    schedule(waiters, waiter, NEVER);
    if (again || waiters->closed || !waiter_has_clients(waiter) || row_is_of_another_server(engine, row))
        waitlist_wake(engine, waiter);
    waitlist_reschedule(engine);
}

/*
 * Returns the waiter whose clients ask for this request; NULL: none. The row of a key may have other content than its
 * waiter here: another permitd has declared this one dead, and the key was used again. Such a waiter is told so by its
 * own look.
 */
static struct waiter *waiter_of_row(const struct engine *engine, const struct request *request) REQUIRES(engine_mutex)
{
    struct waiter *waiter = waiters_find(&engine->queue.waiters, request->external_id);
    return waiter && memcmp(waiter->operation.digest, request->digest, DIGEST_SIZE) == 0 ? waiter : NULL;
}

/* Moves all clients to ret_answered, and frees the waiter. */
static void end_waiter(struct engine *engine, struct waiter *waiter, struct list *ret_answered) REQUIRES(engine_mutex)
{
    struct waiters *waiters = &engine->queue.waiters;
    waiter->in_grant = false;
    take_clients(waiters, waiter, NEVER, ret_answered);
    if (waiter_in_batch(waiter)) /* its op is past its deadline, and about to be decided (waiter_decided) */
        return;
    if (waiter_is_woken(waiter)) {
        queue_take_out(&engine->queue, &waiter->op);
        leave_batch(&engine->queue, waiter);
    }
    waiters_remove(waiters, waiter);
}

void waitlist_notify(struct engine *engine, const struct request *request, struct list *ret_answered)
{
    struct waiter *waiter = waiter_of_row(engine, request);
    if (waiter)
        end_waiter(engine, waiter, ret_answered);
}

void waitlist_end_look(struct engine *engine, struct waiter *waiter, const struct outcome *outcome,
                       struct list *ret_answered)
{
    bool again = waiter->look == LOOK_AGAIN;
    leave_batch(&engine->queue, waiter);
    waiter->operation.mailed = 0;
    if (!outcome->waits) {
        end_waiter(engine, waiter, ret_answered);
        return;
    }
    take_clients(&engine->queue.waiters, waiter, waiter->taken_at, ret_answered);
    wait_on(engine, waiter, outcome->request, again);
}

void waitlist_retry_later(struct engine *engine, struct waiter *waiter, struct list *ret_answered)
{
    struct waiters *waiters = &engine->queue.waiters;
    mono_us now = clock_mono();
    leave_batch(&engine->queue, waiter);
    take_clients(waiters, waiter, waiters->closed ? NEVER : now, ret_answered);
    if (!waiter_has_clients(waiter) && (waiters->closed || now > waiter->row_until + PLACE_KEPT_US)) {
        waiters_remove(waiters, waiter);
        return;
    }
    schedule(waiters, waiter, now + TRY_LATER_US);
    waitlist_reschedule(engine);
}

/* Ends a batch of a waiter's op that did not reach a plan. */
static void waiter_decided(struct op *op, const struct decision *decision)
{
    struct engine *engine = waiter_of(op)->engine;
    struct list answered;
    (void)decision;
    list_init(&answered);
    engine_lock(engine);
    waitlist_retry_later(engine, waiter_of(op), &answered);
    engine_unlock(engine);
    list_for_each (node, next, &answered) {
        list_remove(node);
        decide(engine, LIST_ENTRY(node, struct op, node), &(struct decision){.status = PERMIT_OUTCOME_UNKNOWN});
    }
}

/* ---- the view and the packet of a batch ---- */

bool waitlist_list_subscribers(struct engine *engine, struct arena *arena, struct view *view)
{
    struct subscriber *subscribers = arena_array(arena, view->request_count, sizeof *subscribers);
    size_t count = 0;
    if (!subscribers)
        return false;
    engine_lock(engine);
    for (size_t i = 0; i < view->request_count; i++) {
        if (view->requests[i].state != REQUEST_WAITING)
            continue;
        struct subscriber *subscriber = &subscribers[count];
        *subscriber = (struct subscriber){.external_id = view->requests[i].external_id};
        const struct waiter *waiter = waiter_of_row(engine, &view->requests[i]);
        subscriber->subscribed = waiter && waiter_has_clients(waiter);
        subscriber->busy =
            subscriber->subscribed ? waiter_in_batch(waiter) : queue_asks_for(&engine->queue, subscriber->external_id);
        if (subscriber->subscribed)
            subscriber->nonce = arena_copy(arena, LIST_ENTRY(waiter->clients.next, struct op, node)->operation->nonce);
        subscriber->busy |=
            subscriber->subscribed && !subscriber->nonce.data; /* out of memory: its own batch grants it */
        count += subscriber->subscribed || subscriber->busy;
    }
    engine_unlock(engine);
    view->subscribers = subscribers;
    view->subscriber_count = count;
    return true;
}

bool waitlist_begin_grants(struct engine *engine, const struct plan *plan)
{
    bool all_wait = true;
    if (plan->notice_count == 0)
        return true;
    engine_lock(engine);
    for (size_t i = 0; i < plan->notice_count; i++) {
        const struct waiter *waiter = waiter_of_row(engine, plan->notices[i].outcome.request);
        all_wait &= !plan->notices[i].unasked || (waiter && waiter_has_clients(waiter));
    }
    for (size_t i = 0; i < plan->notice_count && all_wait; i++) {
        struct waiter *waiter = waiter_of_row(engine, plan->notices[i].outcome.request);
        if (waiter)
            waiter->in_grant = true;
    }
    engine_unlock(engine);
    return all_wait;
}

void waitlist_cancel_grants(struct engine *engine, const struct plan *plan)
{
    engine_lock(engine);
    for (size_t i = 0; i < plan->notice_count; i++) {
        struct waiter *waiter = waiter_of_row(engine, plan->notices[i].outcome.request);
        if (!waiter)
            continue;
        waiter->in_grant = false;
        if (waiter_is_woken(waiter)) /* its own op asks again */
            continue;
        schedule(&engine->queue.waiters, waiter, NEVER);
        waitlist_wake(engine, waiter);
    }
    waitlist_reschedule(engine);
    engine_unlock(engine);
}

/* ---- waking ---- */

/* False: out of memory; it is woken later. */
static bool wake_now(struct engine *engine, struct waiter *waiter) REQUIRES(engine_mutex)
{
    struct waiters *waiters = &engine->queue.waiters;
    list_remove(&waiter->call);
    if (!waiter_has_clients(waiter))
        waiter->op.deadline = clock_mono() + engine->settings.request_timeout_ms * US_PER_MS;
    queue_wake(&engine->queue, waiter);
    mono_us at = waiter_is_woken(waiter) ? NEVER : clock_mono() + TRY_LATER_US; /* its batch schedules it again */
    heap_move(&waiters->wake_ats, &waiter->wake_at, at);
    waiters_update_called(waiters, waiter_first_semaphore(waiter));
    return waiter_is_woken(waiter);
}

static void signal_worker(struct engine *engine) REQUIRES(engine_mutex)
{
    if (engine->idle_workers)
        pthread_cond_signal(&engine->work);
}

void waitlist_wake(struct engine *engine, struct waiter *waiter)
{
    struct semaphore_entry *entry = waiter_first_semaphore(waiter);
    if (waiter_is_woken(waiter)) {
        if (!waiter->op.queued)
            waiter->look = LOOK_AGAIN;
        return;
    }
    if (waiter->operation.mailed) {
        if (wake_now(engine, waiter))
            signal_worker(engine);
        return;
    }
    if (list_empty(&waiter->call))
        list_append(&entry->calls, &waiter->call);
    waiters_update_called(&engine->queue.waiters, entry);
    waitlist_wake_called(engine);
}

void waitlist_wake_called(struct engine *engine)
{
    struct list *called = &engine->queue.waiters.called;
    bool woken = false;
    while (!list_empty(called)) {
        struct semaphore_entry *entry = LIST_ENTRY(called->next, struct semaphore_entry, has_calls);
        list_remove(&entry->has_calls); /* wake_now puts it back at the end of the rotation */
        if (!wake_now(engine, LIST_ENTRY(entry->calls.next, struct waiter, call)))
            break;
        woken = true;
    }
    if (woken)
        signal_worker(engine);
}

enum {
    BY_ROW_WALK_MAX = 1000, /* waiters of one semaphore that are considered at a time */
    BY_ROW_FIT_MAX = 10,    /* of these that seem to fit: they are woken */
};

/* Returns true if the waiter can never be granted as the row is, or if its wants must be checked again. */
static bool may_never_fit(const struct wait_place *place, const struct semaphore *row)
{
    const struct operation *operation = &place->waiter->operation;
    bool changed = place->config_version != row->config_version;
    return row->retired_at != NEVER || (row->capacity > 0 && place->count > row->capacity) ||
           (changed && wants_are_specific(operation->wants, operation->want_count));
}

/* Returns true if none of its semaphores had fewer free units than it wants when their rows were read last. */
static bool seems_to_fit(const struct waiter *waiter)
{
    for (size_t i = 0; i < waiter->place_count; i++)
        if (waiter->places[i].count > waiter->places[i].entry->free_units)
            return false;
    return true;
}

static void wake_first_that_fits(struct engine *engine, const struct semaphore_entry *entry) REQUIRES(engine_mutex)
{
    size_t walked = 0;
    list_for_each (node, next, &entry->waiters) {
        struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        bool fits = seems_to_fit(waiter);
        if (fits)
            waitlist_wake(engine, waiter);
        if (fits || ++walked == BY_ROW_WALK_MAX)
            return;
    }
}

void waitlist_wake_by_row(struct engine *engine, const struct semaphore *row)
{
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, row->id);
    size_t walked = 0, fit = 0;
    if (!entry || list_empty(&entry->waiters))
        return;
    entry->free_units = row->paused_reason.data ? 0 : row->capacity - row->in_use;
    if (entry->free_units > 0)
        wake_first_that_fits(engine, entry);
    struct list *first = entry->rotation == &entry->waiters ? entry->waiters.next : entry->rotation;
    struct list *node = first;
    do {
        const struct wait_place *place = LIST_ENTRY(node, struct wait_place, node);
        bool never_fits = may_never_fit(place, row);
        bool fits = entry->free_units > 0 && seems_to_fit(place->waiter);
        if (never_fits || fits)
            waitlist_wake(engine, place->waiter);
        fit += fits;
        walked++;
        node = node->next == &entry->waiters ? entry->waiters.next : node->next;
    } while (node != first && fit < BY_ROW_FIT_MAX && (walked < BY_ROW_WALK_MAX || row->retired_at != NEVER));
    entry->rotation = node;
}

void waitlist_wake_all(struct engine *engine)
{
    list_for_each (node, next, &engine->queue.waiters.all)
        waitlist_wake(engine, LIST_ENTRY(node, struct waiter, node));
}

void waitlist_reschedule(struct engine *engine)
{
    const struct waiters *waiters = &engine->queue.waiters;
    const struct heap_node *first = heap_first(&waiters->wake_ats);
    mono_us next = first ? first->time : NEVER;
    if (waiters->count) /* the wait poll does not poll without waiters */
        next = min_i64(next, clock_mono() + engine->settings.wait_poll_ms * US_PER_MS);
    if (next < engine->next_poll_at)
        pthread_cond_signal(&engine->poll_wake);
}

/* ---- for the caller of the engine ---- */

bool engine_abandon(struct engine *engine, struct op *op)
{
    struct queue *queue = &engine->queue;
    engine_lock(engine);
    struct waiter *waiter = op->waiter;
    /* An acquire that was put back may have a place: it stays in the queue, and its next batch gives the place up. */
    bool in_batch = waiter ? waiter_in_batch(waiter) : !op->queued || op->operation->may_have_place;
    if (in_batch) {
        op->wait_until = 0; /* the running batch is its last: it must not wait without a client */
    } else if (waiter) {
        remove_client(&queue->waiters, op);
        if (!waiter_has_clients(waiter))
            waitlist_wake(engine, waiter);
    } else {
        queue_take_out(queue, op);
        queue_forget_key(queue, op);
        op_drop_entries(op);
    }
    engine_unlock(engine);
    if (!in_batch)
        metrics_wait(&engine->metrics, WAIT_ABANDONED, 0);
    return !in_batch;
}

void engine_end_waits(struct engine *engine)
{
    engine_lock(engine);
    engine->queue.waiters.closed = true;
    waitlist_wake_all(engine);
    engine_unlock(engine);
    feed_close(engine);
}

bool engine_waits_ended(struct engine *engine)
{
    engine_lock(engine);
    bool ended = list_empty(&engine->queue.waiters.all);
    engine_unlock(engine);
    return ended;
}

struct waiting engine_waiting(struct engine *engine)
{
    struct waiting waiting = {0};
    engine_lock(engine);
    waiting.count = engine->queue.waiters.count;
    list_for_each (node, next, &engine->queue.waiters.all) {
        const struct waiter *waiter = LIST_ENTRY(node, struct waiter, node);
        if (waiter_has_clients(waiter)) {
            waiting.oldest_ms = (clock_mono() - waiter->parked_at) / US_PER_MS;
            break;
        }
    }
    engine_unlock(engine);
    return waiting;
}
