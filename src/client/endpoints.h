/* SPDX-License-Identifier: MIT */
/*
 * The servers of a client: the list that its url names, in random order, and the server of the next try. Decides
 * nothing about retries (client.c).
 */
#ifndef CLIENT_ENDPOINTS_H
#define CLIENT_ENDPOINTS_H

#include "base/buf.h"
#include "client/http.h"
#include "permit/permit.h"

enum { SERVER_FAILURE_SIZE = 128 };

struct server {
    struct http *http;
    char failure[SERVER_FAILURE_SIZE]; /* reason for the failure of its last try in the current call; "": none */
};

struct servers {
    struct server list[PERMIT_SERVERS_MAX];
    size_t count;   /* 1 or more, once it is open */
    size_t current; /* index of the server of the next try */
};

/*
 * Opens the servers of a list "URL[,URL]...", the url of the options, in random order; connects to none.
 * PERMIT_INVALID: appends to `message` the rest of a sentence about the list, which names the entry: "must be ...".
 * Other errors: see http_new. servers_release is needed in any case.
 */
enum permit_status servers_open(struct servers *servers, const struct http_options *options,
                                struct buf *message) MUST_CHECK;
/* Returns the first server that would get a credential in the clear, over http on another machine. NULL: none. */
const struct http *servers_find_exposed(const struct servers *servers);
/* Replaces the token of all servers for later exchanges; some keep theirs if out of memory. */
void servers_set_token(struct servers *servers, const char *token);
/* Accepts a zeroed object. */
void servers_release(struct servers *servers);

struct server *servers_current(struct servers *servers);
/* Makes the next server of the list current; after the last one, the first. */
void servers_next(struct servers *servers);
/* Makes the server with the same address current. No change if there is none. */
void servers_start_at(struct servers *servers, const struct http *http);

/* Clears the failures of all servers, when a call begins. */
void servers_clear_failures(struct servers *servers);
/* Appends "<before>URL (FAILURE), URL (FAILURE)" of the servers that failed, at most 4 KB; nothing if none did. */
void servers_write_failures(const struct servers *servers, const char *before, struct buf *out);
#endif
