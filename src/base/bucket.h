/* SPDX-License-Identifier: MIT */
/* A token bucket: at most `rate` in each `period` on average, and as many at once. Pure: the caller has the clock. */
#ifndef BASE_BUCKET_H
#define BASE_BUCKET_H

#include "base/base.h"

#define BUCKET_MAX_RATE   1000000000LL
#define BUCKET_MAX_PERIOD (60 * (mono_us)US_PER_SECOND)

/* Zeroed: a full bucket. */
struct bucket {
    int64_t used; /* the amount that a full bucket has more, times the period */
    mono_us at;   /* of the last call */
};

/*
 * Takes `amount`, and returns 0. If it does not fit, takes nothing and returns the microseconds until it does, if
 * nothing else is taken meanwhile. An amount above `rate` fits into a full bucket, and then more than a period must
 * pass before anything fits. 1 <= rate <= BUCKET_MAX_RATE, 0 <= amount <= BUCKET_MAX_RATE, 1 <= period <=
 * BUCKET_MAX_PERIOD. `rate` may differ from call to call.
 */
mono_us bucket_take(struct bucket *bucket, int64_t rate, mono_us period, int64_t amount, mono_us now) MUST_CHECK;
#endif
