/* SPDX-License-Identifier: MIT */
/*
 * The list of requests by owner, semaphore and state. A filter may let few of many through, and for most filters no
 * index has just these. So requests are walked in the order of their ids, along the index that leaves out most of the
 * others, and a page ends after QUERY_WALK_MAX of them, full or not.
 */
#include "store/query_packet.h"

struct id_walk {
    const struct request_filter *filter;
    uint64_t semaphore_id; /* 0: any */
    uint64_t walked;       /* all requests up to this id were looked at; UINT64_MAX: all there are */
    uint64_t *ids;         /* those that the filter lets through; there is room for limit + 1 */
    size_t count;
};

/* As a number of its own: a subquery in its place would keep the walk from deciding by the index alone. */
static enum permit_status find_semaphore(struct session *session, struct bytes name, uint64_t *ret_id)
{
    struct buf sql;
    struct session_row row;
    buf_init(&sql, QUERY_SQL_MAX);
    query_any_semaphore_sql(&sql, name);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK)
        *ret_id = session_row(session, &row) ? column_u64(row.columns[0]) : 0;
    return query_packet_end(session, &sql, status);
}

/* Sends one statement that selects numbers, and takes the text; at most `max` of them. */
static enum permit_status read_numbers(struct session *session, struct buf *sql, uint64_t *ret_numbers, size_t max,
                                       size_t *ret_count)
{
    struct session_row row;
    size_t count = 0;
    enum permit_status status = session_send_buf(session, sql);
    while (status == PERMIT_OK && count < max && session_row(session, &row))
        ret_numbers[count++] = column_u64(row.columns[0]);
    *ret_count = count;
    return query_packet_end(session, sql, status);
}

static size_t room(const struct id_walk *walk)
{
    return walk->filter->limit + 1 - walk->count;
}

/* ---- what is few ---- */

/* What has an index of its own, which is not in the order of ids. Returns the column of the id; NULL: nothing has. */
static const char *few_sql(const struct id_walk *walk, struct buf *sql)
{
    int state = walk->filter->state;
    if (walk->filter->owner.data || (!walk->semaphore_id && !state))
        return NULL;
    if (!walk->semaphore_id) {
        buf_printf(sql, " FROM permit_request r FORCE INDEX (permit_request_due) WHERE r.state=%d", state);
        return "r.id";
    }
    buf_printf(sql, " FROM permit p FORCE INDEX (permit_state) WHERE p.semaphore_id=%llu",
               (unsigned long long)walk->semaphore_id);
    if (state)
        buf_printf(sql, " AND p.state=%d", state);
    return "p.permit_request_id";
}

/* True if there are at most QUERY_WALK_MAX of it. */
static enum permit_status is_few(struct session *session, const struct id_walk *walk, bool *ret_few)
{
    struct buf sql;
    uint64_t number = 0;
    size_t count;
    *ret_few = false;
    buf_init(&sql, QUERY_SQL_MAX);
    buf_append_text(&sql, "SELECT COUNT(*) FROM (SELECT 1");
    if (!few_sql(walk, &sql)) {
        buf_release(&sql);
        return PERMIT_OK;
    }
    buf_printf(&sql, " LIMIT %d) f", QUERY_WALK_MAX + 1);
    enum permit_status status = read_numbers(session, &sql, &number, 1, &count);
    *ret_few = number <= QUERY_WALK_MAX;
    return status;
}

/* Behind what was walked: all of it is read and sorted. */
static enum permit_status take_few(struct session *session, struct id_walk *walk)
{
    struct buf from, sql;
    size_t count;
    buf_init(&from, QUERY_SQL_MAX);
    buf_init(&sql, QUERY_SQL_MAX);
    const char *id = few_sql(walk, &from);
    buf_printf(&sql, "SELECT %s%s AND %s>%llu ORDER BY %s LIMIT %zu", id, buf_text(&from), id,
               (unsigned long long)walk->walked, id, room(walk));
    buf_release(&from);
    enum permit_status status = read_numbers(session, &sql, walk->ids + walk->count, room(walk), &count);
    walk->count += count;
    walk->walked = UINT64_MAX;
    return status;
}

/* ---- the walk ---- */

/* The ids behind those that were walked, up to `last`: each step, or only those that the filter lets through. */
struct steps {
    uint64_t last;
    bool matching;
    size_t limit;
    size_t offset;
};

static void steps_sql(const struct id_walk *walk, const struct steps *steps, const char *id, struct buf *sql)
{
    buf_printf(sql, " AND %s>%llu AND %s<=%llu ORDER BY %s LIMIT %zu OFFSET %zu", id, (unsigned long long)walk->walked,
               id, (unsigned long long)steps->last, id, steps->limit, steps->offset);
}

/* Along permit_request_owner, which has one owner's requests of one state in the order of their ids. */
static void steps_of_owner_sql(const struct id_walk *walk, const struct steps *steps, int state, struct buf *sql)
{
    buf_append_text(sql, "SELECT STRAIGHT_JOIN r.id FROM permit_request r FORCE INDEX (permit_request_owner)");
    if (steps->matching && walk->semaphore_id)
        buf_printf(sql,
                   " JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id AND p.semaphore_id=%llu",
                   (unsigned long long)walk->semaphore_id);
    buf_printf(sql, " WHERE r.state=%d AND r.owner=", state);
    sql_bytes(sql, walk->filter->owner);
    steps_sql(walk, steps, "r.id", sql);
}

static void walk_sql(const struct id_walk *walk, const struct steps *steps, struct buf *sql)
{
    int state = walk->filter->state;
    if (walk->filter->owner.data && state) {
        steps_of_owner_sql(walk, steps, state, sql);
    } else if (walk->filter->owner.data) {
        buf_append_text(sql, "SELECT id FROM ((");
        steps_of_owner_sql(walk, steps, REQUEST_ACQUIRED, sql);
        buf_append_text(sql, ") UNION ALL (");
        steps_of_owner_sql(walk, steps, REQUEST_RELEASED, sql);
        buf_printf(sql, ")) u ORDER BY id LIMIT %zu", steps->limit);
    } else if (walk->semaphore_id) {
        buf_append_text(sql, "SELECT p.permit_request_id FROM permit p FORCE INDEX (permit_request) WHERE 1");
        if (steps->matching)
            buf_printf(sql, " AND p.semaphore_id=%llu", (unsigned long long)walk->semaphore_id);
        if (steps->matching && state)
            buf_printf(sql, " AND p.state=%d", state);
        steps_sql(walk, steps, "p.permit_request_id", sql);
    } else {
        buf_append_text(sql, "SELECT r.id FROM permit_request r FORCE INDEX (PRIMARY) WHERE 1");
        if (steps->matching && state)
            buf_printf(sql, " AND r.state=%d", state);
        steps_sql(walk, steps, "r.id", sql);
    }
}

/* Takes so many steps (of an owner with requests of both states perhaps twice as many). */
static enum permit_status walk_on(struct session *session, struct id_walk *walk, unsigned steps)
{
    struct buf sql;
    uint64_t last;
    size_t count;
    buf_init(&sql, QUERY_SQL_MAX);
    walk_sql(walk, &(struct steps){.last = UINT64_MAX, .limit = 1, .offset = steps - 1}, &sql);
    enum permit_status status = read_numbers(session, &sql, &last, 1, &count);
    if (status != PERMIT_OK)
        return status;
    if (count == 0)
        last = UINT64_MAX;
    buf_init(&sql, QUERY_SQL_MAX);
    walk_sql(walk, &(struct steps){.last = last, .matching = true, .limit = room(walk)}, &sql);
    status = read_numbers(session, &sql, walk->ids + walk->count, room(walk), &count);
    walk->count += count;
    walk->walked = last;
    return status;
}

static bool goes_on(const struct id_walk *walk)
{
    return walk->walked != UINT64_MAX && room(walk) > 0;
}

/* As a rule the first requests fill the page. */
static enum permit_status find_ids(struct session *session, struct id_walk *walk)
{
    bool few = false;
    enum permit_status status = walk_on(session, walk, walk->filter->limit + 1);
    if (status == PERMIT_OK && goes_on(walk))
        status = is_few(session, walk, &few);
    if (status == PERMIT_OK && few)
        status = take_few(session, walk);
    if (status == PERMIT_OK && goes_on(walk))
        status = walk_on(session, walk, QUERY_WALK_MAX);
    return status;
}

enum permit_status query_requests(struct session *session, const struct request_filter *filter, struct arena *arena,
                                  struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                  uint64_t *ret_next, struct query_time *ret_time)
{
    struct id_walk walk = {
        .filter = filter, .walked = filter->after, .ids = arena_array(arena, filter->limit + 1, sizeof *walk.ids)};
    enum permit_status status = walk.ids ? PERMIT_OK : PERMIT_NO_MEMORY;
    if (status == PERMIT_OK && filter->semaphore.data)
        status = find_semaphore(session, filter->semaphore, &walk.semaphore_id);
    if (filter->semaphore.data && !walk.semaphore_id)
        walk.walked = UINT64_MAX;
    else if (status == PERMIT_OK)
        status = find_ids(session, &walk);
    if (status != PERMIT_OK)
        return status;
    bool full = walk.count > filter->limit;
    size_t count = full ? filter->limit : walk.count;
    *ret_next = full ? walk.ids[count - 1] : walk.walked == UINT64_MAX ? 0 : walk.walked;
    return query_requests_by_id(session, walk.ids, count, arena, ret_requests, ret_names, ret_count, ret_time);
}
