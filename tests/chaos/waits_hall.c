/* SPDX-License-Identifier: MIT */
/* A hall of taken seats: many clients wait for one of them each, others take and return free seats of the hall. */
#include "waits.h"

#include <stdio.h>

enum { SEATS_A_HOLDER = 1000, SPARE_SEATS = 100, ROUNDS = 100000000, WARM_MS = 500 };

struct hall {
    const struct hall_numbers *numbers;
    struct fixture fixture;
    struct client_pool *passers; /* take any seat and return it */
};

/* Takes the seats from 1 to the number of waiters. */
static void hall_take_seats(struct hall *hall)
{
    struct kit_http http = kit_http(hall->fixture.permitd[0]->port);
    for (unsigned taken = 0; taken < hall->numbers->waiters;) {
        unsigned left = hall->numbers->waiters - taken, count = left < SEATS_A_HOLDER ? left : SEATS_A_HOLDER;
        char key[64];
        struct reply reply;
        snprintf(key, sizeof(key), "holder-%u", taken);
        if (fixture_acquire(&http, key, "hall", count, "1h", &reply) != 201)
            kit_fail("hall: %d %s", reply.status, reply.body);
        reply_release(&reply);
        taken += count;
    }
    kit_http_close(&http);
}

static size_t hall_pairs(const struct hall *hall)
{
    size_t pairs = 0;
    for (size_t i = 0; i < hall->passers->turn_count; i++)
        pairs += hall->passers->turns[i].released_us != 0;
    return pairs;
}

/* Returns the pairs of acquire and release per second. */
static double hall_rate(struct hall *hall)
{
    (void)client_pool_run(hall->passers, kit_now_us() + WARM_MS * 1000LL);
    size_t before = hall_pairs(hall);
    int64_t start_us = kit_now_us();
    (void)client_pool_run(hall->passers, start_us + (int64_t)(hall->numbers->seconds * 1e6));
    return (double)(hall_pairs(hall) - before) * 1e6 / (double)(kit_now_us() - start_us);
}

void hall_measure(const struct hall_numbers *numbers, struct hall_figures *ret_figures)
{
    static const char *const flags[] = {"--max-connections", "20000", "--max-connections-per-address", "20000", NULL};
    struct hall hall = {.numbers = numbers, .fixture = fixture_start_with(1, flags)};
    unsigned port = hall.fixture.permitd[0]->port;
    char body[64];
    snprintf(body, sizeof(body), "{\"capacity\":%u}", numbers->waiters + SPARE_SEATS);
    fixture_semaphore(&hall.fixture, "hall", body);
    hall_take_seats(&hall);
    struct client_pool *waiters = client_pool_open("wait", port, numbers->waiters);
    hall.passers = client_pool_open("pass", port, numbers->passers);
    for (unsigned i = 0; i < numbers->passers; i++) {
        hall.passers->clients[i].semaphore = "hall";
        hall.passers->clients[i].rounds = ROUNDS;
    }
    client_pool_ask_all(hall.passers);
    ret_figures->alone = hall_rate(&hall);
    for (unsigned i = 0; i < numbers->waiters; i++) {
        waiters->clients[i].semaphore = "hall";
        waiters->clients[i].slot = i + 1;
        waiters->clients[i].wait = "10m";
        client_pool_ask(waiters, &waiters->clients[i]);
        if (i % numbers->passers == 0) /* both pools are served by this thread */
            client_pool_step(hall.passers, 0);
    }
    int64_t end_us = kit_now_us() + WAITS_LOST_MS * 1000LL;
    while (kit_sql_number(hall.fixture.sql, "SELECT waiting FROM semaphore WHERE name = 'hall'") < numbers->waiters) {
        (void)client_pool_run(hall.passers, kit_now_us() + 100000);
        client_pool_step(waiters, 0);
        if (kit_now_us() > end_us)
            kit_fail("hall: not all clients wait");
    }
    ret_figures->beside = hall_rate(&hall);
    if (client_pool_count(waiters, 0, NULL) != numbers->waiters)
        kit_fail("hall: some waiters were answered");
    client_pool_close(waiters);
    client_pool_close(hall.passers);
    fixture_stop(&hall.fixture);
}
