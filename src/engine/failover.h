/* SPDX-License-Identifier: MIT */
/*
 * Failover: the database that answers is another server than before, or an older copy of it. Each batch looks for it,
 * under its locks, and so does the keeper with each tick: on an idle system the hold is over before the first client
 * comes.
 */
#ifndef ENGINE_FAILOVER_H
#define ENGINE_FAILOVER_H

#include "engine/state.h"

/* Semaphores that were used last, with what is known of their tokens; how many. A copy lacks the last grants first. */
size_t failover_tokens_seen(struct engine *engine, struct tokens_seen *ret_seen, size_t max);
/* True if a semaphore of the view would hand out tokens again that this process has seen. */
bool failover_tokens_behind(struct engine *engine, const struct view *view);
/*
 * Raises the epoch, as store_raise_epoch does, and makes each thread of the engine drop its session before it uses it
 * again. No transaction is open.
 */
enum permit_status failover_run(struct engine *engine, struct store *store, enum epoch_cause cause,
                                uint64_t seen) MUST_CHECK;
#endif
