/* SPDX-License-Identifier: MIT */
/*
 * A packet of SQL with its rows and its first failure. After a failure the functions do nothing, so a call is one story
 * and looks at the status where it decides something, and at the end:
 *
 *     struct packet packet = packet_begin(session, arena);
 *     buf_append_text(&packet.sql, "SELECT ...; SELECT ...");
 *     packet_send(&packet);                                          statement 0 has run
 *     while (packet_row(&packet)) ... row_u64(&packet.row) ...       its rows
 *     packet_next(&packet);                                          statement 1
 *     return packet_end(&packet);                                    required
 */
#ifndef STORE_PACKET_H
#define STORE_PACKET_H

#include "store/mysql_methods.h"
#include "store/row_reader.h"

struct packet {
    struct session *session;
    struct buf sql;            /* the text to send */
    struct row_reader row;     /* the current row; a failure of its memory or its values is one of the packet */
    enum permit_status status; /* first failure; PERMIT_OK: none, so far */
    bool sent;                 /* there are results to discard */
};

/* Begins a packet, or several, one after the other. `arena` has the copies of its rows; NULL if none is made. */
struct packet packet_begin(struct session *session, struct arena *arena);
/* Discards the results of the packet before, sends `sql` and clears it. */
void packet_send(struct packet *packet);
/* Steps to the next statement. */
void packet_next(struct packet *packet);
/* Steps to the next row of the statement. Returns false after the last row, and after a failure. */
bool packet_row(struct packet *packet);
/* Steps to the only row of the statement. Without one it returns false, and the packet fails with `absent`. */
bool packet_only_row(struct packet *packet, enum permit_status absent);
/* Returns whether all went well so far, with the values of the rows. */
bool packet_works(struct packet *packet);
/* Makes the packet fail, unless it has. */
void packet_fail(struct packet *packet, enum permit_status status);
/*
 * Allocates an array with an element, of `size` bytes and zeroed, for each row of the statement, in the arena. NULL,
 * and a count of 0: there are no rows, or the packet failed.
 */
void *packet_rows(struct packet *packet, size_t size, size_t *ret_count);
/* Steps to the next statement, which is SQL_CLOCK, and reads it. */
void packet_time(struct packet *packet, struct query_time *ret_time);
/* Discards the other results; a failure of one of them is one of the packet. */
void packet_finish(struct packet *packet);
/* The same, and releases the text. Returns the first failure. */
enum permit_status packet_end(struct packet *packet) MUST_CHECK;
/* Ends the packet, which is a transaction: sends the rest with COMMIT. After a failure it rolls back. */
enum permit_status packet_commit(struct packet *packet) MUST_CHECK;
#endif
