/* SPDX-License-Identifier: MIT */
/* Sends answers: headers, the outbox through which the engine returns exchanges, and the end of exchanges. */
#include "http/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    HEAD_SIZE = 640, /* longest head of an answer: all headers have a maximum length */
    NO_CONTENT = 204,
    NOT_MODIFIED = 304, /* neither has a body, so neither has Content-Type and Content-Length */
};

/* ---- the head ---- */

void date_update(struct server *server)
{
    time_t now = time(NULL);
    struct tm items;
    if (now == server->date_at)
        return;
    gmtime_r(&now, &items);
    strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &items);
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

/* Head of an answer. Text that does not fit is cut, which would be a bug. */
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

/* Adds `name`, which includes the line end of the header before it, and `value`. */
static void add_header(struct head *head, struct bytes name, const char *value)
{
    add_bytes(head, name);
    add_bytes(head, bytes_of(value));
}

static bool has_body(const struct answer *answer)
{
    return answer->http_status != NOT_MODIFIED && answer->http_status != NO_CONTENT;
}

static void write_head(struct head *head, struct connection *connection, const struct exchange *exchange,
                       const struct answer *answer, size_t body_length)
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
    if (answer->cache_control)
        add_header(head, BYTES("\r\nCache-Control: "), answer->cache_control);
    if (answer->authenticate)
        add_header(head, BYTES("\r\nWWW-Authenticate: "), answer->authenticate);
    if (answer->allow)
        add_header(head, BYTES("\r\nAllow: "), answer->allow);
    if (answer->retry_after_ms > 0) { /* in whole seconds, at least 1 */
        add_bytes(head, BYTES("\r\nRetry-After: "));
        add_number(head, (uint64_t)(answer->retry_after_ms + MS_PER_SECOND - 1) / MS_PER_SECOND);
    }
    if (has_body(answer)) {
        add_bytes(head, BYTES("\r\nContent-Length: "));
        add_number(head, body_length);
    }
    if (connection->closes)
        add_bytes(head, BYTES("\r\nConnection: close"));
    else if (exchange->is_old)
        add_bytes(head, BYTES("\r\nConnection: keep-alive"));
    add_bytes(head, BYTES("\r\n\r\n"));
}

/* ---- an answer ---- */

void answer_send(struct connection *connection, const struct exchange *exchange, struct answer *answer)
{
    struct head head;
    assert(connection->exchange == exchange);
    assert((size_t)answer->http_status / 100 < ARRAY_LENGTH(connection->server->counts.answers));
    connection->exchange = NULL;
    connection->closes = answer->close || connection->server->stopping || !exchange->keep_alive;
    connection->server->counts.answers[answer->http_status / 100]++;
    bool is_constant = answer->constant.data;
    if (!is_constant && answer->body.data)
        answer->body.data[answer->body.length++] = '\n'; /* for terminals; in the place of the terminating zero */
    struct bytes body = is_constant ? answer->constant : (struct bytes){answer->body.data, answer->body.length};
    write_head(&head, connection, exchange, answer, body.length);
    assert(head.length < sizeof head.text);
    if (!has_body(answer) || exchange->head_only)
        body.length = 0;
    connection_answer(connection, (struct bytes){head.text, head.length}, body, is_constant ? NULL : &answer->body);
}

/* ---- finished exchanges ---- */

void server_wake(struct server *server)
{
    uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0)
        log_write(LOG_ERROR, "cannot wake the event loop", "error", strerror(errno), NULL);
}

void exchange_finish(struct exchange *exchange)
{
    struct server *server = exchange->server;
    exchange->next = NULL;
    mutex_lock(&server->outbox_mutex);
    bool was_empty = server->outbox == NULL;
    *server->outbox_end = exchange;
    server->outbox_end = &exchange->next;
    mutex_unlock(&server->outbox_mutex);
    if (was_empty)
        server_wake(server);
}

void answer_refuse(struct exchange *exchange, enum permit_status status, const char *detail)
{
    exchange->server->settings.hooks->refuse(&exchange->answer, exchange->id, status, detail);
}

/* Answers an exchange whose body could not be written. The operation itself has been done. */
static void answer_without_body(struct exchange *exchange)
{
    unsigned fault = exchange->answer.body.broken;
    if (fault & BUF_TOO_LONG)
        answer_refuse(exchange, PERMIT_INTERNAL, "the answer is too large");
    else if (exchange->method != METHOD_GET)
        answer_refuse(exchange, PERMIT_OUTCOME_UNKNOWN, "no memory for the answer");
    else if (fault & BUF_SHARE_FULL)
        exchange->server->settings.hooks->refuse_share(exchange);
    else
        answer_refuse(exchange, PERMIT_BUSY, "no memory for the answer");
}

void exchange_answer(struct server *server, struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    if (connection && exchange->may_wait && exchange->answer.must_arrive && connection_client_closed(connection))
        connection_close(connection);
    if (!exchange->connection && !exchange->answered_late && exchange->answer.must_arrive)
        server->settings.hooks->undelivered(exchange);
    if (exchange->answer.body.broken)
        answer_without_body(exchange);
    if (exchange->wait_ended && exchange->answer.http_status >= 400)
        answer_refuse(exchange, PERMIT_UNAUTHENTICATED, NULL);
    if (exchange->connection)
        answer_send(connection, exchange, &exchange->answer);
    exchange_recycle(server, exchange);
}

void exchange_answer_decided(struct server *server, struct exchange *exchange)
{
    struct connection *connection = exchange->connection;
    assert(server->counts.exchanges > 0);
    server->counts.exchanges--;
    exchange_answer(server, exchange);
    if (connection)
        connection_read(connection);
}

/* Answers all exchanges that the engine's threads have finished. */
void outbox_drain(struct server *server)
{
    mutex_lock(&server->outbox_mutex);
    struct exchange *exchange = server->outbox;
    server->outbox = NULL;
    server->outbox_end = &server->outbox;
    mutex_unlock(&server->outbox_mutex);
    while (exchange) {
        struct exchange *next = exchange->next;
        if (exchange_is_handled(exchange))
            exchange_answer_decided(server, exchange);
        else
            exchange->off_loop.finished = true;
        exchange = next;
    }
}
