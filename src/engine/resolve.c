/* SPDX-License-Identifier: MIT */
/*
 * Resolve: finds the semaphores of operations that the caches do not know, with one read without locks. The result is a
 * hint.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/worker.h"

enum { NAME_DETAIL_SIZE = 320, NAME_SHOWN = 200 };

/* Sets the semaphores that the operation wants units of. */
static enum permit_status set_wants(struct engine *engine, struct op *op, const struct resolve_name *names)
    REQUIRES(engine_mutex)
{
    const struct operation *operation = op->operation;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    for (size_t i = 0; i < operation->want_count; i++) {
        assert(names[i].ret_id);
        semaphore_cache_put(&engine->queue.semaphores, names[i].ret_id, names[i].name, names[i].ret_kind,
                            names[i].ret_floor);
        operation->wants[i].semaphore_id = ids[i] = names[i].ret_id;
    }
    qsort(ids, operation->want_count, sizeof *ids, compare_u64);
    op->resolved = OP_RESOLVED_BY_QUERY;
    return queue_set_entries(&engine->queue, op, ids, operation->want_count) ? PERMIT_OK : PERMIT_BUSY;
}

/*
 * The missing semaphore that decides what happens to an acquire: the first without a template, so that no semaphore is
 * created for an acquire that fails anyway; else the first with a template. A retired semaphore without a template is
 * not missing, because the plan may know the key. NULL: none is missing.
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

enum resolution { RESOLVED, WAITS_FOR_TEMPLATE, REFUSED };

/*
 * Resolves an operation that names semaphores. WAITS_FOR_TEMPLATE: it waits for a creation. REFUSED: *ret_status has
 * the reason.
 */
static enum resolution resolve_operation(struct engine *engine, struct op *op, const struct resolve_name *names,
                                         enum permit_status *ret_status, char ret_detail[NAME_DETAIL_SIZE])
    REQUIRES(engine_mutex)
{
    const struct resolve_name *missing = first_missing(names, op->operation->want_count);
    if (!missing) {
        *ret_status = set_wants(engine, op, names);
    } else if (!missing->ret_template) {
        *ret_status = PERMIT_UNKNOWN_SEMAPHORE;
        snprintf(ret_detail, NAME_DETAIL_SIZE, "there is no semaphore \"%.*s\"", (int)missing->name.length,
                 missing->name.data);
    } else if (missing->ret_id == 0 && template_limit_reached(engine)) {
        *ret_status = PERMIT_TOO_MANY;
        snprintf(ret_detail, NAME_DETAIL_SIZE,
                 "there is no semaphore \"%.*s\", and templates create no more (max_semaphores is %llu)",
                 (int)min_i64(NAME_SHOWN, (int64_t)missing->name.length), missing->name.data,
                 (unsigned long long)engine->settings.max_semaphores);
    } else if (template_create_join(engine, op, missing->name, missing->ret_template)) {
        return WAITS_FOR_TEMPLATE;
    }
    return *ret_status == PERMIT_OK ? RESOLVED : REFUSED;
}

/* Sets the semaphores of the keys of an op, as far as a batch can lock them: of more, the plan refuses it. */
static bool set_keys(struct engine *engine, struct op *op, const struct resolve_key *keys) REQUIRES(engine_mutex)
{
    uint64_t ids[BATCH_MAX_SEMAPHORES + REQUEST_MAX_SEMAPHORES];
    size_t count = 0;
    op->held_slots = 0;
    for (size_t i = 0; i < operation_key_count(op->operation); i++) {
        op->held_slots += keys[i].ret_slots;
        if (keys[i].ret_count)
            memcpy(ids + count, keys[i].ret_semaphore_ids, keys[i].ret_count * sizeof *ids);
        count = (size_t)min_i64(BATCH_MAX_SEMAPHORES, (int64_t)u64_sort_unique(ids, count + keys[i].ret_count));
    }
    return queue_set_entries(&engine->queue, op, ids, count);
}

/* Queues each op with its semaphores at the position of its arrival, or in the list of a creation; or refuses it. */
static void apply_resolved(struct engine *engine, struct run *run, const struct resolve *resolve)
{
    const struct resolve_name *name = resolve->names;
    const struct resolve_key *key = resolve->keys;
    for (size_t i = 0; i < run->count; i++) {
        struct op *op = run->ops[i];
        size_t name_count = op->operation->want_count;
        bool by_names = operation_names_semaphores(op->operation);
        size_t key_count = by_names ? 0 : operation_key_count(op->operation);
        enum permit_status status = PERMIT_BUSY;
        enum resolution resolution = REFUSED;
        char detail[NAME_DETAIL_SIZE] = "out of memory";
        engine_lock(engine);
        if (template_create_follow_key(engine, op)) {
            resolution = WAITS_FOR_TEMPLATE;
        } else if (by_names) {
            resolution = resolve_operation(engine, op, name, &status, detail);
        } else {
            resolution = set_keys(engine, op, key) ? RESOLVED : REFUSED;
        }
        if (resolution == RESOLVED) {
            queue_follow_key(op);
            queue_put_back(&engine->queue, op);
        }
        engine_unlock(engine);
        if (resolution == REFUSED)
            decide_status(engine, op, status, detail);
        name += name_count;
        key += key_count;
    }
}

/* A run that resolves. */
struct resolve_run {
    struct run run;
    struct resolve resolve;
};

/* Queries the names that operations want units of, and the keys of the others, in the order of the operations. */
static enum permit_status try_resolve(struct transaction *transaction)
{
    struct run *run = CONTAINER_OF(transaction, struct run, transaction);
    struct worker *worker = run->worker;
    struct resolve *resolve = &CONTAINER_OF(run, struct resolve_run, run)->resolve;
    arena_clear(worker->arena);
    size_t name_count = 0;
    for (size_t i = 0; i < run->count; i++)
        name_count += run->ops[i]->operation->want_count;
    resolve->names = arena_array(worker->arena, name_count, sizeof *resolve->names);
    resolve->keys = arena_array(worker->arena, run_key_count(run), sizeof *resolve->keys);
    if (!resolve->names || !resolve->keys)
        return PERMIT_NO_MEMORY;
    resolve->name_count = resolve->key_count = 0;
    for (size_t i = 0; i < run->count; i++) {
        const struct operation *operation = run->ops[i]->operation;
        for (size_t j = 0; j < operation->want_count; j++)
            resolve->names[resolve->name_count++].name = operation->wants[j].semaphore;
        for (size_t j = 0; !operation_names_semaphores(operation) && j < operation_key_count(operation); j++)
            resolve->keys[resolve->key_count++].external_id = operation_key(operation, j);
    }
    enum permit_status status = task_connect(worker->task);
    return status == PERMIT_OK ? worker->store->batch->resolve(worker->store, resolve, worker->arena) : status;
}

static void resolve_failed(struct transaction *transaction, enum permit_status status)
{
    struct run *run = CONTAINER_OF(transaction, struct run, transaction);
    worker_record_failure(run->worker, status, "cannot resolve names and keys");
}

void resolve_ops(struct worker *worker, struct op **ops, size_t count)
{
    struct resolve_run resolving = {
        .run = {.transaction = {.drop_late = run_drop_late,
                                .attempt = try_resolve,
                                .failed = resolve_failed,
                                .is_indivisible = true,
                                .waits_for_locks = true},
                .worker = worker,
                .ops = ops,
                .count = count},
    };
    struct run *run = &resolving.run;
    enum permit_status status = transaction_run(&run->transaction);
    if (status == PERMIT_TOO_LARGE && run->count > 1) {
        size_t half = run->count / 2;
        resolve_ops(worker, ops, half);
        resolve_ops(worker, ops + half, run->count - half);
    } else if (status != PERMIT_OK) {
        run_fail_all(worker, run, status);
    } else if (run->count) {
        worker_recovered(worker);
        apply_resolved(worker->engine, run, &resolving.resolve);
    }
}
