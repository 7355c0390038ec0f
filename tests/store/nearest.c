/* SPDX-License-Identifier: MIT */
/* The nearest existing name, among twenty thousand. */
#include <criterion/criterion.h>

#include "fixture.h"
#include "store/query.h"

static const struct database_address *address;
static struct store *store;
static struct session *session; /* the store's */
static struct arena arena;

/* `job00001` to `job20000`, the even ones retired; `backups` and `backup-db7`. */
static void rows_make(void)
{
    address = fresh_database();
    store = opened(address, STORE_READER);
    session = session_of(store);
    arena_init(&arena, 1 << 12, 1 << 20);
    must_run_long(
        address, "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms, retired_at)"
                 " SELECT seq, CONCAT('job', LPAD(seq, 5, '0')), 2, 1, 1, 1, IF(seq % 2, NULL, SYSDATE(6))"
                 " FROM numbers.upto WHERE seq <= 20000;"
                 "INSERT INTO semaphore (id, name, kind, capacity, default_ttl_ms, max_hold_ms)"
                 " VALUES (30001, 'backups', 2, 1, 1, 1), (30002, 'backup-db7', 2, 1, 1, 1);"
                 "INSERT INTO owner (name, ttl_ms, due_at) VALUES ('nightly@db7', 1000, '2026-11-21');"
                 "INSERT INTO permit_request (id, external_id, due_at, ttl_ms) VALUES (1, 'order/42', '2026-11-21', 1);"
                 "ANALYZE TABLE semaphore");
}

static void rows_forget(void)
{
    arena_release(&arena);
    store_free(store);
}

TestSuite(nearest, .init = rows_make, .fini = rows_forget, .timeout = 300);

static void expect_within(enum nearest_kind kind, const char *name, const char *within, bool exists,
                          const char *nearest)
{
    struct nearest found;
    cr_assert_eq(store->queries->nearest(store, kind, bytes_of(name), bytes_of(within), &arena, &found), PERMIT_OK,
                 "%s", session_message(session));
    cr_expect_eq(found.exists, exists, "%s", name);
    cr_expect(bytes_equal(found.name, bytes_of(nearest)), "%s: %.*s", name, (int)found.name.length, found.name.data);
}

static void expect(enum nearest_kind kind, const char *name, bool exists, const char *nearest)
{
    expect_within(kind, name, "", exists, nearest);
}

Test(nearest, is_found_among_the_neighbours)
{
    expect(NEAREST_SEMAPHORE, "backup", false, "backups");
    expect(NEAREST_SEMAPHORE, "bakcups", false, "backups");
    expect(NEAREST_SEMAPHORE, "backup-db8", false, "backup-db7");
    expect(NEAREST_SEMAPHORE, "restores", false, NULL);
    expect(NEAREST_SEMAPHORE, "backups", true, NULL);
    expect(NEAREST_SEMAPHORE, "job0100", false, "job01001");
    expect(NEAREST_SEMAPHORE, "Backups", false, "backups");
    expect(NEAREST_TEMPLATE, "user:", false, NULL);
    expect(NEAREST_OWNER, "nightly@db8", false, "nightly@db7");
    expect(NEAREST_REQUEST, "order/43", false, "order/42");
    expect(NEAREST_REQUEST, "order/42", true, NULL);
}

Test(nearest, retired_semaphores_do_not_exist)
{
    expect(NEAREST_SEMAPHORE, "job00002", false, "job00003");
    expect(NEAREST_SEMAPHORE, "job00001", true, "job00003");
}

#define A "\001a\001"
#define B "\001b\001"
#define C "\001c\001"

/* The nearest name of another namespace, and a crowd of them, change nothing. */
Test(nearest, is_chosen_among_those_that_begin_alike)
{
    must_run_long(address, "INSERT INTO permit_request (id, external_id, due_at, ttl_ms)"
                           " SELECT 100 + seq, CONCAT('" B
                           "job-', 400 + seq), '2026-11-21', 1 FROM numbers.upto WHERE seq <= 40;"
                           "INSERT INTO permit_request (id, external_id, due_at, ttl_ms)"
                           " VALUES (10, '" A "job-4398', '2026-11-21', 1), (11, 'job-43', '2026-11-21', 1)");
    expect_within(NEAREST_REQUEST, A "job-4399", A, false, A "job-4398");
    expect_within(NEAREST_REQUEST, B "job-4399", B, false, B "job-439");
    expect_within(NEAREST_REQUEST, C "job-4398", C, false, NULL);
    expect(NEAREST_REQUEST, "job-439", false, "job-43");
    expect_within(NEAREST_SEMAPHORE, "backup", "backup", false, "backups");
    expect_within(NEAREST_SEMAPHORE, "backup-db", "backup-", false, "backup-db7");
}

Test(nearest, reads_few_rows_of_an_index)
{
    enum { MOST = 120 };
    (void)rows_read(session);
    expect(NEAREST_SEMAPHORE, "job10000x", false, "job10001");
    cr_assert_leq(rows_read(session), MOST);
}
