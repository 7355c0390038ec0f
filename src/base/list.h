/* SPDX-License-Identifier: MIT */
/* A circular, doubly linked list with links embedded in its members. Owns nothing. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <assert.h>

#include "base/base.h"

struct list {
    struct list *next;
    struct list *prev;
};

#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)
/* The loop's body may remove `node`. */
#define list_for_each(node, following, head)                                                                           \
    for (struct list *node = (head)->next, *following = node->next; node != (head);                                    \
         node = following, following = node->next)

/* Initialises a list, or a member that is on no list. */
static inline void list_init(struct list *list)
{
    list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
    assert(at->prev->next == at);
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_append(struct list *list, struct list *node)
{
    list_insert_before(list, node);
}

/* Removes a member; does nothing if it is on no list. */
static inline void list_remove(struct list *node)
{
    assert(node->prev->next == node && node->next->prev == node);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Moves all members of `from` to the end of `list`. */
static inline void list_append_all(struct list *list, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = list->prev;
    list->prev->next = from->next;
    from->prev->next = list;
    list->prev = from->prev;
    list_init(from);
}
#endif
