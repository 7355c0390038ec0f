/* SPDX-License-Identifier: MIT */
#include "store/locks.h"

#include <stdio.h>

#include "core/request.h"
#include "store/dialect.h"
#include "store/query_packet.h"

enum { LOCKS_READ = 1000 };

/* ---- rights ---- */

static const struct need {
    const char *statement, *right;
} needs[] = {
    {"SELECT COUNT(*) FROM information_schema.INNODB_TRX", "PROCESS ON *.*"},
    {"SELECT 1 FROM performance_schema.data_locks LIMIT 0", "SELECT ON performance_schema.*"}, /* MySQL only */
};

/* *ret_missing: bit n for needs[n], if the session lacks that right. */
static enum permit_status find_missing(struct session *session, unsigned *ret_missing)
{
    *ret_missing = 0;
    for (size_t i = 0; i < (session_is_mariadb(session) ? 1 : ARRAY_LENGTH(needs)); i++) {
        enum permit_status status = session_run(session, needs[i].statement);
        if (status != PERMIT_OK && !session_lacks_right(session))
            return status;
        *ret_missing |= (unsigned)(status != PERMIT_OK) << i;
    }
    return PERMIT_OK;
}

enum permit_status locks_missing_grant(struct store *store, char ret_grant[LOCK_GRANT_SIZE])
{
    struct session *session = session_of(store);
    unsigned missing;
    enum permit_status status = find_missing(session, &missing);
    ret_grant[0] = '\0';
    if (status == PERMIT_OK && missing) { /* a right on *.* that was given meanwhile is one of new sessions */
        store->session->disconnect(store);
        status = store->session->reconnect(store);
        if (status == PERMIT_OK)
            status = find_missing(session, &missing);
    }
    if (status != PERMIT_OK || !missing)
        return status;
    struct packet packet = packet_begin(session, NULL);
    buf_append_text(&packet.sql, "SELECT " SQL_QUOTED_ACCOUNT("CURRENT_USER()"));
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) {
        struct bytes name = row_column(&packet.row);
        for (size_t i = 0, length = 0; i < ARRAY_LENGTH(needs) && length < LOCK_GRANT_SIZE; i++)
            if (missing >> i & 1)
                length += (size_t)snprintf(ret_grant + length, LOCK_GRANT_SIZE - length, "%sGRANT %s TO %.*s",
                                           length ? "; " : "", needs[i].right, (int)name.length, name.data);
    }
    return packet_end(&packet);
}

/* ---- the server's tables ---- */

/* clang-format off */
/* Columns 1 to 5 of a row; then its table, index, record and mode, and the session that waits for it, since when. */
#define TRANSACTION(time)                                                                                              \
    "SELECT t.trx_mysql_thread_id," SQL_US(time("t.trx_started")) ",CONCAT(p.USER,'@',p.HOST),LEFT(t.trx_query,1000)," \
    "t.trx_rows_locked,"
#define WAITING(time)    ",r.trx_id," SQL_US(time("r.trx_wait_started"))
#define CONNECTION       " LEFT JOIN information_schema.PROCESSLIST p ON p.ID=t.trx_mysql_thread_id"
#define OLD(time)        time("t.trx_started") "<UTC_TIMESTAMP()-INTERVAL 1 SECOND"

/* The rows for which sessions wait, and the transactions older than a second that have locked or changed any row. */
static const char mariadb_locks[] =
    "(" TRANSACTION(DIALECT_TRX_TIME_MARIADB)
    "TRIM(BOTH '`' FROM SUBSTRING_INDEX(l.lock_table,'.',-1)),TRIM(BOTH '`' FROM l.lock_index),l.lock_data,l.lock_mode"
    WAITING(DIALECT_TRX_TIME_MARIADB)
    " FROM information_schema.INNODB_LOCK_WAITS w"
    " JOIN information_schema.INNODB_LOCKS l ON l.lock_id=w.requested_lock_id"
    " JOIN information_schema.INNODB_TRX t ON t.trx_id=w.blocking_trx_id"
    " JOIN information_schema.INNODB_TRX r ON r.trx_id=w.requesting_trx_id" CONNECTION
    " WHERE LEFT(l.lock_table,CHAR_LENGTH(DATABASE())+3)=CONCAT('`',DATABASE(),'`.'))"
    " UNION ALL (" TRANSACTION(DIALECT_TRX_TIME_MARIADB) "NULL,NULL,NULL,NULL,NULL,NULL"
    " FROM information_schema.INNODB_TRX t" CONNECTION
    " WHERE (t.trx_rows_locked>0 OR t.trx_rows_modified>0) AND " OLD(DIALECT_TRX_TIME_MARIADB) ")"
    " ORDER BY 2,1,6,7,8 LIMIT ";

/* All locked rows of transactions older than a second, and the younger ones for which sessions wait. */
static const char mysql_locks[] =
    TRANSACTION(DIALECT_TRX_TIME_MYSQL) "l.OBJECT_NAME,l.INDEX_NAME,l.LOCK_DATA,l.LOCK_MODE"
    WAITING(DIALECT_TRX_TIME_MYSQL)
    " FROM performance_schema.data_locks l"
    " JOIN information_schema.INNODB_TRX t ON t.trx_id=l.ENGINE_TRANSACTION_ID"
    " LEFT JOIN performance_schema.data_lock_waits w ON w.BLOCKING_ENGINE_LOCK_ID=l.ENGINE_LOCK_ID"
    " LEFT JOIN information_schema.INNODB_TRX r ON r.trx_id=w.REQUESTING_ENGINE_TRANSACTION_ID" CONNECTION
    " WHERE l.OBJECT_SCHEMA=DATABASE() AND l.LOCK_STATUS='GRANTED' AND l.LOCK_TYPE='RECORD'"
    " AND (r.trx_id IS NOT NULL OR " OLD(DIALECT_TRX_TIME_MYSQL) ") ORDER BY 2,1,6,7,8 LIMIT ";
/* clang-format on */

/* "shop@10.0.0.4:51234" without the port. */
static struct bytes account_without_port(struct bytes account)
{
    size_t length = account.length;
    while (length > 0 && account.data[length - 1] >= '0' && account.data[length - 1] <= '9')
        length--;
    if (length > 1 && length < account.length && account.data[length - 1] == ':')
        account.length = length - 1;
    return account;
}

static bool is_same_lock(const struct lock_row *a, const struct lock_row *b)
{
    return a->connection == b->connection && a->since == b->since && bytes_equal(a->table, b->table) &&
           bytes_equal(a->index, b->index) && bytes_equal(a->row, b->row);
}

/*
 * Adds a row that was read. The rows come in order of transaction, the one without a table first, then of locks: equal
 * ones with one waiter each, or in several modes.
 */
static void list_add(struct lock_list *list, const struct lock_row *row)
{
    struct lock_row *last = list->count ? &list->rows[list->count - 1] : NULL;
    if (last && is_same_lock(last, row)) {
        last->waiters += row->waiters;
        if (row->waiting_since < last->waiting_since)
            last->waiting_since = row->waiting_since;
    } else if (last && !last->table.data && last->connection == row->connection && last->since == row->since) {
        *last = *row;
    } else if (list->count < LOCKS_MAX) {
        list->rows[list->count++] = *row;
    } else {
        list->more = true;
    }
}

static void read_transactions(struct packet *packet, struct lock_list *list)
{
    buf_printf(&packet->sql, "%s%d;" SQL_CLOCK, list->complete ? mysql_locks : mariadb_locks, LOCKS_READ + 1);
    packet_send(packet);
    size_t count = 0;
    while (packet_row(packet)) {
        struct row_reader *reader = &packet->row;
        struct lock_row row = {.connection = row_u64(reader)};
        row.since = row_i64(reader);
        row.account = account_without_port(row_bytes(reader));
        row.statement = row_bytes(reader);
        row.running = row.statement.data != NULL;
        row.rows_locked = row_u64(reader);
        row.table = row_bytes(reader);
        row.index = row_bytes(reader);
        row.row = row_bytes(reader);
        row.mode = row_bytes(reader);
        row.waiters = row_column(reader).data != NULL;
        row.waiting_since = row.waiters ? row_i64(reader) : NEVER;
        list_add(list, &row);
        list->more |= ++count > LOCKS_READ;
    }
    struct query_time time = {.now = 0};
    packet_time(packet, &time);
    list->now = time.now;
}

/* ---- errands ---- */

/*
 * Returns the only listed transaction of this account whose connection has the bucket; NULL: there is none, or several.
 */
static struct lock_row *transaction_of(struct lock_list *list, size_t listed, uint64_t bucket, struct bytes account)
{
    struct lock_row *found = NULL;
    for (size_t i = 0; i < listed; i++) {
        struct lock_row *row = &list->rows[i];
        if (row->connection % ERRAND_BUCKETS != bucket || !bytes_equal(row->account, account))
            continue;
        if (found && found->connection != row->connection)
            return NULL;
        found = row;
    }
    return found;
}

/*
 * Names the requests about which open transactions have called a procedure, where the server does not: their rows of
 * `errand` are seen with READ UNCOMMITTED only, and have the bucket of the connection (docs/design.md, "Errands").
 */
static void read_errands(struct packet *packet, struct lock_list *list)
{
    static const char errands[] = "SELECT bucket,permit_request_id,account FROM errand FORCE INDEX (PRIMARY)"
                                  " WHERE permit_request_id>0 ORDER BY permit_request_id LIMIT ";
    uint64_t committed[LOCKS_READ];
    size_t committed_count = 0, at = 0, listed = list->count;
    buf_printf(&packet->sql, "%s%d;SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED;%s%d", errands, LOCKS_READ, errands,
               LOCKS_READ);
    packet_send(packet);
    while (committed_count < LOCKS_READ && packet_row(packet)) {
        (void)row_column(&packet->row);
        committed[committed_count++] = row_u64(&packet->row);
    }
    packet_next(packet);
    packet_next(packet);
    while (packet_row(packet)) {
        uint64_t bucket = row_u64(&packet->row);
        struct bytes id = row_bytes(&packet->row), account = row_column(&packet->row);
        while (at < committed_count && committed[at] < column_u64(id))
            at++;
        struct lock_row *transaction = transaction_of(list, listed, bucket, account);
        if ((at < committed_count && committed[at] == column_u64(id)) || !transaction)
            continue;
        struct lock_row row = *transaction;
        row.table = BYTES("permit_request");
        row.index = BYTES("PRIMARY");
        row.row = id;
        row.mode = (struct bytes){0};
        row.waiters = 0;
        row.waiting_since = NEVER;
        if (!transaction->table.data)
            *transaction = row;
        else if (list->count < LOCKS_MAX)
            list->rows[list->count++] = row;
        else
            list->more = true;
    }
}

/* ---- names ---- */

enum field { FIRST, SECOND, LAST };

/* Which value of a locked record names a semaphore or a request. index NULL: in all of them. */
static const struct {
    const char *table;
    const char *index;
    enum field field;
    bool is_request;
} records[] = {
    {"semaphore", NULL, LAST, false},
    {"permit_request", NULL, LAST, true}, /* a secondary index ends with the primary key */
    {"permit", "PRIMARY", FIRST, false},
    {"permit", "permit_request", FIRST, true},
    {"slot", NULL, FIRST, false},
    {"waiter", NULL, FIRST, false},
    {"held", "PRIMARY", FIRST, false},
    {"held", "held_due", SECOND, false},
    {"waiting_due", NULL, LAST, true},
    {"mail", NULL, LAST, true},
};

/* Reads a value of "5, 1024"; 0: it is no number, such as the end of the index. */
static uint64_t record_field(struct bytes record, enum field field)
{
    const char *begin = record.data, *end = record.data + record.length;
    for (const char *at = record.data; at < end; at++) {
        if (*at != ',')
            continue;
        if (field == FIRST || (field == SECOND && begin != record.data)) {
            end = at;
            break;
        }
        begin = at + 1;
    }
    while (begin < end && *begin == ' ')
        begin++;
    for (const char *at = begin; at < end; at++)
        if (*at < '0' || *at > '9')
            return 0;
    return end - begin > 19 ? 0 : column_u64((struct bytes){begin, (size_t)(end - begin)});
}

static uint64_t row_target(const struct lock_row *row, bool *ret_is_request)
{
    for (size_t i = 0; i < ARRAY_LENGTH(records); i++) {
        if (!row->row.data || !bytes_equal(row->table, bytes_of(records[i].table)) ||
            (records[i].index && !bytes_equal(row->index, bytes_of(records[i].index))))
            continue;
        *ret_is_request = records[i].is_request;
        return record_field(row->row, records[i].field);
    }
    return 0;
}

static const char names_of_semaphores[] =
    "SELECT s.id,s.name,NULL FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id IN (";
/* With the first semaphore of each. */
static const char names_of_requests[] =
    "SELECT r.id,(SELECT s.name FROM permit p FORCE INDEX (permit_request) JOIN semaphore s FORCE INDEX (PRIMARY)"
    " ON s.id=p.semaphore_id WHERE p.permit_request_id=r.id ORDER BY s.id LIMIT 1),r.external_id"
    " FROM permit_request r FORCE INDEX (PRIMARY) WHERE r.id IN (";

static void read_names(struct packet *packet, struct lock_list *list, bool of_requests)
{
    uint64_t ids[LOCKS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        bool is_request;
        ids[i] = row_target(&list->rows[i], &is_request);
        if (ids[i] && is_request != of_requests)
            ids[i] = 0;
        if (!ids[i])
            continue;
        buf_append_text(&packet->sql, count++ ? "," : of_requests ? names_of_requests : names_of_semaphores);
        buf_append_u64(&packet->sql, ids[i]);
    }
    if (!count)
        return;
    buf_append_char(&packet->sql, ')');
    packet_send(packet);
    while (packet_row(packet)) {
        uint64_t id = row_u64(&packet->row);
        struct bytes semaphore = row_bytes(&packet->row), key = row_bytes(&packet->row);
        for (size_t i = 0; i < list->count; i++) {
            if (ids[i] != id)
                continue;
            list->rows[i].semaphore = semaphore;
            list->rows[i].external_id = key;
        }
    }
}

/*
 * Reads the last statement of connections that run none, where the server keeps it and shows it to permitd's account.
 * Without it they have no statement.
 */
static enum permit_status read_last_statements(struct session *session, struct arena *arena, struct lock_list *list)
{
    struct packet packet = packet_begin(session, arena);
    buf_append_text(&packet.sql,
                    "SELECT c.PROCESSLIST_ID,LEFT(e.SQL_TEXT,1000) FROM performance_schema.threads c"
                    " JOIN performance_schema.events_statements_current e ON e.THREAD_ID=c.THREAD_ID"
                    " WHERE e.NESTING_EVENT_ID IS NULL AND e.SQL_TEXT IS NOT NULL AND c.PROCESSLIST_ID IN (0");
    for (size_t i = 0; i < list->count; i++)
        if (!list->rows[i].running)
            buf_printf(&packet.sql, ",%llu", (unsigned long long)list->rows[i].connection);
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint64_t connection = row_u64(&packet.row);
        struct bytes statement = row_bytes(&packet.row);
        for (size_t i = 0; i < list->count; i++)
            if (list->rows[i].connection == connection && !list->rows[i].running)
                list->rows[i].statement = statement;
    }
    enum permit_status status = packet_end(&packet);
    return status != PERMIT_OK && session_lacks_right(session) ? PERMIT_OK : status;
}

enum permit_status locks_read(struct store *store, struct arena *arena, struct lock_list *ret_list)
{
    struct session *session = session_of(store);
    struct packet packet = packet_begin(session, arena);
    struct lock_list list = {.rows = arena_array(arena, LOCKS_MAX, sizeof *list.rows),
                             .complete = !session_is_mariadb(session)};
    packet.row.broken = !list.rows;
    read_transactions(&packet, &list);
    if (!list.complete)
        read_errands(&packet, &list);
    read_names(&packet, &list, false);
    read_names(&packet, &list, true);
    enum permit_status status = packet_end(&packet);
    if (status == PERMIT_OK)
        status = read_last_statements(session, arena, &list);
    if (status == PERMIT_OK)
        *ret_list = list;
    return status;
}

enum permit_status deadlock_read(struct store *store, struct arena *arena, struct deadlock *ret_deadlock)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct bytes database = {0};
    buf_append_text(&packet.sql, "SELECT DATABASE();SHOW ENGINE INNODB STATUS");
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL))
        database = row_bytes(&packet.row);
    packet_next(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) {
        struct deadlock *found = ret_deadlock;
        (void)row_column(&packet.row);
        (void)row_column(&packet.row);
        deadlock_parse(row_column(&packet.row), database, found);
        struct bytes *texts[1 + 5 * DEADLOCK_MAX] = {&found->at};
        size_t count = 1;
        for (size_t i = 0; i < found->count; i++) {
            struct deadlock_part *part = &found->parts[i];
            part->statement.length =
                part->statement.length < LOCK_STATEMENT_MAX ? part->statement.length : LOCK_STATEMENT_MAX;
            texts[count++] = &part->user;
            texts[count++] = &part->host;
            texts[count++] = &part->statement;
            texts[count++] = &part->table;
            texts[count++] = &part->index;
        }
        for (size_t i = 0; i < count; i++)
            if (texts[i]->data) {
                *texts[i] = arena_copy(arena, *texts[i]);
                packet.row.broken |= !texts[i]->data;
            }
    }
    return packet_end(&packet);
}
