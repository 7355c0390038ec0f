/* SPDX-License-Identifier: MIT */
/*
 * Server membership: about once a second this permitd writes a heartbeat into its row of `server`, declares others dead
 * whose heartbeats have stopped, and deletes the rows of the dead when their time is over. When it stops it deletes its
 * own row.
 */
#include "store/servers.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"
#include "engine/waitlist.h"
#include "tasks/tasks.h"

enum { HEARTBEAT_MS = 1000, RETRY_MS = 500 };

struct membership {
    struct task *task;
    struct server_self self; /* id 0: it has not joined */
};

/* With a new id, all waiters ask again: their rows name the old id, or are gone. */
static void set_self(struct membership *membership, struct server_self self)
{
    struct engine *engine = membership->task->engine;
    membership->self = self;
    atomic_store(&engine->server_id, self.id);
    if (self.id == 0)
        return;
    engine_lock(engine);
    waitlist_wake_all(engine);
    queue_have_server_id(&engine->queue);
    if (engine->idle_workers)
        pthread_cond_signal(&engine->work);
    engine_unlock(engine);
}

static void log_id(enum log_level level, const char *sentence, uint64_t id)
{
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRIu64, id);
    log_write(level, sentence, "server_id", number, NULL);
}

static enum permit_status join(struct membership *membership)
{
    struct task *task = membership->task;
    const struct engine_settings *settings = &task->engine->settings;
    struct server_self self;
    enum permit_status status =
        task->store->servers->join(task->store, bytes_of(settings->address), bytes_of(settings->version), &self);
    if (status != PERMIT_OK || self.id == 0)
        return status;
    set_self(membership, self);
    log_id(LOG_INFO, "joined the servers of this database", self.id);
    return PERMIT_OK;
}

/* A permitd is dead when cluster.ticks has grown by SERVER_DEAD_TICKS since its own last heartbeat wrote it down. */
static bool is_dead(const struct server_other *other, const struct server_heartbeat *heartbeat)
{
    return other->ticks + SERVER_DEAD_TICKS <= heartbeat->ret_ticks;
}

static enum permit_status declare_dead(struct store *store, const struct server_heartbeat *heartbeat)
{
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; status == PERMIT_OK && i < heartbeat->ret_other_count; i++) {
        const struct server_other *other = &heartbeat->ret_others[i];
        bool declared = false;
        if (is_dead(other, heartbeat))
            status = store->servers->declare_dead(store, other, heartbeat->ret_time.clock.from, &declared);
        if (declared)
            log_id(LOG_WARN, "another permitd is dead", other->id);
    }
    return status;
}

/*
 * Removes the places and the rows that the servers that died until `until` have left: first the places, a part each
 * time, by ordinary operations of the engine; when none is left, the rows.
 */
static enum permit_status bury(struct membership *membership, utc_us until)
{
    enum { PLACES_MAX = 500 };
    struct task *task = membership->task;
    struct bytes *keys;
    size_t count;
    arena_clear(&task->arena);
    enum permit_status status =
        task->store->servers->abandoned(task->store, until, PLACES_MAX, &task->arena, &keys, &count);
    if (status != PERMIT_OK)
        return status;
    if (count == 0)
        return task->store->servers->remove_dead(task->store, until);
    for (size_t i = 0; i < count; i++)
        if (!expiry_submit(task->engine, keys[i], END_NEVER_HELD))
            break;
    return PERMIT_OK;
}

/* A permitd that finds itself dead takes a new id. */
static enum permit_status heartbeat(struct membership *membership)
{
    struct task *task = membership->task;
    struct server_heartbeat heartbeat = {
        .waiting = engine_waiting(task->engine).count,
    };
    enum permit_status status = task->store->servers->heartbeat(task->store, &membership->self, &heartbeat);
    if (status != PERMIT_OK)
        return status;
    if (!heartbeat.ret_alive) {
        log_id(LOG_WARN, "this permitd was declared dead; it takes a new id", membership->self.id);
        set_self(membership, (struct server_self){0});
        return join(membership);
    }
    engine_judge(task->engine, &heartbeat.ret_time);
    status = declare_dead(task->store, &heartbeat);
    utc_us until = heartbeat.ret_time.clock.due - PLACE_KEPT_US;
    if (status == PERMIT_OK && heartbeat.ret_oldest_death <= until)
        status = bury(membership, until);
    return status;
}

/* Deletes its row. It tries once, because a stop must not wait for a database that hangs; a row that stays dies. */
static void leave(struct membership *membership)
{
    struct task *task = membership->task;
    if (task_connect(task) == PERMIT_OK)
        (void)task->store->servers->leave(task->store, &membership->self);
    set_self(membership, (struct server_self){0});
}

/* The time to the next heartbeat counts from the sending of this one: the others count ticks since its ticks. */
void servers_run(struct task *task)
{
    struct membership membership = {.task = task};
    enum permit_status status = PERMIT_OK;
    while (!task_stopping(task)) {
        boot_us sent_at = clock_boot();
        status = task_connect(task);
        if (status == PERMIT_OK)
            status = membership.self.id ? heartbeat(&membership) : join(&membership);
        (void)task_record_status(task, status);
        int64_t interval_ms = status == PERMIT_OK && membership.self.id ? HEARTBEAT_MS : RETRY_MS;
        task_sleep(task, sent_at + interval_ms * US_PER_MS - clock_boot());
    }
    if (status == PERMIT_OK && membership.self.id)
        leave(&membership);
}
