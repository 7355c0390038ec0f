/* SPDX-License-Identifier: MIT */
/* A client of the chaos suites: sends HTTP calls to any of several permitd and records each call in its own history. */
#ifndef CALLER_H
#define CALLER_H

#include <stdatomic.h>

#include "checkers.h"
#include "order.h"
#include "testkit.h"

enum { PERMITD_MAX = 4, RECENT_JOBS = 256 };

struct want {
    unsigned semaphore;
    unsigned count;
};

/* The request under a key; it never changes. */
struct job {
    unsigned key;
    unsigned ttl_ms;  /* 0: the default of the semaphore, which outlasts every run */
    unsigned wait_ms; /* longest wait of an acquire; a repetition with the same key may have another one */
    bool confirmed;   /* a confirm was sent, so releases say confirmed=true */
    size_t want_count;
    struct want wants[SHARES_MAX];
};

/* Shared by all callers. */
struct world {
    struct facts facts;
    uint64_t seed; /* part of every key */
    size_t permitd_count;
    atomic_uint ports[PERMITD_MAX]; /* 0: not running */
    atomic_uint next_key;
    bool faults;                    /* servers are killed, so 503 is expected */
    atomic_uint complaints;         /* unexpected 5xx answers printed so far */
    struct job recent[RECENT_JOBS]; /* jobs that other clients may repeat: world_remember, world_recall */
    unsigned recent_count;
};

struct caller {
    struct world *world;
    struct kit_http http[PERMITD_MAX];
    struct history history;
    uint64_t random;
};

/* Clients with different numbers make different random choices. */
void caller_init(struct caller *caller, struct world *world, unsigned number);
/* Closes the connections; the history stays for history_join. */
void caller_close(struct caller *caller);
/* A random number from 0 to below - 1. */
unsigned caller_random(struct caller *caller, unsigned below);
/* A job with a new key; the caller fills in the wants. */
struct job caller_new_job(struct caller *caller);
/* Adds one to three different semaphores of the facts, in random order, with one to three units each. */
void job_want_some(struct caller *caller, struct job *job);
/* Makes a job available to other clients. Thread-safe. */
void world_remember(struct world *world, const struct job *job);
/* Sets *ret_job to a recently remembered job. Returns false if there is none. */
bool world_recall(struct caller *caller, struct job *ret_job);
bool job_wants(const struct job *job, unsigned semaphore);

typedef enum call_says caller_call(struct caller *caller, unsigned at, const struct job *job);

/* Sends one request to permitd number `at`, records the call and returns the meaning of the answer. */
enum call_says caller_acquire(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_release(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_query(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_renew(struct caller *caller, unsigned at, const struct job *job);
enum call_says caller_confirm(struct caller *caller, unsigned at, const struct job *job);
/* Sends the same request to all permitd at once and records each call. Returns the meaning of the last answer. */
enum call_says caller_acquire_everywhere(struct caller *caller, const struct job *job);
enum call_says caller_release_everywhere(struct caller *caller, const struct job *job);

/* One operation of a POST /v1/batch, and its result. Not CALL_QUERY; an acquire does not wait. */
struct operation {
    enum call_kind kind;
    const struct job *job;
    enum call_says says;
    int status;
};
enum { OPERATIONS_MAX = 64 };

/* Records each operation as a call of its own. If the batch is not answered, all of them are SAYS_NOTHING. */
void caller_batch(struct caller *caller, unsigned at, struct operation *operations, size_t count);

/* Writes "t<seed>-<number>" into `text`, which has space for 64 bytes. */
void key_name(const struct world *world, unsigned key, char *text);
/* The number of the semaphore with this name, or -1. */
int semaphore_number(const struct facts *facts, const char *name);
/* Creates all semaphores of the facts with PUT. */
void make_semaphores(const struct facts *facts, unsigned port);
/* Sets the queue of those semaphores that are to have fifo; the others have backfill. */
void make_fifo(const struct queue_facts *queues, size_t count, unsigned port);
/* The acquires with a wait. The caller frees the list. */
struct ask *asks_of_history(const struct history *history, const struct world *world, size_t *ret_count);
#endif
