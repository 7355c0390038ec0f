/* SPDX-License-Identifier: MIT */
#include "engine/maker.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/plant.h"
#include "engine/state.h"

#define WHY_TEMPLATE "template "

void makers_init(struct makers *makers)
{
    *makers = (struct makers){0};
    list_init(&makers->all);
}

void makers_release(struct makers *makers)
{
    map_release(&makers->by_name);
}

/* ---- one maker ---- */

static struct bytes keep(char **at, struct bytes bytes)
{
    struct bytes copy = {bytes.data ? *at : NULL, bytes.length};
    if (bytes.length)
        memcpy(*at, bytes.data, bytes.length);
    *at += bytes.length;
    return copy;
}

/* "template <prefix>", for the record. */
static struct bytes keep_why(char **at, struct bytes prefix)
{
    struct bytes words = keep(at, BYTES(WHY_TEMPLATE));
    words.length += keep(at, prefix).length;
    return words;
}

static void maker_decided(struct op *op, const struct decision *decision);

/* What it points to is copied: the asker may leave, and what step 0 read is gone soon. NULL: no memory. */
static struct maker *maker_new(struct engine *engine, struct bytes name, const struct template *template,
                               struct bytes principal)
{
    size_t text =
        sizeof WHY_TEMPLATE + name.length + template->prefix.length + template->settings.note.length + principal.length;
    struct maker *maker = malloc(sizeof *maker + text);
    if (!maker)
        return NULL;
    char *at = maker->text;
    *maker = (struct maker){.engine = engine, .change = template_change(template)};
    maker->change.note = keep(&at, template->settings.note);
    maker->operation = (struct operation){
        .kind = OP_SEMAPHORE_PUT,
        .semaphore = keep(&at, name),
        .principal = keep(&at, principal),
        .why = keep_why(&at, template->prefix),
        .change = &maker->change,
    };
    list_init(&maker->node);
    list_init(&maker->askers);
    mono_us now = clock_mono();
    op_init(&maker->op, &maker->operation, now + engine->settings.request_timeout_ms * US_PER_MS, maker_decided);
    maker->op.arrived_at = now;
    return maker;
}

/* The bounds of the queue hold for who asks, and each maker has somebody who does. */
static struct maker *maker_start(struct engine *engine, struct bytes name, const struct template *template,
                                 struct bytes principal)
{
    struct makers *makers = &engine->queue.makers;
    struct maker *maker = maker_new(engine, name, template, principal);
    if (!maker || !map_insert(&makers->by_name, &maker->by_name, maker->operation.semaphore)) {
        free(maker);
        return NULL;
    }
    list_append(&makers->all, &maker->node);
    if (queue_add(&engine->queue, &maker->op) && engine->idle_workers)
        pthread_cond_signal(&engine->work);
    return maker;
}

/* ---- those who ask ---- */

bool maker_ask(struct engine *engine, struct op *op, struct bytes name, const struct template *template)
{
    struct map_node *node = map_find(&engine->queue.makers.by_name, name);
    struct maker *maker =
        node ? MAP_ENTRY(node, struct maker, by_name) : maker_start(engine, name, template, op->operation->principal);
    if (maker)
        queue_wait_for(&engine->queue, maker, op);
    op->asked_maker = maker != NULL;
    return maker != NULL;
}

bool makers_are_full(struct engine *engine)
{
    return atomic_load(&engine->semaphores) >= engine->settings.max_semaphores;
}

bool maker_follow(struct engine *engine, struct op *op)
{
    const struct op *before = queue_before_on_key(op);
    if (!before || before->resolved)
        return false;
    op->asked_maker = false;
    if (before->maker)
        queue_wait_for(&engine->queue, before->maker, op);
    else
        queue_look_up(&engine->queue, op);
    return true;
}

bool maker_may_help(const struct op *op, const struct outcome *outcome)
{
    return !outcome->put_back && outcome->status == PERMIT_UNKNOWN_SEMAPHORE && op->operation->kind == OP_ACQUIRE &&
           !op->looked_up;
}

void maker_look_again(struct engine *engine, struct op *op)
{
    stage_reopen(&op->stage);
    queue_look_up(&engine->queue, op);
}

/* ---- the end ---- */

/* What an operator would have been told of the same PUT. */
static void refusal_sentence(const struct maker *maker, const char *why, char *ret_text, size_t size)
{
    enum { SHOWN_MAX = 100 };
    struct bytes name = maker->operation.semaphore;
    struct bytes template = maker->operation.why;
    snprintf(ret_text, size, "cannot create %.*s from %.*s: %s", (int)min_i64(SHOWN_MAX, (int64_t)name.length),
             name.data, (int)min_i64(SHOWN_MAX, (int64_t) template.length), template.data, why);
}

/* It has none: its refusal is theirs. Of them nothing was tried, so that none of their outcomes is unknown. */
static void refuse_askers(const struct maker *maker, struct list *askers, const struct decision *decision)
{
    char sentence[STORE_MESSAGE_SIZE];
    enum permit_status status = decision->status == PERMIT_OUTCOME_UNKNOWN ? PERMIT_BUSY : decision->status;
    const char *detail = decision->detail;
    if (permit_status_retry(status) == PERMIT_RETRY_NEVER) {
        refusal_sentence(maker, detail ? detail : permit_status_title(status), sentence, sizeof sentence);
        detail = sentence;
    }
    list_for_each (node, next, askers) {
        list_remove(node);
        decide_status(maker->engine, LIST_ENTRY(node, struct op, node), status, detail);
    }
}

/*
 * It is found no more; those who have to be refused are in nobody's hands. Others on its list only came later on the
 * key of one of them: perhaps so late that there was a semaphore meanwhile, so they look for themselves. Mutex held.
 */
static void take_askers(struct maker *maker, struct list *ret_askers)
{
    list_for_each (node, next, &maker->askers) {
        struct op *op = LIST_ENTRY(node, struct op, node);
        if (!op->asked_maker)
            continue;
        queue_take_out(&maker->engine->queue, op);
        list_append(ret_askers, &op->node);
    }
}

/* Somebody else may have made it at the same time: that is as good. */
static void maker_decided(struct op *op, const struct decision *decision)
{
    struct maker *maker = CONTAINER_OF(op, struct maker, op);
    struct engine *engine = maker->engine;
    struct list refused;
    list_init(&refused);
    if (decision->status == PERMIT_OK) {
        atomic_fetch_add(&engine->semaphores, 1);
        atomic_store(&engine->count_semaphores, true);
    }
    pthread_mutex_lock(&engine->mutex);
    map_remove(&engine->queue.makers.by_name, &maker->by_name);
    if (decision->status != PERMIT_OK && (decision->status != PERMIT_VERSION_MISMATCH || PLANTED(26)))
        take_askers(maker, &refused);
    pthread_mutex_unlock(&engine->mutex);
    refuse_askers(maker, &refused, decision);
    pthread_mutex_lock(&engine->mutex);
    list_remove(&maker->node);
    queue_look_up_again(&engine->queue, maker);
    if (engine->idle_workers)
        pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->mutex);
    free(maker);
}
