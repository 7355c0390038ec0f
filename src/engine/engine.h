/* SPDX-License-Identifier: MIT */
/*
 * The engine carries operations to the database in batches. Callers give it an op and get it back decided; between the
 * two the op belongs to the engine. Threads: `workers` run batches, one reader runs look-ups. Any thread may submit.
 *
 *     op_init(&op->op, &operation, my_decided); engine_submit(engine, &op->op);
 *
 * `decided` runs on a thread of the engine, exactly once per op, after COMMIT if the outcome asserts a state;
 * everything the outcome points to is valid until it returns. It must not block, and may free the op.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/list.h"
#include "base/map.h"
#include "core/owner.h"
#include "core/plan.h"
#include "engine/stage.h"
#include "store/audit.h"
#include "store/session.h"
#include "store/store.h"

struct engine;
struct gate;
struct maker;
struct waiter;

/* A name, and units and holders behind a refusal: from a cache at most 1 s old. */
struct blocking_holder {
    struct bytes external_id;
    struct bytes owner;
    utc_us since;      /* database's clock */
    utc_us expires_at; /* database's clock; NEVER */
};

struct blocking {
    struct bytes semaphore;
    int64_t capacity;
    int64_t in_use;
    int64_t requested;
    const struct blocking_holder *holders; /* the longest, at most 10 */
    size_t holder_count;
    const struct taken_slot *taken; /* certain slots were asked for: those of them that are held; served time */
    size_t taken_count;
    size_t ahead;                   /* how many wait for it before this one, in this process */
    const struct bytes *ahead_keys; /* external_ids of the first of them, at most 10 */
    size_t ahead_key_count;
};

/* What `decided` is told. */
struct decision {
    const struct outcome *outcome; /* NULL: it never came to a plan; then only status and detail */
    enum permit_status status;
    const char *detail;                  /* a sentence, or NULL */
    const struct served_clock *clock;    /* with outcome: turns stored times into the database's */
    utc_us now;                          /* with outcome: the database's clock */
    const struct bytes *semaphore_names; /* with outcome->request: one per permit */
    const uint64_t *floors;              /* with outcome->request: one per permit */
    const struct blocking *blocking;     /* no_capacity: each semaphore without room */
    size_t blocking_count;
    int64_t retry_after_ms; /* statuses that carry Retry-After; jittered; else 0 */
};

/* What may be pending, each kind by itself. */
enum engine_bound {
    BOUND_ENDS,    /* operations with counts_as_end */
    BOUND_PENDING, /* other operations; calls about owners, likewise */
    BOUND_LOOKS,
    BOUND_NAMED, /* the memory of the slots that acquires name, those that wait included */
};

/* About 1,200 acquires that name 1,000 slots each by short labels, or 120 by long ones. A waiter has its own copy. */
#define ENGINE_MAX_NAMED (32UL * 1024 * 1024)

struct op {
    struct operation *operation; /* the caller's; the engine writes ids of wants, and where it stands */
    void (*decided)(struct op *op, const struct decision *decision);
    mono_us deadline;        /* when the engine stops trying; the caller may answer on its own from then on */
    mono_us wait_until;      /* acquire: if there is no room it waits until then; 0: it does not wait. The deadline is
                                later: when a wait is over, one last batch decides */
    struct stage stage;      /* whether it may still be written; a caller that answers without a decision moves it */
    enum engine_bound bound; /* where engine_submit has said PERMIT_TOO_MANY: the one that is reached */

    /* The engine's own. */
    struct list node;
    uint64_t arrival; /* its place in the queue */
    mono_us arrived_at;
    struct gate **gates; /* of the semaphores it needs, ascending by id; few_gates, or malloc'ed */
    size_t gate_count;
    struct gate *few_gates[2];
    struct map_node by_key; /* of the first undecided op on its external_id; that heads the list of all */
    struct list same_key;   /* in order of arrival */
    bool keyed;             /* it is on such a list */
    bool heads_key;
    bool resolved;
    bool counts_as_end;  /* of something that is held: bounded on its own */
    size_t named_size;   /* of the slots that it names; counted while it is the engine's */
    bool queued;         /* it is in the queue, in nobody's hands */
    bool stands;         /* it is a waiter's own */
    bool waited;         /* it was, or is, somebody's asker */
    bool untried;        /* it joined those who ask, and no batch has decided for them since */
    struct waiter *asks; /* whose answer it waits for; NULL: it goes its own way */
    struct maker *maker; /* it is in the queue until that has made a semaphore for it; NULL: it is not */
    bool asked_maker;    /* for want of that semaphore, and not because it comes later on the key of one that did */
    bool looked_up;      /* step 0 has found its semaphores */
    int64_t held_slots;  /* what its key holds, as far as known: the end of it moves so many slots */
    unsigned put_backs;
};

/* What a call about an owner is told. */
struct owner_decision {
    enum permit_status status;
    const char *detail;                  /* a sentence, or NULL */
    const struct owner_outcome *outcome; /* NULL: it never came to a decision */
    const struct served_clock *clock;    /* with outcome */
    utc_us now;                          /* with outcome: the database's clock */
    int64_t retry_after_ms;              /* statuses that carry Retry-After; else 0 */
};

/*
 * A call about an owner on its way. All that have gathered are written in one transaction; `decided` runs on a thread
 * of the engine, exactly once, after COMMIT. It must not block, and may free the op.
 */
struct owner_op {
    struct owner_call call;
    void (*decided)(struct owner_op *op, const struct owner_decision *decision);
    mono_us deadline;
    struct stage stage; /* as in struct op */

    /* The engine's own. */
    struct list node;
    size_t place; /* in order of arrival, within a transaction */
};

/* What a probe says of an owner. */
enum probe_answer { PROBE_UNKNOWN, PROBE_ALIVE, PROBE_DEAD, PROBE_ANSWER_COUNT };

struct probe_question {
    struct bytes owner;
    enum probe_answer ret_answer;
};

/*
 * Asks whoever knows whether owners live. Blocks until all are answered, or *stopping is true: then some are unknown.
 */
typedef void probe_ask(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping);

struct engine_settings {
    unsigned workers;
    size_t max_pending;      /* acquires, calls of operators, and calls about owners; more are answered too_many */
    size_t max_pending_ends; /* releases, renewals, confirms: "overload must not expire live holders" */
    size_t directory_entries;
    int64_t request_timeout_ms;
    int64_t failover_hold_ms; /* nothing is granted for so long after the epoch rose */
    struct plan_settings plan;
    uint64_t retention_rows; /* the newest requests that are kept until they are due */
    /* Opens a session of a store for a worker; NULL: no memory. */
    struct store *(*open_store)(void *context);
    void *open_context;
    const struct database_address *address; /* for sessions beside the store's */
    probe_ask *ask_probe;                   /* NULL: there is no probe */
    void *probe_context;
    int64_t liveness_interval_ms; /* how often each owner is asked about */
    size_t max_waiters;           /* in all, and those for one semaphore; more are answered too_many */
    size_t max_semaphore_waiters;
    uint64_t max_semaphores;   /* templates make no more once there are so many */
    int64_t wait_poll_ms;      /* how often waited-for semaphores are looked at for what others freed */
    int64_t backfill_bound_ms; /* nobody passes a waiter older than this */
};

void op_init(struct op *op, struct operation *operation, mono_us deadline,
             void (*decided)(struct op *op, const struct decision *decision));

/* Starts its threads; they connect by themselves. False: no memory or no thread (message). */
bool engine_start(const struct engine_settings *settings, struct engine **ret_engine, struct buf *message) MUST_CHECK;
/*
 * Takes the op, or says at once why not (too_many, shutting_down, no_memory, database_unavailable: engine_refusal):
 * then `decided` is not called and the op stays the caller's.
 */
enum permit_status engine_submit(struct engine *engine, struct op *op) MUST_CHECK;

/* ---- waiting ---- */

/*
 * Nobody waits for this op's answer any more (the client has gone). True: it waited for room, or for its first batch;
 * it has left the queue, is the caller's again, and will not be decided. False: it is in a batch, or decided: it comes
 * back as usual, and a grant stands; if that batch finds no room, it does not wait for more.
 */
bool engine_abandon(struct engine *engine, struct op *op);
/* Those who wait are answered shutting_down, and from now on nobody waits: who finds no room is told so at once. */
void engine_end_waits(struct engine *engine);

/* A waiter of this process. Copies, in the arena of whoever asked. Times are by this machine's clock. */
struct waiter_row {
    struct bytes external_id;
    struct bytes owner; /* length 0: none was named */
    struct want *wants;
    size_t want_count;
    utc_us since;
    utc_us deadline;
    uint64_t number;     /* rises in the order of the queue: `after` of the next page */
    size_t place;        /* 1: the first */
    struct bytes behind; /* external_id of the one just before; data NULL: nobody */
};
/*
 * Those who wait for this semaphore, in order, behind number `after`: at most `limit`, and fewer where they name many
 * slots. *ret_more: there are others behind them. False: no memory.
 */
bool engine_waiters(struct engine *engine, struct bytes semaphore, uint64_t after, size_t limit, struct arena *arena,
                    struct waiter_row **ret_rows, size_t *ret_count, bool *ret_more) MUST_CHECK;

/* Where a waiter stands at one of its semaphores. */
struct waiter_place {
    size_t ahead;             /* how many wait for it before this one */
    struct bytes *ahead_keys; /* external_ids of the first of them, at most 10 */
    size_t ahead_key_count;
};
/*
 * Finds a waiter by its key; ret_places has one for each of its wants. PERMIT_UNKNOWN_REQUEST: it does not wait here.
 */
enum permit_status engine_find_waiter(struct engine *engine, struct bytes external_id, struct arena *arena,
                                      struct waiter_row *ret_row, struct waiter_place **ret_places) MUST_CHECK;

struct waiting {
    size_t count;
    int64_t oldest_ms; /* how long the first of them has waited; 0 if nobody does */
};
/* Who waits for a semaphore in this process; for the empty name: all. */
struct waiting engine_waiting(struct engine *engine, struct bytes semaphore);

/* ---- look-ups ---- */

/* Each lane has a reader and a session of its own: what runs in one never stands behind what runs in another. */
enum look_lane {
    LOOK_PROBE,    /* whether the database answers at all: within 2 s, whatever it does */
    LOOK_ROW,      /* a few rows, by their keys */
    LOOK_LIST,     /* pages: bounded in time by the session */
    LOOK_OPERATOR, /* what operators do and watch: small transactions, the doctor, metrics */
    LOOK_LANE_COUNT
};

/* A look-up on the session of a reader; `work` gets a NULL session and the reason if there is none, or it is late. */
struct look {
    void (*work)(struct look *look, struct session *session, enum permit_status status);
    enum look_lane lane;
    bool always;        /* also while the database is refused: it asserts no state of a permit */
    mono_us deadline;   /* nobody waits for it any more: PERMIT_BUSY */
    struct stage stage; /* as in struct op; a `work` that changes something moves it */
    struct list node;
};
/* PERMIT_TOO_MANY: as many as may be wait in its lane. */
enum permit_status engine_look(struct engine *engine, struct look *look) MUST_CHECK;

/* True while workers have a working session, and the database is safe. */
bool engine_database_up(const struct engine *engine);
/*
 * P14: true while the doctor refuses the database; ret_sentence says why and how to mend it ("" otherwise). Until it is
 * mended, which the engine notices within seconds, operations and looks are answered PERMIT_DATABASE_UNAVAILABLE.
 */
bool engine_refusal(struct engine *engine, char ret_sentence[STORE_MESSAGE_SIZE]);

/* Why engine_submit, engine_look or engine_submit_owner has said PERMIT_TOO_MANY. */
void engine_bound_sentence(struct engine *engine, enum engine_bound bound, char ret_sentence[STORE_MESSAGE_SIZE]);

/* As engine_submit, for a call about an owner. */
enum permit_status engine_submit_owner(struct engine *engine, struct owner_op *op) MUST_CHECK;
/* The probe could not say of this owner that it lives. Of this process; a restart forgets it. */
bool engine_owner_in_doubt(struct engine *engine, struct bytes owner);

/*
 * May change at any time: request_timeout_ms, max_pending, max_pending_ends, plan, retention_rows,
 * liveness_interval_ms, max_waiters, max_semaphore_waiters, wait_poll_ms, backfill_bound_ms, max_semaphores.
 */
void engine_reload(struct engine *engine, const struct engine_settings *settings);

enum { DRIFTS_MAX = 100 };
/*
 * What does not match at the moment, as the auditor has seen it, copied to `ret_drifts` as far as there is room.
 * Returns how many there are.
 */
size_t engine_drifts(struct engine *engine, struct audit_drift *ret_drifts, size_t max);

/* No new ops; what runs is finished, what waits is answered shutting_down; returns when all threads have ended. */
void engine_stop(struct engine *engine);
void engine_free(struct engine *engine);

/* Appends this engine's metrics in the Prometheus text format. */
void engine_metrics(struct engine *engine, struct buf *out);
#endif
