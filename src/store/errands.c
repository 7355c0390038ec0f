/* SPDX-License-Identifier: MIT */
/* The errands that batches have to settle (queries->errands). */
#include "store/query_packet.h"

enum permit_status query_errands(struct store *store, struct errand_page *page, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct row_reader *row = &packet.row;
    unsigned long long bucket = page->after.bucket, request_id = page->after.request_id;
    buf_printf(&packet.sql,
               "SELECT EXISTS(SELECT 1 FROM sql_account);"
               "SELECT e.bucket,e.permit_request_id,r.external_id FROM errand e FORCE INDEX (PRIMARY)"
               " STRAIGHT_JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=e.permit_request_id AND r.errand<>0"
               " WHERE e.bucket>=%llu AND (e.bucket>%llu OR e.permit_request_id>%llu)"
               " ORDER BY e.bucket,e.permit_request_id LIMIT %zu",
               bucket, bucket, request_id, page->limit);
    packet_send(&packet);
    page->ret_expected = packet_row(&packet) && row_u64(row) != 0;
    packet_next(&packet);
    page->ret_rows = packet_rows(&packet, sizeof *page->ret_rows, &page->ret_count);
    for (size_t i = 0; i < page->ret_count && packet_row(&packet); i++) {
        page->ret_rows[i].position.bucket = row_u64(row);
        page->ret_rows[i].position.request_id = row_u64(row);
        page->ret_rows[i].external_id = row_bytes(row);
    }
    page->ret_expected |= page->ret_count > 0;
    return packet_end(&packet);
}
