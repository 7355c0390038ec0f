/* SPDX-License-Identifier: MIT */
/* The rows of `server` on a real MariaDB: ids, heartbeats, deaths by compare-and-set, and what each statement reads. */
#include "store/servers.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/epoch.h"

enum { HOLD_MS = 1000 };

static const struct database_address *address;
static struct store *store;
static const struct store_servers *servers;
static struct session *other;
static struct arena arena;

static void servers_begin(void)
{
    address = fresh_database();
    store = opened(address, STORE_WORKER);
    servers = store->servers;
    other = connected(address, STORE_READER);
    arena_init(&arena, 1 << 16, 1 << 26);
}

static void servers_end(void)
{
    arena_release(&arena);
    session_free(other);
    store_free(store);
}

TestSuite(servers, .init = servers_begin, .fini = servers_end, .timeout = 300);

static struct server_self joined(const char *name)
{
    struct server_self self = {.id = UINT64_MAX};
    cr_assert_eq(servers->join(store, bytes_of(name), BYTES("0.1.0"), &self), PERMIT_OK, "%s", store->message);
    return self;
}

static void serve(void)
{
    cr_assert_eq(fixture_advance_epoch(store, EPOCH_SERVER, 0, HOLD_MS), PERMIT_OK, "%s", store->message);
}

static struct server_heartbeat beat(const struct server_self *self)
{
    struct server_heartbeat heartbeat = {.waiting = 7};
    cr_assert_eq(servers->heartbeat(store, self, &heartbeat), PERMIT_OK, "%s", store->message);
    return heartbeat;
}

static bool declared(uint64_t id, uint64_t ticks, utc_us now)
{
    bool by_this_call = false;
    const struct server_other who = {.id = id, .ticks = ticks};
    cr_assert_eq(servers->declare_dead(store, &who, now, &by_this_call), PERMIT_OK, "%s", store->message);
    return by_this_call;
}

enum { LIST_MAX = 1000 };

static size_t listed(struct server_row **ret_rows)
{
    struct page page = {.arena = &arena, .limit = LIST_MAX};
    arena_clear(&arena);
    cr_assert_eq(servers->list(store, &page), PERMIT_OK, "%s", store->message);
    *ret_rows = page.servers;
    return page.count;
}

/* ---- ids ---- */

/* The hold of failover_hold that follows a raise of the epoch is over. */
static void end_hold(void)
{
    must_run(other, "UPDATE cluster SET grants_from = '2000-01-01'");
}

Test(servers, join_waits_until_the_epoch_has_risen_and_its_hold_is_over)
{
    must_run(other, "UPDATE cluster SET identity = 'another'");
    cr_assert_eq(joined("a").id, 0);
    cr_assert_not(in_transaction(session_of(store)));
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM server"), 0);
    serve();
    must_run(other, "UPDATE cluster SET grants_from = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR");
    cr_assert_eq(joined("a").id, 0);
    cr_assert_not(in_transaction(session_of(store)));
    end_hold();
    struct server_self self = joined("a");
    cr_assert_eq(self.id, (uint64_t)number_of(other, "SELECT epoch * 1024 FROM cluster"));
    cr_assert_gt(self.id, 1024);
}

Test(servers, id_is_never_given_again)
{
    serve();
    struct server_self first = joined("a"), second = joined("b");
    cr_assert(first.id == 1 && second.id == 2);
    cr_assert_eq(servers->leave(store, &second), PERMIT_OK);
    cr_assert_eq(joined("c").id, 3);
    struct epoch_advance advance = {.cause = EPOCH_OPERATOR, .hold_ms = HOLD_MS, .why = BYTES("a test")};
    cr_assert_eq(store->clock->advance_epoch(store, &advance), PERMIT_OK);
    end_hold();
    cr_assert_eq(joined("d").id, advance.ret_epoch * 1024);
    cr_assert_eq(joined("e").id, advance.ret_epoch * 1024 + 1);
}

/* ---- heartbeats ---- */

Test(servers, won_tick_is_counted)
{
    serve();
    for (int i = 1; i <= 3; i++) {
        struct tick tick = {0};
        bool won;
        cr_assert_eq(store->clock->read_tick(store, &tick), PERMIT_OK);
        struct lease_row after = tick.ret_row;
        after.ticks++;
        cr_assert_eq(store->clock->write_tick(store, &tick.ret_row, &after, &won), PERMIT_OK);
        cr_assert(won);
        cr_assert_eq(number_of(other, "SELECT ticks FROM cluster"), i);
        cr_assert_eq(store->clock->write_tick(store, &tick.ret_row, &after, &won), PERMIT_OK);
        cr_assert_not(won, "the row has changed");
    }
    cr_assert_eq(number_of(other, "SELECT ticks FROM cluster"), 3);
}

Test(servers, heartbeat_writes_ticks_and_shows_the_others)
{
    serve();
    struct server_self a = joined("a"), b = joined("b");
    must_run(other, "UPDATE cluster SET ticks = 41");
    struct server_heartbeat heartbeat = beat(&a);
    cr_assert(heartbeat.ret_alive);
    cr_assert_eq(heartbeat.ret_ticks, 41);
    cr_assert_eq(heartbeat.ret_other_count, 1);
    cr_assert(heartbeat.ret_others[0].id == b.id && heartbeat.ret_others[0].ticks == 0);
    cr_assert_eq(heartbeat.ret_oldest_death, NEVER);
    cr_assert_str_eq(text_of(other, "SELECT CONCAT_WS(',', ticks, waiting, seen_at > since, dead_at IS NULL)"
                                    " FROM server WHERE address = 'a'"),
                     "41,7,1,1");
    struct server_row *rows;
    cr_assert_eq(listed(&rows), 2);
    cr_assert(bytes_equal(rows[0].address, BYTES("a")) && bytes_equal(rows[1].version, BYTES("0.1.0")));
    cr_assert(rows[0].id == a.id && rows[0].since == a.since && rows[0].waiting == 7 && rows[0].alive);
}

Test(servers, row_of_the_same_id_after_a_restore_is_not_its_own)
{
    serve();
    struct server_self self = joined("a");
    self.since -= US_PER_SECOND;
    cr_assert_not(beat(&self).ret_alive);
    cr_assert_eq(number_of(other, "SELECT waiting FROM server"), 0, "nothing was written");
    cr_assert_eq(servers->leave(store, &self), PERMIT_OK);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM server"), 1);
}

/* ---- death ---- */

static utc_us lease_now(const struct server_heartbeat *heartbeat)
{
    return lease_time(&heartbeat->ret_time.clock, heartbeat->ret_time.now);
}

Test(servers, heartbeat_that_comes_first_wins)
{
    serve();
    struct server_self a = joined("a"), b = joined("b");
    must_run(other, "UPDATE cluster SET ticks = 4");
    struct server_heartbeat heartbeat = beat(&a);
    cr_assert(beat(&b).ret_alive);
    cr_assert_not(declared(b.id, heartbeat.ret_others[0].ticks, lease_now(&heartbeat)));
    cr_assert(beat(&b).ret_alive);
}

Test(servers, dead_one_writes_nothing_and_is_removed_later)
{
    serve();
    struct server_self a = joined("a"), b = joined("b");
    struct server_heartbeat heartbeat = beat(&a);
    utc_us now = lease_now(&heartbeat);
    must_run(other, "UPDATE cluster SET ticks = 9");
    cr_assert(declared(b.id, 0, now));
    cr_assert_not(declared(b.id, 0, now + 1), "it is dead already");
    cr_assert_not(beat(&b).ret_alive);
    cr_assert_eq(number_of(other, "SELECT ticks FROM server WHERE address = 'b'"), 0);
    heartbeat = beat(&a);
    cr_assert_eq(heartbeat.ret_other_count, 0);
    cr_assert_eq(heartbeat.ret_oldest_death, now);
    struct server_row *rows;
    cr_assert_eq(listed(&rows), 2);
    cr_assert(rows[0].alive && !rows[1].alive);
    cr_assert_eq(servers->remove_dead(store, now - 1), PERMIT_OK);
    cr_assert_eq(listed(&rows), 2);
    cr_assert_eq(servers->remove_dead(store, now), PERMIT_OK);
    cr_assert_eq(listed(&rows), 1);
    cr_assert_not(beat(&b).ret_alive, "its row is gone");
    cr_assert(beat(&a).ret_alive);
}

/* ---- bounds ---- */

/* 3,000 rows, of which every second is dead. */
static void insert_many(void)
{
    must_run_long(address,
                  "INSERT INTO server (id, address, version, since, seen_at, ticks, dead_at)"
                  " SELECT 1000 + seq, 'x', '', '2026-01-01', '2026-01-01', 5000 - seq,"
                  " IF(seq % 2, NULL, '2026-01-01' + INTERVAL seq SECOND) FROM numbers.upto WHERE seq <= 3000");
    must_run(other, "ANALYZE TABLE server");
}

Test(servers, crowd_is_read_and_removed_in_pieces)
{
    serve();
    struct server_self self = joined("a");
    insert_many();
    (void)rows_read(session_of(store));
    struct server_heartbeat heartbeat = beat(&self);
    cr_assert_leq(rows_read(session_of(store)), SERVERS_OTHERS_MAX + 20);
    cr_assert_eq(heartbeat.ret_other_count, SERVERS_OTHERS_MAX);
    cr_assert_eq(heartbeat.ret_others[0].ticks, 2001, "the furthest behind is first");
    (void)rows_read(session_of(store));
    cr_assert_eq(servers->remove_dead(store, lease_now(&heartbeat)), PERMIT_OK);
    cr_assert_leq(rows_read(session_of(store)), 3 * SERVERS_OTHERS_MAX);
    cr_assert_eq(number_of(other, "SELECT COUNT(*) FROM server WHERE dead_at IS NOT NULL"), 1500 - SERVERS_OTHERS_MAX);
    struct server_row *rows;
    (void)rows_read(session_of(store));
    cr_assert_eq(listed(&rows), LIST_MAX);
    cr_assert_leq(rows_read(session_of(store)), LIST_MAX + 10);
}

static void explains(const char *beginning, const char *key)
{
    const char *statement = sent_statement(beginning);
    struct explained table;
    cr_assert_geq(explain(other, statement, &table, 1), 1);
    cr_assert(bytes_equal(table.key, bytes_of(key)), "%s: key %.*s", statement, (int)table.key.length, table.key.data);
    cr_assert_not(bytes_equal(table.type, BYTES("ALL")), "%s", statement);
}

Test(servers, statements_use_the_indexes_they_name)
{
    serve();
    struct server_self self = joined("a");
    insert_many();
    sent_record();
    struct server_heartbeat heartbeat = beat(&self);
    (void)declared(heartbeat.ret_others[0].id, heartbeat.ret_others[0].ticks, lease_now(&heartbeat));
    cr_assert_eq(servers->remove_dead(store, lease_now(&heartbeat)), PERMIT_OK);
    explains("UPDATE server FORCE INDEX (PRIMARY) SET seen_at", "PRIMARY");
    explains("SELECT COUNT(*) FROM server", "PRIMARY");
    explains("SELECT id,ticks FROM server", "server_dead");
    explains("SELECT dead_at FROM server", "server_dead");
    explains("UPDATE server FORCE INDEX (PRIMARY) SET dead_at", "PRIMARY");
    explains("DELETE FROM server WHERE dead_at", "server_dead");
    cr_assert_eq(servers->leave(store, &self), PERMIT_OK);
    explains("DELETE FROM server WHERE id", "PRIMARY");
}
