/* SPDX-License-Identifier: MIT */
/*
 * The model: semaphores, requests, permits and slots, one operation at a time, without stored sums. It knows no
 * versions or lower bounds. "Open:" marks points that the documents leave open; there it follows plan.c, so it proves
 * only that the result does not depend on the batches. plan_model_queue.c has what is about waiting.
 */
#include <assert.h>
#include <stdio.h>

#include "plan_model.h"

const struct plan_settings model_settings = {
    .retention_us = 7LL * 24 * 3600 * US_PER_SECOND,
    .tombstone_us = 3600LL * US_PER_SECOND,
    .default_ttl_ms = DEFAULT_TTL_MS,
    .backfill_bound_us = 6LL * US_PER_SECOND,
    .max_semaphore_waiters = 1000,
};

utc_us model_time(const struct moment *moment)
{
    utc_us now = moment->now;
    if (now < moment->clock.tick_at)
        now = moment->clock.tick_at;
    if (now > moment->clock.tick_at + 5000000)
        now = moment->clock.tick_at + 5000000;
    return now - moment->clock.offset_us;
}

utc_us model_due(const struct moment *moment)
{
    return moment->clock.due ? moment->clock.due : model_time(moment);
}

utc_us model_from(const struct moment *moment)
{
    return moment->clock.from ? moment->clock.from : model_time(moment);
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

bool slot_is_held(const struct model *model, unsigned semaphore, uint32_t number)
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

/* Returns true if its deadline has passed. The request is held until RELEASED is written. */
static bool is_due(const struct model_request *request, utc_us due)
{
    return is_held(request) && request->due_at <= due;
}

static bool holds(const struct model_request *request, unsigned semaphore)
{
    for (unsigned i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore == semaphore)
            return true;
    return false;
}

static utc_us now_of(const struct model *model)
{
    return model_time(&model->batch.moment);
}

/* Requests with a deadline until then have ended, or may be ended. */
static utc_us due_of(const struct model *model)
{
    return model_due(&model->batch.moment);
}

static utc_us from_of(const struct model *model)
{
    return model_from(&model->batch.moment);
}

unsigned semaphores_of(const struct model_request *request)
{
    unsigned semaphores = is_waiting(request) ? wants_of(request->content) : 0;
    for (unsigned i = 0; i < request->permit_count; i++)
        semaphores |= 1U << request->permits[i].semaphore;
    return semaphores;
}

/*
 * Every answer that asserts a state is in a transaction that changes something (replays + 1). Open: not an answer about
 * a row that may be deleted by now.
 */
static void write_again(struct model_request *request, utc_us now)
{
    bool forgotten = request->state == REQUEST_RELEASED && request->due_at <= now;
    if (!forgotten)
        request->replays++;
}

/* ---- limits ---- */

/* The smallest default_ttl, max_ttl and max_hold of the semaphores, and the largest grace. */
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

/* Returns the longest ttl that these limits allow, for a refusal; 0: they allow this one. */
static int64_t longest_ttl(struct ttl ttl, const struct limits *limits)
{
    return ttl_is_allowed(ttl, limits) ? 0 : limits->max_ttl_ms;
}

static struct limits limits_of_permits(const struct model *model, const struct model_request *request)
{
    unsigned semaphores[MODEL_PERMITS];
    for (unsigned i = 0; i < request->permit_count; i++)
        semaphores[i] = request->permits[i].semaphore;
    return limits_of(model, semaphores, request->permit_count);
}

/* The limits of the semaphores that a request wants, as far as these exist. */
static struct limits limits_of_wants(const struct model *model, const struct step *step)
{
    unsigned semaphores[MODEL_WANTS], count = 0;
    for (unsigned i = 0; i < step->want_count; i++) {
        const struct model_semaphore *semaphore = &model->semaphores[step->wants[i].semaphore];
        if (semaphore->exists && !semaphore->retired)
            semaphores[count++] = step->wants[i].semaphore;
    }
    return limits_of(model, semaphores, count);
}

/* An answer says after how long a held request becomes stale, if that is what ends it. */
void answer_request(const struct model *model, struct verdict *verdict, const struct model_request *request)
{
    bool becomes_stale = is_held(request) && request->ttl_ms == TTL_NONE && request->confirmed_at == NEVER;
    verdict->has_request = true;
    verdict->request = *request;
    verdict->request.content = NULL;
    verdict->max_hold_ms = becomes_stale ? limits_of_permits(model, request).max_hold_ms : 0;
}

void refuse_reused_key(const struct model *model, const struct step *step, struct verdict *verdict)
{
    struct limits limits = limits_of_wants(model, step);
    *verdict = (struct verdict){.status = PERMIT_KEY_REUSED, .max_ttl_ms = longest_ttl(step->ttl, &limits)};
}

/*
 * With a ttl: the deadline plus the grace. Requests acquired with ttl owner live exactly as long as the heartbeat.
 * Open: without a ttl max_hold alone, because no deadline is shown to a client.
 */
static utc_us due_at(utc_us now, int64_t ttl_ms, int64_t grace_ms, int64_t max_hold_ms)
{
    if (ttl_ms == TTL_BY_OWNER)
        return NEVER;
    if (ttl_ms == TTL_NONE)
        return now + max_hold_ms * 1000;
    return now + (ttl_ms + grace_ms) * 1000;
}

/* ---- the packet: what a transaction writes, at most ---- */

static size_t packet_of_end_of(const struct model_request *request)
{
    size_t size = 0;
    for (unsigned i = 0; i < request->permit_count; i++)
        size += PACKET_PERMIT + 4 * owner_name(request->owner).length + PACKET_SLOT * request->permits[i].slot_count;
    return size;
}

/* Returns the nonce of the acquire that a grant would answer. */
static struct bytes nonce_of(const struct model *model, const struct step *step)
{
    const struct model_request *request = &model->requests[step->key];
    if (!is_waiting(request))
        return nonce_text(step->nonce);
    bool asked = model->walk.ask_count[step->key] > 0;
    return nonce_text(asked ? model->walk.asks[step->key][0].step->nonce : request->nonce);
}

static size_t packet_of_grant(const struct model *model, const struct step *step)
{
    size_t names = key_name(step->key).length + owner_name(step->owner).length + strlen("someone");
    size_t size = PACKET_GRANT + 2 * (names + nonce_of(model, step).length);
    for (unsigned i = 0; i < step->want_count; i++) {
        bool slots = model->semaphores[step->wants[i].semaphore].kind == KIND_SLOTTED;
        size += PACKET_PERMIT + 4 * owner_name(step->owner).length;
        size += slots ? PACKET_SLOT * (size_t)step->wants[i].count : 0;
    }
    return size;
}

static bool has_room(const struct model *model, size_t size)
{
    return model->batch.max_packet == 0 || model->walk.packet + size <= model->batch.max_packet;
}

bool grant_has_room(struct model *model, const struct step *step)
{
    bool room = has_room(model, packet_of_grant(model, step));
    model->rules.grant_needs_room += !room;
    return room;
}

bool grant_is_crowded_out(struct model *model, const struct step *step)
{
    bool crowded = model->batch.alone && model->walk.packet > model->walk.packet_begin &&
                   !has_room(model, packet_of_grant(model, step));
    model->rules.crowded_out += crowded;
    return crowded;
}

/* A grant that no transaction can write, also not alone. */
static bool is_too_large(const struct model *model, const struct step *step)
{
    size_t alone = PACKET_BATCH + PACKET_SEMAPHORE * step->want_count + packet_of_grant(model, step);
    return model->batch.max_packet && alone > model->batch.max_packet;
}

/* ---- the end ---- */

static void end(struct model *model, struct model_request *request, enum end_reason reason, utc_us now)
{
    model->walk.packet += packet_of_end_of(request);
    for (unsigned i = 0; i < request->permit_count; i++)
        model->walk.changed[request->permits[i].semaphore] = true;
    model->walk.again = true;
    request->state = REQUEST_RELEASED;
    request->server = 0;
    request->end_reason = reason;
    request->ended_at = now;
    request->due_at = now + model_settings.retention_us;
    model->ended[reason]++;
}

/* Stale: no ttl, not confirmed, held longer than max_hold. All other due requests are expired. */
static void end_due(struct model *model, struct model_request *request, utc_us now)
{
    end(model, request, request->ttl_ms == TTL_NONE && !request->server ? END_STALE : END_EXPIRED, now);
}

static void add_event(const struct model *model, struct verdict *verdict, unsigned semaphore, const char *what,
                      const char *from, const char *to, struct bytes why)
{
    struct model_event *event = &verdict->events[verdict->event_count++];
    *event =
        (struct model_event){.semaphore = semaphore, .why = why, .next_token = model->semaphores[semaphore].next_token};
    snprintf(event->what, sizeof event->what, "%s", what);
    snprintf(event->from, sizeof event->from, "%s", from);
    snprintf(event->to, sizeof event->to, "%s", to);
}

/* ---- specific slots ---- */

bool is_specific(const struct model_want *want)
{
    return want->choice != CHOOSE_LOWEST || want->adjacent;
}

/* Returns the number of a named slot; 0: it does not exist, or no label of it was read. */
static uint32_t number_of(const struct model *model, unsigned semaphore, const struct model_name *name)
{
    if (name->number)
        return name->number;
    for (uint32_t number = 1; number < MODEL_LABELLED; number++)
        if (model->labels[semaphore][number] == name->label && (model->batch.named[semaphore] >> number & 1))
            return number;
    return 0;
}

static bool is_listed(const struct model *model, const struct model_want *want, uint32_t number)
{
    for (unsigned i = 0; i < want->name_count; i++)
        if (number_of(model, want->semaphore, &want->names[i]) == number)
            return true;
    return want->choice == CHOOSE_LOWEST || want->choice == CHOOSE_BEST;
}

/* Returns true if one of the keys (a bit each) holds the slot. */
static bool is_held_by(const struct model *model, unsigned keys, unsigned semaphore, uint32_t number)
{
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        for (unsigned j = 0; (keys >> i & 1) && is_held(&model->requests[i]) && j < model->requests[i].permit_count;
             j++) {
            const struct model_permit *permit = &model->requests[i].permits[j];
            for (unsigned k = 0; permit->semaphore == semaphore && k < permit->slot_count; k++)
                if (permit->slots[k] == number)
                    return true;
        }
    return false;
}

uint64_t listed_slots(const struct model *model, const struct model_want *want)
{
    uint64_t listed = 0;
    for (uint32_t number = 1; number < 64 && number <= model->semaphores[want->semaphore].capacity; number++)
        listed |= (uint64_t)is_listed(model, want, number) << number;
    return listed;
}

/* Returns the slots in service that are free if these requests are ended. */
static uint64_t free_slots(const struct model *model, unsigned semaphore, unsigned ended)
{
    uint64_t free = 0;
    for (uint32_t number = 1; number < 64 && number <= model->semaphores[semaphore].capacity; number++)
        if (!slot_is_held(model, semaphore, number) || is_held_by(model, ended, semaphore, number))
            free |= 1ULL << number;
    return free;
}

/*
 * Returns the slots that a want for certain slots may take if these requests are ended: free ones of its list that those
 * before it have not taken; of adjacent ones the lowest run; of seats the best.
 */
static uint64_t usable(const struct model *model, const struct model_want *want, unsigned ended)
{
    uint64_t free = free_slots(model, want->semaphore, ended) & listed_slots(model, want) &
                    ~taken_before(model, want->semaphore).slots;
    if (want->choice == CHOOSE_BEST)
        return model_choose_seats(want, free);
    if (!want->adjacent || want->count >= 64)
        return want->adjacent ? 0 : free;
    uint64_t run = (1ULL << want->count) - 1;
    for (uint32_t number = 1; number + want->count <= 64; number++)
        if ((free >> number & run) == run)
            return run << number;
    return 0;
}

static int64_t count_bits(uint64_t bits)
{
    return __builtin_popcountll(bits);
}

/* Returns true if the choice is one group of slots, of which all must be free. */
static bool is_group(const struct model_want *want)
{
    return want->adjacent || want->choice == CHOOSE_BEST;
}

/* Unknown label, number over the capacity, retired slot: never_satisfiable. Duplicate slot: invalid. */
static enum permit_status names_possible(const struct model *model, const struct model_want *want)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < want->name_count; i++) {
        uint32_t number = number_of(model, want->semaphore, &want->names[i]);
        if (number == 0 || number > model->semaphores[want->semaphore].capacity)
            return PERMIT_NEVER_SATISFIABLE;
    }
    for (unsigned i = 0; i < want->name_count; i++) {
        uint64_t bit = 1ULL << number_of(model, want->semaphore, &want->names[i]);
        if (seen & bit)
            return PERMIT_INVALID;
        seen |= bit;
    }
    if (want->choice == CHOOSE_BEST)
        return model_choose_seats(want, listed_slots(model, want)) ? PERMIT_OK : PERMIT_NEVER_SATISFIABLE;
    if (want->count > (int64_t)want->name_count)
        return PERMIT_NEVER_SATISFIABLE;
    for (uint64_t run = (1ULL << want->count) - 1; want->adjacent; run <<= 1) {
        if ((seen & run) == run)
            return PERMIT_OK;
        if (run >> 62)
            return PERMIT_NEVER_SATISFIABLE;
    }
    return PERMIT_OK;
}

/* Returns expires_at as shown to the client. */
static utc_us shown_deadline(const struct model_request *request)
{
    if (request->server)
        return request->due_at; /* unclaimed: it has no grace */
    bool told = request->ttl_ms != TTL_NONE && request->ttl_ms != TTL_BY_OWNER && request->confirmed_at == NEVER;
    return told ? request->due_at - request->grace_ms * 1000 : NEVER;
}

static void add_taken(const struct model *model, unsigned semaphore, uint32_t number, struct model_shortage *shortage)
{
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (unsigned i = 0; i < model->requests[key].permit_count; i++)
            if (model->requests[key].permits[i].semaphore == semaphore &&
                is_held_by(model, 1U << key, semaphore, number))
                shortage->taken[shortage->taken_count++] = (struct model_taken){
                    number, model->labels[semaphore][number], model->requests[key].permits[i].token, key,
                    shown_deadline(&model->requests[key])};
}

/* Only the held slots, ascending. */
static void find_taken(const struct model *model, const struct model_want *want, struct model_shortage *shortage)
{
    bool closed = model->semaphores[want->semaphore].capacity == 0;
    for (uint32_t number = 1; number < MODEL_LABELLED && want->choice == CHOOSE_NAMED && !closed; number++)
        if (is_listed(model, want, number))
            add_taken(model, want->semaphore, number, shortage);
}

/* ---- free units ---- */

static unsigned all_due(const struct model *model, utc_us now);

int64_t due_units(const struct model *model, unsigned semaphore)
{
    int64_t units = 0;
    unsigned due = all_due(model, due_of(model));
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (unsigned i = 0; (due >> key & 1) && i < model->requests[key].permit_count; i++)
            if (model->requests[key].permits[i].semaphore == semaphore)
                units += model->requests[key].permits[i].count;
    return units;
}

int64_t confirmed_units(const struct model *model, unsigned semaphore)
{
    int64_t units = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (unsigned i = 0; is_held(&model->requests[key]) && i < model->requests[key].permit_count; i++)
            if (model->requests[key].permits[i].semaphore == semaphore && model->requests[key].confirmed_at != NEVER)
                units += model->requests[key].permits[i].count;
    return units;
}

/*
 * Returns the units of a want that are missing if these requests (a bit per key) are ended: what those before it have taken
 * is not free for it, certain slots only as far as they are free.
 */
static int64_t own_missing(const struct model *model, const struct model_want *want, unsigned ended)
{
    int64_t free = model->semaphores[want->semaphore].capacity - model_in_use(model, want->semaphore);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (unsigned i = 0; (ended >> key & 1) && i < model->requests[key].permit_count; i++)
            if (model->requests[key].permits[i].semaphore == want->semaphore)
                free += model->requests[key].permits[i].count;
    uint64_t slots = free_slots(model, want->semaphore, ended) & ~taken_before(model, want->semaphore).slots;
    if (model->semaphores[want->semaphore].kind == KIND_SLOTTED)
        free = min_i64(free, count_bits(slots));
    return want->count - free;
}

/* No waiter has a claim on units that the request gives back for this want, but on slots that it has reserved. */
static bool is_own(const struct model_want *want)
{
    return want->own >= want->count;
}

int64_t missing_without(const struct model *model, const struct model_want *want, unsigned ended)
{
    if (is_own(want))
        return own_missing(model, want, ended);
    struct model_taken_before taken = taken_before(model, want->semaphore);
    int64_t missing =
        want->count + model_in_use(model, want->semaphore) + taken.units - model->semaphores[want->semaphore].capacity;
    if (taken.slots)
        missing += count_bits(taken.slots & free_slots(model, want->semaphore, ended));
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        for (unsigned i = 0; (ended >> key & 1) && i < model->requests[key].permit_count; i++)
            if (model->requests[key].permits[i].semaphore == want->semaphore)
                missing -= model->requests[key].permits[i].count;
    return missing;
}

/*
 * Returns how many of the specific slots are missing if these requests are ended. For adjacent slots: of the lowest run
 * that is free or due, unless a run is free already; so for best seats.
 */
static int64_t slots_missing(const struct model *model, const struct model_want *want, unsigned ended, unsigned due)
{
    if (!is_specific(want) || count_bits(usable(model, want, 0)) >= want->count)
        return 0;
    if (!is_group(want))
        return max_i64(0, want->count - count_bits(usable(model, want, ended)));
    uint64_t run = usable(model, want, due);
    int64_t missing = run ? 0 : want->count;
    for (uint32_t number = 1; number < 64; number++)
        missing += (run >> number & 1) && slot_is_held(model, want->semaphore, number) &&
                   !is_held_by(model, ended, want->semaphore, number);
    return missing;
}

int64_t slots_missing_now(const struct model *model, const struct model_want *want)
{
    return slots_missing(model, want, 0, 0);
}

static bool any_is_missing(const struct model *model, const struct step *step, unsigned ended, unsigned due)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (missing_without(model, &step->wants[i], ended) > 0 || slots_missing(model, &step->wants[i], ended, due) > 0)
            return true;
    return false;
}

/*
 * For specific slots a holder of one of them helps. If more units are missing than these free (held slots above a
 * lowered capacity count as used), any holder helps whose units those before have not taken.
 */
static bool helps_want(const struct model *model, const struct model_want *want, unsigned key, unsigned ended,
                       unsigned due)
{
    int64_t slots = slots_missing(model, want, ended, due);
    int64_t missing = missing_without(model, want, ended);
    if (missing > slots && missing_without(model, want, ended | 1U << key) < missing)
        return true;
    uint64_t sought = usable(model, want, is_group(want) ? due : ~0U);
    for (uint32_t number = 1; slots > 0 && number < 64; number++)
        if ((sought >> number & 1) && is_held_by(model, 1U << key, want->semaphore, number))
            return true;
    return false;
}

static bool would_help(const struct model *model, const struct step *step, unsigned key, unsigned ended, unsigned due)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (helps_want(model, &step->wants[i], key, ended, due))
            return true;
    return false;
}

/* Open: at equal deadlines the earlier row comes first. */
static bool due_longer(const struct model_request *a, const struct model_request *b)
{
    return a->due_at != b->due_at ? a->due_at < b->due_at : a->entry < b->entry;
}

/* Returns a bit per key. */
static unsigned all_due(const struct model *model, utc_us now)
{
    unsigned due = 0;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        due |= (unsigned)is_due(&model->requests[key], now) << key;
    return due & ~model->unread & ~model->batch.locked_rows;
}

/* Returns the longest due holder of missing units; MODEL_KEYS: none. */
static unsigned longest_due(const struct model *model, const struct step *step, utc_us now, unsigned ended)
{
    unsigned longest = MODEL_KEYS;
    unsigned due = all_due(model, now);
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        bool here = (due & ~ended) >> key & 1;
        if (here && would_help(model, step, key, ended, due) &&
            (longest == MODEL_KEYS || due_longer(&model->requests[key], &model->requests[longest])))
            longest = key;
    }
    return longest;
}

/*
 * Due holders end immediately when their units are needed. Returns, as a bit per key, the due holders whose end frees
 * the units. Open: the longest due first, only as many as needed, and none if the whole request does not fit even then,
 * or is behind others.
 */
static unsigned due_in_the_way(const struct model *model, const struct step *step, utc_us now)
{
    unsigned ended = 0;
    for (unsigned i = 0; i < step->want_count; i++)
        if (!is_own(&step->wants[i]) && taken_before(model, step->wants[i].semaphore).fifo != MODEL_OPEN)
            return 0;
    while (any_is_missing(model, step, ended, all_due(model, now))) {
        unsigned key = longest_due(model, step, now, ended);
        if (key == MODEL_KEYS)
            return 0;
        ended |= 1U << key;
    }
    return ended;
}

/* The same, but none if the transaction has no room for their ends and the grant: these are left to the expiry task. */
static unsigned due_to_end(struct model *model, const struct step *step)
{
    unsigned ended = due_in_the_way(model, step, due_of(model));
    size_t size = packet_of_grant(model, step);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        size += ended >> key & 1 ? packet_of_end_of(&model->requests[key]) : 0;
    if (!ended || has_room(model, size))
        return ended;
    model->rules.ends_need_room++;
    return 0;
}

/* ---- acquire ---- */

static bool same_want(const struct model_want *a, const struct model_want *b)
{
    bool same = a->semaphore == b->semaphore && a->count == b->count && a->choice == b->choice &&
                a->adjacent == b->adjacent && a->together == b->together && a->front == b->front &&
                a->no_aisle == b->no_aisle && a->name_count == b->name_count;
    for (unsigned i = 0; same && i < a->name_count; i++)
        same = a->names[i].number == b->names[i].number && a->names[i].label == b->names[i].label;
    return same;
}

/* The digest covers owner, ttl as sent, and the permits sorted by name, each with its count or set of slots. */
bool same_content(const struct step *a, const struct step *b)
{
    bool same = a->owner == b->owner && a->ttl.kind == b->ttl.kind && a->want_count == b->want_count;
    if (a->ttl.kind == TTL_DURATION)
        same = same && a->ttl.ms == b->ttl.ms;
    for (unsigned i = 0; same && i < a->want_count; i++)
        same = same_want(&a->wants[i], &b->wants[i]);
    return same;
}

/* The first answer about a grant that was made for a client at another server, or here while no operation asked. */
static void claim(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    if (request->server == 0)
        return;
    if (request->server != model->batch.moment.server)
        tell_server(model, key);
    request->server = 0;
    request->due_at = deadline_of_grant(model, request);
}

/*
 * The digest is compared before the state; a tombstone has none. A replay of a due request ends it and is answered 410.
 */
static void acquire_again(struct model *model, const struct step *step, utc_us now, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    if (step->wait == WAIT_GONE) { /* an unclaimed grant ends by itself */
        verdict->status = PERMIT_NO_CAPACITY;
        return;
    }
    if (request->content && !same_content(request->content, step)) {
        refuse_reused_key(model, step, verdict);
        return;
    }
    if (is_due(request, due_of(model))) {
        end_due(model, request, now);
        verdict->status = PERMIT_ENDED;
    } else if (is_held(request) && request->server) {
        claim(model, step->key);
        request->nonce = step->nonce;
        verdict->created = true;
    } else {
        write_again(request, now);
        verdict->replayed = is_held(request);
        verdict->status = is_held(request) ? PERMIT_OK : PERMIT_ENDED;
    }
    answer_request(model, verdict, request);
}

/* Checks one want on its own. */
enum permit_status want_possible(const struct model *model, const struct model_want *want)
{
    const struct model_semaphore *semaphore = &model->semaphores[want->semaphore];
    if (!semaphore->exists || semaphore->retired)
        return PERMIT_UNKNOWN_SEMAPHORE;
    if (semaphore->kind == KIND_SLOTTED && want->count > 1000)
        return PERMIT_INVALID;
    if (semaphore->capacity != 0 && want->count > semaphore->capacity)
        return PERMIT_NEVER_SATISFIABLE;
    if (is_specific(want) && semaphore->kind == KIND_COUNTED)
        return PERMIT_INVALID;
    bool names = want->choice != CHOOSE_LOWEST && semaphore->capacity != 0;
    return names ? names_possible(model, want) : PERMIT_OK;
}

static bool is_short_of(const struct model *model, const struct model_want *want)
{
    bool shut = taken_before(model, want->semaphore).fifo != MODEL_OPEN && !is_own(want);
    return shut || missing_without(model, want, 0) > 0 || slots_missing(model, want, 0, 0) > 0;
}

/* Behind: those before it have taken something of what is free. */
static void find_shortage(struct model *model, const struct model_want *want, struct model_shortage *ret_shortage)
{
    struct model_taken_before taken = taken_before(model, want->semaphore);
    struct model_shortage shortage = {
        .semaphore = want->semaphore,
        .capacity = model->semaphores[want->semaphore].capacity,
        .in_use = model_in_use(model, want->semaphore),
        .requested = want->count,
    };
    bool slots = (taken.slots & free_slots(model, want->semaphore, 0)) != 0;
    shortage.behind = taken.fifo != MODEL_OPEN || taken.units > 0 || slots;
    if (is_own(want))
        shortage.behind = own_missing(model, want, 0) > want->count - (shortage.capacity - shortage.in_use);
    model->rules.shut += taken.fifo != MODEL_OPEN && model->semaphores[want->semaphore].queue == QUEUE_FIFO;
    model->rules.shut_unread += taken.fifo != MODEL_OPEN && model->semaphores[want->semaphore].queue != QUEUE_FIFO;
    model->rules.behind_slots += slots;
    model->rules.behind_reserved += taken.reserved > 0 && shortage.in_use + shortage.requested <= shortage.capacity;
    find_taken(model, want, &shortage);
    *ret_shortage = shortage;
}

static void find_shortages(struct model *model, const struct step *step, struct verdict *verdict)
{
    for (unsigned i = 0; i < step->want_count; i++)
        if (is_short_of(model, &step->wants[i]))
            find_shortage(model, &step->wants[i], &verdict->shortages[verdict->shortage_count++]);
}

/* A count gets the lowest free slots of those meant that are not taken, with their current labels. */
static void give_slots(const struct model *model, const struct model_want *want, struct model_permit *permit)
{
    uint64_t meant = is_specific(want) ? usable(model, want, 0) : 0;
    uint64_t taken = taken_before(model, want->semaphore).slots;
    for (uint32_t number = 1; permit->slot_count < permit->count; number++) {
        assert(number <= model->semaphores[permit->semaphore].capacity);
        bool is_taken = slot_is_held(model, permit->semaphore, number) || (number < 64 && (taken >> number & 1));
        if (is_specific(want) ? !(meant >> number & 1) : is_taken)
            continue;
        permit->labels[permit->slot_count] = number < MODEL_LABELLED ? model->labels[permit->semaphore][number] : 0;
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
        give_slots(model, want, &permit);
    return permit;
}

utc_us deadline_of_grant(const struct model *model, const struct model_request *request)
{
    struct limits limits = limits_of_permits(model, request);
    return due_at(from_of(model), request->ttl_ms, request->grace_ms, limits.max_hold_ms);
}

/* Makes the request held. A place, and the times of waiting, stay for the record. */
static void grant(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    struct limits limits = limits_of_wants(model, step);
    if (!request->exists)
        *request = (struct model_request){
            .content = step, .owner = step->owner, .nonce = step->nonce, .entry = ++model->entries};
    request->exists = true;
    request->state = REQUEST_ACQUIRED;
    request->ttl_ms = step->ttl.kind == TTL_ABSENT      ? limits.default_ttl_ms
                      : step->ttl.kind == TTL_DURATION  ? step->ttl.ms
                      : step->ttl.kind == TTL_UNLIMITED ? TTL_NONE
                                                        : TTL_BY_OWNER;
    request->grace_ms = limits.grace_ms;
    request->confirmed_at = request->ended_at = NEVER;
    request->acquired_at = now_of(model);
    model->walk.granted_keys |= 1U << step->key;
    for (unsigned i = 0; i < step->want_count; i++)
        request->permits[request->permit_count++] = give_permit(model, &step->wants[i], model->batch.moment.epoch);
    request->server = 0;
    request->due_at = deadline_of_grant(model, request);
    verdict->created = true;
    answer_request(model, verdict, request);
}

static enum permit_status wants_possible(const struct model *model, const struct step *step)
{
    enum permit_status status = PERMIT_OK;
    for (unsigned i = 0; i < step->want_count && status == PERMIT_OK; i++)
        status = want_possible(model, &step->wants[i]);
    return status;
}

/*
 * Open: the order of checks: the first impossible want (by name), the ttl, a priority above the limit, a pause, the
 * owner, the hold after a failover, the packet.
 */
enum permit_status request_possible(const struct model *model, const struct step *step)
{
    const struct moment *moment = &model->batch.moment;
    bool paused = false;
    enum permit_status status = wants_possible(model, step);
    if (status != PERMIT_OK)
        return status;
    for (unsigned i = 0; i < step->want_count; i++)
        paused = paused || model->semaphores[step->wants[i].semaphore].paused_reason.data;
    struct limits limits = limits_of_wants(model, step);
    if (!ttl_is_allowed(step->ttl, &limits))
        return PERMIT_INVALID;
    if (paused)
        return PERMIT_PAUSED;
    bool owner_is_alive = step->owner && (moment->owners_known & moment->owners_alive) >> step->owner & 1;
    if (step->ttl.kind == TTL_OWNER && !owner_is_alive)
        return PERMIT_UNKNOWN_OWNER;
    if (now_of(model) < moment->grants_from)
        return PERMIT_BUSY;
    return is_too_large(model, step) ? PERMIT_TOO_LARGE : PERMIT_OK;
}

unsigned model_overdue(struct model *model, const struct step *step)
{
    unsigned overdue = 0;
    unsigned ended = due_to_end(model, step);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if ((ended >> key & 1) && (semaphores_of(&model->requests[key]) & ~model->batch.locks))
            overdue |= 1U << key;
    return overdue;
}

bool would_fit(struct model *model, const struct step *step)
{
    unsigned due = all_due(model, due_of(model));
    unsigned ended = due_to_end(model, step);
    for (unsigned i = 0; i < step->want_count; i++)
        if (!is_own(&step->wants[i]) && taken_before(model, step->wants[i].semaphore).fifo != MODEL_OPEN)
            return false;
    return !any_is_missing(model, step, ended, due);
}

enum permit_status find_fit(struct model *model, const struct step *step, struct verdict *verdict)
{
    utc_us now = now_of(model);
    enum permit_status status = request_possible(model, step);
    struct limits limits = limits_of_wants(model, step);
    model->rules.too_large += status == PERMIT_TOO_LARGE;
    if (wants_possible(model, step) == PERMIT_OK)
        verdict->max_ttl_ms = longest_ttl(step->ttl, &limits);
    if (status != PERMIT_OK)
        return status;
    unsigned ended = due_to_end(model, step);
    bool again = model->walk.again;
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (ended >> key & 1)
            end_due(model, &model->requests[key], now);
    model->walk.again = again; /* their units are for this one */
    find_shortages(model, step, verdict);
    if (verdict->shortage_count > 0)
        return PERMIT_NO_CAPACITY;
    return PERMIT_OK;
}

void grant_fit(struct model *model, const struct step *step, struct verdict *verdict)
{
    for (unsigned i = 0; i < step->want_count; i++)
        model->rules.granted_beside += taken_before(model, step->wants[i].semaphore).reserved > 0;
    model->walk.packet += packet_of_grant(model, step);
    grant(model, step, verdict);
}

/*
 * A request may wait for temporary conditions: lack of free units, a closed semaphore, a pause, the hold after a
 * failover. One that lacks only what is kept for others is put back, once.
 */
static void acquire(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    struct verdict *verdict = operation->verdict;
    if (model->requests[step->key].exists) {
        acquire_again(model, step, now_of(model), verdict);
        return;
    }
    if (step->wait == WAIT_GONE) {
        verdict->status = PERMIT_NO_CAPACITY;
        return;
    }
    judge_new(model, operation);
    verdict->status = priority_is_allowed(model, step) ? find_fit(model, step, verdict) : PERMIT_INVALID;
    if (verdict->status == PERMIT_OK && puts_back_for_room(model, operation))
        return;
    if (verdict->status == PERMIT_OK)
        grant_fit(model, step, verdict);
    for (unsigned key = 0; key < MODEL_KEYS && verdict->created; key++)
        model->rules.before_others += is_waiting(&model->requests[key]) &&
                                      (semaphores_of(&model->requests[key]) & wants_of(step)) &&
                                      model->requests[key].place > model->walk.place;
    if (verdict->status == PERMIT_NO_CAPACITY && puts_back_for_kept(model, operation))
        return;
    verdict->may_wait =
        verdict->status == PERMIT_PAUSED || verdict->status == PERMIT_BUSY || verdict->status == PERMIT_NO_CAPACITY;
    if (verdict->may_wait && step->wait == WAIT_ASK)
        enter(model, operation);
}

/* ---- release and expire ---- */

/* A key that is released while it waits is never granted. */
static void end_waiting(struct model *model, unsigned key)
{
    struct model_request *request = &model->requests[key];
    tell_server(model, key);
    open_way(model, request);
    model->walk.again = true;
    model->walk.ask_count[key] = 0;
    request->state = REQUEST_RELEASED;
    request->end_reason = END_NEVER_HELD;
    request->server = 0;
    request->ended_at = now_of(model);
    request->due_at = now_of(model) + model_settings.tombstone_us;
    model->ended[END_NEVER_HELD]++;
}

/* A confirmed request: 409 unless ?confirmed=true. Unknown key: a tombstone is written. */
static void release(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = now_of(model);
    if (is_waiting(request)) {
        end_waiting(model, step->key);
    } else if (!request->exists) {
        *request = (struct model_request){.exists = true,
                                          .state = REQUEST_RELEASED,
                                          .end_reason = END_NEVER_HELD,
                                          .ttl_ms = TTL_NONE,
                                          .confirmed_at = NEVER,
                                          .acquired_at = NEVER,
                                          .ended_at = now,
                                          .due_at = now + model_settings.tombstone_us};
        model->ended[END_NEVER_HELD]++;
    } else if (request->state == REQUEST_RELEASED) {
        verdict->already_released = true;
        write_again(request, now);
    } else if (request->confirmed_at != NEVER && !step->allow_confirmed) {
        verdict->status = PERMIT_CONFIRMED;
        write_again(request, now);
    } else {
        end(model, request, END_RELEASED, now);
    }
    answer_request(model, verdict, request);
}

/* An operator's command with a reason, which is recorded, also for a confirmed request. */
static void force_release(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = now_of(model);
    if (!request->exists) {
        verdict->status = PERMIT_UNKNOWN_REQUEST;
        return;
    }
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (is_waiting(request) && step_wants(request->content, i))
            add_event(model, verdict, i, "forced", key_name(step->key).data, "", reason_text(step->reason));
    if (is_waiting(request)) {
        end_waiting(model, step->key);
    } else if (is_held(request)) {
        end(model, request, END_FORCED, now);
        for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
            if (holds(request, i))
                add_event(model, verdict, i, "forced", key_name(step->key).data, "", reason_text(step->reason));
    } else {
        verdict->already_released = true;
        write_again(request, now);
    }
    answer_request(model, verdict, request);
}

/* permitd ends a request by its deadline, if that has passed, or with its owner, if the request is not confirmed. */
static bool expires(const struct model_request *request, const struct step *step, utc_us due)
{
    if (step->expire_as == END_OWNER_DEAD && is_held(request) && request->confirmed_at == NEVER)
        return true;
    return is_due(request, due);
}

/* A place that leaks is removed when it is due, and that of a dead server before. */
static bool expires_place(const struct model *model, const struct step *step)
{
    const struct model_request *request = &model->requests[step->key];
    bool abandoned = step->expire_as == END_NEVER_HELD && request->server && !is_alive(model, request->server);
    return is_waiting(request) && step->expire_as != END_OWNER_DEAD && (request->due_at <= due_of(model) || abandoned);
}

static void expire(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = now_of(model);
    bool place = expires_place(model, step);
    if (place) {
        answer_request(model, verdict, request);
        remove_place(model, step->key);
        return;
    }
    if (!expires(request, step, due_of(model)))
        return;
    if (step->expire_as == END_OWNER_DEAD)
        end(model, request, END_OWNER_DEAD, now);
    else
        end_due(model, request, now);
    answer_request(model, verdict, request);
}

/* ---- for exchanges ---- */

void model_claim(struct model *model, unsigned key)
{
    claim(model, key);
}

void model_end(struct model *model, struct model_request *request, enum end_reason reason)
{
    end(model, request, reason, now_of(model));
}

void model_end_if_due(struct model *model, struct model_request *request)
{
    if (is_due(request, due_of(model)))
        end_due(model, request, now_of(model));
}

void model_write_again(const struct model *model, struct model_request *request)
{
    write_again(request, now_of(model));
}

struct model_permit model_give_permit(struct model *model, const struct model_want *want)
{
    return give_permit(model, want, model->batch.moment.epoch);
}

size_t model_packet_of_end(const struct model_request *request)
{
    return packet_of_end_of(request);
}

size_t model_packet_of_grant(const struct model *model, const struct step *step)
{
    return packet_of_grant(model, step);
}

/* ---- renew and confirm ---- */

/* Succeeds until RELEASED is written; afterwards 410 with the end reason. */
static bool still_held(const struct model *model, struct model_request *request, utc_us now, struct verdict *verdict)
{
    if (!request->exists || is_waiting(request)) {
        verdict->status = PERMIT_UNKNOWN_REQUEST;
    } else if (request->state == REQUEST_RELEASED) {
        verdict->status = PERMIT_ENDED;
        write_again(request, now);
        answer_request(model, verdict, request);
    }
    return is_held(request);
}

/* Open: a request with ttl owner keeps it, and no other request may change to it. */
static bool ttl_fits(const struct model_request *request, struct ttl ttl)
{
    if (request->ttl_ms == TTL_BY_OWNER)
        return ttl.kind == TTL_ABSENT || ttl.kind == TTL_OWNER;
    return ttl.kind != TTL_OWNER;
}

/*
 * Extends from now and never shortens; a confirmed request stays permanent; grace is fixed at the grant. Open: max_ttl
 * and max_hold are the current ones, and a ttl that is kept (none was given) may exceed a max_ttl that was lowered
 * since.
 */
static void renew(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = now_of(model);
    if (!still_held(model, request, now, verdict))
        return;
    struct limits limits = limits_of_permits(model, request);
    if (!ttl_fits(request, step->ttl) || !ttl_is_allowed(step->ttl, &limits)) {
        verdict->status = PERMIT_INVALID;
        verdict->max_ttl_ms = ttl_fits(request, step->ttl) ? longest_ttl(step->ttl, &limits) : 0;
        return;
    }
    claim(model, step->key);
    if (request->confirmed_at == NEVER) {
        if (step->ttl.kind == TTL_DURATION || step->ttl.kind == TTL_UNLIMITED)
            request->ttl_ms = step->ttl.kind == TTL_DURATION ? step->ttl.ms : TTL_NONE;
        utc_us later = due_at(from_of(model), request->ttl_ms, request->grace_ms, limits.max_hold_ms);
        if (request->due_at < later)
            request->due_at = later;
    }
    request->renewals++;
    answer_request(model, verdict, request);
}

/* Makes a hold permanent (a sale). */
static void confirm(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_request *request = &model->requests[step->key];
    utc_us now = now_of(model);
    if (!still_held(model, request, now, verdict))
        return;
    claim(model, step->key);
    if (request->confirmed_at != NEVER) {
        write_again(request, now);
    } else {
        request->confirmed_at = now;
        request->due_at = NEVER;
        for (unsigned i = 0; i < request->permit_count; i++) /* the need of a waiter may not come any more */
            model->walk.changed[request->permits[i].semaphore] = true;
    }
    answer_request(model, verdict, request);
}

/* ---- locks ---- */

static unsigned acquire_touches(const struct model *model, const struct step *step)
{
    const struct model_request *request = &model->requests[step->key];
    bool reused = request->exists && request->content && !same_content(request->content, step);
    if (step->wait == WAIT_GONE && (reused || !is_waiting(request)))
        return 0;
    if (is_waiting(request))
        return !reused || gives_way(model, request) ? semaphores_of(request) : 0;
    return request->exists && !reused ? semaphores_of(request) : 0;
}

unsigned model_touches(const struct model *model, const struct step *step)
{
    const struct model_request *request = &model->requests[step->key];
    if (step_is_administrative(step))
        return 0;
    if (step->kind == OP_ACQUIRE)
        return acquire_touches(model, step);
    if ((step->kind == OP_RENEW || step->kind == OP_CONFIRM || step->kind == OP_EXCHANGE) && is_waiting(request))
        return 0; /* it holds nothing */
    if (step->kind == OP_EXPIRE && !expires(request, step, due_of(model)) && !expires_place(model, step))
        return 0;
    return semaphores_of(request);
}

unsigned model_overdue_of_new(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    if (step->kind != OP_ACQUIRE || step->wait == WAIT_GONE || model->requests[step->key].exists)
        return 0;
    bool possible = priority_is_allowed(model, step) && request_possible(model, step) == PERMIT_OK;
    judge_new(model, operation);
    return possible ? model_overdue(model, step) : 0;
}

/*
 * Confirms two requests, or none. The first that is not held decides; before it is judged, its semaphores must be
 * locked. The confirm needs the semaphores of both before it is put back.
 */
void model_confirm_both(struct model *model, const struct model_operation *operation)
{
    struct step each[] = {*operation->step, *operation->step};
    each[1].key = each[0].with - 1;
    memset(operation->verdict, 0, sizeof *operation->verdict);
    for (unsigned i = 0; i < ARRAY_LENGTH(each); i++) {
        struct model_request *request = &model->requests[each[i].key];
        bool follows = model->walk.put_back >> each[i].key & 1;
        if (!follows && model_row_is_locked(model, &each[i])) {
            operation->verdict->status = PERMIT_IN_TRANSACTION;
            return;
        }
        if (follows || (model_touches(model, &each[i]) & ~model->batch.locks)) {
            model_put_back(model, operation, 0);
            return;
        }
        if (!still_held(model, request, now_of(model), operation->verdict))
            return;
    }
    for (unsigned i = 0; i < ARRAY_LENGTH(each); i++)
        confirm(model, &each[i], operation->verdict);
}

/* ---- semaphores ---- */

static void answer_semaphore(const struct model *model, unsigned index, struct verdict *verdict)
{
    verdict->has_semaphore = true;
    verdict->semaphore = model->semaphores[index];
    verdict->in_use = model_in_use(model, index);
}

/* A name that is new or retired: settings come from the body alone; tokens and versions continue. */
static struct model_semaphore created_semaphore(const struct model_semaphore *old,
                                                const struct semaphore_change *change)
{
    struct model_semaphore made = {
        .exists = true,
        .kind = old->exists        ? old->kind
                : change->has_kind ? change->kind
                                   : KIND_SLOTTED,
        .queue = QUEUE_BACKFILL,
        .next_token = old->exists ? old->next_token : 1,
        .entry = old->entry,
        .config_version = old->config_version,
        .default_ttl_ms = DEFAULT_TTL_MS,
        .max_ttl_ms = -1,
        .max_waiters = -1,
        .max_priority = PRIORITY_MAX,
        .priority_step_ms = PRIORITY_STEP_MS,
        .max_hold_ms = DEFAULT_MAX_HOLD_MS,
    };
    /* A max_ttl below the default of 10 minutes lowers default_ttl too if none is given. */
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
    semaphore->max_waiters = change->has_max_waiters ? change->max_waiters : semaphore->max_waiters;
    semaphore->max_priority = change->has_max_priority ? change->max_priority : semaphore->max_priority;
    semaphore->priority_step_ms = change->has_priority_step ? change->priority_step_ms : semaphore->priority_step_ms;
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

/*
 * An event has actor, action, time, old and new value and reason: one for each setting that changes. The note is free
 * text and not recorded.
 */
static void print_setting(int64_t number, const char *none, char text[MODEL_EVENT_TEXT])
{
    if (number == -1)
        snprintf(text, MODEL_EVENT_TEXT, "%s", none);
    else
        snprintf(text, MODEL_EVENT_TEXT, "%lld", (long long)number);
}

static void record_number(const struct model *model, struct verdict *verdict, unsigned semaphore, const char *what,
                          int64_t from, int64_t to)
{
    char before[MODEL_EVENT_TEXT];
    char after[MODEL_EVENT_TEXT];
    const char *none = strcmp(what, "priority_step_ms") == 0 ? "strict" : "none";
    print_setting(from, none, before);
    print_setting(to, none, after);
    if (from != to)
        add_event(model, verdict, semaphore, what, before, after, (struct bytes){0});
}

static void record_put(const struct model *model, const struct model_semaphore *before, unsigned index,
                       struct verdict *verdict)
{
    const struct model_semaphore *after = &model->semaphores[index];
    char capacity[MODEL_EVENT_TEXT];
    print_setting(after->capacity, "", capacity);
    if (verdict->created) {
        add_event(model, verdict, index, before->exists ? "revived" : "created", "", capacity, (struct bytes){0});
        return;
    }
    record_number(model, verdict, index, "capacity", before->capacity, after->capacity);
    record_number(model, verdict, index, "default_ttl_ms", before->default_ttl_ms, after->default_ttl_ms);
    record_number(model, verdict, index, "max_ttl_ms", before->max_ttl_ms, after->max_ttl_ms);
    record_number(model, verdict, index, "grace_ms", before->grace_ms, after->grace_ms);
    record_number(model, verdict, index, "max_hold_ms", before->max_hold_ms, after->max_hold_ms);
    if (before->queue != after->queue)
        add_event(model, verdict, index, "queue", before->queue == QUEUE_FIFO ? "fifo" : "backfill",
                  after->queue == QUEUE_FIFO ? "fifo" : "backfill", (struct bytes){0});
    record_number(model, verdict, index, "max_waiters", before->max_waiters, after->max_waiters);
    record_number(model, verdict, index, "max_priority", before->max_priority, after->max_priority);
    record_number(model, verdict, index, "priority_step_ms", before->priority_step_ms, after->priority_step_ms);
}

static bool label_is_free(const struct model *model, unsigned index, int64_t capacity, const struct step *step,
                          unsigned label, enum permit_status *status)
{
    uint32_t from = step->change.labels_from;
    for (uint32_t number = 1; number < MODEL_LABELLED; number++) {
        if (model->labels[index][number] != label || (number >= from && number < from + step->label_count))
            continue;
        if (number <= capacity)
            *status = PERMIT_INVALID;
        else if (*status == PERMIT_OK && slot_is_held(model, index, number))
            *status = PERMIT_IN_USE;
    }
    return *status != PERMIT_INVALID;
}

/*
 * Checks the labels of a PUT. Open: an invalid request is refused as such before one whose slots are in use; a retired
 * slot gives up its label unless it is held.
 */
static enum permit_status labels_possible(const struct model *model, unsigned index,
                                          const struct model_semaphore *semaphore, const struct step *step)
{
    enum permit_status status = PERMIT_OK;
    uint32_t from = step->change.labels_from;
    if (semaphore->kind == KIND_COUNTED || from < 1 || from - 1 + step->label_count > semaphore->capacity)
        return PERMIT_INVALID;
    for (unsigned i = 0; i < step->label_count; i++) {
        unsigned label = step->labels[i];
        for (unsigned j = 0; label && j < i; j++)
            if (step->labels[j] == label)
                return PERMIT_INVALID;
        if (label && !label_is_free(model, index, semaphore->capacity, step, label, &status))
            return PERMIT_INVALID;
        if (model->labels[index][from + i] != label && slot_is_held(model, index, from + i))
            status = PERMIT_IN_USE;
    }
    return status;
}

/* Returns true if a label changes. */
static bool set_labels(struct model *model, unsigned index, const struct step *step, struct verdict *verdict)
{
    bool changed = false;
    char range[MODEL_EVENT_TEXT];
    uint32_t from = step->change.labels_from;
    for (unsigned i = 0; i < step->label_count; i++) {
        changed |= model->labels[index][from + i] != step->labels[i];
        for (uint32_t number = 1; step->labels[i] && number < MODEL_LABELLED; number++)
            if (model->labels[index][number] == step->labels[i] && number > from + i)
                model->labels[index][number] = 0;
        model->labels[index][from + i] = step->labels[i];
    }
    snprintf(range, sizeof range, "%u-%u", from, from - 1 + step->label_count);
    if (changed)
        add_event(model, verdict, index, "labels", "", range, (struct bytes){0});
    return changed;
}

/* Returns true if a PUT has changed nothing of a live semaphore. */
static bool is_as_before(const struct model_semaphore *a, const struct model_semaphore *b)
{
    return a->capacity == b->capacity && a->queue == b->queue && a->default_ttl_ms == b->default_ttl_ms &&
           a->max_ttl_ms == b->max_ttl_ms && a->grace_ms == b->grace_ms && a->max_hold_ms == b->max_hold_ms &&
           a->max_waiters == b->max_waiters && a->max_priority == b->max_priority &&
           a->priority_step_ms == b->priority_step_ms && (a->note.data != NULL) == (b->note.data != NULL) &&
           bytes_equal(a->note, b->note);
}

/* Open: the conditions are checked before the content. */
static void put(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    const struct semaphore_change *change = &step->change;
    bool in_service = semaphore->exists && !semaphore->retired;
    bool wrong = change->match_count && (!in_service || semaphore->config_version != change->config_versions[0]);
    if (wrong || (change->if_none_match && in_service)) {
        verdict->status = PERMIT_VERSION_MISMATCH;
        return;
    }
    struct model_semaphore changed = in_service ? *semaphore : created_semaphore(semaphore, change);
    take_members(&changed, change);
    if ((!in_service && !change->has_capacity) || !makes_sense(&changed, change)) {
        verdict->status = PERMIT_INVALID;
        return;
    }
    if (change->has_labels)
        verdict->status = labels_possible(model, step->semaphore, &changed, step);
    if (verdict->status != PERMIT_OK)
        return;
    struct model_semaphore before = *semaphore;
    if (!changed.entry)
        changed.entry = ++model->entries;
    *semaphore = changed;
    verdict->created = !in_service;
    record_put(model, &before, step->semaphore, verdict);
    bool labelled = change->has_labels && set_labels(model, step->semaphore, step, verdict);
    if (!in_service || labelled || !is_as_before(&before, &changed))
        semaphore->config_version++;
    answer_semaphore(model, step->semaphore, verdict);
}

/* The common part of pause, resume and retire. */
static bool in_service(const struct model *model, const struct step *step, struct verdict *verdict)
{
    const struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    if (!semaphore->exists || semaphore->retired)
        verdict->status = PERMIT_UNKNOWN_SEMAPHORE;
    return verdict->status == PERMIT_OK;
}

static void label(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    if (!in_service(model, step, verdict))
        return;
    if (step->change.match_count && semaphore->config_version != step->change.config_versions[0])
        verdict->status = PERMIT_VERSION_MISMATCH;
    else
        verdict->status = labels_possible(model, step->semaphore, semaphore, step);
    if (verdict->status != PERMIT_OK)
        return;
    if (set_labels(model, step->semaphore, step, verdict))
        semaphore->config_version++;
    answer_semaphore(model, step->semaphore, verdict);
}

/* A second pause or resume: 200. It is recorded, and raises config_version, only if it changes something. */
static void pause_or_resume(struct model *model, const struct step *step, struct verdict *verdict)
{
    struct model_semaphore *semaphore = &model->semaphores[step->semaphore];
    struct bytes why = reason_text(step->reason);
    bool pause = step->kind == OP_SEMAPHORE_PAUSE;
    if (!in_service(model, step, verdict))
        return;
    bool paused = semaphore->paused_reason.data;
    if (pause ? !paused || !bytes_equal(semaphore->paused_reason, why) : paused) {
        add_event(model, verdict, step->semaphore, pause ? "paused" : "resumed", "", "", why);
        semaphore->config_version++;
    }
    semaphore->paused_reason = pause ? why : (struct bytes){0};
    answer_semaphore(model, step->semaphore, verdict);
}

static void retire(struct model *model, const struct step *step, struct verdict *verdict)
{
    if (!in_service(model, step, verdict))
        return;
    if (model_in_use(model, step->semaphore) > 0) {
        verdict->status = PERMIT_IN_USE;
        return;
    }
    add_event(model, verdict, step->semaphore, "retired", "", "", reason_text(step->reason));
    model->semaphores[step->semaphore].retired = true;
    memset(model->labels[step->semaphore], 0, sizeof model->labels[step->semaphore]);
    model->semaphores[step->semaphore].config_version++;
    answer_semaphore(model, step->semaphore, verdict);
}

bool model_row_is_locked(const struct model *model, const struct step *step)
{
    return !step_is_administrative(step) && (model->batch.locked_rows >> step->key & 1) &&
           model->requests[step->key].exists;
}

void model_do(struct model *model, const struct model_operation *operation)
{
    const struct step *step = operation->step;
    struct verdict *ret_verdict = operation->verdict;
    memset(ret_verdict, 0, sizeof *ret_verdict);
    if (model_row_is_locked(model, step)) {
        ret_verdict->status = PERMIT_IN_TRANSACTION;
        return;
    }
    switch (step->kind) {
    case OP_ACQUIRE: acquire(model, operation); break;
    case OP_RELEASE: release(model, step, ret_verdict); break;
    case OP_RENEW: renew(model, step, ret_verdict); break;
    case OP_CONFIRM: confirm(model, step, ret_verdict); break;
    case OP_EXPIRE: expire(model, step, ret_verdict); break;
    case OP_FORCE_RELEASE: force_release(model, step, ret_verdict); break;
    case OP_SEMAPHORE_PUT: put(model, step, ret_verdict); break;
    case OP_SEMAPHORE_PAUSE:
    case OP_SEMAPHORE_RESUME: pause_or_resume(model, step, ret_verdict); break;
    case OP_SEMAPHORE_RETIRE: retire(model, step, ret_verdict); break;
    case OP_SEMAPHORE_LABELS: label(model, step, ret_verdict); break;
    case OP_EXCHANGE: model_exchange(model, operation); break;
    case OP_SETTLE:
    case OP_LOOK:
    case OP_LEAVE:
    case OP_KIND_COUNT: break;
    }
}
