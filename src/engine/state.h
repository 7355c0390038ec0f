/* SPDX-License-Identifier: MIT */
/*
 * The state that the tasks of one engine share. One mutex guards the queue and the queries; no task holds it during a
 * database call. engine_mutex is its name in annotations (base/mutex.h).
 */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include "core/webhook.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/queue.h"

/* The pending queries of one reader; under the engine's mutex. */
struct lane {
    struct turns queries; /* struct query */
    pthread_cond_t wake;  /* a query is pending, or the engine stops */
};

/*
 * The back-off of a key whose expire operation was not done, because another session had locked its row. Keys
 * share the places of a table by their hashes: the later one takes the place, and the earlier one is tried again sooner.
 */
struct expiry_pause {
    uint64_t key_hash;
    int64_t pause_us;
    mono_us until; /* 0: the place is free */
};
enum { EXPIRY_PAUSES = 256 };

struct engine {
    struct engine_settings settings;
    struct metrics metrics;
    atomic_bool stopping;
    atomic_uint server_generation; /* rises with each failover; each task then drops its session (task_connect) */
    _Atomic mono_us tick_won_at;   /* when this process last won a clock tick */
    atomic_bool refusing;          /* `refusal` is not "" */

    atomic_uint_least64_t server_id;  /* engine_server_id; written by the task `server membership` only */
    atomic_uint_least64_t semaphores; /* approximate: the last count by retention, plus those created since */
    atomic_uint_least64_t slots;      /* the same of slots */

    _Atomic mono_us feed_full_at; /* when it was last read that the feed is full; 0: it was not */

    atomic_bool recount_slots;      /* retention counts the slots again, because a semaphore has grown */
    atomic_bool recount_semaphores; /* retention counts the semaphores again, because a template has created one */

    struct mutex mutex;
    pthread_cond_t work;        /* a batch may be taken */
    pthread_cond_t expiry_wake; /* an earlier deadline is known, or expire operations are decided */
    pthread_cond_t poll_wake;   /* the wait poll must run before next_poll_at */
    pthread_cond_t feed_wake;   /* a batch has written events, or a reader waits for some */
    pthread_cond_t errand_wake; /* an op awaits its row, or errands are settled */
    char refusal[STORE_MESSAGE_SIZE] GUARDED_BY(
        engine_mutex); /* P14: the finding of the last safety check; "": the database is safe */
    struct queue queue GUARDED_BY(engine_mutex);
    struct lane lanes[QUERY_LANE_COUNT] GUARDED_BY(engine_mutex);
    unsigned idle_workers GUARDED_BY(engine_mutex);
    mono_us next_poll_at
        GUARDED_BY(engine_mutex); /* the wait poll sleeps until then; NEVER: nothing waits; 0: it is awake */
    utc_us next_expiry_at GUARDED_BY(engine_mutex);  /* lease clock: the earliest deadline known to the expiry task */
    unsigned expiring GUARDED_BY(engine_mutex);      /* expire operations of the expiry task that are not decided */
    bool feed_idle GUARDED_BY(engine_mutex);         /* the task feed sleeps until feed_wake, for a second at most */
    struct list feed_waits GUARDED_BY(engine_mutex); /* struct feed_wait (feed.h) */
    size_t feed_wait_count GUARDED_BY(engine_mutex);
    bool feed_closed GUARDED_BY(engine_mutex); /* nothing may wait any more */
    struct webhook_policy webhook_policy GUARDED_BY(engine_mutex);
    char webhook_ids[WEBHOOKS_MAX][WEBHOOK_ID_SIZE] GUARDED_BY(engine_mutex); /* of the URLs that there are */
    size_t webhook_count GUARDED_BY(engine_mutex);
    unsigned settling GUARDED_BY(engine_mutex); /* settle operations that are not decided */
    struct expiry_pause expiry_pauses[EXPIRY_PAUSES] GUARDED_BY(engine_mutex);
    struct own_clock own_clock GUARDED_BY(engine_mutex);
    struct served_clock served_clock GUARDED_BY(engine_mutex);
    utc_us grants_from GUARDED_BY(engine_mutex); /* read with served_clock */
    struct id_range ids GUARDED_BY(
        engine_mutex); /* for new rows; taken under the locks, so the later of two waiters has the larger id */
    uint64_t ids_epoch GUARDED_BY(engine_mutex); /* epoch in which they were reserved */
    bool resolving
        GUARDED_BY(engine_mutex); /* a worker resolves; one at a time, so that operations on one key stay in order */

    struct audit_drift drifts[DRIFTS_MAX]; /* written by the audit task only */
    size_t drift_count;

    struct owners *owners;     /* owners.h; has its own mutex */
    struct liveness *liveness; /* liveness.h; has its own mutex */

    struct task *tasks; /* running; task.h */
    size_t task_count;
};

/* The settings of a plan, as they are now. */
struct plan_settings engine_plan_settings(struct engine *engine) EXCLUDES(engine_mutex);

/* ---- deciding ---- */

/* Decides an op that did not reach a plan, and removes it from the order of its key. */
void decide_status(struct engine *engine, struct op *op, enum permit_status status, const char *detail)
    EXCLUDES(engine_mutex);
/* Counts the decision and calls `decided`. Call queue_forget_key first. */
void decide(struct engine *engine, struct op *op, struct decision *decision) EXCLUDES(engine_mutex);

/* Returns a random time from half to one and a half times `ms`, so that clients do not retry at the same time. */
int64_t jittered_ms(int64_t ms);

static inline void engine_lock(struct engine *engine) ACQUIRES(engine_mutex)
{
    mutex_lock(&engine->mutex);
}

static inline void engine_unlock(struct engine *engine) RELEASES(engine_mutex)
{
    mutex_unlock(&engine->mutex);
}

/* Waits for the signal, as mutex_wait does. */
static inline void engine_wait(struct engine *engine, pthread_cond_t *signal) REQUIRES(engine_mutex)
{
    pthread_cond_wait(signal, &engine->mutex.native);
}

/* Waits as mutex_wait_until does. */
static inline int engine_wait_until(struct engine *engine, pthread_cond_t *signal, const struct timespec *until)
    REQUIRES(engine_mutex)
{
    return pthread_cond_timedwait(signal, &engine->mutex.native, until);
}
#endif
