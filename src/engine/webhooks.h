/* SPDX-License-Identifier: MIT */
/* Webhooks in the engine: what the operator allows, and which URLs there are. The task is tasks/webhooks.c. */
#ifndef ENGINE_WEBHOOKS_H
#define ENGINE_WEBHOOKS_H

#include "core/webhook.h"
#include "engine/engine.h"
#include "store/webhooks.h"

/* Sets what the operator allows, at the start and at a reload. At first nothing is sent. */
void engine_set_webhook_policy(struct engine *engine, const struct webhook_policy *policy) EXCLUDES(engine_mutex);
void engine_webhook_policy(struct engine *engine, struct webhook_policy *ret_policy) EXCLUDES(engine_mutex);
/*
 * Returns true if a semaphore may name this stored URL: it has been named before, or there are fewer than WEBHOOKS_MAX, as
 * the task has read them within a second, with those that were named here since then. Others may be named meanwhile through
 * another permitd.
 */
bool engine_may_name_webhook(struct engine *engine, struct bytes stored_url) EXCLUDES(engine_mutex) MUST_CHECK;
/* The task has read these rows. */
void engine_note_webhooks(struct engine *engine, const struct webhook_list *list) EXCLUDES(engine_mutex);
#endif
