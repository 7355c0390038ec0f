/* SPDX-License-Identifier: MIT */
/*
 * A hash table from bytes to the members that carry them. Links live in the members; the table owns only its buckets.
 * Hashes are keyed with a random seed per process, so that nobody can choose names that collide.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/base.h"

struct map_node {
    struct map_node *next;
    struct bytes key; /* owned by the member, unchanged while it is in the table */
    uint64_t hash;
};

struct map {
    struct map_node **buckets;
    size_t bucket_count; /* a power of two, or 0 */
    size_t count;
};

#define MAP_ENTRY(node, type, member) CONTAINER_OF(node, type, member)

/* Once per process, before the first table; without it hashes are the same in every run (as the simulation wants). */
void map_seed(uint64_t k0, uint64_t k1);
uint64_t map_hash(struct bytes key);

/* A zeroed map is an empty one. */
void map_release(struct map *map);
struct map_node *map_find(const struct map *map, struct bytes key);
/* The caller knows that the key is not there yet. False if there is no memory; then nothing has changed. */
bool map_insert(struct map *map, struct map_node *node, struct bytes key) MUST_CHECK;
void map_remove(struct map *map, struct map_node *node);
/* Calls visit for every member, in no order; visit may free the member but not change the table. */
void map_each(struct map *map, void (*visit)(struct map_node *node, void *context), void *context);
#endif
