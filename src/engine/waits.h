/* SPDX-License-Identifier: MIT */
/*
 * What the engine does about those who wait (waiters.h has their queues): who finds no room is parked, who is decided
 * leaves, and whoever learns that units may be free calls the first who may fit. Engine's mutex held, all of them.
 */
#ifndef ENGINE_WAITS_H
#define ENGINE_WAITS_H

#include "engine/state.h"

/* An acquire under a key that waits already: it becomes one more asker, or is refused. */
enum permit_status waits_join(struct engine *engine, struct waiter *waiter, struct op *op);
/*
 * An acquire that found no room in the batch that began at `taken_at`. True: it is parked, and will be decided some
 * time. False: it is to be decided now, with *ret_status if that is not PERMIT_OK, else with the batch's outcome.
 */
bool waits_park(struct engine *engine, struct op *op, mono_us taken_at, enum permit_status *ret_status) MUST_CHECK;
/* Which bound has just made that PERMIT_TOO_MANY: a sentence in the arena. NULL: no memory, or none of them. */
const char *waits_why_full(const struct engine *engine, const struct op *op, struct arena *arena);
/*
 * The waiter's op comes out of a batch that refused it for a reason that passes (refused), or decided it. Moves the
 * askers who are answered by that to ret_answered. Afterwards the waiter may be gone.
 */
void waits_settle(struct engine *engine, struct waiter *waiter, bool refused, struct list *ret_answered);
/* The same after a failure; true: those who still have time go on waiting, and nobody is answered. */
bool waits_try_later(struct engine *engine, struct waiter *waiter);
/* It is not known what is free, or it is not room that is missing: the waiter is called again after a while. */
void waits_look_later(struct engine *engine, struct waiter *waiter);
/* The database may be an older copy: what was seen of it says nothing any more. */
void waits_forget(struct engine *engine);
/* What was seen of a semaphore, by a batch or by the watcher, at `now` (served). */
void waits_learn(struct engine *engine, const struct semaphore *row, utc_us now);
/* Calls whoever may fit on this semaphore. */
void waits_call(struct engine *engine, struct gate *gate);
/* Who of those that want certain slots of a semaphore may get them now. */
enum certain {
    CERTAIN_FREED,  /* who can use what the requests that end give back, or was refused only behind others */
    CERTAIN_UNSEEN, /* and who was not refused by its rows as they are now: others have written them */
    CERTAIN_ALL,
};
/* Calls them. changes: with the requests that end; NULL: none. */
void waits_call_certain(struct engine *engine, struct gate *gate, enum certain who, const struct changes *changes);
/* Notes in a refusal who waits before it. */
void waits_note_ahead(struct engine *engine, struct refusal *refusal);
/* The watcher is to look at the clock again. */
void waits_changed(struct engine *engine);

/*
 * The waiter's op is about to be in a packet with COMMIT. False: every client that waits for it was answered already,
 * and the packet must not be sent. Engine's mutex not held.
 */
bool waits_send(struct engine *engine, struct waiter *waiter) MUST_CHECK;
/* Every client that waits for it was answered without a decision. Engine's mutex not held. */
bool waits_are_answered(struct engine *engine, const struct waiter *waiter);
/* How old a waiter is that nobody may pass: it waits since this moment or longer. */
mono_us waits_aged_since(const struct engine *engine, mono_us now);
#endif
