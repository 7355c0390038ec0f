/* SPDX-License-Identifier: MIT */
#include "store/epoch.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/lease_clock.h"
#include "store/packet.h"
#include "store/row_sql.h"

enum { IDENTITY_MAX = 8 * 1024 };

/*
 * 2026-01-01 00:00:00 UTC. Epochs are milliseconds since then, so tokens (epoch << 10) stay below 2^53 until 2304.
 */
#define EPOCH_ORIGIN_US (1767225600LL * US_PER_SECOND)

/* ---- identity ---- */

/*
 * MySQL has server_uuid, which is unique and sufficient alone. MariaDB has server_uid, from 10.10 on; two servers on
 * one host can share it, so other variables are added. The identity of a cluster comes before both.
 */
enum permit_status epoch_identity_sql(struct session *session, struct buf *out)
{
    struct packet packet = packet_begin(session, NULL);
    struct buf cluster;
    bool has_uuid = false, has_uid = false;
    buf_init(&cluster, IDENTITY_MAX);
    buf_append_text(&packet.sql, "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
                                 " ('server_uuid','server_uid','group_replication_group_name');"
                                 "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'");
    packet_send(&packet);
    while (packet_row(&packet)) {
        struct bytes name = row_column(&packet.row), value = row_column(&packet.row);
        has_uuid |= bytes_equal(name, BYTES("server_uuid"));
        has_uid |= bytes_equal(name, BYTES("server_uid"));
        if (bytes_equal(name, BYTES("group_replication_group_name")))
            buf_append(&cluster, value.data, value.length);
    }
    packet_next(&packet);
    if (packet_row(&packet)) {
        (void)row_column(&packet.row);
        struct bytes value = row_column(&packet.row);
        buf_append(&cluster, value.data, value.length);
    }
    enum permit_status status = packet_end(&packet);
    if (cluster.length)
        sql_bytes(out, (struct bytes){cluster.data, cluster.length});
    else if (has_uuid)
        buf_append_text(out, "@@server_uuid");
    else
        buf_printf(out, "CONCAT_WS('|',%s@@global.server_id,@@hostname,@@port,@@datadir)",
                   has_uid ? "@@server_uid," : "");
    buf_release(&cluster);
    return status == PERMIT_OK && out->broken ? PERMIT_NO_MEMORY : status;
}

/* ---- raising ---- */

/* The locked `cluster` row. */
struct cluster_row {
    uint64_t epoch;
    bool fresh;       /* no permitd has served this database yet */
    bool same_server; /* the server's identity is the one in `cluster` */
    struct query_time time;
    utc_us grants_from; /* lease clock: end of the last hold */
    uint64_t last_id;   /* largest id in use, of requests and semaphores */
};

static void lock_cluster(struct packet *packet, const char *identity, struct cluster_row *ret_row)
{
    struct row_reader *row = &packet->row;
    buf_printf(&packet->sql,
               "BEGIN;SELECT " CLOCK_COLUMNS ",identity='',identity=%s,grants_from,"
               "GREATEST(COALESCE((SELECT MAX(r.id) FROM permit_request r),0),"
               "COALESCE((SELECT MAX(s.id) FROM semaphore s),0)) FROM cluster WHERE id=1 FOR UPDATE",
               identity);
    packet_send(packet);
    packet_next(packet);
    if (!packet_only_row(packet, PERMIT_INTERNAL))
        return;
    row_clock(row, &ret_row->time);
    ret_row->epoch = ret_row->time.clock.epoch;
    ret_row->fresh = row_u64(row);
    ret_row->same_server = row_u64(row);
    ret_row->grants_from = row_time(row);
    ret_row->last_id = row_u64(row);
}

static bool must_raise(const struct cluster_row *row, const struct epoch_advance *advance)
{
    switch (advance->cause) {
    case EPOCH_SERVER: return !row->same_server;
    case EPOCH_TOKENS: return row->epoch == advance->seen;
    case EPOCH_OPERATOR: break;
    }
    return true;
}

/* Returns the milliseconds until an operator may raise the epoch again: hold_ms after the last hold ended; 0: now. */
static int64_t ms_until_bump(const struct cluster_row *row, int64_t hold_ms)
{
    utc_us from = row->grants_from + hold_ms * US_PER_MS;
    utc_us now = lease_time(&row->time.clock, row->time.now);
    return now < from ? (from - now + US_PER_MS - 1) / US_PER_MS : 0;
}

/* Returns max(epoch + 1, milliseconds since 2026-01-01 by the later of the database's clock and this machine's). */
static uint64_t next_epoch(const struct cluster_row *row)
{
    utc_us now = max_i64(row->time.now, clock_wall());
    uint64_t by_clock = (uint64_t)max_i64(0, (now - EPOCH_ORIGIN_US) / US_PER_MS);
    return by_clock > row->epoch ? by_clock : row->epoch + 1;
}

/*
 * Sets identity and epoch. next_id is raised above all ids in use, because an older copy may have it too low. A
 * database that was never served keeps its epoch (epoch == row->epoch), because no client can hold a token of it.
 */
static void raise_sql(const struct cluster_row *row, const char *identity, uint64_t epoch,
                      const struct epoch_advance *advance, struct buf *sql)
{
    static const char *const causes[] = {
        [EPOCH_SERVER] = "the server is another one",
        [EPOCH_TOKENS] = "tokens went back: an older copy of the database",
    };
    bool raises = epoch != row->epoch;
    buf_printf(sql, "UPDATE cluster SET identity=%s,epoch=%llu", identity, (unsigned long long)epoch);
    if (raises) {
        buf_append_text(sql, ",grants_from=");
        sql_time(sql, lease_time(&row->time.clock, row->time.now) + advance->hold_ms * US_PER_MS);
    }
    buf_printf(sql, " WHERE id=1;UPDATE id_block SET next_id=GREATEST(next_id,%llu) WHERE id=1;",
               (unsigned long long)row->last_id + 1);
    if (raises) {
        char from[21], to[21];
        (void)snprintf(from, sizeof from, "%llu", (unsigned long long)row->epoch);
        (void)snprintf(to, sizeof to, "%llu", (unsigned long long)epoch);
        struct row_insert insert = {.table = &event_table, .columns = COLUMN_INSERT};
        struct event_row event = {.at = row->time.now,
                                  .what = BYTES("epoch"),
                                  .from = bytes_of(from),
                                  .to = bytes_of(to),
                                  .why = advance->cause == EPOCH_OPERATOR ? advance->why
                                                                          : bytes_of(causes[advance->cause]),
                                  .next_token = epoch << 10};
        row_insert_sql(&insert, &event, sql);
        row_insert_end_sql(&insert, sql);
        /* Numbers that an earlier epoch gave above this one are lost. The lock waits for the numbering. */
        buf_printf(sql,
                   "INSERT INTO feed_epoch (epoch,seq) SELECT %llu,seq FROM feed_head FORCE INDEX (PRIMARY)"
                   " WHERE id=1 FOR UPDATE;",
                   (unsigned long long)epoch);
    }
    buf_append_text(sql, "COMMIT");
}

enum permit_status epoch_advance(struct session *session, struct epoch_advance *advance)
{
    struct packet packet = packet_begin(session, NULL);
    struct cluster_row row = {0};
    struct buf identity;
    buf_init(&identity, IDENTITY_MAX);
    packet_fail(&packet, epoch_identity_sql(session, &identity));
    lock_cluster(&packet, buf_text(&identity), &row);
    uint64_t epoch = row.fresh && advance->cause == EPOCH_SERVER ? row.epoch : next_epoch(&row);
    bool writes = packet_works(&packet) && must_raise(&row, advance);
    advance->ret_epoch = row.epoch;
    advance->ret_wait_ms =
        advance->cause == EPOCH_OPERATOR && row.same_server ? ms_until_bump(&row, advance->hold_ms) : 0;
    if (advance->ret_wait_ms)
        packet_fail(&packet, PERMIT_TOO_MANY);
    if (writes)
        raise_sql(&row, buf_text(&identity), epoch, advance, &packet.sql);
    else
        buf_append_text(&packet.sql, "ROLLBACK");
    packet_send(&packet);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        (void)session_rollback(session);
    else if (writes)
        advance->ret_epoch = epoch;
    buf_release(&identity);
    return status;
}
