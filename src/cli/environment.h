/* SPDX-License-Identifier: MIT */
/* What a command that runs under a permit finds in its environment (permitctl run --help lists it). */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

#include "base/base.h"
#include "permit/permit.h"

/*
 * Sets the variables for this grant in our own environment, which the command inherits, and removes those of a permit
 * under which we run ourselves. False: no memory.
 */
bool environment_set(const struct permit_request *request, const char *grant_json) MUST_CHECK;
#endif
