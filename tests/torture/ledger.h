/* SPDX-License-Identifier: MIT */
/*
 * What the tables remember of every request, and the judges of that: each returns true if nothing breaks the promise it
 * stands for, else false with a sentence in `message`. Times here are served time, in microseconds; those of a history
 * are the clients' own clock. rows.h reads a ledger; requests are never deleted in these runs.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include "checkers.h"

/* As permit_request.end_reason. */
enum entry_end {
    ENTRY_HELD,
    ENTRY_RELEASED,
    ENTRY_EXPIRED,
    ENTRY_OWNER_DEAD,
    ENTRY_STALE,
    ENTRY_FORCED,
    ENTRY_NEVER_HELD
};

#define ENTRY_NEVER INT64_MAX

/* One request with its permits. */
struct entry {
    unsigned key;
    bool acquired; /* its state */
    bool torn;     /* a permit of it has another state, or its semaphore is not one of the facts */
    bool confirmed;
    enum entry_end end;
    unsigned renewals;
    int64_t ttl_us;      /* 0: none */
    int64_t acquired_us; /* ENTRY_NEVER: it never held anything */
    int64_t ended_us;    /* ENTRY_NEVER: it is held */
    size_t share_count;
    struct share shares[SHARES_MAX]; /* ascending by semaphore */
};

struct ledger {
    struct entry *entries;
    size_t count;
    size_t room;
};

/* Copies the entry; its shares are put in order. */
void ledger_add(struct ledger *ledger, const struct entry *entry);
void ledger_release(struct ledger *ledger);

/*
 * C2 (P1, P2, P9): the grants of each semaphore replayed in the order of their tokens, each after the ends that came
 * before it or in the same moment: there is room for each, no slot is held twice, later tokens were granted later,
 * nothing ended before it began, a request has one state. Served time goes back by some seconds when the clock does:
 * what was granted near such a moment may overlap.
 */
bool check_replay(const struct ledger *ledger, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * C5 (P2, P3, P4, P6): every grant and every end that was acknowledged is in the ledger, with these tokens and slots; a
 * request has all the permits that were asked for; nobody's request was ended by a release that nobody sent.
 */
bool check_kept(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                char message[MESSAGE_SIZE]);
/*
 * C6 (P6, P7): read_us is when the ledger was read, quiet_us when the last fault had ended, by the clients' clock. No
 * half states, nothing held whose lease was over 5 s before, nothing held that was acknowledged as ended.
 */
bool check_quiet(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                 int64_t quiet_us, int64_t read_us, char message[MESSAGE_SIZE]);
/*
 * C7 (P7, P8): what expired had a lease, was not confirmed, and ended not before that was over and at most `late_us`
 * later. Renewed ones are left to check_ends. *ret_latest_us: the longest that one was held beyond its lease.
 */
bool check_expiry(const struct ledger *ledger, int64_t late_us, int64_t *ret_latest_us, char message[MESSAGE_SIZE]);
#endif
