/* SPDX-License-Identifier: MIT */
/* GET /v1/feed while it waits: for the hooks of the server (hooks.c). */
#ifndef API_FEED_H
#define API_FEED_H

#include "http/exchange.h"

/* Returns true if the exchange is a reader of the feed. */
bool feed_is_read(const struct exchange *exchange);
/* Its client has disconnected. As the hook `abandon`. */
bool feed_abandon(struct exchange *exchange) MUST_CHECK;
#endif
