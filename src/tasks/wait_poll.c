/* SPDX-License-Identifier: MIT */
/*
 * Wait poll: the task of the requests that wait at this server (docs/design.md, "The queue"). It wakes a waiter when
 * the wait of a client has ended, and when it has mail: it reads this server's mail every wait_poll. Once a second the
 * net reads the semaphores with waiters, and wakes those that seem to fit or can never be granted: it catches changes
 * that no mail announced. The task sleeps while nothing waits.
 */
#include <time.h>

#include "base/clock.h"
#include "engine/state.h"
#include "engine/waitlist.h"
#include "store/servers.h"
#include "tasks/tasks.h"

enum {
    MAIL_MAX = 1000,              /* per poll; the rest is read by the next one */
    PAGE = 500,                   /* semaphores per query */
    NET_US = US_PER_SECOND,       /* time between two reads of all semaphores with waiters */
    IDLE_POLL_US = US_PER_SECOND, /* the mail of clients that have left is dropped */
};

/* Mail for a request that is not known here. */
struct unknown_mail {
    uint64_t request_id;
    uint64_t batch; /* number of the newest batch when it was read first */
};

struct wait_poll {
    struct task *task;
    struct engine *engine;
    unsigned server_generation; /* engine->server_generation at the last poll */
    mono_us polled_at;
    mono_us net_at;      /* when the semaphores were read last */
    uint64_t mail_after; /* the next poll reads on behind it: mail for a locked semaphore may stay for long */
    struct unknown_mail unknown[MAIL_MAX];
    size_t unknown_count;
};

/* ---- the clock ---- */

/* Wakes the waiters whose time has come. */
static void wake_by_time(struct engine *engine, mono_us now) REQUIRES(engine_mutex)
{
    struct waiters *waiters = &engine->queue.waiters;
    struct heap_node *first;
    while ((first = heap_first(&waiters->wake_ats)) && first->time <= now) {
        struct waiter *waiter = HEAP_ENTRY(first, struct waiter, wake_at);
        heap_move(&waiters->wake_ats, first, NEVER); /* its batch schedules it again */
        waitlist_wake(engine, waiter);
    }
}

/* ---- mail ---- */

/*
 * Returns true if mail for a request that is not known here may be dropped, because its client has left. The batch that
 * entered the request may not have been delivered yet, so the mail stays until all batches that ran when it was read
 * first have ended.
 */
static bool may_drop(const struct wait_poll *poll, uint64_t request_id) REQUIRES(engine_mutex)
{
    for (size_t i = 0; i < poll->unknown_count; i++)
        if (poll->unknown[i].request_id == request_id)
            return queue_have_ended(&poll->engine->queue, poll->unknown[i].batch);
    return false;
}

/*
 * Wakes the waiters that have mail; their batches delete it. A waiter whose batch runs is left to the next poll. Fills
 * ret_drop with the mail to be deleted.
 */
static size_t deliver_mail(struct wait_poll *poll, const uint64_t *ids, size_t count, uint64_t *ret_drop)
    REQUIRES(engine_mutex)
{
    struct engine *engine = poll->engine;
    struct unknown_mail unknown[MAIL_MAX];
    size_t unknown_count = 0;
    size_t drop_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct waiter *waiter = waiters_find_id(&engine->queue.waiters, ids[i]);
        if (waiter && !waiter_in_batch(waiter)) {
            waiter->operation.mailed = ids[i];
            waitlist_wake(engine, waiter);
        } else if (!waiter && may_drop(poll, ids[i])) {
            ret_drop[drop_count++] = ids[i];
        } else if (!waiter) {
            uint64_t batch = engine->queue.batches;
            for (size_t j = 0; j < poll->unknown_count; j++)
                if (poll->unknown[j].request_id == ids[i])
                    batch = poll->unknown[j].batch;
            unknown[unknown_count++] = (struct unknown_mail){ids[i], batch};
        }
    }
    memcpy(poll->unknown, unknown, unknown_count * sizeof *unknown);
    poll->unknown_count = unknown_count;
    return drop_count;
}

static enum permit_status read_mail(struct task *task, uint64_t server_id, struct page *page)
{
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    return status == PERMIT_OK ? task->store->servers->mail(task->store, server_id, page) : status;
}

/* Reads the mail of this server. The mutex is released meanwhile. */
static void poll_mail(struct wait_poll *poll) REQUIRES(engine_mutex)
{
    struct task *task = poll->task;
    struct engine *engine = poll->engine;
    uint64_t server_id = engine_server_id(engine);
    uint64_t drop[MAIL_MAX];
    struct page mail = {.arena = &task->arena, .limit = MAIL_MAX, .after.number = poll->mail_after};
    size_t drop_count = 0;
    poll->polled_at = clock_mono();
    if (server_id == 0)
        return;
    engine_unlock(engine);
    enum permit_status status = read_mail(task, server_id, &mail);
    if (status == PERMIT_DATABASE_LOST) /* while nothing waits here the session is idle, and the server ends it */
        status = read_mail(task, server_id, &mail);
    engine_lock(engine);
    poll->mail_after = 0;
    if (status == PERMIT_OK) {
        drop_count = deliver_mail(poll, mail.request_ids, mail.count, drop);
        poll->mail_after = mail.count == MAIL_MAX ? mail.request_ids[mail.count - 1] : 0;
    }
    engine_unlock(engine);
    if (drop_count)
        status = task->store->servers->drop_mail(task->store, server_id, drop, drop_count);
    (void)task_record_status(task, status);
    engine_lock(engine);
}

/* ---- the net ---- */

/* Takes the next semaphores with waiters, in rotation; returns their number. */
static size_t next_page(struct waiters *waiters, size_t max, uint64_t *ret_ids)
{
    size_t count = 0;
    for (; count < max; count++) {
        struct list *node = waiters->entries.next;
        ret_ids[count] = LIST_ENTRY(node, struct semaphore_entry, waited_for)->id;
        list_remove(node);
        list_append(&waiters->entries, node);
    }
    return count;
}

/* Reads all semaphores with waiters, a page per query. The mutex is released meanwhile. */
static void cast_net(struct wait_poll *poll) REQUIRES(engine_mutex)
{
    struct task *task = poll->task;
    struct engine *engine = poll->engine;
    struct waiters *waiters = &engine->queue.waiters;
    poll->net_at = clock_mono();
    unsigned generation = atomic_load(&engine->server_generation);
    if (generation != poll->server_generation) /* after a failover or a restore, rows may be gone */
        waitlist_wake_all(engine);
    poll->server_generation = generation;
    size_t left = waiters->entry_count;
    while (left > 0 && waiters->entry_count > 0 && !atomic_load(&engine->stopping)) {
        uint64_t ids[PAGE];
        size_t max = left < PAGE ? left : PAGE;
        size_t count = next_page(waiters, max < waiters->entry_count ? max : waiters->entry_count, ids);
        struct semaphore_page page;
        left -= max;
        engine_unlock(engine);
        arena_clear(&task->arena);
        enum permit_status status = task_connect(task);
        if (status == PERMIT_OK)
            status = task->store->queries->semaphores_of(task->store, ids, count, &task->arena, &page);
        (void)task_record_status(task, status);
        engine_lock(engine);
        if (status != PERMIT_OK)
            return;
        for (size_t i = 0; i < page.count; i++)
            waitlist_wake_by_row(engine, &page.rows[i]);
    }
}

/* ---- the task ---- */

static bool anything_waits(const struct engine *engine)
{
    return !list_empty(&engine->queue.waiters.all);
}

static mono_us next_poll(const struct wait_poll *poll)
{
    if (anything_waits(poll->engine))
        return poll->polled_at + poll->engine->settings.wait_poll_ms * US_PER_MS;
    return poll->unknown_count ? poll->polled_at + IDLE_POLL_US : NEVER;
}

static mono_us next_net(const struct wait_poll *poll)
{
    return anything_waits(poll->engine) ? poll->net_at + NET_US : NEVER;
}

/* Sleeps until this time or a change (waitlist_reschedule). */
static void sleep_until(struct engine *engine, mono_us until) REQUIRES(engine_mutex)
{
    engine->next_poll_at = until;
    if (until == NEVER) {
        engine_wait(engine, &engine->poll_wake);
    } else {
        struct timespec time = {.tv_sec = until / US_PER_SECOND, .tv_nsec = until % US_PER_SECOND * 1000};
        (void)engine_wait_until(engine, &engine->poll_wake, &time);
    }
    engine->next_poll_at = 0; /* awake */
}

void wait_poll_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct wait_poll poll = {.task = task, .engine = engine, .polled_at = clock_mono(), .net_at = clock_mono()};
    engine_lock(engine);
    while (!task_stopping(task)) {
        mono_us now = clock_mono();
        wake_by_time(engine, now);
        waitlist_wake_called(engine);
        const struct heap_node *first = heap_first(&engine->queue.waiters.wake_ats);
        if (next_poll(&poll) <= now)
            poll_mail(&poll);
        else if (next_net(&poll) <= now)
            cast_net(&poll);
        else
            sleep_until(engine, min_i64(first ? first->time : NEVER, min_i64(next_poll(&poll), next_net(&poll))));
    }
    engine_unlock(engine);
}
