/* SPDX-License-Identifier: MIT */
/*
 * Differences between MariaDB (10.6 to 12) and MySQL (8.0, 8.4, 9): SQL that is written so that both accept it, and
 * settings that only one of them has. Error numbers are in mysql_session.c, the settings that doctor checks in
 * doctor.c.
 *
 * Every other statement of permitd runs on all of these versions. permitd does not use
 *
 *     MD5, SHA1                               not in MySQL 9; SHA2 is in all
 *     INSERT ... RETURNING, SEQUENCE          not in MySQL
 *     INSERT ... VALUES (...) AS new          not in MariaDB; VALUES(column) is in all
 *     FOR SHARE                               not in MariaDB; LOCK IN SHARE MODE is in all
 *     information_schema.GLOBAL_STATUS        not in MySQL (the doctor uses it on MariaDB); SHOW GLOBAL STATUS is in all
 *     @@tx_isolation, @@transaction_isolation neither in all; SHOW VARIABLES names both
 *     rank, groups, rows, system, lateral, manual, parallel, library, ...  reserved in one of them: no column has these
 */
#ifndef STORE_DIALECT_H
#define STORE_DIALECT_H

/*
 * SQL expression: the name of a named lock (GET_LOCK) that is unique per database of a server. MySQL accepts at most 64
 * characters; the hash keeps the name short for any database name. The session must have a current database.
 */
#define DIALECT_LOCK_NAME(purpose) "CONCAT('permitd." purpose ".',LEFT(SHA2(DATABASE(),256),32))"

/*
 * Before an UPDATE or DELETE: it does not wait for a row lock. MySQL, for which this is a comment, needs a SELECT ... FOR
 * UPDATE NOWAIT before it; that costs three times as much.
 */
#define DIALECT_NOWAIT "/*M! SET STATEMENT innodb_lock_wait_timeout=0 FOR */ "

/* --- session settings that only one server has; mysql_session.c has the common ones --- */

/* Time limit of a list, 5 s. Lists are bounded in rows too: only a slow disk or a table lock makes one take longer. */
#define DIALECT_LIST_MARIADB "SET SESSION max_statement_time = 5"
#define DIALECT_LIST_MYSQL   "SET SESSION max_execution_time = 5000"

/* Keeps a long IN (...) list a range read. By default MariaDB converts it into a join that scans the table. */
#define DIALECT_MARIADB        "SET SESSION in_predicate_conversion_threshold = 0"
/* Ends an idle transaction after 5 s. MySQL has no such setting; there wait_timeout ends connection and transaction. */
#define DIALECT_MARIADB_WORKER "SET SESSION idle_transaction_timeout = 5"

/*
 * Makes plain reads on a Galera node see every transaction that was acknowledged through another node, which may still
 * be in the apply queue of this one. 1: BEGIN and SELECT wait until the node has applied all transactions committed
 * before. No effect without a cluster. Servers built without Galera do not have the setting.
 */
#define DIALECT_CAUSAL_GALERA "SET SESSION wsrep_sync_wait = 1"

/*
 * The same for MySQL group replication: a new primary can be elected before it has applied all transactions of the old
 * one. Statements wait until it has. Only servers with the plugin group_replication have the setting.
 */
#define DIALECT_CAUSAL_GROUP "SET SESSION group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'"

/*
 * SQL expression: a time of information_schema.INNODB_TRX in UTC. MySQL has it in the time zone of its process, MariaDB
 * in that of the session, which is UTC. Which rows are locked: locks.c.
 */
#define DIALECT_TRX_TIME_MARIADB(column) column
#define DIALECT_TRX_TIME_MYSQL(column)   "CONVERT_TZ(" column ",'SYSTEM','+00:00')"
#endif
