/* SPDX-License-Identifier: MIT */
/* The schema: numbered migrations from sql/, embedded in the binary, applied under GET_LOCK. */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/session.h"

/*
 * Brings the database that the (SESSION_ADMIN) session is connected to, to the schema of this binary; creates the
 * database if it is missing. `message` gets a sentence on failure. Refuses, and then changes nothing: a schema that is
 * newer than itself; a table that has the name of one of permitd's and is not permitd's.
 */
enum permit_status schema_apply(struct session *session, const char *database, struct buf *message) MUST_CHECK;
/*
 * How far that database is, and changes nothing: *ret_version is 0 where there is no schema or no database yet. Refuses
 * the same as schema_apply.
 */
enum permit_status schema_look(struct session *session, const char *database, unsigned *ret_version,
                               struct buf *message) MUST_CHECK;
/* The newest version this binary knows. */
unsigned schema_newest(void);
/* Appends what is true in information_schema of the tables of this database that have a name of permitd's. */
void schema_append_condition(struct buf *sql);
#endif
