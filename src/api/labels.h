/* SPDX-License-Identifier: MIT */
/* Reads the slot labels in the bodies of PUT semaphore and PUT slots, and the seats in that of PUT slots. */
#ifndef API_LABELS_H
#define API_LABELS_H

#include "core/plan.h"

struct wire_limit;
struct wire_list;
struct wire_reading;

#define LABELS_EXPECTED "an array of at most 65536 labels, null for none"

extern const struct wire_limit labels_limit;
/*
 * Reads the list into change->labels, for the slots from number `from` on. On an error the message has the reason.
 */
enum permit_status labels_read(const struct wire_reading *reading, struct wire_list *list, uint32_t from,
                               struct semaphore_change *change) MUST_CHECK;
#endif
