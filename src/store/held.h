/* SPDX-License-Identifier: MIT */
/*
 * The tables `held` and `waiting_due` (docs/design.md, "What is held"): which permits are held, by semaphore, by
 * deadline and by owner; and which requests wait, by deadline.
 *
 * A row of `held` has a bit for each held permit among 64 tokens of a semaphore, of those with the same owner and the
 * same second of the deadline. The batch that changes a request changes its bits, under the locks of its semaphores,
 * and deletes the row if it has no bits any more.
 */
#ifndef STORE_HELD_H
#define STORE_HELD_H

#include "store/batch_guard.h"
#include "store/mysql_session.h"
#include "store/store.h"

enum { HELD_BLOCK_TOKENS = 64 };
/* due_s of a request that is never due. */
#define HELD_NEVER_DUE UINT32_MAX

/* Returns due_s of a deadline: its second, a lower bound. */
static inline uint32_t held_due_s(utc_us due_at)
{
    if (due_at == NEVER)
        return HELD_NEVER_DUE;
    int64_t second = due_at < 0 ? 0 : due_at / US_PER_SECOND;
    return second < HELD_NEVER_DUE ? (uint32_t)second : HELD_NEVER_DUE - 1;
}

/* SQL expression: due_s of `permit_request` r, as held_due_s. */
#define HELD_DUE_S "COALESCE(LEAST(GREATEST(TIMESTAMPDIFF(SECOND,'1970-01-01',r.due_at),0),4294967294),4294967295)"

/*
 * SQL: joins the rows h of `held`, or of a derived table with semaphore_id, block and bits, with their permits p: one
 * row for each bit. The server reads many rows h into a join buffer before it joins the first.
 */
#define HELD_PERMITS                                                                                                   \
    " JOIN held_bit b FORCE INDEX (PRIMARY) ON h.bits&b.mask"                                                          \
    " JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=h.semaphore_id AND p.id=h.block*64+b.n"
/* SQL: joins these permits with their requests r. */
#define HELD_REQUESTS                                                                                                  \
    HELD_PERMITS " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id AND r.state=1"
/*
 * SQL condition on a row h of `held`: one of its permits p belongs to a held request r that fulfils `condition`.
 * Without a join buffer, so a walk over rows h stops at the first that has one.
 */
#define HELD_ROW_HAS(condition)                                                                                        \
    "EXISTS (SELECT STRAIGHT_JOIN 1 FROM held_bit b FORCE INDEX (PRIMARY)"                                             \
    " JOIN permit p FORCE INDEX (PRIMARY) ON p.semaphore_id=h.semaphore_id AND p.id=h.block*64+b.n"                    \
    " JOIN permit_request r FORCE INDEX (PRIMARY) ON r.id=p.permit_request_id AND r.state=1"                           \
    " WHERE h.bits&b.mask AND " condition ")"
/* SQL condition: of the permits of request r, p is the one of the first semaphore. */
#define HELD_FIRST_PERMIT                                                                                              \
    "NOT EXISTS (SELECT 1 FROM permit q FORCE INDEX (permit_request)"                                                  \
    " WHERE q.permit_request_id=r.id AND q.semaphore_id<p.semaphore_id)"

/*
 * SQL expression for the floor of `semaphore` s: its smallest live token; next_permit_id if none. Walks PRIMARY to the
 * first row with a bit, then reads the rows of that block.
 */
#define HELD_FLOOR                                                                                                     \
    "COALESCE((SELECT MIN(f.block*64+BIT_COUNT((f.bits&(~f.bits+1))-1)) FROM held f FORCE INDEX (PRIMARY)"             \
    " WHERE f.semaphore_id=s.id AND f.block=(SELECT g.block FROM held g FORCE INDEX (PRIMARY)"                         \
    " WHERE g.semaphore_id=s.id ORDER BY g.block LIMIT 1)),s.next_permit_id)"

/*
 * Appends a derived table t with semaphore_id, id, due_s and owner: the `count` smallest held tokens of a semaphore
 * above `after`; if fewer are left, all of them. The row of `held` gives due_s and owner. The statement must sort by
 * t.id again. `semaphore_id` is SQL. Walks PRIMARY over at most `count` + 128 rows with bits.
 */
void held_tokens_sql(const char *semaphore_id, uint64_t after, unsigned count, struct buf *sql);

/* Appends the statements that write the changes of `held` and `waiting_due`. Scratch memory comes from the arena. */
void held_changes_sql(const struct changes *changes, struct arena *arena, struct batch_guard *guard, struct buf *sql);
#endif
