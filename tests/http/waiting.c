/* SPDX-License-Identifier: MIT */
/* Acquires that wait: order of grants, ends of waits, clients that disconnect, and lists of waiters. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fixture.h"

enum { LONG_MS = 120000 };

/* The body of an acquire that waits; wait NULL: it does not. */
static const char *waiting_body(const char *key, const char *name, int count, const char *wait)
{
    return acquire_body(key, name, count, wait ? text(",\"wait\":\"%s\"", wait) : "");
}

static void acquire(struct talk *talk, const char *key, const char *name, int count)
{
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, name, count, ""));
}

/* Sends an acquire that waits; `hear` reads its answer. */
static struct talk waiter(unsigned port, const char *key, const char *name, int count, const char *wait)
{
    struct talk talk = talk_to(port);
    tell(&talk, "POST", "/v1/requests", waiting_body(key, name, count, wait));
    return talk;
}

struct expected {
    struct talk *talk;
    const char *path;
    const char *member;
    int64_t number;
};

static bool is_number(void *context)
{
    struct expected *expected = context;
    say(expected->talk, 200, "GET", expected->path, NULL);
    return number_of(expected->talk, expected->member) == expected->number;
}

static void wait_for_member(struct talk *talk, const char *name, const char *member, int64_t number)
{
    struct expected expected = {talk, semaphore_path(name), member, number};
    cr_assert(kit_wait_until(is_number, &expected, LONG_MS), "%s", talk->reply.body);
}

/* Waits until exactly `count` requests wait for the semaphore. */
static void wait_for_waiting(struct talk *talk, const char *name, int64_t count)
{
    wait_for_member(talk, name, "waiting", count);
}

/* Sends an acquire that waits, and returns once the semaphore has n waiters. */
static struct talk join_waitlist(struct talk *talk, const char *key, const char *name, int count, const char *wait,
                                 int64_t n)
{
    struct talk one = waiter(talk->http.port, key, name, count, wait);
    wait_for_waiting(talk, name, n);
    return one;
}

/* ---- granted ---- */

Test(waiting, ends_when_the_unit_is_released, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    acquire(&talk, held, name, 1);
    int64_t token = number_of(&talk, "permits.0.token");
    struct talk one = join_waitlist(&talk, key, name, 1, "10m", 1);
    cr_assert_geq(number_of(&talk, "oldest_wait_ms"), 0);
    cr_assert_eq(number_of(&talk, "in_use"), 1);
    say(&talk, 200, "GET", request_path(key), NULL);
    text_is(&talk, "state", "WAITING");
    release(&talk, held);
    hear(&one, 201, NULL);
    text_is(&one, "external_id", key);
    cr_assert_not(kit_json_true(one.reply.body, "replayed"), "%s", one.reply.body);
    cr_assert_gt(number_of(&one, "permits.0.token"), token);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "waiting"), 0);
    cr_assert_eq(number_of(&talk, "oldest_wait_ms"), 0);
    cr_assert_eq(number_of(&talk, "in_use"), 1);
    say(&one, 200, "GET", request_path(key), NULL); /* the connection is kept */
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, is_skipped_when_units_are_free, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    say(&talk, 201, "POST", "/v1/requests", waiting_body(key, name, 1, "10m"));
    say(&talk, 200, "POST", "/v1/requests", waiting_body(key, name, 1, "5m"));
    cr_assert(kit_json_true(talk.reply.body, "replayed"), "%s", talk.reply.body);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", waiting_body(fresh_name("k"), name, 1, "0s"));
    talk_end(&talk);
}

static void kill_session(void *context, char **columns)
{
    (void)kit_sql_try(context, "KILL %s", columns[0]); /* the session may have ended by itself */
}

/* Kills permitd's sessions on a database of its own. */
static void kill_sessions(void)
{
    const char *socket = shared_socket();
    struct kit_sql *list = kit_sql_open(socket, NULL), *killer = kit_sql_open(socket, NULL);
    cr_assert_gt(
        kit_sql_each(list, text("SELECT id FROM information_schema.processlist WHERE db = '%s'", own_database("own0")),
                     kill_session, killer),
        0);
    kit_sql_close(list);
    kit_sql_close(killer);
}

/* The server ends sessions that are idle for 5 s, such as the wait poll's after 5 s without a waiter. */
Test(waiting, works_after_the_poll_session_has_ended, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--wait-poll", "50ms", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    acquire(&talk, fresh_name("k"), name, 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", waiting_body(fresh_name("k"), name, 1, "300ms"));
    kill_sessions();
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", waiting_body(fresh_name("k"), name, 1, "300ms"));
    char *log = kit_read_file(permitd->log_path);
    cr_assert_not(strstr(log, "task=\"wait poll\""), "%s", log);
    free(log);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(waiting, is_granted_in_order_of_arrival, .timeout = 300)
{
    enum { COUNT = 5 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *holder = fresh_name("k"), *keys[COUNT];
    struct talk line[COUNT];
    acquire(&talk, holder, name, 1);
    for (int i = 0; i < COUNT; i++)
        line[i] = join_waitlist(&talk, keys[i] = fresh_name("k"), name, 1, "10m", i + 1);
    for (int i = 0; i < COUNT; i++) {
        release(&talk, holder);
        hear(&line[i], 201, NULL);
        wait_for_waiting(&talk, name, COUNT - 1 - i);
        holder = keys[i];
        talk_end(&line[i]);
    }
    talk_end(&talk);
}

Test(waiting, is_granted_all_units_or_none, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *a = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *b = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *of_a = fresh_name("k"), *of_b = fresh_name("k");
    struct talk both = talk_to(shared_port());
    acquire(&talk, of_a, a, 1);
    acquire(&talk, of_b, b, 1);
    tell(&both, "POST", "/v1/requests",
         text("{\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\",\"count\":2}],\"wait\":\"10m\"}", a, b));
    wait_for_waiting(&talk, a, 1);
    wait_for_waiting(&talk, b, 1);
    release(&talk, of_a);
    say(&talk, 200, "GET", semaphore_path(a), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    cr_assert_eq(number_of(&talk, "waiting"), 1);
    release(&talk, of_b);
    hear(&both, 201, NULL);
    cr_assert_eq(kit_json_length(both.reply.body, "permits"), 2);
    talk_end(&both);
    talk_end(&talk);
}

Test(waiting, is_granted_when_a_holder_expires, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"default_ttl\":\"300ms\"}");
    acquire(&talk, fresh_name("k"), name, 1);
    struct talk one = waiter(shared_port(), fresh_name("k"), name, 1, "10m");
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, is_granted_when_the_capacity_grows, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    struct talk one = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":1}");
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
}

/* ---- refused ---- */

Test(waiting, expired_wait_names_holders_and_waiters_ahead, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *held = fresh_name("k"), *first = fresh_name("k"), *second = fresh_name("k");
    acquire(&talk, held, name, 2);
    struct talk one = join_waitlist(&talk, first, name, 1, "10m", 1);
    int64_t before = kit_now_us();
    struct talk two = waiter(shared_port(), second, name, 1, "500ms");
    hear(&two, 423, "no_capacity");
    cr_assert_geq(kit_now_us() - before, 500000);
    text_is(&two, "blocking.0.semaphore", name);
    text_is(&two, "blocking.0.holders.0.external_id", held);
    cr_assert_eq(number_of(&two, "blocking.0.requested"), 1);
    cr_assert_eq(number_of(&two, "blocking.0.waiting_ahead"), 1);
    cr_assert_eq(kit_json_length(two.reply.body, "blocking.0.ahead"), 1);
    text_is(&two, "blocking.0.ahead.0", first);
    text_is(&two, "detail", text("%s: 2 of 2 in use, 1 asked, 1 waits before it, held longest by %s", name, held));
    say(&two, 200, "GET", request_path(second), NULL); /* its place is kept */
    text_is(&two, "state", "WAITING");
    cr_assert(kit_json_true(two.reply.body, "kept"), "%s", two.reply.body);
    talk_end(&two);
    release(&talk, held);
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, blocks_later_requests_in_a_fifo, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2,\"queue\":\"fifo\"}");
    const char *held = fresh_name("k"), *first = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk one = join_waitlist(&talk, first, name, 2, "10m", 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    text_is(&talk, "detail", text("%s: 1 of 2 in use, 1 asked, but 1 waits before it", name));
    cr_assert_eq(number_of(&talk, "blocking.0.waiting_ahead"), 1);
    text_is(&talk, "blocking.0.ahead.0", first);
    release(&talk, held);
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, lets_fitting_requests_pass_with_backfill, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2,\"queue\":\"backfill\"}");
    const char *held = fresh_name("k"), *small = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk one = join_waitlist(&talk, fresh_name("k"), name, 2, "10m", 1);
    acquire(&talk, small, name, 1);
    release(&talk, held);
    release(&talk, small);
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
}

/*
 * P20: served time stands still in the first 5 s after a start if no permitd has served before. The requests that come then
 * stand in the order of arrival, whichever worker numbers them.
 */
Test(waiting, in_the_first_seconds_after_a_start_is_in_the_order_of_arrival, .timeout = 300)
{
    enum { WAITERS = 12 };
    struct kit_permitd *before = own_permitd(NULL);
    kit_permitd_stop(before);
    struct kit_sql *sql = own_sql("own0");
    kit_sql_run(sql, "UPDATE cluster SET tick_at=tick_at-INTERVAL 60 SECOND,offset_us=offset_us-60000000");
    kit_sql_close(sql);
    struct kit_permitd_options options = {.database = own_url("own0"), .flags = patient_flags};
    struct kit_permitd *permitd = kit_permitd_start(&options);
    struct talk talk = talk_to(permitd->port), waiters[WAITERS];
    say(&talk, 200, "GET", "/v1/doctor", NULL);
    cr_assert_eq(number_of(&talk, "warnings"), 0, "the first tick is still to come: %s", talk.reply.body);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}"), *keys[WAITERS];
    acquire(&talk, fresh_name("k"), name, 1);
    for (int i = 0; i < WAITERS; i++) {
        keys[i] = fresh_name("k");
        waiters[i] = join_waitlist(&talk, keys[i], name, 1, "10m", i + 1);
    }
    say(&talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    for (int i = 0; i < WAITERS; i++) {
        text_is(&talk, text("waiters.%d.external_id", i), keys[i]);
        talk_end(&waiters[i]);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- what a waiter keeps from others ---- */

/* The body of an acquire of one unit of each of two semaphores. */
static const char *both_body(const char *key, const char *first, const char *second, const char *wait)
{
    return text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}],\"wait\":\"%s\"}",
                key, first, second, wait);
}

static struct talk join_both(struct talk *talk, const char *key, const char *first, const char *second)
{
    struct talk one = talk_to(talk->http.port);
    tell(&one, "POST", "/v1/requests", both_body(key, first, second, "10m"));
    wait_for_waiting(talk, second, 1);
    return one;
}

/* Waits until the first waiter of the semaphore has waited for that long. */
static void wait_for_age(struct talk *talk, const char *name, int64_t ms)
{
    do
        say(talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    while (number_of(talk, "waiters.0.waited_ms") < ms);
}

/* P20, P23: a job that waits for its database and one of three backup slots keeps one of them, not three. */
Test(waiting, beyond_the_bound_reserves_its_need_and_no_more, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--backfill-bound", "200ms", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *database = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *backups = fresh_semaphore(&talk, "{\"capacity\":3}");
    const char *held = fresh_name("k"), *job = fresh_name("job");
    acquire(&talk, held, database, 1);
    struct talk one = join_both(&talk, job, database, backups);
    wait_for_age(&talk, backups, 200);
    acquire(&talk, fresh_name("k"), backups, 1);
    acquire(&talk, fresh_name("k"), backups, 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(NULL, backups, 1, ""));
    text_is(&talk, "blocking.0.ahead.0", job);
    release(&talk, held);
    hear(&one, 201, NULL);
    talk_end(&one);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* A need that can never be met keeps no units from others. */
Test(waiting, beyond_the_bound_reserves_nothing_if_that_cannot_help, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--backfill-bound", "200ms", NULL});
    struct talk talk = talk_to(permitd->port);
    static const char *const cases[] = {"confirmed", "paused", "closed"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *database = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *backups = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *held = fresh_name("k");
        acquire(&talk, held, database, 1);
        struct talk one = join_both(&talk, fresh_name("job"), database, backups);
        if (i == 0)
            say(&talk, 200, "POST", text("%s/confirm", request_path(held)), NULL);
        else if (i == 1)
            say(&talk, 200, "POST", text("%s/pause", semaphore_path(database)), "{\"reason\":\"repair\"}");
        else
            say(&talk, 200, "PUT", semaphore_path(database), "{\"capacity\":0}");
        wait_for_age(&talk, backups, 200);
        acquire(&talk, fresh_name("k"), backups, 1);
        talk_end(&one);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Asserts what /why shows at the only semaphore of the key: reserved for `job`, which lacks these; NULL: there is no more. */
static void is_reserved(struct talk *talk, const char *key, const char *job, const char *lacks, const char *too)
{
    say(talk, 200, "GET", text("%s/why", request_path(key)), NULL);
    text_is(talk, "state", "WAITING");
    if (!job) {
        cr_assert_not(kit_json_has(talk->reply.body, "waiting_for.0.reserved_for"), "%s", talk->reply.body);
        return;
    }
    text_is(talk, "waiting_for.0.reserved_for.external_id", job);
    cr_assert_not(kit_json_has(talk->reply.body, "waiting_for.0.reserved_for.namespace"), "%s", talk->reply.body);
    cr_assert_eq(kit_json_length(talk->reply.body, "waiting_for.0.reserved_for.lacks"), too ? 2 : 1, "%s",
                 talk->reply.body);
    bool sorted = !too || strcmp(lacks, too) < 0;
    text_is(talk, "waiting_for.0.reserved_for.lacks.0", sorted ? lacks : too);
    if (too)
        text_is(talk, "waiting_for.0.reserved_for.lacks.1", sorted ? too : lacks);
}

/* The job waits for the database, which is held, and for the backup slot, which another one waits for. */
Test(waiting, why_shows_the_waiter_for_which_units_are_reserved, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--backfill-bound", "200ms", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *database = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *backups = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *slot = fresh_name("k"), *job = fresh_name("job"), *key = fresh_name("k");
    acquire(&talk, held, database, 1);
    acquire(&talk, slot, backups, 1);
    struct talk one = join_both(&talk, job, database, backups);
    struct talk two = join_waitlist(&talk, key, backups, 1, "10m", 2);
    wait_for_age(&talk, backups, 200);
    is_reserved(&talk, key, job, database, backups);
    is_reserved(&talk, job, NULL, NULL, NULL); /* nobody stands before it */

    say(&talk, 200, "POST", text("%s/pause", semaphore_path(database)), "{\"reason\":\"repair\"}");
    is_reserved(&talk, key, NULL, NULL, NULL);
    say(&talk, 200, "POST", text("%s/resume", semaphore_path(database)), NULL);
    is_reserved(&talk, key, job, database, backups);
    say(&talk, 200, "PUT", semaphore_path(database), "{\"capacity\":0}");
    is_reserved(&talk, key, NULL, NULL, NULL);
    say(&talk, 200, "PUT", semaphore_path(database), "{\"capacity\":1}");

    release(&talk, slot); /* the slot is free, and waits for the job */
    is_reserved(&talk, key, job, database, NULL);
    cr_assert_eq(number_of(&talk, "waiting_for.0.in_use"), 0);
    text_is(&talk, "waiting_for.0.ahead.0", job);
    release(&talk, held);
    hear(&one, 201, NULL);
    is_reserved(&talk, key, NULL, NULL, NULL);
    release(&talk, job);
    hear(&two, 201, NULL);
    talk_end(&one);
    talk_end(&two);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* A waiter that is young, that lacks confirmed units, or that no client asks for, reserves nothing. */
Test(waiting, why_shows_no_waiter_that_reserves_nothing, .timeout = 300)
{
    static const char *const cases[] = {"young", "confirmed", "kept"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kit_permitd *permitd = own_permitd((const char *const[]){"--backfill-bound", i ? "200ms" : "1h", NULL});
        struct talk talk = talk_to(permitd->port);
        const char *database = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *backups = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *held = fresh_name("k"), *key = fresh_name("k");
        acquire(&talk, held, database, 1);
        acquire(&talk, fresh_name("k"), backups, 1);
        struct talk one = join_both(&talk, fresh_name("job"), database, backups);
        struct talk two = join_waitlist(&talk, key, backups, 1, "10m", 2);
        wait_for_age(&talk, backups, 200);
        if (i == 1)
            say(&talk, 200, "POST", text("%s/confirm", request_path(held)), NULL);
        if (i == 2) {
            talk_end(&one);
            wait_for_waiting(&talk, backups, 1);
        }
        is_reserved(&talk, key, NULL, NULL, NULL);
        if (i != 2)
            talk_end(&one);
        talk_end(&two);
        talk_end(&talk);
        kit_permitd_stop(permitd);
    }
}

/* The unit is free, and the waiter before cannot use it. */
/* Of two slots one is sold and the other held: a waiter for both, and for a unit, keeps that unit from nobody. */
Test(waiting, for_a_slot_that_is_sold_reserves_nothing, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--backfill-bound", "200ms", NULL});
    struct talk talk = talk_to(permitd->port);
    for (int sold = 1; sold <= 2; sold++) {
        const char *hall = fresh_semaphore(&talk, "{\"capacity\":3}"),
                   *other = fresh_semaphore(&talk, "{\"capacity\":1}");
        for (int slot = 1; slot <= 2; slot++) {
            const char *key = fresh_name("k");
            say(&talk, 201, "POST", "/v1/requests",
                text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[%d]}]}", key, hall, slot));
            if (slot == sold)
                say(&talk, 200, "POST", text("%s/confirm", request_path(key)), NULL);
        }
        struct talk one = talk_to(permitd->port);
        tell(&one, "POST", "/v1/requests",
             text("{\"wait\":\"100s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[1,2]},{\"semaphore\":\"%s\"}]}",
                  hall, other));
        wait_for_waiting(&talk, other, 1);
        wait_for_age(&talk, other, 200);
        acquire(&talk, fresh_name("k"), other, 1);
        talk_end(&one);
    }
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* Of the waiter's slot the batch of the others reads more than was planned at first, in the order of the semaphores. */
Test(waiting, for_a_slot_and_a_unit_lets_those_pass_that_want_both, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *hall = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *other = fresh_semaphore(&talk, "{\"capacity\":2}");
    acquire(&talk, fresh_name("k"), hall, 2);
    struct talk one = talk_to(shared_port());
    const char *job = fresh_name("job");
    tell(&one, "POST", "/v1/requests",
         text("{\"external_id\":\"%s\",\"wait\":\"100s\",\"permits\":[{\"semaphore\":\"%s\",\"slots\":[1]},"
              "{\"semaphore\":\"%s\"}]}",
              job, hall, other));
    wait_for_waiting(&talk, hall, 1);
    for (int round = 0; round < 3; round++) {
        const char *key = fresh_name("k");
        acquire(&talk, key, other, 1);
        say(&talk, 423, "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}]}",
                 fresh_name("k"), hall, other));
        release(&talk, key);
    }
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, for_two_lets_those_pass_that_do_not_wait, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    static const char *const cases[] = {"full", "paused", "closed"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *first = fresh_semaphore(&talk, "{\"capacity\":1}");
        const char *second = fresh_semaphore(&talk, "{\"capacity\":1}");
        acquire(&talk, fresh_name("k"), first, 1);
        struct talk one = join_both(&talk, fresh_name("job"), first, second);
        if (i == 1)
            say(&talk, 200, "POST", text("%s/pause", semaphore_path(first)), "{\"reason\":\"repair\"}");
        if (i == 2)
            say(&talk, 200, "PUT", semaphore_path(first), "{\"capacity\":0}");
        for (int round = 0; round < 3; round++) {
            const char *key = fresh_name("k");
            acquire(&talk, key, second, 1);
            release(&talk, key);
        }
        talk_end(&one);
    }
    talk_end(&talk);
}

/* More waiters stand before it than a batch reads at first; none of them can use the unit. */
Test(waiting, behind_many_that_wait_for_something_else_is_granted, .timeout = 300)
{
    enum { COUNT = 70 };
    struct talk talk = talk_to(shared_port());
    const char *network = fresh_semaphore(&talk, "{\"capacity\":1,\"kind\":\"counted\"}");
    struct talk jobs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const char *host = fresh_semaphore(&talk, "{\"capacity\":1}");
        acquire(&talk, fresh_name("k"), host, 1);
        jobs[i] = talk_to(shared_port());
        tell(&jobs[i], "POST", "/v1/requests", both_body(fresh_name("job"), host, network, "10m"));
    }
    wait_for_waiting(&talk, network, COUNT);
    const char *key = fresh_name("k");
    acquire(&talk, key, network, 1);
    release(&talk, key);
    say(&talk, 201, "POST", "/v1/requests", waiting_body(fresh_name("k"), network, 1, "10m"));
    for (int i = 0; i < COUNT; i++)
        talk_end(&jobs[i]);
    talk_end(&talk);
}

/* P20: who waits for a closed semaphore is in nobody's way, however many these are. A batch on the network reads them plainly. */
Test(waiting, under_fifo_behind_many_of_closed_semaphores_is_granted, .timeout = 300)
{
    enum { COUNT = 70 };
    struct talk talk = talk_to(shared_port());
    const char *network = fresh_semaphore(&talk, "{\"capacity\":1,\"kind\":\"counted\",\"queue\":\"fifo\"}");
    const char *first = fresh_name("k"), *second = fresh_name("k");
    struct talk jobs[COUNT];
    acquire(&talk, first, network, 1);
    for (int i = 0; i < COUNT; i++) {
        const char *host = fresh_semaphore(&talk, "{\"capacity\":0}");
        jobs[i] = talk_to(shared_port());
        tell(&jobs[i], "POST", "/v1/requests", both_body(fresh_name("job"), host, network, "10m"));
    }
    wait_for_waiting(&talk, network, COUNT);
    struct talk waiter = join_waitlist(&talk, second, network, 1, "10m", COUNT + 1);
    release(&talk, first);
    hear(&waiter, 201, NULL);
    release(&talk, second);
    say(&talk, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), network, 1, ""));
    for (int i = 0; i < COUNT; i++)
        talk_end(&jobs[i]);
    talk_end(&waiter);
    talk_end(&talk);
}

Test(waiting, ends_when_the_capacity_shrinks_below_it, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":3}");
    acquire(&talk, fresh_name("k"), name, 1);
    struct talk three = join_waitlist(&talk, fresh_name("k"), name, 3, "10m", 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":2}");
    hear(&three, 422, "never_satisfiable");
    wait_for_waiting(&talk, name, 0);
    talk_end(&three);
    talk_end(&talk);
}

Test(waiting, ends_when_its_semaphore_is_retired, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    struct talk one = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    say(&talk, 200, "DELETE", semaphore_path(name), NULL);
    hear(&one, 404, "unknown_semaphore");
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, continues_while_the_semaphore_is_paused, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":2}");
    say(&talk, 200, "POST", text("%s/pause", semaphore_path(name)), "{\"reason\":\"a new disk\"}");
    struct talk patient = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    struct talk hasty = waiter(shared_port(), fresh_name("k"), name, 1, "300ms");
    hear(&hasty, 423, "paused");
    cr_assert(strstr(hasty.reply.body, "a new disk"), "%s", hasty.reply.body);
    say(&talk, 200, "POST", text("%s/resume", semaphore_path(name)), NULL);
    hear(&patient, 201, NULL);
    talk_end(&patient);
    talk_end(&hasty);
    talk_end(&talk);
}

Test(waiting, ends_with_a_release_of_its_key, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    acquire(&talk, fresh_name("k"), name, 1);
    struct talk one = join_waitlist(&talk, key, name, 1, "10m", 1);
    release(&talk, key);
    text_is(&talk, "end_reason", "never_held");
    hear(&one, 410, "ended");
    text_is(&one, "end_reason", "never_held");
    wait_for_waiting(&talk, name, 0);
    refused(&one, 410, "ended", "POST", "/v1/requests", waiting_body(key, name, 1, "1m"));
    talk_end(&one);
    talk_end(&talk);
}

/* ---- several clients with one key ---- */

/* The body of an acquire with a nonce; its digest equals that of acquire_body without it. */
static const char *acquire_of(const char *nonce, const char *key, const char *name, const char *wait)
{
    return text("{\"nonce\":\"%s\",%s", nonce, waiting_body(key, name, 1, wait) + 1);
}

Test(waiting, under_one_key_grants_to_the_first_connected_client, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk gone = talk_to(shared_port());
    refused(&gone, 423, "no_capacity", "POST", "/v1/requests", acquire_of("gone", key, name, "300ms"));
    struct talk first = talk_to(shared_port()), second = talk_to(shared_port());
    tell(&first, "POST", "/v1/requests", acquire_of("first", key, name, "10m"));
    wait_for_waiting(&talk, name, 1);
    tell(&second, "POST", "/v1/requests", acquire_of("second", key, name, "500ms"));
    hear(&second, 423, "no_capacity"); /* it shared the place of the first */
    tell(&second, "POST", "/v1/requests", acquire_of("second", key, name, "10m"));
    release(&talk, held);
    hear(&first, 201, NULL);
    hear(&second, 200, NULL);
    cr_assert(kit_json_has(second.reply.body, "yours"), "%s", second.reply.body);
    cr_assert_not(kit_json_true(second.reply.body, "yours"), "%s", second.reply.body);
    say(&gone, 200, "POST", "/v1/requests", acquire_of("gone", key, name, NULL));
    cr_assert_not(kit_json_true(gone.reply.body, "yours"), "%s", gone.reply.body);
    say(&first, 200, "POST", "/v1/requests", acquire_of("first", key, name, NULL));
    cr_assert(kit_json_true(first.reply.body, "yours"), "%s", first.reply.body);
    talk_end(&gone);
    talk_end(&first);
    talk_end(&second);
    talk_end(&talk);
}

Test(waiting, twice_under_one_key_has_one_place_and_one_grant, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk one = join_waitlist(&talk, key, name, 1, "10m", 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    struct talk two = waiter(shared_port(), key, name, 1, "500ms"); /* no waiter is ahead: it shares the first place */
    hear(&two, 423, "no_capacity");
    cr_assert_not(kit_json_has(two.reply.body, "blocking.0.ahead"), "%s", two.reply.body);
    tell(&two, "POST", "/v1/requests", waiting_body(key, name, 1, "9m"));
    refused(&talk, 422, "key_reused", "POST", "/v1/requests",
            text("{\"external_id\":\"%s\",\"ttl\":7,\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":\"1m\"}", key, name));
    wait_for_waiting(&talk, name, 1);
    release(&talk, held);
    hear(&one, 201, NULL);
    int64_t token = number_of(&one, "permits.0.token");
    reply_release(&two.reply);
    cr_assert(kit_http_receive(&two.http, "", &two.reply), "%s", two.reply.error);
    cr_assert_eq(two.reply.status / 100, 2, "%s", two.reply.body); /* 200 if it arrived after the grant */
    cr_assert_eq(number_of(&two, "permits.0.token"), token);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 1);
    talk_end(&one);
    talk_end(&two);
    talk_end(&talk);
}

/* A client that waits under this key. */
struct arrival {
    struct talk *talk;
    const struct talk *client;
    const char *key;
};

/* Returns true if the client waits, or is answered already. */
static bool has_arrived(void *context)
{
    struct arrival *arrival = context;
    struct pollfd look = {.fd = arrival->client->http.fd, .events = POLLIN};
    reply_release(&arrival->talk->reply);
    return poll(&look, 1, 0) == 1 ||
           (kit_http_get(&arrival->talk->http, text("%s/why", request_path(arrival->key)), &arrival->talk->reply) &&
            arrival->talk->reply.status == 200);
}

/* After the wait of a key has expired its place is kept for 10 s, for the same key and content. */
Test(waiting, in_several_requests_keeps_the_place, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *first = fresh_name("k"), *second = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk one = waiter(shared_port(), first, name, 1, "3s");
    cr_assert(kit_wait_until(has_arrived, &(struct arrival){&talk, &one, first}, LONG_MS));
    struct talk two = waiter(shared_port(), second, name, 1, "10m");
    cr_assert(kit_wait_until(has_arrived, &(struct arrival){&talk, &two, second}, LONG_MS));
    hear(&one, 423, "no_capacity");
    tell(&one, "POST", "/v1/requests", waiting_body(first, name, 1, "10m"));
    wait_for_waiting(&talk, name, 2);
    say(&talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    text_is(&talk, "waiters.0.external_id", first);
    text_is(&talk, "waiters.1.external_id", second);
    release(&talk, held);
    hear(&one, 201, NULL);
    release(&talk, first);
    hear(&two, 201, NULL);
    talk_end(&one);
    talk_end(&two);
    talk_end(&talk);
}

/* ---- clients that disconnect ---- */

Test(waiting, ends_with_the_connection, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *keys[3];
    struct talk line[3];
    acquire(&talk, held, name, 1);
    for (int i = 0; i < 3; i++)
        line[i] = join_waitlist(&talk, keys[i] = fresh_name("k"), name, 1, "10m", i + 1);
    const struct linger reset = {.l_onoff = 1};
    setsockopt(line[0].http.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    talk_end(&line[0]);                 /* reset */
    talk_end(&line[1]);                 /* closed */
    shutdown(line[2].http.fd, SHUT_WR); /* closed for sending only */
    wait_for_waiting(&talk, name, 0);
    talk_end(&line[2]);
    release(&talk, held);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "in_use"), 0);
    for (int i = 0; i < 3; i++) /* their places are kept for 10 s */
        say_until(&talk, 404, "GET", request_path(keys[i]), NULL);
    talk_end(&talk);
}

Test(waiting, continues_when_the_client_pipelines, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    const char *path = semaphore_path(name);
    acquire(&talk, held, name, 1);
    struct talk one = join_waitlist(&talk, key, name, 1, "10m", 1);
    const char *next = text("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n", path);
    cr_assert_eq(send(one.http.fd, next, strlen(next), MSG_NOSIGNAL), (ssize_t)strlen(next));
    for (int i = 0; i < 20; i++) /* gives the loop time to see the bytes */
        say(&talk, 200, "GET", path, NULL);
    cr_assert_eq(number_of(&talk, "waiting"), 1);
    release(&talk, held);
    static char bytes[65536];
    size_t length = 0;
    for (ssize_t got; (got = recv(one.http.fd, bytes + length, sizeof bytes - 1 - length, 0)) > 0;)
        length += (size_t)got;
    char *grant = strstr(bytes, "201 Created");
    char *look = grant ? strstr(grant, "200 OK") : NULL;
    cr_assert(look && strstr(look, "400 "), "%s", bytes);
    talk_end(&one);
    talk_end(&talk);
}

/* Bytes that arrive during a wait are buffered up to a limit, and read when they are needed. */
Test(waiting, keeps_a_large_request_that_arrives_meanwhile, .timeout = 300)
{
    enum { BODY = 200 * 1024 };
    static char next[BODY + 200];
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k"), *key = fresh_name("k");
    acquire(&talk, held, name, 1);
    struct talk one = join_waitlist(&talk, key, name, 1, "10m", 1);
    int length = snprintf(
        next, sizeof next,
        "POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        "{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]",
        BODY, key, name);
    const char *body = strchr(next, '{');
    memset(next + length, ' ', sizeof next - (size_t)length);
    size_t all = (size_t)(body - next) + BODY;
    next[all - 1] = '}';
    cr_assert_eq(send(one.http.fd, next, all, MSG_NOSIGNAL), (ssize_t)all);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_eq(number_of(&talk, "waiting"), 1);
    release(&talk, held);
    char bytes[8192] = "";
    size_t read = 0;
    for (ssize_t got = 1; got > 0 && !strstr(bytes, "\"replayed\":true"); read += (size_t)got)
        got = recv(one.http.fd, bytes + read, sizeof bytes - 1 - read, 0);
    char *grant = strstr(bytes, "201 Created");
    cr_assert(grant && strstr(grant, "200 OK") && strstr(grant, "\"replayed\":true"), "%s", bytes);
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, honours_connection_close, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    struct talk one = talk_to(shared_port());
    one.http.timeout_ms = LONG_MS;
    cr_assert(kit_http_send(&one.http, "POST", "/v1/requests", "Connection: close\r\n",
                            waiting_body(fresh_name("k"), name, 1, "10m")));
    wait_for_waiting(&talk, name, 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":1}");
    hear(&one, 201, NULL);
    header_is(&one, "Connection", "close");
    talk_end(&one);
    talk_end(&talk);
}

static bool is_alone(void *context)
{
    return metric_of(context, "permitd_http_connections") == 1;
}

/* Sends an acquire, and disconnects while its batch runs. The permitd must be the test's first own_permitd. */
static void disconnect_during_the_batch(struct talk *talk, const char *key, const char *name)
{
    struct kit_sql *sql = own_sql("own0");
    kit_sql_run(sql, "BEGIN");
    (void)kit_sql_number(sql, "SELECT id FROM semaphore WHERE name = '%s' FOR UPDATE", name);
    struct talk gone = waiter(talk->http.port, key, name, 1, "10m");
    cr_assert(kit_wait_until(batch_waits, sql, LONG_MS));
    talk_end(&gone);
    cr_assert(kit_wait_until(is_alone, talk, LONG_MS));
    kit_sql_run(sql, "ROLLBACK");
    kit_sql_close(sql);
}

static bool one_has_ended(void *context)
{
    struct expected *expected = context;
    say(expected->talk, 200, "GET", expected->path, NULL);
    return kit_json_length(expected->talk->reply.body, "requests") == 1 &&
           kit_json_has(expected->talk->reply.body, "requests.0.ended_at");
}

/* permitd releases a grant under a key that it generated, if the answer cannot be sent. */
Test(waiting, abandoned_grant_under_a_generated_key_is_released, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"default_ttl\":\"1h\"}");
    disconnect_during_the_batch(&talk, NULL, name);
    struct expected expected = {.talk = &talk, .path = text("/v1/requests?semaphore=%s", name)};
    cr_assert(kit_wait_until(one_has_ended, &expected, LONG_MS), "%s", talk.reply.body);
    text_is(&talk, "requests.0.end_reason", "released");
    wait_for_member(&talk, name, "in_use", 0);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(waiting, abandoned_grant_under_a_client_key_is_kept, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"default_ttl\":\"1h\"}");
    const char *key = fresh_name("k");
    disconnect_during_the_batch(&talk, key, name);
    wait_for_member(&talk, name, "in_use", 1);
    say(&talk, 200, "POST", "/v1/requests", waiting_body(key, name, 1, "1m"));
    cr_assert(kit_json_true(talk.reply.body, "replayed"), "%s", talk.reply.body);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- lists, explanations, metrics ---- */

Test(waiting, is_listed_in_pages, .timeout = 300)
{
    enum { COUNT = 5 };
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":9}");
    const char *path = text("%s/waiters", semaphore_path(name)), *keys[COUNT];
    struct talk line[COUNT];
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "scope", "database");
    cr_assert_eq(kit_json_length(talk.reply.body, "waiters"), 0);
    acquire(&talk, fresh_name("k"), name, 9);
    for (int i = 0; i < COUNT; i++)
        line[i] = join_waitlist(&talk, keys[i] = fresh_name("k"), name, i + 1, "10m", i + 1);
    const char *next = NULL;
    for (int i = 0; i < COUNT; i += 2) {
        say(&talk, 200, "GET", text("%s?limit=2%s%s", path, next ? "&after=" : "", next ? next : ""), NULL);
        long shown = kit_json_length(talk.reply.body, "waiters");
        cr_assert_eq(shown, i + 1 < COUNT ? 2 : 1, "%s", talk.reply.body);
        for (long j = 0; j < shown; j++) {
            text_is(&talk, text("waiters.%ld.external_id", j), keys[i + j]);
            text_is(&talk, text("waiters.%ld.permits.0.semaphore", j), name);
            cr_assert_eq(number_of(&talk, text("waiters.%ld.permits.0.count", j)), i + j + 1);
            cr_assert_eq(number_of(&talk, text("waiters.%ld.place", j)), i + j + 1);
            cr_assert_gt(number_of(&talk, text("waiters.%ld.deadline_in_ms", j)), 0);
            cr_assert_geq(number_of(&talk, text("waiters.%ld.waited_ms", j)), 0);
            cr_assert_eq(number_of(&talk, text("waiters.%ld.priority", j)), 0);
            cr_assert_gt(number_of(&talk, text("waiters.%ld.server", j)), 0);
            cr_assert_not(kit_json_has(talk.reply.body, text("waiters.%ld.kept", j)), "%s", talk.reply.body);
            if (i + j)
                text_is(&talk, text("waiters.%ld.behind", j), keys[i + j - 1]);
            else
                cr_assert_not(kit_json_has(talk.reply.body, "waiters.0.behind"), "%s", talk.reply.body);
        }
        cr_assert_eq(kit_json_has(talk.reply.body, "next"), i + 2 < COUNT, "%s", talk.reply.body);
        if (i + 2 < COUNT)
            next = kept(kit_json_text(talk.reply.body, "next"));
    }
    say(&talk, 200, "GET", text("/v1/semaphores?prefix=%s", name), NULL);
    cr_assert_eq(number_of(&talk, "semaphores.0.waiting"), COUNT);
    for (int i = 0; i < COUNT; i++)
        talk_end(&line[i]);
    wait_for_waiting(&talk, name, 0);
    refused(&talk, 404, "unknown_semaphore", "GET", "/v1/semaphores/never-made/waiters", NULL);
    refused(&talk, 422, "invalid", "GET", text("%s?limit=0", path), NULL);
    refused(&talk, 422, "invalid", "GET", text("%s?before=1", path), NULL);
    const char *const afters[] = {"",
                                  "0",
                                  "1.2",
                                  "1.2.3",
                                  "1.2.3.4",
                                  "1..3",
                                  "-1.2.3",
                                  "1.2.3x",
                                  "1.2.9999999999999999999",
                                  text("0%s", next),
                                  text("%s.", next),
                                  text("%s0.5", next),
                                  "1795251600123456.0.1",
                                  "1795251600123456.1.01",
                                  "179525160012345678.1.1.",
                                  "%201795251600123456.1.1"};
    for (size_t i = 0; i < sizeof afters / sizeof afters[0]; i++) {
        refused(&talk, 422, "invalid", "GET", text("%s?after=%s", path, afters[i]), NULL);
        text_is(&talk, "detail", "after must be the next of a page of waiters, as it was given");
    }
    say(&talk, 200, "GET", text("%s?after=%s", path, next), NULL);
    refused(&talk, 405, "method_not_allowed", "PUT", path, "{}");
    talk_end(&talk);
}

Test(waiting, is_explained_by_why, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *a = fresh_semaphore(&talk, "{\"capacity\":2}");
    const char *b = fresh_semaphore(&talk, "{\"capacity\":7,\"kind\":\"counted\"}");
    const char *held = fresh_name("k"), *first = fresh_name("k"), *key = fresh_name("k");
    const char *path = text("%s/why", request_path(key));
    struct talk two = talk_to(shared_port());
    refused(&talk, 404, "unknown_request", "GET", path, NULL);
    acquire(&talk, held, a, 2);
    struct talk one = join_waitlist(&talk, first, a, 1, "10m", 1);
    tell(
        &two, "POST", "/v1/requests",
        text(
            "{\"external_id\":\"%s\",\"owner\":\"me\",\"wait\":\"10m\",\"permits\":[{\"semaphore\":\"%s\",\"count\":2},"
            "{\"semaphore\":\"%s\",\"count\":7}]}",
            key, a, b));
    wait_for_waiting(&talk, a, 2);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "external_id", key);
    text_is(&talk, "state", "WAITING");
    text_is(&talk, "scope", "database");
    text_is(&talk, "owner", "me");
    cr_assert_gt(number_of(&talk, "deadline_in_ms"), 0);
    cr_assert(kit_json_has(talk.reply.body, "since") && kit_json_has(talk.reply.body, "deadline"));
    cr_assert_eq(kit_json_length(talk.reply.body, "waiting_for"), 2);
    text_is(&talk, "waiting_for.0.semaphore", a);
    cr_assert_eq(number_of(&talk, "waiting_for.0.requested"), 2);
    cr_assert_eq(number_of(&talk, "waiting_for.0.capacity"), 2);
    cr_assert_eq(number_of(&talk, "waiting_for.0.in_use"), 2);
    cr_assert_eq(number_of(&talk, "waiting_for.0.place"), 2);
    cr_assert_eq(number_of(&talk, "waiting_for.0.ahead_count"), 1);
    text_is(&talk, "waiting_for.0.ahead.0", first);
    text_is(&talk, "waiting_for.0.holders.0.external_id", held);
    cr_assert_gt(number_of(&talk, "waiting_for.0.holders.0.expires_in_ms"), 0);
    text_is(&talk, "waiting_for.1.semaphore", b);
    cr_assert_eq(number_of(&talk, "waiting_for.1.in_use"), 0);
    cr_assert_eq(number_of(&talk, "waiting_for.1.place"), 1);
    cr_assert_eq(kit_json_length(talk.reply.body, "waiting_for.1.ahead"), 0);
    cr_assert_eq(kit_json_length(talk.reply.body, "waiting_for.1.holders"), 0);
    say(&talk, 200, "POST", text("%s/pause", semaphore_path(b)), "{\"reason\":\"mended\"}");
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "waiting_for.1.paused_reason", "mended");
    say(&talk, 200, "POST", text("%s/resume", semaphore_path(b)), NULL);
    release(&talk, held);
    hear(&one, 201, NULL);
    release(&talk, first);
    hear(&two, 201, NULL);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "state", "ACQUIRED");
    cr_assert_eq(kit_json_length(talk.reply.body, "permits"), 2);
    release(&talk, key);
    say(&talk, 200, "GET", path, NULL);
    text_is(&talk, "state", "RELEASED");
    text_is(&talk, "end_reason", "released");
    talk_end(&one);
    talk_end(&two);
    talk_end(&talk);
}

/*
 * A request whose time is over before its batch begins does not count as a wait, so the wait is doubled until one does.
 */
static void expire_once(struct talk *talk, const char *name)
{
    for (int ms = 10; metric_of(talk, "permitd_waits_total{end=\"given_up\"}") == 0; ms *= 2) {
        cr_assert_lt(ms, LONG_MS);
        struct talk one = waiter(talk->http.port, fresh_name("k"), name, 1, text("%dms", ms));
        hear(&one, 423, "no_capacity");
        talk_end(&one);
    }
}

Test(waiting, is_counted_in_metrics, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k");
    acquire(&talk, held, name, 1);
    cr_assert_eq(metric_of(&talk, "permitd_waiting"), 0);
    cr_assert_eq(metric_of(&talk, "permitd_oldest_wait_seconds"), 0);
    expire_once(&talk, name);
    struct talk gone = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    struct talk one = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 2);
    metric_becomes(&talk, "permitd_waiting", 2); /* a place is seen before its client is counted */
    kit_sleep_ms(2);
    cr_assert_eq(metric_of(&talk, text("permitd_semaphore_waiting{semaphore=\"%s\"}", name)), 2);
    cr_assert_gt(metric_of(&talk, "permitd_oldest_wait_seconds"), 0);
    talk_end(&gone);
    wait_for_waiting(&talk, name, 1);
    release(&talk, held);
    hear(&one, 201, NULL);
    metric_becomes(&talk, "permitd_waits_total{end=\"granted\"}", 1);
    metric_becomes(&talk, "permitd_waits_total{end=\"given_up\"}", 1);
    metric_becomes(&talk, "permitd_waits_total{end=\"abandoned\"}", 1);
    metric_becomes(&talk, "permitd_wait_seconds_count", 1);
    metric_becomes(&talk, "permitd_waiting", 0);
    talk_end(&one);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- limits ---- */

Test(waiting, is_limited_by_max_wait, .timeout = 300)
{
    static const char *const flags[] = {"--max-wait", "4s", "--request-timeout", "2s", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_name("s");
    say_until(&talk, 200, "PUT", semaphore_path(name), "{\"capacity\":0}"); /* the first PUT is answered 201 */
    say(&talk, 200, "GET", "/healthz", NULL);
    cr_assert_eq(number_of(&talk, "max_wait_ms"), 4000);
    refused(&talk, 422, "invalid", "POST", "/v1/requests", waiting_body(NULL, name, 1, "4001ms"));
    cr_assert_eq(number_of(&talk, "max_wait_ms"), 4000);
    int64_t start = kit_now_us();
    struct talk longest = waiter(permitd->port, fresh_name("k"), name, 1, "4s");
    hear(&longest, 423, "no_capacity");
    cr_assert_geq(kit_now_us() - start, 4000000); /* longer than a request without wait may take */
    talk_end(&longest);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* No answer advises to repeat the request, which never waits. */
Test(waiting, is_off_if_max_wait_is_0, .timeout = 300)
{
    static const char *const flags[] = {"--max-wait", "0", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    refused(&talk, 422, "invalid", "POST", "/v1/requests", waiting_body(NULL, name, 1, "1ms"));
    text_is(&talk, "detail", "waiting is off at this permitd (max_wait is 0)");
    cr_assert_eq(number_of(&talk, "max_wait_ms"), 0);
    say(&talk, 201, "POST", "/v1/requests", waiting_body(NULL, name, 1, "0ms"));
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

Test(waiting, is_limited_by_max_waiters_and_max_semaphore_waiters, .timeout = 300)
{
    static const char *const flags[] = {"--max-waiters", "3", "--max-semaphore-waiters", "2", NULL};
    struct kit_permitd *permitd = own_permitd(flags);
    struct talk talk = talk_to(permitd->port);
    const char *a = fresh_semaphore(&talk, "{\"capacity\":0}");
    const char *b = fresh_semaphore(&talk, "{\"capacity\":0}");
    struct talk line[3] = {
        join_waitlist(&talk, fresh_name("k"), a, 1, "10m", 1),
        join_waitlist(&talk, fresh_name("k"), a, 1, "10m", 2),
    };
    refused(&talk, 429, "too_many", "POST", "/v1/requests", waiting_body(NULL, a, 1, "10m"));
    text_is(&talk, "detail", text("too many waiting requests for %s (max_semaphore_waiters is 2)", a));
    line[2] = join_waitlist(&talk, fresh_name("k"), b, 1, "10m", 1);
    refused(&talk, 429, "too_many", "POST", "/v1/requests", waiting_body(NULL, b, 1, "10m"));
    text_is(&talk, "detail", "too many waiting requests (max_waiters is 3)");
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(NULL, b, 1, ""));
    for (int i = 0; i < 3; i++)
        talk_end(&line[i]);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* The semaphore's latest event. */
static void last_event_is(struct talk *talk, const char *name, const char *what, const char *from, const char *to)
{
    say(talk, 200, "GET", text("%s/events?limit=1", semaphore_path(name)), NULL);
    text_is(talk, "events.0.what", what);
    text_is(talk, "events.0.from", from);
    text_is(talk, "events.0.to", to);
}

static void refused_beyond(struct talk *talk, const char *name, int64_t max_waiters)
{
    refused(talk, 429, "too_many", "POST", "/v1/requests", waiting_body(NULL, name, 1, "10m"));
    text_is(talk, "detail", text("too many waiting requests for %s (its max_waiters is %d)", name, (int)max_waiters));
}

Test(waiting, is_limited_by_max_waiters_of_the_semaphore, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *held = fresh_name("k");
    acquire(&talk, held, name, 1);
    say(&talk, 200, "GET", semaphore_path(name), NULL);
    cr_assert_not(kit_json_has(talk.reply.body, "max_waiters"), "%s", talk.reply.body);
    struct talk first = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    struct talk second = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 2);

    say(&talk, 200, "PUT", semaphore_path(name), "{\"max_waiters\":1}"); /* both stay */
    cr_assert_eq(number_of(&talk, "max_waiters"), 1);
    cr_assert_eq(number_of(&talk, "waiting"), 2);
    cr_assert_eq(number_of(&talk, "config_version"), 2);
    last_event_is(&talk, name, "max_waiters", "none", "1");
    refused_beyond(&talk, name, 1);
    refused(&talk, 423, "no_capacity", "POST", "/v1/requests", acquire_body(NULL, name, 1, ""));

    release(&talk, held);
    hear(&first, 201, NULL);
    wait_for_waiting(&talk, name, 1);
    refused_beyond(&talk, name, 1);
    say(&talk, 200, "PUT", semaphore_path(name), "{\"max_waiters\":0}");
    refused_beyond(&talk, name, 0);

    say(&talk, 200, "PUT", semaphore_path(name), "{\"max_waiters\":\"none\"}");
    cr_assert_not(kit_json_has(talk.reply.body, "max_waiters"), "%s", talk.reply.body);
    last_event_is(&talk, name, "max_waiters", "0", "none");
    struct talk third = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 2);
    talk_end(&first);
    talk_end(&second);
    talk_end(&third);
    talk_end(&talk);
}

Test(waiting, is_limited_by_max_waiters_of_the_template, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *prefix = text("%s:", fresh_name("t")), *name = text("%sone", prefix);
    const char *path = text("/v1/templates/%s", prefix);
    say(&talk, 201, "PUT", path, "{\"capacity\":1,\"max_waiters\":1}");
    cr_assert_eq(number_of(&talk, "max_waiters"), 1);
    acquire(&talk, fresh_name("k"), name, 1);
    struct talk one = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 1);
    refused_beyond(&talk, name, 1);
    say(&talk, 200, "PUT", path, "{\"max_waiters\":\"none\"}");
    say(&talk, 200, "GET", path, NULL);
    cr_assert_not(kit_json_has(talk.reply.body, "max_waiters"), "%s", talk.reply.body);
    refused_beyond(&talk, name, 1); /* the template has changed, not the semaphore */
    talk_end(&one);
    talk_end(&talk);
}

Test(waiting, max_waiters_is_a_whole_number_or_none)
{
    static const char *const values[] = {"-1", "1000001", "1.5", "\"1\"", "\"\"", "null", "true"};
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"max_waiters\":1000000}");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        refused(&talk, 422, "invalid", "PUT", semaphore_path(name), text("{\"max_waiters\":%s}", values[i]));
        text_is(&talk, "detail", "max_waiters must be a whole number from 0 to 1000000, or \"none\"");
    }
    talk_end(&talk);
}

Test(waiting, is_limited_by_max_owner_waiters, .timeout = 300)
{
    struct kit_permitd *permitd = own_permitd((const char *const[]){"--max-owner-waiters", "1", NULL});
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    const char *of_ann = text("{\"owner\":\"ann\",\"permits\":[{\"semaphore\":\"%s\"}],\"wait\":\"10m\"}", name);
    struct talk one = talk_to(permitd->port);
    tell(&one, "POST", "/v1/requests", of_ann);
    wait_for_waiting(&talk, name, 1);
    refused(&talk, 429, "too_many", "POST", "/v1/requests", of_ann);
    text_is(&talk, "detail", "too many waiting requests of this owner (max_owner_waiters is 1)");
    struct talk two = join_waitlist(&talk, fresh_name("k"), name, 1, "10m", 2); /* without an owner */
    talk_end(&one);
    talk_end(&two);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* ---- priority ---- */

/* Sends an acquire with a priority that waits, and returns once the semaphore has n waiters. */
static struct talk join_with_priority(struct talk *talk, const char *key, const char *name, int priority, int64_t n)
{
    struct talk one = talk_to(talk->http.port);
    tell(&one, "POST", "/v1/requests", text("{\"priority\":%d,%s", priority, waiting_body(key, name, 1, "10m") + 1));
    wait_for_waiting(talk, name, n);
    return one;
}

Test(waiting, higher_priority_stands_before_earlier_waiters, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1,\"queue\":\"fifo\"}");
    const char *held = fresh_name("k"), *low = fresh_name("low"), *high = fresh_name("high");
    acquire(&talk, held, name, 1);
    struct talk first = join_waitlist(&talk, low, name, 1, "10m", 1);
    struct talk second = join_with_priority(&talk, high, name, 9, 2);
    say(&talk, 200, "GET", request_path(low), NULL);
    text_is(&talk, "state", "WAITING");
    cr_assert_eq(number_of(&talk, "priority"), 0);
    cr_assert_eq(number_of(&talk, "permits.0.place"), 2);
    cr_assert_eq(number_of(&talk, "permits.0.ahead_count"), 1);
    text_is(&talk, "permits.0.ahead.0", high);
    cr_assert_gt(number_of(&talk, "until_in_ms"), 0);
    cr_assert_gt(number_of(&talk, "server"), 0);
    say(&talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    text_is(&talk, "waiters.0.external_id", high);
    cr_assert_eq(number_of(&talk, "waiters.0.priority"), 9);
    text_is(&talk, "waiters.1.behind", high);
    say(&talk, 200, "GET", text("/v1/requests?state=WAITING&semaphore=%s", name), NULL);
    cr_assert_eq(kit_json_length(talk.reply.body, "requests"), 2);
    text_is(&talk, "requests.0.permits.0.semaphore", name);
    cr_assert_not(kit_json_has(talk.reply.body, "requests.0.permits.0.place"), "%s", talk.reply.body);
    refused(&talk, 404, "unknown_request", "POST", text("%s/renew", request_path(low)), NULL);
    refused(&talk, 404, "unknown_request", "POST", text("%s/confirm", request_path(low)), NULL);
    release(&talk, held);
    hear(&second, 201, NULL);
    release(&talk, high);
    hear(&first, 201, NULL);
    talk_end(&first);
    talk_end(&second);
    talk_end(&talk);
}

Test(waiting, priority_is_part_of_neither_digest_nor_batch, .timeout = 300)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *key = fresh_name("k");
    const char *body = acquire_body(key, name, 1, "");
    say(&talk, 201, "POST", "/v1/requests", text("{\"priority\":9,%s", body + 1));
    say(&talk, 200, "POST", "/v1/requests", text("{\"priority\":3,%s", body + 1));
    say(&talk, 200, "POST", "/v1/requests", body);
    say(&talk, 200, "POST", "/v1/batch", text("{\"operations\":[{\"op\":\"acquire\",\"priority\":1,%s]}", body + 1));
    cr_assert_eq(number_of(&talk, "results.0.status"), 422);
    talk_end(&talk);
}

Test(waiting, priority_is_a_whole_number_up_to_max_priority, .timeout = 300)
{
    static const char *const values[] = {"-1", "10", "1.5", "\"1\"", "null", "true"};
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *path = semaphore_path(name);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        refused(&talk, 422, "invalid", "POST", "/v1/requests",
                text("{\"priority\":%s,%s", values[i], waiting_body(NULL, name, 1, "1s") + 1));
        text_is(&talk, "detail", "priority must be a whole number from 0 to 9");
        refused(&talk, 422, "invalid", "PUT", path, text("{\"max_priority\":%s}", values[i]));
        text_is(&talk, "detail", "max_priority must be a whole number from 0 to 9");
    }
    say(&talk, 200, "PUT", path, "{\"max_priority\":3}");
    cr_assert_eq(number_of(&talk, "max_priority"), 3);
    last_event_is(&talk, name, "max_priority", "9", "3");
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"priority\":4,%s", waiting_body(NULL, name, 1, "10m") + 1));
    say(&talk, 201, "POST", "/v1/requests", text("{\"priority\":3,%s", waiting_body(NULL, name, 1, "10m") + 1));
    const char *prefix = text("%s:", fresh_name("t"));
    say(&talk, 201, "PUT", text("/v1/templates/%s", prefix), "{\"capacity\":1,\"max_priority\":0}");
    cr_assert_eq(number_of(&talk, "max_priority"), 0);
    refused(&talk, 422, "invalid", "POST", "/v1/requests",
            text("{\"priority\":1,%s", waiting_body(NULL, text("%sone", prefix), 1, "10m") + 1));
    talk_end(&talk);
}

Test(waiting, priority_step_is_a_duration_or_strict, .timeout = 300)
{
    static const char *const values[] = {"0", "\"0s\"", "\"25h\"", "\"none\"", "null", "true"};
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *path = semaphore_path(name);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        refused(&talk, 422, "invalid", "PUT", path, text("{\"priority_step\":%s}", values[i]));
    say(&talk, 200, "GET", path, NULL);
    cr_assert_eq(number_of(&talk, "priority_step_ms"), 30000);
    say(&talk, 200, "PUT", path, "{\"priority_step\":\"5m\"}");
    cr_assert_eq(number_of(&talk, "priority_step_ms"), 300000);
    say(&talk, 200, "PUT", path, "{\"priority_step\":\"strict\"}");
    text_is(&talk, "priority_step", "strict");
    cr_assert_not(kit_json_has(talk.reply.body, "priority_step_ms"), "%s", talk.reply.body);
    last_event_is(&talk, name, "priority_step_ms", "300000", "strict");
    say(&talk, 200, "PUT", path, "{\"note\":\"as before\"}");
    text_is(&talk, "priority_step", "strict");
    template_passes_on(&talk, "priority_step", "strict");
    talk_end(&talk);
}

/* The urgent one comes when the first has waited for longer than nine steps of 1 ms, and shorter than one of a day. */
Test(waiting, priority_step_of_the_semaphore_orders_the_queue, .timeout = 300)
{
    static const struct {
        const char *step;
        bool urgent_first;
    } cases[] = {{"1ms", false}, {"1d", true}, {"strict", true}};
    struct talk talk = talk_to(shared_port());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = fresh_semaphore(&talk, text("{\"capacity\":1,\"priority_step\":\"%s\"}", cases[i].step));
        const char *held = fresh_name("k"), *early = fresh_name("early"), *urgent = fresh_name("urgent");
        acquire(&talk, held, name, 1);
        struct talk first = join_waitlist(&talk, early, name, 1, "10m", 1);
        wait_for_age(&talk, name, 10);
        struct talk second = join_with_priority(&talk, urgent, name, 9, 2);
        say(&talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
        text_is(&talk, "waiters.0.external_id", cases[i].urgent_first ? urgent : early);
        release(&talk, held);
        hear(cases[i].urgent_first ? &second : &first, 201, NULL);
        talk_end(&first);
        talk_end(&second);
    }
    talk_end(&talk);
}

/* ---- stop ---- */

Test(waiting, ends_when_permitd_stops, .timeout = 300)
{
    enum { COUNT = 50 };
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    const char *name = fresh_semaphore(&talk, "{\"capacity\":0}");
    struct talk line[COUNT];
    for (int i = 0; i < COUNT; i++)
        line[i] = waiter(permitd->port, i % 2 ? fresh_name("k") : NULL, name, 1, "10m");
    wait_for_waiting(&talk, name, COUNT);
    int64_t start = kit_now_us();
    kill(permitd->pid, SIGTERM);
    for (int i = 0; i < COUNT; i++) {
        hear(&line[i], 503, "shutting_down");
        text_is(&line[i], "detail",
                "this permitd is stopping: repeat the request with the same key, at another permitd or later");
        talk_end(&line[i]);
    }
    cr_assert_eq(kit_permitd_wait_end(permitd, LONG_MS), 0, "exit status");
    cr_assert_lt(kit_now_us() - start, 30000000); /* 10 s on a machine that is not busy */
    talk_end(&talk);
    kit_permitd_kill(permitd);
}
