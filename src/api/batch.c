/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/batch: up to 1,000 independent operations, each decided like a single one, answered together in the order of
 * the request. Several engine threads decide the operations: each writes its result into the batch's pieces under the
 * batch's mutex, and the thread that decides the last operation puts the pieces in order.
 */
#include <assert.h>

#include "api/access.h"
#include "api/json_in.h"
#include "api/operations.h"
#include "api/problem.h"
#include "api/refusal.h"
#include "api/routes.h"
#include "api/service.h"

enum { BATCH_REQUEST_MAX = 1000 };

static enum permit_status read_operation(struct exchange *exchange, struct bytes object, struct batch_item *item)
{
    static const enum operation_kind kinds[] = {OP_ACQUIRE, OP_RELEASE, OP_RENEW, OP_CONFIRM};
    struct bytes word = wire_find(object, "op");
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        if (word.length && wire_is_word(word, operation_kind_word(kinds[i])))
            return operation_read_batched(exchange, object, kinds[i], item);
    buf_clear(&exchange->service->message);
    buf_append_text(&exchange->service->message, "op must be acquire, release, renew or confirm");
    return PERMIT_INVALID;
}

/* Writes all results in the order of the request. */
static void batch_assemble(struct call *call)
{
    struct buf *out = &call->exchange.answer.body;
    buf_append_text(out, "{\"results\":[");
    for (size_t i = 0; i < call->item_count; i++) {
        const struct batch_item *item = &call->batch->items[i];
        call->exchange.answer.must_arrive |= item_is_generated_grant(item);
        buf_append_text(out, i ? ",{\"status\":" : "{\"status\":");
        buf_append_i64(out, item->http_status);
        buf_append_text(out, ",\"body\":");
        if (!call->batch->pieces.broken)
            buf_append(out, call->batch->pieces.data + item->offset, item->length);
        buf_append_char(out, '}');
    }
    buf_append_text(out, "]}");
    out->broken |= call->batch->pieces.broken;
}

/* Decrements the count of undecided operations. Returns true for the last one. */
static bool batch_count_down(struct batch_items *batch)
{
    mutex_lock(&batch->mutex);
    assert(batch->remaining > 0);
    bool last = --batch->remaining == 0;
    mutex_unlock(&batch->mutex);
    return last;
}

static void item_decided(struct op *op, const struct decision *decision)
{
    struct batch_item *item = CONTAINER_OF(op, struct batch_item, op);
    struct call *call = call_of(item->exchange);
    struct batch_items *batch = call->batch;
    enum permit_status status;
    if (refusal_begin(item, decision))
        return;
    mutex_lock(&batch->mutex);
    item->offset = batch->pieces.length;
    operation_write_decision(&batch->pieces, item, decision, &status, &item->http_status);
    item->length = batch->pieces.length - item->offset;
    mutex_unlock(&batch->mutex);
    refusal_end(item);
    if (!batch_count_down(batch))
        return;
    batch_assemble(call);
    exchange_finish(&call->exchange);
}

/* Refuses one operation. The others continue. */
static void item_refuse(struct batch_item *item, enum permit_status status, const char *detail)
{
    struct batch_items *batch = call_of(item->exchange)->batch;
    mutex_lock(&batch->mutex);
    item->offset = batch->pieces.length;
    item->http_status = permit_status_http(operation_public_status(status));
    operation_write_refusal(&batch->pieces, item, status, detail);
    item->length = batch->pieces.length - item->offset;
    assert(batch->remaining > 0);
    batch->remaining--;
    mutex_unlock(&batch->mutex);
}

static bool batch_submit(struct exchange *exchange)
{
    struct call *call = call_of(exchange);
    for (size_t i = 0; i < call->item_count; i++) {
        struct batch_item *item = &call->batch->items[i];
        if (item->http_status)
            continue; /* refused already */
        access_mark(exchange, &item->operation);
        op_init(&item->op, &item->operation, exchange->deadline, item_decided);
        enum permit_status status = engine_submit(exchange->service->engine, &item->op);
        if (status != PERMIT_OK)
            item_refuse(item, status, refusal_reason(exchange, status, item->op.bound));
    }
    if (!batch_count_down(call->batch))
        return false;
    batch_assemble(call);
    return true;
}

/*
 * Reads all operations. An invalid operation is refused alone; a malformed body refuses the whole batch, and nothing is
 * submitted.
 */
static enum permit_status read_operations(struct exchange *exchange, struct wire_list *list)
{
    struct batch_items *batch = call_make_batch(call_of(exchange), list->count);
    if (!batch)
        return PERMIT_NO_MEMORY;
    batch->remaining = list->count + 1; /* 1 for batch_submit: no thread finishes the batch before all are submitted */
    for (size_t i = 0; i < list->count; i++) {
        struct batch_item *item = &batch->items[i];
        item->exchange = exchange;
        enum permit_status status = read_operation(exchange, wire_next(list), item);
        if (status == PERMIT_MALFORMED)
            return status;
        if (status != PERMIT_OK)
            item_refuse(item, status, buf_text(&exchange->service->message));
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
    const struct wire_reading reading = reading_of(exchange);
    struct wire_list list = {.count = 0};
    enum permit_status status = wire_read_body(&reading, exchange->body, &limit, &table, &list);
    if (!quota_take(exchange, QUOTA_RATE, status == PERMIT_OK ? (int64_t)list.count : 1))
        return true;
    if (!quota_has_answers(exchange))
        return true;
    if (status == PERMIT_OK)
        status = read_operations(exchange, &list);
    if (status != PERMIT_OK)
        return operation_refuse(exchange, status);
    return batch_submit(exchange);
}
