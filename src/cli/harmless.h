/* SPDX-License-Identifier: MIT */
/* Texts of others on somebody's terminal. */
#ifndef CLI_HARMLESS_H
#define CLI_HARMLESS_H

#include <stddef.h>

/* Puts ? in place of every control character (C0, DEL, and C1, which terminals obey too); the length stays. */
void harmless_make(char *text, size_t length);
#endif
