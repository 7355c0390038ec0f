/* SPDX-License-Identifier: MIT */
/*
 * One HTTP request and its answer. The server makes it with the first byte of a request, which its parser reads; when
 * the request has been read whole, the handler of its route fills in the answer, and the server sends it. Two ways to
 * an answer:
 *
 *   now    the handler fills it and returns true; all of that on the loop's thread, or, of a large body, on that of
 *          bodies.c;
 *   later  the handler gives ops or a look to the engine and returns false. From then on everything but the "server's
 *          own" members belongs to the engine's threads. What several of them decide parts of, a batch or an eviction
 *          (batch.c, retire.c), they share as is said there; whoever comes last fills the answer and calls
 *          exchange_finish. Until then the loop only reads what the handler left behind; stages are shared.
 *
 * If the loop's deadline comes first, the loop answers by itself from other memory, and what is finished later is
 * dropped; so is the answer to one that waits for room and whose client has gone meanwhile.
 *
 * Memory for the request's data comes from `arena`, which lives until the answer was sent or dropped.
 */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include <pthread.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/heap.h"
#include "engine/engine.h"

struct connection;
struct exchange;
struct parser;
struct server;
struct service;

enum http_method { METHOD_GET, METHOD_PUT, METHOD_POST, METHOD_DELETE, METHOD_OPTIONS, METHOD_OTHER };

enum {
    EXCHANGE_ID_SIZE = 28,
    EXCHANGE_MAX_PARTS = 1, /* variable parts of a path */
    EXCHANGE_MAX_QUERY = 6, /* query parameters of a route */
    ETAG_SIZE = 64,
};

/* One operation of an exchange, and where its answer stands: the whole answer, or one result of POST /v1/batch. */
struct part {
    struct op op;
    struct operation operation;
    struct exchange *exchange;
    bool key_made; /* the external_id is ours: nobody can ask for it who has not read the answer */
    int http_status;
    size_t offset; /* batch: in its pieces */
    size_t length;
};

/* Granted under a key that nobody knows who has not read the answer. */
static inline bool part_is_unknown_grant(const struct part *part)
{
    return part->key_made && part->http_status / 100 == 2;
}

/* The operations of one POST /v1/batch. In the exchange's arena. */
struct part_list {
    struct part *parts;
    size_t remaining;      /* not yet decided; under `mutex` */
    struct buf pieces;     /* answers in the order of decision; under `mutex` */
    pthread_mutex_t mutex; /* several engine threads may decide parts of one batch */
};

/* What goes out. The body is JSON unless content_type says otherwise. */
struct answer {
    int http_status;
    struct buf body;
    const char *content_type; /* constant text */
    const char *allow;        /* of 405 and OPTIONS: the methods of the path; in the arena or constant */
    char etag[ETAG_SIZE];     /* "" if there is none */
    int64_t retry_after_ms;   /* 0: no Retry-After */
    bool close;               /* the connection cannot be used any more; set before the handler, by the loop only */
};

enum off_loop_stage { ON_LOOP, OFF_LOOP_QUEUED, OFF_LOOP_TAKEN, OFF_LOOP_CANCELLED };

/*
 * The handler of a large body runs on a thread of its own (bodies.c). Until that has returned, the loop touches only
 * the server's own members: the engine may finish the exchange before.
 */
struct off_loop {
    atomic_int stage;      /* enum off_loop_stage */
    bool answered;         /* the handler has filled the answer */
    bool returned;         /* the loop knows that the handler has returned */
    bool finished;         /* the loop knows that the engine has finished it */
    struct exchange *next; /* handlers that have returned; under the server's mutex */
};

/* Tens of thousands may wait at once: it is kept small. */
struct exchange {
    struct service *service;
    char id[EXCHANGE_ID_SIZE]; /* X-Request-Id */

    /* What was asked. Slices of it are valid as long as the arena, but for path, query and body: until the handler
     * returns. */
    enum http_method method; /* HEAD is METHOD_GET */
    bool head_only;          /* it is HEAD: the answer goes out without its body */
    bool is_old;             /* HTTP/1.0 */
    bool keep_alive;         /* the client keeps the connection behind the answer */
    struct bytes path;       /* still percent-encoded */
    struct bytes query;      /* behind the '?', still encoded */
    struct bytes body;
    struct bytes parts[EXCHANGE_MAX_PARTS]; /* variable parts of the path, decoded */
    struct bytes *values; /* of the route's query parameters, if it takes any, decoded; data NULL: absent */
    struct arena arena;
    mono_us arrived_at;
    mono_us deadline; /* of the answer; a handler may put it off before it returns */
    int64_t wait_ms;  /* above 0: it may wait for room so long, and then it ends with its client */

    /* How it is decided. */
    union {
        struct look look;
        struct owner_op owner; /* of a heartbeat or a goodbye */
        struct part first;     /* of an exchange with one operation */
    };
    bool of_owner;
    size_t part_count;       /* operations; 0: a look, or about an owner */
    struct part_list *batch; /* NULL: not POST /v1/batch */
    void *context;           /* the handler's, for what comes later */

    struct answer answer;

    /* The server's own; only the loop's thread. */
    struct parser *parser;         /* reads the request; NULL: given back, as it may wait for long */
    struct connection *connection; /* NULL: it is answered already, or the client has gone */
    struct heap_node by_deadline;
    bool answered_late;    /* by the loop's deadline: the client knows the key */
    struct exchange *next; /* on the outbox (under the server's mutex), on the list of large bodies, or the free list */
    struct off_loop off_loop;
};

/* For the loop: the handler has returned, so that what it has written may be read. */
static inline bool exchange_is_handled(const struct exchange *exchange)
{
    return atomic_load(&exchange->off_loop.stage) == ON_LOOP || exchange->off_loop.returned;
}

/* Empty, for one request; NULL: no memory. */
struct exchange *exchange_new(struct service *service) MUST_CHECK;
/* Memory for the request to be read into, if it has none. False: there is none. */
bool exchange_make_parser(struct exchange *exchange) MUST_CHECK;
/* Empty again, for the next request; keeps the usual amount of memory. */
void exchange_clear(struct exchange *exchange);
/* Accepts NULL. */
void exchange_free(struct exchange *exchange);

/* The handler has returned: gives back what the request was read into, all of it if the client may wait for long. */
void exchange_drop_request(struct exchange *exchange);
/* The answer is complete: hands the exchange back to the loop. From an engine's thread. */
void exchange_finish(struct exchange *exchange);
/*
 * The first value of a request header, NULL if it is absent; *ret_times (may be NULL) says how often it was there. Only
 * in the handler.
 */
const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times);
/* Room for the operations of a batch, empty; NULL: no memory. */
struct part_list *exchange_make_batch(struct exchange *exchange, size_t count) MUST_CHECK;
/*
 * The loop is about to answer without a decision: nothing more of the exchange may be written. True: nothing was, and
 * nothing will be. False: a part was in a packet with COMMIT, so that the outcome is unknown.
 */
bool exchange_close(struct exchange *exchange) MUST_CHECK;
/* Its operations: one, those of a batch, or none; *ret_count says how many. */
struct part *exchange_parts(struct exchange *exchange, size_t *ret_count);
#endif
