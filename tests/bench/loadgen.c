/* SPDX-License-Identifier: MIT */
/*
 * Load over HTTP: one thread, N kept-alive connections of examples/lib/load_client.h. Each acquires and then releases
 * under a new key, one operation per request (or --batch of them). It shares the machine with the measured permitd, so
 * it must cost only a few microseconds per request: it builds requests once and rewrites only their keys, and of an
 * answer it reads only the status.
 *
 * --port P,P: the connections are spread evenly over several permitd. A key is released where it was acquired.
 *
 * --spread N: each acquire takes a unit of one of N semaphores, NAME-0000 and so on (four hexadecimal digits).
 *
 * --repeat N: every Nth acquire uses a key that its client used before and released. It counts as refused if it is
 * answered 410, and as failed otherwise. Single operations only.
 *
 * --units N: each acquire takes so many units (1). --keep: nothing is released.
 *
 * --owners: each client has an owner of its own.
 *
 * --burst N: N acquires and no release, as fast as the connections carry them.
 *
 * --get PATH: only GETs of PATH, which count as operations: the cost of HTTP itself. --known TAG: with If-None-Match, so
 * that the answer is 304.
 *
 * --rate N: at most N requests a second, evenly, as long as the server answers in time.
 */
#include "load_client.h"
#include "measure.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SERIAL_LENGTH = 8, SEMAPHORE_LENGTH = 4, BATCH_MAX = 1000, PORTS_MAX = 8 };

struct settings {
    unsigned ports[PORTS_MAX];
    unsigned port_count;
    unsigned clients;
    double seconds;
    double warmup;
    const char *semaphore;
    unsigned spread;   /* number of semaphores; 0: the one that is named */
    unsigned batch;    /* operations per request */
    unsigned repeat;   /* 0: all keys are new */
    unsigned units;    /* of each acquire */
    bool keep;         /* nothing is released */
    bool owners;       /* each client has an owner of its own */
    uint64_t burst;    /* 0: acquire and release for `seconds` */
    const char *get;   /* NULL: acquires */
    const char *known; /* with `get`; NULL: no If-None-Match */
    double rate;       /* requests a second; 0: as many as are answered */
    const char *watch;
    const char *token; /* NULL: no credential */
};

/* The bytes of a request, with the positions of its keys. */
struct request_text {
    char *data;
    size_t length;
    size_t serials[BATCH_MAX];    /* offsets of the serial number in each key */
    size_t semaphores[BATCH_MAX]; /* offsets of the number in each semaphore's name; 0: it has none */
};

struct client {
    unsigned port;
    bool releasing;
    bool repeating; /* its acquire has the key `ended` */
    bool has_ended;
    int64_t due_us; /* with a rate: when it sends its next request */
    uint32_t ended; /* the serial number of a key that was released */
    struct request_text acquire;
    struct request_text release;
};

struct load {
    struct settings settings;
    struct measure measure;
    struct load_pool *pool;
    struct client *clients;
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

static void build_request(const struct load *load, unsigned port, struct request_text *text, const char *method,
                          const char *path, const char *body)
{
    char host[32], headers[256] = "";
    snprintf(host, sizeof(host), "127.0.0.1:%u", port);
    if (load->settings.token)
        snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", load->settings.token);
    if (load->settings.known)
        snprintf(headers + strlen(headers), sizeof headers - strlen(headers), "If-None-Match: \"%s\"\r\n",
                 load->settings.known);
    text->data = load_request(host, method, path, headers, body);
    text->length = strlen(text->data);
    const char *at = text->data;
    for (size_t i = 0; i < BATCH_MAX && (at = strstr(at, "SSSSSSSS")); i++, at++) {
        text->serials[i] = (size_t)(at - text->data);
        const char *number = load->settings.spread ? strstr(at, "-MMMM\"") : NULL;
        text->semaphores[i] = number ? (size_t)(number + 1 - text->data) : 0;
    }
}

static void build_batch(const struct load *load, unsigned port, struct request_text *text, const char *operation)
{
    char *body = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&body, &length);
    if (!out)
        fail("no memory");
    fputs("{\"operations\":[", out);
    for (unsigned i = 0; i < load->settings.batch; i++)
        fprintf(out, "%s%s", i ? "," : "", operation);
    fputs("]}", out);
    fclose(out);
    build_request(load, port, text, "POST", "/v1/batch", body);
    free(body);
}

static void build_requests(const struct load *load, struct client *client, unsigned number, unsigned run)
{
    char key[64], owner[32], permit[256], text[512];
    snprintf(key, sizeof(key), "b%08x-%04x-SSSSSSSS", run, number & 0xffffu);
    snprintf(owner, sizeof(owner), "bench-%04x", load->settings.owners ? number & 0xffffu : 0);
    snprintf(permit, sizeof(permit),
             "\"external_id\":\"%s\",\"owner\":\"%s\",\"permits\":[{\"semaphore\":\"%s%s\",\"count\":%u}]", key, owner,
             load->settings.semaphore, load->settings.spread ? "-MMMM" : "", load->settings.units);
    if (load->settings.get) {
        build_request(load, client->port, &client->acquire, "GET", load->settings.get, NULL);
    } else if (load->settings.batch <= 1) {
        snprintf(text, sizeof(text), "{%s}", permit);
        build_request(load, client->port, &client->acquire, "POST", "/v1/requests", text);
        snprintf(text, sizeof(text), "/v1/requests/%s", key);
        build_request(load, client->port, &client->release, "DELETE", text, NULL);
    } else {
        snprintf(text, sizeof(text), "{\"op\":\"acquire\",%s}", permit);
        build_batch(load, client->port, &client->acquire, text);
        snprintf(text, sizeof(text), "{\"op\":\"release\",\"external_id\":\"%s\"}", key);
        build_batch(load, client->port, &client->release, text);
    }
}

static void write_number(char *at, int length, uint32_t number)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = length - 1; i >= 0; i--, number >>= 4)
        at[i] = digits[number & 15];
}

/* Returns the serial number of the next key: a new one, or one that this client has released. */
static uint32_t next_serial(struct load *load, struct client *client)
{
    uint32_t serial = load->serial++;
    client->repeating = load->settings.repeat && serial % load->settings.repeat == 0 && client->has_ended;
    if (client->repeating) {
        client->has_ended = false;
        return client->ended;
    }
    if (!client->has_ended)
        client->ended = serial;
    return serial;
}

/* Writes the next keys into both requests. */
static void renew_keys(struct load *load, struct client *client)
{
    if (load->settings.get)
        return;
    for (unsigned i = 0; i < load->settings.batch; i++) {
        uint32_t serial = next_serial(load, client);
        write_number(client->acquire.data + client->acquire.serials[i], SERIAL_LENGTH, serial);
        if (client->acquire.semaphores[i]) /* the multiplier mixes the numbers: neighbours take different ones */
            write_number(client->acquire.data + client->acquire.semaphores[i], SEMAPHORE_LENGTH,
                         (serial * 2654435761u >> 8) % load->settings.spread);
        if (!load->settings.keep)
            write_number(client->release.data + client->release.serials[i], SERIAL_LENGTH, serial);
    }
}

/* ---- the exchanges ---- */

static void send_now(void *context, unsigned number)
{
    struct load *load = context;
    struct client *client = &load->clients[number];
    if (!client->releasing) {
        if (load->stopping || (load->settings.burst && load->burst_left == 0)) {
            load->active--;
            return;
        }
        load->burst_left -= load->settings.burst > 0;
        renew_keys(load, client);
    }
    const struct request_text *text = client->releasing ? &client->release : &client->acquire;
    load_send(load->pool, number, text->data, text->length);
}

static void send_next(struct load *load, unsigned number)
{
    struct client *client = &load->clients[number];
    if (load->settings.rate > 0)
        client->due_us += (int64_t)(1e6 * load->settings.clients / load->settings.rate);
    if (client->due_us > load_now_us() && !load->stopping)
        load_wake(load->pool, number, client->due_us);
    else
        send_now(load, number);
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

static bool is_done(const struct load *load, const struct load_answer *answer)
{
    return load->settings.known ? answer->status == 304 : answer->status == 200 || answer->status == 201;
}

/* An acquire that could not be granted, as it should be. */
static bool is_refused(const struct client *client, const struct load_answer *answer)
{
    return client->repeating ? answer->status == 410 : answer->status == 423;
}

static void count_answer(struct load *load, const struct client *client, const struct load_answer *answer)
{
    if (!load->counting)
        return;
    struct measure *measure = &load->measure;
    if (!client->releasing)
        samples_add(&measure->acquires, answer->arrived_us - answer->sent_us);
    if (is_refused(client, answer))
        measure->refused++;
    else if (client->repeating || !is_done(load, answer))
        measure->failed++;
    else if (load->settings.batch <= 1)
        measure->operations++;
    else {
        uint64_t granted = count_granted(answer->body, answer->body_length);
        measure->operations += granted;
        measure->failed += load->settings.batch - granted;
    }
}

static void take_answer(void *context, unsigned number, const struct load_answer *answer)
{
    static bool told;
    struct load *load = context;
    struct client *client = &load->clients[number];
    if (!answer)
        fail("the server closed a connection");
    count_answer(load, client, answer);
    bool granted = is_done(load, answer);
    bool unexpected = !granted && !is_refused(client, answer);
    if (unexpected && !told)
        fprintf(stderr, "loadgen: unexpected answer: %.600s\n", answer->text);
    told = told || unexpected;
    client->has_ended = client->has_ended || (client->releasing && granted);
    /* A failed release is repeated; a refused acquire has nothing to release. */
    if (!load->settings.keep && !load->settings.get)
        client->releasing = client->releasing ? !granted && !load->stopping : granted;
    send_next(load, number);
}

/* Runs for this time, or until all requests are answered. */
static void run_for(struct load *load, double seconds)
{
    int64_t end = load_now_us() + (int64_t)(seconds * 1e6);
    for (int64_t left; load->active && (left = end - load_now_us()) > 0;)
        load_pool_step(load->pool, (int)(left / 1000) + 1);
}

static void open_connections(struct load *load)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned run = (unsigned)now.tv_sec ^ ((unsigned)now.tv_nsec << 2) ^ ((unsigned)getpid() << 20);
    const struct load_settings settings = {.host = "127.0.0.1",
                                           .port = load->settings.ports[0],
                                           .count = load->settings.clients,
                                           .answered = take_answer,
                                           .woken = send_now,
                                           .context = load};
    load->clients = calloc(load->settings.clients, sizeof(load->clients[0]));
    if (!load->clients)
        fail("no memory");
    load->pool = load_pool_open(&settings);
    for (unsigned i = 0; i < load->settings.clients; i++) {
        load->clients[i].port = load->settings.ports[i % load->settings.port_count];
        load_set_port(load->pool, i, load->clients[i].port);
        build_requests(load, &load->clients[i], i, run);
    }
    if (!load_pool_connect(load->pool))
        fail("connect");
}

static void send_first(struct load *load)
{
    int64_t now = load_now_us();
    load->active = load->settings.clients;
    for (unsigned i = 0; i < load->settings.clients; i++) {
        if (load->settings.rate > 0) /* evenly, from now on */
            load->clients[i].due_us = now + (int64_t)(1e6 * (i - (double)load->settings.clients) / load->settings.rate);
        send_next(load, i);
    }
}

static void run_pairs(struct load *load)
{
    send_first(load);
    run_for(load, load->settings.warmup);
    measure_begin(&load->measure);
    load->counting = true;
    run_for(load, load->settings.seconds);
    measure_end(&load->measure);
    load->counting = false;
    load->stopping = true;
    run_for(load, 30);
}

static void run_burst(struct load *load)
{
    load->burst_left = load->settings.burst;
    load->counting = true;
    measure_begin(&load->measure);
    send_first(load);
    run_for(load, 60);
    measure_end(&load->measure);
}

static void close_connections(struct load *load)
{
    load_pool_close(load->pool);
    for (unsigned i = 0; i < load->settings.clients; i++) {
        free(load->clients[i].acquire.data);
        free(load->clients[i].release.data);
    }
    free(load->clients);
    samples_release(&load->measure.acquires);
}

static const struct option options[] = {
    {"port", required_argument, NULL, 'p'},
    {"clients", required_argument, NULL, 'c'},
    {"seconds", required_argument, NULL, 't'},
    {"warmup", required_argument, NULL, 'w'},
    {"semaphore", required_argument, NULL, 's'},
    {"spread", required_argument, NULL, 'S'},
    {"batch", required_argument, NULL, 'b'},
    {"burst", required_argument, NULL, 'n'},
    {"get", required_argument, NULL, 'g'},
    {"watch", required_argument, NULL, 'W'},
    {"token", required_argument, NULL, 'T'},
    {"repeat", required_argument, NULL, 'r'},
    {"owners", no_argument, NULL, 'o'},
    {"known", required_argument, NULL, 'k'},
    {"rate", required_argument, NULL, 'R'},
    {"units", required_argument, NULL, 'u'},
    {"keep", no_argument, NULL, 'K'},
    {NULL, 0, NULL, 0},
};

/* "7070,7071" */
static void take_ports(struct settings *settings, const char *ports)
{
    for (const char *at = ports; at && settings->port_count < PORTS_MAX; at = strchr(at, ',')) {
        at += *at == ',';
        settings->ports[settings->port_count++] = (unsigned)atoi(at);
    }
}

static void take_option(struct settings *settings, int option)
{
    switch (option) {
    case 'p': take_ports(settings, optarg); break;
    case 'c': settings->clients = (unsigned)atoi(optarg); break;
    case 't': settings->seconds = atof(optarg); break;
    case 'w': settings->warmup = atof(optarg); break;
    case 's': settings->semaphore = optarg; break;
    case 'S': settings->spread = (unsigned)atoi(optarg); break;
    case 'b': settings->batch = (unsigned)atoi(optarg); break;
    case 'r': settings->repeat = (unsigned)atoi(optarg); break;
    case 'o': settings->owners = true; break;
    case 'u': settings->units = (unsigned)atoi(optarg); break;
    case 'K': settings->keep = true; break;
    case 'n':
        settings->burst = strtoull(optarg, NULL, 10);
        settings->keep = true;
        break;
    case 'g': settings->get = optarg; break;
    case 'W': settings->watch = optarg; break;
    case 'T': settings->token = optarg; break;
    case 'k': settings->known = optarg; break;
    case 'R': settings->rate = atof(optarg); break;
    default: exit(2);
    }
}

int main(int argc, char **argv)
{
    struct load load = {
        .settings = {.clients = 64, .seconds = 3, .warmup = 0.5, .semaphore = "hot", .batch = 1, .units = 1}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(&load.settings, option);
    if (!load.settings.port_count || !load.settings.clients || load.settings.batch < 1 ||
        load.settings.batch > BATCH_MAX || (load.settings.repeat && load.settings.batch > 1)) {
        fprintf(stderr, "usage: loadgen --port P[,P...] [--clients N] [--seconds S] [--warmup S] [--semaphore NAME] "
                        "[--spread N] [--batch N | --repeat N] [--units N] [--keep] [--owners] [--burst N] [--get "
                        "PATH] [--known TAG] "
                        "[--rate N] [--watch PID,PID] [--token TOKEN]\n");
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
