/* SPDX-License-Identifier: MIT */
/*
 * The cost of reading HTTP: this permitd and another one alternately in the same run, each on its private MariaDB.
 * Prints Markdown on standard output and progress on standard error.
 *
 *     bench_reader --against PERMITD [--rounds N] [--seconds S]
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"
#include "table.h"

enum { BODY = 1024 * 1024, ATTACKERS = 4 };

/* One of the two permitd. */
struct side {
    const char *name;
    struct instance instance;
    struct series get_64, get_256, hot_64, hot_256, calm, attacked;
};

/* ---- bodies that are slow to parse ---- */

struct attack {
    unsigned port;
    char *body;
    atomic_bool over;
    atomic_uint answers;
};

/* {"operations":[{},{},...]} */
static char *make_body(void)
{
    static const char begin[] = "{\"operations\":[{}";
    char *body = malloc(BODY + 1);
    KIT_CHECK(body);
    strcpy(body, begin);
    size_t length = sizeof begin - 1;
    for (; length + 5 < BODY; length += 3)
        memcpy(body + length, ",{}", 3);
    strcpy(body + length, "]}");
    return body;
}

static void *attack_run(void *context)
{
    struct attack *attack = context;
    struct kit_http http = kit_http(attack->port);
    while (!atomic_load(&attack->over)) {
        struct reply reply;
        if (kit_http_post(&http, "/v1/batch", attack->body, &reply))
            atomic_fetch_add(&attack->answers, 1);
        reply_release(&reply);
    }
    kit_http_close(&http);
    return NULL;
}

/* Measures acquires of one client while others send such bodies as fast as they are answered. */
static struct result run_attacked(struct instance *instance, const struct load *load)
{
    struct attack attack = {.port = instance->permitd->port, .body = make_body()};
    pthread_t threads[ATTACKERS];
    for (int i = 0; i < ATTACKERS; i++)
        KIT_CHECK(pthread_create(&threads[i], NULL, attack_run, &attack) == 0);
    struct result result = instance_loadgen(instance, load);
    atomic_store(&attack.over, true);
    for (int i = 0; i < ATTACKERS; i++)
        pthread_join(threads[i], NULL);
    fprintf(stderr, "bench: %u bodies were answered meanwhile\n", atomic_load(&attack.answers));
    free(attack.body);
    return result;
}

/* ---- the rounds ---- */

static void run(struct side *side, struct series *series, bool attacked, const struct load *load)
{
    struct result result = attacked ? run_attacked(&side->instance, load) : instance_loadgen(&side->instance, load);
    fprintf(stderr, "bench: %-6s %-8s %3u clients %9.0f/s, CPU %6.2f us, acquire %6.0f us, 99 %% %6.0f, most %6.0f\n",
            side->name, load->get ? load->get : load->semaphore, load->clients, result.rate, result.permitd_cpu_us,
            result.p50_us, result.p99_us, result.max_us);
    series_add(series, result);
}

static void run_both(struct side *sides, size_t offset, bool attacked, const struct load *load)
{
    for (int i = 0; i < 2; i++)
        run(&sides[i], (struct series *)((char *)&sides[i] + offset), attacked, load);
}

static void run_round(struct side *sides, double seconds)
{
    const struct load get_64 = {.clients = 64, .seconds = seconds, .get = "/healthz"};
    const struct load get_256 = {.clients = 256, .seconds = seconds, .get = "/healthz"};
    const struct load hot_64 = {.clients = 64, .seconds = seconds, .semaphore = "hot"};
    const struct load hot_256 = {.clients = 256, .seconds = seconds, .semaphore = "hot"};
    const struct load one = {.clients = 1, .seconds = seconds, .semaphore = "hot"};
    run_both(sides, offsetof(struct side, get_64), false, &get_64);
    run_both(sides, offsetof(struct side, hot_64), false, &hot_64);
    run_both(sides, offsetof(struct side, get_256), false, &get_256);
    run_both(sides, offsetof(struct side, hot_256), false, &hot_256);
    run_both(sides, offsetof(struct side, calm), false, &one);
    run_both(sides, offsetof(struct side, attacked), true, &one);
}

/* ---- the table ---- */

static void print_cpu(const char *what, const struct series *other, const struct series *own, double most_part,
                      double least_saved)
{
    char asked[64], measured[128];
    double before = MEDIAN(other, permitd_cpu_us), now = MEDIAN(own, permitd_cpu_us);
    double part = RATIO(own, other, permitd_cpu_us);
    bool reached = most_part > 0 ? part <= most_part : before - now >= least_saved;
    if (most_part > 0)
        snprintf(asked, sizeof asked, "at most %.1f times", most_part);
    else
        snprintf(asked, sizeof asked, "at least %.0f us less", least_saved);
    snprintf(measured, sizeof measured, "%.2f us, before %.2f: %.2f times, %.2f us less", now, before, part,
             before - now);
    print_target(what, asked, measured, reached, series_failures(own));
}

static void print_attacked(const struct side *sides)
{
    char measured[256];
    snprintf(measured, sizeof measured,
             "%.1f ms (median), %.1f (99 %%), %.1f (most); without them %.1f, %.1f, %.1f; before %.1f, %.1f, %.1f",
             MEDIAN(&sides[1].attacked, p50_us) / 1000, MEDIAN(&sides[1].attacked, p99_us) / 1000,
             MEDIAN(&sides[1].attacked, max_us) / 1000, MEDIAN(&sides[1].calm, p50_us) / 1000,
             MEDIAN(&sides[1].calm, p99_us) / 1000, MEDIAN(&sides[1].calm, max_us) / 1000,
             MEDIAN(&sides[0].attacked, p50_us) / 1000, MEDIAN(&sides[0].attacked, p99_us) / 1000,
             MEDIAN(&sides[0].attacked, max_us) / 1000);
    print_target("an acquire while 4 connections send 1 MiB of `{\"operations\":[{},{},...]}`",
                 "median at most 3 times that without them", measured,
                 MEDIAN(&sides[1].attacked, p50_us) < 3 * MEDIAN(&sides[1].calm, p50_us),
                 series_failures(&sides[1].attacked));
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"against", required_argument, NULL, 'a'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    struct side sides[2] = {{.name = "before"}, {.name = "now"}};
    const char *against = NULL;
    int rounds = 5, option;
    double seconds = 3;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'a': against = optarg; break;
        case 'r': rounds = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        default: return 64;
        }
    if (!against || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_reader --against PERMITD [--rounds N] [--seconds S]\n");
        return 64;
    }
    sides[0].instance = instance_start_of(against);
    sides[1].instance = instance_start();
    for (int i = 0; i < 2; i++)
        instance_semaphore(&sides[i].instance, "hot", "counted", 1000000);
    for (int round = 0; round < rounds; round++) {
        fprintf(stderr, "bench: round %d of %d\n", round + 1, rounds);
        run_round(sides, seconds);
    }
    print_machine(&sides[1].instance);
    print_target_head();
    print_cpu("CPU of permitd, GET /healthz, 64 clients", &sides[0].get_64, &sides[1].get_64, 0.6, 0);
    print_cpu("CPU of permitd, GET /healthz, 256 clients", &sides[0].get_256, &sides[1].get_256, 0.6, 0);
    print_cpu("CPU of permitd, an operation on a hot semaphore, 64 clients", &sides[0].hot_64, &sides[1].hot_64, 0, 3);
    print_cpu("CPU of permitd, an operation on a hot semaphore, 256 clients", &sides[0].hot_256, &sides[1].hot_256, 0,
              3);
    print_attacked(sides);
    for (int i = 0; i < 2; i++)
        instance_stop(&sides[i].instance);
    return 0;
}
