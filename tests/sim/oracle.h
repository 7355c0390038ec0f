/* SPDX-License-Identifier: MIT */
/*
 * What was promised, looked at while it happens: by what the rows become (oracle_committed...) and by what clients are
 * told (story). The promises are those of docs/reliability.md.
 */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "database.h"
#include "engine/engine.h"

/* A violation ends the run. `promise` is "P1", ... */
void violation(const char *promise, const char *format, ...) PRINTF_LIKE(2, 3) __attribute__((noreturn));
/* A step, for whoever reads the end of a run that failed. Cheap when nobody does. */
#define step(...)                                                                                                      \
    do {                                                                                                               \
        if (steps_wanted)                                                                                              \
            step_write(__VA_ARGS__);                                                                                   \
    } while (0)
extern bool steps_wanted;
void step_write(const char *format, ...) PRINTF_LIKE(1, 2);

/* One call of a client. It lives until it is decided, or its process is dead. */
struct call {
    struct op op;
    struct operation operation;
    struct want wants[ROW_PERMITS_MAX];
    struct semaphore_change change;
    struct bytes labels[SLOTS_MAX]; /* of the change */
    char principal[24];             /* when it was sent: what is made for it bears that */
    char nonce[NONCE_MAX_BYTES];
    struct list node;   /* of its process */
    struct list of_key; /* acquires of its story that are on their way */
    struct story *story;
    int process;
    uint64_t number;
    mono_us sent_at;
    mono_us wait_until;     /* 0: it does not wait */
    bool waited;            /* it did, also if its client has left */
    bool ran_alone;         /* when its key was granted this was the only acquire that can have done it */
    bool other_payload;     /* of another request under the same key */
    mono_us servable_since; /* P17; 0: it is not */
    mono_us hopeless_since; /* the same: it can never be served as it is asked */
    int64_t excused_us;     /* its process was stopped for so long */
    bool answered_late;     /* by the HTTP loop at its deadline, without a decision */
    struct client *client;
};

/* What has been done under one key, and what was said about it. */
struct story {
    struct db_key *key;
    struct want wants[ROW_PERMITS_MAX];
    struct db_semaphore *semaphores[ROW_PERMITS_MAX];       /* that they are for */
    struct slot_name names[ROW_PERMITS_MAX][ROW_SLOTS_MAX]; /* that they name */
    size_t want_count;
    struct ttl ttl;
    unsigned char digest[DIGEST_SIZE];

    /* By the rows. */
    mono_us held_from, held_until; /* the last time it was held; NEVER: it is */
    mono_us extended_at;           /* the grant or the last renewal was committed */
    bool ever_held;
    int64_t jumps; /* that were over then */

    /* By what was answered. */
    bool grant_told; /* with these tokens */
    mono_us grant_told_at;
    uint64_t tokens[ROW_PERMITS_MAX];
    uint32_t slots[ROW_PERMITS_MAX]; /* a bit per number */
    uint32_t renewals_told;
    bool end_told; /* an answer said that it has ended, or was released */
    mono_us end_told_at;
    mono_us first_sent_at;            /* of an acquire or renewal */
    mono_us waited_at[PROCESSES_MAX]; /* it first waited at this process; 0: never */
    mono_us surely_until;             /* no sooner may it expire */
    bool release_sent;
    bool confirm_sent;
    bool lost; /* a failover has lost something of it */

    struct list acquires; /* struct call: on their way */
    unsigned unknown;     /* acquires of which nobody knows what became of them */
    bool surely_held;     /* it counts in `sure` */
    unsigned calls, done;
    bool retired;
};

/* What happens in this run. Rates are "once in so many". */
struct profile {
    bool calm;       /* nothing fails: then it must also be quick and fair */
    bool sleepy;     /* and not much happens */
    int64_t hold_ms; /* of a failover */
    bool capacity_changes;
    bool label_changes;
    bool templates;          /* operators put them, and clients ask for names that only they know */
    uint64_t max_semaphores; /* templates make no more */
    size_t most_requests;    /* a write of more takes longer than the session's time-out; 0: there is no such bound */
    bool clock_steps;
    bool failovers;
    int engines;
};
extern struct profile profile;
/* The database's clock jumps, now: each time may take 5 s of a ttl, until a tick or two later. */
void oracle_clock_jumps(void);
/* How many jumps are over: of the clock, since the run began, for what is granted now. */
int64_t oracle_jumps_over(void);

/* It may be had for this want: named, or none is. */
bool want_lists(const struct want *want, const struct semaphore_row *row, uint32_t number);
/* As it is asked it can never be served by what the row and its labels are now: "422 at once". */
bool want_is_hopeless(const struct want *want, const struct semaphore_row *row);
/* It wants certain slots of some semaphore. */
bool story_is_certain(const struct story *story);
struct story *story_new(struct db_key *key);

/* ---- rows ---- */

/* Before the commit becomes visible. */
void oracle_commits(const struct transaction *transaction);
/* The row of the key has become this, by a commit. */
void oracle_changed(struct db_key *key, const struct request_row *before);
void oracle_semaphore_changed(struct db_semaphore *semaphore, const struct semaphore_row *before);
/* An undone commit had changed it. */
void oracle_semaphore_undone(struct db_semaphore *semaphore);
/* By a commit, or because one was undone. */
void oracle_template_changed(struct db_template *template);
/* An undone commit had changed the key; the row is now as it was before. */
void oracle_undone(struct db_key *key, const struct request_row *undone, bool failover);
/* All of it: rows among each other. */
void oracle_rows_agree(void);

/* ---- oracle_names.c: what templates make ---- */

/* The row was made, or came into service again, by a commit with these records. */
void names_made(struct db_semaphore *semaphore, const struct semaphore_row *before, const struct changes *changes);
/* Whether there is something behind its name may have changed. */
void names_follow(struct db_semaphore *semaphore);
/* An acquire was refused. */
void names_refused(const struct call *call, const struct decision *decision);

/* ---- calls ---- */

void oracle_sent(struct call *call);
/* The call is decided. */
void oracle_told(struct call *call, const struct decision *decision);
/* Nobody will ever know (its process was killed); or it left, and holds nothing by this. */
void oracle_forgotten(struct call *call);
void oracle_left(struct call *call);

extern struct counts {
    uint64_t told[OP_KIND_COUNT][PERMIT_STATUS_COUNT];
    uint64_t waited, served_after_wait, abandoned, certain; /* the last: grants of certain slots */
    uint64_t made, revived, labelled, templates_changed;    /* by templates, by operators */
    mono_us longest_servable;
} counts;
#endif
