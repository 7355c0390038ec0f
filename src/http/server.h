/* SPDX-License-Identifier: MIT */
/*
 * HTTP/1.1 server on one event loop, which runs on the thread that calls server_run. Only files that include loop.h use
 * libevent. The server reads requests within limits of size and time, passes each to a handler, sends the answers, and
 * enforces the deadline of every exchange independently of the engine.
 *
 *  connection  Accepted until closed. There are at most max_connections, and max_connections_per_address from one
 *              address. At these limits the longest idle connection is closed for a new one. If none is idle, accepting
 *              stops until a connection closes (max_connections), or the new connection is answered 429 (per address).
 *              With credentials, a client without one that does not read its answer counts as idle.
 *              Clients on Unix sockets are counted by user instead of by address.
 *              A connection without a complete request within idle_timeout after its last answer is closed, whether it
 *              is idle or slow; so is a connection whose client reads nothing of its answer in that time.
 *  TLS         A connection of an https listener begins with a handshake. Handshakes are rationed (handshake.c). A
 *              client has 10 seconds for the handshake and its first request.
 *  exchange    One at a time on a connection. A few KiB of pipelined requests are read in advance; the rest stays in
 *              the socket.
 *  memory      Requests and answers share the memory that max_memory leaves beside the rest of the process. Beyond it,
 *              a request is refused with 503, and an answer is replaced by a refusal. With credentials each client has
 *              a share of that memory (share.h), beyond which it is answered 429.
 */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "base/config.h"
#include "http/exchange.h"
#include "permit/status.h"

enum { SERVER_MAX_BODY = 1024 * 1024 /* largest body of any route */ };

/* How a TLS handshake has ended; also the label `result` of permitd_tls_handshakes_total. */
enum handshake_result {
    HANDSHAKE_OK,
    HANDSHAKE_CLOSED,                 /* the client has disconnected */
    HANDSHAKE_TIMED_OUT,              /* no complete handshake within 10 seconds */
    HANDSHAKE_PLAIN_HTTP,             /* the client does not speak TLS */
    HANDSHAKE_PROTOCOL,               /* no common version or cipher, or malformed */
    HANDSHAKE_REFUSED_BY_CLIENT,      /* the client does not trust the server's certificate, or it has another reason */
    HANDSHAKE_CERTIFICATE_UNKNOWN_CA, /* the client's certificate is not of tls_client_ca */
    HANDSHAKE_CERTIFICATE_EXPIRED,
    HANDSHAKE_CERTIFICATE_INVALID, /* the client's certificate has another fault */
    HANDSHAKE_RESULTS,
};
/* Returns the word of a result, such as "plain_http". */
const char *handshake_result_word(enum handshake_result result);

/* Hooks of the server for its requests. They run on the loop's thread; `handle` also on the thread of large bodies. */
struct server_hooks {
    size_t exchange_size; /* size of the object that each exchange begins; the server zeroes it once */
    /*
     * Called when the headers are complete. Sets the number of body bytes to accept, at most SERVER_MAX_BODY; larger
     * bodies are refused. False: the exchange's answer is a refusal, and the connection is closed after it.
     */
    bool (*admit)(struct exchange *exchange, size_t *ret_body_max);
    /*
     * The facts that `admit` checks may have changed (server_recheck) while the request is received; it may be called before
     * `admit`, too. False: the request is refused with PERMIT_UNAUTHENTICATED.
     */
    bool (*readmit)(struct exchange *exchange);
    /* Fills the answer and returns true, or returns false and the answer follows later (exchange_finish). */
    bool (*handle)(struct exchange *exchange);
    /* Fills `answer` with a refusal. detail NULL: the status says enough. */
    void (*refuse)(struct answer *answer, const char *request_id, enum permit_status status, const char *detail);
    /* The answer to a GET does not fit into the share of its client. Fills the exchange's answer with a refusal. */
    void (*refuse_share)(struct exchange *exchange);
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
    /*
     * The same as readmit for an exchange that waits: its handler has returned. False: the wait ends with
     * PERMIT_UNAUTHENTICATED, unless it was granted meanwhile.
     */
    bool (*may_wait)(struct exchange *exchange);
    /* The exchange is finished, its answer is marked must_arrive, and no client has got any answer. */
    void (*undelivered)(struct exchange *exchange);
    /* Frees client->session. Called when the connection is freed, if the session is not NULL. */
    void (*end_session)(void *session);
    /* Resets what follows the exchange in its object, before the exchange is used again or freed. */
    void (*clear)(struct exchange *exchange);
};

/* Paths of PEM files; NULL: none. */
struct server_tls {
    char *certificate; /* of the server, followed by those of its authorities */
    char *key;
    char *client_ca; /* certificates of the authorities of clients; NULL: clients are not asked for any */
};

struct server_settings {
    /*
     * "127.0.0.1:7070", "https://[::]:7443", "unix:/run/permitd.sock"; read only by server_open and server_open_paths
     */
    struct config_list listen;
    bool insecure;          /* serve other machines without TLS or without credentials */
    struct server_tls tls;  /* read only by server_open, server_reload and server_check */
    int64_t tls_handshakes; /* per second */
    int64_t max_connections;
    int64_t max_connections_per_address; /* 0: a quarter of max_connections */
    int64_t max_memory;                  /* resident bytes of the whole process */
    int64_t idle_timeout_ms;
    int64_t request_timeout_ms;

    /* Not in server_section. */
    bool has_credentials; /* the hooks serve no client without a credential */
    const struct server_hooks *hooks;
    struct service *service;      /* for handlers on the loop */
    struct service *body_service; /* for handlers on the thread of large bodies */
};
extern const struct config_section server_section; /* settings.c */

/*
 * Opens the listeners, but for Unix sockets; clients can connect, but nothing is served yet. Settings are copied. On
 * false `message` has the reason.
 */
bool server_open(const struct server_settings *settings, struct server **ret_server, struct buf *message) MUST_CHECK;
/*
 * Opens the listeners on Unix sockets. To be called before the server runs, by the user that the process remains: the
 * sockets are its own, and of its group. On false `message` has the reason.
 */
bool server_open_paths(struct server *server, struct buf *message) MUST_CHECK;
/* Checks the files of TLS without opening anything. On false `message` has the reason. */
bool server_check(const struct server_settings *settings, struct buf *message) MUST_CHECK;
/*
 * Returns the URL of a listener, such as "http://127.0.0.1:7070", in the order of the setting; NULL: none at this
 * index.
 */
const char *server_url_at(const struct server *server, size_t index);
/*
 * Calls `called` on the loop's thread when the process receives the signal, which is blocked in this thread and those
 * it creates from then on. It stays pending while the loop does not run. False: out of memory, or too many signals.
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
/*
 * Applies changed max_memory, timeouts and limits, and loads the files of TLS again. If they cannot be used, the loaded
 * ones stay. Open connections go on with what they began with. Called on the loop's thread.
 */
void server_reload(struct server *server, const struct server_settings *settings);
/* Makes `share` that of a principal. It must live as long as the server. */
void server_share_init(struct server *server, struct memory_share *share);
/* Closes everything. No exchange may still be with the engine. Accepts NULL. */
void server_free(struct server *server);

/*
 * Called by `admit` for a request with a wrong credential; a missing one is not wrong. After PEER_MAX_FAILURES (peer.h)
 * of them in a second, new connections from its address are closed for a second.
 */
void server_count_failure(struct exchange *exchange);
/*
 * Checks the requests again that were admitted and are still received or wait, with the hooks readmit and may_wait.
 * Called on the loop's thread.
 */
void server_recheck(struct server *server);

/* Counters for metrics, read on the loop's thread. */
struct server_counts {
    uint64_t connections;    /* currently open */
    uint64_t accepted;       /* accepted since the start */
    uint64_t full;           /* times that accepting stopped because the server was full and no connection was idle */
    uint64_t yielded;        /* idle connections closed for a new one */
    uint64_t crowded;        /* refused because of max_connections_per_address */
    uint64_t guessing;       /* closed because of failures from their address (server_count_failure) */
    uint64_t buffered;       /* bytes of requests and answers now, pieces of up to BUDGET_SMALL excluded */
    uint64_t memory_refused; /* times that max_memory refused memory to a request or an answer */
    uint64_t share_refused;  /* times that the share of its client did */
    uint64_t exchanges;      /* currently being handled */
    uint64_t answers[6];     /* by class of HTTP status; [0] is unused */
    uint64_t late;           /* timeout answers */
    uint64_t handshakes[HANDSHAKE_RESULTS];
    uint64_t tls_reload_failed; /* times that the files of TLS could not be loaded again */
    int64_t tls_until;          /* seconds since 1970 at which the certificate ends; 0: there is no TLS */
};
void server_counts(const struct server *server, struct server_counts *ret_counts);
#endif
