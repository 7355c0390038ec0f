/* SPDX-License-Identifier: MIT */
/* What is UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/base.h"

/* The length of the sequence of two bytes or more at `at`, of which `left` bytes may be read; 0 if there is none. */
size_t utf8_length(const unsigned char *at, size_t left);
bool utf8_valid(struct bytes text);
#endif
