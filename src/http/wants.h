/* SPDX-License-Identifier: MIT */
/* The `permits` of an acquire: of which semaphores, how many, and which slots. */
#ifndef HTTP_WANTS_H
#define HTTP_WANTS_H

#include "http/exchange.h"

struct wire_list;

/* Fills operation->wants from the list, which it walks to its end, sorted as the core wants them; the service's message
 * says what is wrong. */
enum permit_status wants_read(struct exchange *exchange, struct wire_list *list,
                              struct operation *operation) MUST_CHECK;
#endif
