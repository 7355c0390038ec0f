/* SPDX-License-Identifier: MIT */
/*
 * The locks of the rows of requests, and their errands. A transaction of a shop may hold such a row for as long as it
 * likes (docs/design.md, "Errands"), so no statement waits for one: SKIP LOCKED before the plan, NOWAIT in the packet
 * that writes.
 */
#include <stdlib.h>

#include "store/batch.h"
#include "store/packet.h"

enum { IDS_A_STATEMENT = 500 };

/*
 * Both statements select `state`, too: if they selected the id alone, the server would scan a small table, and try to
 * lock rows that they do not name. They lock no gap, because the session is in READ COMMITTED.
 */
static const char lock_keys[] =
    "SELECT id,state FROM permit_request FORCE INDEX (permit_request_external_id) WHERE external_id IN (";
static const char lock_ids[] =
    "SELECT id,state,errand,confirmed_at FROM permit_request FORCE INDEX (PRIMARY) WHERE id IN (";

void batch_lock_keys_sql(const struct lock_set *set, struct buf *sql)
{
    buf_append_text(sql, lock_keys);
    sql_bytes_list(sql, set->keys, set->key_count);
    buf_append_text(sql, ") FOR UPDATE SKIP LOCKED;");
}

void batch_lock_requests_sql(const uint64_t *ids, size_t count, const char *how, struct buf *sql)
{
    buf_append_text(sql, lock_ids);
    sql_ids(sql, ids, count);
    buf_append_text(sql, ") ORDER BY id FOR UPDATE ");
    buf_append_text(sql, how);
}

enum permit_status batch_read_locked(struct session *session, size_t key_count, struct arena *arena,
                                     struct locked_rows *ret_rows)
{
    struct row_reader reader = {.arena = arena};
    *ret_rows = (struct locked_rows){.ids = arena_array(arena, key_count, sizeof *ret_rows->ids)};
    if (!ret_rows->ids)
        return PERMIT_NO_MEMORY;
    while (ret_rows->count < key_count && row_step(&reader, session))
        ret_rows->ids[ret_rows->count++] = row_u64(&reader);
    ret_rows->count = u64_sort_unique(ret_rows->ids, ret_rows->count);
    return reader.broken ? PERMIT_NO_MEMORY : PERMIT_OK;
}

void batch_set_locked(struct view *view, const struct locked_rows *rows)
{
    for (size_t i = 0; i < view->request_count; i++) {
        struct request *request = &view->requests[i];
        bool locked = rows->count && bsearch(&request->id, rows->ids, rows->count, sizeof *rows->ids, compare_u64);
        request->lock = locked ? ROW_LOCKED : ROW_LOCKED_ELSEWHERE;
    }
}

static struct request *find_id(struct view *view, uint64_t id)
{
    for (size_t i = 0; i < view->request_count; i++)
        if (view->requests[i].id == id)
            return &view->requests[i];
    return NULL;
}

/* ---- errands ---- */

/*
 * A plain read: the row of `errand` was committed with the mark, and only a batch that has locked the request deletes it.
 * It may be in any bucket: each is a seek.
 */
static void errands_sql(const struct view *view, struct buf *sql)
{
    bool any = false;
    for (size_t i = 0; i < view->request_count; i++) {
        if (!view->requests[i].errand || view->requests[i].lock != ROW_LOCKED)
            continue;
        buf_append_text(sql, any ? ","
                                 : "SELECT bucket,permit_request_id FROM errand FORCE INDEX (PRIMARY)"
                                   " WHERE bucket IN (SELECT n FROM held_bit) AND permit_request_id IN (");
        buf_append_u64(sql, view->requests[i].id);
        any = true;
    }
    buf_append_text(sql, any ? ")" : "");
}

enum permit_status batch_read_errands(struct session *session, struct view *view)
{
    struct packet packet = packet_begin(session, NULL);
    for (size_t i = 0; i < view->request_count; i++)
        view->requests[i].bucket = ERRAND_BUCKETS;
    errands_sql(view, &packet.sql);
    if (packet.sql.length == 0)
        return packet_end(&packet);
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint32_t bucket = (uint32_t)row_u64(&packet.row);
        struct request *request = find_id(view, row_u64(&packet.row));
        if (request)
            request->bucket = bucket;
    }
    return packet_end(&packet);
}

/* ---- other rows of a view ---- */

enum permit_status batch_lock_requests(struct session *session, const uint64_t *ids, size_t count, struct view *view)
{
    struct packet packet = packet_begin(session, NULL);
    bool any_errand = false;
    for (size_t i = 0; i < count; i++) {
        struct request *request = find_id(view, ids[i]);
        if (request)
            request->lock = ROW_LOCKED_ELSEWHERE;
    }
    for (size_t i = 0; i < count; i += IDS_A_STATEMENT) {
        batch_lock_requests_sql(ids + i, count - i < IDS_A_STATEMENT ? count - i : IDS_A_STATEMENT, "SKIP LOCKED",
                                &packet.sql);
        packet_send(&packet);
        while (packet_row(&packet)) {
            struct request *request = find_id(view, row_u64(&packet.row));
            (void)row_u64(&packet.row);
            if (!request)
                continue;
            request->lock = ROW_LOCKED;
            request->errand = (uint32_t)row_u64(&packet.row);
            request->confirmed_at = row_time(&packet.row);
            any_errand |= request->errand != 0;
        }
    }
    enum permit_status status = packet_end(&packet);
    return status == PERMIT_OK && any_errand ? batch_read_errands(session, view) : status;
}
