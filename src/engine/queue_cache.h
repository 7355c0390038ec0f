/* SPDX-License-Identifier: MIT */
/*
 * Queue cache: the requests that wait for a semaphore, as this process last read or wrote them. It belongs to the cached
 * row of the semaphore (engine/row_cache.h) and is valid as long as that is, because whatever changes a waiting request
 * raises the `version` of its semaphores in the same transaction.
 */
#ifndef ENGINE_QUEUE_CACHE_H
#define ENGINE_QUEUE_CACHE_H

#include "base/clock.h"
#include "core/plan.h"

struct cached_request;

/*
 * The queue of one semaphore. It is complete if these are all waiters for which a client asks, and all wait at this
 * server, for any units of this semaphore alone.
 */
struct cached_queue {
    bool known;                      /* complete: see cached_queue_store */
    struct cached_request **waiters; /* in the order of their places */
    size_t count;
    mono_us read_from; /* not `known`: when a batch should read the whole queue next */
};

void cached_queue_release(struct cached_queue *queue);
/*
 * Stores the queue after a commit that `plan` describes. `read` has the rows as they were before it; the semaphore's
 * index in it is `index`. `goes_on`: the cached queue is that of `read`. server_id is this server's. If the queue is too
 * long, or has other waiters than these, or out of memory: not `known`.
 */
void cached_queue_store(struct cached_queue *queue, const struct view *read, size_t index, const struct plan *plan,
                        bool goes_on, uint64_t server_id);
/*
 * Appends the waiters to the requests of the view, as store_read_waiters reads them; there is room for
 * queue_read_size(read) + 1. *ret_units: what they want in all. False: the queue is not known, its waiters wait at an
 * earlier id of this server, or out of memory. On failure the view must not be used.
 */
bool cached_queue_load(const struct cached_queue *queue, const struct queue_read *read, uint64_t server_id,
                       struct arena *arena, struct view *view, int64_t *ret_units) MUST_CHECK;
#endif
