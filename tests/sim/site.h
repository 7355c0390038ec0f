/* SPDX-License-Identifier: MIT */
/*
 * What there is in a run: servers (simulated permitd), clients, operators, and the stories of keys that they make.
 * run.c directs it, clients.c has the calls, operators.c what is changed meanwhile, servers.c what becomes of a
 * permitd, trouble.c what goes wrong.
 */
#ifndef SIM_SITE_H
#define SIM_SITE_H

#include "run.h"
#include "scheduler.h"

enum {
    ENGINES_MAX = 4,
    CLIENTS_MAX = 40,
    STORIES_MAX = 64,
    WAIT_MAX_MS = 3000,
    TTL_MAX_MS = 12000,
    GRACE_MAX_MS = 500,
};

struct client {
    struct timer timer; /* its next call */
    struct call *call;  /* that it waits for */
};

struct server {
    struct engine *engine; /* NULL: it is down */
    bool stopping;
    bool paused;
    uint64_t starts;
    mono_us paused_at;
    struct list calls; /* struct call: not answered yet */
    struct timer back; /* it is started again, or goes on */
};

extern struct site {
    struct result *result;
    uint64_t wanted; /* operations */
    struct server servers[ENGINES_MAX];
    struct client clients[CLIENTS_MAX];
    int client_count;
    struct story *stories[STORIES_MAX]; /* that clients care for */
    int story_count;
    size_t made_count;    /* of database.semaphores: those made before the run; the others are names for templates */
    uint64_t keys, calls; /* made so far */
    bool quiet;           /* nothing new begins, nothing fails any more */
} site;

/* ---- clients.c ---- */

void clients_begin(void);
/* A key, and what is asked under it. */
struct story *story_begin(void);
/* A call that is not sent yet; story NULL: an administrative one. */
struct call *call_new(int process, struct story *story, enum operation_kind kind);
/* Sends it; false: it was refused at once, and is gone. */
bool call_send(struct call *call, int64_t wait_us);
/* It is over, however it ended. */
void call_free(struct call *call);

/* ---- operators.c ---- */

void operators_begin(void);
/* What a started permitd's operators do to templates through it. */
void operators_join(struct server *server);
/* There is a template for every name. Inside a fiber, when nothing fails any more. */
void operators_cover_all(void);

/* ---- servers.c ---- */

void servers_begin(void);
/* One that takes calls, or -1. */
int server_any(void);
int server_number(const struct server *server);
/* A difference of clocks that is allowed. */
int64_t server_any_skew(void);
void server_kill(struct server *server);
void server_stop(struct server *server);
void server_pause(struct server *server);
/* All of them run, and go on running. Inside a fiber. */
void servers_mend(void);

/* ---- trouble.c ---- */

void trouble_begin(void);
void trouble_end(void);
#endif
