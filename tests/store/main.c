/* SPDX-License-Identifier: MIT */
/*
 * Starts the MariaDB or MySQL that the tests share, runs the tests, stops it. Each test is a process of its own, and
 * finds the server through environment variables.
 */
#include <criterion/criterion.h>
#include <ftw.h>
#include <mysql.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/uuid.h"
#include "fixture.h"
#include "held_rows.h"
#include "mariadb/private_server.h"
#include "store/schema.h"
#include "testkit.h"

#define DIRECTORY_VARIABLE "PERMIT_STORE_TEST_DIRECTORY"
#define SOCKET_VARIABLE    "PERMIT_STORE_TEST_SOCKET"

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void fail(const char *what)
{
    cr_assert_fail("%s", what);
    abort(); /* not reached */
}

static char *text_made(const char *format, const char *a, int b, int c)
{
    char *text = NULL;
    if (asprintf(&text, format, a, b, c) < 0)
        abort();
    return text;
}

const struct database_address *fresh_address(void)
{
    enum { ADDRESSES_MAX = 128 };
    static struct database_address addresses[ADDRESSES_MAX]; /* kept to the end: sessions point to them */
    static size_t count;
    const char *socket = getenv(SOCKET_VARIABLE);
    if (!socket || count == ADDRESSES_MAX)
        fail("no shared server (run the executable by its own main), or too many databases in one test");
    addresses[count] = (struct database_address){
        .socket = text_made("%s", socket, 0, 0),
        .user = text_made("%s", "root", 0, 0),
        /* Not the process id: it may come again in one run, and with it a database that a test has spoilt. */
        .database = text_made("%s_%d_%d", "test", (int)(random_u64() >> 33), (int)count),
    };
    return &addresses[count++];
}

/* ---- a database as schema_apply makes it, and its copies: its migrations run once ---- */

#define TEMPLATE "template"

static char *template_path(void)
{
    return text_made("%s/template.sql", getenv(DIRECTORY_VARIABLE), 0, 0);
}

struct template_writer {
    struct kit_sql *sql;
    FILE *file;
};

static void write_table(void *context, char **columns)
{
    fprintf(((struct template_writer *)context)->file, ";%s", columns[1]);
}

/*
 * columns: the name of a table, its columns that are not generated, and what they are in a copy. A time that is the one of
 * the migration is that of the copy.
 */
static void write_table_and_rows(void *context, char **columns)
{
    struct template_writer *writer = context;
    char *show = text_made("SHOW CREATE TABLE " TEMPLATE ".`%s`", columns[0], 0, 0);
    kit_sql_each(writer->sql, show, write_table, writer);
    free(show);
    if (kit_sql_number(writer->sql, "SELECT COUNT(*) FROM " TEMPLATE ".`%s`", columns[0]) > 0)
        fprintf(writer->file, ";INSERT INTO `%s` (%s) SELECT %s FROM " TEMPLATE ".`%s`", columns[0], columns[1],
                columns[2], columns[0]);
}

static void template_make(struct kit_sql *sql, const char *socket)
{
    char user[] = "root", name[] = TEMPLATE;
    const struct database_address address = {.socket = text_made("%s", socket, 0, 0), .user = user, .database = name};
    struct session *session = connected(&address, STORE_ADMIN);
    struct buf message;
    buf_init(&message, 4000);
    if (schema_apply(session, TEMPLATE, &message) != PERMIT_OK)
        fail(buf_text(&message));
    buf_release(&message);
    session_free(session);
    kit_sql_run(sql, "SET SESSION group_concat_max_len = 100000");
    char *path = template_path();
    struct template_writer writer = {sql, fopen(path, "we")};
    if (!writer.file)
        fail(path);
    kit_sql_each(sql,
                 "SELECT TABLE_NAME, GROUP_CONCAT('`', COLUMN_NAME, '`' ORDER BY ORDINAL_POSITION),"
                 " GROUP_CONCAT(IF(DATA_TYPE = 'datetime', REPLACE('IF(? > UTC_TIMESTAMP() - INTERVAL 1 DAY,"
                 " UTC_TIMESTAMP(6), ?)', '?', COLUMN_NAME), CONCAT('`', COLUMN_NAME, '`')) ORDER BY ORDINAL_POSITION)"
                 " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '" TEMPLATE "'"
                 " AND COALESCE(GENERATION_EXPRESSION, '') = '' GROUP BY TABLE_NAME",
                 write_table_and_rows, &writer);
    fclose(writer.file);
    free(path);
    free(address.socket);
}

const struct database_address *fresh_database(void)
{
    const struct database_address *address = fresh_address();
    struct session *session = connected(address, STORE_ADMIN);
    char *path = template_path();
    char *tables = kit_read_file(path);
    cr_assert_not_null(tables);
    char *create = text_made("CREATE DATABASE `%s` DEFAULT CHARACTER SET utf8mb4; USE `", address->database, 0, 0);
    char *all = NULL;
    cr_assert_geq(asprintf(&all, "%s%s`%s", create, address->database, tables), 0);
    must_run(session, all);
    free(all);
    free(create);
    free(tables);
    free(path);
    session_free(session);
    return address;
}

struct session *connected(const struct database_address *address, enum store_use use)
{
    struct session *session = session_new(address, use);
    cr_assert_not_null(session);
    if (session_connect(session) != PERMIT_OK)
        fail(session_message(session));
    return session;
}

struct store *opened(const struct database_address *address, enum store_use use)
{
    struct store *store = store_open(address, use, NULL);
    cr_assert_not_null(store);
    if (store->session->reconnect(store) != PERMIT_OK)
        fail(store->message);
    return store;
}

void must_run(struct session *session, const char *sql)
{
    if (session_run(session, sql) != PERMIT_OK)
        cr_assert_fail("%s: %s", sql, session_message(session));
}

void must_run_long(const struct database_address *address, const char *sql)
{
    struct session *admin = connected(address, STORE_ADMIN);
    char *all = text_made("USE %s;", address->database, 0, 0);
    must_run(admin, all);
    must_run(admin, sql);
    free(all);
    session_free(admin);
}

void held_rewrite(const struct database_address *address)
{
    must_run_long(address, "DELETE FROM held;DELETE FROM waiting_due;" HELD_ROWS_ADD("1 = 1"));
    must_run_long(address, "INSERT INTO waiting_due (due_s, permit_request_id) SELECT " HELD_ROWS_DUE_S(
                               "due_at") ", id FROM permit_request WHERE state = 3");
}

const char *text_of(struct session *session, const char *sql)
{
    static char text[4096];
    struct session_row row;
    if (session_send(session, bytes_of(sql)) != PERMIT_OK)
        fail(session_message(session));
    if (!session_row(session, &row))
        fail(sql);
    snprintf(text, sizeof text, "%.*s", (int)row.columns[0].length, row.columns[0].data ? row.columns[0].data : "NULL");
    cr_assert_eq(session_finish(session), PERMIT_OK);
    return text;
}

int64_t number_of(struct session *session, const char *sql)
{
    return strtoll(text_of(session, sql), NULL, 10);
}

void lock_max_packet(struct session *session)
{
    enum { TRIES_MAX = 500 }; /* of a second each: a session ends longer statements */
    int tries = 0;
    while (number_of(session, "SELECT GET_LOCK('max_allowed_packet', 1)") != 1)
        cr_assert_lt(tries++, TRIES_MAX);
}

int64_t counter_of(struct session *session, const char *names)
{
    int64_t sum = 0;
    struct session_row row;
    char *sql = text_made("SHOW SESSION STATUS LIKE '%s'", names, 0, 0);
    cr_assert_eq(session_send(session, bytes_of(sql)), PERMIT_OK, "%s", session_message(session));
    while (session_row(session, &row))
        sum += column_i64(row.columns[1]);
    cr_assert_eq(session_finish(session), PERMIT_OK);
    free(sql);
    return sum;
}

int64_t rows_read(struct session *session)
{
    static int64_t last; /* of the last call, with its own reads */
    static const char handlers[] = "Handler_read%";
    int64_t now = counter_of(session, handlers);
    int64_t after = counter_of(session, handlers); /* includes the reads of this query */
    int64_t read = now - last;
    last = after + (after - now);
    return read;
}

const char *isolation_of(struct session *session)
{
    bool mariadb = session_is_mariadb(session); /* before 11.1 it knows only the old name */
    return text_of(session, mariadb ? "SELECT @@tx_isolation" : "SELECT @@transaction_isolation");
}

bool in_transaction(struct session *session)
{
    if (session_is_mariadb(session))
        return number_of(session, "SELECT @@in_transaction") == 1;
    return number_of(session,
                     "SELECT COUNT(*) FROM performance_schema.events_transactions_current"
                     " WHERE state = 'ACTIVE' AND autocommit = 'NO' AND thread_id = PS_CURRENT_THREAD_ID()") > 0;
}

size_t explain(struct session *session, const char *packet, struct explained *ret_tables, size_t most)
{
    static char sql[1 << 20];
    static char texts[1 << 16];
    size_t count = 0, length = 0;
    struct session_row row;
    snprintf(sql, sizeof sql, "EXPLAIN FORMAT=TRADITIONAL %.*s", (int)strcspn(packet, ";"), packet);
    if (session_send(session, bytes_of(sql)) != PERMIT_OK)
        cr_assert_fail("%s: %s", sql, session_message(session));
    for (; session_row(session, &row); count++) {
        /* id, select_type, table, type, possible_keys, key, key_len, ref, rows, Extra; MySQL has partitions before type
         * and filtered before Extra. */
        size_t more = row.count > 10 ? 1 : 0;
        const size_t columns[] = {2, 3 + more, 5 + more, row.count - 1};
        if (count >= most)
            continue;
        struct bytes *fields[] = {&ret_tables[count].table, &ret_tables[count].type, &ret_tables[count].key,
                                  &ret_tables[count].extra};
        for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
            struct bytes value = row.columns[columns[i]];
            cr_assert_lt(length + value.length, sizeof texts);
            *fields[i] = (struct bytes){texts + length, value.length};
            if (value.length)
                memcpy(texts + length, value.data, value.length);
            length += value.length;
        }
        ret_tables[count].rows = column_i64(row.columns[8 + more]);
    }
    cr_assert_eq(session_finish(session), PERMIT_OK);
    return count;
}

void walks(struct session *session, const char *statement, const char *const *keys)
{
    struct explained tables[6];
    size_t count = explain(session, statement, tables, ARRAY_LENGTH(tables));
    for (size_t i = 0; keys[i]; i++) {
        cr_assert_lt(i, count, "%s", statement);
        cr_assert(bytes_equal(tables[i].key, bytes_of(keys[i])), "%s: key %.*s", statement, (int)tables[i].key.length,
                  tables[i].key.data);
        cr_assert(!bytes_equal(tables[i].type, BYTES("ALL")) && !bytes_equal(tables[i].type, BYTES("index")), "%s",
                  statement);
        cr_assert(!memmem(tables[i].extra.data, tables[i].extra.length, "filesort", 8), "%s sorts", statement);
    }
}

/* Of the linker (CMakeLists.txt): __wrap_mysql_real_query stands for mysql_real_query. */
int __real_mysql_real_query(MYSQL *mysql, const char *sql, unsigned long length);
int __wrap_mysql_real_query(MYSQL *mysql, const char *sql, unsigned long length);

static char *sent; /* packets, each ended by ';'; NULL: nothing is recorded */
static size_t sent_length;

int __wrap_mysql_real_query(MYSQL *mysql, const char *sql, unsigned long length)
{
    if (sent) {
        sent = realloc(sent, sent_length + length + 2);
        memcpy(sent + sent_length, sql, length);
        sent_length += length;
        sent[sent_length++] = ';';
        sent[sent_length] = 0;
    }
    return __real_mysql_real_query(mysql, sql, length);
}

void sent_record(void)
{
    free(sent);
    sent = calloc(1, 1);
    sent_length = 0;
}

const char *sent_text(void)
{
    return sent;
}

size_t statements_sent(void)
{
    size_t count = 0;
    for (const char *at = sent; *at; at++)
        count += *at == ';';
    return count;
}

const char *sent_statement_with(const char *beginning, const char *part)
{
    static char statement[1 << 16];
    const char *found = NULL;
    for (const char *at = strstr(sent, beginning); at; at = strstr(at + 1, beginning))
        if (memmem(at, strcspn(at, ";"), part, strlen(part)))
            found = at;
    cr_assert(found, "no statement begins with %s and has %s in: %s", beginning, part, sent);
    snprintf(statement, sizeof statement, "%.*s", (int)strcspn(found, ";"), found);
    return statement;
}

const char *sent_statement(const char *beginning)
{
    return sent_statement_with(beginning, "");
}

char *temporary_directory(void)
{
    char *path = text_made("%s/test-%d-XXXXXX", getenv(DIRECTORY_VARIABLE), (int)getpid(), 0);
    if (!mkdtemp(path))
        fail("no temporary directory");
    return path;
}

static int run_tests(int argc, char **argv, const char *socket)
{
    struct kit_sql *sql = kit_sql_open(socket, NULL);
    kit_sql_make_numbers(sql);
    template_make(sql, socket);
    kit_sql_close(sql);
    setenv(SOCKET_VARIABLE, socket, 1);
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    return result;
}

static int run_with_mysql(int argc, char **argv)
{
    static const char *const flags[] = {"--max-allowed-packet=16M", NULL};
    struct kit_database *database = kit_database_start(flags);
    int result = run_tests(argc, argv, database->socket);
    kit_database_stop(database);
    return result;
}

const struct data_dir_user root_is_allowed = {.allow_root = true};

bool server_start(const char *directory, struct private_server **ret_server, struct buf *message)
{
    const struct private_server_options options = {directory, root_is_allowed, BUFFER_POOL};
    struct private_server *server;
    if (!private_server_open(&options, &server, message))
        return false;
    if (private_server_begin(server, message) && private_server_wait(server, message)) {
        *ret_server = server;
        return true;
    }
    private_server_stop(server);
    return false;
}

/* Runs the tests on permitd's private MariaDB, with its settings. */
static int run_with_mariadb(int argc, char **argv, const char *directory)
{
    struct private_server *server = NULL;
    struct buf message;
    buf_init(&message, 8000);
    char *shared = text_made("%s/shared", directory, 0, 0);
    if (!server_start(shared, &server, &message)) {
        fprintf(stderr, "the shared MariaDB: %s\n", buf_text(&message));
        return 2;
    }
    int result = run_tests(argc, argv, private_server_address(server)->socket);
    private_server_stop(server);
    buf_release(&message);
    free(shared);
    return result;
}

int main(int argc, char **argv)
{
    enum { OPEN_DIRECTORIES = 16 };
    const char *parent = getenv("TMPDIR");
    char *directory = text_made("%s/permit-store-XXXXXX", parent && *parent ? parent : "/tmp", 0, 0);
    if (!store_library_begin() || !mkdtemp(directory) || setenv(DIRECTORY_VARIABLE, directory, 1) != 0)
        return 2;
    int result = kit_database_is_mysql() ? run_with_mysql(argc, argv) : run_with_mariadb(argc, argv, directory);
    (void)nftw(directory, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS);
    free(directory);
    store_library_end();
    return result;
}
