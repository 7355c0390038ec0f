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
    bool clears; /* no bit of it is set */
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

static size_t add_rows(const struct request *request, bool clears, struct held_row *rows)
{
    for (size_t i = 0; i < request->permit_count; i++) {
        const struct permit *permit = &request->permits[i];
        rows[i] = (struct held_row){
            .semaphore_id = permit->semaphore_id,
            .block = permit->token / HELD_BLOCK_TOKENS,
            .due_s = held_due_s(request->due_at),
            .owner = request->owner,
            .bits = UINT64_C(1) << permit->token % HELD_BLOCK_TOKENS,
            .clears = clears,
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
        struct held_row sum = rows[first];
        for (next = first + 1; next < count && compare_rows(&rows[first], &rows[next]) == 0; next++) {
            sum.bits ^= rows[next].bits;
            sum.clears &= rows[next].clears;
        }
        if (sum.bits)
            rows[kept++] = sum;
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
        count += is_held(change->before) ? add_rows(change->before, true, rows + count) : 0;
        count += is_held(change->request) ? add_rows(change->request, false, rows + count) : 0;
    }
    *ret_count = rows ? merge_rows(rows, count) : 0;
    return rows;
}

static void change_bits_sql(const struct held_row *rows, size_t count, struct batch_guard *guard, struct buf *sql)
{
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

/* Deletes the rows that have no bits any more. Only rows in which the batch sets no bit can be empty. */
static void delete_empty_sql(const struct held_row *rows, size_t count, struct buf *sql)
{
    static const char delete_end[] =
        ") t STRAIGHT_JOIN held h FORCE INDEX (PRIMARY) ON h.semaphore_id=t.semaphore_id AND h.block=t.block"
        " AND h.due_s=t.due_s AND h.owner=t.owner WHERE h.bits=0;";
    size_t listed = 0;
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].clears)
            continue;
        buf_append_text(sql, listed == 0 ? "DELETE h FROM (SELECT " : " UNION ALL SELECT ");
        buf_printf(sql, listed == 0 ? "%llu AS semaphore_id,%llu AS block,%u AS due_s," : "%llu,%llu,%u,",
                   (unsigned long long)rows[i].semaphore_id, (unsigned long long)rows[i].block, rows[i].due_s);
        sql_bytes(sql, rows[i].owner);
        buf_append_text(sql, listed++ == 0 ? " AS owner" : "");
        if (listed == BATCH_ROWS_A_STATEMENT) {
            buf_append_text(sql, delete_end);
            listed = 0;
        }
    }
    buf_append_text(sql, listed ? delete_end : "");
}

/*
 * The INSERT finds a row by its primary key and changes the bits, or inserts a row with the bits of grants. The batch holds
 * the locks of the semaphores, so no other one changes these rows.
 */
static void held_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    size_t count;
    const struct held_row *rows = changed_rows(changes, arena, &count);
    sql->broken |= rows ? 0 : BUF_NO_MEMORY;
    change_bits_sql(rows, count, guard, sql);
    delete_empty_sql(rows, count, sql);
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
    sql->broken |= deleted && inserted ? 0 : BUF_NO_MEMORY;
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
               " WHERE semaphore_id=%s AND block>=%llu ORDER BY block LIMIT %u) f) h"
               " JOIN held_bit b FORCE INDEX (PRIMARY) ON h.bits&b.mask"
               " WHERE h.tokens<%u AND h.block*64+b.n>%llu ORDER BY id LIMIT %u) t",
               semaphore_id, (unsigned long long)after / HELD_BLOCK_TOKENS, most, most, (unsigned long long)after,
               count);
}
