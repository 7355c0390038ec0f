/* SPDX-License-Identifier: MIT */
/*
 * Key cache: maps the external_id of a live request to its semaphores, so that a release or a renewal needs no resolve
 * query. Entries are hints: a stale entry costs a put-back, a missing entry costs a query. The caller locks.
 */
#ifndef ENGINE_KEY_CACHE_H
#define ENGINE_KEY_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "engine/row_cache.h"

struct key_cache {
    struct map entries;
    struct list recent; /* entries, oldest first */
    size_t max;
    size_t row_bytes, max_row_bytes; /* of the cached rows */
};

/* Units of one semaphore that a request holds. */
struct share {
    uint64_t semaphore_id;
    int64_t count; /* units; 0: unknown */
};

struct key_entry {
    struct map_node node;
    struct list recent;
    struct cached_request *cached; /* its row; NULL: unknown */
    size_t count;                  /* of shares */
    struct share shares[];         /* ascending by semaphore_id; the bytes of the key follow */
};

void key_cache_init(struct key_cache *directory, size_t max_entries, size_t max_row_bytes);
void key_cache_release(struct key_cache *directory);
/* Adds or replaces the entry of a key; evicts the oldest entry if the cache is full. Out of memory: stores nothing. */
void key_cache_put(struct key_cache *directory, struct bytes external_id, const struct share *shares, size_t count);
/* NULL: no entry. The result is valid until the next call that changes the cache. */
const struct key_entry *key_cache_find(const struct key_cache *directory, struct bytes external_id);
/*
 * Replaces the cached row of a key, and takes it over; frees it if the key has no entry. NULL: the row is unknown. Evicts
 * the oldest entries if the rows need too much memory.
 */
void key_cache_set_row(struct key_cache *directory, struct bytes external_id, struct cached_request *row);
/* Removes the entry of a key, if there is one. */
void key_cache_remove(struct key_cache *directory, struct bytes external_id);
#endif
