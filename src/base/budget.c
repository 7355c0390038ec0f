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

/*
 * Takes `more` bytes, for a piece of which `before` bytes are counted, from the budget and those it is a share of, up
 * to `end`, which is left out.
 */
static enum budget_result take_up_to(struct budget *budget, const struct budget *end, size_t before, size_t more)
{
    for (struct budget *at = budget; at != end; at = at->whole) {
        size_t used = atomic_fetch_add_explicit(&at->used, more, memory_order_relaxed);
        size_t limit = budget_limit(at);
        bool is_alone = at->whole && used == before;
        if (is_alone || (used <= limit && more <= limit - used))
            continue;
        for (struct budget *taken = budget; taken != at->whole; taken = taken->whole)
            give(taken, more);
        struct budget *outermost = at;
        while (outermost->whole)
            outermost = outermost->whole;
        atomic_fetch_add_explicit(at == outermost ? &outermost->refused : &outermost->share_refused, 1,
                                  memory_order_relaxed);
        return at == outermost ? BUDGET_FULL : BUDGET_SHARE_FULL;
    }
    return BUDGET_OK;
}

static void give_up_to(struct budget *budget, const struct budget *end, size_t bytes)
{
    for (; budget != end; budget = budget->whole)
        give(budget, bytes);
}

enum budget_result budget_change_counted(struct budget *budget, size_t before, size_t after)
{
    if (after > before)
        return take_up_to(budget, NULL, before, after - before);
    give_up_to(budget, NULL, before - after);
    return BUDGET_OK;
}

static bool is_within(const struct budget *budget, const struct budget *other)
{
    while (budget && budget != other)
        budget = budget->whole;
    return budget == other;
}

enum budget_result budget_move(struct budget *from, struct budget *to, size_t bytes)
{
    const struct budget *both = to; /* the innermost one that both are in; NULL: none */
    while (both && !is_within(from, both))
        both = both->whole;
    enum budget_result result = take_up_to(to, both, 0, bytes);
    if (result == BUDGET_OK)
        give_up_to(from, both, bytes);
    return result;
}
