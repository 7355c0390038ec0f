/* SPDX-License-Identifier: MIT */
/*
 * Retention decisions: which ended requests may be deleted, the walk along them, the size of a batch, and the pause
 * between two batches. Pure; store/retention_batch.c deletes, tasks/retention.c has the task.
 *
 * Retention deletes ended requests after 7 days, or beyond the newest 10,000,000, whichever comes first, in batches of
 * at most 800 by ascending id, permits first. It deletes events after 30 days.
 */
#ifndef CORE_RETENTION_H
#define CORE_RETENTION_H

#include "base/base.h"

enum {
    RETENTION_REQUESTS_MAX = 800, /* of one batch */
    /* Requests and permits of one batch: about 5 ms. Smaller batches cost more than they save. */
    RETENTION_ROWS_MIN = 128,
    RETENTION_ROWS_MAX = 2 * RETENTION_REQUESTS_MAX,
    RETENTION_PAGE = 4000, /* rows of permit_request that one batch reads: 2 to 5 ms */
    RETENTION_EVENT_DAYS = 30,
};

/*
 * Safety margins. A batch that answers for an ended request (a replay, a second release) may read its row before
 * retention deletes it, and then counts the answer in the row. It does not write to a row that is past its due_at.
 * Therefore:
 *
 * - a request is deleted one minute after its due_at: longer than any batch, plus the 5 s by which the lease clock may
 *   leap;
 * - it must also have ended ten minutes ago, so that no setting deletes a request that its own batch has not yet
 *   answered;
 * - beyond the newest requests, long before its due_at, it must have ended one hour ago: the lifetime of a tombstone,
 *   so that an acquire still on its way finds the end of its request.
 */
#define RETENTION_PAST_DUE_US       (60LL * US_PER_SECOND)
#define RETENTION_ENDED_US          (600LL * US_PER_SECOND)
#define RETENTION_ENDED_OVERFLOW_US (3600LL * US_PER_SECOND)

/* An ended request. Times are lease clock. */
struct ended_request {
    uint64_t id;
    utc_us due_at; /* earliest deletion */
    utc_us ended_at;
    uint64_t permits;
};

/*
 * Returns true if the request may be deleted. Requests with ids below `oldest_kept` are beyond the newest ones; 0:
 * there are none.
 */
bool retention_may_delete(const struct ended_request *request, utc_us now, uint64_t oldest_kept);

/*
 * Returns the id below which requests are beyond the newest `rows`; 0: none. Ids rise roughly with time; holes count as
 * requests.
 */
uint64_t retention_oldest_kept(uint64_t newest_id, uint64_t rows);

/*
 * Returns the number of requests, from the first, that fit into a batch of `rows` rows (requests and permits); at least
 * one, so that the largest request is deleted too.
 */
size_t retention_fit(const struct ended_request *requests, size_t count, size_t rows);

/*
 * Returns the rows of the next batch after a batch of `rows` that took `took_us`. No batch should hold a lock for over
 * 50 ms: the aim is well below that; the size shrinks immediately and grows slowly.
 */
size_t retention_next_rows(size_t rows, int64_t took_us);

/*
 * Returns the backlog of retention by a request that it deletes: 1 is one day late, or as many surplus requests as
 * should be kept.
 */
double retention_backlog(const struct ended_request *request, utc_us now, uint64_t oldest_kept, uint64_t rows);

/*
 * Returns the pause after a batch that took `took_us`, given the commits per second of other work. 0 on an idle
 * database. On a busy one it is a multiple of took_us, smaller the larger the backlog: slower clients are better than a
 * full disk.
 */
int64_t retention_pause_us(int64_t took_us, double commits_a_second, double behind);

/*
 * The walk along all requests by ascending id, round after round, one page of RETENTION_PAGE rows after the other. Most
 * rows are held, or ended a short time ago: ids rise with time, but each server takes them from blocks of 10,000, and
 * requests are held for different times. Zero: nothing walked yet.
 */
struct retention_walk {
    uint64_t from;        /* first id of the next batch; 0: it begins a round */
    uint64_t oldest_kept; /* when the round began */
    bool found;           /* the round has deleted requests */
    int64_t pause_us;     /* after the last round; 0: none has ended */
};

/* The rows that a batch has read. */
struct retention_page {
    uint64_t next;        /* first id that it has not considered; 0: it has reached the end of the table */
    uint64_t oldest_kept; /* retention_oldest_kept at the batch */
    bool full;            /* it deletes as many requests as fit; its page may have more of them */
    int64_t read_us;      /* time of reading; the deletion is not included */
};

/*
 * Returns true if the walk should begin a new round instead of finishing this one: it has passed all requests beyond
 * the newest `rows`, and another hundredth of `rows` of them has gathered behind it. The requests that it leaves out are some of the
 * newest `rows` requests; so the table does not grow by that.
 */
bool retention_turns_back(const struct retention_walk *walk, uint64_t oldest_kept, uint64_t rows);

/*
 * Moves the walk on after a batch that deleted `deleted` requests; `rows` is the number of newest requests that are
 * kept. Returns the time from this batch to the next in us. A batch that deletes as many requests as fit needs none.
 * Else it is thirty times the time of reading, so that reading takes at most 3 % of a core. After a round it is at
 * least 3 s, and twice as long after each further round without a deletion, up to a minute.
 */
int64_t retention_walk_on(struct retention_walk *walk, const struct retention_page *page, uint64_t deleted,
                          uint64_t rows);
#endif
