/* SPDX-License-Identifier: MIT */
/*
 * The queue: pending operations in order of arrival, and the pre-locks. A running batch holds the pre-locks of its
 * semaphores; operations on them gather meanwhile. An operation that a batch cannot take reserves its semaphores, so
 * that later operations do not pass it. Pre-locks are an optimisation: the row locks of the database decide. No
 * threads, no clock, no database; the caller locks.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include "engine/engine.h"
#include "engine/key_cache.h"
#include "engine/semaphore_cache.h"
#include "engine/template_create.h"
#include "engine/waitlist.h"

struct queue {
    struct list woken;                 /* ops of woken waiters, ascending by arrival */
    struct list pending;               /* resolved ops, ascending by arrival */
    struct list unresolved;            /* ops whose semaphores are unknown */
    struct template_creates creations; /* creations from templates, each with a list of ops that wait for it */
    struct semaphore_cache semaphores;
    struct waiters waiters;
    struct key_cache key_cache;
    struct map keys;      /* undecided operations by external_id, queued or in a batch */
    uint64_t arrivals;    /* arrival of the newest op */
    uint64_t pass;        /* number of calls of queue_take */
    size_t acquire_count; /* queued ops without counts_as_end, in all lists */
    size_t end_count;     /* queued ops with counts_as_end */
};

/*
 * The operations of one transaction: up to BATCH_MAX_OPERATIONS on up to BATCH_MAX_SEMAPHORES semaphores, whose
 * pre-locks the batch holds. Together they move at most BATCH_MAX_SLOTS slots, unless the batch has a single operation,
 * so that no transaction takes long (P23).
 */
struct batch {
    struct op *ops[BATCH_MAX_OPERATIONS];
    size_t op_count;
    int64_t slots; /* slots that its operations may move, as far as known */
    struct semaphore_entry *entries[BATCH_MAX_SEMAPHORES];
    size_t entry_count;
    mono_us taken_at;
};
enum {
    BATCH_MAX_WAITERS = 64, /* waiters of one semaphore that join a batch without having been woken */
    BATCH_MAX_PENDING = BATCH_MAX_OPERATIONS - BATCH_MAX_WAITERS,
    BATCH_MAX_SLOTS = 10000, /* about 65 ms in MariaDB */
};

void queue_init(struct queue *queue, size_t max_directory);
/* Call it on an empty queue. */
void queue_release(struct queue *queue);

/*
 * Adds a new operation. Returns true if a worker should be woken. If a pre-lock is held or has other operations
 * waiting, the end of its batch starts the next one anyway.
 */
bool queue_add(struct queue *queue, struct op *op);
/* Puts a resolved operation back into the queue at the position of its arrival. */
void queue_put_back(struct queue *queue, struct op *op);
/* Sets the semaphores of the op (ascending ids) and marks it resolved. False: out of memory. */
bool queue_set_entries(struct queue *queue, struct op *op, const uint64_t *semaphore_ids, size_t count) MUST_CHECK;
/*
 * Keeps the operations of one key in order of arrival: adds the semaphores of the previous operation of its key to a
 * resolved op. Does nothing if out of memory, or if the op would have more than BATCH_MAX_SEMAPHORES.
 */
void queue_follow_key(struct queue *queue, struct op *op);
/* The undecided operation directly before this one on the same key; NULL: none. */
struct op *queue_before_on_key(const struct op *op);
/* Queues an op, which is not in the queue, at the end of the unresolved ops; clears its semaphores. */
void queue_resolve(struct queue *queue, struct op *op);
/* Queues an op, which is not in the queue, at the end of the ops that wait for a creation; clears its semaphores. */
void queue_await_creation(struct queue *queue, struct template_create *creation, struct op *op);
/* Moves the ops that waited for the creation to the front of the unresolved ops, before later ops of their keys. */
void queue_resolve_again(struct queue *queue, struct template_create *creation);
/* Clears the semaphores of an op that is not in the queue. */
void op_drop_entries(struct op *op);
/* Removes a decided op from the order of its key. Safe to repeat. */
void queue_forget_key(struct queue *queue, struct op *op);
/* Moves up to `max` unresolved operations to `ret_ops`; returns their number. */
size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max);
/*
 * Wakes a waiter: queues its op among the woken ones by arrival. Does nothing if it is woken already, or if out of
 * memory.
 */
void queue_wake(struct queue *queue, struct waiter *waiter);
/* Wakes the first waiter of the semaphore that may fit (waiters_next); false: none. */
bool queue_wake_next(struct queue *queue, struct semaphore_entry *entry, mono_us aged_since);
/* Removes an op from the list of the queue that it is in. */
void queue_take_out(struct queue *queue, struct op *op);
/*
 * Fills an empty batch with the operations that can run now; false: none. Takes woken waiters first, then the other
 * operations in order of arrival, then the waiters of its semaphores that may fit into the units that its releases
 * free. Waiters are first in the batch. A waiter that arrived at or before `aged_since` blocks all behind it.
 */
bool queue_take(struct queue *queue, struct batch *batch, mono_us now, mono_us aged_since) MUST_CHECK;
/* Returns true if the op does not exceed BATCH_MAX_SLOTS. This and batch_add are for queue.c and batch_waiters.c. */
bool batch_has_slots_for(const struct batch *batch, const struct op *op);
/* Adds an op to a batch, and takes the pre-locks of its semaphores, which are free or held by the batch. */
void batch_add(struct batch *batch, struct op *op);
/*
 * Adds waiters to a batch that has its other operations, and sets the queue rank of its acquires. In batch_waiters.c.
 */
void batch_add_waiters(struct queue *queue, struct batch *batch, mono_us aged_since);
/* Releases the pre-locks of the batch and empties it. */
void queue_finish(struct queue *queue, struct batch *batch);
/* Moves the ops past their deadline (with NEVER: all ops) to `ret_expired`. */
void queue_take_expired(struct queue *queue, mono_us now, struct list *ret_expired);
bool queue_empty(const struct queue *queue);
#endif
