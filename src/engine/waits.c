/* SPDX-License-Identifier: MIT */
#include "engine/waits.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/plant.h"

enum {
    KEEP_US = 10000000,       /* "an ended wait keeps its place 10 s for the same key and digest" */
    TRY_LATER_US = 500000,    /* who was refused although there may be room is tried again after this */
    AHEAD_COUNTED_MAX = 1000, /* stands looked at for a refusal */
    AHEAD_SHOWN_MAX = 10,     /* external_ids of those ahead that a waiter is told */
    PAGE_BYTES = 1024 * 1024, /* of a list of waiters; a page has one at least */
};

mono_us waits_aged_since(const struct engine *engine, mono_us now)
{
    return now - engine->settings.backfill_bound_ms * US_PER_MS;
}

void waits_changed(struct engine *engine)
{
    const struct waiters *waiters = &engine->queue.waiters;
    const struct heap_node *turn = heap_first(&waiters->turns);
    const struct heap_node *due = heap_first(&waiters->dues);
    mono_us first = turn ? turn->time : NEVER;
    if (due)
        first = min_i64(first, due->time);
    if (waiters->count) /* while nobody asked it did not poll */
        first = min_i64(first, clock_mono() + engine->settings.wait_poll_ms * US_PER_MS);
    if (first < engine->watch_at)
        pthread_cond_signal(&engine->watch);
}

/* ---- in ---- */

enum permit_status waits_join(struct engine *engine, struct waiter *waiter, struct op *op)
{
    struct queue *queue = &engine->queue;
    if (queue->waiters.closed)
        return PERMIT_SHUTTING_DOWN;
    if (memcmp(waiter->operation.digest, op->operation->digest, DIGEST_SIZE) != 0)
        return PERMIT_KEY_REUSED;
    bool was_away = !waiter_is_asked(waiter);
    if (op->wait_until == 0)
        op->wait_until = op->arrived_at; /* the next batch decides */
    op->waited = true;
    op->untried = true;
    op->arrival = waiter->op.arrival; /* should it have to go its own way */
    waiters_ask(&queue->waiters, waiter, op);
    if (was_away) { /* it may have missed something */
        queue_call(queue, waiter);
        if (engine->idle_workers)
            pthread_cond_signal(&engine->work);
    }
    waits_changed(engine);
    return PERMIT_OK;
}

static bool all_wait(const struct engine *engine)
{
    return engine->queue.waiters.count >= engine->settings.max_waiters;
}

/* One of its semaphores for which no more may wait; NULL: none. */
static const struct gate *full_gate(const struct engine *engine, const struct op *op)
{
    for (size_t i = 0; i < op->gate_count; i++)
        if (op->gates[i]->waiter_count >= engine->settings.max_semaphore_waiters)
            return op->gates[i];
    return NULL;
}

const char *waits_why_full(const struct engine *engine, const struct op *op, struct arena *arena)
{
    enum { SIZE = 400 }; /* a name has 255 bytes */
    const struct gate *gate = full_gate(engine, op);
    char *sentence = all_wait(engine) || gate ? arena_alloc(arena, SIZE) : NULL;
    if (sentence && all_wait(engine))
        snprintf(sentence, SIZE, "too many waiting requests (max_waiters is %zu)", engine->settings.max_waiters);
    else if (sentence)
        snprintf(sentence, SIZE, "too many waiting requests for %s (max_semaphore_waiters is %zu)",
                 gate->name ? gate->name : "one of its semaphores", engine->settings.max_semaphore_waiters);
    return sentence;
}

static void waiter_decided(struct op *op, const struct decision *decision);

/* The op has become an asker of its key's place: a new one, or that of somebody who asks under its key already. */
static enum permit_status take_place(struct engine *engine, struct op *op)
{
    struct queue *queue = &engine->queue;
    struct waiter *waiter = waiters_find(&queue->waiters, op->operation->external_id);
    if (waiter && memcmp(waiter->operation.digest, op->operation->digest, DIGEST_SIZE) != 0)
        return PERMIT_KEY_REUSED;
    if (waiter) {
        waiters_ask(&queue->waiters, waiter, op);
        return PERMIT_OK;
    }
    waiter = waiters_add(&queue->waiters, &queue->gates, op, clock_mono());
    if (!waiter)
        return PERMIT_NO_MEMORY;
    waiter->engine = engine;
    waiter->op.decided = waiter_decided;
    for (size_t i = 0; PLANTED(22) && i < waiter->stand_count; i++)
        waiter->stands[i].gate->version = 0;
    return PERMIT_OK;
}

bool waits_park(struct engine *engine, struct op *op, mono_us taken_at, enum permit_status *ret_status)
{
    *ret_status = PERMIT_OK;
    if (op->wait_until <= taken_at)
        return false;
    if (engine->queue.waiters.closed)
        *ret_status = PERMIT_SHUTTING_DOWN;
    else if (all_wait(engine) || full_gate(engine, op))
        *ret_status = PERMIT_TOO_MANY;
    else
        *ret_status = take_place(engine, op);
    if (*ret_status != PERMIT_OK)
        return false;
    op->waited = true;
    stage_reopen(&op->stage);
    op_drop_gates(op);
    waits_changed(engine);
    return true;
}

/* ---- out ---- */

static void leave_batch(struct queue *queue, struct waiter *waiter)
{
    queue_forget_key(queue, &waiter->op);
    op_drop_gates(&waiter->op);
    waiter->called = false;
    queue->waiters.called--;
    stage_reopen(&waiter->op.stage);
}

bool waits_send(struct engine *engine, struct waiter *waiter)
{
    bool asked = false;
    pthread_mutex_lock(&engine->mutex);
    list_for_each (node, next, &waiter->askers)
        asked |= stage_send(&LIST_ENTRY(node, struct op, node)->stage);
    if (asked || PLANTED(16))
        asked = stage_send(&waiter->op.stage);
    pthread_mutex_unlock(&engine->mutex);
    return asked;
}

bool waits_are_answered(struct engine *engine, const struct waiter *waiter)
{
    pthread_mutex_lock(&engine->mutex);
    bool answered = waiter_is_asked(waiter);
    list_for_each (node, next, &waiter->askers)
        answered &= stage_is_answered(&LIST_ENTRY(node, struct op, node)->stage);
    pthread_mutex_unlock(&engine->mutex);
    return answered;
}

static void note_refused(struct waiter *waiter)
{
    waiter_note_refused(waiter);
    list_for_each (node, next, &waiter->askers) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        stage_reopen(&op->stage);
        op->untried = false;
    }
}

void waits_settle(struct engine *engine, struct waiter *waiter, bool refused, struct list *ret_answered)
{
    struct waiters *waiters = &engine->queue.waiters;
    leave_batch(&engine->queue, waiter);
    if (refused)
        note_refused(waiter);
    bool everybody = !refused || waiters->closed;
    waiters_dismiss(waiters, waiter, everybody ? NEVER : waiter->taken_at, ret_answered);
    waiters_settle(waiters, waiter, everybody ? 0 : clock_mono() + KEEP_US);
    waits_changed(engine);
}

void waits_look_later(struct engine *engine, struct waiter *waiter)
{
    mono_us at = clock_mono() + TRY_LATER_US;
    for (size_t i = 0; i < waiter->stand_count; i++)
        waiters_look_at(&engine->queue.waiters, waiter->stands[i].gate, at);
}

bool waits_try_later(struct engine *engine, struct waiter *waiter)
{
    struct waiters *waiters = &engine->queue.waiters;
    bool unknown = stage_is_sent(&waiter->op.stage);
    if (waiters->closed || unknown || waiter_turn(waiter) <= clock_mono())
        return false;
    leave_batch(&engine->queue, waiter);
    waits_look_later(engine, waiter);
    waiters_settle(waiters, waiter, 0);
    waits_changed(engine);
    return true;
}

/* It never came to a plan: those who ask are told why, unless what stood in the way may pass. */
static void waiter_decided(struct op *op, const struct decision *decision)
{
    struct waiter *waiter = waiter_of(op);
    struct engine *engine = waiter->engine;
    struct list answered;
    list_init(&answered);
    pthread_mutex_lock(&engine->mutex);
    if (decision->status != PERMIT_BUSY || !waits_try_later(engine, waiter))
        waits_settle(engine, waiter, false, &answered);
    pthread_mutex_unlock(&engine->mutex);
    list_for_each (node, next, &answered) {
        struct decision copy = *decision;
        list_remove(node);
        decide(engine, LIST_ENTRY(node, struct op, node), &copy);
    }
}

/* It may have stood in the way of those behind it. */
static void leave(struct engine *engine, struct op *op)
{
    struct gate *gates[REQUEST_MAX_SEMAPHORES];
    size_t count = op->asks->stand_count;
    for (size_t i = 0; i < count; i++)
        gates[i] = op->asks->stands[i].gate;
    waiters_leave(&engine->queue.waiters, op, clock_mono() + KEEP_US);
    for (size_t i = 0; i < count; i++)
        if (gates[i]->doubtful) {
            waits_call(engine, gates[i]);
            waits_call_certain(engine, gates[i], CERTAIN_FREED, NULL);
        }
    waits_changed(engine);
}

bool engine_abandon(struct engine *engine, struct op *op)
{
    struct queue *queue = &engine->queue;
    pthread_mutex_lock(&engine->mutex);
    struct waiter *waiter = op->asks;
    bool in_batch = waiter ? waiter->called && !waiter->op.queued : !op->queued;
    if (PLANTED(16) && waiter && in_batch) {
        waiters_leave(&queue->waiters, op, 0);
        in_batch = false;
    } else if (!in_batch && waiter) {
        bool alone = waiter->askers.next == &op->node && waiter->askers.prev == &op->node;
        if (alone && waiter->called) {
            queue_take_out(queue, &waiter->op);
            leave_batch(queue, waiter);
        }
        leave(engine, op);
    } else if (!in_batch) {
        queue_take_out(queue, op);
        queue_forget_key(queue, op);
        op_drop_gates(op);
    } else {
        op->wait_until = 0; /* that batch is its last: without room there it would wait for nobody */
    }
    pthread_mutex_unlock(&engine->mutex);
    if (!in_batch) {
        atomic_fetch_sub(&engine->named_size, op->named_size);
        metrics_wait(&engine->metrics, WAIT_ABANDONED, 0);
    }
    return !in_batch;
}

void engine_end_waits(struct engine *engine)
{
    struct waiters *waiters = &engine->queue.waiters;
    struct list answered;
    list_init(&answered);
    pthread_mutex_lock(&engine->mutex);
    waiters->closed = true;
    list_for_each (node, next, &waiters->all) {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter, node);
        if (waiter->called)
            continue; /* its batch, if it still runs, is the last */
        waiters_dismiss(waiters, waiter, NEVER, &answered);
        waiters_settle(waiters, waiter, 0);
    }
    pthread_mutex_unlock(&engine->mutex);
    list_for_each (node, next, &answered) {
        list_remove(node);
        decide(engine, LIST_ENTRY(node, struct op, node), &(struct decision){.status = PERMIT_SHUTTING_DOWN});
    }
}

/* ---- what is free ---- */

void waits_call(struct engine *engine, struct gate *gate)
{
    if (queue_call_next(&engine->queue, gate, waits_aged_since(engine, clock_mono())) && engine->idle_workers)
        pthread_cond_signal(&engine->work);
}

static bool gives_back(const struct changes *changes, const struct waiter *waiter, const struct gate *gate)
{
    for (size_t i = 0; changes && i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; changes->requests[i].ends && j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == gate->id && waiter_can_use(waiter, gate, &request->permits[j]))
                return true;
    }
    return false;
}

static bool may_be_served(const struct stand *stand, enum certain who, const struct changes *changes)
{
    return who == CERTAIN_ALL || (who == CERTAIN_UNSEEN && stand->refused_at != stand->gate->version) ||
           stand->waiter->behind || gives_back(changes, stand->waiter, stand->gate);
}

void waits_call_certain(struct engine *engine, struct gate *gate, enum certain who, const struct changes *changes)
{
    if (gate->certain_count == 0)
        return;
    bool called = false;
    list_for_each (node, next, &gate->waiters) {
        const struct stand *stand = LIST_ENTRY(node, struct stand, node);
        struct waiter *waiter = stand->waiter;
        if (!waiter->certain || waiter->called || !waiter_is_asked(waiter) || !may_be_served(stand, who, changes))
            continue;
        queue_call(&engine->queue, waiter);
        called = true;
    }
    if (called && engine->idle_workers)
        pthread_cond_signal(&engine->work);
}

void waits_forget(struct engine *engine)
{
    list_for_each (node, next, &engine->queue.waiters.gates) {
        struct gate *gate = LIST_ENTRY(node, struct gate, waited_for);
        gate->version = 0;
        waiters_doubt(gate);
        waits_call(engine, gate);
        waits_call_certain(engine, gate, CERTAIN_ALL, NULL);
    }
}

void waits_learn(struct engine *engine, const struct semaphore *row, utc_us now)
{
    struct gate *gate = gates_find(&engine->queue.gates, row->id);
    if (!gate)
        return;
    mono_us mono = clock_mono();
    mono_us due_at = row->next_due_at == NEVER ? NEVER : mono + max_i64(0, row->next_due_at - now);
    waiters_learn(&engine->queue.waiters, gate, row, due_at, mono);
}

/* ---- refusals ---- */

/* Who stands before this key, or before a newcomer, at the gate; counted up to a bound. */
static void note_ahead(const struct gate *gate, struct bytes external_id, struct ahead *ahead)
{
    size_t looks = 0;
    list_for_each (node, next, &gate->waiters) {
        const struct operation *waiter = &LIST_ENTRY(node, struct stand, node)->waiter->operation;
        if (looks++ == AHEAD_COUNTED_MAX || bytes_equal(waiter->external_id, external_id))
            return;
        if (!waiter_is_asked(LIST_ENTRY(node, struct stand, node)->waiter))
            continue;
        if (ahead->count++ >= AHEAD_KEYS_MAX)
            continue;
        char *text = ahead->text[ahead->key_count];
        memcpy(text, waiter->external_id.data, waiter->external_id.length);
        ahead->keys[ahead->key_count++] = (struct bytes){text, waiter->external_id.length};
    }
}

void waits_note_ahead(struct engine *engine, struct refusal *refusal)
{
    if (engine->queue.waiters.count == 0)
        return;
    refusal->aheads = calloc(refusal->count, sizeof *refusal->aheads);
    for (size_t i = 0; refusal->aheads && i < refusal->count; i++) {
        const struct gate *gate = gates_find(&engine->queue.gates, refusal->shortages[i].semaphore_id);
        if (gate)
            note_ahead(gate, refusal->op->operation->external_id, &refusal->aheads[i]);
    }
}

/* ---- looking ---- */

/* False: no memory. */
static bool copy_want(struct arena *arena, const struct want *want, struct want *ret_want)
{
    *ret_want = *want;
    ret_want->semaphore = arena_copy(arena, want->semaphore);
    ret_want->named = arena_array(arena, want->named_count, sizeof *want->named);
    bool copied = ret_want->semaphore.data && ret_want->named;
    for (size_t i = 0; copied && i < want->named_count; i++) {
        ret_want->named[i] = want->named[i];
        if (want->named[i].label.data)
            ret_want->named[i].label = arena_copy(arena, want->named[i].label);
        copied = !want->named[i].label.data || ret_want->named[i].label.data;
    }
    return copied;
}

static bool copy_row(struct arena *arena, const struct waiter *waiter, struct waiter_row *ret_row)
{
    const struct operation *operation = &waiter->operation;
    utc_us offset = clock_wall() - clock_mono(); /* of this machine's clock, now */
    mono_us until = waiter->since;
    list_for_each (node, next, &waiter->askers)
        until = max_i64(until, LIST_ENTRY(node, struct op, node)->wait_until);
    *ret_row = (struct waiter_row){
        .external_id = arena_copy(arena, operation->external_id),
        .owner = arena_copy(arena, operation->owner),
        .wants = arena_array(arena, operation->want_count, sizeof *ret_row->wants),
        .want_count = operation->want_count,
        .since = waiter->since + offset,
        .deadline = until + offset,
        .number = waiter->op.arrival,
    };
    if (!ret_row->external_id.data || !ret_row->owner.data || !ret_row->wants)
        return false;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!copy_want(arena, &operation->wants[i], &ret_row->wants[i]))
            return false;
    return true;
}

/* The rows of a gate's waiters behind number `after`, as many as a page has. Engine's mutex held. */
static bool copy_rows(struct arena *arena, const struct gate *gate, uint64_t after, size_t limit,
                      struct waiter_row *rows, size_t *ret_count, bool *ret_more)
{
    const struct waiter *behind = NULL;
    size_t place = 0;
    size_t used_before = arena->used;
    list_for_each (node, next, &gate->waiters) {
        const struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        if (!waiter_is_asked(waiter))
            continue;
        *ret_more = *ret_count == limit || (*ret_count && arena->used - used_before > PAGE_BYTES);
        if (*ret_more)
            break;
        place++;
        if (waiter->op.arrival > after) {
            struct waiter_row *row = &rows[(*ret_count)++];
            if (!copy_row(arena, waiter, row))
                return false;
            row->place = place;
            row->behind = behind ? arena_copy(arena, behind->operation.external_id) : (struct bytes){0};
        }
        behind = waiter;
    }
    return true;
}

bool engine_waiters(struct engine *engine, struct bytes semaphore, uint64_t after, size_t limit, struct arena *arena,
                    struct waiter_row **ret_rows, size_t *ret_count, bool *ret_more)
{
    struct waiter_row *rows = arena_array(arena, limit, sizeof *rows);
    size_t count = 0;
    bool more = false;
    if (!rows)
        return false;
    pthread_mutex_lock(&engine->mutex);
    const struct gate *gate = gates_find_name(&engine->queue.gates, semaphore);
    bool copied = !gate || copy_rows(arena, gate, after, limit, rows, &count, &more);
    pthread_mutex_unlock(&engine->mutex);
    if (!copied)
        return false;
    *ret_rows = rows;
    *ret_count = count;
    *ret_more = more;
    return true;
}

/* Who stands before it at this gate. Engine's mutex held. */
static bool copy_place(struct arena *arena, const struct stand *stand, struct waiter_place *place)
{
    *place = (struct waiter_place){.ahead_keys = arena_array(arena, AHEAD_SHOWN_MAX, sizeof(struct bytes))};
    if (!place->ahead_keys)
        return false;
    list_for_each (node, next, &stand->gate->waiters) {
        const struct waiter *waiter = LIST_ENTRY(node, struct stand, node)->waiter;
        if (waiter == stand->waiter)
            break;
        if (!waiter_is_asked(waiter))
            continue;
        if (place->ahead++ >= AHEAD_SHOWN_MAX)
            continue;
        struct bytes key = arena_copy(arena, waiter->operation.external_id);
        if (!key.data)
            return false;
        place->ahead_keys[place->ahead_key_count++] = key;
    }
    return true;
}

static const struct stand *stand_of(const struct waiter *waiter, uint64_t semaphore_id)
{
    const struct stand *stand = waiter->stands;
    while (stand->gate->id != semaphore_id)
        stand++;
    return stand;
}

enum permit_status engine_find_waiter(struct engine *engine, struct bytes external_id, struct arena *arena,
                                      struct waiter_row *ret_row, struct waiter_place **ret_places)
{
    enum permit_status status = PERMIT_UNKNOWN_REQUEST;
    struct waiter_place *places = arena_array(arena, REQUEST_MAX_SEMAPHORES, sizeof *places);
    struct waiter_row row;
    if (!places)
        return PERMIT_NO_MEMORY;
    pthread_mutex_lock(&engine->mutex);
    const struct waiter *waiter = waiters_find(&engine->queue.waiters, external_id);
    if (waiter && waiter_is_asked(waiter)) {
        bool copied = copy_row(arena, waiter, &row);
        for (size_t i = 0; copied && i < row.want_count; i++)
            copied = copy_place(arena, stand_of(waiter, row.wants[i].semaphore_id), &places[i]);
        status = copied ? PERMIT_OK : PERMIT_NO_MEMORY;
    }
    pthread_mutex_unlock(&engine->mutex);
    if (status != PERMIT_OK)
        return status;
    *ret_row = row;
    *ret_places = places;
    return PERMIT_OK;
}

/* The first of a list of stands, or of all waiters, that is asked for. Engine's mutex held. */
static const struct waiter *first_asked(const struct engine *engine, const struct gate *gate)
{
    const struct list *list = gate ? &gate->waiters : &engine->queue.waiters.all;
    for (const struct list *node = list->next; node != list; node = node->next) {
        const struct waiter *waiter =
            gate ? LIST_ENTRY(node, struct stand, node)->waiter : LIST_ENTRY(node, struct waiter, node);
        if (waiter_is_asked(waiter))
            return waiter;
    }
    return NULL;
}

struct waiting engine_waiting(struct engine *engine, struct bytes semaphore)
{
    struct waiting waiting = {0};
    pthread_mutex_lock(&engine->mutex);
    const struct gate *gate = semaphore.length ? gates_find_name(&engine->queue.gates, semaphore) : NULL;
    if (gate || !semaphore.length) {
        const struct waiter *first = first_asked(engine, gate);
        waiting.count = gate ? gate->waiter_count : engine->queue.waiters.count;
        waiting.oldest_ms = first ? (clock_mono() - first->since) / US_PER_MS : 0;
    }
    pthread_mutex_unlock(&engine->mutex);
    return waiting;
}
