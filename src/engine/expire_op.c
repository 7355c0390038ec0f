/* SPDX-License-Identifier: MIT */
#include "engine/expire_op.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine/state.h"

enum { DEADLINE_MS = 10000 };

struct expire_op *expire_op_new(struct bytes key, enum end_reason expire_as, void *context,
                                void (*decided)(struct op *op, const struct decision *decision))
{
    struct expire_op *made = calloc(1, sizeof *made + key.length);
    if (!made)
        return NULL;
    memcpy(made->key, key.data, key.length);
    made->context = context;
    made->operation =
        (struct operation){.kind = OP_EXPIRE, .external_id = {made->key, key.length}, .expire_as = expire_as};
    op_init(&made->op, &made->operation, clock_mono() + DEADLINE_MS * US_PER_MS, decided);
    return made;
}

/* A request that was not ended is found again by the acquire, or by the expiry task. */
static void first_decided(struct op *op, const struct decision *decision)
{
    (void)decision;
    free(CONTAINER_OF(op, struct expire_op, op));
}

void expire_op_first(struct engine *engine, const struct request *request)
{
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    struct expire_op *made = expire_op_new(request->external_id, END_EXPIRED, NULL, first_decided);
    if (!made)
        return;
    for (size_t i = 0; i < request->permit_count; i++) {
        ids[i] = request->permits[i].semaphore_id;
        made->op.held_slots += request->permits[i].slots.count;
    }
    made->op.arrived_at = clock_mono();
    size_t count = u64_sort_unique(ids, request->permit_count);
    if (queue_set_entries(&engine->queue, &made->op, ids, count)) {
        queue_add_first(&engine->queue, &made->op);
        return;
    }
    op_drop_entries(&made->op);
    free(made);
}
