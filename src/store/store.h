/* SPDX-License-Identifier: MIT */
/*
 * The contract of a store: what the engine needs of a database, one session of it. Two implementations: MariaDB and
 * MySQL (store_mysql_open), and a fake in memory (tests/). A session belongs to one thread. Calls block, at most for
 * the session's time-outs. After anything but PERMIT_OK, `message` says why in words, and the status says what to do:
 *
 *   PERMIT_CONFLICT              deadlock, duplicate, snapshot too old: store_rollback, then the whole batch again
 *   PERMIT_LOCK_TIMEOUT          a row lock was not had in 2 s: store_rollback, then again, split by semaphore
 *   PERMIT_DATABASE_LOST         the session is gone: store_reconnect, then again; after store_apply the outcome is
 *                                unknown
 *   PERMIT_DATABASE_UNAVAILABLE  read-only, no primary, cannot connect: later
 *   PERMIT_DATABASE_FULL         no room: this batch cannot be written
 *   PERMIT_NO_MEMORY             of this process
 *   PERMIT_INTERNAL              anything else; for 1048 and 1690 our own guards: a bug
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/arena.h"
#include "core/plan.h"
#include "core/template.h"

enum { STORE_MESSAGE_SIZE = 512 };

/* Step 0: names to ids and keys to semaphores, one plain read. A hint, never trusted. */
struct resolve_name {
    struct bytes name;
    uint64_t ret_id; /* 0: there is none */
    enum semaphore_kind ret_kind;
    uint64_t ret_floor;                  /* smallest live token, or next_permit_id */
    bool ret_retired;                    /* it is out of service */
    const struct template *ret_template; /* no such semaphore is in service: what it is to be made from; NULL: none */
};
struct resolve_key {
    struct bytes external_id;
    const uint64_t *ret_semaphore_ids; /* in the arena; ascending */
    size_t ret_count;
    int64_t ret_slots; /* that its permits have, held or not */
};
struct resolve {
    struct resolve_name *names;
    size_t name_count;
    struct resolve_key *keys;
    size_t key_count;
};

/* Which slots of a locked semaphore to read. */
struct slots_wanted {
    int64_t free;                  /* so many free ones, the lowest numbers first; 0 none */
    const struct slot_name *named; /* these as well, whatever their state; in any order, maybe more than once */
    size_t named_count;
};

/* Step 1: what to lock and to read. */
struct lock_set {
    const uint64_t *semaphore_ids;           /* ascending, at most BATCH_MAX_SEMAPHORES */
    const struct slots_wanted *slots_wanted; /* one per semaphore */
    size_t semaphore_count;
    const struct bytes *keys; /* each once, at most BATCH_MAX_OPERATIONS */
    size_t key_count;
    const struct bytes *owners; /* each once: those whose heartbeat an acquire relies on */
    size_t owner_count;
    struct bytes semaphore_name; /* administrative: also lock the one with this name, if it exists; data NULL: none */
    bool all_slots;              /* with semaphore_name: all its slots are named */
};

/* A request that is held and has a deadline, as the sweeper sees it: without locks. */
struct due_request {
    struct bytes external_id;
    uint64_t id;
    utc_us due_at;
};

/* Held requests in order of (due_at, id), after a place in that order; due or not. */
struct due_page {
    utc_us after_due_at; /* 0: from the beginning */
    uint64_t after_id;
    size_t limit;
    struct due_request *ret_requests; /* in the arena */
    size_t ret_count;
    utc_us ret_now; /* served time */
};

/* Rows of `semaphore` as they are at a moment, without locks. */
struct semaphore_page {
    struct semaphore *rows; /* in the arena */
    size_t count;
    utc_us now; /* served time */
};

/* A semaphore of which all tokens below `next` may have been handed out, as this process knows. */
struct tokens_seen {
    uint64_t semaphore_id;
    uint64_t next;
};

/* What a tick compares with what it finds, and what came of it. */
struct tick {
    const struct tokens_seen *seen;
    size_t seen_count;      /* at most BATCH_MAX_OPERATIONS */
    uint64_t ret_epoch;     /* of the `cluster` row */
    bool ret_same_server;   /* false: the server is another one than `cluster` knows */
    bool ret_tokens_behind; /* a semaphore would hand out a token again, or is not there: an older copy */
    bool ret_won;           /* this call moved served time on */
};

/* Why the epoch rises. */
enum epoch_cause {
    EPOCH_SERVER,   /* the server is another one than `cluster` knows; nothing happens if it is not */
    EPOCH_TOKENS,   /* a semaphore's next token is lower than this process has seen: an older copy */
    EPOCH_OPERATOR, /* permitctl fence bump: epoch.h only */
};

struct store;

struct store_methods {
    enum permit_status (*reconnect)(struct store *);
    enum permit_status (*examine)(struct store *);
    void (*disconnect)(struct store *);
    enum permit_status (*resolve)(struct store *, struct resolve *, struct arena *);
    enum permit_status (*lock)(struct store *, const struct lock_set *, struct arena *, struct view *);
    enum permit_status (*read_due)(struct store *, const struct shortfall *, size_t, struct arena *, struct view *);
    enum permit_status (*apply)(struct store *, const struct changes *);
    enum permit_status (*rollback)(struct store *);
    enum permit_status (*reserve_ids)(struct store *, uint64_t, struct id_range *, uint64_t *);
    enum permit_status (*floors)(struct store *, const uint64_t *, size_t, uint64_t *);
    enum permit_status (*tick)(struct store *, struct tick *);
    enum permit_status (*due)(struct store *, struct due_page *, struct arena *);
    enum permit_status (*semaphores)(struct store *, const uint64_t *, size_t, struct arena *, struct semaphore_page *);
    enum permit_status (*raise_epoch)(struct store *, enum epoch_cause, uint64_t, int64_t);
    enum permit_status (*ping)(struct store *);
    void (*free)(struct store *);
};

struct store {
    const struct store_methods *methods;
    char message[STORE_MESSAGE_SIZE];
    char
        refusal[STORE_MESSAGE_SIZE]; /* why the server was not safe to serve on when it was last examined; "": it was */
};

/*
 * Opens the session if it is not open, after killing what is left of the one before, and examines the server (P14); if
 * that is not safe the session is dropped, `message` and `refusal` say why and how to mend it, and it is
 * PERMIT_DATABASE_UNAVAILABLE. Of an open session nothing is asked.
 */
static inline enum permit_status store_reconnect(struct store *store)
{
    return store->methods->reconnect(store);
}

/* Drops the session, so that the next reconnect finds whoever serves then. */
static inline void store_disconnect(struct store *store)
{
    store->methods->disconnect(store);
}

/* Examines the server once more, over the open session: settings can change under it. As store_reconnect. */
static inline enum permit_status store_examine(struct store *store)
{
    return store->methods->examine(store);
}

static inline enum permit_status store_resolve(struct store *store, struct resolve *resolve, struct arena *arena)
{
    return store->methods->resolve(store, resolve, arena);
}

/* BEGIN, the locks in id order, then the reads. Semaphores that do not exist are absent from the view. */
static inline enum permit_status store_lock(struct store *store, const struct lock_set *set, struct arena *arena,
                                            struct view *ret_view)
{
    return store->methods->lock(store, set, arena, ret_view);
}

/*
 * After store_lock, in its transaction: the due holders of semaphores that are short, with all their permits. Adds them
 * to view->requests and makes view->next_due exact as far as it saw.
 */
static inline enum permit_status store_read_due(struct store *store, const struct shortfall *shortfalls, size_t count,
                                                struct arena *arena, struct view *view)
{
    return store->methods->read_due(store, shortfalls, count, arena, view);
}

/* Writes everything and commits; after PERMIT_OK it is durable. `changes` must not be empty (else: store_rollback). */
static inline enum permit_status store_apply(struct store *store, const struct changes *changes)
{
    return store->methods->apply(store, changes);
}

/* Ends the open transaction, if any; if that fails the session is dropped, so afterwards there is none in any case. */
static inline enum permit_status store_rollback(struct store *store)
{
    return store->methods->rollback(store);
}

/*
 * Ids that nobody else will get, in a transaction of its own. They are good in epoch *ret_epoch only: in a later one
 * another server, or an older copy, may hand them out again.
 */
static inline enum permit_status store_reserve_ids(struct store *store, uint64_t count, struct id_range *ret_range,
                                                   uint64_t *ret_epoch)
{
    return store->methods->reserve_ids(store, count, ret_range, ret_epoch);
}

/* The floor of each semaphore: smallest live token, next_permit_id if none; 0 if there is no such semaphore. */
static inline enum permit_status store_floors(struct store *store, const uint64_t *semaphore_ids, size_t count,
                                              uint64_t *ret_floors)
{
    return store->methods->floors(store, semaphore_ids, count, ret_floors);
}

/*
 * Looks whether the database is another server or an older copy. If not, moves served time on if the last tick is a
 * second old; of several permitd one wins.
 */
static inline enum permit_status store_tick(struct store *store, struct tick *tick)
{
    return store->methods->tick(store, tick);
}

/* A page of held requests by deadline; reads `limit` rows of an index and locks nothing. */
static inline enum permit_status store_due(struct store *store, struct due_page *page, struct arena *arena)
{
    return store->methods->due(store, page, arena);
}

/* The semaphores with these ids, at most BATCH_MAX_OPERATIONS; those that do not exist are absent. */
static inline enum permit_status store_semaphores(struct store *store, const uint64_t *ids, size_t count,
                                                  struct arena *arena, struct semaphore_page *ret_page)
{
    return store->methods->semaphores(store, ids, count, arena, ret_page);
}

/*
 * Raises the epoch by compare-and-set against `seen` (for EPOCH_SERVER: if the identity differs), so that of several
 * permitd one does; nothing is granted for hold_ms afterwards. A database that was never served is only given the
 * identity. No transaction is open.
 */
static inline enum permit_status store_raise_epoch(struct store *store, enum epoch_cause cause, uint64_t seen,
                                                   int64_t hold_ms)
{
    return store->methods->raise_epoch(store, cause, seen, hold_ms);
}

/* Keeps an idle session open. */
static inline enum permit_status store_ping(struct store *store)
{
    return store->methods->ping(store);
}

/* Accepts NULL. */
static inline void store_free(struct store *store)
{
    if (store)
        store->methods->free(store);
}
#endif
