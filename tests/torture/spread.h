/* SPDX-License-Identifier: MIT */
/* Durations that were measured, and what part of them is how long. */
#ifndef SPREAD_H
#define SPREAD_H

#include "testkit.h"

/* Microseconds. spread_at sorts them. */
struct spread {
    int64_t *us;
    size_t count;
    size_t room;
    bool sorted;
};

void spread_add(struct spread *spread, int64_t us);
/* One number per row of the statement, which has one column; NULL is INT64_MIN. */
struct spread spread_read(struct kit_sql *sql, const char *statement);
/* part 0 is the least, 0.5 the median, 1 the most; 0 if there are none. */
int64_t spread_at(struct spread *spread, double part);
/* The same in milliseconds. */
double spread_ms(struct spread *spread, double part);
void spread_release(struct spread *spread);
#endif
