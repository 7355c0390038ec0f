/* SPDX-License-Identifier: MIT */
/*
 * A worker: one thread, one session of the store, straight blocking code. It takes what may run, runs it as one
 * transaction, runs it again on any error (the whole batch from step 0, then one by one, so that only the guilty
 * operation fails), and decides the operations after COMMIT returned. worker.c has the thread and the tries, step0.c
 * the look-up of semaphores, deliver.c what happens after COMMIT.
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/state.h"

struct worker {
    struct engine *engine;
    struct store *store;
    struct arena arena; /* of one try */
    struct id_range ids;
    uint64_t ids_epoch; /* in which they were reserved */
    unsigned servers;   /* of engine->servers: the session is of that time */
    struct batch batch;
    bool in_trouble; /* the last call failed: logged once */
};

/* A part of the batch that runs in one transaction. */
struct run {
    struct op **ops;
    size_t count;
    struct view view;
    struct plan plan;
    bool applied; /* the last try locked all semaphores and came to its writes */
};

/* Finds the semaphores of operations that memory does not know, and puts them into the queue. */
void resolve_ops(struct worker *worker, struct op **ops, size_t count);
/*
 * The run is durable: what was put back goes into the queue, caches learn, and if `open_gates` the batch's gates open;
 * then the operations are decided.
 */
void deliver(struct worker *worker, struct run *run, bool open_gates);

/* ---- failing and trying again, for worker.c and step0.c ---- */

/* Drops from the run what is past its deadline, or everything when the engine stops. `status`: of the last try. */
void drop_late(struct worker *worker, struct run *run, enum permit_status status);
/* Tells one operation, or all of the run, that it failed with this status. */
void give_up(struct engine *engine, struct op *op, enum permit_status status, const char *detail);
void give_up_all(struct worker *worker, struct run *run, enum permit_status status);
/* Logs and counts a failed try, and ends what is left of its transaction. */
void note_failure(struct worker *worker, enum permit_status status, const char *what);
/* Logs that trouble is over, if there was any. */
void all_is_well(struct worker *worker);
/* Waits before the next try: at once with jitter after a conflict, with back-off while the database is away. */
void pause_before_retry(enum permit_status status, unsigned tries);
#endif
