/* SPDX-License-Identifier: MIT */
/*
 * Gathering: a batch that goes the long way, on a semaphore that other permitd use, too, waits for their batches. It
 * waits for the row lock before it has read anything, and then takes the operations that have arrived meanwhile. Else
 * these would be another batch, and wait again: batches would be half as large (docs/performance.md).
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
