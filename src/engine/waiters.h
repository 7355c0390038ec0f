/* SPDX-License-Identifier: MIT */
/*
 * The requests that wait at this server: found by key, by id, by semaphore in the order of its queue, and by the time
 * at which they are woken next. waitlist.h says how a waiter is parked, woken and decided.
 */
#ifndef ENGINE_WAITERS_H
#define ENGINE_WAITERS_H

#include "base/heap.h"
#include "core/name.h"
#include "engine/semaphore_cache.h"

enum { WOKEN_MAX = 1000 }; /* waiters of one semaphore that ask at the same time: one row lock may delay them all */

/* A waiter at one of its semaphores. */
struct wait_place {
    struct list node; /* in entry->waiters, in the order of the queue */
    struct waiter *waiter;
    struct semaphore_entry *entry;
    int64_t count;           /* units that it wants */
    uint64_t config_version; /* of the semaphore, in the batch that has decided last that the waiter waits */
};

struct waiter {
    struct engine *engine;
    struct op op;               /* the op that looks at its row, or leaves */
    struct operation operation; /* `mailed` is set as long as it has mail, which that op deletes */
    struct list node;           /* in waiters->all */
    struct list call;           /* in the calls of its first semaphore: it must be woken */
    struct map_node by_key;
    struct map_node by_id;       /* its key is the bytes of request_id */
    struct list clients;         /* struct op, by `node`, in order of arrival */
    char nonce[NONCE_MAX_BYTES]; /* bytes of operation.nonce */
    struct heap_node wake_at; /* when it is woken next: the wait of a client ends, or a failed batch is tried again */
    uint64_t request_id;
    utc_us place, since; /* of its row */
    mono_us parked_at;   /* since when it is here */
    mono_us row_until;   /* end of the wait by its row */
    mono_us taken_at;    /* when its last batch was taken */
    mono_us decided_at;  /* clients that came before were there when a batch decided last that it waits */
    enum {
        LOOK_NONE,
        LOOK_PENDING, /* its op is in the queue or in a batch */
        LOOK_AGAIN,   /* ... in a batch, and must be woken once more after it */
    } look;
    bool in_grant; /* a packet that grants its key is under way */
    size_t place_count;
    struct wait_place places[]; /* ascending by semaphore id; the wants and their strings follow */
};

struct waiters {
    struct map by_key;
    struct map by_id;
    struct map owners;   /* struct owner_waiters */
    struct list all;     /* waiters in order of `parked_at` */
    struct list called;  /* struct semaphore_entry with waiters that may be woken, in rotation */
    struct list entries; /* by `waited_for`: cache entries with waiters */
    size_t entry_count;
    struct heap wake_ats; /* waiters, by `wake_at` */
    size_t count;         /* waiters with clients */
    size_t woken;         /* waiters in the queue or in a batch */
    bool closed;          /* the waits end; no acquire may begin to wait */
};

void waiters_init(struct waiters *waiters);
/* Frees all waiters; none has a client. */
void waiters_release(struct waiters *waiters) NO_OTHER_THREAD;
static inline struct waiter *waiter_of(struct op *op)
{
    return CONTAINER_OF(op, struct waiter, op);
}
static inline bool waiter_has_clients(const struct waiter *waiter)
{
    return !list_empty(&waiter->clients);
}

static inline bool waiter_is_woken(const struct waiter *waiter)
{
    return waiter->look != LOOK_NONE;
}

/* Returns true if a batch decides it now: no client may join or leave, and nothing may be concluded from its row. */
static inline bool waiter_in_batch(const struct waiter *waiter)
{
    return waiter->in_grant || (waiter_is_woken(waiter) && !waiter->op.queued);
}

/* Returns true if the acquire, which has the key of the waiter, asks for the same. */
static inline bool waiter_asks_same(const struct waiter *waiter, const struct op *op)
{
    return memcmp(waiter->operation.digest, op->operation->digest, DIGEST_SIZE) == 0;
}

/* NULL: no waiter has this key, or this request id. */
struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id) REQUIRES(engine_mutex);
struct waiter *waiters_find_id(const struct waiters *waiters, uint64_t request_id) REQUIRES(engine_mutex);

/* Creates the waiter of an op whose row waits; it has no client yet. NULL: out of memory, or an unknown semaphore. */
struct waiter *waiters_add(struct engine *engine, const struct op *op, const struct request *request)
    REQUIRES(engine_mutex) MUST_CHECK;
/* Frees a waiter without clients and without a look. */
void waiters_remove(struct waiters *waiters, struct waiter *waiter) REQUIRES(engine_mutex);
/* Takes over a row that was entered again: it has another id. */
void waiters_follow_row(struct waiters *waiters, struct waiter *waiter, const struct request *request)
    REQUIRES(engine_mutex);
/* Puts the semaphore into the rotation if a waiter of it is to be woken and may be, else takes it out. */
void waiters_update_called(struct waiters *waiters, struct semaphore_entry *entry) REQUIRES(engine_mutex);
struct semaphore_entry *waiter_first_semaphore(const struct waiter *waiter);
/* The name under which max_owner_waiters counts an acquire; length 0: it is not counted. */
struct bytes waiter_counted_owner(const struct operation *operation);
/* The number of waiters that are counted under this name. */
size_t waiters_of_owner(const struct waiters *waiters, struct bytes name) REQUIRES(engine_mutex);
#endif
