/* SPDX-License-Identifier: MIT */

#include <stdlib.h>

#include "store/query_packet.h"

/* ---- holders at a given time ---- */

/*
 * Tokens rise with the time of their grant, except that the lease clock may step back by at most LEASE_LEAP_US at
 * a failover. So a binary search over the primary key finds the first grant after `at`, with at most 64 look-ups of one
 * permit. From there the walk goes back over at most QUERY_WALK_MAX permits and checks the end of each, because an old
 * permit may have been held for any time.
 */
struct walk {
    struct session *session;
    const struct request_filter *filter;
    uint64_t semaphore_id;
    utc_us at;      /* lease clock */
    unsigned limit; /* of the page */
};

struct walk_found {
    uint64_t *ids; /* request ids */
    size_t count;
    uint64_t next; /* token at which the next page begins; 0: the walk has reached the first permit */
};

/* Reads the id of the semaphore, its next token, and the clock. Unknown name: *ret_semaphore_id is 0. */
static enum permit_status read_start(struct session *session, struct bytes name, uint64_t *ret_semaphore_id,
                                     uint64_t *ret_next_token, struct query_time *ret_time)
{
    struct buf sql;
    struct session_row row;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_append_text(&sql, "SELECT id,next_permit_id FROM semaphore FORCE INDEX (semaphore_name) WHERE name=");
    sql_bytes(&sql, name);
    buf_append_text(&sql, ";" SQL_CLOCK);
    enum permit_status status = session_send_buf(session, &sql);
    bool found = status == PERMIT_OK && session_row(session, &row);
    *ret_semaphore_id = found ? column_u64(row.columns[0]) : 0;
    *ret_next_token = found ? column_u64(row.columns[1]) : 0;
    if (status == PERMIT_OK)
        status = query_packet_time(session, ret_time);
    return query_packet_end(session, &sql, status);
}

/* Reads the last permit up to `token`: its token (0: none), and whether it was granted after `at`. */
static enum permit_status read_last_permit(const struct walk *walk, uint64_t token, uint64_t *ret_token,
                                           bool *ret_later)
{
    struct buf sql;
    struct session_row row;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_append_text(&sql, "SELECT p.id,r.acquired_at>");
    sql_time(&sql, walk->at + 2 * LEASE_LEAP_US);
    buf_append_text(&sql, " FROM permit p FORCE INDEX (PRIMARY) LEFT JOIN permit_request r FORCE INDEX (PRIMARY)"
                          " ON r.id=p.permit_request_id WHERE p.semaphore_id=");
    buf_append_u64(&sql, walk->semaphore_id);
    buf_append_text(&sql, " AND p.id<=");
    buf_append_u64(&sql, token);
    buf_append_text(&sql, " ORDER BY p.id DESC LIMIT 1");
    enum permit_status status = session_send_buf(walk->session, &sql);
    bool found = status == PERMIT_OK && session_row(walk->session, &row);
    *ret_token = found ? column_u64(row.columns[0]) : 0;
    *ret_later = found && column_u64(row.columns[1]) != 0;
    return query_packet_end(walk->session, &sql, status);
}

/* Searches, up to `end`, for a token from which on all permits were granted after `at`. */
static enum permit_status find_end(const struct walk *walk, uint64_t end, uint64_t *ret_end)
{
    uint64_t low = 0; /* was not granted after `at` */
    while (end - low > 1) {
        uint64_t middle = low + (end - low) / 2;
        uint64_t token;
        bool later;
        enum permit_status status = read_last_permit(walk, middle, &token, &later);
        if (status != PERMIT_OK)
            return status;
        if (later)
            end = token;
        else
            low = middle;
    }
    *ret_end = end;
    return PERMIT_OK;
}

/* Reads the token at which a walk back from `end` reaches QUERY_WALK_MAX permits; 0: there are fewer. */
static enum permit_status find_cut(const struct walk *walk, uint64_t end, uint64_t *ret_cut)
{
    struct buf sql;
    struct session_row row;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_printf(&sql,
               "SELECT id FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id<%llu"
               " ORDER BY id DESC LIMIT 1 OFFSET %u",
               (unsigned long long)walk->semaphore_id, (unsigned long long)end, QUERY_WALK_MAX - 1);
    enum permit_status status = session_send_buf(walk->session, &sql);
    bool found = status == PERMIT_OK && session_row(walk->session, &row);
    *ret_cut = found ? column_u64(row.columns[0]) : 0;
    return query_packet_end(walk->session, &sql, status);
}

/* Walks the primary key back from the last permit below `end` to the cut. */
static void walk_sql(const struct walk *walk, uint64_t cut, uint64_t end, struct buf *sql)
{
    const struct request_filter *filter = walk->filter;
    buf_printf(sql,
               "SELECT STRAIGHT_JOIN p.id,p.permit_request_id FROM permit p FORCE INDEX (PRIMARY)"
               " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
               " WHERE p.semaphore_id=%llu AND p.id>=%llu AND p.id<%llu AND r.acquired_at<=",
               (unsigned long long)walk->semaphore_id, (unsigned long long)cut, (unsigned long long)end);
    sql_time(sql, walk->at);
    buf_append_text(sql, " AND r.ended_at>");
    sql_time(sql, walk->at);
    if (filter->owner.data) {
        buf_append_text(sql, " AND r.owner=");
        sql_bytes(sql, filter->owner);
    }
    buf_printf(sql, " ORDER BY p.id DESC LIMIT %u", walk->limit + 1);
}

/* Reads the request ids. If there are more than a page, sets found->next to the last token of the page. */
static enum permit_status read_found(const struct walk *walk, struct arena *arena, struct walk_found *found)
{
    struct session_row row;
    size_t rows = query_packet_rows(walk->session);
    found->ids = arena_array(arena, rows, sizeof *found->ids);
    if (rows && !found->ids)
        return PERMIT_NO_MEMORY;
    uint64_t last = 0;
    while (found->count < walk->limit && session_row(walk->session, &row)) {
        last = column_u64(row.columns[0]);
        found->ids[found->count++] = column_u64(row.columns[1]);
    }
    if (rows > walk->limit)
        found->next = last;
    return PERMIT_OK;
}

static enum permit_status walk_back(const struct walk *walk, uint64_t end, struct arena *arena,
                                    struct walk_found *ret_found)
{
    struct buf sql;
    struct walk_found found = {.count = 0};
    enum permit_status status = find_cut(walk, end, &found.next);
    if (status != PERMIT_OK)
        return status;
    buf_init(&sql, QUERY_SQL_MAX);
    walk_sql(walk, found.next, end, &sql);
    status = session_send_buf(walk->session, &sql);
    if (status == PERMIT_OK)
        status = read_found(walk, arena, &found);
    *ret_found = found;
    return query_packet_end(walk->session, &sql, status);
}

/* Sorts the requests, loaded in order of id, into the order of the walk. */
static enum permit_status sort_as_walked(const struct walk_found *found, struct page *page)
{
    struct listed_request *ordered = arena_array(page->arena, page->count, sizeof *ordered);
    if (page->count && !ordered)
        return PERMIT_NO_MEMORY;
    size_t filled = 0;
    for (size_t i = 0; i < found->count; i++) {
        size_t low = 0, high = page->count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (page->requests[middle].request.id < found->ids[i])
                low = middle + 1;
            else
                high = middle;
        }
        if (low < page->count && page->requests[low].request.id == found->ids[i])
            ordered[filled++] = page->requests[low]; /* else deleted by retention since the walk */
    }
    page->requests = ordered;
    page->count = filled;
    return PERMIT_OK;
}

enum permit_status query_held_at(struct store *store, const struct request_filter *filter, struct page *page)
{
    struct session *session = session_of(store);
    struct walk walk = {.session = session, .filter = filter, .limit = page->limit};
    struct walk_found found = {.count = 0};
    uint64_t end;
    enum permit_status status = read_start(session, filter->semaphore, &walk.semaphore_id, &end, &page->time);
    if (status == PERMIT_OK && walk.semaphore_id) {
        utc_us now = lease_time(&page->time.clock, page->time.now);
        walk.at = max_i64(0, min_i64(now, filter->at - (page->time.now - now)));
        if (page->after.number)
            end = page->after.number;
        else
            status = find_end(&walk, end, &end);
        if (status == PERMIT_OK)
            status = walk_back(&walk, end, page->arena, &found);
    }
    if (status == PERMIT_OK)
        status = query_requests_by_id(session, found.ids, found.count, page);
    if (status == PERMIT_OK)
        status = sort_as_walked(&found, page);
    page->more = found.next != 0;
    page->next.number = found.next;
    return status;
}

/* ---- events ---- */

/* Appends the end of a SELECT that walks semaphore_event_semaphore back from `before`. */
static void events_of_sql(struct buf *sql, uint64_t before, unsigned limit)
{
    buf_append_text(sql, " AND id<");
    buf_append_u64(sql, before ? before : UINT64_MAX);
    buf_printf(sql, " ORDER BY id DESC LIMIT %u)", limit);
}

#define EVENTS_OF                                                                                                      \
    "(SELECT " EVENT_COLUMNS(SELECT_FIRST, SELECT_NEXT,                                                                \
                             "") " FROM semaphore_event"                                                               \
                                 " FORCE INDEX (semaphore_event_semaphore) WHERE semaphore_id="

static enum permit_status read_events(struct session *session, struct page *page)
{
    size_t count = query_packet_rows(session);
    struct event_row *rows = arena_array(page->arena, count, sizeof *rows);
    struct row_reader reader = {.arena = page->arena, .broken = count && !rows};
    for (size_t i = 0; i < count && row_step(&reader, session); i++)
        row_read(&reader, &event_table, &rows[i]);
    if (reader.broken)
        return PERMIT_NO_MEMORY;
    page->events = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].id;
    return PERMIT_OK;
}

enum permit_status query_events(struct store *store, struct bytes semaphore, struct page *page)
{
    struct session *session = session_of(store);
    unsigned limit = page->limit + 1;
    struct buf sql;
    buf_init(&sql, QUERY_SQL_MAX);
    query_any_semaphore_sql(&sql, semaphore);
    buf_append_text(&sql, ";" EVENTS_OF "(");
    query_any_semaphore_sql(&sql, semaphore);
    buf_append_char(&sql, ')');
    events_of_sql(&sql, page->after.number, limit);
    buf_append_text(&sql, " UNION ALL " EVENTS_OF "0"); /* semaphore 0: raises of the epoch */
    events_of_sql(&sql, page->after.number, limit);
    buf_printf(&sql, " ORDER BY id DESC LIMIT %u", limit);
    enum permit_status status = query_packet_of_semaphore(session, &sql);
    if (status == PERMIT_OK)
        status = read_events(session, page);
    return query_packet_end(session, &sql, status);
}
