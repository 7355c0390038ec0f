/* SPDX-License-Identifier: MIT */
/* Receives requests: reads them into exchanges and calls the handlers. */
#include "http/loop.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "http/parser.h"

enum {
    FREE_MAX = 1024,        /* recycled exchanges kept */
    LARGE_BODY = 16 * 1024, /* larger bodies are handled off the loop */
};

/* ---- exchanges ---- */

/* Writes a request id such as "6f1c09ab-000000000012": a random number of this process and a counter. */
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
    assert(!connection->exchange);
    struct exchange *exchange = server->free_exchanges;
    if (exchange) {
        server->free_exchanges = exchange->next;
        server->free_count--;
    } else {
        exchange = exchange_new(server->settings.hooks->exchange_size);
    }
    if (!exchange || !exchange_make_parser(exchange)) {
        exchange_free(exchange);
        return NULL;
    }
    exchange->server = server;
    exchange->service = server->settings.service;
    exchange->client = &connection->client;
    exchange->connection = connection;
    exchange->peer = peer_ref(connection->peer);
    bool fits = exchange_use_share(exchange, connection->client.share);
    assert(fits); /* the arena is empty */
    (void)fits;
    connection->exchange = exchange;
    request_id_make(server, exchange->id);
    return exchange;
}

void exchange_recycle(struct server *server, struct exchange *exchange)
{
    struct peer *peer = exchange->peer;
    heap_remove(&server->under_way, &exchange->by_deadline);
    server->settings.hooks->clear(exchange);
    if (server->free_count >= FREE_MAX) {
        exchange_free(exchange);
    } else {
        exchange_clear(exchange);
        exchange->next = server->free_exchanges;
        server->free_exchanges = exchange;
        server->free_count++;
    }
    peer_unref(&server->peers, peer);
}

void exchanges_free_spare(struct server *server)
{
    while (server->free_exchanges) {
        struct exchange *exchange = server->free_exchanges;
        server->free_exchanges = exchange->next;
        exchange_free(exchange);
    }
    server->free_count = 0;
}

const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times)
{
    return parser_header(exchange->parser, name, ret_times);
}

struct bytes exchange_host(const struct exchange *exchange)
{
    return parser_host(exchange->parser);
}

bool exchange_body_length(const struct exchange *exchange, uint64_t *ret_length)
{
    if (exchange->parser->chunked)
        return false;
    *ret_length = exchange->parser->length;
    return true;
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

static void read_head(struct exchange *exchange)
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
    exchange->has_body = parser_has_body(exchange->parser);
    exchange->path = parser_path(exchange->parser);
    exchange->query = parser_query(exchange->parser);
}

/* ---- while it is decided ---- */

bool exchange_waits(const struct exchange *exchange)
{
    return exchange_is_handled(exchange) && exchange->may_wait;
}

void exchange_client_disconnected(struct server *server, struct exchange *exchange)
{
    if (!exchange_waits(exchange))
        return;
    if (exchange->connection)
        connection_close(exchange->connection);
    if (!server->settings.hooks->abandon(exchange))
        return; /* too late: it returns through the outbox, and its answer is dropped */
    assert(server->counts.exchanges > 0);
    server->counts.exchanges--;
    exchange_recycle(server, exchange);
}

void server_count_failure(struct exchange *exchange)
{
    struct server *server = exchange->server;
    peer_count_failure(&server->failing_peers, exchange->connection->peer, server->now);
}

/* Ends the wait of an exchange that is not admitted any more. */
static void end_wait(struct server *server, struct exchange *exchange)
{
    exchange->wait_ended = true;
    if (!server->settings.hooks->abandon(exchange))
        return; /* it returns through the outbox */
    assert(server->counts.exchanges > 0);
    server->counts.exchanges--;
    exchange_refuse(exchange, PERMIT_UNAUTHENTICATED, NULL);
}

void server_recheck(struct server *server)
{
    const struct server_hooks *hooks = server->settings.hooks;
    server->now = clock_mono();
    list_for_each (node, following, &server->connections[CONNECTION_READING]) {
        struct exchange *exchange = LIST_ENTRY(node, struct connection, node)->exchange;
        if (exchange && !hooks->readmit(exchange))
            exchange_refuse(exchange, PERMIT_UNAUTHENTICATED, NULL);
    }
    list_for_each (node, following, &server->connections[CONNECTION_DECIDING]) {
        struct exchange *exchange = LIST_ENTRY(node, struct connection, node)->exchange;
        if (!exchange)
            continue;
        if (!exchange_is_handled(exchange))
            exchange->rechecks = true;
        else if (exchange->may_wait && !hooks->may_wait(exchange))
            end_wait(server, exchange);
    }
    connections_dispose(server);
}

void exchange_handed_over(struct server *server, struct exchange *exchange)
{
    exchange_drop_request(exchange);
    if (!exchange->may_wait)
        return;
    if (exchange->by_deadline.place)
        heap_move(&server->under_way, &exchange->by_deadline, exchange->deadline); /* the handler has extended the
                                                                                      deadline by the wait */
    if (!exchange->connection || exchange->connection->ended)
        exchange_client_disconnected(server, exchange);
    else if (exchange->rechecks && !server->settings.hooks->may_wait(exchange))
        end_wait(server, exchange);
    else
        connection_watch_close(exchange->connection);
}

/* ---- a request ---- */

/* Sends the exchange's answer, which is a refusal. The connection is not read any more. */
static void send_refusal(struct exchange *exchange)
{
    exchange->answer.close = true;
    exchange->connection->refused = true;
    exchange_answer(exchange->connection->server, exchange);
}

void exchange_refuse(struct exchange *exchange, enum permit_status status, const char *detail)
{
    answer_refuse(exchange, status, detail);
    send_refusal(exchange);
}

/* There is no memory for the rest of the request. */
static void refuse_unread(struct exchange *exchange)
{
    const struct parser *parser = exchange->parser;
    if ((parser->text.broken | parser->body.broken) & BUF_SHARE_FULL)
        exchange_refuse(exchange, PERMIT_TOO_MANY, "too much memory for unfinished requests of this client");
    else
        exchange_refuse(exchange, PERMIT_BUSY, "the memory limit max_memory is reached");
}

static void refuse_large(struct exchange *exchange)
{
    char detail[64];
    snprintf(detail, sizeof detail, "body too large: the limit is %zu bytes", exchange->parser->body_max);
    exchange_refuse(exchange, PERMIT_TOO_LARGE, detail);
}

/* Handles a completely received request. Its deadline counts from now. */
static void handle(struct server *server, struct exchange *exchange)
{
    assert(exchange->parser->state == READ_NO_MORE);
    list_remove(&exchange->connection->of_new);
    read_head(exchange);
    exchange->body = (struct bytes){exchange->parser->body.data, exchange->parser->body.length};
    exchange->arrived_at = server->now;
    exchange->deadline = exchange->arrived_at + server->settings.request_timeout_ms * US_PER_MS;
    if (!heap_add(&server->under_way, &exchange->by_deadline, exchange->deadline)) {
        exchange_refuse(exchange, PERMIT_BUSY, "no memory");
    } else if (server->stopping) {
        answer_refuse(exchange, PERMIT_SHUTTING_DOWN, NULL);
        exchange_answer(server, exchange);
    } else if (exchange->body.length > LARGE_BODY) {
        server->counts.exchanges++;
        connection_move(exchange->connection, CONNECTION_DECIDING);
        bodies_handle(server, exchange);
    } else if (server->settings.hooks->handle(exchange)) {
        exchange_answer(server, exchange);
    } else {
        server->counts.exchanges++;
        connection_move(exchange->connection, CONNECTION_DECIDING);
        exchange_handed_over(server, exchange);
    }
}

/*
 * Called when the headers are complete: decides whether the request is read further, and how many bytes of body. False:
 * the request is refused or the connection is closed.
 */
static bool admit(struct exchange *exchange, size_t more_bytes)
{
    struct parser *parser = exchange->parser;
    const struct memory_share *share = exchange->client->share;
    read_head(exchange);
    if (!exchange->connection->server->settings.hooks->admit(exchange, &parser->body_max)) {
        send_refusal(exchange);
        return false;
    }
    if (exchange->client->share != share && !exchange_use_share(exchange, exchange->client->share)) {
        exchange_refuse(exchange, PERMIT_TOO_MANY, "too much memory for requests and answers of this client");
        return false;
    }
    if (parser->expects_continue && !more_bytes && exchange->has_body && parser->length <= parser->body_max)
        return connection_send_continue(exchange->connection);
    return true;
}

void request_receive(struct connection *connection, struct bytes *input)
{
    assert(connection->state == CONNECTION_READING);
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
    case PARSER_MALFORMED: exchange_refuse(exchange, PERMIT_MALFORMED, exchange->parser->why); break;
    case PARSER_TOO_LARGE: refuse_large(exchange); break;
    case PARSER_NO_MEMORY: refuse_unread(exchange); break;
    case PARSER_NEEDS_INPUT:
    case PARSER_HEAD:
    case PARSER_CONTINUE: break;
    }
}
