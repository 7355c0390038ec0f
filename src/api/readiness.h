/* SPDX-License-Identifier: MIT */
/* GET /readyz: whether permitd can serve, for load balancers. */
#ifndef API_READINESS_H
#define API_READINESS_H

#include "base/base.h"

/* The last look at the database. One for all threads. */
struct readiness;

/* NULL: out of memory. */
struct readiness *readiness_new(void) MUST_CHECK;
/* Accepts NULL. */
void readiness_free(struct readiness *readiness);
#endif
