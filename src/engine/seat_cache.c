/* SPDX-License-Identifier: MIT */
#include "engine/seat_cache.h"

#include <stdlib.h>

#include "store/store.h"

enum { SEATS_MAX = 2 * SLOTS_MAX_CAPACITY, ARENA_CHUNK = 64 * 1024, ARENA_MAX = 64 * 1024 * 1024 };

struct seat_layout {
    struct list recent;
    uint64_t semaphore_id, config_version, epoch;
    struct arena arena; /* of the map, and of the texts of its seats */
    struct seat_map map;
};

static void layout_free(struct seat_cache *cache, struct seat_layout *layout)
{
    cache->seats -= layout->map.count;
    list_remove(&layout->recent);
    arena_release(&layout->arena);
    free(layout);
}

/* Frees the least recently used maps while there are more seats than `max`. */
static void cut(struct seat_cache *cache, size_t max)
{
    if (!cache->recent.next)
        list_init(&cache->recent);
    list_for_each (node, next, &cache->recent)
        if (cache->seats > max || max == 0)
            layout_free(cache, LIST_ENTRY(node, struct seat_layout, recent));
}

void seat_cache_trim(struct seat_cache *cache)
{
    cut(cache, SEATS_MAX);
}

void seat_cache_release(struct seat_cache *cache)
{
    cut(cache, 0);
}

/* Returns the map if it is right; one that is not goes. */
static struct seat_layout *find(struct seat_cache *cache, const struct semaphore *semaphore, uint64_t epoch)
{
    list_for_each (node, next, &cache->recent) {
        struct seat_layout *layout = LIST_ENTRY(node, struct seat_layout, recent);
        if (layout->semaphore_id != semaphore->id)
            continue;
        if (layout->config_version == semaphore->config_version && layout->epoch == epoch)
            return layout;
        layout_free(cache, layout);
        break;
    }
    return NULL;
}

static enum permit_status layout_read(struct seat_cache *cache, struct store *store, const struct semaphore *semaphore,
                                      uint64_t epoch, struct seat_layout **ret_layout)
{
    struct seat_layout *layout = calloc(1, sizeof *layout);
    struct seats seats = {0};
    if (!layout)
        return PERMIT_NO_MEMORY;
    layout->semaphore_id = semaphore->id;
    layout->config_version = semaphore->config_version;
    layout->epoch = epoch;
    arena_init(&layout->arena, ARENA_CHUNK, ARENA_MAX);
    enum permit_status status = store->batch->read_seats(store, semaphore->id, &layout->arena, &seats);
    if (status == PERMIT_OK && !seat_map_make(&layout->map, &seats, &layout->arena))
        status = PERMIT_NO_MEMORY;
    if (status != PERMIT_OK) {
        arena_release(&layout->arena);
        free(layout);
        return status;
    }
    list_append(&cache->recent, &layout->recent);
    cache->seats += layout->map.count;
    *ret_layout = layout;
    return PERMIT_OK;
}

enum permit_status seat_cache_get(struct seat_cache *cache, struct store *store, const struct semaphore *semaphore,
                                  uint64_t epoch, const struct seat_map **ret_map)
{
    struct seat_layout *layout = find(cache, semaphore, epoch);
    enum permit_status status = layout ? PERMIT_OK : layout_read(cache, store, semaphore, epoch, &layout);
    if (status != PERMIT_OK)
        return status;
    list_remove(&layout->recent);
    list_append(&cache->recent, &layout->recent);
    *ret_map = &layout->map;
    return PERMIT_OK;
}
