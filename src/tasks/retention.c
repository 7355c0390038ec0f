/* SPDX-License-Identifier: MIT */
/*
 * Retention: the task that deletes rows that are no longer kept, in batches. Requests are deleted along a walk through
 * all of them (retention_walk). Events are deleted again immediately while batches find some, else after IDLE_PAUSE_US.
 * If another server has the named lock, a kind of rows runs again after IDLE_PAUSE_US too. Between two batches the task
 * sleeps as core/retention.h computes, so that it yields to a busy database.
 */
#include "base/clock.h"
#include "engine/state.h"
#include "store/retention_batch.h"
#include "store/templates.h"
#include "tasks/tasks.h"

#define SLOT_COUNT_SOON_US (10LL * US_PER_SECOND)  /* between two counts of the slots while semaphores grow */
#define SLOT_COUNT_LATE_US (600LL * US_PER_SECOND) /* else */
#define IDLE_PAUSE_US      (3LL * US_PER_SECOND) /* pause when nothing is left; less than the session's wait_timeout */
#define FAILURE_PAUSE_US   (1LL * US_PER_SECOND) /* pause after a failure */
#define LOAD_WINDOW_US     (US_PER_SECOND / 2)   /* minimum time over which the commits of others are counted */
enum { FIRST_ROWS = 100, LOCKED_PAUSE_US = 200 * 1000 };

struct retention {
    struct task *task;
    mono_us next_at[RETENTION_KIND_COUNT];
    struct retention_walk requests;
    size_t rows; /* of the next batch */

    /* The load of the database. */
    mono_us load_at;      /* when it was measured; 0: never */
    uint64_t commits;     /* of all sessions, at load_at */
    uint64_t own_commits; /* of this task since load_at */
    double load;          /* commits of others per second */

    mono_us slots_counted_at;    /* 0: never */
    uint64_t semaphores_counted; /* number of the session that has counted them */
};

static uint64_t retention_rows(struct engine *engine)
{
    engine_lock(engine);
    uint64_t rows = engine->settings.retention_rows;
    engine_unlock(engine);
    return rows;
}

/*
 * Measures the load. The server counts commits since its start: a smaller number means another or a restarted server.
 */
static enum permit_status measure_load(struct retention *walk)
{
    mono_us now = clock_mono();
    int64_t passed = now - walk->load_at;
    uint64_t commits = 0;
    if (passed < LOAD_WINDOW_US)
        return PERMIT_OK;
    enum permit_status status = walk->task->store->retention->commits(walk->task->store, &commits);
    if (status != PERMIT_OK)
        return status;
    uint64_t known = walk->commits + walk->own_commits;
    if (walk->load_at && commits >= known)
        walk->load = (double)(commits - known) * (double)US_PER_SECOND / (double)passed;
    walk->load_at = now;
    walk->commits = commits;
    walk->own_commits = 0;
    return PERMIT_OK;
}

/* Returns the time from this batch of the kind to its next. Moves the walk on. */
static int64_t next_after(struct retention *walk, const struct retention_task *work,
                          const struct retention_result *result)
{
    if (result->has_lock && work->kind == RETENTION_REQUESTS)
        return retention_walk_on(&walk->requests, &result->page, result->deleted, work->retention_rows);
    return result->deleted ? 0 : IDLE_PAUSE_US;
}

/* Schedules the kind after a batch, and adapts the number of rows. Returns the pause of all kinds in us. */
static int64_t schedule_next(struct retention *walk, const struct retention_task *work,
                             const struct retention_result *result)
{
    struct metrics *metrics = &walk->task->engine->metrics;
    bool events = work->kind == RETENTION_EVENTS;
    walk->next_at[work->kind] = clock_mono() + next_after(walk, work, result);
    if (!result->deleted)
        return 0;
    if (!events) { /* events are smaller, and deleted without a COMMIT */
        walk->own_commits++;
        walk->rows = retention_next_rows(walk->rows, result->took_us);
    }
    metrics_cleaned(metrics, events ? CLEANED_EVENTS : CLEANED_REQUESTS, result->deleted, result->took_us);
    return retention_pause_us(result->took_us, walk->load, result->behind);
}

/* Schedules the kind after a failure. A locked row: half as many rows, after LOCKED_PAUSE_US. Else all kinds pause. */
static void schedule_retry(struct retention *walk, enum retention_kind kind, enum permit_status status)
{
    bool locked = status == PERMIT_LOCK_TIMEOUT || status == PERMIT_CONFLICT;
    walk->rows = locked ? (size_t)max_i64(RETENTION_ROWS_MIN, (int64_t)walk->rows / 2) : walk->rows;
    for (int i = 0; i < RETENTION_KIND_COUNT; i++)
        if (!locked || i == (int)kind)
            walk->next_at[i] = clock_mono() + (locked ? LOCKED_PAUSE_US : FAILURE_PAUSE_US);
}

/*
 * Counts the semaphores for max_semaphores, in each new session, because a failover may have lost some, and if a template
 * has created one. The limit is approximate.
 */
static enum permit_status recount_semaphores(struct retention *walk)
{
    struct engine *engine = walk->task->engine;
    struct store *store = walk->task->store;
    uint64_t count = 0;
    if (!atomic_exchange(&engine->recount_semaphores, false) && walk->semaphores_counted == store->sessions)
        return PERMIT_OK;
    walk->semaphores_counted = store->sessions;
    engine_lock(engine);
    uint64_t max = engine->settings.max_semaphores;
    engine_unlock(engine);
    enum permit_status status = store->templates->count_semaphores(store, max, &count);
    if (status == PERMIT_OK)
        atomic_store(&engine->semaphores, count);
    else
        atomic_store(&engine->recount_semaphores, true);
    return status;
}

/*
 * Counts the slots for max_slots: soon after a semaphore has grown here, and now and then because it may have grown at
 * another permitd. The limit is approximate: slots that are committed but not recorded yet count twice until the next
 * count. A count that fails, as with very many semaphores, does not hold up retention.
 */
static void recount_slots(struct retention *walk)
{
    struct engine *engine = walk->task->engine;
    mono_us passed = clock_mono() - walk->slots_counted_at;
    uint64_t count = 0;
    bool due = atomic_load(&engine->recount_slots) ? passed >= SLOT_COUNT_SOON_US : passed >= SLOT_COUNT_LATE_US;
    if (walk->slots_counted_at && !due)
        return;
    atomic_store(&engine->recount_slots, false);
    walk->slots_counted_at = clock_mono();
    uint64_t before = atomic_load(&engine->slots);
    /* A count during which slots were recorded may miss them: it is taken again. */
    if (walk->task->store->templates->count_slots(walk->task->store, &count) != PERMIT_OK ||
        !atomic_compare_exchange_strong(&engine->slots, &before, count))
        atomic_store(&engine->recount_slots, true);
}

static void run_batch(struct retention *walk, enum retention_kind kind)
{
    struct task *task = walk->task;
    const struct retention_task work = {
        .kind = kind,
        .from = walk->requests.from,
        .rows = walk->rows,
        .retention_rows = retention_rows(task->engine),
    };
    struct retention_result result;
    arena_clear(&task->arena);
    enum permit_status status = task_connect(task);
    if (status == PERMIT_OK)
        status = measure_load(walk);
    if (status == PERMIT_OK)
        status = recount_semaphores(walk);
    if (status == PERMIT_OK)
        recount_slots(walk);
    if (status == PERMIT_OK)
        status = task->store->retention->batch(task->store, &work, &task->arena, &result);
    (void)task_record_status(task, status);
    if (status == PERMIT_OK)
        task_sleep(task, schedule_next(walk, &work, &result));
    else
        schedule_retry(walk, kind, status);
}

static enum retention_kind next_kind(const struct retention *walk)
{
    enum retention_kind next = RETENTION_REQUESTS;
    for (int i = 1; i < RETENTION_KIND_COUNT; i++)
        if (walk->next_at[i] < walk->next_at[next])
            next = (enum retention_kind)i;
    return next;
}

void retention_run(struct task *task)
{
    /* It assumes a busy database until the load is measured. */
    struct retention walk = {.task = task, .rows = FIRST_ROWS, .load = 1e6};
    while (!task_stopping(task)) {
        enum retention_kind kind = next_kind(&walk);
        int64_t until = walk.next_at[kind] - clock_mono();
        if (until > 0)
            task_sleep(task, until);
        else
            run_batch(&walk, kind);
    }
}
