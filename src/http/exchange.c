/* SPDX-License-Identifier: MIT */
#include "http/exchange.h"

#include <stdlib.h>

#include "http/parser.h"
#include "http/share.h"

enum {
    ARENA_CHUNK = 192,    /* enough for a usual acquire */
    ARENA_MAX = 64 << 20, /* enough for 1,000 requests with all their slots */
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

struct exchange *exchange_new(size_t size)
{
    struct exchange *exchange = calloc(1, size);
    if (!exchange)
        return NULL;
    arena_init(&exchange->arena, ARENA_CHUNK, ARENA_MAX);
    buf_init(&exchange->answer.body, ANSWER_MAX);
    answer_reset(&exchange->answer);
    return exchange;
}

bool exchange_make_parser(struct exchange *exchange)
{
    if (exchange->parser)
        return true;
    exchange->parser = calloc(1, sizeof *exchange->parser);
    if (!exchange->parser)
        return false;
    parser_begin(exchange->parser);
    return true;
}

static void use_budget(struct buf *buf, struct budget *budget)
{
    if (budget_counted(buf->capacity) == 0)
        buf->budget = budget;
}

bool exchange_use_share(struct exchange *exchange, struct memory_share *share)
{
    if (!arena_use_budget(&exchange->arena, &share->handling))
        return false;
    use_budget(&exchange->parser->text, &share->receiving);
    use_budget(&exchange->parser->body, &share->receiving);
    use_budget(&exchange->answer.body, &share->answering);
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
    arena_release(&exchange->arena);
    buf_release(&exchange->answer.body);
    drop_parser(exchange);
    free(exchange);
}

void exchange_drop_request(struct exchange *exchange)
{
    if (exchange->may_wait) {
        drop_parser(exchange);
        return;
    }
    buf_empty(&exchange->parser->text, BUDGET_SMALL);
    buf_empty(&exchange->parser->body, BUDGET_SMALL);
}

void exchange_clear(struct exchange *exchange)
{
    if (exchange->arena.used > BUDGET_SMALL)
        arena_release(&exchange->arena);
    arena_clear(&exchange->arena);
    buf_empty(&exchange->answer.body, BUDGET_SMALL);
    answer_reset(&exchange->answer);
    if (exchange->parser) {
        buf_empty(&exchange->parser->text, BUDGET_SMALL);
        buf_empty(&exchange->parser->body, BUDGET_SMALL);
        parser_begin(exchange->parser);
    }
    exchange->connection = NULL;
    exchange->peer = NULL;
    exchange->head_only = exchange->is_old = exchange->keep_alive = exchange->has_body = false;
    exchange->off_loop = (struct off_loop){0};
    exchange->may_wait = exchange->wait_ended = false;
    exchange->answered_late = exchange->rechecks = false;
    memset(exchange->path_values, 0, sizeof exchange->path_values);
    exchange->query_values = NULL;
}
