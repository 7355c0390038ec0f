/* SPDX-License-Identifier: MIT */
/* The checkers on histories written by hand: each good history passes, each planted fault is found by its checker. */
#include "checkers.h"

#include <criterion/criterion.h>

static const struct semaphore_facts semaphores[] = {{"one", 1, true}, {"two", 2, false}, {"seven", 7, true}};
static const struct facts facts = {.semaphores = semaphores, .count = 3};

enum { ONE, TWO, SEVEN };

typedef bool checker(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);

struct story {
    struct call calls[8]; /* ends with a call whose answered_us is 0 */
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

static bool statuses_without_faults(const struct history *history, const struct facts *ignored,
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

/* an acquire of key k, sent at `from`, answered at `to` with a grant of one share */
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

Test(capacity, successive_holders_pass)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), RELEASED(0, 3, 6), HELD(1, 2, 4, {ONE, 1, 6, {1}})}};
    cr_assert(run(check_capacity, &story));
}

Test(capacity, two_holders_of_one_unit_are_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 9, 10), HELD(1, 3, 4, {ONE, 1, 6})}};
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, unreleased_holders_count_to_the_end)
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

Test(capacity, slot_held_twice_is_caught_below_capacity)
{
    struct story good = {{HELD(0, 1, 2, {SEVEN, 2, 5, {1, 3}}), HELD(1, 3, 4, {SEVEN, 1, 6, {2}})}};
    struct story bad = {{HELD(0, 1, 2, {SEVEN, 2, 5, {1, 3}}), HELD(1, 3, 4, {SEVEN, 1, 6, {3}})}};
    cr_assert(run(check_capacity, &good));
    cr_assert_not(run(check_capacity, &bad));
}

Test(capacity, unanswered_release_ends_the_sure_interval)
{
    struct story story = {
        {HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 3, 9), HELD(1, 4, 5, {ONE, 1, 6})}};
    cr_assert(run(check_capacity, &story));
}

Test(capacity, grant_seen_only_by_a_query_counts)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 0, 0, 1, 2),
                           {.kind = CALL_QUERY,
                            .says = SAYS_HELD,
                            .status = 200,
                            .sent_us = 3,
                            .answered_us = 4,
                            .share_count = 1,
                            .shares = {{ONE, 1, 5, {0}}}},
                           HELD(1, 5, 6, {ONE, 1, 6})}};
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, lease_counts_until_its_end)
{
    struct story good = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    struct story bad = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 9, 10, {ONE, 1, 6})}};
    good.calls[0].lease_us = bad.calls[0].lease_us = 10;
    cr_assert(run(check_capacity, &good));
    cr_assert_not(run(check_capacity, &bad));
}

Test(capacity, renewal_extends_the_lease)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 9, 10, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    story.calls[0].lease_us = story.calls[1].lease_us = 10;
    story.calls[1].kind = CALL_RENEW;
    story.calls[1].status = 200;
    cr_assert_not(run(check_capacity, &story));
}

Test(capacity, replay_does_not_extend_the_lease)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 9, 10, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    story.calls[0].lease_us = story.calls[1].lease_us = 10;
    story.calls[1].status = 200;
    cr_assert(run(check_capacity, &story));
}

/* C4 */

Test(keys, repeated_grant_passes)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), HELD(0, 3, 4, {ONE, 1, 5, {1}})}};
    cr_assert(run(check_keys, &story));
}

Test(keys, changed_token_of_a_key_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), HELD(0, 5, 6, {ONE, 1, 6})}};
    cr_assert_not(run(check_keys, &story));
}

Test(keys, changed_slot_count_or_share_number_is_caught)
{
    struct story slot = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(0, 3, 4, {SEVEN, 1, 5, {2}})}};
    struct story count = {{HELD(0, 1, 2, {SEVEN, 1, 5}), HELD(0, 3, 4, {SEVEN, 2, 5})}};
    struct story shares = {{HELD(0, 1, 2, {SEVEN, 1, 5}), HELD(0, 3, 4, {SEVEN, 1, 5}, {ONE, 1, 1})}};
    shares.calls[1].share_count = 2;
    cr_assert_not(run(check_keys, &slot));
    cr_assert_not(run(check_keys, &count));
    cr_assert_not(run(check_keys, &shares));
}

Test(keys, held_answer_without_permits_is_caught)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_HELD, 201, 0, 1, 2)}};
    cr_assert_not(run(check_keys, &story));
}

Test(keys, order_of_shares_is_ignored)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}, {TWO, 1, 8}), HELD(0, 3, 4, {TWO, 1, 8}, {ONE, 1, 5})}};
    story.calls[0].share_count = story.calls[1].share_count = 2;
    cr_assert(run(check_keys, &story));
}

Test(tokens, token_of_two_keys_is_caught)
{
    struct story story = {{HELD(0, 1, 9, {TWO, 1, 5}), HELD(1, 1, 9, {TWO, 1, 5})}};
    cr_assert_not(run(check_tokens, &story));
}

Test(tokens, equal_tokens_in_two_semaphores_pass)
{
    struct story story = {{HELD(0, 1, 2, {TWO, 1, 5}), HELD(1, 3, 4, {ONE, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

Test(tokens, smaller_token_of_a_later_request_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {TWO, 1, 6}), HELD(1, 3, 4, {TWO, 1, 5})}};
    cr_assert_not(run(check_tokens, &story));
}

Test(tokens, overlapping_calls_may_have_either_order)
{
    struct story story = {{HELD(0, 1, 4, {TWO, 1, 6}), HELD(1, 3, 5, {TWO, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

Test(tokens, repeated_request_counts_from_its_first_call)
{
    struct story story = {
        {CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 1, 1, 2), HELD(0, 3, 4, {TWO, 1, 6}), HELD(1, 5, 6, {TWO, 1, 5})}};
    cr_assert(run(check_tokens, &story));
}

/* Single keys */

Test(ends, orderly_life_passes)
{
    struct story story = {{CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 1, 2), HELD(0, 3, 4, {ONE, 1, 5}),
                           RELEASED(0, 5, 6), RELEASED(0, 7, 8), CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 9, 10)}};
    cr_assert(run(check_ends, &story));
}

Test(ends, release_before_the_acquire_passes)
{
    struct story story = {{RELEASED(0, 1, 2), CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 3, 4)}};
    cr_assert(run(check_ends, &story));
}

Test(ends, key_held_again_after_release_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), HELD(0, 5, 6, {ONE, 1, 5})}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, lost_grant_is_caught)
{
    struct story unknown = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_QUERY, SAYS_UNKNOWN, 404, 0, 3, 4)}};
    struct story ended = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 3, 4)}};
    cr_assert_not(run(check_ends, &unknown));
    cr_assert_not(run(check_ends, &ended));
}

Test(ends, lost_release_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}),
                           RELEASED(0, 3, 4),
                           {.kind = CALL_QUERY,
                            .says = SAYS_HELD,
                            .status = 200,
                            .sent_us = 5,
                            .answered_us = 6,
                            .share_count = 1,
                            .shares = {{ONE, 1, 5, {0}}}}}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, end_before_lease_end_is_caught_and_after_it_passes)
{
    struct story early = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 10)}};
    struct story in_time = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 11)}};
    early.calls[0].lease_us = in_time.calls[0].lease_us = 10;
    cr_assert_not(run(check_ends, &early));
    cr_assert(run(check_ends, &in_time));
}

Test(ends, renewal_after_a_known_end_is_caught)
{
    struct story story = {
        {HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 12, 13), HELD(0, 14, 15, {ONE, 1, 5})}};
    story.calls[0].lease_us = story.calls[2].lease_us = 10;
    story.calls[2].kind = CALL_RENEW;
    story.calls[2].status = 200;
    cr_assert_not(run(check_ends, &story));
}

/* The request was granted, not answered, and had expired when the call was repeated: the answer is that of the rows. */
Test(ends, unanswered_grant_may_have_expired_before_the_answer)
{
    struct story late = {{CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 1, 12)}};
    struct story early = {{CALL(CALL_ACQUIRE, SAYS_ENDED, 410, 0, 1, 10)}};
    late.calls[0].lease_us = early.calls[0].lease_us = 10;
    cr_assert(run(check_ends, &late));
    cr_assert_not(run(check_ends, &early));
}

/* P17: an unclaimed grant is held for ten seconds only, whatever its ttl. */
Test(ends, unclaimed_grant_ends_before_its_ttl)
{
    struct story late = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 5000000),
                          CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 11000000, 11000001)}};
    late.calls[0].lease_us = 3600000000;
    struct story without_wait = late;
    late.calls[0].wait_us = 200000;
    struct story early = late, claimed = late, seen = late, refused = late;
    early.calls[1].answered_us = 9000000;
    claimed.calls[2] = seen.calls[2] = (struct call)HELD(0, 5000001, 6000000, {ONE, 1, 5});
    seen.calls[2].kind = CALL_QUERY;
    claimed.calls[2].lease_us = 3600000000;
    refused.calls[2] = (struct call)CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 5000001, 6000000);
    refused.calls[2].lease_us = 3600000000;
    cr_assert(run(check_ends, &late));
    cr_assert_not(run(check_ends, &early));
    cr_assert_not(run(check_ends, &without_wait));
    cr_assert_not(run(check_ends, &claimed));
    cr_assert(run(check_ends, &seen));
    cr_assert_not(run(check_ends, &refused));
}

static bool ends_early(const struct history *history, const struct facts *ignored, char message[MESSAGE_SIZE])
{
    struct facts troubled = *ignored;
    troubled.early_us = EARLY_US;
    return check_ends(history, &troubled, message);
}

Test(ends, lease_may_end_early_by_what_the_facts_allow)
{
    struct story story = {{HELD(0, 1000000, 2000000, {ONE, 1, 5}), CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 1, 21500000)}};
    struct story early = story;
    story.calls[0].lease_us = early.calls[0].lease_us = 25000000;
    early.calls[1].answered_us = 20500000;
    cr_assert(run(ends_early, &story));
    cr_assert_not(run(ends_early, &early));
    cr_assert_not(run(check_ends, &story));
}

Test(ends, replayed_grant_is_not_older_than_the_first_request)
{
    struct story early = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2), HELD(0, 3, 4, {ONE, 1, 5}),
                           CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 9, 10)}};
    for (int i = 0; i < 3; i++)
        early.calls[i].lease_us = 10;
    early.calls[1].status = 200;
    cr_assert_not(run(check_ends, &early));
}

Test(ends, confirmed_request_is_held_until_its_release)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(0, 3, 4, {ONE, 1, 5}),
                           CALL(CALL_RELEASE, SAYS_NOTHING, 409, 0, 5, 6),
                           CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 50, 51)}};
    struct story released = story;
    for (int i = 0; i < 4; i++)
        story.calls[i].lease_us = released.calls[i].lease_us = 10;
    story.calls[1].kind = released.calls[1].kind = CALL_CONFIRM;
    story.calls[1].status = released.calls[1].status = 200;
    released.calls[2] = (struct call)RELEASED(0, 5, 6);
    cr_assert_not(run(check_ends, &story));
    cr_assert(run(check_ends, &released));
}

Test(ends, confirmed_refusal_without_a_confirm_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_RELEASE, SAYS_NOTHING, 409, 0, 5, 6)}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, no_capacity_for_a_holder_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 3, 4)}};
    cr_assert_not(run(check_ends, &story));
}

Test(ends, overlapping_calls_may_contradict)
{
    struct story story = {{HELD(0, 1, 4, {ONE, 1, 5}), CALL(CALL_ACQUIRE, SAYS_NO_CAPACITY, 423, 0, 3, 6),
                           CALL(CALL_QUERY, SAYS_UNKNOWN, 404, 0, 2, 3), RELEASED(0, 7, 9),
                           CALL(CALL_QUERY, SAYS_ENDED, 200, 0, 6, 8)}};
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

Test(fence, refused_live_holder_is_caught_and_stale_one_passes)
{
    struct story live = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), WRITTEN(0, SAYS_REFUSED, 3, 4, {ONE, 1, 5, {1}})}};
    struct story stale = {{HELD(0, 1, 2, {ONE, 1, 5, {1}}), RELEASED(0, 3, 4), HELD(1, 5, 6, {ONE, 1, 6, {1}}),
                           WRITTEN(1, SAYS_ACCEPTED, 7, 8, {ONE, 1, 6, {1}}),
                           WRITTEN(0, SAYS_REFUSED, 9, 10, {ONE, 1, 5, {1}})}};
    cr_assert_not(run(check_fence, &live));
    cr_assert(run(check_fence, &stale));
}

Test(fence, older_token_after_a_newer_one_on_a_slot_is_caught)
{
    struct story same = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(1, 1, 2, {SEVEN, 1, 6, {1}}),
                          WRITTEN(1, SAYS_ACCEPTED, 3, 4, {SEVEN, 1, 6, {1}}),
                          WRITTEN(0, SAYS_ACCEPTED, 5, 6, {SEVEN, 1, 5, {1}})}};
    struct story other = same;
    other.calls[2].shares[0].slots[0] = 2;
    cr_assert_not(run(check_fence, &same));
    cr_assert(run(check_fence, &other));
}

Test(fence, overlapping_writes_may_have_either_order)
{
    struct story story = {{HELD(0, 1, 2, {SEVEN, 1, 5, {1}}), HELD(1, 1, 2, {SEVEN, 1, 6, {1}}),
                           WRITTEN(1, SAYS_ACCEPTED, 3, 6, {SEVEN, 1, 6, {1}}),
                           WRITTEN(0, SAYS_ACCEPTED, 5, 7, {SEVEN, 1, 5, {1}})}};
    cr_assert(run(check_fence, &story));
}

/* Statuses */

Test(statuses, status_5xx_is_caught_without_faults)
{
    struct story busy = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2)}};
    struct story fault = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 500, 0, 1, 2)}};
    struct story lost = {{CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 1, 2)}};
    cr_assert_not(run(statuses_without_faults, &busy));
    cr_assert_not(run(statuses_without_faults, &fault));
    cr_assert_not(run(statuses_without_faults, &lost));
}

Test(statuses, lost_answer_passes_with_faults_and_500_is_caught)
{
    struct story busy = {
        {CALL(CALL_ACQUIRE, SAYS_NOTHING, 503, 0, 1, 2), CALL(CALL_RELEASE, SAYS_NOTHING, 0, 0, 1, 2)}};
    struct story fault = {{CALL(CALL_ACQUIRE, SAYS_NOTHING, 500, 0, 1, 2)}};
    cr_assert(run(statuses_with_faults, &busy));
    cr_assert_not(run(statuses_with_faults, &fault));
}

Test(statuses, renewal_is_answered_held_or_ended)
{
    struct story ended = {{CALL(CALL_RENEW, SAYS_ENDED, 410, 0, 1, 2)}};
    struct story unknown = {{CALL(CALL_RENEW, SAYS_NOTHING, 404, 0, 1, 2)}};
    cr_assert(run(statuses_without_faults, &ended));
    cr_assert_not(run(statuses_without_faults, &unknown));
}

Test(statuses, each_call_has_its_own_statuses)
{
    struct story look = {{CALL(CALL_QUERY, SAYS_UNKNOWN, 404, 0, 1, 2)}};
    struct story acquire = {{CALL(CALL_ACQUIRE, SAYS_UNKNOWN, 404, 0, 1, 2)}};
    cr_assert(run(statuses_without_faults, &look));
    cr_assert_not(run(statuses_without_faults, &acquire));
}
