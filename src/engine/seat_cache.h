/* SPDX-License-Identifier: MIT */
/*
 * Seat cache: the seat maps that a worker has built. A map is right while config_version of its semaphore is the one at
 * which its seats were read, within one epoch. It belongs to one worker, so no lock guards it. The least recently used
 * maps go when all together have too many seats.
 */
#ifndef ENGINE_SEAT_CACHE_H
#define ENGINE_SEAT_CACHE_H

#include "base/list.h"
#include "core/best.h"
#include "core/semaphore.h"
#include "permit/status.h"

struct store;

struct seat_cache {
    struct list recent; /* struct seat_layout, least recently used first; zeroed: empty */
    size_t seats;       /* of all of them */
};

/*
 * Returns the map of a semaphore that the batch has locked; reads its seats if the map is not there. The map stays valid
 * until the next batch of the worker.
 */
enum permit_status seat_cache_get(struct seat_cache *cache, struct store *store, const struct semaphore *semaphore,
                                  uint64_t epoch, const struct seat_map **ret_map) MUST_CHECK;
/* Before a batch: frees maps until the rest are few enough. */
void seat_cache_trim(struct seat_cache *cache);
void seat_cache_release(struct seat_cache *cache);
#endif
