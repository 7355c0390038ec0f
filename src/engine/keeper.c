/* SPDX-License-Identifier: MIT */
/*
 * The keeper: one thread that does what has to be done every half second: served time ticks, a failover is noticed,
 * floors are read again, and operations that waited past their deadline are told so. Every few seconds it has the
 * server examined again (P14).
 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/failover.h"

enum { ROUND_MS = 500, EXAMINE_EVERY_MS = 5000, FLOORS_A_ROUND = 500, TOKENS_A_ROUND = 50 };

struct keeper {
    struct engine *engine;
    struct store *store;
    mono_us examined_at;
    unsigned servers_seen; /* engine->servers when its session was made */
};

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
    bool up = engine_database_up(engine);
    list_for_each (node, next, &expired)
        decide_status(engine, LIST_ENTRY(node, struct op, node), up ? PERMIT_BUSY : PERMIT_DATABASE_UNAVAILABLE, NULL);
}

/* ---- is it safe? ---- */

/* A new connection is examined by itself; an open one in every tenth round, for a setting can change under it. */
static enum permit_status examine(struct keeper *keeper)
{
    enum permit_status status = store_reconnect(keeper->store);
    mono_us now = clock_mono();
    if (status != PERMIT_OK || now - keeper->examined_at < EXAMINE_EVERY_MS * US_PER_MS)
        return status;
    keeper->examined_at = now;
    return store_examine(keeper->store);
}

/* Logged once, and from then on everybody is told. Only the keeper writes engine->refusal. */
static void tell(struct engine *engine, const char *refusal)
{
    if (strcmp(engine->refusal, refusal) == 0)
        return;
    if (refusal[0])
        log_write(LOG_ERROR, "unsafe database settings, refusing requests", "finding", refusal, NULL);
    else
        log_write(LOG_INFO, "database settings are safe again", NULL);
    pthread_mutex_lock(&engine->mutex);
    snprintf(engine->refusal, sizeof engine->refusal, "%s", refusal);
    atomic_store(&engine->refusing, refusal[0] != '\0');
    pthread_mutex_unlock(&engine->mutex);
}

/* ---- the thread ---- */

/* Served time moves on; after a failover the epoch rises first, and the hold counts from here. */
static enum permit_status tick(struct keeper *keeper)
{
    struct engine *engine = keeper->engine;
    struct tokens_seen seen[TOKENS_A_ROUND];
    struct tick tick = {.seen = seen, .seen_count = failover_tokens_seen(engine, seen, TOKENS_A_ROUND)};
    enum permit_status status = store_tick(keeper->store, &tick);
    if (tick.ret_won)
        atomic_store(&engine->tick_won_at, clock_mono());
    if (status == PERMIT_OK && !tick.ret_same_server)
        return failover_run(engine, keeper->store, EPOCH_SERVER, tick.ret_epoch);
    if (status == PERMIT_OK && tick.ret_tokens_behind)
        return failover_run(engine, keeper->store, EPOCH_TOKENS, tick.ret_epoch);
    return status;
}

static void keep_database(struct keeper *keeper)
{
    struct engine *engine = keeper->engine;
    unsigned servers = atomic_load(&engine->servers);
    if (servers != keeper->servers_seen)
        store_disconnect(keeper->store);
    keeper->servers_seen = servers;
    enum permit_status status = examine(keeper);
    tell(engine, keeper->store->refusal);
    if (status == PERMIT_OK)
        status = tick(keeper);
    if (status == PERMIT_OK)
        refresh_floors(engine, keeper->store);
    bool up = status == PERMIT_OK || status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT;
    atomic_store(&engine->metrics.database_up, up);
}

void *keeper_thread(void *context)
{
    struct engine *engine = context;
    session_thread_begin();
    struct keeper keeper = {.engine = engine, .store = engine_open_store(engine, "keeper")};
    while (!atomic_load(&engine->stopping)) {
        if (keeper.store)
            keep_database(&keeper);
        expire_ops(engine);
        sleep_round(engine);
    }
    store_free(keeper.store);
    session_thread_end();
    return NULL;
}
