/* SPDX-License-Identifier: MIT */
/*
 * Measures the one queue of several permitd on a database: how many pass a waiter, order and speed of a crowd, time and
 * CPU of a hand-over, a permitd that is killed, many waiters, and the hot semaphore that nobody waits for. With --before
 * the same by another permitd, built before. Prints Markdown on standard output and progress on standard error. The exit
 * status reports only broken promises.
 *
 * bench_queue [--quick] [--before PERMITD] [PART ...]: turns, crowd, latency, cost, killed, parked, hot; without names
 * all of them
 */
#include "choice.h"
#include "table.h"
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 4, COSTS = 3 };

/* Measured with one build. */
struct figures {
    bool measured;
    bool one_queue; /* false: each permitd has a queue of its own */
    struct turns_figures turns[TURNS];
    struct crowd_figures crowd;
    struct latency_figures latency;
    struct cost_figures cost[COSTS];
    struct kept_figures killed;
    struct parked_figures parked;
    struct series hot_64, hot_256;
};

static const struct numbers {
    struct turns_numbers turns[TURNS];
    struct crowd_numbers crowd;
    unsigned latency_rounds;
    struct cost_numbers cost[COSTS];
    struct kept_numbers killed;
    struct parked_numbers parked;
    int hot_rounds;
    double hot_seconds;
} full = {.turns = {{2, 8, 3, "20s", true}, {2, 8, 3, "20s", false}, {3, 64, 3, "20s", true}, {3, 64, 3, "20s", false}},
          .crowd = {.clients = 10000, .capacity = 10, .hold_ms = 5, .permitds = 2},
          .latency_rounds = 1000,
          .cost = {{COST_PLAIN, 64, 10, 8}, {COST_SAME, 64, 10, 8}, {COST_OTHER, 64, 10, 8}},
          .killed = {KEPT_KILLED, 1000, 250, true},
          .parked = {50000, 3, 3000},
          .hot_rounds = 7,
          .hot_seconds = 3},
  quick = {.turns = {{2, 8, 2, "2s", true}, {2, 8, 2, "2s", false}, {3, 16, 2, "2s", true}, {3, 16, 2, "2s", false}},
           .crowd = {.clients = 1000, .capacity = 10, .hold_ms = 5, .permitds = 2},
           .latency_rounds = 50,
           .cost = {{COST_PLAIN, 64, 10, 1}, {COST_SAME, 64, 10, 1}, {COST_OTHER, 64, 10, 1}},
           .killed = {KEPT_KILLED, 100, 25, true},
           .parked = {2000, 1, 100},
           .hot_rounds = 1,
           .hot_seconds = 1};

/* ---- measuring ---- */

static void measure_turns(const struct numbers *numbers, struct figures *figures)
{
    for (size_t i = 0; i < TURNS; i++)
        turns_measure(&numbers->turns[i], &figures->turns[i]);
}

/* A build with a queue in each permitd has no order over two of them, so its crowd is at one. */
static void measure_crowd(const struct numbers *numbers, struct figures *figures)
{
    struct crowd_numbers crowd = numbers->crowd;
    crowd.permitds = figures->one_queue ? crowd.permitds : 1;
    crowd_measure(&crowd, &figures->crowd);
}

static void measure_latency(const struct numbers *numbers, struct figures *figures)
{
    latency_measure(numbers->latency_rounds, &figures->latency);
}

static void measure_cost(const struct numbers *numbers, struct figures *figures)
{
    for (size_t i = 0; i < COSTS; i++)
        cost_measure(&numbers->cost[i], &figures->cost[i]);
}

static void measure_killed(const struct numbers *numbers, struct figures *figures)
{
    if (figures->one_queue)
        kept_measure(&numbers->killed, &figures->killed);
}

static void measure_parked(const struct numbers *numbers, struct figures *figures)
{
    parked_measure(&numbers->parked, &figures->parked);
}

/* ---- printing ---- */

/* Prints a row; `before` is what the other build reached, or "". */
static void print_both(const char *what, const char *asked, const char *now, const char *before, bool reached)
{
    print_target(what, asked, *before ? text("%s; before: %s", now, before) : now, reached, 0);
}

static const char *turns_text(const struct figures *figures, size_t at)
{
    struct duration_set before = figures->turns[at].before, waited = figures->turns[at].waited;
    if (!figures->measured)
        return "";
    return text("served %zu of %zu times, after %.0f ms (median); at most %lld grants meanwhile, of %.0f/s",
                figures->turns[at].served, before.count, duration_set_quantile_ms(&waited, 0.5),
                (long long)duration_set_quantile_us(&before, 1),
                (double)figures->turns[at].grants / figures->turns[at].seconds);
}

static void print_turns(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    for (size_t i = 0; i < TURNS; i++) {
        const struct turns_numbers *turns = &numbers->turns[i];
        unsigned most = turns->clients + 1; /* one batch on one unit grants it once */
        print_both(text("`%s`, %u permitd: %u clients take one unit by turns at the others, one waits %s at the last",
                        turns->fifo ? "fifo" : "backfill", turns->permitds, turns->clients, turns->wait),
                   text("served each time, at most %u grants meanwhile", most), turns_text(now, i),
                   turns_text(before, i),
                   now->turns[i].served == turns->waits &&
                       duration_set_quantile_us(&now->turns[i].before, 1) <= (int64_t)most);
    }
}

static void print_crowd(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    const struct crowd_numbers *crowd = &numbers->crowd;
    print_both(text("%u clients over %u permitd wait for %u units, each holds one for %u ms", crowd->clients,
                    crowd->permitds, crowd->capacity, crowd->hold_ms),
               "order of the places, every client served, none twice; at most 1.3 times the time of one permitd before",
               text("all in order, once each, in %.2f s%s", now->crowd.seconds,
                    before->measured ? text(": %.2f times", now->crowd.seconds / before->crowd.seconds) : ""),
               before->measured ? text("%.2f s", before->crowd.seconds) : "",
               !before->measured || now->crowd.seconds <= 1.3 * before->crowd.seconds);
}

static const char *spread_text(const struct figures *figures, const struct duration_set *set)
{
    struct duration_set sorted = *set;
    return figures->measured ? text("median %.2f ms, 99 %% %.2f, most %.2f", duration_set_quantile_ms(&sorted, 0.5),
                                    duration_set_quantile_ms(&sorted, 0.99), duration_set_quantile_ms(&sorted, 1))
                             : "";
}

static bool is_within(struct duration_set *set, double median_ms, double most_ms)
{
    return duration_set_quantile_ms(set, 0.5) < median_ms && duration_set_quantile_ms(set, 0.99) < most_ms;
}

static void print_latency(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    print_both(text("from sending a release to the grant, in one permitd (%u times)", numbers->latency_rounds),
               "median under 3 ms, 99 % under 10 ms", spread_text(now, &now->latency.own),
               spread_text(before, &before->latency.own), is_within(&now->latency.own, 3, 10));
    print_both("the same, released through another permitd", "median under 25 ms, 99 % under 60 ms",
               spread_text(now, &now->latency.other), spread_text(before, &before->latency.other),
               is_within(&now->latency.other, 25, 60));
}

/*
 * A turn of the crowd is an acquire that waits and a release that hands over. Its cost beside a plain release is the
 * hand-over: entering, the grant on behalf of the waiter, and telling it.
 */
static double hand_over_us(const struct figures *figures, enum cost_kind kind)
{
    return figures->cost[kind].database_us - figures->cost[COST_PLAIN].database_us / 2;
}

static const char *cost_text(const struct figures *figures, enum cost_kind kind)
{
    const struct cost_figures *cost = &figures->cost[kind];
    return figures->measured ? text("%.1f us (the turn %.1f, permitd %.1f, %.0f turns/s)", hand_over_us(figures, kind),
                                    cost->database_us, cost->permitd_us, cost->rate)
                             : "";
}

static void print_cost(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    print_both(text("CPU of MariaDB for a plain grant, %u clients", numbers->cost[COST_PLAIN].clients), "about 19 us",
               cost_text(now, COST_PLAIN), cost_text(before, COST_PLAIN), true);
    print_both(text("for a hand-over to a waiter at the same permitd, %u clients on %u units",
                    numbers->cost[COST_SAME].clients, numbers->cost[COST_SAME].capacity),
               "at most 50 us", cost_text(now, COST_SAME), cost_text(before, COST_SAME),
               hand_over_us(now, COST_SAME) <= 50);
    print_both("for a hand-over to a waiter at another permitd", "at most 70 us", cost_text(now, COST_OTHER),
               cost_text(before, COST_OTHER), hand_over_us(now, COST_OTHER) <= 70);
}

static void print_killed(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    (void)before;
    print_both(text("SIGKILL of a permitd at which %u wait, %u wait at another; they come again there",
                    numbers->killed.waiters, numbers->killed.others),
               "all keep their places, order exact, none lost",
               now->one_queue
                   ? text("all in their places after %.2f s, served in order in %.2f s; MariaDB %.0f us each "
                          "to come again",
                          now->killed.back_seconds, now->killed.served_seconds, now->killed.database_us)
                   : "this build keeps no places",
               "", now->one_queue);
}

static const char *parked_text(const struct figures *figures)
{
    return figures->measured ? text("%.2f KiB each (the connection %.2f), in %u permitd; acquire and release of "
                                    "another semaphore %.2f times",
                                    figures->parked.bytes / 1024, figures->parked.connection_bytes / 1024,
                                    figures->parked.permitds, figures->parked.ratio)
                             : "";
}

static void print_parked(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    print_both(text("%u waiters: memory beside the connection, and other acquires", numbers->parked.waiters),
               "under 2.5 KiB each, within 10 %", parked_text(now), parked_text(before),
               now->parked.bytes < 2560 && now->parked.ratio <= 1.1);
}

static void print_hot_of(const char *what, const struct series *now, const struct series *before)
{
    double ratio = RATIO(now, before, rate);
    print_target(what, "within 3 %",
                 text("%.3f times the rate (%.0f/s, before %.0f/s); MariaDB %.2f us an operation, before %.2f; permitd "
                      "%.2f us, before %.2f",
                      ratio, MEDIAN(now, rate), MEDIAN(before, rate), MEDIAN(now, database_cpu_us),
                      MEDIAN(before, database_cpu_us), MEDIAN(now, permitd_cpu_us), MEDIAN(before, permitd_cpu_us)),
                 ratio >= 0.97, series_failures(now));
}

static void print_hot(const struct numbers *numbers, struct figures *now, const struct figures *before)
{
    (void)numbers;
    if (!before->measured) {
        print_target("hot counted semaphore that nobody waits for", "within 3 %", "needs --before", false, 0);
        return;
    }
    print_hot_of("hot counted semaphore that nobody waits for, 64 clients", &now->hot_64, &before->hot_64);
    print_hot_of("the same, 256 clients", &now->hot_256, &before->hot_256);
}

/* ---- the hot semaphore: both builds by turns ---- */

static void hot_run(struct instance *instance, struct series *series, const char *name, unsigned clients,
                    double seconds)
{
    const struct load load = {.clients = clients, .seconds = seconds, .semaphore = "hot"};
    struct result result = instance_loadgen(instance, &load);
    fprintf(stderr, "bench: %-6s hot %3u clients %9.0f/s, CPU %6.2f + %6.2f us\n", name, clients, result.rate,
            result.permitd_cpu_us, result.database_cpu_us);
    series_add(series, result);
}

static void measure_hot(const struct numbers *numbers, const char *before_path, struct figures *now,
                        struct figures *before)
{
    if (!before_path)
        return;
    struct instance instances[2] = {instance_start_of(before_path), instance_start()};
    struct figures *figures[2] = {before, now};
    static const char *const names[] = {"before", "now"};
    for (size_t i = 0; i < 2; i++)
        instance_semaphore(&instances[i], "hot", "counted", 1000000);
    for (int round = 0; round < numbers->hot_rounds; round++)
        for (size_t i = 0; i < 4; i++) {
            size_t side = (i + (size_t)round) % 2; /* neither build is always the first */
            hot_run(&instances[side], i < 2 ? &figures[side]->hot_64 : &figures[side]->hot_256, names[side],
                    i < 2 ? 64 : 256, numbers->hot_seconds);
        }
    for (size_t i = 0; i < 2; i++)
        instance_stop(&instances[i]);
}

/* ---- the parts ---- */

static const struct {
    const char *name;
    void (*measure)(const struct numbers *numbers, struct figures *figures); /* NULL: hot */
    void (*print)(const struct numbers *numbers, struct figures *now, const struct figures *before);
} parts[] = {
    {"turns", measure_turns, print_turns},
    {"crowd", measure_crowd, print_crowd},
    {"latency", measure_latency, print_latency},
    {"cost", measure_cost, print_cost},
    {"killed", measure_killed, print_killed},
    {"parked", measure_parked, print_parked},
    {"hot", NULL, print_hot},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* The kit starts the permitd that PERMIT_PERMITD names, else the one of this build. */
static void measure_with(const char *path, const struct numbers *numbers, const struct choice *choice,
                         struct figures *figures)
{
    char *own = getenv("PERMIT_PERMITD") ? strdup(getenv("PERMIT_PERMITD")) : NULL;
    if (path)
        KIT_CHECK(!setenv("PERMIT_PERMITD", path, 1));
    struct fixture fixture = fixture_start(1, false);
    figures->one_queue = fixture.one_queue;
    figures->measured = true;
    fixture_stop(&fixture);
    for (size_t i = 0; i < PARTS; i++) {
        if (!choice->chosen[i] || !parts[i].measure)
            continue;
        fprintf(stderr, "bench: %s%s\n", parts[i].name, path ? ", before" : "");
        parts[i].measure(numbers, figures);
    }
    if (own)
        KIT_CHECK(!setenv("PERMIT_PERMITD", own, 1));
    else
        unsetenv("PERMIT_PERMITD");
    free(own);
}

/* Takes `--before PERMITD` out of the arguments. */
static const char *take_before(int *argc, char **argv)
{
    for (int i = 1; i + 1 < *argc; i++)
        if (!strcmp(argv[i], "--before")) {
            const char *path = argv[i + 1];
            memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof(argv[0]));
            *argc -= 2;
            return path;
        }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct figures now, before;
    const char *before_path = take_before(&argc, argv);
    struct choice choice = choice_read(argc, argv, parts, sizeof(parts[0]), PARTS);
    const struct numbers *numbers = choice.quick ? &quick : &full;
    measure_with(NULL, numbers, &choice, &now);
    if (before_path)
        measure_with(before_path, numbers, &choice, &before);
    if (choice.chosen[PARTS - 1])
        measure_hot(numbers, before_path, &now, &before);
    struct instance instance = instance_start();
    print_machine(&instance);
    instance_stop(&instance);
    printf("- Each part has its own MariaDB, with 128 MiB of buffer pool and the same flushing\n\n");
    print_target_head();
    for (size_t i = 0; i < PARTS; i++)
        if (choice.chosen[i])
            parts[i].print(numbers, &now, &before);
    return 0;
}
