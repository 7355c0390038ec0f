/* SPDX-License-Identifier: MIT */
/* For whom the units of many queues are reserved, and what it costs to find that. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "store/query.h"
#include "store/sql_text.h"

enum { SEMAPHORES = REQUEST_MAX_SEMAPHORES, D = 70, FREE = 71, SELF = 9000 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;
static struct query_time now;
static struct reserver reservers[SEMAPHORES];
static uint64_t waiters; /* inserted so far */

/* Semaphores s1 to s71 of one unit; those up to s70 are full. The server 7 lives, 8 is dead. */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    waiters = 0;
    must_run_long(address, "INSERT INTO semaphore (id, name, kind, capacity, in_use, default_ttl_ms, max_hold_ms)"
                           " SELECT seq, CONCAT('s', seq), 2, 1, seq <= 70, 1, 1 FROM numbers.upto WHERE seq <= 71;"
                           "INSERT INTO server (id, address, version, since, seen_at, ticks, dead_at)"
                           " VALUES (7, 'a', '1', '2026-01-01', '2026-01-01', 1, NULL),"
                           " (8, 'b', '1', '2026-01-01', '2026-01-01', 1, '2026-01-01')");
    cr_assert_eq(store->queries->clock(store, &now), PERMIT_OK);
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(reservers, .init = rows_make, .fini = rows_forget, .timeout = 300);

static void add_time(struct buf *sql, int64_t ago_s)
{
    sql_time(sql, now.now - ago_s * US_PER_SECOND);
}

/* Inserts the waiter `w1`, `w2`, ...: it waits for one unit of each of these since `ago_s` seconds, at a place before that. */
static void wait_for(const uint64_t *ids, size_t count, int64_t ago_s, int64_t before_s, unsigned server)
{
    struct want wants[SEMAPHORES] = {{.count = 0}};
    struct buf sql;
    uint64_t id = 1000 + ++waiters;
    for (size_t i = 0; i < count; i++)
        wants[i] = (struct want){.semaphore_id = ids[i], .count = 1};
    struct bytes wanted = wants_encode((struct ttl){.kind = TTL_ABSENT}, wants, count, &arena);
    cr_assert_not_null(wanted.data);
    buf_init(&sql, 1 << 20);
    buf_printf(&sql,
               "INSERT INTO permit_request (id, external_id, state, server_id, waiting_since, place, wanted)"
               " VALUES (%llu, 'w%llu', 3, %u, ",
               (unsigned long long)id, (unsigned long long)waiters, server);
    add_time(&sql, ago_s);
    buf_append_char(&sql, ',');
    add_time(&sql, ago_s + before_s);
    buf_append_char(&sql, ',');
    sql_bytes(&sql, wanted);
    buf_append_text(&sql, ");INSERT INTO waiter (semaphore_id, place, permit_request_id, count) VALUES ");
    for (size_t i = 0; i < count; i++) {
        buf_printf(&sql, "%s(%llu, ", i ? "," : "", (unsigned long long)ids[i]);
        add_time(&sql, ago_s + before_s);
        buf_printf(&sql, ", %llu, 1)", (unsigned long long)id);
    }
    must_run(session, buf_text(&sql));
    buf_release(&sql);
}

#define WAIT_FOR(ago_s, before_s, server, ...)                                                                         \
    wait_for((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), ago_s,       \
             before_s, server)

/* Reads for a request that waits for s1 and so on, since now; those older than 30 s are protected. */
static void read_reservers(size_t count)
{
    struct want wants[SEMAPHORES] = {{.count = 0}};
    for (size_t i = 0; i < count; i++)
        wants[i] = (struct want){.semaphore_id = i + 1, .count = 1};
    const struct request request = {.id = SELF,
                                    .state = REQUEST_WAITING,
                                    .place = now.now,
                                    .waiting_since = now.now,
                                    .server_id = 7,
                                    .wants = wants,
                                    .want_count = count};
    cr_assert_eq(store->queries->reservers(store, &request, now.now - 30 * US_PER_SECOND, &arena, reservers), PERMIT_OK,
                 "%s", session_message(session));
}

/* Asserts for whom s1 is reserved, and what it lacks: names with a space between them. */
static void s1_is_reserved_for(const char *key, const char *lacks)
{
    struct buf names;
    read_reservers(1);
    cr_assert(reservers[0].external_id.data, "for none");
    cr_expect(bytes_equal(reservers[0].external_id, bytes_of(key)), "%.*s instead of %s",
              (int)reservers[0].external_id.length, reservers[0].external_id.data, key);
    buf_init(&names, 1 << 16);
    for (size_t i = 0; i < reservers[0].lack_count; i++)
        buf_printf(&names, "%s%.*s", i ? " " : "", (int)reservers[0].lacks[i].length, reservers[0].lacks[i].data);
    cr_expect_str_eq(buf_text(&names), lacks);
    buf_release(&names);
}

static void s1_is_reserved_for_none(const char *why)
{
    read_reservers(1);
    cr_expect(!reservers[0].external_id.data, "%s: %.*s", why, (int)reservers[0].external_id.length,
              reservers[0].external_id.data);
}

Test(reservers, first_protected_waiter_that_lacks_units_is_found)
{
    WAIT_FOR(20, 100, 7, 1, D); /* young, before all others by its priority */
    WAIT_FOR(40, 50, 8, 1, D);  /* nobody asks for it */
    WAIT_FOR(40, 0, 7, 1, D, FREE);
    WAIT_FOR(39, 0, 7, 1, 5);
    s1_is_reserved_for("w3", "s1 s70");
    must_run(session, "UPDATE semaphore SET in_use = 0 WHERE id = 1");
    s1_is_reserved_for("w3", "s70");
    must_run(session, "DELETE FROM waiter WHERE permit_request_id = 1003 AND semaphore_id = 70");
    s1_is_reserved_for("w4", "s5"); /* w3 has left */
}

Test(reservers, waiter_behind_the_request_is_not_found)
{
    WAIT_FOR(-10, 0, 7, 1, D);
    s1_is_reserved_for_none("behind");
}

Test(reservers, waiter_that_can_never_have_its_need_is_not_found)
{
    static const char *const cases[] = {"paused_reason = 'repair'", "capacity = 0", "retired_at = '2026-11-21'",
                                        "confirmed = 1", "in_use = 0"};
    must_run(session, "UPDATE semaphore SET in_use = 0 WHERE id = 1");
    WAIT_FOR(40, 0, 7, 1, D);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char sql[200];
        s1_is_reserved_for("w1", "s70");
        snprintf(sql, sizeof sql, "UPDATE semaphore SET %s WHERE id = 70", cases[i]);
        must_run(session, sql);
        s1_is_reserved_for_none(cases[i]);
        must_run(session, "UPDATE semaphore SET paused_reason = NULL, capacity = 1, retired_at = NULL, confirmed = 0,"
                          " in_use = 1 WHERE id = 70");
    }
}

/* A capacity that shrank below what is held, and a held slot beside free ones. */
Test(reservers, more_held_than_the_capacity_and_a_watched_slot_are_lacks)
{
    WAIT_FOR(40, 0, 7, 1, D);
    must_run(session, "UPDATE semaphore SET in_use = 0 WHERE id = 1; UPDATE semaphore SET in_use = 9 WHERE id = 70");
    s1_is_reserved_for("w1", "s70");
    must_run(session, "UPDATE semaphore SET in_use = 0 WHERE id = 70;"
                      "UPDATE waiter SET watch = 4 WHERE semaphore_id = 70");
    s1_is_reserved_for("w1", "s70");
}

/* Every waiter wants all, and as many stand before the request as may wait: the reads stay bounded. */
Test(reservers, many_waiters_for_many_semaphores_are_read_by_their_keys)
{
    enum { CROWD = 40, WALKED = 4 * QUERY_RESERVERS_WALK, PLACES = 4 * QUERY_RESERVERS_PLACES };
    uint64_t ids[SEMAPHORES];
    for (size_t i = 0; i < SEMAPHORES; i++)
        ids[i] = i + 1;
    for (int i = 0; i < CROWD; i++)
        wait_for(ids, SEMAPHORES, 100 - i, 0, 7);
    must_run_long(address, "ANALYZE TABLE semaphore, permit_request, waiter, server");
    (void)rows_read(session);
    sent_record();
    read_reservers(SEMAPHORES);
    int64_t touched = rows_read(session);
    cr_expect_lt(touched, WALKED + PLACES, "%lld rows", (long long)touched);
    for (size_t i = 0; i < SEMAPHORES; i++)
        cr_expect(bytes_equal(reservers[i].external_id, BYTES("w1")) && reservers[i].lack_count == SEMAPHORES, "s%zu",
                  i + 1);
}

/* The first waiter of each queue is another one. */
Test(reservers, first_waiter_of_each_queue_is_found_by_indexes)
{
    for (uint64_t i = 1; i <= SEMAPHORES; i++)
        WAIT_FOR(100 + (int64_t)i, 0, 7, i, D);
    must_run_long(address, "ANALYZE TABLE semaphore, permit_request, waiter, server");
    sent_record();
    read_reservers(SEMAPHORES);
    WALKS(session, sent_statement("(SELECT STRAIGHT_JOIN 0 AS n"), "PRIMARY", "PRIMARY", "PRIMARY");
    WALKS(session, sent_statement("SELECT STRAIGHT_JOIN w.permit_request_id"), "PRIMARY", "PRIMARY");
    for (size_t i = 0; i < SEMAPHORES; i++) {
        char key[16];
        snprintf(key, sizeof key, "w%zu", i + 1);
        cr_expect(bytes_equal(reservers[i].external_id, bytes_of(key)) && reservers[i].lack_count == 2, "s%zu", i + 1);
    }
}

Test(reservers, number_of_statements_does_not_grow_with_the_semaphores)
{
    WAIT_FOR(40, 0, 7, 1, 2, 3);
    sent_record();
    read_reservers(1);
    size_t of_one = statements_sent();
    sent_record();
    read_reservers(SEMAPHORES);
    cr_expect_eq(statements_sent(), of_one);
}
