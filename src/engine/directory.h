/* SPDX-License-Identifier: MIT */
/*
 * A bounded cache from external_id to the semaphores of live requests: it saves a release or a renewal its look-up. A
 * hint: a stale entry costs a put-back, a missing one a plain read. The caller locks.
 */
#ifndef ENGINE_DIRECTORY_H
#define ENGINE_DIRECTORY_H

#include "base/list.h"
#include "base/map.h"

struct directory {
    struct map entries;
    struct list recent; /* the most recently stored last */
    size_t max;
};

/* What a request holds of one semaphore. */
struct share {
    uint64_t semaphore_id;
    int64_t count; /* units; 0: not known */
};

struct directory_entry {
    struct map_node node;
    struct list recent;
    size_t count;
    struct share shares[]; /* ascending by id; the key's bytes follow */
};

void directory_init(struct directory *directory, size_t max_entries);
void directory_release(struct directory *directory);
/* Replaces an entry of the same key; forgets the oldest when full. Without memory it stores nothing. */
void directory_put(struct directory *directory, struct bytes external_id, const struct share *shares, size_t count);
/* NULL: not known. Valid until the next call that changes the directory. */
const struct directory_entry *directory_find(const struct directory *directory, struct bytes external_id);
void directory_forget(struct directory *directory, struct bytes external_id);
#endif
