/* SPDX-License-Identifier: MIT */
/* Reads `permits` of an acquire: semaphores, counts and specific slots. */
#ifndef API_WANTS_H
#define API_WANTS_H

#include "core/plan.h"

struct wire_list;
struct wire_reading;

/*
 * Fills operation->wants from the list, sorted as the core requires. On an error the message has the reason.
 */
enum permit_status wants_read(const struct wire_reading *reading, struct wire_list *list,
                              struct operation *operation) MUST_CHECK;
#endif
