/* SPDX-License-Identifier: MIT */
/*
 * The rows of owners on a real MariaDB: many changes in one transaction, lapses and the requests that end with them,
 * and the indexes used.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/owners.h"

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct session *observer;
static struct arena arena;
static struct query_time now;

static void owners_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_WORKER);
    session = session_of(store);
    observer = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
}

static void owners_finish(void)
{
    arena_release(&arena);
    session_free(observer);
    store_free(store);
}

TestSuite(owners, .init = owners_begin, .fini = owners_finish, .timeout = 300);

/* Inserts the held request `id` of an owner, with one permit; NULL texts are SQL NULL. held_rewrite must follow. */
static void request(int id, const char *owner, const char *ttl_ms, const char *acquired_at, bool confirmed)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "INSERT INTO permit_request (id, external_id, owner, ttl_ms, acquired_at, confirmed_at)"
             " VALUES (%d, 'r%d', '%s', %s, '%s', %s);"
             "INSERT INTO permit (semaphore_id, id, permit_request_id, count) VALUES (1, %d, %d, 1)",
             id, id, owner, ttl_ms, acquired_at, confirmed ? "'2026-01-01'" : "NULL", id, id);
    must_run(observer, sql);
}

Test(owners, one_transaction_creates_changes_and_deletes)
{
    must_run(observer, "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('changed', 1000, '2026-01-01'),"
                       " ('gone', 1000, '2026-01-01'), ('other', 7, '2026-01-01'), ('same', 7, '2026-01-01')");
    const struct bytes names[] = {BYTES("Changed"), BYTES("changed"), BYTES("gone"), BYTES("new"), BYTES("same")};
    struct owner_image images[ARRAY_LENGTH(names)];
    cr_assert_eq(store->owners->lock(store, names, ARRAY_LENGTH(names), true, &arena, images, &now), PERMIT_OK, "%s",
                 session_message(session));
    static const bool was[] = {false, true, true, false, true};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        cr_assert(images[i].existed == was[i] && images[i].exists == was[i] && !images[i].changed, "%zu", i);
        cr_assert(bytes_equal(images[i].owner.name, names[i]));
    }
    cr_assert_eq(images[1].owner.ttl_ms, 1000);
    cr_assert_eq(images[1].owner.lapsed_at, NEVER);
    cr_assert_gt(now.now, images[1].owner.due_at);
    images[1].owner.ttl_ms = 2000;
    images[1].owner.lapsed_at = images[1].owner.due_at;
    images[2].exists = false;
    images[3].owner.due_at = images[1].owner.due_at + 1;
    images[3].owner.replays = 3;
    images[3].exists = true;
    for (size_t i = 1; i <= 3; i++)
        images[i].changed = true;
    cr_assert_eq(store->owners->write(store, images, ARRAY_LENGTH(names)), PERMIT_OK, "%s", session_message(session));
    cr_assert_str_eq(text_of(observer, "SELECT GROUP_CONCAT(name ORDER BY name) FROM owner"), "changed,new,other,same");
    cr_assert_str_eq(text_of(observer, "SELECT CONCAT_WS(' ', ttl_ms, due_at, lapsed_at, settled_at IS NULL) FROM owner"
                                       " WHERE name = 'changed'"),
                     "2000 2026-01-01 00:00:00.000000 2026-01-01 00:00:00.000000 1");
    cr_assert_str_eq(text_of(observer, "SELECT CONCAT_WS(' ', due_at, replays, lapsed_at IS NULL) FROM owner"
                                       " WHERE name = 'new'"),
                     "2026-01-01 00:00:00.000001 3 1");
}

Test(owners, concurrent_creation_is_a_conflict_and_overwrites_nothing)
{
    const struct bytes name = BYTES("twice");
    struct owner_image image;
    cr_assert_eq(store->owners->lock(store, &name, 1, true, &arena, &image, &now), PERMIT_OK);
    must_run(observer, "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('twice', 9, '2026-01-01')");
    image.owner.due_at = 1;
    image.exists = image.changed = true;
    cr_assert_eq(store->owners->write(store, &image, 1), PERMIT_CONFLICT);
    store->owners->rollback(store);
    cr_assert_eq(number_of(observer, "SELECT ttl_ms FROM owner"), 9);
}

Test(owners, locked_row_is_waited_for_and_others_are_not)
{
    must_run(observer,
             "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('a', 1, '2026-01-01'), ('b', 1, '2026-01-01')");
    const struct bytes a = BYTES("a"), b = BYTES("b");
    struct owner_image image;
    struct store *other = opened(address, STORE_WORKER);
    cr_assert_eq(store->owners->lock(store, &a, 1, true, &arena, &image, &now), PERMIT_OK);
    cr_assert_eq(other->owners->lock(other, &b, 1, true, &arena, &image, &now), PERMIT_OK);
    other->owners->rollback(other);
    cr_assert_eq(other->owners->lock(other, &a, 1, true, &arena, &image, &now), PERMIT_LOCK_TIMEOUT);
    other->owners->rollback(other);
    cr_assert_eq(other->owners->lock(other, &b, 1, false, &arena, &image, &now), PERMIT_OK);
    other->owners->rollback(other);
    cr_assert_eq(other->owners->lock(other, &a, 1, false, &arena, &image, &now), PERMIT_LOCK_TIMEOUT);
    other->owners->rollback(other);
    store->owners->rollback(store);
    cr_assert_eq(other->owners->lock(other, &a, 1, true, &arena, &image, &now), PERMIT_OK);
    other->owners->rollback(other);
    store_free(other);
}

/*
 * `dead` lapsed at noon. Its requests 1 (before), 2 (by heartbeat) and 3 (until released) end with it; 4 (after), 5
 * (confirmed), 6 (ended) and 7 (of another owner) do not. `tidy` lapsed too, and holds only later requests.
 */
static void lapses_make(void)
{
    must_run(observer, "INSERT INTO owner (name, ttl_ms, due_at, lapsed_at, settled_at) VALUES"
                       " ('alive', 1000, '2026-06-01', NULL, NULL), ('due', 1000, '2026-01-01', NULL, NULL),"
                       " ('dead', 1000, '2026-01-01 11:00', '2026-01-01 12:00', NULL),"
                       " ('tidy', 1000, '2026-01-01 11:00', '2026-01-01 12:00', NULL),"
                       " ('old', 1000, '2026-01-01 01:00', '2026-01-01 02:00', '2026-01-01 02:01')");
    request(1, "dead", "5000", "2026-01-01 11:59", false);
    request(2, "dead", "0", "2026-01-01 12:01", false);
    request(3, "dead", "NULL", "2026-01-01 12:00", false);
    request(4, "dead", "5000", "2026-01-01 12:01", false);
    request(5, "dead", "0", "2026-01-01 11:00", true);
    request(6, "dead", "5000", "2026-01-01 11:00", false);
    request(7, "alive", "0", "2026-01-01 11:00", false);
    request(8, "tidy", "5000", "2026-01-01 12:01", false);
    must_run(observer,
             "UPDATE permit_request SET state = 2, end_reason = 1, ended_at = '2026-01-01 11:30' WHERE id = 6");
    held_rewrite(address);
}

static utc_us time_of(const char *sql)
{
    char text[256];
    snprintf(text, sizeof text, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', '%s')", sql);
    return number_of(observer, text);
}

Test(owners, lapses_are_found_with_their_requests)
{
    struct owner *owners;
    size_t count;
    struct owner_ends ends[OWNERS_PAGE];
    lapses_make();
    cr_assert_eq(store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &owners, &count), PERMIT_OK);
    cr_assert_eq(count, 2);
    cr_assert(bytes_equal(owners[0].name, BYTES("dead")) && bytes_equal(owners[1].name, BYTES("tidy")));
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK, "%s", session_message(session));
    cr_assert_eq(ends[0].count, 3);
    cr_assert(bytes_equal(ends[0].keys[0], BYTES("r1")) && bytes_equal(ends[0].keys[1], BYTES("r2")) &&
              bytes_equal(ends[0].keys[2], BYTES("r3")));
    cr_assert_eq(ends[1].count, 0);
    cr_assert_eq(store->owners->lapsed(store, owners[0].lapsed_at, owners[0].name, &arena, &owners, &count), PERMIT_OK);
    cr_assert(count == 1 && bytes_equal(owners[0].name, BYTES("tidy")));
}

Test(owners, lapse_ends_a_request_with_three_permits_once)
{
    struct owner *owners;
    size_t count;
    struct owner_ends ends[OWNERS_PAGE];
    lapses_make();
    must_run(observer, "INSERT INTO permit (semaphore_id, id, permit_request_id, count) VALUES (2, 1, 1, 1),"
                       " (3, 900, 1, 1)");
    held_rewrite(address);
    cr_assert_eq(store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &owners, &count), PERMIT_OK);
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK, "%s", session_message(session));
    cr_assert_eq(ends[0].count, 3);
    cr_assert(bytes_equal(ends[0].keys[0], BYTES("r1")) && bytes_equal(ends[0].keys[1], BYTES("r2")));
}

/* 250 confirmed requests are in rows before the others. */
Test(owners, page_of_ends_is_full_while_enough_requests_end)
{
    enum { CONFIRMED = 250, ENDING = 130, FIRST = 1001 };
    struct owner *owners;
    size_t count;
    struct owner_ends ends[OWNERS_PAGE];
    lapses_make();
    for (int i = 0; i < CONFIRMED + ENDING; i++)
        request(FIRST + i, "tidy", "5000", "2026-01-01 11:00", i < CONFIRMED);
    must_run(observer, "UPDATE permit_request SET due_at = '2026-02-01' - INTERVAL id SECOND WHERE owner = 'tidy'");
    held_rewrite(address);
    cr_assert_eq(store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &owners, &count), PERMIT_OK);
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK, "%s", session_message(session));
    cr_assert_eq(ends[1].count, OWNERS_ENDS);
    must_run(observer, "UPDATE permit_request SET state = 2 WHERE id >= 1281");
    held_rewrite(address);
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK);
    cr_assert_eq(ends[1].count, 30);
    cr_assert(bytes_equal(ends[1].keys[0], BYTES("r1251")) && bytes_equal(ends[1].keys[29], BYTES("r1280")));
}

Test(owners, revived_owner_has_no_requests_to_end)
{
    struct owner *owners;
    size_t count;
    struct owner_ends ends[OWNERS_PAGE];
    lapses_make();
    cr_assert_eq(store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &owners, &count), PERMIT_OK);
    must_run(observer, "UPDATE owner SET lapsed_at = NULL WHERE name = 'dead'");
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK);
    cr_assert_eq(ends[0].count, 0);
}

Test(owners, heartbeat_reads_whether_requests_of_the_lapse_are_held)
{
    const struct bytes names[] = {BYTES("alive"), BYTES("dead"), BYTES("nobody"), BYTES("old"), BYTES("tidy")};
    static const bool holding[] = {false, true, false, false, false};
    struct owner_image images[ARRAY_LENGTH(names)];
    lapses_make();
    cr_assert_eq(store->owners->lock(store, names, ARRAY_LENGTH(names), true, &arena, images, &now), PERMIT_OK);
    cr_assert_eq(store->owners->read_holding(store, images, ARRAY_LENGTH(names)), PERMIT_OK, "%s",
                 session_message(session));
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        cr_assert_eq(images[i].holding, holding[i], "%s", names[i].data);
    store->owners->rollback(store);
}

Test(owners, due_and_removable_owners_are_found_by_their_times)
{
    struct owner *owners;
    size_t count;
    lapses_make();
    cr_assert_eq(store->owners->due(store, time_of("2026-02-01"), &arena, &owners, &count), PERMIT_OK);
    cr_assert(count == 1 && bytes_equal(owners[0].name, BYTES("due")));
    cr_assert_eq(store->owners->due(store, time_of("2026-07-01"), &arena, &owners, &count), PERMIT_OK);
    cr_assert(count == 2 && bytes_equal(owners[1].name, BYTES("alive")));
    cr_assert_eq(store->owners->removable(store, time_of("2026-01-01 02:01"), &arena, &owners, &count), PERMIT_OK);
    cr_assert_eq(count, 0);
    cr_assert_eq(store->owners->removable(store, time_of("2026-01-02"), &arena, &owners, &count), PERMIT_OK);
    cr_assert(count == 1 && bytes_equal(owners[0].name, BYTES("old")));
}

Test(owners, owner_is_shown_with_its_held_count_and_all_are_counted)
{
    struct owner owner;
    uint64_t held;
    uint64_t counts[OWNER_LIFE_COUNT];
    lapses_make();
    cr_assert_eq(store->owners->get(store, BYTES("dead"), &arena, &owner, &held, &now), PERMIT_OK);
    cr_assert_eq(owner.lapsed_at, time_of("2026-01-01 12:00"));
    cr_assert_eq(held, 5);
    cr_assert_eq(store->owners->get(store, BYTES("Dead"), &arena, &owner, &held, &now), PERMIT_UNKNOWN_OWNER);
    must_run(observer, "UPDATE owner SET due_at = '2100-01-01' WHERE name = 'alive'");
    cr_assert_eq(store->owners->count(store, counts), PERMIT_OK, "%s", session_message(session));
    cr_assert(counts[OWNER_ALIVE] == 1 && counts[OWNER_LATE] == 1 && counts[OWNER_LAPSED] == 3);
}

Test(owners, probe_gets_each_owner_of_unconfirmed_requests_once)
{
    struct owner_holder *holders;
    size_t count;
    lapses_make();
    request(20, "", "5000", "2026-01-01", false);
    request(21, "sold", "5000", "2026-01-01", true);
    held_rewrite(address);
    must_run(observer, "INSERT INTO permit_request (id, external_id, owner, ttl_ms, acquired_at, state)"
                       " SELECT seq, CONCAT('e', seq), CONCAT('ended', seq), 1, '2026-01-01', 2"
                       " FROM numbers.upto WHERE seq BETWEEN 1000 AND 1999");
    cr_assert_eq(store->owners->holding_page(store, (struct bytes){0}, &arena, &holders, &count, &now), PERMIT_OK, "%s",
                 session_message(session));
    static const struct {
        const char *name;
        bool is_probed;
    } expected[] = {{"alive", true}, {"dead", true}, {"sold", false}, {"tidy", true}};
    cr_assert_eq(count, ARRAY_LENGTH(expected));
    for (size_t i = 0; i < count; i++)
        cr_assert(bytes_equal(holders[i].name, bytes_of(expected[i].name)) &&
                      holders[i].is_probed == expected[i].is_probed,
                  "%s", expected[i].name);
    cr_assert_eq(store->owners->holding_page(store, BYTES("dead"), &arena, &holders, &count, &now), PERMIT_OK);
    cr_assert(count == 2 && bytes_equal(holders[0].name, BYTES("sold")));
}

/* ---- a grant after a settled lapse ---- */

/* Makes one call on the owner `o`. Returns false if the server has ended the idle session of a slow machine. */
static bool call_owner(enum owner_call_kind kind, utc_us at, struct owner_outcome *ret_outcome)
{
    const struct bytes name = BYTES("o");
    const struct owner_call call = {.kind = kind, .name = name, .ttl_ms = 1000, .at = at};
    struct owner_image image;
    if (session_connect(session) != PERMIT_OK ||
        store->owners->lock(store, &name, 1, true, &arena, &image, &now) != PERMIT_OK ||
        store->owners->read_holding(store, &image, 1) != PERMIT_OK)
        return false;
    fixture_judge(&now.clock, now.now);
    owner_decide(&call, &now.clock, now.now, &image, ret_outcome);
    return store->owners->write(store, &image, 1) == PERMIT_OK;
}

/*
 * Grants in a batch that has read its clock before the owner is deleted, and writes after the lapse is settled with no
 * request to end.
 */
static bool grant_late(struct fixture *fixture, struct operation *acquire)
{
    struct owner_outcome outcome;
    struct owner *lapsed;
    struct owner_ends ends;
    size_t count;
    if (batch_decide(fixture, acquire)->status != PERMIT_OK || !call_owner(OWNER_GONE, 0, &outcome) ||
        store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &lapsed, &count) != PERMIT_OK)
        return false;
    cr_assert_eq(count, 1);
    cr_assert_eq(store->owners->ends(store, lapsed, count, &arena, &ends), PERMIT_OK);
    cr_assert_eq(ends.count, 0);
    return call_owner(OWNER_SETTLE, lapsed[0].lapsed_at, &outcome) &&
           fixture->store->batch->commit(fixture->store, &fixture->plan.changes) == PERMIT_OK;
}

/*
 * The grant looks older than the lapse, and nothing ends it: heartbeats must not be refused for as long as it is held.
 */
Test(owners, grant_committed_after_a_settled_lapse_blocks_no_heartbeat)
{
    enum { TRIES = 20 };
    struct fixture fixture;
    struct owner_outcome outcome;
    char key[16];
    bool granted = false;
    fixture_open(&fixture, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&fixture, "s", KIND_COUNTED, 100);
    for (int i = 0; i < TRIES && !granted; i++) {
        must_run(observer, "REPLACE INTO owner (name, ttl_ms, due_at) VALUES ('o', 1000, '2100-01-01')");
        (void)snprintf(key, sizeof key, "k%d", i);
        struct want want = {.semaphore = BYTES("s"), .count = 1};
        struct operation acquire = acquire_of(key, &want, 1);
        acquire.owner = BYTES("o");
        fixture.store->session->disconnect(fixture.store); /* the server ends a worker's session that is idle for 5 s */
        cr_assert_eq(fixture.store->session->reconnect(fixture.store), PERMIT_OK, "%s", fixture.store->message);
        granted = grant_late(&fixture, &acquire);
        (void)fixture.store->batch->rollback(fixture.store);
        store->owners->rollback(store);
    }
    cr_assert(granted);
    cr_assert_gt(number_of(observer,
                           "SELECT COUNT(*) FROM permit_request r JOIN owner o ON o.name = r.owner"
                           " WHERE r.state = 1 AND r.acquired_at <= o.lapsed_at AND o.settled_at IS NOT NULL"),
                 0);
    cr_assert(call_owner(OWNER_BEAT, 0, &outcome), "%s", session_message(session));
    cr_assert_eq(outcome.status, PERMIT_OK);
    fixture_close(&fixture);
}

/* ---- access paths ---- */

/*
 * 20,000 owners are alive and 20,000 settled, and as many requests of theirs are held and ended: the rows read must not
 * grow with them.
 */
Test(owners, no_query_reads_more_than_it_finds)
{
    enum { SLACK = 60, BITS = 64 };
    struct owner *owners;
    struct owner_holder *holders;
    size_t count;
    struct owner_ends ends[OWNERS_PAGE];
    must_run_long(address,
                  "INSERT INTO owner (name, ttl_ms, due_at) SELECT CONCAT('a', seq), 1000, '2100-01-01'"
                  " FROM numbers.upto WHERE seq <= 20000;"
                  "INSERT INTO owner (name, ttl_ms, due_at, lapsed_at, settled_at)"
                  " SELECT CONCAT('b', seq), 1000, '2026-01-01', '2026-01-01', '2026-01-01'"
                  " FROM numbers.upto WHERE seq <= 20000;"
                  "INSERT INTO permit_request (id, external_id, owner, ttl_ms, acquired_at, state)"
                  " SELECT 100 + seq, CONCAT('x', seq), CONCAT('a', seq MOD 20), 5000, '2026-01-01', 1 + (seq MOD 2)"
                  " FROM numbers.upto WHERE seq <= 20000;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                  " SELECT 1, 100 + seq, 100 + seq, 1 FROM numbers.upto WHERE seq <= 20000");
    lapses_make();
    must_run_long(address, "ANALYZE TABLE owner, permit_request, permit, held, held_bit");
    session_drop(session); /* the server may have ended the worker's idle session */
    cr_assert_eq(session_connect(session), PERMIT_OK, "%s", session_message(session));
    (void)rows_read(session);
    cr_assert_eq(store->owners->due(store, time_of("2026-02-01"), &arena, &owners, &count), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK, "who is due");
    cr_assert_eq(store->owners->lapsed(store, 0, (struct bytes){0}, &arena, &owners, &count), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK, "who is lapsed");
    cr_assert_eq(store->owners->ends(store, owners, count, &arena, ends), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK + 20 * BITS, "what ends with them");
    cr_assert_eq(store->owners->removable(store, time_of("2026-01-01"), &arena, &owners, &count), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK, "whom to forget");
    cr_assert_eq(store->owners->holding_page(store, (struct bytes){0}, &arena, &holders, &count, &now), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK + (10 + BITS) * (int64_t)count, "owners of what is held");
    const struct bytes names[] = {BYTES("a1"), BYTES("b1")};
    struct owner_image images[2];
    cr_assert_eq(store->owners->lock(store, names, 2, true, &arena, images, &now), PERMIT_OK);
    cr_assert_eq(store->owners->read_holding(store, images, 2), PERMIT_OK);
    cr_assert_lt(rows_read(session), SLACK, "a heartbeat");
    store->owners->rollback(store);
}
