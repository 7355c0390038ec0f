/* SPDX-License-Identifier: MIT */
/* GET /v1/locks: the transactions that lock permitd's rows, and the last deadlock. */
#include "store/locks.h"

#include "api/json_out.h"
#include "api/queries.h"
#include "api/routes.h"
#include "api/service.h"
#include "store/store.h"

static void write_member_text_or_null(struct buf *out, const char *name, struct bytes text)
{
    if (text.data)
        write_member_text(out, name, text);
    else
        buf_printf(out, ",\"%s\":null", name);
}

static void write_lock(struct exchange *exchange, const struct lock_row *row, utc_us now)
{
    struct buf *out = &exchange->answer.body;
    const struct viewer viewer = viewer_of(exchange);
    buf_append_text(out, "{\"connection\":");
    buf_append_u64(out, row->connection);
    write_member_text_or_null(out, "account", row->account);
    buf_append_text(out, ",\"since\":");
    write_time(out, row->since);
    write_member_i64(out, "open_ms", max_i64(0, now - row->since) / US_PER_MS);
    write_member_text_or_null(out, "statement", row->statement);
    write_member_bool(out, "running", row->running);
    write_member_i64(out, "rows_locked", (int64_t)row->rows_locked);
    write_member_text_or_null(out, "table", row->table);
    if (row->table.data) {
        write_member_text_or_null(out, "index", row->index);
        write_member_text_or_null(out, "row", row->row);
        write_member_text_or_null(out, "mode", row->mode);
    }
    if (row->semaphore.data)
        write_member_text(out, "semaphore", row->semaphore);
    if (row->external_id.data)
        write_member_key(out, &viewer, "external_id", row->external_id);
    write_member_i64(out, "waiting", (int64_t)row->waiters);
    if (row->waiters)
        write_member_i64(out, "waited_ms", max_i64(0, now - row->waiting_since) / US_PER_MS);
    buf_append_char(out, '}');
}

static void write_deadlock(struct buf *out, const struct deadlock *deadlock)
{
    buf_append_text(out, ",\"deadlock\":");
    if (!deadlock->at.data) {
        buf_append_text(out, "null");
        return;
    }
    buf_append_text(out, "{\"at\":");
    write_text(out, deadlock->at);
    buf_append_text(out, ",\"transactions\":[");
    for (size_t i = 0; i < deadlock->count; i++) {
        const struct deadlock_part *part = &deadlock->parts[i];
        struct bytes account = {0};
        struct buf text;
        buf_init(&text, LOCK_STATEMENT_MAX);
        if (part->user.data && part->host.data) {
            buf_printf(&text, "%.*s@%.*s", (int)part->user.length, part->user.data, (int)part->host.length,
                       part->host.data);
            account = bytes_of(buf_text(&text));
        }
        buf_append_text(out, i ? ",{\"number\":" : "{\"number\":");
        buf_append_u64(out, i + 1);
        write_member_text_or_null(out, "account", account);
        write_member_text_or_null(out, "statement", part->statement);
        write_member_text_or_null(out, "table", part->table);
        write_member_text_or_null(out, "index", part->index);
        buf_append_char(out, '}');
        buf_release(&text);
    }
    buf_append_text(out, "],\"rolled_back\":");
    buf_append_u64(out, deadlock->rolled_back);
    buf_append_char(out, '}');
}

static enum permit_status answer_locks(struct exchange *exchange, struct store *store)
{
    struct buf *out = &exchange->answer.body;
    char grant[LOCK_GRANT_SIZE];
    struct lock_list list = {.count = 0};
    struct deadlock deadlock = {.count = 0};
    enum permit_status status = store->queries->locks_missing_grant(store, grant);
    if (status == PERMIT_OK && !grant[0])
        status = store->queries->locks(store, &exchange->arena, &list);
    if (status == PERMIT_OK && !grant[0])
        status = store->queries->deadlock(store, &exchange->arena, &deadlock);
    if (status != PERMIT_OK)
        return status;
    buf_append_text(out, grant[0] ? "{\"locks\":null,\"grant\":" : "{\"locks\":[");
    if (grant[0])
        write_text(out, bytes_of(grant));
    for (size_t i = 0; i < list.count; i++) {
        buf_append_text(out, i ? "," : "");
        write_lock(exchange, &list.rows[i], list.now);
    }
    if (!grant[0])
        buf_append_char(out, ']');
    write_member_bool(out, "more", list.more);
    write_member_bool(out, "complete", list.complete);
    write_deadlock(out, &deadlock);
    buf_append_char(out, '}');
    return PERMIT_OK;
}

bool ops_locks(struct exchange *exchange)
{
    return query_submit(exchange, QUERY_OPERATOR, answer_locks, NULL);
}
