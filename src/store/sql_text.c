/* SPDX-License-Identifier: MIT */
#include "store/sql_text.h"

#include "base/clock.h"

void sql_bytes(struct buf *sql, struct bytes bytes)
{
    buf_append(sql, "x'", 2);
    buf_append_hex(sql, bytes.data, bytes.length);
    buf_append_char(sql, '\'');
}

void sql_bytes_list(struct buf *sql, const struct bytes *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buf_append_char(sql, ',');
        sql_bytes(sql, list[i]);
    }
}

static void sql_null(struct buf *sql)
{
    buf_append(sql, "NULL", 4);
}

void sql_bytes_or_null(struct buf *sql, struct bytes bytes)
{
    if (bytes.data)
        sql_bytes(sql, bytes);
    else
        sql_null(sql);
}

void sql_text_or_null(struct buf *sql, struct bytes text)
{
    if (text.data)
        buf_append_text(sql, "_utf8mb4 ");
    sql_bytes_or_null(sql, text);
}

void sql_time(struct buf *sql, utc_us time)
{
    if (time == NEVER) {
        sql_null(sql);
        return;
    }
    char text[SQL_TIME_SIZE];
    size_t length = clock_format_sql(time, text);
    buf_append_char(sql, '\'');
    buf_append(sql, text, length);
    buf_append_char(sql, '\'');
}

void sql_ended(struct buf *sql, utc_us time)
{
    if (time == NEVER)
        buf_append_text(sql, SQL_HELD);
    else
        sql_time(sql, time);
}

void sql_ms_or_null(struct buf *sql, int64_t ms)
{
    if (ms < 0)
        sql_null(sql);
    else
        buf_append_i64(sql, ms);
}

void sql_ids(struct buf *sql, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buf_append_char(sql, ',');
        buf_append_u64(sql, ids[i]);
    }
}
