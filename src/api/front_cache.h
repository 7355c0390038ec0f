/* SPDX-License-Identifier: MIT */
/*
 * Front cache: the longest holders and first waiters of semaphores, as they were at most one second ago. So a crowd
 * that is refused for one semaphore, or asks why it waits, costs one query a second. For refusals (refusal.h) and /why,
 * on any thread.
 */
#ifndef API_FRONT_CACHE_H
#define API_FRONT_CACHE_H

#include "store/query.h"

struct front_cache;

/* NULL: out of memory. */
struct front_cache *front_cache_new(void) MUST_CHECK;
/* Accepts NULL. */
void front_cache_free(struct front_cache *cache);
/* Copies the front of a semaphore to the arena. False: none was read within the last second, or out of memory. */
bool front_cache_get(struct front_cache *cache, uint64_t semaphore_id, struct arena *arena,
                     struct semaphore_front *ret_front) MUST_CHECK;
/*
 * Finds the fronts of at most REQUEST_MAX_SEMAPHORES semaphores: copies of the cached ones, and those that it reads,
 * which are cached then. All are in the arena.
 */
enum permit_status front_cache_find(struct front_cache *cache, struct store *store, const uint64_t *semaphore_ids,
                                    size_t count, struct arena *arena, struct semaphore_front *ret_fronts) MUST_CHECK;
#endif
