/* SPDX-License-Identifier: MIT */
#include "store/rows.h"

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

struct bytes row_bytes(struct row_reader *reader)
{
    struct bytes column = row_column(reader);
    if (!column.data)
        return column;
    struct bytes copy = arena_copy(reader->arena, column);
    reader->broken |= !copy.data;
    return copy;
}

void row_settings(struct row_reader *reader, struct semaphore *ret_semaphore)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct semaphore_setting *setting = &semaphore_settings[i];
        if (setting->type == SETTING_TEXT)
            setting_set_text(setting, ret_semaphore, row_bytes(reader));
        else
            setting_set_number(setting, ret_semaphore, row_i64_or(reader, SETTING_NONE));
    }
}

void row_semaphore(struct row_reader *reader, struct semaphore *ret_semaphore)
{
    ret_semaphore->id = row_u64(reader);
    ret_semaphore->name = row_bytes(reader);
    ret_semaphore->in_use = row_i64(reader);
    ret_semaphore->confirmed = row_i64(reader);
    ret_semaphore->waiting = row_i64(reader);
    ret_semaphore->next_permit_id = row_u64(reader);
    ret_semaphore->version = row_u64(reader);
    ret_semaphore->config_version = row_u64(reader);
    ret_semaphore->next_due_at = row_time(reader);
    ret_semaphore->first_free = (uint32_t)row_u64(reader);
    ret_semaphore->paused_reason = row_bytes(reader);
    ret_semaphore->retired_at = row_time(reader);
    row_settings(reader, ret_semaphore);
}

void row_request(struct row_reader *reader, struct request *ret_request)
{
    ret_request->id = row_u64(reader);
    ret_request->external_id = row_bytes(reader);
    struct bytes digest = row_column(reader);
    ret_request->has_digest = digest.length == DIGEST_SIZE;
    if (ret_request->has_digest)
        memcpy(ret_request->digest, digest.data, DIGEST_SIZE);
    ret_request->owner = row_bytes(reader);
    ret_request->principal = row_bytes(reader);
    ret_request->state = (enum request_state)row_u64(reader);
    ret_request->end_reason = (enum end_reason)row_u64(reader);
    ret_request->ttl_ms = row_i64_or(reader, TTL_NONE);
    ret_request->due_at = row_time(reader);
    ret_request->grace_ms = row_i64(reader);
    ret_request->confirmed_at = row_time(reader);
    ret_request->renewals = (uint32_t)row_u64(reader);
    ret_request->replays = (uint32_t)row_u64(reader);
    ret_request->acquired_at = row_time(reader);
    ret_request->ended_at = row_time(reader);
    ret_request->nonce = row_bytes(reader);
    ret_request->priority = (int)row_i64(reader);
    ret_request->place = row_time(reader);
    ret_request->waiting_since = row_time(reader);
    ret_request->waiting_until = row_time(reader);
    ret_request->server_id = row_u64(reader);
    struct bytes wanted = row_bytes(reader);
    if (wanted.data && ret_request->state == REQUEST_WAITING)
        reader->broken |= !row_decode_wanted(wanted, reader->arena, ret_request);
}

bool row_decode_wanted(struct bytes wanted, struct arena *arena, struct request *request)
{
    request->wanted = wanted;
    return wants_decode(wanted, arena, &request->ttl, &request->wants, &request->want_count) == PERMIT_OK;
}

void row_permit(struct row_reader *reader, struct permit *ret_permit)
{
    ret_permit->semaphore_id = row_u64(reader);
    ret_permit->token = row_u64(reader);
    ret_permit->count = row_i64(reader);
    reader->broken |= !slots_parse(row_column(reader), reader->arena, &ret_permit->slots);
    struct bytes labels = row_bytes(reader);
    if (labels.data)
        reader->broken |= !labels_parse(labels, ret_permit->slots.count, reader->arena, &ret_permit->labels);
}
