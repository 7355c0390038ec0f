/* SPDX-License-Identifier: MIT */
/*
 * Semaphore cache: the data that this process has of a semaphore: its id, name, kind, floor, last row and longest
 * holders, its pre-lock, and its waitlist. Unused entries are evicted when the cache is full. The caller locks.
 */
#ifndef ENGINE_SEMAPHORE_CACHE_H
#define ENGINE_SEMAPHORE_CACHE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "core/request.h"
#include "engine/engine.h"

enum { HOLDERS_MAX = 10 };

/* The longest holders of a semaphore at one moment. Immutable; reference-counted under the engine's mutex. */
struct holders {
    unsigned references;
    mono_us read_at;
    size_t count;
    struct blocking_holder rows[HOLDERS_MAX];
    char strings[]; /* the strings of the rows */
};

struct semaphore_entry {
    struct map_node by_id; /* its key is the bytes of `id` */
    struct map_node by_name;
    struct list recent; /* in cache->recent */
    uint64_t id;
    char *name;                 /* NULL: unknown */
    enum semaphore_kind kind;   /* 0: unknown */
    const void *prelock_holder; /* pre-lock: the batch that holds it; NULL: free */
    unsigned waiting;           /* ops in the queue that need it */
    uint64_t reserved;          /* last pass of the queue in which an op reserved it */
    uint64_t tokens_seen;       /* every lower token may have been issued */
    uint64_t floor;             /* at most 1 s old; a lower value is always safe */
    bool floor_stale;           /* an operation on it was decided since the floor was read */
    struct holders *holders;    /* NULL: never read */

    /* The last row that this process has read: a hint for the waitlist, never the basis of a grant. */
    uint64_t version;          /* 0: no row read */
    struct semaphore row;      /* without strings; the initial settings until a row is read */
    int64_t free_units;        /* free units; 0 while it is paused */
    bool closed;               /* paused, or capacity 0: no unit can be granted */
    bool free_units_uncertain; /* more units may be free than `room`: a holder may be due, or a waiter has left */
    mono_us due_at;            /* earliest time at which a holder may be due */
    mono_us wake_at;           /* time to wake its waiters without a new row; NEVER: none */

    struct list waiters;    /* waitlist: struct wait_place, in order of arrival */
    size_t waiter_count;    /* waiters with clients */
    size_t specific_count;  /* waiters for specific slots, with or without clients */
    struct list waited_for; /* in waiters->cache while the waitlist is not empty */
    struct heap_node due;   /* at the earlier of due_at and wake_at while the waitlist is not empty */

    /* Set when a batch takes the pre-lock; used while waiters join the batch. */
    uint64_t taken_version;     /* `version` at that time */
    int64_t units_for_waiters;  /* units for further waiters of the batch */
    int64_t units_spent_before; /* units that waiters from other waitlists have spent already */
    bool freeing;               /* a request on it ends in the batch */
    bool waiter_skipped;        /* a waiter is left out, or blocked in the batch: later acquires get no new grant */
    uint64_t skipped_arrival;   /* of that waiter */
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

/* Drops one reference; accepts NULL. */
void holders_unref(struct holders *holders);
#endif
