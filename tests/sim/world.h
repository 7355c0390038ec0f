/* SPDX-License-Identifier: MIT */
/*
 * The objects of a run: servers (simulated permitd), clients, operators, and the stories of their keys. run.c directs
 * the run, clients.c has the calls, operators.c the changes by operators, servers.c the life of a permitd, faults.c
 * the faults.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "run.h"
#include "scheduler.h"

enum {
    ENGINES_MAX = 4,
    CLIENTS_MAX = 40,
    STORIES_MAX = 64,
    WAIT_MAX_MS = 3000,
    WAIT_LONG_MS = 15000, /* of profile.deaths */
    TTL_MAX_MS = 12000,
    TTL_LONG_MS = 60000, /* of profile.clocks */
    GRACE_MAX_MS = 500,
};

struct client {
    struct timer timer; /* its next call */
    struct call *call;  /* the call it waits for */
    struct story *lost; /* it waited for this key and has lost the answer; it may come back for it */
};

struct server {
    struct engine *engine; /* NULL: not running */
    bool stopping;
    bool paused;
    uint64_t starts;
    mono_us paused_at;
    struct list calls; /* struct call: not answered yet */
    struct timer back; /* restart, or end of the pause */
};

extern struct world {
    struct result *result;
    uint64_t seed;
    uint64_t wanted; /* wanted operations */
    struct server servers[ENGINES_MAX];
    struct client clients[CLIENTS_MAX];
    int client_count;
    struct story *stories[STORIES_MAX]; /* in use by clients */
    int story_count;
    size_t made_count;    /* of database.semaphores: created before the run; the others are names for templates */
    uint64_t keys, calls; /* number created so far */
    bool quiet;           /* no new calls and no new faults */
} world;

/* ---- clients.c ---- */

void clients_begin(void);
/* Starts a new key with its request. */
struct story *story_begin(void);
/*
 * Sometimes makes the want one for specific slots: among the first few, so that many requests name the same. `names` has
 * room for ROW_SLOTS_MAX.
 */
void want_choose_slots(struct want *want, struct slot_name *names, const struct db_semaphore_row *row);
/* A call that is not sent yet. story NULL: a call of an operator. */
struct call *call_new(int process, struct story *story, enum operation_kind kind);
/* Sends the call. Returns false if it was refused immediately and freed. */
bool call_send(struct call *call, int64_t wait_us);
/* Ends a call, whatever its result. */
void call_free(struct call *call);

/* ---- operators.c ---- */

void operators_begin(void);
/* Starts an operator who changes templates through a newly started permitd. */
void operators_join(struct server *server);
/* Gives a slot a seat before the run. */
void operators_make_seat(struct db_semaphore_row *row, uint32_t number);
/* Adds a template for every name. Inside a fiber, when no more faults happen. */
void operators_cover_all(void);

/* ---- servers.c ---- */

void servers_begin(void);
/* The number of a server that accepts calls, or -1. */
int server_any(void);
/* The same, if it can be this one. */
int server_rather(int process);
int server_number(const struct server *server);
/* A random allowed difference of clocks. */
int64_t server_any_skew(void);
void server_kill(struct server *server);
void server_stop(struct server *server);
void server_pause(struct server *server);
/* Starts all servers and keeps them running. Inside a fiber. */
void servers_repair(void);

/* ---- faults.c ---- */

enum { DIRECTOR = PROCESSES_MAX - 1 }; /* the process of the fibers that belong to no permitd */
void faults_begin(void);
void faults_end(void);
#endif
