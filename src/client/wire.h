/* SPDX-License-Identifier: MIT */
/* Writes and reads the bodies of docs/protocol.md. */
#ifndef CLIENT_WIRE_H
#define CLIENT_WIRE_H

#include "base/buf.h"
#include "base/clock.h"
#include "client/json.h"
#include "permit/permit.h"

/*
 * Returns the body of an acquire, which the caller frees. wait_ms is the wait of this call, a piece of
 * options->wait_ms.
 */
struct json_writer *wire_acquire(const struct permit_acquire_options *options, const char *external_id,
                                 const char *nonce, int64_t wait_ms) MUST_CHECK;
/* The body of a change. The lists have these names; NULL: there is none. The caller frees it. */
struct json_writer *wire_change(const struct permit_change *change, const char *give, const char *take,
                                const char *nonce) MUST_CHECK;
/* Returns the text of a body. NULL: out of memory, or longer than 1 MiB. */
const char *wire_text(struct json_writer *body) MUST_CHECK;

/*
 * Reads a problem. Returns false if the body is not one of permitd. *ret_retry_after_ms is untouched if the problem has
 * no retry_after_ms. Appends one sentence on one line to `detail`.
 */
bool wire_read_problem(const char *body, int http_status, enum permit_status *ret_status, int64_t *ret_retry_after_ms,
                       struct buf *detail) MUST_CHECK;
/* Returns true for the problem "ended" of a request that ended because its ttl expired. */
bool wire_is_expired(const char *body) MUST_CHECK;
/*
 * `sent` is the time just before the call was sent. Returns NULL if the body is no request, or if out of memory. The
 * caller frees it with permit_request_free.
 */
struct permit_request *wire_read_request(const char *body, boot_us sent) MUST_CHECK;
/* Returns true if the body is one JSON object, as every successful answer except that of /metrics is. */
bool wire_is_object(const char *body) MUST_CHECK;
bool wire_read_fence(const char *body, struct permit_fence *ret_fence) MUST_CHECK;
#endif
