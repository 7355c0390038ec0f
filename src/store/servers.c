/* SPDX-License-Identifier: MIT */
#include "store/servers.h"

#include "core/lease_clock.h"
#include "store/epoch.h"
#include "store/packet.h"
#include "store/row_sql.h"

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
static void lock_next_id(struct packet *packet, struct next_server *ret_next)
{
    struct buf identity;
    struct row_reader *row = &packet->row;
    buf_init(&identity, SQL_MAX);
    packet_fail(packet, epoch_identity_sql(packet->session, &identity));
    buf_printf(&packet->sql,
               "BEGIN;SELECT GREATEST(next_server_id,epoch*1024),ticks,grants_from,identity=%s," CLOCK_COLUMNS
               " FROM cluster WHERE id=1 FOR UPDATE",
               buf_text(&identity));
    buf_release(&identity);
    packet_send(packet);
    packet_next(packet);
    if (!packet_only_row(packet, PERMIT_INTERNAL))
        return;
    struct query_time time;
    ret_next->id = row_u64(row);
    ret_next->ticks = row_u64(row);
    utc_us grants_from = row_time(row);
    bool same_server = row_u64(row) != 0;
    row_clock(row, &time);
    ret_next->now = time.now;
    ret_next->may_join = same_server && grants_from <= lease_time(&time.clock, time.now);
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
    struct packet packet = packet_begin(session, NULL);
    struct next_server next = {0};
    assert(address.length <= SERVER_ADDRESS_MAX && version.length <= SERVER_VERSION_MAX);
    lock_next_id(&packet, &next);
    if (packet_works(&packet) && next.may_join) {
        insert_sql(&next, address, version, &packet.sql);
        packet_send(&packet);
    }
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK || !next.may_join)
        (void)session_rollback(session);
    if (status == PERMIT_OK)
        *ret_self = next.may_join ? (struct server_self){next.id, next.now} : (struct server_self){0};
    return status;
}

/* ---- heartbeat ---- */

/*
 * The statements of a heartbeat, in the order in which servers_heartbeat reads them. The ticks of the others are read
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
        " AND dead_at IS NULL;SELECT ticks," CLOCK_COLUMNS " FROM cluster WHERE id=1;"
        "SELECT id,ticks FROM server FORCE INDEX (server_dead) WHERE dead_at IS NULL AND id<>%llu"
        " ORDER BY ticks LIMIT %d;"
        "SELECT dead_at FROM server FORCE INDEX (server_dead) WHERE dead_at>'1970-01-01' ORDER BY dead_at LIMIT 1",
        (unsigned long long)self->id, SERVERS_OTHERS_MAX);
}

static enum permit_status servers_heartbeat(struct store *store, const struct server_self *self,
                                            struct server_heartbeat *heartbeat)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    struct row_reader *row = &packet.row;
    heartbeat->ret_alive = false;
    heartbeat->ret_other_count = 0;
    heartbeat_sql(self, heartbeat->waiting, &packet.sql);
    packet_send(&packet);
    packet_next(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL))
        heartbeat->ret_alive = row_u64(row) > 0;
    packet_next(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) {
        heartbeat->ret_ticks = row_u64(row);
        row_clock(row, &heartbeat->ret_time);
    }
    packet_next(&packet);
    while (heartbeat->ret_other_count < SERVERS_OTHERS_MAX && packet_row(&packet)) {
        struct server_other *other = &heartbeat->ret_others[heartbeat->ret_other_count++];
        other->id = row_u64(row);
        other->ticks = row_u64(row);
    }
    packet_next(&packet);
    heartbeat->ret_oldest_death = packet_row(&packet) ? row_time(row) : NEVER;
    return packet_end(&packet);
}

/* ---- the others ---- */

static enum permit_status servers_declare_dead(struct store *store, const struct server_other *other, utc_us at,
                                               bool *ret_declared)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "UPDATE server FORCE INDEX (PRIMARY) SET dead_at=");
    sql_time(&packet.sql, at);
    buf_printf(&packet.sql, " WHERE id=%llu AND ticks=%llu AND dead_at IS NULL", (unsigned long long)other->id,
               (unsigned long long)other->ticks);
    packet_send(&packet);
    bool declared = packet_works(&packet) && session_affected(packet.session) == 1;
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_declared = declared;
    return status;
}

/*
 * Deletes a piece of the mail of servers that are dead since then or gone; a batch may have mailed to one after its row
 * was deleted. The ids of servers that have mail are read with one seek each.
 */
static void remove_mail(struct packet *packet, utc_us until)
{
    uint64_t ids[SERVERS_OTHERS_MAX];
    size_t count = 0;
    buf_append_text(&packet->sql,
                    "SELECT m.server_id FROM (SELECT DISTINCT server_id FROM mail FORCE INDEX (PRIMARY)) m"
                    " LEFT JOIN server v FORCE INDEX (PRIMARY) ON v.id=m.server_id"
                    " WHERE v.id IS NULL OR v.dead_at<=");
    sql_time(&packet->sql, until);
    buf_printf(&packet->sql, " LIMIT %d", SERVERS_OTHERS_MAX);
    packet_send(packet);
    while (count < SERVERS_OTHERS_MAX && packet_row(packet))
        ids[count++] = row_u64(&packet->row);
    for (size_t i = 0; i < count; i++) {
        buf_printf(&packet->sql, "DELETE FROM mail WHERE server_id=%llu ORDER BY permit_request_id LIMIT %d",
                   (unsigned long long)ids[i], MAIL_A_STATEMENT);
        packet_send(packet);
    }
}

/*
 * Walks the rows of the dead, oldest first. NULL (alive) sorts before all times, so it is not walked. Requests that
 * still wait at such a server need not keep its row: servers_abandoned finds them without it.
 */
static enum permit_status servers_remove_dead(struct store *store, utc_us until)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    remove_mail(&packet, until);
    buf_append_text(&packet.sql, "DELETE FROM server WHERE dead_at<=");
    sql_time(&packet.sql, until);
    buf_printf(&packet.sql, " ORDER BY dead_at LIMIT %d", SERVERS_OTHERS_MAX);
    packet_send(&packet);
    return packet_end(&packet);
}

/* Walks the waiting requests and the primary key of the server of each: called only after a death. */
static enum permit_status servers_abandoned(struct store *store, utc_us until, size_t limit, struct arena *arena,
                                            struct bytes **ret_external_ids, size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, "SELECT STRAIGHT_JOIN r.external_id FROM waiting_due w FORCE INDEX (PRIMARY)"
                                 " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"
                                 " LEFT JOIN server v FORCE INDEX (PRIMARY) ON v.id=r.server_id"
                                 " WHERE r.state=3 AND r.server_id IS NOT NULL AND (v.id IS NULL OR v.dead_at<=");
    sql_time(&packet.sql, until);
    buf_printf(&packet.sql, ") LIMIT %zu", limit);
    packet_send(&packet);
    size_t count;
    struct bytes *keys = packet_rows(&packet, sizeof *keys, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++)
        keys[i] = row_bytes(&packet.row);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    *ret_external_ids = keys;
    *ret_count = count;
    return PERMIT_OK;
}

static enum permit_status servers_leave(struct store *store, const struct server_self *self)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "DELETE FROM mail WHERE server_id=(SELECT id FROM server FORCE INDEX (PRIMARY)");
    self_sql(self, &packet.sql);
    buf_append_text(&packet.sql, ");DELETE FROM server");
    self_sql(self, &packet.sql);
    packet_send(&packet);
    return packet_end(&packet);
}

static enum permit_status servers_list(struct store *store, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    buf_printf(
        &packet.sql,
        "SELECT " SERVER_COLUMNS(SELECT_FIRST, SELECT_NEXT, "") ",dead_at IS NULL FROM server FORCE INDEX (PRIMARY)"
                                                                " WHERE id>%llu ORDER BY id LIMIT %u",
        (unsigned long long)page->after.number, page->limit + 1);
    packet_send(&packet);
    size_t count;
    struct server_row *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        row_read(&packet.row, &server_table, &rows[i]);
        rows[i].alive = row_u64(&packet.row) != 0;
    }
    page->servers = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].id;
    return packet_end(&packet);
}

/* Walks the primary key. */
static enum permit_status servers_mail(struct store *store, uint64_t server_id, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    buf_printf(&packet.sql,
               "SELECT permit_request_id FROM mail FORCE INDEX (PRIMARY) WHERE server_id=%llu"
               " AND permit_request_id>%llu ORDER BY permit_request_id LIMIT %u",
               (unsigned long long)server_id, (unsigned long long)page->after.number, page->limit);
    packet_send(&packet);
    page->request_ids = packet_rows(&packet, sizeof *page->request_ids, &page->count);
    for (size_t i = 0; i < page->count && packet_row(&packet); i++)
        page->request_ids[i] = row_u64(&packet.row);
    return packet_end(&packet);
}

/* Each statement is a transaction of its own. */
static enum permit_status servers_drop_mail(struct store *store, uint64_t server_id, const uint64_t *request_ids,
                                            size_t count)
{
    enum { KEYS_A_STATEMENT = 500 };
    struct packet packet = packet_begin(session_of(store), NULL);
    for (size_t i = 0; i < count; i += KEYS_A_STATEMENT) {
        buf_printf(&packet.sql,
                   "DELETE m FROM mail m FORCE INDEX (PRIMARY) WHERE m.server_id=%llu AND m.permit_request_id IN (",
                   (unsigned long long)server_id);
        sql_ids(&packet.sql, request_ids + i, count - i < KEYS_A_STATEMENT ? count - i : KEYS_A_STATEMENT);
        buf_append_char(&packet.sql, ')');
        packet_send(&packet);
    }
    return packet_end(&packet);
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
