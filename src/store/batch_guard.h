/* SPDX-License-Identifier: MIT */
/*
 * Row count check. A statement that changes semaphores, or changes or deletes requests, slots, places or rows of
 * waiting_due, must change exactly the rows it names. The next statement checks this: its first value compares
 * ROW_COUNT() and, on a mismatch, is NULL for a NOT NULL column. The batch holds the locks of all these rows, so a
 * mismatch is a bug, or a client that writes without the locks.
 */
#ifndef STORE_BATCH_GUARD_H
#define STORE_BATCH_GUARD_H

#include "base/base.h"
#include "base/buf.h"

/*
 * Maximum number of rows in one statement. A list of 500 keys is walked along the primary key, and the work of each
 * statement is linear in its rows. (One ELT(FIELD(...)) over 45,000 slots took longer than the session's time-out.)
 */
enum { BATCH_ROWS_A_STATEMENT = 500 };

/* Returns the end of the statement that starts at row `first` of `count` rows. */
static inline size_t batch_statement_end(size_t first, size_t count)
{
    return count - first < BATCH_ROWS_A_STATEMENT ? count : first + BATCH_ROWS_A_STATEMENT;
}

struct batch_guard {
    bool pending; /* the last statement is not checked yet */
    size_t rows;  /* the ROW_COUNT() it must have */
};

/*
 * Appends `column`=`value`. The assignment fails unless `condition` is true (NULL: none) and the statement before
 * changed the right number of rows. Leaves *guard as it is: the caller then sets it for this statement.
 */
void batch_guarded_sql(struct batch_guard *guard, const char *column, const char *condition, const char *value,
                       struct buf *sql);
/* Appends the first value of an INSERT, which is for a NOT NULL column. */
void batch_guarded_value_sql(struct batch_guard *guard, uint64_t value, struct buf *sql);
/*
 * Checks the last statement now, if no other one follows that can: a mismatch is error 1690 (BIGINT out of range). DO
 * would ignore the error.
 */
void batch_check_guard_sql(struct batch_guard *guard, struct buf *sql);
#endif
