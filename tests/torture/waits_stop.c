/* SPDX-License-Identifier: MIT */
/* SIGTERM while many wait. */
#include "waits.h"

#include <signal.h>
#include <sys/wait.h>

static void hold_the_unit(struct site *site)
{
    struct kit_http http = kit_http(site->permitd[0]->port);
    struct reply reply;
    if (site_acquire(&http, "holder", "hot", 1, "1h", &reply) != 201)
        kit_fail("stop: %d %s", reply.status, reply.body);
    reply_release(&reply);
    kit_http_close(&http);
}

/* Permitd's end may come before the last answers are read here. */
static int64_t await_exit(struct site *site, struct throng *throng, int64_t start_us)
{
    int64_t exit_us = 0, end_us = start_us + (int64_t)WAITS_LOST_MS * 1000;
    while (throng->busy || !exit_us) {
        throng_step(throng, 5);
        if (!exit_us && kit_permitd_wait_end(site->permitd[0], 0) != -1)
            exit_us = kit_now_us();
        if (kit_now_us() > end_us)
            kit_fail("stop: after %d s %u clients have no answer, permitd has%s ended", WAITS_LOST_MS / 1000,
                     throng->busy, exit_us ? "" : " not");
    }
    return exit_us;
}

void stop_measure(unsigned waiters, struct stop_figures *ret_figures)
{
    struct site site = site_start(1, false);
    site_semaphore(&site, "hot", "{\"capacity\":1}");
    hold_the_unit(&site);
    struct throng *throng = throng_open("stop", site.permitd[0]->port, waiters);
    for (unsigned i = 0; i < waiters; i++) {
        throng->clients[i].semaphore = "hot";
        throng->clients[i].wait = "10m";
    }
    throng_ask_all(throng);
    site_await_waiting(&site, "hot", waiters, WAITS_LOST_MS);

    int64_t start_us = kit_now_us();
    KIT_CHECK(!kill(site.permitd[0]->pid, SIGTERM));
    int64_t exit_us = await_exit(&site, throng, start_us);
    int status = site.permitd[0]->end_status;
    ret_figures->told = throng_count(throng, 503, "shutting_down");
    ret_figures->exit_ms = (exit_us - start_us) / 1000;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        kit_fail("stop: permitd ended with status 0x%x", (unsigned)status);
    if (ret_figures->told != waiters)
        kit_fail("stop: %zu of %u were told 503 shutting_down; 503 in all: %zu, without an answer: %zu",
                 ret_figures->told, waiters, throng_count(throng, 503, NULL), throng_count(throng, 0, NULL));
    throng_close(throng);
    site_stop(&site);
}
