/* SPDX-License-Identifier: MIT */
/* Reads the tables with SQL, without any of permitd's code. */
#ifndef ROWS_H
#define ROWS_H

#include "caller.h"
#include "ledger.h"

/*
 * Reads the rows of all keys in [from, to) and records each as a CALL_QUERY; a key without a row is SAYS_UNKNOWN. Slots
 * are the granted numbers of the permit.
 */
void rows_record(struct kit_sql *sql, const struct world *world, unsigned from, unsigned to, struct history *history);
/* All requests of this run (by their keys), with their permits. The caller releases the ledger. */
struct ledger rows_read(struct kit_sql *sql, const struct world *world);
/* Number of places in all queues, kept places included. */
int64_t rows_places(struct kit_sql *sql);
/* Waits until no queue has a place: every client has gone, and kept places have ended. Returns false after `ms`. */
bool rows_await_no_places(struct kit_sql *sql, int ms);
/* The lease clock (docs/design.md), and its value at the last tick, in microseconds. */
int64_t rows_lease_time(struct kit_sql *sql);
int64_t rows_ticked(struct kit_sql *sql);
/*
 * Checks that the tables are consistent: in_use equals the units of the permits held and is within the capacity, every
 * held request has permits, slots and permits refer to each other, `held` has one bit for each held permit, in the row
 * with the second of the deadline and the owner, and no other bits, and `waiting_due` has one row for each waiting
 * request, with the second of its deadline, and no other rows; and past permits are of exchanges of their requests, and held
 * no more, but for what was not given back. Each rule is one statement, so permitd may be at work.
 * Needs a database whose capacities were not changed.
 */
bool rows_check(struct kit_sql *sql, char message[MESSAGE_SIZE]);
/*
 * Checks the ended requests in the order of time: no semaphore ever had more units held than its capacity, a later
 * token was granted later, no request expired before its ttl had passed. Needs a run without clock steps and with
 * constant capacities.
 */
bool rows_check_past(struct kit_sql *sql, char message[MESSAGE_SIZE]);
#endif
