/* SPDX-License-Identifier: MIT */
/*
 * Clock tick. Every 500 ms the task reads the lease clock, advances it about once a second, checks for a failover,
 * refreshes floors, and times out overdue operations. Every 5 s it repeats the safety check of the server (P14).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/failover.h"
#include "engine/served_time.h"
#include "tasks/tasks.h"

enum { TICK_MS = 500, JITTER_MS = 100, SAFETY_CHECK_MS = 5000, FLOORS_PER_TICK = 500, TOKENS_PER_TICK = 50 };

/* Reads the stale floors of the most recently used semaphores. A floor never falls. After a failure they stay stale. */
static void refresh_floors(struct engine *engine, struct store *store)
{
    uint64_t ids[FLOORS_PER_TICK];
    uint64_t floors[FLOORS_PER_TICK] = {0};
    size_t count = 0;
    struct list *recent = &engine->queue.semaphores.recent;
    engine_lock(engine);
    for (struct list *node = recent->prev; node != recent && count < FLOORS_PER_TICK; node = node->prev) {
        struct semaphore_entry *entry = LIST_ENTRY(node, struct semaphore_entry, recent);
        if (!entry->floor_stale)
            continue;
        entry->floor_stale = false;
        ids[count++] = entry->id;
    }
    engine_unlock(engine);
    if (count == 0)
        return;
    bool known = store->clock->floors(store, ids, count, floors) == PERMIT_OK;
    engine_lock(engine);
    for (size_t i = 0; i < count; i++) {
        struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, ids[i]);
        if (entry && !known)
            entry->floor_stale = true;
        else if (entry && floors[i] > entry->floor)
            entry->floor = floors[i];
    }
    engine_unlock(engine);
}

/*
 * Decides the queued operations past their deadline. None of them has an unknown outcome: an operation that was sent
 * with a COMMIT belongs to a worker, or was put back after it.
 */
static void time_out_ops(struct engine *engine)
{
    struct list expired;
    list_init(&expired);
    engine_lock(engine);
    queue_take_expired(&engine->queue, clock_mono(), &expired);
    engine_unlock(engine);
    bool up = engine_database_up(engine);
    list_for_each (node, next, &expired)
        decide_status(engine, LIST_ENTRY(node, struct op, node), up ? PERMIT_BUSY : PERMIT_DATABASE_UNAVAILABLE, NULL);
}

/* ---- safety check ---- */

/* Connects, which checks a new connection. Repeats the check every SAFETY_CHECK_MS, because settings can change. */
static enum permit_status check_safety(struct task *task, mono_us *checked_at)
{
    enum permit_status status = task_connect(task);
    mono_us now = clock_mono();
    if (status != PERMIT_OK || now - *checked_at < SAFETY_CHECK_MS * US_PER_MS)
        return status;
    *checked_at = now;
    return task->store->session->check_safety(task->store);
}

/* Stores the finding of the safety check, and logs a change. Only this task writes engine->refusal. */
static void set_refusal(struct engine *engine, const char *refusal)
{
    if (strcmp(engine->refusal, refusal) == 0)
        return;
    if (refusal[0])
        log_write(LOG_ERROR, "unsafe database settings, refusing requests", "finding", refusal, NULL);
    else
        log_write(LOG_INFO, "database settings are safe again", NULL);
    engine_lock(engine);
    snprintf(engine->refusal, sizeof engine->refusal, "%s", refusal);
    atomic_store(&engine->refusing, refusal[0] != '\0');
    engine_unlock(engine);
}

/* ---- the task ---- */

/*
 * Reads the lease clock, and advances it if it is time and no other permitd does. After a failover it raises the epoch
 * instead, which starts the hold.
 */
static enum permit_status tick(struct task *task)
{
    struct engine *engine = task->engine;
    struct tokens_seen seen[TOKENS_PER_TICK];
    struct tick tick = {.seen = seen, .seen_count = failover_tokens_seen(engine, seen, TOKENS_PER_TICK)};
    struct lease_row ticked;
    bool won = false;
    boot_us asked_at = clock_boot();
    enum permit_status status = task->store->clock->read_tick(task->store, &tick);
    boot_us answered_at = clock_boot();
    if (status != PERMIT_OK)
        return status;
    if (!tick.ret_same_server)
        return failover_run(engine, task->store, EPOCH_SERVER, tick.ret_row.clock.epoch);
    if (tick.ret_tokens_behind)
        return failover_run(engine, task->store, EPOCH_TOKENS, tick.ret_row.clock.epoch);
    if (!served_time_read(engine, &tick, asked_at, answered_at, &ticked))
        return PERMIT_OK;
    status = task->store->clock->write_tick(task->store, &tick.ret_row, &ticked, &won);
    if (status == PERMIT_OK && won) {
        served_time_won(engine, &ticked, clock_boot());
        atomic_store(&engine->tick_won_at, clock_mono());
    }
    return status;
}

/*
 * Returns the time from one read to the next. It varies, so that each permitd sees some ticks of another at once: its own
 * clock is behind by the time for which it has not seen a tick.
 */
static int64_t pause_us(void)
{
    return TICK_MS * US_PER_MS - (int64_t)arc4random_uniform(JITTER_MS * US_PER_MS);
}

void clock_tick_run(struct task *task)
{
    struct engine *engine = task->engine;
    mono_us checked_at = 0;
    while (!task_stopping(task)) {
        boot_us began_at = clock_boot();
        enum permit_status status = check_safety(task, &checked_at);
        set_refusal(engine, task->store->refusal);
        if (status == PERMIT_OK)
            status = tick(task);
        if (status == PERMIT_OK)
            refresh_floors(engine, task->store);
        bool up = status == PERMIT_OK || status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT;
        atomic_store(&engine->metrics.database_up, up);
        time_out_ops(engine);
        task_sleep(task, began_at + pause_us() - clock_boot());
    }
}
