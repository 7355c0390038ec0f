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

/* ---- best ---- */

/* Two rows of 4 in section A, the second is better; a row of 1 and one with a gap in section B; the last has no seat. */
static const char *fresh_hall(struct talk *talk)
{
    const char *name = fresh_semaphore(talk, "{\"capacity\":13}");
    const char *body = "{\"slots\":[";
    for (int i = 0; i < 8; i++)
        body = text("%s{\"section\":\"A\",\"row\":\"%d\",\"seat\":%d,\"rank\":%d%s},", body, 1 + i / 4, 1 + i % 4,
                    i < 4 ? 20 : 10, i % 4 == 0 ? ",\"tags\":[\"aisle\"]" : "");
    body = text("%s{\"section\":\"B\",\"row\":\"1\",\"seat\":1,\"rank\":1,\"tags\":[\"wheelchair\"]},"
                "{\"section\":\"B\",\"row\":\"2\",\"seat\":1,\"rank\":30},{\"section\":\"B\",\"row\":\"2\",\"seat\":2,"
                "\"rank\":30},"
                "{\"section\":\"B\",\"row\":\"2\",\"seat\":4,\"rank\":30},{}]}",
                body);
    say(talk, 200, "PUT", slots_path(name, ""), body);
    return name;
}

static const char *best_body(const char *key, const char *name, int count, const char *best, const char *more)
{
    return text(
        "{\"external_id\":\"%s\",\"ttl\":\"10m\"%s,\"permits\":[{\"semaphore\":\"%s\",\"count\":%d,\"best\":%s}]}", key,
        more, name, count, best);
}

/* Acquires; asserts the granted slots, such as "[5,6]". Returns the key. */
static const char *best_is(struct talk *talk, const char *name, int count, const char *best, const char *slots)
{
    const char *key = fresh_name("k");
    say(talk, 201, "POST", "/v1/requests", best_body(key, name, count, best, ""));
    cr_expect_not_null(strstr(talk->reply.body, text("\"slots\":%s", slots)), "%s: %s", best, talk->reply.body);
    return key;
}

static void none_is(struct talk *talk, int status, const char *name, int count, const char *best, const char *part)
{
    refused(talk, status, status == 423 ? "no_capacity" : "never_satisfiable", "POST", "/v1/requests",
            best_body(fresh_name("k"), name, count, best, ""));
    cr_expect_not_null(strstr(talk->reply.body, part), "%s: %s", best, talk->reply.body);
}

Test(seats, best_are_chosen_as_wished)
{
    static const struct {
        int count;
        const char *best, *slots;
    } rows[] = {
        {1, "{}", "[9]"},
        {3, "{}", "[5,6,9]"},
        {2, "{\"together\":true}", "[5,6]"},
        {4, "{\"together\":true}", "[5,6,7,8]"},
        {2, "{\"together\":true,\"section\":[\"B\"]}", "[10,11]"},
        {3, "{\"together\":true,\"section\":[\"B\"],\"split\":2}", "[9,10,11]"},
        {1, "{\"section\":[\"A\",\"B\"],\"not_tags\":[\"wheelchair\"]}", "[5]"},
        {1, "{\"not_tags\":[\"wheelchair\",\"aisle\"]}", "[6]"},
        {2, "{\"tags\":[\"aisle\"]}", "[1,5]"},
        {2, "{\"with\":{\"wheelchair\":1},\"not_tags\":[\"wheelchair\"],\"section\":[\"B\"]}", "[9,10]"},
        {13, "{}", "[1,2,3,4,5,6,7,8,9,10,11,12,13]"},
    };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        release(&talk, best_is(&talk, name, rows[i].count, rows[i].best, rows[i].slots));
    (void)best_is(&talk, name, 1, "{\"together\":true,\"section\":[\"A\"],\"no_orphans\":true}", "[5]");
    (void)best_is(&talk, name, 1, "{\"together\":true,\"section\":[\"A\"],\"no_orphans\":true}", "[6]");
    say(&talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[2]}]}", fresh_name("k"), name));
    none_is(&talk, 423, name, 4, "{\"together\":true}", "\"largest_together\":2");
    talk_end(&talk);
}

/* A wish that taken seats prevent is no_capacity, one that the hall cannot meet at all is never_satisfiable. */
Test(seats, best_that_cannot_be_met_names_the_largest_group)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk);
    none_is(&talk, 422, name, 5, "{\"together\":true}", "the largest group has 4");
    none_is(&talk, 422, name, 2, "{\"together\":true,\"tags\":[\"aisle\"]}", "the largest group has 1");
    none_is(&talk, 422, name, 1, "{\"section\":[\"C\"]}", "the largest group has 0");
    (void)best_is(&talk, name, 2, "{\"together\":true}", "[5,6]");
    (void)best_is(&talk, name, 2, "{\"together\":true,\"section\":[\"A\"]}", "[7,8]");
    (void)best_is(&talk, name, 1, "{\"section\":[\"A\"]}", "[1]");
    none_is(&talk, 423, name, 4, "{\"together\":true}", "\"largest_together\":3");
    cr_expect_not_null(strstr(talk.reply.body, "no 4 free seats match `best`; the largest group has 3"), "%s",
                       talk.reply.body);
    none_is(&talk, 423, name, 2, "{\"together\":true,\"section\":[\"A\"],\"tags\":[\"aisle\"],\"split\":2}",
            "\"largest_together\":0");
    const char *counted = fresh_semaphore(&talk, "{\"capacity\":2,\"kind\":\"counted\"}");
    refused(&talk, 422, "invalid", "POST", "/v1/requests", best_body(fresh_name("k"), counted, 1, "{}", ""));
    talk_end(&talk);
}

/* The wish is part of what a key stands for; the order of its names is not. */
Test(seats, best_is_part_of_the_request_of_a_key)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk), *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", best_body(key, name, 1, "{\"section\":[\"A\",\"B\"]}", ""));
    say(&talk, 200, "POST", "/v1/requests", best_body(key, name, 1, "{\"section\":[\"B\",\"A\"]}", ""));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", best_body(key, name, 1, "{\"section\":[\"B\"]}", ""));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests", best_body(key, name, 1, "{}", ""));
    talk_end(&talk);
}

/* Four seats become free, but only the last two make a group of four. */
Test(seats, waiter_for_a_group_is_granted_when_the_group_exists)
{
    struct talk talk = talk_to(shared_port()), other = talk_to(shared_port());
    const char *name = fresh_hall(&talk), *key = fresh_name("w");
    const char *first = best_is(&talk, name, 1, "{\"section\":[\"A\"]}", "[5]");
    const char *both = best_is(&talk, name, 2, "{\"section\":[\"A\"],\"tags\":[],\"not_tags\":[\"aisle\"]}", "[6,7]");
    const char *last = best_is(&talk, name, 1, "{\"section\":[\"A\"]}", "[8]");
    say(&other, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[2]}]}", fresh_name("k"), name));
    tell(&talk, "POST", "/v1/requests",
         best_body(key, name, 4, "{\"together\":true,\"no_orphans\":true}", ",\"wait\":\"60s\""));
    say_until(&other, 200, "GET", text("/v1/requests/%s", key), NULL);
    cr_expect_not_null(strstr(other.reply.body, "\"best\":{\"together\":true,\"no_orphans\":true}"), "%s",
                       other.reply.body);
    release(&other, last);
    release(&other, first);
    say(&other, 200, "GET", text("/v1/requests/%s", key), NULL);
    cr_expect_not_null(strstr(other.reply.body, "WAITING"), "%s", other.reply.body);
    release(&other, both);
    hear(&talk, 201, NULL);
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[5,6,7,8]"), "%s", talk.reply.body);
    talk_end(&talk);
    talk_end(&other);
}

/* The copy of the seats is that of the last change. */
Test(seats, best_follows_a_change_of_the_seats)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk);
    release(&talk, best_is(&talk, name, 1, "{}", "[9]"));
    say(&talk, 200, "PUT", slots_path(name, "?from=13"), "{\"slots\":[{\"rank\":0}]}");
    release(&talk, best_is(&talk, name, 1, "{}", "[13]"));
    say(&talk, 200, "PUT", text("/v1/semaphores/%s", name), "{\"capacity\":12}");
    release(&talk, best_is(&talk, name, 1, "{}", "[9]"));
    say(&talk, 200, "PUT", text("/v1/semaphores/%s", name), "{\"capacity\":14}");
    release(&talk, best_is(&talk, name, 2, "{}", "[9,13]"));
    (void)best_is(&talk, name, 14, "{}", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14]");
    talk_end(&talk);
}

/* ---- best on copies ---- */

#define SHORT "permitd_batches_total{path=\"short\"}"
#define LONG  "permitd_batches_total{path=\"long\"}"

/* permitd with one worker, so with one seat map; its semaphore `hall` has 6 seats with the labels s1 to s6, the last the best. */
static struct kit_permitd *start_hall(struct talk *ret_talk)
{
    const char *const flags[] = {"--workers", "1", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    *ret_talk = talk_to(permitd->port);
    say(ret_talk, 201, "PUT", "/v1/semaphores/hall", "{\"capacity\":6}");
    const char *body = "{\"slots\":[";
    for (int i = 1; i <= 6; i++)
        body =
            text("%s%s{\"label\":\"s%d\",\"row\":\"1\",\"seat\":%d,\"rank\":%d}", body, i > 1 ? "," : "", i, i, 10 - i);
    say(ret_talk, 200, "PUT", slots_path("hall", ""), text("%s]}", body));
    return permitd;
}

static void stop_hall(struct kit_permitd *permitd, struct talk *talk)
{
    talk_end(talk);
    kit_permitd_stop(permitd);
}

/* Acquires until a batch has had all copies: others may have changed the semaphore meanwhile. */
static void warm_up(struct talk *talk)
{
    double before = metric_of(talk, SHORT);
    while (metric_of(talk, SHORT) < before + 2)
        release(talk, best_is(talk, "hall", 1, "{}", "[6]"));
}

Test(seats, best_is_one_packet_on_the_copies_of_seats_slots_and_labels)
{
    struct talk talk;
    struct kit_permitd *permitd = start_hall(&talk);
    warm_up(&talk);
    double before = metric_of(&talk, LONG);
    const char *pair = best_is(&talk, "hall", 2, "{\"together\":true}", "[5,6],\"labels\":[\"s5\",\"s6\"]");
    const char *one = best_is(&talk, "hall", 1, "{}", "[4],\"labels\":[\"s4\"]");
    say(&talk, 201, "POST", "/v1/requests", acquire_body("lowest", "hall", 1, ""));
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[1],\"labels\":[\"s1\"]"), "%s", talk.reply.body);
    none_is(&talk, 423, "hall", 3, "{\"together\":true}", "\"largest_together\":2");
    release(&talk, one);
    release(&talk, pair);
    cr_expect_not_null(strstr(talk.reply.body, "\"labels\":[\"s5\",\"s6\"]"), "%s", talk.reply.body);
    release(&talk, best_is(&talk, "hall", 3, "{\"together\":true}", "[4,5,6]"));
    cr_expect_eq(metric_of(&talk, LONG), before);
    stop_hall(permitd, &talk);
}

/* An older copy of the database has other seats at the same versions. */
static void make_best(struct kit_sql *sql, int slot)
{
    kit_sql_run(sql, "UPDATE slot SET seat_rank=IF(number=%d,0,9)", slot);
}

/* Ends the sessions of all permitd on this database, which then open others. */
static void kill_sessions(struct kit_sql *sql)
{
    static const char *const others = "information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID()";
    int64_t last = kit_sql_number(sql, "SELECT MAX(id) FROM %s", others);
    for (int64_t id = 0; id < last;) {
        id = kit_sql_number(sql, "SELECT COALESCE(MIN(id),%lld) FROM %s AND id>%lld", (long long)last, others,
                            (long long)id);
        (void)kit_sql_try(sql, "KILL %lld", (long long)id); /* it may have ended */
    }
}

Test(seats, map_is_void_in_another_epoch_and_in_a_new_session)
{
    struct talk talk;
    struct kit_permitd *permitd = start_hall(&talk);
    struct kit_sql *sql = own_sql("own0");
    warm_up(&talk);
    make_best(sql, 2);
    release(&talk, best_is(&talk, "hall", 1, "{}", "[6]"));
    kit_sql_run(sql, "UPDATE cluster SET epoch=epoch+1");
    release(&talk, best_is(&talk, "hall", 1, "{}", "[2]"));
    make_best(sql, 3);
    kill_sessions(sql);
    release(&talk, best_is(&talk, "hall", 1, "{}", "[3]"));
    kit_sql_close(sql);
    stop_hall(permitd, &talk);
}

/* Two permitd on one database: neither sells a seat of the other, and each knows the seats that the other has described. */
Test(seats, best_of_two_permitd_are_all_seats_once)
{
    struct talk talks[2];
    struct kit_permitd *permitd = start_hall(&talks[0]);
    struct kit_permitd_options options = {.database = own_url("own0"), .flags = patient_flags};
    struct kit_permitd *other = kit_permitd_start(&options);
    talks[1] = talk_to(other->port);
    for (int round = 0; round < 3; round++) {
        const char *keys[6];
        warm_up(&talks[round % 2]);
        for (int i = 0; i < 6; i++)
            keys[i] = best_is(&talks[(i + round) % 2], "hall", 1, "{}", text("[%d]", 6 - i));
        none_is(&talks[round % 2], 423, "hall", 1, "{}", "\"largest_together\":0");
        for (int i = 0; i < 6; i++)
            release(&talks[i / 2 % 2], keys[i]);
    }
    warm_up(&talks[0]);
    say(&talks[1], 200, "PUT", slots_path("hall", "?from=3"), "{\"slots\":[{\"label\":\"new\",\"rank\":0}]}");
    release(&talks[0], best_is(&talks[0], "hall", 1, "{}", "[3],\"labels\":[\"new\"]"));
    talk_end(&talks[1]);
    kit_permitd_stop(other);
    stop_hall(permitd, &talks[0]);
}

/* A held seat that is due may be chosen: its hold ends. Of the other rows a seat is held for longer. */
Test(seats, best_takes_seats_of_due_holds)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk);
    for (int slot = 2; slot <= 10; slot += 4)
        say(&talk, 201, "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"ttl\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[%d]}]}",
                 fresh_name("k"), slot == 6 ? "100ms" : "1h", name, slot));
    say_until(&talk, 201, "POST", "/v1/requests", best_body(fresh_name("k"), name, 4, "{\"together\":true}", ""));
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[5,6,7,8]"), "%s", talk.reply.body);
    talk_end(&talk);
}

Test(seats, best_is_read_strictly)
{
    static const struct {
        int count;
        const char *best, *part;
    } rows[] = {
        {1, "true", "permits[0].best must be an object"},
        {1, "{\"x\":1}", "unknown member permits[0].best.x"},
        {1, "{\"section\":\"A\"}", "permits[0].best.section must be"},
        {1, "{\"section\":[null]}", "permits[0].best.section[0] must be"},
        {1, "{\"section\":[\"A\",\"A\"]}", "permits[0].best has a name twice"},
        {1, "{\"tags\":[\"a b\"]}", "permits[0].best.tags[0] must be"},
        {1, "{\"not_tags\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}",
         "permits[0].best.not_tags must be"},
        {1, "{\"together\":1}", "permits[0].best.together must be"},
        {1, "{\"split\":1}", "permits[0].best.split must be"},
        {1, "{\"split\":2}", "permits[0].best.split requires together"},
        {200, "{\"split\":2,\"together\":true}", "at most 256"},
        {1001, "{}", "permits[0].count must be at most 1000"},
        {1, "{\"with\":[]}", "permits[0].best.with must be"},
        {1, "{\"with\":{\"a\":2}}", "permits[0].best.with must have"},
        {1, "{\"with\":{\"a\":0}}", "permits[0].best.with must have"},
        {1, "{\"with\":{\"a b\":1}}", "permits[0].best.with must have"},
        {1, "{\"with\":{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1}}", "permits[0].best.with must have"},
        {1, "{\"with\":{\"a\":1,\"\\u0061\":1}}", "permits[0].best has a name twice"},
        {1, "{},\"slots\":[1]", "cannot be combined"},
        {1, "{},\"any_of\":[1]", "permits[0].best cannot be combined"},
        {1, "{},\"adjacent\":true", "permits[0].best cannot be combined"},
    };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_hall(&talk);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        refused(&talk, 422, "invalid", "POST", "/v1/requests",
                best_body(fresh_name("k"), name, rows[i].count, rows[i].best, ""));
        cr_expect_not_null(strstr(talk.reply.body, rows[i].part), "%s: %s", rows[i].best, talk.reply.body);
    }
    talk_end(&talk);
}
