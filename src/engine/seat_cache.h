/* SPDX-License-Identifier: MIT */
/*
 * Seat cache: the seat maps that this process has built. A map is right while config_version of its semaphore is the one
 * at which its seats were read, within one epoch and one generation of copies (rows.h). A batch proves version and epoch,
 * under the lock or with its write. The least recently used maps go when all together have too many seats.
 *
 * A batch that uses a map holds it, so it may leave the cache meanwhile. The caller locks, but for seat_layout_read.
 */
#ifndef ENGINE_SEAT_CACHE_H
#define ENGINE_SEAT_CACHE_H

#include "base/list.h"
#include "core/best.h"
#include "permit/status.h"

struct store;

struct seat_cache {
    struct list recent; /* struct seat_layout, least recently used first */
    size_t seats;       /* of all of them */
};

struct seat_key {
    uint64_t semaphore_id, config_version, epoch, generation;
};

/* A map that others may use at the same time: it does not change. */
struct seat_layout {
    struct list recent;
    struct seat_key key;
    unsigned held;      /* by batches, and by the cache */
    struct arena arena; /* of the map, and of the texts of its seats */
    struct seat_map map;
};

void seat_cache_init(struct seat_cache *cache);
void seat_cache_release(struct seat_cache *cache);
/* Returns a map, held for the caller; NULL: it is not there. */
struct seat_layout *seat_cache_find(struct seat_cache *cache, const struct seat_key *key);
/* Adds a map in the place of an older one of its semaphore. */
void seat_cache_put(struct seat_cache *cache, struct seat_layout *layout);
/* Reads the seats of a semaphore that the batch has locked. The map is held for the caller. */
enum permit_status seat_layout_read(struct store *store, const struct seat_key *key,
                                    struct seat_layout **ret_layout) MUST_CHECK;
/* Ends one hold. */
void seat_layout_drop(struct seat_layout *layout);
#endif
