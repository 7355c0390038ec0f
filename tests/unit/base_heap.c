/* SPDX-License-Identifier: MIT */
/* The heap of times, against a plain array. */
#include <criterion/criterion.h>

#include "base/heap.h"
#include "random.h"

enum { THINGS = 200, STEPS = 20000 };

struct thing {
    int tag;
    struct heap_node node;
};

static int64_t earliest(const struct thing *things)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < THINGS; i++)
        if (things[i].node.place && things[i].node.time < first)
            first = things[i].node.time;
    return first;
}

Test(heap, first_entry_is_always_the_earliest)
{
    static struct thing things[THINGS];
    struct heap heap = {0};
    uint64_t random = 17;
    size_t in = 0;
    for (int step = 0; step < STEPS; step++) {
        struct thing *thing = &things[random_below(&random, THINGS)];
        int64_t time = (int64_t)random_below(&random, 500);
        if (!thing->node.place) {
            cr_assert(heap_add(&heap, &thing->node, time));
            in++;
        } else if (random_below(&random, 2)) {
            heap_remove(&heap, &thing->node);
            in--;
        } else {
            heap_move(&heap, &thing->node, time);
        }
        cr_assert_eq(heap.count, in);
        if (in)
            cr_assert_eq(heap_first(&heap)->time, earliest(things));
        else
            cr_assert_null(heap_first(&heap));
    }
    heap_release(&heap);
    cr_expect_eq(earliest(things), INT64_MAX, "whatever was in it is in none now");
}

Test(heap, removing_an_entry_in_no_heap_is_harmless)
{
    struct heap heap = {0};
    struct heap_node node = {0};
    heap_remove(&heap, &node);
    cr_assert(heap_add(&heap, &node, 5));
    heap_remove(&heap, &node);
    heap_remove(&heap, &node);
    cr_expect_eq(heap.count, 0);
    heap_release(&heap);
}
