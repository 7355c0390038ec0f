/* SPDX-License-Identifier: MIT */
/*
 * Asks over HTTP whether owners are alive: GET of liveness_url with {owner} filled in, percent-encoded. 200 is alive,
 * 404 and 410 are dead; everything else (other statuses, redirects, a time-out, no connection) says nothing. It
 * speaks to libevent as the server does, but has a loop of its own, on the thread that asks.
 */
#ifndef HTTP_PROBE_H
#define HTTP_PROBE_H

#include "engine/engine.h"

struct probe;

/*
 * url: http://HOST[:PORT]/PATH with {owner} at least once, in its path or query. NULL: it cannot be used, or no memory
 * (message).
 */
struct probe *probe_new(const char *url, struct buf *message) MUST_CHECK;
/* Accepts NULL. */
void probe_free(struct probe *probe);
/* A probe_ask: `context` is the probe. One thread at a time. */
void probe_ask_all(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping);
#endif
