/* SPDX-License-Identifier: MIT */
/* Changes of what a request holds: shrink, grow, exchange. */
#include <criterion/criterion.h>
#include <string.h>

#include "fixture.h"

/* "/v1/requests/KEY/VERB" */
static const char *change_path(const char *key, const char *verb)
{
    return text("/v1/requests/%s/%s", key, verb);
}

/* The body of a shrink or grow with these permits. */
static const char *permits_body(const char *permits, const char *nonce, int changes)
{
    return text("{\"permits\":[%s],\"nonce\":\"%s\",\"changes\":%d}", permits, nonce, changes);
}

static const char *exchange_body(const char *give, const char *take, const char *nonce, int changes)
{
    return text("{\"give\":[%s],\"take\":[%s],\"nonce\":\"%s\",\"changes\":%d}", give, take, nonce, changes);
}

static const char *count_of_units(const char *semaphore, int count)
{
    return text("{\"semaphore\":\"%s\",\"count\":%d}", semaphore, count);
}

static const char *slots_of(const char *semaphore, const char *slots)
{
    return text("{\"semaphore\":\"%s\",\"slots\":[%s]}", semaphore, slots);
}

/* Acquires this under a new key, which it returns. */
static const char *acquired(struct talk *talk, const char *permits)
{
    const char *key = fresh_name("cart");
    say(talk, 201, "POST", "/v1/requests",
        text("{\"external_id\":\"%s\",\"ttl\":\"1h\",\"permits\":[%s]}", key, permits));
    return key;
}

static int64_t in_use(struct talk *talk, const char *semaphore)
{
    say(talk, 200, "GET", semaphore_path(semaphore), NULL);
    return number_of(talk, "in_use");
}

/* The fence's answer for a token: its `state`, and its end_reason if that is not NULL. */
static void fence_is(struct talk *talk, const char *semaphore, int64_t token, int slot, const char *state,
                     const char *end_reason)
{
    const char *more = slot ? text("&slot=%d", slot) : "";
    say(talk, 200, "GET", text("/v1/semaphores/%s/fence?token=%lld%s", semaphore, (long long)token, more), NULL);
    text_is(talk, "state", state);
    if (end_reason)
        text_is(talk, "end_reason", end_reason);
}

Test(changes, shrink_gives_a_part_back_and_the_rest_keeps_its_token)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"slotted\"}");
    const char *key = acquired(&talk, slots_of(name, "1,2,3"));
    cr_expect_eq(number_of(&talk, "changes"), 0);
    int64_t token = number_of(&talk, "permits.0.token");
    say(&talk, 200, "POST", change_path(key, "shrink"), permits_body(slots_of(name, "2"), "n1", 0));
    cr_expect_eq(number_of(&talk, "changes"), 1);
    cr_expect_eq(number_of(&talk, "permits.0.token"), token);
    cr_expect_eq(number_of(&talk, "permits.0.count"), 2);
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[1,3]"), "%s", talk.reply.body);
    cr_expect_eq(in_use(&talk, name), 2);
    fence_is(&talk, name, token, 1, "ACQUIRED", NULL);
    fence_is(&talk, name, token, 2, "RELEASED", "released");
    fence_is(&talk, name, token, 4, "UNKNOWN", NULL);
    (void)acquired(&talk, slots_of(name, "2"));
    say(&talk, 200, "POST", change_path(key, "shrink"), permits_body(count_of_units(name, 1), "n2", 1));
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[1]"), "the highest number goes: %s", talk.reply.body);
    say(&talk, 200, "GET", request_path(key), NULL);
    cr_expect_eq(number_of(&talk, "changes"), 2);
    cr_expect_eq(number_of(&talk, "permits.0.token"), token);
    talk_end(&talk);
}

Test(changes, all_given_back_is_a_release)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    const char *key = acquired(&talk, count_of_units(name, 3));
    const char *body = permits_body(count_of_units(name, 3), "all", 0);
    say(&talk, 200, "POST", change_path(key, "shrink"), body);
    text_is(&talk, "state", "RELEASED");
    text_is(&talk, "end_reason", "released");
    cr_expect_eq(in_use(&talk, name), 0);
    say(&talk, 200, "POST", change_path(key, "shrink"), body);
    text_is(&talk, "state", "RELEASED");
    refused(&talk, 410, "ended", "POST", change_path(key, "shrink"), permits_body(count_of_units(name, 3), "other", 1));
    talk_end(&talk);
}

/* Returns the deadline of the row. The one in answers moves with the clock of the database. */
static int64_t due_at(const char *key)
{
    struct kit_sql *sql = kit_sql_open(shared_socket(), "permitd");
    int64_t due = kit_sql_number(
        sql, "SELECT TIMESTAMPDIFF(MICROSECOND, '2000-01-01', due_at) FROM permit_request WHERE external_id = '%s'",
        key);
    kit_sql_close(sql);
    cr_assert_neq(due, INT64_MIN);
    return due;
}

Test(changes, grow_takes_all_or_nothing_under_new_tokens)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    const char *other = fresh_semaphore(&talk, "{\"capacity\":2,\"kind\":\"slotted\"}");
    const char *key = acquired(&talk, count_of_units(name, 2));
    int64_t token = number_of(&talk, "permits.0.token");
    int64_t due = due_at(key);
    const char *rival = acquired(&talk, slots_of(other, "1"));
    const char *both = text("%s,%s", count_of_units(name, 1), count_of_units(other, 2));
    refused(&talk, 423, "no_capacity", "POST", change_path(key, "grow"), permits_body(both, "n0", 0));
    cr_expect_eq(number_of(&talk, "blocking.0.in_use"), 1);
    cr_expect_eq(in_use(&talk, name), 2);
    release(&talk, rival);
    say(&talk, 200, "POST", change_path(key, "grow"), permits_body(both, "n1", 0));
    cr_expect_eq(number_of(&talk, "changes"), 1);
    cr_expect(kit_json_has(talk.reply.body, "expires_at"));
    cr_expect_eq(due_at(key), due);
    cr_expect_eq(number_of(&talk, "permits.0.count"), 3);
    cr_expect_gt(number_of(&talk, "permits.0.token"), token);
    cr_expect_eq(number_of(&talk, "permits.1.count"), 2);
    cr_expect_eq(in_use(&talk, name), 3);
    cr_expect_eq(in_use(&talk, other), 2);
    fence_is(&talk, name, token, 0, "RELEASED", "replaced");
    say(&talk, 200, "POST", "/v1/requests", acquire_body(key, name, 2, ",\"ttl\":\"1h\""));
    cr_expect_eq(number_of(&talk, "permits.0.count"), 3, "a replay shows the present permits");
    release(&talk, key);
    cr_expect_eq(in_use(&talk, name), 0);
    cr_expect_eq(in_use(&talk, other), 0);
    talk_end(&talk);
}

Test(changes, exchange_moves_to_another_seat_of_a_full_row)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"kind\":\"slotted\"}");
    say(&talk, 200, "PUT", text("/v1/semaphores/%s/slots", name), "{\"labels\":[\"A1\",\"A2\",\"A3\"]}");
    const char *key = acquired(&talk, slots_of(name, "\"A1\",\"A2\""));
    int64_t token = number_of(&talk, "permits.0.token");
    const char *rival = acquired(&talk, slots_of(name, "3"));
    const char *body = exchange_body(slots_of(name, "\"A1\""), slots_of(name, "\"A3\""), "n1", 0);
    refused(&talk, 423, "no_capacity", "POST", change_path(key, "exchange"), body);
    text_is(&talk, "blocking.0.taken.0.external_id", rival);
    cr_expect_eq(in_use(&talk, name), 3, "nothing was given back");
    release(&talk, rival);
    say(&talk, 200, "POST", change_path(key, "exchange"), body);
    cr_expect_gt(number_of(&talk, "permits.0.token"), token);
    cr_expect_not_null(strstr(talk.reply.body, "\"slots\":[2,3]"), "%s", talk.reply.body);
    cr_expect_not_null(strstr(talk.reply.body, "\"labels\":[\"A2\",\"A3\"]"), "%s", talk.reply.body);
    fence_is(&talk, name, token, 2, "RELEASED", "replaced");
    (void)acquired(&talk, slots_of(name, "1"));
    talk_end(&talk);
}

/* Units that the request itself gives back are its own, whoever waits. */
Test(changes, exchange_of_as_many_units_passes_waiters)
{
    struct talk talk = talk_to(shared_port()), waiting = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"kind\":\"slotted\",\"queue\":\"fifo\"}");
    const char *key = acquired(&talk, slots_of(name, "1"));
    const char *waiter = fresh_name("waiter");
    tell(&waiting, "POST", "/v1/requests", acquire_body(waiter, name, 3, ",\"wait\":\"60s\""));
    say_until(&talk, 200, "GET", request_path(waiter), NULL);
    refused(&talk, 423, "no_capacity", "POST", change_path(key, "grow"), permits_body(slots_of(name, "2"), "n0", 0));
    say(&talk, 200, "POST", change_path(key, "exchange"),
        exchange_body(slots_of(name, "1"), slots_of(name, "2"), "n1", 0));
    release(&talk, key);
    hear(&waiting, 201, NULL);
    release(&talk, waiter);
    talk_end(&waiting);
    talk_end(&talk);
}

Test(changes, what_a_shrink_gives_back_goes_to_a_waiter)
{
    struct talk talk = talk_to(shared_port()), waiting = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3,\"kind\":\"counted\"}");
    const char *key = acquired(&talk, count_of_units(name, 3));
    const char *waiter = fresh_name("waiter");
    tell(&waiting, "POST", "/v1/requests", acquire_body(waiter, name, 2, ",\"wait\":\"60s\""));
    say_until(&talk, 200, "GET", request_path(waiter), NULL);
    say(&talk, 200, "POST", change_path(key, "shrink"), permits_body(count_of_units(name, 2), "n1", 0));
    hear(&waiting, 201, NULL);
    talk_end(&waiting);
    talk_end(&talk);
}

Test(changes, are_made_once)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"kind\":\"counted\"}");
    const char *key = acquired(&talk, count_of_units(name, 1));
    const char *grow = permits_body(count_of_units(name, 1), "n1", 0);
    say(&talk, 200, "POST", change_path(key, "grow"), grow);
    cr_expect_not(kit_json_true(talk.reply.body, "replayed"));
    say(&talk, 200, "POST", change_path(key, "grow"), grow);
    cr_expect(kit_json_true(talk.reply.body, "replayed"));
    cr_expect_eq(number_of(&talk, "permits.0.count"), 2);
    say(&talk, 200, "POST", change_path(key, "grow"), permits_body(count_of_units(name, 1), "n2", 1));
    cr_expect_eq(number_of(&talk, "permits.0.count"), 3);
    refused(&talk, 412, "version_mismatch", "POST", change_path(key, "grow"), grow);
    detail_has(&talk, "changes is 2 now, not 0");
    cr_expect_eq(in_use(&talk, name), 3);
    talk_end(&talk);
}

Test(changes, are_refused)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"slotted\"}");
    const char *counted = fresh_semaphore(&talk, "{\"capacity\":5,\"kind\":\"counted\"}");
    const char *key = acquired(&talk, text("%s,%s", slots_of(name, "1,2"), count_of_units(counted, 2)));
    const char *shrink = change_path(key, "shrink"), *grow = change_path(key, "grow");
    refused(&talk, 422, "invalid", "POST", shrink, permits_body(slots_of(name, "3"), "n", 0));
    detail_has(&talk, "does not hold slot 3");
    refused(&talk, 422, "invalid", "POST", shrink, permits_body(slots_of(name, "\"Z\""), "n", 0));
    detail_has(&talk, "does not hold slot Z");
    refused(&talk, 422, "invalid", "POST", shrink, permits_body(count_of_units(name, 3), "n", 0));
    detail_has(&talk, "3 to give back, the request holds 2");
    refused(&talk, 422, "invalid", "POST", shrink, permits_body(slots_of(counted, "1"), "n", 0));
    detail_has(&talk, "it has no slots");
    refused(&talk, 422, "invalid", "POST", shrink, permits_body(count_of_units("elsewhere", 1), "n", 0));
    detail_has(&talk, "elsewhere: the request holds nothing of it");
    refused(&talk, 422, "invalid", "POST", shrink,
            permits_body(text("{\"semaphore\":\"%s\",\"any_of\":[1]}", name), "n", 0));
    detail_has(&talk, "permits[0].any_of");
    refused(&talk, 422, "invalid", "POST", shrink,
            permits_body(text("%s,%s", slots_of(name, "1"), slots_of(name, "2")), "n", 0));
    refused(&talk, 422, "invalid", "POST", shrink, text("{\"permits\":[%s],\"changes\":0}", slots_of(name, "1")));
    detail_has(&talk, "nonce");
    refused(&talk, 422, "invalid", "POST", shrink, text("{\"permits\":[%s],\"nonce\":\"n\"}", slots_of(name, "1")));
    detail_has(&talk, "changes");
    refused(&talk, 422, "invalid", "POST", change_path(key, "exchange"), permits_body(slots_of(name, "1"), "n", 0));
    refused(&talk, 422, "never_satisfiable", "POST", grow, permits_body(count_of_units(counted, 4), "n", 0));
    detail_has(&talk, "would hold 6, it may hold 5");
    refused(&talk, 422, "never_satisfiable", "POST", grow, permits_body(slots_of(name, "6"), "n", 0));
    refused(&talk, 404, "unknown_semaphore", "POST", grow, permits_body(count_of_units("elsewhere", 1), "n", 0));
    detail_has(&talk, "elsewhere");
    refused(&talk, 404, "unknown_request", "POST", change_path("no-such", "grow"),
            permits_body(count_of_units(counted, 1), "n", 0));
    detail_has(&talk, "no-such");
    say(&talk, 200, "POST", change_path(key, "confirm"), NULL);
    refused(&talk, 409, "confirmed", "POST", shrink, permits_body(slots_of(name, "1"), "n", 0));
    cr_expect_eq(in_use(&talk, name), 2);
    cr_expect_eq(in_use(&talk, counted), 2);
    talk_end(&talk);
}

Test(changes, are_not_of_a_request_that_waits)
{
    struct talk talk = talk_to(shared_port()), waiting = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"kind\":\"counted\"}");
    const char *key = acquired(&talk, count_of_units(name, 1));
    const char *waiter = fresh_name("waiter");
    tell(&waiting, "POST", "/v1/requests", acquire_body(waiter, name, 1, ",\"wait\":\"60s\""));
    say_until(&talk, 200, "GET", request_path(waiter), NULL);
    refused(&talk, 404, "unknown_request", "POST", change_path(waiter, "shrink"),
            permits_body(count_of_units(name, 1), "n", 0));
    release(&talk, key);
    hear(&waiting, 201, NULL);
    talk_end(&waiting);
    talk_end(&talk);
}

static void held_at(struct talk *talk, const char *name, const char *at)
{
    say(talk, 200, "GET", text("/v1/requests?semaphore=%s&at=%s", name, at), NULL);
}

/* Returns the time of a grant now. Named slots are granted by the database's clock, and so are changes. */
static const char *time_now(struct talk *talk)
{
    const char *clock = fresh_semaphore(talk, "{\"capacity\":1,\"kind\":\"slotted\"}");
    (void)acquired(talk, slots_of(clock, "1"));
    return kept(kit_json_text(talk->reply.body, "acquired_at"));
}

Test(changes, the_record_shows_what_was_held_at_a_time)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9,\"kind\":\"slotted\"}");
    const char *key = acquired(&talk, slots_of(name, "1,2,3"));
    int64_t first = number_of(&talk, "permits.0.token");
    const char *granted = time_now(&talk);
    say(&talk, 200, "POST", change_path(key, "shrink"), permits_body(slots_of(name, "1"), "n1", 0));
    const char *shrunk = time_now(&talk);
    say(&talk, 200, "POST", change_path(key, "exchange"),
        exchange_body(slots_of(name, "2"), slots_of(name, "7"), "n2", 1));
    int64_t second = number_of(&talk, "permits.0.token");
    const char *exchanged = time_now(&talk);
    (void)acquired(&talk, slots_of(name, "1"));
    const struct {
        const char *at, *slots;
        int64_t token;
    } cases[] = {{granted, "\"slots\":[1,2,3]", first},
                 {shrunk, "\"slots\":[2,3]", first},
                 {exchanged, "\"slots\":[3,7]", second}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        held_at(&talk, name, cases[i].at);
        cr_expect_eq(kit_json_length(talk.reply.body, "requests"), 1, "%s", talk.reply.body);
        text_is(&talk, "requests.0.external_id", key);
        cr_expect_not_null(strstr(talk.reply.body, cases[i].slots), "%zu: %s", i, talk.reply.body);
        cr_expect_eq(number_of(&talk, "requests.0.permits.0.token"), cases[i].token);
    }
    talk_end(&talk);
}
