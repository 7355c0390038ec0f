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
    buf_append_text(&packet->sql, "SELECT p.id,COALESCE(p.granted_at,r.acquired_at)>");
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

/* Walks the primary key of `table` back from the last permit below `end` to the cut. */
static void walk_table_sql(const struct walk *walk, const char *table, const char *ended_at, uint64_t cut, uint64_t end,
                           struct buf *sql)
{
    const struct request_filter *filter = walk->filter;
    buf_printf(sql,
               "(SELECT STRAIGHT_JOIN p.id,p.permit_request_id FROM %s p FORCE INDEX (PRIMARY)"
               " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
               " WHERE p.semaphore_id=%llu AND p.id>=%llu AND p.id<%llu AND COALESCE(p.granted_at,r.acquired_at)<=",
               table, (unsigned long long)walk->semaphore_id, (unsigned long long)cut, (unsigned long long)end);
    sql_time(sql, walk->at);
    buf_printf(sql, " AND %s>", ended_at);
    sql_time(sql, walk->at);
    if (filter->owner.data) {
        buf_append_text(sql, " AND r.owner=");
        sql_bytes(sql, filter->owner);
    }
    buf_printf(sql, " ORDER BY p.id DESC LIMIT %u)", walk->limit + 1);
}

/* Walks the permits, and those that exchanges have changed since. A token that has only shrunk is in both: UNION. */
static void walk_sql(const struct walk *walk, uint64_t cut, uint64_t end, struct buf *sql)
{
    walk_table_sql(walk, "permit", "r.ended_at", cut, end, sql);
    buf_append_text(sql, " UNION ");
    walk_table_sql(walk, "past_permit", "p.ended_at", cut, end, sql);
    buf_printf(sql, " ORDER BY 1 DESC LIMIT %u", walk->limit + 1);
}

/* Returns the token that QUERY_WALK_MAX permits of `table` end at, walking back from `end`; 0: there are not so many. */
static uint64_t find_cut(struct walk *walk, const char *table, uint64_t end)
{
    struct packet *packet = &walk->packet;
    buf_printf(&packet->sql,
               "SELECT id FROM %s FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id<%llu"
               " ORDER BY id DESC LIMIT 1 OFFSET %u",
               table, (unsigned long long)walk->semaphore_id, (unsigned long long)end, QUERY_WALK_MAX - 1);
    packet_send(packet);
    return packet_row(packet) ? row_u64(&packet->row) : 0;
}

/*
 * Reads the request ids back from `end`, over at most QUERY_WALK_MAX permits. found->next: the token that this many
 * permits end at, or, if there are more ids than a page, the last token of the page.
 */
static void walk_back(struct walk *walk, uint64_t end, struct walk_found *found)
{
    struct packet *packet = &walk->packet;
    uint64_t past = find_cut(walk, "past_permit", end);
    found->next = find_cut(walk, "permit", end);
    if (found->next < past)
        found->next = past;
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

/* ---- permits at that time ---- */

/* Appends the ids of the requests of the page whose permits have changed; returns how many there are. */
static size_t changed_ids_sql(const struct page *page, struct buf *sql)
{
    size_t count = 0;
    for (size_t i = 0; i < page->count; i++)
        if (page->requests[i].request.changes)
            buf_printf(sql, "%s%llu", count++ ? "," : "", (unsigned long long)page->requests[i].request.id);
    return count;
}

static void permits_at_sql(const struct buf *ids, utc_us at, struct buf *sql)
{
    buf_append_text(sql, "SELECT " ROW_PERMIT_COLUMNS ",p.permit_request_id,s.name FROM (SELECT " PERMIT_COLUMNS(
                             SELECT_FIRST, SELECT_NEXT, ) ",permit_request_id,ended_at FROM past_permit"
                                                          " FORCE INDEX (permit_request) WHERE permit_request_id IN (");
    buf_append(sql, ids->data, ids->length);
    buf_append_text(sql, ") AND ended_at>");
    sql_time(sql, at);
    buf_append_text(sql, " UNION ALL SELECT " PERMIT_COLUMNS(
                             SELECT_FIRST, SELECT_NEXT, ) ",permit_request_id,'9999-12-31' FROM permit"
                                                          " FORCE INDEX (permit_request) WHERE permit_request_id IN (");
    buf_append(sql, ids->data, ids->length);
    buf_append_text(sql, ")) p JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
                         " JOIN semaphore s FORCE INDEX (PRIMARY) ON s.id=p.semaphore_id"
                         " WHERE COALESCE(p.granted_at,r.acquired_at)<=");
    sql_time(sql, at);
    buf_append_text(sql, " ORDER BY r.id,s.name,p.ended_at");
}

/* Adds a permit to its request. Of a semaphore the first one counts: the others came after it. */
static void add_permit_at(struct page *page, const struct permit *permit, uint64_t request_id, struct bytes name)
{
    size_t at = 0;
    while (at < page->count && page->requests[at].request.id != request_id)
        at++;
    if (at == page->count)
        return;
    struct listed_request *row = &page->requests[at];
    if (row->request.permit_count == REQUEST_MAX_SEMAPHORES || request_permit_of(&row->request, permit->semaphore_id))
        return;
    row->names[row->request.permit_count] = name;
    row->request.permits[row->request.permit_count++] = *permit;
}

/* Gives the requests whose permits have changed the permits that they had at this time. */
static enum permit_status restore_permits(struct session *session, struct page *page, utc_us at)
{
    struct packet packet = packet_begin(session, page->arena);
    struct buf ids;
    buf_init(&ids, SIZE_MAX);
    size_t changed = changed_ids_sql(page, &ids), next = 0;
    struct permit *permits = arena_array(page->arena, changed * REQUEST_MAX_SEMAPHORES, sizeof *permits);
    struct bytes *names = arena_array(page->arena, changed * REQUEST_MAX_SEMAPHORES, sizeof *names);
    if (changed && (!permits || !names || ids.broken))
        packet_fail(&packet, PERMIT_NO_MEMORY);
    for (size_t i = 0; permits && names && i < page->count; i++) {
        struct listed_request *row = &page->requests[i];
        if (!row->request.changes)
            continue;
        row->request.permits = permits + next;
        row->names = names + next;
        row->request.permit_count = 0;
        next += REQUEST_MAX_SEMAPHORES;
    }
    if (changed) {
        permits_at_sql(&ids, at, &packet.sql);
        packet_send(&packet);
    }
    while (changed && packet_row(&packet)) {
        struct permit permit = {0};
        row_permit(&packet.row, &permit);
        uint64_t request_id = row_u64(&packet.row);
        add_permit_at(page, &permit, request_id, row_bytes(&packet.row));
    }
    buf_release(&ids);
    return packet_end(&packet);
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
    if (status == PERMIT_OK)
        status = restore_permits(session, page, walk.at);
    page->more = found.next != 0;
    page->next.number = found.next;
    return status;
}

/* ---- permits ---- */

/* Units of the past permit q that it had after the exchange too, under the same token. */
#define REST_OF_PAST                                                                                                   \
    "COALESCE((SELECT n.count FROM past_permit n FORCE INDEX (PRIMARY) WHERE n.semaphore_id=q.semaphore_id"            \
    " AND n.id=q.id AND n.changes>q.changes ORDER BY n.changes LIMIT 1),"                                              \
    "(SELECT p.count FROM permit p FORCE INDEX (PRIMARY) WHERE p.semaphore_id=q.semaphore_id AND p.id=q.id),0)"

/*
 * The permits of both tables by token, those of a token from the last on. One statement has one read view, so that a
 * permit which an exchange moves is in one of them.
 */
static void permits_sql(uint64_t semaphore_id, const struct page *page, struct buf *sql)
{
    unsigned long long id = semaphore_id, before = page->after.number ? page->after.number : UINT64_MAX;
    unsigned limit = page->limit + 1;
    buf_printf(
        sql,
        "SELECT STRAIGHT_JOIN p.id,p.count,p.rest,r.owner,COALESCE(p.end_reason,r.end_reason),"
        "COALESCE(p.granted_at,r.acquired_at),COALESCE(p.ended_at,r.ended_at),"
        "IF(p.ended_at IS NULL,r.confirmed_at,NULL),IF(p.granted_at IS NULL,r.waiting_since,NULL),p.changes FROM ("
        "(SELECT id,%u AS changes,count,0 AS rest,permit_request_id,granted_at,NULL AS ended_at,NULL AS end_reason"
        " FROM permit FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu AND id<%llu ORDER BY id DESC LIMIT %u)",
        UINT32_MAX, id, before, limit);
    buf_printf(sql,
               " UNION ALL (SELECT q.id,q.changes,q.count," REST_OF_PAST ",q.permit_request_id,q.granted_at,q.ended_at,"
               "q.end_reason FROM past_permit q FORCE INDEX (PRIMARY) WHERE q.semaphore_id=%llu AND (q.id<%llu OR"
               " (q.id=%llu AND q.changes<%lu)) ORDER BY q.id DESC,q.changes DESC LIMIT %u)) p"
               " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id"
               " ORDER BY p.id DESC,p.changes DESC LIMIT %u;" SQL_CLOCK,
               id, before, before, (unsigned long)page->after.changes, limit, limit);
}

enum permit_status query_permits(struct store *store, uint64_t semaphore_id, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    permits_sql(semaphore_id, page, &packet.sql);
    packet_send(&packet);
    size_t count, read = 0;
    struct report_permit *rows = packet_rows(&packet, sizeof *rows, &count);
    for (; read < count && packet_row(&packet); read++) {
        struct report_permit *row = &rows[read];
        row->token = row_u64(&packet.row);
        row->count = row_i64(&packet.row);
        int64_t rest = row_i64(&packet.row);
        row->is_part = rest > 0;
        row->count = max_i64(0, row->count - rest);
        row->owner = row_bytes(&packet.row);
        row->end_reason = (enum end_reason)row_u64(&packet.row);
        row->acquired_at = row_time(&packet.row);
        row->ended_at = row_time(&packet.row);
        row->confirmed_at = row_time(&packet.row);
        row->waiting_since = row_time(&packet.row);
        uint32_t changes = (uint32_t)row_u64(&packet.row);
        if (read < page->limit)
            page->next = (struct cursor){.number = row->token, .changes = changes};
    }
    page->permits = rows;
    page_end(page, count);
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
