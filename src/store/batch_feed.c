/* SPDX-License-Identifier: MIT */
/* The events of a batch: few rows, each with many of them, so that an event costs the database little. */
#include "core/feed.h"
#include "store/batch.h"
#include "store/batch_guard.h"
#include "store/sql_text.h"

/* A row has so many events, or fewer if their text is that long. A reader reads whole rows. */
enum { EVENTS_A_ROW = 64, ROW_TEXT = 64 << 10 };

/* The primary key finds it: a plain read, which sees what this transaction has written. */
static void metadata_sql(uint64_t request_id, struct buf *sql)
{
    buf_printf(sql,
               ",COALESCE((SELECT CONCAT(LENGTH(m.metadata),':',m.metadata) FROM request_metadata m FORCE INDEX"
               " (PRIMARY) WHERE m.permit_request_id=%llu),'" FEED_NO_METADATA "'),",
               (unsigned long long)request_id);
}

/* Appends the text of the events from `first` on that one row has. Returns the end of them. */
static size_t events_sql(const struct changes *changes, size_t first, struct buf *sql)
{
    struct buf text;
    size_t end = first, length = 0;
    buf_init(&text, sql->max);
    buf_append_text(sql, "CONCAT(");
    while (end < changes->feed_count && end - first < EVENTS_A_ROW && length + text.length < ROW_TEXT) {
        const struct feed_event *event = &changes->feed[end++];
        feed_event_format(event, &text);
        if (!event->metadata_of) {
            buf_append_text(&text, FEED_NO_METADATA);
            continue;
        }
        sql_bytes(sql, (struct bytes){text.data, text.length});
        metadata_sql(event->metadata_of, sql);
        length += text.length;
        buf_clear(&text);
    }
    sql_bytes(sql, (struct bytes){text.data, text.length});
    buf_append_char(sql, ')');
    sql->broken |= text.broken;
    buf_release(&text);
    return end;
}

void batch_feed_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    size_t rows = 0;
    for (size_t first = 0, end; first < changes->feed_count; first = end, rows++) {
        buf_append_text(sql, rows ? ",(" : "INSERT INTO feed (events,count,at) VALUES (");
        end = events_sql(changes, first, sql);
        buf_append_char(sql, ',');
        batch_guarded_value_sql(guard, end - first, sql);
        buf_append_char(sql, ',');
        sql_time(sql, changes->wall_now);
        buf_append_char(sql, ')');
    }
    if (rows == 0)
        return;
    buf_append_char(sql, ';');
    *guard = (struct batch_guard){true, rows};
}
