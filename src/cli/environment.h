/* SPDX-License-Identifier: MIT */
/* What a command that runs under a permit finds in its environment (permitctl run --help lists it). */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "base/base.h"
#include "permit/permit.h"

enum { ENVIRONMENT_PATH_MAX = 4096 };

struct environment {
    char grant_file[ENVIRONMENT_PATH_MAX]; /* "": there is none */
};

/*
 * Sets the variables for this grant in our own environment, which the command inherits, and removes those of a permit
 * under which we run ourselves. They have 64 KiB together: a list that does not fit is left out, and a grant that does
 * not goes to a file. False: errno says why not; environment_release all the same.
 */
bool environment_set(struct environment *environment, const struct permit_request *request,
                     const char *grant_json) MUST_CHECK;
/* Where the file is made: TMPDIR, or /tmp. */
const char *environment_directory(void);
/* Removes the file. */
void environment_release(struct environment *environment);
#endif
