/* SPDX-License-Identifier: MIT */
#include "http/exchange.h"

#include <stdlib.h>

#include "base/budget.h"
#include "http/parser.h"
#include "http/service.h"

enum {
    ARENA_CHUNK = 192,    /* holds a usual acquire */
    ARENA_MAX = 64 << 20, /* a list of 1,000 requests with all their slots */
    ANSWER_MAX = 64 << 20,
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
    exchange->arena.budget = exchange->answer.body.budget = service->answering;
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
    batch->pieces.budget = exchange->service->answering;
    pthread_mutex_init(&batch->mutex, NULL);
    exchange->batch = batch;
    exchange->part_count = count;
    return batch;
}

bool exchange_make_parser(struct exchange *exchange)
{
    if (exchange->parser)
        return true;
    exchange->parser = calloc(1, sizeof *exchange->parser);
    if (!exchange->parser)
        return false;
    exchange->parser->text.budget = exchange->parser->body.budget = exchange->service->receiving;
    parser_begin(exchange->parser);
    return true;
}

static void drop_parser(struct exchange *exchange)
{
    if (exchange->parser)
        parser_release(exchange->parser);
    free(exchange->parser);
    exchange->parser = NULL;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange)
        return;
    part_list_release(exchange->batch);
    arena_release(&exchange->arena);
    buf_release(&exchange->answer.body);
    drop_parser(exchange);
    free(exchange);
}

/* Empty; keeps small memory. */
static void buf_shrink(struct buf *buf)
{
    if (buf->capacity > BUDGET_SMALL)
        buf_release(buf);
    buf_clear(buf);
}

void exchange_drop_request(struct exchange *exchange)
{
    if (exchange->wait_ms) {
        drop_parser(exchange);
        return;
    }
    buf_shrink(&exchange->parser->text);
    buf_shrink(&exchange->parser->body);
}

void exchange_clear(struct exchange *exchange)
{
    part_list_release(exchange->batch);
    if (exchange->arena.used > BUDGET_SMALL)
        arena_release(&exchange->arena);
    arena_clear(&exchange->arena);
    buf_shrink(&exchange->answer.body);
    answer_reset(&exchange->answer);
    if (exchange->parser) {
        buf_shrink(&exchange->parser->text);
        buf_shrink(&exchange->parser->body);
        parser_begin(exchange->parser);
    }
    exchange->connection = NULL;
    exchange->head_only = exchange->is_old = exchange->keep_alive = false;
    exchange->off_loop = (struct off_loop){0};
    exchange->batch = NULL;
    exchange->part_count = 0;
    exchange->wait_ms = 0;
    exchange->answered_late = false;
    exchange->of_owner = false;
    exchange->first = (struct part){0};
    memset(exchange->parts, 0, sizeof exchange->parts);
    exchange->values = NULL;
}

bool exchange_close(struct exchange *exchange)
{
    if (exchange->of_owner)
        return stage_answer(&exchange->owner.stage);
    if (exchange->part_count == 0)
        return stage_answer(&exchange->look.stage);
    bool closed = true;
    size_t count;
    struct part *parts = exchange_parts(exchange, &count);
    for (size_t i = 0; i < count; i++) /* each of them: what was not sent is not to be sent later */
        closed &= stage_answer(&parts[i].op.stage);
    return closed;
}

struct part *exchange_parts(struct exchange *exchange, size_t *ret_count)
{
    *ret_count = exchange->part_count;
    return exchange->batch ? exchange->batch->parts : &exchange->first;
}
