/* SPDX-License-Identifier: MIT */
#include "engine/semaphore_cache.h"

#include <assert.h>
#include <stdlib.h>

void semaphore_cache_init(struct semaphore_cache *cache, size_t max)
{
    *cache = (struct semaphore_cache){.max = max};
    list_init(&cache->recent);
}

static void entry_free(struct semaphore_cache *cache, struct semaphore_entry *entry)
{
    assert(entry->queued == 0 && !entry->prelock_holder && list_empty(&entry->waiters));
    semaphore_cache_remove_name(cache, entry);
    map_remove(&cache->by_id, &entry->by_id);
    list_remove(&entry->recent);
    semaphore_copy_drop(&entry->copy);
    free(entry);
}

void semaphore_cache_release(struct semaphore_cache *cache)
{
    list_for_each (node, next, &cache->recent)
        entry_free(cache, LIST_ENTRY(node, struct semaphore_entry, recent));
    map_release(&cache->by_id);
    map_release(&cache->by_name);
}

static void entry_touch(struct semaphore_cache *cache, struct semaphore_entry *entry)
{
    list_remove(&entry->recent);
    list_append(&cache->recent, &entry->recent);
}

struct semaphore_entry *semaphore_cache_find_name(struct semaphore_cache *cache, struct bytes name)
{
    struct map_node *node = map_find(&cache->by_name, name);
    if (!node)
        return NULL;
    struct semaphore_entry *entry = MAP_ENTRY(node, struct semaphore_entry, by_name);
    entry_touch(cache, entry);
    return entry;
}

struct semaphore_entry *semaphore_cache_find(struct semaphore_cache *cache, uint64_t id)
{
    struct map_node *node = map_find(&cache->by_id, (struct bytes){(const char *)&id, sizeof id});
    return node ? MAP_ENTRY(node, struct semaphore_entry, by_id) : NULL;
}

/* Evicts the least recently used entries without ops, pre-lock or waiters; checks at most CHECKS_MAX entries. */
static void semaphore_cache_evict(struct semaphore_cache *cache)
{
    enum { CHECKS_MAX = 8 };
    int checked = 0;
    list_for_each (node, next, &cache->recent) {
        if (cache->by_id.count < cache->max || checked++ == CHECKS_MAX)
            break;
        struct semaphore_entry *entry = LIST_ENTRY(node, struct semaphore_entry, recent);
        if (entry->queued == 0 && !entry->prelock_holder && list_empty(&entry->waiters))
            entry_free(cache, entry);
        else
            entry_touch(cache, entry);
    }
}

struct semaphore_entry *semaphore_cache_get(struct semaphore_cache *cache, uint64_t id)
{
    struct semaphore_entry *entry = semaphore_cache_find(cache, id);
    if (entry) {
        entry_touch(cache, entry);
        return entry;
    }
    semaphore_cache_evict(cache);
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->id = id;
    entry->floor = 1;
    entry->floor_stale = true;
    list_init(&entry->waiters);
    entry->rotation = &entry->waiters;
    entry->free_units = INT64_MAX;
    list_init(&entry->waited_for);
    list_init(&entry->calls);
    list_init(&entry->has_calls);
    if (!map_insert(&cache->by_id, &entry->by_id, (struct bytes){(const char *)&entry->id, sizeof entry->id})) {
        free(entry);
        return NULL;
    }
    list_append(&cache->recent, &entry->recent);
    return entry;
}

void semaphore_cache_remove_name(struct semaphore_cache *cache, struct semaphore_entry *entry)
{
    if (!entry->name)
        return;
    map_remove(&cache->by_name, &entry->by_name);
    free(entry->name);
    entry->name = NULL;
}

static void entry_set_name(struct semaphore_cache *cache, struct semaphore_entry *entry, struct bytes name)
{
    if (entry->name && bytes_equal(entry->by_name.key, name))
        return;
    semaphore_cache_remove_name(cache, entry);
    char *copy = strndup(name.data, name.length);
    if (copy && map_insert(&cache->by_name, &entry->by_name, (struct bytes){copy, name.length}))
        entry->name = copy;
    else
        free(copy);
}

void semaphore_cache_put(struct semaphore_cache *cache, uint64_t id, struct bytes name, enum semaphore_kind kind,
                         uint64_t floor)
{
    assert(id);
    struct semaphore_entry *known = semaphore_cache_find_name(cache, name);
    if (known && known->id != id)
        semaphore_cache_remove_name(cache, known);
    struct semaphore_entry *entry = semaphore_cache_get(cache, id);
    if (!entry)
        return;
    entry->kind = kind;
    entry->floor = floor > entry->floor ? floor : entry->floor;
    entry_set_name(cache, entry, name);
}
