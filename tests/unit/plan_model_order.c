/* SPDX-License-Identifier: MIT */
/*
 * The order of grants, checked by the rows alone, without the model (P20): under `fifo` no request is granted before
 * one that stands before it and whose server is alive; and a new request is never granted what the
 * first waiter could have had.
 */
#include "plan_model.h"

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

void order_note(struct run *run)
{
    for (unsigned key = 0; key < MODEL_KEYS; key++)
        run->asked_before[key] =
            run->rows.requests[key].state == REQUEST_WAITING ? run->rows.requests[key].server_id : 0;
}

/* Returns true if the request waited before the batch and still does, for any slots of open semaphores. */
static bool still_waits(const struct run *run, unsigned key)
{
    const struct request *row = &run->rows.requests[key];
    const struct moment *moment = &run->model.batch.moment;
    uint64_t server = run->asked_before[key];
    bool here = server != moment->server || (run->model.batch.here >> key & 1);
    if (!server || !here || (moment->servers_dead >> server & 1) || row->state != REQUEST_WAITING || !row->server_id ||
        (moment->servers_dead >> row->server_id & 1) || row->ttl.kind == TTL_OWNER || row->ttl.kind == TTL_UNLIMITED)
        return false;
    for (size_t i = 0; i < row->want_count; i++) {
        const struct want *want = &row->wants[i];
        const struct semaphore *semaphore = &run->rows.semaphores[rows_semaphore(&run->rows, want->semaphore_id)];
        if (want_is_specific(want) || semaphore->capacity < want->count || semaphore->paused_reason.data ||
            semaphore->retired_at != NEVER)
            return false;
        if (row->ttl.kind == TTL_DURATION && semaphore->max_ttl_ms >= 0 && row->ttl.ms > semaphore->max_ttl_ms)
            return false;
    }
    return true;
}

static int64_t units_of(const struct request *request, uint64_t semaphore_id)
{
    int64_t units = 0;
    for (size_t i = 0; i < request->permit_count; i++)
        if (request->permits[i].semaphore_id == semaphore_id)
            units += request->permits[i].count;
    return units;
}

static bool share_a_fifo(const struct run *run, const struct request *waiter, const struct request *granted)
{
    for (size_t i = 0; i < waiter->want_count; i++) {
        uint64_t id = waiter->wants[i].semaphore_id;
        if (units_of(granted, id) && run->rows.semaphores[rows_semaphore(&run->rows, id)].queue == QUEUE_FIFO)
            return true;
    }
    return false;
}

static bool stands_before(const struct request *waiter, const struct request *granted)
{
    return granted->place == 0 || waiter->place < granted->place ||
           (waiter->place == granted->place && waiter->id < granted->id);
}

/*
 * Returns the units of a semaphore that the batch has granted to new requests which stand before the waiter, by their
 * priority. They are decided after the waiters, so they may take units that were kept for it until a batch that can decide
 * it; and a new request that came before them had found these units still kept.
 */
static int64_t units_of_new_before(const struct changes *changes, const struct request *waiter, uint64_t semaphore_id)
{
    int64_t units = 0;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *granted = changes->requests[i].request;
        bool before = changes->requests[i].insert && granted->place && !stands_before(waiter, granted);
        units += before ? units_of(granted, semaphore_id) : 0;
    }
    return units;
}

/* Returns true if the waiter would fit now without the grant, and does not because of it. */
static bool is_robbed(const struct run *run, const struct changes *changes, const struct request *waiter,
                      const struct request *granted)
{
    bool fits = true;
    bool would_fit = true;
    for (size_t i = 0; i < waiter->want_count; i++) {
        const struct want *want = &waiter->wants[i];
        const struct semaphore *row = &run->rows.semaphores[rows_semaphore(&run->rows, want->semaphore_id)];
        int64_t free = row->capacity - row->in_use;
        fits = fits && free >= want->count;
        int64_t others = units_of_new_before(changes, waiter, want->semaphore_id);
        would_fit = would_fit && free + units_of(granted, want->semaphore_id) - others >= want->count;
    }
    return would_fit && !fits;
}

static bool share(const struct request *a, const struct request *b)
{
    for (size_t i = 0; i < a->want_count; i++)
        for (size_t j = 0; j < b->want_count; j++)
            if (a->wants[i].semaphore_id == b->wants[j].semaphore_id)
                return true;
    return false;
}

/* Returns true if no request that waits stands before this one in a queue: then no other one is in its way. */
static bool is_head(const struct run *run, unsigned key)
{
    const struct request *rows = run->rows.requests;
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        if (i != key && rows[i].state == REQUEST_WAITING && share(&rows[i], &rows[key]) &&
            stands_before(&rows[i], &rows[key]))
            return false;
    return true;
}

bool order_holds(struct run *run, const struct changes *changes, unsigned several)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        const struct request *granted = change->request;
        bool grants = change->grants || (change->insert && granted->state == REQUEST_ACQUIRED);
        for (unsigned key = 0; grants && key < MODEL_KEYS; key++) {
            const struct request *waiter = &run->rows.requests[key];
            if ((several >> key & 1) || !still_waits(run, key)) /* it may have left and come back in between */
                continue;
            if (stands_before(waiter, granted) && share_a_fifo(run, waiter, granted))
                FAIL(run, "%.*s passes %s under fifo", (int)granted->external_id.length, granted->external_id.data,
                     key_name(key).data);
            if (granted->place == 0 && several == 0 && is_head(run, key) && is_robbed(run, changes, waiter, granted))
                FAIL(run, "%.*s has just arrived and is granted what %s waits for", (int)granted->external_id.length,
                     granted->external_id.data, key_name(key).data);
        }
    }
    return true;
}
