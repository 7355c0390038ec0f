/* SPDX-License-Identifier: MIT */

#include "store/query_packet.h"

enum permit_status query_slot_list_head(struct store *store, struct bytes semaphore, struct slot_list_head *ret_head)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct row_reader reader = {.at = 0};
    buf_init(&sql, QUERY_SQL_MAX);
    buf_append_text(&sql, "SELECT s.id,s.kind,s.in_use,s.version,c.epoch FROM semaphore s FORCE INDEX (semaphore_name)"
                          " JOIN cluster c ON c.id=1 WHERE s.retired_at IS NULL AND s.name=");
    sql_bytes(&sql, semaphore);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK && row_step(&reader, session)) {
        ret_head->semaphore_id = row_u64(&reader);
        ret_head->kind = (enum semaphore_kind)row_u64(&reader);
        ret_head->in_use = row_i64(&reader);
        ret_head->version = row_u64(&reader);
        ret_head->epoch = row_u64(&reader);
    } else if (status == PERMIT_OK) {
        status = PERMIT_UNKNOWN_SEMAPHORE;
    }
    return query_packet_end(session, &sql, status);
}

/*
 * Sets *ret_few if so few labels have the prefix that a walk over slot_label is best. If many have it, a walk over all
 * slots fills the page soon. The optimizer would always walk all slots, because of ORDER BY.
 */
static enum permit_status few_have_prefix(struct session *session, uint64_t semaphore_id, struct bytes prefix,
                                          bool *ret_few)
{
    enum { FEW = 1000 };
    struct buf sql;
    struct session_row row;
    *ret_few = false;
    if (prefix.length == 0)
        return PERMIT_OK;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_printf(&sql, "SELECT COUNT(*) FROM (SELECT 1 FROM slot FORCE INDEX (slot_label) WHERE semaphore_id=%llu",
               (unsigned long long)semaphore_id);
    query_prefix_sql(&sql, "label", prefix);
    buf_printf(&sql, " LIMIT %d) few", FEW);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_few = column_u64(row.columns[0]) < FEW;
    return query_packet_end(session, &sql, status);
}

static enum permit_status read_slots(struct session *session, struct page *page)
{
    size_t count = query_packet_rows(session);
    struct slot_list_row *rows = arena_array(page->arena, count, sizeof *rows);
    struct row_reader reader = {.arena = page->arena, .broken = count && !rows};
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        rows[i].number = (uint32_t)row_u64(&reader);
        rows[i].label = row_bytes(&reader);
        rows[i].token = row_u64(&reader);
        if (rows[i].token)
            row_request(&reader, &rows[i].request);
    }
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    page->slots = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].number;
    return PERMIT_OK;
}

/*
 * Walks the primary key from `after` on until the page is full, or slot_label over all labels with the prefix, if there
 * are few; then the primary keys of permit and request.
 */
enum permit_status query_slots(struct store *store, uint64_t semaphore_id, const struct slot_filter *filter,
                               struct page *page)
{
    struct session *session = session_of(store);
    static const char *const of_state[] = {
        [SLOT_ANY] = " AND (l.retired=0 OR l.permit_id<>0)",
        [SLOT_FREE] = " AND l.retired=0 AND l.permit_id=0",
        [SLOT_HELD] = " AND l.permit_id<>0",
    };
    struct buf sql;
    bool by_label;
    enum permit_status status = few_have_prefix(session, semaphore_id, filter->prefix, &by_label);
    if (status != PERMIT_OK)
        return status;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_printf(&sql,
               "SELECT STRAIGHT_JOIN l.number,l.label,l.permit_id," ROW_REQUEST_COLUMNS " FROM slot l FORCE INDEX (%s)"
               " LEFT JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=l.semaphore_id AND p.id=l.permit_id"
               " LEFT JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
               " WHERE l.semaphore_id=%llu AND l.number>%llu%s",
               by_label ? "slot_label" : "PRIMARY", (unsigned long long)semaphore_id,
               (unsigned long long)page->after.number, of_state[filter->state]);
    query_prefix_sql(&sql, "l.label", filter->prefix);
    buf_printf(&sql, " ORDER BY l.number LIMIT %u;" SQL_CLOCK, page->limit + 1);
    status = session_send_buf(session, &sql);
    if (status == PERMIT_OK)
        status = read_slots(session, page);
    if (status == PERMIT_OK)
        status = query_packet_time(session, &page->time);
    return query_packet_end(session, &sql, status);
}
