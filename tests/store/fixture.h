/* SPDX-License-Identifier: MIT */
/*
 * Fixture of the store's suites: one private MariaDB (or MySQL, with PERMIT_MYSQL_ROOT) for all tests, which main
 * starts before the first and stops after the last, a database for each test that asks, and temporary directories.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "mariadb/data_dir.h"
#include "store/mysql_methods.h"

/* Returns a new database of the shared server, with the schema in it. Valid until the test ends. */
const struct database_address *fresh_database(void);
/* Returns the address of a database that does not exist yet. */
const struct database_address *fresh_address(void);
/* Returns a connected session; fails the test if it cannot connect. The caller frees it. */
struct session *connected(const struct database_address *address, enum store_use use);

/* Returns a connected store, in the same way. */
struct store *opened(const struct database_address *address, enum store_use use);

/* Runs a packet; fails the test with the server's message if that fails. */
void must_run(struct session *session, const char *sql);
/* Runs a packet that may take long on a loaded machine, on a session with long timeouts. */
void must_run_long(const struct database_address *address, const char *sql);
/* Writes `held` and `waiting_due` anew from the requests and their permits, after a test has changed those itself. */
void held_rewrite(const struct database_address *address);
/* Returns the first column of the first row as a number; fails the test if there is none. */
int64_t number_of(struct session *session, const char *sql);
/* Until the session ends, no other test changes the server's max_allowed_packet, or needs the usual one. */
void lock_max_packet(struct session *session);
/* Returns the first column of the first row as text; valid until the next call. */
const char *text_of(struct session *session, const char *sql);

/* Returns the sum of the session's counters with names LIKE `names`. */
int64_t counter_of(struct session *session, const char *names);
/*
 * Returns the rows that the session has read from tables since the last call with it, without the reads of the calls.
 */
int64_t rows_read(struct session *session);
/* Returns the isolation level, such as READ-COMMITTED; valid until the next call. */
const char *isolation_of(struct session *session);
/* Returns true if the session is in a transaction. */
bool in_transaction(struct session *session);

/* EXPLAIN's row for one table of a statement. Valid until the next call of explain. */
struct explained {
    struct bytes table, type, key, extra;
    int64_t rows;
};
/* Explains the first statement of a packet: fills at most `most` entries. Returns the number of rows. */
size_t explain(struct session *session, const char *packet, struct explained *ret_tables, size_t most);

/*
 * Asserts the keys that EXPLAIN shows for a statement, table by table; NULL ends the list. None of these tables is read
 * whole, or sorted.
 */
void walks(struct session *session, const char *statement, const char *const *keys);
#define WALKS(session, statement, ...) walks(session, statement, (const char *const[]){__VA_ARGS__, NULL})

/*
 * Records what this process sends to the database, from now on until the end of the test; sent_statement is the last
 * recorded statement that begins so, without what follows it in its packet. Valid until the next call; fails the test
 * if there is none.
 */
void sent_record(void);
const char *sent_statement(const char *beginning);
/* The same of a statement that has this part, too. */
const char *sent_statement_with(const char *beginning, const char *part);
/* Returns all that was sent since sent_record. Valid until something else is sent. */
const char *sent_text(void);
/* Returns the number of these statements. */
size_t statements_sent(void);

/*
 * Creates a directory, mode 0700, which is removed with its contents when the test run ends. The caller frees the name.
 */
char *temporary_directory(void);
/* For data directories of tests, which run as root or as another user. */
#define BUFFER_POOL ((int64_t)128 << 20)
extern const struct data_dir_user root_is_allowed;
struct private_server;
/* Opens a private MariaDB, and waits until it answers. False: frees everything; `message` has the reason. */
bool server_start(const char *directory, struct private_server **ret_server, struct buf *message);
#endif
