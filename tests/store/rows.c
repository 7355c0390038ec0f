/* SPDX-License-Identifier: MIT */
/* The columns of store/tables.h are those of sql/, and a row that is written is read as it was. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "fixture.h"
#include "store/row_reader.h"
#include "store/row_sql.h"

/* Columns that permitd writes or reads by statements of their own, or only by DEFAULT. */
static const struct {
    const struct row_table *table;
    const char *others; /* each between commas */
} tables[] = {
    {&request_table, ",valid,"},
    {&permit_table, ",valid,"},
    {&semaphore_table, ",valid,"},
    {&template_table, ",valid,"},
    {&waiter_table, ",valid,"},
    {&mail_table, ""},
    {&held_table, ""},
    {&waiting_table, ""},
    {&slot_table, ",label,retired,section,seat_row,seat,seat_rank,tags,"},
    {&owner_table, ""},
    {&server_table, ",dead_at,"},
    {&event_table, ""},
};

Test(rows, columns_are_those_of_the_schema)
{
    struct session *session = connected(fresh_database(), STORE_READER);
    for (size_t i = 0; i < ARRAY_LENGTH(tables); i++) {
        const struct row_table *table = tables[i].table;
        char sql[400], column[100];
        snprintf(sql, sizeof sql,
                 "SELECT GROUP_CONCAT(COLUMN_NAME) FROM information_schema.COLUMNS"
                 " WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='%s'",
                 table->name);
        char in_schema[2000], in_table[2000] = ",";
        snprintf(in_schema, sizeof in_schema, ",%s,", text_of(session, sql));
        for (size_t c = 0; c < table->count; c++) {
            struct bytes name = row_column_name(&table->columns[c]);
            snprintf(column, sizeof column, ",%.*s,", (int)name.length, name.data);
            cr_expect(strstr(in_schema, column), "%s: sql/ has no column %s", table->name, column);
            strcat(in_table, column + 1);
        }
        for (char *name = strtok(in_schema, ","); name; name = strtok(NULL, ",")) {
            snprintf(column, sizeof column, ",%s,", name);
            cr_expect(strstr(in_table, column) || strstr(tables[i].others, column), "%s: tables.h has no column %s",
                      table->name, column);
        }
    }
    session_free(session);
}

static struct request written_request(void)
{
    struct request request = {
        .id = 18,
        .external_id = BYTES("key"),
        .owner = BYTES("owner"),
        .principal = BYTES("principal"),
        .nonce = BYTES("nonce"),
        .has_digest = true,
        .digest = "0123456789abcdef0123456789abcdef",
        .state = REQUEST_RELEASED,
        .end_reason = END_FORCED,
        .ttl_ms = 60000,
        .due_at = 1790000000000001,
        .grace_ms = 7,
        .confirmed_at = 1790000000000002,
        .renewals = UINT32_MAX,
        .replays = 4,
        .acquired_at = 1790000000000003,
        .ended_at = 1790000000000004,
        .priority = 9,
        .place = 1790000000000005,
        .waiting_since = 1790000000000006,
        .waiting_until = 1790000000000007,
        .server_id = UINT64_MAX,
    };
    return request;
}

static void expect_same(const struct request *read, const struct request *written)
{
    struct row_change change = {written, read};
    cr_expect_eq(row_changed_columns(&request_table, change), 0, "columns %x",
                 row_changed_columns(&request_table, change));
    cr_expect_eq(read->id, written->id);
    cr_expect_eq(read->state, written->state);
    cr_expect(bytes_equal(read->external_id, written->external_id));
}

static void read_request(struct session *session, struct arena *arena, struct request *ret_request)
{
    struct row_reader reader = {.arena = arena};
    *ret_request = (struct request){0};
    cr_assert_eq(session_send(session, BYTES("SELECT " ROW_REQUEST_COLUMNS " FROM permit_request r")), PERMIT_OK);
    cr_assert(row_step(&reader, session));
    cr_assert_eq(reader.row.count, ROW_REQUEST_COUNT);
    row_request(&reader, ret_request);
    cr_assert(!reader.broken);
    cr_assert_eq(session_end(session, PERMIT_OK), PERMIT_OK);
}

static void run(struct session *session, struct buf *sql)
{
    must_run(session, buf_text(sql));
    buf_clear(sql);
}

static void insert(struct session *session, const struct request *request, struct buf *sql)
{
    struct row_insert insert = {.table = &request_table, .columns = COLUMN_INSERT | COLUMN_MORE | COLUMN_QUEUE};
    row_insert_sql(&insert, request, sql);
    row_insert_end_sql(&insert, sql);
    run(session, sql);
}

Test(rows, request_is_read_as_it_was_written)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    struct request written = written_request(), read;
    struct arena arena;
    struct buf sql;
    arena_init(&arena, 1 << 16, 1 << 20);
    buf_init(&sql, 1 << 16);
    insert(session, &written, &sql);
    read_request(session, &arena, &read);
    expect_same(&read, &written);

    /* The UPDATE writes what changes, and adds to counters, which wrap around. */
    struct request changed = {.id = 18,
                              .external_id = BYTES("key"),
                              .state = REQUEST_RELEASED,
                              .ttl_ms = TTL_NONE,
                              .due_at = NEVER,
                              .confirmed_at = NEVER,
                              .acquired_at = NEVER,
                              .ended_at = NEVER,
                              .renewals = 1};
    struct row_change change = {&written, &changed};
    uint32_t columns = row_changed_columns(&request_table, change);
    buf_append_text(&sql, "UPDATE permit_request SET id=id");
    row_changes_sql(&request_table, columns, change, &sql);
    cr_expect(strstr(buf_text(&sql), ",renewals=4294967295&renewals+2,"), "%s", buf_text(&sql));
    run(session, &sql);
    read_request(session, &arena, &read);
    expect_same(&read, &changed);
    cr_expect(!read.has_digest && read.place == NEVER && read.server_id == 0 && read.ttl_ms == TTL_NONE);
    cr_expect_eq(number_of(session, "SELECT COUNT(*) FROM permit_request WHERE digest IS NULL AND owner='' AND ttl_ms"
                                    " IS NULL AND server_id IS NULL AND waiting_since IS NULL AND nonce=''"),
                 1);
    buf_release(&sql);
    arena_release(&arena);
    session_free(session);
}
