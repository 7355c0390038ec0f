/* SPDX-License-Identifier: MIT */
/* A client of the torture runs: HTTP calls to any of several permitd, each recorded in the client's own history. */
#ifndef CALLER_H
#define CALLER_H

#include <stdatomic.h>

#include "checkers.h"
#include "testkit.h"

enum { PERMITD_MAX = 4, RECENT_JOBS = 256 };

struct want {
    unsigned semaphore;
    unsigned count;
};

/* What is asked for under a key; always the same. */
struct job {
    unsigned key;
    unsigned ttl_ms;  /* 0: the semaphores' default, which no run outlives */
    unsigned wait_ms; /* how long an acquire may wait for room; not part of what the key stands for */
    bool confirmed;   /* it was to be confirmed: released all the same */
    size_t want_count;
    struct want wants[SHARES_MAX];
};

/* What all callers share. */
struct world {
    struct facts facts;
    uint64_t seed; /* part of every key */
    size_t permitd_count;
    atomic_uint ports[PERMITD_MAX]; /* 0: not there at the moment */
    atomic_uint next_key;
    bool faults;                    /* servers are killed: 503 is nothing strange */
    atomic_uint complaints;         /* strange answers of 5xx shown so far */
    struct job recent[RECENT_JOBS]; /* what strangers may meddle with: world_remember, world_recall */
    unsigned recent_count;
};

struct caller {
    struct world *world;
    struct kit_http http[PERMITD_MAX];
    struct history history;
    uint64_t random;
};

/* The number makes its choices differ from those of the others. */
void caller_init(struct caller *caller, struct world *world, unsigned number);
/* Closes its connections; the history stays for history_join. */
void caller_close(struct caller *caller);
/* 0 to below - 1. */
unsigned caller_random(struct caller *caller, unsigned below);
/* A new key; the wants are for the caller of this function to fill. */
struct job caller_new_job(struct caller *caller);
/* Adds one to three different semaphores of the facts, in random order, with one to three units each. */
void job_want_some(struct caller *caller, struct job *job);
/* Lets strangers know of a job. From any thread. */
void world_remember(struct world *world, const struct job *job);
/* Some job that was remembered lately; false if there is none. */
bool world_recall(struct caller *caller, struct job *ret_job);
bool job_wants(const struct job *job, unsigned semaphore);

typedef enum call_says caller_call(struct caller *caller, unsigned at, const struct job *job);

/* Each returns what the answer says, and records the call. `at` is the number of a permitd. */
enum call_says caller_acquire(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_release(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_look(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_renew(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_confirm(struct caller *caller, unsigned at, const struct job *job);
/* The same request to all permitd at once; what the last answer says. */
enum call_says caller_acquire_everywhere(struct caller *caller, const struct job *job);
enum call_says caller_release_everywhere(struct caller *caller, const struct job *job);

/* One of several operations of a POST /v1/batch, and what its answer says. No looks, and no acquire waits. */
struct operation {
    enum call_kind kind;
    const struct job *job;
    enum call_says says;
    int status;
};
enum { OPERATIONS_MAX = 64 };

/* Each operation is recorded as a call of its own; without an answer to the batch all say nothing. */
void caller_batch(struct caller *caller, unsigned at, struct operation *operations, size_t count);

/* "t<seed>-<number>"; text has room for 64 bytes. */
void key_name(const struct world *world, unsigned key, char *text);
/* The number of the semaphore with this name; -1 if it is none of them. */
int semaphore_number(const struct facts *facts, const char *name);
/* PUTs all semaphores of the facts. */
void make_semaphores(const struct facts *facts, unsigned port);
#endif
