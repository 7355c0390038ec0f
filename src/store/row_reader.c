/* SPDX-License-Identifier: MIT */
#include "store/row_reader.h"

#include <stdlib.h>

#include "base/clock.h"

/* SQL_HELD as the server prints it. */
#define ROW_HELD "9999-12-31 00:00:00.000000"

bool row_step(struct row_reader *reader, struct session *session)
{
    reader->at = 0;
    return !reader->broken && session_row(session, &reader->row);
}

struct bytes row_column(struct row_reader *reader)
{
    return reader->row.columns[reader->at++];
}

uint64_t row_u64(struct row_reader *reader)
{
    return column_u64(row_column(reader));
}

int64_t row_i64(struct row_reader *reader)
{
    return column_i64(row_column(reader));
}

/* The next column; if_null for NULL. */
static int64_t row_i64_or(struct row_reader *reader, int64_t if_null)
{
    struct bytes column = row_column(reader);
    return column.data ? column_i64(column) : if_null;
}

utc_us row_time(struct row_reader *reader)
{
    struct bytes column = row_column(reader);
    utc_us time = NEVER;
    if (!column.data || bytes_equal(column, BYTES(ROW_HELD)))
        return NEVER;
    reader->broken |= !clock_parse_sql(column, &time);
    return time;
}

void row_clock(struct row_reader *reader, struct query_time *ret_time)
{
    ret_time->now = row_time(reader);
    ret_time->clock.tick_at = row_time(reader);
    ret_time->clock.offset_us = row_i64(reader);
    ret_time->clock.epoch = row_u64(reader);
}

struct bytes row_bytes(struct row_reader *reader)
{
    struct bytes column = row_column(reader);
    if (!column.data)
        return column;
    struct bytes copy = arena_copy(reader->arena, column);
    reader->broken |= !copy.data;
    return copy;
}

bool row_decode_wanted(struct bytes wanted, struct arena *arena, struct request *request)
{
    request->wanted = wanted;
    return wants_decode(wanted, arena, &request->ttl, &request->wants, &request->want_count) == PERMIT_OK;
}

static void read_digest(struct row_reader *reader, struct request *request)
{
    struct bytes digest = row_column(reader);
    request->has_digest = digest.length == DIGEST_SIZE;
    if (request->has_digest)
        memcpy(request->digest, digest.data, DIGEST_SIZE);
}

/* `state` is before it in the list of columns. */
static void read_wanted(struct row_reader *reader, struct request *request)
{
    struct bytes wanted = row_bytes(reader);
    if (wanted.data && request->state == REQUEST_WAITING)
        reader->broken |= !row_decode_wanted(wanted, reader->arena, request);
}

/* `slots` is before it. */
static void read_labels(struct row_reader *reader, struct permit *permit)
{
    struct bytes labels = row_bytes(reader);
    if (labels.data)
        reader->broken |= !labels_parse(labels, permit->slots.count, reader->arena, &permit->labels);
}

void row_read(struct row_reader *reader, const struct row_table *table, void *ret_row)
{
    for (const struct row_column *column = table->columns; column < table->columns + table->read; column++) {
        void *member = (char *)ret_row + column->offset;
        switch (column->type) {
        case COLUMN_U64:
        case COLUMN_ID_OR_NULL: *(uint64_t *)member = row_u64(reader); break;
        case COLUMN_U32:
        case COLUMN_ENUM: *(uint32_t *)member = (uint32_t)row_u64(reader); break;
        case COLUMN_I64: *(int64_t *)member = row_i64(reader); break;
        case COLUMN_INT: *(int *)member = (int)row_i64(reader); break;
        case COLUMN_MS_OR_NULL: *(int64_t *)member = row_i64_or(reader, -1); break;
        case COLUMN_TIME:
        case COLUMN_TIME_OR_ZERO:
        case COLUMN_ENDED: *(utc_us *)member = row_time(reader); break;
        case COLUMN_BYTES:
        case COLUMN_TEXT_OR_NULL: *(struct bytes *)member = row_bytes(reader); break;
        case COLUMN_DIGEST: read_digest(reader, ret_row); break;
        case COLUMN_WANTED: read_wanted(reader, ret_row); break;
        case COLUMN_SLOTS: reader->broken |= !slots_parse(row_column(reader), reader->arena, member); break;
        case COLUMN_LABELS: read_labels(reader, ret_row); break;
        case COLUMN_LENGTH: /* these are not read */
        case COLUMN_WATCH: abort();
        }
    }
}
