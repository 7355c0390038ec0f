/* SPDX-License-Identifier: MIT */
#include "engine/waitlist_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

enum {
    KEEP_US = 10000000,       /* time for which a waiter without clients keeps its place for the same key and digest */
    TRY_LATER_US = 500000,    /* delay before a waiter is woken that was refused although units may be free */
    AHEAD_COUNTED_MAX = 1000, /* waiters counted for a refusal */
    AHEAD_SHOWN_MAX = 10,     /* external_ids of waiters ahead in the answer for a waiter */
    PAGE_BYTES = 1024 * 1024, /* size of a page of waiters; a page has at least one */
};

mono_us waitlist_aged_since(const struct engine *engine, mono_us now)
{
    return now - engine->settings.backfill_bound_ms * US_PER_MS;
}

void waitlist_reschedule(struct engine *engine)
{
    const struct waiters *waiters = &engine->queue.waiters;
    const struct heap_node *wait_end = heap_first(&waiters->wait_ends);
    const struct heap_node *due = heap_first(&waiters->dues);
    mono_us first = wait_end ? wait_end->time : NEVER;
    if (due)
        first = min_i64(first, due->time);
    if (waiters->count) /* the wait poll does not poll without waiters */
        first = min_i64(first, clock_mono() + engine->settings.wait_poll_ms * US_PER_MS);
    if (first < engine->next_poll_at)
        pthread_cond_signal(&engine->poll_wake);
}

/* ---- in ---- */

enum permit_status waitlist_join(struct engine *engine, struct waiter *waiter, struct op *op)
{
    struct queue *queue = &engine->queue;
    if (queue->waiters.closed)
        return PERMIT_SHUTTING_DOWN;
    if (memcmp(waiter->operation.digest, op->operation->digest, DIGEST_SIZE) != 0)
        return PERMIT_KEY_REUSED;
    bool had_no_client = !waiter_has_clients(waiter);
    if (op->wait_until == 0)
        op->wait_until = op->arrived_at; /* the next batch decides */
    op->waited = true;
    op->joined_since_batch = true;
    op->arrival = waiter->op.arrival; /* for the case that it is queued on its own later */
    waiters_add_client(&queue->waiters, waiter, op);
    if (had_no_client) { /* it was not woken meanwhile */
        queue_wake(queue, waiter);
        if (engine->idle_workers)
            pthread_cond_signal(&engine->work);
    }
    waitlist_reschedule(engine);
    return PERMIT_OK;
}

static bool max_waiters_reached(const struct engine *engine)
{
    return engine->queue.waiters.count >= engine->settings.max_waiters;
}

/* The semaphore has reached max_waiters, its own setting. */
static bool own_max_reached(const struct semaphore_entry *entry)
{
    return entry->row.max_waiters != SETTING_NONE && entry->waiter_count >= (size_t)entry->row.max_waiters;
}

/* A semaphore of the op that has reached its max_waiters, or max_semaphore_waiters; NULL: none. */
static const struct semaphore_entry *full_waitlist(const struct engine *engine, const struct op *op)
{
    for (size_t i = 0; i < op->entry_count; i++)
        if (own_max_reached(op->entries[i]) || op->entries[i]->waiter_count >= engine->settings.max_semaphore_waiters)
            return op->entries[i];
    return NULL;
}

const char *waitlist_full_reason(const struct engine *engine, const struct op *op, struct arena *arena)
{
    enum { SIZE = 400 }; /* a name has 255 bytes */
    const struct semaphore_entry *entry = full_waitlist(engine, op);
    const char *name = entry && entry->name ? entry->name : "one of its semaphores";
    char *sentence = max_waiters_reached(engine) || entry ? arena_alloc(arena, SIZE) : NULL;
    if (sentence && max_waiters_reached(engine))
        snprintf(sentence, SIZE, "too many waiting requests (max_waiters is %zu)", engine->settings.max_waiters);
    else if (sentence && own_max_reached(entry))
        snprintf(sentence, SIZE, "too many waiting requests for %s (its max_waiters is %lld)", name,
                 (long long)entry->row.max_waiters);
    else if (sentence)
        snprintf(sentence, SIZE, "too many waiting requests for %s (max_semaphore_waiters is %zu)", name,
                 engine->settings.max_semaphore_waiters);
    return sentence;
}

static void waiter_decided(struct op *op, const struct decision *decision);

/* Makes the op a client of the waiter with its key, or of a new waiter. */
static enum permit_status join_or_add(struct engine *engine, struct op *op)
{
    struct queue *queue = &engine->queue;
    struct waiter *waiter = waiters_find(&queue->waiters, op->operation->external_id);
    if (waiter && memcmp(waiter->operation.digest, op->operation->digest, DIGEST_SIZE) != 0)
        return PERMIT_KEY_REUSED;
    if (waiter) {
        waiters_add_client(&queue->waiters, waiter, op);
        return PERMIT_OK;
    }
    waiter = waiters_add(&queue->waiters, &queue->semaphores, op, clock_mono());
    if (!waiter)
        return PERMIT_NO_MEMORY;
    waiter->engine = engine;
    waiter->op.decided = waiter_decided;
    return PERMIT_OK;
}

bool waitlist_park(struct engine *engine, struct op *op, mono_us taken_at, enum permit_status *ret_status)
{
    *ret_status = PERMIT_OK;
    assert(!op->queued && !op->keyed);
    if (op->wait_until <= taken_at)
        return false;
    if (engine->queue.waiters.closed)
        *ret_status = PERMIT_SHUTTING_DOWN;
    else if (max_waiters_reached(engine) || full_waitlist(engine, op))
        *ret_status = PERMIT_TOO_MANY;
    else
        *ret_status = join_or_add(engine, op);
    if (*ret_status != PERMIT_OK)
        return false;
    op->waited = true;
    stage_reopen(&op->stage);
    op_drop_entries(op);
    waitlist_reschedule(engine);
    return true;
}

/* ---- out ---- */

/* Ends the part of the waiter in the queue or in a batch. */
static void leave_batch(struct queue *queue, struct waiter *waiter)
{
    assert(waiter->woken && !waiter->op.queued && queue->waiters.woken > 0);
    queue_forget_key(queue, &waiter->op);
    op_drop_entries(&waiter->op);
    waiter->woken = false;
    queue->waiters.woken--;
    stage_reopen(&waiter->op.stage);
}

bool waitlist_mark_sent(struct engine *engine, struct waiter *waiter)
{
    bool asked = false;
    pthread_mutex_lock(&engine->mutex);
    list_for_each (node, next, &waiter->clients)
        asked |= stage_send(&LIST_ENTRY(node, struct op, node)->stage);
    if (asked)
        asked = stage_send(&waiter->op.stage);
    pthread_mutex_unlock(&engine->mutex);
    return asked;
}

bool waitlist_all_answered(struct engine *engine, const struct waiter *waiter)
{
    pthread_mutex_lock(&engine->mutex);
    bool answered = waiter_has_clients(waiter);
    list_for_each (node, next, &waiter->clients)
        answered &= stage_is_answered(&LIST_ENTRY(node, struct op, node)->stage);
    pthread_mutex_unlock(&engine->mutex);
    return answered;
}

/* Records a temporary refusal for the waiter and its clients. */
static void note_refused(struct waiter *waiter)
{
    waiter_record_refusal(waiter);
    list_for_each (node, next, &waiter->clients) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        stage_reopen(&op->stage);
        op->joined_since_batch = false;
    }
}

void waitlist_settle(struct engine *engine, struct waiter *waiter, bool refused, struct list *ret_answered)
{
    struct waiters *waiters = &engine->queue.waiters;
    leave_batch(&engine->queue, waiter);
    if (refused)
        note_refused(waiter);
    bool all = !refused || waiters->closed;
    waiters_take_clients(waiters, waiter, all ? NEVER : waiter->taken_at, ret_answered);
    waiters_schedule(waiters, waiter, all ? 0 : clock_mono() + KEEP_US);
    waitlist_reschedule(engine);
}

void waitlist_wake_later(struct engine *engine, struct waiter *waiter)
{
    mono_us at = clock_mono() + TRY_LATER_US;
    for (size_t i = 0; i < waiter->place_count; i++)
        waiters_wake_at(&engine->queue.waiters, waiter->places[i].entry, at);
}

bool waitlist_retry_later(struct engine *engine, struct waiter *waiter)
{
    struct waiters *waiters = &engine->queue.waiters;
    bool unknown = stage_is_sent(&waiter->op.stage);
    if (waiters->closed || unknown || waiter_wait_end(waiter) <= clock_mono())
        return false;
    leave_batch(&engine->queue, waiter);
    waitlist_wake_later(engine, waiter);
    waiters_schedule(waiters, waiter, 0);
    waitlist_reschedule(engine);
    return true;
}

/* Ends a waiter whose op did not reach a plan: answers its clients, or parks it again after PERMIT_BUSY. */
static void waiter_decided(struct op *op, const struct decision *decision)
{
    struct waiter *waiter = waiter_of(op);
    struct engine *engine = waiter->engine;
    struct list answered;
    list_init(&answered);
    pthread_mutex_lock(&engine->mutex);
    if (decision->status != PERMIT_BUSY || !waitlist_retry_later(engine, waiter))
        waitlist_settle(engine, waiter, false, &answered);
    pthread_mutex_unlock(&engine->mutex);
    list_for_each (node, next, &answered) {
        struct decision copy = *decision;
        list_remove(node);
        decide(engine, LIST_ENTRY(node, struct op, node), &copy);
    }
}

/* Removes the client from its waiter, and wakes waiters that this waiter may have blocked. */
static void leave(struct engine *engine, struct op *op)
{
    struct semaphore_entry *entries[REQUEST_MAX_SEMAPHORES];
    size_t count = op->waiter->place_count;
    for (size_t i = 0; i < count; i++)
        entries[i] = op->waiter->places[i].entry;
    waiters_remove_client(&engine->queue.waiters, op, clock_mono() + KEEP_US);
    for (size_t i = 0; i < count; i++)
        if (entries[i]->free_units_uncertain) {
            waitlist_wake_next(engine, entries[i]);
            waitlist_wake_specific(engine, entries[i], WAKE_FREED, NULL);
        }
    waitlist_reschedule(engine);
}

bool engine_abandon(struct engine *engine, struct op *op)
{
    struct queue *queue = &engine->queue;
    pthread_mutex_lock(&engine->mutex);
    struct waiter *waiter = op->waiter;
    bool in_batch = waiter ? waiter->woken && !waiter->op.queued : !op->queued;
    if (!in_batch && waiter) {
        bool alone = waiter->clients.next == &op->node && waiter->clients.prev == &op->node;
        if (alone && waiter->woken) {
            queue_take_out(queue, &waiter->op);
            leave_batch(queue, waiter);
        }
        leave(engine, op);
    } else if (!in_batch) {
        queue_take_out(queue, op);
        queue_forget_key(queue, op);
        op_drop_entries(op);
    } else {
        op->wait_until = 0; /* the running batch is its last: it must not be parked without a client */
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
        if (waiter->woken)
            continue; /* its batch, if it still runs, is its last */
        waiters_take_clients(waiters, waiter, NEVER, &answered);
        waiters_schedule(waiters, waiter, 0);
    }
    pthread_mutex_unlock(&engine->mutex);
    list_for_each (node, next, &answered) {
        list_remove(node);
        decide(engine, LIST_ENTRY(node, struct op, node), &(struct decision){.status = PERMIT_SHUTTING_DOWN});
    }
}

/* ---- waking ---- */

void waitlist_wake_next(struct engine *engine, struct semaphore_entry *entry)
{
    if (queue_wake_next(&engine->queue, entry, waitlist_aged_since(engine, clock_mono())) && engine->idle_workers)
        pthread_cond_signal(&engine->work);
}

/* Returns true if a request that ended has freed a slot of this semaphore that the waiter can use. */
static bool frees_usable_slot(const struct changes *changes, const struct waiter *waiter,
                              const struct semaphore_entry *entry)
{
    for (size_t i = 0; changes && i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; changes->requests[i].ends && j < request->permit_count; j++)
            if (request->permits[j].semaphore_id == entry->id && waiter_can_use(waiter, entry, &request->permits[j]))
                return true;
    }
    return false;
}

static bool should_wake(const struct wait_place *place, enum wake_specific who, const struct changes *changes)
{
    return who == WAKE_ALL || (who == WAKE_STALE && place->refused_at != place->entry->version) ||
           place->waiter->behind || frees_usable_slot(changes, place->waiter, place->entry);
}

void waitlist_wake_specific(struct engine *engine, struct semaphore_entry *entry, enum wake_specific who,
                            const struct changes *changes)
{
    if (entry->specific_count == 0)
        return;
    bool woken = false;
    list_for_each (node, next, &entry->waiters) {
        const struct wait_place *place = LIST_ENTRY(node, struct wait_place, node);
        struct waiter *waiter = place->waiter;
        if (!waiter->is_specific || waiter->woken || !waiter_has_clients(waiter) || !should_wake(place, who, changes))
            continue;
        queue_wake(&engine->queue, waiter);
        woken = true;
    }
    if (woken && engine->idle_workers)
        pthread_cond_signal(&engine->work);
}

void waitlist_invalidate(struct engine *engine)
{
    list_for_each (node, next, &engine->queue.waiters.entries) {
        struct semaphore_entry *entry = LIST_ENTRY(node, struct semaphore_entry, waited_for);
        entry->version = 0;
        waiters_mark_uncertain(entry);
        waitlist_wake_next(engine, entry);
        waitlist_wake_specific(engine, entry, WAKE_ALL, NULL);
    }
}

void waitlist_observe(struct engine *engine, const struct semaphore *row, utc_us now)
{
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, row->id);
    if (!entry)
        return;
    mono_us mono = clock_mono();
    mono_us due_at = row->next_due_at == NEVER ? NEVER : mono + max_i64(0, row->next_due_at - now);
    waiters_update_row(&engine->queue.waiters, entry, row, due_at, mono);
}

/* ---- refusals ---- */

/* Counts the waiters of the semaphore ahead of this key, or all if the key does not wait; at most AHEAD_COUNTED_MAX. */
static void note_ahead(const struct semaphore_entry *entry, struct bytes external_id, struct ahead *ahead)
{
    size_t looks = 0;
    list_for_each (node, next, &entry->waiters) {
        const struct operation *waiter = &LIST_ENTRY(node, struct wait_place, node)->waiter->operation;
        if (looks++ == AHEAD_COUNTED_MAX || bytes_equal(waiter->external_id, external_id))
            return;
        if (!waiter_has_clients(LIST_ENTRY(node, struct wait_place, node)->waiter))
            continue;
        if (ahead->count++ >= AHEAD_KEYS_MAX)
            continue;
        char *text = ahead->text[ahead->key_count];
        memcpy(text, waiter->external_id.data, waiter->external_id.length);
        ahead->keys[ahead->key_count++] = (struct bytes){text, waiter->external_id.length};
    }
}

void waitlist_note_ahead(struct engine *engine, struct refusal *refusal)
{
    if (engine->queue.waiters.count == 0)
        return;
    refusal->aheads = calloc(refusal->count, sizeof *refusal->aheads);
    for (size_t i = 0; refusal->aheads && i < refusal->count; i++) {
        const struct semaphore_entry *entry =
            semaphore_cache_find(&engine->queue.semaphores, refusal->shortages[i].semaphore_id);
        if (entry)
            note_ahead(entry, refusal->op->operation->external_id, &refusal->aheads[i]);
    }
}

/* ---- queries ---- */

/* False: out of memory. */
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
    utc_us offset = clock_wall() - clock_mono(); /* from the monotonic to the wall clock of this machine */
    mono_us until = waiter->since;
    list_for_each (node, next, &waiter->clients)
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

/*
 * Copies one page of the waiters of a semaphore behind number `after`. False: out of memory. Caller holds the engine's
 * mutex.
 */
static bool copy_rows(struct arena *arena, const struct semaphore_entry *entry, uint64_t after, size_t limit,
                      struct waiter_row *rows, size_t *ret_count, bool *ret_more)
{
    const struct waiter *behind = NULL;
    size_t place = 0;
    size_t used_before = arena->used;
    list_for_each (node, next, &entry->waiters) {
        const struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        if (!waiter_has_clients(waiter))
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
    const struct semaphore_entry *entry = semaphore_cache_find_name(&engine->queue.semaphores, semaphore);
    bool copied = !entry || copy_rows(arena, entry, after, limit, rows, &count, &more);
    pthread_mutex_unlock(&engine->mutex);
    if (!copied)
        return false;
    *ret_rows = rows;
    *ret_count = count;
    *ret_more = more;
    return true;
}

/* Copies the waiters ahead at this place. False: out of memory. Caller holds the engine's mutex. */
static bool copy_ahead(struct arena *arena, const struct wait_place *place, struct waiters_ahead *ahead)
{
    *ahead = (struct waiters_ahead){.ahead_keys = arena_array(arena, AHEAD_SHOWN_MAX, sizeof(struct bytes))};
    if (!ahead->ahead_keys)
        return false;
    list_for_each (node, next, &place->entry->waiters) {
        const struct waiter *waiter = LIST_ENTRY(node, struct wait_place, node)->waiter;
        if (waiter == place->waiter)
            break;
        if (!waiter_has_clients(waiter))
            continue;
        if (ahead->ahead++ >= AHEAD_SHOWN_MAX)
            continue;
        struct bytes key = arena_copy(arena, waiter->operation.external_id);
        if (!key.data)
            return false;
        ahead->ahead_keys[ahead->ahead_key_count++] = key;
    }
    return true;
}

static const struct wait_place *place_at(const struct waiter *waiter, uint64_t semaphore_id)
{
    const struct wait_place *place = waiter->places;
    while (place->entry->id != semaphore_id)
        place++;
    assert(place < waiter->places + waiter->place_count);
    return place;
}

enum permit_status engine_find_waiter(struct engine *engine, struct bytes external_id, struct arena *arena,
                                      struct waiter_row *ret_row, struct waiters_ahead **ret_places)
{
    enum permit_status status = PERMIT_UNKNOWN_REQUEST;
    struct waiters_ahead *places = arena_array(arena, REQUEST_MAX_SEMAPHORES, sizeof *places);
    struct waiter_row row;
    if (!places)
        return PERMIT_NO_MEMORY;
    pthread_mutex_lock(&engine->mutex);
    const struct waiter *waiter = waiters_find(&engine->queue.waiters, external_id);
    if (waiter && waiter_has_clients(waiter)) {
        bool copied = copy_row(arena, waiter, &row);
        for (size_t i = 0; copied && i < row.want_count; i++)
            copied = copy_ahead(arena, place_at(waiter, row.wants[i].semaphore_id), &places[i]);
        status = copied ? PERMIT_OK : PERMIT_NO_MEMORY;
    }
    pthread_mutex_unlock(&engine->mutex);
    if (status != PERMIT_OK)
        return status;
    *ret_row = row;
    *ret_places = places;
    return PERMIT_OK;
}

/* The first waiter with clients, of this semaphore or (NULL) of all. NULL: none. Caller holds the engine's mutex. */
static const struct waiter *first_with_clients(const struct engine *engine, const struct semaphore_entry *entry)
{
    const struct list *list = entry ? &entry->waiters : &engine->queue.waiters.all;
    for (const struct list *node = list->next; node != list; node = node->next) {
        const struct waiter *waiter =
            entry ? LIST_ENTRY(node, struct wait_place, node)->waiter : LIST_ENTRY(node, struct waiter, node);
        if (waiter_has_clients(waiter))
            return waiter;
    }
    return NULL;
}

struct waiting engine_waiting(struct engine *engine, struct bytes semaphore)
{
    struct waiting waiting = {0};
    pthread_mutex_lock(&engine->mutex);
    const struct semaphore_entry *entry =
        semaphore.length ? semaphore_cache_find_name(&engine->queue.semaphores, semaphore) : NULL;
    if (entry || !semaphore.length) {
        const struct waiter *first = first_with_clients(engine, entry);
        waiting.count = entry ? entry->waiter_count : engine->queue.waiters.count;
        waiting.oldest_ms = first ? (clock_mono() - first->since) / US_PER_MS : 0;
    }
    pthread_mutex_unlock(&engine->mutex);
    return waiting;
}
