/* SPDX-License-Identifier: MIT */
/*
 * Row cache: the rows of semaphores, and of requests that are held, as this process last read or wrote them. A cached
 * row is a copy with its strings. Every change of a held request, its permits or its slots raises the `version` of all
 * its semaphores in the same transaction. So as long as the versions are the cached ones, all the rest is right, too.
 *
 * A chain is an unbroken series of versions of one semaphore of which this process knows every change. A cached request
 * is valid while the chain of each of its semaphores goes on.
 */
#ifndef ENGINE_ROW_CACHE_H
#define ENGINE_ROW_CACHE_H

#include "core/plan.h"
#include "engine/queue_cache.h"

/* The row of a semaphore, and which of its slots are free. */
struct cached_semaphore {
    struct semaphore row; /* its strings are in `text` */
    bool valid;           /* false: only long_until and changed_at count */
    uint64_t life;        /* engine->lives when the batch began that read or wrote it */
    uint64_t chain;       /* never the same for two chains of this process; not 0 */
    mono_us changed_at;   /* when a batch last found that another process had changed it; 0: never */
    mono_us long_until;   /* until then its batches go the long way */
    bool has_slots;       /* the free slots up to free_bound are known */
    uint32_t free_bound;  /* UINT32_MAX: all are known */
    uint64_t *free_words; /* a bit per slot up to the capacity: it is free and known */
    size_t free_count;    /* set bits */
    struct cached_queue queue;
    char *text;
};

void cached_semaphore_free(struct cached_semaphore *cached); /* accepts NULL */
/*
 * Stores the row after a commit that `plan` describes, its free slots and its queue. `read` has the rows as they were
 * before it; the semaphore's index in it is `index`. `goes_on`: the cached rows are those of `read`. server_id is this
 * server's. Out of memory: not `valid`.
 */
void cached_semaphore_store(struct cached_semaphore *cached, const struct view *read, size_t index,
                            const struct plan *plan, bool goes_on, uint64_t server_id);
/* Copies the row, with its strings, into the arena. False: out of memory. */
bool cached_semaphore_load(const struct cached_semaphore *cached, struct arena *arena,
                           struct semaphore *ret_row) MUST_CHECK;
/*
 * Copies the lowest `wanted` free slots, as store_lock reads them. False: not all of these are known, or out of
 * memory.
 */
bool cached_semaphore_load_slots(const struct cached_semaphore *cached, int64_t wanted, struct arena *arena,
                                 struct free_slots *ret_slots) MUST_CHECK;

/*
 * A held request, with the chain of each of its permits' semaphores; or one that waits, without any. One piece of memory,
 * for free().
 */
struct cached_request {
    struct request request;
    size_t size; /* bytes of this struct and of all that it points to */
    uint64_t chains[];
};

/*
 * Makes a copy; `chains` has one element per permit. NULL: out of memory, or the request is too large for the cache, or
 * its slots have labels.
 */
struct cached_request *cached_request_new(const struct request *request, const uint64_t *chains) MUST_CHECK;
/* Copies the request into the arena. False: out of memory. */
bool cached_request_load(const struct cached_request *cached, struct arena *arena,
                         struct request *ret_request) MUST_CHECK;
#endif
