/* SPDX-License-Identifier: MIT */
/*
 * Readers: a thread with a session of its own for each lane of look-ups, so that none stands in the way of a batch, or
 * of another lane. That of LOOK_ROW also finds the holders that a no_capacity names.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/state.h"
#include "store/query.h"

enum { ARENA_CHUNK = 16 * 1024, ARENA_LIMIT = 1024 * 1024 };

struct reader {
    struct engine *engine;
    struct lane *lane;
    struct session *session;
    unsigned servers; /* of engine->servers: the session is of that time */
    struct arena arena;
    bool refused; /* what it did last was a refusal */
};

/* A session that answers: the server may have been restarted since it was used, and a look is not run again. */
static enum permit_status ready_session(struct reader *reader)
{
    unsigned servers = atomic_load(&reader->engine->servers);
    if (!reader->session)
        return PERMIT_SHUTTING_DOWN;
    if (servers != reader->servers)
        session_drop(reader->session);
    reader->servers = servers;
    enum permit_status status = session_connect(reader->session);
    if (status == PERMIT_OK && session_ping(reader->session) != PERMIT_OK)
        status = session_connect(reader->session);
    return status;
}

/* ---- look-ups ---- */

static struct look *take_look(struct lane *lane)
{
    struct look *look = LIST_ENTRY(lane->looks.next, struct look, node);
    list_remove(&look->node);
    lane->look_count--;
    return look;
}

/* There is no session: all that wait are told, as each would find out by itself, one after the other. */
static void refuse_waiting(struct reader *reader, enum permit_status status)
{
    struct lane *lane = reader->lane;
    struct list refused;
    list_init(&refused);
    pthread_mutex_lock(&reader->engine->mutex);
    list_append_all(&refused, &lane->looks);
    lane->look_count = 0;
    pthread_mutex_unlock(&reader->engine->mutex);
    list_for_each (node, next, &refused) {
        struct look *look = LIST_ENTRY(node, struct look, node);
        list_remove(node);
        look->work(look, NULL, status);
    }
}

static void run_look(struct reader *reader, struct look *look)
{
    if (look->deadline <= clock_mono()) {
        look->work(look, NULL, PERMIT_BUSY);
        return;
    }
    enum permit_status status = atomic_load(&reader->engine->stopping) ? PERMIT_SHUTTING_DOWN : ready_session(reader);
    look->work(look, status == PERMIT_OK ? reader->session : NULL, status);
    if (status != PERMIT_OK)
        refuse_waiting(reader, status);
}

/* ---- holders ---- */

static struct bytes keep_string(char **at, struct bytes string)
{
    struct bytes copy = {*at, string.length};
    if (string.length)
        memcpy(*at, string.data, string.length);
    *at += string.length;
    return copy;
}

/* The rows of a query as an object of their own. NULL: no memory. */
static struct holders *holders_new(const struct holder_row *rows, size_t count, const struct served_clock *clock)
{
    size_t strings = 0;
    for (size_t i = 0; i < count; i++)
        strings += rows[i].request.external_id.length + rows[i].request.owner.length;
    struct holders *holders = malloc(sizeof *holders + strings);
    if (!holders)
        return NULL;
    *holders = (struct holders){.references = 1, .read_at = clock_mono(), .count = count};
    char *at = holders->strings;
    for (size_t i = 0; i < count; i++)
        holders->rows[i] = (struct blocking_holder){
            .external_id = keep_string(&at, rows[i].request.external_id),
            .owner = keep_string(&at, rows[i].request.owner),
            .since = served_to_wall(clock, rows[i].request.acquired_at),
            .expires_at = served_to_wall(clock, request_expires_at(&rows[i].request)),
        };
    return holders;
}

static struct holders *read_holders(struct reader *reader, struct bytes semaphore)
{
    struct holder_row *rows;
    size_t count;
    struct query_time time;
    arena_clear(&reader->arena);
    if (ready_session(reader) != PERMIT_OK ||
        query_holders(reader->session, semaphore, 0, HOLDERS_MAX, &reader->arena, &rows, &count, &time) != PERMIT_OK)
        return NULL;
    return holders_new(rows, count, &time.clock);
}

/* The holders that the gate has, if fresh, with a reference for the caller; NULL otherwise. */
static struct holders *fresh_holders(struct engine *engine, uint64_t semaphore_id)
{
    struct holders *holders = NULL;
    pthread_mutex_lock(&engine->mutex);
    struct gate *gate = gates_find(&engine->queue.gates, semaphore_id);
    if (gate && gate->holders && clock_mono() - gate->holders->read_at <= HOLDERS_FRESH_US) {
        holders = gate->holders;
        holders->references++;
    }
    pthread_mutex_unlock(&engine->mutex);
    return holders;
}

/* Gives the gate new holders; the caller keeps its own reference. */
static void share_holders(struct engine *engine, uint64_t semaphore_id, struct holders *holders)
{
    pthread_mutex_lock(&engine->mutex);
    struct gate *gate = gates_find(&engine->queue.gates, semaphore_id);
    if (gate) {
        holders_unref(gate->holders);
        gate->holders = holders;
        holders->references++;
    }
    pthread_mutex_unlock(&engine->mutex);
}

static void run_refusal(struct reader *reader, struct refusal *refusal)
{
    struct holders *holders[REQUEST_MAX_SEMAPHORES] = {NULL};
    for (size_t i = 0; i < refusal->count; i++) {
        const struct shortage *shortage = &refusal->shortages[i];
        holders[i] = fresh_holders(reader->engine, shortage->semaphore_id);
        if (holders[i] || atomic_load(&reader->engine->stopping))
            continue;
        holders[i] = read_holders(reader, shortage->semaphore);
        if (holders[i])
            share_holders(reader->engine, shortage->semaphore_id, holders[i]);
    }
    decide_refusal(reader->engine, refusal, holders);
}

/* ---- the thread ---- */

static bool has_refusals(const struct reader *reader)
{
    return reader->lane == &reader->engine->lanes[LOOK_ROW] && !list_empty(&reader->engine->refusals);
}

/* Refusals and look-ups by turns, while there are both. Engine's mutex held, let go in between. */
static void read_once(struct reader *reader)
{
    struct engine *engine = reader->engine;
    struct lane *lane = reader->lane;
    reader->refused = has_refusals(reader) && (list_empty(&lane->looks) || !reader->refused);
    if (reader->refused) {
        struct refusal *refusal = LIST_ENTRY(engine->refusals.next, struct refusal, node);
        list_remove(&refusal->node);
        pthread_mutex_unlock(&engine->mutex);
        run_refusal(reader, refusal);
        pthread_mutex_lock(&engine->mutex);
    } else if (!list_empty(&lane->looks)) {
        struct look *look = take_look(lane);
        pthread_mutex_unlock(&engine->mutex);
        run_look(reader, look);
        pthread_mutex_lock(&engine->mutex);
    } else {
        pthread_cond_wait(&lane->wake, &engine->mutex);
    }
}

/* Ends only when nothing waits any more: workers may still refuse while the engine stops. */
void *reader_thread(void *context)
{
    struct lane *lane = context;
    struct engine *engine = lane->engine;
    struct reader reader = {.engine = engine, .lane = lane};
    session_thread_begin();
    reader.session = engine_open_session(engine, lane->use, lane->who);
    arena_init(&reader.arena, ARENA_CHUNK, ARENA_LIMIT);
    pthread_mutex_lock(&engine->mutex);
    while (!atomic_load(&engine->readers_may_end) || !list_empty(&lane->looks) || has_refusals(&reader))
        read_once(&reader);
    pthread_mutex_unlock(&engine->mutex);
    arena_release(&reader.arena);
    session_free(reader.session);
    session_thread_end();
    return NULL;
}
