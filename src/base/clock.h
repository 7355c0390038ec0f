/* SPDX-License-Identifier: MIT */
/* Time of this machine, and times as text. Nothing below core asks for the time by itself: it is an argument. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/base.h"

mono_us clock_mono(void);
/*
 * Counts the time for which the machine was suspended, too: for what the time that has passed proves. poll and the like
 * do not: wake at least every second and look.
 */
boot_us clock_boot(void);
/* This machine's idea of the time; only for logs. Deadlines live in the database's time. */
utc_us clock_wall(void);

enum { RFC3339_SIZE = 32, SQL_TIME_SIZE = 32 };

/* "2026-11-21T09:14:31.123456Z", zero-terminated; returns its length. */
size_t clock_format_rfc3339(utc_us time, char text[RFC3339_SIZE]);
/* "2026-11-21 09:14:31.123456", zero-terminated; returns its length. Years 1970 to 9999. */
size_t clock_format_sql(utc_us time, char text[SQL_TIME_SIZE]);
/* Reads "2026-11-21 09:14:31", with or without a fraction of up to six digits. False: not such a text. */
bool clock_parse_sql(struct bytes text, utc_us *ret_time) MUST_CHECK;
/* Reads "2026-11-21T02:14:00Z", a fraction of up to six digits and an offset such as +01:00 allowed. False: not so. */
bool clock_parse_rfc3339(struct bytes text, utc_us *ret_time) MUST_CHECK;
#endif
