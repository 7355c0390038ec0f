/* SPDX-License-Identifier: MIT */
/* What the clients and the faults of the storm need to know of it. */
#ifndef STORM_H
#define STORM_H

#include <pthread.h>

#include "proxy.h"
#include "rows.h"

enum { LEASE_MAX_MS = 4000, OLD_GRANTS = 16 };

/* A store that looks at tokens: on each slot it takes nothing older than the newest it has seen. */
enum { FENCED_SEMAPHORES = 16, FENCED_SLOTS = 64 };
struct fenced {
    pthread_mutex_t mutex;
    uint64_t newest[FENCED_SEMAPHORES][FENCED_SLOTS + 1];
};

struct storm {
    struct world world;
    struct kit_database *database;
    struct proxy *proxies[PERMITD_MAX]; /* one before each permitd */
    struct kit_permitd *permitd[PERMITD_MAX];
    struct caller dice;
    struct kit_sql *admin;            /* while a fault needs it: there may be no further connection to be had */
    unsigned victim;                  /* the permitd that the fault of the moment is about */
    atomic_uint granted[PERMITD_MAX]; /* answers 201, by permitd: the sign that it works */
    atomic_ullong answered;           /* operations whose answer says something */
    atomic_bool stopping;
    struct fenced fenced;
    unsigned database_deaths; /* how often mariadbd ended by itself */
    bool database_may_die;    /* its disk has failed lately */
};

/* A fault begins, lasts for a time between these, and ends; after that everything is to be served again. */
struct fault {
    const char *name; /* as in the list of promises: "N1 SIGKILL permitd" */
    void (*begin)(struct storm *storm);
    void (*end)(struct storm *storm);
    unsigned shortest_ms;
    unsigned longest_ms;
};

extern const struct fault faults[];
extern const unsigned fault_count;
/* False: this permitd cannot be treated so, because it was built with a sanitizer. */
bool fault_is_possible(const struct fault *fault, const struct storm *storm);

struct client {
    pthread_t thread;
    struct storm *storm;
    struct caller caller;
    struct call old_grants[OLD_GRANTS]; /* to write with when they are long over */
};

/* The life of a client, until the storm is stopping; its history stays. context: a struct client. */
void *client_run(void *context);

void storm_start_permitd(struct storm *storm, unsigned at);
#endif
