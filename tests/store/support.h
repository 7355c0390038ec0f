/* SPDX-License-Identifier: MIT */
/*
 * What the suites of the store share: one private MariaDB (or MySQL, with PERMIT_MYSQL_ROOT) for all tests, which main
 * starts before the first and stops after the last, a database of its own for each test that asks, and temporary
 * directories.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "store/session.h"

/* A database of the shared server with the schema in it; no other test has it. Lives as long as the test. */
const struct database_address *fresh_database(void);
/* The same without the database: its name is free. */
const struct database_address *fresh_address(void);
/* Connected; the test fails if that fails. The caller frees it. */
struct session *connected(const struct database_address *address, enum session_use use);

/* Runs it and fails the test with the server's words if that fails. */
void must_run(struct session *session, const char *sql);
/* The same for what may take long on a loaded machine: no other session has the patience. */
void must_run_long(const struct database_address *address, const char *sql);
/* The first column of the first row as a number; fails the test if there is none. */
int64_t number_of(struct session *session, const char *sql);
/* The first column of the first row as text; valid until the next call. */
const char *text_of(struct session *session, const char *sql);

/* The sum of the session's counters whose names are LIKE this. */
int64_t counter_of(struct session *session, const char *names);
/* Rows that the session has read from tables since the last call with it, without what the calls have read. */
int64_t rows_read(struct session *session);
/* READ-COMMITTED and so on; valid until the next call. */
const char *isolation_of(struct session *session);
/* Whether the session is in a transaction. */
bool in_transaction(struct session *session);

/* What EXPLAIN says of one table of a statement. Valid until the next call of explain. */
struct explained {
    struct bytes table, type, key, extra;
    int64_t rows;
};
/* Explains the first statement of a packet: fills at most `most` entries, returns how many there are. */
size_t explain(struct session *session, const char *packet, struct explained *ret_tables, size_t most);

/* A new directory, mode 0700, that is removed with all in it when the test run ends. The caller frees the name. */
char *temporary_directory(void);
#endif
