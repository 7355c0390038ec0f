/* SPDX-License-Identifier: MIT */
/* C8 on queues written by hand: each good one passes, each planted fault is found. */
#include "order.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { FIFO, BACKFILL, SECOND, BOUND_US = 1000, LATE_US = 100, LIST_MAX = 8 };

static const struct queue_facts queues[] = {
    {"fifo", true, BOUND_US}, {"backfill", false, BOUND_US}, {"second", false, BOUND_US}};

/* Requests are their own numbers and keys. The first without a number ends a list. */
struct queue_story {
    struct place places[LIST_MAX];
    struct presence presences[LIST_MAX];
};

/* Request `id` came at `since`, with this place; granted: 0: never. */
#define PLACE(id, queue, units, at, from, number, granted)                                                             \
    {                                                                                                                  \
        .request = (id), .semaphore = (queue), .count = (units), .alone = true, .waited = (from) < (granted),          \
        .place_us = (at), .since_us = (from), .token = (number), .granted_us = (granted)                               \
    }
/* Request `id` was there with this place while the tokens from `from` to before `until` were granted. */
#define THERE(id, queue, at, from, until)                                                                              \
    {                                                                                                                  \
        .request = (id), .semaphore = (queue), .place_us = (at), .from_token = (from), .until_token = (until)          \
    }

static struct order order_of(const struct queue_story *story)
{
    struct order order = {.queues = queues, .queue_count = 3};
    for (size_t i = 0; i < LIST_MAX && story->places[i].request; i++) {
        struct place place = story->places[i];
        snprintf(place.key, sizeof(place.key), "k%llu", (unsigned long long)place.request);
        order_add_place(&order, &place);
    }
    for (size_t i = 0; i < LIST_MAX && story->presences[i].request; i++)
        order_add_presence(&order, &story->presences[i]);
    return order;
}

static bool in_order(const struct queue_story *story)
{
    char message[MESSAGE_SIZE] = "";
    struct order order = order_of(story);
    bool good = check_order(&order, NULL, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    order_release(&order);
    return good;
}

static bool places_kept(const struct queue_story *story)
{
    char message[MESSAGE_SIZE] = "";
    struct order order = order_of(story);
    bool good = check_places(&order, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    order_release(&order);
    return good;
}

Test(order, grants_in_the_order_of_places_pass)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 5, 100), PLACE(2, FIFO, 1, 20, 20, 6, 200)},
                                {THERE(1, FIFO, 10, 0, 5), THERE(2, FIFO, 20, 0, 6)}};
    cr_assert(in_order(&story));
}

Test(order, fifo_pass_of_a_waiter_is_caught)
{
    struct queue_story story = {{PLACE(1, FIFO, 3, 10, 10, 6, 200), PLACE(2, FIFO, 1, 20, 20, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 7)}};
    cr_assert_not(in_order(&story));
}

Test(order, fifo_pass_of_a_waiter_never_served_is_caught)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 0, 0), PLACE(2, FIFO, 1, 20, 20, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 7)}};
    cr_assert_not(in_order(&story));
}

Test(order, fifo_pass_by_a_newcomer_is_caught)
{
    /* It never waited: its place is the time of its grant. */
    struct queue_story story = {{PLACE(1, FIFO, 2, 10, 10, 6, 200), PLACE(2, FIFO, 1, 100, 100, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 7)}};
    cr_assert_not(in_order(&story));
}

Test(order, pass_of_an_absent_waiter_is_accepted)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 6, 200), PLACE(2, FIFO, 1, 20, 20, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 5), THERE(1, FIFO, 10, 6, 6)}};
    cr_assert(in_order(&story));
}

Test(order, equal_places_are_ordered_by_request)
{
    struct queue_story good = {{PLACE(1, FIFO, 1, 10, 10, 5, 100), PLACE(2, FIFO, 1, 10, 10, 6, 200)},
                               {THERE(1, FIFO, 10, 0, 5), THERE(2, FIFO, 10, 0, 6)}};
    struct queue_story bad = {{PLACE(1, FIFO, 1, 10, 10, 6, 200), PLACE(2, FIFO, 1, 10, 10, 5, 100)},
                              {THERE(1, FIFO, 10, 0, 6), THERE(2, FIFO, 10, 0, 5)}};
    cr_assert(in_order(&good));
    cr_assert_not(in_order(&bad));
}

Test(order, priority_counts_by_the_place_alone)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 100, 100, 6, 300), PLACE(2, FIFO, 1, 40, 200, 5, 250)},
                                {THERE(1, FIFO, 100, 0, 6), THERE(2, FIFO, 40, 0, 5)}};
    cr_assert(in_order(&story));
}

Test(order, presence_of_a_former_place_does_not_count)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 150, 150, 6, 200), PLACE(2, FIFO, 1, 20, 20, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 6)}};
    cr_assert(in_order(&story));
}

Test(order, waiters_for_specific_slots_may_be_passed)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 6, 200), PLACE(2, FIFO, 1, 20, 20, 5, 100)},
                                {THERE(1, FIFO, 10, 0, 7)}};
    story.places[0].is_loose = true;
    cr_assert(in_order(&story));
}

Test(order, other_queues_do_not_count)
{
    struct queue_story story = {{PLACE(1, BACKFILL, 1, 10, 10, 6, 200), PLACE(2, SECOND, 1, 20, 20, 5, 100)},
                                {THERE(1, BACKFILL, 10, 0, 7)}};
    cr_assert(in_order(&story));
}

Test(order, backfill_may_pass_what_does_not_fit)
{
    struct queue_story story = {{PLACE(1, BACKFILL, 3, 10, 10, 6, 200), PLACE(2, BACKFILL, 2, 20, 20, 5, 100)},
                                {THERE(1, BACKFILL, 10, 0, 7)}};
    cr_assert(in_order(&story));
}

Test(order, backfill_pass_of_a_waiter_that_fits_is_caught)
{
    struct queue_story story = {{PLACE(1, BACKFILL, 2, 10, 10, 6, 200), PLACE(2, BACKFILL, 2, 20, 20, 5, 100)},
                                {THERE(1, BACKFILL, 10, 0, 7)}};
    cr_assert_not(in_order(&story));
}

Test(order, backfill_may_pass_a_waiter_that_lacks_another_semaphore)
{
    struct queue_story story = {{PLACE(1, BACKFILL, 1, 10, 10, 6, 200), PLACE(2, BACKFILL, 2, 20, 20, 5, 100)},
                                {THERE(1, BACKFILL, 10, 0, 7)}};
    story.places[0].alone = false;
    cr_assert(in_order(&story));
}

Test(order, backfill_pass_after_the_bound_is_caught)
{
    struct queue_story good = {
        {PLACE(1, BACKFILL, 3, 10, 10, 6, 5000), PLACE(2, BACKFILL, 1, 20, 20, 5, 10 + BOUND_US - 1)},
        {THERE(1, BACKFILL, 10, 0, 7)}};
    struct queue_story bad = {{PLACE(1, BACKFILL, 3, 10, 10, 6, 5000), PLACE(2, BACKFILL, 1, 20, 20, 5, 10 + BOUND_US)},
                              {THERE(1, BACKFILL, 10, 0, 7)}};
    cr_assert(in_order(&good));
    cr_assert_not(in_order(&bad));
}

Test(order, pairs_are_counted)
{
    char message[MESSAGE_SIZE];
    struct order_counts counts = {0, 0};
    struct queue_story story = {{PLACE(1, BACKFILL, 3, 10, 10, 0, 0), PLACE(2, BACKFILL, 1, 20, 20, 5, 100),
                                 PLACE(3, BACKFILL, 3, 5, 5, 6, 110)},
                                {THERE(1, BACKFILL, 10, 0, 7)}};
    struct order order = order_of(&story);
    cr_assert(check_order(&order, &counts, message));
    cr_assert_eq(counts.judged, 2);
    cr_assert_eq(counts.passed, 1);
    order_release(&order);
}

Test(order, a_kept_place_passes_and_a_lost_one_is_caught)
{
    struct queue_story good = {{PLACE(1, FIFO, 1, 10, 10, 0, 0), PLACE(1, FIFO, 1, 10, 10, 5, 100)}, {{0}}};
    struct queue_story moved = {{PLACE(1, FIFO, 1, 10, 10, 0, 0), PLACE(1, FIFO, 1, 50, 50, 5, 100)}, {{0}}};
    struct queue_story younger = {{PLACE(1, FIFO, 1, 10, 10, 0, 0), PLACE(1, FIFO, 1, 10, 50, 5, 100)}, {{0}}};
    cr_assert(places_kept(&good));
    cr_assert_not(places_kept(&moved));
    cr_assert_not(places_kept(&younger));
}

static bool exact(const struct queue_story *story, size_t count)
{
    char message[MESSAGE_SIZE] = "";
    struct order order = order_of(story);
    bool good = check_exact(&order, count, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    order_release(&order);
    return good;
}

Test(order, exact_order_needs_no_presence)
{
    struct queue_story good = {{PLACE(2, FIFO, 1, 20, 20, 7, 200), PLACE(1, FIFO, 1, 10, 10, 5, 100)}, {{0}}};
    struct queue_story bad = {{PLACE(2, FIFO, 1, 20, 20, 5, 100), PLACE(1, FIFO, 1, 10, 10, 7, 200)}, {{0}}};
    cr_assert(exact(&good, 2));
    cr_assert_not(exact(&good, 3));
    cr_assert_not(exact(&bad, 2));
}

/* Served time stands still for some seconds after a cold start. */
Test(order, waiter_granted_at_its_arrival_counts)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 5, 10), PLACE(2, FIFO, 1, 10, 10, 6, 10)}, {{0}}};
    cr_assert_not(exact(&story, 2));
    story.places[0].waited = story.places[1].waited = true;
    cr_assert(exact(&story, 2));
}

Test(order, a_waiter_granted_twice_is_caught)
{
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 5, 100), PLACE(1, FIFO, 1, 10, 10, 6, 200)}, {{0}}};
    cr_assert_not(exact(&story, 2));
}

/* ---- the clients ---- */

static struct presence piece(unsigned sample, uint64_t from, uint64_t until)
{
    return (struct presence){.request = 1,
                             .place_us = 10,
                             .from_token = from,
                             .until_token = until,
                             .from_clock_us = (int64_t)from - 1,
                             .to_clock_us = (int64_t)until + 1,
                             .sample = sample,
                             .key = "k1"};
}

Test(presence, only_the_time_with_a_client_counts)
{
    const struct ask asks[] = {{.key = "k0", .sent_us = 0, .answered_us = 1000},
                               {.key = "k1", .status = 423, .sent_us = 100, .answered_us = 200},
                               {.key = "k1", .sent_us = 300, .answered_us = 400}};
    const struct presence pieces[] = {piece(3, 105, 150), piece(4, 150, 190), piece(5, 190, 310), piece(6, 310, 350)};
    struct order order = {.queues = queues, .queue_count = 3};
    for (size_t i = 4; i-- > 0;)
        order_add_presence(&order, &pieces[i]);
    order_limit(&order, asks, 3);
    cr_assert_eq(order.presence_count, 2);
    cr_assert_eq(order.presences[0].from_token, 105);
    cr_assert_eq(order.presences[0].until_token, 190);
    cr_assert_eq(order.presences[1].from_token, 310);
    order_release(&order);
}

/* The row may wait without a client: of another permitd, or after an answer that says nothing about it. */
Test(presence, only_a_client_of_the_permitd_of_the_row_counts)
{
    const struct ask asks[] = {{.key = "k1", .port = 1, .sent_us = 100, .answered_us = 200},
                               {.key = "k1", .port = 2, .sent_us = 300, .answered_us = 400},
                               {.key = "k1", .port = 1, .status = 503, .sent_us = 500, .answered_us = 600}};
    struct presence pieces[] = {piece(3, 105, 150), piece(5, 310, 350), piece(7, 510, 550)};
    struct order order = {.queues = queues, .queue_count = 3};
    for (size_t i = 0; i < 3; i++) {
        pieces[i].port = 1;
        order_add_presence(&order, &pieces[i]);
    }
    order_limit(&order, asks, 3);
    cr_assert_eq(order.presence_count, 1);
    cr_assert_eq(order.presences[0].from_token, 105);
    order_release(&order);
}

Test(presence, a_waiter_that_asked_once_was_there_until_its_grant)
{
    const struct ask asks[] = {
        {.key = "k1", .status = 201}, {.key = "k2", .status = 201}, {.key = "k2", .status = 200}};
    char message[MESSAGE_SIZE];
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, 6, 200), PLACE(2, FIFO, 1, 20, 20, 5, 100)}, {{0}}};
    struct order order = order_of(&story);
    order_add_whole(&order, asks, 3);
    cr_assert_eq(order.presence_count, 1);
    cr_assert_not(check_order(&order, NULL, message));
    order_release(&order);
}

static bool told(const struct ask *asks, size_t count, uint64_t token, bool served)
{
    char message[MESSAGE_SIZE] = "";
    struct queue_story story = {{PLACE(1, FIFO, 1, 10, 10, token, 100)}, {{0}}};
    struct order order = order_of(&story);
    bool good = check_told(&order, asks, count, LATE_US, served, message);
    cr_assert(good == !message[0], "a verdict and its message belong together: %s", message);
    order_release(&order);
    return good;
}

#define ASK(code, wait, from, to)                                                                                      \
    {                                                                                                                  \
        .key = "k1", .status = (code), .wait_us = (wait), .sent_us = (from), .answered_us = (to)                       \
    }

Test(answers, a_grant_or_a_refusal_after_the_wait_passes)
{
    const struct ask granted = ASK(201, 50, 0, 20), refused = ASK(423, 50, 0, 60);
    cr_assert(told(&granted, 1, 5, true));
    cr_assert(told(&refused, 1, 0, false));
}

Test(answers, a_waiter_without_an_answer_is_caught)
{
    struct ask ask = ASK(0, 50, 0, 20);
    cr_assert_not(told(&ask, 1, 0, false));
    cr_assert_not(told(&ask, 1, 5, false));
    ask.cut = true;
    cr_assert(told(&ask, 1, 5, false));
}

Test(answers, a_late_answer_is_caught)
{
    const struct ask ask = ASK(201, 50, 0, 50 + LATE_US + 1);
    cr_assert_not(told(&ask, 1, 5, false));
}

Test(answers, a_refusal_before_the_wait_is_over_is_caught)
{
    const struct ask ask = ASK(423, 50, 0, 49);
    cr_assert_not(told(&ask, 1, 0, false));
}

Test(answers, a_grant_after_a_refusal_is_caught)
{
    const struct ask asks[] = {ASK(423, 50, 0, 60), ASK(201, 50, 70, 80)};
    cr_assert_not(told(asks, 1, 5, false));
    cr_assert(told(asks, 2, 5, true));
}

Test(answers, a_grant_without_a_row_is_caught)
{
    const struct ask ask = ASK(201, 50, 0, 20);
    cr_assert_not(told(&ask, 1, 0, false));
}

Test(answers, a_key_that_is_not_served_at_last_is_caught)
{
    struct ask asks[] = {ASK(0, 50, 0, 10), ASK(503, 50, 20, 30)};
    asks[0].cut = true;
    cr_assert(told(asks, 2, 0, false));
    cr_assert_not(told(asks, 2, 0, true));
}
