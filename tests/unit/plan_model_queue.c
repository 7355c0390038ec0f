/* SPDX-License-Identifier: MIT */
/*
 * The model's queue: requests that wait, in one list of all semaphores, in the order of their places. A batch first
 * hears the operations that ask, then decides one waiter after the other, then answers the operations.
 */
#include <assert.h>
#include <stdlib.h>

#include "plan_model.h"

bool is_waiting(const struct model_request *request)
{
    return request->exists && request->state == REQUEST_WAITING;
}

bool is_alive(const struct model *model, unsigned server)
{
    bool dead = model->batch.has_servers && (model->batch.moment.servers_dead >> server & 1);
    return server != 0 && !dead;
}

unsigned wants_of(const struct step *step)
{
    unsigned wants = 0;
    for (unsigned i = 0; i < step->want_count; i++)
        wants |= 1U << step->wants[i].semaphore;
    return wants;
}

static utc_us now_of(const struct model *model)
{
    return model_time(&model->batch.moment);
}

static utc_us due_of(const struct model *model)
{
    return model_due(&model->batch.moment);
}

static utc_us from_of(const struct model *model)
{
    return model_from(&model->batch.moment);
}

static bool is_ours(const struct model *model, const struct model_request *request)
{
    return request->server != 0 && request->server == model->batch.moment.server;
}

void tell_server(struct model *model, unsigned key)
{
    unsigned server = model->requests[key].server;
    if (!is_alive(model, server))
        return;
    if (is_ours(model, &model->requests[key]))
        model->walk.calls |= 1U << key;
    else
        model->walk.mail[server] |= 1U << key;
}

static bool blocks_others(const struct model *model, unsigned semaphore, utc_us since)
{
    bool aged = now_of(model) - since >= model_settings.backfill_bound_us;
    return aged || model->semaphores[semaphore].queue == QUEUE_FIFO;
}

void open_way(struct model *model, const struct model_request *request)
{
    const struct step *step = request->content;
    for (unsigned i = 0; request->server != 0 && i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        model->walk.stirred[semaphore] = true;
        if (!step_is_specific(step) && blocks_others(model, semaphore, request->since))
            model->walk.opened[semaphore] = true;
    }
}

static void leave(struct model *model, struct model_request *request)
{
    open_way(model, request);
    request->server = 0;
    request->due_at = from_of(model) + PLACE_KEPT_US;
    model->walk.again = true;
}

void remove_place(struct model *model, unsigned key)
{
    tell_server(model, key);
    open_way(model, &model->requests[key]);
    model->requests[key].exists = false;
    model->batch.locked_rows &= ~(1U << key);
    model->walk.ask_count[key] = 0;
    model->walk.again = true;
}

bool gives_way(const struct model *model, const struct model_request *request)
{
    unsigned key = (unsigned)(request - model->requests);
    return model->walk.ask_count[key] == 0 && !is_alive(model, request->server);
}

bool priority_is_allowed(const struct model *model, const struct step *step)
{
    for (unsigned i = 0; step->wait == WAIT_ASK && i < step->want_count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[step->wants[i].semaphore];
        if (semaphore->exists && !semaphore->retired && step->priority > semaphore->max_priority)
            return false;
    }
    return true;
}

/* ---- entering ---- */

/* Returns the number of places in the queue of a semaphore that clients ask for. */
static int64_t waiting_for(const struct model *model, unsigned semaphore)
{
    int64_t waiting = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        const struct model_request *request = &model->requests[key];
        waiting += is_waiting(request) && request->server != 0 && step_wants(request->content, semaphore);
    }
    return waiting;
}

static bool queue_is_full(const struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[step->wants[i].semaphore];
        int64_t waiting = waiting_for(model, step->wants[i].semaphore);
        if (waiting >= model->batch.max_waiters || (semaphore->max_waiters >= 0 && waiting >= semaphore->max_waiters))
            return true;
    }
    return false;
}

static void refuse(struct verdict *verdict, enum permit_status status)
{
    *verdict = (struct verdict){.status = status};
}

static void add_ask(struct model *model, const struct step *step, struct verdict *verdict)
{
    unsigned *count = &model->walk.ask_count[step->key];
    assert(*count < MODEL_ASKS);
    model->walk.asks[step->key][(*count)++] = (struct model_ask){step, verdict};
}

static void enter_row(struct model *model, const struct step *step, utc_us place, utc_us since, struct verdict *verdict)
{
    utc_us now = now_of(model);
    model->requests[step->key] = (struct model_request){
        .exists = true,
        .content = step,
        .state = REQUEST_WAITING,
        .ttl_ms = TTL_NONE,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
        .due_at = from_of(model) + step->wait_us + PLACE_KEPT_US,
        .owner = step->owner,
        .nonce = step->nonce,
        .server = model->batch.moment.server,
        .priority = step->priority,
        .place = place ? place : now - step->priority * PRIORITY_STEP_US,
        .since = since ? since : now,
        .until = from_of(model) + step->wait_us,
        .entry = ++model->entries,
    };
    model->walk.entered |= 1U << step->key;
    add_ask(model, step, verdict);
}

static bool stands_before(const struct model_request *a, const struct model_request *b)
{
    return a->place != b->place ? a->place < b->place : a->entry < b->entry;
}

/* A new request that stands before others by its priority may fit: it lacks only what is kept for these. */
static bool may_fit_before_others(const struct model *model, unsigned key, const struct verdict *verdict)
{
    bool behind = false;
    bool before = false;
    for (unsigned i = 0; i < verdict->shortage_count; i++)
        behind |= verdict->shortages[i].behind;
    for (unsigned other = 0; other < MODEL_KEYS; other++)
        if (((model->batch.waiters | model->walk.entered) >> other & 1) && is_waiting(&model->requests[other]))
            before |= stands_before(&model->requests[key], &model->requests[other]);
    return behind && before;
}

void enter(struct model *model, const struct step *step, utc_us place, utc_us since, struct verdict *verdict)
{
    if (model->batch.moment.server == 0)
        return; /* it may wait, when this server has an id */
    if (queue_is_full(model, step)) {
        refuse(verdict, PERMIT_TOO_MANY);
    } else {
        enter_row(model, step, place, since, verdict);
        if (verdict->status == PERMIT_NO_CAPACITY)
            reserve_for(model, step->key, step, false); /* the next walk reserves anew */
        model->walk.again |= may_fit_before_others(model, step->key, verdict);
        verdict->waits = true;
        answer_request(verdict, &model->requests[step->key]);
    }
}

/* ---- asking ---- */

bool model_is_ask(const struct model *model, const struct step *step, bool enters_again)
{
    return step->kind == OP_ACQUIRE &&
           (is_waiting(&model->requests[step->key]) || (enters_again && !model->requests[step->key].exists));
}

/* Returns true if an ask of this batch may keep the key waiting. */
static bool another_ask_waits(const struct model *model, unsigned key)
{
    for (unsigned i = 0; i < model->walk.ask_count[key]; i++)
        if (model->walk.asks[key][i].step->wait == WAIT_ASK)
            return true;
    return false;
}

/* An ask of the key's own request. */
static bool ask(struct model *model, const struct step *step, bool entered, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us until = from_of(model) + step->wait_us;
    if (step->wait == WAIT_GONE) {
        if (is_ours(model, request) && !another_ask_waits(model, step->key))
            leave(model, request);
        refuse(verdict, PERMIT_NO_CAPACITY);
        return false;
    }
    if (entered && !is_ours(model, request) && (request->server == 0 || is_alive(model, request->server))) {
        refuse(verdict, PERMIT_OUTCOME_UNKNOWN);
        return false;
    }
    model->walk.again = true;
    model->walk.waiter_asked |= (unsigned)entered << step->key;
    add_ask(model, step, verdict);
    if (step->wait != WAIT_ASK || model->batch.moment.server == 0)
        return true;
    if (is_ours(model, request) && until < request->until)
        until = request->until;
    if (!is_ours(model, request))
        tell_server(model, step->key);
    if (!is_ours(model, request) || until != request->until || request->nonce != step->nonce)
        request->due_at = until + PLACE_KEPT_US;
    request->server = model->batch.moment.server;
    request->until = until;
    request->nonce = step->nonce;
    return true;
}

bool model_ask(struct model *model, const struct step *step, bool entered, utc_us place, utc_us since,
               struct verdict *verdict, bool *ret_new)
{
    struct model_request *request = &model->requests[step->key];
    memset(verdict, 0, sizeof *verdict);
    *ret_new = false;
    if (is_waiting(request) && same_content(request->content, step))
        return ask(model, step, entered, verdict);
    if (is_waiting(request) && step->wait == WAIT_GONE) {
        refuse(verdict, PERMIT_NO_CAPACITY);
        return false;
    }
    if (is_waiting(request) && !gives_way(model, request)) {
        refuse(verdict, PERMIT_KEY_REUSED);
        return false;
    }
    *ret_new = true;
    if (is_waiting(request))
        remove_place(model, step->key);
    if (!(entered || place) || (step->wait != WAIT_ASK && step->wait != WAIT_LAST) || model->batch.moment.server == 0)
        return false;
    for (unsigned i = 0; i < step->want_count; i++)
        if (!model->semaphores[step->wants[i].semaphore].exists)
            return false;
    model->walk.waiter_asked |= (unsigned)entered << step->key;
    enter_row(model, step, place, since, verdict);
    model->walk.again = true;
    *ret_new = false;
    return true;
}

/* ---- the walk ---- */

/* Returns true if a client asks for the place. */
static bool is_asked(const struct model *model, unsigned key)
{
    const struct model_request *request = &model->requests[key];
    if (model->walk.ask_count[key] > 0)
        return true;
    if (is_ours(model, request) && !(model->batch.here >> key & 1))
        return false;
    return is_alive(model, request->server);
}

/* Returns true if the queue of this semaphore was not read as far as to the waiter, or this is the last one read. */
static bool is_beyond(const struct model *model, unsigned key, unsigned semaphore)
{
    unsigned last = model->batch.beyond[semaphore];
    return last < MODEL_KEYS && !stands_before(&model->requests[key], &model->walk.beyond[semaphore]);
}

static bool cannot_be_decided(const struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    bool put_back = model->walk.put_back >> key & 1; /* an operation on it, which is decided first */
    bool undecidable = put_back || (wants_of(step) & ~model->batch.locks) != 0;
    bool owner_was_read = (model->batch.owners & model->batch.moment.owners_known) >> step->owner & 1;
    if (step->ttl.kind == TTL_OWNER && !owner_was_read && model->walk.ask_count[key] == 0)
        undecidable = true;
    for (unsigned i = 0; i < step->want_count; i++)
        undecidable |= is_beyond(model, key, step->wants[i].semaphore);
    return undecidable;
}

/* Returns true if holders of the semaphore that are due may still be ended in this batch. */
static bool has_due_units(const struct model *model, unsigned semaphore)
{
    const struct model_want none = {.semaphore = semaphore};
    return missing_without(model, &none, all_due(model, due_of(model))) < missing_without(model, &none, 0);
}

/* Returns true if this batch changes something that may let a waiter for the semaphore fit. */
static bool is_changed(const struct model *model, unsigned semaphore)
{
    return model->walk.freed[semaphore] || has_due_units(model, semaphore) || model->walk.opened[semaphore] ||
           model->walk.stirred[semaphore];
}

/* Returns true if this batch has freed, or may free, something that the want may use. */
static bool can_use_freed(const struct model *model, const struct model_want *want)
{
    bool can = want->choice == CHOOSE_LOWEST && model->walk.freed[want->semaphore];
    can |= model->walk.opened[want->semaphore] || has_due_units(model, want->semaphore);
    for (uint32_t number = 1; number < 32; number++) {
        if (!(model->walk.freed_slots[want->semaphore] >> number & 1))
            continue;
        can |= number > model->semaphores[want->semaphore].capacity;
        for (unsigned i = 0; i < want->name_count; i++)
            can |= want->names[i].number ? want->names[i].number == number
                                         : model->labels[want->semaphore][number] == want->names[i].label;
    }
    return can;
}

/* One waiter that surely blocks those behind it is enough to make the reservation certain. */
static void reserve(struct model *model, unsigned key, unsigned semaphore, bool tentative)
{
    bool is_first = !model->walk.reserved[semaphore];
    model->walk.tentative[semaphore] = tentative && (is_first || model->walk.tentative[semaphore]);
    model->walk.reserved[semaphore] = true;
    model->walk.settled[semaphore] |= !is_beyond(model, key, semaphore);
}

/* Reserves the semaphores of a waiter; `step` has those of its wants that matter. */
void reserve_for(struct model *model, unsigned key, const struct step *step, bool tentative)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (model->semaphores[step->wants[i].semaphore].capacity == 0)
            return;
    for (unsigned i = 0; !step_is_specific(step) && i < step->want_count; i++)
        if (blocks_others(model, step->wants[i].semaphore, model->requests[key].since))
            reserve(model, key, step->wants[i].semaphore, tentative);
}

bool is_reserved(const struct model *model, unsigned semaphore)
{
    return model->walk.reserved[semaphore] || (model->walk.put_back_for[semaphore] && !model->walk.walking);
}

void model_begin_batch(struct model *model, const struct model_batch *batch)
{
    model->batch = *batch;
    model->walk = (struct model_walk){0};
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (batch->beyond[i] < MODEL_KEYS)
            model->walk.beyond[i] = model->requests[batch->beyond[i]];
}

bool model_puts_back(struct model *model, const struct step *step, unsigned touched, unsigned overdue,
                     struct verdict *ret_verdict)
{
    bool follows = model->walk.put_back >> step->key & 1;
    if (step_is_administrative(step) || (!follows && !(touched & ~model->batch.locks) && !overdue))
        return false;
    model->walk.overdue |= follows ? 0 : overdue;
    if (follows)
        touched = semaphores_of(&model->requests[step->key]);
    for (unsigned i = 0; i < step->want_count; i++) {
        bool exists = model->semaphores[step->wants[i].semaphore].exists;
        touched |= (unsigned)exists << step->wants[i].semaphore;
        if (step->wait == WAIT_ASK || step->wait == WAIT_LAST)
            model->walk.put_back_for[step->wants[i].semaphore] = true;
    }
    *ret_verdict = (struct verdict){.put_back = true, .needs = touched};
    model->walk.put_back |= 1U << step->key;
    return true;
}

/* Returns true if the waiter can be granted whatever is released, as far as this semaphore is concerned. */
static bool is_open(const struct model *model, const struct model_want *want)
{
    const struct model_semaphore *semaphore = &model->semaphores[want->semaphore];
    bool too_many = semaphore->kind == KIND_SLOTTED && want->count > 1000;
    return !semaphore->retired && !semaphore->paused_reason.data && !too_many && want->count <= semaphore->capacity;
}

/*
 * Returns true if the want fits once it turns out that the waiters before it that could not be decided take no units
 * and block nobody: what is kept back or tentatively reserved for them is free then.
 */
static bool may_fit(const struct model *model, const struct model_want *want)
{
    unsigned semaphore = want->semaphore;
    if (is_reserved(model, semaphore) && !model->walk.tentative[semaphore])
        return false;
    return missing_without(model, want, all_due(model, due_of(model))) - model->walk.kept[semaphore] <= 0;
}

static bool all_may_fit(const struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (!may_fit(model, &step->wants[i]))
            return false;
    return true;
}

/*
 * A waiter that this batch cannot decide: if it may fit, its units are kept back, and its server decides it if the batch
 * changes something for it.
 */
static void leave_undecided(struct model *model, unsigned key, bool asked_here)
{
    const struct step *step = model->requests[key].content;
    struct step part = *step; /* the part that is locked */
    bool freed = !step_is_specific(step);
    bool changed = false;
    part.want_count = 0;
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_want *want = &step->wants[i];
        if (!(model->batch.locks >> want->semaphore & 1))
            continue;
        if (!is_open(model, want))
            return;
        part.wants[part.want_count++] = *want;
        freed |= can_use_freed(model, want);
        changed |= is_changed(model, want->semaphore);
    }
    bool fits = all_may_fit(model, &part);
    bool has_unlocked = part.want_count < step->want_count; /* it may be paused: then this waiter blocks nobody */
    if (!step_is_specific(step))
        reserve_for(model, key, &part, fits || has_unlocked);
    if (!fits)
        return;
    for (unsigned i = 0; i < part.want_count && !step_is_specific(step); i++) {
        if (is_beyond(model, key, part.wants[i].semaphore))
            model->walk.reserved[part.wants[i].semaphore] = true;
        else
            model->walk.kept[part.wants[i].semaphore] += part.wants[i].count;
    }
    if (freed && changed && !asked_here && !(model->walk.put_back >> key & 1))
        tell_server(model, key);
}

/* Answers the asks of a granted request: the first one as new, copies of it as repeated. */
static void answer_grant(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    for (unsigned i = 0; i < model->walk.ask_count[key]; i++) {
        struct verdict *verdict = model->walk.asks[key][i].verdict;
        *verdict = (struct verdict){.created = i == 0, .replayed = i > 0};
        request->replays += i > 0;
        answer_request(verdict, request);
    }
    model->walk.ask_count[key] = 0;
}

/* The grant to a waiter that stood at this server. An operation that asks for it, or its client here, takes it at once. */
static void take_grant(struct model *model, unsigned key, unsigned server)
{
    struct model_request *request = &model->requests[key];
    struct verdict *verdict = &model->walk.grants[key];
    bool ours = server != 0 && server == model->batch.moment.server;
    request->server = server;
    open_way(model, request);
    if (!ours)
        tell_server(model, key);
    if (model->walk.ask_count[key] > 0) {
        request->server = 0;
        request->nonce = model->walk.asks[key][0].step->nonce;
        answer_grant(model, key);
    } else if (ours) {
        request->server = 0;
        request->nonce = model->batch.here_nonce[key];
        model->walk.granted[model->walk.granted_count++] = key;
    } else {
        request->due_at = from_of(model) + PLACE_KEPT_US;
        model->walk.unclaimed |= 1U << key;
    }
    *verdict = (struct verdict){.created = true};
    answer_request(verdict, request);
}

/* Refuses the asks of a waiter. Those that go on waiting stay: they may be granted later in this batch. */
static void refuse_asks(struct model *model, unsigned key, const struct verdict *found)
{
    struct model_request *request = &model->requests[key];
    bool may_wait =
        found->status == PERMIT_NO_CAPACITY || found->status == PERMIT_PAUSED || found->status == PERMIT_BUSY;
    bool asks = false;
    bool last = false;
    unsigned stay = 0;
    for (unsigned i = 0; i < model->walk.ask_count[key]; i++) {
        struct model_ask ask = model->walk.asks[key][i];
        *ask.verdict = *found;
        ask.verdict->may_wait = may_wait;
        asks |= ask.step->wait == WAIT_ASK;
        last |= ask.step->wait == WAIT_LAST;
        if (ask.step->wait != WAIT_ASK || !may_wait)
            continue;
        if (!is_ours(model, request))
            continue; /* this server has no id */
        ask.verdict->waits = true;
        answer_request(ask.verdict, request);
        model->walk.asks[key][stay++] = ask;
    }
    model->walk.ask_count[key] = stay;
    bool others_wait = model->batch.here >> key & 1 && !(model->walk.waiter_asked >> key & 1);
    if (is_ours(model, request) && others_wait)
        return; /* copies: the place belongs to those that wait */
    bool elsewhere = is_alive(model, request->server) && !is_ours(model, request);
    bool moves = last && !asks;
    if (((asks && !may_wait) || moves) && request->server != 0 && (!elsewhere || moves)) {
        if (elsewhere)
            tell_server(model, key);
        leave(model, request);
        if (!may_wait && (model->walk.entered >> key & 1))
            request->exists = false;
    }
}

/* Returns true if the request waits after this batch, and a client asks for it then. */
static bool goes_on_waiting(const struct model *model, unsigned key)
{
    const struct model_request *request = &model->requests[key];
    bool has_left = is_ours(model, request) && !(model->batch.here >> key & 1) && model->walk.ask_count[key] == 0 &&
                    !(model->walk.put_back >> key & 1);
    return is_waiting(request) && is_alive(model, request->server) && !has_left;
}

/* A waiter behind the part of a queue that was read is refused as one that stands behind others. */
static void refuse_beyond(struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    struct verdict found = {.status = request_possible(model, step)};
    if (found.status == PERMIT_OK) {
        found.status = PERMIT_NO_CAPACITY;
        for (unsigned i = 0; i < step->want_count; i++) {
            struct verdict one = {0};
            struct step part = {.wants = {step->wants[i]}, .want_count = 1};
            bool beyond = is_beyond(model, key, step->wants[i].semaphore);
            bool short_of =
                is_reserved(model, step->wants[i].semaphore) || missing_without(model, &part.wants[0], 0) > 0;
            if (!beyond && !short_of)
                continue;
            find_shortage(model, &step->wants[i], &one.shortages[0]);
            one.shortages[0].behind |= beyond;
            found.shortages[found.shortage_count++] = one.shortages[0];
        }
    }
    refuse_asks(model, key, &found);
}

static void decide(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    const struct step *step = request->content;
    struct verdict found = {0};
    unsigned server = request->server;
    bool asked_here = model->walk.ask_count[key] > 0;
    bool may_grant = now_of(model) >= model->batch.moment.grants_from;
    unsigned overdue = request_possible(model, step) == PERMIT_OK ? model_overdue(model, step) : 0;
    bool undecided = may_grant && cannot_be_decided(model, key);
    if (undecided && asked_here)
        refuse_beyond(model, key);
    if (undecided || (!asked_here && overdue)) {
        if (goes_on_waiting(model, key))
            leave_undecided(model, key, asked_here);
        return;
    }
    if (overdue) {
        for (unsigned i = 0; i < model->walk.ask_count[key]; i++) {
            struct model_ask ask = model->walk.asks[key][i];
            model->walk.put_back &= ~(1U << key); /* each is put back for the same holders */
            if (!model_puts_back(model, ask.step, semaphores_of(request), overdue, ask.verdict))
                abort();
        }
        model->walk.ask_count[key] = 0;
        if (goes_on_waiting(model, key))
            leave_undecided(model, key, true);
        return;
    }
    found.status = try_to_grant(model, step, &found);
    if (found.status == PERMIT_OK) {
        take_grant(model, key, server);
        return;
    }
    refuse_asks(model, key, &found);
    if (found.status == PERMIT_NO_CAPACITY && goes_on_waiting(model, key))
        reserve_for(model, key, step, all_may_fit(model, step));
    for (unsigned i = 0; asked_here && i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        if (!(model->batch.locks >> semaphore & 1))
            continue;
        model->walk.stirred[semaphore] = true;
        model->walk.opened[semaphore] |= !step_is_specific(step); /* it has kept its units until now */
    }
}

/* Returns the next waiter of the view in the order of places; MODEL_KEYS: none. `done`: a bit per key. */
static unsigned next_waiter(const struct model *model, unsigned done)
{
    unsigned next = MODEL_KEYS;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        bool read = (model->batch.waiters | model->walk.entered) >> key & 1;
        if (!read || (done >> key & 1) || !is_waiting(&model->requests[key]))
            continue;
        if (next == MODEL_KEYS || stands_before(&model->requests[key], &model->requests[next]))
            next = key;
    }
    return next;
}

void model_walk(struct model *model)
{
    unsigned done = 0;
    unsigned key;
    memset(model->walk.reserved, 0, sizeof model->walk.reserved);
    memset(model->walk.tentative, 0, sizeof model->walk.tentative);
    memset(model->walk.settled, 0, sizeof model->walk.settled);
    memset(model->walk.kept, 0, sizeof model->walk.kept);
    model->walk.walking = true;
    while ((key = next_waiter(model, done)) < MODEL_KEYS) {
        bool may_grant = now_of(model) >= model->batch.moment.grants_from;
        done |= 1U << key;
        if (is_asked(model, key) && (may_grant || model->walk.ask_count[key] > 0))
            decide(model, key);
    }
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        const struct model_want none = {.semaphore = i};
        bool cut = model->batch.beyond[i] < MODEL_KEYS;
        if (cut && !model->walk.settled[i] && missing_without(model, &none, all_due(model, due_of(model))) < 0)
            model->walk.read_more |= 1U << i;
        model->walk.reserved[i] |= cut; /* the waiters that were not read come first */
    }
    model->walk.walking = model->walk.again = false;
}
