/* SPDX-License-Identifier: MIT */
/* Tests of strict.c. */
#ifndef STRICT_H
#define STRICT_H

#include <stdbool.h>

bool strict_rule_holds(void);
bool strict_file_holds(const char *path);
bool strict_foreign_file_is_refused(const char *path);
#endif
