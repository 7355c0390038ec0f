/* SPDX-License-Identifier: MIT */
#include "core/retention.h"

enum {
    AIM_US = 20000,         /* target time of one transaction; twice that still fits into 50 ms if the machine
                               becomes busy */
    GROWTH_PERCENT = 125,   /* maximum size of the next batch relative to the last */
    BUSY_COMMITS = 10,      /* other commits per second; below this the database counts as idle */
    PAUSE_MAX_US = 2000000, /* after the slowest batch */
    REST_FACTOR = 30,       /* rest after reading a page, as a multiple of its time */
    ROUND_PAUSE_US = 3000000,
    ROUND_PAUSE_MAX_US = 60000000,
    SURPLUS_SHARE = 100, /* the walk turns back for this part of the requests that are kept */
};

#define DAY_US (86400.0 * (double)US_PER_SECOND)

bool retention_may_delete(const struct ended_request *request, utc_us now, uint64_t oldest_kept)
{
    if (request->due_at == NEVER || request->ended_at == NEVER)
        return false;
    if (request->due_at <= now - RETENTION_PAST_DUE_US)
        return request->ended_at <= now - RETENTION_ENDED_US;
    return request->id < oldest_kept && request->ended_at <= now - RETENTION_ENDED_OVERFLOW_US;
}

uint64_t retention_oldest_kept(uint64_t newest_id, uint64_t rows)
{
    return newest_id > rows ? newest_id - rows + 1 : 0;
}

size_t retention_fit(const struct ended_request *requests, size_t count, size_t rows)
{
    size_t fitting = 0;
    size_t taken = 0;
    while (fitting < count && fitting < RETENTION_REQUESTS_MAX) {
        taken += 1 + requests[fitting].permits;
        if (fitting > 0 && taken > rows)
            break;
        fitting++;
    }
    return fitting;
}

size_t retention_next_rows(size_t rows, int64_t took_us)
{
    double fitting = (double)rows * (double)AIM_US / (double)max_i64(took_us, 1);
    double most = (double)rows * (double)GROWTH_PERCENT / 100;
    fitting = fitting < most ? fitting : most;
    return (size_t)max_i64(RETENTION_ROWS_MIN, min_i64(RETENTION_ROWS_MAX, (int64_t)fitting));
}

double retention_backlog(const struct ended_request *request, utc_us now, uint64_t oldest_kept, uint64_t rows)
{
    double late = (double)(now - RETENTION_PAST_DUE_US - request->due_at) / DAY_US;
    double over = request->id < oldest_kept ? (double)(oldest_kept - request->id) / (double)(rows ? rows : 1) : 0;
    return late > over ? late : over;
}

/*
 * From this backlog on, the pause is this multiple of the batch time. The last row is for a backlog below all others.
 */
static const struct {
    double behind;
    int64_t times;
} pauses[] = {{1, 0}, {0.25, 1}, {0.05, 2}, {-1e9, 4}};

int64_t retention_pause_us(int64_t took_us, double commits_a_second, double behind)
{
    size_t row = 0;
    if (commits_a_second < (double)BUSY_COMMITS)
        return 0;
    while (row + 1 < ARRAY_LENGTH(pauses) && behind < pauses[row].behind)
        row++;
    return min_i64(PAUSE_MAX_US, pauses[row].times * took_us);
}

bool retention_turns_back(const struct retention_walk *walk, uint64_t oldest_kept, uint64_t rows)
{
    return walk->from >= oldest_kept && oldest_kept > walk->oldest_kept + rows / SURPLUS_SHARE;
}

int64_t retention_walk_on(struct retention_walk *walk, const struct retention_page *page, uint64_t deleted,
                          uint64_t rows)
{
    int64_t rest = page->full && deleted ? 0 : min_i64(REST_FACTOR * page->read_us, ROUND_PAUSE_MAX_US);
    if (walk->from == 0) {
        walk->oldest_kept = page->oldest_kept;
        walk->found = false;
    }
    walk->found |= deleted > 0;
    walk->from = page->next;
    if (walk->from == 0) {
        int64_t longer = min_i64(2 * walk->pause_us, ROUND_PAUSE_MAX_US);
        walk->pause_us = walk->found ? ROUND_PAUSE_US : max_i64(ROUND_PAUSE_US, longer);
        return max_i64(rest, walk->pause_us);
    }
    if (retention_turns_back(walk, page->oldest_kept, rows))
        walk->from = 0;
    return rest;
}
