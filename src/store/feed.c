/* SPDX-License-Identifier: MIT */
#include "store/feed.h"

#include "store/packet.h"

static enum permit_status feed_head(struct store *store, struct feed_head *ret_head)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "SELECT seq,full,EXISTS(SELECT 1 FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL)"
                                 " FROM feed_head FORCE INDEX (PRIMARY) WHERE id=1");
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) { /* the migration that creates the table inserts its row */
        ret_head->seq = row_u64(&packet.row);
        ret_head->full = (enum feed_full)row_u64(&packet.row);
        ret_head->pending = row_u64(&packet.row) != 0;
    }
    return packet_end(&packet);
}

/* ---- numbering ---- */

/*
 * Each statement reads anew (READ COMMITTED), so the one that reads the rows sees all that was committed before the head was
 * locked. It is ONE plain read of the first ids: of two rows of a semaphore, it has the earlier one if it has the later,
 * because that was committed before the later was inserted. Several reads, SKIP LOCKED, or "ids above the last" lose
 * this order.
 */
static void read_unnumbered(struct packet *packet, struct store *store, uint64_t *ret_seq, uint64_t *ids, size_t *count)
{
    buf_printf(&packet->sql,
               "BEGIN;SELECT seq FROM feed_head FORCE INDEX (PRIMARY) WHERE id=1 FOR UPDATE;"
               "SELECT identity=%s FROM cluster WHERE id=1;"
               "SELECT id FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL ORDER BY id LIMIT %d",
               identity_of(store), FEED_ROWS_A_STEP);
    packet_send(packet);
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL))
        *ret_seq = row_u64(&packet->row);
    packet_next(packet);
    bool same_server = packet_only_row(packet, PERMIT_INTERNAL) && row_u64(&packet->row);
    packet_next(packet);
    while (*count < FEED_ROWS_A_STEP && packet_row(packet))
        ids[(*count)++] = row_u64(&packet->row);
    *count = same_server ? *count : 0;
}

/* INTERVAL(id, ids) is the place of the id among them, from 1. Each row is found by its primary key. */
static void number_sql(uint64_t seq, const uint64_t *ids, size_t count, struct buf *sql)
{
    buf_printf(sql, "UPDATE feed FORCE INDEX (PRIMARY) SET seq=%llu+INTERVAL(id,", (unsigned long long)seq);
    sql_ids(sql, ids, count);
    buf_append_text(sql, ") WHERE id IN (");
    sql_ids(sql, ids, count);
    buf_printf(sql, ");UPDATE feed_head SET seq=IF(ROW_COUNT()=%zu,seq+%zu,NULL) WHERE id=1;COMMIT", count, count);
}

static enum permit_status feed_number(struct store *store, struct arena *arena, size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    uint64_t seq = 0, *ids = arena_array(arena, FEED_ROWS_A_STEP, sizeof *ids);
    size_t count = 0;
    packet.row.broken = !ids;
    if (ids)
        read_unnumbered(&packet, store, &seq, ids, &count);
    if (count)
        number_sql(seq, ids, count, &packet.sql);
    else
        buf_append_text(&packet.sql, "ROLLBACK");
    packet_send(&packet);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_count = count;
    else
        (void)session_rollback(session_of(store));
    return status;
}

/* ---- the oldest, and the limit ---- */

struct extent {
    uint64_t head, first; /* numbers; first: of the oldest, head + 1 if there is none */
    uint64_t unnumbered;  /* about */
    uint64_t first_young; /* the first number, from `first` on, that the retention keeps; at most FEED_DELETED on */
    enum feed_full full;
    int64_t since_us; /* how long `full` has been so */
};

/* The first rows are found by the index of numbers, and the rows without a number are its beginning. */
static void read_extent(struct packet *packet, int64_t retention_us, struct extent *ret_extent)
{
    struct row_reader *row = &packet->row;
    buf_append_text(&packet->sql,
                    "SELECT seq,full,TIMESTAMPDIFF(MICROSECOND,since,SYSDATE(6)),COALESCE((SELECT f.seq FROM feed f"
                    " FORCE INDEX (feed_seq) WHERE f.seq>0 ORDER BY f.seq LIMIT 1),seq+1) FROM feed_head WHERE id=1;"
                    "SELECT COALESCE((SELECT id FROM feed FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT 1)+1-(SELECT id"
                    " FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL ORDER BY id LIMIT 1),0)");
    packet_send(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) {
        ret_extent->head = row_u64(row);
        ret_extent->full = (enum feed_full)row_u64(row);
        ret_extent->since_us = row_i64(row);
        ret_extent->first = row_u64(row);
    }
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL))
        ret_extent->unnumbered = row_u64(row);
    buf_printf(&packet->sql,
               "SELECT COALESCE((SELECT seq FROM feed FORCE INDEX (feed_seq) WHERE seq>=%llu AND seq<%llu AND"
               " at>=SYSDATE(6)-INTERVAL %lld MICROSECOND ORDER BY seq LIMIT 1),%llu)",
               (unsigned long long)ret_extent->first, (unsigned long long)ret_extent->first + FEED_DELETED,
               (long long)retention_us, (unsigned long long)ret_extent->first + FEED_DELETED);
    packet_send(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL))
        ret_extent->first_young = row_u64(row);
}

/* Appends the change of `full`, and the event of it, which is written only if this call made the change. */
static void full_sql(enum feed_full from, enum feed_full to, bool gap, struct buf *sql)
{
    buf_printf(sql, "BEGIN;UPDATE feed_head SET full=%d,since=SYSDATE(6) WHERE id=1 AND full=%d;", to, from);
    if (gap)
        buf_printf(sql,
                   "INSERT INTO feed (at,what,end_reason,external_id,owner,principal,permits)"
                   " SELECT SYSDATE(6),%d,0,'','','','' FROM feed_head WHERE id=1 AND ROW_COUNT()=1;",
                   FEED_GAP);
    buf_append_text(sql, "COMMIT");
}

static enum permit_status feed_trim(struct store *store, struct feed_trim *trim)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    struct extent extent = {0};
    uint64_t rows = trim->limits.rows;
    read_extent(&packet, trim->limits.retention_us, &extent);
    uint64_t numbered = extent.head + 1 - extent.first;
    uint64_t most = numbered < FEED_DELETED ? numbered : FEED_DELETED;
    uint64_t old = extent.first_young - extent.first < most ? extent.first_young - extent.first : most;
    uint64_t beyond = numbered > rows ? numbered - rows : 0;
    uint64_t gone = beyond > old ? (beyond < most ? beyond : most) : old;
    uint64_t stored = numbered - gone + extent.unnumbered;
    enum feed_full full = extent.full;
    if (full == FEED_HAS_ROOM && stored >= 2 * rows)
        full = FEED_IS_FULL;
    else if (full == FEED_IS_FULL && stored < 2 * rows - rows / 10)
        full = FEED_REOPENS;
    else if (full == FEED_REOPENS && extent.since_us >= FEED_REOPENS_US)
        full = FEED_HAS_ROOM;
    if (gone)
        buf_printf(&packet.sql, "DELETE f FROM feed f FORCE INDEX (feed_seq) WHERE f.seq>=%llu AND f.seq<%llu;",
                   (unsigned long long)extent.first, (unsigned long long)(extent.first + gone));
    if (full != extent.full)
        full_sql(extent.full, full, full != FEED_REOPENS, &packet.sql);
    if (packet.sql.length)
        packet_send(&packet);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK) {
        (void)session_rollback(session_of(store));
        return status;
    }
    trim->ret_deleted = gone;
    trim->ret_early = gone > old;
    trim->ret_stored = stored;
    trim->ret_full = full;
    return PERMIT_OK;
}

/* ---- pages ---- */

static enum permit_status feed_read(struct store *store, struct feed_page *page, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct row_reader *row = &packet.row;
    struct feed_facts facts = {.least = UINT64_MAX};
    struct feed_position go_on;
    buf_printf(&packet.sql,
               "SELECT c.epoch,h.seq,(SELECT MIN(e.seq) FROM feed_epoch e FORCE INDEX (PRIMARY) WHERE e.epoch>%llu)"
               " FROM feed_head h JOIN cluster c ON c.id=1 WHERE h.id=1;"
               "SELECT " FEED_COLUMNS(SELECT_FIRST, SELECT_NEXT, "f.") " FROM feed f FORCE INDEX (feed_seq)"
                                                                       " WHERE f.seq>%llu ORDER BY f.seq LIMIT %u",
               (unsigned long long)page->after.epoch, (unsigned long long)page->after.seq, page->limit);
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) {
        facts.epoch = row_u64(row);
        facts.head = row_u64(row);
        struct bytes least = row_column(row);
        facts.least = least.data ? column_u64(least) : UINT64_MAX;
    }
    packet_next(&packet);
    page->ret_rows = packet_rows(&packet, sizeof *page->ret_rows, &page->ret_count);
    for (size_t i = 0; i < page->ret_count && packet_row(&packet); i++)
        row_read(row, &feed_table, &page->ret_rows[i]);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    facts.first = page->ret_count ? page->ret_rows[0].seq : 0;
    page->ret_verdict = FEED_KNOWN;
    if (!page->from_oldest)
        page->ret_verdict = feed_judge(page->after, &facts, &go_on);
    if (page->ret_verdict != FEED_KNOWN) {
        page->ret_count = 0;
        page->ret_next = go_on;
        return PERMIT_OK;
    }
    uint64_t last = page->from_oldest ? facts.head : page->after.seq;
    page->ret_next =
        (struct feed_position){facts.epoch, page->ret_count ? page->ret_rows[page->ret_count - 1].seq : last};
    return PERMIT_OK;
}

const struct store_feed mysql_feed = {.head = feed_head, .number = feed_number, .trim = feed_trim, .read = feed_read};
