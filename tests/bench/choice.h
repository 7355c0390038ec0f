/* SPDX-License-Identifier: MIT */
/* The command line of a benchmark with several parts: [--quick] [PART ...]. */
#ifndef CHOICE_H
#define CHOICE_H

#include <stdbool.h>
#include <stddef.h>

enum { CHOICE_MAX = 16 };

struct choice {
    bool quick;
    bool chosen[CHOICE_MAX]; /* all, if none is named */
};

/*
 * `rows` is a table whose rows have this size and begin with the name of a part. kit_fail with the usage if an argument
 * is unknown.
 */
struct choice choice_read(int argc, char **argv, const void *rows, size_t row_size, size_t count);
#endif
