/* SPDX-License-Identifier: MIT */
/*
 * Creation from templates: an acquire that names a missing semaphore is delayed until the semaphore has been created
 * from its template. The creation is an administrative operation of permitd itself: the PUT with If-None-Match that an
 * operator would send. There is at most one for a name; it ends with its decision. Acquires of that semaphore wait in
 * its list, and are resolved again once the semaphore exists, even if another client or server has created it. The ops
 * in the list count as queued: limits, deadlines, engine_abandon and engine_stop apply to them as to unresolved ops.
 * The caller locks.
 */
#ifndef ENGINE_TEMPLATE_CREATE_H
#define ENGINE_TEMPLATE_CREATE_H

#include "core/template.h"
#include "engine/engine.h"

/* The creation of one semaphore. */
struct template_create {
    struct list node;        /* in creations.all */
    struct map_node by_name; /* in creations.by_name */
    struct list clients;     /* struct op: acquires of the semaphore, and later ops of their keys; in order */
    struct engine *engine;
    struct op op; /* the PUT */
    struct operation operation;
    struct semaphore_change change;
    char text[]; /* the strings of the operation */
};

struct template_creates {
    struct list all;
    struct map by_name;
};

void template_creates_init(struct template_creates *creations);
/* Frees the map; all creations have ended. */
void template_creates_release(struct template_creates *creations);

/*
 * Adds an op, which is not in the queue, to the creation of this semaphore; starts the creation if there is none.
 * False: out of memory.
 */
bool template_create_join(struct engine *engine, struct op *op, struct bytes name, const struct template *template)
    REQUIRES(engine_mutex) MUST_CHECK;
/* Returns true if max_semaphores is reached. */
bool template_limit_reached(struct engine *engine) REQUIRES(engine_mutex);
/* Queues the op behind the previous op of its key if that op is not resolved yet; true if so. */
bool template_create_follow_key(struct engine *engine, struct op *op) REQUIRES(engine_mutex);
/* Returns true if a plan refused an acquire whose semaphores came from the cache, because one of them is retired. */
bool template_may_help(const struct op *op, const struct outcome *outcome);
/* Requeues the op to be resolved, because resolve may find a template. */
void op_resolve_again(struct engine *engine, struct op *op) REQUIRES(engine_mutex);
#endif
