/* SPDX-License-Identifier: MIT */
/*
 * The common parts of queries: a query is one packet with its rows and, last, the clock. Internal to store/.
 */
#ifndef STORE_QUERY_PACKET_H
#define STORE_QUERY_PACKET_H

#include "store/packet.h"

/* The statement whose result packet_time reads. */
#define SQL_CLOCK "SELECT " CLOCK_COLUMNS " FROM cluster WHERE id=1"

/* SQL: the rows w of a queue with their requests r. */
#define QUERY_QUEUE                                                                                                    \
    " FROM waiter w FORCE INDEX (PRIMARY) JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=w.permit_request_id"
/* SQL: joins the server of a client that asks for the place; a place without one is kept. */
#define QUERY_LIVING_SERVER " JOIN server v FORCE INDEX (PRIMARY) ON v.id=r.server_id AND v.dead_at IS NULL"

/*
 * Sends a packet that begins with query_semaphore_sql or query_any_semaphore_sql, and steps to the statement behind it.
 * The packet fails with PERMIT_UNKNOWN_SEMAPHORE if there is no such semaphore.
 */
void packet_send_of_semaphore(struct packet *packet);

/* Appends the AND condition that a waiter w stands on this side of a position: '<' before it, '>' behind it. */
void query_side_sql(char side, utc_us place, uint64_t request_id, struct buf *sql);
/* Appends a SELECT of the id of the semaphore with this name, if it is not retired. */
void query_semaphore_sql(struct buf *sql, struct bytes name);
/* The same, retired or not. */
void query_any_semaphore_sql(struct buf *sql, struct bytes name);
/*
 * Appends AND conditions that are true if `column` begins with `prefix`: a range from the prefix to its successor, the
 * prefix whose last byte below 0xff is incremented. An empty prefix appends nothing.
 */
void query_prefix_sql(struct buf *sql, const char *column, struct bytes prefix);
/* Reads the requests with these ids that still exist, in order of id: rows, count and time of the page. */
enum permit_status query_requests_by_id(struct session *session, const uint64_t *ids, size_t count,
                                        struct page *page) MUST_CHECK;
/* Sets the names of the semaphores that waiting requests want, and sorts the wants of each by name. */
enum permit_status query_name_wants(struct session *session, struct listed_request *rows, size_t count,
                                    struct arena *arena) MUST_CHECK;

/* Methods of mysql_queries that are not in query.c. */
enum permit_status query_requests(struct store *store, const struct request_filter *filter, struct page *page);
enum permit_status query_waiters(struct store *store, struct bytes semaphore, struct page *page);
enum permit_status query_kept_until(struct store *store, const struct request *requests, size_t count, size_t stride,
                                    const struct query_time *time, struct arena *arena, utc_us **ret_until);
enum permit_status query_ahead(struct store *store, const struct request *request, struct arena *arena,
                               struct queue_position **ret_positions, bool *ret_kept);
enum permit_status query_fronts(struct store *store, const uint64_t *semaphore_ids, size_t count, struct arena *arena,
                                struct semaphore_front *ret_fronts, struct query_time *ret_time);
enum permit_status query_reservers(struct store *store, const struct request *request, utc_us aged, struct arena *arena,
                                   struct reserver *ret_reservers);
enum permit_status query_held_at(struct store *store, const struct request_filter *filter, struct page *page);
enum permit_status query_permits(struct store *store, uint64_t semaphore_id, struct page *page);
enum permit_status query_events(struct store *store, struct bytes semaphore, struct page *page);
enum permit_status query_nearest(struct store *store, enum nearest_kind kind, struct bytes name, struct bytes within,
                                 struct arena *arena, struct nearest *ret_nearest);
enum permit_status query_availability(struct store *store, struct availability_read *read, struct arena *arena);
enum permit_status query_slot_list_head(struct store *store, struct bytes semaphore, struct slot_list_head *ret_head);
enum permit_status query_slots(struct store *store, uint64_t semaphore_id, const struct slot_filter *filter,
                               struct page *page);
enum permit_status query_due(struct store *store, struct due_page *page, struct arena *arena);
enum permit_status query_errands(struct store *store, struct errand_page *page, struct arena *arena);
#endif
