/* SPDX-License-Identifier: MIT */
/*
 * Clients that disconnect in a storm: while they wait, while their first batch runs, while their grant is committed.
 * Half of them have their own key; the grants of the others could never be found by a client.
 */
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 64, CALM_CAPACITY = 10000, HOLD_MS = 3, CALM_LEAVE_MS = 6, ROUNDS = 1000000, MANY = 64 };

struct storm {
    const struct leave_numbers *numbers;
    struct fixture fixture;
    struct client_pool *client_pool;
    int64_t *leave_at_us; /* of each leaver */
    uint64_t random;
};

static unsigned random_below(struct storm *storm, unsigned below)
{
    storm->random = storm->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((storm->random >> 33) % below);
}

/* ---- the storm ---- */

/*
 * Stayers keep the hot semaphore busy. Every fourth leaver asks where units are free, at the time at which it is to
 * leave, so it leaves about when it is granted. Every eighth wants both units of a semaphore of which one is always
 * held; these leave together, while others of them are tried without success. All other leavers wait for the hot
 * semaphore.
 */
static void set_clients(struct storm *storm)
{
    const struct leave_numbers *numbers = storm->numbers;
    int64_t now = kit_now_us();
    for (unsigned i = 0; i < storm->client_pool->count; i++) {
        struct client *client = &storm->client_pool->clients[i];
        bool leaver = i < numbers->leavers, calm = leaver && i % 4 == 3;
        bool narrow = leaver && i % 8 == 5;
        client->semaphore = calm ? "calm" : narrow ? "narrow" : "hot";
        client->count = narrow ? 2 : 1;
        client->wait = "10m";
        client->rounds = leaver && !calm ? ROUNDS : calm ? 1 : ROUNDS;
        client->hold_ms = HOLD_MS;
        client->without_key = i % 2;
        client->keeps = calm;
        client->leave_ms = calm ? (int)random_below(storm, CALM_LEAVE_MS) : -1;
        if (leaver)
            storm->leave_at_us[i] =
                now + (int64_t)(narrow ? numbers->over_ms / 2 : random_below(storm, numbers->over_ms)) * 1000;
    }
}

/* Handles the clients whose time has come: waiters leave; the calm ones ask, and leave by their own timer. */
static unsigned leave_some(struct storm *storm)
{
    int64_t now = kit_now_us();
    unsigned left = 0;
    for (unsigned i = 0; i < storm->numbers->leavers; i++) {
        struct client *client = &storm->client_pool->clients[i];
        bool calm = client->leave_ms >= 0;
        if (client->state == CLIENT_GONE || (calm && client->round))
            continue;
        left++;
        if (now < storm->leave_at_us[i])
            continue;
        if (calm)
            client_pool_ask(storm->client_pool, client);
        else if (client->state == CLIENT_ASKING)
            client_pool_leave(storm->client_pool, client);
    }
    return left;
}

static void ask_all_but_calm(struct storm *storm)
{
    for (unsigned i = 0; i < storm->client_pool->count; i++)
        if (storm->client_pool->clients[i].leave_ms < 0)
            client_pool_ask(storm->client_pool, &storm->client_pool->clients[i]);
}

static void storm_run(struct storm *storm)
{
    struct client_pool *client_pool = storm->client_pool;
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    set_clients(storm);
    ask_all_but_calm(storm);
    while (leave_some(storm)) {
        client_pool_step(client_pool, 1);
        if (kit_now_us() > end_us)
            kit_fail("leave: the storm does not end: %zu turns", client_pool->turn_count);
    }
    for (unsigned i = 0; i < client_pool->count; i++)
        client_pool->clients[i].rounds = 0;
}

/* ---- afterwards ---- */

struct found {
    char key[CLIENT_POOL_KEY];
    uint64_t token;
};

struct found_list {
    struct found *found;
    size_t count;
};

static void take_found(void *context, char **columns)
{
    struct found_list *list = context;
    list->found = realloc(list->found, (list->count + 1) * sizeof(list->found[0]));
    KIT_CHECK(list->found);
    struct found *found = &list->found[list->count++];
    snprintf(found->key, sizeof(found->key), "%s", columns[0]);
    found->token = strtoull(columns[1], NULL, 10);
}

/* The turn of this key, or NULL if the key is not ours. */
static const struct turn *turn_of(const struct storm *storm, const char *key)
{
    unsigned client, round;
    if (sscanf(key, "leave-%u-%u", &client, &round) != 2 || client >= storm->client_pool->count)
        return NULL;
    for (size_t i = storm->client_pool->turn_count; i-- > 0;)
        if (storm->client_pool->turns[i].client == client && storm->client_pool->turns[i].round == round)
            return &storm->client_pool->turns[i];
    return NULL;
}

/*
 * A retry with the key of a client that left gets the same grant, or finds that it has just expired. Releases it then.
 */
static void settle(struct storm *storm, const struct found *found)
{
    const struct turn *turn = turn_of(storm, found->key);
    if (!turn || !turn->left)
        kit_fail("leave: %s is held, but no client that left has that key", found->key);
    struct kit_http http = kit_http(storm->fixture.permitd[0]->port);
    struct reply reply;
    char body[256];
    /* As the client_pool wrote it: owner, then permits. */
    snprintf(body, sizeof(body),
             "{\"external_id\":\"%s\",\"owner\":\"client_pool\",\"permits\":[{\"semaphore\":\"%s\",\"count\":1}]}",
             found->key, storm->client_pool->clients[turn->client].semaphore);
    kit_http_post(&http, "/v1/requests", body, &reply);
    bool there = reply.status == 200 && (uint64_t)kit_json_int(reply.body, "permits.0.token") == found->token;
    if (!there && !(reply.status == 410 && kit_json_text_is(reply.body, "end_reason", "expired")))
        kit_fail("leave: %s holds token %llu, a retry is answered %d %s", found->key, (unsigned long long)found->token,
                 reply.status, reply.body);
    reply_release(&reply);
    KIT_CHECK(fixture_release(&http, found->key) == 200);
    kit_http_close(&http);
}

static bool no_generated_key_is_held(void *context)
{
    struct fixture *fixture = context;
    return kit_sql_number(fixture->sql, "SELECT COUNT(*) FROM permit_request WHERE state = 1 AND external_id NOT LIKE "
                                        "'leave-%%' AND external_id <> 'narrow'") == 0;
}

/*
 * Releases the grants of the calm semaphore that arrived before the client left. A client that closed only its sending
 * side may have received its answer too.
 */
static void release_kept(struct storm *storm)
{
    struct kit_http http = kit_http(storm->fixture.permitd[0]->port);
    for (unsigned i = 0; i < storm->numbers->leavers; i++) {
        const struct client *client = &storm->client_pool->clients[i];
        const struct turn *turn = &storm->client_pool->turns[client->turn];
        if (turn->token && !turn->releasing_us)
            KIT_CHECK(fixture_release(&http, client->key) == 200);
    }
    kit_http_close(&http);
}

/*
 * Waits until no client waits and permitd has released the grants whose keys it generated. Stayers are granted and
 * leave then.
 */
static void await_quiet(struct storm *storm)
{
    struct client_pool *client_pool = storm->client_pool;
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    while (client_pool->busy && kit_now_us() < end_us)
        client_pool_step(client_pool, 100);
    if (client_pool->busy)
        kit_fail("leave: %u clients that stayed are not served; %zu wait", client_pool->busy,
                 fixture_waiting(&storm->fixture, "hot"));
    release_kept(storm);
    fixture_await_waiting(&storm->fixture, "hot", 0, WAITS_LOST_MS);
    fixture_await_waiting(&storm->fixture, "calm", 0, WAITS_LOST_MS);
    fixture_await_waiting(&storm->fixture, "narrow", 0, WAITS_LOST_MS);
    if (!kit_wait_until(no_generated_key_is_held, &storm->fixture, WAITS_LOST_MS))
        kit_fail("leave: %lld requests with keys generated by permitd are held without a client, %lld of them were "
                 "never refused",
                 (long long)kit_sql_number(storm->fixture.sql,
                                           "SELECT COUNT(*) FROM permit_request WHERE state = 1 AND "
                                           "external_id NOT LIKE 'leave-%%'"),
                 (long long)kit_sql_number(storm->fixture.sql,
                                           "SELECT COUNT(*) FROM permit p JOIN semaphore s ON s.id = p.semaphore_id "
                                           "JOIN permit_request r ON r.id = p.permit_request_id WHERE s.name = 'calm' "
                                           "AND r.state = 1 AND r.external_id NOT LIKE 'leave-%%'"));
}

/* Settles the requests that left clients still hold under their own keys. Returns their number. */
static size_t settle_some(struct storm *storm)
{
    struct found_list list = {NULL, 0};
    kit_sql_each(storm->fixture.sql,
                 "SELECT r.external_id, p.id FROM permit_request r JOIN permit p ON p.permit_request_id = r.id "
                 "WHERE r.state = 1 AND r.external_id LIKE 'leave-%'",
                 take_found, &list);
    for (size_t i = 0; i < list.count; i++)
        settle(storm, &list.found[i]);
    free(list.found);
    return list.count;
}

/* A request of a client that left immediately may be granted only now; before that it is in no waitlist. */
static void judge_quiet(struct storm *storm, struct leave_figures *figures)
{
    char message[MESSAGE_SIZE];
    int64_t end_us = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    do
        figures->granted += settle_some(storm);
    while (fixture_held(&storm->fixture) && kit_now_us() < end_us);
    if (fixture_held(&storm->fixture))
        kit_fail("leave: %lld requests are held in the end", (long long)fixture_held(&storm->fixture));
    if (!rows_check(storm->fixture.sql, message) || !rows_check_past(storm->fixture.sql, message))
        kit_fail("leave: %s", message);
    for (size_t i = 0; i < storm->client_pool->turn_count; i++) {
        figures->left_waiting += storm->client_pool->turns[i].left;
        figures->served += storm->client_pool->turns[i].status == 201;
    }
}

/* Acquires or releases one of the two units, which is held as long as the storm lasts. */
static void narrow_call(struct fixture *fixture, bool acquires)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    struct reply reply = {.status = 0};
    if (acquires)
        KIT_CHECK(fixture_acquire(&http, "narrow", "narrow", 1, "1h", &reply) == 201);
    else
        KIT_CHECK(fixture_release(&http, "narrow") == 200);
    reply_release(&reply);
    kit_http_close(&http);
}

void leave_measure(const struct leave_numbers *numbers, struct leave_figures *ret_figures)
{
    struct storm storm = {.numbers = numbers, .fixture = fixture_start(1, false), .random = numbers->seed};
    char body[64];
    snprintf(body, sizeof(body), "{\"capacity\":%d,\"default_ttl\":\"3s\"}", CAPACITY);
    fixture_semaphore(&storm.fixture, "hot", body);
    snprintf(body, sizeof(body), "{\"capacity\":%d}", CALM_CAPACITY);
    fixture_semaphore(&storm.fixture, "calm", body);
    fixture_semaphore(&storm.fixture, "narrow", "{\"capacity\":2}");
    narrow_call(&storm.fixture, true);
    storm.client_pool = client_pool_open("leave", storm.fixture.permitd[0]->port, numbers->leavers + numbers->stayers);
    storm.leave_at_us = calloc(numbers->leavers, sizeof(storm.leave_at_us[0]));
    KIT_CHECK(storm.leave_at_us);
    *ret_figures = (struct leave_figures){.served = 0};

    storm_run(&storm);
    await_quiet(&storm);
    narrow_call(&storm.fixture, false);
    judge_quiet(&storm, ret_figures);
    free(storm.leave_at_us);
    client_pool_close(storm.client_pool);
    fixture_stop(&storm.fixture);
}
