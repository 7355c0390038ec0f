/* SPDX-License-Identifier: MIT */
/* The seats of slots: their columns in a batch, read and written. */
#include "store/batch.h"
#include "store/batch_guard.h"
#include "store/query_packet.h"

void batch_row_seat(struct row_reader *row, struct seat *ret_seat)
{
    ret_seat->section = row_bytes(row);
    ret_seat->row = row_bytes(row);
    ret_seat->position = (uint32_t)row_u64(row);
    struct bytes rank = row_column(row);
    ret_seat->rank = SEAT_RANK_NONE;
    if (rank.data)
        ret_seat->rank = (uint32_t)column_u64(rank);
    ret_seat->tags = row_bytes(row);
}

enum permit_status batch_read_seats(struct session *session, uint64_t semaphore_id, struct arena *arena,
                                    struct seats *ret_seats)
{
    struct packet packet = packet_begin(session, arena);
    buf_printf(&packet.sql,
               "SELECT number,label," BATCH_SEAT_COLUMNS("") " FROM slot FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu"
                                                             " ORDER BY number",
               (unsigned long long)semaphore_id);
    packet_send(&packet);
    struct seats seats = {0};
    size_t count;
    seats.rows = packet_rows(&packet, sizeof *seats.rows, &count);
    struct bytes *labels = arena_array(arena, count, sizeof *labels);
    while (labels && seats.count < count && packet_row(&packet)) {
        struct seat *seat = &seats.rows[seats.count];
        seat->number = (uint32_t)row_u64(&packet.row);
        struct bytes *label = &labels[seats.count++];
        *label = row_bytes(&packet.row);
        if (label->data)
            seats.labels = labels;
        batch_row_seat(&packet.row, seat);
    }
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_seats = seats;
    return labels || status != PERMIT_OK ? status : PERMIT_NO_MEMORY;
}

static void number_or_null_sql(struct buf *sql, uint64_t number, bool is_null)
{
    if (is_null)
        buf_append_text(sql, "NULL");
    else
        buf_append_u64(sql, number);
}

static void text_or_null_sql(struct buf *sql, struct bytes text)
{
    buf_append_char(sql, ',');
    sql_bytes_or_null(sql, text.length ? text : (struct bytes){0});
}

/* As for slots, the INSERT finds each row by its primary key and counts 2, because only seats that change are there. */
void batch_seats_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < changes->seat_count; first = end) {
        end = batch_statement_end(first, changes->seat_count);
        buf_append_text(sql, "INSERT INTO slot (semaphore_id,number," BATCH_SEAT_COLUMNS("") ") VALUES ");
        for (size_t i = first; i < end; i++) {
            const struct seat *seat = &changes->seats[i].seat;
            buf_append_text(sql, i > first ? ",(" : "(");
            batch_guarded_value_sql(guard, changes->seats[i].semaphore_id, sql);
            buf_append_char(sql, ',');
            buf_append_u64(sql, seat->number);
            text_or_null_sql(sql, seat->section);
            text_or_null_sql(sql, seat->row);
            buf_append_char(sql, ',');
            number_or_null_sql(sql, seat->position, seat->position == 0);
            buf_append_char(sql, ',');
            number_or_null_sql(sql, seat->rank, seat->rank == SEAT_RANK_NONE);
            text_or_null_sql(sql, seat->tags);
            buf_append_char(sql, ')');
        }
        buf_append_text(sql, " ON DUPLICATE KEY UPDATE section=VALUES(section),seat_row=VALUES(seat_row),"
                             "seat=VALUES(seat),seat_rank=VALUES(seat_rank),tags=VALUES(tags);");
        *guard = (struct batch_guard){true, 2 * (end - first)};
    }
}
