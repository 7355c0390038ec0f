/* SPDX-License-Identifier: MIT */
/* Queries: a query of one row does not wait behind lists, and no call waits behind an unresponsive database. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000, LISTS = 30, PROBES = 100, ALL_WITHIN_MS = 60000 };

/* A permitd with a full semaphore, and a session that can lock the table of events. */
struct scene {
    struct kit_permitd *permitd;
    struct talk talk;
    const char *semaphore, *owner, *key;
    int64_t token;
    struct kit_sql *locker;
    struct kit_sql *observer;
};

static struct scene scene_open(const char *const *flags)
{
    struct scene scene = {.permitd = own_permitd(flags), .owner = fresh_name("o"), .key = fresh_name("k")};
    scene.talk = talk_to(scene.permitd->port);
    scene.semaphore = fresh_semaphore(&scene.talk, "{\"capacity\":1}");
    say(&scene.talk, 201, "PUT", text("/v1/owners/%s", scene.owner), "{\"ttl\":\"1h\"}");
    say(&scene.talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"owner\":\"%s\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"%s\"}]}", scene.key,
             scene.owner, scene.semaphore));
    scene.token = number_of(&scene.talk, "permits.0.token");
    scene.observer = own_sql("own0");
    scene.locker = own_sql("own0");
    return scene;
}

static void scene_close(struct scene *scene)
{
    kit_sql_close(scene->locker);
    kit_sql_close(scene->observer);
    talk_end(&scene->talk);
    kit_permitd_stop(scene->permitd);
}

/* Sends the calls that clients and load balancers need while others list. */
static void ask_for_rows(struct scene *scene)
{
    struct talk *talk = &scene->talk;
    say(talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld", scene->semaphore, (long long)scene->token), NULL);
    cr_assert(kit_json_true(talk->reply.body, "live"));
    say_until(talk, 200, "GET", "/readyz", NULL);
    say(talk, 200, "GET", request_path(scene->key), NULL);
    say(talk, 200, "GET", semaphore_path(scene->semaphore), NULL);
    say(talk, 200, "GET", text("/v1/owners/%s", scene->owner), NULL);
    cr_assert_eq(number_of(talk, "held"), 1);
    say(talk, 201, "PUT", text("/v1/templates/%s", fresh_name("t")), "{\"capacity\":1}");
    cr_assert_eq(metric_of(talk, "permitd_semaphores"), 1);
    refused(talk, 423, "no_capacity", "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", fresh_name("k"), scene->semaphore));
    text_is(talk, "blocking.0.holders.0.external_id", scene->key);
}

/* One list waits for the locked table, and more lists queue behind it than can be answered during the test. */
Test(queries, query_of_one_row_does_not_wait_behind_lists, .timeout = 600)
{
    struct scene scene = scene_open(NULL);
    struct kit_http lists[LISTS];
    kit_sql_run(scene.locker, "LOCK TABLES semaphore_event WRITE");
    for (int i = 0; i < LISTS; i++) {
        lists[i] = kit_http(scene.permitd->port);
        lists[i].timeout_ms = 3 * PATIENCE_MS;
        cr_assert(kit_http_send(&lists[i], "GET", text("/v1/semaphores/%s/events", scene.semaphore), NULL, NULL));
    }
    cr_assert(kit_wait_until(list_waits, scene.observer, PATIENCE_MS));
    ask_for_rows(&scene);
    cr_assert(kit_wait_until(list_waits, scene.observer, PATIENCE_MS), "no list has stood in the way");
    kit_sql_run(scene.locker, "UNLOCK TABLES");
    for (int i = 0; i < LISTS; i++) {
        struct reply reply;
        cr_assert(kit_http_receive(&lists[i], "GET", &reply), "%s", reply.error);
        cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&lists[i]);
    }
    scene_close(&scene);
}

/* The server ends the statement after 5 s; if it is too slow for that, permitd's own timeout comes first. */
Test(queries, slow_list_is_answered_busy, .timeout = 600)
{
    enum { TRIES = 10 };
    struct scene scene = scene_open(NULL);
    const char *path = text("/v1/semaphores/%s/events", scene.semaphore);
    bool busy = false;
    kit_sql_run(scene.locker, "LOCK TABLES semaphore_event WRITE");
    for (int i = 0; i < TRIES && !busy; i++) {
        say(&scene.talk, 503, "GET", path, NULL);
        busy = kit_json_text_is(scene.talk.reply.body, "type", "/problems/busy");
    }
    cr_assert(busy, "%s", scene.talk.reply.body);
    text_is(&scene.talk, "detail", "the database took too long; ask for a smaller page, or retry later");
    kit_sql_run(scene.locker, "UNLOCK TABLES");
    say_until(&scene.talk, 200, "GET", path, NULL);
    cr_assert_eq(kit_json_length(scene.talk.reply.body, "events"), 1);
    scene_close(&scene);
}

static bool template_waits(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%FROM template%%FOR UPDATE%%'") > 0;
}

/*
 * One change waits for a locked row, and a second waits behind it, both longer than a request may take. A change that
 * has begun may still be committed; one that has not begun is never begun. Returns true if the first had begun and the
 * second had not. Otherwise the machine was too slow, and the try proves nothing.
 */
static bool change_too_late(struct scene *scene, const char *locked, const char *behind)
{
    enum { BEGIN_MS = 1000 };
    struct talk first = talk_to(scene->permitd->port), second = talk_to(scene->permitd->port);
    kit_sql_run(scene->locker, "BEGIN");
    kit_sql_run(scene->locker, "UPDATE template SET capacity = 7");
    tell(&first, "PUT", locked, "{\"capacity\":2}");
    (void)kit_wait_until(template_waits, scene->observer, BEGIN_MS);
    tell(&second, "PUT", behind, "{\"capacity\":2}");
    cr_assert(kit_http_receive(&first.http, "PUT", &first.reply), "%s", first.reply.error);
    cr_assert(kit_http_receive(&second.http, "PUT", &second.reply), "%s", second.reply.error);
    bool unknown = kit_json_text_is(first.reply.body, "type", "/problems/outcome_unknown");
    bool busy = kit_json_text_is(second.reply.body, "type", "/problems/busy");
    kit_sql_run(scene->locker, "ROLLBACK");
    talk_end(&second);
    talk_end(&first);
    return unknown && busy;
}

Test(queries, busy_change_is_never_made, .timeout = 600)
{
    enum { TRIES = 20 };
    static const char *const flags[] = {"--request-timeout", "1500ms", NULL}; /* shorter than a row lock wait */
    struct scene scene = scene_open(flags);
    const char *locked = text("/v1/templates/%s", fresh_name("t"));
    const char *behind = NULL;
    bool too_late = false;
    say_until(&scene.talk, 201, "PUT", locked, "{\"capacity\":1}");
    for (int i = 0; i < TRIES && !too_late; i++) {
        behind = text("/v1/templates/%s", fresh_name("t"));
        too_late = change_too_late(&scene, locked, behind);
    }
    cr_assert(too_late);
    say_until(&scene.talk, 201, "PUT", text("/v1/templates/%s", fresh_name("t")), "{\"capacity\":1}");
    say_until(&scene.talk, 404, "GET", behind, NULL);
    scene_close(&scene);
}

/*
 * All probes are answered within 3 s, as measured; ALL_WITHIN_MS allows for slow machines. The request timeout is long,
 * so that it does not end the probes.
 */
Test(queries, readiness_probes_of_a_frozen_database_fail, .timeout = 600)
{
    static const char *const flags[] = {"--request-timeout", "10m", NULL};
    struct kit_database *database = kit_database_start(NULL);
    struct kit_permitd_options options = {.database = database->url, .flags = flags};
    struct kit_permitd *permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port);
    struct kit_http probes[PROBES];
    say_until(&talk, 200, "GET", "/readyz", NULL);
    kit_database_freeze(database);
    int64_t longest = 0, began = kit_now_us();
    for (int i = 0; i < PROBES; i++) {
        probes[i] = kit_http(permitd->port);
        cr_assert(kit_http_send(&probes[i], "GET", "/readyz", NULL, NULL));
    }
    for (int i = 0; i < PROBES; i++) {
        struct reply reply;
        probes[i].timeout_ms = (int)(ALL_WITHIN_MS - longest / 1000);
        cr_assert_gt(probes[i].timeout_ms, 0, "probe %d", i);
        cr_assert(kit_http_receive(&probes[i], "GET", &reply), "probe %d: %s", i, reply.error);
        longest = kit_now_us() - began;
        cr_assert_eq(reply.status, 503, "%s", reply.body);
        cr_assert(kit_json_text_is(reply.body, "type", "/problems/database_unavailable"), "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&probes[i]);
    }
    printf("looks: %d asked a frozen database whether it is ready, and were all told no after %.2f s\n", PROBES,
           (double)longest / 1e6);
    kit_database_thaw(database);
    say_until(&talk, 200, "GET", "/readyz", NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    kit_database_stop(database);
}
