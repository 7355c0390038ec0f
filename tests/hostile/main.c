/* SPDX-License-Identifier: MIT */
/*
 * Clients that try to exhaust permitd's memory: its resident memory stays under max_memory, small requests are still
 * served, and freed memory returns to the system.
 *
 *     hostile [bodies | readers | halves | strangers | principals]
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load_client.h"
#include "testkit.h"

enum { MIB = 1024 * 1024, MAX_MEMORY_MIB = 256, KEPT_MIB = 32, PATIENCE_MS = 120000 };

struct side {
    struct kit_permitd *permitd;
    struct kit_http http;
    const char *headers; /* of its requests; NULL: none */
    unsigned keys;
    int passed, failed;
};

/* ---- permitd's memory ---- */

/* Returns a line "NAME: N kB" of /proc/PID/status, in MiB. */
static double memory_mib(const struct side *side, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", (int)side->permitd->pid);
    char *text = kit_read_file(path);
    const char *line = text ? strstr(text, name) : NULL;
    KIT_CHECK(line);
    double kib = atof(line + strlen(name) + 1);
    free(text);
    return kib / 1024;
}

/* Returns false under a sanitizer: it needs memory of its own, and tests/run.sh gives permitd all that there is. */
static bool memory_counts(void)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    const char *other = getenv("PERMIT_PERMITD");
    return !other || !*other;
#endif
}

static void check(struct side *side, bool good, const char *what)
{
    printf("%s %s: %.0f MiB resident, %.0f at most\n", good ? "passed" : "FAILED", what, memory_mib(side, "VmRSS"),
           memory_mib(side, "VmHWM"));
    fflush(stdout);
    side->passed += good;
    side->failed += !good;
}

/* credentials: path of their file; NULL: none. */
static void start_with(struct side *side, const char *credentials)
{
    const char *flags[] = {"--max-connections-per-address",
                           "4000",
                           "--idle-timeout",
                           "10m",
                           "--request-timeout",
                           "2m",
                           credentials ? "--credentials" : NULL,
                           credentials,
                           NULL};
    side->permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    side->http = kit_http(side->permitd->port);
}

static void start(struct side *side)
{
    side->headers = NULL;
    start_with(side, NULL);
}

static void end(struct side *side)
{
    kit_http_close(&side->http);
    kit_permitd_stop(side->permitd);
}

static int call(struct side *side, const char *method, const char *path, const char *body)
{
    struct reply reply;
    (void)kit_http_call(&side->http, method, path, side->headers, body, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

static double metric(struct side *side, const char *name)
{
    struct reply reply;
    char start[64];
    snprintf(start, sizeof start, "\n%s ", name);
    (void)kit_http_call(&side->http, "GET", "/metrics", side->headers, NULL, &reply);
    const char *line = strstr(reply.body, start);
    double value = line ? atof(line + strlen(start)) : -1;
    reply_release(&reply);
    return value;
}

/* Returns true if a well-behaved client is served. */
static bool is_served(struct side *side)
{
    char path[64], body[128];
    snprintf(path, sizeof path, "/v1/requests/k%u", ++side->keys);
    snprintf(body, sizeof body, "{\"external_id\":\"k%u\",\"permits\":[{\"semaphore\":\"s\"}]}", side->keys);
    return call(side, "POST", "/v1/requests", body) == 201 && call(side, "DELETE", path, NULL) == 200;
}

static bool stays_below(struct side *side)
{
    return !memory_counts() || memory_mib(side, "VmHWM") < (double)MAX_MEMORY_MIB;
}

struct kept {
    struct side *side;
    double before_mib;
};

static bool has_given_back(void *context)
{
    const struct kept *kept = context;
    return !memory_counts() || memory_mib(kept->side, "VmRSS") < kept->before_mib + (double)KEPT_MIB;
}

static bool is_as_before(void *context)
{
    const struct kept *kept = context;
    return !memory_counts() || memory_mib(kept->side, "VmRSS") < kept->before_mib * 1.1;
}

/* ---- connections ---- */

static int connect_to(const struct side *side, int receive_buffer)
{
    int fd = kit_connect(side->permitd->port);
    KIT_CHECK(fd >= 0);
    if (receive_buffer)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    return fd;
}

/* ---- unfinished bodies ---- */

enum { BODIES = 1000 };

struct body {
    int fd;
    size_t left;
    bool refused;
};

/*
 * Sends as much as the socket takes. Returns false if nothing more can be sent: all is sent, or the server has closed.
 */
static bool send_more(struct body *body)
{
    static char zeros[65536];
    while (body->left) {
        size_t part = body->left < sizeof zeros ? body->left : sizeof zeros;
        ssize_t sent = send(body->fd, zeros, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN;
        body->left -= (size_t)sent;
    }
    return false;
}

/* Returns true if an answer has arrived; it must be 503. */
static bool take_answer(struct body *body)
{
    char bytes[1024];
    ssize_t got = recv(body->fd, bytes, sizeof bytes - 1, MSG_DONTWAIT);
    if (got <= 0)
        return false;
    bytes[got] = '\0';
    if (strncmp(bytes, "HTTP/1.1 503 ", 13) != 0 || !strstr(bytes, "\nRetry-After: ") || !strstr(bytes, "max_memory"))
        kit_fail("an unfinished body is answered: %s", bytes);
    return true;
}

static void begin_body(struct side *side, struct body *body)
{
    static const char head[] = "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               "Content-Length: 1048576\r\n\r\n";
    *body = (struct body){.fd = connect_to(side, 0), .left = MIB - 1};
    KIT_CHECK(send(body->fd, head, sizeof head - 1, MSG_NOSIGNAL) == (ssize_t)sizeof head - 1);
}

/* Runs until each client has sent all but the last byte of its body, or is refused. */
static void send_bodies(struct side *side, struct body *bodies)
{
    int64_t until = kit_now_us() + PATIENCE_MS * 1000LL;
    for (bool more = true; more; kit_sleep_ms(1)) {
        if (kit_now_us() > until)
            kit_fail("unfinished bodies are neither read nor refused");
        more = false;
        for (size_t i = 0; i < BODIES; i++) {
            bodies[i].refused = bodies[i].refused || take_answer(&bodies[i]);
            if (!bodies[i].refused)
                more |= send_more(&bodies[i]);
        }
        if (!is_served(side))
            kit_fail("a small request is not served while large ones are refused");
    }
}

struct flood {
    struct side *side;
    struct body *bodies;
    size_t refused;
};

/* Returns true if no body is left in the sockets: each is refused or received. */
static bool are_decided(void *context)
{
    struct flood *flood = context;
    flood->refused = 0;
    for (size_t i = 0; i < BODIES; i++) {
        flood->bodies[i].refused = flood->bodies[i].refused || take_answer(&flood->bodies[i]);
        flood->refused += flood->bodies[i].refused;
    }
    return metric(flood->side, "permitd_http_buffered_bytes") >= (double)(BODIES - flood->refused) * (MIB - 1);
}

static void check_bodies(struct side *side)
{
    static struct body bodies[BODIES];
    struct flood flood = {side, bodies, 0};
    start(side);
    KIT_CHECK(call(side, "PUT", "/v1/semaphores/s", "{\"capacity\":1}") == 201 && is_served(side));
    struct kept kept = {side, memory_mib(side, "VmRSS")};
    for (size_t i = 0; i < BODIES; i++)
        begin_body(side, &bodies[i]);
    send_bodies(side, bodies);
    if (!kit_wait_until(are_decided, &flood, PATIENCE_MS))
        kit_fail("unfinished bodies are neither read nor refused");
    printf("hostile: %zu of %d unfinished bodies of a megabyte were refused\n", flood.refused, BODIES);
    check(side, stays_below(side), "unfinished bodies stay under max_memory");
    for (size_t i = 0; i < BODIES; i++)
        close(bodies[i].fd);
    check(side, kit_wait_until(has_given_back, &kept, PATIENCE_MS), "what they took is given back");
    check(side, is_served(side), "others are served");
    end(side);
}

/* ---- unread answers ---- */

enum { READERS = 200, LISTS = 6, SEMAPHORES = 1000, NOTE = 1000 };
#define LIST "/v1/semaphores?prefix=large-&limit=1000"

/* Creates SEMAPHORES semaphores, with notes so long that a list of them has over a megabyte. */
static void make_semaphores(struct side *side)
{
    char path[64], body[NOTE + 64], note[NOTE + 1];
    memset(note, 'n', NOTE);
    note[NOTE] = '\0';
    snprintf(body, sizeof body, "{\"kind\":\"counted\",\"capacity\":1,\"note\":\"%s\"}", note);
    for (int i = 0; i < SEMAPHORES; i++) {
        snprintf(path, sizeof path, "/v1/semaphores/large-%d", i);
        KIT_CHECK(call(side, "PUT", path, body) == 201);
    }
}

/*
 * Requests lists and does not read them. Some answers fit into the sockets; permitd keeps the first one of each
 * connection that does not.
 */
static int ask_for_lists(const struct side *side, const char *headers)
{
    char request[256];
    ssize_t length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", LIST, headers);
    int fd = connect_to(side, 4096);
    for (int i = 0; i < LISTS; i++)
        KIT_CHECK(send(fd, request, (size_t)length, MSG_NOSIGNAL) == length);
    return fd;
}

static bool has_refused(void *side)
{
    return !memory_counts() || metric(side, "permitd_http_memory_refused_total") > 0;
}

static void check_readers(struct side *side)
{
    static int fds[READERS];
    start(side);
    KIT_CHECK(call(side, "PUT", "/v1/semaphores/s", "{\"capacity\":1}") == 201 && is_served(side));
    make_semaphores(side);
    struct kept kept = {side, memory_mib(side, "VmRSS")};
    for (size_t i = 0; i < READERS; i++)
        fds[i] = ask_for_lists(side, "");
    if (!kit_wait_until(has_refused, side, PATIENCE_MS))
        kit_fail("permitd keeps all answers that nobody reads: %.0f MiB", memory_mib(side, "VmRSS"));
    for (int i = 0; i < 100; i++) /* while more answers are requested */
        KIT_CHECK(is_served(side));
    check(side, stays_below(side), "answers that nobody reads stay under max_memory");
    for (size_t i = 0; i < READERS; i++)
        close(fds[i]);
    check(side, kit_wait_until(has_given_back, &kept, PATIENCE_MS), "what they took is given back");
    check(side, is_served(side), "others are served");
    end(side);
}

/* ---- half requests ---- */

enum { HALVES = 3900 };

struct halves {
    struct side *side;
    double bytes; /* that permitd has to read */
};

static bool are_read(void *context)
{
    const struct halves *halves = context;
    return metric(halves->side, "permitd_http_buffered_bytes") >= halves->bytes;
}

/* Opens connections that send half a request each, waits until permitd has read it, and closes them. */
static void send_halves(struct side *side, size_t count)
{
    static const char half[] = "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               "Content-Length: 20000\r\n\r\n";
    static const char filler[8192];
    static int fds[HALVES];
    for (size_t i = 0; i < count; i++) {
        fds[i] = connect_to(side, 0);
        KIT_CHECK(send(fds[i], half, sizeof half - 1, MSG_NOSIGNAL) == (ssize_t)sizeof half - 1);
        KIT_CHECK(send(fds[i], filler, sizeof filler, MSG_NOSIGNAL) == (ssize_t)sizeof filler);
    }
    struct halves halves = {side, (double)count * (double)sizeof filler};
    KIT_CHECK(kit_wait_until(are_read, &halves, PATIENCE_MS));
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

/* A crowd leaves nothing behind: neither in lists of spare memory, nor in pieces that keep pages resident. */
static void check_halves(struct side *side)
{
    start(side);
    KIT_CHECK(call(side, "PUT", "/v1/semaphores/s", "{\"capacity\":1}") == 201 && is_served(side));
    send_halves(side, 10); /* what is allocated once is not meant */
    KIT_CHECK(is_served(side));
    struct kept kept = {side, memory_mib(side, "VmRSS")};
    send_halves(side, HALVES);
    printf("hostile: %.1f MiB before %d half requests, %.1f with them\n", kept.before_mib, HALVES,
           memory_mib(side, "VmRSS"));
    check(side, kit_wait_until(is_as_before, &kept, PATIENCE_MS), "half requests leave at most a tenth more memory");
    printf("hostile: %.1f MiB afterwards\n", memory_mib(side, "VmRSS"));
    check(side, is_served(side), "others are served");
    end(side);
}

/* ---- shares ---- */

enum { HOGS = 100, OPERATIONS = 300 };
#define BOSS "Authorization: Bearer pmt_admin-token-of-the-quotasxxxxxxxxxxxxxxxxxx\r\n"
#define HOG  "Authorization: Bearer pmt_free-token-of-the-quotasxxxxxxxxxxxxxxxxxxx\r\n"

/* A file with two principals, which the caller frees. */
static char *make_credentials(void)
{
    static const char content[] =
        "[boss]\nrole = admin\ntoken = sha256:a846bc936c9db58c767b0de1c33fe21b9090418949d567b895e0a71436f46ceb\n"
        "[hog]\nrole = use\nsemaphores = *\n"
        "token = sha256:bdc0a6ec4a7cc4f6b05314186843dbd6536bffd80683716c0dbca18512ed04f6\n";
    char *path = kit_path("credentials");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    KIT_CHECK(fd >= 0 && write(fd, content, sizeof content - 1) == (ssize_t)sizeof content - 1);
    close(fd);
    return path;
}

/* Returns true if a well-behaved client gets a list of a megabyte, and an answer to a batch of 100 KB. */
static bool is_served_much(struct side *side)
{
    static char body[OPERATIONS * 400];
    char *end = stpcpy(body, "{\"operations\":[");
    for (int i = 0; i < OPERATIONS; i++)
        end += sprintf(end, "%s{\"op\":\"release\",\"external_id\":\"%0250d\"}", i ? "," : "", i);
    strcpy(end, "]}");
    return call(side, "GET", LIST, NULL) == 200 && call(side, "POST", "/v1/batch", body) == 200 && is_served(side);
}

static bool has_refused_by_share(void *side)
{
    return !memory_counts() || metric(side, "permitd_http_share_refused_total") > 0;
}

/* Waits until a share is used up, and checks that others notice nothing while it is. */
static void check_others(struct side *side, const char *what)
{
    bool served = true;
    if (!kit_wait_until(has_refused_by_share, side, PATIENCE_MS))
        kit_fail("%s: no share is used up", what);
    for (int i = 0; i < 20; i++) /* while more is requested */
        served = served && is_served_much(side);
    check(side, served && metric(side, "permitd_http_memory_refused_total") == 0, what);
    check(side, stays_below(side), "and all of it stays under max_memory");
}

/* Clients of which one is to be answered 429. */
struct told {
    const int *fds;
    size_t count;
    const char *detail;
};

static bool is_told(int fd, const char *detail)
{
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes - 1, MSG_DONTWAIT)) > 0) {
        bytes[got] = '\0';
        if (strstr(bytes, "HTTP/1.1 429 ") && strstr(bytes, detail))
            return true;
    }
    return false;
}

static bool one_is_told(void *context)
{
    const struct told *told = context;
    if (!memory_counts())
        return true;
    for (size_t i = 0; i < told->count; i++)
        if (is_told(told->fds[i], told->detail))
            return true;
    return false;
}

enum { STRANGERS = 9000, STRANGER_ADDRESSES = 9, STRANGER_HEAD = 16200 };

static int connect_from(const struct side *side, uint32_t address)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr_in other = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)side->permitd->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 4096;
    KIT_CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    KIT_CHECK(bind(fd, (struct sockaddr *)&own, sizeof own) == 0);
    KIT_CHECK(connect(fd, (struct sockaddr *)&other, sizeof other) == 0);
    return fd;
}

/*
 * Clients without a credential, of several addresses: most send half a head each, all together more than the memory of
 * requests; the others do not read the answers that need no credential.
 */
static void check_strangers(struct side *side)
{
    static const char unread[] = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char half[STRANGER_HEAD] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ";
    static int fds[STRANGERS];
    char *credentials = make_credentials();
    memset(half + strlen(half), 'a', sizeof half - strlen(half));
    side->headers = BOSS;
    start_with(side, credentials);
    KIT_CHECK(call(side, "PUT", "/v1/semaphores/s", "{\"capacity\":1}") == 201 && is_served(side));
    make_semaphores(side);
    struct kept kept = {side, memory_mib(side, "VmRSS")};
    for (size_t i = 0; i < STRANGERS; i++) {
        fds[i] = connect_from(side, (uint32_t)(INADDR_LOOPBACK + 1 + i % STRANGER_ADDRESSES));
        /* A refused client may be closed already. */
        if (i % 10)
            (void)!send(fds[i], half, sizeof half, MSG_NOSIGNAL);
        for (int more = 0; i % 10 == 0 && more < 60; more++)
            (void)!send(fds[i], unread, sizeof unread - 1, MSG_NOSIGNAL);
    }
    check_others(side, "clients without a credential leave memory for those with one");
    struct told told = {fds, STRANGERS, "too much memory for unfinished requests of this client"};
    check(side, kit_wait_until(one_is_told, &told, PATIENCE_MS), "they are answered 429");
    for (size_t i = 0; i < STRANGERS; i++)
        close(fds[i]);
    check(side, kit_wait_until(has_given_back, &kept, PATIENCE_MS), "what they took is given back");
    end(side);
    free(credentials);
}

/* A principal without quotas that does not read its lists has half of the memory of answers. */
static void check_principals(struct side *side)
{
    static int fds[HOGS];
    char *credentials = make_credentials();
    side->headers = BOSS;
    start_with(side, credentials);
    KIT_CHECK(call(side, "PUT", "/v1/semaphores/s", "{\"capacity\":1}") == 201 && is_served(side));
    make_semaphores(side);
    for (size_t i = 0; i < HOGS; i++)
        fds[i] = ask_for_lists(side, HOG);
    check_others(side, "a principal that does not read leaves memory for others");
    side->headers = HOG;
    check(side, is_served(side), "its own short requests are served");
    struct told told = {fds, HOGS, "hog is beyond its quota: answers = "};
    check(side, kit_wait_until(one_is_told, &told, PATIENCE_MS), "its lists are answered 429");
    for (size_t i = 0; i < HOGS; i++)
        close(fds[i]);
    end(side);
    free(credentials);
}

int main(int argc, char **argv)
{
    struct side side = {.permitd = NULL};
    load_raise_file_limit();
    if (argc < 2 || !strcmp(argv[1], "bodies"))
        check_bodies(&side);
    if (argc < 2 || !strcmp(argv[1], "readers"))
        check_readers(&side);
    if (argc < 2 || !strcmp(argv[1], "halves"))
        check_halves(&side);
    if (argc < 2 || !strcmp(argv[1], "strangers"))
        check_strangers(&side);
    if (argc < 2 || !strcmp(argv[1], "principals"))
        check_principals(&side);
    printf("hostile: %d passed, %d failed\n", side.passed, side.failed);
    return side.failed != 0;
}
