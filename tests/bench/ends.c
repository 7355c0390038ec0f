/* SPDX-License-Identifier: MIT */
/*
 * Measures the figures of docs/performance.md on how permits end: when units are free again, the cost of 100,000
 * renewed requests, and the rows that an idle permitd reads. Prints Markdown on standard output and progress on
 * standard error. The exit status reports only an end before its ttl has passed.
 *
 * bench_ends [--quick] [PART ...]: expiry, demand, renewals, idle; without names all of them
 */
#include "choice.h"
#include "expiry.h"
#include "idle.h"
#include "measure.h"
#include "renewals.h"
#include "table.h"

#include <stdio.h>
#include <string.h>

struct figures {
    struct duration_set lives; /* from grant to end */
    int64_t oldest_us;
    struct duration_set late; /* from deadline to the next grant */
    struct renewals renewals;
    struct idle idle;
};

static const struct expiry_numbers {
    unsigned holders, ttl_ms;
    struct demand demand;
    struct renewals_settings renewals;
    long live;
    int idle_ms;
} full = {1000, 2000, {8, 30, 2000, 5}, {100000, 4, 10000, 30000, 60000}, 1000000, 30000},
  quick = {1000, 2000, {4, 3, 1000, 5}, {10000, 4, 5000, 15000, 10000}, 100000, 5000};

static void measure_expiry(const struct expiry_numbers *numbers, struct figures *figures)
{
    struct fixture fixture = fixture_start(1, false);
    expiry_run(&fixture, numbers->holders, numbers->ttl_ms, 60000, &figures->lives, &figures->oldest_us);
    fixture_stop(&fixture);
}

static void measure_demand(const struct expiry_numbers *numbers, struct figures *figures)
{
    struct fixture fixture = fixture_start(1, false);
    demand_run(&fixture, &numbers->demand, &figures->late);
    fixture_stop(&fixture);
}

static void measure_renewals(const struct expiry_numbers *numbers, struct figures *figures)
{
    renewals_measure(&numbers->renewals, &figures->renewals);
}

static void measure_idle(const struct expiry_numbers *numbers, struct figures *figures)
{
    idle_measure(numbers->live, numbers->idle_ms, &figures->idle);
}

static void print_expiry(const struct expiry_numbers *numbers, struct figures *figures)
{
    struct duration_set *lives = &figures->lives;
    char what[128], measured[256];
    snprintf(what, sizeof(what), "%u holders with ttl %g s that are not renewed", numbers->holders,
             numbers->ttl_ms / 1e3);
    snprintf(measured, sizeof(measured), "all between %.3f and %.3f s (median %.3f); seen held for %.3f s at most",
             (double)duration_set_quantile_us(lives, 0) / 1e6, (double)duration_set_quantile_us(lives, 1) / 1e6,
             (double)duration_set_quantile_us(lives, 0.5) / 1e6, (double)figures->oldest_us / 1e6);
    print_target(what, "all ended 2.0 to 3.0 s after their grant, none before", measured,
                 duration_set_quantile_us(lives, 1) <= ((int64_t)numbers->ttl_ms + 1000) * 1000, 0);
}

static void print_demand(const struct expiry_numbers *numbers, struct figures *figures)
{
    struct duration_set *late = &figures->late;
    char what[128], measured[256];
    snprintf(what, sizeof(what), "a requested unit (a request every %u ms, %zu times)", numbers->demand.retry_ms,
             late->count);
    snprintf(measured, sizeof(measured), "%.1f to %.1f ms after it (median %.1f, 99 %% %.1f)",
             (double)duration_set_quantile_us(late, 0) / 1e3, (double)duration_set_quantile_us(late, 1) / 1e3,
             (double)duration_set_quantile_us(late, 0.5) / 1e3, (double)duration_set_quantile_us(late, 0.99) / 1e3);
    print_target(what, "granted again within 50 ms of the deadline", measured,
                 duration_set_quantile_us(late, 1) <= 50000, 0);
}

static void print_renewals(const struct expiry_numbers *numbers, struct figures *figures)
{
    const struct renewals *renewals = &figures->renewals;
    char what[128], measured[256];
    snprintf(what, sizeof(what), "%ld live requests renewed every %g s by %u clients", numbers->renewals.requests,
             numbers->renewals.every_ms / 1e3, numbers->renewals.clients);
    snprintf(measured, sizeof(measured), "the longest time from one renewal to the answer of the next was %.2f s of %g",
             (double)renewals->longest_us / 1e6, numbers->renewals.ttl_ms / 1e3);
    print_target(what, "no renewal later than its ttl", measured,
                 renewals->longest_us < (int64_t)numbers->renewals.ttl_ms * 1000, (double)renewals->failed);
    snprintf(measured, sizeof(measured), "%.2f cores: permitd %.2f, mariadbd %.2f (%.0f renewals/s)",
             renewals->permitd_cores + renewals->database_cores, renewals->permitd_cores, renewals->database_cores,
             renewals->rate);
    print_target("the same, CPU", "permitd and mariadbd below 0.3 cores", measured,
                 renewals->permitd_cores + renewals->database_cores < 0.3, (double)renewals->failed);
}

static void print_idle(const struct expiry_numbers *numbers, struct figures *figures)
{
    const struct idle *idle = &figures->idle;
    char what[128], measured[400];
    snprintf(what, sizeof(what), "%ld permits held, nothing due, no clients", numbers->live);
    snprintf(measured, sizeof(measured),
             "%lld rows by one query at most; the audit and retention, which read all rows in rounds: %lld;"
             " %.1f queries and %.0f rows/s together (by the server's handlers %.0f), %.3f cores",
             (long long)idle->most, (long long)idle->walks_most, idle->queries_rate, idle->rows_rate,
             idle->handler_rate, idle->cores);
    print_target(what, "no query that reads more than 100 rows", measured, idle->most <= 100, 0);
}

/* After the table of figures: the queries of an idle permitd. */
static void print_queries(const struct idle *idle)
{
    printf("\n| query | times | rows read, at most | in all |\n|---|---:|---:|---:|\n");
    for (size_t i = 0; i < idle->count; i++)
        printf("| `%s` | %lld | %lld | %lld |\n", idle->queries[i].text, (long long)idle->queries[i].times,
               (long long)idle->queries[i].most, (long long)idle->queries[i].rows);
}

static const struct {
    const char *name;
    void (*measure)(const struct expiry_numbers *numbers, struct figures *figures);
    void (*print)(const struct expiry_numbers *numbers, struct figures *figures);
} parts[] = {
    {"expiry", measure_expiry, print_expiry},
    {"demand", measure_demand, print_demand},
    {"renewals", measure_renewals, print_renewals},
    {"idle", measure_idle, print_idle}, /* must be the last one */
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void print_all(const struct expiry_numbers *numbers, struct figures *figures, const bool chosen[PARTS])
{
    struct instance instance = instance_start();
    print_machine(&instance);
    instance_stop(&instance);
    printf("- Rows read by the idle permitd: from the log of its MariaDB, here with 1 GiB of buffer pool\n\n");
    print_target_head();
    for (size_t i = 0; i < PARTS; i++)
        if (chosen[i])
            parts[i].print(numbers, figures);
    if (chosen[PARTS - 1])
        print_queries(&figures->idle);
}

int main(int argc, char **argv)
{
    static struct figures figures;
    struct choice choice = choice_read(argc, argv, parts, sizeof(parts[0]), PARTS);
    const struct expiry_numbers *numbers = choice.quick ? &quick : &full;
    for (size_t i = 0; i < PARTS; i++) {
        if (!choice.chosen[i])
            continue;
        fprintf(stderr, "bench: %s\n", parts[i].name);
        parts[i].measure(numbers, &figures);
    }
    print_all(numbers, &figures, choice.chosen);
    return 0;
}
