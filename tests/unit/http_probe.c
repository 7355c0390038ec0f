/* SPDX-License-Identifier: MIT */
/* The liveness probe against a small HTTP and HTTPS service of the test, on loopback. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tasks/liveness_probe.h"
#include "testkit.h"

enum {
    CONNECTIONS_MAX = 256,
    CALLS_MAX = 16,              /* docs/operating.md: at most 16 calls at the same time */
    SENT_MAX = 64 * 1024 * 1024, /* far above what the probe reads (1 MiB) and what sockets hold */
};

/* ---- the service ---- */

/*
 * Answers by the last part of the path: alive, dead, gone, odd, moved; `slow` after a while; `silent` never; `endless` and
 * `headers` are 404 without end; `half` is a 404 that ends early.
 */
struct service {
    int fd;
    unsigned port;
    SSL_CTX *tls; /* NULL: plain HTTP */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    struct connection *connections[CONNECTIONS_MAX];
    size_t accepted;
    int unanswered; /* requests */
    int unanswered_most;
    size_t sent;       /* of endless answers */
    char request[512]; /* the first line of the last request */
};

struct connection {
    struct service *service;
    pthread_t thread;
    int fd;
    SSL *ssl;
};

static ssize_t get(struct connection *connection, char *data, size_t size)
{
    return connection->ssl ? SSL_read(connection->ssl, data, (int)size) : read(connection->fd, data, size);
}

static bool put(struct connection *connection, const char *text)
{
    size_t length = strlen(text);
    ssize_t done =
        connection->ssl ? SSL_write(connection->ssl, text, (int)length) : write(connection->fd, text, length);
    return done == (ssize_t)length;
}

static void count_request(struct service *service, const char *line)
{
    pthread_mutex_lock(&service->mutex);
    (void)snprintf(service->request, sizeof service->request, "%s", line);
    service->unanswered++;
    if (service->unanswered > service->unanswered_most)
        service->unanswered_most = service->unanswered;
    pthread_mutex_unlock(&service->mutex);
}

/* The name that is asked about; false: no request comes any more. */
static bool read_request(struct connection *connection, char ret_name[128])
{
    char text[4096] = "";
    for (size_t length = 0; length < sizeof text - 1;) {
        ssize_t got = get(connection, text + length, sizeof text - 1 - length);
        if (got <= 0)
            return false;
        length += (size_t)got;
        text[length] = '\0';
        if (!strstr(text, "\r\n\r\n"))
            continue;
        text[strcspn(text, "\r")] = '\0';
        count_request(connection->service, text);
        const char *name = strstr(text, "/jobs/");
        return name && sscanf(name, "/jobs/%127[^ ]", ret_name) == 1;
    }
    return false;
}

static void put_endless(struct connection *connection, const char *head, const char *line)
{
    bool written = put(connection, head);
    while (written) {
        written = put(connection, line);
        pthread_mutex_lock(&connection->service->mutex);
        connection->service->sent += strlen(line);
        written = written && connection->service->sent < SENT_MAX;
        pthread_mutex_unlock(&connection->service->mutex);
    }
}

/* True: the connection goes on. */
static bool answer(struct connection *connection, const char *name)
{
    static const struct {
        const char *name;
        const char *status;
    } rows[] = {
        {"alive", "200 OK"},  {"slow", "200 OK"}, {"dead", "404 Not Found"},
        {"gone", "410 Gone"}, {"odd", "500 Oh"},  {"moved", "302 Found"},
    };
    char reply[256];
    if (strcmp(name, "silent") == 0)
        return true;
    if (strncmp(name, "slow", 4) == 0)
        kit_sleep_ms(20);
    pthread_mutex_lock(&connection->service->mutex);
    connection->service->unanswered--;
    pthread_mutex_unlock(&connection->service->mutex);
    if (strcmp(name, "half") == 0)
        return put(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nhal") && false;
    if (strcmp(name, "endless") == 0)
        put_endless(connection, "HTTP/1.1 404 Not Found\r\n\r\n", "this is a long answer to a short question");
    if (strcmp(name, "headers") == 0)
        put_endless(connection, "HTTP/1.1 404 Not Found\r\n", "X-Long: a long answer to a short question\r\n");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        if (strncmp(name, rows[i].name, strlen(rows[i].name)) != 0)
            continue;
        (void)snprintf(reply, sizeof reply, "HTTP/1.1 %s\r\nLocation: /jobs/alive\r\nContent-Length: 2\r\n\r\nok",
                       rows[i].status);
        return put(connection, reply);
    }
    return false;
}

static void *connection_run(void *context)
{
    struct connection *connection = context;
    struct service *service = connection->service;
    char name[128];
    bool good = true;
    if (service->tls) {
        connection->ssl = SSL_new(service->tls);
        good = connection->ssl && SSL_set_fd(connection->ssl, connection->fd) == 1 && SSL_accept(connection->ssl) == 1;
    }
    while (good && read_request(connection, name))
        good = answer(connection, name);
    SSL_free(connection->ssl);
    (void)shutdown(connection->fd, SHUT_RDWR);
    return NULL;
}

static void *service_run(void *context)
{
    struct service *service = context;
    for (int fd; (fd = accept(service->fd, NULL, NULL)) >= 0;) {
        struct connection *connection = calloc(1, sizeof *connection);
        cr_assert(connection && service->accepted < CONNECTIONS_MAX);
        *connection = (struct connection){.service = service, .fd = fd};
        pthread_mutex_lock(&service->mutex);
        service->connections[service->accepted++] = connection;
        pthread_mutex_unlock(&service->mutex);
        cr_assert_eq(pthread_create(&connection->thread, NULL, connection_run, connection), 0);
    }
    return NULL;
}

static struct service *service_start(SSL_CTX *tls)
{
    struct service *service = calloc(1, sizeof *service);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    cr_assert_not_null(service);
    (void)signal(SIGPIPE, SIG_IGN);
    service->tls = tls;
    service->fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(service->fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(service->fd, 64), 0);
    cr_assert_eq(getsockname(service->fd, (struct sockaddr *)&address, &size), 0);
    service->port = ntohs(address.sin_port);
    pthread_mutex_init(&service->mutex, NULL);
    cr_assert_eq(pthread_create(&service->thread, NULL, service_run, service), 0);
    return service;
}

static void service_stop(struct service *service)
{
    (void)shutdown(service->fd, SHUT_RDWR);
    (void)pthread_join(service->thread, NULL);
    (void)close(service->fd);
    for (size_t i = 0; i < service->accepted; i++) {
        (void)shutdown(service->connections[i]->fd, SHUT_RDWR);
        (void)pthread_join(service->connections[i]->thread, NULL);
        (void)close(service->connections[i]->fd);
        free(service->connections[i]);
    }
    SSL_CTX_free(service->tls);
    pthread_mutex_destroy(&service->mutex);
    free(service);
}

/* ---- certificates ---- */

static void run_openssl(const char *arguments, const char *name)
{
    char command[1024];
    (void)snprintf(command, sizeof command,
                   "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9"
                   " -keyout %s.key -out %s.pem %s 2>%s.log",
                   kit_directory(), name, name, arguments, name);
    cr_assert_eq(system(command), 0, "%s", command);
}

static const char *certificate_path(const char *file)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", kit_directory(), file);
    return path;
}

/* A service whose certificate is for `san`, signed by the certificate authority in ca.pem. other.pem is another one. */
static struct service *https_service_start(const char *san)
{
    char arguments[256];
    run_openssl("-subj /CN=ca", "ca");
    run_openssl("-subj /CN=other", "other");
    (void)snprintf(arguments, sizeof arguments, "-subj /CN=service -addext subjectAltName=%s -CA ca.pem -CAkey ca.key",
                   san);
    run_openssl(arguments, "service");
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    cr_assert_not_null(tls);
    cr_assert_eq(SSL_CTX_use_certificate_file(tls, certificate_path("service.pem"), SSL_FILETYPE_PEM), 1);
    cr_assert_eq(SSL_CTX_use_PrivateKey_file(tls, certificate_path("service.key"), SSL_FILETYPE_PEM), 1);
    return service_start(tls);
}

/* ---- the probe ---- */

static struct probe *probe_of(const char *scheme, const char *host, unsigned port, const char *ca_file)
{
    char url[256];
    struct buf message;
    (void)snprintf(url, sizeof url, "%s://%s:%u/jobs/{owner}", scheme, host, port);
    buf_init(&message, 1024);
    struct probe *probe = probe_new(url, ca_file, &message);
    cr_assert_not_null(probe, "%s", buf_text(&message));
    buf_release(&message);
    return probe;
}

static enum probe_answer ask(struct probe *probe, const char *owner)
{
    const atomic_bool stopping = false;
    struct probe_question question = {.owner = bytes_of(owner), .ret_answer = PROBE_ANSWER_COUNT};
    probe_ask_all(probe, &question, 1, &stopping);
    return question.ret_answer;
}

static enum probe_answer ask_service(const struct service *service, const char *owner)
{
    struct probe *probe = probe_of("http", "127.0.0.1", service->port, NULL);
    enum probe_answer answer = ask(probe, owner);
    probe_free(probe);
    return answer;
}

Test(probe, statuses_are_judged, .timeout = 60)
{
    struct service *service = service_start(NULL);
    cr_expect_eq(ask_service(service, "alive"), PROBE_ALIVE);
    cr_expect_eq(ask_service(service, "dead"), PROBE_DEAD);
    cr_expect_eq(ask_service(service, "gone"), PROBE_DEAD);
    cr_expect_eq(ask_service(service, "odd"), PROBE_UNKNOWN);
    cr_expect_eq(ask_service(service, "moved"), PROBE_UNKNOWN);
    cr_expect_eq(ask_service(service, "half"), PROBE_UNKNOWN);
    service_stop(service);
}

Test(probe, name_is_percent_encoded, .timeout = 60)
{
    struct service *service = service_start(NULL);
    cr_expect_eq(ask_service(service, "dead..a?b#c%2F{}-._~"), PROBE_DEAD);
    cr_expect_str_eq(service->request, "GET /jobs/dead..a%3Fb%23c%252F%7B%7D-._~ HTTP/1.1");
    service_stop(service);
}

/* A slash in it is a separator to services that decode %2F: the answer would be that of another URL. */
Test(probe, name_that_is_no_segment_of_a_path_is_not_asked_about, .timeout = 60)
{
    static const char *const names[] = {"dead/1", "../jobs/dead", "dead\\1", ".", ".."};
    char url[256];
    struct service *service = service_start(NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        cr_expect_eq(ask_service(service, names[i]), PROBE_UNKNOWN, "%s", names[i]);
    cr_expect_eq(service->accepted, 0);
    struct buf message;
    buf_init(&message, 1000);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/jobs?owner={owner}", service->port);
    struct probe *probe = probe_new(url, NULL, &message);
    (void)ask(probe, "../jobs/dead");
    cr_expect_str_eq(service->request, "GET /jobs?owner=..%2Fjobs%2Fdead HTTP/1.1");
    probe_free(probe);
    buf_release(&message);
    service_stop(service);
}

Test(probe, each_of_many_owners_gets_its_own_answer, .timeout = 60)
{
    enum { OWNERS = 100 };
    static char names[OWNERS][16];
    struct probe_question questions[OWNERS];
    const atomic_bool stopping = false;
    struct service *service = service_start(NULL);
    struct probe *probe = probe_of("http", "127.0.0.1", service->port, NULL);
    for (int i = 0; i < OWNERS; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s%d", i % 3 ? "slow" : "dead", i);
        questions[i] = (struct probe_question){.owner = bytes_of(names[i])};
    }
    probe_ask_all(probe, questions, OWNERS, &stopping);
    for (int i = 0; i < OWNERS; i++)
        cr_expect_eq(questions[i].ret_answer, i % 3 ? PROBE_ALIVE : PROBE_DEAD, "%s", names[i]);
    cr_expect_leq(service->unanswered_most, CALLS_MAX);
    probe_free(probe);
    service_stop(service);
}

Test(probe, next_call_uses_a_new_connection, .timeout = 60)
{
    struct service *service = service_start(NULL);
    struct probe *probe = probe_of("http", "127.0.0.1", service->port, NULL);
    cr_expect_eq(ask(probe, "dead"), PROBE_DEAD);
    cr_expect_eq(ask(probe, "dead"), PROBE_DEAD);
    cr_expect_eq(service->accepted, 2);
    probe_free(probe);
    service_stop(service);
}

Test(probe, endless_answer_is_unknown_and_not_read_to_its_end, .timeout = 120)
{
    struct service *service = service_start(NULL);
    cr_expect_eq(ask_service(service, "endless"), PROBE_UNKNOWN);
    cr_expect_lt(service->sent, SENT_MAX);
    service->sent = 0;
    cr_expect_eq(ask_service(service, "headers"), PROBE_UNKNOWN);
    cr_expect_lt(service->sent, SENT_MAX);
    service_stop(service);
}

Test(probe, silent_service_is_unknown, .timeout = 60)
{
    struct service *service = service_start(NULL);
    cr_expect_eq(ask_service(service, "silent"), PROBE_UNKNOWN);
    service_stop(service);
}

struct stop {
    struct service *service;
    atomic_bool stopping;
};

static bool is_asked(void *context)
{
    struct service *service = context;
    pthread_mutex_lock(&service->mutex);
    bool asked = service->accepted > 0;
    pthread_mutex_unlock(&service->mutex);
    return asked;
}

static void *stop_when_asked(void *context)
{
    struct stop *stop = context;
    (void)kit_wait_until(is_asked, stop->service, 30000);
    atomic_store(&stop->stopping, true);
    return NULL;
}

/* Without the stop, all owners would be asked about, 16 in 5 s. */
Test(probe, stop_ends_calls_that_wait_for_an_answer, .timeout = 60)
{
    struct probe_question questions[8 * CALLS_MAX];
    struct service *service = service_start(NULL);
    struct probe *probe = probe_of("http", "127.0.0.1", service->port, NULL);
    struct stop stop = {.service = service};
    pthread_t thread;
    for (size_t i = 0; i < ARRAY_LENGTH(questions); i++)
        questions[i] = (struct probe_question){.owner = BYTES("silent")};
    cr_assert_eq(pthread_create(&thread, NULL, stop_when_asked, &stop), 0);
    probe_ask_all(probe, questions, ARRAY_LENGTH(questions), &stop.stopping);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(questions); i++)
        cr_expect_eq(questions[i].ret_answer, PROBE_UNKNOWN);
    cr_expect_lt(service->accepted, ARRAY_LENGTH(questions));
    probe_free(probe);
    service_stop(service);
}

/* ---- https ---- */

static enum probe_answer ask_https(const struct service *service, const char *owner, const char *ca_file)
{
    struct probe *probe = probe_of("https", "127.0.0.1", service->port, ca_file);
    enum probe_answer answer = ask(probe, owner);
    probe_free(probe);
    return answer;
}

Test(probe, https_is_judged_if_the_given_ca_signed_the_certificate, .timeout = 60)
{
    struct service *service = https_service_start("IP:127.0.0.1");
    cr_expect_eq(ask_https(service, "alive", certificate_path("ca.pem")), PROBE_ALIVE);
    cr_expect_eq(ask_https(service, "dead", certificate_path("ca.pem")), PROBE_DEAD);
    cr_expect_eq(ask_https(service, "dead", certificate_path("other.pem")), PROBE_UNKNOWN, "signed by another CA");
    cr_expect_eq(ask_https(service, "dead", NULL), PROBE_UNKNOWN, "no CA of this system");
    service_stop(service);
}

Test(probe, certificate_of_another_host_is_unknown, .timeout = 60)
{
    struct service *service = https_service_start("IP:127.0.0.2,DNS:jobs.example");
    cr_expect_eq(ask_https(service, "dead", certificate_path("ca.pem")), PROBE_UNKNOWN);
    cr_expect_str_empty(service->request, "the name of the owner was not sent");
    service_stop(service);
}

/* ---- proxies ---- */

static void set_proxy(unsigned port)
{
    char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    (void)setenv("http_proxy", url, 1);
    (void)unsetenv("no_proxy");
    (void)unsetenv("NO_PROXY");
}

Test(probe, another_host_is_reached_through_the_proxy_of_the_environment, .timeout = 60)
{
    struct service *proxy = service_start(NULL);
    struct probe *probe = probe_of("http", "jobs.invalid", 8080, NULL);
    set_proxy(proxy->port);
    cr_expect_eq(ask(probe, "alive"), PROBE_ALIVE);
    cr_expect_str_eq(proxy->request, "GET http://jobs.invalid:8080/jobs/alive HTTP/1.1");
    probe_free(probe);
    service_stop(proxy);
}

Test(probe, loopback_is_reached_without_a_proxy, .timeout = 60)
{
    static const char *const hosts[] = {"127.0.0.1", "127.1", "localhost", "LocalHost"};
    struct service *service = service_start(NULL);
    set_proxy(1);
    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++) {
        struct probe *probe = probe_of("http", hosts[i], service->port, NULL);
        cr_expect_eq(ask(probe, "alive"), PROBE_ALIVE, "%s", hosts[i]);
        probe_free(probe);
    }
    service_stop(service);
}

/* ---- settings ---- */

Test(probe, invalid_urls_are_refused)
{
    static const char *const urls[] = {
        "",
        "127.0.0.1/{owner}",
        "ftp://127.0.0.1/{owner}",
        "http:{owner}",
        "http://",
        "http:///{owner}",
        "http:///127.0.0.1/{owner}",
        "http://127.0.0.1/jobs",
        "http://{owner}/jobs",
        "http://{owner}.x/{owner}",
        "http://[::1%25{owner}]/{owner}",
        "http://127.0.0.1:{owner}/{owner}",
        "http://127.0.0.1:0/{owner}",
        "http://127.0.0.1:65536/{owner}",
        "http://u:p@127.0.0.1/{owner}",
        "http://127.0.0.1/{owner}#top",
        "http://127.0.0.1/#{owner}",
        "http://127.0.0.1/a b/{owner}",
        "http://[::1/{owner}",
    };
    struct buf message;
    buf_init(&message, 1024);
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        buf_clear(&message);
        struct probe *probe = probe_new(urls[i], NULL, &message);
        cr_expect_null(probe, "%s", urls[i]);
        cr_expect(strncmp(buf_text(&message), "liveness_url: ", 14) == 0, "%s: %s", urls[i], buf_text(&message));
        probe_free(probe);
    }
    buf_release(&message);
}

Test(probe, valid_urls_are_accepted)
{
    static const char *const urls[] = {
        "http://127.0.0.1/{owner}",   "http://orchestrator:8080/jobs/{owner}", "https://jobs.example/{owner}/alive",
        "http://[::1]:80/?o={owner}", "http://h/{owner}/{owner}?a={owner}",    "https://jobs.example:8443/?{owner}",
    };
    struct buf message;
    buf_init(&message, 1024);
    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        struct probe *probe = probe_new(urls[i], NULL, &message);
        cr_expect_not_null(probe, "%s: %s", urls[i], buf_text(&message));
        probe_free(probe);
    }
    buf_release(&message);
}

Test(probe, unreadable_ca_file_is_refused)
{
    struct buf message;
    buf_init(&message, 1024);
    cr_expect_null(probe_new("https://jobs.example/{owner}", "/nowhere/ca.pem", &message));
    cr_expect_str_eq(buf_text(&message), "liveness_ca: cannot read /nowhere/ca.pem: No such file or directory");
    buf_release(&message);
}
