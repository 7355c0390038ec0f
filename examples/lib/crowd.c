/* SPDX-License-Identifier: MIT */
/* See crowd.h. */
#include "crowd.h"
#include "load_client.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIVE_UP_MS = 60000 };

struct client {
    crowd_answered *answered;
    crowd_woken *woken;
    char *request;  /* kept until the answer, for retries; NULL: pauses or is idle */
    bool is_sent;   /* waits for the answer; false: for the time of the next try */
    double sent_ms; /* the first try */
};

struct crowd {
    struct load_pool *pool;
    char host[160]; /* value of the Host header */
    struct client *clients;
    unsigned count;
    unsigned busy; /* clients that wait for an answer or a pause */
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
    return (double)load_now_us() / 1000;
}

/* ---- Sending, and sending again ---- */

static void client_wait(struct crowd *crowd, unsigned number, double ms)
{
    load_wake(crowd->pool, number, load_now_us() + (int64_t)(ms * 1000));
}

static void client_send(struct crowd *crowd, unsigned number)
{
    struct client *client = &crowd->clients[number];

    client->is_sent = true;
    client_wait(crowd, number, GIVE_UP_MS);
    load_send(crowd->pool, number, client->request, strlen(client->request));
}

/* Takes an answer, or NULL if there will be none. */
static void client_answered(void *context, unsigned number, const struct load_answer *got)
{
    struct crowd *crowd = context;
    struct client *client = &crowd->clients[number];
    struct answer answer = {.ms = now_ms() - client->sent_ms, .text = got ? got->body : ""};

    if (!client->request || !client->is_sent)
        return; /* the server has closed an idle connection */
    client->is_sent = false;
    answer.status = got ? got->status : 0;
    if ((answer.status == 0 || answer.status == 429 || answer.status == 503) && answer.ms < (double)GIVE_UP_MS) {
        client_wait(crowd, number, 20 + rand() % 40);
        return;
    }
    free(client->request);
    client->request = NULL;
    load_wake(crowd->pool, number, 0);
    crowd->busy--;
    client->answered(crowd, number, &answer);
    json_object_put(answer.json);
}

/* The timer of the client has fired: gives up an answer, repeats an unanswered request, or ends the pause. */
static void client_woken(void *context, unsigned number)
{
    struct crowd *crowd = context;
    struct client *client = &crowd->clients[number];

    if (client->request && client->is_sent) {
        load_close(crowd->pool, number);
        client_answered(crowd, number, NULL);
    } else if (client->request) {
        client_send(crowd, number);
    } else {
        crowd->busy--;
        client->woken(crowd, number);
    }
}

static void client_ask(struct crowd *crowd, unsigned number, crowd_answered *answered, const char *method,
                       const char *path, const char *format, va_list arguments)
{
    struct client *client = &crowd->clients[number];
    char *body = NULL;

    if (format && vasprintf(&body, format, arguments) < 0)
        fail("out of memory");
    client->answered = answered;
    client->request = load_request(crowd->host, method, path, "", body);
    free(body);
    client->sent_ms = now_ms();
    crowd->busy++;
    client_send(crowd, number);
}

void crowd_send(struct crowd *crowd, unsigned client, crowd_answered *answered, const char *method, const char *path,
                const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    client_ask(crowd, client, answered, method, path, format, arguments);
    va_end(arguments);
}

void crowd_wait(struct crowd *crowd, unsigned client, double ms, crowd_woken *woken)
{
    crowd->clients[client].woken = woken;
    crowd->busy++;
    client_wait(crowd, client, ms);
}

void crowd_run(struct crowd *crowd)
{
    while (crowd->busy > 0)
        load_pool_step(crowd->pool, 1000);
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
    client_ask(crowd, crowd->count, asked, method, path, format, arguments);
    va_end(arguments);
    crowd_run(crowd);
    return crowd->asked_status;
}

/* ---- The crowd ---- */

struct crowd *crowd_new(const char *url, unsigned clients, void *context)
{
    struct crowd *crowd = must(calloc(1, sizeof(*crowd)));
    char host[128];
    unsigned port;

    signal(SIGTERM, tell_to_stop);
    signal(SIGINT, tell_to_stop);
    if (sscanf(url, "http://%127[^:/]:%u", host, &port) != 2)
        fail("the url is not of the form http://127.0.0.1:7070");
    snprintf(crowd->host, sizeof(crowd->host), "%s:%u", host, port);
    crowd->context = context;
    crowd->count = clients;
    crowd->clients = must(calloc(clients + 1, sizeof(*crowd->clients)));
    crowd->pool = load_pool_open(&(struct load_settings){.host = host,
                                                         .port = port,
                                                         .count = clients + 1,
                                                         .answered = client_answered,
                                                         .woken = client_woken,
                                                         .context = crowd});
    return crowd;
}

void crowd_free(struct crowd *crowd)
{
    load_pool_close(crowd->pool);
    free(crowd->clients);
    free(crowd);
}

void *crowd_context(struct crowd *crowd)
{
    return crowd->context;
}

void crowd_connect(struct crowd *crowd)
{
    if (!load_pool_connect(crowd->pool))
        fail("permitd does not answer /healthz");
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
