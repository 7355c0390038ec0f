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
    struct packet packet;
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

/* Reads the id of the semaphore, its next token, and the clock. Unknown name: semaphore_id is 0. */
static void read_start(struct walk *walk, uint64_t *ret_next_token, struct query_time *ret_time)
{
    struct packet *packet = &walk->packet;
    buf_append_text(&packet->sql, "SELECT id,next_permit_id FROM semaphore FORCE INDEX (semaphore_name) WHERE name=");
    sql_bytes(&packet->sql, walk->filter->semaphore);
    buf_append_text(&packet->sql, ";" SQL_CLOCK);
    packet_send(packet);
    if (packet_row(packet)) {
        walk->semaphore_id = row_u64(&packet->row);
        *ret_next_token = row_u64(&packet->row);
    }
    packet_time(packet, ret_time);
}

/* Reads the last permit up to `token`: its token (0: none), and whether it was granted after `at`. */
static uint64_t read_last_permit(struct walk *walk, uint64_t token, bool *ret_later)
{
    struct packet *packet = &walk->packet;
    uint64_t last = 0;
    *ret_later = false;
    buf_append_text(&packet->sql, "SELECT p.id,r.acquired_at>");
    sql_time(&packet->sql, walk->at + 2 * LEASE_LEAP_US);
    buf_append_text(&packet->sql,
                    " FROM permit p FORCE INDEX (PRIMARY) LEFT JOIN permit_request r FORCE INDEX (PRIMARY)"
                    " ON r.id=p.permit_request_id WHERE p.semaphore_id=");
    buf_append_u64(&packet->sql, walk->semaphore_id);
    buf_append_text(&packet->sql, " AND p.id<=");
    buf_append_u64(&packet->sql, token);
    buf_append_text(&packet->sql, " ORDER BY p.id DESC LIMIT 1");
    packet_send(packet);
    if (packet_row(packet)) {
        last = row_u64(&packet->row);
        *ret_later = row_u64(&packet->row) != 0;
    }
    return last;
}

/* Searches, up to `end`, for a token from which on all permits were granted after `at`. */
static uint64_t find_end(struct walk *walk, uint64_t end)
{
    uint64_t low = 0; /* was not granted after `at` */
    while (end - low > 1 && packet_works(&walk->packet)) {
        uint64_t middle = low + (end - low) / 2;
        bool later;
        uint64_t token = read_last_permit(walk, middle, &later);
        if (later)
            end = token;
        else
            low = middle;
    }
    return end;
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

/*
 * Reads the request ids back from `end`, over at most QUERY_WALK_MAX permits. found->next: the token that this many
 * permits end at, or, if there are more ids than a page, the last token of the page.
 */
static void walk_back(struct walk *walk, uint64_t end, struct walk_found *found)
{
    struct packet *packet = &walk->packet;
    buf_printf(&packet->sql,
               "SELECT id FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id<%llu"
               " ORDER BY id DESC LIMIT 1 OFFSET %u",
               (unsigned long long)walk->semaphore_id, (unsigned long long)end, QUERY_WALK_MAX - 1);
    packet_send(packet);
    if (packet_row(packet))
        found->next = row_u64(&packet->row);
    walk_sql(walk, found->next, end, &packet->sql);
    packet_send(packet);
    size_t rows;
    uint64_t last = 0;
    found->ids = packet_rows(packet, sizeof *found->ids, &rows);
    while (found->count < walk->limit && packet_row(packet)) {
        last = row_u64(&packet->row);
        found->ids[found->count++] = row_u64(&packet->row);
    }
    if (rows > walk->limit)
        found->next = last;
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
    struct walk walk = {.packet = packet_begin(session, page->arena), .filter = filter, .limit = page->limit};
    struct walk_found found = {.count = 0};
    uint64_t end = 0;
    read_start(&walk, &end, &page->time);
    if (packet_works(&walk.packet) && walk.semaphore_id) {
        utc_us now = lease_time(&page->time.clock, page->time.now);
        walk.at = max_i64(0, min_i64(now, filter->at - (page->time.now - now)));
        walk_back(&walk, page->after.number ? page->after.number : find_end(&walk, end), &found);
    }
    enum permit_status status = packet_end(&walk.packet);
    if (status == PERMIT_OK)
        status = query_requests_by_id(session, found.ids, found.count, page);
    if (status == PERMIT_OK)
        status = sort_as_walked(&found, page);
    page->more = found.next != 0;
    page->next.number = found.next;
    return status;
}

/* ---- permits ---- */

enum permit_status query_permits(struct store *store, uint64_t semaphore_id, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    buf_printf(&packet.sql,
               "SELECT STRAIGHT_JOIN p.id,p.count,r.owner,r.end_reason,r.acquired_at,r.ended_at,r.confirmed_at,"
               "r.waiting_since FROM permit p FORCE INDEX (PRIMARY) JOIN permit_request r FORCE INDEX (PRIMARY)"
               " ON r.id=p.permit_request_id WHERE p.semaphore_id=%llu AND p.id<%llu ORDER BY p.id DESC"
               " LIMIT %u;" SQL_CLOCK,
               (unsigned long long)semaphore_id,
               (unsigned long long)(page->after.number ? page->after.number : UINT64_MAX), page->limit + 1);
    packet_send(&packet);
    size_t count;
    struct report_permit *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        rows[i].token = row_u64(&packet.row);
        rows[i].count = row_i64(&packet.row);
        rows[i].owner = row_bytes(&packet.row);
        rows[i].end_reason = (enum end_reason)row_u64(&packet.row);
        rows[i].acquired_at = row_time(&packet.row);
        rows[i].ended_at = row_time(&packet.row);
        rows[i].confirmed_at = row_time(&packet.row);
        rows[i].waiting_since = row_time(&packet.row);
    }
    page->permits = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].token;
    packet_time(&packet, &page->time);
    return packet_end(&packet);
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

enum permit_status query_events(struct store *store, struct bytes semaphore, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    unsigned limit = page->limit + 1;
    query_any_semaphore_sql(&packet.sql, semaphore);
    buf_append_text(&packet.sql, ";" EVENTS_OF "(");
    query_any_semaphore_sql(&packet.sql, semaphore);
    buf_append_char(&packet.sql, ')');
    events_of_sql(&packet.sql, page->after.number, limit);
    buf_append_text(&packet.sql, " UNION ALL " EVENTS_OF "0"); /* semaphore 0: raises of the epoch */
    events_of_sql(&packet.sql, page->after.number, limit);
    buf_printf(&packet.sql, " ORDER BY id DESC LIMIT %u", limit);
    packet_send_of_semaphore(&packet);
    size_t count;
    struct event_row *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++)
        row_read(&packet.row, &event_table, &rows[i]);
    page->events = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].id;
    return packet_end(&packet);
}
