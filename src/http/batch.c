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

struct batch_form {
    struct json_object *operations;
};

static const struct wire_member batch_members[] = {
    {"operations", WIRE_LIST, true, offsetof(struct batch_form, operations), 0, 1, INT64_MAX, NULL,
     "an array of 1 to 1000 operations"},
};
static const struct wire_table batch_table = {batch_members, ARRAY_LENGTH(batch_members)};

/* The word of `op`, and who reads the operation. */
static enum permit_status read_acquire(struct exchange *exchange, struct json_object *object, struct part *part)
{
    return operation_read_acquire(exchange, object, true, (struct bytes){0}, part);
}

static const struct {
    const char *word;
    enum permit_status (*read)(struct exchange *exchange, struct json_object *object, struct part *part);
} batch_operations[] = {
    {"acquire", read_acquire},
    {"release", operation_read_batched_release},
    {"renew", operation_read_batched_renew},
    {"confirm", operation_read_batched_confirm},
};

static enum permit_status read_operation(struct exchange *exchange, struct json_object *object, struct part *part)
{
    struct bytes word = wire_peek_text(object, "op");
    for (size_t i = 0; i < ARRAY_LENGTH(batch_operations); i++)
        if (word.data && bytes_equal(word, bytes_of(batch_operations[i].word)))
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
        part_refuse(part, status, operation_why_not_taken(part->exchange, status, operation_bound(&part->op)));
}

/* Reads all before the first is submitted: nothing is done by a body that turns out malformed further on. */
static void batch_read(struct exchange *exchange, struct json_object *list)
{
    for (size_t i = 0; i < exchange->part_count; i++) {
        struct part *part = &exchange->batch->parts[i];
        part->exchange = exchange;
        enum permit_status status = read_operation(exchange, wire_list_at(list, i), part);
        if (status != PERMIT_OK)
            part_refuse(part, status, buf_text(&exchange->service->message));
    }
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

static enum permit_status batch_prepare(struct exchange *exchange, struct json_object *object)
{
    struct batch_form form = {0};
    struct buf *message = &exchange->service->message;
    enum permit_status status = wire_read(object, &batch_table, "", &form, &exchange->arena, message);
    if (status != PERMIT_OK)
        return status;
    size_t count = wire_list_length(form.operations);
    if (count > BATCH_REQUEST_MAX) {
        buf_printf(message, "%zu operations; at most %d are taken at once", count, BATCH_REQUEST_MAX);
        return PERMIT_TOO_LARGE;
    }
    if (!exchange_make_batch(exchange, count))
        return PERMIT_NO_MEMORY;
    exchange->batch->remaining = count + 1; /* one for this handler, so that nobody finishes before all are submitted */
    batch_read(exchange, form.operations);
    return PERMIT_OK;
}

bool request_batch(struct exchange *exchange)
{
    struct service *service = exchange->service;
    struct json_object *object;
    enum permit_status status = wire_parse(service->wire, exchange->body, &object, &service->message);
    if (status == PERMIT_OK) {
        status = batch_prepare(exchange, object);
        wire_drop(object);
    }
    if (status != PERMIT_OK)
        return problem_answer(exchange, operation_public_status(status), buf_text(&service->message));
    return batch_submit(exchange);
}
