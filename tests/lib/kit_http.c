/* SPDX-License-Identifier: MIT */
/*
 * A plain, blocking HTTP/1.1 client with keep-alive, on the requests and answers of examples/lib/load_client.h. It never
 * repeats a request; the test learns of a lost one.
 */
#include "kit_process.h"
#include "load_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, READ_STEP = 16384 };

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
    return load_connect(INADDR_LOOPBACK, port, 0, 0);
}

/* Returns true if the server has closed the kept connection; a request sent on it would be lost. */
static bool is_closed(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&look, 1, 0) > 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

/* Connects if that is needed. Returns false if there is no connection, so nothing was sent. */
static bool send_bytes(struct kit_http *http, const char *data, size_t length)
{
    if (http->fd >= 0 && is_closed(http->fd))
        kit_http_close(http);
    if (http->fd < 0) {
        struct timeval limit = {http->timeout_ms / 1000, (http->timeout_ms % 1000) * 1000L};
        http->fd = kit_connect(http->port);
        if (http->fd < 0)
            return false;
        setsockopt(http->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(http->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    }
    /* A server may refuse and close before it has read everything, so the answer is read in any case. */
    for (ssize_t sent; length && ((sent = send(http->fd, data, length, MSG_NOSIGNAL)) > 0 || errno == EINTR);) {
        data += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

bool kit_http_send(struct kit_http *http, const char *method, const char *path, const char *headers, const char *body)
{
    char host[32];
    snprintf(host, sizeof(host), "127.0.0.1:%u", http->port);
    char *request = load_request(host, method, path, headers ? headers : "", body);
    bool sent = send_bytes(http, request, strlen(request));
    free(request);
    return sent;
}

/* Reads until the answer is complete, or until the end of the connection, a timeout or an error. */
bool kit_http_receive(struct kit_http *http, const char *method, struct reply *ret_reply)
{
    struct load_answer answer = {.status = 0};
    char *input = NULL;
    size_t length = 0, room = 0;
    ssize_t got;
    *ret_reply = (struct reply){.sent = http->fd >= 0};
    if (http->fd < 0) {
        ret_reply->error = "cannot connect";
        ret_reply->body = kit_copy("");
        return false;
    }
    do {
        if (room - length < READ_STEP) {
            room += READ_STEP + room / 2;
            input = realloc(input, room + 1);
            KIT_CHECK(input);
        }
        do
            got = recv(http->fd, input + length, room - length, 0);
        while (got < 0 && errno == EINTR);
        length += got > 0 ? (size_t)got : 0;
        input[length] = 0;
    } while (got > 0 && !load_answer_read(input, length, !strcmp(method, "HEAD"), &answer));
    if (answer.status) {
        const char *lines = strchr(input, '\n') + 1;
        ret_reply->status = answer.status;
        ret_reply->headers = kit_text("%.*s", (int)(answer.body - 2 - lines), lines);
        ret_reply->body_length = answer.body_length;
        memmove(input, answer.body, answer.body_length);
    } else {
        bool late = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        ret_reply->error = late ? "no answer in time" : "closed without an answer";
    }
    if (!answer.status || answer.closes)
        kit_http_close(http);
    ret_reply->body = input;
    ret_reply->body[ret_reply->body_length] = 0;
    return ret_reply->status != 0;
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
    size_t length;
    const char *value = reply->headers ? load_header(reply->headers, name, &length) : NULL;
    return value ? kit_text("%.*s", (int)length, value) : NULL;
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
