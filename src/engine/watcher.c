/* SPDX-License-Identifier: MIT */
/*
 * The watcher: one thread for those who wait. It calls a waiter whose time is over (for its last batch), the first
 * waiter of a semaphore whose next holder is due, and, since units are also freed through other permitd, asks every
 * wait_poll for the versions of all semaphores that somebody waits for, in one query. It sleeps while nobody waits.
 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plant.h"
#include "engine/waits.h"

enum {
    CALLED_MAX = 1000, /* waiters called and not yet decided; the turn of others comes when there are fewer */
    CROWDED_US = 2000, /* so long until they are looked at again */
    PAGE = 500,        /* semaphores a query */
};

struct watcher {
    struct engine *engine;
    struct store *store;
    struct arena arena;
    unsigned servers;
    mono_us polled_at;
    bool in_trouble; /* said once */
};

/* ---- the clock ---- */

/* Those who have waited long enough, and places that nobody came back to. Engine's mutex held. */
static bool call_turns(struct engine *engine, mono_us now)
{
    struct waiters *waiters = &engine->queue.waiters;
    bool called = false;
    struct heap_node *first;
    while ((first = heap_first(&waiters->turns)) && first->time <= now && waiters->called < CALLED_MAX) {
        struct waiter *waiter = HEAP_ENTRY(first, struct waiter, turn);
        if (!waiter_is_asked(waiter) && !waiter->called) {
            waiters_remove(waiters, waiter);
            continue;
        }
        queue_call(&engine->queue, waiter);
        /* Its batch settles when its turn comes next. Without memory it was not called. */
        heap_move(&waiters->turns, first, waiter->called ? NEVER : now + CROWDED_US);
        called = true;
    }
    return called;
}

/* A holder may be due, or it is time to look again. Engine's mutex held. */
static bool call_dues(struct engine *engine, mono_us now)
{
    struct heap *dues = &engine->queue.waiters.dues;
    bool called = false;
    struct heap_node *first;
    while ((first = heap_first(dues)) && first->time <= now) {
        struct gate *gate = HEAP_ENTRY(first, struct gate, due);
        if (gate->look_at <= now)
            waits_call_certain(engine, gate, CERTAIN_ALL, NULL);
        waiters_looked(&engine->queue.waiters, gate);
        called |= queue_call_next(&engine->queue, gate, waits_aged_since(engine, now));
    }
    return called;
}

/* ---- the others ---- */

/* The next of those that somebody waits for, in turns. Engine's mutex held. */
static size_t next_page(struct waiters *waiters, size_t max, uint64_t *ret_ids)
{
    size_t count = 0;
    for (size_t looks = 0; looks < max; looks++) {
        struct list *node = waiters->gates.next;
        const struct gate *gate = LIST_ENTRY(node, struct gate, waited_for);
        list_remove(node);
        list_append(&waiters->gates, node);
        if (gate->waiter_count)
            ret_ids[count++] = gate->id;
    }
    return count;
}

/* After a failover, or a restore. Engine's mutex held. */
static void follow_server(struct watcher *watcher)
{
    unsigned servers = atomic_load(&watcher->engine->servers);
    if (servers == watcher->servers)
        return;
    watcher->servers = servers;
    store_disconnect(watcher->store);
    waits_forget(watcher->engine);
}

static enum permit_status try_page(struct watcher *watcher, const uint64_t *ids, size_t count,
                                   struct semaphore_page *ret_page)
{
    arena_clear(&watcher->arena);
    enum permit_status status = store_reconnect(watcher->store);
    return status == PERMIT_OK ? store_semaphores(watcher->store, ids, count, &watcher->arena, ret_page) : status;
}

/*
 * While nobody waits nothing is asked, and the server ends a session that is silent for some seconds: then once more.
 */
static enum permit_status read_page(struct watcher *watcher, const uint64_t *ids, size_t count,
                                    struct semaphore_page *ret_page)
{
    enum permit_status status = try_page(watcher, ids, count, ret_page);
    if (status == PERMIT_DATABASE_LOST)
        status = try_page(watcher, ids, count, ret_page);
    if (status != PERMIT_OK && !watcher->in_trouble)
        log_write(LOG_WARN, "cannot poll semaphore versions", "status", permit_status_word(status), "error",
                  watcher->store->message, NULL);
    watcher->in_trouble = status != PERMIT_OK;
    return status;
}

/* What a batch of ours has seen meanwhile is newer. Engine's mutex held. */
static void learn_page(struct engine *engine, const struct semaphore_page *page)
{
    for (size_t i = 0; i < page->count; i++) {
        const struct semaphore *row = &page->rows[i];
        struct gate *gate = gates_find(&engine->queue.gates, row->id);
        if (!gate || list_empty(&gate->waited_for) || gate->batch || row->version <= gate->version)
            continue;
        if (PLANTED(22) && gate->version == 0) {
            gate->version = row->version;
            continue;
        }
        waits_learn(engine, row, page->now);
        waits_call(engine, gate);
        waits_call_certain(engine, gate, CERTAIN_ALL, NULL);
    }
}

/* Asks for all of them, a page a query. Engine's mutex held, let go in between. */
static void poll_others(struct watcher *watcher)
{
    struct engine *engine = watcher->engine;
    struct waiters *waiters = &engine->queue.waiters;
    watcher->polled_at = clock_mono();
    follow_server(watcher);
    size_t left = waiters->gate_count;
    while (left > 0 && waiters->gate_count > 0 && !atomic_load(&engine->stopping)) {
        uint64_t ids[PAGE];
        size_t looks = left < PAGE ? left : PAGE;
        size_t count = next_page(waiters, looks < waiters->gate_count ? looks : waiters->gate_count, ids);
        left -= looks;
        if (count == 0)
            continue;
        struct semaphore_page page;
        pthread_mutex_unlock(&engine->mutex);
        bool read = read_page(watcher, ids, count, &page) == PERMIT_OK;
        pthread_mutex_lock(&engine->mutex);
        if (!read)
            return;
        learn_page(engine, &page);
    }
}

/* ---- the thread ---- */

static mono_us poll_at(const struct watcher *watcher)
{
    const struct engine *engine = watcher->engine;
    bool anybody = engine->queue.waiters.count > 0;
    return anybody ? watcher->polled_at + engine->settings.wait_poll_ms * US_PER_MS : NEVER;
}

/* Until something is to be done, or has changed. Engine's mutex held. */
static void sleep_until(struct engine *engine, mono_us until)
{
    engine->watch_at = until;
    if (until == NEVER) {
        pthread_cond_wait(&engine->watch, &engine->mutex);
    } else {
        struct timespec time = {.tv_sec = until / US_PER_SECOND, .tv_nsec = until % US_PER_SECOND * 1000};
        (void)pthread_cond_timedwait(&engine->watch, &engine->mutex, &time);
    }
    engine->watch_at = 0; /* awake */
}

static mono_us next_time(const struct watcher *watcher, mono_us now)
{
    const struct waiters *waiters = &watcher->engine->queue.waiters;
    const struct heap_node *turn = heap_first(&waiters->turns);
    const struct heap_node *due = heap_first(&waiters->dues);
    mono_us next = poll_at(watcher);
    if (turn)
        next = min_i64(next, turn->time <= now ? now + CROWDED_US : turn->time);
    return due ? min_i64(next, due->time) : next;
}

static void watch_once(struct watcher *watcher)
{
    struct engine *engine = watcher->engine;
    mono_us now = clock_mono();
    bool called = call_turns(engine, now);
    called |= call_dues(engine, now);
    if (called && engine->idle_workers)
        pthread_cond_signal(&engine->work);
    if (poll_at(watcher) <= now)
        poll_others(watcher);
    else
        sleep_until(engine, next_time(watcher, now));
}

void *watcher_thread(void *context)
{
    enum { ARENA_CHUNK = 64 * 1024, ARENA_LIMIT = 4 * 1024 * 1024 };
    struct engine *engine = context;
    struct watcher watcher = {.engine = engine};
    session_thread_begin();
    arena_init(&watcher.arena, ARENA_CHUNK, ARENA_LIMIT);
    watcher.store = engine_open_store(engine, "watcher");
    pthread_mutex_lock(&engine->mutex);
    while (watcher.store && !atomic_load(&engine->stopping))
        watch_once(&watcher);
    pthread_mutex_unlock(&engine->mutex);
    arena_release(&watcher.arena);
    store_free(watcher.store);
    session_thread_end();
    return NULL;
}
