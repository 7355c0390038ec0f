/* SPDX-License-Identifier: MIT */
/* Credentials: every route with every right, in and out of scope, and the answers that could reveal another principal. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "load_client.h"

/* ---- the credentials file ---- */

/* Principals of the tests. Their scope is "in:*" and "hall", unless their role has everything. */
static const struct person {
    const char *name;
    const char *role;
    bool has_scope;
    const char *token;
    const char *digest; /* SHA-256 of the token */
    const char *rights;
} people[] = {
    {"looker", "look", true, "pmt_looker-token-of-the-tests-xxxxxxxxxxxxxxxxx",
     "094a5fbb367335efa2c29ecd6dbcd879ea2c59421c2c02a5d6096c84ac1d38c3", "look"},
    {"user", "use", true, "pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx",
     "22fbd150f98a641b1c79d2d8dd5e9f1340713415f9d49b48825f2df9e9dc5529", "look use"},
    {"operator", "operate", true, "pmt_operator-token-of-the-tests-xxxxxxxxxxxxxxx",
     "d54d4e9f4347f6e5b8964f5b7d44ca6429ab634b79f9435ec6ccfa553ecadbe7", "look use operate"},
    {"admin", "admin", false, "pmt_admin-token-of-the-tests-xxxxxxxxxxxxxxxxxx",
     "a190a9343d7a02c66cfe512b3a93c250f63cb639612b0ea86420bc55afd7fb9e", "look use operate admin fence metrics"},
    {"fencer", "fence", true, "pmt_fencer-token-of-the-tests-xxxxxxxxxxxxxxxxx",
     "0ce819f690f2a2d930638c9a9ed4f8a4372dac92b658a7d764b6344337d614ac", "fence"},
    {"scraper", "metrics", false, "pmt_scraper-token-of-the-tests-xxxxxxxxxxxxxxxx",
     "6d99dcb0acd259c050562358e73d6feefc8dc8975721f7a92ffed57c1ec0cf73", "metrics"},
};
enum { LOOKER, USER, OPERATOR, ADMIN, FENCER, SCRAPER, PEOPLE };

#define ENDED_TOKEN     "pmt_ended-token-of-the-tests-xxxxxxxxxxxxxxxxxx"
#define ENDED_DIGEST    "f2513710f3d5e235672a8946f7429c949da6acb4e4461800be87a8d22e1bd430"
#define TENANT_TOKEN    "pmt_tenant-token-of-the-tests-xxxxxxxxxxxxxxxxx"
#define TENANT_DIGEST   "0e8992bcbec256fff443604320db9ff7885d0f288b51136a5374cf783099ec48"
#define STRANGERS_TOKEN "pmt_stranger-token-of-the-tests-xxxxxxxxxxxxxxx"

/* Writes the file with all people but `without` (PEOPLE: with all), in place of the one before. */
static void write_credentials(const char *path, unsigned without)
{
    const char *content = "[ended]\ntoken = sha256:" ENDED_DIGEST " until 2020-01-01\nrole = use\nsemaphores = in:*\n";
    for (unsigned i = 0; i < PEOPLE; i++)
        if (i != without)
            content = text("%s[%s]\ntoken = sha256:%s\nrole = %s\n%s", content, people[i].name, people[i].digest,
                           people[i].role, people[i].has_scope ? "semaphores = in:* hall\n" : "");
    write_file(path, content, 0600);
}

/* A permitd with credentials, and a connection of the admin. */
struct scene {
    char *path;
    struct kit_permitd *permitd;
    struct talk talk;
};

static const char *bearer(unsigned person)
{
    return text("Authorization: Bearer %s\r\n", people[person].token);
}

/* Sends a request of this person and asserts the status of the answer; type NULL: not a problem. */
static void by(struct scene *scene, unsigned person, int status, const char *type, const char *method, const char *path,
               const char *body)
{
    say_with(&scene->talk, status, type, method, path, bearer(person), body);
}

/* `database` NULL: one of the suite's server. */
static void scene_begin_on(struct scene *scene, const struct kit_database *database)
{
    scene->path = kit_path("credentials");
    write_credentials(scene->path, PEOPLE);
    /* One worker: else the ids of requests, by which they are listed, are those of two blocks. */
    const char *const flags[] = {"--credentials", scene->path, "--workers", "1", NULL};
    struct kit_permitd_options options = {.database = database ? database->url : NULL, .flags = flags};
    scene->permitd = database ? kit_permitd_start(&options) : own_permitd(flags);
    scene->talk = talk_to(scene->permitd->port);
    by(scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/in:a", "{\"capacity\":1000}");
    by(scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/out:a", "{\"capacity\":1000}");
}

static void scene_begin(struct scene *scene)
{
    scene_begin_on(scene, NULL);
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    char *log = kit_read_file(scene->permitd->log_path);
    cr_expect_null(strstr(log, "pmt_"), "a token in the log: %s", log);
    free(log);
    kit_permitd_stop(scene->permitd);
    free(scene->path);
}

/* A connection from an address of its own, because failures of an address close its next connections. */
static struct talk talk_from_elsewhere(const struct scene *scene)
{
    static uint32_t count;
    struct talk talk = talk_to(scene->permitd->port);
    uint32_t source = INADDR_LOOPBACK + 0x10000 + (++count << 8);
    talk.http.fd = load_connect(INADDR_LOOPBACK, scene->permitd->port, source, 0);
    cr_assert_geq(talk.http.fd, 0);
    return talk;
}

/* ---- every route, every right ---- */

enum { ROUTES_MAX = 64, PATH_MAX_BYTES = 128 };

/* A line of permitd --print-routes. */
struct route_line {
    char method[8];
    char path[PATH_MAX_BYTES];
    char rights[64]; /* "": open */
};

static size_t read_routes(struct route_line *routes)
{
    const char *binary = getenv("PERMIT_PERMITD");
    FILE *lines = popen(text("%s --print-routes", binary ? binary : PERMIT_BUILD_DIR "/permitd"), "r");
    char line[256];
    size_t count = 0;
    cr_assert_not_null(lines);
    while (fgets(line, sizeof line, lines)) {
        struct route_line *route = &routes[count++];
        cr_assert_lt(count, ROUTES_MAX);
        cr_assert_geq(sscanf(line, "%7s %127s %63[^\n]", route->method, route->path, route->rights), 2);
    }
    cr_assert_eq(pclose(lines), 0);
    return count;
}

static bool has_word(const char *words, const char *word)
{
    const char *at = strstr(words, word);
    size_t length = strlen(word);
    return at && (at == words || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ');
}

static bool may_use(const struct person *person, const struct route_line *route)
{
    static const char *const words[] = {"look", "use", "operate", "admin", "fence", "metrics"};
    bool may = route->rights[0] == 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        may |= has_word(person->rights, words[i]) && has_word(route->rights, words[i]);
    return may;
}

/* Returns a body that the route accepts, or that it refuses for its content (a bump would stop grants). */
static const char *body_of(const struct route_line *route, const char *semaphore)
{
    const char *path = route->path;
    const char *permits = text("\"permits\":[{\"semaphore\":\"%s\"}]", semaphore);
    if (!strcmp(route->method, "GET") || !strcmp(route->method, "DELETE"))
        return NULL;
    if (!strcmp(path, "/v1/requests"))
        return text("{%s}", permits);
    if (!strcmp(path, "/v1/confirm"))
        return "{\"external_ids\":[\"nobody\"]}";
    if (!strcmp(path, "/v1/batch"))
        return text("{\"operations\":[{\"op\":\"acquire\",%s}]}", permits);
    if (strstr(path, "/shrink"))
        return text("{%s,\"nonce\":\"n\",\"changes\":0}", permits);
    if (strstr(path, "/grow")) /* what it takes is in scope, so that the request decides */
        return "{\"permits\":[{\"semaphore\":\"in:a\"}],\"nonce\":\"n\",\"changes\":0}";
    if (strstr(path, "/exchange"))
        return text("{\"give\":[{\"semaphore\":\"%s\"}],\"take\":[{\"semaphore\":\"in:a\"}],\"nonce\":\"n\","
                    "\"changes\":0}",
                    semaphore);
    if (strstr(path, "force-release") || strstr(path, "/pause"))
        return "{\"reason\":\"because\"}";
    if (strstr(path, "/owners/"))
        return "{\"ttl\":\"30s\"}";
    if (strstr(path, "/slots"))
        return "{\"labels\":[\"a\"]}";
    if (!strcmp(route->method, "PUT"))
        return "{\"capacity\":3}";
    return "{}";
}

/* Returns the path with its parameter; *ret_scoped: whether it is in a scope or not. */
static const char *path_of(struct scene *scene, const struct route_line *route, bool in, bool *ret_scoped)
{
    static unsigned count;
    const char *parameter = strchr(route->path, '{');
    const char *value = text("o%u", ++count);
    *ret_scoped = false;
    if (!parameter)
        return route->path;
    if (strncmp(parameter, "{owner}", 7) != 0)
        *ret_scoped = true;
    if (!strncmp(parameter, "{external_id}", 13)) {
        value = text("%s-%u", in ? "kin" : "kout", count);
        by(scene, ADMIN, 201, NULL, "POST", "/v1/requests",
           text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s:a\"}]}", value, in ? "in" : "out"));
    } else if (*ret_scoped) {
        value = in ? text("in:%u", count) : "out:a";
    }
    const char *rest = strchr(parameter, '}') + 1;
    const char *query = strstr(route->path, "/fence") ? "?token=1" : "";
    return text("%.*s%s%s%s", (int)(parameter - route->path), route->path, value, rest, query);
}

/* A number that every change of the database changes. */
static int64_t fingerprint(struct kit_sql *sql)
{
    return kit_sql_number(sql, "SELECT (SELECT COALESCE(SUM(version * 31 + config_version),0) FROM semaphore) * 7"
                               " + (SELECT COUNT(*) FROM permit_request) * 1009"
                               " + (SELECT COALESCE(SUM(renewals + replays + state * 5),0) FROM permit_request) * 3"
                               " + (SELECT COUNT(*) FROM semaphore_event) * 100003"
                               " + (SELECT COUNT(*) FROM template) * 300007 + (SELECT COUNT(*) FROM owner) * 700001");
}

static void without_credential(struct scene *scene, struct kit_sql *sql, const struct route_line *route)
{
    bool scoped;
    const char *path = path_of(scene, route, true, &scoped);
    int64_t before = fingerprint(sql);
    struct talk talk = talk_from_elsewhere(scene);
    kit_http_call(&talk.http, route->method, path, NULL, body_of(route, "in:a"), &talk.reply);
    if (route->rights[0]) {
        cr_expect_eq(talk.reply.status, 401, "%s %s: %d", route->method, path, talk.reply.status);
        header_is(&talk, "WWW-Authenticate", "Bearer");
    } else {
        cr_expect_neq(talk.reply.status, 401, "%s %s", route->method, path);
    }
    cr_expect_eq(fingerprint(sql), before, "something has changed: %s %s", route->method, path);
    talk_end(&talk);
}

static void with_credential(struct scene *scene, struct kit_sql *sql, const struct route_line *route, unsigned person,
                            bool in)
{
    bool scoped;
    const char *path = path_of(scene, route, in, &scoped);
    const char *body = body_of(route, in ? "in:a" : "out:a");
    bool may = may_use(&people[person], route);
    bool is_key = scoped && strstr(route->path, "{external_id}");
    bool out = !in && people[person].has_scope;
    int64_t before = fingerprint(sql);
    struct reply reply;
    kit_http_call(&scene->talk.http, route->method, path, bearer(person), body, &reply);
    const char *what = text("%s: %s %s: %d %s", people[person].name, route->method, path, reply.status, reply.body);
    bool acquires = !strcmp(route->method, "POST") && !strcmp(route->path, "/v1/requests");
    bool batch = !strcmp(route->path, "/v1/batch");
    if (!may) {
        cr_expect_eq(reply.status, 403, "%s", what);
        cr_expect_not_null(strstr(reply.body, "needs the right "), "%s", what);
    } else if (out && is_key) {
        cr_expect(kit_json_text_is(reply.body, "type", "/problems/unknown_request"), "%s", what);
    } else if (out && (scoped || acquires)) {
        cr_expect_eq(reply.status, 403, "%s", what);
    } else if (out && batch) {
        cr_expect_eq(kit_json_int(reply.body, "results.0.status"), 403, "%s", what);
    } else {
        cr_expect(reply.status != 401 && reply.status != 403, "%s", what);
        cr_expect(!is_key || reply.status == 200, "%s", what);
    }
    if (!may || (out && (scoped || acquires || batch)))
        cr_expect_eq(fingerprint(sql), before, "something has changed: %s", what);
    int status = reply.status;
    reply_release(&reply);
    if (strcmp(route->method, "GET") != 0)
        return;
    kit_http_call(&scene->talk.http, "HEAD", path, bearer(person), NULL, &reply);
    cr_expect_eq(reply.status, status, "HEAD: %d: %s", reply.status, what);
    reply_release(&reply);
}

Test(access, every_route_with_every_right_in_and_out_of_scope, .timeout = 600)
{
    static struct route_line routes[ROUTES_MAX];
    struct scene scene;
    size_t count = read_routes(routes);
    scene_begin(&scene);
    struct kit_sql *sql = own_sql("own0");
    cr_assert_gt(count, 30);
    for (size_t i = 0; i < count; i++) {
        without_credential(&scene, sql, &routes[i]);
        for (unsigned person = 0; person < PEOPLE; person++) {
            with_credential(&scene, sql, &routes[i], person, true);
            with_credential(&scene, sql, &routes[i], person, false);
        }
    }
    kit_sql_close(sql);
    scene_end(&scene);
}

/* ---- 401 ---- */

/* Returns the answer without the parts that differ in every answer. */
static const char *answer_without_ids(const struct scene *scene, const char *headers)
{
    struct talk talk = talk_from_elsewhere(scene);
    kit_http_call(&talk.http, "GET", "/v1/semaphores", headers, NULL, &talk.reply);
    cr_assert_eq(talk.reply.status, 401, "%s: %d %s", headers, talk.reply.status, talk.reply.body);
    const char *id = strstr(talk.reply.headers, "X-Request-Id: ");
    const char *date = strstr(talk.reply.headers, "Date: ");
    cr_assert(id && date);
    const char *answer =
        text("%.*s%s%s", (int)(id - talk.reply.headers), talk.reply.headers, strstr(date, "\r\n"), talk.reply.body);
    talk_end(&talk);
    return answer;
}

Test(access, every_cause_of_401_has_the_same_answer, .timeout = 300)
{
    static const char *const causes[] = {
        "Authorization: Bearer " STRANGERS_TOKEN "\r\n",
        "Authorization: Bearer " ENDED_TOKEN "\r\n",
        "Authorization: Bearer pmt_short\r\n",
        "Authorization: Bearer \r\n",
        "Authorization:\r\n",
        "Authorization: Basic dXNlcjpwYXNz\r\n",
        "Authorization: pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx\r\n",
        "Authorization: Bearer pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx x\r\n",
        "Authorization: Bearer pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx\r\n"
        "Authorization: Bearer pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx\r\n",
    };
    struct scene scene;
    scene_begin(&scene);
    const char *missing = answer_without_ids(&scene, NULL);
    cr_expect_not_null(strstr(missing, "WWW-Authenticate: Bearer\r\n"), "%s", missing);
    cr_expect_not_null(strstr(missing, "/problems/unauthenticated"), "%s", missing);
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        cr_expect_str_eq(answer_without_ids(&scene, causes[i]), missing, "%s", causes[i]);
    static const char *const others[][2] = {{"GET", "/v1/nothing"}, {"OPTIONS", "/v1/semaphores"}, {"PUT", "/healthz"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct talk talk = talk_from_elsewhere(&scene);
        say_with(&talk, 401, "unauthenticated", others[i][0], others[i][1], NULL, NULL);
        talk_end(&talk);
    }
    by(&scene, SCRAPER, 403, "forbidden", "GET", "/v1/semaphores", NULL);
    say_with(&scene.talk, 200, NULL, "GET", "/v1/whoami",
             "authorization: bearer pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx\r\n", NULL);
    reply_release(&scene.talk.reply);
    kit_http_call(&scene.talk.http, "GET", "/metrics", bearer(SCRAPER), NULL, &scene.talk.reply);
    const char *metrics = scene.talk.reply.body;
    cr_expect_not_null(strstr(metrics, "permitd_auth_total{result=\"missing\"} 4\n"), "%s", metrics);
    cr_expect_not_null(strstr(metrics, "permitd_auth_total{result=\"unknown\"} 1\n"), "%s", metrics);
    cr_expect_not_null(strstr(metrics, "permitd_auth_total{result=\"expired\"} 1\n"), "%s", metrics);
    cr_expect_not_null(strstr(metrics, "permitd_auth_total{result=\"malformed\"} 7\n"), "%s", metrics);
    cr_expect_not_null(strstr(metrics, "permitd_principal_requests_total{principal=\"scraper\"} 2\n"), "%s", metrics);
    cr_expect_not_null(strstr(metrics, "permitd_principal_refused_total{principal=\"scraper\"} 1\n"), "%s", metrics);
    scene_end(&scene);
}

struct probing {
    struct scene *scene;
    int expected;
};

/* Sends a probe without a credential; it is never refused for its rate. */
static bool probe_is(void *context)
{
    struct probing *probing = context;
    struct talk *talk = &probing->scene->talk;
    reply_release(&talk->reply);
    cr_assert(kit_http_call(&talk->http, "GET", "/readyz", NULL, NULL, &talk->reply), "%s", talk->reply.error);
    cr_assert(talk->reply.status == 200 || talk->reply.status == 503, "%d %s", talk->reply.status, talk->reply.body);
    return talk->reply.status == probing->expected;
}

/*
 * A frozen database answers nobody. So a probe that finds permitd ready then was answered as the one before it, as
 * happens beyond the rate while that is at most a second old. On a slow machine a try takes longer, and is repeated.
 */
Test(access, probes_beyond_their_rate_get_the_last_answer_while_it_is_young, .timeout = 600)
{
    enum { TRIES = 30, BURST = 50, LONG_MS = 120000 };
    struct scene scene;
    struct kit_database *database = kit_database_start(NULL);
    scene_begin_on(&scene, database);
    struct probing ready = {&scene, 200}, not_ready = {&scene, 503};
    bool again = false;
    for (int try = 0; try < TRIES && !again; try++) {
        cr_assert(kit_wait_until(probe_is, &ready, LONG_MS));
        for (int i = 0; i < BURST; i++)
            (void)probe_is(&ready);
        kit_database_freeze(database);
        again = probe_is(&ready);
        if (again) /* a client with a credential is answered for itself */
            by(&scene, LOOKER, 503, "database_unavailable", "GET", "/readyz", NULL);
        cr_assert(kit_wait_until(probe_is, &not_ready, LONG_MS));
        kit_database_thaw(database);
    }
    cr_expect(again);
    cr_assert(kit_wait_until(probe_is, &ready, LONG_MS));
    for (int i = 0; i < BURST; i++)
        say(&scene.talk, 200, "GET", "/healthz", NULL);
    scene_end(&scene);
    kit_database_stop(database);
}

Test(access, health_and_readiness_have_no_details_without_a_credential, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    say(&scene.talk, 200, "GET", "/healthz", NULL);
    cr_expect_str_eq(scene.talk.reply.body, "{\"status\":\"ok\"}\n");
    say(&scene.talk, 200, "GET", "/readyz", NULL);
    cr_expect_str_eq(scene.talk.reply.body, "{\"status\":\"ready\"}\n");
    by(&scene, LOOKER, 200, NULL, "GET", "/healthz", NULL);
    cr_expect(kit_json_has(scene.talk.reply.body, "version"));
    struct talk talk = talk_from_elsewhere(&scene);
    say_with(&talk, 200, NULL, "GET", "/healthz", "Authorization: Bearer " STRANGERS_TOKEN "\r\n", NULL);
    cr_expect_str_eq(talk.reply.body, "{\"status\":\"ok\"}\n");
    header_is(&talk, "Connection", "close"); /* a guess costs a connection here, too */
    talk_end(&talk);
    scene_end(&scene);
}

/* The status of one GET on a connection of its own from this address; 0: permitd closed it without an answer. */
static int status_from(const struct scene *scene, uint32_t source, const char *header)
{
    static const char version[] = "HTTP/1.1 ";
    const struct timeval patience = {.tv_sec = 60};
    char answer[4096] = "";
    size_t length = 0;
    ssize_t got = 0;
    const char *request = text("GET /v1/semaphores HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n", header);
    int fd = load_connect(INADDR_LOOPBACK, scene->permitd->port, source, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    while (length < sizeof version + 3 && (got = recv(fd, answer + length, sizeof answer - 1 - length, 0)) > 0)
        length += (size_t)got;
    close(fd);
    return strncmp(answer, version, sizeof version - 1) == 0 ? atoi(answer + sizeof version - 1) : 0;
}

enum { GUESSER = INADDR_LOOPBACK + 0x20000 };

static bool is_served(void *scene)
{
    return status_from(scene, GUESSER, bearer(LOOKER)) == 200;
}

/* On a slow machine ten failures may take more than a second; then they are repeated. */
Test(access, ten_failures_close_the_next_connections_of_an_address_for_a_second, .timeout = 300)
{
    enum { FAILURES = 10, TRIES = 50, LONG_MS = 60000 };
    struct scene scene;
    bool closed = false;
    scene_begin(&scene);
    for (int i = 0; i < TRIES && !closed; i++) {
        for (int j = 0; j < FAILURES; j++)
            (void)status_from(&scene, GUESSER, "Authorization: Bearer " STRANGERS_TOKEN "\r\n");
        closed = status_from(&scene, GUESSER, bearer(LOOKER)) == 0;
    }
    cr_expect(closed);
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/semaphores", NULL); /* another address */
    cr_expect(kit_wait_until(is_served, &scene, LONG_MS));
    scene_end(&scene);
}

/* A proxy that checks the health of permitd without a credential does not close the address of all its clients. */
Test(access, requests_without_a_credential_close_no_connections, .timeout = 300)
{
    enum { REQUESTS = 200 };
    struct scene scene;
    scene_begin(&scene);
    for (int i = 0; i < REQUESTS; i++)
        cr_assert_eq(status_from(&scene, GUESSER, ""), 401);
    cr_expect(is_served(&scene));
    scene_end(&scene);
}

/* ---- 403, 404 and lists ---- */

#define ACQUIRE(key, semaphore) "{\"external_id\":\"" key "\",\"permits\":[{\"semaphore\":\"" semaphore "\"}]}"

static void detail_is(struct scene *scene, const char *expected)
{
    text_is(&scene->talk, "detail", expected);
}

Test(access, refusal_names_the_right_and_the_semaphore, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, LOOKER, 403, "forbidden", "POST", "/v1/requests", ACQUIRE("k", "in:a"));
    detail_is(&scene, "needs the right use on in:a");
    by(&scene, LOOKER, 403, "forbidden", "POST", "/v1/requests", "{\"external_id\":");
    detail_is(&scene, "needs the right use");
    by(&scene, LOOKER, 403, "forbidden", "POST", "/v1/requests/k/renew", "{}");
    detail_is(&scene, "needs the right use");
    by(&scene, USER, 403, "forbidden", "PUT", "/v1/semaphores/in:a", "{\"capacity\":1}");
    detail_is(&scene, "needs the right operate on in:a");
    by(&scene, USER, 403, "forbidden", "PUT", "/v1/templates/in:", "{\"capacity\":1}");
    detail_is(&scene, "needs the right operate on all semaphores that begin with in:");
    by(&scene, USER, 403, "forbidden", "POST", "/v1/requests", ACQUIRE("k", "out:a"));
    detail_is(&scene, "needs the right use on out:a");
    by(&scene, USER, 403, "forbidden", "POST", "/v1/requests", ACQUIRE("k", "out:none"));
    detail_is(&scene, "needs the right use on out:none");
    by(&scene, OPERATOR, 403, "forbidden", "PUT", "/v1/semaphores/shop", "{\"capacity\":1}");
    detail_is(&scene, "needs the right operate on shop");
    by(&scene, OPERATOR, 403, "forbidden", "PUT", "/v1/templates/in", "{\"capacity\":1}");
    detail_is(&scene, "needs the right operate on all semaphores that begin with in");
    by(&scene, OPERATOR, 403, "forbidden", "PUT", "/v1/templates/hall", "{\"capacity\":1}");
    by(&scene, OPERATOR, 201, NULL, "PUT", "/v1/templates/in:x", "{\"capacity\":1}");
    by(&scene, SCRAPER, 403, "forbidden", "GET", "/v1/semaphores/in:a/fence?token=1", NULL);
    detail_is(&scene, "needs the right look or fence on in:a");
    by(&scene, SCRAPER, 403, "forbidden", "GET", "/v1/requests?semaphore=in:a", NULL);
    detail_is(&scene, "needs the right look on in:a");
    by(&scene, SCRAPER, 403, "forbidden", "GET", "/v1/requests", NULL);
    detail_is(&scene, "needs the right look");
    by(&scene, LOOKER, 403, "forbidden", "GET", "/v1/requests?semaphore=out:a", NULL);
    detail_is(&scene, "needs the right look on out:a");
    by(&scene, USER, 201, NULL, "POST", "/v1/requests", ACQUIRE("k", "in:xyz")); /* made from the template */
    by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/in:xyz/events", NULL);
    text_is(&scene.talk, "events.0.who", "user");
    scene_end(&scene);
}

Test(access, keys_out_of_scope_are_not_there, .timeout = 300)
{
    static const char *const paths[] = {"", "/why"};
    struct scene scene;
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests",
       "{\"external_id\":\"both\",\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("out", "out:a"));
    by(&scene, USER, 201, NULL, "POST", "/v1/requests", ACQUIRE("mine", "in:a"));
    for (size_t i = 0; i < 2; i++) {
        by(&scene, USER, 404, "unknown_request", "GET", text("/v1/requests/both%s", paths[i]), NULL);
        by(&scene, USER, 404, "unknown_request", "GET", text("/v1/requests/out%s", paths[i]), NULL);
        cr_expect_null(strstr(scene.talk.reply.body, "nearest"), "%s", scene.talk.reply.body);
        by(&scene, USER, 404, "unknown_request", "GET", text("/v1/requests/outt%s", paths[i]), NULL);
        cr_expect_null(strstr(scene.talk.reply.body, "nearest"), "%s", scene.talk.reply.body);
        by(&scene, USER, 200, NULL, "GET", text("/v1/requests/mine%s", paths[i]), NULL);
        cr_expect_not(kit_json_has(scene.talk.reply.body, "principal"));
        by(&scene, OPERATOR, 200, NULL, "GET", text("/v1/requests/mine%s", paths[i]), NULL);
        text_is(&scene.talk, "principal", "user");
    }
    by(&scene, USER, 404, "unknown_request", "DELETE", "/v1/requests/both", NULL);
    by(&scene, USER, 404, "unknown_request", "POST", "/v1/requests/out/renew", NULL);
    by(&scene, USER, 422, "key_reused", "POST", "/v1/requests", ACQUIRE("out", "in:a"));
    cr_expect_null(strstr(scene.talk.reply.body, "out:a"), "%s", scene.talk.reply.body);
    by(&scene, OPERATOR, 403, "forbidden", "POST", "/v1/requests/both/force-release", "{\"reason\":\"because\"}");
    by(&scene, OPERATOR, 404, "unknown_request", "POST", "/v1/requests/out/force-release", "{\"reason\":\"because\"}");
    by(&scene, ADMIN, 200, NULL, "GET", "/v1/requests/both", NULL);
    text_is(&scene.talk, "state", "ACQUIRED");
    by(&scene, OPERATOR, 403, "forbidden", "DELETE", "/v1/semaphores/in:a?force=true&reason=because", NULL);
    by(&scene, ADMIN, 200, NULL, "GET", "/v1/requests/both", NULL);
    text_is(&scene.talk, "state", "ACQUIRED");
    by(&scene, USER, 404, "unknown_semaphore", "GET", "/v1/semaphores/in:aa", NULL);
    cr_expect_not_null(strstr(scene.talk.reply.body, "in:a\\\""), "%s", scene.talk.reply.body);
    by(&scene, USER, 404, "unknown_semaphore", "GET", "/v1/semaphores/hall", NULL);
    cr_expect_null(strstr(scene.talk.reply.body, "nearest"), "%s", scene.talk.reply.body);
    by(&scene, USER, 200, NULL, "DELETE", "/v1/requests/never", NULL); /* a tombstone, as ever */
    scene_end(&scene);
}

/* The user acquires a unit of each of these semaphores, which the template makes. */
static void hold_in(struct scene *scene, const char *key, int from, int to)
{
    const char *permits = "";
    for (int i = from; i < to; i++)
        permits = text("%s%s{\"semaphore\":\"in:x%d\"}", permits, *permits ? "," : "", i);
    by(scene, USER, 201, NULL, "POST", "/v1/requests", text("{\"external_id\":\"%s\",\"permits\":[%s]}", key, permits));
}

/* A confirm of too many semaphores must not tell that there is a request which its client may not see. */
Test(access, confirm_of_too_many_semaphores_tells_of_no_other_key, .timeout = 300)
{
    static const struct {
        const char *keys;
        const char *failed; /* NULL: too many */
    } rows[] = {
        {"\"wide\",\"out\"", "out"},
        {"\"wide\",\"nobody\"", "nobody"},
        {"\"out\",\"wide\"", "out"},
        {"\"wide\",\"both\",\"other\"", "both"},
        {"\"other\",\"out\",\"wide\",\"both\"", "out"},
        {"\"other\",\"wide\",\"third\",\"nobody\",\"out\"", "nobody"},
        {"\"other\",\"wide\",\"third\"", NULL},
    };
    struct scene scene;
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests",
       "{\"external_id\":\"both\",\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("out", "out:a"));
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/templates/in:", "{\"capacity\":1}");
    hold_in(&scene, "wide", 0, 64);
    hold_in(&scene, "other", 64, 66);
    hold_in(&scene, "third", 66, 67);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        by(&scene, USER, rows[i].failed ? 404 : 422, rows[i].failed ? "unknown_request" : "invalid", "POST",
           "/v1/confirm", text("{\"external_ids\":[%s]}", rows[i].keys));
        if (rows[i].failed)
            text_is(&scene.talk, "external_id", rows[i].failed);
    }
    by(&scene, USER, 200, NULL, "GET", "/v1/requests/other", NULL);
    cr_expect_not(kit_json_has(scene.talk.reply.body, "confirmed_at"), "%s", scene.talk.reply.body);
    by(&scene, ADMIN, 422, "invalid", "POST", "/v1/confirm", "{\"external_ids\":[\"out\",\"wide\",\"other\"]}");
    scene_end(&scene);
}

Test(access, lists_have_what_is_in_scope, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/templates/in:x", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/templates/out:x", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests",
       "{\"external_id\":\"both\",\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]}");
    for (int i = 0; i < 150; i++)
        by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests",
           text("{\"external_id\":\"out%d\",\"permits\":[{\"semaphore\":\"out:a\"}]}", i));
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("one", "in:a"));
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/semaphores", NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "semaphores"), 1, "%s", scene.talk.reply.body);
    text_is(&scene.talk, "semaphores.0.name", "in:a");
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/templates", NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "templates"), 1, "%s", scene.talk.reply.body);
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/in:b", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/hall", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/halls", "{\"capacity\":1}");
    static const char *const pages[] = {"hall", "in:a", "in:b"}; /* `next` is never out of scope */
    const char *after = "";
    for (size_t i = 0; i < 3; i++) {
        by(&scene, LOOKER, 200, NULL, "GET", text("/v1/semaphores?limit=1%s%s", *after ? "&after=" : "", after), NULL);
        text_is(&scene.talk, "semaphores.0.name", pages[i]);
        cr_expect_eq(kit_json_has(scene.talk.reply.body, "next"), i < 2, "%s", scene.talk.reply.body);
        after = pages[i];
        if (i < 2)
            text_is(&scene.talk, "next", after);
    }
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/semaphores?prefix=o", NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "semaphores"), 0, "%s", scene.talk.reply.body);
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/requests?limit=1000", NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "requests"), 1, "%s", scene.talk.reply.body);
    text_is(&scene.talk, "requests.0.external_id", "one");
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/requests?limit=100", NULL); /* a page of rows out of scope goes on */
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "requests"), 0, "%s", scene.talk.reply.body);
    char *next = kit_json_text(scene.talk.reply.body, "next");
    cr_assert_not_null(next);
    by(&scene, LOOKER, 200, NULL, "GET", text("/v1/requests?limit=100&after=%s", next), NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "requests"), 1, "%s", scene.talk.reply.body);
    free(next);
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/semaphores/in:a/holders", NULL);
    cr_expect_eq(kit_json_length(scene.talk.reply.body, "holders"), 2, "%s", scene.talk.reply.body);
    cr_expect_null(strstr(scene.talk.reply.body, "out:a"), "%s", scene.talk.reply.body);
    scene_end(&scene);
}

Test(access, batch_refuses_what_is_out_of_scope_alone, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("out", "out:a"));
    by(&scene, USER, 200, NULL, "POST", "/v1/batch",
       "{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"a\",\"permits\":[{\"semaphore\":\"in:a\"}]},"
       "{\"op\":\"acquire\",\"external_id\":\"b\",\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]},"
       "{\"op\":\"release\",\"external_id\":\"out\"},{\"op\":\"renew\",\"external_id\":\"out\"}]}");
    cr_expect_eq(number_of(&scene.talk, "results.0.status"), 201);
    cr_expect_eq(number_of(&scene.talk, "results.1.status"), 403);
    text_is(&scene.talk, "results.1.body.detail", "needs the right use on out:a");
    cr_expect_eq(number_of(&scene.talk, "results.2.status"), 404);
    cr_expect_eq(number_of(&scene.talk, "results.3.status"), 404);
    by(&scene, USER, 404, "unknown_request", "POST", "/v1/confirm", "{\"external_ids\":[\"a\",\"out\"]}");
    text_is(&scene.talk, "external_id", "out");
    by(&scene, USER, 200, NULL, "GET", "/v1/requests/a", NULL);
    cr_expect_not(kit_json_has(scene.talk.reply.body, "confirmed_at"));
    by(&scene, USER, 403, "forbidden", "POST", "/v1/requests",
       "{\"external_id\":\"b\",\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]}");
    scene_end(&scene);
}

/* Requests of a principal with the scope in:* and hall, and the namespace t, which mean out:a or another namespace. */
static const struct evasion {
    const char *method;
    const char *path;
    const char *headers;
    const char *body;
    int status;
} evasions[] = {
    {"GET", "/v1/semaphores/out%3Aa", "", NULL, 403},
    {"GET", "/v1/semaphores/%6Fut%3aa/holders", "", NULL, 403},
    {"GET", "/v1/semaphores/in:a%2F..%2Fout:a", "", NULL, 422},
    {"GET", "/v1/semaphores/in:a/../out:a", "", NULL, 404},
    {"GET", "/v1/semaphores/in:a%00out:a", "", NULL, 422},
    {"GET", "/v1/semaphores/in%253Aa", "", NULL, 422},
    {"GET", "/v1//semaphores/out:a", "", NULL, 404},
    {"GET", "/v1/%73emaphores/out:a", "", NULL, 404},
    {"GET", "/V1/semaphores/out:a", "", NULL, 404},
    {"GET", "http://localhost/v1/semaphores/out:a", "", NULL, 403},
    {"GET", "/v1/semaphores/out:a?prefix=in:", "", NULL, 403},
    {"HEAD", "/v1/semaphores/out:a/events", "", NULL, 403},
    {"GET", "/v1/semaphores?prefix=out:&after=out:", "", NULL, 200},
    {"GET", "/v1/semaphores?after=in:a%FF", "", NULL, 200},
    {"GET", "/v1/templates?prefix=out", "", NULL, 200},
    {"GET", "/v1/semaphores/out:a/waiters", "", NULL, 403},
    {"GET", "/v1/semaphores/out:a/slots", "", NULL, 403},
    {"GET", "/v1/semaphores/out:a/fence?token=1", "", NULL, 403},
    {"GET", "/v1/requests?semaphore=out%3Aa", "", NULL, 403},
    {"GET", "/v1/requests?semaphore=out:a&at=2030-01-01T00:00:00Z", "", NULL, 403},
    {"GET", "/v1/requests?semaphore=in:a&semaphore=out:a", "", NULL, 422},
    {"GET", "/v1/requests?namespace=&limit=1000", "", NULL, 403},
    {"GET", "/v1/requests/secret", "", NULL, 404},
    {"GET", "/v1/requests/secret?namespace=", "", NULL, 403},
    {"GET", "/v1/requests/%01t%01secret", "", NULL, 422},
    {"GET", "/v1/requests/%01%01secret", "", NULL, 422},
    {"GET", "/v1/requests/secret/why", "", NULL, 404},
    {"GET", "/v1/owners/their-owner", "", NULL, 404},
    {"GET", "/v1/owners/%01%01their-owner", "", NULL, 422},
    {"DELETE", "/v1/owners/their-owner?namespace=", "", NULL, 403},
    {"POST", "/v1/requests/secret/renew?namespace=", "", "{\"ttl\":\"1h\"}", 403},
    {"POST", "/v1/requests/secret/renew", "", "{\"ttl\":\"1h\"}", 404},
    {"POST", "/v1/requests/secret/confirm", "", NULL, 404},
    {"POST", "/v1/confirm", "", "{\"external_ids\":[\"secret\"]}", 404},
    {"POST", "/v1/confirm?namespace=", "", "{\"external_ids\":[\"secret\"]}", 403},
    {"POST", "/v1/confirm", "", "{\"external_ids\":[\"\\u0001\\u0001secret\"]}", 422},
    {"POST", "/v1/requests/secret/force-release", "", "{\"reason\":\"because\"}", 403},
    {"DELETE", "/v1/requests/secret?namespace=", "", NULL, 422},
    {"PUT", "/v1/semaphores/in:a", "If-Match: \"1\"\r\n", "{\"capacity\":9}", 403},
    {"PUT", "/v1/semaphores/in:new", "If-None-Match: *\r\n", "{\"capacity\":9}", 403},
    {"GET", "/v1/semaphores/in:a", "X-HTTP-Method-Override: DELETE\r\n", NULL, 200},
    {"GET", "/v1/semaphores/out:a", "X-Original-URL: /v1/semaphores/in:a\r\n", NULL, 403},
    {"POST", "/v1/requests", "", "{\"permits\":[{\"semaphore\":\"in:a\"},{\"semaphore\":\"out:a\"}]}", 403},
    {"POST", "/v1/requests", "", "{\"permits\":[{\"semaphore\":\"\\u006fut:a\"}]}", 403},
    {"POST", "/v1/requests", "", "{\"permits\":[{\"semaphore\":\"in:a\",\"semaphore\":\"out:a\"}]}", 400},
    {"POST", "/v1/requests", "", "{\"permits\":[{\"semaphore\":\"in:a\"}],\"permits\":[{\"semaphore\":\"out:a\"}]}",
     400},
    {"POST", "/v1/requests", "", "{\"permits\":[{\"semaphore\":\"out:new\"}]}", 403},
    {"POST", "/v1/requests", "", "{\"external_id\":\"\\u0001\\u0001secret\",\"permits\":[{\"semaphore\":\"in:a\"}]}",
     422},
    {"POST", "/v1/requests", "", "{\"owner\":\"\\u0001\\u0001their-owner\",\"permits\":[{\"semaphore\":\"in:a\"}]}",
     422},
    {"POST", "/v1/requests", "Idempotency-Key: \"\"\r\n", "{\"permits\":[{\"semaphore\":\"in:a\"}]}", 422},
    {"POST", "/v1/batch", "", "{\"operations\":[{\"op\":\"force-release\",\"external_id\":\"secret\"}]}", 200},
    {"POST", "/v1/batch", "", "{\"operations\":[{\"op\":\"renew\",\"external_id\":\"secret\",\"namespace\":\"\"}]}",
     200},
    {"POST", "/v1/batch", "", "{\"operations\":[{\"op\":\"confirm\",\"external_id\":\"secret\"}]}", 200},
    {"POST", "/v1/batch", "", "{\"operations\":[{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"out:new\"}]}]}", 200},
};

/* Each is refused, shows nothing of the others, and changes nothing. */
Test(access, no_spelling_of_a_name_reaches_another_scope_or_namespace, .timeout = 300)
{
    static const char *const hidden[] = {"secret-note", "their-owner\"", "\"capacity\":4242", "\"state\":\"ACQUIRED\""};
    const char *tenant = "Authorization: Bearer " TENANT_TOKEN "\r\n";
    struct scene scene;
    scene_begin(&scene);
    FILE *file = fopen(scene.path, "a");
    cr_assert(file &&
              fprintf(file,
                      "[tenant]\nrole = use\nsemaphores = in:* hall\nnamespace = t\n"
                      "token = sha256:%s\n",
                      TENANT_DIGEST) > 0 &&
              fclose(file) == 0);
    kill(scene.permitd->pid, SIGHUP);
    for (int i = 0; i < 2000 && log_count(scene.permitd, "settings reloaded") < 1; i++)
        kit_sleep_ms(5);
    by(&scene, ADMIN, 200, NULL, "PUT", "/v1/semaphores/out:a", "{\"capacity\":4242,\"note\":\"secret-note\"}");
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/templates/out:", "{\"capacity\":4242,\"note\":\"secret-note\"}");
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/owners/their-owner", "{\"ttl\":\"10m\"}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests",
       "{\"external_id\":\"secret\",\"owner\":\"their-owner\",\"permits\":[{\"semaphore\":\"out:a\"}]}");
    struct kit_sql *sql = own_sql("own0");
    int64_t before = fingerprint(sql);
    for (size_t i = 0; i < sizeof evasions / sizeof *evasions; i++) {
        const struct evasion *evasion = &evasions[i];
        struct reply reply;
        cr_assert(kit_http_call(&scene.talk.http, evasion->method, evasion->path,
                                text("%s%s", tenant, evasion->headers), evasion->body, &reply),
                  "%s", reply.error);
        const char *what = text("%s %s %s%s: %d %s", evasion->method, evasion->path, evasion->headers,
                                evasion->body ? evasion->body : "", reply.status, reply.body);
        cr_expect_eq(reply.status, evasion->status, "%s", what);
        for (size_t j = 0; j < sizeof hidden / sizeof *hidden; j++)
            cr_expect_null(strstr(reply.body, hidden[j]), "%s is shown: %s", hidden[j], what);
        cr_expect_eq(fingerprint(sql), before, "something has changed: %s", what);
        reply_release(&reply);
    }
    kit_sql_close(sql);
    scene_end(&scene);
}

/* In one packet: a connection that has shown one credential says nothing about the next request. */
Test(access, pipelined_requests_have_their_own_credentials, .timeout = 300)
{
    static const struct {
        unsigned person; /* PEOPLE: none */
        const char *answer;
    } requests[] = {
        {ADMIN, "\"principal\":\"admin\""},    {USER, "\"principal\":\"user\""},
        {ADMIN, "\"principal\":\"admin\""},    {SCRAPER, "\"principal\":\"scraper\""},
        {PEOPLE, "/problems/unauthenticated"}, {ADMIN, NULL}, /* the connection is closed before it */
    };
    struct scene scene;
    scene_begin(&scene);
    const char *all = "";
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        all = text("%sGET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%s\r\n", all,
                   requests[i].person < PEOPLE ? bearer(requests[i].person) : "");
    struct talk talk = talk_from_elsewhere(&scene);
    char answers[16 * 1024] = "";
    size_t length = 0;
    ssize_t got;
    cr_assert_eq(send(talk.http.fd, all, strlen(all), MSG_NOSIGNAL), (ssize_t)strlen(all));
    while ((got = recv(talk.http.fd, answers + length, sizeof answers - 1 - length, 0)) > 0)
        length += (size_t)got;
    char *rest = answers;
    for (size_t i = 0; requests[i].answer; i++) {
        char *body = strstr(rest, "\r\n\r\n");
        cr_assert_not_null(body, "answer %zu is missing", i);
        rest = strchr(body + 4, '\n');
        cr_assert_not_null(rest);
        *rest++ = '\0';
        cr_expect_not_null(strstr(body, requests[i].answer), "answer %zu: %s", i, body);
    }
    cr_expect_str_eq(rest, "", "the connection was not closed");
    talk_end(&talk);
    scene_end(&scene);
}

/* ---- the record ---- */

Test(access, changes_are_recorded_with_their_principal, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, OPERATOR, 200, NULL, "POST", "/v1/semaphores/in:a/pause", "{\"reason\":\"for a test\"}");
    char *id = reply_header(&scene.talk.reply, "X-Request-Id");
    by(&scene, OPERATOR, 200, NULL, "GET", "/v1/semaphores/in:a/events", NULL);
    text_is(&scene.talk, "events.0.who", "operator");
    by(&scene, OPERATOR, 403, "forbidden", "POST", "/v1/semaphores/out:a/pause", "{\"reason\":\"for a test\"}");
    by(&scene, USER, 403, "forbidden", "POST", "/v1/semaphores/in:a/resume", NULL);
    char *log = kit_read_file(scene.permitd->log_path);
    const char *line = strstr(log, "what=\"POST /v1/semaphores/{semaphore}/pause\"");
    cr_assert_not_null(line, "%s", log);
    while (line > log && line[-1] != '\n')
        line--;
    line = text("%.*s", (int)strcspn(line, "\n"), line);
    const char *const parts[] = {"principal=operator", "peer=127.0.0.1:", "name=in:a",
                                 "why=\"for a test\"", "outcome=200",     text("request_id=%s", id)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cr_expect_not_null(strstr(line, parts[i]), "no %s in %s", parts[i], line);
    cr_expect_not_null(strstr(log, "outcome=403"), "%s", log);
    free(log);
    free(id);
    scene_end(&scene);
}

Test(access, whoami_shows_rights_and_scope, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, USER, 200, NULL, "GET", "/v1/whoami", NULL);
    cr_expect_str_eq(
        scene.talk.reply.body,
        "{\"principal\":\"user\",\"rights\":[\"look\",\"use\"],\"semaphores\":[\"hall\",\"in:*\"],\"quotas\":{},"
        "\"until\":null}\n");
    by(&scene, SCRAPER, 200, NULL, "GET", "/v1/whoami", NULL);
    cr_expect_str_eq(scene.talk.reply.body,
                     "{\"principal\":\"scraper\",\"rights\":[\"metrics\"],\"semaphores\":[\"*\"],\"quotas\":{},"
                     "\"until\":null}\n");
    struct talk talk = talk_to(shared_port()); /* without credentials */
    say(&talk, 200, "GET", "/v1/whoami", NULL);
    cr_expect_str_eq(talk.reply.body,
                     "{\"principal\":null,\"rights\":[\"look\",\"use\",\"operate\",\"admin\",\"fence\",\"metrics\"],"
                     "\"semaphores\":[\"*\"],\"quotas\":{},\"until\":null}\n");
    talk_end(&talk);
    scene_end(&scene);
}

/* ---- reload ---- */

static void reload(struct scene *scene, unsigned without)
{
    static size_t count;
    write_credentials(scene->path, without);
    kill(scene->permitd->pid, SIGHUP);
    count++;
    for (int i = 0; i < 2000 && log_count(scene->permitd, "settings reloaded") < count; i++)
        kit_sleep_ms(5);
    cr_assert_eq(log_count(scene->permitd, "settings reloaded"), count);
}

Test(access, credential_that_is_removed_ends_at_the_next_request, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    struct talk talk = talk_from_elsewhere(&scene);
    say_with(&talk, 200, NULL, "GET", "/v1/semaphores", bearer(USER), NULL);
    reload(&scene, USER);
    say_with(&talk, 401, "unauthenticated", "GET", "/v1/semaphores", bearer(USER), NULL);
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/semaphores", NULL);
    reload(&scene, PEOPLE);
    talk_end(&talk);
    talk = talk_from_elsewhere(&scene);
    say_with(&talk, 200, NULL, "GET", "/v1/semaphores", bearer(USER), NULL);
    talk_end(&talk);
    scene_end(&scene);
}

Test(access, wait_of_a_removed_credential_ends_at_once, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/hall", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("held", "hall"));
    static const char wait[] = "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"hall\"}],\"wait\":\"50s\"}";
    struct talk talks[2] = {talk_from_elsewhere(&scene), talk_from_elsewhere(&scene)};
    static const unsigned waiting[] = {USER, OPERATOR};
    for (size_t i = 0; i < 2; i++)
        cr_assert(kit_http_send(&talks[i].http, "POST", "/v1/requests", bearer(waiting[i]),
                                text(wait, people[waiting[i]].name)));
    for (int i = 0; i < 2000; i++) {
        by(&scene, ADMIN, 200, NULL, "GET", "/v1/semaphores/hall", NULL);
        if (number_of(&scene.talk, "waiting") == 2)
            break;
        kit_sleep_ms(5);
    }
    int64_t began = kit_now_us();
    reload(&scene, USER);
    hear(&talks[0], 401, "unauthenticated");
    cr_expect_lt(kit_now_us() - began, 20 * 1000000);
    by(&scene, ADMIN, 200, NULL, "DELETE", "/v1/requests/held", NULL);
    hear(&talks[1], 201, NULL);
    by(&scene, ADMIN, 200, NULL, "GET", "/v1/requests/user", NULL); /* its place is kept for a while, as ever */
    cr_expect(kit_json_true(scene.talk.reply.body, "kept"), "%s", scene.talk.reply.body);
    talk_end(&talks[0]);
    talk_end(&talks[1]);
    scene_end(&scene);
}

/* The engine may be deciding about the acquire when its credential is removed. */
Test(access, acquire_of_a_removed_credential_is_not_answered_otherwise, .timeout = 300)
{
    struct scene scene;
    struct kit_database *database = kit_database_start(NULL);
    scene_begin_on(&scene, database);
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/hall", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("held", "hall"));
    struct talk talk = talk_from_elsewhere(&scene);
    kit_database_freeze(database);
    cr_assert(kit_http_send(&talk.http, "POST", "/v1/requests", bearer(USER),
                            "{\"external_id\":\"w\",\"permits\":[{\"semaphore\":\"hall\"}],\"wait\":\"50s\"}"));
    by(&scene, ADMIN, 200, NULL, "GET", "/v1/whoami", NULL); /* the acquire, sent before it, has been read */
    reload(&scene, USER);
    kit_database_thaw(database);
    hear(&talk, 401, "unauthenticated");
    talk_end(&talk);
    scene_end(&scene);
    kit_database_stop(database);
}

/* Sends the head of an acquire and a part of its body. */
static struct talk begin_acquire(const struct scene *scene, unsigned person, const char *body, size_t sent)
{
    struct talk talk = talk_from_elsewhere(scene);
    const char *head = text("POST /v1/requests HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\n\r\n%.*s",
                            bearer(person), strlen(body), (int)sent, body);
    cr_assert_eq(send(talk.http.fd, head, strlen(head), MSG_NOSIGNAL), (ssize_t)strlen(head));
    return talk;
}

static void end_acquire(struct talk *talk, const char *body, size_t sent, int status, const char *type)
{
    (void)!send(talk->http.fd, body + sent, strlen(body) - sent, MSG_NOSIGNAL);
    hear(talk, status, type);
    talk_end(talk);
}

/* Returns true when the bodies of this person under way have so many bytes. */
static void await_bytes(struct scene *scene, unsigned person, size_t bytes)
{
    const char *line = text("\npermitd_principal_bytes{principal=\"%s\"} %zu\n", people[person].name, bytes);
    for (int i = 0; i < 2000; i++) {
        reply_release(&scene->talk.reply);
        kit_http_call(&scene->talk.http, "GET", "/metrics", bearer(SCRAPER), NULL, &scene->talk.reply);
        if (strstr(scene->talk.reply.body, line))
            return;
        kit_sleep_ms(5);
    }
    cr_assert_fail("no%s", line);
}

/* A body of which a part is sent before the reload, and the rest after it. */
Test(access, request_that_is_being_received_has_the_rights_of_the_reload, .timeout = 300)
{
    enum { SENT = 10 };
    static const unsigned sending[] = {USER, OPERATOR};
    static const char *const bodies[] = {ACQUIRE("of-user", "in:a"), ACQUIRE("of-operator", "in:a")};
    struct scene scene;
    struct talk talks[2];
    scene_begin(&scene);
    for (size_t i = 0; i < 2; i++) {
        talks[i] = begin_acquire(&scene, sending[i], bodies[i], SENT);
        await_bytes(&scene, sending[i], strlen(bodies[i]));
    }
    reload(&scene, USER);
    end_acquire(&talks[0], bodies[0], SENT, 401, "unauthenticated");
    end_acquire(&talks[1], bodies[1], SENT, 201, NULL);
    by(&scene, ADMIN, 404, "unknown_request", "GET", "/v1/requests/of-user", NULL);
    by(&scene, ADMIN, 200, NULL, "GET", "/v1/requests/of-operator", NULL);
    await_bytes(&scene, USER, 0);
    await_bytes(&scene, OPERATOR, 0);
    scene_end(&scene);
}

/* Acquires with large bodies, which wait for their thread behind large batches while the credential is removed. */
Test(access, wait_that_begins_after_its_credential_was_removed_ends_at_once, .timeout = 300)
{
    enum { BATCHES = 16, WAITS = 4, OPERATIONS = 1000, SPACES = 20 * 1024 };
    struct scene scene;
    struct talk batches[BATCHES], waits[WAITS];
    scene_begin(&scene);
    by(&scene, ADMIN, 201, NULL, "PUT", "/v1/semaphores/hall", "{\"capacity\":1}");
    by(&scene, ADMIN, 201, NULL, "POST", "/v1/requests", ACQUIRE("held", "hall"));
    static char batch[1000 * 1000] = "{\"operations\":[";
    for (int i = 0; i < OPERATIONS; i++)
        strcat(batch, text("%s{\"op\":\"renew\",\"external_id\":\"none\"%400s}", i ? "," : "", ""));
    strcat(batch, "]}");
    for (int i = 0; i < BATCHES; i++) {
        batches[i] = talk_from_elsewhere(&scene);
        cr_assert(kit_http_send(&batches[i].http, "POST", "/v1/batch", bearer(ADMIN), batch));
    }
    for (int i = 0; i < WAITS; i++) {
        waits[i] = talk_from_elsewhere(&scene);
        cr_assert(
            kit_http_send(&waits[i].http, "POST", "/v1/requests", bearer(USER),
                          text("{\"external_id\":\"w%d\",%*s\"permits\":[{\"semaphore\":\"hall\"}],\"wait\":\"50s\"}",
                               i, SPACES, "")));
    }
    by(&scene, LOOKER, 200, NULL, "GET", "/v1/whoami", NULL); /* most of what was sent before it has been read */
    int64_t began = kit_now_us();
    reload(&scene, USER);
    for (int i = 0; i < WAITS; i++) {
        hear(&waits[i], 401, "unauthenticated");
        talk_end(&waits[i]);
    }
    cr_expect_lt(kit_now_us() - began, 40 * 1000000);
    for (int i = 0; i < BATCHES; i++) {
        hear(&batches[i], 200, NULL);
        talk_end(&batches[i]);
    }
    scene_end(&scene);
}

/* ---- reload under load ---- */

enum { CLIENTS = 64, RELOADS = 100 };

/* Clients with a credential that is always valid, each on one connection. */
struct crowd {
    unsigned port;
    atomic_bool stop;
    atomic_size_t answers;
    atomic_size_t others; /* answers that are not 200, or that close the connection */
};

static void *ask_again_and_again(void *context)
{
    struct crowd *crowd = context;
    struct kit_http http = kit_http(crowd->port);
    while (!atomic_load(&crowd->stop)) {
        struct reply reply;
        bool good =
            kit_http_call(&http, "GET", "/v1/whoami",
                          "Authorization: Bearer pmt_user-token-of-the-tests-xxxxxxxxxxxxxxxxxxx\r\n", NULL, &reply) &&
            reply.status == 200 && http.fd >= 0;
        atomic_fetch_add(good ? &crowd->answers : &crowd->others, 1);
        reply_release(&reply);
    }
    kit_http_close(&http);
    return NULL;
}

Test(access, hundred_reloads_disturb_no_valid_credential, .timeout = 600)
{
    struct scene scene;
    pthread_t threads[CLIENTS];
    scene_begin(&scene);
    struct crowd crowd = {.port = scene.permitd->port};
    for (int i = 0; i < CLIENTS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ask_again_and_again, &crowd), 0);
    while (atomic_load(&crowd.answers) < 10 * CLIENTS)
        kit_sleep_ms(5);
    for (int i = 0; i < RELOADS; i++) {
        bool removed = i % 2 == 0;
        reload(&scene, removed ? OPERATOR : PEOPLE);
        struct talk talk = talk_from_elsewhere(&scene);
        say_with(&talk, removed ? 401 : 200, removed ? "unauthenticated" : NULL, "GET", "/v1/whoami", bearer(OPERATOR),
                 NULL);
        talk_end(&talk);
    }
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&crowd.others), 0, "%zu of %zu answers", atomic_load(&crowd.others),
                 atomic_load(&crowd.answers));
    const char *metrics = "permitd_http_connections_total";
    reply_release(&scene.talk.reply);
    kit_http_call(&scene.talk.http, "GET", "/metrics", bearer(SCRAPER), NULL, &scene.talk.reply);
    const char *line = strstr(scene.talk.reply.body, text("\n%s ", metrics));
    cr_assert_not_null(line);
    cr_expect_eq(atoi(line + 2 + strlen(metrics)), 1 + CLIENTS + RELOADS, "connections were cut: %s", line);
    scene_end(&scene);
}
