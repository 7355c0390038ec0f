/* SPDX-License-Identifier: MIT */
/*
 * How the guards are loaded (docs/fencing.md): where another user has put something of their names first nothing is
 * loaded, loading again keeps marks and grants, and the grants that are documented are enough. kit_fail if not.
 */
#ifndef LOADING_H
#define LOADING_H

#include "stores.h"

/* What a shell prints that runs this command, on both outputs; *ret_good: it has ended with 0. The caller frees it. */
char *loading_print(const char *command, bool *ret_good);
/* It must end with 0; it must not, and print "not loaded" and this part. */
void loading_must(const char *command);
void loading_must_refuse(const char *command, const char *part);

void loading_mariadb(struct store *store);
void loading_postgresql(struct store *store);
void loading_redis(struct store *store);
#endif
