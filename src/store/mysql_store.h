/* SPDX-License-Identifier: MIT */
/* store.h on MariaDB and MySQL. */
#ifndef STORE_MYSQL_STORE_H
#define STORE_MYSQL_STORE_H

#include "store/doctor.h"
#include "store/session.h"
#include "store/store.h"

/*
 * Connects to nothing yet (store_reconnect does). `address` and `options`, which may be NULL, must outlive the store.
 * NULL: no memory.
 */
struct store *mysql_store_new(const struct database_address *address, const struct doctor_options *options) MUST_CHECK;
#endif
