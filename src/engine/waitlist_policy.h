/* SPDX-License-Identifier: MIT */
/*
 * Waitlist policy: parks acquires that do not fit, removes decided ones, wakes waiters when units may be free.
 * waitlist.h has the lists. The caller holds the engine's mutex, except where a comment says otherwise.
 */
#ifndef ENGINE_WAITLIST_POLICY_H
#define ENGINE_WAITLIST_POLICY_H

#include "engine/state.h"

/* Adds the op as a client of the waiter with its key. Any status but PERMIT_OK refuses the op. */
enum permit_status waitlist_join(struct engine *engine, struct waiter *waiter, struct op *op);
/*
 * Parks an acquire that did not fit in the batch taken at `taken_at`. Returns true if it is parked; a later batch
 * decides it. False: the caller decides it now, with *ret_status, or with the batch's outcome if that is PERMIT_OK.
 */
bool waitlist_park(struct engine *engine, struct op *op, mono_us taken_at, enum permit_status *ret_status) MUST_CHECK;
/*
 * The limit behind a PERMIT_TOO_MANY, as a message in the arena. NULL: out of memory, or no waitlist limit is reached.
 */
const char *waitlist_full_reason(const struct engine *engine, const struct op *op, struct arena *arena);
/*
 * Ends a waiter's part in a batch: `refused` if the refusal is temporary, else decided. Moves the clients to be
 * answered to ret_answered: after a temporary refusal those whose wait had passed when the batch began, else (or if
 * waiting is closed) all. May free the waiter.
 */
void waitlist_settle(struct engine *engine, struct waiter *waiter, bool refused, struct list *ret_answered);
/*
 * Parks the waiter again after a failed batch. False: its outcome is unknown, its wait has passed, or the engine stops;
 * settle it.
 */
bool waitlist_retry_later(struct engine *engine, struct waiter *waiter);
/* Schedules a wake in 500 ms: the free units are unknown, or capacity was not the reason for the refusal. */
void waitlist_wake_later(struct engine *engine, struct waiter *waiter);
/* Discards the cached row versions after a change of server, and retries waiters. */
void waitlist_invalidate(struct engine *engine);
/* Updates the cache from a row read by a batch or the wait poll at `now` (lease clock). */
void waitlist_observe(struct engine *engine, const struct semaphore *row, utc_us now);
/* Wakes the first waiter of the semaphore that may fit. */
void waitlist_wake_next(struct engine *engine, struct semaphore_entry *entry);
/* Which waiters for specific slots to wake. */
enum wake_specific {
    WAKE_FREED, /* those that can use a slot freed by `changes`, or were refused only because of queue order */
    WAKE_STALE, /* these, and those not yet refused at the row's current version: another server has changed it */
    WAKE_ALL,
};
/* `changes` has the requests that ended; NULL: none. */
void waitlist_wake_specific(struct engine *engine, struct semaphore_entry *entry, enum wake_specific who,
                            const struct changes *changes);
/* Adds the waiters ahead to a refusal. */
void waitlist_note_ahead(struct engine *engine, struct refusal *refusal);
/* Wakes the wait poll if it must run earlier than planned. */
void waitlist_reschedule(struct engine *engine);

/*
 * Marks the waiter and its clients as sent, before the packet with COMMIT. False: every client was answered already;
 * the packet must not be sent. Takes the engine's mutex.
 */
bool waitlist_mark_sent(struct engine *engine, struct waiter *waiter) MUST_CHECK;
/* Returns true if every client was answered without a decision; false without clients. Takes the engine's mutex. */
bool waitlist_all_answered(struct engine *engine, const struct waiter *waiter);
/* Waiters that arrived at or before this time are older than backfill_bound. */
mono_us waitlist_aged_since(const struct engine *engine, mono_us now);
#endif
