/* SPDX-License-Identifier: MIT */
/* Quotas of principals: every quota is reached, refused beyond, changed by a reload, and given back. */
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

#define LIMITED "Authorization: Bearer pmt_limited-token-of-the-quotasxxxxxxxxxxxxxxxx\r\n"
#define FREE    "Authorization: Bearer pmt_free-token-of-the-quotasxxxxxxxxxxxxxxxxxxx\r\n"
#define ADMIN   "Authorization: Bearer pmt_admin-token-of-the-quotasxxxxxxxxxxxxxxxxxx\r\n"

/* ---- the scene ---- */

enum { LISTS = 30 };
#define REQUEST_TIMEOUT "2m" /* less than LISTS lists of 5 s each */

/* A permitd, a connection of the admin, and one of the limited principal. */
struct scene {
    char *path;
    struct kit_permitd *permitd;
    size_t reloads;
    struct talk admin;
    struct talk holder;
};

/* Writes the file in which the limited token is that of the principal `name`, with these quotas. */
static void write_credentials(const char *path, const char *name, const char *quotas)
{
    write_file(path,
               text("[%s]\nrole = operate\nsemaphores = *\n"
                    "token = sha256:b699c34fcfbd9bac21e5fd55845db3111a0030855d1b522643c91afb4e8efb7b\n%s"
                    "[free]\nrole = operate\nsemaphores = *\n"
                    "token = sha256:bdc0a6ec4a7cc4f6b05314186843dbd6536bffd80683716c0dbca18512ed04f6\n"
                    "[admin]\nrole = admin\n"
                    "token = sha256:a846bc936c9db58c767b0de1c33fe21b9090418949d567b895e0a71436f46ceb\n",
                    name, quotas),
               0600);
}

static void scene_begin_with(struct scene *scene, const char *max_memory)
{
    *scene = (struct scene){.path = kit_path("credentials")};
    write_credentials(scene->path, "limited", "");
    scene->permitd =
        own_permitd((const char *const[]){"--credentials", scene->path, "--max-wait", "1h", "--request-timeout",
                                          REQUEST_TIMEOUT, "--max-memory", max_memory, NULL});
    scene->admin = talk_to(scene->permitd->port);
    scene->holder = talk_to(scene->permitd->port);
    say_with(&scene->admin, 201, NULL, "PUT", "/v1/semaphores/full", ADMIN, "{\"capacity\":1}");
    say_with(&scene->admin, 201, NULL, "PUT", "/v1/semaphores/open", ADMIN, "{\"capacity\":1000}");
    say_with(&scene->admin, 201, NULL, "POST", "/v1/requests", ADMIN,
             "{\"external_id\":\"held\",\"permits\":[{\"semaphore\":\"full\"}]}");
}

static void scene_begin(struct scene *scene)
{
    scene_begin_with(scene, "256MiB");
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->holder);
    talk_end(&scene->admin);
    kit_permitd_stop(scene->permitd);
    free(scene->path);
}

static bool is_reloaded(void *context)
{
    struct scene *scene = context;
    return log_count(scene->permitd, "settings reloaded") == scene->reloads;
}

static void reload(struct scene *scene, const char *name, const char *quotas)
{
    write_credentials(scene->path, name, quotas);
    scene->reloads++;
    kill(scene->permitd->pid, SIGHUP);
    cr_assert(kit_wait_until(is_reloaded, scene, 60000));
}

static double metric(struct scene *scene, const char *name)
{
    reply_release(&scene->admin.reply);
    cr_assert(kit_http_call(&scene->admin.http, "GET", "/metrics", ADMIN, NULL, &scene->admin.reply));
    const char *line = strstr(scene->admin.reply.body, text("\n%s ", name));
    return line ? atof(line + strlen(name) + 2) : -1;
}

struct expected_metric {
    struct scene *scene;
    const char *name;
    double value;
};

static bool metric_is(void *context)
{
    struct expected_metric *expected = context;
    return metric(expected->scene, expected->name) == expected->value;
}

/* Waits until the gauge of what the limited principal has under way has this value. */
static void await_gauge(struct scene *scene, const char *word, double value)
{
    const char *name = text("permitd_principal_%s{principal=\"limited\"}", word);
    struct expected_metric expected = {scene, name, value};
    cr_assert(kit_wait_until(metric_is, &expected, 60000), "%s is %g", name, metric(scene, name));
}

/* ---- one row for each quota ---- */

static void open_connection(struct scene *scene)
{
    say_with(&scene->holder, 200, NULL, "GET", "/v1/whoami", LIMITED, NULL);
    await_gauge(scene, "connections", 1);
}

static void begin_to_wait(struct scene *scene)
{
    cr_assert(kit_http_send(&scene->holder.http, "POST", "/v1/requests", LIMITED,
                            "{\"permits\":[{\"semaphore\":\"full\"}],\"wait\":\"50m\"}"));
    await_gauge(scene, "waiting", 1);
}

/* Sends a part of a body of 900 bytes. */
static void send_half(struct scene *scene)
{
    const char *half = "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\n" LIMITED
                       "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{";
    scene->holder.http.fd = kit_connect(scene->permitd->port);
    cr_assert_eq(send(scene->holder.http.fd, half, strlen(half), MSG_NOSIGNAL), (ssize_t)strlen(half));
    await_gauge(scene, "bytes", 900);
}

/* A batch of `count` operations. */
static const char *batch_of(int count)
{
    const char *all = "{\"op\":\"renew\",\"external_id\":\"none\"}";
    for (int i = 1; i < count; i++)
        all = text("%s,{\"op\":\"renew\",\"external_id\":\"none%d\"}", all, i);
    return text("{\"operations\":[%s]}", all);
}

static void send_batch(struct scene *scene)
{
    say_with(&scene->holder, 200, NULL, "POST", "/v1/batch", LIMITED, batch_of(300));
}

static void make_units(struct scene *scene)
{
    say_with(&scene->holder, 201, NULL, "PUT", semaphore_path(fresh_name("u")), LIMITED, "{\"capacity\":1000}");
}

static bool answers_are_unread(void *scene)
{
    return metric(scene, "permitd_principal_answers{principal=\"limited\"}") > 0;
}

/* Asks for a list that does not fit into the sockets, and does not read it. */
static void leave_unread(struct scene *scene)
{
    const char *path = text("/v1/semaphores/%s/slots?limit=1000", hall(&scene->admin, ADMIN));
    const char *request = text("GET %s HTTP/1.1\r\nHost: localhost\r\n" LIMITED "\r\n", path);
    scene->holder.http.fd = connect_small(scene->permitd->port);
    cr_assert_eq(send(scene->holder.http.fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    cr_assert(kit_wait_until(answers_are_unread, scene, 60000));
}

#define PADDING "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* How a quota is used up, and a request that is then beyond it. Its path may have a %s, for a fresh name. */
static const struct row {
    const char *word;
    const char *limit;
    const char *sentence; /* of the refusal */
    void (*use_up)(struct scene *scene);
    bool is_held;       /* it is given back when the holder's connection closes; else its retry_after_ms is known */
    bool closes;        /* the refusal closes the connection */
    const char *method; /* of the request beyond */
    const char *path;
    const char *body;
    int status; /* when it is not refused */
} rows[] = {
    {"connections", "1", "connections = 1", open_connection, true, true, "GET", "/v1/whoami", NULL, 200},
    {"waiting", "1", "waiting = 1", begin_to_wait, true, false, "POST", "/v1/requests",
     "{\"permits\":[{\"semaphore\":\"open\"}],\"wait\":\"10s\"}", 201},
    {"bytes", "1000", "bytes = 1000 under way", send_half, true, true, "POST", "/v1/requests",
     "{\"owner\":\"" PADDING "\",\"permits\":[{\"semaphore\":\"open\"}]}", 201},
    {"rate", "1", "rate = 1 a second", send_batch, false, false, "GET", "/v1/whoami", NULL, 200},
    {"units", "1", "units = 1 a minute", make_units, false, false, "PUT", "/v1/semaphores/%s", "{\"capacity\":1}", 201},
    {"answers", "1", "answers = 1 bytes unread", leave_unread, true, false, "GET",
     "/v1/semaphores/open/slots?limit=1000", NULL, 200},
};

static struct talk request_beyond(struct scene *scene, const struct row *row, const char *bearer)
{
    struct talk talk = talk_to(scene->permitd->port);
    const char *path = strchr(row->path, '%') ? semaphore_path(fresh_name("u")) : row->path;
    cr_assert(kit_http_call(&talk.http, row->method, path, bearer, row->body, &talk.reply), "%s", talk.reply.error);
    return talk;
}

static void is_served(struct scene *scene, const struct row *row, const char *bearer)
{
    struct talk talk = request_beyond(scene, row, bearer);
    cr_expect_eq(talk.reply.status, row->status, "%s: %d %s", row->word, talk.reply.status, talk.reply.body);
    talk_end(&talk);
}

static void is_refused(struct scene *scene, const struct row *row)
{
    struct talk talk = request_beyond(scene, row, LIMITED);
    const char *answer = text("%s: %d %s%s", row->word, talk.reply.status, talk.reply.headers, talk.reply.body);
    cr_assert_eq(talk.reply.status, 429, "%s", answer);
    text_is(&talk, "type", "/problems/too_many");
    text_is(&talk, "detail", text("limited is beyond its quota: %s", row->sentence));
    int64_t retry_after = number_of(&talk, "retry_after_ms");
    cr_expect(row->is_held ? retry_after == 1000 : retry_after > 1000, "%s", answer);
    header_is(&talk, "Retry-After", text("%lld", (long long)(retry_after + 999) / 1000));
    char *connection = reply_header(&talk.reply, "Connection");
    cr_expect_eq(connection && strcmp(connection, "close") == 0, row->closes, "%s", answer);
    free(connection);
    talk_end(&talk);
}

Test(quotas, each_is_refused_beyond_its_limit_changed_by_a_reload_and_given_back, .timeout = 600)
{
    struct scene scene;
    scene_begin(&scene);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        const char *line = text("%s = %s\n", row->word, row->limit);
        const char *refusals =
            text("permitd_principal_quota_refused_total{principal=\"limited\",quota=\"%s\"}", row->word);
        reload(&scene, "limited", line);
        row->use_up(&scene);
        is_refused(&scene, row);
        cr_expect_eq(metric(&scene, refusals), 1, "%s", scene.admin.reply.body);
        is_served(&scene, row, FREE);
        reload(&scene, "limited", "");
        is_served(&scene, row, LIMITED);
        reload(&scene, "limited", line);
        is_refused(&scene, row); /* what was used before the reload counts on */
        cr_expect_eq(metric(&scene, refusals), 2, "%s", scene.admin.reply.body);
        talk_end(&scene.holder);
        scene.holder = talk_to(scene.permitd->port);
        if (row->is_held) {
            await_gauge(&scene, row->word, 0);
            is_served(&scene, row, LIMITED);
        }
        reload(&scene, "limited", "");
    }
    scene_end(&scene);
}

Test(quotas, whoami_shows_them, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    reload(&scene, "limited",
           "rate = 2000\nbytes = 1MiB\nanswers = 8MiB\nunits = 70000\nwaiting = 1000\nconnections = 500\n");
    say_with(&scene.holder, 200, NULL, "GET", "/v1/whoami", LIMITED, NULL);
    char *quotas = kit_json_part(scene.holder.reply.body, "quotas");
    cr_expect_str_eq(quotas, "{\"connections\":500,\"waiting\":1000,\"bytes\":1048576,\"rate\":2000,\"units\":70000,"
                             "\"answers\":8388608}");
    free(quotas);
    scene_end(&scene);
}

/* ---- answers ---- */

/* While a large answer is unread, short requests are served, and nothing is done that has a large answer. */
Test(quotas, answers_limit_large_answers_only, .timeout = 300)
{
    static const char grant[] = "{\"op\":\"acquire\",\"external_id\":\"late\",\"permits\":[{\"semaphore\":\"open\"}]}";
    static const char list[] = "/v1/semaphores/open/slots?limit=1000";
    struct scene scene;
    scene_begin(&scene);
    reload(&scene, "limited", "answers = 1000\n");
    leave_unread(&scene);
    struct talk talk = talk_to(scene.permitd->port);
    say_with(&talk, 200, NULL, "GET", "/v1/whoami", LIMITED, NULL);
    say_with(&talk, 201, NULL, "POST", "/v1/requests", LIMITED,
             "{\"external_id\":\"short\",\"permits\":[{\"semaphore\":\"open\"}]}");
    say_with(&talk, 200, NULL, "DELETE", "/v1/requests/short", LIMITED, NULL);
    say_with(&talk, 429, "too_many", "GET", list, LIMITED, NULL);
    say_with(&talk, 429, "too_many", "POST", "/v1/batch", LIMITED, text("{\"operations\":[%s]}", grant));
    text_is(&talk, "detail", "limited is beyond its quota: answers = 1000 bytes unread");
    say_with(&talk, 404, "unknown_request", "GET", "/v1/requests/late", LIMITED, NULL);
    kit_http_close(&scene.holder.http);
    await_gauge(&scene, "answers", 0);
    say_with(&talk, 200, NULL, "POST", "/v1/batch", LIMITED, text("{\"operations\":[%s]}", grant));
    say_with(&talk, 200, NULL, "GET", list, LIMITED, NULL); /* larger than the quota, but alone */
    talk_end(&talk);
    scene_end(&scene);
}

/* ---- rate ---- */

/* The operations that a request counts as. With a rate of one, the next request is refused for so many seconds. */
Test(quotas, rate_counts_operations_and_what_reads_much, .timeout = 300)
{
    const struct {
        const char *method;
        const char *path;
        const char *body;
        int status;
        int cost;
    } requests[] = {
        {"GET", "/v1/whoami", NULL, 200, 1},
        {"GET", "/v1/availability?semaphore=", NULL, 200, 20}, /* of a name for which nobody has asked */
        {"GET", "/v1/availability?semaphore=", NULL, 422, 1},
        {"GET", "/v1/availability?semaphore=&what=", NULL, 422, 1},
        {"GET", "/v1/semaphores/open", NULL, 200, 1},
        {"GET", "/v1/semaphores", NULL, 200, 20},
        {"GET", "/v1/requests?limit=1", NULL, 200, 20},
        {"GET", "/v1/semaphores/open/holders", NULL, 200, 20},
        {"GET", "/v1/requests/held/why", NULL, 200, 20},
        {"GET", "/v1/requests/held", NULL, 200, 1},
        {"GET", "/metrics", NULL, 403, 20},
        {"GET", "/v1/doctor", NULL, 403, 20},
        {"PUT", "/v1/semaphores/open/slots", "{\"labels\":[\"a\"]}", 200, 50},
        {"POST", "/v1/batch", batch_of(33), 200, 33},
        {"POST", "/v1/batch", "{\"operations\":", 400, 1},
        {"POST", "/v1/batch", "{\"operations\":[]}", 422, 1},
        {"POST", "/v1/batch?what=1", batch_of(33), 422, 1},
        {"POST", "/v1/confirm", "{\"external_ids\":[\"a\",\"b\",\"c\"]}", 404, 3},
        {"POST", "/v1/confirm", "{\"external_ids\":[\"a\",\"a\",\"c\"]}", 422, 1},
        {"POST", "/v1/confirm?what=1", "{\"external_ids\":[\"a\",\"b\",\"c\"]}", 422, 1},
        {"POST", "/v1/requests", "{\"permits\":[{\"semaphore\":\"open\"}]}", 201, 1},
        {"GET", "/v1/semaphores/none", NULL, 404, 1},
        {"GET", "/v1/nothing", NULL, 404, 1},
        {"GET", "/v1/servers", NULL, 403, 1},
    };
    struct scene scene;
    scene_begin(&scene);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct reply reply;
        int64_t retry_after = 0, before = 0;
        for (int try = 0; try < 50 && !retry_after; try++) { /* a machine that stalls forgives what was counted */
            reload(&scene, text("cost%zu-%d", i, try), "rate = 1\n");
            before = kit_now_us();
            bool is_new = requests[i].status == 200 && strchr(requests[i].path, 0)[-1] == '=';
            const char *path = text("%s%s", requests[i].path, is_new ? fresh_name("n") : "");
            kit_http_call(&scene.holder.http, requests[i].method, path, LIMITED, requests[i].body, &reply);
            cr_assert_eq(reply.status, requests[i].status, "%s: %s", requests[i].path, reply.body);
            reply_release(&reply);
            kit_http_call(&scene.holder.http, "GET", "/v1/whoami", LIMITED, NULL, &reply);
            retry_after = reply.status == 429 ? kit_json_int(reply.body, "retry_after_ms") : 0;
            reply_release(&reply);
        }
        int64_t passed_ms = (kit_now_us() - before) / 1000 + 1;
        cr_expect_leq(retry_after, 1000LL * requests[i].cost, "%s: %lld ms", requests[i].path, (long long)retry_after);
        cr_expect_geq(retry_after, 1000LL * requests[i].cost - passed_ms, "%s: %lld ms", requests[i].path,
                      (long long)retry_after);
    }
    scene_end(&scene);
}

/* It counts as a list if it must be read. The machine may stall for a second between two calls. */
Test(quotas, availability_from_memory_counts_as_one_operation, .timeout = 300)
{
    struct scene scene;
    int64_t retry_after = INT64_MAX;
    scene_begin(&scene);
    for (int try = 0; try < 50 && retry_after > 1000; try++) {
        struct talk *talk = &scene.holder;
        reload(&scene, text("memory%d", try), "rate = 1\n");
        say_with(talk, 200, NULL, "GET", "/v1/availability?semaphore=open", FREE, NULL);
        say_with(talk, 200, NULL, "GET", "/v1/availability?semaphore=open", LIMITED, NULL);
        reply_release(&talk->reply);
        kit_http_call(&talk->http, "GET", "/v1/whoami", LIMITED, NULL, &talk->reply);
        if (talk->reply.status == 429)
            retry_after = number_of(talk, "retry_after_ms");
    }
    cr_assert_leq(retry_after, 1000);
    scene_end(&scene);
}

Test(quotas, request_is_served_when_retry_after_of_the_rate_has_passed, .timeout = 300)
{
    struct scene scene;
    int64_t retry_after = 0;
    scene_begin(&scene);
    reload(&scene, "limited", "rate = 1\n");
    for (int i = 0; i < 50 && !retry_after; i++) {
        reply_release(&scene.holder.reply);
        kit_http_call(&scene.holder.http, "POST", "/v1/batch", LIMITED, batch_of(3), &scene.holder.reply);
        retry_after = scene.holder.reply.status == 429 ? number_of(&scene.holder, "retry_after_ms") : 0;
    }
    cr_assert(retry_after > 0 && retry_after <= 3000, "%lld", (long long)retry_after);
    kit_sleep_ms((int)retry_after);
    say_with(&scene.holder, 200, NULL, "POST", "/v1/batch", LIMITED, batch_of(3));
    scene_end(&scene);
}

Test(quotas, open_routes_do_not_count, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    reload(&scene, "limited", "rate = 1\n");
    send_batch(&scene);
    say_with(&scene.holder, 429, "too_many", "GET", "/v1/whoami", LIMITED, NULL);
    say_with(&scene.holder, 200, NULL, "GET", "/readyz", LIMITED, NULL);
    say_with(&scene.holder, 200, NULL, "GET", "/healthz", LIMITED, NULL);
    scene_end(&scene);
}

/* ---- units ---- */

/* The cost of a PUT: with one unit a minute, the next PUT is refused for so many minutes. */
Test(quotas, units_count_slots_labels_and_templates, .timeout = 300)
{
    const struct {
        const char *path;
        const char *body;
        int status;
        int units;
    } puts[] = {
        {"/v1/semaphores/a", "{\"capacity\":7}", 201, 7},
        {"/v1/semaphores/a", "{\"note\":\"n\"}", 200, 1},
        {"/v1/semaphores/closed", "{\"capacity\":0}", 201, 1},
        {"/v1/semaphores/counted", "{\"capacity\":1000000000000,\"kind\":\"counted\"}", 201, 1},
        {"/v1/semaphores/huge", "{\"capacity\":1000000000000}", 422, 65536},
        {"/v1/semaphores/a/slots", "{\"labels\":[\"x\",\"y\",\"z\"]}", 200, 3},
        {"/v1/templates/a:", "{\"capacity\":9}", 201, 9},
    };
    struct scene scene;
    scene_begin(&scene);
    for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
        reload(&scene, text("units%zu", i), "units = 1\n");
        int64_t before = kit_now_us();
        say_with(&scene.holder, puts[i].status, puts[i].status == 422 ? "invalid" : NULL, "PUT", puts[i].path, LIMITED,
                 puts[i].body);
        say_with(&scene.holder, 429, "too_many", "PUT", "/v1/semaphores/a", LIMITED, "{\"note\":\"m\"}");
        int64_t passed_ms = (kit_now_us() - before) / 1000 + 1;
        int64_t retry_after = number_of(&scene.holder, "retry_after_ms");
        cr_expect_leq(retry_after, 60000LL * puts[i].units, "%s: %lld ms", puts[i].path, (long long)retry_after);
        cr_expect_geq(retry_after, 60000LL * puts[i].units - passed_ms, "%s: %lld ms", puts[i].path,
                      (long long)retry_after);
    }
    scene_end(&scene);
}

/* ---- without a credential ---- */

/* Sends the head of a request with a body of this many bytes, and returns the status of the first answer. */
static int status_of_body(const struct scene *scene, const char *header, int bytes)
{
    struct kit_http http = kit_http(scene->permitd->port);
    struct reply reply;
    const char *head = text("GET /healthz HTTP/1.1\r\nHost: localhost\r\n%sExpect: 100-continue\r\n"
                            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
                            header, bytes);
    (void)kit_http_raw(&http, head, strlen(head), &reply);
    int status = reply.status;
    reply_release(&reply);
    kit_http_close(&http);
    return status;
}

Test(quotas, client_without_a_credential_sends_no_large_body, .timeout = 300)
{
    struct scene scene;
    scene_begin(&scene);
    cr_expect_eq(status_of_body(&scene, "", 16 * 1024 + 1), 413);
    cr_expect_eq(status_of_body(&scene, "", 16 * 1024), 100);
    cr_expect_eq(status_of_body(&scene, FREE, 16 * 1024 + 1), 100);
    scene_end(&scene);
}

/* ---- turns ---- */

/*
 * The lists of one principal wait for a locked table, each until the server ends its statement after 5 s. The list of
 * another one waits for at most one of them, and not for all.
 */
Test(quotas, list_of_another_principal_waits_for_a_single_one, .timeout = 600)
{
    struct scene scene;
    struct kit_http lists[LISTS];
    scene_begin(&scene);
    struct kit_sql *locker = own_sql("own0"), *observer = own_sql("own0");
    kit_sql_run(locker, "LOCK TABLES semaphore_event WRITE");
    for (int i = 0; i < LISTS; i++) {
        lists[i] = kit_http(scene.permitd->port);
        lists[i].timeout_ms = 300000;
        cr_assert(kit_http_send(&lists[i], "GET", "/v1/semaphores/open/events", LIMITED, NULL));
    }
    cr_assert(kit_wait_until(list_waits, observer, 120000));
    scene.holder.http.timeout_ms = 300000;
    say_with(&scene.holder, 200, NULL, "GET", "/v1/semaphores", FREE, NULL);
    cr_assert(kit_wait_until(list_waits, observer, 120000), "no list has stood in the way");
    kit_sql_run(locker, "UNLOCK TABLES");
    for (int i = 0; i < LISTS; i++) {
        struct reply reply;
        cr_assert(kit_http_receive(&lists[i], "GET", &reply), "%s", reply.error);
        cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&lists[i]);
    }
    kit_sql_close(observer);
    kit_sql_close(locker);
    scene_end(&scene);
}

/* Neither the server nor an address is full of clients without a credential that do not read. */
Test(quotas, unread_answers_of_strangers_give_way_to_new_connections, .timeout = 300)
{
    enum { STRANGERS = 4 };
    static const char request[] = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char *const limits[][2] = {{"4", "100"}, {"100", "4"}};
    char *path = kit_path("credentials");
    write_credentials(path, "limited", "");
    for (size_t i = 0; i < 2; i++) {
        const char *flags[] = {"--credentials",
                               path,
                               "--idle-timeout",
                               "10m",
                               "--max-connections",
                               limits[i][0],
                               "--max-connections-per-address",
                               limits[i][1],
                               NULL};
        struct kit_permitd *permitd = own_permitd(flags);
        int fds[STRANGERS];
        for (int j = 0; j < STRANGERS; j++) {
            fds[j] = connect_small(permitd->port);
            cr_assert_eq(send(fds[j], request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
            cr_assert_eq(poll(&(struct pollfd){.fd = fds[j], .events = POLLIN}, 1, 60000), 1);
        }
        struct talk talk = talk_to(permitd->port);
        say_with(&talk, 200, NULL, "GET", "/v1/whoami", LIMITED, NULL);
        talk_end(&talk);
        for (int j = 0; j < STRANGERS; j++)
            close(fds[j]);
        kit_permitd_stop(permitd);
    }
    free(path);
}

enum { HALVES = 300, HALF = 16200 };

/* Connections that have sent half a head, and the answer that one of them got. */
struct halves {
    int fds[HALVES];
    char answer[2048];
};

static bool one_is_answered(void *context)
{
    struct halves *halves = context;
    for (int i = 0; i < HALVES; i++) {
        ssize_t got = recv(halves->fds[i], halves->answer, sizeof halves->answer - 1, MSG_DONTWAIT);
        if (got > 0) {
            halves->answer[got] = '\0';
            return true;
        }
    }
    return false;
}

/* The memory of requests and answers is a sixteenth of max_memory at least, also beside the memory of a sanitizer. */
Test(quotas, half_heads_of_strangers_leave_memory_for_others, .timeout = 300)
{
    static char half[HALF] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ";
    char *path = kit_path("credentials");
    write_credentials(path, "limited", "");
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--credentials", path, "--max-memory", "64MiB",
                                                                    "--max-connections-per-address", "1000", NULL});
    struct halves halves;
    memset(half + strlen(half), 'a', sizeof half - strlen(half));
    for (int i = 0; i < HALVES; i++) {
        halves.fds[i] = kit_connect(permitd->port);
        (void)!send(halves.fds[i], half, sizeof half, MSG_NOSIGNAL); /* it may be refused already */
    }
    cr_assert(kit_wait_until(one_is_answered, &halves, 60000));
    cr_expect(strstr(halves.answer, "HTTP/1.1 429 ") && strstr(halves.answer, "unfinished requests of this client"),
              "%s", halves.answer);
    struct talk talk = talk_to(permitd->port);
    say_with(&talk, 200, NULL, "POST", "/v1/batch", LIMITED, batch_of(200));
    talk_end(&talk);
    for (int i = 0; i < HALVES; i++)
        close(halves.fds[i]);
    kit_permitd_stop(permitd);
    free(path);
}

/* ---- waiting requests ---- */

/* Connections of the limited principal, each with an acquire that waits or is refused. */
enum { CROWD = 1000 };
struct crowd {
    struct scene *scene;
    int count;
    struct talk *refused;
    struct talk talks[CROWD];
};

/* Returns true if all acquires wait, or one is answered, which is `refused` then. */
static bool all_wait_or_one_is_refused(void *context)
{
    struct crowd *crowd = context;
    for (int i = 0; i < crowd->count && !crowd->refused; i++)
        if (poll(&(struct pollfd){.fd = crowd->talks[i].http.fd, .events = POLLIN}, 1, 0) == 1)
            crowd->refused = &crowd->talks[i];
    return crowd->refused || metric(crowd->scene, "permitd_principal_waiting{principal=\"limited\"}") == crowd->count;
}

/* Adds connections until an acquire is refused, and reads the refusal. */
static void crowd_gather(struct crowd *crowd, const char *body)
{
    while (!crowd->refused && crowd->count < CROWD) {
        struct talk *talk = &crowd->talks[crowd->count++];
        *talk = talk_to(crowd->scene->permitd->port);
        cr_assert(kit_http_send(&talk->http, "POST", "/v1/requests", LIMITED, body));
        cr_assert(kit_wait_until(all_wait_or_one_is_refused, crowd, 60000), "%d of %d wait: %s", crowd->count - 1,
                  crowd->count, crowd->scene->admin.reply.body);
    }
    struct talk *refused = crowd->refused;
    cr_assert(refused && kit_http_receive(&refused->http, "POST", &refused->reply), "%d wait", crowd->count);
}

/* The memory of waiting requests counts in the share of their principal, and not as its answers. */
Test(quotas, waiting_requests_of_a_principal_leave_memory_for_others, .timeout = 600)
{
    static struct crowd crowd;
    struct scene scene;
    scene_begin_with(&scene,
                     "64MiB"); /* a sixteenth, with a sanitizer in permitd, has room for the answers of others */
    const char *name, *body = stalls_waited_for(&scene.admin, ADMIN, "50m", &name);
    const char *list = text("/v1/semaphores/%s/slots?limit=500", name);
    crowd.scene = &scene;
    crowd_gather(&crowd, body);
    struct talk *refused = crowd.refused;
    cr_assert_eq(refused->reply.status, 429, "%s", refused->reply.body);
    text_is(refused, "detail", "too much memory for requests and answers of this client");
    say_with(&scene.holder, 200, NULL, "GET", list, FREE, NULL);
    say_with(&scene.holder, 200, NULL, "POST", "/v1/batch", FREE, batch_of(200));
    cr_expect_eq(metric(&scene, "permitd_principal_answers{principal=\"limited\"}"), 0);
    cr_expect_eq(metric(&scene, "permitd_http_memory_refused_total"), 0);
    say_with(&scene.holder, 201, NULL, "POST", "/v1/requests", LIMITED, "{\"permits\":[{\"semaphore\":\"open\"}]}");
    for (int i = 0; i < crowd.count; i++)
        talk_end(&crowd.talks[i]);
    await_gauge(&scene, "waiting", 0);
    say_with(&scene.holder, 200, NULL, "GET", list, LIMITED, NULL);
    scene_end(&scene);
}
