/* SPDX-License-Identifier: MIT */
/* A set of measured durations and its quantiles. */
#ifndef SPREAD_H
#define SPREAD_H

#include "testkit.h"

/* Microseconds. duration_set_quantile_us sorts them. */
struct duration_set {
    int64_t *us;
    size_t count;
    size_t room;
    bool sorted;
};

void duration_set_add(struct duration_set *spread, int64_t us);
/* One duration per row of the statement, which has one column; NULL is INT64_MIN. */
struct duration_set duration_set_read(struct kit_sql *sql, const char *statement);
/* part 0 is the minimum, 0.5 the median, 1 the maximum; 0 if the set is empty. */
int64_t duration_set_quantile_us(struct duration_set *spread, double part);
/* The same in milliseconds. */
double duration_set_quantile_ms(struct duration_set *spread, double part);
void duration_set_release(struct duration_set *spread);
#endif
