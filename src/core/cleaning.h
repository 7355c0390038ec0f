/* SPDX-License-Identifier: MIT */
/*
 * What the cleaner decides: which ended requests may be deleted, how much at once, and how long it keeps quiet between
 * two batches. Pure; the deleting is in store/clean.c, the thread in engine/cleaner.c.
 *
 * "The cleaner deletes ended requests after 7 days, or beyond the newest 10,000,000, whichever comes first, in batches
 * of 800 by ascending id, permits first; events after 30 days."
 */
#ifndef CORE_CLEANING_H
#define CORE_CLEANING_H

#include "base/base.h"

enum {
    CLEANING_REQUESTS = 800, /* of one batch at most */
    CLEANING_ROWS_MIN = 128, /* requests and permits of one batch: some 5 ms; fewer cost more than they spare */
    CLEANING_ROWS_MAX = 2 * CLEANING_REQUESTS,
    CLEANING_EVENT_DAYS = 30,
};

/*
 * The margins, all in one place. A batch that answers for an ended request (a replay, a second release) may have read
 * its row before the cleaner deletes it, and counts that answer in the row afterwards. It writes to no row that is past
 * its due_at by then, so:
 *
 * - deleted is what is a minute past its due_at: longer than any batch lasts, with the 5 s by which served time may
 *   leap;
 * - and ended for ten minutes, so that no setting deletes what its own batch has not yet answered;
 * - beyond the newest ones, long before its due_at, only what has ended for an hour: as long as a tombstone is kept, so
 *   that an acquire still on its way finds the end of its request.
 */
#define CLEANING_PAST_DUE_US       (60LL * US_PER_SECOND)
#define CLEANING_ENDED_US          (600LL * US_PER_SECOND)
#define CLEANING_ENDED_OVERFLOW_US (3600LL * US_PER_SECOND)

/* A request that ended; times are served time. */
struct ended_request {
    uint64_t id;
    utc_us due_at; /* when it may be deleted */
    utc_us ended_at;
    uint64_t permits;
};

/* `oldest_kept`: requests with smaller ids are beyond the newest ones; 0: there are not so many. */
bool cleaning_may_delete(const struct ended_request *request, utc_us now, uint64_t oldest_kept);

/* The id below which requests are beyond the newest `rows`. Ids rise roughly with time; holes count as requests. */
uint64_t cleaning_oldest_kept(uint64_t newest_id, uint64_t rows);

/*
 * How many of these, from the first on, fit into a batch of so many rows (requests and permits); at least one, so that
 * the largest request gets its turn.
 */
size_t cleaning_fit(const struct ended_request *requests, size_t count, size_t rows);

/*
 * Rows of the next batch after one of `rows` whose transaction took so long: "never holds a lock for over 50 ms". Aims
 * well below that, shrinks at once, grows slowly.
 */
size_t cleaning_next_rows(size_t rows, int64_t took_us);

/* How far the cleaner is behind: 1 is a day late, or as many requests again as should be kept. */
double cleaning_behind(const struct ended_request *oldest, utc_us now, uint64_t oldest_kept, uint64_t rows);

/*
 * The pause after a batch that took so long, by what others commit in a second. None on a quiet database; on a busy one
 * a multiple of what the batch took, the less the further the cleaner is behind: clients wait rather than the disk
 * fills.
 */
int64_t cleaning_pause_us(int64_t took_us, double commits_a_second, double behind);
#endif
