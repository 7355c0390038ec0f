/* SPDX-License-Identifier: MIT */
/*
 * A limit on the memory that the buffers and arenas of several threads hold together. Exceeding it fails like an
 * allocation. Small pieces are not counted and never refused, so short requests are served whatever the long ones hold;
 * the limit must leave memory for them.
 *
 * A share is a budget of one client, in another one: each piece counts in both, and must fit into both. A piece that is
 * alone in its share only has to fit into the other one, so that none is too large for its share for ever.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdatomic.h>

#include "base/base.h"

enum { BUDGET_SMALL = 2048 }; /* bytes; the largest piece that is not counted */

enum budget_result { BUDGET_OK, BUDGET_FULL, BUDGET_SHARE_FULL };

struct budget {
    atomic_size_t used;
    atomic_size_t limit;         /* bytes; 0: that of `whole` divided by `part` */
    atomic_size_t refused;       /* number of refusals because of this limit */
    atomic_size_t share_refused; /* the same because of the limit of a share in it; counted in the outermost budget */
    struct budget *whole;        /* it is a share of this one, which lives longer; NULL: it is no share */
    size_t part;
};

static inline size_t budget_counted(size_t size)
{
    return size > BUDGET_SMALL ? size : 0;
}

/* Returns the limit that holds now. */
size_t budget_limit(const struct budget *budget);

/* As budget_change, for counted numbers of bytes that differ. */
enum budget_result budget_change_counted(struct budget *budget, size_t before, size_t after);

/*
 * Counts `bytes`, a counted number of bytes, in `to` instead of in `from`, as one piece. Budgets that both are shares
 * of keep them. Not BUDGET_OK: a limit would be exceeded, and nothing is changed. NULL: no limit.
 */
enum budget_result budget_move(struct budget *from, struct budget *to, size_t bytes);

/*
 * Accounts for a piece that changes from `from` to `to` bytes. Not BUDGET_OK: a limit would be exceeded, and nothing is
 * changed; always BUDGET_OK if the piece shrinks. budget NULL: no limit.
 */
static inline enum budget_result budget_change(struct budget *budget, size_t from, size_t to)
{
    size_t before = budget_counted(from), after = budget_counted(to);
    return budget && before != after ? budget_change_counted(budget, before, after) : BUDGET_OK;
}

static inline void budget_give(struct budget *budget, size_t size)
{
    (void)budget_change(budget, size, 0);
}
#endif
