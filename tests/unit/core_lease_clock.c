/* SPDX-License-Identifier: MIT */
/* The lease clock (P8). Each trace is a case that ends permits early, or late, if one part of the rule is left out. */
#include <criterion/criterion.h>

#include "core/lease_clock.h"

#define MS     ((int64_t)US_PER_MS)
#define SECOND ((int64_t)US_PER_SECOND)
#define HOUR   (3600 * SECOND)
#define START  (1795252471LL * SECOND) /* 2026-11-21 */

/* ---- by the database's clock ---- */

Test(lease_time, lease_clock_follows_the_database_clock_and_stops_five_seconds_after_a_tick)
{
    struct lease_clock clock = {.tick_at = START, .offset_us = HOUR};
    cr_expect_eq(lease_time(&clock, START), START - HOUR);
    cr_expect_eq(lease_time(&clock, START + 5 * SECOND), START - HOUR + 5 * SECOND);
    cr_expect_eq(lease_time(&clock, START + 5 * SECOND + 1), START - HOUR + 5 * SECOND);
    cr_expect_eq(lease_time(&clock, START + HOUR), START - HOUR + 5 * SECOND);
}

Test(lease_time, jump_back_takes_it_to_the_last_tick_at_most)
{
    struct lease_clock clock = {.tick_at = START};
    cr_expect_eq(lease_time(&clock, START - 1), START);
    cr_expect_eq(lease_time(&clock, START - HOUR), START);
}

Test(lease_time, stored_time_is_shown_in_database_time)
{
    struct lease_clock clock = {.tick_at = START, .offset_us = HOUR};
    cr_expect_eq(lease_to_wall(&clock, START), START + HOUR);
    cr_expect_eq(lease_to_wall(&clock, NEVER), NEVER);
}

/* ---- two permitd and their database ---- */

enum { A, B, PERMITD };

/* Where nothing else is said, times are true time since the start, and also the clocks of the machines. */
static struct own_clock own[PERMITD];
static struct lease_row row;
static int64_t skew;      /* of the database's clock */
static int64_t frozen_at; /* it stands still since then; NEVER: it does not */
static int64_t answer_us; /* from a question to its answer */

static void begin(void)
{
    own[A] = own[B] = (struct own_clock){0};
    row = (struct lease_row){.clock = {.tick_at = START}, .server = 1};
    skew = 0;
    frozen_at = NEVER;
    answer_us = 10 * MS;
}

TestSuite(own_clock, .init = begin);
TestSuite(lease_traces, .init = begin);

static utc_us database_now(int64_t t)
{
    return START + min_i64(t, frozen_at) + skew;
}

static utc_us ticked(void)
{
    return lease_ticked(&row.clock) - START;
}

/* Asks at `t`, and ticks if it may. Returns true if it did. */
static bool ask(int who, int64_t t)
{
    own_clock_read(&own[who], &row, t, t + answer_us);
    if (!own_clock_may_tick(&own[who]))
        return false;
    row = own_clock_tick(&own[who], database_now(t + answer_us / 2));
    own_clock_won(&own[who], &row, t + 2 * answer_us);
    return true;
}

/* Each permitd asks each half second from `from` on, B a quarter of a second after A; first: A only. */
static void run(int count, int64_t from, int64_t until)
{
    for (int64_t t = from; t < until; t += 250 * MS) {
        bool turn_of_b = (t - from) / (250 * MS) % 2;
        if (!turn_of_b || count > 1)
            (void)ask(turn_of_b ? B : A, t);
    }
}

static struct lease_clock judge(int who, int64_t t)
{
    struct lease_clock clock = row.clock;
    own_clock_judge(&own[who], database_now(t), t, &clock);
    return clock;
}

/* Returns the deadline of a grant. */
static utc_us grant(int who, int64_t t, int64_t ttl)
{
    return judge(who, t).from + ttl;
}

static bool is_due(int who, int64_t t, utc_us due_at)
{
    return due_at <= judge(who, t).due;
}

/* Runs until one of the permitd finds the deadline passed. Returns when that was. */
static int64_t end_of(int count, int64_t from, utc_us due_at)
{
    for (int64_t t = from; t < from + HOUR; t += 250 * MS) {
        run(count, t, t + 250 * MS);
        if (is_due(A, t, due_at) || (count > 1 && is_due(B, t, due_at)))
            return t;
    }
    return NEVER;
}

static int64_t due_of(int who, int64_t t)
{
    return judge(who, t).due - START;
}

/* ---- the own clock ---- */

Test(own_clock, first_answer_starts_it_at_the_last_tick_and_unsure)
{
    skew = HOUR; /* by the database's clock it would be V + 5 s */
    (void)ask(A, SECOND);
    cr_assert_eq(due_of(A, SECOND + answer_us), 0);
    cr_assert_eq(judge(A, SECOND + answer_us).from, START + LEASE_LEAP_US + LEASE_MARGIN_US);
}

Test(own_clock, unsure_clock_leaves_the_first_five_seconds_to_others)
{
    for (int64_t t = 0; t < 5 * SECOND; t += 500 * MS)
        cr_assert_not(ask(A, t), "at %lld ms", (long long)(t / MS));
    cr_assert(ask(A, 5 * SECOND));
    cr_assert_eq(ticked(), 5 * SECOND);
    cr_assert_leq(judge(A, 5 * SECOND).from, START + 5 * SECOND + 100 * MS + LEASE_MARGIN_US, "its tick made it sure");
}

Test(own_clock, tick_seen_in_time_makes_it_sure)
{
    run(1, 0, 10 * SECOND);
    (void)ask(B, 10 * SECOND);
    cr_assert_geq(judge(B, 10 * SECOND).from, START + ticked() + LEASE_LEAP_US);
    run(2, 10 * SECOND + 500 * MS, 12 * SECOND);
    cr_assert_leq(judge(B, 12 * SECOND).from, START + 12 * SECOND + LEASE_MARGIN_US);
}

Test(own_clock, tick_between_two_reads_far_apart_does_not_make_it_sure)
{
    run(1, 0, 10 * SECOND);
    (void)ask(B, 10 * SECOND);
    run(1, 10 * SECOND, 13 * SECOND);
    (void)ask(B, 13 * SECOND);
    cr_assert_geq(judge(B, 13 * SECOND).from, START + ticked() + LEASE_LEAP_US);
}

Test(own_clock, five_seconds_without_a_tick_make_it_unsure)
{
    run(2, 0, 20 * SECOND);
    cr_assert_lt(judge(B, ticked() + 4 * SECOND).from, START + ticked() + LEASE_LEAP_US + LEASE_MARGIN_US);
    cr_assert_geq(judge(B, ticked() + 6 * SECOND).from, START + ticked() + LEASE_LEAP_US + LEASE_MARGIN_US);
    run(1, 20 * SECOND, 28 * SECOND); /* B is stopped */
    (void)ask(B, 28 * SECOND);
    cr_assert_geq(judge(B, 28 * SECOND).from, START + ticked() + LEASE_LEAP_US + LEASE_MARGIN_US);
}

/* Returns the lease clock by the database's clock. */
static int64_t served_at(int64_t t)
{
    return lease_time(&row.clock, database_now(t)) - START;
}

Test(own_clock, ticks_of_a_permitd_that_is_behind_do_not_take_the_database_clock_back)
{
    run(1, 0, 10 * SECOND);
    run(1, 10 * SECOND, 20 * SECOND);
    (void)ask(B, 19900 * MS); /* it sees the last tick late, so it is behind */
    for (int64_t t = 20 * SECOND, before = 0; t < 40 * SECOND; t += 250 * MS) {
        (void)ask(t / SECOND % 2 ? A : B, t);
        cr_assert_geq(served_at(t + 20 * MS), before, "at %lld ms", (long long)(t / MS));
        before = served_at(t + 20 * MS);
    }
}

/*
 * Returns the furthest that the lease clock by the database's clock goes back after a tick that came at least `after` the
 * one before, and waited in its COMMIT.
 */
static int64_t back_after_commit_of(int64_t waits, int64_t after)
{
    int64_t t = 20 * SECOND, back = 0;
    begin();
    run(2, 0, t);
    while (own_clock_read(&own[A], &row, t, t + answer_us), !own_clock_may_tick(&own[A]))
        t += after;
    struct lease_row written = own_clock_tick(&own[A], database_now(t));
    int64_t end = t + waits;
    for (; t < end; t += 500 * MS)
        own_clock_read(&own[B], &row, t, t + answer_us); /* reads are answered meanwhile */
    row = written;
    own_clock_won(&own[A], &row, end);
    for (t = end; t < end + 12 * SECOND; t += 250 * MS) {
        int64_t answered = t + 2 * answer_us, before = served_at(answered);
        (void)ask(t / (250 * MS) % 2 ? A : B, t);
        back = max_i64(back, before - served_at(answered));
    }
    return back;
}

Test(own_clock, tick_whose_commit_waits_does_not_take_the_database_clock_back)
{
    for (int64_t waits = 0; waits < 15 * SECOND; waits += 250 * MS)
        for (int64_t after = 700 * MS; after < 6 * SECOND; after += 700 * MS)
            cr_expect_leq(back_after_commit_of(waits, after), 0, "a commit of %lld ms after %lld",
                          (long long)(waits / MS), (long long)(after / MS));
}

Test(own_clock, step_puts_the_database_clock_ahead_by_five_seconds_at_most_and_not_behind)
{
    run(2, 0, 20 * SECOND);
    skew = HOUR;
    run(2, 20 * SECOND, 22 * SECOND);
    cr_assert_leq(served_at(22 * SECOND), due_of(A, 22 * SECOND) + 5 * SECOND);
    run(2, 22 * SECOND, 300 * SECOND);
    cr_assert_leq(served_at(300 * SECOND), due_of(A, 300 * SECOND) + 5 * SECOND);
    skew = -HOUR;
    run(2, 300 * SECOND, 302 * SECOND);
    cr_assert_geq(served_at(302 * SECOND), due_of(B, 302 * SECOND) - 550 * MS);
}

Test(own_clock, it_is_fresh_for_four_seconds)
{
    cr_assert_not(own_clock_is_fresh(&own[A], 0));
    (void)ask(A, 0);
    cr_assert(own_clock_is_fresh(&own[A], answer_us + 4 * SECOND));
    cr_assert_not(own_clock_is_fresh(&own[A], answer_us + 4 * SECOND + 1));
}

Test(own_clock, row_under_the_locks_limits_it)
{
    run(2, 0, 12 * SECOND);
    struct lease_row copy = row;
    run(2, 12 * SECOND, 24 * SECOND);
    row = copy; /* of an older copy of the database, which nothing has noticed yet */
    cr_assert_eq(due_of(A, 24 * SECOND), ticked() + LEASE_LEAP_US);
}

Test(own_clock, row_that_another_permitd_has_ticked_moves_it_ahead)
{
    run(2, 0, 20 * SECOND);
    run(1, 20 * SECOND, 30 * SECOND);
    cr_assert_eq(due_of(B, 30 * SECOND), ticked(), "the row under the locks, before it has asked");
    (void)ask(B, 30 * SECOND);
    cr_assert_geq(due_of(B, 30 * SECOND), 28 * SECOND);
}

/* ---- the traces ---- */

/* 1: with V at each tick that is seen, it would lose what has passed since that tick: 867 s in two hours. */
Test(lease_traces, tick_that_is_seen_late_costs_no_time)
{
    run(2, 0, 8 * SECOND);
    int64_t behind = 8 * SECOND - due_of(B, 8 * SECOND);
    for (int64_t t = 8 * SECOND; t < 2 * HOUR; t += 1450 * MS) {
        (void)ask(A, t);
        (void)ask(A, t + 100 * MS);
        (void)ask(B, t + 450 * MS);
    }
    cr_assert_leq(2 * HOUR - due_of(B, 2 * HOUR), behind + 500 * MS, "it has lost %lld ms",
                  (long long)((2 * HOUR - due_of(B, 2 * HOUR)) / MS));
}

/* 2: the tick at the return would advance 43.6 s; the grant would end 42.9 s early. */
Test(lease_traces, database_that_was_away_adds_five_seconds_at_most)
{
    run(2, 0, 19400 * MS);
    (void)ask(A, 63 * SECOND);
    utc_us due_at = grant(A, 63 * SECOND + answer_us, 30 * SECOND);
    cr_assert_leq(due_of(A, 63 * SECOND + answer_us), 19400 * MS + LEASE_LEAP_US);
    int64_t end = end_of(2, 63 * SECOND + 250 * MS, due_at);
    cr_assert_geq(end, 93 * SECOND - 5 * SECOND, "it ended at %lld ms", (long long)(end / MS));
    cr_assert_leq(end, 93 * SECOND + 12 * SECOND, "it ended at %lld ms", (long long)(end / MS));
}

/* 3: by the database's clock the deadline would count from V, 2.5 s too early. */
Test(lease_traces, grant_after_a_step_back_counts_from_the_own_clock)
{
    int64_t t = 57500 * MS;
    run(2, 0, t);
    while (!ask(A, t))
        t += 100 * MS;
    skew = -60 * SECOND;
    int64_t granted_at = t + 900 * MS;
    cr_assert_eq(lease_time(&row.clock, database_now(granted_at)) - START, ticked());
    utc_us due_at = grant(B, granted_at, 10 * SECOND);
    cr_assert_geq(due_at - 10 * SECOND - LEASE_MARGIN_US, judge(A, granted_at).due - 500 * MS);
    int64_t end = end_of(2, granted_at + 100 * MS, due_at);
    cr_assert_geq(end, granted_at + 10 * SECOND, "%lld ms", (long long)((end - granted_at) / MS));
}

/* 4: if ticks waited for the database's clock, all the time would be credited when it goes on: 7 s early. */
Test(lease_traces, clock_that_is_frozen_is_ticked_on)
{
    run(2, 0, 20 * SECOND);
    frozen_at = 20 * SECOND;
    run(2, 20 * SECOND, 24900 * MS);
    cr_assert_geq(ticked(), 22500 * MS, "%lld ms", (long long)(ticked() / MS));
    utc_us due_at = grant(B, 24900 * MS, 10 * SECOND);
    skew = 0;
    frozen_at = NEVER;
    int64_t end = end_of(2, 25 * SECOND, due_at);
    cr_assert_geq(end, 24900 * MS + 10 * SECOND);
    cr_assert_leq(end, 24900 * MS + 12 * SECOND);
}

/* 5: bounds from the questions would add up with each answer: 14 s in 80 s. */
Test(lease_traces, answers_of_two_permitd_that_tick_by_turns_do_not_add_up)
{
    run(2, 0, 10 * SECOND);
    int64_t ahead = due_of(A, 10 * SECOND) - 10 * SECOND;
    answer_us = 240 * MS;
    run(2, 10 * SECOND, 90 * SECOND);
    int64_t most = max_i64(due_of(A, 90 * SECOND), due_of(B, 90 * SECOND)) - 90 * SECOND;
    cr_assert_leq(most, ahead + 20 * MS, "%lld ms", (long long)(most / MS));
}

/* 6: a start by the database's clock would add up to 5 s each time: 25 s early. */
Test(lease_traces, steps_with_restarts_add_nothing)
{
    run(2, 0, 20 * SECOND);
    utc_us due_at = grant(A, 20 * SECOND, 60 * SECOND);
    for (int64_t t = 20 * SECOND; t < 44 * SECOND; t += 3 * SECOND) {
        skew += HOUR;
        own[t / SECOND % 2 ? A : B] = (struct own_clock){0};
        run(2, t, t + 3 * SECOND);
    }
    int64_t end = end_of(2, 44 * SECOND, due_at);
    cr_assert_geq(end, 80 * SECOND, "it ended at %lld ms", (long long)(end / MS));
}

/* 7: a clock that goes on from another life is ahead of one that has started in this. */
Test(lease_traces, failover_starts_the_own_clock_anew)
{
    run(2, 0, 12 * SECOND);
    struct lease_row copy = row;
    run(2, 12 * SECOND, 24 * SECOND);
    row = copy;
    row.clock.epoch++;
    row.server = 2;
    own[B] = (struct own_clock){0}; /* it starts now */
    cr_assert_eq(due_of(A, 24 * SECOND), ticked(), "a batch that finds another epoch ends nothing");
    int64_t copied = ticked();
    run(2, 24 * SECOND, 24500 * MS);
    cr_assert_leq(due_of(A, 24500 * MS), copied + 500 * MS);
    utc_us due_at = grant(B, 24500 * MS, 20 * SECOND);
    int64_t end = end_of(2, 24500 * MS, due_at);
    cr_assert_geq(end, 44500 * MS, "it ended at %lld ms", (long long)(end / MS));
    row.server = 3; /* the same epoch, another server */
    (void)ask(A, end + SECOND);
    cr_assert_eq(due_of(A, end + SECOND + answer_us), ticked());
}

/* B is stopped from `from` on for 8 s. */
static int64_t end_with_a_stop(int64_t t, utc_us due_at, int64_t from)
{
    for (; t < HOUR; t += 250 * MS) {
        bool b_runs = t < from || t >= from + 8 * SECOND;
        run(1, t, t + 250 * MS);
        if (b_runs)
            (void)ask(B, t + 100 * MS);
        if (is_due(A, t, due_at) || (b_runs && is_due(B, t + 100 * MS, due_at)))
            return t;
        if (t >= 20 * SECOND && t < 25 * SECOND && t / MS % 1750 == 0)
            skew += HOUR;
    }
    return NEVER;
}

/* 8: by the database's clock four steps end a ttl of 30 s after 12 s. */
Test(lease_traces, four_forward_steps_within_a_ttl_add_nothing)
{
    run(2, 0, 19 * SECOND);
    utc_us due_at = grant(A, 19 * SECOND, 30 * SECOND);
    int64_t end = end_with_a_stop(19 * SECOND, due_at, 22 * SECOND);
    cr_assert_geq(skew, 2 * HOUR);
    cr_assert_geq(end, 49 * SECOND, "it ended at %lld ms", (long long)(end / MS));
    cr_assert_leq(end, 51 * SECOND, "it ended at %lld ms", (long long)(end / MS));
}

/* 8: two time daemons that disagree by 4 s. */
Test(lease_traces, clock_that_is_stepped_by_four_seconds_and_back_each_second_adds_nothing)
{
    run(2, 0, 20 * SECOND);
    utc_us due_at = grant(A, 20 * SECOND, 30 * SECOND);
    int64_t end = NEVER;
    for (int64_t t = 20 * SECOND; t < 60 * SECOND && end == NEVER; t += 500 * MS) {
        bool b_runs = t < 22 * SECOND || t >= 30 * SECOND;
        skew = t / SECOND % 2 ? 4 * SECOND : 0;
        run(1, t, t + 250 * MS);
        if (b_runs)
            (void)ask(B, t + 250 * MS);
        if (is_due(A, t + 250 * MS, due_at) || (b_runs && is_due(B, t + 250 * MS, due_at)))
            end = t;
    }
    cr_assert_geq(end, 50 * SECOND, "it ended at %lld ms", (long long)(end / MS));
    cr_assert_leq(end, 52 * SECOND, "it ended at %lld ms", (long long)(end / MS));
}

/* ---- the database's lease clock between two reads ---- */

static void served_read(struct served_clock *served, utc_us now, int64_t asked_at, int64_t answered_at)
{
    const struct lease_clock clock = {.tick_at = START};
    served_clock_read(
        served, &(struct served_read){.clock = &clock, .now = now, .asked_at = asked_at, .answered_at = answered_at},
        answered_at);
}

/* Returns the lease time that a batch is given; -1: none. */
static int64_t give(struct served_clock *served, int64_t t)
{
    struct lease_clock clock = served->clock;
    utc_us now = served_clock_estimate(served, t);
    return served_clock_give(served, now, &clock) ? lease_time(&clock, now) - START : -1;
}

Test(served_clock, estimate_goes_on_from_the_answer)
{
    struct served_clock served = {0};
    served_read(&served, START + SECOND, SECOND, SECOND + 20 * MS);
    cr_assert_eq(give(&served, SECOND + 20 * MS), SECOND);
    cr_assert_eq(give(&served, SECOND + 50 * MS), SECOND + 30 * MS);
}

Test(served_clock, slow_answer_does_not_take_it_back)
{
    struct served_clock served = {0};
    served_read(&served, START + SECOND, SECOND, SECOND + MS);
    cr_assert_eq(give(&served, 1101 * MS), 1100 * MS);
    served_read(&served, START + SECOND, SECOND, 1102 * MS);
    cr_assert_eq(give(&served, 1110 * MS), 1100 * MS, "it waits for the time that was given");
}

Test(served_clock, very_slow_answer_is_no_step)
{
    struct served_clock served = {0};
    served_read(&served, START + 2 * SECOND, 2 * SECOND, 2 * SECOND + MS);
    cr_assert_eq(give(&served, 2501 * MS), 2500 * MS);
    served_read(&served, START + 2 * SECOND, 2 * SECOND, 2502 * MS);
    cr_assert_eq(give(&served, 2510 * MS), -1, "it is known too badly");
    served_read(&served, START + 2520 * MS, 2520 * MS, 2521 * MS);
    cr_assert_eq(give(&served, 2531 * MS), 2530 * MS);
}

Test(served_clock, step_back_takes_it_back)
{
    struct served_clock served = {0};
    served_read(&served, START + 3 * SECOND, 3 * SECOND, 3 * SECOND + MS);
    cr_assert_eq(give(&served, 3001 * MS), 3 * SECOND);
    served_read(&served, START + SECOND, 3010 * MS, 3011 * MS);
    cr_assert_eq(give(&served, 3011 * MS), SECOND);
}

Test(served_clock, another_epoch_takes_it_back)
{
    struct served_clock served = {0};
    const struct lease_clock clock = {.tick_at = START, .epoch = 1};
    served_read(&served, START + 1050 * MS, SECOND, SECOND + MS);
    served_clock_read(&served, &(struct served_read){.clock = &clock, .now = START + SECOND}, 1002 * MS);
    cr_assert_eq(served.latest, START + SECOND);
}

Test(served_clock, deadlines_count_from_the_time_that_is_given)
{
    struct served_clock served = {0};
    struct lease_clock clock = {.tick_at = START, .from = START + 1000 * MS + LEASE_MARGIN_US};
    served_read(&served, START + 1050 * MS, SECOND, SECOND + MS);
    cr_assert(served_clock_give(&served, START + SECOND, &clock));
    cr_assert_eq(lease_time(&clock, START + SECOND), START + 1050 * MS);
    cr_assert_eq(clock.from, START + 1050 * MS + LEASE_MARGIN_US);
}
