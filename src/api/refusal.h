/* SPDX-License-Identifier: MIT */
/*
 * Refusals: the problem that answers an operation which the engine has not done, with its sentence. That of no_capacity
 * also shows who holds the units and who is ahead. If these are not cached (front_cache.h), or the request has a place
 * in a queue, the refusal waits for a query; one query reads for all that wait.
 */
#ifndef API_REFUSAL_H
#define API_REFUSAL_H

#include "api/call.h"

/* The refusals that wait for a query. One for all services. */
struct refusals;

struct refusals *refusals_new(void) MUST_CHECK;
/* Call it after engine_stop. Accepts NULL. */
void refusals_free(struct refusals *refusals);
struct front_cache *refusals_fronts(struct refusals *refusals);

/*
 * Called first by the `decided` of an operation that can lack capacity, with no lock. True: `decided` must return now;
 * it is called again, with a copy of the decision, when the holders are known or cannot be read. False: the decision
 * can be written; refusal_end must follow, and may free it.
 */
bool refusal_begin(struct batch_item *item, const struct decision *decision) MUST_CHECK;
void refusal_end(struct batch_item *item);

/* Writes the problem of an operation that was not done. */
void refusal_write(struct buf *out, const struct batch_item *item, const struct decision *decision,
                   enum permit_status status);
/*
 * Returns why the engine did not accept an operation or query; NULL: unknown. Valid until the next use of the service's
 * message. Called by handlers.
 */
const char *refusal_reason(struct exchange *exchange, enum permit_status status, enum engine_bound bound);
#endif
