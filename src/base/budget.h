/* SPDX-License-Identifier: MIT */
/*
 * A limit on the memory that the buffers and arenas of several threads hold together. Exceeding it fails like an
 * allocation. Small pieces are not counted and never refused, so short requests are served whatever the long ones hold;
 * the limit must leave memory for them.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdatomic.h>

#include "base/base.h"

enum { BUDGET_SMALL = 2048 }; /* bytes; the largest piece that is not counted */

struct budget {
    atomic_size_t used;
    atomic_size_t limit;
    atomic_size_t refused; /* number of refusals */
};

static inline size_t budget_counted(size_t size)
{
    return size > BUDGET_SMALL ? size : 0;
}

/*
 * Accounts for a piece that changes from `from` to `to` bytes. False: the limit would be exceeded, and nothing is
 * changed; never false if the piece shrinks. budget NULL: no limit.
 */
static inline bool budget_change(struct budget *budget, size_t from, size_t to)
{
    size_t before = budget_counted(from), after = budget_counted(to);
    if (!budget || before == after)
        return true;
    if (after < before) {
        atomic_fetch_sub_explicit(&budget->used, before - after, memory_order_relaxed);
        return true;
    }
    size_t more = after - before;
    size_t used = atomic_fetch_add_explicit(&budget->used, more, memory_order_relaxed);
    size_t limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    if (used <= limit && more <= limit - used)
        return true;
    atomic_fetch_sub_explicit(&budget->used, more, memory_order_relaxed);
    atomic_fetch_add_explicit(&budget->refused, 1, memory_order_relaxed);
    return false;
}

static inline bool budget_take(struct budget *budget, size_t size)
{
    return budget_change(budget, 0, size);
}

static inline void budget_give(struct budget *budget, size_t size)
{
    (void)budget_change(budget, size, 0);
}
#endif
