/* SPDX-License-Identifier: MIT */
/*
 * Stores with a guard, all of one form, so that one suite runs on every one of them: real servers in temporary
 * directories, the guard loaded from src/guards, and beside it tables in which every accepted write leaves a line.
 */
#ifndef STORES_H
#define STORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verdict {
    PASSED,
    STALE,
    INVALID,
    AGAIN, /* a conflict between transactions: says nothing about the permit, the transaction is to be run again */
    LOST,  /* the server has ended the session: opened again before the next call */
};

enum place { PLACE_SLOTS, PLACE_RESOURCE, PLACE_FLOOR, PLACE_RAISE };

struct write {
    const char *semaphore;
    enum place place;
    const char *where; /* "3", "3,4", or the resource */
    int64_t token;
};

/* One server, or one directory of fence files. */
struct store {
    const struct store_kind *kind;
    const char *name;
    bool in_rows;    /* slots are guarded by a trigger on the rows that are written, not by a call; SQL stores */
    int pid;         /* of the server; 0: none */
    char *directory; /* of the store's own */
    char *socket;    /* how clients reach it */
    void *server;    /* the kind's own */
};

/* One client of a store; one thread at a time. */
struct session {
    struct store *store;
    void *link; /* the kind's own */
    char message[512];
    unsigned lost; /* times that it had to be opened again */
};

struct sql_words;

struct store_kind {
    const char *name;
    const struct sql_words *words; /* of SQL stores */
    bool transactions;             /* begin and commit are calls of their own */
    struct store *(*start)(bool durable);
    void (*stop)(struct store *store);
    void (*open)(struct session *session);
    void (*close)(struct session *session);
    /* The guard alone, in the transaction that is open. */
    enum verdict (*guard)(struct session *session, const struct write *write);
    /* A transaction in one exchange: the guard, and for each slot a line in its history (PLACE_SLOTS alone). */
    enum verdict (*write)(struct session *session, const struct write *write);
    /* The same in five exchanges, so that a client may be stopped between them; with transactions. */
    enum verdict (*write_in_steps)(struct session *session, const struct write *write);
    /* The guard may be left out: one row, whose key is `row`, is updated. For benchmarks. */
    enum verdict (*update)(struct session *session, const struct write *write_or_null, unsigned row);
    /* The tokens that wrote on this slot, in the order of their commits; the caller frees them. */
    size_t (*history)(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens);
    /* The largest token that has passed there; 0: none. */
    uint64_t (*mark)(struct session *session, const struct write *write);
    /* With transactions: any statements; how many sessions wait for a lock; one number. */
    enum verdict (*run)(struct session *session, const char *text);
    int64_t (*waiting)(struct session *session);
    int64_t (*number)(struct session *session, const char *text);
    /* How the guard is loaded where others have been before, and with which rights it is called. */
    void (*check_loading)(struct store *store);
};

extern const struct store_kind store_mariadb, store_postgresql, store_redis, store_file;
/* Wrong on purpose, on files: without a guard, and with one maximum for all slots. */
extern const struct store_kind store_unguarded, store_one_maximum;

/* Opens it; kit_fail if it cannot be. */
void session_open(struct session *session, struct store *store);
void session_close(struct session *session);
/* Calls of the kind, with the session opened again where it was lost. */
enum verdict session_guard(struct session *session, const struct write *write);
enum verdict session_write(struct session *session, const struct write *write);
enum verdict session_write_in_steps(struct session *session, const struct write *write);
/* kit_fail if it does not pass. */
void session_run(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Tokens by the clock: an hour below the largest that a guard takes, and an hour above it, as of the first call in this
 * process. Tables have NEWEST and BEYOND, and token_of makes tokens of them.
 */
enum { NEWEST = -1000001, OLDER_THAN_NEWEST, BEYOND };
int64_t token_of(int64_t token);

/* "3,4" as numbers, at most `max`; how many. */
size_t slots_of(const char *where, uint32_t *ret_slots, size_t max);
#endif
