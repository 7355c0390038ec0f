/* SPDX-License-Identifier: MIT */
/*
 * Ends of permits other than releases, as transcripts: expiry at need, stale holders, dead owners, confirmed requests,
 * forced releases; and operators' control of new grants. plan_model_transcript.h explains the text.
 */
#include <criterion/criterion.h>

#include "plan_model_transcript.h"

TestSuite(plan_end, .init = transcript_init, .fini = transcript_release);

#define SECONDS(at) (MODEL_START + (at)*US_PER_SECOND)

static utc_us next_due_of_a(void)
{
    return transcript.run.rows.semaphores[0].next_due_at;
}

/* ---- expiry at need ---- */

Test(plan_end, new_request_ends_a_due_holder_at_its_deadline_only)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=10s", "ok created ACQUIRED a=1[1] ttl=10s due=10s", 0, 0},
           {"acquire k2 a", "no_capacity a:1+1>1 -", 9, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[1] ttl=600s due=610s", 10, 0},
           {"release k1", "ok already_released expired a=1[1] due=604810s replays=1", 0, 0});
}

Test(plan_end, due_holder_is_ended_after_its_grace)
{
    EXPECT({"put a capacity=1 grace=5s", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"acquire k1 a ttl=10s", "ok created ACQUIRED a=1[1] ttl=10s due=15s", 0, 0},
           {"acquire k2 a", "no_capacity a:1+1>1 -", 14, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[1] ttl=600s due=620s", 15, 0});
    struct request *first = &transcript.run.rows.requests[1];
    first->state = REQUEST_ACQUIRED; /* as before */
    first->due_at = SECONDS(15);
    cr_expect_eq(request_expires_at(first), SECONDS(10), "the client was told ttl alone");
}

Test(plan_end, longest_due_holders_are_ended_first_and_only_as_needed)
{
    EXPECT(PUT_A(4), {"acquire k1 a ttl=3s", "ok created ACQUIRED a=1[1] ttl=3s due=3s", 0, 0},
           {"acquire k2 a ttl=1s", "ok created ACQUIRED a=2[2] ttl=1s due=1s", 0, 0},
           {"acquire k3 a ttl=2s", "ok created ACQUIRED a=3[3] ttl=2s due=2s", 0, 0},
           {"acquire k4 a:3", "ok created ACQUIRED a=4[2,3,4] ttl=600s due=610s", 10, 0},
           {"expire k1; expire k2; expire k3", "ok expired a=1[1] due=604810s; ok; ok", 0, 0});
}

Test(plan_end, earlier_grant_is_ended_first_at_equal_deadlines)
{
    EXPECT(PUT_A(2),
           {"acquire k2 a ttl=1s; acquire k1 a ttl=1s",
            "ok created ACQUIRED a=1[1] ttl=1s due=1s; ok created ACQUIRED a=2[2] ttl=1s due=1s", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=3[1] ttl=600s due=601s", 1, 0});
}

Test(plan_end, no_holder_is_ended_for_a_request_that_does_not_fit)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 b", "ok created ACQUIRED b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k3 a b", "no_capacity a:1+1>1 b:1+1>1 -", 5, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=1s due=6s renewals=1", 0, 0});
}

Test(plan_end, request_that_fits_ends_no_holder)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[2] ttl=600s due=605s", 5, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=1s due=6s renewals=1", 0, 0});
}

Test(plan_end, due_holder_of_two_semaphores_is_put_back_with_both)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a b ttl=1s", "ok created ACQUIRED a=1[1] b=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a", "put_back ok created ACQUIRED a=2[1] ttl=600s due=605s", 5, 0},
           {"acquire k3 b", "ok created ACQUIRED b=2[1] ttl=600s due=605s", 0, 0},
           {"release k1", "ok already_released expired a=1[1] b=1[1] due=604805s replays=1", 0, 0});
}

Test(plan_end, two_new_requests_share_the_units_of_a_due_holder)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a b ttl=1s", "ok created ACQUIRED a=1[1] b=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a; acquire k3 b; acquire k4 b",
            "ok created ACQUIRED a=2[1] ttl=600s due=605s; ok created ACQUIRED b=2[1] ttl=600s due=605s; "
            "no_capacity b:1+1>1",
            5, 0});
}

Test(plan_end, release_frees_units_before_a_due_holder_is_ended)
{
    EXPECT(PUT_A(2),
           {"acquire k1 a ttl=1s; acquire k2 a",
            "ok created ACQUIRED a=1[1] ttl=1s due=1s; ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0},
           {"acquire k3 a; release k2", "ok created ACQUIRED a=3[2] ttl=600s due=605s; ok released a=2[2] due=604805s",
            5, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=1s due=6s renewals=1", 0, 0});
}

/* Found by the generated test, SEED=20264423: only the renewed holder had been read. */
Test(plan_end, renewed_due_holder_does_not_hide_the_next)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=2s", "ok created ACQUIRED a=2[2] ttl=2s due=2s", 0, 0},
           {"renew k1 ttl=60s; acquire k3 a",
            "ok ACQUIRED a=1[1] ttl=60s due=65s renewals=1; ok created ACQUIRED a=3[2] ttl=600s due=605s", 5, 0});
}

Test(plan_end, confirmed_due_holder_does_not_hide_the_next)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=2s", "ok created ACQUIRED a=2[2] ttl=2s due=2s", 0, 0},
           {"confirm k1; acquire k3 a",
            "ok ACQUIRED a=1[1] ttl=1s due=never confirmed; ok created ACQUIRED a=3[2] ttl=600s due=605s", 5, 0});
}

/* ---- at the deadline ---- */

Test(plan_end, renew_of_a_due_request_keeps_it_held)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a; renew k1", "no_capacity a:1+1>1; ok ACQUIRED a=1[1] ttl=1s due=6s renewals=1", 5, 0});
}

Test(plan_end, renew_after_the_end_never_revives)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"expire k1; renew k1; confirm k1",
            "ok expired a=1[1] due=604801s; ended expired a=1[1] due=604801s replays=1; "
            "ended expired a=1[1] due=604801s replays=2",
            1, 0},
           {"acquire k2 a:2 ttl=1s", "ok created ACQUIRED a=2[1,2] ttl=1s due=2s", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=3[1] ttl=600s due=602s", 2, 0},
           {"renew k2", "ended expired a=2[1,2] due=604802s replays=1", 0, 0},
           {"confirm k2", "ended expired a=2[1,2] due=604802s replays=2", 0, 0});
}

Test(plan_end, confirm_of_a_due_request_keeps_it_held)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a; confirm k1", "no_capacity a:1+1>1; ok ACQUIRED a=1[1] ttl=1s due=never confirmed", 5, 0},
           {"expire k1", "ok -", 0, 0}, {"acquire k2 a", "no_capacity a:1+1>1 -", 0, 0});
}

/* ---- two requests, confirmed together ---- */

Test(plan_end, two_requests_are_confirmed_together_under_the_locks_of_both)
{
    EXPECT(PUT_A(2), PUT_B(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 b ttl=9s", "ok created ACQUIRED b=1[1] ttl=9s due=9s", 0, 0},
           {"~confirm k1 with=k2", "put_back ok ACQUIRED b=1[1] ttl=9s due=never confirmed", 5, 0},
           {"renew k1; release k2",
            "ok ACQUIRED a=1[1] ttl=1s due=never confirmed "
            "renewals=1; confirmed ACQUIRED b=1[1] ttl=9s due=never confirmed replays=1",
            0, 0});
}

Test(plan_end, none_of_two_requests_is_confirmed_if_one_has_ended)
{
    EXPECT(PUT_A(3), {"acquire k1 a ttl=9s", "ok created ACQUIRED a=1[1] ttl=9s due=9s", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0},
           {"release k2; confirm k1 with=k2; confirm k2 with=k1; confirm k1 with=k9",
            "ok released a=2[2] due=604800s; ended released a=2[2] due=604800s replays=1; "
            "ended released a=2[2] due=604800s replays=2; unknown_request",
            0, 0},
           {"expire k1", "ok expired a=1[1] due=604810s", 10, 0});
}

Test(plan_end, replay_of_a_due_request_ends_it)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k1 a:2", "key_reused -", 5, 0}, {"acquire k1 a ttl=1s", "ended expired a=1[1] due=604805s", 0, 0},
           {"acquire k1 a ttl=1s", "ended expired a=1[1] due=604805s replays=1", 0, 0});
}

Test(plan_end, release_of_a_due_request_ends_it_as_released)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"release k1", "ok released a=1[1] due=604805s", 5, 0});
}

Test(plan_end, expiry_of_a_request_not_due_does_nothing)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a b ttl=10s", "ok created ACQUIRED a=1[1] b=1[1] ttl=10s due=10s", 0, 0},
           {"expire k1; expire k2", "ok; ok -", 9, 0}, {"~expire k1", "ok -", 0, 0},
           {"~expire k1", "put_back ok expired a=1[1] b=1[1] due=604810s", 10, 0}, {"~expire k1", "ok -", 0, 0});
}

Test(plan_end, answer_about_a_deletable_request_is_not_written)
{
    EXPECT(PUT_A(1),
           {"acquire k1 a; release k1; release k2",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok released a=1[1] due=604800s; ok never_held due=3600s", 0,
            0},
           {"release k1; renew k2",
            "ok already_released released a=1[1] due=604800s replays=1; ended never_held due=3600s replays=1", 3599, 0},
           {"acquire k2 a", "ended never_held due=3600s replays=1 -", 3600, 0},
           {"release k1; force_release k1",
            "ok already_released released a=1[1] due=604800s replays=1; "
            "ok already_released released a=1[1] due=604800s replays=1 -",
            604800, 0});
}

/* ---- stale ---- */

Test(plan_end, request_without_ttl_is_stale_after_max_hold)
{
    EXPECT({"put a capacity=1 max_hold=100s grace=5s", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"acquire k1 a ttl=none", "ok created ACQUIRED a=1[1] ttl=none due=100s", 0, 0},
           {"acquire k2 a ttl=none", "no_capacity a:1+1>1 -", 99, 0},
           {"acquire k2 a ttl=none", "ok created ACQUIRED a=2[1] ttl=none due=200s", 100, 0},
           {"release k1", "ok already_released stale a=1[1] due=604900s replays=1", 0, 0},
           {"expire k2", "ok stale a=2[1] due=605000s", 200, 0});
}

Test(plan_end, renew_of_a_request_without_ttl_restarts_max_hold)
{
    EXPECT({"put a capacity=1 max_hold=100s", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"acquire k1 a ttl=none", "ok created ACQUIRED a=1[1] ttl=none due=100s", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=none due=190s renewals=1", 90, 0},
           {"acquire k2 a; expire k1", "no_capacity a:1+1>1; ok", 189, 0},
           {"renew k1 ttl=none", "ok ACQUIRED a=1[1] ttl=none due=290s renewals=2", 190, 0});
}

/* ---- confirmed ---- */

Test(plan_end, confirmed_request_outlives_its_deadline_and_its_owner)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=1s owner=1", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"confirm k1", "ok ACQUIRED a=1[1] ttl=1s due=never confirmed", 5, 0},
           {"expire k1; expire k1 owner_dead; acquire k2 a", "ok; ok; no_capacity a:1+1>1", 99999, 0},
           {"acquire k1 a ttl=1s owner=1", "ok replayed ACQUIRED a=1[1] ttl=1s due=never confirmed replays=1", 0, 0});
}

Test(plan_end, second_confirm_and_renew_change_nothing_of_a_confirmed_request)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=9s", "ok created ACQUIRED a=1[1] ttl=9s due=9s", 0, 0},
           {"confirm k1; confirm k1",
            "ok ACQUIRED a=1[1] ttl=9s due=never confirmed; ok ACQUIRED a=1[1] ttl=9s due=never confirmed replays=1", 0,
            0},
           {"renew k1 ttl=60s", "ok ACQUIRED a=1[1] ttl=9s due=never confirmed renewals=1 replays=1", 0, 0},
           {"confirm k2", "unknown_request -", 0, 0});
}

Test(plan_end, confirmed_request_is_released_only_with_confirmed)
{
    EXPECT(PUT_A(1),
           {"acquire k1 a ttl=9s; confirm k1",
            "ok created ACQUIRED a=1[1] ttl=9s due=9s; ok ACQUIRED a=1[1] ttl=9s due=never confirmed", 0, 0},
           {"release k1", "confirmed ACQUIRED a=1[1] ttl=9s due=never confirmed replays=1", 0, 0},
           {"release k1 confirmed", "ok released a=1[1] due=604800s confirmed replays=1", 0, 0},
           {"release k1", "ok already_released released a=1[1] due=604800s confirmed replays=2", 0, 0});
}

/* ---- forced ---- */

Test(plan_end, forced_release_of_a_confirmed_request_is_recorded_for_each_semaphore)
{
    transcript.shows_record = true;
    EXPECT({"put a capacity=1", "ok created capacity=1 in_use=0 config=1 +a created >1", 0, 0},
           {"put b capacity=1", "ok created capacity=1 in_use=0 config=1 +b created >1", 0, 0},
           {"acquire k1 a b; confirm k1",
            "ok created ACQUIRED a=1[1] b=1[1] ttl=600s due=600s; ok ACQUIRED a=1[1] b=1[1] ttl=600s due=never "
            "confirmed",
            0, 0},
           {"~force_release k1 why=1; acquire k2 a",
            "put_back ok forced a=1[1] b=1[1] due=604800s confirmed +a forced k1> (repair) +b forced k1> (repair); "
            "no_capacity a:1+1>1 -",
            0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[1] ttl=600s due=600s", 0, 0});
}

Test(plan_end, second_forced_release_is_not_recorded)
{
    transcript.shows_record = true;
    EXPECT({"put a capacity=1", "ok created capacity=1 in_use=0 config=1 +a created >1", 0, 0},
           {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"force_release k1 why=2; force_release k1 why=2",
            "ok forced a=1[1] due=604800s +a forced k1> (night); ok already_released forced a=1[1] due=604800s "
            "replays=1",
            0, 0},
           {"force_release k2 why=2", "unknown_request -", 0, 0});
}

/* ---- owners ---- */

Test(plan_end, ttl_owner_needs_a_heartbeat)
{
    EXPECT(
        PUT_A(3), {"acquire k1 a ttl=owner owner=1", "unknown_owner -", 0, 0},
        {"alive=2; acquire k1 a ttl=owner owner=1; acquire k2 a ttl=owner owner=2",
         "ok created ACQUIRED a=1[1] ttl=owner due=never; unknown_owner", 0, 0},
        {"alive=0; acquire k1 a ttl=owner owner=1", "ok replayed ACQUIRED a=1[1] ttl=owner due=never replays=1", 0, 0},
        {"acquire k3 a ttl=9s owner=1", "ok created ACQUIRED a=2[2] ttl=9s due=9s", 0, 0});
}

Test(plan_end, request_with_ttl_owner_ends_only_with_its_owner)
{
    EXPECT({"put a capacity=1 max_hold=1s", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"alive=2; acquire k1 a ttl=owner owner=1", "ok created ACQUIRED a=1[1] ttl=owner due=never", 0, 0},
           {"expire k1; acquire k2 a", "ok; no_capacity a:1+1>1 -", 99999, 0}, {"renew k1 ttl=9s", "invalid -", 0, 0},
           {"renew k1 ttl=none", "invalid -", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=owner due=never renewals=1", 0, 0},
           {"renew k1 ttl=owner", "ok ACQUIRED a=1[1] ttl=owner due=never renewals=2", 0, 0},
           {"expire k1 owner_dead; acquire k2 a ttl=9s",
            "ok owner_dead a=1[1] due=704799s renewals=2; ok created ACQUIRED a=2[1] ttl=9s due=100008s", 0, 0},
           {"renew k2 ttl=owner", "invalid -", 0, 0});
}

Test(plan_end, request_with_a_ttl_ends_early_with_its_owner)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=600s owner=1", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"expire k1 owner_dead; renew k1",
            "ok owner_dead a=1[1] due=604805s; ended owner_dead a=1[1] due=604805s replays=1", 5, 0});
}

/* ---- no new grants ---- */

Test(plan_end, pause_stops_only_new_grants)
{
    EXPECT(PUT_A(3), PUT_B(1),
           {"acquire k1 a; acquire k2 a ttl=1s",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED a=2[2] ttl=1s due=1s", 0, 0},
           {"pause a why=1", "ok capacity=3 in_use=2 config=2", 0, 0}, {"acquire k3 a b", "paused -", 5, 0},
           {"acquire k1 a", "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=600s due=605s renewals=1 replays=1", 0, 0},
           {"confirm k2; release k1",
            "ok ACQUIRED a=2[2] ttl=1s due=never confirmed; ok released a=1[1] due=604805s renewals=1 replays=1", 0, 0},
           {"resume a", "ok capacity=3 in_use=1 config=3", 0, 0},
           {"acquire k3 a b", "ok created ACQUIRED a=3[1] b=1[1] ttl=600s due=605s", 0, 0});
}

Test(plan_end, second_pause_is_recorded_only_with_another_reason)
{
    transcript.shows_record = true;
    EXPECT({"pause a why=1", "unknown_semaphore -", 0, 0},
           {"put a capacity=1", "ok created capacity=1 in_use=0 config=1 +a created >1", 0, 0},
           {"resume a why=2", "ok capacity=1 in_use=0 config=1", 0, 0},
           {"pause a why=1", "ok capacity=1 in_use=0 config=2 +a paused (repair)", 0, 0},
           {"pause a why=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"pause a why=2", "ok capacity=1 in_use=0 config=3 +a paused (night)", 0, 0},
           {"resume a", "ok capacity=1 in_use=0 config=4 +a resumed", 0, 0},
           {"resume a", "ok capacity=1 in_use=0 config=4", 0, 0},
           {"retire a why=1", "ok capacity=1 in_use=0 config=5 +a retired (repair)", 0, 0},
           {"resume a", "unknown_semaphore -", 0, 0});
}

Test(plan_end, revived_semaphore_is_not_paused)
{
    EXPECT(PUT_A(1), {"pause a why=1", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"retire a", "ok capacity=1 in_use=0 config=3", 0, 0},
           {"put a capacity=1", "ok created capacity=1 in_use=0 config=4", 0, 0},
           {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0});
}

Test(plan_end, each_setting_that_changes_is_recorded)
{
    transcript.shows_record = true;
    EXPECT({"put a capacity=1 default_ttl=9s", "ok created capacity=1 in_use=0 config=1 +a created >1", 0, 0},
           {"put a capacity=1 default_ttl=9s", "ok capacity=1 in_use=0 config=1", 0, 0},
           {"put a capacity=2 max_ttl=60s fifo",
            "ok capacity=2 in_use=0 config=2 +a capacity 1>2 +a max_ttl_ms none>60000 +a queue backfill>fifo", 0, 0},
           {"put a default_ttl=8s grace=1s max_hold=7s",
            "ok capacity=2 in_use=0 config=3 +a default_ttl_ms 9000>8000 +a grace_ms 0>1000 "
            "+a max_hold_ms 86400000>7000",
            0, 0},
           {"put a default_ttl=61s", "invalid -", 0, 0}, {"put a if_match=2 capacity=5", "version_mismatch -", 0, 0},
           {"retire a", "ok capacity=2 in_use=0 config=4 +a retired", 0, 0},
           {"put a capacity=3", "ok created capacity=3 in_use=0 config=5 +a revived >3", 0, 0});
}

Test(plan_end, failover_hold_stops_only_new_grants)
{
    EXPECT(PUT_A(3),
           {"acquire k1 a; acquire k2 a ttl=1s",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED a=2[2] ttl=1s due=1s", 0, 0},
           {"grants_from=10s; acquire k3 a", "busy -", 9, 2},
           {"acquire k1 a; renew k1",
            "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1; "
            "ok ACQUIRED a=1[1] ttl=600s due=609s renewals=1 replays=1",
            0, 0},
           {"confirm k2; release k1",
            "ok ACQUIRED a=2[2] ttl=1s due=never confirmed; ok released a=1[1] due=604809s renewals=1 replays=1", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=2048[1] ttl=600s due=610s", 10, 0});
}

/* ---- next_due_at ---- */

Test(plan_end, outdated_next_due_at_rises_once)
{
    EXPECT(PUT_A(2),
           {"acquire k1 a ttl=5s; acquire k2 a ttl=100s",
            "ok created ACQUIRED a=1[1] ttl=5s due=5s; ok created ACQUIRED a=2[2] ttl=100s due=100s", 0, 0},
           {"release k1", "ok released a=1[1] due=604801s", 1, 0}, {"acquire k3 a:2", "no_capacity a:1+2>2", 10, 0},
           {"acquire k3 a:2", "no_capacity a:1+2>2 -", 0, 0});
    cr_expect_eq(next_due_of_a(), SECONDS(100));
}

Test(plan_end, next_due_at_is_kept_without_a_read)
{
    EXPECT(PUT_A(2),
           {"acquire k1 a ttl=5s; acquire k2 a ttl=100s",
            "ok created ACQUIRED a=1[1] ttl=5s due=5s; ok created ACQUIRED a=2[2] ttl=100s due=100s", 0, 0},
           {"renew k1 ttl=60s", "ok ACQUIRED a=1[1] ttl=60s due=61s renewals=1", 1, 0},
           {"release k2; acquire k4 a ttl=90s",
            "ok released a=2[2] due=604801s; ok created ACQUIRED a=3[2] ttl=90s due=91s", 0, 0});
    cr_expect_eq(next_due_of_a(), SECONDS(5));
}

Test(plan_end, next_due_at_is_the_first_unread_due_holder)
{
    EXPECT(PUT_A(3), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=2s", "ok created ACQUIRED a=2[2] ttl=2s due=2s", 0, 0},
           {"acquire k3 a ttl=30s", "ok created ACQUIRED a=3[3] ttl=30s due=30s", 0, 0},
           {"acquire k4 a", "ok created ACQUIRED a=4[1] ttl=600s due=610s", 10, 0});
    cr_expect_eq(next_due_of_a(), SECONDS(2));
}

Test(plan_end, next_due_at_is_the_next_deadline_after_all_due_holders)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=30s", "ok created ACQUIRED a=2[2] ttl=30s due=30s", 0, 0},
           {"acquire k3 a ttl=9s", "ok created ACQUIRED a=3[1] ttl=9s due=19s", 10, 0});
    cr_expect_eq(next_due_of_a(), SECONDS(19));
}

Test(plan_end, walk_of_due_requests_knows_no_later_deadline)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=30s", "ok created ACQUIRED a=2[2] ttl=30s due=30s", 0, 0},
           {"acquire k3 a ttl=9s walks", "ok created ACQUIRED a=3[1] ttl=9s due=19s", 10, 0});
    cr_expect_eq(next_due_of_a(), SECONDS(10) + 1);
}

Test(plan_end, limited_read_refuses_and_keeps_next_due_at)
{
    EXPECT(PUT_A(2), {"acquire k1 a ttl=1s", "ok created ACQUIRED a=1[1] ttl=1s due=1s", 0, 0},
           {"acquire k2 a ttl=2s", "ok created ACQUIRED a=2[2] ttl=2s due=2s", 0, 0},
           {"acquire k3 a:2 cut=1", "no_capacity a:2+2>2 -", 10, 0},
           {"acquire k3 a:2", "ok created ACQUIRED a=3[1,2] ttl=600s due=610s", 0, 0});
}

/* k1 ends because k2 needs its unit of a. Its seat in b has the lowest rank, 3, of those that are free then. */
Test(plan_end, best_seats_are_chosen_again_when_due_holders_have_ended)
{
    EXPECT(PUT_A(1), PUT_B(4), {"acquire k1 a b@2 ttl=5s", "ok created ACQUIRED a=1[1] b=1[2] ttl=5s due=5s", 0, 0},
           {"acquire k2 a b:1?", "ok created ACQUIRED a=2[1] b=2[2] ttl=600s due=605s", 5, 0});
}

/* ---- exchanges ---- */

Test(plan_end, exchange_takes_under_a_new_token_and_a_shrink_keeps_the_old_one)
{
    EXPECT(PUT_A(3), PUT_B(1), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0},
           {"exchange k1 -a@1 nonce=1", "ok ACQUIRED a=1[2] ttl=600s due=600s", 0, 0},
           {"exchange k1 -a a@1 b changes=1 nonce=2", "ok ACQUIRED a=2[1] b=1[1] ttl=600s due=600s", 0, 0},
           {"exchange k1 -a a@1 b changes=1 nonce=2", "ok replayed ACQUIRED a=2[1] b=1[1] ttl=600s due=600s replays=1",
            0, 0},
           {"exchange k1 -b changes=1 nonce=3", "version_mismatch ACQUIRED a=2[1] b=1[1] ttl=600s due=600s replays=2",
            0, 0},
           {"exchange k1 -a -b changes=2 nonce=3", "ok released a=2[1] b=1[1] due=604800s replays=2", 0, 0});
}

Test(plan_end, exchange_waits_for_a_batch_of_its_own_behind_a_grant)
{
    EXPECT(
        PUT_A(3),
        {"acquire k1 a:2; exchange k1 -a nonce=1; release k1",
         "ok created ACQUIRED a=1[1,2] ttl=600s due=600s; put_back ok ACQUIRED a=1[1] ttl=600s due=600s; put_back ok "
         "released a=1[1] due=604800s",
         0, 0});
}
