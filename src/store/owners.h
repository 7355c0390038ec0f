/* SPDX-License-Identifier: MIT */
/*
 * The rows of `owner`: a transaction that locks them in order of name, reads and writes them; and plain
 * reads for heartbeat expiry, which find the owners whose heartbeat has expired and the requests that end with it. A
 * transaction that locks owner rows for writing never locks a semaphore row; batches lock semaphores, then read owners.
 * Each statement names the index it walks; tests/store checks this with EXPLAIN.
 */
#ifndef STORE_OWNERS_H
#define STORE_OWNERS_H

#include "base/arena.h"
#include "core/owner.h"
#include "permit/status.h"
#include "store/query.h"

struct store;

/* Limits of the calls below. */
enum {
    OWNERS_PAGE = 100, /* owners in one page */
    OWNERS_ENDS = 100, /* requests of one owner in one page */
    OWNERS_MAX = 500,  /* names in one statement */
};

/* The keys of held requests that end with an owner's lapse: at most OWNERS_ENDS, in the arena. */
struct owner_ends {
    struct bytes *keys;
    size_t count;
};

/* An owner of held requests. */
struct owner_holder {
    struct bytes name;
    bool is_probed; /* it holds an unconfirmed request, so the liveness probe asks about it */
};

/* The methods; store->owners. */
struct store_owners {
    /*
     * Begins a transaction, locks the rows with these names and reads them, then the clock. `waits`: for a row lock at
     * most 1 s; else it returns PERMIT_LOCK_TIMEOUT immediately if a row is locked. `names`: ascending, no duplicates,
     * at most OWNERS_MAX. ret_images has room for one image per name; an image without a row has only the name. Names
     * are not copied.
     */
    enum permit_status (*lock)(struct store *store, const struct bytes *names, size_t count, bool waits,
                               struct arena *arena, struct owner_image *ret_images, struct query_time *ret_time);
    /* After `lock`: sets `holding` of owners with an unsettled lapse that still hold a request that ends with it. */
    enum permit_status (*read_holding)(struct store *store, struct owner_image *images, size_t count);
    /* Writes the changed images and commits. At least one image is changed. */
    enum permit_status (*write)(struct store *store, const struct owner_image *images, size_t count);
    /* Ends the open transaction, if any; if that fails the session is dropped. */
    void (*rollback)(struct store *store);
    /* Lists owners that are due before `before` and not lapsed, longest due first; at most OWNERS_MAX, in the arena. */
    enum permit_status (*due)(struct store *store, utc_us before, struct arena *arena, struct owner **ret_owners,
                              size_t *ret_count);
    /*
     * Lists owners with an unsettled lapse in order of (lapsed_at, name), after (after_at, after_name); at most
     * OWNERS_PAGE, in the arena.
     */
    enum permit_status (*lapsed)(struct store *store, utc_us after_at, struct bytes after_name, struct arena *arena,
                                 struct owner **ret_owners, size_t *ret_count);
    /* Lists owners whose lapse was settled before `before`; at most OWNERS_MAX, in the arena. */
    enum permit_status (*removable)(struct store *store, utc_us before, struct arena *arena, struct owner **ret_owners,
                                    size_t *ret_count);
    /*
     * Fills one element of ret_ends per owner. One SELECT reads an owner and its requests, so a request is listed only
     * while the owner's lapse is not settled.
     */
    enum permit_status (*ends)(struct store *store, const struct owner *owners, size_t count, struct arena *arena,
                               struct owner_ends *ret_ends);
    /*
     * Reads the rows with these names (at most OWNERS_MAX, any order): rows, ascending by name, count and time of the
     * page.
     */
    enum permit_status (*read)(struct store *store, const struct bytes *names, size_t count, struct page *page);
    /*
     * Reads one row and the number of requests the owner holds, counted up to QUERY_WALK_MAX. PERMIT_UNKNOWN_OWNER: no
     * row.
     */
    enum permit_status (*get)(struct store *store, struct bytes name, struct arena *arena, struct owner *ret_owner,
                              uint64_t *ret_held, struct query_time *ret_time);
    /* Counts the owners by enum owner_life. */
    enum permit_status (*count)(struct store *store, uint64_t ret_counts[OWNER_LIFE_COUNT]);
    /* Lists the distinct owners of held requests after the name `after`, in order of name; at most OWNERS_PAGE. */
    enum permit_status (*holding_page)(struct store *store, struct bytes after, struct arena *arena,
                                       struct owner_holder **ret_holders, size_t *ret_count,
                                       struct query_time *ret_time);
};
#endif
