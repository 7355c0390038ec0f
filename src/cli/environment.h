/* SPDX-License-Identifier: MIT */
/* The environment of a command that runs under a permit (permitctl run --help lists the variables). */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "base/base.h"
#include "permit/permit.h"

enum { ENVIRONMENT_PATH_MAX = 4096 };

struct environment {
    char grant_file[ENVIRONMENT_PATH_MAX]; /* "": no file */
};

/*
 * Sets the variables of this grant in the environment of permitctl, which the command inherits, and removes those of an
 * outer permit; unless `keep_credential`, also those with a credential of permitctl, and the passwords in PERMITD_URL.
 * Together they take at most 64 KiB: a list that does not fit is left out, and a grant that does not fit
 * goes to a file. Returns false with errno set; environment_release is needed in that case too.
 */
bool environment_set(struct environment *environment, const struct permit_request *request, const char *grant_json,
                     bool keep_credential) MUST_CHECK;
/* Directory of the file: TMPDIR, or /tmp. */
const char *environment_directory(void);
/* Removes the file. */
void environment_release(struct environment *environment);
#endif
