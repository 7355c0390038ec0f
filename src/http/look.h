/* SPDX-License-Identifier: MIT */
/* What handlers that only read have in common: a look-up on the engine's reader, lists in pages; and query parameters.
 */
#ifndef HTTP_LOOK_H
#define HTTP_LOOK_H

#include "http/exchange.h"

enum { LIST_DEFAULT_LIMIT = 100, LIST_MAX_LIMIT = 1000 };

/* Gives the exchange to the engine's reader; as a handler returns it. `context` goes into exchange->context. */
bool look_submit(struct exchange *exchange,
                 void (*work)(struct look *look, struct session *session, enum permit_status status), void *context);
/* The same for what may be asked while the database is refused too (P14). */
bool look_submit_always(struct exchange *exchange,
                        void (*work)(struct look *look, struct session *session, enum permit_status status),
                        void *context);
struct exchange *look_exchange(struct look *look);
/* The look-up ended with this status instead of an answer. */
void look_refuse(struct exchange *exchange, enum permit_status status);

/* The answer to GET /v1/requests/{external_id}; nothing is written unless it is PERMIT_OK. */
enum permit_status request_show(struct exchange *exchange, struct session *session);

/* A whole number in a query parameter; fallback if it is absent. False: an answer says what is wrong. */
bool query_number(struct exchange *exchange, size_t index, const char *name, uint64_t min, uint64_t max,
                  uint64_t fallback, uint64_t *ret_number);

/* "true" or "false" in a query parameter; false if it is absent. False: an answer says what is wrong. */
bool query_flag(struct exchange *exchange, size_t index, const char *name, bool *ret_flag);

/* {"name":[ ... ],"next":"..."}; next only if more follow. */
void list_begin(struct exchange *exchange, const char *name);
void list_next_text(struct exchange *exchange, struct bytes next);
void list_next_number(struct exchange *exchange, uint64_t next);
void list_end(struct exchange *exchange);
#endif
