/* SPDX-License-Identifier: MIT */
/*
 * The cost of events, by turns in one run: the same load on a semaphore without events, on one with events of sales,
 * and on one with all events. Then reservations of 10 units in batches, only acquires beside acquires
 * and releases, in the unit in which others publish them: reservations a minute. Prints Markdown on standard output and
 * progress on standard error.
 *
 *     bench_events [--rounds N] [--seconds S]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "table.h"

enum { SPREAD = 1000, UNITS = 10, RUNS = 11 };

#define ASKED_RATE 33334.0 /* 2,000,000 a minute */

static const struct run {
    const char *name;
    struct load load;
    int against; /* the number of the run that it is compared with; -1: none */
} runs[RUNS] = {
    {"hot, feed none", {.clients = 64, .semaphore = "none"}, -1},
    {"hot, feed sales", {.clients = 64, .semaphore = "sales"}, 0},
    {"hot, feed all", {.clients = 64, .semaphore = "all"}, 0},
    {"hot, feed none, 256 clients", {.clients = 256, .semaphore = "none"}, -1},
    {"hot, feed all, 256 clients", {.clients = 256, .semaphore = "all"}, 3},
    {"hot, batches of 50, acquires only",
     {.clients = 64, .semaphore = "none", .batch = 50, .units = UNITS, .keep = true},
     -1},
    {"hot, batches of 50, with releases", {.clients = 64, .semaphore = "none", .batch = 50, .units = UNITS}, -1},
    {"hot, batches of 500, acquires only",
     {.clients = 8, .semaphore = "none", .batch = 500, .units = UNITS, .keep = true},
     -1},
    {"hot, batches of 500, with releases", {.clients = 8, .semaphore = "none", .batch = 500, .units = UNITS}, -1},
    {"1,000 semaphores, batches of 50, acquires only",
     {.clients = 64, .semaphore = "wide", .spread = SPREAD, .batch = 50, .units = UNITS, .keep = true},
     -1},
    {"1,000 semaphores, batches of 50, with releases",
     {.clients = 64, .semaphore = "wide", .spread = SPREAD, .batch = 50, .units = UNITS},
     -1},
};

struct bench {
    struct instance instance;
    struct series series[RUNS];
};

/* Those that are kept use up a capacity: it lasts for all rounds. */
static void start(struct bench *bench)
{
    static const char *const feeds[] = {"none", "sales", "all"};
    const long capacity = 1L << 40;
    bench->instance = instance_start();
    struct kit_http http = kit_http(bench->instance.permitd->port);
    for (size_t i = 0; i < sizeof feeds / sizeof feeds[0]; i++) {
        struct reply reply;
        const char *path = text("/v1/semaphores/%s", feeds[i]);
        const char *body = text("{\"kind\":\"counted\",\"capacity\":%ld,\"feed\":\"%s\"}", capacity, feeds[i]);
        KIT_CHECK(kit_http_call(&http, "PUT", path, "", body, &reply) && reply.status / 100 == 2);
        reply_release(&reply);
    }
    kit_http_close(&http);
    instance_semaphores(&bench->instance, "wide", "counted", capacity, SPREAD);
}

static void run_round(struct bench *bench, double seconds)
{
    for (int i = 0; i < RUNS; i++) {
        struct load load = runs[i].load;
        load.seconds = seconds;
        struct result result = instance_loadgen(&bench->instance, &load);
        series_add(&bench->series[i], result);
        fprintf(stderr, "bench: %-48s %7.0f/s, CPU %6.1f and %6.1f us\n", runs[i].name, result.rate,
                result.permitd_cpu_us, result.database_cpu_us);
    }
}

static void print_feeds(const struct bench *bench)
{
    print_target_head();
    for (int i = 0; i < RUNS; i++) {
        const struct series *series = &bench->series[i];
        if (runs[i].against < 0)
            continue;
        const struct series *without = &bench->series[runs[i].against];
        double ratio = RATIO(series, without, database_cpu_us);
        print_target(text("CPU of the database, %s, against none", runs[i].name), "at most 1.25",
                     text("%.2f (%.1f us an operation); rate %.2f", ratio, MEDIAN(series, database_cpu_us),
                          RATIO(series, without, rate)),
                     ratio <= 1.25, series_failures(series) + series_failures(without));
    }
}

/* An operation is an acquire or a release, so with releases every second is a reservation. */
static void print_reservations(const struct bench *bench)
{
    for (int i = 0; i < RUNS; i++) {
        const struct series *series = &bench->series[i];
        if (runs[i].load.units != UNITS)
            continue;
        double rate = MEDIAN(series, rate) / (runs[i].load.keep ? 1 : 2);
        print_target(text("reservations of %d units: %s", UNITS, runs[i].name), "2 million a minute",
                     text("%.2f million a minute (%.0f/s, of %.0f/s)", rate * 60 / 1e6, rate, ASKED_RATE),
                     rate >= ASKED_RATE, series_failures(series));
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"rounds", required_argument, NULL, 'r'}, {"seconds", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    static struct bench bench;
    int rounds = 5, option;
    double seconds = 3;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'r': rounds = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        default: return 64;
        }
    if (rounds < 1 || rounds > ROUNDS_MAX || seconds <= 0) {
        fprintf(stderr, "usage: bench_events [--rounds N] [--seconds S]\n");
        return 64;
    }
    start(&bench);
    for (int round = 0; round < rounds; round++) {
        fprintf(stderr, "bench: round %d of %d\n", round + 1, rounds);
        run_round(&bench, seconds);
    }
    print_machine(&bench.instance);
    print_feeds(&bench);
    print_reservations(&bench);
    print_rates_head();
    for (int i = 0; i < RUNS; i++)
        print_rates(runs[i].name, &bench.series[i], true);
    instance_stop(&bench.instance);
    return 0;
}
