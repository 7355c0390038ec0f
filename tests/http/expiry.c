/* SPDX-License-Identifier: MIT */
/* Permits that expire, and a failover as clients see it, as transcripts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fixture.h"

Test(expiry, unrenewed_request_expires, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"300ms\""));
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 300);
    ends_as(&talk, key, "expired");
    refused(&talk, 410, "ended", "POST", text("/v1/requests/%s/renew", key), NULL);
    text_is(&talk, "end_reason", "expired");
    refused(&talk, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"300ms\""));
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
}

Test(expiry, grace_extends_the_hold_and_is_not_shown, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"grace\":\"1h\"}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"1ms\""));
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests",
            acquire_body(fresh_name("k"), name, 1, ",\"ttl\":\"1s\""));
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), NULL);
    release(&talk, key);
    talk_end(&talk);
}

Test(expiry, request_without_ttl_is_stale_after_max_hold, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"max_hold\":\"300ms\"}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"none\""));
    ends_as(&talk, key, "stale");
    talk_end(&talk);
}

/* Acquires a unit of the semaphore and of 30 others, which no other request holds. */
static void acquire_widely(struct talk *talk, const char *semaphore, const char *others)
{
    const char *permits = text("{\"semaphore\":\"%s\"}", semaphore);
    for (int i = 0; i < 30; i++)
        permits = text("%s,{\"semaphore\":\"%s%d\"}", permits, others, i);
    say(talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"ttl\":\"300ms\",\"permits\":[%s]}", fresh_name("k"), permits));
}

/* P7: three due holders have 91 semaphores, and a batch locks at most 64. */
Test(expiry, due_holders_of_many_semaphores_are_ended_for_an_acquire, .timeout = 300)
{
    enum { ROUNDS = 8, HOLDERS = 3 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"kind\":\"counted\"}");
    const char *prefix = fresh_name("wide");
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":1,\"kind\":\"counted\"}");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < HOLDERS; i++)
            acquire_widely(&talk, name, text("%s-%d-", prefix, i));
        const char *key = fresh_name("k");
        const char *body = text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":3}]}", key, name);
        do {
            reply_release(&talk.reply);
            cr_assert(kit_http_post(&talk.http, "/v1/requests", body, &talk.reply));
            cr_assert(talk.reply.status == 201 || talk.reply.status == 423, "%d %s", talk.reply.status,
                      talk.reply.body);
        } while (talk.reply.status != 201);
        release(&talk, key);
    }
    talk_end(&talk);
}

Test(expiry, due_unit_is_granted_to_the_next_request, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *first = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *second = fresh_semaphore(&talk, "{\"capacity\":1,\"kind\":\"counted\"}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"ttl\":\"400ms\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}]}",
             key, first, second));
    say_until(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), first, 1, ",\"ttl\":\"1h\""));
    ends_as(&talk, key, "expired");
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), second, 1, ",\"ttl\":\"1h\""));
    talk_end(&talk);
}

/* ---- a row that another session has locked ---- */

#define EXPIRED_LOCKED "permitd_operations_total{op=\"expire\",outcome=\"in_transaction\"}"
#define LOCK_TIMEOUTS  "permitd_batch_retries_total{reason=\"lock_timeout\"}"
enum { BUSY_MS = 120000 };

static bool expiry_has_met_the_lock(void *talk)
{
    return metric_of(talk, EXPIRED_LOCKED) > 0;
}

/* Acquires a hold, and locks its row in a transaction of the shop before it is due. Returns its key. */
static const char *lock_hold(struct talk *talk, struct kit_sql *shop)
{
    enum { ACQUIRED = 1 };
    for (int ttl_ms = 300;; ttl_ms *= 2) {
        const char *key = fresh_name("hold");
        say_until(talk, 201, "POST", "/v1/requests", acquire_body(key, "s", 1, text(",\"ttl\":\"%dms\"", ttl_ms)));
        kit_sql_run(shop, "BEGIN");
        if (kit_sql_number(shop, "SELECT state FROM permit_request WHERE external_id='%s' FOR UPDATE", key) == ACQUIRED)
            return key;
        kit_sql_run(shop, "ROLLBACK"); /* it has expired already */
    }
}

/* P23: a shop has a transaction open on a hold that is due. */
static void shop_locks_a_due_hold(const char *short_path)
{
    const char *const flags[] = {short_path, NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct kit_sql *shop = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":2,\"kind\":\"counted\"}");
    const char *hold = lock_hold(&talk, shop);
    cr_assert(kit_wait_until(expiry_has_met_the_lock, &talk, BUSY_MS));
    for (int i = 0; i < 20; i++) {
        say(&talk, 201, "POST", "/v1/requests", acquire_body(text("k%d", i), "s", 1, ",\"ttl\":\"1h\""));
        refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body("other", "s", 1, ",\"ttl\":\"1h\""));
        say(&talk, 200, "DELETE", text("/v1/requests/k%d", i), NULL);
    }
    say(&talk, 200, "GET", request_path(hold), NULL);
    text_is(&talk, "state", "ACQUIRED");
    cr_expect(kit_json_true(talk.reply.body, "overdue"));
    cr_expect_eq(metric_of(&talk, LOCK_TIMEOUTS), 0, "no batch has waited for the row");
    kit_sql_run(shop, "ROLLBACK");
    kit_sql_close(shop);
    ends_as(&talk, hold, "expired");
    cr_expect_eq(metric_of(&talk, LOCK_TIMEOUTS), 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(expiry, due_hold_that_a_shop_has_locked_delays_no_others, .timeout = 300)
{
    shop_locks_a_due_hold("--short-path=off");
}

Test(expiry, due_hold_that_a_shop_has_locked_delays_no_others_on_the_short_path, .timeout = 300)
{
    shop_locks_a_due_hold("--short-path=on");
}

/* Each other request that expires wakes the task, which finds the locked one due each time. */
Test(expiry, due_hold_that_a_shop_has_locked_is_tried_again_less_and_less_often, .timeout = 300)
{
    enum { OTHERS = 40, FIRST_TRIES = 8 }; /* 50 ms, 100 ms, ... until 2 s */
    struct kit_permitd *permitd = own_permitd(NULL);
    struct kit_sql *shop = own_sql("own0");
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":2,\"kind\":\"counted\"}");
    const char *hold = lock_hold(&talk, shop);
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    cr_assert(kit_wait_until(expiry_has_met_the_lock, &talk, BUSY_MS));
    for (int i = 0; i < OTHERS; i++) {
        say(&talk, 201, "POST", "/v1/requests", acquire_body(text("k%d", i), "s", 1, ",\"ttl\":\"1ms\""));
        ends_as(&talk, text("k%d", i), "expired");
    }
    double tries = metric_of(&talk, EXPIRED_LOCKED);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - began.tv_sec + 1);
    cr_expect_leq(tries, FIRST_TRIES + seconds, "%g tries in %g s", tries, seconds);
    kit_sql_run(shop, "ROLLBACK");
    kit_sql_close(shop);
    ends_as(&talk, hold, "expired");
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- another server, an older copy ---- */

enum { EPOCH_MS = 120000 };

/* A permitd on its own MariaDB, with a semaphore of capacity 100 and one held request. */
struct place {
    struct kit_database *database;
    struct kit_permitd *permitd;
    struct talk talk;
    int64_t token; /* of the request "before" */
};

static struct place place_open(void)
{
    /* The hold is long enough to be seen on any machine; end_hold ends it. */
    static const char *const flags[] = {"--failover-hold", "1h", "--request-timeout", "2m", NULL};
    struct place place = {.database = kit_database_start(NULL)};
    place.permitd = kit_permitd_start(&(struct kit_permitd_options){.database = place.database->url, .flags = flags});
    place.talk = talk_to(place.permitd->port);
    say(&place.talk, 201, "PUT", "/v1/semaphores/s", "{\"capacity\":100}");
    say(&place.talk, 201, "POST", "/v1/requests", acquire_body("before", "s", 1, ",\"ttl\":\"1h\""));
    place.token = number_of(&place.talk, "permits.0.token");
    return place;
}

/* Runs a statement on the database, as another program would. */
static void run_sql(const struct place *place, const char *statement)
{
    struct kit_sql *sql = kit_sql_open(place->database->socket, "permitd");
    kit_sql_run(sql, "%s", statement);
    kit_sql_close(sql);
}

static void end_hold(const struct place *place)
{
    run_sql(place, "UPDATE cluster SET grants_from = '2026-01-01'");
}

static bool epoch_has_risen(void *place)
{
    struct kit_sql *sql = kit_sql_try_open(((struct place *)place)->database->socket, "permitd");
    int64_t epoch = sql ? kit_sql_number(sql, "SELECT epoch FROM cluster") : 0;
    kit_sql_close(sql);
    return epoch > 0;
}

static void place_close(struct place *place)
{
    talk_end(&place->talk);
    kit_permitd_stop(place->permitd);
    kit_database_stop(place->database);
}

Test(failover, another_server_delays_grants_and_raises_tokens, .timeout = 300)
{
    struct place place = place_open();
    kit_database_become_another(place.database);
    cr_assert(kit_wait_until(epoch_has_risen, &place, EPOCH_MS));
    say_until(&place.talk, 200, "GET", "/readyz", NULL);
    refused(&place.talk, 503, "busy", "POST", "/v1/requests", acquire_body("after", "s", 1, ",\"ttl\":\"1h\""));
    cr_assert(kit_json_has(place.talk.reply.body, "retry_after_ms"));
    say(&place.talk, 200, "POST", "/v1/requests/before/renew", NULL);
    say(&place.talk, 200, "POST", "/v1/requests", acquire_body("before", "s", 1, ",\"ttl\":\"1h\""));
    cr_assert_eq(number_of(&place.talk, "permits.0.token"), place.token, "a replay says what it said");
    end_hold(&place);
    say_until(&place.talk, 201, "POST", "/v1/requests", acquire_body("after", "s", 1, ",\"ttl\":\"1h\""));
    cr_assert_gt(number_of(&place.talk, "permits.0.token"), 28000000000LL << 10);
    say(&place.talk, 200, "DELETE", "/v1/requests/before", NULL);
    place_close(&place);
}

/* No client sends a request before the hold ends, so the first acquire is granted. */
static void is_detected_while_idle(struct place *place)
{
    cr_assert(kit_wait_until(epoch_has_risen, place, EPOCH_MS));
    end_hold(place);
    say(&place->talk, 201, "POST", "/v1/requests", acquire_body("after", "s", 1, ",\"ttl\":\"1h\""));
    cr_assert_gt(number_of(&place->talk, "permits.0.token"), 28000000000LL << 10);
}

Test(failover, another_server_is_detected_while_idle, .timeout = 300)
{
    struct place place = place_open();
    kit_database_become_another(place.database);
    is_detected_while_idle(&place);
    place_close(&place);
}

Test(failover, token_regression_is_detected_while_idle, .timeout = 300)
{
    struct place place = place_open();
    run_sql(&place, "UPDATE semaphore SET next_permit_id = 1");
    is_detected_while_idle(&place);
    place_close(&place);
}

static void shell(const char *command)
{
    cr_assert_eq(system(command), 0, "%s", command);
}

/* An older copy is restored under a running permitd: the same server, by its name, without the latest grants. */
Test(failover, tokens_lost_in_an_older_copy_are_not_reissued, .timeout = 300)
{
    struct place place = place_open();
    kit_database_kill(place.database);
    shell(text("cp -a %s %s.older", place.database->directory, place.database->directory));
    kit_database_restart(place.database);
    for (int i = 0; i < 3; i++)
        say_until(&place.talk, 201, "POST", "/v1/requests",
                  acquire_body(text("lost-%d", i), "s", 1, ",\"ttl\":\"1h\""));
    int64_t highest = number_of(&place.talk, "permits.0.token");
    cr_assert_gt(highest, place.token);
    kit_database_kill(place.database);
    shell(text("rm -rf %s && mv %s.older %s", place.database->directory, place.database->directory,
               place.database->directory));
    kit_database_restart(place.database);
    cr_assert(kit_wait_until(epoch_has_risen, &place, EPOCH_MS));
    end_hold(&place);
    say_until(&place.talk, 201, "POST", "/v1/requests", acquire_body("found", "s", 1, ",\"ttl\":\"1h\""));
    cr_assert_gt(number_of(&place.talk, "permits.0.token"), highest);
    cr_assert_gt(number_of(&place.talk, "permits.0.token"), 28000000000LL << 10);
    refused(&place.talk, 404, "unknown_request", "GET", "/v1/requests/lost-1", NULL);
    place_close(&place);
}
