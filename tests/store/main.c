/* SPDX-License-Identifier: MIT */
/* Starts the MariaDB that the tests share, runs them, stops it. Each test is a process of its own; it finds the server
 * by its environment. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/embedded.h"
#include "store/schema.h"
#include "support.h"

#define DIRECTORY_VARIABLE "PERMIT_STORE_TEST_DIRECTORY"

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
    enum { ADDRESSES_MAX = 16 };
    static struct database_address addresses[ADDRESSES_MAX]; /* kept to the end: sessions point to them */
    static size_t count;
    const char *directory = getenv(DIRECTORY_VARIABLE);
    if (!directory || count == ADDRESSES_MAX)
        fail("no shared server (run the executable by its own main), or too many databases in one test");
    addresses[count] = (struct database_address){
        .socket = text_made("%s/shared/mariadb.sock", directory, 0, 0),
        .user = text_made("%s", "root", 0, 0),
        .database = text_made("%s_%d_%d", "test", (int)getpid(), (int)count),
    };
    return &addresses[count++];
}

const struct database_address *fresh_database(void)
{
    struct buf message;
    const struct database_address *address = fresh_address();
    struct session *session = connected(address, SESSION_ADMIN);
    buf_init(&message, 4000);
    if (schema_apply(session, address->database, &message) != PERMIT_OK)
        fail(buf_text(&message));
    session_free(session);
    buf_release(&message);
    return address;
}

struct session *connected(const struct database_address *address, enum session_use use)
{
    struct session *session = session_new(address, use);
    cr_assert_not_null(session);
    if (session_connect(session) != PERMIT_OK)
        fail(session_message(session));
    return session;
}

void must_run(struct session *session, const char *sql)
{
    if (session_run(session, sql) != PERMIT_OK)
        cr_assert_fail("%s: %s", sql, session_message(session));
}

void must_run_long(const struct database_address *address, const char *sql)
{
    struct session *admin = connected(address, SESSION_ADMIN);
    char *all = text_made("USE %s;", address->database, 0, 0);
    must_run(admin, all);
    must_run(admin, sql);
    free(all);
    session_free(admin);
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

char *temporary_directory(void)
{
    char *path = text_made("%s/test-%d-XXXXXX", getenv(DIRECTORY_VARIABLE), (int)getpid(), 0);
    if (!mkdtemp(path))
        fail("no temporary directory");
    return path;
}

static int run_with_server(int argc, char **argv, const char *directory)
{
    struct embedded *embedded = NULL;
    struct buf message;
    buf_init(&message, 8000);
    char *shared = text_made("%s/shared", directory, 0, 0);
    if (!embedded_start(shared, &embedded, &message)) {
        fprintf(stderr, "the shared MariaDB: %s\n", buf_text(&message));
        return 2;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    embedded_stop(embedded);
    buf_release(&message);
    free(shared);
    return result;
}

int main(int argc, char **argv)
{
    enum { OPEN_DIRECTORIES = 16 };
    char directory[] = "/tmp/permit-store-XXXXXX";
    (void)setenv("LIBMYSQL_ENABLE_CLEARTEXT_PLUGIN", "1", 1); /* which must change nothing (plugins.c) */
    if (!session_library_begin() || !mkdtemp(directory) || setenv(DIRECTORY_VARIABLE, directory, 1) != 0)
        return 2;
    int result = run_with_server(argc, argv, directory);
    (void)nftw(directory, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS);
    session_library_end();
    return result;
}
