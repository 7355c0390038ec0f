/* SPDX-License-Identifier: MIT */
/* How exactly permits end at their deadline: measured here for the suite and for the benchmark. */
#ifndef EXPIRY_H
#define EXPIRY_H

#include "site.h"
#include "spread.h"

/*
 * So many holders with this ttl that nobody renews. From their grant to their end as the rows say (served time), and
 * the age of the oldest holder that a look from outside ever found (the database's clock). Ends the process if one ends
 * before its ttl is over, by the rows or by that look, or if some are held after `wait_ms` more.
 */
void expiry_run(struct site *site, unsigned holders, unsigned ttl_ms, int wait_ms, struct spread *ret_lives,
                int64_t *ret_oldest_us);

struct demand {
    unsigned threads; /* each with a semaphore of one unit */
    unsigned rounds;  /* of each */
    unsigned ttl_ms;
    unsigned retry_ms; /* a client that is refused asks again after this */
};

/*
 * Somebody holds the unit and does not renew, somebody else wants it and asks all the time: how long after the deadline
 * it was granted again, by the rows. Ends the process if that is before the deadline, or if somebody is refused after
 * it.
 */
void demand_run(struct site *site, const struct demand *demand, struct spread *ret_late);
#endif
