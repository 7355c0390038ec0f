/* SPDX-License-Identifier: MIT */
/*
 * Deleting what nobody needs any more, one batch at a time, on a session of its own. What may go is decided by
 * core/cleaning.h, when and how much by the engine's cleaner.
 *
 * Several permitd share the work: whoever gets the lock `permitd.cleaner.<database>` does one batch. A batch waits for
 * no row lock (NOWAIT) and locks nothing but the rows it deletes and their index entries, so it takes part in no
 * deadlock; with its rows named by the primary key it meets nobody on the way.
 */
#ifndef STORE_CLEAN_H
#define STORE_CLEAN_H

#include "base/arena.h"
#include "core/cleaning.h"
#include "store/session.h"

enum clean_kind {
    CLEAN_DUE,      /* ended requests and tombstones whose due_at has passed */
    CLEAN_OVERFLOW, /* ended requests beyond the newest ones */
    CLEAN_EVENTS,   /* of semaphores, after 30 days */
    CLEAN_KIND_COUNT
};

struct clean_task {
    enum clean_kind kind;
    utc_us from;             /* served time: nothing that is due before it is left; 0: not known */
    size_t rows;             /* requests and permits of the batch; cleaning_next_rows */
    uint64_t retention_rows; /* how many of the newest requests are kept in any case */
};

struct clean_result {
    bool mine;        /* false: another permitd is at it, and nothing was looked at */
    uint64_t deleted; /* requests or events; 0: there is nothing to do now */
    utc_us from;      /* where the next batch of this kind begins */
    int64_t took_us;  /* from BEGIN to COMMIT */
    double behind;    /* cleaning_behind of the oldest of them */
};

/*
 * One batch. PERMIT_LOCK_TIMEOUT, PERMIT_CONFLICT: somebody holds one of the rows, nothing was deleted. On other errors
 * the session says why; nothing is left open.
 */
enum permit_status clean_batch(struct session *session, const struct clean_task *task, struct arena *arena,
                               struct clean_result *ret_result) MUST_CHECK;

/* How many transactions everybody has committed since the server was started. It adds them up: a millisecond. */
enum permit_status clean_commits(struct session *session, uint64_t *ret_commits) MUST_CHECK;
#endif
