/* SPDX-License-Identifier: MIT */
/* One run of the simulation: several permitd on one database, their clients, faults, and the final checks. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "base/list.h"
#include "oracle.h"

enum { CALLS_MAX = 10000 };

/* The result of a run, for its parent process. */
struct result {
    bool violated;
    char promise[8];
    char text[512];
    uint64_t at_operation;
    uint64_t operations, waits, served_after_wait, abandoned, grants, refusals;
    uint64_t commits, cached, cached_grants, mismatches, too_large, deadlocks, duplicates, kills, stops, pauses,
        crashes, failovers, steps_of_clock, cuts, faults;
    uint64_t made, labelled, templates_changed; /* created from templates; by operators */
    uint64_t exchanges, exchanges_refused, exchanges_repeated;
    uint64_t calls;                /* of the database */
    uint64_t allocations;          /* of permitd */
    uint64_t struck;               /* calls and allocations that failed because they were chosen */
    unsigned char ways[CALLS_MAX]; /* per call: bits of the ways in which it could have failed (enum fault_kind) */
    uint64_t switches;
    mono_us simulated;
    mono_us longest_servable;
    uint64_t order_judged, refusals_judged, seats_judged;
    uint64_t events, omitted; /* of the feed */
};

/* Each key is one of three tenants: the same words in two namespaces and in the empty one, as src/api stores them. */
extern bool run_with_tenants;

/* Semaphores have events in the feed. */
extern bool run_with_feed;

/* Runs the seed with faults until `operations` are answered, then without faults until all final checks are done. */
void run_seed(uint64_t seed, uint64_t operations, struct result *result);

/* Runs the cases of tests/contract on the fake store; returns the exit status. */
int run_contract(void);
/* True in such a case: rows that contradict each other are not a fault of permitd. */
bool run_is_contract(void);

/* For the oracle: ends the process with the result for its parent. */
void run_violated(const char *promise, const char *text) __attribute__((noreturn));
/*
 * These changes are visible but will not be durable for this time, so an answer must not rely on them yet. Repeats some
 * of their requests under the same keys, and sometimes kills the server.
 */
void run_not_flushed_yet(const struct changes *changes, int64_t us);
/* The calls that a process has not answered. */
const struct list *run_calls(int process);
#endif
