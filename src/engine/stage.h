/* SPDX-License-Identifier: MIT */
/*
 * One atomic state per operation: whether its COMMIT was sent, or its client was answered. If the worker and the HTTP
 * loop change it at the same time, the first one succeeds and the second one gives way. So a grant never follows a
 * refusal (P22):
 *
 *     OPEN --> SENT      it is in a packet with COMMIT; an answer without a decision is then outcome_unknown
 *          <--           the transaction has certainly not written it; it may be answered again
 *     OPEN --> ANSWERED  its client was answered that nothing was done; no packet may carry it
 *
 * A stage of zero bytes is OPEN.
 */
#ifndef ENGINE_STAGE_H
#define ENGINE_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"

enum stage_value { STAGE_OPEN, STAGE_SENT, STAGE_ANSWERED };

struct stage {
    _Atomic enum stage_value value;
};

/* Moves OPEN to `next`. Returns true if the stage is `next` now. */
static inline bool stage_move(struct stage *stage, enum stage_value next)
{
    enum stage_value seen = STAGE_OPEN;
    return atomic_compare_exchange_strong(&stage->value, &seen, next) || seen == next;
}

/* Call it before the packet with COMMIT. False: the client was answered; the packet must not carry the operation. */
static inline bool stage_send(struct stage *stage) MUST_CHECK;
static inline bool stage_send(struct stage *stage)
{
    return stage_move(stage, STAGE_SENT);
}

/* Call it before an answer without a decision. False: the operation was sent, so the outcome is unknown. */
static inline bool stage_answer(struct stage *stage) MUST_CHECK;
static inline bool stage_answer(struct stage *stage)
{
    return stage_move(stage, STAGE_ANSWERED);
}

/* Moves SENT to OPEN: the transaction has ended, and what it has written of the operation is known or read anew. */
static inline void stage_reopen(struct stage *stage)
{
    enum stage_value seen = STAGE_SENT;
    (void)atomic_compare_exchange_strong(&stage->value, &seen, STAGE_OPEN);
}

static inline bool stage_is_sent(const struct stage *stage)
{
    return atomic_load(&stage->value) == STAGE_SENT;
}

static inline bool stage_is_answered(const struct stage *stage)
{
    return atomic_load(&stage->value) == STAGE_ANSWERED;
}
#endif
