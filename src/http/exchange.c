/* SPDX-License-Identifier: MIT */
#include "http/exchange.h"

#include <stdlib.h>

enum {
    ARENA_CHUNK = 192,    /* holds a usual acquire */
    ARENA_MAX = 64 << 20, /* a list of 1,000 requests with all their slots */
    ANSWER_MAX = 64 << 20,
    ANSWER_KEEP = 64 * 1024, /* a recycled exchange does not keep more */
};

static void answer_reset(struct answer *answer)
{
    *answer = (struct answer){
        .http_status = 200,
        .body = answer->body,
        .content_type = "application/json",
    };
}

struct exchange *exchange_new(struct service *service)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    exchange->service = service;
    arena_init(&exchange->arena, ARENA_CHUNK, ARENA_MAX);
    buf_init(&exchange->answer.body, ANSWER_MAX);
    answer_reset(&exchange->answer);
    return exchange;
}

static void part_list_release(struct part_list *batch)
{
    if (!batch)
        return;
    buf_release(&batch->pieces);
    pthread_mutex_destroy(&batch->mutex);
}

struct part_list *exchange_make_batch(struct exchange *exchange, size_t count)
{
    struct part_list *batch = arena_alloc(&exchange->arena, sizeof *batch);
    struct part *parts = arena_array(&exchange->arena, count, sizeof *parts);
    if (!batch || !parts)
        return NULL;
    batch->parts = parts;
    buf_init(&batch->pieces, ANSWER_MAX);
    pthread_mutex_init(&batch->mutex, NULL);
    exchange->batch = batch;
    exchange->part_count = count;
    return batch;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    part_list_release(exchange->batch);
    arena_release(&exchange->arena);
    buf_release(&exchange->answer.body);
    free(exchange);
}

void exchange_clear(struct exchange *exchange)
{
    part_list_release(exchange->batch);
    arena_clear(&exchange->arena);
    if (exchange->answer.body.capacity > ANSWER_KEEP)
        buf_release(&exchange->answer.body);
    buf_clear(&exchange->answer.body);
    answer_reset(&exchange->answer);
    exchange->request = NULL;
    exchange->connection = NULL;
    exchange->batch = NULL;
    exchange->part_count = 0;
    exchange->wait_ms = 0;
    exchange->answered_late = false;
    exchange->of_owner = false;
    exchange->first = (struct part){0};
    memset(exchange->parts, 0, sizeof exchange->parts);
    exchange->values = NULL;
}

bool exchange_commit_sent(struct exchange *exchange)
{
    if (exchange->of_owner)
        return atomic_load(&exchange->owner.commit_sent);
    size_t count;
    struct part *parts = exchange_parts(exchange, &count);
    for (size_t i = 0; i < count; i++)
        if (atomic_load(&parts[i].op.commit_sent))
            return true;
    return false;
}

struct part *exchange_parts(struct exchange *exchange, size_t *ret_count)
{
    *ret_count = exchange->part_count;
    return exchange->batch ? exchange->batch->parts : &exchange->first;
}
