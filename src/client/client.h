/* SPDX-License-Identifier: MIT */
/* The inside of struct permit_client: one try, and trying again. The public side is include/permit/permit.h. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/uuid.h"
#include "client/http.h"
#include "permit/permit.h"

enum {
    PATH_MAX_BYTES = 4096,
    BODY_MAX_BYTES = 1024 * 1024,
    TRIES_LEAST = 3, /* before silence counts */
};

struct permit_client {
    struct permit_client_options options; /* with the defaults filled in; its strings are ours */
    struct http *http;
    struct http_reply reply;
    struct buf message;
    char *key;
    bool in_doubt;       /* see permit_client_in_doubt */
    int64_t max_wait_ms; /* the longest wait that the server takes, once it has said so; INT64_MAX before */
};

/* The course of one call: what became of its tries so far. */
struct course {
    boot_us sent;          /* the moment before the last one was sent */
    int64_t asked_wait_ms; /* how long the server was asked to wait in it */
    bool answer_lost;      /* an earlier one, or a first copy of the last, may have been carried out */
    unsigned failures;     /* in a row */
    unsigned silences;     /* in a row: tries that had no answer in their time */
    boot_us failing_since; /* the first of the failures */
};

/*
 * How long the next try may take. A connection that has gone silent says nothing about the server, and the next try is
 * on a new one: so the first try gets a third of timeout_ms and the second two thirds. A call that is tried only once
 * gets all of it.
 */
int64_t client_try_ms(const struct permit_client *client, const struct course *course);
/* One try, with its message, noted in the course. call->timeout_ms 0: as client_try_ms says. */
enum permit_status client_try(struct permit_client *client, struct http_call *call, struct course *course) MUST_CHECK;
/*
 * After a try that failed, and may be repeated: sleeps before the next one. False: there is to be none, since tries
 * have failed for patience_ms (-1: one try only), or cancel_fd is readable. After silence the next one comes at once,
 * until there have been three.
 */
bool client_pause(const struct permit_client *client, struct course *course, int64_t patience_ms,
                  int cancel_fd) MUST_CHECK;
/* False: the answer settles it, and trying again at once would not change it. */
bool client_may_change(enum permit_status status) MUST_CHECK;
/* True if the call, which ended so, may have been carried out all the same. */
bool client_leaves_doubt(const struct course *course, enum permit_status status) MUST_CHECK;
/* Tries until there is an answer that trying again would not change, or options.retry_ms have passed without. */
enum permit_status client_persist(struct permit_client *client, struct http_call *call,
                                  struct course *course) MUST_CHECK;
/* How long to wait before the next try, after this many failures in a row; with jitter. */
int64_t client_pause_ms(const struct permit_client *client, unsigned failures);
/* False: the descriptor became readable first. */
bool client_sleep(int64_t ms, int cancel_fd) MUST_CHECK;
/* Writes "/v1/requests/KEY<suffix>". False: too long. */
bool client_request_path(const char *external_id, const char *suffix, char path[PATH_MAX_BYTES]) MUST_CHECK;
/* Hands out the request in the last answer. */
enum permit_status client_take_request(struct permit_client *client, const struct course *course,
                                       struct permit_request **ret_request) MUST_CHECK;
/* Sets the message and returns the status. */
enum permit_status client_fail(struct permit_client *client, enum permit_status status, const char *sentence);
#endif
