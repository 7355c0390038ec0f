/* SPDX-License-Identifier: MIT */
/* POST /v1/fence/bump: an operator raises the epoch, after a restore of an older copy for example. */
#include "http/look.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "store/epoch.h"

struct bump {
    struct bytes reason;
    int64_t hold_ms;
};

static void bump_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    const struct bump *bump = exchange->context;
    struct buf *out = &exchange->answer.body;
    uint64_t epoch = 0;
    bool ready = status == PERMIT_OK;
    if (ready)
        status = epoch_raise(session, EPOCH_OPERATOR, 0, bump->hold_ms, bump->reason, &epoch);
    if (status == PERMIT_OK) {
        buf_append_text(out, "{\"epoch\":");
        buf_append_u64(out, epoch);
        buf_append_text(out, ",\"tokens_from\":");
        buf_append_u64(out, epoch << 10);
        buf_append_text(out, ",\"hold_ms\":");
        buf_append_i64(out, bump->hold_ms);
        buf_append_char(out, '}');
    } else if (ready && status == PERMIT_DATABASE_LOST) {
        problem_answer(exchange, PERMIT_OUTCOME_UNKNOWN, "the epoch may have risen or not; twice does no harm");
    } else {
        look_refuse(exchange, status);
    }
    exchange_finish(exchange);
}

bool fence_bump(struct exchange *exchange)
{
    struct bump *bump = arena_alloc(&exchange->arena, sizeof *bump);
    if (!bump)
        return problem_answer(exchange, PERMIT_BUSY, NULL);
    enum permit_status status = operation_read_reason(exchange, &bump->reason);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&exchange->service->message));
    bump->hold_ms = exchange->service->failover_hold_ms;
    return look_submit(exchange, bump_work, bump);
}
