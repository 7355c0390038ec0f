/* SPDX-License-Identifier: MIT */
/*
 * Step 1, when a wanted semaphore is short and a holder may be due: its due holders, the longest due first, with all
 * their permits. Two packets more, still under the locks: which they are, and then their rows; and one between them if
 * slots are named: who holds those.
 */
#include <stdlib.h>

#include "store/batch.h"
#include "store/rows.h"

enum {
    DUE_MAX = SLOTS_MAX_COUNT, /* holders read for one semaphore: enough for any single slotted acquire */
    KEYS_A_STATEMENT = 500,
    WALK_HOLDERS_MAX = 2000 /* with more of them, walk what is due rather than who holds */
};

/* Walks permit_state: all holders of the semaphore, of which there are few. Sees every deadline. */
static const char due_of_holders[] = "SELECT r.id,r.due_at FROM permit p FORCE INDEX (permit_state)"
                                     " STRAIGHT_JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
                                     " WHERE p.semaphore_id=%llu AND p.state=1 AND r.due_at IS NOT NULL"
                                     " ORDER BY r.due_at,r.id LIMIT %lld;";
/* Walks permit_request_due: all that is due anywhere, which is not much while sweepers run. Sees nothing later. */
static const char due_of_all[] = "SELECT r.id,r.due_at FROM permit_request r FORCE INDEX (permit_request_due)"
                                 " STRAIGHT_JOIN permit p FORCE INDEX (permit_request)"
                                 " ON p.permit_request_id=r.id AND p.semaphore_id=%llu"
                                 " WHERE r.state=1 AND r.due_at<=";

/* Walks PRIMARY: of the slots that the batch names, whose deadline was read with them, those that are due. */
static const char due_of_tokens[] =
    "SELECT permit_request_id FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id IN (";

static const char due_rows[] =
    "SELECT " ROW_REQUEST_COLUMNS "," ROW_PERMIT_COLUMNS " FROM permit_request r FORCE INDEX (PRIMARY)"
    " STRAIGHT_JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"
    " WHERE r.state=1 AND r.id IN (";

static bool few_holders(const struct semaphore *semaphore)
{
    return semaphore->in_use <= WALK_HOLDERS_MAX;
}

/* One more than can be needed: its deadline bounds those that were not read. */
static int64_t rows_wanted(const struct shortfall *shortfall)
{
    return min_i64(max_i64(shortfall->units, 0), DUE_MAX) + 1;
}

static void due_ids_sql(const struct view *view, const struct shortfall *shortfall, utc_us now, struct buf *sql)
{
    const struct semaphore *semaphore = &view->semaphores[shortfall->semaphore];
    if (few_holders(semaphore)) {
        buf_printf(sql, due_of_holders, (unsigned long long)semaphore->id, (long long)rows_wanted(shortfall));
        return;
    }
    buf_printf(sql, due_of_all, (unsigned long long)semaphore->id);
    sql_time(sql, now);
    buf_printf(sql, " ORDER BY r.due_at,r.id LIMIT %lld;", (long long)rows_wanted(shortfall));
}

/* The ids of what is due; the semaphore's bound becomes the deadline of the first one that is left out. */
static enum permit_status read_ids(struct session *session, const struct shortfall *shortfall, utc_us now,
                                   uint64_t *ids, size_t *count, struct view *view)
{
    struct row_reader reader = {.at = 0};
    bool few = few_holders(&view->semaphores[shortfall->semaphore]);
    utc_us bound = few ? NEVER : now + 1;
    int64_t room = rows_wanted(shortfall) - 1;
    while (row_step(&reader, session)) {
        uint64_t id = row_u64(&reader);
        utc_us due_at = row_time(&reader);
        if (due_at > now || room-- <= 0) {
            bound = due_at;
            break;
        }
        ids[(*count)++] = id;
    }
    view->next_due[shortfall->semaphore] = bound;
    return reader.broken ? PERMIT_INTERNAL : PERMIT_OK;
}

static enum permit_status find_ids(struct session *session, const struct shortfall *shortfalls, size_t count,
                                   struct buf *sql, uint64_t *ids, size_t *ret_count, struct view *view)
{
    utc_us now = served_time(&view->clock, view->now);
    buf_clear(sql);
    for (size_t i = 0; i < count; i++)
        due_ids_sql(view, &shortfalls[i], now, sql);
    enum permit_status status = session_send_buf(session, sql);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        if (i > 0)
            status = session_next(session);
        if (status == PERMIT_OK)
            status = read_ids(session, &shortfalls[i], now, ids, ret_count, view);
    }
    return session_end(session, status);
}

/* The next `max` tokens that hold a named slot and are due, from slot *at on; each as often as it holds one. */
static size_t due_tokens(const struct named_slots *slots, utc_us now, size_t *at, uint64_t *ret_tokens, size_t max)
{
    size_t count = 0;
    for (; *at < slots->count && count < max; (*at)++)
        if (slots->rows[*at].permit_id && slots->rows[*at].due_at <= now)
            ret_tokens[count++] = slots->rows[*at].permit_id;
    return count;
}

void batch_tokens_sql(uint64_t semaphore_id, const uint64_t *tokens, size_t count, struct buf *sql)
{
    buf_printf(sql, due_of_tokens, (unsigned long long)semaphore_id);
    sql_ids(sql, tokens, count);
    buf_append_char(sql, ')');
}

static enum permit_status find_named(struct session *session, const struct shortfall *shortfall, struct buf *sql,
                                     uint64_t *ids, size_t *count, const struct view *view)
{
    uint64_t tokens[KEYS_A_STATEMENT];
    struct session_row row;
    size_t token_count, at = 0;
    enum permit_status status = PERMIT_OK;
    utc_us now = served_time(&view->clock, view->now);
    const struct named_slots *slots = &view->named_slots[shortfall->semaphore];
    while (status == PERMIT_OK && (token_count = due_tokens(slots, now, &at, tokens, KEYS_A_STATEMENT)) > 0) {
        buf_clear(sql);
        batch_tokens_sql(view->semaphores[shortfall->semaphore].id, tokens, u64_sort_unique(tokens, token_count), sql);
        status = session_send_buf(session, sql);
        while (status == PERMIT_OK && session_row(session, &row))
            ids[(*count)++] = column_u64(row.columns[0]);
        status = session_end(session, status);
    }
    return status;
}

/* How many ids can be found. */
static size_t ids_room(const struct shortfall *shortfalls, size_t count, const struct view *view)
{
    size_t room = count * DUE_MAX;
    for (size_t i = 0; i < count; i++)
        room += shortfalls[i].named ? view->named_slots[shortfalls[i].semaphore].count : 0;
    return room;
}

static bool in_view(const struct view *view, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (view->requests[i].id == id)
            return true;
    return false;
}

static int compare_external_ids(const void *a, const void *b)
{
    return bytes_compare(((const struct request *)a)->external_id, ((const struct request *)b)->external_id);
}

/* Appended to view->requests, which has room; the first `before` of them were there already. */
static enum permit_status read_rows(struct session *session, size_t before, struct arena *arena, struct view *view)
{
    struct permit *permits = arena_array(arena, session_affected(session), sizeof *permits);
    struct row_reader reader = {.arena = arena};
    if (!permits)
        return PERMIT_NO_MEMORY;
    struct request *request = NULL;
    while (row_step(&reader, session)) {
        uint64_t id = column_u64(reader.row.columns[0]);
        if (in_view(view, before, id))
            continue;
        if (!request || request->id != id) {
            request = &view->requests[view->request_count++];
            row_request(&reader, request);
            request->permits = permits;
            request->permit_count = 0;
        }
        reader.at = ROW_REQUEST_COUNT;
        row_permit(&reader, permits++);
        request->permit_count++;
    }
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

static enum permit_status fetch_some(struct session *session, const uint64_t *ids, size_t count, size_t before,
                                     struct buf *sql, struct arena *arena, struct view *view)
{
    buf_clear(sql);
    buf_append_text(sql, due_rows);
    sql_ids(sql, ids, count);
    buf_append_text(sql, ") ORDER BY r.id");
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = read_rows(session, before, arena, view);
    return session_end(session, status);
}

static enum permit_status fetch_rows(struct session *session, uint64_t *ids, size_t count, struct buf *sql,
                                     struct arena *arena, struct view *view)
{
    size_t before = view->request_count;
    count = u64_sort_unique(ids, count); /* one request may be in the way on several semaphores */
    struct request *all = arena_array(arena, before + count, sizeof *all);
    if (!all)
        return PERMIT_NO_MEMORY;
    if (before)
        memcpy(all, view->requests, before * sizeof *all);
    view->requests = all;
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < count && status == PERMIT_OK; i += KEYS_A_STATEMENT) {
        size_t some = count - i < KEYS_A_STATEMENT ? count - i : KEYS_A_STATEMENT;
        status = fetch_some(session, ids + i, some, before, sql, arena, view);
    }
    qsort(all, view->request_count, sizeof *all, compare_external_ids);
    return status;
}

enum permit_status batch_read_due(struct session *session, const struct shortfall *shortfalls, size_t count,
                                  struct buf *sql, struct arena *arena, struct view *view)
{
    uint64_t *ids = arena_array(arena, ids_room(shortfalls, count, view), sizeof *ids);
    size_t id_count = 0;
    if (!ids)
        return PERMIT_NO_MEMORY;
    enum permit_status status = find_ids(session, shortfalls, count, sql, ids, &id_count, view);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++)
        if (shortfalls[i].named)
            status = find_named(session, &shortfalls[i], sql, ids, &id_count, view);
    return status == PERMIT_OK && id_count ? fetch_rows(session, ids, id_count, sql, arena, view) : status;
}
