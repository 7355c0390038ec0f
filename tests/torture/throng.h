/* SPDX-License-Identifier: MIT */
/*
 * Thousands of clients in one thread. Each has a connection of its own, asks for units and waits for them in permitd,
 * holds them for a while, and releases them; so often, and then it is done. Every turn is recorded, with the moments at
 * which this process sent and read.
 *
 *     struct throng *throng = throng_open("crowd", port, 10000);
 *     for (i ...) throng->clients[i].wants = ...;
 *     for (i ...) throng_ask(throng, &throng->clients[i]);
 *     throng_run(throng, kit_now_us() + 60000000);
 *     ... throng->turns ...
 *     throng_close(throng);
 */
#ifndef THRONG_H
#define THRONG_H

#include "base/heap.h"
#include "testkit.h"

enum { THRONG_WORD = 24, THRONG_KEY = 64 };

/* One acquire, and what followed. Moments by kit_now_us; 0: it has not come to that. */
struct turn {
    unsigned client;
    unsigned round;
    int status;             /* of the answer to the acquire; 0: there was none */
    char word[THRONG_WORD]; /* of a refusal: the last part of its problem type */
    bool replayed;
    bool left; /* the client had closed its connection, or its sending side, before there was an answer */
    uint64_t token;
    unsigned slot; /* the first one; 0: a counted semaphore */
    int64_t asked_us;
    int64_t answered_us;
    int64_t releasing_us; /* the release was sent */
    int64_t released_us;  /* and answered with 200 */
};

enum client_state {
    CLIENT_IDLE,      /* done, or not begun */
    CLIENT_ASKING,    /* its acquire has no answer yet */
    CLIENT_HOLDING,   /* until its timer */
    CLIENT_RELEASING, /* its release has no answer yet */
    CLIENT_LEAVING,   /* it has closed its sending side, and reads what may still come */
    CLIENT_GONE,      /* the connection is closed, by the client or by permitd */
};

struct client {
    /* What it does; to be set while it is idle. */
    const char *semaphore;
    unsigned count;   /* units; 1 */
    const char *wait; /* "60s"; NULL: it does not wait */
    unsigned rounds;  /* 1; after the last one it is idle */
    unsigned hold_ms; /* 0: it releases at once */
    int leave_ms;     /* without an answer by then it closes its connection; -1: never */
    bool keeps;       /* it does not release */
    bool without_key; /* permitd makes the key */

    /* The throng's own. */
    unsigned number;
    enum client_state state;
    int fd;
    unsigned round;       /* of the turn it is in */
    size_t turn;          /* index of its latest turn */
    char key[THRONG_KEY]; /* of that turn; empty while permitd has not said it */
    struct heap_node timer;
    char *partial; /* of an answer that came in pieces */
    size_t partial_length;
};

struct throng {
    char name[16]; /* its keys begin so */
    unsigned port;
    struct client *clients;
    unsigned count;
    unsigned busy; /* clients that are asking, holding, releasing or leaving */
    unsigned gone;
    struct turn *turns; /* in the order in which they were asked for */
    size_t turn_count;
    size_t turn_room;
    struct heap timers;
    int epoll_fd;
    unsigned failed; /* releases that were not answered with 200 */
    /* Called when a client has become idle; may be NULL. */
    void (*done)(struct throng *throng, struct client *client);
    void *context;
};

/* Connects so many clients from several addresses of the loopback net; ends the process if that fails. */
struct throng *throng_open(const char *name, unsigned port, unsigned count);
/* Closes what is open and frees. Accepts NULL. */
void throng_close(struct throng *throng);
/* Sends the acquire of an idle client: the first of its rounds. */
void throng_ask(struct throng *throng, struct client *client);
/* All of them, in order of their numbers; now and then looks for answers meanwhile. */
void throng_ask_all(struct throng *throng);
/*
 * Closes the connection, whatever it waits for. Of a client without a key only its sending side: what permitd answers
 * all the same is read, as nobody could find it later, and then it is gone.
 */
void throng_leave(struct throng *throng, struct client *client);
/* Reads, releases and asks again until `until_us`, or until nobody is busy: then true. */
bool throng_run(struct throng *throng, int64_t until_us);
/* Waits at most `ms` for something to happen, and does what follows. */
void throng_step(struct throng *throng, int ms);
/* Turns with this status; word NULL: any. */
size_t throng_count(const struct throng *throng, int status, const char *word);
/* Raises this process's limit of open files as far as it may. Returns it. */
size_t throng_files(void);
#endif
