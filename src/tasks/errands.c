/* SPDX-License-Identifier: MIT */
/*
 * Errands: the task that has batches settle what procedures have done to requests in SQL (docs/design.md, "Errands"). It
 * polls the table `errand` without locks, and submits an ordinary operation for each request. The permitd that won the
 * clock tick settles at once, the others what is left after a second. It also tries the operations again whose row
 * another session had locked.
 */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "engine/own_op.h"
#include "engine/state.h"
#include "tasks/tasks.h"

enum {
    PAGE = 500,
    POLL_MS = 100,            /* units are free 250 ms after the COMMIT of a shop */
    IDLE_POLL_MS = 1000,      /* while there are neither SQL accounts nor errands */
    DECIDED_WITHIN_MS = 200,  /* longest wait for the decisions of a page */
    FOLLOWER_DELAY_MS = 1000, /* a permitd that does not lead leaves errands to the leader for this time */
    REFUSED_PAUSE_MS = 50,    /* after the engine has refused an operation */
};

/* An errand that this permitd has seen, and leaves to the leader. */
struct seen {
    uint64_t request_id;
    mono_us since;
};

struct errand_poll {
    struct task *task;
    struct engine *engine;
    struct errand_position after;
    struct seen seen[PAGE]; /* in the last poll */
    size_t seen_count;
};

static void settle_decided(struct op *op, const struct decision *decision)
{
    struct own_op *settle = CONTAINER_OF(op, struct own_op, op);
    struct engine *engine = settle->context;
    (void)decision; /* what was not settled is found again */
    engine_lock(engine);
    assert(engine->settling > 0);
    if (--engine->settling == 0)
        pthread_cond_signal(&engine->errand_wake);
    engine_unlock(engine);
    free(settle);
}

/* False: the engine refuses it, or out of memory. */
static bool submit(struct engine *engine, struct bytes external_id)
{
    struct own_op *settle = own_op_new(OP_SETTLE, external_id, END_NONE, engine, settle_decided);
    if (!settle)
        return false;
    engine_lock(engine);
    engine->settling++;
    engine_unlock(engine);
    if (engine_submit(engine, &settle->op) == PERMIT_OK)
        return true;
    settle_decided(&settle->op, NULL);
    return false;
}

/* Returns since when the errand was seen in each poll. */
static mono_us seen_since(const struct errand_poll *poll, uint64_t request_id, mono_us now)
{
    for (size_t i = 0; i < poll->seen_count; i++)
        if (poll->seen[i].request_id == request_id)
            return poll->seen[i].since;
    return now;
}

/* Submits the errands of a page. False: the engine refuses them for now. */
static bool settle_page(struct errand_poll *poll, const struct errand_page *page)
{
    struct engine *engine = poll->engine;
    bool leads = task_leads(engine);
    mono_us now = clock_mono();
    struct seen seen[PAGE];
    bool taken = true;
    for (size_t i = 0; i < page->ret_count; i++) {
        const struct errand_row *row = &page->ret_rows[i];
        seen[i] = (struct seen){row->position.request_id, seen_since(poll, row->position.request_id, now)};
        bool mine = leads || now - seen[i].since >= FOLLOWER_DELAY_MS * US_PER_MS;
        if (taken && mine)
            taken = submit(engine, row->external_id);
    }
    memcpy(poll->seen, seen, page->ret_count * sizeof *seen);
    poll->seen_count = page->ret_count;
    poll->after = page->ret_count == PAGE ? page->ret_rows[PAGE - 1].position : (struct errand_position){0};
    return taken;
}

/* Polls once. Returns the time until the next poll. */
static int64_t poll_once(struct errand_poll *poll)
{
    struct task *task = poll->task;
    struct errand_page page = {.after = poll->after, .limit = PAGE};
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK)
        status = task->store->queries->errands(task->store, &page, &task->arena);
    (void)task_record_status(task, status);
    if (status != PERMIT_OK)
        return IDLE_POLL_MS * US_PER_MS;
    if (!settle_page(poll, &page))
        return REFUSED_PAUSE_MS * US_PER_MS;
    return (page.ret_count == PAGE ? 0 : page.ret_expected ? POLL_MS : IDLE_POLL_MS) * US_PER_MS;
}

/* Sleeps until the next poll; meanwhile moves the operations on whose rows are to be tried again. */
static void wait_for_poll(struct engine *engine, mono_us poll_at) REQUIRES(engine_mutex)
{
    mono_us until = clock_mono() + DECIDED_WITHIN_MS * US_PER_MS;
    for (;;) {
        mono_us now = clock_mono();
        bool any = !list_empty(&engine->queue.awaiting_row);
        mono_us retry_at = queue_retry_rows(&engine->queue, now);
        if (any && !list_empty(&engine->queue.unresolved))
            pthread_cond_signal(&engine->work);
        bool undecided = engine->settling > 0 && now < until;
        if (atomic_load(&engine->stopping) || (now >= poll_at && !undecided))
            return;
        mono_us wake_at = min_i64(retry_at, now < poll_at ? poll_at : until);
        struct timespec at = {.tv_sec = wake_at / US_PER_SECOND, .tv_nsec = wake_at % US_PER_SECOND * 1000};
        (void)engine_wait_until(engine, &engine->errand_wake, &at);
    }
}

void errands_run(struct task *task)
{
    struct errand_poll poll = {.task = task, .engine = task->engine};
    while (!task_stopping(task)) {
        mono_us began = clock_mono();
        int64_t pause_us = poll_once(&poll);
        engine_lock(poll.engine);
        wait_for_poll(poll.engine, began + pause_us);
        engine_unlock(poll.engine);
    }
}
