/* SPDX-License-Identifier: MIT */
/* Every route, and every refusal that a client can cause, as transcripts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static void acquire(struct talk *talk, int status, const char *key, const char *semaphore, int count)
{
    say(talk, status, "POST", "/v1/requests", acquire_body(key, semaphore, count, ""));
}

/* ---- semaphores ---- */

Test(semaphore, is_created_shown_changed_and_retired)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_name("s");
    say(&talk, 201, "PUT", semaphore_path(name),
        "{\"capacity\":3,\"default_ttl\":\"1m\",\"max_ttl\":\"1h\",\"grace\":0.5,\"max_hold\":\"2d\","
        "\"queue\":\"fifo\",\"note\":\"of \\u00e4 \\\"test\\\"\"}");
    header_is(&talk, "ETag", "\"1.1\"");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    header_is(&talk, "ETag", "\"1.1\"");
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

Test(semaphore, tokens_continue_after_retiring_and_recreating)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 1);
    int64_t token = number_of(&talk, "permits.0.token");
    refused(&talk, 409, "in_use", "DELETE", semaphore_path(name), NULL);
    release(&talk, key);
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    say(&talk, 201, "PUT", semaphore_path(name), "{\"capacity\":1}");
    acquire(&talk, 201, fresh_name("k"), name, 1);
    cr_assert_gt(number_of(&talk, "permits.0.token"), token);
    talk_end(&talk);
}

Test(semaphore, preconditions_prevent_lost_updates)
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
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: *\r\n", "{\"capacity\":4}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"1\", \"4\"\r\n", "{\"capacity\":5}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"9\",,\t5 ,W/\"1\"\r\n", "{\"capacity\":6}");
    header_is(&talk, "ETag", "\"6.6\"");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: W/\"6\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: \"4\", \"5\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 412, "version_mismatch", "PUT", semaphore_path(fresh_name("s")), "If-Match: *\r\n",
             "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: x\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: ,\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: *, \"6\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-Match: 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\r\n",
             "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-None-Match: \"2\"\r\n", "{\"capacity\":3}");
    say_with(&talk, 422, "invalid", "PUT", path, "If-None-Match: *\r\nIf-Match: 3\r\n", "{\"capacity\":3}");
    talk_end(&talk);
}

/* If-Match compares the first one. */
Test(semaphore, etag_has_both_versions)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}"), *path = semaphore_path(name);
    header_is(&talk, "ETag", "\"1.1\"");
    acquire(&talk, 201, fresh_name("k"), name, 1);
    say(&talk, 200, "GET", path, NULL);
    header_is(&talk, "ETag", text("\"1.%lld\"", (long long)number_of(&talk, "version")));
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"1.1\"\r\n", "{\"capacity\":3}"); /* granted meanwhile */
    header_is(&talk, "ETag", text("\"2.%lld\"", (long long)number_of(&talk, "version")));
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: \"1.117\"\r\n", "{\"capacity\":4}");
    say_with(&talk, 412, "version_mismatch", "PUT", path, "If-Match: W/\"2.3\"\r\n", "{\"capacity\":4}");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"9.1\", 2.18446744073709551615\r\n", "{\"capacity\":4}");
    static const char *const wrong[] = {"\"3.\"", "\".3\"", "\"3.1.1\"", "\"3.x\"", "\".\"", "\"\"", "3..1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        say_with(&talk, 422, "invalid", "PUT", path, text("If-Match: %s\r\n", wrong[i]), "{\"capacity\":5}");
    talk_end(&talk);
}

Test(semaphore, put_that_changes_nothing_keeps_config_version)
{
    struct talk talk = talk_to(shared_port());
    static const char body[] = "{\"capacity\":2,\"default_ttl\":\"1m\",\"note\":\"n\",\"labels\":[\"A1\",null]}";
    const char *path = semaphore_path(fresh_semaphore(&talk, body));
    say(&talk, 200, "PUT", path, body);
    int64_t version = number_of(&talk, "version");
    header_is(&talk, "ETag", text("\"1.%lld\"", (long long)version));
    say(&talk, 200, "PUT", path, "{}");
    say(&talk, 200, "PUT", text("%s/slots?from=2", path), "{\"labels\":[null]}");
    say(&talk, 200, "POST", text("%s/resume", path), NULL);
    cr_assert_eq(number_of(&talk, "config_version"), 1);
    cr_assert_gt(number_of(&talk, "version"), version, "the answers were not written, and a crash could undo them");
    say_with(&talk, 200, NULL, "PUT", path, "If-Match: \"1\"\r\n", "{\"note\":\"m\"}");
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    say(&talk, 200, "PUT", text("%s/slots?from=2", path), "{\"labels\":[\"A2\"]}");
    cr_assert_eq(number_of(&talk, "config_version"), 3);
    say(&talk, 200, "POST", text("%s/pause", path), "{\"reason\":\"a\"}");
    say(&talk, 200, "POST", text("%s/pause", path), "{\"reason\":\"a\"}");
    cr_assert_eq(number_of(&talk, "config_version"), 4);
    say(&talk, 200, "POST", text("%s/pause", path), "{\"reason\":\"b\"}");
    cr_assert_eq(number_of(&talk, "config_version"), 5);
    talk_end(&talk);
}

Test(semaphore, list_is_paged_in_order_of_name)
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

Test(semaphore, capacity_below_in_use_ends_no_holder)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *first = fresh_name("k");
    acquire(&talk, 201, first, name, 1);
    acquire(&talk, 201, fresh_name("k"), name, 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":1}");
    cr_assert_eq(number_of(&talk, "in_use"), 2);
    cr_assert_eq(number_of(&talk, "available"), 0);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    refused(&talk, 422, "never_satisfiable", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 2, ""));
    release(&talk, first);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":2}");
    acquire(&talk, 201, fresh_name("k"), name, 1);
    talk_end(&talk);
}

/* ---- requests ---- */

Test(acquire, second_holder_is_refused_when_full)
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
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    text_is(&talk, "blocking.0.semaphore", name);
    cr_assert_eq(number_of(&talk, "blocking.0.capacity"), 1);
    cr_assert_eq(number_of(&talk, "blocking.0.in_use"), 1);
    cr_assert_eq(number_of(&talk, "blocking.0.requested"), 1);
    text_is(&talk, "blocking.0.holders.0.external_id", key);
    text_is(&talk, "blocking.0.holders.0.owner", "me@here");
    cr_assert_gt(number_of(&talk, "blocking.0.holders.0.expires_in_ms"), 0);
    cr_assert_leq(number_of(&talk, "blocking.0.holders.0.expires_in_ms"), 300000);
    text_is(&talk, "detail", text("%s: 1 of 1 in use, 1 asked, held longest by %s", name, key));
    release(&talk, key);
    text_is(&talk, "state", "RELEASED");
    text_is(&talk, "end_reason", "released");
    cr_assert_not(kit_json_true(talk.reply.body, "already_released"));
    acquire(&talk, 201, fresh_name("k"), name, 1);
    talk_end(&talk);
}

Test(acquire, repeated_acquire_returns_the_same_grant)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 2);
    int64_t token = number_of(&talk, "permits.0.token");
    acquire(&talk, 200, key, name, 2);
    cr_assert(kit_json_true(talk.reply.body, "replayed"));
    cr_assert_eq(number_of(&talk, "permits.0.token"), token);
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 2);
    release(&talk, key);
    refused(&talk, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 2, ""));
    text_is(&talk, "end_reason", "released");
    cr_assert(kit_json_has(talk.reply.body, "ended_at"));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    talk_end(&talk);
}

static const char *acquire_with_ttl(const char *key, const char *semaphores, const char *ttl)
{
    return text("{\"external_id\":\"%s\",\"permits\":[%s],\"ttl\":\"%s\"}", key, semaphores, ttl);
}

Test(acquire, ttl_that_is_too_long_is_refused_with_the_longest_of_all_its_semaphores)
{
    struct talk talk = talk_to(shared_port());
    const char *hour = fresh_semaphore(&talk, "{\"capacity\":2,\"max_ttl\":\"1h\"}");
    const char *minute = fresh_semaphore(&talk, "{\"capacity\":2,\"max_ttl\":\"1m\"}");
    const char *both = text("{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}", hour, minute);
    const char *key = fresh_name("k");
    refused(&talk, 422, "invalid", "POST", "/v1/requests", acquire_with_ttl(key, both, "2m"));
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 60000);
    refused(&talk, 422, "invalid", "POST", "/v1/requests", acquire_with_ttl(key, both, "none"));
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 60000);
    say(&talk, 201, "POST", "/v1/requests", acquire_with_ttl(key, both, "60000ms"));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_with_ttl(key, both, "2m"));
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 60000);
    say(&talk, 200, "POST", "/v1/requests", acquire_with_ttl(key, both, "60000ms"));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", acquire_with_ttl(key, both, "59s"));
    cr_assert_not(kit_json_has(talk.reply.body, "max_ttl_ms"), "the ttl is not too long");
    refused(&talk, 422, "invalid", "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"2m\"}");
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 60000);
    release(&talk, key);
    talk_end(&talk);
}

struct watched {
    struct talk *talk;
    const char *semaphore;
};

static bool one_waits(void *context)
{
    const struct watched *watched = context;
    say(watched->talk, 200, "GET", semaphore_path(watched->semaphore), NULL);
    return number_of(watched->talk, "waiting") == 1;
}

/* The waiter's client is at the same permitd. */
Test(acquire, key_that_waits_with_other_content_is_refused_with_content_and_longest_ttl)
{
    struct talk talk = talk_to(shared_port());
    struct talk waiting = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"max_ttl\":\"1m\"}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    acquire(&talk, 201, held, name, 1);
    tell(&waiting, "POST", "/v1/requests",
         text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}],\"ttl\":\"1m\",\"wait\":\"5m\"}", key,
              name));
    cr_assert(kit_wait_until(one_waits, &(struct watched){&talk, name}, 120000));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests",
            acquire_with_ttl(key, text("{\"semaphore\":\"%s\"}", name), "2m"));
    cr_assert_eq(number_of(&talk, "max_ttl_ms"), 60000);
    text_is(&talk, "detail", text("the key stands for another request: 1 of %s", name));
    release(&talk, held);
    hear(&waiting, 201, NULL);
    release(&talk, key);
    talk_end(&waiting);
    talk_end(&talk);
}

Test(acquire, grant_without_a_ttl_shows_how_long_it_may_be_held)
{
    struct talk talk = talk_to(shared_port());
    const char *day = fresh_semaphore(&talk, "{\"capacity\":2,\"max_hold\":\"1d\"}");
    const char *hour = fresh_semaphore(&talk, "{\"capacity\":2,\"max_hold\":\"1h\"}");
    const char *both = text("{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}", day, hour);
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_with_ttl(key, both, "none"));
    cr_assert_eq(number_of(&talk, "max_hold_ms"), 3600000);
    say(&talk, 200, "POST", "/v1/requests", acquire_with_ttl(key, both, "none"));
    cr_assert_eq(number_of(&talk, "max_hold_ms"), 3600000);
    say(&talk, 200, "PUT", semaphore_path(day), "{\"max_hold\":\"1m\"}");
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), NULL);
    cr_assert_eq(number_of(&talk, "max_hold_ms"), 60000, "the setting has changed");
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"1m\"}");
    cr_assert_not(kit_json_has(talk.reply.body, "max_hold_ms"), "it has a ttl now");
    release(&talk, key);
    cr_assert_not(kit_json_has(talk.reply.body, "max_hold_ms"));
    talk_end(&talk);
}

static const char *acquire_with_nonce(const char *key, const char *semaphore, const char *nonce)
{
    return text("{\"external_id\":\"%s\",\"nonce\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", key, nonce,
                semaphore);
}

static bool is_yours(const struct talk *talk)
{
    cr_assert(kit_json_true(talk->reply.body, "replayed"), "%s", talk->reply.body);
    cr_assert(kit_json_has(talk->reply.body, "yours"), "%s", talk->reply.body);
    return kit_json_true(talk->reply.body, "yours");
}

Test(acquire, replay_reports_whether_its_caller_created_the_grant)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine ~"));
    cr_assert_not(kit_json_has(talk.reply.body, "yours"), "%s", talk.reply.body);
    cr_assert_not(strstr(talk.reply.body, "mine ~"), "%s", talk.reply.body);
    say(&talk, 200, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine ~"));
    cr_assert(is_yours(&talk));
    say(&talk, 200, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine"));
    cr_assert_not(is_yours(&talk));
    say(&talk, 200, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine ~"));
    cr_assert(is_yours(&talk), "another caller has changed whose grant it is");
    acquire(&talk, 200, key, name, 1);
    cr_assert_not(kit_json_has(talk.reply.body, "yours"), "a caller without a nonce is told whose grant it is");
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), NULL);
    say(&talk, 200, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine ~"));
    cr_assert(is_yours(&talk), "a renewal has changed whose grant it is");
    talk_end(&talk);
}

Test(acquire, grant_without_a_nonce_belongs_to_no_caller_with_one)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 1);
    say(&talk, 200, "POST", "/v1/requests", acquire_with_nonce(key, name, "mine"));
    cr_assert_not(is_yours(&talk));
    talk_end(&talk);
}

Test(acquire, nonce_is_never_shown)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    const char *const paths[] = {request_path(key),
                                 text("%s/why", request_path(key)),
                                 text("/v1/requests?semaphore=%s", name),
                                 text("%s/holders", semaphore_path(name)),
                                 text("%s/slots", semaphore_path(name)),
                                 text("%s/events", semaphore_path(name)),
                                 semaphore_path(name)};
    say(&talk, 201, "POST", "/v1/requests", acquire_with_nonce(key, name, "secret-of-mine"));
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        say(&talk, 200, "GET", paths[i], NULL);
        cr_assert_not(strstr(talk.reply.body, "secret-of-mine"), "%s: %s", paths[i], talk.reply.body);
    }
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    cr_assert_not(strstr(talk.reply.body, "secret-of-mine"), "%s", talk.reply.body);
    release(&talk, key);
    cr_assert_not(strstr(talk.reply.body, "secret-of-mine"), "%s", talk.reply.body);
    talk_end(&talk);
}

Test(acquire, batch_accepts_nonces)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    const char *operation = text("{\"op\":\"acquire\",%s", acquire_with_nonce(key, name, "mine") + 1);
    const char *other = text("{\"op\":\"acquire\",%s", acquire_with_nonce(key, name, "other") + 1);
    say(&talk, 200, "POST", "/v1/batch", text("{\"operations\":[%s,%s,%s]}", operation, other, operation));
    cr_assert_eq(number_of(&talk, "results.0.status"), 201, "%s", talk.reply.body);
    cr_assert_eq(number_of(&talk, "results.1.status"), 200, "%s", talk.reply.body);
    cr_assert(kit_json_has(talk.reply.body, "results.1.body.yours"), "%s", talk.reply.body);
    cr_assert_not(kit_json_true(talk.reply.body, "results.1.body.yours"), "%s", talk.reply.body);
    cr_assert(kit_json_true(talk.reply.body, "results.2.body.yours"), "%s", talk.reply.body);
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

/* Rows are read in the order of the ids of the semaphores, which are issued in another order than that of the names. */
Test(acquire, answer_says_how_many_units_are_left)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 2);
    cr_assert_eq(number_of(&talk, "permits.0.available"), 3);
    acquire(&talk, 201, fresh_name("k"), name, 2);
    cr_assert_eq(number_of(&talk, "permits.0.available"), 1);
    acquire(&talk, 200, key, name, 2);
    cr_assert_eq(number_of(&talk, "permits.0.available"), 1, "a replay says what is left now");
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":3}");
    acquire(&talk, 200, key, name, 2);
    cr_assert_eq(number_of(&talk, "permits.0.available"), 0, "not fewer, although four are held");
    say(&talk, 200, "GET", request_path(key), NULL);
    cr_assert_not(strstr(talk.reply.body, "available"), "%s", talk.reply.body);
    talk_end(&talk);
}

/* Checks what GET and the list of requests show; NULL: no metadata. */
static void metadata_is(struct talk *talk, const char *key, const char *semaphore, const char *metadata)
{
    const char *member = metadata ? text("\"metadata\":%s", metadata) : "metadata";
    say(talk, 200, "GET", request_path(key), NULL);
    cr_assert_eq(strstr(talk->reply.body, member) != NULL, metadata != NULL, "%s", talk->reply.body);
    say(talk, 200, "GET", text("/v1/requests?semaphore=%s", semaphore), NULL);
    cr_assert_eq(strstr(talk->reply.body, member) != NULL, metadata != NULL, "%s", talk->reply.body);
}

Test(acquire, metadata_is_shown_and_changed_by_renew_and_confirm)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = fresh_name("k"), *waiter = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests",
        acquire_body(key, name, 2, ",\"metadata\":{\"order\": \"4711\",\"of\":[1,{}]}"));
    metadata_is(&talk, key, name, "{\"order\": \"4711\",\"of\":[1,{}]}");
    acquire(&talk, 200, key, name, 2);
    metadata_is(&talk, key, name, "{\"order\": \"4711\",\"of\":[1,{}]}");
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{\"ttl\":\"1h\"}");
    metadata_is(&talk, key, name, "{\"order\": \"4711\",\"of\":[1,{}]}");
    say(&talk, 200, "POST", text("%s/renew", request_path(key)), "{\"metadata\":{}}");
    metadata_is(&talk, key, name, "{}");
    say(&talk, 200, "POST", text("%s/confirm", request_path(key)), "{\"metadata\":{\"paid\":true}}");
    metadata_is(&talk, key, name, "{\"paid\":true}");
    struct talk waiting = talk_to(shared_port());
    tell(&waiting, "POST", "/v1/requests", acquire_body(waiter, name, 1, ",\"wait\":\"1m\",\"metadata\":{\"w\":1}"));
    say_until(&talk, 200, "GET", request_path(waiter), NULL);
    metadata_is(&talk, waiter, name, "{\"w\":1}");
    say(&talk, 200, "DELETE", text("%s?confirmed=true", request_path(key)), NULL);
    hear(&waiting, 201, NULL);
    metadata_is(&talk, key, name, "{\"paid\":true}");
    metadata_is(&talk, waiter, name, "{\"w\":1}");
    talk_end(&waiting);
    talk_end(&talk);
}

Test(acquire, metadata_must_be_an_object_of_2_KiB)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *key = fresh_name("k"), *other = fresh_name("k");
    char filler[2049];
    memset(filler, 'x', sizeof filler - 1);
    filler[2048 - strlen("{\"a\":\"\"}")] = '\0';
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, text(",\"metadata\":{\"a\":\"%s\"}", filler)));
    metadata_is(&talk, key, name, text("{\"a\":\"%s\"}", filler));
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            acquire_body(other, name, 1, text(",\"metadata\":{\"a\":\"%sx\"}", filler)));
    text_is(&talk, "detail", "metadata must be an object of at most 2048 bytes");
    refused(&talk, 422, "invalid", "POST", "/v1/requests", acquire_body(other, name, 1, ",\"metadata\":[1]"));
    refused(&talk, 422, "invalid", "POST", "/v1/requests", acquire_body(other, name, 1, ",\"metadata\":null"));
    refused(&talk, 400, "malformed", "POST", "/v1/requests", acquire_body(other, name, 1, ",\"metadata\":{1}"));
    refused(&talk, 422, "invalid", "POST", text("%s/confirm", request_path(key)), "{\"ttl\":\"1m\"}");
    refused(&talk, 404, "unknown_request", "GET", request_path(other), NULL);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"acquire\",\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}],"
             "\"metadata\":{\"n\":1}},{\"op\":\"renew\",\"external_id\":\"%s\",\"metadata\":{\"n\":2}}]}",
             other, name, other));
    metadata_is(&talk, other, name, "{\"n\":2}");
    talk_end(&talk);
}

Test(acquire, permits_are_in_the_order_of_the_names_in_every_answer, .timeout = 300)
{
    enum { COUNT = 8 };
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--short-path=off", NULL}); /* it reads all rows */
    struct talk talk = talk_to(permitd->port);
    const char *base = fresh_name("s"), *key = fresh_name("k"), *wants = "";
    for (int i = COUNT - 1; i >= 0; i--) {
        say(&talk, 201, "PUT", semaphore_path(text("%s-%d", base, i)), "{\"capacity\":1}");
        wants = text("%s%s{\"semaphore\":\"%s-%d\"}", wants, *wants ? "," : "", base, i);
    }
    const char *body = text("{\"external_id\":\"%s\",\"permits\":[%s]}", key, wants);
    const char *path = request_path(key);
    const struct {
        int status;
        const char *method, *path, *body;
    } calls[] = {
        {201, "POST", "/v1/requests", body},         {200, "POST", "/v1/requests", body}, {200, "GET", path, NULL},
        {200, "POST", text("%s/renew", path), "{}"}, {200, "DELETE", path, NULL},         {200, "GET", path, NULL}};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        say(&talk, calls[i].status, calls[i].method, calls[i].path, calls[i].body);
        for (int n = 0; n < COUNT; n++)
            text_is(&talk, text("permits.%d.semaphore", n), text("%s-%d", base, n));
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(acquire, key_may_be_a_header_or_generated)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *key = fresh_name("k");
    const char *body = text("{\"permits\":[{\"semaphore\":\"%s\"}]}", name);
    say_with(&talk, 201, NULL, "POST", "/v1/requests", text("Idempotency-Key: %s\r\n", key), body);
    text_is(&talk, "external_id", key);
    say_with(&talk, 200, NULL, "POST", "/v1/requests", text("Idempotency-Key: \"%s\"\r\n", key), body);
    say_with(&talk, 200, NULL, "POST", "/v1/requests", text("Idempotency-Key: %s\r\n", key),
             acquire_body(key, name, 1, ""));
    say_with(&talk, 400, "malformed", "POST", "/v1/requests", "Idempotency-Key: other\r\n",
             acquire_body(key, name, 1, ""));
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
    release(&talk, key);
    refused(&talk, 410, "ended", "POST", text("/v1/requests/%s/renew", key), NULL);
    text_is(&talk, "end_reason", "released");
    talk_end(&talk);
}

Test(release, is_idempotent_and_may_come_first)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    release(&talk, key);
    text_is(&talk, "end_reason", "never_held");
    cr_assert_eq(kit_json_length(talk.reply.body, "permits"), 0);
    release(&talk, key);
    cr_assert(kit_json_true(talk.reply.body, "already_released"));
    refused(&talk, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    text_is(&talk, "end_reason", "never_held");
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    talk_end(&talk);
}

Test(request, is_found_by_its_key_in_any_encoding)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("nightly/42?#%&+");
    const char *encoded = text("nightly%%2F42%%3f%%23%%25&+%s", strrchr(key, '+') + 1);
    refused(&talk, 404, "unknown_request", "GET", request_path(encoded), NULL);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    say(&talk, 200, "GET", request_path(encoded), NULL);
    text_is(&talk, "external_id", key);
    cr_assert(kit_json_has(talk.reply.body, "overdue"));
    refused(&talk, 400, "malformed", "GET", request_path(key), NULL);
    release(&talk, encoded);
    talk_end(&talk);
}

/*
 * Marks in `listed` the keys that the last answer lists in `requests`. Asserts that no key is listed twice over all
 * calls.
 */
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

Test(request, lists_are_filtered_and_paged)
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

Test(fence, live_and_dead_tokens_are_distinguished)
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
    release(&talk, key);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld", name, token), NULL);
    cr_assert_not(kit_json_true(talk.reply.body, "live"));
    text_is(&talk, "end_reason", "released");
    cr_assert_gt(number_of(&talk, "floor"), token);
    say(&talk, 200, "GET", text("/v1/semaphores/%s/fence?token=999999", name), NULL);
    text_is(&talk, "state", "UNKNOWN");
    refused(&talk, 404, "unknown_semaphore", "GET", text("/v1/semaphores/%s/fence?token=1", fresh_name("s")), NULL);
    talk_end(&talk);
}

/* ---- batch ---- */

Test(batch, operations_are_decided_separately_and_answered_in_order)
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

/* Also on a semaphore that is not in the cache, where the acquire must be resolved first. */
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

Test(batch, takes_at_most_1000_operations)
{
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "POST", "/v1/batch", batch_of(1000));
    cr_assert_eq(kit_json_length(talk.reply.body, "results"), 1000);
    for (int i = 0; i < 1000; i += 111)
        cr_assert_eq(number_of(&talk, text("results.%d.status", i)), 200);
    refused(&talk, 413, "too_large", "POST", "/v1/batch", batch_of(1001));
    talk_end(&talk);
}

/* ---- operators ---- */

Test(ops, health_readiness_metrics_and_openapi_are_served)
{
    struct talk talk = talk_to(shared_port());
    say(&talk, 200, "GET", "/healthz", NULL);
    text_is(&talk, "status", "ok");
    cr_assert_eq(number_of(&talk, "retention_ms"), 7LL * 86400 * 1000);
    say_until(&talk, 200, "GET", "/readyz", NULL);
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

Test(ops, many_semaphores_are_reported_as_sums)
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

Test(not_found, unknown_paths_and_methods_show_the_nearest)
{
    static const struct {
        int status;
        const char *type, *method, *path, *said;
    } rows[] = {
        {404, "unknown_path", "GET", "/v1/semaphore", "there is no path /v1/semaphore; the nearest is /v1/semaphores"},
        {404, "unknown_path", "GET", "/v1/semaphores/", "the nearest is /v1/semaphores"},
        {404, "unknown_path", "GET", "/v1/semaphore/backups", "the nearest is /v1/semaphores/{semaphore}"},
        {404, "unknown_path", "GET", "/V1/semaphores", "the nearest is /v1/semaphores"},
        {404, "unknown_path", "POST", "/v1/requests/a/confrim", "the nearest is /v1/requests/{external_id}/confirm"},
        {404, "unknown_path", "GET", "/health", "the nearest is /healthz"},
        {404, "unknown_path", "GET", "/a/b/c/d", "there is no path /a/b/c/d"},
        {405, "method_not_allowed", "DELETE", "/v1/requests", "/v1/requests takes only GET, HEAD, POST, OPTIONS"},
        {405, "method_not_allowed", "PATCH", "/v1/batch", "/v1/batch takes only POST, OPTIONS"},
    };
    struct talk talk = talk_to(shared_port());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        refused(&talk, rows[i].status, rows[i].type, rows[i].method, rows[i].path, NULL);
        detail_has(&talk, rows[i].said);
    }
    cr_assert_not(strstr(talk.reply.body, "nearest"), "%s", talk.reply.body);
    talk_end(&talk);
}

Test(not_found, unknown_key_is_named_by_why)
{
    struct talk talk = talk_to(shared_port());
    const char *key = fresh_name("k");
    refused(&talk, 404, "unknown_request", "GET", text("%s/why", request_path(key)), NULL);
    detail_has(&talk, text("no request \"%s\" waits, is held, or has ended", key));
    talk_end(&talk);
}

Test(not_found, unknown_names_show_the_nearest)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *typo = text("%sx", name);
    const char *words = text("there is no semaphore \"%s\"; the nearest name is \"%s\"", typo, name);
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_path(typo), NULL);
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "GET", text("%s/holders", semaphore_path(typo)), NULL);
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "GET", text("%s/slots", semaphore_path(typo)), NULL);
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "POST", text("%s/resume", semaphore_path(typo)), NULL);
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "DELETE", semaphore_path(typo), NULL);
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "PUT", text("%s/slots", semaphore_path(typo)), "{\"labels\":[\"A\"]}");
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests", acquire_body(fresh_name("k"), typo, 1, ""));
    detail_has(&talk, words);
    refused(&talk, 404, "unknown_semaphore", "POST", "/v1/requests",
            text("{\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}]}", name, typo));
    detail_has(&talk, words);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\"}]}]}", typo));
    text_is(&talk, "results.0.body.detail", text("there is no semaphore \"%s\"", typo));
    const char *owner = fresh_name("o");
    say(&talk, 201, "PUT", text("/v1/owners/%s", owner), "{\"ttl\":\"1h\"}");
    refused(&talk, 404, "unknown_owner", "GET", text("/v1/owners/%s%%21", owner), NULL);
    detail_has(&talk, text("there is no owner \"%s!\"; the nearest name is \"%s\"", owner, owner));
    refused(&talk, 404, "unknown_owner", "DELETE", text("/v1/owners/%s%%21", owner), NULL);
    detail_has(&talk, text("the nearest name is \"%s\"", owner));
    const char *prefix = fresh_name("t");
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":1}");
    refused(&talk, 404, "unknown_template", "GET", text("/v1/templates/%s.", prefix), NULL);
    detail_has(&talk, text("there is no template \"%s.\"; the nearest name is \"%s\"", prefix, prefix));
    refused(&talk, 404, "unknown_template", "DELETE", text("/v1/templates/%s.", prefix), NULL);
    detail_has(&talk, text("the nearest name is \"%s\"", prefix));
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, name, 1);
    refused(&talk, 404, "unknown_request", "GET", text("/v1/requests/%s.", key), NULL);
    detail_has(&talk, text("there is no request \"%s.\"; the nearest name is \"%s\"", key, key));
    refused(&talk, 404, "unknown_request", "POST", text("/v1/requests/%s./renew", key), NULL);
    detail_has(&talk, text("there is no request \"%s.\"", key));
    talk_end(&talk);
}

/* The name of a retired semaphore is not suggested. */
Test(not_found, retired_semaphores_are_not_suggested)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_path(text("%s-xyz", name)), NULL);
    cr_assert_not(strstr(talk.reply.body, "nearest"), "%s", talk.reply.body);
    refused(&talk, 404, "unknown_semaphore", "GET", semaphore_path(name), NULL);
    detail_has(&talk, text("there is no semaphore \"%s\"", name));
    talk_end(&talk);
}

Test(ops, unknown_paths_and_methods_are_refused)
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
    header_is(&talk, "Allow", "POST, OPTIONS");
    refused(&talk, 405, "method_not_allowed", "DELETE", "/v1/requests/a/force-release", NULL);
    refused(&talk, 405, "method_not_allowed", "DELETE", "/v1/requests", NULL);
    header_is(&talk, "Allow", "GET, HEAD, POST, OPTIONS");
    refused(&talk, 405, "method_not_allowed", "PATCH", "/v1/semaphores/a", "{}");
    header_is(&talk, "Allow", "GET, HEAD, PUT, DELETE, OPTIONS");
    refused(&talk, 405, "method_not_allowed", "POST", "/healthz", "{}");
    refused(&talk, 405, "method_not_allowed", "BREW", "/v1/batch", NULL);
    talk_end(&talk);
}
