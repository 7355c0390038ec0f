/* SPDX-License-Identifier: MIT */
/* The events of a batch: few rows, each with many of them, so that an event costs the database little. */
#include "core/feed.h"
#include "store/batch.h"
#include "store/batch_guard.h"
#include "store/sql_text.h"

/* A row has so many events, or fewer if their text is that long. A reader reads whole rows. */
enum { EVENTS_A_ROW = 64, ROW_TEXT = 64 << 10 };

/* Formats the events from `first` on that one row has. Returns the end of them. */
static size_t format_row(const struct changes *changes, size_t first, struct buf *text)
{
    size_t end = first;
    buf_clear(text);
    while (end < changes->feed_count && end - first < EVENTS_A_ROW && text->length < ROW_TEXT)
        feed_event_format(&changes->feed[end++], text);
    return end;
}

void batch_feed_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct buf text;
    size_t rows = 0;
    buf_init(&text, sql->max);
    for (size_t first = 0, end; first < changes->feed_count; first = end) {
        end = format_row(changes, first, &text);
        buf_append_text(sql, rows++ ? ",(" : "INSERT INTO feed (count,at,events) VALUES (");
        batch_guarded_value_sql(guard, end - first, sql);
        buf_append_char(sql, ',');
        sql_time(sql, changes->wall_now);
        buf_append_char(sql, ',');
        sql_bytes(sql, (struct bytes){text.data, text.length});
        buf_append_char(sql, ')');
    }
    sql->broken |= text.broken;
    buf_release(&text);
    if (rows == 0)
        return;
    buf_append_char(sql, ';');
    *guard = (struct batch_guard){true, rows};
}
