/* SPDX-License-Identifier: MIT */

#include "store/batch.h"
#include "store/query_packet.h"

enum permit_status query_slot_list_head(struct store *store, struct bytes semaphore, struct slot_list_head *ret_head)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql,
                    "SELECT s.id,s.kind,s.in_use,s.version,c.epoch FROM semaphore s FORCE INDEX (semaphore_name)"
                    " JOIN cluster c ON c.id=1 WHERE s.retired_at IS NULL AND s.name=");
    sql_bytes(&packet.sql, semaphore);
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_UNKNOWN_SEMAPHORE)) {
        ret_head->semaphore_id = row_u64(&packet.row);
        ret_head->kind = (enum semaphore_kind)row_u64(&packet.row);
        ret_head->in_use = row_i64(&packet.row);
        ret_head->version = row_u64(&packet.row);
        ret_head->epoch = row_u64(&packet.row);
    }
    return packet_end(&packet);
}

/*
 * Returns true if so few labels have the prefix that a walk over slot_label is best. If many have it, a walk over all
 * slots fills the page soon. The optimizer would always walk all slots, because of ORDER BY.
 */
static bool few_have_prefix(struct packet *packet, uint64_t semaphore_id, struct bytes prefix)
{
    enum { FEW = 1000 };
    if (prefix.length == 0)
        return false;
    buf_printf(&packet->sql,
               "SELECT COUNT(*) FROM (SELECT 1 FROM slot FORCE INDEX (slot_label) WHERE semaphore_id=%llu",
               (unsigned long long)semaphore_id);
    query_prefix_sql(&packet->sql, "label", prefix);
    buf_printf(&packet->sql, " LIMIT %d) few", FEW);
    packet_send(packet);
    return packet_row(packet) && row_u64(&packet->row) < FEW;
}

/*
 * Walks the primary key from `after` on until the page is full, or slot_label over all labels with the prefix, if there
 * are few; then the primary keys of permit and request.
 */
enum permit_status query_slots(struct store *store, uint64_t semaphore_id, const struct slot_filter *filter,
                               struct page *page)
{
    static const char *const of_state[] = {
        [SLOT_ANY] = " AND (l.retired=0 OR l.permit_id<>0)",
        [SLOT_FREE] = " AND l.retired=0 AND l.permit_id=0",
        [SLOT_HELD] = " AND l.permit_id<>0",
    };
    struct packet packet = packet_begin(session_of(store), page->arena);
    bool by_label = few_have_prefix(&packet, semaphore_id, filter->prefix);
    buf_printf(
        &packet.sql,
        "SELECT STRAIGHT_JOIN l.number,l.label,l.permit_id," BATCH_SEAT_COLUMNS(
            "l.") "," ROW_REQUEST_COLUMNS " FROM slot l FORCE INDEX (%s)"
                  " LEFT JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=l.semaphore_id AND p.id=l.permit_id"
                  " LEFT JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
                  " WHERE l.semaphore_id=%llu AND l.number>%llu%s",
        by_label ? "slot_label" : "PRIMARY", (unsigned long long)semaphore_id, (unsigned long long)page->after.number,
        of_state[filter->state]);
    query_prefix_sql(&packet.sql, "l.label", filter->prefix);
    buf_printf(&packet.sql, " ORDER BY l.number LIMIT %u;" SQL_CLOCK, page->limit + 1);
    packet_send(&packet);
    size_t count;
    struct slot_list_row *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        rows[i].number = (uint32_t)row_u64(&packet.row);
        rows[i].label = row_bytes(&packet.row);
        rows[i].token = row_u64(&packet.row);
        batch_row_seat(&packet.row, &rows[i].seat);
        if (rows[i].token)
            row_request(&packet.row, &rows[i].request);
    }
    page->slots = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].number;
    packet_time(&packet, &page->time);
    return packet_end(&packet);
}
