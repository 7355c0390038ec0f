/* SPDX-License-Identifier: MIT */
/*
 * Audit: compares the rows of a semaphore with each other. in_use changes only together with its permits, so a mismatch
 * is a bug or a manual write. The reads take no locks; each comparison uses one read view; each call is short. The
 * audit task (tasks/audit.c) decides the schedule.
 */
#ifndef STORE_AUDIT_H
#define STORE_AUDIT_H

#include "base/arena.h"
#include "core/name.h"
#include "core/request.h"
#include "permit/status.h"

struct store;

enum { AUDIT_SUBJECT_SIZE = STORED_KEY_MAX_BYTES + 1, AUDIT_SENTENCE_SIZE = 1000, AUDIT_NUMBERS = 10 };
/* Limits of a page of requests. */
enum { AUDIT_PAGE = 1000, AUDIT_PAGE_DRIFTS = 100 };

/* A mismatch: of a semaphore, or of an ACQUIRED request without its permits or their bits. */
struct audit_drift {
    bool is_request;
    uint64_t id;                        /* semaphore.id or permit_request.id */
    char subject[AUDIT_SUBJECT_SIZE];   /* name or external_id */
    char sentence[AUDIT_SENTENCE_SIZE]; /* the mismatch, with the numbers at the time of the read */
    int64_t differences[AUDIT_NUMBERS]; /* by kind; traffic does not change them, so equal ones mean the same drift */
};

struct audit_result {
    size_t drift_count;
    struct audit_drift *drifts; /* in the arena */
};

/*
 * Audit of one semaphore, page by page. Its permits are those with a bit in `held`. It checks that
 * - in_use is the sum of its permits, `confirmed` of those that are confirmed;
 * - each bit has a permit;
 * - waiting is the number of places in its queue that a client asks for;
 * - a slot is held by the permit that names it and by no other, and is out of service if and only if its number is
 *   above the capacity;
 * - each permit belongs to an ACQUIRED request, and its bit is in the row of the request's owner and deadline;
 * - each past permit is of an exchange that its request has made, and its token is not held but by the rest of it. Times
 *   are not compared: the lease clock may step back.
 *
 *     status = store->audit->begin(&audit, store, after, arena);
 *     while (status == PERMIT_OK && audit.step != AUDIT_DONE)
 *         status = store->audit->step(&audit);             the caller may pause; only briefly while in_view
 *     status = store->audit->end(&audit, status, &result); always required; a failed status ends the audit
 */
struct audit {
    struct store *store;
    struct arena *arena;
    enum { AUDIT_PERMITS, AUDIT_SLOTS, AUDIT_REQUESTS, AUDIT_PAST, AUDIT_DONE } step;
    bool in_view;               /* a read view is open; the server keeps old row versions until it closes */
    struct semaphore semaphore; /* id, name, kind, capacity, in_use, confirmed, waiting; id 0: no semaphore is left */
    int64_t held, confirmed;    /* units of its permits; the part of them whose request is confirmed */
    int64_t places;             /* places in its queue whose request has a server_id */
    int64_t differences[AUDIT_NUMBERS];
    uint64_t *holders; /* by slot number: token of the permit that names the slot; NULL: a counted semaphore */
    uint64_t last;     /* token or slot number after which the next page starts */
    uint32_t changes;  /* AUDIT_PAST: with `last`, the past permit after which it starts */
};

/* The methods; store->audit. */
struct store_audit {
    /* Starts the audit of the semaphore with the smallest id above `after`, and opens the read view. */
    enum permit_status (*begin)(struct audit *audit, struct store *store, uint64_t after, struct arena *arena);
    /* Reads one page and moves audit->step on after the last page of a step. */
    enum permit_status (*step)(struct audit *audit);
    /*
     * Ends the read view. `status` is that of the last step; if it is not PERMIT_OK it is returned, and *ret_result is
     * untouched. The result has at most one drift.
     */
    enum permit_status (*end)(struct audit *audit, enum permit_status status, struct audit_result *ret_result);
    /*
     * Checks the ACQUIRED requests among the AUDIT_PAGE requests with the next ids above `after`: each must have
     * permits, and each permit must have its bit in `held`. The result has at most AUDIT_PAGE_DRIFTS. *ret_last is the
     * last id of the page; 0: no requests are left.
     */
    enum permit_status (*requests)(struct store *store, uint64_t after, struct arena *arena,
                                   struct audit_result *ret_result, uint64_t *ret_last);
};
#endif
