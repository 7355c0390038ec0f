/* SPDX-License-Identifier: MIT */
/*
 * The free slots of one semaphore while a plan runs: a bit per number, so that the lowest, a certain one and a run of
 * neighbours are all at hand; and the labels of slots as far as they are known. Memory comes from the plan's arena.
 */
#ifndef CORE_SLOT_POOL_H
#define CORE_SLOT_POOL_H

#include "core/slots.h"

struct slot_pool {
    uint64_t *words; /* a set bit: that number is free, in service, and known here */
    size_t word_count;
    size_t first; /* in words before this one no bit is set */
    size_t count; /* of set bits */
    uint32_t capacity;
    struct bytes **labels; /* in pages, one for each word; NULL: no slot that is known here has one */
};

bool slot_pool_init(struct slot_pool *pool, int64_t capacity, struct arena *arena) MUST_CHECK;
/* Adds a slot; one that is out of service (above the capacity) or there already is left out. */
void slot_pool_put(struct slot_pool *pool, uint32_t number);
bool slot_pool_has(const struct slot_pool *pool, uint32_t number);
/* Takes out one that is there. */
void slot_pool_take(struct slot_pool *pool, uint32_t number);

/* The lowest number from `from` up; 0: there is none. */
uint32_t slot_pool_next(const struct slot_pool *pool, uint32_t from);
/* The lowest of all, of a pool that is not empty. */
uint32_t slot_pool_lowest(struct slot_pool *pool);
/* The first number of the lowest run of `count`, of all or of the numbers in `list`; 0: there is none. */
uint32_t slot_pool_run(const struct slot_pool *pool, uint32_t count);
uint32_t slot_pool_run_within(const struct slot_pool *pool, uint32_t count, const struct slots *list);
/* How many of the numbers in `list` are there. */
uint32_t slot_pool_count_of(const struct slot_pool *pool, const struct slots *list);

/* Says the label of a slot in service; it belongs to the caller. Without one nothing happens. False: no memory. */
bool slot_pool_set_label(struct slot_pool *pool, uint32_t number, struct bytes label, struct arena *arena) MUST_CHECK;
/* Length 0: it has none. */
struct bytes slot_pool_label(const struct slot_pool *pool, uint32_t number);
#endif
