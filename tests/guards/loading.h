/* SPDX-License-Identifier: MIT */
/*
 * Tests loading of the guards (docs/fencing.md). If another user has created an object with one of their names, nothing
 * is loaded; loading again keeps marks and grants; the documented grants are enough. kit_fail otherwise.
 */
#ifndef LOADING_H
#define LOADING_H

#include "stores.h"

/* Runs the command in a shell and returns both outputs; *ret_good: exit status 0. The caller frees the text. */
char *loading_print(const char *command, bool *ret_good);
/* The first requires exit status 0; the second requires a failure that prints "not loaded" and this part. */
void loading_must(const char *command);
void loading_must_refuse(const char *command, const char *part);

void loading_mariadb(struct store *store);
void loading_postgresql(struct store *store);
void loading_redis(struct store *store);
#endif
