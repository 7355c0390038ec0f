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

struct queue {
    struct list pending;    /* resolved, ascending by arrival */
    struct list unresolved; /* step 0 has to find their semaphores first */
    struct gates gates;
    struct directory directory;
    struct map keys; /* undecided operations by external_id, pending or in a batch */
    uint64_t arrivals;
    uint64_t pass;
    size_t acquire_count; /* of both lists */
    size_t end_count;     /* releases and renewals */
};

/* What a worker took: up to BATCH_MAX_OPERATIONS operations on up to BATCH_MAX_SEMAPHORES gates, which it holds. */
struct batch {
    struct op *ops[BATCH_MAX_OPERATIONS];
    size_t op_count;
    struct gate *gates[BATCH_MAX_SEMAPHORES];
    size_t gate_count;
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
/* The op is decided: later ones on its key need not wait for it any more. Harmless if it was forgotten before. */
void queue_forget_key(struct queue *queue, struct op *op);
/* Moves up to `max` unresolved operations to `ret_ops`; returns how many. */
size_t queue_take_unresolved(struct queue *queue, struct op **ret_ops, size_t max);
/* Fills an empty batch with what may run now; false if that is nothing. */
bool queue_take(struct queue *queue, struct batch *batch) MUST_CHECK;
/* Unlocks the batch's gates. */
void queue_finish(struct queue *queue, struct batch *batch);
/* Moves what is past its deadline (or everything, with NEVER) to `ret_expired`. */
void queue_take_expired(struct queue *queue, mono_us now, struct list *ret_expired);
bool queue_empty(const struct queue *queue);
#endif
