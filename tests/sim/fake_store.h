/* SPDX-License-Identifier: MIT */
/*
 * store.h on the database in memory, with what can go wrong between the two: each call takes time, and may find the
 * connection lost before it ran, after it ran, or at COMMIT with either outcome. A transaction whose session is gone
 * (a lost connection, a killed process) lives on for a while, holds its locks, and may still commit.
 */
#ifndef SIM_FAKE_STORE_H
#define SIM_FAKE_STORE_H

#include "store/store.h"

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
};
extern struct fault_rates faults;

struct store *fake_store_open(void *context);
/* The process has been killed: its sessions are broken off. */
void fake_store_process_died(int process);
/* All of its sessions are cut: a network that has failed. */
void fake_store_cut(int process);
/* It is stopped: after so long the server ends what its sessions have open. */
void fake_store_time_out(int process, int64_t after_us);

extern struct fault_counts {
    uint64_t calls, lost, commits_lost, zombies_committed, zombies_ended, lock_timeouts, conflicts, refused;
} fault_counts;
#endif
