/* SPDX-License-Identifier: MIT */
/*
 * Queries for status and lists. A query is one packet with the rows and, last, the clock. The lists of semaphores and
 * requests first send more packets to find the rows of the page. A statement names the index it walks, or walks the
 * primary key; tests/store checks this with EXPLAIN.
 */
#include <stdlib.h>

#include "store/held.h"
#include "store/locks.h"
#include "store/plans.h"
#include "store/query_packet.h"

enum {
    PREFIX_MAX = 255, /* maximum length of a name or label in bytes */
    NAMES_A_STATEMENT = 500,
    ID_SQL_MAX = 1024,
};

/* Since when the head of the queue of `semaphore` s waits; NULL: no request waits. Walks the kept places before it. */
#define HEAD_SINCE                                                                                                     \
    "IF(s.waiting=0,NULL,(SELECT h.waiting_since FROM waiter w FORCE INDEX (PRIMARY) JOIN permit_request h"            \
    " FORCE INDEX (PRIMARY) ON h.id=w.permit_request_id WHERE w.semaphore_id=s.id AND h.server_id IS NOT NULL"         \
    " ORDER BY w.place,w.permit_request_id LIMIT 1))"
#define ALL_OF_SEMAPHORE                                                                                               \
    "SELECT " ROW_SEMAPHORE_COLUMNS "," HELD_FLOOR "," HEAD_SINCE " FROM semaphore s FORCE INDEX (semaphore_name)"

/* ---- packets ---- */

void packet_send_of_semaphore(struct packet *packet)
{
    packet_send(packet);
    if (packet_works(packet) && session_affected(packet->session) == 0)
        packet_fail(packet, PERMIT_UNKNOWN_SEMAPHORE);
    packet_next(packet);
}

/* ---- semaphores ---- */

/* Sends the packet and reads the rows and, last, the clock: rows, count and time of the page. */
static void run_semaphores(struct packet *packet, struct page *page)
{
    packet_send(packet);
    struct semaphore_row *rows = packet_rows(packet, sizeof *rows, &page->count);
    for (size_t i = 0; i < page->count && packet_row(packet); i++) {
        row_semaphore(&packet->row, &rows[i].semaphore);
        rows[i].floor = row_u64(&packet->row);
        rows[i].waiting_since = row_time(&packet->row);
    }
    page->semaphores = rows;
    packet_time(packet, &page->time);
}

static enum permit_status query_semaphore(struct store *store, struct bytes name, struct arena *arena,
                                          struct semaphore_row *ret_row, struct query_time *ret_time)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct page page;
    buf_append_text(&packet.sql, ALL_OF_SEMAPHORE " WHERE s.name=");
    sql_bytes(&packet.sql, name);
    buf_append_text(&packet.sql, ";" SQL_CLOCK);
    run_semaphores(&packet, &page);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    if (page.count == 0 || page.semaphores[0].semaphore.retired_at != NEVER)
        return PERMIT_UNKNOWN_SEMAPHORE;
    *ret_row = page.semaphores[0];
    *ret_time = page.time;
    return PERMIT_OK;
}

void query_prefix_sql(struct buf *sql, const char *column, struct bytes prefix)
{
    char end[PREFIX_MAX];
    size_t length = prefix.length;
    if (length > sizeof end)
        buf_append_text(sql, " AND FALSE");
    if (length == 0 || length > sizeof end)
        return;
    buf_printf(sql, " AND %s>=", column);
    sql_bytes(sql, prefix);
    memcpy(end, prefix.data, length);
    while (length > 0 && (unsigned char)end[length - 1] == 0xff)
        length--;
    if (length == 0)
        return;
    end[length - 1] = (char)(end[length - 1] + 1);
    buf_printf(sql, " AND %s<", column);
    sql_bytes(sql, (struct bytes){end, length});
}

/* A walk over names in order; it skips retired semaphores. */
struct name_walk {
    struct bytes prefix;
    struct bytes walked; /* last name walked; after a step, data NULL: the walk has passed the last name */
};

static void names_sql(struct buf *sql, const struct name_walk *walk)
{
    buf_append_text(sql, " WHERE s.name>");
    sql_bytes(sql, walk->walked);
    query_prefix_sql(sql, "s.name", walk->prefix);
}

/* Walks the next `steps` names and adds their semaphores to the page, at most until it has one more than its limit. */
static void walk_names(struct packet *packet, struct name_walk *walk, unsigned steps, struct page *page)
{
    struct bytes end = {0};
    struct page found;
    buf_append_text(&packet->sql, "SELECT s.name FROM semaphore s FORCE INDEX (semaphore_name)");
    names_sql(&packet->sql, walk);
    buf_printf(&packet->sql, " ORDER BY s.name LIMIT 1 OFFSET %u", steps - 1);
    packet_send(packet);
    if (packet_row(packet))
        end = row_bytes(&packet->row);
    buf_append_text(&packet->sql, ALL_OF_SEMAPHORE);
    names_sql(&packet->sql, walk);
    if (end.data) {
        buf_append_text(&packet->sql, " AND s.name<=");
        sql_bytes(&packet->sql, end);
    }
    buf_printf(&packet->sql, " AND s.retired_at IS NULL ORDER BY s.name LIMIT %zu;" SQL_CLOCK,
               page->limit + 1 - page->count);
    run_semaphores(packet, &found);
    if (!packet_works(packet))
        return;
    if (found.count)
        memcpy(page->semaphores + page->count, found.semaphores, found.count * sizeof *found.semaphores);
    page->count += found.count;
    page->time = found.time;
    walk->walked = end;
}

/* The first steps usually fill the page, because few semaphores are retired. */
static enum permit_status query_semaphores(struct store *store, struct bytes prefix, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    struct name_walk walk = {.prefix = prefix, .walked = page->after.name};
    page->count = 0;
    page->semaphores = arena_array(page->arena, page->limit + 1, sizeof *page->semaphores);
    if (!page->semaphores)
        packet_fail(&packet, PERMIT_NO_MEMORY);
    walk_names(&packet, &walk, page->limit + 1, page);
    if (packet_works(&packet) && walk.walked.data && page->count <= page->limit)
        walk_names(&packet, &walk, QUERY_WALK_MAX, page);
    page_end(page, page->count);
    if (!page->more && walk.walked.data) {
        page->next.name = walk.walked;
        page->more = true;
    } else if (page->count) {
        page->next.name = page->semaphores[page->count - 1].semaphore.name;
    }
    return packet_end(&packet);
}

static enum permit_status query_semaphore_sums(struct store *store, struct semaphore_sums *ret_sums)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql,
                    "SELECT COUNT(*),LEAST(COALESCE(SUM(capacity),0),9223372036854775807),COALESCE(SUM(in_use),0)"
                    " FROM semaphore WHERE retired_at IS NULL");
    packet_send(&packet);
    if (packet_row(&packet)) {
        ret_sums->count = row_i64(&packet.row);
        ret_sums->capacity = row_i64(&packet.row);
        ret_sums->in_use = row_i64(&packet.row);
    }
    return packet_end(&packet);
}

/* ---- holders ---- */

void query_semaphore_sql(struct buf *sql, struct bytes name)
{
    buf_append_text(sql, "SELECT id FROM semaphore FORCE INDEX (semaphore_name) WHERE retired_at IS NULL AND name=");
    sql_bytes(sql, name);
}

void query_any_semaphore_sql(struct buf *sql, struct bytes name)
{
    buf_append_text(sql, "SELECT id FROM semaphore FORCE INDEX (semaphore_name) WHERE name=");
    sql_bytes(sql, name);
}

/* Finds the tokens of the page, then walks the primary keys of their permits and requests. */
static enum permit_status query_holders(struct store *store, struct bytes semaphore, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    struct buf id;
    buf_init(&id, ID_SQL_MAX);
    buf_append_char(&id, '(');
    query_semaphore_sql(&id, semaphore);
    buf_append_char(&id, ')');
    query_semaphore_sql(&packet.sql, semaphore);
    buf_append_text(&packet.sql, ";SELECT " ROW_PERMIT_COLUMNS "," ROW_REQUEST_COLUMNS " FROM ");
    held_tokens_sql(buf_text(&id), page->after.number, page->limit + 1, &packet.sql);
    buf_append_text(&packet.sql,
                    " JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=t.semaphore_id AND p.id=t.id"
                    " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id AND r.state=1"
                    " ORDER BY p.id;" SQL_CLOCK);
    packet.sql.broken |= id.broken;
    buf_release(&id);
    packet_send_of_semaphore(&packet);
    size_t count;
    struct holder_row *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++) {
        row_permit(&packet.row, &rows[i].permit);
        row_request(&packet.row, &rows[i].request);
    }
    page->holders = rows;
    page_end(page, count);
    if (page->count)
        page->next.number = rows[page->count - 1].permit.token;
    packet_time(&packet, &page->time);
    return packet_end(&packet);
}

/* ---- requests ---- */

/*
 * Selects requests with all their permits and the names of their semaphores; the rows of a request are adjacent. The
 * permits are sorted by name here: the server would need a temporary table, and on disk because of permit.labels.
 */
#define ALL_OF_REQUEST(index)                                                                                          \
    "SELECT STRAIGHT_JOIN " ROW_REQUEST_COLUMNS "," ROW_PERMIT_COLUMNS ",s.name,m.metadata"                            \
    " FROM permit_request r FORCE INDEX (" index ")"                                                                   \
    " LEFT JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"                                     \
    " LEFT JOIN semaphore s FORCE INDEX (PRIMARY) ON s.id=p.semaphore_id"                                              \
    " LEFT JOIN request_metadata m FORCE INDEX (PRIMARY) ON m.permit_request_id=r.id WHERE "

enum { METADATA_COLUMN = ROW_REQUEST_COUNT + ROW_PERMIT_COUNT + 1 };

/* The requests read so far. Each array has one element per row of the result, which is always enough. */
struct request_list {
    struct listed_request *rows;
    size_t count;
    struct permit *free_permits; /* first unused permit */
    struct bytes *free_names;    /* first unused name */
};

static void request_list_add_row(struct request_list *list, struct row_reader *reader)
{
    uint64_t id = column_u64(reader->row.columns[0]);
    if (list->count == 0 || list->rows[list->count - 1].request.id != id) {
        struct listed_request *row = &list->rows[list->count++];
        row_request(reader, &row->request);
        row->request.permits = list->free_permits;
        row->names = list->free_names;
        reader->at = METADATA_COLUMN;
        if (reader->row.columns[METADATA_COLUMN].data)
            row->request.metadata = row_bytes(reader);
    }
    reader->at = ROW_REQUEST_COUNT;
    if (!reader->row.columns[ROW_REQUEST_COUNT].data) /* a tombstone or a request that waits has no permits */
        return;
    row_permit(reader, list->free_permits++);
    *list->free_names++ = row_bytes(reader);
    list->rows[list->count - 1].request.permit_count++;
}

/* Sorts permits by semaphore name. Insertion sort: there are few, usually in order. */
static void sort_permits(struct permit *permits, struct bytes *names, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct permit permit = permits[i];
        struct bytes name = names[i];
        size_t at = i;
        for (; at > 0 && bytes_compare(names[at - 1], name) > 0; at--) {
            permits[at] = permits[at - 1];
            names[at] = names[at - 1];
        }
        permits[at] = permit;
        names[at] = name;
    }
}

/* Sends the packet and reads the requests and, last, the clock. */
static void run_requests(struct packet *packet, struct request_list *ret_list, struct query_time *ret_time)
{
    size_t rows;
    packet_send(packet);
    *ret_list = (struct request_list){.rows = packet_rows(packet, sizeof *ret_list->rows, &rows)};
    ret_list->free_permits = packet_rows(packet, sizeof *ret_list->free_permits, &rows);
    ret_list->free_names = packet_rows(packet, sizeof *ret_list->free_names, &rows);
    while (packet_row(packet))
        request_list_add_row(ret_list, &packet->row);
    for (size_t i = 0; i < ret_list->count; i++)
        sort_permits(ret_list->rows[i].request.permits, ret_list->rows[i].names,
                     ret_list->rows[i].request.permit_count);
    packet_time(packet, ret_time);
}

/* ---- requests that wait ---- */

struct semaphore_name {
    uint64_t id; /* the first member, as compare_u64 wants it */
    struct bytes name;
};

/* Reads the names of the semaphores; ids ascending. *ret_count: found names, ascending by id. */
static enum permit_status read_names(struct session *session, const uint64_t *ids, size_t count, struct arena *arena,
                                     struct semaphore_name *names, size_t *ret_count)
{
    struct packet packet = packet_begin(session, arena);
    *ret_count = 0;
    for (size_t i = 0; i < count; i += NAMES_A_STATEMENT) {
        buf_append_text(&packet.sql, "SELECT id,name FROM semaphore FORCE INDEX (PRIMARY) WHERE id IN (");
        sql_ids(&packet.sql, ids + i, count - i < NAMES_A_STATEMENT ? count - i : NAMES_A_STATEMENT);
        buf_append_text(&packet.sql, ") ORDER BY id");
        packet_send(&packet);
        while (*ret_count < count && packet_row(&packet)) {
            names[*ret_count].id = row_u64(&packet.row);
            names[(*ret_count)++].name = row_bytes(&packet.row);
        }
    }
    return packet_end(&packet);
}

enum permit_status query_name_wants(struct session *session, struct listed_request *rows, size_t count,
                                    struct arena *arena)
{
    size_t want_count = 0, id_count = 0, name_count;
    for (size_t i = 0; i < count; i++)
        want_count += rows[i].request.want_count;
    if (want_count == 0)
        return PERMIT_OK;
    uint64_t *ids = arena_array(arena, want_count, sizeof *ids);
    struct semaphore_name *found = arena_array(arena, want_count, sizeof *found);
    struct bytes *free_names = arena_array(arena, want_count, sizeof *free_names);
    if (!ids || !found || !free_names)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < rows[i].request.want_count; j++)
            ids[id_count++] = rows[i].request.wants[j].semaphore_id;
    enum permit_status status = read_names(session, ids, u64_sort_unique(ids, id_count), arena, found, &name_count);
    for (size_t i = 0; i < count && status == PERMIT_OK; i++) {
        struct request *request = &rows[i].request;
        for (size_t j = 0; j < request->want_count; j++) {
            const struct semaphore_name *name =
                bsearch(&request->wants[j].semaphore_id, found, name_count, sizeof *found, compare_u64);
            request->wants[j].semaphore = name ? name->name : BYTES("");
        }
        if (request->want_count == 0)
            continue;
        status = wants_sort(request->wants, request->want_count) == PERMIT_OK ? PERMIT_OK : PERMIT_INTERNAL;
        rows[i].names = free_names;
        for (size_t j = 0; j < request->want_count; j++)
            *free_names++ = request->wants[j].semaphore;
    }
    return status;
}

static enum permit_status query_request(struct store *store, struct bytes external_id, struct arena *arena,
                                        struct request *ret_request, struct bytes **ret_names,
                                        struct query_time *ret_time)
{
    struct session *session = session_of(store);
    struct packet packet = packet_begin(session, arena);
    struct request_list list;
    buf_append_text(&packet.sql, ALL_OF_REQUEST("permit_request_external_id") "r.external_id=");
    sql_bytes(&packet.sql, external_id);
    buf_append_text(&packet.sql, ";" SQL_CLOCK);
    run_requests(&packet, &list, ret_time);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        status = query_name_wants(session, list.rows, list.count, arena);
    if (status != PERMIT_OK)
        return status;
    if (list.count == 0)
        return PERMIT_UNKNOWN_REQUEST;
    *ret_request = list.rows[0].request;
    *ret_names = list.rows[0].names;
    return PERMIT_OK;
}

enum permit_status query_requests_by_id(struct session *session, const uint64_t *ids, size_t count, struct page *page)
{
    struct packet packet = packet_begin(session, page->arena);
    struct request_list list;
    buf_append_text(&packet.sql, ALL_OF_REQUEST("PRIMARY") "r.id IN (0");
    for (size_t i = 0; i < count; i++)
        buf_printf(&packet.sql, ",%llu", (unsigned long long)ids[i]);
    buf_append_text(&packet.sql, ") ORDER BY r.id;" SQL_CLOCK);
    run_requests(&packet, &list, &page->time);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        status = query_name_wants(session, list.rows, list.count, page->arena);
    if (status != PERMIT_OK)
        return status;
    page->requests = list.rows;
    page->count = list.count;
    return PERMIT_OK;
}

/* ---- fence ---- */

/* Returns true if `text`, the column permit.slots, includes the slot. */
static bool slots_include(struct bytes text, uint32_t slot, struct arena *arena)
{
    struct slots slots;
    if (!slots_parse(text, arena, &slots))
        return false;
    for (uint32_t i = 0; i < slots.count; i++)
        if (slots.numbers[i] == slot)
            return true;
    return false;
}

/* Reads the past permits of the token, the last one first, unless it is known already. */
static void read_past(struct packet *packet, uint32_t slot, struct arena *arena, struct fence_row *row)
{
    while (packet_row(packet)) {
        enum end_reason end_reason = (enum end_reason)row_u64(&packet->row);
        if (row->known || (slot && !slots_include(row_column(&packet->row), slot, arena)))
            continue;
        row->known = true;
        row->state = REQUEST_RELEASED;
        row->end_reason = end_reason;
    }
}

/*
 * Walks the unique index of names, then the primary keys. Includes retired semaphores, which still have tokens. A token
 * that an exchange has replaced, or a slot that it has given back, is in the record of past permits.
 */
static enum permit_status query_fence(struct store *store, struct bytes semaphore, uint64_t token, uint32_t slot,
                                      struct fence_row *ret_row)
{
    enum { CHUNK = 4096, LIMIT = 64 * 1024 };
    struct packet packet = packet_begin(session_of(store), NULL);
    struct arena arena;
    buf_append_text(&packet.sql, "SELECT STRAIGHT_JOIN " HELD_FLOOR
                                 ",p.id,r.state,r.end_reason,p.slots FROM semaphore s FORCE INDEX (semaphore_name)"
                                 " LEFT JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=s.id AND p.id=");
    buf_append_u64(&packet.sql, token);
    buf_append_text(&packet.sql,
                    " LEFT JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id WHERE s.name=");
    sql_bytes(&packet.sql, semaphore);
    buf_append_text(&packet.sql, ";SELECT q.end_reason,q.slots FROM semaphore s FORCE INDEX (semaphore_name)"
                                 " STRAIGHT_JOIN past_permit q FORCE INDEX (PRIMARY) ON q.semaphore_id=s.id AND q.id=");
    buf_append_u64(&packet.sql, token);
    buf_append_text(&packet.sql, " WHERE s.name=");
    sql_bytes(&packet.sql, semaphore);
    buf_append_text(&packet.sql, " ORDER BY q.changes DESC");
    packet_send(&packet);
    arena_init(&arena, CHUNK, LIMIT);
    if (packet_row(&packet)) {
        struct fence_row row = {.floor = row_u64(&packet.row)};
        row.known = row_column(&packet.row).data != NULL;
        row.state = (enum request_state)row_u64(&packet.row);
        row.end_reason = (enum end_reason)row_u64(&packet.row);
        if (row.known && slot != 0)
            row.known = slots_include(row_column(&packet.row), slot, &arena);
        row.live = row.known && row.state == REQUEST_ACQUIRED;
        packet_next(&packet);
        read_past(&packet, slot, &arena, &row);
        *ret_row = row;
    } else {
        packet_fail(&packet, PERMIT_UNKNOWN_SEMAPHORE);
    }
    arena_release(&arena);
    return packet_end(&packet);
}

/* ---- the clock ---- */

static enum permit_status query_clock(struct store *store, struct query_time *ret_time)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, SQL_CLOCK);
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL))
        row_clock(&packet.row, ret_time);
    return packet_end(&packet);
}

static enum permit_status query_semaphores_of(struct store *store, const uint64_t *ids, size_t count,
                                              struct arena *arena, struct semaphore_page *ret_page)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql,
                    "SELECT " ROW_SEMAPHORE_COLUMNS " FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id IN (0,");
    sql_ids(&packet.sql, ids, count);
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    ret_page->rows = packet_rows(&packet, sizeof *ret_page->rows, &ret_page->count);
    for (size_t i = 0; i < ret_page->count && packet_row(&packet); i++)
        row_semaphore(&packet.row, &ret_page->rows[i]);
    return packet_end(&packet);
}

const struct store_queries mysql_queries = {
    .semaphore = query_semaphore,
    .semaphores = query_semaphores,
    .semaphore_sums = query_semaphore_sums,
    .holders = query_holders,
    .waiters = query_waiters,
    .ahead = query_ahead,
    .kept_until = query_kept_until,
    .fronts = query_fronts,
    .reservers = query_reservers,
    .request = query_request,
    .requests = query_requests,
    .fence = query_fence,
    .clock = query_clock,
    .held_at = query_held_at,
    .permits = query_permits,
    .events = query_events,
    .nearest = query_nearest,
    .availability = query_availability,
    .slot_list_head = query_slot_list_head,
    .slots = query_slots,
    .semaphores_of = query_semaphores_of,
    .due = query_due,
    .errands = query_errands,
    .locks_missing_grant = locks_missing_grant,
    .locks = locks_read,
    .deadlock = deadlock_read,
    .plans = plans_check,
    .undo = doctor_read_undo,
};
