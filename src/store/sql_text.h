/* SPDX-License-Identifier: MIT */
/*
 * Builds SQL text that is safe by construction: values are integers, x'..' literals, and times formatted here. Input is
 * never put between quotes as text. So no literal contains a ';' (mysql_session.c relies on it).
 */
#ifndef STORE_SQL_TEXT_H
#define STORE_SQL_TEXT_H

#include "base/base.h"
#include "base/buf.h"

/* SQL expression: a time column as microseconds since 1970; NULL for NULL. */
#define SQL_US(column) "TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," column ")"
/* SQL expression: the server's clock at execution, not at the start of the statement. */
#define SQL_NOW_US     SQL_US("SYSDATE(6)")

/* SQL expressions: the user and the host of an account USER@HOST. The user may have an @, the host has none. */
#define SQL_USER_OF(account)        "LEFT(" account ",CHAR_LENGTH(" account ")-LOCATE('@',REVERSE(" account ")))"
#define SQL_HOST_OF(account)        "SUBSTRING_INDEX(" account ",'@',-1)"
/* The same for a GRANT: 'shop'@'10.0.0.%'. */
#define SQL_QUOTED_ACCOUNT(account) "CONCAT(QUOTE(" SQL_USER_OF(account) "),'@',QUOTE(" SQL_HOST_OF(account) "))"

/* permit_request.ended_at of a held request. */
#define SQL_HELD "'9999-12-31 00:00:00'"

/* Appends x'6162'; x'' for empty bytes. */
void sql_bytes(struct buf *sql, struct bytes bytes);
/* Appends x'61',x'62': the elements as sql_bytes. */
void sql_bytes_list(struct buf *sql, const struct bytes *list, size_t count);
/* Appends as sql_bytes; NULL if data is NULL. */
void sql_bytes_or_null(struct buf *sql, struct bytes bytes);
/* Appends _utf8mb4 x'6162'; NULL if data is NULL. */
void sql_text_or_null(struct buf *sql, struct bytes text);
/* Appends '2026-11-21 09:14:31.123456'; NULL for NEVER. */
void sql_time(struct buf *sql, utc_us time);
/* Appends as sql_time; SQL_HELD for NEVER. */
void sql_ended(struct buf *sql, utc_us time);
/* Appends the number; NULL if it is negative. */
void sql_ms_or_null(struct buf *sql, int64_t ms);
/* Appends 1,2,3. */
void sql_ids(struct buf *sql, const uint64_t *ids, size_t count);
#endif
