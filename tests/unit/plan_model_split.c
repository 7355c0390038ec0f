/* SPDX-License-Identifier: MIT */
/* The decisions of a run without waiting in other batches. Each becomes a step of its own. */
#include <limits.h>

#include "plan_model.h"
#include "random.h"

/* The rank of an operation by its kind alone, in a batch without waiters. */
static int rank_of(const struct step *step)
{
    switch (step->kind) {
    case OP_RELEASE:
    case OP_FORCE_RELEASE: return 0;
    case OP_EXCHANGE: return step->want_count ? 4 : 0;
    case OP_RENEW: return 1;
    case OP_CONFIRM: return 2;
    case OP_EXPIRE: return 3;
    default: return 4;
    }
}

static bool is_exchange(const struct run *run, unsigned at)
{
    return run->script.steps[run->decided[at].step].kind == OP_EXCHANGE;
}

/*
 * Returns true if the operation may follow the one before it in a batch: ranks do not fall, and time stands still. An
 * exchange stays alone, because a batch puts back what comes to its key after it, and it after a grant.
 */
static bool may_join(const struct run *run, unsigned at, int last_rank)
{
    const struct decided *decided = &run->decided[at];
    return at > 0 && !is_exchange(run, at) && !is_exchange(run, at - 1) &&
           rank_of(&run->script.steps[decided->step]) >= last_rank &&
           memcmp(&decided[-1].moment, &decided->moment, sizeof decided->moment) == 0;
}

bool split_run(const struct run *run, uint64_t seed, struct split *ret_split)
{
    uint64_t random = seed;
    int last_rank = INT_MAX;
    ret_split->script.count = ret_split->script.max_waiters = ret_split->script.queue_cut = ret_split->script.rounds =
        ret_split->script.max_packet = 0;
    for (unsigned i = 0; i < run->script.count; i++)
        if (run->script.steps[i].wait != WAIT_NO)
            return false;
    for (unsigned at = 0; at < run->decided_count; at++) {
        const struct decided *decided = &run->decided[at];
        struct step *step = &ret_split->script.steps[ret_split->script.count];
        ret_split->repeats[ret_split->script.count++] = at;
        *step = run->script.steps[decided->step];
        step->new_batch = random_below(&random, 4) == 0 || !may_join(run, at, last_rank);
        last_rank = rank_of(step);
        step->stale = false;
        step->more_locks = decided->locks;
        step->due_cut = 0;
        step->moment = decided->moment;
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
        if (!verdict_equal(&expected->verdict, &other->decided[i].verdict, problem))
            return buf_printf(problem, " at step %u in other batches", expected->step), false;
    }
    return true;
}
