/* SPDX-License-Identifier: MIT */
/* Parses times as users write them, and formats spans of time. */
#ifndef CLI_TIME_PARSE_H
#define CLI_TIME_PARSE_H

#include <time.h>

#include "base/base.h"

enum { TIME_TEXT_SIZE = 64 };

/*
 * Parses "02:14" and "02:14:30" (the last such time of day before `now`), "2026-11-21 02:14" with or without seconds,
 * all in the local time zone, and RFC 3339. Writes RFC 3339. Returns false for anything else.
 */
bool time_parse(const char *text, time_t now, char ret_time[TIME_TEXT_SIZE]) MUST_CHECK;

enum { SPAN_SIZE = 24 };
/* Formats a span with at most two units: "0.7s", "42s", "2m10s", "1h05m", "3d02h". Negative spans are "0.0s". */
void span_format(int64_t ms, char text[SPAN_SIZE]);
#endif
