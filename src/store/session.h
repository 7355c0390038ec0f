/* SPDX-License-Identifier: MIT */
/*
 * One connection to MariaDB or MySQL, with the session settings that our promises need, set and read back. This and
 * session.c are the only files that include <mysql.h>. A session belongs to one thread at a time; that thread has
 * called session_thread_begin.
 */
#ifndef STORE_SESSION_H
#define STORE_SESSION_H

#include "base/base.h"
#include "base/buf.h"
#include "permit/status.h"

/* Where the database is. Owns its strings (malloc'ed); NULL where not given. */
struct database_address {
    char *host;    /* NULL with a socket */
    unsigned port; /* 0: the library's default */
    char *socket;
    char *user;
    char *password;
    char *database;
    char *ssl_ca;
};

/*
 * mysql://user:password@host:port/database?socket=...&ssl_ca=... ; every part but the database may be missing; parts
 * are percent-encoded. On failure returns false with a sentence in message and *ret_address untouched.
 */
bool database_address_parse(const char *url, struct database_address *ret_address, struct buf *message) MUST_CHECK;
void database_address_release(struct database_address *address);
/* The address without the password, for logs. */
void database_address_print(const struct database_address *address, struct buf *out);

enum session_use {
    SESSION_WORKER, /* batches: short time-outs, so that a stopped permitd frees its rows */
    SESSION_READER, /* status, work in the background */
    SESSION_LIST,   /* lists: the server ends a statement after some seconds, with PERMIT_BUSY */
    SESSION_PROBE,  /* whether the server answers: a second is long */
    SESSION_ADMIN,  /* schema: no short time-outs; the database need not exist yet */
};

struct session;

/* Before any thread, and at the very end. */
bool session_library_begin(void) MUST_CHECK;
void session_library_end(void);
/* In each thread that uses a session. */
void session_thread_begin(void);
void session_thread_end(void);

/* Connects to nothing yet. `address` must outlive the session. NULL: no memory. */
struct session *session_new(const struct database_address *address, enum session_use use) MUST_CHECK;
void session_free(struct session *session);
/*
 * Connects if there is no connection, sets the session up, and reads it back. If a connection was lost in
 * mid-transaction, first makes sure that the server ends it (KILL), if it is the server that still has it.
 */
enum permit_status session_connect(struct session *session) MUST_CHECK;
/* Drops the connection; the next session_connect makes another one. */
void session_drop(struct session *session);
bool session_is_connected(const struct session *session);
/* Why the last call failed; "" if it did not. */
const char *session_message(const struct session *session);
/* mysql_errno of the last failure; 0 if it came from elsewhere. For metrics and doctor. */
unsigned session_errno(const struct session *session);
size_t session_max_packet(const struct session *session);
/* True: MariaDB; false: MySQL. Valid while connected. */
bool session_is_mariadb(const struct session *session);

/*
 * Sends one packet of one or more statements separated by ';' and steps through its results:
 *
 *     status = session_send(session, sql);                      statement 0 has run, or failed
 *     while (session_row(session, &row)) ... row.columns ...    its rows, if it has any
 *     status = session_next(session);                           statement 1
 *     status = session_finish(session);                         discards what was not read; must end each session_send
 *
 * Any failure ends the packet: the statements after it did not run. Rows are buffered by the client library and valid
 * until the next call of session_next or session_finish.
 */
struct session_row {
    struct bytes *columns; /* data NULL: SQL NULL */
    unsigned count;
};
enum permit_status session_send(struct session *session, struct bytes sql) MUST_CHECK;
bool session_row(struct session *session, struct session_row *ret_row);
/* Rows that the current statement changed or returned. */
uint64_t session_affected(const struct session *session);
enum permit_status session_next(struct session *session) MUST_CHECK;
enum permit_status session_finish(struct session *session);
/* session_send of a text that was built here: PERMIT_NO_MEMORY if it is not whole. */
enum permit_status session_send_buf(struct session *session, const struct buf *sql) MUST_CHECK;
/* session_finish, and the first failure: `status` if that is one, else what the rest of the packet came to. */
enum permit_status session_end(struct session *session, enum permit_status status) MUST_CHECK;
/* One packet whose rows nobody wants: sends, runs through all its results. */
enum permit_status session_run(struct session *session, const char *sql) MUST_CHECK;
enum permit_status session_ping(struct session *session) MUST_CHECK;

/* A column as a number; 0 if NULL. */
uint64_t column_u64(struct bytes column);
int64_t column_i64(struct bytes column);

/* What a mysql_errno means to us. The one function that knows. */
enum permit_status session_classify(unsigned mysql_errno_value);
#endif
