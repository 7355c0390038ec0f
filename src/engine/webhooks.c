/* SPDX-License-Identifier: MIT */
#include "engine/webhooks.h"

#include "engine/state.h"

void engine_set_webhook_policy(struct engine *engine, const struct webhook_policy *policy)
{
    engine_lock(engine);
    engine->webhook_policy = *policy;
    engine_unlock(engine);
}

void engine_webhook_policy(struct engine *engine, struct webhook_policy *ret_policy)
{
    engine_lock(engine);
    *ret_policy = engine->webhook_policy;
    engine_unlock(engine);
}

bool engine_may_name_webhook(struct engine *engine, struct bytes stored_url)
{
    char id[WEBHOOK_ID_SIZE];
    webhook_id(stored_url, id);
    engine_lock(engine);
    bool may = engine->webhook_count < WEBHOOKS_MAX;
    for (size_t i = 0; !may && i < engine->webhook_count; i++)
        may = memcmp(engine->webhook_ids[i], id, sizeof id) == 0;
    engine_unlock(engine);
    return may;
}

void engine_note_webhooks(struct engine *engine, const struct webhook_list *list)
{
    char ids[WEBHOOKS_MAX][WEBHOOK_ID_SIZE];
    for (size_t i = 0; i < list->ret_count; i++)
        webhook_id(list->ret_rows[i].url, ids[i]);
    engine_lock(engine);
    engine->webhook_count = list->ret_count;
    memcpy(engine->webhook_ids, ids, list->ret_count * sizeof *ids);
    engine_unlock(engine);
}
