/* SPDX-License-Identifier: MIT */
/* Answers 404: names the missing object and the nearest existing name. */
#ifndef API_NOT_FOUND_H
#define API_NOT_FOUND_H

#include "api/call.h"

/*
 * Makes the answer a 404 for `name` with the nearest existing name; store NULL: without the nearest name. False: the
 * status is not about a name, and nothing was done. Runs on a reader's thread.
 */
bool not_found_answer(struct exchange *exchange, struct store *store, enum permit_status status,
                      struct bytes name) MUST_CHECK;
/*
 * Adds the nearest name, if the database can be queried, to the 404 that is the answer so far to an operation or an
 * owner call. Finishes the exchange. Runs on a thread of the engine.
 */
void not_found_finish(struct exchange *exchange, enum permit_status status);
#endif
