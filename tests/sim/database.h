/* SPDX-License-Identifier: MIT */
/*
 * A database in memory: the tables of sql/ as far as batches and first uses need them, row locks, transactions, and
 * what a crash leaves. Not the SQL: what the statements of src/store do to rows is written here once more, short.
 *
 * A transaction holds X locks of semaphores (database_lock) and, from its first write on, of the keys that it writes
 * (the unique index). Its writes become visible all at once when it commits, and its locks are free then; durable they
 * are only some time later (InnoDB: a commit is shown to others before it is flushed). What is not durable is undone
 * by a crash; a failover to a copy that was behind undoes what is.
 *
 * Every commit is looked at: P1, P2, P9, P11 and the rows among each other (C2).
 */
#ifndef SIM_DATABASE_H
#define SIM_DATABASE_H

#include "core/name.h"
#include "core/plan.h"
#include "core/template.h"
#include "scheduler.h"

enum {
    SEMAPHORES_MADE = 8,   /* before the run, by operators */
    SEMAPHORES_NAMED = 24, /* names that templates may be for */
    SEMAPHORES_MAX = SEMAPHORES_MADE + SEMAPHORES_NAMED,
    TEMPLATES_MAX = 5,
    SLOTS_MAX = 24,
    ROW_PERMITS_MAX = 3,
    ROW_SLOTS_MAX = 4,
    KEY_SIZE = 32,
};

struct transaction;
struct story;

/* Whoever holds a row, and who waits for it. */
struct row_lock {
    struct transaction *holder;
    struct fiber_queue waiting;
};

/* What is in a row of `semaphore`, and its rows of `slot`. */
struct semaphore_row {
    bool exists;
    struct semaphore semaphore;
    uint64_t slots[SLOTS_MAX + 1]; /* permit_id by number; 0: free */
    uint8_t labels[SLOTS_MAX + 1]; /* by number, as in label_text; 0: none */
    uint32_t slot_rows;            /* they exist up to this number */
    uint32_t in_service;           /* not retired up to this number */
};
/* An entry of the unique index on names, also of one that no semaphore has yet, or that has lost its own. */
struct db_semaphore {
    struct semaphore_row row;
    struct row_lock lock;
    char name[16];
    mono_us changed_at; /* anything of its row */
    mono_us set_at;     /* its settings, or labels, were changed the last time */
    uint64_t max_token; /* that a client was told; no failover takes that back */

    /* Of a name that templates may be for: the oracle's. */
    mono_us uncovered_at; /* the last time when it was neither in service nor any template for it; NEVER: it is so */
    mono_us left_at;      /* it went out of service the last time; -1: never */
    bool served;          /* it is in service */
    mono_us served_at;    /* since then it is so, or not */
};

/* "S1" to "S24"; data NULL for 0. */
struct bytes label_text(uint8_t label);
/* The label of a slot; data NULL: it has none. */
struct bytes slot_label(const struct semaphore_row *row, uint32_t number);
static inline bool row_in_service(const struct semaphore_row *row)
{
    return row->exists && row->semaphore.retired_at == NEVER;
}

/* A row of `template`; its entry in the index stays when it is gone. */
struct template_row {
    bool exists;
    struct semaphore settings;
};
struct db_template {
    struct template_row row;
    struct row_lock lock;
    struct bytes prefix;
};

/* What is in a row of `permit_request`, and its rows of `permit`. */
struct request_row {
    bool exists;
    struct request request; /* strings of the key's; permits below */
    struct permit permits[ROW_PERMITS_MAX];
    uint32_t numbers[ROW_PERMITS_MAX][ROW_SLOTS_MAX];
    uint8_t labels[ROW_PERMITS_MAX][ROW_SLOTS_MAX]; /* as they were when it was granted */
    char nonce[NONCE_MAX_BYTES];
    enum request_state permit_states[ROW_PERMITS_MAX];
};

/* An entry of the unique index. It stays when its row is gone. */
struct db_key {
    struct db_key *next;
    uint64_t hash;
    char text[KEY_SIZE];
    struct bytes external_id;
    struct row_lock lock;
    struct request_row row;
    size_t held_at; /* in database.held, from 1; 0: not held */
    struct story *story;
};

/* What there is one of. */
struct globals {
    uint64_t identity; /* of the server that last served; 0: none */
    uint64_t epoch;
    struct served_clock clock;
    utc_us grants_from;
    uint64_t next_id;
    uint64_t last_id; /* the largest id of a row */
};

enum commit_state {
    TRANSACTION_OPEN,
    TRANSACTION_ENDED, /* committed or rolled back; it holds nothing */
};

struct transaction {
    struct list node; /* of all that are open */
    uint64_t number;
    enum commit_state state;
    struct db_semaphore *semaphores[BATCH_MAX_SEMAPHORES];
    size_t semaphore_count;
    struct db_key **keys; /* that it has locked */
    size_t key_count, key_room;
    struct db_template *locked_template;
    struct row_lock *waits_for;
    const struct changes *changes; /* being written */
    struct db_template *template;  /* the same, of an operator */
    struct template_row template_row;
    mono_us read_at; /* when it read the clock that it plans by */
    int64_t jumps;   /* oracle_jumps_over() then */
    uint64_t lsn;    /* of its commit */
};

extern struct database {
    struct db_semaphore semaphores[SEMAPHORES_MAX]; /* in byte order of their names; those made before come first */
    size_t semaphore_count;
    struct db_template templates[TEMPLATES_MAX];
    size_t template_count;
    struct globals globals;
    struct db_key **held; /* keys of requests that are held */
    size_t held_count, held_room;
    struct list open;     /* transactions */
    uint64_t server;      /* the identity of the server that runs */
    uint64_t start;       /* +1 with every crash or failover: sessions of before are gone */
    mono_us served_since; /* when `cluster` got to know its first server */
    bool down;
    int64_t skew_us; /* of the server's clock */
    uint64_t lsn, durable_lsn;
    uint64_t commits, crashes, failovers, undone;
    uint64_t deadlocks, duplicates;
} database;

void database_begin(void);
struct db_semaphore *database_add_semaphore(const char *name, const struct semaphore *like);
/* A name that no semaphore has, and a prefix that no template has. */
struct db_semaphore *database_add_name(const char *name);
void database_add_template(const char *prefix);
/* The template that is for this name; NULL: none is. */
struct db_template *database_template_for(struct bytes name);
/* Rows of semaphores, retired ones too. */
size_t database_count_semaphores(void);
/* The entry of this key, made if need be. */
struct db_key *database_key(struct bytes external_id);
struct db_semaphore *database_semaphore(uint64_t id);
struct db_semaphore *database_semaphore_named(struct bytes name);
utc_us database_now(void);
static inline bool row_is_held(const struct request_row *row)
{
    return row->exists && row->request.state == REQUEST_ACQUIRED;
}

struct transaction *transaction_begin(void);
/* Takes the lock, or waits for it: PERMIT_LOCK_TIMEOUT, PERMIT_CONFLICT (a deadlock), or PERMIT_DATABASE_LOST. */
enum permit_status transaction_lock_semaphore(struct transaction *transaction, struct db_semaphore *semaphore);
/*
 * By its name, or prefix: what is not there is not locked (READ COMMITTED), but a row that somebody is about to insert
 * is waited for.
 */
enum permit_status transaction_lock_named(struct transaction *transaction, struct db_semaphore *semaphore);
enum permit_status transaction_lock_template(struct transaction *transaction, struct db_template *template);
/* The same for the row of a key, or the gap where it would be. */
enum permit_status transaction_lock_key(struct transaction *transaction, struct db_key *key);
/*
 * Runs the statements of a write up to COMMIT, except that nobody sees anything yet: locks the keys, finds duplicates.
 * PERMIT_INTERNAL: a guard of the statements raised, which is a bug of ours.
 */
enum permit_status transaction_write(struct transaction *transaction, const struct changes *changes);
/* The same for a template, as it is to be. */
enum permit_status transaction_write_template(struct transaction *transaction, struct db_template *template,
                                              const struct template_row *row, bool inserts);
/* It has sent all that it writes. */
static inline bool transaction_is_written(const struct transaction *transaction)
{
    return transaction->changes || transaction->template;
}
/* COMMIT: visible, locks free. Durable when database_flush returns for its lsn. */
void transaction_commit(struct transaction *transaction);
void transaction_rollback(struct transaction *transaction);
/* The transaction is over; it does nothing if it is not. */
void transaction_free(struct transaction *transaction);
/* The rows of `globals` as they are to be, in a commit of their own. Returns its lsn. */
uint64_t database_commit_globals(const struct globals *globals);
/* All that was committed up to this is durable. */
void database_flushed(uint64_t lsn);

/* SIGKILL and, later, a start: what is not durable never was. */
void database_crash(void);
void database_start(void);
/* A copy takes over that has not seen the last `tail_us`. */
void database_fail_over(int64_t tail_us, int64_t skew_us);
#endif
