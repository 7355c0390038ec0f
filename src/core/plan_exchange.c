/* SPDX-License-Identifier: MIT */
/*
 * Decides an exchange: a held request gives back some of its units and takes others, all or nothing. A shrink takes
 * nothing, and what is left keeps its token. A semaphore of which the request takes units gets a new token for all its
 * units in the request, because an added slot may have been held under a higher token than the old one (P10).
 */
#include "core/planner.h"

#include <assert.h>
#include <stdlib.h>

/* ---- what is given back ---- */

/* Returns the index of the request's permit of this semaphore; permit_count: it has none. */
static size_t find_permit(const struct request *request, uint64_t semaphore_id)
{
    const struct permit *permit = request_permit_of(request, semaphore_id);
    return permit ? (size_t)(permit - request->permits) : request->permit_count;
}

/* The same by the semaphore's name. All semaphores of the request are locked. */
static size_t find_permit_by_name(struct planner *planner, const struct request *request, struct bytes name)
{
    size_t index = 0;
    while (index < request->permit_count &&
           !bytes_equal(planner_image(planner, request->permits[index].semaphore_id)->semaphore->name, name))
        index++;
    return index;
}

static bool has_slot(const struct slots *slots, uint32_t number)
{
    bool found = false;
    for (uint32_t i = 0; i < slots->count; i++)
        found |= slots->numbers[i] == number;
    return found;
}

/* Returns the slot of the permit that has this name; 0: none has. */
static uint32_t find_slot(const struct permit *permit, const struct slot_name *name)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < permit->slots.count; i++)
        if (name->number ? permit->slots.numbers[i] == name->number
                         : permit->labels && bytes_equal(permit->labels[i], name->label))
            found = permit->slots.numbers[i];
    return found;
}

static const char *not_held_sentence(struct planner *planner, struct bytes semaphore, const struct slot_name *name)
{
    if (name->number)
        return planner_sentence(planner, "%.*s: the request does not hold slot %u", (int)semaphore.length,
                                semaphore.data, name->number);
    return planner_sentence(planner, "%.*s: the request does not hold slot %.*s", (int)semaphore.length, semaphore.data,
                            (int)name->label.length, name->label.data);
}

/* Returns the slots of the permit for which `listed` is true of being in the list, with their labels. */
static void pick_slots(struct planner *planner, const struct permit *permit, const struct slots *list, bool listed,
                       struct permit *ret_picked)
{
    *ret_picked = *permit;
    ret_picked->slots = (struct slots){arena_must_array(planner->arena, permit->slots.count, sizeof(uint32_t)), 0};
    if (permit->labels)
        ret_picked->labels = arena_must_array(planner->arena, permit->slots.count, sizeof *permit->labels);
    for (uint32_t i = 0; i < permit->slots.count; i++) {
        if (has_slot(list, permit->slots.numbers[i]) != listed)
            continue;
        if (permit->labels)
            ret_picked->labels[ret_picked->slots.count] = permit->labels[i];
        ret_picked->slots.numbers[ret_picked->slots.count++] = permit->slots.numbers[i];
    }
    ret_picked->count = ret_picked->slots.count;
}

/* Collects the slots of a want to give back. Returns the reason to refuse it; NULL: there is none. */
static const char *collect_given(struct planner *planner, const struct want *want, const struct permit *permit,
                                 struct slots *ret_list)
{
    struct slots list = {arena_must_array(planner->arena, permit->slots.count, sizeof *list.numbers), 0};
    for (size_t i = 0; i < want->named_count; i++) {
        uint32_t number = find_slot(permit, &want->named[i]);
        if (!number)
            return not_held_sentence(planner, want->semaphore, &want->named[i]);
        if (has_slot(&list, number))
            return planner_sentence(planner, "%.*s: slot %u is named twice, by its number and by its label",
                                    (int)want->semaphore.length, want->semaphore.data, number);
        list.numbers[list.count++] = number;
    }
    for (uint32_t i = permit->slots.count; !want->named_count && list.count < want->count; i--)
        list.numbers[list.count++] = permit->slots.numbers[i - 1];
    *ret_list = list;
    return NULL;
}

/* Finds what one want gives back of a permit. Returns the reason to refuse it; NULL: there is none. */
static const char *give_of_want(struct planner *planner, const struct want *want, const struct permit *permit,
                                struct permit *ret_given)
{
    const struct semaphore *semaphore = planner_image(planner, permit->semaphore_id)->semaphore;
    struct slots list;
    if (semaphore->kind == KIND_COUNTED && want->named_count)
        return planner_sentence(planner, "%.*s is counted: it has no slots", (int)want->semaphore.length,
                                want->semaphore.data);
    if (want->count > permit->count)
        return planner_sentence(planner, "%.*s: %lld to give back, the request holds %lld", (int)want->semaphore.length,
                                want->semaphore.data, (long long)want->count, (long long)permit->count);
    if (semaphore->kind == KIND_COUNTED) {
        *ret_given = *permit;
        ret_given->count = want->count;
        return NULL;
    }
    const char *refusal = collect_given(planner, want, permit, &list);
    if (!refusal)
        pick_slots(planner, permit, &list, true, ret_given);
    return refusal;
}

/*
 * Finds what an exchange gives back: given[i] of request->permits[i], count 0: nothing. Returns the reason to refuse it;
 * NULL: there is none.
 */
static const char *find_given(struct planner *planner, const struct request *request, const struct operation *operation,
                              struct permit *given)
{
    const char *refusal = NULL;
    for (size_t i = 0; i < operation->given_count && !refusal; i++) {
        const struct want *want = &operation->given[i];
        size_t at = find_permit_by_name(planner, request, want->semaphore);
        refusal = at < request->permit_count ? give_of_want(planner, want, &request->permits[at], &given[at])
                                             : planner_sentence(planner, "%.*s: the request holds nothing of it",
                                                                (int)want->semaphore.length, want->semaphore.data);
    }
    return refusal;
}

static bool gives_all(const struct request *request, const struct permit *given)
{
    for (size_t i = 0; i < request->permit_count; i++)
        if (given[i].count < request->permits[i].count)
            return false;
    return true;
}

/* Frees what is given back, or (direction 1) takes it again. Nothing is written for it yet. */
static void move_given(struct planner *planner, const struct request *request, const struct permit *given,
                       int direction)
{
    for (size_t i = 0; i < request->permit_count; i++) {
        if (given[i].count == 0)
            continue;
        struct semaphore_image *image = planner_image(planner, given[i].semaphore_id);
        image->semaphore->in_use += direction * given[i].count;
        if (image->semaphore->kind == KIND_SLOTTED)
            planner_move_slots(planner, image, &given[i], direction < 0);
    }
}

/* ---- what is taken ---- */

/* Returns the acquire of what the exchange takes, with the ttl that the request has. */
static struct operation acquire_of_exchange(struct planner *planner, const struct request *request,
                                            const struct operation *operation, const struct permit *given)
{
    struct operation acquire = *operation;
    acquire.wants = arena_must_array(planner->arena, operation->want_count, sizeof *acquire.wants);
    acquire.owner = request->owner;
    acquire.metadata = (struct bytes){0};
    acquire.ttl = request->ttl_ms == TTL_NONE       ? (struct ttl){.kind = TTL_UNLIMITED}
                  : request->ttl_ms == TTL_BY_OWNER ? (struct ttl){.kind = TTL_ABSENT}
                                                    : (struct ttl){TTL_DURATION, request->ttl_ms};
    for (size_t i = 0; i < operation->want_count; i++) {
        acquire.wants[i] = operation->wants[i];
        size_t at = find_permit(request, operation->wants[i].semaphore_id);
        acquire.wants[i].own = at < request->permit_count ? given[at].count : 0;
    }
    return acquire;
}

/* Returns true if the request and its wants have more semaphores than a request may have, and than a batch locks. */
static bool is_too_wide(const struct request *request, const struct operation *operation)
{
    size_t count = request->permit_count;
    for (size_t i = 0; i < operation->want_count; i++)
        count += find_permit(request, operation->wants[i].semaphore_id) == request->permit_count;
    return count > REQUEST_MAX_SEMAPHORES;
}

/* The request would hold more of a semaphore than there may ever be. */
static enum permit_status check_sum(struct planner *planner, const struct request *request,
                                    const struct operation *acquire, const char **ret_detail)
{
    for (size_t i = 0; i < acquire->want_count; i++) {
        const struct want *want = &acquire->wants[i];
        size_t at = find_permit(request, want->semaphore_id);
        if (at == request->permit_count)
            continue;
        const struct semaphore *semaphore = planner_image(planner, want->semaphore_id)->semaphore;
        int64_t sum = request->permits[at].count - want->own;
        int64_t most = semaphore->capacity ? semaphore->capacity : INT64_MAX; /* 0: closed, which is temporary */
        if (semaphore->kind == KIND_SLOTTED)
            most = min_i64(most, SLOTS_MAX_COUNT);
        if (want->count <= most - sum)
            continue;
        *ret_detail = planner_sentence(planner, "%.*s: the request would hold %lld, it may hold %lld",
                                       (int)semaphore->name.length, semaphore->name.data,
                                       (long long)(sum + min_i64(want->count, INT64_MAX - sum)), (long long)most);
        return PERMIT_NEVER_SATISFIABLE;
    }
    return PERMIT_OK;
}

/* ---- the change ---- */

/* Merges what is left of a permit, and what is taken, into one under the token of the latter. */
static void merge_permits(struct planner *planner, const struct permit *rest, struct permit *taken)
{
    const struct permit sources[] = {*rest, *taken};
    uint32_t at[] = {0, 0}, room = rest->slots.count + taken->slots.count;
    bool labels = rest->labels || taken->labels;
    taken->count += rest->count;
    taken->slots = (struct slots){arena_must_array(planner->arena, room, sizeof(uint32_t)), 0};
    taken->labels = labels ? arena_must_array(planner->arena, room, sizeof *taken->labels) : NULL;
    while (taken->slots.count < room) {
        int from = at[0] == rest->slots.count || (at[1] < sources[1].slots.count &&
                                                  sources[1].slots.numbers[at[1]] < sources[0].slots.numbers[at[0]]);
        const struct permit *source = &sources[from];
        if (source->labels)
            taken->labels[taken->slots.count] = source->labels[at[from]];
        taken->slots.numbers[taken->slots.count++] = source->slots.numbers[at[from]++];
    }
}

static void record_past(struct planner *planner, const struct request *request, const struct permit *permit,
                        enum end_reason reason)
{
    planner->past = planner_list(planner, planner->past, planner->past_count, sizeof *planner->past);
    planner->past[planner->past_count++] = (struct past_permit){.permit = *permit,
                                                                .request_id = request->id,
                                                                .changes = request->changes,
                                                                .ended_at = planner->now,
                                                                .end_reason = reason};
}

/* Returns what is left of a permit. */
static struct permit rest_of(struct planner *planner, const struct permit *permit, const struct permit *given)
{
    struct permit rest = *permit;
    if (given->count && permit->slots.count)
        pick_slots(planner, permit, &given->slots, false, &rest);
    else
        rest.count -= given->count;
    return rest;
}

/*
 * Gives the request its permits after the exchange: those of which it takes nothing, as they are or with what is left
 * of them, and then those that it takes. The units that it gives back are free already.
 */
static void set_permits(struct planner *planner, struct key *key, const struct operation *acquire,
                        const struct permit *given)
{
    struct request *request = key->request;
    const struct permit *held = request->permits;
    size_t held_count = request->permit_count, count = 0;
    struct permit *permits = arena_must_array(planner->arena, held_count + acquire->want_count, sizeof *permits);
    struct permit *rests = arena_must_array(planner->arena, held_count, sizeof *rests);
    for (size_t i = 0; i < held_count; i++) {
        bool taken = false;
        for (size_t j = 0; j < acquire->want_count; j++)
            taken |= acquire->wants[j].semaphore_id == held[i].semaphore_id;
        rests[i] = rest_of(planner, &held[i], &given[i]);
        if (taken || given[i].count)
            record_past(planner, request, &held[i], taken ? END_REPLACED : END_RELEASED);
        if (!taken && rests[i].count)
            permits[count++] = rests[i];
    }
    for (size_t i = 0; i < acquire->want_count; i++) {
        size_t at = find_permit(request, acquire->wants[i].semaphore_id);
        grant_permit(planner, &acquire->wants[i], i, key, request->due_at, &permits[count]);
        permits[count].granted_at = planner->now;
        if (at < held_count && rests[at].count)
            merge_permits(planner, &rests[at], &permits[count]);
        count++;
    }
    request->permits = permits;
    request->permit_count = count;
}

/* All semaphores of the request before the exchange change: their versions prove copies of its row. */
static void touch_all(struct planner *planner, const struct request *request, const struct permit *given)
{
    for (size_t i = 0; i < request->permit_count; i++) {
        struct semaphore_image *image = planner_image(planner, request->permits[i].semaphore_id);
        semaphore_mark_changed(image);
        if (given[i].count == 0)
            continue;
        planner_queue(planner, image)->changed = true;
        planner->walk_again = true;
    }
}

/* Notes the change in the row. Later operations on the key are put back: a batch writes one change of a request. */
static void note_change(struct planner *planner, struct key *key, const struct operation *operation)
{
    struct request *request = key->request;
    request->changes++;
    request->change_nonce = arena_must_copy(planner->arena, operation->nonce);
    key_change(key);
    static const uint64_t no_needs[1];
    key->needs = no_needs;
    key->need_count = 0;
}

/* Makes an exchange that fits. Its units to give back are free already. */
static void make_change(struct planner *planner, struct key *key, const struct operation *acquire,
                        const struct fit *fit, const struct permit *given)
{
    planner->packet_size += fit->packet_size + 2 * packet_of_end(key->request) +
                            packet_of_end_event(planner, key->request) + 2 * acquire->nonce.length;
    if (key->request->server_id)
        claim(planner, key);
    touch_all(planner, key->request, given);
    note_change(planner, key, acquire);
    set_permits(planner, key, acquire, given);
}

/* Takes what the exchange wants, if it fits; what it gives back is free. Else the outcome is set. */
static bool take(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *acquire,
                 const struct permit *given)
{
    struct fit fit = {0};
    fit.status = check_sum(planner, key->request, acquire, &fit.detail);
    if (fit.status == PERMIT_OK && acquire->want_count) {
        stand_before(planner, planner->now, UINT64_MAX);
        fit = acquire_fit(planner, acquire);
    }
    if (fit.unlocked_count || is_crowded_out(planner, &fit)) {
        note_overdue(planner, &fit);
        outcome_put_back(planner, outcome, key, acquire, NULL, 0);
        return false;
    }
    size_t id_count = 0;
    const uint64_t *ids = fit.status == PERMIT_NO_CAPACITY ? find_wider_locks(planner, acquire, &id_count) : NULL;
    if (id_count) {
        outcome_put_back(planner, outcome, key, acquire, ids, id_count);
        return false;
    }
    if (fit.status != PERMIT_OK) {
        *outcome = outcome_of_fit(&fit);
        outcome->may_wait = false;
        return false;
    }
    make_change(planner, key, acquire, &fit, given);
    return true;
}

/* Gives back all: that is a release. */
static void release_all(struct planner *planner, struct outcome *outcome, struct key *key,
                        const struct operation *operation)
{
    note_change(planner, key, operation);
    end_request(planner, key, END_RELEASED);
    outcome_attach_row(planner, outcome, key->request);
}

/*
 * Returns false if the request is not one to change, and sets the outcome: a refusal, or what the same exchange has
 * done.
 */
static bool may_change(struct planner *planner, struct outcome *outcome, struct key *key,
                       const struct operation *operation)
{
    if (!check_known(planner, outcome, key, operation))
        return false;
    struct request *request = key->request;
    if (request_is_due(planner, request))
        end_request(planner, key, due_reason(request));
    if (request->changes && bytes_equal(request->change_nonce, operation->nonce)) {
        outcome->replayed = true;
        outcome_count_replay(planner, outcome, key);
        return false;
    }
    if (request->state == REQUEST_RELEASED)
        outcome_refuse(outcome, PERMIT_ENDED, NULL);
    else if (request->confirmed_at != NEVER)
        outcome_refuse(outcome, PERMIT_CONFIRMED, "the request is confirmed: what it holds stays as it is");
    else if (request->changes != operation->changes)
        outcome_refuse(outcome, PERMIT_VERSION_MISMATCH,
                       planner_sentence(planner, "changes is %lu now, not %lu: read the request again",
                                        (unsigned long)request->changes, (unsigned long)operation->changes));
    else
        return true;
    outcome_count_replay(planner, outcome, key);
    return false;
}

/* A request that was granted in this batch is changed by the next one: the row of each token is written. */
void plan_exchange(struct planner *planner, struct outcome *outcome, struct key *key, const struct operation *operation)
{
    if (key->granted) {
        outcome_put_back(planner, outcome, key, operation, NULL, 0);
        return;
    }
    struct operation alone = *operation; /* without its wants: they cannot be locked beside the request */
    alone.want_count = 0;
    bool too_wide = key->request && is_too_wide(key->request, operation);
    if (!may_change(planner, outcome, key, too_wide ? &alone : operation))
        return;
    if (too_wide) {
        outcome_refuse(outcome, PERMIT_INVALID,
                       "a request has at most 64 semaphores, counting those of which it gives back all");
        return;
    }
    for (size_t i = 0; i < operation->want_count; i++)
        if (operation->wants[i].semaphore_id && !planner_image(planner, operation->wants[i].semaphore_id)) {
            outcome_put_back(planner, outcome, key, operation, NULL, 0);
            return;
        }
    struct permit *given = arena_must_array(planner->arena, key->request->permit_count, sizeof *given);
    const char *refusal = find_given(planner, key->request, operation, given);
    if (refusal) {
        outcome_refuse(outcome, PERMIT_INVALID, refusal);
        return;
    }
    if (!operation->want_count && gives_all(key->request, given)) {
        release_all(planner, outcome, key, operation);
        return;
    }
    const struct operation acquire = acquire_of_exchange(planner, key->request, operation, given);
    move_given(planner, key->request, given, -1);
    if (take(planner, outcome, key, &acquire, given))
        outcome_attach_row(planner, outcome, key->request);
    else
        move_given(planner, key->request, given, 1);
}
