/* SPDX-License-Identifier: MIT */
/*
 * Exchanges: what clients give back of a held request and take for it. exchanges.c chooses and sends them,
 * oracle_exchange.c checks them.
 */
#ifndef SIM_EXCHANGE_H
#define SIM_EXCHANGE_H

#include "oracle.h"

enum { CHANGES_MAX = 24 };

/* The units and slots that a request holds of one semaphore. */
struct held_units {
    struct db_semaphore *semaphore;
    uint64_t token;
    int64_t count;
    uint32_t slots; /* a bit per number; 0: they are not known, or it is counted */
};

/* What a request holds between two changes. */
struct held_state {
    bool known; /* its row has it, or has had it */
    size_t count;
    struct held_units units[HELD_PERMITS_MAX];
};

/* One exchange, which has a nonce. It may be sent several times. */
struct exchange {
    struct exchange *older; /* of the same story */
    char nonce[24];
    uint32_t changes;
    struct want given[ROW_PERMITS_MAX], taken[ROW_PERMITS_MAX];
    struct slot_name given_names[ROW_PERMITS_MAX][HELD_SLOTS_MAX], taken_names[ROW_PERMITS_MAX][ROW_SLOTS_MAX];
    size_t given_count, taken_count;
    bool gives_all; /* and takes nothing: a release */
    unsigned sent, pending,
        unknown; /* its calls; of these the ones without an answer, and those with an unknown result */
    bool made;   /* by the rows */
    bool answered, answered_as_new; /* an answer said that it is made; that it was not made before */
};

/* The exchanges of a story; there are none before the first one is sent. */
struct exchanges {
    struct exchange *newest;
    unsigned count;
    struct held_state states[CHANGES_MAX + 1]; /* by the number of changes */
    uint32_t answered;                         /* the last number of changes in an answer */
    mono_us changed_at;                        /* the last change of its row, or its undoing */
};

/* ---- exchanges.c ---- */

/* Decides by chance if the next call under this key is an exchange. */
bool exchange_is_next(const struct story *story);
/* A call with a new exchange, or with one that was sent before. */
struct call *exchange_call(int process, struct story *story);

/* ---- oracle_exchange.c ---- */

void exchange_sent(struct call *call);
/* The result of a call is known; or it stays unknown. */
void exchange_answered(const struct call *call, const struct decision *decision);
void exchange_unknown(const struct call *call);
/* Any answer that shows the permits of the key: they are those that the row had with this number of changes. */
void exchange_check_shown(struct story *story, const struct request *request);
/* A commit has changed the row of the key: makes a grant or an exchange known, and checks the latter. */
void exchange_committed(const struct transaction *transaction, struct db_key *key, const struct request_row *before);
/* The row of the key is as it was before. */
void exchange_undone(struct db_key *key, bool failover);
/* The units that it gives back of this semaphore. */
int64_t exchange_gives(const struct exchange *exchange, struct bytes semaphore);
/* P2: a transaction that changes what a request has held has locked all its semaphores. */
void exchange_check_locks(const struct transaction *transaction);
#endif
