/* SPDX-License-Identifier: MIT */
/*
 * The guards of src/guards and include/permit/fence.h on real stores, with a real permitd (docs/fencing.md).
 *
 *     guards [--long] [--seed N] [mariadb] [mariadb-rows] [postgresql] [postgresql-rows] [redis] [file]
 *            [planted]
 *
 * -rows: the guard is a trigger on the rows that are written. --long: 1,000,000 guarded writes on each store, and ten
 * live holders for a minute. planted: guards that are none, to see that they are found out.
 */
#include <stdio.h>

#include "guards.h"
#include "testkit.h"

static struct kit_permitd *permitd;

static void check(const struct store_kind *kind, const char *rows_or_null, const struct form *form)
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
    if (kind->transactions)
        guard_races(store);
    guard_crowd(store, form->seed);
    guard_live(store, permitd->port, form->full ? 60 : 2);
    struct soak soak;
    guard_soak(store, permitd->port, form->full ? 1000000 : 3000, form->seed, &soak);
    if (soak.stale_accepted || soak.live_refused)
        kit_fail("%s: the guard does not hold", store->name);
    kind->stop(store);
}

/* A checker counts only once it has caught what it is there for. */
static void run_planted(const struct form *form)
{
    struct soak none, one_maximum;
    struct store *store = store_unguarded.start(false);
    guard_soak(store, permitd->port, 3000, form->seed, &none);
    store->kind->stop(store);
    store = store_one_maximum.start(false);
    guard_soak(store, permitd->port, 3000, form->seed, &one_maximum);
    store->kind->stop(store);
    if (!none.stale_accepted || !one_maximum.live_refused)
        kit_fail("planted: not found out");
}

static void run_mariadb(const struct form *form)
{
    check(&store_mariadb, NULL, form);
}

static void run_mariadb_rows(const struct form *form)
{
    check(&store_mariadb, "mariadb-rows", form);
}

static void run_postgresql(const struct form *form)
{
    check(&store_postgresql, NULL, form);
}

static void run_postgresql_rows(const struct form *form)
{
    check(&store_postgresql, "postgresql-rows", form);
}

static void run_redis(const struct form *form)
{
    check(&store_redis, NULL, form);
}

static void run_file(const struct form *form)
{
    check(&store_file, NULL, form);
}

int main(int argc, char **argv)
{
    static const struct part parts[] = {{"mariadb", run_mariadb, 0},       {"mariadb-rows", run_mariadb_rows, 0},
                                        {"postgresql", run_postgresql, 0}, {"postgresql-rows", run_postgresql_rows, 0},
                                        {"redis", run_redis, 0},           {"file", run_file, 0},
                                        {"planted", run_planted, 0}};
    static const char *const flags[] = {"--failover-hold", "200ms", NULL};
    permitd = kit_permitd_start(&(struct kit_permitd_options){.flags = flags});
    int status = parts_main("guards", parts, sizeof(parts) / sizeof(parts[0]), argc, argv);
    kit_permitd_stop(permitd);
    return status;
}
