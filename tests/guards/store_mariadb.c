/* SPDX-License-Identifier: MIT */
/* MariaDB with sql/guards/mariadb.sql, through libmariadb. */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "loading.h"
#include "store_sql.h"
#include "testkit.h"

static void quote(char *to, size_t size, const char *name)
{
    size_t at = (size_t)snprintf(to, size, "x'");
    for (; *name && at + 4 < size; name++)
        at += (size_t)snprintf(to + at, size - at, "%02x", (unsigned)(unsigned char)*name);
    snprintf(to + at, size - at, "'");
}

static const struct sql_words words = {"CALL permit_fence",
                                       "CALL permit_fence_resource",
                                       "CALL permit_fence_floor",
                                       "CALL permit_fence_raise_floor",
                                       "ON DUPLICATE KEY UPDATE permit_token =",
                                       "BEGIN; ",
                                       "; COMMIT",
                                       "permit_fence",
                                       false,
                                       quote};

/* As in the head of mariadb-row.sql. */
#define TRIGGER                                                                                                        \
    "CREATE TRIGGER %s_permit_fence BEFORE UPDATE ON %s FOR EACH ROW"                                                  \
    " SET NEW.permit_token = IF(NEW.permit_token BETWEEN OLD.permit_token"                                             \
    " AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,"                                   \
    " NEW.permit_token, permit_fence_row('%s', NEW.permit_token, OLD.permit_token));"                                  \
    "CREATE TRIGGER %s_permit_fence_new BEFORE INSERT ON %s FOR EACH ROW"                                              \
    " SET NEW.permit_token = IF(NEW.permit_token"                                                                      \
    " BETWEEN 0 AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,"                         \
    " NEW.permit_token, permit_fence_row('%s', NEW.permit_token, NULL))"

static enum verdict judge(struct session *session)
{
    MYSQL *mysql = session->link;
    unsigned error = mysql_errno(mysql);
    snprintf(session->message, sizeof(session->message), "%s", mysql_error(mysql));
    if (!strcmp(mysql_sqlstate(mysql), "PF001"))
        return STALE;
    if (!strcmp(mysql_sqlstate(mysql), "PF002"))
        return INVALID;
    if (error == 1213 || error == 1205 || error == 1020)
        return AGAIN;
    if (error == 2006 || error == 2013 || error == 1927 || error == 4031)
        return LOST;
    kit_fail("mariadb: %u: %s", error, session->message);
}

static void finish(MYSQL *mysql)
{
    do {
        MYSQL_RES *result = mysql_store_result(mysql);
        mysql_free_result(result);
    } while (!mysql_next_result(mysql));
}

static enum verdict run(struct session *session, const char *text)
{
    MYSQL *mysql = session->link;
    if (mysql_real_query(mysql, text, strlen(text)))
        return judge(session);
    finish(mysql);
    return mysql_errno(mysql) ? judge(session) : PASSED;
}

static int64_t number(struct session *session, const char *text)
{
    MYSQL *mysql = session->link;
    if (mysql_query(mysql, text))
        kit_fail("mariadb: %s: %s", text, mysql_error(mysql));
    MYSQL_RES *result = mysql_store_result(mysql);
    MYSQL_ROW row = mysql_fetch_row(result);
    int64_t value = row && row[0] ? strtoll(row[0], NULL, 10) : 0;
    mysql_free_result(result);
    return value;
}

static void open_session(struct session *session)
{
    MYSQL *mysql = mysql_init(NULL);
    KIT_CHECK(mysql);
    if (!mysql_real_connect(mysql, NULL, "root", NULL, "permitd", 0, session->store->socket, CLIENT_MULTI_STATEMENTS))
        kit_fail("mariadb: %s", mysql_error(mysql));
    session->link = mysql;
}

static void close_session(struct session *session)
{
    mysql_close(session->link);
}

static size_t history(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens)
{
    char text[SQL_TEXT];
    MYSQL *mysql = session->link;
    snprintf(text, sizeof(text), "SELECT token FROM line WHERE semaphore = '%s' AND slot = %u ORDER BY number",
             semaphore, slot);
    KIT_CHECK(!mysql_query(mysql, text));
    MYSQL_RES *result = mysql_store_result(mysql);
    size_t count = mysql_num_rows(result);
    uint64_t *tokens = calloc(count + 1, sizeof(*tokens));
    KIT_CHECK(tokens);
    for (size_t i = 0; i < count; i++)
        tokens[i] = strtoull(mysql_fetch_row(result)[0], NULL, 10);
    mysql_free_result(result);
    *ret_tokens = tokens;
    return count;
}

/* information_schema.innodb_trx would show a state up to 100 ms old. */
static int64_t waiting(struct session *session)
{
    return number(session, "SELECT variable_value FROM information_schema.global_status "
                           "WHERE variable_name = 'innodb_row_lock_current_waits'");
}

/* The scripts use DELIMITER, which only the command line client understands. */
static void load(const struct store *store, const char *script)
{
    char command[1024];
    snprintf(command, sizeof(command), "mariadb --no-defaults --user=root --socket='%s' permitd < '%s/sql/guards/%s'",
             store->socket, PERMIT_SOURCE_DIR, script);
    for (int i = 0; i < 2; i++) /* loading again keeps the marks */
        if (system(command))
            kit_fail("mariadb: %s cannot be loaded", script);
}

static struct store *start(bool durable)
{
    /* A writer that is stopped inside a transaction must not keep its locks. */
    static const char *const common[] = {"--loose-idle-transaction-timeout=1", "--innodb-buffer-pool-size=512M",
                                         "--log-bin-trust-function-creators=1", NULL};
    static const char *const transient[] = {"--innodb-print-all-deadlocks=1",     "--loose-idle-transaction-timeout=1",
                                            "--innodb-buffer-pool-size=512M",     "--log-bin-trust-function-creators=1",
                                            "--innodb-flush-log-at-trx-commit=2", NULL};
    struct kit_database *database = kit_database_start(durable ? common : transient);
    struct store *store = calloc(1, sizeof(*store));
    struct session session;
    KIT_CHECK(store);
    store->kind = &store_mariadb;
    store->name = store->kind->name;
    store->server = database;
    store->pid = database->pid;
    store->socket = database->socket;
    load(store, "mariadb.sql");
    load(store, "mariadb-row.sql");
    session_open(&session, store);
    session_run(&session, "%s", SQL_TABLES);
    session_run(&session, TRIGGER, "last", "last", "last", "last", "last", "last");
    session_run(&session, TRIGGER, "fenced", "fenced", "fenced", "fenced", "fenced", "fenced");
    session_close(&session);
    return store;
}

static void stop(struct store *store)
{
    kit_database_stop(store->server);
    free(store);
}

const struct store_kind store_mariadb = {.name = "mariadb",
                                         .words = &words,
                                         .transactions = true,
                                         .start = start,
                                         .stop = stop,
                                         .open = open_session,
                                         .close = close_session,
                                         .guard = sql_guard,
                                         .write = sql_write,
                                         .write_in_steps = sql_write_in_steps,
                                         .update = sql_update,
                                         .history = history,
                                         .mark = sql_mark,
                                         .run = run,
                                         .waiting = waiting,
                                         .number = number,
                                         .check_loading = loading_mariadb};
