/* SPDX-License-Identifier: MIT */
/*
 * plan_batch() against a slow, obvious model. A `script` is a sequence of operations as they arrive, with the batches
 * that they arrive in. script_run() feeds it to plan_batch() on plain rows in memory, and to the model one operation
 * or waiter at a time in the order that core/plan.h promises, and reports where the two differ.
 *
 *     plan_model_reference.c   the model of docs/design.md and docs/protocol.md; open points follow plan.c and are
 *                              marked by a comment
 *     plan_model_queue.c       the part of the model that is about waiting: asks, and the walk along the waiters
 *     plan_model_exchange.c    the part of the model that changes what a held request has
 *     plan_model_rows.c        the tables: the rows a batch reads, and its changes written as SQL would
 *     plan_model_places.c      the tables of waiting requests, waiter and mail, and what a batch reads of them
 *     plan_model_run.c         batches, rounds of reads, put-backs, decision order, comparison
 *     plan_model_order.c       the order of grants, checked by the rows alone, by a walk that knows all of them
 *     plan_model_text.c        operations and outcomes as text, both ways
 *     plan_model_generate.c    seeded scripts
 *     plan_model_seats.c       the seats of the model, and the choice of the best
 *     plan_model_split.c       the same decisions in other batches
 *     plan_model.c             the generated test
 *     plan_model_transcript.h  transcripts written by hand, in plan_model_table.c, plan_model_end.c and
 *                              plan_model_waiting.c
 */
#ifndef UNIT_PLAN_MODEL_H
#define UNIT_PLAN_MODEL_H

#include "base/buf.h"
#include "wait_mode.h"

enum {
    MODEL_SEMAPHORES = 5,
    MODEL_KEYS = 32,
    MODEL_WANTS = 3,
    MODEL_PERMITS = MODEL_SEMAPHORES, /* of a request after exchanges */
    MODEL_SLOTS = 12,                 /* the most slots of one permit in a script */
    MODEL_STEPS = 600, /* steps of a script; a generated one has at most 50, each decided up to 5 times */
    MODEL_SLOT_ROWS = 1101,
    MODEL_OWNERS = 4, /* the first is none */
    MODEL_NONCES = 4, /* the first is none */
    MODEL_REASONS = 3,
    MODEL_EVENTS = 8, /* events of one operation: the settings that a PUT may change */
    MODEL_EVENT_TEXT = 24,
    MODEL_NAMES = 4,     /* slots that a want may name */
    MODEL_READ = 64,     /* slots of one semaphore that a batch may name */
    MODEL_LABELS = 10,   /* the first is none; also the most labels of one operation, plus one */
    MODEL_LABELLED = 16, /* slots below this number may have one */
    MODEL_SERVERS = 4,   /* ids of permitd; 0 is none */
    MODEL_PLACES = MODEL_KEYS * MODEL_WANTS,
    MODEL_MAIL = MODEL_KEYS * MODEL_SERVERS * 4,
    MODEL_ASKS = 16,  /* asks of a key in one batch */
    MODEL_IDS = 4096, /* request ids of a script */
    MODEL_STANDERS = 160,
    MODEL_ROUNDS = 5, /* rounds of reads of a batch */
};

/* Names are indexes: the model knows semaphores and keys only by their index. */
struct bytes semaphore_name(unsigned semaphore);
struct bytes key_name(unsigned key);       /* "k0" to "k9", "ka" to "kv" */
struct bytes owner_name(unsigned owner);   /* 0: none */
struct bytes nonce_text(unsigned nonce);   /* 0: none */
struct bytes reason_text(unsigned reason); /* reason of an operator; 0: none */
struct bytes label_text(unsigned label);   /* "L1" to "L9"; 0: none */
unsigned label_index(struct bytes label);

/* The time and the circumstances of a batch. */
struct moment {
    utc_us now;
    struct lease_clock clock; /* without the epoch */
    uint64_t epoch;
    utc_us grants_from;    /* lease clock: no grants before this time after a failover */
    unsigned owners_known; /* a bit per owner that has ever sent a heartbeat */
    unsigned owners_alive; /* a bit per owner whose last heartbeat still counts */
    unsigned server;       /* the permitd that runs the batch; 0: one without an id */
    unsigned was;          /* server 0: the id that it had before, under which its clients wait; 0: none */
    unsigned servers_dead; /* a bit per server */
};

/* The start of the clock in all scripts. */
#define MODEL_START (1000000000LL * US_PER_SECOND)

/* A slot named by number or by label; the other one is 0. */
struct model_name {
    uint32_t number;
    unsigned label;
};

struct model_want {
    unsigned semaphore;
    int64_t count;
    enum slot_choice choice;
    bool adjacent;
    bool together, front, no_aisle;       /* CHOOSE_BEST: the wish */
    struct model_name names[MODEL_NAMES]; /* as want_sort_named leaves them */
    unsigned name_count;
    int64_t own; /* exchange: units that the request gives back for it */
};

/* One operation, and its arrival. */
struct step {
    enum operation_kind kind;
    unsigned key;       /* operations that are not administrative */
    unsigned semaphore; /* administrative operations */
    unsigned owner;
    unsigned nonce; /* acquire, exchange */
    struct ttl ttl;
    struct model_want wants[MODEL_WANTS]; /* ascending by name, as wants_sort leaves them */
    unsigned want_count;
    struct model_want given[MODEL_WANTS]; /* exchange */
    unsigned given_count;
    unsigned changes; /* exchange */
    unsigned with;    /* confirm: 1 + another key, which is confirmed with it or not at all; 0: none */
    unsigned char digest[DIGEST_SIZE];
    struct semaphore_change change;
    bool allow_confirmed;          /* release */
    enum end_reason expire_as;     /* expire */
    unsigned reason;               /* force-release, pause, resume, retire */
    unsigned labels[MODEL_LABELS]; /* labels, put: the labels of `change`, which has all else */
    unsigned label_count;

    enum wait_mode wait;  /* acquire */
    int64_t wait_us;      /* acquire, WAIT_ASK */
    int priority;         /* acquire */
    bool anew;            /* acquire: by a client that does not wait at this server yet */
    bool mailed;          /* acquire: because of mail for its key, if there is any */
    bool vanished;        /* the client of its key has left the server before, without a word */
    unsigned later;       /* keys: another operation of the server asks for them after this batch */
    bool new_batch;       /* it is not in the batch of the step before */
    bool stale;           /* not an acquire: the key cache has `stale_locks` instead of the true ones */
    unsigned stale_locks; /* a bit per semaphore */
    unsigned more_locks;  /* additional locks, a bit per semaphore */
    unsigned extra_slots; /* number of free slots read beyond the number requested */
    unsigned due_cut;     /* most due holders read for a semaphore; 0: all that may be needed */
    bool walks_due;       /* due holders are found by walking all due requests, which says less about later deadlines */
    unsigned locked_rows; /* a bit per key: another session has locked the row, so it is not ended for others */
    struct moment moment; /* earliest time; never goes back within a script */
};

struct script {
    struct step steps[MODEL_STEPS];
    unsigned count;
    unsigned max_waiters; /* plan_settings.max_semaphore_waiters; 0: no limit */
    unsigned queue_cut;   /* waiters read of a queue, in place of QUEUE_READ_MAX; 0: as there */
    unsigned rounds;      /* of reads, in place of MODEL_ROUNDS; 0: as there */
    unsigned max_packet;  /* plan_settings.max_packet */
};

/* ---- seats ---- */

enum { WISH_SIZE = 32 };

/* The seats of every semaphore. */
const struct seat_map *model_seat_map(void);
/* The form of the wish; data NULL: it is no want for best seats. */
struct bytes model_wish(const struct model_want *want, char form[WISH_SIZE]);
/* Returns the best of these slots, a bit each, for the wish; 0: there is no choice. */
uint64_t model_choose_seats(const struct model_want *want, uint64_t slots);

/* Returns a bit per key of an operation that is not administrative. */
static inline unsigned step_keys(const struct step *step)
{
    return 1U << step->key | (step->with ? 1U << (step->with - 1) : 0);
}
/* Fills in the derived members: the digest. */
void step_finish(struct step *step);

/* ---- the model ---- */

struct model_permit {
    unsigned semaphore;
    uint64_t token;
    int64_t count;
    unsigned slot_count;
    uint32_t slots[MODEL_SLOTS];
    unsigned labels[MODEL_SLOTS];
};

struct model_request {
    bool exists;
    const struct step *content; /* content of the request; NULL: a tombstone */
    enum request_state state;
    enum end_reason end_reason;
    int64_t ttl_ms;
    utc_us due_at;
    int64_t grace_ms;
    utc_us confirmed_at;
    uint32_t renewals, replays;
    utc_us acquired_at, ended_at;
    unsigned owner;
    unsigned nonce; /* of the acquire that was granted */
    struct model_permit permits[MODEL_PERMITS];
    unsigned permit_count;
    unsigned changes;
    unsigned change_nonce; /* of the last one */

    unsigned server; /* waiting: where its client waits; held: unclaimed; 0: neither */
    int priority;
    utc_us place, since, until;
    uint64_t entry; /* order of rows with equal places, or deadlines */
};

struct model_semaphore {
    bool exists;
    bool retired;
    enum semaphore_kind kind;
    enum semaphore_queue queue;
    int64_t capacity;
    uint64_t next_token;
    uint64_t config_version;
    int64_t default_ttl_ms, max_ttl_ms, grace_ms, max_hold_ms, max_waiters, max_priority, priority_step_ms;
    uint64_t entry; /* order of creation */
    struct bytes note;
    struct bytes paused_reason; /* data NULL: not paused */
};

/* An operator's command, as an event. */
struct model_event {
    unsigned semaphore;
    char what[MODEL_EVENT_TEXT], from[MODEL_EVENT_TEXT], to[MODEL_EVENT_TEXT]; /* "": none */
    struct bytes why;
    uint64_t next_token;
};

/* A named slot that is held. */
struct model_taken {
    uint32_t number;
    unsigned label;
    uint64_t token;
    unsigned key;
    utc_us expires_at;
};

struct model_shortage {
    unsigned semaphore;
    int64_t capacity, in_use, requested;
    bool behind;
    struct model_taken taken[MODEL_NAMES];
    unsigned taken_count;
};

/* The result of an operation, in the model's terms. Outcomes of the plan are converted to this form. */
struct verdict {
    enum permit_status status;
    bool created, replayed, already_released, may_wait, waits;
    int64_t max_ttl_ms, max_hold_ms; /* as in struct outcome */
    bool has_request;
    struct model_request request; /* without `content` */
    bool has_semaphore;
    struct model_semaphore semaphore;
    int64_t in_use; /* of the semaphore */
    struct model_shortage shortages[MODEL_WANTS];
    unsigned shortage_count;
    struct model_event events[MODEL_EVENTS]; /* those of a forced release are in order of the semaphores */
    unsigned event_count;
    bool put_back; /* undecided: nothing else counts but `needs`, a bit per semaphore to lock, and `widened` */
    unsigned needs;
    bool widened;
};

/* The input of the model for a batch: its time, and the rows that were read. Keys, semaphores, owners: a bit each. */
struct model_batch {
    struct moment moment;
    bool alone; /* it has one operation */
    unsigned locks;
    unsigned known;       /* semaphores that are locked, or were read plainly */
    unsigned owners;      /* owners whose rows were read */
    unsigned locked_rows; /* keys whose rows another session has locked */
    unsigned waiters;     /* waiting keys that were read */
    bool has_servers;     /* it was read which servers are dead */
    unsigned here;        /* keys whose clients wait at this process */
    unsigned here_nonce[MODEL_KEYS];
    unsigned later;                        /* keys that this server asks for after the batch */
    unsigned beyond[MODEL_SEMAPHORES];     /* the key beyond which the queue was not read; MODEL_KEYS: none */
    unsigned queues_read, may_read_on;     /* semaphores of which waiters were read, and more of them can be read */
    bool reads_end;                        /* nothing more is read for this batch */
    unsigned holders_read;                 /* semaphores: all slots were read, with their holders */
    uint64_t named[MODEL_SEMAPHORES];      /* of a locked one: slots that were read, with their labels, ... */
    uint64_t sold[MODEL_SEMAPHORES];       /* ... and held by a confirmed request */
    unsigned may_end;                      /* semaphores that are not locked: holders of them may be due */
    unsigned watch[MODEL_SEMAPHORES];      /* of one that is not locked: waiters that need a slot which is held, ... */
    unsigned watch_sold[MODEL_SEMAPHORES]; /* ... by a confirmed request */
    int64_t max_waiters;
    size_t max_packet; /* 0: no limit */
};

/* An operation of a batch, as the model gets it. */
struct model_operation {
    const struct step *step;
    struct verdict *verdict;
    bool entered;
    unsigned widened; /* as in struct operation, and so are these: */
    utc_us place, since;
};

/* A request in the queue that is not granted, and what it takes from those behind it. */
struct model_stander {
    utc_us place; /* order: this, then entry */
    uint64_t entry;
    enum {
        MODEL_KEEPS,    /* it may fit, and this batch cannot decide it */
        MODEL_RESERVES, /* protected: its need is reserved */
        MODEL_STANDS,   /* neither */
        MODEL_UNREAD,   /* waiters that were not read may follow */
    } how;
    const struct step *step;     /* what it wants; NULL: MODEL_UNREAD */
    unsigned semaphores;         /* of its queues */
    uint64_t slots[MODEL_WANTS]; /* of each want: the certain slots that it takes; 0: it takes any */
    unsigned needs;              /* MODEL_KEEPS: semaphores with which a batch can decide it */
    bool put_back;               /* an acquire that is put back: it keeps its need from new requests only */
};

/* The units of one semaphore that requests before this one have taken. */
struct model_taken_before {
    int64_t reserved;                                   /* units of reservations */
    int64_t units;                                      /* units that are reserved or kept, of any slots */
    uint64_t slots;                                     /* certain slots, free or held */
    unsigned runs, kept_runs;                           /* adjacent slots that are reserved, and kept */
    unsigned kept_needs;                                /* requests that keep their need */
    enum { MODEL_OPEN, MODEL_SHUT, MODEL_BARRED } fifo; /* shut: it gets no units; barred: it reserves nothing either */
};

/* How often each rule of the queue decided something: for the totals. */
#define MODEL_RULES(X)                                                                                                 \
    X(reserves, "need reserved")                                                                                       \
    X(reserves_named, "named slots reserved")                                                                          \
    X(reserves_any_of, "some of named slots reserved")                                                                 \
    X(reserves_run, "runs reserved")                                                                                   \
    X(reserves_without_lock, "need reserved that is not locked")                                                       \
    X(young, "young one reserves nothing")                                                                             \
    X(no_room, "no room beside reservations")                                                                          \
    X(no_room_confirmed, "no room beside confirmed units")                                                             \
    X(no_room_sold, "needs a sold slot")                                                                               \
    X(no_slots, "no slots to reserve")                                                                                 \
    X(no_more_runs, "too many runs")                                                                                   \
    X(barred, "barred by a fifo head")                                                                                 \
    X(unknown_reserves_nothing, "unknown, reserves nothing")                                                           \
    X(keeps, "need kept")                                                                                              \
    X(keeps_slots, "slots kept")                                                                                       \
    X(keeps_behind_kept, "kept, lacks only kept units")                                                                \
    X(may_not_hold, "kept: its reservation may not hold")                                                              \
    X(calls, "called")                                                                                                 \
    X(not_called, "not called: nothing has changed")                                                                   \
    X(widened, "put back for wider locks")                                                                             \
    X(widened_twice, "put back again for wider locks")                                                                 \
    X(widened_last, "refused with wider locks")                                                                        \
    X(shut, "refused under fifo")                                                                                      \
    X(shut_unread, "refused behind an unread part")                                                                    \
    X(behind_reserved, "refused behind a reservation")                                                                 \
    X(behind_slots, "refused behind reserved slots")                                                                   \
    X(granted_beside, "granted beside a reservation")                                                                  \
    X(before_others, "new one granted before its elders by priority")                                                  \
    X(passed_over, "equal needs passed over")                                                                          \
    X(aside, "in nobody's way")                                                                                        \
    X(glimpsed, "semaphores looked at")                                                                                \
    X(unknown_at_end, "unknown at the end")                                                                            \
    X(reads_more, "more of a queue read")                                                                              \
    X(reads_before, "read before a reservation")                                                                       \
    X(reads_slots, "slots of a queue read that was not read")                                                          \
    X(reads_held, "holders of slots read")                                                                             \
    X(steps_differ, "smallest of several steps")                                                                       \
    X(strict, "strict priority")                                                                                       \
    X(ends_need_room, "due holders without room in the packet")                                                        \
    X(grant_needs_room, "grant without room in the packet")                                                            \
    X(crowded_out, "put back because the packet is full")                                                              \
    X(too_large, "grant larger than a packet")

#define MODEL_RULE_MEMBER(name, text) unsigned long long name;
struct model_rules {
    MODEL_RULES(MODEL_RULE_MEMBER)
};

/* The batch as far as it is decided. */
struct model_walk {
    struct model_request beyond[MODEL_SEMAPHORES];       /* the requests of model_batch.beyond, as they were read */
    struct model_operation asks[MODEL_KEYS][MODEL_ASKS]; /* in the order of arrival */
    unsigned ask_count[MODEL_KEYS];
    unsigned granted_keys; /* keys that were granted */
    unsigned put_back;     /* keys: an operation is put back, or an exchange is made, and all later ones are put back */
    unsigned put_back_needs[MODEL_KEYS];
    size_t packet;                  /* bytes of the transaction so far, without labels */
    size_t packet_begin;            /* of these, before its first grant or end */
    unsigned overdue;               /* keys: due holders that have to end before requests that need their units */
    unsigned waiter_asked;          /* keys for which the waiter of this server has asked */
    unsigned entered;               /* keys that were entered in this batch */
    bool again;                     /* something has happened for which the waiters are decided again */
    bool walking;                   /* waiters are being decided */
    bool changed[MODEL_SEMAPHORES]; /* of it units were freed, or a waiter has left or does not fit after all, ... */
    struct model_stander standers[MODEL_STANDERS];
    unsigned stander_count;
    utc_us place; /* where the request stands that is judged now */
    uint64_t entry;
    bool without_kept;            /* it is judged as if nothing were kept */
    unsigned hopeless;            /* keys: waiters with the same needs are passed over, ... */
    unsigned hopeless_aged;       /* ... also protected ones */
    unsigned hopeless_read;       /* of these keys: all before it were read */
    unsigned read_more;           /* semaphores: units stay free, and more may wait than were read */
    unsigned read_held;           /* semaphores: the holders of slots matter */
    unsigned unknown;             /* semaphores to look at */
    unsigned mail[MODEL_SERVERS]; /* keys */
    unsigned calls;               /* keys */
    unsigned granted[MODEL_KEYS]; /* keys of clients here that no operation asks for, in the order of the grants */
    unsigned granted_count;
    unsigned unclaimed;                /* keys */
    struct verdict grants[MODEL_KEYS]; /* of these two */
};

struct model {
    struct model_semaphore semaphores[MODEL_SEMAPHORES];
    unsigned labels[MODEL_SEMAPHORES][MODEL_LABELLED];
    struct model_request requests[MODEL_KEYS];
    uint64_t entries;
    unsigned ended[END_REASON_COUNT];
    unsigned unread; /* a bit per key: due holders that were not read */
    /* The members below are not restored when a batch is planned again with more rows. */
    struct model_rules rules;
    struct model_batch batch;
    struct model_walk walk;
};

extern const struct plan_settings model_settings;

/* T = clamp(now, tick_at, tick_at + 5 s) - offset */
utc_us model_time(const struct moment *moment);
/* Which deadlines have passed, and from when new ones count; clock.due and clock.from, 0: as model_time. */
utc_us model_due(const struct moment *moment);
utc_us model_from(const struct moment *moment);
int64_t model_in_use(const struct model *model, unsigned semaphore);
/* Returns the semaphores of each request that the operation would touch now. */
unsigned model_touches(const struct model *model, const struct step *step);
/* Begins a batch. */
void model_begin_batch(struct model *model, const struct model_batch *batch);
/* Returns true if another session has locked the row of the key: nothing is decided about it. */
bool model_row_is_locked(const struct model *model, const struct step *step);
/* Runs one operation that is not an ask. Its step must outlive the model. */
void model_do(struct model *model, const struct model_operation *operation);
/* Returns the due holders that have to end before the operation, if it is a new acquire; else 0. */
unsigned model_overdue_of_new(struct model *model, const struct model_operation *operation);
/*
 * Leaves an operation undecided if it touches semaphores that are not locked, or until the due holders `overdue` have
 * ended. The verdict says so.
 */
bool model_puts_back(struct model *model, const struct model_operation *operation, unsigned touched, unsigned overdue);

/* ---- the model's queue ---- */

/* Returns true if the acquire is decided with the waiters: its key waits, or it is entered again. */
bool model_is_ask(const struct model *model, const struct step *step, bool enters_again);
/*
 * An ask, before the walk. True: the walk decides it, and sets the verdict, possibly several times. False: the verdict
 * says it, or *ret_new: it is a new request.
 */
bool model_ask(struct model *model, const struct model_operation *operation, bool *ret_new);
/* Decides all waiters that were read, one by one. */
void model_walk(struct model *model);
/* Returns true if the walk asks for more rows: then nothing that it decided counts. */
bool model_reads_more(const struct model *model);
/* Returns what those before the place that is judged have taken of a semaphore. */
struct model_taken_before taken_before(const struct model *model, unsigned semaphore);

/* ---- between the parts of the model ---- */

bool is_specific(const struct model_want *want);
bool same_content(const struct step *a, const struct step *b);
/* Checks whether a want may be granted at all, whatever is free. */
enum permit_status want_possible(const struct model *model, const struct model_want *want);
/* The same for a request. */
enum permit_status request_possible(const struct model *model, const struct step *step);
/* Returns true if a request that may be granted fits, also if due holders have to end for it. */
bool would_fit(struct model *model, const struct step *step);
/*
 * Finds if it fits now, and ends due holders for it. PERMIT_NO_CAPACITY: with the shortages.
 */
enum permit_status find_fit(struct model *model, const struct step *step, struct verdict *verdict);
void grant_fit(struct model *model, const struct step *step, struct verdict *verdict);
/* Returns true if the transaction can write the grant, too. */
bool grant_has_room(struct model *model, const struct step *step);
bool grant_is_crowded_out(struct model *model, const struct step *step);
/*
 * Returns the due holders, a bit per key, that would be ended for it, and that hold semaphores which are not locked: then
 * they have to end before it.
 */
unsigned model_overdue(struct model *model, const struct step *step);
unsigned semaphores_of(const struct model_request *request);
/* Returns the units that are missing; `ended`: if these requests are ended. */
int64_t missing_without(const struct model *model, const struct model_want *want, unsigned ended);
/* Returns the certain slots that are missing as the rows are now. */
int64_t slots_missing_now(const struct model *model, const struct model_want *want);
/* Returns the slots that a want names, a bit per number; of an any-slots want all slots in service. */
uint64_t listed_slots(const struct model *model, const struct model_want *want);
bool slot_is_held(const struct model *model, unsigned semaphore, uint32_t number);
/* Returns the units of a semaphore that due holders have which were read. */
int64_t due_units(const struct model *model, unsigned semaphore);
int64_t confirmed_units(const struct model *model, unsigned semaphore);
void answer_request(const struct model *model, struct verdict *verdict, const struct model_request *request);
/* Refuses an acquire whose key stands for another request. */
void refuse_reused_key(const struct model *model, const struct step *step, struct verdict *verdict);
/* Returns when a grant ends that is made, or claimed, now. */
utc_us deadline_of_grant(const struct model *model, const struct model_request *request);
unsigned wants_of(const struct step *step);
bool is_waiting(const struct model_request *request);
bool is_alive(const struct model *model, unsigned server);
/* Returns true if nobody asks for the place of a waiter: the key may be used for another request. */
bool gives_way(const struct model *model, const struct model_request *request);
bool priority_is_allowed(const struct model *model, const struct step *step);
/* The request is judged next: a new one, at the place that it would get. */
void judge_new(struct model *model, const struct model_operation *operation);
/* Puts back an acquire that lacks only what is kept for others, to lock more. False: that does not help. */
bool puts_back_for_kept(struct model *model, const struct model_operation *operation);
/* The same if it is the only one of its batch, and has no room in the packet beside what was written for others. */
bool puts_back_for_room(struct model *model, const struct model_operation *operation);
/* Enters a new request, that does not fit, in the queues. */
void enter(struct model *model, const struct model_operation *operation);
/* The row of a waiter goes; its server is told. */
void remove_place(struct model *model, unsigned key);
/* A waiter that is asked for leaves the queue: those behind it may fit. */
void open_way(struct model *model, const struct model_request *request);
/* Tells the server of a waiter that something has happened to it. */
void tell_server(struct model *model, unsigned key);

/* ---- exchanges ---- */

void model_confirm_both(struct model *model, const struct model_operation *operation);
void model_exchange(struct model *model, const struct model_operation *operation);
/* What it needs of the other parts, where these are described. */
void model_put_back(struct model *model, const struct model_operation *operation, unsigned needs);
void model_judge_last(struct model *model);
void model_claim(struct model *model, unsigned key);
void model_end(struct model *model, struct model_request *request, enum end_reason reason);
void model_end_if_due(struct model *model, struct model_request *request);
void model_write_again(const struct model *model, struct model_request *request);
struct model_permit model_give_permit(struct model *model, const struct model_want *want);
size_t model_packet_of_end(const struct model_request *request);
size_t model_packet_of_grant(const struct model *model, const struct step *step);

/* ---- the tables ---- */

struct model_slot {
    bool exists, retired;
    unsigned label;
    uint64_t token; /* 0: NULL */
};

struct rows {
    struct semaphore semaphores[MODEL_SEMAPHORES]; /* id 0: no such row */
    struct model_slot slots[MODEL_SEMAPHORES][MODEL_SLOT_ROWS];
    unsigned slot_rows[MODEL_SEMAPHORES]; /* number of the first slot without a row */
    struct request requests[MODEL_KEYS];  /* id 0: no such row; permits below */
    struct permit permits[MODEL_KEYS][MODEL_PERMITS];
    struct place_change places[MODEL_PLACES]; /* rows of `waiter`, in no order */
    unsigned place_count;
    struct mail mail[MODEL_MAIL]; /* in no order */
    unsigned mail_count;
    unsigned char key_of_id[MODEL_IDS];
    uint64_t last_tokens[MODEL_SEMAPHORES]; /* the largest ever granted */
    uint64_t next_id;
    struct arena arena; /* the permits' slots */
    struct buf problem; /* description of the failure */
};

void rows_init(struct rows *rows);
void rows_clear(struct rows *rows);
void rows_release(struct rows *rows);
/* Returns the index of the semaphore with this id; -1: none. */
int rows_semaphore(const struct rows *rows, uint64_t id);
/* Returns the index of a key; -1: not a key of the model. */
int key_index(struct bytes external_id);
/* Returns the key that holds the permit of a semaphore with this token; MODEL_KEYS: none. */
unsigned rows_holder_of(const struct rows *rows, unsigned index, uint64_t token);
/* Returns a bit per semaphore of the permits in this key's row. */
unsigned rows_semaphores_of_key(const struct rows *rows, unsigned key);

/* The rows that a batch locks and reads. All of it is in the arena, except the strings. */
struct rows_read {
    unsigned locks; /* a bit per semaphore */
    unsigned keys;  /* a bit per key */
    int64_t slots_wanted[MODEL_SEMAPHORES];
    struct model_name names[MODEL_SEMAPHORES][MODEL_READ]; /* names in acquires, each once */
    unsigned name_count[MODEL_SEMAPHORES];
    bool all_slots;  /* all slots are named */
    unsigned owners; /* a bit per owner that an acquire depends on */
    unsigned due_cut;
    unsigned queue_cut;
    unsigned here, later; /* a bit per key */
    unsigned here_nonce[MODEL_KEYS];
    unsigned with_holders; /* a bit per semaphore: all its slots are named */
    bool walks_due;
    unsigned locked_rows;
    struct moment moment;
};
bool rows_view(const struct rows *rows, const struct rows_read *read, struct arena *arena,
               struct view *ret_view) MUST_CHECK;
/* Reads the due holders of semaphores with missing units, as src/store/batch_due.c does. */
bool rows_read_due(const struct rows *rows, const struct rows_read *read, const struct shortfall *shortfalls,
                   size_t count, struct arena *arena, struct view *view) MUST_CHECK;
/* Reads parts of queues, as batch->read_waiters does. */
bool rows_read_waiters(const struct rows *rows, const struct rows_read *read, const struct queue_read *reads,
                       size_t count, struct arena *arena, struct view *view) MUST_CHECK;
/* Reads semaphores (a bit each) without locks, as batch->read_glimpses does. */
bool rows_read_glimpses(const struct rows *rows, const struct rows_read *read, unsigned semaphores, utc_us aged,
                        struct arena *arena, struct view *view) MUST_CHECK;
/* Reads the slots of the semaphore that is at `at` in the view. */
bool rows_read_slots(const struct rows *rows, const struct rows_read *read, unsigned index, struct arena *arena,
                     struct view *view, size_t at) MUST_CHECK;
/* Reads the requests of the view again, those of `keys` (a bit each). */
bool rows_read_requests(const struct rows *rows, const struct rows_read *read, unsigned keys, struct arena *arena,
                        struct view *view) MUST_CHECK;
/* Writes the changes of places and mail, and checks that the places are those of the requests that wait. */
bool rows_write_places(struct rows *rows, const struct changes *changes) MUST_CHECK;
bool rows_write_mail(struct rows *rows, const struct changes *changes) MUST_CHECK;
bool rows_check_places(struct rows *rows) MUST_CHECK;
/* Returns the id of mail of a server for a key; 0: none. */
uint64_t rows_mail_of(const struct rows *rows, unsigned server, unsigned key);
/* Returns the checksum of all data that the view points to: it must be the same before and after plan_batch. */
uint64_t view_checksum(const struct view *view);
/* Writes the changes, checks each as SQL would, and checks that all rows agree. False: see rows->problem. */
bool rows_apply(struct rows *rows, const struct plan *plan) MUST_CHECK;
/* Converts the row of a key to the model's terms. */
void rows_request(const struct rows *rows, const struct request *request, struct model_request *ret_request);

/* ---- running a script ---- */

/* An operation, or the grant to a waiter, in the order of decision. */
struct decided {
    unsigned step;  /* MODEL_STEPS: a waiter that no operation of the batch asks for */
    unsigned batch; /* number of the batch */
    int rank;
    unsigned locks; /* locks of its batch */
    struct moment moment;
    struct verdict verdict;
};

/* An operation put back. */
struct arrival {
    unsigned step;
    unsigned locks; /* a bit per semaphore */
};

/* In order of arrival. */
struct queue {
    struct arrival arrivals[MODEL_STEPS];
    unsigned count;
};

/* The knowledge of a server about a key whose client waits there. */
struct known {
    bool here;
    unsigned nonce; /* of its client */
    const struct step *content;
    utc_us place, since;
};

struct run {
    struct rows rows;
    struct model model;
    struct arena arena;
    struct script script; /* a copy, with the steps of settle() behind it */
    struct queue queue;
    struct known known[MODEL_SERVERS][MODEL_KEYS];
    struct model *undecided;              /* the model as it was before a round of reads */
    struct request before[MODEL_KEYS];    /* the rows of the requests before the batch */
    struct buf *notes;                    /* for transcripts, one per step: what else a batch did; NULL: no notes */
    struct verdict verdicts[MODEL_STEPS]; /* final result of each step */
    unsigned put_backs[MODEL_STEPS];
    unsigned widened[MODEL_STEPS]; /* how often it was put back because it lacked only what is kept for others */
    bool wrote[MODEL_STEPS];       /* the batch that decided it wrote changes */
    struct decided decided[MODEL_STEPS];
    unsigned decided_count;
    unsigned batches;
    unsigned ended[END_REASON_COUNT];                                 /* as counted by the plans */
    unsigned reclaims;                                                /* acquires for which due holders were ended */
    unsigned long long granted_here, granted_elsewhere, called, told; /* of waiters: for the totals */
    unsigned long long judged_grants, judged_refusals, judged_calls;  /* by the order alone: for the totals */
    bool settling;                                                    /* each permitd looks at its waiters */
    unsigned long long settled, judged_waiters;                       /* grants by that; waiters that fit no more */
    bool
        cut_short; /* a due holder that might be needed was not read, or an acquire that is put back keeps its need from
                       others of its batch: other batches may decide otherwise */
};

void run_init(struct run *run);
void run_release(struct run *run);
/* Runs a script. False: plan and model differ, or a rule was broken; see run->rows.problem. */
bool script_run(struct run *run, const struct script *script) MUST_CHECK;
bool step_wants(const struct step *step, unsigned semaphore);
/* Returns true if the step wants specific slots of any semaphore. */
bool step_is_specific(const struct step *step);
/* Remembers the rows before a batch, for order_holds. */
void order_note(struct run *run);
/*
 * Checks the grants of the last batch: none takes what one before it needs or has reserved. No key has several operations in
 * the batch.
 */
bool order_holds(struct run *run, const struct changes *changes) MUST_CHECK;
/* Checks that a new request does not fit that the last batch has refused for lack of units. */
bool order_refuses(struct run *run, const struct step *step) MUST_CHECK;
/* Finds the waiters that fit, and those that surely do not, a bit per key. Those of which it is not known are neither. */
void order_find(const struct run *run, unsigned *ret_fit, unsigned *ret_unfit);
/*
 * Checks that each of these waiters, which did not fit before the last batch, is granted or called if it fits now because
 * something changed at its semaphores.
 */
bool order_tells(struct run *run, unsigned unfit) MUST_CHECK;
/* Checks that no waiter fits, after each permitd has looked at its waiters. */
bool order_is_settled(struct run *run) MUST_CHECK;
/* Returns the next waiter behind `last` (MODEL_KEYS: the first) in the order of places; MODEL_KEYS: none. */
unsigned order_next(const struct run *run, unsigned last);
bool step_is_administrative(const struct step *step);
/* Returns true if equal; else adds a line with the difference to `problem`. */
bool verdict_equal(const struct verdict *expected, const struct verdict *got, struct buf *problem) MUST_CHECK;

/* ---- text ---- */

/*
 * One operation: "acquire k1 a b:2 ttl=30s owner=1", "release k1", "~renew k1 ttl=none", "release k1 confirmed",
 * "confirm k1 with=k2"; "exchange k1 -a:2 b changes=1 nonce=2" gives back two units of a and takes one of b,
 * "expire k1 owner_dead", "force_release k1 why=1", "put a capacity=2 counted", "pause a why=1", "retire a". A leading
 * ~ is an empty set of locks from a stale directory; "walks" and "cut=1" say how an acquire's batch reads due holders;
 * "locked=3" are the keys, a bit each, whose rows another session has locked;
 * "a:2@1,3,L4" is any two of these, "a@1,L2" exactly these, "a:2~" and "a:2~@1,2,3" adjacent; "labels a from=2
 * labels=L1,-,L3" and "put a labels=L1" name slots. "wait=5s" is WAIT_ASK, "last" and "gone" the other modes;
 * "priority=3", "anew", "mailed", "vanished": see struct step. False: syntax error.
 */
bool step_parse(const char *text, struct step *ret_step) MUST_CHECK;
void step_print(const struct step *step, struct buf *out);
void script_print(const struct script *script, struct buf *out);
/* "ok created ACQUIRED a=1[1] ttl=600s due=600s" */
void verdict_print(const struct verdict *verdict, struct buf *out);
/* " +a capacity 1>2", " +a forced k1 (night)" */
void events_print(const struct verdict *verdict, struct buf *out);

/* ---- generated scripts ---- */

void script_generate(uint64_t seed, struct script *ret_script);

/* The decisions of a run in other batches. */
struct split {
    struct script script;
    unsigned repeats[MODEL_STEPS]; /* of each step: number of the decision that it repeats */
};
/*
 * Fills a split with the operations of a run, in the order of their decisions, in other batches that lead to the same
 * order. False: too many steps, or there is waiting: a batch that frees two units may grant another waiter than two
 * batches that free one each.
 */
bool split_run(const struct run *run, uint64_t seed, struct split *ret_split);
/* Checks that each operation of the other run ended as in the first; else *problem names the first difference. */
bool split_equal(const struct run *run, const struct run *other, const struct split *split, struct buf *problem);
#endif
