/* SPDX-License-Identifier: MIT */
/* The checkers on histories written by hand: each good one passes, each planted fault is caught by the one it is meant
 * for. */
#include "checkers.h"

#include <criterion/criterion.h>

static const struct semaphore_facts semaphores[] = {{"one", 1, true}, {"two", 2, false}, {"seven", 7, true}};
static const struct facts facts = {.semaphores = semaphores, .count = 3};

enum { ONE, TWO, SEVEN };

typedef bool checker(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);

struct story {
    struct call calls[8]; /* ends with a call that was answered at 0 */
};

static bool run(checker *check, const struct story *story)
{
    char message[MESSAGE_SIZE] = "";
    struct history history = {NULL, 0, 0};
    for (size_t i = 0; i < 8 && story->calls[i].answered_us; i++)
        history_add(&history, &story->calls[i]);
    bool good = check(&history, &facts, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    history_release(&history);
    return good;
}

static bool statuses_in_good_weather(const struct history *history, const struct facts *ignored,
                                     char message[MESSAGE_SIZE])
{
    (void)ignored;
    return check_statuses(history, false, message);
}

static bool statuses_with_faults(const struct history *history, const struct facts *ignored, char message[MESSAGE_SIZE])
{
    (void)ignored;
    return check_statuses(history, true, message);
}

/* acquire of key k from..to, granted one share */
#define HELD(k, from, to, ...)                                                                                         \
    {                                                                                                                  \
        .kind = CALL_ACQUIRE, .says = SAYS_HELD, .status = 201, .key = (k), .sent_us = (from), .answered_us = (to),    \
        .share_count = 1, .shares = {                                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define CALL(what, said, code, k, from, to)                                                                            \
    {                                                                                                                  \
        .kind = (what), .says = (said), .status = (code), .key = (k), .sent_us = (from), .answered_us = (to)           \
    }
#define RELEASED(k, from, to) CALL(CALL_RELEASE, SAYS_ENDED, 200, k, from, to)

/* C1 */

Test(capacity, holders_one_after_the_other_pass)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), RELEASED(0, 3, 6), HELD(1, 2, 4, {ONE, 1, 6, {1}})}};
    cr_assert(run(check_capacity, &story));
}

Test(capacity, two_holders_of_one_unit_are_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 9, 10), HELD(1, 3, 4, {ONE, 1, 6})}};
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, holders_that_are_never_released_count_for_ever)
{
    struct story story = {{HELD(0, 1, 2, {TWO, 2, 5}), HELD(1, 1000, 1001, {TWO, 1, 7})}};
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, counts_are_summed)
{
    struct story good = {{HELD(0, 1, 2, {SEVEN, 4, 5}), HELD(1, 1, 2, {SEVEN, 3, 9})}};
    struct story bad = {{HELD(0, 1, 2, {SEVEN, 4, 5}), HELD(1, 1, 2, {SEVEN, 4, 9})}};
    cr_assert(run(check_capacity, &good));
    cr_assert_not(run(check_capacity, &bad));
}

Test(capacity, one_slot_held_twice_is_caught_though_there_is_room)
{
    struct story good = {{HELD(0, 1, 2, {SEVEN, 2, 5, {1, 3}}), HELD(1, 3, 4, {SEVEN, 1, 6, {2}})}};
    struct story bad = {{HELD(0, 1, 2, {SEVEN, 2, 5, {1, 3}}), HELD(1, 3, 4, {SEVEN, 1, 6, {3}})}};
    cr_assert(run(check_capacity, &good));
    cr_assert_not(run(check_capacity, &bad));
}

Test(capacity, a_release_without_answer_ends_what_is_sure)
{
    struct story story = {
        {HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 3, 9), HELD(1, 4, 5, {ONE, 1, 6})}};
    cr_assert(run(check_capacity, &story));
}

Test(capacity, a_grant_that_only_a_look_has_seen_counts)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 0, 0, 1, 2),
                           {.kind = CALL_LOOK,
                            .says = SAYS_HELD,
                            .status = 200,
                            .sent_us = 3,
                            .answered_us = 4,
                            .share_count = 1,
                            .shares = {{ONE, 1, 5, {0}}}},
                           HELD(1, 5, 6, {ONE, 1, 6})}};
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, a_lease_counts_until_it_is_over_and_no_longer)
{
    struct story good = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    struct story bad = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 9, 10, {ONE, 1, 6})}};
    good.calls[0].lease_us = bad.calls[0].lease_us = 10;
    cr_assert(run(check_capacity, &good));
    cr_assert_not(run(check_capacity, &bad));
}

Test(capacity, a_renewal_prolongs_the_lease)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 9, 10, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    story.calls[0].lease_us = story.calls[1].lease_us = 10;
    story.calls[1].kind = CALL_RENEW;
    story.calls[1].status = 200;
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, a_replay_prolongs_nothing)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 9, 10, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    story.calls[0].lease_us = story.calls[1].lease_us = 10;
    story.calls[1].status = 200;
    cr_assert(run(check_capacity, &story));
}

/* C4 */

Test(keys, the_same_grant_again_passes)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), HELD(0, 3, 4, {ONE, 1, 5, {1}})}};
    cr_assert(run(check_keys, &story));
}

Test(keys, another_token_under_the_same_key_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), HELD(0, 5, 6, {ONE, 1, 6})}};
    cr_assert_not(run(check_keys, &story));
}

Test(keys, another_slot_count_or_number_of_shares_is_caught)
{
    struct story slot = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(0, 3, 4, {SEVEN, 1, 5, {2}})}};
    struct story count = {{HELD(0, 1, 2, {SEVEN, 1, 5}), HELD(0, 3, 4, {SEVEN, 2, 5})}};
    struct story shares = {{HELD(0, 1, 2, {SEVEN, 1, 5}), HELD(0, 3, 4, {SEVEN, 1, 5}, {ONE, 1, 1})}};
    shares.calls[1].share_count = 2;
    cr_assert_not(run(check_keys, &slot));
    cr_assert_not(run(check_keys, &count));
    cr_assert_not(run(check_keys, &shares));
}

Test(keys, a_held_answer_without_permits_is_caught)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_HELD, 201, 0, 1, 2)}};
    cr_assert_not(run(check_keys, &story));
}

Test(keys, the_order_of_shares_does_not_matter)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}, {TWO, 1, 8}), HELD(0, 3, 4, {TWO, 1, 8}, {ONE, 1, 5})}};
    story.calls[0].share_count = story.calls[1].share_count = 2;
    cr_assert(run(check_keys, &story));
}

Test(tokens, a_token_given_to_two_keys_is_caught)
{
    struct story story = {{HELD(0, 1, 9, {TWO, 1, 5}), HELD(1, 1, 9, {TWO, 1, 5})}};
    cr_assert_not(run(check_tokens, &story));
}

Test(tokens, the_same_number_in_another_semaphore_passes)
{
    struct story story = {{HELD(0, 1, 2, {TWO, 1, 5}), HELD(1, 3, 4, {ONE, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

Test(tokens, a_smaller_token_for_who_asked_later_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {TWO, 1, 6}), HELD(1, 3, 4, {TWO, 1, 5})}};
    cr_assert_not(run(check_tokens, &story));
}

Test(tokens, calls_that_overlap_may_have_either_order)
{
    struct story story = {{HELD(0, 1, 4, {TWO, 1, 6}), HELD(1, 3, 5, {TWO, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

Test(tokens, a_repeated_request_counts_from_when_it_was_first_sent)
{
    struct story story = {
        {CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 1, 1, 2), HELD(0, 3, 4, {TWO, 1, 6}), HELD(1, 5, 6, {TWO, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

/* Single keys */

Test(ends, a_life_in_order_passes)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 1, 2), HELD(0, 3, 4, {ONE, 1, 5}),
                           RELEASED(0, 5, 6), RELEASED(0, 7, 8), CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 9, 10)}};
    cr_assert(run(check_ends, &story));
}

Test(ends, a_release_before_the_acquire_passes)
{
    struct story story = {{RELEASED(0, 1, 2), CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 3, 4)}};
    cr_assert(run(check_ends, &story));
}

Test(ends, a_key_held_again_after_its_release_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), HELD(0, 5, 6, {ONE, 1, 5})}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, a_grant_that_got_lost_is_caught)
{
    struct story unknown = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_LOOK, SAYS_UNKNOWN, 404, 0, 3, 4)}};
    struct story ended = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_LOOK, SAYS_ENDED, 200, 0, 3, 4)}};
    cr_assert_not(run(check_ends, &unknown));
    cr_assert_not(run(check_ends, &ended));
}

Test(ends, a_release_that_got_lost_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}),
                           RELEASED(0, 3, 4),
                           {.kind = CALL_LOOK,
                            .says = SAYS_HELD,
                            .status = 200,
                            .sent_us = 5,
                            .answered_us = 6,
                            .share_count = 1,
                            .shares = {{ONE, 1, 5, {0}}}}}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, an_end_before_the_lease_is_over_is_caught_and_after_it_passes)
{
    struct story early = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 10)}};
    struct story in_time = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 11)}};
    early.calls[0].lease_us = in_time.calls[0].lease_us = 10;
    cr_assert_not(run(check_ends, &early));
    cr_assert(run(check_ends, &in_time));
}

Test(ends, a_renewal_after_the_end_was_known_is_caught)
{
    struct story story = {
        {HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_LOOK, SAYS_ENDED, 200, 0, 12, 13), HELD(0, 14, 15, {ONE, 1, 5})}};
    story.calls[0].lease_us = story.calls[2].lease_us = 10;
    story.calls[2].kind = CALL_RENEW;
    story.calls[2].status = 200;
    cr_assert_not(run(check_ends, &story));
}

/* Granted, not answered, and over when the same call was done again: it says what the rows say. */
Test(ends, a_grant_nobody_heard_of_may_be_over_when_the_answer_comes)
{
    struct story late = {{CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 1, 12)}};
    struct story early = {{CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 1, 10)}};
    late.calls[0].lease_us = early.calls[0].lease_us = 10;
    cr_assert(run(check_ends, &late));
    cr_assert_not(run(check_ends, &early));
}

static bool ends_after_a_step(const struct history *history, const struct facts *ignored, char message[MESSAGE_SIZE])
{
    struct facts stepped = *ignored;
    facts_add_leap(&stepped, 3000000, 0);
    facts_add_leap(&stepped, 9000000, 0);
    return check_ends(history, &stepped, message);
}

Test(ends, a_jump_of_the_clock_takes_five_seconds_and_no_more)
{
    struct story story = {{HELD(0, 1000000, 2000000, {ONE, 1, 5}), CALL(CALL_LOOK, SAYS_ENDED, 200, 0, 1, 16500000)}};
    struct story early = story;
    story.calls[0].lease_us = early.calls[0].lease_us = 25000000;
    early.calls[1].answered_us = 15500000;
    cr_assert(run(ends_after_a_step, &story));
    cr_assert_not(run(ends_after_a_step, &early));
    cr_assert_not(run(check_ends, &story));
}

Test(ends, a_replay_is_no_older_than_the_first_question)
{
    struct story early = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2), HELD(0, 3, 4, {ONE, 1, 5}),
                           CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 10)}};
    for (int i = 0; i < 3; i++)
        early.calls[i].lease_us = 10;
    early.calls[1].status = 200;
    cr_assert_not(run(check_ends, &early));
}

Test(ends, what_is_confirmed_is_held_until_somebody_releases_it)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 3, 4, {ONE, 1, 5}),
                           CALL(CALL_RELEASE, SAYS_NOTHING, 409, 0, 5, 6),
                           CALL(CALL_LOOK, SAYS_ENDED, 200, 0, 50, 51)}};
    struct story released = story;
    for (int i = 0; i < 4; i++)
        story.calls[i].lease_us = released.calls[i].lease_us = 10;
    story.calls[1].kind = released.calls[1].kind = CALL_CONFIRM;
    story.calls[1].status = released.calls[1].status = 200;
    released.calls[2] = (struct call)RELEASED(0, 5, 6);
    cr_assert_not(run(check_ends, &story));
    cr_assert(run(check_ends, &released));
}

Test(ends, a_release_refused_as_confirmed_without_a_confirm_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RELEASE, SAYS_NOTHING, 409, 0, 5, 6)}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, no_capacity_for_who_holds_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 3, 4)}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, what_overlaps_is_nobodys_fault)
{
    struct story story = {{HELD(0, 1, 4, {ONE, 1, 5}), CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 3, 6),
                           CALL(CALL_LOOK, SAYS_UNKNOWN, 404, 0, 2, 3), RELEASED(0, 7, 9),
                           CALL(CALL_LOOK, SAYS_ENDED, 200, 0, 6, 8)}};
    cr_assert(run(check_ends, &story));
}

/* C7: the fenced store */

#define WRITTEN(k, said, from, to, ...)                                                                                \
    {                                                                                                                  \
        .kind = CALL_WRITE, .says = (said), .status = 200, .key = (k), .sent_us = (from), .answered_us = (to),         \
        .share_count = 1, .shares = {                                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

Test(fence, a_live_holder_that_is_refused_is_caught_and_a_stale_one_is_not)
{
    struct story live = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), WRITTEN(0, SAYS_REFUSED, 3, 4, {ONE, 1, 5, {1}})}};
    struct story stale = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), RELEASED(0, 3, 4), HELD(1, 5, 6, {ONE, 1, 6, {1}}),
                           WRITTEN(1, SAYS_ACCEPTED, 7, 8, {ONE, 1, 6, {1}}),
                           WRITTEN(0, SAYS_REFUSED, 9, 10, {ONE, 1, 5, {1}})}};
    cr_assert_not(run(check_fence, &live));
    cr_assert(run(check_fence, &stale));
}

Test(fence, an_older_token_after_a_newer_one_on_its_slot_is_caught)
{
    struct story same = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(1, 1, 2, {SEVEN, 1, 6, {1}}),
                          WRITTEN(1, SAYS_ACCEPTED, 3, 4, {SEVEN, 1, 6, {1}}),
                          WRITTEN(0, SAYS_ACCEPTED, 5, 6, {SEVEN, 1, 5, {1}})}};
    struct story other = same;
    other.calls[2].shares[0].slots[0] = 2;
    cr_assert_not(run(check_fence, &same));
    cr_assert(run(check_fence, &other));
}

Test(fence, writes_that_overlap_may_have_either_order)
{
    struct story story = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(1, 1, 2, {SEVEN, 1, 6, {1}}),
                           WRITTEN(1, SAYS_ACCEPTED, 3, 6, {SEVEN, 1, 6, {1}}),
                           WRITTEN(0, SAYS_ACCEPTED, 5, 7, {SEVEN, 1, 5, {1}})}};
    cr_assert(run(check_fence, &story));
}

/* Statuses */

Test(statuses, five_hundreds_are_caught_in_good_weather)
{
    struct story busy = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2)}};
    struct story fault = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 500, 0, 1, 2)}};
    struct story lost = {{CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 1, 2)}};
    cr_assert_not(run(statuses_in_good_weather, &busy));
    cr_assert_not(run(statuses_in_good_weather, &fault));
    cr_assert_not(run(statuses_in_good_weather, &lost));
}

Test(statuses, with_faults_a_lost_answer_passes_and_a_500_does_not)
{
    struct story busy = {
        {CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2), CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 1, 2)}};
    struct story fault = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 500, 0, 1, 2)}};
    cr_assert(run(statuses_with_faults, &busy));
    cr_assert_not(run(statuses_with_faults, &fault));
}

Test(statuses, a_renewal_finds_its_request_held_or_ended)
{
    struct story ended = {{CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 1, 2)}};
    struct story unknown = {{CALL(CALL_RENEW, SAYS_NOTHING, 404, 0, 1, 2)}};
    cr_assert(run(statuses_in_good_weather, &ended));
    cr_assert_not(run(statuses_in_good_weather, &unknown));
}

Test(statuses, each_call_has_its_own_list)
{
    struct story look = {{CALL(CALL_LOOK, SAYS_UNKNOWN, 404, 0, 1, 2)}};
    struct story acquire = {{CALL(CALL_ACQUIRE, SAYS_UNKNOWN, 404, 0, 1, 2)}};
    cr_assert(run(statuses_in_good_weather, &look));
    cr_assert_not(run(statuses_in_good_weather, &acquire));
}
