/* SPDX-License-Identifier: MIT */
/*
 * The endpoints of a client: the servers that its url names, in random order, and the one of the next try. Decides
 * nothing about retries (client.c).
 */
#ifndef CLIENT_ENDPOINTS_H
#define CLIENT_ENDPOINTS_H

#include "base/buf.h"
#include "client/http.h"
#include "permit/permit.h"

enum { ENDPOINT_FAILURE_SIZE = 128 };

struct endpoint {
    struct http *http;
    char failure[ENDPOINT_FAILURE_SIZE]; /* reason for the failure of its last try in the current call; "": none */
};

struct endpoints {
    struct endpoint list[PERMIT_SERVERS_MAX];
    size_t count;   /* 1 or more, once it is open */
    size_t current; /* index of the server of the next try */
};

/*
 * Opens the servers of a list "URL[,URL]...", the url of the options, in random order; connects to none.
 * PERMIT_INVALID: appends to `message` the rest of a sentence about the list, which names the entry: "must be ...".
 * Other errors: see http_new. endpoints_release is needed in any case.
 */
enum permit_status endpoints_open(struct endpoints *endpoints, const struct http_options *options,
                                  struct buf *message) MUST_CHECK;
/* Returns the first server that would get a credential in the clear, over http on another machine. NULL: none. */
const struct http *endpoints_find_exposed(const struct endpoints *endpoints);
/* Replaces the token of all servers for later exchanges; some keep theirs if out of memory. */
void endpoints_set_token(struct endpoints *endpoints, const char *token);
/* Accepts a zeroed object. */
void endpoints_release(struct endpoints *endpoints);

struct endpoint *endpoints_current(struct endpoints *endpoints);
/* Makes the next server of the list current; after the last one, the first. */
void endpoints_next(struct endpoints *endpoints);
/* Makes the server with the same address current. No change if there is none. */
void endpoints_start_at(struct endpoints *endpoints, const struct http *http);

/* Clears the failures of all servers, when a call begins. */
void endpoints_clear_failures(struct endpoints *endpoints);
/* Appends "<before>URL (FAILURE), URL (FAILURE)" of the servers that failed, at most 4 KB; nothing if none did. */
void endpoints_write_failures(const struct endpoints *endpoints, const char *before, struct buf *out);
#endif
