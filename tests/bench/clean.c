/* SPDX-License-Identifier: MIT */
/*
 * The cost of retention: ended requests, inserted with SQL, are deleted while the hot benchmark runs, alternately with
 * and without retention (the benchmark holds its lock then) on the same tables, until nothing is left. Before that, the
 * speed of retention alone. Prints Markdown on standard output and progress on standard error.
 *
 * clean [--rows N] [--seconds S] [--clients N] [--limit SECONDS]
 */
#include "instance.h"
#include "measure.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 60000, TURNS_MAX = 1000, ALONE_MS = 10000 };

struct clean_bench {
    long rows;
    double seconds; /* of a round without retention; a round with it is three times as long */
    double limit;   /* seconds for all rounds */
    unsigned clients;
    struct instance instance;
    struct kit_sql *sql; /* may hold retention's lock */
    double alone;        /* rows per second */
    double alone_cpu_us; /* of the server, per row */
    double with[TURNS_MAX], without[ROUNDS_MAX], cleaned[ROUNDS_MAX];
    size_t rounds;
    double removed_under_load, seconds_under_load, failed;
};

static double metric(const struct clean_bench *bench, const char *name)
{
    struct kit_http http = kit_http(bench->instance.permitd->port);
    struct reply reply;
    KIT_CHECK(kit_http_get(&http, "/metrics", &reply));
    char line[128];
    snprintf(line, sizeof(line), "\n%s ", name);
    const char *found = strstr(reply.body, line);
    double value = found ? atof(found + strlen(line)) : 0;
    reply_release(&reply);
    kit_http_close(&http);
    return value;
}

static double cleaned(const struct clean_bench *bench)
{
    return metric(bench, "permitd_cleaned_total{what=\"requests\"}");
}

/* ---- the lock of retention ---- */

static void block_retention(struct clean_bench *bench)
{
    KIT_CHECK(kit_sql_number(bench->sql,
                             "SELECT GET_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)), 60)") == 1);
}

struct progress {
    const struct clean_bench *bench;
    double before;
};

static bool has_begun(void *context)
{
    const struct progress *progress = context;
    return cleaned(progress->bench) > progress->before;
}

/* Returns when retention is working; false if there is nothing left to delete. */
static bool allow_retention(struct clean_bench *bench)
{
    struct progress progress = {bench, cleaned(bench)};
    kit_sql_run(bench->sql, "DO RELEASE_LOCK(CONCAT('permitd.cleaner.', LEFT(SHA2(DATABASE(), 256), 32)))");
    return kit_wait_until(has_begun, &progress, PATIENCE_MS);
}

/* ---- the rounds ---- */

static void measure_alone(struct clean_bench *bench)
{
    if (!allow_retention(bench))
        kit_fail("retention does not start");
    kit_sleep_ms(1500); /* until it has noticed that there is no load, and its batches have grown */
    double before = cleaned(bench);
    int64_t start = kit_now_us();
    int64_t cpu = process_cpu_us(bench->instance.database_pid);
    for (int i = 0; i < 20 && cleaned(bench) < (double)bench->rows / 2; i++)
        kit_sleep_ms(ALONE_MS / 20);
    bench->alone = (cleaned(bench) - before) * 1e6 / (double)(kit_now_us() - start);
    bench->alone_cpu_us = (double)(process_cpu_us(bench->instance.database_pid) - cpu) / (cleaned(bench) - before);
    block_retention(bench);
    fprintf(stderr, "clean: alone %.0f rows/s, longest transaction %.1f ms\n", bench->alone,
            metric(bench, "permitd_cleaner_longest_seconds") * 1e3);
}

static double hot(struct clean_bench *bench, double seconds)
{
    struct load load = {.clients = bench->clients, .seconds = seconds, .semaphore = "hot"};
    struct result result = instance_loadgen(&bench->instance, &load);
    bench->failed += result.failed + result.unanswered + result.refused;
    return result.rate;
}

/* Returns false if retention had nothing left to delete. */
static bool measure_round(struct clean_bench *bench)
{
    size_t round = bench->rounds;
    bench->without[round] = hot(bench, bench->seconds);
    if (!allow_retention(bench))
        return false;
    double before = cleaned(bench);
    int64_t start = kit_now_us();
    bench->with[round] = hot(bench, 3 * bench->seconds);
    double seconds = (double)(kit_now_us() - start) / 1e6;
    double removed = cleaned(bench) - before;
    block_retention(bench);
    bench->removed_under_load += removed;
    bench->seconds_under_load += seconds;
    bench->cleaned[round] = removed / seconds;
    bench->rounds++;
    fprintf(stderr, "clean: %6.0f operations/s without, %6.0f with: %.3f; %6.0f rows/s removed\n",
            bench->without[round], bench->with[round], bench->with[round] / bench->without[round],
            bench->cleaned[round]);
    return kit_sql_number(bench->sql,
                          "SELECT EXISTS (SELECT * FROM permit_request WHERE id >= 1000000000 AND id <"
                          " 1000000000 + %ld)",
                          bench->rows);
}

/* ---- the figures ---- */

static void print_figures(struct clean_bench *bench)
{
    static double ratios[TURNS_MAX];
    double left = (double)kit_sql_number(bench->sql,
                                         "SELECT COUNT(*) FROM permit_request WHERE id >= 1000000000 AND id"
                                         " < 1000000000 + %ld",
                                         bench->rows);
    double longest = metric(bench, "permitd_cleaner_longest_seconds") * 1e3;
    for (size_t i = 0; i < bench->rounds; i++)
        ratios[i] = bench->with[i] / bench->without[i];
    printf("| figure | target | measured |\n|---|---|---|\n");
    printf("| ended requests inserted, deleted under load, left | 5000000 | %ld, %.0f, %.0f |\n", bench->rows,
           bench->removed_under_load, left);
    printf("| hot semaphore, %u clients, without retention | | %.0f operations/s |\n", bench->clients,
           median(bench->without, bench->rounds));
    printf("| the same with retention | | %.0f operations/s |\n", median(bench->with, bench->rounds));
    printf("| ratio, median of %zu rounds | at least 0.85 | %.3f |\n", bench->rounds, median(ratios, bench->rounds));
    printf("| rows deleted without load | at least 12000/s | %.0f/s |\n", bench->alone);
    printf("| CPU of the server per row, purge included | | %.1f us |\n", bench->alone_cpu_us);
    printf("| rows deleted under load | | %.0f/s |\n",
           bench->seconds_under_load > 0 ? bench->removed_under_load / bench->seconds_under_load : 0);
    printf("| longest transaction | at most 50 ms | %.1f ms |\n", longest);
    printf("| operations that failed | 0 | %.0f |\n", bench->failed);
}

int main(int argc, char **argv)
{
    static struct clean_bench bench = {.rows = 5000000, .seconds = 10, .limit = 3600, .clients = 64};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rows"))
            bench.rows = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            bench.seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--clients"))
            bench.clients = (unsigned)atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--limit"))
            bench.limit = atof(argv[i + 1]);
        else
            kit_fail("usage: clean [--rows N] [--seconds S] [--clients N] [--limit SECONDS]");
    }
    bench.instance = instance_start();
    bench.sql = kit_sql_open(bench.instance.socket, "permitd");
    instance_semaphore(&bench.instance, "hot", "counted", 1000000);
    block_retention(&bench);
    /*
     * Ended a week ago, the last of them due two minutes ago and the first half an hour earlier. If retention were hours
     * behind, it would slow others down more.
     */
    instance_fill_ended(&bench.instance, "hot", bench.rows,
                        text("SYSDATE(6) - INTERVAL 32 MINUTE + INTERVAL n * 1800 / %ld SECOND", bench.rows));
    measure_alone(&bench);
    int64_t end = kit_now_us() + (int64_t)(bench.limit * 1e6);
    while (bench.rounds < TURNS_MAX && kit_now_us() < end && measure_round(&bench))
        ;
    print_figures(&bench);
    kit_sql_close(bench.sql);
    instance_stop(&bench.instance);
    return 0;
}
