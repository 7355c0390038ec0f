/* SPDX-License-Identifier: MIT */
/*
 * A task: a thread of the engine with a store and an arena of its own. The kinds are workers and readers (engine.c),
 * and those in the table of src/tasks, which comes with the settings. task.c opens and frees the store, follows a
 * failover, logs a series of failures once, and ends a sleep when the engine stops.
 */
#ifndef ENGINE_TASK_H
#define ENGINE_TASK_H

#include <pthread.h>

#include "engine/engine.h"

struct task;

struct task_kind {
    const char *name; /* for the log */
    enum store_use use;
    size_t arena_chunk, arena_limit;
    /*
     * The body. Returns when the engine stops. task->store is NULL only if the engine stopped before it could be
     * opened.
     */
    void (*run)(struct task *task);
    enum query_lane lane; /* the queries of a reader */
};

/* Arenas: of a task that reads pages of rows; of a batch of 500 requests with 64 long-named permits each. */
#define PAGE_ARENA  .arena_chunk = 64 * 1024, .arena_limit = 16 * 1024 * 1024
#define BATCH_ARENA .arena_chunk = 256 * 1024, .arena_limit = 256 * 1024 * 1024

struct task {
    const struct task_kind *kind;
    struct engine *engine;
    struct store *store;
    struct arena arena;
    unsigned server_generation; /* engine->server_generation when the store was last used */
    bool failing;               /* the last call failed; its failure is logged */
    pthread_t thread;
};

/* Starts the thread of a task. False: the system has no thread. */
bool task_start(struct task *task, const struct task_kind *kind, struct engine *engine) MUST_CHECK;

/*
 * Opens the store's session if it is not open. After a failover, drops the session first. Call it before each use of
 * the store.
 */
enum permit_status task_connect(struct task *task) MUST_CHECK;
/*
 * Logs the first failure of a series, and the recovery. PERMIT_CONFLICT and PERMIT_LOCK_TIMEOUT are no failures.
 * Returns true if this is the recovery.
 */
bool task_record_status(struct task *task, enum permit_status status);
/* Sleeps; returns early, within 50 ms, when the engine stops. */
void task_sleep(const struct task *task, int64_t us);
bool task_stopping(const struct task *task);

/* The bodies of the engine's own tasks. */
void worker_run(struct task *task);
void reader_run(struct task *task);
#endif
