/* SPDX-License-Identifier: MIT */
/*
 * Reads the longest holders and the first waiters of several semaphores, in two packets: the rows of `held` with the
 * smallest tokens and the heads of the queues, one arm of a UNION for each semaphore; then the holders of these tokens.
 */
#include <stdlib.h>

#include "store/held.h"
#include "store/query_packet.h"

/*
 * Rows of `held` that are read of a semaphore. A block of tokens has at most one row for each token, and the rows may
 * end in the middle of a block. So those of the blocks before it, which are whole, have QUERY_FRONT_HOLDERS tokens at
 * least.
 */
enum { HELD_ROWS = QUERY_FRONT_HOLDERS + HELD_BLOCK_TOKENS };

/* The smallest tokens held of a semaphore, ascending. */
struct tokens {
    uint64_t block; /* of the last row */
    uint64_t bits;  /* of this block, in the rows so far */
    size_t rows;
    uint64_t tokens[QUERY_FRONT_HOLDERS];
    size_t count;
};

/* Adds the tokens of the block, which is whole. */
static void add_block(struct tokens *tokens)
{
    for (unsigned bit = 0; bit < HELD_BLOCK_TOKENS && tokens->count < QUERY_FRONT_HOLDERS; bit++)
        if (tokens->bits >> bit & 1)
            tokens->tokens[tokens->count++] = tokens->block * HELD_BLOCK_TOKENS + bit;
    tokens->bits = 0;
}

static void add_row(struct tokens *tokens, uint64_t block, uint64_t bits)
{
    if (tokens->rows++ && block != tokens->block)
        add_block(tokens);
    tokens->block = block;
    tokens->bits |= bits;
}

/* Walks PRIMARY of held, and of waiter, from the beginning of each semaphore on. */
static void heads_sql(const uint64_t *semaphore_ids, size_t count, struct buf *sql)
{
    for (size_t i = 0; i < count; i++)
        buf_printf(sql,
                   "%s(SELECT %zu AS n,block,bits FROM held FORCE INDEX (PRIMARY) WHERE semaphore_id=%llu"
                   " ORDER BY block LIMIT %d)",
                   i ? " UNION ALL " : "", i, (unsigned long long)semaphore_ids[i], HELD_ROWS);
    for (size_t i = 0; i < count; i++)
        buf_printf(sql,
                   "%s(SELECT STRAIGHT_JOIN %zu AS n,r.external_id" QUERY_QUEUE QUERY_LIVING_SERVER
                   " WHERE w.semaphore_id=%llu ORDER BY w.place,w.permit_request_id LIMIT %d)",
                   i ? " UNION ALL " : ";", i, (unsigned long long)semaphore_ids[i], QUERY_FRONT_WAITERS);
}

static void read_heads(struct packet *packet, size_t count, struct tokens *tokens, struct semaphore_front *fronts)
{
    while (packet_row(packet)) {
        size_t n = row_u64(&packet->row);
        uint64_t block = row_u64(&packet->row);
        if (n < count)
            add_row(&tokens[n], block, row_u64(&packet->row));
    }
    for (size_t i = 0; i < count; i++)
        if (tokens[i].rows < HELD_ROWS)
            add_block(&tokens[i]);
    packet_next(packet);
    while (packet_row(packet)) {
        size_t n = row_u64(&packet->row);
        if (n < count && fronts[n].waiter_count < QUERY_FRONT_WAITERS)
            fronts[n].waiters[fronts[n].waiter_count++] = row_bytes(&packet->row);
    }
}

/* Walks PRIMARY of permit, over these tokens alone, and then that of each request. */
static void holders_sql(const uint64_t *semaphore_ids, const struct tokens *tokens, size_t count, struct buf *sql)
{
    buf_append_text(sql, "SELECT STRAIGHT_JOIN p.semaphore_id,r.external_id,r.owner,r.acquired_at,r.ttl_ms,r.due_at,"
                         "r.grace_ms,r.confirmed_at,r.server_id FROM permit p FORCE INDEX (PRIMARY)"
                         " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id AND r.state=1"
                         " WHERE FALSE");
    for (size_t i = 0; i < count; i++) {
        if (tokens[i].count == 0)
            continue;
        buf_printf(sql, " OR (p.semaphore_id=%llu AND p.id IN (", (unsigned long long)semaphore_ids[i]);
        sql_ids(sql, tokens[i].tokens, tokens[i].count);
        buf_append_text(sql, "))");
    }
    buf_append_text(sql, " ORDER BY p.semaphore_id,p.id;" SQL_CLOCK);
}

static struct front_holder read_holder(struct row_reader *reader)
{
    struct request request = {.state = REQUEST_ACQUIRED};
    request.external_id = row_bytes(reader);
    request.owner = row_bytes(reader);
    request.acquired_at = row_time(reader);
    struct bytes ttl_ms = row_column(reader);
    request.ttl_ms = ttl_ms.data ? column_i64(ttl_ms) : TTL_NONE;
    request.due_at = row_time(reader);
    request.grace_ms = row_i64(reader);
    request.confirmed_at = row_time(reader);
    request.server_id = row_u64(reader);
    return (struct front_holder){.external_id = request.external_id,
                                 .owner = request.owner,
                                 .since = request.acquired_at,
                                 .expires_at = request_expires_at(&request)};
}

enum permit_status query_fronts(struct store *store, const uint64_t *semaphore_ids, size_t count, struct arena *arena,
                                struct semaphore_front *ret_fronts, struct query_time *ret_time)
{
    struct packet packet = packet_begin(session_of(store), arena);
    struct tokens *tokens = arena_array(arena, count, sizeof *tokens);
    struct front_holder *holders = arena_array(arena, count * QUERY_FRONT_HOLDERS, sizeof *holders);
    struct bytes *waiters = arena_array(arena, count * QUERY_FRONT_WAITERS, sizeof *waiters);
    if (!tokens || !holders || !waiters)
        return PERMIT_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        ret_fronts[i] = (struct semaphore_front){.holders = holders + i * QUERY_FRONT_HOLDERS,
                                                 .waiters = waiters + i * QUERY_FRONT_WAITERS};
    heads_sql(semaphore_ids, count, &packet.sql);
    packet_send(&packet);
    read_heads(&packet, count, tokens, ret_fronts);
    holders_sql(semaphore_ids, tokens, count, &packet.sql);
    packet_send(&packet);
    while (packet_row(&packet)) {
        uint64_t semaphore_id = row_u64(&packet.row);
        const struct front_holder holder = read_holder(&packet.row);
        for (size_t i = 0; i < count; i++)
            if (semaphore_ids[i] == semaphore_id && ret_fronts[i].holder_count < QUERY_FRONT_HOLDERS)
                ret_fronts[i].holders[ret_fronts[i].holder_count++] = holder;
    }
    packet_time(&packet, ret_time);
    return packet_end(&packet);
}
