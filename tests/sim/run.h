/* SPDX-License-Identifier: MIT */
/* One run of the simulation: some permitd on one database, their clients, what goes wrong, and the end. */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include "base/list.h"
#include "oracle.h"

enum { CALLS_MAX = 10000 };

/* What came of a run, for its parent. */
struct result {
    bool violated;
    char promise[8];
    char text[512];
    uint64_t at_operation;
    uint64_t operations, waits, served_after_wait, abandoned, grants, refusals;
    uint64_t commits, deadlocks, duplicates, kills, stops, pauses, crashes, failovers, steps_of_clock, cuts, faults;
    uint64_t made, labelled, templates_changed; /* first uses; what operators did */
    uint64_t calls;                             /* of the database */
    uint64_t allocations;                       /* of permitd */
    uint64_t struck;                            /* calls and allocations that failed because they were chosen */
    unsigned char ways[CALLS_MAX]; /* per call, as bits: the ways in which it could have failed (enum fault_kind) */
    uint64_t switches;
    mono_us simulated;
    mono_us longest_servable;
};

/* Runs the seed until so many operations are answered, then without faults until everything is in order. */
void run_seed(uint64_t seed, uint64_t operations, struct result *result);

/* For the oracle: ends the process, with the result that its parent reads. */
void run_violated(const char *promise, const char *text) __attribute__((noreturn));
/*
 * These changes are visible and will not be durable for so long: whoever is told of them now must not rely on it. Some
 * ask again under the same keys, and perhaps the server is killed.
 */
void run_not_flushed_yet(const struct changes *changes, int64_t us);
/* The calls that a process has not answered. */
const struct list *run_calls(int process);
#endif
