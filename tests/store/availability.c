/* SPDX-License-Identifier: MIT */
/* Availability: its results, and that it walks the index of names and reads no more than it returns. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/query.h"

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;

/* `e:00001` to `e:30000`, of which each tenth is retired; `full`, whose capacity was lowered; `gone`, which is retired. */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 16, 1 << 26);
    must_run_long(
        address,
        "INSERT INTO semaphore (id, name, kind, capacity, in_use, waiting, version, default_ttl_ms, max_hold_ms,"
        " retired_at) SELECT seq, CONCAT('e:', LPAD(seq, 5, '0')), 2, 10, seq MOD 10, seq MOD 3, seq, 1, 1,"
        " IF(seq MOD 10 = 0, SYSDATE(6), NULL) FROM numbers.upto WHERE seq <= 30000;"
        "INSERT INTO semaphore (id, name, kind, capacity, in_use, version, default_ttl_ms, max_hold_ms,"
        " retired_at) VALUES (40001, 'full', 2, 3, 5, 7, 1, 1, NULL), (40002, 'gone', 2, 3, 0, 1, 1, 1,"
        " SYSDATE(6)); ANALYZE TABLE semaphore");
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(availability, .init = rows_make, .fini = rows_forget, .timeout = 300);

static const struct availability *row_of(const struct availability_read *read, const char *name)
{
    for (size_t i = 0; i < read->ret_count; i++)
        if (bytes_equal(read->ret_rows[i].name, bytes_of(name)))
            return &read->ret_rows[i];
    return NULL;
}

Test(availability, names_are_read_without_those_that_do_not_exist)
{
    const struct bytes names[] = {BYTES("full"),
                                  BYTES("e:00004"),
                                  BYTES("gone"),
                                  BYTES("nobody"),
                                  BYTES("e:00004"),
                                  BYTES("FULL"),
                                  BYTES("'; DROP TABLE slot; --")};
    struct availability_read read = {.names = names, .name_count = ARRAY_LENGTH(names)};
    cr_assert_eq(store->queries->availability(store, &read, &arena), PERMIT_OK);
    cr_assert_eq(read.ret_count, 2);
    const struct availability *full = row_of(&read, "full"), *four = row_of(&read, "e:00004");
    cr_assert(full && full->available == 0 && full->waiting == 0 && full->version == 7);
    cr_assert(four && four->available == 6 && four->waiting == 1 && four->version == 4);
}

Test(availability, many_names_are_read_by_their_index)
{
    enum { NAMES = 1700 };
    static char texts[NAMES][16];
    static struct bytes names[NAMES];
    for (int i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof texts[i], "e:%05d", 29999 - 10 * i);
        names[i] = bytes_of(texts[i]);
    }
    struct availability_read read = {.names = names, .name_count = NAMES};
    (void)rows_read(session);
    sent_record();
    cr_assert_eq(store->queries->availability(store, &read, &arena), PERMIT_OK);
    cr_assert_eq(statements_sent(), 4);
    cr_assert_leq(rows_read(session), 2 * NAMES);
    cr_assert_eq(read.ret_count, NAMES);
    for (size_t i = 0; i < read.ret_count; i++)
        cr_assert_eq(read.ret_rows[i].available, 1);
    WALKS(session, sent_statement("SELECT s.name,s.capacity"), "semaphore_name");
}

static struct availability_range range(const char *prefix, const char *after)
{
    return (struct availability_range){.prefix = bytes_of(prefix), .after = bytes_of(after)};
}

Test(availability, ranges_are_read_in_order_up_to_a_thousand_names)
{
    const struct bytes name = BYTES("full");
    struct availability_range ranges[] = {range("e:", ""),     range("e:", "e:29500"), range("", "e:30000"),
                                          range("e:0001", ""), range("x", ""),         range("gone", ""),
                                          range("e:", "zzz"),  range("e:1", "e:19000")};
    struct availability_read read = {
        .names = &name, .name_count = 1, .ranges = ranges, .range_count = ARRAY_LENGTH(ranges)};
    (void)rows_read(session);
    sent_record();
    cr_assert_eq(store->queries->availability(store, &read, &arena), PERMIT_OK);
    cr_assert_leq(rows_read(session), 4 * AVAILABILITY_ROWS);
    cr_assert_eq(read.ret_count, 1);
    static const struct {
        size_t count;
        const char *next; /* NULL: none */
    } expected[] = {{900, "e:01000"}, {450, NULL}, {1, NULL}, {9, NULL}, {0, NULL}, {0, NULL}, {0, NULL}, {900, NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(ranges); i++) {
        cr_expect_eq(ranges[i].ret_count, expected[i].count, "%zu: %zu", i, ranges[i].ret_count);
        cr_expect(bytes_same(ranges[i].ret_next, bytes_of(expected[i].next)), "%zu", i);
        for (size_t j = 1; j < ranges[i].ret_count; j++)
            cr_assert_lt(bytes_compare(ranges[i].ret_rows[j - 1].name, ranges[i].ret_rows[j].name), 0);
    }
    cr_expect(bytes_equal(ranges[2].ret_rows[0].name, BYTES("full")));
    cr_expect(bytes_equal(ranges[3].ret_rows[0].name, BYTES("e:00011")));
    cr_expect_eq(ranges[3].ret_rows[0].available, 9);
    WALKS(session, sent_statement_with("SELECT s.name,s.capacity", "ORDER BY"), "semaphore_name");
}
