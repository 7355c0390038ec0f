/* SPDX-License-Identifier: MIT */
/*
 * A binary heap of nodes with a time, earliest first. Nodes are embedded in the caller's structs. Each node stores its
 * position, so any node can be removed. Not thread-safe.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include "base/base.h"

struct heap_node {
    int64_t time;
    size_t place; /* position in the heap, from 1; 0: in no heap */
};

struct heap {
    struct heap_node **nodes;
    size_t count;
    size_t room;
};

/* A heap of zeros is empty. Frees the heap's own memory, not what is in it. */
void heap_release(struct heap *heap);
/* Adds a node that is in no heap. False: out of memory. */
bool heap_add(struct heap *heap, struct heap_node *node, int64_t time) MUST_CHECK;
/* Removes a node; does nothing if it is in no heap. */
void heap_remove(struct heap *heap, struct heap_node *node);
/* Changes the time of a node in the heap. */
void heap_move(struct heap *heap, struct heap_node *node, int64_t time);
/* Returns the earliest node, or NULL. */
static inline struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count ? heap->nodes[0] : NULL;
}
#define HEAP_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
#endif
