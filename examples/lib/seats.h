/* SPDX-License-Identifier: MIT */
/* Many clients click one seat: shared by the examples with halls. */
#ifndef SEATS_H
#define SEATS_H

#include "crowd.h"

/* The end of the example unless the status is this one. */
void must(int status, int expected, const char *what);
/* Returns true for a grant. 200: the first try, whose answer was lost, had been granted. */
bool granted(const struct answer *answer);

/* The number of the slot at this index of a grant's first permit; 0: there is none. */
int64_t slot_of(struct answer *answer, unsigned index);

/* Clicks of all clients on one seat. The first member of the context of the crowd. */
struct clicks {
    const char *label;
    unsigned won, told, unexplained; /* told: that it is taken */
    double last_ms;
};

/*
 * All clients click the seat of the semaphore hall at once. Claims that one of them gets it; the figure says how long
 * it took until all were answered.
 */
void click_one_seat(struct crowd *crowd, unsigned clients, const char *label, const char *what);
#endif
