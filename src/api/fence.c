/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/fence/bump: an operator raises the token epoch, for example after an older copy of the database was
 * restored.
 */
#include <stdio.h>

#include "api/call.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "store/epoch.h"

struct bump {
    struct bytes reason;
    int64_t hold_ms;
};

static void write_epoch(struct buf *out, uint64_t epoch)
{
    buf_append_text(out, "\"epoch\":");
    buf_append_u64(out, epoch);
    buf_append_text(out, ",\"tokens_from\":");
    buf_append_u64(out, epoch << 10);
}

/*
 * Refuses a bump that follows another too soon. The answer shows the epoch of the last bump, because a client that lost
 * its answer may have done it.
 */
static void refuse_too_soon(struct exchange *exchange, uint64_t epoch, int64_t wait_ms)
{
    char detail[STORE_MESSAGE_SIZE];
    struct answer *answer = &exchange->answer;
    snprintf(detail, sizeof detail,
             "tokens were raised recently; each time grants stop for a while, so the next one is possible in %lld ms",
             (long long)wait_ms);
    problem_head(answer, PERMIT_TOO_MANY, wait_ms);
    problem_begin(&answer->body, PERMIT_TOO_MANY, detail);
    buf_append_char(&answer->body, ',');
    write_epoch(&answer->body, epoch);
    problem_retry_after(&answer->body, answer->retry_after_ms);
    problem_end(&answer->body);
}

static enum permit_status answer_bump(struct exchange *exchange, struct store *store)
{
    const struct bump *bump = exchange->context;
    struct buf *out = &exchange->answer.body;
    struct epoch_advance advance = {.cause = EPOCH_OPERATOR, .hold_ms = bump->hold_ms, .why = bump->reason};
    enum permit_status status = query_begin_change(exchange);
    if (status != PERMIT_OK)
        return status;
    status = store->clock->advance_epoch(store, &advance);
    if (status == PERMIT_OK) {
        buf_append_char(out, '{');
        write_epoch(out, advance.ret_epoch);
        buf_append_text(out, ",\"hold_ms\":");
        buf_append_i64(out, bump->hold_ms);
        buf_append_char(out, '}');
    } else if (status == PERMIT_TOO_MANY) {
        refuse_too_soon(exchange, advance.ret_epoch, advance.ret_wait_ms);
    } else if (status == PERMIT_DATABASE_LOST) {
        problem_answer(exchange, PERMIT_OUTCOME_UNKNOWN,
                       "the epoch may or may not have been raised; repeat the request to find out");
    } else {
        return status;
    }
    return PERMIT_OK;
}

bool fence_bump(struct exchange *exchange)
{
    struct bump *bump = arena_alloc(&exchange->arena, sizeof *bump);
    if (!bump)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = operation_read_reason(exchange, &bump->reason);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    call_of(exchange)->caller.why = bump->reason;
    bump->hold_ms = engine_settings_now(exchange->service->engine).failover_hold_ms;
    return query_submit(exchange, QUERY_OPERATOR, answer_bump, bump);
}
