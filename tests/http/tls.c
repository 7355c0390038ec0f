/* SPDX-License-Identifier: MIT */
/* TLS, with certificates that openssl makes for each test. The clients are curl, openssl s_client and python3. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

enum { LONG_MS = 60000 };

/* The directory with the certificates of this test; the current directory of all commands. */
static const char *directory;

static const char *run(const char *command)
{
    int status;
    const char *output = run_shell(&status, "cd '%s' && { %s\n}", directory, command);
    cr_assert_eq(status, 0, "%s: %s", command, output);
    return output;
}

/* Makes an authority NAME.pem with NAME.key. */
static void make_ca(const char *name)
{
    run(text("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s.key -out %s.pem -days 9 "
             "-subj '/CN=authority %s'",
             name, name, name));
}

/*
 * Makes NAME.pem and NAME.key, signed by the authority. `names`: the subjectAltName; "": none. days -1: expired.
 */
static void make_certificate(const char *ca, const char *name, const char *subject, const char *names, int days)
{
    run(text(
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s.key -out %s.csr -subj '%s'; "
        "printf 'basicConstraints=CA:FALSE\\n%s%s\\n' > %s.ext; "
        "openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -out %s.pem -days %d -extfile %s.ext",
        name, name, subject, *names ? "subjectAltName=" : "", names, name, name, ca, ca, name, days, name));
}

static void setup(void)
{
    directory = kept(kit_path("tls"));
    cr_assert_eq(mkdir(directory, 0700), 0);
    make_ca("ca");
    make_certificate("ca", "server", "/CN=server", "DNS:localhost,IP:127.0.0.1", 9);
}

TestSuite(tls, .init = setup, .timeout = 300);

static const char *file(const char *name)
{
    return text("%s/%s", directory, name);
}

/* A permitd with a plain listener and one of TLS. */
struct served {
    struct kit_permitd *permitd;
    const char *url; /* https://localhost:PORT */
    unsigned port;
};

static struct served serve(const char *first, const char *second, const char *third, const char *fourth)
{
    const char *flags[] = {"--listen",
                           "https://127.0.0.1:0",
                           "--tls-certificate",
                           file("server.pem"),
                           "--tls-key",
                           file("server.key"),
                           first,
                           second,
                           third,
                           fourth,
                           NULL};
    struct served served = {.permitd = own_permitd(flags)};
    const char *url = next_url(served.permitd);
    cr_assert(strncmp(url, "https://127.0.0.1:", 18) == 0, "%s", url);
    served.port = (unsigned)strtoul(strrchr(url, ':') + 1, NULL, 10);
    served.url = text("https://localhost:%u", served.port);
    return served;
}

/* Runs curl on the path. Returns what it prints; *ret_status is its exit status. */
static const char *curl(const struct served *served, const char *flags, const char *path, int *ret_status)
{
    return run_shell(ret_status, "cd '%s' && curl -sS --noproxy '*' -m 60 %s '%s%s'", directory, flags, served->url,
                     path);
}

static void is_served(const struct served *served, const char *flags)
{
    int status;
    const char *output = curl(served, text("--fail --cacert ca.pem %s", flags), "/healthz", &status);
    cr_assert(status == 0 && strstr(output, "\"status\":\"ok\""), "%d: %s", status, output);
}

static double handshakes(const struct served *served, const char *result)
{
    struct talk talk = talk_to(served->permitd->port);
    double count = metric_of(&talk, text("permitd_tls_handshakes_total{result=\"%s\"}", result));
    talk_end(&talk);
    return count;
}

/* ---- serving ---- */

Test(tls, requests_are_served_with_tls_1_2_and_1_3)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    int status;
    is_served(&served, "--tlsv1.3");
    is_served(&served, "--tlsv1.2 --tls-max 1.2");
    curl(&served, "--cacert ca.pem --tlsv1.1 --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0", "/healthz", &status);
    cr_assert_neq(status, 0, "TLS 1.1 is served");
    cr_assert_eq(handshakes(&served, "ok"), 2);
    cr_assert_eq(handshakes(&served, "protocol"), 1);
    /* An answer of several records, and requests and answers on one connection. */
    const char *sizes = curl(&served, "--cacert ca.pem -o /dev/null -o /dev/null -w '%{size_download} '",
                             text("/openapi.json' '%s/openapi.json", served.url), &status);
    long first = 0, second = 0;
    cr_assert_eq(sscanf(sizes, "%ld %ld", &first, &second), 2, "%s", sizes);
    cr_assert(status == 0 && first > 64 * 1024 && first == second, "%s", sizes);
    cr_assert_eq(handshakes(&served, "ok"), 3);
    kit_permitd_stop(served.permitd);
}

Test(tls, no_cipher_of_tls_1_2_encrypts_without_authentication)
{
    enum { SSL_CONNECT_ERROR = 35 }; /* of curl */
    static const char *const refused[] = {"ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA",
                                          "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384",
                                          "ECDHE-ECDSA-AES128-CCM8"};
    static const char *const accepted[] = {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
                                           "ECDHE-ECDSA-CHACHA20-POLY1305"};
    struct served served = serve(NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int status;
        curl(&served, text("--cacert ca.pem --tls-max 1.2 --ciphers '%s@SECLEVEL=0'", refused[i]), "/healthz", &status);
        cr_expect_eq(status, SSL_CONNECT_ERROR, "%s: %d", refused[i], status);
    }
    cr_expect_eq(handshakes(&served, "protocol"), sizeof refused / sizeof refused[0]);
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++)
        is_served(&served, text("--tls-max 1.2 --ciphers %s", accepted[i]));
    kit_permitd_stop(served.permitd);
}

/* The answers fill the socket, so that records are written in pieces and again. */
Test(tls, large_answers_arrive_complete_at_a_slow_client)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    const char *program =
        text("import socket, ssl, time\n"
             "context = ssl.create_default_context(cafile='ca.pem')\n"
             "plain = socket.socket()\n"
             "plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)\n"
             "plain.connect(('127.0.0.1', %u))\n"
             "tls = context.wrap_socket(plain, server_hostname='localhost')\n"
             "count = 20\n"
             "tls.sendall(b'GET /openapi.json HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' * (count - 1)\n"
             "    + b'GET /openapi.json HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
             "time.sleep(0.5)\n"
             "all = b''\n"
             "while True:\n"
             "    part = tls.recv(65536)\n"
             "    if not part: break\n"
             "    all += part\n"
             "heads = all.count(b'HTTP/1.1 200 OK')\n"
             "document = open('%s', 'rb').read()\n"
             "assert heads == count, heads\n"
             "assert all.count(document) == count, all.count(document)\n"
             "print('complete')\n",
             served.port, PERMIT_SOURCE_DIR "/docs/openapi.json");
    cr_assert_str_eq(run(text("python3 - <<'EOF'\n%sEOF", program)), "complete\n");
    kit_permitd_stop(served.permitd);
}

Test(tls, large_request_and_pipelined_requests_are_read)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    const char *program =
        text("import json, socket, ssl\n"
             "context = ssl.create_default_context(cafile='ca.pem')\n"
             "tls = context.wrap_socket(socket.create_connection(('127.0.0.1', %u)), server_hostname='localhost')\n"
             "def post(operations):\n"
             "    body = json.dumps({'operations': operations}).encode()\n"
             "    return (b'POST /v1/batch HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n'\n"
             "            b'Content-Length: ' + str(len(body)).encode() + b'\\r\\n\\r\\n' + body)\n"
             "large = [{'op': 'release', 'external_id': 'k' * 200 + str(i)} for i in range(200)]\n"
             "small = [{'op': 'release', 'external_id': 'p'}]\n"
             "tls.sendall(post(large) + post(small) * 99\n"
             "    + b'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
             "all = b''\n"
             "while True:\n"
             "    part = tls.recv(65536)\n"
             "    if not part: break\n"
             "    all += part\n"
             "print(all.count(b'HTTP/1.1 200 OK'), all.count(b'HTTP/1.1 '))\n",
             served.port);
    cr_assert_str_eq(run(text("python3 - <<'EOF'\n%sEOF", program)), "101 101\n");
    kit_permitd_stop(served.permitd);
}

static bool has_no_waiters(void *context)
{
    const struct served *served = context;
    struct talk talk = talk_to(served->permitd->port);
    double count = metric_of(&talk, "permitd_waiting");
    talk_end(&talk);
    return count == 0;
}

static bool has_a_waiter(void *context)
{
    return !has_no_waiters(context);
}

Test(tls, client_that_disconnects_leaves_the_waitlist)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    struct talk talk = talk_to(served.permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":1}");
    say(&talk, 201, "POST", "/v1/requests", "{\"external_id\":\"a\",\"permits\":[{\"semaphore\":\"s\"}]}");
    int status;
    const char *pid = run_shell(&status,
                                "cd '%s' && curl -sS --cacert ca.pem --json "
                                "'{\"external_id\":\"b\",\"wait\":\"1m\",\"permits\":[{\"semaphore\":\"s\"}]}' "
                                "%s/v1/requests > answer 2>&1 & echo $!",
                                directory, served.url);
    cr_assert(kit_wait_until(has_a_waiter, &served, LONG_MS), "%s", run("cat answer"));
    cr_assert_eq(kill((pid_t)atoi(pid), SIGKILL), 0);
    cr_assert(kit_wait_until(has_no_waiters, &served, LONG_MS));
    talk_end(&talk);
    kit_permitd_stop(served.permitd);
}

/* ---- clients that are not served ---- */

Test(tls, client_without_tls_is_told_to_use_https)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    struct kit_http http = kit_http(served.port);
    struct reply reply;
    cr_assert(kit_http_get(&http, "/healthz", &reply), "%s", reply.error);
    cr_assert_eq(reply.status, 400);
    cr_assert(kit_json_text_is(reply.body, "detail", "this port speaks TLS: use https://"), "%s", reply.body);
    char *connection = reply_header(&reply, "Connection");
    cr_assert_str_eq(connection, "close");
    free(connection);
    reply_release(&reply);
    kit_http_close(&http);
    cr_assert_eq(handshakes(&served, "plain_http"), 1);
    kit_permitd_stop(served.permitd);
}

/* Connections that send nothing, half a handshake, and no request after a handshake. */
Test(tls, unfinished_handshakes_and_requests_are_closed_after_ten_seconds)
{
    enum { FIRST_MS = 10000, SILENT = 3 };
    struct served served = serve(NULL, NULL, NULL, NULL);
    int64_t since = kit_now_us();
    int fds[SILENT];
    static const char half[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc";
    for (size_t i = 0; i < SILENT; i++) {
        cr_assert_geq(fds[i] = kit_connect(served.port), 0);
        cr_assert_geq(send(fds[i], half, i * 4, MSG_NOSIGNAL), 0);
    }
    const char *idle =
        text("cd '%s' && sleep 30 | openssl s_client -quiet -connect 127.0.0.1:%u", directory, served.port);
    FILE *client = popen(text("{ %s; } 2>&1; echo closed", idle), "re");
    is_served(&served, "");
    for (size_t i = 0; i < SILENT; i++) {
        char byte;
        cr_assert(comes_within(fds[i], LONG_MS));
        cr_assert_leq(recv(fds[i], &byte, 1, 0), 0);
        int64_t took = kit_now_us() - since;
        cr_assert(took > (FIRST_MS - 200) * 1000LL && took < 2 * FIRST_MS * 1000LL, "%lld us", (long long)took);
        close(fds[i]);
    }
    cr_assert_eq(handshakes(&served, "timed_out"), SILENT);
    char line[4096];
    bool closed = false;
    while (!closed && fgets(line, sizeof line, client))
        closed = strncmp(line, "closed", 6) == 0;
    cr_assert(closed);
    pclose(client);
    kit_permitd_stop(served.permitd);
}

Test(tls, random_bytes_before_the_first_request_are_harmless)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    uint32_t state = 15;
    for (int i = 0; i < 300; i++) {
        char bytes[600] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
        for (size_t at = i % 3 ? 11 : 1; at < sizeof bytes; at++) {
            state = state * 1664525 + 1013904223;
            bytes[at] = (char)(state >> 24);
        }
        int fd = kit_connect(served.port);
        cr_assert_geq(fd, 0);
        (void)!send(fd, bytes, 1 + state % sizeof bytes, MSG_NOSIGNAL);
        close(fd);
    }
    is_served(&served, "");
    kit_permitd_stop(served.permitd);
}

struct wanted_output {
    const char *text;
    size_t times;
};

static bool has_output(void *context)
{
    const struct wanted_output *wanted = context;
    char *output = kit_read_file(file("output"));
    size_t times = 0;
    for (const char *at = output; at && (at = strstr(at, wanted->text)); at++)
        times++;
    free(output);
    return times >= wanted->times;
}

/* openssl s_client sends a key update for each line K. These records have no data. */
Test(tls, request_behind_key_updates_is_served)
{
    enum { UPDATES = 5 };
    struct served served = serve(NULL, NULL, NULL, NULL);
    const char *command = text("openssl s_client -connect 127.0.0.1:%u >'%s' 2>&1", served.port, file("output"));
    FILE *client = popen(command, "we");
    for (size_t i = 1; i <= UPDATES; i++) {
        cr_assert(fputs("K\n", client) >= 0 && fflush(client) == 0);
        cr_assert(kit_wait_until(has_output, &(struct wanted_output){"KEYUPDATE", i}, LONG_MS));
    }
    fputs("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", client);
    fflush(client);
    cr_assert(kit_wait_until(has_output, &(struct wanted_output){"\"status\":\"ok\"", 1}, LONG_MS));
    kit_permitd_stop(served.permitd);
    pclose(client);
}

/* ---- certificates of clients ---- */

static void is_refused(const struct served *served, const char *flags, const char *result)
{
    int status;
    double before = handshakes(served, result);
    const char *output = curl(served, text("--cacert ca.pem %s", flags), "/healthz", &status);
    cr_assert_neq(status, 0, "%s", output);
    cr_assert(strstr(output, "alert") || strstr(output, "certificate verification failed"),
              "the client is not told: %s", output);
    cr_assert_eq(handshakes(served, result), before + 1, "%s", output);
}

Test(tls, certificate_of_a_client_is_verified_if_there_is_one)
{
    make_ca("other");
    make_ca("clients");
    make_certificate("clients", "client", "/CN=client", "DNS:client.example,URI:spiffe://example/client", 9);
    make_certificate("clients", "expired", "/CN=expired", "", -1);
    make_certificate("other", "stranger", "/CN=client", "DNS:client.example", 9);
    struct served served = serve("--tls-client-ca", file("clients.pem"), NULL, NULL);
    static const char *const versions[] = {"--tlsv1.3", "--tls-max 1.2"};
    for (size_t i = 0; i < 2; i++) {
        is_served(&served, versions[i]);
        is_served(&served, text("%s --cert client.pem --key client.key", versions[i]));
        is_refused(&served, text("%s --cert expired.pem --key expired.key", versions[i]), "certificate_expired");
        is_refused(&served, text("%s --cert stranger.pem --key stranger.key", versions[i]), "certificate_unknown_ca");
    }
    cr_assert_gt(log_count(served.permitd, "TLS handshake failed"), 0);
    int status;
    curl(&served, "--cacert other.pem", "/healthz", &status);
    cr_assert_eq(status, 60, "curl trusts a server of another authority");
    cr_assert_eq(handshakes(&served, "refused_by_client"), 1);
    kit_permitd_stop(served.permitd);
}

/* A session may be resumed without a new signature; the ticket carries the client's certificate. */
Test(tls, session_with_a_certificate_is_resumed)
{
    make_certificate("ca", "client", "/CN=client", "DNS:client.example", 9);
    struct served served = serve("--tls-client-ca", file("ca.pem"), NULL, NULL);
    const char *client = text(
        "(printf 'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'; sleep 1) | openssl "
        "s_client -connect 127.0.0.1:%u -CAfile ca.pem -cert client.pem -key client.key -ign_eof",
        served.port);
    const char *first = run(text("%s -sess_out session", client));
    cr_assert(strstr(first, "HTTP/1.1 200 OK"), "%s", first);
    const char *second = run(text("%s -sess_in session", client));
    cr_assert(strstr(second, "HTTP/1.1 200 OK") && strstr(second, "Reused, TLSv1.3"), "%s", second);
    cr_assert_eq(handshakes(&served, "ok"), 2);
    kit_permitd_stop(served.permitd);
}

/* ---- files that cannot be used ---- */

static void does_not_start(const char *certificate, const char *key, const char *ca, const char *part)
{
    const char *flags[] = {"--listen",
                           "https://127.0.0.1:0",
                           "--tls-certificate",
                           file(certificate),
                           "--tls-key",
                           file(key),
                           ca ? "--tls-client-ca" : NULL,
                           ca ? file(ca) : NULL,
                           NULL};
    refuses_to_start(&(struct kit_permitd_options){.flags = flags}, part);
}

Test(tls, files_that_cannot_be_used_end_the_start)
{
    make_certificate("ca", "expired", "/CN=server", "", -1);
    make_certificate("ca", "client", "/CN=client", "", 9);
    run("cp server.key open.key; chmod 644 open.key; cp server.key group.key; chmod 620 group.key;"
        "openssl ec -in server.key -aes128 -passout pass:x -out locked.key; chmod 600 locked.key; echo nothing > "
        "empty.pem;"
        "chmod 600 empty.pem");
    refuses_flags("--listen", "https://127.0.0.1:0", "TLS requires tls_certificate and tls_key");
    refuses_flags("--tls-certificate", file("server.pem"), "requires tls_certificate and tls_key");
    does_not_start("none.pem", "server.key", NULL, "none.pem: No such file or directory");
    does_not_start("empty.pem", "server.key", NULL, "tls_certificate");
    does_not_start("expired.pem", "expired.key", NULL, "expired.pem: the certificate has expired");
    does_not_start("server.pem", "none.key", NULL, "none.key: No such file or directory");
    does_not_start("server.pem", "client.key", NULL, "client.key: the key does not belong to the certificate");
    does_not_start("server.pem", "open.key", NULL, "open.key: other users can read the file (mode 0644)");
    does_not_start("server.pem", "group.key", NULL, "group.key: other users can");
    does_not_start("server.pem", "locked.key", NULL, "locked.key: the key is encrypted");
    does_not_start("server.pem", "empty.pem", NULL, "tls_key");
    does_not_start("server.pem", "server.key", "none.pem", "none.pem: No such file or directory");
    does_not_start("server.pem", "server.key", "empty.pem", "tls_client_ca");
    const char *flags[] = {"--check", "--tls-certificate", file("expired.pem"), "--tls-key", file("expired.key"), NULL};
    refuses_to_start(&(struct kit_permitd_options){.flags = flags}, "the certificate has expired");
}

/* ---- reload ---- */

/* Returns the serial number of the certificate that the server shows. */
static const char *serial_shown(const struct served *served)
{
    return run(text("openssl s_client -connect 127.0.0.1:%u </dev/null 2>/dev/null | openssl x509 -noout -serial",
                    served->port));
}

struct reloaded {
    const struct served *served;
    size_t count;
    const char *sentence;
};

static bool is_logged(void *context)
{
    const struct reloaded *reloaded = context;
    return log_count(reloaded->served->permitd, reloaded->sentence) >= reloaded->count;
}

static void reload(const struct served *served, size_t count, const char *sentence)
{
    struct reloaded reloaded = {served, count, sentence};
    kill(served->permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(is_logged, &reloaded, LONG_MS), "%s", sentence);
}

Test(tls, certificate_that_cannot_be_used_leaves_the_old_one_at_a_reload)
{
    struct served served = serve(NULL, NULL, NULL, NULL);
    const char *before = serial_shown(&served);
    struct talk talk = talk_to(served.permitd->port);
    double until = metric_of(&talk, "permitd_tls_certificate_until_seconds");
    cr_assert(until > 1e9, "%f", until);
    run("cp server.key kept.key");
    make_certificate("ca", "server", "/CN=server", "DNS:localhost", -1);
    run("cp kept.key server.key");
    reload(&served, 1, "TLS reload failed");
    cr_assert_str_eq(serial_shown(&served), before);
    is_served(&served, "");
    cr_assert_eq(metric_of(&talk, "permitd_tls_reload_failed_total"), 1);
    cr_assert_eq(metric_of(&talk, "permitd_tls_certificate_until_seconds"), until);
    make_certificate("ca", "server", "/CN=server", "DNS:localhost", 20);
    reload(&served, 2, "settings reloaded");
    cr_assert_str_neq(serial_shown(&served), before);
    is_served(&served, "");
    cr_assert_gt(metric_of(&talk, "permitd_tls_certificate_until_seconds"), until);
    talk_end(&talk);
    kit_permitd_stop(served.permitd);
}

#define KEPT_TOKEN     "pmt_kept-token-of-the-tests-xxxxxxxxxxxxxxxxxxx"
#define KEPT_DIGEST    "3a92df8f6a433b9a56bea7a440f3d87677a6ccff64cf304bb621e8e2810464fe"
#define SWAPPED_TOKEN  "pmt_swapped-token-of-the-tests-xxxxxxxxxxxxxxxx"
#define SWAPPED_DIGEST "294fec1132cccd5557ea5ccd36667c7e0b0cca5abaec7d6ffe8e8648c98d6c0a"

/* Writes a file in which the principal `kept` has one token, and a second one if `swapped`. */
static void write_tokens(bool swapped)
{
    write_file(file("tokens"),
               text("[kept]\ntoken = sha256:" KEPT_DIGEST "\nrole = look\nsemaphores = *\n%s",
                    swapped ? "token = sha256:" SWAPPED_DIGEST "\n" : ""),
               0600);
}

/*
 * Each client keeps one connection open over all reloads and asks on it with the token that stays; an answer other than
 * 200 or a cut connection ends the program.
 */
static const char clients_program[] =
    "import http.client, ssl, sys, threading, time, os\n"
    "port, stop, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
    "context = ssl.create_default_context(cafile='ca.pem')\n"
    "served, faults = [0] * count, []\n"
    "def run(i):\n"
    "    connection = http.client.HTTPSConnection('localhost', port, context=context)\n"
    "    connection.connect()\n"
    "    connection.auto_open = 0\n"
    "    try:\n"
    "        while not os.path.exists(stop):\n"
    "            connection.request('GET', '/v1/whoami', headers={'Authorization': 'Bearer " KEPT_TOKEN "'})\n"
    "            answer = connection.getresponse()\n"
    "            answer.read()\n"
    "            assert answer.status == 200, answer.status\n"
    "            served[i] += 1\n"
    "            time.sleep(0.05)\n"
    "    except Exception as fault:\n"
    "        faults.append(repr(fault))\n"
    "threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]\n"
    "for thread in threads: thread.start()\n"
    "for thread in threads: thread.join()\n"
    "assert not faults, faults\n"
    "assert min(served) > 0, served\n"
    "print('uncut')\n";

/* Two certificates for localhost, with their keys and serial numbers. */
struct pair {
    const char *certificates[2], *keys[2], *serials[2];
};

static struct pair make_pair(void)
{
    struct pair pair;
    for (int i = 0; i < 2; i++) {
        make_certificate("ca", "server", "/CN=server", "DNS:localhost", 9);
        pair.certificates[i] = kept(kit_read_file(file("server.pem")));
        pair.keys[i] = kept(kit_read_file(file("server.key")));
        pair.serials[i] = run("openssl x509 -noout -serial -in server.pem");
    }
    cr_assert_str_neq(pair.serials[0], pair.serials[1]);
    return pair;
}

/* The certificate of permitd is another one after each reload, and a second token comes and goes. */
Test(tls, hundred_swaps_of_certificate_and_token_cut_no_connection, .timeout = 600)
{
    enum { RELOADS = 100, CLIENTS = 64 };
    write_tokens(false);
    const struct pair pair = make_pair();
    struct served served = serve(text("--credentials=%s", file("tokens")), NULL, NULL, NULL);
    write_file(file("clients.py"), clients_program, 0600);
    FILE *clients = popen(text("cd '%s' && python3 clients.py %u stop %d 2>&1", directory, served.port, CLIENTS), "re");
    for (size_t i = 1; i <= RELOADS; i++) {
        int status;
        bool valid = i % 2 == 1;
        write_tokens(valid);
        write_file(file("server.pem"), pair.certificates[valid ? 0 : 1], 0600);
        write_file(file("server.key"), pair.keys[valid ? 0 : 1], 0600);
        reload(&served, i, "settings reloaded");
        cr_assert_str_eq(serial_shown(&served), pair.serials[valid ? 0 : 1], "reload %zu", i);
        const char *answer =
            curl(&served, "--cacert ca.pem -w '%{http_code}' -H 'Authorization: Bearer " SWAPPED_TOKEN "'",
                 "/v1/whoami", &status);
        cr_assert(status == 0 && strstr(answer, valid ? "}\n200" : "}\n401"), "reload %zu: %s", i, answer);
    }
    run("touch stop");
    char line[4096] = "";
    cr_assert_not_null(fgets(line, sizeof line, clients));
    cr_assert_str_eq(line, "uncut\n");
    pclose(clients);
    cr_assert_eq(log_count(served.permitd, "TLS reload failed"), 0);
    kit_permitd_stop(served.permitd);
}

/* ---- credentials ---- */

static void write_credentials(void)
{
    write_file(
        file("credentials"),
        text("[by-certificate]\ncertificate = DNS:client.example\nrole = look\nsemaphores = *\n"
             "[by-common-name]\ncertificate = CN=named\ncertificate = CN=Anna Miller\nrole = look\nsemaphores = *\n"
             "[second]\ncertificate = DNS:second.example\nrole = look\nsemaphores = *\n"
             "[by-user]\nuser = %u\nrole = admin\n",
             (unsigned)getuid()),
        0600);
}

static void is_principal(const struct served *served, const char *flags, const char *principal)
{
    int status;
    const char *answer = curl(served, text("--cacert ca.pem %s", flags), "/v1/whoami", &status);
    cr_assert(status == 0 && strstr(answer, principal), "%s is not in %s", principal, answer);
}

/* The common name of a certificate counts only if it has no alternative name. */
Test(tls, certificates_and_users_of_a_unix_socket_are_credentials)
{
    make_certificate("ca", "client", "/CN=named", "DNS:other.example,DNS:client.example", 9);
    make_certificate("ca", "named", "/CN=named", "", 9);
    make_certificate("ca", "anna", "/CN=Anna Miller", "", 9);
    make_certificate("ca", "unknown", "/CN=named", "DNS:unknown.example", 9);
    make_certificate("ca", "both", "/CN=both", "DNS:client.example,DNS:second.example", 9);
    write_credentials();
    const char *sockets = text("https://0.0.0.0:0,unix:%s", file("socket"));
    struct served served = serve(text("--tls-client-ca=%s", file("ca.pem")),
                                 text("--credentials=%s", file("credentials")), "--listen", sockets);
    is_principal(&served, "--cert client.pem --key client.key", "\"principal\":\"by-certificate\"");
    is_principal(&served, "--cert named.pem --key named.key", "\"principal\":\"by-common-name\"");
    is_principal(&served, "--cert anna.pem --key anna.key", "\"principal\":\"by-common-name\"");
    is_principal(&served, "--cert unknown.pem --key unknown.key", "/problems/unauthenticated");
    is_principal(&served, "", "/problems/unauthenticated");
    is_principal(&served, "--cert both.pem --key both.key", "/problems/unauthenticated");
    int status;
    const char *answer = run_shell(&status, "curl -sS --unix-socket '%s' http://localhost/v1/whoami", file("socket"));
    cr_assert(strstr(answer, "\"principal\":\"by-user\""), "%s", answer);
    answer = run_shell(&status, "curl -sS --unix-socket '%s' http://localhost/metrics", file("socket"));
    cr_assert(strstr(answer, "permitd_auth_total{result=\"conflict\"} 1\n"), "%s", answer);
    cr_assert(strstr(answer, "permitd_auth_total{result=\"unknown\"} 1\n"), "%s", answer);
    cr_assert(strstr(answer, "permitd_auth_total{result=\"missing\"} 1\n"), "%s", answer);
    cr_assert_eq(log_count(served.permitd, "insecure"), 0);
    kit_permitd_stop(served.permitd);
}

/* A plain client that has sent no complete request is closed after ten seconds, as one of TLS is. */
Test(tls, first_request_has_ten_seconds_if_there_are_credentials)
{
    write_credentials();
    struct served served = serve(text("--credentials=%s", file("credentials")), NULL, NULL, NULL);
    int64_t since = kit_now_us();
    int fd = kit_connect(served.permitd->port);
    char byte;
    cr_assert(fd >= 0 && send(fd, "GET /", 5, MSG_NOSIGNAL) == 5);
    cr_assert(comes_within(fd, LONG_MS));
    cr_assert_leq(recv(fd, &byte, 1, 0), 0);
    int64_t took = kit_now_us() - since;
    cr_assert(took > 9800000 && took < 20000000, "%lld us", (long long)took);
    close(fd);
    kit_permitd_stop(served.permitd);
}

/* ---- many handshakes ---- */

/* All clients connect at once. Prints how long it took until each was served. */
static const char storm_program[] =
    "import selectors, socket, ssl, sys, time\n"
    "port, count = int(sys.argv[1]), int(sys.argv[2])\n"
    "context = ssl.create_default_context(cafile='ca.pem')\n"
    "chosen, done, start = selectors.DefaultSelector(), 0, time.monotonic()\n"
    "for i in range(count):\n"
    "    plain = socket.create_connection(('127.0.0.1', port))\n"
    "    plain.setblocking(False)\n"
    "    tls = context.wrap_socket(plain, server_hostname='localhost', do_handshake_on_connect=False)\n"
    "    chosen.register(tls, selectors.EVENT_READ, [False])\n"
    "    try: tls.do_handshake()\n"
    "    except ssl.SSLWantReadError: pass\n"
    "while done < count and time.monotonic() - start < 100:\n"
    "    for key, _ in chosen.select(1):\n"
    "        tls, state = key.fileobj, key.data\n"
    "        try:\n"
    "            if not state[0]:\n"
    "                tls.do_handshake()\n"
    "                state[0] = True\n"
    "                tls.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
    "            answer = tls.recv(4096)\n"
    "            assert answer.startswith(b'HTTP/1.1 200'), answer\n"
    "            done += 1\n"
    "            chosen.unregister(tls)\n"
    "        except ssl.SSLWantReadError: pass\n"
    "print(done, int(1000 * (time.monotonic() - start)))\n";

/* Clients beyond the rate wait longer than the ten seconds of a handshake, and are served nevertheless. */
Test(tls, handshakes_beyond_the_rate_wait_and_delay_no_other_client)
{
    enum { CLIENTS = 300, RATE = 25 };
    struct served served = serve("--tls-handshakes", text("%d", RATE), NULL, NULL);
    write_file(file("storm.py"), storm_program, 0600);
    FILE *storm = popen(text("cd '%s' && python3 storm.py %u %d 2>&1", directory, served.port, CLIENTS), "re");
    struct talk talk = talk_to(served.permitd->port);
    int64_t slowest = 0;
    struct pollfd end = {.fd = fileno(storm), .events = POLLIN};
    while (poll(&end, 1, 20) == 0) {
        int64_t start = kit_now_us();
        say(&talk, 200, "GET", "/healthz", NULL);
        int64_t took = kit_now_us() - start;
        slowest = took > slowest ? took : slowest;
    }
    char line[4096] = "";
    int count = 0, ms = 0;
    cr_assert_not_null(fgets(line, sizeof line, storm));
    cr_assert_eq(sscanf(line, "%d %d", &count, &ms), 2, "%s", line);
    pclose(storm);
    cr_assert_eq(count, CLIENTS);
    cr_assert_geq(ms, (CLIENTS / RATE - 2) * 1000, "the rate was not kept");
    cr_assert_eq(handshakes(&served, "ok"), CLIENTS);
    /* One that waits behind the storm waits for most of it. On a machine that is not busy this is 5 s. */
    cr_assert_lt(slowest, ms * INT64_C(400), "another client waited %lld us of %d ms", (long long)slowest, ms);
    talk_end(&talk);
    kit_permitd_stop(served.permitd);
}

/*
 * A crowd from 127.0.0.2, which is another address, connects at once; then one client from 127.0.0.1 does. Prints how
 * many handshakes of the crowd were completed between its connection and its own.
 */
static const char crowd_program[] =
    "import selectors, socket, ssl, sys, time\n"
    "port, count = int(sys.argv[1]), int(sys.argv[2])\n"
    "context = ssl.create_default_context(cafile='ca.pem')\n"
    "chosen, start = selectors.DefaultSelector(), time.monotonic()\n"
    "def connect(address):\n"
    "    plain = socket.create_connection(('127.0.0.1', port), source_address=(address, 0))\n"
    "    plain.setblocking(False)\n"
    "    tls = context.wrap_socket(plain, server_hostname='localhost', do_handshake_on_connect=False)\n"
    "    chosen.register(tls, selectors.EVENT_READ)\n"
    "    try: tls.do_handshake()\n"
    "    except ssl.SSLWantReadError: pass\n"
    "    return tls\n"
    "crowd = [connect('127.0.0.2') for i in range(count)]\n"
    "other, before = connect('127.0.0.1'), 0\n"
    "while other.version() is None and time.monotonic() - start < 200:\n"
    "    for key, _ in chosen.select(1):\n"
    "        try:\n"
    "            key.fileobj.do_handshake()\n"
    "            chosen.unregister(key.fileobj)\n"
    "            before += key.fileobj is not other\n"
    "        except ssl.SSLWantReadError: pass\n"
    "assert other.version() is not None\n"
    "print(before)\n";

Test(tls, crowd_of_one_address_does_not_delay_the_handshake_of_another)
{
    enum { CROWD = 60 };
    struct served served = serve("--tls-handshakes", "1", NULL, NULL);
    write_file(file("crowd.py"), crowd_program, 0600);
    int before = atoi(run(text("python3 crowd.py %u %d", served.port, CROWD)));
    cr_assert_lt(before, CROWD / 2, "%d handshakes of the crowd were before it", before);
    kit_permitd_stop(served.permitd);
}

/*
 * While permitd is stopped, a crowd from 127.0.0.2 sends something that ends its handshakes in their first step, and then a
 * client from 127.0.0.1 begins one. Prints how many of the crowd were answered before it: epoll reports the sockets in
 * the order in which they became readable.
 */
static const char steps_program[] =
    "import os, select, signal, socket, ssl, sys\n"
    "port, count, pid = (int(text) for text in sys.argv[1:])\n"
    "def connect(address):\n"
    "    return socket.create_connection(('127.0.0.1', port), source_address=(address, 0))\n"
    "crowd, other = [connect('127.0.0.2') for i in range(count)], connect('127.0.0.1')\n"
    "os.kill(pid, signal.SIGSTOP)\n"
    "order = select.epoll()\n"
    "for plain in crowd:\n"
    "    order.register(plain, select.EPOLLIN)\n"
    "    plain.sendall(b'\\x16\\x03\\x01\\x00\\x05wrong')\n"
    "order.register(other, select.EPOLLIN)\n"
    "number = other.fileno()\n"
    "other.setblocking(False)\n"
    "context = ssl.create_default_context(cafile='ca.pem')\n"
    "other = context.wrap_socket(other, server_hostname='localhost', do_handshake_on_connect=False)\n"
    "try: other.do_handshake()\n"
    "except ssl.SSLWantReadError: pass\n"
    "os.kill(pid, signal.SIGCONT)\n"
    "for plain in crowd + [other]:\n"
    "    readable = select.poll()\n"
    "    readable.register(plain, select.POLLIN)\n"
    "    readable.poll()\n"
    "print([fd for fd, _ in order.poll(maxevents=count + 1)].index(number))\n";

/* Otherwise its steps would come after one of each connection of the crowd, again and again. */
Test(tls, steps_of_a_crowd_of_one_address_are_not_all_before_that_of_another)
{
    enum { CROWD = 600 };
    struct served served = serve("--tls-handshakes", "100000", NULL, NULL);
    write_file(file("steps.py"), steps_program, 0600);
    int before = atoi(run(text("python3 steps.py %u %d %d", served.port, CROWD, (int)served.permitd->pid)));
    cr_assert_lt(before, CROWD / 2, "%d of the crowd were answered before it", before);
    kit_permitd_stop(served.permitd);
}
