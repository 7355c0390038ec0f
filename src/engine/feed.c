/* SPDX-License-Identifier: MIT */
#include "engine/feed.h"

#include "base/clock.h"
#include "engine/state.h"

void feed_wait_init(struct feed_wait *wait, void (*wake)(struct feed_wait *wait), mono_us until)
{
    *wait = (struct feed_wait){.wake = wake, .until = until};
    list_init(&wait->node);
}

static void wake_task(struct engine *engine) REQUIRES(engine_mutex)
{
    if (engine->feed_idle)
        pthread_cond_signal(&engine->feed_wake);
}

bool feed_wait_begin(struct engine *engine, struct feed_wait *wait)
{
    engine_lock(engine);
    bool waits = !engine->feed_closed && !wait->abandoned && clock_mono() < wait->until;
    if (waits) {
        list_append(&engine->feed_waits, &wait->node);
        engine->feed_wait_count++;
        wake_task(engine);
    }
    engine_unlock(engine);
    return waits;
}

bool feed_wait_abandon(struct engine *engine, struct feed_wait *wait)
{
    engine_lock(engine);
    bool waited = !list_empty(&wait->node);
    engine->feed_wait_count -= waited;
    list_remove(&wait->node);
    wait->abandoned = true;
    engine_unlock(engine);
    return waited;
}

void feed_wait_wake(struct engine *engine, uint64_t head)
{
    struct list woken;
    list_init(&woken);
    mono_us now = clock_mono();
    engine_lock(engine);
    list_for_each (node, next, &engine->feed_waits) {
        const struct feed_wait *wait = LIST_ENTRY(node, struct feed_wait, node);
        if (!engine->feed_closed && wait->seq >= head && now < wait->until)
            continue;
        list_remove(node);
        list_append(&woken, node);
    }
    /* Until it is woken, one that leaves takes itself out. */
    while (!list_empty(&woken)) {
        struct feed_wait *wait = LIST_ENTRY(woken.next, struct feed_wait, node);
        list_remove(&wait->node);
        engine->feed_wait_count--;
        engine_unlock(engine);
        wait->wake(wait);
        engine_lock(engine);
    }
    engine_unlock(engine);
}

size_t feed_waiting(struct engine *engine)
{
    engine_lock(engine);
    size_t count = engine->feed_wait_count;
    engine_unlock(engine);
    return count;
}

void feed_close(struct engine *engine)
{
    engine_lock(engine);
    engine->feed_closed = true;
    wake_task(engine);
    engine_unlock(engine);
}

void feed_written(struct engine *engine)
{
    engine_lock(engine);
    wake_task(engine);
    engine_unlock(engine);
}

bool feed_may_be_full(const struct engine *engine)
{
    mono_us at = atomic_load(&engine->feed_full_at);
    return at && clock_mono() - at < US_PER_SECOND;
}
