/* SPDX-License-Identifier: MIT */
#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>

enum { FIRST_ROOM = 64 };

void heap_release(struct heap *heap)
{
    for (size_t i = 0; i < heap->count; i++)
        heap->nodes[i]->place = 0;
    free(heap->nodes);
    *heap = (struct heap){0};
}

static void put_at(struct heap *heap, size_t at, struct heap_node *node)
{
    heap->nodes[at] = node;
    node->place = at + 1;
}

static void sift_up(struct heap *heap, size_t at, struct heap_node *node)
{
    for (; at > 0 && heap->nodes[(at - 1) / 2]->time > node->time; at = (at - 1) / 2)
        put_at(heap, at, heap->nodes[(at - 1) / 2]);
    put_at(heap, at, node);
}

static void sift_down(struct heap *heap, size_t at, struct heap_node *node)
{
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap->nodes[child + 1]->time < heap->nodes[child]->time)
            child++;
        if (heap->nodes[child]->time >= node->time)
            break;
        put_at(heap, at, heap->nodes[child]);
    }
    put_at(heap, at, node);
}

bool heap_add(struct heap *heap, struct heap_node *node, int64_t time)
{
    assert(node->place == 0);
    if (heap->count == heap->room) {
        size_t room = heap->room ? 2 * heap->room : FIRST_ROOM;
        struct heap_node **nodes = realloc(heap->nodes, room * sizeof(struct heap_node *));
        if (!nodes)
            return false;
        heap->nodes = nodes;
        heap->room = room;
    }
    node->time = time;
    sift_up(heap, heap->count++, node);
    return true;
}

/* Restores the heap order after the node at this position was changed or replaced. */
static void restore_order(struct heap *heap, size_t at, struct heap_node *node)
{
    if (at > 0 && heap->nodes[(at - 1) / 2]->time > node->time)
        sift_up(heap, at, node);
    else
        sift_down(heap, at, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (node->place == 0)
        return;
    size_t at = node->place - 1;
    assert(at < heap->count && heap->nodes[at] == node);
    struct heap_node *last = heap->nodes[--heap->count];
    node->place = 0;
    if (last != node)
        restore_order(heap, at, last);
}

void heap_move(struct heap *heap, struct heap_node *node, int64_t time)
{
    assert(node->place > 0 && node->place <= heap->count && heap->nodes[node->place - 1] == node);
    node->time = time;
    restore_order(heap, node->place - 1, node);
}
