/* SPDX-License-Identifier: MIT */
/*
 * Step 1 of a batch: one packet that locks the semaphores in the order of their ids and then reads, plainly, what the
 * plan needs. One rule of locking: whoever changes a request, its permits or its slots holds the X locks of all its
 * semaphores.
 */
#include "store/batch.h"
#include "store/sql_text.h"

/* Walks PRIMARY in order: without the hint or the ORDER BY a small table is scanned, and strangers' rows are waited
 * for. */
#define SEMAPHORE_COLUMNS                                                                                              \
    "SELECT id,name,kind,queue,capacity,in_use,next_permit_id,version,config_version," SQL_US(                         \
        "next_due_at") ",first_free,default_ttl_ms,max_ttl_ms,grace_ms,max_hold_ms,"                                   \
                       "paused_reason,note," SQL_US("retired_at") " FROM semaphore "
static const char lock_by_id[] = SEMAPHORE_COLUMNS "FORCE INDEX (PRIMARY) WHERE id IN (";
static const char lock_by_name[] = SEMAPHORE_COLUMNS "FORCE INDEX (semaphore_name) WHERE name=";

/* Walks the unique key, then permit_request. */
static const char
    requests_by_key
        [] =
            "SELECT r.id,r.external_id,r.digest,r.owner,r.principal,r.state,r.end_reason,r.ttl_ms," SQL_US("r.due_at") ",r.grace_ms," SQL_US(
                "r.confirmed_at") ",r.renewals,r.replays," SQL_US("r.acquired_at") "," SQL_US("r.ended_at") ",p."
                                                                                                            "semaphore_"
                                                                                                            "id,p.id,p."
                                                                                                            "count,p."
                                                                                                            "slots "
                                                                                                            "FROM "
                                                                                                            "permit_"
                                                                                                            "request r "
                                                                                                            "FORCE "
                                                                                                            "INDEX "
                                                                                                            "(permit_"
                                                                                                            "request_"
                                                                                                            "external_"
                                                                                                            "id) "
                                                                                                            "LEFT JOIN "
                                                                                                            "permit p "
                                                                                                            "FORCE "
                                                                                                            "INDEX "
                                                                                                            "(permit_"
                                                                                                            "request) "
                                                                                                            "ON "
                                                                                                            "p.permit_"
                                                                                                            "request_"
                                                                                                            "id=r.id "
                                                                                                            "WHERE "
                                                                                                            "r."
                                                                                                            "external_"
                                                                                                            "id IN (";

static const char clock_row[] = "SELECT " SQL_NOW_US "," SQL_US("tick_at") ",offset_us,epoch FROM cluster WHERE id=1";

static void lock_sql(const struct lock_set *set, struct buf *sql)
{
    if (set->semaphore_name.data) {
        buf_append_text(sql, lock_by_name);
        sql_bytes(sql, set->semaphore_name);
        buf_append_text(sql, " FOR UPDATE;");
    } else if (set->semaphore_count) {
        buf_append_text(sql, lock_by_id);
        sql_ids(sql, set->semaphore_ids, set->semaphore_count);
        buf_append_text(sql, ") ORDER BY id FOR UPDATE;");
    }
}

static void requests_sql(const struct lock_set *set, struct buf *sql)
{
    if (set->key_count == 0)
        return;
    buf_append_text(sql, requests_by_key);
    for (size_t i = 0; i < set->key_count; i++) {
        if (i > 0)
            buf_append_char(sql, ',');
        sql_bytes(sql, set->keys[i]);
    }
    buf_append_text(sql, ") ORDER BY r.external_id;");
}

/* Walks PRIMARY from first_free on; the row of the semaphore is ours already. */
static void slots_sql(uint64_t semaphore_id, int64_t wanted, struct buf *sql)
{
    buf_append_text(sql, "SELECT number FROM slot FORCE INDEX (PRIMARY) WHERE semaphore_id=");
    buf_append_u64(sql, semaphore_id);
    buf_append_text(sql,
                    " AND permit_id IS NULL AND retired=0 AND number>=(SELECT first_free FROM semaphore WHERE id=");
    buf_append_u64(sql, semaphore_id);
    buf_append_text(sql, ") ORDER BY number LIMIT ");
    buf_append_i64(sql, wanted);
    buf_append_char(sql, ';');
}

void batch_lock_sql(const struct lock_set *set, struct buf *sql)
{
    buf_append_text(sql, "BEGIN;");
    lock_sql(set, sql);
    requests_sql(set, sql);
    for (size_t i = 0; i < set->semaphore_count; i++)
        if (set->slots_wanted[i] > 0)
            slots_sql(set->semaphore_ids[i], set->slots_wanted[i], sql);
    buf_append_text(sql, clock_row);
}

/* --- reading -------------------------------------------------------------------------------------------------------
 */

/* Takes the columns of one row from left to right; `broken` once memory ran out. */
struct reader {
    struct session_row row;
    unsigned at;
    struct arena *arena;
    bool broken;
};

static struct bytes next_column(struct reader *reader)
{
    return reader->row.columns[reader->at++];
}

static uint64_t next_u64(struct reader *reader)
{
    return column_u64(next_column(reader));
}

static int64_t next_i64(struct reader *reader)
{
    return column_i64(next_column(reader));
}

static int64_t next_or(struct reader *reader, int64_t if_null)
{
    struct bytes column = next_column(reader);
    return column.data ? column_i64(column) : if_null;
}

static struct bytes next_bytes(struct reader *reader)
{
    struct bytes column = next_column(reader);
    if (!column.data)
        return column;
    struct bytes copy = arena_copy(reader->arena, column);
    reader->broken |= !copy.data;
    return copy;
}

static void read_semaphore(struct reader *reader, struct semaphore *semaphore)
{
    semaphore->id = next_u64(reader);
    semaphore->name = next_bytes(reader);
    semaphore->kind = (enum semaphore_kind)next_u64(reader);
    semaphore->queue = (enum semaphore_queue)next_u64(reader);
    semaphore->capacity = next_i64(reader);
    semaphore->in_use = next_i64(reader);
    semaphore->next_permit_id = next_u64(reader);
    semaphore->version = next_u64(reader);
    semaphore->config_version = next_u64(reader);
    semaphore->next_due_at = next_or(reader, NEVER);
    semaphore->first_free = (uint32_t)next_u64(reader);
    semaphore->default_ttl_ms = next_i64(reader);
    semaphore->max_ttl_ms = next_or(reader, -1);
    semaphore->grace_ms = next_i64(reader);
    semaphore->max_hold_ms = next_i64(reader);
    semaphore->paused_reason = next_bytes(reader);
    semaphore->note = next_bytes(reader);
    semaphore->retired_at = next_or(reader, NEVER);
}

static enum permit_status read_semaphores(struct session *session, struct arena *arena, size_t room, struct view *view)
{
    view->semaphores = arena_array(arena, room, sizeof *view->semaphores);
    view->free_slots = arena_array(arena, room, sizeof *view->free_slots);
    if (!view->semaphores || !view->free_slots)
        return PERMIT_NO_MEMORY;
    struct reader reader = {.arena = arena};
    while (view->semaphore_count < room && session_row(session, &reader.row)) {
        reader.at = 0;
        read_semaphore(&reader, &view->semaphores[view->semaphore_count++]);
    }
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

static void read_request(struct reader *reader, struct request *request)
{
    request->id = next_u64(reader);
    request->external_id = next_bytes(reader);
    struct bytes digest = next_column(reader);
    request->has_digest = digest.length == DIGEST_SIZE;
    if (request->has_digest)
        memcpy(request->digest, digest.data, DIGEST_SIZE);
    request->owner = next_bytes(reader);
    request->principal = next_bytes(reader);
    request->state = (enum request_state)next_u64(reader);
    request->end_reason = (enum end_reason)next_u64(reader);
    request->ttl_ms = next_or(reader, TTL_NONE);
    request->due_at = next_or(reader, NEVER);
    request->grace_ms = next_i64(reader);
    request->confirmed_at = next_or(reader, NEVER);
    request->renewals = (uint32_t)next_u64(reader);
    request->replays = (uint32_t)next_u64(reader);
    request->acquired_at = next_or(reader, NEVER);
    request->ended_at = next_or(reader, NEVER);
}

enum { REQUEST_COLUMNS = 15 };

static void read_permit(struct reader *reader, struct permit *permit)
{
    permit->semaphore_id = next_u64(reader);
    permit->token = next_u64(reader);
    permit->count = next_i64(reader);
    reader->broken |= !slots_parse(next_column(reader), reader->arena, &permit->slots);
}

/* One row per permit (or one of NULLs), in the order of the keys; the rows of a request follow each other. */
static enum permit_status read_requests(struct session *session, struct arena *arena, size_t key_count,
                                        struct view *view)
{
    struct permit *permits = arena_array(arena, session_affected(session), sizeof *permits);
    view->requests = arena_array(arena, key_count, sizeof *view->requests);
    struct request *request = NULL;
    struct reader reader = {.arena = arena, .broken = !view->requests || !permits};
    while (!reader.broken && session_row(session, &reader.row)) {
        if (!request || request->id != column_u64(reader.row.columns[0])) {
            if (view->request_count == key_count)
                return PERMIT_INTERNAL;
            request = &view->requests[view->request_count++];
            reader.at = 0;
            read_request(&reader, request);
            request->permits = permits;
        }
        reader.at = REQUEST_COLUMNS;
        if (reader.row.columns[reader.at].data) {
            read_permit(&reader, permits++);
            request->permit_count++;
        }
    }
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

static enum permit_status read_slots(struct session *session, struct arena *arena, int64_t wanted,
                                     struct free_slots *ret_slots)
{
    size_t count = session_affected(session);
    ret_slots->numbers = arena_array(arena, count, sizeof *ret_slots->numbers);
    if (!ret_slots->numbers)
        return PERMIT_NO_MEMORY;
    struct session_row row;
    while (ret_slots->count < count && session_row(session, &row))
        ret_slots->numbers[ret_slots->count++] = (uint32_t)column_u64(row.columns[0]);
    ret_slots->complete = (int64_t)count < wanted;
    return PERMIT_OK;
}

/* Free slots belong to the semaphore of that id, if it exists. */
static enum permit_status read_slots_of(struct session *session, struct arena *arena, uint64_t semaphore_id,
                                        int64_t wanted, struct view *view)
{
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            return read_slots(session, arena, wanted, &view->free_slots[i]);
    return PERMIT_OK;
}

static enum permit_status read_clock(struct session *session, struct view *view)
{
    struct session_row row;
    if (!session_row(session, &row))
        return PERMIT_INTERNAL;
    struct reader reader = {.row = row};
    view->now = next_i64(&reader);
    view->clock.tick_at = next_i64(&reader);
    view->clock.offset_us = next_i64(&reader);
    view->epoch = next_u64(&reader);
    return PERMIT_OK;
}

static enum permit_status read_results(struct session *session, const struct lock_set *set, struct arena *arena,
                                       struct view *view)
{
    enum permit_status status = PERMIT_OK;
    bool locks = set->semaphore_name.data || set->semaphore_count;
    if (locks)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = locks ? read_semaphores(session, arena, session_affected(session), view)
                       : read_semaphores(session, arena, 0, view);
    if (status == PERMIT_OK && set->key_count)
        status = session_next(session);
    if (status == PERMIT_OK && set->key_count)
        status = read_requests(session, arena, set->key_count, view);
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++) {
        if (set->slots_wanted[i] <= 0)
            continue;
        status = session_next(session);
        if (status == PERMIT_OK)
            status = read_slots_of(session, arena, set->semaphore_ids[i], set->slots_wanted[i], view);
    }
    if (status == PERMIT_OK)
        status = session_next(session);
    return status == PERMIT_OK ? read_clock(session, view) : status;
}

enum permit_status batch_read_view(struct session *session, const struct lock_set *set, struct buf *sql,
                                   struct arena *arena, struct view *ret_view)
{
    struct view view = {0};
    buf_clear(sql);
    batch_lock_sql(set, sql);
    if (sql->broken)
        return PERMIT_NO_MEMORY;
    enum permit_status status = session_send(session, (struct bytes){sql->data, sql->length});
    if (status == PERMIT_OK)
        status = read_results(session, set, arena, &view);
    enum permit_status finished = session_finish(session);
    if (status == PERMIT_OK)
        status = finished;
    if (status == PERMIT_OK)
        *ret_view = view;
    return status;
}
