/* SPDX-License-Identifier: MIT */
/*
 * plan_batch() against a slow, obvious model. A `script` is a sequence of operations as they arrive, with the batches
 * that they arrive in. script_run() feeds it to plan_batch() on plain rows in memory, and to the model one operation
 * at a time in the order that core/plan.h promises, and reports where the two differ.
 *
 *     plan_model_reference.c   the model of docs/design.md and docs/protocol.md; open points follow plan.c and are
 *                              marked by a comment
 *     plan_model_rows.c        the tables: the rows a batch reads, and its changes written as SQL would
 *     plan_model_run.c         batches, put-backs, waiters, decision order, comparison
 *     plan_model_order.c       the order of grants, checked by the outcomes alone
 *     plan_model_text.c        operations and outcomes as text, both ways
 *     plan_model_generate.c    seeded scripts
 *     plan_model_split.c       the same decisions in other batches
 *     plan_model.c             the generated test
 *     plan_model_transcript.h  transcripts written by hand, in plan_model_table.c, plan_model_end.c and
 *                              plan_model_waiting.c
 */
#ifndef UNIT_PLAN_MODEL_H
#define UNIT_PLAN_MODEL_H

#include "base/buf.h"
#include "core/plan.h"

enum {
    MODEL_SEMAPHORES = 5,
    MODEL_KEYS = 32,
    MODEL_WANTS = 3,
    MODEL_SLOTS = 12,  /* the most slots of one permit in a script */
    MODEL_STEPS = 600, /* steps of a script; a generated one has at most 50, each decided up to 5 times */
    MODEL_SLOT_ROWS = 1101,
    MODEL_OWNERS = 4, /* the first is none */
    MODEL_NONCES = 4, /* the first is none */
    MODEL_REASONS = 3,
    MODEL_EVENTS = 6, /* events of one operation: the settings that a PUT may change */
    MODEL_EVENT_TEXT = 24,
    MODEL_NAMES = 4,     /* slots that a want may name */
    MODEL_READ = 64,     /* slots of one semaphore that a batch may name */
    MODEL_LABELS = 10,   /* the first is none; also the most labels of one operation, plus one */
    MODEL_LABELLED = 16, /* slots below this number may have one */
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
    struct lease_clock clock;
    uint64_t epoch;
    utc_us grants_from;    /* lease clock: no grants before this time after a failover */
    unsigned owners_known; /* a bit per owner that has ever sent a heartbeat */
    unsigned owners_alive; /* a bit per owner whose last heartbeat still counts */
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
    struct model_name names[MODEL_NAMES]; /* as want_sort_named leaves them */
    unsigned name_count;
};

/* The place of an acquire in a batch. */
struct wait_place {
    enum queue_rank place;
    bool waits;
};

/* One operation, and its arrival. */
struct step {
    enum operation_kind kind;
    unsigned key;       /* operations that are not administrative */
    unsigned semaphore; /* administrative operations */
    unsigned owner;
    unsigned nonce; /* acquire */
    struct ttl ttl;
    struct model_want wants[MODEL_WANTS]; /* ascending by name, as wants_sort leaves them */
    unsigned want_count;
    unsigned char digest[DIGEST_SIZE];
    struct semaphore_change change;
    bool allow_confirmed;          /* release */
    enum end_reason expire_as;     /* expire */
    unsigned reason;               /* force-release, pause, resume, retire */
    unsigned labels[MODEL_LABELS]; /* labels, put: the labels of `change`, which has all else */
    unsigned label_count;

    struct wait_place stand; /* acquire: in its first batch */
    unsigned patience;       /* acquire: it waits, and is tried so many more times while its refusals are temporary */
    unsigned aged_at;        /* PLACE_AGED from this try on (the first is 0); 0: never */
    bool new_batch;          /* it is not in the batch of the step before */
    bool stale;              /* not an acquire: the key cache has `stale_locks` instead of the true ones */
    unsigned stale_locks;    /* a bit per semaphore */
    unsigned more_locks;     /* additional locks, a bit per semaphore */
    unsigned extra_slots;    /* number of free slots read beyond the number requested */
    unsigned due_cut;        /* most due holders read for a semaphore; 0: all that may be needed */
    bool walks_due;       /* due holders are found by walking all due requests, which says less about later deadlines */
    struct moment moment; /* earliest time; never goes back within a script */
};

struct script {
    struct step steps[MODEL_STEPS];
    unsigned count;
    unsigned max_waiters; /* waiters in one batch; requests behind a skipped waiter are PLACE_BEHIND; 0: no limit */
};

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
    uint64_t order; /* of grants */
    struct model_permit permits[MODEL_WANTS];
    unsigned permit_count;
};

struct model_semaphore {
    bool exists;
    bool retired;
    enum semaphore_kind kind;
    enum semaphore_queue queue;
    int64_t capacity;
    uint64_t next_token;
    uint64_t config_version;
    int64_t default_ttl_ms, max_ttl_ms, grace_ms, max_hold_ms;
    struct bytes note;
    struct bytes paused_reason; /* data NULL: not paused */
};

/* A waiter that was refused in this batch. */
struct model_waiter {
    const struct step *step;
    bool keeps_all; /* aged, or put back */
};

struct model {
    struct model_semaphore semaphores[MODEL_SEMAPHORES];
    unsigned labels[MODEL_SEMAPHORES][MODEL_LABELLED];
    struct model_request requests[MODEL_KEYS];
    uint64_t grants;
    unsigned ended[END_REASON_COUNT];
    struct model_waiter waiters[MODEL_STEPS];
    unsigned waiter_count;
    unsigned unread; /* a bit per key: due holders that a limited read has missed; usually 0 */
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
    bool created, replayed, already_released, may_wait;
    bool has_request;
    struct model_request request; /* without `content` */
    bool has_semaphore;
    struct model_semaphore semaphore;
    int64_t in_use; /* of the semaphore */
    struct model_shortage shortages[MODEL_WANTS];
    unsigned shortage_count;
    struct model_event events[MODEL_EVENTS]; /* those of a forced release are in order of the semaphores */
    unsigned event_count;
};

extern const struct plan_settings model_settings;

/* T = clamp(now, tick_at, tick_at + 5 s) - offset */
utc_us model_time(const struct moment *moment);
int64_t model_in_use(const struct model *model, unsigned semaphore);
/* Returns a bit per semaphore of each request that the operation would touch now. */
unsigned model_touches(const struct model *model, const struct step *step, const struct wait_place *stand,
                       const struct moment *moment);
/* Runs one operation. `step` must outlive the model. */
void model_do(struct model *model, const struct step *step, const struct wait_place *stand, const struct moment *moment,
              struct verdict *ret_verdict);
/* Puts the operation back undecided; if it waits, it keeps its place. */
void model_put_back(struct model *model, const struct step *step, const struct wait_place *stand);
/* Begins a batch: no waiter blocks another request. */
void model_begin_batch(struct model *model);

/* ---- the tables ---- */

struct model_slot {
    bool exists, retired;
    unsigned label;
    uint64_t permit_id; /* 0: NULL */
};

struct rows {
    struct semaphore semaphores[MODEL_SEMAPHORES]; /* id 0: no such row */
    struct model_slot slots[MODEL_SEMAPHORES][MODEL_SLOT_ROWS];
    unsigned slot_rows[MODEL_SEMAPHORES]; /* number of the first slot without a row */
    struct request requests[MODEL_KEYS];  /* id 0: no such row; permits below */
    struct permit permits[MODEL_KEYS][MODEL_WANTS];
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
    bool walks_due;
    struct moment moment;
};
bool rows_view(const struct rows *rows, const struct rows_read *read, struct arena *arena,
               struct view *ret_view) MUST_CHECK;
/* Reads the due holders of semaphores with missing units, as src/store/batch_due.c does. */
bool rows_read_due(const struct rows *rows, const struct rows_read *read, const struct shortfall *shortfalls,
                   size_t count, struct arena *arena, struct view *view) MUST_CHECK;
/* Returns the checksum of all data that the view points to: it must be the same before and after plan_batch. */
uint64_t view_checksum(const struct view *view);
/* Writes the changes, checks each as SQL would, and checks that all rows agree. False: see rows->problem. */
bool rows_apply(struct rows *rows, const struct plan *plan) MUST_CHECK;
/* Converts the row of a key to the model's terms. */
void rows_request(const struct rows *rows, const struct request *request, struct model_request *ret_request);

/* ---- running a script ---- */

/* An operation in the order of decision; a waiter is decided several times. */
struct decided {
    unsigned step;
    unsigned batch; /* number of the batch */
    int rank;
    unsigned locks; /* locks of its batch */
    struct wait_place stand;
    struct moment moment;
    struct verdict verdict;
    bool is_specific; /* it wants specific slots */
};

/* An operation in the queue. */
struct arrival {
    unsigned step;
    unsigned locks;    /* a bit per semaphore */
    unsigned tries;    /* number of refusals */
    bool waits_here;   /* it is in the waitlist: it waits and was refused or put back */
    bool is_behind;    /* a waiter for the same units is not in its batch */
    bool was_put_back; /* by its last batch */
};

/* Operations put back and waiters, in order of arrival. */
struct queue {
    struct arrival arrivals[MODEL_STEPS];
    unsigned count;
};

struct run {
    struct rows rows;
    struct model model;
    struct arena arena;
    const struct script *script;
    struct queue queue;
    struct verdict verdicts[MODEL_STEPS]; /* final result of each step */
    unsigned put_backs[MODEL_STEPS];
    bool wrote[MODEL_STEPS]; /* the batch that decided it wrote changes */
    struct decided decided[MODEL_STEPS];
    unsigned decided_count;
    unsigned batches;
    unsigned ended[END_REASON_COUNT]; /* as counted by the plans */
    unsigned reclaims;                /* acquires for which due holders were ended */
    unsigned kept_by_put_back;        /* operations blocked by a waiter that was put back */
    bool cut_short;                   /* a due holder that might be needed was not read */
};

void run_init(struct run *run);
void run_release(struct run *run);
/* Runs a script. False: plan and model differ, or a rule was broken; see run->rows.problem. */
bool script_run(struct run *run, const struct script *script) MUST_CHECK;
/* Returns the rank of decision within a batch, which depends on kind and place alone. */
int step_rank(const struct step *step, const struct wait_place *stand);
bool step_wants(const struct step *step, unsigned semaphore);
/* Returns true if the step wants specific slots of any semaphore. */
bool step_is_specific(const struct step *step);
/*
 * Checks the decisions from number `first` on, of one batch: no operation was granted before an earlier one that
 * precedes it.
 */
bool order_holds(struct run *run, unsigned first) MUST_CHECK;
/*
 * Returns true if the acquire waits for any slots and was refused for lack of free units, not because a semaphore that
 * it wants is closed.
 */
bool is_held_up(const struct decided *decided);
bool step_is_administrative(const struct step *step);
/* Returns true if equal; else adds a line with the difference to `problem`. */
bool verdict_equal(const struct verdict *expected, const struct verdict *got, struct buf *problem) MUST_CHECK;

/* ---- text ---- */

/*
 * One operation: "acquire k1 a b:2 ttl=30s owner=1", "release k1", "~renew k1 ttl=none", "release k1 confirmed",
 * "expire k1 owner_dead", "force_release k1 why=1", "put a capacity=2 counted", "pause a why=1", "retire a". A leading
 * ~ is an empty set of locks from a stale directory; "walks" and "cut=1" say how an acquire's batch reads due holders;
 * "a:2@1,3,L4" is any two of these, "a@1,L2" exactly these, "a:2~" and "a:2~@1,2,3" adjacent; "labels a from=2
 * labels=L1,-,L3" and "put a labels=L1" name slots. "waiter", "aged", "behind" is its place in its first batch, "waits"
 * that it waits for one batch, "patience=2" that it is tried twice more as a waiter, "aged_at=2" from which try on
 * as an aged one. False: syntax error.
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
    bool again[MODEL_STEPS];       /* the step is only repeated at the head of a batch, because it still waits */
};
/*
 * Fills a split with the operations of a run, in the order of their decisions, in other batches that lead to the same
 * order. A waiter that was refused in one batch comes first in the next. False: too many steps.
 */
bool split_run(const struct run *run, uint64_t seed, struct split *ret_split);
/* Checks that each operation of the other run ended as in the first; else *problem names the first difference. */
bool split_equal(const struct run *run, const struct run *other, const struct split *split, struct buf *problem);
#endif
