/* SPDX-License-Identifier: MIT */
/* The feed: the setting of semaphores and templates, and GET /v1/feed. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

Test(feed, setting_is_none_sales_or_all, .timeout = 300)
{
    static const char *const values[] = {"\"some\"", "1", "null", "true"};
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *path = semaphore_path(name);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "feed", "none");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        refused(&talk, 422, "invalid", "PUT", path, text("{\"feed\":%s}", values[i]));
    say(&talk, 200, "PUT", path, "{\"feed\":\"all\"}");
    text_is(&talk, "feed", "all");
    say(&talk, 200, "GET", text("%s/events?limit=1", path), NULL);
    text_is(&talk, "events.0.what", "feed");
    text_is(&talk, "events.0.from", "none");
    text_is(&talk, "events.0.to", "all");
    say(&talk, 200, "PUT", path, "{\"note\":\"as before\"}");
    text_is(&talk, "feed", "all");
    template_passes_on(&talk, "feed", "sales");
    talk_end(&talk);
}

/* ---- with credentials ---- */

static const char operator[] = "Authorization: Bearer pmt_operator-token-of-the-tenants-tests-xxxxxxx\r\n";
static const char admin[] = "Authorization: Bearer pmt_left-token-of-the-tenants-tests-xxxxxxxxxxx\r\n";
static const char credentials[] =
    "[operator]\n"
    "token = sha256:940391a4d5b022f418618b921f36e09c10a6cb97a45d504af953fd276a0a6c86\nrole = operate\n"
    "semaphores = *\n"
    "[admin]\n"
    "token = sha256:561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0\nrole = admin\n";

static struct kit_permitd *with_credentials(const char *flag)
{
    char *path = kept(kit_path("credentials"));
    write_file(path, credentials, 0600);
    const char *flags[] = {"--credentials", path, flag, NULL};
    return own_permitd(flags);
}

Test(feed, all_needs_the_right_admin, .timeout = 300)
{
    static const char *const paths[] = {"/v1/semaphores/a", "/v1/templates/a:"};
    struct kit_permitd *permitd = with_credentials(NULL);
    struct talk talk = talk_to(permitd->port);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        say_with(&talk, 403, "forbidden", "PUT", paths[i], operator, "{\"capacity\":1,\"feed\":\"all\"}");
        detail_has(&talk, "admin");
        say_with(&talk, 201, NULL, "PUT", paths[i], operator, "{\"capacity\":1,\"feed\":\"sales\"}");
        say_with(&talk, 200, NULL, "PUT", paths[i], admin, "{\"feed\":\"all\"}");
        say_with(&talk, 200, NULL, "PUT", paths[i], operator, "{\"capacity\":2}");
        text_is(&talk, "feed", "all");
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(feed, all_needs_no_right_with_feed_tenants, .timeout = 300)
{
    struct kit_permitd *permitd = with_credentials("--feed-tenants");
    struct talk talk = talk_to(permitd->port);
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/a", operator, "{\"capacity\":1,\"feed\":\"all\"}");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- GET /v1/feed ---- */

/* Asks until there are so many events behind `after`, for two minutes; they are in the last answer. */
struct expected {
    struct talk *talk;
    const char *path;
    int count;
};

static bool has_events(void *context)
{
    const struct expected *expected = context;
    say(expected->talk, 200, "GET", expected->path, NULL);
    return kit_json_length(expected->talk->reply.body, "events") >= expected->count;
}

static void events_come(struct talk *talk, const char *path, int count)
{
    struct expected expected = {talk, path, count};
    cr_assert(kit_wait_until(has_events, &expected, 120000), "%s", talk->reply.body);
    cr_assert_eq(kit_json_length(talk->reply.body, "events"), count, "%s", talk->reply.body);
}

/* "acquired confirmed ended" of the last answer. */
static const char *words(const struct talk *talk)
{
    const char *all = "";
    for (int i = 0; i < (int)kit_json_length(talk->reply.body, "events"); i++) {
        char *what = kit_json_text(talk->reply.body, text("events.%d.what", i));
        all = text("%s%s%s", all, i ? " " : "", what);
        free(what);
    }
    return all;
}

static const char *next_of(const struct talk *talk)
{
    return kept(kit_json_text(talk->reply.body, "next"));
}

Test(feed, tells_what_happened_to_a_request_in_order_and_once, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"feed\":\"all\"}"), *key = fresh_name("k");
    const char *path = text("/v1/feed?semaphore=%s", name);
    events_come(&talk, path, 0);
    const char *begin = next_of(&talk);
    say(&talk, 201, "POST", "/v1/requests",
        acquire_body(key, name, 2, ",\"owner\":\"me\",\"ttl\":\"1h\",\"metadata\":{\"order\": 4711}"));
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{}");
    say(&talk, 200, "POST", text("%s/confirm", request_path(key)), NULL);
    say(&talk, 200, "DELETE", text("%s?confirmed=true", request_path(key)), NULL);
    events_come(&talk, path, 4);
    cr_expect_str_eq(words(&talk), "acquired renewed confirmed ended");
    text_is(&talk, "events.0.external_id", key);
    text_is(&talk, "events.0.owner", "me");
    for (int i = 0; i < 4; i++)
        cr_expect_eq(number_of(&talk, text("events.%d.metadata.order", i)), 4711);
    text_is(&talk, "events.0.permits.0.semaphore", name);
    cr_expect_eq(number_of(&talk, "events.0.permits.0.count"), 2);
    cr_expect_eq(number_of(&talk, "events.0.permits.0.token"), number_of(&talk, "events.3.permits.0.token"));
    cr_expect_eq(number_of(&talk, "events.0.permits.0.slots.1"), 2);
    text_is(&talk, "events.3.end_reason", "released");
    const char *second = kept(kit_json_text(talk.reply.body, "events.1.cursor")), *end = next_of(&talk);
    say(&talk, 200, "GET", text("%s&after=%s", path, second), NULL);
    cr_expect_str_eq(words(&talk), "confirmed ended");
    say(&talk, 200, "GET", text("%s&after=%s", path, end), NULL);
    cr_expect_str_eq(words(&talk), "");
    cr_expect(kit_json_has(talk.reply.body, "next"), "%s", talk.reply.body);
    say(&talk, 200, "GET", text("%s&after=%s&limit=1", path, begin), NULL);
    cr_expect_str_eq(words(&talk), "acquired");
    say(&talk, 200, "GET", text("%s&owner=other&after=%s", path, begin), NULL);
    cr_expect_str_eq(words(&talk), "");
    say(&talk, 200, "GET", text("/v1/feed?owner=me&prefix=%s&after=%s", name, begin), NULL);
    cr_expect_str_eq(words(&talk), "acquired renewed confirmed ended");
    talk_end(&talk);
}

/* The batch that deletes the row of its metadata writes the event. */
Test(feed, place_that_is_given_up_is_told_with_its_metadata, .timeout = 300)
{
    struct talk talk = talk_to(shared_port()), waiting = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"feed\":\"all\"}"), *key = fresh_name("w");
    const char *path = text("/v1/feed?semaphore=%s", name);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(NULL, name, 1, ""));
    tell(&waiting, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"wait\":\"1m\",\"metadata\":{\"w\":1}"));
    events_come(&talk, path, 2);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    events_come(&talk, path, 3);
    cr_expect_str_eq(words(&talk), "acquired waiting ended");
    cr_expect(!kit_json_has(talk.reply.body, "events.0.metadata"));
    cr_expect_eq(number_of(&talk, "events.1.metadata.w"), 1);
    cr_expect_eq(number_of(&talk, "events.2.metadata.w"), 1);
    talk_end(&waiting);
    talk_end(&talk);
}

Test(feed, parameters_are_checked, .timeout = 300)
{
    static const char *const bad[] = {"after=1", "after=x-1", "after=1-",    "limit=0",     "limit=1001",
                                      "wait=2m", "wait=soon", "semaphore=*", "owner=a%20b", "semaphore=a&prefix=a"};
    struct talk talk = talk_to(shared_port());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(&talk, 422, "invalid", "GET", text("/v1/feed?%s", bad[i]), NULL);
    refused(&talk, 410, "feed_gone", "GET", "/v1/feed?after=99999999999999-1", NULL);
    cr_expect(kit_json_has(talk.reply.body, "lost"), "%s", talk.reply.body);
    cr_expect(kit_json_has(talk.reply.body, "oldest"), "%s", talk.reply.body);
    talk_end(&talk);
}

Test(feed, cursor_whose_events_were_deleted_is_gone, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_sql *sql = own_sql("own0");
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"all\"}");
    say(&talk, 200, "GET", "/v1/feed", NULL);
    const char *begin = next_of(&talk);
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "POST", "/v1/requests", acquire_body(NULL, name, 1, ""));
    events_come(&talk, "/v1/feed", 3);
    kit_sql_run(sql, "DELETE FROM feed WHERE seq<=2");
    refused(&talk, 410, "feed_gone", "GET", text("/v1/feed?after=%s", begin), NULL);
    const char *oldest = kept(kit_json_text(talk.reply.body, "oldest"));
    cr_expect_not(kit_json_has(talk.reply.body, "lost"));
    say(&talk, 200, "GET", text("/v1/feed?after=%s", oldest), NULL);
    cr_expect_eq(kit_json_length(talk.reply.body, "events"), 1);
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* A reader that waits is answered when there is an event for it, with all that has happened since its cursor. */
Test(feed, reader_waits_for_an_event, .timeout = 300)
{
    struct talk talk = talk_to(shared_port()), reader = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"all\"}");
    say(&talk, 200, "GET", text("/v1/feed?semaphore=%s", name), NULL);
    tell(&reader, "GET", text("/v1/feed?semaphore=%s&wait=1m&after=%s", name, next_of(&talk)), NULL);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(NULL, name, 1, ""));
    hear(&reader, 200, NULL);
    cr_expect_str_eq(words(&reader), "acquired");
    tell(&reader, "GET", text("/v1/feed?semaphore=%s&wait=100ms&after=%s", name, next_of(&reader)), NULL);
    hear(&reader, 200, NULL);
    cr_expect_str_eq(words(&reader), "", "the wait has ended");
    cr_expect(kit_json_has(reader.reply.body, "next"));
    talk_end(&reader);
    talk_end(&talk);
}

/* Starts a permitd for one reader, which waits. The answer of the talk is the refusal of another one. */
static struct kit_permitd *permitd_with_a_reader(struct talk *ret_talk, struct talk *ret_reader)
{
    const char *flags[] = {"--max-streams", "1", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    *ret_talk = talk_to(permitd->port);
    *ret_reader = talk_to(permitd->port);
    tell(ret_reader, "GET", "/v1/feed?wait=1m", NULL);
    say_until(ret_talk, 429, "GET", "/v1/feed?wait=1ms", NULL);
    return permitd;
}

Test(feed, readers_that_wait_are_limited_and_leave_when_their_client_does, .timeout = 300)
{
    struct talk talk, reader;
    struct kit_permitd *permitd = permitd_with_a_reader(&talk, &reader);
    detail_has(&talk, "max_streams");
    say(&talk, 200, "GET", "/v1/feed", NULL);
    talk_end(&reader);
    say_until(&talk, 200, "GET", "/v1/feed?wait=1ms", NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(feed, reader_that_waits_is_answered_when_permitd_stops, .timeout = 300)
{
    struct talk talk, reader;
    struct kit_permitd *permitd = permitd_with_a_reader(&talk, &reader);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    talk_end(&reader);
}

/* A sale in SQL is told when it is settled, and one that is rolled back is not. */
Test(feed, sale_in_sql_is_told_once, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_sql *sql = own_sql("own0");
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"feed\":\"sales\"}");
    for (int i = 1; i <= 2; i++) {
        const char *key = text("cart-%d", i);
        say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"1h\""));
        kit_sql_run(sql, "START TRANSACTION");
        kit_sql_run(sql,
                    text("UPDATE permit_request SET errand=1,confirmed_at=SYSDATE(6) WHERE external_id='%s'", key));
        kit_sql_run(sql, text("INSERT INTO errand (bucket,permit_request_id) SELECT 1,id FROM permit_request"
                              " WHERE external_id='%s'",
                              key));
        kit_sql_run(sql, i == 1 ? "ROLLBACK" : "COMMIT");
    }
    events_come(&talk, "/v1/feed", 1);
    cr_expect_str_eq(words(&talk), "confirmed");
    text_is(&talk, "events.0.external_id", "cart-2");
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- what each client sees ---- */

static const char shop[] = "Authorization: Bearer pmt_shop-token-of-the-tenants-tests-xxxxxxxxxxx\r\n";
static const char bank[] = "Authorization: Bearer pmt_bank-token-of-the-tenants-tests-xxxxxxxxxxx\r\n";
static const char tenants[] =
    "[admin]\ntoken = sha256:561955e4fccb0937c801086b9ab3188e911dcec2a867f0e85f430a780294cca0\nrole = admin\n"
    "[shop]\ntoken = sha256:4c9e42bd7d972e5aa29e86acb99928bb94ca9413a7f91d00f5f4bd778d6c8001\nrole = use\n"
    "semaphores = hall shop:*\nnamespace = shop\n"
    "[bank]\ntoken = sha256:c80d3d3a38e003bb0fd5a915dc03e5d274bb1908f0fc1647cc206dc4883d61f3\nrole = use\n"
    "semaphores = hall\nnamespace = bank\n";

struct asked {
    struct talk *talk;
    const char *headers;
    const char *path;
    int count;
};

static bool shows_events(void *context)
{
    const struct asked *asked = context;
    say_with(asked->talk, 200, NULL, "GET", asked->path, asked->headers, NULL);
    return kit_json_length(asked->talk->reply.body, "events") >= asked->count;
}

static void shows(struct talk *talk, const char *headers, const char *path, int count)
{
    struct asked asked = {talk, headers, path, count};
    cr_assert(kit_wait_until(shows_events, &asked, 120000), "%s", talk->reply.body);
    cr_assert_eq(kit_json_length(talk->reply.body, "events"), count, "%s", talk->reply.body);
}

Test(feed, each_client_sees_its_namespace_and_scope, .timeout = 300)
{
    char *path = kept(kit_path("credentials"));
    write_file(path, tenants, 0600);
    const char *flags[] = {"--credentials", path, NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *both = "{\"external_id\":\"k\",\"permits\":[{\"semaphore\":\"hall\"},{\"semaphore\":\"shop:a\"}]}";
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/hall", admin, "{\"capacity\":9,\"feed\":\"all\"}");
    say_with(&talk, 201, NULL, "PUT", "/v1/semaphores/shop:a", admin, "{\"capacity\":9,\"feed\":\"all\"}");
    say_with(&talk, 201, NULL, "POST", "/v1/requests", shop, both);
    say_with(&talk, 201, NULL, "POST", "/v1/requests", bank, acquire_body("k", "hall", 2, ""));
    shows(&talk, admin, "/v1/feed", 2);
    text_is(&talk, "events.0.namespace", "shop");
    text_is(&talk, "events.1.principal", "bank");
    shows(&talk, admin, "/v1/feed?namespace=bank", 1);
    shows(&talk, shop, "/v1/feed", 1);
    cr_expect_eq(kit_json_length(talk.reply.body, "events.0.permits"), 2);
    cr_expect_not(kit_json_has(talk.reply.body, "events.0.principal"));
    cr_expect_not(kit_json_has(talk.reply.body, "events.0.namespace"));
    shows(&talk, bank, "/v1/feed", 1);
    cr_expect_eq(number_of(&talk, "events.0.permits.0.count"), 2);
    say_with(&talk, 403, "forbidden", "GET", "/v1/feed?semaphore=shop:a", bank, NULL);
    say_with(&talk, 403, "forbidden", "GET", "/v1/feed?namespace=shop", bank, NULL);
    say_with(&talk, 401, "unauthenticated", "GET", "/v1/feed", NULL, NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- an event is there if and only if its change is ---- */

enum { CLIENTS = 4, CALLS = 150, KEYS = 40 };

/* One of CLIENTS that acquire, renew, confirm and release at two permitd, with few keys, so that calls meet. */
struct client {
    struct talk talks[2];
    unsigned random;
    const char *name; /* of the semaphore, and of the keys before their numbers */
    unsigned failed;
};

static unsigned below(struct client *client, unsigned bound)
{
    client->random = client->random * 1664525 + 1013904223;
    return (client->random >> 8) % bound;
}

static void *client_run(void *argument)
{
    static const char *const methods[] = {"POST", "POST", "POST", "DELETE"};
    static const char *const after_key[] = {NULL, "/renew", "/confirm", "?confirmed=true"};
    struct client *client = argument;
    for (int i = 0; i < CALLS; i++) {
        struct kit_http *http = &client->talks[below(client, 2)].http;
        unsigned what = below(client, 4), key = below(client, KEYS);
        struct reply reply = {0};
        char path[200] = "/v1/requests", body[300] = "{}";
        if (what)
            snprintf(path, sizeof path, "/v1/requests/%s-%u%s", client->name, key, after_key[what]);
        else
            snprintf(body, sizeof body,
                     "{\"external_id\":\"%s-%u\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"%s\"}]}", client->name,
                     key, client->name);
        client->failed += !kit_http_call(http, methods[what], path, NULL, what < 2 ? body : NULL, &reply);
        reply_release(&reply);
    }
    return NULL;
}

/* No row: the events, as `seen` has them, and the rows agree. */
static const char *const disagreements[] = {
    /* a key was acquired, confirmed or ended, and the feed does not say so once; or the feed says so and it was not */
    "SELECT r.external_id FROM permit_request r WHERE"
    " (SELECT COUNT(*) FROM seen f WHERE f.external_id=r.external_id AND f.what='acquired')<>(r.acquired_at IS NOT "
    "NULL) OR"
    " (SELECT COUNT(*) FROM seen f WHERE f.external_id=r.external_id AND f.what='confirmed')<>(r.confirmed_at IS NOT "
    "NULL) OR"
    " (SELECT COUNT(*) FROM seen f WHERE f.external_id=r.external_id AND f.what='ended')<>"
    "(r.state=2 AND r.acquired_at IS NOT NULL) OR"
    " ((SELECT COUNT(*) FROM seen f WHERE f.external_id=r.external_id AND f.what='renewed')=0)<>(r.renewals=0)",
    "SELECT f.external_id FROM seen f LEFT JOIN permit_request r ON r.external_id=f.external_id WHERE r.id IS NULL",
    /* of two events of a key the later has an earlier step, or a renewal or a sale is not while it is held */
    "SELECT f.external_id FROM seen f JOIN seen g ON g.external_id=f.external_id AND g.seq>f.seq"
    " WHERE f.what='ended' OR g.what='acquired'",
    /* the units in use by the feed are never more than the capacity, which is 3 */
    "SELECT f.seq FROM seen f WHERE (SELECT COUNT(*) FROM seen g WHERE g.seq<=f.seq AND g.what='acquired')-"
    "(SELECT COUNT(*) FROM seen g WHERE g.seq<=f.seq AND g.what='ended')>3",
    /* numbers without gaps; grants in the order of their tokens */
    "SELECT 1 FROM seen HAVING COUNT(*)<>MAX(seq) OR MIN(seq)<>1 OR COUNT(*)<>COUNT(DISTINCT seq)",
    "SELECT f.seq FROM seen f JOIN seen g ON g.seq>f.seq AND f.what='acquired' AND g.what='acquired' AND"
    " f.token>=g.token",
};

static void take_event(void *sql, size_t at, const char *event)
{
    (void)at;
    char *cursor = kit_json_text(event, "cursor"), *what = kit_json_text(event, "what");
    char *key = kit_json_text(event, "external_id");
    kit_sql_run(sql, "INSERT INTO seen VALUES (%s,'%s','%s',%lld)", strchr(cursor, '-') + 1, what, key,
                (long long)kit_json_int(event, "permits.0.token"));
    free(cursor);
    free(what);
    free(key);
}

/* Reads the whole feed into the table `seen`, which it makes. */
static void take_feed(struct talk *talk, struct kit_sql *sql)
{
    const char *path = "/v1/feed?limit=1000";
    kit_sql_run(sql, "CREATE TABLE seen (seq BIGINT, what VARCHAR(16), external_id VARBINARY(289), token BIGINT)");
    do {
        say(talk, 200, "GET", path, NULL);
        path = text("/v1/feed?limit=1000&after=%s", next_of(talk));
    } while (kit_json_each(talk->reply.body, "events", take_event, sql) > 0);
}

static bool all_is_numbered(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM feed WHERE seq IS NULL") == 0;
}

Test(feed, event_is_there_if_and_only_if_its_change_is, .timeout = 600)
{
    const char *second_flags[] = {"--request-timeout", "2m", NULL};
    struct kit_permitd *first = own_permitd(NULL);
    struct kit_permitd *second =
        kit_permitd_start(&(struct kit_permitd_options){.database = own_url("own0"), .flags = second_flags});
    struct talk talk = talk_to(first->port);
    struct kit_sql *sql = own_sql("own0");
    struct client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"feed\":\"all\"}");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){{talk_to(first->port), talk_to(second->port)}, i + 1, name, 0};
        cr_assert_eq(pthread_create(&threads[i], NULL, client_run, &clients[i]), 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(clients[i].failed, 0);
        talk_end(&clients[i].talks[0]);
        talk_end(&clients[i].talks[1]);
    }
    cr_assert(kit_wait_until(all_is_numbered, sql, 120000));
    take_feed(&talk, sql);
    cr_assert_gt(kit_sql_number(sql, "SELECT COUNT(*) FROM seen WHERE what='confirmed'"), 0);
    for (size_t i = 0; i < sizeof disagreements / sizeof *disagreements; i++)
        cr_expect_eq(kit_sql_number(sql, text("SELECT COUNT(*) FROM (%s) d", disagreements[i])), 0, "%s",
                     disagreements[i]);
    kit_sql_close(sql);
    talk_end(&talk);
    kit_permitd_stop(second);
    kit_permitd_stop(first);
}
