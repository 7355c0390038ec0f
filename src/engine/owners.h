/* SPDX-License-Identifier: MIT */
/*
 * One thread with a session of its own for all calls about owners: heartbeats, goodbyes, and what permitd itself finds
 * out. Those that have gathered are written in one transaction, rows locked in order of name. owners.c has the queue,
 * the thread and the tries of a transaction; lapse.c what is done about every second: whose heartbeat is over, what
 * ends with it, whose rows are not needed any more.
 */
#ifndef ENGINE_OWNERS_H
#define ENGINE_OWNERS_H

#include "core/name.h"
#include "engine/state.h"
#include "store/owners.h"

struct owners {
    struct engine *engine;

    pthread_mutex_t mutex;
    pthread_cond_t woken;
    struct list calls; /* struct owner_op, in order of arrival; under the mutex */
    size_t call_count;
    atomic_size_t max_calls; /* more are answered too_many */
    bool look_soon;          /* what was being ended has ended, and there is more; under the mutex */
    atomic_size_t ending;    /* expire operations in the engine */
    atomic_bool more;        /* and others that end too */
    atomic_bool progress;    /* some of them have ended */

    /* Only the thread. */
    struct session *session;
    struct arena arena; /* of one try of a transaction */
    unsigned servers;   /* as engine->servers when it was connected */
    bool in_trouble;
    struct arena look_arena; /* of one look */
    mono_us next_look;
    mono_us lapse_from; /* whoever could not send heartbeats before is given time to do it */
    mono_us next_forget;
    utc_us after_at; /* the place among the lapsed after which the next page begins */
    char after_name[NAME_MAX_BYTES];
    size_t after_length;
};

/* NULL: no memory. */
struct owners *owners_new(struct engine *engine) MUST_CHECK;
/* The thread has ended. Accepts NULL. */
void owners_free(struct owners *owners);
/* The thread looks at what there is to do. Accepts NULL. */
void owners_wake(struct owners *owners);

/* For lapse.c. Runs calls until they are decided; those without `decided` are told nothing. On the thread. */
void owners_run(struct owners *owners, struct owner_op **ops, size_t count);
/* A connection to the server that is in use now. */
enum permit_status owners_connect(struct owners *owners) MUST_CHECK;
/* Logs a failure once, and drops a session that is of no use any more; PERMIT_OK: all is well again. */
void owners_note(struct owners *owners, enum permit_status status);

/* lapse.c: lapses, ends, forgets; sets next_look. */
void owners_look(struct owners *owners);
#endif
