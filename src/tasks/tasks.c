/* SPDX-License-Identifier: MIT */
#include "tasks/tasks.h"

const struct task_kind tasks_all[TASK_COUNT] = {
    {"clock tick", STORE_WORKER, PAGE_ARENA, .run = clock_tick_run},
    {"expiry", STORE_WORKER, PAGE_ARENA, .run = expiry_run},
    {"wait poll", STORE_WORKER, PAGE_ARENA, .run = wait_poll_run},
    {"retention", STORE_WORKER, PAGE_ARENA, .run = retention_run},
    {"audit", STORE_READER, PAGE_ARENA, .run = audit_run},
    {"owners", STORE_WORKER, PAGE_ARENA, .run = heartbeat_expiry_run},
    {"liveness", STORE_READER, PAGE_ARENA, .run = liveness_run},
    {"server membership", STORE_WORKER, PAGE_ARENA, .run = servers_run},
};
