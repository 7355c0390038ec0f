/* SPDX-License-Identifier: MIT */
/*
 * Who waits for room. A waiter is the place of one external_id in the queues of all semaphores that it wants; its
 * askers are the ops that wait for its answer: usually one, several if a client asked again under its key, and none for
 * some seconds after a wait was over, so that a client may wait in pieces. A waiter without askers is in nobody's way.
 *
 *                      +--- its batch found no room ---+
 *     newcomer         v                               |
 *     without room -> parked -- called (queue_call) -> in the queue -> in a batch -> granted, refused for good: freed
 *
 * It is called when its semaphores may have room that it was not refused already (waiters_next), and when one of its
 * askers has waited long enough (turns).
 *
 * One that wants certain slots (want_is_certain) cannot know from counts whether it fits. It keeps nobody else from
 * what is free, is left out where the others are walked in order, and is called when a slot that it could use was given
 * back, or when that is not known (waiters_call_certain).
 *
 * No threads, no clock, no database; the caller locks.
 */
#ifndef ENGINE_WAITERS_H
#define ENGINE_WAITERS_H

#include "base/heap.h"
#include "core/name.h"
#include "engine/gates.h"

/* A waiter in the queue of one semaphore. */
struct stand {
    struct list node; /* on gate->waiters */
    struct waiter *waiter;
    struct gate *gate;
    int64_t count;       /* units it wants */
    uint64_t refused_at; /* the version of the semaphore at which it was refused */
};

struct waiter {
    struct engine *engine;
    struct op op; /* what goes into batches for it */
    struct operation operation;
    struct list node; /* on waiters->all */
    struct map_node by_key;
    struct list askers;          /* struct op, by `node`, in the order in which they came */
    char nonce[NONCE_MAX_BYTES]; /* of the operation */
    struct heap_node turn; /* when the first of its askers has waited long enough; without askers, when it is freed */
    mono_us since;
    mono_us taken_at;  /* its batch began */
    bool called;       /* its op is in the queue or in a batch */
    bool certain;      /* it wants certain slots */
    bool behind;       /* it was refused because others stand before it: whatever changes may help */
    size_t named_size; /* of the slots that it names */
    size_t stand_count;
    struct stand stands[]; /* ascending by id of the semaphore; the wants and their strings follow */
};

struct waiters {
    struct map by_key;
    struct list all;   /* waiters in order of arrival */
    struct list gates; /* by `waited_for`: those with waiters */
    size_t gate_count;
    struct heap turns; /* of waiters */
    struct heap dues;  /* of gates with waiters: when a holder may be due */
    size_t count;      /* waiters with askers */
    size_t kept;       /* waiters without */
    size_t called;     /* in the queue or in a batch */
    size_t named_size; /* of all waiters */
    bool closed;       /* nobody may begin to wait */
};

void waiters_init(struct waiters *waiters);
/* Nobody waits any more. */
void waiters_release(struct waiters *waiters);

static inline struct waiter *waiter_of(struct op *op)
{
    return CONTAINER_OF(op, struct waiter, op);
}
static inline bool waiter_is_asked(const struct waiter *waiter)
{
    return !list_empty(&waiter->askers);
}

/* A batch decides it, from rows that it may have read already: who asks now is not to be answered by that (P6). */
static inline bool waiter_in_batch(const struct waiter *waiter)
{
    return waiter->called && !waiter->op.queued;
}

/*
 * It was refused at the version that its semaphores have now. Or, if it was kept behind somebody (PLACE_BEHIND), at the
 * one that was known when the batch was put together: who stood before it was judged by that.
 */
void waiter_note_refused(struct waiter *waiter);
/* NULL: nobody waits under this key. */
struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id);
/*
 * A place for an acquire that found no room, with copies of what it asks; the op becomes its first asker. NULL: no
 * memory, and nothing has changed.
 */
struct waiter *waiters_add(struct waiters *waiters, struct gates *gates, struct op *op, mono_us now) MUST_CHECK;
/* One more asker, whose operation has the same digest. */
void waiters_ask(struct waiters *waiters, struct waiter *waiter, struct op *op);
/* The asker leaves; its waiter, if nobody asks any more, is kept until `keep_until`, or freed if that is 0. */
void waiters_leave(struct waiters *waiters, struct op *op, mono_us keep_until);
/*
 * Gives its operation the nonce of its first asker, who is the one that a grant is answered to as new. Called when its
 * batch begins: the client that made the place may have disconnected, and another one may wait in it now.
 */
void waiter_take_nonce(struct waiter *waiter);
/* Moves the askers whose wait was over by `until` (NEVER: all) to ret_answered; the waiter stays as it is. */
void waiters_dismiss(struct waiters *waiters, struct waiter *waiter, mono_us until, struct list *ret_answered);
/* After waiters_dismiss, or a refusal: when its turn comes next; without askers as in waiters_leave. */
void waiters_settle(struct waiters *waiters, struct waiter *waiter, mono_us keep_until);
/* When the first of its askers has waited long enough; NEVER without any. */
mono_us waiter_turn(const struct waiter *waiter);
/* Takes it out of everything and frees it. It has no askers. */
void waiters_remove(struct waiters *waiters, struct waiter *waiter);

/* ---- what is free ---- */

/* The row of the gate's semaphore as it is now; due_at: its next_due_at by this machine's clock. */
void waiters_learn(struct waiters *waiters, struct gate *gate, const struct semaphore *row, mono_us due_at,
                   mono_us now);
/* Its waiters are to be called at that time, whatever is known. */
void waiters_look_at(struct waiters *waiters, struct gate *gate, mono_us at);
/* The time has come: not again until its row is seen; what is free is in doubt. */
void waiters_looked(struct waiters *waiters, struct gate *gate);
/* What is free may be more than memory knows: waiters are tried again. */
void waiters_doubt(struct gate *gate);
/* The first who may fit and was not refused as things are; NULL: nobody. bound: how old is aged. */
struct waiter *waiters_next(const struct gate *gate, mono_us aged_since);
/*
 * Returns true if a waiter for certain slots may be able to use what this permit of the gate's semaphore gives back: a
 * slot that it names, or one beyond the capacity. After the capacity was lowered, held slots beyond it count as units in
 * use, so that the semaphore can be full while the named slot is free.
 */
bool waiter_can_use(const struct waiter *waiter, const struct gate *gate, const struct permit *freed);
/* True if nobody behind it gets what is free of this semaphore, although it does not fit. */
bool waiter_keeps_others(const struct waiter *waiter, const struct gate *gate, mono_us aged_since);
/* True if nobody may pass it, whether it fits or not. */
bool waiter_is_aged(const struct waiter *waiter, mono_us aged_since);
#endif
