/* SPDX-License-Identifier: MIT */
/*
 * The cleaner's SQL. A batch is four packets: the lock and the clock; a page of candidates, read plainly; the
 * transaction, one packet, so that its locks never wait for this process; and the lock given back.
 */
#include "store/clean.h"

#include <stdlib.h>

#include "base/clock.h"
#include "core/served_time.h"
#include "store/dialect.h"
#include "store/rows.h"
#include "store/sql_text.h"

enum { SQL_MAX = 256 * 1024 };

#define LOCK_NAME DIALECT_LOCK_NAME("cleaner")

#define LOOK                                                                                                           \
    "SELECT GET_LOCK(" LOCK_NAME ",0);"                                                                                \
    "SELECT " SQL_NOW_US "," SQL_US("tick_at") ",offset_us FROM cluster WHERE id=1;"                                   \
                                               "SELECT MAX(id) FROM permit_request"

#define GIVE_BACK "ROLLBACK;DO RELEASE_LOCK(" LOCK_NAME ")"

/* A tombstone is due this soon after its end; whatever is due later ended as a held request. */
#define TOMBSTONE_US (3600LL * US_PER_SECOND)

struct clean {
    struct session *session;
    const struct clean_task *task;
    struct arena *arena;
    utc_us wall_now; /* the database's clock */
    utc_us now;      /* served time */
    uint64_t oldest_kept;
    struct ended_request *requests; /* of the batch, by ascending id; of events only the id */
    size_t count;
    struct clean_result result;
};

/* The text is sent and forgotten. */
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

static enum permit_status read_look(struct clean *clean)
{
    struct row_reader reader = {.at = 0};
    struct served_clock clock;
    enum permit_status status = PERMIT_OK;
    clean->result.mine = row_step(&reader, clean->session) && row_u64(&reader) == 1;
    if ((status = next_row(clean->session, &reader)) != PERMIT_OK)
        return status;
    clean->wall_now = row_i64(&reader);
    clock.tick_at = row_i64(&reader);
    clock.offset_us = row_i64(&reader);
    clean->now = served_time(&clock, clean->wall_now);
    if ((status = next_row(clean->session, &reader)) != PERMIT_OK)
        return status;
    clean->oldest_kept = cleaning_oldest_kept(row_u64(&reader), clean->task->retention_rows);
    return PERMIT_OK;
}

static enum permit_status look(struct clean *clean)
{
    enum permit_status status = session_send(clean->session, BYTES(LOOK));
    if (status == PERMIT_OK)
        status = read_look(clean);
    return session_end(clean->session, status);
}

/* ---- candidates ---- */

/*
 * Walks permit_request_due in order, from where the last batch ended: what was deleted before it may still be there as
 * marked entries that every walk would pass. Tombstones are due soon: the walk for what is beyond the newest ones
 * begins behind them.
 */
static void requests_sql(const struct clean *clean, struct buf *sql)
{
    bool due = clean->task->kind == CLEAN_DUE;
    utc_us from = due ? clean->task->from : max_i64(clean->task->from, clean->now + TOMBSTONE_US + 1);
    buf_append_text(sql, "SELECT r.id,r.due_at,r.ended_at,(SELECT COUNT(*) FROM permit p FORCE INDEX (permit_request)"
                         " WHERE p.permit_request_id=r.id) FROM permit_request r FORCE INDEX (permit_request_due)"
                         " WHERE r.state=2 AND r.due_at>=");
    sql_time(sql, from);
    if (due) {
        buf_append_text(sql, " AND r.due_at<=");
        sql_time(sql, clean->now - CLEANING_PAST_DUE_US);
    }
    buf_printf(sql, " ORDER BY r.due_at LIMIT %zu", clean->task->rows / 2);
}

/* Walks semaphore_event_at. */
static void events_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, "SELECT id,NULL,NULL,0 FROM semaphore_event FORCE INDEX (semaphore_event_at) WHERE at<");
    sql_time(sql, clean->wall_now - CLEANING_EVENT_DAYS * 86400LL * US_PER_SECOND);
    buf_printf(sql, " ORDER BY at LIMIT %zu", clean->task->rows / 2);
}

static int compare_ids(const void *a, const void *b)
{
    const struct ended_request *left = a;
    const struct ended_request *right = b;
    return (left->id > right->id) - (left->id < right->id);
}

/* Keeps of the page what may be deleted and fits; `from` moves to the last that was looked at and is not left. */
static void choose(struct clean *clean, struct ended_request *page, size_t count)
{
    bool events = clean->task->kind == CLEAN_EVENTS;
    size_t fitting = cleaning_fit(page, count, clean->task->rows);
    clean->result.from = events || fitting == 0 ? 0 : page[fitting - 1].due_at;
    clean->requests = page;
    for (size_t i = 0; i < fitting; i++)
        if (events || cleaning_may_delete(&page[i], clean->now, clean->oldest_kept))
            clean->requests[clean->count++] = page[i];
    if (clean->count == 0) {
        clean->result.from = 0;
        return;
    }
    if (!events)
        clean->result.behind =
            cleaning_behind(&clean->requests[0], clean->now, clean->oldest_kept, clean->task->retention_rows);
    qsort(clean->requests, clean->count, sizeof *clean->requests, compare_ids);
}

static enum permit_status read_page(struct clean *clean)
{
    size_t count = (size_t)session_affected(clean->session);
    struct ended_request *page = arena_array(clean->arena, count, sizeof *page);
    struct row_reader reader = {.arena = clean->arena, .broken = count && !page};
    for (size_t i = 0; i < count && row_step(&reader, clean->session); i++) {
        page[i].id = row_u64(&reader);
        page[i].due_at = row_time(&reader);
        page[i].ended_at = row_time(&reader);
        page[i].permits = row_u64(&reader);
    }
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    choose(clean, page, count);
    return PERMIT_OK;
}

static enum permit_status find(struct clean *clean)
{
    struct buf sql;
    if (clean->task->kind == CLEAN_OVERFLOW && clean->oldest_kept == 0)
        return PERMIT_OK;
    buf_init(&sql, SQL_MAX);
    if (clean->task->kind == CLEAN_EVENTS)
        events_sql(clean, &sql);
    else
        requests_sql(clean, &sql);
    enum permit_status status = send_text(clean->session, &sql);
    if (status == PERMIT_OK)
        status = read_page(clean);
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
 * Permits first: a request without its permits is never seen. A permit that is still ACQUIRED stays, and the auditor
 * names it: its units are counted somewhere. NOWAIT: whoever holds a row of these is let go first, some other time.
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

static void delete_events_sql(const struct clean *clean, struct buf *sql)
{
    buf_append_text(sql, "DELETE e FROM semaphore_event e FORCE INDEX (PRIMARY) WHERE e.id");
    ids_sql(clean, sql);
}

static enum permit_status delete_all(struct clean *clean)
{
    struct buf sql;
    if (clean->count == 0)
        return PERMIT_OK;
    buf_init(&sql, SQL_MAX);
    if (clean->task->kind == CLEAN_EVENTS)
        delete_events_sql(clean, &sql);
    else
        delete_requests_sql(clean, &sql);
    mono_us started = clock_mono();
    enum permit_status status = session_end(clean->session, send_text(clean->session, &sql));
    if (status != PERMIT_OK)
        return status;
    clean->result.took_us = clock_mono() - started;
    clean->result.deleted = clean->count;
    return PERMIT_OK;
}

enum permit_status clean_commits(struct session *session, uint64_t *ret_commits)
{
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

enum permit_status clean_batch(struct session *session, const struct clean_task *task, struct arena *arena,
                               struct clean_result *ret_result)
{
    struct clean clean = {.session = session, .task = task, .arena = arena};
    enum permit_status status = look(&clean);
    if (status == PERMIT_OK && clean.result.mine)
        status = find(&clean);
    if (status == PERMIT_OK && clean.result.mine)
        status = delete_all(&clean);
    /* After anything but a row that somebody holds the connection goes, and all that it had with it. */
    bool usable = status == PERMIT_OK || status == PERMIT_LOCK_TIMEOUT || status == PERMIT_CONFLICT;
    if (!usable || (clean.result.mine && session_run(session, GIVE_BACK) != PERMIT_OK))
        session_drop(session);
    if (status == PERMIT_OK)
        *ret_result = clean.result;
    return status;
}
