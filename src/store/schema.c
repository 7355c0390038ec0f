/* SPDX-License-Identifier: MIT */
/*
 * Applies the migrations, one statement at a time. DDL cannot be rolled back, so `schema_version` counts the completed
 * statements of a migration: after a kill in the middle the next permitd continues from there.
 *
 * The first migration is the baseline: all tables. A database at the version before it has these tables, made by an
 * older build: there permitd only notes the version. It refuses a database below that, and names the build that
 * upgrades it.
 *
 * Before any change it looks for tables of another program with a name of permitd's, and refuses them.
 */
#include "store/schema.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "store/dialect.h"
#include "store/tables.h"

enum {
    LOCK_WAIT_S = 60,
    STATEMENT_MAX = 1 << 20,

    ER_DATABASE_UNKNOWN = 1049,
    ER_COLUMN_UNKNOWN = 1054,
};

/* The last build with the migrations before the baseline. */
#define BUILD_BEFORE_BASELINE "permitd 0.1.0 built from commit 7e7e62e"

/* The tables of permitd in the order of their creation; schema_version is created before the first migration. */
static const struct {
    const char *name;
    const struct row_table *columns; /* those that it must have; NULL: not checked */
    unsigned version, statement;     /* the migration, and the index of the statement in it, that create the table */
} schema_tables[] = {
    {"semaphore", &semaphore_table, 13, 0},
    {"permit_request", &request_table, 13, 1},
    {"permit", &permit_table, 13, 2},
    {"slot", &slot_table, 13, 3},
    {"semaphore_event", &event_table, 13, 4},
    {"owner", &owner_table, 13, 5},
    {"cluster", NULL, 13, 6},
    {"id_block", NULL, 13, 7},
    {"template", &template_table, 13, 8},
    {"server", &server_table, 13, 9},
    {"waiter", &waiter_table, 13, 10},
    {"mail", &mail_table, 13, 11},
    {"held", &held_table, 13, 12},
    {"held_bit", NULL, 13, 13},
    {"waiting_due", &waiting_table, 13, 14},
    {"errand", &errand_table, 14, 1},
    {"sql_account", NULL, 14, 3},
    {"served_offset", NULL, 14, 4},
    {"request_metadata", &metadata_table, 15, 0},
    {"feed", &feed_table, 17, 2},
    {"feed_head", NULL, 17, 3},
    {"feed_epoch", NULL, 17, 5},
    {"webhook", &webhook_table, 19, 3},
    {"past_permit", &past_table, 20, 2},
    {"feed_full", NULL, 21, 5},
};

/* Columns that a later migration adds to a table. */
static const struct {
    const char *table, *column;
    unsigned version, statement;
} schema_columns[] = {
    {"permit_request", "errand", 14, 0},
    {"semaphore", "feed", 17, 0},
    {"template", "feed", 17, 1},
    {"semaphore", "feed_url", 19, 0},
    {"template", "feed_url", 19, 2},
    {"permit_request", "changes", 20, 0},
    {"permit_request", "change_nonce", 20, 0},
    {"permit", "granted_at", 20, 1},
    {"permit_request", "has_metadata", 21, 0},
    {"feed", "events", 21, 1},
    {"feed", "count", 21, 1},
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
    buf_append_text(sql, "TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('schema_version'");
    for (size_t i = 0; i < ARRAY_LENGTH(schema_tables); i++)
        buf_printf(sql, ",'%s'", schema_tables[i].name);
    /* permitd's names are in lower case. On a server with case-sensitive table names `Permit` is another table. */
    buf_append_text(sql, ") AND (@@lower_case_table_names > 0"
                         " OR CAST(TABLE_NAME AS BINARY) = CAST(LOWER(TABLE_NAME) AS BINARY))");
}

/* The columns that the database has of one table of permitd. */
struct found {
    bool table;
    uint32_t columns; /* bit n: columns[n] of its row_table */
};

/* Compares names without case: servers ignore the case of column names, some of them also that of table names. */
static bool same_name(struct bytes a, struct bytes b)
{
    return a.length == b.length && strncasecmp(a.data, b.data, a.length) == 0;
}

static void note_found(struct bytes name, struct bytes column, struct found found[], bool *has_schema_version)
{
    *has_schema_version |= same_name(name, BYTES("schema_version"));
    for (size_t i = 0; i < ARRAY_LENGTH(schema_tables); i++) {
        const struct row_table *table = schema_tables[i].columns;
        if (!same_name(name, bytes_of(schema_tables[i].name)))
            continue;
        assert(!table || table->count <= 32);
        found[i].table = true;
        for (size_t j = 0; table && column.data && j < table->count; j++)
            if (same_name(column, row_column_name(&table->columns[j])))
                found[i].columns |= UINT32_C(1) << j;
    }
}

/* Views and tables, and their columns. */
static enum permit_status find_tables(struct session *session, struct found ret_found[], bool *ret_has_schema_version)
{
    struct buf sql;
    struct session_row row;
    buf_init(&sql, STATEMENT_MAX);
    buf_append_text(&sql, "SELECT TABLE_NAME, NULL FROM information_schema.TABLES WHERE ");
    schema_append_condition(&sql);
    buf_append_text(&sql, " UNION ALL SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE ");
    schema_append_condition(&sql);
    enum permit_status status = session_send_buf(session, &sql);
    buf_release(&sql);
    while (status == PERMIT_OK && session_row(session, &row))
        note_found(row.columns[0], row.columns[1], ret_found, ret_has_schema_version);
    return session_end(session, status);
}

/* `column`: the first that is missing; data NULL: unknown. */
static enum permit_status refuse_table(const char *database, const char *table, struct bytes column,
                                       struct buf *message)
{
    buf_printf(message, "the database `%s` has a table `%s` that is not permitd's", database, table);
    if (column.data)
        buf_printf(message, " (it has no column `%.*s`)", (int)column.length, column.data);
    buf_append_text(message, ": permitd has changed nothing there; give it a database of its own");
    return PERMIT_INTERNAL;
}

enum presence { ABSENT, POSSIBLE, PRESENT };

/*
 * Returns whether that which the statement creates is there. A permitd that was killed may have run one statement more
 * than it has counted.
 */
static enum presence presence_after(unsigned version, unsigned statement, struct schema_progress progress)
{
    bool before = version < progress.version;
    bool in = version == progress.version;
    if (before || (in && (progress.complete || statement < progress.statements)))
        return PRESENT;
    return in && statement == progress.statements ? POSSIBLE : ABSENT;
}

/* Returns whether a column of a table that exists must be there. */
static bool column_is_due(const char *table, struct bytes column, struct schema_progress progress)
{
    for (size_t i = 0; i < ARRAY_LENGTH(schema_columns); i++)
        if (strcmp(table, schema_columns[i].table) == 0 && same_name(column, bytes_of(schema_columns[i].column)))
            return presence_after(schema_columns[i].version, schema_columns[i].statement, progress) == PRESENT;
    return true;
}

/*
 * Refuses a table with a name of permitd's that no statement so far has created, or that lacks a column; and a table
 * that is missing.
 */
static enum permit_status check_tables(const struct found found[], const char *database,
                                       struct schema_progress progress, struct buf *message)
{
    for (size_t i = 0; i < ARRAY_LENGTH(schema_tables); i++) {
        const struct row_table *table = schema_tables[i].columns;
        const char *name = schema_tables[i].name;
        enum presence presence = presence_after(schema_tables[i].version, schema_tables[i].statement, progress);
        if (found[i].table && presence == ABSENT)
            return refuse_table(database, name, (struct bytes){0}, message);
        if (!found[i].table && presence == PRESENT) {
            buf_printf(message,
                       "the database `%s` has permitd's schema_version, but not its table `%s`: restore a backup",
                       database, name);
            return PERMIT_INTERNAL;
        }
        for (size_t j = 0; found[i].table && table && j < table->count; j++) {
            struct bytes column = row_column_name(&table->columns[j]);
            if (!(found[i].columns >> j & 1) && column_is_due(name, column, progress))
                return refuse_table(database, name, column, message);
        }
    }
    return PERMIT_OK;
}

enum permit_status schema_read_progress(struct session *session, struct schema_progress *ret_progress)
{
    struct session_row row;
    struct schema_progress progress = {.recorded = true, .complete = true};
    enum permit_status status = session_send(
        session,
        BYTES("SELECT version, statements, applied_at IS NOT NULL FROM schema_version ORDER BY version DESC LIMIT 1"));
    if (status == PERMIT_OK && session_row(session, &row)) {
        progress.version = (unsigned)column_u64(row.columns[0]);
        progress.statements = (unsigned)column_u64(row.columns[1]);
        progress.complete = column_u64(row.columns[2]) == 1;
        progress.before = progress.complete && progress.version == schema_migrations[0].version - 1;
    }
    status = session_end(session, status);
    if (status == PERMIT_OK)
        *ret_progress = progress;
    return status;
}

bool schema_is_refused(const struct schema_progress *progress, struct buf *message)
{
    unsigned baseline = schema_migrations[0].version, newest = schema_newest();
    bool newer = progress->version > newest;
    bool older = progress->version > 0 && progress->version < baseline && !progress->before;
    if (newer)
        buf_printf(message,
                   "the database has schema version %u, and this permitd knows only up to %u: run the newer permitd "
                   "that made it, or restore a backup from before the upgrade",
                   progress->version, newest);
    if (older)
        buf_printf(
            message,
            "the database has schema version %u%s, and this permitd upgrades from %u on: start " BUILD_BEFORE_BASELINE
            " on it once",
            progress->version, progress->complete ? "" : " (incomplete)", baseline - 1);
    return newer || older;
}

/* Reads the progress; refuses another version, and foreign tables. Changes nothing. */
static enum permit_status schema_examine(struct session *session, const char *database,
                                         struct schema_progress *ret_progress, struct buf *message)
{
    struct found found[ARRAY_LENGTH(schema_tables)] = {{0}};
    struct schema_progress progress = {.complete = true};
    bool has_schema_version = false;
    enum permit_status status = find_tables(session, found, &has_schema_version);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot read the tables", message);
    if (has_schema_version)
        status = schema_read_progress(session, &progress);
    if (status != PERMIT_OK && session_errno(session) == ER_COLUMN_UNKNOWN)
        return refuse_table(database, "schema_version", (struct bytes){0}, message);
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot read schema_version", message);
    if (schema_is_refused(&progress, message))
        return PERMIT_INTERNAL;
    struct schema_progress tables = progress;
    tables.version += progress.before;
    status = check_tables(found, database, tables, message);
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

/* Returns true if the text has more than blanks and comments, which a server rejects as an empty query. */
static bool has_sql(struct bytes text)
{
    bool comment = false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] == '\n')
            comment = false;
        else if (!comment && text.data[i] == '-' && i + 1 < text.length && text.data[i + 1] == '-')
            comment = true;
        else if (!comment && !isspace((unsigned char)text.data[i]))
            return true;
    }
    return false;
}

bool statement_next(const char **text, struct bytes *ret_statement)
{
    while (**text) {
        const char *start = *text, *end = strstr(start, ";\n");
        size_t length = end ? (size_t)(end - start) : strlen(start);
        *text = start + length + (end ? 2 : 0);
        *ret_statement = (struct bytes){start, length};
        if (has_sql(*ret_statement))
            return true;
    }
    return false;
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
    if (status != PERMIT_OK && !(resumed && error_is_already_done(session_errno(session)))) {
        (void)session_rollback(session); /* or it would keep its locks until the next try */
        return status;
    }
    return schema_run(session, "UPDATE schema_version SET statements = statements + 1 WHERE version = %u; COMMIT",
                      version);
}

/* Applies the remaining statements of a migration. `begun` is its progress; NULL: it was not started. */
static enum permit_status migration_apply(struct session *session, const struct migration *migration,
                                          const struct schema_progress *begun)
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

static enum permit_status schema_migrate(struct session *session, const struct schema_progress *progress,
                                         struct buf *message)
{
    enum permit_status status = PERMIT_OK;
    if (progress->before) /* the baseline is there: note its version, at once and complete */
        status = schema_run(
            session,
            "INSERT IGNORE INTO schema_version (version, name, applied_at) VALUES (%u, '%s', UTC_TIMESTAMP(6))",
            schema_migrations[0].version, schema_migrations[0].name);
    if (status == PERMIT_OK) /* a statement that waits for an open transaction stalls all that come after it */
        status = session_run(session, "SET SESSION lock_wait_timeout = 1");
    if (status != PERMIT_OK)
        return schema_fail(session, status, "cannot write schema_version", message);
    unsigned done = progress->version + progress->before;
    for (const struct migration *migration = schema_migrations; migration->version; migration++) {
        bool begun = migration->version == progress->version && !progress->complete;
        if (migration->version <= done && !begun)
            continue;
        status = migration_apply(session, migration, begun ? progress : NULL);
        if (status != PERMIT_OK)
            return schema_fail(session, status, migration->name, message);
    }
    return PERMIT_OK;
}

static enum permit_status schema_upgrade(struct session *session, const char *database, struct buf *message)
{
    struct schema_progress progress;
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
    struct schema_progress progress = {.complete = true};
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
    if (!progress.complete)
        progress.version = progress.version == schema_migrations[0].version ? 0 : progress.version - 1;
    *ret_version = progress.version;
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
