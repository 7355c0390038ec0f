/* SPDX-License-Identifier: MIT */
/*
 * Gathering: a batch on a semaphore that other permitd change, too, waits for the row lock before it reads, and then
 * takes the operations that have arrived meanwhile. Without this they would be a second batch, which waits again
 * (docs/decisions/0008-gathering-on-shared-semaphores.md). The short path notes which semaphores others change
 * (semaphore_entry.shared_until), so nothing gathers with short_path = off.
 */
#ifndef ENGINE_GATHER_H
#define ENGINE_GATHER_H

#include "engine/worker.h"

/*
 * If the run is a whole batch on one such semaphore: locks its row, and adds what has gathered to the run and its batch.
 * Else does nothing. Failures are those of store_await. Takes the engine's mutex.
 */
enum permit_status gather(struct worker *worker, struct run *run) MUST_CHECK;
#endif
