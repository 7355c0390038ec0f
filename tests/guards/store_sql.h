/* SPDX-License-Identifier: MIT */
/* What the two SQL stores share: their tables, and a transaction with a guarded write as text. */
#ifndef STORE_SQL_H
#define STORE_SQL_H

#include "stores.h"

enum { SQL_GUARD = 64000, SQL_TEXT = SQL_GUARD + 2000 };

/* How the two differ. */
struct sql_words {
    const char *slots, *resource, *floor, *raise; /* the call, up to its arguments */
    const char *row;                              /* an upsert that sets a row's token, up to the token */
    const char *begin, *commit;                   /* around an update in one exchange, where it needs any */
    void (*quote)(char *to, size_t size, const char *name);
};

/*
 * Lines: the history of each slot. Last: its length, updated first, so that lines are in the order of commits; where
 * slots are guarded in rows, also their marks. Stock and fenced: what benchmarks update.
 */
#define SQL_TABLES                                                                                                     \
    "CREATE TABLE line (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " token BIGINT NOT NULL, PRIMARY KEY (semaphore, slot, number));"                                                  \
    "CREATE TABLE last (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " permit_token BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (semaphore, slot));"                                         \
    "CREATE TABLE stock (id BIGINT PRIMARY KEY, number BIGINT NOT NULL);"                                              \
    "CREATE TABLE fenced (id BIGINT PRIMARY KEY, number BIGINT NOT NULL, permit_token BIGINT NOT NULL DEFAULT 0)"

/* "CALL permit_fence('s','3',57)", or an upsert of rows of `last`. */
void sql_guard(const struct sql_words *words, bool in_rows, const struct write *write, char *to, size_t size);
/* The whole transaction. The rows of `last` must be there (prepare_history). */
void sql_write(const struct sql_words *words, bool in_rows, const struct write *write, char *to, size_t size);
/* The same, each statement by `run`, until one does not pass. */
enum verdict sql_write_in_steps(const struct sql_words *words, struct session *session, const struct write *write,
                                enum verdict (*run)(struct session *session, const char *text));
/* One row of stock, plain or with the guard called, or one of fenced. */
void sql_update(const struct sql_words *words, bool in_rows, const struct write *write_or_null, unsigned row, char *to,
                size_t size);
/* SELECT of the mark from `table`, permit_fence or permit.fence, or from `last`. */
void sql_mark(const struct sql_words *words, bool in_rows, const char *table, const struct write *write, char *to,
              size_t size);
#endif
