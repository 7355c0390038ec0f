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
    size_t i = 0;
    while (i < engine->webhook_count && memcmp(engine->webhook_ids[i], id, sizeof id) != 0)
        i++;
    if (i == engine->webhook_count && i < WEBHOOKS_MAX)
        memcpy(engine->webhook_ids[engine->webhook_count++], id, sizeof id);
    engine_unlock(engine);
    return i < WEBHOOKS_MAX;
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
