/* SPDX-License-Identifier: MIT */
/*
 * C3 on histories written by hand, and on long histories that a model semaphore produces: real events always have an
 * order, and one lie among thousands of answers has none.
 */
#include "linear.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static const struct semaphore_facts semaphores[] = {{"one", 1, true}, {"three", 3, false}};
static const struct facts facts = {.semaphores = semaphores, .count = 2};

enum { ONE, THREE, NOBODY_WAITS = 3 };

struct story {
    struct call calls[8]; /* ends with a call whose answered_us is 0 */
};

static bool judge(const struct history *history, uint64_t never_waited, struct linear_counts *ret_counts)
{
    char message[MESSAGE_SIZE] = "";
    *ret_counts = (struct linear_counts){0, 0, 0};
    bool good = check_linear(history, &facts, never_waited, ret_counts, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    return good;
}

static bool run(const struct story *story)
{
    struct linear_counts counts;
    struct history history = {NULL, 0, 0};
    for (size_t i = 0; i < 8 && story->calls[i].answered_us; i++)
        history_add(&history, &story->calls[i]);
    bool good = judge(&history, NOBODY_WAITS, &counts);
    history_release(&history);
    return good;
}

#define ACQUIRE(said, code, k, from, to, ...)                                                                          \
    {                                                                                                                  \
        .kind = CALL_ACQUIRE, .says = (said), .status = (code), .key = (k), .sent_us = (from), .answered_us = (to),    \
        .share_count = 1, .shares = {                                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define HELD(k, from, to, ...)    ACQUIRE(SAYS_HELD, 201, k, from, to, __VA_ARGS__)
#define REFUSED(k, from, to, ...) ACQUIRE(SAYS_NO_CAPACITY, 423, k, from, to, __VA_ARGS__)
#define LOST(k, from, to, ...)    ACQUIRE(SAYS_NOTHING, 503, k, from, to, __VA_ARGS__)
#define CALL(what, said, code, k, from, to)                                                                            \
    {                                                                                                                  \
        .kind = (what), .says = (said), .status = (code), .key = (k), .sent_us = (from), .answered_us = (to)           \
    }
#define RELEASED(k, from, to) CALL(CALL_RELEASE, SAYS_ENDED, 200, k, from, to)

Test(linear, successive_holders_pass)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), HELD(1, 5, 6, {ONE, 1, 6})}};
    cr_assert(run(&story));
}

Test(linear, holders_that_must_overlap_are_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 7, 8), HELD(1, 5, 6, {ONE, 1, 6})}};
    cr_assert_not(run(&story));
}

Test(linear, pending_release_frees_units)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 5, 9), HELD(1, 6, 7, {ONE, 1, 6})}};
    cr_assert(run(&story));
}

Test(linear, renewal_after_another_grant_is_caught)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 6, 7, {ONE, 1, 6}),
                           CALL(CALL_RENEW, SAYS_HELD, 200, 0, 8, 9), RELEASED(0, 5, 12)}};
    struct story without = story;
    without.calls[2] = (struct call)RELEASED(0, 5, 13);
    cr_assert_not(run(&story));
    cr_assert(run(&without));
}

Test(linear, tokens_give_the_order_of_grants)
{
    struct story good = {{HELD(0, 1, 9, {THREE, 1, 5}), HELD(1, 1, 9, {THREE, 1, 6}), HELD(2, 10, 11, {THREE, 1, 7})}};
    struct story bad = {{HELD(0, 1, 9, {THREE, 1, 7}), HELD(1, 1, 9, {THREE, 1, 6}), HELD(2, 10, 11, {THREE, 1, 5})}};
    cr_assert(run(&good));
    cr_assert_not(run(&bad));
}

/* Any two of them have an order, but not all three: 2 held before 0, and 0 before 1, which began after the end of 2. */
Test(linear, contradicting_orders_are_caught)
{
    struct story story = {{HELD(0, 1, 20, {ONE, 1, 6}), RELEASED(0, 2, 21), HELD(1, 3, 4, {ONE, 1, 5}),
                           RELEASED(1, 18, 19), HELD(2, 1, 20, {ONE, 1, 7}), RELEASED(2, 10, 11)}};
    struct story good = story;
    good.calls[5] = (struct call)RELEASED(2, 10, 21);
    cr_assert_not(run(&story));
    cr_assert(run(&good));
}

Test(linear, refusal_while_units_were_free_is_caught)
{
    struct story free = {{HELD(0, 1, 2, {THREE, 2, 5}), REFUSED(1, 3, 4, {THREE, 1, 0})}};
    struct story full = {{HELD(0, 1, 2, {THREE, 2, 5}), REFUSED(1, 3, 4, {THREE, 2, 0})}};
    cr_assert_not(run(&free));
    cr_assert(run(&full));
}

Test(linear, refusal_may_precede_a_release_or_follow_a_grant)
{
    struct story story = {
        {HELD(0, 1, 5, {ONE, 1, 5}), REFUSED(1, 2, 6, {ONE, 1, 0}), RELEASED(0, 6, 9), REFUSED(2, 7, 12, {ONE, 1, 0})}};
    struct story late = story;
    late.calls[3].sent_us = 10;
    cr_assert(run(&story));
    cr_assert_not(run(&late));
}

Test(linear, refusal_is_ignored_if_requests_may_wait)
{
    struct linear_counts counts;
    struct history history = {NULL, 0, 0};
    struct call call = REFUSED(1, 3, 4, {THREE, 1, 0});
    history_add(&history, &call);
    cr_assert(judge(&history, 1u << ONE, &counts));
    cr_assert_not(judge(&history, 1u << THREE, &counts));
    history_release(&history);
}

Test(linear, unanswered_call_may_have_happened_or_not)
{
    struct story happened = {{LOST(0, 1, 2, {ONE, 1, 0}), REFUSED(1, 3, 4, {ONE, 1, 0})}};
    struct story not = {
        {LOST(0, 1, 2, {ONE, 1, 0}), HELD(1, 3, 4, {ONE, 1, 5}), RELEASED(1, 5, 6), HELD(2, 7, 8, {ONE, 1, 6})}};
    struct story over = {{LOST(0, 1, 2, {ONE, 1, 0}), RELEASED(0, 3, 4), REFUSED(1, 5, 6, {ONE, 1, 0})}};
    cr_assert(run(&happened));
    cr_assert(run(&not ));
    cr_assert_not(run(&over));
}

Test(linear, request_after_its_end_holds_nothing)
{
    struct story story = {{RELEASED(0, 1, 2), LOST(0, 3, 4, {ONE, 1, 0}), REFUSED(1, 5, 6, {ONE, 1, 0})}};
    struct story without = story;
    without.calls[2] = (struct call)HELD(1, 5, 6, {ONE, 1, 5});
    cr_assert_not(run(&story));
    cr_assert(run(&without));
}

Test(linear, grant_seen_later_counts_from_some_time_on)
{
    struct story story = {
        {LOST(0, 1, 2, {ONE, 1, 0}), HELD(1, 3, 4, {ONE, 1, 5}), RELEASED(1, 5, 6), HELD(0, 7, 8, {ONE, 1, 6})}};
    struct story known = story;
    known.calls[2] = (struct call)RELEASED(1, 9, 10);
    cr_assert(run(&story));
    cr_assert_not(run(&known));
}

Test(linear, ended_lease_frees_units)
{
    struct story story = {{HELD(0, 1, 2, {ONE, 1, 5}), HELD(1, 12, 13, {ONE, 1, 6})}};
    story.calls[0].lease_us = 10;
    cr_assert(run(&story));
    story.calls[0].lease_us = 13;
    cr_assert_not(run(&story));
}

Test(linear, answer_without_a_possible_time_is_caught)
{
    struct story held_again = {
        {HELD(0, 1, 2, {ONE, 1, 5}), RELEASED(0, 3, 4), CALL(CALL_RENEW, SAYS_HELD, 200, 0, 5, 6)}};
    struct story refused = {{HELD(0, 1, 2, {ONE, 1, 5}), REFUSED(0, 3, 4, {ONE, 1, 0})}};
    cr_assert_not(run(&held_again));
    cr_assert_not(run(&refused));
}

/* ---- long histories ---- */

enum { CLIENTS = 16, OPERATIONS = 6000, LEAD = 40 };

static uint64_t dice;

static unsigned roll(unsigned below)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(dice >> 33) % below;
}

/* A client of the model: its call began some time before its event, and ends some time after it. */
struct client {
    int64_t free_at;
    unsigned key;
    unsigned units;
    bool holds;
    uint64_t token;
};

/*
 * Makes one event at `now`; each time has one event, and as many calls overlap as there are clients. token: for an
 * acquire.
 */
static struct call make_event(struct client *client, int64_t now, unsigned *held, uint64_t *token, unsigned *key)
{
    struct call call = {.sent_us = now - 1 - roll(LEAD), .answered_us = now + 1 + roll(LEAD), .status = 200};
    if (call.sent_us < client->free_at)
        call.sent_us = client->free_at;
    if (client->holds) {
        call.kind = CALL_RELEASE;
        call.says = SAYS_ENDED;
        *held -= client->units;
        client->holds = false;
    } else {
        client->key = (*key)++;
        client->units = 1 + roll(2);
        call.kind = CALL_ACQUIRE;
        call.share_count = 1;
        client->holds = *held + client->units <= 3;
        call.says = client->holds ? SAYS_HELD : SAYS_NO_CAPACITY;
        call.status = client->holds ? 201 : 423;
        call.shares[0] = (struct share){THREE, client->units, client->holds ? ++*token : 0, {0}};
        *held += client->holds ? client->units : 0;
    }
    call.key = client->key;
    client->free_at = call.answered_us + 1;
    return call;
}

/* Releases all that is still held; all of it ends long before the result. */
static int64_t release_all(struct history *history, struct client clients[CLIENTS], int64_t now)
{
    unsigned held = 3 * CLIENTS, key = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        if (!clients[i].holds)
            continue;
        now += 3 * LEAD;
        struct call call = make_event(&clients[i], now, &held, NULL, &key);
        history_add(history, &call);
    }
    return now + 3 * LEAD;
}

static struct history generate_history(uint64_t seed, int64_t *ret_end)
{
    struct history history = {NULL, 0, 0};
    static struct client clients[CLIENTS];
    unsigned held = 0, key = 0;
    uint64_t token = 0;
    dice = seed;
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.free_at = 1};
    for (int64_t now = 100; history.count < OPERATIONS; now += 1 + roll(4)) {
        struct client *client = &clients[roll(CLIENTS)];
        if (client->free_at >= now)
            continue;
        struct call call = make_event(client, now, &held, &token, &key);
        history_add(&history, &call);
        *ret_end = now;
    }
    *ret_end = release_all(&history, clients, *ret_end);
    return history;
}

Test(linear, real_history_always_has_an_order)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct linear_counts counts;
        int64_t end;
        struct history history = generate_history(seed, &end);
        cr_assert(judge(&history, NOBODY_WAITS, &counts), "seed %d", (int)seed);
        cr_assert_eq(counts.skipped, 0, "seed %d: %zu are not decided", (int)seed, counts.skipped);
        cr_assert_geq(counts.placed + counts.rough, (size_t)OPERATIONS);
        history_release(&history);
    }
}

/* Turns the next refusal after the middle into a grant that is never released. */
static void plant_lie(struct history *history)
{
    for (size_t i = history->count / 2; i < history->count; i++) {
        struct call *call = &history->calls[i];
        if (call->says != SAYS_NO_CAPACITY)
            continue;
        call->says = SAYS_HELD;
        call->status = 201;
        call->answered_us = call->sent_us + 1;
        for (size_t j = i; j-- > 0 && !call->shares[0].token;)
            call->shares[0].token = history->calls[j].shares[0].token;
        return;
    }
}

Test(linear, extra_grant_among_thousands_is_caught)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct linear_counts counts;
        int64_t end;
        struct history history = generate_history(seed, &end);
        plant_lie(&history);
        cr_assert_not(judge(&history, NOBODY_WAITS, &counts), "seed %d; %zu are not decided", (int)seed,
                      counts.skipped);
        history_release(&history);
    }
}

Test(linear, false_refusal_after_thousands_is_caught)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct linear_counts counts;
        int64_t end;
        struct history history = generate_history(seed, &end);
        struct call full = REFUSED(1000000, end, end + 5, {THREE, 3, 0}),
                    call = HELD(1000001, end, end + 4, {THREE, 1, 9999});
        history_add(&history, &call);
        history_add(&history, &full);
        cr_assert(judge(&history, NOBODY_WAITS, &counts), "seed %d", (int)seed);
        history.calls[history.count - 1].shares[0].count = 2;
        cr_assert_not(judge(&history, NOBODY_WAITS, &counts), "seed %d", (int)seed);
        history_release(&history);
    }
}
