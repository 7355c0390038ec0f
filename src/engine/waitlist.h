/* SPDX-License-Identifier: MIT */
/*
 * The waitlist: the clients that wait at this server, as subscribers of their keys. The queue itself is rows
 * (docs/design.md, "The queue"): any batch of any server may decide a row, and no decision is taken from here.
 *
 *                          +------- it still waits --------+
 *     acquire that waits   v                               |
 *     after its batch -> parked -- woken (look, leave) -> in the queue -> in a batch -> decided: freed
 *                          |
 *                          +-- granted by another batch (waitlist_notify): freed
 *
 * A woken waiter looks at its row (OP_LOOK), or leaves if it has no client any more (OP_LEAVE). It is woken when it has
 * mail or a call, when the wait of a client has ended, when its last client has left (its place is then left by a
 * write), when the net of the wait poll finds it, and when its row may be gone.
 *
 * A parked client's stage is SENT: its row can be granted at any time, so an answer without a decision is
 * outcome_unknown.
 */
#ifndef ENGINE_WAITLIST_H
#define ENGINE_WAITLIST_H

#include "engine/state.h"

struct batch;

/* ---- in ---- */

/* Adds the op as a client of the waiter with its key and content. Any status but PERMIT_OK refuses the op. */
enum permit_status waitlist_join(struct engine *engine, struct waiter *waiter, struct op *op) REQUIRES(engine_mutex);
/*
 * Sets how the acquires of a batch wait: whether they enter the queue, stay in it, or leave it. An acquire that may not
 * enter because of a limit gets op->wait_refusal.
 */
void waitlist_prepare(struct engine *engine, struct batch *batch) REQUIRES(engine_mutex);
/*
 * Parks an acquire whose request waits after COMMIT (outcome->waits). False: the caller decides it, because it is out
 * of memory, or its client has left or its wait has ended meanwhile (the waitlist gives up its place), or a waiter with
 * other content stands for its key.
 */
bool waitlist_park(struct engine *engine, struct op *op, const struct request *request)
    REQUIRES(engine_mutex) MUST_CHECK;
/* Records the settings by which a batch has decided that the waiter waits. */
void waitlist_record_settings(struct waiter *waiter, const struct view *view);
/* ---- out ---- */

/*
 * The batch of a look or leave has decided. If the row goes on waiting (outcome->waits), only those clients are to be
 * answered whose wait had ended when the batch began. Else all are, as by waitlist_notify.
 */
void waitlist_end_look(struct engine *engine, struct waiter *waiter, const struct outcome *outcome,
                       struct list *ret_answered) REQUIRES(engine_mutex);
/*
 * After COMMIT: moves the subscribers of a request that is granted to ret_answered, whichever operation has led to it,
 * and frees the waiter, if the request has one. If its op is just being timed out, the waiter is parked again without
 * clients; it leaves later, and is freed then.
 */
void waitlist_notify(struct engine *engine, const struct request *request, struct list *ret_answered)
    REQUIRES(engine_mutex);
/*
 * Parks the waiter again after a batch that did not decide it, and wakes it some time later. Moves the clients that
 * cannot wait for that to ret_answered; they are answered outcome_unknown. Frees it if its row cannot exist any more.
 */
void waitlist_retry_later(struct engine *engine, struct waiter *waiter, struct list *ret_answered)
    REQUIRES(engine_mutex);
/*
 * For the view of a batch: lists the keys that wait, as rows of the view, and that have a subscriber here, or will have
 * one. Memory comes from the arena; false: it is out of it.
 */
bool waitlist_list_subscribers(struct engine *engine, struct arena *arena, struct view *view)
    EXCLUDES(engine_mutex) MUST_CHECK;
/*
 * Before the packet with COMMIT: marks the waiters that the plan grants. False: the clients of one have left since the
 * plan was made, which is out of date; none is marked.
 */
bool waitlist_begin_grants(struct engine *engine, const struct plan *plan) EXCLUDES(engine_mutex) MUST_CHECK;
/* After a packet that failed: takes the marks back, and wakes the waiters, because it may have been written. */
void waitlist_cancel_grants(struct engine *engine, const struct plan *plan) EXCLUDES(engine_mutex);

/* ---- waking ---- */

/*
 * Wakes the waiter now; if too many of its first semaphore are awake, when fewer are; if it is in a batch, after that.
 * One with mail is woken now in any case: it may be granted already, and its grant ends if it does not ask in time.
 */
void waitlist_wake(struct engine *engine, struct waiter *waiter) REQUIRES(engine_mutex);
/* Wakes waiters of waiters->called, one of each semaphore by turns, until too many of each are awake. */
void waitlist_wake_called(struct engine *engine) REQUIRES(engine_mutex);
/*
 * Wakes the first waiter of a semaphore that seems to fit by its row, as it was just read, and by those of its other
 * semaphores, as they were read last; and of the next ones of a rotation those that can never be granted, or may be so
 * since its settings changed, and some that seem to fit: free units say nothing of specific slots, and a batch decides
 * only the waiters of which it locks all semaphores.
 */
void waitlist_wake_by_row(struct engine *engine, const struct semaphore *row) REQUIRES(engine_mutex);
/* Wakes all waiters: their rows may be gone, or name an earlier id of this server. */
void waitlist_wake_all(struct engine *engine) REQUIRES(engine_mutex);
/* Wakes the wait poll if it must run earlier than planned. */
void waitlist_reschedule(struct engine *engine) REQUIRES(engine_mutex);
#endif
