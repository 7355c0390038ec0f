/* SPDX-License-Identifier: MIT */
/*
 * How permits end, and what happens on another server, by the rows of a real MariaDB: the reads of due holders, the
 * sweeper's page, the epoch.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "side.h"
#include "store/batch.h"
#include "store/epoch.h"
#include "support.h"

static const struct database_address *address;
static struct session *eye; /* sees the rows by plain SQL */
static struct side side;

static void ends_begin(void)
{
    address = fresh_database();
    eye = connected(address, SESSION_READER);
    side_open(&side, address);
    semaphore_make(&side, "alpha", KIND_SLOTTED, 2);
    semaphore_make(&side, "beta", KIND_COUNTED, 1);
    must_run(eye, "UPDATE cluster SET tick_at = SYSDATE(6)");
}

static void ends_end(void)
{
    side_close(&side);
    session_free(eye);
}

TestSuite(ends, .init = ends_begin, .fini = ends_end, .timeout = 300);

static const struct outcome *acquire(const char *key, const char *first, const char *second, int64_t ttl_ms)
{
    static struct want wants[2];
    wants[0] = (struct want){.semaphore = bytes_of(first), .count = 1};
    wants[1] = (struct want){.semaphore = bytes_of(second ? second : ""), .count = 1};
    struct operation operation = acquire_of(key, wants, second ? 2 : 1);
    operation.ttl = (struct ttl){TTL_DURATION, ttl_ms};
    return run(&side, &operation);
}

/* As if its deadline had passed a minute ago. */
static void make_due(const char *key)
{
    char sql[300];
    snprintf(sql, sizeof sql,
             "UPDATE permit_request SET due_at = SYSDATE(6) - INTERVAL 1 MINUTE WHERE external_id = '%s';", key);
    must_run(eye, sql);
    must_run(eye, "UPDATE semaphore SET next_due_at = SYSDATE(6) - INTERVAL 2 MINUTE");
}

Test(ends, a_newcomer_ends_the_longest_due_holder_and_no_more)
{
    cr_assert_eq(acquire("first", "alpha", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("second", "alpha", NULL, 60000)->status, PERMIT_OK);
    make_due("second");
    make_due("first");
    must_run(eye, "UPDATE permit_request SET due_at = due_at - INTERVAL 1 MINUTE WHERE external_id = 'first'");
    const struct outcome *outcome = acquire("third", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_eq(outcome->request->permits[0].slots.numbers[0], 1, "the slot that became free");
    cr_assert_str_eq(text_of(eye, "SELECT GROUP_CONCAT(CONCAT(external_id, state, end_reason) ORDER BY id)"
                                  " FROM permit_request"),
                     "first22,second10,third10");
    cr_assert_eq(number_of(eye, "SELECT in_use FROM semaphore WHERE name = 'alpha'"), 2);
    cr_assert_eq(number_of(eye, "SELECT COUNT(*) FROM slot WHERE permit_id <> 0"), 2);
    cr_assert_eq(number_of(eye, "SELECT next_due_at = (SELECT due_at FROM permit_request WHERE external_id = 'second')"
                                " FROM semaphore WHERE name = 'alpha'"),
                 1, "the next one is due when the one that was left is");
}

Test(ends, a_due_holder_of_more_puts_the_newcomer_back_with_the_wider_set)
{
    cr_assert_eq(acquire("both", "alpha", "beta", 60000)->status, PERMIT_OK);
    make_due("both");
    const struct outcome *outcome = acquire("next", "beta", NULL, 60000);
    cr_assert(outcome->put_back);
    cr_assert_eq(outcome->need_count, 2);
    cr_assert_eq(number_of(eye, "SELECT COUNT(*) FROM permit_request WHERE state = 1"), 1, "nothing was written");
}

Test(ends, next_due_at_rises_when_nobody_is_due)
{
    cr_assert_eq(acquire("holder", "beta", NULL, 60000)->status, PERMIT_OK);
    must_run(eye, "UPDATE semaphore SET next_due_at = SYSDATE(6) - INTERVAL 2 MINUTE");
    cr_assert_eq(acquire("other", "beta", NULL, 60000)->status, PERMIT_NO_CAPACITY);
    cr_assert_eq(number_of(eye, "SELECT next_due_at = (SELECT due_at FROM permit_request) FROM semaphore"
                                " WHERE name = 'beta'"),
                 1);
}

/* With many holders the read walks what is due instead; it must find the same. */
Test(ends, a_due_holder_among_many_is_found)
{
    semaphore_make(&side, "wide", KIND_COUNTED, 3000);
    cr_assert_eq(acquire("due", "wide", NULL, 60000)->status, PERMIT_OK);
    must_run(eye, "UPDATE semaphore SET in_use = 3000 WHERE name = 'wide'");
    make_due("due");
    const struct outcome *outcome = acquire("next", "wide", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_eq(number_of(eye, "SELECT end_reason FROM permit_request WHERE external_id = 'due'"), END_EXPIRED);
}

static void due_page(utc_us after_due_at, uint64_t after_id, struct due_page *ret_page)
{
    *ret_page = (struct due_page){.after_due_at = after_due_at, .after_id = after_id, .limit = 2};
    cr_assert_eq(store_due(side.store, ret_page, &side.arena), PERMIT_OK, "%s", side.store->message);
}

Test(ends, the_sweepers_page_goes_by_deadline_and_leaves_out_what_has_none)
{
    struct due_page page;
    cr_assert_eq(acquire("late", "alpha", NULL, 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("soon", "alpha", NULL, 50000)->status, PERMIT_OK);
    cr_assert_eq(acquire("never", "beta", NULL, 40000)->status, PERMIT_OK);
    must_run(eye, "UPDATE permit_request SET due_at = NULL WHERE external_id = 'never'");
    due_page(0, 0, &page);
    cr_assert_eq(page.ret_count, 2);
    cr_assert(bytes_equal(page.ret_requests[0].external_id, BYTES("soon")));
    cr_assert(bytes_equal(page.ret_requests[1].external_id, BYTES("late")));
    cr_assert_gt(page.ret_requests[0].due_at, page.ret_now);
    struct due_request soon = page.ret_requests[0];
    due_page(soon.due_at, soon.id, &page);
    cr_assert_eq(page.ret_count, 1);
    cr_assert(bytes_equal(page.ret_requests[0].external_id, BYTES("late")));
}

/* ---- access paths ---- */

/* The reads that permitd makes all the time, as EXPLAIN sees them: never a scan. */
Test(ends, who_is_due_is_found_along_an_index)
{
    struct session_row row;
    for (int i = 0; i < 40; i++) {
        char key[16];
        char sql[200];
        snprintf(key, sizeof key, "key%d", i);
        snprintf(sql, sizeof sql, "UPDATE semaphore SET in_use = %d WHERE name = 'beta'", 0);
        must_run(eye, sql);
        cr_assert_eq(acquire(key, "beta", NULL, 60000 + i)->status, PERMIT_OK);
    }
    (void)rows_read(eye);
    cr_assert_eq(
        session_send(eye, BYTES("SELECT r.external_id,r.id,r.due_at FROM permit_request r"
                                " FORCE INDEX (permit_request_due) WHERE r.state=1 AND r.due_at>='1970-01-01'"
                                " AND NOT (r.id<=0 AND r.due_at='1970-01-01') ORDER BY r.due_at,r.id LIMIT 5")),
        PERMIT_OK);
    while (session_row(eye, &row)) {
    }
    (void)session_finish(eye);
    cr_assert_leq(rows_read(eye), 8, "as many rows as the page has");
}

/* ---- the epoch ---- */

static uint64_t raised(enum epoch_cause cause, uint64_t seen)
{
    uint64_t epoch = 0;
    cr_assert_eq(epoch_raise(eye, cause, seen, 60000, BYTES("a test"), &epoch), PERMIT_OK, "%s", session_message(eye));
    return epoch;
}

enum { HOLD_MS = 60000 };

static enum permit_status bump(uint64_t *ret_epoch, int64_t *ret_wait_ms)
{
    return epoch_bump(eye, HOLD_MS, BYTES("an operator"), ret_epoch, ret_wait_ms);
}

/* The epoch as an operator has raised it, as if the last time had been long ago. */
static uint64_t bumped(void)
{
    uint64_t epoch = 0;
    int64_t wait_ms;
    must_run(eye, "UPDATE cluster SET grants_from = SYSDATE(6) - INTERVAL 1 DAY");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK, "%s", session_message(eye));
    return epoch;
}

Test(ends, a_database_that_was_never_served_only_gets_its_name)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    cr_assert_neq(number_of(eye, "SELECT LENGTH(identity) FROM cluster"), 0);
    cr_assert_eq(number_of(eye, "SELECT grants_from < SYSDATE(6) - INTERVAL 1 DAY FROM cluster"), 1);
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0, "the same server again");
}

Test(ends, another_server_raises_the_epoch_once_and_holds_grants_back)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    must_run(eye, "UPDATE cluster SET identity = 'another one'");
    uint64_t epoch = raised(EPOCH_SERVER, 0);
    cr_assert_gt(epoch, 28000000000ULL, "milliseconds since 2026");
    cr_assert_eq(raised(EPOCH_SERVER, 0), epoch);
    cr_assert_eq(raised(EPOCH_TOKENS, 0), epoch, "somebody else was first");
    cr_assert_eq(number_of(eye, "SELECT COUNT(*) FROM semaphore_event WHERE what = 'epoch' AND semaphore_id = 0"), 1);
    const struct outcome *outcome = acquire("held-back", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_BUSY);
    must_run(eye, "UPDATE cluster SET grants_from = SYSDATE(6) - INTERVAL 1 SECOND");
    outcome = acquire("held-back", "alpha", NULL, 60000);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_eq(outcome->request->permits[0].token, epoch << 10);
}

Test(ends, the_next_epoch_is_higher_even_within_a_millisecond)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    uint64_t first = bumped();
    uint64_t second = bumped();
    cr_assert_gt(second, first);
    must_run(eye, "UPDATE cluster SET epoch = epoch + 1000000000");
    cr_assert_eq(bumped(), (uint64_t)number_of(eye, "SELECT epoch FROM cluster"));
    cr_assert_gt(number_of(eye, "SELECT epoch FROM cluster"), (int64_t)second + 1000000000);
}

/*
 * "fence bump once a second stops everybody": who may decides by what is in the database, whichever permitd is asked.
 */
Test(ends, operator_raises_the_epoch_again_only_a_hold_after_the_last_hold)
{
    cr_assert_eq(raised(EPOCH_SERVER, 0), 0);
    uint64_t first = bumped();
    uint64_t epoch = 0;
    int64_t wait_ms = 0;
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY);
    cr_assert_eq(epoch, first);
    cr_assert(wait_ms > HOLD_MS && wait_ms <= 2 * HOLD_MS, "%lld ms", (long long)wait_ms);
    must_run(eye, "UPDATE cluster SET grants_from = grants_from - INTERVAL 60 SECOND");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY, "the hold is over, and nothing was granted since");
    cr_assert(wait_ms > 0 && wait_ms <= HOLD_MS, "%lld ms", (long long)wait_ms);
    cr_assert_eq(number_of(eye, "SELECT COUNT(*) FROM semaphore_event WHERE what = 'epoch'"), 1);
    must_run(eye, "UPDATE cluster SET grants_from = grants_from - INTERVAL 60 SECOND");
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK);
    cr_assert_gt(epoch, first);
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_TOO_MANY);
    must_run(eye, "UPDATE cluster SET identity = 'another one'");
    uint64_t before = epoch;
    cr_assert_eq(bump(&epoch, &wait_ms), PERMIT_OK, "the epoch must rise in any case");
    cr_assert_gt(epoch, before);
}

Test(ends, ids_do_not_go_back_with_an_older_copy)
{
    cr_assert_eq(acquire("a", "alpha", NULL, 60000)->status, PERMIT_OK);
    int64_t used = number_of(eye, "SELECT MAX(id) FROM permit_request");
    must_run(eye, "UPDATE id_block SET next_id = 1");
    (void)bumped();
    cr_assert_gt(number_of(eye, "SELECT next_id FROM id_block"), used);
}
