/* SPDX-License-Identifier: MIT */
/* The first holders and waiters of many semaphores at once, and the cost of /why, which reads them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "store/query.h"

enum { SEMAPHORES = REQUEST_MAX_SEMAPHORES, CROWDED = 3, EMPTY = 64, UNKNOWN = 99, LIVING = 7 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;
static struct query_time now;
static struct semaphore_front fronts[SEMAPHORES];

/*
 * Semaphores s1 to s64. s3 has the holders h1 to h300 with the tokens 1001 to 1300, each in a row of `held` of its own, and the
 * waiters w1 to w30, every third at no server; the others but s64 have one holder, the token 500 + id, and one waiter.
 */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 24);
    must_run_long(address,
                  "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms)"
                  " SELECT seq, CONCAT('s', seq), 2, 1, 1, 1 FROM numbers.upto WHERE seq <= 64;"
                  "INSERT INTO server (id, address, version, since, seen_at, ticks)"
                  " VALUES (7, 'a', '1', '2026-01-01', '2026-01-01', 1);"
                  "INSERT INTO permit_request (id, external_id, owner, acquired_at, ttl_ms, grace_ms, due_at)"
                  " SELECT 1000 + seq, CONCAT('h', seq), CONCAT('o', seq), '2026-11-20', 1, 2000,"
                  " '2026-11-21' - INTERVAL seq SECOND FROM numbers.upto WHERE seq <= 300;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                  " SELECT 3, 1000 + seq, 1000 + seq, 1 FROM numbers.upto WHERE seq <= 300;"
                  "INSERT INTO permit_request (id, external_id, acquired_at)"
                  " SELECT 2000 + seq, CONCAT('one', seq), '2026-11-20' FROM numbers.upto WHERE seq < 64;"
                  "INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                  " SELECT seq, 500 + seq, 2000 + seq, 1 FROM numbers.upto WHERE seq < 64 AND seq <> 3;"
                  "INSERT INTO permit_request (id, external_id, state, server_id, due_at)"
                  " SELECT 3000 + seq, CONCAT('w', seq), 3, IF(seq % 3, 7, NULL), '2026-11-22' FROM numbers.upto"
                  " WHERE seq <= 30;"
                  "INSERT INTO waiter (semaphore_id, place, permit_request_id, count)"
                  " SELECT 3, '2026-11-21' - INTERVAL seq SECOND, 3000 + seq, 1 FROM numbers.upto WHERE seq <= 30;"
                  "INSERT INTO permit_request (id, external_id, state, server_id, due_at)"
                  " SELECT 4000 + seq, CONCAT('v', seq), 3, 7, '2026-11-22' FROM numbers.upto WHERE seq < 64;"
                  "INSERT INTO waiter (semaphore_id, place, permit_request_id, count)"
                  " SELECT seq, '2026-11-21', 4000 + seq, 1 FROM numbers.upto WHERE seq < 64 AND seq <> 3");
    held_rewrite(address);
    must_run_long(address, "ANALYZE TABLE permit, permit_request, held, waiter, server");
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(fronts, .init = rows_make, .fini = rows_forget, .timeout = 300);

static void read_fronts(const uint64_t *ids, size_t count)
{
    cr_assert_eq(store->queries->fronts(store, ids, count, &arena, fronts, &now), PERMIT_OK, "%s",
                 session_message(session));
}

static void read_all(void)
{
    uint64_t ids[SEMAPHORES];
    for (size_t i = 0; i < SEMAPHORES; i++)
        ids[i] = i + 1;
    read_fronts(ids, SEMAPHORES);
}

static void holder_is(const struct semaphore_front *front, size_t index, const char *key)
{
    struct bytes found = front->holders[index].external_id;
    cr_expect(bytes_equal(found, bytes_of(key)), "%zu: %.*s instead of %s", index, (int)found.length, found.data, key);
}

static void waiter_is(const struct semaphore_front *front, size_t index, const char *key)
{
    struct bytes found = front->waiters[index];
    cr_expect(bytes_equal(found, bytes_of(key)), "%zu: %.*s instead of %s", index, (int)found.length, found.data, key);
}

static const char *numbered(const char *word, size_t number)
{
    static char text[32];
    snprintf(text, sizeof text, "%s%zu", word, number);
    return text;
}

Test(fronts, longest_holders_and_first_waiters_are_read_of_each)
{
    read_all();
    for (size_t id = 1; id <= SEMAPHORES; id++) {
        const struct semaphore_front *front = &fronts[id - 1];
        bool one = id != CROWDED && id != EMPTY;
        cr_assert_eq(front->holder_count, one ? 1 : id == EMPTY ? 0 : QUERY_FRONT_HOLDERS, "s%zu", id);
        cr_assert_eq(front->waiter_count, one ? 1 : id == EMPTY ? 0 : QUERY_FRONT_WAITERS, "s%zu", id);
        for (size_t i = 0; i < front->holder_count; i++)
            holder_is(front, i, one ? numbered("one", id) : numbered("h", i + 1));
        if (one)
            waiter_is(front, 0, numbered("v", id));
    }
    waiter_is(&fronts[CROWDED - 1], 0, "w29"); /* w30 is kept */
    waiter_is(&fronts[CROWDED - 1], 1, "w28");
    waiter_is(&fronts[CROWDED - 1], 2, "w26");
    const struct front_holder *first = &fronts[CROWDED - 1].holders[0];
    cr_expect(bytes_equal(first->owner, BYTES("o1")));
    cr_expect_eq(first->since, 1795132800LL * US_PER_SECOND);
    cr_expect_eq(first->expires_at, 1795219200LL * US_PER_SECOND - 3 * US_PER_SECOND); /* a second, and the grace */
    cr_expect_eq(fronts[0].holders[0].expires_at, NEVER);
}

/* The block of the tokens 960 to 1023 has 9 holders then, and the next one is cut in the middle. */
Test(fronts, block_that_is_cut_costs_no_holder)
{
    const uint64_t id = CROWDED;
    must_run(session, "UPDATE permit_request SET state = 2 WHERE id BETWEEN 1001 AND 1014");
    held_rewrite(address);
    read_fronts(&id, 1);
    cr_assert_eq(fronts[0].holder_count, QUERY_FRONT_HOLDERS);
    for (size_t i = 0; i < QUERY_FRONT_HOLDERS; i++)
        holder_is(&fronts[0], i, numbered("h", i + 15));
}

Test(fronts, unknown_id_has_none)
{
    const uint64_t ids[] = {UNKNOWN, 1};
    read_fronts(ids, ARRAY_LENGTH(ids));
    cr_expect(fronts[0].holder_count == 0 && fronts[0].waiter_count == 0);
    cr_expect(fronts[1].holder_count == 1 && fronts[1].waiter_count == 1);
}

/* The reads of a /why of a request that waits for `count` semaphores. */
static void read_why(struct want *wants, size_t count)
{
    const struct request request = {.id = 5000,
                                    .state = REQUEST_WAITING,
                                    .place = now.now,
                                    .server_id = LIVING,
                                    .wants = wants,
                                    .want_count = count};
    struct queue_position *positions;
    struct semaphore_page page;
    uint64_t ids[SEMAPHORES];
    bool kept;
    for (size_t i = 0; i < count; i++)
        ids[i] = wants[i].semaphore_id = i + 1;
    cr_assert_eq(store->queries->ahead(store, &request, &arena, &positions, &kept), PERMIT_OK, "%s",
                 session_message(session));
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(positions[i].ahead, ids[i] == CROWDED ? 20 : ids[i] != EMPTY, "s%zu: %llu", i + 1,
                     (unsigned long long)positions[i].ahead);
    cr_assert_eq(store->queries->semaphores_of(store, ids, count, &arena, &page), PERMIT_OK);
    cr_assert_eq(page.count, count);
    read_fronts(ids, count);
}

/* A statement for each want would let one request delay the lists of all others. */
Test(fronts, number_of_statements_does_not_grow_with_the_semaphores)
{
    struct want wants[SEMAPHORES] = {{.count = 1}};
    read_all(); /* for the time */
    sent_record();
    read_why(wants, 1);
    size_t of_one = statements_sent();
    sent_record();
    read_why(wants, SEMAPHORES);
    cr_expect_eq(statements_sent(), of_one);
}

Test(fronts, statements_walk_indexes)
{
    enum { MOST_ROWS = 1500 };
    (void)rows_read(session);
    sent_record();
    read_all();
    int64_t touched = rows_read(session);
    cr_expect_lt(touched, MOST_ROWS, "%lld rows", (long long)touched);
    WALKS(session, sent_statement("(SELECT 0 AS n,block"), "PRIMARY");
    WALKS(session, sent_statement("(SELECT STRAIGHT_JOIN 0 AS n"), "PRIMARY", "PRIMARY", "PRIMARY");
    WALKS(session, sent_statement("SELECT STRAIGHT_JOIN p.semaphore_id,r.external_id"), "PRIMARY", "PRIMARY");
}
