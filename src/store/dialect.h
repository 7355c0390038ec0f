/* SPDX-License-Identifier: MIT */
/*
 * Where MariaDB (10.6 to 12) and MySQL (8.0, 8.4, 9) differ: what permitd says to both in one way, and what only one of
 * them takes. What a mysql_errno means stands in session.c, the names of settings that doctor looks at in doctor.c.
 *
 * Every other statement of permitd is understood by all of them. It does without
 *
 *     MD5, SHA1                               not in MySQL 9; SHA2 is in all
 *     INSERT ... RETURNING, SEQUENCE          not in MySQL
 *     INSERT ... VALUES (...) AS new          not in MariaDB; VALUES(column) is in all
 *     FOR SHARE                               not in MariaDB; LOCK IN SHARE MODE is in all
 *     information_schema.GLOBAL_STATUS        not in MySQL; SHOW GLOBAL STATUS is in all
 *     @@tx_isolation, @@transaction_isolation neither in all; SHOW VARIABLES asks for both
 *     rank, groups, rows, system, lateral, manual, parallel, library, ...  reserved in one of them: no name of a column
 */
#ifndef STORE_DIALECT_H
#define STORE_DIALECT_H

/*
 * The name of a lock (GET_LOCK) that there is once for each database of a server. MySQL takes at most 64 characters,
 * whatever the database is called. In a session that has chosen its database.
 */
#define DIALECT_LOCK_NAME(purpose) "CONCAT('permitd." purpose ".',LEFT(SHA2(DATABASE(),256),32))"

/* --- settings of a session, beside those that both have (session.c) --- */

/* A list is bounded in rows as well; what takes longer than this has met a slow disk, or a lock on a whole table. */
#define DIALECT_LIST_MARIADB "SET SESSION max_statement_time = 5"
#define DIALECT_LIST_MYSQL   "SET SESSION max_execution_time = 5000"

/* Longer lists in IN (...) would become a join that scans. */
#define DIALECT_MARIADB        "SET SESSION in_predicate_conversion_threshold = 0"
/* MySQL has none; wait_timeout ends the connection there, and so the transaction. */
#define DIALECT_MARIADB_WORKER "SET SESSION idle_transaction_timeout = 5"

/*
 * "Requests are read plainly after those locks": on a node of a Galera cluster a plain read can lack what was
 * acknowledged through another one, as that is still in the queue of what is to be applied. 1: BEGIN and SELECT wait
 * until all that was committed anywhere before has been applied here. Without a cluster it does nothing; servers
 * that were built without Galera do not have it.
 */
#define DIALECT_CAUSAL_GALERA "SET SESSION wsrep_sync_wait = 1"

/*
 * The same on a new primary of a group of MySQL servers, which may be elected before it has applied all that the old
 * one has committed: what comes before that has to wait. Only servers with the plugin group_replication have it.
 */
#define DIALECT_CAUSAL_GROUP "SET SESSION group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'"
#endif
