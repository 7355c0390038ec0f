/* SPDX-License-Identifier: MIT */
/*
 * Stores with a guard behind one interface, so that one suite runs on all of them: real servers in temporary
 * directories, the guard loaded from sql/guards, and tables in which every accepted write leaves a line.
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
    AGAIN, /* a conflict between transactions: run the transaction again; says nothing about the permit */
    LOST,  /* the server has ended the session, which is reopened before the next call */
};

enum queue_rank { PLACE_SLOTS, PLACE_RESOURCE, PLACE_FLOOR, PLACE_RAISE };

struct write {
    const char *semaphore;
    enum queue_rank place;
    const char *where; /* "3", "3,4", or the resource */
    int64_t token;
};

/* One server, or one directory of fence files. */
struct store {
    const struct store_kind *kind;
    const char *name;
    bool in_rows;    /* slots are guarded by a trigger on the written rows, not by a call; SQL stores */
    int pid;         /* of the server; 0: none */
    char *directory; /* for the store's files */
    char *socket;    /* where clients connect */
    void *server;    /* private to the kind */
};

/* One client of a store. Not thread-safe. */
struct session {
    struct store *store;
    void *link; /* private to the kind */
    char message[512];
    unsigned lost; /* number of times it was reopened */
};

struct sql_words;

struct store_kind {
    const char *name;
    const struct sql_words *words; /* SQL stores only */
    bool transactions;             /* begin and commit are separate calls */
    struct store *(*start)(bool durable);
    void (*stop)(struct store *store);
    void (*open)(struct session *session);
    void (*close)(struct session *session);
    /* The guard alone, in the open transaction. */
    enum verdict (*guard)(struct session *session, const struct write *write);
    /* A transaction in one exchange: the guard, and a line in the history of each slot. PLACE_SLOTS only. */
    enum verdict (*write)(struct session *session, const struct write *write);
    /* The same in five exchanges, so that a client can be stopped between them. With transactions only. */
    enum verdict (*write_in_steps)(struct session *session, const struct write *write);
    /* Updates the row with key `row`, with or without the guard. For benchmarks. */
    enum verdict (*update)(struct session *session, const struct write *write_or_null, unsigned row);
    /* The tokens that wrote on this slot, in the order of their commits. The caller frees them. */
    size_t (*history)(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens);
    /* The largest token that has passed there; 0: none. */
    uint64_t (*mark)(struct session *session, const struct write *write);
    /* With transactions: runs any statement; number of sessions that wait for a lock; reads one number. */
    enum verdict (*run)(struct session *session, const char *text);
    int64_t (*waiting)(struct session *session);
    int64_t (*number)(struct session *session, const char *text);
    /* Tests loading of the guard with earlier objects of others, and the rights needed to call it. */
    void (*check_loading)(struct store *store);
};

extern const struct store_kind store_mariadb, store_postgresql, store_redis, store_file;
bool store_redis_installed(void);
/* Wrong on purpose, on files: without a guard, and with one maximum for all slots. */
extern const struct store_kind store_unguarded, store_one_maximum;

/* Opens the session; kit_fail if it cannot. */
void session_open(struct session *session, struct store *store);
void session_close(struct session *session);
/* Methods of the kind; a lost session is reopened. */
enum verdict session_guard(struct session *session, const struct write *write);
enum verdict session_write(struct session *session, const struct write *write);
enum verdict session_write_in_steps(struct session *session, const struct write *write);
/* kit_fail if it does not pass. */
void session_run(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Tokens by the clock: an hour below and an hour above the largest token that a guard accepts, as of the first call in
 * this process. Tables use NEWEST and BEYOND, which token_of converts.
 */
enum { NEWEST = -1000001, OLDER_THAN_NEWEST, BEYOND };
int64_t token_of(int64_t token);

/* Parses "3,4" into at most `max` numbers. Returns their count. */
size_t slots_of(const char *where, uint32_t *ret_slots, size_t max);
#endif
