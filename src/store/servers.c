/* SPDX-License-Identifier: MIT */
#include "store/servers.h"

#include "core/lease_clock.h"
#include "store/epoch.h"
#include "store/mysql_methods.h"
#include "store/row_sql.h"
#include "store/rows.h"

enum {
    SQL_MAX = 64 * 1024,
    MAIL_A_STATEMENT = 1000, /* rows of mail that one statement deletes */
};

/* The row of this permitd, while it is alive. */
static void self_sql(const struct server_self *self, struct buf *sql)
{
    buf_append_text(sql, " WHERE id=");
    buf_append_u64(sql, self->id);
    buf_append_text(sql, " AND since=");
    sql_time(sql, self->since);
}

/* Sends the packet, discards its rows and releases the buffer. */
static enum permit_status run_sql(struct session *session, struct buf *sql)
{
    enum permit_status status = session_end(session, session_send_buf(session, sql));
    buf_release(sql);
    return status;
}

/* ---- join ---- */

struct next_server {
    uint64_t id;
    uint64_t ticks;
    utc_us now;    /* the database's clock */
    bool may_join; /* the database is the server in `cluster`, and its hold after a failover is over */
};

/*
 * Begins the transaction and locks `cluster`. Like a token, an id is at least epoch * 1024 and is not given in the hold
 * after the epoch has risen: see docs/design.md.
 */
static enum permit_status lock_next_id(struct session *session, struct buf *sql, struct next_server *ret_next)
{
    struct buf identity;
    struct row_reader reader = {.at = 0};
    bool found = false;
    buf_init(&identity, SQL_MAX);
    enum permit_status status = epoch_identity_sql(session, &identity);
    buf_printf(
        sql,
        "BEGIN;SELECT GREATEST(next_server_id,epoch*1024),ticks,SYSDATE(6),tick_at,offset_us,grants_from,identity=%s"
        " FROM cluster WHERE id=1 FOR UPDATE",
        buf_text(&identity));
    buf_release(&identity);
    if (status != PERMIT_OK)
        return status;
    status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK && (found = row_step(&reader, session))) {
        ret_next->id = row_u64(&reader);
        ret_next->ticks = row_u64(&reader);
        ret_next->now = row_time(&reader);
        struct lease_clock clock = {.tick_at = row_time(&reader)};
        clock.offset_us = row_i64(&reader);
        bool hold_is_over = row_time(&reader) <= lease_time(&clock, ret_next->now);
        ret_next->may_join = row_u64(&reader) != 0 && hold_is_over;
    }
    status = session_end(session, status);
    return status == PERMIT_OK && !found ? PERMIT_INTERNAL : status;
}

static void insert_sql(const struct next_server *next, struct bytes address, struct bytes version, struct buf *sql)
{
    struct row_insert insert = {.table = &server_table, .columns = COLUMN_INSERT};
    struct server_row row = {.id = next->id,
                             .address = address,
                             .version = version,
                             .since = next->now,
                             .seen_at = next->now,
                             .ticks = next->ticks};
    buf_printf(sql, "UPDATE cluster SET next_server_id=%llu WHERE id=1;", (unsigned long long)next->id + 1);
    row_insert_sql(&insert, &row, sql);
    row_insert_end_sql(&insert, sql);
    buf_append_text(sql, "COMMIT");
}

static enum permit_status servers_join(struct store *store, struct bytes address, struct bytes version,
                                       struct server_self *ret_self)
{
    struct session *session = session_of(store);
    struct next_server next = {0};
    struct buf sql;
    assert(address.length <= SERVER_ADDRESS_MAX && version.length <= SERVER_VERSION_MAX);
    buf_init(&sql, SQL_MAX);
    enum permit_status status = lock_next_id(session, &sql, &next);
    buf_clear(&sql);
    if (status == PERMIT_OK && next.may_join) {
        insert_sql(&next, address, version, &sql);
        status = session_end(session, session_send_buf(session, &sql));
    }
    buf_release(&sql);
    if (status != PERMIT_OK || !next.may_join)
        (void)session_rollback(session);
    if (status == PERMIT_OK)
        *ret_self = next.may_join ? (struct server_self){next.id, next.now} : (struct server_self){0};
    return status;
}

/* ---- heartbeat ---- */

/*
 * The statements of a heartbeat, in the order in which read_heartbeat reads them. The ticks of the others are read
 * after cluster.ticks, so that none of them looks further behind than it is.
 */
static void heartbeat_sql(const struct server_self *self, uint64_t waiting, struct buf *sql)
{
    buf_printf(sql,
               "UPDATE server FORCE INDEX (PRIMARY) SET seen_at=SYSDATE(6),waiting=%llu,ticks=(SELECT ticks FROM "
               "cluster WHERE id=1)",
               (unsigned long long)waiting);
    self_sql(self, sql);
    buf_append_text(sql, " AND dead_at IS NULL;SELECT COUNT(*) FROM server FORCE INDEX (PRIMARY)");
    self_sql(self, sql);
    buf_printf(
        sql,
        " AND dead_at IS NULL;SELECT ticks,SYSDATE(6),tick_at,offset_us,epoch FROM cluster WHERE id=1;"
        "SELECT id,ticks FROM server FORCE INDEX (server_dead) WHERE dead_at IS NULL AND id<>%llu"
        " ORDER BY ticks LIMIT %d;"
        "SELECT dead_at FROM server FORCE INDEX (server_dead) WHERE dead_at>'1970-01-01' ORDER BY dead_at LIMIT 1",
        (unsigned long long)self->id, SERVERS_OTHERS_MAX);
}

/* Steps to the next statement and to its only row. */
static enum permit_status next_row(struct session *session, struct row_reader *reader)
{
    enum permit_status status = session_next(session);
    if (status != PERMIT_OK)
        return status;
    return row_step(reader, session) ? PERMIT_OK : PERMIT_INTERNAL;
}

/* The session is at the UPDATE. */
static enum permit_status read_heartbeat(struct session *session, struct server_heartbeat *heartbeat)
{
    struct row_reader reader = {.at = 0};
    struct query_time *time = &heartbeat->ret_time;
    enum permit_status status;
    if ((status = next_row(session, &reader)) != PERMIT_OK)
        return status;
    heartbeat->ret_alive = row_u64(&reader) > 0;
    if ((status = next_row(session, &reader)) != PERMIT_OK)
        return status;
    heartbeat->ret_ticks = row_u64(&reader);
    time->now = row_time(&reader);
    time->clock.tick_at = row_time(&reader);
    time->clock.offset_us = row_i64(&reader);
    time->clock.epoch = row_u64(&reader);
    if ((status = session_next(session)) != PERMIT_OK)
        return status;
    while (heartbeat->ret_other_count < SERVERS_OTHERS_MAX && row_step(&reader, session)) {
        struct server_other *other = &heartbeat->ret_others[heartbeat->ret_other_count++];
        other->id = row_u64(&reader);
        other->ticks = row_u64(&reader);
    }
    if ((status = session_next(session)) != PERMIT_OK)
        return status;
    heartbeat->ret_oldest_death = row_step(&reader, session) ? row_time(&reader) : NEVER;
    return reader.broken ? PERMIT_INTERNAL : PERMIT_OK;
}

static enum permit_status servers_heartbeat(struct store *store, const struct server_self *self,
                                            struct server_heartbeat *heartbeat)
{
    struct session *session = session_of(store);
    struct buf sql;
    heartbeat->ret_alive = false;
    heartbeat->ret_other_count = 0;
    buf_init(&sql, SQL_MAX);
    heartbeat_sql(self, heartbeat->waiting, &sql);
    enum permit_status status = session_send_buf(session, &sql);
    buf_release(&sql);
    if (status == PERMIT_OK)
        status = read_heartbeat(session, heartbeat);
    return session_end(session, status);
}

/* ---- the others ---- */

static enum permit_status servers_declare_dead(struct store *store, const struct server_other *other, utc_us at,
                                               bool *ret_declared)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "UPDATE server FORCE INDEX (PRIMARY) SET dead_at=");
    sql_time(&sql, at);
    buf_printf(&sql, " WHERE id=%llu AND ticks=%llu AND dead_at IS NULL", (unsigned long long)other->id,
               (unsigned long long)other->ticks);
    enum permit_status status = session_send_buf(session, &sql);
    bool declared = status == PERMIT_OK && session_affected(session) == 1;
    buf_release(&sql);
    status = session_end(session, status);
    if (status == PERMIT_OK)
        *ret_declared = declared;
    return status;
}

/*
 * Deletes a piece of the mail of servers that are dead since then or gone; a batch may have mailed to one after its row
 * was deleted. The ids of servers that have mail are read with one seek each.
 */
static enum permit_status remove_mail(struct session *session, utc_us until, struct buf *sql)
{
    uint64_t ids[SERVERS_OTHERS_MAX];
    size_t count = 0;
    struct session_row row;
    buf_append_text(sql, "SELECT m.server_id FROM (SELECT DISTINCT server_id FROM mail FORCE INDEX (PRIMARY)) m"
                         " LEFT JOIN server v FORCE INDEX (PRIMARY) ON v.id=m.server_id"
                         " WHERE v.id IS NULL OR v.dead_at<=");
    sql_time(sql, until);
    buf_printf(sql, " LIMIT %d", SERVERS_OTHERS_MAX);
    enum permit_status status = session_send_buf(session, sql);
    while (status == PERMIT_OK && count < SERVERS_OTHERS_MAX && session_row(session, &row))
        ids[count++] = column_u64(row.columns[0]);
    status = session_end(session, status);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        buf_clear(sql);
        buf_printf(sql, "DELETE FROM mail WHERE server_id=%llu ORDER BY permit_request_id LIMIT %d",
                   (unsigned long long)ids[i], MAIL_A_STATEMENT);
        status = session_end(session, session_send_buf(session, sql));
    }
    buf_clear(sql);
    return status;
}

/*
 * Walks the rows of the dead, oldest first. NULL (alive) sorts before all times, so it is not walked. Requests that
 * still wait at such a server need not keep its row: servers_abandoned finds them without it.
 */
static enum permit_status servers_remove_dead(struct store *store, utc_us until)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    enum permit_status status = remove_mail(session_of(store), until, &sql);
    if (status != PERMIT_OK) {
        buf_release(&sql);
        return status;
    }
    buf_append_text(&sql, "DELETE FROM server WHERE dead_at<=");
    sql_time(&sql, until);
    buf_printf(&sql, " ORDER BY dead_at LIMIT %d", SERVERS_OTHERS_MAX);
    return run_sql(session_of(store), &sql);
}

/* Walks the waiting requests and the primary key of the server of each: called only after a death. */
static enum permit_status servers_abandoned(struct store *store, utc_us until, size_t limit, struct arena *arena,
                                            struct bytes **ret_external_ids, size_t *ret_count)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct bytes *keys = arena_array(arena, limit + 1, sizeof *keys);
    struct row_reader reader = {.arena = arena, .broken = !keys};
    size_t count = 0;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT STRAIGHT_JOIN r.external_id FROM waiting_due w FORCE INDEX (PRIMARY)"
                          " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"
                          " LEFT JOIN server v FORCE INDEX (PRIMARY) ON v.id=r.server_id"
                          " WHERE r.state=3 AND r.server_id IS NOT NULL AND (v.id IS NULL OR v.dead_at<=");
    sql_time(&sql, until);
    buf_printf(&sql, ") LIMIT %zu", limit);
    enum permit_status status = session_send_buf(session, &sql);
    buf_release(&sql);
    while (status == PERMIT_OK && count < limit && row_step(&reader, session))
        keys[count++] = row_bytes(&reader);
    if (status == PERMIT_OK && reader.broken)
        status = PERMIT_NO_MEMORY;
    status = session_end(session, status);
    if (status != PERMIT_OK)
        return status;
    *ret_external_ids = keys;
    *ret_count = count;
    return PERMIT_OK;
}

static enum permit_status servers_leave(struct store *store, const struct server_self *self)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "DELETE FROM mail WHERE server_id=(SELECT id FROM server FORCE INDEX (PRIMARY)");
    self_sql(self, &sql);
    buf_append_text(&sql, ");DELETE FROM server");
    self_sql(self, &sql);
    return run_sql(session_of(store), &sql);
}

static enum permit_status servers_list(struct store *store, struct page *page)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_printf(
        &sql,
        "SELECT " SERVER_COLUMNS(SELECT_FIRST, SELECT_NEXT, "") ",dead_at IS NULL FROM server FORCE INDEX (PRIMARY)"
                                                                " WHERE id>%llu ORDER BY id LIMIT %u",
        (unsigned long long)page->after.number, page->limit + 1);
    enum permit_status status = session_send_buf(session, &sql);
    buf_release(&sql);
    size_t count = status == PERMIT_OK ? (size_t)session_affected(session) : 0;
    struct server_row *rows = arena_array(page->arena, count, sizeof *rows);
    struct row_reader reader = {.arena = page->arena, .broken = count && !rows};
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        row_read(&reader, &server_table, &rows[i]);
        rows[i].alive = row_u64(&reader) != 0;
    }
    if (status == PERMIT_OK && reader.broken)
        status = PERMIT_NO_MEMORY;
    page->servers = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].id;
    return session_end(session, status);
}

/* Walks the primary key. */
static enum permit_status servers_mail(struct store *store, uint64_t server_id, uint64_t after, size_t limit,
                                       struct arena *arena, uint64_t **ret_request_ids, size_t *ret_count)
{
    struct session *session = session_of(store);
    uint64_t *ids = arena_array(arena, limit + 1, sizeof *ids);
    struct session_row row;
    struct buf sql;
    size_t count = 0;
    if (!ids)
        return PERMIT_NO_MEMORY;
    buf_init(&sql, SQL_MAX);
    buf_printf(&sql,
               "SELECT permit_request_id FROM mail FORCE INDEX (PRIMARY) WHERE server_id=%llu"
               " AND permit_request_id>%llu ORDER BY permit_request_id LIMIT %zu",
               (unsigned long long)server_id, (unsigned long long)after, limit);
    enum permit_status status = session_send_buf(session, &sql);
    while (status == PERMIT_OK && count < limit && session_row(session, &row))
        ids[count++] = column_u64(row.columns[0]);
    status = session_end(session, status);
    buf_release(&sql);
    if (status != PERMIT_OK)
        return status;
    *ret_request_ids = ids;
    *ret_count = count;
    return PERMIT_OK;
}

/* Each statement is a transaction of its own. */
static enum permit_status servers_drop_mail(struct store *store, uint64_t server_id, const uint64_t *request_ids,
                                            size_t count)
{
    enum { KEYS_A_STATEMENT = 500 };
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < count && status == PERMIT_OK; i += KEYS_A_STATEMENT) {
        struct buf sql;
        buf_init(&sql, SQL_MAX);
        buf_printf(&sql,
                   "DELETE m FROM mail m FORCE INDEX (PRIMARY) WHERE m.server_id=%llu AND m.permit_request_id IN (",
                   (unsigned long long)server_id);
        sql_ids(&sql, request_ids + i, count - i < KEYS_A_STATEMENT ? count - i : KEYS_A_STATEMENT);
        buf_append_char(&sql, ')');
        status = run_sql(session_of(store), &sql);
    }
    return status;
}

const struct store_servers mysql_servers = {
    .join = servers_join,
    .heartbeat = servers_heartbeat,
    .declare_dead = servers_declare_dead,
    .remove_dead = servers_remove_dead,
    .abandoned = servers_abandoned,
    .leave = servers_leave,
    .list = servers_list,
    .mail = servers_mail,
    .drop_mail = servers_drop_mail,
};
