/* SPDX-License-Identifier: MIT */
/*
 * The probe: one thread that has the owners of what is held asked about, page after page, and judges the answers. "200
 * alive; 404 or 410, twice in a row, dead; anything else is unknown and releases nothing." What it remembers of an
 * owner, it remembers for this process only: after a restart two answers are needed again.
 */
#ifndef ENGINE_LIVENESS_H
#define ENGINE_LIVENESS_H

#include "engine/state.h"

/* NULL: no memory. */
struct liveness *liveness_new(struct engine *engine) MUST_CHECK;
/* The thread has ended. Accepts NULL. */
void liveness_free(struct liveness *liveness);
#endif
