/* SPDX-License-Identifier: MIT */
/* Served time under clock jumps (P8). */
#include <criterion/criterion.h>

#include "core/served_time.h"
#include "random.h"

#define SECOND ((int64_t)US_PER_SECOND)
#define HOUR   (3600 * SECOND)
#define START  (1795252471LL * SECOND) /* 2026-11-21 */

Test(served_time, is_the_databases_time_while_nothing_jumps)
{
    struct served_clock clock = {START, 0};
    for (utc_us now = START; now < START + 100 * SECOND; now += SECOND) {
        cr_expect_eq(served_time(&clock, now), now);
        clock = served_clock_tick(&clock, now);
    }
    cr_expect_eq(clock.offset_us, 0);
}

Test(served_time, stands_still_five_seconds_after_the_last_tick)
{
    struct served_clock clock = {START, 0};
    cr_expect_eq(served_time(&clock, START + 5 * SECOND), START + 5 * SECOND);
    cr_expect_eq(served_time(&clock, START + 5 * SECOND + 1), START + 5 * SECOND);
    cr_expect_eq(served_time(&clock, START + HOUR), START + 5 * SECOND);
}

Test(served_time, an_hour_forward_moves_it_by_five_seconds)
{
    struct served_clock clock = served_clock_tick(&(struct served_clock){START, 0}, START + HOUR);
    cr_expect_eq(served_time(&clock, START + HOUR), START + 5 * SECOND);
    cr_expect_eq(served_time(&clock, START + HOUR + SECOND), START + 6 * SECOND);
}

Test(served_time, an_hour_back_moves_it_not_at_all)
{
    struct served_clock clock = {START, 0};
    cr_expect_eq(served_time(&clock, START - HOUR), START);
    clock = served_clock_tick(&clock, START - HOUR);
    cr_expect_eq(served_time(&clock, START - HOUR), START);
    cr_expect_eq(served_time(&clock, START - HOUR + SECOND), START + SECOND);
}

Test(served_time, an_hour_forward_and_back_is_as_if_it_had_not_been)
{
    struct served_clock clock = {START, 0};
    clock = served_clock_tick(&clock, START + HOUR);
    clock = served_clock_tick(&clock, START + HOUR + SECOND);
    clock = served_clock_tick(&clock, START + 2 * SECOND);
    utc_us served = served_time(&clock, START + 3 * SECOND);
    cr_expect_eq(served, START + 7 * SECOND);
    cr_expect_eq(served_to_wall(&clock, served), START + 3 * SECOND);
}

Test(served_time, a_deadline_is_shown_in_the_databases_time)
{
    struct served_clock clock = {START, HOUR};
    cr_expect_eq(served_to_wall(&clock, START), START + HOUR);
    cr_expect_eq(served_to_wall(&clock, NEVER), NEVER);
}

/* A step of the database's clock: mostly time that passes, now and then a jump of up to an hour either way. */
static int64_t generate_step(uint64_t *state, bool *ret_jump)
{
    *ret_jump = random_below(state, 10) == 0;
    if (*ret_jump)
        return (int64_t)random_below(state, 2 * HOUR) - HOUR;
    return (int64_t)random_below(state, 1500 * US_PER_MS);
}

/*
 * P8: "a jump of the database's clock [...] shortens it by at most 5 s". From tick to tick it never goes back, and
 * loses no time that passes. (Between two ticks a clock that goes back takes it back as well, at most to what it was at
 * the tick: see below. That lengthens a permit and never shortens one.)
 */
Test(served_time, moves_at_most_five_seconds_a_jump_and_never_back_over_ticks)
{
    uint64_t state = 9;
    struct served_clock clock = {START, 0};
    utc_us now = START;
    for (int i = 0; i < 100000; i++) {
        bool jump;
        utc_us before = served_time(&clock, now);
        int64_t step = generate_step(&state, &jump);
        now += step;
        utc_us unticked = served_time(&clock, now);
        clock = served_clock_tick(&clock, now);
        utc_us after = served_time(&clock, now);
        cr_assert_eq(after, unticked, "a tick moved it");
        cr_assert_eq(served_to_wall(&clock, after), now, "right after a tick an answer shows the clock as it is");
        cr_assert_geq(after, before, "it went back");
        cr_assert_leq(after - before, SERVED_TIME_LEAP_US, "it leapt");
        cr_assert(jump || after - before == step, "it lost time that passed");
    }
}

/*
 * Several permitd look and tick when they like: looks are never before the last tick's T, nor more than the leap after.
 */
Test(served_time, looks_between_ticks_stay_within_the_leap_of_the_last_tick)
{
    uint64_t state = 10;
    struct served_clock clock = {START, 0};
    utc_us now = START;
    for (int i = 0; i < 100000; i++) {
        bool jump;
        utc_us ticked = clock.tick_at - clock.offset_us;
        now += generate_step(&state, &jump);
        utc_us served = served_time(&clock, now);
        cr_assert_geq(served, ticked);
        cr_assert_leq(served, ticked + SERVED_TIME_LEAP_US);
        if (random_below(&state, 3) == 0)
            clock = served_clock_tick(&clock, now);
        cr_assert_eq(served_time(&clock, now), served);
    }
}
