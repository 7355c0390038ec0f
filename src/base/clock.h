/* SPDX-License-Identifier: MIT */
/* The clocks of this machine, and times as text. core takes the time as an argument and never reads a clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include "base/base.h"

mono_us clock_mono(void);
/*
 * Returns monotonic time that also counts suspension: for proofs by elapsed time. poll and similar calls do not count
 * suspension, so wake up at least once a second and check.
 */
boot_us clock_boot(void);
/* Returns the wall clock of this machine; only for logs. Deadlines use the database's time. */
utc_us clock_wall(void);

enum { RFC3339_SIZE = 32, SQL_TIME_SIZE = 32 };

/* Writes "2026-11-21T09:14:31.123456Z", zero-terminated; returns its length. */
size_t clock_format_rfc3339(utc_us time, char text[RFC3339_SIZE]);
/* Writes "2026-11-21 09:14:31.123456", zero-terminated; returns its length. Years 1970 to 9999. */
size_t clock_format_sql(utc_us time, char text[SQL_TIME_SIZE]);
/* Parses "2026-11-21 09:14:31" with an optional fraction of up to six digits. False: invalid. */
bool clock_parse_sql(struct bytes text, utc_us *ret_time) MUST_CHECK;
/*
 * Parses "2026-11-21T02:14:00Z", with an optional fraction of up to six digits, and with Z or an offset such as +01:00.
 * False: invalid.
 */
bool clock_parse_rfc3339(struct bytes text, utc_us *ret_time) MUST_CHECK;
#endif
