/* SPDX-License-Identifier: MIT */
/*
 * Internals of the server, for the files that use libevent on its loop. No other file includes this header.
 *
 *    server.c      start, stop, the tick
 *    listen.c      listeners: opens them and accepts connections
 *    connection.c  connections, until they are closed
 *    handshake.c   handshakes of TLS
 *    receive.c     receives requests
 *    bodies.c      runs handlers of large bodies, off the loop
 *    send.c        sends answers
 *    max_memory.c  keeps the process under max_memory
 *
 * All functions run on the loop's thread, except exchange_finish and the thread of bodies.c.
 */
#ifndef HTTP_LOOP_H
#define HTTP_LOOP_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <time.h>

#include "base/mutex.h"
#include "http/listen_address.h"
#include "http/peer.h"
#include "http/server.h"
#include "http/share.h"

enum {
    MAX_SIGNALS = 4,
    LISTENERS_MAX = 16,
    DATE_SIZE = 40,
    READ_AHEAD = 4096,      /* bytes of later requests that are read in advance; at this number reading pauses */
    INPUT_SIZE = 16 * 1024, /* bytes of a body that one read takes, so that no connection delays the others for long */
};

/*
 * State of a connection. Each state is a list of the server, ordered by the time of entry.
 *
 *    HANDSHAKING  TLS: no complete handshake yet; the client may not have sent anything
 *    QUEUED       TLS: the client waits until its handshake may begin; nothing is read
 *    READING      receives a request or waits for one; an idle connection is READING
 *    DECIDING     the engine has the exchange; input that arrives is read in advance up to a limit
 *    SENDING      the answer is not completely in the socket, or the client has left too much of its answers there;
 *                 nothing is read
 *    LINGERING    the last answer is sent; further input is dropped, so that the client can read the answer
 *    CLOSED       freed at the end of the callback
 */
enum connection_state {
    CONNECTION_HANDSHAKING,
    CONNECTION_QUEUED,
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
    struct list of_peer; /* on peer->idle while READING, or SENDING to a stranger; in a line of the peer while its
                            handshake waits */
    struct list of_new;  /* on server->newcomers until the first request is complete, if that time is limited */
    mono_us first_by;    /* on server->newcomers: end of that time */
    struct server *server;
    struct peer *peer;
    struct client client;
    int fd;
    struct tls *tls;           /* NULL: plain HTTP, or the handshake has not begun */
    struct evbuffer *output;   /* bytes that the socket has not accepted yet; NULL: nothing */
    size_t output_piece;       /* TLS: bytes of `output` that must be written as one piece, because a try has failed */
    struct event *writable;    /* pending while the socket is to accept something; NULL: not needed until now */
    struct event *readable;    /* pending unless reading is paused or the client has closed its side */
    struct buf ahead;          /* input that was read in advance */
    struct event *close_watch; /* reports the client's close while reading is paused; NULL: not needed */
    struct exchange *exchange; /* receives its request, or is with the engine; NULL: no request has begun */
    mono_us since;             /* time of the last change of state */
    size_t dropped;            /* bytes read while LINGERING */
    bool may_begin;            /* its handshake may begin */
    bool paused;               /* reading is paused: `ahead` has READ_AHEAD bytes or more */
    bool more;                 /* more input followed the last request that was read */
    bool closes;               /* close the connection after the answer that is being sent */
    bool refused;              /* the request was refused; the rest of it may arrive and is not read */
    bool ended;                /* the client has closed its side */
};

/* Queue of the thread that runs the handlers of large bodies. */
struct bodies {
    pthread_t thread;
    bool started;
    struct mutex mutex;
    pthread_cond_t changed;
    struct exchange *first; /* first queued exchange; under `mutex`, like all members below */
    struct exchange **last;
    bool trim_requested; /* the thread shall return freed memory to the system */
    bool stopping;
};

struct listener {
    struct server *server;
    struct listen_address address;
    int fd;
    struct event *acceptable;
    char url[ADDRESS_URL_SIZE];
    dev_t device; /* of a Unix socket: identifies it at the end, when it is removed */
    ino_t inode;
};

/* A signal that the loop reads from a descriptor; it is blocked in all threads. */
struct signal_watch {
    int fd;
    struct event *readable;
    void (*called)(void *context);
    void *context;
};

struct server {
    struct server_settings settings;
    struct event_base *base;
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    bool accept_paused; /* accepting is paused until server_resume_accepting */
    struct event *tick;
    struct event *woken;
    struct signal_watch signals[MAX_SIGNALS];
    size_t signal_count;

    mono_us now; /* time of the current callback */
    char input[INPUT_SIZE];

    struct list connections[CONNECTION_STATES];
    size_t connection_count;
    struct map peers;
    struct list failing_peers;

    struct tls_context *tls;       /* for new connections; NULL: no TLS */
    struct list newcomers;         /* connections whose first request is not complete, by first_by */
    struct event *turn;            /* the next turn of the loop */
    unsigned handshake_steps;      /* in this turn */
    mono_us handshake_at;          /* when the next handshake may begin */
    struct list lines[LINE_KINDS]; /* peers with connections that wait; the first one is next */

    struct memory_share memory; /* all memory of requests and answers */
    struct memory_share
        strangers;          /* the part of clients without a credential together, if credentials are configured */
    size_t baseline_bytes;  /* resident memory of the process when nearly none of `memory` was used */
    mono_us trimmed_at;     /* when freed memory was last returned to the system */
    size_t trimmed_bytes;   /* resident memory at that time */
    size_t refusals_logged; /* refusals because of max_memory that the log has reported */
    bool memory_short;      /* resident memory is above max_memory */

    struct heap under_way; /* exchanges by deadline */
    struct exchange *free_exchanges;
    size_t free_count;
    struct buf scratch; /* body of timeout answers */

    struct bodies bodies;
    struct mutex outbox_mutex;
    struct exchange *outbox; /* finished exchanges, oldest first; under outbox_mutex */
    struct exchange **outbox_end;
    struct exchange *returned; /* exchanges whose handler has returned on the thread of bodies.c; under outbox_mutex */
    int wake_fd;

    uint32_t id_seed;
    uint64_t id_next;
    time_t date_at;
    char date[DATE_SIZE];
    struct server_counts counts;
    mono_us full_quiet_until;   /* next time that the log may report a full server */
    mono_us accept_quiet_until; /* the same for failed accepts */
    mono_us memory_quiet_until; /* the same for max_memory */
    mono_us insecure_quiet_until;
    mono_us handshake_quiet_until;
    bool stopping;
    mono_us stop_by;
};

/* ---- listen.c ---- */

/* Opens the listeners but Unix sockets. On false `message` has the reason, unless there is no memory. */
bool listeners_open(struct server *server, struct buf *message) MUST_CHECK;
/* The same for Unix sockets. */
bool listeners_open_paths(struct server *server, struct buf *message) MUST_CHECK;
void listeners_pause(struct server *server);
/* Closes the listeners and removes their Unix sockets. */
void listeners_close(struct server *server);
/* Warns each hour of listeners that serve other machines without protection. */
void listeners_warn(struct server *server);
/* Resumes accepting if it is paused and the server is not stopping. */
void server_resume_accepting(struct server *server);

/* Returns true if a line was logged in the last second. *until is the state of the line. */
bool server_log_is_limited(const struct server *server, mono_us *until);

/* ---- handshake.c ---- */

bool handshakes_open(struct server *server) MUST_CHECK;
/* The connection is HANDSHAKING and its socket is ready. */
void handshake_continue(struct connection *connection);
/* The connection has left the lines of its peer. connection_move calls it. */
void handshake_left(struct connection *connection);
/* Lets handshakes of QUEUED connections begin, one of each peer in turn. Each tick calls it. */
void handshakes_release(struct server *server);
/* Closes a connection whose handshake has taken too long. */
void handshake_time_out(struct connection *connection);

/* ---- connection.c ---- */

/* Begins to read a new connection on its descriptor. False: out of memory. */
bool connection_open(struct connection *connection) MUST_CHECK;
/* Limits the time until the connection's first request is complete. The time begins now. */
void connection_is_new(struct connection *connection);
/* Waits until the socket accepts output. Out of memory: the connection is closed. */
void connection_await_output(struct connection *connection);
/* Ends that wait, if there is one. */
void connection_stop_awaiting_output(struct connection *connection);
/* Returns true if the client has shown no valid credential, and needs one. */
static inline bool connection_is_stranger(const struct connection *connection)
{
    return connection->client.share == &connection->peer->share;
}
/* Moves the connection to a state and restarts its time in the state. */
void connection_move(struct connection *connection, enum connection_state state);
/*
 * Processes input that was read in advance, if the connection is READING. Closes it if the client has closed its side.
 */
void connection_read(struct connection *connection);
/* Sends "100 Continue". False: out of memory; the connection is closed and its exchange recycled. */
bool connection_send_continue(struct connection *connection) MUST_CHECK;
/*
 * Sends an answer: `head` and `body`. `memory` has the body, and may be taken over; NULL: the body lives as long as the
 * process. When all of it is in the socket, the connection is READING again, LINGERING, or closed.
 */
void connection_answer(struct connection *connection, struct bytes head, struct bytes body, struct buf *memory);
/*
 * Watches for the client's close while reading is paused, because a client that disconnects leaves the waitlist
 * immediately. Does nothing unless the exchange waits.
 */
void connection_watch_close(struct connection *connection);
/* Returns true if the client has closed its side. Checks the socket too, because the loop may not have read it yet. */
bool connection_client_closed(struct connection *connection);
/*
 * Closes the connection. It is freed at the end of the callback. An exchange that is with the engine continues without
 * it.
 */
void connection_close(struct connection *connection);
/* Frees closed connections. Called at the end of each callback that may close one. */
void connections_dispose(struct server *server);
/* Closes connections that have been in their state for too long. */
void connections_sweep(struct server *server);

/* ---- max_memory.c ---- */

/* Measures resident memory, sets the limits of server->memory, and returns freed memory to the system. */
void memory_watch(struct server *server);

/* ---- receive.c ---- */

/* Reads `input` for the connection, which is READING, and moves `input` past the bytes read. */
void request_receive(struct connection *connection, struct bytes *input);
/* Returns an empty exchange for the connection, which has none. NULL: out of memory. */
struct exchange *exchange_take(struct connection *connection) MUST_CHECK;
/* Answers with a refusal. The connection is not read any more. */
void exchange_refuse(struct exchange *exchange, enum permit_status status, const char *detail);
/* Finishes the loop's part after a handler has left the exchange to the engine. */
void exchange_handed_over(struct server *server, struct exchange *exchange);
/* Returns true if the exchange is with the engine and may wait there for free units. */
bool exchange_waits(const struct exchange *exchange);
/* Resets the exchange and keeps it for another request, or frees it. The caller drops all references to it. */
void exchange_recycle(struct server *server, struct exchange *exchange);
/* Frees the exchanges that are kept for other requests. */
void exchanges_free_spare(struct server *server);
/* The client has disconnected or closed its side before the answer: abandons a waiting exchange. */
void exchange_client_disconnected(struct server *server, struct exchange *exchange);

/* ---- bodies.c ---- */

bool bodies_start(struct server *server);
/* Queues an exchange for the thread that runs the handlers of large bodies. */
void bodies_handle(struct server *server, struct exchange *exchange);
/* Cancels a queued handler after its deadline. False: the handler runs or has run. */
bool bodies_cancel(struct exchange *exchange);
/* Returns freed memory to the system, on the same thread. */
void bodies_trim(struct server *server);
/* Takes back exchanges whose handlers have returned. */
void bodies_drain(struct server *server);
void bodies_stop(struct server *server);

/* ---- send.c ---- */

/* Updates the Date header of answers. Each tick calls it. */
void date_update(struct server *server);
/* Sends an answer. The connection has no exchange from then on. Takes the memory of the answer's body. */
void answer_send(struct connection *connection, const struct exchange *exchange, struct answer *answer);
/* Makes the exchange's answer a refusal. */
void answer_refuse(struct exchange *exchange, enum permit_status status, const char *detail);
/* Sends the exchange's answer if the client is still connected, and recycles the exchange. */
void exchange_answer(struct server *server, struct exchange *exchange);
/* Like exchange_answer, for an exchange that was with the engine; then continues to read its connection. */
void exchange_answer_decided(struct server *server, struct exchange *exchange);
/* Wakes the loop, from another thread. */
void server_wake(struct server *server);
/* Answers all exchanges that the engine has finished. */
void outbox_drain(struct server *server);
#endif
