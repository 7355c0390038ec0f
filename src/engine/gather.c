/* SPDX-License-Identifier: MIT */
#include "engine/gather.h"

#include "base/clock.h"
#include "engine/waitlist.h"

/* Returns the only semaphore of the run if other processes change it, too; else NULL. */
static const struct semaphore_entry *shared_semaphore(const struct worker *worker, const struct run *run)
    REQUIRES(engine_mutex)
{
    const struct batch *batch = &worker->batch;
    bool is_complete = run->is_whole && run->count == batch->op_count;
    if (!is_complete || batch->entry_count != 1 || operation_is_administrative(run->ops[0]->operation->kind))
        return NULL;
    return batch->entries[0]->shared_until > clock_mono() ? batch->entries[0] : NULL;
}

enum permit_status gather(struct worker *worker, struct run *run)
{
    struct engine *engine = worker->engine;
    struct batch *batch = &worker->batch;
    engine_lock(engine);
    const struct semaphore_entry *entry = shared_semaphore(worker, run);
    uint64_t id = entry ? entry->id : 0;
    engine_unlock(engine);
    if (!id)
        return PERMIT_OK;
    enum permit_status status = store_await(worker->store, id);
    if (status != PERMIT_OK)
        return status;
    run->has_lock = true;
    engine_lock(engine);
    queue_take_gathered(&engine->queue, batch, clock_mono());
    waitlist_prepare(engine, batch);
    engine_unlock(engine);
    run->count = run->transaction.count = batch->op_count;
    if (run->most < run->count)
        run->most = run->count;
    return PERMIT_OK;
}
