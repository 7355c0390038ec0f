/* SPDX-License-Identifier: MIT */
/*
 * Turns: the entries that wait for a reader, served by turns between principals. The next entry is the oldest one of the principal
 * whose last turn is longest ago, so a principal with many entries delays one of another by a single entry. Entries of
 * one principal are served in order of arrival.
 */
#ifndef ENGINE_TURNS_H
#define ENGINE_TURNS_H

#include "base/base.h"
#include "base/list.h"

struct turns {
    struct list first; /* struct turn: the oldest of each principal, the next to be served first */
    size_t count;      /* of all entries */
};

struct turn {
    struct bytes principal; /* set by the owner, and valid until it is served; length 0: no principal */
    struct list node;       /* in turns->first, or in `behind` of the oldest entry of its principal */
    struct list behind;     /* of the oldest entry: the later ones of its principal, in order of arrival */
};

void turns_init(struct turns *turns);
static inline bool turns_empty(const struct turns *turns)
{
    return turns->count == 0;
}
/* Adds an entry. Its time grows with the number of principals that have entries. */
void turns_add(struct turns *turns, struct turn *turn);
/* Moves all entries of `from` to `turns`, which is empty. */
void turns_move(struct turns *turns, struct turns *from);
/* Removes the next entry and returns it. There is one. */
struct turn *turns_take(struct turns *turns);
#endif
