/* SPDX-License-Identifier: MIT */
/* Queues: their lists, pages bounded in bytes, and the indexes that batches and lists walk. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/batch.h"
#include "store/query.h"
#include "store/sql_text.h"
#include "testkit.h"

enum { HOT = 1, SEATS = 2, EMPTY = 3, LIVING = 7, DEAD = 8, SQL_SIZE = 1 << 20 };

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;
static struct query_time now;

static void queue_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run(
        session,
        "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms) VALUES"
        " (1, 'hot', 2, 100, 1, 1), (2, 'seats', 1, 1000, 1, 1), (3, 'empty', 2, 1, 1, 1), (4, 'gone', 2, 1, 1, 1);"
        "UPDATE semaphore SET retired_at = UTC_TIMESTAMP(6) WHERE id = 4;"
        "INSERT INTO server (id, address, version, since, seen_at, ticks, dead_at) VALUES"
        " (7, 'a', '1', '2026-01-01', '2026-01-01', 1, NULL),"
        " (8, 'b', '1', '2026-01-01', '2026-01-01', 1, '2026-01-02')");
}

static void queue_end(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(queue, .init = queue_begin, .fini = queue_end, .timeout = 300);

static struct fixture batch; /* open in the suite queue_batch alone */

/*
 * Runs statements that may take longer than the five seconds after which the server ends an idle session, and gives the
 * stores new sessions: they do not know yet whether theirs have ended.
 */
static void run_long(const char *sql)
{
    struct store *const stores[] = {store, batch.store};
    must_run_long(address, sql);
    for (size_t i = 0; i < ARRAY_LENGTH(stores); i++) {
        if (!stores[i])
            continue;
        stores[i]->session->disconnect(stores[i]);
        cr_assert_eq(stores[i]->session->reconnect(stores[i]), PERMIT_OK, "%s", stores[i]->message);
    }
}

static utc_us place_of(int minute)
{
    return 1795251600LL * US_PER_SECOND + minute * 60LL * US_PER_SECOND;
}

/* Inserts a request that waits. */
static void insert_waiter(uint64_t id, const char *key, int minute, uint64_t server_id, const struct want *wants,
                          size_t count)
{
    struct buf sql;
    buf_init(&sql, SQL_SIZE);
    buf_printf(&sql,
               "INSERT INTO permit_request SET id=%llu,owner='o',state=3,server_id=NULLIF(%llu,0),external_id='%s',"
               "priority=2,waiting_since='2026-11-21 08:00:00',waiting_until='2026-11-21 11:00:00',"
               "due_at='2026-11-21 11:00:10',place=",
               (unsigned long long)id, (unsigned long long)server_id, key);
    sql_time(&sql, place_of(minute));
    buf_append_text(&sql, ",wanted=");
    sql_bytes(&sql, wants_encode((struct ttl){.kind = TTL_UNLIMITED}, wants, count, &arena));
    for (size_t i = 0; i < count; i++) {
        buf_printf(&sql, ";INSERT INTO waiter SET semaphore_id=%llu,permit_request_id=%llu,count=%lld,place=",
                   (unsigned long long)wants[i].semaphore_id, (unsigned long long)id, (long long)wants[i].count);
        sql_time(&sql, place_of(minute));
    }
    must_run(session, buf_text(&sql));
    buf_release(&sql);
    held_rewrite(address);
}

static void insert_hot(uint64_t id, const char *key, int minute, uint64_t server_id)
{
    const struct want hot = {.semaphore_id = HOT, .count = 2};
    insert_waiter(id, key, minute, server_id, &hot, 1);
}

/* Five waiters in hot; k1 has no client and k4 waits at a dead server. k5 wants seats, too. */
static void insert_five(void)
{
    struct slot_name names[] = {{.number = 4}, {.label = BYTES("A1")}};
    const struct want both[] = {
        {.semaphore_id = SEATS, .count = 1, .choice = CHOOSE_ANY_OF, .named = names, .named_count = 2},
        {.semaphore_id = HOT, .count = 3}};
    insert_hot(12, "k2", 1, LIVING);
    insert_hot(11, "k1", 0, 0);
    insert_hot(14, "k4", 2, DEAD);
    insert_hot(13, "k3", 1, LIVING);
    insert_waiter(15, "k5", 3, LIVING, both, 2);
}

/* after NULL: from the first waiter on. */
static struct page waiters(const char *semaphore, const struct cursor *after, unsigned limit)
{
    struct page page = {.arena = &arena, .limit = limit};
    if (after)
        page.after = *after;
    cr_assert_eq(store->queries->waiters(store, bytes_of(semaphore), &page), PERMIT_OK, "%s", session_message(session));
    return page;
}

static void is_row(const struct waiter_row *row, const char *key, bool kept, uint64_t number, const char *behind)
{
    cr_assert(bytes_equal(row->request.external_id, bytes_of(key)), "%s", row->request.external_id.data);
    cr_assert_eq(row->kept, kept, "%s", key);
    cr_assert_eq(row->number, number, "%s has number %llu", key, (unsigned long long)row->number);
    cr_assert(behind ? bytes_equal(row->behind, bytes_of(behind)) : !row->behind.data, "%s", key);
}

/* ---- lists ---- */

Test(queue, waiters_are_listed_in_order_with_numbers)
{
    insert_five();
    struct page page = waiters("hot", NULL, 10);
    const struct waiter_row *rows = page.waiters;
    cr_assert(page.count == 5 && !page.more);
    is_row(&rows[0], "k1", true, 0, NULL);
    is_row(&rows[1], "k2", false, 1, NULL);
    is_row(&rows[2], "k3", false, 2, "k2");
    is_row(&rows[3], "k4", true, 2, "k3");
    is_row(&rows[4], "k5", false, 3, "k3");
    const struct request *last = &rows[4].request;
    cr_assert(last->want_count == 2 && bytes_equal(last->wants[0].semaphore, BYTES("hot")));
    cr_assert(bytes_equal(last->wants[1].semaphore, BYTES("seats")) && last->wants[1].named_count == 2);
    cr_assert(bytes_equal(last->wants[1].named[1].label, BYTES("A1")));
    cr_assert(last->priority == 2 && last->server_id == LIVING && last->place == place_of(3));
    cr_assert(last->ttl.kind == TTL_UNLIMITED &&
              last->waiting_until - last->waiting_since == 3 * 3600LL * US_PER_SECOND);
    page = waiters("empty", NULL, 10);
    cr_assert(page.count == 0 && !page.more);
}

/* A kept place has no client: it never had one since its wait ended, or its server is dead, or has no row any more. */
Test(queue, kept_places_are_kept_for_a_while)
{
    struct page page = {.arena = &arena, .limit = 10};
    utc_us *until;
    must_run(session, "INSERT INTO permit_request (id, external_id, owner, state) VALUES (1, 'held', 'o', 1)");
    insert_hot(11, "k1", 0, 0);
    insert_hot(12, "k2", 1, LIVING);
    insert_hot(13, "k3", 2, DEAD);
    insert_hot(14, "k4", 3, DEAD + 1);
    cr_assert_eq(store->queries->requests(store, &(struct request_filter){0}, &page), PERMIT_OK);
    cr_assert_eq(page.count, 5);
    const struct request *first = &page.requests->request, *second = &page.requests[1].request;
    cr_assert_eq(
        store->queries->kept_until(store, first, page.count, sizeof *page.requests, &page.time, &arena, &until),
        PERMIT_OK);
    cr_expect_eq(until[0], 0);
    cr_expect_eq(until[1], second->due_at);
    cr_expect_neq(until[1], second->waiting_until);
    cr_expect_eq(until[2], 0);
    cr_expect_eq(until[3], 1767312000LL * US_PER_SECOND + PLACE_KEPT_US);
    cr_expect_eq(until[4], lease_time(&page.time.clock, page.time.now));
    cr_assert_eq(store->queries->kept_until(store, first, 0, 0, &page.time, &arena, &until), PERMIT_OK);
}

Test(queue, pages_of_waiters_continue)
{
    static const char *const keys[] = {"k1", "k2", "k3", "k4", "k5"};
    struct page page = {.more = true};
    insert_five();
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        cr_assert(page.more);
        page = waiters("hot", &page.next, 1);
        const struct waiter_row *row = page.waiters;
        cr_assert_eq(page.count, 1);
        cr_assert(bytes_equal(row->request.external_id, bytes_of(keys[i])));
        if (i == 2)
            is_row(row, "k3", false, 2, "k2");
        if (i == 4)
            is_row(row, "k5", false, 3, "k3");
    }
    cr_assert_not(page.more);
}

Test(queue, unknown_and_retired_semaphores_are_unknown)
{
    struct page page = {.arena = &arena, .limit = 10};
    static const char *const names[] = {"gone", "nobody"};
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        cr_assert_eq(store->queries->waiters(store, bytes_of(names[i]), &page), PERMIT_UNKNOWN_SEMAPHORE);
}

Test(queue, positions_count_only_those_that_clients_ask_for)
{
    struct queue_position *positions;
    struct request request;
    struct bytes *names;
    bool kept;
    insert_five();
    cr_assert_eq(store->queries->request(store, BYTES("k5"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert(request.state == REQUEST_WAITING && request.want_count == 2 && request.permit_count == 0);
    cr_assert(bytes_equal(names[0], BYTES("hot")) && bytes_equal(names[1], BYTES("seats")));
    cr_assert_eq(store->queries->ahead(store, &request, &arena, &positions, &kept), PERMIT_OK);
    cr_assert(!kept && positions[0].ahead == 2 && !positions[0].more && positions[0].key_count == 2);
    cr_assert(bytes_equal(positions[0].keys[0], BYTES("k2")) && bytes_equal(positions[0].keys[1], BYTES("k3")));
    cr_assert(positions[1].ahead == 0 && positions[1].key_count == 0);
    cr_assert_eq(store->queries->request(store, BYTES("k4"), &arena, &request, &names, &now), PERMIT_OK);
    cr_assert_eq(store->queries->ahead(store, &request, &arena, &positions, &kept), PERMIT_OK);
    cr_assert(kept && positions[0].ahead == 2);
}

Test(queue, waiting_requests_are_filtered_and_paged)
{
    static const struct {
        unsigned limit;
        uint64_t after;
        struct request_filter filter;
        size_t count;
        uint64_t first, next;
    } rows[] = {
        {100, 0, {.state = 0}, 7, 11, 0},
        {100, 0, {.state = REQUEST_WAITING}, 5, 11, 0},
        {2, 12, {.state = REQUEST_WAITING}, 2, 13, 14},
        {100, 0, {.state = REQUEST_ACQUIRED}, 1, 20, 0},
        {100, 0, {.owner = {"o", 1}}, 7, 11, 0},
        {100, 0, {.owner = {"o", 1}, .state = REQUEST_WAITING}, 5, 11, 0},
        {100, 0, {.owner = {"o", 1}, .state = REQUEST_WAITING, .semaphore = {"seats", 5}}, 1, 15, 0},
        {100, 0, {.owner = {"o", 1}, .semaphore = {"seats", 5}}, 2, 15, 0},
        {100, 0, {.semaphore = {"seats", 5}}, 2, 15, 0},
        {1, 0, {.semaphore = {"seats", 5}}, 1, 15, 15},
        {100, 15, {.semaphore = {"seats", 5}}, 1, 20, 0},
        {100, 0, {.semaphore = {"hot", 3}}, 6, 11, 0},
        {100, 0, {.semaphore = {"hot", 3}, .state = REQUEST_WAITING}, 5, 11, 0},
        {3, 0, {.semaphore = {"hot", 3}, .state = REQUEST_WAITING}, 3, 11, 13},
        {100, 0, {.semaphore = {"hot", 3}, .state = REQUEST_RELEASED}, 1, 21, 0},
        {100, 0, {.semaphore = {"empty", 5}, .state = REQUEST_WAITING}, 0, 0, 0},
    };
    insert_five();
    must_run(session, "INSERT INTO permit_request (id, external_id, owner, state) VALUES (20, 'held', 'o', 1),"
                      " (21, 'ended', 'o', 2); INSERT INTO permit (semaphore_id, id, permit_request_id, count)"
                      " VALUES (2, 1, 20, 1), (1, 1, 21, 1)");
    held_rewrite(address);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct page page = {.arena = &arena, .limit = rows[i].limit, .after.number = rows[i].after};
        cr_assert_eq(store->queries->requests(store, &rows[i].filter, &page), PERMIT_OK, "row %zu: %s", i,
                     session_message(session));
        uint64_t next = page.more ? page.next.number : 0;
        cr_assert_eq(page.count, rows[i].count, "row %zu: %zu", i, page.count);
        cr_assert_eq(next, rows[i].next, "row %zu: %llu", i, (unsigned long long)next);
        for (size_t j = 0; j < page.count; j++) {
            const struct listed_request *found = &page.requests[j];
            if (found->request.state == REQUEST_WAITING)
                cr_assert(found->request.want_count >= 1 && bytes_equal(found->names[0], BYTES("hot")), "row %zu", i);
        }
        if (page.count)
            cr_assert_eq(page.requests[0].request.id, rows[i].first, "row %zu", i);
    }
}

/* ---- long wants ---- */

/* 1,000 labels of 240 bytes: more than a request may name, but a row of an earlier permitd may have it. */
static struct want longest_want(void)
{
    enum { NAMES = SLOTS_MAX_COUNT, LABEL = 240 };
    struct slot_name *names = arena_array(&arena, NAMES, sizeof *names);
    for (int i = 0; i < NAMES; i++) {
        char *label = arena_alloc(&arena, LABEL + 1);
        cr_assert(names && label);
        (void)snprintf(label, LABEL + 1, "%0*d", LABEL, i);
        names[i].label = (struct bytes){label, LABEL};
    }
    return (struct want){
        .semaphore_id = SEATS, .count = 1, .choice = CHOOSE_ANY_OF, .named = names, .named_count = NAMES};
}

Test(queue, longest_wants_are_listed)
{
    enum { WAITERS = 9 };
    struct want want = longest_want();
    for (int i = 0; i < WAITERS; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", i);
        insert_waiter(10 + (uint64_t)i, key, i, LIVING, &want, 1);
    }
    struct page page = waiters("seats", NULL, 1000);
    cr_assert(page.count == WAITERS && !page.more && page.next.waiters == WAITERS);
    for (size_t i = 0; i < page.count; i++)
        cr_assert(page.waiters[i].request.wants[0].named_count == SLOTS_MAX_COUNT && page.waiters[i].number == i + 1);
    page = (struct page){.arena = &arena, .limit = 1000};
    cr_assert_eq(store->queries->requests(store, &(struct request_filter){.state = REQUEST_WAITING}, &page), PERMIT_OK);
    cr_assert(page.count == WAITERS && !page.more);
    for (size_t i = 0; i < page.count; i++)
        cr_assert(bytes_equal(page.requests[i].request.wants[0].named[7].label, want.named[7].label));
}

/* ---- batches ---- */

static void batch_begin(void)
{
    queue_begin();
    fixture_open(&batch, store_open(address, STORE_WORKER, NULL));
}

static void batch_end(void)
{
    fixture_close(&batch);
    queue_end();
}

TestSuite(queue_batch, .init = batch_begin, .fini = batch_end, .timeout = 300);

/* Locks the semaphore and reads its queue. */
static void read_queue(uint64_t semaphore_id, int64_t free, bool fifo)
{
    const struct slots_wanted none = {0};
    const struct lock_set set = {.semaphore_ids = &semaphore_id, .slots_wanted = &none, .semaphore_count = 1};
    const struct queue_read read = {.free = free, .fifo = fifo, .limit = QUEUE_READ_MAX, .all_watches = true};
    arena_clear(&batch.arena);
    cr_assert_eq(batch.store->batch->lock(batch.store, &set, &batch.arena, &batch.view), PERMIT_OK, "%s",
                 batch.store->message);
    cr_assert_eq(batch.store->batch->read_waiters(batch.store, &read, &none, 1, &batch.arena, &batch.view), PERMIT_OK,
                 "%s", batch.store->message);
}

/* Reads the queue, of which the lock packet has read some waiters; returns true if it sends nothing for that. */
static bool is_read_ahead(size_t ahead, size_t count)
{
    const uint64_t id = HOT;
    const struct slots_wanted none = {0};
    const struct queue_read read = {.free = 1, .limit = QUEUE_READ_MAX};
    const struct lock_set set = {
        .semaphore_ids = &id, .slots_wanted = &none, .semaphore_count = 1, .waiters_ahead = &ahead};
    arena_clear(&batch.arena);
    cr_assert_eq(batch.store->batch->lock(batch.store, &set, &batch.arena, &batch.view), PERMIT_OK, "%s",
                 batch.store->message);
    cr_assert(batch.view.request_count == 0 && !batch.view.has_servers, "read ahead is not yet read");
    sent_record();
    cr_assert_eq(batch.store->batch->read_waiters(batch.store, &read, &none, count, &batch.arena, &batch.view),
                 PERMIT_OK, "%s", batch.store->message);
    cr_assert(batch.view.has_servers && batch.view.server_count == 1 && batch.view.servers[0] == LIVING);
    bool ahead_was_taken = sent_text()[0] == '\0';
    const size_t found = batch.view.request_count;
    const struct queue_view end = batch.view.queues[0];
    cr_assert_eq(batch.store->batch->read_waiters(batch.store, &read, &none, 1, &batch.arena, &batch.view), PERMIT_OK);
    cr_assert(batch.view.queues[0].limit == QUEUE_READ_MAX && sent_text()[0], "the second time it is read on");
    batch.view.request_count = found;
    batch.view.queues[0] = end;
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    return ahead_was_taken;
}

Test(queue_batch, waiters_that_the_lock_packet_has_read_are_not_read_again)
{
    const struct want want = {.semaphore_id = HOT, .count = 1};
    for (int i = 0; i < 5; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", i);
        insert_waiter(10 + (uint64_t)i, key, i, LIVING, &want, 1);
    }
    cr_expect(is_read_ahead(0, 0), "the servers only");
    cr_expect_not(is_read_ahead(0, 1));
    cr_expect(batch.view.request_count == 5 && batch.view.queues[0].beyond == 0);
    cr_expect(is_read_ahead(3, 1));
    cr_expect(batch.view.request_count == 4 && batch.view.queues[0].beyond == 13 && batch.view.queues[0].limit == 3);
    cr_expect(is_read_ahead(5, 1), "the whole queue");
    cr_expect(batch.view.request_count == 5 && batch.view.queues[0].beyond == 0 && batch.view.queues[0].limit == 5);
    must_run(session, "UPDATE permit_request SET server_id = NULL WHERE id = 11");
    cr_expect(is_read_ahead(3, 1));
    cr_expect(batch.view.request_count == 4 && batch.view.queues[0].beyond == 14, "a kept place is passed over");
}

/* The fifth waiter names the 5,000th slot: it is left out, and under `fifo` the queue is cut there. */
Test(queue_batch, waiters_that_name_too_many_slots_are_left_out)
{
    struct slot_name names[SLOTS_MAX_COUNT];
    for (uint32_t i = 0; i < SLOTS_MAX_COUNT; i++)
        names[i] = (struct slot_name){.number = i + 1};
    const struct want want = {
        .semaphore_id = SEATS, .count = 1, .choice = CHOOSE_ANY_OF, .named = names, .named_count = SLOTS_MAX_COUNT};
    for (int i = 0; i < 7; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", i);
        insert_waiter(10 + (uint64_t)i, key, i, LIVING, &want, 1);
    }
    const struct want any = {.semaphore_id = SEATS, .count = 1};
    insert_waiter(20, "k9", 9, LIVING, &any, 1);
    read_queue(SEATS, 5, false);
    cr_assert(batch.view.queues[0].beyond == 0 && batch.view.request_count == 4 + 1);
    cr_assert(bytes_equal(batch.view.requests[4].external_id, BYTES("k9")));
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    read_queue(SEATS, 5, true);
    cr_assert(batch.view.queues[0].beyond == 14 && batch.view.request_count == 5);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

Test(queue_batch, longest_wants_are_read)
{
    struct want want = longest_want();
    insert_waiter(10, "k0", 0, LIVING, &want, 1);
    insert_waiter(11, "k1", 1, LIVING, &want, 1);
    insert_waiter(12, "k2", 2, LIVING, &want, 1);
    read_queue(SEATS, 1, true);
    cr_assert_eq(batch.view.queues[0].beyond, 0);
    cr_assert_eq(batch.view.request_count, 3);
    for (size_t i = 0; i < batch.view.request_count; i++) {
        const struct want *read = &batch.view.requests[i].wants[0];
        cr_assert_eq(read->named_count, SLOTS_MAX_COUNT);
        cr_assert(bytes_equal(read->named[7].label, want.named[7].label));
    }
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

Test(queue_batch, run_of_adjacent_slots_is_sought_in_all_free_ones)
{
    const struct want want = {.semaphore_id = SEATS, .count = 2, .adjacent = true};
    run_long("INSERT INTO slot (semaphore_id, number) SELECT 2, seq FROM numbers.upto WHERE seq <= 1000");
    insert_waiter(10, "k0", 0, LIVING, &want, 1);
    read_queue(SEATS, 2, false);
    cr_assert(batch.view.free_slots[0].count == 1000 && batch.view.free_slots[0].complete);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* A batch holds its locks while it reads: it must not read all free seats because one request waits for a taken one. */
Test(queue_batch, free_slots_are_read_only_for_the_units_that_are_wanted)
{
    struct slot_name taken[] = {{.number = 1}};
    const struct want seat = {
        .semaphore_id = SEATS, .count = 1, .choice = CHOOSE_NAMED, .named = taken, .named_count = 1};
    const struct want any = {.semaphore_id = SEATS, .count = 3};
    run_long("INSERT INTO slot (semaphore_id, number) SELECT 2, seq FROM numbers.upto WHERE seq <= 1000");
    must_run(session, "UPDATE slot SET permit_id = 1 WHERE semaphore_id = 2 AND number = 1");
    insert_waiter(10, "k0", 0, LIVING, &seat, 1);
    read_queue(SEATS, 999, false);
    cr_assert(batch.view.free_slots[0].count == 1 && !batch.view.free_slots[0].complete);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    insert_waiter(11, "k1", 1, LIVING, &any, 1);
    read_queue(SEATS, 999, false);
    cr_assert_eq(batch.view.free_slots[0].count, 4);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    read_queue(SEATS, 2, false); /* k1 wants more than is free, and is not read */
    cr_assert_eq(batch.view.free_slots[0].count, 1);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* ---- access paths ---- */

/* Asserts that the recorded DELETE finds each row of the table of this alias by its primary key. */
static void deletes_by_seeks(const char *alias, const char *beginning)
{
    const char *statement = sent_statement(beginning);
    struct explained tables[8];
    size_t count = explain(session, statement, tables, ARRAY_LENGTH(tables));
    size_t at = 0;
    while (at < count && !bytes_equal(tables[at].table, bytes_of(alias)))
        at++;
    cr_assert_lt(at, count, "%s", statement);
    cr_assert(bytes_equal(tables[at].key, BYTES("PRIMARY")) && bytes_equal(tables[at].type, BYTES("eq_ref")), "%s",
              statement);
}

#define EXPLAINS(beginning, ...)            WALKS(session, sent_statement(beginning), __VA_ARGS__)
#define EXPLAINS_WITH(beginning, part, ...) WALKS(session, sent_statement_with(beginning, part), __VA_ARGS__)

/* 3,000 waiters in hot and as many in empty, every third without a client. */
static void insert_crowd(void)
{
    run_long("INSERT INTO permit_request (id, external_id, owner, state, server_id, place, due_at, wanted)"
             " SELECT 1000 + seq, CONCAT('w', seq), 'o', 3, IF(seq % 3, 7, NULL),"
             " '2026-11-21' + INTERVAL seq SECOND, '2026-11-22' + INTERVAL seq SECOND,"
             " x'01000000000000000000010000000000000001000000000000000100000000' FROM numbers.upto WHERE seq <= 3000;"
             "INSERT INTO waiter (semaphore_id, place, permit_request_id, count) SELECT 1, '2026-11-21' + INTERVAL seq "
             "SECOND, 1000 + seq, 1"
             " FROM numbers.upto WHERE seq <= 3000;"
             "INSERT INTO waiter (semaphore_id, place, permit_request_id, count) SELECT 3, '2026-11-21' + INTERVAL seq "
             "SECOND, 1000 + seq, 1"
             " FROM numbers.upto WHERE seq <= 3000;"
             "INSERT INTO mail SELECT 7, seq FROM numbers.upto WHERE seq <= 3000;"
             "INSERT INTO mail SELECT 8, seq FROM numbers.upto WHERE seq <= 3000");
    held_rewrite(address);
    run_long("INSERT INTO request_metadata SELECT 1000 + seq, '{}' FROM numbers.upto WHERE seq <= 3000");
    run_long("ANALYZE TABLE request_metadata, permit_request, waiter, waiting_due, mail, server");
}

Test(queue_batch, statements_of_batches_walk_indexes)
{
    insert_crowd();
    sent_record();
    (void)rows_read(session_of(batch.store));
    read_queue(HOT, 1, false);
    cr_assert_lt(rows_read(session_of(batch.store)), 6 * QUEUE_READ_MAX);
    cr_assert_eq(batch.view.request_count, QUEUE_READ_MAX + 1);
    EXPLAINS("SELECT STRAIGHT_JOIN r.id", "PRIMARY", "PRIMARY", "PRIMARY");
    EXPLAINS("SELECT id FROM server", "server_dead");
    struct request *first = &batch.view.requests[0], *second = &batch.view.requests[1];
    struct request_change removed[] = {{.request = first, .before = first, .remove = true},
                                       {.request = second, .before = second, .remove = true}};
    const struct place_change places[] = {{HOT, first->place, first->id, 1, true, 0, 0},
                                          {HOT, second->place, second->id, 1, true, 0, 0},
                                          {EMPTY, first->place, first->id, 1, true, 0, 0},
                                          {EMPTY, second->place, second->id, 1, true, 0, 0}};
    const struct mail mail[] = {{LIVING, 5, true}, {LIVING, 6, true}, {LIVING, 99999, false}};
    struct semaphore_image image = {.semaphore = &batch.view.semaphores[0],
                                    .expected_version = batch.view.semaphores[0].version++,
                                    .changed = true};
    batch.view.semaphores[0].waiting = 1999;
    const struct changes changes = {.semaphores = &image,
                                    .semaphore_count = 1,
                                    .requests = removed,
                                    .request_count = 2,
                                    .places = places,
                                    .place_count = ARRAY_LENGTH(places),
                                    .mail = mail,
                                    .mail_count = ARRAY_LENGTH(mail)};
    cr_assert_eq(batch.store->batch->commit(batch.store, &changes), PERMIT_OK, "%s", batch.store->message);
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM request_metadata"), 2998);
    deletes_by_seeks("m", "DELETE m FROM (SELECT ");
    deletes_by_seeks("w", "DELETE w FROM (SELECT 1 AS semaphore_id");
    deletes_by_seeks("w", "DELETE w FROM (SELECT 17"); /* due_s */
    EXPLAINS("DELETE r FROM permit_request", "PRIMARY");
    EXPLAINS("DELETE m FROM mail", "PRIMARY");
    cr_assert_eq(number_of(session, "SELECT waiting FROM semaphore WHERE id = 1"), 1999);
    struct page read = {.arena = &batch.arena, .limit = 10};
    cr_assert_eq(batch.store->servers->mail(batch.store, LIVING, &read), PERMIT_OK);
    EXPLAINS("SELECT permit_request_id FROM mail", "PRIMARY");
    cr_assert_eq(batch.store->servers->drop_mail(batch.store, LIVING, read.request_ids, read.count), PERMIT_OK);
    EXPLAINS("DELETE m FROM mail", "PRIMARY");
    struct bytes *keys;
    size_t count;
    cr_assert_eq(batch.store->servers->abandoned(batch.store, NEVER - 1, 10, &batch.arena, &keys, &count), PERMIT_OK);
    struct explained tables[3]; /* it walks all requests that wait */
    const char *abandoned = sent_statement("SELECT STRAIGHT_JOIN r.external_id FROM waiting_due");
    cr_assert_eq(explain(session, abandoned, tables, ARRAY_LENGTH(tables)), ARRAY_LENGTH(tables), "%s", abandoned);
    for (size_t i = 0; i < ARRAY_LENGTH(tables); i++)
        cr_assert(bytes_equal(tables[i].key, BYTES("PRIMARY")), "%s", abandoned);
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(batch.store->servers->remove_dead(batch.store, place_of(0)), PERMIT_OK);
    cr_assert_lt(rows_read(session_of(batch.store)), 1000 + 100, "a piece of the mail, and a seek for each server");
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM mail WHERE server_id = 8"), 2000);
}

/* Every second place of the crowd: the longest statement is still a list of seeks, not a walk over the queue. */
Test(queue_batch, places_of_a_full_batch_are_deleted_by_seeks)
{
    enum { PLACES = 700 };
    struct place_change places[PLACES];
    insert_crowd();
    read_queue(HOT, 1, false);
    for (int i = 0; i < PLACES; i++)
        places[i] = (struct place_change){HOT,
                                          place_of(0) - 9 * 3600LL * US_PER_SECOND + (2 * i + 1) * US_PER_SECOND,
                                          1001 + 2 * (uint64_t)i,
                                          1,
                                          true,
                                          0,
                                          0};
    struct semaphore_image image = {.semaphore = &batch.view.semaphores[0],
                                    .expected_version = batch.view.semaphores[0].version++,
                                    .changed = true};
    const struct changes changes = {
        .semaphores = &image, .semaphore_count = 1, .places = places, .place_count = PLACES};
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(batch.store->batch->commit(batch.store, &changes), PERMIT_OK, "%s", batch.store->message);
    cr_assert_lt(rows_read(session_of(batch.store)), 4 * PLACES + 100, "each of the list, by its key, to delete it");
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM waiter WHERE semaphore_id = 1"), 3000 - PLACES);
}

/* Inserts waiters for one seat, in the order of their ids, which watch it. */
static void insert_watchers(unsigned seat, unsigned first_id, unsigned count)
{
    struct buf sql;
    buf_init(&sql, SQL_SIZE);
    buf_printf(&sql,
               "INSERT INTO permit_request (id, external_id, state, server_id, place, wanted)"
               " SELECT %u + seq, CONCAT('s', %u + seq), 3, 7, '2026-11-21' + INTERVAL seq SECOND,"
               " x'01000000000000000000010000000000000001000000000000000100000000' FROM numbers.upto WHERE seq <= %u;"
               "INSERT INTO waiter (semaphore_id, place, permit_request_id, count, watch)"
               " SELECT 2, '2026-11-21' + INTERVAL seq SECOND, %u + seq, 1, %u FROM numbers.upto WHERE seq <= %u",
               first_id, first_id, count, first_id, seat, count);
    run_long(buf_text(&sql));
    buf_release(&sql);
    held_rewrite(address);
}

static void lock_seats(void)
{
    const uint64_t id = SEATS;
    const struct lock_set set = {.semaphore_ids = &id, .slots_wanted = &(struct slots_wanted){0}, .semaphore_count = 1};
    arena_clear(&batch.arena);
    cr_assert_eq(batch.store->batch->lock(batch.store, &set, &batch.arena, &batch.view), PERMIT_OK, "%s",
                 batch.store->message);
}

/* Locks seats and reads the waiters of a batch that may free these seats. */
static void read_seats(const uint32_t *freed, size_t count)
{
    const struct slots_wanted none = {0};
    const struct queue_read read = {.free = 5, .limit = QUEUE_READ_MAX, .freed = freed, .freed_count = count};
    lock_seats();
    sent_record();
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(batch.store->batch->read_waiters(batch.store, &read, &none, 1, &batch.arena, &batch.view), PERMIT_OK,
                 "%s", batch.store->message);
}

/* Returns true if the view has the waiter with this id. */
static bool has_waiter(uint64_t id)
{
    for (size_t i = 0; i < batch.view.request_count; i++)
        if (batch.view.requests[i].id == id)
            return true;
    return false;
}

/* A hall of taken seats: what a batch reads does not grow with the waiters for seats that stay held (P23). */
Test(queue_batch, waiters_for_seats_that_stay_held_are_not_read)
{
    const struct want any = {.semaphore_id = SEATS, .count = 1};
    insert_watchers(5, 100000, 20000);
    insert_watchers(6, 200000, 3);
    insert_watchers(7, 300000, 10);
    insert_waiter(10, "k0", 0, LIVING, &any, 1);
    run_long("INSERT INTO request_metadata SELECT 1000 + seq, '{}' FROM numbers.upto WHERE seq <= 3000");
    run_long("ANALYZE TABLE request_metadata, permit_request, waiter");
    read_seats(NULL, 0);
    cr_assert(batch.view.request_count == 1 && batch.view.queues[0].beyond == 0);
    cr_assert_lt(rows_read(session_of(batch.store)), 50);
    EXPLAINS_WITH("SELECT STRAIGHT_JOIN r.id", "w.watch=0", "waiter_watch", "PRIMARY", "PRIMARY");
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    read_seats((const uint32_t[]){6, 8, 6, 7}, 4);
    cr_assert(batch.view.request_count == 1 + 3 + 10 && batch.view.queues[0].beyond == 0);
    cr_assert_lt(rows_read(session_of(batch.store)), 200);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    read_seats((const uint32_t[]){5}, 1);
    cr_assert_lt(rows_read(session_of(batch.store)), 6 * QUEUE_READ_MAX);
    EXPLAINS_WITH("SELECT STRAIGHT_JOIN r.id", "w.watch IN (5)", "waiter_watch", "PRIMARY", "PRIMARY");
    cr_assert(batch.view.queues[0].beyond == 100000 + QUEUE_READ_MAX + 1);
    cr_assert(batch.view.request_count == QUEUE_READ_MAX + 1 && !has_waiter(10), "those before it are read first");
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* The first protected ones that want more than the seat that they watch are found by the index, because they reserve. */
Test(queue_batch, protected_waiters_for_several_seats_are_found_among_many_for_one)
{
    struct slot_name names[] = {{.number = 6}, {.number = 7}};
    const struct want pair = {
        .semaphore_id = SEATS, .count = 2, .choice = CHOOSE_NAMED, .named = names, .named_count = 2};
    insert_watchers(5, 100000, 20000);
    for (int i = 0; i < 100; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "p%d", i);
        insert_waiter(10 + (uint64_t)i, key, i, LIVING, &pair, 1);
    }
    must_run(session, "UPDATE permit_request SET waiting_since=place WHERE id < 1000;"
                      "UPDATE waiter SET watch=6+2147483648 WHERE permit_request_id < 1000");
    run_long("INSERT INTO request_metadata SELECT 1000 + seq, '{}' FROM numbers.upto WHERE seq <= 3000");
    run_long("ANALYZE TABLE request_metadata, permit_request, waiter");
    const struct queue_read read = {.free = 5, .limit = QUEUE_READ_MAX, .aged = place_of(200)};
    lock_seats();
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(
        batch.store->batch->read_waiters(batch.store, &read, &(struct slots_wanted){0}, 1, &batch.arena, &batch.view),
        PERMIT_OK, "%s", batch.store->message);
    cr_assert(batch.view.request_count == 64 && has_waiter(10) && has_waiter(73) && !has_waiter(74));
    cr_assert_eq(batch.view.queues[0].beyond, 0);
    cr_assert_lt(rows_read(session_of(batch.store)), 6 * 100);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* The 65th waiter for seat 5 ends the read of both: a waiter for any seat that stands behind it is not read. */
Test(queue_batch, waiters_of_freed_seats_and_others_are_read_in_one_order)
{
    const struct want any = {.semaphore_id = SEATS, .count = 1};
    insert_watchers(5, 100000, 70);
    must_run(session, "UPDATE permit_request SET place='2026-11-21 00:00:10' WHERE id=100065;"
                      "UPDATE waiter SET place='2026-11-21 00:00:10' WHERE permit_request_id=100065");
    insert_waiter(10, "k0", 0, LIVING, &any, 1);
    must_run(session, "UPDATE permit_request SET place='2026-11-21 00:00:09.5' WHERE id=10;"
                      "UPDATE waiter SET place='2026-11-21 00:00:09.5' WHERE permit_request_id=10");
    read_seats((const uint32_t[]){5}, 1);
    cr_assert(has_waiter(10) && has_waiter(100001) && has_waiter(100065));
    cr_assert(batch.view.queues[0].beyond == 100064 && has_waiter(100064) && !has_waiter(100066));
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
    must_run(session, "UPDATE permit_request SET place='2026-11-21 00:05:00' WHERE id=10;"
                      "UPDATE waiter SET place='2026-11-21 00:05:00' WHERE permit_request_id=10");
    read_seats((const uint32_t[]){5}, 1);
    cr_assert_not(has_waiter(10));
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/*
 * A server has died with its clients: their places are passed over in every batch until they are removed. This bounds
 * what that reads (P23).
 */
Test(queue_batch, places_of_a_dead_server_are_passed_over)
{
    run_long("INSERT INTO permit_request (id, external_id, state, server_id, place)"
             " SELECT 100000 + a.seq + 20000 * b.seq, CONCAT('d', a.seq, '-', b.seq), 3, 8, '2026-11-20'"
             " FROM numbers.upto a JOIN numbers.upto b ON b.seq <= 2 WHERE a.seq <= 20000;"
             "INSERT INTO waiter (semaphore_id, place, permit_request_id, count) SELECT 1, place, id, 1 "
             "FROM permit_request WHERE state = 3");
    insert_hot(10, "k", 0, LIVING);
    run_long("INSERT INTO request_metadata SELECT 1000 + seq, '{}' FROM numbers.upto WHERE seq <= 3000");
    run_long("ANALYZE TABLE request_metadata, permit_request, waiter");
    (void)rows_read(session_of(batch.store));
    read_queue(HOT, 2, true);
    cr_assert(batch.view.request_count == 1 && batch.view.queues[0].beyond == 0);
    cr_assert_lt(rows_read(session_of(batch.store)), 3 * 40000 + 100, "each place, its request and its server");
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* Many want more than is free: a batch reads their places, and nothing of their requests (P23). */
Test(queue_batch, waiters_that_want_too_much_are_passed_over)
{
    run_long("INSERT INTO permit_request (id, external_id, state, server_id, place, waiting_since)"
             " SELECT 100000 + a.seq + 20000 * b.seq, CONCAT('d', a.seq, '-', b.seq), 3, 7, '2026-11-22',"
             " '2026-11-22' FROM numbers.upto a JOIN numbers.upto b ON b.seq <= 2 WHERE a.seq <= 20000;"
             "INSERT INTO waiter (semaphore_id, place, permit_request_id, count) SELECT 1, place, id, 5 "
             "FROM permit_request WHERE state = 3");
    insert_hot(10, "k", 0, LIVING);
    insert_hot(300000, "last", 60 * 24 * 7, LIVING);
    run_long("INSERT INTO request_metadata SELECT 1000 + seq, '{}' FROM numbers.upto WHERE seq <= 3000");
    run_long("ANALYZE TABLE request_metadata, permit_request, waiter");
    (void)rows_read(session_of(batch.store));
    read_queue(HOT, 2, false);
    cr_assert(batch.view.request_count == 2 && batch.view.queues[0].beyond == 0);
    cr_assert_lt(rows_read(session_of(batch.store)), 40000 + 100);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* Reads the queue of hot with these needs left out, and beta of the glimpses plainly. */
Test(queue_batch, reads_of_the_plan_walk_indexes)
{
    const uint64_t id = HOT, empty = EMPTY, needs = 4711;
    const struct slots_wanted none = {0};
    const struct lock_set set = {.semaphore_ids = &id, .slots_wanted = &none, .semaphore_count = 1};
    const struct queue_read read = {.free = 1,
                                    .limit = QUEUE_PROTECTED_MAX,
                                    .aged = place_of(0),
                                    .all_watches = true,
                                    .hopeless = &needs,
                                    .hopeless_count = 1,
                                    .hopeless_protected = 1};
    insert_crowd();
    must_run(session,
             "UPDATE semaphore SET queue=2 WHERE id = 3;UPDATE permit_request SET waiting_since=place WHERE state = 3;"
             "UPDATE waiter SET needs=4711 WHERE permit_request_id % 3 <> 1");
    cr_assert_eq(batch.store->batch->lock(batch.store, &set, &batch.arena, &batch.view), PERMIT_OK, "%s",
                 batch.store->message);
    sent_record();
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(batch.store->batch->read_waiters(batch.store, &read, &none, 1, &batch.arena, &batch.view), PERMIT_OK,
                 "%s", batch.store->message);
    size_t others =
        (size_t)number_of(session, "SELECT COUNT(*) FROM waiter w JOIN permit_request r ON r.id="
                                   "w.permit_request_id WHERE w.semaphore_id=1 AND w.needs=0 AND r.server_id=7");
    cr_assert_eq(batch.view.request_count, others < QUEUE_PROTECTED_MAX ? others : QUEUE_PROTECTED_MAX + 1);
    EXPLAINS("SELECT STRAIGHT_JOIN r.id", "PRIMARY", "PRIMARY", "PRIMARY");
    sent_record();
    (void)rows_read(session_of(batch.store));
    cr_assert_eq(batch.store->batch->read_glimpses(batch.store, &empty, 1, place_of(0), &batch.arena, &batch.view),
                 PERMIT_OK, "%s", batch.store->message);
    cr_assert_eq(batch.view.glimpse_count, 1);
    cr_assert_lt(rows_read(session_of(batch.store)), 2 * 3 * 1024 * 3 / 2 + 100,
                 "as many waiters as are returned, twice");
    EXPLAINS("SELECT s.id", "PRIMARY");
    EXPLAINS("SELECT STRAIGHT_JOIN r.id", "PRIMARY", "PRIMARY", "PRIMARY", "PRIMARY"); /* of fifo queues */
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

/* Without waiters the statements name no queue, so that such a batch costs no more than before. */
Test(queue_batch, batch_without_waiters_writes_no_queue)
{
    struct want hot[] = {{.semaphore = BYTES("hot"), .count = 1}};
    struct operation acquire = acquire_of("k", hot, 1);
    struct buf sql;
    cr_assert_eq(batch_decide(&batch, &acquire)->status, PERMIT_OK);
    buf_init(&sql, SQL_SIZE);
    (void)batch_changes_sql(&batch.plan.changes, true, &batch.arena, &sql);
    cr_assert_null(strstr(buf_text(&sql), "waiting"));
    cr_assert_null(strstr(buf_text(&sql), "waiter"));
    cr_assert_null(strstr(buf_text(&sql), "wanted"));
    cr_assert_null(strstr(buf_text(&sql), "DELETE"));
    cr_assert_not_null(strstr(buf_text(&sql), "acquired_at,nonce,has_metadata) VALUES"), "%s", buf_text(&sql));
    buf_release(&sql);
    cr_assert_eq(batch.store->batch->rollback(batch.store), PERMIT_OK);
}

Test(queue, lists_walk_indexes)
{
    struct queue_position *positions;
    struct request request;
    struct bytes *names;
    bool kept;
    insert_crowd();
    sent_record();
    (void)rows_read(session);
    (void)waiters("hot", &(struct cursor){.place = place_of(0), .number = 1, .waiters = 5}, 10);
    cr_assert_lt(rows_read(session), 150);
    EXPLAINS("SELECT STRAIGHT_JOIN r.id", "PRIMARY", "PRIMARY", "PRIMARY");
    EXPLAINS("SELECT STRAIGHT_JOIN r.external_id FROM waiter", "PRIMARY", "PRIMARY", "PRIMARY");
    cr_assert_eq(store->queries->request(store, BYTES("w30"), &arena, &request, &names, &now), PERMIT_OK);
    (void)rows_read(session);
    cr_assert_eq(store->queries->ahead(store, &request, &arena, &positions, &kept), PERMIT_OK);
    cr_assert_eq(positions[0].ahead, 20);
    cr_assert_lt(rows_read(session), 250);
    EXPLAINS("(SELECT STRAIGHT_JOIN 0 AS n", "PRIMARY", "PRIMARY", "PRIMARY");
}
