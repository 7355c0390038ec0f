/* SPDX-License-Identifier: MIT */
/*
 * The lease clock ("served time" in the protocol): the clock of all deadlines. T = clamp(now, tick_at, tick_at + 5 s) -
 * offset, from the database's clock and the `cluster` row, which one of the servers ticks about every second. A clock
 * jump in either direction, a failover, or an hour without any permitd moves T by at most 5 s (P8). Stored deadlines
 * are in T; answers add the offset.
 */
#ifndef CORE_LEASE_TIME_H
#define CORE_LEASE_TIME_H

#include "base/base.h"

#define LEASE_TIME_LEAP_US (5LL * US_PER_SECOND)

struct lease_clock {
    utc_us tick_at;    /* the database's clock at the last tick */
    int64_t offset_us; /* sum of all jumps */
};

/* Returns T at `now`, the database's clock. */
utc_us lease_time(const struct lease_clock *clock, utc_us now);
/* Returns the clock after a tick at `now`: T neither jumps nor stops. */
struct lease_clock lease_clock_tick(const struct lease_clock *clock, utc_us now);
/* Converts a stored deadline to the database's clock, for people; NEVER stays NEVER. */
utc_us lease_to_wall(const struct lease_clock *clock, utc_us served);
#endif
