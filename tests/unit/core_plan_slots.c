/* SPDX-License-Identifier: MIT */
/* Specific slots and labels in plan_batch: one small batch a test, in the language of core_plan_scene.h. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "core_plan_scene.h"

TestSuite(plan_slots, .init = scene_hall, .fini = scene_release);

/* ---- named slots ---- */

Test(plan_slots, named_slots_are_granted_by_number_and_by_label)
{
    scene_label_all();
    batch("acquire k1 hall@5,A2; acquire k2 hall:2", "granted 2=A2 5=A5; granted 1=A1 3=A3", NULL);
    then("plan slots=4; hall in_use=4 first_free=4");
}

Test(plan_slots, named_slots_are_granted_together_or_refused_with_their_holders)
{
    scene_label_all();
    given("k1 holds hall@1,3 due=60s; k2 holds hall@4 confirmed");
    batch("acquire k3 hall@2,3,4,A1; acquire k4 hall@2",
          "no_capacity 1=A1 of k1/1 until 55s, 3=A3 of k1/1 until 55s, 4=A4 of k2/2; granted 2=A2", NULL);
    then("#1 requested=4 may_wait");
}

Test(plan_slots, holders_outside_the_batch_are_known_from_the_slots)
{
    given("k1 holds hall@1 due=60s; k2 holds hall@2; k3 holds hall@3 due=60s");
    scene.slots[2].without_ttl = true;
    scene.no_requests = true;
    batch("acquire k4 hall@1,2,3", "no_capacity 1 of k1/1 until 55s, 2 of k2/2, 3 of k3/3", NULL);
}

Test(plan_slots, one_request_of_a_batch_gets_a_named_slot_and_others_see_it)
{
    batch("acquire k1 hall@2; acquire k2 hall@2; acquire k3 hall@1,2; acquire k4 hall",
          "granted 2; no_capacity 2 of k1/57 until 60s; no_capacity 2 of k1/57 until 60s; granted 1", NULL);
}

Test(plan_slots, named_slot_freed_in_the_batch_is_granted_with_its_label)
{
    scene_label_all();
    given("k1 holds hall@2,6 due=60s");
    scene.slots[5].label = (struct bytes){0}; /* only the permit has its label */
    batch("acquire k2 hall@2; acquire k3 hall@6; release k1", "granted 2=A2; granted 6=A6; ok", NULL);
}

Test(plan_slots, named_slot_beyond_the_read_slots_keeps_first_free_a_lower_bound)
{
    scene.free_read = 1;
    batch("acquire k1 hall@1", "granted 1", NULL);
    then("hall first_free=2");
    given("hall first_free=1");
    batch("acquire k1 hall@6", "granted 6", NULL);
    then("hall first_free=1");
}

Test(plan_slots, missing_slots_are_never_satisfiable)
{
    scene_label_all();
    scene_set_capacity(6, 7);
    scene.slots[6].label = BYTES("A7");
    batch("acquire k1 hall@1,7; acquire k2 hall@A7; acquire k3 hall@A8; acquire k4 hall:1@A1,A8; "
          "acquire k5 hall:3@1,2; acquire k6 hall:2~@1,3,5",
          "never_satisfiable; never_satisfiable; never_satisfiable; never_satisfiable; never_satisfiable; "
          "never_satisfiable",
          "");
    detail(1, "hall: no slot 7; the capacity is 6");
    detail(2, "hall: A7 is out of service");
    detail(3, "hall: no slot with label A8");
    detail(5, "hall: 3 asked of 2");
    detail(6, "hall: 2 asked, at most 1 of the named slots are adjacent");
}

Test(plan_slots, slot_named_twice_is_invalid)
{
    scene_label_all();
    batch("acquire k1 hall@2,A2; acquire k2 hall:1@2,A2", "invalid; invalid", NULL);
    detail(1, "hall: slot 2 is named twice, by its number and by its label");
}

Test(plan_slots, counted_semaphore_has_no_slots)
{
    given("hall counted");
    batch("acquire k1 hall@2; acquire k2 hall:1@1,2; acquire k3 hall:2~", "invalid; invalid; invalid", NULL);
    detail(1, "hall is counted: it has no slots");
}

Test(plan_slots, closed_semaphore_may_open_again)
{
    scene_set_capacity(0, 6);
    batch("acquire k1 hall@2,A9; acquire k2 hall:2~", "no_capacity; no_capacity", NULL);
    then("#1 may_wait");
}

/* P1: held slots above a lowered capacity count as used. */
Test(plan_slots, free_named_slot_is_not_granted_over_the_capacity)
{
    given("k1 holds hall@4,5,6 due=60s");
    scene_set_capacity(3, 6);
    given("hall first_free=0");
    batch("acquire k2 hall@1", "no_capacity", NULL);
}

/* ---- any_of, adjacent ---- */

Test(plan_slots, any_of_takes_the_lowest_free_slots)
{
    scene_label_all();
    given("k1 holds hall@2 due=60s");
    batch("acquire k2 hall:2@A5,2,4,3; acquire k3 hall:2@2,3,4,5; acquire k4 hall:1@2,5",
          "granted 3=A3 4=A4; no_capacity; granted 5=A5", NULL);
}

Test(plan_slots, adjacent_slots_are_the_lowest_run)
{
    given("k1 holds hall@2 due=60s");
    batch("acquire k2 hall:2~; acquire k3 hall:3~; acquire k4 hall~; acquire k5 hall:2~",
          "granted 3 4; no_capacity; granted 1; granted 5 6", NULL);
}

Test(plan_slots, adjacent_slots_are_found_within_a_list)
{
    given("k1 holds hall@3 due=60s");
    batch("acquire k2 hall:2~@1,3,4,6,5; acquire k3 hall:2~@2,3,6", "granted 4 5; no_capacity", NULL);
}

Test(plan_slots, labels_are_present_if_any_slot_of_the_permit_has_one)
{
    scene.slots[1].label = BYTES("B");
    batch("acquire k1 hall; acquire k2 hall:2", "granted 1; granted 2=B 3=", NULL);
}

/* ---- due holders ---- */

Test(plan_slots, only_the_due_holder_of_the_named_slot_is_ended)
{
    given("k1 holds hall@1 due=-2us; k2 holds hall@2,3 due=-1us");
    batch("acquire k3 hall@3", "granted 3", NULL);
    then("plan expired=1 requests=2");
}

Test(plan_slots, no_holder_is_ended_if_another_named_slot_stays_held)
{
    given("k1 holds hall@1 due=-2us; k2 holds hall@2 due=60s");
    batch("acquire k3 hall@1,2", "no_capacity 1 of k1/1 until -5s, 2 of k2/2 until 55s", "");
}

Test(plan_slots, any_of_ends_only_as_many_due_holders_as_needed)
{
    given("k1 holds hall@1 due=-1us; k2 holds hall@2 due=-3us; k3 holds hall@3 due=-2us");
    batch("acquire k4 hall:2@1,3,4", "granted 3 4", NULL);
    then("plan expired=1");
}

Test(plan_slots, due_holder_between_adjacent_slots_is_ended)
{
    given("k1 holds hall@1 due=-9us; k2 holds hall@2 due=60s; k3 holds hall@4 due=-1us; k4 holds hall@6 due=60s");
    batch("acquire k5 hall:3~; acquire k6 hall:2~", "granted 3 4 5; no_capacity", NULL);
    then("plan expired=1");
}

Test(plan_slots, units_over_a_lowered_capacity_come_from_any_due_holder)
{
    given("k1 holds hall@4,5,6 due=-1us");
    scene_set_capacity(3, 6);
    given("hall first_free=0");
    batch("acquire k2 hall@1", "granted 1", NULL);
    then("plan expired=1");
}

Test(plan_slots, due_holder_with_an_unlocked_semaphore_puts_the_request_back)
{
    given("k1 holds hall@2 other due=-1us");
    batch("acquire k2 hall@2; acquire k3 hall@1", "put_back hall; granted 1", NULL);
    then("plan overdue=k1");
}

Test(plan_slots, due_holders_of_named_slots_are_read_even_if_units_are_free)
{
    given("k1 holds hall@2 due=-1us");
    reads_due("acquire k2 hall@2", "hall units=0 named");
    scene.slots[1].due_at = NOW + 60 * US_PER_SECOND;
    reads_due("acquire k2 hall@2", "");
    reads_due("acquire k2 hall", "");
}

Test(plan_slots, all_due_holders_are_read_for_adjacent_slots)
{
    given("k1 holds hall@1,2 due=60s; k2 holds hall@4 due=0s");
    reads_due("acquire k3 hall:2~", "hall units=3 named");
}

/* ---- queue order ---- */

Test(plan_slots, young_waiter_for_specific_slots_blocks_no_free_slots)
{
    given("k1 holds hall@2 due=60s");
    batch("acquire k2 hall@2 wait; acquire k3 hall:5~ wait; acquire k4 hall",
          "no_capacity 2 of k1/1 until 55s waits; no_capacity waits; granted 1", NULL);
}

Test(plan_slots, no_request_passes_a_waiter_for_specific_slots_under_fifo)
{
    given("hall fifo; k1 holds hall@2 due=60s");
    batch("acquire k2 hall@2 wait; acquire k3 hall:5~ wait; acquire k4 hall",
          "no_capacity 2 of k1/1 until 55s waits; no_capacity behind waits; no_capacity behind", NULL);
}

/* ---- reserved slots ---- */

/* The slots that are reserved go to no others, also free ones; any other slot does. */
Test(plan_slots, protected_waiter_for_named_slots_reserves_these)
{
    given("k1 holds hall@2 due=60s; w1 waits hall@1,2 server=2 place=-60s since=-1000s");
    batch("acquire k2 hall; acquire k3 hall@1; acquire k4 hall:1@1,5; acquire k5 hall:2; acquire k6 hall",
          "granted 3; no_capacity behind; granted 5; granted 4 6; no_capacity behind", NULL);
}

Test(plan_slots, named_slot_that_is_confirmed_reserves_nothing)
{
    given("k1 holds hall@2 confirmed; w1 waits hall@1,2 server=2 place=-60s since=-1000s");
    batch("acquire k2 hall@1", "granted 1", NULL);
}

/* Each reserves one slot of its own; the third finds none, so it reserves nothing. */
Test(plan_slots, protected_waiters_for_some_of_the_same_slots_reserve_different_ones)
{
    given("k1 holds hall@1 due=60s; k2 holds hall@2 due=60s; "
          "w1 waits hall:2@1,2,3 server=2 place=-60s since=-1000s; "
          "w2 waits hall:2@2,3,4 server=2 place=-59s since=-1000s");
    batch("acquire k4 hall@3; acquire k5 hall@4; acquire k6 hall@5",
          "no_capacity behind; no_capacity behind; granted 5", NULL);
}

/* Trace T8: the run without a confirmed slot, although more of it are held. */
Test(plan_slots, protected_waiter_for_adjacent_slots_reserves_a_run_that_can_come)
{
    given("k1 holds hall@4 due=60s; k2 holds hall@5 due=60s; k3 holds hall@2 confirmed; "
          "w1 waits hall:3~ server=2 place=-60s since=-1000s");
    scene.named[0].has_holders = true;
    batch("acquire k4 hall@1; acquire k5 hall@6; acquire k6 hall@3", "granted 1; granted 6; no_capacity behind", NULL);
}

Test(plan_slots, run_with_the_fewest_held_slots_is_reserved_the_lowest_first)
{
    given("k1 holds hall@2 due=60s; k2 holds hall@5 due=60s; w1 waits hall:3~ server=2 place=-60s since=-1000s");
    batch("acquire k4 hall:3; acquire k5 hall; acquire k6 hall@1", "no_capacity behind; granted 4; no_capacity behind",
          NULL);
}

Test(plan_slots, holders_are_read_for_a_run_only_if_some_are_confirmed)
{
    given("k1 holds hall@2 due=60s; k2 holds hall@5 due=60s; w1 waits hall:3~ server=2 place=-60s since=-1000s");
    batch("acquire k4 hall", "granted 4", NULL);
    then("plan read_held=");
    given("hall confirmed=1");
    batch("acquire k4 hall", "reads more", NULL);
    then("plan read_held=hall");
}

/* Four runs are reserved at most: the search for each looks at all slots. */
Test(plan_slots, first_waiters_for_adjacent_slots_reserve)
{
    given("k1 holds hall@1 due=60s; k2 holds hall@3 due=60s; k3 holds hall@5 due=60s; "
          "w1 waits hall:2~ server=2 place=-60s since=-1000s; w2 waits hall:2~ server=2 place=-59s since=-1000s");
    batch("acquire k4 hall; acquire k5 hall", "granted 6; no_capacity behind", NULL);
}

Test(plan_slots, waiter_for_specific_slots_is_behind_waiters_for_any)
{
    given("hall fifo; k1 holds hall@2 due=60s");
    batch("acquire k2 hall:6 wait; acquire k3 hall@1 wait", "no_capacity waits; no_capacity behind waits", NULL);
}

Test(plan_slots, waiters_for_specific_slots_are_granted_what_they_name)
{
    scene_label_all();
    given("k1 holds hall@2,3 due=60s; w1 waits hall@A2,3 server=2 place=-3s; "
          "w2 waits hall:2~@1,2,3,4,5 server=2 place=-2s; w3 waits hall server=2");
    batch("release k1; acquire k2 hall", "ok; granted 6=A6",
          "+k2 ACQUIRED; k1 RELEASED; w1 granted 2=A2 3=A3 server=2; w2 granted 4=A4 5=A5 server=2; "
          "w3 granted 1=A1 server=2; w1 leaves hall; w2 leaves hall; w3 leaves hall; mail 2 w1; mail 2 w2; mail 2 w3");
    then("plan slots=6");
}

Test(plan_slots, waiter_for_specific_slots_and_an_unlocked_semaphore_is_called_if_a_slot_of_it_is_freed)
{
    scene_label_all();
    given("k1 holds hall@2,3 due=60s; w1 waits hall@A2 other server=2 place=-3s; "
          "w2 waits hall:1@4,5 other server=2 place=-2s; w3 waits hall:2~ other server=2");
    batch("release k1; acquire k2 hall:6", "ok; put_back hall other",
          "k1 RELEASED; clears hall 2; clears hall 3; mail 2 w1; mail 2 w2; mail 2 w3");
}

/* It may fit, so its slot is kept for it until a batch that has its other semaphore decides. */
Test(plan_slots, waiter_for_specific_slots_and_an_unlocked_semaphore_keeps_its_slots)
{
    given("w1 waits hall@1 other server=2 place=-3s");
    batch("acquire k2 hall; acquire k3 hall@1", "granted 2; put_back hall other", "+k2 ACQUIRED; mail 2 w1");
}

/* P17: k2 ends k1 for the one slot that it lacks, and leaves the other one. */
Test(plan_slots, waiter_for_specific_slots_is_called_if_a_due_holder_of_them_is_ended_for_another)
{
    given("k1 holds hall@5,6 due=0s; w1 waits hall@6 other server=2 place=-3s");
    batch("acquire k2 hall:5", "granted 1 2 3 4 5", "+k2 ACQUIRED; k1 RELEASED; clears hall 6; mail 2 w1");
}

/* k4 lacks a unit, because slot 2 is reserved: k1 ends for it. */
Test(plan_slots, due_holder_is_ended_for_a_request_for_any_slots_beside_reserved_ones)
{
    given("k1 holds hall@1 due=0s; k2 holds hall@3,4,5,6 due=60s; "
          "w1 waits hall@2,3 server=2 place=-60s since=-1000s");
    batch("acquire k4 hall", "granted 1", NULL);
}

/* The end of k1 would bring k4 nothing: its slot is reserved for w1. */
Test(plan_slots, due_holder_of_a_reserved_slot_is_not_ended_for_others)
{
    given("k1 holds hall@1 due=0s; k2 holds hall@2,3,4,5,6 due=60s; "
          "w1 waits hall@1,3 server=2 place=-60s since=-1000s");
    batch("acquire k4 hall:1@1,2; acquire k5 hall", "no_capacity; no_capacity", NULL);
    then("plan requests=0");
}

/* w2 lacks slot 5, whatever is kept for w1, so it is not called. */
Test(plan_slots, waiter_that_lacks_a_slot_is_not_called_beside_one_that_may_fit)
{
    given("k1 holds hall@1 due=0s; k2 holds hall@5 due=60s; w1 waits hall other server=2 place=-3s; "
          "w2 waits hall@5 server=2 place=-2s");
    batch("acquire k4 hall", "granted 2", "+k4 ACQUIRED; mail 2 w1");
}

Test(plan_slots, waiter_for_a_label_that_is_gone_blocks_no_others)
{
    given("w1 waits hall@B7 server=2 place=-3s");
    batch("acquire k2 hall", "granted 1", "+k2 ACQUIRED");
}

/* ---- watched slots ---- */

Test(plan_slots, waiter_watches_a_held_slot_that_it_cannot_do_without)
{
    scene_label_all();
    given("k1 holds hall@2,3 due=60s; k2 holds hall@4 due=60s");
    batch("release k2; acquire k3 hall@1,3 wait; acquire k4 hall@A2 wait; acquire k5 hall@4 wait; "
          "acquire k6 hall@A4 wait; acquire k7 hall:1@2,3 wait",
          "ok; no_capacity 3=A3 of k1/1 until 55s waits; no_capacity 2=A2 of k1/1 until 55s waits; granted 4=A4; "
          "no_capacity 4=A4 of k5/57 until 60s waits; no_capacity waits",
          "+k3 WAITING server=1; +k4 WAITING server=1; +k5 ACQUIRED; +k6 WAITING server=1; +k7 WAITING server=1; "
          "k2 RELEASED; k3 enters hall watch=3; k4 enters hall watch=2; k6 enters hall watch=4; k7 enters hall");
    given("k8 holds hall@1,4,5,6 due=60s");
    batch("acquire k9 hall:2~ wait; acquire ka hall wait", "no_capacity waits; no_capacity waits",
          "+k9 WAITING server=1; +ka WAITING server=1; k9 enters hall; ka enters hall");
}

/* The slot that was sold stays held the longest, and says that the waiter reserves nothing. */
Test(plan_slots, waiter_watches_a_sold_slot_rather_than_one_that_is_held)
{
    given("k1 holds hall@1 due=60s; k2 holds hall@4 confirmed");
    batch("acquire k3 hall@1,4 wait", "no_capacity 1 of k1/1 until 55s, 4 of k2/2 waits",
          "+k3 WAITING server=1; k3 enters hall watch=4");
}

Test(plan_slots, waiter_watches_no_slot_if_it_lacks_other_units)
{
    given("hall fifo; k1 holds hall@2 due=60s");
    batch("acquire k2 hall:6 wait; acquire k3 hall@1 wait", "no_capacity waits; no_capacity behind waits",
          "+k2 WAITING server=1; +k3 WAITING server=1; k2 enters hall; k3 enters hall");
}

Test(plan_slots, slot_that_stays_free_is_watched_by_no_waiter)
{
    given("k1 holds hall@2,3 due=60s; hall waiting=1"); /* a waiter that was not read watches slot 2 or 3 */
    batch("release k1; acquire k2 hall@3", "ok; granted 3", "+k2 ACQUIRED; k1 RELEASED; clears hall 2");
    given("hall waiting=0");
    batch("release k1", "ok", "k1 RELEASED");
}

/* No batch clears the watch of a kept place while it counts for nothing. */
Test(plan_slots, kept_place_that_is_asked_for_again_watches_a_slot_that_is_held_now)
{
    given("k1 holds hall@3 due=60s; w1 waits hall@2,3 kept place=-9s");
    batch("acquire w1 hall@2,3 wait", "no_capacity 3 of k1/1 until 55s waits",
          "w1 WAITING server=1; w1 leaves hall; w1 enters hall watch=3");
    then("hall waiting=1");
    cr_expect_eq(scene.plan.changes.places[1].place, scene.plan.changes.places[0].place);
}

Test(plan_slots, watchers_are_read_of_slots_that_may_be_freed)
{
    given("hall waiting=1; k1 holds hall@2,3 due=60s; k2 holds hall@4 due=60s");
    reads_queues("renew k1", "hall freed= some_watches");
    reads_queues("release k1", "hall freed=2,3 some_watches");
    row("k2")->due_at = NOW;
    reads_queues("renew k1", "hall freed=4");
    reads_queues("release k1", "hall freed_count=3");
    given("hall counted");
    reads_queues("release k1", "hall all_watches");
}

Test(plan_slots, all_waiters_are_read_if_very_many_slots_may_be_freed)
{
    static uint32_t numbers[QUEUE_FREED_MAX + 1];
    given("hall waiting=1 capacity=1000; k1 holds hall@1 due=60s");
    row("k1")->permits->slots = (struct slots){numbers, QUEUE_FREED_MAX};
    reads_queues("release k1", "hall freed_count=500 some_watches");
    row("k1")->permits->slots.count++;
    reads_queues("release k1", "hall freed= all_watches");
}

/* ---- labels ---- */

Test(plan_slots, only_changed_labels_are_written)
{
    scene.slots[1].label = BYTES("A2");
    scene.slots[2].label = BYTES("X");
    batch("semaphore_labels hall labels=A1,A2,-,A4", "ok config=2", "labels 1=A1 3=- 4=A4; event labels>1-4");
    batch("semaphore_labels hall from=3 labels=X", "ok config=1", "semaphores");
    batch("semaphore_labels hall labels=", "ok config=1", "semaphores");
    batch("semaphore_put hall capacity=6 labels=X,X2,A2", "ok config=2", "labels 1=X 2=X2 3=A2; event labels>1-3");
}

Test(plan_slots, labels_move_within_a_page_but_not_into_it)
{
    scene_label_all();
    batch("semaphore_labels hall labels=A2,A1", "ok config=2", "labels 1=A2 2=A1; event labels>1-2");
    batch("semaphore_labels hall labels=A2,A3", "invalid", "");
    detail(1, "A3 is the label of slot 3");
    batch("semaphore_labels hall labels=B,B", "invalid", "");
    detail(1, "duplicate label B");
}

Test(plan_slots, label_of_a_held_slot_cannot_change)
{
    scene_label_all();
    scene.slots[2].label = (struct bytes){0};
    given("k1 holds hall@2,3 due=60s");
    batch("semaphore_labels hall labels=B1,A2,-", "ok config=2", "labels 1=B1; event labels>1-3");
    batch("semaphore_labels hall labels=A2,A1", "in_use", "");
    detail(1, "slot 2, A2, is held: its label cannot change");
}

Test(plan_slots, more_labels_than_slots_are_invalid)
{
    batch("semaphore_labels hall from=5 labels=A,B", "ok config=2", "labels 5=A 6=B; event labels>5-6");
    batch("semaphore_labels hall from=5 labels=A,B,C", "invalid", "");
    batch("semaphore_labels hall from=0 labels=A", "invalid", "");
    batch("semaphore_put hall capacity=2 labels=A,B,C", "invalid", "");
    given("hall counted");
    batch("semaphore_labels hall labels=A", "invalid", "");
}

Test(plan_slots, labels_of_new_slots_are_written_with_them)
{
    batch("semaphore_put hall capacity=8 labels=-,-,-,-,-,-,-,A8", "ok config=2",
          "labels 8=A8; event capacity>8; event labels>1-8");
    scene.semaphores[0].name = BYTES("another");
    batch("semaphore_put hall capacity=2 labels=A1", "ok created config=1",
          "labels 1=A1; event created>2; event labels>1-1");
}

Test(plan_slots, retired_slot_gives_up_its_label_unless_held)
{
    scene_set_capacity(3, 6);
    scene.slots[4].label = BYTES("A5");
    scene.slots[5].label = BYTES("A6");
    given("k1 holds hall@6 due=60s");
    batch("semaphore_labels hall labels=B,A5", "ok config=2", "labels 1=B 2=A5 5=-; event labels>1-2");
    batch("semaphore_labels hall labels=A6", "in_use", "");
    detail(1, "slot 6, A6, is held: its label cannot change");
}

Test(plan_slots, retired_semaphore_loses_its_labels_and_accepts_none)
{
    batch("semaphore_retire hall", "ok config=2", "drops labels of hall; event retired>");
    given("hall retired");
    batch("semaphore_labels hall labels=A", "unknown_semaphore", "");
}

/* ---- the packet ---- */

/* The bytes of a grant of `slots` slots under a key of two bytes to "who", whose labels have two bytes each. */
#define PACKET_OF(slots)                                                                                               \
    (PACKET_BATCH + PACKET_SEMAPHORE + PACKET_GRANT + 2 * (2 + 3) + PACKET_PERMIT + (slots) * (PACKET_SLOT + 2 * 3))

/* P23: it would be refused for ever, and would be tried together with others each time. */
Test(plan_slots, grant_that_no_packet_can_hold_is_refused_beside_others)
{
    scene_label_all();
    scene.settings.max_packet = PACKET_OF(3) - 1;
    batch("acquire k1 hall:3; acquire k2 hall:2; acquire k3 hall@3,A4,5; acquire k4 hall:3~; "
          "acquire k5 hall:3@3,4,5,6; acquire k6 hall:2@5,6",
          "too_large; granted 1=A1 2=A2; too_large; too_large; too_large; granted 5=A5 6=A6", NULL);
    char expected[300];
    snprintf(expected, sizeof expected,
             "the grant would have %d bytes with its slots and their labels; a packet to the database has at most %d "
             "(max_allowed_packet): ask for fewer slots in one request",
             PACKET_OF(3), PACKET_OF(3) - 1);
    detail(1, expected);
}

Test(plan_slots, grant_that_fills_a_packet_is_granted)
{
    scene_label_all();
    scene.settings.max_packet = PACKET_OF(3);
    batch("acquire k1 hall@2,A3,4", "granted 2=A2 3=A3 4=A4", NULL);
    cr_expect_eq(scene.plan.packet_size, scene.settings.max_packet);
}

/* Only the labels of the slots that it takes count. */
Test(plan_slots, long_labels_of_other_slots_do_not_count)
{
    static char label[LABEL_MAX_BYTES];
    memset(label, 'x', sizeof label);
    scene.slots[2].label = (struct bytes){label, sizeof label};
    scene.settings.max_packet = PACKET_OF(2);
    batch("acquire k1 hall@3,4; acquire k2 hall:2", "too_large; granted 1 2", NULL);
}
