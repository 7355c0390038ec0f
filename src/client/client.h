/* SPDX-License-Identifier: MIT */
/*
 * The internals of struct permit_client: one try of a call, and retries. The public interface is
 * include/permit/permit.h.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/uuid.h"
#include "client/credential.h"
#include "client/endpoints.h"
#include "client/http.h"
#include "permit/permit.h"

enum {
    PATH_MAX_BYTES = 4096,
    MIN_TRIES = 3, /* tries of a call before silence ends it */
};

struct permit_client {
    struct permit_client_options options; /* defaults filled in; the client owns the strings; token and token_file are
                                             NULL: see `credential` */
    struct client_credential credential;
    struct endpoints endpoints;
    struct http_reply reply;
    struct buf message;
    char *key;
    bool in_doubt;       /* see permit_client_in_doubt */
    int64_t max_wait_ms; /* longest wait that the server accepts; INT64_MAX until the server reports it */
};

/* State of one call across its tries. */
struct call_state {
    boot_us sent;          /* time just before the last try was sent */
    int64_t asked_wait_ms; /* wait requested from the server in that try */
    bool answer_lost;      /* a server may have carried out a try that has no usable answer */
    bool silent_elsewhere; /* a server timed out and another one was tried: the first may carry the call out later */
    unsigned failures;     /* failed tries in a row, at all servers */
    boot_us failing_since; /* start of this row of failures */
    size_t gone;           /* servers that failed in this round, each tried without a pause after the one before */
    bool round_was_silent; /* a try of this round timed out */
    unsigned silences;     /* tries that timed out since the last answer, or the last round without one */
    size_t untrusted;      /* tries in a row that ended because of a certificate */
};

/* Creates a client with the options, credential and order of retries of another one, for another thread. */
enum permit_status client_copy(const struct permit_client *client, struct permit_client **ret_client) MUST_CHECK;

/*
 * A call with several servers goes in rounds. A try that finds no server, or one that is stopping, or a wait of unknown
 * outcome, is followed immediately by a try at the next server. The round ends when every server has failed, or with
 * another failure; then comes the pause. With one server each try is a round.
 */

/*
 * Returns the time limit of the next try. A silent connection says nothing about the server, and the next try uses a
 * new connection: so the first try gets a third of timeout_ms and the second two thirds. A call without retries
 * (retry_ms < 0) gets all of it.
 */
int64_t client_try_ms(const struct permit_client *client, const struct call_state *state);
/* Runs one try. Sets the client's message and updates the state. call->timeout_ms 0: the limit of client_try_ms. */
enum permit_status client_try(struct permit_client *client, struct http_call *call,
                              struct call_state *state) MUST_CHECK;
/*
 * Goes on to the next server after a try that ended with this failure. Returns true if the round goes on there, without
 * a pause.
 */
bool client_next_server(struct permit_client *client, struct call_state *state, enum permit_status status);
/*
 * Goes on to the next server after a failed try of a call that may be repeated, and sleeps between two rounds. Returns
 * false if there is no next try: tries have failed for patience_ms (-1: no retries) and the round is over, the pause
 * would end too late, cancel_fd is readable, or a certificate was refused at every server. After a silent round the
 * next one follows immediately; silence ends a call after MIN_TRIES tries at the earliest.
 */
bool client_pause(struct permit_client *client, struct call_state *state, enum permit_status status,
                  int64_t patience_ms, int cancel_fd) MUST_CHECK;
/*
 * Returns true if an immediate retry may get another answer. No capacity and a paused semaphore are final here: an
 * acquire that may wait retries them itself (acquire.c).
 */
bool client_retry_may_help(enum permit_status status) MUST_CHECK;
/* Returns true if the call, which ended with this status, may have been carried out. */
bool client_leaves_doubt(const struct call_state *state, enum permit_status status) MUST_CHECK;
/* Tries until an answer is final or options.retry_ms have passed without one. Sets in_doubt. */
enum permit_status client_call(struct permit_client *client, struct http_call *call,
                               struct call_state *state) MUST_CHECK;
/*
 * Returns the pause before the next round after `failures` failures in a row: Retry-After, or a time that grows with
 * each round; with jitter.
 */
int64_t client_pause_ms(const struct permit_client *client, unsigned failures);
/* Sleeps for this time. Returns false if the descriptor became readable first. */
bool client_sleep(int64_t ms, int cancel_fd) MUST_CHECK;
/* Writes "/v1/requests/KEY<suffix>". Returns false if the key is empty or too long. */
bool client_request_path(const char *external_id, const char *suffix, char path[PATH_MAX_BYTES]) MUST_CHECK;
/* Parses the request in the last answer. The caller frees it. */
enum permit_status client_take_request(struct permit_client *client, const struct call_state *state,
                                       struct permit_request **ret_request) MUST_CHECK;
/* Sets the message and returns the status. */
enum permit_status client_fail(struct permit_client *client, enum permit_status status, const char *sentence);
#endif
