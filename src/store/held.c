/* SPDX-License-Identifier: MIT */
#include "store/held.h"

#include <assert.h>
#include <stdlib.h>

#include "store/sql_text.h"

/* ---- the changes of a batch ---- */

/* A row to write, with the bits that change in it. */
struct held_row {
    uint64_t semaphore_id;
    uint64_t block;
    uint32_t due_s;
    struct bytes owner;
    uint64_t bits;
};

static int order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* In the order of the primary key, in which batches lock the rows. */
static int compare_rows(const void *a, const void *b)
{
    const struct held_row *left = a;
    const struct held_row *right = b;
    int order = order_of(left->semaphore_id, right->semaphore_id);
    if (!order)
        order = order_of(left->block, right->block);
    if (!order)
        order = order_of(left->due_s, right->due_s);
    return order ? order : bytes_compare(left->owner, right->owner);
}

static bool is_held(const struct request *request)
{
    return request && request->state == REQUEST_ACQUIRED;
}

static size_t add_rows(const struct request *request, struct held_row *rows)
{
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit *permit = &request->permits[i];
        rows[i] = (struct held_row){
            .semaphore_id = permit->semaphore_id,
            .block = permit->token / HELD_BLOCK_TOKENS,
            .due_s = held_due_s(request->due_at),
            .owner = request->owner,
            .bits = UINT64_C(1) << permit->token % HELD_BLOCK_TOKENS,
        };
    }
    return request->permit_count;
}

/* Adds up the bits of equal rows: a bit that is cleared and set again does not change. Returns the number of rows left. */
static size_t merge_rows(struct held_row *rows, size_t count)
{
    size_t kept = 0;
    qsort(rows, count, sizeof *rows, compare_rows);
    for (size_t first = 0, next; first < count; first = next) {
        uint64_t bits = 0;
        for (next = first; next < count && compare_rows(&rows[first], &rows[next]) == 0; next++)
            bits ^= rows[next].bits;
        if (bits == 0)
            continue;
        rows[kept] = rows[first];
        rows[kept++].bits = bits;
    }
    return kept;
}

/* Returns the rows that change, in the arena; NULL: out of memory. */
static struct held_row *changed_rows(const struct changes *changes, struct arena *arena, size_t *ret_count)
{
    size_t room = 0, count = 0;
    for (size_t i = 0; i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        room += is_held(change->before) ? change->before->permit_count : 0;
        room += is_held(change->request) ? change->request->permit_count : 0;
    }
    struct held_row *rows = arena_array(arena, room, sizeof *rows);
    for (size_t i = 0; rows && i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        count += is_held(change->before) ? add_rows(change->before, rows + count) : 0;
        count += is_held(change->request) ? add_rows(change->request, rows + count) : 0;
    }
    *ret_count = rows ? merge_rows(rows, count) : 0;
    return rows;
}

/*
 * The INSERT finds a row by its primary key and changes the bits, or inserts a row with the bits of grants. The batch holds
 * the locks of the semaphores, so no other one changes these rows; held_clean may delete a row that has no bits.
 */
static void held_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    size_t count;
    const struct held_row *rows = changed_rows(changes, arena, &count);
    sql->broken |= !rows;
    for (size_t first = 0, end; first < count; first = end) {
        end = batch_statement_end(first, count);
        buf_append_text(sql, "INSERT INTO held (semaphore_id,block,due_s,owner,bits) VALUES ");
        for (size_t i = first; i < end; i++) {
            buf_append_text(sql, i > first ? ",(" : "(");
            batch_guarded_value_sql(guard, rows[i].semaphore_id, sql);
            buf_append_char(sql, ',');
            buf_append_u64(sql, rows[i].block);
            buf_append_char(sql, ',');
            buf_append_u64(sql, rows[i].due_s);
            buf_append_char(sql, ',');
            sql_bytes(sql, rows[i].owner);
            buf_append_char(sql, ',');
            buf_append_u64(sql, rows[i].bits);
            buf_append_char(sql, ')');
        }
        buf_append_text(sql, " ON DUPLICATE KEY UPDATE bits=bits^VALUES(bits);");
    }
}

/* ---- requests that wait ---- */

static bool is_waiting(const struct request *request)
{
    return request && request->state == REQUEST_WAITING;
}

/* Returns true if the row of `request` in waiting_due is deleted, or inserted, by the change. */
static bool moves_waiting(const struct request_change *change, bool inserted)
{
    bool before = is_waiting(change->before);
    bool after = is_waiting(change->request) && !change->remove;
    if (before && after && held_due_s(change->before->due_at) == held_due_s(change->request->due_at))
        return false;
    return inserted ? after : before;
}

/* A row of waiting_due. */
struct waiting_row {
    uint32_t due_s;
    uint64_t request_id;
};

static int compare_waiting(const void *a, const void *b)
{
    const struct waiting_row *left = a;
    const struct waiting_row *right = b;
    int order = order_of(left->due_s, right->due_s);
    return order ? order : order_of(left->request_id, right->request_id);
}

/*
 * Collects the rows that the batch deletes or inserts, ascending by primary key, in which batches lock them. Returns NULL
 * if memory runs out.
 */
static struct waiting_row *waiting_rows(const struct changes *changes, bool inserted, struct arena *arena,
                                        size_t *ret_count)
{
    size_t count = 0;
    struct waiting_row *rows = arena_array(arena, changes->request_count, sizeof *rows);
    for (size_t i = 0; rows && i < changes->request_count; i++) {
        const struct request_change *change = &changes->requests[i];
        const struct request *request = inserted ? change->request : change->before;
        if (moves_waiting(change, inserted))
            rows[count++] = (struct waiting_row){held_due_s(request->due_at), request->id};
    }
    if (count)
        qsort(rows, count, sizeof *rows, compare_waiting);
    *ret_count = count;
    return rows;
}

/* The join finds each row by its whole primary key, and passes no rows that were deleted and are not purged yet. */
static void delete_waiting_sql(const struct waiting_row *rows, size_t count, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = batch_statement_end(first, count);
        batch_check_guard_sql(guard, sql);
        buf_append_text(sql, "DELETE w FROM (");
        for (size_t i = first; i < end; i++)
            buf_printf(sql, i > first ? " UNION ALL SELECT %u,%llu" : "SELECT %u AS due_s,%llu AS id", rows[i].due_s,
                       (unsigned long long)rows[i].request_id);
        buf_append_text(sql, ") t STRAIGHT_JOIN waiting_due w FORCE INDEX (PRIMARY)"
                             " ON w.due_s=t.due_s AND w.permit_request_id=t.id;");
        *guard = (struct batch_guard){true, end - first};
    }
}

static void insert_waiting_sql(const struct waiting_row *rows, size_t count, struct batch_guard *guard, struct buf *sql)
{
    for (size_t first = 0, end; first < count; first = end) {
        end = batch_statement_end(first, count);
        buf_append_text(sql, "INSERT INTO waiting_due (due_s,permit_request_id) VALUES ");
        for (size_t i = first; i < end; i++) {
            buf_append_text(sql, i > first ? ",(" : "(");
            batch_guarded_value_sql(guard, rows[i].due_s, sql);
            buf_printf(sql, ",%llu)", (unsigned long long)rows[i].request_id);
        }
        buf_append_char(sql, ';');
    }
}

static void waiting_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    size_t deleted_count, inserted_count;
    const struct waiting_row *deleted = waiting_rows(changes, false, arena, &deleted_count);
    const struct waiting_row *inserted = waiting_rows(changes, true, arena, &inserted_count);
    sql->broken |= !deleted || !inserted;
    delete_waiting_sql(deleted, deleted_count, guard, sql);
    insert_waiting_sql(inserted, inserted_count, guard, sql);
}

void held_changes_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    held_sql(changes, arena, guard, sql);
    waiting_sql(changes, arena, guard, sql);
}

/* ---- tokens in order ---- */

/*
 * Takes whole blocks, because the bits of a block are in rows of any order. The sum of a row includes all rows of its
 * block. The block at which LIMIT cuts has a sum of at least `most`, because each row has a bit. So a block is left out
 * only if `most` - 64 tokens are in those before it, of which at most 63 are not above `after`.
 */
void held_tokens_sql(const char *semaphore_id, uint64_t after, unsigned count, struct buf *sql)
{
    unsigned most = count + 2 * HELD_BLOCK_TOKENS;
    buf_printf(sql,
               "(SELECT STRAIGHT_JOIN h.semaphore_id,h.block*64+b.n AS id,h.due_s,h.owner"
               " FROM (SELECT semaphore_id,block,due_s,owner,bits,SUM(BIT_COUNT(bits)) OVER (ORDER BY block) AS tokens"
               " FROM (SELECT semaphore_id,block,due_s,owner,bits FROM held FORCE INDEX (PRIMARY)"
               " WHERE bits<>0 AND semaphore_id=%s AND block>=%llu ORDER BY block LIMIT %u) f) h"
               " JOIN held_bit b FORCE INDEX (PRIMARY) ON h.bits&b.mask"
               " WHERE h.tokens<%u AND h.block*64+b.n>%llu ORDER BY id LIMIT %u) t",
               semaphore_id, (unsigned long long)after / HELD_BLOCK_TOKENS, most, most, (unsigned long long)after,
               count);
}

/* ---- rows without bits ---- */

enum {
    CLEAN_ROWS = 5000,  /* that are looked at in one call: some milliseconds */
    CLEAN_DELETED = 500 /* that one transaction deletes */
};

/* The first block that a piece of the table does not have; 0: it has all that follow. */
struct piece_end {
    uint64_t semaphore_id, block;
};

static void piece_sql(const struct held_cleaning *from, const struct piece_end *end, struct buf *sql)
{
    buf_printf(sql, " WHERE (semaphore_id>%llu OR (semaphore_id=%llu AND block>=%llu))",
               (unsigned long long)from->semaphore_id, (unsigned long long)from->semaphore_id,
               (unsigned long long)from->block);
    if (end->semaphore_id)
        buf_printf(sql, " AND (semaphore_id<%llu OR (semaphore_id=%llu AND block<%llu))",
                   (unsigned long long)end->semaphore_id, (unsigned long long)end->semaphore_id,
                   (unsigned long long)end->block);
}

/* A block that has more rows than a piece is a piece of its own, because a piece ends with a block. */
static enum permit_status find_end(struct session *session, const struct held_cleaning *from, struct buf *sql,
                                   struct piece_end *ret_end)
{
    struct session_row row;
    *ret_end = (struct piece_end){0};
    buf_clear(sql);
    buf_append_text(sql, "SELECT semaphore_id,block FROM held FORCE INDEX (PRIMARY)");
    piece_sql(from, ret_end, sql);
    buf_printf(sql, " ORDER BY semaphore_id,block LIMIT 1 OFFSET %d", CLEAN_ROWS);
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK && session_row(session, &row))
        *ret_end = (struct piece_end){column_u64(row.columns[0]), column_u64(row.columns[1])};
    if (ret_end->semaphore_id == from->semaphore_id && ret_end->block == from->block)
        ret_end->block += ret_end->semaphore_id != 0;
    return session_end(session, status);
}

/* Appends a table t of the primary keys of the result. Returns their number. */
static size_t keys_sql(struct session *session, const char *beginning, struct buf *sql)
{
    struct session_row row;
    size_t count = 0;
    buf_clear(sql);
    buf_append_text(sql, beginning);
    while (session_row(session, &row)) {
        buf_append_text(sql, count++ ? " UNION ALL SELECT " : "(SELECT ");
        buf_printf(sql, "%llu AS semaphore_id,%llu AS block,%llu AS due_s,",
                   (unsigned long long)column_u64(row.columns[0]), (unsigned long long)column_u64(row.columns[1]),
                   (unsigned long long)column_u64(row.columns[2]));
        sql_bytes(sql, row.columns[3]);
        buf_append_text(sql, " AS owner");
    }
    buf_append_text(sql, ") t");
    return count;
}

#define BY_KEY                                                                                                         \
    " STRAIGHT_JOIN held h FORCE INDEX (PRIMARY) ON h.semaphore_id=t.semaphore_id AND h.block=t.block"                 \
    " AND h.due_s=t.due_s AND h.owner=t.owner"

/* Locks the rows of the result that still have no bits and that no batch has locked, and deletes them. */
static enum permit_status delete_empty(struct session *session, struct buf *sql)
{
    enum permit_status status = session_send_buf(session, sql);
    if (status == PERMIT_OK)
        status = session_next(session);
    size_t count = status == PERMIT_OK ? keys_sql(session, "DELETE h FROM ", sql) : 0;
    buf_append_text(sql, BY_KEY ";COMMIT");
    status = session_end(session, status);
    if (status == PERMIT_OK)
        status = count ? session_end(session, session_send_buf(session, sql)) : session_run(session, "COMMIT");
    if (status != PERMIT_OK)
        (void)session_rollback(session);
    return status;
}

/*
 * Finds the rows by a plain read, so that only rows to be deleted are locked; a batch may have set a bit in one since then.
 */
static enum permit_status clean_piece(struct session *session, const struct held_cleaning *from,
                                      const struct piece_end *end, struct buf *sql)
{
    size_t count = CLEAN_DELETED;
    enum permit_status status = PERMIT_OK;
    for (int i = 0; i < CLEAN_ROWS / CLEAN_DELETED && count == CLEAN_DELETED && status == PERMIT_OK; i++) {
        buf_clear(sql);
        buf_append_text(sql, "SELECT semaphore_id,block,due_s,owner FROM held FORCE INDEX (PRIMARY)");
        piece_sql(from, end, sql);
        buf_printf(sql, " AND bits=0 ORDER BY semaphore_id,block,due_s,owner LIMIT %d", CLEAN_DELETED);
        status = session_send_buf(session, sql);
        count = status == PERMIT_OK
                    ? keys_sql(session, "BEGIN;SELECT h.semaphore_id,h.block,h.due_s,h.owner FROM ", sql)
                    : 0;
        buf_append_text(sql, BY_KEY " WHERE h.bits=0 FOR UPDATE SKIP LOCKED");
        status = session_end(session, status);
        if (status == PERMIT_OK && count)
            status = delete_empty(session, sql);
    }
    return status;
}

/* After the last batch it goes through the table twice: the first round began before that batch. */
enum permit_status held_clean(struct session *session, struct held_cleaning *cleaning, uint64_t batches,
                              struct buf *sql)
{
    struct piece_end end;
    if (batches != cleaning->batches)
        cleaning->rounds = 2;
    cleaning->batches = batches;
    if (cleaning->rounds == 0)
        return PERMIT_OK;
    enum permit_status status = find_end(session, cleaning, sql, &end);
    if (status == PERMIT_OK)
        status = clean_piece(session, cleaning, &end, sql);
    if (status != PERMIT_OK)
        return status;
    cleaning->semaphore_id = end.semaphore_id;
    cleaning->block = end.block;
    cleaning->rounds -= end.semaphore_id == 0;
    return PERMIT_OK;
}
