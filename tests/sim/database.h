/* SPDX-License-Identifier: MIT */
/*
 * A database in memory: the tables of sql/ as far as batches and template creation need them, row locks, transactions
 * and crashes. It has no SQL: it repeats in short what the statements of src/store do to rows.
 *
 * A transaction holds X locks of semaphores and, after its first write, of the keys it writes (the
 * unique index). Its commit makes all its writes visible at once and frees its locks; the writes become durable some
 * time later (InnoDB shows a commit to others before it is flushed). A crash undoes commits that are not durable. A
 * failover to a copy that is behind also undoes durable ones.
 *
 * The oracle checks every commit: P1, P2, P9, P11 and the consistency of the rows (C2).
 */
#ifndef SIM_DATABASE_H
#define SIM_DATABASE_H

#include "core/name.h"
#include "core/plan.h"
#include "core/template.h"
#include "scheduler.h"
#include "store/feed.h"

enum {
    SEMAPHORES_CREATED = 8, /* created by operators before the run */
    SEMAPHORES_NAMED = 24,  /* names that a template may cover */
    SEMAPHORES_MAX = SEMAPHORES_CREATED + SEMAPHORES_NAMED,
    TEMPLATES_MAX = 5,
    SERVERS_MAX = 512, /* rows of `server`: those of the dead stay until their places are removed, which kills delay */
    SLOTS_MAX = 24,
    ROW_PERMITS_MAX = 3,
    ROW_SLOTS_MAX = 4,
    HELD_PERMITS_MAX = 6, /* of a request after exchanges */
    HELD_SLOTS_MAX = 12,
    WANTED_MAX = 512,
    MAIL_MAX = 4096,      /* rows of `mail` */
    EVENTS_MAX = 1 << 14, /* of `feed` */
    EVENT_PERMITS_SIZE = 256,
    FEED_EPOCHS_MAX = 16,
    KEY_SIZE = 32,
    METADATA_SIZE = 32,
};

struct transaction;
struct story;

/* The holder of a row lock, and the fibers that wait for it. */
struct row_lock {
    struct transaction *holder;
    struct fiber_queue waiting;
};

/* The seat of a slot: short texts, whose end is a zero or that of the array. */
struct db_seat {
    char section[4], row[4], tags[16];
    uint32_t position, rank; /* rank: one more than the rank; 0: none */
};

/* A row of `semaphore` and its rows of `slot`. */
struct db_semaphore_row {
    bool exists;
    struct semaphore semaphore;
    uint64_t slots[SLOTS_MAX + 1]; /* permit_id by slot number; 0: free */
    uint8_t labels[SLOTS_MAX + 1]; /* by slot number, as in label_text; 0: none */
    struct db_seat seats[SLOTS_MAX + 1];
    uint32_t slot_rows;  /* slots up to this number have a row */
    uint32_t in_service; /* slots up to this number are not retired */
};
/* An entry of the unique index on names, also for a name without a semaphore. */
struct db_semaphore {
    struct db_semaphore_row row;
    struct row_lock lock;
    char name[16];
    mono_us changed_at;                  /* last change of its row */
    mono_us set_at;                      /* last change of its settings or labels */
    uint64_t max_token;                  /* largest token in an answer; a failover does not lower it */
    uint64_t slot_tokens[SLOTS_MAX + 1]; /* the largest one under which each slot was held */
    utc_us acquired_at;                  /* of the last grant */

    /* For the oracle, of names that a template may cover. */
    mono_us
        uncovered_at;  /* end of the last time with neither a semaphore in service nor a template; NEVER: has neither */
    mono_us left_at;   /* when it last went out of service; -1: never */
    bool served;       /* in service */
    mono_us served_at; /* when `served` last changed */
};

/* "S1" to "S24"; for 0, data is NULL. */
struct bytes label_text(uint8_t label);
/* The seat of a slot; its texts are in the row. */
struct seat slot_seat(const struct db_semaphore_row *row, uint32_t number);
void row_set_seat(struct db_semaphore_row *row, const struct seat *seat);
/* The label of a slot; data is NULL if it has none. */
struct bytes slot_label(const struct db_semaphore_row *row, uint32_t number);
static inline bool row_in_service(const struct db_semaphore_row *row)
{
    return row->exists && row->semaphore.retired_at == NEVER;
}

/* A row of `template`. Its entry in the index stays after the row is deleted. */
struct template_row {
    bool exists;
    struct semaphore settings;
};
struct db_template {
    struct template_row row;
    struct row_lock lock;
    struct bytes prefix;
};

/* A row of `server`, and its place in the table, which another row may have later. */
struct db_server_row {
    bool exists;
    uint64_t id;
    utc_us since;
    uint64_t ticks;
    utc_us dead_at; /* lease clock; NEVER: alive */
};
struct db_server {
    struct db_server_row row;
};

/* A row of `waiter`. */
struct place_row {
    uint64_t semaphore_id;
    utc_us place;
    uint64_t request_id;
    int64_t count;
    uint32_t watch;
    uint64_t needs;
};

/* A row of `permit_request`, its rows of `permit`, and the rows of `waiter` of the key. */
struct db_metadata {
    char text[METADATA_SIZE];
    size_t length; /* 0: none */
};

struct request_row {
    bool exists;
    struct request request; /* strings belong to the key, permits are below; wants are not decoded */
    char wanted[WANTED_MAX];
    struct place_row places[ROW_PERMITS_MAX];
    size_t place_count;
    struct permit permits[HELD_PERMITS_MAX];
    uint32_t numbers[HELD_PERMITS_MAX][HELD_SLOTS_MAX];
    uint8_t labels[HELD_PERMITS_MAX][HELD_SLOTS_MAX]; /* as at the grant */
    char nonce[NONCE_MAX_BYTES], change_nonce[NONCE_MAX_BYTES];
    struct db_metadata metadata; /* its row in request_metadata */
    enum request_state permit_states[HELD_PERMITS_MAX];
    bool ordered; /* a shop has committed an order with its sale, and has not given it back */
};

/* An entry of the unique index on keys. It stays after its row is deleted. */
struct db_key {
    struct db_key *next;
    uint64_t hash;
    char text[KEY_SIZE];
    struct bytes external_id;
    struct row_lock lock;
    struct request_row row;
    size_t held_at;    /* index in database.held plus 1; 0: not held */
    size_t waiting_at; /* the same in database.waiting */
    struct story *story;
};

/* A row of `mail`, and its place in the table, which another row may have later. */
struct db_mail {
    bool exists;
    uint64_t server_id;
    uint64_t request_id;
};

/* A row of `feed`, at the place id % EVENTS_MAX of the table. */
struct db_event {
    bool exists;
    bool judged; /* by the oracle, in the commit that has written it */
    uint64_t id;
    uint64_t seq; /* 0: it has no number */
    uint64_t lsn; /* of that commit: the order in which events happened */
    utc_us at;
    enum feed_what what;
    enum end_reason end_reason;
    struct db_key *key;  /* NULL: a gap */
    uint32_t semaphores; /* a bit for each, by its place in database.semaphores */
    char permits[EVENT_PERMITS_SIZE];
    size_t permits_length;
    struct db_metadata metadata;
};

/* The values that exist once. */
struct globals {
    uint64_t identity; /* identity of the server that last served; 0: none */
    struct lease_clock clock;
    utc_us grants_from;
    uint64_t next_id;
    uint64_t last_id; /* largest id of a row */
    uint64_t ticks;
    uint64_t next_server_id;
    /* feed_head */
    uint64_t feed_seq, feed_durable;
    bool feed_full;
    struct feed_position feed_epochs[FEED_EPOCHS_MAX]; /* the rows of feed_epoch */
    size_t feed_epoch_count;
};

enum commit_state {
    TRANSACTION_OPEN,
    TRANSACTION_ENDED, /* committed or rolled back; holds no locks */
};

struct transaction {
    struct list node; /* in database.open */
    uint64_t number;
    enum commit_state state;
    struct db_semaphore *semaphores[BATCH_MAX_SEMAPHORES];
    size_t semaphore_count;
    struct db_key **keys; /* keys locked */
    size_t key_count, key_room;
    struct db_template *locked_template;
    bool locked_feed; /* feed_head */
    struct row_lock *waits_for;
    const struct changes *changes; /* the write in progress */
    struct db_template *template;  /* the same for a template */
    struct template_row template_row;
    struct db_event *events; /* the same for the feed; the transaction owns them */
    size_t event_count;
    uint64_t *numbered; /* the ids of events that get the next numbers; it owns them, too */
    size_t numbered_count;
    bool omits;         /* it leaves events out, because the feed is full: that does not change before it ends */
    bool numbers;       /* it gives numbers, or flushes those of others */
    int process;        /* that has begun it */
    mono_us began_at;   /* before its locks */
    mono_us read_at;    /* when it read the clock used by its plan */
    mono_us planned_at; /* not after its plan was made */
    utc_us read_time;   /* lease clock at that time, by the database's clock */
    utc_us read_tick;   /* the same at the last tick */
    uint64_t lsn;       /* of its commit */
};

extern struct database {
    struct db_semaphore semaphores[SEMAPHORES_MAX]; /* sorted by name; those created before the run come first */
    size_t semaphore_count;
    struct db_template templates[TEMPLATES_MAX];
    size_t template_count;
    struct db_server servers[SERVERS_MAX];
    struct db_mail mail[MAIL_MAX];
    struct db_event events[EVENTS_MAX];
    uint64_t first_event_id, next_event_id; /* the ids of all rows are between them */
    struct row_lock feed_head;
    struct globals globals;
    struct db_key **held; /* keys of held requests */
    size_t held_count, held_room;
    struct db_key **waiting; /* keys that wait or have places */
    size_t waiting_count, waiting_room;
    struct list open;     /* open transactions */
    uint64_t server;      /* identity of the running server */
    uint64_t start;       /* incremented by each crash or failover; older sessions are lost */
    mono_us served_since; /* when `cluster` got its first server */
    bool down;
    /* The server's clock: its difference from the true one (sim_now), and by how much it is too fast since slewed_at. */
    int64_t skew_us, per_million;
    mono_us slewed_at;
    mono_us frozen_until; /* it stands still until then, at frozen_at */
    utc_us frozen_at;
    uint64_t lsn, durable_lsn;
    uint64_t commits, crashes, failovers, undone;
    mono_us committed_at; /* last commit of a batch, or of an operator */
    uint64_t deadlocks, duplicates;
    uint64_t cached, mismatches; /* batches in one packet: that were written, that found other rows */
    uint64_t too_large;          /* writes above store->max_packet, which were not sent */
    uint64_t cached_grants;      /* waiters that such batches granted */
} database;

void database_begin(void);
struct db_semaphore *database_add_semaphore(const char *name, const struct semaphore *like);
/* Adds a name without a semaphore, or a prefix without a template. */
struct db_semaphore *database_add_name(const char *name);
void database_add_template(const char *prefix);
/* The template that covers this name, or NULL. */
struct db_template *database_template_for(struct bytes name);
/* Number of semaphore rows, including retired ones. */
size_t database_count_semaphores(void);
uint64_t database_count_slots(void);
/* The entry of this key; creates it if needed. */
struct db_key *database_key(struct bytes external_id);
struct db_semaphore *database_semaphore(uint64_t id);
struct db_semaphore *database_semaphore_named(struct bytes name);
/* The server's clock. */
utc_us database_now(void);
/* Steps it, lets it stand still, or changes its rate. */
void database_step(int64_t by_us);
void database_freeze(int64_t for_us);
void database_slew(int64_t per_million);
static inline bool row_is_held(const struct request_row *row)
{
    return row->exists && row->request.state == REQUEST_ACQUIRED;
}
static inline bool row_is_waiting(const struct request_row *row)
{
    return row->exists && row->request.state == REQUEST_WAITING;
}
/* Decodes what the row wants into row->request, in the arena. */
void row_decode_wants(struct request *request, struct arena *arena);
/* The key of the waiting request with this id, or NULL. */
struct db_key *database_waiting(uint64_t request_id);
/* Orders waiting requests by place, ties by id. */
int compare_places(const struct request *a, const struct request *b);

struct transaction *transaction_begin(void);
/*
 * Takes the lock, or waits for it. Fails with PERMIT_LOCK_TIMEOUT, PERMIT_CONFLICT (deadlock) or PERMIT_DATABASE_LOST.
 */
enum permit_status transaction_lock_semaphore(struct transaction *transaction, struct db_semaphore *semaphore);
/*
 * Locks by name or by prefix. A missing row is not locked (READ COMMITTED), but the call waits for a row that another
 * transaction is about to insert.
 */
enum permit_status transaction_lock_named(struct transaction *transaction, struct db_semaphore *semaphore);
enum permit_status transaction_lock_template(struct transaction *transaction, struct db_template *template);
/* The same for the row of a key, or the gap of a missing row. */
enum permit_status transaction_lock_key(struct transaction *transaction, struct db_key *key);
/* The same without waiting. False: another transaction has locked it. */
bool transaction_try_lock_key(struct transaction *transaction, struct db_key *key);
/*
 * Runs the statements of a write up to COMMIT, without showing the rows: locks the keys and finds duplicates.
 * PERMIT_INTERNAL: a guard of the statements raised, which is a bug in permitd.
 */
enum permit_status transaction_write(struct transaction *transaction, const struct changes *changes);
/* The same for a template, with its new row. */
enum permit_status transaction_write_template(struct transaction *transaction, struct db_template *template,
                                              const struct template_row *row, bool inserts);
/* True once it has sent all its writes. */
static inline bool transaction_is_written(const struct transaction *transaction)
{
    return transaction->changes || transaction->template || transaction->numbered_count;
}
/* COMMIT: makes the writes visible and frees the locks. They are durable when database_flushed is called with its lsn. */
void transaction_commit(struct transaction *transaction);
void transaction_rollback(struct transaction *transaction);
/* Frees the transaction, and rolls it back if it is open. */
void transaction_free(struct transaction *transaction);
/*
 * Commits what a procedure has done to a held request (bits of enum errand) in the transaction of a shop that has locked
 * its row, with the shop's order, and ends the transaction. Returns the lsn.
 */
uint64_t database_commit_errand(struct transaction *transaction, struct db_key *key, uint32_t errand);
/* The same for feed_head, whose lock orders the numbering. */
enum permit_status transaction_lock_feed(struct transaction *transaction);
/* The event with this id; NULL: there is none. */
struct db_event *database_event(uint64_t id);
/*
 * Commits these values of feed_head, the deletion of the numbered events below `first`, and (gap) an event of a gap, in a
 * transaction of their own. Returns its lsn.
 */
uint64_t database_commit_feed(const struct globals *globals, uint64_t first, bool gap);
/* Returns true if an open transaction leaves events out. */
bool database_omits_events(void);
/* Commits that readers see the numbers up to this one, in a transaction of its own. Returns its lsn. */
uint64_t database_commit_durable(uint64_t seq);
/* Commits these `globals` in a transaction of their own. Returns its lsn. */
uint64_t database_commit_globals(const struct globals *globals);
/* The row with this id; NULL: there is none. */
struct db_server *database_server(uint64_t id);
/* A place for a new row. */
struct db_server *database_new_server(void);
/* Commits the row in a transaction of its own: inserts, changes or (exists is false) deletes it. Returns its lsn. */
uint64_t database_commit_server(struct db_server *server, const struct db_server_row *row);
/* Commits the deletion of mail of this server in a transaction of its own; ids NULL: all its mail. Returns its lsn. */
uint64_t database_drop_mail(uint64_t server_id, const uint64_t *request_ids, size_t count);
/* The row of the key before the latest commit; NULL: that commit has not changed it. */
const struct request_row *database_before(const struct db_key *key);
/* The same for a semaphore. */
const struct db_semaphore_row *database_semaphore_before(const struct db_semaphore *semaphore);
/* Makes all commits up to this lsn durable. */
void database_flushed(uint64_t lsn);

/* SIGKILL, and later a restart: undoes all commits that are not durable. */
void database_crash(void);
void database_start(void);
/* A copy takes over that lacks the last `tail_us`. */
void database_fail_over(int64_t tail_us, int64_t skew_us);
#endif
