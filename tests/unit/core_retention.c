/* SPDX-License-Identifier: MIT */
/* Retention: which requests it may delete, the size of its batches, and its pauses. */
#include <criterion/criterion.h>

#include "core/retention.h"

#define SECOND ((utc_us)US_PER_SECOND)
#define NOW    (1795251600LL * SECOND)

Test(retention, requests_a_minute_past_due_and_ended_ten_minutes_ago_are_deleted)
{
    static const struct {
        utc_us due_ago, ended_ago;
        bool may;
    } rows[] = {
        {60 * SECOND, 600 * SECOND, true},
        {60 * SECOND - 1, 8 * 86400 * SECOND, false},
        {60 * SECOND, 600 * SECOND - 1, false},
        {-SECOND, 8 * 86400 * SECOND, false},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct ended_request request = {.id = 5, .due_at = NOW - rows[i].due_ago, .ended_at = NOW - rows[i].ended_ago};
        cr_assert_eq(retention_may_delete(&request, NOW, 0), rows[i].may, "row %zu", i);
    }
}

Test(retention, requests_beyond_the_newest_and_ended_an_hour_ago_are_deleted)
{
    struct ended_request request = {.id = 5, .due_at = NOW + 86400 * SECOND, .ended_at = NOW - 3600 * SECOND};
    cr_assert(retention_may_delete(&request, NOW, 6));
    cr_assert_not(retention_may_delete(&request, NOW, 5));
    cr_assert_not(retention_may_delete(&request, NOW, 0));
    request.ended_at++;
    cr_assert_not(retention_may_delete(&request, NOW, 6));
}

Test(retention, held_requests_are_never_deleted)
{
    struct ended_request held = {.id = 5, .due_at = NEVER, .ended_at = NEVER};
    cr_assert_not(retention_may_delete(&held, NOW, 6));
    held.due_at = NOW - 86400 * SECOND;
    cr_assert_not(retention_may_delete(&held, NOW, 6));
}

Test(retention, newest_ids_are_kept)
{
    cr_assert_eq(retention_oldest_kept(100, 100), 0);
    cr_assert_eq(retention_oldest_kept(101, 100), 2);
    cr_assert_eq(retention_oldest_kept(0, 100), 0);
}

Test(retention, batch_is_limited_in_rows_but_has_at_least_one_request)
{
    struct ended_request requests[1000] = {{.permits = 64}, {.permits = 1}, {.permits = 1}};
    cr_assert_eq(retention_fit(requests, 3, 10), 1);
    cr_assert_eq(retention_fit(requests, 3, 66), 1);
    cr_assert_eq(retention_fit(requests, 3, 67), 2);
    cr_assert_eq(retention_fit(requests, 3, 1000), 3);
    cr_assert_eq(retention_fit(requests, 0, 1000), 0);
    cr_assert_eq(retention_fit(requests, 1000, 100000), RETENTION_REQUESTS_MAX);
}

Test(retention, slow_batch_shrinks_the_next_and_size_recovers_slowly)
{
    size_t rows = retention_next_rows(1600, 100 * US_PER_MS);
    cr_assert_lt(rows, 1600 / 4);
    for (int i = 0; i < 100; i++)
        rows = retention_next_rows(rows, (int64_t)rows * 2);
    cr_assert_eq(rows, RETENTION_ROWS_MAX, "2 us a row and %zu rows", rows);
    cr_assert_eq(retention_next_rows(200, 0), 250);
    cr_assert_eq(retention_next_rows(100, 3600LL * US_PER_SECOND), RETENTION_ROWS_MIN);
    /* For any cost of a row, the size settles where a batch takes well below 50 ms. */
    for (int cost = 1; cost < 2000; cost *= 2) {
        rows = 200;
        for (int i = 0; i < 100; i++)
            rows = retention_next_rows(rows, (int64_t)rows * cost);
        cr_assert(rows * (size_t)cost <= 25 * US_PER_MS || rows == RETENTION_ROWS_MIN, "cost %d: %zu rows", cost, rows);
    }
}

Test(retention, quiet_database_gets_no_pauses_and_a_busy_one_gets_long_ones)
{
    cr_assert_eq(retention_pause_us(10000, 0, 0), 0);
    cr_assert_eq(retention_pause_us(10000, 9, 0), 0);
    cr_assert_eq(retention_pause_us(10000, 300, 0), 40000);
    cr_assert_eq(retention_pause_us(10000, 300, -100), 40000);
    cr_assert_eq(retention_pause_us(60LL * US_PER_SECOND, 300, 0), 2 * US_PER_SECOND);
}

Test(retention, pauses_shrink_with_the_backlog)
{
    int64_t before = INT64_MAX;
    static const double behind[] = {0, 0.05, 0.25, 1};
    for (size_t i = 0; i < ARRAY_LENGTH(behind); i++) {
        int64_t pause = retention_pause_us(10000, 300, behind[i]);
        cr_assert_lt(pause, before);
        before = pause;
    }
    cr_assert_eq(before, 0);
    struct ended_request late = {.id = 50, .due_at = NOW - 86400 * SECOND - RETENTION_PAST_DUE_US};
    cr_assert_float_eq(retention_backlog(&late, NOW, 0, 100), 1, 1e-6);
    late.due_at = NOW + 86400 * SECOND;
    cr_assert_float_eq(retention_backlog(&late, NOW, 100, 100), 0.5, 1e-6);
}

/* ---- the walk ---- */

enum { KEPT = 10000000 };

/* Moves the walk on after a page that has no more to delete than `deleted`. */
static int64_t walked(struct retention_walk *walk, uint64_t next, uint64_t oldest_kept, uint64_t deleted)
{
    const struct retention_page page = {.next = next, .oldest_kept = oldest_kept, .read_us = 3000};
    return retention_walk_on(walk, &page, deleted, KEPT);
}

Test(retention, pause_is_proportional_to_the_time_of_reading_unless_the_batch_was_full)
{
    struct retention_walk walk = {0};
    cr_assert_eq(walked(&walk, 4001, 0, 0), 90000);
    cr_assert_eq(walked(&walk, 8001, 0, 20), 90000);
    cr_assert_eq(walk.from, 8001);
    const struct retention_page full = {.next = 8500, .full = true, .read_us = 3000};
    cr_assert_eq(retention_walk_on(&walk, &full, 500, KEPT), 0);
    cr_assert_eq(walk.from, 8500);
    cr_assert_eq(retention_walk_on(&walk, &full, 0, KEPT), 90000, "it deleted nothing");
    const struct retention_page slow = {.next = 12001, .read_us = 3600LL * US_PER_SECOND};
    cr_assert_eq(retention_walk_on(&walk, &slow, 0, KEPT), 60LL * US_PER_SECOND);
}

Test(retention, rounds_without_a_deletion_become_rarer)
{
    static const int seconds[] = {3, 6, 12, 24, 48, 60, 60};
    struct retention_walk walk = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(seconds); i++) {
        walked(&walk, 4001, 0, 0);
        cr_assert_eq(walked(&walk, 0, 0, 0), seconds[i] * US_PER_SECOND, "round %zu", i);
        cr_assert_eq(walk.from, 0);
    }
    walked(&walk, 4001, 0, 1);
    cr_assert_eq(walked(&walk, 0, 0, 0), 3 * US_PER_SECOND, "a round with a deletion");
    cr_assert_eq(walked(&walk, 0, 0, 0), 6 * US_PER_SECOND);
}

Test(retention, walk_starts_over_when_the_new_surplus_exceeds_a_hundredth_of_the_kept_rows)
{
    enum { AT_START = 5000000, LATER = AT_START + KEPT / 100 };
    struct retention_walk walk = {0};
    walked(&walk, 4001, AT_START, 100);
    walked(&walk, LATER + 1, LATER, 0);
    cr_assert_eq(walk.from, LATER + 1, "exactly a hundredth");
    cr_assert(retention_turns_back(&walk, LATER + 1, KEPT));
    walked(&walk, LATER + 4001, LATER + 1, 0);
    cr_assert_eq(walk.from, 0);
    walked(&walk, 4001, LATER + 1, 100);
    walked(&walk, LATER + 8001, LATER + 1, 0);
    cr_assert_eq(walk.from, LATER + 8001, "the next round counts from its own beginning");
}

/* However fast the surplus grows, a request that has become surplus is not left out. */
Test(retention, walk_reads_the_whole_surplus_before_it_starts_over)
{
    struct retention_walk walk = {0};
    uint64_t next = 0, oldest_kept = KEPT / 10;
    while (next < oldest_kept) {
        cr_assert_eq(walk.from, next);
        next += RETENTION_PAGE;
        oldest_kept += RETENTION_PAGE / 2;
        walked(&walk, next, oldest_kept, 0);
    }
    cr_assert_eq(walk.from, 0);
}

Test(retention, walk_finishes_its_round_while_nothing_is_surplus)
{
    struct retention_walk walk = {0};
    walked(&walk, 4001, 0, 100);
    for (uint64_t id = 8001; id < 400000; id += 4000) {
        walked(&walk, id, 0, 0);
        cr_assert_eq(walk.from, id);
    }
}
