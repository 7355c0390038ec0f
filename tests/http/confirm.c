/* SPDX-License-Identifier: MIT */
/* POST /v1/confirm: several requests are confirmed together, or none. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define PATH "/v1/confirm"

enum { KEYS_MAX = 64, SEMAPHORES_MAX = 64 };

static const char *hold(struct talk *talk, const char *semaphore)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, semaphore, 1, ""));
    return key;
}

/* The keys without quotes, separated by commas. */
static const char *body_of(const char *keys)
{
    const char *list = "";
    while (*keys) {
        int length = (int)strcspn(keys, ",");
        list = text("%s%s\"%.*s\"", list, *list ? "," : "", length, keys);
        keys += length + (keys[length] == ',');
    }
    return text("{\"external_ids\":[%s]}", list);
}

static void is_confirmed(struct talk *talk, const char *key, bool confirmed)
{
    say(talk, 200, "GET", request_path(key), NULL);
    cr_expect_eq(kit_json_has(talk->reply.body, "confirmed_at"), confirmed, "%s", talk->reply.body);
}

Test(confirm_cart, several_requests_are_confirmed_together_and_repeatably)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":3}"), *cars = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *a = hold(&talk, hall), *b = hold(&talk, cars), *c = hold(&talk, hall);
    const char *body = body_of(text("%s,%s", b, a));
    say(&talk, 200, "POST", PATH, body);
    cr_assert_eq(kit_json_length(talk.reply.body, "confirmed"), 2);
    text_is(&talk, "confirmed.0.external_id", b);
    text_is(&talk, "confirmed.1.external_id", a);
    const char *first = text("%s", talk.reply.body);
    is_confirmed(&talk, a, true);
    cr_expect_not_null(strstr(first, kept(kit_json_text(talk.reply.body, "confirmed_at"))), "%s", first);
    is_confirmed(&talk, b, true);
    is_confirmed(&talk, c, false);
    say(&talk, 200, "POST", PATH, body);
    cr_expect_str_eq(talk.reply.body, first);
    say(&talk, 200, "POST", PATH, body_of(text("%s,%s", c, b)));
    is_confirmed(&talk, c, true);
    say(&talk, 200, "POST", PATH, body_of(a));
    cr_expect_eq(kit_json_length(talk.reply.body, "confirmed"), 1);
    talk_end(&talk);
}

static void fails(struct talk *talk, int status, const char *type, const char *keys, const char *key)
{
    refused(talk, status, type, "POST", PATH, body_of(keys));
    text_is(talk, "external_id", key);
    cr_expect_not_null(strstr(talk->reply.body, text("%s", key)), "%s", talk->reply.body);
}

Test(confirm_cart, first_key_that_fails_is_named_and_none_is_confirmed)
{
    struct talk talk = talk_to(shared_port()), waiting = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *a = hold(&talk, hall), *b = hold(&talk, hall), *ended = hold(&talk, hall);
    release(&talk, ended);
    fails(&talk, 404, "unknown_request", text("%s,nobody,%s", a, ended), "nobody");
    text_is(&talk, "detail", "there is no request \"nobody\"");
    fails(&talk, 410, "ended", text("%s,%s,nobody,%s", a, ended, b), ended);
    text_is(&talk, "end_reason", "released");
    text_is(&talk, "detail", text("%s has ended (released)", ended));
    (void)hold(&talk, hall);
    const char *waits = fresh_name("k");
    tell(&waiting, "POST", "/v1/requests", acquire_body(waits, hall, 1, ",\"wait\":\"1m\""));
    say_until(&talk, 200, "GET", request_path(waits), NULL);
    fails(&talk, 404, "unknown_request", text("%s,%s", b, waits), waits);
    is_confirmed(&talk, a, false);
    is_confirmed(&talk, b, false);
    release(&talk, a);
    hear(&waiting, 201, NULL);
    say(&talk, 200, "POST", PATH, body_of(text("%s,%s", b, waits)));
    talk_end(&waiting);
    talk_end(&talk);
}

Test(confirm_cart, list_has_1_to_64_different_keys)
{
    static const char *const bad[] = {
        "{}",
        "{\"external_ids\":[]}",
        "{\"external_ids\":\"a\"}",
        "{\"external_ids\":[1]}",
        "{\"external_ids\":[null]}",
        "{\"external_ids\":[\"a b\"]}",
        "{\"external_ids\":[\"\\u0001n\\u0001a\"]}",
        "{\"external_ids\":[\"a\",\"b\",\"a\"]}",
        "{\"external_ids\":[\"a\",\"\\u0061\"]}",
        "{\"external_ids\":[\"a\"],\"metadata\":{}}",
    };
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, text("{\"capacity\":%d}", KEYS_MAX + 1));
    const char *keys = hold(&talk, hall);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(&talk, 422, "invalid", "POST", PATH, bad[i]);
    refused(&talk, 400, "malformed", "POST", PATH, "{\"external_ids\":[\"a\"");
    refused(&talk, 422, "invalid", "POST", PATH, bad[7]);
    text_is(&talk, "detail", "external_ids[2] is the same as external_ids[0]");
    for (int i = 1; i < KEYS_MAX; i++)
        keys = text("%s,%s", keys, hold(&talk, hall));
    say(&talk, 200, "POST", PATH, body_of(keys));
    cr_expect_eq(kit_json_length(talk.reply.body, "confirmed"), KEYS_MAX);
    refused(&talk, 422, "invalid", "POST", PATH, body_of(text("%s,%s", keys, hold(&talk, hall))));
    text_is(&talk, "detail", "external_ids must be an array of 1 to 64 keys");
    refused(&talk, 405, "method_not_allowed", "GET", PATH, NULL);
    talk_end(&talk);
}

/* Acquires a unit of the semaphores with the numbers [from, to) of this template. */
static const char *hold_some(struct talk *talk, const char *template, int from, int to)
{
    const char *key = fresh_name("k");
    const char *permits = "";
    for (int i = from; i < to; i++)
        permits = text("%s%s{\"semaphore\":\"%s%d\"}", permits, *permits ? "," : "", template, i);
    say(talk, 201, "POST", "/v1/requests", text("{\"external_id\":\"%s\",\"permits\":[%s]}", key, permits));
    return key;
}

Test(confirm_cart, requests_have_64_semaphores_together)
{
    struct talk talk = talk_to(shared_port());
    const char *template = fresh_name("cart:");
    say(&talk, 201, "PUT", text("/v1/templates/%s", template), "{\"capacity\":2}");
    const char *a = hold_some(&talk, template, 0, 40), *b = hold_some(&talk, template, 30, SEMAPHORES_MAX);
    const char *c = hold_some(&talk, template, SEMAPHORES_MAX, SEMAPHORES_MAX + 1);
    refused(&talk, 422, "invalid", "POST", PATH, body_of(text("%s,%s,%s", a, b, c)));
    text_is(&talk, "detail", "these requests have more than 64 semaphores");
    is_confirmed(&talk, a, false);
    fails(&talk, 404, "unknown_request", text("%s,%s,%s,nobody", a, b, c), "nobody");
    say(&talk, 200, "POST", PATH, body_of(text("%s,%s", a, b)));
    is_confirmed(&talk, a, true);
    is_confirmed(&talk, b, true);
    is_confirmed(&talk, c, false);
    talk_end(&talk);
}
