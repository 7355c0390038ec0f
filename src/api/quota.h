/* SPDX-License-Identifier: MIT */
/* Quotas of principals: their use, and the refusal beyond (docs/security.md). The limits are in core/quotas.h. */
#ifndef API_QUOTA_H
#define API_QUOTA_H

#include "base/mutex.h"
#include "core/quotas.h"
#include "http/share.h"

struct exchange;
struct server;

/* The counts of one principal, on all threads. They outlive a reload. */
struct quota_state {
    struct memory_share share; /* its `answering` counts and limits QUOTA_ANSWERS */
    struct mutex mutex;
    struct usage usage;            /* of the other quotas; under `mutex`, like all members below */
    uint64_t refused[QUOTA_COUNT]; /* requests that were answered 429 */
    bool limited[QUOTA_COUNT];     /* it had this quota at some time, or was refused because of it */
};

void quota_state_init(struct quota_state *state, struct server *server);
void quota_state_release(struct quota_state *state);

/*
 * Takes `amount` of a quota of the caller. False: it does not fit, and the exchange's answer is 429. `bytes` and
 * `waiting` are given back at the end of the call; they are taken once in a call.
 */
bool quota_take(struct exchange *exchange, enum quota quota, int64_t amount) MUST_CHECK;
/* Sets the limit of answers to that of the principal's quotas; without one, to a part of the memory of all answers. */
void quota_limit_answers(struct quota_state *state, const struct quotas *quotas);
/*
 * Returns true if the caller's answers are below their limit. False: the exchange's answer is 429. For calls that
 * change something and have large answers: when the answer is made, it is too late for a refusal.
 */
bool quota_has_answers(struct exchange *exchange) MUST_CHECK;
/* The hook refuse_share of the server. */
void quota_refuse_share(struct exchange *exchange);
/* Gives back connections. */
void quota_give_back(struct quota_state *state, enum quota quota, int64_t amount);
#endif
