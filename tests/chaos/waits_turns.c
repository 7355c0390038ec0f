/* SPDX-License-Identifier: MIT */
/* A crowd takes one unit by turns at some permitd, and a client waits for it at another. */
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_MS = 300, LATE_MS = 60000 };

struct turns {
    const struct turns_numbers *numbers;
    struct fixture fixture;
    struct client_pool *pool; /* the last client is the one at the last permitd */
    struct client *waiter;
    bool stopping;
};

static struct client_pool *open_clients(const struct turns *turns)
{
    const struct turns_numbers *numbers = turns->numbers;
    unsigned *ports = calloc(numbers->clients + 1, sizeof(ports[0]));
    KIT_CHECK(ports && numbers->permitds > 1);
    for (unsigned i = 0; i < numbers->clients; i++)
        ports[i] = turns->fixture.permitd[i % (numbers->permitds - 1)]->port;
    ports[numbers->clients] = turns->fixture.permitd[numbers->permitds - 1]->port;
    struct client_pool *pool = client_pool_open_at("turns", ports, numbers->clients + 1, numbers->clients + 1);
    free(ports);
    return pool;
}

static void set_client(struct client *client, const char *wait)
{
    client->semaphore = "hot";
    client->wait = wait;
}

/* A client of the crowd asks again as soon as it has released. */
static void ask_again(struct client_pool *pool, struct client *client)
{
    const struct turns *turns = pool->context;
    if (client != turns->waiter && !turns->stopping) {
        client->rounds = client->round + 1;
        client_pool_ask(pool, client);
    }
}

static void wait_once(struct turns *turns)
{
    struct client *waiter = turns->waiter;
    waiter->rounds = waiter->round + 1;
    client_pool_ask(turns->pool, waiter);
    for (int64_t end = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000; waiter->state != CLIENT_IDLE;) {
        client_pool_step(turns->pool, 100);
        if (kit_now_us() > end)
            kit_fail("turns: the client at the last permitd has no answer");
    }
}

/* ---- judging ---- */

static bool is_the_waiter(const struct turns *turns, const struct turn *turn)
{
    return turn->client == turns->waiter->number;
}

/* Grants that the crowd was answered while the waiter waited. */
static int64_t grants_seen(const struct turns *turns, const struct turn *wait)
{
    int64_t count = 0;
    for (size_t i = 0; i < turns->pool->turn_count; i++) {
        const struct turn *turn = &turns->pool->turns[i];
        count += turn->status == 201 && turn != wait && turn->answered_us > wait->asked_us &&
                 turn->answered_us < wait->answered_us;
    }
    return count;
}

/* Grants after its entry and before its own, by the rows. */
static int64_t grants_recorded(const struct turns *turns, const struct turn *wait)
{
    return kit_sql_number(turns->fixture.sql,
                          "SELECT COUNT(*) FROM permit_request w JOIN permit m ON m.permit_request_id = w.id "
                          "JOIN permit p ON p.semaphore_id = m.semaphore_id AND p.id < m.id "
                          "JOIN permit_request r ON r.id = p.permit_request_id AND r.acquired_at > w.waiting_since "
                          "WHERE w.external_id = 'turns-%u-%u'",
                          wait->client, wait->round);
}

static void judge_turns(struct turns *turns)
{
    const struct queue_facts queue = {"hot", turns->numbers->fifo, BACKFILL_BOUND_US};
    char message[MESSAGE_SIZE];
    struct order_counts counts = {0, 0};
    struct order order = order_of_grants(turns->fixture.database, &queue, 1);
    struct ask *asks = client_pool_asks(turns->pool);
    order_add_whole(&order, asks, turns->pool->turn_count);
    if (!check_order(&order, &counts, message) ||
        !check_told(&order, asks, turns->pool->turn_count, (int64_t)LATE_MS * 1000, true, message))
        kit_fail("turns: %s", message);
    if (counts.judged < order.place_count / 2)
        kit_fail("turns: only %zu pairs of %zu grants could be judged", counts.judged, order.place_count);
    free(asks);
    order_release(&order);
    if (!rows_check(turns->fixture.sql, message) || !rows_check_past(turns->fixture.sql, message))
        kit_fail("turns: %s", message);
}

static void count_all(struct turns *turns, struct turns_figures *figures)
{
    for (size_t i = 0; i < turns->pool->turn_count; i++) {
        const struct turn *turn = &turns->pool->turns[i];
        if (!is_the_waiter(turns, turn)) {
            figures->grants += turn->status == 201;
            continue;
        }
        bool served = turn->status == 201;
        figures->served += served;
        figures->refused += !served;
        duration_set_add(&figures->waited, turn->answered_us - turn->asked_us);
        duration_set_add(&figures->before,
                         served && turns->fixture.one_queue ? grants_recorded(turns, turn) : grants_seen(turns, turn));
    }
}

void turns_measure(const struct turns_numbers *numbers, struct turns_figures *ret_figures)
{
    struct turns turns = {.numbers = numbers, .fixture = fixture_start(numbers->permitds, false)};
    *ret_figures = (struct turns_figures){.served = 0};
    fixture_semaphore(&turns.fixture, "hot",
                      numbers->fifo ? "{\"capacity\":1,\"queue\":\"fifo\"}" : "{\"capacity\":1}");
    turns.pool = open_clients(&turns);
    turns.waiter = &turns.pool->clients[numbers->clients];
    turns.pool->context = &turns;
    turns.pool->done = ask_again;
    set_client(turns.waiter, numbers->wait);
    for (unsigned i = 0; i < numbers->clients; i++) {
        set_client(&turns.pool->clients[i], "100s");
        client_pool_ask(turns.pool, &turns.pool->clients[i]);
    }
    int64_t start_us = kit_now_us();
    client_pool_run(turns.pool, start_us + (int64_t)WARM_MS * 1000);
    for (unsigned i = 0; i < numbers->waits; i++) {
        wait_once(&turns);
        client_pool_run(turns.pool, kit_now_us() + (int64_t)WARM_MS * 1000);
    }
    turns.stopping = true;
    if (!client_pool_run(turns.pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) || turns.pool->failed)
        kit_fail("turns: %u clients are not done, %u releases failed", turns.pool->busy, turns.pool->failed);
    ret_figures->seconds = (double)(kit_now_us() - start_us) / 1e6;
    count_all(&turns, ret_figures);
    if (turns.fixture.one_queue)
        judge_turns(&turns);
    client_pool_close(turns.pool);
    fixture_stop(&turns.fixture);
}

void turns_release(struct turns_figures *figures)
{
    duration_set_release(&figures->before);
    duration_set_release(&figures->waited);
}
