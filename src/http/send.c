/* SPDX-License-Identifier: MIT */
/* An answer goes out: its headers, the outbox through which the engine hands exchanges back, and their end. */
#include "http/loop.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/problem.h"
#include "http/service.h"
#include "http/unclaimed.h"

enum {
    HEAD_SIZE = 640, /* the longest head of an answer: all its headers have bounds */
    NO_CONTENT = 204,
    NOT_MODIFIED = 304, /* neither has a body, and so neither has a type and a length */
};

/* ---- the head ---- */

void date_renew(struct server *server)
{
    time_t now = time(NULL);
    struct tm parts;
    if (now == server->date_at)
        return;
    gmtime_r(&now, &parts);
    strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    server->date_at = now;
}

static const struct {
    int http_status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {410, "Gone"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {423, "Locked"},
    {429, "Too Many Requests"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
};

static const char *reason_of(int http_status)
{
    for (size_t i = 0; i < ARRAY_LENGTH(reasons); i++)
        if (reasons[i].http_status == http_status)
            return reasons[i].reason;
    return "";
}

/* Text of an answer's head; what does not fit would be a fault of ours, and is cut. */
struct head {
    char text[HEAD_SIZE];
    size_t length;
};

static void add_bytes(struct head *head, struct bytes text)
{
    if (text.length > sizeof head->text - head->length)
        text.length = sizeof head->text - head->length;
    memcpy(head->text + head->length, text.data, text.length);
    head->length += text.length;
}

static void add_number(struct head *head, uint64_t number)
{
    char digits[24];
    char *at = digits + sizeof digits;
    *--at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    add_bytes(head, bytes_of(at));
}

/* `name` as it stands behind the header before it. */
static void add_header(struct head *head, struct bytes name, const char *value)
{
    add_bytes(head, name);
    add_bytes(head, bytes_of(value));
}

/* Whole seconds, at least 1. */
static void add_retry_after(struct head *head, int64_t retry_after_ms)
{
    if (retry_after_ms <= 0)
        return;
    add_bytes(head, BYTES("\r\nRetry-After: "));
    add_number(head, (uint64_t)(retry_after_ms + MS_PER_SECOND - 1) / MS_PER_SECOND);
}

static bool has_body(const struct answer *answer)
{
    return answer->http_status != NOT_MODIFIED && answer->http_status != NO_CONTENT;
}

static void write_head(struct head *head, struct connection *connection, const struct exchange *exchange,
                       const struct answer *answer)
{
    head->length = 0;
    add_bytes(head, BYTES("HTTP/1.1 "));
    add_number(head, (uint64_t)answer->http_status);
    add_header(head, BYTES(" "), reason_of(answer->http_status));
    if (has_body(answer))
        add_header(head, BYTES("\r\nContent-Type: "), answer->content_type);
    add_header(head, BYTES("\r\nX-Request-Id: "), exchange->id);
    add_header(head, BYTES("\r\nDate: "), connection->server->date);
    if (answer->etag[0])
        add_header(head, BYTES("\r\nETag: "), answer->etag);
    if (answer->allow)
        add_header(head, BYTES("\r\nAllow: "), answer->allow);
    add_retry_after(head, answer->retry_after_ms);
    if (has_body(answer)) {
        add_bytes(head, BYTES("\r\nContent-Length: "));
        add_number(head, answer->body.length);
    }
    if (connection->closes)
        add_bytes(head, BYTES("\r\nConnection: close"));
    else if (exchange->is_old)
        add_bytes(head, BYTES("\r\nConnection: keep-alive"));
    add_bytes(head, BYTES("\r\n\r\n"));
}

/* ---- an answer ---- */

/* For those who read it in a terminal: a line feed, in the place of the terminating zero. */
static void end_with_line_feed(struct buf *body)
{
    if (body->data)
        body->data[body->length++] = '\n';
}

void answer_send(struct connection *connection, const struct exchange *exchange, struct answer *answer)
{
    struct head head;
    bool with_body = has_body(answer) && !exchange->head_only;
    connection->exchange = NULL;
    connection->closes = answer->close || connection->server->stopping || !exchange->keep_alive;
    connection->server->counts.answers[answer->http_status / 100]++;
    end_with_line_feed(&answer->body);
    write_head(&head, connection, exchange, answer);
    connection_answer(connection, (struct bytes){head.text, head.length}, with_body ? &answer->body : NULL);
}

/* ---- what the engine has decided ---- */

static void wake(struct server *server)
{
    uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0)
        log_write(LOG_ERROR, "cannot wake the event loop", "error", strerror(errno), NULL);
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
    if (was_empty)
        wake(server);
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

void exchange_answer(struct server *server, struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    if (connection && exchange->wait_ms && part_is_unknown_grant(&exchange->first) && connection_has_ended(connection))
        connection_close(connection);
    if (!exchange->connection && !exchange->answered_late)
        unclaimed_release(exchange);
    if (exchange->answer.body.broken)
        answer_without_body(exchange);
    if (exchange->connection)
        answer_send(connection, exchange, &exchange->answer);
    exchange_recycle(server, exchange);
}

void exchange_answer_later(struct server *server, struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    server->counts.exchanges--;
    exchange_answer(server, exchange);
    if (connection)
        connection_read(connection);
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
        if (exchange_is_handled(exchange))
            exchange_answer_later(server, exchange);
        else
            exchange->off_loop.finished = true;
        exchange = next;
    }
}
