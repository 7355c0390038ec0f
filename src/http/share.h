/* SPDX-License-Identifier: MIT */
/*
 * The memory of requests and answers, and the share of it that a client has: its address before a credential, its
 * principal after it. Without credentials no client has a share.
 */
#ifndef HTTP_SHARE_H
#define HTTP_SHARE_H

#include "base/budget.h"

struct memory_share {
    struct budget receiving; /* requests that are not complete, and requests behind one that is handled */
    struct budget handling;  /* requests that are handled, also while they wait, and answers */
    struct budget answering; /* of that: answers that are made, or that the client has not read */
};

/* The fractions that are shares. Clients with a credential have the rest to themselves. */
enum {
    STRANGERS_PART = 4, /* of all memory: all clients without a credential together */
    ADDRESS_PART = 4,   /* of that: one address */
    PRINCIPAL_PART = 2, /* of all memory: a principal */
};

/* Makes `share` a part of `whole`. Neither may move in memory from then on. */
static inline void share_init(struct memory_share *share, struct memory_share *whole, size_t part)
{
    *share = (struct memory_share){.receiving = {.whole = &whole->receiving, .part = part},
                                   .handling = {.whole = &whole->handling, .part = part},
                                   .answering = {.whole = &share->handling, .part = 1}};
}

/* Makes `share` all memory. Answers have no limit of their own. */
static inline void share_init_whole(struct memory_share *share, size_t receiving, size_t handling)
{
    *share = (struct memory_share){.receiving = {.limit = receiving},
                                   .handling = {.limit = handling},
                                   .answering = {.whole = &share->handling, .limit = SIZE_MAX}};
}
#endif
