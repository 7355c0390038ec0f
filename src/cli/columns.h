/* SPDX-License-Identifier: MIT */
/* The columns that UTF-8 text takes on a terminal: two for a wide character, none for one that combines. */
#ifndef CLI_COLUMNS_H
#define CLI_COLUMNS_H

#include <stddef.h>

/* A byte that is not UTF-8 counts as one column. */
size_t columns_of(const char *text);
/* Returns the number of bytes of the longest beginning that takes at most `columns`. */
size_t columns_fit(const char *text, size_t columns);
#endif
