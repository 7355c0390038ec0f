/* SPDX-License-Identifier: MIT */
/*
 * Calls liveness_url over HTTP or HTTPS to find out whether owners are alive: a GET of the URL with {owner} replaced by
 * the percent-encoded name. 200 is alive, 404 and 410 are dead. Everything else is unknown: another status, a redirect,
 * a certificate that does not match, no complete answer within 5 s, or an answer of more than 1 MiB. Speaks to libcurl,
 * on the thread that asks.
 */
#ifndef TASKS_LIVENESS_PROBE_H
#define TASKS_LIVENESS_PROBE_H

#include "engine/engine.h"

struct probe;

/*
 * url: http://HOST[:PORT]/PATH or https://..., with {owner} at least once, in its path or query. ca_file: certificates
 * in PEM that https is checked against; NULL or empty: those of the system. Copies both. NULL: invalid, or no memory
 * (message).
 */
struct probe *probe_new(const char *url, const char *ca_file, struct buf *message) MUST_CHECK;
/* Accepts NULL. */
void probe_free(struct probe *probe);
/* A probe_ask: `context` is the probe. One thread at a time. */
void probe_ask_all(void *context, struct probe_question *questions, size_t count, const atomic_bool *stopping);
#endif
