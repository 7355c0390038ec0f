/* SPDX-License-Identifier: MIT */
/*
 * Failover: the database is another server than before, or an older copy of it. Each batch checks for a failover under
 * its locks, and so does each clock tick. On an idle system the hold therefore ends before the first client connects.
 */
#ifndef ENGINE_FAILOVER_H
#define ENGINE_FAILOVER_H

#include "engine/state.h"

/*
 * Collects the bounds of the tokens issued by up to `max` semaphores, most recently used first, because an older copy
 * of the database lacks the most recent grants. Returns the number of semaphores.
 */
size_t failover_tokens_seen(struct engine *engine, struct tokens_seen *ret_seen, size_t max);
/* Returns true if a semaphore of the view would issue tokens again that this process has seen. */
bool failover_tokens_behind(struct engine *engine, const struct view *view);
/*
 * Raises the epoch with clock->advance_epoch, and makes each task of the engine drop its session before the next use.
 * The caller has no open transaction.
 */
enum permit_status failover_run(struct engine *engine, struct store *store, enum epoch_cause cause,
                                uint64_t seen) MUST_CHECK;
#endif
