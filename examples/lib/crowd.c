/* SPDX-License-Identifier: MIT */
/* See crowd.h. */
#include "crowd.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/util.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { CONNECTING = 256, GIVE_UP_MS = 60000, PATH = 320 };

struct client {
    struct crowd *crowd;
    struct evhttp_connection *connection;
    struct event *timer;
    crowd_answered *answered;
    crowd_woken *woken;
    enum evhttp_cmd_type method;
    char path[PATH];
    char *body; /* kept until the answer, for retries; NULL: none */
    double sent_ms;
};

struct crowd {
    struct event_base *base;
    struct evhttp_uri *url;
    char host[128]; /* value of the Host header */
    struct client *clients;
    unsigned count;
    unsigned busy;      /* clients that wait for an answer or a pause */
    unsigned connected; /* crowd_connect: number of the next client to connect */
    void *context;
    int asked_status; /* crowd_ask: result */
    struct json_object **asked_json;
};

static void fail(const char *what)
{
    fprintf(stderr, "crowd: %s\n", what);
    exit(1);
}

static void *must(void *made)
{
    if (!made)
        fail("out of memory");
    return made;
}

double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1000 + (double)now.tv_nsec / 1e6;
}

/* ---- Sending, and sending again ---- */

static void client_wait(struct client *client, double ms)
{
    struct timeval time = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)((int64_t)(ms * 1000) % 1000000)};

    evtimer_add(client->timer, &time);
}

static void client_done(struct client *client, struct answer *answer)
{
    crowd_answered *answered = client->answered;

    free(client->body);
    client->body = NULL;
    client->answered = NULL;
    client->crowd->busy--;
    answered(client->crowd, (unsigned)(client - client->crowd->clients), answer);
    json_object_put(answer->json);
}

/* libevent calls this with an answer, or when there will be none (then request is NULL, or its code 0). */
static void client_answered(struct evhttp_request *request, void *context)
{
    struct client *client = context;
    struct answer answer = {.ms = now_ms() - client->sent_ms, .text = ""};

    if (request)
        answer.status = evhttp_request_get_response_code(request);
    if ((answer.status == 0 || answer.status == 429 || answer.status == 503) && answer.ms < (double)GIVE_UP_MS) {
        client_wait(client, 20 + rand() % 40);
        return;
    }
    if (answer.status != 0) {
        struct evbuffer *body = evhttp_request_get_input_buffer(request);

        evbuffer_add(body, "", 1);
        answer.text = (const char *)evbuffer_pullup(body, -1);
    }
    client_done(client, &answer);
}

static void client_send(struct client *client)
{
    struct evhttp_request *request = must(evhttp_request_new(client_answered, client));
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);

    evhttp_add_header(headers, "Host", client->crowd->host);
    if (client->body) {
        evhttp_add_header(headers, "Content-Type", "application/json");
        evbuffer_add(evhttp_request_get_output_buffer(request), client->body, strlen(client->body));
    }
    if (evhttp_make_request(client->connection, request, client->method, client->path))
        client_wait(client, 50);
}

/* The timer of the client has fired: repeats an unanswered request, or ends the pause. */
static void client_woken(evutil_socket_t fd, short events, void *context)
{
    struct client *client = context;

    (void)fd;
    (void)events;
    if (client->answered)
        client_send(client);
    else {
        client->crowd->busy--;
        client->woken(client->crowd, (unsigned)(client - client->crowd->clients));
    }
}

static enum evhttp_cmd_type method_of(const char *word)
{
    return !strcmp(word, "GET")    ? EVHTTP_REQ_GET
           : !strcmp(word, "PUT")  ? EVHTTP_REQ_PUT
           : !strcmp(word, "POST") ? EVHTTP_REQ_POST
                                   : EVHTTP_REQ_DELETE;
}

static void client_ask(struct client *client, crowd_answered *answered, const char *method, const char *path,
                       const char *format, va_list arguments)
{
    client->answered = answered;
    client->method = method_of(method);
    if ((size_t)snprintf(client->path, PATH, "%s", path) >= PATH)
        fail("a path is too long");
    if (format && vasprintf(&client->body, format, arguments) < 0)
        fail("out of memory");
    client->sent_ms = now_ms();
    client->crowd->busy++;
    client_send(client);
}

void crowd_send(struct crowd *crowd, unsigned client, crowd_answered *answered, const char *method, const char *path,
                const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    client_ask(&crowd->clients[client], answered, method, path, format, arguments);
    va_end(arguments);
}

void crowd_wait(struct crowd *crowd, unsigned client, double ms, crowd_woken *woken)
{
    crowd->clients[client].woken = woken;
    crowd->busy++;
    client_wait(&crowd->clients[client], ms);
}

void crowd_run(struct crowd *crowd)
{
    while (crowd->busy > 0)
        event_base_loop(crowd->base, EVLOOP_ONCE);
}

static volatile sig_atomic_t told_to_stop;

static void tell_to_stop(int number)
{
    (void)number;
    told_to_stop = 1;
}

bool crowd_told_to_stop(void)
{
    return told_to_stop;
}

static void asked(struct crowd *crowd, unsigned client, struct answer *answer)
{
    (void)client;
    crowd->asked_status = answer->status;
    if (crowd->asked_json)
        *crowd->asked_json = json_object_get(answer_find(answer, ""));
}

/* Uses one more client than the crowd has. */
int crowd_ask(struct crowd *crowd, struct json_object **ret_json, const char *method, const char *path,
              const char *format, ...)
{
    va_list arguments;

    crowd->asked_json = ret_json;
    va_start(arguments, format);
    client_ask(&crowd->clients[crowd->count], asked, method, path, format, arguments);
    va_end(arguments);
    crowd_run(crowd);
    return crowd->asked_status;
}

/* ---- The crowd ---- */

static void client_init(struct client *client, struct crowd *crowd)
{
    client->crowd = crowd;
    client->connection = must(evhttp_connection_base_new(crowd->base, NULL, evhttp_uri_get_host(crowd->url),
                                                         (unsigned short)evhttp_uri_get_port(crowd->url)));
    evhttp_connection_set_timeout(client->connection, GIVE_UP_MS / 1000);
    client->timer = must(evtimer_new(crowd->base, client_woken, client));
}

struct crowd *crowd_new(const char *url, unsigned clients, void *context)
{
    struct crowd *crowd = must(calloc(1, sizeof(*crowd)));
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, tell_to_stop);
    signal(SIGINT, tell_to_stop);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < clients + 64)
        fail("this process may not open so many connections (ulimit -n)");
    crowd->base = must(event_base_new());
    crowd->url = evhttp_uri_parse(url);
    if (!crowd->url || !evhttp_uri_get_host(crowd->url) || evhttp_uri_get_port(crowd->url) <= 0)
        fail("the url is not of the form http://127.0.0.1:7070");
    snprintf(crowd->host, sizeof(crowd->host), "%s:%d", evhttp_uri_get_host(crowd->url),
             evhttp_uri_get_port(crowd->url));
    crowd->context = context;
    crowd->count = clients;
    crowd->clients = must(calloc(clients + 1, sizeof(*crowd->clients)));
    for (unsigned i = 0; i <= clients; i++)
        client_init(&crowd->clients[i], crowd);
    return crowd;
}

void crowd_free(struct crowd *crowd)
{
    for (unsigned i = 0; i <= crowd->count; i++) {
        evhttp_connection_free(crowd->clients[i].connection);
        event_free(crowd->clients[i].timer);
    }
    evhttp_uri_free(crowd->url);
    event_base_free(crowd->base);
    free(crowd->clients);
    free(crowd);
}

void *crowd_context(struct crowd *crowd)
{
    return crowd->context;
}

/* Connects the next client when one has connected: some hundred at a time, because the server's backlog is limited. */
static void connect_next(struct crowd *crowd, unsigned client, struct answer *answer)
{
    (void)client;
    if (answer && answer->status != 200)
        fail("permitd does not answer /healthz");
    if (crowd->connected < crowd->count)
        crowd_send(crowd, crowd->connected++, connect_next, "GET", "/healthz", NULL);
}

void crowd_connect(struct crowd *crowd)
{
    for (unsigned i = 0; i < CONNECTING; i++)
        connect_next(crowd, 0, NULL);
    crowd_run(crowd);
}

/* ---- Answers ---- */

struct json_object *answer_find(struct answer *answer, const char *pointer)
{
    struct json_object *found = NULL;

    if (!answer->json)
        answer->json = json_tokener_parse(answer->text);
    return answer->json && !json_pointer_get(answer->json, pointer, &found) ? found : NULL;
}

int64_t answer_number(struct answer *answer, const char *pointer)
{
    return json_object_get_int64(answer_find(answer, pointer));
}

int64_t json_number(struct json_object *json, const char *pointer)
{
    struct json_object *found = NULL;

    return json && !json_pointer_get(json, pointer, &found) ? json_object_get_int64(found) : 0;
}

/* ---- What is said in the end ---- */

void durations_add(struct durations *durations, double ms)
{
    if (durations->count == durations->room) {
        durations->room = durations->room ? durations->room * 2 : 1024;
        durations->ms = must(realloc(durations->ms, durations->room * sizeof(*durations->ms)));
    }
    durations->ms[durations->count++] = ms;
}

static int by_length(const void *a, const void *b)
{
    const double *one = a, *two = b;

    return (*one > *two) - (*one < *two);
}

double durations_percentile(struct durations *durations, double percent)
{
    size_t rank = (size_t)((double)durations->count * percent / 100);

    if (durations->count == 0)
        return 0;
    qsort(durations->ms, durations->count, sizeof(*durations->ms), by_length);
    return durations->ms[rank < durations->count ? rank : durations->count - 1];
}

static bool kept = true;

void claim(bool holds, const char *format, ...)
{
    va_list arguments;

    kept = kept && holds;
    printf("%s", holds ? "ok - " : "NOT SO - ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

bool claims_kept(void)
{
    return kept;
}

void figure(const char *what, const char *asked, bool reached, const char *format, ...)
{
    const char *path = getenv("PERMIT_FIGURES");
    char measured[512];
    va_list arguments;
    FILE *file;

    va_start(arguments, format);
    vsnprintf(measured, sizeof(measured), format, arguments);
    va_end(arguments);
    printf("     %s: %s\n", what, measured);
    fflush(stdout);
    if (!path || !(file = fopen(path, "a")))
        return;
    fprintf(file, "| %s | %s | %s | %s |\n", what, asked, measured, reached ? "yes" : "**no**");
    fclose(file);
}
