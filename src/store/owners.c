/* SPDX-License-Identifier: MIT */

#include "store/held.h"
#include "store/query_packet.h"
#include "store/row_sql.h"

#define OWNER_SELECT OWNER_COLUMNS(SELECT_FIRST, SELECT_NEXT, "o.")

/*
 * owner_is_ending and owner_lapse_ends in SQL, on `permit_request` r and the row of `owner`; without the conditions on
 * the request's state and owner, which the walk along `held` has.
 */
#define IS_ENDING                  "o.lapsed_at IS NOT NULL AND o.settled_at IS NULL"
#define ENDS_WITH_LAPSE(lapsed_at) "r.confirmed_at IS NULL AND (r.ttl_ms=0 OR r.acquired_at<=" lapsed_at ")"
/* The same of a row h of `held`: one of its requests ends with the lapse; is not confirmed. */
#define ROW_HAS_ENDING             HELD_ROW_HAS(ENDS_WITH_LAPSE("o.lapsed_at"))
#define ROW_HAS_UNCONFIRMED        HELD_ROW_HAS("r.confirmed_at IS NULL")

/* ---- common parts ---- */

/* Reads the rows of a SELECT of OWNER_SELECT. */
static void read_owners(struct packet *packet, struct owner **ret_owners, size_t *ret_count)
{
    struct owner *owners = packet_rows(packet, sizeof *owners, ret_count);
    for (size_t i = 0; i < *ret_count && packet_row(packet); i++)
        row_read(&packet->row, &owner_table, &owners[i]);
    *ret_owners = owners;
}

/* Sends a packet with one SELECT of OWNER_SELECT, and ends it. */
static enum permit_status run_owners(struct packet *packet, struct owner **ret_owners, size_t *ret_count)
{
    packet_send(packet);
    read_owners(packet, ret_owners, ret_count);
    return packet_end(packet);
}

/* ---- transaction ---- */

/* Reads the images. Rows have the order of the names; names without a row get an image with only the name. */
static void read_images(struct packet *packet, const struct bytes *names, size_t count, struct owner_image *ret_images)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        ret_images[i] =
            (struct owner_image){.owner = {.name = names[i], .due_at = NEVER, .lapsed_at = NEVER, .settled_at = NEVER}};
    while (packet_row(packet)) {
        struct owner owner;
        row_read(&packet->row, &owner_table, &owner);
        while (at < count && !bytes_equal(names[at], owner.name))
            at++;
        if (packet->row.broken || at == count) {
            packet_fail(packet, packet->row.broken ? PERMIT_NO_MEMORY : PERMIT_INTERNAL);
            return;
        }
        owner.name = names[at];
        ret_images[at++] = (struct owner_image){.owner = owner, .existed = true, .exists = true};
    }
}

/*
 * Locks rows in order of name, as every transaction that locks several owners. The lock wait is short: only a stopped
 * permitd holds an owner row for long, and other heartbeats must not wait for it.
 */
static enum permit_status owners_lock(struct store *store, const struct bytes *names, size_t count, bool waits,
                                      struct arena *arena, struct owner_image *ret_images, struct query_time *ret_time)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, "SET SESSION innodb_lock_wait_timeout=1;BEGIN;SELECT " OWNER_SELECT
                                 " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    sql_bytes_list(&packet.sql, names, count);
    buf_append_text(&packet.sql, ") ORDER BY o.name FOR UPDATE");
    buf_append_text(&packet.sql, waits ? ";" SQL_CLOCK : " NOWAIT;" SQL_CLOCK);
    packet_send(&packet);
    packet_next(&packet);
    packet_next(&packet);
    read_images(&packet, names, count, ret_images);
    packet_time(&packet, ret_time);
    return packet_end(&packet);
}

/*
 * Walks held_owner to the first request that ends with the lapse. It needs no lock: while the owner is lapsed, no
 * request with ttl "owner" is granted. A request with another ttl can be granted, even with an acquired_at before the
 * lapse: it ends with the lapse if it commits before the lapse is settled, else by its ttl.
 */
static enum permit_status owners_read_holding(struct store *store, struct owner_image *images, size_t count)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    size_t listed = 0;
    buf_append_text(&packet.sql, "SELECT o.name FROM owner o FORCE INDEX (PRIMARY)"
                                 " WHERE " IS_ENDING " AND EXISTS"
                                 " (SELECT STRAIGHT_JOIN 1 FROM held h FORCE INDEX (held_owner) WHERE h.owner=o.name"
                                 " AND " ROW_HAS_ENDING ") AND o.name IN (");
    for (size_t i = 0; i < count; i++)
        if (images[i].exists && owner_is_ending(&images[i].owner)) {
            buf_append_text(&packet.sql, listed++ ? "," : "");
            sql_bytes(&packet.sql, images[i].owner.name);
        }
    buf_append_char(&packet.sql, ')');
    if (listed)
        packet_send(&packet);
    while (listed && packet_row(&packet)) {
        struct bytes name = row_column(&packet.row);
        for (size_t i = 0; i < count; i++)
            images[i].holding |= bytes_equal(images[i].owner.name, name);
    }
    return packet_end(&packet);
}

/* Writes the changed images in order of name. */
static void write_sql(const struct owner_image *images, size_t count, struct buf *sql)
{
    /* If another transaction has inserted the name meanwhile: error 1062, and a retry with that row. */
    struct row_insert insert = {.table = &owner_table, .columns = COLUMN_INSERT};
    /* Updates locked rows, so all of them exist. */
    struct row_insert update = {
        .table = &owner_table, .columns = COLUMN_INSERT, .duplicate = "", .duplicate_columns = COLUMN_UPDATE};
    size_t deleted = 0;
    for (size_t i = 0; i < count; i++)
        if (images[i].changed && images[i].exists && !images[i].existed)
            row_insert_sql(&insert, &images[i].owner, sql);
    row_insert_end_sql(&insert, sql);
    for (size_t i = 0; i < count; i++)
        if (images[i].changed && images[i].exists && images[i].existed)
            row_insert_sql(&update, &images[i].owner, sql);
    row_insert_end_sql(&update, sql);
    for (size_t i = 0; i < count; i++) {
        if (!images[i].changed || images[i].exists || !images[i].existed)
            continue;
        buf_append_text(sql, deleted++ ? "," : "DELETE FROM owner WHERE name IN (");
        sql_bytes(sql, images[i].owner.name);
    }
    buf_append_text(sql, deleted ? ");" : "");
}

static enum permit_status owners_write(struct store *store, const struct owner_image *images, size_t count)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    write_sql(images, count, &packet.sql);
    buf_append_text(&packet.sql, "COMMIT");
    packet_send(&packet);
    return packet_end(&packet);
}

static void owners_rollback(struct store *store)
{
    (void)session_rollback(session_of(store));
}

/* ---- plain reads ---- */

static enum permit_status owners_due(struct store *store, utc_us before, struct arena *arena, struct owner **ret_owners,
                                     size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, "SELECT " OWNER_SELECT
                                 " FROM owner o FORCE INDEX (owner_due) WHERE o.lapsed_at IS NULL AND o.due_at<");
    sql_time(&packet.sql, before);
    buf_printf(&packet.sql, " ORDER BY o.due_at LIMIT %d", OWNERS_MAX);
    return run_owners(&packet, ret_owners, ret_count);
}

/* Walks owner_settled. lapsed_at NULL (not lapsed) sorts before all times, so it is not walked. */
static enum permit_status owners_lapsed(struct store *store, utc_us after_at, struct bytes after_name,
                                        struct arena *arena, struct owner **ret_owners, size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (owner_settled)"
                                 " WHERE o.settled_at IS NULL AND o.lapsed_at>=");
    sql_time(&packet.sql, after_at);
    buf_append_text(&packet.sql, " AND NOT (o.lapsed_at=");
    sql_time(&packet.sql, after_at);
    buf_append_text(&packet.sql, " AND o.name<=");
    sql_bytes(&packet.sql, after_name);
    buf_printf(&packet.sql, ") ORDER BY o.lapsed_at,o.name LIMIT %d", OWNERS_PAGE);
    return run_owners(&packet, ret_owners, ret_count);
}

static enum permit_status owners_removable(struct store *store, utc_us before, struct arena *arena,
                                           struct owner **ret_owners, size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql,
                    "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (owner_settled) WHERE o.settled_at<");
    sql_time(&packet.sql, before);
    buf_printf(&packet.sql, " ORDER BY o.settled_at LIMIT %d", OWNERS_MAX);
    return run_owners(&packet, ret_owners, ret_count);
}

/*
 * Selects the requests of one owner that end with its lapse; for two names. Walks held_owner to the first OWNERS_ENDS
 * rows that have such a request. A request with several permits counts in the row of its first semaphore alone, so
 * these rows have at least as many requests as there are rows.
 */
#define ENDS_BEGIN                                                                                                     \
    "SELECT r.external_id FROM (SELECT STRAIGHT_JOIN h.semaphore_id,h.block,h.bits,o.lapsed_at"                        \
    " FROM owner o FORCE INDEX (PRIMARY) JOIN held h FORCE INDEX (held_owner) ON h.owner="
#define ENDS_NAME                                                                                                      \
    " WHERE " IS_ENDING " AND " HELD_ROW_HAS(ENDS_WITH_LAPSE("o.lapsed_at") " AND " HELD_FIRST_PERMIT) " AND o.name="
#define ENDS_END                                                                                                       \
    " LIMIT %d) h" HELD_REQUESTS " WHERE " ENDS_WITH_LAPSE("h.lapsed_at") " AND " HELD_FIRST_PERMIT                    \
                                                                          " ORDER BY r.id LIMIT %d"

static enum permit_status owners_ends(struct store *store, const struct owner *owners, size_t count,
                                      struct arena *arena, struct owner_ends *ret_ends)
{
    struct packet packet = packet_begin(session_of(store), arena);
    for (size_t i = 0; i < count; i++) {
        buf_append_text(&packet.sql, i ? ";" ENDS_BEGIN : ENDS_BEGIN);
        sql_bytes(&packet.sql, owners[i].name);
        buf_append_text(&packet.sql, ENDS_NAME);
        sql_bytes(&packet.sql, owners[i].name);
        buf_printf(&packet.sql, ENDS_END, OWNERS_ENDS, OWNERS_ENDS);
    }
    for (size_t i = 0; i < count; i++) {
        if (i == 0)
            packet_send(&packet);
        else
            packet_next(&packet);
        struct bytes *keys = packet_rows(&packet, sizeof *keys, &ret_ends[i].count);
        for (size_t j = 0; j < ret_ends[i].count && packet_row(&packet); j++)
            keys[j] = row_bytes(&packet.row);
        ret_ends[i].keys = keys;
    }
    return packet_end(&packet);
}

static enum permit_status owners_read(struct store *store, const struct bytes *names, size_t count, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    buf_append_text(&packet.sql, "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    sql_bytes_list(&packet.sql, names, count);
    buf_append_text(&packet.sql, ") ORDER BY o.name;" SQL_CLOCK);
    packet_send(&packet);
    read_owners(&packet, &page->owners, &page->count);
    packet_time(&packet, &page->time);
    return packet_end(&packet);
}

/* Counts the requests that hold the permits of the owner's bits, along held_owner. */
static enum permit_status owners_get(struct store *store, struct bytes name, struct arena *arena,
                                     struct owner *ret_owner, uint64_t *ret_held, struct query_time *ret_time)
{
    struct page page = {.arena = arena};
    enum permit_status status = owners_read(store, &name, 1, &page);
    if (status != PERMIT_OK || page.count == 0)
        return status != PERMIT_OK ? status : PERMIT_UNKNOWN_OWNER;
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "SELECT COUNT(*) FROM (SELECT STRAIGHT_JOIN DISTINCT p.permit_request_id"
                                 " FROM held h FORCE INDEX (held_owner)" HELD_PERMITS " WHERE h.owner=");
    sql_bytes(&packet.sql, name);
    buf_printf(&packet.sql, " LIMIT %d) r", QUERY_WALK_MAX);
    packet_send(&packet);
    if (packet_row(&packet))
        *ret_held = row_u64(&packet.row);
    *ret_owner = page.owners[0];
    *ret_time = page.time;
    return packet_end(&packet);
}

/* Reads only the index owner_due. */
static enum permit_status owners_count(struct store *store, uint64_t ret_counts[OWNER_LIFE_COUNT])
{
    struct packet packet = packet_begin(session_of(store), NULL);
    struct query_time time = {0};
    memset(ret_counts, 0, OWNER_LIFE_COUNT * sizeof *ret_counts);
    packet_fail(&packet, mysql_queries.clock(store, &time));
    buf_printf(&packet.sql, "SELECT IF(o.lapsed_at IS NOT NULL,%d,IF(o.due_at<", OWNER_LAPSED);
    sql_time(&packet.sql, lease_time(&time.clock, time.now));
    buf_printf(&packet.sql, ",%d,%d)) AS life,COUNT(*) FROM owner o FORCE INDEX (owner_due) GROUP BY life", OWNER_LATE,
               OWNER_ALIVE);
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint64_t life = row_u64(&packet.row);
        ret_counts[life % OWNER_LIFE_COUNT] = row_u64(&packet.row);
    }
    return packet_end(&packet);
}

/*
 * Seeks once per owner in held_owner, however many permits each holds, and walks its rows to the first with a bit, and
 * to the first with an unconfirmed request.
 */
static enum permit_status owners_holding_page(struct store *store, struct bytes after, struct arena *arena,
                                              struct owner_holder **ret_holders, size_t *ret_count,
                                              struct query_time *ret_time)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, "SELECT g.owner,EXISTS(SELECT 1 FROM held h FORCE INDEX (held_owner)"
                                 " WHERE h.owner=g.owner AND " ROW_HAS_UNCONFIRMED ")"
                                 " FROM (SELECT f.owner FROM held f FORCE INDEX (held_owner) WHERE f.owner>");
    sql_bytes(&packet.sql, after);
    buf_printf(&packet.sql, " GROUP BY f.owner ORDER BY f.owner LIMIT %d) g ORDER BY g.owner;" SQL_CLOCK, OWNERS_PAGE);
    packet_send(&packet);
    struct owner_holder *holders = packet_rows(&packet, sizeof *holders, ret_count);
    for (size_t i = 0; i < *ret_count && packet_row(&packet); i++) {
        holders[i].name = row_bytes(&packet.row);
        holders[i].is_probed = row_u64(&packet.row);
    }
    *ret_holders = holders;
    packet_time(&packet, ret_time);
    return packet_end(&packet);
}

const struct store_owners mysql_owners = {
    .lock = owners_lock,
    .read_holding = owners_read_holding,
    .write = owners_write,
    .rollback = owners_rollback,
    .due = owners_due,
    .lapsed = owners_lapsed,
    .removable = owners_removable,
    .ends = owners_ends,
    .read = owners_read,
    .get = owners_get,
    .count = owners_count,
    .holding_page = owners_holding_page,
};
