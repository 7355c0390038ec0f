/* SPDX-License-Identifier: MIT */
/*
 * The decisions of a run in other batches. Each becomes a step of its own that is tried once, with the place that it
 * had. If a batch of the run is split, the waiters refused in the first part are repeated at the head of the second,
 * and must be refused again.
 */
#include <limits.h>

#include "plan_model.h"
#include "random.h"

struct splitter {
    const struct run *run;
    uint64_t random;
    struct split *split;
    int last_rank;        /* rank of the last step, by its kind and place */
    struct moment moment; /* of the current batch */
    bool any_held_up;     /* in the current batch */
    unsigned first;       /* first decision of the run's batch */
    unsigned end;         /* end of the run's batch, exclusive */
    bool cannot_be_cut;   /* its decisions depend on each other */
};

static bool add_step(struct splitter *splitter, unsigned at, bool new_batch, bool again)
{
    struct split *split = splitter->split;
    const struct decided *decided = &splitter->run->decided[at];
    if (split->script.count == MODEL_STEPS)
        return false;
    split->repeats[split->script.count] = at;
    split->again[split->script.count] = again;
    struct step *step = &split->script.steps[split->script.count++];
    *step = splitter->run->script->steps[decided->step];
    step->new_batch = new_batch;
    step->stale = false;
    step->more_locks = decided->locks;
    step->due_cut = 0;
    step->stand = decided->stand;
    step->patience = step->aged_at = 0;
    step->moment = decided->moment;
    splitter->any_held_up = (splitter->any_held_up && !new_batch) || is_held_up(decided);
    splitter->last_rank = step_rank(step, &step->stand);
    splitter->moment = decided->moment;
    return true;
}

/*
 * Repeats the waiters of the batch that were refused before `at`, at the head of a new batch: as waiters, unless one of
 * them is behind an absent waiter. *new_batch: the batch has not been started.
 */
static bool add_waiters(struct splitter *splitter, unsigned at, bool *new_batch)
{
    bool all_here = true;
    for (unsigned i = splitter->first; i < at; i++)
        all_here &= splitter->run->decided[i].stand.place != RANK_BEHIND;
    for (unsigned i = splitter->first; i < at; i++) {
        if (!is_held_up(&splitter->run->decided[i]))
            continue;
        if (!add_step(splitter, i, *new_batch, true))
            return false;
        enum queue_rank *place = &splitter->split->script.steps[splitter->split->script.count - 1].stand.place;
        if (*place == RANK_NEW && all_here)
            *place = RANK_WAITER;
        *new_batch = false;
    }
    return true;
}

/* Within a batch decisions are in order of rank, so a batch may be extended as long as ranks do not fall. */
static bool may_join(const struct splitter *splitter, const struct decided *decided)
{
    const struct step *step = &splitter->run->script->steps[decided->step];
    return step_rank(step, &decided->stand) >= splitter->last_rank && !splitter->any_held_up &&
           memcmp(&splitter->moment, &decided->moment, sizeof decided->moment) == 0;
}

static bool add_decision(struct splitter *splitter, unsigned at)
{
    const struct decided *decided = &splitter->run->decided[at];
    const struct step *step = &splitter->run->script->steps[decided->step];
    bool first = at == splitter->first;
    bool dice = random_below(&splitter->random, 4) == 0;
    bool new_batch;
    if (splitter->cannot_be_cut)
        new_batch = first;
    else if (first)
        new_batch = dice || !may_join(splitter, decided);
    else
        new_batch = dice || step_rank(step, &decided->stand) < splitter->last_rank;
    if (new_batch && !first && !add_waiters(splitter, at, &new_batch))
        return false;
    return add_step(splitter, at, new_batch, false);
}

/*
 * Returns true if the batch cannot be split: a waiter that was refused may be granted when it is repeated, if units
 * were freed in between by an operation that had to follow another one of its key, or may be answered by that operation
 * if the key is its own.
 */
static bool is_inseparable(const struct run *run, unsigned first, unsigned end)
{
    bool held_up = false;
    bool key_twice = false;
    unsigned seen = 0;
    for (unsigned i = first; i < end; i++) {
        const struct step *step = &run->script->steps[run->decided[i].step];
        held_up |= is_held_up(&run->decided[i]);
        key_twice |= seen >> step->key & 1;
        seen |= 1U << step->key;
    }
    return held_up && key_twice;
}

bool split_run(const struct run *run, uint64_t seed, struct split *ret_split)
{
    struct splitter splitter = {.run = run, .random = seed, .split = ret_split, .last_rank = INT_MAX};
    ret_split->script.count = ret_split->script.max_waiters = 0;
    for (; splitter.end < run->decided_count; splitter.first = splitter.end) {
        while (splitter.end < run->decided_count &&
               run->decided[splitter.end].batch == run->decided[splitter.first].batch)
            splitter.end++;
        splitter.cannot_be_cut = is_inseparable(run, splitter.first, splitter.end);
        for (unsigned at = splitter.first; at < splitter.end; at++)
            if (!add_decision(&splitter, at))
                return false;
    }
    return true;
}

bool split_equal(const struct run *run, const struct run *other, const struct split *split, struct buf *problem)
{
    if (other->decided_count != split->script.count)
        return buf_append_text(problem, "other operations were decided"), false;
    for (unsigned i = 0; i < other->decided_count; i++) {
        const struct decided *expected = &run->decided[split->repeats[i]];
        if (other->decided[i].step != i)
            return buf_printf(problem, "operation %u is decided in another order", i), false;
        if (split->again[i] && !is_held_up(&other->decided[i]))
            return buf_printf(problem, "step %u has waited, and is not refused again", expected->step), false;
        if (!split->again[i] && !verdict_equal(&expected->verdict, &other->decided[i].verdict, problem))
            return buf_printf(problem, " at step %u in other batches", expected->step), false;
    }
    return true;
}
