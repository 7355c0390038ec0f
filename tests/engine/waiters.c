/* SPDX-License-Identifier: MIT */
/* Who waits, who is called, and who goes along in a batch: without threads, clock or database. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "side.h"

/* Moments, in microseconds. Nobody is aged unless a test says so. */
enum { LONG_AGO = 10, NOW = 1000, LATER = 2000, YOUNG = LONG_AGO - 1 };

static struct list answered;

static struct gate *gate_of(const char *name)
{
    return gates_find_name(&queue.gates, bytes_of(name));
}

/* The row of a semaphore as a batch saw it; each time it has changed. */
static void learn(const char *name, int64_t capacity, int64_t in_use)
{
    struct gate *gate = gate_of(name);
    const struct semaphore row = {.id = gate->id,
                                  .capacity = capacity,
                                  .in_use = in_use,
                                  .version = gate->version + 1,
                                  .queue = gate->fifo ? QUEUE_FIFO : QUEUE_BACKFILL,
                                  .retired_at = NEVER};
    waiters_learn(&queue.waiters, gate, &row, NEVER, NOW);
}

static void begin(void)
{
    side_begin();
    list_init(&answered);
    learn("a", 4, 4);
    learn("b", 4, 4);
    learn("c", 4, 4);
}

/* Those who still wait are let go. */
static void end(void)
{
    list_for_each (node, next, &queue.waiters.all) {
        struct waiter *waiter = LIST_ENTRY(node, struct waiter, node);
        waiters_dismiss(&queue.waiters, waiter, NEVER, &answered);
        queue_forget_key(&queue, &waiter->op);
    }
    list_for_each (node, next, &answered)
        list_remove(node);
    side_end();
}

TestSuite(waiters, .init = begin, .fini = end);

static struct waiter *place(struct asked *one)
{
    op_init(&one->op, &one->operation, NEVER, side_decided);
    one->op.arrival = ++queue.arrivals;
    one->op.wait_until = LATER;
    one->op.arrived_at = LONG_AGO;
    struct waiter *waiter = waiters_add(&queue.waiters, &queue.gates, &one->op, NOW);
    cr_assert_not_null(waiter);
    return waiter;
}

/* Somebody who found no room and waits until LATER, for `count` units of each of the semaphores, a letter each. */
static struct waiter *park(const char *key, const char *semaphores, int64_t count)
{
    struct asked *one = side_asked();
    one->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants};
    for (; *semaphores; semaphores++)
        one->wants[one->operation.want_count++] =
            (struct want){.semaphore = {semaphores, 1},
                          .semaphore_id = gates_find_name(&queue.gates, (struct bytes){semaphores, 1})->id,
                          .count = count};
    return place(one);
}

/* The same for one certain slot of one semaphore: by its number, or by its label. */
static struct waiter *park_for_slot(const char *key, const char *semaphore, struct slot_name *slot)
{
    struct asked *one = side_asked();
    one->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants, .want_count = 1};
    one->wants[0] = (struct want){.semaphore = bytes_of(semaphore),
                                  .semaphore_id = gate_of(semaphore)->id,
                                  .count = 1,
                                  .choice = CHOOSE_NAMED,
                                  .named = slot,
                                  .named_count = 1};
    return place(one);
}

/* A release of what holds so many units of one semaphore. */
static struct op *release_of(const char *key, const char *semaphore, int64_t count)
{
    const struct share share = {gate_of(semaphore)->id, count};
    directory_put(&queue.directory, bytes_of(key), &share, 1);
    return release(key);
}

/* The waiters of a batch that is over were refused. */
static void refuse_waiters(struct batch *batch)
{
    for (size_t i = 0; i < batch->op_count; i++) {
        struct op *op = batch->ops[i];
        if (!op->stands)
            continue;
        waiter_of(op)->called = false;
        for (size_t j = 0; j < waiter_of(op)->stand_count; j++)
            waiter_of(op)->stands[j].refused_at = waiter_of(op)->stands[j].gate->version;
        queue_forget_key(&queue, op);
    }
    queue_finish(&queue, batch);
}

Test(waiters, the_batch_that_frees_a_unit_takes_the_first_waiter_along)
{
    park("w1", "a", 1);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, as_many_go_along_as_units_are_freed)
{
    park("w1", "a", 1);
    park("w2", "a", 2);
    park("w3", "a", 1);
    release_of("held", "a", 3);
    cr_assert_str_eq(take(&first), "w1 w2 held");
}

Test(waiters, of_a_holder_that_is_not_known_a_unit_is_expected)
{
    park("w1", "a", 1);
    park("w2", "a", 1);
    const struct share share = {1, 0};
    directory_put(&queue.directory, BYTES("held"), &share, 1);
    release("held");
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, with_backfill_what_fits_passes_what_does_not)
{
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 held");
}

Test(waiters, with_fifo_nobody_passes_the_first)
{
    gate_of("a")->fifo = true;
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
}

Test(waiters, nobody_passes_an_aged_one)
{
    park("w1", "a", 3);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert(queue_take(&queue, &first, NOW, LONG_AGO));
    cr_assert_eq(first.op_count, 1);
}

Test(waiters, a_newcomer_is_behind_when_a_waiter_is_left_out)
{
    park("w1", "a", 1);
    struct op *newcomer = acquire("new", "a");
    struct op *elsewhere = acquire("other", "b");
    cr_assert_str_eq(take(&first), "new other");
    cr_assert_eq(newcomer->operation->place, PLACE_BEHIND);
    cr_assert_eq(elsewhere->operation->place, PLACE_NEWCOMER);
}

Test(waiters, a_newcomer_may_pass_one_that_does_not_fit)
{
    park("w1", "a", 3);
    learn("a", 4, 3);
    struct op *newcomer = acquire("new", "a");
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(newcomer->operation->place, PLACE_NEWCOMER);
}

Test(waiters, stand_before_newcomers_in_order_of_arrival)
{
    struct waiter *w1 = park("w1", "a", 1);
    struct waiter *w2 = park("w2", "a", 1);
    queue_call(&queue, w2);
    struct op *newcomer = acquire("new", "a");
    learn("a", 4, 1);
    cr_assert_str_eq(take(&first), "w1 w2 new");
    cr_assert_eq(w1->operation.place, PLACE_WAITER);
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
    cr_assert_eq(newcomer->operation->place, PLACE_NEWCOMER);
    cr_assert(w1->operation.waits);
    cr_assert_not(newcomer->operation->waits);
}

Test(waiters, one_that_has_its_last_look_does_not_take_what_the_first_waits_for)
{
    struct waiter *w1 = park("w1", "a", 2);
    struct waiter *w2 = park("w2", "a", 2);
    queue_call(&queue, w2);
    release_of("held", "a", 2);
    cr_assert_str_eq(take(&first), "w1 w2 held");
    cr_assert_eq(w1->operation.place, PLACE_WAITER);
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
}

Test(waiters, the_first_has_its_last_look_alone)
{
    struct waiter *w1 = park("w1", "a", 2);
    park("w2", "a", 2);
    queue_call(&queue, w1);
    release_of("held", "a", 2);
    cr_assert_str_eq(take(&first), "w1 held");
}

Test(waiters, one_that_has_its_last_look_stays_behind_whom_it_must_not_pass)
{
    gate_of("a")->fifo = true;
    struct waiter *w1 = park("w1", "a", 1);
    park("w2", "a", 3);
    struct waiter *w3 = park("w3", "a", 1);
    learn("a", 4, 3);
    queue_call(&queue, w1);
    queue_call(&queue, w3);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w1 w3 held");
    cr_assert_eq(w1->operation.place, PLACE_WAITER);
    cr_assert_eq(w3->operation.place, PLACE_BEHIND);
}

Test(waiters, a_newcomer_that_waits_and_was_put_back_comes_before_whom_it_kept_waiting)
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
    cr_assert_eq(newcomer->operation->place, PLACE_WAITER);
    cr_assert_eq(waiter->operation.place, PLACE_WAITER);
}

/* While a template makes x, another client begins to wait for a. The place of the first is still before it. */
static struct op *acquire_that_is_overtaken(const char *key, const char *by, int64_t count)
{
    const uint64_t ids[] = {gate_of("a")->id, 4};
    struct op *op = acquire(key, "ax");
    struct op *taken;
    op->wait_until = LATER;
    cr_assert_eq(queue_take_unresolved(&queue, &taken, 1), 1);
    cr_assert_eq(taken, op);
    (void)park(by, "a", count);
    gates_learn(&queue.gates, 4, BYTES("x"), KIND_SLOTTED, 1);
    learn("x", 1, 0);
    for (size_t i = 0; i < ARRAY_LENGTH(ids); i++)
        op->operation->wants[i].semaphore_id = ids[i];
    cr_assert(queue_set_gates(&queue, op, ids, ARRAY_LENGTH(ids)));
    queue_put_back(&queue, op);
    return op;
}

Test(waiters, one_that_was_overtaken_while_a_semaphore_was_made_is_not_behind)
{
    gate_of("a")->fifo = true;
    struct op *op = acquire_that_is_overtaken("new", "w1", 3);
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(op->operation->place, PLACE_WAITER);
}

Test(waiters, one_that_was_overtaken_is_decided_before_who_overtook_it)
{
    gate_of("a")->fifo = true;
    struct op *op = acquire_that_is_overtaken("new", "w1", 3);
    struct op *later = acquire("later", "a");
    queue_call(&queue, waiters_find(&queue.waiters, BYTES("w1")));
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "new w1 later");
    cr_assert_eq(op->operation->place, PLACE_WAITER);
    cr_assert_eq(later->operation->place, PLACE_NEWCOMER);
}

/* Its client has gone; what is kept is only the place. */
Test(waiters, a_place_that_nobody_asks_for_has_overtaken_nobody)
{
    struct op *op = acquire_that_is_overtaken("new", "w1", 3);
    struct waiter *waiter = waiters_find(&queue.waiters, BYTES("w1"));
    waiters_leave(&queue.waiters, LIST_ENTRY(waiter->askers.next, struct op, node), LATER);
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(op->operation->place, PLACE_NEWCOMER);
}

Test(waiters, one_over_two_semaphores_needs_room_on_both)
{
    park("w1", "ab", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
    queue_finish(&queue, &first);
    learn("a", 4, 3);
    cr_assert_null(waiters_next(gate_of("a"), YOUNG));
    release_of("other", "b", 1);
    cr_assert_str_eq(take(&first), "w1 other");
    cr_assert_eq(gate_of("a")->batch, &first, "the batch has both of its semaphores");
}

Test(waiters, one_whose_other_semaphore_is_busy_is_not_passed)
{
    learn("b", 4, 3);
    acquire("busy", "b");
    cr_assert_str_eq(take(&second), "busy");
    struct waiter *waiter = park("w1", "ab", 1);
    park("w2", "a", 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "held");
    cr_assert(waiter->called, "it goes first into a later batch");
    queue_finish(&queue, &first);
    queue_finish(&queue, &second);
    learn("a", 4, 3);
    cr_assert_str_eq(take(&first), "w1");
}

Test(waiters, are_called_when_there_is_room_that_they_were_not_refused)
{
    struct waiter *waiter = park("w1", "a", 2);
    cr_assert_null(waiters_next(gate_of("a"), YOUNG), "there is none");
    learn("a", 4, 3);
    cr_assert_null(waiters_next(gate_of("a"), YOUNG), "not enough");
    learn("a", 4, 2);
    cr_assert_eq(waiters_next(gate_of("a"), YOUNG), waiter);
    cr_assert(queue_call_next(&queue, gate_of("a"), YOUNG));
    cr_assert_str_eq(take(&first), "w1");
    refuse_waiters(&first);
    cr_assert_null(waiters_next(gate_of("a"), YOUNG), "it was refused as things are");
    waiters_doubt(gate_of("a"));
    cr_assert_eq(waiters_next(gate_of("a"), YOUNG), waiter, "there may be more room than memory knows");
}

Test(waiters, one_that_nobody_asks_for_is_in_nobodys_way_and_keeps_its_place)
{
    struct waiter *w1 = park("w1", "a", 1);
    park("w2", "a", 1);
    waiters_dismiss(&queue.waiters, w1, LATER, &answered);
    waiters_settle(&queue.waiters, w1, LATER + 10);
    cr_assert_eq(queue.waiters.count, 1);
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 held");
    refuse_waiters(&first);
    struct asked *again = side_asked();
    again->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("w1")};
    op_init(&again->op, &again->operation, NEVER, side_decided);
    again->op.wait_until = LATER;
    cr_assert_eq(waiters_find(&queue.waiters, BYTES("w1")), w1);
    waiters_ask(&queue.waiters, w1, &again->op);
    cr_assert_eq(queue.waiters.count, 2);
    release_of("held2", "a", 1);
    cr_assert_str_eq(take(&first), "w1 held2");
}

Test(waiters, only_those_whose_time_is_over_are_dismissed)
{
    struct waiter *waiter = park("w1", "a", 1);
    struct asked *other = side_asked();
    other->operation = (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("w1")};
    op_init(&other->op, &other->operation, NEVER, side_decided);
    other->op.wait_until = NOW;
    waiters_ask(&queue.waiters, waiter, &other->op);
    cr_assert_eq(waiter_turn(waiter), NOW, "the sooner of the two");
    waiters_dismiss(&queue.waiters, waiter, NOW, &answered);
    cr_assert_eq(answered.next, &other->op.node);
    cr_assert_eq(answered.prev, &other->op.node);
    waiters_settle(&queue.waiters, waiter, 0);
    cr_assert_eq(waiter->turn.time, LATER);
}

Test(waiters, leave_without_a_trace_but_for_doubt)
{
    gate_of("a")->fifo = true;
    struct waiter *waiter = park("w1", "a", 3);
    struct waiter *behind = park("w2", "a", 1);
    learn("a", 4, 3);
    cr_assert_null(waiters_next(gate_of("a"), YOUNG));
    waiters_leave(&queue.waiters, LIST_ENTRY(waiter->askers.next, struct op, node), 0);
    cr_assert_null(waiters_find(&queue.waiters, BYTES("w1")));
    cr_assert_eq(waiters_next(gate_of("a"), YOUNG), behind, "it stood in the way");
}

Test(waiters, those_that_can_never_be_served_have_their_turn_at_once)
{
    struct waiter *small = park("w1", "a", 1);
    struct waiter *large = park("w2", "a", 3);
    learn("a", 2, 2);
    cr_assert_eq(small->turn.time, LATER);
    cr_assert_eq(large->turn.time, NOW);
}

/* Closed, it was something to wait for. */
Test(waiters, those_that_can_never_be_served_have_their_turn_also_when_a_semaphore_opens)
{
    learn("a", 0, 0);
    struct waiter *small = park("w1", "a", 1);
    struct waiter *large = park("w2", "a", 3);
    learn("a", 2, 2);
    cr_assert_eq(small->turn.time, LATER);
    cr_assert_eq(large->turn.time, NOW);
}

Test(waiters, a_batch_has_at_most_64_of_one_semaphore)
{
    enum { MANY = 70 };
    static char keys[MANY][8];
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "w%d", i);
        park(keys[i], "a", 1);
    }
    learn("a", 1000, 0);
    cr_assert(queue_call_next(&queue, gate_of("a"), YOUNG));
    cr_assert(queue_take(&queue, &first, NOW, YOUNG));
    cr_assert_eq(first.op_count, BATCH_MAX_WAITERS + 1, "the one that was called, and 64");
    cr_assert(gate_of("a")->left_out);
}

/* What was known when its batch was put together was old: who stood before it may not be in its way at all. */
Test(waiters, one_that_was_behind_by_old_news_is_called_again)
{
    park("w1", "a", 3);
    struct op *newcomer = acquire("new", "a");
    cr_assert_str_eq(take(&first), "new");
    cr_assert_eq(newcomer->operation->place, PLACE_BEHIND, "for all we know nothing is free");
    learn("a", 4, 3);
    newcomer->operation->wants[0].semaphore_id = 1;
    newcomer->wait_until = LATER;
    queue_forget_key(&queue, newcomer);
    struct waiter *waiter = waiters_add(&queue.waiters, &queue.gates, newcomer, NOW);
    queue_finish(&queue, &first);
    cr_assert_eq(waiters_next(gate_of("a"), YOUNG), waiter);
}

/* It is in the batch, behind somebody at one semaphore; at the other nobody may pass it. */
Test(waiters, nobody_passes_one_that_is_kept_back_elsewhere)
{
    gate_of("a")->fifo = gate_of("b")->fifo = true;
    park("w1", "b", 3);
    struct waiter *w2 = park("w2", "ab", 1);
    struct waiter *w3 = park("w3", "a", 1);
    learn("b", 4, 3);
    queue_call(&queue, w2);
    struct op *newcomer = acquire("new", "a");
    release_of("held", "a", 3);
    cr_assert_str_eq(take(&first), "w2 w3 new held");
    cr_assert_eq(w2->operation.place, PLACE_BEHIND);
    cr_assert_eq(w3->operation.place, PLACE_BEHIND);
    cr_assert_eq(newcomer->operation->place, PLACE_BEHIND);
}

Test(waiters, one_that_waits_for_a_paused_semaphore_too_holds_nobody_up)
{
    gate_of("a")->fifo = true;
    park("w1", "ab", 1);
    struct waiter *w2 = park("w2", "a", 1);
    gate_of("b")->closed = true;
    learn("a", 4, 3);
    cr_assert_eq(waiters_next(gate_of("a"), YOUNG), w2);
    struct op *newcomer = acquire("new", "a");
    release_of("held", "a", 1);
    cr_assert_str_eq(take(&first), "w2 new held");
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
    cr_assert_eq(newcomer->operation->place, PLACE_NEWCOMER);
}

Test(waiters, a_pause_lets_those_pass_whom_it_held_up)
{
    gate_of("a")->fifo = true;
    park("w1", "ab", 1);
    park("w2", "a", 1);
    const struct semaphore paused = {.id = gate_of("b")->id,
                                     .capacity = 4,
                                     .version = 9,
                                     .queue = QUEUE_BACKFILL,
                                     .paused_reason = BYTES("a reason"),
                                     .retired_at = NEVER};
    waiters_learn(&queue.waiters, gate_of("b"), &paused, NEVER, NOW);
    cr_assert_eq(heap_first(&queue.waiters.dues), &gate_of("a")->due, "the watcher calls who may fit");
    cr_assert_eq(gate_of("a")->due.time, NOW);
}

/* It is found at c, which the batch looks at before a, and there spends what the first of a cannot use. */
Test(waiters, one_that_was_found_elsewhere_is_not_behind_one_that_may_be_passed)
{
    learn("a", 4, 3);
    park("w1", "ab", 1);
    struct waiter *w2 = park("w2", "ac", 1);
    release_of("held", "c", 1);
    cr_assert_str_eq(take(&first), "w2 held");
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
}

Test(waiters, one_that_was_found_elsewhere_comes_behind_one_that_takes_the_same)
{
    learn("a", 4, 3);
    struct waiter *w1 = park("w1", "a", 1);
    struct waiter *w2 = park("w2", "ac", 1);
    release_of("held", "c", 1);
    cr_assert_str_eq(take(&first), "w1 w2 held");
    cr_assert_eq(w1->operation.place, PLACE_WAITER);
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
}

/* It has the gate of b because a due holder of a holds b as well. */
Test(waiters, one_that_was_put_back_with_more_is_behind_nobody_there)
{
    const uint64_t wider[] = {gate_of("a")->id, gate_of("b")->id};
    gate_of("b")->fifo = true;
    park("w1", "b", 3);
    struct waiter *w2 = park("w2", "a", 1);
    learn("b", 4, 3);
    queue_call(&queue, w2);
    cr_assert_str_eq(take(&first), "w2");
    queue_finish(&queue, &first);
    cr_assert(queue_set_gates(&queue, &w2->op, wider, 2));
    queue_put_back(&queue, &w2->op);
    cr_assert_str_eq(take(&first), "w2");
    cr_assert_eq(w2->operation.place, PLACE_WAITER);
}

/* ---- certain slots ---- */

Test(waiters, who_wants_a_certain_slot_is_in_nobodys_way)
{
    struct slot_name seat = {.number = 1};
    gate_of("a")->fifo = true;
    park_for_slot("w1", "a", &seat);
    park("w2", "a", 1);
    learn("a", 4, 3);
    cr_assert_eq(waiters_next(gate_of("a"), LONG_AGO + 1), waiters_find(&queue.waiters, BYTES("w2")));
    acquire("n1", "a");
    cr_assert_str_eq(take(&first), "w2 n1");
}

Test(waiters, who_wants_a_certain_slot_goes_along_when_something_ends)
{
    struct slot_name seat = {.number = 1};
    park_for_slot("w1", "a", &seat);
    release_of("held", "a", 1);
    acquire("n1", "a");
    cr_assert_str_eq(take(&first), "w1 held n1");
}

Test(waiters, a_slot_that_came_back_is_of_use_to_who_named_it)
{
    uint32_t numbers[] = {2, 3};
    struct bytes labels[] = {BYTES(""), BYTES("A3")};
    const struct permit freed = {.slots = {numbers, 2}, .labels = labels};
    const struct permit unlabelled = {.slots = {numbers, 2}};
    struct slot_name one = {.number = 1}, two = {.number = 2}, three = {.label = BYTES("A3")};
    struct waiter *w1 = park_for_slot("w1", "a", &one);
    struct waiter *w2 = park_for_slot("w2", "a", &two);
    struct waiter *w3 = park_for_slot("w3", "a", &three);
    cr_assert_not(waiter_can_use(w1, gate_of("a"), &freed));
    cr_assert(waiter_can_use(w2, gate_of("a"), &freed));
    cr_assert(waiter_can_use(w3, gate_of("a"), &freed));
    cr_assert_not(waiter_can_use(w3, gate_of("a"), &unlabelled));
}

/* Capacity 2, and both units are slots from before it was lowered: slot 1 is free, and the semaphore is full. */
Test(waiters, slot_beyond_the_capacity_is_of_use_to_every_waiter_for_slots)
{
    uint32_t numbers[] = {4, 5};
    const struct permit freed = {.slots = {numbers, 2}};
    struct slot_name one = {.number = 1};
    struct waiter *w1 = park_for_slot("w1", "a", &one);
    learn("a", 5, 2);
    cr_assert_not(waiter_can_use(w1, gate_of("a"), &freed));
    learn("a", 2, 2);
    cr_assert(waiter_can_use(w1, gate_of("a"), &freed));
}

Test(waiters, the_names_of_slots_are_copied)
{
    char label[] = "A1";
    struct slot_name seat = {.label = {label, 2}};
    struct waiter *w1 = park_for_slot("w1", "a", &seat);
    label[0] = 'B';
    seat.number = 9;
    cr_assert(want_names_slot(w1->operation.wants, 7, BYTES("A1")));
    cr_assert_eq(gate_of("a")->certain_count, 1);
}

/* Waits for one of 1,000 slots with long labels: 264,000 bytes. */
static struct waiter *park_for_many(const char *key)
{
    enum { MANY = 1000, LENGTH = 240 };
    static char labels[MANY][LENGTH + 1];
    static struct slot_name names[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(labels[i], sizeof labels[i], "%0*d", LENGTH, i);
        names[i].label = (struct bytes){labels[i], LENGTH};
    }
    struct asked *one = side_asked();
    one->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = bytes_of(key), .wants = one->wants, .want_count = 1};
    one->wants[0] = (struct want){.semaphore = BYTES("a"),
                                  .semaphore_id = gate_of("a")->id,
                                  .count = 1,
                                  .choice = CHOOSE_ANY_OF,
                                  .named = names,
                                  .named_count = MANY};
    return place(one);
}

static bool is_kept_when_it_leaves(const char *key)
{
    struct waiter *waiter = waiters_find(&queue.waiters, bytes_of(key));
    waiters_leave(&queue.waiters, LIST_ENTRY(waiter->askers.next, struct op, node), LATER + 10);
    return waiters_find(&queue.waiters, bytes_of(key)) != NULL;
}

Test(waiters, places_that_name_many_slots_are_kept_while_they_are_few)
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
