/* SPDX-License-Identifier: MIT */
/* Moments as people write them, and spans of time as they like to read them. */
#ifndef CLI_MOMENT_H
#define CLI_MOMENT_H

#include <time.h>

#include "base/base.h"

enum { MOMENT_SIZE = 64 };

/*
 * Reads "02:14", "02:14:30" (the last such time of day, before `now`), "2026-11-21 02:14", with or without seconds, all
 * in this machine's time zone, or what is RFC 3339 already; writes RFC 3339. False: none of these.
 */
bool moment_read(const char *text, time_t now, char ret_moment[MOMENT_SIZE]) MUST_CHECK;

enum { SPAN_SIZE = 24 };
/* Two units at most: "0.7s", "42s", "2m10s", "1h05m", "3d02h". Negative ones are "0.0s". */
void span_format(int64_t ms, char text[SPAN_SIZE]);
#endif
