/* SPDX-License-Identifier: MIT */
/*
 * Expiry without load: nobody early, and how late. The exact figures are for tests/bench; here only "by far too late".
 */
#include "ends.h"

#include <stdio.h>

enum { HOLDERS = 1000, TTL_MS = 2000, WAIT_MS = 60000 };

void ends_expiry(const struct form *form)
{
    (void)form;
    struct site site = site_start(1, false);
    struct spread lives;
    int64_t oldest_us;
    expiry_run(&site, HOLDERS, TTL_MS, WAIT_MS, &lives, &oldest_us);
    printf(
        "ends: expiry: %d holders with ttl %.1f s ended after %.3f to %.3f s (median %.3f); seen held at most %.3f s\n",
        HOLDERS, (double)TTL_MS / 1e3, (double)spread_at(&lives, 0) / 1e6, (double)spread_at(&lives, 1) / 1e6,
        (double)spread_at(&lives, 0.5) / 1e6, (double)oldest_us / 1e6);
    spread_release(&lives);
    site_stop(&site);
}

void ends_demand(const struct form *form)
{
    const struct demand demand = {.threads = form->full ? 8 : 4,
                                  .rounds = form->full ? 30 : 10,
                                  .ttl_ms = form->full ? TTL_MS : 300,
                                  .retry_ms = 5};
    struct site site = site_start(2, false);
    struct spread late;
    demand_run(&site, &demand, &late);
    printf("ends: demand: %zu times granted again %.1f to %.1f ms after the deadline (median %.1f, 99 %% %.1f)\n",
           late.count, (double)spread_at(&late, 0) / 1e3, (double)spread_at(&late, 1) / 1e3,
           (double)spread_at(&late, 0.5) / 1e3, (double)spread_at(&late, 0.99) / 1e3);
    /* Most of them, so that one stall of the machine is no fault of permitd's. */
    if (spread_at(&late, 0.5) > 2000000)
        kit_fail("demand: half of the units came over 2 s after their deadline");
    spread_release(&late);
    site_stop(&site);
}
