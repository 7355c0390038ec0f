/* SPDX-License-Identifier: MIT */
/*
 * Who goes next: pending operations in order of arrival, and the pre-locks. No threads, no clock, no database; the
 * caller locks. A semaphore in a running batch is locked in memory; operations on it gather. An operation that cannot
 * be taken reserves its semaphores, so that later ones do not pass it. Pre-locks are an optimisation: the database
 * decides.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include "engine/directory.h"
#include "engine/engine.h"
#include "engine/gates.h"
#include "engine/maker.h"
#include "engine/waiters.h"

struct queue {
    struct list called;     /* waiters that may fit now, or have waited long enough, ascending by arrival */
    struct list pending;    /* resolved, ascending by arrival */
    struct list unresolved; /* step 0 has to find their semaphores first */
    struct makers makers;   /* those who wait for each stand on a list of its own */
    struct gates gates;
    struct waiters waiters;
    struct directory directory;
    struct map keys; /* undecided operations by external_id, pending or in a batch */
    uint64_t arrivals;
    uint64_t pass;
    size_t acquire_count; /* of both lists */
    size_t end_count;     /* releases and renewals */
};

/*
 * What a worker took: up to BATCH_MAX_OPERATIONS operations on up to BATCH_MAX_SEMAPHORES gates, which it holds, and of
 * those that move slots no more than make up BATCH_MAX_SLOTS, or a single one: so that no transaction takes long (P23).
 */
struct batch {
    struct op *ops[BATCH_MAX_OPERATIONS];
    size_t op_count;
    int64_t slots; /* that its operations may move, as far as known */
    struct gate *gates[BATCH_MAX_SEMAPHORES];
    size_t gate_count;
    mono_us taken_at;
};
enum {
    BATCH_MAX_WAITERS = 64, /* at most so many of one semaphore that were not called by name */
    BATCH_MAX_PENDING = BATCH_MAX_OPERATIONS - BATCH_MAX_WAITERS,
    BATCH_MAX_SLOTS = 10000, /* about 65 ms of MariaDB */
};

void queue_init(struct queue *queue, size_t max_directory);
/* The queue is empty. */
void queue_release(struct queue *queue);

/*
 * Adds a new operation. True if a worker might have something to do now: a gate that is busy, or has others waiting,
 * will be looked at anyway when its batch ends.
 */
bool queue_add(struct queue *queue, struct op *op);
/* Puts an operation back at the place of its arrival, with the gates it has now. */
void queue_put_back(struct queue *queue, struct op *op);
/* Gives the op these semaphores (ascending ids) and marks it resolved. False: no memory. */
bool queue_set_gates(struct queue *queue, struct op *op, const uint64_t *semaphore_ids, size_t count) MUST_CHECK;
/*
 * Per key in order of arrival: the op, whose own semaphores are known now, also waits for those of the operation on its
 * key that came before it. Without memory, or with too many semaphores, it does not.
 */
void queue_follow_key(struct queue *queue, struct op *op);
/* The undecided operation on the same key that came just before; NULL: none. */
struct op *queue_before_on_key(const struct op *op);
/* Puts an op that is not in the queue at the end of the unresolved, with nothing known of its semaphores. */
void queue_look_up(struct queue *queue, struct op *op);
/* The same at the end of those who wait for a maker. */
void queue_wait_for(struct queue *queue, struct maker *maker, struct op *op);
/* Those who waited for it go back to step 0, before all that came later on their keys. */
void queue_look_up_again(struct queue *queue, struct maker *maker);
/* Forgets the semaphores of an op that is not in the queue. */
void op_drop_gates(struct op *op);
/* The op is decided: later ones on its key need not wait for it any more. Harmless if it was forgotten before. */
void queue_forget_key(struct queue *queue, struct op *op);
/* Moves up to `max` unresolved operations to `ret_ops`; returns how many. */
size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max);
/* Puts the waiter's op at the place of its arrival among those that are called. Without memory it does not. */
void queue_call(struct queue *queue, struct waiter *waiter);
/* Calls the first waiter of the gate that may fit now, if there is one; true if so. */
bool queue_call_next(struct queue *queue, struct gate *gate, mono_us aged_since);
/* Takes an op that is in the queue out of it. */
void queue_take_out(struct queue *queue, struct op *op);
/*
 * Fills an empty batch with what may run now; false if that is nothing. Called waiters first, then the others in order
 * of arrival, then as many waiters of its semaphores as may fit with what its releases free; they stand first in it.
 * Who waits since `aged_since` or longer is passed by nobody.
 */
bool queue_take(struct queue *queue, struct batch *batch, mono_us now, mono_us aged_since) MUST_CHECK;
/* True if the batch has room for the slots that the op may move. For queue.c and turn.c, as the next. */
bool batch_has_slots_for(const struct batch *batch, const struct op *op);
/* Adds an op, whose semaphores are free for it, to a batch. */
void batch_add(struct batch *batch, struct op *op);
/* Adds waiters to a batch that has its other operations, and says where its acquires stand. turn.c */
void turn_fill(struct queue *queue, struct batch *batch, mono_us aged_since);
/* Unlocks the batch's gates. */
void queue_finish(struct queue *queue, struct batch *batch);
/* Moves what is past its deadline (or everything, with NEVER) to `ret_expired`. */
void queue_take_expired(struct queue *queue, mono_us now, struct list *ret_expired);
bool queue_empty(const struct queue *queue);
#endif
