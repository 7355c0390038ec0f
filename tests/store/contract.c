/* SPDX-License-Identifier: MIT */
/*
 * The contract of store.h on a real database: the cases of tests/contract, and what needs SQL to do or to see: the
 * locks of a batch, batches that are written completely or not at all, and errors for rows that differ from what was
 * read. plan_batch decides the batches, as in the service.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batch_fixture.h"
#include "contract.h"
#include "core/plan.h"
#include "fixture.h"
#include "store/batch.h"

static const struct database_address *address;
static struct session *observer; /* reads the rows with plain SQL */
static struct fixture one, two;

static void contract_begin(void)
{
    address = fresh_database();
    observer = connected(address, STORE_READER);
    fixture_open(&one, store_open(address, STORE_WORKER, NULL));
    fixture_open(&two, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&one, "alpha", KIND_SLOTTED, 3);
    semaphore_make(&one, "beta", KIND_COUNTED, 10);
}

static void contract_end(void)
{
    fixture_close(&one);
    fixture_close(&two);
    session_free(observer);
}

TestSuite(contract, .init = contract_begin, .fini = contract_end, .timeout = 300);

#define ALPHA_AND_BETA                                                                                                 \
    {                                                                                                                  \
        {.semaphore = BYTES("alpha"), .count = 2},                                                                     \
        {                                                                                                              \
            .semaphore = BYTES("beta"), .count = 4                                                                     \
        }                                                                                                              \
    }

/* Returns the semaphores, and the numbers of requests, bits of held permits, permits, and held slots. */
static const char *all_rows(void)
{
    return text_of(observer,
                   "SELECT CONCAT_WS(';', (SELECT GROUP_CONCAT(CONCAT_WS(',', name, in_use, next_permit_id) ORDER BY"
                   " name) FROM semaphore), (SELECT COUNT(*) FROM permit_request), (SELECT COALESCE(SUM("
                   "BIT_COUNT(bits)), 0) FROM held), (SELECT COUNT(*) FROM permit), (SELECT COUNT(*) FROM slot WHERE"
                   " permit_id <> 0))");
}

void contract_fail(const char *file, int line, const char *condition, const char *message)
{
    cr_assert_fail("%s:%d: %s %s", file, line, condition, message);
    abort();
}

void mark_as_shop(const char *key, uint32_t errand)
{
    char sql[500];
    snprintf(sql, sizeof sql,
             "START TRANSACTION; UPDATE permit_request SET errand=%u,confirmed_at=IF(%u,UTC_TIMESTAMP(6),confirmed_at)"
             " WHERE external_id='%s'; INSERT INTO errand (bucket,permit_request_id)"
             " SELECT CONNECTION_ID() & 63,id FROM permit_request WHERE external_id='%s'; COMMIT",
             errand, errand & ERRAND_CONFIRM, key, key);
    must_run(observer, sql);
}

Test(contract, cases_of_every_store_hold, .timeout = 900)
{
    for (size_t i = 0; i < contract_case_count; i++) {
        if (i > 0) { /* each case has a database of its own */
            contract_end();
            contract_begin();
        }
        cr_log_info("%s", contract_cases[i].name);
        contract_cases[i].run(&one, &two);
    }
}

Test(contract, grant_and_release_are_written_to_all_tables)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    const struct outcome *outcome = batch_run(&one, &acquire);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert(outcome->created);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;2;2");
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    outcome = batch_run(&two, &release);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_str_eq(all_rows(), "alpha,0,2,beta,0,2;1;0;2;0");
    outcome = batch_run(&one, &release);
    cr_assert(outcome->already_released);
}

/* Else each batch would walk all held slots before the first free one. */
Test(contract, first_free_follows_the_grants_of_a_new_semaphore)
{
    static const char first_free[] = "SELECT first_free FROM semaphore WHERE name = 'alpha'";
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 2}};
    struct operation acquire = acquire_of("k", alpha, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert_eq(number_of(observer, first_free), 1);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_eq(number_of(observer, first_free), 3);
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(number_of(observer, first_free), 1);
}

Test(contract, replay_reads_the_grant)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    const struct outcome *outcome = batch_run(&two, &acquire);
    cr_assert_eq(outcome->status, PERMIT_OK);
    cr_assert(outcome->replayed);
    cr_assert_eq(outcome->request->permit_count, 2);
    cr_assert_eq(outcome->request->permits[0].slots.count + outcome->request->permits[1].slots.count, 2);
    cr_assert_eq(outcome->request->ended_at, NEVER);
    cr_assert_eq(number_of(observer, "SELECT replays FROM permit_request"), 1);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;2;2");
}

Test(contract, grant_keeps_the_nonce_of_its_acquire)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation acquire = acquire_of("k", wants, 1), other = acquire_of("j", wants, 1);
    const struct bytes nonce = BYTES("it's \\ mine");
    acquire.nonce = nonce;
    cr_assert(bytes_equal(batch_run(&one, &acquire)->request->nonce, nonce));
    acquire.nonce = BYTES("another");
    cr_assert(bytes_equal(batch_run(&two, &acquire)->request->nonce, nonce), "a replay reads another nonce");
    cr_assert_eq(batch_run(&one, &other)->request->nonce.length, 0);
    cr_assert_eq(batch_run(&two, &other)->request->nonce.length, 0);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert(bytes_equal(batch_run(&two, &release)->request->nonce, nonce));
    cr_assert_str_eq(text_of(observer, "SELECT GROUP_CONCAT(nonce ORDER BY external_id) FROM permit_request"),
                     ",it's \\ mine");
}

Test(contract, resolve_of_keys_reads_no_names)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    struct resolve_key key = {.external_id = BYTES("k")};
    struct resolve resolve = {.keys = &key, .key_count = 1};
    sent_record();
    cr_assert_eq(two.store->batch->resolve(two.store, &resolve, &two.arena), PERMIT_OK, "%s", two.store->message);
    cr_assert_eq(key.ret_count, 2);
    cr_assert_null(strstr(sent_text(), "FROM semaphore"), "%s", sent_text());
}

Test(contract, release_of_an_unknown_key_writes_a_tombstone)
{
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("nobody")};
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(number_of(observer, "SELECT end_reason FROM permit_request WHERE external_id = 'nobody'"),
                 END_NEVER_HELD);
}

/* The packet of a release that was decided without locks raises, because another session has changed a row. */
static void release_is_refused_after(const char *sql)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    enum mismatch mismatch;
    cr_assert_eq(fixture_advance_epoch(one.store, EPOCH_SERVER, 0, 0), PERMIT_OK);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    batch_decide(&one, &release);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    const struct assumed assumed = {.epoch = one.view.clock.epoch,
                                    .now = lease_time(&one.view.clock, one.view.now),
                                    .slack_us = 60 * US_PER_SECOND};
    must_run(observer, sql);
    char before[4096];
    snprintf(before, sizeof before, "%s", all_rows());
    cr_assert_eq(one.store->batch->commit_if_unchanged(one.store, &one.plan.changes, &assumed, &mismatch),
                 PERMIT_CONFLICT);
    cr_assert_eq(mismatch, MISMATCH_GUARD);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), before);
}

Test(contract, slot_already_free_raises)
{
    release_is_refused_after("UPDATE slot SET permit_id = 0 WHERE number = 1");
}

Test(contract, missing_request_raises)
{
    release_is_refused_after("DELETE FROM permit_request");
}

Test(contract, ended_request_raises)
{
    release_is_refused_after("UPDATE permit_request SET state = 2");
}

/* An errand raises no version, so nothing else keeps a batch on copies from ending what a shop has sold. */
Test(contract, request_with_another_errand_raises)
{
    release_is_refused_after("UPDATE permit_request SET errand = 1, confirmed_at = UTC_TIMESTAMP(6)");
}

/* A request has at most REQUEST_MAX_SEMAPHORES permits. The engine relies on it; the database does not check it. */
Test(contract, request_with_too_many_permits_is_an_internal_error)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    must_run(observer,
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count, slots)"
             " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 63)"
             " SELECT semaphore_id, 1000 + i, permit_request_id, 1, '' FROM permit JOIN n WHERE semaphore_id ="
             " (SELECT id FROM semaphore WHERE name = 'beta')");
    struct lock_set set = lock_set_of(&one, &acquire);
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_INTERNAL);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    must_run(observer, "UPDATE permit_request SET due_at = '2000-01-01'");
    held_rewrite(address);
    struct operation other = acquire_of("j", (struct want[]){{.semaphore = BYTES("beta"), .count = 7}}, 1);
    const struct operation *operations[] = {&other};
    struct shortfall shortfall;
    set = lock_set_of(&one, &other);
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    fixture_judge(&one.view.clock, one.view.now);
    one.view.semaphores[0].next_due_at = 0;
    cr_assert_eq(plan_shortfalls(&one.view, operations, 1, &shortfall), 1);
    cr_assert_eq(one.store->batch->read_due(one.store, &shortfall, 1, &one.arena, &one.view), PERMIT_INTERNAL);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

/* Asserts that the batch as it was decided raises, and leaves no row and no lock. */
static void batch_is_refused(struct operation *operation)
{
    char before[4096];
    snprintf(before, sizeof before, "%s", all_rows());
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_INTERNAL);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), before);
    cr_assert_eq(batch_run(&two, operation)->status, PERMIT_OK, "the locks are free again");
}

/* The batch writes the usage of one semaphore, or of two in one statement; each of them differs once. */
static void semaphore_is_checked(const char *const keys[3], void (*change)(struct semaphore_image *image))
{
    struct want wants[] = ALPHA_AND_BETA;
    for (size_t i = 0; i < 3; i++) {
        struct operation acquire = acquire_of(keys[i], wants, i < 2 ? 2 : 1);
        struct operation release = {.kind = OP_RELEASE, .external_id = bytes_of(keys[i])};
        batch_decide(&one, &acquire);
        change(&one.plan.changes.semaphores[i % 2]);
        batch_is_refused(&acquire);
        cr_assert_eq(batch_run(&two, &release)->status, PERMIT_OK);
    }
}

static void change_version(struct semaphore_image *image)
{
    image->expected_version++;
    image->semaphore->version++;
}

static void change_version_back(struct semaphore_image *image)
{
    image->expected_version--;
    image->semaphore->version--;
}

static void change_id(struct semaphore_image *image)
{
    image->semaphore->id += 1000000; /* there is no such row */
}

Test(contract, changed_semaphore_raises)
{
    semaphore_is_checked((const char *const[]){"a", "b", "c"}, change_version);
    semaphore_is_checked((const char *const[]){"d", "e", "f"}, change_version_back);
}

Test(contract, missing_semaphore_raises)
{
    semaphore_is_checked((const char *const[]){"a", "b", "c"}, change_id);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM semaphore"), 2);
}

Test(contract, permits_of_several_semaphores_end_in_one_statement)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    sent_record();
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    const char *first = strstr(sent_text(), "INSERT INTO held ");
    cr_assert(first && !strstr(first + 1, "INSERT INTO held "), "%s", sent_text());
    cr_assert_null(strstr(sent_text(), "permit SET"), "the rows of the permits stay as they are");
    cr_assert_str_eq(all_rows(), "alpha,0,2,beta,0,2;1;0;2;0");
}

Test(contract, batch_that_fails_late_writes_nothing)
{
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    batch_decide(&one, &acquire);
    cr_assert_gt(one.plan.changes.slot_count, 0);
    one.plan.changes.slots[one.plan.changes.slot_count - 1].number = 77; /* there is no such row */
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_INTERNAL);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,0,1,beta,0,1;0;0;0;0");
}

Test(contract, connection_lost_before_commit_writes_nothing)
{
    char sql[64];
    struct want wants[] = ALPHA_AND_BETA;
    struct operation acquire = acquire_of("k", wants, 2);
    batch_decide(&one, &acquire);
    int64_t id =
        number_of(observer, "SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID IN"
                            " (SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX)");
    snprintf(sql, sizeof sql, "KILL CONNECTION %lld", (long long)id);
    must_run(observer, sql);
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_DATABASE_LOST);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,0,1,beta,0,1;0;0;0;0");
    cr_assert_eq(one.store->session->reconnect(one.store), PERMIT_OK);
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_str_eq(all_rows(), "alpha,2,2,beta,4,2;1;2;2;2");
}

/* permitd is stopped inside a batch, as it were: the server ends a transaction that is idle for 5 s (P12). */
Test(contract, idle_transaction_frees_its_rows)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct operation first = acquire_of("a", alpha, 1);
    struct operation second = acquire_of("b", alpha, 1);
    batch_decide(&one, &first);
    mono_us began = clock_mono();
    struct lock_set set = lock_set_of(&two, &second);
    enum permit_status status;
    do {
        status = two.store->batch->lock(two.store, &set, &two.arena, &two.view);
        cr_assert(status == PERMIT_OK || status == PERMIT_LOCK_TIMEOUT, "%s", two.store->message);
        cr_assert_eq(two.store->batch->rollback(two.store), PERMIT_OK);
    } while (status != PERMIT_OK && clock_mono() - began < 40 * US_PER_SECOND);
    cr_assert_eq(batch_run(&two, &second)->status, PERMIT_OK);
    cr_assert_lt(clock_mono() - began, 40 * US_PER_SECOND);
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_DATABASE_LOST);
}

Test(contract, ids_are_reserved_once)
{
    struct id_range a, b, c;
    uint64_t epoch;
    must_run(observer, "UPDATE cluster SET epoch = 7");
    cr_assert_eq(one.store->batch->reserve_ids(one.store, 10000, &a, &epoch), PERMIT_OK);
    cr_assert_eq(two.store->batch->reserve_ids(two.store, 10000, &b, &epoch), PERMIT_OK);
    cr_assert_eq(one.store->batch->reserve_ids(one.store, 10000, &c, &epoch), PERMIT_OK);
    cr_assert_eq(epoch, 7);
    cr_assert_eq(a.end - a.next, 10000);
    cr_assert_geq(b.next, a.end);
    cr_assert_geq(c.next, b.end);
}

Test(contract, floor_is_the_smallest_live_token)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation first = acquire_of("a", beta, 1);
    struct operation second = acquire_of("b", beta, 1);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("a")};
    uint64_t floors[2];
    cr_assert_eq(batch_run(&one, &first)->status, PERMIT_OK);
    cr_assert_eq(batch_run(&one, &second)->status, PERMIT_OK);
    uint64_t ids[] = {(uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'beta'"), 999999};
    cr_assert_eq(one.store->clock->floors(one.store, ids, 2, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 1);
    cr_assert_eq(floors[1], 0);
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(one.store->clock->floors(one.store, ids, 1, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 2);
    release.external_id = BYTES("b");
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(one.store->clock->floors(one.store, ids, 1, floors), PERMIT_OK);
    cr_assert_eq(floors[0], 3);
}

/* Asserts the index that EXPLAIN shows for the packet's statement that starts with `beginning`. */
static void explains(const char *packet, const char *beginning, const char *index)
{
    const char *statement = strstr(packet, beginning);
    cr_assert_not_null(statement, "%s", packet);
    struct explained table;
    cr_assert_geq(explain(observer, statement, &table, 1), 1);
    cr_assert(bytes_equal(table.key, bytes_of(index)), "%s walks %.*s", statement, (int)table.key.length,
              table.key.data);
    cr_assert(!bytes_equal(table.type, BYTES("ALL")) && !bytes_equal(table.type, BYTES("index")));
}

/* Even in a table so small that a scan would be cheaper: a scan locks, and waits for, rows of other requests. */
Test(contract, locks_are_taken_along_the_primary_key)
{
    struct buf sql;
    uint64_t ids[] = {(uint64_t)number_of(observer, "SELECT MIN(id) FROM semaphore"),
                      (uint64_t)number_of(observer, "SELECT MAX(id) FROM semaphore")};
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

/* The same for rows of requests. */
Test(contract, requests_are_locked_along_the_primary_key)
{
    struct buf sql;
    struct want want = {.semaphore = BYTES("beta"), .count = 1};
    for (int i = 0; i < 3; i++) {
        struct operation acquire = acquire_of((const char *[]){"a", "b", "c"}[i], &want, 1);
        cr_assert(batch_run(&one, &acquire)->created);
    }
    uint64_t ids[] = {(uint64_t)number_of(observer, "SELECT MIN(id) FROM permit_request"),
                      (uint64_t)number_of(observer, "SELECT MAX(id) FROM permit_request")};
    buf_init(&sql, 1 << 16);
    batch_lock_requests_sql(ids, 1, "NOWAIT", &sql);
    explains(buf_text(&sql), "SELECT id", "PRIMARY");
    buf_clear(&sql);
    batch_lock_requests_sql(ids, 2, "SKIP LOCKED", &sql);
    explains(buf_text(&sql), "SELECT id", "PRIMARY");
    buf_release(&sql);
}

static void release_together(struct fixture *fixture, const struct bytes *keys, size_t count)
{
    enum { MOST = 8 };
    struct operation releases[MOST];
    const struct operation *pointers[MOST];
    cr_assert_leq(count, MOST);
    for (size_t i = 0; i < count; i++) {
        releases[i] = (struct operation){.kind = OP_RELEASE, .external_id = keys[i]};
        pointers[i] = &releases[i];
    }
    uint64_t beta = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'beta'");
    struct slots_wanted wanted = {0};
    const struct lock_set set = {
        .semaphore_ids = &beta, .slots_wanted = &wanted, .semaphore_count = 1, .keys = keys, .key_count = count};
    arena_clear(&fixture->arena);
    cr_assert_eq(fixture->store->batch->lock(fixture->store, &set, &fixture->arena, &fixture->view), PERMIT_OK, "%s",
                 fixture->store->message);
    fixture_judge(&fixture->view.clock, fixture->view.now);
    cr_assert_eq(
        plan_batch(&fixture->view, pointers, count, fixture->ids, &fixture_settings, &fixture->arena, &fixture->plan),
        PERMIT_OK);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(fixture->plan.outcomes[i].status, PERMIT_OK, "%s", fixture->plan.outcomes[i].detail);
    cr_assert_eq(fixture->store->batch->commit(fixture->store, &fixture->plan.changes), PERMIT_OK, "%s",
                 fixture->store->message);
}

/*
 * Most rows of the tables are in this batch, so a scan would be the cheapest plan. With innodb_snapshot_isolation, the
 * default since MariaDB 11.6, a scan waits for every row, even in READ COMMITTED.
 */
Test(contract, batch_does_not_wait_for_requests_of_other_semaphores)
{
    struct want alpha[] = {{.semaphore = BYTES("alpha"), .count = 1}};
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct bytes keys[] = {BYTES("a"), BYTES("b"), BYTES("c"), BYTES("d"), BYTES("e"), BYTES("f"), BYTES("g")};
    struct operation stranger = acquire_of("stranger", alpha, 1);
    cr_assert_eq(batch_run(&two, &stranger)->status, PERMIT_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        struct operation acquire = acquire_of(keys[i].data, beta, 1);
        cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    }
    (void)!session_run(observer, "SET GLOBAL innodb_snapshot_isolation = ON"); /* MySQL has none */
    struct fixture later;
    fixture_open(&later, store_open(address, STORE_WORKER, NULL));
    (void)!session_run(observer, "SET GLOBAL innodb_snapshot_isolation = DEFAULT");
    must_run(observer, "ANALYZE TABLE permit_request, permit");
    must_run(observer, "BEGIN");
    must_run(observer,
             "UPDATE permit_request r JOIN permit p ON p.permit_request_id = r.id SET r.replays = 1, p.count = 1"
             " WHERE r.external_id = 'stranger'");
    release_together(&later, keys, ARRAY_LENGTH(keys));
    must_run(observer, "ROLLBACK");
    fixture_close(&later);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM permit_request WHERE state = 2"), ARRAY_LENGTH(keys));
}

/* A client that repeats a request can exhaust a 32-bit counter; each answer must still change its row. */
Test(contract, full_counter_restarts_at_zero)
{
    struct want beta[] = {{.semaphore = BYTES("beta"), .count = 1}};
    struct operation acquire = acquire_of("k", beta, 1);
    struct operation renew = {.kind = OP_RENEW, .external_id = BYTES("k")};
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    must_run(observer, "UPDATE permit_request SET renewals = 4294967295, replays = 4294967295");
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_eq(batch_run(&one, &renew)->status, PERMIT_OK);
    cr_assert_str_eq(text_of(observer, "SELECT CONCAT_WS(' ', renewals, replays) FROM permit_request"), "0 0");
    cr_assert_eq(batch_run(&one, &acquire)->status, PERMIT_OK);
    cr_assert_eq(batch_run(&one, &renew)->status, PERMIT_OK);
    cr_assert_str_eq(text_of(observer, "SELECT CONCAT_WS(' ', renewals, replays) FROM permit_request"), "1 1");
}

static struct tick read_tick(const struct tokens_seen *seen, size_t count)
{
    struct tick tick = {.seen = seen, .seen_count = count};
    cr_assert_eq(one.store->clock->read_tick(one.store, &tick), PERMIT_OK, "%s", one.store->message);
    return tick;
}

/* Returns true if the tick is written. */
static bool write_tick(const struct tick *tick)
{
    struct lease_row after = tick->ret_row;
    bool won;
    after.ticks++;
    cr_assert_eq(one.store->clock->write_tick(one.store, &tick->ret_row, &after, &won), PERMIT_OK, "%s",
                 one.store->message);
    return won;
}

Test(contract, tick_detects_another_server_and_leaves_the_clock)
{
    struct tick tick = read_tick(NULL, 0);
    cr_assert_not(tick.ret_same_server);
    cr_assert_not(write_tick(&tick), "no permitd has recorded this server");
    cr_assert_eq(fixture_advance_epoch(one.store, EPOCH_SERVER, 0, 0), PERMIT_OK);
    tick = read_tick(NULL, 0);
    cr_assert(tick.ret_same_server);
    cr_assert(write_tick(&tick));
    tick = read_tick(NULL, 0);
    must_run(observer, "UPDATE cluster SET identity = 'another', epoch = 7");
    cr_assert_not(write_tick(&tick));
    tick = read_tick(NULL, 0);
    cr_assert_not(tick.ret_same_server);
    cr_assert_eq(tick.ret_row.clock.epoch, 7);
    cr_assert_eq(fixture_advance_epoch(one.store, EPOCH_SERVER, 7, 0), PERMIT_OK);
    tick = read_tick(NULL, 0);
    cr_assert(tick.ret_same_server);
    cr_assert_gt(tick.ret_row.clock.epoch, 7);
}

/* alpha and beta have issued no token, so their next token is 1. */
Test(contract, tick_detects_tokens_that_would_be_reissued)
{
    enum { NOBODYS = 999999 };
    uint64_t alpha = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'alpha'");
    uint64_t beta = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'beta'");
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
    cr_assert_eq(fixture_advance_epoch(one.store, EPOCH_SERVER, 0, 0), PERMIT_OK);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char sql[64];
        (void)snprintf(sql, sizeof sql, "UPDATE cluster SET epoch = %u", rows[i].epoch);
        must_run(observer, sql);
        struct tick tick = read_tick(rows[i].seen, ARRAY_LENGTH(rows[i].seen));
        cr_assert_eq(tick.ret_tokens_behind, rows[i].behind, "%s", rows[i].what);
    }
}
