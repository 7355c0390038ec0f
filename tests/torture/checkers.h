/* SPDX-License-Identifier: MIT */
/*
 * Judges of a history. Each returns true if nothing in it breaks the promise it stands for, else false with a sentence
 * in `message`. They know what clients can know: a permit is surely held from the first answer that says so to the
 * moment before the first release of its key was sent or its lease was over, counted from before the last call that
 * prolonged it was sent; what lies outside may have been so or not, and is not held against anybody.
 */
#ifndef CHECKERS_H
#define CHECKERS_H

#include "history.h"

enum { MESSAGE_SIZE = 256 };

enum { LEAPS_MAX = 256 };

/* A jump of the database's clock: it may take LEAP_TAKES_US from what was held then. */
struct leap {
    int64_t at_us;     /* by the clients' clock */
    int64_t served_us; /* served time just before */
};

struct facts {
    const struct semaphore_facts *semaphores;
    size_t count;
    struct leap leaps[LEAPS_MAX];
    size_t leap_count;
};

#define LEAP_TAKES_US 5000000 /* P8 */

/* One thread only. Ends the process if there are too many. */
void facts_add_leap(struct facts *facts, int64_t at_us, int64_t served_us);

/* P1: the units surely held at one moment never exceed the capacity, and no slot is held twice. */
bool check_capacity(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/* P3: every answer that says a key is held names the same permits, tokens and slots. */
bool check_keys(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * P9: no token of a semaphore is given twice; what was asked for after a grant was known has a larger token than that.
 */
bool check_tokens(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * P4, P5, P6, P8, P11: a key once known as held is neither ended, unknown nor without capacity before a release was
 * sent or its lease was over; a key whose end was acknowledged is never held again.
 */
bool check_ends(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/*
 * C7 (P10): a store that keeps the largest token it has seen on each slot refused nobody who surely held, and took
 * nothing older after something newer. Writes are the calls of kind CALL_WRITE.
 */
bool check_fence(const struct history *history, const struct facts *facts, char message[MESSAGE_SIZE]);
/* Every answer has a status that its call may have; with `faults` also 503, 429 and no answer at all. */
bool check_statuses(const struct history *history, bool faults, char message[MESSAGE_SIZE]);
#endif
