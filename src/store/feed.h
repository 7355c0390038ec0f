/* SPDX-License-Identifier: MIT */
/*
 * The feed in the database (docs/design.md, "The feed"). Batches insert its rows (changes.feed); a task numbers them,
 * deletes the oldest, and keeps batches from writing more than there is room for.
 */
#ifndef STORE_FEED_H
#define STORE_FEED_H

#include "core/feed.h"
#include "store/query.h"

struct store;

enum { FEED_ROWS_A_STEP = 500 }; /* that one call numbers or reads at most; FEED_DELETED of those it deletes */
enum { FEED_DELETED = 2000 };

struct feed_head {
    uint64_t durable; /* readers see the numbers up to this one */
    bool full;        /* batches that have read it write no events */
    bool pending;     /* there are others, or rows without a number */
};

/* How much of the feed is kept. */
struct feed_limits {
    int64_t retention_us;
    uint64_t rows; /* beyond these, the oldest numbered ones are deleted earlier; at twice as many the feed is full */
};

struct feed_trim {
    struct feed_limits limits;
    uint64_t ret_deleted;
    bool ret_early;      /* some of them because of limits.rows */
    uint64_t ret_stored; /* rows, about, after it */
    bool ret_full;       /* the same */
};

struct feed_page {
    struct feed_position after; /* the page starts behind it */
    bool from_oldest;           /* `after` is not set: from the oldest row on */
    unsigned limit;
    struct feed_row *ret_rows; /* numbered, in order */
    size_t ret_count;
    enum feed_verdict ret_verdict; /* of `after` */
    struct feed_position ret_next; /* `after` of the next page; FEED_GONE, FEED_LOST: where to go on */
};

/* The methods; store->feed. No transaction is open, but for `head`. */
struct store_feed {
    /* Reads without locks. */
    enum permit_status (*head)(struct store *store, struct feed_head *ret_head);
    /*
     * Numbers the first rows without a number, at most FEED_ROWS_A_STEP, in one transaction, and shows all numbers to
     * readers when that is durable. Does neither if the server is not the one in `cluster`: the rise of the epoch comes
     * first. After a failure call session->disconnect, or batch->rollback.
     */
    enum permit_status (*number)(struct store *store, struct arena *arena, size_t *ret_count);
    /*
     * Deletes at most FEED_DELETED numbered rows that are no longer kept, and changes `full`, with an event. Its end waits
     * for the batches that leave events out (PERMIT_LOCK_TIMEOUT: in vain), so it comes after all that lacks.
     */
    enum permit_status (*trim)(struct store *store, struct feed_trim *trim);
    enum permit_status (*read)(struct store *store, struct feed_page *page, struct arena *arena);
};
#endif
