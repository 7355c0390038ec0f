/* SPDX-License-Identifier: MIT */
#include "api/queries.h"

#include "api/not_found.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/service.h"
#include "base/log.h"

struct exchange *query_exchange(struct query *query)
{
    return &CONTAINER_OF(query, struct call, engine_query)->exchange;
}

static bool submit(struct exchange *exchange, enum query_lane lane, query_work *work, void *context, bool always)
{
    struct query *query = &call_of(exchange)->engine_query;
    exchange->context = context;
    query->work = work;
    query->lane = lane;
    query->always = always;
    query->deadline = exchange->deadline;
    query->turn.principal = access_name(exchange);
    enum permit_status status = engine_query(exchange->service->engine, query);
    return status == PERMIT_OK ? false : operation_reject(exchange, status, BOUND_QUERIES);
}

static void run_answer(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    if (status == PERMIT_OK)
        status = call_of(exchange)->answer_query(exchange, store);
    if (status != PERMIT_OK)
        query_refuse(exchange, store, status);
    exchange_finish(exchange);
}

bool query_submit(struct exchange *exchange, enum query_lane lane, query_answer *answer, void *context)
{
    call_of(exchange)->answer_query = answer;
    return submit(exchange, lane, run_answer, context, false);
}

bool query_submit_work(struct exchange *exchange, enum query_lane lane, query_work *work, void *context)
{
    return submit(exchange, lane, work, context, false);
}

bool query_submit_always(struct exchange *exchange, enum query_lane lane, query_work *work, void *context)
{
    return submit(exchange, lane, work, context, true);
}

enum permit_status query_begin_change(struct exchange *exchange)
{
    return stage_send(&call_of(exchange)->engine_query.stage) ? PERMIT_OK : PERMIT_BUSY;
}

void query_refuse(struct exchange *exchange, struct store *store, enum permit_status status)
{
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "query failed", "request_id", exchange->id, NULL);
    if (not_found_answer(exchange, store, status, exchange->path_values[0]))
        return;
    const char *detail = status == PERMIT_BUSY ? "the database took too long; ask for a smaller page, or retry later"
                         : status == PERMIT_TOO_LARGE && store ? store->message
                                                               : NULL;
    problem_answer(exchange, operation_public_status(status), detail);
}

struct bytes query_param(const struct exchange *exchange, const char *name)
{
    return router_query_value(exchange, CONTAINER_OF(exchange, struct call, exchange)->route, name);
}

bool param_number(struct exchange *exchange, const char *name, uint64_t min, uint64_t max, uint64_t fallback,
                  uint64_t *ret_number)
{
    struct bytes text = query_param(exchange, name);
    uint64_t number = fallback;
    if (!text.data || (bytes_read_u64(text, max, &number) && number >= min)) {
        *ret_number = number;
        return true;
    }
    struct buf *message = &exchange->service->message;
    buf_clear(message);
    buf_printf(message, "%s must be a whole number from %llu to %llu", name, (unsigned long long)min,
               (unsigned long long)max);
    return !problem_answer(exchange, PERMIT_INVALID, buf_text(message));
}

bool param_flag(struct exchange *exchange, const char *name, bool *ret_flag)
{
    struct bytes text = query_param(exchange, name);
    bool yes = bytes_equal(text, BYTES("true"));
    if (!text.data || yes || bytes_equal(text, BYTES("false"))) {
        *ret_flag = yes;
        return true;
    }
    struct buf *message = &exchange->service->message;
    buf_clear(message);
    buf_printf(message, "%s must be true or false", name);
    return !problem_answer(exchange, PERMIT_INVALID, buf_text(message));
}
