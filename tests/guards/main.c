/* SPDX-License-Identifier: MIT */
/*
 * Tests the guards of sql/guards and include/permit/fence.h on real stores, with a real permitd (docs/fencing.md).
 *
 *     guards [--long] [--seed N] [mariadb] [mariadb-rows] [postgresql] [postgresql-rows] [redis] [file]
 *            [planted]
 *
 * -rows: the guard is a trigger on the rows that are written. --long: 1,000,000 guarded writes on each store, and ten
 * live holders for a minute. planted: guards that do not guard, which the checks must find. mariadb is MySQL if the
 * environment says so (testkit.h); then only its calls, loading and rows are tested.
 */
#include <stdio.h>

#include "guards.h"
#include "testkit.h"

static struct kit_permitd *permitd;

static void check(const struct store_kind *kind, const char *rows_or_null, const struct part_options *options)
{
    struct store *store = kind->start(false);
    store->in_rows = rows_or_null;
    if (rows_or_null) {
        store->name = rows_or_null;
        guard_rows(store);
    } else {
        guard_table(store);
        if (kind->check_loading)
            kind->check_loading(store);
    }
    /* MySQL does not end idle transactions: a writer that is stopped in one would keep its locks. */
    if (kind == &store_mariadb && kit_database_is_mysql()) {
        kind->stop(store);
        return;
    }
    if (kind->transactions)
        guard_races(store);
    guard_crowd(store, options->seed);
    guard_live(store, permitd->port, options->full ? 60 : 2);
    struct soak soak;
    guard_soak(store, permitd->port, options->full ? 1000000 : 3000, options->seed, &soak);
    if (soak.stale_accepted || soak.live_refused)
        kit_fail("%s: the guard does not hold", store->name);
    kind->stop(store);
}

/* A checker counts only after it has caught the fault it is meant for. */
static void run_planted(const struct part_options *options)
{
    struct soak none, one_maximum;
    struct store *store = store_unguarded.start(false);
    guard_soak(store, permitd->port, 3000, options->seed, &none);
    store->kind->stop(store);
    store = store_one_maximum.start(false);
    guard_soak(store, permitd->port, 3000, options->seed, &one_maximum);
    store->kind->stop(store);
    if (!none.stale_accepted || !one_maximum.live_refused)
        kit_fail("planted: not found out");
}

static void run_mariadb(const struct part_options *options)
{
    check(&store_mariadb, NULL, options);
}

static void run_mariadb_rows(const struct part_options *options)
{
    check(&store_mariadb, "mariadb-rows", options);
}

static void run_postgresql(const struct part_options *options)
{
    check(&store_postgresql, NULL, options);
}

static void run_postgresql_rows(const struct part_options *options)
{
    check(&store_postgresql, "postgresql-rows", options);
}

static void run_redis(const struct part_options *options)
{
    check(&store_redis, NULL, options);
}

static void run_file(const struct part_options *options)
{
    check(&store_file, NULL, options);
}

int main(int argc, char **argv)
{
    static const struct part parts[] = {{"mariadb", run_mariadb, 0},       {"mariadb-rows", run_mariadb_rows, 0},
                                        {"postgresql", run_postgresql, 0}, {"postgresql-rows", run_postgresql_rows, 0},
                                        {"redis", run_redis, 0},           {"file", run_file, 0},
                                        {"planted", run_planted, 0}};
    static const char *const flags[] = {"--failover-hold", "200ms", NULL};
    permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    int status = suite_parts_main("guards", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
    kit_permitd_stop(permitd);
    return status;
}
