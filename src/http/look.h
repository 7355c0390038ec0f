/* SPDX-License-Identifier: MIT */
/* What handlers have in common that do not go through batches: a look-up on a reader of the engine, lists in pages; and
 * query parameters. */
#ifndef HTTP_LOOK_H
#define HTTP_LOOK_H

#include "http/exchange.h"

enum { LIST_DEFAULT_LIMIT = 100, LIST_MAX_LIMIT = 1000 };

typedef void look_work(struct look *look, struct session *session, enum permit_status status);

/* Gives the exchange to a reader of the engine; as a handler returns it. `context` goes into exchange->context. */
bool look_submit(struct exchange *exchange, enum look_lane lane, look_work *work, void *context);
/* The same for what may be asked while the database is refused too (P14). */
bool look_submit_always(struct exchange *exchange, enum look_lane lane, look_work *work, void *context);
struct exchange *look_exchange(struct look *look);
/*
 * Before a `work` changes something. PERMIT_OK: a client that gets no answer in time is told outcome_unknown from now
 * on. PERMIT_BUSY: the client is told already that nothing was done, so nothing may be.
 */
enum permit_status look_begin_change(struct exchange *exchange) MUST_CHECK;
/* The look-up ended with this status instead of an answer; session NULL: without one. */
void look_refuse(struct exchange *exchange, struct session *session, enum permit_status status);

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
