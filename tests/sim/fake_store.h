/* SPDX-License-Identifier: MIT */
/*
 * store.h on the database in memory, with failures between the two. Each call takes time, and may lose the connection
 * before it runs, after it ran, or at COMMIT with either outcome. If a session is lost (a lost connection, a killed
 * process), its transaction lives on for a while, holds its locks and may still commit.
 */
#ifndef SIM_FAKE_STORE_H
#define SIM_FAKE_STORE_H

#include "store/store.h"

/* Failures of a call. */
enum fault_kind {
    FAULT_BEFORE,       /* connection lost before its statements ran */
    FAULT_AFTER,        /* connection lost after they ran, before the answer */
    FAULT_COMMIT_NOT,   /* connection lost at COMMIT, which does not run */
    FAULT_COMMIT_DONE,  /* connection lost at COMMIT, which has run */
    FAULT_COMMIT_LATER, /* connection lost at COMMIT, which runs some time later */
    FAULT_LOCK_TIMEOUT, /* 1205 */
    FAULT_CONFLICT,     /* 1213, 1020 */
    FAULT_FULL,         /* a write fails */
    FAULT_KIND_COUNT
};

/* Rates: once in so many calls; 0: never. */
struct fault_rates {
    unsigned lost_before;  /* connection lost before the statements ran */
    unsigned lost_after;   /* connection lost after they ran, before the answer */
    unsigned commit_lost;  /* connection lost at COMMIT: it ran, did not run, or runs later */
    unsigned lock_timeout; /* 1205 */
    unsigned conflict;     /* 1213, 1020 */
    unsigned unavailable;  /* a connect fails */
    unsigned full;         /* a write fails */
    unsigned slow;         /* a slow call */
    unsigned late_flush;   /* a commit is visible long before it is durable */
    uint64_t only_call;    /* P18: number of the only call that fails, from 1, if this kind can happen to it; 0: none */
    enum fault_kind only_kind;
};
extern struct fault_rates faults;

struct store *fake_store_open(void *context, enum store_use use);
/* Breaks off the sessions of a killed process. */
void fake_store_process_died(int process);
/* Cuts all its sessions, like a network failure. */
void fake_store_cut(int process);
/* The process is stopped: after this time the server rolls back the open transactions of its sessions. */
void fake_store_time_out(int process, int64_t after_us);

/*
 * --each: called where call `number` can fail in the way `kind` for the first time, or an allocation (FAULT_KIND_COUNT).
 * Returns true in the copy of the process in which it fails. NULL: nothing is tried.
 */
extern bool (*fault_branch)(uint64_t number, int kind);

/* For each call, the bits of enum fault_kind that could have happened to it. */
extern unsigned char *fault_ways;
extern struct fault_counts {
    uint64_t calls, struck, lost, commits_lost, zombies_committed, zombies_ended, lock_timeouts, conflicts, refused;
} fault_counts;
#endif
