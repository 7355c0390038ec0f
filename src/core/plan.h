/* SPDX-License-Identifier: MIT */
/*
 * The decision of a whole batch: a pure function of locked rows, operations in order of arrival, and time, to one
 * outcome per operation and the final images of the rows that change. No clock, no SQL, no threads; memory comes from
 * the caller's arena, so everything in the result is valid until that arena is cleared.
 */
#ifndef CORE_PLAN_H
#define CORE_PLAN_H

#include "core/request.h"
#include "core/served_time.h"

enum operation_kind {
    OP_ACQUIRE,
    OP_RELEASE,
    OP_RENEW,
    OP_CONFIRM,
    OP_EXPIRE,           /* permitd's own: end a request that is due, or whose owner is dead */
    OP_FORCE_RELEASE,    /* an operator's, with a reason; recorded */
    OP_SEMAPHORE_PUT,    /* administrative: alone in its batch */
    OP_SEMAPHORE_LABELS, /* administrative: a page of labels of a semaphore that exists */
    OP_SEMAPHORE_PAUSE,  /* administrative; twice is once */
    OP_SEMAPHORE_RESUME, /* administrative; twice is once */
    OP_SEMAPHORE_RETIRE, /* administrative */
    OP_KIND_COUNT
};

/* "acquire", "release", ... as in metrics and in POST /v1/batch. */
const char *operation_kind_word(enum operation_kind kind);
bool operation_is_administrative(enum operation_kind kind);
/* Release, force-release, expire: what the key holds is given back. */
bool operation_ends_request(enum operation_kind kind);

enum { MATCH_MAX = 16 };

/* What PUT /v1/semaphores/{name} says: a member that was absent keeps its value. */
struct semaphore_change {
    bool has_labels;            /* also the only thing that OP_SEMAPHORE_LABELS says */
    const struct bytes *labels; /* of the slots from labels_from on; data NULL: none. Those behind keep theirs */
    size_t label_count;
    uint32_t labels_from; /* from 1 up */
    bool has_capacity, has_kind, has_default_ttl, has_max_ttl, has_grace, has_max_hold, has_queue, has_note;
    int64_t capacity;
    enum semaphore_kind kind;
    enum semaphore_queue queue;
    int64_t default_ttl_ms;
    int64_t max_ttl_ms; /* -1: none */
    int64_t grace_ms;
    int64_t max_hold_ms;
    struct bytes note;
    bool if_none_match; /* If-None-Match: * : create only */
    bool if_exists;     /* If-Match: * : change only */
    size_t match_count; /* above 0: If-Match: only if config_version is one of these */
    uint64_t config_versions[MATCH_MAX];
};

/* Where an acquire stands when its batch begins. */
enum place {
    PLACE_NEWCOMER, /* behind all waiters */
    PLACE_BEHIND,   /* the same, and a waiter before it is not in the batch: nothing new is granted to it */
    PLACE_WAITER,   /* it was refused before and waits: decided before newcomers, waiters in the order given */
    PLACE_AGED,     /* a waiter older than the bound of backfill: what it needs is kept from those behind it */
};

/* What is asked. Immutable while a batch runs; strings belong to whoever made it. */
struct operation {
    enum operation_kind kind;
    struct bytes external_id; /* what is not administrative */
    struct bytes owner;
    struct bytes principal;
    struct bytes why;                  /* force-release, pause: the reason that was given; PUT: by which template */
    bool of_confirmed;                 /* release: also a confirmed request (a refund) */
    enum end_reason expire_as;         /* expire: END_EXPIRED, if it is due (the row says whether that is stale); or
                                          END_OWNER_DEAD, whatever its deadline */
    struct ttl ttl;                    /* acquire, renew */
    unsigned char digest[DIGEST_SIZE]; /* acquire */
    struct bytes nonce;                /* acquire: kept with the grant, part of no digest; length 0: none */
    struct want *wants;                /* acquire: sorted by name */
    size_t want_count;
    enum place place;       /* acquire; the engine's to say */
    bool waits;             /* acquire: if there is no room it stays in the queue, so that who comes later may
                               have to stay behind it; the engine's to say */
    struct bytes semaphore; /* administrative */
    const struct semaphore_change *change; /* OP_SEMAPHORE_PUT */
};

enum {
    /* "At most 64 semaphores a batch", "at most 500 keys a statement". */
    BATCH_MAX_SEMAPHORES = 64,
    BATCH_MAX_OPERATIONS = 500,
};

/*
 * The free slots of one locked semaphore, ascending, from first_free on: as many as the acquires of the batch ask for
 * in all, those that name certain slots as well (they may take what is lowest); all, if one asks for neighbours.
 */
struct free_slots {
    uint32_t *numbers;
    struct bytes *labels; /* one per number, data NULL: none; NULL: none at all */
    size_t count;
    bool complete; /* false: the read was cut off; there may be more behind the last one */
};

/* A slot, free or not, with the request that holds it. */
struct slot_row {
    uint32_t number;
    struct bytes label;  /* data NULL: none */
    uint64_t permit_id;  /* the token that holds it; 0: free */
    bool retired;        /* above the capacity */
    struct bytes holder; /* held: external_id of its request, when that is due (NEVER: not by itself), its grace */
    utc_us due_at;
    int64_t grace_ms;
    bool without_ttl; /* due_at is when it will be stale, of which its client was not told */
};

/* The rows of a locked semaphore's slots that the batch names: ascending by number, each once. */
struct named_slots {
    struct slot_row *rows;
    size_t count;
};

/* An owner whose heartbeat an acquire with ttl "owner" relies on, read under a lock that keeps it from lapsing. */
struct owner_state {
    struct bytes name;
    bool alive;
};

/* What was read under the locks. */
struct view {
    struct semaphore *semaphores;    /* locked, ascending by id */
    struct free_slots *free_slots;   /* one per semaphore */
    struct named_slots *named_slots; /* one per semaphore: what acquires name; all slots for an operation on labels */
    utc_us *next_due;                /* one per semaphore: no holder that is not among `requests` is due before (served
                                        time); at first the row's next_due_at, more exact once due holders were read */
    size_t semaphore_count;
    struct request *requests; /* those with a key of the batch, and due holders; ascending by external_id, with all
                                 their permits */
    size_t request_count;
    struct owner_state *owners; /* those asked for that exist */
    size_t owner_count;
    struct served_clock clock;
    utc_us now; /* the database's clock, read after the locks */
    uint64_t epoch;
    utc_us grants_from; /* served time: after a failover nothing is granted before */
    bool same_server;   /* the server is the one that `cluster` knows; if not, nothing of this may be used */
};

/* Ids for new rows: [next, end). The caller advances it by what the plan used, also if the transaction fails. */
struct id_range {
    uint64_t next;
    uint64_t end;
};

/* A slot that was asked for by name and is held. */
struct taken_slot {
    uint32_t number;
    struct bytes label; /* length 0: none */
    uint64_t token;
    struct bytes holder; /* external_id */
    utc_us expires_at;   /* served time, as its client was told; NEVER */
};

/* A semaphore that had no room, at the moment of the decision. */
struct shortage {
    uint64_t semaphore_id;
    struct bytes semaphore;
    int64_t capacity;
    int64_t in_use;
    int64_t requested;
    bool behind;                    /* whatever is free: others wait before it */
    const struct taken_slot *taken; /* CHOOSE_NAMED: those of its slots that are held, ascending by number */
    size_t taken_count;
};

/* How one operation ended, before it is known to be durable. */
struct outcome {
    enum permit_status status;
    bool put_back;                     /* not decided: run it again with `needs` locked as well; status means nothing */
    bool created;                      /* acquire: 201; PUT: 201 */
    bool replayed;                     /* acquire: the key had its grant before this operation */
    bool already_released;             /* release, force-release */
    bool may_wait;                     /* acquire, refused: for a reason that passes (no room, paused, a failover) */
    const struct request *request;     /* as this operation left it; NULL if the answer asserts none */
    const struct semaphore *semaphore; /* PUT: as it is now */
    const struct shortage *shortages;  /* no_capacity: in the order of the wants */
    size_t shortage_count;
    const char *detail;    /* a sentence for a person; NULL: the status's title */
    const uint64_t *needs; /* put_back: ids of semaphores to lock, ascending */
    size_t need_count;
};

/* A request row to be written. */
struct request_change {
    struct request *request;      /* final image */
    const struct request *before; /* as it was read; NULL: insert */
    bool insert;                  /* else UPDATE by id */
    bool ends;                    /* goes from ACQUIRED to RELEASED: its permits with it */
};

/* A slot row to be written. */
struct slot_change {
    uint64_t semaphore_id;
    uint32_t number;
    uint64_t permit_id; /* 0: free */
};

/* A label to be written. */
struct label_change {
    uint64_t semaphore_id;
    uint32_t number;
    struct bytes label; /* data NULL: none */
};

struct semaphore_image {
    struct semaphore *semaphore; /* final image; version already raised */
    uint64_t expected_version;   /* the compare-and-set */
    bool changed;
    bool insert;         /* a new one */
    bool settings;       /* write all columns, not only those of the hot path */
    uint32_t slots_from; /* slot rows [slots_from, slots_to] are to exist and be in service; 0: none */
    uint32_t slots_to;
    uint32_t retire_from; /* slot rows from here on are out of service; 0: none */
    bool drop_labels;     /* of all its slots: the semaphore goes out of service */
};

/* A row of `semaphore_event`: what an operator did. */
struct event {
    uint64_t semaphore_id;
    struct bytes who;
    const char *what;
    struct bytes from; /* data NULL: none; as `to` and `why` */
    struct bytes to;
    struct bytes why;
    uint64_t next_permit_id; /* of the semaphore at that moment */
};

/* Final row images, in the order in which they are written. Nothing to write if `empty`. */
struct changes {
    struct semaphore_image *semaphores; /* ascending by id; look at `changed` */
    size_t semaphore_count;
    struct request_change *requests; /* inserts first, ascending by external_id; then updates, ascending by id */
    size_t request_count;
    struct slot_change *slots; /* ascending by semaphore_id, number; each once */
    size_t slot_count;
    const struct label_change
        *labels; /* ascending by number; all of one semaphore. A label may go from one to another */
    size_t label_count;
    const struct event *events; /* in the order in which they happened */
    size_t event_count;
    utc_us wall_now; /* the database's clock, for records */
    bool empty;
};

struct plan_settings {
    int64_t retention_us;   /* an ended request may be deleted after this; 7 days */
    int64_t tombstone_us;   /* a tombstone; 1 hour */
    int64_t default_ttl_ms; /* of a semaphore that is made without one */
};

struct plan {
    struct outcome *outcomes; /* one per operation, in the order given */
    struct changes changes;
    uint64_t ids_used;
    unsigned ended[END_REASON_COUNT]; /* requests that this batch ends, by reason; tombstones as END_NEVER_HELD */
};

/* A locked semaphore that is short of units while some holder may be due. */
struct shortfall {
    size_t semaphore; /* index into the view's */
    int64_t units;    /* that may be missing: as many due holders are enough; 0 if only `named` */
    bool named;       /* also those due that hold a slot of the view's named_slots */
};

/*
 * After the locks, before the plan: the semaphores whose due holders must be read as well (step 1: "only if a wanted
 * semaphore is short and its next_due_at has passed"). ret_shortfalls has room for one per semaphore of the view.
 */
size_t plan_shortfalls(const struct view *view, const struct operation *const *operations, size_t operation_count,
                       struct shortfall *ret_shortfalls);

/*
 * Order of decision: releases, renewals, confirms, expiries, then waiters, then newcomers; per key in order of arrival
 * (an operation is never decided before an earlier one on its key). Releases come before the waiters so that the batch
 * that frees units grants them too.
 *
 * Who may pass: on a semaphore with queue `fifo` nobody gets a unit once somebody who waits (waits) was refused one
 * for want of room; with `backfill` only once a PLACE_AGED was. Whoever is put back, and waits, keeps its semaphores
 * from those behind it in any case. A waiter that is refused because a semaphore is paused or closed (capacity 0) holds
 * nobody up; nor does one that waits for certain slots (want_is_certain of any of its wants): it keeps nobody else from
 * what is free, but stands behind those who do.
 *
 * An acquire that finds no room ends due holders, the longest due first, as many as it needs: of certain slots those
 * who hold them, of neighbours those who hold one of the lowest run that is free or due. If it does not fit all the
 * same nobody is ended. An operation that would touch a request of which some semaphore is not locked is
 * put back. `ids` must hold at least operation_count ids. Only PERMIT_OK and PERMIT_NO_MEMORY come back; on the latter
 * *ret_plan is untouched. The rows of `view` are not modified.
 */
enum permit_status plan_batch(const struct view *view, const struct operation *const *operations,
                              size_t operation_count, struct id_range ids, const struct plan_settings *settings,
                              struct arena *arena, struct plan *ret_plan) MUST_CHECK;
#endif
