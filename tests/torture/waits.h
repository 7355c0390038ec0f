/* SPDX-License-Identifier: MIT */
/*
 * What waiting in permitd is worth, measured on servers of its own for the suite `waiting` and for the benchmark. Each
 * function ends the process if a promise is broken that does not depend on time; figures are for the caller to judge.
 */
#ifndef WAITS_H
#define WAITS_H

#include "site.h"
#include "spread.h"
#include "throng.h"

/* The longest that anything here is waited for before it counts as lost. */
enum { WAITS_LOST_MS = 120000 };

/* ---- a crowd on a few units ---- */

struct crowd_numbers {
    unsigned clients;
    unsigned capacity;
    unsigned hold_ms;
    unsigned rounds; /* of each client, in the second half, where who is served comes again */
};

struct crowd_figures {
    struct spread idle_rows; /* of each slot, from the end of one permit to the grant of the next, by the rows */
    struct spread idle_seen; /* from the answer to a release to the answer to the next holder of that slot */
    struct spread handed;    /* from sending a release to the answer to the next holder of that slot */
    struct spread waited;    /* from asking to the answer */
    double seconds;          /* from the first to the last grant */
    double steady_seconds;
    struct spread steady_rows, steady_seen, steady_handed;
    int64_t passed_us; /* the second half: how much later than somebody it passed the greatest passer had asked */
    /* Per acquire and its release. `plain`: as many clients on the same connections, each of which finds room. */
    double permitd_us, database_us, steady_permitd_us, steady_database_us, plain_permitd_us, plain_database_us;
};

/*
 * First all wait while the units are held by one; they are let go, everybody is served once, in the order in which
 * permitd has them in its queue. Then they come again at once whenever they are served.
 */
void crowd_measure(const struct crowd_numbers *numbers, struct crowd_figures *ret_figures);
void crowd_release(struct crowd_figures *figures);

/* ---- from a release to the grant ---- */

struct latency_figures {
    struct spread own;   /* one permitd */
    struct spread other; /* the release goes to another one on the same database */
};

/* So often each: one holds, one waits; from sending the release to the answer of the one who waited. */
void latency_measure(unsigned rounds, struct latency_figures *ret_figures);
void latency_release(struct latency_figures *figures);

/* ---- one who wants much among many who want little ---- */

struct wide_numbers {
    unsigned capacity, count; /* of whom wants much: 8, 5 */
    unsigned clients;         /* who want one unit each */
    unsigned hold_ms;
    unsigned bound_ms; /* backfill_bound */
    int seconds;
    bool fifo;
};

struct wide_figures {
    struct spread waited; /* by the one who wants much, each time */
    struct spread late;   /* his grant, behind the moment when it was his turn and enough was free, by the rows */
    size_t passed;        /* grants to others who came later than he, while he waited */
    double used_rows;     /* part of the units that was held, by the rows */
    double used_seen;     /* and as the clients saw it: from the answer to sending the release */
    int64_t passed_us;    /* fifo: as in crowd_figures */
};

void wide_measure(const struct wide_numbers *numbers, struct wide_figures *ret_figures);
void wide_release(struct wide_figures *figures);

/* ---- clients that vanish ---- */

struct leave_numbers {
    unsigned leavers;
    unsigned stayers;
    unsigned over_ms; /* they leave within this time */
    uint64_t seed;
};

struct leave_figures {
    size_t left_waiting; /* had no answer when they left */
    size_t granted;      /* of them: hold according to the rows; all are found by a retry with their key */
    size_t served;       /* grants that were answered meanwhile */
};

void leave_measure(const struct leave_numbers *numbers, struct leave_figures *ret_figures);

/* ---- many who wait for long ---- */

struct parked_numbers {
    unsigned waiters;
    unsigned turns; /* without and with them */
    unsigned pairs; /* acquire and release of another semaphore in each turn */
};

struct parked_figures {
    unsigned permitds; /* so many, because one process may not open so many files */
    double bytes;      /* resident memory of permitd for each who waits, beside an idle kept-alive connection */
    double connection_bytes;
    struct spread alone_us, beside_us; /* medians of the turns */
    double ratio;                      /* of the medians of both */
    double seconds;                    /* until all of them wait */
};

void parked_measure(const struct parked_numbers *numbers, struct parked_figures *ret_figures);
void parked_release(struct parked_figures *figures);

/* ---- the end of permitd ---- */

struct stop_figures {
    size_t told;     /* answered 503 shutting_down */
    int64_t exit_ms; /* from SIGTERM to the end of the process */
};

void stop_measure(unsigned waiters, struct stop_figures *ret_figures);
#endif
