/* SPDX-License-Identifier: MIT */
/*
 * The slots of one semaphore while a plan runs: one bit per number for the free ones, for a fast search of the lowest
 * free slot, of one number, or of a run of adjacent slots; one bit for those that are reserved for earlier waiters,
 * free or held, and one for those that are kept for them; and the known labels. Memory comes from the plan's arena; if
 * there is none, the functions leave the plan (arena_must_array).
 */
#ifndef CORE_SLOT_POOL_H
#define CORE_SLOT_POOL_H

#include "core/slots.h"

struct slot_pool {
    uint64_t *words; /* set bit: the slot is free, in service, and known here */
    size_t word_count;
    size_t first; /* no bit is set in the words before this one */
    size_t count; /* number of set bits */
    uint32_t capacity;
    uint64_t *reserved; /* set bit: no later request may take the slot; NULL: none is reserved */
    uint64_t *kept;     /* the same, unless ignores_kept */
    bool ignores_kept;
    struct bytes **labels; /* pages, one per word; NULL: no known slot has a label */
};

void slot_pool_init(struct slot_pool *pool, int64_t capacity, struct arena *arena);
/* Adds a free slot; ignores a slot above the capacity or already in the pool. */
void slot_pool_put(struct slot_pool *pool, uint32_t number);
/* Returns true if the slot is free, reserved or not. */
bool slot_pool_has(const struct slot_pool *pool, uint32_t number);
/* Removes a slot that is in the pool. */
void slot_pool_take(struct slot_pool *pool, uint32_t number);
/* Returns the lowest free number, reserved or not; the pool must not be empty. */
uint32_t slot_pool_lowest(struct slot_pool *pool);

/* ---- reserved slots, also those that are kept ---- */

/* Reserves or keeps a slot in service, free or held. */
void slot_pool_reserve(struct slot_pool *pool, uint32_t number, struct arena *arena);
void slot_pool_keep(struct slot_pool *pool, uint32_t number, struct arena *arena);
bool slot_pool_is_reserved(const struct slot_pool *pool, uint32_t number);
/* Returns false if no slot has ever been reserved or kept. */
static inline bool slot_pool_has_reserved(const struct slot_pool *pool)
{
    return pool->reserved || pool->kept;
}
/* Returns the number of free slots that are reserved. */
uint32_t slot_pool_count_reserved(const struct slot_pool *pool);
/* Ends all reservations. */
void slot_pool_unreserve(struct slot_pool *pool);

/* ---- free slots that are not reserved ---- */

/* Returns the lowest such number from `from` up; 0: none. */
uint32_t slot_pool_next(const struct slot_pool *pool, uint32_t from);
/*
 * Returns the first number of the lowest run of `count` such slots, among all or among the numbers in `list`; 0: none.
 */
uint32_t slot_pool_run(const struct slot_pool *pool, uint32_t count);
uint32_t slot_pool_run_within(const struct slot_pool *pool, uint32_t count, const struct slots *list);
/* Returns the number of such slots in `list`. */
uint32_t slot_pool_count_of(const struct slot_pool *pool, const struct slots *list);

/* ---- labels ---- */

/* Sets the label of a slot in service; the caller keeps the bytes alive. An empty label changes nothing. */
void slot_pool_set_label(struct slot_pool *pool, uint32_t number, struct bytes label, struct arena *arena);
/* Returns the label of a slot; length 0: none. */
struct bytes slot_pool_label(const struct slot_pool *pool, uint32_t number);
#endif
