/* SPDX-License-Identifier: MIT */
/*
 * The short path: a batch whose rows are all cached is planned on them and sent as one packet, which takes the locks,
 * writes, proves that the cached rows were right, and commits. If they were not, nothing has happened, and the batch goes
 * the long way: lock and read, then write.
 *
 * The long way is for everything rare: administrative operations, forced releases, ttl "owner", specific slots, slots
 * with labels, queues that are not copied (engine/rows.h), due holders, keys whose request is not cached (except
 * unknown keys of acquires), ends of a dead owner's requests, and refusals for another reason than capacity if nothing
 * changes.
 */
#ifndef ENGINE_SHORT_PATH_H
#define ENGINE_SHORT_PATH_H

#include "engine/state.h"

struct run;
struct worker;

/*
 * Runs the batch on cached rows. *ret_done: it is decided: committed, or proven to change nothing. Else PERMIT_OK means
 * that the batch has to go the long way and no transaction is open; other failures are as in store_apply.
 */
enum permit_status short_path_run(struct worker *worker, struct run *run, bool *ret_done);
/* After a commit, on either path: stores the rows as copies. Caller holds the pre-locks. */
void short_path_learn(struct worker *worker, const struct run *run) REQUIRES(engine_mutex);
/* Returns true if a batch that goes the long way should read the whole queue, to cache it. Takes the engine's mutex. */
bool short_path_wants_queue(struct engine *engine, uint64_t semaphore_id) MUST_CHECK;
#endif
