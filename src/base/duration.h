/* SPDX-License-Identifier: MIT */
/* Durations as text: "500ms", "1.5s", "1h30m", "7d", or a number of seconds with up to three decimals. */
#ifndef BASE_DURATION_H
#define BASE_DURATION_H

#include "base/base.h"

/* The longest accepted duration: 100 years. */
#define DURATION_MAX_MS (100LL * 366 * 86400 * 1000)

/* The largest number of seconds accepted without a unit, one day: a larger number probably means milliseconds. */
#define DURATION_MAX_SECONDS 86400

/*
 * Parses a string with units (ms, s, m, h, d; each at most once, largest first). The last number may have decimals if
 * the result is a whole number of milliseconds. False: not a duration, or too long; *ret_ms is then untouched.
 */
bool duration_parse(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/*
 * Parses a plain decimal number of seconds such as "300" or "0.25", as in a JSON number, up to DURATION_MAX_SECONDS; no
 * sign, no exponent.
 */
bool duration_parse_seconds(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/* Parses either form, as on the command line and in the settings file. */
bool duration_parse_any(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/*
 * Returns the rule that the text breaks: a number has at most three decimals, no exponent, and is at most
 * DURATION_MAX_SECONDS; a text with units is at most DURATION_MAX_MS. NULL: it breaks none of these.
 */
const char *duration_hint(struct bytes text);
/* Returns the hint for a JSON string that begins with a digit and that duration_parse refuses; NULL: any other. */
const char *duration_text_hint(struct bytes text);
/* Writes "1h30m", "500ms", "0s"; zero-terminated; returns its length. */
enum { DURATION_TEXT_SIZE = 64 };
size_t duration_format(int64_t ms, char text[DURATION_TEXT_SIZE]);
#endif
