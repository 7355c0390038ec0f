/* SPDX-License-Identifier: MIT */
/*
 * Pages that many look at: 20,000 GETs of /v1/availability a second, each of 200 semaphores, one of which is hot; and the
 * hot load alone and beside them, by turns. Prints Markdown on standard output and progress on standard error.
 *
 *     bench_availability [--rounds N] [--seconds S] [--rate N]
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "table.h"

enum { NAMES = 200, LOOKERS = 64, PATH_SIZE = 4096 };

struct bench {
    struct instance instance;
    double seconds, rate;
    char names[PATH_SIZE], *tag;
    struct series by_name, by_prefix, unchanged; /* alone */
    struct series hot, hot_beside, names_beside;
    double reads; /* statements of the database for each second, while only pages are looked at */
};

/* "e-0000,e-0001,...,hot": of these only `hot` changes. */
static void make_names(struct bench *bench)
{
    char *at = stpcpy(bench->names, "/v1/availability?semaphore=");
    for (unsigned i = 0; i + 1 < NAMES; i++)
        at += sprintf(at, "e-%04x,", i);
    strcpy(at, "hot");
}

/* Reads the ETag of this path, without its quotes. */
static char *tag_of(const struct bench *bench, const char *path)
{
    struct kit_http http = kit_http(bench->instance.permitd->port);
    struct reply reply;
    KIT_CHECK(kit_http_get(&http, path, &reply) && reply.status == 200);
    char *tag = reply_header(&reply, "ETag");
    KIT_CHECK(tag && strlen(tag) > 2);
    tag[strlen(tag) - 1] = '\0';
    memmove(tag, tag + 1, strlen(tag));
    reply_release(&reply);
    kit_http_close(&http);
    return tag;
}

static void add(struct series *series, const char *what, struct result result)
{
    fprintf(stderr,
            "bench: %-16s %9.0f/s, CPU of permitd %6.2f us, median %6.0f us, 99 %% %6.0f, most %6.0f, %.0f failed\n",
            what, result.rate, result.permitd_cpu_us, result.p50_us, result.p99_us, result.max_us,
            result.failed + result.unanswered);
    series_add(series, result);
}

/* Lookers that run beside another load. */
struct lookers {
    struct bench *bench;
    const struct load *load;
    struct result result;
};

static void *lookers_run(void *context)
{
    struct lookers *lookers = context;
    lookers->result = instance_loadgen(&lookers->bench->instance, lookers->load);
    return NULL;
}

static void run_round(struct bench *bench)
{
    const struct load hot = {.clients = 64, .seconds = bench->seconds, .semaphore = "hot"};
    struct load look = {.clients = LOOKERS, .seconds = bench->seconds, .get = bench->names, .rate = bench->rate};
    struct lookers lookers = {.bench = bench, .load = &look};
    pthread_t thread;
    add(&bench->hot, "hot alone", instance_loadgen(&bench->instance, &hot));
    KIT_CHECK(pthread_create(&thread, NULL, lookers_run, &lookers) == 0);
    add(&bench->hot_beside, "hot beside", instance_loadgen(&bench->instance, &hot));
    pthread_join(thread, NULL);
    add(&bench->names_beside, "names beside it", lookers.result);
    double selects = instance_counter(&bench->instance, "Com_select");
    int64_t began = kit_now_us();
    add(&bench->by_name, "names", instance_loadgen(&bench->instance, &look));
    bench->reads = (instance_counter(&bench->instance, "Com_select") - selects) * 1e6 / (double)(kit_now_us() - began);
    look.get = "/v1/availability?prefix=e-";
    add(&bench->by_prefix, "prefix", instance_loadgen(&bench->instance, &look));
    look.known = bench->tag;
    add(&bench->unchanged, "prefix, 304", instance_loadgen(&bench->instance, &look));
}

static void print_lookers(const struct bench *bench, const char *what, const struct series *series)
{
    double cores = MEDIAN(series, permitd_cpu_us) * bench->rate / 1e6;
    print_target(what, "under 1 core",
                 text("%.2f cores (%.1f us a GET); %.0f a second; median %.2f ms, 99 %% %.1f", cores,
                      MEDIAN(series, permitd_cpu_us), MEDIAN(series, rate), MEDIAN(series, p50_us) / 1e3,
                      MEDIAN(series, p99_us) / 1e3),
                 cores < 1 && MEDIAN(series, rate) > 0.99 * bench->rate, series_failures(series));
}

static void print_figures(struct bench *bench)
{
    double ratio = RATIO(&bench->hot_beside, &bench->hot, rate);
    print_machine(&bench->instance);
    print_target_head();
    print_lookers(bench, text("CPU of permitd, %.0f GETs a second of 200 names", bench->rate), &bench->by_name);
    print_lookers(bench, "the same by prefix", &bench->by_prefix);
    print_lookers(bench, "the same, answered 304", &bench->unchanged);
    print_target("hot rate beside those by name, against that alone", "at least 0.9",
                 text("%.2f (%.0f, %.0f operations/s); meanwhile %.0f GETs a second", ratio,
                      MEDIAN(&bench->hot_beside, rate), MEDIAN(&bench->hot, rate), MEDIAN(&bench->names_beside, rate)),
                 ratio >= 0.9 && MEDIAN(&bench->names_beside, rate) > 0.99 * bench->rate,
                 series_failures(&bench->hot_beside) + series_failures(&bench->names_beside));
    printf("\nStatements of the database a second while pages are looked at, those of permitd's tasks included: %.0f\n",
           bench->reads);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"rate", required_argument, NULL, 'R'},
                                            {NULL, 0, NULL, 0}};
    static struct bench bench = {.seconds = 5, .rate = 20000};
    int rounds = 5, option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'r': rounds = atoi(optarg); break;
        case 's': bench.seconds = atof(optarg); break;
        case 'R': bench.rate = atof(optarg); break;
        default: return 64;
        }
    if (rounds < 1 || rounds > ROUNDS_MAX || bench.rate <= 0) {
        fprintf(stderr, "usage: bench_availability [--rounds N] [--seconds S] [--rate N]\n");
        return 64;
    }
    bench.instance = instance_start();
    instance_semaphore(&bench.instance, "hot", "counted", 1000000);
    instance_semaphores(&bench.instance, "e", "counted", 1000, NAMES);
    make_names(&bench);
    bench.tag = tag_of(&bench, "/v1/availability?prefix=e-");
    for (int round = 0; round < rounds; round++) {
        fprintf(stderr, "bench: round %d of %d\n", round + 1, rounds);
        run_round(&bench);
    }
    print_figures(&bench);
    free(bench.tag);
    instance_stop(&bench.instance);
    return 0;
}
