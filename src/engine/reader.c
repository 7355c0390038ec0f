/* SPDX-License-Identifier: MIT */
/*
 * Readers: one task per lane of queries, so that a query delays neither a batch nor a query of another lane.
 */
#include "base/clock.h"
#include "engine/state.h"
#include "engine/task.h"

struct reader {
    struct task *task;
    struct engine *engine;
    struct lane *lane;
};

/* Connects and pings the session: the server may have restarted since its last use, and a query is not retried. */
static enum permit_status connect_store(struct task *task)
{
    if (!task->store)
        return PERMIT_SHUTTING_DOWN;
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK && task->store->session->keepalive(task->store) != PERMIT_OK)
        status = task->store->session->reconnect(task->store);
    return status;
}

/*
 * Refuses all pending queries of the lane when no session works, so that they do not wait for one failure after the
 * other.
 */
static void refuse_waiting(struct reader *reader, enum permit_status status)
{
    struct turns refused;
    turns_init(&refused);
    engine_lock(reader->engine);
    turns_move(&refused, &reader->lane->queries);
    engine_unlock(reader->engine);
    while (!turns_empty(&refused)) {
        struct query *query = CONTAINER_OF(turns_take(&refused), struct query, turn);
        query->work(query, NULL, status);
    }
}

static void run_query(struct reader *reader, struct query *query)
{
    if (query->deadline <= clock_mono()) {
        query->work(query, NULL, PERMIT_BUSY);
        return;
    }
    enum permit_status status =
        atomic_load(&reader->engine->stopping) ? PERMIT_SHUTTING_DOWN : connect_store(reader->task);
    query->work(query, status == PERMIT_OK ? reader->task->store : NULL, status);
    if (status != PERMIT_OK)
        refuse_waiting(reader, status);
}

/* Ends when the engine stops and nothing is pending; then no query is added. */
void reader_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct reader reader = {.task = task, .engine = engine, .lane = &engine->lanes[task->kind->lane]};
    struct turns *queries = &reader.lane->queries;
    engine_lock(engine);
    while (!atomic_load(&engine->stopping) || !turns_empty(queries)) {
        if (turns_empty(queries)) {
            engine_wait(engine, &reader.lane->wake);
            continue;
        }
        struct query *query = CONTAINER_OF(turns_take(queries), struct query, turn);
        engine_unlock(engine);
        run_query(&reader, query);
        engine_lock(engine);
    }
    engine_unlock(engine);
}
