/* SPDX-License-Identifier: MIT */
/*
 * All calls about owners: heartbeats, goodbyes, probe results, and what heartbeat expiry writes. One transaction writes
 * all calls that have gathered; it locks owner rows in order of name. owners.c has the queue and the retries. The task
 * is tasks/heartbeat_expiry.c.
 */
#ifndef ENGINE_OWNERS_H
#define ENGINE_OWNERS_H

#include "base/mutex.h"
#include "core/name.h"
#include "engine/state.h"
#include "engine/task.h"
#include "store/owners.h"

struct owners {
    struct engine *engine;

    struct mutex mutex;
    pthread_cond_t woken;
    struct list calls; /* struct owner_op, in order of arrival; under the mutex */
    size_t call_count;
    atomic_size_t max_calls; /* more calls are answered too_many */
    bool expiry_soon;        /* run heartbeat expiry now, the next page of requests can end; under the mutex */
    atomic_size_t ending;    /* expire operations of heartbeat expiry that are not decided */
    atomic_bool more;        /* further requests are to be ended */
    atomic_bool progress;    /* the page has ended a request or settled a lapse */

    /* Used by the task only. */
    struct task *task;         /* its arena is cleared for each try of a transaction */
    struct store *store;       /* the task's */
    struct arena expiry_arena; /* cleared for each run of heartbeat expiry */
    mono_us next_expiry;       /* next run of heartbeat expiry */
    mono_us lapse_from;        /* no heartbeat expires before this; owners that could not send one get time to do so */
    mono_us next_deletion;     /* next deletion of owner rows */
    utc_us after_at; /* lapse time and name of the owner after which the next page of lapsed owners begins; 0: start */
    char after_name[STORED_KEY_MAX_BYTES];
    size_t after_length;
};

/* NULL: out of memory. */
struct owners *owners_new(struct engine *engine) MUST_CHECK;
/* Call it after the task has ended. Accepts NULL. */
void owners_free(struct owners *owners);
/* Wakes the task. Accepts NULL. */
void owners_wake(struct owners *owners);

/* ---- for the task ---- */

/* Call it first. */
void owners_begin(struct owners *owners, struct task *task);
/*
 * Waits for calls, or until next_expiry, and runs those that have gathered. Returns true if heartbeat expiry is to run
 * now, before next_expiry.
 */
bool owners_serve(struct owners *owners);
/* Answers all calls shutting_down. Call it last. */
void owners_refuse_calls(struct owners *owners);
/* Runs calls until they are decided; `decided` may be NULL. */
void owners_run_calls(struct owners *owners, struct owner_op **ops, size_t count);
/*
 * Records the status of a try. A failure: logs it once, and rolls back. PERMIT_OK after a failure: logs the recovery.
 */
void owners_record_status(struct owners *owners, enum permit_status status);
#endif
