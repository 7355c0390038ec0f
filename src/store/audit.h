/* SPDX-License-Identifier: MIT */
/*
 * Do the rows agree with each other? "in_use cannot drift, because it changes only together with the rows; a check that
 * compares them runs all the time." Plain reads, each comparison within one read view, no locks, in pieces that end
 * soon. When to look at what is the engine's business (auditor.c).
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "base/arena.h"
#include "core/request.h"
#include "store/session.h"

enum { AUDIT_SUBJECT_SIZE = 256, AUDIT_SENTENCE_SIZE = 400, AUDIT_NUMBERS = 5, AUDIT_PAGE = 500 };

/* A semaphore whose rows do not match, or a request that is ACQUIRED without its permits. */
struct audit_drift {
    bool is_request;
    uint64_t id;                        /* semaphore.id, permit_request.id */
    char subject[AUDIT_SUBJECT_SIZE];   /* name, external_id */
    char sentence[AUDIT_SENTENCE_SIZE]; /* what does not match, with the numbers of that moment */
    int64_t apart[AUDIT_NUMBERS];       /* by how much: the same as long as the drift is, however busy it is */
};

struct audit_result {
    size_t drift_count;
    struct audit_drift *drifts; /* in the arena */
};

/*
 * One semaphore, page by page: in_use is what its ACQUIRED permits add up to; a slot is taken by exactly the permit
 * that names it, and out of service exactly if it is above the capacity; then, no such permit is of an ended request.
 *
 *     status = audit_begin(&audit, session, after, arena);
 *     while (status == PERMIT_OK && audit.step != AUDIT_DONE)
 *         status = audit_step(&audit);                            pauses as the caller likes, short ones while in_view
 *     status = audit_end(&audit, status, &result);                always due; a status other than PERMIT_OK gives up
 */
struct audit {
    struct session *session;
    struct arena *arena;
    enum { AUDIT_PERMITS, AUDIT_SLOTS, AUDIT_REQUESTS, AUDIT_DONE } step;
    bool in_view;               /* the server keeps old rows for us until that is over */
    struct semaphore semaphore; /* id, name, kind, capacity, in_use; id 0: there is none any more */
    int64_t held;               /* units of its ACQUIRED permits */
    int64_t apart[AUDIT_NUMBERS];
    uint64_t *holders; /* by slot number: the token of the permit that names it; NULL if counted */
    uint64_t last;     /* token or slot: where the next page begins */
};

/* The semaphore with the smallest id above `after`. */
enum permit_status audit_begin(struct audit *audit, struct session *session, uint64_t after,
                               struct arena *arena) MUST_CHECK;
enum permit_status audit_step(struct audit *audit) MUST_CHECK;
enum permit_status audit_end(struct audit *audit, enum permit_status status,
                             struct audit_result *ret_result) MUST_CHECK;

/* How far the walk over the ACQUIRED requests has come: those that are never due, by id, then the others, by due_at. */
struct audit_place {
    bool dated;
    utc_us due_at;
    uint64_t id;
    bool at_end;
};

/* A page of ACQUIRED requests: each has permits, all of them ACQUIRED. */
enum permit_status audit_requests(struct session *session, const struct audit_place *from, struct arena *arena,
                                  struct audit_result *ret_result, struct audit_place *ret_place) MUST_CHECK;
#endif
