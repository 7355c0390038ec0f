/* SPDX-License-Identifier: MIT */
/* Reads free units and waiters of many semaphores: by their names, or by the beginning of their names. */
#include "store/query_packet.h"

enum { NAMES_A_STATEMENT = 500 };

#define AVAILABILITY                                                                                                   \
    "SELECT s.name,s.capacity,s.in_use,s.waiting,s.version,s.retired_at IS NOT NULL FROM semaphore s"                  \
    " FORCE INDEX (semaphore_name) WHERE "

/* Steps to the next row, which may be that of a retired semaphore. */
static bool next_row(struct packet *packet, struct availability *ret_row, bool *ret_retired)
{
    if (!packet_row(packet))
        return false;
    ret_row->name = row_bytes(&packet->row);
    int64_t capacity = row_i64(&packet->row);
    ret_row->available = max_i64(0, capacity - row_i64(&packet->row));
    ret_row->waiting = row_i64(&packet->row);
    ret_row->version = row_u64(&packet->row);
    *ret_retired = row_u64(&packet->row);
    return packet_works(packet);
}

static void read_names(struct packet *packet, struct availability_read *read)
{
    struct availability row;
    bool retired;
    read->ret_rows = arena_array(packet->row.arena, read->name_count, sizeof *read->ret_rows);
    if (!read->ret_rows)
        packet_fail(packet, PERMIT_NO_MEMORY);
    for (size_t i = 0; i < read->name_count && packet_works(packet); i++) {
        buf_append_text(&packet->sql, i % NAMES_A_STATEMENT ? "," : AVAILABILITY "s.name IN (");
        sql_bytes(&packet->sql, read->names[i]);
        if ((i + 1) % NAMES_A_STATEMENT && i + 1 < read->name_count)
            continue;
        buf_append_char(&packet->sql, ')');
        packet_send(packet);
        while (read->ret_count < read->name_count && next_row(packet, &row, &retired))
            if (!retired)
                read->ret_rows[read->ret_count++] = row;
    }
}

static void read_range(struct packet *packet, struct availability_range *range)
{
    struct availability row;
    bool retired;
    size_t walked = 0, count;
    struct bytes last = {0};
    buf_append_text(&packet->sql, AVAILABILITY "s.name>");
    sql_bytes(&packet->sql, range->after);
    query_prefix_sql(&packet->sql, "s.name", range->prefix);
    buf_printf(&packet->sql, " ORDER BY s.name LIMIT %d", AVAILABILITY_ROWS + 1);
    packet_send(packet);
    range->ret_rows = packet_rows(packet, sizeof *range->ret_rows, &count);
    while (next_row(packet, &row, &retired)) {
        if (walked++ == AVAILABILITY_ROWS) {
            range->ret_next = last;
            break;
        }
        last = row.name;
        if (!retired)
            range->ret_rows[range->ret_count++] = row;
    }
}

enum permit_status query_availability(struct store *store, struct availability_read *read, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    if (read->name_count)
        read_names(&packet, read);
    for (size_t i = 0; i < read->range_count && packet_works(&packet); i++)
        read_range(&packet, &read->ranges[i]);
    return packet_end(&packet);
}
