/* SPDX-License-Identifier: MIT */
/*
 * A binary heap of things with a time: the earliest first. The things are the caller's; each has a struct heap_node in
 * it, which knows its place, so that any of them can be taken out. Not for several threads at once.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include "base/base.h"

struct heap_node {
    int64_t time;
    size_t place; /* in the heap, from 1; 0: in none */
};

struct heap {
    struct heap_node **nodes;
    size_t count;
    size_t room;
};

/* A heap of zeros is empty. Frees the heap's own memory, not what is in it. */
void heap_release(struct heap *heap);
/* Adds a node that is in no heap. False: no memory. */
bool heap_add(struct heap *heap, struct heap_node *node, int64_t time) MUST_CHECK;
/* Takes a node out; harmless if it is in none. */
void heap_remove(struct heap *heap, struct heap_node *node);
/* Gives a node of the heap another time. */
void heap_move(struct heap *heap, struct heap_node *node, int64_t time);
/* The earliest, or NULL. */
static inline struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count ? heap->nodes[0] : NULL;
}
#define HEAP_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
#endif
