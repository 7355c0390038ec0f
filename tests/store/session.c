/* SPDX-License-Identifier: MIT */
/* Sessions: the meaning of errors, settings that are read back, packets, and lost connections. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/clock.h"
#include "fixture.h"
#include "testkit.h"

static const struct {
    unsigned value;
    enum permit_status status;
} meanings[] = {
    {0, PERMIT_OK},
    {1213, PERMIT_CONFLICT},
    {1020, PERMIT_CONFLICT},
    {1062, PERMIT_CONFLICT},
    {1205, PERMIT_LOCK_TIMEOUT},
    {2006, PERMIT_DATABASE_LOST},
    {2013, PERMIT_DATABASE_LOST},
    {2055, PERMIT_DATABASE_LOST},
    {1180, PERMIT_DATABASE_LOST},
    {1053, PERMIT_DATABASE_LOST},
    {1927, PERMIT_DATABASE_LOST},
    {1317, PERMIT_DATABASE_LOST},
    {1290, PERMIT_DATABASE_UNAVAILABLE},
    {1792, PERMIT_DATABASE_UNAVAILABLE},
    {1836, PERMIT_DATABASE_UNAVAILABLE},
    {3781, PERMIT_DATABASE_UNAVAILABLE},
    {3782, PERMIT_DATABASE_UNAVAILABLE},
    {3783, PERMIT_DATABASE_UNAVAILABLE},
    {1047, PERMIT_DATABASE_UNAVAILABLE},
    {1040, PERMIT_DATABASE_UNAVAILABLE},
    {1203, PERMIT_DATABASE_UNAVAILABLE},
    {2002, PERMIT_DATABASE_UNAVAILABLE},
    {2003, PERMIT_DATABASE_UNAVAILABLE},
    {2005, PERMIT_DATABASE_UNAVAILABLE},
    {1044, PERMIT_DATABASE_UNAVAILABLE},
    {1045, PERMIT_DATABASE_UNAVAILABLE},
    {1049, PERMIT_DATABASE_UNAVAILABLE},
    {1130, PERMIT_DATABASE_UNAVAILABLE},
    {1021, PERMIT_DATABASE_FULL},
    {1030, PERMIT_DATABASE_FULL},
    {1041, PERMIT_DATABASE_FULL},
    {1114, PERMIT_DATABASE_FULL},
    {2008, PERMIT_NO_MEMORY},
    {1153, PERMIT_TOO_LARGE},
    {2020, PERMIT_TOO_LARGE},
    {1048, PERMIT_INTERNAL},
    {1690, PERMIT_INTERNAL},
    {1064, PERMIT_INTERNAL},
    {1242, PERMIT_INTERNAL},
    {99999, PERMIT_INTERNAL},
};

Test(session, every_error_has_its_status)
{
    for (size_t i = 0; i < ARRAY_LENGTH(meanings); i++)
        cr_assert_eq(session_classify(meanings[i].value), meanings[i].status, "%u is taken for %s", meanings[i].value,
                     permit_status_word(session_classify(meanings[i].value)));
}

/* A packet that is longer than the server accepts would lose the connection, and leave its outcome unknown. */
Test(session, packet_is_sent_up_to_the_limit_of_the_server)
{
    enum { MIB = 1 << 20 };
    struct session *observer = connected(fresh_database(), STORE_ADMIN);
    lock_max_packet(observer);
    int64_t usual = number_of(observer, "SELECT @@GLOBAL.max_allowed_packet");
    char back[100];
    snprintf(back, sizeof back, "SET GLOBAL max_allowed_packet = %lld", (long long)usual);
    must_run(observer, "SET GLOBAL max_allowed_packet = 1048576");
    struct session *session = connected(fresh_database(), STORE_WORKER);
    must_run(observer, back);
    cr_assert_eq(session_max_packet(session), MIB - 2);
    int64_t id = number_of(session, "SELECT CONNECTION_ID()");
    struct buf sql;
    buf_init(&sql, 2 * MIB);
    buf_append_text(&sql, "SELECT 42 /*");
    while (sql.length < session_max_packet(session) - 2)
        buf_append_char(&sql, '-');
    buf_append_text(&sql, "*/");
    cr_assert_eq(sql.length, session_max_packet(session));
    cr_expect_eq(session_send_buf(session, &sql), PERMIT_OK, "%s", session_message(session));
    cr_expect_eq(session_finish(session), PERMIT_OK);
    buf_append_char(&sql, ' ');
    cr_expect_eq(session_send_buf(session, &sql), PERMIT_TOO_LARGE);
    cr_expect_not_null(strstr(session_message(session), "1048574 bytes (max_allowed_packet)"), "%s",
                       session_message(session));
    cr_expect_eq(number_of(session, "SELECT CONNECTION_ID()"), id, "nothing was sent");
    buf_release(&sql);
    session_free(session);
    session_free(observer);
}

Test(session, settings_are_those_the_promises_need)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    cr_assert_str_eq(isolation_of(session), "READ-COMMITTED");
    cr_assert(strstr(text_of(session, "SELECT @@sql_mode"), "STRICT_TRANS_TABLES"));
    cr_assert_str_eq(text_of(session, "SELECT @@time_zone"), "+00:00");
    cr_assert_eq(number_of(session, "SELECT @@autocommit"), 1);
    cr_assert_eq(number_of(session, "SELECT @@innodb_lock_wait_timeout"), 2);
    cr_assert_eq(number_of(session, "SELECT @@wait_timeout"), 5);
    cr_assert_eq(number_of(session, "SELECT @@net_write_timeout"), 5);
    cr_assert_eq(session_max_packet(session), (size_t)number_of(session, "SELECT @@max_allowed_packet") - 2);
    cr_assert_eq(session_is_mariadb(session), !kit_database_is_mysql());
    if (session_is_mariadb(session)) {
        cr_assert_eq(number_of(session, "SELECT @@idle_transaction_timeout"), 5);
        cr_assert_eq(number_of(session, "SELECT @@in_predicate_conversion_threshold"), 0);
        cr_assert_eq(number_of(session, "SELECT @@wsrep_sync_wait"), 1);
    }
    session_free(session);
}

Test(session, reader_may_be_idle_for_long)
{
    struct session *session = connected(fresh_database(), STORE_READER);
    cr_assert_gt(number_of(session, "SELECT @@wait_timeout"), 5);
    session_free(session);
}

Test(session, packet_is_read_statement_by_statement)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    struct session_row row;
    cr_assert_eq(session_send(session, BYTES("SELECT 7, NULL, x'0061', -3; CREATE TABLE t (a INT PRIMARY KEY);"
                                             "INSERT INTO t VALUES (1), (2), (3); SELECT a FROM t WHERE a > 1")),
                 PERMIT_OK);
    cr_assert(session_row(session, &row));
    cr_assert_eq(row.count, 4);
    cr_assert_eq(column_u64(row.columns[0]), 7);
    cr_assert_null(row.columns[1].data);
    cr_assert(bytes_equal(row.columns[2], BYTES("\0a")));
    cr_assert_eq(column_i64(row.columns[3]), -3);
    cr_assert_not(session_row(session, &row));
    cr_assert_eq(session_next(session), PERMIT_OK);
    cr_assert_not(session_row(session, &row));
    cr_assert_eq(session_next(session), PERMIT_OK);
    cr_assert_eq(session_affected(session), 3);
    cr_assert_eq(session_next(session), PERMIT_OK);
    cr_assert_eq(session_affected(session), 2);
    cr_assert_eq(session_finish(session), PERMIT_OK);
    session_free(session);
}

Test(session, failure_ends_the_packet_and_leaves_the_session_usable)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    must_run(session, "CREATE TABLE t (a INT NOT NULL)");
    cr_assert_eq(session_run(session, "INSERT INTO t VALUES (1); UPDATE t SET a = NULL; INSERT INTO t VALUES (2)"),
                 PERMIT_INTERNAL);
    cr_assert_eq(session_errno(session), 1048);
    cr_assert_neq(session_message(session)[0], '\0');
    cr_assert_eq(number_of(session, "SELECT COUNT(*) FROM t"), 1);
    cr_assert_eq(session_message(session)[0], '\0');
    session_free(session);
}

Test(session, rollback_keeps_the_message_of_the_failure)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    must_run(session, "BEGIN");
    cr_assert_eq(session_run(session, "SELECT * FROM missing"), PERMIT_INTERNAL);
    cr_assert_eq(session_rollback(session), PERMIT_OK);
    cr_assert(strstr(session_message(session), "missing"), "%s", session_message(session));
    must_run(session, "BEGIN");
    cr_assert_eq(session_rollback(session), PERMIT_OK);
    cr_assert_str_eq(session_message(session), "");
    session_free(session);
}

Test(session, unread_results_are_discarded)
{
    struct session *session = connected(fresh_database(), STORE_WORKER);
    cr_assert_eq(session_send(session, BYTES("SELECT 1; SELECT 2; SELECT 3")), PERMIT_OK);
    cr_assert_eq(session_finish(session), PERMIT_OK);
    cr_assert_eq(number_of(session, "SELECT 4"), 4);
    session_free(session);
}

static void kill_connection(const struct database_address *address, int64_t id)
{
    char sql[64];
    struct session *other = connected(address, STORE_READER);
    snprintf(sql, sizeof sql, "KILL CONNECTION %lld", (long long)id);
    must_run(other, sql);
    session_free(other);
}

Test(session, killed_connection_is_lost_and_can_be_reopened)
{
    const struct database_address *address = fresh_database();
    struct session *session = connected(address, STORE_WORKER);
    kill_connection(address, number_of(session, "SELECT CONNECTION_ID()"));
    cr_assert_eq(session_ping(session), PERMIT_DATABASE_LOST);
    cr_assert_not(session_is_connected(session));
    cr_assert_eq(session_run(session, "SELECT 1"), PERMIT_DATABASE_LOST);
    cr_assert_eq(session_connect(session), PERMIT_OK);
    cr_assert_eq(number_of(session, "SELECT 1"), 1);
    session_free(session);
}

/*
 * The server does not notice a disconnected client while it executes; without the KILL it would hold the row for a
 * minute.
 */
Test(session, work_of_a_lost_connection_is_ended_by_the_next)
{
    const struct database_address *address = fresh_database();
    struct session *lost = connected(address, STORE_WORKER);
    struct session *other = connected(address, STORE_WORKER);
    must_run(lost, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)");
    mono_us began = clock_mono();
    cr_assert_eq(session_run(lost, "BEGIN; SELECT * FROM t FOR UPDATE; SELECT SLEEP(60)"), PERMIT_DATABASE_LOST);
    cr_assert_lt(clock_mono() - began, 30 * US_PER_SECOND, "the read time-out is 7 s");
    cr_assert_eq(session_connect(other), PERMIT_OK);
    cr_assert_eq(session_connect(lost), PERMIT_OK);
    if (session_ping(other) != PERMIT_OK) /* idle for longer than its wait_timeout */
        cr_assert_eq(session_connect(other), PERMIT_OK);
    must_run(other, "BEGIN; SELECT * FROM t FOR UPDATE; ROLLBACK"); /* a lock wait takes at most 5 s */
    session_free(lost);
    session_free(other);
}

/* A later connection uses the lock to find out whether the server still has this session. */
Test(session, only_a_worker_holds_a_named_lock)
{
    static const char locks[] = "SELECT COUNT(*) FROM information_schema.METADATA_LOCK_INFO"
                                " WHERE TABLE_SCHEMA LIKE 'permitd-%' AND THREAD_ID = ";
    static const enum store_use uses[] = {STORE_WORKER, STORE_READER, STORE_LIST,
                                          STORE_PROBE,  STORE_ADMIN,  STORE_SCHEMA};
    char sql[200];
    const struct database_address *address = fresh_database();
    struct session *looker = connected(address, STORE_ADMIN);
    if (session_run(looker, "INSTALL SONAME 'metadata_lock_info'") != PERMIT_OK)
        cr_skip_test("this server has no plugin that shows locks");
    for (size_t i = 0; i < ARRAY_LENGTH(uses); i++) {
        struct session *session = connected(address, uses[i]);
        snprintf(sql, sizeof sql, "%s%lld", locks, (long long)number_of(session, "SELECT CONNECTION_ID()"));
        cr_assert_eq(number_of(looker, sql), uses[i] == STORE_WORKER, "use %d", (int)uses[i]);
        session_free(session);
    }
    session_free(looker);
}

Test(session, locked_row_is_waited_for_two_seconds)
{
    const struct database_address *address = fresh_database();
    struct session *holder = connected(address, STORE_ADMIN);
    struct session *waiter = connected(address, STORE_WORKER);
    char sql[100];
    snprintf(sql, sizeof sql, "USE %s; BEGIN; SELECT * FROM id_block FOR UPDATE", address->database);
    must_run(holder, sql);
    mono_us began = clock_mono();
    cr_assert_eq(session_run(waiter, "SELECT * FROM id_block FOR UPDATE"), PERMIT_LOCK_TIMEOUT);
    cr_assert_geq(clock_mono() - began, 1 * US_PER_SECOND);
    cr_assert_lt(clock_mono() - began, 30 * US_PER_SECOND);
    cr_assert(session_is_connected(waiter));
    session_free(waiter);
    session_free(holder);
}

/*
 * The server ends a slow list, so that no part of it keeps running and the connection stays usable. (permitd's own
 * timeout, two seconds later, comes first if the server has no time.)
 */
Test(session, slow_list_is_ended)
{
    enum { TRIES = 10 };
    const struct database_address *address = fresh_database();
    struct session *holder = connected(address, STORE_ADMIN);
    struct session *list = connected(address, STORE_LIST);
    static const char *const lists[] = {"SELECT 1; SELECT SLEEP(60) FROM numbers.upto", "SELECT * FROM id_block"};
    char sql[100];
    snprintf(sql, sizeof sql, "USE %s; LOCK TABLES id_block WRITE", address->database);
    must_run(holder, sql);
    for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
        int64_t id = number_of(list, "SELECT CONNECTION_ID()");
        enum permit_status status = session_run(list, lists[i]);
        for (int tries = 0; status == PERMIT_DATABASE_LOST && tries < TRIES; tries++) {
            cr_assert_eq(session_connect(list), PERMIT_OK, "%s", session_message(list));
            id = number_of(list, "SELECT CONNECTION_ID()");
            status = session_run(list, lists[i]);
        }
        cr_assert_eq(status, PERMIT_BUSY, "%s: %s", lists[i], session_message(list));
        cr_assert_eq(number_of(list, "SELECT CONNECTION_ID()"), id);
    }
    session_free(list);
    session_free(holder);
}

Test(session, missing_server_or_database_is_unavailable_with_a_reason)
{
    struct database_address nowhere = {.socket = (char[]){"/nonexistent/mariadb.sock"}, .user = (char[]){"root"}};
    struct session *session = session_new(&nowhere, STORE_WORKER);
    cr_assert_eq(session_connect(session), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_neq(session_message(session)[0], '\0');
    session_free(session);
    session = session_new(fresh_address(), STORE_WORKER);
    cr_assert_eq(session_connect(session), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(session_errno(session), 1049);
    session_free(session);
}

/* No server listens on TCP here. */
Test(session, socket_takes_precedence_over_host)
{
    struct database_address address = *fresh_database();
    address.host = (char[]){"localhost"};
    struct session *session = connected(&address, STORE_READER);
    session_free(session);
}

/* ---- addresses ---- */

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

Test(address, parts_may_be_given_or_omitted)
{
    static const struct {
        const char *url, *host, *socket, *user, *password, *database, *ssl_ca, *printed;
        unsigned port;
    } rows[] = {
        {"mysql://u@h:3306/d", "h", NULL, "u", NULL, "d", NULL, "mysql://u@h:3306/d", 3306},
        {"mysql://h/d", "h", NULL, NULL, NULL, "d", NULL, "mysql://h/d", 0},
        {"mysql://u:p%40%3Aq@h/d", "h", NULL, "u", "p@:q", "d", NULL, "mysql://u@h/d", 0},
        {"mysql:///d?socket=/run/x.sock", NULL, "/run/x.sock", NULL, NULL, "d", NULL, "mysql:///d?socket=/run/x.sock",
         0},
        {"mysql://u@/d?socket=%2Fa&ssl_ca=/ca", NULL, "/a", "u", NULL, "d", "/ca", "mysql://u@/d?socket=/a", 0},
        {"mariadb://[::1]:7/d", "::1", NULL, NULL, NULL, "d", NULL, "mysql://[::1]:7/d", 7},
        {"mysql://[::1]/d", "::1", NULL, NULL, NULL, "d", NULL, "mysql://[::1]/d", 0},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct database_address address;
        struct buf message;
        buf_init(&message, 1000);
        cr_assert(database_address_parse(rows[i].url, &address, &message), "%s: %s", rows[i].url, buf_text(&message));
        cr_assert(same_text(address.host, rows[i].host), "%s", rows[i].url);
        cr_assert(same_text(address.socket, rows[i].socket), "%s", rows[i].url);
        cr_assert(same_text(address.user, rows[i].user), "%s", rows[i].url);
        cr_assert(same_text(address.password, rows[i].password), "%s", rows[i].url);
        cr_assert(same_text(address.database, rows[i].database), "%s", rows[i].url);
        cr_assert(same_text(address.ssl_ca, rows[i].ssl_ca), "%s", rows[i].url);
        cr_assert_eq(address.port, rows[i].port);
        database_address_print(&address, &message);
        cr_assert_str_eq(buf_text(&message), rows[i].printed);
        database_address_release(&address);
        buf_release(&message);
    }
}

Test(address, tls_parameters_are_read)
{
    struct database_address address;
    struct buf message;
    buf_init(&message, 1000);
    cr_assert(database_address_parse("mysql://h/d?ssl=verify", &address, &message));
    cr_assert(address.ssl_verify && !address.ssl_ca && !address.ssl_cert && !address.ssl_key);
    database_address_release(&address);
    cr_assert(database_address_parse("mysql://h/d?ssl_key=/a%20key&ssl_cert=/cert&ssl_ca=/ca", &address, &message));
    cr_assert(!address.ssl_verify);
    cr_assert_str_eq(address.ssl_key, "/a key");
    cr_assert_str_eq(address.ssl_cert, "/cert");
    cr_assert_str_eq(address.ssl_ca, "/ca");
    database_address_release(&address);
    buf_release(&message);
}

Test(address, invalid_url_is_refused_with_a_message)
{
    static const char *const urls[] = {
        "",
        "postgres://h/d",
        "mysql://h",
        "mysql://h/",
        "mysql://h:0/d",
        "mysql://h:65536/d",
        "mysql://h:x/d",
        "mysql://h:/d",
        "mysql://[::1/d",
        "mysql://[::1]x/d",
        "mysql://u%4/d",
        "mysql://u%00@h/d",
        "mysql://h/d?tls=1",
        "mysql://h/d?socket",
        "mysql://h/d?ssl=1",
        "mysql://h/d?ssl",
        "mysql://h/d?ssl=",
        "mysql://h/d?ssl_cert=/c&ssl_key=/k",
        "mysql://h/d?ssl=verify&ssl_cert=/c",
        "mysql://h/d?ssl_ca=/ca&ssl_key=/k",
        "mysql://h/d?ssl_ca=/ca&ssl_cert=/%zz&ssl_key=/k",
        "mysql://h/a%60b",
        "mysql://u:p@q@h/d",
        "mysql://u:1/q@h/d",
        "mysql://h/d/e",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        struct database_address address;
        struct buf message;
        buf_init(&message, 1000);
        cr_assert_not(database_address_parse(urls[i], &address, &message), "%s", urls[i]);
        cr_assert_gt(message.length, 0);
        buf_release(&message);
    }
}

/* In a misread URL any part may be a piece of the password. */
Test(address, no_part_of_a_refused_url_is_shown)
{
    static const char *const urls[] = {
        "hun://u:ter@secret:two/zwei?drei",     "mysql://hun:ter@secret:two/zwei?drei",
        "mysql://hun:ter/secret@two/zwei",      "mysql://hun:1/ter@secret/two",
        "mysql://hun:ter@secret@two/zwei",      "mysql://hun:ter@[secret/two",
        "mysql://hun:ter@[secret]two/zwei",     "mysql://hun:ter%zz@secret/two",
        "mysql://hun%zz:ter@secret/two",        "mysql://hun:ter@secret%zz/two",
        "mysql://hun:ter@secret/two%zz",        "mysql://hun:ter@secret/two?zwei=drei",
        "mysql://hun:ter@secret/two?socket=%z", "mysql://hun:ter@secret",
    };
    static const char *const parts[] = {"hun", "ter@", ":ter", "secret", "two", "zwei", "drei", "zz"};
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        struct database_address address;
        struct buf message;
        buf_init(&message, 1000);
        cr_assert_not(database_address_parse(urls[i], &address, &message), "%s", urls[i]);
        for (size_t part = 0; part < ARRAY_LENGTH(parts); part++)
            cr_expect_null(strstr(buf_text(&message), parts[part]), "%s: %s", urls[i], buf_text(&message));
        buf_release(&message);
    }
}
