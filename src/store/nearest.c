/* SPDX-License-Identifier: MIT */

#include "base/distance.h"
#include "core/name.h"
#include "store/query_packet.h"

enum { NEIGHBOURS = 16 }; /* names compared on each side */

static const struct {
    const char *name;  /* column of the name */
    const char *there; /* SQL expression; 1: the row counts */
    const char *from;  /* table, and the unique index to walk */
} sources[] = {
    [NEAREST_SEMAPHORE] = {"name", "retired_at IS NULL", "semaphore FORCE INDEX (semaphore_name)"},
    [NEAREST_TEMPLATE] = {"prefix", "1", "template FORCE INDEX (PRIMARY)"},
    [NEAREST_OWNER] = {"name", "1", "owner FORCE INDEX (PRIMARY)"},
    [NEAREST_REQUEST] = {"external_id", "1", "permit_request FORCE INDEX (permit_request_external_id)"},
};

/* Appends a SELECT of the neighbours on one side of the name; `compare` and `order` decide which side. */
static void side_sql(struct buf *sql, enum nearest_kind kind, struct bytes name, struct bytes within,
                     const char *compare, const char *order)
{
    static const char above_namespaces[] = {NAMESPACE_MARK + 1};
    const char *column = sources[kind].name;
    buf_printf(sql, "(SELECT %s,%s FROM %s WHERE %s%s", column, sources[kind].there, sources[kind].from, column,
               compare);
    sql_bytes(sql, name);
    if (within.length) {
        query_prefix_sql(sql, column, within);
    } else {
        buf_printf(sql, " AND %s>=", column);
        sql_bytes(sql, (struct bytes){above_namespaces, sizeof above_namespaces});
    }
    buf_printf(sql, " ORDER BY %s%s LIMIT %d)", column, order, NEIGHBOURS);
}

static enum permit_status read_nearest(struct session *session, struct bytes name, struct arena *arena,
                                       struct nearest *nearest)
{
    struct row_reader reader = {.arena = arena};
    unsigned least = NAME_FAR;
    while (row_step(&reader, session)) {
        struct bytes other = row_column(&reader);
        bool is_there = row_u64(&reader);
        unsigned distance = is_there ? name_distance(name, other) : NAME_FAR;
        nearest->exists |= is_there && bytes_equal(name, other);
        if (distance == 0 || distance >= least)
            continue;
        least = distance;
        nearest->name = arena_copy(arena, other);
        if (!nearest->name.data)
            return PERMIT_NO_MEMORY;
    }
    return PERMIT_OK;
}

enum permit_status query_nearest(struct store *store, enum nearest_kind kind, struct bytes name, struct bytes within,
                                 struct arena *arena, struct nearest *ret_nearest)
{
    struct session *session = session_of(store);
    struct buf sql;
    struct nearest nearest = {0};
    buf_init(&sql, QUERY_SQL_MAX);
    side_sql(&sql, kind, name, within, ">=", "");
    buf_append_text(&sql, " UNION ALL ");
    side_sql(&sql, kind, name, within, "<", " DESC");
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK)
        status = read_nearest(session, name, arena, &nearest);
    status = query_packet_end(session, &sql, status);
    if (status == PERMIT_OK)
        *ret_nearest = nearest;
    return status;
}
