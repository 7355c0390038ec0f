/* SPDX-License-Identifier: MIT */
/* Every route and every refusal that a client can bring about, as conversations. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static const char *acquire_body(const char *key, const char *semaphore, int count)
{
    return text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"count\":%d}]}", key, semaphore, count);
}

static void acquire(struct talk *talk, int status, const char *key, const char *semaphore, int count)
{
    say(talk, status, "POST", "/v1/requests", acquire_body(key, semaphore, count));
}

static const char *request_path(const char *key)
{
    return text("/v1/requests/%s", key);
}

static const char *semaphore_path(const char *name)
{
    return text("/v1/semaphores/%s", name);
}

/* --- semaphores --- */

Test(semaphore, is_made_shown_changed_and_retired)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_name("s");
    say(&talk, 201, "PUT", semaphore_path(name),
        "{\"capacity\":3,\"default_ttl\":\"1m\",\"max_ttl\":\"1h\",\"grace\":0.5,\"max_hold\":\"2d\","
        "\"queue\":\"fifo\",\"note\":\"of \\u00e4 \\\"test\\\"\"}");
    header_is(&talk, "ETag", "\"1\"");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    header_is(&talk, "ETag", "\"1\"");
    text_is(&talk, "name", name);
    text_is(&talk, "kind", "slotted");
    text_is(&talk, "queue", "fifo");
    text_is(&talk, "note", "of \xc3\xa4 \"test\"");
    cr_assert_eq(number_of(&talk, "capacity"), 3);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    cr_assert_eq(number_of(&talk, "available"), 3);
    cr_assert_eq(number_of(&talk, "waiting"), 0);
    cr_assert_eq(number_of(&talk, "default_ttl_ms"), 60000);
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 3600000);
    cr_assert_eq(number_of(&talk, "grace_ms"), 500);
    cr_assert_eq(number_of(&talk, "max_hold_ms"), 2 * 86400000);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"max_ttl\":\"none\"}");
    cr_assert_eq(number_of(&talk, "capacity"), 3);
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    cr_assert_not(kit_json_has(talk.reply.body, "max_ttl_ms"));
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    cr_assert(kit_json_true(talk.reply.body, "retired"));
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_path(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "DELETE", semaphore_path(name), NULL);
    talk_end(&talk);
}

Test(semaphore, tokens_go_on_after_it_was_retired_and_made_again)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 1);
    int64_t token = number_of(&talk, "permits.0.token");
    refused(&talk, 409, "in_use", "DELETE", semaphore_path(name), NULL);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1));
    say(&talk, 201, "PUT", semaphore_path(name), "{\"capacity\":1}");
    acquire(&talk, 201, fresh_name("k"), name, 1);
    cr_assert_gt(number_of(&talk, "permits.0.token"), token);
    talk_end(&talk);
}

Test(semaphore, preconditions_keep_two_operators_from_overwriting_each_other)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_name("s");
    const char *path = semaphore_path(name);
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: \"1\"\r\n", "{\"capacity\":1}");
    say_with(&talk, 201, NULL, "PUT", path, "If-None-Match: *\r\n", "{\"capacity\":1}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-None-Match: *\r\n", "{\"capacity\":1}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"1\"\r\n", "{\"capacity\":2}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: \"1\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: 2\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: x\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-None-Match: \"2\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-None-Match: *\r\nIf-Match: 3\r\n", "{\"capacity\":3}");
    talk_end(&talk);
}

Test(semaphore, list_comes_in_pages_in_order_of_name)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = fresh_name("page");
    for (int i = 0; i < 5; i++)
        say(&talk, 201, "PUT", text("/v1/semaphores/%s.%d", prefix, i), "{\"capacity\":1,\"kind\":\"counted\"}");
    say(&talk, 200, "GET", text("/v1/semaphores?prefix=%s.&limit=3", prefix), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "semaphores"), 3);
    text_is(&talk, "next", text("%s.2", prefix));
    say(&talk, 200, "GET", text("/v1/semaphores?prefix=%s.&limit=3&after=%s.2", prefix, prefix), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "semaphores"), 2);
    text_is(&talk, "semaphores.1.name", text("%s.4", prefix));
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    talk_end(&talk);
}

Test(semaphore, capacity_below_what_is_held_throws_nobody_out)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *first = fresh_name("k");
    acquire(&talk, 201, first, name, 1);
    acquire(&talk, 201, fresh_name("k"), name, 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":1}");
    cr_assert_eq(number_of(&talk, "in_use"), 2);
    cr_assert_eq(number_of(&talk, "available"), 0);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1));
    refused(&talk, 422, "never_satisfiable", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 2));
    say(&talk, 200, "DELETE", request_path(first), NULL);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1));
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":2}");
    acquire(&talk, 201, fresh_name("k"), name, 1);
    talk_end(&talk);
}

/* --- requests --- */

Test(acquire, second_holder_is_refused_when_full_and_told_who_holds)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"owner\":\"me@here\",\"ttl\":\"5m\",\"permits\":[{\"semaphore\":\"%s\"}]}", key,
             name));
    text_is(&talk, "state", "ACQUIRED");
    text_is(&talk, "owner", "me@here");
    cr_assert_not(kit_json_true(talk.reply.body, "replayed"));
    cr_assert_eq(number_of(&talk, "permits.0.slots.0"), 1);
    cr_assert_eq(number_of(&talk, "ttl_ms"), 300000);
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 300000);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1));
    text_is(&talk, "blocking.0.semaphore", name);
    cr_assert_eq(number_of(&talk, "blocking.0.capacity"), 1);
    cr_assert_eq(number_of(&talk, "blocking.0.in_use"), 1);
    cr_assert_eq(number_of(&talk, "blocking.0.requested"), 1);
    text_is(&talk, "blocking.0.holders.0.external_id", key);
    text_is(&talk, "blocking.0.holders.0.owner", "me@here");
    cr_assert_gt(number_of(&talk, "blocking.0.holders.0.expires_in_ms"), 0);
    cr_assert_leq(number_of(&talk, "blocking.0.holders.0.expires_in_ms"), 300000);
    text_is(&talk, "detail", text("%s: 1 of 1 in use, 1 asked, held longest by %s", name, key));
    say(&talk, 200, "DELETE", request_path(key), NULL);
    text_is(&talk, "state", "RELEASED");
    text_is(&talk, "end_reason", "released");
    cr_assert_not(kit_json_true(talk.reply.body, "already_released"));
    acquire(&talk, 201, fresh_name("k"), name, 1);
    talk_end(&talk);
}

Test(acquire, the_same_again_is_the_same_grant)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 2);
    int64_t token = number_of(&talk, "permits.0.token");
    acquire(&talk, 200, key, name, 2);
    cr_assert(kit_json_true(talk.reply.body, "replayed"));
    cr_assert_eq(number_of(&talk, "permits.0.token"), token);
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_body(key, name, 1));
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 2);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    refused(&talk, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 2));
    text_is(&talk, "end_reason", "released");
    cr_assert(kit_json_has(talk.reply.body, "ended_at"));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_body(key, name, 1));
    talk_end(&talk);
}

Test(acquire, several_semaphores_are_all_or_nothing)
{
    struct talk talk = talk_to(shared_port());
    const char *a = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *b = fresh_semaphore(&talk, "{\"capacity\":1,\"kind\":\"counted\"}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, fresh_name("k"), b, 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}]}", key, a, b));
    say(&talk, 200, "GET", semaphore_path(a), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    say(&talk, 200, "PUT", semaphore_path(b), "{\"capacity\":2}");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}]}", key, b, a));
    cr_assert_eq(kit_json_length(talk.reply.body, "permits"), 2);
    text_is(&talk, "permits.0.semaphore", a);
    cr_assert(kit_json_has(talk.reply.body, "permits.0.slots"));
    cr_assert_not(kit_json_has(talk.reply.body, "permits.1.slots"), "a counted permit has slots");
    talk_end(&talk);
}

Test(acquire, the_key_may_come_as_a_header_or_be_made)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *key = fresh_name("k");
    const char *body = text("{\"permits\":[{\"semaphore\":\"%s\"}]}", name);
    say_with(&talk, 201, NULL, "POST", "/v1/requests", text("Idempotency-Key: %s\r\n", key), body);
    text_is(&talk, "external_id", key);
    say_with(&talk, 200, NULL, "POST", "/v1/requests", text("Idempotency-Key: \"%s\"\r\n", key), body);
    say_with(&talk, 200, NULL, "POST", "/v1/requests", text("Idempotency-Key: %s\r\n", key),
             acquire_body(key, name, 1));
    say_with(&talk, 400, "malformed", "POST", "/v1/requests", "Idempotency-Key: other\r\n", acquire_body(key, name, 1));
    say_with(&talk, 400, "malformed", "POST", "/v1/requests", "Idempotency-Key: a\r\nIdempotency-Key: a\r\n", body);
    say_with(&talk, 422, "invalid", "POST", "/v1/requests", "Idempotency-Key: a b\r\n", body);
    say(&talk, 201, "POST", "/v1/requests", body);
    char *made = kit_json_text(talk.reply.body, "external_id");
    cr_assert_eq(strlen(made), 36, "%s", made);
    free(made);
    talk_end(&talk);
}

Test(acquire, ttl_none_has_no_deadline)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"ttl\":\"none\",\"permits\":[{\"semaphore\":\"%s\"}]}", key, name));
    cr_assert_not(kit_json_has(talk.reply.body, "ttl_ms"));
    cr_assert_not(kit_json_has(talk.reply.body, "expires_at"));
    say(&talk, 200, "PUT", semaphore_path(name), "{\"max_ttl\":\"1m\",\"default_ttl\":\"1m\"}");
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"ttl\":\"none\",\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"ttl\":61,\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    say(&talk, 201, "POST", "/v1/requests", text("{\"ttl\":60,\"permits\":[{\"semaphore\":\"%s\"}]}", name));
    talk_end(&talk);
}

Test(renew, moves_the_deadline_and_never_revives)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    refused(&talk, 404, "unknown_request", "POST", text("/v1/requests/%s/renew", key), NULL);
    acquire(&talk, 201, key, name, 1);
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), "{\"ttl\":\"1h\"}");
    cr_assert_eq(number_of(&talk, "expires_in_ms"), 3600000);
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), "{\"ttl\":\"1s\"}");
    cr_assert_gt(number_of(&talk, "expires_in_ms"), 3000000, "a renewal has shortened it");
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), "{}");
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), NULL);
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), "{\"ttl\":\"none\"}");
    cr_assert_not(kit_json_has(talk.reply.body, "expires_at"));
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), "{\"ttl\":\"5m\"}");
    cr_assert_gt(number_of(&talk, "expires_in_ms"), 80000000, "a ttl after none has shortened it");
    say(&talk, 200, "DELETE", request_path(key), NULL);
    refused(&talk, 410, "ended", "POST", text("/v1/requests/%s/renew", key), NULL);
    text_is(&talk, "end_reason", "released");
    talk_end(&talk);
}

Test(release, is_idempotent_and_may_come_first)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    say(&talk, 200, "DELETE", request_path(key), NULL);
    text_is(&talk, "end_reason", "never_held");
    cr_assert_eq(kit_json_length(talk.reply.body, "permits"), 0);
    say(&talk, 200, "DELETE", request_path(key), NULL);
    cr_assert(kit_json_true(talk.reply.body, "already_released"));
    refused(&talk, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 1));
    text_is(&talk, "end_reason", "never_held");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
}

Test(request, is_found_by_its_key_however_it_is_encoded)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("nightly/42?#%&+");
    const char *encoded = text("nightly%%2F42%%3f%%23%%25&+%s", strrchr(key, '+') + 1);
    refused(&talk, 404, "unknown_request", "GET", request_path(encoded), NULL);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1));
    say(&talk, 200, "GET", request_path(encoded), NULL);
    text_is(&talk, "external_id", key);
    cr_assert(kit_json_has(talk.reply.body, "overdue"));
    refused(&talk, 404, "unknown_path", "GET", request_path(key), NULL);
    say(&talk, 200, "DELETE", request_path(encoded), NULL);
    talk_end(&talk);
}

/* Which of the keys the list `requests` of the last answer has, as bits; each at most once over all calls. */
static void note_listed(struct talk *talk, const char *const *keys, int count, bool *listed)
{
    for (long i = 0; i < kit_json_length(talk->reply.body, "requests"); i++) {
        char *key = kit_json_text(talk->reply.body, text("requests.%ld.external_id", i));
        for (int k = 0; k < count; k++) {
            if (strcmp(keys[k], key) != 0)
                continue;
            cr_assert_not(listed[k], "%s is listed twice", key);
            listed[k] = true;
        }
        free(key);
    }
}

Test(request, lists_are_filtered_and_come_in_pages)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *owner = fresh_name("owner");
    const char *keys[3];
    bool listed[3] = {false};
    for (int i = 0; i < 3; i++) {
        keys[i] = fresh_name("k");
        say(&talk, 201, "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"owner\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", keys[i], owner,
                 name));
    }
    say(&talk, 200, "GET", text("/v1/requests?owner=%s&limit=2", owner), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "requests"), 2);
    note_listed(&talk, keys, 3, listed);
    char *next = kit_json_text(talk.reply.body, "next");
    say(&talk, 200, "GET", text("/v1/requests?owner=%s&limit=2&after=%s", owner, next), NULL);
    free(next);
    cr_assert_eq(kit_json_length(talk.reply.body, "requests"), 1);
    note_listed(&talk, keys, 3, listed);
    cr_assert(listed[0] && listed[1] && listed[2]);
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    say(&talk, 200, "DELETE", request_path(keys[1]), NULL);
    say(&talk, 200, "GET", text("/v1/requests?semaphore=%s&state=ACQUIRED", name), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "requests"), 2);
    say(&talk, 200, "GET", text("/v1/requests?semaphore=%s&state=RELEASED", name), NULL);
    text_is(&talk, "requests.0.external_id", keys[1]);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders?limit=1", name), NULL);
    text_is(&talk, "holders.0.external_id", keys[0]);
    next = kit_json_text(talk.reply.body, "next");
    say(&talk, 200, "GET", text("/v1/semaphores/%s/holders?after=%s", name, next), NULL);
    free(next);
    cr_assert_eq(kit_json_length(talk.reply.body, "holders"), 1);
    text_is(&talk, "holders.0.external_id", keys[2]);
    refused(&talk, 404, "unknown_semaphore", "GET", text("/v1/semaphores/%s/holders", fresh_name("s")), NULL);
    talk_end(&talk);
}

Test(fence, tells_live_tokens_from_dead_ones)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 1);
    long long token = (long long)number_of(&talk, "permits.0.token");
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld", name, token), NULL);
    cr_assert(kit_json_true(talk.reply.body, "live"));
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld&slot=1", name, token), NULL);
    cr_assert(kit_json_true(talk.reply.body, "live"));
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld&slot=2", name, token), NULL);
    cr_assert_not(kit_json_true(talk.reply.body, "live"));
    text_is(&talk, "state", "UNKNOWN");
    cr_assert_eq(number_of(&talk, "floor"), token, "the floor is the semaphore's: below it all are dead");
    say(&talk, 200, "DELETE", request_path(key), NULL);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld", name, token), NULL);
    cr_assert_not(kit_json_true(talk.reply.body, "live"));
    text_is(&talk, "end_reason", "released");
    cr_assert_gt(number_of(&talk, "floor"), token);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=999999", name), NULL);
    text_is(&talk, "state", "UNKNOWN");
    refused(&talk, 404, "unknown_semaphore", "GET", text("/v1/semaphores/%s/fence?token=1", fresh_name("s")), NULL);
    talk_end(&talk);
}

/* --- batch --- */

Test(batch, each_operation_is_decided_for_itself_and_answered_in_order)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *held = fresh_name("k");
    const char *key = fresh_name("k");
    acquire(&talk, 201, held, name, 1);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":["
             "{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}],\"ttl\":60},"
             "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",\"count\":3}]},"
             "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"no such\"}]},"
             "{\"op\":\"renew\",\"external_id\":\"%s\",\"ttl\":\"2h\"},"
             "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":1},"
             "{\"op\":\"dance\"},"
             "7,"
             "{\"op\":\"release\",\"external_id\":\"%s-x\"}]}",
             key, name, name, held, name, key));
    static const int expected[] = {201, 422, 422, 200, 422, 422, 422, 200};
    cr_assert_eq(kit_json_length(talk.reply.body, "results"), 8);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(number_of(&talk, text("results.%d.status", i)), expected[i], "%d: %s", i, talk.reply.body);
    text_is(&talk, "results.0.body.external_id", key);
    text_is(&talk, "results.1.body.type", "/problems/never_satisfiable");
    text_is(&talk, "results.2.body.type", "/problems/invalid");
    text_is(&talk, "results.7.body.end_reason", "never_held");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 2);
    talk_end(&talk);
}

static const char *batch_of(int count)
{
    char *body = kept(calloc(1, (size_t)count * 64 + 64));
    char *at = stpcpy(body, "{\"operations\":[");
    const char *prefix = fresh_name("b");
    for (int i = 0; i < count; i++)
        at += sprintf(at, "%s{\"op\":\"release\",\"external_id\":\"%s-%d\"}", i ? "," : "", prefix, i);
    strcpy(at, "]}");
    return body;
}

/* Also on a semaphore that this permitd has not heard of before, whose acquire has to be looked up first. */
Test(batch, operations_on_one_key_are_done_in_order)
{
    struct talk talk = talk_to(shared_port());
    for (int round = 0; round < 50; round++) {
        const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *key = fresh_name("k");
        say(&talk, 200, "POST", "/v1/batch",
            text("{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]},"
                 "{\"op\":\"renew\",\"external_id\":\"%s\"},{\"op\":\"release\",\"external_id\":\"%s\"}]}",
                 key, name, key, key));
        cr_assert_eq(number_of(&talk, "results.0.status"), 201, "%s", talk.reply.body);
        cr_assert_eq(number_of(&talk, "results.1.status"), 200, "%s", talk.reply.body);
        cr_assert_eq(number_of(&talk, "results.2.status"), 200, "%s", talk.reply.body);
        text_is(&talk, "results.2.body.end_reason", "released");
    }
    talk_end(&talk);
}

Test(batch, takes_a_thousand_and_no_more)
{
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "POST", "/v1/batch", batch_of(1000));
    cr_assert_eq(kit_json_length(talk.reply.body, "results"), 1000);
    for (int i = 0; i < 1000; i += 111)
        cr_assert_eq(number_of(&talk, text("results.%d.status", i)), 200);
    refused(&talk, 413, "too_large", "POST", "/v1/batch", batch_of(1001));
    talk_end(&talk);
}

/* --- operators --- */

Test(ops, alive_ready_measured_and_described)
{
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "GET", "/healthz", NULL);
    text_is(&talk, "status", "ok");
    cr_assert_eq(number_of(&talk, "retention_ms"), 7LL * 86400 * 1000);
    say(&talk, 200, "GET", "/readyz", NULL);
    say(&talk, 200, "GET", "/openapi.json", NULL);
    cr_assert(kit_json_has(talk.reply.body, "openapi"), "no description of the API is built in");
    const char *name = fresh_semaphore(&talk, "{\"capacity\":7}");
    reply_release(&talk.reply);
    cr_assert(kit_http_get(&talk.http, "/metrics", &talk.reply));
    cr_assert_eq(talk.reply.status, 200);
    const char *wanted[] = {text("permitd_semaphore_capacity{semaphore=\"%s\"} 7\n", name),
                            text("permitd_semaphore_in_use{semaphore=\"%s\"} 0\n", name), "permitd_operations_total{",
                            "permitd_database_up 1\n", "permitd_http_connections "};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        cr_assert(strstr(talk.reply.body, wanted[i]), "no %s in %s", wanted[i], talk.reply.body);
    talk_end(&talk);
}

Test(ops, many_semaphores_are_measured_in_sum)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--metrics-semaphores", "2", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *names[3];
    for (int i = 0; i < 3; i++) {
        names[i] = fresh_semaphore(&talk, "{\"capacity\":7}");
        reply_release(&talk.reply);
        cr_assert(kit_http_get(&talk.http, "/metrics", &talk.reply));
        cr_assert(strstr(talk.reply.body, text("permitd_semaphores %d\n", i + 1)), "%s", talk.reply.body);
        cr_assert(strstr(talk.reply.body, text("permitd_semaphores_capacity %d\n", 7 * (i + 1))));
        cr_assert(strstr(talk.reply.body, "permitd_semaphores_in_use 0\n"));
        cr_assert_eq(strstr(talk.reply.body, text("semaphore=\"%s\"", names[0])) != NULL, i < 2, "%d semaphores",
                     i + 1);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(ops, unknown_paths_and_methods)
{
    struct talk talk = talk_to(shared_port());
    refused(&talk, 404, "unknown_path", "GET", "/", NULL);
    refused(&talk, 404, "unknown_path", "GET", "/v1", NULL);
    refused(&talk, 404, "unknown_path", "GET", "/v1/requests/", NULL);
    refused(&talk, 404, "unknown_path", "GET", "/v1/requests/a/b/c", NULL);
    refused(&talk, 404, "unknown_path", "GET", "/v1/semaphores/a/", NULL);
    refused(&talk, 404, "unknown_path", "GET", "//v1/semaphores", NULL);
    refused(&talk, 404, "unknown_path", "GET", "/V1/semaphores", NULL);
    refused(&talk, 404, "unknown_path", "POST", "/v1/requests/a/confirms", NULL);
    refused(&talk, 405, "method_not_allowed", "GET", "/v1/requests/a/confirm", NULL);
    header_is(&talk, "Allow", "POST");
    refused(&talk, 405, "method_not_allowed", "DELETE", "/v1/requests/a/force-release", NULL);
    refused(&talk, 405, "method_not_allowed", "DELETE", "/v1/requests", NULL);
    header_is(&talk, "Allow", "POST, GET");
    refused(&talk, 405, "method_not_allowed", "PATCH", "/v1/semaphores/a", "{}");
    header_is(&talk, "Allow", "GET, PUT, DELETE");
    refused(&talk, 405, "method_not_allowed", "POST", "/healthz", "{}");
    refused(&talk, 405, "method_not_allowed", "OPTIONS", "/v1/batch", NULL);
    refused(&talk, 405, "method_not_allowed", "BREW", "/v1/batch", NULL);
    talk_end(&talk);
}
