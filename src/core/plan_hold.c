/* SPDX-License-Identifier: MIT */
/* Decides the operations on a request that is held or waits: renew, confirm, release, expire, force-release. */
#include "core/planner.h"

#include <assert.h>

/* ---- limits and deadlines ---- */

void limits_add(struct hold_limits *limits, const struct semaphore *semaphore)
{
    limits->default_ttl_ms = min_i64(limits->default_ttl_ms, semaphore->default_ttl_ms);
    limits->max_hold_ms = min_i64(limits->max_hold_ms, semaphore->max_hold_ms);
    limits->grace_ms = max_i64(limits->grace_ms, semaphore->grace_ms);
    if (semaphore->max_ttl_ms >= 0 && (limits->max_ttl_ms < 0 || semaphore->max_ttl_ms < limits->max_ttl_ms))
        limits->max_ttl_ms = semaphore->max_ttl_ms;
}

/* A ttl longer than max_ttl is refused, never shortened. A heartbeat's ttl has its own limit. */
const char *ttl_refusal(struct ttl ttl, const struct hold_limits *limits, int64_t *ret_max_ttl_ms)
{
    const char *refusal = NULL;
    if (ttl.kind == TTL_UNLIMITED)
        refusal = "ttl \"none\" is not allowed: a semaphore of the request has a max_ttl";
    else if (ttl.kind == TTL_DURATION && ttl.ms > limits->max_ttl_ms)
        refusal = "ttl exceeds the max_ttl of a semaphore of the request";
    if (!refusal || limits->max_ttl_ms < 0)
        return NULL;
    *ret_max_ttl_ms = limits->max_ttl_ms;
    return refusal;
}

/* A request without a ttl becomes stale after max_hold. A request with ttl "owner" ends with its owner. */
utc_us due_from(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms)
{
    if (ttl_ms == TTL_BY_OWNER)
        return NEVER;
    return now + US_PER_MS * (ttl_ms == TTL_NONE ? max_hold_ms : ttl_ms + grace_ms);
}

struct hold_limits limits_of_request(struct planner *planner, const struct request *request)
{
    struct hold_limits limits = NO_HOLD_LIMITS;
    for (size_t i = 0; i < request->permit_count; i++)
        limits_add(&limits, planner_image(planner, request->permits[i].semaphore_id)->semaphore);
    return limits;
}

/* Only the stored state counts: a due request is held until a batch has written RELEASED. */
bool request_is_due(const struct planner *planner, const struct request *request)
{
    return request->state == REQUEST_ACQUIRED && request->due_at <= planner->due_now;
}

/* ---- the end ---- */

size_t packet_of_end(const struct request *request)
{
    size_t size = request->permit_count * (PACKET_PERMIT + 4 * request->owner.length);
    for (size_t i = 0; i < request->permit_count; i++)
        size += request->permits[i].slots.count * PACKET_SLOT;
    return size;
}

void end_request(struct planner *planner, struct key *key, enum end_reason reason)
{
    struct request *request = key->request;
    assert(request->state == REQUEST_ACQUIRED);
    for (size_t i = 0; i < request->permit_count; i++) {
        struct permit *permit = &request->permits[i];
        struct semaphore_image *image = planner_image(planner, permit->semaphore_id);
        assert(image);
        image->semaphore->in_use -= permit->count;
        image->semaphore->confirmed -= request->confirmed_at != NEVER ? permit->count : 0;
        semaphore_mark_changed(image);
        struct queue_state *queue = planner_queue(planner, image);
        queue->changed = true;
        bool counted = request->due_at <= planner->due_now && request->lock != ROW_LOCKED_ELSEWHERE;
        queue->due_units -= counted ? permit->count : 0;
        if (image->semaphore->kind == KIND_SLOTTED)
            planner_move_slots(planner, image, permit, true);
    }
    request->state = REQUEST_RELEASED;
    request->end_reason = reason;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->retention_us;
    request->server_id = 0;
    key_change(key);
    planner->packet_size += packet_of_end(request) + packet_of_end_event(planner, request);
    planner->ended[reason]++;
    planner->walk_again = true;
}

enum end_reason due_reason(const struct request *request)
{
    return request->ttl_ms == TTL_NONE && !request->server_id ? END_STALE : END_EXPIRED;
}

/*
 * P6: a release may overtake its acquire. Inserts a tombstone for the key, so that the acquire still on its way gets no
 * permit.
 */
static void plan_tombstone(struct planner *planner, struct outcome *outcome, struct key *key,
                           const struct operation *operation)
{
    struct request *request = request_new(planner, operation);
    request->state = REQUEST_RELEASED;
    request->end_reason = END_NEVER_HELD;
    request->ttl_ms = TTL_NONE;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->tombstone_us;
    key->request = request;
    key->row = ROW_NEW;
    planner->ended[END_NEVER_HELD]++;
    outcome_attach_row(planner, outcome, request);
}

void plan_release(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    const struct request *request = key->request;
    if (!request) {
        plan_tombstone(planner, outcome, key, operation);
    } else if (!view_has_locked_all(planner->view, request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
    } else if (planner_out_of_scope(planner, request, operation->scope)) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
    } else if (request->state == REQUEST_RELEASED) {
        outcome->already_released = true;
        outcome_count_replay(planner, outcome, key);
    } else if (request->confirmed_at != NEVER && !operation->allow_confirmed) {
        outcome_refuse(
            outcome, PERMIT_CONFIRMED,
            "the request is confirmed; to release it anyway, use ?confirmed=true or permitctl release --confirmed");
        outcome_count_replay(planner, outcome, key);
    } else {
        if (request->state == REQUEST_WAITING)
            waiter_release(planner, key);
        else
            end_request(planner, key, END_RELEASED);
        outcome_attach_row(planner, outcome, request);
    }
}

/* Returns true if the client must not learn that there is this request, because it has no semaphore in his scope. */
static bool is_hidden_tombstone(const struct request *request, const struct operation *operation)
{
    return operation->needs_permits && request->state == REQUEST_RELEASED && request->permit_count == 0;
}

/*
 * Refuses an operator whose scope does not cover all semaphores of the request. If it covers none of them, the answer
 * is that of an unknown key. Returns false if the scope covers all.
 */
static bool refuse_force(struct planner *planner, struct outcome *outcome, const struct request *request,
                         const struct operation *operation)
{
    size_t count = request_semaphore_count(request);
    size_t out_of_scope = planner_out_of_scope(planner, request, operation->scope);
    bool hidden = is_hidden_tombstone(request, operation);
    if (hidden || (out_of_scope == count && count))
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
    else if (out_of_scope)
        outcome_refuse(outcome, PERMIT_FORBIDDEN, "needs the right operate on all semaphores of the request");
    return hidden || out_of_scope > 0;
}

void plan_force_release(struct planner *planner, struct outcome *outcome, struct key *key,
                        const struct operation *operation)
{
    const struct request *request = key->request;
    if (!request) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
        return;
    }
    if (!view_has_locked_all(planner->view, request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return;
    }
    if (refuse_force(planner, outcome, request, operation))
        return;
    if (request->state == REQUEST_RELEASED) {
        outcome->already_released = true;
        outcome_count_replay(planner, outcome, key);
        return;
    }
    for (size_t i = 0; i < request_semaphore_count(request); i++)
        record_event(
            planner, planner_image(planner, request_semaphore_id(request, i)),
            (struct event){
                .who = operation->principal, .what = "forced", .from = request->external_id, .why = operation->why});
    if (request->state == REQUEST_WAITING)
        waiter_release(planner, key);
    else
        end_request(planner, key, END_FORCED);
    outcome_attach_row(planner, outcome, request);
}

/*
 * Returns true if an expire operation may end or remove the request now. False: it is put back, to lock all its
 * semaphores.
 */
static bool may_expire(struct planner *planner, struct outcome *outcome, struct key *key,
                       const struct operation *operation)
{
    bool locked = view_has_locked_all(planner->view, key->request);
    if (!locked)
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
    return locked;
}

/*
 * Removes the place of a request that waits: no client has asked for it for long enough, or (END_NEVER_HELD) the
 * server at which its client waited is dead. Then the answer has the row that was removed.
 */
static void expire_waiter(struct planner *planner, struct outcome *outcome, struct key *key,
                          const struct operation *operation)
{
    const struct request *request = key->request;
    bool abandoned =
        operation->expire_as == END_NEVER_HELD && request->server_id && !server_is_alive(planner, request->server_id);
    if (operation->expire_as == END_OWNER_DEAD || (!abandoned && request->due_at > planner->due_now))
        return;
    if (!may_expire(planner, outcome, key, operation))
        return;
    waiter_remove(planner, key);
    outcome_attach_row(planner, outcome, request);
}

/*
 * Ends a request that is due or whose owner is dead. The answer has no row if there is nothing to end: the request was
 * renewed or has ended since the operation was created.
 */
void plan_expire(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    const struct request *request = key->request;
    if (!request || request->state == REQUEST_RELEASED)
        return;
    if (request->state == REQUEST_WAITING) {
        expire_waiter(planner, outcome, key, operation);
        return;
    }
    bool owner_dead = operation->expire_as == END_OWNER_DEAD && request->confirmed_at == NEVER;
    if (!owner_dead && !request_is_due(planner, request))
        return;
    if (!may_expire(planner, outcome, key, operation))
        return;
    end_request(planner, key, owner_dead ? END_OWNER_DEAD : due_reason(request));
    outcome_attach_row(planner, outcome, request);
}

/* ---- renew and confirm ---- */

bool check_known(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (!key->request || key->request->state == REQUEST_WAITING) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
        return false;
    }
    if (!view_has_locked_all(planner->view, key->request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return false;
    }
    if (is_hidden_tombstone(key->request, operation) || planner_out_of_scope(planner, key->request, operation->scope)) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
        return false;
    }
    return true;
}

/* The common checks of renew and confirm: as check_known. False: the outcome may be 410 with the end reason, too. */
static bool check_held(struct planner *planner, struct outcome *outcome, struct key *key,
                       const struct operation *operation)
{
    if (!check_known(planner, outcome, key, operation))
        return false;
    if (key->request->state == REQUEST_RELEASED) {
        outcome_refuse(outcome, PERMIT_ENDED, NULL);
        outcome_count_replay(planner, outcome, key);
        return false;
    }
    return true;
}

/*
 * Raises the version of all semaphores of a held request, which are locked. Each change of a request that is held
 * but its count of replays does so, because the version proves that a cached copy of the request is still its row.
 */
static void touch_semaphores(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->permit_count; i++)
        semaphore_mark_changed(planner_image(planner, request->permits[i].semaphore_id));
}

static const char *renew_refusal(const struct request *request, struct ttl ttl, const struct hold_limits *limits,
                                 int64_t *ret_max_ttl_ms)
{
    bool by_owner = request->ttl_ms == TTL_BY_OWNER;
    if (by_owner && ttl.kind != TTL_ABSENT && ttl.kind != TTL_OWNER)
        return "the request has ttl \"owner\"; renew it without a ttl";
    if (!by_owner && ttl.kind == TTL_OWNER)
        return "ttl \"owner\" is only allowed in an acquire; this request has its own ttl";
    return ttl_refusal(ttl, limits, ret_max_ttl_ms);
}

/* Extends the deadline, never shortens it; a confirmed request has none. */
void plan_renew(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (!check_held(planner, outcome, key, operation))
        return;
    struct request *request = key->request;
    struct ttl ttl = operation->ttl;
    struct hold_limits limits = limits_of_request(planner, request);
    const char *refusal = renew_refusal(request, ttl, &limits, &outcome->max_ttl_ms);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_INVALID, refusal);
        return;
    }
    request->renewals++;
    request_set_metadata(planner, request, operation);
    planner->packet_size += 2 * operation->metadata.length;
    key_change(key);
    touch_semaphores(planner, request);
    if (request->server_id)
        claim(planner, key);
    if (request->confirmed_at == NEVER) {
        if (ttl.kind == TTL_DURATION || ttl.kind == TTL_UNLIMITED)
            request->ttl_ms = ttl.kind == TTL_UNLIMITED ? TTL_NONE : ttl.ms;
        utc_us due_at = due_from(planner->deadlines_from, request->ttl_ms, request->grace_ms, limits.max_hold_ms);
        request->due_at = max_i64(request->due_at, due_at);
    }
    outcome_attach_row(planner, outcome, request);
}

/* Confirms a held request, all of whose semaphores are locked. */
static void confirm(struct planner *planner, struct key *key, utc_us at)
{
    if (key->request->server_id)
        claim(planner, key);
    key->request->confirmed_at = at;
    key->request->due_at = NEVER;
    key_change(key);
    touch_semaphores(planner, key->request);
    for (size_t i = 0; i < key->request->permit_count; i++) {
        const struct permit *permit = &key->request->permits[i];
        struct semaphore_image *image = planner_image(planner, permit->semaphore_id);
        image->semaphore->confirmed += permit->count;
        planner_queue(planner, image)->changed = true; /* a waiter may reserve nothing from now on */
    }
}

/* Returns the confirm of the keys from this index on, of as many as a batch can lock. */
static struct operation confirm_from(struct planner *planner, const struct operation *operation, size_t from)
{
    struct operation part = *operation;
    if (!operation->keys)
        return part;
    part.keys += from;
    part.key_count -= from;
    uint64_t *ids = arena_must_array(planner->arena, part.key_count * REQUEST_MAX_SEMAPHORES, sizeof *ids);
    while (semaphores_of_keys(planner, &part, ids) > BATCH_MAX_SEMAPHORES)
        part.key_count--;
    return part;
}

/* Returns true if all requests of the part are held, and their semaphores are locked. False: the outcome is set. */
static bool check_part_held(struct planner *planner, struct outcome *outcome, const struct operation *part)
{
    for (size_t i = 0; i < operation_key_count(part); i++) {
        struct key *key = planner_key(planner, operation_key(part, i));
        outcome->failed = key->external_id;
        if (key_is_blocked(planner, outcome, key, part) || !check_held(planner, outcome, key, part))
            return false;
    }
    outcome->failed = (struct bytes){0};
    return true;
}

/*
 * Returns true if all requests of the operation are held, and their semaphores are locked. False: the outcome is set;
 * none of them is changed. If they have more semaphores than a batch can lock, one part after the other is locked and
 * checked before the refusal: it must tell nothing of a request that the client may not see.
 */
static bool check_all_held(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    size_t count = operation_key_count(operation);
    struct operation part = confirm_from(planner, operation, 0);
    bool too_many = operation_key_count(&part) < count;
    size_t checked = too_many ? operation->checked : 0;
    for (; checked < count; checked += operation_key_count(&part)) {
        if (checked)
            part = confirm_from(planner, operation, checked);
        outcome->checked = checked;
        if (!check_part_held(planner, outcome, &part))
            return false;
    }
    if (too_many)
        outcome_refuse(outcome, PERMIT_INVALID, "these requests have more than 64 semaphores");
    return !too_many;
}

/* Confirms the requests, even if they are due: the client may have taken a payment for them. */
void plan_confirm(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    (void)key;
    if (!check_all_held(planner, outcome, operation))
        return;
    size_t count = operation_key_count(operation);
    utc_us *confirmed_at = arena_must_array(planner->arena, count, sizeof *confirmed_at);
    for (size_t i = 0; i < count; i++) {
        struct key *each = planner_key(planner, operation_key(operation, i));
        if (each->request->confirmed_at != NEVER) {
            outcome_count_replay(planner, outcome, each);
        } else {
            confirm(planner, each, planner->now);
            request_set_metadata(planner, each->request, operation);
            planner->packet_size += 2 * operation->metadata.length;
            outcome_attach_row(planner, outcome, each->request);
        }
        confirmed_at[i] = each->request->confirmed_at;
    }
    outcome->confirmed_at = operation->keys ? confirmed_at : NULL;
}

/* ---- errands ---- */

void settle(struct planner *planner, struct key *key)
{
    struct request *request = key->request;
    uint32_t errand = request->errand;
    utc_us sold_at = request->confirmed_at - planner->view->clock.offset_us;
    assert(request->state == REQUEST_ACQUIRED);
    request->errand = 0;
    key_change(key);
    if (errand & ERRAND_CONFIRM)
        confirm(planner, key, max_i64(request->acquired_at, min_i64(planner->now, sold_at)));
    if (errand & ERRAND_RELEASE)
        end_request(planner, key, END_RELEASED);
}

/* The errand is settled by now, unless its semaphores are not all locked: then it is put back. */
void plan_settle(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (key->request && key->request->errand)
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
}
