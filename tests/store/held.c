/* SPDX-License-Identifier: MIT */
/* The bits of what is held: each kind of change, and the deletion of rows without bits. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/held.h"

static struct session *observer; /* reads the rows with plain SQL */
static struct fixture fixture;

static void held_begin(void)
{
    const struct database_address *address = fresh_database();
    observer = connected(address, STORE_READER);
    fixture_open(&fixture, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&fixture, "alpha", KIND_COUNTED, 1000);
    semaphore_make(&fixture, "beta", KIND_SLOTTED, 100);
}

static void held_end(void)
{
    fixture_close(&fixture);
    session_free(observer);
}

TestSuite(held, .init = held_begin, .fini = held_end, .timeout = 300);

static const struct outcome *acquire(const char *key, const char *owner, int64_t ttl_ms)
{
    static struct want want;
    want = (struct want){.semaphore = BYTES("alpha"), .count = 1};
    struct operation operation = acquire_of(key, &want, 1);
    operation.owner = bytes_of(owner);
    operation.ttl = (struct ttl){TTL_DURATION, ttl_ms};
    return batch_run(&fixture, &operation);
}

static void run(enum operation_kind kind, const char *key)
{
    struct operation operation = {.kind = kind, .external_id = bytes_of(key)};
    if (kind == OP_RENEW)
        operation.ttl = (struct ttl){TTL_DURATION, 500000};
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
}

/* Returns the rows with bits, in order: block, owner and bits of each. */
static const char *rows(void)
{
    return text_of(observer,
                   "SELECT COALESCE(GROUP_CONCAT(CONCAT_WS(' ', block, owner, BIN(bits)) ORDER BY semaphore_id,"
                   " block, owner, due_s SEPARATOR ', '), '') FROM held WHERE bits <> 0");
}

/* Returns the number of permits of held requests without their bit, and of bits without one. */
static int64_t differences(void)
{
    return number_of(observer,
                     "SELECT (SELECT COUNT(*) FROM permit p JOIN permit_request r ON r.id = p.permit_request_id WHERE"
                     " r.state = 1 AND (SELECT COUNT(*) FROM held h WHERE h.semaphore_id = p.semaphore_id AND h.block ="
                     " p.id DIV 64 AND h.owner = r.owner AND h.due_s = COALESCE(TIMESTAMPDIFF(SECOND, '1970-01-01',"
                     " r.due_at), 4294967295) AND h.bits & (1 << (p.id % 64))) <> 1)"
                     " + ABS((SELECT COALESCE(SUM(BIT_COUNT(bits)), 0) FROM held) - (SELECT COUNT(*) FROM permit p JOIN"
                     " permit_request r ON r.id = p.permit_request_id WHERE r.state = 1))");
}

Test(held, requests_of_one_owner_and_second_share_a_row)
{
    cr_assert_eq(acquire("a", "o", 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("b", "p", 60000)->status, PERMIT_OK);
    cr_expect_str_eq(rows(), "0 o 10, 0 p 100", "tokens 1 and 2");
    run(OP_RELEASE, "a");
    cr_expect_str_eq(rows(), "0 p 100");
    cr_expect_eq(differences(), 0);
}

Test(held, renewal_and_confirmation_move_the_bit)
{
    cr_assert_eq(acquire("a", "o", 60000)->status, PERMIT_OK);
    run(OP_RENEW, "a");
    cr_expect_eq(differences(), 0);
    run(OP_CONFIRM, "a");
    cr_expect_eq(differences(), 0);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE bits <> 0 AND due_s = 4294967295"), 1);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE bits <> 0"), 1);
}

Test(held, request_of_two_semaphores_has_a_bit_in_each)
{
    struct want wants[] = {{.semaphore = BYTES("alpha"), .count = 2}, {.semaphore = BYTES("beta"), .count = 3}};
    struct operation operation = acquire_of("both", wants, 2);
    operation.ttl = (struct ttl){TTL_DURATION, 60000};
    cr_assert_eq(batch_run(&fixture, &operation)->status, PERMIT_OK);
    cr_expect_eq(differences(), 0);
    cr_expect_eq(number_of(observer, "SELECT COUNT(DISTINCT semaphore_id) FROM held WHERE bits <> 0"), 2);
    run(OP_RELEASE, "both");
    cr_expect_str_eq(rows(), "");
}

Test(held, tokens_at_the_edges_of_blocks_have_their_bits)
{
    static const unsigned long long next[] = {63, 64, 127, (1ULL << 52) + 63};
    for (size_t i = 0; i < ARRAY_LENGTH(next); i++) {
        char sql[100], key[16];
        snprintf(sql, sizeof sql, "UPDATE semaphore SET next_permit_id = %llu WHERE name = 'alpha'", next[i]);
        must_run(observer, sql);
        snprintf(key, sizeof key, "edge%zu", i);
        cr_assert_eq(acquire(key, "", 60000)->status, PERMIT_OK);
        cr_expect_eq(differences(), 0, "%llu", next[i]);
    }
    const uint64_t id = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'alpha'");
    uint64_t floor;
    cr_assert_eq(store_floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 63);
    run(OP_RELEASE, "edge0");
    cr_assert_eq(store_floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 64);
    run(OP_RELEASE, "edge1");
    run(OP_RELEASE, "edge2");
    cr_assert_eq(store_floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, (1ULL << 52) + 63);
}

/* The rows of one block are in the order of their deadlines, and the floor is in the last of them. */
Test(held, floor_is_the_lowest_bit_of_all_rows_of_its_block)
{
    cr_assert_eq(acquire("a", "z", 900000)->status, PERMIT_OK);
    cr_assert_eq(acquire("b", "a", 60000)->status, PERMIT_OK);
    const uint64_t id = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'alpha'");
    uint64_t floor;
    cr_assert_eq(store_floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 1);
}

static enum permit_status clean(struct buf *sql)
{
    struct held_cleaning cleaning = {.rounds = 1};
    return held_clean(observer, &cleaning, 0, sql);
}

Test(held, rows_without_bits_are_deleted)
{
    struct buf sql;
    for (int i = 0; i < 5; i++) {
        char key[16], owner[16];
        snprintf(key, sizeof key, "k%d", i);
        snprintf(owner, sizeof owner, "o%d", i);
        cr_assert_eq(acquire(key, owner, 60000)->status, PERMIT_OK);
        if (i < 4)
            run(OP_RELEASE, key);
    }
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 5);
    buf_init(&sql, 1 << 20);
    cr_assert_eq(clean(&sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 1);
    cr_expect_str_eq(rows(), "0 o4 100000");
    cr_expect_not(in_transaction(observer));
    buf_release(&sql);
}

/* A batch that sets a bit in a row without bits holds its lock: the row is left, and nobody waits. */
Test(held, locked_row_without_bits_is_left)
{
    struct buf sql;
    cr_assert_eq(acquire("a", "o", 60000)->status, PERMIT_OK);
    run(OP_RELEASE, "a");
    struct session *batch = connected(fresh_address(), STORE_ADMIN);
    char text[200];
    snprintf(text, sizeof text, "BEGIN;UPDATE %s.held SET bits = bits ^ 4", text_of(observer, "SELECT DATABASE()"));
    must_run(batch, text);
    buf_init(&sql, 1 << 20);
    cr_assert_eq(clean(&sql), PERMIT_OK, "%s", session_message(observer));
    must_run(batch, "COMMIT");
    cr_expect_str_eq(rows(), "0 o 100");
    buf_release(&sql);
    session_free(batch);
}

/* More rows than one statement deletes. */
Test(held, thousands_of_rows_without_bits_are_deleted)
{
    struct buf sql;
    must_run(observer, "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
                       " SELECT 9, a.n * 64 + b.n, 1, '', 0 FROM held_bit a JOIN held_bit b");
    buf_init(&sql, 1 << 20);
    cr_assert_eq(clean(&sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 0);
    buf_release(&sql);
}

/* The table is walked in pieces that end with a block, twice after the last batch, and then not any more. */
Test(held, long_table_is_cleaned_in_pieces)
{
    struct buf sql;
    struct held_cleaning cleaning = {0};
    must_run(observer,
             "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
             " SELECT 1 + c.n, a.n * 64 + b.n, 1, '', b.n <> 0 FROM held_bit a JOIN held_bit b JOIN held_bit c"
             " WHERE c.n < 3");
    buf_init(&sql, 1 << 20);
    cr_assert_eq(held_clean(observer, &cleaning, 0, &sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE bits = 0"), 3 * 64, "no batch has run");
    cr_assert_eq(held_clean(observer, &cleaning, 1, &sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect(cleaning.semaphore_id == 2 && cleaning.block == 5000 - 4096 && cleaning.rounds == 2);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE bits = 0"), 3 * 64 - (5000 / 64 + 1));
    for (int i = 0; i < 2; i++)
        cr_assert_eq(held_clean(observer, &cleaning, 1, &sql), PERMIT_OK);
    cr_expect(cleaning.semaphore_id == 0 && cleaning.rounds == 1);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE bits = 0"), 0);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 3 * 4096 - 3 * 64);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(held_clean(observer, &cleaning, 1, &sql), PERMIT_OK);
    cr_expect_eq(cleaning.rounds, 0);
    (void)rows_read(observer);
    cr_assert_eq(held_clean(observer, &cleaning, 1, &sql), PERMIT_OK);
    cr_expect_eq(rows_read(observer), 0);
    buf_release(&sql);
}

/* A block with more rows than a piece has is a piece of its own: the walk goes on behind it. */
Test(held, block_with_thousands_of_rows_is_passed)
{
    struct buf sql;
    struct held_cleaning cleaning = {.rounds = 1};
    must_run(observer,
             "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
             " SELECT 9, 0, (a.n * 64 + b.n) * 64 + c.n, '', 0 FROM held_bit a JOIN held_bit b JOIN held_bit c"
             " WHERE a.n < 2");
    must_run(observer, "INSERT INTO held (semaphore_id, block, due_s, owner, bits) VALUES (9, 1, 1, '', 0)");
    buf_init(&sql, 1 << 20);
    for (int i = 0; i < 4 && cleaning.rounds; i++)
        cr_assert_eq(held_clean(observer, &cleaning, 0, &sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect_eq(cleaning.rounds, 0);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE block = 1"), 0);
    buf_release(&sql);
}

/* The statements find their rows by the whole primary key, also past many rows that are deleted and not purged. */
Test(held, rows_are_deleted_by_seeks)
{
    struct buf sql;
    struct explained tables[4];
    must_run(observer, "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
                       " SELECT 9, a.n * 64 + b.n, 1, '', a.n < 63 FROM held_bit a JOIN held_bit b");
    buf_init(&sql, 1 << 20);
    sent_record();
    (void)rows_read(observer);
    cr_assert_eq(clean(&sql), PERMIT_OK, "%s", session_message(observer));
    cr_expect_leq(rows_read(observer), 2 * 4096 + 64 * 8, "the piece is read twice, and each row to be deleted");
    const char *statement = sent_statement("DELETE h FROM (SELECT 9 AS semaphore_id");
    cr_assert_geq(explain(observer, statement, tables, 4), 2);
    cr_expect(bytes_equal(tables[1].type, BYTES("eq_ref")) && bytes_equal(tables[1].key, BYTES("PRIMARY")), "%s",
              statement);
    buf_release(&sql);
}
