/* SPDX-License-Identifier: MIT */
/*
 * Decisions of plan_batch() as transcripts: the life of a request up to its release, tokens and semaphores.
 * plan_model_end.c has the other ends of a request.
 */
#include <criterion/criterion.h>

#include "plan_model_transcript.h"

TestSuite(plan, .init = transcript_init, .fini = transcript_release);

/* ---- acquire ---- */

Test(plan, second_holder_is_refused_when_full)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a", "no_capacity a:1+1>1 -", 0, 0});
}

Test(plan, lowest_free_slots_are_granted_first)
{
    EXPECT(PUT_A(5), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0},
           {"acquire k2 a:2", "ok created ACQUIRED a=2[3,4] ttl=600s due=600s", 0, 0},
           {"release k1", "ok released a=1[1,2] due=604800s", 0, 0},
           {"acquire k3 a", "ok created ACQUIRED a=3[1] ttl=600s due=600s", 0, 0},
           {"acquire k4 a:2", "ok created ACQUIRED a=4[2,5] ttl=600s due=600s", 0, 0});
}

Test(plan, counted_permits_have_no_slots)
{
    EXPECT({"put a capacity=5000 counted", "ok created capacity=5000 in_use=0 config=1", 0, 0},
           {"acquire k1 a:2000; acquire k2 a:3000; acquire k3 a",
            "ok created ACQUIRED a=1x2000 ttl=600s due=600s; ok created ACQUIRED a=2x3000 ttl=600s due=600s; "
            "no_capacity a:5000+1>5000",
            0, 0});
}

Test(plan, several_semaphores_are_granted_together_or_not_at_all)
{
    EXPECT(PUT_A(2), PUT_B(1), {"acquire k1 a b", "ok created ACQUIRED a=1[1] b=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a b", "no_capacity b:1+1>1 -", 0, 0},
           {"acquire k3 a:2 b", "no_capacity a:1+2>2 b:1+1>1 -", 0, 0},
           {"acquire k4 a", "ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0});
}

Test(plan, capacity_zero_is_closed_and_may_open_again)
{
    EXPECT(PUT_A(0), {"acquire k1 a:3", "no_capacity a:0+3>0 -", 0, 0},
           {"put a capacity=3", "ok capacity=3 in_use=0 config=2", 0, 0},
           {"acquire k1 a:3", "ok created ACQUIRED a=1[1,2,3] ttl=600s due=600s", 0, 0});
}

Test(plan, more_than_the_capacity_is_never_satisfiable)
{
    EXPECT(PUT_A(2), {"acquire k1 a:3", "never_satisfiable -", 0, 0}, {"release k1", "ok never_held due=3600s", 0, 0});
}

Test(plan, more_than_1000_slots_are_invalid_but_units_are_not)
{
    EXPECT(PUT_A(1100), {"acquire k1 a:1001", "invalid -", 0, 0},
           {"put b capacity=1100 counted", "ok created capacity=1100 in_use=0 config=1", 0, 0},
           {"acquire k1 b:1001", "ok created ACQUIRED b=1x1001 ttl=600s due=600s", 0, 0});
}

Test(plan, retired_semaphores_are_treated_as_unknown)
{
    EXPECT(PUT_A(1), {"acquire k1 a b", "unknown_semaphore -", 0, 0},
           {"retire a", "ok capacity=1 in_use=0 config=2", 0, 0}, {"acquire k1 a", "unknown_semaphore -", 0, 0},
           {"retire a", "unknown_semaphore -", 0, 0}, {"retire b", "unknown_semaphore -", 0, 0});
}

/* ---- the key ---- */

Test(plan, replay_returns_the_same_grant_and_is_written)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k1 a", "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1", 5, 0},
           {"acquire k1 a", "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=2", 0, 0});
}

/*
 * The nonce is not part of the digest, and is kept when a client repeats the request with another nonce or with none.
 */
Test(plan, grant_keeps_the_nonce_of_its_acquire)
{
    EXPECT(PUT_A(2), {"acquire k1 a nonce=1", "ok created ACQUIRED a=1[1] ttl=600s due=600s nonce=1", 0, 0},
           {"acquire k1 a nonce=2; acquire k1 a",
            "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1 nonce=1; "
            "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=2 nonce=1",
            0, 0},
           {"acquire k2 a; acquire k2 a nonce=3",
            "ok created ACQUIRED a=2[2] ttl=600s due=600s; ok replayed ACQUIRED a=2[2] ttl=600s due=600s replays=1", 0,
            0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=600s due=600s renewals=1 replays=2 nonce=1", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s renewals=1 replays=2 nonce=1", 0, 0});
}

Test(plan, duplicate_key_in_a_batch_is_granted_once)
{
    EXPECT(PUT_A(1), {"acquire k1 a; acquire k2 a; acquire k1 a",
                      "ok created ACQUIRED a=1[1] ttl=600s due=600s; no_capacity a:1+1>1; "
                      "ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1",
                      0, 0});
}

Test(plan, key_with_other_content_is_refused_even_after_the_end)
{
    EXPECT(PUT_A(5), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k1 a:2", "key_reused -", 0, 0}, {"acquire k1 a owner=1", "key_reused -", 0, 0},
           {"acquire k1 a ttl=600s", "key_reused -", 0, 0}, {"acquire k1 a b", "key_reused -", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0}, {"acquire k1 a:2", "key_reused -", 0, 0},
           {"acquire k1 a", "ended released a=1[1] due=604800s replays=1", 0, 0});
}

Test(plan, refused_key_may_be_reused_with_other_content)
{
    EXPECT(PUT_A(2), {"acquire k1 a:3", "never_satisfiable -", 0, 0},
           {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0});
}

/* ---- release ---- */

Test(plan, second_release_is_already_released_and_is_written)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"release k1", "ok released a=1[1] due=604810s", 10, 0},
           {"release k1", "ok already_released released a=1[1] due=604810s replays=1", 20, 0});
}

Test(plan, release_before_its_acquire_writes_a_tombstone)
{
    EXPECT(PUT_A(1), {"release k1", "ok never_held due=3600s", 0, 0},
           {"acquire k1 a", "ended never_held due=3600s replays=1", 0, 0},
           {"acquire k1 b:7 owner=2", "ended never_held due=3600s replays=2", 0, 0},
           {"renew k1", "ended never_held due=3600s replays=3", 0, 0},
           {"release k1", "ok already_released never_held due=3600s replays=4", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0});
}

Test(plan, release_frees_units_for_a_new_request_before_it_in_the_batch)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a; release k1", "ok created ACQUIRED a=2[1] ttl=600s due=600s; ok released a=1[1] due=604800s",
            0, 0});
}

Test(plan, release_after_its_acquire_in_one_batch_waits_for_it)
{
    EXPECT(PUT_A(1), {"acquire k1 a; release k1; acquire k2 a; acquire k1 a",
                      "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok released a=1[1] due=604800s; "
                      "ok created ACQUIRED a=2[1] ttl=600s due=600s; ended released a=1[1] due=604800s replays=1",
                      0, 0});
}

/* ---- put back ---- */

Test(plan, release_without_all_its_locks_is_put_back)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a b", "ok created ACQUIRED a=1[1] b=1[1] ttl=600s due=600s", 0, 0},
           {"~release k1; acquire k2 a", "put_back ok released a=1[1] b=1[1] due=604800s; no_capacity a:1+1>1 -", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[1] ttl=600s due=600s", 0, 0});
}

Test(plan, later_operations_follow_one_of_their_key_put_back)
{
    EXPECT(PUT_A(1), PUT_B(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"~renew k1 ttl=900s; ~release k1; acquire k1 b; acquire k2 b",
            "put_back ok ACQUIRED a=1[1] ttl=900s due=900s renewals=1; "
            "put_back ok released a=1[1] due=604800s renewals=1; put_back key_reused; "
            "ok created ACQUIRED b=1[1] ttl=600s due=600s",
            0, 0});
}

Test(plan, answers_about_ended_requests_need_their_locks)
{
    EXPECT(PUT_A(1),
           {"acquire k1 a; release k1", "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok released a=1[1] due=604800s",
            0, 0},
           {"~release k1", "put_back ok already_released released a=1[1] due=604800s replays=1", 0, 0},
           {"~renew k1", "put_back ended released a=1[1] due=604800s replays=2", 0, 0});
}

Test(plan, unknown_keys_need_no_locks)
{
    EXPECT({"~renew k1; ~release k2", "unknown_request; ok never_held due=3600s", 0, 0},
           {"~release k2", "ok already_released never_held due=3600s replays=1", 0, 0});
}

/* ---- time ---- */

Test(plan, renew_extends_and_never_shortens)
{
    EXPECT(PUT_A(1), {"acquire k1 a ttl=60s", "ok created ACQUIRED a=1[1] ttl=60s due=60s", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=60s due=70s renewals=1", 10, 0},
           {"renew k1 ttl=5s", "ok ACQUIRED a=1[1] ttl=5s due=70s renewals=2", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=5s due=105s renewals=3", 100, 0},
           {"renew k2", "unknown_request -", 0, 0}, {"release k1", "ok released a=1[1] due=604900s renewals=3", 0, 0},
           {"renew k1 ttl=900s", "ended released a=1[1] due=604900s renewals=3 replays=1", 0, 0});
}

Test(plan, renewals_are_decided_after_releases_and_before_new_requests)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a; renew k2; renew k1; release k1",
            "ok created ACQUIRED a=2[1] ttl=600s due=610s; ok ACQUIRED a=2[1] ttl=600s due=610s renewals=1; "
            "ok ACQUIRED a=1[1] ttl=600s due=610s renewals=1; ok released a=1[1] due=604810s renewals=1",
            10, 0});
}

Test(plan, ttl_over_the_maximum_is_refused_not_capped)
{
    EXPECT({"put a capacity=9 max_ttl=60s", "ok created capacity=9 in_use=0 config=1", 0, 0},
           {"acquire k1 a ttl=61s", "invalid -", 0, 0}, {"acquire k1 a ttl=none", "invalid -", 0, 0},
           {"acquire k1 a ttl=60s", "ok created ACQUIRED a=1[1] ttl=60s due=60s", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=2[2] ttl=60s due=60s", 0, 0},
           {"renew k1 ttl=61s", "invalid -", 0, 0}, {"renew k1 ttl=none", "invalid -", 0, 0},
           {"renew k1 ttl=60s", "ok ACQUIRED a=1[1] ttl=60s due=65s renewals=1", 5, 0});
}

Test(plan, smallest_times_and_largest_grace_of_several_semaphores_apply)
{
    EXPECT({"put a capacity=9 default_ttl=60s grace=1s max_hold=500s", "ok created capacity=9 in_use=0 config=1", 0, 0},
           {"put b capacity=9 default_ttl=40s max_ttl=50s grace=3s", "ok created capacity=9 in_use=0 config=1", 0, 0},
           {"put c capacity=9 grace=2s max_hold=400s", "ok created capacity=9 in_use=0 config=1", 0, 0},
           {"acquire k1 a b", "ok created ACQUIRED a=1[1] b=1[1] ttl=40s due=43s", 0, 0},
           {"acquire k2 a b ttl=51s", "invalid -", 0, 0},
           {"acquire k3 a c ttl=none", "ok created ACQUIRED a=2[2] c=1[1] ttl=none due=400s", 0, 0},
           {"renew k3", "ok ACQUIRED a=2[2] c=1[1] ttl=none due=410s renewals=1", 10, 0},
           {"renew k3 ttl=30s", "ok ACQUIRED a=2[2] c=1[1] ttl=30s due=410s renewals=2", 0, 0},
           {"renew k3", "ok ACQUIRED a=2[2] c=1[1] ttl=30s due=432s renewals=3", 400, 0},
           {"renew k3 ttl=none", "ok ACQUIRED a=2[2] c=1[1] ttl=none due=800s renewals=4", 0, 0},
           {"renew k1 ttl=none", "invalid -", 0, 0});
}

Test(plan, grace_is_fixed_at_the_grant)
{
    EXPECT({"put a capacity=2 grace=5s", "ok created capacity=2 in_use=0 config=1", 0, 0},
           {"acquire k1 a ttl=10s", "ok created ACQUIRED a=1[1] ttl=10s due=15s", 0, 0},
           {"put a grace=0s", "ok capacity=2 in_use=1 config=2", 0, 0},
           {"renew k1", "ok ACQUIRED a=1[1] ttl=10s due=16s renewals=1", 1, 0},
           {"acquire k2 a ttl=10s", "ok created ACQUIRED a=2[2] ttl=10s due=11s", 0, 0});
}

/* ---- tokens ---- */

Test(plan, tokens_begin_above_the_epoch)
{
    EXPECT(PUT_A(9), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"acquire k2 a", "ok created ACQUIRED a=3072[2] ttl=600s due=600s", 0, 3},
           {"acquire k3 a; acquire k1 a",
            "ok created ACQUIRED a=3073[3] ttl=600s due=600s; ok replayed ACQUIRED a=1[1] ttl=600s due=600s replays=1",
            0, 0},
           {"put b capacity=1", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"acquire k4 b", "ok created ACQUIRED b=3072[1] ttl=600s due=600s", 0, 0});
}

Test(plan, tokens_continue_after_a_semaphore_was_retired)
{
    EXPECT(PUT_A(1),
           {"acquire k1 a; release k1", "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok released a=1[1] due=604800s",
            0, 0},
           {"retire a", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"put a capacity=2 if_none_match", "ok created capacity=2 in_use=0 config=3", 0, 0},
           {"acquire k2 a:2", "ok created ACQUIRED a=2[1,2] ttl=600s due=600s", 0, 0});
}

/* ---- semaphores ---- */

Test(plan, lowering_the_capacity_ends_no_holder)
{
    EXPECT(PUT_A(3),
           {"acquire k1 a; acquire k2 a; acquire k3 a",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED a=2[2] ttl=600s due=600s; "
            "ok created ACQUIRED a=3[3] ttl=600s due=600s",
            0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=3 config=2", 0, 0},
           {"acquire k3 a", "ok replayed ACQUIRED a=3[3] ttl=600s due=600s replays=1", 0, 0},
           {"release k1; acquire k4 a", "ok released a=1[1] due=604800s; no_capacity a:2+1>1", 0, 0},
           {"release k2; release k3; acquire k4 a",
            "ok released a=2[2] due=604800s; ok released a=3[3] due=604800s replays=1; "
            "ok created ACQUIRED a=4[1] ttl=600s due=600s",
            0, 0});
}

Test(plan, slot_freed_before_the_last_retired_one_is_granted_again)
{
    EXPECT(PUT_A(2),
           {"acquire k1 a; acquire k2 a",
            "ok created ACQUIRED a=1[1] ttl=600s due=600s; ok created ACQUIRED a=2[2] ttl=600s due=600s", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=2 config=2", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"release k2; acquire k3 a", "ok released a=2[2] due=604800s; ok created ACQUIRED a=3[1] ttl=600s due=600s",
            0, 0});
}

Test(plan, held_slot_above_the_capacity_returns_to_service_after_growing)
{
    EXPECT(PUT_A(3),
           {"acquire k1 a:2; acquire k2 a",
            "ok created ACQUIRED a=1[1,2] ttl=600s due=600s; ok created ACQUIRED a=2[3] ttl=600s due=600s", 0, 0},
           {"put a capacity=1", "ok capacity=1 in_use=3 config=2", 0, 0},
           {"release k1", "ok released a=1[1,2] due=604800s", 0, 0}, {"acquire k3 a", "no_capacity a:1+1>1 -", 0, 0},
           {"put a capacity=4", "ok capacity=4 in_use=1 config=3", 0, 0},
           {"acquire k3 a:3", "ok created ACQUIRED a=3[1,2,4] ttl=600s due=600s", 0, 0});
}

Test(plan, held_semaphore_is_not_retired)
{
    EXPECT(PUT_A(1), {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"retire a", "in_use -", 0, 0}, {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"retire a", "ok capacity=1 in_use=0 config=2", 0, 0});
}

Test(plan, put_changes_only_what_it_names)
{
    EXPECT({"put a capacity=2 default_ttl=30s grace=1s", "ok created capacity=2 in_use=0 config=1", 0, 0},
           {"put a max_ttl=40s", "ok capacity=2 in_use=0 config=2", 0, 0},
           {"put a", "ok capacity=2 in_use=0 config=2", 0, 0},
           {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=30s due=31s", 0, 0},
           {"retire b", "unknown_semaphore -", 0, 0});
}

Test(plan, put_after_retiring_resets_the_settings)
{
    EXPECT({"put a capacity=2 default_ttl=30s max_ttl=40s grace=1s", "ok created capacity=2 in_use=0 config=1", 0, 0},
           {"retire a", "ok capacity=2 in_use=0 config=2", 0, 0}, {"put a grace=2s", "invalid -", 0, 0},
           {"put a capacity=3 counted", "invalid -", 0, 0},
           {"put a capacity=3", "ok created capacity=3 in_use=0 config=3", 0, 0},
           {"acquire k1 a:3", "ok created ACQUIRED a=1[1,2,3] ttl=600s due=600s", 0, 0},
           {"renew k1 ttl=none", "ok ACQUIRED a=1[1,2,3] ttl=none due=86400s renewals=1", 0, 0});
}

Test(plan, put_refuses_invalid_settings)
{
    EXPECT({"put a", "invalid -", 0, 0}, {"put a counted", "invalid -", 0, 0},
           {"put a capacity=65537", "invalid -", 0, 0},
           {"put a capacity=1 default_ttl=31s max_ttl=30s", "invalid -", 0, 0}, PUT_A(1),
           {"put a counted", "invalid -", 0, 0}, {"put a slotted", "ok capacity=1 in_use=0 config=1", 0, 0},
           {"put a capacity=65537", "invalid -", 0, 0}, {"put a max_ttl=599s", "invalid -", 0, 0},
           {"put a default_ttl=599s max_ttl=599s", "ok capacity=1 in_use=0 config=2", 0, 0},
           {"put a default_ttl=600s", "invalid -", 0, 0},
           {"put a max_ttl=none default_ttl=600s", "ok capacity=1 in_use=0 config=3", 0, 0},
           {"put b capacity=65537 counted", "ok created capacity=65537 in_use=0 config=1", 0, 0});
}

Test(plan, put_honours_its_conditions)
{
    EXPECT({"put a capacity=1 if_match=1", "version_mismatch -", 0, 0},
           {"put a capacity=1 if_none_match", "ok created capacity=1 in_use=0 config=1", 0, 0},
           {"put a capacity=2 if_none_match", "version_mismatch -", 0, 0},
           {"put a capacity=2 if_match=2", "version_mismatch -", 0, 0},
           {"put a capacity=2 if_match=1", "ok capacity=2 in_use=0 config=2", 0, 0},
           {"acquire k1 a", "ok created ACQUIRED a=1[1] ttl=600s due=600s", 0, 0},
           {"put a capacity=3 if_match=2", "ok capacity=3 in_use=1 config=3", 0, 0},
           {"release k1", "ok released a=1[1] due=604800s", 0, 0},
           {"retire a", "ok capacity=3 in_use=0 config=4", 0, 0},
           {"put a capacity=3 if_match=4", "version_mismatch -", 0, 0},
           {"put a capacity=3 if_none_match", "ok created capacity=3 in_use=0 config=5", 0, 0});
}

/* ---- direct calls, for cases that no script can express ---- */

struct direct {
    struct arena arena;
    struct view view;
    struct want want;
    struct operation operation;
    struct plan plan;
};

/* Plans one acquire on the rows that the transcript left; the arena may have `limit` bytes. */
static enum permit_status plan_acquire(struct direct *direct, size_t limit)
{
    const struct operation *operations[] = {&direct->operation};
    direct->operation =
        (struct operation){.kind = OP_ACQUIRE, .external_id = BYTES("k9"), .wants = &direct->want, .want_count = 1};
    struct arena arena;
    arena_init(&arena, 4096, limit);
    struct id_range ids = {1000, 1001};
    enum permit_status status = plan_batch(&direct->view, operations, 1, ids, &model_settings, &arena, &direct->plan);
    arena_release(&direct->arena);
    direct->arena = arena;
    return status;
}

static void read_a(struct direct *direct, struct arena *arena, int64_t slots_wanted, int64_t at_s)
{
    struct rows_read read = {.locks = 3, .keys = ~0U, .slots_wanted = {slots_wanted}};
    read.moment = (struct moment){.now = MODEL_START + at_s * US_PER_SECOND,
                                  .clock = {.tick_at = MODEL_START + at_s * US_PER_SECOND}};
    cr_assert(rows_view(&transcript.run.rows, &read, arena, &direct->view));
}

Test(plan, thousand_slots_fit_into_one_permit)
{
    struct direct direct = {0};
    EXPECT(PUT_A(1100), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0});
    read_a(&direct, &transcript.run.arena, 1000, 0);
    direct.want =
        (struct want){.semaphore = BYTES("a"), .semaphore_id = transcript.run.rows.semaphores[0].id, .count = 1000};
    cr_assert_eq(plan_acquire(&direct, 1 << 24), PERMIT_OK);
    cr_assert(direct.plan.outcomes[0].created);
    const struct slots *slots = &direct.plan.outcomes[0].request->permits[0].slots;
    cr_assert_eq(slots->count, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert_eq(slots->numbers[i], i + 3);
    cr_expect_eq(direct.plan.changes.slot_count, 1000);
    arena_release(&direct.arena);
}

Test(plan, cached_id_of_another_name_is_an_unknown_semaphore)
{
    struct direct direct = {0};
    EXPECT(PUT_A(1), PUT_B(1));
    read_a(&direct, &transcript.run.arena, 1, 0);
    direct.want =
        (struct want){.semaphore = BYTES("a"), .semaphore_id = transcript.run.rows.semaphores[1].id, .count = 1};
    cr_assert_eq(plan_acquire(&direct, 1 << 24), PERMIT_OK);
    cr_expect_eq(direct.plan.outcomes[0].status, PERMIT_UNKNOWN_SEMAPHORE);
    cr_expect(direct.plan.changes.empty);
    arena_release(&direct.arena);
}

/* Plans with more and more memory, until it is enough. Asserts that the view never changes. */
static void plan_with_increasing_memory(struct direct *direct)
{
    uint64_t before = view_checksum(&direct->view);
    enum permit_status status = PERMIT_NO_MEMORY;
    for (size_t limit = 0; limit < 1 << 16 && status == PERMIT_NO_MEMORY; limit += 16) {
        direct->plan = (struct plan){.ids_used = 77};
        status = plan_acquire(direct, limit);
        cr_assert_eq(view_checksum(&direct->view), before);
        cr_assert(status == PERMIT_OK || (status == PERMIT_NO_MEMORY && direct->plan.ids_used == 77), "%zu", limit);
    }
    cr_assert_eq(status, PERMIT_OK);
}

Test(plan, plan_without_memory_fails_and_changes_nothing)
{
    struct direct direct = {0};
    EXPECT(PUT_A(9), {"acquire k1 a:2", "ok created ACQUIRED a=1[1,2] ttl=600s due=600s", 0, 0});
    read_a(&direct, &transcript.run.arena, 3, 0);
    direct.want =
        (struct want){.semaphore = BYTES("a"), .semaphore_id = transcript.run.rows.semaphores[0].id, .count = 3};
    plan_with_increasing_memory(&direct);
    cr_expect(direct.plan.outcomes[0].created);
    cr_expect_eq(direct.plan.ids_used, 1);
    arena_release(&direct.arena);
}

Test(plan, plan_without_memory_ends_no_holder)
{
    struct direct direct = {0};
    EXPECT(PUT_A(2), PUT_B(1),
           {"acquire k1 a b ttl=1s; acquire k2 a ttl=1s",
            "ok created ACQUIRED a=1[1] b=1[1] ttl=1s due=1s; ok created ACQUIRED a=2[2] ttl=1s due=1s", 0, 0});
    read_a(&direct, &transcript.run.arena, 2, 10);
    direct.want =
        (struct want){.semaphore = BYTES("a"), .semaphore_id = transcript.run.rows.semaphores[0].id, .count = 2};
    plan_with_increasing_memory(&direct);
    cr_expect(direct.plan.outcomes[0].created);
    cr_expect_eq(direct.plan.ended[END_EXPIRED], 2);
    arena_release(&direct.arena);
}
