/* SPDX-License-Identifier: MIT */
/*
 * Waiting, as transcripts: a request that does not fit and waits is a row with a place; later batches of any permitd
 * grant it, and its operations ask again, leave and come back. core_plan.c has single batches.
 */
#include <criterion/criterion.h>

#include "plan_model_transcript.h"

TestSuite(plan_wait, .init = transcript_init, .fini = transcript_release);

#define A_IS_HELD                                                                                                      \
    {                                                                                                                  \
        "acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0                                           \
    }

/* ---- waits that end with a grant ---- */

Test(plan_wait, waiter_is_granted_in_the_freeing_batch_before_new_requests)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 a; release k1",
            "no_capacity a:1+1>1; ok released a=1[1] due=604810s; k2: ok created ACQUIRED a=2[1] ttl=600s due=610s", 10,
            0});
}

Test(plan_wait, waiter_at_another_server_is_granted_and_claims)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"server=2; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:1+1>1", 0, 0},
           {"server=1; release k1",
            "ok released a=1[1] due=604805s; k2: ok created ACQUIRED server=2 a=2[1] ttl=600s due=15s; mail 2 k2", 5,
            0},
           {"server=2; acquire k2 a wait=60s mailed", "ok created ACQUIRED a=2[1] ttl=600s due=606s", 6, 0});
}

Test(plan_wait, unclaimed_grant_ends_when_it_is_due)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"server=2; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:1+1>1", 0, 0},
           {"server=1; release k1",
            "ok released a=1[1] due=604805s; k2: ok created ACQUIRED server=2 a=2[1] ttl=600s due=15s; mail 2 k2", 5,
            0},
           {"acquire k3 a", "no_capacity a:1+1>1 -", 14, 0},
           {"acquire k3 a", "ok created ACQUIRED a=3[1] ttl=600s due=615s", 15, 0});
}

Test(plan_wait, waiter_is_granted_by_its_ask_when_a_holder_is_due)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=5s", "ok created ACQUIRED a=1[1] ttl=5s due=5s", 0, 0},
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 a", "no_capacity a:1+1>1 -", 4, 0},
           {"acquire k2 a wait=60s", "ok created ACQUIRED a=2[1] ttl=600s due=605s", 5, 0});
}

Test(plan_wait, newcomer_that_notices_an_expiry_goes_behind_the_waiter)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=5s", "ok created ACQUIRED a=1[1] ttl=5s due=5s", 0, 0},
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 a", "no_capacity a:1+1>1; k2: ok created ACQUIRED a=2[1] ttl=600s due=605s", 5, 0});
}

Test(plan_wait, waiter_is_called_and_then_granted_when_it_fits_all_its_semaphores)
{
    EXPECT(PUT_A(1), PUT_B(1),
           {"acquire k1 a; acquire k2 b",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k3 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1 b:1+1>1", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"release k2", "ok released b=1[1] due=604800s; call k3", 0, 0},
           {"acquire k3 a b wait=60s", "ok created ACQUIRED a=2[1] b=2[1] ttl=600s due=600s", 0, 0});
}

/* k4 lacks only the unit that is kept for k3, so it is decided in a batch that decides k3, too. */
Test(plan_wait, new_request_is_put_back_and_the_waiter_before_it_is_granted)
{
    EXPECT(PUT_A(1), PUT_B(1),
           {"acquire k1 a; acquire k2 b",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k3 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1 b:1+1>1", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"release k2", "ok released b=1[1] due=604800s; call k3", 0, 0},
           {"acquire k4 a",
            "put_back no_capacity a:1+1>1; call k3; k3: ok created ACQUIRED a=2[1] b=2[1] ttl=600s due=600s", 0, 0});
}

Test(plan_wait, waiter_is_granted_by_its_ask_when_the_capacity_grows)
{
    EXPECT(PUT_A(0), {"acquire k1 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:0+1>0", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"acquire k1 a wait=60s", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0});
}

Test(plan_wait, waiter_waits_through_a_pause)
{
    EXPECT(PUT_A(1), {"pause a why=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"acquire k1 a wait=60s; acquire k2 a", "paused waits WAITING place=0s server=1 due=70s; paused", 0, 0},
           {"resume a", "ok capacity=1 in_use=0 config=3", 0, 0},
           {"acquire k3 a", "no_capacity a:1+1>1; k1: ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0});
}

Test(plan_wait, waiter_waits_until_the_end_of_a_failover_hold)
{
    EXPECT(PUT_A(1), {"grants_from=10s; acquire k1 a wait=60s", "busy waits WAITING place=0s server=1 due=70s", 0, 2},
           {"acquire k1 a wait=60s", "busy waits WAITING place=0s server=1 due=79s", 9, 0},
           {"acquire k2 a", "no_capacity a:1+1>1; k1: ok created ACQUIRED a=2048[1] ttl=600s due=610s", 10, 0});
}

Test(plan_wait, waiter_is_granted_under_its_own_nonce)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s nonce=2; acquire k3 a nonce=1",
            "no_capacity waits WAITING place=0s server=1 due=70s nonce=2 a:1+1>1; no_capacity a:1+1>1", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s; k2: ok created ACQUIRED a=2[1] ttl=600s due=600s nonce=2", 0,
            0});
}

Test(plan_wait, waiter_with_ttl_owner_is_granted_by_its_own_server)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"alive=2; acquire k2 a ttl=owner owner=1 wait=60s",
            "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"release k1; acquire k3 a",
            "ok released a=1[1] due=604800s; put_back no_capacity a:0+1>1 behind; call k2; call k2 -", 0, 0},
           {"acquire k2 a ttl=owner owner=1 wait=60s", "ok created ACQUIRED a=2[1] ttl=owner due=never", 0, 0});
}

/* ---- waits that end without a grant ---- */

Test(plan_wait, wait_that_ends_keeps_its_place_for_a_while)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=5s", "no_capacity waits WAITING place=0s server=1 due=15s a:1+1>1", 0, 0},
           {"acquire k2 a last", "no_capacity a:1+1>1", 5, 0},
           {"acquire k3 a wait=60s", "no_capacity waits WAITING place=6s server=1 due=76s a:1+1>1", 6, 0},
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=77s a:1+1>1", 7, 0},
           {"release k1", "ok released a=1[1] due=604808s; k2: ok created ACQUIRED a=2[1] ttl=600s due=608s", 8, 0});
}

Test(plan_wait, kept_place_blocks_no_others_and_is_removed)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k2 a gone", "no_capacity", 1, 0},
           {"release k1; acquire k3 a", "ok released a=1[1] due=604802s; ok created ACQUIRED a=2[1] ttl=600s due=602s",
            2, 0},
           {"expire k2", "ok -", 10, 0}, {"expire k2", "ok WAITING place=0s due=11s", 11, 0},
           {"acquire k2 a", "no_capacity a:1+1>1 -", 11, 0});
}

Test(plan_wait, waiter_over_a_lowered_capacity_is_refused_when_it_asks)
{
    EXPECT(PUT_A(3), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0},
           {"acquire k2 a:2 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:2+2>3", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=2 config=2", 0, 0},
           {"acquire k2 a:2 wait=60s", "never_satisfiable", 0, 0},
           {"release k1", "ok released a=1[1,2] due=604800s", 0, 0});
}

Test(plan_wait, waiter_for_a_retired_semaphore_is_refused_when_it_asks)
{
    EXPECT(PUT_A(0), {"acquire k1 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:0+1>0", 0, 0},
           {"retire a", "ok capacity=0 in_use=0 config=2", 0, 0}, {"acquire k1 a wait=60s", "unknown_semaphore", 0, 0});
}

Test(plan_wait, waiter_with_a_released_key_has_ended)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"release k2", "ok never_held due=3600s; call k2", 0, 0},
           {"acquire k2 a wait=60s", "ended never_held due=3600s replays=1", 0, 0},
           {"release k1; acquire k3 a", "ok released a=1[1] due=604800s; ok created ACQUIRED a=2[1] ttl=600s due=600s",
            0, 0});
}

Test(plan_wait, waiter_holds_nothing_that_can_be_renewed)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"renew k2; confirm k2", "unknown_request; unknown_request -", 0, 0});
}

Test(plan_wait, full_queue_and_a_high_priority_are_refused)
{
    EXPECT({"put a capacity=1 max_waiters=1 max_priority=3", "ok created capacity=1 in_use=0 config=1", 0, 0},
           A_IS_HELD, {"acquire k2 a wait=60s priority=4", "invalid -", 0, 0},
           {"acquire k2 a wait=60s priority=3", "no_capacity waits WAITING place=-90s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 a wait=60s", "too_many -", 0, 0}, {"acquire k2 a gone", "no_capacity", 0, 0},
           {"acquire k3 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0});
}

/* ---- several permitd ---- */

Test(plan_wait, the_same_key_at_another_server_moves_there)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"server=2; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=2 due=71s a:1+1>1; mail 1 k2",
            1, 0},
           {"server=1; acquire k2 a wait=60s mailed", "outcome_unknown", 2, 0},
           {"server=1; release k1",
            "ok released a=1[1] due=604803s; k2: ok created ACQUIRED server=2 a=2[1] ttl=600s due=13s; mail 2 k2", 3,
            0});
}

Test(plan_wait, place_of_a_dead_server_blocks_no_others)
{
    EXPECT({"put a capacity=1 fifo", "ok created capacity=1 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"server=2; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:1+1>1", 0, 0},
           {"server=1; dead=4; release k1; acquire k3 a",
            "ok released a=1[1] due=604801s; ok created ACQUIRED a=2[1] ttl=600s due=601s", 1, 0},
           {"expire k2 abandoned", "ok WAITING place=0s server=2 due=70s", 2, 0});
}

Test(plan_wait, place_of_a_dead_server_serves_the_same_key)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"server=2; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:1+1>1", 0, 0},
           {"server=1; acquire k3 a wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s a:1+1>1", 1, 0},
           {"dead=4; acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=72s a:1+1>1", 2, 0},
           {"release k1", "ok released a=1[1] due=604803s; k2: ok created ACQUIRED a=2[1] ttl=600s due=603s", 3, 0});
}

Test(plan_wait, waiter_without_a_row_enters_again_in_its_place)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"server=2; dead=2; expire k2 abandoned; acquire k3 a wait=60s",
            "ok WAITING place=0s server=1 due=70s; no_capacity waits WAITING place=1s server=2 due=71s a:1+1>1", 1, 0},
           {"server=1; dead=0; release k1; acquire k2 a wait=60s",
            "ok released a=1[1] due=604802s; ok created ACQUIRED a=2[1] ttl=600s due=602s", 2, 0});
}

Test(plan_wait, kept_place_gives_way_to_the_key_with_other_content)
{
    EXPECT(PUT_A(1), PUT_B(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k2 b wait=60s", "key_reused -", 0, 0}, {"acquire k2 a gone", "no_capacity", 0, 0},
           {"acquire k2 b wait=60s", "put_back ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0});
}

Test(plan_wait, client_that_vanished_is_granted_nothing)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"release k1 vanished; release k2 vanished",
            "ok released a=1[1] due=604800s; ok never_held due=3600s; call k2", 0, 0});
}

/* ---- the order of the queue ---- */

/* A request for 5 of 8 units, among others for 3. */
#define EIGHT_UNITS(queue)                                                                                             \
    {                                                                                                                  \
        "put a capacity=8 counted " queue, "ok created capacity=8 in_use=0 config=1", 0, 0                             \
    }
#define ALL_BUT_TWO                                                                                                    \
    {                                                                                                                  \
        "acquire k1 a:3; acquire k2 a:3",                                                                              \
            "ok created ACQUIRED a=1x3 ttl=600s due=600s; ok created ACQUIRED a=2x3 ttl=600s due=600s", 0, 0           \
    }

Test(plan_wait, small_requests_pass_a_large_one_under_backfill)
{
    EXPECT(EIGHT_UNITS("backfill"), ALL_BUT_TWO,
           {"acquire k3 a:5 wait=60s; acquire k4 a:2",
            "no_capacity waits WAITING place=0s server=1 due=70s a:6+5>8; ok created ACQUIRED a=3x2 ttl=600s due=600s",
            0, 0},
           {"release k1; acquire k5 a:3", "ok released a=1x3 due=604800s; ok created ACQUIRED a=4x3 ttl=600s due=600s",
            0, 0},
           {"release k2", "ok released a=2x3 due=604800s", 0, 0});
}

Test(plan_wait, large_request_is_granted_in_its_turn_under_fifo)
{
    EXPECT(EIGHT_UNITS("fifo"), ALL_BUT_TWO,
           {"acquire k3 a:6 wait=60s; acquire k4 a:2 wait=60s; acquire k5 a:2",
            "no_capacity waits WAITING place=0s server=1 due=70s a:6+6>8; no_capacity waits WAITING place=0s server=1 "
            "due=70s a:6+2>8 behind; no_capacity a:6+2>8 behind",
            0, 0},
           {"release k1", "ok released a=1x3 due=604800s", 0, 0},
           {"release k2; acquire k6 a:2",
            "ok released a=2x3 due=604800s; no_capacity a:8+2>8; k3: ok created ACQUIRED a=3x6 ttl=600s due=600s; k4: "
            "ok created ACQUIRED a=4x2 ttl=600s due=600s",
            0, 0});
}

Test(plan_wait, no_request_passes_the_head_after_the_bound_under_backfill)
{
    EXPECT(EIGHT_UNITS("backfill"), ALL_BUT_TWO,
           {"acquire k3 a:6 wait=60s; acquire k4 a:1",
            "no_capacity waits WAITING place=0s server=1 due=70s a:6+6>8; ok created ACQUIRED a=3x1 ttl=600s due=600s",
            0, 0},
           {"acquire k5 a:1", "no_capacity a:7+1>8 behind -", 6, 0},
           {"release k1; release k4; acquire k5 a:5",
            "ok released a=1x3 due=604806s; ok released a=3x1 due=604806s; no_capacity a:3+5>8 behind", 6, 0},
           {"release k2; acquire k5 a:2",
            "ok released a=2x3 due=604806s; ok created ACQUIRED a=5x2 ttl=600s due=606s; k3: ok created ACQUIRED a=4x6 "
            "ttl=600s due=606s",
            6, 0});
}

Test(plan_wait, priority_goes_before_later_waiters_and_those_of_the_last_half_minute)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s a:1+1>1", 1, 0},
           {"acquire k3 a wait=60s priority=1", "no_capacity waits WAITING place=0s server=1 due=100s a:1+1>1", 30, 0},
           {"acquire k4 a wait=60s priority=1", "no_capacity waits WAITING place=2s server=1 due=102s a:1+1>1", 32, 0},
           {"release k1", "ok released a=1[1] due=604833s; k3: ok created ACQUIRED a=2[1] ttl=600s due=633s", 33, 0},
           {"release k3", "ok released a=2[1] due=604833s; k2: ok created ACQUIRED a=3[1] ttl=600s due=633s", 33, 0},
           {"release k2", "ok released a=3[1] due=604833s; k4: ok created ACQUIRED a=4[1] ttl=600s due=633s", 33, 0});
}

/* P20: two clients wait for k2 here; one of them is refused when its wait has passed. k3 does not pass the other one. */
Test(plan_wait, refused_copy_leaves_the_place_to_the_client_that_waits)
{
    EXPECT({"put a capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"acquire k2 a:2 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+2>2", 0, 0},
           {"acquire k2 a:2 anew last", "no_capacity a:1+2>2 -", 1, 0},
           {"~acquire k3 a", "no_capacity a:1+1>2 behind -", 1, 0},
           {"acquire k2 a:2 last", "no_capacity a:1+2>2", 2, 0},
           {"~acquire k3 a", "ok created ACQUIRED a=2[2] ttl=600s due=602s", 2, 0});
}

/* The same at a server that has lost its id, but not at one from which the key has moved away. */
Test(plan_wait, refused_copy_leaves_the_place_to_a_client_of_the_id_before)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"server=0; was=1; acquire k2 a anew last", "no_capacity a:1+1>1 -", 1, 0},
           {"server=3; was=0; acquire k2 a wait=60s",
            "no_capacity waits WAITING place=0s server=3 due=71s a:1+1>1; mail 1 k2", 1, 0},
           {"server=1; acquire k2 a anew last", "no_capacity a:1+1>1; mail 3 k2", 2, 0});
}

/* The key has moved to server 2, where its wait has ended; server 1 does not take the place back. */
Test(plan_wait, place_that_another_server_has_given_up_is_not_taken_back)
{
    EXPECT(PUT_A(1), A_IS_HELD,
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"server=2; acquire k2 a anew last", "no_capacity a:1+1>1; mail 1 k2", 1, 0},
           {"server=1; acquire k2 a wait=60s mailed", "outcome_unknown", 1, 0},
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=72s a:1+1>1", 2, 0});
}

/* k2 may fit, because k1 is due: the unit is kept from k4, but not from k3, which stands before it. */
Test(plan_wait, new_request_that_stands_before_others_gets_what_is_kept_for_them)
{
    EXPECT(
        PUT_A(3), PUT_B(1), {"acquire k1 b ttl=2s", "ok created ACQUIRED b=1[1] ttl=2s due=2s", 0, 0},
        {"server=2; acquire k2 a:2 b wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s b:1+1>1", 0, 0},
        {"server=1; acquire k3 a wait=60s priority=1", "ok created ACQUIRED a=1[1] ttl=600s due=602s; mail 2 k2", 2, 0},
        {"acquire k4 a",
         "put_back no_capacity a:3+1>3; mail 2 k2; k2: ok created ACQUIRED server=2 a=2[2,3] b=2[1] ttl=600s due=12s; "
         "mail 2 k2",
         2, 0});
}

/* P17: k2 waits for b, which is paused, so it blocks no others. A batch that locks only a cannot know that. */
Test(plan_wait, waiter_behind_one_of_a_paused_semaphore_is_called)
{
    EXPECT({"put a capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0}, PUT_B(1),
           {"put c capacity=1", "ok created capacity=1 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"acquire k4 a", "ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0},
           {"acquire k2 a:2 b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:2+2>2", 0, 0},
           {"pause b why=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"server=2; acquire k3 a c wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:2+1>2", 0, 0},
           {"server=1; release k1", "ok released a=1[1] due=604800s; mail 2 k3", 0, 0});
}

/* P17: the units were free before; a waiter that was in the way has left. */
Test(plan_wait, waiter_for_specific_slots_is_called_when_the_way_is_open)
{
    EXPECT({"put a capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0},
           {"put b capacity=1", "ok created capacity=1 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"acquire k2 a:2 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+2>2", 0, 0},
           {"server=2; acquire k3 a@2 b wait=60s", "no_capacity waits WAITING place=0s server=2 due=70s a:1+1>2 behind",
            0, 0},
           {"server=1; release k2", "ok never_held due=3601s; mail 2 k3; call k2", 1, 0});
}

Test(plan_wait, waiter_for_specific_slots_blocks_no_others_under_backfill)
{
    EXPECT(PUT_A(2), A_IS_HELD,
           {"acquire k2 a@1 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>2 (1 by k1)", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0},
           {"release k3", "ok released a=2[2] due=604800s", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s; k2: ok created ACQUIRED a=3[1] ttl=600s due=600s", 0, 0});
}

Test(plan_wait, no_request_passes_a_waiter_for_specific_slots_under_fifo)
{
    EXPECT({"put a capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"acquire k2 a@1 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>2 (1 by k1)", 0, 0},
           {"acquire k3 a", "no_capacity a:1+1>2 behind -", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s; k2: ok created ACQUIRED a=2[1] ttl=600s due=600s", 0, 0});
}

/* ---- reservations: the scenes of tests/model/reservations.py. A waiter is protected after 6 s ---- */

#define PUT_C(capacity)                                                                                                \
    {                                                                                                                  \
        "put c capacity=" #capacity, "ok created capacity=" #capacity " in_use=0 config=1", 0, 0                       \
    }

/* T0: one of ten units is reserved, not ten. */
Test(plan_wait, protected_waiter_reserves_its_need_and_no_more)
{
    EXPECT(PUT_A(1), PUT_B(3), A_IS_HELD,
           {"acquire k2 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b; acquire k4 b; acquire k5 b",
            "ok created ACQUIRED b=1[1] ttl=600s due=606s; ok created ACQUIRED b=2[2] ttl=600s due=606s; no_capacity "
            "b:2+1>3 behind",
            6, 0});
}

Test(plan_wait, t1_fifo_head_of_two_semaphores_is_not_passed)
{
    EXPECT(PUT_A(1), {"put b capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0}, A_IS_HELD,
           {"acquire k2 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b", "no_capacity b:0+1>2 behind -", 0, 0});
}

/* k4 wants b and c, so nothing is kept of c for it: b is full. */
Test(plan_wait, t2_waiter_of_two_semaphores_is_called_before_a_later_one)
{
    EXPECT(PUT_A(1), PUT_B(1), PUT_C(1), A_IS_HELD,
           {"acquire k2 b", "ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k4 b c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s b:1+1>1", 0, 0},
           {"acquire k5 a c wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s a:1+1>1", 1, 0},
           {"acquire k6 a wait=60s", "no_capacity waits WAITING place=2s server=1 due=72s a:1+1>1", 2, 0},
           {"release k1", "ok released a=1[1] due=604803s; call k5; call k6", 3, 0},
           {"acquire k6 a wait=60s",
            "put_back no_capacity waits WAITING place=2s server=1 due=73s a:1+1>1; k5: ok created ACQUIRED a=2[1] "
            "c=1[1] ttl=600s due=603s",
            3, 0});
}

/* a is s, b is x, c is d: k5 reserves nothing, because k4 has reserved its c; so k6 reserves both of a. */
Test(plan_wait, t3_reservations_count_in_turn)
{
    EXPECT(PUT_A(2), PUT_B(1), PUT_C(1),
           {"acquire k1 c; acquire k2 a",
            "ok created ACQUIRED c=1[1] ttl=600s due=600s; ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k4 c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s c:1+1>1", 0, 0},
           {"acquire k5 b c wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s c:1+1>1", 1, 0},
           {"acquire k6 a:2 b wait=60s", "no_capacity waits WAITING place=2s server=1 due=72s a:1+2>2", 2, 0},
           {"acquire k7 a", "no_capacity a:1+1>2 behind -", 8, 0});
}

Test(plan_wait, t4_equal_waiters_for_one_that_is_held_reserve_once)
{
    EXPECT(PUT_A(1), PUT_B(4), {"acquire k1 a b", "ok created ACQUIRED a=1[1] b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a b wait=60s; acquire k3 a b wait=60s; acquire k4 a b wait=60s",
            "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1; no_capacity waits WAITING place=0s server=1 "
            "due=70s a:1+1>1; no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1",
            0, 0},
           {"acquire k5 b", "ok created ACQUIRED b=2[2] ttl=600s due=606s", 6, 0},
           {"acquire k6 b wait=60s", "ok created ACQUIRED b=3[3] ttl=600s due=606s", 6, 0},
           {"acquire k7 b", "no_capacity b:3+1>4 behind -", 6, 0});
}

/* k4 stands behind three that want more: it is granted before a new request. */
Test(plan_wait, t4_next_waiter_comes_before_a_new_request)
{
    EXPECT(
        PUT_A(1), {"put b capacity=3 counted", "ok created capacity=3 in_use=0 config=1", 0, 0},
        {"acquire k1 a b; acquire k9 b:2",
         "ok created ACQUIRED a=1[1] b=1x1 ttl=600s due=600s; ok created ACQUIRED b=2x2 ttl=600s due=600s", 0, 0},
        {"acquire k2 a b wait=60s; acquire k3 a b wait=60s",
         "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1 b:3+1>3; no_capacity waits WAITING place=0s "
         "server=1 due=70s a:1+1>1 b:3+1>3",
         0, 0},
        {"acquire k4 b wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s b:3+1>3", 1, 0},
        {"release k9; acquire k5 b",
         "ok released b=2x2 due=604807s; no_capacity b:2+1>3 behind; k4: ok created ACQUIRED b=3x1 ttl=600s due=607s",
         7, 0});
}

Test(plan_wait, t5_pause_ends_a_reservation)
{
    EXPECT(PUT_A(1), PUT_B(2), A_IS_HELD,
           {"acquire k2 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b:2 wait=60s", "no_capacity waits WAITING place=7s server=1 due=77s b:0+2>2 behind", 7, 0},
           {"pause a why=1", "ok capacity=1 in_use=1 config=2", 7, 0},
           {"acquire k3 b:2 wait=60s", "ok created ACQUIRED b=1[1,2] ttl=600s due=608s", 8, 0});
}

/* k4 comes of age, and stands before k2 by its priority: from then on k2 reserves nothing. */
Test(plan_wait, t5_reservation_ends_when_another_one_before_it_comes_of_age)
{
    EXPECT(PUT_A(1), PUT_B(2), A_IS_HELD,
           {"acquire k2 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b:2 wait=60s", "no_capacity waits WAITING place=7s server=1 due=77s b:0+2>2 behind", 7, 0},
           {"acquire k4 a wait=60s priority=1", "no_capacity waits WAITING place=-23s server=1 due=77s a:1+1>1", 7, 0},
           {"acquire k3 b:2 wait=60s", "no_capacity waits WAITING place=7s server=1 due=82s b:0+2>2 behind", 12, 0},
           {"acquire k3 b:2 wait=60s", "ok created ACQUIRED b=1[1,2] ttl=600s due=613s", 13, 0});
}

Test(plan_wait, t6_waiter_stays_behind_a_reservation_that_lacks_another_unit)
{
    EXPECT(PUT_A(1), PUT_B(1), A_IS_HELD,
           {"acquire k2 a b wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b wait=60s", "no_capacity waits WAITING place=7s server=1 due=77s b:0+1>1 behind", 7, 0},
           {"acquire k3 b wait=60s", "no_capacity waits WAITING place=7s server=1 due=84s b:0+1>1 behind", 14, 0});
}

Test(plan_wait, t7_need_beyond_the_capacity_reserves_nothing)
{
    EXPECT(PUT_A(1), PUT_B(2), {"acquire k1 a b", "ok created ACQUIRED a=1[1] b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 a b wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s a:1+1>1", 1, 0},
           {"acquire k4 b", "ok created ACQUIRED b=2[2] ttl=600s due=607s", 7, 0});
}

/* The middle seat of the first row is sold; so k4 reserves 3, 4 and 5, of which two expire. */
Test(plan_wait, t8_run_without_a_sold_slot_is_reserved)
{
    EXPECT(PUT_A(6),
           {"acquire k1 a@2; acquire k2 a@4,5 ttl=30s",
            "ok created ACQUIRED a=1[2] ttl=600s due=600s; ok created ACQUIRED a=2[4,5] ttl=30s due=30s", 0, 0},
           {"confirm k1", "ok ACQUIRED a=1[2] ttl=600s due=never confirmed", 0, 0},
           {"acquire k4 a:3~ wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:3+3>6", 0, 0},
           {"acquire k5 a; acquire k6 a; acquire k7 a",
            "ok created ACQUIRED a=3[1] ttl=600s due=607s; ok created ACQUIRED a=4[6] ttl=600s due=607s; no_capacity "
            "a:5+1>6 behind",
            7, 0},
           {"acquire k8 a", "no_capacity a:6+1>6; k4: ok created ACQUIRED a=5[3,4,5] ttl=600s due=630s", 30, 0});
}

/* ---- what is read for reservations ---- */

/* k4 lacks c, and k5 lacks c: the batch does not see k4, because c is full, until it is asked whether k5 reserves a. */
Test(plan_wait, reservations_of_a_queue_without_free_units_count)
{
    EXPECT(PUT_A(2), PUT_C(1), {"acquire k1 a c", "ok created ACQUIRED a=1[1] c=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k4 c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s c:1+1>1", 0, 0},
           {"acquire k5 a c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s c:1+1>1", 0, 0},
           {"acquire k6 a; acquire k7 c", "ok created ACQUIRED a=2[2] ttl=600s due=607s; no_capacity c:1+1>1 behind", 7,
            0});
}

/* k4 reserves b and c, so that k5 reserves nothing: to see that, the batch looks at b, which no operation of it names. */
Test(plan_wait, reservations_of_semaphores_that_are_not_locked_count_in_turn)
{
    EXPECT({"put a capacity=3 counted", "ok created capacity=3 in_use=0 config=1", 0, 0}, PUT_B(5), PUT_C(2),
           {"acquire k1 a b c:2", "ok created ACQUIRED a=1x1 b=1[1] c=1[1,2] ttl=600s due=600s", 0, 0},
           {"acquire k4 b:2 c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s c:2+1>2", 0, 0},
           {"acquire k5 a c:2 wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s c:2+2>2", 1, 0},
           {"acquire k6 c; acquire k7 a:2", "no_capacity c:2+1>2 behind; ok created ACQUIRED a=2x2 ttl=600s due=608s",
            8, 0});
}

/* k4 waits for a slot of a by its label: the batch reads it, although a is full, because nobody passes k4 in c. */
Test(plan_wait, labels_of_a_queue_without_free_units_are_read)
{
    EXPECT(
        {"put a capacity=2 labels=L3,L1", "ok created capacity=2 in_use=0 config=1", 0, 0},
        {"put c capacity=2 fifo", "ok created capacity=2 in_use=0 config=1", 0, 0},
        {"acquire k1 a:2", "ok created ACQUIRED a=1[1/L3,2/L1] ttl=600s due=600s", 0, 0},
        {"acquire k4 a@L1 c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:2+1>2 (2 by k1)", 0, 0},
        {"acquire k5 a; acquire k6 c", "no_capacity a:2+1>2; no_capacity c:0+1>2 behind -", 0, 0});
}

/*
 * k3 and k4 may fit when k9 asks for d, so it is not known yet that k4 reserves b once k3 has it, and k5 nothing: what k5
 * needs is kept, not reserved, and k9 is decided in a batch that decides them all.
 */
Test(plan_wait, reservation_behind_kept_units_may_not_hold)
{
    EXPECT(PUT_A(1), PUT_B(1), PUT_C(1), {"put d capacity=1", "ok created capacity=1 in_use=0 config=1", 0, 0},
           A_IS_HELD,
           {"acquire k2 c; acquire k6 b",
            "ok created ACQUIRED c=1[1] ttl=600s due=600s; ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k3 b c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s b:1+1>1 c:1+1>1", 0, 0},
           {"acquire k4 b wait=60s", "no_capacity waits WAITING place=1s server=1 due=71s b:1+1>1", 1, 0},
           {"acquire k5 a b d wait=60s", "no_capacity waits WAITING place=2s server=1 due=72s a:1+1>1 b:1+1>1", 2, 0},
           {"release k6", "ok released b=1[1] due=604820s", 20, 0},
           {"release k2", "ok released c=1[1] due=604820s; call k3", 20, 0},
           {"acquire k9 d",
            "put_back ok created ACQUIRED d=1[1] ttl=600s due=620s; k3: ok created ACQUIRED b=2[1] c=2[1] ttl=600s "
            "due=620s",
            20, 0});
}

/* There is no semaphore d. k7 lacks what is kept for k4, and is put back with the locks of those that there are. */
Test(plan_wait, wider_locks_are_of_semaphores_that_exist)
{
    EXPECT(PUT_A(2), {"put b capacity=3 fifo", "ok created capacity=3 in_use=0 config=1", 0, 0}, PUT_C(1),
           {"acquire k1 c", "ok created ACQUIRED c=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k4 a b c wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s c:1+1>1", 0, 0},
           {"server=2; dead=2; acquire k7 b:2 wait=60s; acquire k4 a:2 b d",
            "put_back ok created ACQUIRED b=1[1,2] ttl=600s due=601s; put_back unknown_semaphore", 1, 0});
}

Test(plan_wait, t9_confirmed_units_are_never_reserved)
{
    EXPECT({"put a capacity=3 counted", "ok created capacity=3 in_use=0 config=1", 0, 0},
           {"acquire k1 a; confirm k1",
            "ok created ACQUIRED a=1x1 ttl=600s due=600s; ok ACQUIRED a=1x1 ttl=600s due=never confirmed", 0, 0},
           {"acquire k2 a:3 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+3>3", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=2x1 ttl=600s due=607s", 7, 0});
}

Test(plan_wait, t10_new_request_of_high_priority_is_bound_by_those_before_it_alone)
{
    EXPECT(PUT_A(1), PUT_B(2), A_IS_HELD,
           {"acquire k2 a b:2 wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:1+1>1", 0, 0},
           {"acquire k3 b", "no_capacity b:0+1>2 behind -", 7, 0},
           {"acquire k4 b priority=9", "ok created ACQUIRED b=1[1] ttl=600s due=607s", 7, 0});
}

/* The seats 1 to 4 are one row. The first release makes no pair. */
Test(plan_wait, waiter_for_seats_together_is_granted_when_the_group_is_free)
{
    EXPECT(PUT_A(4),
           {"acquire k1 a@2; acquire k3 a@4; acquire k4 a@1",
            "ok created ACQUIRED a=1[2] ttl=600s due=600s; ok created ACQUIRED a=2[4] ttl=600s due=600s; "
            "ok created ACQUIRED a=3[1] ttl=600s due=600s",
            0, 0},
           {"acquire k2 a:2! wait=60s", "no_capacity waits WAITING place=0s server=1 due=70s a:3+2>4", 0, 0},
           {"release k4", "ok released a=3[1] due=604801s", 1, 0},
           {"release k3", "ok released a=2[4] due=604802s; k2: ok created ACQUIRED a=4[3,4] ttl=600s due=602s", 2, 0});
}
