/* SPDX-License-Identifier: MIT */
/*
 * A worker: one task with one store, in blocking code. It takes a batch, runs it as one transaction, and decides its
 * operations after COMMIT has returned. On an error it retries the whole batch, then one operation at a time, so that
 * only the operation that causes the error fails. worker.c has the task, and how a batch is tried and split; attempt.c
 * one try, transaction.c the retries, resolve.c resolves names and keys, deliver.c decides after COMMIT.
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"
#include "engine/task.h"
#include "engine/transaction.h"

struct worker {
    struct task *task;
    struct engine *engine;
    struct store *store; /* the task's */
    struct arena *arena; /* the task's; cleared for each try */
    uint64_t sessions;   /* store->sessions when it last began a generation of copies (rows.h) */
    struct batch batch;
    struct seat_layout *layouts[2 * BATCH_MAX_SEMAPHORES]; /* held by the last try: on copies, then the long way */
    size_t layout_count;
    bool failing; /* the last call lost the database; its failure is logged */
};

/* The batch, or a part of it, that runs in one transaction. */
struct run {
    struct transaction transaction;
    struct worker *worker;
    struct op **ops;
    size_t count;
    size_t most; /* largest `count` of its tries: operations may be dropped, and some may join it (gather) */
    struct view view;
    struct id_range ids;           /* for the plan */
    struct plan_settings settings; /* of the plan */
    struct plan plan;
    uint64_t generation; /* of copies, when the last try began */
    bool tried_copies;   /* a try has gone the short path */
    bool on_copies;      /* and committed there */
    bool applied;        /* the last try locked all semaphores and began to write */
    bool locks_waiters;  /* another session had locked the row of a waiter: these are locked before the plan */
    bool waits_once;     /* a lock time-out before that ends the run */
    bool is_whole;       /* it has all operations of the batch that are not decided */
};

/* Returns the number of keys of the operations of the run. */
static inline size_t run_key_count(const struct run *run)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        count += operation_key_count(run->ops[i]->operation);
    return count;
}

/*
 * One try of a batch: PERMIT_OK after COMMIT, or if the plan changes nothing, or no operation is left. Clears the
 * worker's arena first. After a failure the transaction may be open, and run->applied says how far it came.
 */
enum permit_status attempt(struct worker *worker, struct run *run) MUST_CHECK;
/* Ends the hold of the last try on seat maps. */
void worker_drop_layouts(struct worker *worker) REQUIRES(engine_mutex);
/* Ends a try that failed: its plan is void. */
void run_cancel_grants(struct run *run);
/* Resolves operations: looks up their semaphores in the database and queues them; or decides them. */
void resolve_ops(struct worker *worker, struct op **ops, size_t count);
/*
 * Ends a run after COMMIT: requeues the operations that were put back, updates the caches, releases the pre-locks of
 * the batch if `release_prelocks`, and decides the other operations.
 */
void deliver(struct worker *worker, struct run *run, bool release_prelocks);

/* ---- failures, for worker.c, resolve.c and deliver.c ---- */

/*
 * For the transaction of a run: decides and drops the operations that are past their deadline or answered, with
 * `status`, the status of the last try; all of them if the engine stops or the database is refused. Returns the number
 * of the others.
 */
size_t run_drop_late(struct transaction *transaction, enum permit_status status);
/* Decides one operation, or all of the run, after a failure with this status. */
void op_fail(struct engine *engine, struct op *op, enum permit_status status, const char *detail);
void run_fail_all(struct worker *worker, struct run *run, enum permit_status status);
/* Logs and counts a failed try, and rolls back. */
void worker_record_failure(struct worker *worker, enum permit_status status, const char *what);
/* Records a success; logs the recovery after a failure. */
void worker_recovered(struct worker *worker);
#endif
