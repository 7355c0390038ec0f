/* SPDX-License-Identifier: MIT */
/*
 * Measures waiting in permitd, on its own servers, for the suite `waiting` and for the benchmark. Each function ends
 * the process if a promise is broken that does not depend on time. The caller judges the figures.
 */
#ifndef WAITS_H
#define WAITS_H

#include "client_pool.h"
#include "fixture.h"
#include "queue_watch.h"
#include "spread.h"

/* Longest wait for anything here; after that it counts as lost. */
enum { WAITS_LOST_MS = 120000 };

/* ---- many clients on a few units ---- */

struct crowd_numbers {
    unsigned clients;
    unsigned capacity;
    unsigned hold_ms;
    unsigned rounds;   /* of each client, in the second half, where a served client asks again; 0: no second half */
    unsigned permitds; /* the clients are connected to them by turns; 0: one */
};

struct crowd_figures {
    struct duration_set idle_rows; /* of each slot, from the end of a permit to the next grant, by the rows */
    struct duration_set idle_seen; /* from the answer to a release to the answer to the next holder of that slot */
    struct duration_set handed;    /* from sending a release to the answer to the next holder of that slot */
    struct duration_set waited;    /* from sending the acquire to its answer */
    double seconds;                /* from the first to the last grant */
    double steady_seconds;
    struct duration_set steady_rows, steady_seen, steady_handed;
    int64_t passed_us; /* second half: largest age difference between a client and a younger one granted before it */
    /* CPU time per acquire and its release. `plain`: as many clients on the same connections that need not wait. */
    double permitd_us, database_us, steady_permitd_us, steady_database_us, plain_permitd_us, plain_database_us;
};

/*
 * First half: all clients wait while another client holds the units. These are released, and each client is served
 * once, in the order of permitd's waitlist. Second half: a client asks again as soon as it has been served.
 */
void crowd_measure(const struct crowd_numbers *numbers, struct crowd_figures *ret_figures);
void crowd_release(struct crowd_figures *figures);

/* ---- from a release to the grant ---- */

struct latency_figures {
    struct duration_set own;   /* one permitd */
    struct duration_set other; /* the release goes to another permitd on the same database */
};

/* Per round one client holds and one waits. Measures from sending the release to the answer of the waiter. */
void latency_measure(unsigned rounds, struct latency_figures *ret_figures);
void latency_release(struct latency_figures *figures);

/* ---- crowds at some permitd while a client waits at another ---- */

struct turns_numbers {
    unsigned permitds; /* the crowd is connected to all but the last, by turns */
    unsigned clients;  /* of the crowd: each acquires, waits, releases, again and again */
    unsigned waits;    /* times that one client waits at the last permitd */
    const char *wait;
    bool fifo;
};

struct turns_figures {
    struct duration_set before; /* each time: grants to the crowd from its entry to its grant; not a time */
    struct duration_set waited;
    size_t served, refused; /* of the waits */
    size_t grants;          /* to the crowd, in all */
    double seconds;
};

/*
 * One unit. With the queue in rows the order of all grants is checked (C8), and `before` is counted by the rows; without
 * it, by the answers.
 */
void turns_measure(const struct turns_numbers *numbers, struct turns_figures *ret_figures);
void turns_release(struct turns_figures *figures);

/* ---- a permitd that ends while clients wait there ---- */

enum kept_fault {
    KEPT_KILLED,  /* SIGKILL */
    KEPT_STOPPED, /* SIGTERM */
    KEPT_FROZEN,  /* SIGSTOP until it counts as dead; the clients leave it */
    KEPT_THAWED,  /* the same, but its clients stay, and it goes on after that */
    KEPT_FAULTS
};

struct kept_numbers {
    enum kept_fault fault;
    unsigned waiters; /* at the permitd that ends */
    unsigned others;  /* at the other one */
    bool fifo;
};

struct kept_figures {
    double back_seconds;   /* from the end until all wait again */
    double served_seconds; /* from the first grant to the last */
    struct order_counts order;
    double database_us; /* CPU per waiter while they come again */
};

/*
 * All wait for one unit by turns; the fault happens; the clients come again at the other permitd under their keys; the
 * unit is released. Ends the process if a place is lost, the order is not that of the places, or a waiter is not served.
 */
void kept_measure(const struct kept_numbers *numbers, struct kept_figures *ret_figures);

/* ---- the cost of a hand-over ---- */

enum cost_kind {
    COST_PLAIN, /* units for all: nobody waits */
    COST_SAME,  /* each release hands over to a waiter at the same permitd */
    COST_OTHER, /* the releases go to another permitd than the acquires */
};

struct cost_numbers {
    enum cost_kind kind;
    unsigned clients;
    unsigned capacity; /* if some wait */
    double seconds;
};

struct cost_figures {
    double rate;                    /* acquires with their releases, a second */
    double permitd_us, database_us; /* CPU for an acquire with its release */
};

void cost_measure(const struct cost_numbers *numbers, struct cost_figures *ret_figures);

/* ---- one request for many units among requests for one ---- */

struct wide_numbers {
    unsigned capacity, count; /* of the wide request: 5 of 8 */
    unsigned clients;         /* that want one unit each */
    unsigned hold_ms;
    unsigned bound_ms; /* backfill_bound */
    int seconds;
    bool fifo;
};

struct wide_figures {
    struct duration_set waited; /* by the wide request, each time */
    struct duration_set late;   /* from the time at which it was first and fitted to its grant, by the rows */
    size_t passed;              /* grants to younger requests while the wide one waited */
    double used_rows;           /* share of the units that was held, by the rows */
    double used_seen;           /* the same as the clients see it: from the answer to sending the release */
    int64_t passed_us;          /* fifo: as in crowd_figures */
};

void wide_measure(const struct wide_numbers *numbers, struct wide_figures *ret_figures);
void wide_release(struct wide_figures *figures);

/* ---- clients that disconnect ---- */

struct leave_numbers {
    unsigned leavers;
    unsigned stayers;
    unsigned over_ms; /* they disconnect within this time */
    uint64_t seed;
};

struct leave_figures {
    size_t left_waiting; /* had no answer when they disconnected */
    size_t granted;      /* of these, held according to the rows; a retry with the key finds each of them */
    size_t served;       /* grants answered meanwhile */
};

void leave_measure(const struct leave_numbers *numbers, struct leave_figures *ret_figures);

/* ---- many clients that wait long ---- */

struct parked_numbers {
    unsigned waiters;
    unsigned turns; /* each without and with the waiters */
    unsigned pairs; /* acquires and releases of another semaphore in each turn */
};

struct parked_figures {
    unsigned permitds; /* number of permitd, because one process cannot open enough files */
    double bytes;      /* resident memory of permitd per waiter, above an idle kept-alive connection */
    double connection_bytes;
    struct duration_set alone_us, beside_us; /* medians of the turns */
    double ratio;                            /* of the medians of both */
    double seconds;                          /* until all of them wait */
};

void parked_measure(const struct parked_numbers *numbers, struct parked_figures *ret_figures);
void parked_release(struct parked_figures *figures);

/* ---- a hall of taken seats ---- */

struct hall_numbers {
    unsigned waiters; /* each waits for one taken seat */
    unsigned passers; /* each takes any free seat of the hall and returns it, again and again */
    double seconds;
};

struct hall_figures {
    double alone, beside; /* pairs of acquire and release a second, without the waiters and beside them */
};

void hall_measure(const struct hall_numbers *numbers, struct hall_figures *ret_figures);

/* ---- a deep queue of requests that do not fit ---- */

enum deep_kind {
    DEEP_ADJACENT, /* each wants 6 adjacent slots of 65,536, of which every second one is held */
    DEEP_ANY_OF,   /* each wants 2 of 3 slots, of which two are held */
    DEEP_NAMED,    /* each wants a held slot and the free one beside it */
    DEEP_COUNT,    /* each wants 5 units of a counted semaphore that has 4 */
    DEEP_KINDS
};

struct deep_numbers {
    enum deep_kind kind;
    unsigned permitds; /* the clients are connected to them by turns */
    unsigned waiters;
    unsigned passers; /* each takes any unit of the same semaphore and returns it, again and again */
    unsigned others;  /* the same with another semaphore */
    bool aged;        /* the waiters are protected: older than backfill_bound */
    double seconds;
};

struct deep_figures {
    struct duration_set passed, other; /* each acquire and each release, from sending it to its answer */
    struct duration_set other_alone;   /* the same before there are waiters */
    size_t refused;                    /* of the passers: answered 423 */
};

/* Ends the process if a call is answered otherwise than 201, 423 or 200, or a waiter is answered. */
void deep_measure(const struct deep_numbers *numbers, struct deep_figures *ret_figures);
void deep_release(struct deep_figures *figures);

/* ---- the end of permitd ---- */

struct stop_figures {
    size_t told;     /* answered 503 shutting_down */
    int64_t exit_ms; /* from SIGTERM to the end of the process */
};

void stop_measure(unsigned waiters, struct stop_figures *ret_figures);
#endif
