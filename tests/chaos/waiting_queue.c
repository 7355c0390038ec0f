/* SPDX-License-Identifier: MIT */
/*
 * P20 and P21: there is one queue, through whichever permitd the clients come, and places survive the permitd. The
 * checkers of C8 judge; nothing here depends on speed.
 */
#include "waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64, LATE_MS = 60000, LOOK_MS = 5 };

/* ---- crowds by turns ---- */

static void run_turns(const struct part_options *options, bool fifo, unsigned permitds)
{
    struct turns_numbers numbers = {.permitds = permitds,
                                    .clients = options->full ? 64 : 8,
                                    .waits = options->full ? 20 : 4,
                                    .wait = "100s",
                                    .fifo = fifo};
    struct turns_figures figures;
    turns_measure(&numbers, &figures);
    printf("waiting: turns: %s, %u permitd: %zu grants to %u clients that cycle; the client at the last permitd was "
           "served %zu times, each after at most %lld others\n",
           fifo ? "fifo" : "backfill", permitds, figures.grants, numbers.clients, figures.served,
           (long long)duration_set_quantile_us(&figures.before, 1));
    turns_release(&figures);
}

void waiting_turns(const struct part_options *options)
{
    run_turns(options, true, 2);
    run_turns(options, false, 2);
    run_turns(options, false, 3);
}

/* ---- a permitd that ends or stops ---- */

static void run_kept(const struct part_options *options, enum kept_fault fault, const char *name)
{
    struct kept_figures figures;
    unsigned waiters = options->full ? 1000 : 100;
    for (int fifo = 0; fifo < 2; fifo++) {
        kept_measure(
            &(struct kept_numbers){.fault = fault, .waiters = waiters, .others = waiters / 4, .fifo = fifo != 0},
            &figures);
        printf("waiting: %s: %s, %u waiters and %u at the other permitd: all in their places after %.1f s, served in "
               "order; %zu pairs judged while they were there\n",
               name, fifo ? "fifo" : "backfill", waiters, waiters / 4, figures.back_seconds, figures.order.judged);
    }
}

void waiting_kept_killed(const struct part_options *options)
{
    run_kept(options, KEPT_KILLED, "kept_killed");
}

void waiting_kept_stopped(const struct part_options *options)
{
    run_kept(options, KEPT_STOPPED, "kept_stopped");
}

void waiting_kept_frozen(const struct part_options *options)
{
    run_kept(options, KEPT_FROZEN, "kept_frozen");
}

void waiting_kept_thawed(const struct part_options *options)
{
    run_kept(options, KEPT_THAWED, "kept_thawed");
}

/* ---- waiters at two permitd ---- */

/* One semaphore, held; clients at both permitd. */
struct scene {
    struct fixture fixture;
    struct queue_facts queue;
    struct queue_watch watch;
    struct kit_http http[2];
    struct client_pool *pool; /* connected to both by turns */
    bool shrunk;              /* the past is not within the capacity of today */
};

static void scene_call(struct scene *scene, size_t at, const char *method, const char *path, const char *body)
{
    struct reply reply;
    kit_http_call(&scene->http[at], method, path, NULL, body, &reply);
    if (reply.status / 100 != 2)
        kit_fail("%s %s: %d %s", method, path, reply.status, reply.body);
    reply_release(&reply);
}

static void scene_start(struct scene *scene, const char *body, bool fifo, unsigned held, unsigned clients)
{
    unsigned ports[2];
    struct reply reply;
    *scene = (struct scene){.fixture = fixture_start(2, false), .queue = {"hot", fifo, BACKFILL_BOUND_US}};
    fixture_semaphore(&scene->fixture, "hot", body);
    for (size_t i = 0; i < 2; i++) {
        ports[i] = scene->fixture.permitd[i]->port;
        scene->http[i] = kit_http(ports[i]);
    }
    if (held && fixture_acquire(&scene->http[0], "holder", "hot", held, "1h", &reply) != 201)
        kit_fail("the first holder: %d %s", reply.status, reply.body);
    if (held)
        reply_release(&reply);
    scene->pool = client_pool_open_at("scene", ports, 2, clients);
    for (unsigned i = 0; i < clients; i++) {
        scene->pool->clients[i].semaphore = "hot";
        scene->pool->clients[i].wait = "100s";
    }
    queue_watch_start(&scene->watch, scene->fixture.database, &scene->queue, 1, LOOK_MS);
}

/* One after the other, so that the order of the places is the order of the numbers where the priorities are equal. */
static void scene_ask(struct scene *scene, unsigned from, unsigned to, size_t waiting_before)
{
    for (unsigned i = from; i < to; i++) {
        client_pool_ask(scene->pool, &scene->pool->clients[i]);
        fixture_await_waiting(&scene->fixture, "hot", waiting_before + i - from + 1, WAITS_LOST_MS);
    }
}

static void scene_release_holder(struct scene *scene, size_t at)
{
    int status = fixture_release(&scene->http[at], "holder");
    if (status != 200)
        kit_fail("the release of the first holder: %d", status);
}

static void scene_run(struct scene *scene)
{
    if (!client_pool_run(scene->pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) || scene->pool->failed)
        kit_fail("%u clients are not done, %u releases failed", scene->pool->busy, scene->pool->failed);
}

/* Judges, and stops everything. exact: number of waiters that were all there before the first grant; 0: none. */
static void scene_stop(struct scene *scene, size_t exact)
{
    char message[MESSAGE_SIZE];
    size_t count = scene->pool->turn_count;
    struct order order = queue_watch_stop(&scene->watch);
    struct ask *asks = client_pool_asks(scene->pool);
    order_limit(&order, asks, count);
    if (!check_places(&order, message) || !check_order(&order, NULL, message) ||
        (exact && !check_exact(&order, exact, message)) ||
        !check_told(&order, asks, count, (int64_t)LATE_MS * 1000, false, message) ||
        !rows_check(scene->fixture.sql, message) || (!scene->shrunk && !rows_check_past(scene->fixture.sql, message)))
        kit_fail("%s", message);
    if (!rows_await_no_places(scene->fixture.sql, LATE_MS))
        kit_fail("%lld places are left though nobody waits", (long long)rows_places(scene->fixture.sql));
    free(asks);
    order_release(&order);
    for (size_t i = 0; i < 2; i++)
        kit_http_close(&scene->http[i]);
    client_pool_close(scene->pool);
    fixture_stop(&scene->fixture);
}

/* Checks the answer of the client. */
static void expect_turn(const struct scene *scene, unsigned client, int status, const char *word)
{
    const struct turn *turn = &scene->pool->turns[scene->pool->clients[client].turn];
    if (turn->status != status || strcmp(turn->word, word))
        kit_fail("client %u was answered %d %s, not %d %s", client, turn->status, turn->word, status, word);
}

/* The same keys at a second permitd: each moves there with its place, and the first copy is told. */
void waiting_twice(const struct part_options *options)
{
    enum { KEYS = 20 };
    struct scene scene;
    unsigned ports[2];
    (void)options;
    scene_start(&scene, "{\"capacity\":1}", false, 1, KEYS);
    scene_ask(&scene, 0, KEYS, 0);
    for (size_t i = 0; i < 2; i++)
        ports[i] = scene.fixture.permitd[1 - i]->port;
    struct client_pool *second = client_pool_open_at("scene", ports, 2, KEYS); /* the same keys, crosswise */
    for (unsigned i = 0; i < KEYS; i++) {
        second->clients[i].semaphore = "hot";
        second->clients[i].wait = "100s";
        client_pool_ask(second, &second->clients[i]);
        while (scene.pool->clients[i].state == CLIENT_ASKING) { /* its end: an answer, or WAITS_LOST_MS below */
            client_pool_step(second, 1);
            client_pool_step(scene.pool, 1);
            if (kit_now_us() - second->turns[second->clients[i].turn].asked_us > (int64_t)WAITS_LOST_MS * 1000)
                kit_fail("twice: the first copy of key %u was never told", i);
        }
        expect_turn(&scene, i, 503, "outcome_unknown");
    }
    fixture_await_waiting(&scene.fixture, "hot", KEYS, WAITS_LOST_MS);
    scene_release_holder(&scene, 0);
    if (!client_pool_run(second, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) ||
        client_pool_count(second, 201, NULL) != KEYS || second->failed)
        kit_fail("twice: %zu of %d second copies were served", client_pool_count(second, 201, NULL), KEYS);
    client_pool_close(second);
    for (unsigned i = 0; i < KEYS; i++) /* they are told at the second copy */
        scene.pool->turns[scene.pool->clients[i].turn].status = 0;
    for (unsigned i = 0; i < KEYS; i++)
        scene.pool->turns[scene.pool->clients[i].turn].gone_us = kit_now_us();
    scene_stop(&scene, KEYS);
    printf("waiting: twice: %d keys moved to a second permitd with their places\n", KEYS);
}

/* Within one step of priority (30 s) a higher priority stands first, at whichever permitd. */
void waiting_priorities(const struct part_options *options)
{
    enum { CLIENTS = 30 };
    struct scene scene;
    uint64_t random = options->seed * 2654435761u + 1;
    unsigned latest = 10;
    scene_start(&scene, "{\"capacity\":1,\"queue\":\"fifo\"}", true, 1, CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        scene.pool->clients[i].priority = (unsigned)(random >> 33) % 10;
    }
    int64_t start_us = kit_now_us();
    scene_ask(&scene, 0, CLIENTS, 0);
    bool within_a_step = kit_now_us() - start_us < 30000000; /* else only the places count */
    scene_release_holder(&scene, 1);
    scene_run(&scene);
    for (unsigned served = 0; served < CLIENTS && within_a_step; served++) {
        /* The client with the least token that is left: clients are few. */
        const struct turn *next = NULL;
        for (size_t i = 0; i < scene.pool->turn_count; i++) {
            struct turn *turn = &scene.pool->turns[i];
            if (turn->token && (!next || turn->token < next->token))
                next = turn;
        }
        if (!next)
            kit_fail("priorities: %u of %d were granted", served, CLIENTS);
        unsigned priority = scene.pool->clients[next->client].priority;
        if (priority > latest)
            kit_fail("priorities: client %u with priority %u was granted after one with %u", next->client, priority,
                     latest);
        latest = priority;
        scene.pool->turns[next - scene.pool->turns].token = 0;
    }
    scene_stop(&scene, CLIENTS);
    printf("waiting: priorities: %d clients at two permitd served by priority, then by age\n", CLIENTS);
}

/* ---- a semaphore that changes while clients wait at both permitd ---- */

enum { CHANGE_CLIENTS = 12 };

/* Capacity 4 to 2: a waiter that wants 3 can never be served, wherever it waits; the others stay. */
static void shrink_while_waiting(void)
{
    struct scene scene;
    scene_start(&scene, "{\"capacity\":4}", false, 4, CHANGE_CLIENTS);
    for (unsigned i = 0; i < CHANGE_CLIENTS; i++)
        scene.pool->clients[i].count = i % 4 < 2 ? 3 : 2; /* at both permitd */
    scene_ask(&scene, 0, CHANGE_CLIENTS, 0);
    scene_call(&scene, 0, "PUT", "/v1/semaphores/hot", "{\"capacity\":2}");
    scene.shrunk = true;
    int64_t end = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    while (client_pool_count(scene.pool, 422, "never_satisfiable") < CHANGE_CLIENTS / 2) {
        client_pool_step(scene.pool, 50);
        if (kit_now_us() > end)
            kit_fail("shrink: %zu of %d were told that they can never be served",
                     client_pool_count(scene.pool, 422, NULL), CHANGE_CLIENTS / 2);
    }
    fixture_await_waiting(&scene.fixture, "hot", CHANGE_CLIENTS / 2, WAITS_LOST_MS);
    scene_release_holder(&scene, 1);
    scene_run(&scene);
    for (unsigned i = 0; i < CHANGE_CLIENTS; i++)
        expect_turn(&scene, i, i % 4 < 2 ? 422 : 201, i % 4 < 2 ? "never_satisfiable" : "");
    scene_stop(&scene, CHANGE_CLIENTS / 2);
}

/* While it is paused no waiter is granted and all stay; afterwards all are served in order. */
static void pause_while_waiting(void)
{
    struct scene scene;
    scene_start(&scene, "{\"capacity\":1}", false, 1, CHANGE_CLIENTS);
    scene_ask(&scene, 0, CHANGE_CLIENTS / 2, 0);
    scene_call(&scene, 1, "POST", "/v1/semaphores/hot/pause", "{\"reason\":\"test\"}");
    scene_ask(&scene, CHANGE_CLIENTS / 2, CHANGE_CLIENTS, CHANGE_CLIENTS / 2);
    scene_release_holder(&scene, 0);
    client_pool_run(scene.pool, kit_now_us() + 1500000); /* longer than a second, in which every queue is looked at */
    if (fixture_held(&scene.fixture) || fixture_waiting(&scene.fixture, "hot") != CHANGE_CLIENTS)
        kit_fail("pause: %lld are held, %zu wait", (long long)fixture_held(&scene.fixture),
                 fixture_waiting(&scene.fixture, "hot"));
    scene_call(&scene, 0, "POST", "/v1/semaphores/hot/resume", NULL);
    scene_run(&scene);
    for (unsigned i = 0; i < CHANGE_CLIENTS; i++)
        expect_turn(&scene, i, 201, "");
    scene_stop(&scene, CHANGE_CLIENTS);
}

/* Capacity 0, so that it can be retired while clients wait: all are told at once. */
static void retire_while_waiting(void)
{
    struct scene scene;
    scene_start(&scene, "{\"capacity\":1}", false, 0, CHANGE_CLIENTS);
    scene_call(&scene, 0, "PUT", "/v1/semaphores/hot", "{\"capacity\":0}");
    scene_ask(&scene, 0, CHANGE_CLIENTS, 0);
    scene_call(&scene, 1, "DELETE", "/v1/semaphores/hot", NULL);
    scene_run(&scene);
    for (unsigned i = 0; i < CHANGE_CLIENTS; i++)
        expect_turn(&scene, i, 404, "unknown_semaphore");
    scene_stop(&scene, 0);
}

void waiting_changes_queue(const struct part_options *options)
{
    (void)options;
    shrink_while_waiting();
    pause_while_waiting();
    retire_while_waiting();
    printf("waiting: changes_queue: shrink, pause and retirement while clients wait at two permitd\n");
}
