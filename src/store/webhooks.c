/* SPDX-License-Identifier: MIT */
#include "store/webhooks.h"

#include "core/scope.h"
#include "store/packet.h"
#include "store/query_packet.h"

#define SELECT_WEBHOOK "SELECT " WEBHOOK_COLUMNS(SELECT_FIRST, SELECT_NEXT, "w.")
#define FROM_WEBHOOK   " FROM webhook w FORCE INDEX (PRIMARY)"
#define LAST_NUMBER    ";SELECT durable FROM feed_head FORCE INDEX (PRIMARY) WHERE id=1;"
/* Of the first row with an event behind the position: the one that it is in, or the next. Found by the index of numbers. */
#define BEHIND_SINCE                                                                                                   \
    ",COALESCE((SELECT IF(f.seq+f.count>w.seq+1,f.at,NULL) FROM feed f FORCE INDEX (feed_seq) WHERE f.seq<=w.seq"      \
    " ORDER BY f.seq DESC LIMIT 1),(SELECT f.at FROM feed f FORCE INDEX (feed_seq) WHERE f.seq>w.seq ORDER BY f.seq"   \
    " LIMIT 1))"

/*
 * The events that are numbered later come behind this position, those of the change's own semaphore too: they are written
 * after it. A reader of `namings` before the change finds that it has risen, or that a semaphore names the URL.
 */
void webhook_name_sql(struct bytes url, struct buf *sql)
{
    buf_append_text(sql, "INSERT INTO webhook (url,namings,epoch,seq,server_id,failures,status,error) SELECT ");
    sql_bytes(sql, url);
    buf_append_text(sql, ",1,c.epoch,h.seq,0,0,0,'' FROM cluster c FORCE INDEX (PRIMARY) JOIN feed_head h"
                         " FORCE INDEX (PRIMARY) ON h.id=1 WHERE c.id=1"
                         " ON DUPLICATE KEY UPDATE namings=webhook.namings+1;");
}

/* ---- lists ---- */

/*
 * Sends the packet, which ends with LIMIT, and reads the rows, the head and the clock. Those that have been called come
 * first: if more are named than may be, at several permitd at once, none of these is left out for a newer one.
 */
static enum permit_status run_list(struct packet *packet, bool shows, struct webhook_list *list)
{
    buf_printf(&packet->sql, " ORDER BY w.called_at IS NULL,w.url LIMIT %d" LAST_NUMBER SQL_CLOCK, WEBHOOKS_MAX + 1);
    packet_send(packet);
    list->ret_rows = packet_rows(packet, sizeof *list->ret_rows, &list->ret_count);
    for (size_t i = 0; i < list->ret_count && packet_row(packet); i++) {
        row_read(&packet->row, &webhook_table, &list->ret_rows[i]);
        list->ret_rows[i].behind_since = shows ? row_time(&packet->row) : NEVER;
    }
    list->ret_more = list->ret_count > WEBHOOKS_MAX;
    list->ret_count -= list->ret_more;
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL))
        list->ret_head = row_u64(&packet->row);
    packet_time(packet, &list->ret_time);
    return packet_end(packet);
}

static enum permit_status webhooks_read(struct store *store, struct arena *arena, struct webhook_list *list)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, SELECT_WEBHOOK FROM_WEBHOOK);
    return run_list(&packet, false, list);
}

/* Appends " AND (condition)" for the names of the scope. */
static void scope_sql(const struct scope *scope, const char *column, struct buf *sql)
{
    buf_append_text(sql, " AND (1=0");
    for (size_t i = 0; i < scope->count; i++) {
        const struct scope_entry *entry = &scope->entries[i];
        if (entry->is_prefix)
            buf_printf(sql, " OR LEFT(%s,%zu)=", column, entry->text.length);
        else
            buf_printf(sql, " OR %s=", column);
        sql_bytes(sql, entry->text);
    }
    buf_append_char(sql, ')');
}

static enum permit_status webhooks_show(struct store *store, const struct scope *scope, struct arena *arena,
                                        struct webhook_list *list)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct buf *sql = &packet.sql;
    buf_append_text(sql, SELECT_WEBHOOK BEHIND_SINCE FROM_WEBHOOK);
    if (scope) {
        buf_append_text(sql, " WHERE EXISTS(SELECT 1 FROM semaphore s FORCE INDEX (semaphore_feed_url) WHERE"
                             " s.feed_url=w.url");
        scope_sql(scope, "s.name", sql);
        buf_append_text(sql, ") OR EXISTS(SELECT 1 FROM template t FORCE INDEX (template_feed_url) WHERE"
                             " t.feed_url=w.url");
        scope_sql(scope, "t.prefix", sql);
        buf_append_char(sql, ')');
    }
    return run_list(&packet, true, list);
}

/* ---- the URLs of semaphores ---- */

/* The names are those of a page of events: many events have the same. */
static enum permit_status webhooks_urls(struct store *store, const struct bytes *names, size_t count,
                                        struct arena *arena, struct bytes *ret_urls)
{
    struct packet packet = packet_begin(session_of(store), arena);
    for (size_t i = 0; i < count; i++)
        ret_urls[i] = (struct bytes){0};
    if (count == 0)
        return packet_end(&packet);
    buf_append_text(&packet.sql, "SELECT name,feed_url FROM semaphore FORCE INDEX (semaphore_name) WHERE name IN (");
    sql_bytes_list(&packet.sql, names, count);
    buf_append_text(&packet.sql, ") AND feed_url IS NOT NULL");
    packet_send(&packet);
    while (packet_row(&packet)) {
        struct bytes name = row_bytes(&packet.row), url = row_bytes(&packet.row);
        for (size_t i = 0; i < count; i++)
            if (bytes_equal(names[i], name))
                ret_urls[i] = url;
    }
    return packet_end(&packet);
}

/* ---- claims ---- */

/* The row, if nobody has moved it since it was read. */
static void where_sql(const struct webhook_row *row, struct buf *sql)
{
    buf_append_text(sql, " WHERE url=");
    sql_bytes(sql, row->url);
    buf_printf(sql, " AND epoch=%llu AND seq=%llu", (unsigned long long)row->position.epoch,
               (unsigned long long)row->position.seq);
}

static enum permit_status webhooks_claim(struct store *store, const struct webhook_row *row, uint64_t server_id,
                                         utc_us now, utc_us until, bool *ret_won)
{
    struct session *session = session_of(store);
    struct packet packet = packet_begin(session, NULL);
    buf_printf(&packet.sql,
               "UPDATE webhook FORCE INDEX (PRIMARY) SET server_id=%llu,claimed_until=", (unsigned long long)server_id);
    sql_time(&packet.sql, until);
    where_sql(row, &packet.sql);
    buf_printf(&packet.sql, " AND (server_id IN (0,%llu) OR claimed_until<=", (unsigned long long)server_id);
    sql_time(&packet.sql, now);
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    bool won = packet_works(&packet) && session_affected(session) == 1;
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_won = won;
    return status;
}

static enum permit_status webhooks_settle(struct store *store, const struct webhook_row *row, uint64_t server_id,
                                          const struct webhook_result *result)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    struct buf *sql = &packet.sql;
    buf_printf(sql,
               "UPDATE webhook FORCE INDEX (PRIMARY) SET server_id=0,claimed_until=NULL,called_at=SYSDATE(6),"
               "status=%u,error=",
               result->status);
    sql_bytes(sql, result->error);
    if (result->error.length) {
        buf_append_text(sql, ",failures=failures+1,failing_since=COALESCE(failing_since,SYSDATE(6)),retry_at=");
        sql_time(sql, result->retry_at);
    } else {
        buf_printf(sql, ",failures=0,failing_since=NULL,retry_at=NULL,epoch=%llu,seq=%llu",
                   (unsigned long long)result->position.epoch, (unsigned long long)result->position.seq);
    }
    where_sql(row, sql);
    buf_printf(sql, " AND server_id=%llu", (unsigned long long)server_id);
    packet_send(&packet);
    return packet_end(&packet);
}

static enum permit_status webhooks_release(struct store *store, uint64_t server_id)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_printf(&packet.sql,
               "UPDATE webhook FORCE INDEX (PRIMARY) SET server_id=0,claimed_until=NULL WHERE server_id=%llu",
               (unsigned long long)server_id);
    packet_send(&packet);
    return packet_end(&packet);
}

static enum permit_status webhooks_pass_over(struct store *store, const struct webhook_row *rows,
                                             const struct feed_position *positions, size_t count)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "BEGIN;");
    for (size_t i = 0; i < count; i++) {
        buf_printf(&packet.sql, "UPDATE webhook FORCE INDEX (PRIMARY) SET epoch=%llu,seq=%llu",
                   (unsigned long long)positions[i].epoch, (unsigned long long)positions[i].seq);
        where_sql(&rows[i], &packet.sql);
        buf_append_text(&packet.sql, " AND server_id=0;");
    }
    buf_append_text(&packet.sql, "COMMIT");
    packet_send(&packet);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        (void)session_rollback(session_of(store));
    return status;
}

/* ---- rows that are not needed any more ---- */

#define NOT_NAMED(condition)                                                                                           \
    " AND NOT EXISTS(SELECT 1 FROM semaphore s FORCE INDEX (semaphore_feed_url) WHERE s.feed_url=w.url AND " condition \
    ")"

/*
 * The rows are found by a plain read, whose snapshot has `namings` too: a change that names the URL after it raises that, so
 * the DELETE finds no row.
 */
static enum permit_status webhooks_delete_unnamed(struct store *store, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    size_t count;
    buf_append_text(&packet.sql,
                    SELECT_WEBHOOK FROM_WEBHOOK " WHERE w.server_id=0" NOT_NAMED("s.retired_at IS NULL") NOT_NAMED(
                        "s.retired_at>SYSDATE(6)-INTERVAL 1 DAY") " AND NOT EXISTS(SELECT 1 FROM template t FORCE "
                                                                  "INDEX (template_feed_url) WHERE t.feed_url=w.url)");
    packet_send(&packet);
    struct webhook_row *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        row_read(&packet.row, &webhook_table, &rows[i]);
        rows[i].behind_since = NEVER;
    }
    for (size_t i = 0; packet_works(&packet) && i < count; i++) {
        buf_append_text(&packet.sql, "DELETE w FROM webhook w FORCE INDEX (PRIMARY) WHERE w.url=");
        sql_bytes(&packet.sql, rows[i].url);
        buf_printf(&packet.sql, " AND w.namings=%llu AND w.server_id=0", (unsigned long long)rows[i].namings);
        packet_send(&packet);
    }
    return packet_end(&packet);
}

const struct store_webhooks mysql_webhooks = {
    .read = webhooks_read,
    .show = webhooks_show,
    .urls = webhooks_urls,
    .claim = webhooks_claim,
    .settle = webhooks_settle,
    .release = webhooks_release,
    .pass_over = webhooks_pass_over,
    .delete_unnamed = webhooks_delete_unnamed,
};
