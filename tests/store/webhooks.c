/* SPDX-License-Identifier: MIT */
/* Webhooks: the rows of URLs that changes name, their positions and claims. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "core/scope.h"
#include "fixture.h"
#include "store/templates.h"
#include "store/webhooks.h"

enum { ME = 7, OTHER = 8 };
#define URL  "http://a/1"
#define SOON (1000 * (utc_us)US_PER_SECOND)

static const struct database_address *address;
static struct fixture fixture;
static struct store *store;
static struct session *other;
static struct arena arena;

/* A database that this permitd serves, whose feed has 40 numbers, with the semaphore a, which names URL. */
static void webhooks_begin(void)
{
    address = fresh_database();
    fixture_open(&fixture, opened(address, STORE_WORKER));
    store = fixture.store;
    cr_assert_eq(fixture_advance_epoch(store, EPOCH_SERVER, 0, 1000), PERMIT_OK);
    other = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(other, "UPDATE feed_head SET seq=40,durable=40");
    semaphore_make(&fixture, "a", KIND_COUNTED, 1000);
}

static void webhooks_end(void)
{
    arena_release(&arena);
    session_free(other);
    fixture_close(&fixture);
}

TestSuite(webhooks, .init = webhooks_begin, .fini = webhooks_end, .timeout = 300);

static void puts_url(const char *semaphore, const char *url)
{
    struct semaphore_change change = {.has_feed_url = true, .feed_url = bytes_of(url)};
    struct operation operation = {.kind = OP_SEMAPHORE_PUT, .semaphore = bytes_of(semaphore), .change = &change};
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
}

static struct webhook_list list_of(void)
{
    struct webhook_list list = {.ret_count = 0};
    cr_assert_eq(store->webhooks->read(store, &arena, &list), PERMIT_OK, "%s", store->message);
    return list;
}

static struct webhook_row row_of(const char *url)
{
    struct webhook_list list = list_of();
    for (size_t i = 0; i < list.ret_count; i++)
        if (bytes_equal(list.ret_rows[i].url, bytes_of(url)))
            return list.ret_rows[i];
    cr_assert(false, "no row of %s", url);
    return (struct webhook_row){0};
}

static bool claims(const struct webhook_row *row, uint64_t server_id, utc_us now, utc_us until)
{
    bool won = false;
    cr_assert_eq(store->webhooks->claim(store, row, server_id, now, until, &won), PERMIT_OK, "%s", store->message);
    return won;
}

static void settles(const struct webhook_row *row, uint64_t server_id, uint64_t seq, unsigned status, const char *error)
{
    const struct webhook_result result = {
        .position = {row->position.epoch, seq}, .status = status, .error = bytes_of(error), .retry_at = SOON};
    cr_assert_eq(store->webhooks->settle(store, row, server_id, &result), PERMIT_OK, "%s", store->message);
}

/* ---- rows ---- */

Test(webhooks, change_that_names_a_url_makes_its_row_at_the_end_of_the_feed)
{
    puts_url("a", URL);
    struct webhook_row row = row_of(URL);
    cr_expect_eq(row.position.seq, 40);
    cr_expect_eq(row.position.epoch, number_of(other, "SELECT epoch FROM cluster"));
    cr_expect(row.namings == 1 && row.server_id == 0 && row.claimed_until == NEVER && row.retry_at == NEVER);
    cr_expect(row.status == 0 && row.error.length == 0 && row.called_at == NEVER && row.failing_since == NEVER);
    /* Another one that names it leaves the position. */
    must_run(other, "UPDATE feed_head SET seq=50,durable=50");
    semaphore_make(&fixture, "b", KIND_COUNTED, 1000);
    puts_url("b", URL);
    row = row_of(URL);
    cr_expect(row.position.seq == 40 && row.namings == 2);
    cr_expect_eq(list_of().ret_head, 50);
}

Test(webhooks, template_that_names_a_url_makes_its_row)
{
    struct template_change put = {
        .prefix = BYTES("t:"),
        .change = {.has_capacity = true, .capacity = 1, .has_feed_url = true, .feed_url = BYTES(URL)},
        .default_ttl_ms = 1000};
    cr_assert_eq(store->templates->put(store, &put, &arena), PERMIT_OK, "%s", store->message);
    cr_expect_eq(row_of(URL).position.seq, 40);
    cr_expect(bytes_equal(put.ret_template.settings.feed_url, BYTES(URL)));
}

Test(webhooks, semaphore_without_a_url_costs_no_statement)
{
    struct semaphore_change change = {.has_note = true, .note = BYTES("x")};
    struct operation operation = {.kind = OP_SEMAPHORE_PUT, .semaphore = BYTES("a"), .change = &change};
    sent_record();
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
    cr_expect(!strstr(sent_text(), "webhook"), "%s", sent_text());
    cr_expect_eq(list_of().ret_count, 0);
}

Test(webhooks, names_are_matched_with_the_urls_they_name_now)
{
    const struct bytes names[] = {BYTES("b"), BYTES("a"), BYTES("c"), BYTES("a")};
    struct bytes urls[4];
    semaphore_make(&fixture, "b", KIND_COUNTED, 1);
    puts_url("a", URL);
    cr_assert_eq(store->webhooks->urls(store, names, 4, &arena, urls), PERMIT_OK);
    cr_expect(!urls[0].data && !urls[2].data);
    cr_expect(bytes_equal(urls[1], BYTES(URL)) && bytes_equal(urls[3], BYTES(URL)));
    puts_url("a", "http://a/2");
    cr_assert_eq(store->webhooks->urls(store, names, 4, &arena, urls), PERMIT_OK);
    cr_expect(bytes_equal(urls[1], BYTES("http://a/2")));
    cr_assert_eq(store->webhooks->urls(store, names, 0, &arena, urls), PERMIT_OK);
}

Test(webhooks, at_most_100_rows_are_read)
{
    for (int i = 0; i < WEBHOOKS_MAX; i++) {
        char url[40];
        snprintf(url, sizeof url, "http://a/%03d", i);
        puts_url("a", url);
    }
    cr_expect(list_of().ret_count == WEBHOOKS_MAX && !list_of().ret_more);
    puts_url("a", "http://b");
    cr_expect(list_of().ret_count == WEBHOOKS_MAX && list_of().ret_more);
}

/* Such as those of another tenant, whose URLs come first in the alphabet. */
Test(webhooks, one_that_was_called_is_not_left_out_for_newer_ones)
{
    puts_url("a", URL);
    struct webhook_row row = row_of(URL);
    cr_assert(claims(&row, ME, 100, 200));
    settles(&row, ME, 45, 200, "");
    semaphore_make(&fixture, "b", KIND_COUNTED, 1000);
    for (int i = 0; i < WEBHOOKS_MAX; i++) {
        char url[40];
        snprintf(url, sizeof url, "http://0/%03d", i);
        puts_url("b", url);
    }
    cr_expect(list_of().ret_more);
    cr_expect_eq(row_of(URL).position.seq, 45);
}

Test(webhooks, show_has_those_that_the_scope_names)
{
    struct scope_entry entries[] = {{BYTES("a"), false}, {BYTES("t:"), true}};
    struct scope scope = {entries, 1};
    struct webhook_list list = {.ret_count = 0};
    semaphore_make(&fixture, "b", KIND_COUNTED, 1);
    puts_url("a", URL);
    puts_url("b", "http://b");
    struct template_change put = {
        .prefix = BYTES("t:x"),
        .change = {.has_capacity = true, .capacity = 1, .has_feed_url = true, .feed_url = BYTES("http://t")}};
    cr_assert_eq(store->templates->put(store, &put, &arena), PERMIT_OK);
    cr_assert_eq(store->webhooks->show(store, NULL, &arena, &list), PERMIT_OK, "%s", store->message);
    cr_expect_eq(list.ret_count, 3);
    cr_assert_eq(store->webhooks->show(store, &scope, &arena, &list), PERMIT_OK, "%s", store->message);
    cr_assert_eq(list.ret_count, 1);
    cr_expect(bytes_equal(list.ret_rows[0].url, BYTES(URL)) && list.ret_rows[0].behind_since == NEVER);
    scope.count = 2;
    must_run(other,
             "INSERT INTO feed (seq,at,count,events)"
             " VALUES (41,'2026-11-21 09:14:31',3,'2 0 1:k0:0:0:0:'),(44,'2026-11-21 09:14:32',1,'2 0 1:k0:0:0:0:')");
    cr_assert_eq(store->webhooks->show(store, &scope, &arena, &list), PERMIT_OK);
    cr_expect_eq(list.ret_count, 2);
    static const char *const since[] = {"'2026-11-21 09:14:31'", "'2026-11-21 09:14:32'"};
    static const char *const moves[] = {"UPDATE webhook SET seq=42", "UPDATE webhook SET seq=43"};
    for (size_t i = 0; i < ARRAY_LENGTH(moves); i++) { /* of the row with the next event; the position may be in it */
        char sql[100];
        must_run(other, moves[i]);
        snprintf(sql, sizeof sql, "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01',%s)", since[i]);
        cr_assert_eq(store->webhooks->show(store, &scope, &arena, &list), PERMIT_OK);
        cr_expect_eq(list.ret_rows[0].behind_since, number_of(other, sql));
    }
    must_run(other, "UPDATE webhook SET seq=44");
    cr_assert_eq(store->webhooks->show(store, &scope, &arena, &list), PERMIT_OK);
    cr_expect_eq(list.ret_rows[0].behind_since, NEVER);
    cr_assert_eq(store->webhooks->show(store, &scope_of_nothing, &arena, &list), PERMIT_OK);
    cr_expect_eq(list.ret_count, 0);
}

/* ---- claims ---- */

Test(webhooks, one_permitd_claims_a_row_until_its_time_has_passed)
{
    puts_url("a", URL);
    struct webhook_row row = row_of(URL);
    cr_expect(claims(&row, ME, 100, 200));
    cr_expect(!claims(&row, OTHER, 199, 300), "it is claimed");
    cr_expect(claims(&row, ME, 150, 210), "its own claim is no obstacle");
    cr_expect(!claims(&row, OTHER, 209, 300));
    cr_expect(claims(&row, OTHER, 210, 310), "the claim has ended");
    cr_expect(row_of(URL).server_id == OTHER && row_of(URL).claimed_until == 310);
}

Test(webhooks, claim_needs_the_position_that_was_read)
{
    puts_url("a", URL);
    struct webhook_row before = row_of(URL), other_epoch = before;
    cr_assert(claims(&before, ME, 100, 200));
    settles(&before, ME, 41, 200, "");
    cr_expect(!claims(&before, OTHER, 100, 200), "another one has moved it");
    cr_expect(!claims(&before, ME, 100, 200));
    other_epoch.position = (struct feed_position){before.position.epoch + 1, 41};
    cr_expect(!claims(&other_epoch, ME, 100, 200));
    before.position.seq = 41;
    cr_expect(claims(&before, OTHER, 100, 200));
}

Test(webhooks, call_moves_the_position_only_if_its_claim_stands)
{
    puts_url("a", URL);
    struct webhook_row row = row_of(URL);
    cr_assert(claims(&row, ME, 100, 200));
    cr_assert(claims(&row, OTHER, 200, 300));
    settles(&row, ME, 45, 200, "");
    cr_expect(row_of(URL).position.seq == 40 && row_of(URL).server_id == OTHER, "that of one that was stopped");
    settles(&row, OTHER, 43, 204, "");
    struct webhook_row after = row_of(URL);
    cr_expect(after.position.seq == 43 && after.server_id == 0 && after.claimed_until == NEVER && after.status == 204);
    cr_expect(after.called_at != NEVER && after.failures == 0);
    settles(&row, OTHER, 44, 200, "");
    cr_expect_eq(row_of(URL).position.seq, 43, "twice");
}

Test(webhooks, failure_counts_and_leaves_the_position)
{
    puts_url("a", URL);
    for (uint64_t i = 1; i <= 3; i++) {
        struct webhook_row row = row_of(URL);
        cr_assert(claims(&row, ME, 100, 200));
        settles(&row, ME, 45, 500, "HTTP 500");
        struct webhook_row after = row_of(URL);
        cr_expect(after.position.seq == 40 && after.failures == i && after.status == 500 && after.server_id == 0);
        cr_expect(bytes_equal(after.error, BYTES("HTTP 500")) && after.retry_at == SOON);
        cr_expect(i == 1 || after.failing_since == row.failing_since);
    }
    struct webhook_row row = row_of(URL);
    cr_assert(claims(&row, ME, 100, 200));
    settles(&row, ME, 45, 200, "");
    row = row_of(URL);
    cr_expect(row.position.seq == 45 && row.failures == 0 && row.failing_since == NEVER && row.retry_at == NEVER &&
              row.error.length == 0);
}

Test(webhooks, release_ends_the_claims_of_one_permitd)
{
    semaphore_make(&fixture, "b", KIND_COUNTED, 1);
    puts_url("a", URL);
    puts_url("b", "http://b");
    struct webhook_row mine = row_of(URL), others = row_of("http://b");
    cr_assert(claims(&mine, ME, 100, 200) && claims(&others, OTHER, 100, 200));
    cr_assert_eq(store->webhooks->release(store, ME), PERMIT_OK);
    cr_expect(row_of(URL).server_id == 0 && row_of(URL).claimed_until == NEVER && row_of(URL).failures == 0);
    cr_expect_eq(row_of("http://b").server_id, OTHER);
}

Test(webhooks, rows_that_are_as_read_and_not_claimed_pass_over_events)
{
    static const char *const urls[] = {"http://a", "http://b", "http://c"};
    struct webhook_row rows[3];
    struct feed_position positions[3];
    for (int i = 0; i < 3; i++) {
        puts_url("a", urls[i]);
        rows[i] = row_of(urls[i]);
        positions[i] = (struct feed_position){rows[i].position.epoch, 60};
    }
    cr_assert(claims(&rows[0], OTHER, 100, 200));
    must_run(other, "UPDATE webhook SET seq=55 WHERE url='http://b'");
    cr_assert_eq(store->webhooks->pass_over(store, rows, positions, 3), PERMIT_OK, "%s", store->message);
    cr_expect(row_of("http://a").position.seq == 40 && row_of("http://b").position.seq == 55);
    cr_expect_eq(row_of("http://c").position.seq, 60);
}

/* ---- rows that are named no more ---- */

static void deletes(void)
{
    cr_assert_eq(store->webhooks->delete_unnamed(store, &arena), PERMIT_OK, "%s", store->message);
}

Test(webhooks, row_is_deleted_when_nothing_names_it)
{
    puts_url("a", URL);
    deletes();
    (void)row_of(URL);
    puts_url("a", "http://b");
    struct webhook_row row = row_of(URL);
    cr_assert(claims(&row, ME, 100, 200));
    deletes();
    cr_expect_eq(list_of().ret_count, 2, "a call runs");
    cr_assert_eq(store->webhooks->release(store, ME), PERMIT_OK);
    deletes();
    cr_expect(list_of().ret_count == 1 && bytes_equal(list_of().ret_rows[0].url, BYTES("http://b")));
    must_run(other, "UPDATE semaphore SET retired_at=SYSDATE(6)");
    deletes();
    cr_expect_eq(list_of().ret_count, 1, "its last events are still sent");
    must_run(other, "UPDATE semaphore SET retired_at=SYSDATE(6)-INTERVAL 25 HOUR");
    deletes();
    cr_expect_eq(list_of().ret_count, 0);
}
