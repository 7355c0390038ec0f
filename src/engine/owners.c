/* SPDX-License-Identifier: MIT */
#include "engine/owners.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/worker.h"

enum {
    ARENA_CHUNK = 64 * 1024,
    ARENA_LIMIT = 16 * 1024 * 1024,
    TRIES_TOGETHER = 3, /* of a transaction, before its calls run one by one */
    TRIES_ALONE = 10,
    LOSSES_TOGETHER = 2, /* lost connections, before the calls run one by one */
    LONG_TRY_MS = 3000,  /* a try that lost the connection after so long counts as all of them */
};

/* After a start and after trouble with the database nobody is judged for so long. */
#define PATIENCE_US (1LL * US_PER_SECOND)

/* The calls of one transaction, sorted by name; per name in order of arrival. */
struct owner_run {
    struct owner_op **ops;
    size_t count;
    bool part;                  /* of a transaction that failed: it waits for no row, because many rows may be locked */
    struct owner_image *images; /* one per distinct name, ascending */
    size_t image_count;
    struct owner_outcome *outcomes; /* one per op */
    struct query_time time;
};

/* ---- life ---- */

struct owners *owners_new(struct engine *engine)
{
    struct owners *owners = calloc(1, sizeof *owners);
    if (!owners)
        return NULL;
    owners->engine = engine;
    atomic_init(&owners->max_calls, engine->settings.max_pending);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&owners->mutex, NULL);
    pthread_cond_init(&owners->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&owners->calls);
    arena_init(&owners->arena, ARENA_CHUNK, ARENA_LIMIT);
    arena_init(&owners->look_arena, ARENA_CHUNK, ARENA_LIMIT);
    return owners;
}

void owners_free(struct owners *owners)
{
    if (!owners)
        return;
    arena_release(&owners->look_arena);
    arena_release(&owners->arena);
    pthread_cond_destroy(&owners->woken);
    pthread_mutex_destroy(&owners->mutex);
    free(owners);
}

void owners_wake(struct owners *owners)
{
    if (!owners)
        return;
    pthread_mutex_lock(&owners->mutex);
    pthread_cond_signal(&owners->woken);
    pthread_mutex_unlock(&owners->mutex);
}

enum permit_status engine_submit_owner(struct engine *engine, struct owner_op *op)
{
    struct owners *owners = engine->owners;
    enum permit_status status = PERMIT_OK;
    pthread_mutex_lock(&owners->mutex);
    if (atomic_load(&engine->stopping)) {
        status = PERMIT_SHUTTING_DOWN;
    } else if (atomic_load(&engine->refusing)) {
        status = PERMIT_DATABASE_UNAVAILABLE;
    } else if (owners->call_count >= atomic_load(&owners->max_calls)) {
        status = PERMIT_TOO_MANY;
    } else {
        owners->call_count++;
        list_append(&owners->calls, &op->node);
        pthread_cond_signal(&owners->woken);
    }
    pthread_mutex_unlock(&owners->mutex);
    return status;
}

/* ---- answers ---- */

static void tell(struct owners *owners, struct owner_op *op, struct owner_decision *decision)
{
    metrics_count(&owners->engine->metrics.owner_calls[op->call.kind][decision->status]);
    if (permit_status_retry(decision->status) != PERMIT_RETRY_NEVER)
        decision->retry_after_ms = jittered_ms(1000);
    if (op->decided)
        op->decided(op, decision);
}

/* Without a decision. Who was ever in a packet with COMMIT is told that we do not know. */
static void give_up_call(struct owners *owners, struct owner_op *op, enum permit_status status)
{
    if (stage_is_sent(&op->stage))
        status = PERMIT_OUTCOME_UNKNOWN;
    else if (status == PERMIT_DATABASE_LOST || status == PERMIT_DATABASE_FULL)
        status = PERMIT_DATABASE_UNAVAILABLE;
    else if (status == PERMIT_CONFLICT || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_NO_MEMORY)
        status = PERMIT_BUSY;
    tell(owners, op, &(struct owner_decision){.status = status});
}

static void give_up_calls(struct owners *owners, struct owner_run *run, enum permit_status status)
{
    for (size_t i = 0; i < run->count; i++)
        give_up_call(owners, run->ops[i], status);
    run->count = 0;
}

static void drop_late_calls(struct owners *owners, struct owner_run *run, enum permit_status status)
{
    bool stopping = atomic_load(&owners->engine->stopping);
    mono_us now = clock_mono();
    size_t kept = 0;
    for (size_t i = 0; i < run->count; i++) {
        struct owner_op *op = run->ops[i];
        if (stopping || op->deadline <= now || stage_is_answered(&op->stage))
            give_up_call(owners, op, stopping ? PERMIT_SHUTTING_DOWN : status);
        else
            run->ops[kept++] = op;
    }
    run->count = kept;
}

/* After COMMIT. */
static void tell_all(struct owners *owners, const struct owner_run *run)
{
    for (size_t i = 0; i < run->count; i++) {
        struct owner_decision decision = {
            .status = run->outcomes[i].status,
            .outcome = &run->outcomes[i],
            .clock = &run->time.clock,
            .now = run->time.now,
        };
        tell(owners, run->ops[i], &decision);
    }
}

/* ---- one try ---- */

static int compare_ops(const void *a, const void *b)
{
    const struct owner_op *left = *(struct owner_op *const *)a;
    const struct owner_op *right = *(struct owner_op *const *)b;
    int order = bytes_compare(left->call.name, right->call.name);
    return order ? order : (left->place > right->place) - (left->place < right->place);
}

static bool starts_name(const struct owner_run *run, size_t i)
{
    return i == 0 || !bytes_equal(run->ops[i - 1]->call.name, run->ops[i]->call.name);
}

static enum permit_status lock_images(struct owners *owners, struct owner_run *run)
{
    bool waits = !run->part;
    struct bytes *names = arena_array(&owners->arena, run->count, sizeof *names);
    run->images = arena_array(&owners->arena, run->count, sizeof *run->images);
    run->outcomes = arena_array(&owners->arena, run->count, sizeof *run->outcomes);
    if (!names || !run->images || !run->outcomes)
        return PERMIT_NO_MEMORY;
    run->image_count = 0;
    for (size_t i = 0; i < run->count; i++)
        if (starts_name(run, i))
            names[run->image_count++] = run->ops[i]->call.name;
    return (waits ? owners_lock : owners_lock_now)(owners->session, names, run->image_count, &owners->arena,
                                                   run->images, &run->time);
}

/* Only a heartbeat asks what is held. */
static bool any_beat(const struct owner_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (run->ops[i]->call.kind == OWNER_BEAT)
            return true;
    return false;
}

/* True if something is to be written. */
static bool decide_calls(struct owner_run *run)
{
    utc_us now = served_time(&run->time.clock, run->time.now);
    struct owner_image *image = run->images;
    bool changed = false;
    for (size_t i = 0; i < run->count; i++) {
        image += i > 0 && starts_name(run, i);
        owner_decide(&run->ops[i]->call, now, image, &run->outcomes[i]);
    }
    for (size_t i = 0; i < run->image_count; i++)
        changed |= run->images[i].changed;
    return changed;
}

enum permit_status owners_connect(struct owners *owners)
{
    unsigned servers = atomic_load(&owners->engine->servers);
    if (servers != owners->servers)
        session_drop(owners->session);
    owners->servers = servers;
    return session_connect(owners->session);
}

static enum permit_status try_calls(struct owners *owners, struct owner_run *run)
{
    arena_clear(&owners->arena);
    enum permit_status status = owners_connect(owners);
    if (status == PERMIT_OK)
        status = lock_images(owners, run);
    if (status == PERMIT_OK && any_beat(run))
        status = owners_read_holding(owners->session, run->images, run->image_count);
    if (status != PERMIT_OK)
        return status;
    if (!decide_calls(run)) {
        owners_rollback(owners->session);
        return PERMIT_OK;
    }
    for (size_t i = 0; i < run->count; i++)
        if (!stage_send(&run->ops[i]->stage))
            return PERMIT_CONFLICT; /* its client was answered: the next try drops it */
    return owners_write(owners->session, run->images, run->image_count);
}

/* ---- a transaction until it is decided ---- */

void owners_note(struct owners *owners, enum permit_status status)
{
    bool serious = status == PERMIT_INTERNAL || status == PERMIT_NO_MEMORY;
    bool trouble = status != PERMIT_OK && status != PERMIT_CONFLICT && status != PERMIT_LOCK_TIMEOUT;
    if (trouble && (serious || !owners->in_trouble))
        log_write(serious ? LOG_ERROR : LOG_WARN, "owner task failed", "status", permit_status_word(status), "error",
                  session_message(owners->session), NULL);
    if (status == PERMIT_OK && owners->in_trouble) {
        log_write(LOG_INFO, "owner task recovered", NULL);
        owners->lapse_from = clock_mono() + PATIENCE_US;
    }
    owners->in_trouble = trouble;
    if (status == PERMIT_DATABASE_UNAVAILABLE)
        session_drop(owners->session);
    else if (status != PERMIT_OK)
        owners_rollback(owners->session);
}

/*
 * Somebody keeps the row of this call: it goes behind all others, which do not wait for it. What permitd itself wanted
 * is found again.
 */
static void postpone_call(struct owners *owners, struct owner_op *op)
{
    if (!op->decided) {
        give_up_call(owners, op, PERMIT_LOCK_TIMEOUT);
        return;
    }
    pthread_mutex_lock(&owners->mutex);
    owners->call_count++;
    list_append(&owners->calls, &op->node);
    pthread_mutex_unlock(&owners->mutex);
}

static bool run_calls(struct owners *owners, struct owner_op **ops, size_t count, bool part);

/* Only the guilty one fails, and only those wait that want the row that somebody keeps. */
static void run_one_by_one(struct owners *owners, const struct owner_run *run)
{
    bool kept = false;
    for (size_t i = 0; i < run->count; i++) {
        kept = kept && !starts_name(run, i); /* the one before was postponed, and so is there to be looked at */
        if (kept)
            postpone_call(owners, run->ops[i]);
        else
            kept = !run_calls(owners, &run->ops[i], 1, true);
    }
}

enum next_step { TRY_AGAIN, ONE_BY_ONE, POSTPONE, GIVE_UP };

/*
 * As in worker.c, but that a single call neither waits for a row for ever, nor loses the connection again and again
 * while all others stand behind it.
 */
static enum next_step after_failure(enum permit_status status, const struct owner_run *run, unsigned tries,
                                    unsigned losses)
{
    bool alone = run->count == 1;
    switch (status) {
    case PERMIT_DATABASE_LOST:
        if (losses < LOSSES_TOGETHER)
            return TRY_AGAIN;
        return !alone ? ONE_BY_ONE : run->part ? GIVE_UP : TRY_AGAIN;
    case PERMIT_DATABASE_UNAVAILABLE: return TRY_AGAIN; /* until the deadlines */
    case PERMIT_LOCK_TIMEOUT: return alone ? POSTPONE : ONE_BY_ONE;
    case PERMIT_CONFLICT:
        if (tries < (alone ? TRIES_ALONE : TRIES_TOGETHER))
            return TRY_AGAIN;
        return alone ? GIVE_UP : ONE_BY_ONE;
    default: return alone ? GIVE_UP : ONE_BY_ONE;
    }
}

/* Until all of them are decided. False: the only one was postponed. The calls are sorted. */
static bool run_calls(struct owners *owners, struct owner_op **ops, size_t count, bool part)
{
    struct owner_run run = {.ops = ops, .count = count, .part = part};
    enum permit_status status = PERMIT_BUSY;
    unsigned losses = 0;
    for (unsigned tries = 1; run.count; tries++) {
        drop_late_calls(owners, &run, status);
        if (run.count == 0)
            break;
        mono_us began = clock_mono();
        status = try_calls(owners, &run);
        if (status == PERMIT_DATABASE_LOST)
            losses += clock_mono() - began < LONG_TRY_MS * US_PER_MS ? 1 : LOSSES_TOGETHER;
        owners_note(owners, status);
        if (status == PERMIT_OK) {
            tell_all(owners, &run);
            break;
        }
        switch (after_failure(status, &run, tries, losses)) {
        case TRY_AGAIN: pause_before_retry(status, tries); break;
        case ONE_BY_ONE: run_one_by_one(owners, &run); return true;
        case POSTPONE: postpone_call(owners, run.ops[0]); return false;
        case GIVE_UP: give_up_calls(owners, &run, status); break;
        }
    }
    return true;
}

void owners_run(struct owners *owners, struct owner_op **ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ops[i]->place = i;
    qsort(ops, count, sizeof *ops, compare_ops);
    (void)run_calls(owners, ops, count, false);
}

/* ---- the thread ---- */

/* Waits until there is something to do. Mutex held. */
static void wait_for_calls(struct owners *owners)
{
    struct timespec until = {.tv_sec = owners->next_look / US_PER_SECOND,
                             .tv_nsec = owners->next_look % US_PER_SECOND * 1000};
    while (list_empty(&owners->calls) && !owners->look_soon && !atomic_load(&owners->engine->stopping))
        if (pthread_cond_timedwait(&owners->woken, &owners->mutex, &until) == ETIMEDOUT)
            return;
}

/* Mutex held. */
static size_t take_calls(struct owners *owners, struct owner_op **ret_ops)
{
    size_t count = 0;
    while (count < OWNERS_MAX && !list_empty(&owners->calls)) {
        struct list *node = owners->calls.next;
        list_remove(node);
        ret_ops[count++] = LIST_ENTRY(node, struct owner_op, node);
    }
    owners->call_count -= count;
    return count;
}

/* Calls first: a heartbeat that is there already comes before the lapse that it prevents. Mutex held, let go. */
static void owners_work(struct owners *owners)
{
    struct owner_op *ops[OWNERS_MAX];
    wait_for_calls(owners);
    size_t count = take_calls(owners, ops);
    bool soon = owners->look_soon;
    owners->look_soon = false;
    pthread_mutex_unlock(&owners->mutex);
    if (count)
        owners_run(owners, ops, count);
    bool useless = atomic_load(&owners->engine->stopping) || atomic_load(&owners->engine->refusing);
    if (useless)
        owners->next_look = clock_mono() + US_PER_SECOND;
    if (!useless && (soon || clock_mono() >= owners->next_look))
        owners_look(owners);
    pthread_mutex_lock(&owners->mutex);
}

static void refuse_calls(struct owners *owners)
{
    struct owner_op *ops[OWNERS_MAX];
    size_t count;
    do {
        pthread_mutex_lock(&owners->mutex);
        count = take_calls(owners, ops);
        pthread_mutex_unlock(&owners->mutex);
        for (size_t i = 0; i < count; i++)
            give_up_call(owners, ops[i], PERMIT_SHUTTING_DOWN);
    } while (count);
}

void *owners_thread(void *context)
{
    struct engine *engine = context;
    struct owners *owners = engine->owners;
    session_thread_begin();
    owners->session = engine_open_session(engine, SESSION_WORKER, "owners");
    owners->lapse_from = clock_mono() + PATIENCE_US;
    pthread_mutex_lock(&owners->mutex);
    while (owners->session && !atomic_load(&engine->stopping))
        owners_work(owners);
    pthread_mutex_unlock(&owners->mutex);
    refuse_calls(owners);
    session_free(owners->session);
    session_thread_end();
    return NULL;
}
