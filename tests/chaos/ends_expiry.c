/* SPDX-License-Identifier: MIT */
/*
 * Expiry without load: no request ends early; late ends are measured. tests/bench has the exact figures; here only a
 * gross delay fails.
 */
#include "ends.h"

#include <stdio.h>

enum { HOLDERS = 1000, TTL_MS = 2000, WAIT_MS = 60000 };

void ends_expiry(const struct part_options *options)
{
    (void)options;
    struct fixture fixture = fixture_start(1, false);
    struct duration_set lives;
    int64_t oldest_us;
    expiry_run(&fixture, HOLDERS, TTL_MS, WAIT_MS, &lives, &oldest_us);
    printf(
        "ends: expiry: %d holders with ttl %.1f s ended after %.3f to %.3f s (median %.3f); seen held at most %.3f s\n",
        HOLDERS, (double)TTL_MS / 1e3, (double)duration_set_quantile_us(&lives, 0) / 1e6,
        (double)duration_set_quantile_us(&lives, 1) / 1e6, (double)duration_set_quantile_us(&lives, 0.5) / 1e6,
        (double)oldest_us / 1e6);
    duration_set_release(&lives);
    fixture_stop(&fixture);
}

void ends_demand(const struct part_options *options)
{
    const struct demand demand = {.threads = options->full ? 8 : 4,
                                  .rounds = options->full ? 30 : 10,
                                  .ttl_ms = options->full ? TTL_MS : 300,
                                  .retry_ms = 5};
    struct fixture fixture = fixture_start(2, false);
    struct duration_set late;
    demand_run(&fixture, &demand, &late);
    printf("ends: demand: %zu times granted again %.1f to %.1f ms after the deadline (median %.1f, 99 %% %.1f)\n",
           late.count, (double)duration_set_quantile_us(&late, 0) / 1e3,
           (double)duration_set_quantile_us(&late, 1) / 1e3, (double)duration_set_quantile_us(&late, 0.5) / 1e3,
           (double)duration_set_quantile_us(&late, 0.99) / 1e3);
    /* The median, so that one stall of the machine does not fail the test. */
    if (duration_set_quantile_us(&late, 0.5) > 2000000)
        kit_fail("demand: half of the units were granted over 2 s after their deadline");
    duration_set_release(&late);
    fixture_stop(&fixture);
}
