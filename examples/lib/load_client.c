/* SPDX-License-Identifier: MIT */
/* See load_client.h. */
#include "load_client.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    INPUT_SIZE = 1 << 16,
    EVENTS_MAX = 512,
    CONNECTING_MAX = 256,
    PORTS_PER_SOURCE = 2000, /* of about 28,000 ports per address; searching for the last ones is slow */
};

struct connection {
    int fd; /* -1: closed */
    unsigned port;
    char *input; /* the part of an answer read so far */
    size_t input_length;
    char *output; /* the part of a request that the socket has not taken yet; NULL: none */
    size_t output_length;
    int64_t sent_us;
};

struct load_pool {
    struct load_settings settings;
    uint32_t address;
    struct connection *connections;
    int epoll_fd;
    char *input; /* shared: an answer that arrives in one piece is never copied */
    size_t input_size;
    int64_t *wake_us;                   /* of each number; 0: no timer */
    int64_t first_wake_us;              /* no timer is due before */
    unsigned greeted, greeting, failed; /* load_pool_connect: connections begun, without answer, without 200 */
};

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "load_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *must(void *made)
{
    if (!made)
        fail("no memory");
    return made;
}

int64_t load_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

size_t load_raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files))
        fail("getrlimit");
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_max;
}

/* ---- requests and answers ---- */

char *load_request(const char *host, const char *method, const char *path, const char *headers, const char *body)
{
    const char *type = body && !strcasestr(headers, "Content-Type:") ? "Content-Type: application/json\r\n" : "";
    char length[64] = "", *text;
    if (body)
        snprintf(length, sizeof(length), "Content-Length: %zu\r\n", strlen(body));
    if (asprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n%s", method, path, host, type, length, headers,
                 body ? body : "") < 0)
        fail("no memory");
    return text;
}

const char *load_header(const char *lines, const char *name, size_t *ret_length)
{
    size_t length = strlen(name);
    for (const char *line = lines, *end; (end = strchr(line, '\n')) && *line != '\r'; line = end + 1) {
        if ((*line ^ *name) & 0x1f || strncasecmp(line, name, length) || line[length] != ':')
            continue; /* mostly by the first letter, which costs no call */
        line += length + 1;
        line += strspn(line, " \t");
        *ret_length = (size_t)(end - 1 - line);
        return line;
    }
    return NULL;
}

bool load_answer_read(const char *bytes, size_t length, bool no_body, struct load_answer *ret_answer)
{
    const char *end = memmem(bytes, length, "\r\n\r\n", 4);
    if (!end)
        return false;
    size_t word, head = (size_t)(end - bytes) + 4;
    const char *content = no_body ? NULL : load_header(bytes, "Content-Length", &word);
    size_t body = content ? strtoul(content, NULL, 10) : 0;
    if (body > length - head)
        return false;
    const char *connection = load_header(bytes, "Connection", &word);
    *ret_answer = (struct load_answer){
        .status = strncmp(bytes, "HTTP/1.", 7) ? 0 : atoi(bytes + strlen("HTTP/1.1 ")),
        .text = bytes,
        .length = head + body,
        .body = bytes + head,
        .body_length = body,
        .closes = connection && word == strlen("close") && !strncasecmp(connection, "close", word),
    };
    return true;
}

/* ---- timers ---- */

void load_wake(struct load_pool *pool, unsigned number, int64_t at_us)
{
    at_us = (at_us + 999) / 1000 * 1000; /* so that run_timers looks through them once in a millisecond at most */
    pool->wake_us[number] = at_us;
    if (at_us && at_us < pool->first_wake_us)
        pool->first_wake_us = at_us;
}

static void run_timers(struct load_pool *pool)
{
    int64_t now = pool->first_wake_us == INT64_MAX ? 0 : load_now_us();
    if (now < pool->first_wake_us)
        return;
    pool->first_wake_us = INT64_MAX;
    for (unsigned i = 0; i < pool->settings.count; i++) {
        int64_t at_us = pool->wake_us[i];
        bool due = at_us && at_us <= now;
        load_wake(pool, i, due ? 0 : at_us);
        if (due)
            pool->settings.woken(pool->settings.context, i);
    }
}

/* ---- connections ---- */

/* A loopback address that this process has used for few connections. */
static uint32_t next_source(void)
{
    static uint32_t used;
    uint32_t number = used++ / PORTS_PER_SOURCE;
    return (127u << 24) + (((uint32_t)getpid() & 0x7fff) << 8) + 1 + number % 250;
}

int load_connect(uint32_t address, unsigned port, uint32_t source, int flags)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)}, to = from;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        return -1;
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(address);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if ((!source || !bind(fd, (struct sockaddr *)&from, sizeof(from))) &&
        (!connect(fd, (struct sockaddr *)&to, sizeof(to)) || flags & SOCK_NONBLOCK))
        return fd;
    close(fd);
    return -1;
}

static void watch(struct load_pool *pool, struct connection *connection, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(pool->epoll_fd, operation, connection->fd, &event))
        fail("epoll_ctl");
}

/* Drops the bytes of an exchange. */
static void connection_clear(struct connection *connection)
{
    free(connection->input);
    free(connection->output);
    connection->input = connection->output = NULL;
    connection->input_length = connection->output_length = 0;
}

void load_close(struct load_pool *pool, unsigned number)
{
    struct connection *connection = &pool->connections[number];
    connection_clear(connection);
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

void load_close_sending(struct load_pool *pool, unsigned number)
{
    shutdown(pool->connections[number].fd, SHUT_WR);
}

void load_set_port(struct load_pool *pool, unsigned number, unsigned port)
{
    pool->connections[number].port = port;
}

/* ---- exchanges ---- */

/* Sends as much as the socket takes now and keeps the rest. If the connection is broken, reading from it will tell. */
static void connection_write(struct load_pool *pool, struct connection *connection, const char *bytes, size_t length)
{
    ssize_t sent = send(connection->fd, bytes, length, MSG_NOSIGNAL);
    size_t done = sent >= 0 ? (size_t)sent : errno == EAGAIN || errno == EINTR ? 0 : length;
    if (done < length || connection->output)
        watch(pool, connection, EPOLL_CTL_MOD, done < length ? EPOLLIN | EPOLLOUT : EPOLLIN);
    char *rest = done < length ? memcpy(must(malloc(length - done)), bytes + done, length - done) : NULL;
    free(connection->output);
    connection->output = rest;
    connection->output_length = length - done;
}

void load_send(struct load_pool *pool, unsigned number, const char *bytes, size_t length)
{
    struct connection *connection = &pool->connections[number];
    connection->sent_us = load_now_us();
    if (connection->fd < 0) {
        uint32_t source = pool->settings.many_sources ? next_source() : 0;
        connection->fd = load_connect(pool->address, connection->port, source, SOCK_NONBLOCK);
        if (connection->fd < 0)
            fail("socket");
        watch(pool, connection, EPOLL_CTL_ADD, EPOLLIN);
    }
    connection_write(pool, connection, bytes, length);
}

/* Keeps the bytes of an unfinished answer, and grows the buffer if they fill it. */
static void connection_keep(struct load_pool *pool, struct connection *connection, size_t length)
{
    connection->input = must(realloc(connection->input, length));
    connection->input_length = length;
    memcpy(connection->input, pool->input, length);
    if (2 * length > pool->input_size) {
        pool->input_size *= 2;
        pool->input = must(realloc(pool->input, pool->input_size));
    }
}

static void connection_read(struct load_pool *pool, struct connection *connection)
{
    size_t kept = connection->input_length;
    struct load_answer answer = {.status = 0};
    unsigned number = (unsigned)(connection - pool->connections);
    if (kept)
        memcpy(pool->input, connection->input, kept);
    ssize_t got = recv(connection->fd, pool->input + kept, pool->input_size - 1 - kept, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    size_t length = kept + (got > 0 ? (size_t)got : 0);
    pool->input[length] = 0;
    if (got > 0 && !load_answer_read(pool->input, length, false, &answer)) {
        connection_keep(pool, connection, length);
        return;
    }
    pool->input[answer.length] = 0;
    if (answer.status)
        connection_clear(connection);
    else
        load_close(pool, number);
    answer.sent_us = connection->sent_us;
    answer.arrived_us = load_now_us();
    pool->settings.answered(pool->settings.context, number, answer.status ? &answer : NULL);
}

void load_pool_step(struct load_pool *pool, int ms)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t left_us = pool->first_wake_us == INT64_MAX ? INT64_MAX : pool->first_wake_us - load_now_us();
    if (left_us < (int64_t)ms * 1000)
        ms = left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
    int count = epoll_wait(pool->epoll_fd, events, EVENTS_MAX, ms);
    if (count < 0 && errno != EINTR)
        fail("epoll_wait");
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (connection->output)
            connection_write(pool, connection, connection->output, connection->output_length);
        if (connection->fd >= 0 && events[i].events != EPOLLOUT)
            connection_read(pool, connection); /* nothing is there if the connection is a newer one */
    }
    run_timers(pool);
}

/* ---- the pool ---- */

struct load_pool *load_pool_open(const struct load_settings *settings)
{
    struct load_pool *pool = must(calloc(1, sizeof(*pool)));
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(settings->host, NULL, &hints, &found))
        fail("cannot resolve the name of the server");
    pool->address = ntohl(((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr);
    freeaddrinfo(found);
    if (load_raise_file_limit() < settings->count + 64)
        fail("this process may not open so many connections (ulimit -n)");
    pool->settings = *settings;
    pool->input_size = INPUT_SIZE;
    pool->input = must(malloc(INPUT_SIZE));
    pool->wake_us = must(calloc(settings->count, sizeof(pool->wake_us[0])));
    pool->first_wake_us = INT64_MAX;
    pool->connections = must(calloc(settings->count, sizeof(pool->connections[0])));
    for (unsigned i = 0; i < settings->count; i++)
        pool->connections[i] = (struct connection){.fd = -1, .port = settings->port};
    pool->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (pool->epoll_fd < 0)
        fail("epoll_create1");
    return pool;
}

void load_pool_close(struct load_pool *pool)
{
    if (!pool)
        return;
    for (unsigned i = 0; i < pool->settings.count; i++)
        load_close(pool, i);
    close(pool->epoll_fd);
    free(pool->connections);
    free(pool->wake_us);
    free(pool->input);
    free(pool);
}

/* Takes the answer to one GET /healthz, and sends the next one. */
static void greet(void *context, unsigned number, const struct load_answer *answer)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct load_pool *pool = context;
    (void)number;
    pool->failed += !answer || answer->status != 200;
    pool->greeting--;
    if (pool->greeted < pool->settings.count) {
        pool->greeting++;
        load_send(pool, pool->greeted++, request, sizeof(request) - 1);
    }
}

bool load_pool_connect(struct load_pool *pool)
{
    static const struct load_answer none = {.status = 200};
    struct load_settings settings = pool->settings;
    pool->settings.answered = greet;
    pool->settings.context = pool;
    pool->greeting = CONNECTING_MAX;
    for (unsigned i = 0; i < CONNECTING_MAX; i++)
        greet(pool, 0, &none);
    while (pool->greeting)
        load_pool_step(pool, 1000);
    pool->settings = settings;
    return !pool->failed;
}
