/* SPDX-License-Identifier: MIT */
/* Clients that are slow, disconnect, pipeline or crowd the server, and a server that stops under load. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"

/* Upper limit of each wait for an expected event, in ms; enough for a slow machine. */
enum { LONG_MS = 60000 };

/* Returns true once the server has closed the connection. */
static bool closes(int fd)
{
    char byte;
    return comes_within(fd, LONG_MS) && recv(fd, &byte, 1, 0) <= 0;
}

/* Reads until the server closes. Returns the number of bytes; -1 if the server does not close in time. */
static long read_all(int fd, char *bytes, size_t size)
{
    size_t length = 0;
    while (length + 1 < size && comes_within(fd, LONG_MS)) {
        ssize_t got = recv(fd, bytes + length, size - 1 - length, 0);
        if (got <= 0) {
            bytes[length] = '\0';
            return (long)length;
        }
        length += (size_t)got;
    }
    return -1;
}

/* ---- slow clients ---- */

static bool are_counted(struct talk *talk, int connections)
{
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/metrics", &talk->reply) &&
           strstr(talk->reply.body, text("permitd_http_connections %d\n", connections)) != NULL;
}

enum { SLOW = 200 };

/*
 * While 200 slow clients are connected, other clients are served. Each slow one is closed after idle_timeout, not
 * before.
 */
Test(clients, two_hundred_slow_clients_delay_no_other_and_are_closed, .timeout = 300)
{
    enum { IDLE_US = 10000000 };
    static const char *const flags[] = {"--idle-timeout", "10s", NULL};
    static const char head[] =
        "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n";
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    int slow[SLOW];
    int64_t since[SLOW];
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":9}");
    for (int i = 0; i < SLOW; i++) {
        since[i] = kit_now_us();
        cr_assert_geq(slow[i] = kit_connect(permitd->port), 0);
    }
    int64_t slowest = 0;
    for (int step = 0; step < 12; step++) { /* each client sends one byte every 100 ms, for 1.2 s */
        for (int i = 0; i < SLOW; i++)
            if (send(slow[i], head + step, 1, MSG_NOSIGNAL) != 1)
                cr_assert_geq(kit_now_us() - since[i], IDLE_US, "slow client %d is closed before its time", i);
        int64_t start = kit_now_us();
        const char *key = fresh_name("k");
        say(&talk, 201, "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"s\"}]}", key));
        release(&talk, key);
        int64_t took = kit_now_us() - start;
        slowest = took > slowest ? took : slowest;
        if (step == 0)
            cr_assert(are_counted(&talk, SLOW + 1), "not while all of them were there: %s", talk.reply.body);
        kit_sleep_ms(100);
    }
    /* A client blocked by the slow ones would be answered only after they are closed. */
    cr_assert_lt(slowest, IDLE_US, "two requests took %lld us", (long long)slowest);
    for (int i = 0; i < SLOW; i++) { /* the bytes arrived in time, a complete request did not */
        cr_assert(closes(slow[i]), "slow client %d is still served", i);
        cr_assert_geq(kit_now_us() - since[i], IDLE_US, "slow client %d is closed before its time", i);
        close(slow[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static bool is_alone(void *context)
{
    return are_counted(context, 1);
}

Test(clients, client_that_does_not_read_answers_is_closed, .timeout = 300)
{
    static const char *const flags[] = {"--idle-timeout", "1s", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    int64_t since = kit_now_us();
    int fd = kit_connect(permitd->port); /* accepted before the connection of talk */
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char requests[8000] = "";
    for (int i = 0; i < 100; i++)
        strcat(requests, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (int i = 0; i < 10; i++)
        (void)!send(fd, requests, strlen(requests), MSG_NOSIGNAL | MSG_DONTWAIT);
    cr_assert(kit_wait_until(is_alone, &talk, LONG_MS), "the connection is still open");
    cr_assert_geq(kit_now_us() - since, 1000000, "it was closed before its time");
    close(fd);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- clients that disconnect ---- */

static bool is_held(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/v1/requests/vanished", &talk->reply) && talk->reply.status == 200;
}

Test(clients, client_that_disconnects_midway_affects_no_other, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2000,\"kind\":\"counted\"}");
    struct linger reset = {.l_onoff = 1};
    for (int i = 0; i < 300; i++) { /* cut at every point: in the headers, in the body, while the request is decided */
        const char *body = text("{\"permits\":[{\"semaphore\":\"%s\"}]}", name);
        const char *request = text("POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                   "Content-Length: %zu\r\n\r\n%s",
                                   strlen(body), body);
        size_t length = strlen(request);
        int fd = kit_connect(shared_port());
        cr_assert_geq(fd, 0);
        cr_assert_gt(send(fd, request, i % 3 ? length : 1 + (size_t)i % length, MSG_NOSIGNAL), 0);
        if (i % 2)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
    }
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
}

Test(clients, request_of_a_disconnected_client_is_found_by_its_key, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":1}");
    int fd = kit_connect(permitd->port);
    send_text(
        fd,
        "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n"
        "{\"external_id\":\"vanished\",\"permits\":[{\"semaphore\":\"s\"}]}    ");
    close(fd);
    cr_assert(kit_wait_until(is_held, &talk, LONG_MS));
    say(&talk, 200, "DELETE", "/v1/requests/vanished", NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(clients, client_that_shuts_down_writing_gets_its_answer, .timeout = 300)
{
    int fd = kit_connect(shared_port());
    char bytes[4096];
    send_text(fd, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    shutdown(fd, SHUT_WR);
    cr_assert_gt(read_all(fd, bytes, sizeof bytes), 0);
    cr_assert(strstr(bytes, "200 OK"), "%s", bytes);
    close(fd);
}

/* ---- pipelining ---- */

Test(clients, pipelined_requests_are_answered_in_order, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *path = semaphore_path(name);
    int fd = kit_connect(shared_port());
    static char bytes[65536];
    send_text(fd, text("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
                       "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                       "14\r\n\r\n{\"capacity\":4}"
                       "GET /no/such HTTP/1.1\r\nHost: localhost\r\n\r\n"
                       "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                       path, path, path));
    cr_assert_gt(read_all(fd, bytes, sizeof bytes), 0);
    cr_assert_eq(count_of(bytes, "HTTP/1.1 200 OK"), 3, "%s", bytes);
    char *first = strstr(bytes, "\"capacity\":3");
    char *second = strstr(bytes, "\"capacity\":4");
    char *third = strstr(bytes, "unknown_path");
    cr_assert(first && second && third && first < second && second < third, "%s", bytes);
    cr_assert(strstr(third, "\"capacity\":4"));
    close(fd);
    talk_end(&talk);
}

Test(clients, body_of_a_bodiless_method_cannot_smuggle_a_request, .timeout = 300)
{
    static const char *const methods[] = {"GET", "DELETE", "HEAD", "TRACE", "BREW", "OPTIONS"};
    static const char smuggled[] = "GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char bytes[65536];
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        int fd = kit_connect(shared_port());
        send_text(fd, text("%s /v1/requests/smuggler HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s"
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                           methods[i], strlen(smuggled), smuggled));
        cr_assert_gt(read_all(fd, bytes, sizeof bytes), 0, "%s keeps the connection", methods[i]);
        cr_assert_eq(count_of(bytes, "HTTP/1.1 "), 2, "%s: %s", methods[i], bytes);
        cr_assert_eq(count_of(bytes, "HTTP/1.1 200 "), 1, "%s: %s", methods[i], bytes);
        close(fd);
    }
}

/* ---- crowds ---- */

static bool full_is_logged(void *permitd)
{
    return log_count(permitd, "max_connections reached") > 0;
}

static bool ten_are_connected(void *context)
{
    return are_counted(context, 10);
}

/* Nine connections wait for capacity and the tenth is the test's own; none is idle and could yield. */
Test(clients, connections_over_the_limit_wait_until_others_close, .timeout = 300)
{
    static const char *const flags[] = {"--max-connections", "10", "--max-connections-per-address", "100", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    char bytes[4096];
    struct talk waiters[9];
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":0}");
    for (int i = 0; i < 9; i++) {
        waiters[i] = talk_to(permitd->port);
        tell(&waiters[i], "POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}],\"wait\":\"10m\"}");
    }
    cr_assert(kit_wait_until(ten_are_connected, &talk, LONG_MS));
    tell(&talk, "POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}],\"wait\":\"10m\"}");
    int eleventh = kit_connect(permitd->port);
    cr_assert_geq(eleventh, 0);
    send_text(eleventh, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    cr_assert(kit_wait_until(full_is_logged, permitd, LONG_MS));
    cr_assert_not(comes_within(eleventh, 500), "an eleventh connection was served");
    for (int i = 0; i < 9; i++)
        talk_end(&waiters[i]);
    cr_assert_gt(read_all(eleventh, bytes, sizeof bytes), 0);
    cr_assert(strstr(bytes, "200 OK"), "%s", bytes);
    close(eleventh);
    talk_end(&talk);
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_gt(metric_of(&talk, "permitd_http_full_total"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static bool waits_for_row(void *locker)
{
    return kit_sql_number(locker, "SELECT COUNT(*) FROM information_schema.processlist"
                                  " WHERE info LIKE '%%FOR UPDATE%%' AND id <> CONNECTION_ID()") > 0;
}

static struct kit_http sent(unsigned port, const char *path, const char *body)
{
    struct kit_http http = kit_http(port);
    cr_assert(kit_http_send(&http, "POST", path, NULL, body));
    return http;
}

/* Asserts that the first answer to any of the `count` clients has this status, and `part` in its body. */
static void first_answer_is(struct kit_http *clients, nfds_t count, int status, const char *part)
{
    struct pollfd looks[64];
    struct reply reply;
    nfds_t first = 0;
    cr_assert_leq(count, sizeof looks / sizeof looks[0]);
    for (nfds_t i = 0; i < count; i++)
        looks[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
    cr_assert_gt(poll(looks, count, LONG_MS), 0, "none of them is answered");
    while (!looks[first].revents)
        first++;
    cr_assert(kit_http_receive(&clients[first], "POST", &reply), "%s", reply.error);
    cr_assert(reply.status == status && strstr(reply.body, part), "%d %s", reply.status, reply.body);
    reply_release(&reply);
}

/*
 * Another transaction locks the semaphore's row, which blocks the only worker, so operations that arrive stay pending.
 */
Test(clients, operations_over_max_pending_are_refused_with_the_limit, .timeout = 300)
{
    enum { MANY = 30 };
    struct kit_database *database = kit_database_start(NULL);
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){
        .database = database->url,
        .flags = (const char *const[]){"--max-pending", "2", "--workers", "1", "--request-timeout", "2m", NULL}});
    struct kit_sql *locker = kit_sql_open(database->socket, "permitd");
    struct talk talk = talk_to(permitd->port);
    static const char too_many_ends[] =
        "too many pending releases, renewals and confirms (four times max_pending); the limit is 8";
    static const char too_many[] = "too many pending calls (max_pending); the limit is 2";
    struct kit_http acquires[MANY], renewals[MANY];
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":100}");
    say(&talk, 201, "POST", "/v1/requests", "{\"external_id\":\"held\",\"permits\":[{\"semaphore\":\"s\"}]}");
    kit_sql_run(locker, "BEGIN");
    (void)kit_sql_number(locker, "SELECT id FROM semaphore WHERE name='s' FOR UPDATE");
    struct kit_http first = sent(permitd->port, "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}]}");
    cr_assert(kit_wait_until(waits_for_row, locker, LONG_MS));
    for (int i = 0; i < MANY; i++)
        renewals[i] = sent(permitd->port, "/v1/requests/held/renew", "{}");
    for (int i = 0; i < MANY; i++)
        acquires[i] = sent(permitd->port, "/v1/requests", "{\"permits\":[{\"semaphore\":\"s\"}]}");
    first_answer_is(renewals, MANY, 429, too_many_ends);
    first_answer_is(acquires, MANY, 429, too_many);
    say(&talk, 200, "POST", "/v1/batch",
        "{\"operations\":[{\"op\":\"renew\",\"external_id\":\"held\"},"
        "{\"op\":\"acquire\",\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}]}");
    text_is(&talk, "results.0.body.detail", too_many_ends);
    text_is(&talk, "results.1.body.detail", too_many);
    kit_sql_run(locker, "ROLLBACK");
    first_answer_is(&first, 1, 201, "\"permits\"");
    for (int i = 0; i < MANY; i++) {
        kit_http_close(&renewals[i]);
        kit_http_close(&acquires[i]);
    }
    kit_http_close(&first);
    talk_end(&talk);
    kit_sql_close(locker);
    kit_permitd_stop(permitd);
    kit_database_stop(database);
}

/*
 * Connects and closes `visitors` times while permitd is frozen. Returns the time in ms that the next client then waits
 * for its answer.
 */
static int64_t serve_behind_visitors(struct kit_permitd *permitd, int visitors)
{
    struct talk talk = talk_to(permitd->port);
    kit_permitd_freeze(permitd);
    for (int i = 0; i < visitors; i++) {
        int fd = kit_connect(permitd->port);
        cr_assert_geq(fd, 0);
        close(fd);
    }
    int64_t since = kit_now_us();
    kit_permitd_thaw(permitd);
    say(&talk, 200, "GET", "/healthz", NULL);
    int64_t took_ms = (kit_now_us() - since) / 1000;
    talk_end(&talk);
    return took_ms;
}

/*
 * The tick alone would notice the closed connections after 100 ms, two at a time: in at least VISITORS / 2 * 100 ms. A
 * busy machine may be that slow in some tries, but not in all.
 */
Test(clients, silent_clients_that_leave_do_not_delay_the_next, .timeout = 300)
{
    enum { VISITORS = 60, MOST_MS = VISITORS * 100 / 4, TRIES = 20 };
    static const char *const flags[] = {"--max-connections", "2", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    int64_t least_ms = INT64_MAX;
    for (int i = 0; i < TRIES && least_ms >= MOST_MS; i++) {
        int64_t took_ms = serve_behind_visitors(permitd, VISITORS);
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    cr_assert_lt(least_ms, MOST_MS, "%lld ms", (long long)least_ms);
    kit_permitd_stop(permitd);
}

static void limit_descriptors(const struct kit_permitd *permitd, rlim_t soft)
{
    struct rlimit limit;
    cr_assert_eq(prlimit(permitd->pid, RLIMIT_NOFILE, NULL, &limit), 0, "%s", strerror(errno));
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    cr_assert_eq(prlimit(permitd->pid, RLIMIT_NOFILE, &limit, NULL), 0, "%s", strerror(errno));
}

static bool has_refused_to_accept(void *context)
{
    return log_count(context, "cannot accept a connection") > 0;
}

Test(clients, connection_without_a_free_descriptor_is_accepted_later, .timeout = 300)
{
    enum { CLIENTS = 5 };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    char bytes[4096];
    int fds[CLIENTS];
    say(&talk, 200, "GET", "/healthz", NULL);
    int64_t since = kit_now_us();
    limit_descriptors(permitd, 1);
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert_geq(fds[i] = kit_connect(permitd->port), 0);
        send_text(fds[i], "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    }
    cr_assert(kit_wait_until(has_refused_to_accept, permitd, LONG_MS), "the limit was not felt");
    cr_assert_not(comes_within(fds[0], 500), "it was served without a descriptor");
    size_t lines = log_count(permitd, "cannot accept a connection");
    size_t seconds = (size_t)(kit_now_us() - since) / 1000000;
    cr_assert_leq(lines, seconds + 1, "more than a line a second");
    say(&talk, 200, "GET", "/healthz", NULL);
    limit_descriptors(permitd, RLIM_INFINITY);
    for (int i = 0; i < CLIENTS; i++) {
        cr_assert_gt(read_all(fds[i], bytes, sizeof bytes), 0, "client %d is not served", i);
        cr_assert(strstr(bytes, "200 OK"), "%s", bytes);
        close(fds[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- stop ---- */

struct load {
    unsigned port;
    const char *name;
    atomic_int answered;
    int broken; /* number of answers that are neither a grant, a release nor shutting_down */
};

static void *run_load(void *context)
{
    struct load *load = context;
    struct kit_http http = kit_http(load->port);
    for (int i = 0;; i++) {
        struct reply reply;
        const char *path = text("/v1/requests/%s-%d", load->name, i / 2);
        const char *body = text("{\"external_id\":\"%s-%d\",\"permits\":[{\"semaphore\":\"s\"}]}", load->name, i / 2);
        bool answer = i % 2 ? kit_http_delete(&http, path, &reply) : kit_http_post(&http, "/v1/requests", body, &reply);
        int status = reply.status;
        bool stopping = status == 503 && kit_json_text_is(reply.body, "type", "/problems/shutting_down");
        reply_release(&reply);
        if (!answer || stopping)
            break;
        atomic_fetch_add(&load->answered, 1);
        load->broken += status != 200 && status != 201;
    }
    kit_http_close(&http);
    return NULL;
}

enum { LOADS = 16 };

static bool are_all_answered(void *context)
{
    struct load *loads = context;
    int answered = 0;
    for (int i = 0; i < LOADS; i++)
        answered += atomic_load(&loads[i].answered) > 4;
    return answered == LOADS;
}

Test(clients, stop_under_load_is_clean_and_quick, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct load loads[LOADS];
    pthread_t threads[LOADS];
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":100,\"kind\":\"counted\"}");
    int idle = kit_connect(permitd->port);
    for (int i = 0; i < LOADS; i++) {
        loads[i] = (struct load){.port = permitd->port, .name = fresh_name("k")};
        cr_assert_eq(pthread_create(&threads[i], NULL, run_load, &loads[i]), 0);
    }
    cr_assert(kit_wait_until(are_all_answered, loads, LONG_MS));
    int64_t start = kit_now_us();
    kill(permitd->pid, SIGTERM);
    for (int i = 0; i < LOADS; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(loads[i].broken, 0);
    }
    cr_assert_eq(kit_permitd_wait_end(permitd, LONG_MS), 0, "exit status");
    cr_assert_lt(kit_now_us() - start, 30000000); /* requests get 5 s; TimeoutStopSec is 45 s (docs/operating.md) */
    cr_assert(closes(idle));
    close(idle);
    talk_end(&talk);
    kit_permitd_kill(permitd);
}

/* ---- a database that hangs ---- */

static pid_t database_of(const struct kit_permitd *permitd)
{
    char *pid = kit_read_file(text("%s/mariadb.pid", permitd->data_dir));
    cr_assert_not_null(pid);
    pid_t number = (pid_t)atoi(pid);
    free(pid);
    cr_assert_gt(number, 1);
    return number;
}

static bool is_served(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_post(&talk->http, "/v1/requests", "{\"external_id\":\"late\",\"permits\":[{\"semaphore\":\"s\"}]}",
                         &talk->reply) &&
           talk->reply.status / 100 == 2;
}

Test(clients, requests_are_answered_in_time_while_the_database_hangs, .timeout = 300)
{
    static const char *const flags[] = {"--request-timeout", "2s", NULL};
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    struct talk talk = talk_to(permitd->port);
    say_until(&talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":1}"); /* the first PUT is answered 201 */
    pid_t database = database_of(permitd);
    kit_freeze(database);
    static const char *const calls[][3] = {
        {"POST", "/v1/requests", "{\"external_id\":\"late\",\"permits\":[{\"semaphore\":\"s\"}]}"},
        {"POST", "/v1/batch", "{\"operations\":[{\"op\":\"release\",\"external_id\":\"other\"}]}"},
        {"GET", "/v1/semaphores/s", NULL},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int64_t least_us = INT64_MAX;
        for (int tries = 0; tries < 10 && least_us >= 6000000; tries++) { /* a busy machine is not that slow in all */
            int64_t start = kit_now_us();
            say(&talk, 503, calls[i][0], calls[i][1], calls[i][2]);
            least_us = kit_now_us() - start < least_us ? kit_now_us() - start : least_us;
        }
        cr_assert_lt(least_us, 6000000); /* else: the 7 s of the database's read timeout */
        cr_assert_gt(number_of(&talk, "retry_after_ms"), 0);
    }
    say(&talk, 200, "GET", "/healthz", NULL);
    kill(database, SIGCONT);
    cr_assert(kit_wait_until(is_served, &talk, LONG_MS), "%d: %s", talk.reply.status, talk.reply.body);
    say_until(&talk, 200, "GET", "/v1/semaphores/s", NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 1);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
