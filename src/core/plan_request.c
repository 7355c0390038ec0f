/* SPDX-License-Identifier: MIT */
/* Decides acquire, release and renew. */
#include "core/planner.h"

/* --- release ------------------------------------------------------------------------------------------------- */

static void end_request(struct planner *planner, struct key *key, enum end_reason reason)
{
    struct request *request = key->request;
    for (size_t i = 0; i < request->permit_count; i++) {
        struct permit *permit = &request->permits[i];
        struct semaphore_image *image = planner_image(planner, permit->semaphore_id);
        image->semaphore->in_use -= permit->count;
        image_touch(image);
        if (image->semaphore->kind == KIND_SLOTTED)
            planner_free_slots(planner, image, permit);
    }
    request->state = REQUEST_RELEASED;
    request->end_reason = reason;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->retention_us;
    key->changed = key->ends = true;
}

/*
 * The row of a key that has none yet. Its strings are copies: a later operation of the batch may answer with this row
 * when whoever asked first has its answer and is gone.
 */
static struct request *new_request(struct planner *planner, const struct operation *operation)
{
    struct request *request = arena_alloc(planner->arena, sizeof *request);
    if (!request)
        return NULL;
    *request = (struct request){
        .id = planner->ids.next++,
        .external_id = arena_copy(planner->arena, operation->external_id),
        .owner = arena_copy(planner->arena, operation->owner),
        .principal = arena_copy(planner->arena, operation->principal),
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
    };
    return request->external_id.data && request->owner.data && request->principal.data ? request : NULL;
}

/*
 * P6: a release may overtake its acquire. The row it leaves, a tombstone, makes sure that the acquire still on its way
 * leaves no permit behind.
 */
static enum permit_status plan_tombstone(struct planner *planner, struct outcome *outcome, struct key *key,
                                         const struct operation *operation)
{
    struct request *request = new_request(planner, operation);
    if (!request)
        return PERMIT_NO_MEMORY;
    request->state = REQUEST_RELEASED;
    request->end_reason = END_NEVER_HELD;
    request->ttl_ms = TTL_NONE;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->tombstone_us;
    key->request = request;
    key->insert = true;
    return outcome_assert(planner, outcome, request);
}

enum permit_status plan_release(struct planner *planner, struct outcome *outcome, struct key *key,
                                const struct operation *operation)
{
    if (!key->request)
        return plan_tombstone(planner, outcome, key, operation);
    if (!planner_holds_all(planner, key->request))
        return outcome_put_back(planner, outcome, key, operation);
    if (key->request->state == REQUEST_RELEASED) {
        outcome->already_released = true;
        return outcome_assert_again(planner, outcome, key);
    }
    end_request(planner, key, END_RELEASED);
    return outcome_assert(planner, outcome, key->request);
}

/* --- how long ------------------------------------------------------------------------------------------------ */

/* What the semaphores of one request say together: the smallest ttls and max_hold, the largest grace. */
struct hold_limits {
    int64_t default_ttl_ms;
    int64_t max_ttl_ms; /* -1: none */
    int64_t max_hold_ms;
    int64_t grace_ms;
};

static const struct hold_limits no_limits = {INT64_MAX, -1, INT64_MAX, 0};

static void limits_add(struct hold_limits *limits, const struct semaphore *semaphore)
{
    limits->default_ttl_ms = min_i64(limits->default_ttl_ms, semaphore->default_ttl_ms);
    limits->max_hold_ms = min_i64(limits->max_hold_ms, semaphore->max_hold_ms);
    limits->grace_ms = max_i64(limits->grace_ms, semaphore->grace_ms);
    if (semaphore->max_ttl_ms >= 0 && (limits->max_ttl_ms < 0 || semaphore->max_ttl_ms < limits->max_ttl_ms))
        limits->max_ttl_ms = semaphore->max_ttl_ms;
}

/* "A ttl longer than max_ttl is refused", never cut. */
static const char *ttl_refusal(struct ttl ttl, const struct hold_limits *limits)
{
    if (limits->max_ttl_ms < 0)
        return NULL;
    if (ttl.kind == TTL_UNLIMITED)
        return "ttl \"none\" is not allowed: a semaphore has a max_ttl";
    if (ttl.kind == TTL_DURATION && ttl.ms > limits->max_ttl_ms)
        return "ttl is longer than the max_ttl of a semaphore";
    return NULL;
}

/* Without a ttl a request is stale after max_hold. */
static utc_us due_from(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms)
{
    return now + US_PER_MS * (ttl_ms == TTL_NONE ? max_hold_ms : ttl_ms + grace_ms);
}

static struct hold_limits limits_of_request(struct planner *planner, const struct request *request)
{
    struct hold_limits limits = no_limits;
    for (size_t i = 0; i < request->permit_count; i++)
        limits_add(&limits, planner_image(planner, request->permits[i].semaphore_id)->semaphore);
    return limits;
}

/* --- renew --------------------------------------------------------------------------------------------------- */

/* Extends, never shortens; a confirmed request stays permanent. */
static void extend(struct planner *planner, struct request *request, struct ttl ttl, const struct hold_limits *limits)
{
    request->renewals++;
    if (request->confirmed_at != NEVER)
        return;
    if (ttl.kind != TTL_ABSENT)
        request->ttl_ms = ttl.kind == TTL_UNLIMITED ? TTL_NONE : ttl.ms;
    utc_us due_at = due_from(planner->now, request->ttl_ms, request->grace_ms, limits->max_hold_ms);
    request->due_at = max_i64(request->due_at, due_at);
}

enum permit_status plan_renew(struct planner *planner, struct outcome *outcome, struct key *key,
                              const struct operation *operation)
{
    if (!key->request) {
        outcome_refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
        return PERMIT_OK;
    }
    if (!planner_holds_all(planner, key->request))
        return outcome_put_back(planner, outcome, key, operation);
    if (key->request->state == REQUEST_RELEASED) {
        outcome_refuse(outcome, PERMIT_ENDED, NULL);
        return outcome_assert_again(planner, outcome, key);
    }
    struct hold_limits limits = limits_of_request(planner, key->request);
    const char *refusal = ttl_refusal(operation->ttl, &limits);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_INVALID, refusal);
        return PERMIT_OK;
    }
    extend(planner, key->request, operation->ttl, &limits);
    key->changed = true;
    return outcome_assert(planner, outcome, key->request);
}

/* --- acquire ------------------------------------------------------------------------------------------------- */

/* The key has a row: the same request again, another request under its key, or one that has ended. */
static enum permit_status plan_replay(struct planner *planner, struct outcome *outcome, struct key *key,
                                      const struct operation *operation)
{
    const struct request *request = key->request;
    if (request->has_digest && memcmp(request->digest, operation->digest, DIGEST_SIZE) != 0) {
        outcome_refuse(outcome, PERMIT_KEY_REUSED, NULL);
        return PERMIT_OK;
    }
    if (!planner_holds_all(planner, request))
        return outcome_put_back(planner, outcome, key, operation);
    if (request->state == REQUEST_RELEASED)
        outcome_refuse(outcome, PERMIT_ENDED, NULL);
    else
        outcome->replayed = true;
    return outcome_assert_again(planner, outcome, key);
}

/* A reason why this can never be granted as it is asked, whatever is free. */
static enum permit_status want_refusal(const struct want *want, const struct semaphore_image *image,
                                       const char **ret_detail)
{
    *ret_detail = NULL;
    if (!image || !bytes_equal(image->semaphore->name, want->semaphore) || image->semaphore->retired_at != NEVER)
        return PERMIT_UNKNOWN_SEMAPHORE;
    const struct semaphore *semaphore = image->semaphore;
    if (semaphore->kind == KIND_SLOTTED && want->count > SLOTS_MAX_COUNT) {
        *ret_detail = "count is at most 1000 for a slotted semaphore";
        return PERMIT_INVALID;
    }
    /* Capacity 0 is closed, which may end: no_capacity. */
    if (semaphore->capacity > 0 && want->count > semaphore->capacity) {
        *ret_detail = "count is more than the capacity";
        return PERMIT_NEVER_SATISFIABLE;
    }
    return PERMIT_OK;
}

/* Whether the request may be granted at all; collects what its semaphores say about time. */
static enum permit_status check_wants(struct planner *planner, const struct operation *operation,
                                      struct hold_limits *limits, const char **ret_detail)
{
    bool paused = false;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
        enum permit_status status = want_refusal(want, image, ret_detail);
        if (status != PERMIT_OK)
            return status;
        limits_add(limits, image->semaphore);
        paused |= image->semaphore->paused_reason.data != NULL;
    }
    *ret_detail = ttl_refusal(operation->ttl, limits);
    if (*ret_detail)
        return PERMIT_INVALID;
    return paused ? PERMIT_PAUSED : PERMIT_OK;
}

static bool want_fits(const struct want *want, const struct semaphore *semaphore)
{
    return want->count <= semaphore->capacity - semaphore->in_use;
}

/* PERMIT_NO_CAPACITY with each semaphore that lacks room, or PERMIT_OK if everything fits. */
static enum permit_status check_room(struct planner *planner, const struct operation *operation,
                                     struct outcome *outcome)
{
    size_t short_count = 0;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        short_count += !want_fits(want, planner_image(planner, want->semaphore_id)->semaphore);
    }
    if (short_count == 0)
        return PERMIT_OK;
    struct shortage *shortages = arena_array(planner->arena, short_count, sizeof *shortages);
    if (!shortages)
        return PERMIT_NO_MEMORY;
    outcome->shortages = shortages;
    outcome->shortage_count = short_count;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        const struct semaphore *semaphore = planner_image(planner, want->semaphore_id)->semaphore;
        if (!want_fits(want, semaphore))
            *shortages++ = (struct shortage){.semaphore_id = semaphore->id,
                                             .semaphore = semaphore->name,
                                             .capacity = semaphore->capacity,
                                             .in_use = semaphore->in_use,
                                             .requested = want->count};
    }
    return PERMIT_NO_CAPACITY;
}

/* in_use and the slot rows change together, so this is false only if somebody else wrote to them. */
static bool slots_suffice(struct planner *planner, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (image->semaphore->kind == KIND_SLOTTED &&
            planner_pool(planner, image)->count < (size_t)operation->wants[i].count)
            return false;
    }
    return true;
}

/* Section 8: a grant's token is at least epoch << 10, above all that a lost tail may have handed out. */
static uint64_t next_token(const struct planner *planner, struct semaphore *semaphore)
{
    uint64_t token = semaphore->next_permit_id;
    if (token < planner->view->epoch << 10)
        token = planner->view->epoch << 10;
    semaphore->next_permit_id = token + 1;
    return token;
}

static bool grant_permit(struct planner *planner, const struct want *want, utc_us due_at, struct permit *permit)
{
    struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    struct semaphore *semaphore = image->semaphore;
    *permit = (struct permit){
        .semaphore_id = semaphore->id,
        .token = next_token(planner, semaphore),
        .count = want->count,
    };
    semaphore->in_use += want->count;
    semaphore->next_due_at = min_i64(semaphore->next_due_at, due_at);
    image_touch(image);
    return semaphore->kind == KIND_COUNTED || planner_take_slots(planner, image, permit);
}

static enum permit_status grant(struct planner *planner, struct outcome *outcome, struct key *key,
                                const struct operation *operation, const struct hold_limits *limits)
{
    struct request *request = new_request(planner, operation);
    struct permit *permits = arena_array(planner->arena, operation->want_count, sizeof *permits);
    if (!request || !permits)
        return PERMIT_NO_MEMORY;
    request->has_digest = true;
    memcpy(request->digest, operation->digest, DIGEST_SIZE);
    request->state = REQUEST_ACQUIRED;
    request->acquired_at = planner->now;
    request->grace_ms = limits->grace_ms;
    switch (operation->ttl.kind) {
    case TTL_ABSENT: request->ttl_ms = limits->default_ttl_ms; break;
    case TTL_DURATION: request->ttl_ms = operation->ttl.ms; break;
    case TTL_UNLIMITED: request->ttl_ms = TTL_NONE; break;
    }
    request->due_at = due_from(planner->now, request->ttl_ms, limits->grace_ms, limits->max_hold_ms);
    request->permits = permits;
    request->permit_count = operation->want_count;
    for (size_t i = 0; i < operation->want_count; i++)
        if (!grant_permit(planner, &operation->wants[i], request->due_at, &permits[i]))
            return PERMIT_NO_MEMORY;
    key->request = request;
    key->insert = true;
    outcome->created = true;
    return outcome_assert(planner, outcome, request);
}

enum permit_status plan_acquire(struct planner *planner, struct outcome *outcome, struct key *key,
                                const struct operation *operation)
{
    if (key->request)
        return plan_replay(planner, outcome, key, operation);
    struct hold_limits limits = no_limits;
    const char *detail;
    enum permit_status status = check_wants(planner, operation, &limits, &detail);
    if (status == PERMIT_OK)
        status = check_room(planner, operation, outcome);
    if (status == PERMIT_NO_MEMORY)
        return status;
    if (status == PERMIT_OK && !slots_suffice(planner, operation)) {
        status = PERMIT_INTERNAL;
        detail = "the slot rows of a semaphore do not match its in_use";
    }
    if (status != PERMIT_OK) {
        outcome_refuse(outcome, status, detail);
        return PERMIT_OK;
    }
    return grant(planner, outcome, key, operation, &limits);
}
