/* SPDX-License-Identifier: MIT */
/* Labels of slots, as PUT semaphore and PUT slots give them. */
#ifndef HTTP_LABELS_H
#define HTTP_LABELS_H

#include "http/exchange.h"

struct wire_limit;
struct wire_list;

#define LABELS_EXPECTED "an array of at most 65536 labels, null for none"

extern const struct wire_limit labels_limit;
/* The list as the labels of the slots from `from` on; the service's message says what is wrong. */
enum permit_status labels_read(struct exchange *exchange, struct wire_list *list, uint32_t from,
                               struct semaphore_change *change) MUST_CHECK;
#endif
