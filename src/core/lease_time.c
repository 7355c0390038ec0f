/* SPDX-License-Identifier: MIT */
#include "core/lease_time.h"

utc_us lease_time(const struct lease_clock *clock, utc_us now)
{
    return max_i64(clock->tick_at, min_i64(now, clock->tick_at + LEASE_TIME_LEAP_US)) - clock->offset_us;
}

struct lease_clock lease_clock_tick(const struct lease_clock *clock, utc_us now)
{
    int64_t gap = now - clock->tick_at;
    int64_t offset_us = clock->offset_us;
    if (gap > LEASE_TIME_LEAP_US)
        offset_us += gap - LEASE_TIME_LEAP_US;
    if (gap < 0)
        offset_us += gap;
    return (struct lease_clock){.tick_at = now, .offset_us = offset_us};
}

utc_us lease_to_wall(const struct lease_clock *clock, utc_us served)
{
    return served == NEVER ? NEVER : served + clock->offset_us;
}
