/* SPDX-License-Identifier: MIT */
/* JSON of docs/protocol.md, written and read; the only file of the library that speaks to json-c. */
#ifndef CLIENT_WIRE_H
#define CLIENT_WIRE_H

#include "base/buf.h"
#include "base/clock.h"
#include "permit/permit.h"

/* Each appends a body. False: no memory. */
/* wait_ms: of this call, a piece of options->wait_ms. */
bool wire_write_acquire(const struct permit_acquire_options *options, const char *external_id, const char *nonce,
                        int64_t wait_ms, struct buf *out) MUST_CHECK;
bool wire_write_renew(int64_t ttl_ms, struct buf *out) MUST_CHECK;
bool wire_write_reason(const char *reason, struct buf *out) MUST_CHECK;
bool wire_write_semaphore(const struct permit_semaphore_options *options, struct buf *out) MUST_CHECK;

/*
 * Reads a problem. False: the body is none of ours. *ret_retry_after_ms is left as it is if the problem does not say;
 * `detail` gets a sentence of one line.
 */
bool wire_read_problem(const char *body, int http_status, enum permit_status *ret_status, int64_t *ret_retry_after_ms,
                       struct buf *detail) MUST_CHECK;
/* The longest wait that the server takes, from a problem that says it. */
bool wire_read_max_wait(const char *body, int64_t *ret_max_wait_ms) MUST_CHECK;
/* True for the problem "ended" of a request whose ttl is over. */
bool wire_is_expired(const char *body) MUST_CHECK;
/* `sent` is the moment before the call was sent. NULL: not a request, or no memory. */
struct permit_request *wire_read_request(const char *body, boot_us sent) MUST_CHECK;
/* True for what every success of permitd has but that of /metrics: one JSON object. */
bool wire_is_object(const char *body) MUST_CHECK;
bool wire_read_fence(const char *body, struct permit_fence *ret_fence) MUST_CHECK;
#endif
