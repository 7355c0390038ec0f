/* SPDX-License-Identifier: MIT */
/*
 * C3: can all answers about one semaphore be put into one order, with each event at one time between request and
 * answer? The algorithm is that of Wing and Gong, and of Lowe: a search takes next any operation that no pending
 * operation must precede, remembers the sets of done operations that led to nothing, and backtracks.
 *
 * The model is a counting semaphore with keys. A key goes from unknown to held to ended and never back. A grant needs
 * free units and has a larger token than all grants before it. If no client waits, an answer no_capacity to a request
 * for this semaphore alone means that the units did not fit. An answer about a key (renewed, confirmed, seen, unknown)
 * narrows the times of the grant and the end of that key, and has no place in the order. A grant without an answer
 * counts if another answer shows it.
 */
#ifndef LINEAR_H
#define LINEAR_H

#include "checkers.h"

struct linear_counts {
    size_t placed;  /* grants, ends and refusals that have a place in the order */
    size_t rough;   /* grants and ends whose time is too uncertain; they count only where they surely were */
    size_t skipped; /* not decided: refusals whose time is too uncertain, and the rest of a search that took too long */
};

/*
 * never_waited: a bit per semaphore of the facts, set if no acquire of the history waits for it. Adds to *ret_counts.
 */
bool check_linear(const struct history *history, const struct facts *facts, uint64_t never_waited,
                  struct linear_counts *ret_counts, char message[MESSAGE_SIZE]);
#endif
