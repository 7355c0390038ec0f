/* SPDX-License-Identifier: MIT */
/*
 * The list of requests by owner, semaphore and state. A filter may match few of many requests, and ended ones have no
 * index by owner. So the list walks requests in order of id, or the permits in order of the id of their request, and a
 * page ends after QUERY_WALK_MAX of them, full or not. If the tables of what is live, or the permits of the semaphore,
 * have few rows of the filter, the list reads and sorts all of them instead. It always reads and sorts the whole queue
 * of a semaphore, which is bounded.
 */
#include "store/held.h"
#include "store/query_packet.h"

struct id_walk {
    const struct request_filter *filter;
    uint64_t semaphore_id; /* 0: any */
    uint64_t walked;       /* last id walked; UINT64_MAX: the walk has passed the last request */
    unsigned limit;        /* of the page */
    uint64_t *ids;         /* matching requests; room for limit + 1 */
    size_t count;
};

/* Runs one statement that selects numbers; reads at most `max` of them and returns how many. */
static size_t read_numbers(struct packet *packet, uint64_t *ret_numbers, size_t max)
{
    size_t count = 0;
    packet_send(packet);
    while (count < max && packet_row(packet))
        ret_numbers[count++] = row_u64(&packet->row);
    return count;
}

static size_t ids_left(const struct id_walk *walk)
{
    return walk->limit + 1 - walk->count;
}

/* ---- parts of the statements ---- */

/* A SELECT of ids after the walked ones. */
struct steps {
    uint64_t last; /* maximum id */
    bool matching; /* true: only requests that match the filter; false: every request of the walk */
    size_t limit;
    size_t offset;
};

static void steps_sql(const struct id_walk *walk, const struct steps *steps, const char *id, struct buf *sql)
{
    buf_printf(sql, " AND %s>%llu AND %s<=%llu ORDER BY %s LIMIT %zu OFFSET %zu", id, (unsigned long long)walk->walked,
               id, (unsigned long long)steps->last, id, steps->limit, steps->offset);
}

/* Appends the conditions of the filter on a request r. */
static void request_conditions_sql(const struct request_filter *filter, struct buf *sql)
{
    if (filter->state)
        buf_printf(sql, " AND r.state=%d", filter->state);
    if (!filter->owner.data)
        return;
    buf_append_text(sql, " AND r.owner=");
    sql_bytes(sql, filter->owner);
}

#define REQUEST_OF(alias) " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=" alias ".permit_request_id"

/* Returns true if only waiting requests of a semaphore may match. */
static bool is_in_queue(const struct id_walk *walk)
{
    return walk->semaphore_id && walk->filter->state == REQUEST_WAITING;
}

/* Walks the whole queue of the semaphore and sorts it. */
static void steps_of_queue_sql(const struct id_walk *walk, const struct steps *steps, struct buf *sql)
{
    buf_append_text(
        sql, "SELECT STRAIGHT_JOIN w.permit_request_id AS id FROM waiter w FORCE INDEX (PRIMARY)" REQUEST_OF("w"));
    buf_printf(sql, " WHERE w.semaphore_id=%llu", (unsigned long long)walk->semaphore_id);
    request_conditions_sql(walk->filter, sql);
    steps_sql(walk, steps, "w.permit_request_id", sql);
}

/* Returns true if waiting requests of a semaphore match as well as those with permits of it. */
static bool has_queue(const struct id_walk *walk, const struct steps *steps)
{
    return walk->semaphore_id && !walk->filter->state && steps->matching;
}

/* Adds them to a SELECT of permits that begins with '('. */
static void and_queue_sql(const struct id_walk *walk, const struct steps *steps, struct buf *sql)
{
    buf_append_text(sql, ") UNION ALL (");
    steps_of_queue_sql(walk, steps, sql);
    buf_printf(sql, ") ORDER BY id LIMIT %zu", steps->limit);
}

/* ---- few matches ---- */

/* A table whose rows lead to all requests that may match, but not in order of id. */
struct source {
    const char *table;        /* with its index */
    const char *join;         /* joins the requests r */
    const char *owner;        /* the column that the filter names; NULL: none */
    const char *semaphore_id; /* the same */
    const char *counted;      /* the columns from which `count` is computed */
    const char *count;        /* expression over all rows: rows or requests, the larger number */
};

#define HELD_COUNTED "bits", "GREATEST(COUNT(*),COALESCE(SUM(BIT_COUNT(bits)),0))"
static const struct source held_of_owner = {"held h FORCE INDEX (held_owner)", HELD_REQUESTS, "h.owner",
                                            "h.semaphore_id", HELD_COUNTED};
static const struct source held_of_semaphores = {"held h FORCE INDEX (PRIMARY)", HELD_REQUESTS, NULL, "h.semaphore_id",
                                                 HELD_COUNTED};
static const struct source waiting = {
    "waiting_due w FORCE INDEX (PRIMARY)", REQUEST_OF("w"), NULL, NULL, "1", "COUNT(*)"};
static const struct source permits = {
    "permit p FORCE INDEX (PRIMARY)", REQUEST_OF("p"), NULL, "p.semaphore_id", "1", "COUNT(*)"};

/* Returns NULL if no table has less than all requests. */
static const struct source *source_of(const struct id_walk *walk)
{
    if (walk->filter->state == REQUEST_ACQUIRED)
        return walk->filter->owner.data ? &held_of_owner : &held_of_semaphores;
    if (walk->semaphore_id)
        return &permits;
    return walk->filter->state == REQUEST_WAITING ? &waiting : NULL;
}

/* Appends FROM and WHERE; `join` is "" or that of the source. */
static void source_sql(const struct id_walk *walk, const struct source *source, const char *join, struct buf *sql)
{
    buf_printf(sql, " FROM %s%s WHERE 1", source->table, join);
    if (walk->semaphore_id)
        buf_printf(sql, " AND %s=%llu", source->semaphore_id, (unsigned long long)walk->semaphore_id);
    if (!source->owner)
        return;
    buf_printf(sql, " AND %s=", source->owner);
    sql_bytes(sql, walk->filter->owner);
}

/* Returns true if the source has at most QUERY_WALK_MAX rows, and bits. */
static bool is_few(struct packet *packet, const struct id_walk *walk)
{
    const struct source *source = source_of(walk);
    uint64_t number = 0;
    if (!source)
        return false;
    buf_printf(&packet->sql, "SELECT %s FROM (SELECT %s", source->count, source->counted);
    source_sql(walk, source, "", &packet->sql);
    buf_printf(&packet->sql, " LIMIT %d) f", QUERY_WALK_MAX + 1);
    return read_numbers(packet, &number, 1) && number <= QUERY_WALK_MAX;
}

/*
 * Takes the matches after the walked ids. The server reads and sorts all of them. DISTINCT: a request has a bit for
 * each of its permits.
 */
static void take_few(struct packet *packet, struct id_walk *walk)
{
    const struct source *source = source_of(walk);
    const struct steps all = {.last = UINT64_MAX, .matching = true, .limit = ids_left(walk)};
    buf_append_text(&packet->sql, has_queue(walk, &all) ? "(" : "");
    buf_append_text(&packet->sql, "SELECT STRAIGHT_JOIN DISTINCT r.id AS id");
    source_sql(walk, source, source->join, &packet->sql);
    request_conditions_sql(walk->filter, &packet->sql);
    steps_sql(walk, &all, "r.id", &packet->sql);
    if (has_queue(walk, &all))
        and_queue_sql(walk, &all, &packet->sql);
    walk->count += read_numbers(packet, walk->ids + walk->count, ids_left(walk));
    walk->walked = UINT64_MAX;
}

/* ---- the walk ---- */

/* Walks KEY permit_request of permit, which has the requests with permits in order of id. */
static void steps_of_permits_sql(const struct id_walk *walk, const struct steps *steps, struct buf *sql)
{
    const struct request_filter *filter = walk->filter;
    bool joined = steps->matching && (filter->owner.data || filter->state);
    buf_append_text(sql, "SELECT STRAIGHT_JOIN p.permit_request_id AS id FROM permit p FORCE INDEX (permit_request)");
    buf_append_text(sql, joined ? REQUEST_OF("p") " WHERE 1" : " WHERE 1");
    if (joined)
        request_conditions_sql(filter, sql);
    if (steps->matching)
        buf_printf(sql, " AND p.semaphore_id=%llu", (unsigned long long)walk->semaphore_id);
    steps_sql(walk, steps, "p.permit_request_id", sql);
}

static void walk_sql(const struct id_walk *walk, const struct steps *steps, struct buf *sql)
{
    if (is_in_queue(walk)) {
        steps_of_queue_sql(walk, steps, sql);
    } else if (walk->semaphore_id) {
        buf_append_text(sql, has_queue(walk, steps) ? "(" : "");
        steps_of_permits_sql(walk, steps, sql);
        if (has_queue(walk, steps))
            and_queue_sql(walk, steps, sql);
    } else {
        buf_append_text(sql, "SELECT r.id FROM permit_request r FORCE INDEX (PRIMARY) WHERE 1");
        if (steps->matching)
            request_conditions_sql(walk->filter, sql);
        steps_sql(walk, steps, "r.id", sql);
    }
}

/* Walks the next `steps` requests, if the walk is not at its end and the page is not full. */
static void walk_next(struct packet *packet, struct id_walk *walk, unsigned steps)
{
    uint64_t last = UINT64_MAX;
    if (walk->walked == UINT64_MAX || ids_left(walk) == 0)
        return;
    if (!is_in_queue(walk)) {
        walk_sql(walk, &(struct steps){.last = UINT64_MAX, .limit = 1, .offset = steps - 1}, &packet->sql);
        if (read_numbers(packet, &last, 1) == 0)
            last = UINT64_MAX;
    }
    walk_sql(walk, &(struct steps){.last = last, .matching = true, .limit = ids_left(walk)}, &packet->sql);
    walk->count += read_numbers(packet, walk->ids + walk->count, ids_left(walk));
    walk->walked = last;
}

enum permit_status query_requests(struct store *store, const struct request_filter *filter, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    struct id_walk walk = {
        .filter = filter,
        .walked = page->after.number,
        .limit = page->limit,
        .ids = arena_array(page->arena, page->limit + 1, sizeof *walk.ids),
    };
    packet.row.broken = !walk.ids;
    if (filter->semaphore.data) { /* a constant id lets the walk filter by index only; a subquery would not */
        query_any_semaphore_sql(&packet.sql, filter->semaphore);
        if (read_numbers(&packet, &walk.semaphore_id, 1) == 0)
            walk.walked = UINT64_MAX;
    }
    walk_next(&packet, &walk, walk.limit + 1); /* the first requests usually suffice */
    if (walk.walked != UINT64_MAX && ids_left(&walk) > 0 && is_few(&packet, &walk))
        take_few(&packet, &walk);
    walk_next(&packet, &walk, QUERY_WALK_MAX);
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    page_end(page, walk.count);
    page->next.number = page->more ? walk.ids[page->count - 1] : walk.walked;
    page->more |= walk.walked != UINT64_MAX;
    return query_requests_by_id(session_of(store), walk.ids, page->count, page);
}
