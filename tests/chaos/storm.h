/* SPDX-License-Identifier: MIT */
/* Shared by storm.c, its clients and its faults. */
#ifndef STORM_H
#define STORM_H

#include <pthread.h>

#include "proxy.h"
#include "rows.h"

/* TAKEN_MS: P8 allows that a lease ends so much early. */
enum { TAKEN_MS = 5000, LEASE_MAX_MS = TAKEN_MS + 4000, OLD_GRANTS = 16 };

/* A store that checks tokens: on each slot it refuses a token older than the newest it has seen. */
enum { FENCED_SEMAPHORES = 16, FENCED_SLOTS = 64 };
struct fenced_store {
    pthread_mutex_t mutex;
    uint64_t newest[FENCED_SEMAPHORES][FENCED_SLOTS + 1];
};

struct storm {
    struct world world;
    struct kit_database *database;
    struct proxy *proxies[PERMITD_MAX]; /* one in front of each permitd */
    struct kit_permitd *permitd[PERMITD_MAX];
    struct caller dice;
    struct kit_sql *admin;            /* open while a fault needs it, because a new connection may be impossible */
    unsigned victim;                  /* the permitd that the current fault targets */
    atomic_uint granted[PERMITD_MAX]; /* answers 201 per permitd: shows that it works */
    atomic_ullong answered;           /* operations whose answer is not SAYS_NOTHING */
    atomic_bool stopping;
    struct fenced_store fenced;
    unsigned database_deaths; /* number of times mariadbd ended by itself */
    bool database_may_die;    /* its disk has failed recently */
};

/* A fault begins, lasts for a random time between these limits, and ends. After that all permitd must serve again. */
struct fault {
    const char *name; /* as in the list of promises: "N1 SIGKILL permitd" */
    void (*begin)(struct storm *storm);
    void (*end)(struct storm *storm);
    unsigned shortest_ms;
    unsigned longest_ms;
};

extern const struct fault faults[];
extern const unsigned fault_count;
/* Returns false if this permitd was built with a sanitizer that makes the fault impossible. */
bool fault_is_possible(const struct fault *fault, const struct storm *storm);

struct client {
    pthread_t thread;
    struct storm *storm;
    struct caller caller;
    struct call old_grants[OLD_GRANTS]; /* for writes long after their end */
};

/* The thread of a client; returns when the storm is stopping. The history stays. context: a struct client. */
void *client_run(void *context);

void storm_start_permitd(struct storm *storm, unsigned at);
#endif
