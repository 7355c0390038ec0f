/* SPDX-License-Identifier: MIT */
/*
 * The model of exchanges: what is given back is taken out of the request, then what is taken has to fit as a new request
 * would have to, only that no waiter has a claim on units that the request itself gives back for it.
 */
#include <string.h>

#include "plan_model.h"

/* Returns the permit of the semaphore; NULL: none. */
static struct model_permit *permit_of(struct model_request *request, unsigned semaphore)
{
    for (unsigned i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore == semaphore)
            return &request->permits[i];
    return NULL;
}

static bool is_named(const struct model_name *name, uint32_t number, unsigned label)
{
    return name->number ? name->number == number : name->label == label && label;
}

/* Takes the slot at this index out of the permit. */
static void drop_slot(struct model_permit *permit, unsigned at)
{
    permit->slot_count--;
    permit->count--;
    for (unsigned i = at; i < permit->slot_count; i++) {
        permit->slots[i] = permit->slots[i + 1];
        permit->labels[i] = permit->labels[i + 1];
    }
}

/* Takes the named slots out of the permit. False: it does not have one of them, or not any more. */
static bool give_names(const struct model_want *given, struct model_permit *permit)
{
    for (unsigned i = 0; i < given->name_count; i++) {
        unsigned at = 0;
        while (at < permit->slot_count && !is_named(&given->names[i], permit->slots[at], permit->labels[at]))
            at++;
        if (at == permit->slot_count)
            return false;
        drop_slot(permit, at);
    }
    return true;
}

/* Takes what is given back out of the request, whose permits stay, if with count 0. False: it does not hold that. */
static bool give(const struct model *model, const struct step *step, struct model_request *request)
{
    for (unsigned i = 0; i < step->given_count; i++) {
        const struct model_want *given = &step->given[i];
        struct model_permit *permit = permit_of(request, given->semaphore);
        if (!permit || given->count > permit->count)
            return false;
        bool counted = model->semaphores[given->semaphore].kind == KIND_COUNTED;
        if (counted && given->name_count)
            return false;
        if (!give_names(given, permit))
            return false;
        for (int64_t units = given->name_count ? 0 : given->count; units > 0; units--)
            if (counted)
                permit->count--;
            else
                drop_slot(permit, permit->slot_count - 1);
    }
    return true;
}

/* Returns the request of what the exchange takes, as if it were a new one with the ttl of the old one. */
static struct step request_to_take(const struct step *step, const struct model_request *request)
{
    struct step take = *step;
    take.owner = request->owner;
    take.ttl = request->ttl_ms == TTL_NONE       ? (struct ttl){.kind = TTL_UNLIMITED}
               : request->ttl_ms == TTL_BY_OWNER ? (struct ttl){.kind = TTL_ABSENT}
                                                 : (struct ttl){TTL_DURATION, request->ttl_ms};
    for (unsigned i = 0; i < take.want_count; i++)
        for (unsigned j = 0; j < step->given_count; j++)
            if (step->given[j].semaphore == take.wants[i].semaphore)
                take.wants[i].own = step->given[j].count;
    return take;
}

/* Returns true if the request would hold more of a semaphore than there may be. */
static bool is_above_the_capacity(const struct model *model, const struct step *step, struct model_request *rest)
{
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[step->wants[i].semaphore];
        const struct model_permit *permit = permit_of(rest, step->wants[i].semaphore);
        int64_t most = semaphore->capacity ? semaphore->capacity : INT64_MAX;
        most = semaphore->kind == KIND_SLOTTED ? min_i64(most, 1000) : most;
        if (permit && permit->count + step->wants[i].count > most)
            return true;
    }
    return false;
}

/* Adds the units to what is left of the semaphore, all under the new token, slots ascending. */
static void merge(struct model_request *request, const struct model_permit *taken)
{
    struct model_permit *permit = permit_of(request, taken->semaphore);
    if (!permit) {
        request->permits[request->permit_count++] = *taken;
        return;
    }
    permit->token = taken->token;
    permit->count += taken->count;
    for (unsigned i = 0; i < taken->slot_count; i++) {
        unsigned at = permit->slot_count++;
        for (; at > 0 && permit->slots[at - 1] > taken->slots[i]; at--) {
            permit->slots[at] = permit->slots[at - 1];
            permit->labels[at] = permit->labels[at - 1];
        }
        permit->slots[at] = taken->slots[i];
        permit->labels[at] = taken->labels[i];
    }
}

static void drop_empty_permits(struct model_request *request)
{
    unsigned count = 0;
    for (unsigned i = 0; i < request->permit_count; i++)
        if (request->permits[i].count > 0)
            request->permits[count++] = request->permits[i];
    request->permit_count = count;
}

/* The units that are given back are free, and the waiters are decided again. */
static void note_given(struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->given_count; i++)
        model->walk.changed[step->given[i].semaphore] = true;
    model->walk.again |= step->given_count > 0;
}

/* A batch writes one change of a request: later operations are put back. */
static void note_change(struct model *model, const struct step *step)
{
    struct model_request *request = &model->requests[step->key];
    request->changes++;
    request->change_nonce = step->nonce;
    model->walk.put_back |= 1U << step->key;
}

static bool is_empty(const struct model_request *request)
{
    for (unsigned i = 0; i < request->permit_count; i++)
        if (request->permits[i].count > 0)
            return false;
    return true;
}

/* The request is held without what it gives back. Finds if what it takes fits, and puts the exchange back if it must. */
static enum permit_status fit(struct model *model, const struct model_operation *operation, const struct step *take)
{
    struct model_operation taking = *operation;
    taking.step = take;
    if (is_above_the_capacity(model, take, &model->requests[take->key]))
        return PERMIT_NEVER_SATISFIABLE;
    if (!take->want_count)
        return PERMIT_OK;
    model_judge_last(model);
    unsigned overdue = request_possible(model, take) == PERMIT_OK ? model_overdue(model, take) : 0;
    if (overdue) {
        model->walk.overdue |= overdue;
        model_put_back(model, operation, 0);
        return PERMIT_OK;
    }
    enum permit_status status = find_fit(model, take, operation->verdict);
    if (status == PERMIT_OK && puts_back_for_room(model, &taking))
        return status;
    if (status == PERMIT_NO_CAPACITY)
        (void)puts_back_for_kept(model, &taking);
    return status;
}

static void take_units(struct model *model, const struct step *step, const struct step *take, size_t packet)
{
    struct model_request *request = &model->requests[step->key];
    model->walk.packet += packet + 2 * nonce_text(step->nonce).length;
    model_claim(model, step->key);
    for (unsigned i = 0; i < take->want_count; i++) {
        struct model_permit taken = model_give_permit(model, &take->wants[i]);
        merge(request, &taken);
    }
    drop_empty_permits(request);
    note_given(model, step);
    note_change(model, step);
}

/* Makes the exchange, or sets the verdict. */
static void change(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    struct verdict *verdict = operation->verdict;
    struct model_request *request = &model->requests[step->key];
    struct model_request before = *request, rest = *request;
    if (!give(model, step, &rest)) {
        verdict->status = PERMIT_INVALID;
        return;
    }
    if (!step->want_count && is_empty(&rest)) {
        note_change(model, step);
        model_end(model, request, END_RELEASED);
        answer_request(model, verdict, request);
        return;
    }
    const struct step take = request_to_take(step, request);
    size_t packet = 2 * model_packet_of_end(&before);
    memcpy(request->permits, rest.permits, sizeof rest.permits);
    verdict->status = fit(model, operation, &take);
    if (verdict->put_back || verdict->status != PERMIT_OK) {
        if (verdict->put_back) /* also for the semaphores of which it has given back all */
            verdict->needs |= semaphores_of(&before);
        memcpy(request->permits, before.permits, sizeof before.permits);
        return;
    }
    packet += take.want_count ? model_packet_of_grant(model, &take) : 0;
    take_units(model, step, &take, packet);
    answer_request(model, verdict, request);
}

/* An exchange that is made already is answered with the present state; another one is for the present number of changes. */
void model_exchange(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    struct verdict *verdict = operation->verdict;
    struct model_request *request = &model->requests[step->key];
    if (model->walk.granted_keys >> step->key & 1) {
        model_put_back(model, operation, 0);
        return;
    }
    if (!request->exists || is_waiting(request)) {
        verdict->status = PERMIT_UNKNOWN_REQUEST;
        return;
    }
    model_end_if_due(model, request);
    if (request->changes && request->change_nonce == step->nonce)
        verdict->replayed = true;
    else if (request->state == REQUEST_RELEASED)
        verdict->status = PERMIT_ENDED;
    else if (request->confirmed_at != NEVER)
        verdict->status = PERMIT_CONFIRMED;
    else if (request->changes != step->changes)
        verdict->status = PERMIT_VERSION_MISMATCH;
    if (verdict->replayed || verdict->status != PERMIT_OK) {
        model_write_again(model, request);
        answer_request(model, verdict, request);
        return;
    }
    for (unsigned i = 0; i < step->want_count; i++)
        if (model->semaphores[step->wants[i].semaphore].exists &&
            !(model->batch.locks >> step->wants[i].semaphore & 1)) {
            model_put_back(model, operation, 0);
            return;
        }
    change(model, operation);
}
