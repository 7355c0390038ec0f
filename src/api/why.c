/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/requests/{external_id}/why: explains why a request waits, with the holders and waiters in its way. The
 * waitlist is in memory, capacity and holders are in the database, so the answer is not a consistent snapshot. It is
 * for people.
 */
#include <stdio.h>

#include "api/json_out.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/clock.h"
#include "core/name.h"
#include "store/query.h"

enum { HOLDERS_SHOWN = 10 };

/* Writes the state of a semaphore; of a retired one only that it is retired. */
static enum permit_status write_semaphore_state(struct exchange *exchange, struct store *store, struct bytes name)
{
    struct buf *out = &exchange->answer.body;
    struct semaphore_row row;
    struct query_time time;
    enum permit_status status = store->queries->semaphore(store, name, &exchange->arena, &row, &time);
    if (status == PERMIT_UNKNOWN_SEMAPHORE)
        buf_append_text(out, ",\"retired\":true");
    if (status != PERMIT_OK)
        return status == PERMIT_UNKNOWN_SEMAPHORE ? PERMIT_OK : status;
    write_member_i64(out, "capacity", row.semaphore.capacity);
    write_member_i64(out, "in_use", row.semaphore.in_use);
    if (row.semaphore.paused_reason.data)
        write_member_text(out, "paused_reason", row.semaphore.paused_reason);
    return PERMIT_OK;
}

static enum permit_status write_holders(struct exchange *exchange, struct store *store, struct bytes name)
{
    struct holder_row *rows;
    struct blocking_holder holders[HOLDERS_SHOWN];
    size_t count = 0;
    struct query_time time = {0};
    enum permit_status status =
        store->queries->holders(store, name, 0, HOLDERS_SHOWN, &exchange->arena, &rows, &count, &time);
    if (status != PERMIT_OK && status != PERMIT_UNKNOWN_SEMAPHORE)
        return status;
    for (size_t i = 0; i < count; i++)
        holders[i] = (struct blocking_holder){
            .external_id = rows[i].request.external_id,
            .owner = rows[i].request.owner,
            .since = lease_to_wall(&time.clock, rows[i].request.acquired_at),
            .expires_at = lease_to_wall(&time.clock, request_expires_at(&rows[i].request)),
        };
    write_longest_holders(&exchange->answer.body, holders, count, time.now);
    return PERMIT_OK;
}

static enum permit_status write_waiting_for(struct exchange *exchange, struct store *store, const struct want *want,
                                            const struct waiters_ahead *place)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, "{\"semaphore\":");
    write_text(out, want->semaphore);
    write_member_i64(out, "requested", want->count);
    write_choice(out, want);
    enum permit_status status = write_semaphore_state(exchange, store, want->semaphore);
    if (status != PERMIT_OK)
        return status;
    write_member_i64(out, "place", (int64_t)place->ahead + 1);
    write_member_i64(out, "ahead_count", (int64_t)place->ahead);
    write_keys(out, "ahead", place->ahead_keys, place->ahead_key_count);
    status = write_holders(exchange, store, want->semaphore);
    buf_append_char(out, '}');
    return status;
}

static enum permit_status write_why(struct exchange *exchange, struct store *store, const struct waiter_row *waiter,
                                    const struct waiters_ahead *places)
{
    struct buf *out = &exchange->answer.body;
    enum permit_status status = PERMIT_OK;
    buf_append_text(out, "{\"external_id\":");
    write_text(out, waiter->external_id);
    buf_append_text(out, ",\"state\":\"WAITING\"");
    if (waiter->owner.length)
        write_member_text(out, "owner", waiter->owner);
    buf_append_text(out, ",\"scope\":\"process\"");
    write_wait(out, waiter, clock_wall());
    buf_append_text(out, ",\"waiting_for\":[");
    for (size_t i = 0; i < waiter->want_count && status == PERMIT_OK; i++) {
        if (i)
            buf_append_char(out, ',');
        status = write_waiting_for(exchange, store, &waiter->wants[i], &places[i]);
    }
    buf_append_text(out, "]}");
    return status;
}

static enum permit_status explain(struct exchange *exchange, struct store *store)
{
    struct waiter_row waiter;
    struct waiters_ahead *places;
    enum permit_status status =
        engine_find_waiter(exchange->service->engine, exchange->path_values[0], &exchange->arena, &waiter, &places);
    if (status == PERMIT_OK)
        return write_why(exchange, store, &waiter, places);
    return status == PERMIT_UNKNOWN_REQUEST ? request_show(exchange, store) : status;
}

static void why_work(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    char detail[NAME_MAX_BYTES + 100];
    if (status == PERMIT_OK)
        status = explain(exchange, store);
    if (status == PERMIT_UNKNOWN_REQUEST) {
        snprintf(detail, sizeof detail,
                 "no request \"%.*s\" is held, ended or waiting at this server; it may be waiting at another one",
                 (int)exchange->path_values[0].length, exchange->path_values[0].data);
        problem_answer(exchange, status, detail);
    } else if (status != PERMIT_OK) {
        query_refuse(exchange, store, status);
    }
    exchange_finish(exchange);
}

bool request_why(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_LIST, why_work, NULL);
}
