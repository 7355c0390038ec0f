/* SPDX-License-Identifier: MIT */
/* Decides acquires: replay of a key, claim of a grant, capacity (also by ending due holders), grant. */
#include "core/planner.h"

#include <assert.h>

#include "core/name.h"

/*
 * The strings are copies: a later operation of the batch may be answered with this row after the client of the first
 * operation has its answer and its memory is freed.
 */
struct request *request_new(struct planner *planner, const struct operation *operation)
{
    assert(planner->ids.next < planner->ids.end);
    struct request *request = arena_must_alloc(planner->arena, sizeof *request);
    *request = (struct request){
        .id = planner->ids.next++,
        .external_id = arena_must_copy(planner->arena, operation->external_id),
        .owner = arena_must_copy(planner->arena, operation->owner),
        .principal = arena_must_copy(planner->arena, operation->principal),
        .nonce = arena_must_copy(planner->arena, operation->nonce),
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
    };
    return request;
}

/*
 * Describes the request of a key that is used again for a different one. Names only semaphores that are locked here.
 * NULL: the request is not in the scope.
 */
static const char *reused_sentence(struct planner *planner, const struct request *request, const struct scope *scope)
{
    if (planner_out_of_scope(planner, request, scope))
        return NULL;
    enum { NAMED_MAX = 3 };
    const char *text = "the key stands for another request:";
    size_t named = 0;
    bool waits = request->state == REQUEST_WAITING;
    size_t count = request_semaphore_count(request);
    for (size_t i = 0; i < count && named < NAMED_MAX; i++) {
        int64_t units = waits ? request->wants[i].count : request->permits[i].count;
        const struct semaphore_image *image = planner_image(planner, request_semaphore_id(request, i));
        if (!image)
            continue;
        struct bytes name = image->semaphore->name;
        text = planner_sentence(planner, "%s%s %lld of %.*s", text, named++ ? "," : "", (long long)units,
                                (int)name.length, name.data);
    }
    if (named < count)
        text =
            planner_sentence(planner, "%s%s units of %zu other semaphores", text, named ? ", and" : "", count - named);
    struct bytes owner = name_without_namespace(request->owner);
    if (owner.length)
        text = planner_sentence(planner, "%s, owner %.*s", text, (int)owner.length, owner.data);
    if (request->ttl_ms > 0)
        text = planner_sentence(planner, "%s, ttl %lld ms", text, (long long)request->ttl_ms);
    return text;
}

/*
 * The longest ttl is in the refusal, too: a client that always asks for its own ttl, and for a shorter one where that
 * is too long, finds the request that it has made so.
 */
void refuse_reused(struct planner *planner, struct outcome *outcome, const struct request *request,
                   const struct operation *operation)
{
    struct hold_limits limits = NO_HOLD_LIMITS;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (image && image->semaphore->retired_at == NEVER)
            limits_add(&limits, image->semaphore);
    }
    outcome_refuse(outcome, PERMIT_KEY_REUSED, reused_sentence(planner, request, operation->scope));
    (void)ttl_refusal(operation->ttl, &limits, &outcome->max_ttl_ms);
}

void claim(struct planner *planner, struct key *key)
{
    struct request *request = key->request;
    struct hold_limits limits = limits_of_request(planner, request);
    if (request->server_id != planner->settings->server_id)
        send_mail(planner, request->server_id, request->id);
    request->server_id = 0;
    if (request->confirmed_at == NEVER)
        request->due_at = due_from(planner->deadlines_from, request->ttl_ms, request->grace_ms, limits.max_hold_ms);
    key_change(key);
    for (size_t i = 0; i < request->permit_count; i++) {
        struct semaphore_image *image = planner_image(planner, request->permits[i].semaphore_id);
        image->semaphore->next_due_at = min_i64(image->semaphore->next_due_at, request->due_at);
        semaphore_mark_changed(image);
    }
}

/*
 * Decides an acquire whose key has a row: a repeated request, a different request, one that has ended, or one that is
 * due.
 */
void plan_replay(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    struct request *request = key->request;
    if (operation->kind == OP_LEAVE) { /* an unclaimed grant ends by itself */
        outcome_refuse(outcome, PERMIT_NO_CAPACITY, NULL);
    } else if (request->has_digest && memcmp(request->digest, operation->digest, DIGEST_SIZE) != 0) {
        refuse_reused(planner, outcome, request, operation);
    } else if (!view_has_locked_all(planner->view, request)) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
    } else if (request_is_due(planner, request)) {
        end_request(planner, key, due_reason(request));
        outcome_refuse(outcome, PERMIT_ENDED, NULL);
        outcome_attach_row(planner, outcome, request);
    } else if (request->state == REQUEST_ACQUIRED && request->server_id) {
        request->nonce = arena_must_copy(planner->arena, operation->nonce);
        claim(planner, key);
        outcome->created = true;
        outcome_attach_row(planner, outcome, request);
    } else {
        if (request->state == REQUEST_RELEASED)
            outcome_refuse(outcome, PERMIT_ENDED, NULL);
        else
            outcome->replayed = true;
        outcome_count_replay(planner, outcome, key);
    }
}

/* Returns the reason for any choice of slots. The wants of a row name their semaphores by id only. */
static enum permit_status want_unit_refusal(struct planner *planner, const struct want *want, const char **ret_detail)
{
    const struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    *ret_detail = NULL;
    if (!image || image->semaphore->retired_at != NEVER)
        return PERMIT_UNKNOWN_SEMAPHORE;
    const struct semaphore *semaphore = image->semaphore;
    if (want->semaphore.length && !bytes_equal(semaphore->name, want->semaphore))
        return PERMIT_UNKNOWN_SEMAPHORE;
    if (semaphore->kind == KIND_SLOTTED && want->count > SLOTS_MAX_COUNT) {
        *ret_detail = planner_sentence(planner, "%.*s: %lld asked; count is at most %d for a slotted semaphore",
                                       (int)semaphore->name.length, semaphore->name.data, (long long)want->count,
                                       SLOTS_MAX_COUNT);
        return PERMIT_INVALID;
    }
    /* Capacity 0 means closed, which is temporary: no_capacity. */
    if (semaphore->capacity > 0 && want->count > semaphore->capacity) {
        *ret_detail = planner_sentence(planner, "%.*s: %lld asked, its capacity is %lld", (int)semaphore->name.length,
                                       semaphore->name.data, (long long)want->count, (long long)semaphore->capacity);
        return PERMIT_NEVER_SATISFIABLE;
    }
    return PERMIT_OK;
}

enum permit_status want_refusal(struct planner *planner, const struct want *want, size_t index, const char **ret_detail)
{
    enum permit_status status = want_unit_refusal(planner, want, ret_detail);
    if (status != PERMIT_OK || !want_is_specific(want))
        return status;
    return planner_resolve_want(planner, want, index, ret_detail);
}

/* Checks if the request can be granted at all; collects the limits of its semaphores. */
static enum permit_status check_wants(struct planner *planner, const struct operation *operation, struct fit *fit)
{
    const struct semaphore *paused = NULL;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        enum permit_status status = want_refusal(planner, want, i, &fit->detail);
        if (status != PERMIT_OK)
            return status;
        const struct semaphore *semaphore = planner_image(planner, want->semaphore_id)->semaphore;
        limits_add(&fit->limits, semaphore);
        if (!paused && semaphore->paused_reason.data)
            paused = semaphore;
    }
    fit->detail = ttl_refusal(operation->ttl, &fit->limits, &fit->max_ttl_ms);
    if (fit->detail)
        return PERMIT_INVALID;
    if (!paused)
        return PERMIT_OK;
    fit->detail = planner_sentence(planner, "%.*s is paused: %.*s", (int)paused->name.length, paused->name.data,
                                   (int)paused->paused_reason.length, paused->paused_reason.data);
    return PERMIT_PAUSED;
}

/* ---- the packet ---- */

static size_t packet_begin(size_t semaphore_count)
{
    return PACKET_BATCH + semaphore_count * PACKET_SEMAPHORE;
}

/* `labels`: with those of its slots, of which it lacks none. */
static size_t packet_of_grant(struct planner *planner, const struct operation *operation, bool labels)
{
    size_t names = operation->external_id.length + operation->owner.length + operation->principal.length +
                   operation->nonce.length + operation->metadata.length;
    size_t size = PACKET_GRANT + 2 * names;
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct want *want = &operation->wants[i];
        const struct semaphore *semaphore = planner_image(planner, want->semaphore_id)->semaphore;
        bool slotted = semaphore->kind == KIND_SLOTTED;
        size += PACKET_PERMIT + 4 * operation->owner.length + packet_of_event(semaphore, slotted ? want->count : 0);
        if (slotted)
            size += (size_t)want->count * PACKET_SLOT + (labels ? 2 * planner_labels_size(planner, want, i) : 0);
    }
    return size;
}

bool packet_has_room(const struct planner *planner, size_t size)
{
    size_t max = planner->settings->max_packet;
    return !max || packet_begin(planner->view->semaphore_count) + planner->packet_size + size <= max;
}

bool is_crowded_out(const struct planner *planner, const struct fit *fit)
{
    return planner->operation_count == 1 && planner->packet_size && fit->status == PERMIT_OK &&
           !packet_has_room(planner, fit->packet_size);
}

/* Refuses a grant that no transaction can write. `labels`: it lacks nothing, so the labels of its slots are known. */
static void check_packet(struct planner *planner, const struct operation *operation, bool labels, struct fit *fit)
{
    size_t max = planner->settings->max_packet;
    fit->packet_size = packet_of_grant(planner, operation, labels);
    size_t alone = packet_begin(operation->want_count) + fit->packet_size;
    if (!max || alone <= max)
        return;
    fit->status = PERMIT_TOO_LARGE;
    fit->detail = planner_sentence(planner,
                                   "the grant would have %s%zu bytes with its slots and their labels; a packet to the "
                                   "database has at most %zu (max_allowed_packet): ask for fewer slots in one request",
                                   labels ? "" : "at least ", alone, max);
}

/* ---- capacity ---- */

/* The deficit of one want while due holders are selected. The want fits if neither number is above 0. */
struct deficit {
    int64_t units;           /* missing units; INT64_MAX: ending holders does not help */
    int64_t slots;           /* number of slots in `to_reclaim` that must still become free */
    struct slots to_reclaim; /* slots to reclaim for a want for specific slots */
};

static struct deficit find_deficit(struct planner *planner, const struct operation *operation, size_t index)
{
    const struct want *want = &operation->wants[index];
    struct deficit deficit = {.units = units_missing(planner, want)};
    if (planner_slots_missing(planner, want, index) > 0 && deficit.units != INT64_MAX) {
        deficit.to_reclaim = planner_slots_to_reclaim(planner, want, index);
        const struct slot_view *slot_view = planner_slot_view(planner, planner_image(planner, want->semaphore_id));
        deficit.slots = want->count - slot_pool_count_of(&slot_view->free, &deficit.to_reclaim);
        if (deficit.to_reclaim.count == 0)
            deficit.units = INT64_MAX;
    }
    return deficit;
}

/* Returns the number of slots in both lists; both are ascending. */
static int64_t slots_shared(const struct slots *a, const struct slots *b)
{
    int64_t shared = 0;
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        shared += a->numbers[i] == b->numbers[j];
        uint32_t number = a->numbers[i];
        i += number <= b->numbers[j];
        j += b->numbers[j] <= number;
    }
    return shared;
}

/*
 * Returns true if ending the holder of this permit reduces the deficit: it has a slot that is to be reclaimed, or it
 * frees units, and more of them are missing than these slots bring. The latter is rare for specific slots: slots that a
 * smaller capacity put out of service count in in_use.
 */
static bool permit_reduces_deficit(struct planner *planner, const struct permit *permit, const struct deficit *deficit)
{
    return (deficit->units > max_i64(deficit->slots, 0) && planner_units_freed(planner, permit) > 0) ||
           (deficit->slots > 0 && slots_shared(&permit->slots, &deficit->to_reclaim) > 0);
}

/* Subtracts the units and slots of this request from the deficits; false if its end would not help. */
static bool holder_reduces_deficits(struct planner *planner, const struct request *request,
                                    const struct operation *operation, struct deficit *deficits)
{
    const struct permit *permits[REQUEST_MAX_SEMAPHORES]; /* per want */
    bool helps = false;
    for (size_t i = 0; i < operation->want_count; i++) {
        permits[i] = request_permit_of(request, operation->wants[i].semaphore_id);
        helps = helps || (permits[i] && permit_reduces_deficit(planner, permits[i], &deficits[i]));
    }
    for (size_t i = 0; helps && i < operation->want_count; i++)
        if (permits[i]) {
            deficits[i].units -= planner_units_freed(planner, permits[i]);
            deficits[i].slots -= slots_shared(&permits[i]->slots, &deficits[i].to_reclaim);
        }
    return helps;
}

static bool any_deficit(const struct deficit *deficits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (deficits[i].units > 0 || deficits[i].slots > 0)
            return true;
    return false;
}

/*
 * Selects due holders into planner->chosen, the longest due first, whose end makes the whole operation fit. False: it
 * would still not fit; the expiry task ends them.
 */
static bool select_due_holders(struct planner *planner, const struct operation *operation, size_t *ret_count)
{
    struct deficit deficits[REQUEST_MAX_SEMAPHORES];
    size_t count = 0;
    for (size_t i = 0; i < operation->want_count; i++)
        deficits[i] = find_deficit(planner, operation, i);
    for (size_t i = 0; i < planner->due_count && any_deficit(deficits, operation->want_count); i++) {
        struct key *key = planner->due[i];
        if (request_is_due(planner, key->request) &&
            holder_reduces_deficits(planner, key->request, operation, deficits))
            planner->chosen[count++] = key;
    }
    *ret_count = count;
    return !any_deficit(deficits, operation->want_count);
}

/* Returns true if the packet can have the ends of the chosen due holders and the grant. Else the expiry task ends them. */
static bool ends_have_room(struct planner *planner, const struct operation *operation, size_t count)
{
    size_t size = packet_of_grant(planner, operation, false);
    for (size_t i = 0; i < count; i++)
        size += packet_of_end(planner->chosen[i]->request) + packet_of_end_event(planner, planner->chosen[i]->request);
    return packet_has_room(planner, size);
}

bool acquire_would_fit(struct planner *planner, const struct operation *operation)
{
    size_t count;
    bool fits = select_due_holders(planner, operation, &count);
    return fits && (count == 0 || ends_have_room(planner, operation, count));
}

/* Ends due holders so that the operation fits, or finds that not all their semaphores are locked. */
static void end_due_holders(struct planner *planner, const struct operation *operation, struct fit *fit)
{
    size_t count;
    if (!select_due_holders(planner, operation, &count) || !ends_have_room(planner, operation, count))
        return;
    for (size_t i = 0; i < count; i++)
        if (!view_has_locked_all(planner->view, planner->chosen[i]->request)) {
            fit->unlocked = planner->chosen;
            fit->unlocked_count = count;
            return;
        }
    bool walk_again = planner->walk_again; /* the units are for this operation */
    for (size_t i = 0; i < count; i++) {
        end_request(planner, planner->chosen[i], due_reason(planner->chosen[i]->request));
    }
    for (size_t i = 0; count > 0 && i < operation->want_count; i++)
        if (operation->wants[i].choice == CHOOSE_BEST)
            planner->named[i] = (struct slots){0}; /* chosen again: better seats may be free now */
    planner->walk_again = walk_again;
}

void note_overdue(struct planner *planner, const struct fit *fit)
{
    for (size_t i = 0; i < fit->unlocked_count; i++) {
        struct key *due = fit->unlocked[i];
        if (due->overdue || view_has_locked_all(planner->view, due->request))
            continue;
        due->overdue = true;
        planner->overdue = planner_list(planner, planner->overdue, planner->overdue_count, sizeof *planner->overdue);
        planner->overdue[planner->overdue_count++] = due->request;
    }
}

/* Returns true if units are missing, or the requested specific slots. */
static bool is_short(struct planner *planner, const struct operation *operation, size_t index)
{
    const struct want *want = &operation->wants[index];
    return units_missing(planner, want) > 0 || planner_slots_missing(planner, want, index) > 0;
}

static struct shortage describe_shortage(struct planner *planner, const struct operation *operation, size_t index)
{
    const struct want *want = &operation->wants[index];
    const struct semaphore *semaphore = planner_image(planner, want->semaphore_id)->semaphore;
    struct shortage shortage = {.semaphore_id = semaphore->id,
                                .semaphore = semaphore->name,
                                .capacity = semaphore->capacity,
                                .in_use = semaphore->in_use,
                                .requested = want->count,
                                .behind = units_missing(planner, want) >
                                          want->count - (semaphore->capacity - semaphore->in_use)};
    if (want->choice == CHOOSE_NAMED)
        planner_taken_slots(planner, want, index, &shortage);
    shortage.is_best = semaphore->kind == KIND_SLOTTED && want->choice == CHOOSE_BEST;
    if (shortage.is_best)
        shortage.largest_together =
            planner_slots_missing(planner, want, index) ? planner->largest_together[index] : (uint32_t)want->count;
    return shortage;
}

/*
 * Checks the capacity. Returns PERMIT_OK if everything fits, else PERMIT_NO_CAPACITY with each semaphore that falls
 * short.
 */
static enum permit_status check_capacity(struct planner *planner, const struct operation *operation, struct fit *fit)
{
    struct shortage *shortages = NULL;
    for (size_t i = 0; i < operation->want_count; i++)
        if (is_short(planner, operation, i)) {
            shortages = planner_list(planner, shortages, fit->shortage_count, sizeof *shortages);
            shortages[fit->shortage_count++] = describe_shortage(planner, operation, i);
        }
    fit->shortages = shortages;
    return shortages ? PERMIT_NO_CAPACITY : PERMIT_OK;
}

/*
 * Checks that the free slots that are not reserved suffice. in_use and the slot rows change together, so this is false
 * only after another program wrote to them.
 */
static bool slots_suffice(struct planner *planner, const struct operation *operation)
{
    for (size_t i = 0; i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        const struct slot_pool *free = &planner_slot_view(planner, image)->free;
        if (image->semaphore->kind == KIND_SLOTTED &&
            (int64_t)free->count - slot_pool_count_reserved(free) < operation->wants[i].count)
            return false;
    }
    return true;
}

/* ---- the grant ---- */

void grant_permit(struct planner *planner, const struct want *want, size_t index, const struct key *key, utc_us due_at,
                  struct permit *permit)
{
    struct semaphore_image *image = planner_image(planner, want->semaphore_id);
    struct semaphore *semaphore = image->semaphore;
    uint64_t token = semaphore_next_token(semaphore->next_token, planner->view->clock.epoch);
    *permit = (struct permit){.semaphore_id = semaphore->id, .token = token, .count = want->count};
    semaphore->next_token = token + 1;
    semaphore->in_use += want->count;
    assert(semaphore->in_use <= semaphore->capacity); /* P1 */
    semaphore->next_due_at = min_i64(semaphore->next_due_at, due_at);
    semaphore_mark_changed(image);
    if (semaphore->kind == KIND_SLOTTED)
        planner_take_slots(planner, want, index, key, permit);
}

void request_set_metadata(struct planner *planner, struct request *request, const struct operation *operation)
{
    if (!operation->metadata.data)
        return;
    request->metadata = arena_must_copy(planner->arena, operation->metadata);
    request->has_metadata = 1;
}

struct request *request_of_acquire(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct request *request = request_new(planner, operation);
    request->has_digest = true;
    memcpy(request->digest, operation->digest, DIGEST_SIZE);
    request_set_metadata(planner, request, operation);
    key->request = request;
    key->row = ROW_NEW;
    return request;
}

void grant(struct planner *planner, struct key *key, const struct operation *operation, const struct fit *fit,
           uint64_t unclaimed_at)
{
    const struct hold_limits *limits = &fit->limits;
    struct request *request = key->request ? key->request : request_of_acquire(planner, key, operation);
    struct permit *permits = arena_must_array(planner->arena, operation->want_count, sizeof *permits);
    request->state = REQUEST_ACQUIRED;
    request->acquired_at = planner->now;
    request->grace_ms = limits->grace_ms;
    request->server_id = unclaimed_at;
    switch (operation->ttl.kind) {
    case TTL_ABSENT: request->ttl_ms = limits->default_ttl_ms; break;
    case TTL_DURATION: request->ttl_ms = operation->ttl.ms; break;
    case TTL_UNLIMITED: request->ttl_ms = TTL_NONE; break;
    case TTL_OWNER: request->ttl_ms = TTL_BY_OWNER; break;
    }
    request->due_at = unclaimed_at
                          ? planner->deadlines_from + PLACE_KEPT_US
                          : due_from(planner->deadlines_from, request->ttl_ms, limits->grace_ms, limits->max_hold_ms);
    request->permits = permits;
    request->permit_count = operation->want_count;
    for (size_t i = 0; i < operation->want_count; i++)
        grant_permit(planner, &operation->wants[i], i, key, request->due_at, &permits[i]);
    planner->packet_size += fit->packet_size;
    key->granted = ++planner->grants;
    key_change(key);
}

/*
 * Finds a reason other than capacity to refuse a request, and its limits. The owners of all acquires of the batch were
 * read, so one that is missing does not exist.
 */
static void check_request(struct planner *planner, const struct operation *operation, struct fit *fit)
{
    fit->status = check_wants(planner, operation, fit);
    if (fit->status != PERMIT_OK)
        return;
    const struct owner_state *owner = view_owner(planner->view, operation->owner);
    if (operation->ttl.kind == TTL_OWNER && !(owner && owner->alive)) {
        fit->status = PERMIT_UNKNOWN_OWNER;
        fit->detail = "ttl \"owner\" needs a heartbeat: PUT /v1/owners/{owner} first";
    } else if (planner->now < planner->view->grants_from) {
        fit->status = PERMIT_BUSY;
        fit->detail =
            "the token epoch was just raised (failover, restore, or fence bump); grants resume in a few seconds";
    } else {
        check_packet(planner, operation, false, fit); /* so no holder ends for it, and it waits for nothing */
    }
}

struct fit acquire_fit(struct planner *planner, const struct operation *operation)
{
    struct fit fit = {.limits = NO_HOLD_LIMITS};
    check_request(planner, operation, &fit);
    if (fit.status == PERMIT_OK && planner->due_count)
        end_due_holders(planner, operation, &fit);
    if (fit.status == PERMIT_OK && fit.unlocked_count == 0)
        fit.status = check_capacity(planner, operation, &fit);
    if (fit.status == PERMIT_OK && fit.unlocked_count == 0 && !slots_suffice(planner, operation)) {
        fit.status = PERMIT_INTERNAL;
        fit.detail = "the slot rows of a semaphore do not match its in_use";
    }
    if (fit.status == PERMIT_OK && fit.unlocked_count == 0)
        check_packet(planner, operation, true, &fit);
    return fit;
}

struct outcome outcome_of_fit(const struct fit *fit)
{
    return (struct outcome){.status = fit->status,
                            .detail = fit->detail,
                            .max_ttl_ms = fit->max_ttl_ms,
                            .shortages = fit->shortages,
                            .shortage_count = fit->shortage_count,
                            .may_wait = refusal_may_wait(fit->status)};
}

/* The highest priority is a setting of each semaphore. A request that is entered again keeps the place that it had. */
static const char *priority_refusal(struct planner *planner, const struct operation *operation)
{
    for (size_t i = 0; operation->wait_us > 0 && i < operation->want_count; i++) {
        const struct semaphore_image *image = planner_image(planner, operation->wants[i].semaphore_id);
        if (image && image->semaphore->retired_at == NEVER && operation->priority > image->semaphore->max_priority)
            return planner_sentence(planner, "%.*s: priority is at most %lld", (int)image->semaphore->name.length,
                                    image->semaphore->name.data, (long long)image->semaphore->max_priority);
    }
    return NULL;
}

void plan_new(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (operation->kind == OP_LEAVE) {
        outcome_refuse(outcome, PERMIT_NO_CAPACITY, NULL);
        return;
    }
    const char *refusal = priority_refusal(planner, operation);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_INVALID, refusal);
        return;
    }
    stand_before(planner, place_of_acquire(planner, operation), UINT64_MAX);
    struct fit fit = acquire_fit(planner, operation);
    if (fit.unlocked_count || is_crowded_out(planner, &fit)) {
        note_overdue(planner, &fit);
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return;
    }
    if (fit.status == PERMIT_OK) {
        outcome->created = true;
        grant(planner, key, operation, &fit, 0);
        outcome_attach_row(planner, outcome, key->request);
        return;
    }
    size_t id_count = 0;
    const uint64_t *ids = fit.status == PERMIT_NO_CAPACITY ? find_wider_locks(planner, operation, &id_count) : NULL;
    if (id_count) {
        outcome_put_back(planner, outcome, key, operation, ids, id_count);
        return;
    }
    *outcome = outcome_of_fit(&fit);
    if (outcome->may_wait && operation->wait_us > 0)
        queue_enter(planner, outcome, key, operation);
}
