/* SPDX-License-Identifier: MIT */
#include "engine/liveness.h"

#include <stdlib.h>

#include "base/mutex.h"

enum { WATCHES_MAX = 100000 }; /* limit of owners in doubt; further ones stay unknown */

/* An owner in doubt: its last answer was dead or unknown. */
struct watch {
    struct map_node by_name;
    struct list node;
    uint64_t pass;   /* the last pass that queried it */
    bool dead;       /* the last answer */
    utc_us asked_at; /* with `dead`: lease clock before that query */
    char name[];
};

struct liveness {
    struct engine *engine;
    struct mutex mutex; /* guards the watches */
    struct map watches;
    struct list watch_list;
    uint64_t pass; /* used by the task only */
};

/* ---- watches ---- */

struct liveness *liveness_new(struct engine *engine)
{
    struct liveness *liveness = calloc(1, sizeof *liveness);
    if (!liveness)
        return NULL;
    liveness->engine = engine;
    mutex_init(&liveness->mutex);
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

/* Returns the watch of this owner, creating it if needed. NULL: out of memory, or too many. */
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
    mutex_destroy(&liveness->mutex);
    free(liveness);
}

bool engine_owner_in_doubt(struct engine *engine, struct bytes owner)
{
    mutex_lock(&engine->liveness->mutex);
    bool doubt = watch_find(engine->liveness, owner) != NULL;
    mutex_unlock(&engine->liveness->mutex);
    return doubt;
}

/* ---- answers ---- */

bool liveness_learn(struct liveness *liveness, const struct probe_question *question, utc_us asked_at,
                    utc_us *ret_since)
{
    bool twice = false;
    bool dead = question->ret_answer == PROBE_DEAD;
    mutex_lock(&liveness->mutex);
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
    mutex_unlock(&liveness->mutex);
    return twice;
}

void liveness_begin_pass(struct liveness *liveness)
{
    liveness->pass++;
}

void liveness_end_pass(struct liveness *liveness)
{
    mutex_lock(&liveness->mutex);
    list_for_each (node, next, &liveness->watch_list) {
        struct watch *watch = LIST_ENTRY(node, struct watch, node);
        if (watch->pass != liveness->pass)
            watch_drop(liveness, watch);
    }
    atomic_store(&liveness->engine->metrics.owners_suspect, liveness->watches.count);
    mutex_unlock(&liveness->mutex);
}
