/* SPDX-License-Identifier: MIT */
/* The inside of struct permit_client: one try, and trying again. The public side is include/permit/permit.h. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/uuid.h"
#include "client/http.h"
#include "permit/permit.h"

enum { PATH_MAX_BYTES = 4096, BODY_MAX_BYTES = 1024 * 1024 };

struct permit_client {
    struct permit_client_options options; /* with the defaults filled in; its strings are ours */
    struct http *http;
    struct http_reply reply;
    struct buf message;
    char *key;
};

/* What one call may spend, and what became of it. */
struct effort {
    mono_us wait_until; /* while there is no capacity; 0: do not wait */
    int cancel_fd;      /* -1: none */
    mono_us sent;       /* result: the moment before the last try was sent */
    bool answer_lost;   /* result: an earlier try, or a first copy of the last, may have been carried out */
};

/* One try, with its message. */
enum permit_status client_try(struct permit_client *client, struct http_call *call, mono_us *ret_sent) MUST_CHECK;
/* Tries until there is an answer that trying again would not change, or the effort is spent. */
enum permit_status client_persist(struct permit_client *client, struct http_call *call,
                                  struct effort *effort) MUST_CHECK;
/* How long to wait before the next try, after this many failures in a row; with jitter. */
int64_t client_pause_ms(const struct permit_client *client, unsigned failures);
/* False: the descriptor became readable first. */
bool client_sleep(int64_t ms, int cancel_fd) MUST_CHECK;
/* Writes "/v1/requests/KEY<suffix>". False: too long. */
bool client_request_path(const char *external_id, const char *suffix, char path[PATH_MAX_BYTES]) MUST_CHECK;
/* Sets the message and returns the status. */
enum permit_status client_fail(struct permit_client *client, enum permit_status status, const char *sentence);
#endif
