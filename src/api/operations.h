/* SPDX-License-Identifier: MIT */
/* Operations in an exchange: reads them from a body, submits them to the engine, and turns decisions into answers. */
#ifndef API_OPERATIONS_H
#define API_OPERATIONS_H

#include "api/call.h"
#include "api/json_in.h"

/* Returns where the body of an exchange is read to. Only for handlers, while they run. */
struct wire_reading reading_of(struct exchange *exchange);

/*
 * Submits the call's first operation to the engine. Returns false if it was accepted, or true with a refusal as the
 * answer, as handlers do.
 */
bool operation_submit(struct exchange *exchange);
/*
 * Like operation_submit, but calls `decided` with the decision instead of operation_decided, which fills in the answer.
 */
bool operation_submit_to(struct exchange *exchange, void (*decided)(struct op *op, const struct decision *decision));
void operation_decided(struct op *op, const struct decision *decision);
/* Answers a request whose body or parameters were not read; the service's message is the detail. Returns true. */
bool operation_refuse(struct exchange *exchange, enum permit_status status);
/* Answers an operation or query that the engine did not accept, with the reason. Returns true. Called by handlers. */
bool operation_reject(struct exchange *exchange, enum permit_status status, enum engine_bound bound);
/* Writes the body of a refusal of `item`'s operation that has no decision. */
void operation_write_refusal(struct buf *out, const struct batch_item *item, enum permit_status status,
                             const char *detail);
/*
 * Writes the decision as a body. *ret_status is the status that the client gets, *ret_code the HTTP status. Runs on a
 * thread of the engine.
 */
void operation_write_decision(struct buf *out, const struct batch_item *item, const struct decision *decision,
                              enum permit_status *ret_status, int *ret_code);
/* Maps an internal status to the status that clients get. */
enum permit_status operation_public_status(enum permit_status status);

/*
 * Reads the body of an acquire into item->operation, and its `wait` into the call. header_key is the
 * Idempotency-Key; data NULL: absent. On an error the service's message has the reason.
 */
enum permit_status operation_read_acquire(struct exchange *exchange, struct bytes header_key,
                                          struct batch_item *item) MUST_CHECK;
/*
 * Reads an acquire, release, renew or confirm of a batch, which has a member `op`, and neither `wait` nor `priority`.
 */
enum permit_status operation_read_batched(struct exchange *exchange, struct bytes object, enum operation_kind kind,
                                          struct batch_item *item) MUST_CHECK;
/* Reads the body of a renew or confirm, which may be absent, into the operation. */
enum permit_status operation_read_hold(struct exchange *exchange, struct operation *operation) MUST_CHECK;
/* Reads the body {"external_ids"} of a confirm of several keys into the operation. */
enum permit_status operation_read_confirm_all(struct exchange *exchange, struct operation *operation) MUST_CHECK;
/* Checks that the body is absent or {}. */
enum permit_status operation_read_nothing(struct exchange *exchange) MUST_CHECK;
/* Reads the body {"reason"}, which force-release, pause and fence bump require. */
enum permit_status operation_read_reason(struct exchange *exchange, struct bytes *ret_reason) MUST_CHECK;
/* Checks a reason from a query parameter; data NULL (absent) is refused. */
enum permit_status operation_check_reason(struct exchange *exchange, struct bytes reason) MUST_CHECK;
#endif
