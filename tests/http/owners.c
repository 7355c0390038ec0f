/* SPDX-License-Identifier: MIT */
/* Owners: heartbeats, lapses and what ends with them, and a probe that is asked who is alive. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"

enum { PATIENCE_MS = 120000 };

static const char *owner_path(const char *owner)
{
    return text("/v1/owners/%s", owner);
}

static const char *request_path(const char *key)
{
    return text("/v1/requests/%s", key);
}

static const char *acquire_body(const char *key, const char *semaphore, const char *owner, const char *ttl)
{
    return text("{\"external_id\":\"%s\",\"owner\":\"%s\",\"ttl\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", key,
                owner, ttl, semaphore);
}

/* Grants one unit to the owner; the key. */
static const char *acquire(struct talk *talk, const char *semaphore, const char *owner, const char *ttl)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, owner, ttl));
    return key;
}

static void is_held(struct talk *talk, const char *key)
{
    say(talk, 200, "GET", request_path(key), NULL);
    text_is(talk, "state", "ACQUIRED");
}

/* ---- heartbeats ---- */

Test(owners, a_heartbeat_makes_an_owner_and_extends_it, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *owner = fresh_name("o");
    refused(&talk, 404, "unknown_owner", "GET", owner_path(owner), NULL);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "owner", owner);
    text_is(&talk, "state", "alive");
    cr_assert_eq(number_of(&talk, "ttl_ms"), 3600000);
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 3600000);
    cr_assert(kit_json_has(talk.reply.body, "expires_at"));
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":7200}");
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 7200000);
    say(&talk, 200, "GET", owner_path(owner), NULL);
    text_is(&talk, "state", "alive");
    cr_assert_eq(number_of(&talk, "held"), 0);
    cr_assert_gt(number_of(&talk, "expires_in_ms"), 7000000);
    cr_assert(kit_json_has(talk.reply.body, "suspect") && !kit_json_true(talk.reply.body, "suspect"));
    talk_end(&talk);
}

Test(owners, what_is_no_heartbeat_is_refused, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *path = owner_path(fresh_name("o"));
    refused(&talk, 422, "invalid", "PUT", path, "{}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":0}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":\"none\"}");
    refused(&talk, 422, "invalid", "PUT", path, "{\"ttl\":\"1s\",\"more\":1}");
    refused(&talk, 400, "malformed", "PUT", path, NULL);
    refused(&talk, 422, "invalid", "PUT", "/v1/owners/a%20b", "{\"ttl\":1}");
    refused(&talk, 405, "method_not_allowed", "POST", path, "{\"ttl\":1}");
    refused(&talk, 404, "unknown_owner", "DELETE", path, NULL);
    say(&talk, 201, "PUT", owner_path(text("a%%2Fb%%25-%s", process_name())), "{\"ttl\":1}");
    text_is(&talk, "owner", text("a/b%%-%s", process_name()));
    talk_end(&talk);
}

Test(owners, ttl_owner_needs_an_owner_with_a_heartbeat, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"max_ttl\":\"1m\"}");
    const char *owner = fresh_name("o");
    const char *body = text("{\"owner\":\"%s\",\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", owner, name);
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    refused(&talk, 404, "unknown_owner", "POST", "/v1/requests", body);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    say(&talk, 201, "POST", "/v1/requests", body);
    text_is(&talk, "ttl", "owner");
    cr_assert(kit_json_has(talk.reply.body, "ttl_ms") && kit_json_int(talk.reply.body, "ttl_ms") == INT64_MIN);
    cr_assert_not(kit_json_has(talk.reply.body, "expires_at"));
    const char *key = kept(kit_json_text(talk.reply.body, "external_id"));
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), NULL);
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"owner\"}");
    refused(&talk, 422, "invalid", "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"10s\"}");
    refused(&talk, 422, "invalid", "PUT", text("/v1/semaphores/%s", name), "{\"max_ttl\":\"owner\"}");
    say(&talk, 200, "GET", owner_path(owner), NULL);
    cr_assert_eq(number_of(&talk, "held"), 1);
    talk_end(&talk);
}

/* ---- lapses ---- */

Test(owners, a_lapse_ends_what_was_acquired_before_and_not_what_was_confirmed, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *owner = fresh_name("o");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *by_heartbeat = acquire(&talk, name, owner, "owner");
    const char *by_ttl = acquire(&talk, name, owner, "1h");
    const char *for_ever = acquire(&talk, name, owner, "none");
    const char *sold = acquire(&talk, name, owner, "owner");
    const char *of_another = acquire(&talk, name, fresh_name("o"), "1h");
    say(&talk, 200, "POST", text("%s/confirm", request_path(sold)), NULL);
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"500ms\"}");
    ends_as(&talk, by_heartbeat, "owner_dead");
    ends_as(&talk, by_ttl, "owner_dead");
    ends_as(&talk, for_ever, "owner_dead");
    is_held(&talk, sold);
    is_held(&talk, of_another);
    say(&talk, 200, "GET", owner_path(owner), NULL);
    text_is(&talk, "state", "lapsed");
    cr_assert(kit_json_has(talk.reply.body, "lapsed_at"));
    cr_assert_eq(number_of(&talk, "held"), 1);
    refused(&talk, 410, "ended", "POST", text("%s/renew", request_path(by_ttl)), NULL);
    text_is(&talk, "end_reason", "owner_dead");
    const char *later = acquire(&talk, name, owner, "1h");
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "state", "alive");
    is_held(&talk, later);
    say(&talk, 200, "GET", text("/v1/semaphores/%s", name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 3);
    talk_end(&talk);
}

Test(owners, heartbeats_in_time_keep_everything, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *owner = fresh_name("o");
    int64_t until = kit_now_us() + 3000000;
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"20s\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    while (kit_now_us() < until)
        say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"20s\"}");
    is_held(&talk, key);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    text_is(&talk, "end_reason", "released");
    talk_end(&talk);
}

Test(owners, who_says_goodbye_lapses_at_once, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *owner = fresh_name("o");
    refused(&talk, 404, "unknown_owner", "DELETE", owner_path(owner), NULL);
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    text_is(&talk, "state", "lapsed");
    const char *lapsed_at = kept(kit_json_text(talk.reply.body, "lapsed_at"));
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    text_is(&talk, "lapsed_at", lapsed_at);
    refused(&talk, 404, "unknown_owner", "POST", "/v1/requests",
            text("{\"owner\":\"%s\",\"ttl\":\"owner\",\"permits\":[{\"semaphore\":\"%s\"}]}", owner, name));
    ends_as(&talk, key, "owner_dead");
    say(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    (void)acquire(&talk, name, owner, "owner");
    talk_end(&talk);
}

/* The batch on the semaphore waits for a lock that the test holds, so that what is to end cannot end yet. */
Test(owners, heartbeats_are_refused_until_everything_has_ended, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL); /* whose worker may be held up */
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *owner = fresh_name("o");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    const char *key = acquire(&talk, name, owner, "owner");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = '%s' FOR UPDATE", name);
    say(&talk, 200, "DELETE", owner_path(owner), NULL);
    refused(&talk, 410, "ended", "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "end_reason", "owner_dead");
    cr_assert(kit_json_has(talk.reply.body, "ended_at"));
    say(&talk, 200, "GET", request_path(key), NULL);
    cr_assert(kit_json_true(talk.reply.body, "suspect"), "%s", talk.reply.body);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders", name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "holders.0.suspect"), "%s", talk.reply.body);
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    say_until(&talk, 200, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    say(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "end_reason", "owner_dead");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* The grant's INSERT waits for a stranger's row with the same key, for 2 s at most. */
static bool insert_waits(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%INSERT INTO permit_request%%'") > 0;
}

struct lapse {
    struct kit_sql *sql;
    const char *owner;
};

static bool is_settled(void *context)
{
    const struct lapse *lapse = context;
    return kit_sql_number(lapse->sql, "SELECT COUNT(*) FROM owner WHERE name = '%s' AND settled_at IS NOT NULL",
                          lapse->owner) > 0;
}

/*
 * The owner says goodbye while a batch for it has read its clock and not written yet, and all that ends with the lapse
 * has ended before the batch commits. Its grant looks older than the lapse. False: the batch gave up before.
 */
static bool grant_after_the_lapse(struct talk *talk, struct lapse *lapse, const char *semaphore, const char *key)
{
    struct talk waiting = talk_to(talk->http.port);
    struct kit_sql *stranger = own_sql("own0");
    kit_sql_run(stranger, "BEGIN");
    kit_sql_run(stranger, "INSERT INTO permit_request (id, external_id) VALUES (1000000000, '%s')", key);
    tell(&waiting, "POST", "/v1/requests", acquire_body(key, semaphore, lapse->owner, "1h"));
    cr_assert(kit_wait_until(insert_waits, lapse->sql, PATIENCE_MS));
    say(talk, 200, "DELETE", owner_path(lapse->owner), NULL);
    cr_assert(kit_wait_until(is_settled, lapse, PATIENCE_MS));
    kit_sql_run(stranger, "ROLLBACK");
    kit_sql_close(stranger);
    cr_assert(kit_http_receive(&waiting.http, "POST", &waiting.reply), "%s", waiting.reply.error);
    bool granted = waiting.reply.status == 201;
    cr_assert(granted || waiting.reply.status == 503, "%s", waiting.reply.body); /* the lapse took longer than 2 s */
    talk_end(&waiting);
    return granted && kit_sql_number(lapse->sql,
                                     "SELECT COUNT(*) FROM permit_request r JOIN owner o ON o.name = r.owner "
                                     "WHERE r.external_id = '%s' AND r.acquired_at <= o.lapsed_at",
                                     key) == 1;
}

Test(owners, a_grant_that_comes_after_the_end_of_a_lapse_locks_nobody_out, .timeout = 600)
{
    enum { TRIES = 20 };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":100}");
    struct lapse lapse = {.sql = own_sql("own0"), .owner = fresh_name("o")};
    const char *key = NULL;
    bool came_to_that = false;
    for (int i = 0; i < TRIES && !came_to_that; i++) {
        key = fresh_name("k");
        say_until(&talk, i ? 200 : 201, "PUT", owner_path(lapse.owner), "{\"ttl\":\"1h\"}");
        came_to_that = grant_after_the_lapse(&talk, &lapse, name, key);
    }
    cr_assert(came_to_that);
    say(&talk, 200, "PUT", owner_path(lapse.owner), "{\"ttl\":\"1h\"}");
    text_is(&talk, "state", "alive");
    is_held(&talk, key);
    kit_sql_close(lapse.sql);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Metrics are no JSON. */
static bool all_lapsed(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    return kit_http_get(&talk->http, "/metrics", &talk->reply) &&
           strstr(talk->reply.body, "permitd_owners{state=\"lapsed\"} 300\n") &&
           strstr(talk->reply.body, "permitd_ended_total{reason=\"owner_dead\"} 600\n");
}

/* Somebody in this database waits for an owner's row. */
static bool waits_for_owner(void *sql)
{
    return kit_sql_number(sql, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND "
                               "id <> CONNECTION_ID() AND info LIKE '%%FROM owner%%FOR UPDATE%%'") > 0;
}

/* As a permitd would that was stopped in the middle of a batch. */
Test(owners, a_row_that_somebody_keeps_does_not_stop_the_heartbeats_of_others, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_http stuck = kit_http(permitd->port);
    struct reply reply;
    const char *kept_row = fresh_name("o");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(kept_row), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT ttl_ms FROM owner WHERE name = '%s' LOCK IN SHARE MODE", kept_row);
    cr_assert(kit_http_send(&stuck, "PUT", owner_path(kept_row), NULL, "{\"ttl\":\"2h\"}"));
    cr_assert(kit_wait_until(waits_for_owner, sql, PATIENCE_MS));
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "PUT", owner_path(fresh_name("o")), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    cr_assert(kit_http_receive(&stuck, "PUT", &reply), "%s", reply.error);
    cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
    reply_release(&reply);
    say(&talk, 200, "PUT", owner_path(kept_row), "{\"ttl\":\"2h\"}");
    kit_http_close(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* More rows than seconds in the time of a request: one wait for each would be too long. */
enum { KEPT = 150 };

Test(owners, many_rows_that_somebody_keeps_do_not_stop_the_heartbeats_of_others, .timeout = 900)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct kit_http stuck[KEPT];
    const char *kept_rows[KEPT];
    struct kit_sql *sql = own_sql("own0");
    for (int i = 0; i < KEPT; i++) {
        kept_rows[i] = fresh_name("a");
        say(&talk, 201, "PUT", owner_path(kept_rows[i]), "{\"ttl\":\"1h\"}");
    }
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT COUNT(*) FROM (SELECT name FROM owner FOR UPDATE) o");
    for (int i = 0; i < KEPT; i++) {
        stuck[i] = kit_http(permitd->port);
        cr_assert(kit_http_send(&stuck[i], "PUT", owner_path(kept_rows[i]), NULL, "{\"ttl\":\"2h\"}"));
    }
    cr_assert(kit_wait_until(waits_for_owner, sql, PATIENCE_MS));
    for (int i = 0; i < 3; i++)
        say(&talk, 201, "PUT", owner_path(fresh_name("b")), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    for (int i = 0; i < KEPT; i++) {
        struct reply reply;
        cr_assert(kit_http_receive(&stuck[i], "PUT", &reply), "%s", reply.error);
        cr_assert(reply.status == 200 || reply.status == 503, "%s", reply.body);
        reply_release(&reply);
        kit_http_close(&stuck[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* P23: the batch does not wait for the owner while it holds the semaphore. */
Test(owners, a_row_that_somebody_keeps_does_not_stop_the_semaphores_of_its_owner, .timeout = 600)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct talk stuck = talk_to(permitd->port);
    const char *owner = fresh_name("o");
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":100}");
    struct kit_sql *sql = own_sql("own0");
    say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT ttl_ms FROM owner WHERE name = '%s' FOR UPDATE", owner);
    for (int i = 0; i < 5; i++) {
        tell(&stuck, "POST", "/v1/requests", acquire_body(fresh_name("k"), semaphore, owner, "owner"));
        (void)acquire(&talk, semaphore, "somebody", "1h");
        hear(&stuck, 503, "busy");
    }
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    (void)acquire(&talk, semaphore, owner, "owner");
    talk_end(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* The relative of it: the row of a request. */
Test(owners, a_request_that_somebody_keeps_does_not_stop_its_semaphore, .timeout = 600)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    struct talk stuck = talk_to(permitd->port);
    const char *semaphore = fresh_semaphore(&talk, "{\"capacity\":100}");
    const char *key = acquire(&talk, semaphore, "o", "1h");
    struct kit_sql *sql = own_sql("own0");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT state FROM permit_request WHERE external_id = '%s' FOR UPDATE", key);
    for (int i = 0; i < 3; i++) {
        tell(&stuck, "DELETE", request_path(key), NULL);
        (void)acquire(&talk, semaphore, "somebody", "1h");
        hear(&stuck, 503, "outcome_unknown");
    }
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    talk_end(&stuck);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(owners, many_lapse_at_once, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":600,\"kind\":\"counted\"}");
    for (int i = 0; i < 300; i++) {
        const char *owner = text("many%d", i);
        say(&talk, 201, "PUT", owner_path(owner), "{\"ttl\":\"1h\"}");
        (void)acquire(&talk, name, owner, "owner");
        (void)acquire(&talk, name, owner, "1h");
    }
    for (int i = 0; i < 300; i++)
        say(&talk, 200, "PUT", owner_path(text("many%d", i)), "{\"ttl\":\"10ms\"}");
    cr_assert(kit_wait_until(all_lapsed, &talk, PATIENCE_MS), "%s", talk.reply.body);
    say(&talk, 200, "GET", text("/v1/semaphores/%s", name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(owners, heartbeats_go_on_when_the_database_comes_back, .timeout = 300)
{
    struct kit_database *database = kit_database_start(NULL);
    static const char *const flags[] = {"--request-timeout=2s", NULL};
    struct kit_permitd_options options = {.database = database->url, .flags = flags};
    struct kit_permitd *permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port);
    const char *key = fresh_name("k");
    say_until(&talk, 200, "PUT", "/v1/semaphores/s", "{\"capacity\":1}"); /* and again */
    say_until(&talk, 200, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    say_until(&talk, 200, "POST", "/v1/requests", acquire_body(key, "s", "survivor", "owner"));
    kit_database_kill(database);
    say_until(&talk, 503, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    kit_database_restart(database);
    say_until(&talk, 200, "PUT", owner_path("survivor"), "{\"ttl\":\"1h\"}");
    say_until(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "state", "ACQUIRED");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    kit_database_stop(database);
}

/* ---- two permitd, many clients ---- */

enum { CROWD = 16, CROWD_OWNERS = 5, CROWD_MS = 4000, TURNS_MIN = 32 };

struct member {
    pthread_t thread;
    unsigned port;
    unsigned id;
    unsigned seed;
    const char *semaphore;
    int64_t until;
    int grants;
    int unexpected; /* the status of the first answer that should not be */
};

static int ask(struct kit_http *http, const char *method, const char *path, const char *body)
{
    struct reply reply;
    (void)kit_http_call(http, method, path, NULL, body, &reply);
    int status = reply.status;
    reply_release(&reply);
    return status;
}

/* Beats, says goodbye, acquires and releases, all under the same few names, and often enough to come by all of them. */
static void *member_run(void *context)
{
    struct member *member = context;
    struct kit_http http = kit_http(member->port);
    char path[64], key[64], body[256];
    for (int i = 0; (i < TURNS_MIN || kit_now_us() < member->until) && !member->unexpected; i++) {
        int owner = rand_r(&member->seed) % CROWD_OWNERS;
        int what = rand_r(&member->seed) % 8;
        (void)snprintf(path, sizeof path, "/v1/owners/crowd%d", owner);
        (void)snprintf(key, sizeof key, "crowd-%u-%d", member->id, i);
        (void)snprintf(body, sizeof body,
                       "{\"external_id\":\"%s\",\"owner\":\"crowd%d\",\"ttl\":\"owner\",\"permits\":"
                       "[{\"semaphore\":\"%s\"}]}",
                       key, owner, member->semaphore);
        int status = what < 3   ? ask(&http, "PUT", path, what ? "{\"ttl\":\"1h\"}" : "{\"ttl\":\"20ms\"}")
                     : what < 4 ? ask(&http, "DELETE", path, NULL)
                                : ask(&http, "POST", "/v1/requests", body);
        bool good = what < 3   ? status == 200 || status == 201 || status == 410
                    : what < 4 ? status == 200 || status == 404
                               : status == 201 || status == 404;
        member->grants += what >= 4 && status == 201;
        member->unexpected = good ? 0 : status ? status : -1;
        if (what == 7 && status == 201)
            (void)ask(&http, "DELETE", text("/v1/requests/%s", key), NULL);
    }
    kit_http_close(&http);
    return NULL;
}

static bool nobody_holds(void *context)
{
    struct talk *talk = context;
    say(talk, 200, "GET", "/v1/requests?state=ACQUIRED", NULL);
    return kit_json_length(talk->reply.body, "requests") == 0;
}

Test(owners, two_permitd_and_a_crowd_lose_nothing, .timeout = 300)
{
    static struct member members[CROWD];
    struct kit_database *database = kit_database_start(NULL);
    struct kit_permitd_options options = {.database = database->url, .flags = patient_flags};
    struct kit_permitd *permitd[2] = {kit_permitd_start(&options), kit_permitd_start(&options)};
    struct talk talk = talk_to(permitd[0]->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1000000,\"kind\":\"counted\"}");
    int grants = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        members[i] = (struct member){.port = permitd[i % 2]->port,
                                     .id = i,
                                     .seed = i,
                                     .semaphore = name,
                                     .until = kit_now_us() + CROWD_MS * 1000};
        cr_assert_eq(pthread_create(&members[i].thread, NULL, member_run, &members[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        cr_assert_eq(pthread_join(members[i].thread, NULL), 0);
        cr_assert_eq(members[i].unexpected, 0, "%d", members[i].unexpected);
        grants += members[i].grants;
    }
    cr_assert_gt(grants, 0);
    for (int i = 0; i < CROWD_OWNERS; i++)
        say(&talk, 200, "DELETE", owner_path(text("crowd%d", i)), NULL);
    cr_assert(kit_wait_until(nobody_holds, &talk, PATIENCE_MS), "%s", talk.reply.body);
    say(&talk, 200, "GET", text("/v1/semaphores/%s", name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd[0]);
    kit_permitd_stop(permitd[1]);
    kit_database_stop(database);
}

/* ---- the probe ---- */

/*
 * Somebody who knows who is alive, on a thread of the test. The answer goes by the beginning of the name: `alive` 200,
 * `dead` 404, `gone` 410, `odd` 500, `moved` 302, `turns` 404 and 200 in turn, `silent` none.
 */
struct oracle {
    pthread_t thread;
    int fd;
    unsigned port;
    pthread_mutex_t mutex;
    struct {
        char name[128]; /* as it came: still encoded */
        int times;
    } asked[32];
    int silent[4096]; /* connections without an answer */
    size_t silent_count;
};

static int count_question(struct oracle *oracle, const char *name)
{
    int times = 0;
    pthread_mutex_lock(&oracle->mutex);
    for (size_t i = 0; i < sizeof oracle->asked / sizeof *oracle->asked && !times; i++) {
        if (oracle->asked[i].times && strcmp(oracle->asked[i].name, name) != 0)
            continue;
        (void)snprintf(oracle->asked[i].name, sizeof oracle->asked[i].name, "%s", name);
        times = ++oracle->asked[i].times;
    }
    pthread_mutex_unlock(&oracle->mutex);
    return times;
}

static int times_asked(struct oracle *oracle, const char *name)
{
    int times = 0;
    pthread_mutex_lock(&oracle->mutex);
    for (size_t i = 0; i < sizeof oracle->asked / sizeof *oracle->asked; i++)
        if (strcmp(oracle->asked[i].name, name) == 0)
            times = oracle->asked[i].times;
    pthread_mutex_unlock(&oracle->mutex);
    return times;
}

static const char *answer_to(const char *name, int times)
{
    static const struct {
        const char *beginning;
        const char *answers[2];
    } rows[] = {
        {"alive", {"200 OK", "200 OK"}},        {"dead", {"404 Not Found", "404 Not Found"}},
        {"gone", {"410 Gone", "410 Gone"}},     {"odd", {"500 Oh", "503 Oh"}},
        {"moved", {"302 Found", "301 Moved"}},  {"turns", {"404 Not Found", "200 OK"}},
        {"doubt", {"404 Not Found", "500 Oh"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(name, rows[i].beginning, strlen(rows[i].beginning)) == 0)
            return rows[i].answers[(times - 1) % 2];
    return NULL;
}

static bool read_question(int fd, char name[128])
{
    char request[4096];
    size_t length = 0;
    while (length < sizeof request - 1) {
        ssize_t got = read(fd, request + length, sizeof request - 1 - length);
        if (got <= 0)
            return false;
        length += (size_t)got;
        request[length] = '\0';
        if (strstr(request, "\r\n\r\n"))
            return sscanf(request, "GET /jobs/%127[^ ] HTTP/1.1\r\n", name) == 1;
    }
    return false;
}

static void answer(struct oracle *oracle, int fd)
{
    char name[128];
    char reply[256];
    if (!read_question(fd, name)) {
        (void)close(fd);
        return;
    }
    const char *status = answer_to(name, count_question(oracle, name));
    if (!status && oracle->silent_count < sizeof oracle->silent / sizeof *oracle->silent) {
        oracle->silent[oracle->silent_count++] = fd;
        return;
    }
    int length = snprintf(reply, sizeof reply,
                          "HTTP/1.1 %s\r\nLocation: /jobs/alive\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
                          status ? status : "500 Full");
    (void)!write(fd, reply, (size_t)length);
    (void)close(fd);
}

static void *oracle_run(void *context)
{
    struct oracle *oracle = context;
    for (int fd; (fd = accept(oracle->fd, NULL, NULL)) >= 0;)
        answer(oracle, fd);
    return NULL;
}

static struct oracle *oracle_start(void)
{
    struct oracle *oracle = calloc(1, sizeof *oracle);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    cr_assert_not_null(oracle);
    oracle->fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(oracle->fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(oracle->fd, 64), 0);
    cr_assert_eq(getsockname(oracle->fd, (struct sockaddr *)&address, &size), 0);
    oracle->port = ntohs(address.sin_port);
    pthread_mutex_init(&oracle->mutex, NULL);
    cr_assert_eq(pthread_create(&oracle->thread, NULL, oracle_run, oracle), 0);
    return oracle;
}

static void oracle_stop(struct oracle *oracle)
{
    (void)shutdown(oracle->fd, SHUT_RDWR);
    (void)pthread_join(oracle->thread, NULL);
    (void)close(oracle->fd);
    for (size_t i = 0; i < oracle->silent_count; i++)
        (void)close(oracle->silent[i]);
    pthread_mutex_destroy(&oracle->mutex);
    free(oracle);
}

/* A port that nobody has and nobody gets, and where nobody listens; *ret_fd keeps it. */
static unsigned deaf_port(int *ret_fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(*ret_fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(*ret_fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

static struct kit_permitd *permitd_that_asks(const char *url)
{
    const char *flags[] = {text("--liveness-url=%s", url), "--liveness-interval=100ms", NULL};
    return own_permitd(flags);
}

/* Everybody whose name has this beginning has been asked about so often. */
struct asked_about {
    struct oracle *oracle;
    const char *name;
    int times;
};

static bool was_asked(void *context)
{
    struct asked_about *wanted = context;
    return times_asked(wanted->oracle, wanted->name) >= wanted->times;
}

static void wait_asked(struct oracle *oracle, const char *name, int times)
{
    struct asked_about wanted = {oracle, name, times};
    cr_assert(kit_wait_until(was_asked, &wanted, PATIENCE_MS), "%s was asked about %d times", name,
              times_asked(oracle, name));
}

static void is_suspect(struct talk *talk, const char *key)
{
    is_held(talk, key);
    cr_assert(kit_json_true(talk->reply.body, "suspect"), "%s", talk->reply.body);
}

/* A held request of somebody. */
struct somebody {
    struct talk *talk;
    const char *key;
};

static bool is_above_suspicion(void *context)
{
    const struct somebody *somebody = context;
    is_held(somebody->talk, somebody->key);
    const char *body = somebody->talk->reply.body;
    return kit_json_has(body, "suspect") && !kit_json_true(body, "suspect");
}

Test(probe, two_clear_answers_end_what_the_dead_hold, .timeout = 300)
{
    struct oracle *oracle = oracle_start();
    struct kit_permitd *permitd = permitd_that_asks(text("http://127.0.0.1:%u/jobs/{owner}", oracle->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    const char *alive = acquire(&talk, name, "alive/1?", "1h");
    const char *dead = acquire(&talk, name, "dead", "1h");
    const char *also = acquire(&talk, name, "dead", "none");
    const char *gone = acquire(&talk, name, "gone%", "1h");
    const char *nobody = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", nobody, name));
    ends_as(&talk, dead, "owner_dead");
    cr_assert_geq(times_asked(oracle, "dead"), 2);
    ends_as(&talk, also, "owner_dead");
    ends_as(&talk, gone, "owner_dead");
    cr_assert_geq(times_asked(oracle, "gone%25"), 2, "the name is percent-encoded");
    wait_asked(oracle, "alive%2F1%3F", 3);
    /* An answer that took longer than 5 s is none: until the next one. */
    cr_assert(kit_wait_until(is_above_suspicion, &(struct somebody){&talk, alive}, PATIENCE_MS));
    is_held(&talk, nobody);
    say(&talk, 200, "GET", owner_path("dead"), NULL);
    text_is(&talk, "state", "lapsed");
    cr_assert_not(kit_json_has(talk.reply.body, "ttl_ms"));
    say(&talk, 200, "PUT", owner_path("dead"), "{\"ttl\":\"1h\"}");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    oracle_stop(oracle);
}

Test(probe, what_is_acquired_under_a_dead_name_is_judged_anew, .timeout = 300)
{
    struct oracle *oracle = oracle_start();
    struct kit_permitd *permitd = permitd_that_asks(text("http://127.0.0.1:%u/jobs/{owner}", oracle->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    for (int i = 0; i < 3; i++)
        ends_as(&talk, acquire(&talk, name, "dead", "1h"), "owner_dead");
    talk_end(&talk);
    kit_permitd_stop(permitd);
    oracle_stop(oracle);
}

Test(probe, one_answer_or_an_unclear_one_ends_nothing, .timeout = 300)
{
    static const char *const names[] = {"turns", "odd", "moved", "doubt", "silent"};
    const char *keys[sizeof names / sizeof *names];
    struct oracle *oracle = oracle_start();
    struct kit_permitd *permitd = permitd_that_asks(text("http://127.0.0.1:%u/jobs/{owner}", oracle->port));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        keys[i] = acquire(&talk, name, names[i], "1h");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        wait_asked(oracle, names[i], 4); /* the third pass began after the second was judged */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_held(&talk, keys[i]);
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        is_suspect(&talk, keys[i]);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders", name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "holders.1.suspect"), "%s", talk.reply.body);
    say(&talk, 200, "GET", "/v1/requests?owner=silent", NULL);
    cr_assert(kit_json_true(talk.reply.body, "requests.0.suspect"), "%s", talk.reply.body);
    refused(&talk, 404, "unknown_owner", "GET", owner_path("odd"), NULL);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    oracle_stop(oracle);
}

static bool probes_failed(void *context)
{
    struct talk *talk = context;
    reply_release(&talk->reply);
    if (!kit_http_get(&talk->http, "/metrics", &talk->reply))
        return false;
    const char *line = strstr(talk->reply.body, "permitd_probes_total{answer=\"unknown\"} ");
    return line && atoi(strrchr(text("%.*s", (int)strcspn(line, "\n"), line), ' ')) >= 3 &&
           strstr(talk->reply.body, "permitd_owners_suspect 1\n");
}

Test(probe, nobody_to_ask_ends_nothing, .timeout = 300)
{
    int fd;
    struct kit_permitd *permitd = permitd_that_asks(text("http://127.0.0.1:%u/{owner}", deaf_port(&fd)));
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":10}");
    const char *key = acquire(&talk, name, "dead", "1h");
    cr_assert(kit_wait_until(probes_failed, &talk, PATIENCE_MS), "%s", talk.reply.body);
    is_suspect(&talk, key);
    talk_end(&talk);
    kit_permitd_stop(permitd);
    close(fd);
}

Test(probe, a_url_that_cannot_be_asked_is_refused_at_the_start, .timeout = 300)
{
    static const char *const urls[] = {
        "https://127.0.0.1/{owner}", "http://127.0.0.1/jobs",
        "http://{owner}/jobs",       "http://{owner}.x/{owner}",
        "127.0.0.1/{owner}",         "http://127.0.0.1:0/{owner}",
        "http:///{owner}",           "http://u:p@127.0.0.1/{owner}",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        const char *flags[] = {text("--liveness-url=%s", urls[i]), NULL};
        struct kit_permitd_options options = {.database = "mysql://root@127.0.0.1:1/none", .flags = flags};
        struct kit_permitd *permitd = kit_permitd_spawn(&options);
        cr_assert_not(kit_permitd_wait_served(permitd, 30000), "%s", urls[i]);
        char *log = kit_read_file(permitd->log_path);
        cr_assert(log && strstr(log, "liveness_url"), "%s: %s", urls[i], log);
        free(log);
        kit_permitd_kill(permitd);
    }
}
