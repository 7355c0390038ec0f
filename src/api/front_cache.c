/* SPDX-License-Identifier: MIT */
#include "api/front_cache.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "store/store.h"

enum {
    FRESH_US = US_PER_SECOND,
    PLACES = 1024,
    CHUNK = 512,
    PLACE_MAX = 64 * 1024,
};

/* Semaphores share the places by their ids: the one that was read last has the place. */
struct place {
    uint64_t semaphore_id; /* 0: the place is free */
    mono_us read_at;
    struct semaphore_front front;
    struct arena arena; /* of the front */
};

struct front_cache {
    struct mutex mutex; /* guards the places */
    struct place places[PLACES];
};

struct front_cache *front_cache_new(void)
{
    struct front_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    mutex_init(&cache->mutex);
    for (size_t i = 0; i < PLACES; i++)
        arena_init(&cache->places[i].arena, CHUNK, PLACE_MAX);
    return cache;
}

void front_cache_free(struct front_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < PLACES; i++)
        arena_release(&cache->places[i].arena);
    mutex_destroy(&cache->mutex);
    free(cache);
}

/* False: out of memory. */
static bool copy_front(struct arena *arena, const struct semaphore_front *from, struct semaphore_front *ret_front)
{
    struct semaphore_front copy = {
        .holders = arena_array(arena, from->holder_count, sizeof *copy.holders),
        .holder_count = from->holder_count,
        .waiters = arena_array(arena, from->waiter_count, sizeof *copy.waiters),
        .waiter_count = from->waiter_count,
    };
    bool copied = copy.holders && copy.waiters;
    for (size_t i = 0; copied && i < from->holder_count; i++) {
        copy.holders[i] = from->holders[i];
        copy.holders[i].external_id = arena_copy(arena, from->holders[i].external_id);
        copy.holders[i].owner = arena_copy(arena, from->holders[i].owner);
        copied = copy.holders[i].external_id.data && copy.holders[i].owner.data;
    }
    for (size_t i = 0; copied && i < from->waiter_count; i++) {
        copy.waiters[i] = arena_copy(arena, from->waiters[i]);
        copied = copy.waiters[i].data;
    }
    if (copied)
        *ret_front = copy;
    return copied;
}

bool front_cache_get(struct front_cache *cache, uint64_t semaphore_id, struct arena *arena,
                     struct semaphore_front *ret_front)
{
    mutex_lock(&cache->mutex);
    const struct place *place = &cache->places[semaphore_id % PLACES];
    bool found = place->semaphore_id == semaphore_id && clock_mono() - place->read_at <= FRESH_US &&
                 copy_front(arena, &place->front, ret_front);
    mutex_unlock(&cache->mutex);
    return found;
}

static void put(struct front_cache *cache, uint64_t semaphore_id, const struct semaphore_front *front)
{
    mutex_lock(&cache->mutex);
    struct place *place = &cache->places[semaphore_id % PLACES];
    arena_clear(&place->arena);
    place->semaphore_id = copy_front(&place->arena, front, &place->front) ? semaphore_id : 0;
    place->read_at = clock_mono();
    mutex_unlock(&cache->mutex);
}

enum permit_status front_cache_find(struct front_cache *cache, struct store *store, const uint64_t *semaphore_ids,
                                    size_t count, struct arena *arena, struct semaphore_front *ret_fronts)
{
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    struct semaphore_front fronts[REQUEST_MAX_SEMAPHORES];
    size_t places[REQUEST_MAX_SEMAPHORES]; /* of these in ret_fronts */
    size_t missing = 0;
    struct query_time time;
    assert(count <= REQUEST_MAX_SEMAPHORES);
    for (size_t i = 0; i < count; i++)
        if (!front_cache_get(cache, semaphore_ids[i], arena, &ret_fronts[i])) {
            ids[missing] = semaphore_ids[i];
            places[missing++] = i;
        }
    enum permit_status status = missing ? store->queries->fronts(store, ids, missing, arena, fronts, &time) : PERMIT_OK;
    for (size_t i = 0; status == PERMIT_OK && i < missing; i++) {
        put(cache, ids[i], &fronts[i]);
        ret_fronts[places[i]] = fronts[i];
    }
    return status;
}
