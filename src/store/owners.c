/* SPDX-License-Identifier: MIT */
#include "store/owners.h"

#include "store/rows.h"

enum { SQL_MAX = 8 << 20 };

#define OWNER_COLUMNS "o.name,o.ttl_ms,o.due_at,o.lapsed_at,o.settled_at,o.replays"
#define SQL_CLOCK     "SELECT " SQL_NOW_US "," SQL_US("tick_at") ",offset_us FROM cluster WHERE id=1"

/* Of `permit_request` r and `owner` o: owner_is_ending and owner_lapse_ends in SQL, but for the state and the owner,
 * which are the index. */
#define IS_ENDING       "o.lapsed_at IS NOT NULL AND o.settled_at IS NULL"
#define ENDS_WITH_LAPSE "r.confirmed_at IS NULL AND (r.ttl_ms=0 OR r.acquired_at<=o.lapsed_at)"

/* ---- what all have in common ---- */

/* Ends the packet and the text; the first failure counts. */
static enum permit_status end(struct session *session, struct buf *sql, enum permit_status status)
{
    buf_release(sql);
    return session_end(session, status);
}

static void names_sql(struct buf *sql, const struct bytes *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i)
            buf_append_char(sql, ',');
        sql_bytes(sql, names[i]);
    }
}

static void row_owner(struct row_reader *reader, struct owner *ret_owner)
{
    ret_owner->name = row_bytes(reader);
    ret_owner->ttl_ms = row_i64(reader);
    ret_owner->due_at = row_time(reader);
    ret_owner->lapsed_at = row_time(reader);
    ret_owner->settled_at = row_time(reader);
    ret_owner->replays = (uint32_t)row_u64(reader);
}

static enum permit_status read_time(struct session *session, struct query_time *ret_time)
{
    struct row_reader reader = {0};
    if (!row_step(&reader, session))
        return PERMIT_INTERNAL; /* the row of `cluster` is made with the table */
    ret_time->now = row_i64(&reader);
    ret_time->clock.tick_at = row_i64(&reader);
    ret_time->clock.offset_us = row_i64(&reader);
    return PERMIT_OK;
}

static enum permit_status read_owners(struct session *session, struct arena *arena, struct owner **ret_owners,
                                      size_t *ret_count)
{
    size_t count = (size_t)session_affected(session);
    struct owner *owners = arena_array(arena, count, sizeof *owners);
    struct row_reader reader = {.arena = arena, .broken = count && !owners};
    for (size_t i = 0; i < count && row_step(&reader, session); i++)
        row_owner(&reader, &owners[i]);
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    *ret_owners = owners;
    *ret_count = count;
    return PERMIT_OK;
}

/* Runs one SELECT of OWNER_COLUMNS. Takes the text. */
static enum permit_status run_owners(struct session *session, struct buf *sql, struct arena *arena,
                                     struct owner **ret_owners, size_t *ret_count)
{
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_owners(session, arena, ret_owners, ret_count);
    return end(session, sql, status);
}

/* ---- one transaction ---- */

/*
 * In order of name, like all who lock several. Nobody keeps such a row for long but a permitd that was stopped; the
 * heartbeats of all others are not to wait for it. `how`: "", or " NOWAIT".
 */
static void lock_sql(const struct bytes *names, size_t count, const char *how, struct buf *sql)
{
    buf_append_text(sql, "SET SESSION innodb_lock_wait_timeout=1;BEGIN;SELECT " OWNER_COLUMNS
                         " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    names_sql(sql, names, count);
    buf_append_text(sql, ") ORDER BY o.name FOR UPDATE");
    buf_append_text(sql, how);
    buf_append_text(sql, ";" SQL_CLOCK);
}

/* The rows come in the order of the names, and some are missing. */
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
        row_owner(&reader, &owner);
        while (at < count && !bytes_equal(names[at], owner.name))
            at++;
        if (reader.broken || at == count)
            return reader.broken ? PERMIT_NO_MEMORY : PERMIT_INTERNAL;
        owner.name = names[at];
        ret_images[at++] = (struct owner_image){.owner = owner, .was = true, .is = true};
    }
    return PERMIT_OK;
}

static enum permit_status lock(struct session *session, const struct bytes *names, size_t count, const char *how,
                               struct arena *arena, struct owner_image *ret_images, struct query_time *ret_time)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    lock_sql(names, count, how, &sql);
    enum permit_status status = session_send_buf(session, &sql);
    for (int i = 0; i < 2 && status == PERMIT_OK; i++)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_images(session, names, count, arena, ret_images);
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_time(session, ret_time);
    return end(session, &sql, status);
}

enum permit_status owners_lock(struct session *session, const struct bytes *names, size_t count, struct arena *arena,
                               struct owner_image *ret_images, struct query_time *ret_time)
{
    return lock(session, names, count, "", arena, ret_images, ret_time);
}

enum permit_status owners_lock_now(struct session *session, const struct bytes *names, size_t count,
                                   struct arena *arena, struct owner_image *ret_images, struct query_time *ret_time)
{
    return lock(session, names, count, " NOWAIT", arena, ret_images, ret_time);
}

/*
 * Walks permit_request_owner to the first request that counts. Nothing is locked: no request with ttl "owner" can come
 * while the owner is lapsed. One with another ttl can, even with an acquired_at before the lapse: it ends with the
 * lapse if it commits before the lapse is settled, else it is judged by its ttl.
 */
static void holding_sql(struct buf *sql)
{
    buf_append_text(sql, "SELECT o.name FROM owner o FORCE INDEX (PRIMARY)"
                         " WHERE " IS_ENDING " AND EXISTS"
                         " (SELECT 1 FROM permit_request r FORCE INDEX (permit_request_owner)"
                         " WHERE r.state=1 AND r.owner=o.name AND " ENDS_WITH_LAPSE ") AND o.name IN (");
}

enum permit_status owners_read_holding(struct session *session, struct owner_image *images, size_t count)
{
    struct buf sql;
    struct session_row row;
    size_t asked = 0;
    buf_init(&sql, SQL_MAX);
    holding_sql(&sql);
    for (size_t i = 0; i < count; i++)
        if (images[i].is && owner_is_ending(&images[i].owner)) {
            if (asked++)
                buf_append_char(&sql, ',');
            sql_bytes(&sql, images[i].owner.name);
        }
    if (asked == 0) {
        buf_release(&sql);
        return PERMIT_OK;
    }
    buf_append_char(&sql, ')');
    enum permit_status status = session_send_buf(session, &sql);
    while (status == PERMIT_OK && session_row(session, &row))
        for (size_t i = 0; i < count; i++)
            images[i].holding |= bytes_equal(images[i].owner.name, row.columns[0]);
    return end(session, &sql, status);
}

static void values_sql(struct buf *sql, const struct owner *owner, bool first)
{
    buf_append_text(sql, first ? "(" : ",(");
    sql_bytes(sql, owner->name);
    buf_append_char(sql, ',');
    buf_append_i64(sql, owner->ttl_ms);
    const utc_us times[] = {owner->due_at, owner->lapsed_at, owner->settled_at};
    for (size_t i = 0; i < ARRAY_LENGTH(times); i++) {
        buf_append_char(sql, ',');
        sql_time(sql, times[i]);
    }
    buf_append_char(sql, ',');
    buf_append_u64(sql, owner->replays);
    buf_append_char(sql, ')');
}

#define INSERT_OWNERS "INSERT INTO owner (name,ttl_ms,due_at,lapsed_at,settled_at,replays) VALUES "

/* What may become of a row, and the statement that does it to many. */
static const struct {
    bool was, is;
    const char *before;
    const char *after;
} writes[] = {
    /* A name that somebody else has made in the meantime is error 1062: again, with the row that is there now. */
    {false, true, INSERT_OWNERS, ";"},
    /* Rows that are locked, so all of them exist. */
    {true, true, INSERT_OWNERS,
     " ON DUPLICATE KEY UPDATE ttl_ms=VALUES(ttl_ms),due_at=VALUES(due_at),lapsed_at=VALUES(lapsed_at),"
     "settled_at=VALUES(settled_at),replays=VALUES(replays);"},
    {true, false, "DELETE FROM owner WHERE name IN (", ");"},
};

/* The images that `writes[kind]` is for, in order of name. */
static void write_sql(struct buf *sql, const struct owner_image *images, size_t count, size_t kind)
{
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        const struct owner_image *image = &images[i];
        if (!image->changed || image->was != writes[kind].was || image->is != writes[kind].is)
            continue;
        if (first)
            buf_append_text(sql, writes[kind].before);
        if (image->is)
            values_sql(sql, &image->owner, first);
        else if (!first)
            buf_append_char(sql, ',');
        if (!image->is)
            sql_bytes(sql, image->owner.name);
        first = false;
    }
    if (!first)
        buf_append_text(sql, writes[kind].after);
}

enum permit_status owners_write(struct session *session, const struct owner_image *images, size_t count)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    for (size_t kind = 0; kind < ARRAY_LENGTH(writes); kind++)
        write_sql(&sql, images, count, kind);
    buf_append_text(&sql, "COMMIT");
    return end(session, &sql, session_send_buf(session, &sql));
}

void owners_rollback(struct session *session)
{
    if (session_is_connected(session) && session_run(session, "ROLLBACK") != PERMIT_OK)
        session_drop(session);
}

/* ---- plain reads ---- */

enum permit_status owners_time(struct session *session, struct query_time *ret_time)
{
    enum permit_status status = session_send(session, BYTES(SQL_CLOCK));
    if (status == PERMIT_OK)
        status = read_time(session, ret_time);
    return session_end(session, status);
}

enum permit_status owners_due(struct session *session, utc_us before, struct arena *arena, struct owner **ret_owners,
                              size_t *ret_count)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_COLUMNS
                          " FROM owner o FORCE INDEX (owner_due) WHERE o.lapsed_at IS NULL AND o.due_at<");
    sql_time(&sql, before);
    buf_printf(&sql, " ORDER BY o.due_at LIMIT %d", OWNERS_MAX);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

/* NULL, which is not lapsed, lies before all times. */
enum permit_status owners_lapsed(struct session *session, utc_us after_at, struct bytes after_name, struct arena *arena,
                                 struct owner **ret_owners, size_t *ret_count)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_COLUMNS " FROM owner o FORCE INDEX (owner_settled)"
                          " WHERE o.settled_at IS NULL AND o.lapsed_at>=");
    sql_time(&sql, after_at);
    buf_append_text(&sql, " AND NOT (o.lapsed_at=");
    sql_time(&sql, after_at);
    buf_append_text(&sql, " AND o.name<=");
    sql_bytes(&sql, after_name);
    buf_printf(&sql, ") ORDER BY o.lapsed_at,o.name LIMIT %d", OWNERS_PAGE);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

enum permit_status owners_forgettable(struct session *session, utc_us before, struct arena *arena,
                                      struct owner **ret_owners, size_t *ret_count)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_COLUMNS " FROM owner o FORCE INDEX (owner_settled) WHERE o.settled_at<");
    sql_time(&sql, before);
    buf_printf(&sql, " ORDER BY o.settled_at LIMIT %d", OWNERS_MAX);
    return run_owners(session, &sql, arena, ret_owners, ret_count);
}

/* The owner by its primary key, then permit_request_owner in order of id. */
static void ends_sql(struct buf *sql, struct bytes name)
{
    buf_append_text(sql, "SELECT STRAIGHT_JOIN r.external_id FROM owner o FORCE INDEX (PRIMARY)"
                         " JOIN permit_request r FORCE INDEX (permit_request_owner) ON r.state=1 AND r.owner=");
    sql_bytes(sql, name);
    buf_append_text(sql, " AND " ENDS_WITH_LAPSE " WHERE " IS_ENDING " AND o.name=");
    sql_bytes(sql, name);
    buf_printf(sql, " ORDER BY r.id LIMIT %d", OWNERS_ENDS);
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

enum permit_status owners_ends(struct session *session, const struct owner *owners, size_t count, struct arena *arena,
                               struct owner_ends *ret_ends)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    for (size_t i = 0; i < count; i++) {
        if (i)
            buf_append_char(&sql, ';');
        ends_sql(&sql, owners[i].name);
    }
    enum permit_status status = count ? session_send_buf(session, &sql) : PERMIT_OK;
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        if (i)
            status = session_next(session);
        if (status == PERMIT_OK)
            status = read_ends(session, arena, &ret_ends[i]);
    }
    return end(session, &sql, status);
}

enum permit_status owners_read(struct session *session, const struct bytes *names, size_t count, struct arena *arena,
                               struct owner **ret_owners, size_t *ret_count, struct query_time *ret_time)
{
    struct buf sql;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT " OWNER_COLUMNS " FROM owner o FORCE INDEX (PRIMARY) WHERE o.name IN (");
    names_sql(&sql, names, count);
    buf_append_text(&sql, ") ORDER BY o.name;" SQL_CLOCK);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK)
        status = read_owners(session, arena, ret_owners, ret_count);
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_time(session, ret_time);
    return end(session, &sql, status);
}

enum permit_status owners_get(struct session *session, struct bytes name, struct arena *arena, struct owner *ret_owner,
                              uint64_t *ret_held, struct query_time *ret_time)
{
    struct buf sql;
    struct session_row row;
    struct owner *owners;
    size_t count;
    enum permit_status status = owners_read(session, &name, 1, arena, &owners, &count, ret_time);
    if (status != PERMIT_OK || count == 0)
        return status != PERMIT_OK ? status : PERMIT_UNKNOWN_OWNER;
    buf_init(&sql, SQL_MAX);
    buf_append_text(&sql, "SELECT COUNT(*) FROM (SELECT 1 FROM permit_request r FORCE INDEX (permit_request_owner)"
                          " WHERE r.state=1 AND r.owner=");
    sql_bytes(&sql, name);
    buf_printf(&sql, " LIMIT %d) h", QUERY_WALK_MAX);
    status = session_send_buf(session, &sql);
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_held = column_u64(row.columns[0]);
    *ret_owner = owners[0];
    return end(session, &sql, status);
}

/* Walks owner_due alone. */
enum permit_status owners_count(struct session *session, uint64_t ret_counts[OWNER_LIFE_COUNT])
{
    struct buf sql;
    struct session_row row;
    struct query_time time;
    memset(ret_counts, 0, OWNER_LIFE_COUNT * sizeof *ret_counts);
    enum permit_status status = owners_time(session, &time);
    if (status != PERMIT_OK)
        return status;
    buf_init(&sql, SQL_MAX);
    buf_printf(&sql, "SELECT IF(o.lapsed_at IS NOT NULL,%d,IF(o.due_at<", OWNER_LAPSED);
    sql_time(&sql, served_time(&time.clock, time.now));
    buf_printf(&sql, ",%d,%d)) AS life,COUNT(*) FROM owner o FORCE INDEX (owner_due) GROUP BY life", OWNER_LATE,
               OWNER_ALIVE);
    status = session_send_buf(session, &sql);
    while (status == PERMIT_OK && session_row(session, &row))
        ret_counts[column_u64(row.columns[0]) % OWNER_LIFE_COUNT] = column_u64(row.columns[1]);
    return end(session, &sql, status);
}

/*
 * permit_request_owner has the held ones together: one seek per owner, whatever each of them holds. Grouped by the
 * whole of it, although the state is given: otherwise MariaDB reads every entry.
 */
static void holders_sql(struct buf *sql, struct bytes after)
{
    buf_append_text(sql, "SELECT g.owner,EXISTS(SELECT 1 FROM permit_request r FORCE INDEX (permit_request_owner)"
                         " WHERE r.state=1 AND r.owner=g.owner AND r.confirmed_at IS NULL)"
                         " FROM (SELECT h.state,h.owner FROM permit_request h FORCE INDEX (permit_request_owner)"
                         " WHERE h.state=1 AND h.owner>");
    sql_bytes(sql, after);
    buf_printf(sql, " GROUP BY h.state,h.owner ORDER BY h.state,h.owner LIMIT %d) g;" SQL_CLOCK, OWNERS_PAGE);
}

enum permit_status owners_holding_page(struct session *session, struct bytes after, struct arena *arena,
                                       struct owner_holder **ret_holders, size_t *ret_count,
                                       struct query_time *ret_time)
{
    struct buf sql;
    struct row_reader reader = {.arena = arena};
    buf_init(&sql, SQL_MAX);
    holders_sql(&sql, after);
    enum permit_status status = session_send_buf(session, &sql);
    size_t count = status == PERMIT_OK ? (size_t)session_affected(session) : 0;
    struct owner_holder *holders = arena_array(arena, count, sizeof *holders);
    reader.broken = count && !holders;
    for (size_t i = 0; i < count && row_step(&reader, session); i++) {
        holders[i].name = row_bytes(&reader);
        holders[i].asked_about = row_u64(&reader);
    }
    if (status == PERMIT_OK && reader.broken)
        status = PERMIT_NO_MEMORY;
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_time(session, ret_time);
    *ret_holders = holders;
    *ret_count = count;
    return end(session, &sql, status);
}
