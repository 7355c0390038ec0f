/* SPDX-License-Identifier: MIT */
/*
 * Do the rows agree with each other? "in_use cannot drift, because it changes only together with the rows; a check that
 * compares them runs all the time." Plain reads, each comparison within one read view, no locks, in pieces that end
 * soon. When to look at what is the engine's business (auditor.c).
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include <stdatomic.h>

#include "base/arena.h"
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
    uint64_t semaphore_id; /* the one that was looked at; 0: there is none any more */
    size_t drift_count;
    struct audit_drift *drifts; /* in the arena */
};

/*
 * The semaphore with the smallest id above `after`: in_use is what its ACQUIRED permits add up to; no such permit is of
 * an ended request; a slot is taken by exactly the permit that names it, and out of service exactly if it is above the
 * capacity. One read view for all pages of it. PERMIT_SHUTTING_DOWN: *stop became true in between.
 */
enum permit_status audit_semaphore(struct session *session, uint64_t after, const atomic_bool *stop,
                                   struct arena *arena, struct audit_result *ret_result) MUST_CHECK;

/* How far the walk over the ACQUIRED requests has come: those that are never due, by id, then the others, by due_at. */
struct audit_place {
    bool dated;
    utc_us due_at;
    uint64_t id;
    bool at_end;
};

/* A page of ACQUIRED requests: each has permits, all of them ACQUIRED. semaphore_id is not used. */
enum permit_status audit_requests(struct session *session, const struct audit_place *from, struct arena *arena,
                                  struct audit_result *ret_result, struct audit_place *ret_place) MUST_CHECK;
#endif
