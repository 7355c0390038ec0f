/* SPDX-License-Identifier: MIT */
#include "core/served_time.h"

utc_us served_time(const struct served_clock *clock, utc_us now)
{
    return max_i64(clock->tick_at, min_i64(now, clock->tick_at + SERVED_TIME_LEAP_US)) - clock->offset_us;
}

struct served_clock served_clock_tick(const struct served_clock *clock, utc_us now)
{
    int64_t gap = now - clock->tick_at;
    int64_t offset_us = clock->offset_us;
    if (gap > SERVED_TIME_LEAP_US)
        offset_us += gap - SERVED_TIME_LEAP_US;
    if (gap < 0)
        offset_us += gap;
    return (struct served_clock){.tick_at = now, .offset_us = offset_us};
}

utc_us served_to_wall(const struct served_clock *clock, utc_us served)
{
    return served == NEVER ? NEVER : served + clock->offset_us;
}
