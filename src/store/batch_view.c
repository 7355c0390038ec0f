/* SPDX-License-Identifier: MIT */
/*
 * The lock packet of a batch: it locks the semaphores in ascending id order, then, without waiting, the requests with
 * keys of the batch and owners, and reads the rows that the plan needs. Locking rule: a transaction that changes a
 * request, its permits or its slots holds the X locks of all its semaphores, and of the request.
 */
#include "store/batch.h"

#include <assert.h>
#include <stdlib.h>

#include "store/row_reader.h"

/*
 * Walks PRIMARY in order. Without the hint and the ORDER BY the server scans a small table, and waits for the locks of
 * rows that the batch does not name.
 */
static const char lock_one[] = "SELECT " ROW_SEMAPHORE_COLUMNS " FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id=";
static const char lock_by_id[] =
    "SELECT " ROW_SEMAPHORE_COLUMNS " FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id IN (";
static const char lock_by_name[] =
    "SELECT " ROW_SEMAPHORE_COLUMNS " FROM semaphore s FORCE INDEX (semaphore_name) WHERE s.name=";

/*
 * Reads the clock, and the requests with their permits: walks the unique key, then permit_request. The join starts with
 * the `cluster` row, so one statement reads both and always returns at least one row. It runs after the locks, so its
 * read view has all that they protect.
 */
static const char clock_columns[] = "SELECT SYSDATE(6),c.tick_at,c.offset_us,c.epoch,c.grants_from,c.identity=";
enum { CLOCK_COUNT = 6 };
static const char clock_only[] = " FROM cluster c WHERE c.id=1";
static const char and_requests[] =
    "," ROW_REQUEST_COLUMNS "," ROW_PERMIT_COLUMNS " FROM cluster c"
    " LEFT JOIN permit_request r FORCE INDEX (permit_request_external_id) ON r.external_id IN (";
static const char and_permits[] = ") LEFT JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"
                                  " WHERE c.id=1";

/*
 * Shared locks: an owner that is read here cannot lapse before the batch commits. The rows are locked in order of name,
 * as in every transaction that locks several owners. The batch does not wait for an owner row while it holds its
 * semaphores; a locked row is PERMIT_CONFLICT. MariaDB and MySQL have different syntax for this, and each ignores the
 * syntax of the other as a comment.
 */
static const char lock_owners[] = "SELECT name,lapsed_at IS NULL FROM owner FORCE INDEX (PRIMARY) WHERE name IN (";
static const char and_share[] = ") ORDER BY name /*M! LOCK IN SHARE MODE NOWAIT */ /*!80000 FOR SHARE NOWAIT */;";

static void lock_sql(const struct lock_set *set, struct buf *sql)
{
    if (set->semaphore_name.data) {
        buf_append_text(sql, lock_by_name);
        sql_bytes(sql, set->semaphore_name);
        buf_append_text(sql, " FOR UPDATE;");
    } else if (set->semaphore_count == 1) {
        buf_append_text(sql, lock_one);
        sql_ids(sql, set->semaphore_ids, 1);
        buf_append_text(sql, " FOR UPDATE;");
    } else if (set->semaphore_count) {
        buf_append_text(sql, lock_by_id);
        sql_ids(sql, set->semaphore_ids, set->semaphore_count);
        buf_append_text(sql, ") ORDER BY s.id FOR UPDATE;");
    }
}

/*
 * Walks PRIMARY from first_free on; at the version that is known, from behind the last slot. The semaphore's row is
 * locked.
 */
static void slots_sql(uint64_t semaphore_id, const struct slots_wanted *wanted, struct buf *sql)
{
    buf_append_text(sql, "SELECT number,label FROM slot FORCE INDEX (PRIMARY) WHERE semaphore_id=");
    buf_append_u64(sql, semaphore_id);
    buf_append_text(sql, " AND permit_id=0 AND retired=0 AND number>=(SELECT ");
    if (wanted->known_version)
        buf_printf(sql, "IF(version=%llu,%d,first_free)", (unsigned long long)wanted->known_version,
                   SLOTS_MAX_CAPACITY + 1);
    else
        buf_append_text(sql, "first_free");
    buf_append_text(sql, " FROM semaphore WHERE id=");
    buf_append_u64(sql, semaphore_id);
    buf_append_text(sql, ") ORDER BY number LIMIT ");
    buf_append_i64(sql, wanted->free);
    buf_append_char(sql, ';');
}

/* Appends the statements that read free slots of the set's semaphores. */
static void free_slots_sql(const struct lock_set *set, struct buf *sql)
{
    for (size_t i = 0; i < set->semaphore_count; i++) {
        assert(i == 0 || set->semaphore_ids[i - 1] < set->semaphore_ids[i]);
        if (set->slots_wanted[i].free > 0)
            slots_sql(set->semaphore_ids[i], &set->slots_wanted[i], sql);
    }
}

void batch_await_sql(uint64_t semaphore_id, struct buf *sql)
{
    buf_append_text(sql, "BEGIN;");
    lock_sql(&(struct lock_set){.semaphore_ids = &semaphore_id, .semaphore_count = 1}, sql);
}

void batch_lock_sql(const struct lock_set *set, const char *identity, struct buf *sql)
{
    buf_append_text(sql, set->lock_held ? "DO 0;" : "BEGIN;"); /* the reader steps to the statements after it */
    lock_sql(set, sql);
    free_slots_sql(set, sql);
    batch_named_sql(set, sql);
    if (set->owner_count) {
        buf_append_text(sql, lock_owners);
        sql_bytes_list(sql, set->owners, set->owner_count);
        buf_append_text(sql, and_share);
    }
    if (set->key_count)
        batch_lock_keys_sql(set, sql);
    buf_append_text(sql, clock_columns);
    buf_append_text(sql, identity);
    if (set->key_count) {
        buf_append_text(sql, and_requests);
        sql_bytes_list(sql, set->keys, set->key_count);
        buf_append_text(sql, and_permits);
    } else {
        buf_append_text(sql, clock_only);
    }
    batch_ahead_sql(set, sql);
}

/* ---- reading ---- */

static enum permit_status read_semaphores(struct session *session, struct arena *arena, size_t room, struct view *view)
{
    view->semaphores = arena_array(arena, room, sizeof *view->semaphores);
    view->free_slots = arena_array(arena, room, sizeof *view->free_slots);
    view->named_slots = arena_array(arena, room, sizeof *view->named_slots);
    view->next_due = arena_array(arena, room, sizeof *view->next_due);
    if (!view->semaphores || !view->free_slots || !view->named_slots || !view->next_due)
        return PERMIT_NO_MEMORY;
    struct row_reader reader = {.arena = arena};
    while (view->semaphore_count < room && row_step(&reader, session)) {
        struct semaphore *semaphore = &view->semaphores[view->semaphore_count];
        row_semaphore(&reader, semaphore);
        view->next_due[view->semaphore_count++] = semaphore->next_due_at;
    }
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

/*
 * Sorts the requests by key if they are not in order. The walk along the key returns them in order, but nothing
 * guarantees it, and an ORDER BY on the join with `cluster` would need a temporary table.
 */
static enum permit_status order_requests(struct view *view)
{
    bool ascending = true;
    for (size_t i = 1; i < view->request_count; i++)
        ascending &= request_compare_keys(&view->requests[i - 1], &view->requests[i]) < 0;
    if (ascending)
        return PERMIT_OK;
    qsort(view->requests, view->request_count, sizeof *view->requests, request_compare_keys);
    for (size_t i = 1; i < view->request_count; i++)
        if (request_compare_keys(&view->requests[i - 1], &view->requests[i]) == 0)
            return PERMIT_INTERNAL;
    return PERMIT_OK;
}

/*
 * The result has one row per permit, or one row for a request without permits; the rows of a request are adjacent. If
 * no key has a request, it is one row with the clock.
 */
static enum permit_status read_requests(struct session *session, struct arena *arena, size_t key_count,
                                        struct view *view)
{
    size_t row_count = session_affected(session);
    struct permit *permits = arena_array(arena, row_count, sizeof *permits);
    view->requests = arena_array(arena, key_count, sizeof *view->requests);
    struct request *request = NULL;
    struct row_reader reader = {.arena = arena, .broken = !view->requests || !permits};
    while (row_step(&reader, session)) {
        view->now = row_time(&reader);
        view->clock.tick_at = row_time(&reader);
        view->clock.offset_us = row_i64(&reader);
        view->clock.epoch = row_u64(&reader);
        view->grants_from = row_time(&reader);
        view->same_server = row_u64(&reader);
        if (key_count == 0 || !reader.row.columns[reader.at].data)
            continue;
        if (!request || request->id != column_u64(reader.row.columns[reader.at])) {
            if (view->request_count == key_count)
                return PERMIT_INTERNAL;
            request = &view->requests[view->request_count++];
            row_request(&reader, request);
            request->permits = permits;
        }
        reader.at = CLOCK_COUNT + ROW_REQUEST_COUNT;
        if (reader.row.columns[reader.at].data) {
            if (request->permit_count == REQUEST_MAX_SEMAPHORES) /* another program has added permits */
                return PERMIT_INTERNAL;
            row_permit(&reader, permits++);
            request->permit_count++;
        }
    }
    if (row_count == 0)
        return PERMIT_INTERNAL;
    return reader.broken ? PERMIT_NO_MEMORY : order_requests(view);
}

/* Allocates the labels at the first one; most semaphores have none. */
static void read_label(struct row_reader *reader, size_t count, struct free_slots *slots)
{
    struct bytes label = row_bytes(reader);
    if (!label.data)
        return;
    if (!slots->labels)
        slots->labels = arena_array(reader->arena, count, sizeof *slots->labels);
    if (slots->labels)
        slots->labels[slots->count] = label;
    else
        reader->broken = true;
}

static enum permit_status read_slots(struct session *session, struct arena *arena, int64_t wanted,
                                     struct free_slots *ret_slots)
{
    size_t count = session_affected(session);
    struct row_reader reader = {.arena = arena};
    ret_slots->numbers = arena_array(arena, count, sizeof *ret_slots->numbers);
    if (!ret_slots->numbers)
        return PERMIT_NO_MEMORY;
    while (ret_slots->count < count && row_step(&reader, session)) {
        ret_slots->numbers[ret_slots->count] = (uint32_t)row_u64(&reader);
        read_label(&reader, count, ret_slots);
        ret_slots->count++;
    }
    ret_slots->complete = (int64_t)count < wanted;
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

/* Reads the free slots of a semaphore into the view; skips them if the semaphore does not exist. */
static enum permit_status read_slots_of(struct session *session, struct arena *arena, uint64_t semaphore_id,
                                        int64_t wanted, struct view *view)
{
    for (size_t i = 0; i < view->semaphore_count; i++)
        if (view->semaphores[i].id == semaphore_id)
            return read_slots(session, arena, wanted, &view->free_slots[i]);
    return PERMIT_OK;
}

/* Steps to the results of these statements and reads them. */
static enum permit_status read_free_slots(struct session *session, const struct lock_set *set, struct arena *arena,
                                          struct view *view)
{
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < set->semaphore_count && status == PERMIT_OK; i++) {
        if (set->slots_wanted[i].free <= 0)
            continue;
        status = session_next(session);
        if (status == PERMIT_OK)
            status = read_slots_of(session, arena, set->semaphore_ids[i], set->slots_wanted[i].free, view);
    }
    return status;
}

enum permit_status batch_read_slots(struct session *session, const struct lock_set *set, struct buf *sql,
                                    struct arena *arena, struct view *view)
{
    buf_clear(sql);
    buf_append_text(sql, "DO 0;"); /* the readers step to each of their statements */
    free_slots_sql(set, sql);
    batch_named_sql(set, sql);
    buf_append_text(sql, "DO 0");
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_free_slots(session, set, arena, view);
    if (status == PERMIT_OK)
        status = batch_read_named(session, set, arena, view);
    return session_end(session, status);
}

static enum permit_status read_owners(struct session *session, const struct lock_set *set, struct arena *arena,
                                      struct view *view)
{
    struct row_reader reader = {.arena = arena};
    enum permit_status status = session_next(session);
    if (status != PERMIT_OK)
        return status == PERMIT_LOCK_TIMEOUT ? PERMIT_CONFLICT : status;
    view->owners = arena_array(arena, set->owner_count, sizeof *view->owners);
    reader.broken = !view->owners;
    while (view->owner_count < set->owner_count && row_step(&reader, session)) {
        struct owner_state *owner = &view->owners[view->owner_count++];
        owner->name = row_bytes(&reader);
        owner->alive = row_u64(&reader);
    }
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

static enum permit_status read_results(struct session *session, const struct lock_set *set, struct arena *arena,
                                       struct queues_ahead *ahead, struct view *view)
{
    enum permit_status status = PERMIT_OK;
    struct locked_rows locked = {0};
    bool locks = set->semaphore_name.data || set->semaphore_count;
    if (locks)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_semaphores(session, arena, locks ? session_affected(session) : 0, view);
    if (status == PERMIT_OK)
        status = read_free_slots(session, set, arena, view);
    if (status == PERMIT_OK)
        status = batch_read_named(session, set, arena, view);
    if (status == PERMIT_OK && set->owner_count)
        status = read_owners(session, set, arena, view);
    if (status == PERMIT_OK && set->key_count)
        status = session_next(session);
    if (status == PERMIT_OK && set->key_count)
        status = batch_read_locked(session, set->key_count, arena, &locked);
    if (status == PERMIT_OK)
        status = session_next(session);
    if (status == PERMIT_OK)
        status = read_requests(session, arena, set->key_count, view);
    batch_set_locked(view, &locked);
    return status == PERMIT_OK ? batch_read_ahead(session, set, arena, ahead) : status;
}

enum permit_status batch_read_view(struct session *session, const struct lock_set *set, const char *identity,
                                   struct buf *sql, struct arena *arena, struct queues_ahead *ret_ahead,
                                   struct view *ret_view)
{
    struct view view = {0};
    struct lock_set sorted = *set;
    *ret_ahead = (struct queues_ahead){0};
    if (!batch_sort_named(&sorted, arena))
        return PERMIT_NO_MEMORY;
    buf_clear(sql);
    batch_lock_sql(&sorted, identity, sql);
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_results(session, &sorted, arena, ret_ahead, &view);
    status = session_end(session, status);
    bool any_errand = false;
    for (size_t i = 0; status == PERMIT_OK && i < view.request_count; i++)
        any_errand |= view.requests[i].errand != 0;
    if (any_errand)
        status = batch_read_errands(session, &view);
    if (status == PERMIT_OK)
        *ret_view = view;
    return status;
}
