/* SPDX-License-Identifier: MIT */
/* Those who wait until a semaphore has been made, in the queue. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "side.h"

static struct maker *maker;

static void makers_begin(void)
{
    side_begin();
    maker = calloc(1, sizeof *maker);
    list_init(&maker->askers);
    list_append(&queue.makers.all, &maker->node);
}

static void makers_end(void)
{
    list_remove(&maker->node);
    cr_assert(list_empty(&maker->askers));
    free(maker);
    side_end();
}

TestSuite(makers, .init = makers_begin, .fini = makers_end);

/* Step 0 has had it in its hands, and has found that it has to wait. */
static struct op *waits(const char *key, const char *semaphores)
{
    struct op *op = acquire(key, semaphores);
    struct op *taken;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
    queue_wait_for(&queue, maker, op);
    return op;
}

static void forget(struct op *op)
{
    queue_take_out(&queue, op);
    queue_forget_key(&queue, op);
}

Test(makers, who_waits_is_counted_and_may_leave)
{
    struct op *stays = waits("k1", "x");
    struct op *leaves = waits("k2", "x");
    cr_assert_eq(queue.acquire_count, 2);
    cr_assert(stays->queued && stays->maker == maker && !stays->resolved);
    cr_assert_str_eq(take(&first), "");
    forget(leaves);
    cr_assert_eq(queue.acquire_count, 1);
    cr_assert(!leaves->queued && !leaves->maker);
    cr_assert_eq(maker->askers.next, &stays->node);
    forget(stays);
}

Test(makers, who_waits_past_its_deadline_is_taken_out)
{
    struct op *late = waits("k1", "x");
    struct op *stays = waits("k2", "x");
    struct list expired;
    list_init(&expired);
    late->deadline = 5;
    queue_take_expired(&queue, 5, &expired);
    cr_assert_eq(expired.next, &late->node);
    cr_assert_eq(expired.prev, &late->node);
    cr_assert_null(late->maker);
    cr_assert_eq(queue.acquire_count, 1);
    list_remove(&late->node);
    forget(stays);
}

Test(makers, who_waited_comes_before_what_came_later_on_its_key)
{
    struct op *waited = waits("k1", "x");
    struct op *other = waits("k2", "x");
    struct op *later = release("k1");
    struct op *taken[3];
    cr_assert_eq(queue_before_on_key(later), waited);
    queue_look_up_again(&queue, maker);
    cr_assert(list_empty(&maker->askers) && !waited->maker && !other->maker);
    cr_assert_eq(queue.acquire_count, 2);
    cr_assert_eq(queue_take_unresolved(&queue, taken, 3), 3);
    cr_assert(taken[0] == waited && taken[1] == other && taken[2] == later);
    cr_assert_eq(queue.acquire_count, 0);
    cr_assert_eq(queue.end_count, 0);
}

Test(makers, what_was_taken_into_a_batch_may_be_looked_up_again)
{
    struct op *op = acquire("k1", "ab");
    cr_assert_str_eq(take(&first), "k1");
    queue_look_up(&queue, op);
    queue_finish(&queue, &first);
    cr_assert(!op->resolved && op->gate_count == 0);
    cr_assert_eq(gates_find(&queue.gates, 1)->waiting, 0);
    struct op *taken;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
}
