/* SPDX-License-Identifier: MIT */
/* Who waits for room: the queue of each semaphore. */
#include "engine/state.h"

bool engine_abandon(struct engine *engine, struct op *op)
{
    (void)engine, (void)op;
    return false;
}

void engine_end_waits(struct engine *engine)
{
    (void)engine;
}

bool engine_waiters(struct engine *engine, struct bytes semaphore, uint64_t after, size_t limit, struct arena *arena,
                    struct waiter_row **ret_rows, size_t *ret_count)
{
    (void)engine, (void)semaphore, (void)after, (void)limit, (void)arena;
    *ret_rows = NULL;
    *ret_count = 0;
    return true;
}

enum permit_status engine_find_waiter(struct engine *engine, struct bytes external_id, struct arena *arena,
                                      struct waiter_row *ret_row, struct waiter_place **ret_places)
{
    (void)engine, (void)external_id, (void)arena, (void)ret_row, (void)ret_places;
    return PERMIT_UNKNOWN_REQUEST;
}

struct waiting engine_waiting(struct engine *engine, struct bytes semaphore)
{
    (void)engine, (void)semaphore;
    return (struct waiting){0};
}
