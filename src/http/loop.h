/* SPDX-License-Identifier: MIT */
/*
 * The insides of the server, for the files that speak to libevent on its loop; nobody else includes it.
 *
 *     server.c      start, stop, listening, the tick
 *     connection.c  connections, from accept to close
 *     receive.c     a request comes in
 *     bodies.c      handlers of large bodies, off the loop
 *     send.c        an answer goes out
 *     memory.c      max_memory
 *
 * All of it runs on the loop's thread, but for exchange_finish and the thread of bodies.c.
 */
#ifndef HTTP_LOOP_H
#define HTTP_LOOP_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <pthread.h>
#include <time.h>

#include "base/budget.h"
#include "http/peer.h"
#include "http/server.h"

enum {
    MAX_SIGNALS = 4,
    DATE_SIZE = 40,
    READ_AHEAD = 4096,      /* bytes of further requests, read before they are wanted, at which reading pauses */
    INPUT_SIZE = 16 * 1024, /* read at once of a body, so that no connection holds up the others for long */
};

/*
 * What a connection is doing. Each state but the last is a list of the server, the longest in it first.
 *
 *     READING    a request comes in, or is waited for: an idle connection is one of these
 *     DECIDING   its exchange is with the engine; what comes meanwhile is read ahead, up to a bound
 *     SENDING    an answer is not yet in the socket; nothing is read
 *     LINGERING  the last answer is out; what still comes is dropped, so that the client gets to read it
 *     CLOSED     freed at the end of the callback
 */
enum connection_state {
    CONNECTION_READING,
    CONNECTION_DECIDING,
    CONNECTION_SENDING,
    CONNECTION_LINGERING,
    CONNECTION_CLOSED,
    CONNECTION_STATES,
};

struct connection {
    enum connection_state state;
    struct list node;    /* on server->connections[state] */
    struct list of_peer; /* on peer->idle while it is READING */
    struct server *server;
    struct peer *peer;
    struct bufferevent *bev;   /* writes what the socket does not take at once */
    struct event *readable;    /* pending unless reading is paused, or the client has closed its side */
    struct buf ahead;          /* read before it was wanted */
    struct event *end_watch;   /* tells that the client closes while its input is not read; NULL: not needed */
    struct exchange *exchange; /* whose request is being read, or is with the engine; NULL: none has begun */
    mono_us since;             /* accepted, or last moved to its state */
    size_t dropped;            /* bytes read while LINGERING */
    bool paused;               /* nothing is read, as much was sent before it is wanted */
    bool more;                 /* behind the request that was read last more has come already */
    bool closes;               /* it is closed behind the answer that is being sent */
    bool refused;              /* and more of a request may come that nobody reads */
    bool ended;                /* the client has closed its side */
};

/* What large bodies are handed over by. */
struct bodies {
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct exchange *first; /* under `mutex` */
    struct exchange **last;
    bool trims; /* memory is to be given back to the system */
    bool stopping;
};

struct server {
    struct server_settings settings;
    struct event_base *base;
    int listen_fd;
    struct event *acceptable;
    bool deaf; /* nothing is accepted until server_listen_again */
    struct event *tick;
    struct event *woken;
    struct event *signals[MAX_SIGNALS];
    size_t signal_count;
    char url[128];

    mono_us now; /* when libevent last called one of us */
    char input[INPUT_SIZE];

    struct list connections[CONNECTION_STATES];
    size_t connection_count;
    struct map peers;

    struct budget receiving; /* memory of requests that come in */
    struct budget answering; /* memory of those that are worked on, and of answers */
    size_t quiet_bytes;      /* resident when next to nothing of that was used */
    mono_us trimmed_at;      /* freed memory was last given back */
    size_t trimmed_bytes;    /* resident then */
    size_t refused_said;     /* how often either had refused when the log said so */
    bool memory_short;       /* more is resident than max_memory */

    struct heap under_way; /* exchanges, the next deadline first */
    struct exchange *free_exchanges;
    size_t free_count;
    struct buf scratch; /* for answers of the loop's own */

    struct bodies bodies;
    pthread_mutex_t outbox_mutex;
    struct exchange *outbox; /* finished, in order; under outbox_mutex */
    struct exchange **outbox_end;
    struct exchange *returned; /* whose handlers have returned on the thread of bodies.c; under outbox_mutex */
    int wake_fd;

    uint32_t id_seed;
    uint64_t id_next;
    time_t date_at;
    char date[DATE_SIZE];
    struct server_counts counts;
    mono_us full_quiet_until;   /* the log has said that it is full */
    mono_us accept_quiet_until; /* that a connection could not be accepted */
    mono_us memory_quiet_until; /* that max_memory is reached */
    bool stopping;
    mono_us stop_by;
};

/* ---- connection.c ---- */

/* Accepts those who wait, a few at a time. */
void connections_accept(evutil_socket_t fd, short what, void *server);
/* Accepts again, if there may be room for another connection. */
void server_listen_again(struct server *server);
/* Moves it to a state; SENDING and READING count time anew. */
void connection_move(struct connection *connection, enum connection_state state);
/* Reads on: what was read ahead, then what comes. Not while it is decided or sent. */
void connection_read(struct connection *connection);
/* Sends "100 Continue". False: no memory; then the connection is closed, and its exchange is gone. */
bool connection_say_continue(struct connection *connection) MUST_CHECK;
/*
 * Sends an answer: `head` and, if it is not NULL, `body`, whose memory it may take over. When all of it is in the
 * socket, the connection is READING again, or is closed.
 */
void connection_answer(struct connection *connection, struct bytes head, struct buf *body);
/*
 * "A client that goes away leaves the queue at once", also one that has sent so much behind its request that its end is
 * not read.
 */
void connection_watch_end(struct connection *connection);
/* The client has closed its side, also if the loop has not come to that yet. */
bool connection_has_ended(const struct connection *connection);
/* It is of no use any more: it is freed at the end of the callback, an exchange of it goes on without. */
void connection_close(struct connection *connection);
/* Frees those that were closed. At the end of each callback that may close one. */
void connections_dispose(struct server *server);
/* Closes those that have been in their state for too long. */
void connections_sweep(struct server *server);

/* ---- memory.c ---- */

/* Measures what is resident, sets the limits of both budgets, and gives freed memory back. */
void memory_watch(struct server *server);

/* ---- receive.c ---- */

/* Reads from `input`, on behalf of the connection, which is READING, and moves it behind what was read. */
void request_receive(struct connection *connection, struct bytes *input);
/* An empty exchange for the connection, which has none. NULL: no memory. */
struct exchange *exchange_take(struct connection *connection) MUST_CHECK;
/* Sends the exchange's answer, which is a refusal, and reads no more of the connection. */
void exchange_refuse(struct exchange *exchange);
/* The handler has returned, and left the exchange to the engine. */
void exchange_settle(struct server *server, struct exchange *exchange);
/* It is with the engine, and may wait there for room. */
bool exchange_waits(const struct exchange *exchange);
/* Keeps it for another request. Nobody refers to it any more. */
void exchange_recycle(struct server *server, struct exchange *exchange);
/* The client has gone, or closed its side, before it was answered: one that waits is not waited for any more. */
void exchange_client_gone(struct server *server, struct exchange *exchange);

/* ---- bodies.c ---- */

bool bodies_start(struct server *server);
/* Hands an exchange over to the thread that calls the handlers of large bodies. */
void bodies_handle(struct server *server, struct exchange *exchange);
/* The handler's time is over: false if it was, or is being, called. */
bool bodies_cancel(struct exchange *exchange);
/* Gives freed memory back to the system, on the same thread. */
void bodies_trim(struct server *server);
/* Takes the exchanges back whose handlers have returned. */
void bodies_drain(struct server *server);
void bodies_stop(struct server *server);

/* ---- send.c ---- */

/* The Date of answers, which is right to the second if this is called by each tick. */
void date_renew(struct server *server);
/* Sends an answer; the connection has no exchange from then on. Takes the memory of the answer's body. */
void answer_send(struct connection *connection, const struct exchange *exchange, struct answer *answer);
/* Sends the exchange's answer, if there still is somebody to send it to, and recycles it. */
void exchange_answer(struct server *server, struct exchange *exchange);
/* The same of one that was with the engine; its connection is read on. */
void exchange_answer_later(struct server *server, struct exchange *exchange);
/* Answers all that the engine has decided. */
void outbox_drain(struct server *server);
#endif
