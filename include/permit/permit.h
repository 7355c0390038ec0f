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
 *         ... work; send held->permits[0].token and .slots with every write, for the store's guard
 *         permit_release(client, held->external_id, NULL);
 *         permit_request_free(held);
 *     }
 *     permit_client_free(client);
 *
 * Results.  Every call returns an enum permit_status (status.h): PERMIT_OK, which is 0, or the kind of failure. Results
 * are the last arguments, are named ret_..., and stay untouched on failure. permit_client_message has a sentence for
 * people.
 *
 * Retries.  Calls block. A call that can be repeated safely is tried again after Retry-After, or after a growing pause,
 * with jitter, until options.retry_ms have passed without a usable answer. A try that times out is followed immediately
 * by the next one, on a new connection. A call fails because of timeouts only after three tries. An acquire is safe to
 * repeat because the client chooses its key: if an answer was lost, the next try returns the same grant. Each acquire
 * carries a random nonce, which the server stores with the grant. The nonce tells a grant of this call (`yours`) from a
 * grant of another client under the same key. A call that ends without knowing the result returns PERMIT_NO_SERVER or
 * PERMIT_OUTCOME_UNKNOWN. The caller then repeats the call with the same key (for an acquire, with the same nonce of
 * its own in both calls), or releases the key. A release is safe even if the key was never granted, and even if the
 * acquire is still on its way. permit_client_in_doubt tells if a release is needed.
 *
 * Several servers.  options.url may list several permitd on one database, separated by commas. A client tries them in a
 * random order of its own, and stays at the server that answered last. A server that cannot be reached, that closes the
 * connection or times out without an answer, or that is stopping, is followed immediately by the next one; so is a
 * wait that ends with PERMIT_OUTCOME_UNKNOWN. Only when all have failed does the client pause as above. After another
 * failure that a retry may change, such as PERMIT_BUSY, it pauses and then tries the next server. All tries of a call
 * have the same key and nonce, so nothing is granted twice. The wait of an acquire goes on at another server for the
 * rest of its time, in the same place of the queue. A server that hangs costs one try: a third of timeout_ms at first,
 * and for a renewer a third of the time left. A wait notices a server whose machine is lost after 8 s, in time for its
 * place, but a process that hangs only after the end of its piece: its place is then usually gone, unless wait_piece_ms
 * is a few seconds.
 *
 * Waiting.  An acquire with wait_ms waits in the queue of its semaphores, in order of priority and arrival, and is
 * answered as soon as it is granted. The library cuts a long wait into pieces (wait_piece_ms), each one call, so that
 * proxies do not close an idle connection. All permitd of one database share the queue: the next piece with the same
 * key, at the same or at another server, finds the request in its place. A place without a call is passed over, and is
 * kept for 10 s. With several servers in options.url a piece is at most a third of the remaining wait, but not under a
 * second. If another client asks for the same key at another server, the place moves there; this call then follows it.
 * A process that was suspended while waiting may find that its place is gone, or that its grant has expired. With a
 * random key the library queues again, at the end. With the caller's own key it does so too if the place is gone, and
 * returns PERMIT_ENDED if the grant has expired.
 *
 * Time.  Durations are in milliseconds. Points in time (names end in _until_us) are microseconds of CLOCK_BOOTTIME,
 * which also counts the time during which the machine was suspended. A permit is proved to be held until
 * `held_until_us`, which is counted from BEFORE the answered call was sent. The server never expires it earlier,
 * whatever the delay of the network. (A failover of the database may take up to 5 s off: fence the store.) After a
 * suspension, the calls and the thread of this library notice within a second how much time has passed.
 *
 * Credentials.  options.token or options.token_file, and options.cert with options.key; the program says where they
 * are, since the library reads no environment and no settings of the user. A renewer uses those of its client. A token
 * or password goes to another machine only over https, unless options.insecure is set. PERMIT_UNAUTHENTICATED (401) and
 * PERMIT_FORBIDDEN (403) are final; a renewer tries again until the proof of its hold ends, since a token_file may have
 * changed meanwhile. The certificate of the server is always verified. A certificate that is refused, on either side,
 * ends a call without retries: PERMIT_NO_SERVER, and nothing was carried out. The files of TLS are read again for each
 * new connection (ca: after a minute).
 *
 * Threads.  Only one thread at a time uses a client; several clients may be used at the same time. A renewer has its
 * own thread and connection. The library changes no signal handler and blocks all signals in its thread; over https,
 * block or ignore SIGPIPE yourself.
 *
 * Processes.  A client belongs to the process that created it. In a child of fork its calls return PERMIT_INVALID: the
 * child creates its own. A renewer continues in the parent only. The child may free both, which does not affect those
 * of the parent.
 *
 * Strings passed in are copied if they are needed after the call. Proxy settings of the environment are not used.
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
#define PERMIT_SERVERS_MAX 16

/* wait_ms: until the request is granted. */
#define PERMIT_FOREVER INT64_MAX

/* The highest priority of an acquire that waits. */
#define PERMIT_MAX_PRIORITY 9

/* The most requests that are confirmed together. */
#define PERMIT_CONFIRM_MAX 64

/* ttl_ms: until it is released; in results: no ttl. */
#define PERMIT_TTL_NONE  (-1)
/* ttl_ms of an acquire: held while its owner, which must be named, sends heartbeats (PUT /v1/owners/{owner}). */
#define PERMIT_TTL_OWNER (-2)

/* Returns the version, such as "0.1.0". */
const char *permit_version(void);

/* ---- Client ---- */

struct permit_client;

/* A zero member means its default. */
struct permit_client_options {
    /*
     * "http://host:port", https too, without ? or #, or "unix:/path" of a socket; NULL: PERMIT_DEFAULT_URL. Several
     * servers: up to PERMIT_SERVERS_MAX different urls with commas between them, without space; a comma that is part of
     * a url is written %2C (the path of a socket has none).
     */
    const char *url;
    const char *token; /* credential of printable ASCII without space, sent as a bearer token; NULL: none */
    /*
     * File with the token as its only line, instead of `token`; NULL: none. Other users must not be able to read it;
     * its group may. A file that has changed is read again before the next call: replace it by rename.
     */
    const char *token_file;
    /* PEM file of the authorities that may sign the certificate of a server; NULL: those that the machine trusts. */
    const char *ca;
    /* PEM file with the certificate of this client, and those up to its authority; NULL: none. */
    const char *cert;
    /* PEM file with its key, without passphrase, private like token_file; NULL: the key is in the file `cert`. */
    const char *key;
    bool insecure;      /* send a credential over http to another machine, too: everyone on the way can read it */
    int64_t timeout_ms; /* of one try, from connecting to the end of the answer; default 15000, at most INT_MAX. If
                           the call may be repeated, the first try gets a third of it and the second two thirds. */
    int64_t retry_ms;   /* time for retries without a usable answer; default 5000, -1: one try only, or one at each
                           server until one answers */
    int cancel_fd;      /* 0: none. Calls end soon after this descriptor becomes readable; the library never reads
                           from it. The status is then PERMIT_OUTCOME_UNKNOWN, or that of an earlier try. Not for
                           renewers. */
};

/*
 * Creates a client; does not connect yet. options may be NULL. PERMIT_INVALID: invalid url or timeout_ms;
 * PERMIT_UNAUTHENTICATED: invalid token or token_file; PERMIT_NO_MEMORY. The caller frees it with permit_client_free.
 * PERMIT_INVALID also means: a file cannot be used, a key without its certificate, or a token, or a password in the
 * url, that would be sent over http to another machine (one whose name is not localhost, *.localhost or a loopback
 * address) without `insecure`. For the reason see permit_options_check.
 */
enum permit_status permit_client_new(const struct permit_client_options *options,
                                     struct permit_client **ret_client) PERMIT_MUST_CHECK;
/*
 * Checks the options as permit_client_new does, with the same result. On failure writes a sentence to `message`, which
 * has `size` bytes, without a part of the token, such as "the token file /etc/permit/token is empty".
 */
enum permit_status permit_options_check(const struct permit_client_options *options, char *message,
                                        size_t size) PERMIT_MUST_CHECK;
/* Replaces the cancel_fd of the options for later calls; 0: none. */
void permit_client_set_cancel_fd(struct permit_client *client, int cancel_fd);
/* Frees the client. Accepts NULL. Releases no permits on the server. */
void permit_client_free(struct permit_client *client);

/*
 * Returns the url without user and password, for messages; of several servers that of the next try: the one that
 * answered last, unless it refused the call as busy or as unable to work. Valid as long as the client. Never NULL.
 */
const char *permit_client_url(const struct permit_client *client);
/*
 * Checks a url, or a list of urls, as permit_client_new does. PERMIT_INVALID: writes the end of a sentence about it to
 * `message`, which has `size` bytes, such as "has an empty entry 2". The sentence repeats no text that may be part of a
 * password. Also PERMIT_NO_MEMORY.
 */
enum permit_status permit_urls_check(const char *urls, char *message, size_t size) PERMIT_MUST_CHECK;

/* The result of the last call; valid until the next call with this client. */

/*
 * Returns the error in one line: the server's problem detail if it sent one, without control characters; with several
 * servers also which ones failed, and why. "" after success. Never NULL.
 */
const char *permit_client_message(const struct permit_client *client);
/* Returns the JSON text of the last answer, a problem (RFC 9457) after a refusal; "" if there was none. Never NULL. */
const char *permit_client_answer(const struct permit_client *client);
/*
 * Returns the key of the last acquire, also if it failed: for a release after an unknown outcome. "" before. Never
 * NULL.
 */
const char *permit_client_key(const struct permit_client *client);
/*
 * Returns true if the last call failed but may have been carried out, at least in part, or may still be on its way:
 * release the key of such an acquire. Returns false after an acquire that failed and holds nothing, now or later. (If
 * one of several servers hung, it may still carry the acquire out after another one has refused it: true.)
 */
bool permit_client_in_doubt(const struct permit_client *client);
/* Returns the Retry-After of the server; 0: none. */
int64_t permit_client_retry_after_ms(const struct permit_client *client);

/* ---- Requests: acquire, renew, confirm, change, release ---- */

/* The free slots of a slotted semaphore that are granted. */
enum permit_choice {
    PERMIT_LOWEST, /* `count` of all, the lowest numbers */
    PERMIT_THESE,  /* all of `slots`, or none */
    PERMIT_ANY_OF, /* `count` of those of `slots`, the lowest numbers */
};

/*
 * The units wanted of one semaphore. A slot is a text: "#12" is the slot with the number 12, any other text is a label,
 * such as "A1". Write a leading # in a label as ##: "##12" is the label "#12".
 */
struct permit_want {
    const char *semaphore;    /* 1 to 255 bytes of A-Z a-z 0-9 . _ : @ - , not . or .. ; no duplicates in a request */
    int64_t count;            /* units; 0: 1, or the number of `slots` with PERMIT_THESE, which accepts no other
                                 count */
    const char *const *slots; /* with PERMIT_THESE or PERMIT_ANY_OF: 1 to 1000, in any order, no duplicates; those of
                                 all wants of a request: at most 8 KiB of labels, where a number counts 4 bytes */
    size_t slot_count;
    enum permit_choice choice;
    bool adjacent;    /* consecutive numbers, the lowest that are free; not with PERMIT_THESE */
    const char *best; /* with PERMIT_LOWEST: a JSON object as in docs/protocol.md, "Specific slots"; NULL: none */
};

/* The units held of one semaphore. */
struct permit_held {
    char *semaphore;
    int64_t count;
    uint64_t token;  /* later grants of this semaphore have larger ones */
    uint32_t *slots; /* slot numbers from 1, ascending; NULL for a counted semaphore */
    size_t slot_count;
    char **labels;     /* labels of these slots at the time of the grant; an element is NULL if its slot had no label;
                       NULL if no slot had one */
    uint64_t floor;    /* every smaller token of this semaphore is dead; 0: not reported */
    int64_t available; /* acquire: units that were free after the grant, a hint; -1: not reported */
};

/* A request as reported by the server. permit_request_free frees all of it. */
struct permit_request {
    char *external_id;     /* the key */
    char *owner;           /* NULL: none */
    bool held;             /* ACQUIRED, not WAITING or RELEASED */
    bool replayed;         /* acquire, change: an earlier try had done it */
    bool yours;            /* acquire: the grant belongs to a try with the nonce of this call. False: another client
                              holds the permits under this key; do not use, renew or release them. */
    bool already_released; /* release: it had already ended */
    char *end_reason;      /* "released", "expired", ...; NULL while it waits or is held */
    struct permit_held *permits;
    size_t permit_count;
    int64_t ttl_ms;        /* or PERMIT_TTL_NONE, PERMIT_TTL_OWNER */
    char *acquired_at;     /* RFC 3339, UTC, by the server's clock; NULL: never held */
    char *confirmed_at;    /* NULL: not confirmed */
    char *expires_at;      /* NULL: does not expire, or has ended */
    char *ended_at;        /* NULL while it waits or is held */
    int64_t held_until_us; /* proved to be held until this time (see Time); INT64_MAX: does not expire; 0: not held */
    int64_t max_hold_ms;   /* acquire and renew, without a ttl: it ends so long after the last one; 0: not reported */
    int64_t changes;       /* shrinks, grows and exchanges since the grant, 0 to UINT32_MAX */
};

struct permit_acquire_options {
    const char *external_id; /* the key: 1 to 255 printable ASCII bytes without space; NULL: a random UUID */
    const char *nonce;       /* 1 to 64 printable ASCII bytes, the same in every call for one grant; NULL: random for
                                each call */
    const char *owner;       /* name of the owner, in the form of a key; NULL: none */
    const struct permit_want *permits; /* all of these are granted, or none */
    size_t permit_count;               /* 1 to 64 */
    int64_t ttl_ms;  /* time held unless renewed; 0: the semaphores' default; PERMIT_TTL_NONE: until it is released;
                        PERMIT_TTL_OWNER: as long as its owner's heartbeat */
    int64_t wait_ms; /* total time to wait for capacity; 0: do not wait; PERMIT_FOREVER */
    int cancel_fd;   /* 0: the client's. The call ends soon after this descriptor becomes readable (a signalfd, an
                        eventfd); the library never reads from it. The status is then that of the last answer
                        (PERMIT_NO_CAPACITY: nothing is held), or PERMIT_OUTCOME_UNKNOWN if a try was under way:
                        release the key. */
    int64_t wait_piece_ms; /* the longest wait of one call; 0: 60000, at most INT_MAX. Choose less than the limit of
                              any proxy on the way. If a server allows only shorter waits (its max_wait), the library
                              uses that limit. */
    /*
     * NULL, or called on the caller's thread about one second after the wait began and after each piece. `message` is
     * the server's reason for the wait; it is valid during the call, as is the problem in permit_client_answer. The
     * status is PERMIT_NO_CAPACITY, PERMIT_PAUSED, or PERMIT_TOO_MANY (too many requests wait already: this one has no
     * place, and the library tries again, less often each time).
     */
    void (*waiting)(void *context, enum permit_status status, const char *message);
    void *waiting_context;
    int priority; /* 0 to PERMIT_MAX_PRIORITY: the place in the queue while it waits; each step counts as 30 s of
                     waiting. PERMIT_INVALID if it is above the max_priority of a semaphore */
    /*
     * Time for retries without a usable answer. 0: that of the client, and up to 60 s if the server becomes unreachable
     * during the wait. -1: no retries, and PERMIT_TOO_MANY is final, too. More: at least that of the client, and else
     * not beyond the wait.
     */
    int64_t retry_ms;
    /* `waiting` is called only after each piece, not after the first second, which costs a call. */
    bool waiting_late;
    /*
     * A JSON object of at most 2048 bytes, such as "{\"order\":\"4711\"}", which is shown where the key is shown; NULL:
     * none. A repeated call with the same key may leave it out.
     */
    const char *metadata;
};

/*
 * Acquires permits of one or more semaphores. A grant whose answer took more than half of the ttl is renewed before it
 * is returned. permit_client_answer then returns the answer of the renewal, or that of the grant if the renewal failed
 * and the grant is still proved. PERMIT_NO_CAPACITY or PERMIT_PAUSED: not granted within the wait; nothing is held. The
 * message names the obstacle: for specific slots, the first held slot and the end of its hold; permit_client_answer has
 * all of them (`taken`). PERMIT_NEVER_SATISFIABLE: among other reasons, a slot does not exist. The caller frees the
 * request with permit_request_free.
 */
enum permit_status permit_acquire(struct permit_client *client, const struct permit_acquire_options *options,
                                  struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Extends the hold to ttl_ms from now (0: as before; PERMIT_TTL_NONE: removes the limit); never shortens it.
 * PERMIT_ENDED and PERMIT_UNKNOWN_REQUEST mean the same: it is no longer held. ret_request may be NULL.
 */
enum permit_status permit_renew(struct permit_client *client, const char *external_id, int64_t ttl_ms,
                                struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Confirms the request: removes its deadline for good (a sale). Idempotent. PERMIT_ENDED, PERMIT_UNKNOWN_REQUEST: too
 * late, it is no longer held. ret_request may be NULL.
 */
enum permit_status permit_confirm(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Confirms 1 to PERMIT_CONFIRM_MAX requests of together at most 64 semaphores: all, or none. Idempotent. PERMIT_ENDED,
 * PERMIT_UNKNOWN_REQUEST: at least one is no longer held, and none was confirmed by this call; permit_client_answer has
 * the key of the first (`external_id`).
 */
enum permit_status permit_confirm_all(struct permit_client *client, const char *const *external_ids,
                                      size_t count) PERMIT_MUST_CHECK;

/* A change of what a request holds. */
struct permit_change {
    /*
     * The units to give back. The request holds units of each of these semaphores. PERMIT_THESE gives back all of
     * `slots`; PERMIT_LOWEST gives back `count`: the slots with the highest numbers. `adjacent` and `best` must not be set.
     */
    const struct permit_want *give;
    size_t give_count;              /* 1 to 64; permit_grow: 0 */
    const struct permit_want *take; /* what is taken, as in an acquire */
    size_t take_count;              /* 1 to 64; permit_shrink: 0 */
    int64_t changes;   /* that of the last permit_request of this key, on which the caller has based the change */
    const char *nonce; /* 1 to 64 printable ASCII bytes, the same in every call for one change; NULL: random for each
                          call. All tries of a call have the same nonce, so a retry changes nothing twice. */
};

/*
 * Change what the request holds, at once or not at all; its deadline stays. permit_shrink gives back, and the rest
 * keeps its tokens; all given back is a release (`held` is then false). permit_grow takes. permit_exchange does both,
 * and may take what it gives back. Each semaphore of which the request takes units has a new token for all its units
 * in the request; the old one is dead: read ret_request->permits, which has all that is held then.
 *
 * PERMIT_NO_CAPACITY, PERMIT_PAUSED: not now; there is no wait. PERMIT_VERSION_MISMATCH: `changes` is another number:
 * read it again (permit_show), and decide again. PERMIT_CONFIRMED: a sale stays as it is. PERMIT_ENDED,
 * PERMIT_UNKNOWN_REQUEST: it is not held, or waits. PERMIT_INVALID: among other reasons, it does not hold what it would
 * give back. PERMIT_NEVER_SATISFIABLE, PERMIT_UNKNOWN_SEMAPHORE: as for an acquire. After all of these nothing has
 * changed, unless permit_client_in_doubt says so: then an answer was lost, and the change may have been made, perhaps
 * before another one. To repeat such a call safely, give the same `nonce` and `changes`. ret_request may be NULL.
 */
enum permit_status permit_shrink(struct permit_client *client, const char *external_id,
                                 const struct permit_change *change,
                                 struct permit_request **ret_request) PERMIT_MUST_CHECK;
enum permit_status permit_grow(struct permit_client *client, const char *external_id,
                               const struct permit_change *change,
                               struct permit_request **ret_request) PERMIT_MUST_CHECK;
enum permit_status permit_exchange(struct permit_client *client, const char *external_id,
                                   const struct permit_change *change,
                                   struct permit_request **ret_request) PERMIT_MUST_CHECK;
/*
 * Releases the request. Idempotent: PERMIT_OK also if it had already ended or was never granted (it then cannot be
 * granted later either); already_released and end_reason tell these apart. PERMIT_CONFIRMED: the request is confirmed
 * and stays held. ret_request may be NULL.
 */
enum permit_status permit_release(struct permit_client *client, const char *external_id,
                                  struct permit_request **ret_request);
/* Same as permit_release, but also releases a confirmed request (a refund). */
enum permit_status permit_release_confirmed(struct permit_client *client, const char *external_id,
                                            struct permit_request **ret_request);
/*
 * Ends another client's request, confirmed or not; for operators. `reason` (1 to 1000 bytes of UTF-8 without control
 * characters) is recorded. Idempotent. PERMIT_UNKNOWN_REQUEST: no such key. ret_request may be NULL.
 */
enum permit_status permit_force_release(struct permit_client *client, const char *external_id, const char *reason,
                                        struct permit_request **ret_request) PERMIT_MUST_CHECK;
/* Queries the request. PERMIT_UNKNOWN_REQUEST: no such key, or its retention has passed. */
enum permit_status permit_show(struct permit_client *client, const char *external_id,
                               struct permit_request **ret_request) PERMIT_MUST_CHECK;
/* Accepts NULL. */
void permit_request_free(struct permit_request *request);

/* ---- Renewal in the background ---- */

struct permit_renewer;

struct permit_renewer_options {
    /*
     * The longest time between two renewals; 0: no limit. In any case a third of the ttl; without a ttl, a third of
     * max_hold_ms, but at most 10 s. A request with PERMIT_TTL_OWNER is only queried, every 10 s.
     */
    int64_t every_ms;
    /*
     * Called at most once, on the renewer's thread, when the server reports the end of the request (PERMIT_ENDED,
     * PERMIT_UNKNOWN_REQUEST), or when held_until_us has passed without a successful renewal (the status of the last
     * try; PERMIT_OUTCOME_UNKNOWN: no try was answered in time). From then on the caller must not act as a holder. The
     * callback must not call permit_renewer_stop. message is valid during the call.
     */
    void (*lost)(void *context, enum permit_status status, const char *message);
    void *context;
};

/*
 * Starts a thread that renews `request`, which was just acquired, until it is stopped or lost. Each try takes at most a
 * third of the remaining time; a try after a timeout uses a new connection. Of several servers it starts at the
 * client's; if that one does not answer, it goes on at the next one immediately. Copies the parts of client, request
 * and options it needs. PERMIT_NO_MEMORY also means that no thread or descriptor is available; errno has the reason.
 */
enum permit_status permit_renewer_start(const struct permit_client *client, const struct permit_request *request,
                                        const struct permit_renewer_options *options,
                                        struct permit_renewer **ret_renewer) PERMIT_MUST_CHECK;
/*
 * Returns the time until which the request is proved to be held, as of the last successful renewal; 0: lost. Never
 * later than its end on the server. Callable from any thread.
 */
int64_t permit_renewer_held_until_us(const struct permit_renewer *renewer);
/*
 * Returns true if the request is proved to be held now; check it before a write that matters. Callable from any thread.
 */
bool permit_renewer_holds(const struct permit_renewer *renewer);
/* Stops the thread, cancels a renewal under way, and frees the renewer; releases nothing. Accepts NULL. */
void permit_renewer_stop(struct permit_renewer *renewer);

/* ---- Semaphores and fencing ---- */

struct permit_semaphore_options {
    int64_t capacity;       /* units; -1: unchanged */
    const char *kind;       /* "slotted", "counted"; NULL: unchanged, or slotted for a new one */
    int64_t default_ttl_ms; /* 0: unchanged */
};

/* Creates or changes a semaphore. */
enum permit_status permit_semaphore_put(struct permit_client *client, const char *semaphore,
                                        const struct permit_semaphore_options *options);

/* State of a token; exact at the time of the answer. */
struct permit_fence {
    bool live;
    uint64_t floor; /* every smaller token is dead */
};

/* slot 0: the semaphore as a whole. */
enum permit_status permit_fence_check(struct permit_client *client, const char *semaphore, uint64_t token,
                                      uint32_t slot, struct permit_fence *ret_fence) PERMIT_MUST_CHECK;

/* ---- Everything else of docs/protocol.md ---- */

/*
 * Sends one call, with the retries of this library. method is "GET", "PUT", "POST" or "DELETE". path begins with "/v1/"
 * and includes its query, already percent-encoded (permit_path_encode). body is JSON or NULL. permit_client_answer
 * returns the answer. Only for calls that may be repeated. A retried DELETE that gets 404 for its semaphore or
 * template, after an answer was lost, has succeeded: PERMIT_OK, and the answer {}.
 */
enum permit_status permit_call(struct permit_client *client, const char *method, const char *path, const char *body);
/*
 * Writes `word`, percent-encoded and zero-terminated, to `to`, which has `size` bytes. Three bytes per byte of word,
 * and one for the zero, are enough. Returns the length, or 0 if it does not fit.
 */
size_t permit_path_encode(const char *word, char *to, size_t size);

#ifdef __cplusplus
}
#endif
#endif
