/* SPDX-License-Identifier: MIT */
/* What the two SQL stores share: their tables, and a transaction with a guarded write as text. */
#ifndef STORE_SQL_H
#define STORE_SQL_H

#include "stores.h"

enum { SQL_GUARD = 64000, SQL_TEXT = SQL_GUARD + 2000 };

/* How the two differ. */
struct sql_words {
    const char *slots, *resource, *floor, *raise; /* the call, up to its arguments */
    const char *begin, *commit;                   /* around an update in one exchange, where it needs any */
    void (*quote)(char *to, size_t size, const char *name);
};

/* Lines: the history of each slot. Last: its length, updated first, so that lines are in the order of commits. */
#define SQL_TABLES                                                                                                     \
    "CREATE TABLE line (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " token BIGINT NOT NULL, PRIMARY KEY (semaphore, slot, number));"                                                  \
    "CREATE TABLE last (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " PRIMARY KEY (semaphore, slot));"                                                                                 \
    "CREATE TABLE stock (id BIGINT PRIMARY KEY, number BIGINT NOT NULL)"

/* "CALL permit_fence('s','3',57)" */
void sql_guard(const struct sql_words *words, const struct write *write, char *to, size_t size);
/* The whole transaction. The rows of `last` must be there (sql_prepare). */
void sql_write(const struct sql_words *words, const struct write *write, char *to, size_t size);
/* The same, each statement by `run`, until one does not pass. */
enum verdict sql_write_in_steps(const struct sql_words *words, struct session *session, const struct write *write,
                                enum verdict (*run)(struct session *session, const char *text));
/* One row of stock, with a guard or plain. */
void sql_update(const struct sql_words *words, const struct write *write_or_null, unsigned row, char *to, size_t size);
/* WHERE of the row in permit_fence or permit.fence. */
void sql_mark(const struct sql_words *words, const struct write *write, char *to, size_t size);
#endif
