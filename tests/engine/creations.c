/* SPDX-License-Identifier: MIT */
/* Operations in the queue that wait for the creation of a semaphore. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "fixture.h"

static struct template_create *creation;

static void makers_begin(void)
{
    fixture_begin();
    creation = calloc(1, sizeof *creation);
    list_init(&creation->clients);
    list_append(&queue.creations.all, &creation->node);
}

static void makers_end(void)
{
    list_remove(&creation->node);
    cr_assert(list_empty(&creation->clients));
    free(creation);
    fixture_end();
}

TestSuite(creations, .init = makers_begin, .fini = makers_end);

/* Adds an acquire that resolve has taken, and has found to wait for a creation. */
static struct op *waits(const char *key, const char *semaphores)
{
    struct op *op = acquire(key, semaphores);
    struct op *taken;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
    queue_await_creation(&queue, creation, op);
    return op;
}

static void forget(struct op *op)
{
    queue_take_out(&queue, op);
    queue_forget_key(&queue, op);
}

Test(creations, waiting_operation_is_counted_and_may_leave)
{
    struct op *stays = waits("k1", "x");
    struct op *leaves = waits("k2", "x");
    cr_assert_eq(queue.other_count, 2);
    cr_assert(stays->queued && stays->creation == creation && !stays->resolved);
    cr_assert_str_eq(take(&first), "");
    forget(leaves);
    cr_assert_eq(queue.other_count, 1);
    cr_assert(!leaves->queued && !leaves->creation);
    cr_assert_eq(creation->clients.next, &stays->node);
    forget(stays);
}

Test(creations, waiting_operation_past_its_deadline_is_removed)
{
    struct op *late = waits("k1", "x");
    struct op *stays = waits("k2", "x");
    struct list expired;
    list_init(&expired);
    late->deadline = 5;
    queue_take_expired(&queue, 5, &expired);
    cr_assert_eq(expired.next, &late->node);
    cr_assert_eq(expired.prev, &late->node);
    cr_assert_null(late->creation);
    cr_assert_eq(queue.other_count, 1);
    list_remove(&late->node);
    forget(stays);
}

Test(creations, waiting_operation_precedes_later_ones_on_its_key)
{
    struct op *waited = waits("k1", "x");
    struct op *other = waits("k2", "x");
    struct op *later = release("k1");
    struct op *taken[3];
    cr_assert_eq(queue_before_on_key(later), waited);
    queue_resolve_again(&queue, creation);
    cr_assert(list_empty(&creation->clients) && !waited->creation && !other->creation);
    cr_assert_eq(queue.other_count, 2);
    cr_assert_eq(queue_take_unresolved(&queue, taken, 3), 3);
    cr_assert(taken[0] == waited && taken[1] == other && taken[2] == later);
    cr_assert_eq(queue.other_count, 0);
    cr_assert_eq(queue.end_count, 0);
}

Test(creations, operation_of_a_batch_may_be_resolved_again)
{
    struct op *op = acquire("k1", "ab");
    cr_assert_str_eq(take(&first), "k1");
    queue_resolve(&queue, op);
    queue_finish(&first);
    cr_assert(!op->resolved && op->entry_count == 0);
    cr_assert_eq(semaphore_cache_find(&queue.semaphores, 1)->queued, 0);
    struct op *taken;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
}
