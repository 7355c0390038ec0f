/* SPDX-License-Identifier: MIT */
/*
 * Applies the migrations, one statement at a time. DDL cannot be rolled back, so `schema_version` counts the statements
 * of a migration that are done: a permitd that is killed in the middle leaves something the next one can go on from.
 */
#include "store/schema.h"

#include <stdio.h>

#include "store/migrations.h"

enum {
    LOCK_WAIT_S = 60,
    STATEMENT_MAX = 1 << 20,

    ER_DATABASE_UNKNOWN = 1049,
    ER_TABLE_UNKNOWN = 1146,
};

/* How far the schema of a database is. */
struct progress {
    unsigned version;    /* the newest migration that was begun; 0: none */
    unsigned statements; /* of it, done */
    bool complete;
};

/* Made by permitd itself, because it must exist before any migration is applied. */
static const char create_schema_version[] =
    "CREATE TABLE IF NOT EXISTS schema_version ("
    " version INT UNSIGNED NOT NULL COMMENT 'number of the migration',"
    " name VARBINARY(255) NOT NULL COMMENT 'its file',"
    " statements INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'how many of its statements are done',"
    " applied_at DATETIME(6) NULL COMMENT 'UTC; NULL: not all of it is done',"
    " PRIMARY KEY (version)"
    ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='migrations applied by permitd'";

unsigned schema_newest(void)
{
    unsigned newest = 0;
    for (const struct migration *migration = schema_migrations; migration->version; migration++)
        newest = migration->version;
    return newest;
}

/* Prefixes the session's own words. */
static enum permit_status schema_fail(struct session *session, enum permit_status status, const char *doing,
                                      struct buf *message)
{
    buf_printf(message, "%s: %s", doing, session_message(session));
    return status;
}

/* Runs a short statement made by printf. */
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

/* Chooses the database; makes it only if it is not there, so that permitd can do without the right to. */
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

/* One lock per database of a server; its name must be short, whatever the database is called. */
static enum permit_status schema_lock(struct session *session, struct buf *message)
{
    char sql[128];
    struct session_row row;
    snprintf(sql, sizeof sql, "SELECT GET_LOCK(CONCAT('permitd.schema.', MD5(DATABASE())), %d)", LOCK_WAIT_S);
    enum permit_status status = session_send(session, bytes_of(sql));
    bool locked = status == PERMIT_OK && session_row(session, &row) && column_u64(row.columns[0]) == 1;
    enum permit_status finished = session_finish(session);
    if (status != PERMIT_OK || finished != PERMIT_OK)
        return schema_fail(session, status != PERMIT_OK ? status : finished, "cannot lock the schema", message);
    if (locked)
        return PERMIT_OK;
    buf_printf(message, "another permitd has been changing the schema for %d seconds; see SHOW PROCESSLIST",
               LOCK_WAIT_S);
    return PERMIT_DATABASE_UNAVAILABLE;
}

static enum permit_status schema_unlock(struct session *session)
{
    return session_run(session, "DO RELEASE_LOCK(CONCAT('permitd.schema.', MD5(DATABASE())))");
}

static enum permit_status schema_read_progress(struct session *session, struct progress *ret_progress)
{
    struct session_row row;
    struct progress progress = {.complete = true};
    enum permit_status status = session_send(
        session,
        BYTES("SELECT version, statements, applied_at IS NOT NULL FROM schema_version ORDER BY version DESC LIMIT 1"));
    if (status == PERMIT_OK && session_row(session, &row))
        progress = (struct progress){
            .version = (unsigned)column_u64(row.columns[0]),
            .statements = (unsigned)column_u64(row.columns[1]),
            .complete = column_u64(row.columns[2]) == 1,
        };
    enum permit_status finished = session_finish(session);
    if (status == PERMIT_OK && finished == PERMIT_OK)
        *ret_progress = progress;
    return status != PERMIT_OK ? status : finished;
}

/* As above; makes the table that tells it if there is none. */
static enum permit_status schema_progress(struct session *session, struct progress *ret_progress)
{
    enum permit_status status = schema_read_progress(session, ret_progress);
    if (status == PERMIT_OK || session_errno(session) != ER_TABLE_UNKNOWN)
        return status;
    status = session_run(session, create_schema_version);
    return status == PERMIT_OK ? schema_read_progress(session, ret_progress) : status;
}

/* True if there is SQL in it, and not only blanks and comments, which a server calls an empty query. */
static bool statement_says_something(struct bytes text)
{
    bool comment = false;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.data[i];
        if (byte == '\n')
            comment = false;
        else if (!comment && byte == '-' && i + 1 < text.length && text.data[i + 1] == '-')
            comment = true;
        else if (!comment && byte != ' ' && byte != '\t' && byte != '\r')
            return true;
    }
    return false;
}

/* The next statement of *text, without its ';'. A statement ends with a ';' at the end of a line. */
static bool statement_next(const char **text, struct bytes *ret_statement)
{
    while (**text) {
        const char *start = *text;
        const char *end = strstr(start, ";\n");
        size_t length = end ? (size_t)(end - start) : strlen(start);
        *text = end ? end + 2 : start + length;
        *ret_statement = (struct bytes){start, length};
        if (statement_says_something(*ret_statement))
            return true;
    }
    return false;
}

/* What a DDL statement says that was already done when permitd died before it could count it. */
static bool error_says_already_done(unsigned error)
{
    enum { TABLE_EXISTS = 1050, COLUMN_EXISTS = 1060, KEY_EXISTS = 1061, NOTHING_TO_DROP = 1091 };
    return error == TABLE_EXISTS || error == COLUMN_EXISTS || error == KEY_EXISTS || error == NOTHING_TO_DROP;
}

/* The statement and its count in one transaction, as far as the statement allows (DDL commits by itself). */
static enum permit_status statement_run(struct session *session, unsigned version, struct bytes statement, bool resumed)
{
    enum permit_status status = session_run(session, "BEGIN");
    if (status != PERMIT_OK)
        return status;
    status = session_send(session, statement);
    enum permit_status finished = session_finish(session);
    if (status == PERMIT_OK)
        status = finished;
    if (status != PERMIT_OK && !(resumed && error_says_already_done(session_errno(session))))
        return status;
    return schema_run(session, "UPDATE schema_version SET statements = statements + 1 WHERE version = %u; COMMIT",
                      version);
}

/* Applies what is still to be done of one migration: all of it but the first `done` statements. */
static enum permit_status migration_apply(struct session *session, const struct migration *migration, unsigned done)
{
    enum permit_status status =
        schema_run(session, "INSERT IGNORE INTO schema_version (version, name) VALUES (%u, '%s')", migration->version,
                   migration->name);
    const char *text = migration->text;
    struct bytes statement;
    for (unsigned number = 0; status == PERMIT_OK && statement_next(&text, &statement); number++)
        if (number >= done)
            status = statement_run(session, migration->version, statement, number == done);
    if (status != PERMIT_OK)
        return status;
    return schema_run(session, "UPDATE schema_version SET applied_at = UTC_TIMESTAMP(6) WHERE version = %u",
                      migration->version);
}

static enum permit_status schema_migrate(struct session *session, struct progress progress, struct buf *message)
{
    for (const struct migration *migration = schema_migrations; migration->version; migration++) {
        bool begun = migration->version == progress.version && !progress.complete;
        if (migration->version <= progress.version && !begun)
            continue;
        enum permit_status status = migration_apply(session, migration, begun ? progress.statements : 0);
        if (status != PERMIT_OK)
            return schema_fail(session, status, migration->name, message);
    }
    return PERMIT_OK;
}

static enum permit_status schema_refuse_newer(struct progress progress, struct buf *message)
{
    if (progress.version <= schema_newest())
        return PERMIT_OK;
    buf_printf(message,
               "the database has schema version %u, and this permitd knows only up to %u: use the newer permitd that "
               "made it, or restore a backup from before the upgrade",
               progress.version, schema_newest());
    return PERMIT_INTERNAL;
}

static enum permit_status schema_bring_up(struct session *session, struct buf *message)
{
    struct progress progress = {.version = 0};
    enum permit_status status = schema_progress(session, &progress);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot read schema_version", message);
    status = schema_refuse_newer(progress, message);
    return status == PERMIT_OK ? schema_migrate(session, progress, message) : status;
}

enum permit_status schema_look(struct session *session, const char *database, unsigned *ret_version,
                               struct buf *message)
{
    struct progress progress = {.version = 0};
    enum permit_status status = schema_run(session, "USE `%s`", database);
    if (status == PERMIT_OK)
        status = schema_read_progress(session, &progress);
    unsigned error = session_errno(session);
    if (status != PERMIT_OK && error != ER_DATABASE_UNKNOWN && error != ER_TABLE_UNKNOWN)
        return schema_fail(session, status, "cannot read schema_version", message);
    *ret_version = progress.complete || progress.version == 0 ? progress.version : progress.version - 1;
    return schema_refuse_newer(progress, message);
}

enum permit_status schema_apply(struct session *session, const char *database, struct buf *message)
{
    enum permit_status status = session_connect(session);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot look after the schema", message);
    status = schema_use(session, database, message);
    if (status == PERMIT_OK)
        status = schema_lock(session, message);
    if (status != PERMIT_OK)
        return status;
    status = schema_bring_up(session, message);
    enum permit_status unlocked = schema_unlock(session);
    if (status == PERMIT_OK && unlocked != PERMIT_OK)
        status = schema_fail(session, unlocked, "cannot unlock the schema", message);
    return status;
}
