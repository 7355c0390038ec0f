/* SPDX-License-Identifier: MIT */
/*
 * One HTTP request and its answer. The server creates an exchange with the first byte of a request, which the
 * exchange's parser reads. When the request is complete, the handler of its route fills in the answer and the server
 * sends it. A handler answers in one of two ways:
 *
 *  now    The handler fills the answer and returns true. It runs on the loop's thread, or, for a large body, on the
 *         thread of bodies.c.
 *  later  The handler gives operations or a query to the engine and returns false. From then on all members except the
 *         "server's own" belong to the engine's threads. If several threads decide parts of one exchange, the last one
 *         to finish fills in the answer and calls exchange_finish. Until then the loop only reads members that the
 *         handler has set.
 *
 * If the loop's deadline comes first, the loop sends an answer of its own from other memory and the exchange's answer
 * is dropped later. An answer is also dropped if the client of a waiting acquire has disconnected.
 *
 * Request data is allocated from `arena`, which lives until the answer is sent or dropped.
 */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/heap.h"

struct connection;
struct exchange;
struct parser;
struct peer;
struct server;
struct service;
struct memory_share;

enum http_method { METHOD_GET, METHOD_PUT, METHOD_POST, METHOD_DELETE, METHOD_OPTIONS, METHOD_OTHER };

enum {
    EXCHANGE_ID_SIZE = 28,
    EXCHANGE_MAX_PATH_VALUES = 1, /* path parameters of a route */
    EXCHANGE_MAX_QUERY = 7,       /* query parameters of a route */
    ETAG_SIZE = 64,
};

enum client_transport { CLIENT_TCP, CLIENT_TLS, CLIENT_UNIX };

/*
 * The client of a connection. Owned by the connection: an exchange may use it while `admit` or `handle`
 * runs on the loop, never later and never off the loop.
 */
struct client {
    enum client_transport transport;
    uid_t uid;                      /* CLIENT_UNIX: of the peer */
    const char **certificate_names; /* CLIENT_TLS: the names of its verified certificate, "DNS:a.example", "CN=a" */
    size_t certificate_name_count;
    char address[64];           /* for the log: "10.0.0.7:51234", "unix:1000" */
    struct memory_share *share; /* that of its address, until the hook `admit` replaces it by that of a principal */
    void *session;              /* state of the hooks; the hook end_session frees it */
};

/* An answer. The body is JSON unless content_type says otherwise. */
struct answer {
    int http_status;
    struct buf body;
    struct bytes constant; /* text that lives as long as the process and is sent instead of `body`; data NULL: none */
    const char *content_type;  /* constant text */
    const char *allow;         /* value of Allow, for 405 and OPTIONS; in the arena or constant */
    const char *authenticate;  /* value of WWW-Authenticate; constant text; NULL: none */
    char etag[ETAG_SIZE];      /* "": no ETag */
    const char *cache_control; /* value of Cache-Control; constant text; NULL: none */
    int64_t retry_after_ms;    /* 0: no Retry-After */
    bool must_arrive; /* only this answer has the key of a grant: `undelivered` is called if no client gets it */
    bool close;       /* close the connection after this answer; set by the loop only */
};

enum off_loop_stage { ON_LOOP, OFF_LOOP_QUEUED, OFF_LOOP_TAKEN, OFF_LOOP_CANCELLED };

/*
 * State of a handler that runs on the thread for large bodies (bodies.c). Until the handler has returned, the loop uses
 * only the server's own members. The engine may finish the exchange before the handler returns.
 */
struct off_loop {
    atomic_int stage;      /* enum off_loop_stage */
    bool answered;         /* the handler has filled the answer */
    bool returned;         /* set by the loop: the handler has returned */
    bool finished;         /* set by the loop: the engine has finished the exchange */
    struct exchange *next; /* next on server->returned; under the server's mutex */
};

/* Kept small, because tens of thousands of exchanges may wait at once. */
struct exchange {
    struct server *server;
    struct service *service;   /* state of the handlers, which the server only passes on */
    struct client *client;     /* of its connection */
    char id[EXCHANGE_ID_SIZE]; /* X-Request-Id */

    /*
     * The request. Its slices are valid as long as the arena, except path, query and body, which are valid until the
     * handler returns.
     */
    enum http_method method; /* HEAD is METHOD_GET */
    bool head_only;          /* HEAD: the answer is sent without its body */
    bool is_old;             /* HTTP/1.0 */
    bool keep_alive;         /* the client keeps the connection open after the answer */
    bool has_body;           /* a body follows the headers */
    bool may_wait;           /* set by the handler before the engine gets the exchange: the answer may come after a long
                                wait, which ends if the client disconnects */
    bool wait_ended;         /* by server_recheck, while the engine decided it: a refusal becomes
                                PERMIT_UNAUTHENTICATED */
    struct bytes path;       /* percent-encoded */
    struct bytes query;      /* after the '?', percent-encoded */
    struct bytes body;
    struct bytes path_values[EXCHANGE_MAX_PATH_VALUES]; /* path parameters, decoded */
    struct bytes
        *query_values; /* query parameters of the route, decoded; data NULL: absent; NULL: the route has none */
    struct arena arena;
    mono_us arrived_at;
    mono_us deadline; /* the loop answers at this time; a handler may extend it before it returns */
    void *context;    /* the handler's own, for its later steps */

    struct answer answer;

    /* The server's own. Only the loop's thread uses these members. */
    struct parser *parser;         /* reads the request; NULL: freed, because the exchange may wait for long */
    struct connection *connection; /* NULL: already answered, or the client has disconnected */
    struct peer *peer;             /* of the connection; it lives as long as the exchange, which may use its share */
    struct heap_node by_deadline;
    bool rechecks;         /* server_recheck ran while its handler did: its wait is checked when it begins */
    bool answered_late;    /* the loop has sent the timeout answer; it names the key, so the client knows it */
    struct exchange *next; /* next on the outbox (under the server's mutex), on the list of large bodies, or on the
                              free list */
    struct off_loop off_loop;
};

/* Returns true if the handler has returned, so that the loop may read the members that the handler has set. */
static inline bool exchange_is_handled(const struct exchange *exchange)
{
    return atomic_load(&exchange->off_loop.stage) == ON_LOOP || exchange->off_loop.returned;
}

/* Returns an empty exchange, which begins an object of `size` zeroed bytes. NULL: out of memory. */
struct exchange *exchange_new(size_t size) MUST_CHECK;
/* Allocates the parser if the exchange has none. False: out of memory. */
bool exchange_make_parser(struct exchange *exchange) MUST_CHECK;
/*
 * Counts request and answer in this share from now on: the arena as a whole, a buffer unless it is counted already.
 * False: the arena does not fit into the share, and nothing has changed.
 */
bool exchange_use_share(struct exchange *exchange, struct memory_share *share) MUST_CHECK;
/* Resets the exchange for the next request. Keeps small buffers. */
void exchange_clear(struct exchange *exchange);
/* Accepts NULL. */
void exchange_free(struct exchange *exchange);

/* Frees the request's memory after the handler has returned: small buffers are kept unless the exchange may wait. */
void exchange_drop_request(struct exchange *exchange);
/* Hands the exchange with its complete answer back to the loop. May be called on any thread of the engine. */
void exchange_finish(struct exchange *exchange);
/* Returns true and sets *ret_length if the request says how long its body is. False: it is chunked. As the headers. */
bool exchange_body_length(const struct exchange *exchange, uint64_t *ret_length) MUST_CHECK;
/* Returns the host and port that the request is for, as parser_host. As the headers. */
struct bytes exchange_host(const struct exchange *exchange);
/*
 * Returns the first value of a request header; NULL: absent. *ret_times (may be NULL) is set to the number of such
 * headers. Only valid while the handler runs.
 */
const char *exchange_header(const struct exchange *exchange, const char *name, unsigned *ret_times);
#endif
