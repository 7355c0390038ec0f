/* SPDX-License-Identifier: MIT */
/* What the threads of one engine share. One mutex guards the queue and the looks; nobody holds it during a database
 * call. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include <pthread.h>

#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/queue.h"

/* Look-ups that wait for one reader; under the engine's mutex. */
struct lane {
    struct engine *engine;
    enum session_use use;
    const char *who;   /* for the log */
    struct list looks; /* struct look, in order of arrival */
    size_t look_count;
    pthread_cond_t wake; /* there is something to do */
};

struct engine {
    struct engine_settings settings;
    struct metrics metrics;
    atomic_bool stopping;
    atomic_uint servers;         /* rises when the server turns out to be another one: all sessions are dropped */
    _Atomic mono_us tick_won_at; /* when this process last moved served time on */
    atomic_bool refusing;        /* refusal is not "": nothing that asserts a state is answered */
    atomic_bool readers_may_end; /* nobody will ask them for anything any more */

    atomic_uint_least64_t
        semaphores;           /* how many there are, about: as the cleaner has counted, and what was made since */
    atomic_size_t named_size; /* of the slots that undecided operations name */

    atomic_bool count_semaphores; /* some may have come: the cleaner is to count */

    pthread_mutex_t mutex;
    pthread_cond_t work;              /* an operation may be taken */
    pthread_cond_t sweep;             /* the sweeper has a reason to look */
    pthread_cond_t watch;             /* the watcher has a reason to look before watch_at */
    char refusal[STORE_MESSAGE_SIZE]; /* P14: why the database is not safe, as the keeper found it; "": it is */
    struct queue queue;
    struct lane lanes[LOOK_LANE_COUNT];
    struct list refusals; /* struct refusal: a no_capacity that wants to know who holds; for the reader of LOOK_ROW */
    unsigned idle_workers;
    mono_us watch_at;  /* the watcher sleeps until then; NEVER: nobody waits */
    utc_us sweep_at;   /* served time: the earliest deadline that the sweeper knows of */
    unsigned sweeping; /* expire operations of the sweeper that are not decided yet */
    bool resolving;    /* a worker does step 0: one at a time, so that operations on one key stay in order */

    struct audit_drift drifts[DRIFTS_MAX]; /* written by the auditor alone */
    size_t drift_count;

    struct owners *owners;     /* owners.h; has a mutex of its own */
    struct liveness *liveness; /* liveness.h; has a mutex of its own */

    pthread_t *threads;
    size_t thread_count;
};

/* The bodies of the threads; each takes its engine, a reader its lane. */
void *worker_thread(void *engine);
void *reader_thread(void *lane);
void *keeper_thread(void *engine);
void *sweeper_thread(void *engine);
void *watcher_thread(void *engine);
void *cleaner_thread(void *engine);
void *auditor_thread(void *engine);
void *owners_thread(void *engine);
void *liveness_thread(void *engine);

/* For a thread that begins; tries until there is memory. NULL: the engine stops meanwhile. `who`: for the log. */
struct store *engine_open_store(const struct engine *engine, const char *who);
struct session *engine_open_session(const struct engine *engine, enum session_use use, const char *who);

/* Tells the sweeper of a deadline, in served time. Mutex held. */
void sweeper_notice(struct engine *engine, utc_us due_at);

/* ---- deciding ---- */

/* Tells an op that it never came to a plan. The op is the caller's business no more. Mutex not held. */
void decide_status(struct engine *engine, struct op *op, enum permit_status status, const char *detail);
/* Hands a finished decision over, counted. The queue has forgotten the op's key (queue_forget_key). */
void decide(struct engine *engine, struct op *op, struct decision *decision);

/* Who waits for a semaphore before somebody who was refused; counted up to a bound. */
enum { AHEAD_KEYS_MAX = 3, AHEAD_KEY_SIZE = 256 };
struct ahead {
    size_t count;
    size_t key_count;
    struct bytes keys[AHEAD_KEYS_MAX]; /* external_ids of the first of them, in `text` */
    char text[AHEAD_KEYS_MAX][AHEAD_KEY_SIZE];
};

/* A no_capacity on its way through the reader: what the plan's memory held is copied. */
struct refusal {
    struct list node;
    struct op *op;
    struct served_clock clock;
    utc_us now;
    int64_t retry_after_ms;
    struct ahead *aheads; /* one per shortage; NULL: nobody waits, or no memory */
    size_t count;
    struct shortage shortages[]; /* names point into the op's operation; the slots that are taken follow, with texts */
};

/* How old a list of holders may be in a refusal. */
#define HOLDERS_FRESH_US (1LL * US_PER_SECOND)

/*
 * Decides the refusal with these holders (one per shortage, NULL where none are known), which it unreferences
 * afterwards, and frees it.
 */
void decide_refusal(struct engine *engine, struct refusal *refusal, struct holders **holders);

/* About `ms`, between half and one and a half of it, so that clients do not come back together. */
int64_t jittered_ms(int64_t ms);
#endif
