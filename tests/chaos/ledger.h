/* SPDX-License-Identifier: MIT */
/*
 * Ledger: all requests as the tables store them, and the checkers of it. Each checker returns true if the ledger keeps
 * the promise that the function names; otherwise false, with a sentence in `message`. Times of a ledger are of the
 * lease clock, in microseconds; times of a history are of the clients' clock. rows.h reads a ledger. Requests are never
 * deleted in these runs.
 */
#ifndef LEDGER_H
#define LEDGER_H

#include "checkers.h"

/* Values of permit_request.end_reason. */
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
    bool acquired; /* state is ACQUIRED */
    bool torn;     /* `held` does not fit one of its permits, or its semaphore is not in the facts */
    bool confirmed;
    enum entry_end end;
    unsigned renewals;
    int64_t ttl_us;      /* 0: no ttl */
    int64_t acquired_us; /* ENTRY_NEVER: never granted */
    int64_t ended_us;    /* ENTRY_NEVER: still held */
    size_t share_count;
    struct share shares[SHARES_MAX]; /* ascending by semaphore */
};

struct ledger {
    struct entry *entries;
    size_t count;
    size_t room;
};

/* Copies the entry and sorts its shares. */
void ledger_add(struct ledger *ledger, const struct entry *entry);
void ledger_release(struct ledger *ledger);

/*
 * C2 (P1, P2, P9): replays the grants of each semaphore in the order of their tokens, each after all earlier or
 * simultaneous ends. Each grant fits, no slot has two holders, a later token was granted later, nothing ends before it
 * begins, and every request has one consistent state. The lease clock goes back some seconds when the database's clock
 * does: grants near such a jump may overlap.
 */
bool check_replay(const struct ledger *ledger, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * C5 (P2, P3, P4, P6): every acknowledged grant and every acknowledged end is in the ledger, with the same tokens and
 * slots. A request has all permits it asked for. No request was ended by a release that was not sent.
 */
bool check_kept(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                char message[MESSAGE_SIZE]);
/*
 * C6 (P6, P7): read_us is the time at which the ledger was read, quiet_us the end of the last fault (clients' clock).
 * The ledger has no inconsistent states, no request held more than 5 s beyond its lease, and no held request whose end
 * was acknowledged.
 */
bool check_quiet(const struct ledger *ledger, const struct history *history, const struct facts *facts,
                 int64_t quiet_us, int64_t read_us, char message[MESSAGE_SIZE]);
/*
 * C7 (P7, P8): every expired request had a lease, was not confirmed, and ended at most `late_us` after its lease and at
 * most facts->early_us before. Renewed requests are left to check_ends. *ret_latest_us: the longest time a request was held beyond its
 * lease.
 */
bool check_expiry(const struct ledger *ledger, const struct facts *facts, int64_t late_us, int64_t *ret_latest_us,
                  char message[MESSAGE_SIZE]);
#endif
