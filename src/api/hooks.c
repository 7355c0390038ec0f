/* SPDX-License-Identifier: MIT */
#include "api/hooks.h"

#include "api/abandoned_grant.h"
#include "api/access.h"
#include "api/call.h"
#include "api/feed.h"
#include "api/json_out.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/service.h"

/*
 * Answers instead of the engine. An operation that was sent with a COMMIT may have been done; no other will be (P22).
 * The answer names the key, because it may have been generated.
 */
static void time_out(struct exchange *exchange, struct answer *answer)
{
    struct call *call = call_of(exchange);
    enum permit_status status = PERMIT_OUTCOME_UNKNOWN;
    if (call_close(call))
        status = engine_database_up(exchange->service->engine) ? PERMIT_BUSY : PERMIT_DATABASE_UNAVAILABLE;
    problem_head(answer, status, 0);
    problem_begin(&answer->body, status, NULL);
    const struct operation *operation = &call->first.operation;
    if (call->item_count == 1 && !call->batch && operation->external_id.data && !operation->keys)
        write_member_text(&answer->body, "external_id", key_split(operation->external_id).key);
    problem_retry_after(&answer->body, answer->retry_after_ms);
    problem_end(&answer->body);
}

/* Two kinds of calls wait: a reader of the feed, and an acquire that is the only operation of its call. */
static bool abandon(struct exchange *exchange)
{
    return feed_is_read(exchange) ? feed_abandon(exchange)
                                  : engine_abandon(exchange->service->engine, &call_of(exchange)->first.op);
}

const struct server_hooks api_hooks = {
    .exchange_size = sizeof(struct call),
    .admit = routes_admit,
    .readmit = access_readmit,
    .handle = routes_handle,
    .refuse = problem_write,
    .refuse_share = quota_refuse_share,
    .time_out = time_out,
    .abandon = abandon,
    .may_wait = access_may_wait,
    .end_session = access_end_session,
    .undelivered = abandoned_grants_release,
    .clear = call_clear,
};
