/* SPDX-License-Identifier: MIT */
/*
 * plan_batch: what one transaction does for everyone in it. It works on copies ("images") of the locked rows, decides
 * the operations one after another against them, and hands out the images that changed.
 */
#include "core/plan.h"

#include <stdlib.h>

/* The free slots of one semaphore while the plan runs: a heap, the lowest number on top. */
struct slot_pool {
    uint32_t *numbers;
    size_t count;
    uint32_t unread; /* no free slot that was not read lies below this */
    bool whole;      /* every free slot in service is here */
};

/* One external_id of the batch: its row, if there is one, and whether an operation on it had to be put back. */
struct key {
    struct bytes external_id;
    struct request *request; /* image; NULL: no row */
    const struct request *before;
    bool insert;
    bool changed;
    bool ends;
    const uint64_t *needs; /* put back: so are all later operations on this key */
    size_t need_count;
};

struct planner {
    const struct view *view;
    const struct operation *const *operations;
    size_t operation_count;
    const struct plan_settings *settings;
    struct arena *arena;
    utc_us now; /* served time */
    struct id_range ids;
    struct semaphore_image *images; /* room for one more than was locked: a new one */
    size_t image_count;
    struct slot_pool *pools; /* one per locked semaphore */
    struct key *keys;        /* ascending by external_id */
    size_t key_count;
    struct key **key_of; /* per operation; NULL: administrative */
    struct outcome *outcomes;
    struct slot_change *slots; /* every move in order; room for all that can happen */
    size_t slot_count;
};

static const struct {
    const char *word;
    int rank; /* the order of decision within a batch */
    bool administrative;
} kinds[OP_KIND_COUNT] = {
    [OP_RELEASE] = {"release", 0, false},
    [OP_RENEW] = {"renew", 1, false},
    [OP_ACQUIRE] = {"acquire", 2, false},
    [OP_SEMAPHORE_PUT] = {"semaphore_put", 3, true},
    [OP_SEMAPHORE_RETIRE] = {"semaphore_retire", 3, true},
};
enum { LAST_RANK = 3 };

const char *operation_kind_word(enum operation_kind kind)
{
    return kinds[kind].word;
}

bool operation_is_administrative(enum operation_kind kind)
{
    return kinds[kind].administrative;
}

/* --- locked semaphores --------------------------------------------------------------------------------------- */

/* The image of a locked semaphore, or NULL: not locked, or no such row. */
static struct semaphore_image *find_image(struct planner *planner, uint64_t semaphore_id)
{
    size_t low = 0;
    size_t high = planner->view->semaphore_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (planner->images[middle].semaphore->id < semaphore_id)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < planner->view->semaphore_count && planner->images[low].semaphore->id == semaphore_id;
    return found ? &planner->images[low] : NULL;
}

static struct slot_pool *pool_of(struct planner *planner, const struct semaphore_image *image)
{
    return &planner->pools[image - planner->images];
}

static void touch(struct semaphore_image *image)
{
    if (!image->changed)
        image->semaphore->version++;
    image->changed = true;
}

static bool all_locked(struct planner *planner, const struct request *request)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (!find_image(planner, request->permits[i].semaphore_id))
            return false;
    return true;
}

/* --- slots --------------------------------------------------------------------------------------------------- */

static void pool_push(struct slot_pool *pool, uint32_t number)
{
    size_t at = pool->count++;
    for (; at > 0 && pool->numbers[(at - 1) / 2] > number; at = (at - 1) / 2)
        pool->numbers[at] = pool->numbers[(at - 1) / 2];
    pool->numbers[at] = number;
}

static uint32_t pool_pop(struct slot_pool *pool)
{
    uint32_t lowest = pool->numbers[0];
    uint32_t moved = pool->numbers[--pool->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < pool->count; at = child) {
        if (child + 1 < pool->count && pool->numbers[child + 1] < pool->numbers[child])
            child++;
        if (pool->numbers[child] >= moved)
            break;
        pool->numbers[at] = pool->numbers[child];
    }
    pool->numbers[at] = moved;
    return lowest;
}

static void record_slot(struct planner *planner, uint64_t semaphore_id, uint32_t number, uint64_t permit_id)
{
    planner->slots[planner->slot_count++] = (struct slot_change){semaphore_id, number, permit_id};
}

/*
 * first_free stays a lower bound of the lowest free slot. A full semaphore has none, which saves the next batch a walk
 * along rows that are all held; but not while slots that a smaller capacity put out of service may be held
 * (FIRST_FREE_SHRUNK): they count in in_use, and a slot in service may be free all the same. That is over when every
 * unit that is free is a slot.
 */
static void settle_first_free(struct semaphore *semaphore, const struct slot_pool *pool)
{
    int64_t room = semaphore->capacity - semaphore->in_use;
    if (semaphore->first_free == FIRST_FREE_SHRUNK && !(pool->whole && (int64_t)pool->count == room))
        return;
    uint32_t bound = pool->unread;
    if (pool->count && pool->numbers[0] < bound)
        bound = pool->numbers[0];
    semaphore->first_free = room > 0 ? bound : (uint32_t)semaphore->capacity + 1;
}

static void free_slots(struct planner *planner, struct semaphore_image *image, const struct permit *permit)
{
    struct slot_pool *pool = pool_of(planner, image);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        uint32_t number = permit->slots.numbers[i];
        record_slot(planner, permit->semaphore_id, number, 0);
        if (number <= image->semaphore->capacity)
            pool_push(pool, number);
    }
    settle_first_free(image->semaphore, pool);
}

/* Takes the lowest free slots for a permit. The caller has seen that the pool has enough. */
static bool take_slots(struct planner *planner, struct semaphore_image *image, struct permit *permit)
{
    struct slot_pool *pool = pool_of(planner, image);
    permit->slots.numbers = arena_array(planner->arena, (size_t)permit->count, sizeof(uint32_t));
    if (!permit->slots.numbers)
        return false;
    permit->slots.count = (uint32_t)permit->count;
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        permit->slots.numbers[i] = pool_pop(pool);
        record_slot(planner, permit->semaphore_id, permit->slots.numbers[i], permit->token);
    }
    settle_first_free(image->semaphore, pool);
    return true;
}

/* --- outcomes ------------------------------------------------------------------------------------------------ */

static void refuse(struct outcome *outcome, enum permit_status status, const char *detail)
{
    outcome->status = status;
    outcome->detail = detail;
}

/* The row as it is now: a later operation of the batch may change it again. */
static enum permit_status assert_request(struct planner *planner, struct outcome *outcome,
                                         const struct request *request)
{
    struct request *copy = arena_alloc(planner->arena, sizeof *copy);
    if (!copy)
        return PERMIT_NO_MEMORY;
    *copy = *request;
    outcome->request = copy;
    return PERMIT_OK;
}

/*
 * An answer that asserts a row which it does not change otherwise still writes: InnoDB shows a commit to others before
 * it is durable, and an answer from a bare read could be undone by a crash.
 */
static enum permit_status assert_again(struct planner *planner, struct outcome *outcome, struct key *key)
{
    key->request->replays++;
    key->changed = true;
    return assert_request(planner, outcome, key->request);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts, and drops what is there twice; returns the new count. */
static size_t ids_unique(uint64_t *ids, size_t count)
{
    size_t unique = 0;
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 0; i < count; i++)
        if (unique == 0 || ids[unique - 1] != ids[i])
            ids[unique++] = ids[i];
    return unique;
}

/* The operation comes back with every semaphore that it and its key's row need; later ones on the key follow it. */
static enum permit_status put_back(struct planner *planner, struct outcome *outcome, struct key *key,
                                   const struct operation *operation)
{
    size_t permit_count = key->request ? key->request->permit_count : 0;
    uint64_t *needs = arena_array(planner->arena, permit_count + operation->want_count, sizeof *needs);
    if (!needs)
        return PERMIT_NO_MEMORY;
    size_t count = 0;
    for (size_t i = 0; i < permit_count; i++)
        needs[count++] = key->request->permits[i].semaphore_id;
    for (size_t i = 0; i < operation->want_count; i++)
        if (operation->wants[i].semaphore_id) /* 0: there is no such semaphore */
            needs[count++] = operation->wants[i].semaphore_id;
    outcome->put_back = true;
    outcome->needs = key->needs = needs;
    outcome->need_count = key->need_count = ids_unique(needs, count);
    return PERMIT_OK;
}

/* --- release ------------------------------------------------------------------------------------------------- */

static void end_request(struct planner *planner, struct key *key, enum end_reason reason)
{
    struct request *request = key->request;
    for (size_t i = 0; i < request->permit_count; i++) {
        struct permit *permit = &request->permits[i];
        struct semaphore_image *image = find_image(planner, permit->semaphore_id);
        image->semaphore->in_use -= permit->count;
        touch(image);
        if (image->semaphore->kind == KIND_SLOTTED)
            free_slots(planner, image, permit);
    }
    request->state = REQUEST_RELEASED;
    request->end_reason = reason;
    request->ended_at = planner->now;
    request->due_at = planner->now + planner->settings->retention_us;
    key->changed = key->ends = true;
}

static struct request *new_request(struct planner *planner, const struct operation *operation)
{
    struct request *request = arena_alloc(planner->arena, sizeof *request);
    if (!request)
        return NULL;
    *request = (struct request){
        .id = planner->ids.next++,
        .external_id = operation->external_id,
        .owner = operation->owner,
        .principal = operation->principal,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
    };
    return request;
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
    return assert_request(planner, outcome, request);
}

static enum permit_status plan_release(struct planner *planner, struct outcome *outcome, struct key *key,
                                       const struct operation *operation)
{
    if (!key->request)
        return plan_tombstone(planner, outcome, key, operation);
    if (!all_locked(planner, key->request))
        return put_back(planner, outcome, key, operation);
    if (key->request->state == REQUEST_RELEASED) {
        outcome->already_released = true;
        return assert_again(planner, outcome, key);
    }
    end_request(planner, key, END_RELEASED);
    return assert_request(planner, outcome, key->request);
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
        limits_add(&limits, find_image(planner, request->permits[i].semaphore_id)->semaphore);
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

static enum permit_status plan_renew(struct planner *planner, struct outcome *outcome, struct key *key,
                                     const struct operation *operation)
{
    if (!key->request) {
        refuse(outcome, PERMIT_UNKNOWN_REQUEST, NULL);
        return PERMIT_OK;
    }
    if (!all_locked(planner, key->request))
        return put_back(planner, outcome, key, operation);
    if (key->request->state == REQUEST_RELEASED) {
        refuse(outcome, PERMIT_ENDED, NULL);
        return assert_again(planner, outcome, key);
    }
    struct hold_limits limits = limits_of_request(planner, key->request);
    const char *refusal = ttl_refusal(operation->ttl, &limits);
    if (refusal) {
        refuse(outcome, PERMIT_INVALID, refusal);
        return PERMIT_OK;
    }
    extend(planner, key->request, operation->ttl, &limits);
    key->changed = true;
    return assert_request(planner, outcome, key->request);
}

/* --- acquire ------------------------------------------------------------------------------------------------- */

/* The key has a row: the same request again, another request under its key, or one that has ended. */
static enum permit_status plan_replay(struct planner *planner, struct outcome *outcome, struct key *key,
                                      const struct operation *operation)
{
    const struct request *request = key->request;
    if (request->has_digest && memcmp(request->digest, operation->digest, DIGEST_SIZE) != 0) {
        refuse(outcome, PERMIT_KEY_REUSED, NULL);
        return PERMIT_OK;
    }
    if (!all_locked(planner, request))
        return put_back(planner, outcome, key, operation);
    if (request->state == REQUEST_RELEASED)
        refuse(outcome, PERMIT_ENDED, NULL);
    else
        outcome->replayed = true;
    return assert_again(planner, outcome, key);
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
        const struct semaphore_image *image = find_image(planner, want->semaphore_id);
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
        short_count += !want_fits(want, find_image(planner, want->semaphore_id)->semaphore);
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
        const struct semaphore *semaphore = find_image(planner, want->semaphore_id)->semaphore;
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
        const struct semaphore_image *image = find_image(planner, operation->wants[i].semaphore_id);
        if (image->semaphore->kind == KIND_SLOTTED &&
            pool_of(planner, image)->count < (size_t)operation->wants[i].count)
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
    struct semaphore_image *image = find_image(planner, want->semaphore_id);
    struct semaphore *semaphore = image->semaphore;
    *permit = (struct permit){
        .semaphore_id = semaphore->id,
        .token = next_token(planner, semaphore),
        .count = want->count,
    };
    semaphore->in_use += want->count;
    semaphore->next_due_at = min_i64(semaphore->next_due_at, due_at);
    touch(image);
    return semaphore->kind == KIND_COUNTED || take_slots(planner, image, permit);
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
    return assert_request(planner, outcome, request);
}

static enum permit_status plan_acquire(struct planner *planner, struct outcome *outcome, struct key *key,
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
        refuse(outcome, status, detail);
        return PERMIT_OK;
    }
    return grant(planner, outcome, key, operation, &limits);
}

/* --- semaphores ---------------------------------------------------------------------------------------------- */

static struct semaphore_image *find_by_name(struct planner *planner, struct bytes name)
{
    for (size_t i = 0; i < planner->view->semaphore_count; i++)
        if (bytes_equal(planner->images[i].semaphore->name, name))
            return &planner->images[i];
    return NULL;
}

/* A name that was never used, as PUT finds it before it applies the body. */
static struct semaphore_image *new_image(struct planner *planner, const struct operation *operation)
{
    struct semaphore *semaphore = arena_alloc(planner->arena, sizeof *semaphore);
    if (!semaphore)
        return NULL;
    *semaphore = (struct semaphore){
        .id = planner->ids.next++,
        .name = operation->semaphore,
        .kind = operation->change.has_kind ? operation->change.kind : KIND_SLOTTED,
        .next_permit_id = 1,
        .retired_at = NEVER,
        .next_due_at = NEVER,
    };
    struct semaphore_image *image = &planner->images[planner->image_count++];
    *image = (struct semaphore_image){.semaphore = semaphore, .insert = true};
    return image;
}

static void reset_settings(struct semaphore *semaphore)
{
    semaphore->queue = QUEUE_BACKFILL;
    semaphore->default_ttl_ms = DEFAULT_TTL_MS;
    semaphore->max_ttl_ms = -1;
    semaphore->grace_ms = 0;
    semaphore->max_hold_ms = DEFAULT_MAX_HOLD_MS;
    semaphore->paused_reason = semaphore->note = (struct bytes){0};
    semaphore->retired_at = NEVER;
}

static void apply_settings(struct semaphore *semaphore, const struct semaphore_change *change, bool fresh)
{
    if (change->has_capacity)
        semaphore->capacity = change->capacity;
    if (change->has_queue)
        semaphore->queue = change->queue;
    if (change->has_max_ttl)
        semaphore->max_ttl_ms = change->max_ttl_ms;
    if (change->has_default_ttl)
        semaphore->default_ttl_ms = change->default_ttl_ms;
    else if (fresh && semaphore->max_ttl_ms >= 0)
        semaphore->default_ttl_ms = min_i64(semaphore->default_ttl_ms, semaphore->max_ttl_ms);
    if (change->has_grace)
        semaphore->grace_ms = change->grace_ms;
    if (change->has_max_hold)
        semaphore->max_hold_ms = change->max_hold_ms;
    if (change->has_note)
        semaphore->note = change->note;
}

static const char *settings_refusal(const struct semaphore *semaphore, const struct semaphore_change *change)
{
    if (change->has_kind && change->kind != semaphore->kind)
        return "kind never changes";
    if (semaphore->kind == KIND_SLOTTED && semaphore->capacity > SLOTS_MAX_CAPACITY)
        return "capacity is at most 65536 for a slotted semaphore; \"kind\":\"counted\" takes more";
    if (semaphore->max_ttl_ms >= 0 && semaphore->default_ttl_ms > semaphore->max_ttl_ms)
        return "default_ttl is longer than max_ttl";
    return NULL;
}

/* Slot rows follow the capacity: missing ones are made, those above it go out of service (their holders keep them). */
static void follow_capacity(struct semaphore_image *image, int64_t before)
{
    struct semaphore *semaphore = image->semaphore;
    if (semaphore->kind != KIND_SLOTTED || semaphore->capacity == before)
        return;
    if (semaphore->first_free != FIRST_FREE_SHRUNK)
        semaphore->first_free = 1;
    if (semaphore->capacity > before) {
        image->slots_from = (uint32_t)before + 1;
        image->slots_to = (uint32_t)semaphore->capacity;
    } else {
        image->retire_from = (uint32_t)semaphore->capacity + 1;
        semaphore->first_free = semaphore->in_use ? FIRST_FREE_SHRUNK : 1;
    }
}

static const char *put_event(const struct semaphore_image *image, bool revived)
{
    if (image->insert)
        return "created";
    if (revived)
        return "revived";
    return image->capacity_before != image->semaphore->capacity ? "capacity" : NULL;
}

/* If-Match and If-None-Match, before anything is touched. `exists`: in service now. */
static const char *precondition_refusal(const struct semaphore_change *change, const struct semaphore *exists)
{
    if (change->if_none_match && exists)
        return "the semaphore exists already";
    if (change->if_match && !(exists && exists->config_version == change->config_version))
        return "the semaphore's config_version is another one";
    return NULL;
}

static enum permit_status plan_put(struct planner *planner, struct outcome *outcome, const struct operation *operation)
{
    const struct semaphore_change *change = &operation->change;
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    bool in_service = image && image->semaphore->retired_at == NEVER;
    const char *refusal = precondition_refusal(change, in_service ? image->semaphore : NULL);
    if (refusal) {
        refuse(outcome, PERMIT_VERSION_MISMATCH, refusal);
        return PERMIT_OK;
    }
    if (!in_service && !change->has_capacity) {
        refuse(outcome, PERMIT_INVALID, "capacity is needed to create a semaphore");
        return PERMIT_OK;
    }
    bool revived = image && !in_service;
    if (!image)
        image = new_image(planner, operation);
    if (!image)
        return PERMIT_NO_MEMORY;
    struct semaphore *semaphore = image->semaphore;
    struct semaphore before = *semaphore;
    if (!in_service)
        reset_settings(semaphore);
    apply_settings(semaphore, change, !in_service);
    refusal = settings_refusal(semaphore, change);
    if (refusal) {
        *semaphore = before;
        refuse(outcome, PERMIT_INVALID, refusal);
        return PERMIT_OK;
    }
    touch(image);
    semaphore->config_version++;
    image->settings = true;
    image->capacity_before = before.capacity;
    image->event = put_event(image, revived);
    follow_capacity(image, before.capacity);
    outcome->created = !in_service;
    outcome->semaphore = semaphore;
    return PERMIT_OK;
}

static enum permit_status plan_retire(struct planner *planner, struct outcome *outcome,
                                      const struct operation *operation)
{
    struct semaphore_image *image = find_by_name(planner, operation->semaphore);
    if (!image || image->semaphore->retired_at != NEVER) {
        refuse(outcome, PERMIT_UNKNOWN_SEMAPHORE, NULL);
    } else if (image->semaphore->in_use > 0) {
        refuse(outcome, PERMIT_IN_USE, "permits of the semaphore are held; release them first");
    } else {
        touch(image);
        image->semaphore->config_version++;
        image->semaphore->retired_at = planner->now;
        image->settings = true;
        image->capacity_before = image->semaphore->capacity;
        image->event = "retired";
        outcome->semaphore = image->semaphore;
    }
    return PERMIT_OK;
}

/* --- the batch ----------------------------------------------------------------------------------------------- */

static enum permit_status plan_operation(struct planner *planner, size_t index)
{
    const struct operation *operation = planner->operations[index];
    struct outcome *outcome = &planner->outcomes[index];
    struct key *key = planner->key_of[index];
    if (key && key->needs)
        return put_back(planner, outcome, key, operation);
    switch (operation->kind) {
    case OP_ACQUIRE: return plan_acquire(planner, outcome, key, operation);
    case OP_RELEASE: return plan_release(planner, outcome, key, operation);
    case OP_RENEW: return plan_renew(planner, outcome, key, operation);
    case OP_SEMAPHORE_PUT: return plan_put(planner, outcome, operation);
    case OP_SEMAPHORE_RETIRE: return plan_retire(planner, outcome, operation);
    case OP_KIND_COUNT: break;
    }
    refuse(outcome, PERMIT_INTERNAL, "no such operation");
    return PERMIT_OK;
}

/* Copies of the locked rows; the version a row was read with is what the write compares with. */
static enum permit_status copy_semaphores(struct planner *planner)
{
    const struct view *view = planner->view;
    struct semaphore *copies = arena_array(planner->arena, view->semaphore_count, sizeof *copies);
    planner->images = arena_array(planner->arena, view->semaphore_count + 1, sizeof *planner->images);
    planner->pools = arena_array(planner->arena, view->semaphore_count, sizeof *planner->pools);
    if (!copies || !planner->images || !planner->pools)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        copies[i] = view->semaphores[i];
        planner->images[i] = (struct semaphore_image){.semaphore = &copies[i], .expected_version = copies[i].version};
    }
    planner->image_count = view->semaphore_count;
    return PERMIT_OK;
}

/* How many slots of a semaphore the rows that were read hold: so many may come back to its pool. */
static size_t held_slots(const struct view *view, uint64_t semaphore_id)
{
    size_t held = 0;
    for (size_t i = 0; i < view->request_count; i++)
        for (size_t j = 0; j < view->requests[i].permit_count; j++)
            if (view->requests[i].permits[j].semaphore_id == semaphore_id)
                held += view->requests[i].permits[j].slots.count;
    return held;
}

static uint32_t unread_from(const struct semaphore *semaphore, const struct free_slots *read)
{
    if (read->complete)
        return (uint32_t)semaphore->capacity + 1;
    return read->count ? read->numbers[read->count - 1] + 1 : semaphore->first_free;
}

/* A request that is granted here may take its slots and, by a later operation of the batch, give them back. */
static size_t moves_of_acquires(struct planner *planner)
{
    size_t moves = 0;
    for (size_t i = 0; i < planner->operation_count; i++)
        for (size_t j = 0; j < planner->operations[i]->want_count; j++) {
            const struct want *want = &planner->operations[i]->wants[j];
            const struct semaphore_image *image = find_image(planner, want->semaphore_id);
            if (image && image->semaphore->kind == KIND_SLOTTED)
                moves += 2 * (size_t)min_i64(want->count, SLOTS_MAX_COUNT);
        }
    return moves;
}

static enum permit_status fill_pools(struct planner *planner)
{
    const struct view *view = planner->view;
    size_t moves = 0;
    for (size_t i = 0; i < view->semaphore_count; i++) {
        if (view->semaphores[i].kind != KIND_SLOTTED)
            continue;
        const struct free_slots *read = &view->free_slots[i];
        size_t held = held_slots(view, view->semaphores[i].id);
        struct slot_pool *pool = &planner->pools[i];
        pool->numbers = arena_array(planner->arena, read->count + held, sizeof *pool->numbers);
        if (!pool->numbers)
            return PERMIT_NO_MEMORY;
        if (read->count)
            memcpy(pool->numbers, read->numbers, read->count * sizeof *pool->numbers);
        pool->count = read->count; /* ascending is a heap already */
        pool->unread = unread_from(&view->semaphores[i], read);
        pool->whole = read->complete && view->semaphores[i].first_free <= 1;
        moves += held;
    }
    planner->slots = arena_array(planner->arena, moves + moves_of_acquires(planner), sizeof *planner->slots);
    return planner->slots ? PERMIT_OK : PERMIT_NO_MEMORY;
}

struct sorted_operation {
    struct bytes external_id;
    size_t index;
};

static int compare_sorted(const void *a, const void *b)
{
    const struct sorted_operation *left = a;
    const struct sorted_operation *right = b;
    int order = bytes_compare(left->external_id, right->external_id);
    return order ? order : (left->index > right->index) - (left->index < right->index);
}

/* The keys of the batch in byte order, each with its row; both lists ascend, so they are merged. */
static enum permit_status collect_keys(struct planner *planner)
{
    size_t count = planner->operation_count;
    struct sorted_operation *sorted = arena_array(planner->arena, count, sizeof *sorted);
    planner->keys = arena_array(planner->arena, count, sizeof *planner->keys);
    planner->key_of = arena_array(planner->arena, count, sizeof *planner->key_of);
    struct request *rows = arena_array(planner->arena, planner->view->request_count, sizeof *rows);
    if (!sorted || !planner->keys || !planner->key_of || !rows)
        return PERMIT_NO_MEMORY;
    size_t keyed = 0;
    for (size_t i = 0; i < count; i++)
        if (!operation_is_administrative(planner->operations[i]->kind))
            sorted[keyed++] = (struct sorted_operation){planner->operations[i]->external_id, i};
    qsort(sorted, keyed, sizeof *sorted, compare_sorted);
    size_t row = 0;
    for (size_t i = 0; i < keyed; i++) {
        struct bytes external_id = sorted[i].external_id;
        if (planner->key_count == 0 || !bytes_equal(planner->keys[planner->key_count - 1].external_id, external_id)) {
            struct key *key = &planner->keys[planner->key_count++];
            key->external_id = external_id;
            while (row < planner->view->request_count &&
                   bytes_compare(planner->view->requests[row].external_id, external_id) < 0)
                row++;
            if (row < planner->view->request_count &&
                bytes_equal(planner->view->requests[row].external_id, external_id)) {
                rows[row] = planner->view->requests[row];
                key->before = &planner->view->requests[row];
                key->request = &rows[row];
            }
        }
        planner->key_of[sorted[i].index] = &planner->keys[planner->key_count - 1];
    }
    return PERMIT_OK;
}

/* Each operation's rank: that of its kind, but never before an earlier operation on the same key. */
static enum permit_status rank_operations(struct planner *planner, int **ret_ranks)
{
    int *ranks = arena_array(planner->arena, planner->operation_count, sizeof *ranks);
    int *key_ranks = arena_array(planner->arena, planner->key_count, sizeof *key_ranks);
    if (!ranks || !key_ranks)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < planner->operation_count; i++) {
        ranks[i] = kinds[planner->operations[i]->kind].rank;
        if (!planner->key_of[i])
            continue;
        int *key_rank = &key_ranks[planner->key_of[i] - planner->keys];
        if (ranks[i] < *key_rank)
            ranks[i] = *key_rank;
        *key_rank = ranks[i];
    }
    *ret_ranks = ranks;
    return PERMIT_OK;
}

static enum permit_status decide_all(struct planner *planner)
{
    int *ranks = NULL;
    enum permit_status status = rank_operations(planner, &ranks);
    for (int rank = 0; rank <= LAST_RANK; rank++)
        for (size_t i = 0; i < planner->operation_count && status == PERMIT_OK; i++)
            if (ranks[i] == rank)
                status = plan_operation(planner, i);
    return status;
}

/* --- the result ---------------------------------------------------------------------------------------------- */

static int compare_request_ids(const void *a, const void *b)
{
    return compare_ids(&((const struct request_change *)a)->request->id,
                       &((const struct request_change *)b)->request->id);
}

/* Inserts in byte order of the keys, as they stand; updates behind them in order of id. */
static enum permit_status collect_requests(struct planner *planner, struct changes *changes)
{
    changes->requests = arena_array(planner->arena, planner->key_count, sizeof *changes->requests);
    if (!changes->requests)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < planner->key_count; i++)
        if (planner->keys[i].insert)
            changes->requests[changes->request_count++] =
                (struct request_change){.request = planner->keys[i].request, .insert = true};
    size_t inserts = changes->request_count;
    for (size_t i = 0; i < planner->key_count; i++) {
        const struct key *key = &planner->keys[i];
        if (!key->insert && key->changed)
            changes->requests[changes->request_count++] =
                (struct request_change){.request = key->request, .before = key->before, .ends = key->ends};
    }
    qsort(changes->requests + inserts, changes->request_count - inserts, sizeof *changes->requests,
          compare_request_ids);
    return PERMIT_OK;
}

struct ordered_slot {
    struct slot_change change;
    size_t order;
};

static int compare_slots(const void *a, const void *b)
{
    const struct ordered_slot *left = a;
    const struct ordered_slot *right = b;
    int order = compare_ids(&left->change.semaphore_id, &right->change.semaphore_id);
    if (order == 0)
        order = (left->change.number > right->change.number) - (left->change.number < right->change.number);
    return order ? order : (left->order > right->order) - (left->order < right->order);
}

/* A slot may have been freed and granted again: only its last image counts. */
static enum permit_status collect_slots(struct planner *planner, struct changes *changes)
{
    size_t count = planner->slot_count;
    struct ordered_slot *sorted = arena_array(planner->arena, count, sizeof *sorted);
    changes->slots = planner->slots;
    if (!sorted)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct ordered_slot){planner->slots[i], i};
    qsort(sorted, count, sizeof *sorted, compare_slots);
    for (size_t i = 0; i < count; i++) {
        bool last = i + 1 == count || sorted[i + 1].change.semaphore_id != sorted[i].change.semaphore_id ||
                    sorted[i + 1].change.number != sorted[i].change.number;
        if (last)
            changes->slots[changes->slot_count++] = sorted[i].change;
    }
    return PERMIT_OK;
}

static enum permit_status collect_changes(struct planner *planner, struct changes *changes)
{
    *changes = (struct changes){
        .semaphores = planner->images, .semaphore_count = planner->image_count, .wall_now = planner->view->now};
    enum permit_status status = collect_requests(planner, changes);
    if (status == PERMIT_OK)
        status = collect_slots(planner, changes);
    changes->empty = changes->request_count == 0;
    for (size_t i = 0; i < planner->image_count; i++)
        changes->empty &= !planner->images[i].changed;
    return status;
}

enum permit_status plan_batch(const struct view *view, const struct operation *const *operations,
                              size_t operation_count, struct id_range ids, const struct plan_settings *settings,
                              struct arena *arena, struct plan *ret_plan)
{
    struct planner planner = {
        .view = view,
        .operations = operations,
        .operation_count = operation_count,
        .settings = settings,
        .arena = arena,
        .now = served_time(&view->clock, view->now),
        .ids = ids,
    };
    struct plan plan = {.outcomes = arena_array(arena, operation_count, sizeof *plan.outcomes)};
    planner.outcomes = plan.outcomes;
    enum permit_status status = plan.outcomes ? copy_semaphores(&planner) : PERMIT_NO_MEMORY;
    if (status == PERMIT_OK)
        status = fill_pools(&planner);
    if (status == PERMIT_OK)
        status = collect_keys(&planner);
    if (status == PERMIT_OK)
        status = decide_all(&planner);
    if (status == PERMIT_OK)
        status = collect_changes(&planner, &plan.changes);
    if (status != PERMIT_OK)
        return status;
    plan.ids_used = planner.ids.next - ids.next;
    *ret_plan = plan;
    return PERMIT_OK;
}
