/* SPDX-License-Identifier: MIT */
/*
 * SQL as text that is safe by construction: values are integers, x'..' literals and times of our own making; nothing
 * that came from outside is ever quoted.
 */
#ifndef STORE_SQL_TEXT_H
#define STORE_SQL_TEXT_H

#include "base/base.h"
#include "base/buf.h"

/* A column as microseconds since 1970; NULL stays NULL. */
#define SQL_US(column) "TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," column ")"
/* The server's clock now, not at the start of the transaction. */
#define SQL_NOW_US     SQL_US("SYSDATE(6)")

/* permit_request.ended_at of what is still held. */
#define SQL_HELD "'9999-12-31 00:00:00'"

/* x'6162'; '' for nothing. */
void sql_bytes(struct buf *sql, struct bytes bytes);
/* As sql_bytes, but NULL where data is NULL. */
void sql_bytes_or_null(struct buf *sql, struct bytes bytes);
/* x'..' as utf8mb4 text, or NULL where data is NULL. */
void sql_text_or_null(struct buf *sql, struct bytes text);
/* '2026-11-21 09:14:31.123456', or NULL for NEVER. */
void sql_time(struct buf *sql, utc_us time);
/* As sql_time, but SQL_HELD for NEVER. */
void sql_ended(struct buf *sql, utc_us time);
/* The number, or NULL for a negative one. */
void sql_ms_or_null(struct buf *sql, int64_t ms);
/* 1,2,3 */
void sql_ids(struct buf *sql, const uint64_t *ids, size_t count);
#endif
