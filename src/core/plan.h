/* SPDX-License-Identifier: MIT */
/*
 * Decides a whole batch: a pure function of rows, operations in order of arrival, and time. The result has one
 * outcome per operation and the final images of the rows that change. No clock, no SQL, no threads. Memory comes from
 * the caller's arena; the result is valid until that arena is cleared.
 */
#ifndef CORE_PLAN_H
#define CORE_PLAN_H

#include "core/best.h"
#include "core/feed.h"
#include "core/lease_clock.h"
#include "core/request.h"
#include "core/scope.h"

enum operation_kind {
    OP_ACQUIRE,
    OP_RELEASE,
    OP_RENEW,
    OP_CONFIRM,
    OP_EXCHANGE,      /* gives back `given` of a held request and takes `wants`, all or nothing */
    OP_EXPIRE,        /* internal: end a request that is due, or whose owner is dead */
    OP_SETTLE,        /* internal: settle the errand of a request */
    OP_LOOK,          /* internal, of a key with subscribers at this permitd (waitlist.h): decide its row, or claim its
                            grant; if the row is gone, enter it again in its place */
    OP_LEAVE,         /* internal: the key has no subscriber any more, so its place is given up */
    OP_FORCE_RELEASE, /* by an operator, with a reason; recorded */
    OP_SEMAPHORE_PUT, /* administrative: alone in its batch */
    OP_SEMAPHORE_LABELS, /* administrative: a page of labels, or of seats, of an existing semaphore */
    OP_SEMAPHORE_PAUSE,  /* administrative; idempotent */
    OP_SEMAPHORE_RESUME, /* administrative; idempotent */
    OP_SEMAPHORE_RETIRE, /* administrative */
    OP_KIND_COUNT
};

/* Returns "acquire", "release", ... as in metrics and in POST /v1/batch. */
const char *operation_kind_word(enum operation_kind kind);
bool operation_is_administrative(enum operation_kind kind);
/* Returns true for release, force-release, expire and exchange: they may free what the request of the key holds. */
bool operation_frees(enum operation_kind kind);
/* Returns true for acquire, and for the operations on behalf of subscribers, which are acquires that wait. */
static inline bool operation_asks(enum operation_kind kind)
{
    return kind == OP_ACQUIRE || kind == OP_LOOK || kind == OP_LEAVE;
}

/* The wider locks show waiters of other queues, which may keep units in turn. */
enum { WIDENED_MAX = 2 };

/* An operation to decide. Immutable while a batch runs; strings belong to its creator. */
struct operation {
    enum operation_kind kind;
    struct bytes external_id; /* the key; unused if administrative */
    /*
     * confirm: the keys that are confirmed together, all or none; no duplicates, and the first one is external_id. NULL:
     * that one alone.
     */
    const struct bytes *keys;
    size_t key_count; /* 1 to CONFIRM_MAX_KEYS */
    struct bytes owner;
    struct bytes principal;
    /*
     * The semaphores that its client may use; NULL: all. release, renew and confirm find no request that holds or waits
     * for another one (PERMIT_UNKNOWN_REQUEST); force-release refuses one that holds or wants others as well
     * (PERMIT_FORBIDDEN); an acquire is not told what such a request is. The wants of an acquire are in scope.
     */
    const struct scope *scope;
    /*
     * renew, confirm, force-release: a request that ended without a permit is not found. It is of another namespace than
     * its client's, and no semaphore tells whether it is in scope.
     */
    bool needs_permits;
    struct bytes why;                  /* force-release, pause, retire: the given reason; PUT: the template that
                                          creates the semaphore */
    bool allow_confirmed;              /* release: also release a confirmed request (a refund) */
    enum end_reason expire_as;         /* expire: END_EXPIRED: end it if it is due (the row tells expired from
                                          stale); END_OWNER_DEAD: end it whatever its deadline; END_NEVER_HELD:
                                          as END_EXPIRED, and remove it if it waits at a dead server */
    struct ttl ttl;                    /* acquire, renew */
    unsigned char digest[DIGEST_SIZE]; /* acquire */
    struct bytes nonce;                /* acquire: stored with the grant, not part of the digest; length 0: none.
                                          exchange: stored with the change, which is then not made twice */
    const struct want *given;          /* exchange: what it gives back, at most one of each semaphore: CHOOSE_NAMED, or
                                          CHOOSE_LOWEST for the slots with the highest numbers */
    size_t given_count;
    uint32_t changes;      /* exchange: the request has this number of changes before it */
    struct bytes metadata; /* acquire, renew, confirm: a JSON object, not part of the digest; data NULL: none,
                                          and the request keeps its own */
    struct want *wants;    /* acquire, look, leave, exchange: sorted by name */
    size_t want_count;
    int priority; /* acquire, look */
    int64_t
        wait_us; /* acquire, look: how long it still waits; 0: not. Set by the engine, as is all down to `checked` */
    bool may_have_place; /* an earlier try may have entered it, and a look is for a place: if it does not wait any more,
                            the place is given up */
    utc_us place, since; /* look: the place of its row, and since when it waits; for the case that the row is gone */
    uint64_t mailed;     /* id of the request in the mail that led to this operation, deleted with it; 0: none */
    unsigned widened;    /* how often it was put back, because it lacked only kept units: at most WIDENED_MAX times */
    size_t checked;      /* confirm of keys with more semaphores than a batch can lock: so many of its first keys were
                            found to be held, before it was put back */
    struct bytes semaphore;                /* administrative */
    const struct semaphore_change *change; /* OP_SEMAPHORE_PUT */
};

/* Returns true if it wants units of semaphores that it knows by their names: an acquire, or an exchange that takes some. */
static inline bool operation_names_semaphores(const struct operation *operation)
{
    return operation->kind == OP_ACQUIRE || (operation->kind == OP_EXCHANGE && operation->want_count > 0);
}

static inline size_t operation_key_count(const struct operation *operation)
{
    return operation->keys ? operation->key_count : 1;
}
static inline struct bytes operation_key(const struct operation *operation, size_t index)
{
    return operation->keys ? operation->keys[index] : operation->external_id;
}

/* Returns true if the wait of the key ends with this decision: its place is kept without a subscriber (server_id 0). */
static inline bool operation_ends_wait(const struct operation *operation)
{
    return operation->wait_us == 0 && operation->may_have_place;
}

enum {
    /* Limits of one batch. */
    BATCH_MAX_SEMAPHORES = 64,
    BATCH_MAX_OPERATIONS = 500, /* and as many keys */
    CONFIRM_MAX_KEYS = 64,
};

/*
 * The free slots of one locked semaphore, ascending, from first_free on. Their number is at least the total that the
 * acquires of the batch ask for, including acquires for specific slots (they may take the lowest ones); all free slots
 * if one acquire asks for adjacent slots, or for best seats.
 */
struct free_slots {
    uint32_t *numbers;
    struct bytes *labels; /* one per number, data NULL: no label; NULL: no labels at all */
    size_t count;
    bool complete;      /* false: the read was limited; there may be more after the last one */
    bool labels_unread; /* some may have labels, which were not read: the seat map has them */
};

/* A slot row, free or held, with the request that holds it. */
struct slot_row {
    uint32_t number;
    struct bytes label;  /* data NULL: none */
    uint64_t token;      /* token of the permit that holds it; 0: free */
    bool retired;        /* above the capacity */
    struct bytes holder; /* held: external_id of its request, and that request's due_at (NEVER: none) and grace */
    utc_us due_at;
    int64_t grace_ms;
    bool without_ttl; /* no ttl: due_at is when the request becomes stale, a deadline not shown to the client */
    bool confirmed;   /* only a refund or an operator frees it */
    /* An unclaimed grant (its request has a server_id) has grace_ms 0 and a deadline that is shown. */
};

/* Rows of the slots of a locked semaphore that the batch names; ascending by number, no duplicates. */
struct named_slots {
    struct slot_row *rows;
    size_t count;
    bool has_holders; /* also the slots of queue_read.with_holders */
};

/* The owner of an acquire with ttl "owner", read under a lock that prevents its lapse. */
struct owner_state {
    struct bytes name;
    bool alive;
};

/*
 * The part of a locked semaphore's queue that was read. Its waiters are among the requests of the view: the first
 * QUEUE_READ_MAX or fewer that want no more than may be free, or that are protected (under `fifo`: simply the first
 * ones); or the first QUEUE_PROTECTED_MAX protected ones.
 */
enum { QUEUE_READ_MAX = 64, QUEUE_PROTECTED_MAX = 1024 };
struct queue_view {
    utc_us beyond_place; /* with `beyond`: the place where the read ended, because more may follow */
    uint64_t beyond;     /* id of a request there or behind it; 0: the part is complete */
    size_t limit;        /* of the read; 0: the queue was not read */
};

/*
 * A semaphore that the batch does not lock and a waiter of the view wants, read plainly: its row tells whether the
 * waiter may fit. The requests of the view have the protected ones of its queue, under `fifo` the first ones.
 */
struct glimpse {
    struct semaphore semaphore;
    const struct watcher *watchers; /* of the waiters of the view */
    size_t watcher_count;
};
/* A waiter that watches a held slot: it cannot be granted. */
struct watcher {
    uint64_t request_id;
    bool confirmed; /* the slot is held for ever */
};
enum { GLIMPSES_MAX = 128 };

/* A key of the view that waits, and its clients at this permitd. */
struct subscriber {
    struct bytes external_id;
    struct bytes nonce; /* subscribed: of its first client */
    bool subscribed;    /* a client waits for it here */
    bool busy;          /* an operation asks for it in another batch, or will: this batch does not decide it */
};

/* The rows of a batch: read under their locks, or copies, whose versions are proven with the write. */
struct view {
    const struct seat_map **seat_maps; /* one per semaphore; NULL: neither best seats nor its labels are wanted. NULL:
                                          none is wanted */
    struct semaphore *semaphores;      /* locked, ascending by id */
    struct free_slots *free_slots;     /* one per semaphore */
    struct named_slots *named_slots;   /* one per semaphore: slots that acquires or waiters name, and the window of
                                        queue_read.with_holders; all slots for an operation on labels */
    const struct seats *seats;         /* for an operation on seats: of all slots of its semaphore; NULL: not read */
    utc_us *next_due;                  /* one per semaphore: lower bound of the deadlines of holders not in `requests`
                                        (lease clock); initially the row's next_due_at, more exact after due holders
                                        were read */
    size_t semaphore_count;
    struct request *requests; /* requests with a key of the batch, due holders, and waiters; ascending by external_id,
                                 with all their permits or wants */
    size_t request_count;
    const struct subscriber *subscribers; /* ascending by external_id */
    size_t subscriber_count;
    struct owner_state *owners; /* owners named by the batch that exist */
    size_t owner_count;
    /*
     * The two times of a plan. lease_time of the clock gives the times that rows store. clock.due says which deadlines
     * have passed, and clock.from from when new ones count: the caller sets both (own_clock_judge).
     */
    struct lease_clock clock;
    utc_us now;                /* the database's clock, read after the locks; of a view from caches: estimated */
    struct queue_view *queues; /* one per semaphore; NULL: no queue was read */
    struct glimpse *glimpses;  /* ascending by id of the semaphore */
    size_t glimpse_count;
    bool reads_end;          /* the plan must do with these rows: a semaphore of which nothing was read stays unknown */
    const uint64_t *servers; /* ids of the servers that are alive, ascending; valid if has_servers */
    size_t server_count;
    bool has_servers;   /* parts of queues were read */
    utc_us grants_from; /* lease clock; no grants before this time, after a failover */
    bool feed_full;     /* the feed has no room: the batch writes no events */
    bool same_server;   /* the database server is the one recorded in `cluster`; if false, the view must not be used */
};

/* Ids for new rows: [next, end). The caller advances it by the ids the plan used, even if the transaction fails. */
struct id_range {
    uint64_t next;
    uint64_t end;
};

/* A slot named by an acquire that is held. */
struct taken_slot {
    uint32_t number;
    struct bytes label; /* length 0: none */
    uint64_t token;
    struct bytes holder; /* external_id */
    utc_us expires_at;   /* deadline shown to its client (lease clock); NEVER: none */
};

/* A semaphore without enough free units, at the time of the decision. */
struct shortage {
    uint64_t semaphore_id;
    struct bytes semaphore;
    int64_t capacity;
    int64_t in_use;
    int64_t requested;
    bool behind;                    /* earlier waiters come first, whatever is free */
    const struct taken_slot *taken; /* CHOOSE_NAMED: its named slots that are held, ascending by number */
    size_t taken_count;
    bool is_best;              /* CHOOSE_BEST: the next one is set */
    uint32_t largest_together; /* seats of one group that would be found now, otherwise as wished */
};

/* The result of one operation, before it is known to be durable. */
struct outcome {
    enum permit_status status;
    bool put_back;                     /* undecided: requeue with `needs` locked; status is unset */
    bool widened;                      /* put_back: it lacks only units that are kept for others */
    bool created;                      /* acquire: 201; PUT: 201 */
    bool replayed;                     /* acquire: the key was already granted */
    bool already_released;             /* release, force-release */
    bool may_wait;                     /* acquire, refused: the refusal is temporary (no capacity, paused, a
                                          failover) */
    bool waits;                        /* acquire, look: refused, and after COMMIT `request` waits, with a place and
                                          this server's id, unless a later operation of the batch
                                          ends it; its client is not answered. It may be put back, too */
    const struct request *request;     /* the row after this operation; NULL: the answer is about no row */
    const struct semaphore *semaphore; /* PUT and other administrative operations: the semaphore after it */
    const struct shortage *shortages;  /* no_capacity: in the order of the wants */
    size_t shortage_count;
    struct bytes failed;        /* confirm, refused: the key that the refusal is about; data NULL: all of them */
    const utc_us *confirmed_at; /* confirm with `keys`, done: one per key, lease clock */
    const char *detail;         /* free text for the answer; NULL: the status's title */
    int64_t max_ttl_ms;    /* refused: the longest ttl that all its semaphores accept, and its own is longer; 0: the
                              ttl is not too long */
    int64_t max_hold_ms;   /* `request` is held and has no ttl: it becomes stale so long after its last renewal; 0: it
                              has another deadline, or none */
    const uint64_t *needs; /* put_back: ids of all semaphores to lock, ascending */
    size_t need_count;
    size_t checked; /* put_back: see `checked` of the operation */
};

/* A request row to be written. */
struct request_change {
    struct request *request;      /* final image */
    const struct request *before; /* the row as read; NULL: insert */
    bool insert;                  /* INSERT; else UPDATE by id */
    bool ends;                    /* changes from ACQUIRED to RELEASED, with its permits */
    bool grants;                  /* changes from WAITING to ACQUIRED: its permits are inserted */
    bool exchanges;               /* held before and after, with other permits */
    bool remove;                  /* DELETE: it waited, and no client asks for it */
};

/*
 * Returns true if this permit of the request after the change is inserted, and true if this one before it is deleted: a
 * permit that an exchange changes is both.
 */
bool change_inserts(const struct request_change *change, const struct permit *permit);
bool change_deletes(const struct request_change *change, const struct permit *permit);

/* A row of `past_permit` to be inserted: a permit as it was before an exchange of its request. */
struct past_permit {
    struct permit permit;
    uint64_t request_id;
    uint32_t changes;           /* of the request, with this one */
    utc_us ended_at;            /* lease clock */
    enum end_reason end_reason; /* END_REPLACED: by one with another token; END_RELEASED: some or all of it */
};

/* A row of `waiter` to be inserted or deleted. */
struct place_change {
    uint64_t semaphore_id;
    utc_us place;
    uint64_t request_id;
    int64_t count; /* units that it wants */
    bool remove;
    uint32_t watch; /* a slot that it cannot do without, and that is held after this batch; 0: none */
    uint64_t needs; /* wants_needs of its request */
};

/* A row of `mail`: the permitd has to look at this request. Another's mail is inserted, one's own is deleted. */
struct mail {
    uint64_t server_id;
    uint64_t request_id;
    bool remove; /* DELETE; else INSERT, unless it is there */
};

/*
 * A slot row to be written. `replaced` must be there before: the token of a permit that ends in this batch, or 0 of a
 * free slot.
 */
struct slot_change {
    uint64_t semaphore_id;
    uint32_t number;
    uint64_t token; /* 0: free */
    uint64_t replaced;
};

/* A label to be written. */
struct label_change {
    uint64_t semaphore_id;
    uint32_t number;
    struct bytes label; /* data NULL: none */
};

/* The description of a slot to be written, without its label. */
struct seat_change {
    uint64_t semaphore_id;
    struct seat seat;
};

struct semaphore_image {
    struct semaphore *semaphore; /* final image; version already incremented */
    uint64_t expected_version;   /* compare-and-set: the version as read */
    bool changed;
    bool insert;         /* new semaphore */
    bool settings;       /* write all columns, not only those of the hot path */
    uint32_t slots_from; /* slot rows [slots_from, slots_to] must exist and be in service; 0: none */
    uint32_t slots_to;
    uint32_t retire_from; /* slot rows from this number on go out of service; 0: none */
    bool drop_labels;     /* remove labels and seats of all its slots: the semaphore is retired */
};

/* A row of `semaphore_event`: an operator's change. */
struct event {
    uint64_t semaphore_id;
    struct bytes who;
    const char *what;
    struct bytes from; /* data NULL: none; same for `to` and `why` */
    struct bytes to;
    struct bytes why;
    uint64_t next_token; /* value in the semaphore's row at that time */
};

/* Final row images, in the order in which they are written. */
struct changes {
    struct semaphore_image *semaphores; /* ascending by id; only those with `changed` are written */
    size_t semaphore_count;
    struct request_change *requests; /* inserts first, ascending by external_id; then updates, ascending by id */
    size_t request_count;
    const struct past_permit *past; /* in order of occurrence */
    size_t past_count;
    struct slot_change *slots; /* ascending by semaphore_id, number; each once, unless the plan sells one twice */
    size_t slot_count;
    /* Ascending by number; all of one semaphore. A label may move from one slot to another. */
    const struct label_change *labels;
    size_t label_count;
    const struct seat_change *seats; /* ascending by number; all of one semaphore */
    size_t seat_count;
    const struct event *events; /* in order of occurrence */
    size_t event_count;
    const struct place_change *places; /* deletions first; each part ascending by semaphore_id, place, request_id */
    size_t place_count;
    const struct mail *mail; /* deletions first; each part ascending by server_id, request_id, each once */
    size_t mail_count;
    const struct feed_event *feed; /* in order of occurrence; written after all else */
    size_t feed_count;
    bool feed_omitted; /* there would be some, if the feed had room: the COMMIT proves that it has none */
    utc_us wall_now;   /* the database's clock, for events */
    bool empty;
};

/*
 * Returns true if the slot is free after the batch and waiters may watch it: their rows watch no slot then. So a waiter
 * that a client asks for never watches a free slot.
 */
bool changes_clear_watch(const struct changes *changes, const struct slot_change *slot);
/* Returns the number of slot rows that the changes create; rows that exist already may be among them. */
int64_t changes_new_slots(const struct changes *changes);

/*
 * Upper bounds of the bytes that the store writes for grants and ends, each beside those below it, and without names
 * and labels: of these each byte takes two, and that of an owner four more with each permit.
 */
enum {
    PACKET_BATCH = 4096,
    PACKET_SEMAPHORE = 512, /* that is locked */
    PACKET_GRANT = 1024,
    PACKET_PERMIT = 320, /* that is granted or ends */
    PACKET_SLOT = 80,    /* of it */
    PACKET_FEED = 2560,  /* of an event of the feed and a permit in it, with all names */
};

/* Returns the bytes of the end of this request. */
size_t packet_of_end(const struct request *request);

struct plan_settings {
    int64_t retention_us;      /* lifetime of an ended request before it may be deleted; 7 days */
    int64_t tombstone_us;      /* same for a tombstone; 1 hour */
    int64_t default_ttl_ms;    /* default_ttl of a semaphore created without one */
    int64_t backfill_bound_us; /* a waiter that has waited longer blocks later ones */
    /* Places in the queue of one semaphore that clients ask for; more: PERMIT_TOO_MANY. */
    int64_t max_semaphore_waiters;
    int64_t max_slots;  /* slots of all semaphores; more: PERMIT_TOO_MANY. 0: unlimited */
    int64_t slots;      /* approximate number of slots of all semaphores before the batch */
    size_t max_packet;  /* bytes that a transaction may write; a grant that alone needs more: PERMIT_TOO_LARGE. 0:
                           unlimited */
    uint64_t server_id; /* of this permitd; 0: it has none, and no acquire can wait */
};

/*
 * A grant to a key that waited at this server. Its subscribers are told after COMMIT, whichever operation has led to
 * it.
 */
struct notice {
    struct bytes external_id;
    struct outcome outcome; /* created, with the request */
    bool unasked;           /* no operation of the batch asks for it: the grant is for the subscribers alone */
};

struct plan {
    struct outcome *outcomes; /* one per operation, in the order given */
    struct changes changes;
    struct notice *notices; /* in the order of the grants */
    size_t notice_count;
    const uint64_t *calls; /* ids of requests that wait at this permitd, and that it has to look at: mail to itself */
    size_t call_count;
    /*
     * Due holders whose units waiters need, or acquires that were put back, and that hold semaphores which are not
     * locked; each once. An expire operation for each, before these acquires run again, ends it with its locks.
     */
    const struct request **overdue;
    size_t overdue_count;
    /* Reads for a second plan of the batch. If there is any (plan_reads_more), the rest is not valid. */
    uint64_t read_more; /* a bit per semaphore of the view: units stay free although requests wait beyond the part of
                           its queue that was read; or a queue that was not read has something that decides about a
                           waiter of another one */
    uint64_t read_held; /* the same: slots with their holders, for the choice of a run that a waiter reserves */
    const uint64_t *unknown; /* ids of semaphores that waiters of the view want, ascending: view.glimpses */
    size_t unknown_count;
    const uint64_t *hopeless; /* wants_needs of waiters that can neither be granted nor reserve: not read again */
    size_t hopeless_count;
    size_t hopeless_protected; /* so many of them, the first ones, also hold for protected waiters */
    uint64_t ids_used;
    size_t packet_size;               /* upper bound of the bytes that the store writes for grants and ends */
    unsigned ended[END_REASON_COUNT]; /* number of requests this batch ends, by reason; tombstones count as
                                         END_NEVER_HELD */
};

/* A locked semaphore without enough free units that may have due holders. */
struct shortfall {
    size_t semaphore; /* index into the view's semaphores */
    int64_t units;    /* units that may be missing: reading that many due holders is enough; 0 if only `named` */
    int64_t more;     /* units to read beyond these, because another session has locked due holders */
    bool named;       /* also read due holders of slots in the view's named_slots */
};

/*
 * Finds the semaphores whose due holders must be read too, after the locks and before the plan: a wanted semaphore is
 * short and its next_due_at has passed. ret_shortfalls has space for one per semaphore of the view. Returns their
 * number.
 */
size_t plan_shortfalls(const struct view *view, const struct operation *const *operations, size_t operation_count,
                       struct shortfall *ret_shortfalls);

/*
 * Finds the requests of the view that this batch has not locked, and may write: those in this state, due or waiting,
 * whose semaphores are all locked (batch->lock_requests). ret_ids, ascending, has space for all requests of the view.
 * Returns their number.
 */
size_t plan_rows_to_lock(const struct view *view, enum request_state state, uint64_t *ret_ids);
/*
 * Sets `more` of the shortfalls for which the due holders that were read do not suffice, because another session has
 * locked some of them, and others may be due. `round` counts the calls from 0 on. False: nothing more is to be read.
 */
bool plan_read_past_locked(const struct view *view, struct shortfall *shortfalls, size_t count, unsigned round);

/* A part of the queue of a locked semaphore to read. */
struct queue_read {
    size_t semaphore; /* index into the view's semaphores */
    int64_t free; /* units that may be free in this batch: waiters that want more cannot be granted, but under `fifo`
                         they are read too */
    bool fifo;
    utc_us aged;              /* those that wait since then or longer are protected: they are read too */
    size_t limit;             /* waiters to read before the one that is `beyond` */
    const uint64_t *hopeless; /* as in struct plan: waiters that are not read */
    size_t hopeless_count, hopeless_protected;
    /*
     * Slots that the batch may free, in any order, with duplicates. A waiter that watches another slot is not read:
     * that slot stays held, so the waiter cannot be granted. all_watches: read those too (under `fifo` they are in the
     * way of others).
     */
    const uint32_t *freed;
    size_t freed_count; /* at most QUEUE_FREED_MAX */
    bool all_watches;
    bool with_holders; /* slotted: also QUEUE_WINDOW slots from the lowest free one on, with their holders */
};
enum { QUEUE_FREED_MAX = 500, QUEUE_WINDOW = 2048 };

/*
 * Finds the queues that must be read, after the locks and after due holders were read, and before the plan: a locked
 * semaphore has waiters, and units of it may be free in this batch. ret_reads has space for one per semaphore of the
 * view. Returns their number. *ret_servers: the
 * batch has a row that waits, or an unclaimed grant, so the living servers must be read even if no queue is
 * (batch->read_waiters with 0 reads). An administrative operation changes its semaphore only: it reads none. Lists of
 * slots are in the arena.
 */
size_t plan_queue_reads(const struct view *view, const struct operation *const *operations, size_t operation_count,
                        const struct plan_settings *settings, struct arena *arena, struct queue_read *ret_reads,
                        bool *ret_servers);

/*
 * Extends the reads by what the plan asks for of these queues, and of others of the view: `reads`, in the order of
 * semaphores, has space for one of each. Returns false if it asks for nothing of queues.
 */
bool plan_read_on(const struct plan *plan, const struct view *view, const struct plan_settings *settings,
                  struct queue_read *reads, size_t *count);

/*
 * Decides a batch.
 *
 * Order of decision: releases, renewals, confirms, expiries, then waiters in the order of their places, then new
 * requests; in each group in order of arrival. An operation is never decided before an earlier one on its key. Releases
 * come before waiters so that the batch that frees units also grants them. docs/design.md, "The queue", has the rules.
 *
 * An acquire that does not fit ends due holders, the longest due first, as many as it needs: for specific slots the
 * holders of these slots, for adjacent slots the holders in the lowest run that is free or due. If it would still not
 * fit, it ends none. An operation on a request with permits of a semaphore that is not locked is put back; so is an
 * acquire that needs the end of such holders, and these are `overdue`.
 *
 * `ids` must hold at least operation_count ids. Returns only PERMIT_OK and PERMIT_NO_MEMORY; on the latter *ret_plan is
 * untouched. The rows of `view` are not modified.
 */
enum permit_status plan_batch(const struct view *view, const struct operation *const *operations,
                              size_t operation_count, struct id_range ids, const struct plan_settings *settings,
                              struct arena *arena, struct plan *ret_plan) MUST_CHECK;
/* Returns true if the batch must be planned again, with more rows. Never if view->reads_end. */
static inline bool plan_reads_more(const struct plan *plan)
{
    return plan->read_more || plan->read_held || plan->unknown_count;
}
/*
 * Makes the plan write every semaphore of its view, so that the compare-and-set proves all that the plan relied on: a
 * view from caches.
 */
void plan_write_all(struct plan *plan);
#endif
