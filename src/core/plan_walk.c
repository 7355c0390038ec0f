/* SPDX-License-Identifier: MIT */
/*
 * The walk along the requests that wait, in the order of their places. The rules:
 *
 *   - A waiter is asked for if an operation of the batch asks for it, or if it waits at a server that is alive. Only a
 *     waiter that is asked for is granted, and only such a waiter is in the way of others. A waiter on a paused or closed
 *     semaphore, or with a want that can never be granted, is in nobody's way: its own server ends its wait.
 *   - A waiter that fits beside the reservations before it is granted, wherever its client waits.
 *   - One that does not fit is protected once it has waited backfill_bound. It then reserves its whole need on all its
 *     semaphores, or nothing: nothing if on any of them the reservations before it and its need exceed the capacity less
 *     what is confirmed. A request behind it, waiter or new, takes only what is free beyond the reservations before it.
 *   - Under `fifo` nobody passes a waiter that was not granted, and nobody reserves behind one that has reserved nothing.
 *   - A waiter that may fit and cannot be decided in this batch, because a semaphore of it is not locked: its need is
 *     kept from those behind it, and its server is called if the batch changes something for it. It may fit, too, if it
 *     lacks only what is kept for others. One of which a semaphore is unknown in the end is in nobody's way.
 *   - A waiter that would reserve behind such a one, on any of its semaphores, may reserve nothing if that one does: its
 *     need is kept, too.
 *   - Waiters with the same needs behind one that could neither be granted nor reserve are passed over.
 *   - The walk asks for more rows where it may be wrong without them: the semaphores that a waiter wants and that are not
 *     locked; more of a queue of which units are left; and all that decides whether a protected waiter reserves, if units
 *     are left behind it. In the last round (view.reads_end) it does with what was read.
 *
 * Reservations are computed anew in every walk, and bind only those behind them: so they cannot wait in a circle. A
 * `stander` is in the way of the requests behind it; queue_state has the sums over the standers before a place.
 */
#include "core/planner.h"

#include <assert.h>

enum {
    /* A batch grants no more than about this many requests of one queue. The next waiter gets mail (P23). */
    QUEUE_GRANTS_MAX = 1024,
    /*
     * The first protected waiters for adjacent slots of a semaphore reserve a run each, and so many of the ones that may
     * fit keep one. The search looks at all slots.
     */
    RUNS_MAX = 4,
    HOPELESS_MAX = 64,
    /*
     * So many semaphores that a round asks for, before a waiter that wants one of them is an obstacle to those behind it: they
     * may want others, and the rounds are few.
     */
    UNKNOWN_A_ROUND = 16,
};

/* ---- those who stand before ---- */

static bool is_closed(const struct semaphore *semaphore)
{
    return semaphore->capacity == 0 || semaphore->paused_reason.data || semaphore->retired_at != NEVER;
}

static bool is_locked_and_slotted(const struct queue_state *queue)
{
    return !queue->glimpse && queue->semaphore->kind == KIND_SLOTTED;
}

/*
 * Takes the need of a stander from those behind it. Reserved units never exceed the capacity; kept units may, because
 * some of these waiters lack only what is kept for others.
 */
static void count_stander(struct planner *planner, const struct stander *stander)
{
    bool kept = stander->how == STANDS_KEPT, reserved = stander->how == STANDS_RESERVED;
    for (size_t i = 0; i < stander->want_count; i++) {
        const struct want *want = &stander->wants[i];
        struct queue_state *queue = planner_known(planner, want->semaphore_id);
        if (!queue)
            continue;
        const struct slots *slots = stander->slots ? &stander->slots[i] : &(struct slots){0};
        for (uint32_t j = 0; j < slots->count; j++) {
            struct slot_pool *free = &planner->slot_views[queue - planner->queues].free;
            (kept ? slot_pool_keep : slot_pool_reserve)(free, slots->numbers[j], planner->arena);
        }
        int64_t any = slots->count ? 0 : want->count;
        queue->reserved += reserved ? want->count : 0;
        queue->reserved_any += reserved ? any : 0;
        queue->runs += reserved && want->adjacent && slots->count;
        queue->kept = min_i64(queue->kept + (kept ? any : 0), COUNTED_MAX_CAPACITY); /* as much as all */
        queue->kept_runs += kept && want->adjacent && slots->count;
        bool fifo = queue->semaphore->queue == QUEUE_FIFO;
        if (fifo && stander->how == STANDS_PLAIN)
            queue->fifo = FIFO_BARRED;
        else if (queue->fifo == FIFO_OPEN && ((fifo && reserved) || stander->how == STANDS_UNREAD))
            queue->fifo = FIFO_SHUT;
        queue->kept_needs += kept;
    }
}

static void count_none(struct planner *planner)
{
    for (size_t i = 0; i < planner->view->semaphore_count + planner->view->glimpse_count; i++) {
        struct queue_state *queue = &planner->queues[i];
        queue->reserved = queue->reserved_any = queue->kept = 0;
        queue->runs = queue->kept_runs = queue->kept_needs = 0;
        queue->fifo = FIFO_OPEN;
        if (is_locked_and_slotted(queue))
            slot_pool_unreserve(&planner->slot_views[i].free);
    }
    planner->stood = 0;
}

/* Sets the sums to those over the first `count` standers. */
static void count_standers(struct planner *planner, size_t count)
{
    if (count < planner->stood)
        count_none(planner);
    for (; planner->stood < count; planner->stood++)
        count_stander(planner, &planner->standers[planner->stood]);
}

/* Returns the number of standers before this place. */
static size_t standers_before(const struct planner *planner, utc_us place, uint64_t id)
{
    size_t count = planner->stander_count;
    while (count > 0 &&
           place_compare(planner->standers[count - 1].place, planner->standers[count - 1].id, place, id) >= 0)
        count--;
    return count;
}

void stand_before(struct planner *planner, utc_us place, uint64_t id)
{
    count_standers(planner, standers_before(planner, place, id));
}

/* Inserts it in the order of the places, and counts it if all before it are. */
static void add_stander(struct planner *planner, const struct stander *stander)
{
    planner->standers = planner_list(planner, planner->standers, planner->stander_count, sizeof *stander);
    size_t at = standers_before(planner, stander->place, stander->id);
    memmove(planner->standers + at + 1, planner->standers + at,
            (planner->stander_count - at) * sizeof *planner->standers);
    planner->standers[at] = *stander;
    planner->stander_count++;
    planner->kept_count += stander->how == STANDS_KEPT;
    if (at < planner->stood)
        count_none(planner);
    if (at == planner->stood)
        count_standers(planner, at + 1);
}

/* Returns the units that are missing of a want for no more than its request gives back: no waiter has a claim on them. */
static int64_t own_units_missing(const struct planner *planner, const struct queue_state *queue,
                                 const struct want *want)
{
    int64_t free = queue->semaphore->capacity - queue->semaphore->in_use;
    size_t index = (size_t)(queue - planner->queues);
    if (is_locked_and_slotted(queue) && planner->view->free_slots[index].complete) { /* else more are free */
        const struct slot_pool *pool = &planner->slot_views[index].free;
        free = min_i64(free, (int64_t)pool->count - slot_pool_count_reserved(pool));
    }
    return want->count - free;
}

int64_t units_missing(const struct planner *planner, const struct want *want)
{
    const struct queue_state *queue = planner_known(planner, want->semaphore_id);
    if (want->own >= want->count)
        return own_units_missing(planner, queue, want);
    bool shut_by_kept = queue->semaphore->queue == QUEUE_FIFO && queue->kept_needs && !queue->ignores_kept;
    if (queue->fifo != FIFO_OPEN || shut_by_kept)
        return INT64_MAX;
    int64_t reserved = queue->reserved_any + (queue->ignores_kept ? 0 : queue->kept);
    if (is_locked_and_slotted(queue))
        reserved += slot_pool_count_reserved(&planner->slot_views[queue - planner->queues].free);
    return want->count + reserved - (queue->semaphore->capacity - queue->semaphore->in_use);
}

/* ---- the chance of a request ---- */

/* Returns what is known of the slot that a waiter watches at this semaphore; NULL: it watches none. */
static const struct watcher *find_watcher(const struct queue_state *queue, uint64_t request_id)
{
    const struct glimpse *glimpse = queue->glimpse;
    for (size_t i = 0; glimpse && i < glimpse->watcher_count; i++)
        if (glimpse->watchers[i].request_id == request_id)
            return &glimpse->watchers[i];
    return NULL;
}

enum chance {
    CHANCE_NONE,  /* it cannot be granted whatever is released: it is in nobody's way */
    CHANCE_LATER, /* it does not fit */
    CHANCE_NOW,   /* it may fit, as far as its semaphores are known */
};

/* Returns the chance of a want of a known semaphore. */
static enum chance chance_of_want(struct planner *planner, const struct want *want, size_t index, uint64_t id)
{
    const struct queue_state *queue = planner_known(planner, want->semaphore_id);
    const char *detail;
    if (is_closed(queue->semaphore) || want->count > queue->semaphore->capacity)
        return CHANCE_NONE;
    if (!queue->glimpse && want_refusal(planner, want, index, &detail) != PERMIT_OK)
        return CHANCE_NONE;
    int64_t missing = units_missing(planner, want);
    bool may_end = queue->glimpse ? queue->semaphore->next_due_at <= planner->due_now : queue->due_units > 0;
    bool fits = missing <= 0 || (may_end && missing <= (queue->glimpse ? want->count : queue->due_units));
    if (!queue->glimpse && !may_end && planner_slots_missing(planner, want, index) > 0)
        fits = false;
    return fits && !find_watcher(queue, id) ? CHANCE_NOW : CHANCE_LATER;
}

/* Returns the chance of all wants. *ret_unknown: of a semaphore nothing was read. */
static enum chance find_chance(struct planner *planner, const struct operation *operation, uint64_t id,
                               bool *ret_unknown)
{
    enum chance chance = CHANCE_NOW;
    *ret_unknown = false;
    for (size_t i = 0; i < operation->want_count && chance != CHANCE_NONE; i++) {
        if (!planner_known(planner, operation->wants[i].semaphore_id)) {
            *ret_unknown = true;
            continue;
        }
        enum chance of_want = chance_of_want(planner, &operation->wants[i], i, id);
        chance = of_want < chance ? of_want : chance;
    }
    return chance;
}

/* The request is looked at as if nothing were kept for others; or no longer. */
static void ignore_kept(struct planner *planner, const struct operation *operation, bool ignores)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        struct queue_state *queue = planner_known(planner, operation->wants[i].semaphore_id);
        if (!queue)
            continue;
        queue->ignores_kept = ignores;
        if (is_locked_and_slotted(queue))
            planner->slot_views[queue - planner->queues].free.ignores_kept = ignores;
    }
}

/*
 * Returns true if a request that this batch cannot decide, and that does not fit, lacks only what is kept for others.
 */
static bool may_lack_only_kept(struct planner *planner, const struct operation *operation, uint64_t id)
{
    bool unknown;
    ignore_kept(planner, operation, true);
    bool lacks = planner->kept_count && find_chance(planner, operation, id, &unknown) == CHANCE_NOW;
    ignore_kept(planner, operation, false);
    return lacks;
}

/* The same for a request that acquire_fit has refused. */
static bool lacks_only_kept(struct planner *planner, const struct operation *operation)
{
    ignore_kept(planner, operation, true);
    bool lacks = planner->kept_count && acquire_would_fit(planner, operation);
    ignore_kept(planner, operation, false);
    return lacks;
}

static bool contains(const uint64_t *ids, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Adds the semaphores of the wants that are not there. False: these are more than a batch locks. */
static bool add_semaphores(uint64_t *ids, size_t *count, const struct want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        if (!wants[i].semaphore_id || contains(ids, *count, wants[i].semaphore_id)) /* 0: no such semaphore */
            continue;
        if (*count == BATCH_MAX_SEMAPHORES)
            return false;
        ids[(*count)++] = wants[i].semaphore_id;
    }
    return true;
}

/* Adds those with which the stander can be decided. False: these are more than a batch locks. */
static bool add_needs(uint64_t *ids, size_t *count, const struct stander *stander)
{
    for (size_t i = 0; i < stander->need_count; i++)
        if (!add_semaphores(ids, count, &(struct want){.semaphore_id = stander->needs[i]}, 1))
            return false;
    return add_semaphores(ids, count, stander->wants, stander->want_count);
}

static bool wants_one_of(const struct stander *stander, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < stander->want_count; i++)
        if (contains(ids, count, stander->wants[i].semaphore_id))
            return true;
    return false;
}

uint64_t *find_wider_locks(struct planner *planner, const struct operation *operation, size_t *ret_count)
{
    *ret_count = 0;
    if (operation->widened == WIDENED_MAX || !lacks_only_kept(planner, operation))
        return NULL;
    uint64_t *ids = arena_must_array(planner->arena, BATCH_MAX_SEMAPHORES, sizeof *ids);
    size_t count = 0, before;
    if (!add_semaphores(ids, &count, operation->wants, operation->want_count))
        return NULL;
    do {
        before = count;
        for (size_t i = 0; i < planner->stood; i++) {
            const struct stander *stander = &planner->standers[i];
            if (stander->how == STANDS_KEPT && wants_one_of(stander, ids, count) && !add_needs(ids, &count, stander))
                return NULL;
        }
    } while (count > before);
    bool wider = !operation->widened;
    for (size_t i = 0; i < count; i++)
        wider |= !planner_image(planner, ids[i]);
    *ret_count = wider ? count : 0;
    return wider ? ids : NULL;
}

/* ---- reservations, and waiters with the same needs ---- */

static bool is_protected(const struct planner *planner, const struct request *request)
{
    return planner->now - request->waiting_since >= planner->settings->backfill_bound_us;
}

/* Returns the entry for waiters that want what this one wants; NULL: there is none. */
static struct hopeless *find_hopeless(const struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < planner->hopeless_count; i++)
        if (wants_same_needs(planner->hopeless[i].wanted, request->wanted))
            return &planner->hopeless[i];
    return NULL;
}

static bool is_hopeless(const struct planner *planner, const struct request *request)
{
    const struct hopeless *hopeless = find_hopeless(planner, request);
    return hopeless && (hopeless->was_protected || !is_protected(planner, request));
}

/* Returns true if all that stand before the waiter in the queue of a locked semaphore were read. */
static bool is_read_up_to(const struct planner *planner, size_t index, const struct request *request)
{
    const struct queue_view *part = &planner->view->queues[index];
    return part->limit &&
           (!part->beyond || place_compare(request->place, request->id, part->beyond_place, part->beyond) <= 0);
}

/* The same in all its queues that are locked. */
static bool is_read_up_to_all(const struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++) {
        size_t index = view_semaphore_index(planner->view, request->wants[i].semaphore_id);
        if (index < planner->view->semaphore_count && !is_read_up_to(planner, index, request))
            return false;
    }
    return true;
}

/*
 * Remembers a waiter that takes nothing from those behind it, unless a semaphore is unknown. The ttl "owner" is more
 * than a need.
 */
static void note_hopeless(struct planner *planner, const struct request *request)
{
    struct hopeless *hopeless = find_hopeless(planner, request);
    bool known = true;
    for (size_t i = 0; i < request->want_count; i++)
        known &= planner_known(planner, request->wants[i].semaphore_id) != NULL;
    if (!known || !planner->hopeless || request->ttl.kind == TTL_OWNER)
        return;
    if (!hopeless && planner->hopeless_count < HOPELESS_MAX) {
        hopeless = &planner->hopeless[planner->hopeless_count++];
        *hopeless = (struct hopeless){.wanted = request->wanted};
    }
    if (!hopeless)
        return;
    bool was_read = planner->view->queues && is_read_up_to_all(planner, request);
    hopeless->was_protected |= is_protected(planner, request);
    hopeless->was_read |= was_read;
    hopeless->protected_was_read |= was_read && is_protected(planner, request);
}

/* Chooses the certain slots of a need, for each want. False: there are none for a want. */
static bool choose_slots(struct planner *planner, const struct request *request, struct stander *stander)
{
    bool chosen = true;
    for (size_t i = 0; i < request->want_count && chosen; i++) {
        const struct want *want = &request->wants[i];
        const struct queue_state *queue = planner_known(planner, want->semaphore_id);
        const char *detail;
        if (!want_is_specific(want) || !queue || queue->glimpse)
            continue;
        if (!stander->slots)
            stander->slots = arena_must_array(planner->arena, request->want_count, sizeof *stander->slots);
        bool searches = (stander->how == STANDS_KEPT ? queue->kept_runs : queue->runs) < RUNS_MAX;
        bool has_holders = planner->view->named_slots[queue - planner->queues].has_holders;
        if (want->adjacent && searches && queue->semaphore->confirmed && !has_holders && !planner->view->reads_end)
            planner->read_held |= UINT64_C(1) << (queue - planner->queues);
        if (planner_resolve_want(planner, want, i, &detail) == PERMIT_OK && (searches || !want->adjacent))
            stander->slots[i] = planner_slots_to_reserve(planner, want, i);
        chosen = stander->slots[i].count > 0;
    }
    return chosen;
}

/*
 * Returns true if it matters how the waiter stands: units of a locked semaphore are left for those behind it, or it may
 * bar others from a semaphore that was read because that matters.
 */
static bool stand_matters(const struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++) {
        const struct queue_state *queue = planner_known(planner, request->wants[i].semaphore_id);
        const struct want one = {.semaphore_id = request->wants[i].semaphore_id, .count = 1};
        if (!queue)
            continue;
        if (queue->glimpse ? is_protected(planner, request) || queue->semaphore->queue == QUEUE_FIFO
                           : units_missing(planner, &one) <= queue->due_units)
            return true;
    }
    return false;
}

/* Asks for a look at the semaphores of which nothing was read. */
static void look_at_unknown(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++)
        if (!planner_known(planner, request->wants[i].semaphore_id) &&
            !contains(planner->unknown, planner->unknown_count, request->wants[i].semaphore_id) &&
            planner->unknown_count + planner->view->glimpse_count < GLIMPSES_MAX)
            planner->unknown[planner->unknown_count++] = request->wants[i].semaphore_id;
}

/*
 * Finds the queues of a waiter, a bit per semaphore of the view, of which more can be read: its specific slots, because
 * nothing was read of a queue without free units; or, `others`, those before it.
 */
static uint64_t unread_of(const struct planner *planner, const struct request *request, bool others)
{
    const struct view *view = planner->view;
    uint64_t unread = 0;
    for (size_t i = 0; i < request->want_count && view->queues; i++) {
        size_t index = view_semaphore_index(view, request->wants[i].semaphore_id);
        if (index == view->semaphore_count)
            continue;
        const size_t limit = view->queues[index].limit;
        bool slots = !limit && want_is_specific(&request->wants[i]);
        bool any_before = planner->queues[index].semaphore->waiting > 1 && !is_read_up_to(planner, index, request);
        if (limit < QUEUE_PROTECTED_MAX && (slots || (others && any_before)))
            unread |= UINT64_C(1) << index;
    }
    return unread;
}

/*
 * Asks for what was not read and decides about the first standers: units are left behind the last of them, which is
 * protected. Whether it reserves may be wrong: those before it may have reserved what it needs, or not, and so on.
 */
static void read_for(struct planner *planner, size_t count)
{
    for (; planner->read_for < count; planner->read_for++) {
        const struct request *request = planner->standers[planner->read_for].request;
        if (!request)
            continue;
        look_at_unknown(planner, request);
        planner->read_more |= unread_of(planner, request, true);
    }
}

/*
 * Adds a request that is not granted. It may fit: its need is kept until a batch with these locks decides it (count 0:
 * with those that it wants); else it reserves its need if it is protected, or keeps it behind those whose need is kept.
 */
static void stand_here(struct planner *planner, const struct request *request, bool may_fit, const uint64_t *needs,
                       size_t need_count)
{
    struct stander stander = {.place = request->place,
                              .id = request->id,
                              .request = request,
                              .wants = request->wants,
                              .want_count = request->want_count,
                              .needs = needs,
                              .need_count = need_count};
    bool can_come = true; /* the units of its need, whatever stands before it */
    bool has_room = true; /* they can come beside the reservations before it */
    bool behind_kept = false;
    stand_before(planner, request->place, request->id);
    for (size_t i = 0; i < request->want_count; i++) {
        const struct queue_state *queue = planner_known(planner, request->wants[i].semaphore_id);
        if (!queue) {
            has_room = false;
            continue;
        }
        if (is_closed(queue->semaphore))
            return; /* it grants no units, however many are released: the request is in nobody's way */
        const struct watcher *watcher = find_watcher(queue, request->id);
        int64_t room = queue->semaphore->capacity - queue->semaphore->confirmed;
        can_come &= request->wants[i].count <= room && !(watcher && watcher->confirmed);
        has_room &= queue->reserved + request->wants[i].count <= room && queue->fifo != FIFO_BARRED;
        behind_kept |= queue->kept_needs > 0;
    }
    bool wants_to_reserve = !may_fit && is_protected(planner, request) && can_come;
    bool reserves = wants_to_reserve && has_room;
    bool keeps = may_fit || (reserves && behind_kept);
    stander.how = keeps ? STANDS_KEPT : STANDS_PLAIN;
    bool chosen = (keeps || reserves) && choose_slots(planner, request, &stander);
    if (!keeps && chosen)
        stander.how = STANDS_RESERVED;
    if (!chosen)
        stander.slots = NULL;
    if (stander.how == STANDS_PLAIN)
        note_hopeless(planner, request);
    bool reads = wants_to_reserve && !planner->view->reads_end && stand_matters(planner, request);
    add_stander(planner, &stander);
    if (reads)
        read_for(planner, standers_before(planner, request->place, request->id) + 1);
}

void stand(struct planner *planner, const struct request *request)
{
    stand_here(planner, request, false, NULL, 0);
}

void stand_put_back(struct planner *planner, const struct operation *operation, const uint64_t *needs,
                    size_t need_count)
{
    planner->put_backs = planner_list(planner, planner->put_backs, planner->put_back_count, sizeof *planner->put_backs);
    struct stander *stander = &planner->put_backs[planner->put_back_count++];
    *stander = (struct stander){.place = place_of_acquire(planner, operation),
                                .id = UINT64_MAX - 1, /* before the new requests that come after it */
                                .wants = operation->wants,
                                .want_count = operation->want_count,
                                .needs = needs,
                                .need_count = need_count,
                                .how = STANDS_KEPT};
    if (!planner->walking) /* a walk adds all of them at its end */
        add_stander(planner, stander);
}

/* ---- a waiter ---- */

/*
 * Returns true if this waiter is asked for. This holds also for a waiter on which an operation was put back: the walk
 * does not decide it, but keeps its units.
 */
static bool is_asked(const struct planner *planner, const struct key *key)
{
    const struct request *request = key->request;
    if (key->askers.first)
        return true;
    if (!server_is_alive(planner, request->server_id))
        return false;
    /* If none of these holds, its last subscriber has left; the batch that gives up its place is still to come. */
    return !is_ours(planner, request) || key->subscriber;
}

/* Returns true if an operation of another batch of this server asks for it. */
static bool is_busy(const struct planner *planner, const struct key *key)
{
    return is_ours(planner, key->request) && key->subscriber && key->subscriber->busy;
}

/* Returns the acquire of a waiter: that of the batch, or one made from the row. */
static const struct operation *acquire_of_waiter(const struct key *key, struct operation *made)
{
    const struct request *request = key->request;
    if (key->askers.first)
        return key->askers.first;
    *made = (struct operation){.kind = OP_ACQUIRE,
                               .external_id = request->external_id,
                               .owner = request->owner,
                               .principal = request->principal,
                               .ttl = request->ttl,
                               .nonce = request->nonce,
                               .wants = request->wants,
                               .want_count = request->want_count};
    return made;
}

/* An ask was put back unless all its semaphores are locked (plan_ask), and the owners of all acquires were read. */
static bool can_be_decided(struct planner *planner, const struct key *key, const struct operation *operation)
{
    if (key->askers.first)
        return true;
    if (key->needs || is_busy(planner, key) || key->request->lock == ROW_LOCKED_ELSEWHERE ||
        !view_has_locked_all(planner->view, key->request))
        return false;
    return operation->ttl.kind != TTL_OWNER || view_owner(planner->view, operation->owner);
}

/* Returns true if the request waits after this batch, and a client asks for it then. */
static bool goes_on_waiting(const struct planner *planner, const struct key *key)
{
    const struct request *request = key->request;
    if (!request || request->state != REQUEST_WAITING || !server_is_alive(planner, request->server_id))
        return false;
    return !is_ours(planner, request) || key->subscriber || key->askers.first || key->needs;
}

/*
 * Calls a waiter that may fit and that this batch cannot decide, if the batch changes something for it. Otherwise two
 * waiters of which each batch can decide only one would call each other for ever.
 */
static void call_waiter(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++) {
        const struct queue_state *queue = planner_known(planner, request->wants[i].semaphore_id);
        if (queue && (queue->changed || queue->due_units > 0)) {
            send_mail(planner, request->server_id, request->id);
            return;
        }
    }
}

static void mark_changed(struct planner *planner, const struct want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        struct queue_state *queue = planner_known(planner, wants[i].semaphore_id);
        if (queue)
            queue->changed = true;
    }
}

/*
 * Passes over a waiter that this batch cannot decide, but one with all its locks can. `call`: no operation of this
 * server asks for it or is about to. If a semaphore of it is still unknown when all looks are taken, then one that may fit
 * is in nobody's way.
 */
static void pass_over(struct planner *planner, const struct key *key, const struct operation *operation, bool call)
{
    const struct request *request = key->request;
    bool unknown;
    if (!goes_on_waiting(planner, key))
        return;
    enum chance chance = find_chance(planner, operation, request->id, &unknown);
    if (chance == CHANCE_NONE)
        return;
    bool may_fit = chance == CHANCE_NOW || may_lack_only_kept(planner, operation, request->id);
    bool may_look = !planner->view->reads_end && planner->view->glimpse_count < GLIMPSES_MAX;
    if (unknown && may_look && stand_matters(planner, request)) {
        look_at_unknown(planner, request);
        if (planner->unknown_count <= UNKNOWN_A_ROUND)
            return; /* the batch is planned again */
    }
    if (may_fit && call)
        call_waiter(planner, request);
    if (!may_fit || may_look || !unknown)
        stand_here(planner, request, may_fit, key->needs, key->need_count);
}

static void grant_waiter(struct planner *planner, struct key *key, const struct operation *operation,
                         const struct fit *fit)
{
    struct request *request = key->request;
    const struct operation *asker = key->askers.first;
    uint64_t server_id = request->server_id;
    bool subscribed = is_ours(planner, request) && key->subscriber && key->subscriber->subscribed;
    bool claimed = asker || subscribed;
    if (server_id && !is_ours(planner, request))
        send_mail(planner, server_id, request->id);
    count_places(planner, request, server_id ? -1 : 0);
    if (claimed)
        request->nonce = arena_must_copy(planner->arena, asker ? asker->nonce : key->subscriber->nonce);
    key->askers.first = NULL;
    key->decision.how = claimed ? DECISION_GRANTED : DECISION_NONE;
    request->wanted = (struct bytes){0};
    for (size_t i = 0; i < request->want_count; i++)
        planner_known(planner, request->wants[i].semaphore_id)->granted++;
    grant(planner, key, operation, fit, claimed ? 0 : server_id);
    request->wants = NULL;
    request->want_count = 0;
    struct outcome granted = {.created = true};
    if (!claimed)
        return;
    outcome_attach_row(planner, &granted, request);
    add_notice(planner, key, &granted, !asker);
}

/*
 * Leaves this waiter and all behind it to the next batch at each semaphore of which enough waiters were granted. The
 * waiter is called.
 */
static void end_long_walk(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++) {
        struct queue_state *queue = planner_known(planner, request->wants[i].semaphore_id);
        if (!queue || queue->granted < QUEUE_GRANTS_MAX)
            continue;
        queue->granted = 0;
        send_mail(planner, request->server_id, request->id);
        add_stander(planner, &(struct stander){.place = request->place,
                                               .id = request->id - 1,
                                               .wants = &request->wants[i],
                                               .want_count = 1,
                                               .how = STANDS_UNREAD});
    }
}

/*
 * A waiter that does not fit is refused, or put back if it lacks only what is kept for others. It stands, if it waits
 * on.
 */
static void refuse_waiter(struct planner *planner, struct key *key, const struct operation *operation,
                          const struct fit *fit)
{
    bool asked = key->askers.first != NULL;
    bool only_kept = fit->status == PERMIT_NO_CAPACITY && lacks_only_kept(planner, operation);
    size_t id_count = 0;
    const uint64_t *ids = asked && only_kept ? find_wider_locks(planner, operation, &id_count) : NULL;
    if (id_count) {
        key->decision = (struct key_decision){.how = DECISION_PUT_BACK, .wider = ids, .wider_count = id_count};
    } else if (asked) {
        struct fit *refusal = arena_must_alloc(planner->arena, sizeof *refusal);
        *refusal = *fit;
        waiter_refuse(planner, key, refusal);
        /* Those behind it wait for nothing that it still could get. */
        mark_changed(planner, operation->wants, operation->want_count);
    }
    if (fit->status != PERMIT_NO_CAPACITY || !goes_on_waiting(planner, key))
        return;
    if (only_kept && !asked)
        call_waiter(planner, key->request);
    stand_here(planner, key->request, only_kept, ids, id_count);
}

/*
 * The turn of a waiter in the walk. It is granted, or it stands; if an operation asks for it, that is refused or put
 * back. One that this batch cannot decide, or for which due holders must end first, is passed over.
 */
static void take_turn(struct planner *planner, struct key *key)
{
    struct operation made;
    const struct operation *operation = acquire_of_waiter(key, &made);
    bool asked = key->askers.first != NULL;
    bool grants = planner->now >= planner->view->grants_from;
    key->decision = (struct key_decision){0};
    if (!asked && (!grants || is_hopeless(planner, key->request)))
        return;
    end_long_walk(planner, key->request);
    stand_before(planner, key->request->place, key->request->id);
    uint64_t slots = planner->view->reads_end ? 0 : unread_of(planner, key->request, false);
    if (slots && stand_matters(planner, key->request))
        planner->read_more |= slots;
    if (grants && !can_be_decided(planner, key, operation)) {
        bool call = !key->needs && !is_busy(planner, key);
        pass_over(planner, key, operation, call);
        return;
    }
    struct fit fit = acquire_fit(planner, operation);
    if (fit.unlocked_count || (asked && is_crowded_out(planner, &fit))) {
        note_overdue(planner, &fit);
        if (asked)
            key->decision.how = DECISION_PUT_BACK;
        pass_over(planner, key, operation, !asked);
    } else if (fit.status != PERMIT_OK) {
        refuse_waiter(planner, key, operation, &fit);
    } else if (!asked && !packet_has_room(planner, fit.packet_size)) {
        for (size_t i = 0; i < operation->want_count; i++)
            planner_known(planner, operation->wants[i].semaphore_id)->granted = QUEUE_GRANTS_MAX;
        end_long_walk(planner, key->request);
    } else {
        if (asked && !planner->view->reads_end) /* it may stand behind the part that was read, and others before it */
            planner->read_more |= unread_of(planner, key->request, true);
        grant_waiter(planner, key, operation, &fit);
    }
}

/* ---- the walk ---- */

static void count_due_units(struct planner *planner)
{
    for (size_t i = 0; i < planner->view->semaphore_count; i++)
        planner->queues[i].due_units = 0;
    for (size_t i = 0; i < planner->due_count; i++) {
        const struct request *request = planner->due[i]->request;
        for (size_t j = 0; request && request_is_due(planner, request) && j < request->permit_count; j++) {
            const struct semaphore_image *image = planner_image(planner, request->permits[j].semaphore_id);
            if (image)
                planner_queue(planner, image)->due_units += request->permits[j].count;
        }
    }
}

/* Adds the ends of the parts that were read, if protected waiters may follow there. No request passes these. */
static void add_unread(struct planner *planner)
{
    const struct view *view = planner->view;
    for (size_t i = 0; view->queues && i < view->semaphore_count; i++) {
        const struct semaphore *semaphore = &view->semaphores[i];
        const struct queue_view *part = &view->queues[i];
        bool may_be_protected = part->beyond_place <= planner->now - planner->settings->backfill_bound_us;
        if (!part->beyond || (semaphore->queue != QUEUE_FIFO && !may_be_protected))
            continue;
        struct want *want = arena_must_alloc(planner->arena, sizeof *want);
        *want = (struct want){.semaphore_id = semaphore->id, .count = 1};
        add_stander(
            planner,
            &(struct stander){
                .place = part->beyond_place, .id = part->beyond, .wants = want, .want_count = 1, .how = STANDS_UNREAD});
    }
}

static void begin_walk(struct planner *planner)
{
    for (size_t i = 0; i < planner->operation_count; i++) /* it may need to know whether a waiter before it fits */
        if (planner->operations[i]->kind == OP_ACQUIRE)
            mark_changed(planner, planner->operations[i]->wants, planner->operations[i]->want_count);
    planner->stander_count = planner->kept_count = planner->read_for = 0;
    planner->hopeless_count = planner->unknown_count = 0;
    planner->walking = true;
    planner->read_more = planner->read_held = 0;
    count_none(planner);
    count_due_units(planner);
    if (!planner->hopeless)
        planner->hopeless = arena_must_array(planner->arena, HOPELESS_MAX, sizeof *planner->hopeless);
    if (!planner->unknown)
        planner->unknown = arena_must_array(planner->arena, GLIMPSES_MAX, sizeof *planner->unknown);
    add_unread(planner);
}

/*
 * Asks for more of a queue if units stay free although requests wait behind the part that was read. Then adds the
 * acquires that were put back.
 */
static void end_walk(struct planner *planner)
{
    count_standers(planner, planner->stander_count);
    for (size_t i = 0; planner->view->queues && i < planner->view->semaphore_count; i++) {
        const struct queue_view *part = &planner->view->queues[i];
        const struct want one = {.semaphore_id = planner->view->semaphores[i].id, .count = 1};
        bool may_read = !planner->view->reads_end && part->limit < QUEUE_PROTECTED_MAX;
        if (part->beyond && may_read && !is_closed(planner->queues[i].semaphore)) {
            /* without the stander that the end of the part is */
            stand_before(planner, part->beyond_place, part->beyond);
            if (units_missing(planner, &one) <= planner->queues[i].due_units)
                planner->read_more |= UINT64_C(1) << i;
        }
    }
    planner->walking = false;
    for (size_t i = 0; i < planner->put_back_count; i++)
        add_stander(planner, &planner->put_backs[i]);
    count_standers(planner, planner->stander_count);
}

static int compare_places(const void *a, const void *b)
{
    return request_compare_places((*(struct key *const *)a)->request, (*(struct key *const *)b)->request);
}

void queue_walk(struct planner *planner)
{
    planner->walk_again = false;
    if (planner->waiter_count == 0 && !planner->view->queues && planner->put_back_count == 0)
        return;
    struct key **waiters = arena_must_array(planner->arena, planner->key_count, sizeof *waiters);
    begin_walk(planner);
    size_t count = 0;
    for (size_t i = 0; i < planner->key_count; i++) {
        struct key *key = &planner->keys[i];
        if (key->request && key->request->state == REQUEST_WAITING && is_asked(planner, key))
            waiters[count++] = key;
    }
    qsort(waiters, count, sizeof *waiters, compare_places);
    for (size_t i = 0; i < count; i++)
        take_turn(planner, waiters[i]);
    end_walk(planner);
    planner->walk_again = false;
}

/* ---- what to read before the batch is planned again ---- */

bool planner_reads_more(const struct planner *planner)
{
    return planner->read_more || planner->read_held || planner->unknown_count;
}

void collect_reads(struct planner *planner, struct plan *plan)
{
    plan->read_more = planner->read_more;
    plan->read_held = planner->read_held;
    plan->unknown = planner->unknown;
    plan->unknown_count = planner->unknown_count ? u64_sort_unique(planner->unknown, planner->unknown_count) : 0;
    if (!planner->read_more || !planner->hopeless_count)
        return;
    uint64_t *needs = arena_must_array(planner->arena, planner->hopeless_count, sizeof *needs);
    for (int pass = 0; pass < 2; pass++) { /* those that hold for protected waiters come first */
        for (size_t i = 0; i < planner->hopeless_count; i++)
            if (planner->hopeless[i].was_read && planner->hopeless[i].protected_was_read == (pass == 0))
                needs[plan->hopeless_count++] = wants_needs(planner->hopeless[i].wanted);
        plan->hopeless_protected = pass == 0 ? plan->hopeless_count : plan->hopeless_protected;
    }
    plan->hopeless = needs;
}
