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

enum permit_status query_nearest(struct store *store, enum nearest_kind kind, struct bytes name, struct bytes within,
                                 struct arena *arena, struct nearest *ret_nearest)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct nearest nearest = {0};
    unsigned least = NAME_FAR;
    side_sql(&packet.sql, kind, name, within, ">=", "");
    buf_append_text(&packet.sql, " UNION ALL ");
    side_sql(&packet.sql, kind, name, within, "<", " DESC");
    packet_send(&packet);
    while (packet_row(&packet)) {
        struct bytes other = row_column(&packet.row);
        bool is_there = row_u64(&packet.row);
        unsigned distance = is_there ? name_distance(name, other) : NAME_FAR;
        nearest.exists |= is_there && bytes_equal(name, other);
        if (distance == 0 || distance >= least)
            continue;
        least = distance;
        nearest.name = arena_copy(arena, other);
        packet.row.broken |= !nearest.name.data;
    }
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_nearest = nearest;
    return status;
}
