/* SPDX-License-Identifier: MIT */
/* Durations as people write them: "500ms", "1.5s", "1h30m", "7d", or a number of seconds with up to three decimals. */
#ifndef BASE_DURATION_H
#define BASE_DURATION_H

#include "base/base.h"

/* The longest duration we take: 100 years. */
#define DURATION_MAX_MS (100LL * 366 * 86400 * 1000)

/* The largest number of seconds without a unit, a day: a larger one was meant as milliseconds. */
#define DURATION_MAX_SECONDS 86400

/*
 * Reads a string with units (ms, s, m, h, d; each at most once, largest first). The last number may have decimals if it
 * comes out as whole milliseconds. False: not a duration, or too long; then *ret_ms is untouched.
 */
bool duration_parse(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/* Reads a plain decimal number of seconds such as "300" or "0.25", as in a JSON number, up to DURATION_MAX_SECONDS; no
 * sign, no exponent. */
bool duration_parse_seconds(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/* Either of the two: what the command line and the settings file take. */
bool duration_parse_any(struct bytes text, int64_t *ret_ms) MUST_CHECK;
/* The sentence for a text that is a number over DURATION_MAX_SECONDS; NULL: it is something else. */
const char *duration_hint(struct bytes text);
/* The sentence for a JSON string that duration_parse has refused and that begins as a duration; NULL: it does not. */
const char *duration_text_hint(struct bytes text);
/* "1h30m", "500ms", "0s"; zero-terminated; returns its length. */
enum { DURATION_TEXT_SIZE = 64 };
size_t duration_format(int64_t ms, char text[DURATION_TEXT_SIZE]);
#endif
