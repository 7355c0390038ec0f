/* SPDX-License-Identifier: MIT */
/*
 * The queue: decides the requests that wait. A request that waits is a row with a place in the queue of each of its
 * semaphores. The rules:
 *
 *   - A waiter is asked for if an operation of the batch asks for it, or if it waits at a server that is alive. Only a
 *     waiter that is asked for is granted, and only such a waiter is in the way of others. Its place is kept for some
 *     time otherwise, and serves the same key again at any server.
 *   - The walk decides all waiters that are asked for in the order of their places, after the operations that free
 *     units and before new requests. So the batch that frees units grants them, wherever the client waits.
 *   - A waiter that fits is granted as an acquire is. If no client of this server is answered with this batch, then the
 *     grant is unclaimed, and mail tells the server at which the client waits.
 *   - A waiter that does not fit: under `fifo` no later request gets units of the semaphore in this batch; under
 *     `backfill` that holds once the waiter has waited backfill_bound, and for all its semaphores.
 *   - A waiter that may fit and cannot be decided, because a semaphore of it is not locked, or because it stands beyond
 *     the part of the queue that was read: its units are kept from those behind it, and its server gets mail if the
 *     batch changes something for it. It may fit, too, if it lacks only units that are kept or tentatively reserved for
 *     others.
 *   - If units stay free although requests wait beyond that part, because those before block no others, then the plan
 *     asks for a deeper read.
 *   - A waiter that cannot be granted whatever is released (paused, closed, retired, never satisfiable) blocks no
 *     others, and neither does a waiter for specific slots. Its own server ends its wait, if that has to be.
 *   - A wait ends by a write: then the place is kept, but no server asks for it.
 */
#include "core/planner.h"

#include <assert.h>

/* A batch grants no more than about this many requests of one queue. The next waiter gets mail (P23). */
enum { QUEUE_GRANTS_MAX = 1024 };

/* ---- servers and mail ---- */

bool server_is_alive(const struct planner *planner, uint64_t server_id)
{
    const struct view *view = planner->view;
    if (!server_id || !view->has_servers)
        return server_id != 0;
    return view->server_count &&
           bsearch(&server_id, view->servers, view->server_count, sizeof *view->servers, compare_u64) != NULL;
}

/* Returns true if the request waits at this server. */
static bool is_ours(const struct planner *planner, const struct request *request)
{
    return request->server_id && request->server_id == planner->settings->server_id;
}

static void add_mail(struct planner *planner, struct mail mail)
{
    if (planner->mail_count == planner->mail_room) {
        size_t room = planner->mail_room ? 2 * planner->mail_room : 64;
        struct mail *larger = arena_array(planner->arena, room, sizeof *larger);
        planner->no_memory |= !larger;
        if (!larger)
            return;
        if (planner->mail_count)
            memcpy(larger, planner->mail, planner->mail_count * sizeof *larger);
        planner->mail = larger;
        planner->mail_room = room;
    }
    planner->mail[planner->mail_count++] = mail;
}

void send_mail(struct planner *planner, uint64_t server_id, uint64_t request_id)
{
    if (server_is_alive(planner, server_id))
        add_mail(planner, (struct mail){.server_id = server_id, .request_id = request_id});
}

/* ---- the row of a waiter ---- */

/* Returns true if a waiter that does not fit is in the way of those behind it at this semaphore. */
static bool blocks_others(const struct planner *planner, const struct semaphore *semaphore, utc_us since)
{
    return semaphore->queue == QUEUE_FIFO || planner->now - since >= planner->settings->backfill_bound_us;
}

/* Counts the places of a request in (1), or out (-1); 0: they change, but no client asks for them. */
static void count_places(struct planner *planner, const struct request *request, int asked)
{
    bool specific = wants_are_specific(request->wants, request->want_count);
    for (size_t i = 0; i < request->want_count; i++) {
        struct semaphore_image *image = planner_image(planner, request->wants[i].semaphore_id);
        image->semaphore->waiting = max_i64(0, image->semaphore->waiting + asked);
        image_touch(image);
        planner_queue(planner, image)->stirred |= asked < 0;
        if (asked < 0 && !specific && blocks_others(planner, image->semaphore, request->waiting_since))
            planner_queue(planner, image)->opened = true;
    }
}

/* Ends the wait. Its place is kept for the same key. */
static void leave(struct planner *planner, struct key *key)
{
    struct request *request = key->request;
    count_places(planner, request, -1);
    request->server_id = 0;
    request->due_at = planner->deadlines_from + PLACE_KEPT_US;
    key->changed = true;
    planner->walk_again = true;
}

static void forget(struct key *key)
{
    key->removed = key->before != NULL;
    key->request = NULL;
    key->insert = key->changed = key->asked_again = false;
    key->asks = NULL;
}

void waiter_remove(struct planner *planner, struct key *key)
{
    const struct request *request = key->request;
    count_places(planner, request, request->server_id ? -1 : 0);
    send_mail(planner, request->server_id, request->id);
    planner->walk_again = true;
    forget(key);
}

void waiter_release(struct planner *planner, struct key *key)
{
    struct request *request = key->request;
    count_places(planner, request, request->server_id ? -1 : 0);
    send_mail(planner, request->server_id, request->id);
    request->state = REQUEST_RELEASED;
    request->end_reason = END_NEVER_HELD;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->tombstone_us;
    request->server_id = 0;
    request->wanted = (struct bytes){0};
    key->changed = true;
    key->asks = NULL;
    planner->ended[END_NEVER_HELD]++;
    planner->walk_again = true;
}

/*
 * Makes the row of a request that begins to wait here, or waits here again. *ret_entered false: its wants have no
 * canonical form, so they did not pass the checks of a request.
 */
static enum permit_status enter(struct planner *planner, struct key *key, const struct operation *operation,
                                bool *ret_entered)
{
    struct ttl ttl;
    struct want *wants;
    size_t want_count;
    *ret_entered = false;
    struct bytes wanted = wants_encode(operation->ttl, operation->wants, operation->want_count, planner->arena);
    if (!wanted.data)
        return PERMIT_NO_MEMORY;
    enum permit_status status = wants_decode(wanted, planner->arena, &ttl, &wants, &want_count);
    if (status != PERMIT_OK)
        return status == PERMIT_NO_MEMORY ? status : PERMIT_OK;
    struct request *request = request_of_acquire(planner, key, operation);
    if (!request)
        return PERMIT_NO_MEMORY;
    request->state = REQUEST_WAITING;
    request->ttl_ms = TTL_NONE;
    request->server_id = planner->settings->server_id;
    request->priority = operation->priority;
    request->place = operation->place ? operation->place : planner->now - operation->priority * PRIORITY_STEP_US;
    request->waiting_since = operation->since ? operation->since : planner->now;
    request->waiting_until = planner->deadlines_from + operation->wait_us;
    request->due_at = request->waiting_until + PLACE_KEPT_US;
    request->wanted = wanted;
    request->ttl = ttl;
    request->wants = wants;
    request->want_count = want_count;
    planner->waiter_count++;
    count_places(planner, request, 1);
    *ret_entered = true;
    return PERMIT_OK;
}

/* ---- asks ---- */

static enum permit_status add_ask(struct planner *planner, struct key *key, const struct operation *operation,
                                  struct outcome *outcome)
{
    struct ask *ask = arena_alloc(planner->arena, sizeof *ask);
    if (!ask)
        return PERMIT_NO_MEMORY;
    *ask = (struct ask){.operation = operation, .outcome = outcome};
    struct ask **at = &key->asks;
    while (*at)
        at = &(*at)->next;
    *at = ask;
    return PERMIT_OK;
}

/* Moves the wait to this server. The server at which the key waited until now gets mail, and answers its client. */
static enum permit_status take_over(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct request *request = key->request;
    utc_us until = planner->deadlines_from + operation->wait_us;
    if (is_ours(planner, request)) {
        until = max_i64(until, request->waiting_until);
    } else {
        if (!request->server_id) {
            count_places(planner, request, 1);
            key->asked_again = key->before && wants_are_specific(request->wants, request->want_count);
        }
        send_mail(planner, request->server_id, request->id);
        request->server_id = planner->settings->server_id;
        key->changed = true;
    }
    key->changed |= until != request->waiting_until;
    request->waiting_until = until;
    if (key->changed)
        request->due_at = until + PLACE_KEPT_US;
    if (!bytes_equal(request->nonce, operation->nonce)) {
        request->nonce = arena_copy(planner->arena, operation->nonce);
        key->changed = true;
        if (!request->nonce.data)
            return PERMIT_NO_MEMORY;
    }
    if (key->changed)
        count_places(planner, request, 0);
    return PERMIT_OK;
}

bool operation_is_reentry(const struct planner *planner, const struct operation *operation)
{
    bool waits = operation->wait == WAIT_ASK || operation->wait == WAIT_LAST;
    return waits && (operation->entered || operation->place) && planner->settings->server_id;
}

/*
 * An acquire whose key has no row. If it is of a waiter that this process knows, whose row is gone after a failover or
 * a removal, then it is entered again in its place, and the walk decides it like the others.
 */
static enum permit_status plan_without_row(struct planner *planner, struct outcome *outcome, struct key *key,
                                           const struct operation *operation, bool *ret_new)
{
    *ret_new = true;
    if (!operation_is_reentry(planner, operation))
        return PERMIT_OK;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!planner_image(planner, operation->wants[i].semaphore_id))
            return PERMIT_OK; /* refused later, like a new request */
    bool entered;
    enum permit_status status = enter(planner, key, operation, &entered);
    if (status != PERMIT_OK || !entered)
        return status;
    *ret_new = false;
    planner->walk_again = true;
    return add_ask(planner, key, operation, outcome);
}

/*
 * Decides an acquire whose key waits with other content. The waiting request is removed if no client asks for it and it
 * is in the scope of the acquire; otherwise the acquire is refused.
 */
static enum permit_status plan_other_content(struct planner *planner, struct outcome *outcome, struct key *key,
                                             const struct operation *operation, bool *ret_new)
{
    if (key->asks || server_is_alive(planner, key->request->server_id)) {
        outcome_refuse(outcome, PERMIT_KEY_REUSED, reused_sentence(planner, key->request, operation->scope));
        return PERMIT_OK;
    }
    if (!planner_has_locked_all(planner, key->request))
        return outcome_put_back(planner, outcome, key, operation, NULL, 0);
    if (planner_out_of_scope(planner, key->request, operation->scope)) {
        outcome_refuse(outcome, PERMIT_KEY_REUSED, NULL);
        return PERMIT_OK;
    }
    waiter_remove(planner, key);
    return plan_without_row(planner, outcome, key, operation, ret_new);
}

/*
 * Returns true if the operation has the ids of the semaphores that the row wants. They differ if this process knows a
 * semaphore by an id that a failover has undone, and another permitd has created the semaphore again.
 */
static bool has_ids_of_row(const struct operation *operation, const struct request *request)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        bool found = false;
        for (size_t j = 0; j < request->want_count && !found; j++)
            found = request->wants[j].semaphore_id == operation->wants[i].semaphore_id;
        if (!found)
            return false;
    }
    return true;
}

static bool any_ask_waits(const struct key *key)
{
    for (const struct ask *ask = key->asks; ask; ask = ask->next)
        if (ask->operation->wait == WAIT_ASK)
            return true;
    return false;
}

enum permit_status plan_ask(struct planner *planner, struct outcome *outcome, struct key *key,
                            const struct operation *operation, bool *ret_new)
{
    struct request *request = key->request;
    *ret_new = false;
    if (!request)
        return plan_without_row(planner, outcome, key, operation, ret_new);
    bool same = !request->has_digest || memcmp(request->digest, operation->digest, DIGEST_SIZE) == 0;
    if (!same && operation->wait != WAIT_GONE)
        return plan_other_content(planner, outcome, key, operation, ret_new);
    if (same && !planner_has_locked_all(planner, request))
        return outcome_put_back(planner, outcome, key, operation, NULL, 0);
    if (operation->wait == WAIT_GONE) {
        if (same && is_ours(planner, request) && !any_ask_waits(key))
            leave(planner, key);
        outcome_refuse(outcome, PERMIT_NO_CAPACITY, NULL);
        return PERMIT_OK;
    }
    if (!operation->entered && same && !has_ids_of_row(operation, request)) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_SEMAPHORE, NULL); /* it is resolved again before it is answered */
        return PERMIT_OK;
    }
    bool elsewhere = server_is_alive(planner, request->server_id) && !is_ours(planner, request);
    if (operation->entered && elsewhere) {
        outcome_refuse(outcome, PERMIT_OUTCOME_UNKNOWN, "the key is asked for again at another server; it waits there");
        return PERMIT_OK;
    }
    planner->walk_again = true;
    enum permit_status status = PERMIT_OK;
    if (operation->wait == WAIT_ASK && planner->settings->server_id)
        status = take_over(planner, key, operation);
    return status == PERMIT_OK ? add_ask(planner, key, operation, outcome) : status;
}

/* ---- reservations for a waiter ---- */

/* Returns true if the waiter stands where the queue of this semaphore was not read any more. */
static bool stands_beyond(const struct queue_state *queue, const struct request *request)
{
    return queue->has_beyond && place_compare(request->place, request->id, queue->beyond_place, queue->beyond_id) >= 0;
}

static void reserve(struct queue_state *queue, const struct request *request)
{
    queue->reserved = true;
    queue->settled |= !stands_beyond(queue, request);
}

/*
 * Reserves the semaphores of a waiter that does not fit: under `fifo` later requests get none of their units; under
 * `backfill` only if it has waited backfill_bound. A waiter for specific slots, or for a closed semaphore, blocks no
 * others. Tentative: with more locks it may turn out to fit, or to block no others.
 */
static void reserve_for_waiter(struct planner *planner, const struct operation *operation,
                               const struct request *request, bool tentative)
{
    if (any_closed(planner, operation) || wants_are_specific(operation->wants, operation->want_count))
        return;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (!image || !blocks_others(planner, image->semaphore, request->waiting_since))
            continue;
        struct queue_state *queue = planner_queue(planner, image);
        queue->tentative = tentative && (queue->tentative || !queue->reserved);
        reserve(queue, request);
    }
}

/* Returns why the request cannot enter the queue; NULL: it can. */
static const char *queue_limit(struct planner *planner, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore *semaphore = planner_image(planner, operation->wants[i].semaphore_id)->semaphore;
        bool own = semaphore->max_waiters != SETTING_NONE &&
                   semaphore->max_waiters <= planner->settings->max_semaphore_waiters;
        int64_t limit = own ? semaphore->max_waiters : planner->settings->max_semaphore_waiters;
        if (semaphore->waiting < limit)
            continue;
        const char *text =
            planner_sentence(planner, "too many waiting requests for %.*s (%s is %lld)", (int)semaphore->name.length,
                             semaphore->name.data, own ? "its max_waiters" : "max_semaphore_waiters", (long long)limit);
        return text ? text : "the queue of a semaphore is full";
    }
    return NULL;
}

/* ---- units that are kept for waiters that cannot be decided ---- */

static int64_t due_units_of(struct planner *planner, const struct want *want)
{
    return planner_queue(planner, planner_image(planner, want->semaphore_id))->due_units;
}

/* Returns true if the want lacks nothing but units that are kept for others that cannot be decided. */
static bool lacks_kept_units(struct planner *planner, const struct want *want)
{
    const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    const struct queue_state *queue = planner_queue(planner, image);
    if (units_missing(planner, want) <= queue->due_units || (queue->reserved && !queue->tentative))
        return false;
    return want->count <= image->semaphore->capacity - image->semaphore->in_use + queue->due_units;
}

/* Returns true if the acquire lacks units, all of which are kept for other waiters. */
static bool lacks_only_kept_units(struct planner *planner, const struct operation *operation)
{
    bool lacks = false;
    for (size_t i = 0; i < operation->want_count; i++) {
        bool kept = lacks_kept_units(planner, &operation->wants[i]);
        if (!kept && units_missing(planner, &operation->wants[i]) > due_units_of(planner, &operation->wants[i]))
            return false;
        lacks |= kept;
    }
    return lacks;
}

static bool contains(const uint64_t *ids, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static bool wants_one_of(const struct request *request, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < request->want_count; i++)
        if (contains(ids, count, request->wants[i].semaphore_id))
            return true;
    return false;
}

/* Adds the semaphores of the wants that are not there. False: these are more than a batch locks. */
static bool add_semaphores(uint64_t *ids, size_t *count, const struct want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        if (contains(ids, *count, wants[i].semaphore_id))
            continue;
        if (*count == BATCH_MAX_SEMAPHORES)
            return false;
        ids[(*count)++] = wants[i].semaphore_id;
    }
    return true;
}

/*
 * Sets outcome->wider of an acquire that waits and lacks only kept units: its semaphores, those of the waiters for
 * which the units are kept, those of the waiters for which these lack units, and so on. Otherwise two waiters that
 * share one semaphore, and of which each batch locks all semaphores of only one, would keep units from each other for
 * ever. If the semaphores are more than a batch locks, `wider` stays empty: the net of the wait poll wakes the waiters.
 */
static enum permit_status find_wider(struct planner *planner, const struct operation *operation,
                                     struct outcome *outcome)
{
    uint64_t *ids = arena_array(planner->arena, BATCH_MAX_SEMAPHORES, sizeof *ids);
    size_t count = 0;
    if (!ids)
        return PERMIT_NO_MEMORY;
    if (planner->keeper_count == 0 || !lacks_only_kept_units(planner, operation))
        return PERMIT_OK;
    for (size_t i = 0; i < operation->want_count; i++)
        if (lacks_kept_units(planner, &operation->wants[i]))
            ids[count++] = operation->wants[i].semaphore_id;
    size_t before;
    do {
        before = count;
        for (size_t i = 0; i < planner->keeper_count; i++) {
            const struct request *keeper = planner->keepers[i]->request;
            if (wants_one_of(keeper, ids, count) && !add_semaphores(ids, &count, keeper->wants, keeper->want_count))
                return PERMIT_OK;
        }
    } while (count > before);
    if (!add_semaphores(ids, &count, operation->wants, operation->want_count))
        return PERMIT_OK;
    bool more = false;
    for (size_t i = 0; i < count; i++)
        more |= !planner_image(planner, ids[i]);
    if (!more)
        return PERMIT_OK;
    outcome->wider = ids;
    outcome->wider_count = u64_sort_unique(ids, count);
    return PERMIT_OK;
}

static void refuse_without_wait(struct outcome *outcome, enum permit_status status, const char *detail)
{
    *outcome = (struct outcome){.status = status, .detail = detail};
}

/*
 * Returns true if a request that was refused may fit all the same: it lacks units that are reserved or kept for
 * waiters, and by its priority it stands before one of them.
 */
static bool fits_before_others(const struct planner *planner, const struct outcome *outcome, const struct key *entered)
{
    bool behind = false;
    for (size_t i = 0; i < outcome->shortage_count; i++)
        behind |= outcome->shortages[i].behind;
    for (size_t i = 0; behind && i < planner->key_count; i++) {
        const struct request *other = planner->keys[i].request;
        if (other && other->state == REQUEST_WAITING && request_compare_places(entered->request, other) < 0)
            return true;
    }
    return false;
}

enum permit_status queue_enter(struct planner *planner, struct outcome *outcome, struct key *key,
                               const struct operation *operation)
{
    bool entered = false;
    const char *limit = queue_limit(planner, operation);
    if (!planner->settings->server_id)
        return PERMIT_OK; /* the operation is tried again when this server has an id */
    if (limit) {
        refuse_without_wait(outcome, PERMIT_TOO_MANY, limit);
        return PERMIT_OK;
    }
    enum permit_status status = enter(planner, key, operation, &entered);
    if (status == PERMIT_OK && !entered)
        refuse_without_wait(outcome, PERMIT_INTERNAL, "the request has no canonical form");
    if (status != PERMIT_OK || !entered)
        return status;
    bool tentative = lacks_only_kept_units(planner, operation);
    if (outcome->status == PERMIT_NO_CAPACITY)
        reserve_for_waiter(planner, operation, key->request, tentative);
    planner->walk_again |= fits_before_others(planner, outcome, key);
    outcome->waits = true;
    if (outcome->status == PERMIT_NO_CAPACITY)
        status = find_wider(planner, operation, outcome);
    if (status == PERMIT_OK)
        status = outcome_assert(planner, outcome, key->request);
    return status == PERMIT_OK ? add_ask(planner, key, operation, outcome) : status;
}

/* ---- the answers to asks ---- */

/*
 * Refuses the asks of a waiter. A wait goes on only if the refusal is temporary; the others end by a write. Asks whose
 * wait goes on stay: a later walk of the batch may grant them.
 */
static enum permit_status refuse_asks(struct planner *planner, struct key *key, const struct fit *fit)
{
    struct request *request = key->request;
    bool may_wait = refusal_may_wait(fit->status);
    bool asks = false;
    bool last = false;
    struct ask *waiting = NULL;
    struct ask **end = &waiting;
    for (struct ask *ask = key->asks; ask; ask = ask->next) {
        struct outcome *outcome = ask->outcome;
        *outcome = (struct outcome){.status = fit->status,
                                    .detail = fit->detail,
                                    .shortages = fit->shortages,
                                    .shortage_count = fit->shortage_count,
                                    .may_wait = may_wait};
        asks |= ask->operation->wait == WAIT_ASK;
        last |= ask->operation->wait == WAIT_LAST;
        if (ask->operation->wait != WAIT_ASK || !may_wait)
            continue;
        if (!is_ours(planner, request)) /* this server has no id: as in queue_enter */
            continue;
        outcome->waits = true;
        if (fit->status == PERMIT_NO_CAPACITY && find_wider(planner, ask->operation, outcome) != PERMIT_OK)
            return PERMIT_NO_MEMORY;
        if (outcome_assert(planner, outcome, request) != PERMIT_OK)
            return PERMIT_NO_MEMORY;
        *end = ask;
        end = &ask->next;
    }
    *end = NULL;
    key->asks = waiting;
    bool ends = (asks && !may_wait) || (last && !asks);
    bool moves = last && !asks; /* the key was asked for here last, so a refusal here ends its wait (P22) */
    bool may_end =
        is_ours(planner, request) || (request->server_id && (moves || !server_is_alive(planner, request->server_id)));
    if (!ends || !may_end)
        return PERMIT_OK;
    if (!is_ours(planner, request)) /* a client that still waits there asks again, in its place */
        send_mail(planner, request->server_id, request->id);
    leave(planner, key);
    if (key->insert && !may_wait)
        forget(key);
    return PERMIT_OK;
}

/* Puts back the asks of a waiter that needs more locks. Its row already has the wait that they ask for (take_over). */
static enum permit_status put_back_asks(struct planner *planner, struct key *key, const struct fit *fit)
{
    enum permit_status status = PERMIT_OK;
    for (struct ask *ask = key->asks; ask && status == PERMIT_OK; ask = ask->next) {
        *ask->outcome = (struct outcome){0};
        status = outcome_put_back(planner, ask->outcome, key, ask->operation, fit->unlocked, fit->unlocked_count);
        ask->outcome->waits = ask->operation->wait == WAIT_ASK && is_ours(planner, key->request);
    }
    key->asks = NULL;
    return status;
}

/* ---- the walk ---- */

/*
 * Returns true if this waiter is asked for. This holds also for a waiter on which an operation was put back: the walk
 * does not decide it, but keeps its units.
 */
static bool is_asked(const struct planner *planner, const struct key *key)
{
    const struct request *request = key->request;
    if (key->asks)
        return true;
    if (!server_is_alive(planner, request->server_id))
        return false;
    /* If none of these holds, its client has left; the batch that gives up its place is still to come. */
    return !is_ours(planner, request) || request->here || request->asks_later;
}

/* Returns the acquire of a waiter: that of the batch, or one made from the row. */
static const struct operation *acquire_of_waiter(const struct key *key, struct operation *made)
{
    const struct request *request = key->request;
    if (key->asks)
        return key->asks->operation;
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

static bool owner_was_read(const struct planner *planner, struct bytes owner)
{
    for (size_t i = 0; i < planner->view->owner_count; i++)
        if (bytes_equal(planner->view->owners[i].name, owner))
            return true;
    return false;
}

static bool can_be_decided(struct planner *planner, const struct key *key, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (!image || stands_beyond(planner_queue(planner, image), key->request))
            return false;
    }
    if (key->request->asks_later && !key->asks)
        return false;
    return key->asks || operation->ttl.kind != TTL_OWNER || owner_was_read(planner, operation->owner);
}

/*
 * Returns true if a slot that this batch has freed, or may free, may be of use for the want, or if this batch has opened
 * the way to one that was free. A label above the capacity is out of service: then the waiter's server has to find that.
 */
static bool can_use_freed(struct planner *planner, const struct semaphore_image *image, const struct want *want)
{
    enum { LOOK_MAX = 4096 }; /* beyond that a needless call costs less */
    const struct slot_view *slot_view = planner_slot_view(planner, image);
    const struct queue_state *queue = planner_queue(planner, image);
    if (queue->opened || queue->due_units > 0)
        return true;
    if (!queue->freed || want->choice == CHOOSE_LOWEST)
        return queue->freed;
    size_t looked = 0;
    for (size_t i = 0; i < planner->slot_count && looked < LOOK_MAX; i++) {
        const struct slot_change *change = &planner->slots[i];
        if (change->semaphore_id != want->semaphore_id || change->permit_id)
            continue;
        looked++;
        if (change->number > image->semaphore->capacity ||
            want_names_slot(want, change->number, slot_pool_label(&slot_view->free, change->number)))
            return true;
    }
    return looked == LOOK_MAX;
}

/* The chance of a waiter that cannot be decided, by its locked semaphores. */
enum chance {
    CHANCE_NONE,  /* it cannot be granted whatever is released: it blocks no others */
    CHANCE_LATER, /* it does not fit */
    CHANCE_NOW,   /* it may fit */
};

static enum chance chance_of(struct planner *planner, const struct operation *operation)
{
    bool fits = true;
    bool freed = !wants_are_specific(operation->wants, operation->want_count);
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
        const char *detail;
        if (!image)
            continue;
        if (image->semaphore->capacity == 0 || image->semaphore->paused_reason.data ||
            want_unit_refusal(planner, want, &detail) != PERMIT_OK)
            return CHANCE_NONE;
        fits &= units_missing(planner, want) <= due_units_of(planner, want) || lacks_kept_units(planner, want);
        freed = freed || can_use_freed(planner, image, want);
    }
    return fits && freed ? CHANCE_NOW : CHANCE_LATER;
}

/*
 * Keeps the units of a waiter that may fit from those behind it. All units are kept behind the last one of a queue that
 * was read, because more waiters may follow it.
 */
static void keep_units(struct planner *planner, const struct key *key, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (!image)
            continue;
        struct queue_state *queue = planner_queue(planner, image);
        if (stands_beyond(queue, key->request))
            reserve(queue, key->request);
        else if (!blocks_others(planner, image->semaphore, key->request->waiting_since))
            queue->kept += operation->wants[i].count;
    }
}

/* Refuses the asks of a waiter that stands beyond the part of a queue that was read. */
static enum permit_status refuse_beyond(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct fit fit = {.limits = NO_HOLD_LIMITS};
    struct shortage *shortages = arena_array(planner->arena, operation->want_count, sizeof *shortages);
    if (!shortages)
        return PERMIT_NO_MEMORY;
    fit.status = check_request(planner, operation, &fit.limits, &fit.detail);
    if (fit.status == PERMIT_OK) {
        fit.status = PERMIT_NO_CAPACITY;
        fit.shortages = shortages;
        for (size_t i = 0; i < operation->want_count; i++) {
            const struct want *want = &operation->wants[i];
            const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
            bool beyond = stands_beyond(planner_queue(planner, image), key->request);
            if (!beyond && units_missing(planner, want) <= 0)
                continue;
            struct shortage *shortage = &shortages[fit.shortage_count++];
            if (describe_shortage(planner, operation, i, shortage) != PERMIT_OK)
                return PERMIT_NO_MEMORY;
            shortage->behind |= beyond;
        }
    }
    return refuse_asks(planner, key, &fit);
}

/* Returns true if the request waits after this batch, and a client asks for it then. */
static bool goes_on_waiting(const struct planner *planner, const struct key *key)
{
    const struct request *request = key->request;
    if (!request || request->state != REQUEST_WAITING || !server_is_alive(planner, request->server_id))
        return false;
    return !is_ours(planner, request) || request->here || request->asks_later || key->asks || key->needs;
}

/*
 * Returns true if this batch changes something for a waiter that it cannot decide. Otherwise the waiter is not called:
 * two waiters of which each batch can decide only one would call each other for ever.
 */
static bool may_fit_since_this_batch(struct planner *planner, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        const struct queue_state *queue = image ? planner_queue(planner, image) : NULL;
        if (queue && (queue->freed || queue->due_units > 0 || queue->opened || queue->stirred))
            return true;
    }
    return false;
}

/*
 * Passes over a waiter that cannot be decided. If it may fit, its units are kept from those behind it, and with `call`
 * its server gets mail. Where no request may pass a waiter that does not fit, none passes this one either (P20).
 */
static void pass_over(struct planner *planner, const struct key *key, const struct operation *operation, bool call)
{
    if (!goes_on_waiting(planner, key))
        return;
    enum chance chance = chance_of(planner, operation);
    bool tentative = !planner_has_locked_all(planner, key->request);
    if (chance == CHANCE_NONE)
        return;
    reserve_for_waiter(planner, operation, key->request, tentative || chance == CHANCE_NOW);
    if (tentative)
        planner->keepers[planner->keeper_count++] = key;
    if (chance == CHANCE_NOW && !wants_are_specific(operation->wants, operation->want_count))
        keep_units(planner, key, operation);
    if (chance == CHANCE_NOW && call && may_fit_since_this_batch(planner, operation))
        send_mail(planner, key->request->server_id, key->request->id);
}

/* Answers the asks of a waiter that was granted: the first one as new, copies of it as repeated. */
static enum permit_status answer_grant(struct planner *planner, struct key *key, struct ask *asks)
{
    enum permit_status status = PERMIT_OK;
    for (struct ask *ask = asks; ask && status == PERMIT_OK; ask = ask->next) {
        *ask->outcome = (struct outcome){.created = ask == asks, .replayed = ask != asks};
        status = ask == asks ? outcome_assert(planner, ask->outcome, key->request)
                             : outcome_assert_again(planner, ask->outcome, key);
    }
    return status;
}

/* Adds the grant to those that this process answers without an operation. */
static enum permit_status add_granted(struct planner *planner, const struct request *request)
{
    if (!planner->granted)
        planner->granted = arena_array(planner->arena, planner->key_count, sizeof *planner->granted);
    if (!planner->granted)
        return PERMIT_NO_MEMORY;
    struct outcome *outcome = &planner->granted[planner->granted_count++];
    *outcome = (struct outcome){.created = true};
    return outcome_assert(planner, outcome, request);
}

static void count_grant(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++)
        planner_queue(planner, planner_image(planner, request->wants[i].semaphore_id))->granted++;
}

static enum permit_status grant_waiter(struct planner *planner, struct key *key, const struct operation *operation,
                                       const struct fit *fit)
{
    struct request *request = key->request;
    struct ask *asks = key->asks;
    uint64_t server_id = request->server_id;
    bool claimed = asks || (is_ours(planner, request) && request->here);
    if (server_id && !is_ours(planner, request))
        send_mail(planner, server_id, request->id);
    count_places(planner, request, server_id ? -1 : 0);
    if (claimed)
        request->nonce = arena_copy(planner->arena, asks ? operation->nonce : request->here_nonce);
    if (claimed && !request->nonce.data)
        return PERMIT_NO_MEMORY;
    key->asks = NULL;
    request->wanted = (struct bytes){0};
    count_grant(planner, request);
    enum permit_status status = grant(planner, key, operation, &fit->limits, claimed ? 0 : server_id);
    request->wants = NULL;
    request->want_count = 0;
    if (status == PERMIT_OK && asks)
        return answer_grant(planner, key, asks);
    return status == PERMIT_OK && claimed ? add_granted(planner, request) : status;
}

/*
 * Marks the semaphores of a waiter that was called and does not fit: the call goes on to those behind it, from which it
 * kept units until now.
 */
static void open_way(struct planner *planner, const struct operation *operation)
{
    bool specific = wants_are_specific(operation->wants, operation->want_count);
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (!image)
            continue;
        planner_queue(planner, image)->stirred = true;
        planner_queue(planner, image)->opened |= !specific;
    }
}

/* Leaves this waiter and all behind it to the next batch at each semaphore of which enough waiters were granted. */
static void end_long_walk(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, request->wants[i].semaphore_id);
        struct queue_state *queue = image ? planner_queue(planner, image) : NULL;
        if (!queue || queue->granted < QUEUE_GRANTS_MAX || stands_beyond(queue, request))
            continue;
        queue->has_beyond = true;
        queue->beyond_place = request->place;
        queue->beyond_id = request->id;
    }
}

static enum permit_status decide_waiter(struct planner *planner, struct key *key)
{
    struct operation made;
    const struct operation *operation = acquire_of_waiter(key, &made);
    bool asked = key->asks != NULL;
    bool grants = planner->now >= planner->view->grants_from;
    enum permit_status status = PERMIT_OK;
    if (!grants && !asked)
        return PERMIT_OK;
    end_long_walk(planner, key->request);
    if (grants && (key->needs || !can_be_decided(planner, key, operation))) {
        if (asked)
            status = refuse_beyond(planner, key, operation);
        pass_over(planner, key, operation, !asked && !key->needs && !key->request->asks_later);
        return status;
    }
    struct fit fit;
    status = acquire_fit(planner, operation, &fit);
    if (status != PERMIT_OK)
        return status;
    if (fit.unlocked_count) {
        if (asked)
            status = put_back_asks(planner, key, &fit);
        pass_over(planner, key, operation, !asked);
        return status;
    }
    if (fit.status == PERMIT_OK)
        return grant_waiter(planner, key, operation, &fit);
    if (asked)
        status = refuse_asks(planner, key, &fit);
    if (status == PERMIT_OK && fit.status == PERMIT_NO_CAPACITY && goes_on_waiting(planner, key)) {
        bool tentative = lacks_only_kept_units(planner, operation);
        reserve_for_waiter(planner, operation, key->request, tentative);
        if (tentative)
            planner->keepers[planner->keeper_count++] = key;
    }
    if (asked)
        open_way(planner, operation);
    return status;
}

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

/* A new request behind a waiter that keeps units from it needs to know whether the waiter fits. */
static void stir_for_new_requests(struct planner *planner)
{
    for (size_t i = 0; i < planner->operation_count; i++) {
        const struct operation *operation = planner->operations[i];
        for (size_t j = 0; operation->kind == OP_ACQUIRE && !operation->entered && j < operation->want_count; j++) {
            const struct semaphore_image *image = planner_image(planner, operation->wants[j].semaphore_id);
            if (image)
                planner_queue(planner, image)->stirred = true;
        }
    }
}

static void begin_walk(struct planner *planner)
{
    stir_for_new_requests(planner);
    for (size_t i = 0; i < planner->view->semaphore_count; i++) {
        struct queue_state *queue = &planner->queues[i];
        queue->reserved = queue->settled = false;
        queue->kept = 0;
        queue->tentative = false;
        if (!planner->view->queues || queue->has_beyond)
            continue;
        queue->beyond_place = planner->view->queues[i].beyond_place;
        queue->beyond_id = planner->view->queues[i].beyond;
        queue->has_beyond = queue->beyond_id != 0;
    }
    count_due_units(planner);
}

/*
 * Reserves the remaining free units for the waiters that were not read. If units remain because the waiters that were
 * read block no others, or want too much, then a deeper read may find one that fits.
 */
static void end_walk(struct planner *planner)
{
    count_due_units(planner);
    for (size_t i = 0; i < planner->view->semaphore_count; i++) {
        struct queue_state *queue = &planner->queues[i];
        const struct semaphore *semaphore = planner->images[i].semaphore;
        int64_t free = semaphore->capacity - semaphore->in_use + queue->due_units - queue->kept;
        if (queue->has_beyond && !queue->settled && free > 0 && queue->granted < QUEUE_GRANTS_MAX)
            planner->read_more |= 1ULL << i;
        queue->reserved |= queue->has_beyond;
    }
}

static int compare_places(const void *a, const void *b)
{
    return request_compare_places((*(struct key *const *)a)->request, (*(struct key *const *)b)->request);
}

enum permit_status queue_walk(struct planner *planner)
{
    planner->walk_again = false;
    if (planner->waiter_count == 0 && !planner->view->queues)
        return PERMIT_OK;
    struct key **waiters = arena_array(planner->arena, planner->key_count, sizeof *waiters);
    if (!waiters)
        return PERMIT_NO_MEMORY;
    planner->keepers = arena_array(planner->arena, planner->key_count, sizeof *planner->keepers);
    planner->keeper_count = 0;
    if (!planner->keepers)
        return PERMIT_NO_MEMORY;
    begin_walk(planner);
    size_t count = 0;
    for (size_t i = 0; i < planner->key_count; i++) {
        struct key *key = &planner->keys[i];
        if (key->request && key->request->state == REQUEST_WAITING && is_asked(planner, key))
            waiters[count++] = key;
    }
    if (count > 1)
        qsort(waiters, count, sizeof *waiters, compare_places);
    enum permit_status status = PERMIT_OK;
    planner->walking = true;
    for (size_t i = 0; i < count && status == PERMIT_OK; i++)
        status = decide_waiter(planner, waiters[i]);
    end_walk(planner);
    planner->walking = planner->walk_again = false;
    return status;
}

/* ---- the result ---- */

static int compare_place_changes(const void *a, const void *b)
{
    const struct place_change *left = a;
    const struct place_change *right = b;
    int order = (int)right->remove - (int)left->remove;
    if (order == 0)
        order = compare_u64(&left->semaphore_id, &right->semaphore_id);
    if (order == 0)
        order = (left->place > right->place) - (left->place < right->place);
    return order ? order : compare_u64(&left->request_id, &right->request_id);
}

static size_t add_places(struct planner *planner, struct place_change *places, size_t count,
                         const struct request *request, bool remove)
{
    for (size_t i = 0; i < request->want_count; i++)
        places[count++] = (struct place_change){.semaphore_id = request->wants[i].semaphore_id,
                                                .place = request->place,
                                                .request_id = request->id,
                                                .count = request->wants[i].count,
                                                .watch = remove ? 0 : planner_held_slot(planner, &request->wants[i]),
                                                .remove = remove};
    return count;
}

static bool loses_places(const struct key *key)
{
    bool had = key->before && key->before->state == REQUEST_WAITING;
    return had && (key->removed || key->asked_again || key->request->state != REQUEST_WAITING);
}

/* A kept place may watch a slot that was freed meanwhile: it is written anew when a client asks for it again. */
static bool gets_places(const struct key *key)
{
    return (key->insert || key->asked_again) && key->request->state == REQUEST_WAITING;
}

enum permit_status collect_places(struct planner *planner, struct changes *changes)
{
    size_t room = 0;
    for (size_t i = 0; planner->waiter_count && i < planner->key_count; i++) {
        room += loses_places(&planner->keys[i]) ? planner->keys[i].before->want_count : 0;
        room += gets_places(&planner->keys[i]) ? planner->keys[i].request->want_count : 0;
    }
    if (room == 0)
        return PERMIT_OK;
    struct place_change *places = arena_array(planner->arena, room, sizeof *places);
    if (!places)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct key *key = &planner->keys[i];
        if (loses_places(key))
            changes->place_count = add_places(planner, places, changes->place_count, key->before, true);
        if (gets_places(key))
            changes->place_count = add_places(planner, places, changes->place_count, key->request, false);
    }
    assert(changes->place_count == room);
    qsort(places, room, sizeof *places, compare_place_changes);
    changes->places = places;
    return PERMIT_OK;
}

static int compare_mail(const void *a, const void *b)
{
    const struct mail *left = a;
    const struct mail *right = b;
    int order = (int)right->remove - (int)left->remove;
    if (order == 0)
        order = compare_u64(&left->server_id, &right->server_id);
    return order ? order : compare_u64(&left->request_id, &right->request_id);
}

enum permit_status collect_mail(struct planner *planner, struct plan *plan)
{
    uint64_t ours = planner->settings->server_id;
    for (size_t i = 0; i < planner->operation_count; i++)
        if (planner->operations[i]->mailed && !planner->outcomes[i].put_back)
            add_mail(planner, (struct mail){ours, planner->operations[i]->mailed, true});
    if (planner->no_memory)
        return PERMIT_NO_MEMORY;
    if (planner->mail_count == 0)
        return PERMIT_OK;
    uint64_t *calls = arena_array(planner->arena, planner->mail_count, sizeof *calls);
    if (!calls)
        return PERMIT_NO_MEMORY;
    qsort(planner->mail, planner->mail_count, sizeof *planner->mail, compare_mail);
    size_t count = 0;
    for (size_t i = 0; i < planner->mail_count; i++) {
        struct mail mail = planner->mail[i];
        if (i > 0 && compare_mail(&planner->mail[i - 1], &planner->mail[i]) == 0)
            continue;
        if (!mail.remove && mail.server_id == ours)
            calls[plan->call_count++] = mail.request_id;
        else
            planner->mail[count++] = mail;
    }
    plan->calls = calls;
    plan->changes.mail = planner->mail;
    plan->changes.mail_count = count;
    return PERMIT_OK;
}
