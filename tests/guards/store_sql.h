/* SPDX-License-Identifier: MIT */
/* Shared by the two SQL stores: their tables, and guarded writes. */
#ifndef STORE_SQL_H
#define STORE_SQL_H

#include "stores.h"

enum { SQL_GUARD = 64000, SQL_LOCK = 4000, SQL_TEXT = SQL_GUARD + SQL_LOCK + 4000 };

/* The differences between the two. */
struct sql_words {
    const char *slots, *resource, *floor, *raise; /* the call, up to its arguments */
    const char *row;                              /* an upsert that sets the token of a row, up to the token */
    const char *begin, *commit;                   /* around an update in one exchange, if needed */
    const char *table;                            /* table of the marks */
    bool locks_as_found; /* a statement locks its rows in the order in which it finds them, which may vary */
    void (*quote)(char *to, size_t size, const char *name);
};

/*
 * line: the history of each slot. last: its length, updated first, so that lines are in the order of commits; if slots
 * are guarded in rows, also their marks. stock and fenced: rows for benchmarks.
 */
#define SQL_TABLES                                                                                                     \
    "CREATE TABLE line (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " token BIGINT NOT NULL, PRIMARY KEY (semaphore, slot, number));"                                                  \
    "CREATE TABLE last (semaphore VARCHAR(255) NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL,"                \
    " permit_token BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (semaphore, slot));"                                         \
    "CREATE TABLE stock (id BIGINT PRIMARY KEY, number BIGINT NOT NULL);"                                              \
    "CREATE TABLE fenced (id BIGINT PRIMARY KEY, number BIGINT NOT NULL, permit_token BIGINT NOT NULL DEFAULT 0)"

/* Methods of struct store_kind, for kinds that have `run`, `number` and `words`. */
enum verdict sql_guard(struct session *session, const struct write *write);
enum verdict sql_write(struct session *session, const struct write *write);
enum verdict sql_write_in_steps(struct session *session, const struct write *write);
enum verdict sql_update(struct session *session, const struct write *write_or_null, unsigned row);
uint64_t sql_mark(struct session *session, const struct write *write);
#endif
