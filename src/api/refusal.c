/* SPDX-License-Identifier: MIT */
#include "api/refusal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/front_cache.h"
#include "api/json_out.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/service.h"
#include "base/clock.h"
#include "core/name.h"
#include "store/store.h"

/* ---- what is in the way ---- */

/* A decision no_capacity until it is written. */
struct refusal {
    struct batch_item *item;
    size_t count;              /* of the shortages of the decision */
    struct blocking *blocking; /* one per shortage */
    struct arena arena;        /* of all this, and of the copies below */

    /* Of one that waits for the query. */
    struct turn turn;
    mono_us since;
    struct decision decision;
    struct outcome outcome;
    struct lease_clock clock;
};

enum {
    RUN_MAX = 256,             /* refusals that are told after one query */
    PLACES_WITHIN_US = 100000, /* one that has waited for longer is told without its places */
    CHUNK = 1024,              /* of a refusal's arena: enough for a usual one */
    COPY_MAX = 8 << 20,        /* of the same */
    READ_CHUNK = 64 << 10,
    READ_MAX = 16 << 20,
};

struct refusals {
    struct front_cache *fronts;
    struct mutex mutex;   /* guards the next two */
    struct turns pending; /* struct refusal */
    bool running;         /* `query` is in its lane, or reads */
    struct query query;
    struct engine *engine; /* of the query */
    struct arena arena;    /* the same */
};

struct refusals *refusals_new(void)
{
    struct refusals *refusals = calloc(1, sizeof *refusals);
    if (refusals)
        refusals->fronts = front_cache_new();
    if (!refusals || !refusals->fronts) {
        free(refusals);
        return NULL;
    }
    mutex_init(&refusals->mutex);
    turns_init(&refusals->pending);
    arena_init(&refusals->arena, READ_CHUNK, READ_MAX);
    return refusals;
}

void refusals_free(struct refusals *refusals)
{
    if (!refusals)
        return;
    assert(turns_empty(&refusals->pending) && !refusals->running);
    front_cache_free(refusals->fronts);
    arena_release(&refusals->arena);
    mutex_destroy(&refusals->mutex);
    free(refusals);
}

struct front_cache *refusals_fronts(struct refusals *refusals)
{
    return refusals->fronts;
}

/* NULL: out of memory. */
static struct refusal *refusal_new(struct batch_item *item, const struct decision *decision)
{
    struct arena arena;
    size_t count = decision->outcome->shortage_count;
    arena_init(&arena, CHUNK, COPY_MAX);
    struct refusal *refusal = arena_alloc(&arena, sizeof *refusal);
    struct blocking *blocking = arena_array(&arena, count, sizeof *blocking);
    if (!refusal || !blocking) {
        arena_release(&arena);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        blocking[i] = (struct blocking){.shortage = &decision->outcome->shortages[i], .ahead = decision->waiting[i]};
    *refusal = (struct refusal){.item = item, .count = count, .blocking = blocking, .arena = arena};
    return refusal;
}

/* Copies the decision, whose memory ends with the call of `decided`. False: out of memory. */
static bool copy_decision(struct refusal *refusal, const struct decision *decision)
{
    struct arena *arena = &refusal->arena;
    struct shortage *shortages = arena_array(arena, refusal->count, sizeof *shortages);
    for (size_t i = 0; shortages && i < refusal->count; i++) {
        shortages[i] = decision->outcome->shortages[i];
        shortages[i].semaphore = arena_copy(arena, shortages[i].semaphore);
        struct taken_slot *taken = arena_array(arena, shortages[i].taken_count, sizeof *taken);
        for (size_t j = 0; taken && j < shortages[i].taken_count; j++) {
            taken[j] = shortages[i].taken[j];
            taken[j].label = arena_copy(arena, taken[j].label);
            taken[j].holder = arena_copy(arena, taken[j].holder);
        }
        shortages[i].taken = taken;
    }
    if (arena->refused)
        return false;
    for (size_t i = 0; i < refusal->count; i++)
        refusal->blocking[i].shortage = &shortages[i];
    refusal->outcome = (struct outcome){.status = PERMIT_NO_CAPACITY};
    refusal->clock = *decision->clock;
    refusal->decision = (struct decision){.outcome = &refusal->outcome,
                                          .status = PERMIT_NO_CAPACITY,
                                          .clock = &refusal->clock,
                                          .now = decision->now,
                                          .has_place = decision->has_place,
                                          .retry_after_ms = decision->retry_after_ms};
    return true;
}

/* Shows what the cache has of the shortages. False: not all of it. */
static bool show_cached(struct refusals *refusals, struct refusal *refusal)
{
    bool complete = true;
    for (size_t i = 0; i < refusal->count; i++) {
        struct blocking *blocking = &refusal->blocking[i];
        complete &= blocking->front.holders || front_cache_get(refusals->fronts, blocking->shortage->semaphore_id,
                                                               &refusal->arena, &blocking->front);
    }
    return complete;
}

/*
 * Shows how many requests stand before the places of the refused one, and the keys of the first. On failure it keeps
 * the numbers of its decision, which count all others that wait.
 */
static void read_places(struct store *store, struct arena *arena, struct refusal *refusal)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    struct queue_position *positions;
    bool kept;
    struct bytes key = refusal->item->operation.external_id;
    if (store->queries->request(store, key, arena, &request, &names, &time) != PERMIT_OK ||
        request.state != REQUEST_WAITING ||
        store->queries->ahead(store, &request, arena, &positions, &kept) != PERMIT_OK)
        return;
    for (size_t i = 0; i < refusal->count; i++)
        for (size_t j = 0; j < request.want_count; j++)
            if (request.wants[j].semaphore_id == refusal->blocking[i].shortage->semaphore_id) {
                refusal->blocking[i].ahead = positions[j].ahead;
                refusal->blocking[i].front.waiters = positions[j].keys;
                refusal->blocking[i].front.waiter_count = positions[j].key_count;
            }
}

/* The refusals that are told together, and the semaphores that are read for them. */
struct refusal_run {
    struct refusal *refusals[RUN_MAX];
    size_t count;
    uint64_t ids[2 * REQUEST_MAX_SEMAPHORES]; /* full when half of them are used: no refusal needs more than the rest */
    struct semaphore_front fronts[2 * REQUEST_MAX_SEMAPHORES];
    size_t id_count;
};

/* Returns the index of the semaphore in run->ids, to which it is added. */
static size_t find_id(struct refusal_run *run, uint64_t id)
{
    size_t i = 0;
    while (i < run->id_count && run->ids[i] != id)
        i++;
    assert(i < ARRAY_LENGTH(run->ids));
    if (i == run->id_count)
        run->ids[run->id_count++] = id;
    return i;
}

/*
 * Takes pending refusals, by turns between principals, until there is enough to read. One that has places is the last,
 * because its places are read for it alone.
 */
static void take_pending(struct refusals *refusals, struct refusal_run *run)
{
    bool full = false;
    mutex_lock(&refusals->mutex);
    while (!full && !turns_empty(&refusals->pending)) {
        struct refusal *refusal = CONTAINER_OF(turns_take(&refusals->pending), struct refusal, turn);
        run->refusals[run->count++] = refusal;
        if (!show_cached(refusals, refusal))
            for (size_t i = 0; i < refusal->count; i++)
                if (!refusal->blocking[i].front.holders)
                    (void)find_id(run, refusal->blocking[i].shortage->semaphore_id);
        full = run->count == RUN_MAX || run->id_count >= REQUEST_MAX_SEMAPHORES || refusal->decision.has_place;
    }
    mutex_unlock(&refusals->mutex);
}

/* In two parts, because one refusal may need as many as one statement reads. */
static enum permit_status find_fronts(struct front_cache *cache, struct store *store, struct refusal_run *run,
                                      struct arena *arena)
{
    size_t first = run->id_count < REQUEST_MAX_SEMAPHORES ? run->id_count : REQUEST_MAX_SEMAPHORES;
    enum permit_status status = front_cache_find(cache, store, run->ids, first, arena, run->fronts);
    if (status == PERMIT_OK)
        status = front_cache_find(cache, store, run->ids + first, run->id_count - first, arena, run->fronts + first);
    return status;
}

static void submit_query(struct refusals *refusals);

/*
 * Tells pending refusals. Without a store, or if it cannot be read, all are told without the holders that are not
 * cached, so that they do not wait for one failure after the other. The waits of many clients may end at once: most
 * refusals then have no places in them, because each must be sent before its kept place is removed.
 */
static void tell_pending(struct query *query, struct store *store, enum permit_status status)
{
    struct refusals *refusals = CONTAINER_OF(query, struct refusals, query);
    struct arena *arena = &refusals->arena;
    bool more = true;
    for (bool again = true; again; again = more && status != PERMIT_OK) {
        struct refusal_run run = {.count = 0};
        arena_clear(arena);
        take_pending(refusals, &run);
        if (status == PERMIT_OK)
            status = find_fronts(refusals->fronts, store, &run, arena);
        for (size_t i = 0; i < run.count; i++) {
            struct refusal *refusal = run.refusals[i];
            struct op *op = &refusal->item->op;
            for (size_t j = 0; status == PERMIT_OK && j < refusal->count; j++) {
                struct blocking *blocking = &refusal->blocking[j];
                if (!blocking->front.holders)
                    blocking->front = run.fronts[find_id(&run, blocking->shortage->semaphore_id)];
            }
            if (status == PERMIT_OK && refusal->decision.has_place && clock_mono() - refusal->since < PLACES_WITHIN_US)
                read_places(store, arena, refusal);
            op->decided(op, &refusal->decision);
        }
        mutex_lock(&refusals->mutex);
        more = refusals->running = !turns_empty(&refusals->pending);
        mutex_unlock(&refusals->mutex);
    }
    if (more)
        submit_query(refusals);
}

/* The query has a turn of its own in the lane, because no principal has its name. */
static void submit_query(struct refusals *refusals)
{
    refusals->query = (struct query){
        .work = tell_pending, .lane = QUERY_ROW, .deadline = NEVER, .turn.principal = BYTES(" refusals")};
    enum permit_status status = engine_query(refusals->engine, &refusals->query);
    if (status != PERMIT_OK)
        tell_pending(&refusals->query, NULL, status);
}

bool refusal_begin(struct batch_item *item, const struct decision *decision)
{
    struct service *service = item->exchange->service;
    struct refusals *refusals = service->refusals;
    size_t count = decision->outcome ? decision->outcome->shortage_count : 0;
    if (decision->status != PERMIT_NO_CAPACITY || count == 0 || item->refusal)
        return false;
    struct refusal *refusal = item->refusal = refusal_new(item, decision);
    if (!refusal || (!decision->has_place && show_cached(refusals, refusal)) || !copy_decision(refusal, decision))
        return false;
    refusal->turn.principal = item->operation.principal;
    refusal->since = clock_mono();
    mutex_lock(&refusals->mutex);
    bool submit = !refusals->running;
    refusals->running = true;
    turns_add(&refusals->pending, &refusal->turn);
    mutex_unlock(&refusals->mutex);
    if (submit) {
        refusals->engine = service->engine;
        submit_query(refusals);
    }
    return true;
}

void refusal_end(struct batch_item *item)
{
    if (!item->refusal)
        return;
    struct arena arena = item->refusal->arena; /* the refusal is in it */
    item->refusal = NULL;
    arena_release(&arena);
}

/* ---- sentences ---- */

static void write_ended(struct buf *out, const struct decision *decision)
{
    const struct request *request = decision->outcome ? decision->outcome->request : NULL;
    if (!request || request->state != REQUEST_RELEASED)
        return;
    write_member_text(out, "end_reason", bytes_of(end_reason_word(request->end_reason)));
    buf_append_text(out, ",\"ended_at\":");
    write_time(out, lease_to_wall(decision->clock, request->ended_at));
}

enum {
    SENTENCE_MAX = 1024,
    BATCH_NAMES_MAX = 256 * 1024, /* bytes of a batch's answers; above it, refusals do not list holders and waiters */
};

/*
 * Writes "hall: A1 is held until 2026-11-21T12:00:03Z, and 2 more of 5 asked": the first held slot of those requested.
 */
static void held_slot_sentence(const struct shortage *first, const struct lease_clock *clock, struct buf *out)
{
    const struct taken_slot *slot = &first->taken[0];
    buf_printf(out, "%.*s: ", (int)first->semaphore.length, first->semaphore.data);
    if (slot->label.length)
        buf_append(out, slot->label.data, slot->label.length);
    else
        buf_printf(out, "slot %u", slot->number);
    if (slot->expires_at == NEVER) {
        buf_append_text(out, " is held until it is released");
    } else {
        char text[RFC3339_SIZE];
        clock_format_rfc3339(lease_to_wall(clock, slot->expires_at), text);
        buf_printf(out, " is held until %.*sZ", (int)strlen("2026-11-21T12:00:03"), text);
    }
    if (first->taken_count > 1)
        buf_printf(out, ", and %zu more of %lld asked", first->taken_count - 1, (long long)first->requested);
}

/* Writes "hall: no 3 adjacent free slots among the 10 named": enough units are free, but not of the requested slots. */
static void free_slots_sentence(const struct want *want, struct buf *out)
{
    bool plural = want->count > 1;
    buf_printf(out, "%.*s: no %lld %sfree slot%s", (int)want->semaphore.length, want->semaphore.data,
               (long long)want->count, want->adjacent && plural ? "adjacent " : "", plural ? "s" : "");
    if (want->choice == CHOOSE_ANY_OF)
        buf_printf(out, " among the %zu named", want->named_count);
}

/* Writes "hall: no 4 free seats match `best`; the largest group has 3". */
static void best_sentence(const struct shortage *first, struct buf *out)
{
    buf_printf(out, "%.*s: no %lld free seats match `best`; the largest group has %u", (int)first->semaphore.length,
               first->semaphore.data, (long long)first->requested, first->largest_together);
}

/*
 * Describes the first semaphore that lacks units: "backups: 2 of 2 in use, 1 asked, 3 wait before it", "backups: 2 of 2
 * in use, 1 asked, held longest by job-42", or, if units are free but earlier waiters have priority, "backups: 1 of 2
 * in use, 1 asked, but 3 wait before it".
 */
static void units_sentence(const struct viewer *viewer, const struct blocking *blocking, struct buf *out)
{
    const struct shortage *first = blocking->shortage;
    const struct semaphore_front *front = &blocking->front;
    bool others_first = first->capacity - first->in_use >= first->requested;
    buf_printf(out, "%.*s: %lld of %lld in use, %lld asked", (int)first->semaphore.length, first->semaphore.data,
               (long long)first->in_use, (long long)first->capacity, (long long)first->requested);
    if (blocking->ahead)
        buf_printf(out, ",%s %zu wait%s before it", others_first ? " but" : "", blocking->ahead,
                   blocking->ahead == 1 ? "s" : "");
    else if (others_first)
        buf_append_text(out, ", but others wait before it");
    if (front->holder_count && !others_first && viewer_sees(viewer, front->holders[0].external_id)) {
        struct bytes key = key_split(front->holders[0].external_id).key;
        buf_printf(out, ", held longest by %.*s", (int)key.length, key.data);
    }
}

static void no_capacity_sentence(const struct batch_item *item, const struct decision *decision, struct buf *out)
{
    const struct viewer viewer = viewer_of(item->exchange);
    const struct blocking *blocking = &item->refusal->blocking[0];
    const struct shortage *first = blocking->shortage;
    const struct want *want = NULL;
    for (size_t i = 0; i < item->operation.want_count; i++)
        if (bytes_equal(item->operation.wants[i].semaphore, first->semaphore))
            want = &item->operation.wants[i];
    bool has_units = first->capacity - first->in_use >= first->requested;
    if (first->taken_count)
        held_slot_sentence(first, decision->clock, out);
    else if (first->is_best && has_units && !blocking->ahead)
        best_sentence(first, out);
    else if (want && want_is_specific(want) && want->choice != CHOOSE_NAMED && has_units && !blocking->ahead)
        free_slots_sentence(want, out);
    else
        units_sentence(&viewer, blocking, out);
}

/* Describes the limit that keeps an acquire from waiting. */
static void waiting_sentence(const struct batch_item *item, struct buf *out)
{
    const struct engine_settings settings = engine_settings_now(item->exchange->service->engine);
    switch (item->op.wait_refusal) {
    case WAIT_REFUSED_MAX:
        buf_printf(out, "too many waiting requests (max_waiters is %zu)", settings.max_waiters);
        break;
    case WAIT_REFUSED_OWNER:
        buf_printf(out, "too many waiting requests of this %s (max_owner_waiters is %zu)",
                   item->operation.owner.length ? "owner" : "principal", settings.max_owner_waiters);
        break;
    case WAIT_ALLOWED:
    case WAIT_REFUSED_CLOSED: break;
    }
}

/* Writes the detail of a refusal; writes nothing if the status's title is enough. */
static void refusal_sentence(const struct batch_item *item, const struct decision *decision, enum permit_status status,
                             struct buf *out)
{
    const struct outcome *outcome = decision->outcome;
    bool has_failed = outcome && outcome->failed.data;
    struct bytes key = key_split(has_failed ? outcome->failed : item->operation.external_id).key;
    struct bytes owner = key_split(item->operation.owner).key;
    if (status == PERMIT_NO_CAPACITY && item->refusal)
        no_capacity_sentence(item, decision, out);
    else if (status == PERMIT_ENDED && outcome && outcome->request && outcome->request->state == REQUEST_RELEASED)
        buf_printf(out, "%.*s has ended (%s)%s", (int)key.length, key.data,
                   end_reason_word(outcome->request->end_reason),
                   item->operation.kind == OP_ACQUIRE ? "; use a new key" : "");
    else if (status == PERMIT_UNKNOWN_REQUEST && key.length)
        buf_printf(out, "there is no request \"%.*s\"", (int)key.length, key.data);
    else if (status == PERMIT_TOO_MANY)
        waiting_sentence(item, out);
    else if (status == PERMIT_UNKNOWN_OWNER)
        buf_printf(out, "the owner \"%.*s\" has no valid heartbeat", (int)owner.length, owner.data);
}

void refusal_write(struct buf *out, const struct batch_item *item, const struct decision *decision,
                   enum permit_status status)
{
    const struct viewer viewer = viewer_of(item->exchange);
    const char *detail = decision->detail;
    if (!detail && decision->outcome)
        detail = decision->outcome->detail;
    struct buf sentence;
    buf_init(&sentence, SENTENCE_MAX);
    if (!detail)
        refusal_sentence(item, decision, status, &sentence);
    problem_begin(out, status, sentence.length ? buf_text(&sentence) : detail);
    buf_release(&sentence);
    if (status == PERMIT_ENDED)
        write_ended(out, decision);
    if (decision->outcome && decision->outcome->max_ttl_ms)
        write_member_i64(out, "max_ttl_ms", decision->outcome->max_ttl_ms);
    if (status == PERMIT_NO_CAPACITY && !(call_of(item->exchange)->batch && out->length > BATCH_NAMES_MAX)) {
        const struct refusal *refusal = item->refusal;
        struct query_time time = {.now = decision->now};
        if (refusal)
            time.clock = *decision->clock;
        write_blocking(out, &viewer, refusal ? refusal->blocking : NULL, refusal ? refusal->count : 0, &time);
    }
    if (item->operation.keys && decision->outcome && decision->outcome->failed.data)
        write_member_text(out, "external_id", key_split(decision->outcome->failed).key);
    if (status == PERMIT_OUTCOME_UNKNOWN && item->operation.external_id.data && !item->operation.keys)
        write_member_text(out, "external_id", key_split(item->operation.external_id).key);
    if (status == PERMIT_INTERNAL)
        write_member_text(out, "request_id", bytes_of(item->exchange->id));
    problem_retry_after(out, problem_retry_ms(status, decision->retry_after_ms));
    problem_end(out);
}

const char *refusal_reason(struct exchange *exchange, enum permit_status status, enum engine_bound bound)
{
    static const char *const bounds[] = {
        [BOUND_ENDS] = "too many pending releases, renewals and confirms (four times max_pending)",
        [BOUND_PENDING] = "too many pending calls (max_pending)",
        [BOUND_QUERIES] = "too many pending queries",
    };
    char sentence[STORE_MESSAGE_SIZE];
    struct engine *engine = exchange->service->engine;
    struct buf *message = &exchange->service->message;
    if (status == PERMIT_TOO_MANY)
        snprintf(sentence, sizeof sentence, "%s; the limit is %zu", bounds[bound], engine_bound_limit(engine, bound));
    else if (status != PERMIT_DATABASE_UNAVAILABLE || !engine_refusal(engine, sentence))
        return NULL;
    buf_clear(message);
    buf_append_text(message, sentence);
    return buf_text(message);
}
