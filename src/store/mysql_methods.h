/* SPDX-License-Identifier: MIT */
/* The groups of methods of the store on MariaDB and MySQL, and functions that its files share. Internal to store/. */
#ifndef STORE_MYSQL_METHODS_H
#define STORE_MYSQL_METHODS_H

#include "store/audit.h"
#include "store/feed.h"
#include "store/mysql_session.h"
#include "store/owners.h"
#include "store/query.h"
#include "store/retention_batch.h"
#include "store/servers.h"
#include "store/sql_accounts.h"
#include "store/store.h"
#include "store/templates.h"
#include "store/webhooks.h"

extern const struct store_queries mysql_queries;
extern const struct store_owners mysql_owners;
extern const struct store_templates mysql_templates;
extern const struct store_retention mysql_retention;
extern const struct store_audit mysql_audit;
extern const struct store_servers mysql_servers;
extern const struct store_sql_accounts mysql_sql_accounts;
extern const struct store_feed mysql_feed;
extern const struct store_webhooks mysql_webhooks;

/* The session of a store that store_open has made. */
struct session *session_of(struct store *store);
/* Returns the SQL expression for the identity of its server; of a STORE_WORKER. */
const char *identity_of(struct store *store);

/*
 * Resolve: sets ret_template of each name without a semaphore, or with a retired one, to the template with the longest
 * matching prefix. Sends nothing if there is no such name.
 */
enum permit_status templates_match(struct session *session, struct resolve_name *names, size_t count,
                                   struct arena *arena) MUST_CHECK;

/* Checks the server and, if the session has a current database, permitd's tables there: see store.h. */
enum permit_status doctor_check(struct session *session, const struct doctor_options *options,
                                struct doctor_report *ret_report) MUST_CHECK;
/* Adds findings about the procedures, their callers, and open transactions. Adds none before migration 14. */
enum permit_status doctor_examine_sales(struct session *session, struct doctor_report *report) MUST_CHECK;
enum permit_status doctor_read_undo(struct store *store, struct doctor_undo *ret_undo) MUST_CHECK;
#endif
