/* SPDX-License-Identifier: MIT */
/*
 * permitd beside what people use instead, by turns in one run: this build, the build before, one, two and three permitd
 * on one database, the naive design, ZooKeeper, and Redis with appendfsync always. Prints Markdown on standard output
 * and progress on standard error. The exit status judges nothing: a missed target is a "no" in the table. A system that
 * is not installed, or not given, is not measured, and a line says so.
 *
 *     bench_peers [--quick] [--before PERMITD] [--rounds N] [--seconds S]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer_servers.h"
#include "table.h"

enum { SPREAD = 1000, BATCH = 50, REPEAT = 1000, SLOTS = 1000, PLENTY = 1000000 };

static const unsigned clients[] = {1, 16, 64, 256};
enum { CLIENTS = sizeof clients / sizeof clients[0] };

enum workload { HOT, SLOTTED, WIDE, BATCHES, REPEATED, WORKLOADS };

static const struct {
    const char *name;
    struct load load;
    unsigned least, most; /* clients */
} workloads[WORKLOADS] = {
    [HOT] = {"hot", {.semaphore = "hot"}, 1, 256},
    [SLOTTED] = {"hot, slotted", {.semaphore = "seats"}, 1, 256},
    [WIDE] = {"1,000 semaphores", {.semaphore = "wide", .spread = SPREAD}, 64, 256},
    [BATCHES] = {"batches of 50", {.semaphore = "hot", .batch = BATCH}, 64, 64},
    [REPEATED] = {"hot, one key in 1,000 repeated", {.semaphore = "hot", .repeat = REPEAT}, 64, 64},
};

enum system { NOW, BEFORE, ONE, TWO, THREE, NAIVE, ZOOKEEPER, REDIS, SYSTEMS };

static struct bench {
    const char *before_program; /* NULL: not measured */
    size_t rounds;
    double seconds;
    double warmup; /* of ZooKeeper, once */
    struct instance now, before;
    struct instance shared; /* of ONE, TWO and THREE */
    struct kit_database *database;
    struct peer_server zookeeper, redis;
    double short_batches, long_batches; /* of REPEATED, in all rounds */
    struct series series[SYSTEMS][WORKLOADS][CLIENTS];
} bench = {.rounds = 5, .seconds = 3, .warmup = 20};

/* ---- the systems ---- */

static double batches_of(const struct instance *instance, const char *path)
{
    struct kit_http http = kit_http(instance->permitd->port);
    struct reply reply;
    if (!kit_http_get(&http, "/metrics", &reply))
        kit_fail("no metrics: %s", reply.error);
    const char *name = text("permitd_batches_total{path=\"%s\"} ", path);
    const char *at = strstr(reply.body, name);
    double count = at ? atof(at + strlen(name)) : 0;
    reply_release(&reply);
    kit_http_close(&http);
    return count;
}

static struct result run_now(const struct load *load)
{
    double short_batches = batches_of(&bench.now, "short"), long_batches = batches_of(&bench.now, "long");
    struct result result = instance_loadgen(&bench.now, load);
    if (load->repeat) {
        bench.short_batches += batches_of(&bench.now, "short") - short_batches;
        bench.long_batches += batches_of(&bench.now, "long") - long_batches;
    }
    return result;
}

static struct result run_before(const struct load *load)
{
    return instance_loadgen(&bench.before, load);
}

/* Starts and stops permitd until so many run on the shared database, and loads them all. */
static struct result run_shared(size_t count, const struct load *load)
{
    const struct kit_permitd_options options = {.database = bench.database->url};
    for (size_t i = 0; i < MORE_MAX; i++) {
        struct kit_permitd **permitd = &bench.shared.more[i];
        if (i + 1 < count && !*permitd)
            *permitd = kit_permitd_start(&options);
        if (i + 1 >= count && *permitd) {
            kit_permitd_stop(*permitd);
            *permitd = NULL;
        }
    }
    return instance_loadgen(&bench.shared, load);
}

static struct result run_one(const struct load *load)
{
    return run_shared(1, load);
}

static struct result run_two(const struct load *load)
{
    return run_shared(2, load);
}

static struct result run_three(const struct load *load)
{
    return run_shared(3, load);
}

static struct result run_naive(const struct load *load)
{
    return instance_naive(&bench.now, load);
}

static struct result run_peer(const char *program, const struct peer_server *server, const struct load *load)
{
    return load_program("%s --server %s --clients %u --seconds %g --watch 0,%d,0", program, server->where,
                        load->clients, load->seconds, (int)server->pid);
}

static struct result run_zookeeper(const struct load *load)
{
    return run_peer("peer_zookeeper", &bench.zookeeper, load);
}

static struct result run_redis(const struct load *load)
{
    return run_peer("peer_redis", &bench.redis, load);
}

/* Each is measured with HOT; `all`: also with the other workloads. */
static const struct {
    const char *name;
    struct result (*run)(const struct load *load);
    bool all;
    unsigned least; /* clients */
    bool is_permitd;
} systems[SYSTEMS] = {
    [NOW] = {"permitd", run_now, true, 1, true},
    [BEFORE] = {"the build before", run_before, true, 1, true},
    [ONE] = {"one permitd, shared database", run_one, false, 64, true},
    [TWO] = {"two permitd, shared database", run_two, false, 64, true},
    [THREE] = {"three permitd, shared database", run_three, false, 64, true},
    [NAIVE] = {"naive", run_naive, false, 1, false},
    [ZOOKEEPER] = {"ZooKeeper", run_zookeeper, false, 1, false},
    [REDIS] = {"Redis", run_redis, false, 1, false},
};

/* Returns why a system is not measured; NULL: it is. */
static const char *missing(enum system system)
{
    return system == BEFORE      ? (bench.before_program ? NULL : "--before PERMITD was not given")
           : system == ZOOKEEPER ? bench.zookeeper.missing
           : system == REDIS     ? bench.redis.missing
                                 : NULL;
}

/* ---- by turns ---- */

static bool is_measured(enum system system, enum workload workload, unsigned count)
{
    return !missing(system) && (workload == HOT || systems[system].all) &&
           !(system == BEFORE && workload == REPEATED) && /* it has no short path whose share could be told */
           count >= workloads[workload].least && count <= workloads[workload].most && count >= systems[system].least;
}

static void measure(enum system system, enum workload workload, size_t at)
{
    struct load load = workloads[workload].load;
    load.clients = clients[at];
    load.seconds = bench.seconds;
    struct result result = systems[system].run(&load);
    fprintf(stderr, "bench: %-30s %-30s %3u clients %7.0f/s, acquire %6.0f us, 99 %% %6.0f\n", systems[system].name,
            workloads[workload].name, clients[at], result.rate, result.p50_us, result.p99_us);
    series_add(&bench.series[system][workload][at], result);
}

/* Another system begins in each round. Runs that are compared are near each other, because machines change their speed. */
static void measure_round(size_t round)
{
    fprintf(stderr, "bench: round %zu of %zu\n", round + 1, bench.rounds);
    instance_naive_tables(&bench.now, 0, PLENTY);
    for (size_t at = 0; at < CLIENTS; at++)
        for (enum workload workload = 0; workload < WORKLOADS; workload++)
            for (size_t turn = 0; turn < SYSTEMS; turn++) {
                enum system system = (enum system)((round + turn) % SYSTEMS);
                if (is_measured(system, workload, clients[at]))
                    measure(system, workload, at);
            }
}

static void create_semaphores(struct instance *instance)
{
    instance_semaphore(instance, "hot", "counted", PLENTY);
    instance_semaphore(instance, "seats", "slotted", SLOTS);
    instance_semaphores(instance, "wide", "counted", PLENTY, SPREAD);
}

static void start_all(void)
{
    /* As permitd starts its private MariaDB. */
    static const char *const flags[] = {"--skip-log-bin", "--innodb-buffer-pool-size=256M",
                                        "--innodb-log-file-size=512M", NULL};
    bench.now = instance_start();
    create_semaphores(&bench.now);
    if (bench.before_program) {
        bench.before = instance_start_of(bench.before_program);
        create_semaphores(&bench.before);
    }
    bench.database = kit_database_start(flags);
    bench.shared = instance_start_on(bench.database);
    instance_semaphore(&bench.shared, "hot", "counted", PLENTY);
    bench.redis = redis_start();
    bench.zookeeper = zookeeper_start();
    if (bench.zookeeper.missing)
        return;
    fprintf(stderr, "bench: ZooKeeper compiles itself for %g s\n", bench.warmup);
    run_zookeeper(&(struct load){.clients = 64, .seconds = bench.warmup});
}

static void stop_all(void)
{
    zookeeper_stop(&bench.zookeeper);
    redis_stop(&bench.redis);
    for (size_t i = 0; i < MORE_MAX; i++)
        if (bench.shared.more[i])
            kit_permitd_stop(bench.shared.more[i]);
    instance_stop(&bench.shared);
    kit_database_stop(bench.database);
    if (bench.before_program)
        instance_stop(&bench.before);
    instance_stop(&bench.now);
}

/* ---- the targets ---- */

/* What was measured: a system with a workload and a number of clients. */
struct subject {
    enum system system;
    enum workload workload;
    unsigned clients;
};

static const struct series *series_of(struct subject subject)
{
    size_t at = 0;
    while (clients[at] != subject.clients)
        at++;
    return &bench.series[subject.system][subject.workload][at];
}

static const char *name_of(struct subject subject)
{
    return text("%s, %s, %u client%s", systems[subject.system].name, workloads[subject.workload].name, subject.clients,
                subject.clients == 1 ? "" : "s");
}

/* Targets for a rate as a multiple of another one. */
static const struct {
    double least;
    const char *asked;
    struct subject of, to;
} ratios[] = {
    {1.7, "at least 1.7 times the build before", {NOW, HOT, 64}, {BEFORE, HOT, 64}},
    {1.4, "at least 1.4 times the build before", {NOW, HOT, 256}, {BEFORE, HOT, 256}},
    {1.7, "at least 1.7 times the build before", {NOW, SLOTTED, 64}, {BEFORE, SLOTTED, 64}},
    {1.4, "at least 1.4 times the build before", {NOW, SLOTTED, 256}, {BEFORE, SLOTTED, 256}},
    {0.9, "at least 0.9 times counted", {NOW, SLOTTED, 64}, {NOW, HOT, 64}},
    {0.9, "at least 0.9 times counted", {NOW, SLOTTED, 256}, {NOW, HOT, 256}},
    {0.75, "on the way to 0.75 times ZooKeeper", {NOW, HOT, 64}, {ZOOKEEPER, HOT, 64}},
    {0.9, "on the way to 0.9 times ZooKeeper", {NOW, HOT, 256}, {ZOOKEEPER, HOT, 256}},
    {2, "at least 2 times the build before", {NOW, BATCHES, 64}, {BEFORE, BATCHES, 64}},
    {1, "on the way to Redis, one operation at a time", {NOW, BATCHES, 64}, {REDIS, HOT, 64}},
    {0.9, "at least 0.9 times its hot rate", {NOW, WIDE, 64}, {NOW, HOT, 64}},
    {0.9, "at least 0.9 times its hot rate", {NOW, WIDE, 256}, {NOW, HOT, 256}},
    {2.5, "at least 2.5 times the build before", {NOW, WIDE, 64}, {BEFORE, WIDE, 64}},
    {2.5, "at least 2.5 times the build before", {NOW, WIDE, 256}, {BEFORE, WIDE, 256}},
    {0.8, "at least 0.8 times one permitd", {TWO, HOT, 64}, {ONE, HOT, 64}},
    {0.8, "at least 0.8 times one permitd", {TWO, HOT, 256}, {ONE, HOT, 256}},
    {0.7, "at least 0.7 times one permitd", {THREE, HOT, 64}, {ONE, HOT, 64}},
    {0.7, "at least 0.7 times one permitd", {THREE, HOT, 256}, {ONE, HOT, 256}},
};

/* Targets for a cost: at most so many us. */
static const struct {
    const char *what, *asked;
    double most;
    struct subject of;
    size_t member; /* of struct result */
} costs[] = {
    {"99 % of the acquires", "below 4 ms", 4000, {NOW, HOT, 64}, offsetof(struct result, p99_us)},
    {"CPU of MariaDB an operation", "at most 30 us", 30, {NOW, HOT, 64}, offsetof(struct result, database_cpu_us)},
    {"CPU of MariaDB an operation", "at most 20 us", 20, {NOW, WIDE, 64}, offsetof(struct result, database_cpu_us)},
    {"CPU of permitd an operation", "at most 15 us", 15, {NOW, HOT, 64}, offsetof(struct result, permitd_cpu_us)},
};

static void print_ratios(void)
{
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
        const struct series *of = series_of(ratios[i].of), *to = series_of(ratios[i].to);
        double ratio = RATIO(of, to, rate);
        if (missing(ratios[i].to.system))
            printf("| %s | %s | not measured | - |\n", name_of(ratios[i].of), ratios[i].asked);
        else
            print_target(name_of(ratios[i].of), ratios[i].asked,
                         text("%.2f times (%.0f/s, %.0f/s)", ratio, MEDIAN(of, rate), MEDIAN(to, rate)),
                         ratio >= ratios[i].least, series_failures(of) + series_failures(to));
    }
}

static void print_costs(void)
{
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        const struct series *of = series_of(costs[i].of);
        double cost = series_median(of, costs[i].member);
        print_target(text("%s, %s", costs[i].what, name_of(costs[i].of)), costs[i].asked,
                     cost < 1000 ? text("%.1f us", cost) : text("%.2f ms", cost / 1000), cost <= costs[i].most,
                     series_failures(of));
    }
}

static void print_targets(void)
{
    print_target_head();
    print_ratios();
    const struct series *alone = series_of((struct subject){NOW, HOT, 1});
    const struct series *naive = series_of((struct subject){NAIVE, HOT, 1});
    double ratio = RATIO(alone, naive, p50_us);
    print_target("one client alone, median acquire", "at most 1.0 times naive over its Unix socket",
                 text("%.2f times (%.0f us, %.0f us)", ratio, MEDIAN(alone, p50_us), MEDIAN(naive, p50_us)), ratio <= 1,
                 series_failures(alone));
    print_costs();
    struct subject repeated = {NOW, REPEATED, 64};
    double batches = bench.short_batches + bench.long_batches;
    print_target(text("batches on the short path, %s", name_of(repeated)), "at least 98 %",
                 text("%.2f %% of %.0f", batches > 0 ? 100 * bench.short_batches / batches : 0, batches),
                 bench.short_batches >= 0.98 * batches, series_failures(series_of(repeated)));
}

static void print_all_rates(void)
{
    print_rates_head();
    for (enum workload workload = 0; workload < WORKLOADS; workload++)
        for (size_t at = 0; at < CLIENTS; at++)
            for (enum system system = 0; system < SYSTEMS; system++)
                if (is_measured(system, workload, clients[at]))
                    print_rates(name_of((struct subject){system, workload, clients[at]}),
                                &bench.series[system][workload][at], systems[system].is_permitd);
}

static void print_head(const char *load_before, bool quick)
{
    print_machine(&bench.now);
    if (!bench.zookeeper.missing)
        printf("- %s, a single server with its log flushed before each answer; %g s of load before the first round\n",
               bench.zookeeper.version, bench.warmup);
    if (!bench.redis.missing)
        printf("- %s, appendonly yes, appendfsync always\n", bench.redis.version);
    for (enum system system = 0; system < SYSTEMS; system++)
        if (missing(system))
            printf("- **Not measured**: %s (%s)\n", systems[system].name, missing(system));
    printf(
        "- Medians of %zu rounds of %g s by turns, each after 0.5 s of warm-up; load of the machine before: %s%s\n\n",
        bench.rounds, bench.seconds, load_before, quick ? "; **a trial, not figures** (--quick)" : "");
}

/* The load average of the last minute. */
static const char *load_average(void)
{
    char *loads = kit_read_file("/proc/loadavg");
    const char *first = loads ? text("%.*s", (int)strcspn(loads, " "), loads) : "?";
    free(loads);
    return first;
}

static void usage(void)
{
    fprintf(stderr, "usage: bench_peers [--quick] [--before PERMITD] [--rounds N] [--seconds S]\n");
    exit(64);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
                                            {"before", required_argument, NULL, 'b'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    bool quick = false;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'q':
            quick = true;
            bench.rounds = 1;
            bench.seconds = 1;
            bench.warmup = 5;
            break;
        case 'b': bench.before_program = optarg; break;
        case 'r': bench.rounds = (size_t)atoi(optarg); break;
        case 's': bench.seconds = atof(optarg); break;
        default: usage();
        }
    if (optind < argc || bench.rounds < 1 || bench.rounds > ROUNDS_MAX || bench.seconds <= 0)
        usage();
    char *load_before = strdup(load_average());
    start_all();
    for (size_t round = 0; round < bench.rounds; round++)
        measure_round(round);
    print_head(load_before, quick);
    print_targets();
    print_all_rates();
    stop_all();
    free(load_before);
    return 0;
}
