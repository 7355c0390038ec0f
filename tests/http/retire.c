/* SPDX-License-Identifier: MIT */
/* DELETE of a semaphore with ?force=true: the requests it ends, the events it records, and concurrent operations. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { PAGE = 1000, LONG_MS = 120000 }; /* page size of POST /v1/batch, and of holders that are ended together */

static const char *path_of(const char *name, const char *what)
{
    return text("/v1/semaphores/%s%s", name, what);
}

static const char *by_force(const char *name)
{
    return path_of(name, "?force=true&reason=the%20hall%20is%20flooded");
}

/* Acquires a unit of `name`, and of `also` unless that is NULL. Returns the key. */
static const char *hold(struct talk *talk, const char *name, const char *also)
{
    const char *key = fresh_name("k");
    const char *second = also ? text(",{\"semaphore\":\"%s\"}", also) : "";
    say(talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}%s]}", key, name, second));
    return key;
}

/*
 * Sends one page of acquires, under the keys NAME-from and following. Every third also holds a unit of `also`, unless
 * that is NULL.
 */
static void hold_page(struct talk *talk, const char *name, const char *also, int from, int count)
{
    char *body = kept(malloc((size_t)count * 256 + 64));
    char *at = body + sprintf(body, "{\"operations\":[");
    for (int i = from; i < from + count; i++) {
        at += sprintf(at, "%s{\"op\":\"acquire\",\"external_id\":\"%s-%d\",\"permits\":[{\"semaphore\":\"%s\"}",
                      i > from ? "," : "", name, i, name);
        at += also && i % 3 == 0 ? sprintf(at, ",{\"semaphore\":\"%s\"}]}", also) : sprintf(at, "]}");
    }
    sprintf(at, "]}");
    tell(talk, "POST", "/v1/batch", body);
    hear(talk, 200, NULL);
}

static void hold_many(struct talk *talk, const char *name, const char *also, int count)
{
    for (int done = 0; done < count; done += PAGE)
        hold_page(talk, name, also, done, count - done < PAGE ? count - done : PAGE);
    say(talk, 200, "GET", path_of(name, ""), NULL);
    cr_assert_eq(number_of(talk, "in_use"), count);
}

/* Counts the semaphore's events of this kind. */
static int count_events(struct talk *talk, const char *name, const char *what)
{
    int count = 0;
    const char *after = "0";
    while (after) {
        say(talk, 200, "GET", path_of(name, text("/events?limit=1000&after=%s", after)), NULL);
        for (const char *at = talk->reply.body; (at = strstr(at, text("\"what\":\"%s\"", what))); at++)
            count++;
        after = kit_json_has(talk->reply.body, "next") ? kept(kit_json_text(talk->reply.body, "next")) : NULL;
    }
    return count;
}

static int count_held(struct talk *talk, const char *name)
{
    say(talk, 200, "GET", text("/v1/requests?semaphore=%s&state=ACQUIRED&limit=1000", name), NULL);
    return (int)kit_json_length(talk->reply.body, "requests");
}

static bool is_type(const struct talk *talk, const char *type)
{
    return kit_json_text_is(talk->reply.body, "type", text("/problems/%s", type));
}

/* Reads the answer to the last tell, with any status. Returns the status. */
static int hear_any(struct talk *talk)
{
    reply_release(&talk->reply);
    cr_assert(kit_http_receive(&talk->http, "", &talk->reply), "%s", talk->reply.error);
    cr_assert(kit_json_valid(talk->reply.body), "%s", talk->reply.body);
    return talk->reply.status;
}

/* Returns `forced` of the last answer; 0 if that was sent before anything was begun. */
static int64_t forced_of(const struct talk *talk)
{
    return kit_json_has(talk->reply.body, "forced") ? number_of(talk, "forced") : 0;
}

/* ---- effects ---- */

Test(retire_by_force, ends_all_holders_and_records_each)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *other = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    const char *usual = hold(&talk, name, NULL);
    const char *sold = hold(&talk, name, NULL);
    const char *both = hold(&talk, name, other);
    int64_t token = number_of(&talk, "permits.0.token");
    const char *elsewhere = hold(&talk, other, NULL);
    const char *gone = hold(&talk, name, NULL);
    say(&talk, 200, "POST", text("%s/confirm", request_path(sold)), NULL);
    release(&talk, gone);
    refused(&talk, 409, "in_use", "DELETE", path_of(name, ""), NULL);
    refused(&talk, 409, "in_use", "DELETE", path_of(name, "?force=false"), NULL);
    say(&talk, 200, "DELETE", by_force(name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "retired"), "%s", talk.reply.body);
    cr_assert_eq(number_of(&talk, "forced"), 3);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    text_is(&talk, "name", name);
    const char *const ended[] = {usual, sold, both};
    for (int i = 0; i < 3; i++)
        ends_as(&talk, ended[i], "forced");
    ends_as(&talk, gone, "released");
    refused(&talk, 410, "ended", "POST", text("%s/renew", request_path(usual)), NULL);
    text_is(&talk, "end_reason", "forced");
    say(&talk, 200, "GET", request_path(elsewhere), NULL);
    text_is(&talk, "state", "ACQUIRED");
    say(&talk, 200, "GET", path_of(other, ""), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 1);
    say(&talk, 200, "GET", path_of(other, "/events"), NULL);
    text_is(&talk, "events.0.what", "forced");
    text_is(&talk, "events.0.from", both);
    text_is(&talk, "events.0.why", "the hall is flooded");
    say(&talk, 200, "GET", path_of(name, "/events"), NULL);
    static const char *const record[] = {"retired", "forced", "forced", "forced", "paused"};
    for (int i = 0; i < 5; i++) {
        text_is(&talk, text("events.%d.what", i), record[i]);
        text_is(&talk, text("events.%d.why", i), "the hall is flooded");
    }
    refused(&talk, 404, "unknown_semaphore", "DELETE", by_force(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "GET", path_of(name, ""), NULL);
    say(&talk, 201, "PUT", path_of(name, ""), "{\"capacity\":1}");
    cr_assert_not(kit_json_has(talk.reply.body, "paused_reason"), "%s", talk.reply.body);
    (void)hold(&talk, name, NULL);
    cr_assert_gt(number_of(&talk, "permits.0.token"), token);
    talk_end(&talk);
}

Test(retire_by_force, without_holders_ends_no_request)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    refused(&talk, 404, "unknown_semaphore", "DELETE", by_force(fresh_name("s")), NULL);
    say(&talk, 200, "DELETE", by_force(name), NULL);
    cr_assert_eq(number_of(&talk, "forced"), 0);
    cr_assert(kit_json_true(talk.reply.body, "retired"), "%s", talk.reply.body);
    talk_end(&talk);
}

Test(retire_by_force, records_its_own_reason_for_a_paused_semaphore)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = hold(&talk, name, NULL);
    say(&talk, 200, "POST", path_of(name, "/pause"), "{\"reason\":\"a new disk\"}");
    say(&talk, 200, "DELETE", by_force(name), NULL);
    cr_assert_eq(number_of(&talk, "forced"), 1);
    ends_as(&talk, key, "forced");
    say(&talk, 200, "GET", path_of(name, "/events"), NULL);
    text_is(&talk, "events.2.why", "the hall is flooded");
    text_is(&talk, "events.3.what", "paused");
    text_is(&talk, "events.3.why", "a new disk");
    talk_end(&talk);
}

Test(retire_by_force, takes_a_reason_of_1000_bytes)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    char *longest = kept(calloc(1, 3001));
    for (int i = 0; i < 500; i++)
        memcpy(longest + 6 * i, "%C3%BC", 6);
    refused(&talk, 422, "invalid", "DELETE", path_of(name, text("?force=true&reason=%sx", longest)), NULL);
    say(&talk, 200, "DELETE", path_of(name, text("?reason=%s&force=true", longest)), NULL);
    say(&talk, 200, "GET", path_of(name, "/events"), NULL);
    char *why = kept(kit_json_text(talk.reply.body, "events.0.why"));
    cr_assert_eq(strlen(why), 1000, "%s", why);
    talk_end(&talk);
}

static bool waits(void *context)
{
    struct talk *talk = context;
    const char *path = kept(kit_json_text(talk->reply.body, "name"));
    say(talk, 200, "GET", path_of(path, ""), NULL);
    return number_of(talk, "waiting") == 1;
}

Test(retire_by_force, answers_waiters_with_unknown_semaphore, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    struct talk waiter = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    (void)hold(&talk, name, NULL);
    tell(&waiter, "POST", "/v1/requests",
         text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":\"10m\"}", fresh_name("k"), name));
    say(&talk, 200, "GET", path_of(name, ""), NULL);
    cr_assert(kit_wait_until(waits, &talk, LONG_MS));
    say(&talk, 200, "DELETE", by_force(name), NULL);
    hear(&waiter, 404, "unknown_semaphore");
    talk_end(&waiter);
    talk_end(&talk);
}

/* ---- many holders, concurrent operations ---- */

Test(retire_by_force, ends_thousands_of_requests, .timeout = 300)
{
    enum { HELD = 3500 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4000}");
    const char *other = fresh_semaphore(&talk, "{\"capacity\":4000}");
    hold_many(&talk, name, other, HELD);
    tell(&talk, "DELETE", by_force(name), NULL);
    hear(&talk, 200, NULL);
    cr_assert_eq(number_of(&talk, "forced"), HELD);
    cr_assert_eq(count_events(&talk, name, "forced"), HELD);
    cr_assert_eq(count_held(&talk, name), 0);
    say(&talk, 200, "GET", path_of(other, ""), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
}

/* One of the two calls retires the semaphore; the other finds it retired. */
Test(retire_by_force, by_two_clients_at_once_ends_each_request_once, .timeout = 300)
{
    enum { HELD = 2500 };
    struct talk one = talk_to(shared_port());
    struct talk two = talk_to(shared_port());
    const char *name = fresh_semaphore(&one, "{\"capacity\":4000}");
    const char *other = fresh_semaphore(&one, "{\"capacity\":4000}");
    hold_many(&one, name, other, HELD);
    tell(&one, "DELETE", by_force(name), NULL);
    tell(&two, "DELETE", path_of(name, "?force=true&reason=me%20too"), NULL);
    int first = hear_any(&one);
    int second = hear_any(&two);
    cr_assert((first == 200 && second == 404) || (first == 404 && second == 200), "%s %s", one.reply.body,
              two.reply.body);
    cr_assert(is_type(first == 404 ? &one : &two, "unknown_semaphore"));
    cr_assert_eq(forced_of(&one) + forced_of(&two), HELD, "%s %s", one.reply.body, two.reply.body);
    cr_assert_eq(count_events(&one, name, "forced"), HELD);
    cr_assert_eq(count_events(&one, name, "retired"), 1);
    cr_assert_eq(count_held(&one, name), 0);
    say(&one, 200, "GET", path_of(other, ""), NULL);
    cr_assert_eq(number_of(&one, "in_use"), 0);
    talk_end(&two);
    talk_end(&one);
}

/* Releases holders from the last to the first, while the server ends them from the first to the last. */
Test(retire_by_force, lets_holders_release_and_renew_meanwhile, .timeout = 300)
{
    enum { HELD = 2500, OFTEN = 200 };
    struct talk talk = talk_to(shared_port());
    struct talk holder = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4000}");
    int released = 0;
    hold_many(&talk, name, NULL, HELD);
    tell(&talk, "DELETE", by_force(name), NULL);
    for (int i = HELD - 1; i >= HELD - OFTEN; i--) {
        say(&holder, 200, "DELETE", request_path(text("%s-%d", name, i)), NULL);
        released += kit_json_text_is(holder.reply.body, "end_reason", "released");
        const char *path = text("%s/renew", request_path(text("%s-%d", name, i - OFTEN)));
        reply_release(&holder.reply);
        cr_assert(kit_http_post(&holder.http, path, "{}", &holder.reply));
        cr_assert(holder.reply.status == 200 || holder.reply.status == 410, "%s", holder.reply.body);
    }
    hear(&talk, 200, NULL);
    cr_assert_eq(number_of(&talk, "forced") + released, HELD, "%d were released: %s", released, talk.reply.body);
    cr_assert_eq(count_held(&talk, name), 0);
    talk_end(&holder);
    talk_end(&talk);
}

/* ---- interruptions ---- */

/*
 * A permitd whose chain of batches has ended the first page and is blocked in the second: another session locks the row
 * of one of the requests, as a permitd stopped in the middle of a batch would.
 */
struct scene {
    struct kit_database *database;
    struct kit_permitd *permitd;
    struct kit_sql *sql;
    struct kit_sql *locker;
    struct talk talk;
    struct talk other;
};

static bool first_page_ended(void *context)
{
    return kit_sql_number(context, "SELECT COUNT(*) FROM permit_request WHERE state=2") >= PAGE;
}

static struct kit_permitd *another_permitd(const struct kit_database *database)
{
    return kit_permitd_start(&(struct kit_permitd_options){.database = database->url, .flags = patient_flags});
}

static struct scene scene_set(int held)
{
    struct scene scene = {.database = kit_database_start(NULL)};
    scene.permitd = another_permitd(scene.database);
    scene.sql = kit_sql_open(scene.database->socket, "permitd");
    scene.locker = kit_sql_open(scene.database->socket, "permitd");
    scene.talk = talk_to(scene.permitd->port);
    scene.other = talk_to(scene.permitd->port);
    say(&scene.talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":20000}");
    hold_many(&scene.talk, "s", NULL, held);
    return scene;
}

static void scene_block(struct scene *scene)
{
    kit_sql_run(scene->locker, "BEGIN");
    (void)kit_sql_number(scene->locker, "SELECT id FROM permit_request WHERE external_id='s-%d' FOR UPDATE",
                         PAGE + PAGE / 2);
    tell(&scene->talk, "DELETE", by_force("s"), NULL);
    cr_assert(kit_wait_until(first_page_ended, scene->sql, LONG_MS));
}

static void scene_end(struct scene *scene)
{
    talk_end(&scene->talk);
    talk_end(&scene->other);
    kit_sql_close(scene->sql);
    kit_sql_close(scene->locker);
    kit_permitd_stop(scene->permitd);
    kit_database_stop(scene->database);
}

static void retired_with_all(struct scene *scene, int held)
{
    cr_assert_eq(kit_sql_number(scene->sql, "SELECT COUNT(*) FROM permit_request WHERE end_reason=5"), held);
    cr_assert_eq(count_events(&scene->talk, "s", "forced"), held);
    cr_assert_eq(count_events(&scene->talk, "s", "retired"), 1);
    cr_assert_eq(count_events(&scene->talk, "s", "paused"), 1, "the same reason twice is one event");
}

static bool is_not_ready(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/readyz", &talk->reply) && talk->reply.status == 503;
}

Test(retire_by_force, reports_its_progress_when_interrupted_and_can_be_repeated, .timeout = 300)
{
    enum { HELD = 2500 };
    struct scene scene = scene_set(HELD);
    scene_block(&scene);
    kit_sql_run(scene.sql, "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    cr_assert(kit_wait_until(is_not_ready, &scene.other, LONG_MS));
    kit_sql_run(scene.locker, "ROLLBACK");
    hear(&scene.talk, 503, "unfinished");
    int64_t ended = number_of(&scene.talk, "forced");
    cr_assert(ended >= PAGE && ended < HELD, "%s", scene.talk.reply.body);
    char *detail = kept(kit_json_text(scene.talk.reply.body, "detail"));
    cr_assert(strstr(detail, text("%lld requests were ended", (long long)ended)), "%s", detail);
    kit_sql_run(scene.sql, "SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    say_until(&scene.other, 200, "GET", "/readyz", NULL);
    say(&scene.other, 200, "GET", "/v1/semaphores/s", NULL);
    text_is(&scene.other, "paused_reason", "the hall is flooded");
    cr_assert_eq(number_of(&scene.other, "in_use"), HELD - ended);
    tell(&scene.talk, "DELETE", by_force("s"), NULL);
    hear(&scene.talk, 200, NULL);
    cr_assert_eq(number_of(&scene.talk, "forced"), HELD - ended);
    retired_with_all(&scene, HELD);
    scene_end(&scene);
}

Test(retire_by_force, continues_after_a_restart_of_permitd, .timeout = 300)
{
    enum { HELD = 2500 };
    struct scene scene = scene_set(HELD);
    scene_block(&scene);
    talk_end(&scene.talk);
    talk_end(&scene.other);
    kit_permitd_kill(scene.permitd);
    kit_sql_run(scene.locker, "ROLLBACK");
    scene.permitd = another_permitd(scene.database);
    scene.talk = talk_to(scene.permitd->port);
    say(&scene.talk, 200, "GET", "/v1/semaphores/s", NULL);
    text_is(&scene.talk, "paused_reason", "the hall is flooded");
    int64_t left = number_of(&scene.talk, "in_use");
    tell(&scene.talk, "DELETE", by_force("s"), NULL);
    hear(&scene.talk, 200, NULL);
    cr_assert_leq(number_of(&scene.talk, "forced"), left);
    retired_with_all(&scene, HELD);
    scene_end(&scene);
}

/* Returns after permitd has read all that was sent before: the second answer comes from a later turn of its loop. */
static void let_read(unsigned port)
{
    struct talk talk = talk_to(port);
    for (int i = 0; i < 2; i++)
        say(&talk, 200, "GET", "/healthz", NULL);
    talk_end(&talk);
}

/* The resume is sent while the second page is decided, so it is decided before the third page at the latest. */
Test(retire_by_force, stops_after_a_resume, .timeout = 300)
{
    enum { HELD = 5500 };
    struct scene scene = scene_set(HELD);
    scene_block(&scene);
    tell(&scene.other, "POST", "/v1/semaphores/s/resume", NULL);
    let_read(scene.permitd->port);
    kit_sql_run(scene.locker, "ROLLBACK");
    hear(&scene.talk, 409, "in_use");
    hear(&scene.other, 200, NULL);
    int64_t ended = number_of(&scene.talk, "forced");
    cr_assert(ended >= PAGE && ended < HELD, "%s", scene.talk.reply.body);
    say(&scene.talk, 200, "GET", "/v1/semaphores/s", NULL);
    cr_assert_not(kit_json_has(scene.talk.reply.body, "paused_reason"));
    cr_assert_eq(number_of(&scene.talk, "in_use"), HELD - ended);
    cr_assert_eq(count_events(&scene.talk, "s", "retired"), 0);
    (void)hold(&scene.talk, "s", NULL);
    scene_end(&scene);
}

static void close_in_the_middle(struct talk *talk)
{
    kit_http_close(&talk->http);
    talk_end(talk);
}

static bool is_retired(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/v1/semaphores/s", &talk->reply) && talk->reply.status == 404;
}

Test(retire_by_force, continues_after_its_client_disconnects, .timeout = 300)
{
    enum { HELD = 2500 };
    struct scene scene = scene_set(HELD);
    scene_block(&scene);
    close_in_the_middle(&scene.talk);
    kit_sql_run(scene.locker, "ROLLBACK");
    scene.talk = talk_to(scene.permitd->port);
    cr_assert(kit_wait_until(is_retired, &scene.talk, LONG_MS));
    retired_with_all(&scene, HELD);
    scene_end(&scene);
}

/* One operation fails, even when it is tried alone. */
Test(retire_by_force, ends_the_other_requests_if_one_cannot_be_ended, .timeout = 300)
{
    enum { HELD = 50 };
    struct scene scene = scene_set(HELD);
    kit_sql_run(scene.sql, "CREATE TRIGGER refuse BEFORE UPDATE ON permit_request FOR EACH ROW"
                           " IF NEW.external_id='s-7' THEN SIGNAL SQLSTATE '45000'; END IF");
    refused(&scene.talk, 503, "unfinished", "DELETE", by_force("s"), NULL);
    cr_assert_eq(number_of(&scene.talk, "forced"), HELD - 1);
    kit_sql_run(scene.sql, "DROP TRIGGER refuse");
    say(&scene.talk, 200, "DELETE", by_force("s"), NULL);
    cr_assert_eq(number_of(&scene.talk, "forced"), 1);
    retired_with_all(&scene, HELD);
    scene_end(&scene);
}

/*
 * The retirement is tried in one transaction after another until its time is over; the outcome of the last is unknown.
 */
Test(retire_by_force, is_answered_outcome_unknown_if_it_may_be_done, .timeout = 300)
{
    enum { HELD = 3 };
    struct scene scene = scene_set(HELD);
    kit_permitd_stop(scene.permitd);
    talk_end(&scene.talk);
    scene.permitd = kit_permitd_start(&(struct kit_permitd_options){
        .database = scene.database->url, .flags = (const char *const[]){"--request-timeout", "6s", NULL}});
    scene.talk = talk_to(scene.permitd->port);
    kit_sql_run(scene.sql, "CREATE TRIGGER refuse BEFORE UPDATE ON semaphore FOR EACH ROW IF NEW.retired_at IS NOT NULL"
                           " THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF");
    int64_t ended = 0;
    do { /* on a slow machine the loop may answer first, without the count */
        refused(&scene.talk, 503, "outcome_unknown", "DELETE", by_force("s"), NULL);
        ended += forced_of(&scene.talk);
    } while (!kit_json_has(scene.talk.reply.body, "forced"));
    cr_assert_leq(ended, HELD, "%s", scene.talk.reply.body);
    char *detail = kept(kit_json_text(scene.talk.reply.body, "detail"));
    cr_assert(strstr(detail, "it may or may not have been retired"), "%s", detail);
    cr_assert_not(strstr(detail, "paused"), "%s", detail);
    kit_sql_run(scene.sql, "DROP TRIGGER refuse");
    say(&scene.talk, 200, "DELETE", by_force("s"), NULL);
    retired_with_all(&scene, HELD);
    scene_end(&scene);
}

/*
 * in_use is wrong, as only a write of another program can make it: without holders the semaphore still cannot be
 * retired.
 */
Test(retire_by_force, reports_the_pause_if_units_are_still_in_use, .timeout = 300)
{
    struct scene scene = scene_set(1);
    kit_sql_run(scene.sql, "UPDATE semaphore SET in_use=in_use+1 WHERE name='s'");
    refused(&scene.talk, 409, "in_use", "DELETE", by_force("s"), NULL);
    cr_assert_eq(number_of(&scene.talk, "forced"), 1);
    text_is(
        &scene.talk, "detail",
        "permits are still held; 1 request was ended; the semaphore is paused unless another client has resumed it");
    say(&scene.talk, 200, "GET", "/v1/semaphores/s", NULL);
    text_is(&scene.talk, "paused_reason", "the hall is flooded");
    kit_sql_run(scene.sql, "UPDATE semaphore SET in_use=0 WHERE name='s'");
    say(&scene.talk, 200, "DELETE", by_force("s"), NULL);
    retired_with_all(&scene, 1);
    scene_end(&scene);
}

/* Acquires `pages` pages. Returns the time of the fastest page, in ms. */
static int64_t hold_pages(struct talk *talk, const char *name, int pages)
{
    int64_t quickest_us = INT64_MAX;
    for (int i = 0; i < pages; i++) {
        int64_t began = kit_now_us();
        hold_page(talk, name, NULL, i * PAGE, PAGE);
        int64_t took_us = kit_now_us() - began;
        quickest_us = took_us < quickest_us ? took_us : quickest_us;
    }
    return quickest_us / 1000;
}

static struct kit_permitd *hasty_permitd(const struct kit_database *database, long long timeout_ms)
{
    const char *flags[] = {"--request-timeout", text("%lldms", timeout_ms), NULL};
    return kit_permitd_start(&(struct kit_permitd_options){.database = database->url, .flags = flags});
}

/*
 * Six pages cannot be ended within a request timeout of two page times (retiring uses three quarters of it), on any
 * machine. Another permitd, with more time, acquires the pages and checks the result. The page time is measured; in
 * case pages become far slower, the timeout is doubled after each hundred calls.
 */
Test(retire_by_force, needs_several_calls_if_the_timeout_is_short, .timeout = 300)
{
    enum { PAGES = 6, HELD = PAGES * PAGE, CALLS_MAX = 1000 };
    struct scene scene = scene_set(0);
    long long page_ms = hold_pages(&scene.talk, "s", PAGES);
    long long timeout_ms = page_ms < 50 ? 100 : 2 * page_ms;
    struct kit_permitd *hasty = hasty_permitd(scene.database, timeout_ms);
    struct talk talk = talk_to(hasty->port);
    int64_t ended = 0;
    int calls = 0;
    int status = 503;
    for (; status == 503 && calls < CALLS_MAX; calls++) {
        if (calls % 100 == 99) {
            talk_end(&talk);
            kit_permitd_stop(hasty);
            timeout_ms *= 2;
            hasty = hasty_permitd(scene.database, timeout_ms);
            talk = talk_to(hasty->port);
        }
        tell(&talk, "DELETE", by_force("s"), NULL);
        status = hear_any(&talk);
        ended += forced_of(&talk);
        cr_assert(status != 503 || is_type(&talk, "unfinished") || is_type(&talk, "outcome_unknown") ||
                      is_type(&talk, "busy"),
                  "%s", talk.reply.body);
    }
    cr_assert(status == 200 || status == 404, "%s", talk.reply.body); /* 404: the call before did it, late */
    cr_assert_gt(calls, 1);
    cr_assert_leq(ended, HELD);
    talk_end(&talk);
    kit_permitd_stop(hasty);
    cr_assert_eq(count_events(&scene.talk, "s", "forced"), HELD);
    cr_assert_eq(count_held(&scene.talk, "s"), 0);
    scene_end(&scene);
}
