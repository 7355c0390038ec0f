/* SPDX-License-Identifier: MIT */
/* Step 0: the semaphores of operations that memory does not know, by one plain read for all. A hint, never trusted. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/worker.h"

enum { NAME_DETAIL_SIZE = 320 };

static size_t count_names(const struct run *run)
{
    size_t count = 0;
    for (size_t i = 0; i < run->count; i++)
        count += run->ops[i]->operation->want_count;
    return count;
}

/* The names of the acquires, the keys of the others, in the order of the operations. */
static enum permit_status ask_store(struct worker *worker, const struct run *run, struct resolve *resolve)
{
    arena_clear(&worker->arena);
    resolve->names = arena_array(&worker->arena, count_names(run), sizeof *resolve->names);
    resolve->keys = arena_array(&worker->arena, run->count, sizeof *resolve->keys);
    if (!resolve->names || !resolve->keys)
        return PERMIT_NO_MEMORY;
    resolve->name_count = resolve->key_count = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            resolve->names[resolve->name_count++].name = operation->wants[j].semaphore;
        if (operation->kind != OP_ACQUIRE)
            resolve->keys[resolve->key_count++].external_id = operation->external_id;
    }
    enum permit_status status = store_reconnect(worker->store);
    return status == PERMIT_OK ? store_resolve(worker->store, resolve, &worker->arena) : status;
}

/* Ids for all wants of an acquire; the first name that is unknown otherwise. Engine's mutex held. */
static bool learn_wants(struct engine *engine, struct op *op, const struct resolve_name *names,
                        struct bytes *ret_unknown)
{
    const struct operation *operation = op->operation;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < operation->want_count; i++) {
        *ret_unknown = names[i].name;
        if (names[i].ret_id == 0)
            return false;
        gates_learn(&engine->queue.gates, names[i].ret_id, names[i].name, names[i].ret_kind, names[i].ret_floor);
        operation->wants[i].semaphore_id = ids[i] = names[i].ret_id;
    }
    qsort(ids, operation->want_count, sizeof *ids, compare_u64);
    ret_unknown->data = NULL;
    return queue_set_gates(&engine->queue, op, ids, operation->want_count);
}

static void decide_unknown_name(struct engine *engine, struct op *op, struct bytes name)
{
    char detail[NAME_DETAIL_SIZE];
    snprintf(detail, sizeof detail, "there is no semaphore \"%.*s\"", (int)name.length, name.data);
    decide_status(engine, op, PERMIT_UNKNOWN_SEMAPHORE, detail);
}

/* Into the queue with what was found, at the place of its arrival. */
static void settle_resolved(struct engine *engine, struct run *run, const struct resolve *resolve)
{
    const struct resolve_name *name = resolve->names;
    const struct resolve_key *key = resolve->keys;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        struct bytes unknown = {0};
        bool known;
        pthread_mutex_lock(&engine->mutex);
        if (op->operation->kind == OP_ACQUIRE) {
            known = learn_wants(engine, op, name, &unknown);
            name += op->operation->want_count;
        } else {
            known = queue_set_gates(&engine->queue, op, key->ret_semaphore_ids, key->ret_count);
            key++;
        }
        if (known) {
            queue_follow_key(&engine->queue, op);
            queue_put_back(&engine->queue, op);
        }
        pthread_mutex_unlock(&engine->mutex);
        if (!known && unknown.data)
            decide_unknown_name(engine, op, unknown);
        else if (!known)
            decide_status(engine, op, PERMIT_BUSY, "out of memory");
    }
}

void resolve_ops(struct worker *worker, struct op **ops, size_t count)
{
    struct run run = {.ops = ops, .count = count};
    enum permit_status status = PERMIT_BUSY;
    for (unsigned tries = 1; run.count; tries++) {
        drop_late(worker, &run, status);
        if (run.count == 0)
            return;
        struct resolve resolve;
        status = ask_store(worker, &run, &resolve);
        if (status == PERMIT_OK) {
            all_is_well(worker);
            settle_resolved(worker->engine, &run, &resolve);
            return;
        }
        note_failure(worker, status, "looking up names and keys failed");
        if (status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY) {
            give_up_all(worker, &run, status);
            return;
        }
        pause_before_retry(status, tries);
    }
}
