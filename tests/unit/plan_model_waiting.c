/* SPDX-License-Identifier: MIT */
/*
 * Waiting, as transcripts: a request that does not fit is tried again with each later line, as often as its patience
 * allows, and the expected text beside it is its final result. core_plan.c has single batches.
 */
#include <criterion/criterion.h>

#include "plan_model_transcript.h"

TestSuite(plan_wait, .init = transcript_init, .fini = transcript_release);

/* ---- waits that end with a grant ---- */

Test(plan_wait, waiter_is_granted_in_the_freeing_batch_before_new_requests)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a patience=9", "ok created ACQUIRED a=2[1] ttl=600s due=610s", 0, 0},
           {"acquire k3 a; release k1", "no_capacity a:1+1>1; ok released a=1[1] due=604810s", 10, 0});
}

Test(plan_wait, waiter_is_granted_when_a_holder_is_due)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=5s", "ok created ACQUIRED a=1[1] ttl=5s due=5s", 0, 0},
           {"acquire k2 a patience=9", "ok created ACQUIRED a=2[1] ttl=600s due=605s", 0, 0},
           {"acquire k3 a", "no_capacity a:1+1>1 -", 4, 0}, {"acquire k4 a", "no_capacity a:1+1>1", 5, 0});
}

Test(plan_wait, waiter_is_granted_when_it_fits_all_its_semaphores)
{
    EXPECT(PUT_A(1), PUT_B(1),
           {"acquire k1 a; acquire k2 b",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k3 a b patience=9", "ok created ACQUIRED a=2[1] b=2[1] ttl=600s due=600s", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"release k2", "ok released b=1[1] due=604800s", 0, 0});
}

Test(plan_wait, waiter_is_granted_when_the_capacity_grows)
{
    EXPECT(PUT_A(0), {"acquire k1 a patience=9", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=0 config=2", 0, 0});
}

Test(plan_wait, waiter_waits_through_a_pause)
{
    EXPECT(PUT_A(1), {"pause a why=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"acquire k1 a patience=9; acquire k2 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s; paused -", 0, 0},
           {"resume a", "ok capacity=1 in_use=0 config=3", 0, 0});
}

Test(plan_wait, waiter_waits_until_the_end_of_a_failover_hold)
{
    EXPECT(PUT_A(1),
           {"grants_from=10s; acquire k1 a patience=9", "ok created ACQUIRED a=2048[1] ttl=600s due=610s", 0, 2},
           {"acquire k2 a", "no_capacity a:1+1>1", 10, 0});
}

Test(plan_wait, waiter_is_granted_under_its_own_nonce)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a patience=9 nonce=2; acquire k3 a nonce=1",
            "ok created ACQUIRED a=2[1] ttl=600s due=600s nonce=2; no_capacity a:1+1>1 -", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0});
}

/* ---- waits that end without a grant ---- */

Test(plan_wait, expired_wait_is_refused_for_lack_of_units)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a patience=1", "no_capacity a:1+1>1", 0, 0},
           {"acquire k1 a", "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s replays=1", 0, 0});
}

Test(plan_wait, waiter_over_a_lowered_capacity_is_refused)
{
    EXPECT(PUT_A(3), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0},
           {"acquire k2 a:2 patience=9", "never_satisfiable", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=2 config=2", 0, 0},
           {"release k1", "ok released a=1[1,2] due=604800s", 0, 0});
}

Test(plan_wait, waiter_for_a_retired_semaphore_is_refused)
{
    EXPECT(PUT_A(0), {"acquire k1 a patience=9", "unknown_semaphore -", 0, 0},
           {"retire a", "ok capacity=0 in_use=0 config=2", 0, 0});
}

Test(plan_wait, waiter_with_a_released_key_has_ended)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a patience=9", "ended never_held due=3600s replays=1", 0, 0},
           {"release k2", "ok never_held due=3600s", 0, 0},
           {"release k1; acquire k3 a", "ok released a=1[1] due=604800s; ok created ACQUIRED a=2[1] ttl=600s due=600s",
            0, 0});
}

/* ---- queue order ---- */

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
           {"acquire k3 a:5 patience=2; acquire k4 a:2",
            "no_capacity a:5+5>8; ok created ACQUIRED a=3x2 ttl=600s due=600s", 0, 0},
           {"release k1; acquire k5 a:3", "ok released a=1x3 due=604800s; ok created ACQUIRED a=4x3 ttl=600s due=600s",
            0, 0},
           {"release k2", "ok released a=2x3 due=604800s", 0, 0});
}

Test(plan_wait, large_request_is_granted_in_its_turn_under_fifo)
{
    EXPECT(EIGHT_UNITS("fifo"), ALL_BUT_TWO,
           {"acquire k3 a:6 patience=9; acquire k4 a:2 patience=9; acquire k5 a:2",
            "ok created ACQUIRED a=3x6 ttl=600s due=600s; ok created ACQUIRED a=4x2 ttl=600s due=600s; "
            "no_capacity a:6+2>8 behind -",
            0, 0},
           {"release k1", "ok released a=1x3 due=604800s", 0, 0},
           {"release k2; acquire k6 a:2", "ok released a=2x3 due=604800s; no_capacity a:8+2>8", 0, 0});
}

Test(plan_wait, no_request_passes_an_aged_one_under_backfill)
{
    EXPECT(EIGHT_UNITS("backfill"), ALL_BUT_TWO,
           {"acquire k3 a:6 patience=9 aged_at=1; acquire k4 a:1",
            "ok created ACQUIRED a=4x6 ttl=600s due=600s; ok created ACQUIRED a=3x1 ttl=600s due=600s", 0, 0},
           {"acquire k5 a:1", "no_capacity a:7+1>8 behind -", 0, 0},
           {"release k1; release k4; acquire k5 a:5",
            "ok released a=1x3 due=604800s; ok released a=3x1 due=604800s; no_capacity a:3+5>8 behind", 0, 0},
           {"release k2; acquire k5 a:2", "ok released a=2x3 due=604800s; ok created ACQUIRED a=5x2 ttl=600s due=600s",
            0, 0});
}

Test(plan_wait, request_put_back_keeps_its_turn_under_fifo)
{
    EXPECT({"put a capacity=1 fifo", "ok created capacity=1 in_use=0 config=1", 0, 0}, PUT_B(1),
           {"acquire k1 a b ttl=1s", "ok created ACQUIRED a=1[1] b=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a patience=9; acquire k3 a patience=9",
            "put_back ok created ACQUIRED a=2[1] ttl=600s due=605s; ok created ACQUIRED a=3[1] ttl=600s due=605s", 5,
            0},
           {"release k2", "ok released a=2[1] due=604805s", 0, 0});
}
