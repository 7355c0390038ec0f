/* SPDX-License-Identifier: MIT */
/* Texts that come from somebody else and are shown on a terminal. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stddef.h>

/*
 * Puts ? in place of each byte of a control character (C0, DEL, and C1, which terminals obey too) and of what is not
 * UTF-8, where a terminal of 8 bits would find C1. The length stays.
 */
void escape_control_chars(char *text, size_t length);
/* The number of bytes from `at` on that may be shown as they are; 0: `at` is a control character, or not UTF-8. */
size_t escape_plain_length(const char *at, size_t left);
#endif
