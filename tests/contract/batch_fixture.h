/* SPDX-License-Identifier: MIT */
/*
 * Fixture: a store with the memory of one batch, and the steps of a batch as a worker runs them: resolve, lock, read
 * due holders, decide with plan_batch, write. A batch has one operation.
 */
#ifndef BATCH_FIXTURE_H
#define BATCH_FIXTURE_H

#include "checked_store.h"
#include "core/plan.h"
#include "store/store.h"

extern const struct plan_settings fixture_settings;

struct fixture {
    struct store *store;
    struct checked_store checked;
    struct arena arena;
    struct id_range ids;
    struct view view;
    struct plan plan;
};

/* Connects the store and reserves ids. The fixture owns the store. */
void fixture_open(struct fixture *fixture, struct store *store);
void fixture_close(struct fixture *fixture);
/* Resolves the semaphores that the operation names, and sets the ids in its wants. Valid until the next call. */
struct lock_set lock_set_of(struct fixture *fixture, struct operation *operation);
/* Judges a clock as if the own clock were the database's. */
void fixture_judge(struct lease_clock *clock, utc_us now);
/* Resolves, locks and decides, but does not write. The outcome is valid until the next call with this fixture. */
const struct outcome *batch_decide(struct fixture *fixture, struct operation *operation);
/* Raises the epoch. */
enum permit_status fixture_advance_epoch(struct store *store, enum epoch_cause cause, uint64_t seen, int64_t hold_ms);
/* Runs all steps of a batch. */
const struct outcome *batch_run(struct fixture *fixture, struct operation *operation);

void semaphore_make(struct fixture *fixture, const char *name, enum semaphore_kind kind, int64_t capacity);
struct operation acquire_of(const char *key, struct want *wants, size_t count);
#endif
