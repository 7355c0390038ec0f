/* SPDX-License-Identifier: MIT */
/*
 * Properties of a plan that plan_model cannot see: the memory it points into, and the queue, one small batch a test, with
 * rows that no history leads to. core_plan_scene.h has the language of the transcripts.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "core_plan_scene.h"

/*
 * Found by the thread sanitizer: the first of two operations is answered, and its memory reused, while the answer of
 * the second is written.
 */
Test(plan_memory, answer_points_into_its_own_operation_only)
{
    struct semaphore semaphore = {.id = 1,
                                  .name = BYTES("a"),
                                  .kind = KIND_COUNTED,
                                  .capacity = 9,
                                  .next_token = 1,
                                  .max_ttl_ms = -1,
                                  .retired_at = NEVER,
                                  .next_due_at = NEVER};
    struct free_slots none = {0};
    struct named_slots unnamed = {0};
    utc_us next_due = NEVER;
    struct view view = {.clock = {.due = 1, .from = 1},
                        .semaphores = &semaphore,
                        .free_slots = &none,
                        .named_slots = &unnamed,
                        .next_due = &next_due,
                        .semaphore_count = 1};
    struct want want = {.semaphore = BYTES("a"), .semaphore_id = 1, .count = 1};
    char keys[2][4] = {"key", "key"};
    char owners[2][4] = {"own", "own"};
    struct operation both[2];
    for (int i = 0; i < 2; i++)
        both[i] = (struct operation){
            .kind = OP_ACQUIRE, .external_id = {keys[i], 3}, .owner = {owners[i], 3}, .wants = &want, .want_count = 1};
    const struct operation *operations[] = {&both[0], &both[1]};
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1};
    struct arena arena;
    struct plan plan;
    arena_init(&arena, 4096, 1 << 20);
    cr_assert_eq(plan_batch(&view, operations, 2, (struct id_range){1, 10}, &settings, &arena, &plan), PERMIT_OK);
    cr_assert(plan.outcomes[0].created);
    cr_assert(plan.outcomes[1].replayed);
    memset(keys[0], 'x', 3);
    memset(owners[0], 'x', 3);
    cr_assert(bytes_equal(plan.outcomes[1].request->external_id, BYTES("key")));
    cr_assert(bytes_equal(plan.outcomes[1].request->owner, BYTES("own")));
    arena_release(&arena);
}

/* ---- the queue ---- */

enum { A, B };

TestSuite(plan_waiting, .init = scene_queue, .fini = scene_release);
TestSuite(plan_limits, .init = scene_queue, .fini = scene_release);
TestSuite(plan_scope, .init = scene_queue, .fini = scene_release);
TestSuite(plan_queue, .init = scene_queue, .fini = scene_release);

/* ---- who comes first ---- */

Test(plan_waiting, waiters_are_granted_before_new_requests_in_the_order_of_their_places)
{
    given("a capacity=3; k2 waits a server=2; k4 waits a place=-3s; k3 waits a server=2 place=-2s");
    batch("acquire k1 a", "no_capacity a",
          "k2 granted server=2; k4 granted; k3 granted server=2; k4 leaves a; k3 leaves a; k2 leaves a; mail 2 k2; "
          "mail 2 k3; tell k4");
    then("k4 token=1; k3 token=2; k2 token=3; a waiting=0 in_use=3 version=1");
}

/*
 * P19: a failover has undone the creation of b, which this permitd knows by that id, and another permitd has created it
 * again as a. A wait under the lost id would end as unknown_semaphore (seed 820 of the simulation).
 */
Test(plan_waiting, ask_by_an_undone_id_is_resolved_again)
{
    given("k1 holds a; k2 waits a server=2");
    batch("acquire k2 b wait", "unknown_semaphore", "");
}

Test(plan_waiting, waiters_with_equal_places_are_granted_in_the_order_of_their_ids)
{
    given("k2 waits a server=2; k1 waits a server=2");
    batch("acquire k3 a", "no_capacity a", "k2 granted server=2; k2 leaves a; mail 2 k2");
}

Test(plan_waiting, released_units_are_granted_to_a_waiter_of_another_server_in_the_same_batch)
{
    given("k1 holds a; k2 waits a server=2");
    batch("acquire k3 a wait; release k1", "no_capacity a waits; ok",
          "+k3 WAITING server=1; k1 RELEASED; k2 granted server=2; k2 leaves a; k3 enters a; mail 2 k2");
    then("a waiting=1");
}

Test(plan_waiting, fitting_request_passes_a_waiter_under_backfill)
{
    given("a capacity=3; k1 holds a; k2 waits a:3 server=2 place=-2s; k3 waits a server=2");
    batch("acquire k4 a", "granted", "+k4 ACQUIRED; k3 granted server=2; k3 leaves a; mail 2 k3");
}

Test(plan_waiting, no_request_passes_a_waiter_under_fifo)
{
    given("a fifo capacity=3; k1 holds a; k2 waits a:3 server=2 place=-2s; k3 waits a server=2");
    batch("acquire k4 a", "no_capacity a behind", "");
}

Test(plan_waiting, only_new_requests_that_wait_block_others_under_fifo)
{
    given("a fifo capacity=3; k1 holds a");
    batch("acquire k2 a:3; acquire k3 a wait; acquire k4 a:2 wait; acquire k5 a wait; acquire k6 a",
          "no_capacity a; granted; no_capacity a waits; no_capacity a behind waits; no_capacity a behind", NULL);
    then("a waiting=2");
}

Test(plan_waiting, waiter_is_not_passed_on_any_of_its_semaphores_under_fifo)
{
    given("b fifo; a capacity=3; k1 holds a:3; k2 waits a b server=2 place=-2s; k3 waits b");
    batch("acquire k4 a b; acquire k3 b", "no_capacity a b behind; no_capacity b behind", "");
}

/* Trace "fifo: w (S1, S2) heads S2's queue": who leaves a queue is a reason to grant. */
Test(plan_waiting, waiter_behind_a_head_whose_wait_ends_is_granted_in_that_batch)
{
    given("b fifo; k1 holds a; k2 waits a b place=-2s; k3 waits b server=2");
    batch("look k2 a b last", "no_capacity a", "k2 WAITING; k3 granted server=2; k3 leaves b; mail 2 k3");
    then("k2 due=10s; a waiting=0; b waiting=0");
}

/* P20: the place is that of the client that still waits here, and k3 is behind it. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_the_client_that_waits)
{
    given("a fifo capacity=2; k1 holds a; k2 waits a:2 place=-2s");
    batch("acquire k2 a:2 last; acquire k3 a", "no_capacity a; no_capacity a behind", "");
}

/* Its waiter is in a batch that runs in parts: it asks in another part. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_a_waiter_that_asks_later)
{
    given("k1 holds a; k2 waits a place=-2s");
    scene.subscribers[0].busy = true;
    batch("acquire k2 a last", "no_capacity a", "");
}

/* P20: the row names an earlier id of this server, which is dead, or this server has no id yet. */
Test(plan_waiting, last_decision_of_a_copy_leaves_the_place_to_a_waiter_that_is_not_entered_again_yet)
{
    given("k1 holds a; k2 waits a dead subscribed place=-2s");
    batch("acquire k2 a last", "no_capacity a", "");
    scene.settings.server_id = 0;
    row("k2")->server_id = ELSEWHERE;
    batch("acquire k2 a last", "no_capacity a", "");
}

Test(plan_waiting, copy_that_can_never_be_granted_leaves_the_place_to_the_client_that_waits)
{
    given("k2 waits a:2 place=-2s");
    batch("acquire k2 a:2 wait", "never_satisfiable", NULL);
    then("k2 server=1; a waiting=1");
}

Test(plan_waiting, last_decisions_of_a_waiter_and_its_copy_end_the_wait)
{
    given("k1 holds a; k2 waits a place=-2s");
    batch("look k2 a last; acquire k2 a last", "no_capacity a; no_capacity a", "k2 WAITING");
    then("a waiting=0");
}

/* The key has moved to the other server, and the place is that server's to give up. */
Test(plan_waiting, waiter_whose_place_another_server_has_given_up_is_told)
{
    given("k2 waits a kept place=-2s");
    batch("look k2 a; acquire k3 a", "outcome_unknown; granted", "+k3 ACQUIRED");
    detail(1, "the key was asked for again at another server, and its wait has ended there");
}

/* P22: else another permitd grants it after this refusal. A client that still waits there is told that it has moved. */
Test(plan_waiting, last_decision_ends_the_wait_at_another_server_too)
{
    given("k1 holds a; k2 waits a server=2 place=-2s");
    batch("acquire k2 a last", "no_capacity a", "k2 WAITING; mail 2 k2");
    then("k2 server=0; a waiting=0");
}

Test(plan_waiting, waiter_behind_a_head_that_is_released_or_removed_is_granted_in_that_batch)
{
    given("a fifo capacity=2; k1 holds a; k2 waits a:2 server=2 place=-3s; k3 waits a:2 dead place=-2s; "
          "k4 waits a server=2");
    batch("release k2; expire k3 never_held", "ok; ok",
          "k2 RELEASED; -k3; k4 granted server=2; k2 leaves a; k3 leaves a; k4 leaves a; mail 2 k2; mail 2 k4");
}

Test(plan_waiting, aged_waiter_reserves_on_all_its_semaphores)
{
    given("a capacity=2; k1 holds b; k3 waits a b server=2 since=-30s; k4 waits a server=2 place=0s");
    batch("acquire k5 a b", "no_capacity a behind b behind", "k4 granted server=2; k4 leaves a; mail 2 k4");
}

Test(plan_waiting, waiter_that_is_not_aged_yet_is_passed)
{
    given("a capacity=2; k1 holds b; k3 waits a b server=2 since=-29999999us");
    batch("acquire k5 a", "granted", NULL);
}

/* The checks of a request let no duration of 0 through; a row of it could not be read again. */
Test(plan_waiting, request_without_canonical_form_does_not_wait)
{
    given("k0 holds a");
    batch("acquire k1 a wait ttl=0s; look k2 a ttl=0s", "internal; internal", NULL);
}

/* P20: one number orders all, fixed at entry, so that whoever has waited long enough stands first. */
Test(plan_waiting, priority_counts_as_waiting_time)
{
    given("k0 holds a");
    batch("acquire k1 a wait priority=9", "no_capacity a waits", NULL);
    then("k1 place=-270s since=0s until=20s due=30s priority=9 wanted");
}

Test(plan_waiting, waiter_of_high_priority_is_granted_first_and_never_passes_one_that_waited_for_longer)
{
    /* k1 and k3 have priority 0 and wait since 60 s and 272 s; k2 has priority 9, and waits since 1 s */
    given("k1 waits a server=2 place=-60s; k2 waits a server=2 place=-271s; k3 waits a server=2 place=-272s");
    batch("acquire k4 a", "no_capacity a", "k3 granted server=2; k3 leaves a; mail 2 k3");
}

Test(plan_waiting, priority_above_the_limit_of_a_semaphore_is_refused_even_if_it_fits)
{
    given("b max_priority=4");
    batch("acquire k1 a b wait priority=5; acquire k2 a b wait priority=4", "invalid; granted", NULL);
    detail(1, "b: priority is at most 4");
}

/* ---- waiters that are in nobody's way ---- */

Test(plan_waiting, waiter_for_a_paused_closed_or_retired_semaphore_blocks_none)
{
    static const char *const states[] = {"b paused", "b capacity=0", "b retired"};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
        scene_release();
        scene_queue();
        given("a fifo; k2 waits a b server=2 place=-90s since=-1000s");
        given(states[i]);
        batch("acquire k3 a", "granted", "+k3 ACQUIRED");
    }
}

/* Each permitd ends its own waiters that a change of the semaphore concerns. */
Test(plan_waiting, unsatisfiable_waiter_blocks_none_and_is_ended_by_its_own_server)
{
    given("a fifo; k2 waits a:2 server=2 place=-3s; k3 waits a:2 place=-2s");
    batch("look k3 a:2; acquire k4 a", "never_satisfiable; granted", "+k4 ACQUIRED; k3 WAITING");
    then("#1 may_not_wait");
}

Test(plan_waiting, shrink_pause_and_retire_change_the_semaphore_only)
{
    given("k2 waits a place=-2s");
    batch("semaphore_put a capacity=0", "ok config=1", "event capacity>0");
    then("a waiting=1");
}

Test(plan_waiting, place_that_is_not_asked_for_blocks_no_others)
{
    given("a fifo capacity=2; k1 holds a; k2 waits a:2 kept place=-9s; k3 waits a dead place=-8s; "
          "k4 waits a left place=-7s");
    batch("acquire k5 a", "granted", "+k5 ACQUIRED");
}

/* Its client has left; a copy of the key that does not wait asks for it in this batch only. */
Test(plan_waiting, ask_without_a_wait_does_not_block_those_behind_it)
{
    given("a fifo capacity=2; k1 holds a; k2 waits a:2 left place=-9s; k3 waits a server=2 place=-8s");
    batch("acquire k2 a:2", "no_capacity a", "k3 granted server=2; k3 leaves a; mail 2 k3");
}

Test(plan_waiting, nothing_is_granted_before_the_end_of_a_failover_hold)
{
    scene.grants_from = NOW + 1;
    given("k1 waits a server=2 place=-2s; k2 waits a");
    batch("acquire k2 a wait; acquire k3 a wait", "busy waits; busy waits",
          "+k3 WAITING server=1; k2 WAITING server=1; k3 enters a");
}

/* ---- due holders ---- */

Test(plan_waiting, waiter_ends_due_holders_before_a_new_request_does)
{
    given("k1 holds a due=0s; k2 waits a server=2");
    batch("acquire k3 a", "no_capacity a", "k1 RELEASED; k2 granted server=2; k2 leaves a; mail 2 k2");
    then("plan expired=1");
}

Test(plan_waiting, due_holders_are_not_ended_for_a_request_that_is_refused)
{
    given("a capacity=2 fifo; k1 holds a due=0s; k2 holds b; k3 waits a b place=-2s");
    batch("acquire k3 a b; acquire k4 a:2", "no_capacity b; no_capacity a behind", "");
}

Test(plan_waiting, waiter_put_back_keeps_its_units_until_it_has_its_locks)
{
    given("k1 holds a c due=0s; k2 waits a b until=20s");
    batch("acquire k2 a b wait; acquire k3 b; acquire k4 a; acquire k5 a widened",
          "put_back ab waits; put_back ab; put_back ab; no_capacity a behind", "");
    then("plan overdue=k1");
}

/* However many acquires need its end, and however many semaphores they and it have together. */
Test(plan_waiting, due_holder_that_several_acquires_need_is_overdue_once)
{
    given("k1 holds a c due=0s");
    batch("acquire k2 a; acquire k3 a b wait; acquire k4 b", "put_back a; put_back ab; put_back ab", "");
    then("plan overdue=k1");
}

/* It has the place then, so it may not be answered later that nothing was done (P22). */
Test(plan_waiting, ask_for_a_kept_place_that_is_put_back_waits)
{
    given("k1 holds a c due=0s; k2 waits a kept");
    batch("acquire k2 a wait", "put_back a waits", "k2 WAITING server=1");
    then("#1 row server=1"); /* its engine parks it if it may not be put back again */
}

/* P23: the batch would have to wait for the row, and others for the batch. */
Test(plan_waiting, due_holder_whose_row_another_session_has_locked_is_passed_over)
{
    given("a capacity=2; k1 holds a due=-1us locked; k2 holds a due=0s");
    batch("expire k1; acquire k3 a; acquire k4 a", "busy; granted; no_capacity a", "+k3 ACQUIRED; k2 RELEASED");
    then("k2 for_others");
}

Test(plan_waiting, row_that_another_session_has_locked_is_ended_for_its_client)
{
    given("k1 holds a due=0s locked");
    batch("release k1; acquire k2 a", "ok; granted", "+k2 ACQUIRED; k1 RELEASED");
    then("k1 for_itself");
}

Test(plan_waiting, kept_place_whose_row_another_session_has_locked_is_not_removed)
{
    given("k1 waits a kept due=0s locked");
    batch("expire k1", "busy", "");
    row("k1")->locked_elsewhere = false;
    batch("expire k1", "ok", "-k1; k1 leaves a");
    then("k1 for_others");
}

/* The due holder also holds c, which is not locked. */
Test(plan_waiting, waiter_that_needs_the_end_of_a_due_holder_keeps_its_units_and_is_called)
{
    given("k1 holds a c due=0s; k2 waits a b server=2 place=-2s");
    batch("acquire k3 b", "put_back ab", "mail 2 k2");
    then("plan overdue=k1");
}

Test(plan_waiting, request_behind_one_that_is_put_back_is_put_back_too)
{
    given("k1 holds a c due=0s; b capacity=2");
    batch("acquire k2 a b; acquire k3 b; acquire k4 b", "put_back ab; granted; put_back ab", NULL);
}

/* The key of k1 is held until its release is decided, so its acquire is a repetition and keeps nothing. */
Test(plan_waiting, repetition_behind_its_key_put_back_keeps_nothing)
{
    given("k1 holds c");
    batch("release k1; acquire k1 a wait; acquire k2 a", "put_back c; put_back ac; granted", NULL);
}

Test(plan_waiting, replay_is_answered_even_if_units_are_reserved)
{
    given("a fifo capacity=2; k1 holds a; k2 waits a:2 server=2");
    batch("acquire k1 a wait; acquire k1 a", "replayed; replayed", NULL);
}

/* ---- limits ---- */

Test(plan_limits, refusal_of_a_ttl_has_the_smallest_max_ttl_of_all_semaphores)
{
    given("a max_ttl=5000ms; b max_ttl=3000ms; h holds a");
    batch("acquire k1 a b ttl=3001ms; acquire k2 a wait ttl=none; renew h ttl=5001ms; acquire k3 b ttl=3000ms",
          "invalid max_ttl 3000; invalid max_ttl 5000; invalid max_ttl 5000; granted", NULL);
}

Test(plan_limits, refusal_for_another_reason_has_no_max_ttl)
{
    given("a max_ttl=3000ms; b max_ttl=3000ms");
    batch("acquire k1 a b:2 ttl=3001ms; acquire k2 a wait priority=10 ttl=3001ms; acquire k3 a:2",
          "never_satisfiable; invalid; never_satisfiable", NULL);
}

Test(plan_limits, waiter_that_a_smaller_max_ttl_ends_is_told_it)
{
    given("h holds a; k1 waits a place=-3s; a max_ttl=3000ms");
    batch("look k1 a ttl=3001ms", "invalid max_ttl 3000", NULL);
}

Test(plan_limits, refusal_of_a_used_key_has_the_max_ttl_if_the_ttl_is_over_it)
{
    given("held holds a; waits waits a server=2 place=-3s; a max_ttl=3000ms");
    batch("acquire held a other ttl=3001ms; acquire held a other ttl=3000ms; acquire held a other; "
          "acquire waits a other ttl=3001ms; acquire waits a other ttl=3000ms",
          "key_reused max_ttl 3000; key_reused; key_reused; key_reused max_ttl 3000; key_reused", NULL);
}

Test(plan_limits, hold_without_a_ttl_has_the_smallest_max_hold)
{
    given("a max_hold=9000ms; b max_hold=7000ms; h holds a");
    batch("renew h; renew h ttl=none; acquire h a; renew h; confirm h; acquire k b ttl=none; release k",
          "ok; ok max_hold 9000; replayed max_hold 9000; ok max_hold 9000; ok; granted max_hold 7000; ok", NULL);
}

/* ---- waiters that cannot be decided ---- */

/* Trace "w waits for S1 and S2; A commits the release of S1": w's own server is mailed by the transaction that freed S1. */
Test(plan_queue, waiter_that_also_wants_an_unlocked_semaphore_keeps_its_units_and_its_server_is_told)
{
    given("a capacity=2; k1 holds a:2; k2 waits a c server=2 place=-3s; k3 waits a c place=-2s");
    batch("release k1; acquire k4 a; acquire k5 a widened", "ok; put_back ac; no_capacity a behind",
          "k1 RELEASED; mail 2 k2; call k3");
}

/* k3 lacks only what is kept for k2: it may fit, too. */
Test(plan_queue, units_are_kept_only_from_those_behind)
{
    given("a capacity=3; k1 waits a server=2 place=-3s; k2 waits a c server=2 place=-2s; k3 waits a:2 server=2");
    batch("acquire k4 a", "put_back ac", "k1 granted server=2; k1 leaves a; mail 2 k1; mail 2 k2; mail 2 k3");
    scene.row_count--; /* without k3 */
    batch("acquire k4 a; acquire k5 a", "granted; put_back ac", NULL);
}

Test(plan_queue, waiter_that_lacks_units_of_a_locked_semaphore_is_not_called)
{
    given("b fifo; k1 holds a; k2 waits a b c server=2 place=-2s");
    batch("acquire k3 b", "no_capacity b behind", "");
}

Test(plan_queue, undecided_waiter_for_a_paused_semaphore_keeps_nothing)
{
    given("a paused; k2 waits a b c server=2 place=-2s");
    batch("acquire k3 b", "granted", "+k3 ACQUIRED");
}

/* A batch that frees a unit by ending a due holder passes no waiter that may fit then. */
Test(plan_queue, units_of_due_holders_count_for_a_waiter_that_cannot_be_decided)
{
    given("k1 holds a due=0s; k2 waits a c server=2 place=-2s");
    batch("acquire k3 a", "put_back ac", "mail 2 k2");
}

/* Item 4 of a deep queue: the other semaphore of each waiter is full, so nobody needs the unit. */
Test(plan_queue, waiter_whose_other_semaphore_is_full_keeps_nothing)
{
    given("k1 holds c; k2 waits a c server=2 place=-2s");
    batch("acquire k3 a", "granted", "+k3 ACQUIRED");
}

Test(plan_queue, waiter_whose_other_semaphore_is_paused_or_closed_keeps_nothing)
{
    static const char *const states[] = {"c paused", "c capacity=0"};
    for (size_t i = 0; i < ARRAY_LENGTH(states); i++) {
        scene_release();
        scene_queue();
        given("a fifo; k2 waits a c server=2 place=-60s since=-60s");
        given(states[i]);
        batch("acquire k3 a", "granted", "+k3 ACQUIRED");
    }
}

/* Somebody may be ended there for it. */
Test(plan_queue, waiter_whose_other_semaphore_has_due_holders_may_fit)
{
    given("k1 holds c due=0s; k2 waits a c server=2 place=-2s");
    batch("acquire k3 a", "put_back ac", "mail 2 k2");
}

Test(plan_queue, other_semaphore_of_a_waiter_is_read_only_if_that_matters)
{
    scene.unknown = true;
    given("k2 waits a c server=2 place=-2s");
    batch("acquire k3 a", "reads more", NULL);
    then("plan unknown=c");
    given("k1 holds a");
    batch("acquire k3 a", "no_capacity a", NULL);
    then("plan unknown=");
}

/* k1 bars k2 from c if it cannot reserve what it wants of a semaphore that is unknown: then k2 does not reserve the unit of a. */
Test(plan_queue, other_semaphore_of_a_waiter_before_others_is_read_too)
{
    given(
        "c fifo; b in_use=1; k1 waits b c server=2 place=-70s since=-60s; k2 waits a c server=2 place=-60s since=-60s");
    row("k1")->wants[row("k1")->want_count++] = (struct want){.semaphore_id = 4, .count = 1};
    batch("acquire k3 a", "reads more", NULL);
    then("plan unknown=?");
}

/* When no more may be read, such a waiter is in nobody's way, but it is called. */
Test(plan_queue, waiter_of_a_semaphore_that_is_never_read_blocks_no_others)
{
    scene.unknown = scene.reads_end = true;
    given("k2 waits a c server=2 place=-2s since=-60s");
    batch("acquire k3 a", "granted", "+k3 ACQUIRED; mail 2 k2");
    then("plan unknown=");
}

/* ---- reservations ---- */

/* A job that waits for its database and one of ten backup slots keeps one of them from others, not ten. */
Test(plan_queue, protected_waiter_reserves_its_need_and_no_more)
{
    given("a capacity=3; k1 holds b; k2 waits a b server=2 place=-60s since=-60s");
    batch("acquire k3 a; acquire k4 a; acquire k5 a", "granted; granted; no_capacity a behind", NULL);
}

Test(plan_queue, protected_waiter_reserves_also_if_its_other_semaphore_is_not_locked)
{
    given("a capacity=2; k1 holds c; k2 waits a c server=2 place=-60s since=-60s");
    batch("acquire k3 a; acquire k4 a", "granted; no_capacity a behind", NULL);
}

/* Trace T4: who cannot have its whole need beside those before it reserves nothing, and equal ones behind it neither. */
Test(plan_queue, equal_waiters_for_a_held_unit_reserve_once)
{
    given("a capacity=4; k1 holds a b; k2 waits a b server=2 place=-60s since=-60s; "
          "k3 waits a b server=2 place=-59s since=-60s; k4 waits a b server=2 place=-58s since=-60s");
    batch("acquire k5 a; acquire k6 a; acquire k7 a", "granted; granted; no_capacity a behind", NULL);
    given("k0 waits a server=2 place=-57s");
    batch("acquire k5 a; acquire k6 a", "granted; no_capacity a behind",
          "+k5 ACQUIRED; k0 granted server=2; k0 leaves a; mail 2 k0");
}

/* Trace T3: W1 reserves nothing, because W0 reserves its d; so W2 does. */
Test(plan_queue, reservations_of_other_queues_count_in_turn)
{
    /* a is s, b is x, c is d */
    given("a capacity=2; D holds c; V holds a; W0 waits c server=2 place=-60s since=-60s; "
          "W1 waits b c server=2 place=-59s since=-60s; W2 waits a:2 b server=2 place=-58s since=-60s");
    batch("acquire v a", "no_capacity a behind", NULL);
}

/* Trace T7: the need of W2 does not fit beside that of k. */
Test(plan_queue, need_beyond_the_capacity_reserves_nothing)
{
    given("a capacity=2; W1 holds a b; k waits b server=2 place=-60s since=-60s; "
          "W2 waits a b server=2 place=-59s since=-60s");
    batch("acquire v a", "granted", NULL);
}

Test(plan_queue, need_that_confirmed_units_exclude_reserves_nothing)
{
    given("a capacity=3; sold holds a; W waits a:3 server=2 place=-60s since=-60s");
    batch("acquire v a", "no_capacity a behind", NULL);
    given("a confirmed=1");
    batch("acquire v a", "granted", NULL);
}

/* The need of k2 cannot come any more, so k3 may fit; only its own server can tell. */
Test(plan_queue, waiter_is_called_if_a_confirmation_ends_a_reservation)
{
    given("a capacity=2; k1 holds a; k2 waits a:2 server=2 place=-60s since=-60s; k3 waits a c server=2 place=-59s");
    batch("renew k1", "ok", "k1 ACQUIRED");
    batch("confirm k1", "ok", "k1 ACQUIRED; mail 2 k3");
}

/* Under fifo nobody reserves behind one that reserves nothing: W1 is kept from q for ever, so it must not idle b. */
Test(plan_queue, waiter_behind_a_fifo_head_that_reserves_nothing_reserves_nothing)
{
    given("a fifo capacity=2; D holds c; c confirmed=1; W0 waits a c server=2 place=-60s since=-60s; "
          "W1 waits a b server=2 place=-59s since=-60s");
    batch("acquire v b; acquire u a", "granted; no_capacity a behind", NULL);
    given("c confirmed=0");
    batch("acquire v b", "no_capacity b behind", NULL);
}

/*
 * W2 reserves the unit of a if nothing else is known. Its queue of b was not read, because b is full: there W1 may have
 * reserved what W2 needs.
 */
Test(plan_queue, queue_without_free_units_is_read_before_one_reserves_there)
{
    given("a capacity=2; k0 holds a b; W2 waits a b server=2 place=-60s since=-60s");
    scene.queues[B].limit = 0;
    batch("acquire v a", "no_capacity a behind", NULL); /* no other one waits for b */
    given("b waiting=2");
    batch("acquire v a", "reads more", NULL);
    then("plan read_more=b");
    given("W1 waits b server=2 place=-61s since=-60s");
    scene.queues[B].limit = QUEUE_PROTECTED_MAX;
    batch("acquire v a", "granted", NULL);
}

/* W1 cannot be judged without c, and stands before W2, which has reserved the unit of a. */
Test(plan_queue, all_is_read_that_decides_about_a_reservation)
{
    given("a capacity=2; k0 holds a b; W1 waits b c server=2 place=-61s since=-60s; "
          "W2 waits a b server=2 place=-60s since=-60s");
    scene.unknown = true;
    batch("acquire v a", "reads more", NULL);
    then("plan unknown=c");
    scene.unknown = false;
    batch("acquire v a", "granted", NULL); /* W1 has reserved b */
}

/* W1 cannot be judged without c, and bars W2 from a, so that the unit of b is left. No unit is left where W1 is known. */
Test(plan_queue, all_is_read_that_decides_about_a_waiter_that_reserves_nothing)
{
    given("a fifo capacity=2; k0 holds a:2; W1 waits a c server=2 place=-61s since=-60s; "
          "W2 waits a b:2 server=2 place=-60s since=-60s; b capacity=2");
    scene.unknown = true;
    batch("acquire v b", "reads more", NULL);
    then("plan unknown=c");
    scene.unknown = false;
    batch("acquire v b", "no_capacity b behind", NULL); /* both reserve */
    scene.unknown = true;
    given("sold holds b confirmed");
    batch("acquire v b", "granted", NULL); /* W2 can never have both of b */
}

/* A new request is judged at the place that it would get. */
Test(plan_queue, new_request_of_high_priority_is_bound_by_those_before_it_alone)
{
    given("a capacity=2; k1 holds a; k2 waits a:2 server=2 place=-60s since=-60s");
    batch("acquire k3 a priority=1; acquire k4 a priority=9", "no_capacity a behind; granted", NULL);
}

Test(plan_queue, smallest_step_of_its_semaphores_orders_a_request)
{
    given("a priority_step=strict; b priority_step=1000ms; k0 holds a b");
    batch("acquire k1 a wait priority=1; acquire k2 a b wait priority=9", "no_capacity a waits; no_capacity a b waits",
          NULL);
    then("k1 place=-31536000s; k2 place=-9s");
}

/* ---- the part of a queue that was read ---- */

/* The queue of a was read as far as to this row. */
static void cut_queue(const char *key)
{
    scene.queues[A] =
        (struct queue_view){.beyond_place = row(key)->place, .beyond = row(key)->id, .limit = QUEUE_READ_MAX};
}

/* Protected waiters may follow that were not read: nobody passes these. */
Test(plan_queue, new_request_is_not_granted_behind_a_part_that_ends_before_protected_waiters)
{
    given("a capacity=5; k1 waits a server=2 place=-62s since=-60s; k2 waits a server=2 place=-61s since=-60s; "
          "k3 waits a server=2");
    cut_queue("k2");
    batch("acquire k4 a", "reads more", NULL);
    then("plan read_more=a");
    scene.queues[A].limit = QUEUE_PROTECTED_MAX;
    batch("acquire k3 a; acquire k4 a", "no_capacity a behind; no_capacity a behind",
          "k1 granted server=2; k2 granted server=2; k1 leaves a; k2 leaves a; mail 2 k1; mail 2 k2");
}

/* Young ones that were not read hold nobody up. */
Test(plan_queue, request_is_granted_behind_a_part_that_ends_before_young_waiters)
{
    given("a capacity=5; k1 waits a server=2 place=-3s; k2 waits a server=2 place=-2s");
    cut_queue("k2");
    batch("acquire k4 a", "reads more", NULL);
    then("plan read_more=a");
    scene.reads_end = true;
    batch("acquire k4 a", "granted",
          "+k4 ACQUIRED; k1 granted server=2; k2 granted server=2; k1 leaves a; k2 leaves a; mail 2 k1; mail 2 k2");
}

/* It stands behind waiters that were not read: the last unit may be theirs. */
Test(plan_queue, more_is_read_before_a_waiter_that_asks_is_granted)
{
    given("a capacity=2; k1 waits a server=2 place=-3s; k2 waits a server=1 place=-2s; k3 waits a server=2 place=-1s");
    cut_queue("k1");
    batch("acquire k2 a wait", "reads more", NULL);
    then("plan read_more=a");
    scene.reads_end = true;
    batch("acquire k2 a wait", "granted", "k1 granted server=2; k2 granted; k1 leaves a; k2 leaves a; mail 2 k1");
}

/* k1 is in nobody's way: the unit may be for a waiter that was not read. */
Test(plan_queue, more_is_read_if_units_stay_free_before_those_beyond)
{
    given("b paused; k1 waits a b server=2 place=-63s since=-60s; k2 waits a:2 server=2 place=-62s since=-60s");
    cut_queue("k2");
    batch("acquire k3 a", "reads more", NULL);
    then("plan read_more=a");
}

Test(plan_queue, no_more_is_read_if_all_units_are_granted)
{
    given("k1 waits a server=2 place=-3s; k2 waits a server=2 place=-2s");
    cut_queue("k2");
    batch("acquire k3 a", "no_capacity a", "k1 granted server=2; k1 leaves a; mail 2 k1");
    then("plan read_more=");
}

/* No request passes k1, which was read, so the ones behind it do not matter. */
Test(plan_queue, no_more_is_read_behind_a_waiter_that_reserves_what_is_free)
{
    given("a capacity=3; k0 holds a:2; k1 waits a:2 server=2 place=-3s since=-60s; k2 waits a:2 server=2 place=-2s");
    cut_queue("k2");
    batch("renew k0", "ok", NULL);
    then("plan read_more=");
    row("k1")->waiting_since = NOW;
    batch("renew k0", "reads more", NULL);
    then("plan read_more=a");
    given("a fifo");
    batch("renew k0", "ok", NULL);
    then("plan read_more=");
}

/* The next read leaves out the waiters that can do nothing with the free units. */
Test(plan_queue, needs_that_are_hopeless_are_not_read_again)
{
    given("a capacity=4; k0 holds a b; k1 waits a:4 server=2 place=-70s; k2 waits a b server=2 place=-63s since=-60s; "
          "k3 waits a:2 b server=2 place=-62s since=-60s; k4 waits a:2 b server=2 place=-61s since=-60s");
    cut_queue("k4");
    batch("renew k0", "reads more", NULL);
    then("plan read_more=a hopeless=k3,k1 for_protected=1");
}

/* The bytes of the end of a holder of one unit, of a grant of one unit, and of a batch that locks a and b. */
enum {
    PACKET_OF_END = PACKET_PERMIT,
    PACKET_OF_GRANT = PACKET_GRANT + 2 * 2 + PACKET_PERMIT,
    PACKET_OF_BATCH = PACKET_BATCH + 2 * PACKET_SEMAPHORE
};

static void release_before_three_waiters(void)
{
    given("a capacity=3; h holds a:3; k1 waits a server=2 place=-3s; k2 waits a server=2 place=-2s; "
          "k3 waits a server=2");
}

/* P23: the release would fail for ever. */
Test(plan_queue, waiter_without_room_in_the_packet_is_left_to_the_next_batch_and_not_passed)
{
    release_before_three_waiters();
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + 3 * PACKET_OF_GRANT - 1;
    batch("release h; acquire k4 a", "ok; no_capacity a behind",
          "h RELEASED; k1 granted server=2; k2 granted server=2; k1 leaves a; k2 leaves a; mail 2 k1; mail 2 k2; "
          "mail 2 k3");
    then("plan read_more=");
    cr_expect_leq(scene.plan.packet_size, scene.settings.max_packet);
}

Test(plan_queue, packet_that_has_room_for_all_waiters_grants_them)
{
    release_before_three_waiters();
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + 3 * PACKET_OF_GRANT;
    batch("release h", "ok",
          "h RELEASED; k1 granted server=2; k2 granted server=2; k3 granted server=2; k1 leaves a; k2 leaves a; "
          "k3 leaves a; mail 2 k1; mail 2 k2; mail 2 k3");
    cr_expect_eq(scene.plan.packet_size, scene.settings.max_packet);
}

/* P23: it would be refused as too large, although alone it fits. */
Test(plan_queue, acquire_alone_in_its_batch_is_put_back_if_waiters_fill_the_packet)
{
    given("a capacity=3; k1 waits a server=2 place=-2s; k2 waits a server=2");
    scene.settings.max_packet = PACKET_OF_BATCH + 3 * PACKET_OF_GRANT - 1;
    batch("acquire k3 a", "put_back a",
          "k1 granted server=2; k2 granted server=2; k1 leaves a; k2 leaves a; mail 2 k1; mail 2 k2");
    scene.settings.max_packet = PACKET_OF_BATCH + 3 * PACKET_OF_GRANT + 6;
    batch("acquire k3 a", "granted", NULL);
}

static void set_long_owner(const char *key)
{
    static char owner[255];
    memset(owner, 'o', sizeof owner);
    row(key)->owner = (struct bytes){owner, sizeof owner};
}

/* It is refused when its own server asks, and is in nobody's way until then. */
Test(plan_queue, waiter_whose_grant_no_packet_can_hold_blocks_none)
{
    given("a fifo capacity=2; h holds a:2; k1 waits a server=2 place=-2s; k2 waits a server=2");
    set_long_owner("k1");
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_END + PACKET_OF_GRANT;
    batch("release h", "ok", "h RELEASED; k2 granted server=2; k2 leaves a; mail 2 k2");
}

/* The same of a waiter for which too few units are free. */
Test(plan_queue, waiter_whose_grant_no_packet_can_hold_reserves_nothing)
{
    given("a fifo capacity=2; h holds a; k1 waits a:2 server=2 place=-60s since=-60s");
    set_long_owner("k1");
    batch("acquire k2 a", "no_capacity a behind", NULL);
    scene.settings.max_packet = PACKET_OF_BATCH + PACKET_OF_GRANT + 2 * 3;
    batch("acquire k2 a", "granted", NULL);
}

Test(plan_queue, due_holder_is_not_ended_for_a_grant_that_no_packet_can_hold)
{
    given("h holds a due=-1us");
    scene.settings.max_packet = PACKET_BATCH + PACKET_SEMAPHORE + PACKET_OF_GRANT + 2 * 3 - 1;
    batch("acquire k1 a wait", "too_large", "");
}

static void hold_six_that_are_due(void)
{
    given("h1 holds a due=-1us; h2 holds a due=-1us; h3 holds a due=-1us; h4 holds a due=-1us; h5 holds a due=-1us; "
          "h6 holds a due=-1us");
}

/* The expiry task ends them. */
Test(plan_queue, due_holders_without_room_in_the_packet_are_not_ended_for_an_acquire)
{
    given("a capacity=6");
    hold_six_that_are_due();
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END - 1;
    batch("acquire k1 a:6", "no_capacity a", "");
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END + PACKET_OF_GRANT + 2 * 3;
    batch("acquire k1 a:6", "granted", NULL);
}

/* The unit that is kept for W is not all that it lacks, so no locks help. */
Test(plan_queue, acquire_whose_due_holders_have_no_room_is_not_put_back)
{
    given("a capacity=7");
    hold_six_that_are_due();
    given("W waits a c server=2");
    batch("acquire k1 a:7", "put_back ac", NULL);
    scene.settings.max_packet = PACKET_OF_BATCH + 6 * PACKET_OF_END - 1;
    batch("acquire k1 a:7", "no_capacity a behind", NULL);
}

/* k3 and k4 stand behind the part that was read, so there may be others with their needs before them. */
Test(plan_queue, needs_are_not_left_out_for_a_waiter_behind_the_part_that_was_read)
{
    given("a capacity=4; k0 holds a b; k1 waits a:4 server=2 place=-70s; k2 waits a b server=2 place=-63s since=-60s; "
          "k3 waits a:2 b server=2 place=-62s since=-60s");
    cut_queue("k2");
    batch("renew k0", "reads more", NULL);
    then("plan hopeless=k1 for_protected=0");
}

Test(plan_queue, waiter_with_ttl_owner_is_granted_by_its_own_server)
{
    given("k1 waits a ttl=owner server=2 place=-3s");
    batch("acquire k2 a; acquire k3 a widened", "put_back a; no_capacity a behind", "mail 2 k1");
}

Test(plan_queue, waiter_with_a_dead_owner_blocks_no_others)
{
    scene.owner = (struct owner_state){BYTES("o"), false};
    given("k1 waits a ttl=owner owner=o server=2 place=-3s");
    batch("acquire k2 a", "granted", "+k2 ACQUIRED");
}

/* ---- units that are kept for others ---- */

Test(plan_queue, request_is_put_back_if_units_are_kept_for_one_that_cannot_be_decided)
{
    given("a fifo; k1 waits a c server=2");
    batch("acquire k2 a wait", "put_back ac", "mail 2 k1");
    batch("acquire k2 a wait widened", "no_capacity a behind waits", "+k2 WAITING server=1; k2 enters a; mail 2 k1");
}

/* Each of k1 and k2 is decided only in its own batch: the calls go back through the queue once, and not around. */
Test(plan_queue, waiter_that_was_called_calls_those_behind_it)
{
    given("k1 waits a b place=-100s; k2 waits a c server=2 place=-99s; k0 holds b");
    batch("look k1 a b", "no_capacity b waits", "k1 WAITING server=1; mail 2 k2");
}

Test(plan_queue, waiter_that_was_called_does_not_call_those_before_it)
{
    given("k2 waits a c server=2 place=-101s; k1 waits a b place=-100s; k0 holds b");
    batch("look k1 a b", "no_capacity a behind b waits", "k1 WAITING server=1");
}

/* P17: k2 lacks only the unit of b that is kept for k1, so it may fit, or be in nobody's way. */
Test(plan_queue, request_is_put_back_with_the_locks_of_all_those_before_it)
{
    given("a fifo; b fifo; k1 waits b c server=2 place=-2s; k2 waits a b server=2");
    batch("acquire k3 a wait", "put_back abc", NULL);
}

Test(plan_queue, waiter_behind_one_that_does_not_fit_locks_no_more)
{
    given("a fifo; b fifo; k0 holds b; k1 waits b c server=2 place=-2s; k2 waits a b server=2");
    batch("acquire k3 a b wait", "no_capacity a behind b behind waits", NULL);
}

Test(plan_queue, waiter_that_lacks_units_of_holders_locks_no_more)
{
    given("a fifo; k0 holds a; k1 waits a c server=2");
    batch("acquire k2 a wait", "no_capacity a behind waits", NULL);
}

Test(plan_queue, waiter_behind_one_that_surely_blocks_it_is_not_called)
{
    given("a fifo capacity=2; k0 holds a; k1 waits a:2 c server=2 place=-4s; "
          "k2 waits a:2 server=2 place=-3s since=0s; k3 waits a c server=2 place=-2s");
    batch("acquire k4 a", "no_capacity a behind", "");
}

/* ---- unclaimed grants ---- */

/* Trace "B's host dies with its clients": an unclaimed grant is due after PLACE_KEPT_US. */
Test(plan_queue, grant_on_behalf_of_another_server_is_due_until_it_is_claimed)
{
    given("k1 waits a server=2 place=-3s");
    batch("acquire k2 a", "no_capacity a", NULL);
    then("k1 due=10s ttl=1000 acquired=0s unwanted; a due=10s");
}

Test(plan_queue, claim_sets_the_deadline_to_the_ttl_from_then)
{
    given("k1 holds a server=1 due=3s");
    batch("look k1 a mailed", "granted", "k1 ACQUIRED; -mail 1 k1");
    then("k1 due=1s; a due=1s version=1");
}

Test(plan_queue, claim_at_another_server_tells_the_first)
{
    given("k1 holds a server=2 due=3s");
    batch("acquire k1 a; acquire k1 a", "granted; replayed", "k1 ACQUIRED; mail 2 k1");
}

Test(plan_queue, grant_whose_client_has_gone_is_not_claimed)
{
    given("k1 holds a server=1 due=3s");
    batch("leave k1 a", "no_capacity", "");
}

Test(plan_queue, renew_and_confirm_claim)
{
    given("k1 holds a server=2 due=3s");
    batch("renew k1", "ok", "k1 ACQUIRED; mail 2 k1");
    then("k1 due=1s");
    batch("confirm k1", "ok", "k1 ACQUIRED; mail 2 k1");
    then("k1 due=never");
}

Test(plan_queue, unclaimed_grant_that_is_due_ends_as_expired)
{
    given("k1 holds a server=1 due=0s");
    row("k1")->ttl_ms = TTL_NONE;
    batch("acquire k1 a wait; acquire k2 a", "ended; granted", NULL);
    then("k1 end=expired server=0");
}

Test(plan_queue, grant_to_an_operation_is_claimed)
{
    given("k1 waits a place=-3s");
    batch("acquire k1 a wait; acquire k1 a wait", "granted; replayed", "k1 granted; k1 leaves a");
    then("k1 due=1s");
}

Test(plan_queue, grant_to_a_copy_at_another_server_tells_the_first)
{
    given("k1 waits a server=2 place=-3s");
    batch("acquire k1 a", "granted", "k1 granted; k1 leaves a; mail 2 k1");
}

/* ---- asks ---- */

Test(plan_queue, ask_that_changes_nothing_writes_nothing)
{
    given("k0 holds a; k1 waits a place=-3s until=20s");
    batch("look k1 a", "no_capacity a waits", "");
    then("#1 may_wait");
}

Test(plan_queue, mail_is_deleted_with_its_operation_unless_that_is_put_back)
{
    given("k0 holds a; k1 waits a place=-3s until=20s; k2 waits a c place=-3s until=20s");
    batch("look k1 a mailed; look k2 a mailed", "no_capacity a waits; put_back ac", "-mail 1 k1");
}

Test(plan_queue, later_end_of_the_wait_is_written)
{
    given("k0 holds a; k1 waits a place=-3s");
    batch("acquire k1 a wait", "no_capacity a waits", "k1 WAITING server=1");
    then("k1 until=20s due=30s since=-1s");
}

Test(plan_queue, kept_place_is_found_again)
{
    given("k0 holds a; k1 waits a kept place=-3s until=60s");
    batch("acquire k1 a wait", "no_capacity a waits", "k1 WAITING server=1");
    then("k1 place=-3s until=20s; a waiting=1 version=1");
}

/* Trace "w waits at A, asks again at B": the first copy is told by mail. */
Test(plan_queue, waiter_moves_with_its_place_to_the_server_that_asks)
{
    given("k0 holds a; k1 waits a server=2 place=-3s");
    batch("acquire k1 a wait", "no_capacity a waits", "k1 WAITING server=1; mail 2 k1");
    then("a waiting=1");
}

Test(plan_queue, copy_that_waited_here_has_moved)
{
    given("k1 waits a server=2 place=-3s");
    /* it fits, and is granted where it waits now */
    batch("look k1 a mailed", "outcome_unknown", "k1 granted server=2; k1 leaves a; -mail 1 k1; mail 2 k1");
}

/* Trace "a stopped permitd comes back": it has a new id, and takes the places of its old one. */
Test(plan_queue, waiter_of_a_dead_server_goes_on_in_its_place)
{
    given("k0 holds a; k1 waits a dead place=-3s");
    batch("look k1 a", "no_capacity a waits", "k1 WAITING server=1");
    then("k1 place=-3s");
}

Test(plan_queue, ask_without_a_wait_changes_no_place)
{
    given("k0 holds a; k1 waits a kept place=-3s; k2 waits a server=2 place=-3s");
    batch("acquire k1 a; acquire k2 a", "no_capacity a; no_capacity a", "");
}

/* P22, trace "w waits at B, its time ends": a wait ends by a write, and a later batch grants it nothing. */
Test(plan_queue, last_decision_ends_the_wait_by_a_write)
{
    given("k0 holds a; k1 waits a place=-3s");
    batch("look k1 a last", "no_capacity a", "k1 WAITING");
    then("a waiting=0 version=1");
}

Test(plan_queue, last_decision_grants_if_it_fits)
{
    given("k1 waits a place=-3s");
    batch("look k1 a last", "granted", "k1 granted; k1 leaves a");
}

/* P17: a waiter that left before its batch began holds nothing. */
Test(plan_queue, waiter_whose_client_has_gone_leaves_before_it_is_decided)
{
    given("k1 waits a left place=-3s; k2 waits a server=2 place=-2s");
    batch("leave k1 a", "no_capacity", "k1 WAITING; k2 granted server=2; k2 leaves a; mail 2 k2");
    then("k1 due=10s");
}

Test(plan_queue, client_that_left_takes_nothing_from_its_copy_elsewhere)
{
    given("k0 holds a; k1 waits a server=2 place=-3s");
    batch("leave k1 a; leave k2 a", "no_capacity; no_capacity", "");
}

/* Trace "a kept place; the key is asked again with other content": a place nobody asks for gives way. */
Test(plan_queue, kept_place_gives_way_to_other_content)
{
    given("k0 holds a; k1 waits a kept place=-3s; k2 waits a dead place=-3s");
    batch("acquire k1 a wait other; acquire k2 b other", "no_capacity a waits; granted",
          "+k1 WAITING server=1; +k2 ACQUIRED; -k1; -k2; k1 leaves a; k2 leaves a; k1 enters a");
    then("a waiting=1; k1 place=0s");
}

Test(plan_queue, place_that_is_asked_for_does_not_give_way)
{
    given("k0 holds a; k1 waits a server=2 place=-3s");
    batch("acquire k1 a wait other", "key_reused", "");
    detail(1, "the key stands for another request: 1 of a");
}

/* Trace "failover: w's row is gone": it is entered again, in its place. */
Test(plan_queue, waiter_whose_row_is_gone_is_entered_again_in_its_place)
{
    given("k0 holds a");
    batch("look k1 a", "no_capacity a waits", "+k1 WAITING server=1; k1 enters a");
    then("k1 place=-100s since=-50s");
}

Test(plan_queue, waiter_that_is_entered_again_takes_the_place_of_other_content)
{
    given("k1 waits a dead place=-200s; k2 waits a server=2 place=-3s");
    batch("look k1 a other", "granted", "+k1 ACQUIRED; -k1; k1 leaves a");
}

Test(plan_queue, waiter_that_is_entered_again_is_granted_in_its_place)
{
    given("k2 waits a server=2 place=-3s");
    batch("look k1 a", "granted", "+k1 ACQUIRED");
    then("a waiting=1");
}

Test(plan_queue, waiter_that_is_entered_again_for_its_last_decision_keeps_its_place)
{
    given("k0 holds a");
    batch("look k1 a last", "no_capacity a", "+k1 WAITING; k1 enters a");
    then("a waiting=0");
}

Test(plan_queue, waiter_that_can_never_be_granted_is_not_entered_again)
{
    batch("look k1 a:2", "never_satisfiable", NULL);
    then("plan requests=0 places=0; a waiting=0");
}

Test(plan_queue, full_queue_is_refused_with_its_limit)
{
    given("k0 holds a b; a max_waiters=1");
    scene.settings.max_semaphore_waiters = 2;
    batch("acquire k1 a wait; acquire k2 a b wait; acquire k3 a; acquire k4 b wait; acquire k5 b wait; "
          "acquire k6 b wait",
          "no_capacity a waits; too_many; no_capacity a; no_capacity b waits; no_capacity b waits; too_many", NULL);
    detail(2, "too many waiting requests for a (its max_waiters is 1)");
    detail(6, "too many waiting requests for b (max_semaphore_waiters is 2)");
    then("#2 may_not_wait");
}

Test(plan_queue, no_request_waits_at_a_server_without_an_id)
{
    given("k0 holds a; k2 waits a server=2 place=-2s");
    scene.settings.server_id = 0;
    batch("acquire k1 a wait; acquire k2 a wait", "no_capacity a; no_capacity a", ""); /* the engine tries k2 again */
}

/* k1 ends H, and for that needs c: then k2, which lacks only the unit that is kept for k1, is decided with it. */
Test(plan_queue, request_behind_one_that_is_put_back_is_put_back_with_it)
{
    scene.no_queues = true;
    given("H holds b c due=0s");
    batch("acquire k1 b; acquire k2 b", "put_back b; put_back b", NULL);
}

Test(plan_queue, ask_for_a_kept_place_that_is_put_back_keeps_its_need_once)
{
    given("a capacity=2; H holds b c due=0s; k1 waits a b kept place=-3s");
    batch("acquire k1 a b; acquire k2 a", "put_back ab; granted", NULL);
}

Test(plan_queue, copies_of_a_request_that_is_put_back_keep_its_need_once)
{
    given("a capacity=2; H holds b c due=0s");
    batch("acquire k1 a b; acquire k1 a b; acquire k2 a", "put_back ab; put_back ab; granted", NULL);
}

Test(plan_queue, ask_is_put_back_until_all_its_semaphores_are_locked)
{
    given("k1 waits a c kept place=-2s");
    batch("acquire k1 a wait; acquire k2 a", "put_back ac; put_back ac", "");
}

Test(plan_queue, waiter_put_back_does_not_delay_those_before_it)
{
    given("a capacity=2; k1 waits a server=2 place=-3s; k2 waits a c place=-2s until=20s; k3 waits a server=2");
    batch("look k2 a", "put_back ac", "k1 granted server=2; k1 leaves a; mail 2 k1; mail 2 k3");
}

/* ---- other operations on a key that waits ---- */

Test(plan_queue, release_of_a_waiting_key_ends_the_waiter)
{
    given("k0 holds a; k1 waits a server=2 place=-2s; k2 waits a place=-2s; k3 waits a kept place=-2s");
    batch("release k1; force_release k2; release k3; acquire k1 a wait", "ok; ok; ok; ended",
          "k1 RELEASED; k2 RELEASED; k3 RELEASED; k1 leaves a; k2 leaves a; k3 leaves a; event forced>; mail 2 k1; "
          "call k2");
    then("k1 end=never_held due=1us unwanted; plan never_held=3; a waiting=0");
}

Test(plan_queue, release_of_an_unknown_key_writes_a_tombstone)
{
    batch("release k1; acquire k1 a wait", "ok; ended", NULL);
    then("plan never_held=1");
}

Test(plan_queue, waiting_key_cannot_be_renewed_or_confirmed)
{
    given("k0 holds a; k1 waits a server=2 place=-2s");
    batch("renew k1; confirm k1", "unknown_request; unknown_request", "");
}

Test(plan_queue, place_is_removed_when_it_was_kept_for_long_enough)
{
    given("k0 holds a; k1 waits a kept place=-2s due=0s; k2 waits a kept place=-2s due=1us; "
          "k3 waits a server=2 place=-2s due=0s; k4 waits a place=-2s due=0s");
    batch("expire k1; expire k2; expire k3; expire k4", "ok; ok; ok; ok",
          "-k1; -k3; -k4; k1 leaves a; k3 leaves a; k4 leaves a; mail 2 k3; call k4");
    then("#1 row; #2 no_row; a waiting=0");
}

Test(plan_queue, place_of_a_dead_server_is_removed_and_those_of_others_stay)
{
    given("k0 holds a; k1 waits a dead place=-2s; k2 waits a kept place=-2s; k3 waits a server=2 place=-2s; "
          "k4 waits a dead place=-2s");
    batch("expire k1 never_held; expire k2 never_held; expire k3 never_held; expire k4 owner_dead", "ok; ok; ok; ok",
          "-k1; k1 leaves a");
    then("a waiting=2");
}

/* ---- several operations on a key that waits ---- */

Test(plan_queue, key_that_is_refused_and_asked_again_in_one_batch_has_one_place)
{
    given("k0 holds a");
    batch("acquire k1 a wait; acquire k1 a wait; acquire k1 a wait other",
          "no_capacity a waits; no_capacity a waits; key_reused", "+k1 WAITING server=1; k1 enters a");
    then("a waiting=1");
}

Test(plan_queue, release_after_the_ask_of_its_key_is_decided_after_the_grant)
{
    given("k1 waits a place=-2s; k2 waits a server=2");
    batch("acquire k1 a wait; release k1; acquire k3 a", "granted; ok; no_capacity a",
          "k1 granted RELEASED; k2 granted server=2; k1 leaves a; k2 leaves a; mail 2 k2");
    then("a in_use=1");
}

/* The second operation frees a unit after the walk: the waiter gets it before the new request does. */
Test(plan_queue, waiter_gets_units_that_a_late_release_frees)
{
    given("k1 holds a; k2 waits a");
    batch("acquire k2 a wait; acquire k1 a; release k1; acquire k3 a wait",
          "granted; replayed; ok; no_capacity a waits",
          "+k3 WAITING server=1; k1 RELEASED; k2 granted; k2 leaves a; k3 enters a");
}

/* ---- what must be read ---- */

Test(plan_queue, queue_is_read_if_units_may_be_free)
{
    given("a capacity=5 fifo; k1 holds a:3 b; k2 holds a:2 due=1us");
    reads_queues("release k1", "");
    given("a waiting=1");
    reads_queues("renew k1", "");
    reads_queues("release k1", "a free=3 fifo limit=64");
    row("k2")->due_at = NOW;
    reads_queues("renew k1", "a free=2");
    given("b waiting=1");
    reads_queues("release k1", "a; b free=1 backfill aged=-30s limit=64");
    given("a paused; b retired");
    reads_queues("release k1", "");
    given("k3 waits a kept");
    reads_queues("release k1", "servers");
}

Test(plan_queue, no_queue_is_read_before_the_end_of_a_failover_hold)
{
    given("a waiting=1");
    reads_queues("release k1", "a");
    scene.grants_from = NOW + 1;
    reads_queues("release k1", "");
}

/*
 * A queue of which few waiters were read ahead is read further; another one is read as far as it is protected: no units of
 * it are free.
 */
Test(plan_queue, reads_are_extended_by_what_the_plan_asks_for)
{
    struct queue_read reads[SCENE_SEMAPHORES] = {{.semaphore = A, .free = 2, .limit = QUEUE_READ_MAX}};
    const uint64_t hopeless[] = {7, 8};
    struct plan plan = {
        .read_more = 1 << A | 1 << B, .hopeless = hopeless, .hopeless_count = 2, .hopeless_protected = 1};
    size_t count = 1;
    struct view view = scene_view();
    given("b fifo");
    scene.queues[A].limit = 4;
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_assert_eq(count, 2);
    cr_expect(reads[0].limit == QUEUE_READ_MAX && reads[0].free == 2 && !reads[0].with_holders);
    cr_expect(reads[1].semaphore == B && reads[1].free == 0 && reads[1].limit == QUEUE_READ_MAX && reads[1].fifo);
    cr_expect(reads[1].aged == NOW - 30 * US_PER_SECOND && reads[1].all_watches);
    cr_expect(reads[1].hopeless == hopeless && reads[1].hopeless_count == 2 && reads[1].hopeless_protected == 1);
    plan = (struct plan){.read_more = 1 << A, .read_held = 1 << B};
    scene.queues[A].limit = scene.queues[B].limit = QUEUE_READ_MAX;
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_expect(count == 2 && reads[0].limit == QUEUE_PROTECTED_MAX && reads[1].limit == QUEUE_READ_MAX);
    cr_expect(reads[1].with_holders && reads[1].hopeless_count == 0);
    plan = (struct plan){.unknown_count = 1};
    cr_expect_not(plan_read_on(&plan, &view, &scene.settings, reads, &count));
}

/* The store locks and reads in this order. */
Test(plan_queue, reads_stay_in_the_order_of_semaphores)
{
    struct queue_read reads[SCENE_SEMAPHORES] = {{.semaphore = B, .free = 2, .limit = 4}};
    const struct plan plan = {.read_held = 1 << A};
    size_t count = 1;
    struct view view = scene_view();
    cr_expect(plan_read_on(&plan, &view, &scene.settings, reads, &count));
    cr_assert_eq(count, 2);
    cr_expect(reads[0].semaphore == A && reads[0].with_holders && reads[0].free == 0);
    cr_expect(reads[1].semaphore == B && !reads[1].with_holders && reads[1].free == 2 && reads[1].limit == 4);
}

Test(plan_queue, due_holders_are_read_for_acquires_and_for_the_waiters_before_them)
{
    given("k1 holds a due=0s");
    reads_due("acquire k2 a", "a units=1");
    given("a waiting=2");
    reads_due("acquire k2 a", "a units=3");
    reads_due("acquire k2 b", "a units=2"); /* a waiter of a may want b, too, and stands before it */
    reads_due("leave k2 b", "");
}

/* ---- rows to lock ---- */

Test(plan_waiting, rows_that_the_batch_may_end_for_others_are_those_with_all_locks)
{
    given("k1 holds a due=0s; k2 holds a c due=0s; k3 holds a due=1us; k4 holds a due=1us; k5 waits b kept");
    const struct operation *operations[] = {scene_operation("expire k1"), scene_operation("expire k4 owner_dead"),
                                            scene_operation("expire k5"), scene_operation("expire k6"),
                                            scene_operation("release k3")};
    struct view view = scene_view();
    uint64_t ids[16];
    cr_assert_eq(plan_ends_for_others(&view, operations, 5, false, ids), 3);
    cr_expect(ids[0] == row("k1")->id && ids[1] == row("k4")->id && ids[2] == row("k5")->id);
    cr_assert_eq(plan_ends_for_others(&view, operations + 4, 1, false, ids), 0);
    cr_assert_eq(plan_ends_for_others(&view, operations + 4, 1, true, ids), 1);
    cr_expect_eq(ids[0], row("k1")->id);
}

/* Else as many rows as an acquire needs units, all locked by others, would hide the due holders behind them. */
Test(plan_waiting, due_holders_are_read_past_those_that_another_session_has_locked)
{
    given("k1 holds a due=-1us");
    struct shortfall shortfalls[] = {{.semaphore = A, .units = 1}, {.semaphore = B, .units = 1}};
    struct view view = scene_view();
    scene.next_due[A] = scene.next_due[B] = NOW; /* others are due */
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0));
    row("k1")->locked_elsewhere = true;
    view.requests[0].locked_elsewhere = true;
    cr_assert(plan_read_past_locked(&view, shortfalls, 2, 0));
    cr_expect(shortfalls[0].more == 64 && shortfalls[1].more == 0);
    cr_assert(plan_read_past_locked(&view, shortfalls, 2, 1));
    cr_expect_eq(shortfalls[0].more, SLOTS_MAX_COUNT);
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 2), "a batch reads so many at most");
    scene.next_due[A] = NOW + 1;
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0), "all that are due were read");
    scene.next_due[A] = NOW;
    given("k2 holds a due=0s");
    view = scene_view();
    scene.next_due[A] = NOW;
    cr_assert_not(plan_read_past_locked(&view, shortfalls, 2, 0), "k2 has the unit that is missing");
}

/* Half of the waiters also want a semaphore that is not locked. */
Test(plan_queue, all_waiters_that_were_read_are_granted_or_called)
{
    static char rows[QUEUE_READ_MAX][40];
    given("a capacity=64; k0 holds a:64");
    for (unsigned i = 0; i < QUEUE_READ_MAX; i++) {
        snprintf(rows[i], sizeof rows[i], "w%02u waits a %s server=2 place=-%us", i, i % 2 ? "c" : "", 100 - i);
        given(rows[i]);
    }
    batch("release k0; acquire x a", "ok; put_back ac", NULL);
    then("a in_use=32 waiting=32; plan mail=64 places=32");
}

/* ---- refusals that allow a wait ---- */

Test(plan_waiting, request_may_wait_for_free_units)
{
    given("k1 holds a");
    batch("acquire k9 a", "no_capacity a", NULL);
    then("#1 may_wait");
}

Test(plan_waiting, request_may_wait_for_a_closed_semaphore)
{
    given("a capacity=0");
    batch("acquire k9 a:7", "no_capacity a", NULL);
    then("#1 may_wait");
}

Test(plan_waiting, request_may_wait_for_a_paused_semaphore)
{
    given("a paused");
    batch("acquire k9 a", "paused", NULL);
    then("#1 may_wait");
}

Test(plan_waiting, request_may_wait_for_the_end_of_a_failover_hold)
{
    scene.grants_from = NOW + 1;
    batch("acquire k9 a", "busy", NULL);
    then("#1 may_wait");
}

Test(plan_waiting, granted_and_unsatisfiable_requests_do_not_wait)
{
    batch("acquire k9 a", "granted", NULL);
    then("#1 may_not_wait");
    batch("acquire k9 a:2", "never_satisfiable", NULL);
    then("#1 may_not_wait");
    given("a retired");
    batch("acquire k9 a", "unknown_semaphore", NULL);
    then("#1 may_not_wait");
    given("k9 holds a");
    batch("acquire k9 a", "replayed", NULL);
    then("#1 may_not_wait");
}

/* ---- scopes ---- */

Test(plan_scope, request_with_a_semaphore_out_of_scope_is_not_found)
{
    given("k1 holds b; k2 holds a b; k3 waits a b server=2");
    batch("release k1 scope=a; release k2 scope=a; release k3 scope=a; renew k1 scope=a; confirm k2 scope=a",
          "unknown_request; unknown_request; unknown_request; unknown_request; unknown_request", "");
}

Test(plan_scope, request_in_scope_is_decided_as_without_one)
{
    given("a capacity=2; k1 holds a; k2 holds a");
    batch("renew k1 scope=a; confirm k1 scope=a; release k2 scope=a", "ok; ok; ok", "k1 ACQUIRED; k2 RELEASED");
}

Test(plan_scope, request_that_has_ended_out_of_scope_is_not_found)
{
    given("k1 holds b");
    row("k1")->state = REQUEST_RELEASED;
    row("k1")->end_reason = END_RELEASED;
    batch("release k1 scope=a; renew k1 scope=a", "unknown_request; unknown_request", "");
}

Test(plan_scope, release_of_an_unknown_key_is_a_tombstone)
{
    batch("release k1 scope=a", "ok", "+k1 RELEASED");
}

Test(plan_scope, scope_of_a_semaphore_that_is_not_locked_is_decided_under_its_lock)
{
    given("k1 holds a c");
    batch("release k1 scope=a", "put_back ac", NULL);
}

Test(plan_scope, forced_release_needs_all_semaphores)
{
    given("a capacity=2; k1 holds b; k2 holds a b; k3 holds a");
    batch("force_release k1 scope=a; force_release k2 scope=a; force_release k3 scope=a",
          "unknown_request; forbidden; ok", "k3 RELEASED; event forced>");
    detail(2, "needs the right operate on all semaphores of the request");
}

Test(plan_scope, reused_key_out_of_scope_is_not_described)
{
    given("k1 holds b; k2 holds a; k3 waits b server=2");
    batch("acquire k1 a other scope=a; acquire k2 a:2 other scope=a; acquire k3 a other scope=a",
          "key_reused; key_reused; key_reused", "");
    detail(1, "");
    detail(2, "the key stands for another request: 1 of a, ttl 1000 ms");
    detail(3, "");
}

Test(plan_scope, place_out_of_scope_that_no_client_asks_for_does_not_give_way)
{
    given("k1 waits b kept; k2 waits a kept");
    batch("acquire k1 a other scope=a; acquire k2 a other scope=a", "key_reused; granted", NULL);
    detail(1, "");
}

/* P22: a refusal that is final gives up the place, also when a look, a renewal and an acquire of the key come in one batch. */
Test(plan_waiting, look_and_acquire_of_a_key_on_a_retired_semaphore_give_up_its_place)
{
    given("a retired; k1 waits a");
    batch("look k1 a; acquire k1 a", "unknown_semaphore; unknown_semaphore", "k1 WAITING");
    given("a retired; k1 waits a");
    batch("look k1 a; renew k1; acquire k1 a wait", "unknown_semaphore; unknown_request; unknown_semaphore",
          "k1 WAITING");
    given("a retired; k1 waits a subscribed");
    batch("look k1 a; acquire k1 a wait", "unknown_semaphore; unknown_semaphore", "k1 WAITING");
}
