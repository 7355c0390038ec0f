/* SPDX-License-Identifier: MIT */
#include "engine/liveness.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/name.h"
#include "engine/task.h"
#include "store/owners.h"

enum {
    WATCHES_MAX = 100000, /* limit of owners in doubt; further ones stay unknown */
    DEADLINE_MS = 10000,  /* of a verdict */
};

/* An owner of whom the last answer was not that it is alive. */
struct watch {
    struct map_node by_name;
    struct list node;
    uint64_t pass;   /* the last one in which it was asked about */
    bool dead;       /* the last answer */
    utc_us asked_at; /* with dead: served time before that question */
    char name[];
};

struct liveness {
    struct engine *engine;
    pthread_mutex_t mutex; /* guards the watches */
    struct map watches;
    struct list watch_list;

    /* Only the task. */
    uint64_t pass;
};

/* ---- watches ---- */

struct liveness *liveness_new(struct engine *engine)
{
    struct liveness *liveness = calloc(1, sizeof *liveness);
    if (!liveness)
        return NULL;
    liveness->engine = engine;
    pthread_mutex_init(&liveness->mutex, NULL);
    list_init(&liveness->watch_list);
    return liveness;
}

static struct watch *watch_find(struct liveness *liveness, struct bytes name)
{
    struct map_node *node = map_find(&liveness->watches, name);
    return node ? MAP_ENTRY(node, struct watch, by_name) : NULL;
}

static void watch_drop(struct liveness *liveness, struct watch *watch)
{
    if (!watch)
        return;
    map_remove(&liveness->watches, &watch->by_name);
    list_remove(&watch->node);
    free(watch);
}

/* The one that is there, or a new one; NULL: no memory, or too many. */
static struct watch *watch_take(struct liveness *liveness, struct bytes name)
{
    struct watch *watch = watch_find(liveness, name);
    if (watch || liveness->watches.count >= WATCHES_MAX)
        return watch;
    watch = calloc(1, sizeof *watch + name.length);
    if (!watch)
        return NULL;
    memcpy(watch->name, name.data, name.length);
    if (!map_insert(&liveness->watches, &watch->by_name, (struct bytes){watch->name, name.length})) {
        free(watch);
        return NULL;
    }
    list_append(&liveness->watch_list, &watch->node);
    return watch;
}

void liveness_free(struct liveness *liveness)
{
    if (!liveness)
        return;
    list_for_each (node, next, &liveness->watch_list)
        watch_drop(liveness, LIST_ENTRY(node, struct watch, node));
    map_release(&liveness->watches);
    pthread_mutex_destroy(&liveness->mutex);
    free(liveness);
}

bool engine_owner_in_doubt(struct engine *engine, struct bytes owner)
{
    pthread_mutex_lock(&engine->liveness->mutex);
    bool doubt = watch_find(engine->liveness, owner) != NULL;
    pthread_mutex_unlock(&engine->liveness->mutex);
    return doubt;
}

/* Those who hold nothing any more, or died, are not asked about: nothing is known of them. */
static void forget_unasked(struct liveness *liveness)
{
    pthread_mutex_lock(&liveness->mutex);
    list_for_each (node, next, &liveness->watch_list) {
        struct watch *watch = LIST_ENTRY(node, struct watch, node);
        if (watch->pass != liveness->pass)
            watch_drop(liveness, watch);
    }
    atomic_store(&liveness->engine->metrics.owners_suspect, liveness->watches.count);
    pthread_mutex_unlock(&liveness->mutex);
}

/* ---- answers ---- */

/*
 * Takes an answer to a question that was asked after `asked_at`. True: the second "dead" in a row; *ret_since is the
 * time before the first of the two.
 */
static bool learn(struct liveness *liveness, const struct probe_question *question, utc_us asked_at, utc_us *ret_since)
{
    bool twice = false;
    bool dead = question->ret_answer == PROBE_DEAD;
    pthread_mutex_lock(&liveness->mutex);
    if (question->ret_answer == PROBE_ALIVE) {
        watch_drop(liveness, watch_find(liveness, question->owner));
    } else {
        struct watch *watch = watch_take(liveness, question->owner);
        if (watch) {
            twice = dead && watch->dead;
            *ret_since = watch->asked_at;
            watch->dead = dead;
            watch->asked_at = asked_at;
            watch->pass = liveness->pass;
        }
    }
    atomic_store(&liveness->engine->metrics.owners_suspect, liveness->watches.count);
    pthread_mutex_unlock(&liveness->mutex);
    return twice;
}

struct verdict {
    struct owner_op op;
    char name[];
};

static void verdict_decided(struct owner_op *op, const struct owner_decision *decision)
{
    (void)decision; /* the next probe finds a failed verdict again */
    free(CONTAINER_OF(op, struct verdict, op));
}

/* The owner is marked lapsed, and what it had acquired by then ends. */
static void declare_dead(struct liveness *liveness, struct bytes owner, utc_us since)
{
    struct engine *engine = liveness->engine;
    struct verdict *verdict = calloc(1, sizeof *verdict + owner.length);
    if (!verdict)
        return;
    memcpy(verdict->name, owner.data, owner.length);
    verdict->op.call = (struct owner_call){.kind = OWNER_DEAD, .name = {verdict->name, owner.length}, .at = since};
    verdict->op.decided = verdict_decided;
    verdict->op.deadline = clock_mono() + DEADLINE_MS * US_PER_MS;
    list_init(&verdict->op.node);
    if (engine_submit_owner(engine, &verdict->op) != PERMIT_OK)
        free(verdict);
}

static void judge(struct liveness *liveness, const struct probe_question *questions, size_t count, utc_us asked_at)
{
    for (size_t i = 0; i < count; i++) {
        utc_us since;
        metrics_count(&liveness->engine->metrics.probes[questions[i].ret_answer]);
        if (learn(liveness, &questions[i], asked_at, &since))
            declare_dead(liveness, questions[i].owner, since);
    }
}

/* ---- passes ---- */

static enum permit_status ask_page(struct task *task, const struct owner_holder *holders, size_t count, utc_us asked_at)
{
    struct engine *engine = task->engine;
    struct probe_question *questions = arena_array(&task->arena, count, sizeof *questions);
    size_t asked = 0;
    if (!questions && count)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (holders[i].is_probed)
            questions[asked++].owner = holders[i].name;
    if (asked)
        engine->settings.ask_probe(engine->settings.probe_context, questions, asked, &engine->stopping);
    if (!atomic_load(&engine->stopping))
        judge(engine->liveness, questions, asked, asked_at);
    return PERMIT_OK;
}

/* Everybody who holds something, once. */
static enum permit_status run_pass(struct task *task)
{
    struct liveness *liveness = task->engine->liveness;
    char place[NAME_MAX_BYTES];
    struct bytes after = {place, 0};
    size_t count = OWNERS_PAGE;
    liveness->pass++;
    while (count == OWNERS_PAGE && !task_stopping(task)) {
        struct owner_holder *holders;
        struct query_time time;
        arena_clear(&task->arena);
        enum permit_status status = task_connect(task);
        if (status == PERMIT_OK)
            status = task->store->owners->holding_page(task->store, after, &task->arena, &holders, &count, &time);
        if (status == PERMIT_OK)
            status = ask_page(task, holders, count, lease_time(&time.clock, time.now));
        if (status != PERMIT_OK)
            return status;
        if (count) {
            after.length = holders[count - 1].name.length;
            memcpy(place, holders[count - 1].name.data, after.length);
        }
    }
    if (!task_stopping(task))
        forget_unasked(liveness);
    return PERMIT_OK;
}

/* In pieces, so that a stop is noticed. */
static void sleep_interval(struct engine *engine, mono_us since)
{
    const struct timespec piece = {.tv_nsec = 50 * 1000000L};
    while (!atomic_load(&engine->stopping)) {
        pthread_mutex_lock(&engine->mutex);
        int64_t interval_ms = engine->settings.liveness_interval_ms;
        pthread_mutex_unlock(&engine->mutex);
        if (clock_mono() >= since + interval_ms * US_PER_MS)
            return;
        nanosleep(&piece, NULL);
    }
}

void liveness_run(struct task *task)
{
    while (task->engine->settings.ask_probe && !task_stopping(task)) {
        mono_us since = clock_mono();
        (void)task_record_status(task, run_pass(task));
        sleep_interval(task->engine, since);
    }
}
