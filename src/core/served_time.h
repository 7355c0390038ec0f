/* SPDX-License-Identifier: MIT */
/*
 * Served time: the clock of all deadlines. T = clamp(now, tick_at, tick_at + 5 s) - offset, from the database's clock
 * and the `cluster` row, which some permitd ticks about every second. A jump of the clock either way, a failover, or an
 * hour in which no permitd ran, moves T by at most 5 s (P8). Stored deadlines are in T; answers add the offset.
 */
#ifndef CORE_SERVED_TIME_H
#define CORE_SERVED_TIME_H

#include "base/base.h"

#define SERVED_TIME_LEAP_US (5LL * US_PER_SECOND)

struct served_clock {
    utc_us tick_at;    /* the database's clock at the last tick */
    int64_t offset_us; /* what jumps have added up to */
};

/* T at `now`, the database's clock. */
utc_us served_time(const struct served_clock *clock, utc_us now);
/* The clock after a tick at `now`: T neither jumps nor stops. */
struct served_clock served_clock_tick(const struct served_clock *clock, utc_us now);
/* A stored deadline as the database's clock shows it, for people; NEVER stays NEVER. */
utc_us served_to_wall(const struct served_clock *clock, utc_us served);
#endif
