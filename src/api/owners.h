/* SPDX-License-Identifier: MIT */
/* Finds suspect owners, for lists of requests. The routes of /v1/owners are in routes.h. */
#ifndef API_OWNERS_H
#define API_OWNERS_H

#include "api/call.h"

/*
 * Finds the requests whose owner may not be alive: its heartbeat is late or has lapsed, or the liveness probe could not
 * confirm that it is alive. The requests are `stride` bytes apart. *ret_suspects has one value per request, in the
 * arena. Called by the work of a query.
 */
enum permit_status suspects_find(struct exchange *exchange, struct store *store, const struct request *requests,
                                 size_t count, size_t stride, const bool **ret_suspects) MUST_CHECK;
#endif
