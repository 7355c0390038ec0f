/* SPDX-License-Identifier: MIT */
/* The queue of two permitd on one database: the same at both, and kept when one of them stops or dies. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { LONG_MS = 120000, TRIES = 5 };

/* Two permitd, a and b, on a database of this test in the shared server. */
struct pair {
    struct kit_permitd *permitd[2];
    struct talk a, b;
    int64_t ids[2];
    bool b_has_ended;
};

/* ---- conditions ---- */

/* Returns one member of the answer to GET of a path. */
struct look {
    struct talk *talk;
    const char *path, *member;
    int64_t number;
    const char *word; /* NULL: the number counts */
};

static bool shows(void *context)
{
    const struct look *look = context;
    reply_release(&look->talk->reply);
    if (!kit_http_get(&look->talk->http, look->path, &look->talk->reply) || look->talk->reply.status != 200)
        return false;
    const char *body = look->talk->reply.body;
    return look->word ? kit_json_text_is(body, look->member, look->word)
                      : kit_json_int(body, look->member) == look->number;
}

static void wait_for_number(struct talk *talk, const char *path, const char *member, int64_t number)
{
    struct look look = {talk, path, member, number, NULL};
    cr_assert(kit_wait_until(shows, &look, LONG_MS), "%s of %s is not %lld: %s", member, path, (long long)number,
              talk->reply.body);
}

static bool is_kept_or_gone(void *context)
{
    const struct look *look = context;
    reply_release(&look->talk->reply);
    return kit_http_get(&look->talk->http, look->path, &look->talk->reply) &&
           (look->talk->reply.status == 404 || kit_json_true(look->talk->reply.body, "kept"));
}

/* ---- the pair ---- */

static int64_t id_shown(const char *body, const char *url)
{
    int64_t id = 0;
    for (long i = 0; i < kit_json_length(body, "servers"); i++)
        if (kit_json_text_is(body, text("servers.%ld.address", i), url) &&
            kit_json_true(body, text("servers.%ld.alive", i)))
            id = kit_json_int(body, text("servers.%ld.id", i));
    return id;
}

static bool both_have_ids(void *context)
{
    struct pair *pair = context;
    say(&pair->a, 200, "GET", "/v1/servers", NULL);
    for (int i = 0; i < 2; i++)
        pair->ids[i] = id_shown(pair->a.reply.body, pair->permitd[i]->url);
    return pair->ids[0] && pair->ids[1];
}

static void start_one(struct pair *pair, int i)
{
    struct kit_permitd_options options = {.database = own_url("queue"), .flags = patient_flags};
    pair->permitd[i] = kit_permitd_start(&options);
}

static struct pair pair_start(void)
{
    struct pair pair = {0};
    for (int i = 0; i < 2; i++)
        start_one(&pair, i);
    pair.a = talk_to(pair.permitd[0]->port);
    pair.b = talk_to(pair.permitd[1]->port);
    cr_assert(kit_wait_until(both_have_ids, &pair, LONG_MS), "%s", pair.a.reply.body);
    return pair;
}

static void kill_b(struct pair *pair)
{
    talk_end(&pair->b);
    kit_permitd_kill(pair->permitd[1]);
    pair->b_has_ended = true;
}

/* SIGTERM without waiting for the end: its waiters are answered meanwhile. */
static void stop_b(struct pair *pair)
{
    talk_end(&pair->b);
    cr_assert_eq(kill(pair->permitd[1]->pid, SIGTERM), 0);
}

static void pair_stop(struct pair *pair)
{
    talk_end(&pair->a);
    kit_permitd_stop(pair->permitd[0]);
    if (pair->b_has_ended)
        return;
    talk_end(&pair->b);
    kit_permitd_stop(pair->permitd[1]);
}

/* ---- requests ---- */

/* An acquire that holds one unit of the semaphore, and is never due. */
static const char *hold(struct talk *talk, const char *name)
{
    const char *key = fresh_name("held");
    say(talk, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    return key;
}

/* A client that waits. Its answer is read by `hear`. */
static struct talk ask(const struct talk *at, const char *key, const char *name, const char *more)
{
    struct talk talk = talk_to(at->http.port);
    tell(&talk, "POST", "/v1/requests", acquire_body(key, name, 1, text(",\"wait\":\"10m\"%s", more)));
    return talk;
}

/* As ask, and returns once the key waits at this permitd. */
static struct talk wait_at(struct pair *pair, int i, const char *key, const char *name, const char *more)
{
    struct talk talk = ask(i ? &pair->b : &pair->a, key, name, more);
    wait_for_number(&pair->a, request_path(key), "server", pair->ids[i]);
    return talk;
}

/* Both permitd show these keys in this order, by /waiters, /why, GET and the number of waiters. */
static void queue_is(struct pair *pair, const char *name, const char *const *keys, const int *servers, int count)
{
    for (int i = 0; i < 2; i++) {
        struct talk *talk = i ? &pair->b : &pair->a;
        say(talk, 200, "GET", semaphore_path(name), NULL);
        cr_assert_eq(number_of(talk, "waiting"), count);
        say(talk, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
        text_is(talk, "scope", "database");
        cr_assert_eq(kit_json_length(talk->reply.body, "waiters"), count, "%s", talk->reply.body);
        for (int j = 0; j < count; j++) {
            text_is(talk, text("waiters.%d.external_id", j), keys[j]);
            cr_assert_eq(number_of(talk, text("waiters.%d.place", j)), j + 1);
            cr_assert_eq(number_of(talk, text("waiters.%d.server", j)), pair->ids[servers[j]]);
            if (j)
                text_is(talk, text("waiters.%d.behind", j), keys[j - 1]);
        }
        for (int j = 0; j < count; j++) {
            say(talk, 200, "GET", request_path(keys[j]), NULL);
            text_is(talk, "state", "WAITING");
            cr_assert_eq(number_of(talk, "server"), pair->ids[servers[j]]);
            cr_assert_eq(number_of(talk, "permits.0.place"), j + 1);
            cr_assert_eq(number_of(talk, "permits.0.ahead_count"), j);
            cr_assert_eq(kit_json_length(talk->reply.body, "permits.0.ahead"), j);
            say(talk, 200, "GET", text("%s/why", request_path(keys[j])), NULL);
            text_is(talk, "scope", "database");
            cr_assert_eq(number_of(talk, "server"), pair->ids[servers[j]]);
            cr_assert_eq(number_of(talk, "waiting_for.0.place"), j + 1);
            if (j)
                text_is(talk, text("waiting_for.0.ahead.%d", j - 1), keys[j - 1]);
        }
    }
}

/* ---- one queue ---- */

Test(queue, is_the_same_at_both_and_is_granted_in_its_order, .timeout = 300)
{
    enum { COUNT = 4 };
    static const int servers[COUNT] = {1, 0, 1, 0};
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *holder = hold(&pair.a, name), *keys[COUNT];
    struct talk line[COUNT];
    int64_t token = 0;
    for (int i = 0; i < COUNT; i++)
        line[i] = wait_at(&pair, servers[i], keys[i] = fresh_name("k"), name, "");
    queue_is(&pair, name, keys, servers, COUNT);
    for (int i = 0; i < COUNT; i++) {
        queue_is(&pair, name, keys + i, servers + i, COUNT - i);
        release(&pair.a, holder); /* always through a */
        hear(&line[i], 201, NULL);
        cr_assert_not(kit_json_true(line[i].reply.body, "replayed"), "%s", line[i].reply.body);
        cr_assert_gt(number_of(&line[i], "permits.0.token"), token);
        token = number_of(&line[i], "permits.0.token");
        say(&line[i], 200, "GET", request_path(keys[i]), NULL);
        text_is(&line[i], "state", "ACQUIRED");
        cr_assert_not(kit_json_has(line[i].reply.body, "unclaimed"), "%s", line[i].reply.body);
        talk_end(&line[i]);
        holder = keys[i];
    }
    queue_is(&pair, name, NULL, NULL, 0);
    pair_stop(&pair);
}

Test(queue, has_priorities_over_both, .timeout = 300)
{
    static const int servers[3] = {1, 0, 1};
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *holder = hold(&pair.b, name);
    const char *plain = fresh_name("k"), *high = fresh_name("k"), *middle = fresh_name("k");
    struct talk line[3];
    line[2] = wait_at(&pair, 1, plain, name, "");
    line[0] = wait_at(&pair, 1, high, name, ",\"priority\":9");
    line[1] = wait_at(&pair, 0, middle, name, ",\"priority\":4");
    const char *keys[3] = {high, middle, plain};
    queue_is(&pair, name, keys, servers, 3);
    for (int i = 0; i < 3; i++) {
        release(&pair.b, holder);
        hear(&line[i], 201, NULL);
        talk_end(&line[i]);
        holder = keys[i];
    }
    pair_stop(&pair);
}

Test(queue, is_granted_all_units_or_none_whichever_permitd_frees_them, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *first = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *second = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *of_first = hold(&pair.a, first), *of_second = hold(&pair.a, second), *key = fresh_name("k");
    struct talk both = talk_to(pair.permitd[1]->port);
    tell(&both, "POST", "/v1/requests",
         text("{\"external_id\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"},{\"semaphore\":\"%s\"}],\"wait\":\"10m\"}",
              key, first, second));
    wait_for_number(&pair.a, request_path(key), "server", pair.ids[1]);
    release(&pair.a, of_first);
    say(&pair.a, 200, "GET", semaphore_path(first), NULL);
    cr_assert_eq(number_of(&pair.a, "in_use"), 0);
    cr_assert_eq(number_of(&pair.a, "waiting"), 1);
    release(&pair.a, of_second);
    hear(&both, 201, NULL);
    cr_assert_eq(kit_json_length(both.reply.body, "permits"), 2);
    talk_end(&both);
    pair_stop(&pair);
}

Test(queue, is_not_passed_at_the_other_permitd_under_fifo, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":2,\"queue\":\"fifo\"}");
    const char *held = hold(&pair.a, name), *key = fresh_name("k");
    struct talk two = talk_to(pair.permitd[1]->port);
    tell(&two, "POST", "/v1/requests", acquire_body(key, name, 2, ",\"wait\":\"10m\""));
    wait_for_number(&pair.a, request_path(key), "server", pair.ids[1]);
    refused(&pair.a, 423, "no_capacity", "POST", "/v1/requests", acquire_body(fresh_name("k"), name, 1, ""));
    cr_assert_eq(number_of(&pair.a, "blocking.0.waiting_ahead"), 1);
    text_is(&pair.a, "blocking.0.ahead.0", key);
    release(&pair.a, held);
    hear(&two, 201, NULL);
    talk_end(&two);
    pair_stop(&pair);
}

/* The batch that frees the unit has not read the owner's heartbeat: the waiter's own permitd grants it. */
Test(queue, is_granted_by_the_heartbeat_of_its_owner, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}"), *owner = fresh_name("o");
    const char *held = hold(&pair.a, name), *key = fresh_name("k");
    say(&pair.a, 201, "PUT", text("/v1/owners/%s", owner), "{\"ttl\":\"1h\"}");
    struct talk one = wait_at(&pair, 1, key, name, text(",\"owner\":\"%s\",\"ttl\":\"owner\"", owner));
    release(&pair.a, held);
    hear(&one, 201, NULL);
    text_is(&one, "ttl", "owner");
    talk_end(&one);
    pair_stop(&pair);
}

Test(queue, has_one_limit_at_both, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":0,\"max_waiters\":2}");
    struct talk here = wait_at(&pair, 0, fresh_name("k"), name, "");
    struct talk there = wait_at(&pair, 1, fresh_name("k"), name, "");
    for (int i = 0; i < 2; i++) {
        struct talk *talk = i ? &pair.b : &pair.a;
        refused(talk, 429, "too_many", "POST", "/v1/requests",
                acquire_body(fresh_name("k"), name, 1, ",\"wait\":\"1m\""));
        text_is(talk, "detail", text("too many waiting requests for %s (its max_waiters is 2)", name));
    }
    talk_end(&here);
    wait_for_number(&pair.b, semaphore_path(name), "waiting", 1);
    struct talk third = wait_at(&pair, 1, fresh_name("k"), name, "");
    talk_end(&there);
    talk_end(&third);
    pair_stop(&pair);
}

/* ---- the same key at another permitd ---- */

Test(queue, moves_a_key_with_its_place, .timeout = 300)
{
    static const int servers[2] = {1, 0};
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *held = hold(&pair.a, name);
    const char *keys[2] = {fresh_name("k"), fresh_name("k")};
    struct talk copy = wait_at(&pair, 0, keys[0], name, "");
    struct talk second = wait_at(&pair, 0, keys[1], name, "");
    struct talk moved = ask(&pair.b, keys[0], name, "");
    hear(&copy, 503, "outcome_unknown");
    queue_is(&pair, name, keys, servers, 2);
    release(&pair.a, held);
    hear(&moved, 201, NULL);
    cr_assert_not(kit_json_true(moved.reply.body, "replayed"), "%s", moved.reply.body);
    queue_is(&pair, name, keys + 1, servers + 1, 1);
    release(&pair.b, keys[0]);
    hear(&second, 201, NULL);
    talk_end(&copy);
    talk_end(&moved);
    talk_end(&second);
    pair_stop(&pair);
}

/* Two clients of one key; the wait of the second passes while a batch waits for the locked row. */
struct copies {
    struct pair pair;
    struct talk first, waking, second, later;
    const char *name, *key;
};

static bool statement_waits(void *sql)
{
    return kit_sql_lock_waits(sql, own_database("queue")) > 0;
}

/*
 * The second client asks at the same permitd as the first, or (1) at the other one. Returns when it is refused. A new
 * request for the free unit, `later`, comes behind it.
 */
static struct copies refuse_second_copy(int at)
{
    struct copies copies = {.pair = pair_start()};
    struct talk *there = at ? &copies.pair.b : &copies.pair.a;
    copies.name = fresh_semaphore(&copies.pair.a, "{\"capacity\":2,\"queue\":\"fifo\"}");
    copies.key = fresh_name("k");
    (void)hold(&copies.pair.a, copies.name);
    copies.first = talk_to(copies.pair.a.http.port);
    tell(&copies.first, "POST", "/v1/requests", acquire_body(copies.key, copies.name, 2, ",\"wait\":\"10m\""));
    wait_for_number(&copies.pair.a, request_path(copies.key), "server", copies.pair.ids[0]);
    struct kit_sql *locker = own_sql("queue");
    kit_sql_run(locker, "BEGIN");
    (void)kit_sql_number(locker, "SELECT id FROM semaphore WHERE name='%s' FOR UPDATE", copies.name);
    const char *waking = at ? fresh_name("k") : copies.key;
    copies.waking = talk_to(there->http.port);
    tell(&copies.waking, "POST", "/v1/requests", acquire_body(waking, copies.name, 2, ""));
    cr_assert(kit_wait_until(statement_waits, locker, LONG_MS));
    copies.second = talk_to(there->http.port);
    tell(&copies.second, "POST", "/v1/requests", acquire_body(copies.key, copies.name, 2, ",\"wait\":\"1ms\""));
    copies.later = talk_to(there->http.port);
    if (!at)
        tell(&copies.later, "POST", "/v1/requests", acquire_body(fresh_name("k"), copies.name, 1, ""));
    say(there, 200, "GET", "/healthz", NULL); /* the loop has read them */
    kit_sql_run(locker, "ROLLBACK");
    kit_sql_close(locker);
    hear(&copies.waking, 423, "no_capacity");
    hear(&copies.second, 423, "no_capacity");
    return copies;
}

static void copies_end(struct copies *copies)
{
    talk_end(&copies->first);
    talk_end(&copies->waking);
    talk_end(&copies->second);
    talk_end(&copies->later);
    pair_stop(&copies->pair);
}

/* P20 */
Test(queue, leaves_a_place_to_the_copy_that_still_waits, .timeout = 300)
{
    static const int servers[1] = {0};
    struct copies copies = refuse_second_copy(0);
    hear(&copies.later, 423, "no_capacity");
    queue_is(&copies.pair, copies.name, &copies.key, servers, 1);
    say(&copies.pair.a, 200, "PUT", semaphore_path(copies.name), "{\"capacity\":3}");
    hear(&copies.first, 201, NULL);
    copies_end(&copies);
}

/* The key has moved, and its place with it. */
Test(queue, tells_the_first_copy_when_the_other_permitd_gives_up_the_place, .timeout = 300)
{
    struct copies copies = refuse_second_copy(1);
    hear(&copies.first, 503, "outcome_unknown");
    say(&copies.later, 201, "POST", "/v1/requests", acquire_body(fresh_name("k"), copies.name, 1, ""));
    tell(&copies.first, "POST", "/v1/requests", acquire_body(copies.key, copies.name, 2, ",\"wait\":\"10m\""));
    wait_for_number(&copies.pair.b, request_path(copies.key), "server", copies.pair.ids[0]);
    say(&copies.pair.a, 200, "PUT", semaphore_path(copies.name), "{\"capacity\":4}");
    hear(&copies.first, 201, NULL);
    copies_end(&copies);
}

Test(queue, refuses_other_content_at_the_other_permitd, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":2}");
    const char *held[2] = {hold(&pair.a, name), hold(&pair.a, name)}, *key = fresh_name("k");
    struct talk one = wait_at(&pair, 0, key, name, "");
    refused(&pair.b, 422, "key_reused", "POST", "/v1/requests", acquire_body(key, name, 2, ",\"wait\":\"1m\""));
    refused(&pair.b, 423, "no_capacity", "POST", "/v1/requests", acquire_body(key, name, 1, ""));
    wait_for_number(&pair.b, request_path(key), "server", pair.ids[0]); /* an acquire without wait moves nothing */
    refused(&pair.b, 404, "unknown_request", "POST", text("%s/renew", request_path(key)), NULL);
    refused(&pair.b, 404, "unknown_request", "POST", text("%s/confirm", request_path(key)), NULL);
    release(&pair.b, held[0]);
    hear(&one, 201, NULL);
    talk_end(&one);
    pair_stop(&pair);
}

static void ended_by(const char *method, const char *path, const char *body)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *held = hold(&pair.a, name), *first = fresh_name("k"), *second = fresh_name("k");
    struct talk one = wait_at(&pair, 0, first, name, "");
    struct talk two = wait_at(&pair, 0, second, name, "");
    say(&pair.b, 200, method, text(path, first), body);
    text_is(&pair.b, "end_reason", "never_held");
    hear(&one, 410, "ended");
    text_is(&one, "end_reason", "never_held");
    wait_for_number(&pair.b, request_path(second), "permits.0.place", 1);
    refused(&pair.b, 410, "ended", "POST", "/v1/requests", acquire_body(first, name, 1, ",\"wait\":\"1m\""));
    release(&pair.b, held);
    hear(&two, 201, NULL);
    talk_end(&one);
    talk_end(&two);
    pair_stop(&pair);
}

Test(queue, ends_with_a_release_at_the_other_permitd, .timeout = 300)
{
    ended_by("DELETE", "/v1/requests/%s", NULL);
}

Test(queue, ends_with_a_force_release_at_the_other_permitd, .timeout = 300)
{
    ended_by("POST", "/v1/requests/%s/force-release", "{\"reason\":\"a mistake\"}");
}

/* ---- changes of the semaphore through the other permitd ---- */

Test(queue, is_ended_by_a_retirement_at_the_other_permitd, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":0}"), *keys[2] = {fresh_name("k"), fresh_name("k")};
    struct talk here = wait_at(&pair, 0, keys[0], name, "");
    struct talk there = wait_at(&pair, 1, keys[1], name, "");
    say(&pair.a, 200, "DELETE", semaphore_path(name), NULL);
    hear(&here, 404, "unknown_semaphore");
    hear(&there, 404, "unknown_semaphore");
    talk_end(&here);
    talk_end(&there);
    pair_stop(&pair);
}

Test(queue, is_ended_by_a_shrink_at_the_other_permitd, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":3}");
    const char *held[2] = {hold(&pair.a, name), hold(&pair.a, name)};
    const char *large = fresh_name("k"), *small = fresh_name("k");
    struct talk three = talk_to(pair.permitd[1]->port), two = talk_to(pair.permitd[1]->port);
    tell(&three, "POST", "/v1/requests", acquire_body(large, name, 3, ",\"wait\":\"10m\""));
    wait_for_number(&pair.a, request_path(large), "server", pair.ids[1]);
    tell(&two, "POST", "/v1/requests", acquire_body(small, name, 2, ",\"wait\":\"10m\""));
    wait_for_number(&pair.a, request_path(small), "server", pair.ids[1]);
    say(&pair.a, 200, "PUT", semaphore_path(name), "{\"capacity\":2}");
    hear(&three, 422, "never_satisfiable");
    wait_for_number(&pair.a, request_path(small), "permits.0.place", 1);
    say(&pair.a, 200, "PUT", semaphore_path(name), "{\"capacity\":3}");
    release(&pair.a, held[0]);
    hear(&two, 201, NULL);
    talk_end(&three);
    talk_end(&two);
    pair_stop(&pair);
}

Test(queue, waits_through_a_pause_at_the_other_permitd, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *held = hold(&pair.a, name), *patient = fresh_name("k"), *hasty = fresh_name("k");
    struct talk one = wait_at(&pair, 1, patient, name, "");
    say(&pair.a, 200, "POST", text("%s/pause", semaphore_path(name)), "{\"reason\":\"a new disk\"}");
    release(&pair.a, held);
    refused(&pair.b, 423, "paused", "POST", "/v1/requests", acquire_body(hasty, name, 1, ",\"wait\":\"300ms\""));
    cr_assert(strstr(pair.b.reply.body, "a new disk"), "%s", pair.b.reply.body);
    say(&pair.b, 200, "GET", text("%s/why", request_path(patient)), NULL);
    text_is(&pair.b, "state", "WAITING");
    text_is(&pair.b, "waiting_for.0.paused_reason", "a new disk");
    say(&pair.a, 200, "POST", text("%s/resume", semaphore_path(name)), NULL);
    hear(&one, 201, NULL);
    talk_end(&one);
    pair_stop(&pair);
}

Test(queue, is_granted_when_the_capacity_grows_at_the_other_permitd, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":0}"), *keys[2] = {fresh_name("k"), fresh_name("k")};
    struct talk first = wait_at(&pair, 1, keys[0], name, "");
    struct talk second = wait_at(&pair, 0, keys[1], name, "");
    say(&pair.a, 200, "PUT", semaphore_path(name), "{\"capacity\":1}");
    hear(&first, 201, NULL);
    release(&pair.b, keys[0]);
    hear(&second, 201, NULL);
    talk_end(&first);
    talk_end(&second);
    pair_stop(&pair);
}

/* ---- a permitd that stops or dies ---- */

/*
 * Two clients of b come again at a, in their places: before one that came to a after them. That holds if they come again
 * within 10 s, which a machine that stalls may miss: then false.
 */
static bool found_their_places(struct pair *pair, const char *name, const char *const *keys)
{
    struct talk again[2];
    for (int i = 0; i < 2; i++)
        again[i] = wait_at(pair, 0, keys[i], name, "");
    say(&pair->a, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    bool found = true;
    for (int i = 0; i < 3; i++)
        found &= kit_json_text_is(pair->a.reply.body, text("waiters.%d.external_id", i), keys[i]);
    for (int i = 0; i < 2; i++)
        if (!found)
            talk_end(&again[i]);
    const char *holder = keys[3];
    for (int i = 0; found && i < 2; i++) {
        release(&pair->a, holder);
        hear(&again[i], 201, NULL);
        talk_end(&again[i]);
        holder = keys[i];
    }
    return found;
}

static bool places_survive(bool killed)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *keys[4] = {fresh_name("k"), fresh_name("k"), fresh_name("k"), hold(&pair.a, name)};
    struct talk line[3];
    for (int i = 0; i < 3; i++)
        line[i] = wait_at(&pair, i < 2, keys[i], name, "");
    if (killed)
        kill_b(&pair);
    else
        stop_b(&pair);
    for (int i = 0; !killed && i < 2; i++)
        hear(&line[i], 503, "shutting_down");
    bool survive = found_their_places(&pair, name, keys);
    for (int i = 0; i < 3; i++)
        talk_end(&line[i]);
    pair_stop(&pair);
    return survive;
}

Test(queue, keeps_places_when_a_permitd_is_killed, .timeout = 600)
{
    int tries = 1;
    while (!places_survive(true))
        cr_assert_lt(tries++, TRIES);
}

Test(queue, keeps_places_when_a_permitd_stops, .timeout = 600)
{
    int tries = 1;
    while (!places_survive(false))
        cr_assert_lt(tries++, TRIES);
}

/*
 * The place of b's client is not asked for any more: it blocks no others, and is removed after 10 s. Returns true if it
 * was seen in between.
 */
static bool dead_place_is_passed(void)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1,\"queue\":\"fifo\"}");
    const char *held = hold(&pair.a, name), *lost = fresh_name("k"), *late = fresh_name("k");
    struct talk gone = wait_at(&pair, 1, lost, name, "");
    struct talk one = wait_at(&pair, 0, late, name, "");
    kill_b(&pair);
    struct look look = {.talk = &pair.a, .path = request_path(lost)};
    cr_assert(kit_wait_until(is_kept_or_gone, &look, LONG_MS), "%s", pair.a.reply.body);
    say(&pair.a, 200, "GET", text("%s/waiters", semaphore_path(name)), NULL);
    bool seen = kit_json_length(pair.a.reply.body, "waiters") == 2;
    if (seen) {
        text_is(&pair.a, "waiters.0.external_id", lost);
        cr_assert(kit_json_true(pair.a.reply.body, "waiters.0.kept"), "%s", pair.a.reply.body);
        cr_assert_not(kit_json_has(pair.a.reply.body, "waiters.0.server"), "%s", pair.a.reply.body);
        text_is(&pair.a, "waiters.1.external_id", late);
        cr_assert_eq(number_of(&pair.a, "waiters.1.place"), 1);
        say(&pair.a, 200, "GET", text("/v1/requests?state=WAITING&semaphore=%s", name), NULL);
        seen = kit_json_length(pair.a.reply.body, "requests") == 2;
    }
    if (seen) {
        long at = kit_json_text_is(pair.a.reply.body, "requests.0.external_id", lost) ? 0 : 1; /* by internal number */
        text_is(&pair.a, text("requests.%ld.external_id", at), lost);
        cr_assert(kit_json_true(pair.a.reply.body, text("requests.%ld.kept", at)), "%s", pair.a.reply.body);
        cr_assert_not(kit_json_has(pair.a.reply.body, text("requests.%ld.server", at)), "%s", pair.a.reply.body);
        cr_assert_lt(number_of(&pair.a, text("requests.%ld.until_in_ms", at)), 60 * 1000, "its wait was longer");
        cr_assert_not(kit_json_has(pair.a.reply.body, text("requests.%ld.kept", 1 - at)), "%s", pair.a.reply.body);
    }
    release(&pair.a, held);
    hear(&one, 201, NULL);
    say_until(&pair.a, 404, "GET", request_path(lost), NULL);
    wait_for_number(&pair.a, semaphore_path(name), "waiting", 0);
    talk_end(&gone);
    talk_end(&one);
    pair_stop(&pair);
    return seen;
}

Test(queue, passes_the_places_of_a_dead_permitd, .timeout = 600)
{
    int tries = 1;
    while (!dead_place_is_passed())
        cr_assert_lt(tries++, TRIES);
}

/* ---- grants that no client has been told ---- */

/*
 * Kills b with a client, and frees the unit it waits for. Returns true if the grant is unclaimed then: if the machine
 * stalls, b may be dead before that, and its waiter is granted nothing.
 */
static bool grant_to_the_killed(struct pair *pair, const char *key, const char *name, const char *held)
{
    struct talk gone = wait_at(pair, 1, key, name, ",\"ttl\":\"1h\"");
    kill_b(pair);
    release(&pair->a, held);
    say(&pair->a, 200, "GET", request_path(key), NULL);
    bool unclaimed = kit_json_true(pair->a.reply.body, "unclaimed");
    talk_end(&gone);
    return unclaimed;
}

static bool unclaimed_grant_ends(void)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}"), *key = fresh_name("k");
    bool unclaimed = grant_to_the_killed(&pair, key, name, hold(&pair.a, name));
    if (unclaimed) {
        text_is(&pair.a, "state", "ACQUIRED");
        cr_assert_leq(number_of(&pair.a, "expires_in_ms"), 10000); /* not the hour that it asked for */
        ends_as(&pair.a, key, "expired");
        cr_assert_not(kit_json_has(pair.a.reply.body, "unclaimed"), "%s", pair.a.reply.body);
        refused(&pair.a, 410, "ended", "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"1h\""));
        say(&pair.a, 200, "GET", semaphore_path(name), NULL);
        cr_assert_eq(number_of(&pair.a, "in_use"), 0);
        hold(&pair.a, name);
    }
    pair_stop(&pair);
    return unclaimed;
}

Test(queue, ends_an_unclaimed_grant, .timeout = 600)
{
    int tries = 1;
    while (!unclaimed_grant_ends())
        cr_assert_lt(tries++, TRIES);
}

static bool unclaimed_grant_is_claimed(bool by_renewal)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}"), *key = fresh_name("k");
    const char *path = by_renewal ? text("%s/renew", request_path(key)) : "/v1/requests";
    const char *body = by_renewal ? NULL : acquire_body(key, name, 1, ",\"ttl\":\"1h\"");
    bool claimed = grant_to_the_killed(&pair, key, name, hold(&pair.a, name));
    if (claimed) {
        reply_release(&pair.a.reply);
        cr_assert(kit_http_call(&pair.a.http, "POST", path, NULL, body, &pair.a.reply));
        claimed = pair.a.reply.status != 410; /* else the 10 s were over */
    }
    if (claimed) {
        cr_assert_eq(pair.a.reply.status, by_renewal ? 200 : 201, "%s", pair.a.reply.body);
        cr_assert_not(kit_json_true(pair.a.reply.body, "replayed"), "%s", pair.a.reply.body);
        cr_assert_gt(number_of(&pair.a, "expires_in_ms"), 60000); /* the hour counts from now */
        say(&pair.a, 200, "GET", request_path(key), NULL);
        text_is(&pair.a, "state", "ACQUIRED");
        cr_assert_not(kit_json_has(pair.a.reply.body, "unclaimed"), "%s", pair.a.reply.body);
        say(&pair.a, 200, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"ttl\":\"1h\""));
        cr_assert(kit_json_true(pair.a.reply.body, "replayed"), "%s", pair.a.reply.body);
    }
    pair_stop(&pair);
    return claimed;
}

Test(queue, lets_the_other_permitd_claim_a_grant, .timeout = 600)
{
    int tries = 1;
    while (!unclaimed_grant_is_claimed(false))
        cr_assert_lt(tries++, TRIES);
}

Test(queue, lets_a_renewal_claim_a_grant, .timeout = 600)
{
    int tries = 1;
    while (!unclaimed_grant_is_claimed(true))
        cr_assert_lt(tries++, TRIES);
}

/*
 * b stands still while a grants to its client and tells a copy of that client. When b goes on, its own copy has the same
 * grant, as a repeated one; or it does not know the outcome, if b was declared dead meanwhile.
 */
Test(queue, tells_one_copy_only_that_the_grant_is_new, .timeout = 300)
{
    struct pair pair = pair_start();
    const char *name = fresh_semaphore(&pair.a, "{\"capacity\":1}");
    const char *held = hold(&pair.a, name), *key = fresh_name("k");
    struct talk one = wait_at(&pair, 1, key, name, "");
    kit_permitd_freeze(pair.permitd[1]);
    release(&pair.a, held);
    say(&pair.a, 201, "POST", "/v1/requests", acquire_body(key, name, 1, ",\"wait\":\"10m\""));
    cr_assert_not(kit_json_true(pair.a.reply.body, "replayed"), "%s", pair.a.reply.body);
    int64_t token = number_of(&pair.a, "permits.0.token");
    kit_permitd_thaw(pair.permitd[1]);
    reply_release(&one.reply);
    cr_assert(kit_http_receive(&one.http, "", &one.reply), "%s", one.reply.error);
    if (one.reply.status != 503) {
        cr_assert_eq(one.reply.status, 200, "%s", one.reply.body);
        cr_assert(kit_json_true(one.reply.body, "replayed"), "%s", one.reply.body);
        cr_assert_eq(number_of(&one, "permits.0.token"), token);
    }
    talk_end(&one);
    pair_stop(&pair);
}
