/* SPDX-License-Identifier: MIT */
/* The store on MariaDB and MySQL: a session, the packets of a batch, and the small transactions around them. */
#include <stdlib.h>

#include "base/map.h"
#include "store/batch.h"
#include "store/epoch.h"
#include "store/held.h"
#include "store/open.h"
#include "store/packet.h"
#include "store/procedures.h"
#include "store/schema.h"

enum {
    SQL_MAX_BYTES = 16 * 1024 * 1024, /* a packet; 500 requests with the longest names and slot lists need less */
    IDENTITY_MAX_BYTES = 8 * 1024,
    SCRATCH_CHUNK = 64 * 1024,
    SCRATCH_LIMIT = 16 * 1024 * 1024,
    SQL_KEPT = 256 * 1024 /* bytes for SQL that are kept from one batch to the next */
};

struct mysql_store {
    struct store store;
    struct session *session;
    const struct database_address *address;
    enum store_use use;
    const struct doctor_options *options; /* may be NULL */
    struct buf sql;
    struct buf identity;       /* SQL expression for the server's identity (epoch_identity_sql); set at each connect */
    struct buf identity_value; /* its value then, as SQL */
    uint64_t identity_hash;    /* of that value */
    struct arena scratch;      /* valid during one call */
    struct queues_ahead ahead; /* of the last lock packet */
    struct buf packet;         /* of batch->prepare */
    const struct changes *prepared; /* `packet` writes these; NULL: it is none */
    bool locks_requests;            /* it locks rows of requests, after those of the semaphores */
};

static struct mysql_store *mysql_store_of(struct store *store)
{
    return CONTAINER_OF(store, struct mysql_store, store);
}

struct session *session_of(struct store *store)
{
    return mysql_store_of(store)->session;
}

const char *identity_of(struct store *store)
{
    return buf_text(&mysql_store_of(store)->identity);
}

/* Safety check (P14: permitd does not serve on unsafe settings). */
static enum permit_status check_safety(struct store *store)
{
    struct mysql_store *mysql = mysql_store_of(store);
    struct doctor_report findings;
    enum permit_status status = doctor_check(mysql->session, mysql->options, &findings);
    if (status != PERMIT_OK)
        return status;
    doctor_format_refusal(&findings, store->refusal, sizeof store->refusal);
    if (!findings.refusals)
        return PERMIT_OK;
    session_drop(mysql->session);
    return session_refuse(mysql->session, PERMIT_DATABASE_UNAVAILABLE, store->refusal);
}

/* Sets the expression for the identity of the session's server, and its value. */
static enum permit_status learn_identity(struct mysql_store *mysql)
{
    struct packet packet = packet_begin(mysql->session, NULL);
    buf_clear(&mysql->identity);
    buf_clear(&mysql->identity_value);
    packet_fail(&packet, epoch_identity_sql(mysql->session, &mysql->identity));
    buf_printf(&packet.sql, "SELECT %s", buf_text(&mysql->identity));
    packet_send(&packet);
    if (packet_row(&packet))
        sql_bytes(&mysql->identity_value, row_column(&packet.row));
    mysql->identity_hash = map_hash((struct bytes){mysql->identity_value.data, mysql->identity_value.length});
    if (mysql->identity_value.broken)
        packet_fail(&packet, PERMIT_NO_MEMORY);
    return packet_end(&packet);
}

static enum permit_status reconnect(struct store *store)
{
    struct mysql_store *mysql = mysql_store_of(store);
    if (session_is_connected(mysql->session))
        return PERMIT_OK;
    enum permit_status status = session_connect(mysql->session);
    store->sessions += status == PERMIT_OK;
    if (status != PERMIT_OK || mysql->use != STORE_WORKER)
        return status;
    store->max_packet = (size_t)min_i64(SQL_MAX_BYTES, (int64_t)session_max_packet(mysql->session));
    mysql->sql.max = mysql->packet.max = store->max_packet;
    status = learn_identity(mysql);
    if (status == PERMIT_OK)
        status = check_safety(store);
    /* Drop a server that was not checked. No transaction was open, so a lost connection is only an unavailable one. */
    if (status != PERMIT_OK)
        session_drop(mysql->session);
    return status == PERMIT_DATABASE_LOST ? PERMIT_DATABASE_UNAVAILABLE : status;
}

static void disconnect(struct store *store)
{
    session_drop(mysql_store_of(store)->session);
}

/* ---- resolve ---- */

/* Includes retired semaphores: a template may create them again; without one the plan may know the key. */
static void resolve_names_sql(const struct resolve *resolve, struct buf *sql)
{
    buf_append_text(sql, "SELECT s.name,s.id,s.kind,s.retired_at IS NOT NULL," HELD_FLOOR
                         " FROM semaphore s FORCE INDEX (semaphore_name) WHERE s.name IN (''");
    for (size_t i = 0; i < resolve->name_count; i++) {
        buf_append_char(sql, ',');
        sql_bytes(sql, resolve->names[i].name);
    }
    buf_append_text(sql, ");");
}

static void resolve_keys_sql(const struct resolve *resolve, struct buf *sql)
{
    buf_append_text(sql, "SELECT r.external_id,p.semaphore_id,IF(p.slots='',0,p.count),r.wanted"
                         " FROM permit_request r FORCE INDEX (permit_request_external_id)"
                         " LEFT JOIN permit p FORCE INDEX (permit_request) ON p.permit_request_id=r.id"
                         " WHERE r.external_id IN (''");
    for (size_t i = 0; i < resolve->key_count; i++) {
        buf_append_char(sql, ',');
        sql_bytes(sql, resolve->keys[i].external_id);
    }
    buf_append_char(sql, ')');
}

/* Stores the result of one key in all elements with that key. */
static enum permit_status set_key_result(struct resolve *resolve, struct bytes external_id, const uint64_t *ids,
                                         size_t count, int64_t slots, struct arena *arena)
{
    uint64_t *copy = arena_array(arena, count, sizeof *copy);
    if (!copy)
        return PERMIT_NO_MEMORY;
    memcpy(copy, ids, count * sizeof *copy);
    count = u64_sort_unique(copy, count);
    for (size_t i = 0; i < resolve->key_count; i++)
        if (bytes_equal(resolve->keys[i].external_id, external_id)) {
            resolve->keys[i].ret_semaphore_ids = copy;
            resolve->keys[i].ret_count = count;
            resolve->keys[i].ret_slots = slots;
        }
    return PERMIT_OK;
}

/* The semaphores of a request that waits are those that it wants. */
static enum permit_status read_wanted_ids(struct bytes wanted, struct arena *arena, uint64_t *ids, size_t *count)
{
    struct ttl ttl;
    struct want *wants;
    size_t want_count;
    enum permit_status status = wants_decode(wanted, arena, &ttl, &wants, &want_count);
    for (size_t i = 0; status == PERMIT_OK && i < want_count && *count < REQUEST_MAX_SEMAPHORES; i++)
        ids[(*count)++] = wants[i].semaphore_id;
    return status;
}

/* The rows of a request are adjacent: one per permit, or one without a permit. */
static void read_keys(struct packet *packet, struct resolve *resolve)
{
    struct arena *arena = packet->row.arena;
    uint64_t ids[REQUEST_MAX_SEMAPHORES];
    size_t count = 0;
    int64_t slots = 0;
    struct bytes key = {0};
    while (packet_row(packet)) {
        const struct bytes *columns = packet->row.row.columns;
        if (count && !bytes_equal(key, columns[0])) {
            packet_fail(packet, set_key_result(resolve, key, ids, count, slots, arena));
            count = 0;
            slots = 0;
        }
        key = columns[0];
        if (columns[1].data && count < REQUEST_MAX_SEMAPHORES)
            ids[count++] = column_u64(columns[1]);
        slots += column_i64(columns[2]);
        if (columns[3].data)
            packet_fail(packet, read_wanted_ids(columns[3], arena, ids, &count));
    }
    if (count)
        packet_fail(packet, set_key_result(resolve, key, ids, count, slots, arena));
}

static enum permit_status resolve(struct store *store, struct resolve *what, struct arena *arena)
{
    struct packet packet = packet_begin(session_of(store), arena);
    if (what->name_count)
        resolve_names_sql(what, &packet.sql);
    resolve_keys_sql(what, &packet.sql);
    packet_send(&packet);
    while (what->name_count && packet_row(&packet)) {
        const struct bytes *columns = packet.row.row.columns;
        for (size_t i = 0; i < what->name_count; i++)
            if (bytes_equal(what->names[i].name, columns[0])) {
                what->names[i].ret_id = column_u64(columns[1]);
                what->names[i].ret_kind = (enum semaphore_kind)column_u64(columns[2]);
                what->names[i].ret_retired = column_u64(columns[3]) != 0;
                what->names[i].ret_floor = column_u64(columns[4]);
            }
    }
    if (what->name_count)
        packet_next(&packet);
    read_keys(&packet, what);
    enum permit_status status = packet_end(&packet);
    return status == PERMIT_OK ? templates_match(packet.session, what->names, what->name_count, arena) : status;
}

/* ---- the packets of a batch ---- */

static enum permit_status await(struct store *store, uint64_t semaphore_id)
{
    struct mysql_store *mysql = mysql_store_of(store);
    buf_clear(&mysql->sql);
    batch_await_sql(semaphore_id, &mysql->sql);
    return session_end(mysql->session, session_send_buf(mysql->session, &mysql->sql));
}

static enum permit_status lock(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view)
{
    struct mysql_store *mysql = mysql_store_of(store);
    return batch_read_view(mysql->session, set, buf_text(&mysql->identity), &mysql->sql, arena, &mysql->ahead,
                           ret_view);
}

static enum permit_status read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view)
{
    return batch_read_due(session_of(store), shortfalls, count, arena, view);
}

static enum permit_status lock_requests(struct store *store, const uint64_t *ids, size_t count, struct view *view)
{
    return batch_lock_requests(session_of(store), ids, count, view);
}

static enum permit_status read_waiters(struct store *store, const struct queue_read *reads,
                                       const struct slots_wanted *slots, size_t count, struct arena *arena,
                                       struct view *view)
{
    struct mysql_store *mysql = mysql_store_of(store);
    const struct batch_reading reading = {mysql->session, &mysql->sql, arena, view};
    return batch_read_waiters(&reading, &mysql->ahead, reads, slots, count);
}

static enum permit_status read_seats(struct store *store, uint64_t semaphore_id, struct arena *arena,
                                     struct seats *ret_seats)
{
    return batch_read_seats(session_of(store), semaphore_id, arena, ret_seats);
}

static enum permit_status read_glimpses(struct store *store, const uint64_t *ids, size_t count, utc_us aged,
                                        struct arena *arena, struct view *view)
{
    struct mysql_store *mysql = mysql_store_of(store);
    const struct batch_reading reading = {mysql->session, &mysql->sql, arena, view};
    return batch_read_glimpses(&reading, ids, count, aged);
}

/* Returns why the packet that has just failed was stopped by its own guards; MISMATCH_NONE: it was not. */
static enum mismatch mismatch_of(const struct session *session)
{
    enum {
        NULL_VALUE = 1048,
        DUPLICATE_KEY = 1062,
        TWO_ROWS = 1242,
        OUT_OF_RANGE = 1690,
        MYSQL_CHECK = 3819,
        MARIADB_CHECK = 4025
    };
    switch (session_errno(session)) {
    case NULL_VALUE: return strstr(session_message(session), "'version'") ? MISMATCH_VERSION : MISMATCH_GUARD;
    case DUPLICATE_KEY:
    case TWO_ROWS: return MISMATCH_KEY;
    case OUT_OF_RANGE:
    case MYSQL_CHECK:
    case MARIADB_CHECK: return MISMATCH_GUARD;
    default: return MISMATCH_NONE;
    }
}

/* Appends the statement that locks the semaphores of a batch that changes nothing, and reads their versions. */
static void versions_sql(const struct changes *changes, struct buf *sql)
{
    buf_append_text(sql, "SELECT id,version FROM semaphore FORCE INDEX (PRIMARY) WHERE id IN (");
    for (size_t i = 0; i < changes->semaphore_count; i++)
        buf_printf(sql, i ? ",%llu" : "%llu", (unsigned long long)changes->semaphores[i].semaphore->id);
    buf_append_text(sql, ") ORDER BY id LOCK IN SHARE MODE;");
}

/* Compares the rows of that statement. */
static bool versions_are_expected(struct session *session, const struct changes *changes)
{
    struct session_row row;
    size_t count = 0;
    bool expected = true;
    for (; session_row(session, &row) && count < changes->semaphore_count; count++)
        expected &= column_u64(row.columns[0]) == changes->semaphores[count].semaphore->id &&
                    column_u64(row.columns[1]) == changes->semaphores[count].expected_version;
    return expected && count == changes->semaphore_count;
}

static enum permit_status prepare(struct store *store, const struct changes *changes, const struct assumed *assumed)
{
    struct mysql_store *mysql = mysql_store_of(store);
    struct buf *sql = &mysql->packet;
    buf_clear(sql);
    buf_append_text(sql, assumed ? "BEGIN;" : "");
    mysql->locks_requests = false;
    if (changes->empty)
        versions_sql(changes, sql);
    else
        mysql->locks_requests = batch_changes_sql(changes, session_is_mariadb(mysql->session), &mysql->scratch, sql);
    if (assumed)
        batch_assumed_sql(assumed, buf_text(&mysql->identity_value), sql);
    buf_append_text(sql, changes->empty ? "ROLLBACK" : "COMMIT");
    arena_clear(&mysql->scratch);
    mysql->prepared = changes;
    return session_check_packet(mysql->session, sql);
}

/* Sends the packet of these changes. The caller reads the results and calls session_end. */
static enum permit_status send_changes(struct mysql_store *mysql, const struct changes *changes,
                                       const struct assumed *assumed)
{
    enum permit_status status = PERMIT_OK;
    if (mysql->prepared != changes)
        status = prepare(&mysql->store, changes, assumed);
    mysql->prepared = NULL;
    if (status == PERMIT_OK)
        status = session_send_buf(mysql->session, &mysql->packet);
    buf_empty(&mysql->packet, SQL_KEPT);
    buf_empty(&mysql->sql, SQL_KEPT);
    return status;
}

static enum permit_status commit(struct store *store, const struct changes *changes)
{
    struct mysql_store *mysql = mysql_store_of(store);
    enum permit_status status = session_end(mysql->session, send_changes(mysql, changes, NULL));
    enum mismatch mismatch = status == PERMIT_INTERNAL ? mismatch_of(mysql->session) : MISMATCH_NONE;
    store->was_stopped = mismatch != MISMATCH_NONE;
    return mismatch == MISMATCH_KEY ? PERMIT_CONFLICT : status; /* the feed is not full any more */
}

static enum permit_status prove_cached(struct mysql_store *mysql, const struct changes *changes,
                                       const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    enum permit_status status = send_changes(mysql, changes, assumed);
    if (status == PERMIT_OK)
        status = session_next(mysql->session);
    bool expected = status == PERMIT_OK && versions_are_expected(mysql->session, changes);
    if (status == PERMIT_OK && !expected)
        *ret_mismatch = MISMATCH_VERSION;
    status = session_end(mysql->session, status);
    if (status == PERMIT_INTERNAL && *ret_mismatch == MISMATCH_NONE)
        *ret_mismatch = mismatch_of(mysql->session);
    return *ret_mismatch == MISMATCH_NONE ? status : PERMIT_CONFLICT;
}

static enum permit_status commit_if_unchanged(struct store *store, const struct changes *changes,
                                              const struct assumed *assumed, enum mismatch *ret_mismatch)
{
    struct mysql_store *mysql = mysql_store_of(store);
    *ret_mismatch = MISMATCH_NONE;
    if (changes->empty)
        return prove_cached(mysql, changes, assumed, ret_mismatch);
    bool has_semaphores = false; /* the statement after BEGIN has run, which locks them */
    enum permit_status status = send_changes(mysql, changes, assumed);
    if (status == PERMIT_OK && mysql->locks_requests) {
        status = session_next(mysql->session);
        has_semaphores = status == PERMIT_OK;
    }
    status = session_end(mysql->session, status);
    if (status == PERMIT_INTERNAL || status == PERMIT_CONFLICT)
        *ret_mismatch = mismatch_of(mysql->session);
    if (status == PERMIT_LOCK_TIMEOUT && has_semaphores)
        *ret_mismatch = MISMATCH_ROW;
    return *ret_mismatch == MISMATCH_NONE ? status : PERMIT_CONFLICT;
}

static enum permit_status rollback(struct store *store)
{
    struct session *session = session_of(store);
    mysql_store_of(store)->prepared = NULL;
    /* Without a session, keeps the message that says why it was lost. */
    return session_is_connected(session) ? session_rollback(session) : PERMIT_OK;
}

/* ---- small transactions ---- */

/* Reads the epoch before it reserves: ids reserved after a raise in between count as ids of the old epoch. */
static enum permit_status reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_printf(&packet.sql,
               "SELECT epoch FROM cluster WHERE id=1;"
               "UPDATE id_block SET next_id=LAST_INSERT_ID(next_id)+%llu WHERE id=1;SELECT LAST_INSERT_ID()",
               (unsigned long long)count);
    packet_send(&packet);
    uint64_t epoch = packet_row(&packet) ? row_u64(&packet.row) : 0;
    packet_next(&packet);
    packet_next(&packet);
    uint64_t next = packet_row(&packet) ? row_u64(&packet.row) : 0;
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    *ret_range = (struct id_range){next, next + count};
    *ret_epoch = epoch;
    return PERMIT_OK;
}

static enum permit_status floors(struct store *store, const uint64_t *semaphore_ids, size_t count, uint64_t *ret_floors)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_append_text(&packet.sql, "SELECT s.id," HELD_FLOOR " FROM semaphore s FORCE INDEX (PRIMARY) WHERE s.id IN (0,");
    sql_ids(&packet.sql, semaphore_ids, count);
    buf_append_text(&packet.sql, ")");
    memset(ret_floors, 0, count * sizeof *ret_floors);
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint64_t id = row_u64(&packet.row), floor = row_u64(&packet.row);
        for (size_t i = 0; i < count; i++)
            if (semaphore_ids[i] == id)
                ret_floors[i] = floor;
    }
    return packet_end(&packet);
}

/* Returns true if a semaphore could issue a token again: its next token went back, or its row is missing. */
static bool read_tokens_behind(struct packet *packet, const struct tick *tick)
{
    uint64_t least = semaphore_next_token(0, tick->ret_row.clock.epoch);
    size_t safe_count = 0;
    for (size_t i = 0; i < tick->seen_count; i++)
        safe_count += tick->seen[i].next <= least;
    while (packet_row(packet)) {
        uint64_t id = row_u64(&packet->row), next = row_u64(&packet->row);
        for (size_t i = 0; i < tick->seen_count; i++)
            safe_count += tick->seen[i].semaphore_id == id && tick->seen[i].next > least && tick->seen[i].next <= next;
    }
    return safe_count < tick->seen_count;
}

/* Reads the `cluster` row, and the semaphores by primary key. */
static enum permit_status read_tick(struct store *store, struct tick *tick)
{
    struct mysql_store *mysql = mysql_store_of(store);
    struct packet packet = packet_begin(mysql->session, NULL);
    struct query_time time;
    buf_printf(&packet.sql, "SELECT " CLOCK_COLUMNS ",ticks,identity=%s FROM cluster WHERE id=1;",
               buf_text(&mysql->identity));
    buf_append_text(&packet.sql, "SELECT id,next_permit_id FROM semaphore FORCE INDEX (PRIMARY) WHERE id IN (0");
    for (size_t i = 0; i < tick->seen_count; i++) {
        buf_append_char(&packet.sql, ',');
        buf_append_u64(&packet.sql, tick->seen[i].semaphore_id);
    }
    buf_append_char(&packet.sql, ')');
    packet_send(&packet);
    if (packet_only_row(&packet, PERMIT_INTERNAL)) { /* the migration that creates `cluster` inserts its row */
        row_clock(&packet.row, &time);
        tick->ret_now = time.now;
        tick->ret_row =
            (struct lease_row){.clock = time.clock, .ticks = row_u64(&packet.row), .server = mysql->identity_hash};
        tick->ret_same_server = row_u64(&packet.row) != 0;
    }
    packet_next(&packet);
    if (packet_works(&packet))
        tick->ret_tokens_behind = read_tokens_behind(&packet, tick);
    return packet_end(&packet);
}

/*
 * Writes the copy of the offset for permit_hold. A stranger's transaction that has locked it delays no tick: the next one
 * writes it.
 */
static void write_served_offset(struct store *store, int64_t offset_us)
{
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_printf(&packet.sql,
               "BEGIN;SELECT id FROM served_offset FORCE INDEX (PRIMARY) WHERE id=1 FOR UPDATE NOWAIT;"
               "UPDATE served_offset FORCE INDEX (PRIMARY) SET offset_us=%lld WHERE id=1;",
               (long long)offset_us);
    (void)!packet_commit(&packet);
}

/* The compare-and-set on the whole row lets one of several permitd advance the clock, and none in another life. */
static enum permit_status write_tick(struct store *store, const struct lease_row *read, const struct lease_row *ticked,
                                     bool *ret_won)
{
    const struct buf *identity = &mysql_store_of(store)->identity_value;
    struct packet packet = packet_begin(session_of(store), NULL);
    buf_printf(&packet.sql, "UPDATE cluster SET ticks=%llu,offset_us=%lld,tick_at=", (unsigned long long)ticked->ticks,
               (long long)ticked->clock.offset_us);
    sql_time(&packet.sql, ticked->clock.tick_at);
    buf_printf(&packet.sql, " WHERE id=1 AND ticks=%llu AND offset_us=%lld AND epoch=%llu AND identity=%s AND tick_at=",
               (unsigned long long)read->ticks, (long long)read->clock.offset_us, (unsigned long long)read->clock.epoch,
               buf_text(identity));
    sql_time(&packet.sql, read->clock.tick_at);
    packet_send(&packet);
    bool won = packet_works(&packet) && session_affected(packet.session) == 1;
    enum permit_status status = packet_end(&packet);
    if (status != PERMIT_OK)
        return status;
    if (won)
        write_served_offset(store, ticked->clock.offset_us);
    *ret_won = won;
    return PERMIT_OK;
}

static enum permit_status advance_epoch(struct store *store, struct epoch_advance *advance)
{
    return epoch_advance(session_of(store), advance);
}

/* ---- the server, its schema, and the store ---- */

static enum permit_status doctor(struct store *store, struct doctor_report *ret_report)
{
    struct doctor_report report;
    enum permit_status status = doctor_check(session_of(store), mysql_store_of(store)->options, &report);
    if (status == PERMIT_OK)
        status = doctor_examine_sales(session_of(store), &report);
    if (status == PERMIT_OK)
        *ret_report = report;
    return status;
}

static enum permit_status apply_schema(struct store *store, struct buf *message)
{
    const struct mysql_store *mysql = mysql_store_of(store);
    return schema_apply(mysql->session, mysql->address->database, message);
}

static enum permit_status schema_version(struct store *store, unsigned *ret_version, struct buf *message)
{
    const struct mysql_store *mysql = mysql_store_of(store);
    return schema_read_version(mysql->session, mysql->address->database, ret_version, message);
}

static enum permit_status install_procedures(struct store *store, struct procedures_result *ret_result,
                                             struct buf *message)
{
    const struct mysql_store *mysql = mysql_store_of(store);
    return procedures_install(mysql->session, mysql->address->database, ret_result, message);
}

static enum permit_status keepalive(struct store *store)
{
    return session_ping(session_of(store));
}

static void mysql_store_free(struct store *store)
{
    struct mysql_store *mysql = mysql_store_of(store);
    session_free(mysql->session);
    buf_release(&mysql->sql);
    buf_release(&mysql->packet);
    buf_release(&mysql->identity);
    buf_release(&mysql->identity_value);
    arena_release(&mysql->scratch);
    free(mysql);
}

static const struct store_session session_methods = {
    .reconnect = reconnect,
    .disconnect = disconnect,
    .check_safety = check_safety,
    .keepalive = keepalive,
    .doctor = doctor,
    .free = mysql_store_free,
};
static const struct store_batch batch_methods = {
    .resolve = resolve,
    .reserve_ids = reserve_ids,
    .await = await,
    .lock = lock,
    .read_due = read_due,
    .lock_requests = lock_requests,
    .read_waiters = read_waiters,
    .read_seats = read_seats,
    .read_glimpses = read_glimpses,
    .prepare = prepare,
    .commit = commit,
    .commit_if_unchanged = commit_if_unchanged,
    .rollback = rollback,
};
static const struct store_clock clock_methods = {
    .floors = floors,
    .read_tick = read_tick,
    .write_tick = write_tick,
    .advance_epoch = advance_epoch,
};
static const struct store_schema schema_methods = {
    .apply = apply_schema, .version = schema_version, .procedures = install_procedures};

struct store *store_open(const struct database_address *address, enum store_use use,
                         const struct doctor_options *options)
{
    struct mysql_store *mysql = calloc(1, sizeof *mysql);
    if (!mysql)
        return NULL;
    mysql->store = (struct store){
        .session = &session_methods,
        .batch = &batch_methods,
        .clock = &clock_methods,
        .schema = &schema_methods,
        .queries = &mysql_queries,
        .owners = &mysql_owners,
        .templates = &mysql_templates,
        .retention = &mysql_retention,
        .audit = &mysql_audit,
        .servers = &mysql_servers,
        .sql_accounts = &mysql_sql_accounts,
        .feed = &mysql_feed,
        .webhooks = &mysql_webhooks,
    };
    mysql->address = address;
    mysql->use = use;
    mysql->options = options;
    buf_init(&mysql->sql, SQL_MAX_BYTES);
    buf_init(&mysql->packet, SQL_MAX_BYTES);
    buf_init(&mysql->identity, IDENTITY_MAX_BYTES);
    buf_init(&mysql->identity_value, IDENTITY_MAX_BYTES);
    arena_init(&mysql->scratch, SCRATCH_CHUNK, SCRATCH_LIMIT);
    mysql->session = session_new(address, use);
    if (!mysql->session) {
        mysql_store_free(&mysql->store);
        return NULL;
    }
    mysql->store.message = session_message(mysql->session);
    return &mysql->store;
}
