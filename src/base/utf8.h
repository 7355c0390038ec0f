/* SPDX-License-Identifier: MIT */
/* UTF-8 validation: shortest forms only, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/base.h"

/* Returns the length of the multi-byte sequence at `at` (`left` readable bytes); 0: invalid. */
size_t utf8_length(const unsigned char *at, size_t left);
/* Returns the code point of the valid character at `at`, which has `length` bytes. */
uint32_t utf8_code_point(const unsigned char *at, size_t length);
bool utf8_valid(struct bytes text);
#endif
