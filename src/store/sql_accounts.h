/* SPDX-License-Identifier: MIT */
/* The rows of `sql_account`: the SQL users that may call the procedures of shops, with the namespace of their keys. */
#ifndef STORE_SQL_ACCOUNTS_H
#define STORE_SQL_ACCOUNTS_H

#include "store/query.h"

struct sql_account {
    struct bytes user; /* name of an SQL user, without its host */
    struct bytes namespace;
};

/* A change by an operator, which is an event of all semaphores. */
struct sql_account_change {
    struct sql_account account;    /* a delete reads its `user` only */
    struct bytes who;              /* principal; length 0: no credentials are configured */
    struct sql_account ret_before; /* before the change, in the arena; user.data NULL: there was none */
    struct bytes ret_database;     /* name of the database, in the arena */
};

/* The methods; store->sql_accounts. */
struct store_sql_accounts {
    /* Creates or changes an account. PERMIT_DATABASE_LOST: the outcome is unknown. */
    enum permit_status (*put)(struct store *store, struct sql_account_change *change, struct arena *arena);
    /* Deletes an account. PERMIT_UNKNOWN_ACCOUNT: it does not exist. PERMIT_DATABASE_LOST: the outcome is unknown. */
    enum permit_status (*delete)(struct store *store, struct sql_account_change *change, struct arena *arena);
    /* Reads one account. PERMIT_UNKNOWN_ACCOUNT: it does not exist. */
    enum permit_status (*get)(struct store *store, struct bytes user, struct arena *arena,
                              struct sql_account *ret_account);
    /* Lists accounts in the order of their names: page->sql_accounts. */
    enum permit_status (*list)(struct store *store, struct page *page);
};
#endif
