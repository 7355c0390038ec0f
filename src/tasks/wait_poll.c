/* SPDX-License-Identifier: MIT */
/*
 * Wait poll: the task that wakes a waiter when the wait of a client has ended (for a last batch), and the first waiter of
 * a semaphore when its next holder is due. Because other servers free units too, it also reads the versions of all
 * semaphores with waiters every wait_poll, up to PAGE in one query. It sleeps while there are no waiters.
 */
#include <time.h>

#include "base/clock.h"
#include "engine/waitlist_policy.h"
#include "tasks/tasks.h"

enum {
    WOKEN_MAX = 1000, /* woken and undecided waiters; ends of waits are handled while there are fewer */
    RETRY_US = 2000,  /* delay until the next try while there are more, or out of memory */
    PAGE = 500,       /* semaphores per query */
};

struct wait_poll {
    struct task *task;
    struct engine *engine;
    unsigned server_generation; /* engine->server_generation at the last poll */
    mono_us polled_at;
};

/* ---- the clock ---- */

/*
 * Wakes the waiters with a client whose wait has ended; frees those without clients. Returns true if one was woken.
 * Caller holds the engine's mutex.
 */
static bool wake_by_time(struct engine *engine, mono_us now)
{
    struct waiters *waiters = &engine->queue.waiters;
    bool woken = false;
    struct heap_node *first;
    while ((first = heap_first(&waiters->wait_ends)) && first->time <= now && waiters->woken < WOKEN_MAX) {
        struct waiter *waiter = HEAP_ENTRY(first, struct waiter, wait_end);
        if (!waiter_has_clients(waiter) && !waiter->woken) {
            waiters_remove(waiters, waiter);
            continue;
        }
        queue_wake(&engine->queue, waiter);
        /* Its batch schedules it again. Out of memory, it was not woken. */
        heap_move(&waiters->wait_ends, first, waiter->woken ? NEVER : now + RETRY_US);
        woken = true;
    }
    return woken;
}

/*
 * Wakes waiters of semaphores whose holder may be due, or that have a scheduled wake. Returns true if one was woken.
 * Caller holds the engine's mutex.
 */
static bool wake_by_due(struct engine *engine, mono_us now)
{
    struct heap *dues = &engine->queue.waiters.dues;
    bool woken = false;
    struct heap_node *first;
    while ((first = heap_first(dues)) && first->time <= now) {
        struct semaphore_entry *entry = HEAP_ENTRY(first, struct semaphore_entry, due);
        if (entry->wake_at <= now)
            waitlist_wake_specific(engine, entry, WAKE_ALL, NULL);
        waiters_clear_wake(&engine->queue.waiters, entry);
        woken |= queue_wake_next(&engine->queue, entry, waitlist_aged_since(engine, now));
    }
    return woken;
}

/* ---- polling ---- */

/* Takes the next semaphores with waiters, in rotation; returns their number. Caller holds the engine's mutex. */
static size_t next_page(struct waiters *waiters, size_t max, uint64_t *ret_ids)
{
    size_t count = 0;
    for (size_t checked = 0; checked < max; checked++) {
        struct list *node = waiters->entries.next;
        const struct semaphore_entry *entry = LIST_ENTRY(node, struct semaphore_entry, waited_for);
        list_remove(node);
        list_append(&waiters->entries, node);
        if (entry->waiter_count)
            ret_ids[count++] = entry->id;
    }
    return count;
}

static enum permit_status try_page(struct wait_poll *poll, const uint64_t *ids, size_t count,
                                   struct semaphore_page *ret_page)
{
    struct task *task = poll->task;
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    return status == PERMIT_OK ? store_semaphores(task->store, ids, count, &task->arena, ret_page) : status;
}

/*
 * Reads one page. Retries once after a lost connection: without waiters the session is idle, and the server ends it
 * after some seconds.
 */
static enum permit_status read_page(struct wait_poll *poll, const uint64_t *ids, size_t count,
                                    struct semaphore_page *ret_page)
{
    enum permit_status status = try_page(poll, ids, count, ret_page);
    if (status == PERMIT_DATABASE_LOST)
        status = try_page(poll, ids, count, ret_page);
    (void)task_record_status(poll->task, status);
    return status;
}

/*
 * Stores the rows of a page and wakes waiters. Ignores a row if a batch of this process has read a newer one, or is
 * running. Caller holds the engine's mutex.
 */
static void store_page(struct engine *engine, const struct semaphore_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        const struct semaphore *row = &page->rows[i];
        struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, row->id);
        if (!entry || list_empty(&entry->waited_for) || entry->prelock_holder || row->version <= entry->version)
            continue;
        waitlist_observe(engine, row, page->now);
        waitlist_wake_next(engine, entry);
        waitlist_wake_specific(engine, entry, WAKE_ALL, NULL);
    }
}

/*
 * Polls all semaphores with waiters, one page per query. Caller holds the engine's mutex, which is released meanwhile.
 */
static void poll_versions(struct wait_poll *poll)
{
    struct engine *engine = poll->engine;
    struct waiters *waiters = &engine->queue.waiters;
    poll->polled_at = clock_mono();
    unsigned generation = atomic_load(&engine->server_generation);
    if (generation != poll->server_generation) /* after a failover or a restore the cached versions mean nothing */
        waitlist_invalidate(engine);
    poll->server_generation = generation;
    size_t left = waiters->entry_count;
    while (left > 0 && waiters->entry_count > 0 && !atomic_load(&engine->stopping)) {
        uint64_t ids[PAGE];
        size_t checked = left < PAGE ? left : PAGE;
        size_t count = next_page(waiters, checked < waiters->entry_count ? checked : waiters->entry_count, ids);
        left -= checked;
        if (count == 0)
            continue;
        struct semaphore_page page;
        pthread_mutex_unlock(&engine->mutex);
        bool read = read_page(poll, ids, count, &page) == PERMIT_OK;
        pthread_mutex_lock(&engine->mutex);
        if (!read)
            return;
        store_page(engine, &page);
    }
}

/* ---- the task ---- */

/* The time of the next poll; NEVER: no waiters. */
static mono_us next_poll(const struct wait_poll *poll)
{
    const struct engine *engine = poll->engine;
    bool any = engine->queue.waiters.count > 0;
    return any ? poll->polled_at + engine->settings.wait_poll_ms * US_PER_MS : NEVER;
}

/* Sleeps until this time or a change (waitlist_reschedule). Caller holds the engine's mutex. */
static void sleep_until(struct engine *engine, mono_us until)
{
    engine->next_poll_at = until;
    if (until == NEVER) {
        pthread_cond_wait(&engine->poll_wake, &engine->mutex);
    } else {
        struct timespec time = {.tv_sec = until / US_PER_SECOND, .tv_nsec = until % US_PER_SECOND * 1000};
        (void)pthread_cond_timedwait(&engine->poll_wake, &engine->mutex, &time);
    }
    engine->next_poll_at = 0; /* awake */
}

static mono_us next_time(const struct wait_poll *poll, mono_us now)
{
    const struct waiters *waiters = &poll->engine->queue.waiters;
    const struct heap_node *wait_end = heap_first(&waiters->wait_ends);
    const struct heap_node *due = heap_first(&waiters->dues);
    mono_us next = next_poll(poll);
    if (wait_end)
        next = min_i64(next, wait_end->time <= now ? now + RETRY_US : wait_end->time);
    return due ? min_i64(next, due->time) : next;
}

void wait_poll_run(struct task *task)
{
    struct engine *engine = task->engine;
    struct wait_poll poll = {.task = task, .engine = engine};
    pthread_mutex_lock(&engine->mutex);
    while (!task_stopping(task)) {
        mono_us now = clock_mono();
        bool woken = wake_by_time(engine, now);
        woken |= wake_by_due(engine, now);
        if (woken && engine->idle_workers)
            pthread_cond_signal(&engine->work);
        if (next_poll(&poll) <= now)
            poll_versions(&poll);
        else
            sleep_until(engine, next_time(&poll, now));
    }
    pthread_mutex_unlock(&engine->mutex);
}
