/* SPDX-License-Identifier: MIT */
/*
 * A worker: one task with one session of the store, in blocking code. It takes a batch, runs it as one transaction,
 * and decides its operations after COMMIT has returned. On an error it retries the whole batch, then one operation at a
 * time, so that only the operation that causes the error fails. worker.c has the thread and the retries, resolve.c
 * resolves names and keys, deliver.c decides after COMMIT.
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"
#include "engine/task.h"

struct worker {
    struct task *task;
    struct engine *engine;
    struct store *store; /* the task's, as the arena */
    struct arena *arena; /* cleared for each try */
    struct id_range ids;
    uint64_t ids_epoch; /* epoch in which the ids were reserved */
    struct batch batch;
    bool failing; /* the last call lost the database; its failure is logged */
};

/* The batch, or a part of it, that runs in one transaction. */
struct run {
    struct op **ops;
    size_t count;
    struct view view;
    struct plan plan;
    bool applied; /* the last try locked all semaphores and began to write */
};

/* Resolves operations: looks up their semaphores in the database and queues them; or decides them. */
void resolve_ops(struct worker *worker, struct op **ops, size_t count);
/*
 * Ends a run after COMMIT: requeues the operations that were put back, updates the caches, releases the pre-locks of
 * the batch if `release_prelocks`, and decides the other operations.
 */
void deliver(struct worker *worker, struct run *run, bool release_prelocks);

/* ---- failures and retries, for worker.c, resolve.c and owners.c ---- */

/*
 * Decides and drops the operations of the run that are past their deadline or answered, with `status`, the status of
 * the last try. Drops all if the engine stops or the database is refused.
 */
void run_drop_timed_out(struct worker *worker, struct run *run, enum permit_status status);
/* Decides one operation, or all of the run, after a failure with this status. */
void op_fail(struct engine *engine, struct op *op, enum permit_status status, const char *detail);
void run_fail_all(struct worker *worker, struct run *run, enum permit_status status);
/* Logs and counts a failed try, and rolls back. */
void worker_record_failure(struct worker *worker, enum permit_status status, const char *what);
/* Records a success; logs the recovery after a failure. */
void worker_recovered(struct worker *worker);
/*
 * Sleeps before the next try, with jitter: about 2 to 16 ms after a conflict, up to 1 s while the database is
 * unavailable.
 */
void retry_backoff(enum permit_status status, unsigned tries);
#endif
