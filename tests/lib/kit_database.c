/* SPDX-License-Identifier: MIT */
/*
 * A MariaDB or MySQL of the test, and SQL on it. It uses no code of permitd, so that a test observes the database
 * independently. The only file of the kit that uses libmariadb.
 */
#include "kit_process.h"

#include <errno.h>
#include <fcntl.h>
#include <mysql.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INSTALL_MS = 180000, READY_MS = 180000, STOP_MS = 120000, ARGUMENTS_MAX = 48 };

struct kit_sql {
    MYSQL *mysql;
};

bool kit_database_is_mysql(void)
{
    const char *root = getenv("PERMIT_MYSQL_ROOT");
    return root && *root;
}

/* Returns the name of its program, for messages. */
static const char *server_name(void)
{
    return kit_database_is_mysql() ? "mysqld" : "mariadbd";
}

/* Copies the contents of the directory `from` to `to`, which is created. */
static void copy_directory(const struct kit_database *database, const char *from, const char *to)
{
    const char *const arguments[] = {"cp", "-R", "--preserve=mode", "--sparse=always", from, to, NULL};
    int status = kit_wait_pid(kit_spawn(arguments, -1, database->log_path), INSTALL_MS);
    if (status)
        kit_fail("cp -R %s ended with status 0x%x", from, (unsigned)status);
}

static void mariadb_install(struct kit_database *database)
{
    char *data = kit_text("--datadir=%s/data", database->directory);
    char *temporary = kit_text("--tmpdir=%s", database->directory);
    const char *arguments[] = {"mariadb-install-db",
                               "--no-defaults",
                               data,
                               temporary, /* servers on one host delete each other's temporary tables */
                               "--auth-root-authentication-method=normal",
                               "--skip-test-db",
                               "--skip-name-resolve",
                               "--force", /* the host name need not resolve */
                               geteuid() == 0 ? "--user=root" : NULL,
                               NULL};
    int status = kit_wait_pid(kit_spawn(arguments, -1, database->log_path), INSTALL_MS);
    if (status)
        kit_fail("mariadb-install-db ended with status 0x%x", (unsigned)status);
    free(temporary);
    free(data);
}

/* mysqld --initialize takes 10 s, so tests/mysql/root.sh has done it once. */
static void mysql_install(struct kit_database *database)
{
    char *from = kit_text("%s/var/lib/mysql-initial", getenv("PERMIT_MYSQL_ROOT"));
    char *data = kit_text("%s/data", database->directory);
    copy_directory(database, from, data);
    free(data);
    free(from);
}

static void database_install(struct kit_database *database)
{
    if (kit_database_is_mysql())
        mysql_install(database);
    else
        mariadb_install(database);
}

/* A growing list of arguments. It is zeroed at first, so it always ends with NULL. */
struct arguments {
    const char *list[ARGUMENTS_MAX + 1];
    size_t count;
};

static void arguments_add(struct arguments *arguments, const char *const *more)
{
    for (; more && *more && arguments->count < ARGUMENTS_MAX; more++)
        arguments->list[arguments->count++] = *more;
}

static void widen_path(void)
{
    const char *path = getenv("PATH");
    char *wider = kit_text("%s:/usr/sbin:/usr/local/sbin", path ? path : "/usr/bin:/bin");
    setenv("PATH", wider, 1);
    free(wider);
}

static void database_spawn(struct kit_database *database)
{
    char *clock = kit_text("PERMIT_CLOCK_FILE=%s", database->clock_path ? database->clock_path : "");
    char *data = kit_text("--datadir=%s/data", database->directory);
    char *socket = kit_text("--socket=%s", database->socket);
    char *socket_lock = kit_text("%s.lock", database->socket);
    char *pid_file = kit_text("--pid-file=%s/mariadb.pid", database->directory);
    char *temporary = kit_text("--tmpdir=%s", database->directory);
    char *disk = kit_text("PERMIT_DISK_FILE=%s", database->disk_path ? database->disk_path : "");
    /* env executes the server in the same process. */
    const char *const shifted[] = {"env", "LD_PRELOAD=" PERMIT_CLOCK_SHIM, clock, NULL};
    const char *const shimmed[] = {"env", "LD_PRELOAD=" PERMIT_CLOCK_SHIM ":" PERMIT_DISK_SHIM, clock, disk, NULL};
    const char *const plain_writes[] = {"--innodb-use-native-aio=0", NULL}; /* the shim sees only plain writes */
    const char *const mariadb[] = {"mariadbd", "--no-defaults", NULL};
    const char *const mysql[] = {PERMIT_SOURCE_DIR "/tests/mysql/mysqld", "--no-defaults", "--secure-file-priv=NULL",
                                 "--mysqlx=OFF", NULL};
    const char *const own[] = {data,
                               socket,
                               pid_file,
                               temporary,
                               "--skip-networking",
                               "--skip-name-resolve",
                               "--character-set-server=utf8mb4",
                               "--innodb-buffer-pool-size=128M",
                               "--innodb-flush-log-at-trx-commit=1",
                               "--max-connections=600",
                               geteuid() == 0 ? "--user=root" : "--skip-symbolic-links",
                               NULL};
    struct arguments arguments = {.count = 0};
    arguments_add(&arguments, database->disk_path ? shimmed : database->clock_path ? shifted : NULL);
    arguments_add(&arguments, kit_database_is_mysql() ? mysql : mariadb);
    arguments_add(&arguments, own);
    arguments_add(&arguments, database->disk_path ? plain_writes : NULL);
    arguments_add(&arguments, database->flags);
    widen_path();
    unlink(socket_lock); /* the pid of a killed mysqld may belong to another process now */
    database->pid = kit_spawn(arguments.list, -1, database->log_path);
    free(clock);
    free(disk);
    free(data);
    free(socket);
    free(pid_file);
    free(socket_lock);
    free(temporary);
}

static MYSQL *try_connect(const char *socket, const char *database)
{
    MYSQL *mysql = mysql_init(NULL);
    KIT_CHECK(mysql);
    if (mysql_real_connect(mysql, NULL, "root", NULL, database, 0, socket, 0))
        return mysql;
    mysql_close(mysql);
    return NULL;
}

static bool database_answers(void *context)
{
    struct kit_database *database = context;
    int status;
    if (waitpid(database->pid, &status, WNOHANG) == database->pid)
        kit_fail("%s ended with status 0x%x before it answered", server_name(), (unsigned)status);
    MYSQL *mysql = try_connect(database->socket, NULL);
    if (mysql)
        mysql_close(mysql);
    return mysql != NULL;
}

bool kit_database_has_ended(struct kit_database *database)
{
    int status;
    if (database->pid && waitpid(database->pid, &status, WNOHANG) == database->pid)
        database->pid = 0;
    return !database->pid;
}

static bool database_answers_or_ended(void *context)
{
    struct kit_database *database = context;
    MYSQL *mysql = kit_database_has_ended(database) ? NULL : try_connect(database->socket, NULL);
    if (mysql)
        mysql_close(mysql);
    return !database->pid || mysql;
}

static struct kit_database *database_new(const char *const *flags)
{
    struct kit_database *database = calloc(1, sizeof(*database));
    KIT_CHECK(database);
    database->directory = kit_path("mariadb");
    database->log_path = kit_text("%s/mariadb.log", database->directory);
    database->socket = kit_text("%s/s", database->directory);
    database->url = kit_text("mysql://root@/permitd?socket=%s", database->socket);
    database->flags = flags;
    KIT_CHECK(!mkdir(database->directory, 0700));
    return database;
}

/* A node of a cluster answers for a moment before it is ready, and may then end these connections. */
static bool database_takes_writes(void *context)
{
    const struct kit_database *database = context;
    struct kit_sql *sql = kit_sql_try_open(database->socket, NULL);
    bool written = sql && kit_sql_try(sql, "CREATE DATABASE IF NOT EXISTS permitd") == 0;
    kit_sql_close(sql);
    return written;
}

static struct kit_database *database_make(struct kit_database *database)
{
    database_install(database);
    kit_database_restart(database);
    if (!kit_wait_until(database_takes_writes, database, READY_MS))
        kit_fail("%s does not make a database", server_name());
    return database;
}

struct kit_database *kit_database_start(const char *const *flags)
{
    return database_make(database_new(flags));
}

/* Creates a file of one number, mapped by a shim in the server. */
static _Atomic int64_t *map_number(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    KIT_CHECK(fd >= 0 && !ftruncate(fd, sizeof(int64_t)));
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    KIT_CHECK(map != MAP_FAILED);
    close(fd);
    return map;
}

static void unmap_number(_Atomic int64_t *number)
{
    if (number)
        munmap((void *)(uintptr_t)number, sizeof(*number));
}

static struct kit_database *database_new_shifted(const char *const *flags)
{
    struct kit_database *database = database_new(flags);
    database->clock_path = kit_text("%s/clock", database->directory);
    database->clock_shift_us = map_number(database->clock_path);
    return database;
}

struct kit_database *kit_database_start_shifted(const char *const *flags)
{
    return database_make(database_new_shifted(flags));
}

struct kit_database *kit_database_start_shimmed(const char *const *flags)
{
    struct kit_database *database = database_new_shifted(flags);
    database->disk_path = kit_text("%s/disk", database->directory);
    database->disk = map_number(database->disk_path);
    return database_make(database);
}

void kit_database_set_disk(struct kit_database *database, enum kit_disk disk)
{
    KIT_CHECK(database->disk);
    atomic_store(database->disk, disk);
}

struct kit_database *kit_database_copy(const struct kit_database *of, const char *const *flags)
{
    KIT_CHECK(!of->pid);
    struct kit_database *database = database_new(flags);
    char *from = kit_text("%s/data", of->directory);
    char *to = kit_text("%s/data", database->directory);
    char *identity = kit_text("%s/auto.cnf", to); /* the identity of a MySQL server */
    copy_directory(database, from, to);
    unlink(identity);
    free(identity);
    free(to);
    free(from);
    return database;
}

void kit_database_step_clock(struct kit_database *database, int64_t us)
{
    KIT_CHECK(database->clock_shift_us);
    atomic_fetch_add(database->clock_shift_us, us);
}

void kit_database_freeze(struct kit_database *database)
{
    KIT_CHECK(database->pid);
    kit_freeze(database->pid);
}

void kit_database_thaw(struct kit_database *database)
{
    KIT_CHECK(database->pid && !kill(database->pid, SIGCONT));
}

void kit_database_kill(struct kit_database *database)
{
    kill(database->pid, SIGKILL);
    if (kit_wait_pid(database->pid, STOP_MS) == -1)
        kit_fail("%s survives SIGKILL", server_name());
    database->pid = 0;
}

void kit_database_await_end(struct kit_database *database)
{
    if (kit_wait_pid(database->pid, STOP_MS) == -1)
        kit_fail("%s does not end", server_name());
    database->pid = 0;
}

void kit_database_restart(struct kit_database *database)
{
    database_spawn(database);
    if (!kit_wait_until(database_answers, database, READY_MS))
        kit_fail("%s does not answer", server_name());
}

void kit_database_become_another(struct kit_database *database)
{
    kit_database_kill(database);
    if (kit_database_is_mysql()) { /* it creates another server_uuid */
        char *identity = kit_text("%s/data/auto.cnf", database->directory);
        KIT_CHECK(!unlink(identity));
        free(identity);
    }
    kit_database_restart(database);
    struct kit_sql *sql = kit_sql_open(database->socket, NULL);
    kit_sql_run(sql, "SET GLOBAL server_id = 77");
    kit_sql_close(sql);
}

bool kit_database_revive(struct kit_database *database)
{
    if (!kit_wait_until(database_answers_or_ended, database, READY_MS))
        kit_fail("%s neither answers nor ends", server_name());
    bool ended = !database->pid;
    if (ended)
        kit_database_restart(database);
    return ended;
}

void kit_database_stop(struct kit_database *database)
{
    if (!database)
        return;
    if (database->pid) {
        kill(database->pid, SIGTERM);
        if (kit_wait_pid(database->pid, STOP_MS) == -1)
            kit_fail("%s does not stop", server_name());
    }
    unmap_number(database->clock_shift_us);
    unmap_number(database->disk);
    free(database->clock_path);
    free(database->disk_path);
    free(database->directory);
    free(database->log_path);
    free(database->socket);
    free(database->url);
    free(database);
}

struct kit_sql *kit_sql_try_open(const char *socket, const char *database)
{
    MYSQL *mysql = try_connect(socket, database);
    if (!mysql)
        return NULL;
    struct kit_sql *sql = calloc(1, sizeof(*sql));
    KIT_CHECK(sql);
    sql->mysql = mysql;
    return sql;
}

struct kit_sql *kit_sql_open(const char *socket, const char *database)
{
    struct kit_sql *sql = kit_sql_try_open(socket, database);
    if (!sql)
        kit_fail("cannot connect to %s", socket);
    return sql;
}

void kit_sql_close(struct kit_sql *sql)
{
    if (!sql)
        return;
    mysql_close(sql->mysql);
    free(sql);
}

/* Returns the text of the statement; the caller frees it. */
static char *statement_text(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    return text;
}

/* Runs the statement and discards its rows. */
static unsigned sql_try(struct kit_sql *sql, const char *text)
{
    if (mysql_query(sql->mysql, text))
        return mysql_errno(sql->mysql);
    mysql_free_result(mysql_store_result(sql->mysql));
    return mysql_errno(sql->mysql);
}

unsigned kit_sql_try(struct kit_sql *sql, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = statement_text(format, arguments);
    va_end(arguments);
    unsigned error = sql_try(sql, text);
    free(text);
    return error;
}

bool kit_sql_send(struct kit_sql *sql, const char *statement)
{
    return !mysql_send_query(sql->mysql, statement, strlen(statement));
}

unsigned kit_sql_receive(struct kit_sql *sql)
{
    if (mysql_read_query_result(sql->mysql))
        return mysql_errno(sql->mysql);
    mysql_free_result(mysql_store_result(sql->mysql));
    return mysql_errno(sql->mysql);
}

const char *kit_sql_message(struct kit_sql *sql)
{
    return mysql_error(sql->mysql);
}

void kit_sql_run(struct kit_sql *sql, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = statement_text(format, arguments);
    va_end(arguments);
    if (sql_try(sql, text))
        kit_fail("%.300s: %s", text, mysql_error(sql->mysql));
    free(text);
}

size_t kit_sql_each(struct kit_sql *sql, const char *statement, void (*visit)(void *context, char **columns),
                    void *context)
{
    MYSQL_RES *result = mysql_query(sql->mysql, statement) ? NULL : mysql_store_result(sql->mysql);
    if (!result)
        kit_fail("%.300s: %s", statement, mysql_error(sql->mysql));
    size_t count = 0;
    for (MYSQL_ROW row; (row = mysql_fetch_row(result)); count++)
        visit(context, row);
    mysql_free_result(result);
    return count;
}

bool kit_sql_try_each(struct kit_sql *sql, const char *statement, void (*visit)(void *context, char **columns),
                      void *context)
{
    MYSQL_RES *result = mysql_query(sql->mysql, statement) ? NULL : mysql_store_result(sql->mysql);
    for (MYSQL_ROW row; result && (row = mysql_fetch_row(result));)
        visit(context, row);
    mysql_free_result(result);
    return result != NULL;
}

struct first_number {
    bool seen;
    int64_t value;
};

static void take_first(void *context, char **columns)
{
    struct first_number *first = context;
    if (!first->seen && columns[0])
        first->value = strtoll(columns[0], NULL, 10);
    first->seen = true;
}

int64_t kit_sql_number(struct kit_sql *sql, const char *format, ...)
{
    struct first_number first = {.value = INT64_MIN};
    va_list arguments;
    va_start(arguments, format);
    char *text = statement_text(format, arguments);
    va_end(arguments);
    kit_sql_each(sql, text, take_first, &first);
    free(text);
    return first.value;
}

void kit_sql_make_numbers(struct kit_sql *sql)
{
    kit_sql_run(sql, "CREATE DATABASE numbers");
    kit_sql_run(sql, "CREATE TABLE numbers.upto (seq INT NOT NULL PRIMARY KEY)");
    kit_sql_run(sql, "INSERT INTO numbers.upto SELECT seq FROM JSON_TABLE(CONCAT('[0', REPEAT(',0', 49999), ']'),"
                     " '$[*]' COLUMNS (seq FOR ORDINALITY)) AS list");
}

int64_t kit_sql_lock_waits(struct kit_sql *sql, const char *database)
{
    if (kit_database_is_mysql())
        return kit_sql_number(sql,
                              "SELECT COUNT(*) FROM performance_schema.data_locks"
                              " WHERE OBJECT_SCHEMA = '%s' AND LOCK_STATUS = 'WAITING'",
                              database);
    /* MariaDB does not refresh its copy of innodb_trx while several sessions query it all the time. */
    return kit_sql_number(sql,
                          "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '%s' AND command = 'Query'"
                          " AND time_ms > 200 AND id <> CONNECTION_ID()",
                          database);
}
