/* SPDX-License-Identifier: MIT */
/* Seats: how they are described, shown and checked. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static const char *slots_path(const char *name, const char *query)
{
    return text("/v1/semaphores/%s/slots%s", name, query);
}

#define ROW_OF_4                                                                                                       \
    "{\"slots\":[{\"label\":\"A1\",\"section\":\"A\",\"row\":\"1\",\"seat\":1,\"rank\":20,\"tags\":[\"aisle\"]},"      \
    "{\"label\":\"A2\",\"section\":\"A\",\"row\":\"1\",\"seat\":2,\"rank\":10},"                                       \
    "{\"label\":\"A3\",\"section\":\"A\",\"row\":\"1\",\"seat\":3,\"rank\":0,\"tags\":[\"aisle\",\"wheelchair\"]},{}]" \
    "}"

static const char *get_page(struct talk *talk, const char *name, const char *etag, int status)
{
    const char *header = etag ? text("If-None-Match: %s\r\n", etag) : NULL;
    say_with(talk, status, NULL, "GET", slots_path(name, ""), header, NULL);
    return kept(reply_header(&talk->reply, "ETag"));
}

Test(seats, are_shown_as_they_were_put)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4}");
    const char *etag = get_page(&talk, name, NULL, 200);
    say(&talk, 200, "PUT", slots_path(name, ""), ROW_OF_4);
    cr_expect_eq(number_of(&talk, "config_version"), 2);
    etag = get_page(&talk, name, etag, 200);
    cr_expect_not_null(strstr(talk.reply.body,
                              "{\"number\":1,\"label\":\"A1\",\"section\":\"A\",\"row\":\"1\",\"seat\":1,\"rank\":20,"
                              "\"tags\":[\"aisle\"]},{\"number\":2,\"label\":\"A2\",\"section\":\"A\",\"row\":\"1\","
                              "\"seat\":2,\"rank\":10},{\"number\":3,\"label\":\"A3\",\"section\":\"A\",\"row\":\"1\","
                              "\"seat\":3,\"rank\":0,\"tags\":[\"aisle\",\"wheelchair\"]},{\"number\":4}]"),
                       "%s", talk.reply.body);
    (void)get_page(&talk, name, etag, 304);
    say(&talk, 200, "PUT", slots_path(name, ""), ROW_OF_4);
    cr_expect_eq(number_of(&talk, "config_version"), 2, "nothing has changed");
    say(&talk, 200, "PUT", slots_path(name, "?from=2"), "{\"labels\":[\"B2\"]}");
    (void)get_page(&talk, name, etag, 200);
    cr_expect_not_null(strstr(talk.reply.body, "\"label\":\"B2\",\"section\":\"A\""), "labels change alone");
    say(&talk, 200, "PUT", slots_path(name, "?from=2"), "{\"slots\":[{\"rank\":3}]}");
    (void)get_page(&talk, name, etag, 200);
    cr_expect_not_null(strstr(talk.reply.body, "{\"number\":2,\"rank\":3}"), "a slot keeps nothing that is absent");
    say(&talk, 200, "GET", text("/v1/semaphores/%s/events", name), NULL);
    cr_expect_eq(count_of(talk.reply.body, "\"what\":\"seats\""), 2, "%s", talk.reply.body);
    cr_expect_eq(count_of(talk.reply.body, "\"what\":\"labels\""), 3);
    talk_end(&talk);
}

/* A permit keeps no copy of its seats; of its labels it does. */
Test(seats, of_a_held_slot_may_change_but_not_its_label)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4}");
    say(&talk, 200, "PUT", slots_path(name, ""), ROW_OF_4);
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[1]}]}", fresh_name("k"), name));
    say(&talk, 200, "PUT", slots_path(name, ""), "{\"slots\":[{\"label\":\"A1\",\"rank\":7}]}");
    refused(&talk, 409, "in_use", "PUT", slots_path(name, ""), "{\"slots\":[{\"rank\":8}]}");
    (void)get_page(&talk, name, NULL, 200);
    cr_expect_not_null(strstr(talk.reply.body, "{\"number\":1,\"label\":\"A1\",\"rank\":7,\"token\""), "%s",
                       talk.reply.body);
    talk_end(&talk);
}

/* Two slots in service have no place together; two sections or two rows may have the same numbers. */
Test(seats, duplicate_place_is_refused)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":4}");
    say(&talk, 200, "PUT", slots_path(name, ""), ROW_OF_4);
    refused(&talk, 422, "invalid", "PUT", slots_path(name, "?from=4"),
            "{\"slots\":[{\"section\":\"A\",\"row\":\"1\",\"seat\":2}]}");
    cr_expect_not_null(strstr(talk.reply.body, "the slots 2 and 4 have the same seat: section 'A', row '1', seat 2"),
                       "%s", talk.reply.body);
    refused(&talk, 422, "invalid", "PUT", slots_path(name, ""), "{\"slots\":[{\"seat\":1},{\"seat\":1}]}");
    say(&talk, 200, "PUT", slots_path(name, ""),
        "{\"slots\":[{\"seat\":1},{\"section\":\"A\",\"seat\":1},{\"row\":\"A\",\"seat\":1},{\"row\":\"A\"}]}");
    say(&talk, 200, "PUT", slots_path(name, ""),
        "{\"slots\":[{\"row\":\"A\",\"seat\":1},{\"seat\":1},{\"section\":\"A\",\"seat\":1},{\"row\":\"A\"}]}");
    say(&talk, 200, "PUT", text("/v1/semaphores/%s", name), "{\"capacity\":3}");
    say(&talk, 200, "PUT", slots_path(name, ""), "{\"slots\":[{\"row\":\"A\"}]}");
    talk_end(&talk);
}

Test(seats, strict_checks_name_the_member)
{
    static const struct {
        const char *body, *part;
    } rows[] = {
        {"{}", "labels or slots"},
        {"{\"slots\":[{}],\"labels\":[null]}", "labels or slots"},
        {"{\"slots\":[]}", "slots must be"},
        {"{\"slots\":[null]}", "slots[0] must be an object"},
        {"{\"slots\":[{},\"A1\"]}", "slots[1] must be an object"},
        {"{\"slots\":[{\"number\":1}]}", "unknown member slots[0].number"},
        {"{\"slots\":[{\"label\":null}]}", "slots[0].label must be"},
        {"{\"slots\":[{\"section\":\"\"}]}", "slots[0].section must be"},
        {"{\"slots\":[{\"section\":\"123456789012345678901234567890123\"}]}", "slots[0].section must be"},
        {"{\"slots\":[{\"row\":\"a\\u0007\"}]}", "slots[0].row must be"},
        {"{\"slots\":[{\"row\":7}]}", "slots[0].row must be"},
        {"{\"slots\":[{\"seat\":0}]}", "slots[0].seat must be"},
        {"{\"slots\":[{\"seat\":1000000001}]}", "slots[0].seat must be"},
        {"{\"slots\":[{},{\"rank\":-1}]}", "slots[1].rank must be"},
        {"{\"slots\":[{\"rank\":1000000001}]}", "slots[0].rank must be"},
        {"{\"slots\":[{\"rank\":1.5}]}", "slots[0].rank must be"},
        {"{\"slots\":[{\"tags\":\"a\"}]}", "slots[0].tags must be"},
        {"{\"slots\":[{\"tags\":[\"a b\"]}]}", "slots[0].tags[0] must be"},
        {"{\"slots\":[{\"tags\":[\"a\",null]}]}", "slots[0].tags[1] must be"},
        {"{\"slots\":[{\"tags\":[\"a\",\"123456789012345678901234567890123\"]}]}", "slots[0].tags[1] must be"},
        {"{\"slots\":[{\"tags\":[\"a\",\"b\",\"a\"]}]}", "slots[0].tags has a tag twice"},
        {"{\"slots\":[{\"tags\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}]}", "slots[0].tags must be"},
        {"{\"slots\":[{},{},{}]}", "exceed the capacity"},
    };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        refused(&talk, 422, "invalid", "PUT", slots_path(name, ""), rows[i].body);
        cr_expect_not_null(strstr(talk.reply.body, rows[i].part), "%s: %s", rows[i].body, talk.reply.body);
    }
    say(&talk, 200, "PUT", slots_path(name, ""),
        "{\"slots\":[{\"section\":\"12345678901234567890123456789012\",\"seat\":1000000000,\"rank\":1000000000,"
        "\"tags\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"12345678901234567890123456789012\"]}]}");
    (void)get_page(&talk, name, NULL, 200);
    cr_expect_not_null(strstr(talk.reply.body, "\"rank\":1000000000,"));
    const char *counted = fresh_semaphore(&talk, "{\"capacity\":2,\"kind\":\"counted\"}");
    refused(&talk, 422, "invalid", "PUT", slots_path(counted, ""), "{\"slots\":[{}]}");
    talk_end(&talk);
}

/* A semaphore that comes back begins without seats, as without labels. */
Test(seats, of_a_retired_semaphore_are_forgotten)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    say(&talk, 200, "PUT", slots_path(name, ""), "{\"slots\":[{\"rank\":7}]}");
    say(&talk, 200, "DELETE", text("/v1/semaphores/%s", name), NULL);
    say(&talk, 201, "PUT", text("/v1/semaphores/%s", name), "{\"capacity\":1}");
    (void)get_page(&talk, name, NULL, 200);
    cr_expect_not_null(strstr(talk.reply.body, "{\"slots\":[{\"number\":1}]"), "%s", talk.reply.body);
    talk_end(&talk);
}
