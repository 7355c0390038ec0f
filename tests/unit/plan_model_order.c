/* SPDX-License-Identifier: MIT */
/*
 * The order of grants, checked by the rows alone, without the model (P20), by a walk that knows and locks everything:
 *
 *   - under `fifo` no request passes one before it that was not granted; under backfill none takes what one before it fits
 *     into, or has reserved;
 *   - no new request is refused that fits beside them;
 *   - a waiter that a batch lets fit is granted by it, or called (P17);
 *   - when each permitd has looked at its waiters, no waiter is left that fits.
 *
 * The walk counts units. A semaphore is unsure if it has a waiter that may have been seen otherwise: it wants certain slots,
 * depends on its owner, may end a due holder, or has changed in the batch. On unsure semaphores nothing is judged.
 */
#include "plan_model.h"

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

/* The state of a semaphore in the walk. */
struct seen {
    int64_t free;
    int64_t reserved;
    bool shut, barred; /* fifo: it grants nothing more; nobody reserves any more */
    bool unsure;
};

void order_note(struct run *run)
{
    memcpy(run->before, run->rows.requests, sizeof run->before);
}

static utc_us now_of(const struct run *run)
{
    return model_time(&run->model.batch.moment);
}

static utc_us due_of(const struct run *run)
{
    return model_due(&run->model.batch.moment);
}

static const struct semaphore *semaphore_of(const struct run *run, const struct want *want)
{
    return &run->rows.semaphores[rows_semaphore(&run->rows, want->semaphore_id)];
}

static struct seen *seen_of(const struct run *run, struct seen *seen, const struct want *want)
{
    return &seen[rows_semaphore(&run->rows, want->semaphore_id)];
}

static bool is_closed(const struct semaphore *semaphore)
{
    return semaphore->capacity == 0 || semaphore->paused_reason.data || semaphore->retired_at != NEVER;
}

/* Returns true if the request is in nobody's way: it waits for a closed semaphore, or can never be granted. */
static bool is_aside(const struct run *run, const struct request *row)
{
    for (size_t i = 0; i < row->want_count; i++) {
        const struct semaphore *semaphore = semaphore_of(run, &row->wants[i]);
        bool too_many = semaphore->kind == KIND_SLOTTED && row->wants[i].count > SLOTS_MAX_COUNT;
        if (is_closed(semaphore) || row->wants[i].count > semaphore->capacity || too_many)
            return true;
    }
    return false;
}

static bool may_be_refused(const struct run *run, const struct request *row)
{
    for (size_t i = 0; i < row->want_count; i++) {
        int64_t max_ttl_ms = semaphore_of(run, &row->wants[i])->max_ttl_ms;
        if (max_ttl_ms >= 0 &&
            (row->ttl.kind == TTL_UNLIMITED || (row->ttl.kind == TTL_DURATION && row->ttl.ms > max_ttl_ms)))
            return true;
    }
    return row->ttl.kind == TTL_OWNER || wants_are_specific(row->wants, row->want_count);
}

static bool is_aged(const struct run *run, const struct request *row)
{
    return now_of(run) - row->waiting_since >= model_settings.backfill_bound_us;
}

/* Returns true if the batch may have seen the waiter otherwise than it is now. */
static bool is_unclear(const struct run *run, unsigned key)
{
    const struct request *row = &run->rows.requests[key];
    if (run->script.max_packet)
        return true;
    if (run->settling)
        return may_be_refused(run, row) || !run->known[row->server_id][key].here;
    const struct request *before = &run->before[key];
    bool locked = true;
    for (size_t i = 0; i < row->want_count; i++)
        locked &= run->model.batch.locks >> rows_semaphore(&run->rows, row->wants[i].semaphore_id) & 1;
    if (run->model.batch.later >> key & 1)
        return true;
    if (before->id != row->id || before->server_id != row->server_id || before->waiting_until != row->waiting_until)
        return true;
    if ((run->script.queue_cut && !is_aged(run, row)) || (run->model.batch.reads_end && !locked))
        return true;
    return may_be_refused(run, row);
}

/* Returns true if a client asks for the place of a waiter. */
static bool is_asked(const struct run *run, unsigned key)
{
    const struct request *row = &run->rows.requests[key];
    const struct model_batch *batch = &run->model.batch;
    if (run->settling)
        return row->id && row->state == REQUEST_WAITING && row->server_id &&
               !(batch->moment.servers_dead >> row->server_id & 1);
    if (row->id == 0 || row->state != REQUEST_WAITING || !row->server_id ||
        (batch->moment.servers_dead >> row->server_id & 1))
        return false;
    return row->server_id != batch->moment.server || run->known[row->server_id][key].here ||
           ((batch->here | batch->later) >> key & 1);
}

static void look_at_rows(const struct run *run, struct seen *seen)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++) {
        const struct semaphore *row = &run->rows.semaphores[i];
        bool locked = run->model.batch.locks >> i & 1;
        /* The bound of the deadlines may say that a holder is due although none is: then a waiter may fit. */
        seen[i] =
            (struct seen){.free = row->capacity - row->in_use, .unsure = !locked && row->next_due_at <= due_of(run)};
    }
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        const struct request *row = &run->rows.requests[key];
        for (size_t i = 0; row->state == REQUEST_ACQUIRED && row->due_at <= due_of(run) && i < row->permit_count; i++)
            seen[rows_semaphore(&run->rows, row->permits[i].semaphore_id)].unsure = true;
    }
}

static bool fits(const struct run *run, struct seen *seen, const struct want *wants, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct seen *semaphore = seen_of(run, seen, &wants[i]);
        if (semaphore->shut || semaphore->free - semaphore->reserved < wants[i].count)
            return false;
    }
    return true;
}

static bool is_unsure(const struct run *run, struct seen *seen, const struct want *wants, size_t count)
{
    bool unsure = false;
    for (size_t i = 0; i < count; i++)
        unsure |= seen_of(run, seen, &wants[i])->unsure;
    return unsure;
}

/* Returns true if the whole need can come, beside the reservations before it. */
static bool may_reserve(const struct run *run, struct seen *seen, const struct request *row)
{
    for (size_t i = 0; i < row->want_count; i++) {
        const struct seen *semaphore = seen_of(run, seen, &row->wants[i]);
        const struct semaphore *own = semaphore_of(run, &row->wants[i]);
        if (semaphore->barred || semaphore->reserved + row->wants[i].count > own->capacity - own->confirmed)
            return false;
    }
    return is_aged(run, row);
}

static void walk_one(const struct run *run, struct seen *seen, unsigned key)
{
    const struct request *row = &run->rows.requests[key];
    bool unclear = is_unclear(run, key) || is_unsure(run, seen, row->wants, row->want_count);
    bool takes = !unclear && fits(run, seen, row->wants, row->want_count);
    bool reserves = !unclear && !takes && may_reserve(run, seen, row);
    for (size_t i = 0; i < row->want_count && !is_aside(run, row); i++) {
        struct seen *semaphore = seen_of(run, seen, &row->wants[i]);
        bool fifo = semaphore_of(run, &row->wants[i])->queue == QUEUE_FIFO;
        semaphore->unsure |= unclear;
        semaphore->free -= takes ? row->wants[i].count : 0;
        semaphore->reserved += reserves ? row->wants[i].count : 0;
        semaphore->shut |= fifo && !takes;
        semaphore->barred |= fifo && !takes && !reserves;
    }
}

static bool is_before(const struct request *row, utc_us place, uint64_t id)
{
    return row->place != place ? row->place < place : row->id < id;
}

/* Walks along all that still wait before a place. A bit per key in `except`: not these. */
static void walk_to(const struct run *run, struct seen *seen, utc_us place, uint64_t id, unsigned except)
{
    for (unsigned done = except;;) {
        unsigned next = MODEL_KEYS;
        for (unsigned key = 0; key < MODEL_KEYS; key++) {
            const struct request *row = &run->rows.requests[key];
            const struct request *best = next < MODEL_KEYS ? &run->rows.requests[next] : NULL;
            if (!(done >> key & 1) && is_asked(run, key) && is_before(row, place, id) &&
                (!best || is_before(row, best->place, best->id)))
                next = key;
        }
        if (next == MODEL_KEYS)
            return;
        walk_one(run, seen, next);
        done |= 1U << next;
    }
}

unsigned order_next(const struct run *run, unsigned last)
{
    const struct request *rows = run->rows.requests;
    unsigned next = MODEL_KEYS;
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        bool behind = last == MODEL_KEYS || is_before(&rows[last], rows[key].place, rows[key].id);
        if (rows[key].id && rows[key].state == REQUEST_WAITING && rows[key].server_id && behind &&
            (next == MODEL_KEYS || is_before(&rows[key], rows[next].place, rows[next].id)))
            next = key;
    }
    return next;
}

void order_find(const struct run *run, unsigned *ret_fit, unsigned *ret_unfit)
{
    *ret_fit = *ret_unfit = 0;
    for (unsigned key = order_next(run, MODEL_KEYS); key < MODEL_KEYS; key = order_next(run, key)) {
        struct seen seen[MODEL_SEMAPHORES];
        const struct request *row = &run->rows.requests[key];
        look_at_rows(run, seen);
        walk_to(run, seen, row->place, row->id, 0);
        if (!is_asked(run, key) || is_unclear(run, key) || is_unsure(run, seen, row->wants, row->want_count))
            continue;
        bool fit = !is_aside(run, row) && fits(run, seen, row->wants, row->want_count);
        *(fit ? ret_fit : ret_unfit) |= 1U << key;
    }
}

static bool has_changed(const struct run *run, const struct request *row)
{
    bool changed = false;
    for (size_t i = 0; i < row->want_count; i++)
        changed |= run->model.walk.changed[rows_semaphore(&run->rows, row->wants[i].semaphore_id)];
    return changed;
}

bool order_tells(struct run *run, unsigned unfit)
{
    const struct model_walk *walk = &run->model.walk;
    unsigned fit, still_unfit, told = walk->calls | walk->put_back;
    if (run->script.queue_cut || run->script.max_packet || run->model.batch.reads_end ||
        now_of(run) < run->model.batch.moment.grants_from)
        return true;
    for (unsigned i = 0; i < MODEL_SERVERS; i++)
        told |= walk->mail[i];
    order_find(run, &fit, &still_unfit);
    for (unsigned key = 0; key < MODEL_KEYS; key++) {
        if (!((fit & unfit) >> key & 1) || !has_changed(run, &run->rows.requests[key]))
            continue;
        run->judged_calls++;
        if (!(told >> key & 1))
            FAIL(run, "%s fits because of the batch, and is neither granted nor called", key_name(key).data);
    }
    return true;
}

bool order_is_settled(struct run *run)
{
    unsigned fit, unfit;
    order_find(run, &fit, &unfit);
    run->judged_waiters += (unsigned)__builtin_popcount(fit | unfit);
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        if (fit >> key & 1)
            FAIL(run, "%s fits, and is not granted", key_name(key).data);
    return true;
}

/* ---- grants ---- */

/* The place at which a request was judged. One that has never waited has that of its entry now, as its acquire says. */
static utc_us place_of(const struct run *run, const struct request *row, const struct step *step)
{
    int64_t step_us = INT64_MAX;
    if (row && row->waiting_since)
        return row->place;
    for (unsigned i = 0; i < step->want_count; i++)
        step_us = min_i64(step_us, semaphore_priority_step_us(&run->rows.semaphores[step->wants[i].semaphore]));
    return now_of(run) - step->priority * step_us;
}

static bool is_grant(const struct request_change *change)
{
    return change->grants || (change->insert && change->request->state == REQUEST_ACQUIRED);
}

/*
 * Returns the units of a grant, and of those that were decided after it, before which the walk stood: all new requests, and
 * waiters behind it.
 */
static void return_units(const struct run *run, const struct changes *changes, const struct request *granted,
                         struct seen *seen)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *other = changes->requests[i].request;
        bool behind = !other->waiting_since || (granted->waiting_since && is_before(granted, other->place, other->id));
        if (!is_grant(&changes->requests[i]) || (other != granted && !behind))
            continue;
        for (size_t j = 0; j < other->permit_count; j++)
            seen[rows_semaphore(&run->rows, other->permits[j].semaphore_id)].free += other->permits[j].count;
    }
}

static bool check_grant(struct run *run, const struct changes *changes, const struct request *granted,
                        const struct step *step)
{
    struct seen seen[MODEL_SEMAPHORES];
    struct want wants[MODEL_WANTS];
    uint64_t id = granted->waiting_since ? granted->id : UINT64_MAX;
    if (step_is_specific(step))
        return true;
    for (size_t i = 0; i < granted->permit_count; i++)
        wants[i] = (struct want){.semaphore_id = granted->permits[i].semaphore_id, .count = granted->permits[i].count};
    look_at_rows(run, seen);
    return_units(run, changes, granted, seen);
    walk_to(run, seen, place_of(run, granted, step), id, 0);
    if (is_unsure(run, seen, wants, granted->permit_count))
        return true;
    run->judged_grants++;
    if (!fits(run, seen, wants, granted->permit_count))
        FAIL(run, "%.*s is granted, and takes what one before it needs or has reserved",
             (int)granted->external_id.length, granted->external_id.data);
    return true;
}

bool order_holds(struct run *run, const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        const struct step *step = run->model.requests[key_index(request->external_id)].content;
        if (is_grant(&changes->requests[i]) && request->state == REQUEST_ACQUIRED &&
            !check_grant(run, changes, request, step))
            return false;
    }
    return true;
}

bool order_refuses(struct run *run, const struct step *step)
{
    struct seen seen[MODEL_SEMAPHORES];
    struct want wants[MODEL_WANTS];
    bool own_is_dead = run->model.batch.moment.servers_dead >> run->model.batch.moment.server & 1;
    if (run->script.queue_cut || run->script.max_packet || run->model.batch.reads_end || step_is_specific(step) ||
        own_is_dead)
        return true;
    for (unsigned i = 0; i < step->want_count; i++)
        wants[i] = (struct want){.semaphore_id = run->rows.semaphores[step->wants[i].semaphore].id,
                                 .count = step->wants[i].count};
    look_at_rows(run, seen);
    walk_to(run, seen, place_of(run, NULL, step), UINT64_MAX, 1U << step->key);
    for (unsigned i = 0; i < step->want_count; i++)
        if (is_closed(&run->rows.semaphores[step->wants[i].semaphore]))
            return true;
    if (is_unsure(run, seen, wants, step->want_count))
        return true;
    run->judged_refusals++;
    if (fits(run, seen, wants, step->want_count))
        FAIL(run, "%s is refused, and fits beside those before it", key_name(step->key).data);
    return true;
}
