/* SPDX-License-Identifier: MIT */
#include "cli/time_parse.h"

#include <stdio.h>

#include "base/clock.h"

/*
 * Returns true if the whole text matches the format. Members of *parts that the format does not set keep their value.
 */
static bool matches(const char *text, const char *format, struct tm *parts)
{
    struct tm read = *parts;
    const char *end = strptime(text, format, &read);
    if (!end || *end)
        return false;
    *parts = read;
    return true;
}

bool time_parse(const char *text, time_t now, char ret_time[TIME_TEXT_SIZE])
{
    utc_us ignored;
    if (clock_parse_rfc3339(bytes_of(text), &ignored)) {
        (void)snprintf(ret_time, TIME_TEXT_SIZE, "%s", text);
        return true;
    }
    struct tm parts;
    localtime_r(&now, &parts);
    parts.tm_sec = 0;
    bool of_day = matches(text, "%H:%M:%S", &parts) || matches(text, "%H:%M", &parts);
    if (!of_day && !matches(text, "%Y-%m-%d %H:%M:%S", &parts) && !matches(text, "%Y-%m-%d %H:%M", &parts) &&
        !matches(text, "%Y-%m-%dT%H:%M:%S", &parts) && !matches(text, "%Y-%m-%dT%H:%M", &parts))
        return false;
    parts.tm_isdst = -1;
    struct tm written = parts;
    time_t moment = mktime(&parts);
    if (of_day && moment > now) {
        parts = written;
        parts.tm_mday--;
        moment = mktime(&parts);
    } else if (parts.tm_mday != written.tm_mday) {
        return false; /* 30 February */
    }
    struct tm utc;
    gmtime_r(&moment, &utc);
    return moment >= 0 && strftime(ret_time, TIME_TEXT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0;
}

void span_format(int64_t ms, char text[SPAN_SIZE])
{
    long long tenths = max_i64(ms, 0) / 100;
    long long seconds = tenths / 10, minutes = seconds / 60, hours = minutes / 60;
    if (seconds < 10)
        (void)snprintf(text, SPAN_SIZE, "%lld.%llds", seconds, tenths % 10);
    else if (minutes < 1)
        (void)snprintf(text, SPAN_SIZE, "%llds", seconds);
    else if (hours < 1)
        (void)snprintf(text, SPAN_SIZE, "%lldm%02llds", minutes, seconds % 60);
    else if (hours < 24)
        (void)snprintf(text, SPAN_SIZE, "%lldh%02lldm", hours, minutes % 60);
    else
        (void)snprintf(text, SPAN_SIZE, "%lldd%02lldh", hours / 24, hours % 24);
}
