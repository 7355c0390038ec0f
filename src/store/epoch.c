/* SPDX-License-Identifier: MIT */
#include "store/epoch.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/lease_clock.h"
#include "store/row_sql.h"
#include "store/rows.h"

enum { SQL_MAX = 64 * 1024, ROW_MAX = 8 * 1024 };

/*
 * 2026-01-01 00:00:00 UTC. Epochs are milliseconds since then, so tokens (epoch << 10) stay below 2^53 until 2304.
 */
#define EPOCH_ORIGIN_US (1767225600LL * US_PER_SECOND)

/* ---- identity ---- */

/* The identity variables that the server has. */
struct identity_facts {
    bool server_uuid; /* MySQL: unique, sufficient alone */
    bool server_uid;  /* MariaDB from 10.10 on; two servers on one host can share it, so other variables are added */
};

/* Reads the facts. Appends the identity of the cluster, if the server is in one, to `cluster`. */
static enum permit_status read_facts(struct session *session, struct identity_facts *ret_facts, struct buf *cluster)
{
    static const char variables[] =
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid','server_uid','group_replication_group_name');"
        "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'";
    struct session_row row;
    enum permit_status status = session_send(session, BYTES(variables));
    while (status == PERMIT_OK && session_row(session, &row)) {
        ret_facts->server_uuid |= bytes_equal(row.columns[0], BYTES("server_uuid"));
        ret_facts->server_uid |= bytes_equal(row.columns[0], BYTES("server_uid"));
        if (bytes_equal(row.columns[0], BYTES("group_replication_group_name")))
            buf_append(cluster, row.columns[1].data, row.columns[1].length);
    }
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK && session_row(session, &row))
        buf_append(cluster, row.columns[1].data, row.columns[1].length);
    return session_end(session, status);
}

enum permit_status epoch_identity_sql(struct session *session, struct buf *out)
{
    struct identity_facts facts = {0};
    struct buf cluster;
    buf_init(&cluster, ROW_MAX);
    enum permit_status status = read_facts(session, &facts, &cluster);
    if (status == PERMIT_OK && cluster.length)
        sql_bytes(out, (struct bytes){cluster.data, cluster.length});
    else if (facts.server_uuid)
        buf_append_text(out, "@@server_uuid");
    else
        buf_printf(out, "CONCAT_WS('|',%s@@global.server_id,@@hostname,@@port,@@datadir)",
                   facts.server_uid ? "@@server_uid," : "");
    buf_release(&cluster);
    return status == PERMIT_OK && out->broken ? PERMIT_NO_MEMORY : status;
}

/* ---- raising ---- */

/* The locked `cluster` row. */
struct cluster_row {
    uint64_t epoch;
    bool fresh;       /* no permitd has served this database yet */
    bool same_server; /* the server's identity is the one in `cluster` */
    struct lease_clock clock;
    utc_us grants_from; /* lease clock: end of the last hold */
    utc_us now;         /* the database's clock */
    uint64_t last_id;   /* largest id in use, of requests and semaphores */
};

static enum permit_status lock_cluster(struct session *session, const char *identity, struct buf *sql,
                                       struct cluster_row *ret_row)
{
    buf_printf(sql,
               "BEGIN;SELECT c.epoch,c.identity='',c.identity=%s,c.tick_at,c.offset_us,c.grants_from,SYSDATE(6),"
               "(SELECT MAX(r.id) FROM permit_request r),(SELECT MAX(s.id) FROM semaphore s)"
               " FROM cluster c WHERE c.id=1 FOR UPDATE",
               identity);
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = session_next(session);
    struct row_reader reader = {.at = 0};
    bool found = status == PERMIT_OK && row_step(&reader, session);
    if (found) {
        ret_row->epoch = row_u64(&reader);
        ret_row->fresh = row_u64(&reader);
        ret_row->same_server = row_u64(&reader);
        ret_row->clock.tick_at = row_time(&reader);
        ret_row->clock.offset_us = row_i64(&reader);
        ret_row->grants_from = row_time(&reader);
        ret_row->now = row_time(&reader);
        uint64_t request_id = row_u64(&reader);
        uint64_t semaphore_id = row_u64(&reader);
        ret_row->last_id = request_id > semaphore_id ? request_id : semaphore_id;
    }
    status = session_end(session, status);
    return status == PERMIT_OK && !found ? PERMIT_INTERNAL : status;
}

static bool must_raise(const struct cluster_row *row, enum epoch_cause cause, uint64_t seen)
{
    switch (cause) {
    case EPOCH_SERVER: return !row->same_server;
    case EPOCH_TOKENS: return row->epoch == seen;
    case EPOCH_OPERATOR: break;
    }
    return true;
}

/* Returns the milliseconds until an operator may raise the epoch again: hold_ms after the last hold ended; 0: now. */
static int64_t ms_until_bump(const struct cluster_row *row, int64_t hold_ms)
{
    utc_us from = row->grants_from + hold_ms * US_PER_MS;
    utc_us now = lease_time(&row->clock, row->now);
    return now < from ? (from - now + US_PER_MS - 1) / US_PER_MS : 0;
}

/* Returns max(epoch + 1, milliseconds since 2026-01-01 by the later of the database's clock and this machine's). */
static uint64_t next_epoch(const struct cluster_row *row)
{
    utc_us now = max_i64(row->now, clock_wall());
    uint64_t by_clock = (uint64_t)max_i64(0, (now - EPOCH_ORIGIN_US) / US_PER_MS);
    return by_clock > row->epoch ? by_clock : row->epoch + 1;
}

/*
 * Sets identity and epoch. next_id is raised above all ids in use, because an older copy may have it too low. A
 * database that was never served keeps its epoch (epoch == row->epoch), because no client can hold a token of it.
 */
static void raise_sql(const struct cluster_row *row, const char *identity, uint64_t epoch, int64_t hold_ms,
                      struct bytes why, struct buf *sql)
{
    bool raises = epoch != row->epoch;
    buf_printf(sql, "UPDATE cluster SET identity=%s,epoch=%llu", identity, (unsigned long long)epoch);
    if (raises) {
        buf_append_text(sql, ",grants_from=");
        sql_time(sql, lease_time(&row->clock, row->now) + hold_ms * US_PER_MS);
    }
    buf_printf(sql, " WHERE id=1;UPDATE id_block SET next_id=GREATEST(next_id,%llu) WHERE id=1;",
               (unsigned long long)row->last_id + 1);
    if (raises) {
        char from[21], to[21];
        (void)snprintf(from, sizeof from, "%llu", (unsigned long long)row->epoch);
        (void)snprintf(to, sizeof to, "%llu", (unsigned long long)epoch);
        struct row_insert insert = {.table = &event_table, .columns = COLUMN_INSERT};
        struct event_row event = {.at = row->now,
                                  .what = BYTES("epoch"),
                                  .from = bytes_of(from),
                                  .to = bytes_of(to),
                                  .why = why,
                                  .next_token = epoch << 10};
        row_insert_sql(&insert, &event, sql);
        row_insert_end_sql(&insert, sql);
    }
    buf_append_text(sql, "COMMIT");
}

static enum permit_status raise_in_transaction(struct session *session, enum epoch_cause cause, uint64_t seen,
                                               int64_t hold_ms, struct bytes why, struct buf *identity, struct buf *sql,
                                               uint64_t *ret_epoch, int64_t *ret_wait_ms)
{
    struct cluster_row row = {0};
    enum permit_status status = epoch_identity_sql(session, identity);
    if (status == PERMIT_OK)
        status = lock_cluster(session, buf_text(identity), sql, &row);
    if (status != PERMIT_OK)
        return status;
    *ret_epoch = row.epoch;
    *ret_wait_ms = cause == EPOCH_OPERATOR && row.same_server ? ms_until_bump(&row, hold_ms) : 0;
    if (*ret_wait_ms)
        return PERMIT_TOO_MANY;
    if (!must_raise(&row, cause, seen))
        return session_run(session, "ROLLBACK");
    uint64_t epoch = row.fresh && cause == EPOCH_SERVER ? row.epoch : next_epoch(&row);
    buf_clear(sql);
    raise_sql(&row, buf_text(identity), epoch, hold_ms, why, sql);
    status = session_end(session, session_send_buf(session, sql));
    if (status == PERMIT_OK)
        *ret_epoch = epoch;
    return status;
}

/* Sets the outputs on PERMIT_OK and PERMIT_TOO_MANY. Leaves no transaction open. */
static enum permit_status raise_epoch(struct session *session, enum epoch_cause cause, uint64_t seen, int64_t hold_ms,
                                      struct bytes why, uint64_t *ret_epoch, int64_t *ret_wait_ms)
{
    struct buf identity;
    struct buf sql;
    buf_init(&identity, ROW_MAX);
    buf_init(&sql, SQL_MAX);
    enum permit_status status =
        raise_in_transaction(session, cause, seen, hold_ms, why, &identity, &sql, ret_epoch, ret_wait_ms);
    if (status != PERMIT_OK)
        (void)session_rollback(session);
    buf_release(&identity);
    buf_release(&sql);
    return status;
}

enum permit_status epoch_raise(struct session *session, enum epoch_cause cause, uint64_t seen, int64_t hold_ms,
                               struct bytes why, uint64_t *ret_epoch)
{
    uint64_t epoch = 0;
    int64_t wait_ms;
    enum permit_status status = raise_epoch(session, cause, seen, hold_ms, why, &epoch, &wait_ms);
    if (status == PERMIT_OK && ret_epoch)
        *ret_epoch = epoch;
    return status;
}

enum permit_status epoch_bump(struct session *session, int64_t hold_ms, struct bytes why, uint64_t *ret_epoch,
                              int64_t *ret_wait_ms)
{
    return raise_epoch(session, EPOCH_OPERATOR, 0, hold_ms, why, ret_epoch, ret_wait_ms);
}
