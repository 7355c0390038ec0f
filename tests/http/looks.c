/* SPDX-License-Identifier: MIT */
/* Look-ups: what reads one row stands behind no list, and nothing stands behind a database that does not answer. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { PATIENCE_MS = 120000, LISTS = 30, PROBES = 100, ALL_WITHIN_MS = 60000 };

static bool list_waits(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%FROM semaphore_event%%'") > 0;
}

/* A permitd with a semaphore that is full, and a stranger who has the table of events for himself. */
struct scene {
    struct kit_permitd *permitd;
    struct talk talk;
    const char *semaphore, *owner, *key;
    int64_t token;
    struct kit_sql *stranger;
    struct kit_sql *eye;
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
    scene.eye = own_sql("own0");
    scene.stranger = own_sql("own0");
    return scene;
}

static void scene_close(struct scene *scene)
{
    kit_sql_close(scene->stranger);
    kit_sql_close(scene->eye);
    talk_end(&scene->talk);
    kit_permitd_stop(scene->permitd);
}

/* Everything that a client or a load balancer asks while others list. */
static void ask_for_rows(struct scene *scene)
{
    struct talk *talk = &scene->talk;
    say(talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld", scene->semaphore, (long long)scene->token), NULL);
    cr_assert(kit_json_true(talk->reply.body, "live"));
    say_until(talk, 200, "GET", "/readyz", NULL);
    say(talk, 200, "GET", text("/v1/requests/%s", scene->key), NULL);
    say(talk, 200, "GET", text("/v1/semaphores/%s", scene->semaphore), NULL);
    say(talk, 200, "GET", text("/v1/owners/%s", scene->owner), NULL);
    cr_assert_eq(number_of(talk, "held"), 1);
    say(talk, 201, "PUT", text("/v1/templates/%s", fresh_name("t")), "{\"capacity\":1}");
    cr_assert_eq(metric_of(talk, "permitd_semaphores"), 1);
    refused(talk, 423, "no_capacity", "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", fresh_name("k"), scene->semaphore));
    text_is(talk, "blocking.0.holders.0.external_id", scene->key);
}

/* A list waits for a stranger's lock, and others stand behind it: more than are answered before the end of this. */
Test(looks, what_reads_one_row_stands_behind_no_list, .timeout = 600)
{
    struct scene scene = scene_open(NULL);
    struct kit_http lists[LISTS];
    kit_sql_run(scene.stranger, "LOCK TABLES semaphore_event WRITE");
    for (int i = 0; i < LISTS; i++) {
        lists[i] = kit_http(scene.permitd->port);
        lists[i].timeout_ms = 3 * PATIENCE_MS;
        cr_assert(kit_http_send(&lists[i], "GET", text("/v1/semaphores/%s/events", scene.semaphore), NULL, NULL));
    }
    cr_assert(kit_wait_until(list_waits, scene.eye, PATIENCE_MS));
    ask_for_rows(&scene);
    cr_assert(kit_wait_until(list_waits, scene.eye, PATIENCE_MS), "no list has stood in the way");
    kit_sql_run(scene.stranger, "UNLOCK TABLES");
    for (int i = 0; i < LISTS; i++) {
        struct reply reply;
        cr_assert(kit_http_receive(&lists[i], "GET", &reply), "%s", reply.error);
        cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&lists[i]);
    }
    scene_close(&scene);
}

/* The server ends the statement after 5 s; where it has no time, our own time-out comes first. */
Test(looks, a_list_that_takes_too_long_is_answered_busy, .timeout = 600)
{
    enum { TRIES = 10 };
    struct scene scene = scene_open(NULL);
    const char *path = text("/v1/semaphores/%s/events", scene.semaphore);
    bool busy = false;
    kit_sql_run(scene.stranger, "LOCK TABLES semaphore_event WRITE");
    for (int i = 0; i < TRIES && !busy; i++) {
        say(&scene.talk, 503, "GET", path, NULL);
        busy = kit_json_text_is(scene.talk.reply.body, "type", "/problems/busy");
    }
    cr_assert(busy, "%s", scene.talk.reply.body);
    text_is(&scene.talk, "detail", "the database took too long; ask for a smaller page, or retry later");
    kit_sql_run(scene.stranger, "UNLOCK TABLES");
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
 * A change waits for a row and the next one behind it, both for longer than a request may take. What was begun may come
 * to pass; what was not is not begun any more. True: the first was begun and the other was not. On a slow machine it
 * comes otherwise, and then nothing is learnt.
 */
static bool change_too_late(struct scene *scene, const char *locked, const char *behind)
{
    enum { BEGIN_MS = 1000 };
    struct talk first = talk_to(scene->permitd->port), second = talk_to(scene->permitd->port);
    kit_sql_run(scene->stranger, "BEGIN");
    kit_sql_run(scene->stranger, "UPDATE template SET capacity = 7");
    tell(&first, "PUT", locked, "{\"capacity\":2}");
    (void)kit_wait_until(template_waits, scene->eye, BEGIN_MS);
    tell(&second, "PUT", behind, "{\"capacity\":2}");
    cr_assert(kit_http_receive(&first.http, "PUT", &first.reply), "%s", first.reply.error);
    cr_assert(kit_http_receive(&second.http, "PUT", &second.reply), "%s", second.reply.error);
    bool unknown = kit_json_text_is(first.reply.body, "type", "/problems/outcome_unknown");
    bool busy = kit_json_text_is(second.reply.body, "type", "/problems/busy");
    kit_sql_run(scene->stranger, "ROLLBACK");
    talk_end(&second);
    talk_end(&first);
    return unknown && busy;
}

Test(looks, a_change_that_was_answered_busy_is_not_made, .timeout = 600)
{
    enum { TRIES = 20 };
    static const char *const flags[] = {"--request-timeout", "1500ms", NULL}; /* less than a row is waited for */
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
 * All are told within 3 s, as measured; ALL_WITHIN_MS leaves any machine its time. The time-out of requests is long, so
 * that nothing else ends what asks.
 */
Test(looks, who_asks_whether_a_frozen_database_is_ready_is_told_no, .timeout = 600)
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
