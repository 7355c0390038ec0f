/* SPDX-License-Identifier: MIT */
#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t seed[2];

void map_seed(uint64_t k0, uint64_t k1)
{
    seed[0] = k0;
    seed[1] = k1;
}

static inline uint64_t rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3, as described by Aumasson and Bernstein. */
uint64_t map_hash(struct bytes key)
{
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d, seed[0] ^ 0x6c7967656e657261,
                     seed[1] ^ 0x7465646279746573};
    uint64_t word;
    size_t at = 0;
    for (; at + 8 <= key.length; at += 8) {
        memcpy(&word, key.data + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = 0;
    if (key.length > at)
        memcpy(&word, key.data + at, key.length - at);
    word |= (uint64_t)key.length << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_release(struct map *map)
{
    free(map->buckets);
    *map = (struct map){0};
}

struct map_node *map_find(const struct map *map, struct bytes key)
{
    if (map->count == 0)
        return NULL;
    uint64_t hash = map_hash(key);
    struct map_node *node = map->buckets[hash & (map->bucket_count - 1)];
    while (node && !(node->hash == hash && bytes_equal(node->key, key)))
        node = node->next;
    return node;
}

static void link_node(struct map_node **buckets, size_t bucket_count, struct map_node *node)
{
    struct map_node **bucket = &buckets[node->hash & (bucket_count - 1)];
    node->next = *bucket;
    *bucket = node;
}

static bool map_grow(struct map *map)
{
    size_t bucket_count = map->bucket_count ? 2 * map->bucket_count : 64;
    struct map_node **buckets = calloc(bucket_count, sizeof(struct map_node *));
    if (!buckets)
        return false;
    for (size_t i = 0; i < map->bucket_count; i++)
        for (struct map_node *node = map->buckets[i], *next; node; node = next) {
            next = node->next;
            link_node(buckets, bucket_count, node);
        }
    free(map->buckets);
    map->buckets = buckets;
    map->bucket_count = bucket_count;
    return true;
}

bool map_insert(struct map *map, struct map_node *node, struct bytes key)
{
    if (map->count >= map->bucket_count && !map_grow(map))
        return false;
    node->key = key;
    node->hash = map_hash(key);
    link_node(map->buckets, map->bucket_count, node);
    map->count++;
    return true;
}

void map_remove(struct map *map, struct map_node *node)
{
    assert(map->count > 0);
    struct map_node **link = &map->buckets[node->hash & (map->bucket_count - 1)];
    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    map->count--;
}
