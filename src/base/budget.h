/* SPDX-License-Identifier: MIT */
/*
 * A bound on the memory that buffers and arenas of several threads hold together. What is refused for it is refused as
 * if there were no memory. Small pieces are not counted and never refused, so that short requests are served whatever
 * the long ones hold; whoever sets the limit leaves room for them.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdatomic.h>

#include "base/base.h"

enum { BUDGET_SMALL = 2048 }; /* the largest piece that is not counted */

struct budget {
    atomic_size_t used;
    atomic_size_t limit;
    atomic_size_t refused; /* how often */
};

static inline size_t budget_counted(size_t size)
{
    return size > BUDGET_SMALL ? size : 0;
}

/*
 * A piece of `from` bytes becomes one of `to`. False: it would be too much, and it stays as it was; never if it becomes
 * smaller. budget NULL: nothing is bounded.
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
