/* SPDX-License-Identifier: MIT */
/*
 * The cost of lists for other clients: one client repeats requests that read a row (a refusal that names its holder, a
 * token, readiness), alone and while others list two million requests by owner and semaphore without a match. Prints
 * Markdown on standard output and progress on standard error.
 *
 * bench_reads [--rows N] [--seconds S]
 */
#include "instance.h"
#include "measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILL_STEP = 50000, SAMPLES_MAX = 200000, LISTERS_MAX = 300, CROWDS = 3, TIMEOUT_MS = 120000 };

static const unsigned crowds[CROWDS] = {0, 3, 300};

/* A request of the measured client, and the expected status. */
static const struct question {
    const char *what;
    const char *method;
    const char *path;
    const char *body;
    int status;
} questions[] = {
    {"acquire that is refused (423, with its holder)", "POST", "/v1/requests",
     "{\"external_id\":\"refused\",\"permits\":[{\"semaphore\":\"full\"}]}", 423},
    {"`/fence`", "GET", "/v1/semaphores/full/fence?token=1", NULL, 200},
    {"`GET` of one request", "GET", "/v1/requests/holder", NULL, 200},
    {"`/readyz`", "GET", "/readyz", NULL, 200},
};
enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };

struct answers {
    double p50_ms, p99_ms, max_ms;
    unsigned long count, unexpected;
};

struct bench {
    long rows;
    double seconds;
    struct instance instance;
    struct answers answers[CROWDS][QUESTIONS];
    double pages_a_second[CROWDS];
    double list_ms[CROWDS]; /* longest */
};

/* ---- the rows ---- */

/* Ended requests of the owner `busy`, which held units of `hot`; `rare` was never held. */
static void fill(const struct bench *bench)
{
    struct kit_sql *sql = kit_sql_open(bench->instance.socket, "permitd");
    long long semaphore = kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = 'hot'");
    for (long at = 0; at < bench->rows; at += FILL_STEP) {
        long count = bench->rows - at < FILL_STEP ? bench->rows - at : FILL_STEP;
        kit_sql_run(sql,
                    "INSERT INTO permit_request (id, external_id, digest, owner, state, end_reason, ttl_ms, due_at,"
                    " acquired_at, ended_at) SELECT 1000000000 + %ld + seq, CONCAT('fill-', %ld + seq),"
                    " UNHEX(SHA2(seq, 256)), 'busy', 2, 1, 600000, SYSDATE(6) + INTERVAL 7 DAY,"
                    " SYSDATE(6) - INTERVAL 1 HOUR, SYSDATE(6) - INTERVAL 30 MINUTE FROM seq_0_to_%ld",
                    at, at, count - 1);
        kit_sql_run(sql,
                    "INSERT INTO permit (semaphore_id, id, permit_request_id, count, slots)"
                    " SELECT %lld, 100000000 + %ld + seq, 1000000000 + %ld + seq, 1, '' FROM seq_0_to_%ld",
                    semaphore, at, at, count - 1);
        fprintf(stderr, "reads: %ld rows inserted\r", at + count);
    }
    kit_sql_run(sql, "UPDATE semaphore SET next_permit_id = 1000000000, version = version + 1 WHERE id = %lld",
                semaphore);
    kit_sql_run(sql, "ANALYZE TABLE permit_request, permit");
    kit_sql_close(sql);
    fprintf(stderr, "\n");
}

/* ---- the listing clients ---- */

struct lister {
    pthread_t thread;
    unsigned port;
    atomic_bool *stop;
    unsigned long pages;
    int64_t longest_us;
};

/* Reads page after page, and starts again at the end. */
static void *list_run(void *context)
{
    struct lister *lister = context;
    struct kit_http http = kit_http(lister->port);
    http.timeout_ms = TIMEOUT_MS;
    char *after = NULL;
    while (!atomic_load(lister->stop)) {
        struct reply reply;
        char path[256];
        int64_t began = kit_now_us();
        snprintf(path, sizeof(path), "/v1/requests?owner=busy&semaphore=rare&limit=100%s%s", after ? "&after=" : "",
                 after ? after : "");
        (void)kit_http_get(&http, path, &reply);
        int64_t took = kit_now_us() - began;
        lister->longest_us = took > lister->longest_us ? took : lister->longest_us;
        lister->pages += reply.status == 200;
        free(after);
        after = reply.status == 200 ? kit_json_text(reply.body, "next") : NULL;
        reply_release(&reply);
    }
    free(after);
    kit_http_close(&http);
    return NULL;
}

/* ---- the measured client ---- */

static struct answers ask(const struct bench *bench, const struct question *question)
{
    struct answers answers = {.count = 0};
    struct samples samples = {.us = calloc(SAMPLES_MAX, sizeof(uint32_t)), .capacity = SAMPLES_MAX};
    struct kit_http http = kit_http(bench->instance.permitd->port);
    KIT_CHECK(samples.us);
    http.timeout_ms = TIMEOUT_MS;
    int64_t until = kit_now_us() + (int64_t)(bench->seconds * 1e6);
    while (kit_now_us() < until) {
        struct reply reply;
        int64_t began = kit_now_us();
        (void)kit_http_call(&http, question->method, question->path, NULL, question->body, &reply);
        samples_add(&samples, kit_now_us() - began);
        answers.count++;
        answers.unexpected += reply.status != question->status;
        reply_release(&reply);
    }
    answers.p50_ms = samples_percentile(&samples, 0.5) / 1e3;
    answers.p99_ms = samples_percentile(&samples, 0.99) / 1e3;
    answers.max_ms = samples_percentile(&samples, 1) / 1e3;
    samples_release(&samples);
    kit_http_close(&http);
    return answers;
}

static void measure_crowd(struct bench *bench, unsigned crowd)
{
    static struct lister listers[LISTERS_MAX];
    atomic_bool stop = false;
    int64_t began = kit_now_us();
    for (unsigned i = 0; i < crowds[crowd]; i++) {
        listers[i] = (struct lister){.port = bench->instance.permitd->port, .stop = &stop};
        KIT_CHECK(pthread_create(&listers[i].thread, NULL, list_run, &listers[i]) == 0);
    }
    for (unsigned i = 0; i < QUESTIONS; i++) {
        struct answers answers = ask(bench, &questions[i]);
        bench->answers[crowd][i] = answers;
        fprintf(stderr,
                "reads: %3u list, %s: median %.2f ms, 99 %% %.2f, longest %.1f, %lu requests, %lu unexpected answers\n",
                crowds[crowd], questions[i].what, answers.p50_ms, answers.p99_ms, answers.max_ms, answers.count,
                answers.unexpected);
    }
    double seconds = (double)(kit_now_us() - began) / 1e6;
    atomic_store(&stop, true);
    for (unsigned i = 0; i < crowds[crowd]; i++) {
        pthread_join(listers[i].thread, NULL);
        bench->pages_a_second[crowd] += (double)listers[i].pages / seconds;
        double ms = (double)listers[i].longest_us / 1e3;
        bench->list_ms[crowd] = ms > bench->list_ms[crowd] ? ms : bench->list_ms[crowd];
    }
}

/* ---- the figures ---- */

static void print_figures(const struct bench *bench)
{
    printf("| median, 99 %%, longest in ms | alone | 3 clients list | 300 clients list |\n|---|---|---|---|\n");
    for (unsigned i = 0; i < QUESTIONS; i++) {
        printf("| %s |", questions[i].what);
        for (unsigned crowd = 0; crowd < CROWDS; crowd++) {
            const struct answers *answers = &bench->answers[crowd][i];
            printf(" %.2f, %.2f, %.1f", answers->p50_ms, answers->p99_ms, answers->max_ms);
            if (answers->unexpected)
                printf(" (%lu of %lu failed)", answers->unexpected, answers->count);
            printf(" |");
        }
        printf("\n");
    }
    printf("| pages listed a second, the longest in ms | |");
    for (unsigned crowd = 1; crowd < CROWDS; crowd++)
        printf(" %.1f, %.0f |", bench->pages_a_second[crowd], bench->list_ms[crowd]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static struct bench bench = {.rows = 2000000, .seconds = 5};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rows"))
            bench.rows = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            bench.seconds = atof(argv[i + 1]);
        else
            kit_fail("usage: reads [--rows N] [--seconds S]");
    }
    bench.instance = instance_start();
    instance_semaphore(&bench.instance, "hot", "counted", 1000000);
    instance_semaphore(&bench.instance, "rare", "counted", 1);
    instance_semaphore(&bench.instance, "full", "counted", 1);
    struct kit_http http = kit_http(bench.instance.permitd->port);
    struct reply reply;
    KIT_CHECK(kit_http_post(&http, "/v1/requests",
                            "{\"external_id\":\"holder\",\"ttl\":\"10h\",\"permits\":[{\"semaphore\":\"full\"}]}",
                            &reply) &&
              reply.status == 201);
    reply_release(&reply);
    kit_http_close(&http);
    fill(&bench);
    for (unsigned crowd = 0; crowd < CROWDS; crowd++)
        measure_crowd(&bench, crowd);
    print_figures(&bench);
    instance_stop(&bench.instance);
    return 0;
}
