/* SPDX-License-Identifier: MIT */
/* The feed: rows of batches, their numbers, the positions of readers, and what is deleted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/feed.h"

#define HOUR_US (3600LL * US_PER_SECOND)

static const struct database_address *address;
static struct fixture fixture;
static struct session *other;
static struct arena arena;

/* A database that this permitd serves, with the counted semaphore a, whose feed is `all`. */
static void feed_begin(void)
{
    address = fresh_database();
    fixture_open(&fixture, opened(address, STORE_WORKER));
    cr_assert_eq(fixture_advance_epoch(fixture.store, EPOCH_SERVER, 0, 1000), PERMIT_OK);
    other = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
    semaphore_make(&fixture, "a", KIND_COUNTED, 1000);
    must_run(other, "UPDATE semaphore SET feed=3");
}

static void feed_end(void)
{
    arena_release(&arena);
    session_free(other);
    fixture_close(&fixture);
}

TestSuite(feed, .init = feed_begin, .fini = feed_end, .timeout = 300);

static void acquires(const char *key)
{
    struct want want = {.semaphore = BYTES("a"), .count = 1};
    struct operation operation = acquire_of(key, &want, 1);
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
}

static void releases(const char *key)
{
    struct operation operation = {.kind = OP_RELEASE, .external_id = bytes_of(key)};
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
}

static size_t numbered(void)
{
    size_t count = 0;
    cr_assert_eq(fixture.store->feed->number(fixture.store, &arena, &count), PERMIT_OK, "%s", fixture.store->message);
    return count;
}

static struct feed_head head_of_feed(void)
{
    struct feed_head head;
    cr_assert_eq(fixture.store->feed->head(fixture.store, &head), PERMIT_OK, "%s", fixture.store->message);
    return head;
}

static struct feed_trim trimmed(int64_t retention_us, uint64_t rows)
{
    struct feed_trim trim = {.limits = {retention_us, rows}};
    cr_assert_eq(fixture.store->feed->trim(fixture.store, &trim), PERMIT_OK, "%s", fixture.store->message);
    return trim;
}

static struct feed_page page_after(uint64_t epoch, uint64_t seq)
{
    struct feed_page page = {.after = {epoch, seq}, .limit = 100};
    cr_assert_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_OK, "%s", fixture.store->message);
    return page;
}

static uint64_t epoch_now(void)
{
    return (uint64_t)number_of(other, "SELECT epoch FROM cluster");
}

/* Rows as batches would write them, without a number. */
static void rows_written(int count)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             "INSERT INTO feed (at,count,events)"
             " SELECT SYSDATE(6),1,'2 0 1:k0:0:7:a 1 1 \n0:' FROM held_bit x, held_bit y, held_bit z LIMIT %d",
             count);
    must_run(other, sql);
}

/* The same events, in one row. */
static void events_written(int count)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO feed (at,count,events) VALUES (SYSDATE(6),%d,REPEAT('2 0 1:k0:0:7:a 1 1 \n0:',%d))", count,
             count);
    must_run(other, sql);
}

/* ---- batches ---- */

Test(feed, batch_writes_its_events_after_all_else_and_in_its_transaction)
{
    sent_record();
    acquires("k");
    const char *sent = strstr(sent_text(), "INSERT INTO feed");
    cr_assert(sent);
    cr_expect(!strstr(sent + 1, "INSERT") && !strstr(sent, "UPDATE"), "%s", sent);
    cr_expect(strstr(sent, "COMMIT"), "%s", sent);
    cr_expect_eq(
        number_of(other,
                  "SELECT COUNT(*) FROM feed WHERE seq IS NULL AND events LIKE '2 0 1:k%7:a 1 1 \n0:' AND count=1"),
        1);
    releases("k");
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '5 1 1:k%'"), 1);
}

Test(feed, semaphore_without_feed_costs_no_statement_and_no_byte)
{
    sent_record();
    acquires("k0");
    cr_assert(strstr(sent_text(), "feed"));
    must_run(other, "UPDATE semaphore SET feed=1");
    sent_record();
    acquires("k1");
    const char *commit = strstr(sent_text(), "UPDATE semaphore");
    cr_assert(commit);
    cr_expect(!strstr(commit, "feed"), "%s", commit);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed"), 1);
}

/* A row that an older permitd has written says 1. */
Test(feed, metadata_is_looked_up_only_if_the_row_says_so)
{
    sent_record();
    acquires("k");
    releases("k");
    cr_expect(!strstr(sent_text(), "request_metadata"), "%s", sent_text());
    acquires("old");
    must_run(other, "INSERT INTO request_metadata SELECT id,'{}' FROM permit_request WHERE external_id='old';"
                    "UPDATE permit_request SET has_metadata=DEFAULT WHERE external_id='old'");
    releases("old");
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '5 1 3:old%\n2:{}'"), 1);
}

Test(feed, batch_that_does_not_commit_leaves_no_event)
{
    struct want want = {.semaphore = BYTES("a"), .count = 1};
    struct operation operation = acquire_of("k", &want, 1);
    cr_assert_eq(batch_decide(&fixture, &operation)->status, PERMIT_OK);
    cr_assert_eq(fixture.plan.changes.feed_count, 1);
    fixture.plan.changes.semaphores[0].expected_version++; /* so that the packet stops before COMMIT */
    fixture.plan.changes.semaphores[0].semaphore->version++;
    cr_assert_neq(fixture.store->batch->commit(fixture.store, &fixture.plan.changes), PERMIT_OK);
    cr_assert_eq(fixture.store->batch->rollback(fixture.store), PERMIT_OK);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed"), 0);
}

/* ---- numbers ---- */

Test(feed, numbers_have_no_gaps_and_the_order_of_ids)
{
    must_run(other, "ALTER TABLE feed AUTO_INCREMENT=100");
    acquires("k1");
    must_run(other, "ALTER TABLE feed AUTO_INCREMENT=200");
    acquires("k2");
    cr_expect(head_of_feed().pending);
    cr_expect_eq(page_after(epoch_now(), 0).ret_count, 0, "a reader sees numbered events only");
    cr_assert_eq(numbered(), 2);
    cr_assert_eq(numbered(), 0);
    releases("k1");
    cr_assert_eq(numbered(), 1);
    cr_expect_eq(head_of_feed().durable, 3);
    cr_expect_not(head_of_feed().pending);
    cr_expect_str_eq(text_of(other, "SELECT GROUP_CONCAT(SUBSTR(events,1,8) ORDER BY seq) FROM feed"),
                     "2 0 2:k1,2 0 2:k2,5 1 2:k1");
    cr_expect_eq(number_of(other, "SELECT MAX(seq) FROM feed"), 3);
}

Test(feed, one_step_numbers_a_bounded_number_of_rows)
{
    rows_written(FEED_ROWS_A_STEP + 7);
    cr_assert_eq(numbered(), FEED_ROWS_A_STEP);
    cr_assert_eq(numbered(), 7);
    cr_expect_eq(number_of(other, "SELECT COUNT(DISTINCT seq)*1000000+MAX(seq) FROM feed"),
                 (FEED_ROWS_A_STEP + 7) * 1000001LL);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed x JOIN feed y ON y.seq=x.seq+1 AND y.id<x.id"), 0);
}

/* A row with a smaller id that commits later gets a later number: its batch had other semaphores. */
Test(feed, row_that_is_not_committed_is_passed_over_without_waiting)
{
    must_run(other, "BEGIN");
    rows_written(1);
    acquires("k");
    cr_assert_eq(numbered(), 1);
    must_run(other, "COMMIT");
    cr_assert_eq(numbered(), 1);
    cr_expect_str_eq(text_of(other, "SELECT GROUP_CONCAT(seq,'/',events LIKE '2 0 1:k%' ORDER BY id) FROM feed"),
                     "2/1,1/1");
}

Test(feed, another_server_is_not_numbered_before_the_epoch_rises)
{
    acquires("k");
    must_run(other, "UPDATE cluster SET identity='another'");
    cr_assert_eq(numbered(), 0);
    cr_expect(head_of_feed().pending);
    cr_assert_eq(fixture_advance_epoch(fixture.store, EPOCH_SERVER, 0, 1000), PERMIT_OK);
    cr_assert_eq(numbered(), 1);
}

Test(feed, two_that_number_give_no_number_twice)
{
    struct store *second = opened(address, STORE_WORKER);
    size_t count = 0;
    rows_written(3);
    must_run(other, "BEGIN; SELECT * FROM feed_head FOR UPDATE");
    cr_assert_eq(second->feed->number(second, &arena, &count), PERMIT_LOCK_TIMEOUT, "it waits for the head");
    must_run(other, "COMMIT");
    cr_assert_eq(second->feed->number(second, &arena, &count), PERMIT_OK, "%s", second->message);
    cr_assert_eq(count, 3);
    cr_assert_eq(numbered(), 0);
    store_free(second);
}

/* A batch's events are in few rows. Their numbers go on through the rows. */
Test(feed, row_has_many_events_and_each_its_number)
{
    events_written(3);
    events_written(64);
    cr_assert_eq(numbered(), 67);
    cr_expect_str_eq(text_of(other, "SELECT GROUP_CONCAT(seq,'/',count ORDER BY id) FROM feed"), "1/3,4/64");
    cr_expect_eq(head_of_feed().durable, 67);
}

Test(feed, batch_writes_rows_of_at_most_64_events)
{
    enum { EVENTS = 130 };
    struct feed_event events[EVENTS];
    struct want want = {.semaphore = BYTES("a"), .count = 1};
    struct operation operation = acquire_of("k", &want, 1);
    char keys[EVENTS][8];
    cr_assert_eq(batch_decide(&fixture, &operation)->status, PERMIT_OK);
    for (int i = 0; i < EVENTS; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        events[i] = fixture.plan.changes.feed[0];
        events[i].external_id = bytes_of(keys[i]);
    }
    fixture.plan.changes.feed = events;
    fixture.plan.changes.feed_count = EVENTS;
    cr_assert_eq(fixture.store->batch->commit(fixture.store, &fixture.plan.changes), PERMIT_OK, "%s",
                 fixture.store->message);
    cr_expect_str_eq(text_of(other, "SELECT GROUP_CONCAT(count ORDER BY id) FROM feed"), "64,64,2");
    cr_assert_eq(numbered(), EVENTS);
    struct feed_page page = {.from_oldest = true, .limit = EVENTS};
    cr_assert_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_OK);
    cr_assert_eq(page.ret_count, EVENTS);
    for (int i = 0; i < EVENTS; i++)
        cr_expect(bytes_equal(page.ret_rows[i].external_id, bytes_of(keys[i])));
}

/* ---- durable numbers ---- */

Test(feed, numbers_are_shown_after_their_commit)
{
    acquires("k");
    sent_record();
    cr_assert_eq(numbered(), 1);
    const char *commit = strstr(sent_text(), "COMMIT");
    cr_assert(commit);
    cr_expect(strstr(commit, "SET durable=GREATEST(durable,1)"), "%s", sent_text());
    cr_expect(!strstr(sent_text(), "flushes"), "the numbers are a write");
}

/* As a permitd leaves it that dies after its COMMIT. */
Test(feed, numbers_of_a_task_that_did_not_show_them_are_flushed_and_shown)
{
    rows_written(3);
    cr_assert_eq(numbered(), 3);
    must_run(other, "UPDATE feed_head SET durable=1");
    cr_expect_eq(page_after(epoch_now(), 0).ret_count, 1);
    struct feed_page page = page_after(epoch_now(), 2);
    cr_expect(page.ret_verdict == FEED_KNOWN && page.ret_count == 0 && page.ret_next.seq == 2);
    cr_expect(head_of_feed().pending);
    sent_record();
    cr_assert_eq(numbered(), 0);
    const char *write = strstr(sent_text(), "UPDATE feed_head SET flushes=flushes+1");
    cr_expect(write && strstr(write, "COMMIT;UPDATE feed_head SET durable"), "%s", sent_text());
    cr_expect(head_of_feed().durable == 3 && !head_of_feed().pending);
    cr_expect_eq(page_after(epoch_now(), 2).ret_count, 1);
    sent_record();
    cr_assert_eq(numbered(), 0);
    cr_expect(!strstr(sent_text(), "COMMIT"), "%s", sent_text());
}

Test(feed, later_numbers_that_are_shown_stay_so)
{
    rows_written(1);
    must_run(other, "UPDATE feed_head SET durable=5");
    cr_assert_eq(numbered(), 1);
    cr_expect_eq(head_of_feed().durable, 5);
}

/* ---- readers ---- */

/* Pages begin and end within rows. */
Test(feed, pages_have_each_event_once)
{
    events_written(3);
    events_written(1);
    events_written(64);
    events_written(5);
    cr_assert_eq(numbered(), 73);
    for (unsigned limit = 1; limit < 75; limit += 6) {
        uint64_t seq = 0;
        struct feed_page page;
        do {
            page = (struct feed_page){.after = {epoch_now(), seq}, .limit = limit};
            cr_assert_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_OK);
            cr_assert_eq(page.ret_verdict, FEED_KNOWN);
            cr_assert_eq(page.ret_count, seq + limit < 73 ? limit : 73 - seq);
            for (size_t i = 0; i < page.ret_count; i++)
                cr_assert_eq(page.ret_rows[i].seq, ++seq);
            cr_assert_eq(page.ret_next.seq, seq);
        } while (page.ret_count);
        cr_assert_eq(seq, 73);
        arena_clear(&arena);
    }
}

Test(feed, oldest_row_is_read_from_its_first_event_on)
{
    events_written(40);
    events_written(40);
    cr_assert_eq(numbered(), 80);
    must_run(other, "DELETE FROM feed WHERE seq=1");
    struct feed_page page = {.from_oldest = true, .limit = 7};
    cr_assert_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_OK);
    cr_assert_eq(page.ret_count, 7);
    cr_expect_eq(page.ret_rows[0].seq, 41);
    page = page_after(epoch_now(), 10);
    cr_expect_eq(page.ret_verdict, FEED_GONE);
    cr_expect_eq(page.ret_next.seq, 40);
    cr_expect_eq(page_after(epoch_now(), 40).ret_count, 40);
}

Test(feed, row_that_is_no_text_of_events_is_an_error)
{
    static const char *const texts[] = {"", "2 0 1:k0:0:7:a 1 1 0:", "2 0 1:k0:0:0:", "2 x 1:k0:0:0:0:"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "UPDATE feed_head SET seq=1,durable=1; DELETE FROM feed; INSERT INTO feed (seq,at,count,events) "
                 "VALUES (1,SYSDATE(6),1,'%s')",
                 texts[i]);
        must_run(other, sql);
        struct feed_page page = {.from_oldest = true, .limit = 7};
        cr_expect_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_INTERNAL, "%s", texts[i]);
    }
}

Test(feed, reader_goes_on_where_it_was)
{
    acquires("k1");
    acquires("k2");
    cr_assert_eq(numbered(), 2);
    uint64_t epoch = epoch_now();
    struct feed_page page = page_after(epoch, 0);
    cr_assert_eq(page.ret_verdict, FEED_KNOWN);
    cr_assert_eq(page.ret_count, 2);
    cr_expect_eq(page.ret_rows[0].seq, 1);
    cr_expect(bytes_equal(page.ret_rows[1].external_id, BYTES("k2")));
    cr_expect_eq(page.ret_next.seq, 2);
    cr_expect_eq(page.ret_next.epoch, epoch);
    page = page_after(epoch, 2);
    cr_expect_eq(page.ret_verdict, FEED_KNOWN);
    cr_expect_eq(page.ret_count, 0);
    cr_expect_eq(page.ret_next.seq, 2);
    page = (struct feed_page){.from_oldest = true, .limit = 1};
    cr_assert_eq(fixture.store->feed->read(fixture.store, &page, &arena), PERMIT_OK);
    cr_expect_eq(page.ret_count, 1);
    cr_expect_eq(page.ret_next.seq, 1);
}

Test(feed, position_before_the_oldest_event_is_gone)
{
    rows_written(10);
    cr_assert_eq(numbered(), 10);
    must_run(other, "DELETE FROM feed WHERE seq<=4");
    struct feed_page page = page_after(epoch_now(), 2);
    cr_expect_eq(page.ret_verdict, FEED_GONE);
    cr_expect_eq(page.ret_next.seq, 4);
    cr_expect_eq(page_after(epoch_now(), 4).ret_count, 6);
    must_run(other, "DELETE FROM feed");
    page = page_after(epoch_now(), 4);
    cr_expect_eq(page.ret_verdict, FEED_GONE);
    cr_expect_eq(page.ret_next.seq, 10);
}

/* A promoted replica lacks the last events: their numbers are given again. */
Test(feed, position_in_a_lost_tail_is_lost_and_one_before_it_is_not)
{
    rows_written(10);
    cr_assert_eq(numbered(), 10);
    uint64_t before = epoch_now();
    must_run(
        other,
        "DELETE FROM feed WHERE seq>6; UPDATE feed_head SET seq=6,durable=6; UPDATE cluster SET identity='another'");
    struct feed_page page = page_after(before, 9);
    cr_expect_eq(page.ret_verdict, FEED_LOST, "before the epoch has risen");
    cr_expect_eq(page.ret_next.seq, 6);
    cr_assert_eq(fixture_advance_epoch(fixture.store, EPOCH_SERVER, 0, 1000), PERMIT_OK);
    rows_written(10);
    cr_assert_eq(numbered(), 10);
    page = page_after(before, 9);
    cr_expect_eq(page.ret_verdict, FEED_LOST, "another event has that number now");
    cr_expect_eq(page.ret_next.seq, 6);
    cr_expect_eq(page.ret_next.epoch, epoch_now());
    cr_expect_eq(page_after(before, 6).ret_verdict, FEED_KNOWN);
    cr_expect_eq(page_after(before, 6).ret_count, 10);
    cr_expect_eq(page_after(epoch_now(), 9).ret_verdict, FEED_KNOWN);
}

/* ---- what is kept ---- */

Test(feed, old_events_are_deleted_and_the_others_kept)
{
    rows_written(10);
    cr_assert_eq(numbered(), 10);
    rows_written(1);
    must_run(other, "UPDATE feed SET at=at-INTERVAL 2 HOUR WHERE seq<=4 OR seq IS NULL");
    struct feed_trim trim = trimmed(HOUR_US, 1000);
    cr_expect_eq(trim.ret_deleted, 4);
    cr_expect_not(trim.ret_early);
    cr_expect_eq(trim.ret_stored, 7);
    cr_expect_eq(number_of(other, "SELECT MIN(seq)*100+COUNT(*) FROM feed"), 507, "one has no number yet");
    cr_expect_eq(trimmed(HOUR_US, 1000).ret_deleted, 0);
}

Test(feed, oldest_events_beyond_the_limit_are_deleted_in_bounded_steps)
{
    rows_written(FEED_DELETED + 100);
    while (numbered() == FEED_ROWS_A_STEP)
        ;
    struct feed_trim trim = trimmed(HOUR_US, 50);
    cr_expect_eq(trim.ret_deleted, FEED_DELETED);
    cr_expect(trim.ret_early);
    trim = trimmed(HOUR_US, 50);
    cr_expect_eq(trim.ret_deleted, 50);
    cr_expect_eq(number_of(other, "SELECT COUNT(seq) FROM feed"), 50);
    cr_expect_eq(number_of(other, "SELECT MAX(seq) FROM feed"), FEED_DELETED + 100);
}

Test(feed, row_goes_when_all_its_events_go)
{
    events_written(10);
    events_written(10);
    events_written(10);
    cr_assert_eq(numbered(), 30);
    struct feed_trim trim = trimmed(HOUR_US, 15);
    cr_expect_eq(trim.ret_deleted, 10);
    cr_expect_eq(trim.ret_stored, 20);
    cr_expect_eq(number_of(other, "SELECT MIN(seq) FROM feed"), 11);
    must_run(other, "UPDATE feed SET at=at-INTERVAL 2 HOUR");
    cr_expect_eq(trimmed(HOUR_US, 1000).ret_deleted, 20);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed"), 0);
    cr_expect_eq(page_after(epoch_now(), 30).ret_verdict, FEED_KNOWN);
}

/* Rows without a number cannot be deleted, so they are what fills the feed. */
Test(feed, full_feed_is_closed_and_opened_between_two_gaps)
{
    rows_written(20);
    cr_expect(trimmed(HOUR_US, 10).ret_full);
    cr_expect(head_of_feed().full);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '6 %'"), 1);
    cr_expect(trimmed(HOUR_US, 10).ret_full, "it is written once");
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '6 %'"), 1);
    cr_assert_eq(numbered(), 21);
    cr_expect_not(trimmed(HOUR_US, 10).ret_full);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '6 %'"), 2);
    cr_expect_not(trimmed(HOUR_US, 10).ret_full);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '6 %'"), 2);
}

static enum permit_status commits_without_events(const char *key)
{
    struct want want = {.semaphore = BYTES("a"), .count = 1};
    struct operation operation = acquire_of(key, &want, 1);
    cr_assert_eq(batch_decide(&fixture, &operation)->status, PERMIT_OK);
    fixture.plan.changes.feed_count = 0;
    fixture.plan.changes.feed_omitted = true;
    return fixture.store->batch->commit(fixture.store, &fixture.plan.changes);
}

Test(feed, batch_that_leaves_events_out_proves_that_the_feed_is_full)
{
    must_run(other, "UPDATE feed_full SET full=1");
    cr_expect_eq(commits_without_events("k1"), PERMIT_OK, "%s", fixture.store->message);
    must_run(other, "UPDATE feed_full SET full=0");
    cr_expect_eq(commits_without_events("k2"), PERMIT_CONFLICT, "%s", fixture.store->message);
    cr_assert_eq(fixture.store->batch->rollback(fixture.store), PERMIT_OK);
    acquires("k2");
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed"), 1);
}

/* Such a batch has locked feed_full from its last statement on; a permitd that is stopped then is killed by the server. */
Test(feed, second_gap_waits_for_a_batch_that_leaves_events_out)
{
    struct feed_trim trim = {.limits = {HOUR_US, 10}};
    rows_written(20);
    cr_expect(trimmed(HOUR_US, 10).ret_full);
    must_run(other, "BEGIN; SELECT full FROM feed_full WHERE id=1 LOCK IN SHARE MODE");
    cr_assert_eq(numbered(), 21, "the numbering does not wait");
    cr_expect_eq(fixture.store->feed->trim(fixture.store, &trim), PERMIT_LOCK_TIMEOUT);
    cr_expect(head_of_feed().full);
    must_run(other, "COMMIT");
    cr_expect_not(trimmed(HOUR_US, 10).ret_full);
    cr_expect_eq(number_of(other, "SELECT COUNT(*) FROM feed WHERE events LIKE '6 %'"), 2);
}
