/* SPDX-License-Identifier: MIT */
#include "api/call.h"

struct batch_items *call_make_batch(struct call *call, size_t count)
{
    struct arena *arena = &call->exchange.arena;
    struct batch_items *batch = arena_alloc(arena, sizeof *batch);
    struct batch_item *items = arena_array(arena, count, sizeof *items);
    if (!batch || !items)
        return NULL;
    batch->items = items;
    buf_init(&batch->pieces, call->exchange.answer.body.max);
    batch->pieces.budget = arena->budget; /* the answer itself counts as such */
    mutex_init(&batch->mutex);
    call->batch = batch;
    call->item_count = count;
    return batch;
}

void call_clear(struct exchange *exchange)
{
    struct call *call = call_of(exchange);
    access_end_call(exchange);
    if (call->batch) {
        buf_release(&call->batch->pieces);
        mutex_destroy(&call->batch->mutex);
    }
    call->batch = NULL;
    call->item_count = 0;
    call->wait_ms = 0;
    call->route = NULL;
    call->namespace = (struct bytes){0};
    call->of_owner = false;
    call->first = (struct batch_item){0};
}

struct batch_item *call_items(struct call *call, size_t *ret_count)
{
    *ret_count = call->item_count;
    return call->batch ? call->batch->items : &call->first;
}

bool call_close(struct call *call)
{
    if (call->of_owner)
        return stage_answer(&call->owner.stage);
    if (call->item_count == 0)
        return stage_answer(&call->engine_query.stage);
    bool closed = true;
    size_t count;
    struct batch_item *items = call_items(call, &count);
    for (size_t i = 0; i < count; i++) /* all of them: an unsent operation must not be sent later */
        closed &= stage_answer(&items[i].op.stage);
    return closed;
}
