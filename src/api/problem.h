/* SPDX-License-Identifier: MIT */
/*
 * Refusals: application/problem+json with a type from the closed list of permit/status.h, and a detail that says what
 * is wrong and what helps. The status decides HTTP code, title and whether there is a Retry-After.
 */
#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "http/exchange.h"
#include "permit/status.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json"

/* Writes the object without its closing brace, so that members can follow. detail NULL: the title is the detail. */
void problem_begin(struct buf *out, enum permit_status status, const char *detail);
void problem_retry_after(struct buf *out, int64_t retry_after_ms);
void problem_end(struct buf *out);

/* Makes `answer` a problem. Of its old body only the memory is used. */
void problem_write(struct answer *answer, const char *request_id, enum permit_status status, const char *detail);
/* Makes the exchange's answer a problem. Returns true, so that a handler can return the result. */
bool problem_answer(struct exchange *exchange, enum permit_status status, const char *detail);
/* The same with a time after which the client may repeat the request; 0: the default. For 423, 429 and 503. */
bool problem_answer_after(struct exchange *exchange, enum permit_status status, const char *detail,
                          int64_t retry_after_ms);
/* Sets HTTP code, content type and Retry-After of an answer whose body is a problem. retry_after_ms 0: the default. */
void problem_head(struct answer *answer, enum permit_status status, int64_t retry_after_ms);
/*
 * Returns the Retry-After of a status in ms: `asked` if above 0, else the default; 0 for a status without Retry-After.
 */
int64_t problem_retry_ms(enum permit_status status, int64_t asked);
#endif
