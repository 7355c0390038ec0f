/* SPDX-License-Identifier: MIT */
/* The lease clock under jumps of the database's clock (P8). */
#include <criterion/criterion.h>

#include "core/lease_time.h"
#include "random.h"

#define SECOND ((int64_t)US_PER_SECOND)
#define HOUR   (3600 * SECOND)
#define START  (1795252471LL * SECOND) /* 2026-11-21 */

Test(lease_time, lease_clock_equals_the_database_clock_without_jumps)
{
    struct lease_clock clock = {START, 0};
    for (utc_us now = START; now < START + 100 * SECOND; now += SECOND) {
        cr_expect_eq(lease_time(&clock, now), now);
        clock = lease_clock_tick(&clock, now);
    }
    cr_expect_eq(clock.offset_us, 0);
}

Test(lease_time, lease_clock_stops_five_seconds_after_the_last_tick)
{
    struct lease_clock clock = {START, 0};
    cr_expect_eq(lease_time(&clock, START + 5 * SECOND), START + 5 * SECOND);
    cr_expect_eq(lease_time(&clock, START + 5 * SECOND + 1), START + 5 * SECOND);
    cr_expect_eq(lease_time(&clock, START + HOUR), START + 5 * SECOND);
}

Test(lease_time, jump_forward_of_an_hour_advances_it_by_five_seconds)
{
    struct lease_clock clock = lease_clock_tick(&(struct lease_clock){START, 0}, START + HOUR);
    cr_expect_eq(lease_time(&clock, START + HOUR), START + 5 * SECOND);
    cr_expect_eq(lease_time(&clock, START + HOUR + SECOND), START + 6 * SECOND);
}

Test(lease_time, jump_back_of_an_hour_does_not_move_it)
{
    struct lease_clock clock = {START, 0};
    cr_expect_eq(lease_time(&clock, START - HOUR), START);
    clock = lease_clock_tick(&clock, START - HOUR);
    cr_expect_eq(lease_time(&clock, START - HOUR), START);
    cr_expect_eq(lease_time(&clock, START - HOUR + SECOND), START + SECOND);
}

Test(lease_time, jumps_forward_and_back_leave_only_five_seconds)
{
    struct lease_clock clock = {START, 0};
    clock = lease_clock_tick(&clock, START + HOUR);
    clock = lease_clock_tick(&clock, START + HOUR + SECOND);
    clock = lease_clock_tick(&clock, START + 2 * SECOND);
    utc_us served = lease_time(&clock, START + 3 * SECOND);
    cr_expect_eq(served, START + 7 * SECOND);
    cr_expect_eq(lease_to_wall(&clock, served), START + 3 * SECOND);
}

Test(lease_time, deadline_is_shown_in_database_time)
{
    struct lease_clock clock = {START, HOUR};
    cr_expect_eq(lease_to_wall(&clock, START), START + HOUR);
    cr_expect_eq(lease_to_wall(&clock, NEVER), NEVER);
}

/* Returns a step of the database's clock: mostly time that passes, sometimes a jump of up to an hour either way. */
static int64_t generate_step(uint64_t *state, bool *ret_jump)
{
    *ret_jump = random_below(state, 10) == 0;
    if (*ret_jump)
        return (int64_t)random_below(state, 2 * HOUR) - HOUR;
    return (int64_t)random_below(state, 1500 * US_PER_MS);
}

/*
 * P8: a jump of the database's clock shortens a permit by at most 5 s. From tick to tick the lease clock never goes
 * back, and loses no time that passes. (Between two ticks a clock that goes back takes the lease clock back too, at
 * most to its value at the last tick: see below. That lengthens a permit and never shortens one.)
 */
Test(lease_time, jump_advances_it_at_most_five_seconds_and_ticks_never_set_it_back)
{
    uint64_t state = 9;
    struct lease_clock clock = {START, 0};
    utc_us now = START;
    for (int i = 0; i < 100000; i++) {
        bool jump;
        utc_us before = lease_time(&clock, now);
        int64_t step = generate_step(&state, &jump);
        now += step;
        utc_us unticked = lease_time(&clock, now);
        clock = lease_clock_tick(&clock, now);
        utc_us after = lease_time(&clock, now);
        cr_assert_eq(after, unticked, "a tick moved it");
        cr_assert_eq(lease_to_wall(&clock, after), now, "right after a tick an answer shows the clock as it is");
        cr_assert_geq(after, before, "it went back");
        cr_assert_leq(after - before, LEASE_TIME_LEAP_US, "it leapt");
        cr_assert(jump || after - before == step, "it lost time that passed");
    }
}

/*
 * Several servers read the clock and tick at any time. A reading is never before the lease clock of the last tick, nor
 * more than the leap after it.
 */
Test(lease_time, readings_between_ticks_stay_within_the_leap)
{
    uint64_t state = 10;
    struct lease_clock clock = {START, 0};
    utc_us now = START;
    for (int i = 0; i < 100000; i++) {
        bool jump;
        utc_us ticked = clock.tick_at - clock.offset_us;
        now += generate_step(&state, &jump);
        utc_us served = lease_time(&clock, now);
        cr_assert_geq(served, ticked);
        cr_assert_leq(served, ticked + LEASE_TIME_LEAP_US);
        if (random_below(&state, 3) == 0)
            clock = lease_clock_tick(&clock, now);
        cr_assert_eq(lease_time(&clock, now), served);
    }
}
