/* SPDX-License-Identifier: MIT */
/*
 * Load over HTTP: one thread, epoll, N kept-alive connections. Each acquires and then releases under a new key, one
 * operation per request (or --batch of them). It shares the machine with the measured permitd, so it must cost only a
 * few microseconds per request: it builds requests once and rewrites only their keys, and of an answer it reads only
 * status and length.
 *
 * --burst N: N acquires and no release, as fast as the connections carry them.
 *
 * --get PATH: only GETs of PATH, which count as operations: the cost of HTTP itself.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SERIAL_LENGTH = 8,
    BATCH_MAX = 1000,
    INPUT_SIZE = 1 << 19,
    EVENTS_MAX = 512,
};

struct settings {
    unsigned port;
    unsigned clients;
    double seconds;
    double warmup;
    const char *semaphore;
    unsigned batch;  /* operations per request */
    uint64_t burst;  /* 0: acquire and release for `seconds` */
    const char *get; /* NULL: acquires */
    const char *watch;
};

/* The bytes of a request, with the positions of its keys. */
struct request_text {
    char *data;
    size_t length;
    size_t serials[BATCH_MAX]; /* offsets of the serial number in each key */
};

struct connection {
    int fd;
    bool releasing;
    struct request_text acquire;
    struct request_text release;
    int64_t sent_us;
    char *input;
    size_t input_length;
};

struct load {
    struct settings settings;
    struct measure measure;
    struct connection *connections;
    int epoll_fd;
    uint32_t serial;
    uint64_t burst_left;
    unsigned active; /* connections that wait for an answer */
    bool stopping;   /* complete the pair, then stay idle */
    bool counting;
};

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the requests ---- */

static const char *host_line(const struct load *load)
{
    static char line[64];
    snprintf(line, sizeof(line), "Host: 127.0.0.1:%u\r\n", load->settings.port);
    return line;
}

static void text_from(struct request_text *text, const char *head, const char *body)
{
    if (asprintf(&text->data, "%s%s", head, body) < 0)
        fail("no memory");
    text->length = strlen(text->data);
    const char *at = text->data;
    for (size_t i = 0; i < BATCH_MAX && (at = strstr(at, "SSSSSSSS")); i++, at++)
        text->serials[i] = (size_t)(at - text->data);
}

static void build_single(struct load *load, struct connection *connection, const char *key)
{
    char head[512], body[512];
    snprintf(body, sizeof(body),
             "{\"external_id\":\"%s\",\"owner\":\"bench\",\"permits\":[{\"semaphore\":\"%s\",\"count\":1}]}", key,
             load->settings.semaphore);
    snprintf(head, sizeof(head),
             "POST /v1/requests HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             host_line(load), strlen(body));
    text_from(&connection->acquire, head, body);
    snprintf(head, sizeof(head), "DELETE /v1/requests/%s HTTP/1.1\r\n%s\r\n", key, host_line(load));
    text_from(&connection->release, head, "");
}

static void build_batch(struct load *load, struct request_text *text, const char *operation)
{
    char *body = NULL, head[512];
    size_t length = 0;
    FILE *out = open_memstream(&body, &length);
    if (!out)
        fail("no memory");
    fputs("{\"operations\":[", out);
    for (unsigned i = 0; i < load->settings.batch; i++)
        fprintf(out, "%s%s", i ? "," : "", operation);
    fputs("]}", out);
    fclose(out);
    snprintf(head, sizeof(head),
             "POST /v1/batch HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             host_line(load), length);
    text_from(text, head, body);
    free(body);
}

static void build_requests(struct load *load, struct connection *connection, unsigned number, unsigned run)
{
    char key[64], operation[512];
    snprintf(key, sizeof(key), "b%08x-%04x-SSSSSSSS", run, number & 0xffffu);
    if (load->settings.get) {
        snprintf(operation, sizeof(operation), "GET %s HTTP/1.1\r\n%s\r\n", load->settings.get, host_line(load));
        text_from(&connection->acquire, operation, "");
        return;
    }
    if (load->settings.batch <= 1) {
        build_single(load, connection, key);
        return;
    }
    snprintf(operation, sizeof(operation),
             "{\"op\":\"acquire\",\"external_id\":\"%s\",\"owner\":\"bench\",\"permits\":[{\"semaphore\":\"%s\","
             "\"count\":1}]}",
             key, load->settings.semaphore);
    build_batch(load, &connection->acquire, operation);
    snprintf(operation, sizeof(operation), "{\"op\":\"release\",\"external_id\":\"%s\"}", key);
    build_batch(load, &connection->release, operation);
}

static void write_serial(char *at, uint32_t serial)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = SERIAL_LENGTH - 1; i >= 0; i--, serial >>= 4)
        at[i] = digits[serial & 15];
}

/* Writes new keys into both requests. */
static void renew_keys(struct load *load, struct connection *connection)
{
    if (load->settings.get)
        return;
    for (unsigned i = 0; i < load->settings.batch; i++) {
        uint32_t serial = load->serial++;
        write_serial(connection->acquire.data + connection->acquire.serials[i], serial);
        if (!load->settings.burst)
            write_serial(connection->release.data + connection->release.serials[i], serial);
    }
}

/* ---- the connections ---- */

static int connect_to(unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* A request is far smaller than a socket's buffer, and the server has read the previous one. */
static void send_next(struct load *load, struct connection *connection, int64_t now)
{
    if (!connection->releasing) {
        if (load->stopping || (load->settings.burst && load->burst_left == 0)) {
            load->active--;
            return;
        }
        load->burst_left -= load->settings.burst > 0;
        renew_keys(load, connection);
    }
    const struct request_text *text = connection->releasing ? &connection->release : &connection->acquire;
    for (size_t sent = 0; sent < text->length;) {
        ssize_t part = send(connection->fd, text->data + sent, text->length - sent, MSG_NOSIGNAL);
        if (part < 0 && errno != EINTR)
            fail("send");
        sent += part > 0 ? (size_t)part : 0;
    }
    connection->sent_us = now;
}

/* Number of a batch's results with status 2xx. */
static uint64_t count_granted(const char *text, size_t length)
{
    static const char mark[] = "\"status\":2";
    uint64_t count = 0;
    const char *end = text + length;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), mark, sizeof(mark) - 1)); at++)
        count++;
    return count;
}

static void count_answer(struct load *load, const struct connection *connection, int status, size_t length, int64_t now)
{
    if (!load->counting)
        return;
    struct measure *measure = &load->measure;
    if (!connection->releasing)
        samples_add(&measure->acquires, now - connection->sent_us);
    if (status == 423)
        measure->refused++;
    else if (status != 200 && status != 201)
        measure->failed++;
    else if (load->settings.batch <= 1)
        measure->operations++;
    else {
        uint64_t granted = count_granted(connection->input, length);
        measure->operations += granted;
        measure->failed += load->settings.batch - granted;
    }
}

/* The length of the answer if it is complete, else 0. */
static size_t answer_length(const char *text, size_t length)
{
    static const char mark[] = "Content-Length: ";
    const char *end = memmem(text, length, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t header = (size_t)(end - text) + 4;
    const char *size = memmem(text, header, mark, sizeof(mark) - 1);
    size_t whole = header + (size ? strtoul(size + sizeof(mark) - 1, NULL, 10) : 0);
    return length >= whole ? whole : 0;
}

static void print_failure_once(const char *answer)
{
    static bool done;
    if (!done)
        fprintf(stderr, "loadgen: unexpected answer: %.600s\n", answer);
    done = true;
}

static void handle_answer(struct load *load, struct connection *connection, size_t length)
{
    int64_t now = measure_now_us();
    int status = atoi(connection->input + strlen("HTTP/1.1 "));
    count_answer(load, connection, status, length, now);
    if (status != 200 && status != 201 && status != 423)
        print_failure_once(connection->input);
    bool granted = status == 200 || status == 201;
    /* A failed release is repeated; a refused acquire has nothing to release. */
    if (!load->settings.burst && !load->settings.get)
        connection->releasing = connection->releasing ? !granted && !load->stopping : granted;
    connection->input_length = 0;
    send_next(load, connection, now);
}

static void handle_input(struct load *load, struct connection *connection)
{
    ssize_t got = recv(connection->fd, connection->input + connection->input_length,
                       INPUT_SIZE - 1 - connection->input_length, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0)
        fail("the server closed a connection");
    connection->input_length += (size_t)got;
    connection->input[connection->input_length] = 0;
    size_t length = answer_length(connection->input, connection->input_length);
    if (length)
        handle_answer(load, connection, length);
}

/* Runs until `end`, or until all requests are answered. */
static void run_until(struct load *load, int64_t end)
{
    struct epoll_event events[EVENTS_MAX];
    while (load->active) {
        int64_t left = end - measure_now_us();
        if (left <= 0)
            return;
        int count = epoll_wait(load->epoll_fd, events, EVENTS_MAX, (int)(left / 1000) + 1);
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < count; i++)
            handle_input(load, events[i].data.ptr);
    }
}

static void open_connections(struct load *load)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned run = (unsigned)now.tv_sec ^ ((unsigned)now.tv_nsec << 2) ^ ((unsigned)getpid() << 20);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load->connections = calloc(load->settings.clients, sizeof(load->connections[0]));
    if (load->epoll_fd < 0 || !load->connections)
        fail("no memory");
    for (unsigned i = 0; i < load->settings.clients; i++) {
        struct connection *connection = &load->connections[i];
        connection->fd = connect_to(load->settings.port);
        connection->input = malloc(INPUT_SIZE);
        if (!connection->input)
            fail("no memory");
        build_requests(load, connection, i, run);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event);
    }
}

static int64_t in_seconds(double seconds)
{
    return measure_now_us() + (int64_t)(seconds * 1e6);
}

static void send_first(struct load *load)
{
    load->active = load->settings.clients;
    for (unsigned i = 0; i < load->settings.clients; i++)
        send_next(load, &load->connections[i], measure_now_us());
}

static void run_pairs(struct load *load)
{
    send_first(load);
    run_until(load, in_seconds(load->settings.warmup));
    measure_begin(&load->measure);
    load->counting = true;
    run_until(load, in_seconds(load->settings.seconds));
    measure_end(&load->measure);
    load->counting = false;
    load->stopping = true;
    run_until(load, in_seconds(30));
}

static void run_burst(struct load *load)
{
    load->burst_left = load->settings.burst;
    load->counting = true;
    measure_begin(&load->measure);
    send_first(load);
    run_until(load, in_seconds(60));
    measure_end(&load->measure);
}

static void close_connections(struct load *load)
{
    for (unsigned i = 0; i < load->settings.clients; i++) {
        struct connection *connection = &load->connections[i];
        close(connection->fd);
        free(connection->input);
        free(connection->acquire.data);
        free(connection->release.data);
    }
    free(load->connections);
    close(load->epoll_fd);
    samples_release(&load->measure.acquires);
}

static const struct option options[] = {
    {"port", required_argument, NULL, 'p'},      {"clients", required_argument, NULL, 'c'},
    {"seconds", required_argument, NULL, 't'},   {"warmup", required_argument, NULL, 'w'},
    {"semaphore", required_argument, NULL, 's'}, {"batch", required_argument, NULL, 'b'},
    {"burst", required_argument, NULL, 'n'},     {"get", required_argument, NULL, 'g'},
    {"watch", required_argument, NULL, 'W'},     {NULL, 0, NULL, 0},
};

static void take_option(struct settings *settings, int option)
{
    switch (option) {
    case 'p': settings->port = (unsigned)atoi(optarg); break;
    case 'c': settings->clients = (unsigned)atoi(optarg); break;
    case 't': settings->seconds = atof(optarg); break;
    case 'w': settings->warmup = atof(optarg); break;
    case 's': settings->semaphore = optarg; break;
    case 'b': settings->batch = (unsigned)atoi(optarg); break;
    case 'n': settings->burst = strtoull(optarg, NULL, 10); break;
    case 'g': settings->get = optarg; break;
    case 'W': settings->watch = optarg; break;
    default: exit(2);
    }
}

int main(int argc, char **argv)
{
    struct load load = {.settings = {.clients = 64, .seconds = 3, .warmup = 0.5, .semaphore = "hot", .batch = 1}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(&load.settings, option);
    if (!load.settings.port || !load.settings.clients || load.settings.batch < 1 || load.settings.batch > BATCH_MAX) {
        fprintf(stderr,
                "usage: loadgen --port P [--clients N] [--seconds S] [--warmup S] [--semaphore NAME] [--batch N] "
                "[--burst N] [--get PATH] [--watch PID,PID]\n");
        return 2;
    }
    measure_watch(&load.measure, load.settings.watch);
    open_connections(&load);
    if (load.settings.burst)
        run_burst(&load);
    else
        run_pairs(&load);
    measure_print(&load.measure);
    printf("unanswered %u\n", load.active);
    close_connections(&load);
    return 0;
}
