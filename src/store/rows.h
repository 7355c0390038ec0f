/* SPDX-License-Identifier: MIT */
/*
 * Reads rows of the tables into the structs of core: for each table the columns to select, and a function that reads
 * them in the same order. A reader takes the columns of a row from left to right. `broken` collects failures (out of
 * memory, malformed value): check it after the last row.
 */
#ifndef STORE_ROWS_H
#define STORE_ROWS_H

#include "core/request.h"
#include "store/mysql_session.h"
#include "store/sql_text.h"

/*
 * Times are selected as the text of a DATETIME(6) and parsed here, because conversion at the server is slower.
 */

/* Columns of `semaphore` s, for row_semaphore; the last are its settings. */
#define ROW_SEMAPHORE_COLUMNS                                                                                          \
    "s.id,s.name,s.in_use,s.confirmed,s.waiting,s.next_permit_id,s.version,s.config_version,s.next_due_at,s.first_"    \
    "free,"                                                                                                            \
    "s.paused_reason,s.retired_at" SEMAPHORE_SETTINGS(ROW_SEMAPHORE_SETTING)
#define ROW_SEMAPHORE_SETTING(name, c_type, member, ...) ",s." #member

/*
 * Columns of `permit_request` r, for row_request. The last is `wanted`; it may be large, so a list selects another
 * expression for it.
 */
#define ROW_REQUEST_COLUMNS_WITH(wanted)                                                                               \
    "r.id,r.external_id,r.digest,r.owner,r.principal,r.state,r.end_reason,r.ttl_ms,r.due_at,r.grace_ms,"               \
    "r.confirmed_at,r.renewals,r.replays,r.acquired_at,r.ended_at,r.nonce,r.priority,r.place,r.waiting_since,"         \
    "r.waiting_until,r.server_id," wanted
#define ROW_REQUEST_COLUMNS ROW_REQUEST_COLUMNS_WITH("r.wanted")

/* Columns of `permit` p, for row_permit. */
#define ROW_PERMIT_COLUMNS "p.semaphore_id,p.id,p.count,p.slots,p.labels"

enum { ROW_REQUEST_COUNT = 22, ROW_PERMIT_COUNT = 5 };

struct row_reader {
    struct session_row row;
    unsigned at;         /* index of the next column */
    struct arena *arena; /* memory of copies; NULL if the caller reads no bytes */
    bool broken;         /* out of memory, or a malformed value; then row_step returns false */
};

/* Steps to the next row of the session's current statement. Returns false after the last row, and if `broken`. */
bool row_step(struct row_reader *reader, struct session *session);
/* Returns the next column without a copy, valid until the next statement; data NULL for NULL. */
struct bytes row_column(struct row_reader *reader);
/* The next column as a number; 0 for NULL. */
uint64_t row_u64(struct row_reader *reader);
int64_t row_i64(struct row_reader *reader);
/* The next column as a time; NEVER for NULL, and for SQL_HELD, which is NEVER in ended_at. */
utc_us row_time(struct row_reader *reader);
/* The next column as a copy in the arena; data NULL for NULL. */
struct bytes row_bytes(struct row_reader *reader);

void row_semaphore(struct row_reader *reader, struct semaphore *ret_semaphore);
/* Reads the columns of all settings, in the order of the table. */
void row_settings(struct row_reader *reader, struct semaphore *ret_semaphore);
/* Does not set the permits. Decodes `wanted` of a request that waits, unless it is NULL. */
void row_request(struct row_reader *reader, struct request *ret_request);
/* Sets wanted, ttl and wants of a request that waits. False: out of memory, or a malformed value. */
bool row_decode_wanted(struct bytes wanted, struct arena *arena, struct request *request) MUST_CHECK;
void row_permit(struct row_reader *reader, struct permit *ret_permit);
#endif
