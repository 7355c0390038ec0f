/* SPDX-License-Identifier: MIT */
/*
 * The order of grants, checked by the outcomes alone, without the model. Each check is a rule of core/plan.h, or a
 * promise.
 */
#include "plan_model.h"

#define FAIL(run, ...) return buf_printf(&(run)->rows.problem, __VA_ARGS__), false

/* A closed semaphore counts as short, too. */
bool is_held_up(const struct decided *decided)
{
    bool closed = false;
    for (unsigned i = 0; i < decided->verdict.shortage_count; i++)
        closed |= decided->verdict.shortages[i].capacity == 0;
    return decided->stand.waits && !decided->is_specific && decided->verdict.status == PERMIT_NO_CAPACITY && !closed;
}

static const struct step *step_of(const struct run *run, const struct decided *decided)
{
    return &run->script->steps[decided->step];
}

/* Returns true if both steps want a semaphore that grants strictly in order; all do if the first has aged. */
static bool share(const struct run *run, const struct step *first, bool aged, const struct step *second)
{
    for (unsigned i = 0; i < MODEL_SEMAPHORES; i++)
        if (step_wants(first, i) && step_wants(second, i) && (aged || run->rows.semaphores[i].queue == QUEUE_FIFO))
            return true;
    return false;
}

/*
 * On a semaphore with queue fifo no request gets a unit after a waiter was refused for lack of free units; with
 * backfill only after a PLACE_AGED waiter was. Nothing new is granted to PLACE_BEHIND.
 */
static bool none_passes_within(struct run *run, unsigned first, unsigned at)
{
    const struct decided *served = &run->decided[at];
    if (served->stand.place == RANK_BEHIND)
        FAIL(run, "step %u is granted, and a waiter before it is not here", served->step);
    for (unsigned i = first; i < at; i++) {
        const struct decided *other = &run->decided[i];
        if (is_held_up(other) && share(run, step_of(run, other), other->stand.place == RANK_AGED, step_of(run, served)))
            FAIL(run, "step %u passes step %u", served->step, other->step);
    }
    return true;
}

/* Returns the last decision about a step; there must be one. */
static const struct decided *last_decision(const struct run *run, unsigned step)
{
    unsigned at = run->decided_count - 1;
    while (run->decided[at].step != step)
        at--;
    return &run->decided[at];
}

/*
 * Independent of batches: under fifo no later request is granted while an earlier waiter was refused for lack of free
 * units. Exempt are waiters decided later because an earlier operation on their key was.
 */
static bool none_passes_the_queue(struct run *run, const struct decided *served)
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

/* Returns true if the waiter would have fit without the grant to the new request. */
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

/*
 * M24: new requests planned before waiters. Judged by the rows at the end of the batch, so nothing may be freed
 * meanwhile.
 */
static bool waiters_come_first(struct run *run, unsigned first, unsigned at)
{
    const struct decided *newcomer = &run->decided[at];
    for (unsigned i = first; i < run->decided_count && newcomer->stand.place == RANK_NEW; i++) {
        const struct decided *other = &run->decided[i];
        bool waiter = (other->stand.place == RANK_WAITER || other->stand.place == RANK_AGED) && !other->is_specific;
        if (waiter && other->verdict.status == PERMIT_NO_CAPACITY && would_fit_without(run, other, newcomer))
            FAIL(run, "step %u has just arrived and is served, and step %u waits for that", newcomer->step,
                 other->step);
    }
    return true;
}

/*
 * Returns true if the batch has two operations on one key: the later one may be decided out of the order of its kind,
 * and end an earlier grant.
 */
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
        if (!none_passes_within(run, first, at) || !none_passes_the_queue(run, decided) ||
            (!frees_late && !waiters_come_first(run, first, at)))
            return false;
    }
    return true;
}
