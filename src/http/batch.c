/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/batch: up to 1,000 operations, each for itself and decided like a single one, answered together in the order
 * of the request. Parts are decided by several engine threads: what they write goes into the batch's pieces under its
 * mutex, and whoever decides the last one puts the pieces in order.
 */
#include "http/operations.h"
#include "http/problem.h"
#include "http/routes.h"
#include "http/service.h"
#include "http/wire.h"

enum { BATCH_REQUEST_MAX = 1000 };

/* The word of `op`, and who reads the operation. */
static const struct {
    const char *word;
    enum permit_status (*read)(struct exchange *exchange, struct bytes object, struct part *part);
} batch_operations[] = {
    {"acquire", operation_read_batched_acquire},
    {"release", operation_read_batched_release},
    {"renew", operation_read_batched_renew},
    {"confirm", operation_read_batched_confirm},
};

static enum permit_status read_operation(struct exchange *exchange, struct bytes object, struct part *part)
{
    struct bytes word = wire_find(object, "op");
    for (size_t i = 0; i < ARRAY_LENGTH(batch_operations); i++)
        if (word.length && wire_is_word(word, batch_operations[i].word))
            return batch_operations[i].read(exchange, object, part);
    buf_clear(&exchange->service->message);
    buf_append_text(&exchange->service->message, "op must be acquire, release, renew or confirm");
    return PERMIT_INVALID;
}

/* All pieces, in the order of the request. */
static void batch_assemble(struct exchange *exchange)
{
    struct buf *out = &exchange->answer.body;
    buf_append_text(out, "{\"results\":[");
    for (size_t i = 0; i < exchange->part_count; i++) {
        const struct part *part = &exchange->batch->parts[i];
        buf_append_text(out, i ? ",{\"status\":" : "{\"status\":");
        buf_append_i64(out, part->http_status);
        buf_append_text(out, ",\"body\":");
        if (!exchange->batch->pieces.broken)
            buf_append(out, exchange->batch->pieces.data + part->offset, part->length);
        buf_append_char(out, '}');
    }
    buf_append_text(out, "]}");
    out->broken |= exchange->batch->pieces.broken;
}

/* One less to decide; true for whoever took the last one. */
static bool batch_count_down(struct exchange *exchange)
{
    pthread_mutex_lock(&exchange->batch->mutex);
    bool last = --exchange->batch->remaining == 0;
    pthread_mutex_unlock(&exchange->batch->mutex);
    return last;
}

static void part_decided(struct op *op, const struct decision *decision)
{
    struct part *part = CONTAINER_OF(op, struct part, op);
    struct exchange *exchange = part->exchange;
    enum permit_status status;
    pthread_mutex_lock(&exchange->batch->mutex);
    part->offset = exchange->batch->pieces.length;
    operation_answer(&exchange->batch->pieces, part, decision, &status, &part->http_status);
    part->length = exchange->batch->pieces.length - part->offset;
    pthread_mutex_unlock(&exchange->batch->mutex);
    if (!batch_count_down(exchange))
        return;
    batch_assemble(exchange);
    exchange_finish(exchange);
}

/* Refused alone; the others go on. */
static void part_refuse(struct part *part, enum permit_status status, const char *detail)
{
    struct exchange *exchange = part->exchange;
    pthread_mutex_lock(&exchange->batch->mutex);
    part->offset = exchange->batch->pieces.length;
    part->http_status = permit_status_http(operation_public_status(status));
    operation_refusal(&exchange->batch->pieces, part, status, detail);
    part->length = exchange->batch->pieces.length - part->offset;
    exchange->batch->remaining--;
    pthread_mutex_unlock(&exchange->batch->mutex);
}

static void part_submit(struct part *part)
{
    op_init(&part->op, &part->operation, part->exchange->deadline, part_decided);
    enum permit_status status = engine_submit(part->exchange->service->engine, &part->op);
    if (status != PERMIT_OK)
        part_refuse(part, status, operation_why_not_taken(part->exchange, status, part->op.bound));
}

static bool batch_submit(struct exchange *exchange)
{
    for (size_t i = 0; i < exchange->part_count; i++)
        if (!exchange->batch->parts[i].http_status)
            part_submit(&exchange->batch->parts[i]);
    if (!batch_count_down(exchange))
        return false;
    batch_assemble(exchange);
    return true;
}

/* An operation of bad form is refused alone. But a body that turns out malformed does nothing at all. */
static enum permit_status read_operations(struct exchange *exchange, struct wire_list *list)
{
    if (!exchange_make_batch(exchange, list->count))
        return PERMIT_NO_MEMORY;
    exchange->batch->remaining = list->count + 1; /* one for batch_submit: nobody finishes before all are submitted */
    for (size_t i = 0; i < list->count; i++) {
        struct part *part = &exchange->batch->parts[i];
        part->exchange = exchange;
        enum permit_status status = read_operation(exchange, wire_next(list), part);
        if (status == PERMIT_MALFORMED)
            return status;
        if (status != PERMIT_OK)
            part_refuse(part, status, buf_text(&exchange->service->message));
    }
    return PERMIT_OK;
}

bool request_batch(struct exchange *exchange)
{
    static const struct wire_member operations = {
        "operations", WIRE_LIST, true, 0, 0, 1, BATCH_REQUEST_MAX, NULL, "an array of 1 to 1000 operations"};
    static const struct wire_table table = {&operations, 1};
    static const struct wire_limit limit = {BATCH_REQUEST_MAX, PERMIT_TOO_LARGE,
                                            "a batch takes at most 1000 operations"};
    struct buf *message = &exchange->service->message;
    struct wire_list list = {.count = 0};
    enum permit_status status = wire_read_body(exchange->body, &limit, &table, &list, &exchange->arena, message);
    if (status == PERMIT_OK)
        status = read_operations(exchange, &list);
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(message));
    return batch_submit(exchange);
}
