/* SPDX-License-Identifier: MIT */
/*
 * The cleaner: one thread that deletes what nobody needs any more, a batch at a time. Each kind of it says after a
 * batch when it wants to run again: at once while there is more, in a while if there was nothing, or if another permitd
 * is at it. Between two batches the thread sleeps as core/cleaning.h says, so that it yields to a busy database.
 */
#include "base/clock.h"
#include "engine/background.h"
#include "store/clean.h"
#include "store/templates.h"

#define ROUND_US   (3LL * US_PER_SECOND) /* when nothing was left; less than the session's wait_timeout */
#define TROUBLE_US (1LL * US_PER_SECOND) /* after a failure */
#define LOAD_US    (US_PER_SECOND / 2)   /* what others commit is counted over this time at least */
enum { FIRST_ROWS = 100, LOCKED_US = 200 * 1000 };

struct cleaner {
    struct background background;
    mono_us next_at[CLEAN_KIND_COUNT];
    utc_us from[CLEAN_KIND_COUNT];
    size_t rows; /* of the next batch */

    /* How busy the database is. */
    mono_us load_at;
    uint64_t commits;     /* of everybody, at load_at */
    uint64_t own_commits; /* since then */
    double load;          /* commits of others in a second */
};

static uint64_t retention_rows(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    uint64_t rows = engine->settings.retention_rows;
    pthread_mutex_unlock(&engine->mutex);
    return rows;
}

/* The server counts from its start: a smaller number is that of another server, or of the same one started anew. */
static enum permit_status learn_load(struct cleaner *cleaner)
{
    mono_us now = clock_mono();
    int64_t passed = now - cleaner->load_at;
    uint64_t commits = 0;
    if (passed < LOAD_US)
        return PERMIT_OK;
    enum permit_status status = clean_commits(cleaner->background.session, &commits);
    if (status != PERMIT_OK)
        return status;
    uint64_t known = cleaner->commits + cleaner->own_commits;
    if (cleaner->load_at && commits >= known)
        cleaner->load = (double)(commits - known) * (double)US_PER_SECOND / (double)passed;
    cleaner->load_at = now;
    cleaner->commits = commits;
    cleaner->own_commits = 0;
    return PERMIT_OK;
}

/* What a batch taught. Returns the pause after it. */
static int64_t learn(struct cleaner *cleaner, enum clean_kind kind, const struct clean_result *result)
{
    struct metrics *metrics = &cleaner->background.engine->metrics;
    mono_us now = clock_mono();
    cleaner->from[kind] = result->from;
    cleaner->next_at[kind] = result->deleted ? now : now + ROUND_US;
    if (!result->deleted)
        return 0;
    if (kind != CLEAN_EVENTS) { /* those are lighter, and deleted without a COMMIT */
        cleaner->own_commits++;
        cleaner->rows = cleaning_next_rows(cleaner->rows, result->took_us);
    }
    metrics_cleaned(metrics, kind == CLEAN_EVENTS ? CLEANED_EVENTS : CLEANED_REQUESTS, result->deleted,
                    result->took_us);
    return cleaning_pause_us(result->took_us, cleaner->load, result->behind);
}

/* Somebody holds one of the rows: fewer of them, a little later. All else is trouble. */
static void learn_failure(struct cleaner *cleaner, enum clean_kind kind, enum permit_status status)
{
    bool locked = status == PERMIT_LOCK_TIMEOUT || status == PERMIT_CONFLICT;
    cleaner->rows = locked ? (size_t)max_i64(CLEANING_ROWS_MIN, (int64_t)cleaner->rows / 2) : cleaner->rows;
    for (int i = 0; i < CLEAN_KIND_COUNT; i++)
        if (!locked || i == (int)kind)
            cleaner->next_at[i] = clock_mono() + (locked ? LOCKED_US : TROUBLE_US);
}

/* What templates make has a bound, which need not be exact: "about" is as old as one round. */
static enum permit_status count_semaphores(struct cleaner *cleaner)
{
    struct engine *engine = cleaner->background.engine;
    uint64_t count = 0;
    if (!atomic_exchange(&engine->count_semaphores, false))
        return PERMIT_OK;
    pthread_mutex_lock(&engine->mutex);
    uint64_t max = engine->settings.max_semaphores;
    pthread_mutex_unlock(&engine->mutex);
    enum permit_status status = templates_count_semaphores(cleaner->background.session, max, &count);
    if (status == PERMIT_OK)
        atomic_store(&engine->semaphores, count);
    else
        atomic_store(&engine->count_semaphores, true);
    return status;
}

static void run_piece(struct cleaner *cleaner, enum clean_kind kind)
{
    struct background *background = &cleaner->background;
    const struct clean_task task = {
        .kind = kind,
        .from = cleaner->from[kind],
        .rows = cleaner->rows,
        .retention_rows = retention_rows(background->engine),
    };
    struct clean_result result;
    enum permit_status status = background_begin(background);
    if (status == PERMIT_OK)
        status = learn_load(cleaner);
    if (status == PERMIT_OK)
        status = count_semaphores(cleaner);
    if (status == PERMIT_OK)
        status = clean_batch(background->session, &task, &background->arena, &result);
    background_note(background, status);
    if (status == PERMIT_OK)
        background_sleep(background, learn(cleaner, kind, &result));
    else
        learn_failure(cleaner, kind, status);
}

static enum clean_kind next_kind(const struct cleaner *cleaner)
{
    enum clean_kind next = CLEAN_DUE;
    for (int i = 1; i < CLEAN_KIND_COUNT; i++)
        if (cleaner->next_at[i] < cleaner->next_at[next])
            next = (enum clean_kind)i;
    return next;
}

void *cleaner_thread(void *engine)
{
    /* Until it knows better it takes the database for a busy one. */
    struct cleaner cleaner = {.rows = FIRST_ROWS, .load = 1e6};
    bool ready = background_init(&cleaner.background, engine, "cleaner", SESSION_WORKER);
    while (ready && !background_stops(&cleaner.background)) {
        enum clean_kind kind = next_kind(&cleaner);
        int64_t until = cleaner.next_at[kind] - clock_mono();
        if (until > 0)
            background_sleep(&cleaner.background, until);
        else
            run_piece(&cleaner, kind);
    }
    background_release(&cleaner.background);
    return NULL;
}
