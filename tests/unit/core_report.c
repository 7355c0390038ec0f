/* SPDX-License-Identifier: MIT */
/* The arithmetic of reports. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/report.h"

#define SECOND ((utc_us)US_PER_SECOND)
#define FROM   (1795251600LL * SECOND)
#define TO     (FROM + 240 * SECOND)

static struct report report;

static void begin(void)
{
    report_init(&report, FROM, TO);
}

/* A permit that was held from and to these seconds of the time, 0: still held. */
static struct report_permit permit(const char *owner, int64_t count, int acquired_s, int ended_s)
{
    return (struct report_permit){.count = count,
                                  .owner = bytes_of(owner),
                                  .end_reason = ended_s ? END_RELEASED : END_NONE,
                                  .acquired_at = FROM + acquired_s * SECOND,
                                  .ended_at = ended_s ? FROM + ended_s * SECOND : NEVER,
                                  .confirmed_at = NEVER,
                                  .waiting_since = NEVER};
}

static void add(struct report_permit row)
{
    report_add(&report, &row);
}

static bool is_near(double value, double expected)
{
    return value > expected - 1e-6 && value < expected + 1e-6;
}

Test(report, use_is_cut_at_both_ends_of_the_time)
{
    begin();
    add(permit("a", 2, -100, 5));  /* 2 units for 5 s of the first part, which has 10 s */
    add(permit("a", 1, 235, 0));   /* 1 for the last 5 s */
    add(permit("b", 3, 20, 40));   /* 3 for the third and fourth part */
    add(permit("c", 9, -100, -1)); /* not in the time */
    cr_assert(is_near(report.unit_us[0], 10.0 * (double)SECOND));
    cr_assert(is_near(report.unit_us[1], 0));
    cr_assert(is_near(report.unit_us[2], 30.0 * (double)SECOND));
    cr_assert(is_near(report.unit_us[3], 30.0 * (double)SECOND));
    cr_assert(is_near(report.unit_us[REPORT_PARTS - 1], 5.0 * (double)SECOND));
    cr_assert(is_near(report.all.unit_us, 75.0 * (double)SECOND));
    cr_assert_eq(report.owner_count, 2, "c did not hold in the time");
}

Test(report, parts_of_a_permit_are_one_grant_and_have_ends_of_their_own)
{
    struct report_permit part = permit("a", 2, 10, 20), rest = permit("a", 3, 10, 0);
    begin();
    part.is_part = true;
    part.waiting_since = rest.waiting_since = FROM + 8 * SECOND;
    add(part);
    add(rest);
    cr_assert_eq(report.all.grants, 1);
    cr_assert_eq(report.all.units, 5);
    cr_assert_eq(report.waited, 1);
    cr_assert_eq(report.waits.count, 1);
    cr_assert_eq(report.holds.count, 1);
    cr_assert_eq(report.holds.longest_ms, 10000);
    cr_assert_eq(report.ended[END_RELEASED], 1);
    cr_assert(is_near(report.all.unit_us, (2 * 10.0 + 3 * 230.0) * (double)SECOND));
}

Test(report, grants_and_ends_count_where_they_happened)
{
    begin();
    add(permit("a", 2, -100, 5));
    add(permit("a", 4, 0, 240)); /* the end is not in the time, the grant is */
    struct report_permit sale = permit("b", 1, -50, 0);
    sale.confirmed_at = FROM + SECOND;
    add(sale);
    cr_assert_eq(report.all.grants, 1);
    cr_assert_eq(report.all.units, 4);
    cr_assert_eq(report.ended[END_RELEASED], 1);
    cr_assert_eq(report.holds.count, 1);
    cr_assert_eq(report.holds.longest_ms, 105000);
    cr_assert_eq(report.confirmed, 1);
}

Test(report, grants_without_a_wait_count_as_waits_of_0)
{
    begin();
    struct report_permit waited = permit("a", 1, 10, 0);
    waited.waiting_since = FROM - 20 * SECOND;
    add(waited);
    add(permit("a", 1, 11, 0));
    add(permit("a", 1, 12, 0));
    waited.acquired_at = FROM - SECOND; /* granted before the time */
    add(waited);
    cr_assert_eq(report.waited, 1);
    cr_assert_eq(report.waits.count, 3);
    cr_assert_eq(spread_percentile(&report.waits, 50), 0);
    cr_assert_eq(spread_percentile(&report.waits, 95), 30000);
    cr_assert_eq(report.waits.longest_ms, 30000);
}

Test(report, requests_that_never_held_count_for_nothing)
{
    begin();
    struct report_permit never = permit("a", 1, 0, 0);
    never.acquired_at = NEVER;
    never.ended_at = FROM + SECOND;
    add(never);
    cr_assert_eq(report.all.grants + report.ended[END_RELEASED], 0);
    cr_assert_eq(report.owner_count, 0);
}

Test(report, owners_beyond_the_limit_are_one_sum)
{
    char name[16];
    begin();
    for (int i = 0; i < REPORT_OWNERS_MAX + 5; i++) {
        snprintf(name, sizeof name, "owner-%d", i);
        add(permit(name, 1, 0, 0));
    }
    add(permit("owner-3", 1, 0, 0));
    add(permit("", 1, 0, 0));
    cr_assert_eq(report.owner_count, REPORT_OWNERS_MAX);
    cr_assert_eq(report.others.grants, 6);
    report_sort(&report);
    cr_assert(bytes_equal((struct bytes){report.owners[0].text, report.owners[0].length}, BYTES("owner-3")));
    cr_assert_eq(report.owners[0].sum.grants, 2);
}

Test(report, units_stop_at_the_largest_number)
{
    begin();
    add(permit("a", INT64_MAX - 1, 0, 0));
    add(permit("a", INT64_MAX - 1, 0, 0));
    cr_assert_eq(report.all.units, INT64_MAX);
}

Test(report, parts_cover_the_whole_time)
{
    report_init(&report, FROM, FROM + 7);
    cr_assert_eq(report_part(&report, 0), FROM);
    cr_assert_eq(report_part(&report, REPORT_PARTS), FROM + 7);
    for (unsigned i = 0; i < REPORT_PARTS; i++)
        cr_assert_leq(report_part(&report, i), report_part(&report, i + 1));
}

static int compare_spans(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Against the sorted spans: never less, and at most a 32nd more. */
Test(spread, percentiles_are_those_of_sorted_spans)
{
    enum { SPANS = 1000 };
    static struct spread spread;
    static int64_t spans[SPANS];
    srand(4711);
    for (size_t i = 0; i < SPANS; i++) {
        spans[i] = rand() >> rand() % 31;
        spread_add(&spread, spans[i]);
    }
    qsort(spans, SPANS, sizeof *spans, compare_spans);
    for (unsigned percent = 1; percent <= 100; percent++) {
        int64_t exact = spans[(SPANS * percent + 99) / 100 - 1], found = spread_percentile(&spread, percent);
        cr_assert(found >= exact && found <= exact + exact / 32, "%u %%: %lld, exactly %lld", percent, (long long)found,
                  (long long)exact);
    }
    cr_assert_eq(spread_percentile(&spread, 100), spans[SPANS - 1]);
}

Test(spread, extreme_spans_have_a_step)
{
    static struct spread spread;
    cr_assert_eq(spread_percentile(&spread, 50), 0, "there is none");
    spread_add(&spread, -5);
    spread_add(&spread, INT64_MAX);
    cr_assert_eq(spread_percentile(&spread, 50), 0);
    cr_assert_eq(spread_percentile(&spread, 100), INT64_MAX);
}
