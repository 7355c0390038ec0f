/* SPDX-License-Identifier: MIT */
/* An answer goes out: its headers, the outbox through which the engine hands exchanges back, and their end. */
#include "http/loop.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/problem.h"
#include "http/service.h"
#include "http/unclaimed.h"

enum {
    FREE_MAX = 4096,    /* recycled exchanges kept */
    NOT_MODIFIED = 304, /* has no body, and so no type */
};

/* The Date header costs more than it says; once a second is enough. */
const char *date_header(struct server *server)
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
    if (answer->http_status != NOT_MODIFIED)
        evhttp_add_header(headers, "Content-Type", answer->content_type);
    evhttp_add_header(headers, "X-Request-Id", id);
    evhttp_add_header(headers, "Date", date_header(server));
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

/* All of it, and a line feed for those who read it in a terminal; false: no memory. */
static bool body_add(struct evhttp_request *request, const struct buf *body)
{
    struct evbuffer *out = evhttp_request_get_output_buffer(request);
    return evbuffer_add(out, body->data, body->length) == 0 && evbuffer_add(out, "\n", 1) == 0;
}

/*
 * Hands the answer to evhttp, which frees the request. The connection may be gone afterwards. An answer is sent whole
 * or not at all: without memory for it the connection is closed, and whoever asked asks again.
 */
void answer_send(struct server *server, struct evhttp_request *request, struct connection *connection, const char *id,
                 const struct answer *answer)
{
    connection->exchange = NULL;
    if (answer->http_status != NOT_MODIFIED && !body_add(request, &answer->body)) {
        evhttp_connection_free(evhttp_request_get_connection(request));
        return;
    }
    add_headers(server, request, id, answer);
    server->counts.answers[answer->http_status / 100]++;
    connection->answering = true;
    connection->since = clock_mono(); /* from now on the client has idle_timeout to read it */
    list_remove(&connection->node);
    list_append(&server->idle, &connection->node);
    connection_read_ahead(connection, READ_AHEAD);
    evhttp_request_set_on_complete_cb(request, answer_sent, connection);
    evhttp_send_reply(request, answer->http_status, reason_of(answer->http_status), NULL);
    output_write(connection->bev);
}

/* --- what the engine has decided ---------------------------------------------------------------------------------- */

/* Nobody refers to it any more. */
void exchange_recycle(struct server *server, struct exchange *exchange)
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

/* The client of one that waits has closed its side, and the loop has not come to that yet. */
static bool client_has_left(const struct exchange *exchange)
{
    char byte;
    ssize_t got = recv(bufferevent_getfd(exchange->connection->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/* evhttp closes the connection, tells connection_closed, and frees the request, which is still on it. */
void exchange_hang_up(struct exchange *exchange)
{
    evhttp_connection_free(evhttp_request_get_connection(exchange->request));
}

/* Its body could not be written. What it would tell has been done, or read. */
static void answer_without_body(struct exchange *exchange)
{
    if (exchange->answer.body.broken & BUF_TOO_LONG)
        problem_answer(exchange, PERMIT_INTERNAL, "the answer is too large");
    else
        problem_answer(exchange, exchange->method == METHOD_GET ? PERMIT_BUSY : PERMIT_OUTCOME_UNKNOWN,
                       "no memory for the answer");
}

/* Sends the exchange's answer, if there still is somebody to send it to, and recycles it. */
void exchange_answer(struct server *server, struct exchange *exchange)
{
    if (exchange->request && exchange->wait_ms && part_is_unknown_grant(&exchange->first) && client_has_left(exchange))
        exchange_hang_up(exchange);
    if (!exchange->request && !exchange->answered_late)
        unclaimed_release(exchange);
    struct evhttp_request *request = exchange->request;
    if (request && exchange->answer.body.broken)
        answer_without_body(exchange);
    exchange->request = NULL;
    if (request)
        answer_send(server, request, exchange->connection, exchange->id, &exchange->answer);
    exchange_recycle(server, exchange);
}

/* An engine's thread has finished some: takes all there are. */
void outbox_drain(struct server *server)
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
