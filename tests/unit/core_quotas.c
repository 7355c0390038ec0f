/* SPDX-License-Identifier: MIT */
/* Quotas of a principal, on a clock of the test. */
#include "core/quotas.h"

#include <criterion/criterion.h>

#define SECOND ((mono_us)US_PER_SECOND)

static mono_us wait;

static bool take(struct usage *usage, const struct quotas *quotas, enum quota quota, int64_t amount, mono_us now)
{
    wait = -1;
    return usage_take(usage, quotas, quota, amount, now, &wait);
}

Test(quotas, word_names_its_quota)
{
    for (enum quota quota = 0; quota < QUOTA_COUNT; quota++)
        cr_expect_eq(quota_of_word(quota_word(quota)), quota);
    cr_expect_eq(quota_of_word("rates"), QUOTA_COUNT);
}

Test(quotas, without_a_limit_everything_is_taken)
{
    static const struct quotas none;
    struct usage usage = {0};
    for (enum quota quota = 0; quota < QUOTA_COUNT; quota++)
        for (int i = 0; i < 1000; i++)
            cr_assert(take(&usage, &none, quota, 1000, SECOND));
    cr_expect_eq(usage.under_way[QUOTA_WAITING], 1000000, "counted all the same, for a later limit");
}

Test(quotas, limit_is_reached_and_the_time_until_more_fits_is_known_of_those_with_a_period)
{
    for (enum quota quota = 0; quota < QUOTA_COUNT; quota++) {
        struct quotas quotas = {{0}};
        struct usage usage = {0};
        quotas.limits[quota] = 4;
        for (int i = 0; i < 4; i++)
            cr_assert(take(&usage, &quotas, quota, 1, SECOND), "%s", quota_word(quota));
        cr_expect_not(take(&usage, &quotas, quota, 1, SECOND), "%s", quota_word(quota));
        cr_expect_eq(wait, quota_period(quota) / 4, "%s", quota_word(quota));
        mono_us later = SECOND + wait;
        for (enum quota other = 0; other < QUOTA_COUNT; other++)
            cr_expect(other == quota || take(&usage, &quotas, other, 1000, SECOND), "%s", quota_word(other));
        if (quota_period(quota)) {
            cr_expect(take(&usage, &quotas, quota, 1, later), "%s", quota_word(quota));
        } else {
            cr_expect_not(take(&usage, &quotas, quota, 1, 100 * SECOND), "time does not give it back");
            usage_give_back(&usage, quota, 1);
            cr_expect(take(&usage, &quotas, quota, 1, 100 * SECOND), "%s", quota_word(quota));
        }
    }
}

Test(quotas, amount_above_the_limit_is_taken_alone)
{
    for (enum quota quota = 0; quota < QUOTA_COUNT; quota++) {
        struct quotas quotas = {{0}};
        struct usage usage = {0};
        quotas.limits[quota] = 4;
        cr_assert(take(&usage, &quotas, quota, 1, SECOND));
        cr_expect_not(take(&usage, &quotas, quota, 1000, SECOND), "%s", quota_word(quota));
        if (!quota_period(quota))
            usage_give_back(&usage, quota, 1);
        cr_expect(take(&usage, &quotas, quota, 1000, 100 * SECOND), "%s", quota_word(quota));
        cr_expect_not(take(&usage, &quotas, quota, 1, 100 * SECOND), "%s", quota_word(quota));
    }
}

Test(quotas, limits_are_read_or_refused)
{
    static const struct {
        enum quota quota;
        const char *text;
        int64_t limit; /* 0: refused */
    } cases[] = {
        {QUOTA_RATE, "1", 1},
        {QUOTA_RATE, "1000000000", 1000000000},
        {QUOTA_RATE, "1000000001", 0},
        {QUOTA_RATE, "0", 0},
        {QUOTA_RATE, "-1", 0},
        {QUOTA_RATE, "", 0},
        {QUOTA_RATE, "2000 waiting = 5", 0},
        {QUOTA_RATE, "64KiB", 0},
        {QUOTA_RATE, "99999999999999999999999", 0},
        {QUOTA_BYTES, "65536", 65536},
        {QUOTA_BYTES, "64KiB", 65536},
        {QUOTA_BYTES, "64 KiB", 0},
        {QUOTA_BYTES, "1GiB", 0},
        {QUOTA_ANSWERS, "64KiB", 65536},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct buf why;
        int64_t limit = 0;
        buf_init(&why, 1024);
        cr_expect_eq(quota_parse(cases[i].quota, cases[i].text, &limit, &why), cases[i].limit > 0, "%s", cases[i].text);
        cr_expect_eq(limit, cases[i].limit, "%s", cases[i].text);
        cr_expect_eq(why.length == 0, cases[i].limit > 0, "%s", cases[i].text);
        buf_release(&why);
    }
}
