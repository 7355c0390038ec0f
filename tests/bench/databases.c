/* SPDX-License-Identifier: MIT */
/*
 * permitd on MariaDB and on MySQL, each without and with its binary log, alternately in one run. Prints Markdown on
 * standard output and progress on standard error. MySQL needs PERMIT_MYSQL_ROOT, the root that tests/mysql/root.sh
 * creates; without it only MariaDB is measured.
 *
 *     bench_databases [--database mariadb|mysql] [--rounds N] [--seconds S]
 */
#include "table.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS    "--innodb-buffer-pool-size=256M"
#define WITHOUT    "--skip-log-bin"
#define BINARY_LOG "--log-bin=binlog", "--sync-binlog=1", "--server-id=1"

/* The compared servers. */
static const struct {
    const char *database; /* value of --database */
    const char *name;
    const char *flags[8];
} kinds[] = {
    {"mariadb", "MariaDB", {BUFFERS, WITHOUT}},
    {"mariadb", "MariaDB, binary log", {BUFFERS, BINARY_LOG}},
    {"mysql", "MySQL", {BUFFERS, WITHOUT}},
    {"mysql", "MySQL, binary log", {BUFFERS, BINARY_LOG}},
};

static const unsigned clients[] = {1, 64, 256};

enum { KINDS = sizeof kinds / sizeof kinds[0], LOADS = sizeof clients / sizeof clients[0] };

struct server {
    struct kit_database *database; /* NULL: not measured */
    struct instance instance;
    struct series series[LOADS];
};

static struct server servers[KINDS];
static const char *mysql_root;

/* The kit starts MySQL if the environment names its root. */
static void choose_database(const char *database)
{
    if (strcmp(database, "mysql") == 0)
        setenv("PERMIT_MYSQL_ROOT", mysql_root, 1);
    else
        unsetenv("PERMIT_MYSQL_ROOT");
}

static void server_start(struct server *server, size_t kind)
{
    choose_database(kinds[kind].database);
    server->database = kit_database_start(kinds[kind].flags);
    server->instance = instance_start_on(server->database);
    instance_semaphore(&server->instance, "hot", "counted", 1000000);
}

static void server_stop(struct server *server)
{
    instance_stop(&server->instance);
    kit_database_stop(server->database);
}

static void measure(size_t kind, size_t load, double seconds)
{
    const struct load hot = {.clients = clients[load], .seconds = seconds, .semaphore = "hot"};
    struct result result = instance_loadgen(&servers[kind].instance, &hot);
    fprintf(stderr, "bench: %-20s %3u clients %7.0f/s, acquire %6.0f us, 99 %% %6.0f\n", kinds[kind].name,
            clients[load], result.rate, result.p50_us, result.p99_us);
    series_add(&servers[kind].series[load], result);
}

static void run_round(double seconds)
{
    for (size_t load = 0; load < LOADS; load++)
        for (size_t kind = 0; kind < KINDS; kind++)
            if (servers[kind].database)
                measure(kind, load, seconds);
}

static void print_versions(void)
{
    for (size_t kind = 0; kind < KINDS; kind++) {
        if (!servers[kind].database)
            continue;
        struct instance *instance = &servers[kind].instance;
        char *version = instance_variable(instance, "version");
        char *log = instance_variable(instance, "log_bin");
        char *synced = instance_variable(instance, "sync_binlog");
        printf("- %s: version %s, log_bin %s, sync_binlog %s\n", kinds[kind].name, version, log, synced);
        free(version);
        free(log);
        free(synced);
    }
}

/* How much of the rate a binary log leaves: a kind with it follows the kind without it. */
static void print_ratios(void)
{
    static const struct {
        unsigned clients;
        double least;
    } targets[] = {{64, 0.75}, {256, 0.9}};
    putchar('\n');
    print_target_head();
    for (size_t kind = 0; kind < KINDS; kind += 2)
        for (size_t load = 0; servers[kind].database && load < LOADS; load++)
            for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
                const struct series *without = &servers[kind].series[load], *with = &servers[kind + 1].series[load];
                double ratio = RATIO(with, without, rate);
                if (targets[i].clients == clients[load])
                    print_target(text("%s, binary log on against off, %u clients", kinds[kind].name, clients[load]),
                                 text("at least %g times the rate", targets[i].least), text("%.2f times", ratio),
                                 ratio >= targets[i].least, series_failures(with) + series_failures(without));
            }
}

static void print_all(void)
{
    print_machine_alone();
    print_versions();
    print_ratios();
    print_rates_head();
    for (size_t load = 0; load < LOADS; load++)
        for (size_t kind = 0; kind < KINDS; kind++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %u clients", kinds[kind].name, clients[load]);
            if (servers[kind].database)
                print_rates(what, &servers[kind].series[load], true);
        }
}

static void usage(void)
{
    fprintf(stderr, "usage: bench_databases [--database mariadb|mysql] [--rounds N] [--seconds S]\n");
    exit(64);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"database", required_argument, NULL, 'd'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    const char *only = NULL;
    int rounds = 5, option;
    double seconds = 3;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'd': only = optarg; break;
        case 'r': rounds = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        default: usage();
        }
    if (optind < argc || rounds < 1 || rounds > ROUNDS_MAX || seconds <= 0 ||
        (only && strcmp(only, "mariadb") != 0 && strcmp(only, "mysql") != 0))
        usage();
    const char *root = getenv("PERMIT_MYSQL_ROOT");
    mysql_root = root && *root ? strdup(root) : NULL;
    if (!mysql_root && only && strcmp(only, "mysql") == 0)
        kit_fail("PERMIT_MYSQL_ROOT names no root of a MySQL: tests/mysql/root.sh makes one");
    for (size_t kind = 0; kind < KINDS; kind++)
        if ((mysql_root || strcmp(kinds[kind].database, "mysql") != 0) &&
            (!only || strcmp(kinds[kind].database, only) == 0))
            server_start(&servers[kind], kind);
    for (int round = 0; round < rounds; round++) {
        fprintf(stderr, "bench: round %d of %d\n", round + 1, rounds);
        run_round(seconds);
    }
    print_all();
    for (size_t kind = 0; kind < KINDS; kind++)
        if (servers[kind].database)
            server_stop(&servers[kind]);
    return 0;
}
