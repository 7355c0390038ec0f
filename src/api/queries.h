/* SPDX-License-Identifier: MIT */
/*
 * For handlers that query the database without a batch: submits queries to the engine's readers, and reads query
 * parameters.
 */
#ifndef API_QUERIES_H
#define API_QUERIES_H

#include "api/call.h"
#include "store/query.h"

typedef void query_work(struct query *query, struct store *store, enum permit_status status);

/*
 * Submits the exchange's query to a reader of the engine. Returns false if it was accepted, or true with a refusal as
 * the answer, as handlers do. Sets exchange->context to `context`.
 */
bool query_submit(struct exchange *exchange, enum query_lane lane, query_answer *answer, void *context);
/* The same with a `work` that also runs if the query gets no store, and finishes the exchange itself, maybe later. */
bool query_submit_work(struct exchange *exchange, enum query_lane lane, query_work *work, void *context);
/*
 * Submits a query that is also accepted while permitd refuses an unsafe database (P14). `work` runs even if the query
 * gets no store, and finishes the exchange itself.
 */
bool query_submit_always(struct exchange *exchange, enum query_lane lane, query_work *work, void *context);
struct exchange *query_exchange(struct query *query);
/*
 * Called by an answer before it changes the database. PERMIT_OK: from now on a client that gets no answer in time is
 * answered outcome_unknown. PERMIT_BUSY: the client has already been told that nothing was done, so the answer must
 * stop.
 */
enum permit_status query_begin_change(struct exchange *exchange) MUST_CHECK;
/* Answers a query that failed with this status. store NULL: the query had no store. */
void query_refuse(struct exchange *exchange, struct store *store, enum permit_status status);

/*
 * Writes a request as GET /v1/requests/{external_id} answers it. Writes nothing unless it returns PERMIT_OK. names and
 * time are those of the query that has read it.
 */
enum permit_status request_write(struct exchange *exchange, struct store *store, const struct request *request,
                                 const struct bytes *names, const struct query_time *time) MUST_CHECK;

/* Returns a query parameter; data NULL: absent. */
struct bytes query_param(const struct exchange *exchange, const char *name);
/* Reads a whole number from a query parameter; `fallback` if absent. False: the exchange's answer is the refusal. */
bool param_number(struct exchange *exchange, const char *name, uint64_t min, uint64_t max, uint64_t fallback,
                  uint64_t *ret_number);
/* Reads "true" or "false" from a query parameter; false if absent. False: the exchange's answer is the refusal. */
bool param_flag(struct exchange *exchange, const char *name, bool *ret_flag);
#endif
