/* SPDX-License-Identifier: MIT */
/*
 * The seam to the database: everything that engine and api ask of it. A store is one session. There are two
 * implementations: MariaDB and MySQL (open.h), and a fake in memory (tests/sim).
 *
 * Its calls are methods in groups, each with a struct of its own: store->queries->holders(store, ...).
 *
 *     session     below               the connection, its keepalive and the safety check
 *     batch       below               the transaction of a batch
 *     clock       below               the lease clock, the epoch and the tokens seen
 *     schema      below               the migrations
 *     queries     query.h             status, lists, history
 *     owners      owners.h            heartbeats and owners
 *     templates   templates.h         templates of semaphores
 *     retention   retention_batch.h   deletion of what is no longer kept
 *     audit       audit.h             comparison of the rows with each other
 *     servers     servers.h           the permitd that run on this database, and their mail
 *     feed        feed.h              the feed: its numbers, its end, its pages
 *     webhooks    webhooks.h          the URLs to which events are sent, and how far each is
 *     sql_accounts sql_accounts.h     SQL users that may call the procedures of shops
 *
 * A batch of the engine uses the calls in this order (tests/contract/checked_store.c asserts it):
 *
 *     session->reconnect    opens the session if there is none
 *     batch->resolve        names to ids and keys to semaphores: a hint, without locks
 *     batch->reserve_ids    ids for new rows, in a transaction of its own; only when the engine's block runs out
 *     batch->await          BEGIN; locks one semaphore; only if other permitd use it, too
 *     batch->lock           BEGIN, unless `await` has; locks the semaphores, and without waiting the requests with keys
 *                           of the batch; reads the rows that the plan needs into a view
 *     batch->read_due       adds the due holders of semaphores that lack units; only if there may be any
 *     batch->lock_requests  locks the rows of other requests that the batch may write; only if there may be any
 *     batch->read_waiters   adds the waiters that may be granted; only if there may be any
 *     batch->read_seats     reads the seats of a semaphore; only if the batch needs them
 *     batch->read_glimpses  adds what else these wait for, without locks; only if that matters
 *     batch->prepare        builds the packet of the plan's changes
 *     batch->commit         sends it: writes the changes; COMMIT
 *
 * or, if its rows are cached, only `prepare` and `commit_if_unchanged`, which locks, writes, checks and commits.
 *
 *     batch->rollback       instead of `commit` if there is nothing to write, and after any failure
 *
 * Locking rule: a transaction that changes a request, its permits or its slots holds the row locks of all its
 * semaphores, and of the request. batch->lock takes the former in ascending id order. No batch waits for the row of a
 * request or of an owner: a transaction of a shop may hold the former for long (docs/design.md, "Errands").
 *
 * A store belongs to one thread. Its calls block, at most for the time-outs of the session. Memory of results comes
 * from the caller's arena. Outputs are members or parameters named ret_; they are valid only after PERMIT_OK.
 *
 * After any status but PERMIT_OK, `message` says why. The status says what the caller does:
 *
 *   PERMIT_CONFLICT              deadlock, duplicate key, record changed since last read, owner row locked:
 *                                batch->rollback, then retry the whole batch
 *   PERMIT_LOCK_TIMEOUT          row lock not granted within 2 s: batch->rollback, then retry, split by semaphore
 *   PERMIT_DATABASE_LOST         session lost: session->reconnect, then retry; after batch->commit the outcome is unknown
 *   PERMIT_DATABASE_UNAVAILABLE  cannot connect, read-only, no primary, or unsafe settings; the session is dropped:
 *                                session->reconnect later, then retry
 *   PERMIT_DATABASE_FULL         no storage left: this batch cannot be written
 *   PERMIT_TOO_LARGE             a packet exceeds store->max_packet: split. It was not sent
 *   PERMIT_NO_MEMORY             out of memory in this process: split
 *   PERMIT_INTERNAL              anything else. Errors 1048 and 1690 are permitd's own guards in SQL: a bug;
 *                                in batch->commit_if_unchanged they are mismatches
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/plan.h"
#include "core/template.h"
#include "store/query.h"

enum { STORE_MESSAGE_SIZE = 512 };

/* The use of a store; it decides the time-outs. */
enum store_use {
    STORE_WORKER, /* batches: the server drops a silent client after 5 s, so a stopped permitd frees its row locks */
    STORE_READER, /* status queries and tasks */
    STORE_LIST,   /* lists: the server stops a statement after 5 s; the call returns PERMIT_BUSY */
    STORE_PROBE,  /* checks whether the server answers: time-outs of 1 s */
    STORE_ADMIN,  /* 120 s for a statement; connects without a current database, which may not exist yet */
    STORE_SCHEMA, /* as STORE_ADMIN, with an hour for a statement: a migration may copy a large table */
};

/*
 * Resolve: names to ids and keys to semaphores, by plain reads without locks. The result is a hint: it selects the
 * semaphores to lock, and the plan decides from the locked rows.
 */
struct resolve_name {
    struct bytes name;
    uint64_t ret_id; /* 0: no semaphore has this name */
    enum semaphore_kind ret_kind;
    uint64_t ret_floor;                  /* smallest live token; next_permit_id if none */
    bool ret_retired;                    /* the semaphore is retired; a template may create it again */
    const struct template *ret_template; /* template that creates a missing or retired semaphore; NULL: none */
};
struct resolve_key {
    struct bytes external_id;
    const uint64_t *ret_semaphore_ids; /* of its permits, or that it waits for, ascending; in the arena */
    size_t ret_count;                  /* 0: no request has this key, or a tombstone has it */
    int64_t ret_slots;                 /* slots in the request's permits, held or ended */
};
struct resolve {
    struct resolve_name *names;
    size_t name_count;
    struct resolve_key *keys;
    size_t key_count;
};

/* For batch->read_waiters: view->free_slots has all free slots already. */
enum { SLOTS_KNOWN = -1 };

/* The slots of a locked semaphore that batch->lock reads. */
struct slots_wanted {
    int64_t free;                  /* number of free slots, lowest numbers first; 0: none; SLOTS_KNOWN */
    uint64_t known_version;        /* of the semaphore: at this one they are known, and not read; 0: none */
    const struct slot_name *named; /* specific slots, read in any state; any order, duplicates allowed */
    size_t named_count;
};

/*
 * The rows that batch->lock locks and reads. A batch sets semaphore_ids, or, if it is administrative, semaphore_name.
 */
struct lock_set {
    const uint64_t *semaphore_ids;           /* ascending, at most BATCH_MAX_SEMAPHORES */
    const struct slots_wanted *slots_wanted; /* one per semaphore */
    /*
     * One per semaphore: how many of its first waiters are enough for the batch, probably. The store may read them and
     * the living servers together with the locks; batch->read_waiters then takes them instead of what it is to read,
     * the first time. NULL: nothing is read ahead.
     */
    const size_t *waiters_ahead;
    size_t semaphore_count;
    const struct bytes *keys; /* of requests to read, at most BATCH_MAX_OPERATIONS; duplicates allowed */
    size_t key_count;
    const struct bytes *owners; /* owners on whose heartbeat an acquire relies; no duplicates */
    size_t owner_count;
    struct bytes semaphore_name; /* administrative: the semaphore to lock, if it exists; data NULL: semaphore_ids */
    bool all_slots;              /* with semaphore_name: reads all its slots into named_slots */
    bool lock_held;              /* batch->await has begun the transaction and locked these semaphores */
};

/* The tokens of a semaphore that this process has seen: all below `next` may have been issued. */
struct tokens_seen {
    uint64_t semaphore_id;
    uint64_t next;
};

/* The assumptions of a plan from cached rows, besides the versions of its semaphores. */
struct assumed {
    uint64_t epoch;     /* and that the database server is the one recorded in `cluster` */
    uint64_t server_id; /* a permitd that is not dead; 0: none */
    utc_us now;         /* lease clock: at COMMIT it is in [now, now + slack_us] */
    int64_t slack_us;
    const struct bytes *absent; /* keys that no request has; at most BATCH_MAX_OPERATIONS */
    size_t absent_count;
};

/* Which assumption was wrong. */
enum mismatch {
    MISMATCH_NONE,
    MISMATCH_VERSION, /* of a semaphore */
    MISMATCH_KEY,     /* a request has a key that was taken for new */
    MISMATCH_GUARD,   /* the time, the server, the epoch, or a row count */
    MISMATCH_ROW,     /* another session has locked the row of a request that the batch ends for others */
    MISMATCH_COUNT
};

/* The read of a clock tick. */
struct tick {
    const struct tokens_seen *seen; /* compared with the rows, to detect an older copy of the database */
    size_t seen_count;              /* at most BATCH_MAX_OPERATIONS */
    struct lease_row ret_row;       /* the `cluster` row */
    utc_us ret_now;                 /* the database's clock */
    bool ret_same_server;           /* false: the server's identity is not the one in `cluster` (failover) */
    bool ret_tokens_behind;         /* a semaphore of `seen` is missing or would issue a token again: an older copy */
};

/* Reason for raising the epoch. */
enum epoch_cause {
    EPOCH_SERVER,   /* the server's identity is not the one in `cluster`; if it is, the call changes nothing */
    EPOCH_TOKENS,   /* a semaphore's next token is below the tokens seen: an older copy of the database */
    EPOCH_OPERATOR, /* permitctl fence bump */
};

/* A raise of the epoch; then nothing is granted for hold_ms. */
struct epoch_advance {
    enum epoch_cause cause;
    int64_t hold_ms;
    uint64_t seen;      /* EPOCH_TOKENS: the epoch in which that was seen; if it is another by now, nothing is raised */
    struct bytes why;   /* EPOCH_OPERATOR: goes into the record */
    uint64_t ret_epoch; /* after the call, raised or not; with PERMIT_OK and PERMIT_TOO_MANY */
    int64_t ret_wait_ms; /* with PERMIT_TOO_MANY: the time left */
};

struct store;
struct doctor_report;
struct procedures_result; /* procedures.h */

/* The methods; store->session. */
struct store_session {
    /*
     * Opens the session if it is not open: ends what is left of the lost session (KILL), then, for STORE_WORKER, checks
     * the server's safety (P14). If the settings are unsafe, drops the session and returns PERMIT_DATABASE_UNAVAILABLE;
     * `message` and `refusal` name the setting and the fix. Sends nothing if the session is open. Never returns
     * PERMIT_DATABASE_LOST.
     */
    enum permit_status (*reconnect)(struct store *store);
    /* Drops the session. The next `reconnect` connects to the server that is then at the address. */
    void (*disconnect)(struct store *store);
    /*
     * Repeats the safety check over the open session, because settings can change while it is open. Unsafe settings
     * have the same result as in `reconnect`.
     */
    enum permit_status (*check_safety)(struct store *store);
    /* Keeps an idle session open: the server closes a session that is idle for 5 s. */
    enum permit_status (*keepalive)(struct store *store);
    /*
     * Examines the server's settings (doctor.h). PERMIT_OK means that the checks ran, not that they passed; otherwise
     * *ret_report is untouched.
     */
    enum permit_status (*doctor)(struct store *store, struct doctor_report *ret_report);
    /* Closes the session and frees the store (store_free). */
    void (*free)(struct store *store);
};

/* The methods; store->batch. */
struct store_batch {
    /*
     * Fills the ret_ members. Outputs of names and keys that are not found stay untouched: zero them before the call.
     */
    enum permit_status (*resolve)(struct store *store, struct resolve *resolve, struct arena *arena);
    /*
     * Reserves `count` ids that no other permitd gets, in a transaction of its own. The ids are valid in epoch
     * *ret_epoch only: after a failover another server, or an older copy of the database, may issue them again.
     */
    enum permit_status (*reserve_ids)(struct store *store, uint64_t count, struct id_range *ret_range,
                                      uint64_t *ret_epoch);
    /*
     * Begins the transaction of a batch of one semaphore and waits for its row lock, before it is known which
     * operations the batch has. `lock` follows, with lock_set.lock_held; on failure `rollback`.
     */
    enum permit_status (*await)(struct store *store, uint64_t semaphore_id);
    /*
     * Begins the transaction, unless `await` has; takes the row locks in ascending id order, then reads. A semaphore
     * that does not exist is absent from the view. On failure the transaction may be open: call `rollback`.
     */
    enum permit_status (*lock)(struct store *store, const struct lock_set *set, struct arena *arena,
                               struct view *ret_view);
    /*
     * Reads, in the transaction of `lock`, the due holders of semaphores that lack units (at least one), with all their
     * permits. Adds them to view->requests. Sets view->next_due of these semaphores to a bound for the holders that
     * were not read.
     */
    enum permit_status (*read_due)(struct store *store, const struct shortfall *shortfalls, size_t count,
                                   struct arena *arena, struct view *view);
    /*
     * Locks, in the transaction of `lock`, the rows of these requests of the view (at least one, ascending ids), whose
     * semaphores it has locked. Waits for no row: sets `lock` of each, and reads its errand again. The rest of the row
     * is as the view has it, because permitd writes it under the locks of its semaphores only.
     */
    enum permit_status (*lock_requests)(struct store *store, const uint64_t *ids, size_t count, struct view *view);
    /*
     * Reads, in the transaction of `lock`, parts of the queues of locked semaphores, in their order, with the wants of
     * each waiter, and the ids of the living servers. Adds the waiters to view->requests, except those that are there;
     * fills view->queues and view->servers. A place that no client asks for, because its request has no server_id or
     * its server is dead, is passed over. `slots` has one element per read: the free slots and the named slots that the
     * operations of the batch want (as in the lock_set); this call reads the free slots again, and as many more of them
     * as the waiters want (all free slots if one wants adjacent ones), and also the slots that the waiters name, and
     * replaces free_slots and named_slots of these semaphores. Of waiters that name very many slots only the first are
     * read; under `fifo` the queue is cut there (queue_view.beyond). It may be called again, with other reads of the
     * same queues.
     */
    enum permit_status (*read_waiters)(struct store *store, const struct queue_read *reads,
                                       const struct slots_wanted *slots, size_t count, struct arena *arena,
                                       struct view *view);
    /*
     * Reads, in the transaction of `lock`, the seats and labels of all slots of a locked semaphore, in service or not,
     * ascending by number. A semaphore that does not exist has none.
     */
    enum permit_status (*read_seats)(struct store *store, uint64_t semaphore_id, struct arena *arena,
                                     struct seats *ret_seats);
    /*
     * Reads, in the transaction of `lock`, semaphores that it did not lock, plainly: at least one id, ascending, none
     * of them among the glimpses of the view. Adds them to view->glimpses, with the slots that waiters of the view
     * watch there, and to view->requests the protected waiters of their queues (those that have waited since `aged` or
     * longer; under `fifo` the first ones), at most about 2,000.
     */
    enum permit_status (*read_glimpses)(struct store *store, const uint64_t *semaphore_ids, size_t count, utc_us aged,
                                        struct arena *arena, struct view *view);
    /*
     * Builds the packet of these changes for the `commit`, or, with `assumed`, the `commit_if_unchanged` that comes
     * next. Sends nothing, so a failure leaves nothing unknown. Without this call those build the packet.
     */
    enum permit_status (*prepare)(struct store *store, const struct changes *changes, const struct assumed *assumed);
    /*
     * Writes all changes and commits. PERMIT_OK: they are durable. `changes` must not be empty; for an empty plan call
     * `rollback`. PERMIT_DATABASE_LOST: the outcome is unknown. PERMIT_INTERNAL with was_stopped: the database has
     * refused the plan before COMMIT, so nothing is written. PERMIT_LOCK_TIMEOUT at once: another session has locked
     * a row that `lock` was not given. PERMIT_CONFLICT: also if events are left out, and the feed is not full any more.
     */
    enum permit_status (*commit)(struct store *store, const struct changes *changes);
    /*
     * A whole batch in one packet, planned on cached rows: BEGIN; the compare-and-set of its semaphores (at least one),
     * which takes their locks in the order of ids; the locks of the requests that it changes, without waiting;
     * the other changes; a last guard, which proves what is `assumed`; COMMIT. PERMIT_OK: the changes are durable, and
     * were right. PERMIT_CONFLICT with *ret_mismatch: an assumption was wrong; call `rollback`. Other failures as in
     * `commit`, with MISMATCH_NONE.
     *
     * Without changes it takes shared locks and reads the versions, and ends with ROLLBACK: PERMIT_OK proves refusals.
     * After a failure nothing is unknown.
     */
    enum permit_status (*commit_if_unchanged)(struct store *store, const struct changes *changes,
                                              const struct assumed *assumed, enum mismatch *ret_mismatch);
    /*
     * Ends the open transaction, if any. If that fails, drops the session; so no transaction is open afterwards. Keeps
     * the `message` of the call before it.
     */
    enum permit_status (*rollback)(struct store *store);
};

/* The methods; store->clock. No transaction is open. */
struct store_clock {
    /*
     * Reads the floor of each of these semaphores, at least one: smallest live token, next_permit_id if none; 0 for an
     * unknown semaphore.
     */
    enum permit_status (*floors)(struct store *store, const uint64_t *semaphore_ids, size_t count,
                                 uint64_t *ret_floors);
    /* Reads the lease clock, and finds whether the database is another server or an older copy. */
    enum permit_status (*read_tick)(struct store *store, struct tick *tick);
    /* Writes the row after a tick, unless the row is no longer as it was read: one of several permitd wins. */
    enum permit_status (*write_tick)(struct store *store, const struct lease_row *read, const struct lease_row *ticked,
                                     bool *ret_won);
    /*
     * Raises the epoch. One of several permitd raises it for EPOCH_SERVER and EPOCH_TOKENS, for the others the call
     * changes nothing. A database that no permitd has served yet only gets its identity.
     *
     * Each raise of an operator stops all grants for hold_ms, so the next one is accepted only hold_ms after the last
     * hold has ended. Before that the call returns PERMIT_TOO_MANY. The limit does not apply if the server's identity
     * differs from the one in `cluster`.
     */
    enum permit_status (*advance_epoch)(struct store *store, struct epoch_advance *advance);
};

/* The methods; store->schema, on a STORE_SCHEMA but for `procedures`. On failure `message` has the cause. */
struct store_schema {
    /*
     * Creates the database if it is missing, and applies the migrations that it lacks. Refuses, without any change, a
     * schema that is newer than this binary, and a table that has the name of one of permitd's but other columns.
     * PERMIT_LOCK_TIMEOUT: a statement has waited for a transaction that is open; the next call goes on from there.
     */
    enum permit_status (*apply)(struct store *store, struct buf *message);
    /*
     * Reads the newest complete migration of the database without any change; 0 if there is no schema or no database.
     * Refuses the same as `apply`.
     */
    enum permit_status (*version)(struct store *store, unsigned *ret_version, struct buf *message);
    /* On a STORE_ADMIN: installs the procedures of shops (procedures.h), and says what has become of them. */
    enum permit_status (*procedures)(struct store *store, struct procedures_result *ret_result, struct buf *message);
};

/* The part of a store that all implementations have; it is a member of their struct. */
struct store {
    const struct store_session *session;
    const struct store_batch *batch;
    const struct store_clock *clock;
    const struct store_schema *schema;
    const struct store_queries *queries;
    const struct store_owners *owners;
    const struct store_templates *templates;
    const struct store_retention *retention;
    const struct store_audit *audit;
    const struct store_servers *servers;
    const struct store_sql_accounts *sql_accounts;
    const struct store_feed *feed;
    const struct store_webhooks *webhooks;
    uint64_t sessions;                /* number of sessions opened so far */
    size_t max_packet;                /* of a worker: bytes of the largest packet that the server accepts; set when the
                                         session is opened */
    bool was_stopped;                 /* the last `commit` was refused before its COMMIT */
    const char *message;              /* cause of the last failure; valid until the next call but a rollback */
    char refusal[STORE_MESSAGE_SIZE]; /* result of the last safety check: first unsafe setting and its fix; "": safe */
};

/* Closes the session and frees the store. Accepts NULL. */
static inline void store_free(struct store *store)
{
    if (store)
        store->session->free(store);
}
#endif
