/* SPDX-License-Identifier: MIT */
/*
 * Reads of the past: the holders of a semaphore at a given time, and the events of a semaphore. As in query.h, these
 * are plain SELECTs outside every batch; rows are in the caller's arena.
 */
#ifndef STORE_HISTORY_H
#define STORE_HISTORY_H

#include "store/query.h"

struct held_filter {
    struct bytes semaphore; /* name; may be retired */
    struct bytes owner;     /* data NULL: any */
    utc_us at;              /* time by the database's clock as it is now; a time in the future counts as now */
    uint64_t before;        /* only tokens below this one; 0: all */
    unsigned limit;
};

/*
 * Lists the requests that held units of the semaphore at that time, last granted first, in their current state.
 * *ret_next is `before` of the next page; 0: no more. A page may be empty and still have a next one. An unknown name
 * has no holders.
 */
enum permit_status query_held_at(struct session *session, const struct held_filter *filter, struct arena *arena,
                                 struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                 uint64_t *ret_next, struct query_time *ret_time) MUST_CHECK;

/* A row of `semaphore_event`. */
struct event_row {
    uint64_t id;
    utc_us at; /* the database's clock at the event */
    struct bytes who;
    struct bytes what;
    struct bytes from; /* old value; data NULL: none. The same for `to` and `why` */
    struct bytes to;
    struct bytes why;
    uint64_t next_permit_id; /* next token of the semaphore at the event */
};

/*
 * Lists the events of a semaphore and the raises of the epoch, which concern all semaphores; newest first, only ids
 * below `before` (0: all). Returns PERMIT_UNKNOWN_SEMAPHORE if the name was never used; a retired semaphore is known.
 */
enum permit_status query_events(struct session *session, struct bytes semaphore, uint64_t before, unsigned limit,
                                struct arena *arena, struct event_row **ret_rows, size_t *ret_count) MUST_CHECK;
#endif
