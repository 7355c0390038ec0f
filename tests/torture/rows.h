/* SPDX-License-Identifier: MIT */
/* What the tables themselves say, read with SQL and none of permitd's code. */
#ifndef ROWS_H
#define ROWS_H

#include "caller.h"
#include "ledger.h"

/*
 * Looks at the rows of all keys in [from, to) and records each as a CALL_LOOK, keys without a row as unknown. Slots are
 * read from the granted numbers of the permit.
 */
void rows_look(struct kit_sql *sql, const struct world *world, unsigned from, unsigned to, struct history *history);
/* All requests of this run with their permits, whose keys are numbers of it. The caller releases the ledger. */
struct ledger rows_read(struct kit_sql *sql, const struct world *world);
/* Served time (docs/design.md), in microseconds. */
int64_t rows_served_time(struct kit_sql *sql);
/*
 * Nothing is half done: in_use equals the permits held and is within the capacity, a permit has the state of its
 * request, every held request has permits, slots and permits name each other. For a quiet database without changed
 * capacities.
 */
bool rows_check(struct kit_sql *sql, char message[MESSAGE_SIZE]);
/*
 * What the ended requests tell: in the order of time no semaphore ever had more units held than its capacity, later
 * tokens were granted later, nothing expired before its ttl was over. For runs without steps of the clock and with
 * constant capacities.
 */
bool rows_check_past(struct kit_sql *sql, char message[MESSAGE_SIZE]);
#endif
