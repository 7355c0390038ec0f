/* SPDX-License-Identifier: MIT */
/*
 * Requests that two readers could interpret differently, sent to permitd alone, and to permitd behind HAProxy and
 * nginx.
 *
 * Alone, each is answered exactly as cases.c says. A proxy may refuse a request, or fix it before permitd sees it. The
 * test then checks that both read the same requests: as many answers of permitd as reached the client; the next client,
 * whose request uses the same connection to permitd, gets its own answer; and permitd executed nothing that the proxy
 * would have refused.
 *
 *     smuggling [NAME]     only the cases with NAME in their names, with their answers
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cases.h"
#include "kit_process.h"
#include "proxies.h"
#include "unix.h"

#define LAST "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

enum { ANSWERS_SIZE = 256 * 1024, END_MS = 120000 };

struct bench {
    struct kit_permitd *permitd;
    struct kit_http http; /* directly to permitd */
    unsigned probes;
    int passed, failed;
    const char *wanted; /* NULL: all */
};

int unix_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- a case ---- */

static bool send_all(int fd, const char *bytes, size_t length)
{
    while (length) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent <= 0 && errno != EINTR)
            return false; /* already refused */
        bytes += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* Reads up to the end of the connection, with spaces instead of zeros. */
static void read_all(int fd, char bytes[ANSWERS_SIZE])
{
    size_t length = 0;
    for (;;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        if (poll(&look, 1, END_MS) != 1)
            kit_fail("the connection is neither answered nor closed: %.300s", bytes);
        ssize_t got = recv(fd, bytes + length, ANSWERS_SIZE - 1 - length, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got; i++, length++)
            bytes[length] = bytes[length] ? bytes[length] : ' ';
        KIT_CHECK(length + 1 < ANSWERS_SIZE);
    }
    bytes[length] = '\0';
}

/* Sends the case and LAST, and reads until the end. half: closes the sending side, which a proxy takes for the end. */
static void converse(int fd, const struct smuggling_case *row, bool half, char answers[ANSWERS_SIZE])
{
    KIT_CHECK(fd >= 0);
    bool whole = strcmp(row->answers, "") != 0; /* else LAST would be part of an unfinished request */
    if (send_all(fd, row->bytes, row->length) && whole)
        (void)send_all(fd, LAST, strlen(LAST));
    if (half)
        shutdown(fd, SHUT_WR);
    read_all(fd, answers);
    close(fd);
}

/* Returns the next answer after `at`; NULL: none. */
static const char *next_answer(const char *answers, const char *at)
{
    while ((at = strstr(at, "HTTP/1.")) && at != answers && at[-1] != '\n')
        at++;
    return at;
}

/* Writes the statuses of all answers: "404 200". */
static void statuses_of(const char *answers, char *statuses, size_t size)
{
    statuses[0] = '\0';
    for (const char *at = answers; (at = next_answer(answers, at)); at++) {
        size_t length = strlen(statuses);
        snprintf(statuses + length, size - length, "%s%.3s", length ? " " : "", at + strlen("HTTP/1.1 "));
    }
}

/* Counts the answers created by permitd. An HTTP/0.9 client, as nginx speaks it, gets the body alone. */
static unsigned answers_of_permitd(const char *answers)
{
    static const char mark[] = "\nX-Request-Id: ";
    unsigned count = answers[0] == '{';
    for (const char *at = answers; (at = strcasestr(at, mark)); at++)
        count++;
    return count;
}

/* ---- permitd's view ---- */

static void get(struct bench *bench, const char *path, struct reply *reply)
{
    if (!kit_http_get(&bench->http, path, reply))
        kit_fail("GET %s: %s", path, reply->error);
}

/* Returns the number of requests that permitd has answered before this one. */
static unsigned long answered(struct bench *bench)
{
    static const char metric[] = "\npermitd_http_answers_total{";
    struct reply reply;
    unsigned long sum = 0;
    get(bench, "/metrics", &reply);
    for (const char *at = reply.body; (at = strstr(at, metric)); at++)
        sum += strtoul(strchr(at, '}') + 1, NULL, 10);
    reply_release(&reply);
    return sum;
}

/* Returns true if the tombstone of the smuggled request exists. */
static bool is_smuggled(struct bench *bench)
{
    struct reply reply;
    get(bench, "/v1/requests/smuggled", &reply);
    bool smuggled = reply.status != 404;
    reply_release(&reply);
    return smuggled;
}

/* ---- checks ---- */

static void judge(struct bench *bench, const char *where, const struct smuggling_case *row, const char *wrong,
                  const char *answers)
{
    char statuses[256];
    statuses_of(answers, statuses, sizeof statuses);
    if (wrong)
        printf("FAILED %s, %s: %s (%s)\n%.600s\n", where, row->name, wrong, statuses, answers);
    else if (bench->wanted)
        printf("%s, %s: %s\n", where, row->name, statuses);
    if (wrong)
        bench->failed++;
    else
        bench->passed++;
}

static void check_alone(struct bench *bench, const struct smuggling_case *row)
{
    static char answers[ANSWERS_SIZE];
    char statuses[256];
    unsigned long before = answered(bench);
    converse(kit_connect(bench->permitd->port), row, true, answers);
    unsigned long seen = answered(bench) - before - 1; /* the first query itself */
    statuses_of(answers, statuses, sizeof statuses);
    const char *wrong = NULL;
    if (strcmp(statuses, row->answers) != 0)
        wrong = "not answered as expected";
    else if (seen != answers_of_permitd(answers))
        wrong = "more was answered than has come";
    judge(bench, "alone", row, wrong, answers);
}

/*
 * Sends the next client's request over the connection to permitd that the last one used. False: it gets a wrong answer.
 */
static bool next_is_answered(struct bench *bench, const struct proxy *proxy)
{
    static char answers[ANSWERS_SIZE];
    char key[32];
    snprintf(key, sizeof key, "probe-%u", bench->probes++);
    char *request = kit_text("POST /v1/requests/%s/renew HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                             "Connection: close\r\n\r\n",
                             key);
    struct smuggling_case probe = {.bytes = request, .length = strlen(request), .answers = ""}; /* without LAST */
    converse(unix_connect(proxy->socket), &probe, false, answers);
    free(request);
    return strstr(answers, " 404 ") && strstr(answers, key) && answers_of_permitd(answers) == 1;
}

static void check_behind(struct bench *bench, const struct proxy *proxy, const struct smuggling_case *row)
{
    static char answers[ANSWERS_SIZE];
    unsigned long before = answered(bench);
    converse(unix_connect(proxy->socket), row, false, answers);
    bool next = next_is_answered(bench, proxy);
    unsigned long seen = answered(bench) - before - 2; /* the first query, and the next client */
    const char *wrong = NULL;
    if (!next)
        wrong = "the next client has another's answer";
    else if (seen != answers_of_permitd(answers))
        wrong = "permitd has answered another number of requests than the client has got answers";
    else if (is_smuggled(bench))
        wrong = "the smuggled request was done";
    judge(bench, proxy->name, row, wrong, answers);
}

static bool is_wanted(const struct bench *bench, const struct smuggling_case *row)
{
    return !bench->wanted || strstr(row->name, bench->wanted);
}

static void run_behind(struct bench *bench, struct proxy proxy)
{
    unsigned long before = answered(bench);
    for (size_t i = 0; i < smuggling_case_count; i++)
        if (is_wanted(bench, &smuggling_cases[i]) && !smuggling_cases[i].alone)
            check_behind(bench, &proxy, &smuggling_cases[i]);
    printf("smuggling: %s has brought %lu requests to permitd\n", proxy.name, answered(bench) - before);
    proxy_stop(&proxy);
}

int main(int argc, char **argv)
{
    static const char *const flags[] = {"--request-timeout", "2m", NULL};
    struct bench bench = {.wanted = argc > 1 ? argv[1] : NULL};
    bench.permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    bench.http = kit_http(bench.permitd->port);
    for (size_t i = 0; i < smuggling_case_count; i++)
        if (is_wanted(&bench, &smuggling_cases[i]))
            check_alone(&bench, &smuggling_cases[i]);
    KIT_CHECK(bench.wanted || !is_smuggled(&bench));
    run_behind(&bench, proxy_start_haproxy(bench.permitd->port));
    run_behind(&bench, proxy_start_nginx(bench.permitd->port));
    kit_http_close(&bench.http);
    kit_permitd_stop(bench.permitd);
    printf("smuggling: %zu cases, alone and behind two proxies: %d passed, %d failed\n", smuggling_case_count,
           bench.passed, bench.failed);
    return bench.failed != 0;
}
