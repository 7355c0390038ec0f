/* SPDX-License-Identifier: MIT */
/* The slot list: holders, pages, filters by state and label, and 304 while nothing changes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static const char *slots_path(const char *name, const char *query)
{
    return text("/v1/semaphores/%s/slots%s", name, query);
}

static void acquire(struct talk *talk, const char *key, const char *semaphore, int count, const char *ttl)
{
    say(talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"ttl\":%s,\"permits\":[{\"semaphore\":\"%s\",\"count\":%d}]}", key, ttl,
             semaphore, count));
}

#define LABELS_OF_8 "{\"capacity\":8,\"labels\":[\"A1\",\"A2\",\"A3\",\"A4\",\"B5\",\"B6\",\"B7\",\"B8\"]}"

static const char *etag_of(const struct talk *talk)
{
    char *etag = reply_header(&talk->reply, "ETag");
    cr_assert_not_null(etag);
    return kept(etag);
}

static void get_if_none_match(struct talk *talk, int status, const char *path, const char *tags)
{
    say_with(talk, status, NULL, "GET", path, text("If-None-Match: %s\r\n", tags), NULL);
    if (status == 304)
        cr_assert_eq(talk->reply.body_length, 0);
}

struct expiry {
    struct talk *talk;
    const char *key, *slots;
};

/* A deadline is shown by the database's clock as permitd has last read it: two answers differ if it read it in between. */
static bool first_slot_expires_with_its_holder(void *context)
{
    const struct expiry *expiry = context;
    say(expiry->talk, 200, "GET", request_path(expiry->key), NULL);
    const char *expires_at = kept(kit_json_text(expiry->talk->reply.body, "expires_at"));
    say(expiry->talk, 200, "GET", expiry->slots, NULL);
    return kit_json_text_is(expiry->talk->reply.body, "slots.0.expires_at", expires_at);
}

Test(slots, are_shown_with_their_holders)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, LABELS_OF_8);
    const char *key = fresh_name("k"), *sold = fresh_name("k"), *kept_open = fresh_name("k");
    acquire(&talk, key, name, 1, "\"10m\"");
    int64_t token = number_of(&talk, "permits.0.token");
    acquire(&talk, sold, name, 1, "\"10m\"");
    say(&talk, 200, "POST", text("/v1/requests/%s/confirm", sold), NULL);
    acquire(&talk, kept_open, name, 1, "\"none\"");

    struct expiry expiry = {&talk, key, slots_path(name, "")};
    cr_assert(kit_wait_until(first_slot_expires_with_its_holder, &expiry, 120000), "%s", talk.reply.body);
    cr_assert_eq(kit_json_length(talk.reply.body, "slots"), 8);
    cr_assert_not(kit_json_has(talk.reply.body, "next"));
    cr_expect_eq(number_of(&talk, "slots.0.number"), 1);
    text_is(&talk, "slots.0.label", "A1");
    cr_expect_eq(number_of(&talk, "slots.0.token"), token);
    text_is(&talk, "slots.0.external_id", key);
    cr_expect_not(kit_json_has(talk.reply.body, "slots.0.confirmed"));
    text_is(&talk, "slots.1.external_id", sold);
    cr_expect(kit_json_true(talk.reply.body, "slots.1.confirmed"));
    cr_expect_not(kit_json_has(talk.reply.body, "slots.1.expires_at"));
    text_is(&talk, "slots.2.external_id", kept_open);
    cr_expect_not(kit_json_has(talk.reply.body, "slots.2.confirmed"));
    cr_expect_not(kit_json_has(talk.reply.body, "slots.2.expires_at"));
    cr_expect_eq(kit_json_length(talk.reply.body, "slots.3"), 2, "a free one: number and label");
    talk_end(&talk);
}

/* Asserts the numbers of the slots shown, with commas, and `next`; "-": no next. */
static void page_is(struct talk *talk, const char *name, const char *query, const char *numbers, const char *next)
{
    const char *shown = "";
    say(talk, 200, "GET", slots_path(name, query), NULL);
    for (long i = 0; i < kit_json_length(talk->reply.body, "slots"); i++)
        shown = text("%s%s%d", shown, i ? "," : "", (int)number_of(talk, text("slots.%ld.number", i)));
    cr_expect_str_eq(shown, numbers, "%s: %s", query, talk->reply.body);
    if (strcmp(next, "-") == 0)
        cr_expect_not(kit_json_has(talk->reply.body, "next"), "%s: %s", query, talk->reply.body);
    else
        text_is(talk, "next", next);
}

Test(slots, are_listed_in_pages_by_state_and_label)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, LABELS_OF_8);
    acquire(&talk, fresh_name("k"), name, 3, "\"10m\"");
    page_is(&talk, name, "", "1,2,3,4,5,6,7,8", "-");
    page_is(&talk, name, "?limit=3", "1,2,3", "3");
    page_is(&talk, name, "?limit=3&after=3", "4,5,6", "6");
    page_is(&talk, name, "?limit=3&after=6", "7,8", "-");
    page_is(&talk, name, "?limit=2&after=6", "7,8", "-");
    page_is(&talk, name, "?after=8", "", "-");
    page_is(&talk, name, "?after=4294967295", "", "-");
    page_is(&talk, name, "?state=held", "1,2,3", "-");
    page_is(&talk, name, "?state=held&limit=2", "1,2", "2");
    page_is(&talk, name, "?state=free&limit=2", "4,5", "5");
    page_is(&talk, name, "?prefix=A", "1,2,3,4", "-");
    page_is(&talk, name, "?prefix=A&state=free", "4", "-");
    page_is(&talk, name, "?prefix=B&after=5&limit=2", "6,7", "7");
    page_is(&talk, name, "?prefix=B7", "7", "-");
    page_is(&talk, name, "?prefix=b", "", "-");
    page_is(&talk, name, "?prefix=", "1,2,3,4,5,6,7,8", "-");
    page_is(&talk, name, "?prefix=%C3%85%27", "", "-");
    talk_end(&talk);
}

Test(slots, above_the_capacity_are_shown_while_held)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    const char *key = fresh_name("k");
    acquire(&talk, key, name, 4, "\"10m\"");
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":2}");
    page_is(&talk, name, "", "1,2,3,4", "-");
    page_is(&talk, name, "?state=held", "1,2,3,4", "-");
    page_is(&talk, name, "?state=free", "", "-");
    release(&talk, key);
    page_is(&talk, name, "", "1,2", "-");
    page_is(&talk, name, "?state=free", "1,2", "-");
    talk_end(&talk);
}

/* Each change of the shown data changes the ETag, and a 304 is sent only for the same page. */
Test(slots, are_answered_304_until_something_changes)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4}");
    const char *key = fresh_name("k");
    const char *all = slots_path(name, ""), *free_ones = slots_path(name, "?state=free");
    static const struct {
        const char *method, *path, *body;
    } changes[] = {
        {"POST", "/renew", "{\"ttl\":\"1h\"}"},
        {"POST", "/confirm", NULL},
        {"DELETE", "?confirmed=true", NULL},
    };
    say(&talk, 200, "GET", all, NULL);
    const char *tag = etag_of(&talk);
    get_if_none_match(&talk, 304, all, tag);
    cr_assert_str_eq(etag_of(&talk), tag);
    acquire(&talk, key, name, 1, "\"10m\"");
    get_if_none_match(&talk, 200, all, tag);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        tag = etag_of(&talk);
        get_if_none_match(&talk, 304, all, tag);
        say(&talk, 200, changes[i].method, text("/v1/requests/%s%s", key, changes[i].path), changes[i].body);
        get_if_none_match(&talk, 200, all, tag);
    }
    tag = etag_of(&talk);
    say(&talk, 200, "PUT", text("/v1/semaphores/%s/slots?from=2", name), "{\"labels\":[\"B\"]}");
    get_if_none_match(&talk, 200, all, tag);
    text_is(&talk, "slots.1.label", "B");
    say(&talk, 200, "GET", free_ones, NULL);
    tag = etag_of(&talk);
    get_if_none_match(&talk, 304, free_ones, text("W/%s", tag));
    get_if_none_match(&talk, 304, free_ones, text("\"1\", \"x\",%s , \"y\"", tag));
    get_if_none_match(&talk, 200, free_ones, "\"1\"");
    get_if_none_match(&talk, 200, free_ones, "\"");
    get_if_none_match(&talk, 200, free_ones, "");
    acquire(&talk, fresh_name("k"), name, 1, "\"10m\"");
    get_if_none_match(&talk, 200, free_ones, tag);
    tag = etag_of(&talk);
    say(&talk, 200, "GET", slots_path(name, "?limit=2"), NULL);
    cr_assert_str_neq(etag_of(&talk), tag, "another page of the same state");
    talk_end(&talk);
}

Test(slots, invalid_queries_are_refused_with_a_reason)
{
    struct talk talk = talk_to(shared_port());
    const char *counted = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5}");
    static const char *const wrong[] = {"?state=taken",      "?state=",      "?limit=0",
                                        "?limit=1001",       "?after=-1",    "?after=A1",
                                        "?after=4294967296", "?order=label", "?state=free&state=free"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(&talk, 422, "invalid", "GET", slots_path(name, wrong[i]), NULL);
    refused(&talk, 422, "invalid", "GET", slots_path(counted, ""), NULL);
    text_is(&talk, "detail", text("%s is counted: it has no slots", counted));
    refused(&talk, 404, "unknown_semaphore", "GET", slots_path(fresh_name("nobody"), ""), NULL);
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    refused(&talk, 404, "unknown_semaphore", "GET", slots_path(name, ""), NULL);
    refused(&talk, 405, "method_not_allowed", "POST", slots_path(counted, ""), NULL);
    talk_end(&talk);
}
