/* SPDX-License-Identifier: MIT */
/*
 * store.h on the database in memory, with what can go wrong between the two: each call takes time, and may find the
 * connection lost before it ran, after it ran, or at COMMIT with either outcome. A transaction whose session is gone
 * (a lost connection, a killed process) lives on for a while, holds its locks, and may still commit.
 */
#ifndef SIM_FAKE_STORE_H
#define SIM_FAKE_STORE_H

#include "store/store.h"

/* What can happen to a call. */
enum fault_kind {
    FAULT_BEFORE,       /* the connection is lost before its statements ran */
    FAULT_AFTER,        /* after they ran, before the answer */
    FAULT_COMMIT_NOT,   /* at COMMIT, which does not run */
    FAULT_COMMIT_DONE,  /* which has run */
    FAULT_COMMIT_LATER, /* which runs some time later */
    FAULT_LOCK_TIMEOUT, /* 1205 */
    FAULT_CONFLICT,     /* 1213, 1020 */
    FAULT_FULL,         /* a write that fails */
    FAULT_KIND_COUNT
};

/* Once in so many calls; 0: never. */
struct fault_rates {
    unsigned lost_before;  /* the connection, before the statements ran */
    unsigned lost_after;   /* after they ran, before the answer */
    unsigned commit_lost;  /* at COMMIT: it ran, it did not, or it runs later */
    unsigned lock_timeout; /* 1205 */
    unsigned conflict;     /* 1213, 1020 */
    unsigned unavailable;  /* a connect that fails */
    unsigned full;         /* a write that fails */
    unsigned slow;         /* a call that takes long */
    unsigned late_flush;   /* a commit that everybody sees long before it is durable */
    uint64_t only_call;    /* P18: nothing else fails than this call (from 1), if the kind can happen to it; 0: no */
    enum fault_kind only_kind;
};
extern struct fault_rates faults;

struct store *fake_store_open(void *context);
/* The process has been killed: its sessions are broken off. */
void fake_store_process_died(int process);
/* All of its sessions are cut: a network that has failed. */
void fake_store_cut(int process);
/* It is stopped: after so long the server ends what its sessions have open. */
void fake_store_time_out(int process, int64_t after_us);

/* The bits of enum fault_kind that the call was asked for. */
extern unsigned char *fault_ways;
extern struct fault_counts {
    uint64_t calls, struck, lost, commits_lost, zombies_committed, zombies_ended, lock_timeouts, conflicts, refused;
} fault_counts;
#endif
