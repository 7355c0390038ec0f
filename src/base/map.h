/* SPDX-License-Identifier: MIT */
/*
 * A hash table with byte strings as keys and links embedded in its members. The table owns only its buckets. Hashes are
 * keyed with a random seed per process, so that clients cannot force collisions.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/base.h"

struct map_node {
    struct map_node *next;
    struct bytes key; /* owned by the member; must not change while in the table */
    uint64_t hash;
};

struct map {
    struct map_node **buckets;
    size_t bucket_count; /* a power of two, or 0 */
    size_t count;
};

#define MAP_ENTRY(node, type, member) CONTAINER_OF(node, type, member)

/*
 * Sets the seed; call once per process, before the first table. Without it, hashes are the same in every run, as the
 * simulation requires.
 */
void map_seed(uint64_t k0, uint64_t k1);
uint64_t map_hash(struct bytes key);

/* Frees the buckets. A zeroed map is a valid empty map. */
void map_release(struct map *map);
struct map_node *map_find(const struct map *map, struct bytes key);
/* Inserts a node; the key must not be in the table. False: out of memory; nothing has changed. */
bool map_insert(struct map *map, struct map_node *node, struct bytes key) MUST_CHECK;
void map_remove(struct map *map, struct map_node *node);
#endif
