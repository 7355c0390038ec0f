/* SPDX-License-Identifier: MIT */
/*
 * What the liveness probe has answered about owners: "200 alive; 404 or 410, twice in a row, dead; anything else is
 * unknown and releases nothing." It is kept for this process only: after a restart two answers are needed again.
 */
#ifndef ENGINE_LIVENESS_H
#define ENGINE_LIVENESS_H

#include "engine/state.h"

/* NULL: out of memory. */
struct liveness *liveness_new(struct engine *engine) MUST_CHECK;
/* Call it after the task has ended. Accepts NULL. */
void liveness_free(struct liveness *liveness);

/*
 * Takes an answer to a question that was asked after `asked_at`. Returns true if it is the second "dead" in a row;
 * *ret_since is the time before the first of the two.
 */
bool liveness_learn(struct liveness *liveness, const struct probe_question *question, utc_us asked_at,
                    utc_us *ret_since);
/* A pass asks about each owner once. Its end forgets the owners that were not asked about: they hold nothing now. */
void liveness_begin_pass(struct liveness *liveness);
void liveness_end_pass(struct liveness *liveness);
#endif
