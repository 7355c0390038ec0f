/* SPDX-License-Identifier: MIT */
/*
 * Audit: the task that compares the counters with the rows of held requests, in rounds: every semaphore by ascending
 * id, then every held request. It sleeps thirty times as long as it works, so that it needs at most 3 % of a core. A
 * mismatch is checked a second time before it counts. Then it is logged, once per change, and stays in the list that
 * doctor shows until a later round no longer finds it.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/state.h"
#include "tasks/tasks.h"

enum {
    REST_FACTOR = 30,
    REST_FACTOR_IN_VIEW = 3,
    ROUND_PAUSE_US = 1000 * 1000,
    FAILURE_PAUSE_US = 1000 * 1000,
    RECHECK_DELAY_US = 100 * 1000
};

struct audit_walk {
    struct task *task;
    bool requests;         /* the round has reached the requests */
    uint64_t semaphore_id; /* the last semaphore checked; 0: none in this round */
    uint64_t request_id;   /* the last request checked; 0: none in this round */
    int64_t rest_us;       /* sleep that is still due for work done */
    uint64_t round;
    uint64_t seen[DRIFTS_MAX]; /* per element of engine->drifts: the round that last found it */
};

/* ---- the list of drifts ---- */

static void log_drift(enum log_level level, const char *message, const struct audit_drift *drift)
{
    log_write(level, message, drift->is_request ? "request" : "semaphore", drift->subject, "finding", drift->sentence,
              NULL);
}

/*
 * Returns the index of the drift, or drift_count. Only this task writes the list, so it reads the list without the
 * mutex.
 */
static size_t find_drift(const struct engine *engine, const struct audit_drift *drift)
{
    size_t at = 0;
    while (at < engine->drift_count &&
           (engine->drifts[at].is_request != drift->is_request || engine->drifts[at].id != drift->id))
        at++;
    return at;
}

static void publish_count(struct engine *engine)
{
    atomic_store(&engine->metrics.usage_drift, engine->drift_count);
}

/* Adds or updates a drift, and logs it if it is new or has changed. Ignores it if the list is full. */
static void record_drift(struct audit_walk *walk, const struct audit_drift *drift)
{
    struct engine *engine = walk->task->engine;
    size_t at = find_drift(engine, drift);
    if (at == DRIFTS_MAX)
        return;
    bool known = at < engine->drift_count &&
                 !memcmp(engine->drifts[at].differences, drift->differences, sizeof drift->differences);
    engine_lock(engine);
    engine->drifts[at] = *drift;
    engine->drift_count += at == engine->drift_count;
    engine_unlock(engine);
    walk->seen[at] = walk->round;
    publish_count(engine);
    if (!known)
        log_drift(LOG_ERROR, "usage mismatch", drift);
}

/* Removes the drifts that a whole round has not found. */
static void remove_resolved_drifts(struct audit_walk *walk)
{
    struct engine *engine = walk->task->engine;
    for (size_t i = engine->drift_count; i-- > 0;) {
        if (walk->seen[i] == walk->round)
            continue;
        log_drift(LOG_WARN, "usage mismatch resolved", &engine->drifts[i]);
        engine_lock(engine);
        engine->drifts[i] = engine->drifts[--engine->drift_count];
        engine_unlock(engine);
        walk->seen[i] = walk->seen[engine->drift_count];
    }
    publish_count(engine);
}

/* ---- steps ---- */

/* The result of one step: a semaphore, or a page of requests. */
struct step_result {
    uint64_t semaphore_id; /* the semaphore checked; 0: no further semaphore */
    struct audit_result result;
    uint64_t request_id; /* the last request of the page; 0: no further request */
};

/* Sleeps for the work since `began`: `now_times` as long now, the remainder up to thirty times as long later. */
static void rest(struct audit_walk *walk, mono_us began, int64_t now_times)
{
    int64_t took = clock_mono() - began;
    walk->rest_us += REST_FACTOR * took;
    int64_t now = min_i64(walk->rest_us, now_times * took);
    walk->rest_us -= now;
    task_sleep(walk->task, now);
}

/* Checks the next semaphore. Sleeps only three times as long as it works while its read view is open. */
static enum permit_status check_semaphore(struct audit_walk *walk, struct step_result *ret_result)
{
    struct task *task = walk->task;
    struct audit audit;
    mono_us began = clock_mono();
    enum permit_status status = task->store->audit->begin(&audit, task->store, walk->semaphore_id, &task->arena);
    while (status == PERMIT_OK && audit.step != AUDIT_DONE) {
        status = task_stopping(task) ? PERMIT_SHUTTING_DOWN : task->store->audit->step(&audit);
        if (status == PERMIT_OK)
            rest(walk, began, audit.in_view ? REST_FACTOR_IN_VIEW : REST_FACTOR);
        began = clock_mono();
    }
    ret_result->semaphore_id = audit.semaphore.id;
    return task->store->audit->end(&audit, status, &ret_result->result);
}

/* Runs one step. */
static enum permit_status check(struct audit_walk *walk, struct step_result *ret_result)
{
    struct task *task = walk->task;
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    if (status != PERMIT_OK)
        return status;
    if (!walk->requests)
        return check_semaphore(walk, ret_result);
    mono_us began = clock_mono();
    status = task->store->audit->requests(task->store, walk->request_id, &task->arena, &ret_result->result,
                                          &ret_result->request_id);
    rest(walk, began, REST_FACTOR);
    return status;
}

static void end_round(struct audit_walk *walk)
{
    remove_resolved_drifts(walk);
    metrics_count(&walk->task->engine->metrics.audit_rounds);
    walk->round++;
    walk->requests = false;
    walk->semaphore_id = 0;
    arena_clear(&walk->task->arena); /* the last page has 100 kB */
    task_sleep(walk->task, ROUND_PAUSE_US);
}

/* Moves on to the next step. */
static void advance(struct audit_walk *walk, const struct step_result *step)
{
    if (!walk->requests && step->semaphore_id) {
        walk->semaphore_id = step->semaphore_id;
    } else if (!walk->requests) {
        walk->requests = true;
        walk->request_id = 0;
    } else {
        walk->request_id = step->request_id;
        if (!walk->request_id)
            end_round(walk);
    }
}

static void run_step(struct audit_walk *walk)
{
    struct step_result step = {0};
    enum permit_status status = check(walk, &step);
    if (status == PERMIT_OK && step.result.drift_count) {
        task_sleep(walk->task, RECHECK_DELAY_US);
        status = check(walk, &step);
    }
    if (status == PERMIT_SHUTTING_DOWN)
        return;
    (void)task_record_status(walk->task, status);
    if (status != PERMIT_OK) {
        task_sleep(walk->task, FAILURE_PAUSE_US);
        return;
    }
    for (size_t i = 0; i < step.result.drift_count; i++)
        record_drift(walk, &step.result.drifts[i]);
    task_sleep(walk->task, walk->rest_us);
    walk->rest_us = 0;
    advance(walk, &step);
}

void audit_run(struct task *task)
{
    struct audit_walk walk = {.task = task, .round = 1};
    while (!task_stopping(task))
        run_step(&walk);
}
