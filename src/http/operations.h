/* SPDX-License-Identifier: MIT */
/* The way of an operation through an exchange: read from a body, given to the engine, its decision made an answer. */
#ifndef HTTP_OPERATIONS_H
#define HTTP_OPERATIONS_H

#include "http/exchange.h"

/* Gives exchange->first to the engine; false, as a handler returns it, or true with a refusal as the answer. */
bool operation_submit(struct exchange *exchange);
/* The same, and `decided` is told of it instead of operation_decided, which answers with it. */
bool operation_submit_to(struct exchange *exchange, void (*decided)(struct op *op, const struct decision *decision));
void operation_decided(struct op *op, const struct decision *decision);
/* The engine did not take it: true, with a refusal as the answer that says why. On the loop's thread. */
bool operation_not_taken(struct exchange *exchange, enum permit_status status, enum engine_bound bound);
/* Why the engine did not take it, where that is known; NULL otherwise. On the loop's thread, until the next call. */
const char *operation_why_not_taken(struct exchange *exchange, enum permit_status status, enum engine_bound bound);
/* The body of a refusal of `part`'s operation that did not come from a decision. */
void operation_refusal(struct buf *out, const struct part *part, enum permit_status status, const char *detail);
/*
 * The decision as a body; *ret_status is what the client is told, *ret_retry_ms its Retry-After (0: none), *ret_code
 * the HTTP status. From an engine's thread.
 */
void operation_answer(struct buf *out, const struct part *part, const struct decision *decision,
                      enum permit_status *ret_status, int *ret_code);
/* Statuses that never leave the server, as those that do. */
enum permit_status operation_public_status(enum permit_status status);

/*
 * Reads the body of an acquire into part->operation, and its `wait` into exchange->wait_ms. header_key: what
 * Idempotency-Key said, data NULL if nothing. The service's message says what is wrong.
 */
enum permit_status operation_read_acquire(struct exchange *exchange, struct bytes header_key,
                                          struct part *part) MUST_CHECK;
/* The same of an operation of a batch, which has a member `op`, and no `wait`. */
enum permit_status operation_read_batched_acquire(struct exchange *exchange, struct bytes object,
                                                  struct part *part) MUST_CHECK;
enum permit_status operation_read_batched_release(struct exchange *exchange, struct bytes object,
                                                  struct part *part) MUST_CHECK;
enum permit_status operation_read_batched_renew(struct exchange *exchange, struct bytes object,
                                                struct part *part) MUST_CHECK;
enum permit_status operation_read_batched_confirm(struct exchange *exchange, struct bytes object,
                                                  struct part *part) MUST_CHECK;
/* The body of POST .../renew, which may be absent. */
enum permit_status operation_read_renew(struct exchange *exchange, struct ttl *ret_ttl) MUST_CHECK;
/* A body that says nothing: none, or {}. */
enum permit_status operation_read_nothing(struct exchange *exchange) MUST_CHECK;
/* The body {"reason"} of the exchange, which force-release, pause and fence bump must have. */
enum permit_status operation_read_reason(struct exchange *exchange, struct bytes *ret_reason) MUST_CHECK;
/* The same of a query parameter; data NULL: it is absent. */
enum permit_status operation_check_reason(struct exchange *exchange, struct bytes reason) MUST_CHECK;
#endif
