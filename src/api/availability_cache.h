/* SPDX-License-Identifier: MIT */
/*
 * Availability cache: the entries of /v1/availability, as JSON, read at most one second before a client asked for them.
 * An entry of the cache is a name, or the first names with a prefix. If a client asks for one that is too old, all
 * entries for which clients have asked in the last ten seconds are read again with it. So one read a second serves all
 * clients, and nothing is read while none asks. On any thread.
 */
#ifndef API_AVAILABILITY_CACHE_H
#define API_AVAILABILITY_CACHE_H

#include "base/buf.h"
#include "base/mutex.h"
#include "core/name.h"
#include "core/scope.h"
#include "store/query.h"

struct availability_cache;

enum { AVAILABILITY_FRESH_US = US_PER_SECOND };

/* The semaphores that a client asks for. */
struct availability_ask {
    const struct scope_entry *parts; /* names, and prefixes of at most NAME_MAX_BYTES, in the order of the answer */
    size_t part_count;
    struct bytes after; /* of a prefix only the names after this one, which has at most NAME_MAX_BYTES */
    size_t limit;       /* maximum number of semaphores, at least 1 */
    mono_us since;      /* what was read before this time is too old */
};

/* The page that was found. */
struct availability_page {
    uint64_t digest;           /* of all that the page shows */
    size_t next_length;        /* 0: it is the last page */
    char next[NAME_MAX_BYTES]; /* the next page begins after this name */
};

/* NULL: out of memory. */
struct availability_cache *availability_cache_new(void) MUST_CHECK;
/* Accepts NULL. */
void availability_cache_free(struct availability_cache *cache) NO_OTHER_THREAD;
/* Appends the semaphores of the page, with commas. False: a part of it must be read; `out` is as it was. */
bool availability_cache_get(struct availability_cache *cache, const struct availability_ask *ask, struct buf *out,
                            struct availability_page *ret_page) MUST_CHECK;
/* The same; reads what is missing or too old. After a failure `out` is as it was. */
enum permit_status availability_cache_find(struct availability_cache *cache, struct store *store,
                                           const struct availability_ask *ask, struct buf *out,
                                           struct availability_page *ret_page) MUST_CHECK;
#endif
