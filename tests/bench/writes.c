/* SPDX-License-Identifier: MIT */
/*
 * The cost of batches in the database: this permitd and another one alternately in the same run, each on its private
 * MariaDB. Prints Markdown on standard output and progress on standard error.
 *
 *     bench_writes --against PERMITD [--only TEXT] [--rounds N] [--seconds S]
 *
 * --only: the runs that have TEXT in their names.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

enum { SPREAD = 1000, RUNS = 8 };

static const struct run {
    const char *name;
    struct load load;
} runs[RUNS] = {
    {"hot, counted, 64 clients", {.clients = 64, .semaphore = "hot"}},
    {"hot, counted, 256 clients", {.clients = 256, .semaphore = "hot"}},
    {"hot, slotted, 64 clients", {.clients = 64, .semaphore = "seats"}},
    {"1,000 counted semaphores, 64 clients", {.clients = 64, .semaphore = "counted", .spread = SPREAD}},
    {"1,000 counted semaphores, 256 clients", {.clients = 256, .semaphore = "counted", .spread = SPREAD}},
    {"1,000 slotted semaphores, 64 clients", {.clients = 64, .semaphore = "slotted", .spread = SPREAD}},
    {"1,000 slotted semaphores, 256 clients", {.clients = 256, .semaphore = "slotted", .spread = SPREAD}},
    {"1,000 counted semaphores, batches of 50, 64 clients",
     {.clients = 64, .semaphore = "counted", .spread = SPREAD, .batch = 50}},
};

/* One of the two permitd. */
struct side {
    const char *name;
    struct instance instance;
    struct series series[RUNS];
    double statements[RUNS]; /* of all rounds */
    double commits[RUNS];
};

static void run_one(struct side *side, int index, double seconds)
{
    struct load load = runs[index].load;
    load.seconds = seconds;
    double statements = instance_counter(&side->instance, "Questions");
    double commits = instance_counter(&side->instance, "Com_commit");
    struct result result = instance_loadgen(&side->instance, &load);
    side->statements[index] += instance_counter(&side->instance, "Questions") - statements;
    side->commits[index] += instance_counter(&side->instance, "Com_commit") - commits;
    series_add(&side->series[index], result);
    fprintf(stderr, "bench: %-6s %-52s %7.0f/s, CPU %6.1f and %6.1f us, acquire %6.0f us\n", side->name,
            runs[index].name, result.rate, result.permitd_cpu_us, result.database_cpu_us, result.p50_us);
}

static void start(struct side *side, const char *binary)
{
    side->instance = instance_start_of(binary);
    instance_semaphore(&side->instance, "hot", "counted", 1000000);
    instance_semaphore(&side->instance, "seats", "slotted", 1000);
    instance_semaphores(&side->instance, "counted", "counted", 1000000, SPREAD);
    instance_semaphores(&side->instance, "slotted", "slotted", 20, SPREAD);
}

static void print_rows(const struct side *before, const struct side *now, const char *only)
{
    puts("\n| run | operations/s | before | CPU of mariadbd per operation | before | ratio | statements per "
         "transaction |"
         " before |\n|---|---:|---:|---:|---:|---:|---:|---:|");
    for (int i = 0; i < RUNS; i++) {
        if (!strstr(runs[i].name, only))
            continue;
        printf("| %s | %.0f | %.0f | %.1f us | %.1f us | %.2f | %.1f | %.1f |%s\n", runs[i].name,
               MEDIAN(&now->series[i], rate), MEDIAN(&before->series[i], rate),
               MEDIAN(&now->series[i], database_cpu_us), MEDIAN(&before->series[i], database_cpu_us),
               RATIO(&now->series[i], &before->series[i], database_cpu_us), now->statements[i] / now->commits[i],
               before->statements[i] / before->commits[i],
               series_failures(&now->series[i]) + series_failures(&before->series[i]) > 0 ? " **with failures**" : "");
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"against", required_argument, NULL, 'a'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    static struct side sides[2] = {{.name = "before"}, {.name = "now"}};
    const char *against = NULL, *only = "";
    int rounds = 5, option;
    double seconds = 3;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'a': against = optarg; break;
        case 'o': only = optarg; break;
        case 'r': rounds = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        default: return 64;
        }
    if (!against || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_writes --against PERMITD [--only TEXT] [--rounds N] [--seconds S]\n");
        return 64;
    }
    start(&sides[0], against);
    start(&sides[1], NULL);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < RUNS; i++)
            for (int side = 0; side < 2 && strstr(runs[i].name, only); side++)
                run_one(&sides[(round + side) % 2], i, seconds);
    print_machine(&sides[1].instance);
    print_rows(&sides[0], &sides[1], only);
    for (int i = 0; i < 2; i++)
        instance_stop(&sides[i].instance);
    return 0;
}
