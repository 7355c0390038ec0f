/* SPDX-License-Identifier: MIT */
/* Reading of requests and keep-alive: "Reading HTTP" and "Connections" of docs/protocol.md. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"

enum { LONG_MS = 60000 };

#define HOST "Host: localhost\r\n"

/*
 * Reads until `part` has arrived; NULL: until the server closes. Returns the bytes read; *ret_open is false if the
 * server closed.
 */
static const char *read_until(int fd, const char *part, bool *ret_open)
{
    static char bytes[65536];
    size_t length = 0;
    bytes[0] = '\0';
    *ret_open = true;
    while (!part || !strstr(bytes, part)) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        cr_assert_eq(poll(&look, 1, LONG_MS), 1, "nothing comes behind: %s", bytes);
        ssize_t got = recv(fd, bytes + length, sizeof bytes - 1 - length, 0);
        if (got <= 0) {
            *ret_open = false;
            break;
        }
        length += (size_t)got;
        bytes[length] = '\0';
    }
    return bytes;
}

/* Reads until the server closes. */
static const char *read_all(int fd)
{
    bool open;
    return read_until(fd, NULL, &open);
}

/* ---- keep-alive ---- */

enum { RELEASES = 20 };

/* Returns the number of connections that permitd has accepted. */
static double accepted(struct talk *talk)
{
    return metric_of(talk, "permitd_http_connections_total");
}

/* The HTTP clients requests, aiohttp and Java's HttpClient send Content-Length: 0 with such calls. */
Test(request_reading, calls_with_content_length_0_keep_one_connection, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port), client = talk_to(permitd->port);
    double before = accepted(&talk);
    for (int i = 0; i < RELEASES; i++) {
        const char *path = request_path(fresh_name("k"));
        say_with(&client, 200, NULL, "DELETE", path, "Content-Length: 0\r\n", NULL);
        say_with(&client, 200, NULL, "GET", path, "Content-Length: 0\r\n", NULL);
    }
    cr_assert_eq(accepted(&talk) - before, 1);
    talk_end(&client);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(request_reading, python_client_releases_over_one_connection, .timeout = 300)
{
    static const char script[] = "import http.client, sys\n"
                                 "client = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=120)\n"
                                 "for i in range(20):\n"
                                 "    client.request('DELETE', '/v1/requests/python-%d' % i, body=b'')\n"
                                 "    answer = client.getresponse()\n"
                                 "    answer.read()\n"
                                 "    assert answer.status == 200, answer.status\n";
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    char *path = kit_path("releases.py");
    write_file(path, script, 0600);
    double before = accepted(&talk);
    cr_assert_eq(system(text("python3 %s %u", path, permitd->port)), 0);
    cr_assert_eq(accepted(&talk) - before, 1);
    free(path);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(request_reading, http_1_0_connection_is_kept_on_request, .timeout = 300)
{
    int fd = kit_connect(shared_port());
    bool open;
    send_text(fd, "GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    const char *bytes = read_until(fd, "\"status\":\"ok\"", &open);
    cr_assert(open && strstr(bytes, "Connection: keep-alive\r\n"), "%s", bytes);
    send_text(fd, "GET /healthz HTTP/1.0\r\n\r\n");
    bytes = read_all(fd);
    cr_assert(strstr(bytes, "HTTP/1.1 200 OK") && strstr(bytes, "Connection: close\r\n"), "%s", bytes);
    close(fd);
}

/* ---- pipelining ---- */

/* Many more than permitd reads in advance: each waits for the database, and the rest stays in the socket. */
Test(request_reading, many_pipelined_requests_are_answered_in_order, .timeout = 300)
{
    enum { REQUESTS = 2000, EACH = 128 };
    static char all[REQUESTS * EACH], answers[REQUESTS * 1024];
    size_t length = 0, got = 0;
    int fd = kit_connect(shared_port());
    for (int i = 0; i < REQUESTS; i++)
        length +=
            (size_t)snprintf(all + length, sizeof all - length, "GET /v1/requests/none-%d%s HTTP/1.1\r\n" HOST "%s\r\n",
                             i, i % 3 ? "/why" : "", i == REQUESTS - 1 ? "Connection: close\r\n" : "");
    for (size_t sent = 0; got < sizeof answers - 1;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        look.events |= sent < length ? POLLOUT : 0;
        cr_assert_eq(poll(&look, 1, LONG_MS), 1, "%zu of %zu bytes are sent, %zu have come", sent, length, got);
        ssize_t some = look.revents & POLLOUT ? send(fd, all + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        sent += some > 0 ? (size_t)some : 0;
        some = recv(fd, answers + got, sizeof answers - 1 - got, MSG_DONTWAIT);
        if (some == 0 || (some < 0 && errno != EAGAIN))
            break;
        got += some > 0 ? (size_t)some : 0;
    }
    const char *at = answers;
    for (int i = 0; i < REQUESTS; i++) {
        at = strstr(at, text("none-%d\\\"", i));
        cr_assert_not_null(at, "answer %d of %d is missing or not in its place", i, REQUESTS);
    }
    cr_assert_eq(count_of(answers, "HTTP/1.1 404"), REQUESTS);
    close(fd);
}

/* ---- HEAD and OPTIONS ---- */

/* The connection is kept: a body sent by mistake would be read as the next answer. */
Test(request_reading, head_answers_like_get_without_a_body, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}"), *key = fresh_name("k"), *owner = fresh_name("o");
    const char *prefix = fresh_name("t");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", key, name));
    say(&talk, 201, "PUT", text("/v1/owners/%s", owner), "{\"ttl\":\"1h\"}");
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":1}");
    const char *const paths[] = {
        request_path(key),
        text("/v1/requests/%s/why", key),
        "/v1/requests",
        semaphore_path(name),
        text("/v1/semaphores/%s/fence?token=1", name),
        text("/v1/semaphores/%s/holders", name),
        text("/v1/semaphores/%s/waiters", name),
        text("/v1/semaphores/%s/slots", name),
        text("/v1/semaphores/%s/events", name),
        "/v1/semaphores",
        text("/v1/templates/%s", prefix),
        "/v1/templates",
        text("/v1/owners/%s", owner),
        "/v1/doctor",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        reply_release(&talk.reply);
        cr_assert(kit_http_call(&talk.http, "HEAD", paths[i], NULL, NULL, &talk.reply), "%s", paths[i]);
        char *length = reply_header(&talk.reply, "Content-Length"), *type = reply_header(&talk.reply, "Content-Type");
        cr_assert_eq(talk.reply.status, 200, "%s", paths[i]);
        cr_assert(length && atoi(length) > 2, "HEAD %s has no length", paths[i]);
        reply_release(&talk.reply);
        cr_assert(kit_http_get(&talk.http, paths[i], &talk.reply), "%s", paths[i]);
        cr_assert_eq(talk.reply.status, 200, "%s", paths[i]);
        header_is(&talk, "Content-Type", type);
        free(length);
        free(type);
    }
    talk_end(&talk);
}

Test(request_reading, head_has_the_content_length_of_get, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    reply_release(&talk.reply);
    cr_assert(kit_http_call(&talk.http, "HEAD", "/openapi.json", NULL, NULL, &talk.reply));
    char *length = reply_header(&talk.reply, "Content-Length");
    say(&talk, 200, "GET", "/openapi.json", NULL);
    cr_assert_eq((size_t)atol(length), talk.reply.body_length);
    free(length);
    talk_end(&talk);
}

Test(request_reading, head_without_a_get_is_405_or_404, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    reply_release(&talk.reply);
    cr_assert(kit_http_call(&talk.http, "HEAD", "/v1/batch", NULL, NULL, &talk.reply));
    cr_assert_eq(talk.reply.status, 405);
    header_is(&talk, "Allow", "POST, OPTIONS");
    reply_release(&talk.reply);
    cr_assert(kit_http_call(&talk.http, "HEAD", "/no/such", NULL, NULL, &talk.reply));
    cr_assert_eq(talk.reply.status, 404);
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
}

Test(request_reading, options_is_204_with_the_allowed_methods, .timeout = 300)
{
    static const char *const rows[][2] = {
        {"/healthz", "GET, HEAD, OPTIONS"},
        {"/v1/batch", "POST, OPTIONS"},
        {"/v1/requests", "GET, HEAD, POST, OPTIONS"},
        {"/v1/semaphores/a", "GET, HEAD, PUT, DELETE, OPTIONS"},
        {"/", "GET, HEAD, PUT, POST, DELETE, OPTIONS"},
        {"*", "GET, HEAD, PUT, POST, DELETE, OPTIONS"},
    };
    struct talk talk = talk_to(shared_port());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reply_release(&talk.reply);
        cr_assert(kit_http_call(&talk.http, "OPTIONS", rows[i][0], NULL, NULL, &talk.reply), "%s", rows[i][0]);
        cr_assert_eq(talk.reply.status, 204, "%s: %d", rows[i][0], talk.reply.status);
        header_is(&talk, "Allow", rows[i][1]);
        char *length = reply_header(&talk.reply, "Content-Length");
        cr_assert_null(length);
    }
    refused(&talk, 404, "unknown_path", "OPTIONS", "/no/such", NULL);
    talk_end(&talk);
}

/* HAProxy's default health check (option httpchk) accepts any 2xx or 3xx answer. */
Test(request_reading, haproxy_health_check_succeeds, .timeout = 300)
{
    int fd = kit_connect(shared_port());
    send_text(fd, "OPTIONS / HTTP/1.0\r\n\r\n");
    const char *bytes = read_all(fd);
    cr_assert(strstr(bytes, "HTTP/1.1 204 No Content\r\n") == bytes, "%s", bytes);
    close(fd);
}

/* ---- bodies ---- */

/* Sends headers that announce a body, and no byte of it. Asserts the 413. */
static void large_is_refused(const char *headers)
{
    int fd = kit_connect(shared_port());
    send_text(
        fd, text("POST /v1/requests/none/renew HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n%s\r\n", headers));
    const char *bytes = read_all(fd);
    cr_assert(strstr(bytes, "HTTP/1.1 413 ") == bytes && strstr(bytes, "/problems/too_large"), "%s", bytes);
    cr_assert(strstr(bytes, "Connection: close\r\n"), "%s", bytes);
    cr_assert_eq(count_of(bytes, "HTTP/1.1 "), 1, "%s", bytes);
    close(fd);
}

Test(request_reading, too_large_body_is_refused_after_its_headers, .timeout = 300)
{
    large_is_refused("Content-Length: 262145\r\n");
    large_is_refused("Content-Length: 9223372036854775807\r\n");
    large_is_refused("Content-Length: 262145\r\nExpect: 100-continue\r\n");
}

/* The client ignores the answer and keeps sending, until the server stops reading. */
Test(request_reading, bytes_of_a_client_that_keeps_sending_are_bounded, .timeout = 300)
{
    enum { MOST = 256 * 1024 * 1024 };
    static char bytes[65536];
    int fd = kit_connect(shared_port());
    send_text(fd, "POST /v1/batch HTTP/1.1\r\n" HOST "Content-Length: 5000000000\r\n\r\n");
    size_t sent = 0;
    for (ssize_t part; sent < MOST && (part = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0;)
        sent += (size_t)part;
    cr_assert_lt(sent, MOST, "%zu bytes were taken", sent);
    close(fd);
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
}

/* The client reads the refusal although it sends the whole body first. */
Test(request_reading, refusal_reaches_a_client_that_sends_its_whole_body_first, .timeout = 300)
{
    enum { BODY = 2 * 1024 * 1024 };
    struct talk talk = talk_to(shared_port());
    char *body = kept(malloc(BODY + 1));
    memset(body, ' ', BODY);
    body[BODY] = '\0';
    refused(&talk, 413, "too_large", "POST", "/v1/batch", body);
    talk_end(&talk);
}

Test(request_reading, expect_gets_100_continue_and_then_the_answer, .timeout = 300)
{
    int fd = kit_connect(shared_port());
    bool open;
    send_text(fd, "POST /v1/requests/none/renew HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
                  "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    const char *bytes = read_until(fd, "\r\n\r\n", &open);
    cr_assert_str_eq(bytes, "HTTP/1.1 100 Continue\r\n\r\n");
    send_text(fd, "{}");
    bytes = read_until(fd, "}\n", &open);
    cr_assert(open && strstr(bytes, "HTTP/1.1 404 ") == bytes, "%s", bytes);
    close(fd);
}

/* Sent byte by byte, so that the server reads each piece separately. */
Test(request_reading, chunked_body_in_pieces_is_one_body, .timeout = 300)
{
    static const char request[] =
        "POST /v1/requests/none/renew HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n4;a=b\r\n{\"tt\r\n07\r\nl\":60} \r\n0\r\nA: b\r\n\r\n";
    int fd = kit_connect(shared_port());
    bool open;
    for (size_t i = 0; i + 1 < sizeof request; i++) {
        cr_assert_eq(send(fd, request + i, 1, MSG_NOSIGNAL), 1);
        kit_sleep_ms(1);
    }
    const char *bytes = read_until(fd, "}\n", &open);
    cr_assert(open && strstr(bytes, "HTTP/1.1 404 ") == bytes, "%s", bytes);
    close(fd);
}

/* ---- large bodies, whose handlers run off the loop ---- */

/* An acquire of more than 16 KiB. */
static const char *large_acquire(const char *key, const char *name, const char *wait)
{
    char *padding = kept(malloc(20001));
    memset(padding, ' ', 20000);
    padding[20000] = '\0';
    return text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":\"%s\"%s}", key, name, wait,
                padding);
}

static bool none_waits(void *context)
{
    struct talk *talk = context;
    return metric_of(talk, "permitd_waiting") == 0;
}

static bool one_waits(void *context)
{
    struct talk *talk = context;
    return metric_of(talk, "permitd_waiting") == 1;
}

/* A client that has left is forgotten first; then a write removes it from its place. */
static bool nobody_is_in_the_queue(void *context)
{
    struct talk *talk = context;
    say(talk, 200, "GET", "/v1/semaphores/s", NULL);
    return number_of(talk, "waiting") == 0;
}

Test(request_reading, large_acquire_waits_is_granted_and_replayed, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port), one = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":0}");
    tell(&one, "POST", "/v1/requests", large_acquire("large", "s", "10m"));
    cr_assert(kit_wait_until(one_waits, &talk, LONG_MS));
    say(&talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":1}");
    hear(&one, 201, NULL);
    say(&one, 200, "POST", "/v1/requests", large_acquire("large", "s", "0s"));
    cr_assert(kit_json_true(one.reply.body, "replayed"));
    refused(&one, 423, "no_capacity", "POST", "/v1/requests", large_acquire("other", "s", "0s"));
    refused(&one, 422, "invalid", "POST", "/v1/requests", large_acquire("other", "s", "11m"));
    talk_end(&one);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(request_reading, large_acquire_leaves_the_waitlist_with_its_client, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":0}");
    for (int i = 0; i < 50; i++) { /* some clients leave while their body is read, some while they wait */
        struct talk one = talk_to(permitd->port);
        tell(&one, "POST", "/v1/requests", large_acquire(fresh_name("k"), "s", "10m"));
        if (i % 2)
            cr_assert(kit_wait_until(one_waits, &talk, LONG_MS));
        talk_end(&one);
        cr_assert(kit_wait_until(none_waits, &talk, LONG_MS));
    }
    cr_assert(kit_wait_until(nobody_is_in_the_queue, &talk, LONG_MS));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(request_reading, large_batch_is_decided_and_the_next_request_is_read, .timeout = 300)
{
    enum { OPERATIONS = 1000 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"kind\":\"counted\",\"capacity\":1000}"), *key = fresh_name("k");
    char *body = kept(malloc(OPERATIONS * 200));
    char *at = body + sprintf(body, "{\"operations\":[");
    for (int i = 0; i < OPERATIONS; i++)
        at += sprintf(at, "%s{\"op\":\"acquire\",\"external_id\":\"%s-%d\",\"permits\":[{\"semaphore\":\"%s\"}]}",
                      i ? "," : "", key, i, name);
    strcpy(at, "]}");
    say(&talk, 200, "POST", "/v1/batch", body);
    cr_assert_eq(number_of(&talk, "results.0.status"), 201);
    cr_assert_eq(number_of(&talk, "results.999.status"), 201);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), OPERATIONS);
    talk_end(&talk);
}

/* ---- bytes that arrive while a request waits ---- */

/*
 * Sends more bytes than the server reads ahead, so that it does not read up to the end of the connection, but not more
 * than the socket buffers.
 */
Test(request_reading, bytes_behind_a_waiting_request_do_not_hide_a_disconnect, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    static char junk[20 * 1024];
    memset(junk, 'x', sizeof junk);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":0}");
    struct talk one = talk_to(permitd->port);
    tell(&one, "POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}],\"wait\":\"10m\"}");
    cr_assert(kit_wait_until(one_waits, &talk, LONG_MS));
    cr_assert_eq(send(one.http.fd, junk, sizeof junk, MSG_NOSIGNAL), (ssize_t)sizeof junk);
    for (int i = 0; i < 20; i++) /* gives the loop time to see the bytes */
        cr_assert_eq(metric_of(&talk, "permitd_waiting"), 1);
    shutdown(one.http.fd, SHUT_WR);
    cr_assert(kit_wait_until(none_waits, &talk, LONG_MS));
    talk_end(&one);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- crowds of connections ---- */

/* Returns a connection from the given address of this machine. */
static int connect_from(const char *from, unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    inet_pton(AF_INET, from, &address.sin_addr);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons((uint16_t)port);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    return fd;
}

/* Returns true if the server has closed the connection, or closes it within LONG_MS. */
static bool is_closed(int fd)
{
    char byte;
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, LONG_MS) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Sends one request, so that permitd knows the connection and counts it as idle from now on. */
static void ask_health(int fd)
{
    bool open;
    send_text(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
    const char *bytes = read_until(fd, "}\n", &open);
    cr_assert(open && strstr(bytes, " 200 OK"), "%s", bytes);
}

/* Connections of one address fill the server; a new connection replaces the longest idle one. */
Test(request_reading, longest_idle_connection_yields_to_a_new_one, .timeout = 300)
{
    enum { MOST = 10 };
    static const char *const flags[] = {"--max-connections", "10", "--max-connections-per-address", "10", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    int crowd[MOST];
    for (int i = 0; i < MOST; i++) {
        crowd[i] = connect_from("127.0.0.2", permitd->port);
        ask_health(crowd[i]);
    }
    ask_health(crowd[0]); /* now the second is the longest idle */
    int first = connect_from("127.0.0.3", permitd->port);
    ask_health(first);
    cr_assert(is_closed(crowd[1]));
    int second = connect_from("127.0.0.3", permitd->port);
    ask_health(second);
    cr_assert(is_closed(crowd[2]));
    for (int i = 0; i < MOST; i++) {
        cr_assert(i == 1 || i == 2 || is_open(crowd[i]), "connection %d is closed", i);
        close(crowd[i]);
    }
    ask_health(first);
    close(first);
    close(second);
    struct talk talk = talk_to(permitd->port);
    cr_assert_geq(metric_of(&talk, "permitd_http_yielded_total"), 2);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(request_reading, connections_of_one_address_leave_capacity_for_others, .timeout = 300)
{
    enum { MOST = 5 }; /* a quarter of 20 */
    static const char *const flags[] = {"--max-connections", "20", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    int other = connect_from("127.0.0.3", permitd->port), crowd[3 * MOST];
    ask_health(other);
    for (int i = 0; i < 3 * MOST; i++) {
        crowd[i] = connect_from("127.0.0.2", permitd->port);
        ask_health(crowd[i]);
    }
    for (int i = 0; i < 3 * MOST; i++) {
        if (i < 2 * MOST)
            cr_assert(is_closed(crowd[i]), "connection %d is open", i);
        else
            cr_assert(is_open(crowd[i]), "connection %d is closed", i);
        close(crowd[i]);
    }
    ask_health(other);
    close(other);
    kit_permitd_stop(permitd);
}

/* No connection is idle, so none can yield. */
Test(request_reading, busy_connection_over_the_address_limit_is_answered_429, .timeout = 300)
{
    enum { MOST = 5 };
    static const char *const flags[] = {"--max-connections", "20", NULL};
    static const char wait[] = "{\"permits\":[{\"semaphore\":\"s\"}],\"wait\":\"10m\"}";
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    int crowd[MOST];
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":0}");
    for (int i = 0; i < MOST; i++) {
        crowd[i] = connect_from("127.0.0.2", permitd->port);
        send_text(crowd[i], text("POST /v1/requests HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n"
                                 "Content-Length: %zu\r\n\r\n%s",
                                 strlen(wait), wait));
    }
    for (int waiting = 0; waiting < MOST; kit_sleep_ms(5))
        waiting = (int)metric_of(&talk, "permitd_waiting");
    int sixth = connect_from("127.0.0.2", permitd->port);
    send_text(sixth, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
    const char *bytes = read_all(sixth);
    cr_assert(strstr(bytes, "HTTP/1.1 429 ") == bytes && strstr(bytes, "max_connections_per_address"), "%s", bytes);
    cr_assert_eq(count_of(bytes, "HTTP/1.1 "), 1, "%s", bytes);
    close(sixth);
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(metric_of(&talk, "permitd_http_crowded_total"), 1);
    for (int i = 0; i < MOST; i++)
        close(crowd[i]);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
