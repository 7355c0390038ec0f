/* SPDX-License-Identifier: MIT */
/* Clients that do not read their answers, or read them slowly. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fixture.h"

enum { LONG_MS = 120000, KIB = 1024, KERNEL_MOST = 128 * KIB };

static int connect_to_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_lt(snprintf(address.sun_path, sizeof address.sun_path, "%s", path), (int)sizeof address.sun_path);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "%s", path);
    return fd;
}

static void send_all(int fd, const char *bytes)
{
    for (size_t length = strlen(bytes); length;) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        cr_assert_gt(sent, 0, "%s", strerror(errno));
        bytes += sent;
        length -= (size_t)sent;
    }
}

/* ---- no further answer begins ---- */

/* Returns how many answers this permitd has begun, without that to this call. */
static double answers_begun(struct talk *talk)
{
    double begun = 0;
    reply_release(&talk->reply);
    cr_assert(kit_http_get(&talk->http, "/metrics", &talk->reply), "%s", talk->reply.error);
    for (int class = 2; class <= 5; class ++) {
        const char *name = text("\npermitd_http_answers_total{class=\"%dxx\"} ", class);
        const char *line = strstr(talk->reply.body, name);
        begun += line ? atof(line + strlen(name)) : 0;
    }
    return begun;
}

struct begun {
    struct talk *talk;
    double count;
};

/* Returns true if no other answer has begun between two calls, in which the loop has read all sockets that it reads. */
static bool no_more_begin(void *context)
{
    struct begun *begun = context;
    double before = begun->count;
    begun->count = answers_begun(begun->talk);
    return begun->count == before + 1;
}

/* `count` pipelined requests: GET `path`, then GET /p0, then `path` again, and so on. */
static char *pipelined(const char *path, int count)
{
    static const char rest[] = " HTTP/1.1\r\nHost: localhost\r\n";
    char *requests = kept(malloc((size_t)count * (strlen(path) + 100)));
    char *end = requests;
    for (int i = 0; i < count / 2; i++)
        end += sprintf(end, "GET %s%s\r\nGET /p%d%s%s\r\n", path, rest, i, rest,
                       i == count / 2 - 1 ? "Connection: close\r\n" : "");
    return requests;
}

/* Reads to the end, and asserts that all answers are there, in order. */
static void reads_all_in_order(int fd, int count)
{
    size_t size = (size_t)count * 160 * KIB, length = 0;
    char *bytes = kept(malloc(size));
    for (ssize_t got; (got = recv(fd, bytes + length, size - 1 - length, 0)) > 0;)
        length += (size_t)got;
    bytes[length] = '\0';
    const char *at = bytes;
    for (int i = 0; i < count / 2; i++) {
        const char *good = strstr(at, "HTTP/1.1 200 OK");
        const char *next = good ? strstr(good, "HTTP/1.1 404 ") : NULL;
        at = next ? strstr(next, text("there is no path /p%d\"", i)) : NULL;
        cr_assert_not_null(at, "answer %d of %d is missing in %zu bytes", i, count, length);
    }
}

/* Answers begin until the socket is full, whether they are large or small; the client then reads all of them. */
Test(unread, no_further_answer_begins_until_the_client_reads, .timeout = 600)
{
    static const struct {
        const char *path;
        int count;
        int most; /* answers that begin */
    } rows[] = {{"/openapi.json", 40, 2}, {"/healthz", 2000, 400}};
    char *path = kit_path("socket");
    const char *flags[] = {"--listen", text("unix:%s", path), NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    for (size_t i = 0; i < 4; i++) {
        int fd = i % 2 ? connect_to_path(path) : connect_small(permitd->port);
        struct timeval patience = {LONG_MS / 1000, 0};
        cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        struct pollfd answered = {.fd = fd, .events = POLLIN};
        double before = answers_begun(&talk);
        send_all(fd, pipelined(rows[i / 2].path, rows[i / 2].count));
        cr_assert_eq(poll(&answered, 1, LONG_MS), 1);
        struct begun begun = {&talk, -1};
        cr_assert(kit_wait_until(no_more_begin, &begun, LONG_MS));
        cr_expect_leq(begun.count - before, rows[i / 2].most + 20, "%s, %s: %g answers", rows[i / 2].path,
                      i % 2 ? "unix" : "tcp", begun.count - before);
        reads_all_in_order(fd, rows[i / 2].count);
        close(fd);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
    free(path);
}

/* A description that is the same for every client is not copied for each. */
Test(unread, constant_texts_take_no_memory, .timeout = 300)
{
    enum { CLIENTS = 100, MOST = 64 * KIB };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = connect_small(permitd->port);
        send_all(fds[i], pipelined("/openapi.json", 2));
        cr_assert_eq(poll(&(struct pollfd){.fd = fds[i], .events = POLLIN}, 1, LONG_MS), 1);
    }
    cr_expect_lt(metric_of(&talk, "permitd_http_buffered_bytes"), MOST); /* the metrics themselves have some KiB */
    for (int i = 0; i < CLIENTS; i++) {
        reads_all_in_order(fds[i], 2);
        close(fds[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- the kernel ---- */

/* Reads the queues of permitd's end of a connection from /proc/net/tcp, in bytes. */
static void kernel_queues(int fd, unsigned *ret_output, unsigned *ret_input)
{
    struct sockaddr_in own, other;
    socklen_t length = sizeof own;
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&own, &length), 0);
    length = sizeof other;
    cr_assert_eq(getpeername(fd, (struct sockaddr *)&other, &length), 0);
    char *table = kit_read_file("/proc/net/tcp");
    const char *ports = text(":%04X %08X:%04X ", ntohs(other.sin_port), own.sin_addr.s_addr, ntohs(own.sin_port));
    const char *line = table ? strstr(table, ports) : NULL;
    unsigned state;
    cr_assert(line && sscanf(line + strlen(ports), "%x %x:%x", &state, ret_output, ret_input) == 3, "%s", table);
    free(table);
}

static bool output_is_queued(void *fd)
{
    unsigned output, input;
    kernel_queues(*(int *)fd, &output, &input);
    return output > 0;
}

Test(unread, kernel_keeps_little_of_answers, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    unsigned output, input;
    int fd = connect_small(shared_port());
    send_all(fd, pipelined("/openapi.json", 100));
    cr_assert(kit_wait_until(output_is_queued, &fd, LONG_MS));
    struct begun begun = {&talk, -1};
    for (int i = 0; i < 10 && !no_more_begin(&begun); i++) /* of the shared permitd others may get answers, too */
        ;
    kernel_queues(fd, &output, &input);
    cr_expect_leq(output, KERNEL_MOST, "%u bytes", output);
    close(fd);
    talk_end(&talk);
}

/* Sends until the sockets of both ends take no more. */
static void send_until_full(int fd)
{
    static const char zeros[64 * KIB];
    struct pollfd writable = {.fd = fd, .events = POLLOUT};
    while (poll(&writable, 1, 1000) == 1)
        if (send(fd, zeros, sizeof zeros, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            cr_assert_eq(errno, EAGAIN, "%s", strerror(errno));
}

/* The kernel lets the buffer of a connection grow that has carried much, and permitd does not read behind a waiting request. */
Test(unread, kernel_keeps_little_of_requests, .timeout = 300)
{
    enum { BODY = 1000 * KIB, BODIES = 60 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    char *body = kept(malloc(BODY + 1));
    memset(body, ' ', BODY);
    body[BODY] = '\0';
    for (int i = 0; i < BODIES; i++)
        refused(&talk, 400, "malformed", "POST", "/v1/batch", body);
    tell(&talk, "POST", "/v1/requests", text("{\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":\"5m\"}", name));
    send_until_full(talk.http.fd);
    unsigned output, input;
    kernel_queues(talk.http.fd, &output, &input);
    cr_expect_leq(input, KERNEL_MOST, "%u bytes", input);
    talk_end(&talk);
}

/* ---- slow readers ---- */

enum { IDLE_MS = 3000, PIECE = 2 * KIB, PAUSE_MS = 40 };

/*
 * Reads the list piece by piece, for longer than idle_timeout. Returns the number of bytes; 0: a pause was so long, on a
 * slow machine, that permitd may have closed the connection.
 */
static size_t read_slowly(unsigned port, const char *path)
{
    int fd = connect_small(port);
    char piece[PIECE + 1];
    size_t length = 0;
    ssize_t got;
    int64_t start = kit_now_us(), last = start, longest = 0;
    send_all(fd, text("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path));
    while ((got = recv(fd, piece, PIECE, MSG_WAITALL)) > 0) {
        int64_t now = kit_now_us();
        longest = now - last > longest ? now - last : longest;
        last = now;
        length += (size_t)got;
        kit_sleep_ms(PAUSE_MS);
    }
    close(fd);
    cr_assert_gt(kit_now_us() - start, IDLE_MS * 1000, "it was read too fast");
    return longest < IDLE_MS * 1000 / 4 ? length : 0;
}

Test(unread, client_that_reads_slowly_gets_everything, .timeout = 600)
{
    enum { TRIES = 10 };
    static const char *const flags[] = {"--idle-timeout", "3s", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *path = text("/v1/semaphores/%s/slots?limit=1000", hall(&talk, NULL));
    say(&talk, 200, "GET", path, NULL);
    size_t length = 0;
    for (int i = 0; i < TRIES && !length; i++)
        length = read_slowly(permitd->port, path);
    cr_assert_gt(length, talk.reply.body_length, "%zu bytes of %zu and the head", length, talk.reply.body_length);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
