/* SPDX-License-Identifier: MIT */
#include "base/budget.h"

size_t budget_limit(const struct budget *budget)
{
    size_t limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    return limit || !budget->whole ? limit : budget_limit(budget->whole) / budget->part;
}

static void give(struct budget *budget, size_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

/* Takes `more` bytes for a piece of which `before` bytes are counted. */
static bool take(struct budget *budget, size_t before, size_t more)
{
    size_t used = atomic_fetch_add_explicit(&budget->used, more, memory_order_relaxed);
    size_t limit = budget_limit(budget);
    bool is_alone = budget->whole && used == before;
    if (is_alone || (used <= limit && more <= limit - used))
        return true;
    give(budget, more);
    return false;
}

static enum budget_result refuse(struct budget *budget)
{
    struct budget *outermost = budget;
    while (outermost->whole)
        outermost = outermost->whole;
    atomic_size_t *count = budget == outermost ? &outermost->refused : &outermost->share_refused;
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    return budget == outermost ? BUDGET_FULL : BUDGET_SHARE_FULL;
}

enum budget_result budget_change_counted(struct budget *budget, size_t before, size_t after)
{
    for (struct budget *at = budget; at; at = at->whole) {
        if (after < before) {
            give(at, before - after);
        } else if (!take(at, before, after - before)) {
            for (struct budget *taken = budget; taken != at; taken = taken->whole)
                give(taken, after - before);
            return refuse(at);
        }
    }
    return BUDGET_OK;
}
