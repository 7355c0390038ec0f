/* SPDX-License-Identifier: MIT */
/* What reads for lists and records have in common: one packet, its rows, last the clock. Only for query.c,
 * request_list.c, slot_list.c and history.c. */
#ifndef STORE_QUERY_PACKET_H
#define STORE_QUERY_PACKET_H

#include "store/query.h"
#include "store/rows.h"

enum { QUERY_SQL_MAX = 1 << 20 };

/* The statement that query_packet_time reads. */
#define SQL_CLOCK "SELECT " SQL_NOW_US "," SQL_US("tick_at") ",offset_us FROM cluster WHERE id=1"

/* The statement after the rows. */
enum permit_status query_packet_time(struct session *session, struct query_time *ret_time) MUST_CHECK;
/* Ends the packet and releases the text; the first failure counts. */
enum permit_status query_packet_end(struct session *session, struct buf *sql, enum permit_status status) MUST_CHECK;
/* How many rows the current statement has returned. */
size_t query_packet_rows(const struct session *session);

/* SELECT id of the semaphore with this name, also of a retired one. */
void query_any_semaphore_sql(struct buf *sql, struct bytes name);
/* AND column in [prefix, end): what begins with it; end is the prefix with its last byte that can be raised, raised. */
void query_prefix_sql(struct buf *sql, const char *column, struct bytes prefix);
/* Those of these requests that exist, in order of id, with their permits, as query_requests has them. */
enum permit_status query_requests_by_id(struct session *session, const uint64_t *ids, size_t count, struct arena *arena,
                                        struct request **ret_requests, struct bytes ***ret_names, size_t *ret_count,
                                        struct query_time *ret_time) MUST_CHECK;
#endif
