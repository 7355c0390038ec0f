/* SPDX-License-Identifier: MIT */
/* Times as text, against the C library. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "random.h"

#define LAST_SECOND 253402300799LL /* of the year 9999 */

static void expect_time(utc_us time)
{
    time_t seconds = (time_t)(time / US_PER_SECOND);
    struct tm parts;
    char date[32], expected[64], text[RFC3339_SIZE], sql[SQL_TIME_SIZE];
    gmtime_r(&seconds, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(expected, sizeof expected, "%s.%06lldZ", date, (long long)(time % US_PER_SECOND));
    cr_expect_eq(clock_format_rfc3339(time, text), strlen(expected));
    cr_expect_str_eq(text, expected);
    expected[10] = ' ';
    expected[26] = '\0';
    cr_expect_eq(clock_format_sql(time, sql), strlen(expected));
    cr_expect_str_eq(sql, expected);
}

Test(clock, every_day_of_five_centuries_is_formatted_correctly)
{
    for (int64_t day = 0; day < 500 * 366; day++)
        expect_time((day * 86400 + day % 86400) * US_PER_SECOND + day % US_PER_SECOND);
}

Test(clock, any_time_until_the_year_9999_is_formatted_correctly)
{
    uint64_t state = 5;
    for (int i = 0; i < 20000; i++)
        expect_time((utc_us)random_below(&state, (uint64_t)LAST_SECOND * US_PER_SECOND));
    expect_time(LAST_SECOND * US_PER_SECOND + 999999);
    expect_time(0);
}

Test(clock, unprintable_times_are_clamped)
{
    char text[RFC3339_SIZE];
    clock_format_rfc3339(-1, text);
    cr_expect_str_eq(text, "1970-01-01T00:00:00.000000Z");
    cr_expect_lt(clock_format_rfc3339(NEVER, text), RFC3339_SIZE);
    cr_expect_lt(clock_format_rfc3339(INT64_MIN, text), RFC3339_SIZE);
}

Test(clock, monotonic_clock_does_not_go_back)
{
    mono_us before = clock_mono();
    for (int i = 0; i < 1000; i++) {
        mono_us now = clock_mono();
        cr_assert_geq(now, before);
        before = now;
    }
}

Test(clock, times_are_parsed_as_rfc3339)
{
    static const struct {
        const char *text;
        utc_us time; /* -1: refused */
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-21T02:14:00Z", 1795227240000000},
        {"2026-11-21t02:14:00z", 1795227240000000},
        {"2026-11-21T02:14:00.5Z", 1795227240500000},
        {"2026-11-21T02:14:00.000001Z", 1795227240000001},
        {"2026-11-21T03:14:00+01:00", 1795227240000000},
        {"2026-11-20T20:44:00-05:30", 1795227240000000},
        {"2024-02-29T00:00:00Z", 1709164800000000},
        {"2026-02-29T00:00:00Z", -1},
        {"2026-00-10T00:00:00Z", -1},
        {"2026-13-10T00:00:00Z", -1},
        {"2026-11-21T24:00:00Z", -1},
        {"2026-11-21T02:60:00Z", -1},
        {"2026-11-21T02:14:60Z", -1},
        {"2026-11-21T02:14:00", -1},
        {"2026-11-21 02:14:00Z", -1},
        {"2026-11-21T02:14:00.Z", -1},
        {"2026-11-21T02:14:00.1234567Z", -1},
        {"2026-11-21T02:14:00.12345678901234567890Z", -1},
        {"2026-11-21T02:14:00+0100", -1},
        {"2026-11-21T02:14:00+01:60", -1},
        {"2026-11-21T02:14Z", -1},
        {"1969-12-31T23:59:59Z", -1},
        {"Z", -1},
        {"", -1},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        utc_us time = -1;
        cr_expect_eq(clock_parse_rfc3339(bytes_of(rows[i].text), &time), rows[i].time >= 0, "%s", rows[i].text);
        cr_expect_eq(time, rows[i].time, "%s", rows[i].text);
    }
}

/* The boot clock also counts the time of a suspend, which CLOCK_MONOTONIC does not. */
Test(clock, boot_clock_is_not_behind_the_monotonic_clock)
{
    mono_us mono = clock_mono();
    boot_us boot = clock_boot();
    cr_expect_geq(boot, mono);
    cr_expect_geq(clock_boot(), boot);
}

Test(clock, time_beyond_the_largest_is_never)
{
    cr_expect_eq(moment_after(5, 2), 2005);
    cr_expect_eq(moment_after(5, 0), 5);
    cr_expect_eq(moment_after(NEVER, 1), NEVER);
    cr_expect_eq(moment_after(1, NEVER), NEVER);
    cr_expect_eq(moment_after(NEVER - 1000, 1), NEVER);
}
