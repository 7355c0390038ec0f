/* SPDX-License-Identifier: MIT */
#include "http/server.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "http/address.h"
#include "http/problem.h"
#include "http/service.h"
#include "http/unclaimed.h"
#include "http/write.h"

enum {
    TICK_MS = 100,   /* how late a deadline may be noticed */
    FREE_MAX = 4096, /* recycled exchanges kept */
    BACKLOG = 4096,
    MAX_SIGNALS = 4,
    DATE_SIZE = 40,
};

/*
 * A client's connection, from accept to close. evhttp tells us of its end only once it has carried a request; until
 * then a reference of our own to its bufferevent lets the tick see that evhttp has let go of it.
 */
struct connection {
    struct list node; /* on server->idle, the longest first, or on server->busy */
    struct map_node by_bev;
    struct server *server;
    struct bufferevent *bev;
    mono_us since;             /* accepted, or last answer handed out */
    struct exchange *exchange; /* with the engine */
    bool known_to_evhttp;      /* its close callback is set */
    bool answering;            /* what goes into its output is ours */
    bool error_page;           /* evhttp wrote one: on server->error_pages */
    struct connection *next_error_page;
};

struct server {
    struct server_settings settings;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *tick;
    struct event *woken;
    struct event *error_page_event;
    struct event *signals[MAX_SIGNALS];
    size_t signal_count;
    char url[128];

    struct map connections; /* by the address of the bufferevent */
    struct list idle;
    struct list busy;
    struct connection *error_pages;
    bool full; /* the listener is off because of max_connections */

    struct heap under_way; /* exchanges, the next deadline first */
    struct exchange *free_exchanges;
    size_t free_count;
    struct buf scratch; /* for answers of the loop's own */

    pthread_mutex_t outbox_mutex;
    struct exchange *outbox; /* finished, in order; under outbox_mutex */
    struct exchange **outbox_end;
    int wake_fd;

    uint32_t id_seed;
    uint64_t id_next;
    time_t date_at;
    char date[DATE_SIZE];
    struct server_counts counts;
    bool stopping;
    mono_us stop_by;
};

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

/* Nobody refers to it any more. */
static void exchange_recycle(struct server *server, struct exchange *exchange)
{
    heap_remove(&server->under_way, &exchange->by_deadline);
    if (server->free_count >= FREE_MAX) {
        exchange_free(exchange);
        return;
    }
    exchange_clear(exchange);
    exchange->next = server->free_exchanges;
    server->free_exchanges = exchange;
    server->free_count++;
}

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

void exchange_finish(struct exchange *exchange)
{
    struct server *server = exchange->service->server;
    exchange->next = NULL;
    pthread_mutex_lock(&server->outbox_mutex);
    bool was_empty = server->outbox == NULL;
    *server->outbox_end = exchange;
    server->outbox_end = &exchange->next;
    pthread_mutex_unlock(&server->outbox_mutex);
    uint64_t one = 1;
    if (was_empty && write(server->wake_fd, &one, sizeof one) < 0)
        log_write(LOG_ERROR, "the loop could not be woken", "error", strerror(errno), NULL);
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

/* --- connections -------------------------------------------------------------------------------------------------- */

static struct connection *connection_of(struct server *server, struct bufferevent *bev)
{
    struct map_node *node = map_find(&server->connections, (struct bytes){(const char *)&bev, sizeof bev});
    return node ? MAP_ENTRY(node, struct connection, by_bev) : NULL;
}

static void listen_again(struct server *server)
{
    if (!server->full || server->stopping || (int64_t)server->connections.count >= server->settings.max_connections)
        return;
    server->full = false;
    evconnlistener_enable(server->listener);
}

static void connection_forget(struct connection *connection)
{
    struct server *server = connection->server;
    list_remove(&connection->node);
    map_remove(&server->connections, &connection->by_bev);
    for (struct connection **at = &server->error_pages; *at; at = &(*at)->next_error_page)
        if (*at == connection) {
            *at = connection->next_error_page;
            break;
        }
    bufferevent_decref(connection->bev);
    free(connection);
    listen_again(server);
}

/*
 * evhttp closes the connection. A request that it has taken off the connection is ours to free; one that is still on
 * it, evhttp frees right after this.
 */
static void connection_closed(struct evhttp_connection *evcon, void *context)
{
    struct connection *connection = context;
    struct exchange *exchange = connection->exchange;
    (void)evcon;
    if (exchange) {
        if (!evhttp_request_get_connection(exchange->request))
            evhttp_request_free(exchange->request);
        exchange->request = NULL;
        exchange->connection = NULL;
    }
    connection_forget(connection);
}

/* Moves it between idle and busy. */
static void connection_set_busy(struct connection *connection, bool busy)
{
    struct server *server = connection->server;
    list_remove(&connection->node);
    connection->since = clock_mono();
    list_append(busy ? &server->busy : &server->idle, &connection->node);
}

/* evhttp lets go of a connection without a request by taking its callbacks off. */
static bool connection_is_dead(const struct connection *connection)
{
    bufferevent_event_cb called = NULL;
    bufferevent_getcb(connection->bev, NULL, NULL, &called, NULL);
    return called == NULL;
}

/* Something goes into a connection's output that is not an answer of ours: evhttp refuses the request by itself. */
static void output_changed(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *context)
{
    struct connection *connection = context;
    (void)buffer;
    if (info->n_added == 0 || connection->answering || connection->error_page)
        return;
    connection->error_page = true;
    connection->next_error_page = connection->server->error_pages;
    connection->server->error_pages = connection;
    event_active(connection->server->error_page_event, EV_TIMEOUT, 1);
}

/* evhttp has accepted a connection and asks for its bufferevent. */
static struct bufferevent *connection_accept(struct event_base *base, void *context)
{
    struct server *server = context;
    struct connection *connection = calloc(1, sizeof *connection);
    struct bufferevent *bev = connection ? bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!bev)
        goto err_allocated;
    connection->server = server;
    connection->bev = bev;
    connection->since = clock_mono();
    if (!map_insert(&server->connections, &connection->by_bev,
                    (struct bytes){(const char *)&connection->bev, sizeof connection->bev}))
        goto err_allocated;
    list_append(&server->idle, &connection->node);
    bufferevent_incref(bev);
    evbuffer_add_cb(bufferevent_get_output(bev), output_changed, connection);
    /* More than one request's worth is not read ahead. */
    bufferevent_setwatermark(bev, EV_READ, 0, SERVER_MAX_BODY + SERVER_MAX_HEADERS);
    server->counts.accepted++;
    if ((int64_t)server->connections.count >= server->settings.max_connections) {
        server->full = true;
        evconnlistener_disable(server->listener);
    }
    return bev;

err_allocated:
    if (bev)
        bufferevent_free(bev);
    free(connection);
    return NULL; /* evhttp makes one of its own, which we do not follow */
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* The Date header costs more than it says; once a second is enough. */
static const char *date_now(struct server *server)
{
    time_t now = time(NULL);
    if (now != server->date_at) {
        struct tm parts;
        gmtime_r(&now, &parts);
        strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
        server->date_at = now;
    }
    return server->date;
}

static void add_retry_after(struct evkeyvalq *headers, int64_t retry_after_ms)
{
    char seconds[24];
    if (retry_after_ms <= 0)
        return;
    int64_t whole = (retry_after_ms + MS_PER_SECOND - 1) / MS_PER_SECOND;
    snprintf(seconds, sizeof seconds, "%lld", (long long)whole);
    evhttp_add_header(headers, "Retry-After", seconds);
}

static void add_headers(struct server *server, struct evhttp_request *request, const char *id,
                        const struct answer *answer)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Content-Type", answer->content_type);
    evhttp_add_header(headers, "X-Request-Id", id);
    evhttp_add_header(headers, "Date", date_now(server));
    if (answer->etag[0])
        evhttp_add_header(headers, "ETag", answer->etag);
    if (answer->allow)
        evhttp_add_header(headers, "Allow", answer->allow);
    add_retry_after(headers, answer->retry_after_ms);
    if (answer->close || server->stopping)
        evhttp_add_header(headers, "Connection", "close");
}

/* The answer is out: evhttp reads the next request, or closes. */
static void answer_sent(struct evhttp_request *request, void *context)
{
    struct connection *connection = context;
    (void)request;
    connection->answering = false;
    connection_set_busy(connection, false);
}

/* evhttp has words for the old codes; NULL: let it. */
static const char *reason_of(int http_status)
{
    switch (http_status) {
    case 412: return "Precondition Failed";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 429: return "Too Many Requests";
    default: return NULL;
    }
}

/*
 * Writes now what evhttp would write when epoll says that the socket takes it, which it nearly always does: that saves
 * a turn of the loop and three epoll_ctl per answer. What does not fit, evhttp writes later. The connection may be gone
 * afterwards.
 */
static void output_write(struct bufferevent *bev)
{
    struct evbuffer *out = bufferevent_get_output(bev);
    evbuffer_unfreeze(out, 1);
    (void)evbuffer_write(out, bufferevent_getfd(bev)); /* a failure shows again when evhttp writes */
    evbuffer_freeze(out, 1);
    if (evbuffer_get_length(out) == 0)
        bufferevent_trigger(bev, EV_WRITE, 0);
}

/* Hands the answer to evhttp, which frees the request. The connection may be gone afterwards. */
static void answer_send(struct server *server, struct evhttp_request *request, struct connection *connection,
                        const char *id, const struct answer *answer)
{
    add_headers(server, request, id, answer);
    evbuffer_add(evhttp_request_get_output_buffer(request), answer->body.data, answer->body.length);
    evbuffer_add(evhttp_request_get_output_buffer(request), "\n", 1); /* for those who read it in a terminal */
    server->counts.answers[answer->http_status / 100]++;
    connection->exchange = NULL;
    connection->answering = true;
    connection->since = clock_mono(); /* from now on the client has idle_timeout to read it */
    list_remove(&connection->node);
    list_append(&server->idle, &connection->node);
    evhttp_request_set_on_complete_cb(request, answer_sent, connection);
    evhttp_send_reply(request, answer->http_status, reason_of(answer->http_status), NULL);
    output_write(connection->bev);
}

/* The client of one that waits has closed its side, and the loop has not come to that yet. */
static bool client_has_left(const struct exchange *exchange)
{
    char byte;
    ssize_t got = recv(bufferevent_getfd(exchange->connection->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* evhttp closes the connection, tells connection_closed, and frees the request, which is still on it. */
static void hang_up(struct exchange *exchange)
{
    evhttp_connection_free(evhttp_request_get_connection(exchange->request));
}

/* Sends the exchange's answer, if there still is somebody to send it to, and recycles it. */
static void exchange_answer(struct server *server, struct exchange *exchange)
{
    if (exchange->request && exchange->wait_ms && exchange->first.key_made && client_has_left(exchange))
        hang_up(exchange);
    if (!exchange->request && !exchange->answered_late)
        unclaimed_release(exchange);
    struct evhttp_request *request = exchange->request;
    if (request && exchange->answer.body.broken)
        problem_answer(exchange, PERMIT_INTERNAL, "the answer is too large");
    exchange->request = NULL;
    if (request)
        answer_send(server, request, exchange->connection, exchange->id, &exchange->answer);
    exchange_recycle(server, exchange);
}

/* An engine's thread has finished some: takes all there are. */
static void outbox_drain(struct server *server)
{
    pthread_mutex_lock(&server->outbox_mutex);
    struct exchange *exchange = server->outbox;
    server->outbox = NULL;
    server->outbox_end = &server->outbox;
    pthread_mutex_unlock(&server->outbox_mutex);
    while (exchange) {
        struct exchange *next = exchange->next;
        server->counts.exchanges--;
        exchange_answer(server, exchange);
        exchange = next;
    }
}

static void on_woken(evutil_socket_t fd, short what, void *context)
{
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) > 0)
        outbox_drain(context);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

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
static void make_id(struct server *server, char id[EXCHANGE_ID_SIZE])
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
    make_id(server, exchange->id);
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

static void follow_connection(struct connection *connection, struct evhttp_connection *evcon)
{
    if (!connection->known_to_evhttp)
        evhttp_connection_set_closecb(evcon, connection_closed, connection);
    connection->known_to_evhttp = true;
}

static void client_gone(struct server *server, struct exchange *exchange)
{
    hang_up(exchange);
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
}

/* A request has been read whole. */
static void on_request(struct evhttp_request *request, void *context)
{
    struct server *server = context;
    struct evhttp_connection *evcon = evhttp_request_get_connection(request);
    struct connection *connection = connection_of(server, evhttp_connection_get_bufferevent(evcon));
    struct exchange *exchange = connection ? exchange_take(server) : NULL;
    if (!exchange) {
        evhttp_send_error(request, HTTP_SERVUNAVAIL, NULL);
        return;
    }
    follow_connection(connection, evcon);
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

/* --- refusals of evhttp itself ------------------------------------------------------------------------------------ */

static void write_problem_response(struct server *server, struct evbuffer *out, enum permit_status status,
                                   const char *detail)
{
    struct buf *body = &server->scratch;
    char id[EXCHANGE_ID_SIZE];
    make_id(server, id);
    buf_clear(body);
    problem_begin(body, status, detail);
    problem_end(body);
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: " PROBLEM_CONTENT_TYPE "\r\nX-Request-Id: %s\r\nDate: %s\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                        permit_status_http(status), permit_status_title(status), id, date_now(server), body->length,
                        buf_text(body));
    server->counts.answers[permit_status_http(status) / 100]++;
}

/* What evhttp's code means in our words; the last row takes the rest. */
static const struct {
    const char *code;
    enum permit_status status;
    const char *detail;
} pages[] = {
    {"413", PERMIT_TOO_LARGE, "the body has more than 1048576 bytes, or is not well chunked"},
    {"503", PERMIT_BUSY, "no memory"},
    {"", PERMIT_MALFORMED, "the request line or a header cannot be read, or they have more than 16384 bytes"},
};

/* Puts a problem in place of the page that evhttp has just written and not yet sent. */
static void replace_error_page(struct server *server, struct connection *connection)
{
    struct evbuffer *out = bufferevent_get_output(connection->bev);
    char line[16] = "";
    connection->error_page = false;
    evbuffer_unfreeze(out, 1); /* a bufferevent keeps others from reading its output */
    evbuffer_copyout(out, line, sizeof line - 1);
    evbuffer_freeze(out, 1);
    if (memcmp(line, "HTTP/1.", 7) != 0 || (line[9] != '4' && line[9] != '5'))
        return; /* 100 Continue */
    connection->answering = true;
    evbuffer_unfreeze(out, 1);
    evbuffer_drain(out, evbuffer_get_length(out));
    evbuffer_freeze(out, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(pages); i++) {
        if (memcmp(line + 9, pages[i].code, strlen(pages[i].code)) != 0)
            continue;
        write_problem_response(server, out, pages[i].status, pages[i].detail);
        return;
    }
}

static void on_error_pages(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    (void)fd, (void)what;
    while (server->error_pages) {
        struct connection *connection = server->error_pages;
        server->error_pages = connection->next_error_page;
        replace_error_page(server, connection);
    }
}

/* --- the tick ----------------------------------------------------------------------------------------------------- */

/* The engine has not answered in time. What was sent with a COMMIT may have happened. */
static void exchange_expire(struct server *server, struct exchange *exchange)
{
    enum permit_status status = exchange_commit_sent(exchange)                         ? PERMIT_OUTCOME_UNKNOWN
                                : engine_database_up(server->settings.service->engine) ? PERMIT_BUSY
                                                                                       : PERMIT_DATABASE_UNAVAILABLE;
    struct answer answer = {.body = server->scratch};
    struct evhttp_request *request = exchange->request;
    problem_head(&answer, status, 0);
    buf_clear(&answer.body);
    problem_begin(&answer.body, status, NULL);
    if (exchange->part_count == 1 && !exchange->batch && exchange->first.operation.external_id.data)
        write_member_text(&answer.body, "external_id", exchange->first.operation.external_id);
    problem_retry_after(&answer.body, answer.retry_after_ms);
    problem_end(&answer.body);
    exchange->request = NULL;
    exchange->answered_late = true;
    answer_send(server, request, exchange->connection, exchange->id, &answer);
    server->scratch = answer.body;
    server->counts.late++;
}

static void expire_exchanges(struct server *server, mono_us now)
{
    struct heap_node *first;
    while ((first = heap_first(&server->under_way)) && first->time <= now) {
        struct exchange *exchange = HEAP_ENTRY(first, struct exchange, by_deadline);
        heap_remove(&server->under_way, first); /* it comes back through the outbox, some time */
        if (exchange->request)
            exchange_expire(server, exchange);
    }
}

/* Closes what has been idle, or slow, for too long; notices what evhttp has closed. */
static void sweep_connections(struct server *server, mono_us now)
{
    mono_us too_old = now - server->settings.idle_timeout_ms * US_PER_MS;
    list_for_each (node, following, &server->idle) {
        struct connection *connection = LIST_ENTRY(node, struct connection, node);
        if (!connection->known_to_evhttp && connection_is_dead(connection))
            connection_forget(connection);
        else if (connection->since < too_old)
            bufferevent_trigger_event(connection->bev, BEV_EVENT_READING | BEV_EVENT_TIMEOUT, 0);
    }
}

/* True while an answer is not yet in the socket. */
static bool still_sending(struct server *server)
{
    list_for_each (node, following, &server->idle) {
        if (LIST_ENTRY(node, struct connection, node)->answering)
            return true;
    }
    return false;
}

static void leave_when_done(struct server *server, mono_us now)
{
    if (now >= server->stop_by || (server->counts.exchanges == 0 && !still_sending(server)))
        event_base_loopbreak(server->base);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct server *server = context;
    mono_us now = clock_mono();
    (void)fd, (void)what;
    expire_exchanges(server, now);
    sweep_connections(server, now);
    listen_again(server);
    if (server->stopping)
        leave_when_done(server, now);
}

/* --- start and end ------------------------------------------------------------------------------------------------ */

/* No file descriptor, for example: the tick tries again. */
static void on_accept_error(struct evconnlistener *listener, void *context)
{
    struct server *server = context;
    log_write(LOG_WARN, "a connection could not be accepted", "error", strerror(errno), NULL);
    server->full = true;
    evconnlistener_disable(listener);
}

static bool open_listener(struct server *server, struct buf *message)
{
    struct sockaddr_storage address;
    socklen_t length;
    if (!address_parse(server->settings.listen, server->settings.any_address, &address, &length, message))
        return false;
    server->listener = evconnlistener_new_bind(server->base, NULL, NULL,
                                               LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE,
                                               BACKLOG, (struct sockaddr *)&address, (int)length);
    if (!server->listener) {
        buf_printf(message, "cannot listen on %s: %s%s", server->settings.listen, strerror(errno),
                   errno == EADDRINUSE ? "; another program has the port" : "");
        return false;
    }
    /* On Linux the accepted sockets inherit it. */
    int on = 1;
    setsockopt(evconnlistener_get_fd(server->listener), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    address_url(evconnlistener_get_fd(server->listener), server->url, sizeof server->url);
    return true;
}

static bool open_http(struct server *server)
{
    server->http = evhttp_new(server->base);
    if (!server->http)
        return false;
    evhttp_set_max_headers_size(server->http, SERVER_MAX_HEADERS);
    evhttp_set_max_body_size(server->http, SERVER_MAX_BODY);
    /* Read on and drop what is too large, so that the client gets to read the answer. */
    evhttp_set_flags(server->http, EVHTTP_SERVER_LINGERING_CLOSE);
    evhttp_set_allowed_methods(server->http, 0xFFFF); /* 405 and 404 are ours */
    evhttp_set_bevcb(server->http, connection_accept, server);
    evhttp_set_gencb(server->http, on_request, server);
    if (!evhttp_bind_listener(server->http, server->listener))
        return false;
    evconnlistener_set_error_cb(server->listener, on_accept_error);
    return true;
}

static bool open_events(struct server *server)
{
    const struct timeval tick = {0, TICK_MS * 1000};
    server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->wake_fd < 0)
        return false;
    server->woken = event_new(server->base, server->wake_fd, EV_READ | EV_PERSIST, on_woken, server);
    server->tick = event_new(server->base, -1, EV_PERSIST, on_tick, server);
    server->error_page_event = event_new(server->base, -1, 0, on_error_pages, server);
    return server->woken && server->tick && server->error_page_event && event_add(server->woken, NULL) == 0 &&
           event_add(server->tick, &tick) == 0;
}

/* Only one thread has to do with the base: no locks. Changes of interest go to epoll once a turn. */
static struct event_base *open_base(void)
{
    struct event_config *config = event_config_new();
    if (!config)
        return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server) {
        buf_append_text(message, "no memory");
        return false;
    }
    server->settings = *settings;
    server->wake_fd = -1;
    server->outbox_end = &server->outbox;
    server->id_seed = (uint32_t)random_u64();
    list_init(&server->idle);
    list_init(&server->busy);
    buf_init(&server->scratch, 16 * 1024);
    pthread_mutex_init(&server->outbox_mutex, NULL);
    server->base = open_base();
    if (server->base && open_events(server)) {
        if (open_listener(server, message) && open_http(server)) {
            *ret_server = server;
            return true;
        }
    }
    if (!message->length)
        buf_printf(message, "the HTTP server cannot be made: %s", strerror(errno));
    server_free(server);
    return false;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

struct signal_call {
    void (*called)(void *context);
    void *context;
};

static void on_signal(evutil_socket_t number, short what, void *context)
{
    const struct signal_call *call = context;
    (void)number, (void)what;
    call->called(call->context);
}

bool server_on_signal(struct server *server, int number, void (*called)(void *context), void *context)
{
    static struct signal_call calls[MAX_SIGNALS];
    if (server->signal_count == MAX_SIGNALS)
        return false;
    struct signal_call *call = &calls[server->signal_count];
    *call = (struct signal_call){called, context};
    struct event *event = evsignal_new(server->base, number, on_signal, call);
    if (!event || event_add(event, NULL) != 0)
        return false;
    server->signals[server->signal_count++] = event;
    return true;
}

void server_run(struct server *server)
{
    event_base_dispatch(server->base);
}

void server_stop(struct server *server, int64_t grace_ms)
{
    if (server->stopping)
        return;
    server->stopping = true;
    server->stop_by = clock_mono() + grace_ms * US_PER_MS;
    evconnlistener_disable(server->listener);
}

void server_flush(struct server *server)
{
    enum { TURNS = 3 }; /* read the outbox, write, take note */
    for (int turn = 0; turn < TURNS; turn++)
        event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void server_reload(struct server *server, const struct server_settings *settings)
{
    server->settings.max_connections = settings->max_connections;
    server->settings.idle_timeout_ms = settings->idle_timeout_ms;
    server->settings.request_timeout_ms = settings->request_timeout_ms;
}

static void free_connections(struct list *list)
{
    list_for_each (node, following, list) {
        connection_forget(LIST_ENTRY(node, struct connection, node));
    }
}

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

void server_free(struct server *server)
{
    if (!server)
        return;
    server->stopping = true;
    outbox_drain(server);
    if (server->http)
        evhttp_free(server->http); /* with the listener; tells us of the connections it knows */
    else if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = NULL;
    free_connections(&server->idle);
    free_connections(&server->busy);
    map_release(&server->connections);
    heap_release(&server->under_way);
    while (server->free_exchanges) {
        struct exchange *exchange = server->free_exchanges;
        server->free_exchanges = exchange->next;
        exchange_free(exchange);
    }
    event_release(server->woken);
    event_release(server->tick);
    event_release(server->error_page_event);
    for (size_t i = 0; i < server->signal_count; i++)
        event_release(server->signals[i]);
    if (server->base)
        event_base_free(server->base);
    if (server->wake_fd >= 0)
        close(server->wake_fd);
    pthread_mutex_destroy(&server->outbox_mutex);
    buf_release(&server->scratch);
    free(server);
}

void server_counts(const struct server *server, struct server_counts *ret_counts)
{
    *ret_counts = server->counts;
    ret_counts->connections = server->connections.count;
}

const char *server_library_warning(void)
{
    enum { FIRST_SAFE = 0x02010c00 };
    if (event_get_version_number() < FIRST_SAFE)
        return "libevent is older than 2.1.12 and has known HTTP request smuggling";
    return NULL;
}
