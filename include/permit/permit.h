/* SPDX-License-Identifier: MIT */
/*
 * libpermit: the client of permitd. This header is its manual; the wire format is in docs/protocol.md.
 *
 *     struct permit_client *client;
 *     struct permit_request *held;
 *     const struct permit_want want = {.semaphore = "backups"};
 *     if (permit_client_new(NULL, &client))
 *         ...
 *     if (permit_acquire(client, &(struct permit_acquire_options){.permits = &want, .permit_count = 1,
 *                                                                 .ttl_ms = 30000, .wait_ms = PERMIT_FOREVER}, &held))
 *         fprintf(stderr, "%s\n", permit_client_message(client));
 *     else {
 *         ... work; held->permits[0].token and .slots go along with every write, for the store's guard
 *         permit_release(client, held->external_id, NULL);
 *         permit_request_free(held);
 *     }
 *     permit_client_free(client);
 *
 * Results.  Every call returns an enum permit_status (status.h): PERMIT_OK, which is 0, or how it failed. Results come
 * last, are named ret_..., and stay untouched on failure. For a person, permit_client_message has a sentence.
 *
 * Retries.  Calls block. What can be tried again safely is tried again, after Retry-After or a growing pause, with
 * jitter, until options.retry_ms have passed without a usable answer. A try that has no answer in its time is followed
 * at once by the next one, on a new connection, and a call is given up for silence after three tries at the earliest.
 * An acquire is safe to repeat because its key is the client's: if an answer was lost, the next try is answered with
 * the same grant. Each acquire carries a random nonce, which the server keeps with the grant: so a grant of this call
 * (`yours`) is told from that of another client under the same key. When a call gives up without knowing what happened,
 * it returns PERMIT_NO_SERVER or PERMIT_OUTCOME_UNKNOWN: then either call again with the same key (an acquire: and with
 * a nonce of your own in both calls), or release the key (that is safe also if it was never granted, and also if the
 * acquire is still on its way; permit_client_in_doubt tells whether there is a need).
 *
 * Waiting.  An acquire with wait_ms waits in the server, in order of arrival, and is answered the moment it is granted.
 * A long wait is cut into pieces (wait_piece_ms), each one call, so that proxies do not take it for dead; the place in
 * the queue survives, since the same key comes back at once. It is a place at one permitd: a proxy in front of several
 * should send a client to the same one. A caller that goes away loses its place at once. One that was stopped while he
 * waited may have been granted what has expired meanwhile: under a random key he stands in the queue again, at its end;
 * under a key of his own the answer is PERMIT_ENDED.
 *
 * Time.  Durations are in milliseconds. Moments are microseconds of CLOCK_BOOTTIME, which counts the time for which the
 * machine was suspended, too (names end in _until_us). A permit is proved to be held until `held_until_us`, which
 * counts from BEFORE the call that was answered had been sent; the server never ends it earlier because of its time,
 * whatever the network did in between. (A failover of the database may take up to 5 s off: fence the store.) After a
 * suspension the calls and the thread of this library notice within a second what has passed.
 *
 * Threads.  A client is used by one thread at a time; several clients may be used at the same time. A renewer has a
 * thread and a connection of its own. The library changes no signal handler and blocks all signals in its thread; over
 * https block or ignore SIGPIPE yourself.
 *
 * Processes.  A client belongs to the process that made it. In a child of fork its calls return PERMIT_INVALID: the
 * child makes its own. A renewer goes on in the parent alone. The child may free both, which does nothing to the
 * parent's.
 *
 * Strings passed in are copied when they are needed after the call. Proxies of the environment are not used.
 */
#ifndef PERMIT_PERMIT_H
#define PERMIT_PERMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "permit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PERMIT_MUST_CHECK  __attribute__((warn_unused_result))
#define PERMIT_DEFAULT_URL "http://127.0.0.1:7070"

/* wait_ms: until it is granted. */
#define PERMIT_FOREVER   INT64_MAX
/* ttl_ms: until it is released; in results: it has none. */
#define PERMIT_TTL_NONE  (-1)
/* ttl_ms of an acquire: as long as its owner, who must be named, sends heartbeats (PUT /v1/owners/{owner}). */
#define PERMIT_TTL_OWNER (-2)

/* "0.1.0" */
const char *permit_version(void);

/* ---- Client ---- */

struct permit_client;

/* Zero members mean the default. */
struct permit_client_options {
    const char *url;    /* "http://host:port", https too, without ? or #; NULL: PERMIT_DEFAULT_URL */
    const char *token;  /* credential of printable ASCII without space, sent as a bearer token; NULL: none */
    int64_t timeout_ms; /* of one try, from connecting to the end of the answer; default 15000, at most INT_MAX. Of a
                           call that may be tried again the first try gets a third of it, and the second two thirds. */
    int64_t retry_ms;   /* how long a call goes on trying without a usable answer; default 5000, -1: one try only */
    int cancel_fd;      /* 0: none. Calls end soon after this descriptor becomes readable; nothing is read from it. Then
                           the status is PERMIT_OUTCOME_UNKNOWN, or that of an earlier try. Not for renewers. */
};

/*
 * options may be NULL. Connects to nothing yet. PERMIT_INVALID: the url or timeout_ms cannot be used;
 * PERMIT_UNAUTHENTICATED: the token cannot be one; PERMIT_NO_MEMORY. The caller frees it with permit_client_free.
 */
enum permit_status permit_client_new(const struct permit_client_options *options,
                                     struct permit_client **ret_client) PERMIT_MUST_CHECK;
/* Another cancel_fd than that of the options for the calls from now on; 0: none. */
void permit_client_set_cancel_fd(struct permit_client *client, int cancel_fd);
/* Accepts NULL. Releases nothing on the server. */
void permit_client_free(struct permit_client *client);

/* The url without user and password: for messages. Valid as long as the client. Never NULL. */
const char *permit_client_url(const struct permit_client *client);

/* About the last call; all are valid until the next call with this client. */

/*
 * What went wrong, in one line: the server's problem detail where it sent one, without control characters. "" after
 * success. Never NULL.
 */
const char *permit_client_message(const struct permit_client *client);
/* The JSON text of the last answer, a problem (RFC 9457) after a refusal; "" if there was none. Never NULL. */
const char *permit_client_answer(const struct permit_client *client);
/*
 * The key of the last acquire, also when it failed: to release it when the outcome is unknown. "" before. Never NULL.
 */
const char *permit_client_key(const struct permit_client *client);
/*
 * True after a call that failed and may have been carried out all the same, if only in part, or is on its way still:
 * the key of such an acquire is to be released. False after an acquire that failed: nothing of it is held, nor will be.
 */
bool permit_client_in_doubt(const struct permit_client *client);
/* What the server said in Retry-After; 0: nothing. */
int64_t permit_client_retry_after_ms(const struct permit_client *client);

/* ---- Requests: acquire, renew, confirm, release ---- */

/* Which of the free slots of a slotted semaphore are granted. */
enum permit_choice {
    PERMIT_LOWEST, /* `count` of all, the lowest numbers */
    PERMIT_THESE,  /* exactly those of `slots`, all or none */
    PERMIT_ANY_OF, /* `count` of those of `slots`, the lowest numbers */
};

/*
 * What is wanted of one semaphore. A slot is a text: "#12" is the slot with the number 12, anything else is a label,
 * such as "A1". Of a label that begins with # another # stands before it: "##12" is the label "#12".
 */
struct permit_want {
    const char *semaphore;    /* 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .. ; each once in a request */
    int64_t count;            /* units; 0: 1, or with PERMIT_THESE as many as `slots` has: nothing else fits */
    const char *const *slots; /* with PERMIT_THESE or PERMIT_ANY_OF: 1 to 1000, in any order, none twice */
    size_t slot_count;
    enum permit_choice choice;
    bool adjacent; /* with numbers that follow each other, the lowest such; not with PERMIT_THESE */
};

/* What is held of one semaphore. */
struct permit_held {
    char *semaphore;
    int64_t count;
    uint64_t token;  /* later grants of this semaphore have larger ones */
    uint32_t *slots; /* the numbers of the units, from 1 up, ascending; NULL for a counted semaphore */
    size_t slot_count;
    char **labels;  /* of these slots, as they were when it was granted; NULL: this one has none, or none of all has */
    uint64_t floor; /* every smaller token of this semaphore is dead; 0: not said */
};

/* A request as the server described it. All of it is freed by permit_request_free. */
struct permit_request {
    char *external_id; /* its key */
    char *owner;       /* NULL: none was named */
    bool held;         /* ACQUIRED, not RELEASED */
    bool replayed;     /* acquire: the server had granted it before this try */
    bool yours;        /* acquire: a try with the nonce of this call was the one that was granted. Else another client
                          holds under this key: do not use, renew or release it. */
    bool already_released; /* release: it had ended before */
    char *end_reason;      /* "released", "expired", ...; NULL while held */
    struct permit_held *permits;
    size_t permit_count;
    int64_t ttl_ms;        /* PERMIT_TTL_NONE: it has none; PERMIT_TTL_OWNER */
    char *acquired_at;     /* RFC 3339, UTC, by the server's clock; NULL: it never held anything */
    char *confirmed_at;    /* NULL: not confirmed */
    char *expires_at;      /* NULL: does not expire, or has ended */
    char *ended_at;        /* NULL while held */
    int64_t held_until_us; /* proved to be held until then (see Time); INT64_MAX: does not expire; 0: not held */
};

struct permit_acquire_options {
    const char *external_id; /* the key: 1 to 255 printable ASCII bytes without space; NULL: a random UUID */
    const char *nonce;       /* 1 to 64 printable ASCII bytes, the same in every call for one grant; NULL: a random one
                                for this call */
    const char *owner;       /* who asks, for people; same form; NULL: none */
    const struct permit_want *permits; /* all of them are granted, or none */
    size_t permit_count;               /* 1 to 64 */
    int64_t ttl_ms;  /* held so long unless renewed; 0: the semaphores' default; PERMIT_TTL_NONE: until it is released;
                        PERMIT_TTL_OWNER: as long as its owner's heartbeat */
    int64_t wait_ms; /* wait so long in all while there is no capacity; 0: not at all; PERMIT_FOREVER. A server that
                        goes away while we wait is waited for up to 60 s. */
    int cancel_fd;   /* 0: that of the client. The call ends soon after this descriptor becomes readable (a signalfd, an
                        eventfd); nothing is read from it. Then the status is that of the last answer
                        (PERMIT_NO_CAPACITY: nothing is held), or PERMIT_OUTCOME_UNKNOWN if a try was under way: release
                        the key. */
    int64_t wait_piece_ms; /* the longest wait asked for in one call; 0: 60000, at most INT_MAX. Less than what a proxy
                              on the way allows. A server that takes only shorter ones (its max_wait) is asked for
                              those. */
    /*
     * NULL, or called on the caller's thread about a second after the wait began, and after each piece: the server's
     * sentence about what is in the way, valid during the call, as is the problem in permit_client_answer.
     * PERMIT_NO_CAPACITY, PERMIT_PAUSED, or PERMIT_TOO_MANY: too many wait already, and it is tried again.
     */
    void (*waiting)(void *context, enum permit_status status, const char *message);
    void *waiting_context;
};

/*
 * A grant whose answer took more than half of the ttl is renewed before it is handed out. permit_client_answer is that
 * of the renewal then, or that of the grant if the renewal failed and the grant is proved still. PERMIT_NO_CAPACITY or
 * PERMIT_PAUSED: not within the wait; nothing is held. The message names what is in the way: of certain slots the first
 * that is held and until when; permit_client_answer has all of them (`taken`). PERMIT_NEVER_SATISFIABLE: also a slot
 * that there is not. The caller frees the request with permit_request_free.
 */
enum permit_status permit_acquire(struct permit_client *client, const struct permit_acquire_options *options,
                                  struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Holds it for ttl_ms from now (0: as before; PERMIT_TTL_NONE: removes the limit); never shortens. PERMIT_ENDED and
 * PERMIT_UNKNOWN_REQUEST mean the same: it is not held any more. ret_request may be NULL.
 */
enum permit_status permit_renew(struct permit_client *client, const char *external_id, int64_t ttl_ms,
                                struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Makes it permanent (a sale): no deadline any more. Idempotent. PERMIT_ENDED, PERMIT_UNKNOWN_REQUEST: too late, it is
 * not held any more. ret_request may be NULL.
 */
enum permit_status permit_confirm(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Idempotent: PERMIT_OK also if it had ended before or was never granted (then it cannot be granted later either). Look
 * at already_released and end_reason to tell. PERMIT_CONFIRMED: it is, and is not released. ret_request may be NULL.
 */
enum permit_status permit_release(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request);
/* The same, also of one that is confirmed (a refund). */
enum permit_status permit_release_confirmed(struct permit_client *client, const char *external_id,
                                            struct permit_request **ret_request);
/*
 * For operators: ends what somebody else holds, confirmed or not. `reason` (1 to 1000 bytes of UTF-8 without control
 * characters) is recorded. Idempotent. PERMIT_UNKNOWN_REQUEST: no such key. ret_request may be NULL.
 */
enum permit_status permit_force_release(struct permit_client *client, const char *external_id, const char *reason,
                                        struct permit_request **ret_request) PERMIT_MUST_CHECK;
/* Looks it up. PERMIT_UNKNOWN_REQUEST: no such key, or forgotten. */
enum permit_status permit_show(struct permit_client *client, const char *external_id,
                               struct permit_request **ret_request) PERMIT_MUST_CHECK;
/* Accepts NULL. */
void permit_request_free(struct permit_request *request);

/* ---- Renewal in the background ---- */

struct permit_renewer;

struct permit_renewer_options {
    int64_t every_ms; /* 0: a third of the ttl (10 min without one, 10 s with PERMIT_TTL_OWNER) */
    /*
     * Called at most once, on the renewer's thread: the server says that it has ended (PERMIT_ENDED,
     * PERMIT_UNKNOWN_REQUEST), or held_until_us has passed without a successful renewal (the status of the last try;
     * PERMIT_OUTCOME_UNKNOWN: there was none in time). From then on the caller must not act as a holder. Must not call
     * permit_renewer_stop. message is valid during the call.
     */
    void (*lost)(void *context, enum permit_status status, const char *message);
    void *context;
};

/*
 * Renews `request`, which was just acquired, until it is stopped or lost. Each try takes at most a third of the time
 * that is left, and the one after silence is on a new connection. Copies what it needs of client, request and options.
 * PERMIT_NO_MEMORY also when no thread or no descriptor can be had: errno tells.
 */
enum permit_status permit_renewer_start(const struct permit_client *client, const struct permit_request *request,
                                        const struct permit_renewer_options *options,
                                        struct permit_renewer **ret_renewer) PERMIT_MUST_CHECK;
/*
 * The moment until which it is proved to be held, as of the last successful renewal; 0: lost. Never later than the
 * server's own end of it. Any thread.
 */
int64_t permit_renewer_held_until_us(const struct permit_renewer *renewer);
/* True if it is proved to be held at this moment: ask it before a write that matters. Any thread. */
bool permit_renewer_holds(const struct permit_renewer *renewer);
/* Ends the thread, breaking off a renewal under way, and frees it; releases nothing. Accepts NULL. */
void permit_renewer_stop(struct permit_renewer *renewer);

/* ---- Semaphores and fencing ---- */

struct permit_semaphore_options {
    int64_t capacity;       /* units; -1: as it is */
    const char *kind;       /* "slotted", "counted"; NULL: as it is, or slotted */
    int64_t default_ttl_ms; /* 0: as it is */
};

/* Makes or changes it. */
enum permit_status permit_semaphore_put(struct permit_client *client, const char *semaphore,
                                        const struct permit_semaphore_options *options);

/* How a token stands. Exact at the moment of the answer. */
struct permit_fence {
    bool live;
    uint64_t floor; /* every smaller token is dead */
};

/* slot 0: the semaphore as a whole. */
enum permit_status permit_fence_check(struct permit_client *client, const char *semaphore, uint64_t token,
                                      uint32_t slot, struct permit_fence *ret_fence) PERMIT_MUST_CHECK;

/* ---- Everything else of docs/protocol.md ---- */

/*
 * One call with the retries of this library: method "GET", "PUT", "POST" or "DELETE"; path from "/v1/..." with its
 * query, already percent-encoded (permit_path_encode); body JSON or NULL. The answer is permit_client_answer. Only for
 * calls that may be repeated. A DELETE that does not find its semaphore or template any more after an answer was lost
 * is done: PERMIT_OK, and the answer {}.
 */
enum permit_status permit_call(struct permit_client *client, const char *method, const char *path, const char *body);
/*
 * Writes `word` percent-encoded, and a terminating zero, at `to`, which has `size` bytes; three a byte of word are
 * enough. Returns the length, or 0 if it does not fit.
 */
size_t permit_path_encode(const char *word, char *to, size_t size);

#ifdef __cplusplus
}
#endif
#endif
