/* SPDX-License-Identifier: MIT */
/* Templates, and semaphores created from them on first use. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

enum { PATIENCE_MS = 120000 };

/* Creates a template with this body. Returns its prefix, "t-PID_TIME-N:". */
static const char *fresh_template(struct talk *talk, const char *body)
{
    const char *prefix = text("%s:", fresh_name("t"));
    say(talk, 201, "PUT", text("/v1/templates/%s", prefix), body);
    return prefix;
}

static const char *template_path(const char *prefix)
{
    return text("/v1/templates/%s", prefix);
}

/* Asserts the last event of a semaphore. */
static void last_event_is(struct talk *talk, const char *name, const char *what, const char *prefix)
{
    say(talk, 200, "GET", text("/v1/semaphores/%s/events?limit=1", name), NULL);
    text_is(talk, "events.0.what", what);
    text_is(talk, "events.0.why", text("template %s", prefix));
}

/* ---- the routes ---- */

Test(templates, are_created_shown_changed_and_deleted)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = text("%s:", fresh_name("t"));
    const char *path = template_path(prefix);
    refused(&talk, 404, "unknown_template", "GET", path, NULL);
    refused(&talk, 404, "unknown_template", "DELETE", path, NULL);
    say(&talk, 201, "PUT", path,
        "{\"capacity\":3,\"default_ttl\":\"1m\",\"max_ttl\":\"1h\",\"grace\":0.5,\"max_hold\":\"2d\","
        "\"queue\":\"fifo\",\"note\":\"of \\u00e4 \\\"test\\\"\"}");
    header_is(&talk, "ETag", "\"1\"");
    say(&talk, 200, "GET", path, NULL);
    header_is(&talk, "ETag", "\"1\"");
    text_is(&talk, "prefix", prefix);
    text_is(&talk, "kind", "slotted");
    text_is(&talk, "queue", "fifo");
    text_is(&talk, "note", "of \xc3\xa4 \"test\"");
    cr_assert_eq(number_of(&talk, "capacity"), 3);
    cr_assert_eq(number_of(&talk, "default_ttl_ms"), 60000);
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 3600000);
    cr_assert_eq(number_of(&talk, "grace_ms"), 500);
    cr_assert_eq(number_of(&talk, "max_hold_ms"), 2 * 86400000);
    say(&talk, 200, "PUT", path, "{\"max_ttl\":\"none\"}");
    cr_assert_eq(number_of(&talk, "capacity"), 3);
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    cr_assert_not(kit_json_has(talk.reply.body, "max_ttl_ms"));
    say(&talk, 200, "PUT", path, "{\"max_ttl\":\"none\",\"capacity\":3}");
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    say(&talk, 200, "DELETE", path, NULL);
    text_is(&talk, "prefix", prefix);
    refused(&talk, 404, "unknown_template", "DELETE", path, NULL);
    talk_end(&talk);
}

Test(templates, are_validated_like_semaphores)
{
    struct talk talk = talk_to(shared_port());
    const char *path = template_path(fresh_name("t"));
    refused(&talk, 422, "invalid", "PUT", path, "{}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"capacity\":-1}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"capacity\":65537}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"capacity\":1,\"labels\":[\"A1\"]}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"capacity\":1,\"default_ttl\":\"2m\",\"max_ttl\":\"1m\"}");
    refused(&talk, 400, "malformed", "PUT", path, "{");
    refused(&talk, 422, "invalid", "PUT", "/v1/templates/a%20b", "{\"capacity\":1}");
    refused(&talk, 404, "unknown_path", "PUT", "/v1/templates/", "{\"capacity\":1}");
    refused(&talk, 405, "method_not_allowed", "POST", path, "{\"capacity\":1}");
    refused(&talk, 422, "invalid", "GET", "/v1/templates?limit=0", NULL);
    refused(&talk, 404, "unknown_template", "GET", path, NULL);
    say(&talk, 201, "PUT", path, "{\"capacity\":1}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"kind\":\"counted\"}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-None-Match: *\r\n", "{\"capacity\":2}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: \"2\"\r\n", "{\"capacity\":2}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"1\"\r\n", "{\"capacity\":2}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: x\r\n", "{\"capacity\":2}");
    talk_end(&talk);
}

Test(templates, list_is_paged_in_order_of_prefix)
{
    struct talk talk = talk_to(shared_port());
    const char *begins = fresh_name("page");
    for (int i = 0; i < 5; i++)
        say(&talk, 201, "PUT", text("/v1/templates/%s.%d", begins, i), "{\"capacity\":1}");
    say(&talk, 200, "GET", text("/v1/templates?prefix=%s.&limit=3", begins), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "templates"), 3);
    text_is(&talk, "next", text("%s.2", begins));
    say(&talk, 200, "GET", text("/v1/templates?prefix=%s.&limit=3&after=%s.2", begins, begins), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "templates"), 2);
    text_is(&talk, "templates.1.prefix", text("%s.4", begins));
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    say(&talk, 200, "GET", text("/v1/templates?after=%s.3&limit=1", begins), NULL);
    text_is(&talk, "templates.0.prefix", text("%s.4", begins));
    talk_end(&talk);
}

/* ---- first use ---- */

Test(templates, first_use_creates_the_semaphore_from_the_longest_prefix)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":2,\"max_ttl\":\"1h\",\"note\":\"of each\"}");
    say(&talk, 201, "PUT", text("/v1/templates/%svip", prefix), "{\"capacity\":70000,\"kind\":\"counted\"}");
    const char *name = text("%s1", prefix);
    const char *vip = text("%svip.1", prefix);
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_path(name), NULL);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    cr_assert_eq(number_of(&talk, "permits.0.token"), 1);
    cr_assert_eq(number_of(&talk, "permits.0.slots.0"), 1);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "capacity"), 2);
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 3600000);
    cr_assert_eq(number_of(&talk, "config_version"), 1);
    text_is(&talk, "note", "of each");
    last_event_is(&talk, name, "created", prefix);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), vip, 1, ""));
    say(&talk, 200, "GET", semaphore_path(vip), NULL);
    text_is(&talk, "kind", "counted");
    last_event_is(&talk, vip, "created", text("%svip", prefix));
    talk_end(&talk);
}

Test(templates, first_use_uses_the_current_template)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":1}");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), text("%s1", prefix), 1, ""));
    say(&talk, 200, "PUT", template_path(prefix), "{\"capacity\":2}");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), text("%s2", prefix), 1, ""));
    say(&talk, 200, "DELETE", template_path(prefix), NULL);
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests",
            acquire_body(fresh_name("k"), text("%s3", prefix), 1, ""));
    say(&talk, 200, "GET", semaphore_path(text("%s1", prefix)), NULL);
    cr_assert_eq(number_of(&talk, "capacity"), 1);
    say(&talk, 200, "GET", semaphore_path(text("%s2", prefix)), NULL);
    cr_assert_eq(number_of(&talk, "capacity"), 2);
    talk_end(&talk);
}

Test(templates, first_use_creates_several_semaphores_or_none)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":1}");
    const char *there = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *format =
        "{\"permits\":[{\"semaphore\":\"%sb\"},{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"},{\"semaphore\":\"%sa\"}]}";
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests",
            text(format, prefix, there, fresh_name("nobody"), prefix));
    refused(&talk, 404, "unknown_semaphore", "GET", text("/v1/semaphores/%sa", prefix), NULL);
    refused(&talk, 404, "unknown_semaphore", "GET", text("/v1/semaphores/%sb", prefix), NULL);
    say(&talk, 201, "POST", "/v1/requests", text(format, prefix, there, text("%sc", prefix), prefix));
    cr_assert_eq(kit_json_length(talk.reply.body, "permits"), 4);
    say(&talk, 200, "GET", text("/v1/semaphores?prefix=%s", prefix), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "semaphores"), 3);
    talk_end(&talk);
}

Test(templates, first_use_creates_only_the_semaphore_if_refused)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":1}");
    refused(&talk, 422, "never_satisfiable", "POST", "/v1/requests",
            text("{\"permits\":[{\"semaphore\":\"%s1\",\"count\":2}]}", prefix));
    say(&talk, 200, "GET", text("/v1/semaphores/%s1", prefix), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    cr_assert_eq(number_of(&talk, "next_token"), 1);
    talk_end(&talk);
}

Test(templates, first_use_keeps_the_order_of_a_key_in_a_batch)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    const char *other = fresh_name("k");
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s1\"}]},"
             "{\"op\":\"release\",\"external_id\":\"%s\"},"
             "{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s2\"}]},"
             "{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s2\"}]}]}",
             key, prefix, key, other, prefix, other, prefix));
    cr_assert_eq(number_of(&talk, "results.0.status"), 201, "%s", talk.reply.body);
    cr_assert_eq(number_of(&talk, "results.1.status"), 200);
    text_is(&talk, "results.1.body.end_reason", "released");
    cr_assert_eq(number_of(&talk, "results.2.status"), 201, "%s", talk.reply.body);
    cr_assert_eq(number_of(&talk, "results.3.status"), 200, "%s", talk.reply.body);
    cr_assert(kit_json_true(talk.reply.body, "results.3.body.replayed"));
    talk_end(&talk);
}

Test(templates, first_use_may_wait_for_units_of_another_client)
{
    struct talk talk = talk_to(shared_port());
    struct talk waits = talk_to(shared_port());
    const char *prefix = fresh_template(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    tell(&talk, "POST", "/v1/requests",
         text("{\"external_id\":\"%s\",\"wait\":\"60s\",\"permits\":[{\"semaphore\":\"%s1\"}]}", key, prefix));
    hear(&talk, 201, NULL);
    tell(&waits, "POST", "/v1/requests", text("{\"wait\":\"60s\",\"permits\":[{\"semaphore\":\"%s1\"}]}", prefix));
    release(&talk, key);
    hear(&waits, 201, NULL);
    talk_end(&waits);
    talk_end(&talk);
}

/* ---- retired names ---- */

/* Acquires and releases one unit. Returns the token. */
static int64_t use(struct talk *talk, const char *name)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    int64_t token = number_of(talk, "permits.0.token");
    release(talk, key);
    return token;
}

/* Two permitd on one database. */
struct pair {
    struct kit_permitd *permitd[2];
    struct talk one, two;
};

static struct pair pair_start(void)
{
    struct pair pair;
    struct kit_permitd_options options = {.database = own_url("pair"), .flags = patient_flags};
    for (int i = 0; i < 2; i++)
        pair.permitd[i] = kit_permitd_start(&options);
    pair.one = talk_to(pair.permitd[0]->port);
    pair.two = talk_to(pair.permitd[1]->port);
    return pair;
}

static void pair_stop(struct pair *pair)
{
    talk_end(&pair->one);
    talk_end(&pair->two);
    for (int i = 0; i < 2; i++)
        kit_permitd_stop(pair->permitd[i]);
}

/* The semaphore is retired through the server that has it cached, or through another one, unknown to the first. */
Test(templates, first_use_revives_a_retired_name_and_continues_its_tokens, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.one, "{\"capacity\":1}");
    cr_assert_eq(use(&pair.one, name), 1);
    say(&pair.one, 200, "DELETE", semaphore_path(name), NULL);
    refused(&pair.one, 404, "unknown_semaphore", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    say(&pair.two, 201, "PUT", "/v1/templates/s-", "{\"capacity\":2}");
    cr_assert_eq(use(&pair.one, name), 2);
    last_event_is(&pair.one, name, "revived", "s-");
    say(&pair.one, 200, "DELETE", semaphore_path(name), NULL);
    cr_assert_eq(use(&pair.one, name), 3);
    say(&pair.two, 200, "DELETE", semaphore_path(name), NULL);
    cr_assert_eq(use(&pair.one, name), 4);
    say(&pair.two, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&pair.two, "capacity"), 2);
    pair_stop(&pair);
}

/* The place that is kept for the waiter refers to the semaphore before it was retired. */
Test(templates, first_use_revives_a_retired_name_for_a_returning_waiter)
{
    struct talk talk = talk_to(shared_port());
    const char *name = text("%s1", fresh_template(&talk, "{\"capacity\":1}"));
    const char *holder = fresh_name("k");
    const char *waiter = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(holder, name, 1, ""));
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"wait\":0.05,\"permits\":[{\"semaphore\":\"%s\"}]}", waiter, name));
    release(&talk, holder);
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(waiter, name, 1, ""));
    talk_end(&talk);
}

Test(templates, first_use_keeps_the_kind_of_a_retired_name)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    say(&talk, 201, "PUT", template_path(name), "{\"capacity\":1,\"kind\":\"counted\"}");
    refused(&talk, 422, "invalid", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    text_is(&talk, "detail", text("cannot create %s from template %s: kind cannot change", name, name));
    talk_end(&talk);
}

/* ---- concurrent first use ---- */

enum { CROWD = 16, ROUNDS = 10, CAPACITY = 5 };

struct member {
    pthread_t thread;
    unsigned port;
    unsigned id;
    pthread_barrier_t *barrier;
    int grants[ROUNDS];
    int unexpected; /* status of the first unexpected answer; -1: no answer; 0: none was unexpected */
};

/* Acquires one unit each of two unused semaphores, in one order or the other. */
static void *member_run(void *context)
{
    struct member *member = context;
    struct kit_http http = kit_http(member->port);
    char body[256];
    http.timeout_ms = PATIENCE_MS;
    for (int round = 0; round < ROUNDS; round++) {
        struct reply reply;
        char first = member->id % 3 ? 'a' : 'b';
        (void)snprintf(body, sizeof body, "{\"permits\":[{\"semaphore\":\"at.%d%c\"},{\"semaphore\":\"at.%d%c\"}]}",
                       round, first, round, 'a' + 'b' - first);
        (void)pthread_barrier_wait(member->barrier);
        (void)kit_http_call(&http, "POST", "/v1/requests", NULL, body, &reply);
        member->grants[round] = reply.status == 201;
        if (reply.status != 201 && reply.status != 423 && !member->unexpected)
            member->unexpected = reply.status ? reply.status : -1;
        reply_release(&reply);
    }
    kit_http_close(&http);
    return NULL;
}

Test(templates, first_use_by_many_clients_of_two_servers_creates_one_semaphore, .timeout = 300)
{
    static struct member members[CROWD];
    pthread_barrier_t barrier;
    struct pair pair = pair_start();
    cr_assert_eq(pthread_barrier_init(&barrier, NULL, CROWD), 0);
    say(&pair.one, 201, "PUT", "/v1/templates/at.", text("{\"capacity\":%d}", CAPACITY));
    for (unsigned i = 0; i < CROWD; i++) {
        members[i] = (struct member){.port = pair.permitd[i % 2]->port, .id = i, .barrier = &barrier};
        cr_assert_eq(pthread_create(&members[i].thread, NULL, member_run, &members[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        cr_assert_eq(pthread_join(members[i].thread, NULL), 0);
        cr_assert_eq(members[i].unexpected, 0, "%d", members[i].unexpected);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int grants = 0;
        for (unsigned i = 0; i < CROWD; i++)
            grants += members[i].grants[round];
        cr_assert_eq(grants, CAPACITY, "%d in round %d", grants, round);
        for (const char *letter = "ab"; *letter; letter++) {
            const char *name = text("at.%d%c", round, *letter);
            say(&pair.two, 200, "GET", semaphore_path(name), NULL);
            cr_assert_eq(number_of(&pair.two, "in_use"), CAPACITY);
            cr_assert_eq(number_of(&pair.two, "config_version"), 1);
            say(&pair.two, 200, "GET", text("/v1/semaphores/%s/events", name), NULL);
            cr_assert_eq(kit_json_length(pair.two.reply.body, "events"), 1, "%s", pair.two.reply.body);
        }
    }
    pthread_barrier_destroy(&barrier);
    pair_stop(&pair);
}

/* ---- max_semaphores ---- */

static bool another_is_refused(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    (void)kit_http_call(&talk->http, "POST", "/v1/requests", NULL,
                        acquire_body(fresh_name("k"), fresh_name("t"), 1, ""), &talk->reply);
    return talk->reply.status != 201;
}

Test(templates, first_use_is_limited_by_max_semaphores, .timeout = 300)
{
    static const char *const flags[] = {"--max-semaphores", "3", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/templates/t", "{\"capacity\":9}");
    const char *first = fresh_name("t");
    cr_assert_eq(use(&talk, first), 1);
    cr_assert(kit_wait_until(another_is_refused, &talk, PATIENCE_MS));
    const char *another = fresh_name("t");
    refused(&talk, 429, "too_many", "POST", "/v1/requests", acquire_body(fresh_name("k"), another, 1, ""));
    text_is(&talk, "detail",
            text("there is no semaphore \"%s\", and templates create no more (max_semaphores is 3)", another));
    cr_assert_eq(use(&talk, first), 2);
    say(&talk, 200, "DELETE", semaphore_path(first), NULL);
    cr_assert_eq(use(&talk, first), 3);
    const char *put = fresh_name("t");
    say(&talk, 201, "PUT", semaphore_path(put), "{\"capacity\":1}");
    cr_assert_eq(use(&talk, put), 1);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- max_slots ---- */

/* A talk, a semaphore that needs 401 slots, and the number of slots that the refusal of it must say are left. */
struct slots_left {
    struct talk *talk;
    const char *semaphore;
    int left;
};

static bool slots_left_are(void *context)
{
    struct slots_left *slots = context;
    refused(slots->talk, 429, "too_many", "PUT", semaphore_path(slots->semaphore), "{\"capacity\":401}");
    return kit_json_text_is(
        slots->talk->reply.body, "detail",
        text("401 more slots are needed, and max_slots (1000 for all semaphores) leaves %d; \"kind\":\"counted\" needs "
             "none",
             slots->left));
}

/* The limit is approximate: the first count may count the new slots twice, until the next one. */
Test(max_slots, is_the_limit_of_all_slotted_semaphores, .timeout = 300)
{
    static const char *const flags[] = {"--max-slots", "1000", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *one = fresh_name("s"), *two = fresh_name("s"), *three = fresh_name("t");
    say(&talk, 201, "PUT", semaphore_path(one), "{\"capacity\":600}");
    cr_assert(kit_wait_until(slots_left_are, &(struct slots_left){&talk, two, 400}, PATIENCE_MS));
    say(&talk, 404, "GET", semaphore_path(two), NULL);
    refused(&talk, 429, "too_many", "PUT", semaphore_path(one), "{\"capacity\":1001}");
    say(&talk, 200, "GET", semaphore_path(one), NULL);
    cr_assert_eq(number_of(&talk, "capacity"), 600);
    say(&talk, 201, "PUT", semaphore_path(two), "{\"capacity\":1000000, \"kind\":\"counted\"}");
    say(&talk, 200, "PUT", semaphore_path(one), "{\"capacity\":1000}");
    say(&talk, 200, "PUT", semaphore_path(one), "{\"capacity\":1}"); /* its rows stay */
    say(&talk, 201, "PUT", "/v1/templates/t", "{\"capacity\":1}");
    refused(&talk, 429, "too_many", "POST", "/v1/requests", acquire_body(fresh_name("k"), three, 1, ""));
    refused(&talk, 429, "too_many", "PUT", semaphore_path(three), "{\"capacity\":1}");
    say(&talk, 200, "PUT", semaphore_path(one), "{\"note\":\"no more slots\"}");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

static bool put_is_refused(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    (void)kit_http_call(&talk->http, "PUT", semaphore_path(fresh_name("s")), NULL, "{\"capacity\":1}", &talk->reply);
    return talk->reply.status == 429;
}

/* Slots that are there when permitd starts count, retired or not. */
Test(max_slots, earlier_slots_are_counted, .timeout = 300)
{
    static const char *const flags[] = {"--max-slots", "1000", NULL};
    struct kit_permitd_options options = {.database = own_url("earlier_slots")};
    struct kit_permitd *permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port);
    const char *one = fresh_name("s");
    say(&talk, 201, "PUT", semaphore_path(one), "{\"capacity\":2000}");
    say(&talk, 200, "DELETE", semaphore_path(one), NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    options.flags = flags;
    permitd = kit_permitd_start(&options);
    talk = talk_to(permitd->port);
    cr_assert(kit_wait_until(put_is_refused, &talk, PATIENCE_MS));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- blocked creation ---- */

/* A permitd whose creation of "held" is blocked by an uncommitted row of another session. */
struct held {
    struct kit_permitd *permitd;
    const char *database;
    struct kit_sql *sql; /* holds the row */
    struct kit_sql *observer;
    struct talk talk;
};

static bool waits_for_lock(void *context)
{
    const struct held *held = context;
    return kit_sql_lock_waits(held->observer, held->database) > 0;
}

static struct held held_start(void)
{
    struct held held = {.database = own_database("held")};
    struct kit_permitd_options options = {.database = own_url("held"), .flags = patient_flags};
    held.permitd = kit_permitd_start(&options);
    held.sql = own_sql("held");
    held.observer = own_sql("held");
    held.talk = talk_to(held.permitd->port);
    say(&held.talk, 201, "PUT", "/v1/templates/h", "{\"capacity\":1}");
    kit_sql_run(held.sql, "BEGIN");
    kit_sql_run(held.sql, "INSERT INTO semaphore SET id = 999999999, name = 'held', kind = 1, capacity = 1,"
                          " default_ttl_ms = 1, max_hold_ms = 1");
    return held;
}

static void held_end(struct held *held)
{
    talk_end(&held->talk);
    kit_sql_close(held->observer);
    kit_sql_close(held->sql);
}

static bool one_has_left(void *talk)
{
    return metric_of(talk, "permitd_waits_total{end=\"abandoned\"}") == 1;
}

/* P17: a waiter that left before its batch began holds nothing, also while its semaphore is being created. */
Test(templates, first_use_grants_nothing_to_a_client_that_has_left, .timeout = 300)
{
    struct held held = held_start();
    struct talk stays = talk_to(held.permitd->port);
    struct talk leaves = talk_to(held.permitd->port);
    tell(&leaves, "POST", "/v1/requests",
         "{\"external_id\":\"left\",\"wait\":\"60s\",\"permits\":[{\"semaphore\":\"held\"}]}");
    cr_assert(kit_wait_until(waits_for_lock, &held, PATIENCE_MS));
    talk_end(&leaves);
    cr_assert(kit_wait_until(one_has_left, &held.talk, PATIENCE_MS), "%s", held.talk.reply.body);
    tell(&stays, "POST", "/v1/requests",
         "{\"external_id\":\"stayed\",\"wait\":\"60s\",\"permits\":[{\"semaphore\":\"held\"}]}");
    kit_sql_run(held.sql, "ROLLBACK");
    hear(&stays, 201, NULL);
    refused(&held.talk, 404, "unknown_request", "GET", "/v1/requests/left", NULL);
    talk_end(&stays);
    held_end(&held);
    kit_permitd_stop(held.permitd);
}

Test(templates, first_use_is_answered_when_permitd_stops, .timeout = 300)
{
    struct held held = held_start();
    struct talk asks = talk_to(held.permitd->port);
    tell(&asks, "POST", "/v1/requests",
         "{\"external_id\":\"k\",\"wait\":\"60s\",\"permits\":[{\"semaphore\":\"held\"}]}");
    cr_assert(kit_wait_until(waits_for_lock, &held, PATIENCE_MS));
    cr_assert_eq(kill(held.permitd->pid, SIGTERM), 0);
    hear(&asks, 503, "shutting_down");
    talk_end(&asks);
    cr_assert_eq(kit_permitd_wait_end(held.permitd, PATIENCE_MS), 0);
    kit_permitd_kill(held.permitd);
    held_end(&held);
}
