/* SPDX-License-Identifier: MIT */
/*
 * The insides of the server, for the four files that speak to libevent on its loop; nobody else includes it.
 *
 *     server.c      start, stop, listening, the tick
 *     connection.c  connections, from accept to close
 *     receive.c     a request comes in
 *     send.c        an answer goes out
 *
 * All of it runs on the loop's thread, but for exchange_finish.
 */
#ifndef HTTP_LOOP_H
#define HTTP_LOOP_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <time.h>

#include "http/server.h"

enum {
    MAX_SIGNALS = 4,
    DATE_SIZE = 40,
    READ_AHEAD = SERVER_MAX_BODY + SERVER_MAX_HEADERS, /* one request's worth */
    READ_AHEAD_WAITING = SERVER_MAX_HEADERS,           /* of the many that wait, for long */
};

/*
 * A client's connection, from accept to close. evhttp tells us of its end only once it has carried a request; until
 * then a reference of our own to its bufferevent lets the tick see that evhttp has let go of it.
 */
struct connection {
    struct list node; /* on server->idle, the longest first, or on server->busy */
    struct map_node by_bev;
    struct server *server;
    struct bufferevent *bev;
    mono_us since;             /* accepted, or last answer handed out */
    struct exchange *exchange; /* with the engine */
    bool known_to_evhttp;      /* its close callback is set */
    bool answering;            /* what goes into its output is ours */
    bool error_page;           /* evhttp wrote one: on server->error_pages */
    struct connection *next_error_page;
};

struct server {
    struct server_settings settings;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *tick;
    struct event *woken;
    struct event *error_page_event;
    struct event *signals[MAX_SIGNALS];
    size_t signal_count;
    char url[128];

    struct map connections; /* by the address of the bufferevent */
    struct list idle;
    struct list busy;
    struct connection *error_pages;

    struct heap under_way; /* exchanges, the next deadline first */
    struct exchange *free_exchanges;
    size_t free_count;
    struct buf scratch; /* for answers of the loop's own */

    pthread_mutex_t outbox_mutex;
    struct exchange *outbox; /* finished, in order; under outbox_mutex */
    struct exchange **outbox_end;
    int wake_fd;

    uint32_t id_seed;
    uint64_t id_next;
    time_t date_at;
    char date[DATE_SIZE];
    struct server_counts counts;
    mono_us full_quiet_until; /* the log has said that it is full */
    bool stopping;
    mono_us stop_by;
};

/* --- server.c ----------------------------------------------------------------------------------------------------- */

/* The tick comes as often as it should, full or not. */
void server_set_pace(struct server *server);

/* --- connection.c ------------------------------------------------------------------------------------------------- */

/* evhttp has accepted a connection and asks for its bufferevent. NULL: it makes one that we do not follow. */
struct bufferevent *connection_accept(struct event_base *base, void *server);
/* The one with this bufferevent, or NULL. */
struct connection *connection_of(struct server *server, struct bufferevent *bev);
/* From now on we are told when evhttp closes it. */
void connection_follow(struct connection *connection, struct evhttp_connection *evcon);
/* Moves it between idle and busy. */
void connection_set_busy(struct connection *connection, bool busy);
/* How much is read and kept of what the client sends before anybody wants it. */
void connection_read_ahead(struct connection *connection, size_t bytes);
/* evhttp has let go of it; only before it has carried a request. */
bool connection_is_dead(const struct connection *connection);
/* Frees it; evhttp does not know it any more. */
void connection_forget(struct connection *connection);
/* There are as many connections as may be. */
bool server_is_full(const struct server *server);
/* Accepts again, if there is room for another connection. */
void server_listen_again(struct server *server);
/* Puts problems in place of the pages that evhttp has just written. */
void error_pages_replace(evutil_socket_t fd, short what, void *server);

/* --- receive.c ---------------------------------------------------------------------------------------------------- */

/* A request has been read whole. */
void request_received(struct evhttp_request *request, void *server);
/* The next X-Request-Id. */
void request_id_make(struct server *server, char id[EXCHANGE_ID_SIZE]);

/* --- send.c ------------------------------------------------------------------------------------------------------- */

/* Hands the answer to evhttp, which frees the request. The connection may be gone afterwards. */
void answer_send(struct server *server, struct evhttp_request *request, struct connection *connection, const char *id,
                 const struct answer *answer);
/* Sends the exchange's answer, if there still is somebody to send it to, and recycles it. */
void exchange_answer(struct server *server, struct exchange *exchange);
/* Answers all that the engine has decided. */
void outbox_drain(struct server *server);
/* Closes the connection of one that is not answered, and with it its request. */
void exchange_hang_up(struct exchange *exchange);
/* Keeps it for another request. Nobody refers to it any more. */
void exchange_recycle(struct server *server, struct exchange *exchange);
/* The Date of an answer now. */
const char *date_header(struct server *server);
#endif
