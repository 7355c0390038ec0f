/* SPDX-License-Identifier: MIT */
#include "base/bucket.h"

#include <assert.h>

mono_us bucket_take(struct bucket *bucket, int64_t rate, mono_us period, int64_t amount, mono_us now)
{
    assert(rate >= 1 && rate <= BUCKET_MAX_RATE && period >= 1 && period <= BUCKET_MAX_PERIOD);
    assert(amount >= 0 && amount <= BUCKET_MAX_RATE && now >= bucket->at);
    mono_us passed = now - bucket->at;
    bucket->used = passed > bucket->used / rate ? 0 : bucket->used - passed * rate;
    bucket->at = now;
    int64_t size = rate * period;
    int64_t taken = amount * period;
    int64_t most = taken < size ? size - taken : 0; /* that may be used before it */
    if (bucket->used > most)
        return (bucket->used - most + rate - 1) / rate;
    bucket->used += taken;
    return 0;
}
