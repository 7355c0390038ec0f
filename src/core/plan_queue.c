/* SPDX-License-Identifier: MIT */
/*
 * The rows of the queue, and the operations that ask for them. A request that waits is a row with a place in the queue
 * of each of its semaphores; plan_walk.c decides it.
 *
 *   - An acquire that finds no room and may wait enters the queues; one whose key waits already asks for its row, and
 *     moves the wait to this server. So does a look on behalf of the subscribers of a key. The walk decides the row, and
 *     then each of these operations is answered by what has become of it.
 *   - A wait ends by a write: then the place is kept for the same key at any server, but no server asks for it.
 *   - What happens to a request that waits at another server is told to that server by mail.
 */
#include "core/planner.h"

#include <assert.h>

/* ---- servers and mail ---- */

bool server_is_alive(const struct planner *planner, uint64_t server_id)
{
    const struct view *view = planner->view;
    if (!server_id || !view->has_servers)
        return server_id != 0;
    return view->server_count &&
           bsearch(&server_id, view->servers, view->server_count, sizeof *view->servers, compare_u64) != NULL;
}

bool is_ours(const struct planner *planner, const struct request *request)
{
    return request->server_id && request->server_id == planner->settings->server_id;
}

static void add_mail(struct planner *planner, struct mail mail)
{
    planner->mail = planner_list(planner, planner->mail, planner->mail_count, sizeof mail);
    planner->mail[planner->mail_count++] = mail;
}

void send_mail(struct planner *planner, uint64_t server_id, uint64_t request_id)
{
    if (server_is_alive(planner, server_id))
        add_mail(planner, (struct mail){.server_id = server_id, .request_id = request_id});
}

/* ---- the row of a waiter ---- */

void count_places(struct planner *planner, const struct request *request, int asked)
{
    for (size_t i = 0; i < request->want_count; i++) {
        struct semaphore_image *image = planner_image(planner, request->wants[i].semaphore_id);
        image->semaphore->waiting = max_i64(0, image->semaphore->waiting + asked);
        semaphore_mark_changed(image);
        planner_queue(planner, image)->changed |= asked < 0;
    }
}

/* Ends the wait. Its place is kept for the same key. */
static void leave(struct planner *planner, struct key *key)
{
    struct request *request = key->request;
    count_places(planner, request, -1);
    request->server_id = 0;
    request->due_at = planner->deadlines_from + PLACE_KEPT_US;
    key_change(key);
    planner->walk_again = true;
}

/* The key has no row any more. */
static void forget(struct key *key)
{
    key->request = NULL;
    key->row = ROW_AS_READ;
    key->askers = (struct askers){0};
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
    key_change(key);
    key->askers = (struct askers){0};
    planner->ended[END_NEVER_HELD]++;
    planner->walk_again = true;
}

utc_us place_of_acquire(struct planner *planner, const struct operation *operation)
{
    int64_t step_us = INT64_MAX;
    if (operation->place)
        return operation->place;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct queue_state *queue = planner_known(planner, operation->wants[i].semaphore_id);
        if (queue)
            step_us = min_i64(step_us, semaphore_priority_step_us(queue->semaphore));
    }
    return operation->priority && step_us < INT64_MAX ? planner->now - operation->priority * step_us : planner->now;
}

/*
 * Makes the row of a request that begins to wait here, or waits here again. False: its wants have no canonical form, so
 * they did not pass the checks of a request.
 */
static bool enter(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct ttl ttl;
    struct want *wants;
    size_t want_count;
    struct bytes wanted = wants_encode(operation->ttl, operation->wants, operation->want_count, planner->arena);
    enum permit_status status =
        wanted.data ? wants_decode(wanted, planner->arena, &ttl, &wants, &want_count) : PERMIT_NO_MEMORY;
    if (status == PERMIT_NO_MEMORY)
        arena_leave(planner->arena);
    if (status != PERMIT_OK)
        return false;
    struct request *request = request_of_acquire(planner, key, operation);
    request->state = REQUEST_WAITING;
    request->ttl_ms = TTL_NONE;
    request->server_id = planner->settings->server_id;
    request->priority = operation->priority;
    request->place = place_of_acquire(planner, operation);
    request->waiting_since = operation->since ? operation->since : planner->now;
    request->waiting_until = planner->deadlines_from + operation->wait_us;
    request->due_at = request->waiting_until + PLACE_KEPT_US;
    request->wanted = wanted;
    request->ttl = ttl;
    request->wants = wants;
    request->want_count = want_count;
    planner->waiter_count++;
    count_places(planner, request, 1);
    return true;
}

/* ---- operations that ask for a request that waits ---- */

/*
 * Moves the wait to this server, and makes it last as long as the operation waits. The server at which the key waited
 * until now gets mail, and tells its subscribers.
 */
static void take_over(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct request *request = key->request;
    utc_us until = planner->deadlines_from + operation->wait_us;
    bool ours = is_ours(planner, request), same_nonce = bytes_equal(request->nonce, operation->nonce);
    if (ours)
        until = max_i64(until, request->waiting_until);
    if (ours && same_nonce && until == request->waiting_until)
        return;
    count_places(planner, request, request->server_id ? 0 : 1);
    if (!ours)
        send_mail(planner, request->server_id, request->id);
    if (!same_nonce)
        request->nonce = arena_must_copy(planner->arena, operation->nonce);
    request->server_id = planner->settings->server_id;
    request->waiting_until = until;
    request->due_at = until + PLACE_KEPT_US;
    key_change(key);
}

bool operation_may_enter_again(const struct planner *planner, const struct operation *operation)
{
    return operation->kind == OP_LOOK && planner->settings->server_id;
}

/* The walk decides the request for the operation. */
static void ask(struct askers *askers, const struct operation *operation)
{
    askers->first = askers->first ? askers->first : operation;
    if (operation->wait_us > 0 && !askers->waiting)
        askers->waiting = operation;
    askers->any_look |= operation->kind == OP_LOOK;
    askers->any_last |= operation_ends_wait(operation);
}

/*
 * An operation whose key has no row. A look enters the request again in its place, because its row is gone after a
 * failover or a removal, and the walk decides it like the others.
 */
static enum asked plan_without_row(struct planner *planner, struct key *key, const struct operation *operation)
{
    if (!operation_may_enter_again(planner, operation))
        return ASKED_ANEW;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!planner_image(planner, operation->wants[i].semaphore_id))
            return ASKED_ANEW; /* refused later, like a new request */
    if (!enter(planner, key, operation))
        return ASKED_ANEW;
    ask(&key->askers, operation);
    planner->walk_again = true;
    return ASKED_ROW;
}

/*
 * An operation whose key waits with other content. The waiting request is removed if nobody asks for it and it is in
 * the scope of the operation; otherwise the operation is refused.
 */
static enum asked plan_other_content(struct planner *planner, struct outcome *outcome, struct key *key,
                                     const struct operation *operation)
{
    bool asked = key->askers.first || server_is_alive(planner, key->request->server_id);
    if (!asked && !view_has_locked_all(planner->view, key->request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return ASKED_AND_ANSWERED;
    }
    if (asked || planner_out_of_scope(planner, key->request, operation->scope)) {
        refuse_reused(planner, outcome, key->request, operation);
        return ASKED_AND_ANSWERED;
    }
    waiter_remove(planner, key);
    return plan_without_row(planner, key, operation);
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

enum asked plan_ask(struct planner *planner, struct outcome *outcome, struct key *key,
                    const struct operation *operation)
{
    struct request *request = key->request;
    if (!request)
        return plan_without_row(planner, key, operation);
    bool leaves = operation->kind == OP_LEAVE, looks = operation->kind == OP_LOOK;
    bool same = !request->has_digest || memcmp(request->digest, operation->digest, DIGEST_SIZE) == 0;
    if (!same && !leaves)
        return plan_other_content(planner, outcome, key, operation);
    if (same && !view_has_locked_all(planner->view, request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return ASKED_AND_ANSWERED;
    }
    if (leaves) { /* before the walk, which so grants it nothing (P17) */
        if (same && is_ours(planner, request) && !key->askers.waiting)
            leave(planner, key);
        outcome_refuse(outcome, PERMIT_NO_CAPACITY, NULL);
        return ASKED_AND_ANSWERED;
    }
    if (!looks && !has_ids_of_row(operation, request)) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_SEMAPHORE, NULL); /* it is resolved again before it is answered */
        return ASKED_AND_ANSWERED;
    }
    /* Only another server gives up a place that has subscribers. */
    bool elsewhere = server_is_alive(planner, request->server_id) && !is_ours(planner, request);
    if (looks && (elsewhere || !request->server_id)) {
        outcome_refuse(outcome, PERMIT_OUTCOME_UNKNOWN,
                       elsewhere ? "the key is asked for again at another server; it waits there"
                                 : "the key was asked for again at another server, and its wait has ended there");
        return ASKED_AND_ANSWERED;
    }
    ask(&key->askers, operation);
    planner->walk_again = true;
    if (operation->wait_us > 0 && planner->settings->server_id)
        take_over(planner, key, operation);
    return ASKED_ROW;
}

/* ---- entering ---- */

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
        return planner_sentence(planner, "too many waiting requests for %.*s (%s is %lld)", (int)semaphore->name.length,
                                semaphore->name.data, own ? "its max_waiters" : "max_semaphore_waiters",
                                (long long)limit);
    }
    return NULL;
}

static void refuse_without_wait(struct outcome *outcome, enum permit_status status, const char *detail)
{
    *outcome = (struct outcome){.status = status, .detail = detail};
}

void queue_enter(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (!planner->settings->server_id)
        return; /* the operation is tried again when this server has an id */
    const char *limit = queue_limit(planner, operation);
    if (limit) {
        refuse_without_wait(outcome, PERMIT_TOO_MANY, limit);
        return;
    }
    if (!enter(planner, key, operation)) {
        refuse_without_wait(outcome, PERMIT_INTERNAL, "the request has no canonical form");
        return;
    }
    if (outcome->status == PERMIT_NO_CAPACITY)
        stand(planner, key->request);
    outcome->waits = true;
    outcome_attach_row(planner, outcome, key->request);
    ask(&key->askers, operation);
}

/* ---- the answers ---- */

/*
 * Returns true if the refusal ends the wait, so that the place is given up by a write (P22): no asker waits on. It is
 * given up here only if it waits here, or at a server that is dead, or the key was asked for here last. If a client
 * waits here and no look of the batch is for it, then the place is the client's to keep or to give up: the askers are
 * copies of its call.
 */
static bool refusal_ends_wait(const struct planner *planner, const struct key *key, bool may_wait)
{
    const struct request *request = key->request;
    const struct askers *askers = &key->askers;
    bool is_last = askers->any_last && !askers->waiting;
    bool ours = is_ours(planner, request), alive = server_is_alive(planner, request->server_id);
    if (!is_last && (!askers->waiting || may_wait))
        return false;
    if (alive && !ours && planner->settings->server_id) /* without an id, it may be an earlier id of this server */
        return is_last;
    bool is_of_others = key->subscriber && key->subscriber->subscribed && !askers->any_look;
    return request->server_id && !is_of_others && (ours || is_last || !alive);
}

void waiter_refuse(struct planner *planner, struct key *key, const struct fit *fit)
{
    struct request *request = key->request;
    bool may_wait = refusal_may_wait(fit->status), ours = is_ours(planner, request);
    key->decision = (struct key_decision){.how = DECISION_REFUSED, .refusal = fit};
    if (refusal_ends_wait(planner, key, may_wait)) {
        if (!ours) /* a client that still waits there is told that its key has moved */
            send_mail(planner, request->server_id, request->id);
        leave(planner, key);
        if (key->row == ROW_NEW && !may_wait)
            forget(key);
    }
    if (!may_wait || !ours) /* a later refusal in this batch is for the same subscribers */
        key->askers = (struct askers){.any_look = key->askers.any_look};
    key->askers.first = key->askers.waiting; /* a later walk may grant it */
    key->askers.any_last = false;
}

void answer_ask(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    struct request *request = key->request;
    bool goes_on = operation->wait_us > 0 && request && is_ours(planner, request);
    *outcome = (struct outcome){0};
    switch (key->decision.how) {
    case DECISION_PUT_BACK:
        key->askers = (struct askers){0};
        outcome_put_back(planner, outcome, key, operation, key->decision.wider, key->decision.wider_count);
        outcome->waits = goes_on;
        break;
    case DECISION_REFUSED:
        *outcome = outcome_of_fit(key->decision.refusal);
        outcome->waits = goes_on && outcome->may_wait;
        break;
    case DECISION_GRANTED:
        key->decision.how = DECISION_NONE;
        outcome->created = true;
        outcome_attach_row(planner, outcome, request);
        break;
    case DECISION_NONE:
        outcome->replayed = true;
        outcome_count_replay(planner, outcome, key);
        break;
    }
    if (outcome->waits)
        outcome_attach_row(planner, outcome, request);
}

void add_notice(struct planner *planner, const struct key *key, const struct outcome *outcome, bool unasked)
{
    planner->notices = planner_list(planner, planner->notices, planner->notice_count, sizeof *planner->notices);
    planner->notices[planner->notice_count++] = (struct notice){key->external_id, *outcome, unasked};
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
    uint64_t needs = remove ? 0 : wants_needs(request->wanted);
    for (size_t i = 0; i < request->want_count; i++)
        places[count++] = (struct place_change){.semaphore_id = request->wants[i].semaphore_id,
                                                .place = request->place,
                                                .request_id = request->id,
                                                .count = request->wants[i].count,
                                                .watch = remove ? 0 : planner_held_slot(planner, &request->wants[i]),
                                                .needs = needs,
                                                .remove = remove};
    return count;
}

/*
 * Returns true if a client asks again for a kept place with specific slots. It may watch a slot that was freed
 * meanwhile, so it is written anew.
 */
static bool is_asked_again(const struct key *key)
{
    return key->row == ROW_CHANGED && !key->before->server_id && key->request->server_id &&
           wants_are_specific(key->before->wants, key->before->want_count);
}

static bool loses_places(const struct key *key)
{
    bool had = key->before && key->before->state == REQUEST_WAITING;
    return had && (key_is_removed(key) || is_asked_again(key) || key->request->state != REQUEST_WAITING);
}

static bool gets_places(const struct key *key)
{
    return (key->row == ROW_NEW || is_asked_again(key)) && key->request->state == REQUEST_WAITING;
}

void collect_places(struct planner *planner, struct changes *changes)
{
    size_t room = 0;
    for (size_t i = 0; planner->waiter_count && i < planner->key_count; i++) {
        room += loses_places(&planner->keys[i]) ? planner->keys[i].before->want_count : 0;
        room += gets_places(&planner->keys[i]) ? planner->keys[i].request->want_count : 0;
    }
    if (room == 0)
        return;
    struct place_change *places = arena_must_array(planner->arena, room, sizeof *places);
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

void collect_mail(struct planner *planner, struct plan *plan)
{
    uint64_t ours = planner->settings->server_id;
    for (size_t i = 0; i < planner->operation_count; i++)
        if (planner->operations[i]->mailed && !planner->outcomes[i].put_back)
            add_mail(planner, (struct mail){ours, planner->operations[i]->mailed, true});
    if (planner->mail_count == 0)
        return;
    uint64_t *calls = arena_must_array(planner->arena, planner->mail_count, sizeof *calls);
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
}
