/* SPDX-License-Identifier: MIT */
/*
 * The engine carries operations to the database in batches. A caller submits an op and gets it back decided; in between
 * the op belongs to the engine. The engine's tasks (task.h) are `workers` workers, which run batches, one reader for
 * each lane of queries, and those of the settings. Any thread may submit.
 *
 *     op_init(&op->op, &operation, deadline, my_decided); engine_submit(engine, &op->op);
 *
 * `decided` runs on a thread of the engine, exactly once per op, after COMMIT if the outcome asserts a state.
 * Everything that the outcome points to is valid until `decided` returns. `decided` must not block, and may free the
 * op.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/config.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mutex.h"
#include "core/owner.h"
#include "core/plan.h"
#include "engine/stage.h"
#include "engine/turns.h"
#include "store/audit.h"
#include "store/store.h"

struct engine;
struct feed_permit; /* core/feed.h */
struct semaphore_entry;
struct task_kind;
struct template_create;
struct waiter;

/*
 * Names the mutex of an engine in annotations (state.h: engine_lock). Only clang reads it: there is no such variable.
 */
extern struct mutex engine_mutex;

/* The argument of `decided`. */
struct decision {
    const struct outcome *outcome; /* NULL: no plan has decided the op; no other pointer but `detail` is set */
    enum permit_status status;
    const char *detail;                  /* a sentence, or NULL */
    const struct lease_clock *clock;     /* with outcome: judged; converts stored times to the database's clock */
    utc_us now;                          /* with outcome: the database's clock */
    const struct bytes *semaphore_names; /* with outcome->request: one per permit */
    const uint64_t *floors;              /* with outcome->request: one per permit */
    const int64_t *available;            /* with outcome->request: one per permit: free units after the batch */
    const size_t *waiting;  /* no_capacity: for each shortage, how many other requests waited for its semaphore */
    bool has_place;         /* no_capacity: the request has places in the queues */
    int64_t retry_after_ms; /* jittered; 0: the status has no Retry-After */
};

/* The limits on pending work; each kind has its own limit. */
enum engine_bound {
    BOUND_ENDS,    /* operations with op_counts_as_end */
    BOUND_PENDING, /* other operations; the same limit applies separately to calls about owners */
    BOUND_QUERIES, /* queries in one lane */
};

/* Why an acquire may not wait. */
enum wait_refusal {
    WAIT_ALLOWED,
    WAIT_REFUSED_CLOSED, /* engine_end_waits */
    WAIT_REFUSED_MAX,    /* max_waiters */
    WAIT_REFUSED_OWNER,  /* max_owner_waiters */
};

struct op {
    struct operation *operation; /* owned by the caller; the engine sets the ids of its wants and how it waits */
    void (*decided)(struct op *op, const struct decision *decision);
    mono_us deadline;        /* the engine stops trying; from then on the caller may answer without a decision */
    mono_us wait_until;      /* acquire: end of its wait for units; 0: it does not wait. Earlier than the deadline,
                                because a last batch decides after the wait has ended */
    struct stage stage;      /* whether it may still be written; a caller moves it to answer without a decision */
    enum engine_bound bound; /* after PERMIT_TOO_MANY from engine_submit: the limit that is reached */
    enum wait_refusal wait_refusal; /* set by each batch; decided PERMIT_TOO_MANY without a detail: the limit */

    /* Private to the engine. */
    struct list node; /* in a list of the queue, or among the clients of a waiter */
    uint64_t arrival; /* sequence number: its position in the queue */
    mono_us arrived_at;
    struct semaphore_entry **entries; /* cache entries of its semaphores, ascending by id; few_entries, or malloc'ed */
    size_t entry_count;
    struct semaphore_entry *few_entries[2];
    struct map_node by_key;                            /* in queue->keys: the first undecided op of its external_id */
    struct list same_key;                              /* undecided ops of one external_id, in order of arrival */
    enum { KEY_NONE, KEY_FIRST, KEY_LATER } key_order; /* it is linked in same_key; the first one also in by_key */
    enum {
        OP_UNRESOLVED,
        OP_RESOLVED,          /* `entries` is complete, from the caches */
        OP_RESOLVED_BY_QUERY, /* the same of an acquire, by a resolve query */
    } resolved;
    bool queued;                      /* it is in a list of the queue, not with a worker */
    bool waited;                      /* it is or was a client of a waiter */
    struct waiter *waiter;            /* the waiter of which it is a client; NULL: none */
    struct template_create *creation; /* the creation from template that it waits for; NULL: none */
    bool needs_creation;              /* it needs that semaphore itself; false: it follows another op of its key */
    int64_t held_slots;               /* slots held under its key, as far as known: ending the request moves them */
    unsigned put_backs;               /* how often it was put back */
    bool sent_now;                    /* the last try has moved its stage to SENT */
    mono_us row_awaited_at;           /* since when another session has locked the row of its key; 0: it has not */
    mono_us row_retry_at;             /* in queue->awaiting_row: when it is tried again */
};

/* Returns true for release, force-release, renewal, confirm and expiry: BOUND_ENDS applies. */
static inline bool op_counts_as_end(const struct op *op)
{
    return !operation_asks(op->operation->kind) && !operation_is_administrative(op->operation->kind);
}

/* Returns true for the op of a waiter (waiters.h). */
static inline bool op_is_of_waiter(const struct op *op)
{
    return op->operation->kind == OP_LOOK || op->operation->kind == OP_LEAVE;
}

/* The argument of `decided` of a call about an owner. */
struct owner_decision {
    enum permit_status status;
    const char *detail;                  /* a sentence, or NULL */
    const struct owner_outcome *outcome; /* NULL: the call was not decided; only status is set */
    const struct lease_clock *clock;     /* with outcome: judged */
    utc_us now;                          /* with outcome: the database's clock */
    int64_t retry_after_ms;              /* jittered; 0: the status has no Retry-After */
};

/*
 * A call about an owner. One transaction writes all calls that have gathered. `decided` runs on a thread of the engine,
 * exactly once, after COMMIT if the call was decided. It must not block, and may free the op.
 */
struct owner_op {
    struct owner_call call;
    void (*decided)(struct owner_op *op, const struct owner_decision *decision);
    mono_us deadline;
    struct stage stage; /* as in struct op */

    /* Private to the engine. */
    struct list node;
    size_t place; /* order of arrival within a transaction */
};

/* The answer of the liveness probe for one owner. */
enum probe_answer { PROBE_UNKNOWN, PROBE_ALIVE, PROBE_DEAD, PROBE_ANSWER_COUNT };

struct probe_question {
    struct bytes owner;
    enum probe_answer ret_answer;
};

/*
 * Queries the liveness probe about these owners. Blocks until all are answered, or until *stopping is true; then some
 * answers are PROBE_UNKNOWN.
 */
typedef void probe_ask(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping);

/* Writes an event with these permits of it, as GET /v1/feed shows it to an operator, for a stored URL. */
typedef void webhook_write(struct buf *out, struct bytes stored_url, const struct feed_row *event, uint64_t epoch,
                           const struct feed_permit *permits, size_t count);

struct engine_settings {
    size_t workers;
    size_t max_pending;           /* limit of BOUND_PENDING; more are answered too_many */
    int64_t failover_hold_ms;     /* no grants for this time after the epoch has risen */
    struct plan_settings plan;    /* engine_plan_settings and the worker set server_id, slots and max_packet */
    uint64_t retention_rows;      /* requests kept; older ended ones are deleted before their retention has passed */
    int64_t feed_retention_ms;    /* how long events of the feed are kept */
    uint64_t feed_rows;           /* and how many; older ones are deleted before that */
    int64_t liveness_interval_ms; /* time between two probes of one owner */
    size_t max_waiters;           /* with clients at this server; more are answered too_many */
    size_t max_owner_waiters;     /* the same of one owner, or principal without owners; 0: no limit */
    uint64_t max_semaphores;      /* templates create no more above this approximate number */
    int64_t wait_poll_ms;         /* time between two polls of this server's mail */
    bool short_path;              /* batches of cached rows go in one packet */

    /* Not in engine_section. */
    size_t max_pending_ends; /* limit of BOUND_ENDS; separate, because overload must not expire live holders */
    size_t row_bytes;        /* memory for copies of the rows of requests */
    int64_t request_timeout_ms;
    int64_t shared_pause_ms; /* a semaphore that other processes have changed twice within this time goes the long
                                 way for as long */
    /* Opens a store. NULL: out of memory. The thread that opens it uses and frees it. */
    struct store *(*open_store)(void *context, enum store_use use);
    void *open_context;
    probe_ask *ask_probe; /* NULL: no liveness probe */
    void *probe_context;
    webhook_write *write_webhook;  /* NULL: no webhooks */
    const char *address;           /* of this permitd, for lists; must outlive the engine */
    const char *version;           /* the same */
    const struct task_kind *tasks; /* the tasks beside workers and readers (tasks/tasks.h) */
    size_t task_count;
};
extern const struct config_section engine_section; /* settings.c */

void op_init(struct op *op, struct operation *operation, mono_us deadline,
             void (*decided)(struct op *op, const struct decision *decision));

/* Creates an engine and starts its tasks, which connect by themselves. False: no memory or no thread (message). */
bool engine_start(const struct engine_settings *settings, struct engine **ret_engine, struct buf *message) MUST_CHECK;
/*
 * Takes the op. Any status but PERMIT_OK (too_many, shutting_down, or database_unavailable as in engine_refusal)
 * refuses it: `decided` is not called, and the op stays with the caller.
 */
enum permit_status engine_submit(struct engine *engine, struct op *op) MUST_CHECK;

/* ---- waiting ---- */

/*
 * Withdraws an op after its client has disconnected. True: the op was parked or queued; it is removed, belongs to the
 * caller again, and is not decided. False: the op is in a batch, may have a place in a queue, or is decided; `decided`
 * is called as usual, and a grant stays valid. If that batch refuses it for lack of capacity, it is not parked.
 */
bool engine_abandon(struct engine *engine, struct op *op);
/*
 * Begins to end all waits: each gives up its place by a write, and is then answered shutting_down. From then on an
 * acquire that would have to wait is answered shutting_down.
 */
void engine_end_waits(struct engine *engine);
/* Returns true if no request waits at this server any more. */
bool engine_waits_ended(struct engine *engine);

struct waiting {
    size_t count;
    int64_t oldest_ms; /* how long the first has waited here; 0: none waits */
};
/* Counts the requests whose clients wait at this server. */
struct waiting engine_waiting(struct engine *engine);

/* ---- queries ---- */

/* Each lane has its own reader, so that a query never waits behind one of another lane. */
enum query_lane {
    QUERY_PROBE,    /* checks whether the database answers; returns within 2 s in any case */
    QUERY_ROW,      /* reads a few rows by key */
    QUERY_LIST,     /* reads pages; the session limits the time */
    QUERY_OPERATOR, /* operator calls: small transactions, doctor, metrics */
    QUERY_LANE_COUNT
};

/*
 * A query on the store of a reader. `work` gets the store, and PERMIT_OK. If the store cannot be used, or the query is
 * late, `work` gets NULL and the reason.
 */
struct query {
    void (*work)(struct query *query, struct store *store, enum permit_status status);
    enum query_lane lane;
    bool always;        /* runs also while the database is refused, because it asserts no state of a permit */
    mono_us deadline;   /* after this, `work` gets PERMIT_BUSY */
    struct stage stage; /* as in struct op; a `work` that writes moves it */
    struct turn turn;   /* for the principal of its client; the rest is private to the engine */
};
/* Queues a query in its lane, which serves principals by turns. PERMIT_TOO_MANY: the lane is full. */
enum permit_status engine_query(struct engine *engine, struct query *query) MUST_CHECK;

/*
 * Judges a clock that was read: which deadlines have passed by the clock of this permitd, and from when new ones count.
 */
void engine_judge(struct engine *engine, struct query_time *time);
/* Returns the lease time since which a waiter must have waited to be protected, at the time of this read. */
utc_us engine_protected_since(struct engine *engine, const struct query_time *time);
/*
 * The id of this permitd in `server` (store/servers.h). 0: it has none, because it has not joined yet, was declared
 * dead or has left.
 */
uint64_t engine_server_id(const struct engine *engine);
/* Returns true while the database answers and is safe. */
bool engine_database_up(const struct engine *engine);
/*
 * P14: returns true while the doctor refuses the database; ret_sentence has the reason and the remedy ("" otherwise).
 * Operations and queries are answered PERMIT_DATABASE_UNAVAILABLE until the safety check, which runs every few seconds,
 * finds the database safe.
 */
bool engine_refusal(struct engine *engine, char ret_sentence[STORE_MESSAGE_SIZE]);

/* Returns the limit behind a PERMIT_TOO_MANY of engine_submit, engine_query or engine_submit_owner. */
size_t engine_bound_limit(struct engine *engine, enum engine_bound bound);

/* The same as engine_submit for a call about an owner. */
enum permit_status engine_submit_owner(struct engine *engine, struct owner_op *op) MUST_CHECK;
/* Returns true if the probe of this process could not report the owner alive. A restart clears this. */
bool engine_owner_in_doubt(struct engine *engine, struct bytes owner);

/*
 * Applies the settings that may change at any time: those of engine_section that are reloadable, max_pending_ends,
 * request_timeout_ms. Ignores the others.
 */
void engine_reload(struct engine *engine, const struct engine_settings *settings);
/* Returns the settings as they are now. */
struct engine_settings engine_settings_now(struct engine *engine);

enum { DRIFTS_MAX = 100 };
/*
 * Copies up to `max` drifts that the audit has found and that are not resolved to `ret_drifts`. Returns the number of
 * all such drifts.
 */
size_t engine_drifts(struct engine *engine, struct audit_drift *ret_drifts, size_t max);

/*
 * Refuses new ops, lets running transactions finish, answers everything else shutting_down, and returns when all tasks
 * have ended. Accepts NULL.
 */
void engine_stop(struct engine *engine);
/* Call it after engine_stop. Accepts NULL. */
void engine_free(struct engine *engine);

/* Appends the metrics of this engine in the Prometheus text format. */
void engine_metrics(struct engine *engine, struct buf *out);
#endif
