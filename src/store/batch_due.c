/* SPDX-License-Identifier: MIT */
/*
 * Reads the due holders of a semaphore that lacks units, longest due first, with all their permits. The packets run
 * under the locks of the batch: one finds the request ids, then packets of 500 ids read the rows. If slots are named,
 * more packets in between find the requests that hold these slots. Then the rows of those that the batch may end are
 * locked, except those that another session has locked.
 */
#include <assert.h>
#include <stdlib.h>

#include "store/batch.h"
#include "store/held.h"
#include "store/packet.h"

enum {
    DUE_MAX = SLOTS_MAX_COUNT, /* holders read for one semaphore: enough for any single slotted acquire */
    KEYS_A_STATEMENT = 500,    /* keys that one statement names */
    WALK_HOLDERS_MAX = 20000,  /* a semaphore with more units in use is searched by deadline; rows of one second */
    MORE_ROWS = 64 /* of the last second that is read: the longest due of it come first, unless it has many rows */
};

/*
 * The rows of the semaphore in which holders are due, and their holders. Of the seconds that have passed, as many rows
 * as may be needed, the earliest first: a row has a holder at least. Walks all rows of a semaphore that has few
 * holders; else the rows that are due, of all semaphores. Of the present second all rows, because any may be due: a
 * seek in held_due.
 */
static const char due_holders[] =
    "SELECT r.id,r.due_at FROM ((SELECT semaphore_id,block,bits FROM held FORCE INDEX (%s)"
    " WHERE semaphore_id=%llu AND due_s<%u ORDER BY due_s LIMIT %lld) UNION ALL"
    " (SELECT semaphore_id,block,bits FROM held FORCE INDEX (held_due)"
    " WHERE due_s=%u AND semaphore_id=%llu LIMIT %lld)) h" HELD_REQUESTS " ORDER BY r.due_at,r.id LIMIT %lld;";
/* Walks all rows of the semaphore. */
static const char next_due[] = "SELECT MIN(due_s) FROM held FORCE INDEX (PRIMARY)"
                               " WHERE semaphore_id=%llu AND due_s>%u AND due_s<%u;";
/* A semaphore with many holders: some may be due in the next second. */
static const char due_soon[] = "SELECT %u;";

/* Walks PRIMARY: the requests of the tokens that hold named slots and are due. */
static const char due_of_tokens[] =
    "SELECT permit_request_id FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id IN (";

static const char due_rows[] =
    "SELECT " ROW_REQUEST_COLUMNS "," ROW_PERMIT_COLUMNS " FROM permit_request r FORCE INDEX (PRIMARY)"
    " STRAIGHT_JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"
    " WHERE r.state=1 AND r.id IN (";

/* The number of rows to read: one more than needed, because its deadline is the bound of the rows not read. */
static int64_t rows_wanted(const struct shortfall *shortfall)
{
    return min_i64(max_i64(shortfall->units, 0) + shortfall->more, DUE_MAX) + 1;
}

/* Returns the start of the second. */
static utc_us second_start(utc_us time)
{
    return time - time % US_PER_SECOND;
}

/*
 * Reads the ids of due requests. Returns a lower bound of the deadlines of the others: the start of their second,
 * because the rows that were read may end in the middle of a second; exact in the present second, if all of its rows
 * were read.
 */
static utc_us read_ids(struct packet *packet, const struct shortfall *shortfall, utc_us now, bool all_read,
                       uint64_t *ids, size_t *count)
{
    int64_t room = rows_wanted(shortfall) - 1;
    while (packet_row(packet)) {
        uint64_t id = row_u64(&packet->row);
        utc_us due_at = row_time(&packet->row);
        if (room-- <= 0)
            return second_start(due_at);
        if (due_at > now)
            return all_read ? due_at : second_start(due_at);
        ids[(*count)++] = id;
    }
    return NEVER;
}

/* Returns true if one walk over all rows of the semaphore is cheap. */
static bool has_few_holders(const struct view *view, const struct shortfall *shortfall)
{
    return view->semaphores[shortfall->semaphore].in_use <= WALK_HOLDERS_MAX;
}

static void find_ids(struct packet *packet, const struct shortfall *shortfalls, size_t count, struct view *view,
                     uint64_t *ids, size_t *ret_count)
{
    utc_us now = view->clock.due;
    uint32_t now_s = held_due_s(now);
    for (size_t i = 0; i < count; i++) {
        assert(shortfalls[i].semaphore < view->semaphore_count);
        unsigned long long id = view->semaphores[shortfalls[i].semaphore].id;
        long long limit = rows_wanted(&shortfalls[i]);
        bool few = has_few_holders(view, &shortfalls[i]);
        buf_printf(&packet->sql, due_holders, few ? "PRIMARY" : "held_due", id, now_s, limit + MORE_ROWS, now_s, id,
                   (long long)max_i64(limit, WALK_HOLDERS_MAX), limit);
        if (few)
            buf_printf(&packet->sql, next_due, id, now_s, HELD_NEVER_DUE);
        else
            buf_printf(&packet->sql, due_soon, now_s + 1);
    }
    packet_send(packet);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            packet_next(packet);
        utc_us bound = read_ids(packet, &shortfalls[i], now, has_few_holders(view, &shortfalls[i]), ids, ret_count);
        packet_next(packet);
        struct bytes next_s = packet_row(packet) ? row_column(&packet->row) : (struct bytes){0};
        if (next_s.data)
            bound = min_i64(bound, (utc_us)column_u64(next_s) * US_PER_SECOND);
        view->next_due[shortfalls[i].semaphore] = bound;
    }
}

/*
 * Collects at most `max` tokens that hold a named slot and are due, from slot *at on. A token is repeated for each of
 * its slots.
 */
static size_t due_tokens(const struct named_slots *slots, utc_us now, size_t *at, uint64_t *ret_tokens, size_t max)
{
    size_t count = 0;
    for (; *at < slots->count && count < max; (*at)++)
        if (slots->rows[*at].token && slots->rows[*at].due_at <= now)
            ret_tokens[count++] = slots->rows[*at].token;
    return count;
}

void batch_tokens_sql(uint64_t semaphore_id, const uint64_t *tokens, size_t count, struct buf *sql)
{
    buf_printf(sql, due_of_tokens, (unsigned long long)semaphore_id);
    sql_ids(sql, tokens, count);
    buf_append_char(sql, ')');
}

static void find_named(struct packet *packet, const struct shortfall *shortfall, const struct view *view, uint64_t *ids,
                       size_t *count)
{
    uint64_t tokens[KEYS_A_STATEMENT];
    size_t token_count, at = 0;
    const struct named_slots *slots = &view->named_slots[shortfall->semaphore];
    while ((token_count = due_tokens(slots, view->clock.due, &at, tokens, KEYS_A_STATEMENT)) > 0) {
        batch_tokens_sql(view->semaphores[shortfall->semaphore].id, tokens, u64_sort_unique(tokens, token_count),
                         &packet->sql);
        packet_send(packet);
        while (packet_row(packet))
            ids[(*count)++] = row_u64(&packet->row);
    }
}

static bool in_view(const struct view *view, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (view->requests[i].id == id)
            return true;
    return false;
}

/* Appends requests to view->requests, which has room, except those among its first `before` elements. */
static void read_rows(struct packet *packet, size_t before, struct view *view)
{
    size_t rows;
    struct permit *permits = packet_rows(packet, sizeof *permits, &rows);
    struct request *request = NULL;
    while (packet_row(packet)) {
        uint64_t id = column_u64(packet->row.row.columns[0]);
        if (in_view(view, before, id))
            continue;
        if (!request || request->id != id) {
            request = &view->requests[view->request_count++];
            row_request(&packet->row, request);
            request->permits = permits;
            request->permit_count = 0;
        }
        if (request->permit_count == REQUEST_MAX_SEMAPHORES) { /* another program has added permits */
            packet_fail(packet, PERMIT_INTERNAL);
            return;
        }
        packet->row.at = ROW_REQUEST_COUNT;
        row_permit(&packet->row, permits++);
        request->permit_count++;
    }
}

static void fetch_rows(struct packet *packet, uint64_t *ids, size_t count, struct view *view)
{
    size_t before = view->request_count;
    count = u64_sort_unique(ids, count); /* a request may hold units of several semaphores */
    struct request *all = arena_array(packet->row.arena, before + count, sizeof *all);
    if (!all) {
        packet_fail(packet, PERMIT_NO_MEMORY);
        return;
    }
    if (before)
        memcpy(all, view->requests, before * sizeof *all);
    view->requests = all;
    for (size_t i = 0; i < count; i += KEYS_A_STATEMENT) {
        buf_append_text(&packet->sql, due_rows);
        sql_ids(&packet->sql, ids + i, count - i < KEYS_A_STATEMENT ? count - i : KEYS_A_STATEMENT);
        buf_append_text(&packet->sql, ") ORDER BY r.id");
        packet_send(packet);
        read_rows(packet, before, view);
    }
    qsort(all, view->request_count, sizeof *all, request_compare_keys);
}

/* ---- the rows that are ended ---- */

/*
 * Walks PRIMARY. Locks no gap, because the rows are there. If it selected the id alone, the server would scan a small
 * table, and try to lock rows that it does not name.
 */
static const char lock_requests[] = "SELECT id,state FROM permit_request FORCE INDEX (PRIMARY) WHERE id IN (";

void batch_lock_requests_sql(const uint64_t *ids, size_t count, const char *how, struct buf *sql)
{
    buf_append_text(sql, lock_requests);
    sql_ids(sql, ids, count);
    buf_append_text(sql, ") ORDER BY id FOR UPDATE ");
    buf_append_text(sql, how);
}

static void set_locked_elsewhere(struct view *view, const uint64_t *ids, size_t count, bool locked)
{
    for (size_t i = 0; i < view->request_count; i++)
        if (count && bsearch(&view->requests[i].id, ids, count, sizeof *ids, compare_u64))
            view->requests[i].locked_elsewhere = locked;
}

enum permit_status batch_lock_requests(struct session *session, const uint64_t *ids, size_t count, struct view *view)
{
    struct packet packet = packet_begin(session, NULL);
    for (size_t i = 0; i < count; i += KEYS_A_STATEMENT) {
        size_t part = count - i < KEYS_A_STATEMENT ? count - i : KEYS_A_STATEMENT;
        uint64_t locked[KEYS_A_STATEMENT];
        size_t locked_count = 0;
        batch_lock_requests_sql(ids + i, part, "SKIP LOCKED", &packet.sql);
        packet_send(&packet);
        while (locked_count < part && packet_row(&packet))
            locked[locked_count++] = row_u64(&packet.row);
        set_locked_elsewhere(view, ids + i, part, true);
        set_locked_elsewhere(view, locked, locked_count, false);
    }
    return packet_end(&packet);
}

enum permit_status batch_read_due(struct session *session, const struct shortfall *shortfalls, size_t count,
                                  struct arena *arena, struct view *view)
{
    struct packet packet = packet_begin(session, arena);
    size_t ids_max = count * DUE_MAX;
    for (size_t i = 0; i < count; i++)
        ids_max += shortfalls[i].named ? view->named_slots[shortfalls[i].semaphore].count : 0;
    uint64_t *ids = arena_array(arena, ids_max, sizeof *ids);
    size_t id_count = 0;
    if (!ids)
        return PERMIT_NO_MEMORY;
    find_ids(&packet, shortfalls, count, view, ids, &id_count);
    for (size_t i = 0; i < count; i++)
        if (shortfalls[i].named)
            find_named(&packet, &shortfalls[i], view, ids, &id_count);
    if (packet_works(&packet) && id_count)
        fetch_rows(&packet, ids, id_count, view);
    return packet_end(&packet);
}
