/* SPDX-License-Identifier: MIT */
/*
 * Readers: one task per lane of queries, so that a query delays neither a batch nor a query of another lane. The reader
 * of QUERY_ROW also reads the holders and the places for no_capacity answers.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/state.h"
#include "engine/task.h"
#include "store/query.h"

enum { PLACES_WITHIN_US = 100000 }; /* a refusal that has waited for longer is told without its places */

struct reader {
    struct task *task;
    struct engine *engine;
    struct lane *lane;
    bool ran_refusal; /* it last ran a refusal, not a query */
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

/* ---- queries ---- */

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

/* ---- holders ---- */

/* Copies what was read of a semaphore. NULL: out of memory. */
static struct holders *holders_new(const struct semaphore_front *front)
{
    size_t strings = 0;
    for (size_t i = 0; i < front->holder_count; i++)
        strings += front->holders[i].external_id.length + front->holders[i].owner.length;
    for (size_t i = 0; i < front->waiter_count; i++)
        strings += front->waiters[i].length;
    struct holders *holders = malloc(sizeof *holders + strings);
    if (!holders)
        return NULL;
    *holders = (struct holders){
        .references = 1, .read_at = clock_mono(), .count = front->holder_count, .waiter_count = front->waiter_count};
    char *at = holders->strings;
    for (size_t i = 0; i < front->waiter_count; i++)
        holders->waiters[i] = copy_string(&at, front->waiters[i]);
    for (size_t i = 0; i < front->holder_count; i++)
        holders->rows[i] = (struct blocking_holder){
            .external_id = copy_string(&at, front->holders[i].external_id),
            .owner = copy_string(&at, front->holders[i].owner),
            .since = front->holders[i].since,
            .expires_at = front->holders[i].expires_at,
        };
    return holders;
}

/* Returns the cached holders with a reference for the caller. NULL: none, or not fresh. */
static struct holders *fresh_holders(struct engine *engine, uint64_t semaphore_id)
{
    struct holders *holders = NULL;
    engine_lock(engine);
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, semaphore_id);
    if (entry && entry->holders && clock_mono() - entry->holders->read_at <= HOLDERS_FRESH_US) {
        holders = entry->holders;
        holders->references++;
    }
    engine_unlock(engine);
    return holders;
}

/* Stores holders in the semaphore cache; the caller keeps its reference. */
static void share_holders(struct engine *engine, uint64_t semaphore_id, struct holders *holders)
{
    engine_lock(engine);
    struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, semaphore_id);
    if (entry) {
        holders_unref(entry->holders);
        entry->holders = holders;
        holders->references++;
    }
    engine_unlock(engine);
}

/*
 * Sets how many requests stand before the places of the refused request, and the keys of the first. On failure the
 * refusal keeps the numbers of the batch, which count all others that wait. The keys are in the reader's arena.
 */
static void read_places(struct reader *reader, struct refusal *refusal)
{
    static const struct bytes none;
    struct request request;
    struct bytes *names;
    struct query_time time;
    struct queue_position *positions;
    bool kept;
    struct task *task = reader->task;
    arena_clear(&task->arena);
    if (connect_store(task) != PERMIT_OK)
        return;
    const struct store_queries *queries = task->store->queries;
    if (queries->request(task->store, refusal->op->operation->external_id, &task->arena, &request, &names, &time) !=
            PERMIT_OK ||
        request.state != REQUEST_WAITING ||
        queries->ahead(task->store, &request, &task->arena, &positions, &kept) != PERMIT_OK)
        return;
    for (size_t i = 0; i < refusal->count; i++)
        for (size_t j = 0; j < request.want_count; j++)
            if (request.wants[j].semaphore_id == refusal->shortages[i].semaphore_id) {
                refusal->aheads[i] = positions[j].ahead;
                refusal->ahead_keys[i] = positions[j].key_count ? positions[j].keys : &none;
                refusal->ahead_key_counts[i] = positions[j].key_count;
            }
}

/* Reads the holders of the shortages that have none, and stores them in the cache. On failure they stay NULL. */
static void read_holders(struct reader *reader, const struct refusal *refusal, struct holders **holders)
{
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    size_t missing[REQUEST_MAX_SEMAPHORES]; /* indexes of these shortages */
    struct semaphore_front fronts[REQUEST_MAX_SEMAPHORES];
    struct query_time time;
    size_t count = 0;
    struct task *task = reader->task;
    for (size_t i = 0; i < refusal->count; i++)
        if (!holders[i]) {
            ids[count] = refusal->shortages[i].semaphore_id;
            missing[count++] = i;
        }
    arena_clear(&task->arena);
    if (count == 0 || connect_store(task) != PERMIT_OK ||
        task->store->queries->fronts(task->store, ids, count, &task->arena, fronts, &time) != PERMIT_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        holders[missing[i]] = holders_new(&fronts[i]);
        if (holders[missing[i]])
            share_holders(reader->engine, ids[i], holders[missing[i]]);
    }
}

/*
 * Reads the holders that are not cached, and decides the refusal. The waits of many clients may end at once. Most
 * refusals then have no places in them, because each must be sent before its kept place is removed.
 */
static void run_refusal(struct reader *reader, struct refusal *refusal)
{
    struct holders *holders[REQUEST_MAX_SEMAPHORES];
    assert(refusal->count <= ARRAY_LENGTH(holders));
    for (size_t i = 0; i < refusal->count; i++)
        holders[i] = fresh_holders(reader->engine, refusal->shortages[i].semaphore_id);
    bool stopping = atomic_load(&reader->engine->stopping);
    if (!stopping)
        read_holders(reader, refusal, holders);
    bool is_early = clock_mono() - refusal->since < PLACES_WITHIN_US;
    if (refusal->has_place && is_early && !stopping)
        read_places(reader, refusal);
    decide_refusal(reader->engine, refusal, holders);
}

/* ---- the task ---- */

static bool has_refusals(const struct reader *reader)
{
    return reader->lane == &reader->engine->lanes[QUERY_ROW] && !turns_empty(&reader->engine->refusals);
}

/* Runs a refusal or a query, alternately if both are pending, or waits. The mutex is released meanwhile. */
static void read_once(struct reader *reader) REQUIRES(engine_mutex)
{
    struct engine *engine = reader->engine;
    struct lane *lane = reader->lane;
    reader->ran_refusal = has_refusals(reader) && (turns_empty(&lane->queries) || !reader->ran_refusal);
    if (reader->ran_refusal) {
        struct refusal *refusal = CONTAINER_OF(turns_take(&engine->refusals), struct refusal, turn);
        engine_unlock(engine);
        run_refusal(reader, refusal);
        engine_lock(engine);
    } else if (!turns_empty(&lane->queries)) {
        struct query *query = CONTAINER_OF(turns_take(&lane->queries), struct query, turn);
        engine_unlock(engine);
        run_query(reader, query);
        engine_lock(engine);
    } else {
        engine_wait(engine, &lane->wake);
    }
}

/* Ends when nothing is pending and readers_may_end: workers may still refuse acquires while the engine stops. */
void reader_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct reader reader = {.task = task, .engine = engine, .lane = &engine->lanes[task->kind->lane]};
    engine_lock(engine);
    while (!atomic_load(&engine->readers_may_end) || !turns_empty(&reader.lane->queries) || has_refusals(&reader))
        read_once(&reader);
    engine_unlock(engine);
}
