/* SPDX-License-Identifier: MIT */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kit_process.h"
#include "loading.h"
#include "testkit.h"

#define COLUMNS                                                                                                        \
    "semaphore VARBINARY(255) NOT NULL, slot BIGINT UNSIGNED NOT NULL DEFAULT 0,"                                      \
    " resource VARBINARY(255) NOT NULL DEFAULT '', token BIGINT UNSIGNED NOT NULL"
#define TABLE "CREATE TABLE permit_fence (" COLUMNS ", PRIMARY KEY (semaphore, slot, resource))"

/* Objects that another user with all rights to the database creates before root loads the guard. */
static const struct trap {
    const char *script;
    const char *by_evil;
    const char *refused; /* part of the message */
} traps[] = {
    {"mariadb.sql",
     "CREATE TABLE mine (" COLUMNS ", PRIMARY KEY (semaphore, slot, resource));"
     "CREATE SQL SECURITY INVOKER VIEW permit_fence AS SELECT * FROM mine",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", "CREATE TABLE permit_fence (id INT)", "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE " ENGINE=MyISAM", "permit_fence is there, and is no such table"},
    {"mariadb.sql", "CREATE TABLE permit_fence (" COLUMNS ")", "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; ALTER TABLE permit_fence ADD UNIQUE KEY (token)",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql",
     "CREATE TABLE names (name VARBINARY(255) PRIMARY KEY) ENGINE=InnoDB;"
     "CREATE TABLE permit_fence (" COLUMNS ", PRIMARY KEY (semaphore, slot, resource),"
     " FOREIGN KEY (semaphore) REFERENCES names (name) ON DELETE CASCADE) ENGINE=InnoDB",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; ALTER TABLE permit_fence ADD CHECK (token < 10)",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; ALTER TABLE permit_fence ALTER slot SET DEFAULT 7",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; ALTER TABLE permit_fence MODIFY token BIGINT NOT NULL",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; ALTER TABLE permit_fence MODIFY semaphore VARBINARY(3) NOT NULL",
     "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE " PARTITION BY KEY (semaphore) PARTITIONS 2", "permit_fence is there, and is no such table"},
    {"mariadb.sql", TABLE "; CREATE TRIGGER gift BEFORE INSERT ON permit_fence FOR EACH ROW SET NEW.token = 1",
     "permit_fence has a trigger gift of evil@localhost"},
    {"mariadb.sql",
     "CREATE PROCEDURE permit_fence(a VARBINARY(256), b VARBINARY(12000), c BIGINT) SQL SECURITY INVOKER DO 0",
     "procedure permit_fence belongs to evil@localhost, not to root@localhost"},
    {"mariadb.sql", TABLE "; CREATE PROCEDURE permit_fence_raise_floor(a INT) DO 0",
     "procedure permit_fence_raise_floor belongs to evil@localhost"},
    {"mariadb-row.sql", "CREATE FUNCTION permit_fence_row(a INT) RETURNS INT DETERMINISTIC RETURN 0",
     "function permit_fence_row belongs to evil@localhost, not to root@localhost"},
};

static MYSQL *connect_as(const struct store *store, const char *user, const char *database)
{
    MYSQL *mysql = mysql_init(NULL);
    KIT_CHECK(mysql);
    if (!mysql_real_connect(mysql, NULL, user, NULL, database, 0, store->socket, CLIENT_MULTI_STATEMENTS))
        kit_fail("mariadb: %s: %s", user, mysql_error(mysql));
    return mysql;
}

/* Returns "00000" on success, else the SQLSTATE. Valid until the next call on this connection. */
static const char *state_of(MYSQL *mysql, const char *text)
{
    if (!mysql_real_query(mysql, text, strlen(text)))
        do {
            MYSQL_RES *result = mysql_store_result(mysql);
            mysql_free_result(result);
        } while (!mysql_next_result(mysql));
    return mysql_sqlstate(mysql);
}

static void state_is(MYSQL *mysql, const char *text, const char *expected)
{
    const char *state = state_of(mysql, text);
    if (strcmp(state, expected))
        kit_fail("mariadb: %s: %s instead of %s: %s", text, state, expected, mysql_error(mysql));
}

static void run_as(const struct store *store, const char *user, const char *database, const char *text)
{
    MYSQL *mysql = connect_as(store, user, database);
    state_is(mysql, text, "00000");
    mysql_close(mysql);
}

static long long number_of(const struct store *store, const char *database, const char *text)
{
    MYSQL *mysql = connect_as(store, "root", database);
    if (mysql_query(mysql, text))
        kit_fail("mariadb: %s: %s", text, mysql_error(mysql));
    MYSQL_RES *result = mysql_store_result(mysql);
    MYSQL_ROW row = mysql_fetch_row(result);
    long long number = row && row[0] ? strtoll(row[0], NULL, 10) : -1;
    mysql_free_result(result);
    mysql_close(mysql);
    return number;
}

/* The command that loads the script, as in the head of the file. The caller frees it. */
static char *command_of(const struct store *store, const char *script, const char *database)
{
    return kit_text("mariadb --no-defaults --user=root --socket='%s' %s < '%s/sql/guards/%s'", store->socket, database,
                    PERMIT_SOURCE_DIR, script);
}

static void must_load(const struct store *store, const char *script, const char *database)
{
    char *command = command_of(store, script, database);
    loading_must(command);
    free(command);
}

static const char routines_of_root[] = "SELECT COUNT(*) FROM information_schema.ROUTINES"
                                       " WHERE ROUTINE_SCHEMA = DATABASE() AND DEFINER = 'root@localhost'";

static void new_database(const struct store *store, const char *name)
{
    char *text = kit_text("DROP DATABASE IF EXISTS %s; CREATE DATABASE %s; GRANT ALL ON %s.* TO evil@localhost", name,
                          name, name);
    run_as(store, "root", NULL, text);
    free(text);
}

static void check_trap(const struct store *store, const struct trap *trap)
{
    char *command = command_of(store, trap->script, "trap");
    new_database(store, "trap");
    run_as(store, "evil", "trap", trap->by_evil);
    loading_must_refuse(command, trap->refused);
    if (number_of(store, "trap", routines_of_root))
        kit_fail("mariadb: '%s': a part of the guard was loaded", trap->refused);
    free(command);
}

/* Every mark is 57. loaded_again: it was so before, too. */
static void check_marks(MYSQL *app, bool loaded_again)
{
    if (loaded_again) {
        state_is(app, "CALL permit_fence('backups', '3', 56)", "PF001");
        state_is(app, "CALL permit_fence('backups', '2,4', 56)", "PF001");
        state_is(app, "CALL permit_fence_resource('backups', 'file', 56)", "PF001");
        state_is(app, "CALL permit_fence_floor('backups', 56)", "PF001");
        state_is(app, "CALL permit_fence_raise_floor('backups', 1)", "00000"); /* raises nothing */
        state_is(app, "CALL permit_fence_floor('backups', 56)", "PF001");
    }
    state_is(app, "CALL permit_fence('backups', '3,4', 57)", "00000");
    state_is(app, "CALL permit_fence_resource('backups', 'file', 57)", "00000");
    state_is(app, "CALL permit_fence_raise_floor('backups', 57)", "00000");
    state_is(app, "CALL permit_fence_floor('backups', 57)", "00000");
}

struct load {
    const struct store *store;
    const char *ended; /* a file that is there after it */
};

/* Returns true if the load has ended, or waits for the routine that a transaction has called. */
static bool has_ended_or_waits(void *context)
{
    const struct load *load = context;
    return access(load->ended, F_OK) == 0 ||
           number_of(load->store, "granted",
                     "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting%metadata lock'") >
               0;
}

/* A load while a transaction holds a new mark: it commits the mark, and a rollback leaves the one before. */
static void check_load_meanwhile(const struct store *store, MYSQL *app)
{
    static const struct {
        const char *end;
        const char *of_58; /* 57 is the mark before */
    } ends[] = {{"ROLLBACK", "00000"}, {"COMMIT", "PF001"}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        char *ended = kit_path("ended");
        char *command = command_of(store, "mariadb.sql", "granted");
        char *whole = kit_text("{ %s && echo loaded; } >'%s.new' 2>&1; mv '%s.new' '%s'", command, ended, ended, ended);
        state_is(app, "BEGIN; CALL permit_fence('backups', '3', 60)", "00000");
        FILE *loading = popen(whole, "r");
        KIT_CHECK(loading);
        KIT_CHECK(kit_wait_until(has_ended_or_waits, &(struct load){store, ended}, 60000));
        state_is(app, ends[i].end, "00000");
        KIT_CHECK(pclose(loading) == 0);
        char *printed = kit_read_file(ended);
        if (!printed || strcmp(printed, "loaded\n"))
            kit_fail("mariadb: a load beside a transaction: %s", printed ? printed : "");
        state_is(app, "CALL permit_fence('backups', '3', 58)", ends[i].of_58);
        free(printed);
        free(whole);
        free(command);
        free(ended);
    }
    state_is(app, "CALL permit_fence('backups', '3', 60)", "00000");
}

/* 42000: no right to the routine or the table. */
static void check_grants(const struct store *store)
{
    new_database(store, "granted");
    must_load(store, "mariadb.sql", "granted");
    run_as(store, "root", "granted",
           "GRANT EXECUTE ON PROCEDURE granted.permit_fence TO app@localhost;"
           "GRANT EXECUTE ON PROCEDURE granted.permit_fence_resource TO app@localhost;"
           "GRANT EXECUTE ON PROCEDURE granted.permit_fence_floor TO app@localhost;"
           "GRANT EXECUTE ON PROCEDURE granted.permit_fence_raise_floor TO app@localhost");
    MYSQL *app = connect_as(store, "app", "granted");
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            must_load(store, "mariadb.sql", "granted"); /* load again */
        check_marks(app, i > 0);
    }
    check_load_meanwhile(store, app);
    state_is(app, "UPDATE permit_fence SET token = 1", "42000");
    state_is(app, "SELECT token FROM permit_fence", "42000");
    mysql_close(app);
    /* After a restored dump without routines, loading keeps the table. */
    run_as(store, "root", "granted",
           "DROP PROCEDURE permit_fence; DROP PROCEDURE permit_fence_resource;"
           "DROP PROCEDURE permit_fence_floor; DROP PROCEDURE permit_fence_raise_floor");
    must_load(store, "mariadb.sql", "granted");
    if (number_of(store, "granted", "SELECT MAX(token) FROM permit_fence") != 60)
        kit_fail("mariadb: the marks are lost");
}

/* In a database of its own, the guard is called in transactions of another one, whose users cannot reach its objects. */
static void check_own_database(const struct store *store)
{
    new_database(store, "shop");
    run_as(store, "root", NULL, "DROP DATABASE IF EXISTS permit; CREATE DATABASE permit");
    must_load(store, "mariadb.sql", "permit");
    run_as(store, "root", NULL, "GRANT EXECUTE ON PROCEDURE permit.permit_fence TO evil@localhost");
    MYSQL *evil = connect_as(store, "evil", "shop");
    state_is(evil, "CREATE TABLE report (id INT PRIMARY KEY) ENGINE=InnoDB", "00000");
    state_is(evil, "BEGIN; CALL permit.permit_fence('backups', '3', 57); INSERT INTO report VALUES (1); COMMIT",
             "00000");
    state_is(evil, "CALL permit.permit_fence('backups', '3', 56)", "PF001");
    state_is(evil, "DROP TABLE permit.permit_fence", "42000");
    state_is(evil, "CREATE VIEW permit.other AS SELECT 1", "42000");
    state_is(evil, "CREATE TRIGGER permit.gift BEFORE INSERT ON permit.permit_fence FOR EACH ROW SET NEW.token = 1",
             "42000");
    state_is(evil, "DROP PROCEDURE permit.permit_fence", "42000");
    mysql_close(evil);
}

/* A trigger on a table. The writer has rights to that table only. */
static void check_row_grants(const struct store *store)
{
    must_load(store, "mariadb-row.sql", "granted");
    must_load(store, "mariadb-row.sql", "granted");
    run_as(store, "root", "granted",
           "CREATE TABLE report (id INT PRIMARY KEY, permit_token BIGINT UNSIGNED NOT NULL DEFAULT 0);"
           "INSERT INTO report VALUES (7, 0);"
           "CREATE TRIGGER report_permit_fence BEFORE UPDATE ON report FOR EACH ROW"
           " SET NEW.permit_token = IF(NEW.permit_token BETWEEN OLD.permit_token"
           " AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,"
           " NEW.permit_token, permit_fence_row('report', NEW.permit_token, OLD.permit_token));"
           "CREATE TRIGGER report_permit_fence_new BEFORE INSERT ON report FOR EACH ROW"
           " SET NEW.permit_token = IF(NEW.permit_token"
           " BETWEEN 0 AND (TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()) + 86400) * 1024000,"
           " NEW.permit_token, permit_fence_row('report', NEW.permit_token, NULL));"
           "GRANT SELECT, INSERT, UPDATE ON granted.report TO app@localhost;"
           "CREATE TABLE log (id INT PRIMARY KEY, permit_token BIGINT UNSIGNED NOT NULL DEFAULT 0);"
           "INSERT INTO log VALUES (7, 0);"
           "GRANT SELECT, UPDATE, TRIGGER ON granted.log TO app@localhost;"
           "GRANT EXECUTE ON FUNCTION granted.permit_fence_row TO app@localhost");
    MYSQL *app = connect_as(store, "app", "granted");
    /* A trigger of another user than the loader, which has the right to call the function. */
    state_is(app,
             "CREATE TRIGGER log_permit_fence BEFORE UPDATE ON log FOR EACH ROW SET NEW.permit_token ="
             " IF(NEW.permit_token >= OLD.permit_token, NEW.permit_token,"
             " permit_fence_row('log', NEW.permit_token, OLD.permit_token))",
             "00000");
    state_is(app, "UPDATE log SET permit_token = 57 WHERE id = 7", "00000");
    state_is(app, "UPDATE report SET permit_token = 57 WHERE id = 7", "00000");
    must_load(store, "mariadb-row.sql", "granted");
    state_is(app, "UPDATE log SET permit_token = 56 WHERE id = 7", "PF001");
    state_is(app, "UPDATE report SET permit_token = 56 WHERE id = 7", "PF001");
    state_is(app, "UPDATE report SET permit_token = 9007199254740991 WHERE id = 7", "PF002");
    state_is(app, "INSERT INTO report VALUES (8, 9007199254740991)", "PF002");
    state_is(app, "INSERT INTO report VALUES (8, 57)", "00000");
    mysql_close(app);
}

/* A name has one mark, in every character set of the connection. */
static void check_character_sets(const struct store *store)
{
    MYSQL *app = connect_as(store, "root", "granted");
    state_is(app, "SET NAMES utf8mb4", "00000");
    state_is(app, "CALL permit_fence_resource('pool', 'caf\xc3\xa9', 9)", "00000");
    state_is(app, "CALL permit_fence_raise_floor('p\xc3\xa9', 9)", "00000");
    state_is(app, "SET NAMES latin1", "00000");
    state_is(app, "CALL permit_fence_resource('pool', 'caf\xe9', 3)", "PF001");
    state_is(app, "CALL permit_fence_floor('p\xe9', 3)", "PF001");
    state_is(app, "CALL permit_fence_resource('pool', 'caf\xe9', 10)", "00000");
    state_is(app, "SET NAMES utf8mb4", "00000");
    state_is(app, "CALL permit_fence_resource('pool', x'636166c3a9', 9)", "PF001");
    state_is(app, "CALL permit_fence_resource('pool', 'CAF\xc3\x89', 1)", "00000"); /* equal means equal bytes */
    state_is(app, "CALL permit_fence_resource('pool', 'caf\xc3\xa9 ', 1)", "00000");
    state_is(app, "CALL permit_fence_resource('pool', 'cafe', 1)", "00000");
    state_is(app, "SET NAMES binary", "00000");
    state_is(app, "CALL permit_fence_resource('pool', 'caf\xc3\xa9', 9)", "PF001");
    /* The server refuses bytes that are not text. */
    if (!strcmp(state_of(app, "CALL permit_fence_resource('pool', x'636166e9', 99)"), "00000"))
        kit_fail("mariadb: bytes that are no text have passed");
    mysql_close(app);
}

void loading_mariadb(struct store *store)
{
    run_as(store, "root", NULL, "CREATE USER evil@localhost; CREATE USER app@localhost");
    for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++)
        check_trap(store, &traps[i]);
    check_grants(store);
    check_own_database(store);
    check_row_grants(store);
    check_character_sets(store);
    printf("mariadb    loading: %zu traps refused, grants kept\n", sizeof(traps) / sizeof(traps[0]));
}
