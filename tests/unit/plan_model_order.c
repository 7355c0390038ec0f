/* SPDX-License-Identifier: MIT */
/*
 * Who was served before whom, seen from the outcomes alone: the model is not asked. What each check says is a sentence
 * of core/plan.h, or a promise.
 */
#include "plan_model.h"

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

/* A semaphore that is closed is short as well. */
bool is_held_up(const struct decided *decided)
{
    bool closed = false;
    for (unsigned i = 0; i < decided->verdict.shortage_count; i++)
        closed |= decided->verdict.shortages[i].capacity == 0;
    return decided->stand.waits && !decided->certain && decided->verdict.status == PERMIT_NO_CAPACITY && !closed;
}

static const struct step *step_of(const struct run *run, const struct decided *decided)
{
    return &run->script->steps[decided->step];
}

/* Both want one that serves strictly in turn; all do if the first of the two has aged. */
static bool share(const struct run *run, const struct step *first, bool aged, const struct step *second)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (step_wants(first, i) && step_wants(second, i) && (aged || run->rows.semaphores[i].queue == QUEUE_FIFO))
            return true;
    return false;
}

/*
 * "On a semaphore with queue fifo nobody gets a unit once somebody who waits was refused one for want of room; with
 * backfill only once a PLACE_AGED was." "Nothing new is granted" to PLACE_BEHIND.
 */
static bool nobody_passes_within(struct run *run, unsigned first, unsigned at)
{
    const struct decided *served = &run->decided[at];
    if (served->stand.place == PLACE_BEHIND)
        FAIL(run, "step %u is granted, and a waiter before it is not here", served->step);
    for (unsigned i = first; i < at; i++) {
        const struct decided *other = &run->decided[i];
        if (is_held_up(other) &&
            share(run, step_of(run, other), other->stand.place == PLACE_AGED, step_of(run, served)))
            FAIL(run, "step %u passes step %u", served->step, other->step);
    }
    return true;
}

/* The last decision about a step; there is one. */
static const struct decided *last_decision(const struct run *run, unsigned step)
{
    unsigned at = run->decided_count - 1;
    while (run->decided[at].step != step)
        at--;
    return &run->decided[at];
}

/*
 * Whatever the batches: nobody who came later is served under fifo while somebody waits who came first and was refused
 * for want of room; but for those who were decided later because an earlier operation on their key was.
 */
static bool nobody_passes_the_queue(struct run *run, const struct decided *served)
{
    for (unsigned i = 0; i < run->queue.count; i++) {
        const struct arrival *waiter = &run->queue.arrivals[i];
        if (!waiter->waits_here || waiter->was_put_back || waiter->step >= served->step)
            continue;
        const struct step *step = &run->script->steps[waiter->step];
        const struct decided *last = last_decision(run, waiter->step);
        bool in_turn = last->rank == step_rank(step, &last->stand);
        if (in_turn && is_held_up(last) && share(run, step, false, step_of(run, served)))
            FAIL(run, "step %u is served, and step %u waits", served->step, waiter->step);
    }
    return true;
}

static int64_t units_of(const struct decided *decided, unsigned semaphore)
{
    int64_t units = 0;
    for (unsigned i = 0; i < decided->verdict.request.permit_count; i++)
        if (decided->verdict.request.permits[i].semaphore == semaphore)
            units += decided->verdict.request.permits[i].count;
    return units;
}

/* It would have found room if the newcomer had not been served. */
static bool would_fit_without(const struct run *run, const struct decided *waiter, const struct decided *newcomer)
{
    for (unsigned i = 0; i < waiter->verdict.shortage_count; i++) {
        const struct model_shortage *shortage = &waiter->verdict.shortages[i];
        const struct semaphore *row = &run->rows.semaphores[shortage->semaphore];
        int64_t room = row->capacity - row->in_use + units_of(newcomer, shortage->semaphore);
        if (shortage->behind || room < shortage->requested)
            return false;
    }
    return true;
}

/* M24: newcomers planned before waiters. By the rows at the end of the batch, so nothing may be freed meanwhile. */
static bool waiters_come_first(struct run *run, unsigned first, unsigned at)
{
    const struct decided *newcomer = &run->decided[at];
    for (unsigned i = first; i < run->decided_count && newcomer->stand.place == PLACE_NEWCOMER; i++) {
        const struct decided *other = &run->decided[i];
        bool waiter = (other->stand.place == PLACE_WAITER || other->stand.place == PLACE_AGED) && !other->certain;
        if (waiter && other->verdict.status == PERMIT_NO_CAPACITY && would_fit_without(run, other, newcomer))
            FAIL(run, "step %u has just arrived and is served, and step %u waits for that", newcomer->step,
                 other->step);
    }
    return true;
}

/* Then an operation may be decided later than its kind says, and end what was granted before. */
static bool any_key_twice(const struct run *run, unsigned first)
{
    unsigned seen = 0;
    for (unsigned i = first; i < run->decided_count; i++) {
        const struct step *step = step_of(run, &run->decided[i]);
        if (seen >> step->key & 1)
            return true;
        seen |= 1U << step->key;
    }
    return false;
}

bool order_holds(struct run *run, unsigned first)
{
    bool frees_late = any_key_twice(run, first);
    for (unsigned at = first; at < run->decided_count; at++) {
        const struct decided *decided = &run->decided[at];
        if (!decided->verdict.created || !decided->verdict.has_request)
            continue;
        if (!nobody_passes_within(run, first, at) || !nobody_passes_the_queue(run, decided) ||
            (!frees_late && !waiters_come_first(run, first, at)))
            return false;
    }
    return true;
}
