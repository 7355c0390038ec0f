/* SPDX-License-Identifier: MIT */
/*
 * Asserts the order and the bounds of calls that store.h states, for any implementation: it puts its own methods before
 * those of a store, which it calls.
 */
#ifndef CHECKED_STORE_H
#define CHECKED_STORE_H

#include "store/servers.h"
#include "store/store.h"

struct checked_store {
    struct store_session session;
    struct store_batch batch;
    struct store_clock clock;
    struct store_queries queries;
    struct store_servers servers;
    struct store inner; /* the groups that the store had; the rest is unused */
    bool in_batch;      /* a transaction of a batch is open: from `await` or `lock` to `commit` or `rollback` */
};

/* `checked` must live as long as the store. Does nothing to a store that is checked already. */
void checked_store_init(struct checked_store *checked, struct store *store);
#endif
