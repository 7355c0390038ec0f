/* SPDX-License-Identifier: MIT */
#include "base/duration.h"

#include <stdio.h>

/* Largest first: the order in which they may be written. */
static const struct {
    const char *word;
    int64_t ms;
} units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Reads at least one digit. A number that would pass `max` is refused before it can overflow. */
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

/* The letters that follow, as an index into `units`; the length of the table if they are none of them. */
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

bool duration_parse(struct bytes text, int64_t *ret_ms)
{
    int64_t total = 0;
    size_t next_unit = 0; /* "each at most once, largest first" */
    for (size_t at = 0; at < text.length;) {
        int64_t number;
        if (!read_digits(text, &at, DURATION_MAX_MS, &number))
            return false;
        size_t unit = read_unit(text, &at);
        if (unit < next_unit || unit == ARRAY_LENGTH(units) || number > (DURATION_MAX_MS - total) / units[unit].ms)
            return false;
        total += number * units[unit].ms;
        next_unit = unit + 1;
    }
    if (next_unit == 0)
        return false;
    *ret_ms = total;
    return true;
}

/* The decimals behind the point, in thousandths. */
static bool read_decimals(struct bytes text, size_t *at, int64_t *ret_ms)
{
    size_t first = *at;
    if (!read_digits(text, at, 999, ret_ms) || *at - first > 3)
        return false;
    for (size_t digits = *at - first; digits < 3; digits++)
        *ret_ms *= 10;
    return true;
}

bool duration_parse_seconds(struct bytes text, int64_t *ret_ms)
{
    size_t at = 0;
    int64_t seconds;
    int64_t ms = 0;
    if (!read_digits(text, &at, DURATION_MAX_MS / MS_PER_SECOND, &seconds))
        return false;
    if (at < text.length && (text.data[at++] != '.' || !read_decimals(text, &at, &ms)))
        return false;
    if (at < text.length || seconds * MS_PER_SECOND > DURATION_MAX_MS - ms)
        return false;
    *ret_ms = seconds * MS_PER_SECOND + ms;
    return true;
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
