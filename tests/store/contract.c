/* SPDX-License-Identifier: MIT */
/*
 * The contract of store.h, on a real MariaDB: what is locked, that a batch is written as a whole or not at all, and
 * that a row that is not as it was read raises. Batches are decided by plan_batch, as in the service.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/plan.h"
#include "side.h"
#include "store/batch.h"
#include "support.h"

static const struct database_address *address;
static struct session *eye; /* sees the rows by plain SQL */
static struct side one, two;

static void contract_begin(void)
{
    address = fresh_database();
    eye = connected(address, SESSION_READER);
    side_open(&one, address);
    side_open(&two, address);
    semaphore_make(&one, "alpha", KIND_SLOTTED, 3);
    semaphore_make(&one, "beta", KIND_COUNTED, 10);
}

static void contract_end(void)
{
    side_close(&one);
    side_close(&two);
    session_free(eye);
}

TestSuite(contract, .init = contract_begin, .fini = contract_end, .timeout = 300);

#define ALPHA_AND_BETA                                                                                                 \
    {                                                                                                                  \
        {.semaphore = BYTES("alpha"), .count = 2},                                                                     \
        {                                                                                                              \
            .semaphore = BYTES("beta"), .count = 4                                                                     \
        }                                                                                                              \
    }

static const char *all_rows(void)
{
    return text_of(eye,
                   "SELECT CONCAT_WS(';', (SELECT GROUP_CONCAT(CONCAT_WS(',', name, in_use, next_permit_id) ORDER BY"
                   " name) FROM semaphore), (SELECT COUNT(*) FROM permit_request), (SELECT COUNT(*) FROM permit WHERE"
                   " state = 1), (SELECT COUNT(*) FROM permit WHERE state = 2), (SELECT COUNT(*) FROM slot WHERE"
                   " permit_id <> 0))");
}

Test(contract, a_grant_is_in_all_the_tables_and_its_release_too)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    const struct outcome *outcome = run(&one, &acquire);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert(outcome->created);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;0;2");
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    outcome = run(&two, &release);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_str_eq(all_rows(), "alpha,0,2,beta,0,2;1;0;2;0");
    outcome = run(&one, &release);
    cr_assert(outcome->already_released);
}

Test(contract, a_replay_reads_what_was_granted)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    const struct outcome *outcome = run(&two, &acquire);
    cr_assert_eq(outcome->status, PERMIT_OK);
    cr_assert(outcome->replayed);
    cr_assert_eq(outcome->request->permit_count, 2);
    cr_assert_eq(outcome->request->permits[0].slots.count + outcome->request->permits[1].slots.count, 2);
    cr_assert_eq(outcome->request->ended_at, NEVER);
    cr_assert_eq(number_of(eye, "SELECT replays FROM permit_request"), 1);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;0;2");
}

Test(contract, a_grant_keeps_the_nonce_of_its_acquire)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("k", wants, 1), other = acquire_of("j", wants, 1);
    const struct bytes nonce = BYTES("it's \\ mine");
    acquire.nonce = nonce;
    cr_assert(bytes_equal(run(&one, &acquire)->request->nonce, nonce));
    acquire.nonce = BYTES("another");
    cr_assert(bytes_equal(run(&two, &acquire)->request->nonce, nonce), "a replay reads another nonce");
    cr_assert_eq(run(&one, &other)->request->nonce.length, 0);
    cr_assert_eq(run(&two, &other)->request->nonce.length, 0);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert(bytes_equal(run(&two, &release)->request->nonce, nonce));
    cr_assert_str_eq(text_of(eye, "SELECT GROUP_CONCAT(nonce ORDER BY external_id) FROM permit_request"),
                     ",it's \\ mine");
}

Test(contract, an_unknown_key_gets_a_tombstone)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("nobody")};
    cr_assert_eq(run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(number_of(eye, "SELECT end_reason FROM permit_request WHERE external_id = 'nobody'"), END_NEVER_HELD);
}

/* No semaphore's lock keeps two permitd from answering the same release of a key that never held anything. */
Test(contract, two_that_replay_a_tombstone_at_once_both_count)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("nobody")};
    cr_assert_eq(run(&one, &release)->status, PERMIT_OK);
    decide(&one, &release);
    decide(&two, &release);
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(store_apply(two.store, &two.plan.changes), PERMIT_OK, "%s", two.store->message);
    cr_assert_eq(number_of(eye, "SELECT replays FROM permit_request WHERE external_id = 'nobody'"), 2);
}

/* A row that somebody else has changed behind our locks: every UPDATE of a release sees it and raises. */
static void release_is_refused_after(const char *sql)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    decide(&one, &release);
    cr_assert_eq(session_run(eye, sql), PERMIT_OK, "%s", session_message(eye));
    char before[4096];
    snprintf(before, sizeof before, "%s", all_rows());
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_INTERNAL);
    cr_assert_eq(store_rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), before);
}

Test(contract, a_permit_that_is_gone_raises)
{
    release_is_refused_after("DELETE FROM permit ORDER BY semaphore_id DESC LIMIT 1");
}

Test(contract, a_slot_that_is_free_already_raises)
{
    release_is_refused_after("UPDATE slot SET permit_id = 0 WHERE number = 1");
}

Test(contract, a_request_that_is_gone_raises)
{
    release_is_refused_after("DELETE FROM permit_request");
}

Test(contract, a_request_that_has_ended_raises)
{
    release_is_refused_after("UPDATE permit_request SET state = 2");
}

Test(contract, a_semaphore_that_is_not_as_it_was_read_raises)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    decide(&one, &acquire);
    one.plan.changes.semaphores[one.plan.changes.semaphore_count - 1].expected_version += 1;
    char before[4096];
    snprintf(before, sizeof before, "%s", all_rows());
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_INTERNAL);
    cr_assert_eq(store_rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), before);
    cr_assert_eq(run(&two, &acquire)->status, PERMIT_OK, "the locks are free again");
}

Test(contract, a_batch_that_fails_late_has_written_nothing)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    decide(&one, &acquire);
    cr_assert_gt(one.plan.changes.slot_count, 0);
    one.plan.changes.slots[one.plan.changes.slot_count - 1].number = 77; /* there is no such row */
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_INTERNAL);
    cr_assert_eq(store_rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,0,1,beta,0,1;0;0;0;0");
}

Test(contract, a_connection_lost_before_commit_has_written_nothing)
{
    char sql[64];
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    decide(&one, &acquire);
    int64_t id = number_of(eye, "SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID IN"
                                " (SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX)");
    snprintf(sql, sizeof sql, "KILL CONNECTION %lld", (long long)id);
    must_run(eye, sql);
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_DATABASE_LOST);
    cr_assert_eq(store_rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,0,1,beta,0,1;0;0;0;0");
    cr_assert_eq(store_reconnect(one.store), PERMIT_OK);
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;0;2");
}

/* The semaphores differ, so no lock keeps them apart: the unique key does. */
Test(contract, of_two_new_requests_with_one_key_the_second_conflicts)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("k", alpha, 1);
    struct operation second = acquire_of("k", beta, 1);
    cr_assert_eq(decide(&one, &first)->status, PERMIT_OK);
    cr_assert_eq(decide(&two, &second)->status, PERMIT_OK);
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_OK);
    cr_assert_eq(store_apply(two.store, &two.plan.changes), PERMIT_CONFLICT);
    cr_assert_eq(store_rollback(two.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,1,2,beta,0,1;1;1;0;1");
}

Test(contract, strangers_semaphores_are_not_waited_for)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", alpha, 1);
    struct operation second = acquire_of("b", beta, 1);
    decide(&one, &first); /* holds alpha */
    cr_assert_eq(run(&two, &second)->status, PERMIT_OK);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("b")};
    cr_assert_eq(run(&two, &release)->status, PERMIT_OK);
    cr_assert_eq(store_rollback(one.store), PERMIT_OK, "it had lost alpha before beta was had");
}

/* As if permitd had been stopped inside a batch: the server ends a transaction that is idle for 5 s (P12). */
Test(contract, one_that_says_nothing_any_more_frees_its_rows)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation first = acquire_of("a", alpha, 1);
    struct operation second = acquire_of("b", alpha, 1);
    decide(&one, &first);
    mono_us began = clock_mono();
    struct lock_set set = lock_set_of(&two, &second);
    enum permit_status status;
    do {
        status = store_lock(two.store, &set, &two.arena, &two.view);
        cr_assert(status == PERMIT_OK || status == PERMIT_LOCK_TIMEOUT, "%s", two.store->message);
        cr_assert_eq(store_rollback(two.store), PERMIT_OK);
    } while (status != PERMIT_OK && clock_mono() - began < 40 * US_PER_SECOND);
    cr_assert_eq(run(&two, &second)->status, PERMIT_OK);
    cr_assert_lt(clock_mono() - began, 40 * US_PER_SECOND);
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_DATABASE_LOST);
}

Test(contract, ids_are_reserved_once)
{
    struct id_range a, b, c;
    uint64_t epoch;
    must_run(eye, "UPDATE cluster SET epoch = 7");
    cr_assert_eq(store_reserve_ids(one.store, 10000, &a, &epoch), PERMIT_OK);
    cr_assert_eq(store_reserve_ids(two.store, 10000, &b, &epoch), PERMIT_OK);
    cr_assert_eq(store_reserve_ids(one.store, 10000, &c, &epoch), PERMIT_OK);
    cr_assert_eq(epoch, 7);
    cr_assert_eq(a.end - a.next, 10000);
    cr_assert_geq(b.next, a.end);
    cr_assert_geq(c.next, b.end);
}

Test(contract, the_floor_is_the_smallest_live_token)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", beta, 1);
    struct operation second = acquire_of("b", beta, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    uint64_t floors[2];
    cr_assert_eq(run(&one, &first)->status, PERMIT_OK);
    cr_assert_eq(run(&one, &second)->status, PERMIT_OK);
    uint64_t ids[] = {(uint64_t)number_of(eye, "SELECT id FROM semaphore WHERE name = 'beta'"), 999999};
    cr_assert_eq(store_floors(one.store, ids, 2, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 1);
    cr_assert_eq(floors[1], 0);
    cr_assert_eq(run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(store_floors(one.store, ids, 1, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 2);
    release.external_id = BYTES("b");
    cr_assert_eq(run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(store_floors(one.store, ids, 1, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 3);
}

/* The statement of the packet that begins so, explained: the index it walks. */
static void explains(const char *packet, const char *beginning, const char *index)
{
    const char *statement = strstr(packet, beginning);
    cr_assert_not_null(statement, "%s", packet);
    struct explained table;
    cr_assert_geq(explain(eye, statement, &table, 1), 1);
    cr_assert(bytes_equal(table.key, bytes_of(index)), "%s walks %.*s", statement, (int)table.key.length,
              table.key.data);
    cr_assert(!bytes_equal(table.type, BYTES("ALL")) && !bytes_equal(table.type, BYTES("index")));
}

/* Also in a table so small that a scan would be cheaper: a scan locks, and waits for, the rows of strangers. */
Test(contract, locks_are_taken_along_the_primary_key)
{
    struct buf sql;
    uint64_t ids[] = {(uint64_t)number_of(eye, "SELECT MIN(id) FROM semaphore"),
                      (uint64_t)number_of(eye, "SELECT MAX(id) FROM semaphore")};
    struct slots_wanted wanted[] = {{.free = 1}, {.free = 1}};
    struct bytes keys[] = {BYTES("a"), BYTES("b")};
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = 2, .keys = keys, .key_count = 2};
    buf_init(&sql, 1 << 16);
    batch_lock_sql(&set, "''", &sql);
    explains(buf_text(&sql), "SELECT s.id", "PRIMARY");
    buf_clear(&sql);
    set.semaphore_count = 1;
    batch_lock_sql(&set, "''", &sql);
    explains(buf_text(&sql), "SELECT s.id", "PRIMARY");
    explains(buf_text(&sql), "SELECT number", "PRIMARY");
    buf_release(&sql);
}

static void release_together(struct side *side, const struct bytes *keys, size_t count)
{
    enum { MOST = 8 };
    struct operation releases[MOST];
    const struct operation *pointers[MOST];
    cr_assert_leq(count, MOST);
    for (size_t i = 0; i < count; i++) {
        releases[i] = (struct operation){.kind = OP_RELEASE, .external_id = keys[i]};
        pointers[i] = &releases[i];
    }
    uint64_t beta = (uint64_t)number_of(eye, "SELECT id FROM semaphore WHERE name = 'beta'");
    struct slots_wanted wanted = {0};
    const struct lock_set set = {
        .semaphore_ids = &beta, .slots_wanted = &wanted, .semaphore_count = 1, .keys = keys, .key_count = count};
    arena_clear(&side->arena);
    cr_assert_eq(store_lock(side->store, &set, &side->arena, &side->view), PERMIT_OK, "%s", side->store->message);
    cr_assert_eq(plan_batch(&side->view, pointers, count, side->ids, &side_settings, &side->arena, &side->plan),
                 PERMIT_OK);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(side->plan.outcomes[i].status, PERMIT_OK, "%s", side->plan.outcomes[i].detail);
    cr_assert_eq(store_apply(side->store, &side->plan.changes), PERMIT_OK, "%s", side->store->message);
}

/*
 * Most rows of the tables are in this batch: a scan would be the cheapest way to find them. With
 * innodb_snapshot_isolation, which is on from MariaDB 11.6 on, a scan waits for every row, in READ COMMITTED too.
 */
Test(contract, a_batch_does_not_wait_for_requests_of_other_semaphores)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct bytes keys[] = {BYTES("a"), BYTES("b"), BYTES("c"), BYTES("d"), BYTES("e"), BYTES("f"), BYTES("g")};
    struct operation stranger = acquire_of("stranger", alpha, 1);
    cr_assert_eq(run(&two, &stranger)->status, PERMIT_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        struct operation acquire = acquire_of(keys[i].data, beta, 1);
        cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    }
    (void)!session_run(eye, "SET GLOBAL innodb_snapshot_isolation = ON"); /* MySQL has none */
    struct side later;
    side_open(&later, address);
    (void)!session_run(eye, "SET GLOBAL innodb_snapshot_isolation = DEFAULT");
    must_run(eye, "ANALYZE TABLE permit_request, permit");
    must_run(eye, "BEGIN");
    must_run(eye, "UPDATE permit_request r JOIN permit p ON p.permit_request_id = r.id SET r.replays = 1, p.count = 1"
                  " WHERE r.external_id = 'stranger'");
    release_together(&later, keys, ARRAY_LENGTH(keys));
    must_run(eye, "ROLLBACK");
    side_close(&later);
    cr_assert_eq(number_of(eye, "SELECT COUNT(*) FROM permit_request WHERE state = 2"), ARRAY_LENGTH(keys));
}

/* A client that asks again and again comes to the end of a counter of 32 bits; each answer still changes its row. */
Test(contract, a_counter_that_is_full_begins_anew)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("k")};
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    must_run(eye, "UPDATE permit_request SET renewals = 4294967295, replays = 4294967295");
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_eq(run(&one, &renew)->status, PERMIT_OK);
    cr_assert_str_eq(text_of(eye, "SELECT CONCAT_WS(' ', renewals, replays) FROM permit_request"), "0 0");
    cr_assert_eq(run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_eq(run(&one, &renew)->status, PERMIT_OK);
    cr_assert_str_eq(text_of(eye, "SELECT CONCAT_WS(' ', renewals, replays) FROM permit_request"), "1 1");
}

/* No semaphore's lock keeps two permitd from counting the answers about a tombstone at the same time. */
Test(contract, a_counter_that_is_full_begins_anew_also_when_two_count)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert_eq(run(&one, &release)->status, PERMIT_OK);
    must_run(eye, "UPDATE permit_request SET replays = 4294967295");
    cr_assert(decide(&one, &release)->already_released);
    cr_assert(decide(&two, &release)->already_released);
    cr_assert_eq(store_apply(one.store, &one.plan.changes), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(store_apply(two.store, &two.plan.changes), PERMIT_OK, "%s", two.store->message);
    cr_assert_eq(number_of(eye, "SELECT replays FROM permit_request"), 1);
}

/* What a tick finds, and how long the clock has stood: it is an hour behind. */
static struct tick tick_after_an_hour(const struct tokens_seen *seen, size_t count)
{
    struct tick tick = {.seen = seen, .seen_count = count};
    must_run(eye, "UPDATE cluster SET tick_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR");
    cr_assert_eq(store_tick(one.store, &tick), PERMIT_OK, "%s", one.store->message);
    bool moved = number_of(eye, "SELECT tick_at > UTC_TIMESTAMP(6) - INTERVAL 30 MINUTE FROM cluster") != 0;
    cr_assert_eq(moved, tick.ret_won);
    return tick;
}

Test(contract, a_tick_notices_another_server_and_leaves_the_clock)
{
    must_run(eye, "UPDATE cluster SET identity = 'another', epoch = 7");
    struct tick tick = tick_after_an_hour(NULL, 0);
    cr_assert(!tick.ret_same_server && !tick.ret_won);
    cr_assert_eq(tick.ret_epoch, 7);
    cr_assert_eq(store_raise_epoch(one.store, EPOCH_SERVER, 7, 0), PERMIT_OK);
    tick = tick_after_an_hour(NULL, 0);
    cr_assert(tick.ret_same_server && tick.ret_won);
    cr_assert_gt(tick.ret_epoch, 7);
}

/* alpha and beta have given out nothing, so their next token is 1. */
Test(contract, a_tick_notices_tokens_that_would_come_again)
{
    enum { NOBODYS = 999999 };
    uint64_t alpha = (uint64_t)number_of(eye, "SELECT id FROM semaphore WHERE name = 'alpha'");
    uint64_t beta = (uint64_t)number_of(eye, "SELECT id FROM semaphore WHERE name = 'beta'");
    const struct {
        const char *what;
        struct tokens_seen seen[2];
        unsigned epoch;
        bool behind;
    } rows[] = {
        {"as it was", {{alpha, 1}, {beta, 1}}, 0, false},
        {"the second is behind", {{alpha, 1}, {beta, 2}}, 0, true},
        {"the first is behind", {{alpha, 2}, {beta, 1}}, 0, true},
        {"one is not there", {{alpha, 1}, {NOBODYS, 1}}, 0, true},
        {"the epoch has risen above it", {{alpha, 1024}, {NOBODYS, 1}}, 1, false},
        {"but not above this", {{alpha, 1025}, {beta, 1}}, 1, true},
    };
    cr_assert_eq(store_raise_epoch(one.store, EPOCH_SERVER, 0, 0), PERMIT_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char sql[64];
        (void)snprintf(sql, sizeof sql, "UPDATE cluster SET epoch = %u", rows[i].epoch);
        must_run(eye, sql);
        struct tick tick = tick_after_an_hour(rows[i].seen, ARRAY_LENGTH(rows[i].seen));
        cr_assert_eq(tick.ret_tokens_behind, rows[i].behind, "%s", rows[i].what);
        cr_assert_eq(tick.ret_won, !rows[i].behind, "%s", rows[i].what);
    }
}

Test(contract, a_tick_moves_the_clock_once_a_second)
{
    must_run(eye, "UPDATE cluster SET tick_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, offset_us = 0;"
                  "SET @before = (SELECT tick_at FROM cluster)");
    struct tick tick = {0};
    cr_assert_eq(store_raise_epoch(one.store, EPOCH_SERVER, 0, 0), PERMIT_OK);
    cr_assert_eq(store_tick(one.store, &tick), PERMIT_OK);
    cr_assert(tick.ret_won);
    int64_t offset_us = number_of(eye, "SELECT offset_us FROM cluster");
    int64_t passed_us = number_of(eye, "SELECT TIMESTAMPDIFF(MICROSECOND, @before, tick_at) FROM cluster");
    cr_assert_geq(passed_us, 3600LL * US_PER_SECOND);
    cr_assert_gt(passed_us - offset_us, 0, "served time has moved by five seconds and not by an hour");
    cr_assert_lt(passed_us - offset_us, 6 * US_PER_SECOND);
    must_run(eye, "SET @before = (SELECT tick_at FROM cluster)");
    cr_assert_eq(number_of(eye, "SELECT @before <= UTC_TIMESTAMP(6)"), 1);
    cr_assert_eq(store_tick(two.store, &tick), PERMIT_OK);
    passed_us = number_of(eye, "SELECT TIMESTAMPDIFF(MICROSECOND, @before, tick_at) FROM cluster");
    cr_assert(tick.ret_won ? passed_us >= US_PER_SECOND : passed_us == 0, "a tick after %lld us", (long long)passed_us);
    if (!tick.ret_won)
        cr_assert_eq(number_of(eye, "SELECT offset_us FROM cluster"), offset_us);
}
