/* SPDX-License-Identifier: MIT */
/* The queue and its pre-locks: the operations that a batch takes. Without threads, clock or database. */
#include <criterion/criterion.h>

#include "fixture.h"

TestSuite(queue, .init = fixture_begin, .fini = fixture_end);

Test(queue, operations_that_arrive_during_a_batch_join_the_next)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "a");
    acquire("k3", "a");
    cr_assert_str_eq(take(&second), "");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2 k3");
}

Test(queue, batches_of_different_semaphores_run_in_parallel)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "a");
    acquire("k3", "b");
    cr_assert_str_eq(take(&second), "k3");
}

Test(queue, blocked_operation_blocks_later_ones_of_its_semaphores)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "ab");
    acquire("k3", "b");
    cr_assert_str_eq(take(&second), "", "k3 would pass k2 for ever");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2 k3");
}

static const char *gather_more(struct batch *batch)
{
    queue_take_gathered(&queue, batch, 0);
    return fixture_keys(batch);
}

Test(queue, running_batch_takes_what_has_gathered_at_its_semaphores)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "a");
    acquire("k3", "b");
    acquire("k4", "a");
    cr_assert_str_eq(gather_more(&first), "k1 k2 k4");
    cr_assert_eq(first.entry_count, 1, "b is not locked");
    cr_assert_str_eq(take(&second), "k3");
}

Test(queue, operation_that_needs_another_semaphore_is_not_gathered_and_not_passed)
{
    acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    acquire("k2", "ab");
    acquire("k3", "a");
    cr_assert_str_eq(gather_more(&first), "k1");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2 k3");
}

/* A waiter that is left is decided before an acquire of its key that does not wait: that one would be its last client. */
Test(queue, gathered_waiters_stand_before_the_operations_that_the_batch_has)
{
    acquire("k1", "a");
    acquire("k2", "a");
    cr_assert_str_eq(take(&first), "k1 k2");
    acquire("k3", "a");
    struct asked *waiter = fixture_op();
    waiter->wants[0] = (struct want){.semaphore = BYTES("a"), .count = 1};
    waiter->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("w"), .wants = waiter->wants, .want_count = 1};
    op_init(&waiter->op, &waiter->operation, NEVER, fixture_decided);
    const uint64_t id = 1;
    cr_assert(queue_set_entries(&queue, &waiter->op, &id, 1));
    waiter->operation.kind = OP_LOOK;
    queue_put_back(&queue, &waiter->op);
    cr_assert_str_eq(gather_more(&first), "w k1 k2 k3");
    waiter->operation.kind = OP_ACQUIRE; /* it is part of no waiter */
}

Test(queue, full_batch_gathers_nothing)
{
    queue_halve_batches(&queue, 2 * BATCH_MAX_LEAST, 0);
    const char *const keys[] = {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        acquire(keys[i], "a");
    cr_assert_str_eq(take(&first), "k1 k2 k3 k4 k5 k6 k7 k8");
    cr_assert_str_eq(gather_more(&first), "k1 k2 k3 k4 k5 k6 k7 k8");
}

Test(queue, operation_that_must_wait_wakes_no_worker)
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

Test(queue, unknown_names_and_keys_are_resolved_first)
{
    acquire("k1", "x");
    release("k2");
    cr_assert_str_eq(take(&first), "");
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 2);
    cr_assert(queue_empty(&queue));
    cr_assert_eq(queue.other_count + queue.end_count, 0);
}

Test(queue, copied_key_saves_the_resolve)
{
    holds(&queue.rows, "k1", (struct permit[]){{.semaphore_id = 3, .count = 2}, {.semaphore_id = 1, .count = 1}}, 2);
    struct op *op = release("k1");
    cr_assert(op->resolved);
    cr_assert_eq(op->entry_count, 2);
    cr_assert_str_eq(take(&first), "k1");
    cr_assert_eq(first.entry_count, 2);
}

/* P6: a release that follows its acquire must find the grant. */
Test(queue, release_does_not_pass_the_acquire_of_its_key)
{
    acquire("other", "a");
    cr_assert_str_eq(take(&first), "other");
    acquire("k1", "a");
    struct op *op = release("k1"); /* its semaphores are not known */
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 1);
    cr_assert(queue_set_entries(&queue, op, NULL, 0));
    queue_follow_key(op);
    queue_put_back(&queue, op);
    cr_assert_str_eq(take(&second), "");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k1 k1");
    cr_assert_eq(second.ops[0]->operation->kind, OP_ACQUIRE);
}

Test(queue, release_waits_for_the_running_acquire_of_its_key)
{
    struct op *grant = acquire("k1", "a");
    cr_assert_str_eq(take(&first), "k1");
    struct op *op = release("k1");
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 1);
    cr_assert(queue_set_entries(&queue, op, NULL, 0));
    queue_follow_key(op);
    queue_put_back(&queue, op);
    cr_assert_str_eq(take(&second), "");
    queue_forget_key(&queue, grant);
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k1");
}

Test(queue, operation_behind_an_unresolved_one_is_resolved_with_it)
{
    holds(&queue.rows, "k1", (struct permit[]){{.semaphore_id = 1, .count = 1}}, 1);
    acquire("k1", "x");
    cr_assert_not(release("k1")->resolved);
    struct op *ops[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, ops, OPS), 2);
    cr_assert_eq(ops[0]->operation->kind, OP_ACQUIRE);
}

Test(queue, keys_are_removed_in_any_order)
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
Test(queue, batch_takes_no_more_slots_than_its_limit)
{
    acquire_many("k1", "a", BATCH_MAX_SLOTS - 2);
    acquire_many("k2", "a", 2);
    acquire_many("k3", "b", 1000);
    acquire("k4", "b");
    acquire_many("k5", "c", 1000000); /* counted: it moves no slots */
    cr_assert_str_eq(take(&first), "k1 k2 k5", "k4 would pass k3");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k3 k4");
}

Test(queue, batch_takes_no_more_keys_than_its_limit)
{
    static const char *const names[] = {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"};
    static struct bytes keys[ARRAY_LENGTH(names)][CONFIRM_MAX_KEYS];
    const uint64_t id = 1;
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct asked *confirm = fixture_op();
        keys[i][0] = bytes_of(names[i]);
        confirm->operation = (struct operation){
            .kind = OP_CONFIRM, .external_id = keys[i][0], .keys = keys[i], .key_count = CONFIRM_MAX_KEYS};
        op_init(&confirm->op, &confirm->operation, NEVER, fixture_decided);
        cr_assert(queue_set_entries(&queue, &confirm->op, &id, 1));
        confirm->op.arrival = i + 1;
        queue_put_back(&queue, &confirm->op);
    }
    cr_assert_str_eq(take(&first), "k1 k2 k3 k4 k5 k6 k7");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k8 k9");
}

Test(queue, operation_over_the_slot_limit_runs_alone)
{
    acquire_many("k1", "a", BATCH_MAX_SLOTS + 1);
    acquire_many("k2", "b", 1);
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2");
}

/* Otherwise two of them would keep both workers from all other semaphores. */
Test(queue, operations_over_the_slot_limit_run_one_at_a_time)
{
    acquire_many("k1", "a", BATCH_MAX_SLOTS + 1);
    acquire_many("k2", "b", BATCH_MAX_SLOTS + 1);
    acquire("k3", "b");
    acquire("k4", "c");
    cr_assert_str_eq(take(&first), "k1");
    cr_assert_str_eq(take(&second), "k4", "k3 would pass k2");
    queue_finish(&second);
    cr_assert_str_eq(take(&second), "");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2");
}

static struct asked *put(const char *name, const struct semaphore_change *change)
{
    struct asked *put = fixture_op();
    put->operation = (struct operation){.kind = OP_SEMAPHORE_PUT, .semaphore = bytes_of(name), .change = change};
    op_init(&put->op, &put->operation, NEVER, fixture_decided);
    queue_add(&queue, &put->op);
    return put;
}

Test(queue, large_semaphores_are_created_one_at_a_time)
{
    const struct semaphore_change large = {.has_capacity = true, .capacity = BATCH_MAX_SLOTS + 1};
    const struct semaphore_change small = {.has_capacity = true, .capacity = BATCH_MAX_SLOTS};
    const struct semaphore_change counted = {
        .has_capacity = true, .capacity = INT64_MAX, .has_kind = true, .kind = KIND_COUNTED};
    const struct semaphore_change labels = {.has_labels = true, .label_count = BATCH_MAX_SLOTS + 1};
    struct asked *puts[] = {put("new-1", &large), put("new-2", &labels), put("new-3", &small), put("new-4", &counted)};
    static const int order[] = {2, 3}; /* while the first one runs */
    cr_assert(queue_take(&queue, &first, 0));
    cr_assert_eq(first.ops[0], &puts[0]->op);
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++) {
        cr_assert(queue_take(&queue, &second, 0));
        cr_assert_eq(second.ops[0], &puts[order[i]]->op);
        queue_finish(&second);
    }
    cr_assert_not(queue_take(&queue, &second, 0));
    queue_finish(&first);
    cr_assert(queue_take(&queue, &second, 0));
    cr_assert_eq(second.ops[0], &puts[1]->op);
}

static void acquire_any_of(const char *key, const char *semaphore, size_t named_count)
{
    acquire(key, semaphore)->operation->wants[0].named_count = named_count;
}

/* Every slot that is named is read and resolved, also if only one of them is to be taken. */
Test(queue, batch_names_no_more_slots_than_its_limit)
{
    acquire_any_of("k1", "a", BATCH_MAX_SLOTS - 1001);
    acquire_any_of("k2", "a", 1000);
    acquire_any_of("k3", "a", 2);
    acquire("k4", "a");
    acquire("k5", "b");
    acquire_any_of("k6", "b", BATCH_MAX_SLOTS + 1);
    cr_assert_str_eq(take(&first), "k1 k2 k5", "k4 would pass k3");
    queue_finish(&first);
    cr_assert_str_eq(take(&first), "k3 k4");
    queue_finish(&first);
    cr_assert_str_eq(take(&first), "k6", "one that names more runs alone");
}

/* The slots that a release frees are known from the grant, or were resolved. */
Test(queue, releases_count_the_slots_of_their_keys)
{
    struct permit permit = {.semaphore_id = 1, .count = BATCH_MAX_SLOTS};
    holds(&queue.rows, "k1", &permit, 1);
    holds(&queue.rows, "k2", &permit, 1);
    release("k1");
    release("k2");
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2");
    queue_finish(&second);
    struct op *ops[OPS] = {release("k3"), release("k4")}, *taken[OPS];
    cr_assert_eq(queue_take_unresolved(&queue, taken, OPS), 2);
    for (int i = 0; i < 2; i++) {
        ops[i]->held_slots = BATCH_MAX_SLOTS;
        cr_assert(queue_set_entries(&queue, ops[i], &permit.semaphore_id, 1));
        queue_put_back(&queue, ops[i]);
    }
    cr_assert_str_eq(take(&first), "k3");
}

Test(queue, operation_put_back_keeps_its_place)
{
    acquire("k1", "a");
    acquire("k2", "a");
    cr_assert_str_eq(take(&first), "k1 k2");
    struct op *back = first.ops[0];
    uint64_t ids[] = {1, 2};
    acquire("k3", "a");
    cr_assert(queue_set_entries(&queue, back, ids, 2));
    queue_put_back(&queue, back);
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k1 k3");
    cr_assert_eq(second.entry_count, 2);
}

/* Adds an operation of permitd's own that ends the holder of a, and of `more` semaphores with ids from `from` on. */
static void end_first(const char *key, uint64_t from, size_t more)
{
    uint64_t ids[BATCH_MAX_SEMAPHORES] = {1};
    struct asked *asked = fixture_op();
    for (size_t i = 0; i < more; i++)
        ids[1 + i] = from + i;
    asked->operation = (struct operation){.kind = OP_EXPIRE, .external_id = bytes_of(key)};
    op_init(&asked->op, &asked->operation, NEVER, fixture_decided);
    cr_assert(queue_set_entries(&queue, &asked->op, ids, 1 + more));
    queue_add_first(&queue, &asked->op);
}

/* P7: an acquire of the units of due holders that have more semaphores than one batch. */
Test(queue, acquire_goes_behind_the_ends_of_due_holders)
{
    acquire("k1", "a");
    acquire("k2", "b");
    end_first("e3", 300, 40);
    end_first("e2", 200, 40);
    end_first("e1", 100, 20);
    cr_assert_str_eq(take(&first), "e1 e2 k2");
    cr_assert_str_eq(take(&second), "");
    queue_finish(&first);
    cr_assert_str_eq(take(&first), "e3 k1");
}

Test(queue, end_of_a_due_holder_with_as_many_semaphores_as_a_batch_runs_alone)
{
    acquire("k1", "ab");
    end_first("e1", 100, BATCH_MAX_SEMAPHORES - 1);
    cr_assert_str_eq(take(&first), "e1");
    queue_finish(&first);
    cr_assert_str_eq(take(&first), "k1");
}

Test(queue, end_of_a_due_holder_that_is_put_back_stays_first)
{
    end_first("e1", 100, 1);
    cr_assert_str_eq(take(&first), "e1");
    acquire("k1", "a");
    queue_put_back(&queue, first.ops[0]);
    queue_finish(&first);
    cr_assert_str_eq(take(&first), "e1 k1");
}

Test(queue, administrative_operations_run_alone)
{
    acquire("k1", "a");
    struct asked *put = fixture_op();
    put->operation = (struct operation){.kind = OP_SEMAPHORE_PUT, .semaphore = BYTES("a")};
    op_init(&put->op, &put->operation, NEVER, fixture_decided);
    queue_add(&queue, &put->op);
    acquire("k2", "a");
    cr_assert_str_eq(take(&first), "k1");
    queue_finish(&first);
    cr_assert(queue_take(&queue, &first, 0));
    cr_assert_eq(first.op_count, 1);
    cr_assert_eq(first.ops[0], &put->op);
    cr_assert_str_eq(take(&second), "");
    queue_finish(&first);
    cr_assert_str_eq(take(&second), "k2");
}

Test(queue, operation_past_its_deadline_is_removed)
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

Test(entries, reused_name_leads_to_the_new_semaphore)
{
    struct semaphore_cache entries;
    semaphore_cache_init(&entries, 100);
    semaphore_cache_put(&entries, 1, BYTES("a"), KIND_SLOTTED, 5);
    semaphore_cache_put(&entries, 2, BYTES("a"), KIND_COUNTED, 1);
    cr_assert_eq(semaphore_cache_find_name(&entries, BYTES("a"))->id, 2);
    cr_assert_null(semaphore_cache_find(&entries, 1)->name);
    semaphore_cache_put(&entries, 1, BYTES("b"), KIND_SLOTTED, 3);
    cr_assert_eq(semaphore_cache_find(&entries, 1)->floor, 5, "a floor never falls");
    semaphore_cache_release(&entries);
}

Test(entries, unused_entries_are_evicted_when_full)
{
    struct semaphore_cache entries;
    semaphore_cache_init(&entries, 10);
    struct semaphore_entry *used = semaphore_cache_get(&entries, 1);
    used->queued = 1;
    for (uint64_t id = 2; id < 1000; id++)
        cr_assert_not_null(semaphore_cache_get(&entries, id));
    cr_assert_leq(entries.by_id.count, 10);
    cr_assert_eq(semaphore_cache_find(&entries, 1), used);
    used->queued = 0;
    semaphore_cache_release(&entries);
}

/* P23: else a batch that takes longer than a session may is tried again and again, in turn by all servers. */
Test(queue, batches_are_smaller_for_some_time_after_one_that_took_too_long)
{
    static const char *const keys[] = {"k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8",
                                       "k9", "ka", "kb", "kc", "kd", "ke", "kf", "kg"};
    queue_halve_batches(&queue, 18, 1000);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        acquire(keys[i], "a");
    cr_assert(queue_take(&queue, &first, 2000));
    cr_assert_eq(first.op_count, 9);
    queue_finish(&first);
    for (size_t i = 0; i < 9; i++)
        acquire(keys[i], "a");
    cr_assert(queue_take(&queue, &first, 1000 + BATCH_GROWS_MS * US_PER_MS));
    cr_assert_eq(first.op_count, 16);
}
