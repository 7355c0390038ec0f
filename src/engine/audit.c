/* SPDX-License-Identifier: MIT */
/*
 * Audit: one thread compares the counters with the rows of held requests, in rounds: every semaphore by ascending id,
 * then every held request. It sleeps thirty times as long as it works, so that it needs at most 3 % of a core. A
 * mismatch is checked a second time before it counts. Then it is logged, once per change, and stays in the list that
 * doctor shows until a later round no longer finds it.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/background.h"

enum {
    REST_FACTOR = 30,
    REST_FACTOR_IN_VIEW = 3,
    ROUND_PAUSE_US = 1000 * 1000,
    FAILURE_PAUSE_US = 1000 * 1000,
    RECHECK_DELAY_US = 100 * 1000
};

struct audit_task {
    struct background background;
    bool requests;            /* the round has reached the requests */
    uint64_t semaphore_id;    /* the last semaphore checked; 0: none in this round */
    struct audit_place place; /* of the next page of requests */
    int64_t rest_us;          /* sleep that is still due for work done */
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
 * Returns the index of the drift, or drift_count. Only this thread writes the list, so it reads it without the mutex.
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
static void record_drift(struct audit_task *task, const struct audit_drift *drift)
{
    struct engine *engine = task->background.engine;
    size_t at = find_drift(engine, drift);
    if (at == DRIFTS_MAX)
        return;
    bool known = at < engine->drift_count &&
                 !memcmp(engine->drifts[at].differences, drift->differences, sizeof drift->differences);
    pthread_mutex_lock(&engine->mutex);
    engine->drifts[at] = *drift;
    engine->drift_count += at == engine->drift_count;
    pthread_mutex_unlock(&engine->mutex);
    task->seen[at] = task->round;
    publish_count(engine);
    if (!known)
        log_drift(LOG_ERROR, "usage mismatch", drift);
}

/* Removes the drifts that a whole round has not found. */
static void remove_resolved_drifts(struct audit_task *task)
{
    struct engine *engine = task->background.engine;
    for (size_t i = engine->drift_count; i-- > 0;) {
        if (task->seen[i] == task->round)
            continue;
        log_drift(LOG_WARN, "usage mismatch resolved", &engine->drifts[i]);
        pthread_mutex_lock(&engine->mutex);
        engine->drifts[i] = engine->drifts[--engine->drift_count];
        pthread_mutex_unlock(&engine->mutex);
        task->seen[i] = task->seen[engine->drift_count];
    }
    publish_count(engine);
}

size_t engine_drifts(struct engine *engine, struct audit_drift *ret_drifts, size_t max)
{
    pthread_mutex_lock(&engine->mutex);
    size_t count = engine->drift_count;
    for (size_t i = 0; i < count && i < max; i++)
        ret_drifts[i] = engine->drifts[i];
    pthread_mutex_unlock(&engine->mutex);
    return count;
}

/* ---- steps ---- */

/* The result of one step: a semaphore, or a page of requests. */
struct step_result {
    uint64_t semaphore_id; /* the semaphore checked; 0: no further semaphore */
    struct audit_result result;
    struct audit_place place; /* of the next page of requests */
};

/* Sleeps for the work since `began`: `now_times` as long now, the remainder up to thirty times as long later. */
static void rest(struct audit_task *task, mono_us began, int64_t now_times)
{
    int64_t took = clock_mono() - began;
    task->rest_us += REST_FACTOR * took;
    int64_t now = min_i64(task->rest_us, now_times * took);
    task->rest_us -= now;
    background_sleep(&task->background, now);
}

/* Checks the next semaphore. Sleeps only three times as long as it works while its read view is open. */
static enum permit_status check_semaphore(struct audit_task *task, struct step_result *ret_result)
{
    struct background *background = &task->background;
    struct audit audit;
    mono_us began = clock_mono();
    enum permit_status status = audit_begin(&audit, background->session, task->semaphore_id, &background->arena);
    while (status == PERMIT_OK && audit.step != AUDIT_DONE) {
        status = background_stopping(background) ? PERMIT_SHUTTING_DOWN : audit_step(&audit);
        if (status == PERMIT_OK)
            rest(task, began, audit.in_view ? REST_FACTOR_IN_VIEW : REST_FACTOR);
        began = clock_mono();
    }
    ret_result->semaphore_id = audit.semaphore.id;
    return audit_end(&audit, status, &ret_result->result);
}

/* Runs one step. */
static enum permit_status check(struct audit_task *task, struct step_result *ret_result)
{
    struct background *background = &task->background;
    enum permit_status status = background_begin(background);
    if (status != PERMIT_OK)
        return status;
    if (!task->requests)
        return check_semaphore(task, ret_result);
    mono_us began = clock_mono();
    status =
        audit_requests(background->session, &task->place, &background->arena, &ret_result->result, &ret_result->place);
    rest(task, began, REST_FACTOR);
    return status;
}

static void end_round(struct audit_task *task)
{
    remove_resolved_drifts(task);
    metrics_count(&task->background.engine->metrics.audit_rounds);
    task->round++;
    task->requests = false;
    task->semaphore_id = 0;
    background_sleep(&task->background, ROUND_PAUSE_US);
}

/* Moves on to the next step. */
static void advance(struct audit_task *task, const struct step_result *step)
{
    if (!task->requests && step->semaphore_id) {
        task->semaphore_id = step->semaphore_id;
    } else if (!task->requests) {
        task->requests = true;
        task->place = (struct audit_place){0};
    } else {
        task->place = step->place;
        if (task->place.at_end)
            end_round(task);
    }
}

static void run_step(struct audit_task *task)
{
    struct step_result step = {0};
    enum permit_status status = check(task, &step);
    if (status == PERMIT_OK && step.result.drift_count) {
        background_sleep(&task->background, RECHECK_DELAY_US);
        status = check(task, &step);
    }
    if (status == PERMIT_SHUTTING_DOWN)
        return;
    background_record_status(&task->background, status);
    if (status != PERMIT_OK) {
        background_sleep(&task->background, FAILURE_PAUSE_US);
        return;
    }
    for (size_t i = 0; i < step.result.drift_count; i++)
        record_drift(task, &step.result.drifts[i]);
    background_sleep(&task->background, task->rest_us);
    task->rest_us = 0;
    advance(task, &step);
}

void *audit_thread(void *engine)
{
    struct audit_task task = {.round = 1};
    bool ready = background_init(&task.background, engine, "auditor", SESSION_READER);
    while (ready && !background_stopping(&task.background))
        run_step(&task);
    background_release(&task.background);
    return NULL;
}
