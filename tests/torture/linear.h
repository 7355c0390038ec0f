/* SPDX-License-Identifier: MIT */
/*
 * C3: is there an order in which everything that was said of one semaphore can have happened, each thing at one moment
 * between question and answer? In the manner of Wing and Gong, and of Lowe: a search that always takes a next operation
 * which nothing undone has to precede, remembers the sets of what was done from which nothing came, and goes back.
 *
 * The semantics are those of a counting semaphore with keys: a key is unknown, held, ended, one way; a grant finds room
 * and has a larger token than all before it; where nobody waits, "no capacity" to one who asks for nothing else finds
 * none. What an answer says of a key (renewed, confirmed, seen, unknown) narrows when that key's grant and end can have
 * been, and needs no place of its own. Of what was not answered a grant is taken for real if anything shows it.
 */
#ifndef LINEAR_H
#define LINEAR_H

#include "checkers.h"

struct linear_counts {
    size_t placed;  /* grants, ends and refusals that were put in order */
    size_t rough;   /* grants and ends of which is known too little when they were: counted where they were for sure */
    size_t skipped; /* not decided: refusals of which the same is true, and what a search left that took too long */
};

/*
 * never_waited: a bit for each of the facts' semaphores for which no acquire of the history waits. The counts are added
 * to *ret_counts.
 */
bool check_linear(const struct history *history, const struct facts *facts, uint64_t never_waited,
                  struct linear_counts *ret_counts, char message[MESSAGE_SIZE]);
#endif
