/* SPDX-License-Identifier: MIT */
/* What permitd reads in the database by itself, by the database's own log of every statement. */
#ifndef IDLE_H
#define IDLE_H

#include <stddef.h>
#include <stdint.h>

enum { QUERIES_MAX = 64, QUERY_SIZE = 100 };

/* Statements that are alike but for their numbers. */
struct idle_query {
    char text[QUERY_SIZE]; /* its beginning, numbers as ?, nothing that would break a Markdown table */
    int64_t times, rows, most;
};

struct idle {
    int64_t most;       /* rows read by one statement, the auditor's left out */
    int64_t audit_most; /* the auditor reads all rows, all the time, a few at a time */
    double queries_rate, rows_rate;
    double handler_rate; /* rows per second by the server's Handler_read counters */
    double cores;        /* permitd and mariadbd together */
    struct idle_query queries[QUERIES_MAX];
    size_t count; /* those that read most first */
};

/* A permitd with so many permits held, none of them due, left alone for so long. */
void idle_measure(long held, int ms, struct idle *ret_idle);
#endif
