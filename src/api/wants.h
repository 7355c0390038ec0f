/* SPDX-License-Identifier: MIT */
/* Reads `permits` of an acquire: semaphores, counts and specific slots. */
#ifndef API_WANTS_H
#define API_WANTS_H

#include "api/call.h"

struct wire_list;

/*
 * Fills operation->wants from the list, sorted as the core requires. On an error the service's message has the reason.
 */
enum permit_status wants_read(struct exchange *exchange, struct wire_list *list,
                              struct operation *operation) MUST_CHECK;
#endif
