/* SPDX-License-Identifier: MIT */
/* A plain, blocking HTTP/1.1 client with keep-alive. It never repeats a request; the test learns of a lost one. */
#include "kit_process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, READ_STEP = 16384 };

/* Bytes that have arrived and are not yet used. */
struct input {
    char *data;
    size_t length;
    size_t capacity;
};

struct kit_http kit_http(unsigned port)
{
    return (struct kit_http){.port = port, .fd = -1, .timeout_ms = TIMEOUT_MS};
}

void kit_http_close(struct kit_http *http)
{
    if (http->fd >= 0)
        close(http->fd);
    http->fd = -1;
}

int kit_connect(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* Returns true if the server has closed the kept connection; a request sent on it would be lost. */
static bool is_closed(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&look, 1, 0) > 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static bool http_connect(struct kit_http *http)
{
    if (http->fd >= 0 && is_closed(http->fd))
        kit_http_close(http);
    if (http->fd >= 0)
        return true;
    http->fd = kit_connect(http->port);
    if (http->fd < 0)
        return false;
    struct timeval limit = {http->timeout_ms / 1000, (http->timeout_ms % 1000) * 1000L};
    setsockopt(http->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(http->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return true;
}

static bool send_all(int fd, const char *data, size_t length)
{
    while (length) {
        ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        length -= (size_t)sent;
    }
    return true;
}

/*
 * Reads more bytes. Returns false at the end of the connection, after a timeout or an error. The input stays
 * zero-terminated.
 */
static bool input_more(struct input *input, int fd)
{
    if (input->capacity - input->length < READ_STEP) {
        input->capacity += READ_STEP + input->capacity / 2;
        input->data = realloc(input->data, input->capacity + 1);
        if (!input->data)
            abort();
    }
    ssize_t got;
    do
        got = recv(fd, input->data + input->length, input->capacity - input->length, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return false;
    input->length += (size_t)got;
    input->data[input->length] = 0;
    return true;
}

/* Returns the end of the header, after the empty line; 0 if the connection ended first. */
static size_t input_header(struct input *input, int fd)
{
    for (;;) {
        char *end = input->length ? memmem(input->data, input->length, "\r\n\r\n", 4) : NULL;
        if (end)
            return (size_t)(end - input->data) + 4;
        if (!input_more(input, fd))
            return 0;
    }
}

static bool input_fill(struct input *input, int fd, size_t length)
{
    while (input->length < length)
        if (!input_more(input, fd))
            return false;
    return true;
}

static void body_append(struct reply *reply, const char *data, size_t length)
{
    reply->body = realloc(reply->body, reply->body_length + length + 1);
    if (!reply->body)
        abort();
    if (length)
        memcpy(reply->body + reply->body_length, data, length);
    reply->body_length += length;
    reply->body[reply->body_length] = 0;
}

/* Reads a body with Transfer-Encoding: chunked, from `at` on. */
static bool read_chunks(struct input *input, int fd, size_t at, struct reply *reply)
{
    for (;;) {
        char *end;
        while (!(end = input->length > at ? memmem(input->data + at, input->length - at, "\r\n", 2) : NULL))
            if (!input_more(input, fd))
                return false;
        size_t size = strtoul(input->data + at, NULL, 16);
        at = (size_t)(end - input->data) + 2;
        if (!input_fill(input, fd, at + size + 2))
            return false;
        if (size == 0)
            return true;
        body_append(reply, input->data + at, size);
        at += size + 2;
    }
}

static bool read_body(struct input *input, int fd, size_t at, const char *method, struct reply *reply)
{
    char *encoding = reply_header(reply, "Transfer-Encoding");
    char *length = reply_header(reply, "Content-Length");
    bool whole = true;
    if (!strcmp(method, "HEAD") || reply->status == 204 || reply->status == 304 || reply->status < 200)
        ;
    else if (encoding)
        whole = read_chunks(input, fd, at, reply);
    else if (length) {
        size_t size = strtoul(length, NULL, 10);
        whole = input_fill(input, fd, at + size);
        if (whole)
            body_append(reply, input->data + at, size);
    } else {
        while (input_more(input, fd))
            ;
        body_append(reply, input->data + at, input->length - at);
    }
    free(encoding);
    free(length);
    return whole;
}

static bool read_reply(struct kit_http *http, const char *method, struct reply *reply)
{
    struct input input = {NULL, 0, 0};
    errno = 0;
    size_t at = input_header(&input, http->fd);
    int status = 0;
    bool whole = at && sscanf(input.data, "HTTP/1.%*d %d", &status) == 1;
    if (whole) {
        char *lines = strstr(input.data, "\r\n") + 2;
        reply->headers = strndup(lines, (size_t)(input.data + at - 2 - lines));
        reply->status = status;
        body_append(reply, "", 0);
        whole = read_body(&input, http->fd, at, method, reply);
    }
    if (!whole) {
        reply->status = 0;
        reply->error = errno == EAGAIN || errno == EWOULDBLOCK ? "no answer in time" : "closed without an answer";
    }
    free(input.data);
    return whole;
}

/* Returns false if there is no connection, so nothing was sent. */
static bool send_bytes(struct kit_http *http, const char *data, size_t length)
{
    if (!http_connect(http))
        return false;
    /* A server may refuse and close before it has read everything, so the answer is read in any case. */
    (void)send_all(http->fd, data, length);
    return true;
}

bool kit_http_send(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body)
{
    const char *type =
        body && !(headers && strcasestr(headers, "Content-Type:")) ? "Content-Type: application/json\r\n" : "";
    char length[64] = "";
    if (body)
        snprintf(length, sizeof(length), "Content-Length: %zu\r\n", strlen(body));
    char *request = kit_text("%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s%s%s\r\n%s", method, path, http->port, type,
                             length, headers ? headers : "", body ? body : "");
    bool sent = send_bytes(http, request, strlen(request));
    free(request);
    return sent;
}

bool kit_http_receive(struct kit_http *http, const char *method, struct reply *ret_reply)
{
    *ret_reply = (struct reply){.sent = http->fd >= 0};
    bool answered = false;
    if (http->fd < 0)
        ret_reply->error = "cannot connect";
    else
        answered = read_reply(http, method, ret_reply);
    char *connection = answered ? reply_header(ret_reply, "Connection") : NULL;
    if (!answered || (connection && !strcasecmp(connection, "close")))
        kit_http_close(http);
    free(connection);
    if (!ret_reply->body)
        body_append(ret_reply, "", 0);
    return answered;
}

bool kit_http_call(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body,
                   struct reply *ret_reply)
{
    (void)kit_http_send(http, method, path, headers, body);
    return kit_http_receive(http, method, ret_reply);
}

bool kit_http_raw(struct kit_http *http, const void *bytes, size_t length, struct reply *ret_reply)
{
    (void)send_bytes(http, bytes, length);
    return kit_http_receive(http, "", ret_reply);
}

bool kit_http_get(struct kit_http *http, const char *path, struct reply *ret_reply)
{
    return kit_http_call(http, "GET", path, NULL, NULL, ret_reply);
}

bool kit_http_put(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply)
{
    return kit_http_call(http, "PUT", path, NULL, body, ret_reply);
}

bool kit_http_post(struct kit_http *http, const char *path, const char *body, struct reply *ret_reply)
{
    return kit_http_call(http, "POST", path, NULL, body, ret_reply);
}

bool kit_http_delete(struct kit_http *http, const char *path, struct reply *ret_reply)
{
    return kit_http_call(http, "DELETE", path, NULL, NULL, ret_reply);
}

char *reply_header(const struct reply *reply, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = reply->headers; line && *line;) {
        const char *end = strstr(line, "\r\n");
        if (!end)
            break;
        if (!strncasecmp(line, name, length) && line[length] == ':') {
            const char *value = line + length + 1;
            while (value < end && (*value == ' ' || *value == '\t'))
                value++;
            return strndup(value, (size_t)(end - value));
        }
        line = end + 2;
    }
    return NULL;
}

void reply_release(struct reply *reply)
{
    free(reply->headers);
    free(reply->body);
    *reply = (struct reply){.status = 0};
}

unsigned kit_keep_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    KIT_CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
              !bind(fd, (struct sockaddr *)&address, sizeof(address)) &&
              !getsockname(fd, (struct sockaddr *)&address, &length));
    *ret_fd = fd;
    return ntohs(address.sin_port);
}
