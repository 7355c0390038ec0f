/* SPDX-License-Identifier: MIT */
/* Moments as people write them. */
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
#endif
