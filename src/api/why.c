/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/requests/{external_id}/why: explains why a request waits, with the holders and waiters in its way. Queues,
 * capacity and holders are read one after the other, so the answer is not a consistent snapshot. It is for people.
 */
#include <stdio.h>

#include "api/access.h"
#include "api/json_out.h"
#include "api/problem.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
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
            .since = rows[i].request.acquired_at,
            .expires_at = request_expires_at(&rows[i].request),
        };
    const struct viewer viewer = viewer_of(exchange);
    engine_judge(exchange->service->engine, &time);
    write_longest_holders(&exchange->answer.body, &viewer, holders, count, &time.clock, time.now);
    return PERMIT_OK;
}

static enum permit_status write_waiting_for(struct exchange *exchange, struct store *store, const struct want *want,
                                            const struct queue_position *position)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    buf_append_text(out, "{\"semaphore\":");
    write_text(out, want->semaphore);
    write_member_i64(out, "requested", want->count);
    write_choice(out, want);
    enum permit_status status = write_semaphore_state(exchange, store, want->semaphore);
    if (status != PERMIT_OK)
        return status;
    write_position(out, &viewer, position);
    status = write_holders(exchange, store, want->semaphore);
    buf_append_char(out, '}');
    return status;
}

static enum permit_status write_why(struct exchange *exchange, struct store *store, const struct request *request,
                                    const struct query_time *time)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    struct queue_position *positions;
    bool kept;
    utc_us *kept_until;
    enum permit_status status = store->queries->ahead(store, request, &exchange->arena, &positions, &kept);
    if (status == PERMIT_OK)
        status = store->queries->kept_until(store, request, 1, 0, time, &exchange->arena, &kept_until);
    if (status != PERMIT_OK)
        return status;
    write_key_begin(out, &viewer, request->external_id);
    buf_append_text(out, ",\"state\":\"WAITING\"");
    write_owner(out, &viewer, request->owner);
    buf_append_text(out, ",\"scope\":\"database\"");
    write_wait(out, request, *kept_until, time);
    buf_append_text(out, ",\"waiting_for\":[");
    for (size_t i = 0; i < request->want_count && status == PERMIT_OK; i++) {
        if (i)
            buf_append_char(out, ',');
        status = write_waiting_for(exchange, store, &request->wants[i], &positions[i]);
    }
    buf_append_text(out, "]}");
    return status;
}

static enum permit_status explain(struct exchange *exchange, struct store *store)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    enum permit_status status =
        store->queries->request(store, exchange->path_values[0], &exchange->arena, &request, &names, &time);
    if (status == PERMIT_OK)
        engine_judge(exchange->service->engine, &time);
    if (status == PERMIT_OK && !access_covers_request(exchange, &request, names))
        status = PERMIT_UNKNOWN_REQUEST;
    if (status != PERMIT_OK)
        return status;
    return request.state == REQUEST_WAITING ? write_why(exchange, store, &request, &time)
                                            : request_write(exchange, store, &request, names, &time);
}

static void why_work(struct query *query, struct store *store, enum permit_status status)
{
    struct exchange *exchange = query_exchange(query);
    char detail[NAME_MAX_BYTES + 100];
    if (status == PERMIT_OK)
        status = explain(exchange, store);
    if (status == PERMIT_UNKNOWN_REQUEST) {
        struct bytes key = key_split(exchange->path_values[0]).key;
        snprintf(detail, sizeof detail, "no request \"%.*s\" waits, is held, or has ended", (int)key.length, key.data);
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
