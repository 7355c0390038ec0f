/* SPDX-License-Identifier: MIT */
/* Starts, stops, kills and pauses the simulated permitd. */
#include "dice.h"
#include "fake_store.h"
#include "tasks/tasks.h"
#include "world.h"

int server_any(void)
{
    return server_rather((int)dice_between(0, profile.engines - 1));
}

int server_rather(int first)
{
    for (int i = 0; i < profile.engines; i++) {
        const struct server *server = &world.servers[(first + i) % profile.engines];
        if (server->engine && !server->stopping && !server->paused)
            return (first + i) % profile.engines;
    }
    return -1;
}

/* Allowed clock difference: up to 5 s, or the time without grants after a failover. */
int64_t server_any_skew(void)
{
    int64_t most = profile.hold_ms * US_PER_MS / 2 - 1000;
    return profile.calm ? 0 : dice_between(-most, most);
}

static void start_server(int process)
{
    struct server *server = &world.servers[process];
    struct buf message;
    buf_init(&message, 1024);
    const struct engine_settings settings = {
        .workers = (size_t)dice_between(1, 3),
        .max_pending = dice_once_in(6) ? 10 : 1000,
        .max_pending_ends = 1000,
        .row_bytes = (size_t)min_i64(dice_once_in(4) ? 2000 : 1000000, dice_once_in(4) ? 6000 : 1000000),
        .request_timeout_ms = 10000,
        .failover_hold_ms = profile.hold_ms,
        .plan = {.retention_us = 7 * 86400LL * US_PER_SECOND,
                 .tombstone_us = 3600LL * US_PER_SECOND,
                 .default_ttl_ms = DEFAULT_TTL_MS,
                 .backfill_bound_us = profile.backfill_bound_ms * US_PER_MS,
                 .max_semaphore_waiters = dice_once_in(6) ? 2 : 1000},
        .retention_rows = 1000000,
        .open_store = fake_store_open,
        .address = "http://127.0.0.1:7070",
        .version = "0",
        .tasks = tasks_all,
        .task_count = TASK_COUNT - (run_with_feed ? 1 : 2), /* the last ones are feed and webhooks */
        .feed_retention_ms = 7 * 86400LL * 1000,
        .feed_rows = profile.feed_rows,
        .max_waiters = dice_once_in(6) ? 5 : 1000,
        .max_semaphores = profile.max_semaphores,
        .wait_poll_ms = 50,
        .short_path = profile.short_path,
        .shared_pause_ms = profile.shared_pause_ms,
    };
    int before = process_current();
    process_enter(process, server_any_skew());
    if (!engine_start(&settings, &server->engine, &message))
        abort();
    process_enter(before, 0);
    server->stopping = server->paused = false;
    server->starts++;
    oracle_restarted();
    operators_join(server);
    step("p%d starts", process);
    buf_release(&message);
}

int server_number(const struct server *server)
{
    return (int)(server - world.servers);
}

static void server_back(struct timer *timer)
{
    struct server *server = CONTAINER_OF(timer, struct server, back);
    if (!server->engine) {
        start_server(server_number(server));
    } else if (server->paused) {
        step("p%d goes on", server_number(server));
        server->paused = false;
        oracle_troubled();
        process_resume(server_number(server));
        list_for_each (node, next, &server->calls)
            LIST_ENTRY(node, struct call, node)->excused_us += sim_now() - server->paused_at;
    }
}

void server_kill(struct server *server)
{
    int process = server_number(server);
    step("p%d is killed", process);
    world.result->kills++;
    timer_drop(&server->back);
    oracle_restarted();
    process_kill(process);
    fake_store_process_died(process);
    server->engine = NULL;
    server->stopping = server->paused = false;
    list_for_each (node, next, &server->calls) {
        struct call *call = LIST_ENTRY(node, struct call, node);
        oracle_result_unknown(call);
        if (call->client && call->wait_until)
            call->client->lost = call->story;
        call_free(call);
    }
    timer_set(&server->back, sim_now() + dice_between(0, (profile.deaths ? 9 : 2) * US_PER_SECOND));
}

static void *stop_body(void *context)
{
    struct server *server = context;
    engine_stop(server->engine);
    engine_free(server->engine);
    if (!list_empty(&server->calls))
        violation("P13", "an operation is not decided when its permitd has stopped");
    step("p%d has stopped", server_number(server));
    server->engine = NULL;
    server->stopping = false;
    timer_set(&server->back, sim_now() + dice_between(0, US_PER_SECOND));
    return NULL;
}

void server_stop(struct server *server)
{
    step("p%d is asked to stop", server_number(server));
    world.result->stops++;
    oracle_restarted();
    server->stopping = true;
    process_spawn(server_number(server), stop_body, server);
}

void server_pause(struct server *server)
{
    bool lasts = profile.deaths || dice_once_in(6);
    int64_t us = lasts ? dice_between(US_PER_SECOND, 8 * US_PER_SECOND) : dice_between(50000, US_PER_SECOND);
    step("p%d is paused for %lld ms", server_number(server), (long long)us / US_PER_MS);
    world.result->pauses++;
    server->paused = true;
    server->paused_at = sim_now();
    oracle_troubled();
    process_pause(server_number(server));
    if (us > 5 * US_PER_SECOND)
        fake_store_time_out(server_number(server), 5 * US_PER_SECOND);
    timer_set(&server->back, sim_now() + us);
}

void servers_begin(void)
{
    for (int i = 0; i < profile.engines; i++) {
        list_init(&world.servers[i].calls);
        world.servers[i].back.fire = server_back;
        process_set_boot(i, dice_between(1, 1000) * US_PER_SECOND, dice_between(-100, 100));
        start_server(i);
    }
}

void servers_repair(void)
{
    for (int i = 0; i < profile.engines; i++) {
        struct server *server = &world.servers[i];
        while (server->stopping)
            fiber_sleep(10000);
        if (server->back.node.place) {
            timer_drop(&server->back);
            server_back(&server->back);
        }
    }
}
