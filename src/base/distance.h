/* SPDX-License-Identifier: MIT */
/* Edit distance of two names, to suggest the name that was meant. */
#ifndef BASE_DISTANCE_H
#define BASE_DISTANCE_H

#include "base/base.h"

enum { NAME_FAR = 4, EDIT_DISTANCE_MAX = 63 };

/*
 * Returns the number of edits between two texts of at most EDIT_DISTANCE_MAX bytes: a byte is inserted, removed,
 * replaced, or swapped with its neighbour.
 */
unsigned edit_distance(struct bytes a, struct bytes b);
/*
 * Returns the edit distance of two names if they look like a typing error: at most three edits, and at most one per
 * three bytes. Else NAME_FAR.
 */
unsigned name_distance(struct bytes a, struct bytes b);
#endif
