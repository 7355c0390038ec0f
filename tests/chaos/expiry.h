/* SPDX-License-Identifier: MIT */
/* Measures how exactly permits end at their deadline, for the suite `ends` and for the benchmark. */
#ifndef EXPIRY_H
#define EXPIRY_H

#include "fixture.h"
#include "spread.h"

/*
 * Runs `holders` requests with this ttl that are not renewed. ret_lives: from grant to end, by the rows (lease clock).
 * *ret_oldest_us: the age of the oldest holder that any query found (clock of the database). Ends the process if a
 * request ends before its ttl has passed, by the rows or by a query, or if some are still held `wait_ms` later.
 */
void expiry_run(struct fixture *fixture, unsigned holders, unsigned ttl_ms, int wait_ms, struct duration_set *ret_lives,
                int64_t *ret_oldest_us);

struct demand {
    unsigned threads; /* each has a semaphore with one unit */
    unsigned rounds;  /* per thread */
    unsigned ttl_ms;
    unsigned retry_ms; /* a refused client repeats its request after this time */
};

/*
 * A holder does not renew, and another client requests its unit repeatedly. ret_late: from the deadline to the next
 * grant, by the rows. Ends the process if the unit is granted before the deadline, or if a request is refused after it.
 */
void demand_run(struct fixture *fixture, const struct demand *demand, struct duration_set *ret_late);
#endif
