/* SPDX-License-Identifier: MIT */
/* Expiry and failover on the rows of a real MariaDB: reads of due holders, the page of expiry, the epoch. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/batch.h"
#include "store/epoch.h"

static const struct database_address *address;
static struct session *observer; /* reads the rows with plain SQL */
static struct fixture fixture;

static void expiry_begin(void)
{
    address = fresh_database();
    observer = connected(address, STORE_READER);
    fixture_open(&fixture, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&fixture, "alpha", KIND_SLOTTED, 2);
    semaphore_make(&fixture, "beta", KIND_COUNTED, 1);
    must_run(observer, "UPDATE cluster SET tick_at = SYSDATE(6)");
}

static void expiry_end(void)
{
    fixture_close(&fixture);
    session_free(observer);
}

TestSuite(expiry, .init = expiry_begin, .fini = expiry_end, .timeout = 300);

static const struct outcome *acquire(const char *key, const char *first, const char *second, int64_t ttl_ms)
{
    static struct want wants[2];
    wants[0] = (struct want){.semaphore = bytes_of(first), .count = 1};
    wants[1] = (struct want){.semaphore = bytes_of(second ? second : ""), .count = 1};
    struct operation operation = acquire_of(key, wants, second ? 2 : 1);
    operation.ttl = (struct ttl){TTL_DURATION, ttl_ms};
    return batch_run(&fixture, &operation);
}

/* Moves the request's deadline to a minute ago. */
static void make_due(const char *key)
{
    char sql[300];
    snprintf(sql, sizeof sql,
             "UPDATE permit_request SET due_at = SYSDATE(6) - INTERVAL 1 MINUTE WHERE external_id = '%s';", key);
    must_run(observer, sql);
    must_run(observer, "UPDATE semaphore SET next_due_at = SYSDATE(6) - INTERVAL 2 MINUTE");
    held_rewrite(address);
}

Test(expiry, new_request_ends_only_the_longest_due_holder)
{
    cr_assert_eq(acquire("first", "alpha", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("second", "alpha", NULL, 60000)->status, PERMIT_OK);
    make_due("second");
    make_due("first");
    must_run(observer, "UPDATE permit_request SET due_at = due_at - INTERVAL 1 MINUTE WHERE external_id = 'first'");
    held_rewrite(address);
    const struct outcome *outcome = acquire("third", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_eq(outcome->request->permits[0].slots.numbers[0], 1, "the slot that became free");
    cr_assert_str_eq(text_of(observer, "SELECT GROUP_CONCAT(CONCAT(external_id, state, end_reason) ORDER BY id)"
                                       " FROM permit_request"),
                     "first22,second10,third10");
    cr_assert_eq(number_of(observer, "SELECT in_use FROM semaphore WHERE name = 'alpha'"), 2);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE permit_id <> 0"), 2);
    cr_assert_eq(number_of(observer, "SELECT next_due_at > due_at - INTERVAL 1 SECOND AND next_due_at <= due_at"
                                     " FROM semaphore, permit_request WHERE name = 'alpha' AND external_id = 'second'"),
                 1, "the next one is due in the second in which the one that was left is");
}

Test(expiry, due_holder_of_two_ends_before_the_new_request)
{
    cr_assert_eq(acquire("both", "alpha", "beta", 60000)->status, PERMIT_OK);
    make_due("both");
    const struct outcome *outcome = acquire("next", "beta", NULL, 60000);
    cr_assert(outcome->put_back);
    cr_assert_eq(outcome->need_count, 1);
    cr_assert_eq(fixture.plan.overdue_count, 1);
    cr_assert_eq(fixture.plan.overdue[0]->permit_count, 2);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM permit_request WHERE state = 1"), 1, "nothing was written");
}

/* P23: a batch that waited for the row would hold the semaphore for 2 s. */
Test(expiry, due_holder_whose_row_another_session_has_locked_is_passed_over)
{
    semaphore_make(&fixture, "wide", KIND_COUNTED, 2);
    cr_assert_eq(acquire("locked", "wide", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("free", "wide", NULL, 60000)->status, PERMIT_OK);
    make_due("locked");
    make_due("free");
    must_run(observer, "BEGIN");
    must_run(observer, "SELECT id FROM permit_request WHERE external_id = 'locked' FOR UPDATE");
    cr_assert_eq(acquire("next", "wide", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("other", "wide", NULL, 60000)->status, PERMIT_NO_CAPACITY);
    must_run(observer, "ROLLBACK");
    cr_assert_eq(number_of(observer, "SELECT state FROM permit_request WHERE external_id = 'locked'"), 1);
    cr_assert_eq(number_of(observer, "SELECT state FROM permit_request WHERE external_id = 'free'"), 2);
    cr_assert_eq(acquire("other", "wide", NULL, 60000)->status, PERMIT_OK);
}

Test(expiry, next_due_at_rises_when_no_holder_is_due)
{
    cr_assert_eq(acquire("holder", "beta", NULL, 60000)->status, PERMIT_OK);
    must_run(observer, "UPDATE semaphore SET next_due_at = SYSDATE(6) - INTERVAL 2 MINUTE");
    cr_assert_eq(acquire("other", "beta", NULL, 60000)->status, PERMIT_NO_CAPACITY);
    cr_assert_eq(number_of(observer, "SELECT next_due_at > due_at - INTERVAL 1 SECOND AND next_due_at <= due_at"
                                     " FROM semaphore, permit_request WHERE name = 'beta'"),
                 1);
}

/*
 * 200 holders due in one second, in four blocks: each acquire ends the one that is due longest. `others` more units are
 * in use.
 */
static void due_holders_end_in_order(long long others)
{
    char sql[200];
    semaphore_make(&fixture, "wide", KIND_COUNTED, 200);
    for (int i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof key, "holder%d", i);
        cr_assert_eq(acquire(key, "wide", NULL, 60000)->status, PERMIT_OK);
    }
    must_run(observer, "UPDATE permit_request SET due_at = '2020-01-01 00:00:00.5' - INTERVAL id % 200 MICROSECOND");
    snprintf(sql, sizeof sql,
             "UPDATE semaphore SET next_due_at = '2020-01-01', in_use = in_use + %lld, capacity = capacity + %lld"
             " WHERE name = 'wide'",
             others, others);
    must_run(observer, sql);
    held_rewrite(address);
    for (int i = 1; i <= 3; i++) {
        char key[16];
        snprintf(key, sizeof key, "next%d", i);
        cr_assert_eq(acquire(key, "wide", NULL, 60000)->status, PERMIT_OK);
        cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM permit_request WHERE state = 2"), i);
        cr_assert_eq(number_of(observer, "SELECT MIN(id % 200) FROM permit_request WHERE state = 2"), 200 - i);
    }
    cr_assert_eq(number_of(observer, "SELECT next_due_at >= '2020-01-01' AND next_due_at < '2020-01-01 00:00:01'"
                                     " FROM semaphore WHERE name = 'wide'"),
                 1);
}

Test(expiry, due_holders_of_several_blocks_end_in_order)
{
    due_holders_end_in_order(0);
}

/* With many holders the read walks the due rows of all semaphores instead, and must find the same. */
Test(expiry, due_holders_among_many_end_in_order)
{
    due_holders_end_in_order(30000);
}

/*
 * 200 holders in 200 rows of `held`, all due in the present second; only the one with this token is due already. It is
 * found whatever rows the server reads first. `others` more units are in use.
 */
static void due_holder_is_found_among_200_of_the_same_second(int token, long long others)
{
    char sql[300];
    semaphore_make(&fixture, "wide", KIND_COUNTED, 200);
    for (int i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof key, "holder%d", i);
        cr_assert_eq(acquire(key, "wide", NULL, 60000)->status, PERMIT_OK);
    }
    must_run(observer,
             "UPDATE cluster SET tick_at = '2100-01-01 00:00:00.5', offset_us = 0"); /* the time stands still */
    snprintf(sql, sizeof sql,
             "UPDATE permit_request r JOIN permit p ON p.permit_request_id = r.id SET r.owner = r.external_id,"
             " r.due_at = IF(p.id = %d, '2100-01-01 00:00:00.4', '2100-01-01 00:00:00.9')",
             token);
    must_run(observer, sql);
    snprintf(sql, sizeof sql,
             "UPDATE semaphore SET next_due_at = '2100-01-01', in_use = in_use + %lld, capacity = capacity + %lld"
             " WHERE name = 'wide'",
             others, others);
    must_run(observer, sql);
    held_rewrite(address);
    cr_assert_eq(acquire("next1", "wide", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(number_of(observer,
                           "SELECT MIN(p.id) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id"
                           " WHERE r.state = 2"),
                 token);
    cr_assert_eq(acquire("next2", "wide", NULL, 60000)->status, PERMIT_NO_CAPACITY);
    cr_assert_eq(
        number_of(observer, "SELECT next_due_at <= '2100-01-01 00:00:00.9' FROM semaphore WHERE name = 'wide'"), 1,
        "a lower bound");
}

Test(expiry, due_holder_with_the_first_token_is_found_among_200_of_the_same_second)
{
    due_holder_is_found_among_200_of_the_same_second(1, 0);
}

Test(expiry, due_holder_with_the_last_token_is_found_among_200_of_the_same_second)
{
    due_holder_is_found_among_200_of_the_same_second(200, 0);
}

Test(expiry, due_holder_is_found_if_30000_more_units_are_in_use)
{
    due_holder_is_found_among_200_of_the_same_second(200, 30000);
}

static void due_page(struct due_position after, struct due_page *ret_page)
{
    *ret_page = (struct due_page){.after = after, .limit = 2};
    cr_assert_eq(fixture.store->queries->due(fixture.store, ret_page, &fixture.arena), PERMIT_OK, "%s",
                 fixture.store->message);
}

static const struct due_position from_start;

Test(expiry, due_page_is_ordered_by_deadline_and_skips_requests_without_one)
{
    struct due_page page;
    cr_assert_eq(acquire("late", "alpha", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("soon", "alpha", NULL, 50000)->status, PERMIT_OK);
    cr_assert_eq(acquire("never", "beta", NULL, 40000)->status, PERMIT_OK);
    must_run(observer, "UPDATE permit_request SET due_at = NULL WHERE external_id = 'never'");
    held_rewrite(address);
    due_page(from_start, &page);
    cr_assert_eq(page.ret_count, 2);
    cr_assert(bytes_equal(page.ret_requests[0].external_id, BYTES("soon")));
    cr_assert(bytes_equal(page.ret_requests[1].external_id, BYTES("late")));
    cr_assert_gt(page.ret_requests[0].due_at, lease_time(&page.ret_time.clock, page.ret_time.now));
    due_page(page.ret_requests[0].position, &page);
    cr_assert_eq(page.ret_count, 1);
    cr_assert_not(page.ret_more);
    cr_assert(bytes_equal(page.ret_requests[0].external_id, BYTES("late")));
}

Test(expiry, due_page_names_a_request_of_two_semaphores_once)
{
    struct due_page page;
    cr_assert_eq(acquire("both", "alpha", "beta", 60000)->status, PERMIT_OK);
    due_page(from_start, &page);
    cr_assert_eq(page.ret_count, 1);
    cr_assert(bytes_equal(page.ret_requests[0].external_id, BYTES("both")));
}

/* ---- access paths ---- */

/* EXPLAIN shows no scan for the reads that permitd repeats all the time. */
Test(expiry, due_holders_are_found_by_an_index)
{
    for (int i = 0; i < 40; i++) {
        char key[16];
        char sql[200];
        snprintf(key, sizeof key, "key%d", i);
        snprintf(sql, sizeof sql, "UPDATE semaphore SET in_use = %d WHERE name = 'beta'", 0);
        must_run(observer, sql);
        cr_assert_eq(acquire(key, "beta", NULL, 60000 + i)->status, PERMIT_OK);
    }
    struct due_page page;
    struct explained tables[4];
    sent_record();
    due_page(from_start, &page);
    const char *end = sent_statement("(SELECT due_s,semaphore_id AS semaphore_id");
    cr_assert_geq(explain(observer, end, tables, 4), 2);
    cr_assert(bytes_equal(tables[0].key, BYTES("held_due")), "%s", end);
    cr_assert(bytes_equal(tables[1].key, BYTES("PRIMARY")), "%s", end);
    const char *rows = sent_statement("(SELECT h.due_s,h.semaphore_id,h.block,r.external_id");
    (void)rows_read(observer);
    must_run(observer, rows);
    cr_assert_leq(rows_read(observer), 2 * (64 + 64 * 4), "the bits of two rows, and what they lead to");
}

/* ---- the epoch ---- */

static uint64_t raised(enum epoch_cause cause, uint64_t seen)
{
    struct epoch_advance advance = {.cause = cause, .seen = seen, .hold_ms = 60000};
    cr_assert_eq(epoch_advance(observer, &advance), PERMIT_OK, "%s", session_message(observer));
    return advance.ret_epoch;
}

enum { HOLD_MS = 60000 };

static enum permit_status bump(uint64_t *ret_epoch, int64_t *ret_wait_ms)
{
    struct epoch_advance advance = {.cause = EPOCH_OPERATOR, .hold_ms = HOLD_MS, .why = BYTES("an operator")};
    enum permit_status status = epoch_advance(observer, &advance);
    *ret_epoch = advance.ret_epoch;
    *ret_wait_ms = advance.ret_wait_ms;
    return status;
}

/* Raises the epoch as an operator, as if the last time had been long ago. Returns the epoch. */
static uint64_t bumped(void)
{
    uint64_t epoch = 0;
    int64_t wait_ms;
    must_run(observer, "UPDATE cluster SET grants_from = SYSDATE(6) - INTERVAL 1 DAY");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK, "%s", session_message(observer));
    return epoch;
}

Test(expiry, new_database_only_gets_an_identity)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    cr_assert_neq(number_of(observer, "SELECT LENGTH(identity) FROM cluster"), 0);
    cr_assert_eq(number_of(observer, "SELECT grants_from < SYSDATE(6) - INTERVAL 1 DAY FROM cluster"), 1);
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0, "the same server again");
}

Test(expiry, another_server_raises_the_epoch_once_and_delays_grants)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    must_run(observer, "UPDATE cluster SET identity = 'another one'");
    uint64_t epoch = raised(EPOCH_SERVER, 0);
    cr_assert_gt(epoch, 28000000000ULL, "milliseconds since 2026");
    cr_assert_eq(raised(EPOCH_SERVER, 0), epoch);
    cr_assert_eq(raised(EPOCH_TOKENS, 0), epoch, "somebody else was first");
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM semaphore_event WHERE what = 'epoch' AND semaphore_id = 0"),
                 1);
    const struct outcome *outcome = acquire("held-back", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_BUSY);
    must_run(observer, "UPDATE cluster SET grants_from = SYSDATE(6) - INTERVAL 1 SECOND");
    outcome = acquire("held-back", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_eq(outcome->request->permits[0].token, epoch << 10);
}

Test(expiry, next_epoch_is_higher_even_within_a_millisecond)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    uint64_t first = bumped();
    uint64_t second = bumped();
    cr_assert_gt(second, first);
    must_run(observer, "UPDATE cluster SET epoch = epoch + 1000000000");
    cr_assert_eq(bumped(), (uint64_t)number_of(observer, "SELECT epoch FROM cluster"));
    cr_assert_gt(number_of(observer, "SELECT epoch FROM cluster"), (int64_t)second + 1000000000);
}

/*
 * A fence bump each second would stop all grants. The limit depends on the database alone, whichever server gets the
 * call.
 */
Test(expiry, operator_raises_the_epoch_again_only_one_hold_after_the_last)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    uint64_t first = bumped();
    uint64_t epoch = 0;
    int64_t wait_ms = 0;
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY);
    cr_assert_eq(epoch, first);
    cr_assert(wait_ms > HOLD_MS && wait_ms <= 2 * HOLD_MS, "%lld ms", (long long)wait_ms);
    must_run(observer, "UPDATE cluster SET grants_from = grants_from - INTERVAL 60 SECOND");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY, "the hold is over, and nothing was granted since");
    cr_assert(wait_ms > 0 && wait_ms <= HOLD_MS, "%lld ms", (long long)wait_ms);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM semaphore_event WHERE what = 'epoch'"), 1);
    must_run(observer, "UPDATE cluster SET grants_from = grants_from - INTERVAL 60 SECOND");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK);
    cr_assert_gt(epoch, first);
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY);
    must_run(observer, "UPDATE cluster SET identity = 'another one'");
    uint64_t before = epoch;
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK, "the epoch must rise in any case");
    cr_assert_gt(epoch, before);
}

Test(expiry, ids_do_not_regress_with_an_older_copy)
{
    cr_assert_eq(acquire("a", "alpha", NULL, 60000)->status, PERMIT_OK);
    int64_t used = number_of(observer, "SELECT MAX(id) FROM permit_request");
    must_run(observer, "UPDATE id_block SET next_id = 1");
    (void)bumped();
    cr_assert_gt(number_of(observer, "SELECT next_id FROM id_block"), used);
}
