/* SPDX-License-Identifier: MIT */
/*
 * Checks the promises while the run goes on: by the changes of rows and by the answers to clients
 * (story). docs/reliability.md has the promises.
 */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "database.h"
#include "engine/engine.h"

struct exchange;
struct exchanges;
enum { BASKET_MAX = 4 };

/* Ends the run. `promise` is "P1", ... */
void violation(const char *promise, const char *format, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* Records a step, for the analysis of a failed run. Cheap if steps are not wanted. */
#define step(...)                                                                                                      \
    do {                                                                                                               \
        if (steps_wanted)                                                                                              \
            step_write(__VA_ARGS__);                                                                                   \
    } while (0)
extern bool steps_wanted;
void step_write(const char *format, ...) PRINTF_LIKE(1, 2);

enum { WISH_SIZE = 32 };
/* Keys that are confirmed only together, by one call or repetitions of it. */
struct basket {
    struct story *stories[BASKET_MAX];
    size_t count;
};

/* One call of a client. Freed when it is decided or its process is dead. */
struct call {
    struct op op;
    struct operation operation;
    struct want wants[ROW_PERMITS_MAX];
    struct bytes keys[BASKET_MAX]; /* of the basket that it confirms */
    struct semaphore_change change;
    struct bytes labels[SLOTS_MAX]; /* of the change */
    struct seat seats[SLOTS_MAX];   /* of the change */
    char principal[24];             /* the time it was sent; events of a creation have it */
    char nonce[NONCE_MAX_BYTES];
    char metadata[METADATA_SIZE];
    struct list node;   /* in the list of its process */
    struct list of_key; /* in the list of its story's pending acquires */
    struct story *story;
    int process;
    uint64_t number;
    mono_us sent_at;
    mono_us wait_until;          /* 0: does not wait */
    bool waited;                 /* it has waited, even if its client has left */
    bool ran_alone;              /* when its key was granted this was the only acquire that can have done it */
    bool left;                   /* its client left while its batch ran */
    bool other_payload;          /* a different request under the same key */
    mono_us servable_since;      /* P17: could be granted since; 0: cannot */
    mono_us decided_since;       /* P17: waits, but its row does not wait at its permitd, since */
    mono_us unsatisfiable_since; /* P17: can never be granted since; 0: can */
    int64_t excused_us;          /* time during which its process was stopped */
    bool answered_late;          /* the HTTP loop answered at the deadline, without a decision */
    struct client *client;
    struct exchange *exchange; /* exchange.h */
};

/* The calls under one key, and their answers. */
struct story {
    struct db_key *key;
    struct want wants[ROW_PERMITS_MAX];
    struct db_semaphore *semaphores[ROW_PERMITS_MAX];       /* the semaphores it wants */
    struct slot_name names[ROW_PERMITS_MAX][ROW_SLOTS_MAX]; /* the slots it names */
    char wishes[ROW_PERMITS_MAX][WISH_SIZE];                /* how it chooses seats */
    size_t want_count;
    struct ttl ttl;
    unsigned char digest[DIGEST_SIZE];

    /* By the rows. */
    mono_us held_from, held_until; /* last time it was held; held_until NEVER: still held */
    mono_us extended_at;           /* commit of the grant or of the last renewal */
    bool ever_held;
    mono_us due_set_at; /* when its deadline was last set, which was at most so far away: */
    int64_t due_in_us;
    mono_us due_was_set_at; /* the same of the deadline before */

    /* By the answers. */
    bool grant_answered; /* with these tokens */
    mono_us grant_answered_at;
    uint64_t tokens[ROW_PERMITS_MAX];
    uint32_t slots[ROW_PERMITS_MAX]; /* a bit per number */
    uint32_t renewals_answered;
    bool end_answered; /* an answer said ended or released */
    mono_us end_answered_at;
    mono_us first_sent_at;            /* of an acquire or renewal */
    mono_us waited_at[PROCESSES_MAX]; /* when it first waited at this process; 0: never */
    mono_us surely_until;             /* it does not expire before */
    bool release_sent;
    bool confirm_sent;
    struct basket *basket;       /* NULL: it is confirmed alone */
    bool lost;                   /* a failover has lost a part of it */
    struct exchanges *exchanges; /* exchange.h; NULL: none was sent */

    /* Of its last place in the queue. */
    uint64_t place_id; /* of its row; 0: it has had none */
    utc_us place, place_since;
    mono_us asked_at;       /* last commit by which its row waits */
    uint64_t given_up_of;   /* the server at which it waited when another permitd gave its place up; 0: none */
    mono_us given_up_at;    /* when that was */
    mono_us client_seen_at; /* when a client was last seen to wait for it; calm runs only */
    mono_us left_at;        /* when a client has last left */
    mono_us other_at;       /* when its row was last that of another request under the same key */

    struct list acquires; /* struct call: pending acquires */
    unsigned unknown;     /* number of acquires without a known result */
    bool surely_held;     /* counted in `sure` */
    unsigned calls, done;
    bool retired;
};

/* Settings of this run. Rates are "once in so many". */
struct profile {
    bool calm;       /* no faults: then it must also be quick and fair */
    bool low_load;   /* calm, with few calls */
    int64_t hold_ms; /* of a failover */
    bool capacity_changes;
    bool label_changes;
    bool templates;          /* operators change templates, and clients use names that only templates cover */
    uint64_t max_semaphores; /* templates create no more above this */
    size_t most_requests;    /* a larger write exceeds the time limit of the session; 0: no limit */
    size_t max_packet; /* bytes of a write that the database accepts; 0: no limit. A single operation needs less */
    bool clock_steps;
    bool clocks; /* the clock of the database does what it can, permitd are restarted, and little else fails */
    bool failovers;
    bool deaths;   /* permitd are killed, stopped or paused for long, and clients wait for long */
    bool lopsided; /* most clients call one permitd */
    bool halls;    /* slots have seats, operators change them, and clients ask for the best */
    bool short_path;
    int64_t shared_pause_ms;
    bool strangers;     /* sessions of others lock rows of semaphores, change nothing, and give them up */
    bool shops;         /* procedures sell and end held requests in transactions of their callers */
    bool exchanges;     /* clients exchange what they hold */
    bool few_waits;     /* most acquires do not wait, so that queues are empty and the short path is taken */
    bool plain_waits;   /* clients ask for any units of one semaphore, so that its queue is cached */
    uint64_t feed_rows; /* with run_with_feed: so many events are kept */
    int64_t backfill_bound_ms;
    int64_t wait_max_ms, ttl_max_ms;
    int engines;
};
extern struct profile profile;
/* P8: a permitd is stopped or goes on, an answer is lost, the database goes or comes back. */
void oracle_troubled(void);
/* A permitd ends or starts. */
void oracle_restarted(void);
/* How much earlier than its ttl in true time a permit may end that was granted then. */
int64_t oracle_early_us(mono_us granted_at);
/* P7: looks for requests that are held long after their deadline although nothing has failed. */
void oracle_watch_late(void);

/* True if the want accepts this slot: the slot is named, or the want names none. */
bool want_lists(const struct want *want, const struct db_semaphore_row *row, uint32_t number);
/* True if the want can never be satisfied with this row and its labels: answered 422 immediately. */
bool want_is_unsatisfiable(const struct want *want, const struct db_semaphore_row *row);
/* True if it wants specific slots of a semaphore. */
bool story_is_specific(const struct story *story);
struct story *story_new(struct db_key *key);

/* ---- oracle_seats.c: best seats ---- */

/* True if the wish accepts the seat of this slot. */
bool seat_is_wanted(const struct want *want, const struct db_semaphore_row *row, uint32_t number);
/* True if the wish can be met by free seats; if all were free. */
bool seats_are_free(const struct want *want, const struct db_semaphore_row *row);
bool seats_exist(const struct want *want, const struct db_semaphore_row *row);
/* Checks the seats of a grant of the commit that is visible now. */
void seats_check_grant(const struct transaction *transaction, const struct story *story, const struct want *want,
                       const struct db_semaphore *semaphore, const struct permit *permit);

/* ---- rows ---- */

/* Called before the commit becomes visible. */
void oracle_commits(const struct transaction *transaction);
/* A commit has changed the row of the key. */
void oracle_changed(struct db_key *key, const struct request_row *before);
void oracle_semaphore_changed(struct db_semaphore *semaphore, const struct db_semaphore_row *before);
/* Undone: a commit that had changed the semaphore. */
void oracle_semaphore_undone(struct db_semaphore *semaphore);
/* By a commit, or because a commit was undone. */
void oracle_template_changed(struct db_template *template);
/* Undone: a commit that had changed the key. The row is as before. */
void oracle_undone(struct db_key *key, const struct request_row *undone, bool failover);
/* Checks the consistency of all rows. */
void oracle_rows_agree(void);

/* ---- oracle_names.c: creation from templates ---- */

/* A commit with these events has created the row or put it into service again. */
void names_created(struct db_semaphore *semaphore, const struct db_semaphore_row *before,
                   const struct changes *changes);
/* The name may have gained or lost its semaphore or template. */
void names_update(struct db_semaphore *semaphore);
/* An acquire was refused. */
void names_refused(const struct call *call, const struct decision *decision);

/* ---- oracle_feed.c: events of the feed (P26) ---- */

/* The commit that is becoming visible has changed the row of this key. */
void feed_expect(const struct db_key *key, const struct request_row *before);
/* The commit is visible: its events are those of its changes. */
void feed_committed(const struct transaction *transaction);
/* Events have got numbers. */
void feed_numbered(const struct transaction *transaction);
/* Events were deleted. */
void feed_trimmed(void);
/* Readers see numbers up to database.globals.feed_durable from now on. */
void feed_shown(void);
/* Commits were undone, by a crash or a failover. */
void feed_undone(bool failover);
/* Waits until all events have numbers. Inside a fiber, when no more faults happen. */
void feed_settles(void);

/* ---- oracle_servers.c: the permitd that run on the database (P20) ---- */

/* A permitd was answered that this is its id. */
void oracle_server_joined(uint64_t id);
/* A permitd was answered that its heartbeat was written. */
void oracle_server_seen(uint64_t id);
/* The row of a permitd is about to be declared dead. */
void oracle_server_dies(const struct db_server_row *row);
/* Waits until the table has exactly the running permitd. Inside a fiber, when no more faults happen. */
void oracle_servers_settle(void);

/* The process of the permitd that has this id; -1: there is none any more. */
int oracle_server_process(uint64_t id);
/* The process that has taken this id, even if it was killed since then. */
int oracle_server_joined_by(uint64_t id);
/* When it was declared dead; NEVER: it was not. */
mono_us oracle_server_died_at(uint64_t id);

/* ---- oracle_queue.c: the rows of the queue (P17, P20, P21, P22, C8) ---- */

/* Called after the commit is visible. */
void queue_committed(const struct transaction *transaction);
/* Checks the consistency of all rows of the queue. */
void queue_rows_agree(void);
/* A client was answered that its acquire has done nothing. */
void queue_refused(const struct call *call, enum permit_status status);
/* True if the key waits at a permitd that is alive. */
bool queue_is_asked(const struct db_key *key);
/* True if a client waits for it at its permitd, and did so at this time. */
bool queue_has_client(const struct db_key *key, mono_us since);
/* The place of a waiter at this semaphore; NULL: none. */
const struct place_row *row_place(const struct request_row *row, uint64_t semaphore_id);
/* True if no waiter that somebody asks for stands before it. */
bool queue_is_first(const struct db_key *key);
/* Checks that the waiting rows have clients; in a calm run. */
void queue_watch(void);
/* Waits until no place is left. Inside a fiber, when all clients have gone. */
void queue_settles(void);

/* ---- oracle_walk.c: the order of the queue, and its reservations (P20) ---- */

/* Checks a grant of the commit that is visible now. */
void walk_check_grant(const struct transaction *transaction, const struct db_key *key);
/* True if the waiter fits beside all that those before it need or have reserved; false also if that is not sure. */
bool walk_would_grant(const struct db_key *key);
/* Checks what an exchange of the commit that is visible now has taken. */
void walk_check_exchange(const struct transaction *transaction, const struct db_key *key,
                         const struct exchange *exchange);
/* P20: a request that does not wait is refused only if the walk does not grant it. Exact if nothing has changed since. */
void walk_check_refusal(const struct call *call);

/* ---- calls ---- */

void oracle_sent(struct call *call);
/* The call is decided. */
void oracle_answered(struct call *call, const struct decision *decision);
/* The result stays unknown (its process was killed); or its client left, and it holds nothing by this call. */
void oracle_result_unknown(struct call *call);
void oracle_client_left(struct call *call);

extern struct counts {
    uint64_t told[OP_KIND_COUNT][PERMIT_STATUS_COUNT];
    uint64_t waited, served_after_wait, abandoned, certain; /* grants of specific slots */
    uint64_t made, revived, labelled, templates_changed;    /* by templates; by operators */
    mono_us longest_servable;
    uint64_t exchanges, exchanges_refused, exchanges_repeated;
    uint64_t order_judged, refusals_judged; /* grants and refusals that the all-knowing walk could judge */
    uint64_t seats_judged;                  /* grants of best seats, as the best of all that are free */
    uint64_t events, omitted;               /* of the feed: with a number; while it was full */
} counts;
#endif
