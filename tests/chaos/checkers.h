/* SPDX-License-Identifier: MIT */
/*
 * Checkers of a history. Each returns true if the history keeps the promise that the function names; otherwise false,
 * with a sentence in `message`. They use only what clients can know. A permit is surely held from the first answer with
 * SAYS_HELD until the first release of its key is sent or its lease ends. The lease is counted from the time at which
 * the last call that extended it was sent. Outside this interval the permit may or may not be held, and the checkers
 * accept both.
 */
#ifndef CHECKERS_H
#define CHECKERS_H

#include "history.h"

enum { MESSAGE_SIZE = 384 };

enum { LEAPS_MAX = 256 };

/* A jump of the database's clock. */
struct leap {
    int64_t at_us;     /* clock of the clients */
    int64_t served_us; /* lease clock just before the jump */
};

struct facts {
    const struct semaphore_facts *semaphores;
    size_t count;
    struct leap leaps[LEAPS_MAX];
    size_t leap_count;
    int64_t early_us; /* P8: a lease may end this much early */
};

/* P8: facts.early_us if permitd are stopped or answers lost, and else. */
#define EARLY_US       5000000
#define EARLY_QUIET_US 1000000

/* Not thread-safe. Ends the process if there are more than LEAPS_MAX. */
void facts_add_leap(struct facts *facts, int64_t at_us, int64_t served_us);

/* P1: the units surely held at any time never exceed the capacity, and no slot has two holders. */
bool check_capacity(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/* P3: all answers with SAYS_HELD for a key have the same permits, tokens and slots. */
bool check_keys(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * P9: a token is issued once in its semaphore. If a request is sent after a grant was known, its token is larger than
 * the token of that grant.
 */
bool check_tokens(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * P4, P5, P6, P8, P11: once a key is known as held, no answer calls it ended, unknown or without capacity before a
 * release is sent or its lease ends. A key is never held again after its end was acknowledged.
 */
bool check_ends(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * C7 (P10): the fenced store keeps the largest token it has seen on each slot. It must not refuse a write of a sure
 * holder, nor accept an older token after a newer one. Writes are the calls of kind CALL_WRITE.
 */
bool check_fence(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/* Every answer has a status that its call may have. With `faults`, 503, 429 and no answer are allowed as well. */
bool check_statuses(const struct history *history, bool faults, char message[MESSAGE_SIZE]);
#endif
