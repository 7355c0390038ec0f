/* SPDX-License-Identifier: MIT */
/* Reads lists of permits: semaphores, counts and specific slots. */
#ifndef API_WANTS_H
#define API_WANTS_H

#include "core/plan.h"

struct wire_list;
struct wire_reading;

/* A list of permits in a body. */
struct wants_form {
    const char *name; /* of the member, such as "permits" */
    bool gives;       /* of an exchange: only counts and slots */
};
/* Reads the list, sorted as the core requires. On an error the message has the reason. */
enum permit_status wants_read(const struct wire_reading *reading, const struct wants_form *form, struct wire_list *list,
                              struct want **ret_wants, size_t *ret_count) MUST_CHECK;
#endif
