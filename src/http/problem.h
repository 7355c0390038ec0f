/* SPDX-License-Identifier: MIT */
/*
 * Refusals: application/problem+json with a type from the closed list of permit/status.h, what is wrong in one
 * sentence, and what helps. The status decides code, title and whether there is a Retry-After.
 */
#ifndef HTTP_PROBLEM_H
#define HTTP_PROBLEM_H

#include "http/exchange.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json"

/* The object without its closing brace, so that members can follow. detail NULL: the title. */
void problem_begin(struct buf *out, enum permit_status status, const char *detail);
void problem_retry_after(struct buf *out, int64_t retry_after_ms);
void problem_end(struct buf *out);

/* Makes the exchange's answer a problem; always true, so that a handler can return it. */
bool problem_answer(struct exchange *exchange, enum permit_status status, const char *detail);
/* Code, content type and Retry-After of an answer whose body is a problem. retry_after_ms 0: the usual. */
void problem_head(struct answer *answer, enum permit_status status, int64_t retry_after_ms);
/* The status's Retry-After; `asked` if that is more than 0; 0 for a status without one. */
int64_t problem_retry_ms(enum permit_status status, int64_t asked);
#endif
