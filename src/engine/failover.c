/* SPDX-License-Identifier: MIT */
#include "engine/failover.h"

#include "base/log.h"

size_t failover_tokens_seen(struct engine *engine, struct tokens_seen *ret_seen, size_t max)
{
    enum { CHECKS_MAX = 1000 }; /* entries checked; some were resolved here without a grant */
    struct list *recent = &engine->queue.semaphores.recent;
    size_t count = 0;
    int checked = 0;
    engine_lock(engine);
    for (struct list *node = recent->prev; node != recent && count < max && checked < CHECKS_MAX;
         node = node->prev, checked++) {
        const struct semaphore_entry *entry = LIST_ENTRY(node, struct semaphore_entry, recent);
        if (entry->tokens_seen)
            ret_seen[count++] = (struct tokens_seen){entry->id, entry->tokens_seen};
    }
    engine_unlock(engine);
    return count;
}

bool failover_tokens_behind(struct engine *engine, const struct view *view)
{
    bool behind = false;
    engine_lock(engine);
    for (size_t i = 0; i < view->semaphore_count; i++) {
        const struct semaphore_entry *entry = semaphore_cache_find(&engine->queue.semaphores, view->semaphores[i].id);
        behind |= entry && semaphore_next_token(view->semaphores[i].next_token, view->clock.epoch) < entry->tokens_seen;
    }
    engine_unlock(engine);
    return behind;
}

enum permit_status failover_run(struct engine *engine, struct store *store, enum epoch_cause cause, uint64_t seen)
{
    engine_lock(engine);
    struct epoch_advance advance = {.cause = cause, .seen = seen, .hold_ms = engine->settings.failover_hold_ms};
    engine_unlock(engine);
    enum permit_status status = store->clock->advance_epoch(store, &advance);
    if (status != PERMIT_OK)
        return status;
    log_write(LOG_WARN,
              cause == EPOCH_SERVER ? "failover detected, token epoch raised"
                                    : "older database copy detected, token epoch raised",
              NULL);
    atomic_fetch_add(&engine->server_generation, 1);
    return PERMIT_OK;
}
