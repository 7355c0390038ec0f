/* SPDX-License-Identifier: MIT */
/*
 * Thousands of clients in one thread. Each has its own connection, sends an acquire, waits for it in permitd, holds the
 * units for a while and releases them, for a number of rounds. Every turn is recorded, with the times at which this
 * process sent and read.
 *
 *     struct client_pool *client_pool = client_pool_open("crowd", port, 10000);
 *     for (i ...) client_pool->clients[i].wants = ...;
 *     for (i ...) client_pool_ask(client_pool, &client_pool->clients[i]);
 *     client_pool_run(client_pool, kit_now_us() + 60000000);
 *     ... client_pool->turns ...
 *     client_pool_close(client_pool);
 */
#ifndef CLIENT_POOL_H
#define CLIENT_POOL_H

#include "load_client.h"
#include "order.h"
#include "testkit.h"

enum { CLIENT_POOL_WORD = 24, CLIENT_POOL_KEY = 64 };

/* One acquire and its result. Times are of kit_now_us; 0: did not happen. */
struct turn {
    unsigned client;
    unsigned round;
    int status;                  /* of the answer to the acquire; 0: no answer */
    char word[CLIENT_POOL_WORD]; /* last part of the problem type of a refusal */
    bool replayed;
    int64_t gone_us; /* when the connection ended without an answer */
    bool left;       /* the client closed its connection, or its sending side, before the answer */
    uint64_t token;
    unsigned slot; /* first slot; 0: counted semaphore */
    int64_t asked_us;
    int64_t answered_us;
    int64_t releasing_us; /* when the release was sent */
    int64_t released_us;  /* when it was answered with 200 */
};

enum client_state {
    CLIENT_IDLE,      /* finished, or not started */
    CLIENT_ASKING,    /* its acquire is not answered yet */
    CLIENT_HOLDING,   /* until its timer fires */
    CLIENT_RELEASING, /* its release is not answered yet */
    CLIENT_LEAVING,   /* its sending side is closed; it still reads */
    CLIENT_GONE,      /* the connection is closed, by the client or by permitd */
};

struct client {
    /* Settings; to be set while the client is idle. */
    const char *semaphore;
    unsigned count;   /* units, default 1 */
    unsigned slot;    /* the slot that it wants; 0: `count` units */
    char units[48];   /* members of its want, such as "count":6,"adjacent":true; empty: by count and slot */
    const char *wait; /* such as "60s"; NULL: does not wait */
    unsigned priority;
    unsigned rounds;  /* default 1; idle after the last round */
    unsigned hold_ms; /* 0: releases immediately */
    int leave_ms;     /* closes its connection if there is no answer by then; -1: never */
    bool keeps;       /* does not release */
    bool without_key; /* permitd generates the key */

    /* Internal state. */
    unsigned number;
    enum client_state state;
    unsigned round;            /* of the current turn */
    size_t turn;               /* index of its latest turn */
    char key[CLIENT_POOL_KEY]; /* of that turn; empty until permitd has sent it */
};

struct client_pool {
    char name[16]; /* prefix of its keys */
    struct load_pool *connections;
    struct client *clients;
    unsigned count;
    unsigned busy; /* clients that are asking, holding, releasing or leaving */
    unsigned gone;
    struct turn *turns; /* in the order of their acquires */
    size_t turn_count;
    size_t turn_room;
    unsigned failed; /* releases not answered with 200 */
    /* Called when a client becomes idle; may be NULL. */
    void (*done)(struct client_pool *client_pool, struct client *client);
    void *context;
};

/* Connects `count` clients, and reads one answer on each connection. Ends the process if that fails. */
struct client_pool *client_pool_open(const char *name, unsigned port, unsigned count);
/* The same for several permitd: the clients are connected to them by turns. */
struct client_pool *client_pool_open_at(const char *name, const unsigned *ports, size_t port_count, unsigned count);
/* Closes all connections and frees everything. Accepts NULL. */
void client_pool_close(struct client_pool *client_pool);
/* Sends the first acquire of an idle client. */
void client_pool_ask(struct client_pool *client_pool, struct client *client);
/* Sends the first acquire of all clients in the order of their numbers, and reads answers from time to time. */
void client_pool_ask_all(struct client_pool *client_pool);
/*
 * Asks again with the key of the client's latest turn, at this port: for a client that is gone, or idle after a refusal.
 */
void client_pool_ask_again(struct client_pool *client_pool, struct client *client, unsigned port);
/*
 * Closes the connection of the client in any state. If the client has no key, it closes only the sending side: it reads
 * the answer of permitd, because the grant could not be found later, and is gone after that.
 */
void client_pool_leave(struct client_pool *client_pool, struct client *client);
/* Reads, releases and asks until `until_us`. Returns true as soon as no client is busy. */
bool client_pool_run(struct client_pool *client_pool, int64_t until_us);
/* Waits at most `ms` for one event, and handles it. */
void client_pool_step(struct client_pool *client_pool, int ms);
/* The acquire of a turn for the checkers of C8. Its wait is the one that the client has now, such as "60s". */
struct ask client_pool_ask_of(const struct client_pool *client_pool, const struct turn *turn);
/* The same for all turns. The caller frees the list. */
struct ask *client_pool_asks(const struct client_pool *client_pool);
/* Number of turns with this status; word NULL: any. */
size_t client_pool_count(const struct client_pool *client_pool, int status, const char *word);
#endif
