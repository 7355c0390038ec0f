/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 on one loop, the thread that calls server_run. Only the files that include loop.h speak to libevent.
 * Reads requests within bounds of size and time, gives each to `handle`, sends the answers, and keeps every exchange's
 * deadline by itself, whatever the engine does.
 *
 *   connection  held from accept to close. At most max_connections, and from one address max_connections_per_address:
 *               then the longest idle one is closed for a newcomer; if none is idle nothing is accepted until one
 *               closes, or the newcomer is answered 429. One that brings no complete request within idle_timeout of its
 *               last answer is closed: idle ones and slow senders alike; so is one that does not read its answer in
 *               that time.
 *   exchange    one at a time on a connection; a few KiB of pipelined requests are read ahead, the rest waits in the
 *               socket.
 *   memory      what requests and answers take is bounded by what max_memory leaves beside the rest of the process.
 *               Beyond, a request is refused with 503, an answer is replaced by one.
 */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "http/exchange.h"

enum { SERVER_MAX_BODY = 1024 * 1024 /* of any route */ };

struct server_settings {
    const char *listen; /* "127.0.0.1:7070", "[::1]:0" */
    bool any_address;   /* also other than loopback */
    int64_t max_connections;
    int64_t max_connections_per_address; /* 0: a quarter of max_connections */
    int64_t max_memory;                  /* bytes, resident, of the whole process */
    int64_t idle_timeout_ms;
    int64_t request_timeout_ms;
    /*
     * The headers are read. Says how many bytes of a body are taken, at most SERVER_MAX_BODY; more are refused. False:
     * the answer is a refusal, and the connection is closed behind it.
     */
    bool (*admit)(struct exchange *exchange, size_t *ret_body_max);
    /* Fills the answer and returns true, or sees to it that it comes later and returns false. */
    bool (*handle)(struct exchange *exchange);
    struct service *service;      /* of the loop; the server sets the budgets of both */
    struct service *body_service; /* of the thread that handles large bodies */
};

/* Listens (from now on clients can connect) and serves nothing yet. `message` says why not. Settings are copied. */
bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message) MUST_CHECK;
/* The address it listens on as a URL: "http://127.0.0.1:7070". */
const char *server_url(const struct server *server);
/* Calls `called` on the loop's thread when the process gets the signal. False: no memory. */
bool server_on_signal(struct server *server, int number, void (*called)(void *context), void *context) MUST_CHECK;
/* Serves until server_stop was called and every answer is sent, but at most grace_ms after that call. */
void server_run(struct server *server);
/* The same, but returns also when fd is readable. False: no memory. */
bool server_run_until(struct server *server, int fd) MUST_CHECK;
/* No new connections, new requests get 503 shutting_down; server_run returns when what runs is answered. */
void server_stop(struct server *server, int64_t grace_ms);
/* Sends, without waiting, what was finished since server_run returned. */
void server_flush(struct server *server);
/* Changes of max_memory, and of the time-outs and bounds of connections; on the loop's thread. */
void server_reload(struct server *server, const struct server_settings *settings);
/* Closes everything. No exchange may be with the engine any more. Accepts NULL. */
void server_free(struct server *server);

/* On the loop's thread, for metrics. */
struct server_counts {
    uint64_t connections;    /* open now */
    uint64_t accepted;       /* since the start */
    uint64_t full;           /* times that there were as many as max_connections, and none idle */
    uint64_t yielded;        /* idle ones that were closed for a newcomer */
    uint64_t crowded;        /* refused: too many from one address */
    uint64_t buffered;       /* bytes of requests and answers now, but for small pieces */
    uint64_t memory_refused; /* times that max_memory did not allow more of them */
    uint64_t exchanges;      /* under way now */
    uint64_t answers[6];     /* by hundreds of the HTTP status; [0] is unused */
    uint64_t late;           /* answered by the loop's deadline */
};
void server_counts(const struct server *server, struct server_counts *ret_counts);
#endif
