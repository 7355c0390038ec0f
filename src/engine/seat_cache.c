/* SPDX-License-Identifier: MIT */
#include "engine/seat_cache.h"

#include <stdlib.h>

#include "store/store.h"

enum { SEATS_MAX = 2 * SLOTS_MAX_CAPACITY, ARENA_CHUNK = 64 * 1024, ARENA_MAX = 64 * 1024 * 1024 };

void seat_layout_drop(struct seat_layout *layout)
{
    if (--layout->held > 0)
        return;
    arena_release(&layout->arena);
    free(layout);
}

static void remove_layout(struct seat_cache *cache, struct seat_layout *layout)
{
    cache->seats -= layout->map.count;
    list_remove(&layout->recent);
    seat_layout_drop(layout);
}

void seat_cache_init(struct seat_cache *cache)
{
    *cache = (struct seat_cache){0};
    list_init(&cache->recent);
}

void seat_cache_release(struct seat_cache *cache)
{
    list_for_each (node, next, &cache->recent)
        remove_layout(cache, LIST_ENTRY(node, struct seat_layout, recent));
}

struct seat_layout *seat_cache_find(struct seat_cache *cache, const struct seat_key *key)
{
    list_for_each (node, next, &cache->recent) {
        struct seat_layout *layout = LIST_ENTRY(node, struct seat_layout, recent);
        if (memcmp(&layout->key, key, sizeof *key) != 0)
            continue;
        list_remove(node);
        list_append(&cache->recent, node);
        layout->held++;
        return layout;
    }
    return NULL;
}

void seat_cache_put(struct seat_cache *cache, struct seat_layout *layout)
{
    list_for_each (node, next, &cache->recent) {
        struct seat_layout *other = LIST_ENTRY(node, struct seat_layout, recent);
        bool too_many = cache->seats + layout->map.count > SEATS_MAX;
        if (too_many || other->key.semaphore_id == layout->key.semaphore_id)
            remove_layout(cache, other);
    }
    list_append(&cache->recent, &layout->recent);
    cache->seats += layout->map.count;
    layout->held++;
}

enum permit_status seat_layout_read(struct store *store, const struct seat_key *key, struct seat_layout **ret_layout)
{
    struct seat_layout *layout = calloc(1, sizeof *layout);
    struct seats seats = {0};
    if (!layout)
        return PERMIT_NO_MEMORY;
    layout->key = *key;
    layout->held = 1;
    list_init(&layout->recent);
    arena_init(&layout->arena, ARENA_CHUNK, ARENA_MAX);
    enum permit_status status = store->batch->read_seats(store, key->semaphore_id, &layout->arena, &seats);
    if (status == PERMIT_OK && !seat_map_make(&layout->map, &seats, &layout->arena))
        status = PERMIT_NO_MEMORY;
    if (status != PERMIT_OK) {
        seat_layout_drop(layout);
        return status;
    }
    *ret_layout = layout;
    return PERMIT_OK;
}
