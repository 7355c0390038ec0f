/* SPDX-License-Identifier: MIT */
#include "engine/template_create.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/name.h"
#include "engine/state.h"

#define WHY_TEMPLATE "template "

void template_creates_init(struct template_creates *creations)
{
    *creations = (struct template_creates){0};
    list_init(&creations->all);
}

void template_creates_release(struct template_creates *creations)
{
    map_release(&creations->by_name);
}

/* ---- one creation ---- */

static void template_create_decided(struct op *op, const struct decision *decision);

/* Copies all strings: the acquire may be withdrawn, and the memory of resolve is reused. NULL: out of memory. */
static struct template_create *template_create_new(struct engine *engine, struct bytes name,
                                                   const struct template *template, struct bytes principal)
{
    const struct semaphore *settings = &template->settings;
    size_t text = sizeof WHY_TEMPLATE + name.length + template->prefix.length + settings->feed_url.length +
                  settings->note.length + principal.length;
    struct template_create *creation = malloc(sizeof *creation + text);
    if (!creation)
        return NULL;
    char *at = creation->text;
    *creation = (struct template_create){.engine = engine, .change = template_change(template)};
    creation->change.feed_url = bytes_copy_to(&at, settings->feed_url);
    creation->change.note = bytes_copy_to(&at, settings->note);
    struct bytes why = bytes_copy_to(&at, BYTES(WHY_TEMPLATE)); /* for the event: "template <prefix>" */
    why.length += bytes_copy_to(&at, template->prefix).length;
    creation->operation = (struct operation){
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = bytes_copy_to(&at, name),
        .principal = bytes_copy_to(&at, principal),
        .why = why,
        .change = &creation->change,
    };
    list_init(&creation->node);
    list_init(&creation->clients);
    mono_us now = clock_mono();
    op_init(&creation->op, &creation->operation, now + engine->settings.request_timeout_ms * US_PER_MS,
            template_create_decided);
    creation->op.arrived_at = now;
    return creation;
}

/*
 * Starts a creation. It needs no limit: it has at least one acquire in its list, and the limits of the queue apply to
 * that. NULL: out of memory.
 */
static struct template_create *template_create_start(struct engine *engine, struct bytes name,
                                                     const struct template *template, struct bytes principal)
    REQUIRES(engine_mutex)
{
    struct template_creates *creations = &engine->queue.creations;
    struct template_create *creation = template_create_new(engine, name, template, principal);
    if (!creation || !map_insert(&creations->by_name, &creation->by_name, creation->operation.semaphore)) {
        free(creation);
        return NULL;
    }
    list_append(&creations->all, &creation->node);
    if (queue_add(&engine->queue, &creation->op) && engine->idle_workers)
        pthread_cond_signal(&engine->work);
    return creation;
}

/* ---- the ops that wait for it ---- */

/* All who may look at the semaphore read its record, so a client of a namespace is not named there. */
static struct bytes principal_for_record(const struct operation *operation)
{
    return name_has_namespace(operation->external_id) ? (struct bytes){0} : operation->principal;
}

bool template_create_join(struct engine *engine, struct op *op, struct bytes name, const struct template *template)
{
    struct map_node *node = map_find(&engine->queue.creations.by_name, name);
    struct template_create *creation = node ? MAP_ENTRY(node, struct template_create, by_name) : NULL;
    if (!creation)
        creation = template_create_start(engine, name, template, principal_for_record(op->operation));
    if (creation)
        queue_await_creation(&engine->queue, creation, op);
    op->needs_creation = creation != NULL;
    return creation != NULL;
}

bool template_limit_reached(struct engine *engine)
{
    return atomic_load(&engine->semaphores) >= engine->settings.max_semaphores;
}

bool template_create_follow_key(struct engine *engine, struct op *op)
{
    const struct op *before = queue_before_on_key(op);
    if (!before || before->resolved)
        return false;
    op->needs_creation = false;
    if (before->creation)
        queue_await_creation(&engine->queue, before->creation, op);
    else
        queue_resolve(&engine->queue, op);
    return true;
}

bool template_may_help(const struct op *op, const struct outcome *outcome)
{
    return !outcome->put_back && outcome->status == PERMIT_UNKNOWN_SEMAPHORE &&
           operation_names_semaphores(op->operation) && op->resolved != OP_RESOLVED_BY_QUERY;
}

void op_resolve_again(struct engine *engine, struct op *op)
{
    stage_reopen(&op->stage);
    queue_resolve(&engine->queue, op);
}

/* ---- its decision ---- */

/*
 * Refuses the ops with the status of the failed creation. Their own outcome is never unknown: none of them was tried.
 */
static void refuse_ops(const struct template_create *creation, struct list *clients, const struct decision *decision)
{
    enum { SHOWN_MAX = 100 };
    char sentence[STORE_MESSAGE_SIZE];
    struct bytes name = creation->operation.semaphore;
    struct bytes template = creation->operation.why;
    enum permit_status status = decision->status == PERMIT_OUTCOME_UNKNOWN ? PERMIT_BUSY : decision->status;
    const char *detail = decision->detail;
    if (permit_status_retry(status) == PERMIT_RETRY_NEVER) {
        snprintf(sentence, sizeof sentence, "cannot create %.*s from %.*s: %s",
                 (int)min_i64(SHOWN_MAX, (int64_t)name.length), name.data,
                 (int)min_i64(SHOWN_MAX, (int64_t) template.length), template.data,
                 detail ? detail : permit_status_title(status));
        detail = sentence; /* as for an operator who sends the same PUT */
    }
    list_for_each (node, next, clients) {
        list_remove(node);
        decide_status(creation->engine, LIST_ENTRY(node, struct op, node), status, detail);
    }
}

/*
 * Moves the ops that need the semaphore itself from the list of the creation to ret_clients. The others in the list are
 * later ops of the same keys; they are resolved again, because the semaphore may exist by now.
 */
static void take_ops(struct template_create *creation, struct list *ret_clients) REQUIRES(engine_mutex)
{
    list_for_each (node, next, &creation->clients) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (!op->needs_creation)
            continue;
        queue_take_out(&creation->engine->queue, op);
        list_append(ret_clients, &op->node);
    }
}

/* Ends the creation. PERMIT_VERSION_MISMATCH counts as success: another client or server has created the semaphore. */
static void template_create_decided(struct op *op, const struct decision *decision)
{
    struct template_create *creation = CONTAINER_OF(op, struct template_create, op);
    struct engine *engine = creation->engine;
    struct list refused;
    list_init(&refused);
    if (decision->status == PERMIT_OK) {
        atomic_fetch_add(&engine->semaphores, 1);
        atomic_store(&engine->recount_semaphores, true);
    }
    engine_lock(engine);
    map_remove(&engine->queue.creations.by_name, &creation->by_name);
    if (decision->status != PERMIT_OK && decision->status != PERMIT_VERSION_MISMATCH)
        take_ops(creation, &refused);
    engine_unlock(engine);
    refuse_ops(creation, &refused, decision);
    engine_lock(engine);
    list_remove(&creation->node);
    queue_resolve_again(&engine->queue, creation);
    assert(list_empty(&creation->clients));
    if (engine->idle_workers)
        pthread_cond_signal(&engine->work);
    engine_unlock(engine);
    free(creation);
}
