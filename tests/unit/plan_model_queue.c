/* SPDX-License-Identifier: MIT */
/*
 * The model's queue: requests that wait, in one list of all semaphores, in the order of their places. A batch first
 * hears the operations that ask, then decides one waiter after the other, then answers the operations.
 *
 * A request is judged at its place. All that those before it have taken is summed up anew for each question, from the list
 * of the standers: the requests that were not granted.
 */
#include <assert.h>
#include <stdlib.h>

#include "plan_model.h"

enum {
    MODEL_RUNS = 4
}; /* adjacent slots of a semaphore that are reserved for its first waiters, and kept for others */

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

static void mark_changed(struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++)
        model->walk.changed[step->wants[i].semaphore] = true;
}

void open_way(struct model *model, const struct model_request *request)
{
    if (request->server != 0)
        mark_changed(model, request->content);
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

/* ---- places ---- */

/* Returns the place of an acquire that begins to wait now: before it by its priority, in the smallest step of its queues. */
static utc_us place_of(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    int64_t smallest = -1;
    if (operation->place)
        return operation->place;
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[step->wants[i].semaphore];
        int64_t year_ms = 365LL * 24 * 3600 * 1000;
        int64_t step_ms = semaphore->priority_step_ms == -1 ? year_ms : semaphore->priority_step_ms;
        if (!semaphore->exists || !(model->batch.locks >> step->wants[i].semaphore & 1))
            continue;
        model->rules.steps_differ += step->priority && smallest >= 0 && smallest != step_ms;
        model->rules.strict += step->priority && step_ms == year_ms;
        if (smallest < 0 || step_ms < smallest)
            smallest = step_ms;
    }
    return smallest < 0 ? now_of(model) : now_of(model) - step->priority * smallest * 1000;
}

static bool is_before(utc_us place, uint64_t entry, utc_us other_place, uint64_t other_entry)
{
    return place != other_place ? place < other_place : entry < other_entry;
}

static bool stands_before(const struct model_request *a, const struct model_request *b)
{
    return is_before(a->place, a->entry, b->place, b->entry);
}

static void judge(struct model *model, utc_us place, uint64_t entry)
{
    model->walk.place = place;
    model->walk.entry = entry;
}

/* Behind all that waits. */
void model_judge_last(struct model *model)
{
    judge(model, now_of(model), UINT64_MAX);
}

void judge_new(struct model *model, const struct model_operation *operation)
{
    judge(model, place_of(model, operation), UINT64_MAX);
}

/* Returns true if the stander is in the way of the request that is judged. */
static bool is_in_the_way(const struct model *model, const struct model_stander *stander)
{
    if ((stander->how == MODEL_KEEPS && model->walk.without_kept) || (stander->put_back && model->walk.walking))
        return false;
    return is_before(stander->place, stander->entry, model->walk.place, model->walk.entry);
}

/* Adds what one stander takes of the semaphore. */
static void add_taken(const struct model *model, const struct model_stander *stander, unsigned semaphore,
                      struct model_taken_before *taken)
{
    bool fifo = model->semaphores[semaphore].queue == QUEUE_FIFO;
    if (taken->fifo == MODEL_OPEN && (fifo || stander->how == MODEL_UNREAD))
        taken->fifo = MODEL_SHUT;
    if (fifo && stander->how == MODEL_STANDS)
        taken->fifo = MODEL_BARRED;
    for (unsigned i = 0; stander->step && i < stander->step->want_count; i++) {
        const struct model_want *want = &stander->step->wants[i];
        bool takes = stander->how == MODEL_KEEPS || stander->how == MODEL_RESERVES;
        if (want->semaphore != semaphore || !takes)
            continue;
        taken->slots |= stander->slots[i];
        taken->units += stander->slots[i] ? 0 : want->count;
        taken->reserved += stander->how == MODEL_RESERVES ? want->count : 0;
        taken->runs += stander->how == MODEL_RESERVES && want->adjacent && stander->slots[i];
        taken->kept_runs += stander->how == MODEL_KEEPS && want->adjacent && stander->slots[i];
        taken->kept_needs += stander->how == MODEL_KEEPS;
    }
}

struct model_taken_before taken_before(const struct model *model, unsigned semaphore)
{
    struct model_taken_before taken = {0};
    for (unsigned i = 0; i < model->walk.stander_count; i++) {
        const struct model_stander *stander = &model->walk.standers[i];
        if ((stander->semaphores >> semaphore & 1) && is_in_the_way(model, stander))
            add_taken(model, stander, semaphore, &taken);
    }
    return taken;
}

static void add_stander(struct model *model, const struct model_stander *stander)
{
    assert(model->walk.stander_count < MODEL_STANDERS);
    model->walk.standers[model->walk.stander_count++] = *stander;
}

/* ---- what may become of a request ---- */

/* Returns true if the semaphore grants nothing, however many units are released. */
static bool is_closed(const struct model *model, unsigned semaphore)
{
    const struct model_semaphore *row = &model->semaphores[semaphore];
    return row->capacity == 0 || row->paused_reason.data || row->retired;
}

static bool any_is_closed(const struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if ((model->batch.known >> step->wants[i].semaphore & 1) && is_closed(model, step->wants[i].semaphore))
            return true;
    return false;
}

/* The prospect of a request that a batch cannot decide, from the semaphores that it knows. */
enum prospect { NEVER_FITS, FITS_LATER, FITS_NOW };

static enum prospect prospect_of_want(const struct model *model, unsigned key, const struct model_want *want)
{
    unsigned semaphore = want->semaphore;
    bool locked = model->batch.locks >> semaphore & 1;
    if (is_closed(model, semaphore) || want->count > model->semaphores[semaphore].capacity)
        return NEVER_FITS;
    if (locked && want_possible(model, want) != PERMIT_OK)
        return NEVER_FITS;
    if (taken_before(model, semaphore).fifo != MODEL_OPEN || (model->batch.watch[semaphore] >> key & 1))
        return FITS_LATER;
    int64_t may_end = locked ? due_units(model, semaphore) : model->batch.may_end >> semaphore & 1 ? want->count : 0;
    if (locked && may_end == 0 && slots_missing_now(model, want) > 0)
        return FITS_LATER;
    return missing_without(model, want, 0) <= may_end ? FITS_NOW : FITS_LATER;
}

static enum prospect prospect_of(const struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    enum prospect worst = FITS_NOW;
    for (unsigned i = 0; i < step->want_count; i++)
        if (model->batch.known >> step->wants[i].semaphore & 1) {
            enum prospect prospect = prospect_of_want(model, key, &step->wants[i]);
            worst = prospect < worst ? prospect : worst;
        }
    return worst;
}

/* Returns true if a waiter that this batch cannot decide, and that does not fit, lacks only what is kept for others. */
static bool may_fit_without_kept(struct model *model, unsigned key)
{
    model->walk.without_kept = true;
    bool fits = prospect_of(model, key) == FITS_NOW;
    model->walk.without_kept = false;
    return fits;
}

/* The same for a request that this batch decides. */
static bool fits_without_kept(struct model *model, const struct step *step)
{
    model->walk.without_kept = true;
    bool fits = request_possible(model, step) == PERMIT_OK && would_fit(model, step);
    model->walk.without_kept = false;
    return fits;
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

static void add_ask(struct model *model, const struct model_operation *operation)
{
    unsigned *count = &model->walk.ask_count[operation->step->key];
    assert(*count < MODEL_ASKS);
    model->walk.waiter_asked |= (unsigned)operation->entered << operation->step->key;
    model->walk.asks[operation->step->key][(*count)++] = *operation;
}

static void enter_row(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    utc_us now = now_of(model);
    utc_us until = from_of(model) + (step->wait == WAIT_ASK ? step->wait_us : 0);
    model->requests[step->key] = (struct model_request){
        .exists = true,
        .content = step,
        .state = REQUEST_WAITING,
        .ttl_ms = TTL_NONE,
        .confirmed_at = NEVER,
        .acquired_at = NEVER,
        .ended_at = NEVER,
        .due_at = until + PLACE_KEPT_US,
        .owner = step->owner,
        .nonce = step->nonce,
        .server = model->batch.moment.server,
        .priority = step->priority,
        .place = place_of(model, operation),
        .since = operation->since ? operation->since : now,
        .until = until,
        .entry = ++model->entries,
    };
    model->walk.entered |= 1U << step->key;
    add_ask(model, operation);
}

/* ---- standing ---- */

static bool is_aged(const struct model *model, const struct model_request *request)
{
    return now_of(model) - request->since >= model_settings.backfill_bound_us;
}

/* Returns true if the units of a need can never come, because they are sold: whatever stands before it. */
static bool is_sold_out(const struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    for (unsigned i = 0; i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        int64_t most = model->semaphores[semaphore].capacity - confirmed_units(model, semaphore);
        bool sold = step->wants[i].count > most || (model->batch.watch_sold[semaphore] >> key & 1);
        if ((model->batch.known >> semaphore & 1) && sold)
            return true;
    }
    return false;
}

/* Returns true if the units of the need of a protected waiter can come, beside the reservations before it. */
static bool may_reserve(struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    for (unsigned i = 0; i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        struct model_taken_before taken = taken_before(model, semaphore);
        int64_t beside = taken.reserved + step->wants[i].count;
        if (!(model->batch.known >> semaphore & 1))
            return model->rules.unknown_reserves_nothing++, false;
        if (taken.fifo == MODEL_BARRED)
            return model->rules.barred++, false;
        if (model->batch.watch_sold[semaphore] >> key & 1)
            return model->rules.no_room_sold++, false;
        if (beside > model->semaphores[semaphore].capacity)
            return model->rules.no_room++, false;
        if (beside > model->semaphores[semaphore].capacity - confirmed_units(model, semaphore))
            return model->rules.no_room_confirmed++, false;
    }
    return true;
}

static bool is_bit(uint64_t bits, uint32_t number)
{
    return bits >> number & 1;
}

/* Returns the run of which the fewest slots are held, the lowest of these; 0: there is none. */
static uint64_t choose_run(const struct model *model, const struct model_want *want, uint64_t can_come)
{
    uint64_t best = 0;
    int fewest = 64;
    for (uint32_t first = 1; first + want->count <= 64; first++) {
        uint64_t run = ((1ULL << want->count) - 1) << first;
        int held = 0;
        for (uint32_t number = first; number < first + want->count; number++)
            held += slot_is_held(model, want->semaphore, number);
        if ((can_come & run) == run && held < fewest) {
            fewest = held;
            best = run;
        }
    }
    return best;
}

/* Returns `count` of the slots, those that are free first, and lower numbers first; 0: there are fewer. */
static uint64_t choose_some(const struct model *model, const struct model_want *want, uint64_t can_come)
{
    uint64_t chosen = 0;
    int64_t count = 0;
    for (int held = 0; held < 2; held++)
        for (uint32_t number = 1; number < 64 && count < want->count; number++)
            if (is_bit(can_come, number) && slot_is_held(model, want->semaphore, number) == (held == 1)) {
                chosen |= 1ULL << number;
                count++;
            }
    return count == want->count ? chosen : 0;
}

/* Chooses the slots of one want for certain slots: none that is taken by those before, or was sold. */
static uint64_t choose_for_want(struct model *model, const struct model_want *want, bool keeps)
{
    struct model_taken_before taken = taken_before(model, want->semaphore);
    bool holders_are_known = model->batch.holders_read >> want->semaphore & 1;
    if (want->adjacent && (keeps ? taken.kept_runs : taken.runs) >= MODEL_RUNS)
        return model->rules.no_more_runs++, 0;
    if (want->adjacent && !holders_are_known && confirmed_units(model, want->semaphore) > 0 && !model->batch.reads_end)
        model->walk.read_held |= 1U << want->semaphore;
    if (want_possible(model, want) != PERMIT_OK || want->choice == CHOOSE_BEST)
        return 0;
    uint64_t can_come = listed_slots(model, want) & ~taken.slots;
    for (uint32_t number = 1; number < 64; number++)
        if (slot_is_held(model, want->semaphore, number) && is_bit(model->batch.sold[want->semaphore], number))
            can_come &= ~(1ULL << number);
    return want->adjacent ? choose_run(model, want, can_come) : choose_some(model, want, can_come);
}

/* Returns the want whose semaphore comes after that of `last` in the order of creation; NULL: none. */
static const struct model_want *next_want(const struct model *model, const struct step *step, uint64_t last)
{
    const struct model_want *next = NULL;
    for (unsigned i = 0; i < step->want_count; i++) {
        uint64_t entry = model->semaphores[step->wants[i].semaphore].entry;
        if (entry > last && (!next || entry < model->semaphores[next->semaphore].entry))
            next = &step->wants[i];
    }
    return next;
}

/* Chooses the certain slots of a need, of the semaphores that are locked. False: there are none for a want. */
static bool choose_slots(struct model *model, const struct step *step, bool keeps, uint64_t ret_slots[MODEL_WANTS])
{
    uint64_t last = 0;
    const struct model_want *want;
    while ((want = next_want(model, step, last)) != NULL) {
        last = model->semaphores[want->semaphore].entry;
        if (!is_specific(want) || !(model->batch.locks >> want->semaphore & 1))
            continue;
        ret_slots[want - step->wants] = choose_for_want(model, want, keeps);
        if (!ret_slots[want - step->wants])
            return model->rules.no_slots++, false;
    }
    return true;
}

static void count_slots(struct model *model, const struct model_stander *stander)
{
    for (unsigned i = 0; i < stander->step->want_count; i++) {
        const struct model_want *want = &stander->step->wants[i];
        if (!stander->slots[i])
            continue;
        model->rules.keeps_slots += stander->how == MODEL_KEEPS;
        model->rules.reserves_run += stander->how == MODEL_RESERVES && want->adjacent;
        model->rules.reserves_any_of += stander->how == MODEL_RESERVES && want->choice == CHOOSE_ANY_OF;
        model->rules.reserves_named += stander->how == MODEL_RESERVES && want->choice == CHOOSE_NAMED;
    }
    model->rules.reserves += stander->how == MODEL_RESERVES;
    model->rules.keeps += stander->how == MODEL_KEEPS;
    model->rules.reserves_without_lock +=
        stander->how == MODEL_RESERVES && (stander->semaphores & ~model->batch.locks) != 0;
}

static bool is_known(const struct model *model, const struct step *step)
{
    return (wants_of(step) & ~model->batch.known) == 0;
}

/* Returns true if a unit of the semaphore is left for one that stands where the judged one does. */
static bool leaves_one(const struct model *model, unsigned semaphore)
{
    const struct model_want one = {.semaphore = semaphore, .count = 1};
    return taken_before(model, semaphore).fifo == MODEL_OPEN &&
           missing_without(model, &one, 0) <= due_units(model, semaphore);
}

/*
 * Returns true if it matters for those behind a waiter how it stands: a unit is left for them, or it may bar them from a
 * semaphore that was looked at.
 */
static bool matters(const struct model *model, unsigned key)
{
    unsigned wants = wants_of(model->requests[key].content) & model->batch.known;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        bool locked = model->batch.locks >> i & 1;
        bool may_bar = is_aged(model, &model->requests[key]) || model->semaphores[i].queue == QUEUE_FIFO;
        if ((wants >> i & 1) && (locked ? leaves_one(model, i) : may_bar))
            return true;
    }
    return false;
}

/* Returns true if all were read that stand before the waiter in this queue. */
static bool is_read_up_to(const struct model *model, unsigned key, unsigned semaphore)
{
    bool cut = model->batch.beyond[semaphore] < MODEL_KEYS;
    return (model->batch.queues_read >> semaphore & 1) &&
           (!cut || !stands_before(&model->walk.beyond[semaphore], &model->requests[key]));
}

static bool is_read_up_to_all(const struct model *model, unsigned key)
{
    unsigned wants = wants_of(model->requests[key].content) & model->batch.locks;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if ((wants >> i & 1) && !is_read_up_to(model, key, i))
            return false;
    return true;
}

/* Returns true if a request before it keeps something of one of its semaphores. */
static bool is_behind_kept(const struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (taken_before(model, step->wants[i].semaphore).kept_needs)
            return true;
    return false;
}

/* Asks for the queues of which nothing was read, not even the certain slots that the request wants. */
static void read_slots_of(struct model *model, const struct step *step)
{
    for (unsigned i = 0; i < step->want_count; i++) {
        unsigned semaphore = step->wants[i].semaphore;
        if (!is_specific(&step->wants[i]) || !(model->batch.locks >> semaphore & 1) ||
            (model->batch.queues_read >> semaphore & 1))
            continue;
        model->walk.read_more |= 1U << semaphore;
        model->rules.reads_slots++;
    }
}

/* Asks for the parts of its queues before the waiter that were not read. */
static void read_before(struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        bool can = (wants_of(step) & model->batch.locks & model->batch.may_read_on) >> i & 1;
        if (!can || is_read_up_to(model, key, i) || waiting_for(model, i) < 2)
            continue;
        model->walk.read_more |= 1U << i;
        model->rules.reads_before++;
    }
}

/* Asks for all that was not read and may decide how the waiter stands. */
static void read_all_of(struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    model->walk.unknown |= wants_of(step) & ~model->batch.known;
    read_slots_of(model, step);
    read_before(model, key);
}

/*
 * Units are left behind a protected waiter that may reserve. It may be wrong whether it does if one that was not read has
 * reserved what it needs, and those before it may be wrong in the same way: all that decides about it is read.
 */
static void read_for_reservation(struct model *model, unsigned key)
{
    if (model->batch.reads_end || !model->batch.has_servers || !matters(model, key))
        return;
    for (unsigned i = 0; i < model->walk.stander_count; i++) {
        const struct model_stander *stander = &model->walk.standers[i];
        if (stander->step && is_in_the_way(model, stander))
            read_all_of(model, stander->step->key);
    }
    read_all_of(model, key);
}

/*
 * A request is not granted. If it may fit, its need is kept until a batch with these locks (0: with those that it wants)
 * decides it. Else it reserves its need if it is protected and if all of it can come; it is not known whether it can if one
 * before it keeps its own, so the need is then kept, too. On a closed semaphore it is in nobody's way.
 */
static void stand(struct model *model, unsigned key, bool may_fit, unsigned needs)
{
    const struct model_request *request = &model->requests[key];
    struct model_stander stander = {.place = request->place,
                                    .entry = request->entry,
                                    .how = MODEL_STANDS,
                                    .step = request->content,
                                    .semaphores = wants_of(request->content),
                                    .needs = needs};
    uint64_t slots[MODEL_WANTS] = {0};
    if (any_is_closed(model, request->content)) {
        model->rules.aside++;
        return;
    }
    judge(model, request->place, request->entry);
    bool reserves = !may_fit && is_aged(model, request) && may_reserve(model, key);
    model->rules.young += !may_fit && !is_aged(model, request);
    bool may_not_hold = reserves && is_behind_kept(model, request->content);
    bool keeps = may_fit || may_not_hold;
    bool chosen = (keeps || reserves) && choose_slots(model, request->content, keeps, slots);
    model->rules.may_not_hold += may_not_hold;
    if (keeps)
        stander.how = MODEL_KEEPS;
    else if (reserves && chosen)
        stander.how = MODEL_RESERVES;
    if (!may_fit && is_aged(model, request) && !is_sold_out(model, key))
        read_for_reservation(model, key);
    if (chosen)
        memcpy(stander.slots, slots, sizeof slots);
    if (stander.how == MODEL_STANDS && is_known(model, request->content) && request->content->ttl.kind != TTL_OWNER) {
        model->walk.hopeless |= 1U << key;
        model->walk.hopeless_aged |= (unsigned)is_aged(model, request) << key;
        model->walk.hopeless_read |= (unsigned)is_read_up_to_all(model, key) << key;
    }
    count_slots(model, &stander);
    add_stander(model, &stander);
}

void enter(struct model *model, const struct model_operation *operation)
{
    struct verdict *verdict = operation->verdict;
    if (model->batch.moment.server == 0)
        return; /* it may wait, when this server has an id */
    if (queue_is_full(model, operation->step)) {
        refuse(verdict, PERMIT_TOO_MANY);
        return;
    }
    enter_row(model, operation);
    if (verdict->status == PERMIT_NO_CAPACITY)
        stand(model, operation->step->key, false, 0);
    verdict->waits = true;
    answer_request(model, verdict, &model->requests[operation->step->key]);
}

/* ---- putting back ---- */

/* Leaves an operation undecided until these semaphores are locked, too. An acquire keeps its need in this batch. */
static void put_back(struct model *model, const struct model_operation *operation, unsigned needs)
{
    const struct step *step = operation->step;
    const struct model_request *request = &model->requests[step->key];
    bool follows = model->walk.put_back >> step->key & 1; /* another one, which keeps the need */
    for (unsigned i = 0; i < step->want_count; i++)
        needs |= (unsigned)model->semaphores[step->wants[i].semaphore].exists << step->wants[i].semaphore;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        needs |= (step_keys(step) >> key & 1) ? semaphores_of(&model->requests[key]) : 0;
    *operation->verdict = (struct verdict){.put_back = true, .needs = needs};
    model->walk.put_back |= step_keys(step);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (step_keys(step) >> key & 1)
            model->walk.put_back_needs[key] = needs;
    bool stands_itself = is_waiting(request) && is_alive(model, request->server);
    bool has_ended_its_wait = request->exists && !is_waiting(request);
    if (step->kind == OP_ACQUIRE && !follows && !stands_itself && !has_ended_its_wait)
        add_stander(model, &(struct model_stander){.place = place_of(model, operation),
                                                   .entry = UINT64_MAX - 1,
                                                   .how = MODEL_KEEPS,
                                                   .step = step,
                                                   .semaphores = wants_of(step),
                                                   .needs = needs,
                                                   .put_back = true});
}

void model_put_back(struct model *model, const struct model_operation *operation, unsigned needs)
{
    put_back(model, operation, needs);
}

bool model_puts_back(struct model *model, const struct model_operation *operation, unsigned touched, unsigned overdue)
{
    const struct step *step = operation->step;
    bool follows = model->walk.put_back >> step->key & 1;
    bool refused = !follows && model_row_is_locked(model, step);
    if (step_is_administrative(step) || refused || (!follows && !(touched & ~model->batch.locks) && !overdue))
        return false;
    model->walk.overdue |= follows ? 0 : overdue;
    put_back(model, operation, follows ? 0 : touched);
    return true;
}

/* Returns the semaphores with which those can be decided that keep something from this request, and those in turn. */
static unsigned wider_locks(const struct model *model, const struct step *step)
{
    unsigned locks = wants_of(step);
    for (unsigned before = 0; before != locks;) {
        before = locks;
        for (unsigned i = 0; i < model->walk.stander_count; i++) {
            const struct model_stander *stander = &model->walk.standers[i];
            if (stander->how == MODEL_KEEPS && is_in_the_way(model, stander) && (stander->semaphores & locks))
                locks |= stander->semaphores | stander->needs;
        }
    }
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (!model->semaphores[i].exists)
            locks &= ~(1U << i);
    return locks;
}

/* Returns the wider locks with which a request that lacks only kept units can be decided; 0: that is final. */
static unsigned locks_for_kept(struct model *model, const struct step *step, unsigned widened)
{
    if (!fits_without_kept(model, step))
        return 0;
    unsigned locks = wider_locks(model, step);
    if (widened == WIDENED_MAX || (widened && !(locks & ~model->batch.locks)))
        return model->rules.widened_last++, 0;
    model->rules.widened++;
    model->rules.widened_twice += widened > 0;
    return locks;
}

bool puts_back_for_kept(struct model *model, const struct model_operation *operation)
{
    unsigned locks = locks_for_kept(model, operation->step, operation->widened);
    if (!locks)
        return false;
    put_back(model, operation, locks);
    operation->verdict->widened = true;
    return true;
}

bool puts_back_for_room(struct model *model, const struct model_operation *operation)
{
    if (!grant_is_crowded_out(model, operation->step))
        return false;
    put_back(model, operation, 0);
    return true;
}

static void put_back_asks(struct model *model, unsigned key, unsigned needs, bool widened)
{
    for (unsigned i = 0; i < model->walk.ask_count[key]; i++) {
        const struct model_operation *ask = &model->walk.asks[key][i];
        put_back(model, ask, needs);
        ask->verdict->widened = widened;
        ask->verdict->waits = ask->step->wait == WAIT_ASK && is_ours(model, &model->requests[key]);
    }
    model->walk.ask_count[key] = 0;
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
static bool ask(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    struct model_request *request = &model->requests[step->key];
    utc_us until = from_of(model) + step->wait_us;
    if (step->wait == WAIT_GONE) {
        if (is_ours(model, request) && !another_ask_waits(model, step->key))
            leave(model, request);
        refuse(operation->verdict, PERMIT_NO_CAPACITY);
        return false;
    }
    if (operation->entered && !is_ours(model, request) && (request->server == 0 || is_alive(model, request->server))) {
        refuse(operation->verdict, PERMIT_OUTCOME_UNKNOWN);
        return false;
    }
    model->walk.again = true;
    add_ask(model, operation);
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

bool model_ask(struct model *model, const struct model_operation *operation, bool *ret_new)
{
    const struct step *step = operation->step;
    struct model_request *request = &model->requests[step->key];
    memset(operation->verdict, 0, sizeof *operation->verdict);
    *ret_new = false;
    if (model_row_is_locked(model, step)) {
        refuse(operation->verdict, PERMIT_IN_TRANSACTION);
        return false;
    }
    if (is_waiting(request) && same_content(request->content, step))
        return ask(model, operation);
    if (is_waiting(request) && step->wait == WAIT_GONE) {
        refuse(operation->verdict, PERMIT_NO_CAPACITY);
        return false;
    }
    if (is_waiting(request) && !gives_way(model, request)) {
        refuse_reused_key(model, step, operation->verdict);
        return false;
    }
    *ret_new = true;
    if (is_waiting(request))
        remove_place(model, step->key);
    if (!(operation->entered || operation->place) || (step->wait != WAIT_ASK && step->wait != WAIT_LAST) ||
        model->batch.moment.server == 0)
        return false;
    for (unsigned i = 0; i < step->want_count; i++)
        if (!model->semaphores[step->wants[i].semaphore].exists)
            return false;
    enter_row(model, operation);
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
    if (is_ours(model, request) && !((model->batch.here | model->batch.later) >> key & 1))
        return false;
    return is_alive(model, request->server);
}

/* Returns true if the request waits after this batch, and a client asks for it then. */
static bool goes_on_waiting(const struct model *model, unsigned key)
{
    bool put_back = model->walk.put_back >> key & 1;
    return is_waiting(&model->requests[key]) && is_alive(model, model->requests[key].server) &&
           (put_back || is_asked(model, key));
}

/* Returns true if another operation on it comes first: one that was put back, or one that its server sends later. */
static bool is_awaited(const struct model *model, unsigned key)
{
    bool later = is_ours(model, &model->requests[key]) && (model->batch.later >> key & 1);
    return (model->walk.put_back >> key & 1) || (later && model->walk.ask_count[key] == 0);
}

static bool cannot_be_decided(const struct model *model, unsigned key)
{
    const struct step *step = model->requests[key].content;
    bool owner_was_read = (model->batch.owners & model->batch.moment.owners_known) >> step->owner & 1;
    bool asked = model->walk.ask_count[key] > 0;
    return is_awaited(model, key) || (model->batch.locked_rows >> key & 1) ||
           (wants_of(step) & ~model->batch.locks) != 0 || (step->ttl.kind == TTL_OWNER && !owner_was_read && !asked);
}

static bool same_needs(const struct step *a, const struct step *b)
{
    struct step other = *b;
    other.owner = a->owner;
    other.ttl = a->ttl;
    return same_content(a, &other);
}

/* Returns true if one with the same needs, before it, could neither be granted nor reserve. */
static bool is_passed_over(const struct model *model, unsigned key)
{
    const struct model_request *request = &model->requests[key];
    unsigned hopeless = is_aged(model, request) ? model->walk.hopeless_aged : model->walk.hopeless;
    for (unsigned other = 0; other < MODEL_KEYS; other++)
        if ((hopeless >> other & 1) && same_needs(model->requests[other].content, request->content))
            return true;
    return false;
}

/* Returns true if something has changed in this batch for those that wait for the semaphore, or still may. */
static bool is_changed(const struct model *model, unsigned semaphore)
{
    bool locked = model->batch.locks >> semaphore & 1;
    return model->walk.changed[semaphore] || (locked && due_units(model, semaphore) > 0);
}

/* The server of a waiter that may fit decides it, if this batch changes something for it. */
static void call(struct model *model, unsigned key)
{
    unsigned wants = wants_of(model->requests[key].content) & model->batch.known;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if ((wants >> i & 1) && is_changed(model, i)) {
            model->rules.calls++;
            tell_server(model, key);
            return;
        }
    model->rules.not_called++;
}

/*
 * A waiter that this batch cannot decide, but one with these locks can. `calls`: its server has to run such a batch. If a
 * semaphore of it is unknown, and can be looked at, then the batch is planned again with it, and meanwhile the waiter is in
 * nobody's way; if not, it stays in nobody's way if it may fit.
 */
static void leave_undecided(struct model *model, unsigned key, bool calls, unsigned needs)
{
    const struct step *step = model->requests[key].content;
    enum prospect prospect = prospect_of(model, key);
    if (!goes_on_waiting(model, key))
        return;
    if (prospect == NEVER_FITS) {
        model->rules.aside++;
        return;
    }
    bool lacks_only_kept = prospect == FITS_LATER && may_fit_without_kept(model, key);
    bool may_fit = prospect == FITS_NOW || lacks_only_kept;
    bool unknown = !is_known(model, step);
    model->rules.keeps_behind_kept += lacks_only_kept;
    model->rules.unknown_at_end += unknown && model->batch.reads_end;
    if (unknown && !model->batch.reads_end && matters(model, key)) {
        model->walk.unknown |= wants_of(step) & ~model->batch.known;
        return;
    }
    if (may_fit && calls)
        call(model, key);
    if (!(may_fit && unknown && model->batch.reads_end))
        stand(model, key, may_fit, needs);
}

/* Answers the asks of a granted request: the first one as new, copies of it as repeated. */
static void answer_grant(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    for (unsigned i = 0; i < model->walk.ask_count[key]; i++) {
        struct verdict *verdict = model->walk.asks[key][i].verdict;
        *verdict = (struct verdict){.created = i == 0, .replayed = i > 0};
        request->replays += i > 0;
        answer_request(model, verdict, request);
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
    answer_request(model, verdict, request);
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
        struct model_operation ask = model->walk.asks[key][i];
        *ask.verdict = *found;
        ask.verdict->may_wait = may_wait;
        asks |= ask.step->wait == WAIT_ASK;
        last |= ask.step->wait == WAIT_LAST;
        if (ask.step->wait != WAIT_ASK || !may_wait)
            continue;
        if (!is_ours(model, request))
            continue; /* this server has no id */
        ask.verdict->waits = true;
        answer_request(model, ask.verdict, request);
        model->walk.asks[key][stay++] = ask;
    }
    model->walk.ask_count[key] = stay;
    bool elsewhere = is_alive(model, request->server) && !is_ours(model, request);
    bool moved = elsewhere && model->batch.moment.server != 0;
    bool others_wait = (model->batch.here & ~model->walk.waiter_asked) >> key & 1;
    bool moves = last && !asks;
    bool ends = moves || (asks && !may_wait && !elsewhere);
    if (!ends || request->server == 0 ||
        (others_wait && !moved)) /* copies: the place belongs to those that wait here */
        return;
    if (elsewhere)
        tell_server(model, key);
    leave(model, request);
    if (!may_wait && (model->walk.entered >> key & 1))
        request->exists = false;
}

/* A waiter that does not fit. If it lacks only what is kept for others, it is decided with more locks. */
static void refuse_waiter(struct model *model, unsigned key, const struct verdict *found)
{
    const struct step *step = model->requests[key].content;
    bool asked = model->walk.ask_count[key] > 0;
    bool lacks_only_kept = found->status == PERMIT_NO_CAPACITY && fits_without_kept(model, step);
    unsigned locks = asked && lacks_only_kept ? locks_for_kept(model, step, model->walk.asks[key][0].widened) : 0;
    if (locks) {
        put_back_asks(model, key, locks, true);
    } else if (asked) {
        refuse_asks(model, key, found);
        mark_changed(model, step); /* it has kept its units until now */
    }
    if (found->status != PERMIT_NO_CAPACITY || !goes_on_waiting(model, key))
        return;
    model->rules.keeps_behind_kept += lacks_only_kept;
    if (lacks_only_kept && !asked)
        call(model, key);
    stand(model, key, lacks_only_kept, locks);
}

/* The transaction has no room for a waiter: its server is called, and its queues are decided no further in this batch. */
static void end_walk_here(struct model *model, unsigned key)
{
    const struct model_request *request = &model->requests[key];
    tell_server(model, key);
    add_stander(model, &(struct model_stander){.place = request->place,
                                               .entry = request->entry - 1, /* before it */
                                               .how = MODEL_UNREAD,
                                               .semaphores = wants_of(request->content)});
}

static void decide(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    const struct step *step = request->content;
    struct verdict found = {0};
    unsigned server = request->server;
    bool asked = model->walk.ask_count[key] > 0;
    bool may_grant = now_of(model) >= model->batch.moment.grants_from;
    judge(model, request->place, request->entry);
    if (!model->batch.reads_end && model->batch.has_servers && matters(model, key))
        read_slots_of(model, step);
    if (may_grant && cannot_be_decided(model, key)) {
        assert(!asked);
        leave_undecided(model, key, !is_awaited(model, key), model->walk.put_back_needs[key]);
        return;
    }
    unsigned overdue = request_possible(model, step) == PERMIT_OK ? model_overdue(model, step) : 0;
    if (overdue) {
        model->walk.overdue |= overdue;
        if (asked)
            put_back_asks(model, key, 0, false);
        leave_undecided(model, key, !asked, model->walk.put_back_needs[key]);
        return;
    }
    found.status = find_fit(model, step, &found);
    if (found.status != PERMIT_OK) {
        refuse_waiter(model, key, &found);
    } else if (asked && grant_is_crowded_out(model, step)) {
        put_back_asks(model, key, 0, false);
        leave_undecided(model, key, false, model->walk.put_back_needs[key]);
    } else if (!asked && !grant_has_room(model, step)) {
        end_walk_here(model, key);
    } else {
        if (asked && !model->batch.reads_end && model->batch.has_servers)
            read_before(model, key);
        grant_fit(model, step, &found);
        take_grant(model, key, server);
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

/* No request passes the end of the part of a queue that was read, if protected waiters may follow, or any under fifo. */
static void stand_for_unread(struct model *model)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        const struct model_request *end = &model->walk.beyond[i];
        bool may_be_aged = now_of(model) - end->place >= model_settings.backfill_bound_us;
        if (model->batch.beyond[i] < MODEL_KEYS && (may_be_aged || model->semaphores[i].queue == QUEUE_FIFO))
            add_stander(model,
                        &(struct model_stander){
                            .place = end->place, .entry = end->entry, .how = MODEL_UNREAD, .semaphores = 1U << i});
    }
}

/* More of a queue is read if a unit is left at the end of the part that was read. */
static void read_on(struct model *model)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        const struct model_request *end = &model->walk.beyond[i];
        bool can = !model->batch.reads_end && (model->batch.may_read_on >> i & 1);
        if (model->batch.beyond[i] == MODEL_KEYS || !can || is_closed(model, i))
            continue;
        judge(model, end->place, end->entry);
        model->walk.read_more |= (unsigned)leaves_one(model, i) << i;
    }
}

void model_begin_batch(struct model *model, const struct model_batch *batch)
{
    model->batch = *batch;
    model->walk = (struct model_walk){.packet = PACKET_BATCH};
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        model->walk.packet += (batch->locks >> i & 1) && model->semaphores[i].exists ? PACKET_SEMAPHORE : 0;
    model->walk.packet_begin = model->walk.packet;
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (batch->beyond[i] < MODEL_KEYS)
            model->walk.beyond[i] = model->requests[batch->beyond[i]];
}

bool model_reads_more(const struct model *model)
{
    return model->walk.read_more || model->walk.read_held || model->walk.unknown;
}

/* Ends what the last walk has found. The acquires that were put back stay. */
static void begin_walk(struct model *model)
{
    struct model_walk *walk = &model->walk;
    unsigned count = 0;
    for (unsigned i = 0; i < walk->stander_count; i++)
        if (walk->standers[i].put_back)
            walk->standers[count++] = walk->standers[i];
    walk->stander_count = count;
    walk->hopeless = walk->hopeless_aged = walk->hopeless_read = 0;
    walk->walking = true;
    stand_for_unread(model);
}

void model_walk(struct model *model)
{
    unsigned done = 0;
    unsigned key;
    bool may_grant = now_of(model) >= model->batch.moment.grants_from;
    begin_walk(model);
    while ((key = next_waiter(model, done)) < MODEL_KEYS) {
        bool asked = model->walk.ask_count[key] > 0;
        done |= 1U << key;
        if (!is_asked(model, key) || (!asked && !may_grant))
            continue;
        if (!asked && is_passed_over(model, key))
            model->rules.passed_over++;
        else
            decide(model, key);
    }
    read_on(model);
    model->walk.walking = model->walk.again = false;
}
