/* SPDX-License-Identifier: MIT */
/* Text from other parties that is shown on a terminal. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stddef.h>

/*
 * Replaces each byte of a control character (C0, DEL, and C1, which terminals also obey) and each byte that is not
 * UTF-8, which an 8-bit terminal could take for C1, by ?. The length stays the same.
 */
void escape_control_chars(char *text, size_t length);
/* Returns the length of the character at `at` (`left` readable bytes); 0: a control character, or not UTF-8. */
size_t escape_plain_character(const char *at, size_t left);
/* Returns the number of bytes from `at` that can be shown unchanged; 0: `at` is a control character, or not UTF-8. */
size_t escape_plain_length(const char *at, size_t left);
#endif
