/* SPDX-License-Identifier: MIT */
/* Text from other parties that is shown on a terminal. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stddef.h>

/*
 * Control characters are C0, DEL, and C1, which terminals also obey. A byte that is not UTF-8 counts as one: an 8-bit
 * terminal could take it for C1. Format characters are invisible and change the text around them, such as U+202E, which
 * turns its direction; also the line separators U+2028 and U+2029. The joiners U+200C and U+200D, which several scripts
 * need within words, are not among them.
 */

/* Replaces each byte of a control or format character by ?. The length stays the same. */
void escape_control_chars(char *text, size_t length);
/* Returns the length of the character at `at` (`left` readable bytes); 0: a control character. */
size_t escape_plain_character(const char *at, size_t left);
/* Returns the number of bytes from `at` to the first control character. */
size_t escape_plain_length(const char *at, size_t left);
/* The same, for control and format characters. */
size_t escape_shown_character(const char *at, size_t left);
size_t escape_shown_length(const char *at, size_t left);
#endif
