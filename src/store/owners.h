/* SPDX-License-Identifier: MIT */
/*
 * The rows of `owner`, on a session: locked in order of name, read, and written in one transaction; and the plain reads
 * that find whose heartbeat is over and what ends with it. Nobody who has locked an owner goes on to lock a semaphore
 * (batches do it the other way round). The index that a statement walks is named in it; tests/store asks EXPLAIN.
 */
#ifndef STORE_OWNERS_H
#define STORE_OWNERS_H

#include "base/arena.h"
#include "core/owner.h"
#include "store/query.h"
#include "store/session.h"

/* What the reads below may return at once. */
enum {
    OWNERS_PAGE = 100,
    OWNERS_ENDS = 100, /* requests of one owner */
    OWNERS_MAX = 500,  /* names in one statement */
};

/*
 * BEGIN; locks the rows with these names, for which it waits 1 s at most (each once, ascending, at most OWNERS_MAX) and
 * reads them, then the clock. ret_images has room for one per name; those without a row have only the name, which stays
 * the caller's.
 */
enum permit_status owners_lock(struct session *session, const struct bytes *names, size_t count, struct arena *arena,
                               struct owner_image *ret_images, struct query_time *ret_time) MUST_CHECK;
/* The same without waiting: PERMIT_LOCK_TIMEOUT at once if a row is locked. */
enum permit_status owners_lock_now(struct session *session, const struct bytes *names, size_t count,
                                   struct arena *arena, struct owner_image *ret_images,
                                   struct query_time *ret_time) MUST_CHECK;
/* After owners_lock: sets `holding` where a lapse is not settled and something that ends with it is held. */
enum permit_status owners_read_holding(struct session *session, struct owner_image *images, size_t count) MUST_CHECK;
/* Writes the images that changed, at least one, and commits. */
enum permit_status owners_write(struct session *session, const struct owner_image *images, size_t count) MUST_CHECK;
/* Ends the open transaction, if any; if that fails the session is dropped. */
void owners_rollback(struct session *session);

/* The clock alone. */
enum permit_status owners_time(struct session *session, struct query_time *ret_time) MUST_CHECK;
/* Not lapsed and due before `before`, the longest due first; at most OWNERS_MAX. Rows in the arena. */
enum permit_status owners_due(struct session *session, utc_us before, struct arena *arena, struct owner **ret_owners,
                              size_t *ret_count) MUST_CHECK;
/* Lapsed and not settled, in order of (lapsed_at, name), after a place in that order; at most OWNERS_PAGE. */
enum permit_status owners_lapsed(struct session *session, utc_us after_at, struct bytes after_name, struct arena *arena,
                                 struct owner **ret_owners, size_t *ret_count) MUST_CHECK;
/* Settled before `before`; at most OWNERS_MAX. */
enum permit_status owners_forgettable(struct session *session, utc_us before, struct arena *arena,
                                      struct owner **ret_owners, size_t *ret_count) MUST_CHECK;

/* What is held and ends with an owner's lapse: at most OWNERS_ENDS keys, in the arena. */
struct owner_ends {
    struct bytes *keys;
    size_t count;
};
/*
 * One per owner. Each owner and its requests come from one SELECT: a request is listed only while the owner is ending.
 */
enum permit_status owners_ends(struct session *session, const struct owner *owners, size_t count, struct arena *arena,
                               struct owner_ends *ret_ends) MUST_CHECK;

/* The rows with these names (at most OWNERS_MAX, any order), ascending by name, in the arena. */
enum permit_status owners_read(struct session *session, const struct bytes *names, size_t count, struct arena *arena,
                               struct owner **ret_owners, size_t *ret_count, struct query_time *ret_time) MUST_CHECK;
/* One row, and how many requests of that owner are held, counted up to QUERY_WALK_MAX. PERMIT_UNKNOWN_OWNER if there
 * is none. */
enum permit_status owners_get(struct session *session, struct bytes name, struct arena *arena, struct owner *ret_owner,
                              uint64_t *ret_held, struct query_time *ret_time) MUST_CHECK;
/* How many there are of each enum owner_life. */
enum permit_status owners_count(struct session *session, uint64_t ret_counts[OWNER_LIFE_COUNT]) MUST_CHECK;

/* Distinct owners of held requests, in order of name, for the probe. */
struct owner_holder {
    struct bytes name;
    bool asked_about; /* something unconfirmed is held */
};
enum permit_status owners_holding_page(struct session *session, struct bytes after, struct arena *arena,
                                       struct owner_holder **ret_holders, size_t *ret_count,
                                       struct query_time *ret_time) MUST_CHECK;
#endif
