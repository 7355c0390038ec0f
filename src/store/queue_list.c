/* SPDX-License-Identifier: MIT */
/*
 * Lists of queues. They walk the primary key of `waiter`, which is the order of the queue, and the primary keys of each
 * request and its server.
 */
#include "store/query_packet.h"

void query_side_sql(char side, utc_us place, uint64_t request_id, struct buf *sql)
{
    char other = side == '<' ? '>' : '<';
    buf_printf(sql, " AND w.place%c=", side);
    sql_time(sql, place);
    buf_append_text(sql, " AND NOT (w.place=");
    sql_time(sql, place);
    buf_printf(sql, " AND w.permit_request_id%c=%llu)", other, (unsigned long long)request_id);
}

/* ---- a page of a queue ---- */

static void page_sql(struct bytes semaphore, const struct cursor *after, unsigned limit, struct buf *sql)
{
    query_semaphore_sql(sql, semaphore);
    buf_append_text(sql, ";SELECT STRAIGHT_JOIN " ROW_REQUEST_COLUMNS ",v.id" QUERY_QUEUE " LEFT" QUERY_LIVING_SERVER
                         " WHERE w.semaphore_id=(");
    query_semaphore_sql(sql, semaphore);
    buf_append_char(sql, ')');
    query_side_sql('>', after->place, after->number, sql);
    buf_printf(sql, " ORDER BY w.place,w.permit_request_id LIMIT %u;", limit + 1);
    /* The last waiter before the page that is not kept. */
    buf_append_text(sql,
                    "SELECT STRAIGHT_JOIN r.external_id" QUERY_QUEUE QUERY_LIVING_SERVER " WHERE w.semaphore_id=(");
    query_semaphore_sql(sql, semaphore);
    buf_append_char(sql, ')');
    query_side_sql('<', after->place, after->number + 1, sql);
    buf_printf(sql, " ORDER BY w.place DESC,w.permit_request_id DESC LIMIT %d;" SQL_CLOCK, after->waiters > 0);
}

enum permit_status query_waiters(struct store *store, struct bytes semaphore, struct page *page)
{
    struct session *session = session_of(store);
    struct packet packet = packet_begin(session, page->arena);
    struct bytes behind = {0};
    uint64_t number = page->after.waiters;
    size_t count;
    page_sql(semaphore, &page->after, page->limit, &packet.sql);
    packet_send_of_semaphore(&packet);
    struct listed_request *rows = packet_rows(&packet, sizeof *rows, &count);
    page->waiters = packet_rows(&packet, sizeof *page->waiters, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        row_request(&packet.row, &rows[i].request);
        page->waiters[i].kept = !row_column(&packet.row).data;
    }
    packet_next(&packet);
    if (packet_row(&packet)) /* the last waiter before the page that is not kept */
        behind = row_bytes(&packet.row);
    packet_time(&packet, &page->time);
    enum permit_status status = packet_end(&packet);
    page_end(page, count);
    if (status == PERMIT_OK)
        status = query_name_wants(session, rows, page->count, page->arena);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < page->count; i++) {
        struct waiter_row *row = &page->waiters[i];
        number += !row->kept;
        *row = (struct waiter_row){.request = rows[i].request, .kept = row->kept, .number = number, .behind = behind};
        if (!row->kept)
            behind = row->request.external_id;
        page->next = (struct cursor){.place = row->request.place, .number = row->request.id, .waiters = number};
    }
    return PERMIT_OK;
}

/* ---- positions ---- */

/*
 * The keys of the first waiters before the positions of a request, and their numbers up to a limit: two statements,
 * each with an arm for each want, which it numbers.
 */
static void ahead_sql(const struct request *request, unsigned most, struct buf *sql)
{
    for (size_t i = 0; i < request->want_count; i++) {
        buf_printf(sql,
                   "%s(SELECT STRAIGHT_JOIN %zu AS n,r.external_id" QUERY_QUEUE QUERY_LIVING_SERVER
                   " WHERE w.semaphore_id=%llu",
                   i ? " UNION ALL " : ";", i, (unsigned long long)request->wants[i].semaphore_id);
        query_side_sql('<', request->place, request->id, sql);
        buf_printf(sql, " ORDER BY w.place,w.permit_request_id LIMIT %d)", QUERY_AHEAD_KEYS);
    }
    for (size_t i = 0; i < request->want_count; i++) {
        buf_printf(sql,
                   "%sSELECT %zu,COUNT(*) FROM (SELECT STRAIGHT_JOIN 1" QUERY_QUEUE QUERY_LIVING_SERVER
                   " WHERE w.semaphore_id=%llu",
                   i ? " UNION ALL " : ";", i, (unsigned long long)request->wants[i].semaphore_id);
        query_side_sql('<', request->place, request->id, sql);
        buf_printf(sql, " LIMIT %u) a", most + 1);
    }
}

/* Steps to the results of these statements and reads them. */
static void read_positions(struct packet *packet, size_t count, unsigned most, struct queue_position *positions)
{
    packet_next(packet);
    while (packet_row(packet)) {
        size_t n = row_u64(&packet->row);
        if (n < count && positions[n].key_count < QUERY_AHEAD_KEYS)
            positions[n].keys[positions[n].key_count++] = row_bytes(&packet->row);
    }
    packet_next(packet);
    while (packet_row(packet)) {
        size_t n = row_u64(&packet->row);
        uint64_t ahead = row_u64(&packet->row);
        if (n < count) {
            positions[n].ahead = ahead < most ? ahead : most;
            positions[n].more = ahead > most;
        }
    }
}

enum permit_status query_ahead(struct store *store, const struct request *request, struct arena *arena,
                               struct queue_position **ret_positions, bool *ret_kept)
{
    struct queue_position *positions = arena_array(arena, request->want_count + 1, sizeof *positions);
    struct bytes *keys = arena_array(arena, request->want_count * QUERY_AHEAD_KEYS + 1, sizeof *keys);
    unsigned most = request->want_count ? QUERY_WALK_MAX / (unsigned)request->want_count : 0;
    bool kept = true;
    if (!positions || !keys)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < request->want_count; i++)
        positions[i].keys = keys + i * QUERY_AHEAD_KEYS;
    struct packet packet = packet_begin(session_of(store), arena);
    buf_printf(&packet.sql, "SELECT COUNT(*) FROM server FORCE INDEX (PRIMARY) WHERE dead_at IS NULL AND id=%llu",
               (unsigned long long)request->server_id);
    ahead_sql(request, most, &packet.sql);
    packet_send(&packet);
    if (packet_row(&packet))
        kept = row_u64(&packet.row) == 0;
    if (request->want_count)
        read_positions(&packet, request->want_count, most, positions);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    *ret_positions = positions;
    *ret_kept = kept;
    return PERMIT_OK;
}

/* ---- kept places ---- */

static const struct request *request_at(const struct request *requests, size_t stride, size_t index)
{
    return (const struct request *)((const char *)requests + index * stride);
}

/* Collects the servers of the waiting requests, each once. NULL: out of memory. */
static uint64_t *collect_servers(const struct request *requests, size_t count, size_t stride, struct arena *arena,
                                 size_t *ret_count)
{
    uint64_t *servers = arena_array(arena, count + 1, sizeof *servers);
    size_t found = 0;
    for (size_t i = 0; servers && i < count; i++) {
        const struct request *request = request_at(requests, stride, i);
        if (request->state == REQUEST_WAITING && request->server_id)
            servers[found++] = request->server_id;
    }
    *ret_count = servers ? u64_sort_unique(servers, found) : 0;
    return servers;
}

/* Reads when each of these servers has died (NEVER: it lives); 0: it has no row any more. */
static enum permit_status read_deaths(struct session *session, const uint64_t *servers, size_t count,
                                      utc_us *ret_dead_at)
{
    if (count == 0)
        return PERMIT_OK;
    struct packet packet = packet_begin(session, NULL);
    buf_append_text(&packet.sql, "SELECT id,dead_at FROM server FORCE INDEX (PRIMARY) WHERE id IN (");
    sql_ids(&packet.sql, servers, count);
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint64_t id = row_u64(&packet.row);
        const uint64_t *at = bsearch(&id, servers, count, sizeof *servers, compare_u64);
        utc_us dead_at = row_time(&packet.row);
        if (at)
            ret_dead_at[at - servers] = dead_at;
    }
    return packet_end(&packet);
}

/* Returns until when a place is kept; 0: a client asks for it. A server without a row has been dead for long. */
static utc_us kept_until(const struct request *request, const uint64_t *servers, size_t server_count,
                         const utc_us *dead_at, const struct query_time *time)
{
    if (request->state != REQUEST_WAITING)
        return 0;
    if (!request->server_id)
        return request->due_at;
    const uint64_t *at = bsearch(&request->server_id, servers, server_count, sizeof *servers, compare_u64);
    utc_us died = dead_at[at - servers];
    if (died == NEVER)
        return 0;
    return died ? died + PLACE_KEPT_US : lease_time(&time->clock, time->now);
}

enum permit_status query_kept_until(struct store *store, const struct request *requests, size_t count, size_t stride,
                                    const struct query_time *time, struct arena *arena, utc_us **ret_until)
{
    size_t server_count;
    uint64_t *servers = collect_servers(requests, count, stride, arena, &server_count);
    utc_us *dead_at = arena_array(arena, server_count + 1, sizeof *dead_at);
    utc_us *until = arena_array(arena, count + 1, sizeof *until);
    if (!servers || !dead_at || !until)
        return PERMIT_NO_MEMORY;
    enum permit_status status = read_deaths(session_of(store), servers, server_count, dead_at);
    if (status != PERMIT_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        until[i] = kept_until(request_at(requests, stride, i), servers, server_count, dead_at, time);
    *ret_until = until;
    return PERMIT_OK;
}
