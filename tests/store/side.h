/* SPDX-License-Identifier: MIT */
/*
 * A store with what one batch on it needs, and the steps of a batch as a worker takes them: look up, lock, read who is
 * due, decide with plan_batch, write. One operation a batch.
 */
#ifndef SIDE_H
#define SIDE_H

#include "core/plan.h"
#include "store/session.h"
#include "store/store.h"

extern const struct plan_settings side_settings;

struct side {
    struct store *store;
    struct arena arena;
    struct id_range ids;
    struct view view;
    struct plan plan;
};

void side_open(struct side *side, const struct database_address *address);
void side_close(struct side *side);
/* The ids of the semaphores that the operation names; fills them into the wants. Valid until the next call. */
struct lock_set lock_set_of(struct side *side, struct operation *operation);
/* Steps 0 to 2: locked and decided, not yet written. The outcome is valid until the next call with this side. */
const struct outcome *decide(struct side *side, struct operation *operation);
/* All steps. */
const struct outcome *run(struct side *side, struct operation *operation);

void semaphore_make(struct side *side, const char *name, enum semaphore_kind kind, int64_t capacity);
struct operation acquire_of(const char *key, struct want *wants, size_t count);
#endif
