/* SPDX-License-Identifier: MIT */
/* The store on MariaDB and MySQL (store.h has the contract). */
#ifndef STORE_MYSQL_STORE_H
#define STORE_MYSQL_STORE_H

#include "store/doctor.h"
#include "store/mysql_session.h"
#include "store/store.h"

/*
 * Creates a store without a connection; store_reconnect connects. `address` and `options` must outlive the store;
 * `options` may be NULL. Returns NULL if memory runs out. Free with store_free.
 */
struct store *mysql_store_new(const struct database_address *address, const struct doctor_options *options) MUST_CHECK;
#endif
