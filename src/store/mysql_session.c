/* SPDX-License-Identifier: MIT */
/*
 * The only file that calls libmariadb or libmysqlclient, and the only one that interprets a mysql_errno. Differences
 * between the two libraries, and between the two servers' errors, stay in this file.
 */
#include "store/mysql_session.h"

#include <assert.h>
#include <inttypes.h>
#include <mysql.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/uuid.h"
#include "store/dialect.h"

#ifdef LIBMARIADB
typedef my_bool client_bool;
#else
typedef bool client_bool;
#endif

enum {
    MAX_COLUMNS = 64, /* of any statement of permitd */
    PACKET_MAX = 16 * 1024 * 1024,
};

/*
 * Time-outs in seconds. A statement of a batch may wait 2 s for a row lock (innodb_lock_wait_timeout); a statement of
 * STORE_SCHEMA may copy a table of millions of rows.
 */
static const struct {
    unsigned connect, statement;
} timeouts[] = {
    [STORE_WORKER] = {3, 7}, [STORE_READER] = {3, 7},  [STORE_LIST] = {3, 7},
    [STORE_PROBE] = {1, 1},  [STORE_ADMIN] = {3, 120}, [STORE_SCHEMA] = {3, 3600},
};

/* Returns true if the session connects without a current database. */
static bool use_has_no_database(enum store_use use)
{
    return use == STORE_ADMIN || use == STORE_SCHEMA;
}

/*
 * A worker's connection is identified by a named lock (GET_LOCK) that it holds from set-up to its end. The name is
 * unique. The server releases the lock only after it has ended the connection's transaction, and the lock does not
 * survive a restart of the server. (Connection ids restart with the server, so an old id may belong to another client.)
 */
#define LOCK_PREFIX "permitd-"
enum { LOCK_NAME_SIZE = sizeof LOCK_PREFIX - 1 + UUID_TEXT_SIZE };

struct session {
    const struct database_address *address;
    enum store_use use;
    const unsigned *thread;         /* sessions_of_thread of its thread; for asserts */
    MYSQL *mysql;                   /* NULL: not connected */
    char lock[LOCK_NAME_SIZE];      /* named lock of this connection; "": it is not set up, or is not a worker's */
    char lost_lock[LOCK_NAME_SIZE]; /* named lock of a lost connection that the server may still have; "": none */
    bool mariadb;
    bool clustered;    /* a Galera node, whose peers may end transactions at any time: statements go one by one */
    size_t max_packet; /* session_max_packet; 0: not connected yet */

    /* The current packet. */
    struct buf packet;   /* copy of the text; only if clustered */
    struct bytes unsent; /* statements of `packet` that are not sent yet */
    MYSQL_RES *result;   /* of the current statement; NULL: none */
    unsigned column_count;
    uint64_t affected;                 /* rows that the current statement changed or returned */
    enum permit_status packet_status;  /* first failure; PERMIT_OK: none */
    struct bytes columns[MAX_COLUMNS]; /* of the current row */

    unsigned last_errno;
    char message[512];
};

/* ---- errors ---- */

/*
 * Status of each mysql_errno. Numbers from 2000 to 2999 and from 5000 on come from the client library.
 */
static const struct {
    unsigned value;
    enum permit_status status;
} error_statuses[] = {
    /* The transaction was rolled back, or must be; a retry may succeed. */
    {1213, PERMIT_CONFLICT}, /* deadlock; certification failure in a cluster */
    {1020, PERMIT_CONFLICT}, /* record has changed since last read */
    {1062, PERMIT_CONFLICT}, /* duplicate key: the same external_id through another permitd */
    {3101, PERMIT_CONFLICT}, /* MySQL group replication: rolled back during commit */
    {1205, PERMIT_LOCK_TIMEOUT},
    {3572, PERMIT_LOCK_TIMEOUT}, /* NOWAIT */

    /* The connection or its statement is lost; the outcome of a COMMIT is unknown. */
    {2006, PERMIT_DATABASE_LOST}, /* server has gone away */
    {2013, PERMIT_DATABASE_LOST}, /* lost connection during query; also the client's read time-out */
    {2055, PERMIT_DATABASE_LOST}, /* lost connection, with the system's error */
    {2027, PERMIT_DATABASE_LOST}, /* malformed packet */
    {1180, PERMIT_DATABASE_LOST}, /* error during COMMIT */
    {1053, PERMIT_DATABASE_LOST}, /* server shutdown in progress */
    {1927, PERMIT_DATABASE_LOST}, /* MariaDB: connection was killed */
    {3169, PERMIT_DATABASE_LOST}, /* MySQL: session was killed */
    {4031, PERMIT_DATABASE_LOST}, /* MySQL: disconnected because of inactivity */
    {1317, PERMIT_DATABASE_LOST}, /* query execution was interrupted */
    {1969, PERMIT_DATABASE_LOST}, /* MariaDB: max_statement_time exceeded */
    {3024, PERMIT_DATABASE_LOST}, /* MySQL: max_execution_time exceeded */
    {1158, PERMIT_DATABASE_LOST}, /* the server's read failed */
    {1159, PERMIT_DATABASE_LOST}, /* the server's read timed out */
    {1160, PERMIT_DATABASE_LOST}, /* the server's write failed */
    {1161, PERMIT_DATABASE_LOST}, /* the server's write timed out */

    /* No server, or none that accepts writes now. The statement did nothing. */
    {1290, PERMIT_DATABASE_UNAVAILABLE}, /* --read-only */
    {1792, PERMIT_DATABASE_UNAVAILABLE}, /* read only transaction */
    {1836, PERMIT_DATABASE_UNAVAILABLE}, /* running in read-only mode */
    {3100, PERMIT_DATABASE_UNAVAILABLE}, /* MySQL group replication: no quorum, or a plugin refuses */
    {3781, PERMIT_DATABASE_UNAVAILABLE}, /* MySQL group replication: a new primary still applies older transactions */
    {3782, PERMIT_DATABASE_UNAVAILABLE}, /* the same, the wait was ended */
    {3783, PERMIT_DATABASE_UNAVAILABLE}, /* the same, the wait failed */
    {1047, PERMIT_DATABASE_UNAVAILABLE}, /* Galera: node is not ready for use */
    {1040, PERMIT_DATABASE_UNAVAILABLE}, /* too many connections */
    {1203, PERMIT_DATABASE_UNAVAILABLE}, /* too many connections of this user */
    {1226, PERMIT_DATABASE_UNAVAILABLE}, /* the user has exceeded a resource limit */
    {1637, PERMIT_DATABASE_UNAVAILABLE}, /* too many concurrent transactions */
    {2001, PERMIT_DATABASE_UNAVAILABLE}, /* cannot create a socket */
    {2002, PERMIT_DATABASE_UNAVAILABLE}, /* cannot connect through the socket */
    {2003, PERMIT_DATABASE_UNAVAILABLE}, /* cannot connect to the host */
    {2004, PERMIT_DATABASE_UNAVAILABLE}, /* cannot create a TCP socket */
    {2005, PERMIT_DATABASE_UNAVAILABLE}, /* unknown host */
    {2007, PERMIT_DATABASE_UNAVAILABLE}, /* protocol mismatch */
    {2012, PERMIT_DATABASE_UNAVAILABLE}, /* error in the handshake */
    {2026, PERMIT_DATABASE_UNAVAILABLE}, /* TLS */
    {2054, PERMIT_DATABASE_UNAVAILABLE}, /* unknown character set of the server */
    {2058, PERMIT_DATABASE_UNAVAILABLE}, /* authentication plugin */
    {2059, PERMIT_DATABASE_UNAVAILABLE}, /* authentication plugin cannot be loaded */
    {2061, PERMIT_DATABASE_UNAVAILABLE}, /* authentication plugin reported an error */
    {5010, PERMIT_DATABASE_UNAVAILABLE}, /* authentication plugin not allowed without TLS */
    {1042, PERMIT_DATABASE_UNAVAILABLE}, /* the server cannot resolve the client's host name */
    {1043, PERMIT_DATABASE_UNAVAILABLE}, /* bad handshake */
    {1044, PERMIT_DATABASE_UNAVAILABLE}, /* access to the database denied */
    {1045, PERMIT_DATABASE_UNAVAILABLE}, /* access denied */
    {1049, PERMIT_DATABASE_UNAVAILABLE}, /* unknown database */
    {1129, PERMIT_DATABASE_UNAVAILABLE}, /* host is blocked */
    {1130, PERMIT_DATABASE_UNAVAILABLE}, /* host is not allowed */
    {1251, PERMIT_DATABASE_UNAVAILABLE}, /* client does not support the authentication protocol */
    {1524, PERMIT_DATABASE_UNAVAILABLE}, /* authentication plugin is not loaded */
    {1698, PERMIT_DATABASE_UNAVAILABLE}, /* access denied without a password */
    {1820, PERMIT_DATABASE_UNAVAILABLE}, /* the password must be changed first */
    {1862, PERMIT_DATABASE_UNAVAILABLE}, /* the password has expired */
    {3159, PERMIT_DATABASE_UNAVAILABLE}, /* secure transport is required */

    /* Storage or memory of the server is full. The statement did nothing. */
    {1021, PERMIT_DATABASE_FULL}, /* disk full */
    {1026, PERMIT_DATABASE_FULL}, /* error writing a file */
    {1030, PERMIT_DATABASE_FULL}, /* got error from storage engine */
    {1037, PERMIT_DATABASE_FULL}, /* out of memory */
    {1041, PERMIT_DATABASE_FULL}, /* out of resources */
    {1114, PERMIT_DATABASE_FULL}, /* the table is full */
    {1206, PERMIT_DATABASE_FULL}, /* the lock table is full */

    {2008, PERMIT_NO_MEMORY}, /* of this process */

    /* A row is larger than max_allowed_packet. permitd sends no packet that is. */
    {1153, PERMIT_TOO_LARGE},
    {2020, PERMIT_TOO_LARGE},

    /*
     * permitd's own guards: NULL into a NOT NULL column (a compare-and-set missed), a number out of range (in_use below
     * zero), and a CHECK of a column. All are bugs, like every error that is not in this table.
     */
    {1048, PERMIT_INTERNAL},
    {1690, PERMIT_INTERNAL},
    {3819, PERMIT_INTERNAL}, /* MySQL */
    {4025, PERMIT_INTERNAL}, /* MariaDB */
};

enum permit_status session_classify(unsigned mysql_errno_value)
{
    if (mysql_errno_value == 0)
        return PERMIT_OK;
    for (size_t i = 0; i < ARRAY_LENGTH(error_statuses); i++)
        if (error_statuses[i].value == mysql_errno_value)
            return error_statuses[i].status;
    return PERMIT_INTERNAL;
}

/* Returns true if the server stopped a list at its time limit (DIALECT_LIST_...). The connection is still usable. */
static bool session_hit_time_limit(const struct session *session)
{
    enum { MARIADB = 1969, MYSQL = 3024 };
    return session->use == STORE_LIST && (session->last_errno == MARIADB || session->last_errno == MYSQL);
}

/*
 * Returns true after an error of the client library itself. It may have read part of an answer, and would read the rest
 * as the next answer.
 */
static bool session_is_out_of_sync(const struct session *session)
{
    enum { LIBRARY_FIRST = 2000, LIBRARY_LAST = 2999 };
    return session->last_errno == 0 || (session->last_errno >= LIBRARY_FIRST && session->last_errno <= LIBRARY_LAST);
}

/*
 * Records the client library's last error and returns its status. Drops a connection that is lost or out
 * of step, and that of a server that cannot be used: the next connection may reach another one.
 */
static enum permit_status session_fail(struct session *session, const char *doing)
{
    session->last_errno = mysql_errno(session->mysql);
    snprintf(session->message, sizeof session->message, "%s: %s (%u)", doing, mysql_error(session->mysql),
             session->last_errno);
    enum permit_status status = session_classify(session->last_errno);
    if (status == PERMIT_OK) /* the library failed without an error number */
        status = PERMIT_INTERNAL;
    if (session_hit_time_limit(session))
        return PERMIT_BUSY;
    /* The database may not exist yet: that is unavailable too, and then it is created. */
    bool is_unusable = status == PERMIT_DATABASE_UNAVAILABLE && !use_has_no_database(session->use);
    if (status == PERMIT_DATABASE_LOST || is_unusable || session_is_out_of_sync(session))
        session_drop(session);
    return status;
}

static void session_clear_message(struct session *session)
{
    session->last_errno = 0;
    session->message[0] = '\0';
}

enum permit_status session_refuse(struct session *session, enum permit_status status, const char *sentence)
{
    session->last_errno = 0;
    snprintf(session->message, sizeof session->message, "%s", sentence);
    return status;
}

/* ---- life ---- */

bool store_library_begin(void)
{
    /* These variables would make libmysqlclient use more plugins than session_restrict_plugins allows. */
    unsetenv("LIBMYSQL_ENABLE_CLEARTEXT_PLUGIN");
    unsetenv("LIBMYSQL_PLUGINS");
    return mysql_library_init(0, NULL, NULL) == 0;
}

void store_library_end(void)
{
    mysql_library_end();
}

/*
 * The sessions of this thread. The client library has data of each thread that has a session. The address identifies
 * the thread.
 */
static _Thread_local unsigned sessions_of_thread;

struct session *session_new(const struct database_address *address, enum store_use use)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->address = address;
    session->use = use;
    session->thread = &sessions_of_thread;
    buf_init(&session->packet, PACKET_MAX);
    if (sessions_of_thread++ == 0)
        (void)mysql_thread_init();
    return session;
}

static void session_free_result(struct session *session)
{
    mysql_free_result(session->result); /* accepts NULL */
    session->result = NULL;
    session->column_count = 0;
    session->affected = 0;
}

static void session_close(struct session *session)
{
    session_free_result(session);
    if (session->mysql)
        mysql_close(session->mysql);
    session->mysql = NULL;
    session->lock[0] = '\0';
}

void session_free(struct session *session)
{
    if (!session)
        return;
    assert(session->thread == &sessions_of_thread && sessions_of_thread > 0);
    session_close(session);
    buf_release(&session->packet);
    free(session);
    if (--sessions_of_thread == 0)
        mysql_thread_end();
}

void session_drop(struct session *session)
{
    /* A connection without a named lock has left no transaction behind, so it needs no KILL. */
    if (session->lock[0])
        memcpy(session->lost_lock, session->lock, sizeof session->lost_lock);
    session_close(session);
}

bool session_is_connected(const struct session *session)
{
    return session->mysql != NULL;
}

const char *session_message(const struct session *session)
{
    return session->message;
}

unsigned session_errno(const struct session *session)
{
    return session->last_errno;
}

bool session_lacks_right(const struct session *session)
{
    enum { DATABASE = 1044, TABLE = 1142, COLUMN = 1143, GLOBAL = 1227, ROUTINE = 1370 };
    switch (session->last_errno) {
    case DATABASE:
    case TABLE:
    case COLUMN:
    case GLOBAL:
    case ROUTINE: return true;
    default: return false;
    }
}

size_t session_max_packet(const struct session *session)
{
    return session->max_packet;
}

bool session_is_mariadb(const struct session *session)
{
    return session->mariadb;
}

/* ---- packets ---- */

/* Stores the result of the statement that has just run. `failed`: the library reported a failure. */
static enum permit_status session_take_result(struct session *session, bool failed)
{
    if (failed)
        return session->packet_status = session_fail(session, "statement failed");
    session->result = mysql_store_result(session->mysql);
    /* A connection that is lost within a result leaves no result, no column, and an error. */
    if (!session->result && (mysql_field_count(session->mysql) > 0 || mysql_errno(session->mysql)))
        return session->packet_status = session_fail(session, "cannot read a result");
    session->affected = mysql_affected_rows(session->mysql);
    session->column_count = session->result ? mysql_num_fields(session->result) : 0;
    if (session->column_count > MAX_COLUMNS) {
        session_free_result(session);
        return session->packet_status =
                   session_refuse(session, PERMIT_INTERNAL, "a statement returns too many columns");
    }
    return PERMIT_OK;
}

/*
 * Cuts the next statement off session->unsent, for a clustered session, which sends statements one by one. When a
 * Galera node applies a transaction of another node, it ends a local transaction that conflicts. If this happens
 * between two statements of one packet, the server does not report it (seen with MariaDB 10.11.19) and runs the other
 * statements, each in a transaction of its own. If statements are sent one by one, the next one fails with 1213. No
 * literal contains a ';' (sql_text.h).
 */
static struct bytes session_cut_statement(struct session *session)
{
    struct bytes statement = session->unsent;
    const char *end = memchr(statement.data, ';', statement.length);
    if (end)
        statement.length = (size_t)(end - statement.data);
    size_t cut = statement.length + (end ? 1 : 0);
    session->unsent = (struct bytes){session->unsent.data + cut, session->unsent.length - cut};
    return statement;
}

/*
 * Returns true if a Galera node reported error 1205 for a SELECT outside a transaction, which waits for no row: the
 * node has lost its peers and cannot learn which transactions it lacks. (A statement on a table gets 1047 immediately.)
 */
static bool session_lost_peers(const struct session *session, struct bytes sql, enum permit_status status)
{
    static const char read[] = "SELECT";
    bool outside = !(session->mysql && session->mysql->server_status & SERVER_STATUS_IN_TRANS);
    return status == PERMIT_LOCK_TIMEOUT && session->clustered && outside && sql.length >= sizeof read - 1 &&
           !memcmp(sql.data, read, sizeof read - 1);
}

static enum permit_status session_query(struct session *session, struct bytes sql)
{
    bool failed = mysql_real_query(session->mysql, sql.data, (unsigned long)sql.length) != 0;
    enum permit_status status = session_take_result(session, failed);
    if (session_lost_peers(session, sql, status)) {
        status = session->packet_status = PERMIT_DATABASE_UNAVAILABLE;
        session_drop(session);
    }
    return status;
}

/* Refuses a packet of more than `max` bytes. */
static enum permit_status session_refuse_packet(struct session *session, size_t max)
{
    char sentence[STORE_MESSAGE_SIZE];
    snprintf(sentence, sizeof sentence,
             "the call would need a packet to the database of more than %zu bytes (max_allowed_packet)", max);
    return session_refuse(session, PERMIT_TOO_LARGE, sentence);
}

enum permit_status session_send(struct session *session, struct bytes sql)
{
    assert(session->thread == &sessions_of_thread);
    session_free_result(session);
    session->packet_status = PERMIT_OK;
    session_clear_message(session);
    session->unsent.length = 0;
    if (!session->mysql)
        return session->packet_status = session_refuse(session, PERMIT_DATABASE_LOST, "not connected to the database");
    if (session->max_packet && sql.length > session->max_packet)
        return session->packet_status = session_refuse_packet(session, session->max_packet);
    if (!session->clustered)
        return session_query(session, sql);
    buf_clear(&session->packet);
    buf_append(&session->packet, sql.data, sql.length);
    if (session->packet.broken)
        return session->packet_status = session_refuse(session, PERMIT_NO_MEMORY, "no memory for a packet");
    session->unsent = (struct bytes){session->packet.data, session->packet.length};
    return session_query(session, session_cut_statement(session));
}

bool session_row(struct session *session, struct session_row *ret_row)
{
    if (!session->result)
        return false;
    MYSQL_ROW row = mysql_fetch_row(session->result);
    if (!row)
        return false;
    const unsigned long *lengths = mysql_fetch_lengths(session->result);
    for (unsigned i = 0; i < session->column_count; i++)
        session->columns[i] = (struct bytes){row[i], row[i] ? lengths[i] : 0};
    *ret_row = (struct session_row){session->columns, session->column_count};
    return true;
}

uint64_t session_affected(const struct session *session)
{
    return session->affected;
}

static bool session_has_more(const struct session *session)
{
    return session->packet_status == PERMIT_OK && session->mysql &&
           (session->unsent.length || mysql_more_results(session->mysql));
}

enum permit_status session_next(struct session *session)
{
    session_free_result(session);
    if (session->packet_status != PERMIT_OK)
        return session->packet_status;
    if (!session_has_more(session))
        return session->packet_status = session_refuse(session, PERMIT_INTERNAL, "the packet has no further statement");
    if (session->unsent.length)
        return session_query(session, session_cut_statement(session));
    return session_take_result(session, mysql_next_result(session->mysql) != 0);
}

enum permit_status session_finish(struct session *session)
{
    enum permit_status status = session->packet_status;
    while (session_has_more(session))
        status = session_next(session);
    session_free_result(session);
    /* After a failure found by permitd itself, the other results of the packet are still to be read from the server. */
    while (session->mysql && mysql_more_results(session->mysql) && mysql_next_result(session->mysql) == 0)
        mysql_free_result(mysql_store_result(session->mysql));
    return status;
}

enum permit_status session_check_packet(struct session *session, const struct buf *sql)
{
    if (sql->broken == BUF_TOO_LONG)
        return session_refuse_packet(session, sql->max);
    if (sql->broken)
        return session_refuse(session, PERMIT_NO_MEMORY, "no memory for a packet");
    return PERMIT_OK;
}

enum permit_status session_send_buf(struct session *session, const struct buf *sql)
{
    enum permit_status status = session_check_packet(session, sql);
    return status == PERMIT_OK ? session_send(session, (struct bytes){sql->data, sql->length}) : status;
}

enum permit_status session_end(struct session *session, enum permit_status status)
{
    enum permit_status finished = session_finish(session);
    return status != PERMIT_OK ? status : finished;
}

enum permit_status session_run(struct session *session, const char *sql)
{
    return session_end(session, session_send(session, bytes_of(sql)));
}

enum permit_status session_rollback(struct session *session)
{
    char cause[sizeof session->message];
    if (!session->mysql)
        return PERMIT_OK;
    memcpy(cause, session->message, sizeof cause);
    enum permit_status status = session_run(session, "ROLLBACK");
    if (status != PERMIT_OK)
        session_drop(session);
    else
        memcpy(session->message, cause, sizeof cause);
    return status;
}

enum permit_status session_ping(struct session *session)
{
    if (!session->mysql)
        return session_refuse(session, PERMIT_DATABASE_LOST, "not connected to the database");
    if (mysql_ping(session->mysql) != 0)
        return session_fail(session, "ping failed");
    session_clear_message(session);
    return PERMIT_OK;
}

uint64_t column_u64(struct bytes column)
{
    uint64_t number = 0;
    for (size_t i = 0; i < column.length && column.data[i] >= '0' && column.data[i] <= '9'; i++)
        number = number * 10 + (uint64_t)(column.data[i] - '0');
    return number;
}

int64_t column_i64(struct bytes column)
{
    bool negative = column.length > 0 && column.data[0] == '-';
    if (negative)
        column = (struct bytes){column.data + 1, column.length - 1};
    uint64_t number = column_u64(column);
    return negative ? (int64_t)(0 - number) : (int64_t)number;
}

/* ---- set-up ---- */

/* All settings that a session can set, completion_type, limits and autocommit included: servers may change defaults. */
#define SET_ALL                                                                                                        \
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;"                                              \
    "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN', sql_select_limit = DEFAULT, sql_safe_updates = 0,"      \
    " sql_mode = 'STRICT_TRANS_TABLES,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',"           \
    " time_zone = '+00:00', innodb_lock_wait_timeout = 2"

/* The server ends connection and transaction of a client that is silent for 5 s, such as a stopped permitd. */
#define SET_WORKER "SET SESSION wait_timeout = 5, net_read_timeout = 5, net_write_timeout = 5"

#define READ_BACK                                                                                                      \
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation', 'sql_mode', 'time_zone'," \
    " 'autocommit', 'innodb_lock_wait_timeout', 'max_allowed_packet', 'wsrep_on', 'wsrep_sync_wait',"                  \
    " 'group_replication_consistency')"

/* The settings to read back. A proxy or server that ignores SET would break promises silently. */
static const struct expectation {
    const char *name;
    const char *value;
    bool contained; /* `value` is part of the setting's value */
    bool optional;  /* some servers do not have it; of the two names of the isolation level one must exist */
} expectations[] = {
    {"transaction_isolation", "READ-COMMITTED", false, true},
    {"tx_isolation", "READ-COMMITTED", false, true},
    {"sql_mode", "STRICT_TRANS_TABLES", true, false},
    {"time_zone", "+00:00", false, false},
    {"autocommit", "ON", false, false},
    {"innodb_lock_wait_timeout", "2", false, false},
    {"wsrep_sync_wait", "1", false, true},
    {"group_replication_consistency", "BEFORE_ON_PRIMARY_FAILOVER", false, true},
};

enum { ISOLATION_ROWS = 2 }; /* the first rows of the table; one of them must exist */

static const struct expectation *expectation_find(struct bytes name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(expectations); i++)
        if (bytes_equal(name, bytes_of(expectations[i].name)))
            return &expectations[i];
    return NULL;
}

static bool expectation_is_met(const struct expectation *expected, struct bytes value)
{
    struct bytes wanted = bytes_of(expected->value);
    if (expected->contained)
        return value.data && memmem(value.data, value.length, wanted.data, wanted.length);
    return bytes_equal(value, wanted);
}

static enum permit_status session_refuse_setting(struct session *session, const char *name, struct bytes value,
                                                 const char *wanted)
{
    char sentence[400];
    snprintf(
        sentence, sizeof sentence,
        "the server does not take the session setting %s: it is '%.*s' and must be '%s'; connect to the server itself, "
        "not through a proxy that ignores SET",
        name, (int)min_i64((int64_t)value.length, 200), value.data ? value.data : "", wanted);
    return session_refuse(session, PERMIT_DATABASE_UNAVAILABLE, sentence);
}

/* A packet has a byte for the command before its text, and must be shorter than max_allowed_packet. */
static size_t max_packet_of(uint64_t allowed)
{
    enum { COMMAND = 1, SHORTER = 1 };
    return allowed > COMMAND + SHORTER ? allowed - COMMAND - SHORTER : 0;
}

static enum permit_status session_check_settings(struct session *session)
{
    bool seen[ARRAY_LENGTH(expectations)] = {false};
    struct session_row row;
    while (session_row(session, &row)) {
        if (bytes_equal(row.columns[0], BYTES("max_allowed_packet")))
            session->max_packet = max_packet_of(column_u64(row.columns[1]));
        if (bytes_equal(row.columns[0], BYTES("wsrep_on"))) /* statements of migrations may have a ';' in a comment */
            session->clustered = !use_has_no_database(session->use) && bytes_equal(row.columns[1], BYTES("ON"));
        const struct expectation *expected = expectation_find(row.columns[0]);
        if (!expected)
            continue;
        seen[expected - expectations] = true;
        if (!expectation_is_met(expected, row.columns[1]))
            return session_refuse_setting(session, expected->name, row.columns[1], expected->value);
    }
    for (size_t i = ISOLATION_ROWS; i < ARRAY_LENGTH(expectations); i++)
        if (!seen[i] && !expectations[i].optional)
            return session_refuse_setting(session, expectations[i].name, BYTES(""), expectations[i].value);
    if (!seen[0] && !seen[1])
        return session_refuse_setting(session, expectations[0].name, BYTES(""), expectations[0].value);
    return session->max_packet ? PERMIT_OK
                               : session_refuse(session, PERMIT_DATABASE_UNAVAILABLE, "max_allowed_packet is unknown");
}

static enum permit_status session_read_back(struct session *session)
{
    enum permit_status status = session_send(session, BYTES(READ_BACK));
    if (status == PERMIT_OK)
        status = session_check_settings(session);
    return session_end(session, status);
}

/* Runs a statement on a named lock. *ret_number is its only value; 0 for NULL. `format` takes the name. */
static enum permit_status session_query_lock(struct session *session, const char *format, const char *name,
                                             uint64_t *ret_number)
{
    char sql[128];
    struct session_row row;
    uint64_t number = 0;
    snprintf(sql, sizeof sql, format, name);
    enum permit_status status = session_send(session, bytes_of(sql));
    if (status == PERMIT_OK && session_row(session, &row))
        number = column_u64(row.columns[0]);
    status = session_end(session, status);
    if (status == PERMIT_OK)
        *ret_number = number;
    return status;
}

/*
 * Ends the lost connection at the server. It may still hold row locks, or be in a COMMIT. No promise depends on the
 * KILL; without it other transactions would wait for these locks until the connection times out.
 */
static enum permit_status session_kill_lost(struct session *session)
{
    enum { NO_SUCH_THREAD = 1094, NOT_OURS = 1095 }; /* it has just ended; it belongs to another user */
    uint64_t id = 0;
    if (!session->lost_lock[0])
        return PERMIT_OK;
    enum permit_status status = session_query_lock(session, "SELECT IS_USED_LOCK('%s')", session->lost_lock, &id);
    if (status == PERMIT_OK && id != 0) {
        char sql[64];
        snprintf(sql, sizeof sql, "KILL CONNECTION %" PRIu64, id);
        status = session_run(session, sql);
        if (session->last_errno == NO_SUCH_THREAD || session->last_errno == NOT_OURS)
            status = PERMIT_OK;
    }
    if (status == PERMIT_OK)
        session->lost_lock[0] = '\0';
    return status;
}

static enum permit_status session_take_lock(struct session *session)
{
    char uuid[UUID_TEXT_SIZE];
    char name[LOCK_NAME_SIZE];
    uint64_t taken = 0;
    uuid_make(uuid);
    snprintf(name, sizeof name, LOCK_PREFIX "%s", uuid);
    enum permit_status status = session_query_lock(session, "SELECT GET_LOCK('%s', 0)", name, &taken);
    if (status != PERMIT_OK)
        return status;
    if (taken != 1)
        return session_refuse(session, PERMIT_DATABASE_UNAVAILABLE,
                              "the server does not give a named lock (GET_LOCK) of our own; connect to the server "
                              "itself, not through a proxy that answers for it");
    memcpy(session->lock, name, sizeof session->lock);
    return PERMIT_OK;
}

/* Sets a variable; a server that does not have it is fine. */
static enum permit_status session_set_if_known(struct session *session, const char *sql)
{
    enum { UNKNOWN_VARIABLE = 1193 };
    enum permit_status status = session_run(session, sql);
    return session->last_errno == UNKNOWN_VARIABLE ? PERMIT_OK : status;
}

static enum permit_status session_set_up(struct session *session)
{
    bool worker = session->use == STORE_WORKER;
    const char *limit = session->mariadb ? DIALECT_LIST_MARIADB : DIALECT_LIST_MYSQL;
    const char *const packets[] = {SET_ALL, worker ? SET_WORKER : NULL, session->mariadb ? DIALECT_MARIADB : NULL,
                                   session->mariadb && worker ? DIALECT_MARIADB_WORKER : NULL,
                                   session->use == STORE_LIST ? limit : NULL};
    enum permit_status status = PERMIT_OK;
    for (size_t i = 0; i < ARRAY_LENGTH(packets) && status == PERMIT_OK; i++)
        if (packets[i])
            status = session_run(session, packets[i]);
    if (status == PERMIT_OK)
        status = session_set_if_known(session, session->mariadb ? DIALECT_CAUSAL_GALERA : DIALECT_CAUSAL_GROUP);
    if (status == PERMIT_OK)
        status = session_read_back(session);
    if (status == PERMIT_OK)
        status = session_kill_lost(session);
    if (status == PERMIT_OK && worker) /* only workers can leave a transaction behind */
        status = session_take_lock(session);
    return status;
}

static void session_set_options(struct session *session)
{
    MYSQL *mysql = session->mysql;
    unsigned no_local_infile = 0;
    mysql_options(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &timeouts[session->use].connect);
    mysql_options(mysql, MYSQL_OPT_READ_TIMEOUT, &timeouts[session->use].statement);
    mysql_options(mysql, MYSQL_OPT_WRITE_TIMEOUT, &timeouts[session->use].statement);
    mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_local_infile);
    mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    if (session->address->host && !session->address->socket) { /* TCP for an explicit "localhost" too */
        unsigned tcp = MYSQL_PROTOCOL_TCP;
        mysql_options(mysql, MYSQL_OPT_PROTOCOL, &tcp);
    }
#ifdef LIBMARIADB
    client_bool off = 0; /* libmysqlclient no longer reconnects by itself */
    mysql_options(mysql, MYSQL_OPT_RECONNECT, &off);
#endif
}

/*
 * Authentication plugins that prove or encrypt the password. Without TLS the client uses no other one, whatever the
 * server requests: mysql_clear_password and dialog send the password in the clear, mysql_old_password a weak hash.
 */
static const char plugins_without_tls[] =
    "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,auth_gssapi_client";

static void session_restrict_plugins(struct session *session)
{
    MYSQL *mysql = session->mysql;
#ifdef LIBMARIADB
    mysql_options(mysql, MARIADB_OPT_RESTRICTED_AUTH, plugins_without_tls);
#else
    /*
     * libmysqlclient accepts no list. The plugins that prove a password are built in, except mysql_native_password,
     * which is a file since 9.0: load it, then set a plugin directory without other files.
     */
    bool off = false, on = true;
    unsigned mode = SSL_MODE_DISABLED; /* the default, TLS without verification of the server, protects no password */
    (void)plugins_without_tls;
    (void)mysql_client_find_plugin(mysql, "mysql_native_password", MYSQL_CLIENT_AUTHENTICATION_PLUGIN);
    mysql_options(mysql, MYSQL_PLUGIN_DIR, "/nonexistent");
    mysql_options(mysql, MYSQL_ENABLE_CLEARTEXT_PLUGIN, &off);
    mysql_options(mysql, MYSQL_OPT_SSL_MODE, &mode);
    /* The key with which caching_sha2_password and sha256_password encrypt the password. Connector/C does this too. */
    mysql_options(mysql, MYSQL_OPT_GET_SERVER_PUBLIC_KEY, &on);
#endif
}

/*
 * Names the authorities of the system. The client libraries differ in what they take if none are named. As in other
 * programs, SSL_CERT_FILE and SSL_CERT_DIR in the environment replace them.
 */
static void session_set_system_authorities(MYSQL *mysql)
{
    const char *file = getenv(X509_get_default_cert_file_env());
    const char *directory = getenv(X509_get_default_cert_dir_env());
    if (!file && !directory) {
        file = X509_get_default_cert_file();
        directory = X509_get_default_cert_dir();
    }
    if (file && access(file, R_OK) == 0) /* Debian has the directory only */
        mysql_options(mysql, MYSQL_OPT_SSL_CA, file);
    if (directory)
        mysql_options(mysql, MYSQL_OPT_SSL_CAPATH, directory);
}

/*
 * With ssl_ca or ssl=verify: requires TLS and a server certificate with the server's name. Otherwise restricts the
 * plugins.
 */
static void session_set_tls(struct session *session)
{
    const struct database_address *address = session->address;
    if (!address->ssl_ca && !address->ssl_verify) {
        session_restrict_plugins(session);
        return;
    }
    if (address->ssl_ca)
        mysql_options(session->mysql, MYSQL_OPT_SSL_CA, address->ssl_ca);
    else
        session_set_system_authorities(session->mysql);
    if (address->ssl_cert) {
        mysql_options(session->mysql, MYSQL_OPT_SSL_CERT, address->ssl_cert);
        mysql_options(session->mysql, MYSQL_OPT_SSL_KEY, address->ssl_key);
    }
#ifdef LIBMARIADB
    client_bool on = 1;
    mysql_options(session->mysql, MYSQL_OPT_SSL_ENFORCE, &on);
    mysql_options(session->mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &on);
#else
    unsigned mode = SSL_MODE_VERIFY_IDENTITY;
    bool on = true; /* the default of Connector/C */
    mysql_options(session->mysql, MYSQL_OPT_SSL_MODE, &mode);
    mysql_options(session->mysql, MYSQL_ENABLE_CLEARTEXT_PLUGIN, &on);
#endif
}

static enum permit_status session_open(struct session *session)
{
    enum { PLUGIN_REFUSED = 5010 }; /* the plugin is not in plugins_without_tls */
    const struct database_address *address = session->address;
    session->mysql = mysql_init(NULL);
    if (!session->mysql)
        return session_refuse(session, PERMIT_NO_MEMORY, "no memory for a connection");
    session_set_options(session);
    session_set_tls(session);
    const char *database = use_has_no_database(session->use) ? NULL : address->database;
    if (!mysql_real_connect(session->mysql, address->socket ? NULL : address->host, address->user, address->password,
                            database, address->port, address->socket, CLIENT_MULTI_STATEMENTS))
        return session_fail(
            session, mysql_errno(session->mysql) == PLUGIN_REFUSED
                         ? "the server asks for a plugin that may reveal the password, which needs ssl_ca or ssl=verify"
                         : "cannot connect to the database");
    const char *version = mysql_get_server_info(session->mysql);
    if (!version) /* the connection is lost already */
        return session_refuse(session, PERMIT_DATABASE_UNAVAILABLE, "cannot connect to the database: lost connection");
    session->clustered = false;
    session->mariadb = strstr(version, "MariaDB") != NULL;
    return PERMIT_OK;
}

enum permit_status session_connect(struct session *session)
{
    assert(session->thread == &sessions_of_thread);
    if (session->mysql)
        return PERMIT_OK;
    enum permit_status status = session_open(session);
    if (status == PERMIT_OK)
        status = session_set_up(session);
    if (status == PERMIT_OK) {
        session_clear_message(session);
        return PERMIT_OK;
    }
    session_close(session);
    /* No transaction was open, so for the caller a lost connection is a server that cannot be reached. */
    return status == PERMIT_DATABASE_LOST ? PERMIT_DATABASE_UNAVAILABLE : status;
}
