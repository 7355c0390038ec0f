/* SPDX-License-Identifier: MIT */
/* 404: names what there is not, and the nearest name that there is. */
#ifndef HTTP_NOT_FOUND_H
#define HTTP_NOT_FOUND_H

#include "http/exchange.h"

/*
 * Makes the answer a 404 that names `name`; session NULL: without the nearest one. False: the status is not about a
 * name, and nothing was done. On the reader's thread.
 */
bool not_found_answer(struct exchange *exchange, struct session *session, enum permit_status status,
                      struct bytes name) MUST_CHECK;
/*
 * The same for an operation or a call about an owner whose decision is the answer so far: the database is asked for the
 * nearest name, where that is possible. Finishes the exchange. On a thread of the engine.
 */
void not_found_finish(struct exchange *exchange, enum permit_status status);
#endif
