/* SPDX-License-Identifier: MIT */
/* A request comes in: an exchange is made of it and handled; and what happens to its connection meanwhile. */
#include "http/loop.h"

#include <strings.h>

#include "base/clock.h"
#include "http/problem.h"
#include "http/service.h"

static struct exchange *exchange_take_free(struct server *server)
{
    struct exchange *exchange = server->free_exchanges;
    if (!exchange)
        return exchange_new(server->settings.service);
    server->free_exchanges = exchange->next;
    server->free_count--;
    return exchange;
}

/* One whose deadline is watched from now on. NULL: no memory. */
static struct exchange *exchange_take(struct server *server)
{
    struct exchange *exchange = exchange_take_free(server);
    if (!exchange)
        return NULL;
    exchange->arrived_at = clock_mono();
    exchange->deadline = exchange->arrived_at + server->settings.request_timeout_ms * US_PER_MS;
    if (heap_add(&server->under_way, &exchange->by_deadline, exchange->deadline))
        return exchange;
    exchange_recycle(server, exchange);
    return NULL;
}

const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times)
{
    const char *value = NULL;
    unsigned times = 0;
    struct evkeyvalq *headers = evhttp_request_get_input_headers(exchange->request);
    for (struct evkeyval *header = headers->tqh_first; header; header = header->next.tqe_next) {
        if (strcasecmp(header->key, name) != 0)
            continue;
        value = value ? value : header->value;
        times++;
    }
    if (ret_times)
        *ret_times = times;
    return value;
}

/* --- what was asked ----------------------------------------------------------------------------------------------- */

static enum http_method method_of(struct evhttp_request *request)
{
    switch ((int)evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET: return METHOD_GET;
    case EVHTTP_REQ_PUT: return METHOD_PUT;
    case EVHTTP_REQ_POST: return METHOD_POST;
    case EVHTTP_REQ_DELETE: return METHOD_DELETE;
    default: return METHOD_OTHER;
    }
}

/* "/path?query", also behind "http://host". */
static void take_uri(struct exchange *exchange)
{
    const char *uri = evhttp_request_get_uri(exchange->request);
    if (uri[0] != '/') {
        const char *host = strstr(uri, "://");
        const char *path = host ? strchr(host + 3, '/') : NULL;
        uri = path ? path : "";
    }
    const char *query = strchr(uri, '?');
    exchange->path = query ? (struct bytes){uri, (size_t)(query - uri)} : bytes_of(uri);
    exchange->query = query ? bytes_of(query + 1) : (struct bytes){0};
}

/*
 * A length of a body with a method whose body evhttp (or an older one) does not read: what follows would be taken for
 * the next request. Such a connection ends with the answer.
 */
static bool body_is_doubtful(const struct exchange *exchange)
{
    return exchange->method != METHOD_POST && exchange->method != METHOD_PUT &&
           (exchange_header(exchange, "Content-Length", NULL) || exchange_header(exchange, "Transfer-Encoding", NULL));
}

/* A token of RFC 9110: what a header's name may consist of. */
static bool name_is_token(const char *name)
{
    const char *at = name;
    while ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '-' || (*at >= '0' && *at <= '9') ||
           (*at && strchr("!#$%&'*+.^_`|~", *at)))
        at++;
    return at != name && *at == '\0';
}

/*
 * How long a request is must be beyond doubt, or what stands behind it could be taken for another one by us and not by
 * a proxy. evhttp takes two lengths for the first, "+5" for 5, and "Content-Length :" for none.
 */
static bool headers_are_doubtful(const struct exchange *exchange)
{
    unsigned lengths = 0, encodings = 0;
    struct evkeyvalq *headers = evhttp_request_get_input_headers(exchange->request);
    for (struct evkeyval *header = headers->tqh_first; header; header = header->next.tqe_next) {
        if (!name_is_token(header->key))
            return true;
        if (strcasecmp(header->key, "Content-Length") == 0) {
            lengths++;
            if (strspn(header->value, "0123456789") != strlen(header->value))
                return true;
        } else if (strcasecmp(header->key, "Transfer-Encoding") == 0) {
            encodings++;
            if (strcasecmp(header->value, "chunked") != 0)
                return true;
        }
    }
    return lengths + encodings > 1;
}

static void take_body(struct exchange *exchange)
{
    struct evbuffer *input = evhttp_request_get_input_buffer(exchange->request);
    size_t length = evbuffer_get_length(input);
    exchange->body = (struct bytes){length ? (const char *)evbuffer_pullup(input, -1) : NULL, length};
}

/* "6f1c09ab-000000000012": a seed of this process and a number. */
void request_id_make(struct server *server, char id[EXCHANGE_ID_SIZE])
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

static void exchange_begin(struct server *server, struct exchange *exchange, struct evhttp_request *request,
                           struct connection *connection)
{
    exchange->request = request;
    exchange->connection = connection;
    connection->exchange = exchange;
    request_id_make(server, exchange->id);
    exchange->method = method_of(request);
    take_uri(exchange);
    take_body(exchange);
    exchange->answer.close = body_is_doubtful(exchange);
}

/* The handler's answer, or that of whoever refuses before it is asked; true as from a handler. */
static bool exchange_handle(struct server *server, struct exchange *exchange)
{
    if (headers_are_doubtful(exchange)) {
        exchange->answer.close = true;
        return problem_answer(exchange, PERMIT_MALFORMED,
                              "a header's name is not valid, or the headers do not say how long the body is");
    }
    if (server->stopping)
        return problem_answer(exchange, PERMIT_SHUTTING_DOWN, NULL);
    return server->settings.handle(exchange);
}

/* --- while it is decided ------------------------------------------------------------------------------------------ */

static void client_gone(struct server *server, struct exchange *exchange)
{
    exchange_hang_up(exchange);
    if (!engine_abandon(server->settings.service->engine, &exchange->first.op))
        return; /* too late: it comes back through the outbox and finds nobody */
    server->counts.exchanges--;
    exchange_recycle(server, exchange);
}

/*
 * While a request is decided, reading stays on: switching it off, as evhttp does, and on again costs two epoll_ctl.
 * What comes is not looked at (the watermark bounds it). A client that has closed its side may still read: the answer
 * is sent, and evhttp notices afterwards. But "a client that disconnects leaves the queue at once": one that waits
 * for room is taken to have gone.
 */
static void on_busy_event(struct bufferevent *bev, short what, void *context)
{
    struct connection *connection = context;
    struct exchange *exchange = connection->exchange;
    (void)bev;
    if (exchange && exchange->wait_ms && what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        client_gone(connection->server, exchange);
}

static void keep_reading(struct connection *connection)
{
    /* evhttp sets its own when it sends */
    bufferevent_setcb(connection->bev, NULL, NULL, on_busy_event, connection);
    bufferevent_enable(connection->bev, EV_READ);
}

/* Of what was asked evhttp needs no more than whether to keep the connection: the rest is not kept for as long. */
static void request_lighten(struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    struct evkeyval *next;
    for (struct evkeyval *header = headers->tqh_first; header; header = next) {
        next = header->next.tqe_next;
        if (strcasecmp(header->key, "Connection") != 0 && strcasecmp(header->key, "Proxy-Connection") != 0)
            evhttp_remove_header(headers, header->key);
    }
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    evbuffer_drain(body, evbuffer_get_length(body));
}

/* It may take as long as it asked to wait. */
static void exchange_wait(struct server *server, struct exchange *exchange)
{
    heap_move(&server->under_way, &exchange->by_deadline, exchange->deadline);
    request_lighten(exchange->request);
    connection_read_ahead(exchange->connection, READ_AHEAD_WAITING);
}

/* A request has been read whole. */
void request_received(struct evhttp_request *request, void *context)
{
    struct server *server = context;
    struct evhttp_connection *evcon = evhttp_request_get_connection(request);
    struct connection *connection = connection_of(server, evhttp_connection_get_bufferevent(evcon));
    struct exchange *exchange = connection ? exchange_take(server) : NULL;
    if (!exchange) {
        evhttp_send_error(request, HTTP_SERVUNAVAIL, NULL);
        return;
    }
    connection_follow(connection, evcon);
    connection_set_busy(connection, true);
    exchange_begin(server, exchange, request, connection);
    if (exchange_handle(server, exchange)) {
        exchange_answer(server, exchange);
        return;
    }
    server->counts.exchanges++;
    if (exchange->wait_ms)
        exchange_wait(server, exchange);
    keep_reading(connection);
}
