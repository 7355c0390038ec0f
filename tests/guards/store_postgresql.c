/* SPDX-License-Identifier: MIT */
/* PostgreSQL with sql/guards/postgresql.sql, through libpq. It refuses to run as root, so root runs it as postgres. */
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit_process.h"
#include "loading.h"
#include "store_sql.h"
#include "testkit.h"

enum { READY_MS = 60000, STOP_MS = 30000, INSTALL_MS = 120000 };

static void quote(char *to, size_t size, const char *name)
{
    size_t at = (size_t)snprintf(to, size, "'");
    for (; *name && at + 3 < size; name++) {
        if (*name == '\'')
            to[at++] = '\'';
        to[at++] = *name;
    }
    snprintf(to + at, size - at, "'");
}

/* All statements of one query are one transaction. */
static const struct sql_words words = {"SELECT permit.fence",
                                       "SELECT permit.fence_resource",
                                       "SELECT permit.fence_floor",
                                       "SELECT permit.raise_floor",
                                       "ON CONFLICT (semaphore, slot) DO UPDATE SET permit_token =",
                                       "",
                                       "",
                                       "permit.fence",
                                       true,
                                       quote};

/* As in the head of postgresql.sql. */
#define TRIGGER                                                                                                        \
    "CREATE TRIGGER permit_fence BEFORE UPDATE ON %s FOR EACH ROW"                                                     \
    " WHEN ((NEW.permit_token BETWEEN OLD.permit_token AND permit.fence_limit()) IS NOT TRUE)"                         \
    " EXECUTE FUNCTION permit.fence_row();"                                                                            \
    "CREATE TRIGGER permit_fence_new BEFORE INSERT ON %s FOR EACH ROW"                                                 \
    " WHEN ((NEW.permit_token BETWEEN 0 AND permit.fence_limit()) IS NOT TRUE) EXECUTE FUNCTION permit.fence_row()"

static enum verdict judge(struct session *session, const PGresult *result)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    snprintf(session->message, sizeof(session->message), "%s", PQerrorMessage(session->link));
    if (PQstatus(session->link) == CONNECTION_BAD || !state)
        return LOST;
    if (!strcmp(state, "PF001"))
        return STALE;
    if (!strcmp(state, "PF002"))
        return INVALID;
    if (!strcmp(state, "40001") || !strcmp(state, "40P01") || !strcmp(state, "55P03"))
        return AGAIN;
    if (!strcmp(state, "25P03") || !strncmp(state, "57P", 3))
        return LOST;
    kit_fail("postgresql: %s: %s", state, session->message);
}

static enum verdict run(struct session *session, const char *text)
{
    PGresult *result = PQexec(session->link, text);
    ExecStatusType status = PQresultStatus(result);
    enum verdict verdict = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? PASSED : judge(session, result);
    PQclear(result);
    return verdict;
}

static int64_t number(struct session *session, const char *text)
{
    PGresult *result = PQexec(session->link, text);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        kit_fail("postgresql: %s: %s", text, PQerrorMessage(session->link));
    int64_t value = PQntuples(result) ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return value;
}

static void ignore_notice(void *context, const char *message)
{
    (void)context, (void)message;
}

static PGconn *connect_to(const struct store *store, const char *database)
{
    char *conninfo = kit_text("host='%s' user=postgres dbname=%s", store->socket, database);
    PGconn *connection = PQconnectdb(conninfo);
    free(conninfo);
    PQsetNoticeProcessor(connection, ignore_notice, NULL);
    return connection;
}

static void open_session(struct session *session)
{
    session->link = connect_to(session->store, "shop");
    if (PQstatus(session->link) != CONNECTION_OK)
        kit_fail("postgresql: %s", PQerrorMessage(session->link));
}

static void close_session(struct session *session)
{
    PQfinish(session->link);
}

static size_t history(struct session *session, const char *semaphore, unsigned slot, uint64_t **ret_tokens)
{
    char text[SQL_TEXT];
    snprintf(text, sizeof(text), "SELECT token FROM line WHERE semaphore = '%s' AND slot = %u ORDER BY number",
             semaphore, slot);
    PGresult *result = PQexec(session->link, text);
    KIT_CHECK(PQresultStatus(result) == PGRES_TUPLES_OK);
    size_t count = (size_t)PQntuples(result);
    uint64_t *tokens = calloc(count + 1, sizeof(*tokens));
    KIT_CHECK(tokens);
    for (size_t i = 0; i < count; i++)
        tokens[i] = strtoull(PQgetvalue(result, (int)i, 0), NULL, 10);
    PQclear(result);
    *ret_tokens = tokens;
    return count;
}

static int64_t waiting(struct session *session)
{
    return number(session, "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
}

/* ---- the server ---- */

/* The newest /usr/lib/postgresql/N/bin (Debian), else PATH. */
static const char *programs(void)
{
    static char directory[64];
    for (int version = 30; version >= 10 && !directory[0]; version--) {
        snprintf(directory, sizeof(directory), "/usr/lib/postgresql/%d/bin/", version);
        if (access(directory, X_OK))
            directory[0] = 0;
    }
    return directory;
}

/* Runs it as the user postgres if this process is root. It is a child of this process and dies with it. */
static pid_t spawn(const struct store *store, const char *program, const char *const *arguments)
{
    const char *const drop[] = {"setpriv",        "--reuid=postgres", "--regid=postgres",
                                "--clear-groups", "--pdeathsig=KILL", NULL};
    const char *argv[32];
    size_t count = 0;
    char *path = kit_text("%s%s", programs(), program);
    char *log = kit_text("%s/log", store->directory);
    for (size_t i = 0; geteuid() == 0 && drop[i]; i++)
        argv[count++] = drop[i];
    argv[count++] = path;
    while (*arguments && count < 31)
        argv[count++] = *arguments++;
    argv[count] = NULL;
    pid_t pid = kit_spawn(argv, -1, log);
    free(path);
    free(log);
    return pid;
}

static void make_directory(const struct store *store)
{
    struct passwd *user = getpwnam("postgres");
    KIT_CHECK(!mkdir(store->directory, 0700));
    if (geteuid())
        return;
    if (!user)
        kit_fail("postgresql: no user postgres, and it does not run as root");
    KIT_CHECK(!chown(store->directory, user->pw_uid, user->pw_gid) && !chmod(kit_directory(), 0711));
}

static void install(const struct store *store, const char *data)
{
    const char *const arguments[] = {
        "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata", data, NULL};
    int status = kit_wait_pid(spawn(store, "initdb", arguments), INSTALL_MS);
    if (status)
        kit_fail("postgresql: initdb ended with status 0x%x", (unsigned)status);
}

static bool answers(void *context)
{
    struct store *store = context;
    PGconn *connection = connect_to(store, "postgres");
    bool connected = PQstatus(connection) == CONNECTION_OK;
    PQfinish(connection);
    return connected;
}

static void run_file(struct session *session, const char *name)
{
    char *path = kit_text("%s/sql/guards/%s", PERMIT_SOURCE_DIR, name);
    char *text = kit_read_file(path);
    KIT_CHECK(text);
    for (int i = 0; i < 2; i++) /* loading again keeps the marks */
        session_run(session, "%s", text);
    free(text);
    free(path);
}

static void make_shop(struct store *store)
{
    struct session session = {.store = store, .link = connect_to(store, "postgres")};
    session_run(&session, "CREATE DATABASE shop");
    session_close(&session);
    session_open(&session, store);
    run_file(&session, "postgresql.sql");
    session_run(&session, "%s", SQL_TABLES);
    session_run(&session, TRIGGER, "last", "last");
    session_run(&session, TRIGGER, "fenced", "fenced");
    session_close(&session);
}

static struct store *start(bool durable)
{
    struct store *store = calloc(1, sizeof(*store));
    KIT_CHECK(store);
    store->kind = &store_postgresql;
    store->name = store->kind->name;
    store->directory = kit_path("postgresql");
    store->socket = store->directory;
    make_directory(store);
    char *data = kit_text("%s/data", store->directory);
    install(store, data);
    const char *const arguments[] = {"-D", data,
                                     "-k", store->directory,
                                     "-c", "listen_addresses=",
                                     "-c", "max_connections=200",
                                     "-c", "idle_in_transaction_session_timeout=1s",
                                     "-c", "shared_buffers=128MB",
                                     "-c", durable ? "synchronous_commit=on" : "synchronous_commit=off",
                                     NULL};
    store->pid = spawn(store, "postgres", arguments);
    if (!kit_wait_until(answers, store, READY_MS))
        kit_fail("postgresql does not answer");
    free(data);
    make_shop(store);
    return store;
}

static void stop(struct store *store)
{
    kill(store->pid, SIGINT); /* fast and clean shutdown */
    if (kit_wait_pid(store->pid, STOP_MS) == -1)
        kit_fail("postgresql does not stop");
    free(store->directory);
    free(store);
}

const struct store_kind store_postgresql = {.name = "postgresql",
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
                                            .check_loading = loading_postgresql};
