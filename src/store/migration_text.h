/* SPDX-License-Identifier: MIT */
/*
 * Reads the migrations as text: their statements, and which tables and columns those leave. So what permitd's tables
 * look like stands in sql/ alone. Pure: nothing is sent to a database here.
 *
 * Understood of DDL: CREATE TABLE, DROP TABLE, ALTER TABLE ... ADD or DROP of columns; other clauses of ALTER TABLE,
 * and other statements, change no name of a table or column. A test compares the result with a real database.
 */
#ifndef STORE_MIGRATION_TEXT_H
#define STORE_MIGRATION_TEXT_H

#include "base/base.h"
#include "store/migrations.h"

enum { TABLES_MAX = 32, COLUMNS_MAX = 64 };

/* A table that a migration names, and what of it was found in a database. */
struct table {
    struct bytes name;
    bool expected; /* the statements so far have made it */
    struct bytes columns[COLUMNS_MAX];
    size_t column_count;
    bool found;
    uint64_t found_columns; /* bit n: columns[n] */
};

/* All tables that any migration names. */
struct tables {
    struct table list[TABLES_MAX];
    size_t count;
};

/* The next statement of *text, without its ';', with what precedes it. A statement ends with a ';' at the end of a
 * line. */
bool statement_next(const char **text, struct bytes *ret_statement);

/*
 * The tables after all migrations before `version` and the first `statements` statements of that one. False: there are
 * more tables or columns than fit.
 */
bool tables_read(const struct migration *migrations, unsigned version, unsigned statements,
                 struct tables *ret_tables) MUST_CHECK;
/* One more statement. */
bool tables_apply(struct tables *tables, struct bytes statement) MUST_CHECK;
/* NULL: none has this name. Upper and lower case are the same. */
struct table *tables_find(struct tables *tables, struct bytes name);

/* Notes that there is a table of this name with this column; column data NULL: that there is the table. */
void tables_note_found(struct tables *tables, struct bytes name, struct bytes column);
/* It is there with all its columns, or neither there nor expected. More columns than expected do no harm. */
bool table_is_as_expected(const struct table *table);
/* The first expected column that was not found; data NULL: none is missing. */
struct bytes table_missing_column(const struct table *table);
#endif
