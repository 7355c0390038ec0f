/* SPDX-License-Identifier: MIT */
/*
 * Logins to a real server with its default plugin (caching_sha2_password on MySQL), over TCP with and without TLS, and
 * over the socket. A relay between session and server records the client's bytes; they must not contain the password.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"
#include "store/doctor.h"
#include "store/schema.h"
#include "testkit.h"

#define PASSWORD "hunter2hunter2"

enum { HEARD_MAX = 1 << 16, PIECE = 4096, CLIENT_MS = 120000 };

/* --- the server, with a certificate for 127.0.0.1 --- */

static struct kit_database *database;
static char *directory; /* cert.pem, its own authority; other.pem, not trusted here */
static int port_fd;
static unsigned port;

static char *made(const char *format, ...) KIT_PRINTF(1, 2);
static char *made(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    cr_assert_geq(vasprintf(&text, format, arguments), 0);
    va_end(arguments);
    return text;
}

static void certificate_make(const char *name)
{
    char *command = made("cd '%s' && openssl req -x509 -newkey rsa:2048 -nodes -keyout %s.key -out %s.pem -days 9"
                         " -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null",
                         directory, name, name);
    cr_assert_eq(system(command), 0, "%s", command);
    free(command);
}

static void login_begin(void)
{
    directory = temporary_directory();
    certificate_make("cert");
    certificate_make("other");
    port = kit_keep_port(&port_fd);
    static const char *flags[8] = {"--skip-networking=0", "--bind-address=127.0.0.1"};
    flags[2] = made("--port=%u", port);
    flags[3] = made("--ssl-cert=%s/cert.pem", directory);
    flags[4] = made("--ssl-key=%s/cert.key", directory);
    flags[5] = made("--ssl-ca=%s/cert.pem", directory);
    database = kit_database_start(flags);
    struct kit_sql *sql = kit_sql_open(database->socket, NULL);
    /* The documented grants, and no more (docs/operating.md). */
    static const char *const users[] = {"permitd@'127.0.0.1'", "permitd@localhost"};
    for (size_t i = 0; i < ARRAY_LENGTH(users); i++) {
        kit_sql_run(sql, "CREATE USER %s IDENTIFIED BY '" PASSWORD "'", users[i]);
        kit_sql_run(sql, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON permitd.* TO %s", users[i]);
    }
    kit_sql_close(sql);
}

static void login_end(void)
{
    kit_database_stop(database);
    close(port_fd);
    free(directory);
}

TestSuite(login, .init = login_begin, .fini = login_end, .timeout = 300);

/* --- the relay --- */

struct relay {
    int listener;
    unsigned port;
    pthread_t thread;
    char heard[HEARD_MAX]; /* bytes of the client */
    size_t heard_length;
};

static bool pass_on(int from, int to, struct relay *relay)
{
    char piece[PIECE];
    ssize_t got = read(from, piece, sizeof piece);
    if (got <= 0)
        return false;
    for (ssize_t i = 0; relay && i < got && relay->heard_length < HEARD_MAX; i++)
        relay->heard[relay->heard_length++] = piece[i];
    return write(to, piece, (size_t)got) == got;
}

/* Relays one connection until one side closes. */
static void *relay_run(void *argument)
{
    struct relay *relay = argument;
    struct pollfd waiting = {.fd = relay->listener, .events = POLLIN};
    int client = poll(&waiting, 1, CLIENT_MS) > 0 ? accept(relay->listener, NULL, NULL) : -1;
    int server = kit_connect(port);
    bool open = client >= 0 && server >= 0;
    while (open) {
        struct pollfd both[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        open = poll(both, 2, CLIENT_MS) > 0;
        if (open && both[0].revents)
            open = pass_on(client, server, relay);
        if (open && both[1].revents)
            open = pass_on(server, client, NULL);
    }
    close(client);
    close(server);
    return NULL;
}

static void relay_start(struct relay *relay, const char *host)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    cr_assert_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
    relay->heard_length = 0;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(relay->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(relay->listener, 1), 0);
    cr_assert_eq(getsockname(relay->listener, (struct sockaddr *)&address, &length), 0);
    relay->port = ntohs(address.sin_port);
    cr_assert_eq(pthread_create(&relay->thread, NULL, relay_run, relay), 0);
}

/* --- logging in --- */

/* Logs in over TCP through the relay, with this password and the TLS parameters of `tls`; its host NULL: 127.0.0.1. */
static enum permit_status log_in_with(const char *password, const struct database_address *tls, bool *ret_encrypted)
{
    static struct relay relay;
    char *host = tls->host ? tls->host : (char[]){"127.0.0.1"};
    relay_start(&relay, host);
    struct database_address address = {
        .host = host,
        .port = relay.port,
        .user = (char[]){"permitd"},
        .password = (char *)(uintptr_t)password,
        .database = (char[]){"permitd"},
        .ssl_ca = tls->ssl_ca,
        .ssl_verify = tls->ssl_verify,
        .ssl_cert = tls->ssl_cert,
        .ssl_key = tls->ssl_key,
    };
    struct session *session = session_new(&address, STORE_WORKER);
    enum permit_status status = session_connect(session);
    if (status == PERMIT_OK) {
        struct session_row row;
        cr_assert_eq(session_send(session, BYTES("SHOW SESSION STATUS LIKE 'Ssl_cipher'")), PERMIT_OK);
        cr_assert(session_row(session, &row));
        *ret_encrypted = row.columns[1].length > 0;
        (void)session_finish(session);
    } else {
        cr_log_info("%s", session_message(session));
    }
    session_free(session);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
    cr_assert_gt(relay.heard_length, 0);
    cr_expect_null(memmem(relay.heard, relay.heard_length, password, strlen(password)), "the password was sent");
    return status;
}

/* The same with this CA file (NULL: no TLS). */
static enum permit_status log_in(const char *password, const char *ssl_ca, bool *ret_encrypted)
{
    struct database_address tls = {.ssl_ca = ssl_ca ? made("%s/%s", directory, ssl_ca) : NULL};
    enum permit_status status = log_in_with(password, &tls, ret_encrypted);
    free(tls.ssl_ca);
    return status;
}

/* Clears the server's cache of passwords, so that the next login is a full one. */
static void forget_logins(void)
{
    struct kit_sql *sql = kit_sql_open(database->socket, NULL);
    kit_sql_run(sql, "FLUSH PRIVILEGES");
    kit_sql_close(sql);
}

Test(login, password_is_not_sent_over_tcp_with_or_without_tls)
{
    bool encrypted = true;
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(log_in(PASSWORD, NULL, &encrypted), PERMIT_OK);
        cr_assert_not(encrypted);
    }
    forget_logins();
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(log_in(PASSWORD, "cert.pem", &encrypted), PERMIT_OK);
        cr_assert(encrypted);
    }
    cr_assert_eq(log_in("another password", NULL, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(log_in("another password", "cert.pem", &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(log_in(PASSWORD, "other.pem", &encrypted), PERMIT_DATABASE_UNAVAILABLE, "no authority of its own");
}

Test(login, user_that_requires_tls_needs_the_authority)
{
    struct kit_sql *sql = kit_sql_open(database->socket, NULL);
    bool encrypted = false;
    kit_sql_run(sql, "ALTER USER permitd@'127.0.0.1' REQUIRE SSL");
    cr_assert_eq(log_in(PASSWORD, NULL, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(log_in(PASSWORD, "cert.pem", &encrypted), PERMIT_OK);
    cr_assert(encrypted);
    kit_sql_close(sql);
}

/* Makes NAME.pem and NAME.key, signed by the authority cert.pem, which the server trusts too. */
static void client_certificate_make(const char *name)
{
    char *command =
        made("cd '%s' && openssl req -newkey rsa:2048 -nodes -keyout %s.key -out %s.csr -subj /CN=%s &&"
             " openssl x509 -req -in %s.csr -CA cert.pem -CAkey cert.key -CAcreateserial -days 9 -out %s.pem",
             directory, name, name, name, name, name);
    char *quiet = made("{ %s; } 2>/dev/null", command);
    cr_assert_eq(system(quiet), 0, "%s", command);
    free(command);
    free(quiet);
}

Test(login, user_that_requires_a_certificate_needs_one_of_the_authority)
{
    struct kit_sql *sql = kit_sql_open(database->socket, NULL);
    bool encrypted = false;
    client_certificate_make("client");
    kit_sql_run(sql, "ALTER USER permitd@'127.0.0.1' REQUIRE SUBJECT '/CN=client'");
    cr_assert_eq(log_in(PASSWORD, "cert.pem", &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    struct database_address tls = {.ssl_ca = made("%s/cert.pem", directory)};
    struct database_address foreign = tls, mixed = tls, missing = tls;
    tls.ssl_cert = made("%s/client.pem", directory);
    tls.ssl_key = made("%s/client.key", directory);
    foreign.ssl_cert = made("%s/other.pem", directory);
    foreign.ssl_key = made("%s/other.key", directory);
    mixed.ssl_cert = tls.ssl_cert;
    mixed.ssl_key = foreign.ssl_key;
    missing.ssl_cert = tls.ssl_cert;
    missing.ssl_key = (char[]){"/nonexistent/client.key"};
    cr_assert_eq(log_in_with(PASSWORD, &tls, &encrypted), PERMIT_OK);
    cr_assert(encrypted);
    cr_assert_eq(log_in_with(PASSWORD, &foreign, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_neq(log_in_with(PASSWORD, &mixed, &encrypted), PERMIT_OK);
    cr_assert_neq(log_in_with(PASSWORD, &missing, &encrypted), PERMIT_OK);
    kit_sql_close(sql);
    free(tls.ssl_ca);
    free(tls.ssl_cert);
    free(tls.ssl_key);
    free(foreign.ssl_cert);
    free(foreign.ssl_key);
}

/* The authorities of the system are those that the environment names, or those of the machine, which know no test. */
Test(login, server_is_verified_with_the_authorities_of_the_system)
{
    const struct database_address tls = {.ssl_verify = true};
    char *file = made("%s/cert.pem", directory);
    char *other = made("%s/other.pem", directory);
    bool encrypted = false;
    cr_assert_eq(log_in_with(PASSWORD, &tls, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    (void)setenv("SSL_CERT_FILE", other, 1);
    cr_assert_eq(log_in_with(PASSWORD, &tls, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    (void)setenv("SSL_CERT_FILE", file, 1);
    cr_assert_eq(log_in_with(PASSWORD, &tls, &encrypted), PERMIT_OK);
    cr_assert(encrypted);
    (void)unsetenv("SSL_CERT_FILE");
    char *command =
        made("cd '%s' && mkdir authorities && cp cert.pem authorities/ && openssl rehash authorities", directory);
    cr_assert_eq(system(command), 0);
    char *authorities = made("%s/authorities", directory);
    (void)setenv("SSL_CERT_DIR", authorities, 1);
    cr_assert_eq(log_in_with(PASSWORD, &tls, &encrypted), PERMIT_OK);
    free(authorities);
    free(command);
    free(other);
    free(file);
}

/* The certificate is for 127.0.0.1, and its authority is trusted; but the address of the database is another one. */
Test(login, server_with_a_certificate_of_another_name_is_refused)
{
    struct database_address plain = {.host = (char[]){"127.0.0.2"}}, by_file = plain, by_system = plain;
    bool encrypted = false;
    by_file.ssl_ca = made("%s/cert.pem", directory);
    by_system.ssl_verify = true;
    (void)setenv("SSL_CERT_FILE", by_file.ssl_ca, 1);
    cr_assert_eq(log_in_with(PASSWORD, &by_file, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(log_in_with(PASSWORD, &by_system, &encrypted), PERMIT_DATABASE_UNAVAILABLE);
    cr_assert_eq(log_in_with(PASSWORD, &plain, &encrypted), PERMIT_OK, "the server cannot be reached at all");
    by_file.host = by_system.host = NULL;
    cr_assert_eq(log_in_with(PASSWORD, &by_file, &encrypted), PERMIT_OK);
    cr_assert_eq(log_in_with(PASSWORD, &by_system, &encrypted), PERMIT_OK);
    free(by_file.ssl_ca);
}

/* Over the socket: the schema, the doctor's checks, and the locks of a batch. */
Test(login, documented_grants_are_enough_over_the_socket)
{
    struct database_address address = {
        .socket = database->socket,
        .user = (char[]){"permitd"},
        .password = (char[]){PASSWORD},
        .database = (char[]){"permitd"},
    };
    struct doctor_report report;
    struct buf message;
    struct session *admin = connected(&address, STORE_ADMIN);
    buf_init(&message, 4000);
    cr_assert_eq(schema_apply(admin, address.database, &message), PERMIT_OK, "%s", buf_text(&message));
    cr_assert_eq(doctor_check(admin, NULL, &report), PERMIT_OK, "%s", session_message(admin));
    cr_assert_eq(report.refusals, 0);
    session_free(admin);
    forget_logins();
    struct session *worker = connected(&address, STORE_WORKER);
    cr_assert_eq(number_of(worker, "SELECT COUNT(*) FROM semaphore"), 0);
    session_free(worker);
    buf_release(&message);
}

Test(login, permitd_serves_over_tcp_with_tls)
{
    char *url = made("mysql://permitd:" PASSWORD "@127.0.0.1:%u/permitd?ssl_ca=%s/cert.pem", port, directory);
    struct kit_permitd *permitd = kit_permitd_start(&(struct kit_permitd_options){.database = url});
    struct kit_http http = kit_http(permitd->port);
    struct reply reply;
    cr_assert(kit_http_put(&http, "/v1/semaphores/s", "{\"capacity\":2}", &reply));
    cr_assert_eq(reply.status, 201, "%s", reply.body);
    reply_release(&reply);
    cr_assert(
        kit_http_post(&http, "/v1/requests", "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"s\"}]}", &reply));
    cr_assert_eq(reply.status, 201, "%s", reply.body);
    reply_release(&reply);
    kit_http_close(&http);
    kit_permitd_stop(permitd);
    free(url);
}
