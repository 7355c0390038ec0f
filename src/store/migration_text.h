/* SPDX-License-Identifier: MIT */
/*
 * Parses the migrations: splits them into statements and computes the tables and columns that they create. So sql/ is
 * the only description of permitd's tables. Pure: sends nothing to a database.
 *
 * The parser understands CREATE TABLE, DROP TABLE, and ADD and DROP of columns in ALTER TABLE. It assumes that other
 * clauses and statements change no name of a table or column. A test compares the result with a real database.
 */
#ifndef STORE_MIGRATION_TEXT_H
#define STORE_MIGRATION_TEXT_H

#include "base/base.h"
#include "store/migrations.h"

enum { TABLES_MAX = 32, COLUMNS_MAX = 64 };

/* A table named by a migration, and the part of it that exists in a database. */
struct table {
    struct bytes name;
    bool expected; /* the statements so far have created it */
    struct bytes columns[COLUMNS_MAX];
    size_t column_count;
    bool found;             /* it exists in the database */
    uint64_t found_columns; /* bit n: columns[n] exists in the database */
};

/* All tables named by any migration. */
struct tables {
    struct table list[TABLES_MAX];
    size_t count;
};

/*
 * Reads the next statement of *text, with the comments before it and without its ';', and advances *text. A statement
 * ends with a ';' at the end of a line. Returns false at the end of the text.
 */
bool statement_next(const char **text, struct bytes *ret_statement);

/*
 * Computes the tables after all migrations before `version` and the first `statements` statements of that one. Returns
 * false if there are more than TABLES_MAX tables or COLUMNS_MAX columns.
 */
bool tables_read(const struct migration *migrations, unsigned version, unsigned statements,
                 struct tables *ret_tables) MUST_CHECK;
/* Applies one more statement. Returns false as tables_read does. */
bool tables_apply(struct tables *tables, struct bytes statement) MUST_CHECK;
/* Finds a table by name, without regard to case. NULL: no table has this name. */
struct table *tables_find(struct tables *tables, struct bytes name);

/* Records that the database has this column of this table; column data NULL: that it has the table. */
void tables_note_found(struct tables *tables, struct bytes name, struct bytes column);
/* Returns true if the table exists with all its columns, or is neither expected nor found. Extra columns are fine. */
bool table_is_as_expected(const struct table *table);
/* Returns the first expected column that was not found; data NULL: none is missing. */
struct bytes table_missing_column(const struct table *table);
#endif
