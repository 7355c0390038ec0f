/* SPDX-License-Identifier: MIT */
/*
 * The model: semaphores, requests, permits and slots, one operation at a time, with nothing stored that can be counted.
 * It knows no batches, locks, versions or lower bounds. "Open:" marks what the documents do not say; there it takes
 * what plan.c does, so it proves nothing about it but that it does not depend on the batches.
 */
#include <assert.h>

#include "plan_model.h"

const struct plan_settings model_settings = {
    .retention_us = 7LL * 24 * 3600 * US_PER_SECOND,
    .tombstone_us = 3600LL * US_PER_SECOND,
    .default_ttl_ms = DEFAULT_TTL_MS,
};

/* T = clamp(now, tick_at, tick_at + 5 s) - offset */
static utc_us model_time(const struct moment *moment)
{
    utc_us now = moment->now;
    if (now < moment->clock.tick_at)
        now = moment->clock.tick_at;
    if (now > moment->clock.tick_at + 5000000)
        now = moment->clock.tick_at + 5000000;
    return now - moment->clock.offset_us;
}

static bool is_held(const struct model_request *request)
{
    return request->exists && request->state == REQUEST_ACQUIRED;
}

int64_t model_in_use(const struct model *model, unsigned semaphore)
{
    int64_t units = 0;
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        for (unsigned j = 0; is_held(&model->requests[i]) && j < model->requests[i].permit_count; j++)
            if (model->requests[i].permits[j].semaphore == semaphore)
                units += model->requests[i].permits[j].count;
    return units;
}

static bool slot_is_held(const struct model *model, unsigned semaphore, uint32_t number)
{
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        for (unsigned j = 0; is_held(&model->requests[i]) && j < model->requests[i].permit_count; j++) {
            const struct model_permit *permit = &model->requests[i].permits[j];
            for (unsigned k = 0; permit->semaphore == semaphore && k < permit->slot_count; k++)
                if (permit->slots[k] == number)
                    return true;
        }
    return false;
}

static void answer_request(struct verdict *verdict, const struct model_request *request)
{
    verdict->has_request = true;
    verdict->request = *request;
    verdict->request.content = NULL;
}

/* --- limits ----------------------------------------------------------------------------------------------------- */

/* "smallest default_ttl, max_ttl and max_hold of them, largest grace" */
struct limits {
    int64_t default_ttl_ms, max_ttl_ms, max_hold_ms, grace_ms;
};

static struct limits limits_of(const struct model *model, const unsigned *semaphores, unsigned count)
{
    struct limits limits = {INT64_MAX, INT64_MAX, INT64_MAX, 0};
    for (unsigned i = 0; i < count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[semaphores[i]];
        limits.default_ttl_ms = min_i64(limits.default_ttl_ms, semaphore->default_ttl_ms);
        limits.max_hold_ms = min_i64(limits.max_hold_ms, semaphore->max_hold_ms);
        limits.grace_ms = max_i64(limits.grace_ms, semaphore->grace_ms);
        if (semaphore->max_ttl_ms != -1)
            limits.max_ttl_ms = min_i64(limits.max_ttl_ms, semaphore->max_ttl_ms);
    }
    return limits;
}

static bool ttl_is_allowed(struct ttl ttl, const struct limits *limits)
{
    if (ttl.kind == TTL_DURATION)
        return ttl.ms <= limits->max_ttl_ms;
    return ttl.kind != TTL_UNLIMITED || limits->max_ttl_ms == INT64_MAX;
}

/* With a ttl the deadline and the grace. Open: without one max_hold alone, as no client was told of it. */
static utc_us due_at(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms)
{
    if (ttl_ms == TTL_NONE)
        return now + max_hold_ms * 1000;
    return now + (ttl_ms + grace_ms) * 1000;
}

/* --- acquire ---------------------------------------------------------------------------------------------------- */

/* "Digest: owner, ttl as sent, permits sorted by name with count." */
static bool same_content(const struct step *a, const struct step *b)
{
    bool same = a->owner == b->owner && a->ttl.kind == b->ttl.kind && a->want_count == b->want_count;
    if (a->ttl.kind == TTL_DURATION)
        same = same && a->ttl.ms == b->ttl.ms;
    for (unsigned i = 0; same && i < a->want_count; i++)
        same = a->wants[i].semaphore == b->wants[i].semaphore && a->wants[i].count == b->wants[i].count;
    return same;
}

/* "The digest is compared before the state; a tombstone has none." Every answer that asserts a state writes. */
static void acquire_again(struct model_request *request, const struct step *step, struct verdict *verdict)
{
    if (request->content && !same_content(request->content, step)) {
        verdict->status = PERMIT_KEY_REUSED;
        return;
    }
    request->replays++;
    verdict->replayed = is_held(request);
    verdict->status = is_held(request) ? PERMIT_OK : PERMIT_ENDED;
    answer_request(verdict, request);
}

/* Open: the first want (by name) that cannot be decides; then the ttl; then room. */
static enum permit_status want_possible(const struct model *model, const struct model_want *want)
{
    const struct model_semaphore *semaphore = &model->semaphores[want->semaphore];
    if (!semaphore->exists || semaphore->retired)
        return PERMIT_UNKNOWN_SEMAPHORE;
    if (semaphore->kind == KIND_SLOTTED && want->count > 1000)
        return PERMIT_INVALID;
    if (semaphore->capacity != 0 && want->count > semaphore->capacity)
        return PERMIT_NEVER_SATISFIABLE;
    return PERMIT_OK;
}

static void find_shortages(const struct model *model, const struct step *step, struct verdict *verdict)
{
    for (unsigned i = 0; i < step->want_count; i++) {
        struct model_shortage shortage = {
            .semaphore = step->wants[i].semaphore,
            .capacity = model->semaphores[step->wants[i].semaphore].capacity,
            .in_use = model_in_use(model, step->wants[i].semaphore),
            .requested = step->wants[i].count,
        };
        if (shortage.in_use + shortage.requested > shortage.capacity)
            verdict->shortages[verdict->shortage_count++] = shortage;
    }
}

/* "count: the lowest free" */
static void give_slots(const struct model *model, struct model_permit *permit)
{
    for (uint32_t number = 1; permit->slot_count < permit->count; number++) {
        assert(number <= model->semaphores[permit->semaphore].capacity);
        if (!slot_is_held(model, permit->semaphore, number))
            permit->slots[permit->slot_count++] = number;
    }
}

static struct model_permit give_permit(struct model *model, const struct model_want *want, uint64_t epoch)
{
    struct model_semaphore *semaphore = &model->semaphores[want->semaphore];
    struct model_permit permit = {.semaphore = want->semaphore, .count = want->count};
    permit.token = semaphore->next_token;
    if (permit.token < epoch * 1024)
        permit.token = epoch * 1024;
    semaphore->next_token = permit.token + 1;
    if (semaphore->kind == KIND_SLOTTED)
        give_slots(model, &permit);
    return permit;
}

static void grant(struct model *model, const struct step *step, const struct moment *moment,
                  const struct limits *limits, struct verdict *verdict)
{
    struct model_request request = {
        .exists = true,
        .content = step,
        .state = REQUEST_ACQUIRED,
        .ttl_ms = step->ttl.kind == TTL_ABSENT     ? limits->default_ttl_ms
                  : step->ttl.kind == TTL_DURATION ? step->ttl.ms
                                                   : TTL_NONE,
        .grace_ms = limits->grace_ms,
        .acquired_at = model_time(moment),
        .ended_at = NEVER,
        .owner = step->owner,
    };
    request.due_at = due_at(request.acquired_at, request.ttl_ms, request.grace_ms, limits->max_hold_ms);
    for (unsigned i = 0; i < step->want_count; i++)
        request.permits[request.permit_count++] = give_permit(model, &step->wants[i], moment->epoch);
    model->requests[step->key] = request;
    verdict->created = true;
    answer_request(verdict, &request);
}

static void acquire(struct model *model, const struct step *step, const struct moment *moment, struct verdict *verdict)
{
    if (model->requests[step->key].exists) {
        acquire_again(&model->requests[step->key], step, verdict);
        return;
    }
    unsigned semaphores[MODEL_WANTS];
    for (unsigned i = 0; i < step->want_count && verdict->status == PERMIT_OK; i++) {
        semaphores[i] = step->wants[i].semaphore;
        verdict->status = want_possible(model, &step->wants[i]);
    }
    if (verdict->status != PERMIT_OK)
        return;
    struct limits limits = limits_of(model, semaphores, step->want_count);
    if (!ttl_is_allowed(step->ttl, &limits)) {
        verdict->status = PERMIT_INVALID;
        return;
    }
    find_shortages(model, step, verdict);
    if (verdict->shortage_count)
        verdict->status = PERMIT_NO_CAPACITY;
    else
        grant(model, step, moment, &limits, verdict);
}

/* --- release and renew ------------------------------------------------------------------------------------------ */

static void release(struct model *model, const struct step *step, const struct moment *moment, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = model_time(moment);
    if (!request->exists) {
        *request = (struct model_request){.exists = true,
                                          .state = REQUEST_RELEASED,
                                          .end_reason = END_NEVER_HELD,
                                          .ttl_ms = TTL_NONE,
                                          .acquired_at = NEVER,
                                          .ended_at = now,
                                          .due_at = now + model_settings.tombstone_us};
    } else if (request->state == REQUEST_RELEASED) {
        verdict->already_released = true;
        request->replays++;
    } else {
        request->state = REQUEST_RELEASED;
        request->end_reason = END_RELEASED;
        request->ended_at = now;
        request->due_at = now + model_settings.retention_us;
    }
    answer_request(verdict, request);
}

/* "extends from now, never shortens"; grace is fixed at the grant. Open: max_ttl and max_hold are those of now,
 * and a ttl that is kept (none was said) is not held against a max_ttl that is smaller by now. */
static void renew(struct model *model, const struct step *step, const struct moment *moment, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    if (!request->exists) {
        verdict->status = PERMIT_UNKNOWN_REQUEST;
        return;
    }
    if (request->state == REQUEST_RELEASED) {
        verdict->status = PERMIT_ENDED;
        request->replays++;
        answer_request(verdict, request);
        return;
    }
    unsigned semaphores[MODEL_WANTS];
    for (unsigned i = 0; i < request->permit_count; i++)
        semaphores[i] = request->permits[i].semaphore;
    struct limits limits = limits_of(model, semaphores, request->permit_count);
    if (!ttl_is_allowed(step->ttl, &limits)) {
        verdict->status = PERMIT_INVALID;
        return;
    }
    if (step->ttl.kind != TTL_ABSENT)
        request->ttl_ms = step->ttl.kind == TTL_DURATION ? step->ttl.ms : TTL_NONE;
    utc_us later = due_at(model_time(moment), request->ttl_ms, request->grace_ms, limits.max_hold_ms);
    if (request->due_at < later)
        request->due_at = later;
    request->renewals++;
    answer_request(verdict, request);
}

/* --- semaphores ------------------------------------------------------------------------------------------------- */

static void answer_semaphore(const struct model *model, unsigned index, struct verdict *verdict)
{
    verdict->has_semaphore = true;
    verdict->semaphore = model->semaphores[index];
    verdict->in_use = model_in_use(model, index);
}

/* A name that is not in service: settings come from the body alone; tokens and versions go on. */
static struct model_semaphore made_anew(const struct model_semaphore *old, const struct semaphore_change *change)
{
    struct model_semaphore made = {
        .exists = true,
        .kind = old->exists        ? old->kind
                : change->has_kind ? change->kind
                                   : KIND_SLOTTED,
        .queue = QUEUE_BACKFILL,
        .next_token = old->exists ? old->next_token : 1,
        .config_version = old->config_version,
        .default_ttl_ms = DEFAULT_TTL_MS,
        .max_ttl_ms = -1,
        .max_hold_ms = DEFAULT_MAX_HOLD_MS,
    };
    /* Open: a max_ttl below the default of 10 minutes takes the default_ttl along if none is given. */
    if (!change->has_default_ttl && change->has_max_ttl && change->max_ttl_ms != -1)
        made.default_ttl_ms = min_i64(made.default_ttl_ms, change->max_ttl_ms);
    return made;
}

static void take_members(struct model_semaphore *semaphore, const struct semaphore_change *change)
{
    semaphore->capacity = change->has_capacity ? change->capacity : semaphore->capacity;
    semaphore->queue = change->has_queue ? change->queue : semaphore->queue;
    semaphore->default_ttl_ms = change->has_default_ttl ? change->default_ttl_ms : semaphore->default_ttl_ms;
    semaphore->max_ttl_ms = change->has_max_ttl ? change->max_ttl_ms : semaphore->max_ttl_ms;
    semaphore->grace_ms = change->has_grace ? change->grace_ms : semaphore->grace_ms;
    semaphore->max_hold_ms = change->has_max_hold ? change->max_hold_ms : semaphore->max_hold_ms;
    semaphore->note = change->has_note ? change->note : semaphore->note;
}

static bool makes_sense(const struct model_semaphore *semaphore, const struct semaphore_change *change)
{
    if (change->has_kind && change->kind != semaphore->kind)
        return false;
    if (semaphore->kind == KIND_SLOTTED && semaphore->capacity > 65536)
        return false;
    return semaphore->max_ttl_ms == -1 || semaphore->default_ttl_ms <= semaphore->max_ttl_ms;
}

/* Open: the conditions are looked at before the content. */
static void put(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    const struct semaphore_change *change = &step->change;
    bool in_service = semaphore->exists && !semaphore->retired;
    bool wrong = change->if_match && (!in_service || semaphore->config_version != change->config_version);
    if (wrong || (change->if_none_match && in_service)) {
        verdict->status = PERMIT_VERSION_MISMATCH;
        return;
    }
    struct model_semaphore changed = in_service ? *semaphore : made_anew(semaphore, change);
    take_members(&changed, change);
    if ((!in_service && !change->has_capacity) || !makes_sense(&changed, change)) {
        verdict->status = PERMIT_INVALID;
        return;
    }
    changed.config_version++;
    *semaphore = changed;
    verdict->created = !in_service;
    answer_semaphore(model, step->semaphore, verdict);
}

static void retire(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    if (!semaphore->exists || semaphore->retired) {
        verdict->status = PERMIT_UNKNOWN_SEMAPHORE;
    } else if (model_in_use(model, step->semaphore) > 0) {
        verdict->status = PERMIT_IN_USE;
    } else {
        semaphore->retired = true;
        semaphore->config_version++;
        answer_semaphore(model, step->semaphore, verdict);
    }
}

void model_do(struct model *model, const struct step *step, const struct moment *moment, struct verdict *ret_verdict)
{
    memset(ret_verdict, 0, sizeof *ret_verdict);
    switch (step->kind) {
    case OP_ACQUIRE: acquire(model, step, moment, ret_verdict); break;
    case OP_RELEASE: release(model, step, moment, ret_verdict); break;
    case OP_RENEW: renew(model, step, moment, ret_verdict); break;
    case OP_SEMAPHORE_PUT: put(model, step, ret_verdict); break;
    case OP_SEMAPHORE_RETIRE: retire(model, step, ret_verdict); break;
    case OP_CONFIRM:
    case OP_EXPIRE:
    case OP_FORCE_RELEASE:
    case OP_SEMAPHORE_PAUSE:
    case OP_SEMAPHORE_RESUME:
    case OP_KIND_COUNT: break;
    }
}
