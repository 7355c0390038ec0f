/* SPDX-License-Identifier: MIT */
/* The lines of a --help text. */
#ifndef BASE_HELP_H
#define BASE_HELP_H

#include <stdio.h>

#include "base/base.h"

/*
 * Prints `name`, such as "  --listen ADDRESS", and from column `indent` on the words of `text`, in lines of at most 100
 * columns. A long name gets a line of its own.
 */
void help_print_entry(const char *name, const char *text, int indent, FILE *out);
#endif
