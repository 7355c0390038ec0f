/* SPDX-License-Identifier: MIT */
/*
 * The queue: pending operations in order of arrival, and the pre-locks. A running batch holds the pre-locks of its
 * semaphores; operations on them gather meanwhile. An operation that a batch cannot take reserves its semaphores, so
 * that later operations do not pass it. Pre-locks are an optimisation: the row locks of the database decide. No
 * threads, no clock, no database.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include "engine/engine.h"
#include "engine/rows.h"
#include "engine/seat_cache.h"
#include "engine/semaphore_cache.h"
#include "engine/template_create.h"
#include "engine/waiters.h"

struct queue {
    struct list woken;                 /* ends of due holders for acquires, then ops of woken waiters; by arrival */
    struct list pending;               /* resolved ops, ascending by arrival */
    struct list unresolved;            /* ops whose semaphores are unknown */
    struct list awaiting_server_id;    /* unresolved ops that have to wait, while this server has no id */
    struct list awaiting_row;          /* unresolved ops whose row another session has locked, until row_retry_at */
    struct template_creates creations; /* creations from templates, each with a list of ops that wait for it */
    struct semaphore_cache semaphores;
    struct waiters waiters;
    struct rows rows;
    struct seat_cache seats;
    struct map keys;     /* undecided operations by external_id, queued or in a batch */
    uint64_t arrivals;   /* arrival of the newest op */
    uint64_t pass;       /* number of passes along the queue (queue_take, queue_take_gathered) */
    size_t other_count;  /* queued ops without op_counts_as_end, in all lists */
    size_t end_count;    /* queued ops with op_counts_as_end */
    uint64_t batches;    /* number of the newest batch */
    struct list running; /* batches that hold pre-locks, by `node`, in order of their numbers */
    size_t batch_max;    /* operations per batch: fewer for some time after a batch was too large */
    mono_us grows_at;    /* when batch_max doubles; NEVER: it is BATCH_MAX_OPERATIONS */
};

/*
 * The operations of one transaction: up to BATCH_MAX_OPERATIONS on up to BATCH_MAX_SEMAPHORES semaphores, whose
 * pre-locks the batch holds. Together they move or name at most BATCH_MAX_SLOTS slots, unless the batch has a single
 * operation, so that no transaction takes long (P23). Of the batches with more slots, one runs at a time.
 */
struct batch {
    struct op *ops[BATCH_MAX_OPERATIONS];
    size_t op_count;
    size_t key_count; /* of its operations: at most BATCH_MAX_OPERATIONS */
    int64_t slots;    /* slots that its operations may move, or name, as far as known */
    struct semaphore_entry *entries[BATCH_MAX_SEMAPHORES];
    size_t entry_count;
    mono_us taken_at; /* when it last took operations; the end of a wait is compared with it */
    bool is_closed;   /* it takes no operation that needs other semaphores than `entries` */
    uint64_t number;  /* 0: it is not taken */
    struct list node; /* in queue->running */
};
enum {
    BATCH_MAX_SLOTS = 10000, /* about 65 ms in MariaDB */
    BATCH_MAX_LEAST = 8,     /* least batch_max: the session may have been lost for another reason */
    BATCH_GROWS_MS = 30000,  /* time after which batch_max doubles */
};

void queue_init(struct queue *queue, size_t max_row_bytes);
/* Call it on an empty queue. */
void queue_release(struct queue *queue) NO_OTHER_THREAD;

/*
 * Adds a new operation. Returns true if a worker should be woken. If a pre-lock is held or has other operations
 * waiting, the end of its batch starts the next one anyway.
 */
bool queue_add(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Adds a resolved operation of permitd's own before all others: its arrival is 0. */
void queue_add_first(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Puts a resolved operation back into the queue at the position of its arrival. */
void queue_put_back(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Sets the semaphores of the op (ascending ids) and marks it resolved. False: out of memory. */
bool queue_set_entries(struct queue *queue, struct op *op, const uint64_t *semaphore_ids, size_t count)
    REQUIRES(engine_mutex) MUST_CHECK;
/*
 * Keeps the operations of one key in order of arrival: adds the semaphores of the previous operation of its key to a
 * resolved op. Does nothing if out of memory, or if the op would have more than BATCH_MAX_SEMAPHORES.
 */
void queue_follow_key(struct op *op) REQUIRES(engine_mutex);
/* The undecided operation directly before this one on the same key; NULL: none. */
struct op *queue_before_on_key(const struct op *op);
/* Queues an op, which is not in the queue, at the end of the unresolved ops; clears its semaphores. */
void queue_resolve(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Queues an op, which is not in the queue, at the end of the ops that wait for a creation; clears its semaphores. */
void queue_await_creation(struct queue *queue, struct template_create *creation, struct op *op) REQUIRES(engine_mutex);
/* Queues an op, which is not in the queue, until this server has an id. */
void queue_await_server_id(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Moves these ops to the unresolved ones. */
void queue_have_server_id(struct queue *queue) REQUIRES(engine_mutex);
/* Queues an op, which is not in the queue, until `retry_at`. */
void queue_await_row(struct queue *queue, struct op *op, mono_us retry_at) REQUIRES(engine_mutex);
/* Moves those of these ops whose time has come to the unresolved ones; returns the next time. NEVER: none is left. */
mono_us queue_retry_rows(struct queue *queue, mono_us now) REQUIRES(engine_mutex);
/* Moves the ops that waited for the creation to the front of the unresolved ops, before later ops of their keys. */
void queue_resolve_again(struct queue *queue, struct template_create *creation) REQUIRES(engine_mutex);
/* Clears the semaphores of an op that is not in the queue. */
void op_drop_entries(struct op *op);
/*
 * Returns true if an acquire that waits, or may have entered the key in the queue before, is not decided yet. Ops of
 * waiters do not count.
 */
bool queue_asks_for(const struct queue *queue, struct bytes external_id) REQUIRES(engine_mutex);
/* Removes a decided op from the order of its key. Safe to repeat. */
void queue_forget_key(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/* Moves unresolved operations to `ret_ops`, until they have `max` keys; returns their number. */
size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max) REQUIRES(engine_mutex);
/*
 * Wakes a waiter: queues its op among the woken ones by arrival. Does nothing if it is woken already, or if out of
 * memory.
 */
void queue_wake(struct queue *queue, struct waiter *waiter) REQUIRES(engine_mutex);
/* Removes an op from the list of the queue that it is in. */
void queue_take_out(struct queue *queue, struct op *op) REQUIRES(engine_mutex);
/*
 * A batch of so many operations took longer than the session may: the next ones have half as many at most. Else all
 * servers may lose the same batch by turns, each while the others wait for its locks.
 */
void queue_halve_batches(struct queue *queue, size_t operation_count, mono_us now) REQUIRES(engine_mutex);
/*
 * Fills an empty batch with the operations that can run now; false: none. Takes the ends of due holders and woken
 * waiters first, then the other operations in order of arrival.
 */
bool queue_take(struct queue *queue, struct batch *batch, mono_us now) REQUIRES(engine_mutex) MUST_CHECK;
/*
 * Adds the operations to a running batch that have gathered at its semaphores and need no others. Sets batch->taken_at:
 * call waitlist_prepare again.
 */
void queue_take_gathered(struct queue *queue, struct batch *batch, mono_us now) REQUIRES(engine_mutex);
/* Releases the pre-locks of the batch and empties it. */
void queue_finish(struct batch *batch) REQUIRES(engine_mutex);
/* Releases the pre-locks of the batch that none of these operations needs. */
void queue_release_others(struct batch *batch, struct op *const *ops, size_t count) REQUIRES(engine_mutex);
/* Returns true if all batches up to this number have ended. */
bool queue_have_ended(const struct queue *queue, uint64_t number) REQUIRES(engine_mutex);
/* Moves the ops past their deadline (with NEVER: all ops) to `ret_expired`. */
void queue_take_expired(struct queue *queue, mono_us now, struct list *ret_expired) REQUIRES(engine_mutex);
bool queue_empty(const struct queue *queue) REQUIRES(engine_mutex);
#endif
