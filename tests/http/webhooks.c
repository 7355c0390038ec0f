/* SPDX-License-Identifier: MIT */
/*
 * Webhooks: events of the feed that a permitd sends to a receiver, which is a small HTTP server of this file. The
 * receiver does with each path what the test says, and keeps the calls.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000, CALLS_MAX = 4000, PATHS_MAX = 16, REQUEST_MAX = 1 << 20, FORMER = 2 };

static const char secret[] = "a-secret-of-the-tests-of-webhooks-0001";
static const char second_secret[] = "a-secret-of-the-tests-of-webhooks-0002";

/* ---- the receiver ---- */

enum manner {
    TAKE,     /* 200 */
    FAIL,     /* 500 */
    HANG,     /* no answer until the connection is closed */
    REDIRECT, /* 307 to /elsewhere */
    ENDLESS,  /* 200, and a body without end */
    BABBLE,   /* headers without end */
    CUT,      /* 200, and the connection is closed before the body has come */
};

struct received {
    char path[64], signature[256], cursor[128];
    char *body;
    enum manner manner;
};

static struct receiver {
    int fd;
    unsigned port;
    pthread_mutex_t mutex;
    struct received calls[CALLS_MAX];
    size_t count;
    struct {
        char path[64];
        enum manner manner;
    } manners[PATHS_MAX];
    unsigned connections;
} receiver = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void behave(const char *path, enum manner manner)
{
    pthread_mutex_lock(&receiver.mutex);
    size_t i = 0;
    while (receiver.manners[i].path[0] && strcmp(receiver.manners[i].path, path) != 0)
        cr_assert_lt(++i, PATHS_MAX);
    snprintf(receiver.manners[i].path, sizeof receiver.manners[i].path, "%s", path);
    receiver.manners[i].manner = manner;
    pthread_mutex_unlock(&receiver.mutex);
}

static enum manner manner_of(const char *path)
{
    for (size_t i = 0; i < PATHS_MAX && receiver.manners[i].path[0]; i++)
        if (strcmp(receiver.manners[i].path, path) == 0)
            return receiver.manners[i].manner;
    return TAKE;
}

static void read_header(const char *request, const char *name, char *value, size_t size)
{
    const char *at = strstr(request, name);
    if (at)
        snprintf(value, size, "%.*s", (int)strcspn(at + strlen(name), "\r"), at + strlen(name));
}

/* Reads a request into `request`. Returns its body; NULL: the connection has ended. */
static const char *read_call(int fd, char request[REQUEST_MAX])
{
    size_t length = 0;
    while (length < REQUEST_MAX - 1) {
        ssize_t got = read(fd, request + length, REQUEST_MAX - 1 - length);
        if (got <= 0)
            return NULL;
        length += (size_t)got;
        request[length] = '\0';
        const char *body = strstr(request, "\r\n\r\n"), *size = strstr(request, "\r\nContent-Length: ");
        if (body && size && strlen(body + 4) >= strtoul(size + 18, NULL, 10))
            return body + 4;
    }
    return NULL;
}

static enum manner keep_call(const char *request, const char *body)
{
    pthread_mutex_lock(&receiver.mutex);
    struct received *call = &receiver.calls[receiver.count < CALLS_MAX ? receiver.count : CALLS_MAX - 1];
    (void)sscanf(request, "POST %63[^ ] HTTP/1.1\r\n", call->path);
    read_header(request, "\r\nPermit-Signature: ", call->signature, sizeof call->signature);
    read_header(request, "\r\nPermit-Cursor: ", call->cursor, sizeof call->cursor);
    call->body = strdup(body);
    call->manner = manner_of(call->path);
    enum manner manner = call->manner;
    receiver.count++;
    pthread_mutex_unlock(&receiver.mutex);
    return manner;
}

static void send_forever(int fd, const char *piece)
{
    while (send(fd, piece, strlen(piece), MSG_NOSIGNAL) > 0)
        ;
}

static void *serve_connection(void *context)
{
    int fd = (int)(intptr_t)context;
    char *request = malloc(REQUEST_MAX), byte;
    for (const char *body; (body = read_call(fd, request));) {
        static const char *const answers[] = {
            [TAKE] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            [FAIL] = "HTTP/1.1 500 Full\r\nContent-Length: 2\r\n\r\nno",
            [HANG] = "",
            [REDIRECT] = "HTTP/1.1 307 Away\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
            [ENDLESS] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            [BABBLE] = "HTTP/1.1 200 OK\r\n",
            [CUT] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
        };
        enum manner manner = keep_call(request, body);
        (void)send(fd, answers[manner], strlen(answers[manner]), MSG_NOSIGNAL);
        if (manner == HANG)
            (void)!read(fd, &byte, 1);
        if (manner == ENDLESS)
            send_forever(fd, "8\r\nxxxxxxxx\r\n");
        if (manner == BABBLE)
            send_forever(fd, "X-More: and more\r\n");
        if (manner >= HANG && manner != REDIRECT)
            break;
    }
    close(fd);
    free(request);
    return NULL;
}

static void *receiver_run(void *context)
{
    for (int fd; (fd = accept(receiver.fd, NULL, NULL)) >= 0;) {
        pthread_t thread;
        __atomic_add_fetch(&receiver.connections, 1, __ATOMIC_SEQ_CST);
        if (pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
    }
    return context;
}

/* Listens on [::] for IPv4 too. */
static void receiver_start(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    socklen_t size = sizeof address;
    pthread_t thread;
    receiver.fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(receiver.fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(receiver.fd, 64), 0);
    cr_assert_eq(getsockname(receiver.fd, (struct sockaddr *)&address, &size), 0);
    receiver.port = ntohs(address.sin6_port);
    cr_assert_eq(pthread_create(&thread, NULL, receiver_run, NULL), 0);
    pthread_detach(thread);
}

TestSuite(webhooks, .init = receiver_start, .timeout = 600);

/* ---- what was received ---- */

static size_t calls_of(const char *path)
{
    size_t count = 0;
    pthread_mutex_lock(&receiver.mutex);
    for (size_t i = 0; i < receiver.count; i++)
        count += strcmp(receiver.calls[i].path, path) == 0;
    pthread_mutex_unlock(&receiver.mutex);
    return count;
}

/* Returns a call of this path, from 0; negative: from the end. */
static const struct received *call_of_path(const char *path, int index)
{
    size_t wanted = index < 0 ? calls_of(path) - (size_t)-index : (size_t)index;
    pthread_mutex_lock(&receiver.mutex);
    const struct received *found = NULL;
    for (size_t i = 0; i < receiver.count && !found; i++)
        if (strcmp(receiver.calls[i].path, path) == 0 && wanted-- == 0)
            found = &receiver.calls[i];
    pthread_mutex_unlock(&receiver.mutex);
    cr_assert_not_null(found);
    return found;
}

/* "acquired:k1 ended:k1 ..." of the calls that this path has taken. */
static const char *taken(const char *path)
{
    const char *all = "";
    size_t count = calls_of(path);
    for (size_t i = 0; i < count; i++) {
        const struct received *call = call_of_path(path, (int)i);
        if (call->manner != TAKE && call->manner != ENDLESS && call->manner != CUT)
            continue;
        for (long j = 0; j < kit_json_length(call->body, "events"); j++) {
            const char *what = kept(kit_json_text(call->body, text("events.%ld.what", j)));
            char *key = kit_json_text(call->body, text("events.%ld.external_id", j));
            all = text("%s%s%s:%s", all, *all ? " " : "", what, key ? key : "");
            free(key);
        }
    }
    return all;
}

struct expected {
    const char *path, *events;
    size_t calls;
};

static bool has_taken(void *context)
{
    const struct expected *expected = context;
    return strcmp(taken(expected->path), expected->events) == 0;
}

static void takes(const char *path, const char *events)
{
    struct expected expected = {.path = path, .events = events};
    cr_assert(kit_wait_until(has_taken, &expected, PATIENCE_MS), "%s: %s", path, taken(path));
}

static bool was_called(void *context)
{
    const struct expected *expected = context;
    return calls_of(expected->path) >= expected->calls;
}

static void is_called(const char *path, size_t calls)
{
    struct expected expected = {.path = path, .calls = calls};
    cr_assert(kit_wait_until(was_called, &expected, PATIENCE_MS), "%s: %zu calls", path, calls_of(path));
}

/* ---- permitd ---- */

static const char *secret_file(const char *content)
{
    const char *path = kept(kit_path("secret"));
    write_file(path, content, 0600);
    return path;
}

/* With private addresses, and so many further flags. */
static struct kit_permitd *permitd_with(const char *first, const char *second)
{
    const char *flags[] = {"--webhook-secret",
                           secret_file(secret),
                           "--webhook-hosts=127.0.0.1,localhost,[::1]",
                           "--webhook-private",
                           first,
                           second,
                           NULL};
    return own_permitd(flags);
}

static const char *url_of(const char *path)
{
    return text("http://127.0.0.1:%u%s", receiver.port, path);
}

static void name_url(struct talk *talk, const char *semaphore, const char *url)
{
    say(talk, 200, "PUT", semaphore_path(semaphore), text("{\"feed_url\":\"%s\"}", url));
    text_is(talk, "feed_url", url);
}

static const char *semaphore_with(struct talk *talk, const char *path)
{
    return fresh_semaphore(
        talk, text("{\"capacity\":1000,\"kind\":\"counted\",\"feed\":\"all\",\"feed_url\":\"%s\"}", url_of(path)));
}

static void acquire(struct talk *talk, const char *semaphore, const char *key)
{
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, 1, ",\"ttl\":\"1h\""));
}

/* The row of a URL in GET /v1/webhooks: "webhooks.0"; fails if there is none. */
static const char *row_of(struct talk *talk, const char *url)
{
    say(talk, 200, "GET", "/v1/webhooks", NULL);
    for (int i = 0; i < kit_json_length(talk->reply.body, "webhooks"); i++)
        if (kit_json_text_is(talk->reply.body, text("webhooks.%d.url", i), url))
            return text("webhooks.%d", i);
    kit_fail("%s is not in %s", url, talk->reply.body);
}

struct error_of {
    struct talk *talk;
    const char *url, *part;
};

static bool has_error(void *context)
{
    const struct error_of *wanted = context;
    const char *row = row_of(wanted->talk, wanted->url);
    char *error = kit_json_text(wanted->talk->reply.body, text("%s.error", row));
    bool found = error && (*wanted->part ? strstr(error, wanted->part) != NULL : !*error);
    free(error);
    return found;
}

/* Waits until the last error of this URL has the part; "": there is none. */
static void error_is(struct talk *talk, const char *url, const char *part)
{
    struct error_of wanted = {talk, url, part};
    cr_assert(kit_wait_until(has_error, &wanted, PATIENCE_MS), "%s: %s", part, talk->reply.body);
}

/* ---- signatures ---- */

static void read_hex(const char *hex, unsigned char bytes[32])
{
    for (size_t i = 0; i < 32; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1, "%s", hex);
        bytes[i] = (unsigned char)byte;
    }
}

/* As a receiver does: from the key that GET /v1/webhooks shows, time and body. */
static const char *signature_of(const char *key_hex, const struct received *call)
{
    unsigned char key[32], digest[32];
    const char *message = text("%.*s.%s", (int)strcspn(call->signature + 2, ","), call->signature + 2, call->body);
    const char *hex = "";
    read_hex(key_hex, key);
    cr_assert_not_null(
        HMAC(EVP_sha256(), key, sizeof key, (const unsigned char *)message, strlen(message), digest, NULL));
    for (size_t i = 0; i < 32; i++)
        hex = text("%s%02x", hex, digest[i]);
    return hex;
}

/* The key of a URL in the empty namespace, from the secret. */
static const char *key_from(const char *of, const char *url)
{
    unsigned char digest[32];
    const char *message = text("\n%s", url), *hex = "";
    cr_assert_not_null(
        HMAC(EVP_sha256(), of, (int)strlen(of), (const unsigned char *)message, strlen(message), digest, NULL));
    for (size_t i = 0; i < 32; i++)
        hex = text("%s%02x", hex, digest[i]);
    return hex;
}

/* ---- order and form ---- */

Test(webhooks, events_come_in_order_signed_and_as_the_feed_shows_them)
{
    enum { KEYS = 130 };
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *url = url_of("/all"), *name = semaphore_with(&talk, "/all"), *expected = "";
    for (int i = 0; i < KEYS; i++) {
        acquire(&talk, name, text("k%d", i));
        say(&talk, 200, "DELETE", request_path(text("k%d", i)), NULL);
        expected = text("%s%sacquired:k%d ended:k%d", expected, i ? " " : "", i, i);
    }
    takes("/all", expected);
    const char *row = row_of(&talk, url);
    const char *key = kept(kit_json_text(talk.reply.body, text("%s.keys.0", row)));
    cr_expect_str_eq(key, key_from(secret, url));
    say(&talk, 200, "GET", "/v1/feed?limit=1000", NULL);
    long seen = 0;
    for (size_t i = 0; i < calls_of("/all"); i++) {
        const struct received *call = call_of_path("/all", (int)i);
        long count = kit_json_length(call->body, "events");
        const char *first = kept(kit_json_text(call->body, "events.0.cursor"));
        const char *last = kept(kit_json_text(call->body, text("events.%ld.cursor", count - 1)));
        cr_expect_leq(count, 100);
        cr_expect_str_eq(call->cursor, text("%s..%s", first, last));
        cr_expect_str_eq(call->signature + strcspn(call->signature, ","), text(",v1=%s", signature_of(key, call)));
        cr_expect(kit_json_has(call->body, "next"));
        for (long j = 0; j < count; j++)
            cr_expect_str_eq(kept(kit_json_part(call->body, text("events.%ld", j))),
                             kept(kit_json_part(talk.reply.body, text("events.%ld", seen + j))));
        seen += count;
    }
    cr_expect_eq(seen, 2 * KEYS);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, call_has_only_permits_of_semaphores_that_name_its_url)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *a = semaphore_with(&talk, "/a"), *b = semaphore_with(&talk, "/b");
    const char *quiet = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"all\"}");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"both\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"},"
             "{\"semaphore\":\"%s\",\"count\":3}]}",
             a, b, quiet));
    acquire(&talk, quiet, "unheard");
    acquire(&talk, a, "one");
    takes("/a", "acquired:both acquired:one");
    takes("/b", "acquired:both");
    const struct received *call = call_of_path("/b", 0);
    cr_expect_eq(kit_json_length(call->body, "events.0.permits"), 1);
    cr_expect(kit_json_text_is(call->body, "events.0.permits.0.semaphore", b));
    /* One that is named no more gets nothing more, and its row goes. */
    name_url(&talk, b, url_of("/a"));
    say(&talk, 200, "PUT", semaphore_path(a), "{\"feed_url\":\"\"}");
    cr_expect(!kit_json_has(talk.reply.body, "feed_url"));
    acquire(&talk, a, "silent");
    acquire(&talk, b, "moved");
    takes("/a", "acquired:both acquired:one acquired:moved");
    while (kit_json_length(talk.reply.body, "webhooks") != 1)
        say(&talk, 200, "GET", "/v1/webhooks", NULL);
    cr_expect_eq(calls_of("/b"), 1);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, semaphore_of_a_template_has_its_url)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/templates/event-",
        text("{\"capacity\":9,\"feed\":\"all\",\"feed_url\":\"%s\"}", url_of("/t")));
    text_is(&talk, "feed_url", url_of("/t"));
    (void)row_of(&talk, url_of("/t"));
    acquire(&talk, "event-7", "k");
    takes("/t", "acquired:k");
    say(&talk, 200, "GET", "/v1/semaphores/event-7", NULL);
    text_is(&talk, "feed_url", url_of("/t"));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- failures ---- */

Test(webhooks, one_that_hangs_or_fails_delays_no_other_and_loses_nothing)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *good = semaphore_with(&talk, "/good"), *failing = semaphore_with(&talk, "/fails");
    const char *hanging = semaphore_with(&talk, "/hangs");
    behave("/fails", FAIL);
    behave("/hangs", HANG);
    acquire(&talk, hanging, "h1");
    acquire(&talk, failing, "f1");
    is_called("/hangs", 1);
    is_called("/fails", 1);
    const char *expected = "";
    for (int i = 0; i < 20; i++) {
        acquire(&talk, good, text("g%d", i));
        expected = text("%s%sacquired:g%d", expected, i ? " " : "", i);
        takes("/good", expected);
    }
    acquire(&talk, failing, "f2");
    acquire(&talk, hanging, "h2");
    error_is(&talk, url_of("/fails"), "HTTP 500");
    const char *row = row_of(&talk, url_of("/fails"));
    cr_expect_geq(number_of(&talk, text("%s.failures", row)), 1);
    cr_expect_eq(number_of(&talk, text("%s.http_status", row)), 500);
    cr_expect_geq(number_of(&talk, text("%s.behind", row)), 1);
    cr_expect(kept(kit_json_text(talk.reply.body, text("%s.behind_since", row))) != NULL);
    say(&talk, 200, "GET", "/v1/doctor", NULL);
    cr_expect(strstr(talk.reply.body, "\"webhooks\",\"verdict\":\"warn\""), "%s", talk.reply.body);
    error_is(&talk, url_of("/hangs"), "timed out");
    behave("/fails", TAKE);
    behave("/hangs", TAKE);
    takes("/fails", "acquired:f1 acquired:f2");
    takes("/hangs", "acquired:h1 acquired:h2");
    error_is(&talk, url_of("/fails"), "");
    row = row_of(&talk, url_of("/fails"));
    cr_expect_eq(number_of(&talk, text("%s.failures", row)), 0);
    cr_expect_eq(log_count(permitd, "does not take its events"), 2);
    cr_expect_eq(log_count(permitd, "127.0.0.1"), log_count(permitd, "127.0.0.1:7070"), "no URL is logged");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, redirect_is_not_followed_and_long_answers_are_cut)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *redirects = semaphore_with(&talk, "/moved"), *endless = semaphore_with(&talk, "/endless");
    const char *babbles = semaphore_with(&talk, "/babbles");
    behave("/moved", REDIRECT);
    behave("/endless", ENDLESS);
    behave("/babbles", BABBLE);
    acquire(&talk, redirects, "r");
    acquire(&talk, endless, "e");
    acquire(&talk, babbles, "b");
    error_is(&talk, url_of("/moved"), "HTTP 307: redirects are not followed");
    error_is(&talk, url_of("/babbles"), "headers of the answer are longer than 4 KiB");
    takes("/endless", "acquired:e");
    error_is(&talk, url_of("/endless"), "");
    cr_expect_eq(calls_of("/elsewhere"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* The status says it, however the rest of the answer ends. */
Test(webhooks, events_are_taken_by_a_2xx_whose_body_does_not_come)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *cut = semaphore_with(&talk, "/cut");
    behave("/cut", CUT);
    acquire(&talk, cut, "c");
    takes("/cut", "acquired:c");
    error_is(&talk, url_of("/cut"), "");
    acquire(&talk, cut, "d");
    takes("/cut", "acquired:c acquired:d");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- addresses ---- */

static const char *const private_urls[] = {"http://127.0.0.1:%u/p0", "http://localhost:%u/p1",
                                           "http://[::ffff:127.0.0.1]:%u/p2", "http://[::1]:%u/p3",
                                           "http://2130706433:%u/p4"};
enum { PRIVATE = sizeof private_urls / sizeof *private_urls };

static const char *private_url(size_t index)
{
    char url[200];
    static const char mark[] = "%u";
    const char *at = strstr(private_urls[index], mark);
    snprintf(url, sizeof url, "%.*s%u%s", (int)(at - private_urls[index]), private_urls[index], receiver.port, at + 2);
    return text("%s", url);
}

static void reload_with(const struct kit_permitd *permitd, const char *path, const char *content, size_t times)
{
    write_file(path, content, 0600);
    kill(permitd->pid, SIGHUP);
    while (log_count(permitd, "settings reloaded") < times)
        kit_sleep_ms(5);
}

Test(webhooks, private_addresses_are_refused_until_the_operator_lists_the_host)
{
    const char *path = kept(kit_path("permitd.conf")), *secret_path = secret_file(secret);
    write_file(path, text("webhook_secret = %s\n", secret_path), 0600);
    const char *flags[] = {"--config", path, NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *names[PRIVATE];
    for (size_t i = 0; i < PRIVATE; i++) {
        names[i] = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"all\"}");
        name_url(&talk, names[i], private_url(i));
        acquire(&talk, names[i], text("k%zu", i));
    }
    for (size_t i = 0; i < PRIVATE; i++)
        error_is(&talk, private_url(i), "an address that is not allowed");
    /* Allowed for hosts of a list only, and there is none; then for others than these. */
    reload_with(permitd, path, text("webhook_secret = %s\nwebhook_private = true\n", secret_path), 1);
    acquire(&talk, names[0], "more");
    reload_with(permitd, path,
                text("webhook_secret = %s\nwebhook_private = true\nwebhook_hosts = elsewhere.example\n", secret_path),
                2);
    for (size_t i = 0; i < PRIVATE; i++)
        error_is(&talk, private_url(i), "not in webhook_hosts");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(names[0]), "{\"feed_url\":\"http://else.example\"}");
    detail_has(&talk, "webhook_hosts");
    /* Listed, and not allowed to be private. */
    static const char list[] = "webhook_hosts = 127.0.0.1, localhost, [::1], ::ffff:127.0.0.1, 2130706433\n";
    reload_with(permitd, path, text("webhook_secret = %s\n%s", secret_path, list), 3);
    for (size_t i = 0; i < PRIVATE; i++)
        error_is(&talk, private_url(i), "an address that is not allowed");
    cr_expect_eq(__atomic_load_n(&receiver.connections, __ATOMIC_SEQ_CST), 0, "nothing was connected to");
    reload_with(permitd, path, text("webhook_secret = %s\nwebhook_private = true\n%s", secret_path, list), 4);
    takes("/p0", "acquired:k0 acquired:more");
    for (size_t i = 1; i < PRIVATE; i++)
        takes(text("/p%zu", i), text("acquired:k%zu", i));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, link_local_address_is_refused_for_a_listed_host_too)
{
    const char *flags[] = {"--webhook-secret", secret_file(secret), "--webhook-hosts=169.254.169.254,0.0.0.0",
                           "--webhook-private", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *urls[] = {text("http://169.254.169.254:%u/", receiver.port), text("http://0.0.0.0:%u/", receiver.port)};
    for (size_t i = 0; i < 2; i++) {
        const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"all\"}");
        name_url(&talk, name, urls[i]);
        acquire(&talk, name, NULL);
        error_is(&talk, urls[i], "an address that is not allowed");
    }
    cr_expect_eq(__atomic_load_n(&receiver.connections, __ATOMIC_SEQ_CST), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, proxy_of_the_environment_is_not_used)
{
    setenv("http_proxy", url_of("/proxy"), 1);
    setenv("ALL_PROXY", url_of("/proxy"), 1);
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/direct");
    acquire(&talk, name, "k");
    takes("/direct", "acquired:k");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- secrets ---- */

static bool has_two_signatures(void *context)
{
    return count_of(call_of_path(context, -1)->signature, ",v1=") == 2;
}

static bool has_one_signature(void *context)
{
    return count_of(call_of_path(context, -1)->signature, ",v1=") == 1;
}

Test(webhooks, two_secrets_sign_while_they_change)
{
    const char *path = secret_file(secret), *url = url_of("/s");
    const char *flags[] = {"--webhook-secret", path, "--webhook-hosts=127.0.0.1", "--webhook-private", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/s");
    acquire(&talk, name, "k1");
    is_called("/s", 1);
    reload_with(permitd, path, text("%s\n%s\n", second_secret, secret), 1);
    acquire(&talk, name, "k2");
    is_called("/s", FORMER);
    cr_assert(kit_wait_until(has_two_signatures, (void *)(uintptr_t) "/s", PATIENCE_MS));
    const struct received *call = call_of_path("/s", -1);
    const char *first = signature_of(key_from(second_secret, url), call);
    cr_expect(strstr(call->signature, text(",v1=%s,v1=%s", first, signature_of(key_from(secret, url), call))), "%s",
              call->signature);
    const char *row = row_of(&talk, url);
    text_is(&talk, text("%s.keys.0", row), key_from(second_secret, url));
    text_is(&talk, text("%s.keys.1", row), key_from(secret, url));
    /* A file with a mistake leaves the secrets of before. */
    reload_with(permitd, path, "short", 2);
    cr_expect_eq(log_count(permitd, "webhook_secret reload failed"), 1);
    reload_with(permitd, path, second_secret, 3);
    acquire(&talk, name, "k3");
    is_called("/s", 3);
    cr_assert(kit_wait_until(has_one_signature, (void *)(uintptr_t) "/s", PATIENCE_MS));
    takes("/s", "acquired:k1 acquired:k2 acquired:k3");
    cr_expect_eq(log_count(permitd, secret), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, without_a_secret_no_url_can_be_named)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name), "{\"feed_url\":\"https://shop.example/\"}");
    detail_has(&talk, "webhook_secret");
    say(&talk, 200, "PUT", semaphore_path(name), "{\"feed_url\":\"\"}");
    say(&talk, 200, "GET", "/v1/webhooks", NULL);
    cr_expect_eq(kit_json_length(talk.reply.body, "webhooks"), 0);
    talk_end(&talk);
}

Test(webhooks, permitd_does_not_start_with_a_bad_secret)
{
    refuses_flags("--webhook-secret", secret_file("short"), "32 to 255 bytes");
    const char *path = secret_file(secret);
    cr_assert_eq(chmod(path, 0644), 0);
    refuses_flags("--webhook-secret", path, "chmod 600");
    refuses_flags("--webhook-secret", "/nowhere/secret", "/nowhere/secret");
}

/* ---- limits, and who sees a URL ---- */

Test(webhooks, url_that_cannot_be_called_is_refused)
{
    static const char *const bad[] = {"ftp://a", "shop.example", "http://me:pass@a/", "http://a/#x", "http://a:0/",
                                      "http://", "http://a b/",  "http://a/\\u0000",  "http://a/ü"};
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused(&talk, 422, "invalid", "PUT", semaphore_path(name), text("{\"feed_url\":\"%s\"}", bad[i]));
        detail_has(&talk, "feed_url");
    }
    const char *long_path = text("%*s", 1024, "");
    memset((char *)(uintptr_t)long_path, 'a', 1024);
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name),
            text("{\"feed_url\":\"http://127.0.0.1/%s\"}", long_path));
    refused(&talk, 422, "invalid", "PUT", "/v1/templates/x", "{\"capacity\":1,\"feed_url\":\"http://a#b\"}");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name), "{\"feed_url\":null}");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_expect(!kit_json_has(talk.reply.body, "feed_url"));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, at_most_100_urls_are_named)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    for (int i = 0; i < 100; i++)
        say(&talk, 201, "PUT", text("/v1/semaphores/s%d", i),
            text("{\"capacity\":1,\"feed_url\":\"%s\"}", url_of(text("/%d", i))));
    int tries = 0; /* the number is that of a second ago */
    do {
        reply_release(&talk.reply);
        kit_http_put(&talk.http, semaphore_path(name), text("{\"feed_url\":\"%s\"}", url_of(text("/more%d", tries++))),
                     &talk.reply);
    } while (talk.reply.status == 200);
    cr_expect_eq(talk.reply.status, 429);
    detail_has(&talk, "100");
    say(&talk, 200, "PUT", semaphore_path(name), "{\"feed_url\":\"\"}");
    name_url(&talk, name, url_of("/7"));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static const char look[] = "Authorization: Bearer pmt_operator-token-of-the-tenants-tests-xxxxxxx\r\n";
static const char operate[] = "Authorization: Bearer pmt_left-token-of-the-tenants-tests-xxxxxxxxxxx\r\n";

Test(webhooks, url_is_shown_to_operate_only)
{
    static const char credentials[] =
        "[looker]\n"
        "token = sha256:940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86\nrole = look\n"
        "semaphores = *\n"
        "[tenant]\n"
        "token = sha256:561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0\nrole = operate\n"
        "semaphores = a:* b\nnamespace = left\n";
    static const char *const paths[] = {"/v1/semaphores/a:1", "/v1/semaphores", "/v1/templates/a:", "/v1/templates",
                                        "/v1/semaphores/a:1/events"};
    const char *path = kept(kit_path("credentials"));
    write_file(path, credentials, 0600);
    struct kit_permitd *permitd = permitd_with("--credentials", path);
    struct talk talk = talk_to(permitd->port);
    const char *url = url_of("/secret-path"), *body = text("{\"capacity\":1,\"feed_url\":\"%s\"}", url);
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/a:1", operate, body);
    say_with(&talk, 201, NULL, "PUT", "/v1/templates/a:", operate, body);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        say_with(&talk, 200, NULL, "GET", paths[i], look, NULL);
        cr_expect(!strstr(talk.reply.body, "feed_url") && !strstr(talk.reply.body, "secret-path"), "%s: %s", paths[i],
                  talk.reply.body);
        say_with(&talk, 200, NULL, "GET", paths[i], operate, NULL);
        cr_expect_eq(strstr(talk.reply.body, url) != NULL, strstr(paths[i], "events") == NULL, "%s: %s", paths[i],
                     talk.reply.body);
    }
    say_with(&talk, 403, "forbidden", "GET", "/v1/webhooks", look, NULL);
    say_with(&talk, 200, NULL, "GET", "/v1/webhooks", operate, NULL);
    text_is(&talk, "webhooks.0.url", url);
    cr_expect(!kit_json_has(talk.reply.body, "webhooks.0.namespace"));
    const char *key = kept(kit_json_text(talk.reply.body, "webhooks.0.keys.0"));
    cr_expect_str_neq(key, key_from(secret, url), "the namespace is in the key");
    cr_expect_eq(log_count(permitd, "secret-path"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, tenant_sees_no_key_of_another)
{
    static const char credentials[] =
        "[all]\n"
        "token = sha256:940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86\nrole = operate\n"
        "semaphores = *\nnamespace = right\n"
        "[tenant]\n"
        "token = sha256:561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0\nrole = operate\n"
        "semaphores = a:* shared\nnamespace = left\n";
    const char *path = kept(kit_path("credentials"));
    write_file(path, credentials, 0600);
    struct kit_permitd *permitd = permitd_with("--credentials", path);
    struct talk talk = talk_to(permitd->port);
    const char *url = url_of("/same"), *body = text("{\"capacity\":1,\"feed_url\":\"%s\"}", url);
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/mine", look, body);
    say_with(&talk, 200, NULL, "GET", "/v1/webhooks", operate, NULL);
    cr_expect_eq(kit_json_length(talk.reply.body, "webhooks"), 0, "none of its semaphores names it");
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/a:1", operate, body);
    say_with(&talk, 200, NULL, "GET", "/v1/webhooks", operate, NULL);
    cr_expect_eq(kit_json_length(talk.reply.body, "webhooks"), 1);
    const char *key = kept(kit_json_text(talk.reply.body, "webhooks.0.keys.0"));
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/shared", look, body);
    say_with(&talk, 200, NULL, "GET", "/v1/webhooks", operate, NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "webhooks"), 2);
    text_is(&talk, "webhooks.1.namespace", "right");
    cr_expect(!kit_json_has(talk.reply.body, "webhooks.1.keys"), "%s", talk.reply.body);
    say_with(&talk, 200, NULL, "GET", "/v1/webhooks", look, NULL);
    for (int i = 0; i < 2; i++)
        cr_expect(kit_json_has(talk.reply.body, text("webhooks.%d.keys.0", i)));
    text_is(&talk, "webhooks.0.keys.0", key);
    cr_expect_str_neq(kept(kit_json_text(talk.reply.body, "webhooks.1.keys.0")), key);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- deleted events, failover, takeover ---- */

Test(webhooks, behind_the_retention_comes_a_gap_and_then_the_oldest)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct kit_sql *sql = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/late");
    behave("/late", FAIL);
    for (int i = 0; i < 4; i++)
        acquire(&talk, name, text("k%d", i));
    is_called("/late", 1);
    while (kit_sql_number(sql, "SELECT seq FROM feed_head") != 4)
        kit_sleep_ms(5);
    kit_sql_run(sql, "DELETE FROM feed WHERE seq<=2");
    behave("/late", TAKE);
    takes("/late", "gap: acquired:k2 acquired:k3");
    const struct received *call = call_of_path("/late", -1);
    const char *gap = kept(kit_json_text(call->body, "events.0.cursor"));
    cr_expect(strstr(gap, "-2"), "%s", gap);
    cr_expect(strncmp(call->cursor, gap, strlen(gap)) == 0, "%s", call->cursor);
    cr_expect(!kit_json_has(call->body, "events.0.permits") && kit_json_has(call->body, "events.0.at"));
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, after_a_failover_that_lost_events_comes_a_gap)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct kit_sql *sql = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/replica");
    for (int i = 0; i < 3; i++)
        acquire(&talk, name, text("k%d", i));
    takes("/replica", "acquired:k0 acquired:k1 acquired:k2");
    error_is(&talk, url_of("/replica"), "");
    /* As on a replica that lacks the last two events, after the epoch has risen. */
    kit_sql_run(sql, "UPDATE feed_head SET seq=1,durable=1");
    kit_sql_run(sql, "DELETE FROM feed WHERE seq>1");
    kit_sql_run(sql, "INSERT INTO feed_epoch SELECT epoch+1,1 FROM cluster");
    kit_sql_run(sql, "UPDATE cluster SET epoch=epoch+1");
    say_until(&talk, 201, "POST", "/v1/requests", acquire_body("k3", name, 1, ",\"ttl\":\"1h\""));
    takes("/replica", "acquired:k0 acquired:k1 acquired:k2 gap: acquired:k3");
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(webhooks, another_permitd_takes_over_from_one_that_is_killed)
{
    const char *path = secret_file(secret);
    const char *flags[] = {"--webhook-secret", path, "--webhook-hosts=127.0.0.1", "--webhook-private", patient_flags[0],
                           patient_flags[1],   NULL};
    const struct kit_permitd_options options = {.database = own_url("two"), .flags = flags};
    struct kit_permitd *first = kit_permitd_start(&options), *second = kit_permitd_start(&options);
    struct talk talk = talk_to(second->port), other = talk_to(first->port);
    const char *name = semaphore_with(&talk, "/two"), *idle = semaphore_with(&talk, "/idle");
    acquire(&talk, name, "k0");
    acquire(&other, name, "k1");
    takes("/two", "acquired:k0 acquired:k1");
    /* Either of them may send: the one that is killed leaves a call, or only its lead. */
    behave("/two", HANG);
    acquire(&other, name, "k2");
    is_called("/two", calls_of("/two") + 1);
    kit_permitd_kill(first);
    behave("/two", TAKE);
    acquire(&talk, name, "k3");
    acquire(&talk, idle, "i");
    takes("/idle", "acquired:i");
    takes("/two", "acquired:k0 acquired:k1 acquired:k2 acquired:k3");
    talk_end(&talk);
    talk_end(&other);
    kit_permitd_stop(second);
}

Test(webhooks, permitd_that_stops_leaves_its_call_to_another_at_once)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct kit_sql *sql = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/stops");
    behave("/stops", HANG);
    acquire(&talk, name, "k");
    is_called("/stops", 1);
    cr_expect_neq(kit_sql_number(sql, "SELECT server_id FROM webhook"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    cr_expect_eq(kit_sql_number(sql, "SELECT server_id FROM webhook"), 0);
    cr_expect_eq(kit_sql_number(sql, "SELECT COUNT(claimed_until) FROM webhook"), 0);
    kit_sql_close(sql);
}

/* ---- metrics ---- */

Test(webhooks, metrics_name_a_url_by_its_id)
{
    struct kit_permitd *permitd = permitd_with(NULL, NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = semaphore_with(&talk, "/m");
    acquire(&talk, name, "k");
    takes("/m", "acquired:k");
    metric_becomes(&talk, "permitd_webhook_calls_total{result=\"taken\"}", 1);
    metric_becomes(&talk, "permitd_webhook_events_total", 1);
    const char *row = row_of(&talk, url_of("/m"));
    const char *id = kept(kit_json_text(talk.reply.body, text("%s.webhook", row)));
    metric_becomes(&talk, text("permitd_webhook_behind_events{webhook=\"%s\"}", id), 0);
    metric_becomes(&talk, text("permitd_webhook_failures{webhook=\"%s\"}", id), 0);
    metric_becomes(&talk, text("permitd_webhook_http_status{webhook=\"%s\"}", id), 200);
    reply_release(&talk.reply);
    kit_http_get(&talk.http, "/metrics", &talk.reply);
    cr_expect(!strstr(talk.reply.body, "/m\"") && !strstr(talk.reply.body, url_of("/m")));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}
