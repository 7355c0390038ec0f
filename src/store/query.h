/* SPDX-License-Identifier: MIT */
/*
 * Reads for status and lists: plain SELECTs on a SESSION_READER, outside every batch. What they say was true at the
 * moment of the read; nothing here is a promise (those come from batches). Rows live in the caller's arena.
 */
#ifndef STORE_QUERY_H
#define STORE_QUERY_H

#include "core/request.h"
#include "core/served_time.h"
#include "store/session.h"

/* How many rows one call looks at to fill a page, whatever there are: some 50 ms. */
enum { QUERY_WALK_MAX = 20000 };

/* The clock that turns stored times into the database's, read with every list. */
struct query_time {
    struct served_clock clock;
    utc_us now; /* the database's clock */
};

struct semaphore_row {
    struct semaphore semaphore;
    uint64_t floor; /* smallest live token; next_permit_id if none */
};

struct holder_row {
    struct request request; /* without its permits */
    struct permit permit;   /* of the semaphore asked for */
};

/* How a token stands at this moment. */
struct fence_row {
    bool known; /* false: no such token now (never granted, or forgotten) */
    bool live;
    enum request_state state;
    enum end_reason end_reason;
    uint64_t floor;
};

/* Exactly one; PERMIT_UNKNOWN_SEMAPHORE if there is none or it is retired. */
enum permit_status query_semaphore(struct session *session, struct bytes name, struct arena *arena,
                                   struct semaphore_row *ret_row, struct query_time *ret_time) MUST_CHECK;
/*
 * In order of name, those that begin with prefix and come after `after`, at most limit; retired ones are left out.
 * *ret_next: the `after` that goes on, data NULL if all have been looked at; a page may be empty and yet have a next.
 */
enum permit_status query_semaphores(struct session *session, struct bytes prefix, struct bytes after, unsigned limit,
                                    struct arena *arena, struct semaphore_row **ret_rows, size_t *ret_count,
                                    struct bytes *ret_next, struct query_time *ret_time) MUST_CHECK;
/* All semaphores in service, together. */
struct semaphore_sums {
    int64_t count;
    int64_t capacity; /* at most INT64_MAX */
    int64_t in_use;
};
/* Reads every semaphore: for metrics. */
enum permit_status query_semaphore_sums(struct session *session, struct semaphore_sums *ret_sums) MUST_CHECK;
/* In order of token (the longest holders first), after the token `after`. */
enum permit_status query_holders(struct session *session, struct bytes semaphore, uint64_t after, unsigned limit,
                                 struct arena *arena, struct holder_row **ret_rows, size_t *ret_count,
                                 struct query_time *ret_time) MUST_CHECK;
/* With its permits; PERMIT_UNKNOWN_REQUEST if there is none. Names of its semaphores in ret_names, one per permit. */
enum permit_status query_request(struct session *session, struct bytes external_id, struct arena *arena,
                                 struct request *ret_request, struct bytes **ret_names,
                                 struct query_time *ret_time) MUST_CHECK;

struct request_filter {
    struct bytes owner;     /* data NULL: any */
    struct bytes semaphore; /* data NULL: any; also a retired one */
    int state;              /* 0: any; else enum request_state */
    uint64_t after;         /* request id: only larger ones */
    unsigned limit;
};
/*
 * In order of request id, at most limit; each with its permits and their semaphores' names (ret_names[i][j]).
 * *ret_next: the `after` that goes on, 0 if all have been looked at; a page may be empty and yet have a next.
 */
enum permit_status query_requests(struct session *session, const struct request_filter *filter, struct arena *arena,
                                  struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                  uint64_t *ret_next, struct query_time *ret_time) MUST_CHECK;
/* slot 0: on any; else a token of another slot is not known. PERMIT_UNKNOWN_SEMAPHORE if there is none. */
enum permit_status query_fence(struct session *session, struct bytes semaphore, uint64_t token, uint32_t slot,
                               struct fence_row *ret_row) MUST_CHECK;
/* The clock alone. */
enum permit_status query_clock(struct session *session, struct query_time *ret_time) MUST_CHECK;
#endif
