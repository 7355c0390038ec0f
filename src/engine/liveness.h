/* SPDX-License-Identifier: MIT */
/*
 * The answers of the liveness probe about owners. An owner is dead after two answers "dead" in a row; an unknown answer
 * ends nothing. Each process keeps its own answers in memory, so after a restart two are needed again.
 */
#ifndef ENGINE_LIVENESS_H
#define ENGINE_LIVENESS_H

#include "engine/state.h"

/* NULL: out of memory. */
struct liveness *liveness_new(struct engine *engine) MUST_CHECK;
/* Call it after the liveness task has ended. Accepts NULL. */
void liveness_free(struct liveness *liveness);

/*
 * Takes an answer to a question that was asked after `asked_at`. Returns true if it is the second "dead" in a row;
 * *ret_since is the time before the first of the two.
 */
bool liveness_learn(struct liveness *liveness, const struct probe_question *question, utc_us asked_at,
                    utc_us *ret_since);
/* A pass queries each owner once. Its end discards the owners that were not queried, because they hold nothing now. */
void liveness_begin_pass(struct liveness *liveness);
void liveness_end_pass(struct liveness *liveness);
#endif
