/* SPDX-License-Identifier: MIT */
/*
 * Quotas of a principal, in one permitd. Some limit what is under way at a time, and are given back; the others limit
 * what begins in a period.
 */
#ifndef CORE_QUOTAS_H
#define CORE_QUOTAS_H

#include "base/bucket.h"
#include "base/buf.h"

enum quota {
    QUOTA_CONNECTIONS, /* open connections */
    QUOTA_WAITING,     /* acquires with `wait` that have no answer yet */
    QUOTA_BYTES,       /* of bodies whose requests have no answer yet */
    QUOTA_RATE,        /* operations a second */
    QUOTA_UNITS,       /* units and slots that PUT makes, a minute */
    QUOTA_ANSWERS,     /* bytes of answers that are made, or that no client has read; a share (base/budget.h) */
    QUOTA_COUNT,
};

struct quotas {
    int64_t limits[QUOTA_COUNT]; /* 1 to QUOTA_MAX; 0: the file has none */
};

#define QUOTA_MAX BUCKET_MAX_RATE

/* Returns the word of the credentials file. */
const char *quota_word(enum quota quota);
/* Returns the time for which the limit holds, in microseconds; 0: the quota limits what is under way. */
mono_us quota_period(enum quota quota);
/* Returns the quota of a word; QUOTA_COUNT: none. */
enum quota quota_of_word(const char *word);
/*
 * Reads a limit: a whole number from 1 to QUOTA_MAX, or of bytes a size such as 64MiB. Otherwise `why` has what is
 * expected.
 */
bool quota_parse(enum quota quota, const char *text, int64_t *ret_limit, struct buf *why) MUST_CHECK;

/* The present use of the quotas of one principal. Zeroed: none. */
struct usage {
    int64_t under_way[QUOTA_COUNT]; /* of quotas without a period */
    struct bucket buckets[QUOTA_COUNT];
};

/*
 * Takes `amount` of a quota and returns true, if the limits allow it. Quotas without a period are counted without a
 * limit, too, because a limit may be set later. An amount above the limit is allowed alone: if nothing is under way, or
 * the bucket is full. False: nothing is taken; *ret_wait is the time in microseconds until it fits, 0 if that is not
 * known.
 */
bool usage_take(struct usage *usage, const struct quotas *quotas, enum quota quota, int64_t amount, mono_us now,
                mono_us *ret_wait) MUST_CHECK;
/* Gives back what was taken of a quota without a period. */
void usage_give_back(struct usage *usage, enum quota quota, int64_t amount);
#endif
