/* SPDX-License-Identifier: MIT */
/*
 * Retention decisions: which ended requests may be deleted, the size of a batch, and the pause between two batches.
 * Pure; store/retention_batch.c deletes, tasks/retention.c has the task.
 *
 * Retention deletes ended requests after 7 days, or beyond the newest 10,000,000, whichever comes first, in batches of
 * at most 800 by ascending id, permits first. It deletes events after 30 days.
 */
#ifndef CORE_RETENTION_H
#define CORE_RETENTION_H

#include "base/base.h"

enum {
    RETENTION_REQUESTS = 800, /* maximum of one batch */
    RETENTION_ROWS_MIN = 128, /* requests and permits of one batch: about 5 ms; smaller batches cost more than they
                                save */
    RETENTION_ROWS_MAX = 2 * RETENTION_REQUESTS,
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

/* Returns the backlog of retention: 1 is one day late, or as many surplus requests as should be kept. */
double retention_backlog(const struct ended_request *oldest, utc_us now, uint64_t oldest_kept, uint64_t rows);

/*
 * Returns the pause after a batch that took `took_us`, given the commits per second of other work. 0 on an idle
 * database. On a busy one it is a multiple of took_us, smaller the larger the backlog: slower clients are better than a
 * full disk.
 */
int64_t retention_pause_us(int64_t took_us, double commits_a_second, double behind);
#endif
