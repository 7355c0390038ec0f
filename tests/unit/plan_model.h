/* SPDX-License-Identifier: MIT */
/*
 * plan_batch() against a slow, obvious model. A `script` is a sequence of operations as they arrive, with the batches
 * that they arrive in. script_run() feeds it to plan_batch() on plain rows in memory, and to the model one operation
 * at a time in the order that core/plan.h promises, and says where the two part.
 *
 *     plan_model_reference.c   the model: what docs/design.md and docs/protocol.md say; where they are silent, what
 *                              plan.c does, and then a comment says so
 *     plan_model_rows.c        the tables: what a batch reads, and its changes written the way SQL would
 *     plan_model_run.c         batches, put-backs, who waits, decision order, comparison
 *     plan_model_order.c       who was served before whom, seen from the outcomes alone
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
    MODEL_SLOTS = 12,  /* the most that one permit of a script may have */
    MODEL_STEPS = 600, /* of a script; a generated one has 50 at most, which are decided up to 5 times each */
    MODEL_SLOT_ROWS = 1101,
    MODEL_OWNERS = 4, /* the first is no name */
    MODEL_NONCES = 4, /* the first is none */
    MODEL_REASONS = 3,
    MODEL_EVENTS = 6, /* of one operation: the settings that a PUT may change */
    MODEL_EVENT_TEXT = 24,
    MODEL_NAMES = 4,     /* that a want may name */
    MODEL_READ = 64,     /* that those of a batch may, of one semaphore */
    MODEL_LABELS = 10,   /* the first is none; also the most that one operation may set, less one */
    MODEL_LABELLED = 16, /* slots below this number may have one */
};

/* Names stand for themselves: the index of a semaphore or key is all that the model knows of it. */
struct bytes semaphore_name(unsigned semaphore);
struct bytes key_name(unsigned key);       /* "k0" to "k9", "ka" to "kv" */
struct bytes owner_name(unsigned owner);   /* 0: none */
struct bytes nonce_text(unsigned nonce);   /* 0: none */
struct bytes reason_text(unsigned reason); /* why an operator does something; 0: not said */
struct bytes label_text(unsigned label);   /* "L1" to "L9"; 0: none */
unsigned label_index(struct bytes label);

/* When a batch runs. */
struct moment {
    utc_us now;
    struct served_clock clock;
    uint64_t epoch;
    utc_us grants_from;    /* served time: after a failover nothing is granted before */
    unsigned owners_known; /* a bit per owner: it has sent a heartbeat at some time, */
    unsigned owners_alive; /* and its last one still counts */
};

/* Where the clock of all scripts begins. */
#define MODEL_START (1000000000LL * US_PER_SECOND)

/* One of the two. */
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

/* How an acquire stands in a batch. */
struct stand {
    enum place place;
    bool waits;
};

/* One operation and how it arrives. */
struct step {
    enum operation_kind kind;
    unsigned key;       /* what is not administrative */
    unsigned semaphore; /* administrative */
    unsigned owner;
    unsigned nonce; /* acquire */
    struct ttl ttl;
    struct model_want wants[MODEL_WANTS]; /* ascending by name, as wants_sort leaves them */
    unsigned want_count;
    unsigned char digest[DIGEST_SIZE];
    struct semaphore_change change;
    bool of_confirmed;             /* release */
    enum end_reason expire_as;     /* expire */
    unsigned reason;               /* force-release, pause, resume, retire */
    unsigned labels[MODEL_LABELS]; /* labels, put: those of `change`, which has the rest */
    unsigned label_count;

    struct stand stand;   /* acquire: in its first batch */
    unsigned patience;    /* acquire: it waits, and is tried so many times more while it is refused for what passes */
    unsigned aged_at;     /* from this try on, the first is 0, it is PLACE_AGED; 0: never */
    bool new_batch;       /* it does not travel with the step before */
    bool stale;           /* not an acquire: the directory says `stale_locks` instead of what is so */
    unsigned stale_locks; /* a bit per semaphore */
    unsigned more_locks;  /* these as well */
    unsigned extra_slots; /* so many more free slots are read than were asked for */
    unsigned due_cut;     /* of due holders, no more than this are read for a semaphore; 0: all that may be needed */
    bool walks_due;       /* they are found by what is due anywhere, which says less about what is due later */
    struct moment moment; /* not before this; never runs back within a script */
};

struct script {
    struct step steps[MODEL_STEPS];
    unsigned count;
    unsigned max_waiters; /* in one batch; who comes after one that was left out is PLACE_BEHIND; 0: no limit */
};

/* Fills in what follows from the rest: the digest. */
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
    const struct step *content; /* what was sent; NULL: a tombstone */
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

/* Who waits and has found no room in this batch. */
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
    unsigned unread; /* a bit per key: a due holder that nobody may see, because a read was cut off; as a rule 0 */
};

/* What an operator did. */
struct model_event {
    unsigned semaphore;
    char what[MODEL_EVENT_TEXT], from[MODEL_EVENT_TEXT], to[MODEL_EVENT_TEXT]; /* "": none */
    struct bytes why;
    uint64_t next_token;
};

/* A slot that was named and is held. */
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

/* How an operation ends, in the model's words; an outcome of the plan is brought into the same form. */
struct verdict {
    enum permit_status status;
    bool created, replayed, already_released, may_wait;
    bool has_request;
    struct model_request request; /* without `content` */
    bool has_semaphore;
    struct model_semaphore semaphore;
    int64_t in_use; /* of that semaphore */
    struct model_shortage shortages[MODEL_WANTS];
    unsigned shortage_count;
    struct model_event events[MODEL_EVENTS]; /* of a forced release in order of the semaphores */
    unsigned event_count;
};

extern const struct plan_settings model_settings;

/* T = clamp(now, tick_at, tick_at + 5 s) - offset */
utc_us model_time(const struct moment *moment);
int64_t model_in_use(const struct model *model, unsigned semaphore);
/* A bit per semaphore of every request that the operation would touch now. */
unsigned model_touches(const struct model *model, const struct step *step, const struct stand *stand,
                       const struct moment *moment);
/* Does one operation. `step` must outlive the model. */
void model_do(struct model *model, const struct step *step, const struct stand *stand, const struct moment *moment,
              struct verdict *ret_verdict);
/* It is not decided in this batch, but somebody who waits keeps its place. */
void model_put_back(struct model *model, const struct step *step, const struct stand *stand);
/* Nobody stands in the way of anybody. */
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
    unsigned slot_rows[MODEL_SEMAPHORES]; /* none exists from here on */
    struct request requests[MODEL_KEYS];  /* id 0: no such row; permits below */
    struct permit permits[MODEL_KEYS][MODEL_WANTS];
    uint64_t last_tokens[MODEL_SEMAPHORES]; /* the largest ever granted */
    uint64_t next_id;
    struct arena arena; /* the permits' slots */
    struct buf problem; /* what was wrong, for a person */
};

void rows_init(struct rows *rows);
void rows_clear(struct rows *rows);
void rows_release(struct rows *rows);
/* The index of the semaphore with this id, -1 if there is none. */
int rows_semaphore(const struct rows *rows, uint64_t id);
/* The index of a key; -1: none of ours. */
int key_index(struct bytes external_id);
/* A bit per semaphore that this key's row has permits of. */
unsigned rows_semaphores_of_key(const struct rows *rows, unsigned key);

/* What step 1 of a batch reads. Everything is in the arena but the strings. */
struct rows_read {
    unsigned locks; /* a bit per semaphore */
    unsigned keys;  /* a bit per key */
    int64_t slots_wanted[MODEL_SEMAPHORES];
    struct model_name names[MODEL_SEMAPHORES][MODEL_READ]; /* what acquires name, each once */
    unsigned name_count[MODEL_SEMAPHORES];
    bool all_slots;  /* they are all named */
    unsigned owners; /* a bit per owner that an acquire relies on */
    unsigned due_cut;
    bool walks_due;
    struct moment moment;
};
bool rows_view(const struct rows *rows, const struct rows_read *read, struct arena *arena,
               struct view *ret_view) MUST_CHECK;
/* The due holders of semaphores that are short, as src/store/batch_due.c reads them. */
bool rows_read_due(const struct rows *rows, const struct rows_read *read, const struct shortfall *shortfalls,
                   size_t count, struct arena *arena, struct view *view) MUST_CHECK;
/* Of everything that the view points to: the same before and after plan_batch. */
uint64_t view_checksum(const struct view *view);
/* Writes the changes and checks each as SQL would, then all rows among themselves. False: rows->problem says why. */
bool rows_apply(struct rows *rows, const struct plan *plan) MUST_CHECK;
/* The row of a key in the model's words. */
void rows_request(const struct rows *rows, const struct request *request, struct model_request *ret_request);

/* ---- running a script ---- */

/* An operation in the order of decision; one that waits is decided several times. */
struct decided {
    unsigned step;
    unsigned batch; /* its number */
    int rank;
    unsigned locks; /* of its batch */
    struct stand stand;
    struct moment moment;
    struct verdict verdict;
    bool certain; /* it wants certain slots */
};

/* An operation in the queue. */
struct arrival {
    unsigned step;
    unsigned locks;    /* a bit per semaphore */
    unsigned tries;    /* how often it was refused */
    bool waits_here;   /* it has a place among the waiters: it was refused, or put back, and waits */
    bool is_behind;    /* a waiter that wants what it wants is not in its batch */
    bool was_put_back; /* by its last batch */
};

/* What was put back and who waits, in order of arrival. */
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
    struct verdict verdicts[MODEL_STEPS]; /* of a step: how it ended at last */
    unsigned put_backs[MODEL_STEPS];
    bool wrote[MODEL_STEPS]; /* the batch that decided it had something to write */
    struct decided decided[MODEL_STEPS];
    unsigned decided_count;
    unsigned batches;
    unsigned ended[END_REASON_COUNT]; /* as the plans counted */
    unsigned reclaims;                /* acquires that others were ended for */
    unsigned kept_by_put_back;        /* of somebody who was put back and waits: those behind it see that */
    bool cut_short;                   /* a due holder that might have been needed was not read */
};

void run_init(struct run *run);
void run_release(struct run *run);
/* False: plan and model parted, or a rule was broken; run->rows.problem says which. */
bool script_run(struct run *run, const struct script *script) MUST_CHECK;
/* The order of decision within a batch, by kind and place alone. */
int step_rank(const struct step *step, const struct stand *stand);
bool step_wants(const struct step *step, unsigned semaphore);
/* Of any of its semaphores it wants certain slots. */
bool step_is_certain(const struct step *step);
/* What was decided from number `first` on, in one batch: nobody was served before somebody who came first. */
bool order_holds(struct run *run, unsigned first) MUST_CHECK;
/* It waits, for any slots, and was refused for want of room, not because something that it wants is closed. */
bool is_held_up(const struct decided *decided);
bool step_is_administrative(const struct step *step);
/* True if equal; else a line in `problem` says what differs. */
bool verdict_equal(const struct verdict *expected, const struct verdict *got, struct buf *problem) MUST_CHECK;

/* ---- text ---- */

/*
 * One operation: "acquire k1 a b:2 ttl=30s owner=1", "release k1", "~renew k1 ttl=none", "release k1 confirmed",
 * "expire k1 owner_dead", "force_release k1 why=1", "put a capacity=2 counted", "pause a why=1", "retire a". A leading
 * ~ is an empty set of locks from a stale directory; "walks" and "cut=1" say how an acquire's batch reads due holders;
 * "a:2@1,3,L4" are two of these, "a@1,L2" exactly these, "a:2~" and "a:2~@1,2,3" neighbours; "labels a from=2
 * labels=L1,-,L3" and "put a labels=L1" name slots. "waiter", "aged", "behind" is its place in its first batch, "waits"
 * that it waits for one batch, "patience=2" that it comes again twice as a waiter, "aged_at=2" from when on as an aged
 * one. False: not understood.
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

/* A run's decisions in other batches. */
struct split {
    struct script script;
    unsigned repeats[MODEL_STEPS]; /* of a step: the number of the decision that it stands for, */
    bool again[MODEL_STEPS];       /* and it only comes again, at the head of a batch, because it still waits */
};
/*
 * The operations of a run in the order they were decided, in other batches that lead to the same order. Who waits and
 * was refused in one batch comes first in the next. False: there is no room for that many.
 */
bool split_run(const struct run *run, uint64_t seed, struct split *ret_split);
/* Each operation of the other run has ended as in the first one; else *problem says which has not. */
bool split_equal(const struct run *run, const struct run *other, const struct split *split, struct buf *problem);
#endif
