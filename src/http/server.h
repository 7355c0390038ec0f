/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 server on one event loop, which runs on the thread that calls server_run. Only files that include loop.h use
 * libevent. The server reads requests within limits of size and time, passes each to a handler, sends the answers, and
 * enforces the deadline of every exchange independently of the engine.
 *
 *  connection  Accepted until closed. There are at most max_connections, and max_connections_per_address from one
 *              address. At these limits the longest idle connection is closed for a new one. If none is idle, accepting
 *              stops until a connection closes (max_connections), or the new connection is answered 429 (per address).
 *              A connection without a complete request within idle_timeout after its last answer is closed, whether it
 *              is idle or slow; so is a connection whose client does not read its answer in that time.
 *  exchange    One at a time on a connection. A few KiB of pipelined requests are read in advance; the rest stays in
 *              the socket.
 *  memory      Requests and answers share the memory that max_memory leaves beside the rest of the process. Beyond it,
 *              a request is refused with 503, and an answer is replaced by a refusal.
 */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "http/exchange.h"
#include "permit/status.h"

enum { SERVER_MAX_BODY = 1024 * 1024 /* largest body of any route */ };

/* Hooks of the server for its requests. They run on the loop's thread; `handle` also on the thread of large bodies. */
struct server_hooks {
    size_t exchange_size; /* size of the object that each exchange begins; the server zeroes it once */
    /*
     * Called when the headers are complete. Sets the number of body bytes to accept, at most SERVER_MAX_BODY; larger
     * bodies are refused. False: the exchange's answer is a refusal, and the connection is closed after it.
     */
    bool (*admit)(struct exchange *exchange, size_t *ret_body_max);
    /* Fills the answer and returns true, or returns false and the answer follows later (exchange_finish). */
    bool (*handle)(struct exchange *exchange);
    /* Fills `answer` with a refusal. detail NULL: the status says enough. */
    void (*refuse)(struct answer *answer, const char *request_id, enum permit_status status, const char *detail);
    /*
     * The deadline has passed after the handler returned. Fills `answer`, which is not the exchange's. The exchange is
     * finished later all the same.
     */
    void (*time_out)(struct exchange *exchange, struct answer *answer);
    /*
     * The client of an exchange that may wait has disconnected, and the handler has returned. True: no other thread has
     * the exchange, and it will not be finished. False: it is too late, and the exchange is finished as usual.
     */
    bool (*abandon)(struct exchange *exchange);
    /* The exchange is finished, its answer is marked must_arrive, and no client has got any answer. */
    void (*undelivered)(struct exchange *exchange);
    /* Resets what follows the exchange in its object, before the exchange is used again or freed. */
    void (*clear)(struct exchange *exchange);
};

struct server_settings {
    const char *listen; /* "127.0.0.1:7070", "[::1]:0" */
    bool any_address;   /* allow addresses other than loopback */
    int64_t max_connections;
    int64_t max_connections_per_address; /* 0: a quarter of max_connections */
    int64_t max_memory;                  /* resident bytes of the whole process */
    int64_t idle_timeout_ms;
    int64_t request_timeout_ms;
    const struct server_hooks *hooks;
    struct service *service;      /* for handlers on the loop */
    struct service *body_service; /* for handlers on the thread of large bodies */
};

/*
 * Opens the listener; clients can connect, but nothing is served yet. Settings are copied. On false `message` has the
 * reason.
 */
bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message) MUST_CHECK;
/* The URL of the listener, such as "http://127.0.0.1:7070". */
const char *server_url(const struct server *server);
/*
 * Calls `called` on the loop's thread when the process receives the signal. False: out of memory, or too many signals.
 */
bool server_on_signal(struct server *server, int number, void (*called)(void *context), void *context) MUST_CHECK;
/* Serves until server_stop is called and all answers are sent, but at most grace_ms after that call. */
void server_run(struct server *server);
/* Like server_run, and also returns when fd is readable. False: out of memory. */
bool server_run_until(struct server *server, int fd) MUST_CHECK;
/*
 * Stops accepting connections and answers new requests 503 shutting_down. server_run returns when all exchanges are
 * answered.
 */
void server_stop(struct server *server, int64_t grace_ms);
/* Sends answers that were finished since server_run returned. Does not block. */
void server_flush(struct server *server);
/* Applies changed max_memory, timeouts and connection limits. Called on the loop's thread. */
void server_reload(struct server *server, const struct server_settings *settings);
/* Closes everything. No exchange may still be with the engine. Accepts NULL. */
void server_free(struct server *server);

/* Counters for metrics, read on the loop's thread. */
struct server_counts {
    uint64_t connections;    /* currently open */
    uint64_t accepted;       /* accepted since the start */
    uint64_t full;           /* times that accepting stopped because the server was full and no connection was idle */
    uint64_t yielded;        /* idle connections closed for a new one */
    uint64_t crowded;        /* refused because of max_connections_per_address */
    uint64_t buffered;       /* bytes of requests and answers now, pieces of up to BUDGET_SMALL excluded */
    uint64_t memory_refused; /* times that max_memory refused memory to a request or an answer */
    uint64_t exchanges;      /* currently being handled */
    uint64_t answers[6];     /* by class of HTTP status; [0] is unused */
    uint64_t late;           /* timeout answers */
};
void server_counts(const struct server *server, struct server_counts *ret_counts);
#endif
