/* SPDX-License-Identifier: MIT */
/* Finds the existing name nearest to an unknown one, for the detail of a 404 answer. */
#ifndef STORE_NEAREST_H
#define STORE_NEAREST_H

#include "base/arena.h"
#include "store/mysql_session.h"

enum nearest_kind { NEAREST_SEMAPHORE, NEAREST_TEMPLATE, NEAREST_OWNER, NEAREST_REQUEST };

struct nearest {
    bool exists;       /* the name itself exists; a retired semaphore does not count */
    struct bytes name; /* the nearest other name (name_distance), in the arena; data NULL: none is near */
};

/* Compares `name` with its neighbours in byte order: a few rows, whatever the size of the table. */
enum permit_status query_nearest(struct session *session, enum nearest_kind kind, struct bytes name,
                                 struct arena *arena, struct nearest *ret_nearest) MUST_CHECK;
#endif
