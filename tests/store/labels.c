/* SPDX-License-Identifier: MIT */
/*
 * Labels of slots and named slots, on a real MariaDB: the rows and indexes that a batch reads, and labels that are
 * written, moved and kept with a permit.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "batch_fixture.h"
#include "fixture.h"
#include "store/batch.h"
#include "store/query.h"

enum { MANY = 1200, SQL_ROOM = 1 << 20 };

static const struct database_address *address;
static struct store *observer_store;
static struct session *observer; /* its session: reads the rows with plain SQL */
static struct fixture one;
static uint64_t hall, plain, big;

static uint64_t id_of(const char *name)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT id FROM semaphore WHERE name = '%s'", name);
    return (uint64_t)number_of(observer, sql);
}

static void run_on(uint64_t semaphore_id, const char *format)
{
    char sql[500];
    snprintf(sql, sizeof sql, format, (unsigned long long)semaphore_id);
    must_run(observer, sql);
}

/* `hall`: A1 to A4, and 5, 6 without a label; `plain`: 3 slots without; `big`: 1,200 with L1, L2, ... */
static void labels_begin(void)
{
    address = fresh_database();
    observer_store = opened(address, STORE_READER);
    observer = session_of(observer_store);
    fixture_open(&one, store_open(address, STORE_WORKER, NULL));
    semaphore_make(&one, "hall", KIND_SLOTTED, 6);
    semaphore_make(&one, "plain", KIND_SLOTTED, 3);
    semaphore_make(&one, "big", KIND_SLOTTED, MANY);
    hall = id_of("hall");
    plain = id_of("plain");
    big = id_of("big");
    run_on(hall, "UPDATE slot SET label = CONCAT('A', number) WHERE semaphore_id = %llu AND number < 5");
    run_on(big, "UPDATE slot SET label = CONCAT('L', number) WHERE semaphore_id = %llu");
}

static void labels_end(void)
{
    fixture_close(&one);
    store_free(observer_store);
}

TestSuite(labels, .init = labels_begin, .fini = labels_end, .timeout = 300);

/* Locks one semaphore and reads the wanted slots. */
static void read_slots(uint64_t semaphore_id, struct slots_wanted wanted)
{
    struct lock_set set = {.semaphore_ids = &semaphore_id, .slots_wanted = &wanted, .semaphore_count = 1};
    arena_clear(&one.arena);
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

static void acquire(const char *key, const char *semaphore, int64_t count, struct ttl ttl)
{
    struct want wants[] = {{.semaphore = bytes_of(semaphore), .count = count}};
    struct operation operation = acquire_of(key, wants, 1);
    operation.ttl = ttl;
    cr_assert_eq(batch_run(&one, &operation)->status, PERMIT_OK);
}

static bool label_is(struct bytes label, const char *expected)
{
    return expected ? bytes_equal(label, bytes_of(expected)) : label.data == NULL;
}

/* ---- reading ---- */

Test(labels, free_slots_are_read_with_their_labels)
{
    read_slots(hall, (struct slots_wanted){.free = 5});
    const struct free_slots *slots = &one.view.free_slots[0];
    static const char *const expected[] = {"A1", "A2", "A3", "A4", NULL};
    cr_assert_eq(slots->count, 5);
    cr_assert_not(slots->complete);
    for (uint32_t i = 0; i < 5; i++) {
        cr_expect_eq(slots->numbers[i], i + 1);
        cr_expect(label_is(slots->labels[i], expected[i]), "slot %u", i + 1);
    }
    cr_expect_eq(one.view.named_slots[0].count, 0);
}

Test(labels, semaphore_without_labels_reads_none)
{
    read_slots(plain, (struct slots_wanted){.free = 5});
    cr_assert_eq(one.view.free_slots[0].count, 3);
    cr_assert(one.view.free_slots[0].complete);
    cr_assert_null(one.view.free_slots[0].labels);
}

/* By number and by label, also of the same slot, in any order, with duplicates. Missing slots are left out. */
Test(labels, named_slots_are_read_once_each_with_their_holders)
{
    acquire("k", "hall", 2, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    acquire("m", "hall", 1, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    acquire("n", "hall", 1, (struct ttl){.kind = TTL_UNLIMITED});
    struct operation confirm = {.kind = OP_CONFIRM, .external_id = BYTES("m")};
    cr_assert_eq(batch_run(&one, &confirm)->status, PERMIT_OK);
    run_on(hall, "UPDATE slot SET retired = 1 WHERE semaphore_id = %llu AND number = 6");
    must_run(observer, "UPDATE permit_request SET grace_ms = 7 WHERE external_id = 'k'");
    const struct slot_name names[] = {
        {.label = BYTES("A4")}, {.number = 6},          {.label = BYTES("A1")}, {.number = 3},           {.number = 1},
        {.label = BYTES("A4")}, {.label = BYTES("a1")}, {.number = 7},          {.label = BYTES("A1 ")}, {.number = 5}};
    read_slots(hall, (struct slots_wanted){.named = names, .named_count = ARRAY_LENGTH(names)});
    const struct named_slots *slots = &one.view.named_slots[0];
    static const struct {
        uint32_t number;
        const char *label;
        uint64_t token;
        const char *holder;
        bool due, retired, without_ttl;
        int64_t grace_ms;
    } expected[] = {
        {1, "A1", 1, "k", true, false, false, 7},  {3, "A3", 2, "m", false, false, false, 0},
        {4, "A4", 3, "n", true, false, true, 0},   {5, NULL, 0, NULL, false, false, false, 0},
        {6, NULL, 0, NULL, false, true, false, 0},
    };
    cr_assert_eq(slots->count, ARRAY_LENGTH(expected));
    for (size_t i = 0; i < slots->count; i++) {
        const struct slot_row *row = &slots->rows[i];
        cr_expect_eq(row->number, expected[i].number);
        cr_expect(label_is(row->label, expected[i].label), "slot %u", row->number);
        cr_expect_eq(row->token, expected[i].token, "slot %u", row->number);
        cr_expect(label_is(row->holder, expected[i].holder), "slot %u", row->number);
        cr_expect_eq(row->due_at != NEVER, expected[i].due, "slot %u", row->number);
        cr_expect_eq(row->retired, expected[i].retired, "slot %u", row->number);
        cr_expect_eq(row->without_ttl, expected[i].without_ttl, "slot %u", row->number);
        cr_expect_eq(row->grace_ms, expected[i].grace_ms, "slot %u", row->number);
    }
}

Test(labels, named_slots_of_several_semaphores_do_not_mix)
{
    uint64_t ids[] = {hall, plain, big};
    const struct slot_name of_hall[] = {{.label = BYTES("A2")}};
    const struct slot_name of_big[] = {{.number = 1200}, {.label = BYTES("L7")}, {.label = BYTES("A2")}};
    struct slots_wanted wanted[] = {{.named = of_hall, .named_count = 1}, {.free = 2}, {.free = 1}};
    struct bytes key = BYTES("nobody");
    struct lock_set set = {
        .semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = 3, .keys = &key, .key_count = 1};
    wanted[2].named = of_big;
    wanted[2].named_count = ARRAY_LENGTH(of_big);
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(one.view.named_slots[0].count, 1);
    cr_assert_eq(one.view.named_slots[0].rows[0].number, 2);
    cr_assert_eq(one.view.named_slots[1].count, 0);
    cr_assert_eq(one.view.free_slots[1].count, 2);
    cr_assert_eq(one.view.named_slots[2].count, 2);
    cr_assert_eq(one.view.named_slots[2].rows[0].number, 7);
    cr_assert_eq(one.view.named_slots[2].rows[1].number, 1200);
    cr_assert_eq(one.view.free_slots[2].numbers[0], 1);
    cr_assert_eq(one.view.request_count, 0);
    cr_assert_gt(one.view.now, 0);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

/* Nothing is read of a missing semaphore, and the other results of the packet are still matched. */
Test(labels, named_slots_of_a_missing_semaphore_are_empty)
{
    uint64_t ids[] = {hall, big + 1000};
    const struct slot_name name = {.number = 1};
    struct slots_wanted wanted[] = {{.named = &name, .named_count = 1}, {.free = 1, .named = &name, .named_count = 1}};
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = 2};
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(one.view.semaphore_count, 1);
    cr_assert_eq(one.view.named_slots[0].count, 1);
    cr_assert_gt(one.view.now, 0);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

/* Returns names of the first `count` slots of `big`, from the last to the first, each by number and by label. */
static struct slot_name *names_of_big(size_t count)
{
    static struct slot_name names[2 * MANY];
    static char texts[MANY][8];
    for (size_t i = 0; i < count; i++) {
        uint32_t number = (uint32_t)(count - i);
        snprintf(texts[i], sizeof texts[i], "L%u", number);
        names[2 * i] = (struct slot_name){.number = number};
        names[2 * i + 1] = (struct slot_name){.label = bytes_of(texts[i])};
    }
    return names;
}

Test(labels, named_slots_beyond_one_statement_are_read)
{
    read_slots(big, (struct slots_wanted){.named = names_of_big(MANY), .named_count = (size_t)2 * MANY});
    cr_assert_eq(one.view.named_slots[0].count, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        cr_assert_eq(one.view.named_slots[0].rows[i].number, i + 1);
}

Test(labels, operation_on_all_slots_reads_all)
{
    acquire("k", "hall", 1, (struct ttl){.kind = TTL_UNLIMITED});
    run_on(hall, "UPDATE slot SET retired = 1 WHERE semaphore_id = %llu AND number > 4");
    struct lock_set set = {.semaphore_name = BYTES("hall"), .all_slots = true};
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(one.view.semaphore_count, 1);
    const struct named_slots *slots = &one.view.named_slots[0];
    cr_assert_eq(slots->count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        cr_expect_eq(slots->rows[i].number, i + 1);
        cr_expect_eq(slots->rows[i].retired, i + 1 > 4);
    }
    cr_expect(label_is(slots->rows[0].holder, "k"));
    cr_expect(label_is(slots->rows[3].label, "A4"));
    cr_expect_gt(one.view.now, 0);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    set.semaphore_name = BYTES("nobody");
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(one.view.semaphore_count, 0);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

/* A due holder of a named slot is read whatever other slots are free; a holder that is not due is not read. */
Test(labels, due_holders_of_named_slots_are_read)
{
    acquire("early", "hall", 1, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    acquire("late", "hall", 2, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    acquire("later", "hall", 1, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    must_run(observer,
             "UPDATE permit_request SET due_at = due_at - INTERVAL 1 HOUR WHERE external_id IN ('early', 'late');"
             "UPDATE semaphore SET next_due_at = next_due_at - INTERVAL 1 HOUR WHERE name = 'hall'");
    held_rewrite(address);
    const struct slot_name names[] = {{.label = BYTES("A2")}, {.label = BYTES("A3")}, {.number = 4}, {.number = 5}};
    struct slots_wanted wanted = {.named = names, .named_count = ARRAY_LENGTH(names)};
    struct lock_set set = {.semaphore_ids = &hall, .slots_wanted = &wanted, .semaphore_count = 1};
    struct shortfall shortfall = {.semaphore = 0, .units = 0, .named = true};
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    fixture_judge(&one.view.clock, one.view.now);
    cr_assert_eq(one.store->batch->read_due(one.store, &shortfall, 1, &one.arena, &one.view), PERMIT_OK, "%s",
                 one.store->message);
    cr_assert_eq(one.view.request_count, 1);
    cr_assert(label_is(one.view.requests[0].external_id, "late"));
    cr_assert_eq(one.view.requests[0].permit_count, 1);
    cr_assert_eq(one.view.requests[0].permits[0].slots.count, 2);
    cr_assert_leq(one.view.next_due[0], lease_time(&one.view.clock, one.view.now), "early is due and was not read");
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);

    shortfall.named = false;
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    fixture_judge(&one.view.clock, one.view.now);
    cr_assert_eq(one.store->batch->read_due(one.store, &shortfall, 1, &one.arena, &one.view), PERMIT_OK);
    cr_assert_eq(one.view.request_count, 0);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);

    shortfall = (struct shortfall){.semaphore = 0, .units = 5, .named = true};
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    fixture_judge(&one.view.clock, one.view.now);
    cr_assert_eq(one.store->batch->read_due(one.store, &shortfall, 1, &one.arena, &one.view), PERMIT_OK);
    cr_assert_eq(one.view.request_count, 2, "each once");
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

Test(labels, due_holders_of_a_thousand_named_slots_are_read)
{
    acquire("k", "big", 1000, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    acquire("m", "big", 100, (struct ttl){.kind = TTL_DURATION, .ms = 60000});
    must_run(observer, "UPDATE permit_request SET due_at = due_at - INTERVAL 1 HOUR");
    held_rewrite(address);
    struct slots_wanted wanted = {.named = names_of_big(MANY), .named_count = (size_t)2 * MANY};
    struct lock_set set = {.semaphore_ids = &big, .slots_wanted = &wanted, .semaphore_count = 1};
    struct shortfall shortfall = {.semaphore = 0, .named = true};
    cr_assert_eq(one.store->batch->lock(one.store, &set, &one.arena, &one.view), PERMIT_OK, "%s", one.store->message);
    fixture_judge(&one.view.clock, one.view.now);
    cr_assert_eq(one.store->batch->read_due(one.store, &shortfall, 1, &one.arena, &one.view), PERMIT_OK, "%s",
                 one.store->message);
    cr_assert_eq(one.view.request_count, 2);
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
}

/* ---- access paths ---- */

/* Asserts that EXPLAIN shows, for each statement of the packet that reads slots, the index it names and few rows. */
static void explain_slots(const char *packet, const char *const *indexes, size_t count)
{
    size_t found = 0;
    for (const char *at = packet; (at = strstr(at, "SELECT l.number")) != NULL; at++, found++) {
        enum { TABLES_MAX = 8 };
        struct explained tables[TABLES_MAX];
        size_t table_count = explain(observer, at, tables, TABLES_MAX);
        cr_assert_lt(found, count);
        cr_assert_leq(table_count, TABLES_MAX);
        for (size_t i = 0; i < table_count; i++) {
            struct bytes expected = bytes_of(i == 0 ? indexes[found] : "PRIMARY");
            bool subquery = bytes_equal(tables[i].table, BYTES("semaphore"));
            cr_expect(subquery || bytes_equal(tables[i].key, expected), "%s: table %zu", at, i);
            cr_expect(!bytes_equal(tables[i].type, BYTES("ALL")) && !bytes_equal(tables[i].type, BYTES("index")));
        }
    }
    cr_assert_eq(found, count, "%s", packet);
}

Test(labels, named_slots_are_found_by_their_indexes)
{
    static const char *const indexes[] = {"PRIMARY", "slot_label", "PRIMARY",    "PRIMARY",
                                          "PRIMARY", "slot_label", "slot_label", "slot_label"};
    uint64_t ids[] = {hall, big};
    const struct slot_name of_hall[] = {{.number = 2}, {.label = BYTES("A1")}, {.number = 2}};
    struct slots_wanted wanted[] = {{.free = 1, .named = of_hall, .named_count = 3},
                                    {.named = names_of_big(MANY), .named_count = (size_t)2 * MANY}};
    struct lock_set set = {.semaphore_ids = ids, .slots_wanted = wanted, .semaphore_count = 2};
    struct buf sql;
    acquire("k", "big", 700, (struct ttl){.kind = TTL_UNLIMITED});
    acquire("m", "hall", 2, (struct ttl){.kind = TTL_UNLIMITED});
    must_run(observer, "ANALYZE TABLE slot, permit, permit_request");
    buf_init(&sql, SQL_ROOM);
    cr_assert(batch_sort_named(&set, &one.arena));
    batch_lock_sql(&set, "''", &sql);
    explain_slots(buf_text(&sql), indexes, ARRAY_LENGTH(indexes));
    buf_clear(&sql);
    set = (struct lock_set){.semaphore_name = BYTES("big"), .all_slots = true};
    batch_lock_sql(&set, "''", &sql);
    explain_slots(buf_text(&sql), indexes, 1);
    buf_release(&sql);
}

/* Asserts that EXPLAIN shows a range of PRIMARY. */
static void walks_primary(const char *statement)
{
    struct explained table;
    cr_assert_geq(explain(observer, statement, &table, 1), 1);
    cr_expect(bytes_equal(table.key, BYTES("PRIMARY")) && bytes_equal(table.type, BYTES("range")), "%s", statement);
}

Test(labels, holders_and_labelled_slots_are_found_by_the_primary_key)
{
    const struct label_change changes[] = {{big, 1, BYTES("x")}, {big, 2, BYTES("y")}};
    const uint64_t tokens[] = {1, 2, 3};
    struct changes written = {.labels = changes, .label_count = ARRAY_LENGTH(changes)};
    struct buf sql;
    size_t found = 0;
    acquire("k", "big", 700, (struct ttl){.kind = TTL_UNLIMITED});
    buf_init(&sql, SQL_ROOM);
    batch_tokens_sql(big, tokens, ARRAY_LENGTH(tokens), &sql);
    walks_primary(buf_text(&sql));
    buf_clear(&sql);
    (void)batch_changes_sql(&written, false, &one.arena, &sql);
    for (const char *at = buf_text(&sql); (at = strstr(at, "UPDATE slot")) != NULL; at++, found++)
        walks_primary(at);
    cr_assert_eq(found, 2);
    buf_release(&sql);
}

static size_t statements(const struct buf *sql)
{
    size_t count = 1;
    for (const char *at = buf_text(sql); (at = strchr(at, ';')) != NULL; at++)
        count++;
    return count;
}

/* An acquire that names no slots runs no additional statements. */
Test(labels, plain_acquire_runs_no_additional_statements)
{
    struct bytes key = BYTES("k");
    struct slots_wanted wanted = {.free = 1};
    struct lock_set set = {
        .semaphore_ids = &hall, .slots_wanted = &wanted, .semaphore_count = 1, .keys = &key, .key_count = 1};
    struct buf sql;
    buf_init(&sql, SQL_ROOM);
    cr_assert(batch_sort_named(&set, &one.arena));
    cr_assert_eq(set.slots_wanted, &wanted);
    batch_lock_sql(&set, "''", &sql);
    cr_assert_eq(statements(&sql), 4, "BEGIN, the lock, free slots, the clock and the request: %s", buf_text(&sql));
    buf_release(&sql);
}

/* ---- labels of permits ---- */

/* Sets the labels of a permit, as the plan does. */
static void give_permit_labels(struct permit *permit, struct bytes *labels)
{
    permit->labels = labels;
}

static void expect_labels(const struct permit *permit)
{
    cr_assert_eq(permit->slots.count, 3);
    cr_assert_not_null(permit->labels);
    cr_expect(bytes_equal(permit->labels[0], BYTES("A1")));
    cr_expect_eq(permit->labels[1].length, 0);
    cr_expect(bytes_equal(permit->labels[2], BYTES("\xc3\x85 3'")));
}

Test(labels, permit_keeps_the_labels_of_its_grant)
{
    struct bytes labels[] = {BYTES("A1"), BYTES(""), BYTES("\xc3\x85 3'")};
    struct want wants[] = {{.semaphore = BYTES("hall"), .count = 3}, {.semaphore = BYTES("plain"), .count = 1}};
    struct operation operation = acquire_of("k", wants, 2);
    cr_assert_eq(batch_decide(&one, &operation)->status, PERMIT_OK);
    give_permit_labels(&one.plan.changes.requests[0].request->permits[0], labels);
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_OK, "%s", one.store->message);
    cr_assert_str_eq(text_of(observer, "SELECT HEX(labels) FROM permit WHERE labels IS NOT NULL"),
                     "41310A0AC385203327");
    must_run(observer, "UPDATE slot SET label = NULL");

    const struct outcome *outcome = batch_run(&one, &operation);
    cr_assert(outcome->replayed);
    const struct permit *permits = outcome->request->permits;
    expect_labels(&permits[permits[0].semaphore_id == hall ? 0 : 1]);
    cr_expect_null(permits[permits[0].semaphore_id == hall ? 1 : 0].labels);

    struct request request;
    struct bytes *names;
    struct query_time time;
    struct page page = {.arena = &one.arena, .limit = 10};
    cr_assert_eq(observer_store->queries->request(observer_store, BYTES("k"), &one.arena, &request, &names, &time),
                 PERMIT_OK);
    cr_assert(bytes_equal(names[0], BYTES("hall")));
    expect_labels(&request.permits[0]);
    cr_expect_null(request.permits[1].labels);
    cr_assert_eq(observer_store->queries->requests(observer_store, &(struct request_filter){0}, &page), PERMIT_OK);
    cr_assert(bytes_equal(page.requests[0].names[1], BYTES("plain")));
    expect_labels(&page.requests[0].request.permits[0]);
    page = (struct page){.arena = &one.arena, .limit = 10};
    cr_assert_eq(observer_store->queries->holders(observer_store, BYTES("hall"), &page), PERMIT_OK);
    expect_labels(&page.holders[0].permit);
}

Test(labels, permit_with_mismatched_labels_is_an_error)
{
    struct request request;
    struct bytes *names;
    struct query_time time;
    static const char *const wrong[] = {"'A1'", "'A1\\nA2\\nA3'", "'A1\\nA2\\n'"};
    acquire("k", "hall", 2, (struct ttl){.kind = TTL_UNLIMITED});
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "UPDATE permit SET labels = %s", wrong[i]);
        must_run(observer, sql);
        cr_expect_neq(observer_store->queries->request(observer_store, BYTES("k"), &one.arena, &request, &names, &time),
                      PERMIT_OK, "%s", wrong[i]);
    }
    must_run(observer, "UPDATE permit SET labels = 'A1\\n'");
    cr_expect_eq(observer_store->queries->request(observer_store, BYTES("k"), &one.arena, &request, &names, &time),
                 PERMIT_OK);
}

Test(labels, permit_without_labels_does_not_write_the_column)
{
    struct arena scratch;
    struct buf sql;
    struct want wants[] = {{.semaphore = BYTES("plain"), .count = 1}};
    struct operation operation = acquire_of("k", wants, 1);
    cr_assert_eq(batch_decide(&one, &operation)->status, PERMIT_OK);
    arena_init(&scratch, 1 << 12, 1 << 20);
    buf_init(&sql, SQL_ROOM);
    (void)batch_changes_sql(&one.plan.changes, false, &scratch, &sql);
    cr_assert_null(strstr(buf_text(&sql), "label"), "%s", buf_text(&sql));
    cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    arena_release(&scratch);
    buf_release(&sql);
}

/* ---- writing ---- */

/* Writes the changes of an OP_SEMAPHORE_LABELS plan: the semaphore, and these labels. */
static enum permit_status write_labels(const char *semaphore, const struct label_change *labels, size_t count)
{
    struct operation put = {.kind = OP_SEMAPHORE_PUT,
                            .semaphore = bytes_of(semaphore),
                            .change = &(struct semaphore_change){.has_note = true, .note = BYTES("labelled")}};
    cr_assert_eq(batch_decide(&one, &put)->status, PERMIT_OK);
    one.plan.changes.labels = labels;
    one.plan.changes.label_count = count;
    enum permit_status status = one.store->batch->commit(one.store, &one.plan.changes);
    if (status != PERMIT_OK)
        cr_assert_eq(one.store->batch->rollback(one.store), PERMIT_OK);
    return status;
}

static const char *labels_of(uint64_t semaphore_id)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT GROUP_CONCAT(COALESCE(label, '-') ORDER BY number SEPARATOR ' ') FROM slot"
             " WHERE semaphore_id = %llu",
             (unsigned long long)semaphore_id);
    return text_of(observer, sql);
}

Test(labels, are_written_moved_and_removed)
{
    const struct label_change first[] = {{plain, 1, BYTES("x y")}, {plain, 3, BYTES("'; --")}};
    cr_assert_eq(write_labels("plain", first, 2), PERMIT_OK, "%s", one.store->message);
    cr_assert_str_eq(labels_of(plain), "x y - '; --");
    const struct label_change moved[] = {{hall, 1, BYTES("A4")}, {hall, 2, {0}}, {hall, 4, BYTES("A1")}};
    cr_assert_eq(write_labels("hall", moved, 3), PERMIT_OK, "%s", one.store->message);
    cr_assert_str_eq(labels_of(hall), "A4 - A3 A1 - -");
    const struct label_change gone[] = {{hall, 1, {0}}, {hall, 2, {0}}, {hall, 3, {0}}, {hall, 4, {0}}};
    cr_assert_eq(write_labels("hall", gone, 4), PERMIT_OK, "%s", one.store->message);
    cr_assert_str_eq(labels_of(hall), "- - - - - -");
    cr_assert_str_eq(labels_of(plain), "x y - '; --");
}

/* Moves each label to the next slot, so that each statement takes labels that another statement gives away. */
Test(labels, labels_beyond_one_statement_move_together)
{
    static struct label_change changes[MANY];
    static char texts[MANY][8];
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "L%u", (i + 1) % MANY + 1);
        changes[i] = (struct label_change){big, i + 1, bytes_of(texts[i])};
    }
    cr_assert_eq(write_labels("big", changes, MANY), PERMIT_OK, "%s", one.store->message);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot s JOIN semaphore m ON m.id = s.semaphore_id AND"
                                     " m.name = 'big' WHERE label = CONCAT('L', number % 1200 + 1)"),
                 MANY);
}

Test(labels, label_for_a_missing_slot_raises)
{
    const struct label_change wrong[] = {{hall, 1, BYTES("new")}, {hall, 77, BYTES("other")}};
    cr_assert_eq(write_labels("hall", wrong, 2), PERMIT_INTERNAL);
    cr_assert_str_eq(labels_of(hall), "A1 A2 A3 A4 - -");
    const struct label_change twice[] = {{hall, 5, BYTES("A1")}};
    cr_assert_eq(write_labels("hall", twice, 1), PERMIT_CONFLICT);
    cr_assert_str_eq(labels_of(hall), "A1 A2 A3 A4 - -");
    cr_assert_eq(write_labels("hall", NULL, 0), PERMIT_OK, "the locks are free again");
}

Test(labels, are_removed_when_the_semaphore_is_retired)
{
    struct operation retire = {.kind = OP_SEMAPHORE_RETIRE, .semaphore = BYTES("hall")};
    cr_assert_eq(batch_decide(&one, &retire)->status, PERMIT_OK);
    one.plan.changes.semaphores[0].drop_labels = true;
    cr_assert_eq(one.store->batch->commit(one.store, &one.plan.changes), PERMIT_OK, "%s", one.store->message);
    cr_assert_str_eq(labels_of(hall), "- - - - - -");
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE label IS NOT NULL"), MANY);
}

/* ---- decisions ---- */

static const struct outcome *acquire_these(const char *key, struct slot_name *names, size_t count)
{
    static struct want want;
    static struct operation operation;
    want = (struct want){.semaphore = BYTES("hall"),
                         .count = (int64_t)count,
                         .choice = CHOOSE_NAMED,
                         .named = names,
                         .named_count = count};
    cr_assert_eq(want_sort_named(&want), PERMIT_OK);
    operation = acquire_of(key, &want, 1);
    operation.ttl = (struct ttl){.kind = TTL_DURATION, .ms = 60000};
    cr_assert(request_digest(operation.owner, operation.ttl, &want, 1, operation.digest));
    return batch_run(&one, &operation);
}

Test(labels, named_slots_are_granted_or_refused_with_their_holders)
{
    struct slot_name two[] = {{.label = BYTES("A3")}, {.number = 5}};
    struct slot_name three[] = {{.label = BYTES("A1")}, {.label = BYTES("A3")}};
    const struct outcome *outcome = acquire_these("k", two, 2);
    cr_assert_eq(outcome->status, PERMIT_OK, "%s", outcome->detail);
    cr_assert_str_eq(text_of(observer, "SELECT CONCAT(slots, ':', labels) FROM permit"), "3,5:A3\n");
    cr_assert(acquire_these("k", two, 2)->replayed);
    outcome = acquire_these("m", three, 2);
    cr_assert_eq(outcome->status, PERMIT_NO_CAPACITY);
    cr_assert_eq(outcome->shortages[0].taken_count, 1);
    const struct taken_slot *taken = &outcome->shortages[0].taken[0];
    cr_assert(taken->number == 3 && taken->token == 1 && label_is(taken->label, "A3") && label_is(taken->holder, "k"));
    cr_assert_neq(taken->expires_at, NEVER);
    cr_assert_eq(number_of(observer, "SELECT COUNT(*) FROM slot WHERE permit_id <> 0"), 2);
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(acquire_these("m", three, 2)->status, PERMIT_OK);
}

/* Other slots are free, but the request names this one. */
Test(labels, due_holder_of_a_named_slot_is_ended_for_the_request)
{
    struct slot_name names[] = {{.label = BYTES("A2")}};
    cr_assert_eq(acquire_these("k", names, 1)->status, PERMIT_OK);
    cr_assert_eq(acquire_these("m", names, 1)->status, PERMIT_NO_CAPACITY);
    must_run(observer, "UPDATE permit_request SET due_at = due_at - INTERVAL 1 HOUR WHERE external_id = 'k';"
                       "UPDATE semaphore SET next_due_at = next_due_at - INTERVAL 1 HOUR WHERE name = 'hall'");
    held_rewrite(address);
    cr_assert_eq(acquire_these("m", names, 1)->status, PERMIT_OK);
    cr_assert_eq(number_of(observer, "SELECT end_reason FROM permit_request WHERE external_id = 'k'"), END_EXPIRED);
    cr_assert_eq(number_of(observer, "SELECT permit_id FROM slot WHERE label = 'A2'"), 2);
}

static const struct outcome *change_labels(uint32_t from, const struct bytes *labels, size_t count)
{
    static struct semaphore_change change;
    static struct operation operation;
    change = (struct semaphore_change){.has_labels = true, .labels = labels, .label_count = count, .labels_from = from};
    operation = (struct operation){.kind = OP_SEMAPHORE_LABELS, .semaphore = BYTES("hall"), .change = &change};
    return batch_run(&one, &operation);
}

Test(labels, change_as_decided_by_the_plan)
{
    const struct bytes swapped[] = {BYTES("A2"), BYTES("A1"), {0}};
    const struct bytes added[] = {BYTES("A3"), BYTES("A6")};
    cr_assert_eq(change_labels(1, swapped, 3)->status, PERMIT_OK);
    cr_assert_str_eq(labels_of(hall), "A2 A1 - A4 - -");
    cr_assert_eq(change_labels(5, added, 2)->status, PERMIT_OK);
    cr_assert_str_eq(labels_of(hall), "A2 A1 - A4 A3 A6");
    cr_assert_eq(change_labels(1, added, 1)->status, PERMIT_INVALID, "A3 is at slot 5, outside the page");
    struct slot_name held[] = {{.number = 2}};
    cr_assert_eq(acquire_these("k", held, 1)->status, PERMIT_OK);
    cr_assert_eq(change_labels(2, &(struct bytes){0}, 1)->status, PERMIT_IN_USE);
    cr_assert_str_eq(labels_of(hall), "A2 A1 - A4 A3 A6");
    struct operation release = {.kind = OP_RELEASE, .external_id = BYTES("k")};
    struct operation retire = {.kind = OP_SEMAPHORE_RETIRE, .semaphore = BYTES("hall")};
    cr_assert_eq(batch_run(&one, &release)->status, PERMIT_OK);
    cr_assert_eq(batch_run(&one, &retire)->status, PERMIT_OK);
    cr_assert_str_eq(labels_of(hall), "- - - - - -");
    semaphore_make(&one, "hall", KIND_SLOTTED, 6);
    cr_assert_str_eq(labels_of(hall), "- - - - - -");
}

/* ---- resolve ---- */

Test(labels, retired_semaphore_is_resolved_as_retired)
{
    struct operation retire = {.kind = OP_SEMAPHORE_RETIRE, .semaphore = BYTES("hall")};
    struct resolve_name names[] = {{.name = BYTES("hall")}, {.name = BYTES("plain")}};
    struct resolve resolve = {.names = names, .name_count = 2};
    cr_assert_eq(one.store->batch->resolve(one.store, &resolve, &one.arena), PERMIT_OK, "%s", one.store->message);
    cr_assert(names[0].ret_id == hall && !names[0].ret_retired);
    cr_assert_eq(batch_run(&one, &retire)->status, PERMIT_OK);
    cr_assert_eq(one.store->batch->resolve(one.store, &resolve, &one.arena), PERMIT_OK, "%s", one.store->message);
    cr_assert(names[0].ret_id == hall && names[0].ret_retired);
    cr_assert(names[1].ret_id == plain && !names[1].ret_retired);
}
