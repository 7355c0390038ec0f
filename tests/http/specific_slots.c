/* SPDX-License-Identifier: MIT */
/* Labels of slots, and acquires of specific slots: every answer and refusal, as transcripts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { LONG_MS = 120000 };

#define REQUESTS "/v1/requests"

static const char *slots_path(const char *name)
{
    return text("/v1/semaphores/%s/slots", name);
}

/* The body of an acquire of one semaphore; `which` are additional members of its entry in permits. */
static const char *body_of(const char *key, const char *name, const char *which)
{
    return text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",%s}]}", key, name, which);
}

static void acquire(struct talk *talk, int status, const char *key, const char *name, const char *which)
{
    say(talk, status, "POST", REQUESTS, body_of(key, name, which));
}

/* Expects a refusal of an acquire under a fresh key. */
static void refuse(struct talk *talk, int status, const char *type, const char *name, const char *which)
{
    refused(talk, status, type, "POST", REQUESTS, body_of(fresh_name("k"), name, which));
}

/* Asserts that the last answer contains `piece`. */
static void has(const struct talk *talk, const char *piece)
{
    cr_assert(strstr(talk->reply.body, piece), "%s is not in %s", piece, talk->reply.body);
}

static void has_not(const struct talk *talk, const char *piece)
{
    cr_assert_not(strstr(talk->reply.body, piece), "%s is in %s", piece, talk->reply.body);
}

/* A semaphore of five slots; their labels are A1, A2, none, A4, "#5". */
static const char *make_hall(struct talk *talk)
{
    return fresh_semaphore(talk, "{\"capacity\":5,\"labels\":[\"A1\",\"A2\",null,\"A4\",\"#5\"]}");
}

/* ---- specific slots ---- */

Test(specific_slots, slots_are_granted_by_number_and_label_and_shown_with_their_labels)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, hall, "\"slots\":[\"A4\",3]");
    has(&talk, "\"count\":2,");
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    acquire(&talk, 200, key, hall, "\"slots\":[3,\"A4\"]");
    cr_assert(kit_json_true(talk.reply.body, "replayed"));
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    refused(&talk, 422, "key_reused", "POST", REQUESTS, body_of(key, hall, "\"slots\":[3,4]"));
    refused(&talk, 422, "key_reused", "POST", REQUESTS, body_of(key, hall, "\"count\":2"));
    refused(&talk, 422, "key_reused", "POST", REQUESTS, body_of(key, hall, "\"any_of\":[3,\"A4\"],\"count\":2"));
    say(&talk, 200, "GET", request_path(key), NULL);
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    say(&talk, 200, "GET", text("/v1/requests?semaphore=%s", hall), NULL);
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    say(&talk, 200, "GET", text("%s/holders", semaphore_path(hall)), NULL);
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    say(&talk, 200, "POST", text("/v1/requests/%s/renew", key), NULL);
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"#5\"]");
    has(&talk, "\"slots\":[5],\"labels\":[\"#5\"]");
    release(&talk, key);
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    talk_end(&talk);
}

Test(specific_slots, count_alone_gets_the_lowest_free_slots_with_their_labels)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    acquire(&talk, 201, fresh_name("k"), hall, "\"count\":2");
    has(&talk, "\"slots\":[1,2],\"labels\":[\"A1\",\"A2\"]");
    acquire(&talk, 201, fresh_name("k"), hall, "\"count\":1");
    has(&talk, "\"slots\":[3]");
    has_not(&talk, "labels");
    talk_end(&talk);
}

Test(specific_slots, refusal_names_taken_slots_their_holders_and_deadlines)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *soon = fresh_name("soon");
    const char *sold = fresh_name("sold");
    acquire(&talk, 201, soon, hall, "\"slots\":[\"A2\"]");
    int64_t token = number_of(&talk, "permits.0.token");
    acquire(&talk, 201, sold, hall, "\"slots\":[3]");
    say(&talk, 200, "POST", text("/v1/requests/%s/confirm", sold), NULL);
    refuse(&talk, 423, "no_capacity", hall, "\"slots\":[1,3,\"A2\"]");
    cr_assert_eq(number_of(&talk, "blocking.0.requested"), 3);
    cr_assert_eq(kit_json_length(talk.reply.body, "blocking.0.taken"), 2);
    cr_assert_eq(number_of(&talk, "blocking.0.taken.0.slot"), 2);
    cr_assert_eq(number_of(&talk, "blocking.0.taken.0.token"), token);
    text_is(&talk, "blocking.0.taken.0.label", "A2");
    text_is(&talk, "blocking.0.taken.0.external_id", soon);
    int64_t left = number_of(&talk, "blocking.0.taken.0.expires_in_ms");
    cr_assert(left > 0 && left <= 600000, "%s", talk.reply.body);
    cr_assert(kit_json_has(talk.reply.body, "blocking.0.taken.0.expires_at"));
    cr_assert_eq(number_of(&talk, "blocking.0.taken.1.slot"), 3);
    text_is(&talk, "blocking.0.taken.1.external_id", sold);
    cr_assert_not(kit_json_has(talk.reply.body, "blocking.0.taken.1.label"));
    cr_assert_not(kit_json_has(talk.reply.body, "blocking.0.taken.1.expires_at"));
    cr_assert_not(kit_json_has(talk.reply.body, "blocking.0.taken.1.expires_in_ms"));
    has(&talk, text("\"detail\":\"%s: A2 is held until 20", hall));
    has(&talk, "Z, and 1 more of 3 asked\"");
    cr_assert_gt(number_of(&talk, "retry_after_ms"), 0);
    refuse(&talk, 423, "no_capacity", hall, "\"slots\":[3]");
    has(&talk, text("\"detail\":\"%s: slot 3 is held until it is released\"", hall));
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[1]");
    talk_end(&talk);
}

Test(specific_slots, several_semaphores_are_granted_together_or_not_at_all)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *yard = fresh_semaphore(&talk, "{\"capacity\":1,\"labels\":[\"Y\"]}");
    acquire(&talk, 201, fresh_name("k"), yard, "\"slots\":[\"Y\"]");
    refused(&talk, 423, "no_capacity", "POST", REQUESTS,
            text("{\"permits\":[{\"semaphore\":\"%s\",\"slots\":[\"A1\"]},{\"semaphore\":\"%s\",\"slots\":[1]}]}", hall,
                 yard));
    cr_assert_eq(kit_json_length(talk.reply.body, "blocking"), 1);
    text_is(&talk, "blocking.0.semaphore", yard);
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"A1\"]");
    talk_end(&talk);
}

Test(specific_slots, missing_slot_is_never_satisfiable_and_named)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[\"A1\",\"B 7\"]");
    has(&talk, "B 7");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[\"a1\"]");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[\"3\"]");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[1,6]");
    has(&talk, "6");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[70000]");
    has(&talk, "70000");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[2147483647]");
    refuse(&talk, 422, "never_satisfiable", hall, "\"any_of\":[1,6]");
    refuse(&talk, 422, "never_satisfiable", hall, "\"any_of\":[1,2],\"count\":3");
    refuse(&talk, 422, "never_satisfiable", hall, "\"adjacent\":true,\"count\":6");
    say(&talk, 200, "PUT", semaphore_path(hall), "{\"capacity\":3}");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[4]");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[\"A4\"]");
    talk_end(&talk);
}

Test(specific_slots, number_and_label_of_one_slot_are_a_duplicate)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    refuse(&talk, 422, "invalid", hall, "\"slots\":[1,\"A1\"]");
    refuse(&talk, 422, "invalid", hall, "\"any_of\":[1,\"A2\",\"A1\"]");
    talk_end(&talk);
}

Test(specific_slots, counted_semaphore_has_no_slots)
{
    struct talk talk = talk_to(shared_port());
    const char *stock = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    refuse(&talk, 422, "invalid", stock, "\"slots\":[1]");
    has(&talk, "counted");
    refuse(&talk, 422, "invalid", stock, "\"any_of\":[1]");
    refuse(&talk, 422, "invalid", stock, "\"adjacent\":true,\"count\":2");
    acquire(&talk, 201, fresh_name("k"), stock, "\"adjacent\":false");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(stock), "{\"labels\":[\"A1\"]}");
    refused(&talk, 422, "invalid", "PUT", slots_path(stock), "{\"labels\":[\"A1\"]}");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(fresh_name("s")),
            "{\"capacity\":5,\"kind\":\"counted\",\"labels\":[\"A1\"]}");
    talk_end(&talk);
}

enum { NAMES = 33, FULL_LABEL = 255, LAST_BYTES = 32 }; /* 32 labels of 255 bytes and one of 32: 8 KiB */

/* The list of these labels; the last one has 16 letters of two bytes, each written with six. */
static const char *eight_kib(void)
{
    char *list = kept(malloc(NAMES * (FULL_LABEL + 3) + 100));
    char *at = stpcpy(list, "[");
    for (int i = 0; i < NAMES - 1; i++)
        at += sprintf(at, "\"%0*d\",", FULL_LABEL, i);
    at = stpcpy(at, "\"");
    for (int i = 0; i < LAST_BYTES / 2; i++)
        at = stpcpy(at, "\\u00e9");
    stpcpy(at, "\"]");
    return list;
}

/* An acquire of two semaphores that names 8 KiB less LAST_BYTES of labels, and so many numbers. */
static const char *with_numbers(const char *key, const char *hall, const char *yard, int count)
{
    char *labels = kept(strdup(eight_kib())), numbers[64] = "1";
    *strrchr(labels, ',') = '\0';
    for (int i = 2; i <= count; i++)
        (void)sprintf(numbers + strlen(numbers), ",%d", i);
    return text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"any_of\":%s]},"
                "{\"semaphore\":\"%s\",\"slots\":[%s]}]}",
                key, hall, labels, yard, numbers);
}

Test(certain, names_of_a_request_are_limited_to_8_kib)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, text("{\"capacity\":40,\"labels\":%s}", eight_kib()));
    const char *yard = fresh_semaphore(&talk, "{\"capacity\":20}");
    const char *most = text("\"any_of\":%s", eight_kib());
    acquire(&talk, 201, fresh_name("k"), hall, most);
    char *more = kept(strdup(most));
    *strrchr(more, ']') = ',';
    refuse(&talk, 422, "invalid", hall, text("%s40]", more));
    has(&talk, "more than 8192 bytes");
    say(&talk, 201, "POST", REQUESTS, with_numbers(fresh_name("k"), hall, yard, LAST_BYTES / 4));
    refused(&talk, 422, "invalid", "POST", REQUESTS, with_numbers(fresh_name("k"), hall, yard, LAST_BYTES / 4 + 1));
    has(&talk, "more than 8192 bytes");
    const char *body = text("{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",%s}]}", hall, most);
    const char *long_one = text("{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",%s40]}]}", hall, more);
    say(&talk, 200, "POST", "/v1/batch", text("{\"operations\":[%s,%s,%s]}", body, long_one, body));
    cr_assert_eq(number_of(&talk, "results.0.status"), 201);
    cr_assert_eq(number_of(&talk, "results.1.status"), 422);
    text_is(&talk, "results.1.body.type", "/problems/invalid");
    cr_assert_eq(number_of(&talk, "results.2.status"), 201, "each operation has its own limit");
    talk_end(&talk);
}

/* ---- any_of, adjacent ---- */

Test(specific_slots, any_of_takes_the_lowest_free_slots)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    acquire(&talk, 201, fresh_name("k"), hall, "\"any_of\":[\"A4\",2,3]");
    has(&talk, "\"count\":1,");
    has(&talk, "\"slots\":[2],\"labels\":[\"A2\"]");
    acquire(&talk, 201, fresh_name("k"), hall, "\"any_of\":[5,2,3,\"A4\"],\"count\":2");
    has(&talk, "\"slots\":[3,4],\"labels\":[null,\"A4\"]");
    refuse(&talk, 423, "no_capacity", hall, "\"any_of\":[2,3,5],\"count\":2");
    cr_assert_eq(number_of(&talk, "blocking.0.requested"), 2);
    text_is(&talk, "detail", text("%s: no 2 free slots among the 3 named", hall));
    cr_assert_not(kit_json_has(talk.reply.body, "blocking.0.taken"));
    talk_end(&talk);
}

Test(specific_slots, adjacent_slots_have_consecutive_numbers)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[2]");
    acquire(&talk, 201, fresh_name("k"), hall, "\"adjacent\":true,\"count\":2");
    has(&talk, "\"slots\":[3,4]");
    refuse(&talk, 423, "no_capacity", hall, "\"adjacent\":true,\"count\":2");
    text_is(&talk, "detail", text("%s: no 2 adjacent free slots", hall));
    acquire(&talk, 201, fresh_name("k"), hall, "\"count\":2");
    has(&talk, "\"slots\":[1,5]");
    refuse(&talk, 423, "no_capacity", hall, "\"adjacent\":true");
    has(&talk, "5 of 5 in use, 1 asked");
    talk_end(&talk);
}

Test(specific_slots, adjacent_slots_are_taken_from_any_of)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    acquire(&talk, 201, fresh_name("k"), hall, "\"any_of\":[1,3,4,5],\"count\":2,\"adjacent\":true");
    has(&talk, "\"slots\":[3,4]");
    refuse(&talk, 423, "no_capacity", hall, "\"any_of\":[1,3,2,5],\"count\":3,\"adjacent\":true");
    talk_end(&talk);
}

Test(specific_slots, batch_operations_may_name_slots)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    say(&talk, 200, "POST", "/v1/batch",
        text("{\"operations\":[{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[\"A2\"]}]},"
             "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[\"B1\"]}]},"
             "{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[1,1]}]}]}",
             hall, hall, hall));
    cr_assert_eq(number_of(&talk, "results.0.status"), 201);
    has(&talk, "\"slots\":[2],\"labels\":[\"A2\"]");
    text_is(&talk, "results.1.body.type", "/problems/never_satisfiable");
    text_is(&talk, "results.2.body.type", "/problems/invalid");
    talk_end(&talk);
}

/* ---- waiting ---- */

struct expected {
    struct talk *talk;
    const char *name;
    int64_t waiting;
};

static bool waiting_is_expected(void *context)
{
    struct expected *expected = context;
    say(expected->talk, 200, "GET", semaphore_path(expected->name), NULL);
    return number_of(expected->talk, "waiting") == expected->waiting;
}

static void wait_for_waiting(struct talk *talk, const char *name, int64_t count)
{
    struct expected expected = {talk, name, count};
    cr_assert(kit_wait_until(waiting_is_expected, &expected, LONG_MS), "%s", talk->reply.body);
}

static struct talk waiter(const char *key, const char *name, const char *which)
{
    struct talk talk = talk_to(shared_port());
    tell(&talk, "POST", REQUESTS,
         text("{\"external_id\":\"%s\",\"wait\":\"2m\",\"permits\":[{\"semaphore\":\"%s\",%s}]}", key, name, which));
    return talk;
}

Test(specific_slots, waiter_for_specific_slots_gets_them_and_blocks_no_other)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":4,\"labels\":[\"A1\",\"A2\",\"A3\",\"A4\"]}");
    const char *holder = fresh_name("holder");
    const char *key = fresh_name("waits");
    acquire(&talk, 201, holder, hall, "\"slots\":[\"A2\"]");
    struct talk waits = waiter(key, hall, "\"slots\":[\"A2\",1]");
    wait_for_waiting(&talk, hall, 1);
    say(&talk, 200, "GET", text("%s/waiters", semaphore_path(hall)), NULL);
    has(&talk, "\"count\":2,\"slots\":[1,\"A2\"]}");
    say(&talk, 200, "GET", text("/v1/requests/%s/why", key), NULL);
    has(&talk, "\"requested\":2,\"slots\":[1,\"A2\"],");
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[3]"); /* the waiter blocks no other request */
    acquire(&talk, 201, fresh_name("k"), hall, "\"any_of\":[4]");
    release(&talk, holder);
    hear(&waits, 201, NULL);
    has(&waits, "\"slots\":[1,2],\"labels\":[\"A1\",\"A2\"]");
    talk_end(&waits);
    talk_end(&talk);
}

/* It is in the way of others like any other waiter. */
Test(specific_slots, waiter_for_specific_slots_is_not_passed_under_fifo)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":4,\"queue\":\"fifo\"}");
    const char *holder = fresh_name("holder");
    acquire(&talk, 201, holder, hall, "\"slots\":[2]");
    struct talk waits = waiter(fresh_name("waits"), hall, "\"slots\":[2,1]");
    wait_for_waiting(&talk, hall, 1);
    acquire(&talk, 423, fresh_name("k"), hall, "\"slots\":[3]");
    acquire(&talk, 423, fresh_name("k"), hall, "\"count\":1");
    release(&talk, holder);
    hear(&waits, 201, NULL);
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[3]");
    talk_end(&waits);
    talk_end(&talk);
}

Test(specific_slots, waiters_are_shown_with_their_requested_slots)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *holder = fresh_name("holder");
    acquire(&talk, 201, holder, hall, "\"slots\":[2]");
    const char *first = fresh_name("first");
    const char *second = fresh_name("second");
    struct talk pair = waiter(first, hall, "\"count\":2,\"adjacent\":true");
    wait_for_waiting(&talk, hall, 1);
    struct talk any = waiter(second, hall, "\"any_of\":[2],\"adjacent\":false");
    wait_for_waiting(&talk, hall, 2);
    say(&talk, 200, "GET", text("%s/waiters", semaphore_path(hall)), NULL);
    has(&talk, "\"count\":2,\"adjacent\":true}");
    has(&talk, "\"count\":1,\"any_of\":[2]}");
    say(&talk, 200, "GET", text("/v1/requests/%s/why", first), NULL);
    has(&talk, "\"requested\":2,\"adjacent\":true,");
    release(&talk, holder);
    hear(&pair, 201, NULL);
    has(&pair, "\"slots\":[1,2]");
    release(&talk, first);
    hear(&any, 201, NULL);
    has(&any, "\"slots\":[2]");
    talk_end(&pair);
    talk_end(&any);
    talk_end(&talk);
}

Test(specific_slots, expired_wait_names_the_taken_slots)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"A1\"]");
    refused(&talk, 423, "no_capacity", "POST", REQUESTS,
            text("{\"wait\":\"200ms\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[\"A1\"]}]}", hall));
    text_is(&talk, "blocking.0.taken.0.label", "A1");
    talk_end(&talk);
}

Test(specific_slots, slot_of_an_expired_request_is_granted_by_label)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *brief = fresh_name("brief");
    say(&talk, 201, "POST", REQUESTS,
        text("{\"external_id\":\"%s\",\"ttl\":\"300ms\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[\"A2\"]}]}",
             brief, hall));
    say_until(&talk, 201, "POST", REQUESTS, body_of(fresh_name("k"), hall, "\"slots\":[\"A2\"]"));
    ends_as(&talk, brief, "expired");
    talk_end(&talk);
}

/* ---- labels ---- */

Test(labels, pages_of_labels_are_stored_and_recorded_as_events)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"labels\":[\"A1\"]}");
    say(&talk, 200, "PUT", text("%s?from=3", slots_path(name)), "{\"labels\":[\"C1\",null,\"C3\"]}");
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    header_is(&talk, "ETag", "\"2.2\"");
    text_is(&talk, "name", name);
    acquire(&talk, 201, fresh_name("k"), name, "\"slots\":[\"A1\",\"C1\",\"C3\"]");
    has(&talk, "\"slots\":[1,3,5]");
    say(&talk, 200, "GET", text("%s/events", semaphore_path(name)), NULL);
    text_is(&talk, "events.0.what", "labels");
    text_is(&talk, "events.0.to", "3-5");
    say(&talk, 200, "PUT", slots_path(name), "{\"labels\":[\"A1\",\"A2\"]}"); /* A1 is held, its label stays */
    say_with(&talk, 412, "version_mismatch", "PUT", slots_path(name), "If-Match: \"2\"\r\n", "{\"labels\":[null]}");
    say_with(&talk, 200, NULL, "PUT", text("%s?from=2", slots_path(name)), "If-Match: \"3\"\r\n",
             "{\"labels\":[\"A 2\"]}");
    refused(&talk, 404, "unknown_semaphore", "PUT", slots_path(fresh_name("s")), "{\"labels\":[\"A1\"]}");
    talk_end(&talk);
}

Test(labels, labels_of_held_slots_cannot_change)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *key = fresh_name("k");
    acquire(&talk, 201, key, hall, "\"slots\":[\"A2\"]");
    refused(&talk, 409, "in_use", "PUT", semaphore_path(hall), "{\"labels\":[\"A1\",\"B2\"]}");
    has(&talk, "A2");
    refused(&talk, 409, "in_use", "PUT", text("%s?from=2", slots_path(hall)), "{\"labels\":[null]}");
    say(&talk, 200, "PUT", semaphore_path(hall), "{\"labels\":[\"B1\",\"A2\",\"A1\"]}");
    release(&talk, key);
    say(&talk, 200, "PUT", semaphore_path(hall), "{\"labels\":[\"B1\",\"B2\"]}");
    say(&talk, 200, "GET", request_path(key), NULL);
    has(&talk, "\"labels\":[\"A2\"]"); /* the labels at the grant */
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"B2\",\"A1\"]");
    has(&talk, "\"slots\":[2,3]");
    talk_end(&talk);
}

Test(labels, are_unique_and_at_most_one_per_slot)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    const char *path = slots_path(hall);
    refused(&talk, 422, "invalid", "PUT", semaphore_path(hall), "{\"labels\":[\"X\",\"Y\",\"X\"]}");
    has(&talk, "X");
    refused(&talk, 422, "invalid", "PUT", path, "{\"labels\":[\"A4\"]}");
    has(&talk, "A4");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(hall), "{\"labels\":[null,null,null,null,null,\"F\"]}");
    refused(&talk, 422, "invalid", "PUT", text("%s?from=5", path), "{\"labels\":[\"E\",\"F\"]}");
    refused(&talk, 422, "invalid", "PUT", text("%s?from=6", path), "{\"labels\":[null]}");
    refused(&talk, 422, "invalid", "PUT", semaphore_path(fresh_name("s")), "{\"capacity\":1,\"labels\":[\"A\",\"B\"]}");
    say(&talk, 200, "PUT", path, "{\"labels\":[\"A2\",\"A1\"]}"); /* two labels may be swapped */
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"A1\"]");
    has(&talk, "\"slots\":[2]");
    say(&talk, 200, "PUT", semaphore_path(hall), "{\"capacity\":6,\"labels\":[null,\"A1\",null,null,null,\"a1\"]}");
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"a1\"]"); /* labels are compared byte by byte */
    has(&talk, "\"slots\":[6]");
    talk_end(&talk);
}

Test(labels, are_removed_when_the_semaphore_is_retired)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = make_hall(&talk);
    say(&talk, 200, "DELETE", semaphore_path(hall), NULL);
    refused(&talk, 404, "unknown_semaphore", "PUT", slots_path(hall), "{\"labels\":[\"A1\"]}");
    say(&talk, 201, "PUT", semaphore_path(hall), "{\"capacity\":5,\"labels\":[null,\"A1\"]}");
    refuse(&talk, 422, "never_satisfiable", hall, "\"slots\":[\"A4\"]");
    acquire(&talk, 201, fresh_name("k"), hall, "\"slots\":[\"A1\"]");
    has(&talk, "\"slots\":[2]");
    talk_end(&talk);
}

Test(labels, may_be_any_text_up_to_255_bytes)
{
    struct talk talk = talk_to(shared_port());
    char label[256];
    for (size_t i = 0; i < 255; i += 3)
        memcpy(label + i, "\xe2\x82\xac", 3);
    label[255] = '\0';
    const char *name = fresh_semaphore(&talk, text("{\"capacity\":2,\"labels\":[\"%s\",\" \\\"\\\\/ \"]}", label));
    acquire(&talk, 201, fresh_name("k"), name, text("\"slots\":[\"%s\",\"\\u0020\\\"\\\\/ \"]", label));
    text_is(&talk, "permits.0.labels.0", label);
    text_is(&talk, "permits.0.labels.1", " \"\\/ ");
    talk_end(&talk);
}

Test(labels, pages_of_labels_cover_thousands_of_slots)
{
    struct talk talk = talk_to(shared_port());
    enum { SEATS = 3000, PAGE = 1000, LABEL_BYTES = 40 };
    const char *name = fresh_semaphore(&talk, text("{\"capacity\":%d}", SEATS));
    char *body = kept(malloc(PAGE * LABEL_BYTES + 64));
    for (int from = 1; from <= SEATS; from += PAGE) {
        char *at = body + sprintf(body, "{\"labels\":[");
        for (int i = 0; i < PAGE; i++)
            at += sprintf(at, "%s\"block %d, row %d, seat %d\"", i ? "," : "", from + i, (from + i) / 50, i % 50);
        strcpy(at, "]}");
        say(&talk, 200, "PUT", text("%s?from=%d", slots_path(name), from), body);
    }
    acquire(&talk, 201, fresh_name("k"), name, "\"slots\":[\"block 3000, row 60, seat 49\"]");
    has(&talk, "\"slots\":[3000],");
    talk_end(&talk);
}
