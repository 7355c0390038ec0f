/* SPDX-License-Identifier: MIT */
/*
 * Applies the migrations, one statement at a time. DDL cannot be rolled back, so `schema_version` counts the completed
 * statements of a migration: after a kill in the middle the next permitd continues from there.
 *
 * Before any change, the existing tables are compared with the tables that the counted statements create. A table of
 * another program with a name of permitd's is refused.
 */
#include "store/schema.h"

#include <stdio.h>

#include "store/dialect.h"
#include "store/migration_text.h"

enum {
    LOCK_WAIT_S = 60,
    STATEMENT_MAX = 1 << 20,

    ER_DATABASE_UNKNOWN = 1049,
};

/* The state of a database's schema. */
struct progress {
    bool recorded;       /* the table schema_version exists */
    unsigned version;    /* the newest migration that was started; 0: none */
    unsigned statements; /* number of its statements that are done */
    bool complete;       /* all of them are done */
};

/* schema_version is in no migration, because it must exist before the first one is applied. */
static const char create_schema_version[] =
    "CREATE TABLE schema_version ("
    " version INT UNSIGNED NOT NULL COMMENT 'number of the migration',"
    " name VARBINARY(255) NOT NULL COMMENT 'file name of the migration',"
    " statements INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'number of completed statements',"
    " applied_at DATETIME(6) NULL COMMENT 'completion time, UTC; NULL: incomplete',"
    " PRIMARY KEY (version)"
    ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='migrations applied by permitd'";

unsigned schema_newest(void)
{
    unsigned newest = 0;
    for (const struct migration *migration = schema_migrations; migration->version; migration++)
        newest = migration->version;
    return newest;
}

/* Appends "doing: session message" to `message`; returns `status`. */
static enum permit_status schema_fail(struct session *session, enum permit_status status, const char *doing,
                                      struct buf *message)
{
    buf_printf(message, "%s: %s", doing, session_message(session));
    return status;
}

/* Runs a statement from a printf format. */
static enum permit_status schema_run(struct session *session, const char *format, ...) PRINTF_LIKE(2, 3);
static enum permit_status schema_run(struct session *session, const char *format, ...)
{
    struct buf sql;
    va_list arguments;
    buf_init(&sql, STATEMENT_MAX);
    va_start(arguments, format);
    buf_vprintf(&sql, format, arguments);
    va_end(arguments);
    enum permit_status status = sql.broken ? PERMIT_NO_MEMORY : session_run(session, buf_text(&sql));
    buf_release(&sql);
    return status;
}

/* Selects the database. Creates it only if it is missing: an existing one needs no CREATE privilege. */
static enum permit_status schema_use(struct session *session, const char *database, struct buf *message)
{
    enum permit_status status = schema_run(session, "USE `%s`", database);
    if (status == PERMIT_OK)
        return PERMIT_OK;
    if (session_errno(session) == ER_DATABASE_UNKNOWN) {
        status = schema_run(session, "CREATE DATABASE IF NOT EXISTS `%s` DEFAULT CHARACTER SET utf8mb4", database);
        if (status == PERMIT_OK)
            status = schema_run(session, "USE `%s`", database);
    }
    return status == PERMIT_OK ? PERMIT_OK : schema_fail(session, status, "cannot use the database", message);
}

#define LOCK_NAME DIALECT_LOCK_NAME("schema")

/* Takes the named lock of the schema, one per database of a server. Waits at most LOCK_WAIT_S. */
static enum permit_status schema_lock(struct session *session, struct buf *message)
{
    char sql[128];
    struct session_row row;
    snprintf(sql, sizeof sql, "SELECT GET_LOCK(" LOCK_NAME ", %d)", LOCK_WAIT_S);
    enum permit_status status = session_send(session, bytes_of(sql));
    bool locked = status == PERMIT_OK && session_row(session, &row) && column_u64(row.columns[0]) == 1;
    status = session_end(session, status);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot lock the schema", message);
    if (locked)
        return PERMIT_OK;
    buf_printf(message, "another permitd has been changing the schema for %d seconds; see SHOW PROCESSLIST",
               LOCK_WAIT_S);
    return PERMIT_DATABASE_UNAVAILABLE;
}

/* Releases the named lock. Returns the first failure: `status`, else that of the release. */
static enum permit_status schema_unlock(struct session *session, enum permit_status status, struct buf *message)
{
    enum permit_status unlocked = session_run(session, "DO RELEASE_LOCK(" LOCK_NAME ")");
    if (status == PERMIT_OK && unlocked != PERMIT_OK)
        return schema_fail(session, unlocked, "cannot unlock the schema", message);
    return status;
}

/* ---- existing tables ---- */

void schema_append_condition(struct buf *sql)
{
    struct tables tables;
    bool known = tables_read(schema_migrations, 0, 0, &tables);
    buf_append_text(sql, "TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('schema_version'");
    for (size_t i = 0; known && i < tables.count; i++)
        buf_printf(sql, ",'%.*s'", (int)tables.list[i].name.length, tables.list[i].name.data);
    /* permitd's names are in lower case. On a server with case-sensitive table names `Permit` is another table. */
    buf_append_text(sql, ") AND (@@lower_case_table_names > 0"
                         " OR CAST(TABLE_NAME AS BINARY) = CAST(LOWER(TABLE_NAME) AS BINARY))");
}

static void tables_take_rows(struct tables *tables, struct session *session)
{
    struct session_row row;
    while (session_row(session, &row))
        tables_note_found(tables, row.columns[0], row.columns[1]);
}

static enum permit_status tables_find_in_database(struct session *session, struct tables *tables)
{
    struct buf sql;
    buf_init(&sql, STATEMENT_MAX);
    buf_append_text(&sql, "SELECT TABLE_NAME, NULL FROM information_schema.TABLES WHERE ");
    schema_append_condition(&sql);
    buf_append_text(&sql, ";SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE ");
    schema_append_condition(&sql);
    enum permit_status status = session_send_buf(session, &sql);
    if (status == PERMIT_OK) {
        tables_take_rows(tables, session);
        status = session_next(session);
    }
    if (status == PERMIT_OK)
        tables_take_rows(tables, session);
    buf_release(&sql);
    return session_end(session, status);
}

static enum permit_status refuse_table(const char *database, const struct table *table, struct buf *message)
{
    struct bytes column = table_missing_column(table);
    int length = (int)table->name.length;
    if (table->found) {
        buf_printf(message, "the database `%s` has a table `%.*s` that is not permitd's", database, length,
                   table->name.data);
        if (column.data)
            buf_printf(message, " (it has no column `%.*s`)", (int)column.length, column.data);
        buf_append_text(message, ": permitd has changed nothing there; give it a database of its own");
    } else {
        buf_printf(message,
                   "the database `%s` has permitd's schema_version, but not its table `%.*s`: restore a backup",
                   database, length, table->name.data);
    }
    return PERMIT_INTERNAL;
}

static enum permit_status schema_read_progress(struct session *session, struct progress *ret_progress)
{
    struct session_row row;
    struct progress progress = {.recorded = true, .complete = true};
    enum permit_status status = session_send(
        session,
        BYTES("SELECT version, statements, applied_at IS NOT NULL FROM schema_version ORDER BY version DESC LIMIT 1"));
    if (status == PERMIT_OK && session_row(session, &row))
        progress = (struct progress){
            .recorded = true,
            .version = (unsigned)column_u64(row.columns[0]),
            .statements = (unsigned)column_u64(row.columns[1]),
            .complete = column_u64(row.columns[2]) == 1,
        };
    status = session_end(session, status);
    if (status == PERMIT_OK)
        *ret_progress = progress;
    return status;
}

/* Reads the progress; if schema_version does not exist, nothing is done yet. Refuses a foreign schema_version. */
static enum permit_status schema_find_progress(struct session *session, const char *database,
                                               struct progress *ret_progress, struct buf *message)
{
    struct tables tables = {.count = 0};
    bool good = tables_apply(&tables, BYTES(create_schema_version));
    enum permit_status status = good ? tables_find_in_database(session, &tables) : PERMIT_INTERNAL;
    if (status == PERMIT_OK && !tables.list[0].found) {
        *ret_progress = (struct progress){.complete = true};
        return PERMIT_OK;
    }
    if (status == PERMIT_OK && !table_is_as_expected(&tables.list[0]))
        return refuse_table(database, &tables.list[0], message);
    if (status == PERMIT_OK)
        status = schema_read_progress(session, ret_progress);
    return status == PERMIT_OK ? PERMIT_OK : schema_fail(session, status, "cannot read schema_version", message);
}

/*
 * Computes the tables after all migrations before `version` and `statements` statements of it, and records which of
 * them the database has.
 */
static enum permit_status schema_compare(struct session *session, unsigned version, unsigned statements,
                                         struct tables *ret_tables)
{
    if (!tables_read(schema_migrations, version, statements, ret_tables))
        return PERMIT_INTERNAL;
    return tables_find_in_database(session, ret_tables);
}

/*
 * Refuses a table with a name of permitd's unless it is as the counted statements leave it, or as the next statement
 * leaves it: a permitd that was killed may have run that statement without counting it.
 */
static enum permit_status schema_check_tables(struct session *session, const char *database, struct progress progress,
                                              struct buf *message)
{
    struct tables counted, next;
    unsigned version = progress.complete ? progress.version + 1 : progress.version;
    unsigned statements = progress.complete ? 0 : progress.statements;
    enum permit_status status = schema_compare(session, version, statements, &counted);
    if (status == PERMIT_OK)
        status = schema_compare(session, version, progress.complete ? 0 : statements + 1, &next);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot read the tables", message);
    for (size_t i = 0; i < counted.count; i++) /* both lists have the order of the migrations */
        if (!table_is_as_expected(&counted.list[i]) && !table_is_as_expected(&next.list[i]))
            return refuse_table(database, &counted.list[i], message);
    return PERMIT_OK;
}

/* Reads the progress; refuses a newer schema and foreign tables. Changes nothing. */
static enum permit_status schema_examine(struct session *session, const char *database, struct progress *ret_progress,
                                         struct buf *message)
{
    struct progress progress;
    enum permit_status status = schema_find_progress(session, database, &progress, message);
    if (status == PERMIT_OK && progress.version > schema_newest()) {
        buf_printf(message,
                   "the database has schema version %u, and this permitd knows only up to %u: use the newer permitd "
                   "that made it, or restore a backup from before the upgrade",
                   progress.version, schema_newest());
        return PERMIT_INTERNAL;
    }
    if (status == PERMIT_OK)
        status = schema_check_tables(session, database, progress, message);
    if (status == PERMIT_OK)
        *ret_progress = progress;
    return status;
}

/* ---- migrations ---- */

/* Returns true if the error means that a DDL statement is already done: permitd was killed before it counted it. */
static bool error_is_already_done(unsigned error)
{
    enum { TABLE_EXISTS = 1050, COLUMN_EXISTS = 1060, KEY_EXISTS = 1061, NOTHING_TO_DROP = 1091 };
    return error == TABLE_EXISTS || error == COLUMN_EXISTS || error == KEY_EXISTS || error == NOTHING_TO_DROP;
}

/*
 * Runs a statement and increments its count, in one transaction if the statement allows it (DDL commits implicitly).
 * `resumed`: an earlier permitd may have run the statement already.
 */
static enum permit_status statement_run(struct session *session, unsigned version, struct bytes statement, bool resumed)
{
    enum permit_status status = session_run(session, "BEGIN");
    if (status != PERMIT_OK)
        return status;
    status = session_end(session, session_send(session, statement));
    if (status != PERMIT_OK && !(resumed && error_is_already_done(session_errno(session))))
        return status;
    return schema_run(session, "UPDATE schema_version SET statements = statements + 1 WHERE version = %u; COMMIT",
                      version);
}

/* Applies the remaining statements of a migration. `begun` is its progress; NULL: it was not started. */
static enum permit_status migration_apply(struct session *session, const struct migration *migration,
                                          const struct progress *begun)
{
    enum permit_status status =
        schema_run(session, "INSERT IGNORE INTO schema_version (version, name) VALUES (%u, '%s')", migration->version,
                   migration->name);
    const char *text = migration->text;
    struct bytes statement;
    for (unsigned number = 0; status == PERMIT_OK && statement_next(&text, &statement); number++)
        if (!begun || number >= begun->statements)
            status = statement_run(session, migration->version, statement, begun && number == begun->statements);
    if (status != PERMIT_OK)
        return status;
    return schema_run(session, "UPDATE schema_version SET applied_at = UTC_TIMESTAMP(6) WHERE version = %u",
                      migration->version);
}

static enum permit_status schema_migrate(struct session *session, const struct progress *progress, struct buf *message)
{
    for (const struct migration *migration = schema_migrations; migration->version; migration++) {
        bool begun = migration->version == progress->version && !progress->complete;
        if (migration->version <= progress->version && !begun)
            continue;
        enum permit_status status = migration_apply(session, migration, begun ? progress : NULL);
        if (status != PERMIT_OK)
            return schema_fail(session, status, migration->name, message);
    }
    return PERMIT_OK;
}

static enum permit_status schema_upgrade(struct session *session, const char *database, struct buf *message)
{
    struct progress progress;
    enum permit_status status = schema_examine(session, database, &progress, message);
    if (status != PERMIT_OK)
        return status;
    if (!progress.recorded)
        status = session_run(session, create_schema_version);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot create schema_version", message);
    return schema_migrate(session, &progress, message);
}

enum permit_status schema_read_version(struct session *session, const char *database, unsigned *ret_version,
                                       struct buf *message)
{
    struct progress progress = {.version = 0};
    enum permit_status status = schema_run(session, "USE `%s`", database);
    if (status != PERMIT_OK && session_errno(session) != ER_DATABASE_UNKNOWN)
        return schema_fail(session, status, "cannot use the database", message);
    if (status == PERMIT_OK) {
        status = schema_lock(session, message); /* so that no other permitd is in the middle of a migration */
        if (status != PERMIT_OK)
            return status;
        status = schema_unlock(session, schema_examine(session, database, &progress, message), message);
        if (status != PERMIT_OK)
            return status;
    }
    *ret_version = progress.complete || progress.version == 0 ? progress.version : progress.version - 1;
    return PERMIT_OK;
}

enum permit_status schema_apply(struct session *session, const char *database, struct buf *message)
{
    enum permit_status status = session_connect(session);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot check the schema", message);
    status = schema_use(session, database, message);
    if (status == PERMIT_OK)
        status = schema_lock(session, message);
    if (status != PERMIT_OK)
        return status;
    return schema_unlock(session, schema_upgrade(session, database, message), message);
}
