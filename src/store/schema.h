/* SPDX-License-Identifier: MIT */
/* The schema: applies the numbered migrations of sql/, which are embedded in the binary, under a named lock. */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/migrations.h"
#include "store/mysql_session.h"

/*
 * Connects the session (STORE_SCHEMA or STORE_ADMIN), creates the database if it is missing, and applies the migrations
 * it lacks. On failure `message` has the cause. PERMIT_LOCK_TIMEOUT: a statement has waited 1 s for a transaction that is
 * open; the next call goes on from there. Refuses, without any change, a schema that is newer than this binary or
 * older than the version before the baseline, and a table of another program with a name of permitd's.
 */
enum permit_status schema_apply(struct session *session, const char *database, struct buf *message) MUST_CHECK;
/*
 * Reads the schema version of the database, without any change: the newest complete migration; 0 if there is no schema
 * or no database. The session is connected. Refuses the same as schema_apply.
 */
enum permit_status schema_read_version(struct session *session, const char *database, unsigned *ret_version,
                                       struct buf *message) MUST_CHECK;
/* The state of a database's schema. */
struct schema_progress {
    bool recorded;       /* the table schema_version exists */
    unsigned version;    /* the newest migration that was started; 0: none */
    unsigned statements; /* number of its statements that are done */
    bool complete;       /* all of them are done */
    bool before;         /* it is the version before the baseline, with the same tables */
};
/* Reads the table schema_version, which exists. */
enum permit_status schema_read_progress(struct session *session, struct schema_progress *ret_progress) MUST_CHECK;
/* Returns true for a schema that this permitd neither made nor upgrades; appends why, and what to do. */
bool schema_is_refused(const struct schema_progress *progress, struct buf *message);
/* Returns the newest version that this binary knows. */
unsigned schema_newest(void);
/*
 * Reads the next statement of *text, with the comments before it and without its ';', and advances *text. A statement
 * ends with a ';' at the end of a line. Returns false at the end of the text.
 */
bool statement_next(const char **text, struct bytes *ret_statement);
/*
 * Appends a condition for information_schema.TABLES and COLUMNS that selects the tables of the current database with a
 * name of permitd's.
 */
void schema_append_condition(struct buf *sql);
#endif
