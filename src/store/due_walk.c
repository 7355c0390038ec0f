/* SPDX-License-Identifier: MIT */
/*
 * The walk of the expiry task (queries->due): pages of held and waiting requests in the order of their deadlines, by
 * the second, without locks. Two tables are walked side by side.
 */
#include "store/held.h"
#include "store/query_packet.h"

/* A table in the order of the walk, and its columns. */
struct due_source {
    const char *table; /* with its index */
    const char *semaphore_id, *block;
};
static const struct due_source due_held = {"held FORCE INDEX (held_due)", "semaphore_id", "block"};
static const struct due_source due_waiting = {"waiting_due FORCE INDEX (PRIMARY)", "0", "permit_request_id"};

/* Appends the condition that a row is behind a position, as ranges of the index. */
static void behind_sql(const struct due_source *source, const struct due_position *after, struct buf *sql)
{
    unsigned long long second = after->due_s, semaphore = after->semaphore_id, block = after->block;
    buf_printf(sql, "due_s<%u AND (due_s>%llu", HELD_NEVER_DUE, second);
    if (source == &due_held)
        buf_printf(sql, " OR (due_s=%llu AND semaphore_id>%llu) OR (due_s=%llu AND semaphore_id=%llu AND block>%llu)",
                   second, semaphore, second, semaphore, block);
    else if (semaphore == 0)
        buf_printf(sql, " OR (due_s=%llu AND permit_request_id>%llu)", second, block);
    buf_append_char(sql, ')');
}

/* Selects the last position of a page. */
static void due_end_sql(const struct due_source *source, const struct due_page *page, struct buf *sql)
{
    buf_printf(sql, "(SELECT due_s,%s AS semaphore_id,%s AS block FROM %s WHERE ", source->semaphore_id, source->block,
               source->table);
    behind_sql(source, &page->after, sql);
    buf_printf(sql, " ORDER BY due_s,semaphore_id,block LIMIT 1 OFFSET %zu)", page->limit - 1);
}

static struct due_position read_position(struct row_reader *row)
{
    struct due_position position = {.due_s = row_u64(row)};
    position.semaphore_id = row_u64(row);
    position.block = row_u64(row);
    return position;
}

/* Appends the condition that a row is not behind the end of the page. */
static void until_end_sql(const struct due_source *source, const struct due_page *page, struct buf *sql)
{
    const struct due_position *end = &page->ret_end;
    if (!page->ret_more)
        return;
    buf_printf(sql, " AND due_s<=%llu AND (due_s<%llu OR %s<%llu OR (%s=%llu AND %s<=%llu))",
               (unsigned long long)end->due_s, (unsigned long long)end->due_s, source->semaphore_id,
               (unsigned long long)end->semaphore_id, source->semaphore_id, (unsigned long long)end->semaphore_id,
               source->block, (unsigned long long)end->block);
}

/* Selects the requests of the page. One with several permits counts at the first semaphore alone. */
static void due_requests_sql(const struct due_page *page, struct buf *sql)
{
    buf_append_text(sql, "(SELECT h.due_s,h.semaphore_id,h.block,r.external_id,r.due_at FROM (SELECT "
                         "due_s,semaphore_id,block,bits FROM held FORCE INDEX (held_due) WHERE ");
    behind_sql(&due_held, &page->after, sql);
    until_end_sql(&due_held, page, sql);
    buf_append_text(sql, ") h" HELD_REQUESTS " WHERE " HELD_FIRST_PERMIT ")"
                         " UNION ALL (SELECT w.due_s,0,w.permit_request_id,r.external_id,r.due_at FROM ("
                         "SELECT due_s,permit_request_id FROM waiting_due FORCE INDEX (PRIMARY) WHERE ");
    behind_sql(&due_waiting, &page->after, sql);
    until_end_sql(&due_waiting, page, sql);
    buf_append_text(sql, ") w JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id AND r.state=3)"
                         " ORDER BY 1,2,3;" SQL_CLOCK);
}

enum permit_status query_due(struct store *store, struct due_page *page, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct row_reader *row = &packet.row;
    /* The page ends at the first of the positions at which it would end in each table. */
    due_end_sql(&due_held, page, &packet.sql);
    buf_append_text(&packet.sql, " UNION ALL ");
    due_end_sql(&due_waiting, page, &packet.sql);
    buf_append_text(&packet.sql, " ORDER BY due_s,semaphore_id,block LIMIT 1");
    packet_send(&packet);
    page->ret_more = packet_row(&packet);
    if (page->ret_more)
        page->ret_end = read_position(row);
    due_requests_sql(page, &packet.sql);
    packet_send(&packet);
    page->ret_requests = packet_rows(&packet, sizeof *page->ret_requests, &page->ret_count);
    for (size_t i = 0; i < page->ret_count && packet_row(&packet); i++) {
        struct due_request *request = &page->ret_requests[i];
        request->position = read_position(row);
        request->external_id = row_bytes(row);
        request->due_at = row_time(row);
    }
    packet_time(&packet, &page->ret_time);
    return packet_end(&packet);
}
