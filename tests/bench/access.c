/* SPDX-License-Identifier: MIT */
/*
 * Measures what access control costs and withstands: credentials on against off, TLS against plain connections, many
 * clients that reconnect with TLS at once, and the memory that clients can take. Prints Markdown on standard output and
 * progress on standard error.
 *
 *     bench_access [--quick] [PART ...]: credentials, tls, reconnect, memory; without names all of them
 */
#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "choice.h"
#include "load_client.h"
#include "measure.h"
#include "table.h"

enum {
    HOT_CLIENTS = 64,
    TOKEN_LENGTH = 47,
    ANSWER_MAX = 4096,
    RECONNECT_LIMIT_US = 120 * 1000000, /* for all clients */
    SETTLE_LIMIT_US = 60 * 1000000,     /* for permitd to return memory */
    LABELS = 1000,
    LABEL_LENGTH = 240,
};

static const struct numbers {
    int rounds;
    double seconds;
    unsigned reconnects;
    unsigned halves, waiters;
} full = {.rounds = 7, .seconds = 3, .reconnects = 5000, .halves = 16000, .waiters = 16000},
  quick = {.rounds = 1, .seconds = 1, .reconnects = 300, .halves = 500, .waiters = 500};

static const char token[] = "pmt_0123456789012345678901234567890123456789012";

/* ---- permitd with credentials and TLS ---- */

static char *directory; /* of certificates and credentials */

static const char *file(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static void make_files(void)
{
    char command[2048];
    directory = kit_path("access");
    KIT_CHECK(!mkdir(directory, 0700));
    snprintf(command, sizeof command,
             "cd '%s' && umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 "
             "-keyout server.key -out server.pem -subj /CN=localhost 2>openssl.log && "
             "printf '[bench]\\ntoken = sha256:%%s\\nrole = admin\\n' \"$(printf %%s '%s' | sha256sum | cut -c-64)\" "
             "> credentials",
             directory, token);
    if (system(command))
        kit_fail("%s failed", command);
}

/* Two listeners: a plain one, and one of TLS, whose port is *ret_tls_port. */
static struct instance start(bool with_credentials, unsigned *ret_tls_port)
{
    const char *flags[] = {"--listen",
                           "https://127.0.0.1:0",
                           "--tls-certificate",
                           file("server.pem"),
                           "--tls-key",
                           file("server.key"),
                           "--max-connections-per-address",
                           "100000",
                           "--max-waiters",
                           "100000",
                           with_credentials ? "--credentials" : NULL,
                           file("credentials"),
                           NULL};
    struct instance instance = instance_start_with(&(struct kit_permitd_options){.flags = flags});
    instance.token = with_credentials ? token : NULL;
    char line[256] = "";
    for (size_t length = 0; length < sizeof line - 1 && read(instance.permitd->stdout_fd, line + length, 1) == 1;)
        if (line[length++] == '\n')
            break;
    const char *port = strrchr(line, ':');
    KIT_CHECK(port);
    *ret_tls_port = (unsigned)strtoul(port + 1, NULL, 10);
    return instance;
}

/* ---- credentials on against off ---- */

static void measure_credentials(const struct numbers *numbers)
{
    struct series on = {.count = 0}, off = {.count = 0};
    unsigned port;
    struct instance with = start(true, &port), without = start(false, &port);
    const struct load load = {.clients = HOT_CLIENTS, .seconds = numbers->seconds, .semaphore = "hot"};
    instance_semaphore(&with, "hot", "counted", 1000000);
    instance_semaphore(&without, "hot", "counted", 1000000);
    for (int round = 0; round < numbers->rounds; round++) {
        series_add(&on, instance_loadgen(&with, &load));
        series_add(&off, instance_loadgen(&without, &load));
        fprintf(stderr, "bench: credentials on %.0f/s, off %.0f/s\n", on.results[round].rate, off.results[round].rate);
    }
    instance_stop(&with);
    instance_stop(&without);
    char measured[128];
    double ratio = RATIO(&on, &off, rate);
    snprintf(measured, sizeof measured, "%.3f times (%.0f/s, without %.0f/s)", ratio, MEDIAN(&on, rate),
             MEDIAN(&off, rate));
    print_target("hot semaphore, 64 clients: credentials on against off", "at least 0.99", measured, ratio >= 0.99,
                 series_failures(&on) + series_failures(&off));
}

/* ---- one connection, plain or with TLS ---- */

struct link {
    int fd;
    SSL *tls; /* NULL: plain */
};

static SSL_CTX *tls_context;

static struct link link_open(unsigned port, bool with_tls, int flags)
{
    struct link link = {.fd = load_connect(INADDR_LOOPBACK, port, 0, flags)};
    KIT_CHECK(link.fd >= 0);
    if (!with_tls)
        return link;
    link.tls = SSL_new(tls_context);
    KIT_CHECK(link.tls && SSL_set_fd(link.tls, link.fd));
    SSL_set_connect_state(link.tls);
    return link;
}

static void link_close(struct link *link)
{
    SSL_free(link->tls);
    close(link->fd);
}

static long link_read(struct link *link, char *bytes, size_t size)
{
    return link->tls ? SSL_read(link->tls, bytes, (int)size) : recv(link->fd, bytes, size, 0);
}

static bool link_write(struct link *link, const char *bytes, size_t length)
{
    long written = link->tls ? SSL_write(link->tls, bytes, (int)length) : send(link->fd, bytes, length, MSG_NOSIGNAL);
    return written == (long)length;
}

/* Sends a request and returns the status of its answer; 0: the connection failed. */
static int link_ask(struct link *link, const char *request)
{
    char answer[ANSWER_MAX + 1];
    struct load_answer read;
    size_t length = 0;
    if (!link_write(link, request, strlen(request)))
        return 0;
    while (length < ANSWER_MAX) {
        long got = link_read(link, answer + length, ANSWER_MAX - length);
        if (got <= 0)
            return 0;
        answer[length += (size_t)got] = '\0';
        if (load_answer_read(answer, length, false, &read))
            return read.status;
    }
    return 0;
}

/* Acquires and releases under a new key. Returns the time of the acquire. */
static int64_t link_pair(struct link *link, const char *semaphore, unsigned client, unsigned serial)
{
    char path[64], body[256];
    snprintf(path, sizeof path, "/v1/requests/a%u-%u", client, serial);
    snprintf(body, sizeof body, "{\"external_id\":\"a%u-%u\",\"permits\":[{\"semaphore\":\"%s\"}]}", client, serial,
             semaphore);
    char *acquire = load_request("localhost", "POST", "/v1/requests", "", body);
    char *release = load_request("localhost", "DELETE", path, "", NULL);
    int64_t began = load_now_us();
    if (link_ask(link, acquire) != 201)
        kit_fail("an acquire was not granted");
    int64_t took = load_now_us() - began;
    if (link_ask(link, release) != 200)
        kit_fail("a release was not answered 200");
    free(acquire);
    free(release);
    return took;
}

/* ---- TLS against plain ---- */

struct pairs {
    unsigned port, number;
    bool with_tls;
    atomic_bool *over;
    unsigned count;
};

static void *pairs_run(void *context)
{
    struct pairs *pairs = context;
    struct link link = link_open(pairs->port, pairs->with_tls, 0);
    while (!atomic_load(pairs->over))
        link_pair(&link, "hot", pairs->number, pairs->count++);
    link_close(&link);
    return NULL;
}

/* Returns the operations a second of 64 clients with a kept-alive connection each. */
static double rate_of(unsigned port, bool with_tls, double seconds)
{
    static unsigned number;
    atomic_bool over = false;
    pthread_t threads[HOT_CLIENTS];
    struct pairs pairs[HOT_CLIENTS];
    int64_t began = load_now_us();
    for (int i = 0; i < HOT_CLIENTS; i++) {
        pairs[i] = (struct pairs){.port = port, .number = number++, .with_tls = with_tls, .over = &over};
        KIT_CHECK(!pthread_create(&threads[i], NULL, pairs_run, &pairs[i]));
    }
    usleep((useconds_t)(seconds * 1e6));
    atomic_store(&over, true);
    unsigned count = 0;
    for (int i = 0; i < HOT_CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        count += pairs[i].count;
    }
    return 2 * count / ((double)(load_now_us() - began) / 1e6);
}

static void measure_tls(const struct numbers *numbers)
{
    unsigned port;
    struct instance instance = start(false, &port);
    double tls[ROUNDS_MAX], plain[ROUNDS_MAX], ratios[ROUNDS_MAX];
    size_t count = (size_t)numbers->rounds;
    instance_semaphore(&instance, "hot", "counted", 1000000);
    for (size_t i = 0; i < count; i++) {
        tls[i] = rate_of(port, true, numbers->seconds);
        plain[i] = rate_of(instance.permitd->port, false, numbers->seconds);
        ratios[i] = tls[i] / plain[i];
        fprintf(stderr, "bench: TLS %.0f/s, plain %.0f/s\n", tls[i], plain[i]);
    }
    instance_stop(&instance);
    char measured[128];
    snprintf(measured, sizeof measured, "%.2f times (%.0f/s, plain %.0f/s; the client's TLS included)",
             median(ratios, count), median(tls, count), median(plain, count));
    print_target("hot semaphore, 64 clients: TLS kept-alive against plain", "reported", measured, true, 0);
}

/* ---- many clients reconnect at once ---- */

struct other {
    unsigned port;
    atomic_bool over;
    struct samples samples;
};

/* Another client, which acquires and releases all the time. */
static void *other_run(void *context)
{
    struct other *other = context;
    struct link link = link_open(other->port, false, 0);
    for (unsigned serial = 0; !atomic_load(&other->over); serial++)
        samples_add(&other->samples, link_pair(&link, "other", HOT_CLIENTS * 1000, serial));
    link_close(&link);
    return NULL;
}

enum progress { IS_SHAKING, IS_ASKED, IS_SERVED };

/* Moves one client on until it would block. */
static enum progress move_on(struct link *link, enum progress progress)
{
    static const char ask[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[ANSWER_MAX];
    if (progress == IS_SHAKING) {
        int done = SSL_do_handshake(link->tls);
        int error = SSL_get_error(link->tls, done);
        if (done != 1 && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
            kit_fail("a handshake failed");
        if (done != 1)
            return IS_SHAKING;
        KIT_CHECK(link_write(link, ask, sizeof ask - 1));
    }
    int got = SSL_read(link->tls, answer, sizeof answer);
    if (got <= 0)
        return SSL_get_error(link->tls, got) == SSL_ERROR_WANT_READ ? IS_ASKED : (kit_fail("a client was cut"), 0);
    KIT_CHECK(got > 12 && !memcmp(answer, "HTTP/1.1 200", 12));
    return IS_SERVED;
}

/* All connect at once. Returns how many were served. */
static unsigned reconnect_all(unsigned port, unsigned count)
{
    struct link *links = calloc(count, sizeof *links);
    enum progress *progress = calloc(count, sizeof *progress);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    KIT_CHECK(links && progress && poll >= 0);
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = i};
        links[i] = link_open(port, true, SOCK_NONBLOCK);
        KIT_CHECK(!epoll_ctl(poll, EPOLL_CTL_ADD, links[i].fd, &event));
    }
    unsigned served = 0;
    for (int64_t end = load_now_us() + RECONNECT_LIMIT_US; served < count && load_now_us() < end;) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, 1000);
        for (int i = 0; i < ready; i++) {
            unsigned at = events[i].data.u32;
            if (progress[at] == IS_SERVED || !(events[i].events & EPOLLOUT))
                continue;
            progress[at] = move_on(&links[at], progress[at]);
            served += progress[at] == IS_SERVED;
        }
    }
    for (unsigned i = 0; i < count; i++)
        link_close(&links[i]);
    close(poll);
    free(links);
    free(progress);
    return served;
}

static void measure_reconnect(const struct numbers *numbers)
{
    unsigned port;
    struct instance instance = start(false, &port);
    struct other other = {.port = instance.permitd->port};
    pthread_t thread;
    load_raise_file_limit();
    instance_semaphore(&instance, "other", "counted", 10);
    KIT_CHECK(!pthread_create(&thread, NULL, other_run, &other));
    int64_t began = load_now_us();
    unsigned served = reconnect_all(port, numbers->reconnects);
    double seconds = (double)(load_now_us() - began) / 1e6;
    atomic_store(&other.over, true);
    pthread_join(thread, NULL);
    instance_stop(&instance);
    char what[128], measured[160];
    double p99 = samples_percentile(&other.samples, 0.99) / 1000;
    snprintf(what, sizeof what, "%u clients reconnect with TLS at once", numbers->reconnects);
    snprintf(measured, sizeof measured, "%u served in %.1f s; acquires of another client: 99 %% %.1f ms, median %.1f",
             served, seconds, p99, samples_percentile(&other.samples, 0.5) / 1000);
    print_target(what, "all served; others' 99 % under 100 ms", measured, served == numbers->reconnects && p99 < 100,
                 0);
    samples_release(&other.samples);
}

/* ---- memory ---- */

/* The waiters that were refused, and the greatest memory of permitd seen. */
struct crowd {
    struct load_pool *pool;
    const char *request;
    unsigned refused;
    int64_t most_kib;
    pid_t pid;
};

static void look(struct crowd *crowd)
{
    int64_t kib = process_rss_kib(crowd->pid);
    crowd->most_kib = kib > crowd->most_kib ? kib : crowd->most_kib;
}

static void waiter_answered(void *context, unsigned number, const struct load_answer *answer)
{
    struct crowd *crowd = context;
    (void)number;
    crowd->refused += answer != NULL; /* NULL: its connection was closed */
}

/* Returns a list of 1,000 long labels between these texts. The caller frees it. */
static char *labels_between(const char *before, const char *behind)
{
    char *body = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&body, &length);
    KIT_CHECK(out);
    fputs(before, out);
    for (int i = 0; i < LABELS; i++)
        fprintf(out, "%s\"%0*d\"", i ? "," : "", LABEL_LENGTH, i);
    fputs(behind, out);
    fclose(out);
    return body;
}

/* A request that waits for one of the labels, which another client holds. */
static char *largest_request(void)
{
    char *body = labels_between("{\"wait\":\"10m\",\"permits\":[{\"semaphore\":\"seats\",\"any_of\":[", "]}]}");
    char *request = load_request("localhost", "POST", "/v1/requests", "", body);
    free(body);
    return request;
}

static void make_seats(struct instance *instance)
{
    struct kit_http http = kit_http(instance->permitd->port);
    struct reply reply;
    char *body = labels_between("{\"labels\":[", "]}");
    instance_semaphore(instance, "seats", "slotted", LABELS);
    const struct {
        const char *method, *path, *body;
    } calls[] = {{"PUT", "/v1/semaphores/seats/slots", body},
                 {"POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"seats\",\"count\":1000}]}"}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (!kit_http_call(&http, calls[i].method, calls[i].path, NULL, calls[i].body, &reply) ||
            reply.status / 100 != 2)
            kit_fail("%s: %d %s", calls[i].path, reply.status, reply.body);
        reply_release(&reply);
    }
    kit_http_close(&http);
    free(body);
}

/* Connections that have sent half a request. */
static void send_halves(unsigned port, unsigned count, struct crowd *crowd)
{
    static const char half[] = "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               "Content-Length: 20000\r\n\r\n";
    static const char filler[8192];
    int *fds = calloc(count, sizeof *fds);
    KIT_CHECK(fds);
    for (unsigned i = 0; i < count; i++) {
        fds[i] = load_connect(INADDR_LOOPBACK, port, 0, 0);
        KIT_CHECK(fds[i] >= 0);
        (void)!send(fds[i], half, sizeof half - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)!send(fds[i], filler, sizeof filler, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (i % 256 == 0)
            look(crowd);
    }
    look(crowd);
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    free(fds);
}

static void send_waiters(unsigned port, unsigned count, struct crowd *crowd)
{
    char *request = largest_request();
    const struct load_settings settings = {
        .host = "127.0.0.1", .port = port, .count = count, .answered = waiter_answered, .context = crowd};
    crowd->pool = load_pool_open(&settings);
    KIT_CHECK(load_pool_connect(crowd->pool));
    for (unsigned i = 0; i < count; i++) {
        load_send(crowd->pool, i, request, strlen(request));
        load_pool_step(crowd->pool, 0);
        if (i % 256 == 0)
            look(crowd);
    }
    for (int64_t end = load_now_us() + 10 * 1000000; load_now_us() < end; look(crowd))
        load_pool_step(crowd->pool, 100);
    load_pool_close(crowd->pool);
    free(request);
}

/* The memory when it has fallen to `most_kib`, or after a minute. */
static int64_t settled_kib(pid_t pid, int64_t most_kib)
{
    int64_t kib = process_rss_kib(pid);
    for (int64_t end = load_now_us() + SETTLE_LIMIT_US; kib > most_kib && load_now_us() < end;) {
        usleep(100000);
        kib = process_rss_kib(pid);
    }
    return kib;
}

static void measure_memory(const struct numbers *numbers)
{
    enum { LIMIT_KIB = 256 * 1024 };
    unsigned port;
    struct instance instance = start(false, &port);
    struct crowd crowd = {.pid = instance.permitd->pid};
    load_raise_file_limit();
    make_seats(&instance);
    int64_t start_kib = process_rss_kib(crowd.pid);
    send_halves(instance.permitd->port, numbers->halves, &crowd);
    int64_t halves_kib = crowd.most_kib;
    fprintf(stderr, "bench: half requests: %.1f MiB\n", (double)halves_kib / 1024);
    crowd.most_kib = 0;
    send_waiters(instance.permitd->port, numbers->waiters, &crowd);
    int64_t end_kib = settled_kib(crowd.pid, start_kib * 11 / 10);
    instance_stop(&instance);
    char what[160], measured[160];
    snprintf(what, sizeof what, "memory: %u connections with half a request, then %u waiters of the largest form",
             numbers->halves, numbers->waiters);
    snprintf(measured, sizeof measured, "%.1f MiB, %.1f MiB (%u refused); %.1f at the start, %.1f afterwards",
             (double)halves_kib / 1024, (double)crowd.most_kib / 1024, crowd.refused, (double)start_kib / 1024,
             (double)end_kib / 1024);
    print_target(what, "below 256 MiB, then within 10 % of the start", measured,
                 halves_kib < LIMIT_KIB && crowd.most_kib < LIMIT_KIB && end_kib * 10 <= start_kib * 11, 0);
}

/* ---- the parts ---- */

static const struct {
    const char *name;
    void (*measure)(const struct numbers *numbers);
} parts[] = {
    {"credentials", measure_credentials},
    {"tls", measure_tls},
    {"reconnect", measure_reconnect},
    {"memory", measure_memory},
};

enum { PARTS = sizeof parts / sizeof parts[0] };

int main(int argc, char **argv)
{
    _Static_assert(sizeof token - 1 == TOKEN_LENGTH, "pmt_ and 43 characters");
    struct choice choice = choice_read(argc, argv, parts, sizeof parts[0], PARTS);
    tls_context = SSL_CTX_new(TLS_client_method());
    KIT_CHECK(tls_context);
    make_files();
    print_machine_alone();
    printf("\n");
    print_target_head();
    for (size_t i = 0; i < PARTS; i++) {
        if (!choice.chosen[i])
            continue;
        fprintf(stderr, "bench: %s\n", parts[i].name);
        parts[i].measure(choice.quick ? &quick : &full);
        fflush(stdout);
    }
    SSL_CTX_free(tls_context);
    free(directory);
    return 0;
}
