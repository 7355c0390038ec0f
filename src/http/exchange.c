/* SPDX-License-Identifier: MIT */
#include "http/exchange.h"

#include <stdlib.h>

enum {
    ARENA_CHUNK = 4096,   /* holds a usual request */
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
    buf_init(&exchange->pieces, ANSWER_MAX);
    pthread_mutex_init(&exchange->mutex, NULL);
    answer_reset(&exchange->answer);
    return exchange;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    arena_release(&exchange->arena);
    buf_release(&exchange->answer.body);
    buf_release(&exchange->pieces);
    pthread_mutex_destroy(&exchange->mutex);
    free(exchange);
}

static void buf_recycle(struct buf *buf)
{
    if (buf->capacity > ANSWER_KEEP)
        buf_release(buf);
    buf_clear(buf);
}

void exchange_clear(struct exchange *exchange)
{
    arena_clear(&exchange->arena);
    buf_recycle(&exchange->answer.body);
    buf_recycle(&exchange->pieces);
    answer_reset(&exchange->answer);
    exchange->request = NULL;
    exchange->connection = NULL;
    exchange->batch = NULL;
    exchange->part_count = 0;
    exchange->wait_ms = 0;
    exchange->answered_late = false;
    exchange->first.key_made = false;
    atomic_store(&exchange->owner.commit_sent, false);
    memset(exchange->parts, 0, sizeof exchange->parts);
    memset(exchange->values, 0, sizeof exchange->values);
}

bool exchange_commit_sent(struct exchange *exchange)
{
    if (atomic_load(&exchange->owner.commit_sent))
        return true;
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
    return exchange->batch ? exchange->batch : &exchange->first;
}
