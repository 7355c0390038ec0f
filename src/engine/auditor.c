/* SPDX-License-Identifier: MIT */
/*
 * The auditor: one thread that compares what is held with what is counted, round after round: every semaphore, by
 * ascending id, then every request that is held. It sleeps thirty times as long as it works, so that it needs at most
 * 3 % of a core. What does not match is looked at a second time before it counts; then it is logged, once
 * per change, and stays in the list that doctor shows until a later round finds it in order.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/background.h"

enum { REST = 30, REST_IN_VIEW = 3, ROUND_PAUSE_US = 1000 * 1000, TROUBLE_US = 1000 * 1000, AGAIN_US = 100 * 1000 };

struct auditor {
    struct background background;
    bool requests; /* the second half of a round */
    uint64_t semaphore_id;
    struct audit_place place;
    int64_t rest_us; /* still to be slept for what was done */
    uint64_t round;
    uint64_t seen[DRIFTS_MAX]; /* per drift of the engine: the round in which it was last found */
};

/* ---- the list of drifts ---- */

static void log_drift(enum log_level level, const char *message, const struct audit_drift *drift)
{
    log_write(level, message, drift->is_request ? "request" : "semaphore", drift->subject, "finding", drift->sentence,
              NULL);
}

static bool same_subject(const struct audit_drift *a, const struct audit_drift *b)
{
    return a->is_request == b->is_request && a->id == b->id;
}

/*
 * Where it is in the list, or the end of the list. Only this thread writes the list, so it reads it without the mutex.
 */
static size_t find_drift(const struct engine *engine, const struct audit_drift *drift)
{
    size_t at = 0;
    while (at < engine->drift_count && !same_subject(&engine->drifts[at], drift))
        at++;
    return at;
}

static void publish_count(struct engine *engine)
{
    atomic_store(&engine->metrics.usage_drift, engine->drift_count);
}

/* More than the list holds are not told one by one. */
static void note_drift(struct auditor *auditor, const struct audit_drift *drift)
{
    struct engine *engine = auditor->background.engine;
    size_t at = find_drift(engine, drift);
    if (at == DRIFTS_MAX)
        return;
    bool known = at < engine->drift_count && !memcmp(engine->drifts[at].apart, drift->apart, sizeof drift->apart);
    pthread_mutex_lock(&engine->mutex);
    engine->drifts[at] = *drift;
    engine->drift_count += at == engine->drift_count;
    pthread_mutex_unlock(&engine->mutex);
    auditor->seen[at] = auditor->round;
    publish_count(engine);
    if (!known)
        log_drift(LOG_ERROR, "usage mismatch", drift);
}

/* What a whole round has not found any more is in order. */
static void forget_drifts(struct auditor *auditor)
{
    struct engine *engine = auditor->background.engine;
    for (size_t i = engine->drift_count; i-- > 0;) {
        if (auditor->seen[i] == auditor->round)
            continue;
        log_drift(LOG_WARN, "usage mismatch resolved", &engine->drifts[i]);
        pthread_mutex_lock(&engine->mutex);
        engine->drifts[i] = engine->drifts[--engine->drift_count];
        pthread_mutex_unlock(&engine->mutex);
        auditor->seen[i] = auditor->seen[engine->drift_count];
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

/* ---- pieces ---- */

struct piece {
    uint64_t semaphore_id; /* the one that was looked at; 0: there is none any more */
    struct audit_result result;
    struct audit_place place; /* of requests: where the next page begins */
};

/* Sleeps for the work that began then: thirty times as long, or some of it now and the rest later. */
static void rest(struct auditor *auditor, mono_us began, int64_t now_times)
{
    int64_t took = clock_mono() - began;
    auditor->rest_us += REST * took;
    int64_t now = min_i64(auditor->rest_us, now_times * took);
    auditor->rest_us -= now;
    background_sleep(&auditor->background, now);
}

/* While its view is open it rests only a little. */
static enum permit_status look_at_semaphore(struct auditor *auditor, struct piece *ret_piece)
{
    struct background *background = &auditor->background;
    struct audit audit;
    mono_us began = clock_mono();
    enum permit_status status = audit_begin(&audit, background->session, auditor->semaphore_id, &background->arena);
    while (status == PERMIT_OK && audit.step != AUDIT_DONE) {
        status = background_stops(background) ? PERMIT_SHUTTING_DOWN : audit_step(&audit);
        if (status == PERMIT_OK)
            rest(auditor, began, audit.in_view ? REST_IN_VIEW : REST);
        began = clock_mono();
    }
    ret_piece->semaphore_id = audit.semaphore.id;
    return audit_end(&audit, status, &ret_piece->result);
}

static enum permit_status look(struct auditor *auditor, struct piece *ret_piece)
{
    struct background *background = &auditor->background;
    enum permit_status status = background_begin(background);
    if (status != PERMIT_OK)
        return status;
    if (!auditor->requests)
        return look_at_semaphore(auditor, ret_piece);
    mono_us began = clock_mono();
    status =
        audit_requests(background->session, &auditor->place, &background->arena, &ret_piece->result, &ret_piece->place);
    rest(auditor, began, REST);
    return status;
}

/* A second time, if need be. */
static enum permit_status look_closely(struct auditor *auditor, struct piece *ret_piece)
{
    enum permit_status status = look(auditor, ret_piece);
    if (status != PERMIT_OK || ret_piece->result.drift_count == 0)
        return status;
    background_sleep(&auditor->background, AGAIN_US);
    return look(auditor, ret_piece);
}

static void end_round(struct auditor *auditor)
{
    forget_drifts(auditor);
    metrics_count(&auditor->background.engine->metrics.audit_rounds);
    auditor->round++;
    auditor->requests = false;
    auditor->semaphore_id = 0;
    background_sleep(&auditor->background, ROUND_PAUSE_US);
}

static void go_on(struct auditor *auditor, const struct piece *piece)
{
    if (!auditor->requests && piece->semaphore_id) {
        auditor->semaphore_id = piece->semaphore_id;
    } else if (!auditor->requests) {
        auditor->requests = true;
        auditor->place = (struct audit_place){0};
    } else {
        auditor->place = piece->place;
        if (auditor->place.at_end)
            end_round(auditor);
    }
}

static void run_piece(struct auditor *auditor)
{
    struct piece piece = {0};
    enum permit_status status = look_closely(auditor, &piece);
    if (status == PERMIT_SHUTTING_DOWN)
        return;
    background_note(&auditor->background, status);
    if (status != PERMIT_OK) {
        background_sleep(&auditor->background, TROUBLE_US);
        return;
    }
    for (size_t i = 0; i < piece.result.drift_count; i++)
        note_drift(auditor, &piece.result.drifts[i]);
    background_sleep(&auditor->background, auditor->rest_us);
    auditor->rest_us = 0;
    go_on(auditor, &piece);
}

void *auditor_thread(void *engine)
{
    struct auditor auditor = {.round = 1};
    bool ready = background_init(&auditor.background, engine, "auditor", SESSION_READER);
    while (ready && !background_stops(&auditor.background))
        run_piece(&auditor);
    background_release(&auditor.background);
    return NULL;
}
