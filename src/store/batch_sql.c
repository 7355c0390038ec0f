/* SPDX-License-Identifier: MIT */
/*
 * The write packet of a batch: writes the final row images; `prepare` adds COMMIT. In this order:
 * - semaphores, in ascending id order, by a compare-and-set: if it misses, NULL goes into a NOT NULL column, which is
 *   error 1048 in strict mode and stops the packet before COMMIT; several semaphores in one statement;
 * - on MySQL, the locks of the requests that change and are not locked yet: all of a batch on copies, else waiters;
 * - the URL that a semaphore names for its events; events;
 * - mail and the watches of freed slots; then requests and places that are deleted;
 * - which permits are held, and the deadlines of waiting requests (held.c); slots, labels;
 * - changed requests, by primary key;
 * - new requests, in up to three INSERTs (enum insert_kind), each sorted by the bytes of external_id;
 * - new places, the permits that exchanges replace, and the permits of grants;
 * - events of the feed: their ids follow the order of the changes of each key and each semaphore;
 * - the metadata that is deleted, which the events may have;
 * - the lock of feed_full, if events are left out.
 */
#include <assert.h>
#include <stdlib.h>

#include "core/lease_clock.h"
#include "core/slots.h"
#include "store/batch.h"
#include "store/batch_guard.h"
#include "store/dialect.h"
#include "store/held.h"
#include "store/row_sql.h"
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

/*
 * Writes one semaphore: the only one of its batch, or one whose settings an operator changes. The assignment of
 * `version` is the compare-and-set, and refuses units above the capacity, unless they do not rise: a smaller capacity
 * throws nobody out. It sees the old row; waiters may be granted with a new capacity.
 */
static void update_semaphore_sql(const struct semaphore_image *image, bool queue, struct buf *sql)
{
    assert(image->semaphore->version == image->expected_version + 1);
    buf_append_text(sql, "UPDATE semaphore SET version=IF(version=");
    buf_append_u64(sql, image->expected_version);
    buf_append_text(sql, " AND ");
    buf_append_i64(sql, image->semaphore->in_use);
    buf_append_text(sql, "<=GREATEST(in_use,");
    if (image->settings)
        buf_append_i64(sql, image->semaphore->capacity);
    else
        buf_append_text(sql, "capacity");
    buf_append_text(sql, "),version+1,NULL)");
    row_set_sql(&semaphore_table, COLUMN_USAGE | (queue ? COLUMN_QUEUE : 0) | (image->settings ? COLUMN_SETTING : 0),
                image->semaphore, false, sql);
    buf_append_text(sql, " WHERE id=");
    buf_append_u64(sql, image->semaphore->id);
    buf_append_char(sql, ';');
}

/* Returns true if the batch changes only the usage of the semaphore, as most batches do. */
static bool changes_usage(const struct semaphore_image *image)
{
    bool slots = image->slots_to || image->retire_from || image->drop_labels;
    return image->changed && !image->insert && !image->settings && !slots;
}

/*
 * Writes the usage of several semaphores in one statement. The INSERT finds each row by its primary key and counts 2
 * for the update. A missing row would be inserted without a name and count 1, which the next guard detects. The
 * assignment of `version` is as in update_semaphore_sql.
 */
static void update_usages_sql(const struct changes *changes, bool queue, struct batch_guard *guard, struct buf *sql)
{
    unsigned usage = COLUMN_USAGE | (queue ? COLUMN_QUEUE : 0);
    struct row_insert insert = {
        .table = &semaphore_table,
        .columns = COLUMN_KEY | usage,
        .more_columns = "name,kind,capacity,default_ttl_ms,max_hold_ms", /* NOT NULL: each needs some value */
        .more_values = "'',0,0,0,0",
        .duplicate =
            "version=IF(version=VALUES(version)-1 AND VALUES(in_use)<=GREATEST(in_use,capacity),VALUES(version),"
            "NULL)",
        .duplicate_columns = usage,
        .guard = guard,
        .counts = 2,
    };
    batch_check_guard_sql(guard, sql);
    for (size_t i = 0; i < changes->semaphore_count; i++) {
        const struct semaphore_image *image = &changes->semaphores[i];
        if (!changes_usage(image))
            continue;
        assert(image->semaphore->version == image->expected_version + 1);
        row_insert_sql(&insert, image->semaphore, sql);
    }
    row_insert_end_sql(&insert, sql);
}

static void events_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {.table = &event_table, .columns = COLUMN_INSERT, .guard = guard};
    for (size_t i = 0; i < changes->event_count; i++) {
        const struct event *event = &changes->events[i];
        struct event_row row = {.semaphore_id = event->semaphore_id,
                                .at = changes->wall_now,
                                .who = event->who,
                                .what = bytes_of(event->what),
                                .from = event->from,
                                .to = event->to,
                                .why = event->why,
                                .next_token = event->next_token};
        row_insert_sql(&insert, &row, sql);
    }
    row_insert_end_sql(&insert, sql);
}

/* Writes one semaphore, and its slots as far as an operator changes them. */
static void semaphore_sql(const struct semaphore_image *image, bool queue, struct batch_guard *guard, struct buf *sql)
{
    unsigned long long id = image->semaphore->id;
    struct row_insert insert = {.table = &semaphore_table, .columns = COLUMN_INSERT | COLUMN_USAGE | COLUMN_SETTING};
    /* A row that exists already is put back into service. */
    struct row_insert slots = {.table = &slot_table, .columns = COLUMN_INSERT, .duplicate = "retired=0"};
    batch_check_guard_sql(guard, sql);
    if (image->insert) {
        row_insert_sql(&insert, image->semaphore, sql);
        row_insert_end_sql(&insert, sql);
    } else {
        update_semaphore_sql(image, queue, sql);
        *guard = (struct batch_guard){true, 1};
    }
    if (changes_usage(image))
        return;
    batch_check_guard_sql(guard, sql);
    if (image->semaphore->feed_url.data)
        webhook_name_sql(image->semaphore->feed_url, sql);
    if (image->drop_labels)
        buf_printf(
            sql,
            "UPDATE slot FORCE INDEX (PRIMARY) SET label=NULL,section=NULL,seat_row=NULL,seat=NULL,seat_rank=NULL,"
            "tags=NULL WHERE semaphore_id=%llu AND COALESCE(label,section,seat_row,seat,seat_rank,tags) IS NOT NULL;",
            id);
    for (uint32_t number = image->slots_from; image->slots_to && number <= image->slots_to; number++)
        row_insert_sql(&slots, &(struct slot_change){.semaphore_id = image->semaphore->id, .number = number}, sql);
    row_insert_end_sql(&slots, sql);
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

/* The INSERTs of new requests, from the shortest to the longest. */
enum insert_kind {
    INSERT_GRANTS, /* plain grants */
    INSERT_OTHERS, /* tombstones, and grants that later operations of the same batch have changed */
    INSERT_QUEUE,  /* those that wait, have waited or have a priority */
    INSERT_KIND_COUNT
};

static const unsigned insert_columns[] = {
    [INSERT_GRANTS] = COLUMN_INSERT,
    [INSERT_OTHERS] = COLUMN_INSERT | COLUMN_MORE,
    [INSERT_QUEUE] = COLUMN_INSERT | COLUMN_MORE | COLUMN_QUEUE,
};

static enum insert_kind insert_kind(const struct request *request)
{
    if (request->state == REQUEST_WAITING || request->server_id || request->priority ||
        (request->place != 0 && request->place != NEVER))
        return INSERT_QUEUE;
    bool plain = request->state == REQUEST_ACQUIRED && request->renewals == 0 && request->replays == 0 &&
                 request->confirmed_at == NEVER;
    return plain ? INSERT_GRANTS : INSERT_OTHERS;
}

/* Appends one INSERT for each kind of new requests. */
static void insert_requests_sql(const struct changes *changes, size_t count, struct batch_guard *guard, struct buf *sql)
{
    for (enum insert_kind kind = 0; kind < INSERT_KIND_COUNT; kind++) {
        struct row_insert insert = {.table = &request_table, .columns = insert_columns[kind], .guard = guard};
        for (size_t i = 0; i < count; i++)
            if (insert_kind(changes->requests[i].request) == kind)
                row_insert_sql(&insert, changes->requests[i].request, sql);
        row_insert_end_sql(&insert, sql);
    }
}

/* Returns true if an INSERT of permits has more columns than those of a plain grant. */
static bool any_more(const struct changes *changes)
{
    bool any = changes->past_count > 0;
    for (size_t i = 0; i < changes->request_count && !any; i++)
        for (size_t j = 0; j < changes->requests[i].request->permit_count; j++) {
            const struct permit *permit = &changes->requests[i].request->permits[j];
            any |= permit->labels && change_inserts(&changes->requests[i], permit);
        }
    return any;
}

static void insert_permits_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {
        .table = &permit_table, .columns = COLUMN_INSERT | (any_more(changes) ? COLUMN_MORE : 0), .guard = guard};
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request *request = changes->requests[i].request;
        for (size_t j = 0; j < request->permit_count; j++)
            if (change_inserts(&changes->requests[i], &request->permits[j]))
                row_insert_sql(&insert, &(struct permit_row){request->permits[j], request->id}, sql);
    }
    row_insert_end_sql(&insert, sql);
}

/* Moves the permits that exchanges change into the record. */
static void past_permits_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {.table = &past_table, .columns = COLUMN_INSERT, .guard = guard};
    struct row_delete deletion = {.table = &permit_table, .alias = "p", .guard = guard};
    for (size_t i = 0; i < changes->past_count; i++)
        row_insert_sql(&insert, &changes->past[i], sql);
    row_insert_end_sql(&insert, sql);
    for (size_t i = 0; changes->past_count && i < changes->request_count; i++) {
        const struct request *before = changes->requests[i].before;
        for (size_t j = 0; before && j < before->permit_count; j++)
            if (change_deletes(&changes->requests[i], &before->permits[j]))
                row_delete_sql(&deletion, &(struct permit_row){before->permits[j], before->id}, sql);
    }
    row_delete_end_sql(&deletion, sql);
}

/* ---- slots ---- */

/*
 * Moves existing slots to other permits. The INSERT finds each slot by its primary key and counts 2 for the update. A
 * missing slot would be inserted and count 1, which the next guard detects. Each row names the token that it replaces,
 * which is none or that of a permit that this packet ends: a slot with another one is taken, and NULL for its NOT NULL
 * column stops the packet with error 1048. Both MariaDB and MySQL accept VALUES().
 */
static void move_slots_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {
        .table = &slot_table,
        .columns = COLUMN_INSERT | COLUMN_USAGE | COLUMN_MORE,
        .duplicate = "permit_id=IF(permit_id=VALUES(last_permit_id),VALUES(permit_id),NULL),"
                     "last_permit_id=IF(VALUES(permit_id),VALUES(permit_id),last_permit_id)",
        .guard = guard,
        .counts = 2,
    };
    for (size_t i = 0; i < changes->slot_count; i++) {
        const struct slot_change *slot = &changes->slots[i];
        assert(i == 0 || slot[-1].semaphore_id < slot->semaphore_id ||
               (slot[-1].semaphore_id == slot->semaphore_id && slot[-1].number <= slot->number));
        row_insert_sql(&insert, slot, sql);
    }
    row_insert_end_sql(&insert, sql);
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
    for (size_t first = 0; first < changes->label_count; first += BATCH_ROWS_A_STATEMENT) {
        batch_check_guard_sql(guard, sql); /* the UPDATE has none: some slots may have no label */
        buf_append_text(sql, "UPDATE slot FORCE INDEX (PRIMARY) SET label=NULL");
        label_rows_sql(labels + first, label_statement_size(changes, first), sql);
    }
    for (size_t first = 0; first < changes->label_count; first += BATCH_ROWS_A_STATEMENT)
        set_labels_sql(labels + first, label_statement_size(changes, first), guard, sql);
}

/* ---- requests that change ---- */

/* A row to update. */
struct row_update {
    const struct request_change *change;
    uint32_t columns; /* of request_table: those that change */
};

static struct row_change row_change(const struct row_update *update)
{
    return (struct row_change){update->change->before, update->change->request};
}

/* Returns 0 if one UPDATE can write both rows. */
static int compare_updates(const struct row_update *left, const struct row_update *right)
{
    int order = compare_u64(&(uint64_t){left->columns}, &(uint64_t){right->columns});
    if (!order)
        order = (int)left->change->before->errand - (int)right->change->before->errand;
    if (!order)
        order = (int)left->change->before->lock - (int)right->change->before->lock;
    if (!order)
        order = (int)left->change->request->state - (int)right->change->request->state;
    if (!order)
        order = (int)left->change->before->state - (int)right->change->before->state;
    return order ? order : row_compare_changes(&request_table, left->columns, row_change(left), row_change(right));
}

static int compare_updates_and_ids(const void *a, const void *b)
{
    const struct row_update *left = a;
    const struct row_update *right = b;
    int order = compare_updates(left, right);
    return order ? order : compare_u64(&left->change->request->id, &right->change->request->id);
}

/* By enum request_state. */
static const char *const state_values[] = {[REQUEST_ACQUIRED] = "1", [REQUEST_RELEASED] = "2", [REQUEST_WAITING] = "3"};
/* By enum request_state, and enum errand. */
static const char *const row_conditions[][4] = {
    [REQUEST_ACQUIRED] = {"state=1 AND errand=0", "state=1 AND errand=1", "state=1 AND errand=2",
                          "state=1 AND errand=3"},
    [REQUEST_RELEASED] = {"state=2 AND errand=0"},
    [REQUEST_WAITING] = {"state=3 AND errand=0"},
};

/*
 * Appends one UPDATE for all rows with the same new values; usually one for all releases of the batch. It fails if a
 * row is no longer in the state it was read in, or has another errand. Without the index hint the server scans the
 * table if the list names most of it, and waits for the locks of other rows.
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
        updates[count] = (struct row_update){.change = change};
        updates[count].columns = row_changed_columns(&request_table, row_change(&updates[count]));
        count++;
    }
    qsort(updates, count, sizeof *updates, compare_updates_and_ids);
    for (size_t first = 0, next; first < count; first = next) {
        const struct request_change *change = updates[first].change;
        buf_append_text(sql, change->before->lock == ROW_NOT_LOCKED ? DIALECT_NOWAIT : "");
        buf_append_text(sql, "UPDATE permit_request FORCE INDEX (PRIMARY) SET ");
        batch_guarded_sql(guard, "state", row_conditions[change->before->state][change->before->errand],
                          state_values[change->request->state], sql);
        row_changes_sql(&request_table, updates[first].columns, row_change(&updates[first]), sql);
        buf_append_text(sql, " WHERE id IN (");
        size_t end = batch_statement_end(first, count);
        for (next = first; next < end && compare_updates(&updates[first], &updates[next]) == 0; next++) {
            comma_sql(sql, next - first);
            buf_append_u64(sql, updates[next].change->request->id);
        }
        buf_append_text(sql, ");");
        *guard = (struct batch_guard){true, next - first};
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
            buf_append_text(sql, DIALECT_NOWAIT "DELETE r FROM permit_request r FORCE INDEX (PRIMARY)"
                                                " WHERE r.state=3 AND r.id IN (");
        }
        comma_sql(sql, rows++);
        buf_append_u64(sql, changes->requests[i].request->id);
    }
    if (rows == 0)
        return;
    buf_append_text(sql, ");");
    *guard = (struct batch_guard){true, rows};
}

static void delete_places_sql(const struct changes *changes, size_t count, struct batch_guard *guard, struct buf *sql)
{
    struct row_delete deletion = {.table = &waiter_table, .alias = "w", .guard = guard};
    for (size_t i = 0; i < count; i++)
        row_delete_sql(&deletion, &changes->places[i], sql);
    row_delete_end_sql(&deletion, sql);
}

static void insert_places_sql(const struct changes *changes, size_t first, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {.table = &waiter_table, .columns = COLUMN_INSERT, .guard = guard};
    for (size_t i = first; i < changes->place_count; i++)
        row_insert_sql(&insert, &changes->places[i], sql);
    row_insert_end_sql(&insert, sql);
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
        struct row_insert insert = {
            .table = &mail_table, .columns = COLUMN_INSERT, .duplicate = "server_id=VALUES(server_id)", .guard = guard};
        size_t most = batch_statement_end(first, changes->mail_count);
        for (end = first; end < most && changes->mail[end].remove == mail->remove; end++) {
            const struct mail *other = &changes->mail[end];
            if (!mail->remove) {
                row_insert_sql(&insert, other, sql);
                continue;
            }
            if (other->server_id != mail->server_id)
                break;
            if (end == first) {
                batch_check_guard_sql(guard, sql); /* the DELETE may find no row */
                buf_printf(sql,
                           "DELETE m FROM mail m FORCE INDEX (PRIMARY) WHERE m.server_id=%llu AND"
                           " m.permit_request_id IN (",
                           (unsigned long long)mail->server_id);
            }
            comma_sql(sql, end - first);
            buf_append_u64(sql, other->request_id);
        }
        buf_append_text(sql, mail->remove ? ");" : "");
        row_insert_end_sql(&insert, sql);
    }
}

/* Deletes the rows of `errand` of requests whose errand is settled. */
static void delete_errands_sql(const struct changes *changes, size_t inserts, struct batch_guard *guard,
                               struct buf *sql)
{
    struct row_delete deletion = {.table = &errand_table, .alias = "e", .guard = guard};
    for (size_t i = inserts; i < changes->request_count; i++) {
        const struct request *before = changes->requests[i].before;
        if (before->errand && before->bucket < ERRAND_BUCKETS && !changes->requests[i].request->errand)
            row_delete_sql(&deletion, before, sql);
    }
    row_delete_end_sql(&deletion, sql);
}

/* Writes the metadata of new and of changed requests. A row that is there counts differently, so no guard follows. */
static void write_metadata_sql(const struct changes *changes, struct batch_guard *guard, struct buf *sql)
{
    struct row_insert insert = {.table = &metadata_table,
                                .columns = COLUMN_INSERT,
                                .duplicate = "",
                                .duplicate_columns = COLUMN_UPDATE,
                                .guard = guard};
    for (size_t i = 0; i < changes->request_count; i++)
        if (changes->requests[i].request->metadata.data && !changes->requests[i].remove)
            row_insert_sql(&insert, changes->requests[i].request, sql);
    row_insert_end_sql(&insert, sql);
}

/* Deletes that of requests that waited, if they have any. */
static void delete_metadata_sql(const struct changes *changes, size_t inserts, struct batch_guard *guard,
                                struct buf *sql)
{
    struct row_delete deletion = {.table = &metadata_table, .alias = "m", .condition = " WHERE TRUE", .guard = guard};
    for (size_t i = inserts; i < changes->request_count; i++)
        if (changes->requests[i].remove)
            row_delete_sql(&deletion, changes->requests[i].request, sql);
    row_delete_end_sql(&deletion, sql);
}

/*
 * A batch that leaves events out has read that the feed is full, perhaps long ago. It locks the row, which then says so until
 * its COMMIT; else it fails as a conflict (1242: a subquery with two rows), and runs again. It is the last statement, so
 * the lock is held for the COMMIT only.
 */
static void omit_events_sql(struct buf *sql)
{
    buf_append_text(sql,
                    "SELECT IF(f.full=1,1,(SELECT 1 UNION ALL SELECT f.full)) FROM feed_full f FORCE INDEX (PRIMARY)"
                    " WHERE f.id=1 LOCK IN SHARE MODE;");
}

/* Returns true if a request changes that is not locked. */
static bool any_unlocked(const struct changes *changes, size_t inserts)
{
    for (size_t i = inserts; i < changes->request_count; i++)
        if (changes->requests[i].before->lock == ROW_NOT_LOCKED)
            return true;
    return false;
}

/* MySQL: locks these requests. On MariaDB the statements that change them do not wait. */
static void lock_changed_sql(const struct changes *changes, size_t inserts, struct arena *arena,
                             struct batch_guard *guard, struct buf *sql)
{
    uint64_t *ids = arena_array(arena, changes->request_count, sizeof *ids);
    size_t count = 0;
    sql->broken |= !ids;
    for (size_t i = inserts; ids && i < changes->request_count; i++)
        if (changes->requests[i].before->lock == ROW_NOT_LOCKED)
            ids[count++] = changes->requests[i].request->id;
    batch_check_guard_sql(guard, sql);
    batch_lock_requests_sql(ids, u64_sort_unique(ids, count), "NOWAIT;", sql);
}

bool batch_changes_sql(const struct changes *changes, bool is_mariadb, struct arena *arena, struct buf *sql)
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
    bool unlocked = any_unlocked(changes, inserts);
    if (unlocked && !is_mariadb)
        lock_changed_sql(changes, inserts, arena, &guard, sql);
    events_sql(changes, &guard, sql);
    mail_sql(changes, &guard, sql);
    clear_watches_sql(changes, &guard, sql);
    delete_requests_sql(changes, inserts, &guard, sql);
    delete_places_sql(changes, places_removed, &guard, sql);
    delete_errands_sql(changes, inserts, &guard, sql);
    held_changes_sql(changes, arena, &guard, sql);
    move_slots_sql(changes, &guard, sql);
    changed_labels_sql(changes, &guard, sql);
    batch_seats_sql(changes, &guard, sql);
    update_requests_sql(changes, inserts, arena, &guard, sql);
    insert_requests_sql(changes, inserts, &guard, sql);
    insert_places_sql(changes, places_removed, &guard, sql);
    past_permits_sql(changes, &guard, sql);
    insert_permits_sql(changes, &guard, sql);
    write_metadata_sql(changes, &guard, sql);
    batch_feed_sql(changes, &guard, sql);
    delete_metadata_sql(changes, inserts, &guard, sql);
    batch_check_guard_sql(&guard, sql);
    if (changes->feed_omitted)
        omit_events_sql(sql);
    return unlocked;
}

/*
 * Two statements, which fail with different errors: 1242 (a subquery with two rows) if a request has one of the keys,
 * 1690 (out of range) for the rest. Both read after the locks, so they see all that was committed before, and take
 * none: in a SET or DO they would lock the `cluster` row. The time is read here, because the packet may have waited for
 * its locks for long: lease time is clamp(now, tick_at, tick_at + 5 s) - offset, computed from the row, because each
 * tick changes tick_at and offset. The identity is that of this session's server, as it was when the session began.
 */
void batch_assumed_sql(const struct assumed *assumed, const char *server, struct buf *sql)
{
    if (assumed->absent_count) {
        buf_append_text(sql, "SELECT (SELECT 1 UNION ALL SELECT 1 FROM permit_request"
                             " FORCE INDEX (permit_request_external_id) WHERE external_id IN (");
        sql_bytes_list(sql, assumed->absent, assumed->absent_count);
        buf_append_text(sql, "));");
    }
    buf_printf(sql,
               "SELECT 9223372036854775807+(c.identity<>%s OR c.epoch<>%llu OR"
               " GREATEST(LEAST(" SQL_NOW_US
               "," SQL_US("c.tick_at") "+%lld)," SQL_US("c.tick_at") ")-c.offset_us"
                                                                     " NOT BETWEEN %lld AND %lld",
               server, (unsigned long long)assumed->epoch, LEASE_LEAP_US, (long long)assumed->now,
               (long long)(assumed->now + assumed->slack_us));
    if (assumed->server_id)
        buf_printf(sql, " OR NOT EXISTS(SELECT 1 FROM server WHERE id=%llu AND dead_at IS NULL)",
                   (unsigned long long)assumed->server_id);
    buf_append_text(sql, ") FROM cluster c WHERE c.id=1;");
}
