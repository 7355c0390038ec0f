/* SPDX-License-Identifier: MIT */
/*
 * Heartbeat expiry. The task runs the calls about owners that have gathered. Every second, or when the next heartbeat
 * expires, it records the lapse of the owner, submits expire operations for the requests that end with it, and deletes
 * owner rows that are no longer needed. If there are several servers, the first one does it; the others find it done.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/expire_op.h"
#include "engine/owners.h"
#include "tasks/tasks.h"

enum {
    INTERVAL_MS = 1000,
    DELETE_INTERVAL_MS = 60 * 1000,
    ENDINGS_MAX = 1000,  /* expire operations in the engine, beyond which no further owner is begun */
    DEADLINE_MS = 10000, /* of a call */
};
#define DELETE_AFTER_US (24LL * 3600 * US_PER_SECOND)

/* Runs one call about each of these owners, at most OWNERS_MAX, until all are decided. */
static void run_owner_calls(struct owners *owners, enum owner_call_kind kind, const struct owner *about, size_t count,
                            utc_us at)
{
    struct owner_op *ops = arena_array(&owners->expiry_arena, count, sizeof *ops);
    struct owner_op *pointers[OWNERS_MAX];
    mono_us deadline = clock_mono() + DEADLINE_MS * US_PER_MS;
    if (!ops || count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        utc_us call_at = kind == OWNER_SETTLE ? about[i].lapsed_at : at;
        ops[i].call = (struct owner_call){.kind = kind, .name = about[i].name, .at = call_at};
        ops[i].deadline = deadline;
        pointers[i] = &ops[i];
    }
    owners_run_calls(owners, pointers, count);
}

/* ---- lapses ---- */

/* Records the lapses that are due. *ret_wait_us: time until the next one; unchanged if none is near. */
static enum permit_status lapse_due(struct owners *owners, utc_us now, int64_t *ret_wait_us)
{
    struct owner *due;
    size_t count;
    size_t lapsed = 0;
    enum permit_status status =
        owners->store->owners->due(owners->store, now + INTERVAL_MS * US_PER_MS, &owners->expiry_arena, &due, &count);
    if (status != PERMIT_OK)
        return status;
    while (lapsed < count && due[lapsed].due_at < now)
        lapsed++;
    if (lapsed == OWNERS_MAX)
        *ret_wait_us = 0;
    else if (lapsed < count)
        *ret_wait_us = due[lapsed].due_at - now + US_PER_MS;
    run_owner_calls(owners, OWNER_LAPSE, due, lapsed, 0);
    return PERMIT_OK;
}

/* ---- requests that end with a lapse ---- */

/* Decrements the count; wakes the task for the next page when the last expiry has completed and made progress. */
static void ending_done(struct owners *owners)
{
    if (atomic_fetch_sub(&owners->ending, 1) != 1 || !atomic_load(&owners->more) || !atomic_load(&owners->progress))
        return;
    mutex_lock(&owners->mutex);
    owners->expiry_soon = true;
    pthread_cond_signal(&owners->woken);
    mutex_unlock(&owners->mutex);
}

static void ending_decided(struct op *op, const struct decision *decision)
{
    struct expire_op *ending = CONTAINER_OF(op, struct expire_op, op);
    struct owners *owners = ending->context;
    if (decision->status == PERMIT_OK)
        atomic_store(&owners->progress, true);
    free(ending);
    ending_done(owners);
}

/* Submits the expiry of one request. False: the engine refuses it, or out of memory. */
static bool submit_ending(struct owners *owners, struct bytes key)
{
    struct engine *engine = owners->engine;
    struct expire_op *ending = expire_op_new(key, END_OWNER_DEAD, owners, ending_decided);
    if (!ending)
        return false;
    atomic_fetch_add(&owners->ending, 1);
    if (engine_submit(engine, &ending->op) == PERMIT_OK)
        return true;
    atomic_fetch_sub(&owners->ending, 1);
    free(ending);
    return false;
}

/*
 * Submits the requests that end with these owners, in order, up to ENDINGS_MAX. Returns the number of owners completed.
 */
static size_t submit_endings(struct owners *owners, const struct owner_ends *ends, size_t count)
{
    size_t submitted = 0;
    for (size_t i = 0; i < count; i++) {
        if (submitted >= ENDINGS_MAX)
            return i;
        for (size_t j = 0; j < ends[i].count; j++, submitted++)
            if (!submit_ending(owners, ends[i].keys[j]))
                return i;
    }
    return count;
}

/*
 * Settles the lapses of owners that hold no request from before the lapse. A request granted after that read was
 * granted after the lapse. Reorders `lapsed`.
 */
static void settle_lapses(struct owners *owners, struct owner *lapsed, const struct owner_ends *ends, size_t count)
{
    size_t settled = 0;
    for (size_t i = 0; i < count; i++)
        if (ends[i].count == 0)
            lapsed[settled++] = lapsed[i];
    run_owner_calls(owners, OWNER_SETTLE, lapsed, settled, 0);
    if (settled)
        atomic_store(&owners->progress, true);
}

/* Sets the owner after which the next page begins; NULL: the first page. */
static void set_page_start(struct owners *owners, const struct owner *last)
{
    owners->after_at = last ? last->lapsed_at : 0;
    owners->after_length = last ? last->name.length : 0;
    if (last)
        memcpy(owners->after_name, last->name.data, last->name.length);
}

/* Submits the requests of one page of lapsed owners, and settles the owners without any. */
static enum permit_status end_page(struct owners *owners)
{
    struct arena *arena = &owners->expiry_arena;
    struct owner *lapsed;
    size_t count;
    struct owner_ends *ends = arena_array(arena, OWNERS_PAGE, sizeof *ends);
    if (!ends)
        return PERMIT_NO_MEMORY;
    enum permit_status status =
        owners->store->owners->lapsed(owners->store, owners->after_at,
                                      (struct bytes){owners->after_name, owners->after_length}, arena, &lapsed, &count);
    if (status == PERMIT_OK)
        status = owners->store->owners->ends(owners->store, lapsed, count, arena, ends);
    if (status != PERMIT_OK)
        return status;
    size_t done = submit_endings(owners, ends, count);
    bool more = done < count || count == OWNERS_PAGE;
    for (size_t i = 0; i < done; i++)
        more |= ends[i].count == OWNERS_ENDS;
    set_page_start(owners, count == OWNERS_PAGE && done ? &lapsed[done - 1] : NULL);
    atomic_store(&owners->more, more);
    settle_lapses(owners, lapsed, ends, done);
    return PERMIT_OK;
}

static enum permit_status end_lapsed_requests(struct owners *owners)
{
    if (atomic_load(&owners->ending) > 0)
        return PERMIT_OK;
    atomic_store(&owners->more, false);
    atomic_store(&owners->progress, false);
    atomic_store(&owners->ending, 1); /* this page itself, so that no expiry is the last before `more` is set */
    enum permit_status status = end_page(owners);
    ending_done(owners);
    return status;
}

/* ---- deletion of owner rows ---- */

/* Deletes the rows of owners settled a day ago. A later heartbeat creates a new row. */
static enum permit_status delete_settled(struct owners *owners, utc_us now)
{
    struct owner *settled;
    size_t count;
    if (clock_mono() < owners->next_deletion)
        return PERMIT_OK;
    enum permit_status status =
        owners->store->owners->removable(owners->store, now - DELETE_AFTER_US, &owners->expiry_arena, &settled, &count);
    if (status != PERMIT_OK)
        return status;
    run_owner_calls(owners, OWNER_FORGET, settled, count, now - DELETE_AFTER_US);
    owners->next_deletion = clock_mono() + (count == OWNERS_MAX ? INTERVAL_MS : DELETE_INTERVAL_MS) * US_PER_MS;
    return PERMIT_OK;
}

static void expire_heartbeats(struct owners *owners)
{
    struct query_time time;
    int64_t wait_us = INTERVAL_MS * US_PER_MS;
    arena_clear(&owners->expiry_arena);
    enum permit_status status = task_connect(owners->task);
    if (status == PERMIT_OK)
        status = owners->store->queries->clock(owners->store, &time);
    if (status == PERMIT_OK)
        engine_judge(owners->engine, &time);
    utc_us now = status == PERMIT_OK ? time.clock.due : 0;
    if (status == PERMIT_OK && !owners->task->failing && clock_mono() >= owners->lapse_from)
        status = lapse_due(owners, now, &wait_us);
    if (status == PERMIT_OK)
        status = end_lapsed_requests(owners);
    if (status == PERMIT_OK)
        status = delete_settled(owners, now);
    owners_record_status(owners, status);
    owners->next_expiry = clock_mono() + wait_us;
}

/* Runs calls first, then heartbeat expiry: a queued heartbeat prevents the lapse. */
void heartbeat_expiry_run(struct task *task)
{
    struct owners *owners = task->engine->owners;
    owners_begin(owners, task);
    while (!task_stopping(task)) {
        bool soon = owners_serve(owners);
        bool paused = task_stopping(task) || atomic_load(&task->engine->refusing);
        if (paused)
            owners->next_expiry = clock_mono() + US_PER_SECOND;
        else if (soon || clock_mono() >= owners->next_expiry)
            expire_heartbeats(owners);
    }
    owners_refuse_calls(owners);
}
