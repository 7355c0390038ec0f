/* SPDX-License-Identifier: MIT */
/* The events of the feed: those of a batch, as transcripts (core_plan_scene.h), and their permits as stored. */
#include <criterion/criterion.h>

#include "core_plan_scene.h"

TestSuite(plan_feed, .init = scene_queue, .fini = scene_release);
TestSuite(plan_feed_hall, .init = scene_hall, .fini = scene_release);

Test(plan_feed, semaphore_without_feed_has_no_events)
{
    given("a capacity=2; k1 holds a");
    batch("acquire k2 a; renew k1; confirm k1", "granted; ok; ok", "+k2 ACQUIRED; k1 ACQUIRED");
}

Test(plan_feed, all_tells_every_step_in_order)
{
    given("a capacity=3 all; k1 holds a acquired=-9s");
    batch("acquire k2 a; renew k1; confirm k1; acquire k3 a:2 wait", "granted; ok; ok; no_capacity a waits",
          "+k2 ACQUIRED; +k3 WAITING server=1; k1 ACQUIRED; k3 enters a; feed renewed k1 a:1/1; "
          "feed confirmed k1 a:1/1; feed waiting k3 a:2/0; feed acquired k2 a:1/1");
}

Test(plan_feed, sales_tells_a_sale_and_its_end_and_no_hold)
{
    given("a capacity=3 sales; k1 holds a acquired=-9s; k2 holds a acquired=-9s confirmed; k3 holds a acquired=-9s");
    batch("confirm k1; force_release k2; release k3; acquire k4 a", "ok; ok; ok; granted",
          "+k4 ACQUIRED; k1 ACQUIRED; k2 RELEASED; k3 RELEASED; event forced>; feed confirmed k1 a:1/1; "
          "feed ended k2 forced a:1/1");
}

Test(plan_feed, sale_that_ends_in_its_own_batch_has_both_events)
{
    given("a capacity=3 sales");
    batch("acquire k1 a; confirm k1; force_release k1", "granted; ok; ok",
          "+k1 RELEASED; event forced>; feed confirmed k1 a:1/1; feed ended k1 forced a:1/1");
}

Test(plan_feed, errand_is_told_when_it_is_settled)
{
    given("a sales; b sales; k1 holds a acquired=-9s due=0s confirmed errand=1 mine; "
          "k2 holds b acquired=-9s confirmed errand=3 mine");
    batch("settle k1; settle k2", "ok; ok",
          "k1 ACQUIRED; k2 RELEASED; feed confirmed k1 a:1/1; feed confirmed k2 b:1/1; feed ended k2 released b:1/1");
}

Test(plan_feed, errand_that_is_not_settled_is_not_told)
{
    given("a capacity=2 all; k1 holds a acquired=-9s due=0s confirmed errand=1 locked");
    batch("settle k1; acquire k2 a", "in_transaction; granted", "+k2 ACQUIRED; feed acquired k2 a:1/1");
}

/* The end comes first, so that a reader never counts more units than there are. */
Test(plan_feed, ends_come_before_the_grants_of_their_units)
{
    given("a all; k1 holds a acquired=-9s; k2 waits a");
    batch("release k1", "ok",
          "k1 RELEASED; k2 granted; k2 leaves a; feed ended k1 released a:1/1; feed acquired k2 a:1/1; tell k2");
}

Test(plan_feed, grants_of_a_batch_are_in_their_order_each_with_its_end)
{
    given("a all");
    batch("acquire z a; release z; acquire k a", "granted; ok; granted",
          "+k ACQUIRED; +z RELEASED; feed acquired z a:1/1; feed ended z released a:1/1; feed acquired k a:1/2");
}

Test(plan_feed, place_that_is_given_up_ends_as_never_held)
{
    given("a all; k1 holds a acquired=-9s; k2 waits a kept due=0s; k3 waits a");
    batch("expire k2; release k3", "ok; ok",
          "-k2; k3 RELEASED; k2 leaves a; k3 leaves a; feed ended k2 never_held a:1/0; feed ended k3 never_held a:1/0; "
          "call k3");
}

Test(plan_feed, event_has_the_permits_of_semaphores_in_the_feed_only)
{
    given("a all; b sales; k1 holds a b acquired=-9s");
    batch("renew k1; confirm k1", "ok; ok", "k1 ACQUIRED; feed renewed k1 a:1/1; feed confirmed k1 a:1/1 b:1/1");
}

Test(plan_feed, replays_refusals_and_tombstones_are_not_told)
{
    given("a all; k1 holds a acquired=-9s");
    batch("acquire k1 a; acquire k2 a; release k3", "replayed; no_capacity a; ok", "+k3 RELEASED; k1 ACQUIRED");
}

Test(plan_feed, full_feed_gets_no_events)
{
    scene.feed_full = true;
    given("a all");
    batch("acquire k1 a", "granted", "+k1 ACQUIRED; feed omitted");
}

Test(plan_feed_hall, slots_are_told)
{
    given("hall all");
    batch("acquire k1 hall@2,3,4", "granted 2 3 4", "+k1 ACQUIRED; feed acquired k1 hall:3/57@2-4");
}

/* ---- as stored ---- */

Test(feed, permits_are_read_as_they_were_written)
{
    uint32_t numbers[] = {1, 2, 3, 7};
    const struct feed_permit permits[] = {
        {BYTES("hall"), 4, 9007199254740991, {numbers, ARRAY_LENGTH(numbers)}},
        {BYTES("a"), COUNTED_MAX_CAPACITY, 0, {NULL, 0}},
    };
    struct buf text;
    struct arena arena;
    struct feed_permit *read;
    size_t count;
    buf_init(&text, 1000);
    arena_init(&arena, 4096, 1 << 20);
    feed_permits_format(permits, ARRAY_LENGTH(permits), &text);
    cr_assert_str_eq(buf_text(&text), "hall 4 9007199254740991 1-3,7\na 9007199254740991 0 \n");
    cr_assert(feed_permits_parse((struct bytes){text.data, text.length}, &arena, &read, &count));
    cr_assert_eq(count, 2);
    cr_expect(bytes_equal(read[0].semaphore, BYTES("hall")));
    cr_expect_eq(read[0].count, 4);
    cr_expect_eq(read[0].token, 9007199254740991);
    cr_expect_eq(read[0].slots.count, 4);
    cr_expect_eq(read[0].slots.numbers[3], 7);
    cr_expect_eq(read[1].slots.count, 0);
    cr_expect(feed_permits_parse((struct bytes){NULL, 0}, &arena, &read, &count));
    cr_expect_eq(count, 0, "a gap");
    arena_release(&arena);
    buf_release(&text);
}

Test(feed, malformed_permits_are_refused)
{
    static const char *const texts[] = {"a 1 1",     "a 1 1 ", "a 1 \n",    "a x 1 \n", "a 1 1 2-1\n",
                                        "a 1 1 0\n", "\n",     "a 1 1 \nb", "a  1 \n",  "a 99999999999999999999 1 \n"};
    struct arena arena;
    struct feed_permit *read;
    size_t count;
    arena_init(&arena, 4096, 1 << 20);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
        cr_expect_not(feed_permits_parse(bytes_of(texts[i]), &arena, &read, &count), "%s", texts[i]);
    arena_release(&arena);
}

/* ---- positions ---- */

Test(feed, positions_are_read_as_they_are_written)
{
    static const char *const bad[] = {"",
                                      "-",
                                      "1",
                                      "1-",
                                      "-1",
                                      "01-1",
                                      "1-01",
                                      "1-1-1",
                                      "1-1 ",
                                      "+1-1",
                                      "9223372036854775808-1",
                                      "1-99999999999999999999",
                                      "1_1"};
    struct feed_position position;
    cr_assert(feed_position_parse(BYTES("28339200000-9007199254740993"), &position));
    cr_expect_eq(position.epoch, 28339200000);
    cr_expect_eq(position.seq, 9007199254740993);
    cr_expect(feed_position_parse(BYTES("0-0"), &position));
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect_not(feed_position_parse(bytes_of(bad[i]), &position), "%s", bad[i]);
}

/* ---- events as stored ---- */

Test(feed, events_are_read_as_they_were_written)
{
    const struct feed_permit permits[] = {{.semaphore = BYTES("a"), .count = 2, .token = 7},
                                          {.semaphore = BYTES("b"), .count = 1, .token = 8}};
    const struct feed_event first = {.what = FEED_ENDED,
                                     .end_reason = END_EXPIRED,
                                     .external_id = BYTES("9:k 1"),
                                     .owner = BYTES("o"),
                                     .principal = BYTES("p:"),
                                     .permits = permits,
                                     .permit_count = 2};
    struct buf text;
    struct feed_row row;
    buf_init(&text, 1000);
    feed_event_format(&first, &text);
    buf_append_text(&text, "2:{}");
    feed_event_format(&(struct feed_event){.what = FEED_GAP}, &text);
    buf_append_text(&text, FEED_NO_METADATA);
    struct bytes rest = {text.data, text.length};
    cr_assert(feed_event_take(&rest, &row));
    cr_expect(row.what == FEED_ENDED && row.end_reason == END_EXPIRED);
    cr_expect(bytes_equal(row.external_id, BYTES("9:k 1")));
    cr_expect(bytes_equal(row.owner, BYTES("o")));
    cr_expect(bytes_equal(row.principal, BYTES("p:")));
    cr_expect(bytes_equal(row.permits, BYTES("a 2 7 \nb 1 8 \n")));
    cr_expect(bytes_equal(row.metadata, BYTES("{}")));
    cr_assert(feed_event_take(&rest, &row));
    cr_expect(!row.metadata.data);
    cr_expect(row.what == FEED_GAP && row.external_id.length == 0 && row.permits.length == 0);
    cr_expect_eq(rest.length, 0);
    for (size_t length = 0; length < text.length; length++) { /* a text that was cut */
        struct bytes cut = {text.data, length};
        cr_expect(!feed_event_take(&cut, &row) || !feed_event_take(&cut, &row), "%zu", length);
    }
    buf_release(&text);
}

static enum feed_verdict judged(uint64_t epoch, uint64_t seq, struct feed_facts facts, struct feed_position *ret_go_on)
{
    return feed_judge((struct feed_position){epoch, seq}, &facts, ret_go_on);
}

Test(feed, position_is_known_if_the_next_number_is_there_or_none_is)
{
    struct feed_position go_on;
    cr_expect_eq(judged(7, 3, (struct feed_facts){7, 9, 9, UINT64_MAX, 4}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(7, 9, (struct feed_facts){7, 9, 9, UINT64_MAX, 0}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(7, 3, (struct feed_facts){7, 9, 9, UINT64_MAX, 5}, &go_on), FEED_GONE);
    cr_expect_eq(go_on.seq, 4);
    cr_expect_eq(judged(7, 3, (struct feed_facts){7, 9, 9, UINT64_MAX, 0}, &go_on), FEED_GONE);
    cr_expect_eq(go_on.seq, 9);
}

/* After a crash `durable` may be below the position of a reader. */
Test(feed, position_up_to_the_head_is_known_if_no_later_number_is_shown)
{
    struct feed_position go_on;
    cr_expect_eq(judged(7, 6, (struct feed_facts){7, 9, 6, UINT64_MAX, 0}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(7, 8, (struct feed_facts){7, 9, 6, UINT64_MAX, 0}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(7, 4, (struct feed_facts){7, 9, 6, UINT64_MAX, 0}, &go_on), FEED_GONE);
    cr_expect_eq(go_on.seq, 6);
}

Test(feed, position_beyond_a_head_of_a_later_epoch_is_lost)
{
    struct feed_position go_on;
    cr_expect_eq(judged(7, 6, (struct feed_facts){8, 9, 9, 6, 7}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(7, 7, (struct feed_facts){8, 9, 9, 6, 8}, &go_on), FEED_LOST);
    cr_expect(go_on.epoch == 8 && go_on.seq == 6);
    cr_expect_eq(judged(8, 7, (struct feed_facts){8, 9, 9, UINT64_MAX, 8}, &go_on), FEED_KNOWN);
    cr_expect_eq(judged(8, 10, (struct feed_facts){8, 9, 9, UINT64_MAX, 0}, &go_on), FEED_LOST, "beyond the head");
    cr_expect_eq(go_on.seq, 9);
    cr_expect_eq(judged(9, 3, (struct feed_facts){8, 9, 9, UINT64_MAX, 4}, &go_on), FEED_LOST, "an older copy");
    cr_expect_eq(go_on.seq, 3);
}
