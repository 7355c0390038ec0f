/* SPDX-License-Identifier: MIT */
/*
 * Semaphore cache: the data that this process has of a semaphore: its id, name, kind, floor, its pre-lock, the copy of
 * its rows, and its waiters that are to be woken. Unused entries are evicted when the cache is full. The caller locks.
 */
#ifndef ENGINE_SEMAPHORE_CACHE_H
#define ENGINE_SEMAPHORE_CACHE_H

#include "base/list.h"
#include "base/map.h"
#include "core/request.h"
#include "engine/engine.h"
#include "engine/rows.h"

struct semaphore_entry {
    struct map_node by_id; /* its key is the bytes of `id` */
    struct map_node by_name;
    struct list recent; /* in cache->recent */
    uint64_t id;
    char *name;                  /* NULL: unknown */
    enum semaphore_kind kind;    /* 0: unknown */
    const void *prelock_holder;  /* pre-lock: the batch that holds it; NULL: free */
    unsigned queued;             /* ops in the queue that need it */
    uint64_t reserved;           /* last pass of the queue in which an op reserved it */
    uint64_t tokens_seen;        /* every lower token may have been issued */
    uint64_t floor;              /* at most 1 s old; a lower value is always safe */
    bool has_queue;              /* requests waited for it, through any permitd, when a batch last locked it */
    bool floor_stale;            /* an operation on it was decided since the floor was read */
    struct semaphore_copy *copy; /* see rows_find */
    mono_us changed_at;          /* when a batch last found that another process had changed it; 0: never */
    mono_us shared_until;        /* other processes change it, too: until then its batches lock and read */
    mono_us queue_read_from;     /* its queue is not copied: when a batch should read all of it next */

    struct list waiters;    /* of this server: struct wait_place, in the order of the queue */
    int64_t free_units;     /* by the row that the net has read last; INT64_MAX: none */
    struct list *rotation;  /* the one that waitlist_wake_by_row considers next; &waiters: the first */
    struct list waited_for; /* in waiters->entries while that is not empty */
    struct list calls;      /* struct waiter, whose first semaphore this is: those to be woken when fewer are awake */
    struct list has_calls;  /* in waiters->called while one of them may be woken */
    size_t woken;           /* waiters, whose first semaphore this is, in the queue or in a batch */
};

struct semaphore_cache {
    struct map by_id;
    struct map by_name;
    struct list recent; /* entries, least recently used first */
    size_t max;
};

void semaphore_cache_init(struct semaphore_cache *cache, size_t max);
void semaphore_cache_release(struct semaphore_cache *cache);
/* NULL: no entry with that name. */
struct semaphore_entry *semaphore_cache_find_name(struct semaphore_cache *cache, struct bytes name);
/* NULL: no entry with that id. */
struct semaphore_entry *semaphore_cache_find(struct semaphore_cache *cache, uint64_t id);
/* Returns the entry of this id; creates it if missing. NULL: out of memory. */
struct semaphore_entry *semaphore_cache_get(struct semaphore_cache *cache, uint64_t id) MUST_CHECK;
/* Stores name, kind and floor of a semaphore. Out of memory: stores nothing, or no name. */
void semaphore_cache_put(struct semaphore_cache *cache, uint64_t id, struct bytes name, enum semaphore_kind kind,
                         uint64_t floor);
/* Removes the name from the entry: the name may belong to another semaphore now (after a retirement or a failover). */
void semaphore_cache_remove_name(struct semaphore_cache *cache, struct semaphore_entry *entry);

#endif
