/* SPDX-License-Identifier: MIT */
/*
 * A session: one connection to MariaDB or MySQL. It sets the session settings that permitd's promises need and reads
 * them back. mysql_session.c is the only file that includes <mysql.h>. One thread creates, uses and frees a session.
 *
 * Life: session_new, session_connect, packets (session_send ... session_finish), session_drop or a lost connection,
 * session_connect again, session_free. A call that fails with PERMIT_DATABASE_LOST has dropped the connection.
 */
#ifndef STORE_MYSQL_SESSION_H
#define STORE_MYSQL_SESSION_H

#include "base/base.h"
#include "base/buf.h"
#include "permit/status.h"
#include "store/open.h"

struct session;

/* Creates a session without a connection. `address` must outlive the session. NULL: out of memory. */
struct session *session_new(const struct database_address *address, enum store_use use) MUST_CHECK;
/* Closes the connection and frees the session. Accepts NULL. */
void session_free(struct session *session);
/*
 * Connects if there is no connection, sets the session settings and reads them back. If the server still has the lost
 * connection of this session, which may hold row locks, the call ends it there (KILL). Never returns
 * PERMIT_DATABASE_LOST: a connection lost during set-up is PERMIT_DATABASE_UNAVAILABLE.
 */
enum permit_status session_connect(struct session *session) MUST_CHECK;
/* Drops the connection; the next session_connect opens a new one. */
void session_drop(struct session *session);
bool session_is_connected(const struct session *session);
/* The cause of the last failure; "" if the last call succeeded (but see session_rollback). */
const char *session_message(const struct session *session);
/* Records a failure that does not come from the client library, and returns its status. */
enum permit_status session_refuse(struct session *session, enum permit_status status, const char *sentence);
/* mysql_errno of the last failure; 0 if permitd itself refused. */
unsigned session_errno(const struct session *session);
/* Returns true if the last call failed because the account lacks a right that the statement needs. */
bool session_lacks_right(const struct session *session);
/* Bytes of the longest packet, as text, that max_allowed_packet of the server allows. Valid while connected. */
size_t session_max_packet(const struct session *session);
/* True: MariaDB; false: MySQL. Valid while connected. */
bool session_is_mariadb(const struct session *session);

/*
 * A packet: one or more statements separated by ';', sent in one round trip. To send it and step through its results:
 *
 *     status = session_send(session, sql);                      statement 0 has run, or failed
 *     while (session_row(session, &row)) ... row.columns ...    its rows, if it has any
 *     status = session_next(session);                           statement 1
 *     status = session_finish(session);                         discards the other results; required after session_send
 *
 * A failure ends the packet: the statements after it did not run. The client library buffers the rows; they are valid
 * until the next call of session_next or session_finish.
 */
struct session_row {
    struct bytes *columns; /* data NULL: SQL NULL */
    unsigned count;
};
/* PERMIT_TOO_LARGE: the packet is longer than the server accepts, and was not sent. */
enum permit_status session_send(struct session *session, struct bytes sql) MUST_CHECK;
bool session_row(struct session *session, struct session_row *ret_row);
/* The number of rows that the current statement changed or returned. */
uint64_t session_affected(const struct session *session);
enum permit_status session_next(struct session *session) MUST_CHECK;
enum permit_status session_finish(struct session *session);
/*
 * Checks that a packet can be sent. PERMIT_TOO_LARGE: it is longer than the buffer's maximum, or than the server
 * accepts; PERMIT_NO_MEMORY: memory ran out while it was built.
 */
enum permit_status session_check_packet(struct session *session, const struct buf *sql) MUST_CHECK;
/* Checks and sends a packet from a buffer. */
enum permit_status session_send_buf(struct session *session, const struct buf *sql) MUST_CHECK;
/* Calls session_finish. Returns the first failure: `status`, else that of the rest of the packet. */
enum permit_status session_end(struct session *session, enum permit_status status) MUST_CHECK;
/* Sends one packet and discards its rows. */
enum permit_status session_run(struct session *session, const char *sql) MUST_CHECK;
/*
 * Ends the open transaction, if any. If that fails, drops the connection; so no transaction is open afterwards. Keeps
 * the message of the call before it, which says why the transaction failed.
 */
enum permit_status session_rollback(struct session *session);
enum permit_status session_ping(struct session *session) MUST_CHECK;

/* Converts a column to a number; 0 for NULL. */
uint64_t column_u64(struct bytes column);
int64_t column_i64(struct bytes column);

/* Maps a mysql_errno to a status: the only function that does. Unknown errors are PERMIT_INTERNAL. */
enum permit_status session_classify(unsigned mysql_errno_value);
#endif
