/* SPDX-License-Identifier: MIT */
/*
 * A worker: one task with one store, in blocking code. It takes a batch, runs it as one transaction, and decides its
 * operations after COMMIT has returned. On an error it retries the whole batch, then one operation at a time, so that
 * only the operation that causes the error fails. worker.c has the task and one try, transaction.c the
 * retries, resolve.c resolves names and keys, deliver.c decides after COMMIT.
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
    bool failing; /* the last call lost the database; its failure is logged */
};

/* The batch, or a part of it, that runs in one transaction. */
struct run {
    struct transaction transaction;
    struct worker *worker;
    struct op **ops;
    size_t count;
    size_t most; /* largest `count` of its tries: operations may be dropped, and some may join it (gather.h) */
    struct view view;
    struct id_range ids; /* for the plan */
    struct plan plan;
    uint64_t generation; /* of copies, when the last try began */
    bool goes_long;      /* it has tried the short path */
    bool went_short;     /* and was decided on it */
    bool has_lock;       /* this try has called store_await */
    bool applied;        /* the last try locked all semaphores and began to write */
    bool waits_once;     /* a lock time-out before that ends the run */
    bool is_whole;       /* it has all operations of the batch that are not decided */
};

/* Resolves operations: looks up their semaphores in the database and queues them; or decides them. */
void resolve_ops(struct worker *worker, struct op **ops, size_t count);
/*
 * Ends a run after COMMIT: requeues the operations that were put back, updates the caches, releases the pre-locks of
 * the batch if `release_prelocks`, and decides the other operations.
 */
void deliver(struct worker *worker, struct run *run, bool release_prelocks);

/* ---- a run, for worker.c and short_path.c ---- */

/*
 * Takes ids for the operations, which the engine has reserved in the epoch of the view. False: too few are left. After the
 * plan, run_keep_ids gives the rest back, if no other run has taken ids since.
 */
bool run_take_ids(struct run *run);
void run_keep_ids(struct run *run, uint64_t used);
/* Returns the settings of a plan that this worker's store writes. */
struct plan_settings worker_plan_settings(const struct worker *worker);
/* Returns the operations of the run, in the arena. NULL: out of memory. */
const struct operation **run_operations(struct worker *worker, const struct run *run);
/* Collects the distinct semaphores of the run, ascending by id; returns their number. */
size_t run_collect_entries(const struct run *run, struct semaphore_entry **ret_entries);
/*
 * Collects the slots to read of a semaphore: all specific slots, and enough free ones for the acquires that may be
 * granted. False: out of memory.
 */
bool run_slots_wanted(struct worker *worker, const struct run *run, uint64_t semaphore_id,
                      struct slots_wanted *ret_set);
/*
 * P22: marks the operations that the packet writes as sent: those that are not refused without a place in the queue (a
 * last decision may give up a place), and of those that are put back the ones with a place. False: a client was answered
 * since the batch began; the packet must not be sent. The clients of waiters are marked since they were parked.
 */
bool run_mark_sent(struct run *run);
/* Ends a try that failed: its plan is void. */
void run_cancel_grants(struct run *run);

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
