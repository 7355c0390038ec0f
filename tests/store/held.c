/* SPDX-License-Identifier: MIT */
/* The bits of what is held: each kind of change. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"

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
    cr_assert_eq(fixture.store->clock->floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 63);
    run(OP_RELEASE, "edge0");
    cr_assert_eq(fixture.store->clock->floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 64);
    run(OP_RELEASE, "edge1");
    run(OP_RELEASE, "edge2");
    cr_assert_eq(fixture.store->clock->floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, (1ULL << 52) + 63);
}

/* The rows of one block are in the order of their deadlines, and the floor is in the last of them. */
Test(held, floor_is_the_lowest_bit_of_all_rows_of_its_block)
{
    cr_assert_eq(acquire("a", "z", 900000)->status, PERMIT_OK);
    cr_assert_eq(acquire("b", "a", 60000)->status, PERMIT_OK);
    const uint64_t id = (uint64_t)number_of(observer, "SELECT id FROM semaphore WHERE name = 'alpha'");
    uint64_t floor;
    cr_assert_eq(fixture.store->clock->floors(fixture.store, &id, 1, &floor), PERMIT_OK);
    cr_expect_eq(floor, 1);
}

/* No row stays without a bit, so that readers walk none. */
Test(held, row_is_deleted_with_its_last_bit)
{
    cr_assert_eq(acquire("a", "o", 60000)->status, PERMIT_OK);
    cr_assert_eq(acquire("b", "o", 60000)->status, PERMIT_OK);
    /* Both in one row, also if a second has passed between the grants. */
    must_run(observer,
             "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
             " SELECT semaphore_id, block, 9, owner, BIT_OR(bits) FROM held GROUP BY semaphore_id, block, owner;"
             "DELETE FROM held WHERE due_s > 9;"
             "UPDATE permit_request SET due_at = '1970-01-01 00:00:09.5'");
    run(OP_RELEASE, "a");
    cr_expect_str_eq(rows(), "0 o 100");
    run(OP_RENEW, "b");
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held WHERE due_s = 9"), 0);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 1);
    run(OP_RELEASE, "b");
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 0);
}

/* The statement finds its rows by the whole primary key, also among many others of the semaphore. */
Test(held, rows_are_deleted_by_seeks)
{
    cr_assert_eq(acquire("a", "o", 60000)->status, PERMIT_OK);
    must_run(observer, "INSERT INTO held (semaphore_id, block, due_s, owner, bits)"
                       " SELECT (SELECT id FROM semaphore WHERE name = 'alpha'), a.n * 64 + b.n, 1, '', 1"
                       " FROM held_bit a JOIN held_bit b");
    sent_record();
    run(OP_RELEASE, "a");
    const char *statement = sent_statement("DELETE h FROM (SELECT ");
    (void)rows_read(observer);
    must_run(observer, statement);
    cr_expect_leq(rows_read(observer), 3, "%s", statement);
    cr_expect_eq(number_of(observer, "SELECT COUNT(*) FROM held"), 4096);
}
