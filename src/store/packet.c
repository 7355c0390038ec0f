/* SPDX-License-Identifier: MIT */
#include "store/packet.h"

enum { SQL_MAX = 8 << 20 };

struct packet packet_begin(struct session *session, struct arena *arena)
{
    struct packet packet = {.session = session, .row = {.arena = arena}};
    buf_init(&packet.sql, SQL_MAX);
    return packet;
}

bool packet_works(struct packet *packet)
{
    if (packet->row.broken)
        packet_fail(packet, packet->row.arena ? PERMIT_NO_MEMORY : PERMIT_INTERNAL);
    return packet->status == PERMIT_OK;
}

void packet_fail(struct packet *packet, enum permit_status status)
{
    if (packet->status == PERMIT_OK)
        packet->status = status;
}

void packet_send(struct packet *packet)
{
    packet_finish(packet);
    if (packet->status == PERMIT_OK) {
        packet->status = session_send_buf(packet->session, &packet->sql);
        packet->sent = true;
    }
    buf_clear(&packet->sql);
}

void packet_next(struct packet *packet)
{
    if (packet_works(packet))
        packet->status = session_next(packet->session);
}

bool packet_row(struct packet *packet)
{
    return packet_works(packet) && row_step(&packet->row, packet->session);
}

bool packet_only_row(struct packet *packet, enum permit_status absent)
{
    if (packet_row(packet))
        return true;
    packet_fail(packet, absent);
    return false;
}

void *packet_rows(struct packet *packet, size_t size, size_t *ret_count)
{
    *ret_count = packet_works(packet) ? (size_t)session_affected(packet->session) : 0;
    void *rows = *ret_count ? arena_array(packet->row.arena, *ret_count, size) : NULL;
    packet->row.broken |= *ret_count && !rows;
    *ret_count = rows ? *ret_count : 0;
    return rows;
}

void packet_time(struct packet *packet, struct query_time *ret_time)
{
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) /* the migration that creates `cluster` inserts its row */
        row_clock(&packet->row, ret_time);
}

void packet_finish(struct packet *packet)
{
    (void)packet_works(packet);
    if (packet->sent)
        packet->status = session_end(packet->session, packet->status);
    packet->sent = false;
}

enum permit_status packet_end(struct packet *packet)
{
    packet_finish(packet);
    buf_release(&packet->sql);
    return packet->status;
}

enum permit_status packet_commit(struct packet *packet)
{
    buf_append_text(&packet->sql, "COMMIT");
    packet_send(packet);
    enum permit_status status = packet_end(packet);
    if (status != PERMIT_OK)
        (void)session_rollback(packet->session);
    return status;
}
