/* SPDX-License-Identifier: MIT */
/* Who goes next: the queue and its gates, without threads, clock or database. */
#include <criterion/criterion.h>

#include "side.h"

TestSuite(queue, .init = side_begin, .fini = side_end);

Test(queue, what_gathers_while_a_batch_runs_goes_in_the_next_one)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "a");
    acquire("k3", "a");
    cr_assert_str_eq(take(&second), "");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k2 k3");
}

Test(queue, semaphores_that_nobody_has_run_side_by_side)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "a");
    acquire("k3", "b");
    cr_assert_str_eq(take(&second), "k3");
}

Test(queue, one_that_cannot_be_taken_keeps_its_semaphores_from_later_ones)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "ab");
    acquire("k3", "b");
    cr_assert_str_eq(take(&second), "", "k3 would pass k2 for ever");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k2 k3");
}

Test(queue, an_operation_that_has_to_wait_anyway_wakes_nobody)
{
    bool wake;
    add(OP_ACQUIRE, "k1", "a", &wake);
    cr_assert(wake);
    add(OP_ACQUIRE, "k2", "a", &wake);
    cr_assert_not(wake);
    cr_assert_str_eq(take(&first), "k1 k2");
    add(OP_ACQUIRE, "k3", "a", &wake);
    cr_assert_not(wake);
    add(OP_ACQUIRE, "k4", "b", &wake);
    cr_assert(wake);
}

Test(queue, unknown_names_and_keys_are_looked_up_first)
{
    acquire("k1", "x");
    release("k2");
    cr_assert_str_eq(take(&first), "");
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 2);
    cr_assert(queue_empty(&queue));
    cr_assert_eq(queue.acquire_count + queue.end_count, 0);
}

Test(queue, the_directory_saves_the_look_up)
{
    struct share shares[] = {{1, 1}, {3, 2}};
    directory_put(&queue.directory, BYTES("k1"), shares, 2);
    struct op *op = release("k1");
    cr_assert(op->resolved);
    cr_assert_eq(op->gate_count, 2);
    cr_assert_str_eq(take(&first), "k1");
    cr_assert_eq(first.gate_count, 2);
}

/* P6: a release that follows its acquire must find what that granted. */
Test(queue, a_release_does_not_pass_the_acquire_of_its_key)
{
    acquire("other", "a");
    cr_assert_str_eq(take(&first), "other");
    acquire("k1", "a");
    struct op *op = release("k1"); /* of no semaphore, as far as anybody knows */
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 1);
    cr_assert(queue_set_gates(&queue, op, NULL, 0));
    queue_follow_key(&queue, op);
    queue_put_back(&queue, op);
    cr_assert_str_eq(take(&second), "");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k1 k1");
    cr_assert_eq(second.ops[0]->operation->kind, OP_ACQUIRE);
}

Test(queue, a_release_waits_for_the_acquire_of_its_key_that_runs)
{
    struct op *grant = acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    struct op *op = release("k1");
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 1);
    cr_assert(queue_set_gates(&queue, op, NULL, 0));
    queue_follow_key(&queue, op);
    queue_put_back(&queue, op);
    cr_assert_str_eq(take(&second), "");
    queue_forget_key(&queue, grant);
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k1");
}

Test(queue, what_follows_an_unresolved_operation_on_its_key_is_looked_up_with_it)
{
    struct share share = {1, 1};
    directory_put(&queue.directory, BYTES("k1"), &share, 1);
    acquire("k1", "x");
    cr_assert_not(release("k1")->resolved);
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 2);
    cr_assert_eq(ops[0]->operation->kind, OP_ACQUIRE);
}

Test(queue, keys_are_forgotten_in_any_order)
{
    struct op *ops[] = {acquire("k1", "a"), acquire("k1", "a"), acquire("k1", "a")};
    queue_forget_key(&queue, ops[1]);
    queue_forget_key(&queue, ops[1]);
    queue_forget_key(&queue, ops[0]);
    cr_assert_eq(queue.keys.count, 1);
    queue_forget_key(&queue, ops[2]);
    cr_assert_eq(queue.keys.count, 0);
}

static struct op *acquire_many(const char *key, const char *semaphore, int64_t count)
{
    struct op *op = acquire(key, semaphore);
    op->operation->wants[0].count = count;
    return op;
}

/* P23: no transaction takes long. */
Test(queue, batch_takes_no_more_slots_than_its_bound)
{
    acquire_many("k1", "a", BATCH_MAX_SLOTS - 2);
    acquire_many("k2", "a", 2);
    acquire_many("k3", "b", 1000);
    acquire("k4", "b");
    acquire_many("k5", "c", 1000000); /* counted: it moves no slots */
    cr_assert_str_eq(take(&first), "k1 k2 k5", "k4 would pass k3");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k3 k4");
}

Test(queue, operation_over_the_bound_of_slots_goes_alone)
{
    acquire_many("k1", "a", BATCH_MAX_SLOTS + 1);
    acquire_many("k2", "b", 1);
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k2");
}

/* What a release gives back is known from the grant, or was looked up. */
Test(queue, releases_count_the_slots_of_their_keys)
{
    struct share share = {1, BATCH_MAX_SLOTS};
    directory_put(&queue.directory, BYTES("k1"), &share, 1);
    directory_put(&queue.directory, BYTES("k2"), &share, 1);
    release("k1");
    release("k2");
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k2");
    queue_finish(&queue, &second);
    struct op *ops[OPS] = {release("k3"), release("k4")}, *taken[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, taken, OPS), 2);
    for (int i = 0; i < 2; i++) {
        ops[i]->held_slots = BATCH_MAX_SLOTS;
        cr_assert(queue_set_gates(&queue, ops[i], &share.semaphore_id, 1));
        queue_put_back(&queue, ops[i]);
    }
    cr_assert_str_eq(take(&first), "k3");
}

Test(queue, an_operation_that_was_put_back_keeps_its_place)
{
    acquire("k1", "a");
    acquire("k2", "a");
    cr_assert_str_eq(take(&first), "k1 k2");
    struct op *back = first.ops[0];
    uint64_t ids[] = {1, 2};
    acquire("k3", "a");
    cr_assert(queue_set_gates(&queue, back, ids, 2));
    queue_put_back(&queue, back);
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k1 k3");
    cr_assert_eq(second.gate_count, 2);
}

Test(queue, administrative_operations_go_alone)
{
    acquire("k1", "a");
    struct asked *put = side_asked();
    put->operation = (struct operation){.kind = OP_SEMAPHORE_PUT, .semaphore = BYTES("a")};
    op_init(&put->op, &put->operation, NEVER, side_decided);
    queue_add(&queue, &put->op);
    acquire("k2", "a");
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&queue, &first);
    cr_assert(queue_take(&queue, &first, 0, -1));
    cr_assert_eq(first.op_count, 1);
    cr_assert_eq(first.ops[0], &put->op);
    cr_assert_str_eq(take(&second), "");
    queue_finish(&queue, &first);
    cr_assert_str_eq(take(&second), "k2");
}

Test(queue, what_is_past_its_deadline_is_taken_out)
{
    struct op *late = acquire("k1", "a");
    acquire("k2", "a");
    late->deadline = 5;
    struct list expired;
    list_init(&expired);
    queue_take_expired(&queue, 5, &expired);
    cr_assert_eq(LIST_ENTRY(expired.next, struct op, node), late);
    list_remove(&late->node);
    cr_assert(list_empty(&expired));
    cr_assert_str_eq(take(&first), "k2");
}

Test(directory, forgets_the_oldest_when_full)
{
    struct directory directory;
    struct share share = {1, 1};
    directory_init(&directory, 2);
    directory_put(&directory, BYTES("k1"), &share, 1);
    directory_put(&directory, BYTES("k2"), &share, 1);
    directory_put(&directory, BYTES("k1"), &share, 1); /* now the newest */
    directory_put(&directory, BYTES("k3"), &share, 1);
    cr_assert_not_null(directory_find(&directory, BYTES("k1")));
    cr_assert_null(directory_find(&directory, BYTES("k2")));
    directory_forget(&directory, BYTES("k1"));
    cr_assert_null(directory_find(&directory, BYTES("k1")));
    directory_release(&directory);
}

Test(gates, a_name_that_moved_leads_to_the_new_semaphore)
{
    struct gates gates;
    gates_init(&gates, 100);
    gates_learn(&gates, 1, BYTES("a"), KIND_SLOTTED, 5);
    gates_learn(&gates, 2, BYTES("a"), KIND_COUNTED, 1);
    cr_assert_eq(gates_find_name(&gates, BYTES("a"))->id, 2);
    cr_assert_null(gates_find(&gates, 1)->name);
    gates_learn(&gates, 1, BYTES("b"), KIND_SLOTTED, 3);
    cr_assert_eq(gates_find(&gates, 1)->floor, 5, "a floor never falls");
    gates_release(&gates);
}

Test(gates, those_that_nobody_uses_are_forgotten_when_there_are_too_many)
{
    struct gates gates;
    gates_init(&gates, 10);
    struct gate *used = gates_get(&gates, 1);
    used->waiting = 1;
    for (uint64_t id = 2; id < 1000; id++)
        cr_assert_not_null(gates_get(&gates, id));
    cr_assert_leq(gates.by_id.count, 10);
    cr_assert_eq(gates_find(&gates, 1), used);
    gates_release(&gates);
}
