/* SPDX-License-Identifier: MIT */
/* The last step of every operation: the decision is put together, counted, and handed over. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "engine/state.h"

/* When to come back, by the kind of refusal. */
static int64_t retry_after_ms(enum permit_status status)
{
    if (permit_status_retry(status) == PERMIT_RETRY_NEVER)
        return 0;
    return jittered_ms(status == PERMIT_DATABASE_UNAVAILABLE ? 2000 : 1000);
}

int64_t jittered_ms(int64_t ms)
{
    static _Thread_local uint64_t state;
    if (state == 0)
        state = random_u64() | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ms / 2 + (int64_t)(state % (uint64_t)(ms + 1));
}

static enum wait_end wait_end_of(enum permit_status status)
{
    bool given_up = status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED;
    return status == PERMIT_OK ? WAIT_GRANTED : given_up ? WAIT_GIVEN_UP : WAIT_FAILED;
}

static void count(struct metrics *metrics, const struct op *op, enum permit_status status)
{
    int64_t took = clock_mono() - op->arrived_at;
    metrics_operation(metrics, op->operation->kind, status, op->waited ? -1 : took);
    if (op->waited)
        metrics_wait(metrics, wait_end_of(status), took);
}

void decide(struct engine *engine, struct op *op, struct decision *decision)
{
    if (decision->retry_after_ms == 0)
        decision->retry_after_ms = retry_after_ms(decision->status);
    op_drop_gates(op);
    atomic_fetch_sub(&engine->named_size, op->named_size);
    if (!op->stands) /* a waiter's askers are counted, each for itself */
        count(&engine->metrics, op, decision->status);
    op->decided(op, decision);
}

void decide_status(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
{
    pthread_mutex_lock(&engine->mutex);
    queue_forget_key(&engine->queue, op);
    pthread_mutex_unlock(&engine->mutex);
    decide(engine, op, &(struct decision){.status = status, .detail = detail});
}

static void unref_all(struct engine *engine, struct holders **holders, size_t count)
{
    pthread_mutex_lock(&engine->mutex);
    for (size_t i = 0; i < count; i++)
        holders_unref(holders[i]);
    pthread_mutex_unlock(&engine->mutex);
}

void decide_refusal(struct engine *engine, struct refusal *refusal, struct holders **holders)
{
    struct blocking blocking[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < refusal->count; i++) {
        const struct shortage *shortage = &refusal->shortages[i];
        blocking[i] = (struct blocking){
            .semaphore = shortage->semaphore,
            .capacity = shortage->capacity,
            .in_use = shortage->in_use,
            .requested = shortage->requested,
            .taken = shortage->taken,
            .taken_count = shortage->taken_count,
            .holders = holders[i] ? holders[i]->rows : NULL,
            .holder_count = holders[i] ? holders[i]->count : 0,
            .ahead = refusal->aheads ? refusal->aheads[i].count : 0,
            .ahead_keys = refusal->aheads ? refusal->aheads[i].keys : NULL,
            .ahead_key_count = refusal->aheads ? refusal->aheads[i].key_count : 0,
        };
    }
    struct outcome outcome = {
        .status = PERMIT_NO_CAPACITY, .shortages = refusal->shortages, .shortage_count = refusal->count};
    struct decision decision = {
        .outcome = &outcome,
        .status = PERMIT_NO_CAPACITY,
        .clock = &refusal->clock,
        .now = refusal->now,
        .blocking = blocking,
        .blocking_count = refusal->count,
        .retry_after_ms = refusal->retry_after_ms,
    };
    decide(engine, refusal->op, &decision);
    unref_all(engine, holders, refusal->count);
    free(refusal->aheads);
    free(refusal);
}
