/* SPDX-License-Identifier: MIT */
/*
 * The write packet of a batch: writes the final row images and commits. In this order:
 * - semaphores, in ascending id order, by a compare-and-set: if it misses, NULL goes into a NOT NULL column, which is
 *   error 1048 in strict mode and stops the packet before COMMIT; several semaphores in one statement;
 * - events;
 * - mail and the watches of freed slots; then requests and places that are deleted;
 * - which permits are held, and the deadlines of waiting requests (held.c); slots, labels;
 * - changed requests, by primary key;
 * - new requests, in up to three INSERTs (enum insert_kind), each sorted by the bytes of external_id;
 * - new places, and the permits of grants.
 */
#include <assert.h>
#include <stdlib.h>

#include "core/lease_clock.h"
#include "core/slots.h"
#include "store/batch.h"
#include "store/batch_guard.h"
#include "store/held.h"
#include "store/sql_text.h"

static void comma_sql(struct buf *sql, size_t index)
{
    if (index > 0)
        buf_append_char(sql, ',');
}

/* ---- semaphores ---- */

/* Returns true if the batch changes a request that waits: otherwise no semaphore's `waiting` has changed. */
static bool changes_queues(const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (change->request->state == REQUEST_WAITING || (change->before && change->before->state == REQUEST_WAITING))
            return true;
    }
    return changes->place_count > 0;
}

/* Appends the name=value pairs that every batch writes. */
static void usage_sql(const struct semaphore_image *image, struct buf *sql)
{
    const struct semaphore *semaphore = image->semaphore;
    buf_append_text(sql, "in_use=");
    buf_append_i64(sql, semaphore->in_use);
    buf_append_text(sql, ",confirmed=");
    buf_append_i64(sql, semaphore->confirmed);
    buf_append_text(sql, ",next_permit_id=");
    buf_append_u64(sql, semaphore->next_permit_id);
    buf_append_text(sql, ",next_due_at=");
    sql_time(sql, semaphore->next_due_at);
    buf_append_text(sql, ",first_free=");
    buf_append_u64(sql, semaphore->first_free);
}

/* Appends the name=value pairs that only an operator changes. */
static void settings_sql(const struct semaphore *semaphore, struct buf *sql)
{
    buf_printf(sql, ",config_version=%llu,paused_reason=", (unsigned long long)semaphore->config_version);
    sql_text_or_null(sql, semaphore->paused_reason);
    buf_append_text(sql, ",retired_at=");
    sql_time(sql, semaphore->retired_at);
    sql_settings(sql, semaphore);
}

static void insert_semaphore_sql(const struct semaphore_image *image, struct buf *sql)
{
    const struct semaphore *semaphore = image->semaphore;
    buf_printf(sql, "INSERT INTO semaphore SET id=%llu,version=%llu,name=", (unsigned long long)semaphore->id,
               (unsigned long long)semaphore->version);
    sql_bytes(sql, semaphore->name);
    buf_append_char(sql, ',');
    usage_sql(image, sql);
    settings_sql(semaphore, sql);
    buf_append_char(sql, ';');
}

/* Writes one semaphore: the only one of its batch, or one whose settings an operator changes. */
static void update_semaphore_sql(const struct semaphore_image *image, bool queue, struct buf *sql)
{
    assert(image->semaphore->version == image->expected_version + 1);
    buf_append_text(sql, "UPDATE semaphore SET version=IF(version=");
    buf_append_u64(sql, image->expected_version);
    buf_append_text(sql, ",version+1,NULL),");
    usage_sql(image, sql);
    if (queue) {
        buf_append_text(sql, ",waiting=");
        buf_append_i64(sql, image->semaphore->waiting);
    }
    if (image->settings)
        settings_sql(image->semaphore, sql);
    buf_append_text(sql, " WHERE id=");
    buf_append_u64(sql, image->semaphore->id);
    buf_append_char(sql, ';');
}

/* Appends the values of a row that must exist, for USAGE_COLUMNS and for `waiting` if queues change. */
static void usage_values_sql(const struct semaphore_image *image, bool queue, struct buf *sql)
{
    const struct semaphore *semaphore = image->semaphore;
    assert(semaphore->version == image->expected_version + 1);
    buf_append_char(sql, '(');
    buf_append_u64(sql, semaphore->id);
    buf_append_text(sql, ",'',0,0,0,0,");
    buf_append_u64(sql, semaphore->version);
    buf_append_char(sql, ',');
    buf_append_i64(sql, semaphore->in_use);
    buf_append_char(sql, ',');
    buf_append_i64(sql, semaphore->confirmed);
    buf_append_char(sql, ',');
    buf_append_u64(sql, semaphore->next_permit_id);
    buf_append_char(sql, ',');
    sql_time(sql, semaphore->next_due_at);
    buf_append_char(sql, ',');
    buf_append_u64(sql, semaphore->first_free);
    if (queue) {
        buf_append_char(sql, ',');
        buf_append_i64(sql, semaphore->waiting);
    }
    buf_append_char(sql, ')');
}

#define NO_DEFAULT_COLUMNS "name,kind,capacity,default_ttl_ms,max_hold_ms" /* NOT NULL: each needs some value */
#define USAGE_COLUMNS      "id," NO_DEFAULT_COLUMNS ",version,in_use,confirmed,next_permit_id,next_due_at,first_free"
#define USAGE_ASSIGNMENTS                                                                                              \
    "version=IF(version=VALUES(version)-1,VALUES(version),NULL),in_use=VALUES(in_use),confirmed=VALUES(confirmed),"    \
    "next_permit_id=VALUES(next_permit_id),next_due_at=VALUES(next_due_at),first_free=VALUES(first_free)"

/* Returns true if the batch changes only the usage of the semaphore, as most batches do. */
static bool changes_usage(const struct semaphore_image *image)
{
    bool slots = image->slots_to || image->retire_from || image->drop_labels;
    return image->changed && !image->insert && !image->settings && !slots;
}

/*
 * Writes the usage of several semaphores in one statement. The INSERT finds each row by its primary key and counts 2
 * for the update. A missing row would be inserted without a name and count 1, which the next guard detects. The
 * assignment of `version` is the compare-and-set: it sees the old row.
 */
static void update_usages_sql(const struct changes *changes, bool queue, struct batch_guard *guard, struct buf *sql)
{
    size_t rows = 0;
    batch_check_guard_sql(guard, sql);
    buf_append_text(sql, queue ? "INSERT INTO semaphore (" USAGE_COLUMNS ",waiting) VALUES "
                               : "INSERT INTO semaphore (" USAGE_COLUMNS ") VALUES ");
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        if (!changes_usage(&changes->semaphores[i]))
            continue;
        comma_sql(sql, rows++);
        usage_values_sql(&changes->semaphores[i], queue, sql);
    }
    assert(rows <= BATCH_ROWS_A_STATEMENT);
    buf_append_text(sql, queue ? " ON DUPLICATE KEY UPDATE " USAGE_ASSIGNMENTS ",waiting=VALUES(waiting);"
                               : " ON DUPLICATE KEY UPDATE " USAGE_ASSIGNMENTS ";");
    *guard = (struct batch_guard){true, 2 * rows};
}

/* Creates slot rows, BATCH_ROWS_A_STATEMENT per statement. A row that exists already is put back into service. */
static void create_slots_sql(const struct semaphore_image *image, struct buf *sql)
{
    for (uint32_t first = image->slots_from; first <= image->slots_to; first += BATCH_ROWS_A_STATEMENT) {
        buf_append_text(sql, "INSERT INTO slot (semaphore_id,number) VALUES ");
        for (uint32_t number = first; number <= image->slots_to && number < first + BATCH_ROWS_A_STATEMENT; number++) {
            comma_sql(sql, number - first);
            buf_append_char(sql, '(');
            buf_append_u64(sql, image->semaphore->id);
            buf_append_char(sql, ',');
            buf_append_u64(sql, number);
            buf_append_char(sql, ')');
        }
        buf_append_text(sql, " ON DUPLICATE KEY UPDATE retired=0;");
    }
}

static void events_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    if (changes->event_count == 0)
        return;
    buf_append_text(sql, "INSERT INTO semaphore_event (semaphore_id,at,who,what,from_value,to_value,why,next_permit_id)"
                         " VALUES ");
    for (size_t i = 0; i < changes->event_count; i++) {
        const struct event *event = &changes->events[i];
        comma_sql(sql, i);
        buf_append_char(sql, '(');
        batch_guarded_value_sql(guard, event->semaphore_id, sql);
        buf_append_char(sql, ',');
        sql_time(sql, changes->wall_now);
        buf_append_char(sql, ',');
        sql_bytes(sql, event->who);
        buf_append_char(sql, ',');
        sql_bytes(sql, bytes_of(event->what));
        buf_append_char(sql, ',');
        sql_text_or_null(sql, event->from);
        buf_append_char(sql, ',');
        sql_text_or_null(sql, event->to);
        buf_append_char(sql, ',');
        sql_text_or_null(sql, event->why);
        buf_append_char(sql, ',');
        buf_append_u64(sql, event->next_permit_id);
        buf_append_char(sql, ')');
    }
    buf_append_char(sql, ';');
}

/* Writes one semaphore, and its slots as far as an operator changes them. */
static void semaphore_sql(const struct semaphore_image *image, bool queue, struct batch_guard *guard, struct buf *sql)
{
    unsigned long long id = image->semaphore->id;
    batch_check_guard_sql(guard, sql);
    if (image->insert) {
        insert_semaphore_sql(image, sql);
    } else {
        update_semaphore_sql(image, queue, sql);
        *guard = (struct batch_guard){true, 1};
    }
    if (changes_usage(image))
        return;
    batch_check_guard_sql(guard, sql);
    if (image->drop_labels)
        buf_printf(
            sql, "UPDATE slot FORCE INDEX (PRIMARY) SET label=NULL WHERE semaphore_id=%llu AND label IS NOT NULL;", id);
    if (image->slots_to)
        create_slots_sql(image, sql);
    if (image->retire_from)
        buf_printf(sql, "UPDATE slot FORCE INDEX (PRIMARY) SET retired=1 WHERE semaphore_id=%llu AND number>=%u;", id,
                   image->retire_from);
}

/* One row costs less as an UPDATE than as an INSERT. */
static void semaphores_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    bool queue = changes_queues(changes);
    size_t usages = 0;
    for (size_t i = 0; i < changes->semaphore_count; i++)
        usages += changes_usage(&changes->semaphores[i]);
    for (size_t i = 0; i < changes->semaphore_count; i++)
        if (changes->semaphores[i].changed && (usages == 1 || !changes_usage(&changes->semaphores[i])))
            semaphore_sql(&changes->semaphores[i], queue, guard, sql);
    if (usages > 1)
        update_usages_sql(changes, queue, guard, sql);
}

/* ---- new requests and their permits ---- */

static utc_us time_or_never(utc_us time)
{
    return time ? time : NEVER;
}

static void id_or_null_sql(struct buf *sql, int64_t id)
{
    if (id)
        buf_append_i64(sql, id);
    else
        buf_append_text(sql, "NULL");
}

/* Appends the values of a new row, a grant or a tombstone. The other columns have their defaults. */
static void request_values_sql(const struct request *request, struct batch_guard *guard, struct buf *sql)
{
    struct bytes digest = {(const char *)request->digest, DIGEST_SIZE};
    buf_append_char(sql, '(');
    batch_guarded_value_sql(guard, request->id, sql);
    buf_append_char(sql, ',');
    sql_bytes(sql, request->external_id);
    buf_append_char(sql, ',');
    sql_bytes_or_null(sql, request->has_digest ? digest : (struct bytes){0});
    buf_append_char(sql, ',');
    sql_bytes(sql, request->owner);
    buf_append_char(sql, ',');
    sql_bytes(sql, request->principal);
    buf_append_char(sql, ',');
    sql_ms_or_null(sql, request->ttl_ms);
    buf_append_char(sql, ',');
    sql_time(sql, request->due_at);
    buf_append_char(sql, ',');
    buf_append_i64(sql, request->grace_ms);
    buf_append_char(sql, ',');
    sql_time(sql, request->acquired_at);
    buf_append_char(sql, ',');
    sql_bytes(sql, request->nonce);
}

/* The INSERTs of new requests, from the shortest to the longest. */
enum insert_kind {
    INSERT_GRANTS, /* plain grants */
    INSERT_OTHERS, /* tombstones, and grants that later operations of the same batch have changed */
    INSERT_QUEUE,  /* those that wait, have waited or have a priority */
    INSERT_KIND_COUNT
};

static enum insert_kind insert_kind(const struct request *request)
{
    if (request->state == REQUEST_WAITING || request->server_id || request->priority ||
        time_or_never(request->place) != NEVER)
        return INSERT_QUEUE;
    bool plain = request->state == REQUEST_ACQUIRED && request->renewals == 0 && request->replays == 0 &&
                 request->confirmed_at == NEVER;
    return plain ? INSERT_GRANTS : INSERT_OTHERS;
}

#define NEW_REQUEST_COLUMNS   "id,external_id,digest,owner,principal,ttl_ms,due_at,grace_ms,acquired_at,nonce"
#define OTHER_REQUEST_COLUMNS NEW_REQUEST_COLUMNS ",state,end_reason,renewals,replays,ended_at,confirmed_at"

static const char *const insert_beginnings[] = {
    [INSERT_GRANTS] = "INSERT INTO permit_request (" NEW_REQUEST_COLUMNS ") VALUES ",
    [INSERT_OTHERS] = "INSERT INTO permit_request (" OTHER_REQUEST_COLUMNS ") VALUES ",
    [INSERT_QUEUE] = "INSERT INTO permit_request (" OTHER_REQUEST_COLUMNS
                     ",priority,place,waiting_since,waiting_until,server_id,wanted) VALUES ",
};

static void queue_values_sql(const struct request *request, struct buf *sql)
{
    buf_printf(sql, ",%d,", request->priority);
    sql_time(sql, time_or_never(request->place));
    buf_append_char(sql, ',');
    sql_time(sql, time_or_never(request->waiting_since));
    buf_append_char(sql, ',');
    sql_time(sql, time_or_never(request->waiting_until));
    buf_append_char(sql, ',');
    id_or_null_sql(sql, (int64_t)request->server_id);
    buf_append_char(sql, ',');
    sql_bytes_or_null(sql, request->state == REQUEST_WAITING ? request->wanted : (struct bytes){0});
}

/* Appends one INSERT for all new requests of this kind. */
static void insert_requests_sql(const struct changes *changes, size_t count, enum insert_kind kind,
                                struct batch_guard *guard, struct buf *sql)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        const struct request *request = changes->requests[i].request;
        if (insert_kind(request) != kind)
            continue;
        if (rows == 0)
            buf_append_text(sql, insert_beginnings[kind]);
        comma_sql(sql, rows++);
        request_values_sql(request, guard, sql);
        if (kind != INSERT_GRANTS) {
            buf_printf(sql, ",%d,%d,%u,%u,", (int)request->state, (int)request->end_reason, request->renewals,
                       request->replays);
            sql_ended(sql, request->ended_at);
            buf_append_char(sql, ',');
            sql_time(sql, request->confirmed_at);
        }
        if (kind == INSERT_QUEUE)
            queue_values_sql(request, sql);
        buf_append_char(sql, ')');
    }
    if (rows)
        buf_append_char(sql, ';');
}

static void labels_sql(const struct permit *permit, struct buf *sql)
{
    struct buf text;
    buf_init(&text, LABELS_TEXT_MAX);
    labels_format(permit->labels, permit->slots.count, &text);
    sql_bytes(sql, (struct bytes){text.data, text.length});
    sql->broken |= text.broken;
    buf_release(&text);
}

static void permit_values_sql(const struct request *request, const struct permit *permit, bool labels,
                              struct batch_guard *guard, struct buf *sql)
{
    buf_append_char(sql, '(');
    batch_guarded_value_sql(guard, permit->semaphore_id, sql);
    buf_append_char(sql, ',');
    buf_append_u64(sql, permit->token);
    buf_append_char(sql, ',');
    buf_append_u64(sql, request->id);
    buf_append_char(sql, ',');
    buf_append_i64(sql, permit->count);
    buf_append_text(sql, ",'");
    slots_format(&permit->slots, sql);
    buf_append_char(sql, '\'');
    if (labels)
        buf_append_char(sql, ',');
    if (labels && permit->labels)
        labels_sql(permit, sql);
    else if (labels)
        buf_append_text(sql, "NULL");
    buf_append_char(sql, ')');
}

/* Returns true if the permits of the request are inserted: it is new, or it waited. */
static bool has_new_permits(const struct request_change *change)
{
    return change->insert || change->grants;
}

static bool any_labels(const struct changes *changes)
{
    for (size_t i = 0; i < changes->request_count; i++)
        for (size_t j = 0; has_new_permits(&changes->requests[i]) && j < changes->requests[i].request->permit_count;
             j++)
            if (changes->requests[i].request->permits[j].labels)
                return true;
    return false;
}

#define NEW_PERMIT_COLUMNS "semaphore_id,id,permit_request_id,count,slots"

static void insert_permits_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    size_t rows = 0;
    bool labels = any_labels(changes);
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; has_new_permits(&changes->requests[i]) && j < request->permit_count; j++) {
            size_t row = rows++ % BATCH_ROWS_A_STATEMENT;
            if (row == 0)
                buf_append_text(sql, rows > 1 ? ";" : "");
            if (row == 0)
                buf_append_text(sql, labels ? "INSERT INTO permit (" NEW_PERMIT_COLUMNS ",labels) VALUES "
                                            : "INSERT INTO permit (" NEW_PERMIT_COLUMNS ") VALUES ");
            comma_sql(sql, row);
            permit_values_sql(request, &request->permits[j], labels, guard, sql);
        }
    }
    if (rows)
        buf_append_char(sql, ';');
}

/* ---- slots ---- */

/*
 * Moves existing slots to other permits. The INSERT finds each slot by its primary key and counts 2 for the update. A
 * missing slot would be inserted and count 1, which the next guard detects. The assignment of permit_id is guarded.
 * Both MariaDB and MySQL accept VALUES().
 */
static void move_slots_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < changes->slot_count; first = end) {
        end = batch_statement_end(first, changes->slot_count);
        buf_append_text(sql, "INSERT INTO slot (semaphore_id,number,permit_id) VALUES ");
        for (size_t i = first; i < end; i++) {
            const struct slot_change *slot = &changes->slots[i];
            assert(i == 0 || slot[-1].semaphore_id < slot->semaphore_id ||
                   (slot[-1].semaphore_id == slot->semaphore_id && slot[-1].number < slot->number));
            comma_sql(sql, i - first);
            buf_append_char(sql, '(');
            buf_append_u64(sql, slot->semaphore_id);
            buf_append_char(sql, ',');
            buf_append_u64(sql, slot->number);
            buf_append_char(sql, ',');
            buf_append_u64(sql, slot->permit_id);
            buf_append_char(sql, ')');
        }
        buf_append_text(sql, " ON DUPLICATE KEY UPDATE ");
        batch_guarded_sql(guard, "permit_id", NULL, "VALUES(permit_id)", sql);
        buf_append_text(sql, ",last_permit_id=IF(VALUES(permit_id),VALUES(permit_id),last_permit_id);");
        *guard = (struct batch_guard){true, 2 * (end - first)};
    }
}

/* ---- labels ---- */

static void label_rows_sql(const struct label_change *labels, size_t count, struct buf *sql)
{
    buf_append_text(sql, " WHERE semaphore_id=");
    buf_append_u64(sql, labels[0].semaphore_id);
    buf_append_text(sql, " AND number IN (");
    for (size_t i = 0; i < count; i++) {
        comma_sql(sql, i);
        buf_append_u64(sql, labels[i].number);
    }
    buf_append_text(sql, ");");
}

/* Clears the labels of these slots. The number of changed rows is unknown, because some may have no label: no guard. */
static void clear_labels_sql(const struct label_change *labels, size_t count, struct batch_guard *guard,
                             struct buf *sql)
{
    batch_check_guard_sql(guard, sql);
    buf_append_text(sql, "UPDATE slot FORCE INDEX (PRIMARY) SET label=NULL");
    label_rows_sql(labels, count, sql);
}

static void set_labels_sql(const struct label_change *labels, size_t count, struct batch_guard *guard, struct buf *sql)
{
    size_t labels_set = 0;
    for (size_t i = 0; i < count; i++)
        labels_set += labels[i].label.data != NULL;
    if (labels_set == 0)
        return;
    buf_append_text(sql, "UPDATE slot FORCE INDEX (PRIMARY) SET ");
    batch_guarded_sql(guard, "retired", NULL, "retired", sql);
    buf_append_text(sql, ",label=CASE number");
    for (size_t i = 0; i < count; i++) {
        if (!labels[i].label.data)
            continue;
        buf_append_text(sql, " WHEN ");
        buf_append_u64(sql, labels[i].number);
        buf_append_text(sql, " THEN ");
        sql_bytes(sql, labels[i].label);
    }
    buf_append_text(sql, " END");
    label_rows_sql(labels, count, sql);
    *guard = (struct batch_guard){true, labels_set};
}

/* Returns the number of labels in the statement that starts at `first`. */
static size_t label_statement_size(const struct changes *changes, size_t first)
{
    return batch_statement_end(first, changes->label_count) - first;
}

/*
 * Clears all labels that change before it sets the new ones: a label is unique in its semaphore, and one may move from
 * one slot to another.
 */
static void changed_labels_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    const struct label_change *labels = changes->labels;
    for (size_t first = 0; first < changes->label_count; first += BATCH_ROWS_A_STATEMENT)
        clear_labels_sql(labels + first, label_statement_size(changes, first), guard, sql);
    for (size_t first = 0; first < changes->label_count; first += BATCH_ROWS_A_STATEMENT)
        set_labels_sql(labels + first, label_statement_size(changes, first), guard, sql);
}

/* ---- requests that change ---- */

static int64_t value_end_reason(const struct request *request)
{
    return request->end_reason;
}

static int64_t value_ttl_ms(const struct request *request)
{
    return request->ttl_ms;
}

static int64_t value_due_at(const struct request *request)
{
    return request->due_at;
}

static int64_t value_confirmed_at(const struct request *request)
{
    return request->confirmed_at;
}

static int64_t value_renewals(const struct request *request)
{
    return request->renewals;
}

static int64_t value_replays(const struct request *request)
{
    return request->replays;
}

static int64_t value_ended_at(const struct request *request)
{
    return request->ended_at;
}

static int64_t value_grace_ms(const struct request *request)
{
    return request->grace_ms;
}

static int64_t value_acquired_at(const struct request *request)
{
    return request->acquired_at;
}

static int64_t value_priority(const struct request *request)
{
    return request->priority;
}

static int64_t value_place(const struct request *request)
{
    return time_or_never(request->place);
}

static int64_t value_waiting_since(const struct request *request)
{
    return time_or_never(request->waiting_since);
}

static int64_t value_waiting_until(const struct request *request)
{
    return time_or_never(request->waiting_until);
}

static int64_t value_server_id(const struct request *request)
{
    return (int64_t)request->server_id;
}

static struct bytes value_wanted(const struct request *request)
{
    return request->state == REQUEST_WAITING ? request->wanted : (struct bytes){0};
}

static struct bytes value_digest(const struct request *request)
{
    return request->has_digest ? (struct bytes){(const char *)request->digest, DIGEST_SIZE} : (struct bytes){0};
}

static struct bytes value_owner(const struct request *request)
{
    return request->owner;
}

static struct bytes value_principal(const struct request *request)
{
    return request->principal;
}

static struct bytes value_nonce(const struct request *request)
{
    return request->nonce;
}

/*
 * The columns of permit_request that an operation may change. Counters are incremented, not set: a tombstone has no
 * semaphore whose lock would stop another permitd from counting at the same time. A counter wraps around to 0: if it
 * stayed at its maximum, the transaction of the answer would change no row.
 */
static const struct {
    const char *assign;
    int64_t (*value)(const struct request *request);
    void (*write)(struct buf *sql, int64_t value);
    bool counter;
} columns[] = {
    {",end_reason=", value_end_reason, buf_append_i64, false},
    {",ttl_ms=", value_ttl_ms, sql_ms_or_null, false},
    {",due_at=", value_due_at, sql_time, false},
    {",confirmed_at=", value_confirmed_at, sql_time, false},
    {",renewals=4294967295&renewals+", value_renewals, buf_append_i64, true},
    {",replays=4294967295&replays+", value_replays, buf_append_i64, true},
    {",ended_at=", value_ended_at, sql_ended, false},
    /* Below: only of requests that wait, and of unclaimed grants. */
    {",grace_ms=", value_grace_ms, buf_append_i64, false},
    {",acquired_at=", value_acquired_at, sql_time, false},
    {",priority=", value_priority, buf_append_i64, false},
    {",place=", value_place, sql_time, false},
    {",waiting_since=", value_waiting_since, sql_time, false},
    {",waiting_until=", value_waiting_until, sql_time, false},
    {",server_id=", value_server_id, id_or_null_sql, false},
};

/* The same for columns of bytes: a grant has a nonce of its own, and a place may be taken over with another content. */
static const struct {
    const char *assign;
    struct bytes (*value)(const struct request *request);
    bool nullable; /* data NULL is NULL, else an empty value */
} byte_columns[] = {
    {",wanted=", value_wanted, true},        {",digest=", value_digest, true}, {",owner=", value_owner, false},
    {",principal=", value_principal, false}, {",nonce=", value_nonce, false},
};
enum { BYTE_COLUMN_BITS = 16 }; /* bit of byte_columns[0] in row_update.differing */
static_assert(ARRAY_LENGTH(columns) <= BYTE_COLUMN_BITS, "each column has a bit of its own");

/* A row to update. */
struct row_update {
    const struct request_change *change;
    unsigned differing; /* bit n: columns[n] differs from the row that was read; from BYTE_COLUMN_BITS: byte_columns */
};

/* Returns the value to write: the new value, or the increment of a counter. */
static int64_t written_value(const struct request_change *change, size_t column)
{
    int64_t value = columns[column].value(change->request);
    return columns[column].counter ? (uint32_t)(value - columns[column].value(change->before)) : value;
}

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Returns 0 if one UPDATE can write both rows. */
static int compare_updates(const struct row_update *left, const struct row_update *right)
{
    int order = compare_i64(left->differing, right->differing);
    if (!order)
        order = compare_i64(left->change->request->state, right->change->request->state);
    if (!order)
        order = compare_i64(left->change->before->state, right->change->before->state);
    for (size_t i = 0; i < ARRAY_LENGTH(columns) && !order; i++)
        if (left->differing & 1u << i)
            order = compare_i64(written_value(left->change, i), written_value(right->change, i));
    for (size_t i = 0; i < ARRAY_LENGTH(byte_columns) && !order; i++)
        if (left->differing & 1u << (BYTE_COLUMN_BITS + i))
            order = bytes_compare(byte_columns[i].value(left->change->request),
                                  byte_columns[i].value(right->change->request));
    return order;
}

static int compare_updates_and_ids(const void *a, const void *b)
{
    const struct row_update *left = a;
    const struct row_update *right = b;
    int order = compare_updates(left, right);
    if (order)
        return order;
    return (left->change->request->id > right->change->request->id) -
           (left->change->request->id < right->change->request->id);
}

/* By enum request_state. */
static const char *const state_values[] = {[REQUEST_ACQUIRED] = "1", [REQUEST_RELEASED] = "2", [REQUEST_WAITING] = "3"};
static const char *const state_conditions[] = {
    [REQUEST_ACQUIRED] = "state=1", [REQUEST_RELEASED] = "state=2", [REQUEST_WAITING] = "state=3"};

static unsigned differing_columns(const struct request_change *change)
{
    unsigned differing = 0;
    for (size_t c = 0; c < ARRAY_LENGTH(columns); c++)
        if (columns[c].value(change->request) != columns[c].value(change->before))
            differing |= 1u << c;
    for (size_t c = 0; c < ARRAY_LENGTH(byte_columns); c++) {
        struct bytes after = byte_columns[c].value(change->request), before = byte_columns[c].value(change->before);
        if ((byte_columns[c].nullable && !after.data != !before.data) || !bytes_equal(after, before))
            differing |= 1u << (BYTE_COLUMN_BITS + c);
    }
    return differing;
}

static void assignments_sql(const struct row_update *update, struct buf *sql)
{
    for (size_t c = 0; c < ARRAY_LENGTH(columns); c++) {
        if (!(update->differing & 1u << c))
            continue;
        buf_append_text(sql, columns[c].assign);
        columns[c].write(sql, written_value(update->change, c));
    }
    for (size_t c = 0; c < ARRAY_LENGTH(byte_columns); c++) {
        if (!(update->differing & 1u << (BYTE_COLUMN_BITS + c)))
            continue;
        struct bytes value = byte_columns[c].value(update->change->request);
        buf_append_text(sql, byte_columns[c].assign);
        if (byte_columns[c].nullable)
            sql_bytes_or_null(sql, value);
        else
            sql_bytes(sql, value);
    }
}

/*
 * Appends one UPDATE for all rows with the same new values; usually one for all releases of the batch. It fails if a
 * row is no longer in the state it was read in. Without the index hint the server scans the table if the list names
 * most of it, and waits for the locks of other rows.
 */
static void update_requests_sql(const struct changes *changes, size_t inserts, struct arena *arena,
                                struct batch_guard *guard, struct buf *sql)
{
    size_t count = 0;
    struct row_update *updates = arena_array(arena, changes->request_count - inserts, sizeof *updates);
    if (!updates) {
        sql->broken = BUF_NO_MEMORY;
        return;
    }
    for (size_t i = inserts; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        if (change->remove)
            continue;
        assert(!change->insert && change->before && change->before->id == change->request->id);
        updates[count++] = (struct row_update){.change = change, .differing = differing_columns(change)};
    }
    qsort(updates, count, sizeof *updates, compare_updates_and_ids);
    for (size_t first = 0, next; first < count; first = next) {
        const struct request_change *change = updates[first].change;
        /* Retention takes no semaphore lock, so it may have deleted rows that had ended before. Their answer stands. */
        bool may_miss = change->before->state == REQUEST_RELEASED;
        if (may_miss) /* an UPDATE of no row checks nothing */
            batch_check_guard_sql(guard, sql);
        buf_append_text(sql, "UPDATE permit_request FORCE INDEX (PRIMARY) SET ");
        batch_guarded_sql(guard, "state", state_conditions[change->before->state], state_values[change->request->state],
                          sql);
        assignments_sql(&updates[first], sql);
        buf_append_text(sql, " WHERE id IN (");
        size_t end = batch_statement_end(first, count);
        for (next = first; next < end && compare_updates(&updates[first], &updates[next]) == 0; next++) {
            comma_sql(sql, next - first);
            buf_append_u64(sql, updates[next].change->request->id);
        }
        buf_append_text(sql, ");");
        *guard = (struct batch_guard){!may_miss, next - first};
    }
}

/* ---- queues and mail ---- */

/* Deletes requests that waited. This comes before the INSERTs: a key may be entered anew in the same batch. */
static void delete_requests_sql(const struct changes *changes, size_t inserts, struct batch_guard *guard,
                                struct buf *sql)
{
    size_t rows = 0;
    for (size_t i = inserts; i < changes->request_count; i++) {
        if (!changes->requests[i].remove)
            continue;
        if (rows == BATCH_ROWS_A_STATEMENT) {
            buf_append_text(sql, ");");
            *guard = (struct batch_guard){true, rows};
            rows = 0;
        }
        if (rows == 0) {
            batch_check_guard_sql(guard, sql);
            buf_append_text(sql, "DELETE r FROM permit_request r FORCE INDEX (PRIMARY) WHERE r.state=3 AND r.id IN (");
        }
        comma_sql(sql, rows++);
        buf_append_u64(sql, changes->requests[i].request->id);
    }
    if (rows == 0)
        return;
    buf_append_text(sql, ");");
    *guard = (struct batch_guard){true, rows};
}

/*
 * The join finds each row by its whole primary key. (By conditions on the key, the server walks the queue along
 * semaphore_id, past all rows that were deleted and are not purged yet.)
 */
static void delete_places_sql(const struct changes *changes, size_t count, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = batch_statement_end(first, count);
        batch_check_guard_sql(guard, sql);
        buf_append_text(sql, "DELETE w FROM (");
        for (size_t i = first; i < end; i++) {
            const struct place_change *place = &changes->places[i];
            buf_append_text(sql, i > first ? " UNION ALL SELECT " : "SELECT ");
            buf_append_u64(sql, place->semaphore_id);
            buf_append_text(sql, i > first ? ",TIMESTAMP" : " AS semaphore_id,TIMESTAMP");
            sql_time(sql, place->place);
            buf_append_text(sql, i > first ? "," : " AS place,");
            buf_append_u64(sql, place->request_id);
            buf_append_text(sql, i > first ? "" : " AS id");
        }
        buf_append_text(sql, ") t STRAIGHT_JOIN waiter w FORCE INDEX (PRIMARY) ON w.semaphore_id=t.semaphore_id"
                             " AND w.place=t.place AND w.permit_request_id=t.id;");
        *guard = (struct batch_guard){true, end - first};
    }
}

static void insert_places_sql(const struct changes *changes, size_t first, struct batch_guard *guard, struct buf *sql)
{
    for (size_t end; first < changes->place_count; first = end) {
        end = batch_statement_end(first, changes->place_count);
        buf_append_text(sql, "INSERT INTO waiter (semaphore_id,place,permit_request_id,count,watch,needs) VALUES ");
        for (size_t i = first; i < end; i++) {
            const struct place_change *place = &changes->places[i];
            assert(!place->remove);
            comma_sql(sql, i - first);
            buf_append_char(sql, '(');
            batch_guarded_value_sql(guard, place->semaphore_id, sql);
            buf_append_char(sql, ',');
            sql_time(sql, place->place);
            buf_append_char(sql, ',');
            buf_append_u64(sql, place->request_id);
            buf_append_char(sql, ',');
            buf_append_i64(sql, place->count);
            buf_append_char(sql, ',');
            buf_append_u64(sql, place->watch && place->count > 1 ? place->watch | WATCHES_ONE_OF_MANY : place->watch);
            buf_append_char(sql, ',');
            buf_append_u64(sql, place->needs);
            buf_append_char(sql, ')');
        }
        buf_append_char(sql, ';');
    }
}

/* Waiters watch no slot that stays free. Walks waiter_watch; the rows are those of the slots alone. */
static void clear_watches_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    uint64_t semaphore_id = 0; /* of the statement that is open; 0: none is */
    size_t count = 0;
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *slot = &changes->slots[i];
        if (!changes_clear_watch(changes, slot))
            continue;
        bool goes_on = semaphore_id == slot->semaphore_id && count < BATCH_ROWS_A_STATEMENT;
        if (semaphore_id && !goes_on)
            buf_append_text(sql, ");");
        if (goes_on) {
            buf_append_char(sql, ',');
        } else {
            batch_check_guard_sql(guard, sql); /* the UPDATE may find no row */
            buf_printf(sql,
                       "UPDATE waiter FORCE INDEX (waiter_watch) SET watch=0 WHERE semaphore_id=%llu AND watch IN (",
                       (unsigned long long)slot->semaphore_id);
            count = 0;
        }
        buf_printf(sql, "%u,%u", slot->number, slot->number | WATCHES_ONE_OF_MANY);
        semaphore_id = slot->semaphore_id;
        count += 2;
    }
    if (semaphore_id)
        buf_append_text(sql, ");");
}

/*
 * Mail is not guarded: its server may have read and deleted it, and mail that is there already serves. The lists are
 * ascending, so that batches lock the rows in one order.
 */
static void mail_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < changes->mail_count; first = end) {
        const struct mail *mail = &changes->mail[first];
        end = batch_statement_end(first, changes->mail_count);
        if (mail->remove) {
            batch_check_guard_sql(guard, sql); /* the DELETE may find no row */
            buf_printf(sql,
                       "DELETE m FROM mail m FORCE INDEX (PRIMARY) WHERE m.server_id=%llu AND m.permit_request_id IN (",
                       (unsigned long long)mail->server_id);
        } else {
            buf_append_text(sql, "INSERT INTO mail (server_id,permit_request_id) VALUES ");
        }
        for (size_t i = first; i < end; i++) {
            const struct mail *other = &changes->mail[i];
            if (other->remove != mail->remove || (mail->remove && other->server_id != mail->server_id)) {
                end = i;
                break;
            }
            comma_sql(sql, i - first);
            if (!mail->remove) {
                buf_append_char(sql, '(');
                batch_guarded_value_sql(guard, other->server_id, sql);
                buf_append_char(sql, ',');
            }
            buf_append_u64(sql, other->request_id);
            if (!mail->remove)
                buf_append_char(sql, ')');
        }
        buf_append_text(sql, mail->remove ? ");" : " ON DUPLICATE KEY UPDATE server_id=VALUES(server_id);");
    }
}

/* Returns true if there are any. */
static bool lock_ended_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard,
                           struct buf *sql)
{
    uint64_t *ids = arena_array(arena, changes->request_count, sizeof *ids);
    size_t count = 0;
    sql->broken |= !ids;
    for (size_t i = 0; ids && i < changes->request_count; i++)
        if (changes->requests[i].for_others)
            ids[count++] = changes->requests[i].request->id;
    if (count == 0)
        return false;
    batch_check_guard_sql(guard, sql);
    batch_lock_requests_sql(ids, u64_sort_unique(ids, count), "NOWAIT;", sql);
    return true;
}

bool batch_changes_sql(const struct changes *changes, bool locks_requests, struct arena *arena, struct buf *sql)
{
    struct batch_guard guard = {0};
    size_t inserts = 0;
    while (inserts < changes->request_count && changes->requests[inserts].insert)
        inserts++;
    size_t places_removed = 0;
    while (places_removed < changes->place_count && changes->places[places_removed].remove)
        places_removed++;
    /* Each statement checks the one before it, unless that one may find fewer rows. */
    semaphores_sql(changes, &guard, sql);
    bool any_locked = locks_requests && lock_ended_sql(changes, arena, &guard, sql);
    events_sql(changes, &guard, sql);
    mail_sql(changes, &guard, sql);
    clear_watches_sql(changes, &guard, sql);
    delete_requests_sql(changes, inserts, &guard, sql);
    delete_places_sql(changes, places_removed, &guard, sql);
    held_changes_sql(changes, arena, &guard, sql);
    move_slots_sql(changes, &guard, sql);
    changed_labels_sql(changes, &guard, sql);
    update_requests_sql(changes, inserts, arena, &guard, sql);
    for (enum insert_kind kind = 0; kind < INSERT_KIND_COUNT; kind++)
        insert_requests_sql(changes, inserts, kind, &guard, sql);
    insert_places_sql(changes, places_removed, &guard, sql);
    insert_permits_sql(changes, &guard, sql);
    batch_check_guard_sql(&guard, sql);
    return any_locked;
}

/*
 * Lease time clamp(now, tick_at, tick_at + 5 s) - offset, computed from the row, because each tick changes tick_at and
 * offset.
 */
static void lease_time_sql(const struct assumed *assumed, struct buf *sql)
{
    buf_printf(sql,
               "GREATEST(LEAST(" SQL_NOW_US
               "," SQL_US("c.tick_at") "+%lld)," SQL_US("c.tick_at") ")-c.offset_us"
                                                                     " NOT BETWEEN %lld AND %lld",
               LEASE_LEAP_US, (long long)assumed->now, (long long)(assumed->now + assumed->slack_us));
}

/*
 * Two statements, which fail with different errors: 1242 (a subquery with two rows) if a request has one of the keys, 1690
 * (out of range) for the rest. Both read after the locks, so they see all that was committed before, and take none: in a
 * SET or DO they would lock the `cluster` row. The time is read here, because the packet may have waited for its locks
 * for long. The identity is that of this session's server, as it was when the session began.
 */
void batch_assumed_sql(const struct assumed *assumed, const char *identity, struct buf *sql)
{
    if (assumed->absent_count) {
        buf_append_text(sql, "SELECT (SELECT 1 UNION ALL SELECT 1 FROM permit_request"
                             " FORCE INDEX (permit_request_external_id) WHERE external_id IN (");
        sql_bytes_list(sql, assumed->absent, assumed->absent_count);
        buf_append_text(sql, "));");
    }
    buf_printf(sql, "SELECT 9223372036854775807+(c.identity<>%s OR c.epoch<>%llu OR ", identity,
               (unsigned long long)assumed->epoch);
    lease_time_sql(assumed, sql);
    if (assumed->server_id)
        buf_printf(sql, " OR NOT EXISTS(SELECT 1 FROM server WHERE id=%llu AND dead_at IS NULL)",
                   (unsigned long long)assumed->server_id);
    buf_append_text(sql, ") FROM cluster c WHERE c.id=1;");
}
