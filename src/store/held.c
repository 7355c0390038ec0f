/* SPDX-License-Identifier: MIT */
#include "store/held.h"

#include <assert.h>
#include <stdlib.h>

#include "store/row_sql.h"

/* ---- the changes of a batch ---- */

/* In the order of the primary key, in which batches lock the rows. */
static int compare_rows(const void *a, const void *b)
{
    const struct held_row *left = a;
    const struct held_row *right = b;
    int order = compare_u64(&left->semaphore_id, &right->semaphore_id);
    if (!order)
        order = compare_u64(&left->block, &right->block);
    if (!order)
        order = compare_u64(&(uint64_t){left->due_s}, &(uint64_t){right->due_s});
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

/*
 * Adds up the bits of equal rows: a bit that is cleared and set again does not change. Returns the number of rows left.
 */
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

/*
 * The INSERT finds a row by its primary key and changes the bits, or inserts a row with the bits of grants. The DELETE
 * takes the rows that have no bits any more; only those in which the batch sets no bit can be empty. The batch holds
 * the locks of the semaphores, so no other one changes these rows.
 */
static void held_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    size_t count;
    const struct held_row *rows = changed_rows(changes, arena, &count);
    struct row_insert insert = {
        .table = &held_table, .columns = COLUMN_INSERT, .duplicate = "bits=bits^VALUES(bits)", .guard = guard};
    struct row_delete deletion = {.table = &held_table, .alias = "h", .condition = " WHERE h.bits=0", .guard = guard};
    sql->broken |= rows ? 0 : BUF_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        row_insert_sql(&insert, &rows[i], sql);
    row_insert_end_sql(&insert, sql);
    for (size_t i = 0; i < count; i++)
        if (rows[i].clears)
            row_delete_sql(&deletion, &rows[i], sql);
    row_delete_end_sql(&deletion, sql);
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

static int compare_waiting(const void *a, const void *b)
{
    const struct waiting_row *left = a;
    const struct waiting_row *right = b;
    int order = compare_u64(&(uint64_t){left->due_s}, &(uint64_t){right->due_s});
    return order ? order : compare_u64(&left->request_id, &right->request_id);
}

/*
 * Collects the rows that the batch deletes or inserts, ascending by primary key, in which batches lock them. Returns
 * NULL if memory runs out.
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

static void waiting_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql)
{
    size_t deleted_count, inserted_count;
    const struct waiting_row *deleted = waiting_rows(changes, false, arena, &deleted_count);
    const struct waiting_row *inserted = waiting_rows(changes, true, arena, &inserted_count);
    struct row_delete deletion = {.table = &waiting_table, .alias = "w", .guard = guard};
    struct row_insert insert = {.table = &waiting_table, .columns = COLUMN_INSERT, .guard = guard};
    sql->broken |= deleted && inserted ? 0 : BUF_NO_MEMORY;
    for (size_t i = 0; i < deleted_count; i++)
        row_delete_sql(&deletion, &deleted[i], sql);
    row_delete_end_sql(&deletion, sql);
    for (size_t i = 0; i < inserted_count; i++)
        row_insert_sql(&insert, &inserted[i], sql);
    row_insert_end_sql(&insert, sql);
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
