/* SPDX-License-Identifier: MIT */
/*
 * The keeper: one thread that does what has to be done every half second: served time ticks, floors are read again, and
 * operations that waited past their deadline are told so.
 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"

enum { ROUND_MS = 500, FLOORS_A_ROUND = 500 };

/* Sleeps for a round; returns early when the engine stops. */
static void sleep_round(struct engine *engine)
{
    const struct timespec piece = {.tv_nsec = 50 * 1000000L};
    for (int slept = 0; slept < ROUND_MS && !atomic_load(&engine->stopping); slept += 50)
        nanosleep(&piece, NULL);
}

/* The semaphores, the most recently used first, on which something was granted or ended. Engine's mutex held. */
static size_t collect_stale(struct engine *engine, uint64_t *ret_ids)
{
    size_t count = 0;
    struct list *recent = &engine->queue.gates.recent;
    for (struct list *node = recent->prev; node != recent && count < FLOORS_A_ROUND; node = node->prev) {
        struct gate *gate = LIST_ENTRY(node, struct gate, recent);
        if (!gate->floor_stale)
            continue;
        gate->floor_stale = false;
        ret_ids[count++] = gate->id;
    }
    return count;
}

/* A floor never falls. On failure the gates are looked at again in the next round. */
static void learn_floors(struct engine *engine, const uint64_t *ids, const uint64_t *floors, size_t count, bool known)
{
    pthread_mutex_lock(&engine->mutex);
    for (size_t i = 0; i < count; i++) {
        struct gate *gate = gates_find(&engine->queue.gates, ids[i]);
        if (gate && !known)
            gate->floor_stale = true;
        else if (gate && floors[i] > gate->floor)
            gate->floor = floors[i];
    }
    pthread_mutex_unlock(&engine->mutex);
}

static void refresh_floors(struct engine *engine, struct store *store)
{
    uint64_t ids[FLOORS_A_ROUND];
    uint64_t floors[FLOORS_A_ROUND] = {0};
    pthread_mutex_lock(&engine->mutex);
    size_t count = collect_stale(engine, ids);
    pthread_mutex_unlock(&engine->mutex);
    if (count == 0)
        return;
    enum permit_status status = store_floors(store, ids, count, floors);
    learn_floors(engine, ids, floors, count, status == PERMIT_OK);
}

/* What no worker could take in time. Whoever was in a packet with COMMIT is in a worker's hands, or was put back after
 * it. */
static void expire_ops(struct engine *engine)
{
    struct list expired;
    list_init(&expired);
    pthread_mutex_lock(&engine->mutex);
    queue_take_expired(&engine->queue, clock_mono(), &expired);
    pthread_mutex_unlock(&engine->mutex);
    bool up = atomic_load(&engine->metrics.database_up);
    list_for_each (node, next, &expired)
        decide_status(engine, LIST_ENTRY(node, struct op, node), up ? PERMIT_BUSY : PERMIT_DATABASE_UNAVAILABLE, NULL);
}

static void keep_database(struct engine *engine, struct store *store, unsigned *servers_seen)
{
    bool won = false;
    unsigned servers = atomic_load(&engine->servers);
    if (servers != *servers_seen)
        store_disconnect(store);
    *servers_seen = servers;
    enum permit_status status = store_reconnect(store);
    if (status == PERMIT_OK)
        status = store_tick(store, &won);
    if (won)
        atomic_store(&engine->tick_won_at, clock_mono());
    if (status == PERMIT_OK)
        refresh_floors(engine, store);
    bool up = status == PERMIT_OK || status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT;
    atomic_store(&engine->metrics.database_up, up);
}

void *keeper_thread(void *context)
{
    struct engine *engine = context;
    unsigned servers = 0;
    session_thread_begin();
    struct store *store = engine->settings.open_store(engine->settings.open_context);
    if (!store)
        log_write(LOG_ERROR, "the keeper cannot start: out of memory", NULL);
    while (!atomic_load(&engine->stopping)) {
        if (store)
            keep_database(engine, store, &servers);
        expire_ops(engine);
        sleep_round(engine);
    }
    store_free(store);
    session_thread_end();
    return NULL;
}
