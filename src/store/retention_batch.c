/* SPDX-License-Identifier: MIT */
/*
 * Retention in SQL. A batch is four packets: the named lock and the clock; a page of candidates, read without locks;
 * the transaction, in one packet, so that its row locks never wait for this process; the release of the named lock.
 */
#include "store/mysql_methods.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/lease_time.h"
#include "store/dialect.h"
#include "store/rows.h"
#include "store/sql_text.h"

enum { SQL_MAX = 256 * 1024 };

#define LOCK_NAME DIALECT_LOCK_NAME("cleaner")

#define TAKE_LOCK_SQL                                                                                                  \
    "SELECT GET_LOCK(" LOCK_NAME ",0);"                                                                                \
    "SELECT " SQL_NOW_US "," SQL_US("tick_at") ",offset_us FROM cluster WHERE id=1;"                                   \
                                               "SELECT MAX(id) FROM permit_request"

#define RELEASE_LOCK_SQL "ROLLBACK;DO RELEASE_LOCK(" LOCK_NAME ")"

/* due_at of a tombstone is at most this long after its end. A request that is due later was held before it ended. */
#define TOMBSTONE_US (3600LL * US_PER_SECOND)

struct clean {
    struct session *session;
    const struct retention_task *task;
    struct arena *arena;
    utc_us wall_now; /* the database's clock */
    utc_us now;      /* lease clock */
    uint64_t oldest_kept;
    struct ended_request *requests; /* rows of the batch, ascending by id; of events only the id is set */
    size_t count;
    struct retention_result result;
};

/* Sends the packet and releases the buffer. */
static enum permit_status send_text(struct session *session, struct buf *sql)
{
    enum permit_status status = session_send_buf(session, sql);
    buf_release(sql);
    return status;
}

/* ---- the lock and the clock ---- */

/* Steps to the next statement and to its only row. */
static enum permit_status next_row(struct session *session, struct row_reader *reader)
{
    enum permit_status status = session_next(session);
    if (status != PERMIT_OK)
        return status;
    return row_step(reader, session) ? PERMIT_OK : PERMIT_INTERNAL;
}

/* Takes the named lock if it is free, and reads the clock and the newest request id. */
static enum permit_status read_lock_and_clock(struct clean *clean)
{
    struct row_reader reader = {.at = 0};
    struct lease_clock clock;
    enum permit_status status = PERMIT_OK;
    clean->result.has_lock = row_step(&reader, clean->session) && row_u64(&reader) == 1;
    if ((status = next_row(clean->session, &reader)) != PERMIT_OK)
        return status;
    clean->wall_now = row_i64(&reader);
    clock.tick_at = row_i64(&reader);
    clock.offset_us = row_i64(&reader);
    clean->now = lease_time(&clock, clean->wall_now);
    if ((status = next_row(clean->session, &reader)) != PERMIT_OK)
        return status;
    clean->oldest_kept = retention_oldest_kept(row_u64(&reader), clean->task->retention_rows);
    return PERMIT_OK;
}

/* ---- candidates ---- */

/*
 * Walks permit_request_due in order from the end of the last batch: before it, deleted entries may still be in the
 * index as marked entries that every walk would pass. RETENTION_OVERFLOW starts after the tombstones, which are due
 * soonest.
 */
static void requests_sql(const struct clean *clean, struct buf *sql)
{
    bool due = clean->task->kind == RETENTION_DUE;
    utc_us from = due ? clean->task->from : max_i64(clean->task->from, clean->now + TOMBSTONE_US + 1);
    buf_append_text(sql, "SELECT r.id,r.due_at,r.ended_at,(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request)"
                         " WHERE p.permit_request_id=r.id) FROM permit_request r FORCE INDEX (permit_request_due)"
                         " WHERE r.state=2 AND r.due_at>=");
    sql_time(sql, from);
    if (due) {
        buf_append_text(sql, " AND r.due_at<=");
        sql_time(sql, clean->now - RETENTION_PAST_DUE_US);
    }
    buf_printf(sql, " ORDER BY r.due_at LIMIT %zu", clean->task->rows / 2);
}

static int compare_ids(const void *a, const void *b)
{
    const struct ended_request *left = a;
    const struct ended_request *right = b;
    return (left->id > right->id) - (left->id < right->id);
}

/*
 * Selects the rows of the page that may be deleted and fit into the batch. Sets result.from to the due_at of the last
 * row that was considered; to 0 if no row was selected.
 */
static void select_rows(struct clean *clean, struct ended_request *page, size_t count)
{
    bool events = clean->task->kind == RETENTION_EVENTS;
    size_t fitting = retention_fit(page, count, clean->task->rows);
    clean->result.from = events || fitting == 0 ? 0 : page[fitting - 1].due_at;
    clean->requests = page;
    for (size_t i = 0; i < fitting; i++)
        if (events || retention_may_delete(&page[i], clean->now, clean->oldest_kept))
            clean->requests[clean->count++] = page[i];
    if (clean->count == 0) {
        clean->result.from = 0;
        return;
    }
    if (!events)
        clean->result.behind =
            retention_backlog(&clean->requests[0], clean->now, clean->oldest_kept, clean->task->retention_rows);
    qsort(clean->requests, clean->count, sizeof *clean->requests, compare_ids);
}

static enum permit_status find_candidates(struct clean *clean)
{
    struct buf sql;
    if (clean->task->kind == RETENTION_OVERFLOW && clean->oldest_kept == 0)
        return PERMIT_OK;
    buf_init(&sql, SQL_MAX);
    if (clean->task->kind == RETENTION_EVENTS) {
        buf_append_text(&sql, "SELECT id,NULL,NULL,0 FROM semaphore_event FORCE INDEX (semaphore_event_at) WHERE at<");
        sql_time(&sql, clean->wall_now - RETENTION_EVENT_DAYS * 86400LL * US_PER_SECOND);
        buf_printf(&sql, " ORDER BY at LIMIT %zu", clean->task->rows / 2);
    } else {
        requests_sql(clean, &sql);
    }
    enum permit_status status = send_text(clean->session, &sql);
    size_t count = status == PERMIT_OK ? (size_t)session_affected(clean->session) : 0;
    struct ended_request *page = arena_array(clean->arena, count, sizeof *page);
    struct row_reader reader = {.arena = clean->arena, .broken = count && !page};
    for (size_t i = 0; i < count && row_step(&reader, clean->session); i++) {
        page[i].id = row_u64(&reader);
        page[i].due_at = row_time(&reader);
        page[i].ended_at = row_time(&reader);
        page[i].permits = row_u64(&reader);
    }
    if (status == PERMIT_OK && reader.broken)
        status = PERMIT_NO_MEMORY;
    if (status == PERMIT_OK)
        select_rows(clean, page, count);
    return session_end(clean->session, status);
}

/* ---- the transaction ---- */

static void ids_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, " IN (");
    for (size_t i = 0; i < clean->count; i++) {
        if (i > 0)
            buf_append_char(sql, ',');
        buf_append_u64(sql, clean->requests[i].id);
    }
    buf_append_char(sql, ')');
}

/*
 * Deletes permits before requests. A permit that is still ACQUIRED is kept, because its units are counted in in_use;
 * the audit reports it. NOWAIT: if another transaction holds one of the rows, the batch fails and a later one deletes
 * it.
 */
static void delete_requests_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, "BEGIN;SELECT id FROM permit_request FORCE INDEX (PRIMARY) WHERE id");
    ids_sql(clean, sql);
    buf_append_text(sql, " ORDER BY id FOR UPDATE NOWAIT;"
                         "DELETE p FROM permit p FORCE INDEX (permit_request) WHERE p.permit_request_id");
    ids_sql(clean, sql);
    buf_append_text(sql, " AND p.state=2;DELETE r FROM permit_request r FORCE INDEX (PRIMARY) WHERE r.id");
    ids_sql(clean, sql);
    buf_append_text(sql, " AND r.state=2;COMMIT");
}

static enum permit_status delete_rows(struct clean *clean)
{
    struct buf sql;
    if (clean->count == 0)
        return PERMIT_OK;
    buf_init(&sql, SQL_MAX);
    if (clean->task->kind == RETENTION_EVENTS) {
        buf_append_text(&sql, "DELETE e FROM semaphore_event e FORCE INDEX (PRIMARY) WHERE e.id");
        ids_sql(clean, &sql);
    } else {
        delete_requests_sql(clean, &sql);
    }
    mono_us started = clock_mono();
    enum permit_status status = session_end(clean->session, send_text(clean->session, &sql));
    if (status != PERMIT_OK)
        return status;
    clean->result.took_us = clock_mono() - started;
    clean->result.deleted = clean->count;
    return PERMIT_OK;
}

static enum permit_status retention_commits(struct store *store, uint64_t *ret_commits)
{
    struct session *session = session_of(store);
    struct row_reader reader = {.at = 0};
    enum permit_status status = session_send(session, BYTES("SHOW GLOBAL STATUS LIKE 'Com_commit'"));
    bool found = status == PERMIT_OK && row_step(&reader, session);
    if (found) {
        (void)row_column(&reader);
        *ret_commits = row_u64(&reader);
    }
    status = session_end(session, status);
    return status != PERMIT_OK || found ? status : PERMIT_INTERNAL;
}

static enum permit_status retention_batch(struct store *store, const struct retention_task *task, struct arena *arena,
                                          struct retention_result *ret_result)
{
    struct session *session = session_of(store);
    struct clean clean = {.session = session, .task = task, .arena = arena};
    enum permit_status status = session_send(session, BYTES(TAKE_LOCK_SQL));
    if (status == PERMIT_OK)
        status = read_lock_and_clock(&clean);
    status = session_end(session, status);
    if (status == PERMIT_OK && clean.result.has_lock)
        status = find_candidates(&clean);
    if (status == PERMIT_OK && clean.result.has_lock)
        status = delete_rows(&clean);
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
