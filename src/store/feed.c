/* SPDX-License-Identifier: MIT */
#include "store/feed.h"

#include "store/packet.h"
#include "store/sql_text.h"

/* The number of the first event of the row that has the event of this number; no row: there is none, and no earlier one. */
#define FEED_ROW_START "SELECT b.seq FROM feed b FORCE INDEX (feed_seq) WHERE b.seq<=%llu ORDER BY b.seq DESC LIMIT 1"

static enum permit_status feed_head(struct store *store, struct feed_head *ret_head)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "SELECT durable,(SELECT full FROM feed_full FORCE INDEX (PRIMARY) WHERE id=1),"
                                 "seq>durable OR EXISTS(SELECT 1 FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL)"
                                 " FROM feed_head FORCE INDEX (PRIMARY) WHERE id=1");
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) { /* the migration that creates the table inserts its row */
        ret_head->durable = row_u64(&packet.row);
        ret_head->full = row_u64(&packet.row) != 0;
        ret_head->pending = row_u64(&packet.row) != 0;
    }
    return packet_end(&packet);
}

/* ---- numbering ---- */

/* The reads of a transaction that numbers rows. */
struct numbering {
    uint64_t seq, durable; /* feed_head */
    bool same_server;      /* as in `cluster` */
    struct unnumbered {
        uint64_t id, count;
    } * rows; /* the first without a number */
    size_t count;
};

/*
 * Each statement reads anew (READ COMMITTED), so the one that reads the rows sees all that was committed before the head was
 * locked. It is ONE plain read of the first ids: of two rows of a semaphore, it has the earlier one if it has the later,
 * because that was committed before the later was inserted. Several reads, SKIP LOCKED, or "ids above the last" lose
 * this order.
 */
static void read_unnumbered(struct packet *packet, struct store *store, struct numbering *numbering)
{
    buf_printf(&packet->sql,
               "BEGIN;SELECT seq,durable FROM feed_head FORCE INDEX (PRIMARY) WHERE id=1 FOR UPDATE;"
               "SELECT identity=%s FROM cluster WHERE id=1;"
               "SELECT id,count FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL ORDER BY id LIMIT %d",
               identity_of(store), FEED_ROWS_A_STEP);
    packet_send(packet);
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) {
        numbering->seq = row_u64(&packet->row);
        numbering->durable = row_u64(&packet->row);
    }
    packet_next(packet);
    numbering->same_server = packet_only_row(packet, PERMIT_INTERNAL) && row_u64(&packet->row);
    packet_next(packet);
    for (; numbering->count < FEED_ROWS_A_STEP && packet_row(packet); numbering->count++) {
        numbering->rows[numbering->count].id = row_u64(&packet->row);
        numbering->rows[numbering->count].count = row_u64(&packet->row);
    }
}

/*
 * INTERVAL(id, ids) is the place of the row among them, from 1; ELT is the number of its first event. Each row is found by
 * its primary key. Returns the number of events.
 */
static uint64_t number_sql(const struct numbering *numbering, struct buf *sql)
{
    size_t count = numbering->count;
    uint64_t events = 0;
    struct buf ids;
    buf_init(&ids, sql->max);
    for (size_t i = 0; i < count; i++) {
        buf_append_char(&ids, ',');
        buf_append_u64(&ids, numbering->rows[i].id);
    }
    buf_append_text(sql, "UPDATE feed FORCE INDEX (PRIMARY) SET seq=ELT(INTERVAL(id");
    buf_append(sql, ids.data, ids.length);
    buf_append_char(sql, ')');
    for (size_t i = 0; i < count; i++) {
        buf_append_char(sql, ',');
        buf_append_u64(sql, numbering->seq + 1 + events);
        events += numbering->rows[i].count;
    }
    buf_append_text(sql, ") WHERE id IN (0");
    buf_append(sql, ids.data, ids.length);
    sql->broken |= ids.broken;
    buf_release(&ids);
    buf_printf(sql, ");UPDATE feed_head SET seq=IF(ROW_COUNT()=%zu,seq+%llu,NULL) WHERE id=1;", count,
               (unsigned long long)events);
    return events;
}

/*
 * Ends the transaction, and shows the numbers to readers when its COMMIT has returned: others see a commit before it is
 * flushed, and after a crash another event may get the number that a reader has seen. A COMMIT that returns has flushed
 * all before it, if it has written something: so the numbers of a task that did not come to this are shown, too.
 */
static void show_sql(const struct numbering *numbering, uint64_t events, struct buf *sql)
{
    if (events == 0)
        buf_append_text(sql, "UPDATE feed_head SET flushes=flushes+1 WHERE id=1;");
    buf_printf(sql, "COMMIT;UPDATE feed_head SET durable=GREATEST(durable,%llu) WHERE id=1",
               (unsigned long long)(numbering->seq + events));
}

static enum permit_status feed_number(struct store *store, struct arena *arena, size_t *ret_count)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct numbering numbering = {.rows = arena_array(arena, FEED_ROWS_A_STEP, sizeof *numbering.rows)};
    uint64_t events = 0;
    packet.row.broken = !numbering.rows;
    if (numbering.rows)
        read_unnumbered(&packet, store, &numbering);
    if (!numbering.same_server)
        numbering.count = 0;
    if (numbering.count)
        events = number_sql(&numbering, &packet.sql);
    if (numbering.count || (numbering.same_server && numbering.durable < numbering.seq))
        show_sql(&numbering, events, &packet.sql);
    else
        buf_append_text(&packet.sql, "ROLLBACK");
    packet_send(&packet);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_count = (size_t)events;
    else
        (void)session_rollback(session_of(store));
    return status;
}

/* ---- the oldest, and the limit ---- */

struct extent {
    uint64_t head, first; /* numbers; first: of the oldest, head + 1 if there is none */
    uint64_t unnumbered;  /* of events; of at most a million rows */
    uint64_t first_young; /* the first number, from `first` on, that the retention keeps; at most FEED_DELETED on */
    bool full;
};

/* The first rows are found by the index of numbers, and the rows without a number are its beginning. */
static void read_extent(struct packet *packet, int64_t retention_us, struct extent *ret_extent)
{
    struct row_reader *row = &packet->row;
    buf_append_text(
        &packet->sql,
        "SELECT seq,(SELECT full FROM feed_full FORCE INDEX (PRIMARY) WHERE id=1),COALESCE((SELECT f.seq FROM feed f"
        " FORCE INDEX (feed_seq) WHERE f.seq>0 ORDER BY f.seq LIMIT 1),seq+1) FROM feed_head WHERE id=1;"
        "SELECT COALESCE(SUM(u.count),0) FROM (SELECT count FROM feed FORCE INDEX (feed_seq) WHERE seq IS NULL LIMIT"
        " 1000000) u");
    packet_send(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) {
        ret_extent->head = row_u64(row);
        ret_extent->full = row_u64(row) != 0;
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

/* Returns the number behind the last event that goes, if `gone` from the first on may go: rows go whole. */
static uint64_t end_of_gone(struct packet *packet, const struct extent *extent, uint64_t gone)
{
    uint64_t end = extent->first + gone;
    if (gone == 0 || end > extent->head)
        return end;
    buf_printf(&packet->sql, "SELECT COALESCE((" FEED_ROW_START "),%llu)", (unsigned long long)end,
               (unsigned long long)extent->first);
    packet_send(packet);
    return packet_only_row(packet, PERMIT_INTERNAL) ? row_u64(&packet->row) : extent->first;
}

/*
 * Appends the change of `full`, and the event of it, which is written only if this call made the change. The UPDATE waits
 * for the batches that have locked the row and leave events out. The packet is whole, so no batch waits for this task.
 */
static void full_sql(bool full, struct buf *sql)
{
    struct buf text;
    buf_init(&text, sql->max);
    feed_event_format(&(struct feed_event){.what = FEED_GAP}, &text);
    buf_append_text(&text, FEED_NO_METADATA);
    buf_printf(sql,
               "BEGIN;UPDATE feed_full SET full=%d WHERE id=1 AND full<>%d;"
               "INSERT INTO feed (count,at,events) SELECT 1,SYSDATE(6),",
               full, full);
    sql_bytes(sql, (struct bytes){text.data, text.length});
    buf_append_text(sql, " FROM feed_full WHERE id=1 AND ROW_COUNT()=1;COMMIT");
    sql->broken |= text.broken;
    buf_release(&text);
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
    uint64_t end = end_of_gone(&packet, &extent, beyond > old ? (beyond < most ? beyond : most) : old);
    uint64_t gone = end - extent.first;
    uint64_t stored = numbered - gone + extent.unnumbered;
    bool full = stored >= 2 * rows - (extent.full ? rows / 10 : 0);
    if (gone)
        buf_printf(&packet.sql, "DELETE f FROM feed f FORCE INDEX (feed_seq) WHERE f.seq>=%llu AND f.seq<%llu;",
                   (unsigned long long)extent.first, (unsigned long long)end);
    if (full != extent.full)
        full_sql(full, &packet.sql);
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

/* *ret_oldest: the number of the oldest event that readers see; durable + 1: there is none. */
static void read_facts(struct packet *packet, uint64_t epoch, struct feed_facts *ret_facts, uint64_t *ret_oldest)
{
    struct row_reader *row = &packet->row;
    buf_printf(
        &packet->sql,
        "SELECT c.epoch,h.seq,h.durable,(SELECT MIN(e.seq) FROM feed_epoch e FORCE INDEX (PRIMARY) WHERE e.epoch>%llu),"
        "LEAST(h.durable+1,COALESCE((SELECT f.seq FROM feed f FORCE INDEX (feed_seq) WHERE f.seq>0 ORDER BY f.seq"
        " LIMIT 1),h.durable+1)) FROM feed_head h JOIN cluster c ON c.id=1 WHERE h.id=1",
        (unsigned long long)epoch);
    packet_send(packet);
    if (!packet_only_row(packet, PERMIT_INTERNAL))
        return;
    ret_facts->epoch = row_u64(row);
    ret_facts->head = row_u64(row);
    ret_facts->durable = row_u64(row);
    struct bytes least = row_column(row);
    ret_facts->least = least.data ? column_u64(least) : UINT64_MAX;
    *ret_oldest = row_u64(row);
}

/* Takes those of its events that are behind `after`, as far as there is room. `durable` is the last event of a row. */
static void take_events(struct packet *packet, const struct feed_record *record, uint64_t after, struct feed_page *page)
{
    struct bytes text = record->events;
    for (uint64_t seq = record->seq, end = seq + record->count; seq < end && page->ret_count < page->limit; seq++) {
        struct feed_row *row = &page->ret_rows[page->ret_count];
        *row = (struct feed_row){.seq = seq, .at = record->at};
        if (!feed_event_take(&text, row)) {
            packet_fail(packet, PERMIT_INTERNAL);
            return;
        }
        page->ret_count += seq > after;
    }
}

/* Reads the events behind `after` that readers see, in the rows that have them. */
static void read_events(struct packet *packet, uint64_t after, uint64_t durable, struct arena *arena,
                        struct feed_page *page)
{
    struct feed_record record;
    uint64_t last = after + page->limit < durable ? after + page->limit : durable;
    page->ret_rows = arena_array(arena, page->limit, sizeof *page->ret_rows);
    page->ret_count = 0;
    packet->row.broken |= !page->ret_rows;
    buf_printf(&packet->sql,
               "SELECT " FEED_COLUMNS(SELECT_FIRST, SELECT_NEXT,
                                      "f.") " FROM feed f FORCE INDEX (feed_seq) WHERE f.seq>=COALESCE((" FEED_ROW_START
                                            "),0) AND f.seq<=%llu ORDER BY f.seq",
               (unsigned long long)after + 1, (unsigned long long)last);
    packet_send(packet);
    while (page->ret_rows && packet_row(packet)) {
        row_read(&packet->row, &feed_table, &record);
        take_events(packet, &record, after, page);
    }
}

static enum permit_status feed_read(struct store *store, struct feed_page *page, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct feed_facts facts = {.least = UINT64_MAX};
    struct feed_position go_on;
    uint64_t oldest = 1;
    read_facts(&packet, page->after.epoch, &facts, &oldest);
    uint64_t after = page->from_oldest ? oldest - 1 : page->after.seq;
    read_events(&packet, after, facts.durable, arena, page);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    facts.first = page->ret_count ? page->ret_rows[0].seq : oldest;
    page->ret_verdict = FEED_KNOWN;
    if (!page->from_oldest)
        page->ret_verdict = feed_judge(page->after, &facts, &go_on);
    if (page->ret_verdict != FEED_KNOWN) {
        page->ret_count = 0;
        page->ret_next = go_on;
        return PERMIT_OK;
    }
    uint64_t last = page->ret_count ? page->ret_rows[page->ret_count - 1].seq : after;
    page->ret_next = (struct feed_position){facts.epoch, last};
    return PERMIT_OK;
}

const struct store_feed mysql_feed = {.head = feed_head, .number = feed_number, .trim = feed_trim, .read = feed_read};
