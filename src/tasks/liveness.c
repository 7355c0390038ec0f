/* SPDX-License-Identifier: MIT */
/*
 * Liveness: the task that has the probe query all owners of held requests, page after page, and judges the answers. An
 * owner that is found dead twice in a row is marked as lapsed.
 */
#include "engine/liveness.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "core/name.h"
#include "store/owners.h"
#include "tasks/tasks.h"

enum { DEADLINE_MS = 10000 }; /* of a verdict */

/* ---- verdicts ---- */

struct verdict {
    struct owner_op op;
    char name[];
};

static void verdict_decided(struct owner_op *op, const struct owner_decision *decision)
{
    (void)decision; /* the next probe finds a failed verdict again */
    free(CONTAINER_OF(op, struct verdict, op));
}

/* Submits the call that marks the owner as lapsed. The requests that it acquired before `since` end with the lapse. */
static void declare_dead(struct engine *engine, struct bytes owner, utc_us since)
{
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

/* ---- passes ---- */

/* Owners of a namespace are not asked about: the service behind the URL could take them for others of the same name. */
static enum permit_status ask_page(struct task *task, const struct owner_holder *holders, size_t count, utc_us asked_at)
{
    struct engine *engine = task->engine;
    struct probe_question *questions = arena_array(&task->arena, count, sizeof *questions);
    size_t asked = 0;
    if (!questions && count)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (holders[i].is_probed && !name_has_namespace(holders[i].name))
            questions[asked++].owner = holders[i].name;
    if (asked)
        engine->settings.ask_probe(engine->settings.probe_context, questions, asked, &engine->stopping);
    for (size_t i = 0; i < asked && !atomic_load(&engine->stopping); i++) {
        utc_us since;
        metrics_count(&engine->metrics.probes[questions[i].ret_answer]);
        if (liveness_learn(engine->liveness, &questions[i], asked_at, &since))
            declare_dead(engine, questions[i].owner, since);
    }
    return PERMIT_OK;
}

/* Has the probe query each owner of a held request once. */
static enum permit_status run_pass(struct task *task)
{
    struct liveness *liveness = task->engine->liveness;
    char place[STORED_KEY_MAX_BYTES];
    struct bytes after = {place, 0};
    size_t count = OWNERS_PAGE;
    liveness_begin_pass(liveness);
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
        liveness_end_pass(liveness);
    return PERMIT_OK;
}

/* Sleeps until liveness_interval after `since`, in pieces, because a reload may change the interval. */
static void sleep_interval(struct engine *engine, mono_us since)
{
    const struct timespec piece = {.tv_nsec = 50 * 1000000L};
    while (!atomic_load(&engine->stopping)) {
        engine_lock(engine);
        int64_t interval_ms = engine->settings.liveness_interval_ms;
        engine_unlock(engine);
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
