/* SPDX-License-Identifier: MIT */
/*
 * Times: RFC 3339 of clients, SQL of the database. Accepted times agree with gmtime and timegm, and formatted times
 * parse to the same.
 */
#include <ctype.h>
#include <time.h>

#include "base/clock.h"
#include "fuzz.h"

/* Returns true if the text matches the pattern: 9 is any digit, all else is literal. */
static bool looks_like(const char *text, const char *pattern)
{
    for (; *pattern; pattern++, text++)
        if (*pattern == '9' ? !isdigit((unsigned char)*text) : *text != *pattern)
            return false;
    return true;
}

/* Converts "YYYY-MM-DDThh:mm:ss" with the C library; false: no such time since 1970. */
static bool reference_seconds(const char *text, int64_t *ret_seconds)
{
    struct tm parts = {
        .tm_year = atoi(text) - 1900,
        .tm_mon = atoi(text + 5) - 1,
        .tm_mday = atoi(text + 8),
        .tm_hour = atoi(text + 11),
        .tm_min = atoi(text + 14),
        .tm_sec = atoi(text + 17),
    };
    struct tm same = parts;
    time_t seconds = timegm(&same);
    *ret_seconds = seconds;
    return seconds >= 0 && same.tm_year == parts.tm_year && same.tm_mon == parts.tm_mon &&
           same.tm_mday == parts.tm_mday && same.tm_hour == parts.tm_hour && same.tm_min == parts.tm_min &&
           same.tm_sec == parts.tm_sec;
}

/* Reads a fraction of one to six digits after the seconds, and moves `text` past it. */
static bool reference_fraction(const char **text, int64_t *ret_us)
{
    *ret_us = 0;
    if (**text != '.')
        return true;
    size_t digits = strspn(++*text, "0123456789");
    for (size_t i = 0; i < 6; i++)
        *ret_us = *ret_us * 10 + (i < digits ? (*text)[i] - '0' : 0);
    *text += digits;
    return digits >= 1 && digits <= 6;
}

static bool reference_offset(const char *text, int64_t *ret_us)
{
    *ret_us = 0;
    if ((*text == 'Z' || *text == 'z') && !text[1])
        return true;
    if (!looks_like(text, "+99:99") && !looks_like(text, "-99:99"))
        return false;
    int hours = atoi(text + 1), minutes = atoi(text + 4);
    *ret_us = (hours * 60LL + minutes) * 60 * US_PER_SECOND * (*text == '-' ? -1 : 1);
    return hours < 24 && minutes < 60 && !text[6];
}

static bool reference_rfc3339(const char *text, utc_us *ret_time)
{
    int64_t seconds, fraction, offset;
    if ((!looks_like(text, "9999-99-99T99:99:99") && !looks_like(text, "9999-99-99t99:99:99")) ||
        !reference_seconds(text, &seconds))
        return false;
    text += 19;
    if (!reference_fraction(&text, &fraction) || !reference_offset(text, &offset))
        return false;
    *ret_time = seconds * US_PER_SECOND + fraction - offset;
    return true;
}

/* Checks that any time has a text; from 1970 to 9999 it parses to the same time. */
static void check_printed(utc_us time)
{
    char rfc3339[RFC3339_SIZE], sql[SQL_TIME_SIZE];
    utc_us again_rfc3339 = 0, again_sql = 0;
    MUST(clock_format_rfc3339(time, rfc3339) == strlen(rfc3339));
    MUST(clock_format_sql(time, sql) == strlen(sql));
    MUST(clock_parse_rfc3339(bytes_of(rfc3339), &again_rfc3339) && clock_parse_sql(bytes_of(sql), &again_sql));
    MUST(again_rfc3339 == again_sql);
    if (time >= 0 && time < 253402300800LL * US_PER_SECOND)
        MUST(again_sql == time);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct bytes bytes = fuzz_bytes(data, size);
    utc_us time = -7, expected = -7;
    bool taken = clock_parse_rfc3339(bytes, &time);
    MUST(taken == (strlen(text) == size && reference_rfc3339(text, &expected)));
    MUST(time == expected || !taken);
    MUST(taken || time == -7);
    if (taken)
        check_printed(time);
    utc_us number = 0;
    memcpy(&number, data, size < sizeof number ? size : sizeof number);
    check_printed(number);
    if (clock_parse_sql(bytes, &time)) /* written by the database only: a 99th of January is not detected */
        check_printed(time);
    free((void *)bytes.data);
    free(text);
    return 0;
}
