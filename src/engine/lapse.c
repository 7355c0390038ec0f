/* SPDX-License-Identifier: MIT */
/*
 * What is done about owners every second, or when the next heartbeat is over: the lapse is written, the requests that
 * end with it become expire operations of the engine, and rows that are not needed any more are removed. Of several
 * permitd whoever comes first does it; the others find it done.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/owners.h"

enum {
    LOOK_MS = 1000,
    FORGET_MS = 60 * 1000,
    AT_ONCE_MAX = 1000,  /* expire operations in the engine */
    DEADLINE_MS = 10000, /* of an operation or a call */
};
#define FORGET_AFTER_US (24LL * 3600 * US_PER_SECOND)

/* Calls of our own about these owners, decided when this returns; at most OWNERS_MAX. */
static void call_all(struct owners *owners, enum owner_call_kind kind, const struct owner *about, size_t count,
                     utc_us at)
{
    struct owner_op *ops = arena_array(&owners->look_arena, count, sizeof *ops);
    struct owner_op *pointers[OWNERS_MAX];
    mono_us deadline = clock_mono() + DEADLINE_MS * US_PER_MS;
    if (!ops || count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        utc_us of_owner = kind == OWNER_SETTLE ? about[i].lapsed_at : at;
        ops[i].call = (struct owner_call){.kind = kind, .name = about[i].name, .at = of_owner};
        ops[i].deadline = deadline;
        pointers[i] = &ops[i];
    }
    owners_run(owners, pointers, count);
}

/* ---- lapses ---- */

/* Writes the lapses that are due; *ret_wait_us: until the next one. */
static enum permit_status lapse_due(struct owners *owners, utc_us now, int64_t *ret_wait_us)
{
    struct owner *due;
    size_t count;
    size_t lapsed = 0;
    enum permit_status status =
        owners_due(owners->session, now + LOOK_MS * US_PER_MS, &owners->look_arena, &due, &count);
    if (status != PERMIT_OK)
        return status;
    while (lapsed < count && due[lapsed].due_at < now)
        lapsed++;
    if (lapsed == OWNERS_MAX)
        *ret_wait_us = 0;
    else if (lapsed < count)
        *ret_wait_us = due[lapsed].due_at - now + US_PER_MS;
    call_all(owners, OWNER_LAPSE, due, lapsed, 0);
    return PERMIT_OK;
}

/* ---- what ends with them ---- */

struct ending {
    struct op op;
    struct operation operation;
    struct owners *owners;
    char key[];
};

/* One of them less. The last one makes the thread go on, if there is more and it helped. */
static void ending_less(struct owners *owners)
{
    if (atomic_fetch_sub(&owners->ending, 1) != 1 || !atomic_load(&owners->more) || !atomic_load(&owners->progress))
        return;
    pthread_mutex_lock(&owners->mutex);
    owners->look_soon = true;
    pthread_cond_signal(&owners->woken);
    pthread_mutex_unlock(&owners->mutex);
}

static void ending_decided(struct op *op, const struct decision *decision)
{
    struct ending *ending = CONTAINER_OF(op, struct ending, op);
    struct owners *owners = ending->owners;
    if (decision->status == PERMIT_OK)
        atomic_store(&owners->progress, true);
    free(ending);
    ending_less(owners);
}

/* False: not now. */
static bool end_request_of(struct owners *owners, struct bytes key)
{
    struct engine *engine = owners->engine;
    struct ending *ending = calloc(1, sizeof *ending + key.length);
    if (!ending)
        return false;
    memcpy(ending->key, key.data, key.length);
    ending->owners = owners;
    ending->operation =
        (struct operation){.kind = OP_EXPIRE, .external_id = {ending->key, key.length}, .expire_as = END_OWNER_DEAD};
    op_init(&ending->op, &ending->operation, clock_mono() + DEADLINE_MS * US_PER_MS, ending_decided);
    atomic_fetch_add(&owners->ending, 1);
    if (engine_submit(engine, &ending->op) == PERMIT_OK)
        return true;
    atomic_fetch_sub(&owners->ending, 1);
    free(ending);
    return false;
}

/* Submits what ends with these owners, in their order, up to a bound; how many owners were dealt with. */
static size_t end_requests(struct owners *owners, const struct owner_ends *ends, size_t count)
{
    size_t submitted = 0;
    for (size_t i = 0; i < count; i++) {
        if (submitted >= AT_ONCE_MAX)
            return i;
        for (size_t j = 0; j < ends[i].count; j++, submitted++)
            if (!end_request_of(owners, ends[i].keys[j]))
                return i;
    }
    return count;
}

/*
 * Notes of whose lapse nothing is held any more. What was granted after the read that found nothing was granted after
 * the lapse. Reorders `lapsed`.
 */
static void settle(struct owners *owners, struct owner *lapsed, const struct owner_ends *ends, size_t count)
{
    size_t settled = 0;
    for (size_t i = 0; i < count; i++)
        if (ends[i].count == 0)
            lapsed[settled++] = lapsed[i];
    call_all(owners, OWNER_SETTLE, lapsed, settled, 0);
    if (settled)
        atomic_store(&owners->progress, true);
}

/* The next page begins after this owner; NULL: from the beginning. */
static void remember_place(struct owners *owners, const struct owner *last)
{
    owners->after_at = last ? last->lapsed_at : 0;
    owners->after_length = last ? last->name.length : 0;
    if (last)
        memcpy(owners->after_name, last->name.data, last->name.length);
}

/* One page of the lapsed, when those of the one before have been dealt with. */
static enum permit_status end_page(struct owners *owners)
{
    struct arena *arena = &owners->look_arena;
    struct owner *lapsed;
    size_t count;
    struct owner_ends *ends = arena_array(arena, OWNERS_PAGE, sizeof *ends);
    if (!ends)
        return PERMIT_NO_MEMORY;
    enum permit_status status =
        owners_lapsed(owners->session, owners->after_at, (struct bytes){owners->after_name, owners->after_length},
                      arena, &lapsed, &count);
    if (status == PERMIT_OK)
        status = owners_ends(owners->session, lapsed, count, arena, ends);
    if (status != PERMIT_OK)
        return status;
    size_t done = end_requests(owners, ends, count);
    bool more = done < count || count == OWNERS_PAGE;
    for (size_t i = 0; i < done; i++)
        more |= ends[i].count == OWNERS_ENDS;
    remember_place(owners, count == OWNERS_PAGE && done ? &lapsed[done - 1] : NULL);
    atomic_store(&owners->more, more);
    settle(owners, lapsed, ends, done);
    return PERMIT_OK;
}

static enum permit_status end_lapsed(struct owners *owners)
{
    if (atomic_load(&owners->ending) > 0)
        return PERMIT_OK;
    atomic_store(&owners->more, false);
    atomic_store(&owners->progress, false);
    atomic_store(&owners->ending, 1); /* ours, so that the others do not come to the last one before we know if there is
                                         more */
    enum permit_status status = end_page(owners);
    ending_less(owners);
    return status;
}

/* ---- rows that are not needed any more ---- */

/* A day later nobody asks any more how it ended, and a heartbeat makes a new row. */
static enum permit_status forget_settled(struct owners *owners, utc_us now)
{
    struct owner *settled;
    size_t count;
    if (clock_mono() < owners->next_forget)
        return PERMIT_OK;
    enum permit_status status =
        owners_forgettable(owners->session, now - FORGET_AFTER_US, &owners->look_arena, &settled, &count);
    if (status != PERMIT_OK)
        return status;
    call_all(owners, OWNER_FORGET, settled, count, now - FORGET_AFTER_US);
    owners->next_forget = clock_mono() + (count == OWNERS_MAX ? LOOK_MS : FORGET_MS) * US_PER_MS;
    return PERMIT_OK;
}

void owners_look(struct owners *owners)
{
    struct query_time time;
    int64_t wait_us = LOOK_MS * US_PER_MS;
    arena_clear(&owners->look_arena);
    enum permit_status status = owners_connect(owners);
    if (status == PERMIT_OK)
        status = owners_time(owners->session, &time);
    utc_us now = status == PERMIT_OK ? served_time(&time.clock, time.now) : 0;
    if (status == PERMIT_OK && !owners->in_trouble && clock_mono() >= owners->lapse_from)
        status = lapse_due(owners, now, &wait_us);
    if (status == PERMIT_OK)
        status = end_lapsed(owners);
    if (status == PERMIT_OK)
        status = forget_settled(owners, now);
    owners_note(owners, status);
    owners->next_look = clock_mono() + wait_us;
}
