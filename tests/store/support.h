/* SPDX-License-Identifier: MIT */
/*
 * What the suites of the store share: one private MariaDB for all tests, which main starts before the first and stops
 * after the last, a database of its own for each test that asks, and temporary directories.
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

/* A new directory, mode 0700, that is removed with all in it when the test run ends. The caller frees the name. */
char *temporary_directory(void);
#endif
