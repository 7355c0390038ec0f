/* SPDX-License-Identifier: MIT */
/*
 * The checkers of the tables on ledgers written by hand: each good ledger passes, each fault is found by its checker.
 */
#include "ledger.h"

#include <criterion/criterion.h>

static const struct semaphore_facts semaphores[] = {{"one", 1, true}, {"two", 2, false}, {"seven", 7, true}};
static const struct facts facts = {.semaphores = semaphores, .count = 3};

enum { ONE, TWO, SEVEN };

struct book {
    struct entry entries[6]; /* ends with an entry without a key */
    struct call calls[6];    /* ends with a call whose answered_us is 0 */
};

/* Keys start at 1 here. */
#define ENDED_BY(why, k, from, to, ...)                                                                                \
    {                                                                                                                  \
        .key = (k), .end = (why), .acquired_us = (from), .ended_us = (to), .share_count = 1, .shares = { __VA_ARGS__ } \
    }
#define ENDED(k, from, to, ...) ENDED_BY(ENTRY_RELEASED, k, from, to, __VA_ARGS__)
#define KEPT(k, from, ...)                                                                                             \
    {                                                                                                                  \
        .key = (k), .acquired = true, .acquired_us = (from), .ended_us = ENTRY_NEVER, .share_count = 1, .shares = {    \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define GRANTED(k, from, to, ...)                                                                                      \
    {                                                                                                                  \
        .kind = CALL_ACQUIRE, .says = SAYS_HELD, .status = 201, .key = (k), .sent_us = (from), .answered_us = (to),    \
        .share_count = 1, .shares = {                                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define RELEASED(k, from, to)                                                                                          \
    {                                                                                                                  \
        .kind = CALL_RELEASE, .says = SAYS_ENDED, .status = 200, .key = (k), .sent_us = (from), .answered_us = (to)    \
    }

static struct ledger ledger_of(const struct book *book)
{
    struct ledger ledger = {NULL, 0, 0};
    for (size_t i = 0; i < 6 && book->entries[i].key; i++)
        ledger_add(&ledger, &book->entries[i]);
    return ledger;
}

static struct history history_of(const struct book *book)
{
    struct history history = {NULL, 0, 0};
    for (size_t i = 0; i < 6 && book->calls[i].answered_us; i++)
        history_add(&history, &book->calls[i]);
    return history;
}

static bool replays_with(const struct book *book, const struct facts *known)
{
    char message[MESSAGE_SIZE] = "";
    struct ledger ledger = ledger_of(book);
    bool good = check_replay(&ledger, known, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    ledger_release(&ledger);
    return good;
}

static bool replays(const struct book *book)
{
    return replays_with(book, &facts);
}

static bool is_kept(const struct book *book)
{
    char message[MESSAGE_SIZE] = "";
    struct ledger ledger = ledger_of(book);
    struct history history = history_of(book);
    bool good = check_kept(&ledger, &history, &facts, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    history_release(&history);
    ledger_release(&ledger);
    return good;
}

/* The ledger is read 100 s after the faults ended. */
static bool is_quiet(const struct book *book, int64_t read_us)
{
    char message[MESSAGE_SIZE] = "";
    struct ledger ledger = ledger_of(book);
    struct history history = history_of(book);
    bool good = check_quiet(&ledger, &history, &facts, 1000000, read_us, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    history_release(&history);
    ledger_release(&ledger);
    return good;
}

static bool expires_well_with(const struct book *book, const struct facts *known, int64_t late_us,
                              int64_t *ret_latest_us)
{
    char message[MESSAGE_SIZE] = "";
    struct ledger ledger = ledger_of(book);
    bool good = check_expiry(&ledger, known, late_us, ret_latest_us, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    ledger_release(&ledger);
    return good;
}

static bool expires_well(const struct book *book, int64_t late_us, int64_t *ret_latest_us)
{
    return expires_well_with(book, &facts, late_us, ret_latest_us);
}

/* C2 */

Test(replay, grant_at_the_time_of_an_end_passes)
{
    struct book book = {.entries = {ENDED(1, 10, 20, {ONE, 1, 5, {1}}), KEPT(2, 20, {ONE, 1, 6, {1}})}};
    cr_assert(replays(&book));
}

Test(replay, two_holders_of_one_unit_are_caught)
{
    struct book book = {.entries = {ENDED(1, 10, 21, {ONE, 1, 5}), KEPT(2, 20, {ONE, 1, 6})}};
    cr_assert_not(replays(&book));
}

Test(replay, units_are_summed)
{
    struct book good = {.entries = {KEPT(1, 10, {SEVEN, 4, 5}), KEPT(2, 20, {SEVEN, 3, 6})}};
    struct book bad = {.entries = {KEPT(1, 10, {SEVEN, 4, 5}), KEPT(2, 20, {SEVEN, 4, 6})}};
    cr_assert(replays(&good));
    cr_assert_not(replays(&bad));
}

Test(replay, slot_granted_twice_is_caught_below_capacity)
{
    struct book book = {.entries = {KEPT(1, 10, {SEVEN, 2, 5, {1, 3}}), KEPT(2, 20, {SEVEN, 1, 6, {3}})}};
    cr_assert_not(replays(&book));
}

Test(replay, smaller_token_of_a_later_grant_is_caught)
{
    struct book book = {.entries = {KEPT(1, 20, {TWO, 1, 5}), KEPT(2, 10, {TWO, 1, 6})}};
    cr_assert_not(replays(&book));
}

Test(replay, token_of_two_grants_is_caught)
{
    struct book book = {.entries = {KEPT(1, 10, {TWO, 1, 5}), KEPT(2, 10, {TWO, 1, 5})}};
    cr_assert_not(replays(&book));
}

Test(replay, end_before_the_grant_is_caught)
{
    struct book book = {.entries = {ENDED(1, 20, 10, {TWO, 1, 5})}};
    cr_assert_not(replays(&book));
}

Test(replay, inconsistent_states_are_caught)
{
    struct book torn = {.entries = {KEPT(1, 10, {TWO, 1, 5})}};
    struct book empty = {.entries = {KEPT(1, 10, {TWO, 1, 5})}};
    struct book both = {.entries = {KEPT(1, 10, {TWO, 1, 5})}};
    torn.entries[0].torn = true;
    empty.entries[0].share_count = 0;
    both.entries[0].ended_us = 20;
    cr_assert_not(replays(&torn));
    cr_assert_not(replays(&empty));
    cr_assert_not(replays(&both));
}

Test(replay, lease_clock_goes_back_only_with_the_database_clock)
{
    struct book book = {.entries = {ENDED(1, 10000000, 10500000, {ONE, 1, 5}), KEPT(2, 10000000, {ONE, 1, 6})}};
    struct facts leapt = facts, long_ago = facts;
    facts_add_leap(&leapt, 0, 10600000);
    facts_add_leap(&long_ago, 0, 30000000);
    cr_assert_not(replays(&book));
    cr_assert(replays_with(&book, &leapt));
    cr_assert_not(replays_with(&book, &long_ago));
}

/* C5 */

Test(acknowledged_calls, acknowledged_and_stored_calls_pass)
{
    struct book book = {
        .entries = {KEPT(1, 10, {ONE, 1, 5, {1}}), ENDED(2, 10, 20, {TWO, 2, 6})},
        .calls = {GRANTED(1, 1, 2, {ONE, 1, 5, {1}}), GRANTED(2, 1, 2, {TWO, 2, 6}), RELEASED(2, 3, 4)}};
    cr_assert(is_kept(&book));
}

Test(acknowledged_calls, missing_grant_is_caught)
{
    struct book book = {.calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    cr_assert_not(is_kept(&book));
}

Test(acknowledged_calls, changed_token_slot_or_unit_count_is_caught)
{
    struct book token = {.entries = {KEPT(1, 10, {SEVEN, 1, 6, {1}})}, .calls = {GRANTED(1, 1, 2, {SEVEN, 1, 5, {1}})}};
    struct book slot = {.entries = {KEPT(1, 10, {SEVEN, 1, 5, {2}})}, .calls = {GRANTED(1, 1, 2, {SEVEN, 1, 5, {1}})}};
    struct book units = {.entries = {KEPT(1, 10, {SEVEN, 2, 5, {1}})}, .calls = {GRANTED(1, 1, 2, {SEVEN, 1, 5, {1}})}};
    cr_assert_not(is_kept(&token));
    cr_assert_not(is_kept(&slot));
    cr_assert_not(is_kept(&units));
}

Test(acknowledged_calls, undone_release_is_caught)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})},
                        .calls = {GRANTED(1, 1, 2, {ONE, 1, 5}), RELEASED(1, 3, 4)}};
    cr_assert_not(is_kept(&book));
}

Test(acknowledged_calls, missing_tombstone_is_caught)
{
    struct book book = {.calls = {RELEASED(1, 3, 4)}};
    cr_assert_not(is_kept(&book));
}

Test(acknowledged_calls, partial_unanswered_grant_is_caught)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 0}, {TWO, 1, 0})}};
    book.calls[0].says = SAYS_NOTHING;
    book.calls[0].status = 503;
    book.calls[0].share_count = 2;
    cr_assert_not(is_kept(&book));
    book.entries[0].shares[1] = (struct share){TWO, 1, 9, {0}};
    book.entries[0].share_count = 2;
    cr_assert(is_kept(&book));
}

Test(acknowledged_calls, release_that_was_not_sent_is_caught)
{
    struct book book = {.entries = {ENDED(1, 10, 20, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    cr_assert_not(is_kept(&book));
}

Test(acknowledged_calls, confirm_that_was_not_sent_is_caught)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    book.entries[0].confirmed = true;
    cr_assert_not(is_kept(&book));
}

/* C6 */

Test(held_after_faults, request_without_lease_or_confirmed_may_be_held)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    cr_assert(is_quiet(&book, 100000000));
    book.calls[0].lease_us = 3000000;
    cr_assert_not(is_quiet(&book, 100000000));
    book.entries[0].confirmed = true;
    book.calls[1] = (struct call)GRANTED(1, 3, 4, {ONE, 1, 5});
    book.calls[1].kind = CALL_CONFIRM;
    cr_assert(is_quiet(&book, 100000000));
}

Test(held_after_faults, lease_may_expire_five_seconds_late)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    book.calls[0].lease_us = 3000000;
    cr_assert(is_quiet(&book, 7900000));
    cr_assert_not(is_quiet(&book, 8100000));
}

/* The grant may be as late as the end of the faults. */
Test(held_after_faults, unanswered_lease_counts_from_the_end_of_the_faults)
{
    struct book book = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 0})}};
    book.calls[0].lease_us = 3000000;
    book.calls[0].says = SAYS_NOTHING;
    book.calls[0].status = 0;
    cr_assert(is_quiet(&book, 8900000));
    cr_assert_not(is_quiet(&book, 9100000));
}

Test(held_after_faults, lost_or_inconsistent_request_is_caught)
{
    struct book lost = {.calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    struct book torn = {.entries = {KEPT(1, 10, {ONE, 1, 5})}, .calls = {GRANTED(1, 1, 2, {ONE, 1, 5})}};
    torn.entries[0].torn = true;
    cr_assert_not(is_quiet(&lost, 100000000));
    cr_assert_not(is_quiet(&torn, 100000000));
}

/* C7 */

Test(expiry, punctual_end_passes_and_the_latest_is_reported)
{
    int64_t latest = -1;
    struct book book = {.entries = {ENDED_BY(ENTRY_EXPIRED, 1, 10, 110, {ONE, 1, 5}),
                                    ENDED_BY(ENTRY_EXPIRED, 2, 10, 117, {TWO, 1, 5}), ENDED(3, 10, 999, {TWO, 1, 6})}};
    book.entries[0].ttl_us = book.entries[1].ttl_us = 100;
    cr_assert(expires_well(&book, 7, &latest));
    cr_assert_eq(latest, 7);
    cr_assert_not(expires_well(&book, 6, &latest));
}

Test(expiry, expiry_early_without_lease_or_confirmed_is_caught)
{
    int64_t latest;
    struct book early = {.entries = {ENDED_BY(ENTRY_EXPIRED, 1, 10, 109, {ONE, 1, 5})}};
    struct book no_lease = early, confirmed = early;
    early.entries[0].ttl_us = 100;
    confirmed.entries[0].ttl_us = 50;
    confirmed.entries[0].confirmed = true;
    cr_assert_not(expires_well(&early, 1000, &latest));
    cr_assert_not(expires_well(&no_lease, 1000, &latest));
    cr_assert_not(expires_well(&confirmed, 1000, &latest));
}

Test(expiry, lease_may_end_as_early_as_the_clocks_allow)
{
    int64_t latest;
    struct facts troubled = facts;
    struct book book = {.entries = {ENDED_BY(ENTRY_EXPIRED, 1, 10, 106, {ONE, 1, 5})}};
    book.entries[0].ttl_us = 100;
    troubled.early_us = 4;
    cr_assert(expires_well_with(&book, &troubled, 7, &latest));
    troubled.early_us = 3;
    cr_assert_not(expires_well_with(&book, &troubled, 7, &latest));
}

Test(expiry, renewed_request_may_last_longer_but_not_shorter)
{
    int64_t latest;
    struct book book = {.entries = {ENDED_BY(ENTRY_EXPIRED, 1, 10, 900, {ONE, 1, 5})}};
    book.entries[0].ttl_us = 100;
    book.entries[0].renewals = 1;
    cr_assert(expires_well(&book, 7, &latest));
    book.entries[0].ended_us = 100;
    cr_assert_not(expires_well(&book, 7, &latest));
}

Test(expiry, ends_with_another_reason_are_caught)
{
    int64_t latest;
    static const enum entry_end ends[] = {ENTRY_STALE, ENTRY_FORCED, ENTRY_OWNER_DEAD};
    for (size_t i = 0; i < 3; i++) {
        struct book book = {.entries = {ENDED_BY(ends[i], 1, 10, 900, {ONE, 1, 5})}};
        cr_assert_not(expires_well(&book, 7, &latest));
    }
}
