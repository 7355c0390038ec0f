/* SPDX-License-Identifier: MIT */
/*
 * A permitd ends, or stops for a while, while clients wait there. Permitd 1 is the one with the fault; the clients come
 * again at permitd 0.
 */
#include "measure.h"
#include "waits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_MS = 10, LATE_MS = 60000 };

struct kept {
    const struct kept_numbers *numbers;
    struct fixture fixture;
    struct queue_facts queue;
    struct queue_watch watch;
    struct client_pool *pool; /* the first `waiters` are connected to permitd 1 */
    uint64_t victim;          /* server.id of permitd 1 */
};

/* ---- the waiters ---- */

static void hold_the_unit(struct kept *kept, bool acquires)
{
    struct kit_http http = kit_http(kept->fixture.permitd[0]->port);
    struct reply reply = {.status = 0};
    int status = acquires ? fixture_acquire(&http, "holder", "hot", 1, "1h", &reply) : fixture_release(&http, "holder");
    if (status != (acquires ? 201 : 200))
        kit_fail("kept: the first holder: %d %s", status, reply.body ? reply.body : "");
    reply_release(&reply);
    kit_http_close(&http);
}

static struct client_pool *open_clients(const struct kept *kept)
{
    unsigned count = kept->numbers->waiters + kept->numbers->others;
    unsigned *ports = calloc(count, sizeof(ports[0]));
    KIT_CHECK(ports);
    for (unsigned i = 0; i < count; i++)
        ports[i] = kept->fixture.permitd[i < kept->numbers->waiters ? 1 : 0]->port;
    struct client_pool *pool = client_pool_open_at("kept", ports, count, count);
    free(ports);
    for (unsigned i = 0; i < count; i++) {
        pool->clients[i].semaphore = "hot";
        pool->clients[i].wait = "100s";
    }
    return pool;
}

/* Runs the clients until so many requests wait with a living permitd other than `except`. */
static void await_asked(struct kept *kept, int64_t count, uint64_t except)
{
    int64_t end = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000, asked;
    while ((asked = kit_sql_number(kept->fixture.sql,
                                   "SELECT COUNT(*) FROM permit_request r JOIN server v ON v.id = r.server_id "
                                   "WHERE r.state = 3 AND v.dead_at IS NULL AND v.id <> %llu",
                                   (unsigned long long)except)) != count) {
        if (kit_now_us() > end)
            kit_fail("kept: %lld of %lld waiters wait with a living permitd", (long long)asked, (long long)count);
        client_pool_run(kept->pool, kit_now_us() + 20000);
        if (!kept->pool->busy)
            kit_sleep_ms(5);
    }
}

/* The waiters of both permitd enter the queue by turns, so their places are mixed. */
static void all_ask(struct kept *kept)
{
    unsigned waiters = kept->numbers->waiters, others = kept->numbers->others, other = 0;
    for (unsigned i = 0; i < waiters; i++) {
        client_pool_ask(kept->pool, &kept->pool->clients[i]);
        for (; other < others && other * waiters <= i * others; other++)
            client_pool_ask(kept->pool, &kept->pool->clients[waiters + other]);
        client_pool_step(kept->pool, 0);
    }
    for (; other < others; other++)
        client_pool_ask(kept->pool, &kept->pool->clients[waiters + other]);
    await_asked(kept, waiters + others, 0);
    kept->victim = (uint64_t)kit_sql_number(kept->fixture.sql,
                                            "SELECT server_id FROM permit_request WHERE external_id = 'kept-0-0'");
}

/* ---- the faults ---- */

static void await_dead(struct kept *kept)
{
    int64_t end = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    while (kit_sql_number(kept->fixture.sql, "SELECT COUNT(*) FROM server WHERE id = %llu AND dead_at IS NULL",
                          (unsigned long long)kept->victim)) {
        if (kit_now_us() > end)
            kit_fail("kept: the permitd never counts as dead");
        client_pool_run(kept->pool, kit_now_us() + 50000);
    }
}

/* Returns when none of the waiters of permitd 1 waits for an answer any more. */
static void lose_answers(struct kept *kept)
{
    int64_t end = kit_now_us() + (int64_t)WAITS_LOST_MS * 1000;
    for (unsigned i = 0; i < kept->numbers->waiters;) {
        if (kept->pool->clients[i].state != CLIENT_ASKING)
            i++;
        else if (kit_now_us() > end)
            kit_fail("kept: client %u of a permitd that ends has neither an answer nor a closed connection", i);
        else
            client_pool_step(kept->pool, 20);
    }
}

static void check_told_of_the_stop(const struct kept *kept)
{
    for (unsigned i = 0; i < kept->numbers->waiters; i++) {
        const struct turn *turn = &kept->pool->turns[kept->pool->clients[i].turn];
        if (turn->status != 503)
            kit_fail("kept: client %u of a permitd that stops was answered %d %s", i, turn->status, turn->word);
    }
}

static void come_again(struct kept *kept, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        client_pool_ask_again(kept->pool, &kept->pool->clients[i], kept->fixture.permitd[0]->port);
        client_pool_step(kept->pool, 0);
    }
}

static void leave(struct kept *kept)
{
    for (unsigned i = 0; i < kept->numbers->waiters; i++)
        client_pool_leave(kept->pool, &kept->pool->clients[i]);
}

/* Afterwards all wait again, and permitd 1 runs only if it was frozen. */
static void inject_fault(struct kept *kept)
{
    unsigned waiters = kept->numbers->waiters;
    struct kit_permitd *permitd = kept->fixture.permitd[1];
    switch (kept->numbers->fault) {
    case KEPT_KILLED:
        kit_permitd_kill(permitd);
        kept->fixture.count = 1;
        lose_answers(kept);
        come_again(kept, 0, waiters);
        break;
    case KEPT_STOPPED:
        KIT_CHECK(!kill(permitd->pid, SIGTERM));
        lose_answers(kept);
        check_told_of_the_stop(kept);
        kit_permitd_stop(permitd);
        kept->fixture.count = 1;
        come_again(kept, 0, waiters);
        break;
    case KEPT_FROZEN: /* half of the clients do not wait until it counts as dead */
        kit_permitd_freeze(permitd);
        leave(kept);
        come_again(kept, 0, waiters / 2);
        await_dead(kept);
        come_again(kept, waiters / 2, waiters);
        break;
    case KEPT_THAWED:
        kit_permitd_freeze(permitd);
        await_dead(kept);
        kit_permitd_thaw(permitd);
        break;
    case KEPT_FAULTS: break;
    }
    await_asked(kept, waiters + kept->numbers->others, kept->victim);
}

/* ---- judging ---- */

static void judge_kept(struct kept *kept, struct kept_figures *figures)
{
    size_t asks_count = kept->pool->turn_count, all = kept->numbers->waiters + kept->numbers->others;
    char message[MESSAGE_SIZE];
    struct order order = queue_watch_stop(&kept->watch);
    struct ask *asks = client_pool_asks(kept->pool);
    order_limit(&order, asks, asks_count);
    if (!check_places(&order, message) || !check_exact(&order, all, message) ||
        !check_order(&order, &figures->order, message) ||
        !check_told(&order, asks, asks_count, (int64_t)LATE_MS * 1000, true, message) ||
        !rows_check(kept->fixture.sql, message) || !rows_check_past(kept->fixture.sql, message))
        kit_fail("kept: %s", message);
    if (fixture_held(&kept->fixture) || rows_places(kept->fixture.sql))
        kit_fail("kept: %lld are held and %lld places left when all is over", (long long)fixture_held(&kept->fixture),
                 (long long)rows_places(kept->fixture.sql));
    free(asks);
    order_release(&order);
}

void kept_measure(const struct kept_numbers *numbers, struct kept_figures *ret_figures)
{
    struct kept kept = {
        .numbers = numbers, .fixture = fixture_start(2, false), .queue = {"hot", numbers->fifo, BACKFILL_BOUND_US}};
    unsigned all = numbers->waiters + numbers->others;
    *ret_figures = (struct kept_figures){.back_seconds = 0};
    fixture_semaphore(&kept.fixture, "hot", numbers->fifo ? "{\"capacity\":1,\"queue\":\"fifo\"}" : "{\"capacity\":1}");
    hold_the_unit(&kept, true);
    kept.pool = open_clients(&kept);
    queue_watch_start(&kept.watch, kept.fixture.database, &kept.queue, 1, LOOK_MS);
    all_ask(&kept);

    int64_t start_us = kit_now_us(), cpu_us = process_cpu_us(kept.fixture.database->pid);
    inject_fault(&kept);
    ret_figures->back_seconds = (double)(kit_now_us() - start_us) / 1e6;
    ret_figures->database_us = (double)(process_cpu_us(kept.fixture.database->pid) - cpu_us) / numbers->waiters;
    start_us = kit_now_us();
    hold_the_unit(&kept, false);
    if (numbers->fault == KEPT_FROZEN) { /* it comes back while others are served */
        client_pool_run(kept.pool, kit_now_us() + 50000);
        kit_permitd_thaw(kept.fixture.permitd[1]);
    }
    if (!client_pool_run(kept.pool, kit_now_us() + (int64_t)WAITS_LOST_MS * 1000) || kept.pool->failed)
        kit_fail("kept: %u of %u clients are not done, %u releases failed", kept.pool->busy, all, kept.pool->failed);
    ret_figures->served_seconds = (double)(kit_now_us() - start_us) / 1e6;
    judge_kept(&kept, ret_figures);
    client_pool_close(kept.pool);
    fixture_stop(&kept.fixture);
}
