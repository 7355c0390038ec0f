/* SPDX-License-Identifier: MIT */
/*
 * Feed: the task that numbers the events of batches, so that readers see them, deletes the oldest ones, and wakes the readers
 * that wait here (docs/design.md, "The feed"). The permitd that won the clock tick numbers at once, another one what has
 * no number after a second: the lock of feed_head orders them.
 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/feed.h"
#include "engine/state.h"
#include "store/feed.h"
#include "tasks/tasks.h"

enum {
    POLL_MS = 50,             /* while there are events, or readers wait here */
    ACTIVE_MS = 5000,         /* so long after the last event */
    IDLE_POLL_MS = 1000,      /* else; an event of this permitd, or a reader, ends it */
    FOLLOWER_DELAY_MS = 1000, /* a permitd that does not lead leaves events to the leader for this time */
    STEPS = 20,               /* of numbering between two polls */
    TRIM_MS = 1000,
};

struct feed_work {
    struct task *task;
    struct engine *engine;
    uint64_t head;         /* the last number that readers see, as last read */
    mono_us pending_since; /* since when events are not shown although the head is the same; 0: all are */
    mono_us event_at;      /* when there was an event without a number */
    mono_us trim_at;
    bool early; /* events go before their retention has passed; it is logged */
    bool full;
};

static void note_head(struct feed_work *work, const struct feed_head *head, mono_us asked_at)
{
    if (!head->pending || head->durable != work->head)
        work->pending_since = 0;
    if (head->pending && !work->pending_since)
        work->pending_since = asked_at;
    if (head->pending)
        work->event_at = asked_at;
    work->head = head->durable;
    atomic_store(&work->engine->feed_full_at, head->full ? asked_at : 0);
}

/* Numbers what has no number, if this permitd leads, or the leader has not done it. */
static enum permit_status number_events(struct feed_work *work)
{
    struct task *task = work->task;
    bool late = work->pending_since && clock_mono() - work->pending_since >= FOLLOWER_DELAY_MS * US_PER_MS;
    enum permit_status status = PERMIT_OK;
    size_t count = FEED_ROWS_A_STEP;
    if (!work->pending_since || !(task_leads(work->engine) || late))
        return PERMIT_OK;
    for (int step = 0; status == PERMIT_OK && count == FEED_ROWS_A_STEP && step < STEPS; step++) {
        arena_clear(&task->arena);
        status = task->store->feed->number(task->store, &task->arena, &count);
        if (status != PERMIT_OK)
            break;
        work->head += count;
        metrics_add(&work->engine->metrics.feed_numbered, count);
    }
    return status;
}

static void log_trim(struct feed_work *work, const struct feed_trim *trim)
{
    if (trim->ret_early && !work->early)
        log_write(LOG_WARN,
                  "events of the feed are deleted before feed_retention, because there are more than feed_rows", NULL);
    if (trim->ret_full && !work->full)
        log_write(LOG_ERROR, "the feed is full: no events are written until there is room", NULL);
    if (!trim->ret_full && work->full)
        log_write(LOG_WARN, "the feed has room again: events are written", NULL);
    work->early = trim->ret_early;
    work->full = trim->ret_full;
}

/* Deletes what is no longer kept. Goes on at once while there is more. */
static enum permit_status delete_oldest(struct feed_work *work)
{
    struct task *task = work->task;
    mono_us now = clock_mono();
    if (now < work->trim_at || !task_leads(work->engine))
        return PERMIT_OK;
    const struct engine_settings settings = engine_settings_now(work->engine);
    struct feed_trim trim = {.limits = {settings.feed_retention_ms * US_PER_MS, settings.feed_rows}};
    enum permit_status status = task->store->feed->trim(task->store, &trim);
    work->trim_at = now + TRIM_MS * US_PER_MS;
    if (status != PERMIT_OK)
        return status;
    log_trim(work, &trim);
    struct metrics *metrics = &work->engine->metrics;
    metrics_add(&metrics->feed_deleted[trim.ret_early], trim.ret_deleted);
    atomic_store(&metrics->feed_stored, trim.ret_stored);
    atomic_store(&metrics->feed_full, trim.ret_full);
    if (trim.ret_deleted == FEED_DELETED)
        work->trim_at = now;
    return PERMIT_OK;
}

static void run_once(struct feed_work *work)
{
    struct task *task = work->task;
    struct feed_head head = {0};
    mono_us asked_at = clock_mono();
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK)
        status = task->store->feed->head(task->store, &head);
    if (status == PERMIT_OK) {
        note_head(work, &head, asked_at);
        status = number_events(work);
    }
    if (status == PERMIT_OK)
        status = delete_oldest(work);
    (void)task_record_status(task, status);
    feed_wait_wake(work->engine, work->head);
}

static void sleep_until_next(struct feed_work *work, mono_us began_at)
{
    struct engine *engine = work->engine;
    engine_lock(engine);
    bool active = work->event_at && clock_mono() - work->event_at < ACTIVE_MS * US_PER_MS;
    bool idle = !active && list_empty(&engine->feed_waits);
    mono_us until = began_at + (idle ? IDLE_POLL_MS : POLL_MS) * US_PER_MS;
    struct timespec at = {.tv_sec = until / US_PER_SECOND, .tv_nsec = until % US_PER_SECOND * 1000};
    engine->feed_idle = idle;
    if (!atomic_load(&engine->stopping) && clock_mono() < until)
        (void)engine_wait_until(engine, &engine->feed_wake, &at);
    engine->feed_idle = false;
    engine_unlock(engine);
}

void feed_run(struct task *task)
{
    struct feed_work work = {.task = task, .engine = task->engine};
    while (!task_stopping(task)) {
        mono_us began_at = clock_mono();
        run_once(&work);
        sleep_until_next(&work, began_at);
    }
    feed_close(work.engine);
    feed_wait_wake(work.engine, work.head);
}
