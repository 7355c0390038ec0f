/* SPDX-License-Identifier: MIT */
/*
 * Retention in SQL. A batch has these packets: the named lock and the clock; the end of a page of requests; its
 * candidates, read without locks; the transaction, in two packets; the release of the named lock.
 */

#include "base/clock.h"
#include "core/lease_clock.h"
#include "store/dialect.h"
#include "store/packet.h"

#define LOCK_NAME DIALECT_LOCK_NAME("cleaner")

#define TAKE_LOCK_SQL                                                                                                  \
    "SELECT GET_LOCK(" LOCK_NAME ",0);SELECT " CLOCK_COLUMNS " FROM cluster WHERE id=1;"                               \
    "SELECT MAX(id) FROM permit_request"

#define RELEASE_LOCK_SQL "ROLLBACK;DO RELEASE_LOCK(" LOCK_NAME ")"

/* The comment shows in the server's logs. */
#define PAGE_SELECT "SELECT /* retention */ "

struct clean {
    struct packet packet;
    const struct retention_task *task;
    utc_us wall_now; /* the database's clock */
    utc_us now;      /* lease clock */
    uint64_t oldest_kept;
    struct ended_request *requests; /* rows of the batch; of events only the id is set */
    size_t count;
    struct retention_result result;
};

static size_t candidates_max(const struct clean *clean)
{
    return clean->task->rows / 2;
}

/* ---- the lock and the clock ---- */

/* Takes the named lock if it is free, and reads the clock and the newest request id. */
static void read_lock_and_clock(struct clean *clean)
{
    struct packet *packet = &clean->packet;
    struct query_time time;
    buf_append_text(&packet->sql, TAKE_LOCK_SQL);
    packet_send(packet);
    clean->result.has_lock = packet_row(packet) && row_u64(&packet->row) == 1;
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) {
        row_clock(&packet->row, &time);
        clean->wall_now = time.now;
        clean->now = lease_time(&time.clock, time.now);
    }
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL))
        clean->oldest_kept = retention_oldest_kept(row_u64(&packet->row), clean->task->retention_rows);
}

/* ---- candidates ---- */

/*
 * Finds the end of the page: the first id of the next one, UINT64_MAX if there is none. Ids have holes, so it counts
 * rows, in the order of PRIMARY. `from` is behind the rows that this walk has deleted: they may still be in the index,
 * marked, and every query from the beginning of the table would pass them.
 */
static uint64_t find_page_end(struct clean *clean)
{
    struct packet *packet = &clean->packet;
    buf_printf(&packet->sql,
               PAGE_SELECT "id FROM permit_request FORCE INDEX (PRIMARY) WHERE id>=%llu ORDER BY id LIMIT %d,1",
               (unsigned long long)clean->task->from, RETENTION_PAGE);
    packet_send(packet);
    return packet_row(packet) ? row_u64(&packet->row) : UINT64_MAX;
}

/*
 * Walks the page along PRIMARY. The server leaves out the rows that retention_may_delete refuses: reading 4,000 rows
 * costs it 2 ms, sending them 10. The function decides about the rows that it sends.
 */
static void requests_sql(const struct clean *clean, uint64_t end, struct buf *sql)
{
    buf_printf(sql,
               PAGE_SELECT "r.id,r.due_at,r.ended_at,(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request)"
                           " WHERE p.permit_request_id=r.id)+r.changes FROM permit_request r FORCE INDEX (PRIMARY)"
                           " WHERE r.id>=%llu AND r.id<%llu AND r.state=2 AND (r.due_at<=",
               (unsigned long long)clean->task->from, (unsigned long long)end);
    sql_time(sql, clean->now - RETENTION_PAST_DUE_US);
    buf_append_text(sql, " AND r.ended_at<=");
    sql_time(sql, clean->now - RETENTION_ENDED_US);
    buf_printf(sql, " OR r.id<%llu AND r.ended_at<=", (unsigned long long)clean->oldest_kept);
    sql_time(sql, clean->now - RETENTION_ENDED_OVERFLOW_US);
    buf_printf(sql, ") ORDER BY r.id LIMIT %zu", candidates_max(clean));
}

static void events_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, "SELECT id,NULL,NULL,0 FROM semaphore_event FORCE INDEX (semaphore_event_at) WHERE at<");
    sql_time(sql, clean->wall_now - RETENTION_EVENT_DAYS * 86400LL * US_PER_SECOND);
    buf_printf(sql, " ORDER BY at LIMIT %zu", candidates_max(clean));
}

/* Sends the query and reads its rows into clean->requests. */
static void read_candidates(struct clean *clean)
{
    struct row_reader *row = &clean->packet.row;
    packet_send(&clean->packet);
    clean->requests = packet_rows(&clean->packet, sizeof *clean->requests, &clean->count);
    for (size_t i = 0; i < clean->count && packet_row(&clean->packet); i++) {
        struct ended_request *request = &clean->requests[i];
        request->id = row_u64(row);
        request->due_at = row_time(row);
        request->ended_at = row_time(row);
        request->permits = row_u64(row);
    }
}

/* Keeps the candidates that fit into the batch and may be deleted. Sets what the result tells about the page. */
static void select_requests(struct clean *clean, uint64_t end)
{
    const struct retention_task *task = clean->task;
    struct retention_page *page = &clean->result.page;
    size_t fitting = retention_fit(clean->requests, clean->count, task->rows);
    page->full = fitting < clean->count || clean->count == candidates_max(clean);
    page->next = page->full ? clean->requests[fitting - 1].id + 1 : end == UINT64_MAX ? 0 : end;
    page->oldest_kept = clean->oldest_kept;
    clean->count = 0;
    for (size_t i = 0; i < fitting; i++)
        if (retention_may_delete(&clean->requests[i], clean->now, clean->oldest_kept))
            clean->requests[clean->count++] = clean->requests[i];
    /* The backlog of the request in the middle: the first may have been held for long, and be far behind by its id. */
    if (clean->count)
        clean->result.behind =
            retention_backlog(&clean->requests[clean->count / 2], clean->now, clean->oldest_kept, task->retention_rows);
}

static void find_requests(struct clean *clean)
{
    mono_us started = clock_mono();
    uint64_t end = find_page_end(clean);
    requests_sql(clean, end, &clean->packet.sql);
    read_candidates(clean);
    if (!packet_works(&clean->packet))
        return;
    select_requests(clean, end);
    clean->result.page.read_us = clock_mono() - started;
}

/* ---- the transaction ---- */

static void ids_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, " IN (0");
    for (size_t i = 0; i < clean->count; i++) {
        buf_append_char(sql, ',');
        buf_append_u64(sql, clean->requests[i].id);
    }
    buf_append_char(sql, ')');
}

/* Begins the transaction, and keeps the requests whose rows no other session has locked. A later batch deletes those. */
static void lock_requests(struct clean *clean)
{
    struct packet *packet = &clean->packet;
    size_t locked = 0;
    buf_append_text(&packet->sql, "BEGIN;SELECT id,state FROM permit_request FORCE INDEX (PRIMARY) WHERE id");
    ids_sql(clean, &packet->sql);
    buf_append_text(&packet->sql, " ORDER BY id FOR UPDATE SKIP LOCKED");
    packet_send(packet);
    packet_next(packet);
    while (locked < clean->count && packet_row(packet))
        clean->requests[locked++].id = row_u64(&packet->row);
    clean->count = locked;
}

/*
 * Deletes permits before requests. A permit of a request that is held is never deleted, whatever was read before the
 * locks. A DELETE of one table takes no index hint and may scan a small table, so both name a table to delete from.
 */
static void delete_requests_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, "DELETE p FROM permit_request r FORCE INDEX (PRIMARY) STRAIGHT_JOIN permit p"
                         " FORCE INDEX (permit_request) ON p.permit_request_id=r.id WHERE r.id");
    ids_sql(clean, sql);
    buf_append_text(sql,
                    " AND r.state=2;DELETE q FROM permit_request r FORCE INDEX (PRIMARY) STRAIGHT_JOIN past_permit q"
                    " FORCE INDEX (permit_request) ON q.permit_request_id=r.id WHERE r.id");
    ids_sql(clean, sql);
    buf_append_text(sql, " AND r.state=2;DELETE m FROM permit_request r FORCE INDEX (PRIMARY) STRAIGHT_JOIN"
                         " request_metadata m FORCE INDEX (PRIMARY) ON m.permit_request_id=r.id WHERE r.id");
    ids_sql(clean, sql);
    buf_append_text(sql, " AND r.state=2;DELETE r FROM permit_request r FORCE INDEX (PRIMARY) WHERE r.id");
    ids_sql(clean, sql);
    buf_append_text(sql, " AND r.state=2;COMMIT");
}

static void delete_rows(struct clean *clean)
{
    struct packet *packet = &clean->packet;
    if (clean->count == 0 || !packet_works(packet))
        return;
    mono_us started = clock_mono();
    if (clean->task->kind == RETENTION_EVENTS) {
        buf_append_text(&packet->sql, "DELETE e FROM semaphore_event e FORCE INDEX (PRIMARY) WHERE e.id");
        ids_sql(clean, &packet->sql);
    } else {
        lock_requests(clean);
        delete_requests_sql(clean, &packet->sql);
    }
    packet_send(packet);
    packet_finish(packet);
    clean->result.took_us = clock_mono() - started;
    clean->result.deleted = clean->count;
}

static enum permit_status retention_commits(struct store *store, uint64_t *ret_commits)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "SHOW GLOBAL STATUS LIKE 'Com_commit'");
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) {
        (void)row_column(&packet.row);
        *ret_commits = row_u64(&packet.row);
    }
    return packet_end(&packet);
}

static enum permit_status retention_batch(struct store *store, const struct retention_task *task, struct arena *arena,
                                          struct retention_result *ret_result)
{
    struct session *session = session_of(store);
    struct clean clean = {.packet = packet_begin(session, arena), .task = task};
    read_lock_and_clock(&clean);
    if (packet_works(&clean.packet) && clean.result.has_lock) {
        if (task->kind == RETENTION_EVENTS) {
            events_sql(&clean, &clean.packet.sql);
            read_candidates(&clean);
        } else {
            find_requests(&clean);
        }
        delete_rows(&clean);
    }
    enum permit_status status = packet_end(&clean.packet);
    /* After any failure but a locked row, drop the connection, and with it the transaction and the named lock. */
    bool usable = status == PERMIT_OK || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_CONFLICT;
    if (!usable || (clean.result.has_lock && session_run(session, RELEASE_LOCK_SQL) != PERMIT_OK))
        session_drop(session);
    if (status == PERMIT_OK)
        *ret_result = clean.result;
    return status;
}

const struct store_retention mysql_retention = {
    .batch = retention_batch,
    .commits = retention_commits,
};
