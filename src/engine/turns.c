/* SPDX-License-Identifier: MIT */
#include "engine/turns.h"

#include <assert.h>

void turns_init(struct turns *turns)
{
    list_init(&turns->first);
    turns->count = 0;
}

void turns_add(struct turns *turns, struct turn *turn)
{
    turns->count++;
    list_init(&turn->behind);
    list_for_each (node, next, &turns->first) {
        struct turn *oldest = LIST_ENTRY(node, struct turn, node);
        if (bytes_equal(oldest->principal, turn->principal)) {
            list_append(&oldest->behind, &turn->node);
            return;
        }
    }
    list_append(&turns->first, &turn->node);
}

void turns_move(struct turns *turns, struct turns *from)
{
    assert(turns_empty(turns));
    list_append_all(&turns->first, &from->first);
    turns->count = from->count;
    from->count = 0;
}

struct turn *turns_take(struct turns *turns)
{
    assert(turns->count > 0);
    struct turn *taken = LIST_ENTRY(turns->first.next, struct turn, node);
    turns->count--;
    list_remove(&taken->node);
    if (list_empty(&taken->behind))
        return taken;
    struct turn *oldest = LIST_ENTRY(taken->behind.next, struct turn, node);
    list_remove(&oldest->node);
    list_append_all(&oldest->behind, &taken->behind);
    list_append(&turns->first, &oldest->node);
    return taken;
}
