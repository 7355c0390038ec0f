/* SPDX-License-Identifier: MIT */
/* The schema: numbered migrations from sql/, embedded in the binary, applied under GET_LOCK. */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/session.h"

/*
 * Brings the database that the (SESSION_ADMIN) session is connected to, to the schema of this binary; creates the
 * database if it is missing. Refuses a schema that is newer than itself. `message` gets a sentence on failure.
 */
enum permit_status schema_apply(struct session *session, const char *database, struct buf *message) MUST_CHECK;
/*
 * How far that database is, and changes nothing: *ret_version is 0 where there is no schema or no database yet. A
 * schema that is newer than this binary's is refused with a sentence.
 */
enum permit_status schema_look(struct session *session, const char *database, unsigned *ret_version,
                               struct buf *message) MUST_CHECK;
/* The newest version this binary knows. */
unsigned schema_newest(void);
#endif
