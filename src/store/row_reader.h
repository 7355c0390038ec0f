/* SPDX-License-Identifier: MIT */
/*
 * Reads rows of the tables (tables.h) into the structs of core. A reader takes the columns of a row from left to right.
 * `broken` collects failures (out of memory, malformed value): check it after the last row.
 */
#ifndef STORE_ROW_READER_H
#define STORE_ROW_READER_H

#include "store/mysql_session.h"
#include "store/sql_text.h"
#include "store/tables.h"

/*
 * SELECT lists for row_read: of `semaphore` s, `permit_request` r and `permit` p. Times are selected as the text of a
 * DATETIME(6) and parsed here, because conversion at the server is slower.
 */
#define ROW_SEMAPHORE_COLUMNS                                                                                          \
    SEMAPHORE_COLUMNS(SELECT_FIRST, SELECT_NEXT, "s.") SEMAPHORE_SETTINGS(ROW_SEMAPHORE_SETTING)
#define ROW_SEMAPHORE_SETTING(name, c_type, member, ...) SELECT_NEXT("s.", member, )
#define ROW_REQUEST_COLUMNS                              REQUEST_COLUMNS(SELECT_FIRST, SELECT_NEXT, "r.")
#define ROW_PERMIT_COLUMNS                               PERMIT_COLUMNS(SELECT_FIRST, SELECT_NEXT, "p.")

enum {
    ROW_REQUEST_COUNT = 0 REQUEST_COLUMNS(COLUMN_ONE, COLUMN_ONE, ),
    ROW_PERMIT_COUNT = 0 PERMIT_COLUMNS(COLUMN_ONE, COLUMN_ONE, ),
};

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
/* The next columns, which are CLOCK_COLUMNS of `cluster`. */
#define CLOCK_COLUMNS "SYSDATE(6),tick_at,offset_us,epoch"
void row_clock(struct row_reader *reader, struct query_time *ret_time);
/* The next column as a copy in the arena; data NULL for NULL. */
struct bytes row_bytes(struct row_reader *reader);

/*
 * Reads the columns of a table into its struct. Of a request it does not set the permits, and decodes `wanted` if it
 * waits, unless that is NULL.
 */
void row_read(struct row_reader *reader, const struct row_table *table, void *ret_row);
/* Sets wanted, ttl and wants of a request that waits. False: out of memory, or a malformed value. */
bool row_decode_wanted(struct bytes wanted, struct arena *arena, struct request *request) MUST_CHECK;

/* row_read with the types of its rows. */
static inline void row_semaphore(struct row_reader *reader, struct semaphore *ret_semaphore)
{
    row_read(reader, &semaphore_table, ret_semaphore);
}

static inline void row_request(struct row_reader *reader, struct request *ret_request)
{
    row_read(reader, &request_table, ret_request);
}

static inline void row_permit(struct row_reader *reader, struct permit *ret_permit)
{
    row_read(reader, &permit_table, ret_permit);
}
#endif
