/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

mono_us clock_mono(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

boot_us clock_boot(void)
{
    return clock_us(CLOCK_BOOTTIME);
}

utc_us clock_wall(void)
{
    return clock_us(CLOCK_REALTIME);
}

/* Writes number with exactly `width` digits; returns the end. */
static char *put_digits(char *at, int64_t number, int width)
{
    for (int i = width - 1; i >= 0; i--) {
        at[i] = (char)('0' + number % 10);
        number /= 10;
    }
    return at + width;
}

/*
 * Writes the date of a number of days since 1970-01-01 (proleptic Gregorian calendar), by eras of 400 years that begin
 * on 1 March. Hot: runs twice per answer. gmtime_r takes a lock for the time zone; this does not.
 */
static char *put_date(char *at, int64_t days)
{
    const int64_t days_per_era = 146097;
    days += 719468; /* from 0000-03-01 */
    int64_t era = days / days_per_era;
    int64_t day_of_era = days % days_per_era;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t march_month = (5 * day_of_year + 2) / 153;
    int64_t day = day_of_year - (153 * march_month + 2) / 5 + 1;
    int64_t month = march_month < 10 ? march_month + 3 : march_month - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);
    at = put_digits(at, year, 4);
    *at++ = '-';
    at = put_digits(at, month, 2);
    *at++ = '-';
    return put_digits(at, day, 2);
}

static char *put_time(char *at, utc_us time, char separator)
{
    const int64_t us_per_day = 86400LL * US_PER_SECOND;
    /* Clamp to the years of four digits. */
    time = max_i64(0, min_i64(time, 253402300800LL * US_PER_SECOND - 1));
    int64_t seconds = time % us_per_day / US_PER_SECOND;
    at = put_date(at, time / us_per_day);
    *at++ = separator;
    at = put_digits(at, seconds / 3600, 2);
    *at++ = ':';
    at = put_digits(at, seconds / 60 % 60, 2);
    *at++ = ':';
    at = put_digits(at, seconds % 60, 2);
    *at++ = '.';
    return put_digits(at, time % US_PER_SECOND, 6);
}

size_t clock_format_rfc3339(utc_us time, char text[RFC3339_SIZE])
{
    char *end = put_time(text, time, 'T');
    *end++ = 'Z';
    *end = '\0';
    return (size_t)(end - text);
}

size_t clock_format_sql(utc_us time, char text[SQL_TIME_SIZE])
{
    char *end = put_time(text, time, ' ');
    *end = '\0';
    return (size_t)(end - text);
}

/* Reads exactly `width` digits at `at`; sets *ok to false if there are fewer. */
static int64_t take_digits(struct bytes text, size_t at, size_t width, bool *ok)
{
    int64_t number = 0;
    for (size_t i = at; i < at + width; i++) {
        char digit = i < text.length ? text.data[i] : '\0';
        *ok &= digit >= '0' && digit <= '9';
        number = number * 10 + (digit - '0');
    }
    return number;
}

/* Returns the days since 1970-01-01, counted in years that begin on 1 March: the inverse of put_date. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t march_year = month > 2 ? year : year - 1;
    int64_t era = march_year / 400;
    int64_t year_of_era = march_year % 400;
    int64_t march_month = month > 2 ? month - 3 : month + 9;
    int64_t day_of_year = (153 * march_month + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static int64_t take_fraction(struct bytes text, size_t at, bool *ok)
{
    int64_t fraction = 0;
    size_t width = text.length > at ? text.length - at - 1 : 0;
    if (text.length <= at)
        return 0;
    *ok &= text.data[at] == '.' && width >= 1 && width <= 6;
    if (*ok)
        fraction = take_digits(text, at + 1, width, ok);
    for (; width < 6; width++)
        fraction *= 10;
    return fraction;
}

bool clock_parse_sql(struct bytes text, utc_us *ret_time)
{
    enum { SECONDS_END = 19 };
    bool ok = text.length >= SECONDS_END && text.data[4] == '-' && text.data[7] == '-' && text.data[10] == ' ' &&
              text.data[13] == ':' && text.data[16] == ':';
    if (!ok)
        return false;
    int64_t days = days_of(take_digits(text, 0, 4, &ok), take_digits(text, 5, 2, &ok), take_digits(text, 8, 2, &ok));
    int64_t seconds =
        take_digits(text, 11, 2, &ok) * 3600 + take_digits(text, 14, 2, &ok) * 60 + take_digits(text, 17, 2, &ok);
    int64_t fraction = take_fraction(text, SECONDS_END, &ok);
    if (!ok)
        return false;
    *ret_time = (days * 86400 + seconds) * US_PER_SECOND + fraction;
    return true;
}

/* Reads "Z" or "+01:00" as microseconds east of UTC. */
static bool take_offset(struct bytes text, int64_t *ret_offset)
{
    bool ok = true;
    if (text.length == 1 && (text.data[0] == 'Z' || text.data[0] == 'z')) {
        *ret_offset = 0;
        return true;
    }
    if (text.length != 6 || (text.data[0] != '+' && text.data[0] != '-') || text.data[3] != ':')
        return false;
    int64_t hours = take_digits(text, 1, 2, &ok);
    int64_t minutes = take_digits(text, 4, 2, &ok);
    int64_t offset = (hours * 60 + minutes) * 60 * US_PER_SECOND;
    *ret_offset = text.data[0] == '-' ? -offset : offset;
    return ok && hours < 24 && minutes < 60;
}

/* Formats the parsed time again: the same text means that date and time of day exist. */
bool clock_parse_rfc3339(struct bytes text, utc_us *ret_time)
{
    enum { SECONDS_END = 19, LONGEST = 32 };
    char plain[LONGEST], again[SQL_TIME_SIZE];
    size_t end = text.length > SECONDS_END ? SECONDS_END : text.length;
    while (end < text.length && (text.data[end] == '.' || (text.data[end] >= '0' && text.data[end] <= '9')))
        end++;
    if (end < SECONDS_END || end > LONGEST || (text.data[10] != 'T' && text.data[10] != 't'))
        return false;
    memcpy(plain, text.data, end);
    plain[10] = ' ';
    utc_us time;
    int64_t offset;
    if (!clock_parse_sql((struct bytes){plain, end}, &time) ||
        !take_offset((struct bytes){text.data + end, text.length - end}, &offset) || time < 0)
        return false;
    clock_format_sql(time, again);
    if (memcmp(again, plain, SECONDS_END) != 0)
        return false;
    *ret_time = time - offset;
    return true;
}
