/* SPDX-License-Identifier: MIT */
/* Durations as text. */
#include <criterion/criterion.h>

#include "base/duration.h"
#include "random.h"

struct reading {
    const char *text;
    int64_t ms; /* -1: refused */
};

static void check(bool (*parse)(struct bytes text, int64_t *ret_ms), const struct reading *readings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t ms = -1;
        bool read = parse(bytes_of(readings[i].text), &ms);
        cr_expect(read == (readings[i].ms >= 0), "\"%s\" is %s", readings[i].text, read ? "taken" : "refused");
        cr_expect(ms == readings[i].ms, "\"%s\" is %lld ms", readings[i].text, (long long)ms);
    }
}

Test(duration, units_are_read)
{
    static const struct reading readings[] = {
        {"500ms", 500},
        {"30s", 30000},
        {"5m", 300000},
        {"1h30m", 5400000},
        {"7d", 7 * 86400000LL},
        {"1d2h3m4s5ms", 93784005},
        {"0s", 0},
        {"90m", 5400000},
        {"007s", 7000},
        {"36600d", DURATION_MAX_MS},
    };
    check(duration_parse, readings, ARRAY_LENGTH(readings));
}

/* time.Duration of Go prints 1.5s and 1h0m0s. */
Test(duration, last_number_may_have_decimals)
{
    static const struct reading readings[] = {
        {"1.5s", 1500},        {"0.25s", 250},
        {"1m30.5s", 90500},    {"1h0m0.001s", 3600001},
        {"1h0m0s", 3600000},   {"1.000000000s", 1000},
        {"1.5h", 5400000},     {"0.5d", 43200000},
        {"2.0ms", 2},          {"36599.999999999d", -1}, /* not whole milliseconds */
        {"1.0001s", -1},       {"1.5ms", -1},
        {"1.s", -1},           {".5s", -1},
        {"1.5", -1},           {"1.5.5s", -1},
        {"1.5h30m", -1},       {"1.5s500ms", -1},
        {"1.0000000000s", -1}, {"1.-5s", -1},
        {"36600.5d", -1},
    };
    check(duration_parse, readings, ARRAY_LENGTH(readings));
}

Test(duration, duplicate_or_unordered_units_are_refused)
{
    static const struct reading readings[] = {{"1s1s", -1}, {"30m1h", -1}, {"5ms1s", -1}, {"1h1h", -1}};
    check(duration_parse, readings, ARRAY_LENGTH(readings));
}

Test(duration, invalid_durations_are_refused)
{
    static const struct reading readings[] = {
        {"", -1},     {"s", -1},    {"30", -1},   {"30 s", -1},        {" 30s", -1},  {"30s ", -1},
        {"-30s", -1}, {"+30s", -1}, {"30S", -1},  {"1h30", -1},        {"30sec", -1}, {"1y", -1},
        {"1w", -1},   {"s30", -1},  {"1e3s", -1}, {"30\xc2\xb5s", -1},
    };
    check(duration_parse, readings, ARRAY_LENGTH(readings));
}

Test(duration, durations_over_a_hundred_years_are_refused)
{
    static const struct reading readings[] = {
        {"36600d1ms", -1},
        {"36601d", -1},
        {"99999999999999999999s", -1},
        {"9223372036854775807ms", -1},
        {"9223372036854775808d", -1},
    };
    check(duration_parse, readings, ARRAY_LENGTH(readings));
}

Test(duration, text_with_a_zero_byte_is_refused)
{
    int64_t ms = 7;
    cr_expect(!duration_parse(BYTES("1s\0"), &ms));
    cr_expect(!duration_parse_seconds(BYTES("1\0"), &ms));
    cr_expect_eq(ms, 7);
}

Test(duration, only_the_given_bytes_are_read)
{
    int64_t ms;
    cr_assert(duration_parse((struct bytes){"10s30", 3}, &ms));
    cr_expect_eq(ms, 10000);
    cr_assert(duration_parse_seconds((struct bytes){"10.5", 2}, &ms));
    cr_expect_eq(ms, 10000);
}

Test(duration, seconds_are_read_with_up_to_three_decimals)
{
    static const struct reading readings[] = {
        {"300", 300000}, {"0.25", 250},  {"0.001", 1},        {"1.5", 1500},
        {"0", 0},        {"0.100", 100}, {"86400", 86400000}, {"86400.000", 86400000},
    };
    check(duration_parse_seconds, readings, ARRAY_LENGTH(readings));
}

Test(duration, numbers_with_four_decimals_are_refused)
{
    static const struct reading readings[] = {{"0.0001", -1}, {"1.2345", -1}, {"1.0000", -1}};
    check(duration_parse_seconds, readings, ARRAY_LENGTH(readings));
}

Test(duration, invalid_seconds_are_refused)
{
    static const struct reading readings[] = {
        {"", -1},
        {"-1", -1},
        {"+1", -1},
        {"1.", -1},
        {".5", -1},
        {"1e3", -1},
        {"1.5.5", -1},
        {"0x10", -1},
        {"1 ", -1},
        {"1,5", -1},
        {"99999999999999999999", -1},
        {"NaN", -1},
    };
    check(duration_parse_seconds, readings, ARRAY_LENGTH(readings));
}

/* A "ttl" of 30000, meant as milliseconds, would be 8.3 hours. */
Test(duration, numbers_over_a_day_are_refused_with_a_hint)
{
    static const struct reading readings[] = {
        {"86401", -1}, {"86400.001", -1}, {"600000", -1}, {"3162240000", -1}, {"99999999999999999999", -1},
    };
    check(duration_parse_seconds, readings, ARRAY_LENGTH(readings));
    for (size_t i = 0; i < ARRAY_LENGTH(readings); i++) {
        const char *hint = duration_hint(bytes_of(readings[i].text));
        cr_expect(hint && strstr(hint, "numbers are seconds"), "%s", readings[i].text);
    }
    static const char *const others[] = {"",      "86400",   "30", "30s",     "100000s", "0.125", "86400.000", "1.",
                                         ".0001", "-100000", "x",  "100000 ", "e3",      "1.2.3", "1m30"};
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        cr_expect_null(duration_hint(bytes_of(others[i])), "%s", others[i]);
}

Test(duration, numbers_that_are_not_plain_are_refused_with_a_hint)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {{"1.2345", "three decimals"}, {"0.0001", "three decimals"}, {"1e3", "no exponent"},
                 {"1.5E-2", "no exponent"},    {"100000e1", "no exponent"},  {"1.23456789012e1", "no exponent"},
                 {"99999999d", "100 years"},   {"36600d1ms", "100 years"}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const char *hint = duration_hint(bytes_of(cases[i].text));
        cr_expect(hint && strstr(hint, cases[i].says), "%s", cases[i].text);
    }
}

Test(duration, invalid_durations_are_refused_with_a_hint)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {{"30", "needs a unit"},     {"0.5", "needs a unit"},
                 {"600000", "needs a unit"}, {"1.2345s", "whole milliseconds"},
                 {"100us", "units are"},     {"5m1h", "the largest first"},
                 {"1week", "units are"},     {"99999999d", "the maximum is 100 years"},
                 {"36600d1ms", "100 years"}, {"99999999999999999999s", "100 years"}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        const char *hint = duration_text_hint(bytes_of(cases[i].text));
        cr_expect(hint && strstr(hint, cases[i].says), "%s", cases[i].text);
    }
    static const char *const others[] = {"", "0s", "30s", "none", "owner", "-5s", "soon", " 30s"};
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        cr_expect_null(duration_text_hint(bytes_of(others[i])), "%s", others[i]);
}

Test(duration, settings_accept_both_forms)
{
    static const struct reading readings[] = {{"10s", 10000},    {"10", 10000}, {"0.5", 500},
                                              {"1.5h", 5400000}, {"86401", -1}, {"", -1}};
    check(duration_parse_any, readings, ARRAY_LENGTH(readings));
}

Test(duration, durations_are_formatted_with_units)
{
    static const struct reading readings[] = {
        {"0s", 0}, {"500ms", 500}, {"1h30m", 5400000}, {"1d2h3m4s5ms", 93784005}, {"36600d", DURATION_MAX_MS},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(readings); i++) {
        char text[DURATION_TEXT_SIZE];
        size_t length = duration_format(readings[i].ms, text);
        cr_expect_str_eq(text, readings[i].text);
        cr_expect_eq(length, strlen(text));
    }
}

Test(duration, extreme_durations_fit_into_the_text)
{
    char text[DURATION_TEXT_SIZE];
    cr_expect(duration_format(INT64_MAX, text) < DURATION_TEXT_SIZE - 1);
    cr_expect(duration_format(INT64_MIN, text) < DURATION_TEXT_SIZE - 1);
    duration_format(-1500, text);
    cr_expect_str_eq(text, "-1s500ms");
}

Test(duration, formatted_durations_parse_to_the_same_value)
{
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        int64_t ms = (int64_t)(next_random(&state) % (DURATION_MAX_MS + 1)) >> random_below(&state, 40);
        char text[DURATION_TEXT_SIZE];
        int64_t again = -1;
        duration_format(ms, text);
        cr_assert(duration_parse(bytes_of(text), &again), "%s", text);
        cr_assert_eq(again, ms, "%s", text);
    }
}
