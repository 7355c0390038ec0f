/* SPDX-License-Identifier: MIT */
/*
 * Queries for status and lists: plain SELECTs outside every batch. A result was true at the time of the read and
 * promises nothing; promises come from batches. Rows are in the caller's arena.
 */
#ifndef STORE_QUERY_H
#define STORE_QUERY_H

#include "core/lease_time.h"
#include "core/request.h"
#include "store/mysql_session.h"

/* Maximum number of rows that one call walks to fill a page: about 50 ms. */
enum { QUERY_WALK_MAX = 20000 };

/* The clock, read with every list; converts stored times to the database's clock. */
struct query_time {
    struct lease_clock clock;
    utc_us now; /* the database's clock */
};

struct semaphore_row {
    struct semaphore semaphore;
    uint64_t floor; /* smallest live token; next_permit_id if none */
};

struct holder_row {
    struct request request; /* without its permits */
    struct permit permit;   /* its permit of the queried semaphore */
};

/* The state of a token. */
struct fence_row {
    bool known; /* false: no row has this token: never granted, or deleted by retention */
    bool live;  /* known, and its request is held */
    enum request_state state;
    enum end_reason end_reason;
    uint64_t floor; /* smallest live token of the semaphore; next_permit_id if none */
};

/* Reads one semaphore. PERMIT_UNKNOWN_SEMAPHORE: it does not exist or is retired. */
enum permit_status query_semaphore(struct session *session, struct bytes name, struct arena *arena,
                                   struct semaphore_row *ret_row, struct query_time *ret_time) MUST_CHECK;
/*
 * Lists semaphores that begin with `prefix` and come after the name `after`, in order of name, without retired ones; at
 * most `limit`. *ret_next is `after` of the next page; data NULL: no more. A page may be empty and still have a next
 * one.
 */
enum permit_status query_semaphores(struct session *session, struct bytes prefix, struct bytes after, unsigned limit,
                                    struct arena *arena, struct semaphore_row **ret_rows, size_t *ret_count,
                                    struct bytes *ret_next, struct query_time *ret_time) MUST_CHECK;
/* Sums over all semaphores that are not retired. */
struct semaphore_sums {
    int64_t count;
    int64_t capacity; /* INT64_MAX if the sum is larger */
    int64_t in_use;
};
/* Reads every semaphore row; for metrics. */
enum permit_status query_semaphore_sums(struct session *session, struct semaphore_sums *ret_sums) MUST_CHECK;
/*
 * Lists the holders of a semaphore in order of token, so the longest holders first, after the token `after`; at most
 * `limit`. PERMIT_UNKNOWN_SEMAPHORE: it does not exist or is retired.
 */
enum permit_status query_holders(struct session *session, struct bytes semaphore, uint64_t after, unsigned limit,
                                 struct arena *arena, struct holder_row **ret_rows, size_t *ret_count,
                                 struct query_time *ret_time) MUST_CHECK;
/*
 * Reads one request with its permits. (*ret_names)[i] is the semaphore name of permit i. PERMIT_UNKNOWN_REQUEST: it
 * does not exist.
 */
enum permit_status query_request(struct session *session, struct bytes external_id, struct arena *arena,
                                 struct request *ret_request, struct bytes **ret_names,
                                 struct query_time *ret_time) MUST_CHECK;

struct request_filter {
    struct bytes owner;     /* data NULL: any */
    struct bytes semaphore; /* name, may be retired; data NULL: any */
    int state;              /* an enum request_state; 0: any */
    uint64_t after;         /* only request ids above this one */
    unsigned limit;         /* maximum number of requests */
};
/*
 * Lists requests in order of request id, each with its permits. (*ret_names)[i][j] is the semaphore name of permit j of
 * request i. *ret_next is `after` of the next page; 0: no more. A page may be empty and still have a next one.
 */
enum permit_status query_requests(struct session *session, const struct request_filter *filter, struct arena *arena,
                                  struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                  uint64_t *ret_next, struct query_time *ret_time) MUST_CHECK;
/*
 * Reads the state of a token; the semaphore may be retired. If `slot` is not 0, a token that does not hold that slot is
 * not known. PERMIT_UNKNOWN_SEMAPHORE: the semaphore does not exist.
 */
enum permit_status query_fence(struct session *session, struct bytes semaphore, uint64_t token, uint32_t slot,
                               struct fence_row *ret_row) MUST_CHECK;
/* Reads the clock. */
enum permit_status query_clock(struct session *session, struct query_time *ret_time) MUST_CHECK;
#endif
