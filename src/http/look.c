/* SPDX-License-Identifier: MIT */
#include "http/look.h"

#include "base/log.h"
#include "http/not_found.h"
#include "http/operations.h"
#include "http/problem.h"
#include "http/service.h"
#include "http/write.h"

struct exchange *look_exchange(struct look *look)
{
    return CONTAINER_OF(look, struct exchange, look);
}

static bool submit(struct exchange *exchange, enum look_lane lane, look_work *work, void *context, bool always)
{
    exchange->context = context;
    exchange->look.work = work;
    exchange->look.lane = lane;
    exchange->look.always = always;
    exchange->look.deadline = exchange->deadline;
    enum permit_status status = engine_look(exchange->service->engine, &exchange->look);
    return status == PERMIT_OK ? false : operation_not_taken(exchange, status, BOUND_LOOKS);
}

bool look_submit(struct exchange *exchange, enum look_lane lane, look_work *work, void *context)
{
    return submit(exchange, lane, work, context, false);
}

bool look_submit_always(struct exchange *exchange, enum look_lane lane, look_work *work, void *context)
{
    return submit(exchange, lane, work, context, true);
}

enum permit_status look_begin_change(struct exchange *exchange)
{
    return stage_send(&exchange->look.stage) ? PERMIT_OK : PERMIT_BUSY;
}

void look_refuse(struct exchange *exchange, struct session *session, enum permit_status status)
{
    if (status == PERMIT_INTERNAL)
        log_write(LOG_ERROR, "query failed", "request_id", exchange->id, NULL);
    if (not_found_answer(exchange, session, status, exchange->parts[0]))
        return;
    const char *detail =
        status == PERMIT_BUSY ? "the database took too long; ask for a smaller page, or retry later" : NULL;
    problem_answer(exchange, operation_public_status(status), detail);
}

bool query_number(struct exchange *exchange, size_t index, const char *name, uint64_t min, uint64_t max,
                  uint64_t fallback, uint64_t *ret_number)
{
    struct bytes text = exchange->values[index];
    uint64_t number = 0;
    bool good = text.data == NULL || (text.length > 0 && text.length <= 19);
    for (size_t i = 0; good && i < text.length; i++) {
        good = text.data[i] >= '0' && text.data[i] <= '9';
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (!text.data)
        number = fallback;
    if (good && (!text.data || (number >= min && number <= max))) {
        *ret_number = number;
        return true;
    }
    struct buf *message = &exchange->service->message;
    buf_clear(message);
    buf_printf(message, "%s must be a whole number from %llu to %llu", name, (unsigned long long)min,
               (unsigned long long)max);
    return !problem_answer(exchange, PERMIT_INVALID, buf_text(message));
}

bool query_flag(struct exchange *exchange, size_t index, const char *name, bool *ret_flag)
{
    struct bytes text = exchange->values[index];
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

void list_begin(struct exchange *exchange, const char *name)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, "{\"");
    buf_append_text(out, name);
    buf_append_text(out, "\":[");
}

void list_next_text(struct exchange *exchange, struct bytes next)
{
    buf_append_char(&exchange->answer.body, ']');
    write_member_text(&exchange->answer.body, "next", next);
    buf_append_char(&exchange->answer.body, '}');
}

void list_next_number(struct exchange *exchange, uint64_t next)
{
    buf_append_text(&exchange->answer.body, "],\"next\":\"");
    buf_append_u64(&exchange->answer.body, next);
    buf_append_text(&exchange->answer.body, "\"}");
}

void list_end(struct exchange *exchange)
{
    buf_append_text(&exchange->answer.body, "]}");
}
