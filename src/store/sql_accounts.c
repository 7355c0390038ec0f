/* SPDX-License-Identifier: MIT */
#include "store/sql_accounts.h"

#include "store/packet.h"
#include "store/row_sql.h"

enum { TRIES = 3 }; /* of a transaction that ends with PERMIT_CONFLICT */

#define SELECT_ACCOUNT "SELECT user,namespace FROM sql_account FORCE INDEX (PRIMARY) WHERE user"

static struct sql_account read_account(struct packet *packet)
{
    struct bytes user = row_bytes(&packet->row);
    return (struct sql_account){user, row_bytes(&packet->row)};
}

/* Returns "shop", or "shop, namespace n", as the value of an event; data NULL: there is no account. */
static struct bytes account_text(const struct sql_account *account, struct buf *text)
{
    if (!account->user.data)
        return (struct bytes){0};
    buf_append(text, account->user.data, account->user.length);
    if (account->namespace.length)
        buf_printf(text, ", namespace %.*s", (int)account->namespace.length, account->namespace.data);
    return (struct bytes){text->data, text->length};
}

/* Appends the event; semaphore_id 0: of all semaphores. */
static void event_sql(const struct sql_account_change *change, utc_us at, const struct sql_account *after,
                      struct buf *sql)
{
    struct row_insert insert = {.table = &event_table, .columns = COLUMN_INSERT};
    struct buf from, to;
    buf_init(&from, 400);
    buf_init(&to, 400);
    struct event_row event = {.at = at,
                              .who = change->who,
                              .what = BYTES("sql_account"),
                              .from = account_text(&change->ret_before, &from),
                              .to = account_text(after, &to)};
    row_insert_sql(&insert, &event, sql);
    row_insert_end_sql(&insert, sql);
    buf_release(&from);
    buf_release(&to);
}

/* Begins the transaction, and locks and reads the row. Returns the database's clock. */
static utc_us begin(struct packet *packet, struct sql_account_change *change)
{
    utc_us now = 0;
    change->ret_before = (struct sql_account){{0}, {0}};
    buf_append_text(&packet->sql, "BEGIN;SELECT DATABASE()," SQL_NOW_US ";" SELECT_ACCOUNT "=");
    sql_bytes(&packet->sql, change->account.user);
    buf_append_text(&packet->sql, " FOR UPDATE");
    packet_send(packet);
    packet_next(packet);
    if (packet_only_row(packet, PERMIT_INTERNAL)) {
        change->ret_database = row_bytes(&packet->row);
        now = (utc_us)row_u64(&packet->row);
    }
    packet_next(packet);
    if (packet_row(packet))
        change->ret_before = read_account(packet);
    return now;
}

static enum permit_status accounts_put(struct store *store, struct sql_account_change *change, struct arena *arena)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++) {
        struct packet packet = packet_begin(session_of(store), arena);
        utc_us now = begin(&packet, change);
        bool same =
            change->ret_before.user.data && bytes_equal(change->ret_before.namespace, change->account.namespace);
        if (!same) {
            buf_append_text(&packet.sql, change->ret_before.user.data ? "UPDATE sql_account SET namespace="
                                                                      : "INSERT INTO sql_account SET namespace=");
            sql_bytes(&packet.sql, change->account.namespace);
            buf_append_text(&packet.sql, change->ret_before.user.data ? " WHERE user=" : ",user=");
            sql_bytes(&packet.sql, change->account.user);
            buf_append_char(&packet.sql, ';');
            event_sql(change, now, &change->account, &packet.sql);
        }
        status = packet_commit(&packet);
    }
    return status;
}

static enum permit_status accounts_delete(struct store *store, struct sql_account_change *change, struct arena *arena)
{
    enum permit_status status = PERMIT_CONFLICT;
    for (int tries = 0; status == PERMIT_CONFLICT && tries < TRIES; tries++) {
        struct packet packet = packet_begin(session_of(store), arena);
        utc_us now = begin(&packet, change);
        if (packet_works(&packet) && !change->ret_before.user.data)
            packet_fail(&packet, PERMIT_UNKNOWN_ACCOUNT);
        buf_append_text(&packet.sql, "DELETE FROM sql_account WHERE user=");
        sql_bytes(&packet.sql, change->account.user);
        buf_append_char(&packet.sql, ';');
        event_sql(change, now, &(struct sql_account){{0}, {0}}, &packet.sql);
        status = packet_commit(&packet);
    }
    return status;
}

static enum permit_status accounts_get(struct store *store, struct bytes user, struct arena *arena,
                                       struct sql_account *ret_account)
{
    struct packet packet = packet_begin(session_of(store), arena);
    buf_append_text(&packet.sql, SELECT_ACCOUNT "=");
    sql_bytes(&packet.sql, user);
    packet_send(&packet);
    struct sql_account account = {{0}, {0}};
    if (packet_only_row(&packet, PERMIT_UNKNOWN_ACCOUNT))
        account = read_account(&packet);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        *ret_account = account;
    return status;
}

/* Walks the primary key. */
static enum permit_status accounts_list(struct store *store, struct page *page)
{
    struct packet packet = packet_begin(session_of(store), page->arena);
    size_t count;
    buf_append_text(&packet.sql, SELECT_ACCOUNT ">");
    sql_bytes(&packet.sql, page->after.name);
    buf_printf(&packet.sql, " ORDER BY user LIMIT %u", page->limit + 1);
    packet_send(&packet);
    struct sql_account *rows = packet_rows(&packet, sizeof *rows, &count);
    for (size_t i = 0; i < count && packet_row(&packet); i++)
        rows[i] = read_account(&packet);
    page->sql_accounts = rows;
    page_end(page, count);
    if (page->count)
        page->next.name = rows[page->count - 1].user;
    return packet_end(&packet);
}

const struct store_sql_accounts mysql_sql_accounts = {
    .put = accounts_put,
    .delete = accounts_delete,
    .get = accounts_get,
    .list = accounts_list,
};
