/* SPDX-License-Identifier: MIT */
/*
 * The memory of requests and answers, and the share of it that a client has: its address before a credential, its
 * principal after it. Without credentials no client has a share.
 */
#ifndef HTTP_SHARE_H
#define HTTP_SHARE_H

#include "base/budget.h"

struct share {
    struct budget receiving; /* requests that are not complete, and requests behind one that is handled */
    struct budget answering; /* answers that are made, or that the client has not read */
};

/* The fractions that are shares. What strangers cannot have is kept for clients with a credential. */
enum {
    STRANGERS_PART = 4, /* of all memory: all clients without a credential together */
    ADDRESS_PART = 4,   /* of that: one address */
    PRINCIPAL_PART = 2, /* of all memory: a principal */
};

static inline void share_init(struct share *share, struct share *whole, size_t part)
{
    *share = (struct share){.receiving = {.whole = &whole->receiving, .part = part},
                            .answering = {.whole = &whole->answering, .part = part}};
}
#endif
