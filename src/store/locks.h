/* SPDX-License-Identifier: MIT */
/*
 * Tells which transactions lock permitd's rows, also those of other programs on the same server. Reads the server's own
 * tables, so it needs the rights PROCESS and, on MySQL, SELECT on performance_schema; nothing else of permitd does.
 *
 * MySQL lists each row that is locked. MariaDB lists a row while a session waits for it, and else only how many rows
 * a transaction has locked: such a transaction has no table here, unless it has called a procedure (sql/procedures): its
 * errand names the request.
 */
#ifndef STORE_LOCKS_H
#define STORE_LOCKS_H

#include "base/arena.h"
#include "permit/status.h"

struct store;

enum {
    LOCKS_MAX = 100,           /* rows of a list */
    LOCK_STATEMENT_MAX = 1000, /* bytes of a statement that are shown */
    DEADLOCK_MAX = 8,          /* transactions of a deadlock that are shown */
    LOCK_GRANT_SIZE = 1200,
};

/* A row that a transaction has locked, or a transaction with locked rows that are not known. */
struct lock_row {
    uint64_t connection;    /* of the server; 0: none, a prepared XA transaction */
    utc_us since;           /* begin of the transaction, the database's clock */
    struct bytes account;   /* "shop@10.0.0.4"; data NULL: the connection is gone */
    struct bytes statement; /* the beginning of the one that runs, else of the last; data NULL: not known */
    bool running;           /* that statement runs now */
    uint64_t rows_locked;   /* by the transaction, in all tables of the server */
    struct bytes table;     /* of permitd; data NULL: not known */
    struct bytes index;
    struct bytes row;     /* the locked record as the server shows it; data NULL: a gap, or not known */
    struct bytes mode;    /* "X,REC_NOT_GAP" */
    uint64_t waiters;     /* sessions that wait for this row because of this transaction */
    utc_us waiting_since; /* the first of them; NEVER: none */
    struct bytes semaphore;
    struct bytes external_id; /* stored key. Of both data NULL: none is known. Of a request, its first semaphore */
};

struct lock_list {
    struct lock_row *rows; /* in order of `since` and connection; those that errands name may come last */
    size_t count;
    bool more;     /* there are more than LOCKS_MAX */
    bool complete; /* locked rows are listed also if no session waits for them */
    utc_us now;    /* the database's clock */
};

/* The last deadlock of the server, if a row of permitd was part of it. */
struct deadlock {
    struct bytes at; /* "2026-11-28 03:11:22", in the server's own time zone; data NULL: there was none */
    struct deadlock_part {
        struct bytes user; /* data NULL: not known. The same for the others */
        struct bytes host;
        struct bytes statement; /* that it ran then */
        struct bytes table;     /* the lock for which it waited; of another database: with that, "shop`.`orders" */
        struct bytes index;
    } parts[DEADLOCK_MAX];
    size_t count;
    unsigned rolled_back; /* number of the transaction, from 1; 0: none */
};

/*
 * Writes the GRANTs that permitd's account lacks for reading locks, with "; " between them; "" if it lacks none. Constant
 * parts and the name of the account.
 */
enum permit_status locks_missing_grant(struct store *store, char ret_grant[LOCK_GRANT_SIZE]) MUST_CHECK;
/* Both need the rights. The rows are in the arena. */
enum permit_status locks_read(struct store *store, struct arena *arena, struct lock_list *ret_list) MUST_CHECK;
enum permit_status deadlock_read(struct store *store, struct arena *arena, struct deadlock *ret_deadlock) MUST_CHECK;
/*
 * Reads the deadlock in a text of SHOW ENGINE INNODB STATUS. The members are slices of the text. `database`: permitd's.
 * No deadlock, or none of permitd's rows: at.data is NULL.
 */
void deadlock_parse(struct bytes status, struct bytes database, struct deadlock *ret_deadlock);
#endif
