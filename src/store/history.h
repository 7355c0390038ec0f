/* SPDX-License-Identifier: MIT */
/*
 * Reads of what was: who held a semaphore at a moment, and what operators did to it. As those of query.h: plain
 * SELECTs on a SESSION_READER, rows in the caller's arena.
 */
#ifndef STORE_HISTORY_H
#define STORE_HISTORY_H

#include "store/query.h"

struct held_filter {
    struct bytes semaphore; /* also a retired one */
    struct bytes owner;     /* data NULL: any */
    utc_us at;              /* by the database's clock as it is now; what lies ahead is as now */
    uint64_t before;        /* token: only smaller ones; 0: all */
    unsigned limit;
};

/*
 * The requests that held units of the semaphore at that moment, those granted last first, as they are now. *ret_next:
 * the `before` that goes on, 0 if all have been looked at; a page may be empty and yet have a next. A name that was
 * never used has no holders.
 */
enum permit_status query_held_at(struct session *session, const struct held_filter *filter, struct arena *arena,
                                 struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                 uint64_t *ret_next, struct query_time *ret_time) MUST_CHECK;

/* A row of `semaphore_event`. */
struct event_row {
    uint64_t id;
    utc_us at; /* by the database's clock when it happened */
    struct bytes who;
    struct bytes what;
    struct bytes from; /* data NULL: none, as `to` and `why` */
    struct bytes to;
    struct bytes why;
    uint64_t next_permit_id;
};

/*
 * What was done to a semaphore, the newest first, and when the epoch rose, which concerns all; only ids below `before`
 * (0: all). PERMIT_UNKNOWN_SEMAPHORE: the name was never used; a retired one is known.
 */
enum permit_status query_events(struct session *session, struct bytes semaphore, uint64_t before, unsigned limit,
                                struct arena *arena, struct event_row **ret_rows, size_t *ret_count) MUST_CHECK;
#endif
