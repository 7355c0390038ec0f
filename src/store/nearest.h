/* SPDX-License-Identifier: MIT */
/* The name that somebody may have meant who named what there is not. */
#ifndef STORE_NEAREST_H
#define STORE_NEAREST_H

#include "base/arena.h"
#include "store/session.h"

enum nearest_kind { NEAREST_SEMAPHORE, NEAREST_TEMPLATE, NEAREST_OWNER, NEAREST_REQUEST };

struct nearest {
    bool exists;       /* there is exactly this one (a semaphore: in service) */
    struct bytes name; /* the nearest other one (name_distance), in the arena; data NULL: none is near */
};

/* Looks at the names that stand next to it in the order of their bytes: at a few rows, however many there are. */
enum permit_status query_nearest(struct session *session, enum nearest_kind kind, struct bytes name,
                                 struct arena *arena, struct nearest *ret_nearest) MUST_CHECK;
#endif
