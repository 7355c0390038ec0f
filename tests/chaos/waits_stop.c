/* SPDX-License-Identifier: MIT */
/* SIGTERM while many clients wait. */
#include "waits.h"

#include <signal.h>
#include <sys/wait.h>

static void hold_the_unit(struct fixture *fixture)
{
    struct kit_http http = kit_http(fixture->permitd[0]->port);
    struct reply reply;
    if (fixture_acquire(&http, "holder", "hot", 1, "1h", &reply) != 201)
        kit_fail("stop: %d %s", reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

/* permitd may end before the last answers are read here. */
static int64_t await_exit(struct fixture *fixture, struct client_pool *client_pool, int64_t start_us)
{
    int64_t exit_us = 0, end_us = start_us + (int64_t)WAITS_LOST_MS * 1000;
    while (client_pool->busy || !exit_us) {
        client_pool_step(client_pool, 5);
        if (!exit_us && kit_permitd_wait_end(fixture->permitd[0], 0) != -1)
            exit_us = kit_now_us();
        if (kit_now_us() > end_us)
            kit_fail("stop: after %d s %u clients have no answer, permitd has%s ended", WAITS_LOST_MS / 1000,
                     client_pool->busy, exit_us ? "" : " not");
    }
    return exit_us;
}

void stop_measure(unsigned waiters, struct stop_figures *ret_figures)
{
    struct fixture fixture = fixture_start(1, false);
    fixture_semaphore(&fixture, "hot", "{\"capacity\":1}");
    hold_the_unit(&fixture);
    struct client_pool *client_pool = client_pool_open("stop", fixture.permitd[0]->port, waiters);
    for (unsigned i = 0; i < waiters; i++) {
        client_pool->clients[i].semaphore = "hot";
        client_pool->clients[i].wait = "10m";
    }
    client_pool_ask_all(client_pool);
    fixture_await_waiting(&fixture, "hot", waiters, WAITS_LOST_MS);

    int64_t start_us = kit_now_us();
    KIT_CHECK(!kill(fixture.permitd[0]->pid, SIGTERM));
    int64_t exit_us = await_exit(&fixture, client_pool, start_us);
    int status = fixture.permitd[0]->end_status;
    ret_figures->told = client_pool_count(client_pool, 503, "shutting_down");
    ret_figures->exit_ms = (exit_us - start_us) / 1000;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        kit_fail("stop: permitd ended with status 0x%x", (unsigned)status);
    if (ret_figures->told != waiters)
        kit_fail("stop: %zu of %u were answered 503 shutting_down; 503 in all: %zu, without an answer: %zu",
                 ret_figures->told, waiters, client_pool_count(client_pool, 503, NULL),
                 client_pool_count(client_pool, 0, NULL));
    client_pool_close(client_pool);
    fixture_stop(&fixture);
}
