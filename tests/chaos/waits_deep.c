/* SPDX-License-Identifier: MIT */
/* Thousands of requests wait for what does not come, while others take and return units of the same semaphore (P23). */
#include "waits.h"

#include <stdio.h>
#include <string.h>

enum { SLOTS = 65536, SLOTS_A_HOLDER = 1000, ROUNDS = 100000000, WARM_MS = 500 };

struct deep {
    const struct deep_numbers *numbers;
    struct fixture fixture;
    struct client_pool *passers;
};

/* Holds every second slot. */
static void deep_take_slots(struct kit_http *http)
{
    for (unsigned first = 2; first <= SLOTS; first += 2 * SLOTS_A_HOLDER) {
        char body[SLOTS_A_HOLDER * 8];
        struct reply reply;
        int length =
            snprintf(body, sizeof(body),
                     "{\"external_id\":\"holder-%u\",\"ttl\":\"1h\",\"permits\":[{\"semaphore\":\"deep\",\"slots\":[%u",
                     first, first);
        for (unsigned slot = first + 2; slot <= SLOTS && slot < first + 2 * SLOTS_A_HOLDER; slot += 2)
            length += snprintf(body + length, sizeof(body) - (size_t)length, ",%u", slot);
        snprintf(body + length, sizeof(body) - (size_t)length, "]}]}");
        kit_http_post(http, "/v1/requests", body, &reply);
        if (reply.status != 201)
            kit_fail("deep: %d %s", reply.status, reply.body);
        reply_release(&reply);
    }
}

static void deep_hold(struct deep *deep)
{
    struct kit_http http = kit_http(deep->fixture.permitd[0]->port);
    struct reply reply;
    if (deep->numbers->kind != DEEP_COUNT) {
        deep_take_slots(&http);
    } else {
        if (fixture_acquire(&http, "holder", "deep", 6, "1h", &reply) != 201)
            kit_fail("deep: %d %s", reply.status, reply.body);
        reply_release(&reply);
    }
    kit_http_close(&http);
}

static void deep_want(enum deep_kind kind, unsigned number, struct client *client)
{
    unsigned held = number % (SLOTS / 2 - 2) * 2 + 2;
    char *units = client->units;
    size_t size = sizeof(client->units);
    switch (kind) {
    case DEEP_ADJACENT: snprintf(units, size, "\"count\":6,\"adjacent\":true"); break;
    case DEEP_ANY_OF: snprintf(units, size, "\"any_of\":[%u,%u,%u],\"count\":2", held, held + 1, held + 2); break;
    case DEEP_NAMED: snprintf(units, size, "\"slots\":[%u,%u]", held, held + 1); break;
    default: client->count = 5; break;
    }
}

/* Adds the times of all calls since the turn `first` that were answered. Returns the number that was refused. */
static size_t deep_add(const struct deep *deep, size_t first, struct duration_set *passed, struct duration_set *other)
{
    size_t refused = 0;
    for (size_t i = first; i < deep->passers->turn_count; i++) {
        const struct turn *turn = &deep->passers->turns[i];
        bool is_passer = turn->client < deep->numbers->passers;
        struct duration_set *set = is_passer ? passed : other;
        if (turn->status && turn->status != 201 && (turn->status != 423 || !is_passer))
            kit_fail("deep: %d %s", turn->status, turn->word);
        refused += turn->status == 423;
        if (set && turn->answered_us)
            duration_set_add(set, turn->answered_us - turn->asked_us);
        if (set && turn->released_us)
            duration_set_add(set, turn->released_us - turn->releasing_us);
    }
    return refused;
}

/* Lets the passers run, and returns the number of the first turn after they are warm. */
static size_t deep_run(struct deep *deep)
{
    (void)client_pool_run(deep->passers, kit_now_us() + WARM_MS * 1000LL);
    size_t first = deep->passers->turn_count;
    (void)client_pool_run(deep->passers, kit_now_us() + (int64_t)(deep->numbers->seconds * 1e6));
    return first;
}

static struct client_pool *deep_open(const struct deep *deep, const char *name, unsigned count)
{
    unsigned ports[PERMITD_MAX];
    for (size_t i = 0; i < deep->fixture.count; i++)
        ports[i] = deep->fixture.permitd[i]->port;
    return client_pool_open_at(name, ports, deep->fixture.count, count);
}

static void deep_open_passers(struct deep *deep)
{
    unsigned count = deep->numbers->passers + deep->numbers->others;
    deep->passers = deep_open(deep, "pass", count);
    for (unsigned i = 0; i < count; i++) {
        deep->passers->clients[i].semaphore = i < deep->numbers->passers ? "deep" : "other";
        deep->passers->clients[i].rounds = ROUNDS;
    }
    client_pool_ask_all(deep->passers);
}

static void deep_await(struct deep *deep, struct client_pool *waiters)
{
    int64_t end_us = kit_now_us() + WAITS_LOST_MS * 1000LL;
    while (kit_sql_number(deep->fixture.sql, "SELECT waiting FROM semaphore WHERE name = 'deep'") < waiters->count) {
        (void)client_pool_run(deep->passers, kit_now_us() + 100000);
        client_pool_step(waiters, 0);
        if (kit_now_us() > end_us)
            kit_fail("deep: not all clients wait");
    }
}

void deep_measure(const struct deep_numbers *numbers, struct deep_figures *ret_figures)
{
    const char *const flags[] = {"--max-connections",
                                 "20000",
                                 "--max-connections-per-address",
                                 "20000",
                                 "--max-semaphore-waiters",
                                 "20000",
                                 "--backfill-bound",
                                 numbers->aged ? "1s" : "1h",
                                 NULL};
    struct deep deep = {.numbers = numbers, .fixture = fixture_start_with(numbers->permitds, flags)};
    char body[64];
    snprintf(body, sizeof(body), "{\"capacity\":%u,\"kind\":\"%s\"}", numbers->kind == DEEP_COUNT ? 10 : SLOTS,
             numbers->kind == DEEP_COUNT ? "counted" : "slotted");
    *ret_figures = (struct deep_figures){0};
    fixture_semaphore(&deep.fixture, "deep", body);
    fixture_semaphore(&deep.fixture, "other", "{\"capacity\":1000,\"kind\":\"counted\"}");
    deep_hold(&deep);
    deep_open_passers(&deep);
    (void)deep_add(&deep, deep_run(&deep), NULL, &ret_figures->other_alone);
    struct client_pool *waiters = deep_open(&deep, "wait", numbers->waiters);
    for (unsigned i = 0; i < numbers->waiters; i++) {
        waiters->clients[i].semaphore = "deep";
        waiters->clients[i].wait = "10m";
        deep_want(numbers->kind, i, &waiters->clients[i]);
        client_pool_ask(waiters, &waiters->clients[i]);
        if (i % numbers->passers == 0) /* both pools are served by this thread */
            client_pool_step(deep.passers, 0);
    }
    deep_await(&deep, waiters);
    if (numbers->aged)
        (void)client_pool_run(deep.passers, kit_now_us() + 1100000);
    ret_figures->refused = deep_add(&deep, deep_run(&deep), &ret_figures->passed, &ret_figures->other);
    client_pool_step(waiters, 0);
    if (client_pool_count(waiters, 0, NULL) != numbers->waiters)
        kit_fail("deep: some waiters were answered");
    client_pool_close(waiters);
    client_pool_close(deep.passers);
    fixture_stop(&deep.fixture);
}

void deep_release(struct deep_figures *figures)
{
    duration_set_release(&figures->passed);
    duration_set_release(&figures->other);
    duration_set_release(&figures->other_alone);
}
