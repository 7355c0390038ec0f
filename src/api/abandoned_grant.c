/* SPDX-License-Identifier: MIT */
#include "api/abandoned_grant.h"

#include <stdlib.h>

#include "api/call.h"
#include "api/namespaces.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/name.h"

/* Deadline of the release. No client waits for it. */
enum { RELEASE_WITHIN_MS = 60000 };

struct abandoned_grant {
    struct op op;
    struct operation operation;
    char key[STORED_KEY_MAX_BYTES + 1];
};

static void warn(const char *key, enum permit_status status)
{
    log_write(LOG_WARN, "cannot release a grant whose client disconnected, it will expire", "external_id",
              key_split(bytes_of(key)).key.data, "why", permit_status_word(status), NULL);
}

static void released(struct op *op, const struct decision *decision)
{
    struct abandoned_grant *abandoned_grant = CONTAINER_OF(op, struct abandoned_grant, op);
    if (decision->status != PERMIT_OK)
        warn(abandoned_grant->key, decision->status);
    free(abandoned_grant);
}

static void release(struct engine *engine, struct bytes key)
{
    struct abandoned_grant *abandoned_grant = calloc(1, sizeof *abandoned_grant);
    if (!abandoned_grant) {
        warn(key.data, PERMIT_NO_MEMORY);
        return;
    }
    memcpy(abandoned_grant->key, key.data, key.length);
    abandoned_grant->operation =
        (struct operation){.kind = OP_RELEASE, .external_id = {abandoned_grant->key, key.length}};
    op_init(&abandoned_grant->op, &abandoned_grant->operation, clock_mono() + RELEASE_WITHIN_MS * (mono_us)US_PER_MS,
            released);
    enum permit_status status = engine_submit(engine, &abandoned_grant->op);
    if (status == PERMIT_OK)
        return;
    warn(abandoned_grant->key, status);
    free(abandoned_grant);
}

void abandoned_grants_release(struct exchange *exchange)
{
    size_t count;
    struct batch_item *items = call_items(call_of(exchange), &count);
    for (size_t i = 0; i < count; i++)
        if (item_is_generated_grant(&items[i]))
            release(exchange->service->engine, items[i].operation.external_id);
}
