/* SPDX-License-Identifier: MIT */
#include "http/unclaimed.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "http/service.h"

/* Nobody waits for it: it may take its time. */
enum { RELEASE_WITHIN_MS = 60000 };

struct unclaimed {
    struct op op;
    struct operation operation;
    char key[UUID_TEXT_SIZE];
};

static void warn(const char *key, enum permit_status status)
{
    log_write(LOG_WARN, "cannot release a grant whose client disconnected, it will expire", "external_id", key, "why",
              permit_status_word(status), NULL);
}

static void released(struct op *op, const struct decision *decision)
{
    struct unclaimed *unclaimed = CONTAINER_OF(op, struct unclaimed, op);
    if (decision->status != PERMIT_OK)
        warn(unclaimed->key, decision->status);
    free(unclaimed);
}

static void release(struct engine *engine, struct bytes key)
{
    struct unclaimed *unclaimed = calloc(1, sizeof *unclaimed);
    if (!unclaimed) {
        warn(key.data, PERMIT_NO_MEMORY);
        return;
    }
    memcpy(unclaimed->key, key.data, key.length);
    unclaimed->operation = (struct operation){.kind = OP_RELEASE, .external_id = {unclaimed->key, key.length}};
    op_init(&unclaimed->op, &unclaimed->operation, clock_mono() + RELEASE_WITHIN_MS * (mono_us)US_PER_MS, released);
    enum permit_status status = engine_submit(engine, &unclaimed->op);
    if (status == PERMIT_OK)
        return;
    warn(unclaimed->key, status);
    free(unclaimed);
}

void unclaimed_release(struct exchange *exchange)
{
    size_t count;
    struct part *parts = exchange_parts(exchange, &count);
    for (size_t i = 0; i < count; i++)
        if (part_is_unknown_grant(&parts[i]))
            release(exchange->service->engine, parts[i].operation.external_id);
}
