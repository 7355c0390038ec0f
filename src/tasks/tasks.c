/* SPDX-License-Identifier: MIT */
#include "tasks/tasks.h"

#include "base/clock.h"
#include "engine/state.h"

const struct task_kind tasks_all[TASK_COUNT] = {
    {"clock tick", STORE_WORKER, PAGE_ARENA, .run = clock_tick_run},
    {"expiry", STORE_WORKER, PAGE_ARENA, .run = expiry_run},
    {"errands", STORE_WORKER, PAGE_ARENA, .run = errands_run},
    {"wait poll", STORE_WORKER, PAGE_ARENA, .run = wait_poll_run},
    {"retention", STORE_WORKER, PAGE_ARENA, .run = retention_run},
    {"audit", STORE_READER, PAGE_ARENA, .run = audit_run},
    {"owners", STORE_WORKER, PAGE_ARENA, .run = heartbeat_expiry_run},
    {"liveness", STORE_READER, PAGE_ARENA, .run = liveness_run},
    {"server membership", STORE_WORKER, PAGE_ARENA, .run = servers_run},
    {"procedures", STORE_ADMIN, PAGE_ARENA, .run = procedures_run},
    {"feed", STORE_WORKER, PAGE_ARENA, .run = feed_run},
    {"webhooks", STORE_WORKER, PAGE_ARENA, .run = webhooks_run},
};

bool task_leads(const struct engine *engine)
{
    mono_us won_at = atomic_load(&engine->tick_won_at);
    return won_at && clock_mono() - won_at < LEADER_FOR_MS * US_PER_MS;
}
