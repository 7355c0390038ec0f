/* SPDX-License-Identifier: MIT */
#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit_process.h"
#include "loading.h"
#include "testkit.h"

#define TABLE                                                                                                          \
    "CREATE TABLE permit.fence (semaphore text COLLATE \"C\" NOT NULL, slot bigint NOT NULL DEFAULT 0,"                \
    " resource text COLLATE \"C\" NOT NULL DEFAULT '', token bigint NOT NULL,"                                         \
    " PRIMARY KEY (semaphore, slot, resource));"
#define GIFT "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE evil SUPERUSER; RETURN NEW; END $$;"

/* Objects in a database before a superuser loads the guard. */
static const struct trap {
    const char *by_superuser; /* NULL: nothing; "": the guard, loaded */
    const char *by_evil;
    const char *refused; /* part of the message */
} traps[] = {
    {NULL, "CREATE SCHEMA permit", "the schema permit belongs to evil"},
    {NULL,
     "CREATE SCHEMA permit; GRANT ALL ON SCHEMA permit TO PUBLIC;" TABLE "CREATE FUNCTION permit.gift" GIFT
     "CREATE TRIGGER gift BEFORE INSERT ON permit.fence FOR EACH ROW EXECUTE FUNCTION permit.gift()",
     "belongs to evil"},
    {"CREATE SCHEMA permit; GRANT ALL ON SCHEMA permit TO evil",
     TABLE "CREATE FUNCTION permit.gift" GIFT
           "CREATE TRIGGER gift BEFORE INSERT ON permit.fence FOR EACH ROW EXECUTE FUNCTION permit.gift()",
     "permit.fence belongs to evil"},
    {"CREATE SCHEMA permit; GRANT ALL ON SCHEMA permit TO evil",
     "CREATE FUNCTION permit.fence_stale(semaphore text, place text, token bigint, newer bigint) RETURNS boolean"
     " LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$",
     "permit.fence_stale(text,text,bigint,bigint) belongs to evil"},
    {"CREATE SCHEMA permit; GRANT ALL ON SCHEMA permit TO evil", "CREATE TYPE permit.mark AS (a int)",
     "permit.mark belongs to evil"},
    {"",
     "CREATE SCHEMA mine; CREATE FUNCTION mine.gift" GIFT
     "CREATE TRIGGER gift BEFORE INSERT ON permit.fence FOR EACH ROW EXECUTE FUNCTION mine.gift()",
     "permit.fence has a trigger, gift"},
    /* the trigger's function belongs to the loader, that of its condition does not */
    {"",
     "CREATE SCHEMA mine; CREATE FUNCTION mine.gift() RETURNS boolean LANGUAGE plpgsql AS"
     " $$ BEGIN ALTER ROLE evil SUPERUSER; RETURN false; END $$;"
     "CREATE TRIGGER gift BEFORE INSERT OR UPDATE ON permit.fence FOR EACH ROW WHEN (mine.gift())"
     " EXECUTE FUNCTION permit.fence_row()",
     "permit.fence has a trigger, gift"},
    /* rights with which a user could create such objects at any time later */
    {"", "SELECT 1", "evil has the right TRIGGER on permit.fence"},
    {"CREATE SCHEMA permit; GRANT ALL ON SCHEMA permit TO PUBLIC", "SELECT 1",
     "PUBLIC has the right CREATE on the schema permit"},
};

static PGconn *connect_as(const struct store *store, const char *user, const char *database)
{
    char *conninfo = kit_text("host='%s' user=%s dbname=%s", store->socket, user, database);
    PGconn *connection = PQconnectdb(conninfo);
    if (PQstatus(connection) != CONNECTION_OK)
        kit_fail("postgresql: %s: %s", conninfo, PQerrorMessage(connection));
    free(conninfo);
    return connection;
}

/* Returns "" on success, else the SQLSTATE. Valid until the next call. */
static const char *state_of(PGconn *connection, const char *text)
{
    static char state[8];
    PGresult *result = PQexec(connection, text);
    const char *field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof(state), "%s", field ? field : "");
    PQclear(result);
    return state;
}

static void run_as(const struct store *store, const char *user, const char *database, const char *text)
{
    PGconn *connection = connect_as(store, user, database);
    if (*state_of(connection, text))
        kit_fail("postgresql: %s: %s: %s", user, text, PQerrorMessage(connection));
    PQfinish(connection);
}

static bool is_true(const struct store *store, const char *database, const char *condition)
{
    PGconn *connection = connect_as(store, "postgres", database);
    char *text = kit_text("SELECT %s", condition);
    PGresult *result = PQexec(connection, text);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        kit_fail("postgresql: %s: %s", text, PQerrorMessage(connection));
    bool answer = !strcmp(PQgetvalue(result, 0, 0), "t");
    PQclear(result);
    PQfinish(connection);
    free(text);
    return answer;
}

/* The psql command that loads the script, as in the head of the file. The caller frees it. */
static char *command_of(const struct store *store, const char *user, const char *database)
{
    return kit_text("PGOPTIONS='-c client_min_messages=warning' psql -X -v ON_ERROR_STOP=1 -h '%s' -U %s -d %s"
                    " -f '%s/sql/guards/postgresql.sql'",
                    store->socket, user, database, PERMIT_SOURCE_DIR);
}

static void must_load(const struct store *store, const char *user, const char *database)
{
    char *command = command_of(store, user, database);
    loading_must(command);
    free(command);
}

static void must_refuse(const struct store *store, const char *user, const char *database, const char *part)
{
    char *command = command_of(store, user, database);
    loading_must_refuse(command, part);
    free(command);
}

static void new_database(const struct store *store, const char *name)
{
    char *text = kit_text("CREATE DATABASE %s", name);
    run_as(store, "postgres", "postgres", text);
    free(text);
    text = kit_text("GRANT CREATE ON DATABASE %s TO evil, keeper", name);
    run_as(store, "postgres", "postgres", text);
    free(text);
}

static const char functions_of_postgres[] =
    "EXISTS (SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
    " WHERE n.nspname = 'permit' AND pg_get_userbyid(p.proowner) = 'postgres')";

static void check_trap(const struct store *store, const struct trap *trap, const char *database)
{
    new_database(store, database);
    bool was_loaded = trap->by_superuser && !*trap->by_superuser;
    if (was_loaded) {
        must_load(store, "postgres", database);
        run_as(store, "postgres", database,
               "GRANT USAGE ON SCHEMA permit TO evil; GRANT TRIGGER ON permit.fence TO evil");
    } else if (trap->by_superuser) {
        run_as(store, "postgres", database, trap->by_superuser);
    }
    run_as(store, "evil", database, trap->by_evil);
    must_refuse(store, "postgres", database, trap->refused);
    if (!was_loaded) { /* the superuser's next call */
        PGconn *superuser = connect_as(store, "postgres", database);
        (void)state_of(superuser, "SELECT permit.fence('backups', '3', 57)");
        PQfinish(superuser);
    }
    if (is_true(store, database, functions_of_postgres) != was_loaded)
        kit_fail("postgresql: '%s': a part of the guard was loaded", trap->refused);
    if (is_true(store, database, "(SELECT rolsuper FROM pg_roles WHERE rolname = 'evil')"))
        kit_fail("postgresql: '%s': evil has become superuser", trap->refused);
}

static void state_is(PGconn *connection, const char *text, const char *expected)
{
    const char *state = state_of(connection, text);
    if (strcmp(state, expected))
        kit_fail("postgresql: %s: '%s' instead of '%s': %s", text, state, expected, PQerrorMessage(connection));
}

/* 42501: insufficient_privilege. */
static void check_grants(const struct store *store)
{
    new_database(store, "granted");
    must_load(store, "keeper", "granted");
    PGconn *app = connect_as(store, "app", "granted");
    state_is(app, "SELECT permit.fence('backups', '3', 57)", "42501");
    run_as(store, "keeper", "granted", "GRANT USAGE ON SCHEMA permit TO app");
    state_is(app, "SELECT permit.fence('backups', '3', 57)", "");
    must_load(store, "keeper", "granted"); /* load again */
    state_is(app, "SELECT permit.fence('backups', '3', 56)", "PF001");
    state_is(app, "SELECT permit.fence('backups', '3', 57)", "");
    state_is(app, "SELECT permit.fence_resource('backups', 'file', 57)", "");
    state_is(app, "SELECT permit.raise_floor('backups', 57)", "");
    state_is(app, "SELECT permit.fence_floor('backups', 57)", "");
    state_is(app, "UPDATE permit.fence SET token = 1", "42501");
    state_is(app, "SELECT token FROM permit.fence", "42501");
    PQfinish(app);
    must_refuse(store, "postgres", "granted", "the schema permit belongs to keeper, not to postgres");
}

/* Rights that each new table and schema gives away do not reach the marks; rights that were granted to them stay. */
static void check_default_rights(const struct store *store)
{
    new_database(store, "given");
    run_as(store, "keeper", "given",
           "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO evil, PUBLIC;"
           "ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO evil, PUBLIC");
    must_load(store, "keeper", "given");
    PGconn *evil = connect_as(store, "evil", "given");
    state_is(evil, "SELECT permit.fence('backups', '3', 57)", "");
    state_is(evil, "UPDATE permit.fence SET token = 1", "42501");
    state_is(evil, "CREATE FUNCTION permit.fence(a text, b text, c int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
             "42501");
    PQfinish(evil);
    run_as(store, "keeper", "given", "GRANT SELECT ON permit.fence TO app");
    must_load(store, "keeper", "given");
    run_as(store, "app", "given", "SELECT token FROM permit.fence");
}

/* A trigger on a table of app. The writer has rights to that table only. */
static void check_row_grants(const struct store *store)
{
    run_as(store, "postgres", "granted", "CREATE SCHEMA app AUTHORIZATION app; GRANT USAGE ON SCHEMA app TO writer");
    run_as(store, "app", "granted",
           "CREATE TABLE app.report (id int PRIMARY KEY, permit_token bigint NOT NULL DEFAULT 0);"
           "INSERT INTO app.report VALUES (7, 0);"
           "CREATE TRIGGER permit_fence BEFORE UPDATE ON app.report FOR EACH ROW"
           " WHEN ((NEW.permit_token BETWEEN OLD.permit_token AND permit.fence_limit()) IS NOT TRUE)"
           " EXECUTE FUNCTION permit.fence_row();"
           "CREATE TRIGGER permit_fence_new BEFORE INSERT ON app.report FOR EACH ROW"
           " WHEN ((NEW.permit_token BETWEEN 0 AND permit.fence_limit()) IS NOT TRUE)"
           " EXECUTE FUNCTION permit.fence_row();"
           "GRANT SELECT, INSERT, UPDATE ON app.report TO writer");
    PGconn *writer = connect_as(store, "writer", "granted");
    state_is(writer, "UPDATE app.report SET permit_token = 57 WHERE id = 7", "");
    state_is(writer, "UPDATE app.report SET permit_token = 56 WHERE id = 7", "PF001");
    state_is(writer, "UPDATE app.report SET permit_token = 9007199254740991 WHERE id = 7", "PF002");
    state_is(writer, "INSERT INTO app.report VALUES (8, 9007199254740991)", "PF002");
    state_is(writer, "INSERT INTO app.report VALUES (8, 57)", "");
    PQfinish(writer);
}

void loading_postgresql(struct store *store)
{
    run_as(store, "postgres", "postgres",
           "CREATE ROLE evil LOGIN; CREATE ROLE keeper LOGIN; CREATE ROLE app LOGIN; CREATE ROLE writer LOGIN");
    for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++) {
        char *database = kit_text("trap%zu", i);
        check_trap(store, &traps[i], database);
        free(database);
    }
    check_grants(store);
    check_default_rights(store);
    check_row_grants(store);
    printf("postgresql loading: %zu traps refused, grants kept\n", sizeof(traps) / sizeof(traps[0]));
}
