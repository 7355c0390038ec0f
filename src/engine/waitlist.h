/* SPDX-License-Identifier: MIT */
/*
 * The waitlists. A waiter is a parked acquire; it has a place in the waitlist of each of its semaphores. The clients of
 * a waiter are the ops that wait for its answer: usually one; several if a request is repeated under the same key; none
 * for some seconds after a wait has ended, so that a client can wait in several shorter requests. A waiter without
 * clients blocks no other request.
 *
 *                      +------ it does not fit -------+
 *     acquire that     v                              |
 *     does not fit -> parked -- woken (queue_wake) -> in the queue -> in a batch -> granted or finally refused: freed
 *
 * A waiter is woken when its semaphores may have enough free units and have changed since its last refusal
 * (waiters_next), and when the wait of a client has ended (wait_ends).
 *
 * For a waiter for specific slots (want_is_specific), counts do not show whether it fits. It blocks no other waiter, is
 * skipped where waiters are taken in queue order, and is woken when a slot that it can use may have been freed
 * (waitlist_wake_specific).
 *
 * No threads, no clock, no database; the caller locks.
 */
#ifndef ENGINE_WAITLIST_H
#define ENGINE_WAITLIST_H

#include "base/heap.h"
#include "core/name.h"
#include "engine/semaphore_cache.h"

/* The place of a waiter in the waitlist of one semaphore. */
struct wait_place {
    struct list node; /* in entry->waiters */
    struct waiter *waiter;
    struct semaphore_entry *entry;
    int64_t count;       /* units that it requests */
    uint64_t refused_at; /* version of the semaphore at its last refusal */
};

struct waiter {
    struct engine *engine;
    struct op op; /* the op that goes into batches */
    struct operation operation;
    struct list node; /* in waiters->all */
    struct map_node by_key;
    struct list clients;         /* its clients: struct op, by `node`, in order of arrival */
    char nonce[NONCE_MAX_BYTES]; /* bytes of operation.nonce */
    struct heap_node wait_end;   /* earliest end of the wait of a client; without clients: when it is freed */
    mono_us since;
    mono_us taken_at;  /* when its last batch was taken */
    bool woken;        /* its op is in the queue or in a batch */
    bool is_specific;  /* it requests specific slots */
    bool behind;       /* its last refusal was for queue order: any change of a semaphore may help */
    size_t named_size; /* bytes of the slots that it names */
    size_t place_count;
    struct wait_place places[]; /* ascending by semaphore id; the wants and their strings follow */
};

struct waiters {
    struct map by_key;
    struct list all;     /* waiters in order of arrival */
    struct list entries; /* by `waited_for`: cache entries with waiters */
    size_t entry_count;
    struct heap wait_ends; /* waiters, by `wait_end` */
    struct heap dues;      /* cache entries with waiters, by `due` */
    size_t count;          /* waiters with clients */
    size_t kept;           /* waiters without clients */
    size_t woken;          /* waiters in the queue or in a batch */
    size_t named_size;     /* bytes of the slots that all waiters name */
    bool closed;           /* no acquire may begin to wait */
};

void waiters_init(struct waiters *waiters);
/* Frees all waiters; none may have a client. */
void waiters_release(struct waiters *waiters);

static inline struct waiter *waiter_of(struct op *op)
{
    return CONTAINER_OF(op, struct waiter, op);
}
static inline bool waiter_has_clients(const struct waiter *waiter)
{
    return !list_empty(&waiter->clients);
}

/* Returns true if the waiter is in a batch, which may have read its rows already: no client may join it then (P6). */
static inline bool waiter_in_batch(const struct waiter *waiter)
{
    return waiter->woken && !waiter->op.queued;
}

/*
 * Records a refusal at the present version of its semaphores. If the waiter was blocked by queue order (RANK_BEHIND),
 * records the versions at which the batch was filled instead, because these decided the queue order.
 */
void waiter_record_refusal(struct waiter *waiter);
/* NULL: no waiter has this key. */
struct waiter *waiters_find(const struct waiters *waiters, struct bytes external_id);
/*
 * Creates a waiter for an acquire that does not fit, with a copy of its operation; the op becomes the first client.
 * NULL: out of memory, and nothing has changed.
 */
struct waiter *waiters_add(struct waiters *waiters, struct semaphore_cache *cache, struct op *op,
                           mono_us now) MUST_CHECK;
/* Adds a client, whose operation has the same digest. */
void waiters_add_client(struct waiters *waiters, struct waiter *waiter, struct op *op);
/* Removes a client. Its waiter, if it has no other client, is kept until `keep_until`; 0: it is freed. */
void waiters_remove_client(struct waiters *waiters, struct op *op, mono_us keep_until);
/*
 * Copies the nonce of the first client into the operation of the waiter: a grant is answered to that client as new.
 * Call it when a batch begins, because the client that created the waiter may have disconnected since.
 */
void waiter_take_nonce(struct waiter *waiter);
/* Moves the clients whose wait had ended by `until` (NEVER: all) to ret_answered; keeps the waiter. */
void waiters_take_clients(struct waiters *waiters, struct waiter *waiter, mono_us until, struct list *ret_answered);
/*
 * Schedules the waiter after waiters_take_clients or a refusal; without clients as in waiters_remove_client. May free
 * it.
 */
void waiters_schedule(struct waiters *waiters, struct waiter *waiter, mono_us keep_until);
/* The earliest end of the wait of a client; NEVER: no clients. */
mono_us waiter_wait_end(const struct waiter *waiter);
/* Removes the waiter, which has no clients, from all lists and frees it. */
void waiters_remove(struct waiters *waiters, struct waiter *waiter);

/* ---- free units ---- */

/* Stores a row of the semaphore that was read just now; due_at: its next_due_at by this machine's clock. */
void waiters_update_row(struct waiters *waiters, struct semaphore_entry *entry, const struct semaphore *row,
                        mono_us due_at, mono_us now);
/* Schedules a wake of its waiters at this time, without a new row. */
void waiters_wake_at(struct waiters *waiters, struct semaphore_entry *entry, mono_us at);
/* Clears that schedule until the next row is stored, and marks the free units as uncertain. */
void waiters_clear_wake(struct waiters *waiters, struct semaphore_entry *entry);
/* Marks the free units as uncertain: waiters may be woken although the cached row has no free units. */
void waiters_mark_uncertain(struct semaphore_entry *entry);
/*
 * The first waiter that may fit and was not refused at the present versions; NULL: none, or a waiter ahead of it is
 * woken already or blocks it. `aged_since`: as in queue_take.
 */
struct waiter *waiters_next(const struct semaphore_entry *entry, mono_us aged_since);
/*
 * Returns true if a waiter for specific slots may be able to use the slots of this permit once it is freed: a slot that
 * the waiter names, or one beyond the capacity. After the capacity was lowered, held slots beyond it count as units in
 * use, so that the semaphore can be full while the named slot is free.
 */
bool waiter_can_use(const struct waiter *waiter, const struct semaphore_entry *entry, const struct permit *freed);
/* Returns true if the waiter blocks the waiters behind it at this semaphore although it does not fit. */
bool waiter_blocks_others(const struct waiter *waiter, const struct semaphore_entry *entry, mono_us aged_since);
/* Returns true if the waiter arrived at or before `aged_since`. */
bool waiter_is_aged(const struct waiter *waiter, mono_us aged_since);
#endif
