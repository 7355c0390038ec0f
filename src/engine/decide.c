/* SPDX-License-Identifier: MIT */
/* The last step of every operation: completes the decision, counts it, and calls `decided`. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/state.h"

/* The Retry-After of a status; 0: none. */
static int64_t retry_after_ms(enum permit_status status)
{
    if (permit_status_retry(status) == PERMIT_RETRY_NEVER)
        return 0;
    return jittered_ms(status == PERMIT_DATABASE_UNAVAILABLE ? 2000 : 1000);
}

int64_t jittered_ms(int64_t ms)
{
    return ms / 2 + arc4random_uniform((uint32_t)ms + 1);
}

static void count(struct metrics *metrics, const struct op *op, enum permit_status status)
{
    int64_t took = clock_mono() - op->arrived_at;
    metrics_operation(metrics, op->operation->kind, status, op->waited ? -1 : took);
    bool given_up = status == PERMIT_NO_CAPACITY || status == PERMIT_PAUSED;
    if (op->waited)
        metrics_wait(metrics, status == PERMIT_OK ? WAIT_GRANTED : given_up ? WAIT_GIVEN_UP : WAIT_FAILED, took);
}

void decide(struct engine *engine, struct op *op, struct decision *decision)
{
    assert(!op->queued && !op->key_order && !op->waiter);
    if (decision->retry_after_ms == 0)
        decision->retry_after_ms = retry_after_ms(decision->status);
    op_drop_entries(op);
    if (!op_is_of_waiter(op)) /* the clients of a waiter are counted instead of its own op */
        count(&engine->metrics, op, decision->status);
    op->decided(op, decision);
}

void decide_status(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
{
    engine_lock(engine);
    queue_forget_key(&engine->queue, op);
    engine_unlock(engine);
    decide(engine, op, &(struct decision){.status = status, .detail = detail});
}
