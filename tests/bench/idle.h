/* SPDX-License-Identifier: MIT */
/* The rows that an idle permitd reads in its database, by the database's log of all statements. */
#ifndef IDLE_H
#define IDLE_H

#include <stddef.h>
#include <stdint.h>

enum { QUERIES_MAX = 64, QUERY_SIZE = 100 };

/* Statements that differ only in numbers. */
struct idle_query {
    char text[QUERY_SIZE]; /* the beginning, with numbers as ? and without characters that break a Markdown table */
    int64_t times, rows, most;
};

struct idle {
    int64_t most;       /* rows read by one statement, except those of the audit and of retention's walk */
    int64_t walks_most; /* these read all rows, round after round, a page at a time */
    double queries_rate, rows_rate;
    double handler_rate; /* rows per second by the server's Handler_read counters */
    double cores;        /* permitd and mariadbd together */
    struct idle_query queries[QUERIES_MAX];
    size_t count; /* sorted, most rows first */
};

/* Runs a permitd with `held` permits, none of them due, without clients for `ms`. */
void idle_measure(long held, int ms, struct idle *ret_idle);
#endif
