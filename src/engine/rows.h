/* SPDX-License-Identifier: MIT */
/*
 * Rows: copies of rows, as this process last read or wrote them: of a semaphore its row, its free slots and its queue;
 * of a request that is held its row, with its permits.
 *
 *     semaphore_entry -> semaphore_copy: row, free slots, queue
 *                          `held` <-----> share of a key_entry: the semaphores of a key, and its row <- rows->keys
 *
 * Every change of a request that is held or waits, of its permits or its slots raises the `version` of all its
 * semaphores in the same transaction; a counted replay does not. So as long as the version of a semaphore is that of its copy, all the rest is
 * right, too. A copy with another version is dropped, with the rows of all requests that hold units of the semaphore.
 *
 * The semaphores of a key are a hint as well: with it a release or a renewal needs no resolve query. It stays when the
 * row is dropped. A stale hint costs a put-back, a missing one costs a query.
 *
 * A session that a worker opens may reach another life of the database server, in which a version may be made a second
 * time. So it begins a generation, and copies of earlier ones are void: those whose batch began before.
 *
 * The caller locks.
 */
#ifndef ENGINE_ROWS_H
#define ENGINE_ROWS_H

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "core/plan.h"

struct semaphore_cache;
struct semaphore_entry;

struct rows {
    struct map keys;         /* struct key_entry */
    struct list recent;      /* the same, oldest first */
    size_t bytes, max_bytes; /* of the entries */
    uint64_t generation;     /* number of sessions that workers have opened */
};

/* A semaphore, as of one version. */
struct semaphore_copy {
    struct semaphore row; /* its strings are in `text` */
    char *text;
    uint64_t generation;
    bool has_slots;           /* the free slots up to free_bound are known */
    uint32_t free_bound;      /* UINT32_MAX: all are known */
    bool labelled;            /* some of them may have labels, which are not copied */
    uint64_t *free_words;     /* a bit per slot up to the capacity: it is free and known */
    size_t free_count;        /* set bits */
    bool has_queue;           /* `waiters` are all for which a client asks */
    struct request **waiters; /* in the order of their places; all wait at this server, for any units of this semaphore
                                  alone */
    size_t waiter_count;
    struct list held; /* struct share of the requests with a row */
};

/* Units of one semaphore that a request holds. */
struct share {
    uint64_t semaphore_id;
    int64_t count;
    struct list node; /* in `held` of the semaphore's copy while the row of `key` is known */
    struct key_entry *key;
};

/* The semaphores of the request with a key, and its row. One piece of memory. */
struct key_entry {
    struct map_node node;
    struct list recent;
    size_t size;            /* bytes of all */
    struct request request; /* held and claimed */
    bool has_row;           /* `request` is its row; else only the key in it counts */
    size_t count;           /* of shares */
    struct share shares[];  /* ascending by semaphore_id */
};

void rows_init(struct rows *rows, size_t max_bytes);
void rows_release(struct rows *rows);

/* ---- learning ---- */

/* A commit. */
struct committed {
    const struct view *read; /* the rows before it */
    const struct plan *plan;
    bool copies;         /* false: only the semaphores of keys are stored */
    uint64_t generation; /* rows->generation when its batch began */
    uint64_t server_id;  /* this server's */
    mono_us now;
    int64_t shared_pause_us; /* a semaphore that others have changed twice within this time is shared for as long */
};

/*
 * Stores the rows as they are after a commit; one without changes proves only which copies are wrong. Out of memory:
 * stores less.
 */
void rows_learn(struct rows *rows, struct semaphore_cache *semaphores, const struct committed *commit);
/*
 * Stores the copy of one semaphore, whose index in `read` and `plan` is `index`. If *copy is not the semaphore as it
 * was read, drops it first.
 */
void semaphore_copy_store(struct semaphore_copy **copy, size_t index, const struct committed *commit);
/* Frees the copy, and drops the rows of the requests that hold units of it; accepts NULL. Sets it to NULL. */
void semaphore_copy_drop(struct semaphore_copy **copy);
/*
 * Adds or replaces the entry of a request that is held; with its row if all its semaphores are copied, unless it is too
 * large. `semaphores` NULL: without its row. Evicts the oldest entries if they need too much
 * memory. Out of memory: stores nothing.
 */
void rows_put_key(struct rows *rows, struct semaphore_cache *semaphores, const struct request *request);
/* Removes the entry of a key, if there is one. */
void rows_remove_key(struct rows *rows, struct bytes external_id);

/* ---- reading ---- */

/* Returns the copy of a semaphore; NULL: there is none of this generation. Valid until the next call that learns. */
struct semaphore_copy *rows_find(const struct rows *rows, struct semaphore_entry *entry);
/* Returns the entry of a key; NULL: there is none. Valid until the next call that changes the keys. */
const struct key_entry *rows_find_key(const struct rows *rows, struct bytes external_id);
/* Copies the row of a semaphore, with its strings, into the arena. False: out of memory. */
bool semaphore_copy_load(const struct semaphore_copy *copy, struct arena *arena, struct semaphore *ret_row) MUST_CHECK;
/* Returns true if all free slots are known. */
static inline bool semaphore_copy_has_all_slots(const struct semaphore_copy *copy)
{
    return copy->has_slots && copy->free_bound == UINT32_MAX;
}
/*
 * Copies the lowest `wanted` free slots, as batch->lock reads them. False: not all of these are known, or out of
 * memory.
 */
bool semaphore_copy_load_slots(const struct semaphore_copy *copy, int64_t wanted, struct arena *arena,
                               struct free_slots *ret_slots) MUST_CHECK;
/*
 * Appends the waiters to the requests of the view, as batch->read_waiters reads them; there is room for read->limit +
 * 1. *ret_units: the units that they want in all. False: the queue is not known, its waiters wait at an earlier id of this
 * server, or out of memory. On failure the view must not be used.
 */
bool semaphore_copy_load_queue(const struct semaphore_copy *copy, const struct queue_read *read, uint64_t server_id,
                               struct arena *arena, struct view *view, int64_t *ret_units) MUST_CHECK;
/* Copies a request into the arena, with its wants decoded. False: out of memory. */
bool request_load(const struct request *request, struct arena *arena, struct request *ret_request) MUST_CHECK;
#endif
