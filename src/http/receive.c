/* SPDX-License-Identifier: MIT */
/* A request comes in: an exchange is made of it and handled. */
#include "http/loop.h"
#include "http/parser.h"
#include "http/problem.h"
#include "http/service.h"

enum {
    FREE_MAX = 1024,        /* recycled exchanges kept */
    LARGE_BODY = 16 * 1024, /* larger ones are handled off the loop */
};

/* ---- exchanges ---- */

/* "6f1c09ab-000000000012": a seed of this process and a number. */
static void request_id_make(struct server *server, char id[EXCHANGE_ID_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = server->id_next++;
    char *at = id;
    for (int shift = 28; shift >= 0; shift -= 4)
        *at++ = digits[server->id_seed >> shift & 15];
    *at++ = '-';
    for (int shift = 44; shift >= 0; shift -= 4)
        *at++ = digits[number >> shift & 15];
    *at = '\0';
}

struct exchange *exchange_take(struct connection *connection)
{
    struct server *server = connection->server;
    struct exchange *exchange = server->free_exchanges;
    if (exchange) {
        server->free_exchanges = exchange->next;
        server->free_count--;
    } else {
        exchange = exchange_new(server->settings.service);
    }
    if (!exchange || !exchange_make_parser(exchange)) {
        exchange_free(exchange);
        return NULL;
    }
    exchange->connection = connection;
    connection->exchange = exchange;
    request_id_make(server, exchange->id);
    return exchange;
}

void exchange_recycle(struct server *server, struct exchange *exchange)
{
    heap_remove(&server->under_way, &exchange->by_deadline);
    if (server->free_count >= FREE_MAX) {
        exchange_free(exchange);
        return;
    }
    exchange_clear(exchange);
    exchange->service = server->settings.service;
    exchange->next = server->free_exchanges;
    server->free_exchanges = exchange;
    server->free_count++;
}

const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times)
{
    return parser_header(exchange->parser, name, ret_times);
}

/* ---- what was asked ---- */

static const struct {
    const char *word;
    enum http_method method;
    bool head_only;
} methods[] = {
    {"GET", METHOD_GET, false}, {"POST", METHOD_POST, false}, {"DELETE", METHOD_DELETE, false},
    {"PUT", METHOD_PUT, false}, {"HEAD", METHOD_GET, true},   {"OPTIONS", METHOD_OPTIONS, false},
};

static void take_head(struct exchange *exchange)
{
    struct bytes word = parser_method(exchange->parser);
    exchange->method = METHOD_OTHER;
    for (size_t i = 0; i < ARRAY_LENGTH(methods); i++) {
        if (!bytes_equal(word, bytes_of(methods[i].word)))
            continue;
        exchange->method = methods[i].method;
        exchange->head_only = methods[i].head_only;
        break;
    }
    exchange->is_old = exchange->parser->minor_version == 0;
    exchange->keep_alive = exchange->parser->keep_alive;
    exchange->path = parser_path(exchange->parser);
    exchange->query = parser_query(exchange->parser);
}

/* ---- while it is decided ---- */

bool exchange_waits(const struct exchange *exchange)
{
    return exchange_is_handled(exchange) && exchange->wait_ms;
}

void exchange_client_gone(struct server *server, struct exchange *exchange)
{
    if (!exchange_waits(exchange))
        return;
    if (exchange->connection)
        connection_close(exchange->connection);
    if (!engine_abandon(server->settings.service->engine, &exchange->first.op))
        return; /* too late: it comes back through the outbox and finds nobody */
    server->counts.exchanges--;
    exchange_recycle(server, exchange);
}

void exchange_settle(struct server *server, struct exchange *exchange)
{
    exchange_drop_request(exchange);
    if (!exchange->wait_ms)
        return;
    if (exchange->by_deadline.place)
        heap_move(&server->under_way, &exchange->by_deadline, exchange->deadline); /* it may take as long as it asked */
    if (!exchange->connection || exchange->connection->ended)
        exchange_client_gone(server, exchange);
    else
        connection_watch_end(exchange->connection);
}

/* ---- a request ---- */

void exchange_refuse(struct exchange *exchange)
{
    exchange->answer.close = true;
    exchange->connection->refused = true;
    exchange_answer(exchange->connection->server, exchange);
}

static void refuse(struct exchange *exchange, enum permit_status status, const char *detail)
{
    problem_answer(exchange, status, detail);
    exchange_refuse(exchange);
}

static void refuse_large(struct exchange *exchange)
{
    struct buf *message = &exchange->service->message;
    buf_clear(message);
    buf_printf(message, "body too large: the limit is %zu bytes", exchange->parser->body_max);
    refuse(exchange, PERMIT_TOO_LARGE, buf_text(message));
}

/* It has been read whole. From now on its time counts. */
static bool begin(struct server *server, struct exchange *exchange)
{
    take_head(exchange);
    exchange->body = (struct bytes){exchange->parser->body.data, exchange->parser->body.length};
    exchange->arrived_at = server->now;
    exchange->deadline = exchange->arrived_at + server->settings.request_timeout_ms * US_PER_MS;
    return heap_add(&server->under_way, &exchange->by_deadline, exchange->deadline);
}

static void handle(struct server *server, struct exchange *exchange)
{
    if (!begin(server, exchange)) {
        refuse(exchange, PERMIT_BUSY, "no memory");
    } else if (server->stopping) {
        problem_answer(exchange, PERMIT_SHUTTING_DOWN, NULL);
        exchange_answer(server, exchange);
    } else if (exchange->body.length > LARGE_BODY) {
        server->counts.exchanges++;
        connection_move(exchange->connection, CONNECTION_DECIDING);
        bodies_handle(server, exchange);
    } else if (server->settings.handle(exchange)) {
        exchange_answer(server, exchange);
    } else {
        server->counts.exchanges++;
        connection_move(exchange->connection, CONNECTION_DECIDING);
        exchange_settle(server, exchange);
    }
}

/* The headers are read: whether it is read on, and how far, is decided before more comes. False: it is refused, or the
 * connection is closed. */
static bool admit(struct exchange *exchange, size_t more_bytes)
{
    struct parser *parser = exchange->parser;
    take_head(exchange);
    if (!exchange->connection->server->settings.admit(exchange, &parser->body_max)) {
        exchange_refuse(exchange);
        return false;
    }
    if (parser->expects_continue && !more_bytes && parser_has_body(parser) && parser->length <= parser->body_max)
        return connection_say_continue(exchange->connection);
    return true;
}

void request_receive(struct connection *connection, struct bytes *input)
{
    struct exchange *exchange = connection->exchange ? connection->exchange : exchange_take(connection);
    if (!exchange) {
        connection_close(connection);
        return;
    }
    enum parser_event event = parser_feed(exchange->parser, input);
    if (event == PARSER_HEAD) {
        if (!admit(exchange, input->length))
            return;
        event = parser_feed(exchange->parser, input);
    }
    connection->more = input->length > 0;
    switch (event) {
    case PARSER_DONE: handle(connection->server, exchange); break;
    case PARSER_MALFORMED: refuse(exchange, PERMIT_MALFORMED, exchange->parser->why); break;
    case PARSER_TOO_LARGE: refuse_large(exchange); break;
    case PARSER_NO_MEMORY: refuse(exchange, PERMIT_BUSY, "the memory limit max_memory is reached"); break;
    case PARSER_HUNGRY:
    case PARSER_HEAD:
    case PARSER_GO_ON: break;
    }
}
