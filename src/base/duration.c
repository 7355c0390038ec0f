/* SPDX-License-Identifier: MIT */
#include "base/duration.h"

#include <stdio.h>

/* Units in the order in which they may appear: largest first. */
static const struct {
    const char *word;
    int64_t ms;
} units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum { DECIMALS_MAX = 9 }; /* Go prints nanoseconds */

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Reads at least one digit. Refuses a number above `max` before it can overflow. */
static bool read_digits(struct bytes text, size_t *at, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;
    size_t first = *at;
    for (; *at < text.length && is_digit(text.data[*at]); ++*at) {
        number = number * 10 + (text.data[*at] - '0');
        if (number > max)
            return false;
    }
    *ret_number = number;
    return *at > first;
}

/* Reads a unit; returns its index in `units`, or the length of the table if unknown. */
static size_t read_unit(struct bytes text, size_t *at)
{
    size_t first = *at;
    while (*at < text.length && !is_digit(text.data[*at]))
        ++*at;
    const struct bytes word = {text.data + first, *at - first};
    size_t unit = 0;
    while (unit < ARRAY_LENGTH(units) && !bytes_equal(bytes_of(units[unit].word), word))
        unit++;
    return unit;
}

/* Reads the digits after a point, at most max_digits: ".25" is 25 of 100. */
static bool read_decimals(struct bytes text, size_t *at, size_t max_digits, int64_t *ret_number, int64_t *ret_of)
{
    size_t first = *at;
    if (!read_digits(text, at, INT32_MAX, ret_number) || *at - first > max_digits)
        return false;
    *ret_of = 1;
    for (size_t digits = *at - first; digits > 0; digits--)
        *ret_of *= 10;
    return true;
}

/* How a text was read. */
enum reading {
    READING_GOOD,
    READING_WRONG,    /* not a duration */
    READING_TOO_LONG, /* above DURATION_MAX_MS */
};

static enum reading read_units(struct bytes text, int64_t *ret_ms)
{
    int64_t total = 0;
    size_t next_unit = 0; /* index of the first unit still allowed: each at most once, largest first */
    bool ended = false;   /* a number with decimals is the last one */
    for (size_t at = 0; at < text.length;) {
        int64_t number;
        int64_t decimals = 0;
        int64_t of = 1;
        if (ended)
            return READING_WRONG;
        if (!read_digits(text, &at, DURATION_MAX_MS, &number))
            return is_digit(text.data[at]) ? READING_TOO_LONG : READING_WRONG;
        ended = at < text.length && text.data[at] == '.';
        at += ended;
        if (ended && !read_decimals(text, &at, DECIMALS_MAX, &decimals, &of))
            return READING_WRONG;
        size_t unit = read_unit(text, &at);
        if (unit < next_unit || unit == ARRAY_LENGTH(units))
            return READING_WRONG;
        if (number > (DURATION_MAX_MS - total) / units[unit].ms)
            return READING_TOO_LONG;
        decimals *= units[unit].ms;
        total += number * units[unit].ms + decimals / of;
        if (decimals % of)
            return READING_WRONG;
        if (total > DURATION_MAX_MS)
            return READING_TOO_LONG;
        next_unit = unit + 1;
    }
    if (next_unit == 0)
        return READING_WRONG;
    *ret_ms = total;
    return READING_GOOD;
}

bool duration_parse(struct bytes text, int64_t *ret_ms)
{
    return read_units(text, ret_ms) == READING_GOOD;
}

bool duration_parse_seconds(struct bytes text, int64_t *ret_ms)
{
    size_t at = 0;
    int64_t seconds;
    int64_t decimals = 0;
    int64_t of = 1;
    if (!read_digits(text, &at, DURATION_MAX_SECONDS, &seconds))
        return false;
    if (at < text.length && (text.data[at++] != '.' || !read_decimals(text, &at, 3, &decimals, &of)))
        return false;
    if (at < text.length || (seconds == DURATION_MAX_SECONDS && decimals))
        return false;
    *ret_ms = seconds * MS_PER_SECOND + decimals * MS_PER_SECOND / of;
    return true;
}

static const char too_long[] = "the maximum is 100 years, 36600d";

/*
 * Returns the hint for digits, then perhaps a point with digits, or an exponent; NULL: the number is good, or not one.
 */
static const char *number_hint(struct bytes text)
{
    size_t at = 0;
    int64_t seconds = 0, decimals = 0, of;
    bool too_large = !read_digits(text, &at, DURATION_MAX_SECONDS, &seconds);
    if (too_large && (at == text.length || !is_digit(text.data[at])))
        return NULL;
    while (at < text.length && is_digit(text.data[at]))
        at++;
    size_t point = at;
    at += at < text.length && text.data[at] == '.';
    bool is_exact = at == point || at == text.length || read_decimals(text, &at, 3, &decimals, &of);
    while (at < text.length && is_digit(text.data[at]))
        at++;
    if (at < text.length && at > 0 && (text.data[at] == 'e' || text.data[at] == 'E'))
        return "a number of seconds has no exponent";
    if (at < text.length)
        return NULL;
    if (too_large || (seconds == DURATION_MAX_SECONDS && decimals))
        return "numbers are seconds, at most 86400: give milliseconds and longer durations with a unit, such as "
               "30000ms or 2d";
    return is_exact ? NULL : "a number of seconds has at most three decimals";
}

const char *duration_hint(struct bytes text)
{
    int64_t ms;
    const char *hint = number_hint(text);
    return hint || read_units(text, &ms) != READING_TOO_LONG ? hint : too_long;
}

const char *duration_text_hint(struct bytes text)
{
    int64_t ms;
    enum reading reading = read_units(text, &ms);
    if (!text.length || !is_digit(text.data[0]) || reading == READING_GOOD)
        return NULL;
    for (size_t at = 0; at < text.length; at++) {
        if (is_digit(text.data[at]) || text.data[at] == '.')
            continue;
        return reading == READING_TOO_LONG
                   ? too_long
                   : "the units are d, h, m, s and ms, the largest first, and all of it must be whole milliseconds";
    }
    return "a number in quotes needs a unit, such as \"30s\"; a number of seconds stands without quotes";
}

bool duration_parse_any(struct bytes text, int64_t *ret_ms)
{
    return duration_parse(text, ret_ms) || duration_parse_seconds(text, ret_ms);
}

size_t duration_format(int64_t ms, char text[DURATION_TEXT_SIZE])
{
    size_t length = 0;
    if (ms == 0)
        length = (size_t)snprintf(text, DURATION_TEXT_SIZE, "0s");
    uint64_t rest = ms < 0 ? -(uint64_t)ms : (uint64_t)ms;
    if (ms < 0)
        text[length++] = '-';
    for (size_t unit = 0; unit < ARRAY_LENGTH(units); unit++) {
        uint64_t number = rest / (uint64_t)units[unit].ms;
        rest %= (uint64_t)units[unit].ms;
        if (number)
            length += (size_t)snprintf(text + length, DURATION_TEXT_SIZE - length, "%llu%s", (unsigned long long)number,
                                       units[unit].word);
    }
    return length;
}
