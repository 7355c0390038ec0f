/* SPDX-License-Identifier: MIT */
/* Step 0: the semaphores of operations that memory does not know, by one plain read for all. A hint, never trusted. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/worker.h"

enum { NAME_DETAIL_SIZE = 320, NAME_SHOWN = 200 };

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

/* Ids for all wants of an acquire. Engine's mutex held. */
static enum permit_status learn_wants(struct engine *engine, struct op *op, const struct resolve_name *names)
{
    const struct operation *operation = op->operation;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < operation->want_count; i++) {
        gates_learn(&engine->queue.gates, names[i].ret_id, names[i].name, names[i].ret_kind, names[i].ret_floor);
        operation->wants[i].semaphore_id = ids[i] = names[i].ret_id;
    }
    qsort(ids, operation->want_count, sizeof *ids, compare_u64);
    op->looked_up = true;
    return queue_set_gates(&engine->queue, op, ids, operation->want_count) ? PERMIT_OK : PERMIT_BUSY;
}

/*
 * The first semaphore of an acquire that is not there: one that nobody makes, so that nothing is made for nothing; else
 * one that has a template. A retired one without is there: the plan may know the key. NULL: all are there.
 */
static const struct resolve_name *first_missing(const struct resolve_name *names, size_t count)
{
    const struct resolve_name *missing = NULL;
    for (size_t i = 0; i < count; i++) {
        if (names[i].ret_id == 0 && !names[i].ret_template)
            return &names[i];
        if (!missing && names[i].ret_template)
            missing = &names[i];
    }
    return missing;
}

static void unknown_sentence(struct bytes name, char ret_detail[NAME_DETAIL_SIZE])
{
    snprintf(ret_detail, NAME_DETAIL_SIZE, "there is no semaphore \"%.*s\"", (int)name.length, name.data);
}

static void full_sentence(const struct engine *engine, struct bytes name, char ret_detail[NAME_DETAIL_SIZE])
{
    snprintf(ret_detail, NAME_DETAIL_SIZE,
             "there is no semaphore \"%.*s\", and templates create no more (max_semaphores is %llu)",
             (int)min_i64(NAME_SHOWN, (int64_t)name.length), name.data,
             (unsigned long long)engine->settings.max_semaphores);
}

enum settled { SETTLED_KNOWN, SETTLED_LATER, SETTLED_REFUSED };

/* What becomes of an acquire. SETTLED_REFUSED: with *ret_status. Engine's mutex held. */
static enum settled settle_acquire(struct engine *engine, struct op *op, const struct resolve_name *names,
                                   enum permit_status *ret_status, char ret_detail[NAME_DETAIL_SIZE])
{
    const struct resolve_name *missing = first_missing(names, op->operation->want_count);
    if (!missing) {
        *ret_status = learn_wants(engine, op, names);
    } else if (!missing->ret_template) {
        *ret_status = PERMIT_UNKNOWN_SEMAPHORE;
        unknown_sentence(missing->name, ret_detail);
    } else if (missing->ret_id == 0 && makers_are_full(engine)) {
        *ret_status = PERMIT_TOO_MANY;
        full_sentence(engine, missing->name, ret_detail);
    } else if (maker_ask(engine, op, missing->name, missing->ret_template)) {
        return SETTLED_LATER;
    }
    return *ret_status == PERMIT_OK ? SETTLED_KNOWN : SETTLED_REFUSED;
}

/* Engine's mutex held. */
static enum settled settle_key(struct engine *engine, struct op *op, const struct resolve_key *key)
{
    op->held_slots = key->ret_slots;
    return queue_set_gates(&engine->queue, op, key->ret_semaphore_ids, key->ret_count) ? SETTLED_KNOWN
                                                                                       : SETTLED_REFUSED;
}

/* Into the queue with what was found, at the place of its arrival; or onto a maker's list. */
static void settle_resolved(struct engine *engine, struct run *run, const struct resolve *resolve)
{
    const struct resolve_name *name = resolve->names;
    const struct resolve_key *key = resolve->keys;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        size_t name_count = op->operation->want_count;
        bool acquires = op->operation->kind == OP_ACQUIRE;
        enum permit_status status = PERMIT_BUSY;
        enum settled settled;
        char detail[NAME_DETAIL_SIZE] = "out of memory";
        pthread_mutex_lock(&engine->mutex);
        if (maker_follow(engine, op))
            settled = SETTLED_LATER;
        else if (acquires)
            settled = settle_acquire(engine, op, name, &status, detail);
        else
            settled = settle_key(engine, op, key);
        if (settled == SETTLED_KNOWN) {
            queue_follow_key(&engine->queue, op);
            queue_put_back(&engine->queue, op);
        }
        pthread_mutex_unlock(&engine->mutex);
        if (settled == SETTLED_REFUSED)
            decide_status(engine, op, status, detail);
        name += name_count;
        key += !acquires;
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
        note_failure(worker, status, "cannot resolve names and keys");
        if (status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY) {
            give_up_all(worker, &run, status);
            return;
        }
        pause_before_retry(status, tries);
    }
}
