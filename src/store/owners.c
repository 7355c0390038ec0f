/* SPDX-License-Identifier: MIT */
#include "store/mysql_methods.h"

#include "store/held.h"
#include "store/query_packet.h"
#include "store/row_sql.h"

enum { SQL_MAX = 8 << 20 };

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

static enum permit_status read_owners(struct session *session, struct arena *arena, struct owner **ret_owners,
                                      size_t *ret_count)
{
    size_t count = (size_t)session_affected(session);
    struct owner *owners = arena_array(arena, count, sizeof *owners);
    struct row_reader reader = {.arena = arena, .broken = count && !owners};
    for (size_t i = 0; i < count && row_step(&reader, session); i++)
        row_read(&reader, &owner_table, &owners[i]);
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    *ret_owners = owners;
    *ret_count = count;
    return PERMIT_OK;
}

/* Runs one SELECT of OWNER_SELECT. Releases `sql`. */
static enum permit_status run_owners(struct session *session, struct buf *sql, struct arena *arena,
                                     struct owner **ret_owners, size_t *ret_count)
{
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_owners(session, arena, ret_owners, ret_count);
    return query_packet_end(session, sql, status);
}

/* ---- transaction ---- */

/* Reads the images. Rows have the order of the names; names without a row get an image with only the name. */
static enum permit_status read_images(struct session *session, const struct bytes *names, size_t count,
                                      struct arena *arena, struct owner_image *ret_images)
{
    struct row_reader reader = {.arena = arena};
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        ret_images[i] =
            (struct owner_image){.owner = {.name = names[i], .due_at = NEVER, .lapsed_at = NEVER, .settled_at = NEVER}};
    while (row_step(&reader, session)) {
        struct owner owner;
        row_read(&reader, &owner_table, &owner);
        while (at < count && !bytes_equal(names[at], owner.name))
            at++;
        if (reader.broken || at == count)
            return reader.broken ? PERMIT_NO_MEMORY : PERMIT_INTERNAL;
        owner.name = names[at];
        ret_images[at++] = (struct owner_image){.owner = owner, .existed = true, .exists = true};
    }
    return PERMIT_OK;
}

/*
 * Locks rows in order of name, as every transaction that locks several owners. The lock wait is short: only a stopped
 * permitd holds an owner row for long, and other heartbeats must not wait for it. `how` is "" or " NOWAIT".
 */
static enum permit_status lock(struct session *session, const struct bytes *names, size_t count, const char *how,
                               struct arena *arena, struct owner_image *ret_images, struct query_time *ret_time)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SET SESSION innodb_lock_wait_timeout=1;BEGIN;SELECT " OWNER_SELECT
                          " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    sql_bytes_list(&sql, names, count);
    buf_append_text(&sql, ") ORDER BY o.name FOR UPDATE");
    buf_append_text(&sql, how);
    buf_append_text(&sql, ";" SQL_CLOCK);
    enum permit_status status = session_send_buf(session, &sql);
    for (int i = 0; i < 2 && status == PERMIT_OK; i++)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_images(session, names, count, arena, ret_images);
    if (status == PERMIT_OK)
        status = query_packet_time(session, ret_time);
    return query_packet_end(session, &sql, status);
}

static enum permit_status owners_lock(struct store *store, const struct bytes *names, size_t count, struct arena *arena,
                                      struct owner_image *ret_images, struct query_time *ret_time)
{
    return lock(session_of(store), names, count, "", arena, ret_images, ret_time);
}

static enum permit_status owners_lock_nowait(struct store *store, const struct bytes *names, size_t count,
                                             struct arena *arena, struct owner_image *ret_images,
                                             struct query_time *ret_time)
{
    return lock(session_of(store), names, count, " NOWAIT", arena, ret_images, ret_time);
}

/*
 * Walks held_owner to the first request that ends with the lapse. It needs no lock: while the owner is lapsed, no
 * request with ttl "owner" is granted. A request with another ttl can be granted, even with an acquired_at before the
 * lapse: it ends with the lapse if it commits before the lapse is settled, else by its ttl.
 */
static enum permit_status owners_read_holding(struct store *store, struct owner_image *images, size_t count)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct session_row row;
    size_t listed = 0;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT o.name FROM owner o FORCE INDEX (PRIMARY)"
                          " WHERE " IS_ENDING " AND EXISTS"
                          " (SELECT STRAIGHT_JOIN 1 FROM held h FORCE INDEX (held_owner) WHERE h.owner=o.name"
                          " AND " ROW_HAS_ENDING ") AND o.name IN (");
    for (size_t i = 0; i < count; i++)
        if (images[i].exists && owner_is_ending(&images[i].owner)) {
            if (listed++)
                buf_append_char(&sql, ',');
            sql_bytes(&sql, images[i].owner.name);
        }
    if (listed == 0) {
        buf_release(&sql);
        return PERMIT_OK;
    }
    buf_append_char(&sql, ')');
    enum permit_status status = session_send_buf(session, &sql);
    while (status == PERMIT_OK && session_row(session, &row))
        for (size_t i = 0; i < count; i++)
            images[i].holding |= bytes_equal(images[i].owner.name, row.columns[0]);
    return query_packet_end(session, &sql, status);
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
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    write_sql(images, count, &sql);
    buf_append_text(&sql, "COMMIT");
    return query_packet_end(session, &sql, session_send_buf(session, &sql));
}

static void owners_rollback(struct store *store)
{
    (void)session_rollback(session_of(store));
}

/* ---- plain reads ---- */

static enum permit_status owners_due(struct store *store, utc_us before, struct arena *arena, struct owner **ret_owners,
                                     size_t *ret_count)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_SELECT
                          " FROM owner o FORCE INDEX (owner_due) WHERE o.lapsed_at IS NULL AND o.due_at<");
    sql_time(&sql, before);
    buf_printf(&sql, " ORDER BY o.due_at LIMIT %d", OWNERS_MAX);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

/* Walks owner_settled. lapsed_at NULL (not lapsed) sorts before all times, so it is not walked. */
static enum permit_status owners_lapsed(struct store *store, utc_us after_at, struct bytes after_name,
                                        struct arena *arena, struct owner **ret_owners, size_t *ret_count)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (owner_settled)"
                          " WHERE o.settled_at IS NULL AND o.lapsed_at>=");
    sql_time(&sql, after_at);
    buf_append_text(&sql, " AND NOT (o.lapsed_at=");
    sql_time(&sql, after_at);
    buf_append_text(&sql, " AND o.name<=");
    sql_bytes(&sql, after_name);
    buf_printf(&sql, ") ORDER BY o.lapsed_at,o.name LIMIT %d", OWNERS_PAGE);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

static enum permit_status owners_removable(struct store *store, utc_us before, struct arena *arena,
                                           struct owner **ret_owners, size_t *ret_count)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (owner_settled) WHERE o.settled_at<");
    sql_time(&sql, before);
    buf_printf(&sql, " ORDER BY o.settled_at LIMIT %d", OWNERS_MAX);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

static enum permit_status read_ends(struct session *session, struct arena *arena, struct owner_ends *ret_ends)
{
    struct row_reader reader = {.arena = arena};
    size_t count = (size_t)session_affected(session);
    *ret_ends = (struct owner_ends){.keys = arena_array(arena, count, sizeof *ret_ends->keys)};
    reader.broken = count && !ret_ends->keys;
    while (ret_ends->count < count && row_step(&reader, session))
        ret_ends->keys[ret_ends->count++] = row_bytes(&reader);
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
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
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    for (size_t i = 0; i < count; i++) {
        if (i)
            buf_append_char(&sql, ';');
        buf_append_text(&sql, ENDS_BEGIN);
        sql_bytes(&sql, owners[i].name);
        buf_append_text(&sql, ENDS_NAME);
        sql_bytes(&sql, owners[i].name);
        buf_printf(&sql, ENDS_END, OWNERS_ENDS, OWNERS_ENDS);
    }
    enum permit_status status = count ? session_send_buf(session, &sql) : PERMIT_OK;
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        if (i)
            status = session_next(session);
        if (status == PERMIT_OK)
            status = read_ends(session, arena, &ret_ends[i]);
    }
    return query_packet_end(session, &sql, status);
}

static enum permit_status owners_read(struct store *store, const struct bytes *names, size_t count, struct arena *arena,
                                      struct owner **ret_owners, size_t *ret_count, struct query_time *ret_time)
{
    struct session *session = session_of(store);
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_SELECT " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    sql_bytes_list(&sql, names, count);
    buf_append_text(&sql, ") ORDER BY o.name;" SQL_CLOCK);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK)
        status = read_owners(session, arena, ret_owners, ret_count);
    if (status == PERMIT_OK)
        status = query_packet_time(session, ret_time);
    return query_packet_end(session, &sql, status);
}

/* Counts the requests that hold the permits of the owner's bits, along held_owner. */
static enum permit_status owners_get(struct store *store, struct bytes name, struct arena *arena,
                                     struct owner *ret_owner, uint64_t *ret_held, struct query_time *ret_time)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct session_row row;
    struct owner *owners;
    size_t count;
    enum permit_status status = owners_read(store, &name, 1, arena, &owners, &count, ret_time);
    if (status != PERMIT_OK || count == 0)
        return status != PERMIT_OK ? status : PERMIT_UNKNOWN_OWNER;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT COUNT(*) FROM (SELECT STRAIGHT_JOIN DISTINCT p.permit_request_id"
                          " FROM held h FORCE INDEX (held_owner)" HELD_PERMITS " WHERE h.owner=");
    sql_bytes(&sql, name);
    buf_printf(&sql, " LIMIT %d) r", QUERY_WALK_MAX);
    status = session_send_buf(session, &sql);
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_held = column_u64(row.columns[0]);
    *ret_owner = owners[0];
    return query_packet_end(session, &sql, status);
}

/* Reads only the index owner_due. */
static enum permit_status owners_count(struct store *store, uint64_t ret_counts[OWNER_LIFE_COUNT])
{
    struct session *session = session_of(store);
    struct buf sql;
    struct session_row row;
    struct query_time time;
    memset(ret_counts, 0, OWNER_LIFE_COUNT * sizeof *ret_counts);
    enum permit_status status = mysql_queries.clock(store, &time);
    if (status != PERMIT_OK)
        return status;
    buf_init(&sql, SQL_MAX);
    buf_printf(&sql, "SELECT IF(o.lapsed_at IS NOT NULL,%d,IF(o.due_at<", OWNER_LAPSED);
    sql_time(&sql, lease_time(&time.clock, time.now));
    buf_printf(&sql, ",%d,%d)) AS life,COUNT(*) FROM owner o FORCE INDEX (owner_due) GROUP BY life", OWNER_LATE,
               OWNER_ALIVE);
    status = session_send_buf(session, &sql);
    while (status == PERMIT_OK && session_row(session, &row))
        ret_counts[column_u64(row.columns[0]) % OWNER_LIFE_COUNT] = column_u64(row.columns[1]);
    return query_packet_end(session, &sql, status);
}

/*
 * Seeks once per owner in held_owner, however many permits each holds, and walks its rows to the first with a bit, and
 * to the first with an unconfirmed request.
 */
static enum permit_status owners_holding_page(struct store *store, struct bytes after, struct arena *arena,
                                              struct owner_holder **ret_holders, size_t *ret_count,
                                              struct query_time *ret_time)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct row_reader reader = {.arena = arena};
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT g.owner,EXISTS(SELECT 1 FROM held h FORCE INDEX (held_owner)"
                          " WHERE h.owner=g.owner AND " ROW_HAS_UNCONFIRMED ")"
                          " FROM (SELECT f.owner FROM held f FORCE INDEX (held_owner) WHERE f.owner>");
    sql_bytes(&sql, after);
    buf_printf(&sql, " GROUP BY f.owner ORDER BY f.owner LIMIT %d) g ORDER BY g.owner;" SQL_CLOCK, OWNERS_PAGE);
    enum permit_status status = session_send_buf(session, &sql);
    size_t count = status == PERMIT_OK ? (size_t)session_affected(session) : 0;
    struct owner_holder *holders = arena_array(arena, count, sizeof *holders);
    reader.broken = count && !holders;
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        holders[i].name = row_bytes(&reader);
        holders[i].is_probed = row_u64(&reader);
    }
    if (status == PERMIT_OK && reader.broken)
        status = PERMIT_NO_MEMORY;
    if (status == PERMIT_OK)
        status = query_packet_time(session, ret_time);
    *ret_holders = holders;
    *ret_count = count;
    return query_packet_end(session, &sql, status);
}

const struct store_owners mysql_owners = {
    .lock = owners_lock,
    .lock_nowait = owners_lock_nowait,
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
