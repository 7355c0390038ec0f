/* SPDX-License-Identifier: MIT */
/*
 * Writes rows of the tables (tables.h) as SQL: one statement for many rows, with its guard (batch_guard.h). Members of
 * the statements that the caller does not set are 0.
 */
#ifndef STORE_ROW_SQL_H
#define STORE_ROW_SQL_H

#include "store/batch_guard.h"
#include "store/tables.h"

/* INSERTs of any number of rows, BATCH_ROWS_A_STATEMENT per statement. */
struct row_insert {
    const struct row_table *table;
    unsigned columns;         /* flags: it has the columns with one of them */
    const char *more_columns; /* columns with a constant value, and the values: "a,b" and "0,0" */
    const char *more_values;
    const char *duplicate;      /* the first assignments of ON DUPLICATE KEY UPDATE, or ""; NULL: a plain INSERT */
    unsigned duplicate_columns; /* flags of columns that it then sets to their new values */
    struct batch_guard *guard;  /* checked by the first COLUMN_U64 or COLUMN_U32 of a statement; NULL: none */
    unsigned counts;            /* the number that each row adds to ROW_COUNT(), for the guard; 0: unknown */
    size_t rows;                /* of the open statement */
};

void row_insert_sql(struct row_insert *insert, const void *row, struct buf *sql);
/* Ends the open statement, if there is one. */
void row_insert_end_sql(struct row_insert *insert, struct buf *sql);

/*
 * DELETEs by the columns with COLUMN_KEY. A join finds each row by its whole primary key. (By conditions on the key,
 * the server would walk along its first column, past all rows that were deleted and are not purged yet.)
 */
struct row_delete {
    const struct row_table *table;
    const char *alias;     /* of the table */
    const char *condition; /* such as " WHERE h.bits=0"; NULL: none, and all rows exist */
    struct batch_guard *guard;
    size_t rows; /* of the open statement */
};

void row_delete_sql(struct row_delete *deletion, const void *row, struct buf *sql);
void row_delete_end_sql(struct row_delete *deletion, struct buf *sql);

/* Appends ,column=value for the columns with one of the flags; without the first ',' if `first`. */
void row_set_sql(const struct row_table *table, unsigned flags, const void *row, bool first, struct buf *sql);

/* A row before and after its change. */
struct row_change {
    const void *before;
    const void *after;
};

/* Returns bit n for columns[n], with COLUMN_UPDATE or COLUMN_COUNT, if its value changes. */
uint32_t row_changed_columns(const struct row_table *table, struct row_change change);
/* Compares what two UPDATEs write to these columns; 0: one UPDATE can write both. For qsort. */
int row_compare_changes(const struct row_table *table, uint32_t columns, struct row_change left,
                        struct row_change right);
/*
 * Appends ,column=value for these columns. A counter is incremented, not set: a tombstone has no semaphore whose lock
 * would stop another permitd from counting at the same time. It wraps around to 0: if it stayed at its maximum, the
 * transaction of the answer would change no row.
 */
void row_changes_sql(const struct row_table *table, uint32_t columns, struct row_change change, struct buf *sql);
#endif
