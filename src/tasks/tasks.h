/* SPDX-License-Identifier: MIT */
/* The table of tasks: the work of permitd beside answering requests, one thread each (engine/task.h). */
#ifndef TASKS_TASKS_H
#define TASKS_TASKS_H

#include "engine/task.h"

enum { TASK_COUNT = 12 };
/* For the settings of the engine. */
extern const struct task_kind tasks_all[TASK_COUNT];

/*
 * Submits an expire operation; copies the key. `expire_as` as in struct operation. False: the engine refuses it, or out
 * of memory.
 */
bool expiry_submit(struct engine *engine, struct bytes external_id, enum end_reason expire_as) MUST_CHECK;

/* How long a permitd leads that has won a clock tick: ticks are 1 to 1.5 s apart. */
enum { LEADER_FOR_MS = 1600 };
/* Returns true if this permitd has won a clock tick within that time. */
bool task_leads(const struct engine *engine);

/* The bodies of the tasks (servers_run: membership.c). They return when the engine stops. */
void clock_tick_run(struct task *task);
void errands_run(struct task *task);
void feed_run(struct task *task);
void expiry_run(struct task *task);
void wait_poll_run(struct task *task);
void retention_run(struct task *task);
void audit_run(struct task *task);
void heartbeat_expiry_run(struct task *task);
void liveness_run(struct task *task);
void servers_run(struct task *task);
void procedures_run(struct task *task);
void webhooks_run(struct task *task);
#endif
