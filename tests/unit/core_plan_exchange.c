/* SPDX-License-Identifier: MIT */
/* Exchanges in plan_batch: one small batch a test, in the language of core_plan_scene.h. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/buf.h"
#include "core_plan_scene.h"

TestSuite(plan_shrink, .init = scene_hall, .fini = scene_release);
TestSuite(plan_grow, .init = scene_hall, .fini = scene_release);
TestSuite(plan_exchange, .init = scene_queue, .fini = scene_release);
TestSuite(plan_exchange_slots, .init = scene_hall, .fini = scene_release);

/* ---- shrink ---- */

Test(plan_shrink, count_gives_back_the_highest_slots_and_the_rest_keeps_its_token)
{
    scene_label_all();
    given("k1 holds hall@1,3,5 due=60s");
    batch("exchange k1 -hall:2 nonce=n", "ok",
          "k1 exchanged hall:1/1@1 1=A1; past k1 released hall:3/1@1,3,5 1=A1 3=A3 5=A5");
    then("k1 due=60s changes=1 nonce=n; hall in_use=1 first_free=2 version=2; plan slots=2");
}

Test(plan_shrink, named_slots_are_given_back_by_number_and_by_label)
{
    scene_label_all();
    given("k1 holds hall@1,3,5 due=60s");
    batch("exchange k1 -hall@A1,5 nonce=n", "ok",
          "k1 exchanged hall:1/1@3 3=A3; past k1 released hall:3/1@1,3,5 1=A1 3=A3 5=A5");
    then("hall in_use=1 first_free=1");
}

Test(plan_shrink, units_of_a_counted_semaphore_are_given_back)
{
    given("other counted");
    given("hall counted capacity=6; k1 holds hall:4 due=60s");
    batch("exchange k1 -hall nonce=n", "ok", "k1 exchanged hall:3/1; past k1 released hall:4/1");
    then("hall in_use=3; k1 due=60s");
}

Test(plan_shrink, all_given_back_is_a_release)
{
    given("k1 holds hall@1,3 due=60s");
    batch("exchange k1 -hall:2 nonce=n", "ok", "k1 RELEASED");
    then("k1 end=released changes=1 nonce=n; hall in_use=0");
}

Test(plan_shrink, more_than_is_held_is_invalid)
{
    scene_label_all();
    given("k1 holds hall@1,3 due=60s");
    batch("exchange k1 -hall:3 nonce=a; exchange k1 -hall@2 nonce=b; exchange k1 -hall@A2 nonce=c; "
          "exchange k1 -hall@1,A1 nonce=d",
          "invalid; invalid; invalid; invalid", "");
    detail(1, "hall: 3 to give back, the request holds 2");
    detail(2, "hall: the request does not hold slot 2");
    detail(3, "hall: the request does not hold slot A2");
    detail(4, "hall: slot 1 is named twice, by its number and by its label");
}

Test(plan_shrink, slots_that_are_given_back_go_to_a_waiter_of_the_same_batch)
{
    scene_label_all();
    given("k1 holds hall@1,2,3,4,5,6 due=60s; k2 waits hall@A6");
    batch("exchange k1 -hall:2 nonce=n", "ok",
          "k1 exchanged hall:4/1@1-4 1=A1 2=A2 3=A3 4=A4; k2 granted 6=A6; "
          "past k1 released hall:6/1@1-6 1=A1 2=A2 3=A3 4=A4 5=A5 6=A6; k2 leaves hall; "
          "tell k2");
    then("hall in_use=5 waiting=0");
}

/* P1: slots above a lowered capacity count as used until they are given back, and nobody gets them then. */
Test(plan_shrink, slots_out_of_service_are_given_back)
{
    given("k1 holds hall@1,5,6 due=60s; k2 waits hall@3");
    scene_set_capacity(3, 6);
    batch("exchange k1 -hall:2 nonce=n", "ok",
          "k1 exchanged hall:1/1@1; k2 granted 3; past k1 released hall:3/1@1,5-6; k2 leaves hall; tell k2");
    then("hall in_use=2 first_free=2");
}

/* ---- grow ---- */

Test(plan_grow, slots_are_merged_in_order_with_their_labels_under_a_new_token)
{
    scene_label_all();
    given("k1 holds hall@2,5 due=60s; k2 holds hall@3 due=60s");
    scene.semaphores[0].next_token = 7;
    batch("exchange k1 hall@1,A4,6 nonce=n", "ok",
          "k1 exchanged hall:5/7@1-2,4-6 1=A1 2=A2 4=A4 5=A5 6=A6; past k1 replaced hall:2/1@2,5 2=A2 5=A5");
    then("k1 due=60s changes=1; hall in_use=6 first_free=7; plan slots=5");
}

Test(plan_grow, labels_of_the_added_slots_alone_are_kept)
{
    given("k1 holds hall@2 due=60s");
    scene.slots[3].label = BYTES("D");
    batch("exchange k1 hall@D nonce=n", "ok", "k1 exchanged hall:2/57@2,4 2= 4=D; past k1 replaced hall:1/1@2");
}

Test(plan_grow, semaphore_of_which_the_request_had_nothing_is_added)
{
    scene_queue();
    given("a capacity=3; k1 holds a:2 due=9s");
    batch("exchange k1 b nonce=n", "ok", "k1 exchanged a:2/1 b:1/1");
    then("k1 due=9s; a version=1 in_use=2; b version=1 in_use=1 due=9s");
}

Test(plan_grow, sum_above_the_capacity_is_never_satisfiable)
{
    scene_queue();
    given("a capacity=3; k1 holds a:2 due=9s");
    batch("exchange k1 a:2 nonce=n; exchange k1 -a a:3 nonce=n", "never_satisfiable; never_satisfiable", "");
    detail(1, "a: the request would hold 4, it may hold 3");
}

Test(plan_grow, sum_up_to_the_capacity_is_taken)
{
    scene_queue();
    given("a capacity=3; k1 holds a:2 due=9s");
    batch("exchange k1 -a a:2 nonce=n", "ok", "k1 exchanged a:3/1; past k1 replaced a:2/1");
}

/* A closed semaphore may open again. */
Test(plan_grow, closed_semaphore_has_no_room_for_now)
{
    scene_queue();
    given("a capacity=0 in_use=0; k1 holds b due=9s");
    batch("exchange k1 a nonce=n", "no_capacity a", "");
    then("#1 may_not_wait requested=1");
}

/* ---- limits that the scenes are too small for ---- */

/* A view with one request that holds one unit of each of the first `held` of `count` counted semaphores. */
struct crowd {
    struct semaphore semaphores[REQUEST_MAX_SEMAPHORES];
    struct free_slots free_slots[REQUEST_MAX_SEMAPHORES];
    struct named_slots named_slots[REQUEST_MAX_SEMAPHORES];
    utc_us next_due[REQUEST_MAX_SEMAPHORES];
    struct permit permits[REQUEST_MAX_SEMAPHORES];
    struct want wants[REQUEST_MAX_SEMAPHORES];
    struct request request;
};

static struct view crowd_begin(struct crowd *crowd, size_t count, size_t held)
{
    memset(crowd, 0, sizeof *crowd);
    for (size_t i = 0; i < count; i++) {
        struct semaphore *semaphore = &crowd->semaphores[i];
        semaphore_reset(semaphore, 1000);
        semaphore->id = i + 1;
        semaphore->name = BYTES("s");
        semaphore->kind = KIND_COUNTED;
        semaphore->capacity = 9;
        semaphore->next_token = 2;
        semaphore->in_use = i < held;
        semaphore->retired_at = semaphore->next_due_at = crowd->next_due[i] = NEVER;
        crowd->permits[i] = (struct permit){.semaphore_id = i + 1, .token = 1, .count = 1};
        crowd->wants[i] = (struct want){.semaphore = BYTES("s"), .semaphore_id = i + 1, .count = 1};
    }
    crowd->request = (struct request){.id = 1,
                                      .external_id = BYTES("k"),
                                      .state = REQUEST_ACQUIRED,
                                      .due_at = NOW + US_PER_SECOND,
                                      .confirmed_at = NEVER,
                                      .ended_at = NEVER,
                                      .permits = crowd->permits,
                                      .permit_count = held};
    return (struct view){.semaphores = crowd->semaphores,
                         .free_slots = crowd->free_slots,
                         .named_slots = crowd->named_slots,
                         .next_due = crowd->next_due,
                         .semaphore_count = count,
                         .requests = &crowd->request,
                         .request_count = 1,
                         .clock = {.tick_at = NOW, .due = NOW, .from = NOW},
                         .now = NOW};
}

static struct plan plan_one(const struct view *view, const struct operation *operation)
{
    static struct arena arena;
    struct plan plan;
    struct plan_settings settings = {.retention_us = 1, .tombstone_us = 1, .default_ttl_ms = 1000, .server_id = HERE};
    arena_release(&arena);
    arena_init(&arena, 4096, 4 << 20);
    cr_assert_eq(plan_batch(view, &operation, 1, (struct id_range){10, 20}, &settings, &arena, &plan), PERMIT_OK);
    return plan;
}

Test(plan_grow, sixty_four_semaphores_are_the_most)
{
    static struct crowd crowd;
    struct operation grow = {.kind = OP_EXCHANGE, .external_id = BYTES("k"), .nonce = BYTES("n"), .want_count = 1};
    struct view view = crowd_begin(&crowd, 64, 63);
    grow.wants = &crowd.wants[63];
    struct plan plan = plan_one(&view, &grow);
    cr_assert_eq(plan.outcomes[0].status, PERMIT_OK);
    cr_assert_eq(plan.changes.requests[0].request->permit_count, 64);
    /* The 65th cannot be locked beside the others: so only these are, for the answer. */
    view = crowd_begin(&crowd, 64, 64);
    struct want another = {.semaphore = BYTES("t"), .semaphore_id = 65, .count = 1};
    grow.wants = &another;
    plan = plan_one(&view, &grow);
    cr_assert_eq(plan.outcomes[0].status, PERMIT_INVALID);
    view.semaphore_count = 1;
    plan = plan_one(&view, &grow);
    cr_assert(plan.outcomes[0].put_back);
    cr_assert_eq(plan.outcomes[0].need_count, 64);
}

Test(plan_grow, thousand_slots_are_the_most)
{
    static struct crowd crowd;
    static uint32_t numbers[SLOTS_MAX_COUNT];
    struct operation grow = {.kind = OP_EXCHANGE, .external_id = BYTES("k"), .nonce = BYTES("n"), .want_count = 1};
    struct view view = crowd_begin(&crowd, 1, 1);
    for (uint32_t i = 0; i < SLOTS_MAX_COUNT; i++)
        numbers[i] = i + 1;
    crowd.semaphores[0].kind = KIND_SLOTTED;
    crowd.semaphores[0].capacity = 2 * SLOTS_MAX_COUNT;
    crowd.semaphores[0].in_use = crowd.permits[0].count = SLOTS_MAX_COUNT;
    crowd.permits[0].slots = (struct slots){numbers, SLOTS_MAX_COUNT};
    grow.wants = crowd.wants;
    struct plan plan = plan_one(&view, &grow);
    cr_assert_eq(plan.outcomes[0].status, PERMIT_NEVER_SATISFIABLE);
    cr_assert_str_eq(plan.outcomes[0].detail, "s: the request would hold 1001, it may hold 1000");
}

/* Units that together are no 64-bit number do not wrap around. */
Test(plan_grow, sum_of_the_largest_counts_is_refused)
{
    static struct crowd crowd;
    struct operation grow = {.kind = OP_EXCHANGE, .external_id = BYTES("k"), .nonce = BYTES("n"), .want_count = 1};
    struct view view = crowd_begin(&crowd, 1, 1);
    crowd.semaphores[0].capacity = crowd.semaphores[0].in_use = crowd.permits[0].count = COUNTED_MAX_CAPACITY;
    crowd.wants[0].count = COUNTED_MAX_CAPACITY;
    grow.wants = crowd.wants;
    struct plan plan = plan_one(&view, &grow);
    cr_assert_eq(plan.outcomes[0].status, PERMIT_NEVER_SATISFIABLE);
}

/* ---- exchange ---- */

Test(plan_exchange, gives_one_semaphore_for_another)
{
    given("k1 holds a due=9s");
    batch("exchange k1 -a b nonce=n", "ok", "k1 exchanged b:1/1; past k1 released a:1/1");
    then("a in_use=0 version=1; b in_use=1 version=1 due=9s; k1 due=9s changes=1 nonce=n");
}

Test(plan_exchange, that_does_not_fit_changes_nothing)
{
    given("k1 holds a due=9s; k2 holds b");
    batch("exchange k1 -a b nonce=n; acquire k3 a", "no_capacity b; no_capacity a", "");
    then("#1 may_not_wait");
}

Test(plan_exchange, number_of_changes_is_that_of_the_row)
{
    given("a capacity=3; k1 holds a:2 due=9s changes=2 nonce=m");
    batch("exchange k1 -a changes=1 nonce=n", "version_mismatch", NULL);
    detail(1, "changes is 2 now, not 1: read the request again");
}

Test(plan_exchange, that_is_made_already_is_answered_with_the_present_state)
{
    given("a capacity=3; k1 holds a:2 due=9s changes=2 nonce=m");
    batch("exchange k1 -a changes=1 nonce=m; exchange k1 a changes=7 nonce=m", "replayed; replayed", "k1 ACQUIRED");
    then("k1 changes=2 nonce=m due=9s token=1; a version=0");
}

/* The nonce of a grant, and that of a request that was never changed, are not those of an exchange. */
Test(plan_exchange, empty_nonce_of_a_request_without_changes_is_no_replay)
{
    given("a capacity=3; k1 holds a:2 due=9s");
    batch("exchange k1 -a", "ok", "k1 exchanged a:1/1; past k1 released a:2/1");
}

Test(plan_exchange, request_that_waits_or_is_not_there_is_unknown)
{
    given("k1 holds a; k2 waits a");
    batch("exchange k2 -a nonce=n; exchange k3 -a nonce=n", "unknown_request; unknown_request", "");
}

Test(plan_exchange, request_out_of_scope_is_unknown)
{
    given("k1 holds a due=9s");
    batch("exchange k1 -a b scope=b nonce=n", "unknown_request", "");
}

Test(plan_exchange, confirmed_request_stays_as_it_is)
{
    given("k1 holds a confirmed; k2 holds b acquired=-9s due=9s confirmed errand=1 mine");
    batch("exchange k1 -a nonce=n; exchange k2 -b nonce=n", "confirmed; confirmed", NULL);
}

Test(plan_exchange, due_request_ends)
{
    given("k1 holds a due=0s; k2 waits a");
    batch("exchange k1 -a b nonce=n", "ended", "k1 RELEASED; k2 granted; k2 leaves a; tell k2");
    then("k1 end=expired; plan expired=1; b in_use=0");
}

/* The present state of a request whose deadline has passed is that it has ended, as for an acquire that comes again. */
Test(plan_exchange, due_request_ends_although_the_exchange_is_made_already)
{
    given("k1 holds a due=0s changes=1 nonce=n");
    batch("exchange k1 -b a nonce=n", "replayed", "k1 RELEASED");
    then("k1 end=expired changes=1; plan expired=1");
}

Test(plan_exchange, unclaimed_grant_is_claimed)
{
    given("a capacity=3; k1 holds a:2 due=5s ttl=none server=2");
    batch("exchange k1 -a nonce=n", "ok", "k1 exchanged a:1/1; past k1 released a:2/1; mail 2 k1");
    then("k1 server=0 due=1s");
}

/* Its client does not know yet that it holds something: a refused exchange does not tell. */
Test(plan_exchange, that_is_refused_claims_nothing)
{
    given("a capacity=2; k1 holds a due=5s ttl=none server=2; k2 holds b");
    batch("exchange k1 b nonce=n; exchange k1 -b nonce=n", "no_capacity b; invalid", "");
}

Test(plan_exchange, request_granted_in_the_batch_is_changed_by_the_next_one)
{
    given("a capacity=3");
    batch("acquire k1 a:2; exchange k1 -a nonce=n", "granted; put_back a", "+k1 ACQUIRED");
}

Test(plan_exchange, later_operations_on_the_key_are_put_back)
{
    given("a capacity=3; k1 holds a:3 due=9s");
    batch("exchange k1 -a nonce=n; renew k1; exchange k1 -a changes=1 nonce=m; release k1; acquire k1 a:3",
          "ok; put_back a; put_back a; put_back a; put_back a", "k1 exchanged a:2/1; past k1 released a:3/1");
}

Test(plan_exchange, semaphores_of_the_request_and_of_its_wants_are_locked)
{
    given("k1 holds a c due=9s; k2 holds b due=9s");
    batch("exchange k1 -a nonce=n; exchange k2 c nonce=n", "put_back ac; put_back bc", "");
}

Test(plan_exchange, due_holders_end_for_it)
{
    given("k1 holds a due=9s; k2 holds b due=0s");
    batch("exchange k1 -a b nonce=n", "ok", "k1 exchanged b:1/1; k2 RELEASED; past k1 released a:1/1");
    then("plan expired=1; k2 end=expired");
}

Test(plan_exchange, due_holders_of_semaphores_without_a_lock_end_first)
{
    given("k1 holds a due=9s; k2 holds b c due=0s");
    batch("exchange k1 -a b nonce=n", "put_back ab", "");
    then("plan overdue=k2 expired=0");
}

/* ---- the queue ---- */

Test(plan_exchange, own_units_are_taken_again_whoever_waits)
{
    given("a fifo; k1 holds a due=9s; k2 waits a place=-60s since=-60s");
    scene.semaphores[0].next_token = 5;
    batch("exchange k1 -a a nonce=n", "ok", "k1 exchanged a:1/5; past k1 replaced a:1/1");
}

Test(plan_exchange, more_than_own_units_pass_no_waiter)
{
    given("a fifo capacity=4; k1 holds a due=9s; k3 holds a; k2 waits a:3");
    batch("exchange k1 a nonce=n; exchange k1 -a a:2 nonce=n", "no_capacity a behind; no_capacity a behind", "");
}

Test(plan_exchange, units_that_are_reserved_are_not_taken)
{
    given("a capacity=4; k1 holds a due=9s; k3 holds a; k2 waits a:4 place=-60s since=-60s");
    batch("exchange k1 a nonce=n", "no_capacity a behind", "");
}

Test(plan_exchange, units_that_nobody_has_reserved_pass_a_waiter_under_backfill)
{
    given("a capacity=4; k1 holds a due=9s; k3 holds a; k2 waits a:4");
    batch("exchange k1 a nonce=n", "ok", NULL);
}

Test(plan_exchange, units_that_are_given_back_go_to_a_waiter)
{
    given("k1 holds a due=9s; k2 waits a server=2");
    batch("exchange k1 -a b nonce=n", "ok",
          "k1 exchanged b:1/1; k2 granted server=2; past k1 released a:1/1; k2 leaves a; mail 2 k2");
}

/* The slot is reserved for k2 as soon as it is free. */
Test(plan_exchange_slots, own_slots_that_a_waiter_has_reserved_are_not_taken_again)
{
    given("k1 holds hall@1,2,3,4,5,6 due=60s; k2 waits hall@6 other place=-60s since=-60s; k3 holds other");
    batch("exchange k1 -hall@6 hall@6 nonce=n", "no_capacity behind", NULL);
}

Test(plan_exchange_slots, own_slots_are_taken_again_under_a_new_token)
{
    scene_label_all();
    given("k1 holds hall@2,3 due=60s; k2 waits hall:6");
    batch("exchange k1 -hall@3 hall@3 nonce=n", "ok",
          "k1 exchanged hall:2/57@2-3 2=A2 3=A3; past k1 replaced hall:2/1@2-3 2=A2 3=A3");
    then("hall in_use=2; plan slots=2");
}

Test(plan_exchange_slots, one_seat_is_changed_for_another)
{
    scene_label_all();
    given("k1 holds hall@2,3 due=60s");
    batch("exchange k1 -hall@A2 hall@A1 nonce=n", "ok",
          "k1 exchanged hall:2/57@1,3 1=A1 3=A3; past k1 replaced hall:2/1@2-3 2=A2 3=A3");
    then("hall first_free=2");
}

/* Refused: the slots that it would have given back are held as before, also for later operations of the batch. */
Test(plan_exchange_slots, seat_is_kept_if_the_other_one_is_taken)
{
    given("k1 holds hall@2 due=60s; k2 holds hall@1 due=60s");
    batch("exchange k1 -hall@2 hall@1 nonce=n; acquire k3 hall@2; acquire k4 hall",
          "no_capacity 1 of k2/2 until 55s; no_capacity 2 of k1/1 until 55s; granted 3", NULL);
    then("hall in_use=3 first_free=4");
}

/* ---- the feed, the packet ---- */

Test(plan_exchange, feed_names_what_is_held_and_what_is_not_any_more)
{
    given("a all; b all; k1 holds a due=9s");
    batch("exchange k1 -a b nonce=n", "ok", "k1 exchanged b:1/1; past k1 released a:1/1; feed changed k1 b:1/1 a:0/1");
}

Test(plan_exchange, feed_of_sales_has_no_changes)
{
    given("a capacity=2 sales; k1 holds a:2 due=9s");
    batch("exchange k1 -a nonce=n", "ok", "k1 exchanged a:1/1; past k1 released a:2/1");
}

Test(plan_exchange, feed_has_the_end_of_a_request_that_gives_back_all)
{
    given("a all; k1 holds a due=9s");
    batch("exchange k1 -a nonce=n", "ok", "k1 RELEASED; feed ended k1 released a:1/1");
}

/* The record, the deletion of the old permits and the new ones have room beside the slots. */
Test(plan_exchange_slots, packet_has_room_for_the_record)
{
    given("k1 holds hall@1,2,3,4 due=60s");
    batch("exchange k1 -hall:2 nonce=n", "ok", NULL);
    size_t shrink = scene.plan.packet_size;
    cr_assert_geq(shrink, 2 * (PACKET_PERMIT + 4 * PACKET_SLOT));
    batch("exchange k1 -hall:2 hall:3 nonce=n", "ok", NULL);
    cr_assert_geq(scene.plan.packet_size, shrink + PACKET_GRANT + PACKET_PERMIT + 3 * PACKET_SLOT);
}
