/* SPDX-License-Identifier: MIT */
/* The token bucket, on a clock of the test, alone and against a plain list of what was taken. */
#include "base/bucket.h"

#include <criterion/criterion.h>

#include "random.h"

#define SECOND ((mono_us)US_PER_SECOND)

Test(bucket, full_one_gives_its_rate_at_once_and_then_nothing)
{
    struct bucket bucket = {0};
    for (int i = 0; i < 10; i++)
        cr_assert_eq(bucket_take(&bucket, 10, SECOND, 1, 5 * SECOND), 0);
    cr_expect_eq(bucket_take(&bucket, 10, SECOND, 1, 5 * SECOND), SECOND / 10);
    cr_expect_eq(bucket_take(&bucket, 10, SECOND, 1, 5 * SECOND), SECOND / 10, "a refusal costs nothing");
}

Test(bucket, named_time_is_the_first_at_which_the_amount_fits)
{
    for (int64_t rate = 1; rate < 3000; rate += 7) {
        struct bucket bucket = {0};
        cr_assert_eq(bucket_take(&bucket, rate, SECOND, rate, SECOND), 0);
        int64_t amount = rate / 3 + 1;
        mono_us wait = bucket_take(&bucket, rate, SECOND, amount, SECOND);
        cr_assert_gt(wait, 0);
        cr_expect_gt(bucket_take(&bucket, rate, SECOND, amount, SECOND + wait - 1), 0, "rate %lld", (long long)rate);
        cr_expect_eq(bucket_take(&bucket, rate, SECOND, amount, SECOND + wait), 0, "rate %lld", (long long)rate);
    }
}

Test(bucket, amount_above_the_rate_is_taken_from_a_full_bucket_only)
{
    struct bucket bucket = {0};
    cr_expect_eq(bucket_take(&bucket, 100, SECOND, 1, SECOND), 0);
    cr_expect_eq(bucket_take(&bucket, 100, SECOND, 1000, SECOND), SECOND / 100);
    cr_expect_eq(bucket_take(&bucket, 100, SECOND, 1000, SECOND + SECOND / 100), 0);
    cr_expect_eq(bucket_take(&bucket, 100, SECOND, 1, SECOND + SECOND / 100), 9 * SECOND + SECOND / 100);
}

Test(bucket, change_of_the_rate_keeps_what_was_taken)
{
    struct bucket bucket = {0};
    cr_expect_eq(bucket_take(&bucket, 100, SECOND, 100, SECOND), 0);
    cr_expect_eq(bucket_take(&bucket, 200, SECOND, 100, SECOND), 0, "100 of 200 are left");
    cr_expect_eq(bucket_take(&bucket, 10, SECOND, 1, SECOND), 19 * SECOND + SECOND / 10, "200 are missing from 10");
}

Test(bucket, largest_numbers_do_not_overflow)
{
    struct bucket bucket = {0};
    mono_us late = INT64_MAX / 4;
    cr_expect_eq(bucket_take(&bucket, BUCKET_MAX_RATE, BUCKET_MAX_PERIOD, BUCKET_MAX_RATE, late), 0);
    cr_expect_eq(bucket_take(&bucket, 1, BUCKET_MAX_PERIOD, BUCKET_MAX_RATE, late),
                 BUCKET_MAX_RATE * BUCKET_MAX_PERIOD);
    cr_expect_eq(bucket_take(&bucket, 1, BUCKET_MAX_PERIOD, BUCKET_MAX_RATE, 2 * late), 0, "long after");
    cr_expect_eq(bucket_take(&bucket, BUCKET_MAX_RATE, 1, BUCKET_MAX_RATE, 3 * late), 0);
}

/* In any stretch of time no more than the rate, a full bucket, and the excess of one amount are taken. */
Test(bucket, takes_no_more_in_any_time_than_its_rate_and_one_burst)
{
    enum { STEPS = 400, PERIOD = 1000 };
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = seed;
        struct bucket bucket = {0};
        int64_t taken[STEPS], largest = 0, rate = 1 + (int64_t)random_below(&random, 50);
        mono_us times[STEPS], now = 1;
        for (size_t i = 0; i < STEPS; i++) {
            now += (mono_us)random_below(&random, 60);
            int64_t amount = (int64_t)random_below(&random, 2 * (uint64_t)rate);
            times[i] = now;
            taken[i] = bucket_take(&bucket, rate, PERIOD, amount, now) == 0 ? amount : 0;
            largest = max_i64(largest, taken[i]);
        }
        for (size_t from = 0; from < STEPS; from++)
            for (size_t to = from, sum = 0; to < STEPS; to++) {
                sum += (size_t)taken[to];
                int64_t most = rate * (times[to] - times[from]) / PERIOD + 1 + max_i64(rate, largest);
                cr_assert_leq((int64_t)sum, most, "seed %llu", (unsigned long long)seed);
            }
    }
}
