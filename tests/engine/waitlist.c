/* SPDX-License-Identifier: MIT */
/* The waitlist: parked requests, wakes, and waiters that join a batch. Without threads, clock or database. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"

/* Times in microseconds. No waiter is aged unless a test says so. */
enum { LONG_AGO = 10, NOW = 1000, LATER = 2000, YOUNG = LONG_AGO - 1 };

static struct list answered;

static struct semaphore_entry *entry_of(const char *name)
{
    return semaphore_cache_find_name(&queue.semaphores, bytes_of(name));
}

/* Updates the cache from the row of a semaphore as a batch saw it; each call has a new version. */
static void learn(const char *name, int64_t capacity, int64_t in_use)
{
    struct semaphore_entry *entry = entry_of(name);
    const struct semaphore row = {.id = entry->id,
                                  .capacity = capacity,
                                  .in_use = in_use,
                                  .version = entry->version + 1,
                                  .queue = entry->row.queue,
                                  .retired_at = NEVER};
    waiters_update_row(&queue.waiters, entry, &row, NEVER, NOW);
}

static void begin(void)
{
    fixture_begin();
    list_init(&answered);
    learn("a", 4, 4);
    learn("b", 4, 4);
    learn("c", 4, 4);
}

/* Releases the remaining waiters. */
static void end(void)
{
    list_for_each (node, next, &queue.waiters.all) {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter, node);
        waiters_take_clients(&queue.waiters, waiter, NEVER, &answered);
        queue_forget_key(&queue, &waiter->op);
    }
    list_for_each (node, next, &answered)
        list_remove(node);
    fixture_end();
}

TestSuite(waiters, .init = begin, .fini = end);

static struct waiter *place(struct asked *one)
{
    op_init(&one->op, &one->operation, NEVER, fixture_decided);
    one->op.arrival = ++queue.arrivals;
    one->op.wait_until = LATER;
    one->op.arrived_at = LONG_AGO;
    struct waiter *waiter = waiters_add(&queue.waiters, &queue.semaphores, &one->op, NOW);
    cr_assert_not_null(waiter);
    return waiter;
}

/* Parks an acquire that waits until LATER, for `count` units of each of the semaphores, one letter each. */
static struct waiter *park(const char *key, const char *semaphores, int64_t count)
{
    struct asked *one = fixture_op();
    one->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants};
    for (; *semaphores; semaphores++)
        one->wants[one->operation.want_count++] = (struct want){
            .semaphore = {semaphores, 1},
            .semaphore_id = semaphore_cache_find_name(&queue.semaphores, (struct bytes){semaphores, 1})->id,
            .count = count};
    return place(one);
}

/* Parks an acquire of one specific slot of one semaphore, by its number or its label. */
static struct waiter *park_for_slot(const char *key, const char *semaphore, struct slot_name *slot)
{
    struct asked *one = fixture_op();
    one->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants, .want_count = 1};
    one->wants[0] = (struct want){.semaphore = bytes_of(semaphore),
                                  .semaphore_id = entry_of(semaphore)->id,
                                  .count = 1,
                                  .choice = CHOOSE_NAMED,
                                  .named = slot,
                                  .named_count = 1};
    return place(one);
}

/* Adds a release of a key that holds `count` units of one semaphore. */
static struct op *release_of(const char *key, const char *semaphore, int64_t count)
{
    const struct share share = {entry_of(semaphore)->id, count};
    key_cache_put(&queue.key_cache, bytes_of(key), &share, 1);
    return release(key);
}

/* Finishes a batch that has refused its waiters. */
static void refuse_waiters(struct batch *batch)
{
    for (size_t i = 0; i < batch->op_count; i++) {
        struct op *op = batch->ops[i];
        if (!op->is_waiter_op)
            continue;
        waiter_of(op)->woken = false;
        for (size_t j = 0; j < waiter_of(op)->place_count; j++)
            waiter_of(op)->places[j].refused_at = waiter_of(op)->places[j].entry->version;
        queue_forget_key(&queue, op);
    }
    queue_finish(&queue, batch);
}

Test(waiters, batch_that_frees_a_unit_takes_the_first_waiter)
{
    park("w1", "a", 1);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, waiters_that_fit_the_freed_units_join_the_batch)
{
    park("w1", "a", 1);
    park("w2", "a", 2);
    park("w3", "a", 1);
    release_of("held", "a", 3);
    cr_assert_str_eq(take(&first), "w1 w2 held");
}

Test(waiters, unknown_holder_is_expected_to_free_one_unit)
{
    park("w1", "a", 1);
    park("w2", "a", 1);
    const struct share share = {1, 0};
    key_cache_put(&queue.key_cache, BYTES("held"), &share, 1);
    release("held");
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, fitting_waiter_passes_under_backfill)
{
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 held");
}

Test(waiters, no_waiter_passes_the_first_under_fifo)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
}

Test(waiters, no_waiter_passes_an_aged_one)
{
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert(queue_take(&queue, &first, NOW, LONG_AGO));
    cr_assert_eq(first.op_count, 1);
}

Test(waiters, new_request_is_behind_a_skipped_waiter)
{
    park("w1", "a", 1);
    struct op *newcomer = acquire("new", "a");
    struct op *elsewhere = acquire("other", "b");
    cr_assert_str_eq(take(&first), "new other");
    cr_assert_eq(newcomer->operation->queue_rank, RANK_BEHIND);
    cr_assert_eq(elsewhere->operation->queue_rank, RANK_NEW);
}

Test(waiters, new_request_may_pass_a_waiter_that_does_not_fit)
{
    park("w1", "a", 3);
    learn("a", 4, 3);
    struct op *newcomer = acquire("new", "a");
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(newcomer->operation->queue_rank, RANK_NEW);
}

Test(waiters, waiters_precede_new_requests_in_order_of_arrival)
{
    struct waiter *w1 = park("w1", "a", 1);
    struct waiter *w2 = park("w2", "a", 1);
    queue_wake(&queue, w2);
    struct op *newcomer = acquire("new", "a");
    learn("a", 4, 1);
    cr_assert_str_eq(take(&first), "w1 w2 new");
    cr_assert_eq(w1->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(newcomer->operation->queue_rank, RANK_NEW);
    cr_assert(w1->operation.waits);
    cr_assert_not(newcomer->operation->waits);
}

Test(waiters, expiring_waiter_does_not_take_units_of_the_first)
{
    struct waiter *w1 = park("w1", "a", 2);
    struct waiter *w2 = park("w2", "a", 2);
    queue_wake(&queue, w2);
    release_of("held", "a", 2);
    cr_assert_str_eq(take(&first), "w1 w2 held");
    cr_assert_eq(w1->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
}

Test(waiters, expiring_first_waiter_is_decided_alone)
{
    struct waiter *w1 = park("w1", "a", 2);
    park("w2", "a", 2);
    queue_wake(&queue, w1);
    release_of("held", "a", 2);
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, expiring_waiter_does_not_overtake)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    struct waiter *w1 = park("w1", "a", 1);
    park("w2", "a", 3);
    struct waiter *w3 = park("w3", "a", 1);
    learn("a", 4, 3);
    queue_wake(&queue, w1);
    queue_wake(&queue, w3);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w1 w3 held");
    cr_assert_eq(w1->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(w3->operation.queue_rank, RANK_BEHIND);
}

Test(waiters, new_request_put_back_precedes_later_waiters)
{
    struct op *newcomer = acquire("new", "a");
    newcomer->wait_until = LATER;
    cr_assert_str_eq(take(&first), "new");
    queue_finish(&queue, &first);
    struct waiter *waiter = park("w1", "a", 1);
    newcomer->put_backs = 1;
    queue_put_back(&queue, newcomer);
    learn("a", 4, 2);
    cr_assert_str_eq(take(&first), "new w1");
    cr_assert_eq(newcomer->operation->queue_rank, RANK_WAITER);
    cr_assert_eq(waiter->operation.queue_rank, RANK_WAITER);
}

/* While x is created from a template, another client begins to wait for a. The first request still precedes it. */
static struct op *acquire_overtaken(const char *key, const char *by, int64_t count)
{
    const uint64_t ids[] = {entry_of("a")->id, 4};
    struct op *op = acquire(key, "ax");
    struct op *taken;
    op->wait_until = LATER;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
    (void)park(by, "a", count);
    semaphore_cache_put(&queue.semaphores, 4, BYTES("x"), KIND_SLOTTED, 1);
    learn("x", 1, 0);
    for (size_t i = 0; i < ARRAY_LENGTH(ids); i++)
        op->operation->wants[i].semaphore_id = ids[i];
    cr_assert(queue_set_entries(&queue, op, ids, ARRAY_LENGTH(ids)));
    queue_put_back(&queue, op);
    return op;
}

Test(waiters, request_overtaken_during_a_creation_is_not_behind)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    struct op *op = acquire_overtaken("new", "w1", 3);
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(op->operation->queue_rank, RANK_WAITER);
}

Test(waiters, overtaken_request_is_decided_before_its_overtaker)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    struct op *op = acquire_overtaken("new", "w1", 3);
    struct op *later = acquire("later", "a");
    queue_wake(&queue, waiters_find(&queue.waiters, BYTES("w1")));
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "new w1 later");
    cr_assert_eq(op->operation->queue_rank, RANK_WAITER);
    cr_assert_eq(later->operation->queue_rank, RANK_NEW);
}

/* The waiter's client has disconnected; only its place is kept. */
Test(waiters, waiter_without_clients_is_no_overtaker)
{
    struct op *op = acquire_overtaken("new", "w1", 3);
    struct waiter *waiter = waiters_find(&queue.waiters, BYTES("w1"));
    waiters_remove_client(&queue.waiters, LIST_ENTRY(waiter->clients.next, struct op, node), LATER);
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(op->operation->queue_rank, RANK_NEW);
}

Test(waiters, waiter_of_two_semaphores_needs_units_of_both)
{
    park("w1", "ab", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
    queue_finish(&queue, &first);
    learn("a", 4, 3);
    cr_assert_null(waiters_next(entry_of("a"), YOUNG));
    release_of("other", "b", 1);
    cr_assert_str_eq(take(&first), "w1 other");
    cr_assert_eq(entry_of("a")->prelock_holder, &first, "the batch has both of its semaphores");
}

Test(waiters, waiter_with_another_busy_semaphore_is_not_passed)
{
    learn("b", 4, 3);
    acquire("busy", "b");
    cr_assert_str_eq(take(&second), "busy");
    struct waiter *waiter = park("w1", "ab", 1);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
    cr_assert(waiter->woken, "it goes first into a later batch");
    queue_finish(&queue, &first);
    queue_finish(&queue, &second);
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "w1");
}

Test(waiters, waiter_is_woken_by_units_it_was_not_refused)
{
    struct waiter *waiter = park("w1", "a", 2);
    cr_assert_null(waiters_next(entry_of("a"), YOUNG), "there is none");
    learn("a", 4, 3);
    cr_assert_null(waiters_next(entry_of("a"), YOUNG), "not enough");
    learn("a", 4, 2);
    cr_assert_eq(waiters_next(entry_of("a"), YOUNG), waiter);
    cr_assert(queue_wake_next(&queue, entry_of("a"), YOUNG));
    cr_assert_str_eq(take(&first), "w1");
    refuse_waiters(&first);
    cr_assert_null(waiters_next(entry_of("a"), YOUNG), "it was refused as things are");
    waiters_mark_uncertain(entry_of("a"));
    cr_assert_eq(waiters_next(entry_of("a"), YOUNG), waiter, "there may be more room than memory knows");
}

Test(waiters, waiter_without_clients_keeps_its_place_and_blocks_none)
{
    struct waiter *w1 = park("w1", "a", 1);
    park("w2", "a", 1);
    waiters_take_clients(&queue.waiters, w1, LATER, &answered);
    waiters_schedule(&queue.waiters, w1, LATER + 10);
    cr_assert_eq(queue.waiters.count, 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 held");
    refuse_waiters(&first);
    struct asked *again = fixture_op();
    again->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("w1")};
    op_init(&again->op, &again->operation, NEVER, fixture_decided);
    again->op.wait_until = LATER;
    cr_assert_eq(waiters_find(&queue.waiters, BYTES("w1")), w1);
    waiters_add_client(&queue.waiters, w1, &again->op);
    cr_assert_eq(queue.waiters.count, 2);
    release_of("held2", "a", 1);
    cr_assert_str_eq(take(&first), "w1 held2");
}

Test(waiters, only_clients_with_expired_waits_are_answered)
{
    struct waiter *waiter = park("w1", "a", 1);
    struct asked *other = fixture_op();
    other->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("w1")};
    op_init(&other->op, &other->operation, NEVER, fixture_decided);
    other->op.wait_until = NOW;
    waiters_add_client(&queue.waiters, waiter, &other->op);
    cr_assert_eq(waiter_wait_end(waiter), NOW, "the sooner of the two");
    waiters_take_clients(&queue.waiters, waiter, NOW, &answered);
    cr_assert_eq(answered.next, &other->op.node);
    cr_assert_eq(answered.prev, &other->op.node);
    waiters_schedule(&queue.waiters, waiter, 0);
    cr_assert_eq(waiter->wait_end.time, LATER);
}

Test(waiters, leaving_waiter_unblocks_the_next)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    struct waiter *waiter = park("w1", "a", 3);
    struct waiter *behind = park("w2", "a", 1);
    learn("a", 4, 3);
    cr_assert_null(waiters_next(entry_of("a"), YOUNG));
    waiters_remove_client(&queue.waiters, LIST_ENTRY(waiter->clients.next, struct op, node), 0);
    cr_assert_null(waiters_find(&queue.waiters, BYTES("w1")));
    cr_assert_eq(waiters_next(entry_of("a"), YOUNG), behind, "it stood in the way");
}

Test(waiters, unsatisfiable_waiter_is_decided_immediately)
{
    struct waiter *small = park("w1", "a", 1);
    struct waiter *large = park("w2", "a", 3);
    learn("a", 2, 2);
    cr_assert_eq(small->wait_end.time, LATER);
    cr_assert_eq(large->wait_end.time, NOW);
}

/* While the semaphore is closed (capacity 0), a request may wait for it. */
Test(waiters, unsatisfiable_waiter_is_decided_when_a_semaphore_opens)
{
    learn("a", 0, 0);
    struct waiter *small = park("w1", "a", 1);
    struct waiter *large = park("w2", "a", 3);
    learn("a", 2, 2);
    cr_assert_eq(small->wait_end.time, LATER);
    cr_assert_eq(large->wait_end.time, NOW);
}

Test(waiters, batch_takes_at_most_64_waiters_of_one_semaphore)
{
    enum { MANY = 70 };
    static char keys[MANY][8];
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "w%d", i);
        park(keys[i], "a", 1);
    }
    learn("a", 1000, 0);
    cr_assert(queue_wake_next(&queue, entry_of("a"), YOUNG));
    cr_assert(queue_take(&queue, &first, NOW, YOUNG));
    cr_assert_eq(first.op_count, BATCH_MAX_WAITERS + 1, "the one that was woken, and 64");
    cr_assert(entry_of("a")->waiter_skipped);
}

/* The cached values were old when the batch was filled: the waiter ahead may not block the new one at all. */
Test(waiters, waiter_behind_by_stale_values_is_woken_again)
{
    park("w1", "a", 3);
    struct op *newcomer = acquire("new", "a");
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(newcomer->operation->queue_rank, RANK_BEHIND, "for all we know nothing is free");
    learn("a", 4, 3);
    newcomer->operation->wants[0].semaphore_id = 1;
    newcomer->wait_until = LATER;
    queue_forget_key(&queue, newcomer);
    struct waiter *waiter = waiters_add(&queue.waiters, &queue.semaphores, newcomer, NOW);
    queue_finish(&queue, &first);
    cr_assert_eq(waiters_next(entry_of("a"), YOUNG), waiter);
}

/* w2 is in the batch, behind a waiter of b; no waiter of a may pass it. */
Test(waiters, no_waiter_passes_one_blocked_at_another_semaphore)
{
    entry_of("a")->row.queue = entry_of("b")->row.queue = QUEUE_FIFO;
    park("w1", "b", 3);
    struct waiter *w2 = park("w2", "ab", 1);
    struct waiter *w3 = park("w3", "a", 1);
    learn("b", 4, 3);
    queue_wake(&queue, w2);
    struct op *newcomer = acquire("new", "a");
    release_of("held", "a", 3);
    cr_assert_str_eq(take(&first), "w2 w3 new held");
    cr_assert_eq(w2->operation.queue_rank, RANK_BEHIND);
    cr_assert_eq(w3->operation.queue_rank, RANK_BEHIND);
    cr_assert_eq(newcomer->operation->queue_rank, RANK_BEHIND);
}

Test(waiters, waiter_with_a_paused_semaphore_blocks_none)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    park("w1", "ab", 1);
    struct waiter *w2 = park("w2", "a", 1);
    entry_of("b")->closed = true;
    learn("a", 4, 3);
    cr_assert_eq(waiters_next(entry_of("a"), YOUNG), w2);
    struct op *newcomer = acquire("new", "a");
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 new held");
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(newcomer->operation->queue_rank, RANK_NEW);
}

Test(waiters, pause_unblocks_the_waiters_behind)
{
    entry_of("a")->row.queue = QUEUE_FIFO;
    park("w1", "ab", 1);
    park("w2", "a", 1);
    const struct semaphore paused = {.id = entry_of("b")->id,
                                     .capacity = 4,
                                     .version = 9,
                                     .queue = QUEUE_BACKFILL,
                                     .paused_reason = BYTES("a reason"),
                                     .retired_at = NEVER};
    waiters_update_row(&queue.waiters, entry_of("b"), &paused, NEVER, NOW);
    cr_assert_eq(heap_first(&queue.waiters.dues), &entry_of("a")->due, "the wait poll wakes the waiter");
    cr_assert_eq(entry_of("a")->due.time, NOW);
}

/*
 * w2 is found at c, which the batch visits before a, and takes there the units that the first waiter of a cannot use.
 */
Test(waiters, waiter_found_at_another_semaphore_is_not_behind_a_passable_one)
{
    learn("a", 4, 3);
    park("w1", "ab", 1);
    struct waiter *w2 = park("w2", "ac", 1);
    release_of("held", "c", 1);
    cr_assert_str_eq(take(&first), "w2 held");
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
}

Test(waiters, waiter_found_at_another_semaphore_follows_one_that_takes_its_units)
{
    learn("a", 4, 3);
    struct waiter *w1 = park("w1", "a", 1);
    struct waiter *w2 = park("w2", "ac", 1);
    release_of("held", "c", 1);
    cr_assert_str_eq(take(&first), "w1 w2 held");
    cr_assert_eq(w1->operation.queue_rank, RANK_WAITER);
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
}

/* It has the entry of b because a due holder of a holds b as well. */
Test(waiters, waiter_put_back_with_another_semaphore_is_behind_none_there)
{
    const uint64_t wider[] = {entry_of("a")->id, entry_of("b")->id};
    entry_of("b")->row.queue = QUEUE_FIFO;
    park("w1", "b", 3);
    struct waiter *w2 = park("w2", "a", 1);
    learn("b", 4, 3);
    queue_wake(&queue, w2);
    cr_assert_str_eq(take(&first), "w2");
    queue_finish(&queue, &first);
    cr_assert(queue_set_entries(&queue, &w2->op, wider, 2));
    queue_put_back(&queue, &w2->op);
    cr_assert_str_eq(take(&first), "w2");
    cr_assert_eq(w2->operation.queue_rank, RANK_WAITER);
}

/* ---- specific slots ---- */

Test(waiters, waiter_for_a_specific_slot_blocks_none)
{
    struct slot_name seat = {.number = 1};
    entry_of("a")->row.queue = QUEUE_FIFO;
    park_for_slot("w1", "a", &seat);
    park("w2", "a", 1);
    learn("a", 4, 3);
    cr_assert_eq(waiters_next(entry_of("a"), LONG_AGO + 1), waiters_find(&queue.waiters, BYTES("w2")));
    acquire("n1", "a");
    cr_assert_str_eq(take(&first), "w2 n1");
}

Test(waiters, waiter_for_a_specific_slot_joins_a_batch_that_ends_a_holder)
{
    struct slot_name seat = {.number = 1};
    park_for_slot("w1", "a", &seat);
    release_of("held", "a", 1);
    acquire("n1", "a");
    cr_assert_str_eq(take(&first), "w1 held n1");
}

Test(waiters, freed_slot_is_usable_by_the_waiter_that_names_it)
{
    uint32_t numbers[] = {2, 3};
    struct bytes labels[] = {BYTES(""), BYTES("A3")};
    const struct permit freed = {.slots = {numbers, 2}, .labels = labels};
    const struct permit unlabelled = {.slots = {numbers, 2}};
    struct slot_name one = {.number = 1}, two = {.number = 2}, three = {.label = BYTES("A3")};
    struct waiter *w1 = park_for_slot("w1", "a", &one);
    struct waiter *w2 = park_for_slot("w2", "a", &two);
    struct waiter *w3 = park_for_slot("w3", "a", &three);
    cr_assert_not(waiter_can_use(w1, entry_of("a"), &freed));
    cr_assert(waiter_can_use(w2, entry_of("a"), &freed));
    cr_assert(waiter_can_use(w3, entry_of("a"), &freed));
    cr_assert_not(waiter_can_use(w3, entry_of("a"), &unlabelled));
}

/*
 * The capacity is 2, and both units are slots held since before it was lowered: slot 1 is free, and the semaphore is
 * full.
 */
Test(waiters, slot_beyond_the_capacity_is_usable_by_every_waiter_for_slots)
{
    uint32_t numbers[] = {4, 5};
    const struct permit freed = {.slots = {numbers, 2}};
    struct slot_name one = {.number = 1};
    struct waiter *w1 = park_for_slot("w1", "a", &one);
    learn("a", 5, 2);
    cr_assert_not(waiter_can_use(w1, entry_of("a"), &freed));
    learn("a", 2, 2);
    cr_assert(waiter_can_use(w1, entry_of("a"), &freed));
}

Test(waiters, slot_names_are_copied)
{
    char label[] = "A1";
    struct slot_name seat = {.label = {label, 2}};
    struct waiter *w1 = park_for_slot("w1", "a", &seat);
    label[0] = 'B';
    seat.number = 9;
    cr_assert(want_names_slot(w1->operation.wants, 7, BYTES("A1")));
    cr_assert_eq(entry_of("a")->specific_count, 1);
}

/* Parks an acquire of any of 1,000 slots with long labels: 264,000 bytes. */
static struct waiter *park_for_many(const char *key)
{
    enum { MANY = 1000, LENGTH = 240 };
    static char labels[MANY][LENGTH + 1];
    static struct slot_name names[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(labels[i], sizeof labels[i], "%0*d", LENGTH, i);
        names[i].label = (struct bytes){labels[i], LENGTH};
    }
    struct asked *one = fixture_op();
    one->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants, .want_count = 1};
    one->wants[0] = (struct want){.semaphore = BYTES("a"),
                                  .semaphore_id = entry_of("a")->id,
                                  .count = 1,
                                  .choice = CHOOSE_ANY_OF,
                                  .named = names,
                                  .named_count = MANY};
    return place(one);
}

static bool is_kept_when_it_leaves(const char *key)
{
    struct waiter *waiter = waiters_find(&queue.waiters, bytes_of(key));
    waiters_remove_client(&queue.waiters, LIST_ENTRY(waiter->clients.next, struct op, node), LATER + 10);
    return waiters_find(&queue.waiters, bytes_of(key)) != NULL;
}

Test(waiters, places_with_many_slot_names_are_kept_while_few)
{
    enum { FEW = 60, MORE = 70, KEY_SIZE = 8 };
    static char keys[MORE][KEY_SIZE];
    for (int i = 0; i < MORE; i++) {
        snprintf(keys[i], KEY_SIZE, "w%d", i);
        (void)park_for_many(keys[i]);
    }
    (void)park("usual", "a", 1);
    cr_expect(is_kept_when_it_leaves("usual"));
    for (int i = MORE - 1; i > FEW; i--)
        (void)is_kept_when_it_leaves(keys[i]);
    cr_expect_eq(queue.waiters.named_size, 63 * 264000, "%zu bytes are named", queue.waiters.named_size);
    cr_expect(is_kept_when_it_leaves(keys[0]));
    cr_expect_eq(queue.waiters.named_size, 63 * 264000, "%zu bytes are named", queue.waiters.named_size);
}
