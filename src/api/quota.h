/* SPDX-License-Identifier: MIT */
/* Quotas of principals: what they use, and the refusal beyond (docs/security.md). The limits are in core/quotas.h. */
#ifndef API_QUOTA_H
#define API_QUOTA_H

#include <pthread.h>

#include "core/quotas.h"

struct exchange;

/* The counts of one principal, on all threads. They outlive a reload. */
struct quota_state {
    pthread_mutex_t mutex;
    struct usage usage;            /* under `mutex`, like all members */
    uint64_t refused[QUOTA_COUNT]; /* requests that were answered 429 */
    bool limited[QUOTA_COUNT];     /* it had this quota at some time */
};

void quota_state_init(struct quota_state *state);
void quota_state_release(struct quota_state *state);

/*
 * Takes `amount` of a quota of the caller. False: it does not fit, and the exchange's answer is 429. `bytes` and
 * `waiting` are given back at the end of the call; they are taken once in a call.
 */
bool quota_take(struct exchange *exchange, enum quota quota, int64_t amount) MUST_CHECK;
/* Gives back connections. */
void quota_give_back(struct quota_state *state, enum quota quota, int64_t amount);
#endif
