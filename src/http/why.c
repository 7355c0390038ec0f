/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/requests/{external_id}/why: what a key waits for, and who is in the way. The queue is in memory, capacity and
 * holders are in the database; so it is all of one moment only roughly, which is enough for people.
 */
#include <stdio.h>

#include "base/clock.h"
#include "core/name.h"
#include "http/look.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/write.h"
#include "store/query.h"

enum { HOLDERS_SHOWN = 10 };

/* What is known of the semaphore itself: of one that is retired nothing is. */
static enum permit_status write_semaphore_state(struct exchange *exchange, struct session *session, struct bytes name)
{
    struct buf *out = &exchange->answer.body;
    struct semaphore_row row;
    struct query_time time;
    enum permit_status status = query_semaphore(session, name, &exchange->arena, &row, &time);
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

static enum permit_status write_holders(struct exchange *exchange, struct session *session, struct bytes name)
{
    struct holder_row *rows;
    struct blocking_holder holders[HOLDERS_SHOWN];
    size_t count = 0;
    struct query_time time = {0};
    enum permit_status status = query_holders(session, name, 0, HOLDERS_SHOWN, &exchange->arena, &rows, &count, &time);
    if (status != PERMIT_OK && status != PERMIT_UNKNOWN_SEMAPHORE)
        return status;
    for (size_t i = 0; i < count; i++)
        holders[i] = (struct blocking_holder){
            .external_id = rows[i].request.external_id,
            .owner = rows[i].request.owner,
            .since = served_to_wall(&time.clock, rows[i].request.acquired_at),
            .expires_at = served_to_wall(&time.clock, request_expires_at(&rows[i].request)),
        };
    write_longest_holders(&exchange->answer.body, holders, count, time.now);
    return PERMIT_OK;
}

static enum permit_status write_waiting_for(struct exchange *exchange, struct session *session, const struct want *want,
                                            const struct waiter_place *place)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, "{\"semaphore\":");
    write_text(out, want->semaphore);
    write_member_i64(out, "requested", want->count);
    write_choice(out, want);
    enum permit_status status = write_semaphore_state(exchange, session, want->semaphore);
    if (status != PERMIT_OK)
        return status;
    write_member_i64(out, "place", (int64_t)place->ahead + 1);
    write_member_i64(out, "ahead_count", (int64_t)place->ahead);
    write_keys(out, "ahead", place->ahead_keys, place->ahead_key_count);
    status = write_holders(exchange, session, want->semaphore);
    buf_append_char(out, '}');
    return status;
}

static enum permit_status write_why(struct exchange *exchange, struct session *session, const struct waiter_row *waiter,
                                    const struct waiter_place *places)
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
        status = write_waiting_for(exchange, session, &waiter->wants[i], &places[i]);
    }
    buf_append_text(out, "]}");
    return status;
}

static enum permit_status explain(struct exchange *exchange, struct session *session)
{
    struct waiter_row waiter;
    struct waiter_place *places;
    enum permit_status status =
        engine_find_waiter(exchange->service->engine, exchange->parts[0], &exchange->arena, &waiter, &places);
    if (status == PERMIT_OK)
        return write_why(exchange, session, &waiter, places);
    return status == PERMIT_UNKNOWN_REQUEST ? request_show(exchange, session) : status;
}

static void refuse_unknown(struct exchange *exchange)
{
    char detail[NAME_MAX_BYTES + 100];
    snprintf(detail, sizeof detail,
             "no request \"%.*s\" is held, ended or waiting at this server; it may be waiting at another one",
             (int)exchange->parts[0].length, exchange->parts[0].data);
    problem_answer(exchange, PERMIT_UNKNOWN_REQUEST, detail);
}

static void why_work(struct look *look, struct session *session, enum permit_status status)
{
    struct exchange *exchange = look_exchange(look);
    if (status == PERMIT_OK)
        status = explain(exchange, session);
    if (status == PERMIT_UNKNOWN_REQUEST)
        refuse_unknown(exchange);
    else if (status != PERMIT_OK)
        look_refuse(exchange, session, status);
    exchange_finish(exchange);
}

bool request_why(struct exchange *exchange)
{
    return look_submit(exchange, LOOK_LIST, why_work, NULL);
}
